// The fates in words: a sentence for one start, a table of all, and the legend of lines and markers.

import { clear, formatNumber, h } from "./dom.js";
import { directionOf, drawMarker, fateLook, growsExponentially } from "./fates.js";
import { theme } from "./theme.js";

const degrees = (x, y) => `${Math.round(directionOf(x, y))}°`.replace("-", "−");
const isLine = (path) => Math.hypot(path.x.at(-1), path.y.at(-1)) > 0.999;

/** What becomes of a start: "blows up at t* = 0.5", without a full stop. */
export function fateWords(path) {
  const { fate } = path;
  const along = `the line at ${degrees(path.x.at(-1), path.y.at(-1))}`;
  if (fate.kind === "BLEW_UP") {
    const error = fate.error > 0 ? ` ± ${formatNumber(fate.error, 1)}` : "";
    return `blows up at t* = ${formatNumber(fate.time, 5)}${error}${isLine(path) ? `, along ${along}` : ""}`;
  }
  if (fate.kind === "CONVERGED" && fate.rank === 0) return "converges to rank 0: a single point, Σ = 0";
  if (fate.kind === "CONVERGED" && fate.rank === 1) return `converges to rank 1: all mass on ${along}`;
  if (fate.kind === "CONVERGED") return `converges to rank ${fate.rank}: no direction is lost`;
  if (fate.kind === "DIVERGED") return `${growth(fate)}${isLine(path) ? `, along ${along}` : ""}`;
  return `is undecided at t = ${formatNumber(fate.time, 3)}`;
}

const growth = (fate) =>
  growsExponentially(fate)
    ? `grows exponentially, tr Σ ∼ exp(${formatNumber(fate.growth, 3)} t)`
    : "grows without end, slower than exponentially";

const verdict = (fate) => {
  if (fate.kind === "BLEW_UP") return `t* = ${formatNumber(fate.time, 4)}`;
  if (fate.kind === "CONVERGED") return `rank ${fate.rank}`;
  if (growsExponentially(fate)) return `rate ${formatNumber(fate.growth, 3)}`;
  return fate.kind === "DIVERGED" ? "none" : `t = ${formatNumber(fate.time, 3)}`;
};

const entry = (value) => formatNumber(value, 3);

/** The table of all starts; `on.select(i)`, `on.remove(i)`. Rows stay in place, so that the focus does. */
export function fateTable(scene, on) {
  const body = h("tbody");
  const headings = ["Start", "a, c, b", "Fate", "t*, rank or rate", "Direction", ""];
  const node = h(
    "table",
    { class: "fates-table", "data-testid": "fates-table" },
    h("caption", { class: "hint" }, "Starts Σ = (a c; c b) and their fates, with the longest axis at the end."),
    h("thead", {}, h("tr", {}, headings.map((words) => h("th", { scope: "col" }, words)))),
    body,
  );
  const rows = [];

  function newRow(i) {
    const toggle = () => on.select(scene.selected === i ? -1 : i);
    const pick = h("button", { type: "button", class: "pick", onclick: toggle });
    pick.textContent = String(i + 1);
    pick.setAttribute("aria-label", `Select start ${i + 1}`);
    const removal = { type: "button", "aria-label": `Remove start ${i + 1}`, onclick: () => on.remove(i) };
    const texts = Array.from({ length: 4 }, () => h("td"));
    const mark = h("canvas", { class: "fate-mark", "aria-hidden": "true" });
    const words = h("span");
    texts[1].append(mark, words);
    const row = h("tr", {}, h("td", {}, pick), texts, h("td", {}, h("button", removal, "×")));
    row.addEventListener("pointerenter", () => on.hover(i));
    row.addEventListener("pointerleave", () => on.hover(-1));
    return { row, pick, texts, mark, words };
  }

  function fill({ row, pick, texts, mark, words }, i, colours) {
    const [[a, c], [, b]] = scene.starts[i];
    const path = scene.paths[i]?.stale ? null : scene.paths[i];
    row.classList.toggle("selected", i === scene.selected);
    row.classList.toggle("hovered", i === scene.hover);
    pick.setAttribute("aria-pressed", String(i === scene.selected));
    const look = path && fateLook(path.fate, colours);
    texts[0].textContent = `${entry(a)}, ${entry(c)}, ${entry(b)}`;
    words.textContent = look ? look.words : "…";
    texts[2].textContent = path ? verdict(path.fate) : "";
    texts[3].textContent = path && path.fate.rank !== 0 ? degrees(path.x.at(-1), path.y.at(-1)) : "";
    const sample = look ? `${look.key} ${look.colour}` : "";
    if (mark.dataset.sample !== sample) drawSample(mark, look, colours);
    mark.dataset.sample = sample;
  }

  function draw() {
    const colours = theme();
    while (rows.length < scene.starts.length) rows.push(newRow(rows.length));
    for (const spare of rows.splice(scene.starts.length)) spare.row.remove();
    rows.forEach((row, i) => {
      if (!row.row.isConnected) body.append(row.row);
      fill(row, i, colours);
    });
  }

  return { node, draw };
}

/** Lines and markers of the fates that occur. */
export function fateLegend(scene) {
  const node = h("ul", { class: "legend fate-legend", "aria-label": "Lines and markers of the fates" });
  let shown = "";

  function looksOf(colours) {
    const looks = scene.paths.filter((path) => path && !path.stale).map((path) => fateLook(path.fate, colours));
    return [...new Map(looks.map((look) => [look.key, look])).values()];
  }

  function draw() {
    const colours = theme();
    const looks = looksOf(colours);
    const key = JSON.stringify(looks);
    if (key === shown) return;
    shown = key;
    clear(node);
    for (const look of looks) {
      const mark = h("canvas", { class: "fate-mark", "aria-hidden": "true" });
      node.append(h("li", {}, mark, look.words));
      drawSample(mark, look, colours);
    }
    if (looks.length) node.append(h("li", { class: "hint" }, "dot: start; open circle: present; large marker: end"));
  }

  /** The same on a canvas, for exports. */
  function picture() {
    const colours = theme();
    const looks = looksOf(colours);
    const pen = h("canvas").getContext("2d");
    const font = `13px ${colours.font}`;
    pen.font = font;
    const widths = looks.map(({ words }) => SAMPLE.width + pen.measureText(words).width + 22);
    Object.assign(pen.canvas, { width: 2 * Math.ceil(widths.reduce((sum, wide) => sum + wide, 1)), height: 2 * 18 });
    let x = 0;
    looks.forEach((look, k) => {
      pen.setTransform(2, 0, 0, 2, 2 * x, 4);
      paintSample(pen, look, colours);
      pen.font = font;
      pen.fillStyle = colours.ink;
      pen.textBaseline = "middle";
      pen.fillText(look.words, SAMPLE.width + 2, SAMPLE.height / 2);
      x += widths[k];
    });
    return pen.canvas;
  }

  return { node, draw, picture };
}

const SAMPLE = { width: 36, height: 14 };

function drawSample(canvas, look, colours) {
  Object.assign(canvas, { width: 2 * SAMPLE.width, height: 2 * SAMPLE.height });
  if (!look) return;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(2, 0, 0, 2, 0, 0);
  paintSample(ctx, look, colours);
}

function paintSample(ctx, look, colours) {
  const { width, height } = SAMPLE;
  ctx.strokeStyle = look.colour;
  ctx.fillStyle = look.colour;
  ctx.lineWidth = 1.8;
  ctx.setLineDash(look.dash);
  ctx.beginPath();
  ctx.moveTo(1, height / 2);
  ctx.lineTo(width - 8, height / 2);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.lineWidth = 1;
  if (look.marker !== "ring") ctx.strokeStyle = colours.card;
  drawMarker(ctx, look.marker, width - 8, height / 2, 4.6);
}
