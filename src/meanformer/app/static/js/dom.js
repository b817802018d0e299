// Small helpers for the page's elements, numbers and timing.

const SVG = new Set(["svg", "path", "circle", "line", "rect", "g", "polyline", "text", "ellipse", "polygon"]);

/**
 * An element. Attributes: `class`, `on<event>: f`, `dataset: {...}`, `style: {...}`; true and false set and leave out
 * an attribute; properties that attributes do not follow (value, checked, indeterminate) are set as properties.
 * Children: nodes, texts, numbers, arrays of them; null and false are left out.
 */
export function h(tag, attributes = {}, ...children) {
  const node = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  const later = [];
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on") && typeof value === "function") node.addEventListener(name.slice(2).toLowerCase(), value);
    else if (["value", "checked", "indeterminate"].includes(name)) later.push([name, value]);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name === "style" && value && typeof value === "object") Object.assign(node.style, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  append(node, children);
  // After the children, as a select has a value only among its options, and a slider only within its ends.
  for (const [name, value] of later) if (value !== null && value !== undefined) node[name] = value;
  return node;
}

/** Add nodes, texts, numbers, and arrays of them to the end of a node. */
export function append(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** Remove all children of a node. */
export function clear(node) {
  node.replaceChildren();
  return node;
}

export const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

/** A number with `digits` significant digits and no needless zeros: 0.3333, 12, 1.2e-7; a true minus sign. */
export function formatNumber(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "unknown";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  let text;
  if (size >= 1e5 || size < 1e-4) {
    const [front, power] = x.toExponential(digits - 1).split("e");
    text = `${trimmed(front)}e${Number(power)}`;
  } else {
    text = Number.isInteger(x) ? String(x) : trimmed(x.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size)))));
  }
  return text.replaceAll("-", "−");
}

const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** `count` with its noun: "1 cluster", "12 clusters". */
export const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** Call `f` at most once in `milliseconds`, the last call always; `.cancel()` forgets a waiting call. */
export function throttle(f, milliseconds) {
  let last = -Infinity;
  let timer = null;
  let waiting = null;
  const call = () => {
    timer = null;
    last = performance.now();
    f(...waiting);
  };
  const throttled = (...given) => {
    waiting = given;
    if (timer === null) timer = setTimeout(call, Math.max(0, last + milliseconds - performance.now()));
  };
  throttled.cancel = () => {
    clearTimeout(timer);
    timer = null;
  };
  return throttled;
}

/** Call `f` once, `milliseconds` after the last of several calls; `.cancel()` forgets a waiting call. */
export function debounce(f, milliseconds) {
  let timer = null;
  const debounced = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...given), milliseconds);
  };
  debounced.cancel = () => clearTimeout(timer);
  return debounced;
}

/** Give a canvas as many pixels as the screen has for it; returns {width, height, ratio} in CSS pixels. */
export function fitCanvas(canvas, width = canvas.clientWidth, height = canvas.clientHeight) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [w, e] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== e) canvas.height = e;
  return { width, height, ratio };
}

/** A canvas fitted to the screen and wiped: {pen, width, height}, for drawing in CSS pixels. */
export function wiped(canvas, ...size) {
  const { width, height, ratio } = fitCanvas(canvas, ...size);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

let lastId = 0;

/** A new id, for labels and descriptions of controls. */
export const freshId = (word = "id") => `${word}-${++lastId}`;

/** Whether the reader asked for little motion. */
export const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Hand a file to the browser as a download. */
export function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
