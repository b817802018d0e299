// The Side by side view: the same start under up to six kinds of attention, with one time and one camera.

import { h } from "./dom.js";
import { getState, subscribe, update } from "./state.js";
import { Camera } from "./camera.js";
import { createDisplayBar } from "./displaybar.js";
import { KINDS, plannedFrames, withKind } from "./experiment.js";
import { experimentForm } from "./form.js";
import { createPlayer } from "./player.js";
import { SidePanel } from "./sidepanel.js";
import { composedStages, tableOf } from "./tokenexports.js";

const MOST = 6;
const SPREAD = 4; // a run that spreads so many times more than the middle one does not decide the view

export function mount(root, context) {
  return new SidesView(root, context).interface();
}

/** The time that all runs share: place k of `total` equal steps from t0 to t1; as far as the slowest run has come. */
class SharedTime {
  constructor(panels, experiment) {
    this.panels = panels;
    this.total = Math.max(2, plannedFrames(experiment));
    this.discrete = Boolean(experiment.layers);
    this.planned = experiment.flow?.t1; // until the first run has begun
    this.placeOf = (time) => ((time - this.t0) / (this.t1 - this.t0)) * (this.total - 1);
  }

  get runs() {
    return this.panels().map((panel) => panel.recording).filter(Boolean);
  }

  get t0() {
    return this.runs.length ? this.runs[0].t0 : 0;
  }

  get t1() {
    const ends = this.runs.length ? this.runs.map((run) => run.t1) : [this.planned];
    return Math.max(this.t0 + 1e-9, ...ends.filter(Number.isFinite));
  }

  get end() {
    return this.panels().every((panel) => panel.over) || null;
  }

  get count() {
    // Those that wait in the queue do not hold up the others.
    const going = this.panels().filter((panel) => !panel.over && panel.recording && !panel.recording.end);
    const reached = going.map(({ recording: run }) => run.timeAt(run.count - 1));
    const time = Math.min(this.t1, ...reached);
    return Math.floor(this.placeOf(time) + 1e-6) + 1;
  }

  timeAt(place) {
    return this.t0 + (place / (this.total - 1)) * (this.t1 - this.t0);
  }
}

class SidesView {
  constructor(root, context) {
    Object.assign(this, { context, visible: false, all: [], asked: null, byHand: false, camera: new Camera() });
    this.build(root);
    subscribe((state) => this.follow(state));
    context.socket.onOpen(() => {
      this.asked = null;
      this.follow(getState());
    });
  }

  build(root) {
    this.formRoot = h("div", { class: "form sides-form" });
    this.pictures = h("div", { class: "pictures sides-pictures" });
    root.append(this.formRoot, this.pictures);
    this.boxes = Object.entries(KINDS).map(([kind, { name }]) => ({ kind, name, box: h("input", { type: "checkbox",
      dataset: { testid: `kind-${kind}` }, onchange: (event) => this.choose(kind, event.target.checked) }) }));
    this.cancelButton = h("button", { type: "button", class: "small", hidden: true, dataset: { testid: "cancel-sides" },
      onclick: () => this.cancel() }, "Cancel");
    this.pictures.append(h("fieldset", { class: "sides-choice" },
      h("legend", { class: "visually-hidden" }, `Kinds of attention, at most ${MOST}`),
      h("div", { class: "row" }, this.boxes.map(({ box, name }) => h("label", { class: "check" }, box, name)),
        this.cancelButton)));
    this.grid = h("div", { class: "sides-grid" });
    this.pictures.append(this.grid);
    this.player = createPlayer(this.pictures, { speed: getState().display.speed, onMove: () => this.show(),
      onSpeed: (speed) => update(["display", "speed"], speed) });
    this.bar = createDisplayBar(this.pictures, { get: () => getState().display,
      set: (name, value) => update(["display", name], value) });
    this.form = experimentForm(this.formRoot, {
      get: () => getState().sides.experiment,
      set: (experiment) => update(["sides", "experiment"], experiment),
      d: [1, 2, 3, 4, 5, 6, 7, 8], measures: "tokens", dynamics: true, heads: true, kinds: ["softmax"], view: "tokens",
      limits: this.context.socket.hello?.limits,
    });
  }

  /** Add or remove a kind; the order is that of the boxes. */
  choose(kind, on) {
    const { kinds } = getState().sides;
    if (on && kinds.length >= MOST) this.context.status(`At most ${MOST} kinds side by side: take one away first.`);
    else if (!on && kinds.length === 1) this.context.status("One kind has to stay.");
    else update(["sides", "kinds"], Object.keys(KINDS).filter((k) => (k === kind ? on : kinds.includes(k))));
    this.offer();
  }

  offer() {
    const { kinds } = getState().sides;
    for (const { kind, box } of this.boxes) {
      box.checked = kinds.includes(kind);
      box.disabled = !box.checked && kinds.length >= MOST;
    }
  }

  /** The panels in use. */
  get panels() {
    return this.all.slice(0, this.chosen.length);
  }

  get chosen() {
    return getState().sides.kinds.filter((kind) => kind in KINDS).slice(0, MOST);
  }

  follow({ sides, display }) {
    if (!this.visible) return;
    this.arrange();
    if (display !== this.display) {
      this.display = display;
      this.bar.refresh();
      if (this.player.speed !== display.speed) this.player.setSpeed(display.speed);
      for (const panel of this.all) panel.stage.setDisplay(display);
    }
    const want = display.colour === "received" ? ["received"] : [];
    if (this.formShows !== sides.experiment) this.form.refresh();
    this.formShows = sides.experiment;
    const key = JSON.stringify(want);
    const whole = !this.asked || this.asked.experiment !== sides.experiment || this.asked.key !== key;
    this.asked = { experiment: sides.experiment, key };
    if (whole) this.form.clearRefusals();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(sides.experiment, want, whole), 30);
  }

  /** As many panels as kinds; they are made once and then kept. */
  arrange() {
    const { chosen } = this;
    this.offer();
    while (this.all.length < chosen.length) {
      const panel = new SidePanel(this.grid, this.context, this.all.length, {
        camera: this.camera, fitBox: (place) => this.box(place), onChange: (changed) => this.changed(changed),
        onView: () => this.moved(panel), onKey: (event) => this.player.handleKey(event) });
      panel.stage.setDisplay(getState().display);
      this.all.push(panel);
    }
    this.all.forEach((panel, k) => (panel.node.hidden = k >= chosen.length));
    this.grid.dataset.count = chosen.length;
  }

  ask(experiment, want, whole) {
    this.all.forEach((panel, k) => {
      const kind = this.chosen[k];
      if (kind === undefined) {
        panel.cancel();
        panel.kind = null;
      } else if (whole || panel.kind !== kind || !panel.recording) {
        panel.setKind(kind);
        panel.ask(withKind(experiment, kind), want);
      }
    });
    const time = new SharedTime(() => this.panels, experiment);
    this.player.load(time);
    this.tell();
  }

  changed(panel) {
    this.player.grown();
    panel.stage.redraw();
    this.tell();
  }

  tell() {
    const going = this.panels.filter((panel) => !panel.over).length;
    this.cancelButton.hidden = going === 0;
    const all = this.panels.length;
    if (going) this.context.status(`Computing: ${all - going} of ${all} runs are done.`, "busy");
    else this.context.status(`${all} runs from the same start.`);
  }

  cancel() {
    for (const panel of this.panels) panel.cancel();
    this.tell();
    this.context.status("Cancelled. A change of the settings starts new runs.");
  }

  show() {
    const time = this.player.recording ? this.player.recording.timeAt(this.player.shown) : 0;
    for (const { stage, recording } of this.panels) if (recording) stage.show(recording.placeOf(time));
  }

  /** The box that all stages fit: around all runs, but for those that spread much more than the middle one. */
  box() {
    const runs = this.panels.map((panel) => panel.recording).filter((run) => run && run.count);
    if (!runs.length) return null;
    const time = this.player.recording.timeAt(this.player.shown);
    const boxes = runs.map((run) => (this.display.fit === "frame" ? run.boxAt(run.placeOf(time)) : run.box()));
    const sizes = boxes.map(({ low, high }) => Math.max(...low.map((x, c) => high[c] - x)));
    const middle = [...sizes].sort((a, b) => a - b)[Math.floor((sizes.length - 1) / 2)];
    const counted = boxes.filter((_, k) => sizes[k] <= SPREAD * middle);
    return { low: counted[0].low.map((_, c) => Math.min(...counted.map((box) => box.low[c]))),
      high: counted[0].high.map((_, c) => Math.max(...counted.map((box) => box.high[c]))) };
  }

  /** The reader moved the camera in one picture: it is the camera of all. */
  moved(panel) {
    for (const { stage } of this.panels) {
      stage.byHand = panel.stage.byHand;
      stage.redraw();
    }
  }

  interface() {
    return {
      show: () => {
        this.visible = true;
        window.meanformer = Object.assign(window.meanformer || {}, { player: this.player, sides: this });
        this.follow(getState());
      },
      hide: () => {
        this.visible = false;
        if (this.player.playing) this.player.pause();
        if (this.panels.some((panel) => !panel.over || !panel.recording?.complete)) this.asked = null;
        clearTimeout(this.timer);
        for (const panel of this.all) panel.cancel();
      },
      exports: this.exports(),
    };
  }

  exports() {
    const runs = () => this.panels.filter((panel) => panel.recording && panel.recording.count);
    return {
      name: "sides",
      experiment: () => withKind(getState().sides.experiment, this.chosen[0]),
      picture: () => composedStages(runs().map(({ stage, title, words }) => ({ stage,
        title: `${title.textContent}: ${words.textContent}` })), { title: "The same start, several kinds of attention",
        time: this.player.timeWords(this.player.shown), columns: [1, 1, 2, 3, 2, 3, 3][runs().length] }),
      frameCount: () => (runs().length ? this.player.last + 1 : 0),
      currentFrame: () => this.player.shown,
      seek: (k) => {
        this.player.seek(k);
        this.show();
      },
      table: () => (runs().length ? sidesTable(runs()) : null),
    };
  }
}

/** The tables of the runs one after the other, with the kind as the first column. */
function sidesTable(panels) {
  const { columns } = tableOf(panels[0].recording);
  function* rows() {
    for (const { kind, recording } of panels) for (const row of tableOf(recording).rows()) yield [kind, ...row];
  }
  return { columns: ["kind", ...columns], rows };
}
