// The eigenvalues of one covariance over time, both axes logarithmic, with their slopes.

import { formatNumber, h, wiped } from "./dom.js";
import { logTicks, ticks } from "./ticks.js";
import { growsExponentially } from "./fates.js";
import { faded, theme } from "./theme.js";

const EDGE = { left: 52, right: 16, top: 24, bottom: 34 };
const FLOOR = 1e-30; // of the largest eigenvalue: what is below is round-off
const LINES = [
  { name: "λ₁", key: "high", colour: 0, dash: [] },
  { name: "λ₂", key: "low", colour: 1, dash: [7, 3] },
];

/** The picture of the selected path of `scene`, or of the first; `now(i)` tells its present time. */
export function spectrumPicture(scene, now) {
  const canvas = h("canvas", { class: "gaussian-canvas spectrum-canvas", role: "img", "data-testid": "spectrum" });
  const chosen = () => (scene.paths[scene.selected] ? scene.selected : scene.paths.findIndex(Boolean));

  function draw() {
    if (!canvas.clientWidth) return;
    const { pen: ctx, width, height } = wiped(canvas);
    const i = chosen();
    canvas.setAttribute("aria-label", i < 0 ? "Spectrum: nothing yet" : wordsOf(scene.paths[i], i));
    if (i >= 0) drawSpectrum(ctx, scene.paths[i], i, now(i).time, width, height);
  }

  return { canvas, draw };
}

function wordsOf(path, i) {
  const text = (value) => formatNumber(value, 3);
  const ends = LINES.map(({ name, key }) => `${name} from ${text(path[key][0])} to ${text(lastOf(path[key]))}`);
  return `Eigenvalues of start ${i + 1} over time: ${ends.join("; ")}`;
}

const lastOf = (values) => values.findLast((value) => Number.isFinite(value) && value > 0) ?? 0;

// The axis of times: log t; for a blow-up log of the time left, to the right; for exponential growth t itself.
function clockOf(path) {
  const { kind, time, error } = path.fate;
  if (growsExponentially(path.fate)) return { keep: path.times.map((_, k) => k), places: path.times, linear: true };
  if (kind !== "BLEW_UP") return { ...logPlaces(path), left: false };
  // So near to t* that t* itself is not known well enough, nothing can be drawn.
  const least = Math.max(4 * (error > 0 ? error : 0), 1e-14 * time);
  const keep = path.times.map((_, k) => k).filter((k) => time - path.times[k] > least);
  return { keep, places: keep.map((k) => time - path.times[k]), left: true };
}

// Which states are drawn, and where: the start a third before the first time at which something has moved by 1 %.
function logPlaces(path) {
  const moved = path.times.findIndex((_, k) =>
    LINES.some(({ key }) => !(Math.abs(path[key][k] - path[key][0]) <= 0.01 * path[key][0])));
  const keep = path.times.map((_, k) => k).filter((k) => k > 0 && path.times[k] > 0 && k >= moved - 1);
  if (!keep.length) return { keep: [0], places: [1] };
  return { keep: [0, ...keep], places: [path.times[keep[0]] / 3, ...keep.map((k) => path.times[k])] };
}

function drawSpectrum(ctx, path, number, time, width, height) {
  const colours = theme();
  const clock = clockOf(path);
  const { keep, places } = clock;
  const [first, last] = [places[0] ?? 1, places.at(-1) ?? 1];
  if (keep.length < 2) {
    Object.assign(ctx, { fillStyle: colours.soft, font: `13px ${colours.font}`, textAlign: "center" });
    ctx.fillText(`Start ${number + 1} does not move.`, width / 2, height / 2);
    return;
  }
  const [low, high] = valueRange(path, keep);
  const [wide, tall] = [width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom];
  const along = clock.linear ? (place) => place - first : (place) => Math.log(place / first);
  const axes = {
    x: (place) => EDGE.left + (wide * along(place)) / (along(last) || 1),
    y: (v) => EDGE.top + tall * (1 - Math.log(v / low) / Math.log(high / low)),
    first, last, low, high, width, height,
  };
  drawAxes(ctx, axes, clock, colours);
  ctx.save();
  ctx.beginPath();
  ctx.rect(EDGE.left, EDGE.top, wide, tall);
  ctx.clip();
  const present = clock.left ? path.fate.time - time : time;
  verticalAt(ctx, axes, Math.min(Math.max(present, Math.min(first, last)), Math.max(first, last)), colours.soft);
  for (const line of LINES) drawLine(ctx, path, line, clock, axes, colours);
  ctx.restore();
  placeLabels(ctx, path, number, clock, axes, colours);
}

const isGood = (path, key, k) => Number.isFinite(path[key][k]) && path[key][k] > FLOOR * path.high[k];

function valueRange(path, keep) {
  let [low, high] = [Infinity, 0];
  for (const { key } of LINES) {
    for (const k of keep.filter((index) => isGood(path, key, index))) {
      low = Math.min(low, path[key][k]);
      high = Math.max(high, path[key][k]);
    }
  }
  if (!(low <= high)) return [0.1, 10];
  const room = Math.max((high / low) ** 0.06, 1.5);
  return [Math.max(low / room, 1e-300), Math.min(high * room, 1e300)];
}

function verticalAt(ctx, axes, place, colour) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  stroke(ctx, axes.x(place), EDGE.top, axes.x(place), axes.height - EDGE.bottom);
}

function drawLine(ctx, path, { key, colour, dash }, { keep, places }, axes, colours) {
  ctx.strokeStyle = colours.palette[colour];
  ctx.lineWidth = 2;
  ctx.setLineDash(dash);
  ctx.beginPath();
  let down = false;
  keep.forEach((k, i) => {
    const good = isGood(path, key, k);
    if (good && down) ctx.lineTo(axes.x(places[i]), axes.y(path[key][k]));
    else if (good) ctx.moveTo(axes.x(places[i]), axes.y(path[key][k]));
    down = good;
  });
  ctx.stroke();
  ctx.setLineDash([]);
}

/** d log value / d log place over the last decade of places, if it is the same in both halves of it; else null. */
export function tailSlope(path, key, { keep, places }) {
  const good = keep.map((k, i) => [places[i], path[key][k], k]).filter(([, , k]) => isGood(path, key, k));
  if (good.length < 4) return null;
  const [end] = good.at(-1);
  const within = (ratio) => good.findIndex(([place]) => Math.abs(Math.log10(place / end)) <= ratio);
  const [a, b, c] = [within(1), within(0.5), good.length - 1];
  if (a < 1 || b <= a || c <= b) return null;
  const slope = (i, j) => Math.log(good[j][1] / good[i][1]) / Math.log(good[j][0] / good[i][0]);
  return Math.abs(slope(a, b) - slope(b, c)) < 0.08 ? slope(b, c) : null;
}

// d log value / dt over the last tenth of the time.
function tailRate(path, key) {
  const end = path.times.findLastIndex((_, k) => isGood(path, key, k));
  const k = path.times.findIndex((time) => time >= 0.9 * path.times[end]);
  const before = Math.min(k, end - 1);
  return before < 0 ? NaN : Math.log(path[key][end] / path[key][before]) / (path.times[end] - path.times[before]);
}

// Beside the end of each line: its limit, or its slope.
function lineWords(path, { name, key }, clock) {
  if (clock.linear) return `${name}: rate ${formatNumber(tailRate(path, key), 3)}`;
  const slope = tailSlope(path, key, clock);
  if (slope === null) return name;
  if (Math.abs(slope) < 0.03) return `${name} → ${formatNumber(lastOf(path[key]), 3)}`;
  return `${name}: slope ${formatNumber(slope, 2)}${clock.left ? " in t* − t" : ""}`;
}

function placeLabels(ctx, path, number, clock, axes, colours) {
  ctx.font = `600 12px ${colours.font}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const used = [];
  for (const line of LINES) {
    const k = clock.keep.findLast((index) => isGood(path, line.key, index));
    if (k === undefined) continue;
    const words = lineWords(path, line, clock);
    // Above a line that rises, below one that falls: beside its end there is room there.
    const at = axes.y(path[line.key][k]);
    const farther = (_, i) => axes.x(clock.places[i]) < axes.width - EDGE.right - 50;
    const before = clock.keep.findLast(farther) ?? clock.keep[0];
    const falls = isGood(path, line.key, before) && axes.y(path[line.key][before]) < at - 6;
    let y = falls ? Math.min(at + 14, axes.height - EDGE.bottom - 8) : at - 12;
    if (used.some((other) => Math.abs(other - y) < 16)) y = falls ? at - 14 : at + 14;
    used.push(y);
    const wide = ctx.measureText(words).width;
    // A line that ends early has its name to the right of its end.
    const end = axes.x(clock.places[clock.keep.indexOf(k)]);
    const right = Math.min(axes.width - EDGE.right - 3, end < axes.width - 110 ? end + wide + 8 : Infinity);
    ctx.fillStyle = faded(colours.card, 0.8);
    ctx.fillRect(right - wide - 3, y - 8, wide + 6, 16);
    ctx.fillStyle = colours.ink;
    ctx.fillText(words, right, y);
  }
  ctx.fillStyle = colours.soft;
  ctx.font = `12px ${colours.font}`;
  ctx.textAlign = "left";
  ctx.fillText(`start ${number + 1}`, EDGE.left + 4, EDGE.top - 12);
}

function drawAxes(ctx, axes, clock, colours) {
  const { x, y, first, last, low, high, width, height } = axes;
  const bottom = height - EDGE.bottom;
  ctx.font = `11px ${colours.font}`;
  ctx.lineWidth = 1;
  ctx.fillStyle = colours.soft;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (const [value, words] of logTicks(low, high, Math.max(2, (bottom - EDGE.top) / 36))) {
    ctx.strokeStyle = faded(colours.faint, 0.6);
    stroke(ctx, EDGE.left, y(value), width - EDGE.right, y(value));
    ctx.fillText(words, EDGE.left - 6, y(value));
  }
  ctx.strokeStyle = colours.soft;
  stroke(ctx, EDGE.left, bottom, width - EDGE.right, bottom);
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  const ends = [Math.min(first, last), Math.max(first, last)];
  const many = Math.max(2, (width - EDGE.left) / 60);
  const times = clock.linear
    ? ticks(...ends, many).map((t) => [t, formatNumber(t, 3)])
    : logTicks(...ends, many).filter(([t]) => clock.left || x(t) > EDGE.left + 22);
  for (const [place, words] of clock.left || clock.linear ? times : [[first, "0"], ...times]) {
    stroke(ctx, x(place), bottom, x(place), bottom + 4);
    ctx.fillText(words, Math.min(x(place), width - 14), bottom + 6);
  }
  ctx.fillText(clock.left ? "time left, t* − t" : "time t", (EDGE.left + width - EDGE.right) / 2, bottom + 20);
}

function stroke(ctx, x0, y0, x1, y1) {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}
