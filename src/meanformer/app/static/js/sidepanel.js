// One of several pictures side by side: a kind of attention, its run, its outcome in words.

import { formatNumber, h } from "./dom.js";
import { KINDS } from "./experiment.js";
import { clusterWords, outcomeWords } from "./outcomes.js";
import { Runner } from "./runner.js";
import { createStage } from "./stage.js";

/** A panel in `root` that runs in the slot of its own. `onChange(panel)` when frames, an end or a problem have come. */
export class SidePanel {
  constructor(root, context, number, { camera, fitBox, onChange, onView, onKey }) {
    Object.assign(this, { context, number, onChange, kind: null, asked: null, recording: null, over: true });
    this.title = h("h3", {});
    this.badge = h("span", { class: "badge", hidden: true });
    this.words = h("p", { class: "side-words", dataset: { testid: `side-outcome-${number}` } });
    this.frame = h("div", { class: "side-frame" });
    this.node = h("section", { class: "side", dataset: { testid: `side-${number}` } },
      h("div", { class: "side-head" }, this.title, this.badge), this.frame, this.words);
    root.append(this.node);
    this.stage = createStage(this.frame, { bare: true, camera, fitBox, onView, onKey, testid: `side-stage-${number}` });
    const changed = () => this.onChange(this);
    this.runner = new Runner(context.socket, `side-${number}`, {
      onBusy: (words) => this.say(words),
      onStart: () => {},
      onFrames: (recording) => this.adopt(recording),
      onCurves: changed,
      onEnd: (recording) => this.ended(recording),
      onProblem: (answer) => this.problem(answer),
      onIdle: () => {},
    });
  }

  setKind(kind) {
    if (kind === this.kind) return;
    this.kind = kind;
    this.title.textContent = KINDS[kind] ? KINDS[kind].name : kind;
    this.stage.node.setAttribute("aria-label", `Tokens under ${this.title.textContent} attention`);
  }

  ask(experiment, want) {
    this.over = false;
    this.runner.ask({ do: "run", experiment, want });
  }

  say(words, bad = false) {
    this.words.textContent = words;
    this.words.classList.toggle("bad", bad);
  }

  adopt(recording) {
    if (this.recording !== recording) {
      this.recording = recording;
      this.badge.hidden = true;
      this.stage.setRecording(recording);
    }
    this.onChange(this);
  }

  ended(recording) {
    this.over = true;
    const { outcome, end } = recording;
    const took = Number.isFinite(end.seconds) ? ` ${formatNumber(end.seconds, 2)} s.` : "";
    const [main, why] = outcomeWords(outcome, end.numbers?.radius);
    this.say(`${main}${took}`, !outcome.ok);
    this.words.title = why;
    this.badge.hidden = !Number.isFinite(end.clusters);
    this.badge.textContent = clusterWords(end.clusters || 0, recording.n);
    this.adopt(recording);
    this.stage.recolour();
  }

  problem(answer) {
    this.over = true;
    this.say(answer.words, true);
    this.onChange(this);
  }

  cancel() {
    this.runner.cancel();
    if (!this.over) this.say("Cancelled.");
    this.over = true;
  }
}
