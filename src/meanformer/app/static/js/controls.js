// Controls of a form: numbers, sliders, choices, checks. Each has a label, a place for its error, and a refresh.

import { clamp, freshId, h } from "./dom.js";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const BEGUN = /^[+-]?\d*\.?\d*(e[+-]?\d*)?(\/[+-]?\d*\.?\d*)?$/i;

/** The number that a text means, also as a fraction such as -1/3; null if it means none. */
export function parseNumber(text) {
  const [top, below, ...more] = text.trim().replaceAll("−", "-").split("/").map((part) => part.trim());
  if (more.length || !NUMBER.test(top) || (below !== undefined && !NUMBER.test(below))) return null;
  const value = Number(top) / (below === undefined ? 1 : Number(below));
  return Number.isFinite(value) ? value + 0 : null;
}

/** Whether a text may become a number when more is typed: "", "-", "1e". */
export const isBegun = (text) => BEGUN.test(text.trim().replaceAll("−", "-"));

/** A number as one types it. */
export const typed = (x) => (Number.isFinite(x) ? String(Number(x.toPrecision(12))) : x === undefined ? "" : String(x));

const quoted = (text) => (text.trim() === "" ? "nothing" : `“${text.trim().slice(0, 40)}”`);

const current = (bound) => (typeof bound === "function" ? bound() : bound);

/**
 * Make a text input take numbers: `accept(value)` when one is typed; else, at once or when the input is left, `tell`
 * with a sentence, and the last good value stays in force. Escape brings it back.
 * The bounds `low` and `high` are numbers, or functions that give them. What `late(value)` holds for counts when the
 * input is left. Returns {refresh}.
 */
export function numberInput(input, options) {
  const { value, accept, low = -Infinity, high = Infinity, whole = false, what, late = () => false } = options;
  let accepted = null;
  let told = "";
  // Only its own sentence is taken back: the place may hold one of the server's, on a number that is a number.
  const tell = (words) => {
    if (words || told) options.tell(words);
    told = words;
  };
  const read = (left) => {
    // An input that was hidden while it was typed in still tells that it is left.
    if (input.offsetParent === null) return;
    const found = parseNumber(input.value);
    const bounds = { low: current(low), high: current(high), whole };
    const inside = found !== null && found >= bounds.low && found <= bounds.high && (!whole || Number.isInteger(found));
    if (inside && !left && late(found)) return;
    if (inside) {
      tell("");
      accepted = found;
      if (found !== value()) accept(found);
    } else if (left || (found === null && !isBegun(input.value))) {
      const stays = value() === undefined ? "" : ` ${typed(value())} stays in force.`;
      const noun = found === null && !whole ? "a number" : expected(bounds);
      tell(`${what}: ${quoted(input.value)} is not ${noun}.${stays}`);
    }
  };
  const restore = () => {
    tell("");
    input.value = typed(value());
  };
  input.addEventListener("input", () => read(false));
  input.addEventListener("change", () => read(true));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      restore();
      input.select();
    }
    if (event.key === "Enter") read(true);
  });
  const refresh = () => {
    const found = parseNumber(input.value);
    // What is being typed is left alone: "1." must not become "1".
    const typing = document.activeElement === input && (found === null || found === accepted || found === value());
    if (!typing) restore();
  };
  return { refresh };
}

function expected({ low, high, whole }) {
  const noun = whole ? "a whole number" : "a number";
  const [from, to] = [low, high].map((x) => (Math.abs(x) >= 1e4 ? x.toLocaleString("en") : typed(x)));
  if (low > 0 && low < 1e-8) return high < Infinity ? `${noun} above 0 and up to ${to}` : `${noun} above 0`;
  if (low > -Infinity && high < Infinity) return `${noun} from ${from} to ${to}`;
  return low > -Infinity ? `${noun} of at least ${from}` : high < Infinity ? `${noun} of at most ${to}` : noun;
}

/** The frame of a control: label, content, error. `inputs` are marked when something is wrong. */
export function field({ label, path = [], visible, hint, wide = false }, content, inputs) {
  const id = freshId("error");
  const error = h("p", { class: "error", id, hidden: true });
  const target = inputs[0];
  if (!target.id) target.id = freshId("control");
  const title = target.getAttribute("role") === "group" || target.tagName === "DIV"
    ? h("span", { class: "label", id: freshId("label") }, label)
    : h("label", { for: target.id }, label);
  if (title.tagName === "SPAN") target.setAttribute("aria-labelledby", title.id);
  const note = hint ? h("p", { class: "hint", id: freshId("hint") }, hint) : null;
  if (note) target.setAttribute("aria-describedby", note.id);
  const node = h("div", { class: wide ? "field wide" : "field", dataset: { path: path.join(".") } },
    title, content, note, error);
  const fail = (words) => {
    error.textContent = words;
    error.hidden = words === "";
    for (const input of inputs) {
      if (words) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      const described = [note?.id, words && id].filter(Boolean).join(" ");
      if (described) input.setAttribute("aria-describedby", described);
      else input.removeAttribute("aria-describedby");
    }
  };
  const show = (experiment) => (node.hidden = Boolean(visible) && !visible(experiment));
  return { node, path, fail, title, note, show };
}

/**
 * A number, with a slider beside it if `slider` = {low, high, log}. `get(experiment)` and `set(experiment, value)` read
 * and make experiments; `form` = {get, set} holds the present one.
 */
export function numberField(form, { name, get, set, slider, low, high, whole, label, ...options }) {
  const input = h("input", { type: "text", inputmode: "decimal", autocomplete: "off", dataset: { testid: name } });
  const change = (value) => form.set(set(form.get(), value));
  const value = () => get(form.get());
  const range = slider && rangeOf(slider, whole, label, name, change);
  const made = field({ label, ...options }, range ? h("div", { class: "slider" }, range.node, input) : input, [input]);
  const what = label;
  const box = numberInput(input, { value, accept: change, tell: made.fail, low, high, whole, what });
  const refresh = (experiment) => {
    made.show(experiment);
    if (made.node.hidden) return;
    box.refresh();
    if (range) range.refresh(get(experiment));
  };
  return { ...made, input, refresh };
}

const STEPS = 400;

function rangeOf({ low, high, log }, whole, label, name, change) {
  const digits = (x) => (whole ? Math.round(x) : Number(x.toPrecision(3)));
  const rounded = (x) => (whole && x > 200 ? Number(x.toPrecision(2)) : digits(x));
  const value = (place) => rounded(log ? low * (high / low) ** (place / STEPS) : low + ((high - low) * place) / STEPS);
  const share = (x) => (log ? Math.log(Math.max(x, low) / low) / Math.log(high / low) : (x - low) / (high - low));
  const node = h("input", { type: "range", min: 0, max: STEPS, step: log || !whole ? 1 : "any",
    "aria-label": `${label}, slider`, dataset: { testid: `${name}-slider` } });
  const say = (x) => node.setAttribute("aria-valuetext", typed(x));
  node.addEventListener("input", () => {
    say(value(Number(node.value)));
    change(value(Number(node.value)));
  });
  // Whole numbers lie several steps apart: an arrow key must reach the next one.
  node.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step || !whole) return;
    event.preventDefault();
    const before = value(Number(node.value));
    let at = Number(node.value);
    do at += step;
    while (value(at) === before && at > 0 && at < STEPS);
    change(clamp(value(clamp(at, 0, STEPS)), low, high));
  });
  return {
    node,
    refresh: (x) => {
      if (!Number.isFinite(x)) return;
      if (value(Number(node.value)) !== x) node.value = STEPS * clamp(share(x), 0, 1);
      say(x);
    },
  };
}

/** Keeps the children of `node` those of `options`, made by `child(value, words)`; only new options make new ones. */
function optionList(node, options, child) {
  let shown = "";
  return (experiment) => {
    const table = typeof options === "function" ? options(experiment) : options;
    if (JSON.stringify(table) === shown) return;
    node.replaceChildren(...Object.entries(table).map(([value, words]) => child(value, words)));
    shown = JSON.stringify(table);
  };
}

/** A choice among `options`: {value: words} or a function of the experiment that gives them. */
export function selectField(form, { name, get, set, options, ...rest }) {
  const node = h("select", { dataset: { testid: name }, onchange: () => form.set(set(form.get(), node.value)) });
  const made = field(rest, node, [node]);
  const offer = optionList(node, options, (value, words) => h("option", { value }, words));
  const refresh = (experiment) => {
    made.show(experiment);
    offer(experiment);
    node.value = String(get(experiment));
  };
  return { ...made, input: node, refresh };
}

/** A few options side by side, as radio buttons; `set` gets a key of `options`. */
export function segmentedField(form, { name, get, set, options, ...rest }) {
  const group = freshId("group");
  const node = h("div", { class: "segmented", role: "radiogroup", dataset: { testid: name } });
  const made = field(rest, node, [node]);
  const radio = (value) => h("input", { type: "radio", name: group, value, dataset: { testid: `${name}-${value}` },
    onchange: () => form.set(set(form.get(), value)) });
  const offer = optionList(node, options, (value, words) => h("label", {}, radio(value), words));
  const refresh = (experiment) => {
    made.show(experiment);
    offer(experiment);
    for (const input of node.querySelectorAll("input")) input.checked = input.value === String(get(experiment));
  };
  return { ...made, refresh };
}

/** Yes or no. */
export function checkField(form, { name, get, set, label, path = [], visible, hint }) {
  const input = h("input", { type: "checkbox", dataset: { testid: name },
    onchange: () => form.set(set(form.get(), input.checked)) });
  const made = field({ label, path, visible, hint }, null, [input]);
  made.node.prepend(h("span", { class: "row" }, input, made.title));
  made.node.classList.add("check");
  const refresh = (experiment) => {
    made.show(experiment);
    input.checked = Boolean(get(experiment));
  };
  return { ...made, input, refresh };
}

/** A line of text that follows the experiment; hidden when there is nothing to say. */
export function noteField(words, { path = [], kind = "hint" } = {}) {
  const node = h("p", { class: kind });
  const refresh = (experiment) => {
    node.textContent = words(experiment) || "";
    node.hidden = node.textContent === "";
  };
  return { node, path, refresh };
}
