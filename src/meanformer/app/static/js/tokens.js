// The Tokens view: a form, the picture of tokens that move, its time, four charts, the outcome in words.

import { formatNumber, h, plural } from "./dom.js";
import { getState, subscribe, update } from "./state.js";
import { onThemeChange } from "./theme.js";
import { createCharts } from "./charts.js";
import { legendOf, orderedRgb } from "./colours.js";
import { createDisplayBar } from "./displaybar.js";
import { movedMeasure } from "./dragging.js";
import { experimentForm } from "./form.js";
import { clusterWords, outcomeWords } from "./outcomes.js";
import { createPlayer } from "./player.js";
import { Runner } from "./runner.js";
import { createStage } from "./stage.js";
import { picture, tableOf } from "./tokenexports.js";

const SLOT = "main";
const MOST_DRAGGED = 2000;
const GROWN = 30;
const FEW_FRAMES = 12;

export function mount(root, context) {
  return new TokensView(root, context).interface();
}

class TokensView {
  constructor(root, context) {
    Object.assign(this, { context, visible: false, asked: null, folder: null, recording: null, waiting: null });
    this.moved = null; // the token that is moved by hand: runs from where it was before still arrive
    this.build(root);
    this.runner = new Runner(context.socket, SLOT, {
      onBusy: (words, share) => this.busy(words, share),
      onStart: (recording) => this.begin(recording),
      onFrames: (recording) => this.grown(recording),
      onCurves: (recording) => this.grown(recording),
      onEnd: (recording) => this.ended(recording),
      onProblem: (answer) => this.problem(answer),
      onIdle: () => this.idle(),
    });
    subscribe((state) => this.follow(state));
    onThemeChange(() => this.legend());
    context.socket.onOpen(() => {
      this.asked = null;
      this.follow(getState());
    });
  }

  build(root) {
    this.formRoot = h("div", { class: "form" });
    this.outcome = h("p", { class: "words tokens-outcome", dataset: { testid: "outcome" }, "aria-live": "polite" },
      "Waiting for the first frames.");
    this.badge = h("span", { class: "badge", hidden: true, dataset: { testid: "clusters" } });
    this.cancelButton = h("button", { type: "button", class: "small", hidden: true, dataset: { testid: "cancel" },
      onclick: () => this.cancel() }, "Cancel");
    this.error = h("p", { class: "error", role: "alert", dataset: { testid: "error" } });
    this.note = h("div", { class: "panel tokens-replay", hidden: true });
    this.pictures = h("div", { class: "pictures tokens-pictures" });
    const head = h("div", { class: "tokens-head" }, this.outcome, this.badge, this.cancelButton);
    this.pictures.append(this.note, head, this.error);
    root.append(this.formRoot, this.pictures);
    this.stage = createStage(this.pictures, {
      canDrag: () => this.whyNotDrag(),
      onDrag: (i, coordinates) => this.dragged(i, coordinates),
      onKey: (event) => this.player.handleKey(event),
      status: (words) => this.context.status(words),
      onView: () => this.hint(),
    });
    this.progress = h("div", { class: "stage-progress", hidden: true });
    this.stage.node.append(this.progress);
    this.player = createPlayer(this.pictures, {
      speed: getState().display.speed,
      onMove: (player) => this.show(player.shown),
      onSpeed: (speed) => update(["display", "speed"], speed),
    });
    this.bar = createDisplayBar(this.pictures, { get: () => getState().display,
      set: (name, value) => update(["display", name], value) });
    this.legendLine = h("p", { class: "tokens-legend hint" });
    this.pictures.append(this.legendLine);
    this.charts = createCharts(this.pictures, (time) => this.player.seekTime(time));
    this.form = experimentForm(this.formRoot, {
      get: () => getState().tokens.experiment,
      set: (experiment) => update(["tokens", "experiment"], experiment),
      d: [1, 2, 3, 4, 5, 6, 7, 8], measures: "tokens", dynamics: true, heads: true, view: "tokens",
      limits: this.context.socket.hello?.limits,
    });
  }

  /** The state has changed: what concerns this view is done again. */
  follow({ tokens, display }) {
    if (display !== this.display) {
      this.display = display;
      this.stage.setDisplay(display);
      this.bar.refresh();
      this.legend();
      this.hint();
      if (this.player.speed !== display.speed) this.player.setSpeed(display.speed);
    }
    const wants = display.colour === "received" ? ["received"] : [];
    if (this.folder !== null) {
      if (this.asked !== this.folder && this.visible) this.ask(this.folder, { do: "replay", folder: this.folder });
      return;
    }
    if (this.moved && this.moved.measure !== tokens.experiment.measure) this.moved = null;
    const known = this.asked && this.asked.experiment === tokens.experiment;
    // A run that was asked for with more than is wanted now is good enough.
    if (known && wants.every((want) => this.asked.wants.includes(want))) return;
    if (!known && this.formShows !== tokens.experiment) this.form.refresh();
    this.formShows = tokens.experiment;
    if (!this.visible) return;
    const asked = { experiment: tokens.experiment, wants };
    this.ask(asked, { do: "run", experiment: tokens.experiment, want: wants });
  }

  ask(asked, message) {
    this.asked = asked;
    this.awaiting = true; // the picture is of the run before
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.runner.ask(message), this.stage.dragging >= 0 ? 0 : 30);
  }

  // What the runner tells

  busy(words, share) {
    this.cancelButton.hidden = false;
    // Words of the run before fade, unless the new one is here at once.
    if (this.awaiting) this.fading = this.fading || setTimeout(() => this.pictures.classList.add("stale"), 500);
    this.stage.node.setAttribute("aria-busy", "true");
    this.progress.hidden = false;
    this.progress.classList.toggle("unknown", !(share > 0));
    this.progress.style.width = share > 0 ? `${(100 * share).toFixed(1)}%` : "";
    this.context.status(words, "busy");
  }

  idle() {
    this.fresh();
    this.cancelButton.hidden = true;
    this.progress.hidden = true;
    this.stage.node.removeAttribute("aria-busy");
  }

  fresh() {
    this.awaiting = false;
    clearTimeout(this.fading);
    this.fading = null;
    this.pictures.classList.remove("stale");
  }

  begin(recording) {
    this.clearProblem();
    this.waiting = recording;
    // A reader who holds a time sees the old run until the new one has come so far, so that nothing jumps.
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.adopt(recording), 500);
    if (!this.recording || this.recording.n !== recording.n || this.recording.d !== recording.d) this.adopt(recording);
  }

  adopt(recording) {
    if (this.waiting !== recording) return;
    clearTimeout(this.patience);
    this.waiting = null;
    this.fresh();
    if (this.moved) recording.moveStart(this.moved.i, this.moved.coordinates);
    recording.inherit(this.recording);
    this.recording = recording;
    this.stage.setRecording(recording);
    this.player.load(recording);
    this.charts.setRecording(recording);
    this.words();
    this.legend();
  }

  grown(recording) {
    if (this.waiting === recording) {
      const place = this.player.byHand ? this.player.place : 1;
      if (recording.count - 1 >= Math.min(place, recording.total - 1)) this.adopt(recording);
      return;
    }
    if (this.recording !== recording) return;
    this.player.grown();
    this.charts.setRecording(recording);
    this.stage.redraw();
    if (this.display.colour === "received") this.legend();
  }

  ended(recording) {
    this.adopt(recording);
    this.grown(recording);
    if (this.stage.dragging < 0 && !this.runner.busy) this.moved = null;
    this.stage.recolour();
    this.words();
    this.legend();
    this.hint();
    const { seconds } = recording.end;
    const took = Number.isFinite(seconds) ? ` Computed in ${formatNumber(seconds, 2)} s.` : "";
    this.context.status(`${plural(recording.n, "token")}, ${plural(recording.count, "frame")}.${took}`);
  }

  problem(answer) {
    const placed = this.folder === null && answer.path && answer.path.length ? this.form.showRefusal(answer) : false;
    this.error.textContent = placed ? "" : answer.words;
    this.dismiss();
    const shown = this.recording && !this.recording.count ? "its start" : "the run before";
    this.outcome.textContent = `This cannot be run${placed ? ": see the form" : ""}. The picture is of ${shown}.`;
    this.outcome.classList.add("bad");
    this.badge.hidden = true;
    this.context.status(answer.words, "bad");
  }

  /** A run of which nothing but the start has come, and nothing more will, is not shown. */
  dismiss() {
    clearTimeout(this.patience);
    this.waiting = null;
  }

  clearProblem() {
    this.error.textContent = "";
    this.form.clearRefusals();
  }

  cancel() {
    this.runner.cancel();
    this.context.status("Cancelled. A change of the settings starts a new run.");
    if (!this.recording) return;
    if (this.recording.end) {
      this.words("Cancelled: the picture is of the run before.");
      return;
    }
    this.recording.clusters = null;
    this.stage.recolour();
    this.words("Cancelled: the picture holds the frames that had arrived.");
  }

  words(text) {
    const { outcome, end, clusters } = this.recording;
    const [main, why] = text ? [text, ""] : outcome ? outcomeWords(outcome, end?.numbers?.radius) : ["Running.", ""];
    this.outcome.replaceChildren(main, why ? h("span", { class: "tokens-why" }, ` ${why}`) : "");
    if (!text && this.endedTooSoon()) this.outcome.append(" ", this.closerButton(outcome.time));
    this.outcome.classList.toggle("bad", Boolean(outcome && !outcome.ok));
    const count = end && (end.clusters ?? (clusters && clusters.sizes.length));
    this.badge.hidden = !Number.isFinite(count);
    if (Number.isFinite(count)) this.badge.textContent = clusterWords(count, this.recording.n);
  }

  /** Whether a run ended so early that there is almost nothing to see of it. */
  endedTooSoon() {
    const { outcome, count } = this.recording;
    return this.folder === null && getState().tokens.experiment.flow && outcome && !outcome.ok && outcome.time > 0 &&
      count < FEW_FRAMES;
  }

  closerButton(time) {
    const t1 = Number((1.02 * time).toPrecision(4));
    const look = () => update(["tokens", "experiment", "flow", "t1"], t1);
    return h("button", { type: "button", class: "small", dataset: { testid: "closer" }, onclick: look },
      `Look closer: until t = ${formatNumber(t1)}`);
  }

  // What is seen

  show(place) {
    if (!this.recording) return;
    this.stage.show(place);
    this.charts.setPlace(this.recording, place);
    const frame = Math.floor(place);
    if (this.display.colour === "received" && frame !== this.legendFrame) this.legend();
    this.legendFrame = frame;
  }

  legend() {
    if (!this.recording) return;
    const { words, low, high } = legendOf(this.recording, this.display.colour, this.player.shown);
    this.legendLine.replaceChildren();
    if (low !== undefined) this.legendLine.append(`${low} `, scale(), ` ${high}: `);
    this.legendLine.append(words);
    if (this.display.bound && this.recording.rescaled)
      this.legendLine.append(` ${words ? "· " : ""}No circles: R(t) and its bound are about x, not z = e`,
        h("sup", {}, "−tV"), "x. See the chart.");
    if (this.display.hull && this.stage.shown.length !== 2)
      this.legendLine.append(" · The hull is drawn in two dimensions: set the third axis to flat.");
    if (this.grownBy && this.display.fit === "run")
      this.legendLine.append(` ${words ? "· " : ""}The cloud grows ${formatNumber(this.grownBy, 2)}-fold: `,
        h("button", { type: "button", class: "plain small", onclick: () => update(["display", "fit"], "frame") },
          "follow it"));
  }

  /** A run that grows much is a dot at its start, if the view is fitted to all of it. */
  hint() {
    this.grownBy = null;
    if (this.recording && this.recording.end) {
      const [first, all] = [this.recording.boxOver(0, 0), this.recording.box()];
      const size = (box) => Math.max(...box.low.map((low, c) => box.high[c] - low));
      const by = first ? size(all) / Math.max(size(first), 1e-12) : 1;
      if (by > GROWN && !this.stage.byHand) this.grownBy = by;
    }
    this.legend();
  }

  // Tokens by hand

  /** Nothing, if tokens can be moved now; else why not. */
  whyNotDrag() {
    const { recording } = this;
    if (!recording || this.folder !== null) return "A replay shows a run as it was: its tokens stay where they are.";
    if (recording.n > MOST_DRAGGED) return `Only up to ${plural(MOST_DRAGGED, "token")} can be moved by hand.`;
    if (this.player.shown > 0) return "Tokens can be moved at the start: press Home, or go to the first frame.";
    return "";
  }

  dragged(i, coordinates) {
    if (this.player.playing || !this.player.byHand) this.player.seek(0);
    const measure = movedMeasure(getState().tokens.experiment.measure, this.recording, i, coordinates);
    this.moved = { i, coordinates, measure };
    update(["tokens", "experiment", "measure"], measure);
  }

  // Replay of run folders

  replay(folder) {
    this.folder = folder;
    this.asked = null;
    this.clearProblem();
    this.formRoot.inert = true;
    this.formRoot.classList.add("resting");
    this.note.replaceChildren(h("span", {}, `Replay of runs/${folder}`),
      h("button", { type: "button", class: "small", dataset: { testid: "leave-replay" }, onclick: () => this.leave() },
        "Leave the replay"));
    this.note.hidden = false;
    this.follow(getState());
  }

  leave() {
    this.folder = this.asked = null;
    this.formRoot.inert = false;
    this.formRoot.classList.remove("resting");
    this.note.hidden = true;
    this.clearProblem();
    this.follow(getState());
  }

  interface() {
    return {
      show: () => this.appear(),
      hide: () => {
        this.visible = false;
        if (this.player.playing) this.player.pause();
        clearTimeout(this.timer);
        // What is over is not computed again; but its costly curves may still be on their way.
        if (this.runner.busy || !this.recording?.complete) this.asked = null;
        this.runner.cancel();
      },
      replay: (folder) => this.replay(folder),
      exports: this.exports(),
    };
  }

  appear() {
    this.visible = true;
    const { player, stage, runner } = this;
    window.meanformer = Object.assign(window.meanformer || {}, { player, stage, runner });
    this.follow(getState());
    this.stage.redraw();
  }

  exports() {
    return {
      name: "tokens",
      experiment: () => (this.folder === null ? getState().tokens.experiment : null),
      picture: () => picture(this, getState().tokens.experiment),
      frameCount: () => (this.recording ? this.recording.count : 0),
      currentFrame: () => this.player.shown,
      seek: (k) => {
        this.player.seek(k);
        this.show(k);
      },
      table: () => (this.recording && this.recording.count ? tableOf(this.recording) : null),
    };
  }
}

/** The colours of ordered values, from low to high. */
function scale() {
  const canvas = h("canvas", { width: 96, height: 10, class: "scale", "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  for (let x = 0; x < 96; x++) {
    pen.fillStyle = `rgb(${orderedRgb(x / 95).join(", ")})`;
    pen.fillRect(x, 0, 1, 10);
  }
  return canvas;
}
