// Two pictures of the run of a density with one x axis: a map over space and time, and the graph at the present.

import { formatNumber, h, wiped } from "./dom.js";
import { ticks } from "./ticks.js";
import { QUANTILES } from "./densityrun.js";
import { faded, theme, viridisRgb } from "./theme.js";

const EDGE = { left: 60, right: 14, top: 10, bottom: 34 };
const LOWEST = 1e-6; // of the highest density: where a logarithmic scale ends
const DASHES = [[6, 4], [], [6, 4]];

const LEVELS = {
  linear: (share) => share,
  root: Math.sqrt,
  log: (share) => (share > LOWEST ? 1 - Math.log(share) / Math.log(LOWEST) : 0),
};

/** The shown part of the x axis: where there is something to see, at one of the times. */
function xRange(run, scale) {
  const [low, high] = run.reach[scale === "log" ? "log" : "plain"];
  const room = 0.04 * (high - low);
  return [low - room, high + room];
}

function frameOf(canvas) {
  const { pen, width, height } = wiped(canvas);
  const box = { left: EDGE.left, right: width - EDGE.right, top: EDGE.top, bottom: height - EDGE.bottom };
  return { pen, width, height, box };
}

/** The map: `view` = {run, scale, quantiles, place}; `onScrub(time)` while the pointer is down. */
export function densityMap(view, onScrub) {
  const canvas = h("canvas", { class: "density-canvas map-canvas", role: "img", "data-testid": "density-map" });
  const image = document.createElement("canvas");
  let painted = { run: null, scale: "", highest: 0, rows: 0 };
  let shown = null;

  // One pixel per cell and frame; only new rows are painted, unless the scale of colours has changed.
  function paint(run) {
    const [cells, rows] = [run.x.length, run.total];
    const same = painted.run === run && painted.scale === view.scale && painted.highest === run.highest;
    if (!same || image.height !== rows) {
      Object.assign(image, { width: cells, height: rows });
      painted = { run, scale: view.scale, highest: run.highest, rows: 0 };
    }
    if (painted.rows >= run.count) return;
    const pen = image.getContext("2d");
    const pixels = pen.createImageData(cells, run.count - painted.rows);
    const table = Array.from({ length: 256 }, (_, k) => viridisRgb(k / 255));
    for (let k = painted.rows; k < run.count; k += 1) {
      for (let i = 0; i < cells; i += 1) {
        const level = LEVELS[view.scale](Math.max(0, run.frames[k][i]) / run.highest);
        pixels.data.set(table[Math.round(255 * Math.min(1, level))], 4 * ((k - painted.rows) * cells + i));
        pixels.data[4 * ((k - painted.rows) * cells + i) + 3] = 255;
      }
    }
    pen.putImageData(pixels, 0, painted.rows);
    painted.rows = run.count;
  }

  function draw() {
    if (!canvas.clientWidth) return;
    const { pen, height, box } = frameOf(canvas);
    const { run } = view;
    shown = null;
    canvas.setAttribute("aria-label", "Density over space and time: nothing yet");
    if (!run || !run.count) return;
    paint(run);
    const colours = theme();
    const [x0, x1] = xRange(run, view.scale);
    const [t0, t1] = [run.times[0], run.end ? run.times[run.count - 1] : Math.max(run.t1, run.times[run.count - 1])];
    const x = (value) => box.left + ((value - x0) / (x1 - x0)) * (box.right - box.left);
    const y = (time) => box.bottom - ((time - t0) / Math.max(t1 - t0, 1e-300)) * (box.bottom - box.top);
    shown = { t0, t1, box };
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    pen.clip();
    drawRows(pen, image, run, x, y);
    if (view.quantiles) drawQuantiles(pen, run, x, y);
    pen.restore();
    drawAxis(pen, x, ticks(x0, x1, Math.max(3, (box.right - box.left) / 70)), box, height, colours);
    drawTimes(pen, y, ticks(t0, t1, 4), box, colours);
    drawPresent(pen, y(run.timeAt(view.place)), box, colours);
    canvas.setAttribute("aria-label", `Density over space and time, x from ${formatNumber(x0, 3)} to ` +
      `${formatNumber(x1, 3)}, t from ${formatNumber(t0, 3)} to ${formatNumber(t1, 3)}`);
  }

  const scrub = (event) => {
    if (!shown) return;
    const { top, bottom } = shown.box;
    const share = (bottom - event.clientY + canvas.getBoundingClientRect().top) / (bottom - top);
    onScrub(shown.t0 + Math.min(1, Math.max(0, share)) * (shown.t1 - shown.t0));
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    scrub(event);
  });
  canvas.addEventListener("pointermove", (event) => event.buttons && scrub(event));
  return { canvas, draw };
}

// Each frame fills the times nearer to it than to its neighbours: frames need not be evenly spaced.
function drawRows(pen, image, run, x, y) {
  const [left, right] = [x(run.x[0] - run.spacing / 2), x(run.x.at(-1) + run.spacing / 2)];
  pen.imageSmoothingEnabled = false;
  const { times, count } = run;
  const edge = (k) => (k <= 0 ? times[0] : k >= count ? times[count - 1] : (times[k - 1] + times[k]) / 2);
  for (let k = 0; k < run.count; k += 1) {
    const [low, high] = [Math.ceil(y(edge(k))), Math.floor(y(edge(k + 1)))];
    const single = run.count === 1 ? 6 : 0;
    pen.drawImage(image, 0, k, image.width, 1, left, high - single, right - left, Math.max(low - high, 1) + single);
  }
}

function drawQuantiles(pen, run, x, y) {
  let before = -Infinity;
  run.quantiles.forEach((line, q) => {
    // A dark line below a light one is seen on every colour of the scale.
    for (const [colour, lineWidth] of [["rgba(20, 20, 30, 0.55)", 3.2], ["#FFFFFF", 1.4]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = lineWidth;
      pen.setLineDash(DASHES[q]);
      pen.beginPath();
      line.forEach((place, k) => (k ? pen.lineTo(x(place), y(run.times[k])) : pen.moveTo(x(place), y(run.times[k]))));
      pen.stroke();
    }
    pen.setLineDash([]);
    const words = `${Math.round(100 * QUANTILES[q])} %`;
    pen.font = `600 11px ${theme().font}`;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.lineWidth = 3;
    pen.strokeStyle = "rgba(20, 20, 30, 0.75)";
    pen.fillStyle = "#FFFFFF";
    const px = x(line.at(-1));
    // Names of lines that end close together stand below each other.
    const py = Math.max(y(run.times[run.count - 1]), EDGE.top) + (px - before < 34 ? 18 : 4);
    before = px;
    pen.strokeText(words, px, py);
    pen.fillText(words, px, py);
  });
}

function drawPresent(pen, y, box, colours) {
  for (const [colour, lineWidth] of [[colours.paper, 3.5], [colours.ink, 1.5]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = lineWidth;
    pen.beginPath();
    pen.moveTo(box.left - 6, y);
    pen.lineTo(box.right, y);
    pen.stroke();
  }
}

function drawAxis(pen, x, values, box, height, colours) {
  pen.font = `11px ${colours.font}`;
  pen.fillStyle = colours.soft;
  pen.strokeStyle = colours.soft;
  pen.lineWidth = 1;
  pen.textAlign = "center";
  pen.textBaseline = "top";
  pen.beginPath();
  pen.moveTo(box.left, box.bottom);
  pen.lineTo(box.right, box.bottom);
  for (const value of values) {
    pen.moveTo(x(value), box.bottom);
    pen.lineTo(x(value), box.bottom + 4);
    pen.fillText(formatNumber(value, 3), x(value), box.bottom + 6);
  }
  pen.stroke();
  pen.fillText("x", (box.left + box.right) / 2, height - 14);
}

function drawTimes(pen, y, values, box, colours) {
  pen.fillStyle = colours.soft;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of values) pen.fillText(formatNumber(value, 3), box.left - 8, y(value));
  upright(pen, "time t", (box.top + box.bottom) / 2);
}

function upright(pen, words, y) {
  pen.save();
  pen.translate(11, y);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(words, 0, 0);
  pen.restore();
}

/** The scale of colours, from 0 to the highest density, in the scale that is chosen. */
export function densityBar(view) {
  const canvas = h("canvas", { class: "density-bar", width: 128, height: 1, "aria-hidden": "true" });
  const [low, high] = [h("span"), h("span")];
  const node = h("span", { class: "density-scale hint" }, low, canvas, high);

  function draw() {
    const { run, scale } = view;
    node.hidden = !run || !run.count;
    if (node.hidden) return;
    const pen = canvas.getContext("2d");
    for (let i = 0; i < canvas.width; i += 1) {
      pen.fillStyle = `rgb(${viridisRgb(i / (canvas.width - 1)).join(", ")})`;
      pen.fillRect(i, 0, 1, 1);
    }
    low.textContent = scale === "log" ? formatNumber(LOWEST * run.highest, 2) : "0";
    high.textContent = formatNumber(run.highest, 3);
  }

  return { node, draw };
}

/** The graph of the density at the present, over that of the start; `view` as for the map. */
export function densityCurve(view) {
  const canvas = h("canvas", { class: "density-canvas curve-canvas", role: "img", "data-testid": "density-curve" });

  function draw() {
    if (!canvas.clientWidth) return;
    const { pen, height, box } = frameOf(canvas);
    const { run, scale } = view;
    canvas.setAttribute("aria-label", "Density at the present time: nothing yet");
    if (!run || !run.count) return;
    const colours = theme();
    const [now, start] = [run.frameAt(view.place), run.frames[0]];
    const top = 1.08 * Math.max(largest(now), largest(start));
    const bottom = scale === "log" ? LOWEST * top : 0;
    const [x0, x1] = xRange(run, scale);
    const x = (value) => box.left + ((value - x0) / (x1 - x0)) * (box.right - box.left);
    const decades = (v) => Math.log(Math.max(v, bottom) / bottom) / Math.log(top / bottom);
    const y = (v) => box.bottom - (scale === "log" ? decades(v) : v / top) * (box.bottom - box.top);
    const unit = 10 ** Math.floor(Math.log10(top));
    const levels = scale === "log" ? [1e-4, 1e-2, 1].map((share) => share * unit) : ticks(0, top, 3);
    drawLevels(pen, y, levels, box, colours);
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    pen.clip();
    drawGraph(pen, run.x, start, x, y, { stroke: colours.soft, dash: [5, 4], width: 1.3 });
    const blue = colours.palette[0];
    drawGraph(pen, run.x, now, x, y, { stroke: blue, fill: faded(blue, 0.22), dash: [], width: 2, floor: box.bottom });
    pen.restore();
    drawAxis(pen, x, ticks(x0, x1, Math.max(3, (box.right - box.left) / 70)), box, height, colours);
    const time = formatNumber(run.timeAt(view.place), 3);
    canvas.setAttribute("aria-label", `Density at t = ${time}: highest value ${formatNumber(largest(now), 3)}; ` +
      `at the start ${formatNumber(largest(start), 3)}`);
  }

  return { canvas, draw };
}

const largest = (values) => values.reduce((most, value) => (value > most ? value : most), 1e-300);

function drawGraph(pen, x, values, placeX, placeY, { stroke, fill, dash, width, floor }) {
  pen.beginPath();
  for (let i = 0; i < x.length; i += 1) {
    if (i) pen.lineTo(placeX(x[i]), placeY(values[i]));
    else pen.moveTo(placeX(x[i]), placeY(values[i]));
  }
  pen.strokeStyle = stroke;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.stroke();
  pen.setLineDash([]);
  if (!fill) return;
  pen.lineTo(placeX(x.at(-1)), floor);
  pen.lineTo(placeX(x[0]), floor);
  pen.closePath();
  pen.fillStyle = fill;
  pen.fill();
}

function drawLevels(pen, y, values, box, colours) {
  pen.font = `11px ${colours.font}`;
  pen.fillStyle = colours.soft;
  pen.strokeStyle = faded(colours.faint, 0.6);
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of values) {
    pen.beginPath();
    pen.moveTo(box.left, y(value));
    pen.lineTo(box.right, y(value));
    pen.stroke();
    pen.fillText(formatNumber(value, 2), box.left - 8, y(value));
  }
  upright(pen, "ρ", (box.top + box.bottom) / 2);
}
