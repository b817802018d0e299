// The state of the page: one plain object, changed by paths, told to subscribers once per frame, kept in the link.

import { debounce } from "./dom.js";
import { defaultState } from "./defaults.js";

export { defaultState };
export const VIEWS = ["tokens", "gaussian", "sides", "density"];
const COLOURS = ["cluster", "position", "received", "plain"];
const LONGEST_LINK = 1_000_000;

let state = defaultState();
let told = state;
let frame = null;
const subscribers = new Set();

export const getState = () => state;

/** Replace the value at `path`; objects on the way are copied, so that an old state never changes. */
export function update(path, value) {
  replaceState(replaced(state, path, value));
}

/** Replace the whole state. */
export function replaceState(next) {
  if (next === state) return;
  state = next;
  writeLink();
  // A timer beside the animation frame: a hidden tab has no frames, and must not forget changes.
  if (frame === null) frame = [requestAnimationFrame(tell), setTimeout(tell, 200)];
}

/** Call `f(state, before)` after changes, once per animation frame at most; returns a function that stops this. */
export function subscribe(f) {
  subscribers.add(f);
  return () => subscribers.delete(f);
}

function tell() {
  cancelAnimationFrame(frame[0]);
  clearTimeout(frame[1]);
  frame = null;
  const before = told;
  told = state;
  for (const f of [...subscribers]) {
    try {
      f(state, before);
    } catch (error) {
      reportError(error); // One part of the page that fails must not keep the others from hearing.
    }
  }
}

function replaced(object, [key, ...rest], value) {
  const copy = Array.isArray(object) ? [...object] : { ...object };
  if (rest.length) copy[key] = replaced(copy[key] === undefined ? {} : copy[key], rest, value);
  else if (value === undefined) delete copy[key];
  else copy[key] = value;
  return copy;
}

/** The state as text for a link: JSON in UTF-8, in base64url. */
export function encode(given) {
  const bytes = new TextEncoder().encode(JSON.stringify(given));
  let text = "";
  // In pieces, as a call has at most some ten thousand arguments.
  for (let k = 0; k < bytes.length; k += 8192) text += String.fromCharCode(...bytes.subarray(k, k + 8192));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The state that a text of a link means; an Error with a sentence if it means none. */
export function decode(text) {
  if (text.length > LONGEST_LINK) throw new Error("This link is too long to be one of this page.");
  let given;
  try {
    const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
    given = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw new Error("This link is damaged: it cannot be read, perhaps because a part is missing.");
  }
  return checked(given);
}

const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** What a link may hold, with defaults for what it leaves out. Experiments themselves are checked by the server. */
function checked(given) {
  const whole = defaultState();
  const refuse = (what) => {
    throw new Error(`This link is damaged: ${what}.`);
  };
  if (!isTable(given)) refuse("it holds no state of this page");
  if (given.view !== undefined && !VIEWS.includes(given.view)) refuse(`there is no view "${given.view}"`);
  for (const view of VIEWS) {
    if (given[view] === undefined) continue;
    const { experiment } = isTable(given[view]) ? given[view] : {};
    if (!isTable(experiment) || !isTable(experiment.attention)) refuse(`the view "${view}" has no experiment`);
    const measured = view === "gaussian" || isTable(experiment.measure);
    if (!measured || !["flow", "layers"].every((name) => experiment[name] === undefined || isTable(experiment[name])))
      refuse(`the experiment of the view "${view}" is not one`);
    whole[view] = { ...whole[view], ...given[view] };
  }
  if (!isCovariances(whole.gaussian.starts)) refuse("its starts are not 2 x 2 matrices");
  const names = whole.sides.kinds;
  if (!Array.isArray(names) || names.length > 6 || !names.every((name) => typeof name === "string"))
    refuse("its kinds of attention are not a list of up to six names");
  return { ...whole, view: given.view || whole.view, display: checkedDisplay(given.display, whole.display) };
}

const isCovariances = (starts) =>
  Array.isArray(starts) &&
  starts.every((M) => Array.isArray(M) && M.length === 2 && M.every((row) => Array.isArray(row) && row.length === 2 &&
    row.every(Number.isFinite)));

/** Settings of the display are harmless: those that do not fit are left out in silence. */
function checkedDisplay(given, otherwise) {
  const display = { ...otherwise };
  for (const [name, value] of Object.entries(isTable(given) ? given : {}))
    if (name in otherwise && typeof value === typeof otherwise[name]) display[name] = value;
  if (!COLOURS.includes(display.colour)) display.colour = otherwise.colour;
  if (!["run", "frame"].includes(display.fit)) display.fit = otherwise.fit;
  if (!(display.speed > 0 && display.speed <= 16)) display.speed = 1;
  return display;
}

/** An address with the state in it, which lets nobody in who is not in already; null if it would be too long. */
export function link() {
  const text = encode(state);
  return text.length > LONGEST_LINK ? null : `${location.origin}/#${text}`;
}

let written = "";

const writeLink = debounce(() => {
  const text = encode(state);
  written = text.length > LONGEST_LINK ? "" : text;
  history.replaceState(null, "", written === "" ? location.pathname : `#${written}`);
}, 300);

/** Take the state from the link, if there is one; returns a sentence if it is damaged. */
export function readLink() {
  const text = location.hash.slice(1);
  if (text === "" || text === written) return null;
  try {
    replaceState(VIEWS.includes(text) ? { ...state, view: text } : decode(text));
    return null;
  } catch (error) {
    replaceState(defaultState());
    return `${error.message} The page shows its first experiment instead.`;
  }
}
