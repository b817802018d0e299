// The Export menu: experiment file, link, picture, film, numbers of what is seen now.

import { download, h } from "./dom.js";
import { menuButton, showDialog } from "./menu.js";
import { pack } from "./socket.js";
import { link } from "./state.js";

const MOST_FRAMES = 100;
const WIDEST = 720;
const FILM_SECONDS = 6;

/** The menu. `context` as views have it; `seen()` gives {name, exports} of the view that is shown. */
export function exportMenu(context, seen) {
  const item = (id, label, hint, needs, run) => {
    const { exports = {} } = seen() || {};
    const reason = needs(exports);
    return { id, label, hint, reason, run: () => guarded(context, () => run(exports)) };
  };
  return menuButton("Export", "export", () => [
    item("toml", "Experiment file (TOML)", "the same numbers with meanformer run", needsExperiment, (exports) =>
      exportToml(context, exports)),
    item("link", "Link", "this page with all its settings", () => null, () => exportLink(context)),
    item("png", "Picture (PNG)", "what is seen now", needsPicture, (exports) => exportPicture(context, exports)),
    item("gif", "Film (GIF)", `at most ${MOST_FRAMES} frames`, needsFrames, (exports) => exportFilm(context, exports)),
    item("csv", "Numbers (CSV)", "one row for each token and time, or as the view has it", needsTable, (exports) =>
      exportTable(context, exports)),
  ]);
}

const has = (value) => value !== null && value !== undefined;
const call = (exports, name) => (typeof exports[name] === "function" ? exports[name]() : null);
const needsExperiment = (exports) => (has(call(exports, "experiment")) ? null : "This view has no experiment now.");
const needsPicture = (exports) => (exports.picture ? null : "This view has no picture.");
const needsTable = (exports) => (has(call(exports, "table")) ? null : "There are no numbers yet.");
const needsFrames = (exports) =>
  exports.picture && exports.seek && call(exports, "frameCount") > 1 ? null : "There are no frames yet.";

/** Errors of an export become a sentence. */
async function guarded(context, run) {
  try {
    await run();
  } catch (error) {
    const cancelled = error.name === "AbortError";
    context.status(cancelled ? "Cancelled." : "");
    if (!cancelled) context.alert(error.message);
  }
}

/** E.g. "meanformer-softmax-n200": the kind of attention, and how many tokens, or what else moves. */
export function fileName(exports) {
  const experiment = call(exports, "experiment") || {};
  const measure = experiment.measure || {};
  const n = measure.n || (Array.isArray(measure.points) ? measure.points.length : null);
  const words = [exports.name === "tokens" ? null : exports.name, kindName(experiment.attention || {})];
  words.push(["gaussian", "density"].includes(measure.kind) ? measure.kind : n ? `n${n}` : null);
  const text = ["meanformer", ...new Set(words.filter(Boolean))].join("-").toLowerCase();
  return text.replace(/[^a-z0-9-]+/g, "-").slice(0, 80);
}

function kindName(attention) {
  if (attention.of) return `${attention.kind}-${kindName(attention.of)}`;
  if (Array.isArray(attention.heads)) return `${attention.heads.length}-heads`;
  return typeof attention.kind === "string" ? attention.kind : "softmax";
}

async function exportToml(context, exports) {
  const waiting = (words) => context.status(words, "busy");
  const answer = await context.socket.ask("toml", { do: "toml", experiment: exports.experiment() }, "toml", waiting);
  const name = `${fileName(exports)}.toml`;
  download(new Blob([answer.text], { type: "application/toml" }), name);
  context.status(`Saved ${name}. ${call(exports, "note") || ""} Run it with: meanformer run ${name}`);
}

async function exportLink(context) {
  const address = link();
  if (address === null) throw new Error("There are too many tokens given by coordinates for a link; save the file.");
  try {
    await navigator.clipboard.writeText(address);
    context.status("The link is copied. It holds the settings; who opens it needs access to this server.");
  } catch {
    const field = h("input", { type: "text", readonly: true, value: address, "aria-label": "Link" });
    showDialog("Link", h("p", {}, "The browser does not let this page copy. Copy the link from here:"), field);
    field.select();
  }
}

const blobOf = (canvas) =>
  new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser made no picture."))), "image/png"));

async function exportPicture(context, exports) {
  const name = `${fileName(exports)}.png`;
  download(await blobOf(await exports.picture()), name);
  context.status(`Saved ${name}.`);
}

/** A dialog with a bar and a Cancel button; `{signal, say(words, share), close()}`. */
function progressDialog(title) {
  const abort = new AbortController();
  const words = h("p", { "aria-live": "polite" });
  const bar = h("progress", { max: 1, "aria-label": title });
  const clicked = { onclick: () => dialog.close(), "data-testid": "export-cancel" };
  const cancel = h("button", { type: "button", ...clicked }, "Cancel");
  const dialog = showDialog(title, words, bar, h("div", { class: "buttons" }, cancel));
  dialog.addEventListener("close", () => abort.abort());
  const say = (text, share) => {
    words.textContent = text;
    if (share === null) bar.removeAttribute("value");
    else bar.value = share;
  };
  return { signal: abort.signal, say, close: () => dialog.close() };
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 0));

async function exportFilm(context, exports) {
  const count = exports.frameCount();
  const many = Math.min(count, MOST_FRAMES);
  const before = call(exports, "currentFrame");
  const progress = progressDialog("Film");
  try {
    const frames = [];
    let page = null;
    for (let k = 0; k < many; k++) {
      progress.say(`Drawing frame ${k + 1} of ${many}.`, k / many);
      await exports.seek(Math.round((k * (count - 1)) / (many - 1)));
      page = drawn(await exports.picture(), page);
      frames.push({ name: String(k), data: new Uint8Array(await (await blobOf(page)).arrayBuffer()) });
      await pause();
      progress.signal.throwIfAborted();
    }
    progress.say("Writing the film.", null);
    const body = pack({ milliseconds: Math.round((FILM_SECONDS * 1000) / many) }, frames);
    const answer = await fetch("api/gif", { method: "POST", body, signal: progress.signal });
    if (!answer.ok) throw new Error(await refusal(answer));
    const name = `${fileName(exports)}.gif`;
    download(await answer.blob(), name);
    context.status(`Saved ${name}, ${many} frames.`);
  } finally {
    progress.close();
    if (has(before)) await exports.seek(before);
  }
}

/** `picture` on a canvas of at most the widest width; the size of the first holds for all. */
function drawn(picture, page) {
  if (page === null) {
    const scale = Math.min(1, WIDEST / picture.width);
    page = h("canvas", { width: Math.round(picture.width * scale), height: Math.round(picture.height * scale) });
  }
  const brush = page.getContext("2d");
  brush.imageSmoothingQuality = "high";
  brush.drawImage(picture, 0, 0, page.width, page.height);
  return page;
}

/** The sentence of an answer that is not good: its text if it is short and plain, else the number of the error. */
async function refusal(answer) {
  const text = await answer.text();
  try {
    const { words, detail } = JSON.parse(text);
    if (typeof (words || detail) === "string") return words || detail;
  } catch {
    if (text && text.length < 300 && !text.includes("<")) return text;
  }
  return `The server refused this (${answer.status}).`;
}

async function exportTable(context, exports) {
  const { columns, rows } = exports.table();
  const progress = progressDialog("Numbers");
  try {
    const parts = [`${columns.map(cell).join(",")}\n`];
    let lines = [];
    let count = 0;
    let last = performance.now();
    for (const row of typeof rows === "function" ? rows() : rows) {
      lines.push(Array.from(row, cell).join(","));
      count++;
      if (lines.length % 256 || performance.now() - last < 20) continue;
      parts.push(new Blob([lines.join("\n"), "\n"]));
      lines = [];
      progress.say(`${count.toLocaleString("en")} rows.`, null);
      await pause();
      progress.signal.throwIfAborted();
      last = performance.now();
    }
    if (lines.length) parts.push(`${lines.join("\n")}\n`);
    const name = `${fileName(exports)}.csv`;
    download(new Blob(parts, { type: "text/csv" }), name);
    context.status(`Saved ${name}, ${count.toLocaleString("en")} rows.`);
  } finally {
    progress.close();
  }
}

/**
 * A cell of a CSV file: numbers in full, nothing for what is not known, quotes around texts that need them. A text that
 * a spreadsheet would take for a formula gets an apostrophe, which makes it a text.
 */
export function cell(value) {
  if (!has(value) || Number.isNaN(value)) return "";
  if (Math.abs(value) === Infinity) return value > 0 ? "inf" : "-inf";
  const text = typeof value === "string" && /^\s*[=+\-@＝＋－＠]|^[\t\r\n]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
