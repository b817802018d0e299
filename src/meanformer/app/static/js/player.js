// Time: play, pause, step, scrub, speed, loop; frames may still be arriving.

import { calm, clamp, formatNumber, h } from "./dom.js";

const SECONDS = 6; // how long a whole run plays at speed 1
const SPEEDS = [0.25, 0.5, 1, 2, 4];

/**
 * A transport bar in `root`. `onMove(player)` is called at most once per animation frame, when the place changed.
 * The place is a number in [0, total - 1]: a frame, and between frames a share of the way.
 */
export function createPlayer(root, options = {}) {
  return new Player(root, options);
}

class Player {
  constructor(root, { onMove = () => {}, onSpeed = () => {}, speed = 1 } = {}) {
    Object.assign(this, { onMove, onSpeed, speed, place: 0, playing: false, looping: false, fps: 0 });
    this.recording = null;
    this.byHand = calm(); // whether the reader has stopped or moved the time: then nothing plays by itself
    this.lastTick = null;
    this.ticks = [];
    this.request = null;
    this.build(root);
    this.label();
  }

  build(root) {
    const button = (words, sign, testid, onclick) =>
      h("button", { type: "button", class: "player-button", "aria-label": words, title: words, onclick,
        dataset: { testid } }, sign);
    this.playButton = button("Play", icon("play"), "play", () => this.toggle());
    this.playButton.classList.add("player-play");
    this.back = button("One frame back", icon("back"), "step-back", () => this.step(-1));
    this.forward = button("One frame forward", icon("forward"), "step-forward", () => this.step(1));
    this.slider = h("input", { type: "range", min: 0, max: 1, step: 0.01, value: 0, class: "player-slider",
      "aria-label": "Time", dataset: { testid: "scrub" }, oninput: () => this.seek(Number(this.slider.value)) });
    this.arrived = h("div", { class: "player-arrived" });
    this.time = h("output", { class: "player-time", dataset: { testid: "time" } });
    this.select = h("select", { class: "player-speed", "aria-label": "Speed", title: "Speed",
      dataset: { testid: "speed" }, onchange: () => this.setSpeed(Number(this.select.value)) },
    SPEEDS.map((speed) => h("option", { value: speed }, `${speed}×`)));
    this.select.value = String(this.speed);
    this.loop = button("Repeat", icon("loop"), "loop", () => this.setLooping(!this.looping));
    this.loop.setAttribute("aria-pressed", "false");
    this.bar = h("div", { class: "transport player", role: "group", "aria-label": "Time of the run" },
      this.playButton, this.back, this.forward,
      h("div", { class: "player-track" }, this.arrived, this.slider),
      this.time, this.select, this.loop);
    this.bar.addEventListener("keydown", (event) => this.handleKey(event));
    root.append(this.bar);
  }

  /** Play another run. A reader who moved the time by hand stays at the same share of it; else it plays again. */
  load(recording) {
    const share = this.recording ? this.place / Math.max(1, this.total - 1) : 0;
    const atEnd = this.recording && this.place >= this.total - 1;
    this.recording = recording;
    this.wanted = null;
    if (this.byHand || (this.playing && !atEnd)) this.wanted = share;
    this.place = this.wanted === null ? 0 : this.wanted * (this.total - 1);
    if (!this.byHand) this.play(false);
    this.grown();
  }

  /** More frames have arrived, or the run has ended. */
  grown() {
    if (this.wanted !== null && this.byHand && !this.playing) this.place = this.wanted * (this.total - 1);
    this.changed();
  }

  get total() {
    return this.recording ? this.recording.total : 1;
  }

  /** The last place that can be shown now. */
  get last() {
    return this.recording ? Math.max(0, this.recording.count - 1) : 0;
  }

  /** The place that is shown: what has not arrived yet cannot be. */
  get shown() {
    const place = clamp(this.place, 0, this.last);
    return this.recording && this.recording.discrete ? Math.floor(place + 1e-9) : place;
  }

  play(byHand = true) {
    if (byHand) {
      this.byHand = false;
      this.wanted = null;
      if (this.place >= this.total - 1) this.place = 0;
    }
    this.playing = true;
    this.lastTick = null;
    this.ticks = [];
    this.changed();
  }

  pause() {
    this.playing = false;
    this.byHand = true;
    this.wanted = this.place / Math.max(1, this.total - 1);
    this.changed();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  seek(place) {
    this.place = clamp(place, 0, this.total - 1);
    this.playing = false;
    this.byHand = true;
    this.wanted = this.place / Math.max(1, this.total - 1);
    this.changed();
  }

  seekTime(time) {
    if (this.recording) this.seek(this.recording.placeOf(time));
  }

  step(by) {
    this.seek(by > 0 ? Math.floor(this.shown + 1e-9) + by : Math.ceil(this.shown - 1e-9) + by);
  }

  setSpeed(speed) {
    this.speed = clamp(speed, 0.05, 16);
    if (SPEEDS.includes(this.speed)) this.select.value = String(this.speed);
    this.onSpeed(this.speed);
  }

  setLooping(looping) {
    this.looping = looping;
    this.loop.setAttribute("aria-pressed", String(looping));
  }

  /** Keys of the bar and of the pictures; returns whether the key meant something here. */
  handleKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
    if (event.target.matches("select, input:not([type=range]), textarea")) return false;
    const onButton = event.target.matches("button");
    const doing = {
      " ": onButton ? null : () => this.toggle(),
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      PageUp: () => this.step(-10), PageDown: () => this.step(10),
      Home: () => this.seek(0), End: () => this.seek(this.total - 1),
    }[event.key];
    if (!doing) return false;
    event.preventDefault();
    doing();
    return true;
  }

  changed() {
    if (this.request === null) this.request = requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.request = null;
    if (this.playing) this.advance(now);
    this.label();
    this.onMove(this);
    if (this.playing) this.changed();
  }

  advance(now) {
    const passed = this.lastTick === null ? 0 : Math.min(now - this.lastTick, 250);
    this.lastTick = now;
    this.measure(now);
    const next = this.place + (passed / 1000) * this.speed * ((this.total - 1) / SECONDS);
    // Waits where the frames end that have arrived.
    this.place = Math.min(next, Math.max(this.last, Math.min(this.place, this.total - 1)));
    const ended = this.recording && this.recording.end && this.place >= this.total - 1;
    if (ended && this.looping && this.total > 1) this.place = 0;
    else if (ended) this.playing = false;
  }

  /** Frames per second over the last second of playing. */
  measure(now) {
    this.ticks.push(now);
    while (this.ticks[0] < now - 1000) this.ticks.shift();
    const span = now - this.ticks[0];
    if (span > 100) this.fps = (1000 * (this.ticks.length - 1)) / span;
    if (window.meanformer) window.meanformer.fps = this.fps;
  }

  label() {
    const { recording, total, shown } = this;
    const words = this.timeWords(shown);
    const most = String(Math.max(total - 1, 0.01));
    if (this.slider.max !== most) this.slider.max = most;
    this.slider.value = String(this.place);
    this.slider.setAttribute("aria-valuetext", words);
    if (this.time.textContent !== words) this.time.textContent = words;
    const share = total > 1 ? this.last / (total - 1) : recording && recording.count ? 1 : 0;
    this.arrived.style.width = `${(100 * share).toFixed(1)}%`;
    const name = this.playing ? "Pause" : "Play";
    if (this.playButton.getAttribute("aria-label") !== name) {
      this.playButton.setAttribute("aria-label", name);
      this.playButton.title = name;
      this.playButton.replaceChildren(icon(this.playing ? "pause" : "play"));
    }
  }

  timeWords(place) {
    const { recording } = this;
    if (!recording) return "t = 0";
    if (recording.discrete) return `layer ${Math.round(place)} of ${this.total - 1}`;
    const reached = recording.end && recording.times ? recording.times[recording.count - 1] : recording.t1;
    const span = Math.abs(reached - recording.t0) || 1;
    const digits = Number.isFinite(span) ? clamp(2 - Math.floor(Math.log10(span)), 0, 9) : 2;
    const end = Number.isFinite(recording.t1) ? ` of ${formatNumber(recording.t1)}` : "";
    return `t = ${recording.timeAt(place).toFixed(digits)}${end}`;
  }
}

const SHAPES = {
  play: ["M5 3.5 L13 8 L5 12.5 Z", true],
  pause: ["M4.5 3.5 H6.8 V12.5 H4.5 Z M9.2 3.5 H11.5 V12.5 H9.2 Z", true],
  back: ["M11 4 L6 8 L11 12 M4.5 4 V12", false],
  forward: ["M5 4 L10 8 L5 12 M11.5 4 V12", false],
  loop: ["M4 9 V8 A3 3 0 0 1 7 5 H12 M10 3 L12 5 L10 7 M12 7 V8 A3 3 0 0 1 9 11 H4 M6 9 L4 11 L6 13", false],
};

/** A sign of 16 x 16, drawn in the colour of the text. */
function icon(name) {
  const [d, filled] = SHAPES[name];
  const look = filled ? { fill: "currentColor" } : { fill: "none", stroke: "currentColor", "stroke-width": 1.6 };
  return h("svg", { viewBox: "0 0 16 16", width: 18, height: 18, "aria-hidden": "true" }, h("path", { d, ...look }));
}
