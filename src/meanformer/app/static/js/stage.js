// One picture of tokens: the camera, axes, points, what is drawn around them, and what the pointer does.

import { clamp, fitCanvas, h } from "./dom.js";
import { onThemeChange, theme, toRgb } from "./theme.js";
import { Camera } from "./camera.js";
import { axisName, boxAxes, flatAxes } from "./axes.js";
import { createPoints } from "./points.js";
import { tokenColours } from "./colours.js";
import { drawCircles, drawEnvelopes, drawHulls, drawNumbers, drawStarts, named } from "./overlays.js";
import { Trails } from "./trails.js";
import { StageHand } from "./stagehand.js";

const INSET = { left: 46, right: 0, top: 0, bottom: 26 };
const BARE = { left: 0, right: 0, top: 0, bottom: 0 };
const CROWD = 10000; // so many tokens may be too many to move smoothly
const SLOW = 55; // milliseconds from one picture to the next that are too many
const KEYS = "Keys: space plays, arrows step, plus and minus zoom, W A S D move the view, 0 fits it; " +
  "square brackets choose a token, shift with arrows moves it at the start.";

/**
 * A stage in `root`. `canDrag()` tells why tokens cannot be moved now (a sentence), or nothing; `onDrag(i, coordinates,
 * phase)` with phase "move" or "end"; `onKey(event)` gets keys that are not the stage's; `fitBox(place)` may give
 * another box to fit; `onView()` is called when the reader moves the camera.
 */
export function createStage(root, options = {}) {
  return new Stage(root, options);
}

class Stage extends StageHand {
  constructor(root, options) {
    super();
    const { bare = false, camera = new Camera(), testid = "stage", label = "Picture of the tokens" } = options;
    this.options = options;
    Object.assign(this, { bare, camera, display: {}, place: 0, selected: -1, hovered: -1, dragging: -1 });
    this.dragAt = null;
    this.recording = null;
    this.shown = [0, 1];
    this.byHand = false; // whether the reader moved the camera: then it is not fitted
    this.trails = new Trails();
    const canvas = () => h("canvas", { "aria-hidden": "true" });
    [this.under, this.middle, this.over] = [canvas(), canvas(), canvas()];
    this.readout = h("div", { class: "readout", hidden: true });
    this.live = h("div", { class: "visually-hidden", "aria-live": "polite" });
    this.tools = h("div", { class: "stage-tools" });
    this.node = h("div", { class: `stage${bare ? " stage-bare" : ""}`, tabindex: 0, role: "application",
      "aria-label": bare ? label : `${label}. ${KEYS}`, dataset: { testid } },
    this.under, this.middle, this.over, this.tools, this.readout, this.live);
    root.append(this.node);
    this.points = createPoints(this.middle, { onRestored: () => this.redraw(), plain: options.plain });
    if (!bare) this.buildTools();
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(this.node);
    onThemeChange(() => this.recolour());
  }

  /** Another run. The camera stays where the reader put it, unless the dimension is another one. */
  setRecording(recording) {
    const before = this.recording;
    this.recording = recording;
    this.colours = null;
    if (!before || before.d !== recording.d) {
      this.setShown(recording.d === 1 ? ["t", 0] : recording.d === 2 ? [0, 1] : [0, 1, 2]);
      this.selected = -1;
    }
    if (this.selected >= recording.n) this.selected = -1;
    this.sizes = sizesOf(recording);
    if (!before || before.n !== recording.n) Object.assign(this, { every: 1, slowness: 0, moving: false });
    this.redraw();
  }

  /** Which coordinates are the axes: two or three numbers, or "t" and 0. */
  setShown(shown) {
    this.shown = shown;
    this.camera.solid = shown.length === 3;
    this.camera.stretched = shown[0] === "t";
    this.byHand = false;
    this.offerAxes();
    this.redraw();
  }

  setDisplay(display) {
    const before = this.display;
    this.display = display;
    if (before.fit !== display.fit) this.byHand = false;
    if (before.colour !== display.colour) this.colours = null;
    this.redraw();
  }

  /** Colours are made again: new clusters, or another scheme. */
  recolour() {
    this.colours = null;
    this.redraw();
  }

  /** Show a place of the run, at once: the player calls this once per animation frame. */
  show(place) {
    // What the readout says is of another moment.
    if (place !== this.place && this.dragging < 0) this.readout.hidden = true;
    this.place = place;
    this.pace(performance.now());
    this.render();
  }

  /** Where many tokens move too slowly, as without a graphics card, some of them do: all are drawn when time stands. */
  pace(now) {
    const passed = now - (this.shownAt || 0);
    this.shownAt = now;
    if (this.recording && this.recording.n > CROWD && passed < 1000) {
      this.slowness = 0.75 * this.slowness + 0.25 * passed;
      if (this.slowness > SLOW && this.every < 16) [this.every, this.slowness] = [this.every * 2, SLOW / 2];
    }
    clearTimeout(this.stillTimer);
    this.moving = this.every > 1;
    if (this.moving) this.stillTimer = setTimeout(() => this.rest(), 200);
  }

  rest() {
    this.moving = false;
    this.redraw();
  }

  redraw() {
    if (this.request) return;
    this.request = requestAnimationFrame(() => {
      this.request = null;
      this.render();
    });
  }

  /** Fit the view again, and let it follow the run. */
  refit() {
    this.byHand = false;
    this.redraw();
    if (this.options.onView) this.options.onView();
  }

  moved() {
    this.byHand = true;
    this.redraw();
    if (this.options.onView) this.options.onView();
  }

  zoom(factor, x, y) {
    this.camera.zoom(factor, x, y);
    this.moved();
  }

  fitCamera() {
    if (this.byHand || !this.recording || this.dragging >= 0) return;
    const { recording, shown } = this;
    const whole = this.options.fitBox ? this.options.fitBox(this.place) :
      this.display.fit === "frame" ? recording.boxAt(this.place) : recording.box();
    if (!whole) return;
    const pick = (values, time) => shown.map((c) => (c === "t" ? time : values[c]));
    const t1 = Number.isFinite(recording.t1) ? recording.t1 : recording.timeAt(recording.count - 1);
    this.camera.fit({ low: pick(whole.low, recording.t0), high: pick(whole.high, Math.max(t1, recording.t0 + 1e-9)) });
  }

  render() {
    const { width, height, ratio } = fitCanvas(this.under, this.node.clientWidth, this.node.clientHeight);
    if (width < 2 || height < 2) return;
    fitCanvas(this.middle, width, height);
    fitCanvas(this.over, width, height);
    this.ratio = ratio;
    this.camera.resize(width, height, this.bare || this.shown.length === 3 ? BARE : INSET);
    this.fitCamera();
    this.drawUnder(this.pen(this.under));
    this.drawPoints();
    this.drawOver(this.pen(this.over));
  }

  pen(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.camera.width, this.camera.height);
    return pen;
  }

  drawUnder(pen) {
    const { camera, recording, shown, display, place } = this;
    if (!recording) return;
    const names = shown.map((c) => axisName(c, recording));
    if (camera.solid) {
      const box = display.fit === "frame" ? recording.boxAt(place) : recording.box();
      const pick = (values) => shown.map((c) => values[c]);
      boxAxes(pen, camera, { low: pick(box.low), high: pick(box.high) }, names, this);
    } else flatAxes(pen, camera, names, this);
    const project = camera.projector();
    pen.save();
    pen.beginPath();
    pen.rect(camera.inset.left, 0, camera.width, camera.height - camera.inset.bottom);
    pen.clip();
    this.currentColours();
    if (display.paths && recording.count > 1) this.drawTrails(pen);
    if (display.starts) drawStarts(pen, recording, project, shown, this.diameter() / 2);
    if (display.hull && recording.d > 1 && shown.length === 2) drawHulls(pen, recording, place, project, shown);
    if (display.bound && !recording.rescaled) {
      if (shown[0] === "t") drawEnvelopes(pen, recording, project);
      else drawCircles(pen, recording, place, camera, project);
    }
    pen.restore();
  }

  drawTrails(pen) {
    const { camera, recording, shown, ratio, colours, place, trails } = this;
    const k = recording.between(place).k;
    const key = [recording, camera.version, colours, shown, ratio, this.under.width, this.under.height];
    trails.update({ recording, k, camera, shown, colours, ratio, size: [this.under.width, this.under.height], key });
    pen.drawImage(trails.canvas, 0, 0, camera.width, camera.height);
    trails.tip(pen, place, camera, shown, colours);
  }

  /** Colours are kept as long as they hold; those by attention received change with the frame. */
  currentColours() {
    const mode = this.display.colour || "plain";
    const { recording, place } = this;
    const frame = mode === "received" ? Math.floor(place) : 0;
    const key = [recording, mode, frame, recording.clusters, recording.received.length];
    if (this.colours && key.every((part, k) => part === this.colourKey[k])) return;
    this.colourKey = key;
    this.colours = tokenColours(recording, mode, place);
  }

  diameter() {
    const n = this.recording ? this.recording.n : 1;
    const room = clamp(Math.min(this.camera.width, this.camera.height) / 420, 0.6, 1.1);
    return clamp(34 * n ** -0.25 * room, 2, 11);
  }

  drawPoints() {
    const { recording, points, camera, shown, place } = this;
    if (!recording) return;
    const { k, next, share } = recording.between(place);
    const frames = recording.count ? [recording.frames[k], recording.frames[next]] : [recording.start, recording.start];
    points.setCloud({ n: recording.n, d: recording.d, shown, sizes: this.sizes });
    points.setFrames(...frames, [recording.times[k] || recording.t0, recording.times[next] || recording.t0]);
    points.setColours(this.colours);
    const crowd = recording.n;
    const alpha = crowd <= 1000 ? 0.95 : clamp(0.95 - 0.25 * Math.log10(crowd / 1000), 0.35, 1);
    const rim = crowd <= 1000 ? 0.7 : 0;
    const paper = toRgb(theme().card || theme().paper);
    const every = this.moving ? this.every : 1;
    this.drawn = points.draw({ camera, share, diameter: this.diameter(), alpha, paper, rim, ratio: this.ratio, every });
  }

  drawOver(pen) {
    const { camera, recording, shown, display, place } = this;
    if (!recording) return;
    const project = camera.projector();
    if (display.colour === "cluster" && recording.clusters) drawNumbers(pen, recording, place, camera, project, shown);
    const { ink, soft, font } = theme();
    for (const i of new Set([this.hovered, this.selected])) {
      if (i < 0 || i >= recording.n) continue;
      const [x, y] = project(...this.position(i));
      pen.beginPath();
      pen.arc(x, y, this.diameter() / 2 + 4, 0, 2 * Math.PI);
      pen.strokeStyle = ink;
      pen.lineWidth = i === this.selected ? 2 : 1.2;
      pen.stroke();
    }
    if (this.drawn < recording.n && recording.n > 5000) {
      const [drawn, all] = [this.drawn, recording.n].map((count) => count.toLocaleString("en"));
      const why = this.points.kind === "canvas" ? "No WebGL here" : "While it moves";
      named(pen, `${why}: ${drawn} of ${all} tokens are drawn.`, [camera.width / 2, 14], font, soft);
    }
  }

  /** The shown coordinates of a token now. */
  position(i) {
    const { recording, place } = this;
    return this.shown.map((c) => (c === "t" ? recording.timeAt(place) : recording.coordinate(i, c, place)));
  }

  /** What is seen, on one canvas; drawn now, as a canvas of WebGL forgets its picture. */
  paint(pen, x, y, width, height) {
    this.render();
    for (const canvas of [this.under, this.middle, this.over]) pen.drawImage(canvas, x, y, width, height);
  }
}

/** Diameters relative to 1 by the weights: areas are as the weights, within limits that can be seen. */
function sizesOf({ n, weights, equalWeights }) {
  if (equalWeights) return null;
  return Float32Array.from(weights, (w) => (w > 0 ? clamp(Math.sqrt(w * n), 0.45, 3.5) : 0.3));
}
