// What the reader does with a stage: pointer and keys, the token that is told of, chosen, moved.

import { clamp, formatNumber, h } from "./dom.js";
import { axisName } from "./axes.js";
import { attachGestures, nearestToken } from "./gestures.js";

/** The part of a stage that listens; stage.js has the part that draws. */
export class StageHand {
  buildTools() {
    const button = (sign, words, onclick, testid) =>
      h("button", { type: "button", class: "small", "aria-label": words, title: words, onclick, dataset: { testid } },
        sign);
    this.axesTools = h("span", { class: "stage-axes" });
    this.tools.append(this.axesTools,
      button("+", "Zoom in", () => this.zoom(1.3), "zoom-in"),
      button("−", "Zoom out", () => this.zoom(1 / 1.3), "zoom-out"),
      button("Fit", "Fit the view to the run, or to each frame, as chosen below", () => this.refit(), "fit"));
  }

  offerAxes() {
    if (this.bare) return;
    const d = this.recording ? this.recording.d : 2;
    this.axesTools.replaceChildren();
    if (d < 3) return;
    const third = this.shown.length > 2 ? this.shown[2] : -1;
    const names = Array.from({ length: d }, (_, c) => [c, axisName(c, this.recording)]);
    [0, 1, 2].forEach((axis) => {
      const chosen = axis < 2 ? this.shown[axis] : third;
      const others = [this.shown[0], this.shown[1], third].filter((_, k) => k !== axis);
      const free = names.filter(([c]) => !others.includes(c));
      const choices = axis < 2 ? free : [...free, [-1, "flat"]];
      this.axesTools.append(h("select", { "aria-label": `Axis ${axis + 1}`, value: String(chosen),
        onchange: (event) => {
          const next = [this.shown[0], this.shown[1], third];
          next[axis] = Number(event.target.value);
          this.setShown(next[2] < 0 ? next.slice(0, 2) : next);
        } }, choices.map(([c, name]) => h("option", { value: String(c) }, name))));
    });
  }

  nearest(x, y) {
    return this.recording ? nearestToken(this, x, y) : -1;
  }

  listen() {
    const { camera, node } = this;
    attachGestures(node, {
      grabs: (x, y) => !this.bare && this.nearest(x, y) >= 0,
      down: (x, y) => {
        const i = this.bare ? -1 : this.nearest(x, y);
        if (i >= 0) this.grab(i, x, y);
      },
      drag: (dx, dy, x, y) => {
        if (this.dragging >= 0) this.dragBy(dx, dy, x, y);
        else {
          if (camera.solid) camera.orbit(dx, dy);
          else camera.pan(dx, dy);
          this.moved();
        }
      },
      up: () => this.release(),
      shift: (dx, dy) => camera.pan(dx, dy),
      pinch: (factor, x, y) => this.zoom(factor, x, y),
      hover: (x, y) => this.hover(x, y),
      leave: () => this.hover(-100, -100),
    });
    node.addEventListener("keydown", (event) => this.key(event));
  }

  hover(x, y) {
    if (this.hoverRequest) return;
    this.hoverRequest = requestAnimationFrame(() => {
      this.hoverRequest = null;
      const i = this.nearest(x, y);
      if (i !== this.hovered || i >= 0) this.tell(i, x, y);
      if (i !== this.hovered) this.redraw();
      this.hovered = i;
      this.node.classList.toggle("over-token", i >= 0);
    });
  }

  /** The token under the pointer, in words. */
  tell(i, x, y) {
    this.readout.hidden = i < 0;
    if (i < 0) return;
    this.readout.textContent = this.tokenWords(i);
    const [width, height] = [this.readout.offsetWidth, this.readout.offsetHeight];
    this.readout.style.left = `${clamp(x + 14, 4, Math.max(4, this.camera.width - width - 4))}px`;
    this.readout.style.top = `${y + 16 + height > this.camera.height ? Math.max(4, y - height - 10) : y + 16}px`;
  }

  tokenWords(i) {
    const { recording, place } = this;
    const coordinate = (_, c) => formatNumber(recording.coordinate(i, c, place), 3);
    const parts = [`Token ${i + 1}: (${Array.from({ length: recording.d }, coordinate).join(", ")})`];
    if (!recording.equalWeights) parts.push(`weight ${formatNumber(recording.weights[i], 3)}`);
    if (recording.positions) parts.push(`position ${formatNumber(recording.positions[i], 3)}`);
    const received = recording.receivedAt(place);
    if (received) parts.push(`attention received ${formatNumber(received[i], 3)} × average`);
    if (recording.end && recording.clusters && recording.clusters.places[i] >= 0)
      parts.push(`cluster ${recording.clusters.places[i] + 1} at the end`);
    return parts.join(" · ");
  }

  /** Take a token, if tokens can be moved now; else choose it and say why it stays. */
  grab(i, x, y) {
    this.selected = i;
    this.tell(i, x, y);
    const why = this.options.canDrag ? this.options.canDrag() : "";
    if (why === "") {
      this.dragging = i;
      this.dragAt = this.startOf(i);
    }
    else if (why && this.options.status) this.options.status(why);
    this.redraw();
  }

  dragBy(dx, dy, x, y) {
    const near = this.camera.projector()(...this.position(this.dragging))[2];
    this.move(this.dragging, this.camera.step(dx, dy, near), "move");
    this.tell(this.dragging, x, y);
  }

  startOf(i) {
    const { d, start } = this.recording;
    return Array.from({ length: d }, (_, c) => start[i * d + c]);
  }

  /** Move a token by a step along the shown axes. */
  move(i, step, phase) {
    const { recording } = this;
    // While it is dragged, runs from where it was a moment ago still arrive: they do not tell where it is.
    const coordinates = this.dragAt ? [...this.dragAt] : this.startOf(i);
    this.shown.forEach((c, axis) => {
      if (c !== "t") coordinates[c] += step[axis];
    });
    if (this.dragAt) this.dragAt = coordinates;
    recording.moveStart(i, coordinates);
    this.redraw();
    this.options.onDrag(i, coordinates, phase);
  }

  release() {
    if (this.dragging < 0) return;
    const i = this.dragging;
    this.dragging = -1;
    this.move(i, [0, 0, 0], "end");
    this.dragAt = null;
  }

  key(event) {
    if (event.target !== this.node) return;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const views = { a: [1, 0], d: [-1, 0], w: [0, 1], s: [0, -1] };
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && ["+", "="].includes(event.key)) this.zoom(1.25);
    else if (plain && ["-", "_"].includes(event.key)) this.zoom(0.8);
    else if (plain && event.key === "0") this.refit();
    else if (plain && ["[", "]"].includes(event.key)) this.choose(event.key === "]" ? 1 : -1);
    else if (plain && event.shiftKey && arrows[event.key]) this.nudge(arrows[event.key]);
    else if (plain && views[event.key]) this.look(views[event.key]);
    else {
      if (this.options.onKey) this.options.onKey(event);
      return;
    }
    event.preventDefault();
  }

  look([dx, dy]) {
    if (this.camera.solid) this.camera.orbit(20 * dx, 20 * dy);
    else this.camera.pan(40 * dx, 40 * dy);
    this.moved();
  }

  choose(by) {
    if (!this.recording || this.bare) return;
    const { n } = this.recording;
    this.selected = (((this.selected < 0 && by < 0 ? 0 : this.selected) + by) % n + n) % n;
    this.live.textContent = this.tokenWords(this.selected);
    const [x, y] = this.camera.projector()(...this.position(this.selected));
    this.tell(this.selected, x, y);
    this.redraw();
  }

  nudge([dx, dy]) {
    if (this.selected < 0 || !this.recording) return;
    const why = this.options.canDrag ? this.options.canDrag() : "";
    if (why !== "") {
      if (why && this.options.status) this.options.status(why);
      return;
    }
    const pixels = Math.min(this.camera.width, this.camera.height) / 100;
    this.move(this.selected, this.camera.step(dx * pixels, dy * pixels), "end");
    this.live.textContent = this.tokenWords(this.selected);
    const [x, y] = this.camera.projector()(...this.position(this.selected));
    this.tell(this.selected, x, y);
  }
}
