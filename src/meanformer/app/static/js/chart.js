// Small line charts over time: linear or logarithmic values, a cursor at the present time, a click scrubs.

import { formatNumber, h, wiped } from "./dom.js";
import { onThemeChange, theme } from "./theme.js";
import { logTicks, namedTicks } from "./ticks.js";

const EDGE = { left: 40, right: 10, top: 8, bottom: 20 };

/**
 * A chart in `root`. `log`: a logarithmic axis; `wide`: one where values span much; `zero`: from 0 on. `series`:
 * [{name, sign, colour: index in the palette, dashed, step}]; `onScrub(time)` while the pointer is down.
 * `set(times, values, span)` gives the data: values[name] is a list, or left out where there is none.
 */
export function createChart(root, options) {
  return new Chart(root, options);
}

class Chart {
  constructor(root, { title, series, log, wide, zero, none = "none", testid, onScrub = () => {} }) {
    Object.assign(this, { series, log, wide, zero, none, onScrub, times: [], values: {}, span: [0, 1], title });
    this.heading = h("h3", { class: "chart-title" }, title);
    this.reading = h("span", { class: "chart-reading" });
    this.canvas = h("canvas", { class: "chart-canvas", role: "img" });
    this.cursor = h("div", { class: "chart-cursor", hidden: true });
    this.message = h("p", { class: "chart-none", hidden: true });
    this.frame = h("div", { class: "chart-frame" }, this.canvas, this.cursor, this.message);
    this.node = h("figure", { class: "chart", dataset: { testid } },
      h("figcaption", { class: "chart-head" }, this.heading, this.reading), this.frame);
    root.append(this.node);
    this.scrubbing();
    new ResizeObserver(() => this.draw()).observe(this.frame);
    onThemeChange(() => this.draw());
  }

  scrubbing() {
    const scrub = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const share = (event.clientX - box.left - EDGE.left) / Math.max(1, box.width - EDGE.left - EDGE.right);
      this.onScrub(this.span[0] + Math.min(Math.max(share, 0), 1) * (this.span[1] - this.span[0]));
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      scrub(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons && scrub(event));
  }

  setTitle(title) {
    this.title = title;
    this.heading.textContent = title;
  }

  set(times, values, span) {
    Object.assign(this, { times, values, span });
    this.draw();
  }

  present() {
    return this.series.filter(({ name }) => (this.values[name] || []).some(Number.isFinite));
  }

  /** The cursor at a time, and the values there as text. */
  setCursor(time, read) {
    const [t0, t1] = this.span;
    const share = t1 > t0 ? (time - t0) / (t1 - t0) : 0;
    const width = this.frame.clientWidth - EDGE.left - EDGE.right;
    this.cursor.hidden = !this.shown.length || !(share >= 0 && share <= 1);
    this.cursor.style.transform = `translateX(${(EDGE.left + share * width).toFixed(1)}px)`;
    const texts = this.shown.map(({ name, sign }) => [sign, read(name)]).filter(([, x]) => !Number.isNaN(x ?? NaN));
    const text = texts.map(([sign, x]) => `${sign} ${inReach(x)}`).join(" · ");
    if (this.reading.textContent !== text) this.reading.textContent = text;
  }

  /** Whether a value has a place on the axis; those near the end of the floating-point range have none. */
  drawn(x) {
    return Math.abs(x) < 1e290 && !(this.log && x <= 0);
  }

  range() {
    let [low, high] = [Infinity, -Infinity];
    for (const { name } of this.shown) {
      for (const x of this.values[name]) {
        if (!this.drawn(x)) continue;
        low = Math.min(low, x);
        high = Math.max(high, x);
      }
    }
    if (!(low <= high)) return this.log ? [0.1, 10] : [0, 1];
    if (this.log) {
      // What is constant but for rounding is drawn as such.
      const room = high / low < 1.0001 ? 1.5 : (high / low) ** 0.06;
      return [low / room, high * room];
    }
    if (this.zero) return [0, Math.max(high, 1) * 1.08];
    // What is constant but for a little is drawn as such: the axis spans half a percent at least.
    const room = Math.max((high - low) * 0.08, (0.005 * Math.abs(high) - (high - low)) / 2, low === high ? 1e-9 : 0);
    return [low - room, high + room];
  }

  get shown() {
    return this.present();
  }

  draw() {
    const { pen, width, height } = wiped(this.canvas, this.frame.clientWidth, this.frame.clientHeight);
    if (width < 20 || height < 20) return;
    const { shown } = this;
    if (this.wide) this.log = isWide(shown.map(({ name }) => this.values[name]));
    this.message.hidden = shown.length > 0;
    this.message.textContent = this.times.length ? this.none : "";
    this.canvas.setAttribute("aria-label", this.words(shown));
    if (!shown.length) return;
    const [low, high] = this.range();
    const [t0, t1] = this.span;
    const inner = [width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom];
    const x = (t) => EDGE.left + (t1 > t0 ? (t - t0) / (t1 - t0) : 0) * inner[0];
    const [a, b] = [Math.log(low), Math.log(high)]; // their ratio may be too large for a number
    const level = this.log ? (v) => (Math.log(v) - a) / (b - a) : (v) => (v - low) / (high - low);
    const y = (v) => EDGE.top + (1 - level(v)) * inner[1];
    this.axes(pen, x, y, low, high, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(EDGE.left, EDGE.top - 2, inner[0] + 2, inner[1] + 4);
    pen.clip();
    for (const one of shown) this.line(pen, one, x, y);
    pen.restore();
  }

  axes(pen, x, y, low, high, width, height) {
    const { soft, faint, font } = theme();
    pen.font = `11px ${font}`;
    pen.lineWidth = 1;
    const marks = this.log ? logTicks(low, high, 4) : namedTicks(low, high, 4);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const [value, text] of marks) {
      pen.strokeStyle = faint;
      pen.globalAlpha = 0.6;
      segment(pen, EDGE.left, y(value), width - EDGE.right, y(value));
      pen.globalAlpha = 1;
      pen.fillStyle = soft;
      pen.fillText(text, EDGE.left - 6, y(value));
    }
    pen.textBaseline = "alphabetic";
    pen.strokeStyle = soft;
    segment(pen, EDGE.left, height - EDGE.bottom, width - EDGE.right, height - EDGE.bottom);
    for (const [time, text] of namedTicks(this.span[0], this.span[1], Math.max(2, width / 80))) {
      segment(pen, x(time), height - EDGE.bottom, x(time), height - EDGE.bottom + 4);
      pen.textAlign = x(time) > width - 24 ? "right" : "center";
      pen.fillText(text, Math.min(x(time), width - 2), height - 5);
    }
  }

  line(pen, { name, colour, dashed, step }, x, y) {
    const values = this.values[name];
    pen.strokeStyle = theme().palette[colour];
    pen.lineWidth = 1.8;
    pen.lineJoin = "round";
    pen.setLineDash(dashed ? [5, 4] : []);
    pen.beginPath();
    let down = false;
    let before = null;
    for (let k = 0; k < values.length; k++) {
      const good = this.drawn(values[k]);
      if (!good) continue; // unknown there: the line goes on to the next value that is known
      if (down && step) pen.lineTo(x(this.times[k]), y(before));
      if (down) pen.lineTo(x(this.times[k]), y(values[k]));
      else pen.moveTo(x(this.times[k]), y(values[k]));
      down = true;
      before = values[k];
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  /** The chart in words, for those who do not see it. */
  words(shown) {
    if (!shown.length) return `${this.title}: ${this.times.length ? this.none : "nothing yet"}`;
    const ends = shown.map(({ name, sign }) => {
      const values = this.values[name].filter(Number.isFinite);
      return `${sign} from ${formatNumber(values[0], 3)} to ${formatNumber(values[values.length - 1], 3)}`;
    });
    const [t0, t1] = this.span;
    return `${this.title}, from t = ${formatNumber(t0)} to ${formatNumber(t1)}: ${ends.join("; ")}`;
  }
}

/** Whether values are positive and span so much that a linear axis shows their end only. */
function isWide(lists) {
  const finite = lists.flat().filter(Number.isFinite);
  return finite.length > 1 && Math.min(...finite) > 0 && Math.max(...finite) / Math.min(...finite) > 1e3;
}

/** A value as text; of one beyond the range of numbers, such as an energy that grows like exp(|x|^2), what is known. */
function inReach(x) {
  return Math.abs(x) === Infinity ? (x > 0 ? "above 1e308" : "below −1e308") : formatNumber(x, 3);
}

function segment(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}
