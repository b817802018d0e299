// What is drawn over and under the tokens: hull, circles of the radius and its bound, starts, numbers of clusters.

import { clamp, formatNumber } from "./dom.js";
import { theme } from "./theme.js";
import { clusterColour } from "./colours.js";
import { hullOf } from "./hull.js";

const MOST_STARTS = 2000;
const MOST_NUMBERS = 30;
const startHulls = new WeakMap(); // by the array of the start: it does not change while a run plays

/** The convex hull now (line) and at the start (dotted), for two shown coordinates. */
export function drawHulls(pen, recording, place, project, shown) {
  const { ink, soft } = theme();
  const [a, b] = shown;
  const { start } = recording;
  const now = hullOf(recording.column(a, place), recording.column(b, place));
  const key = `${a} ${b}`;
  if (!startHulls.has(start) || startHulls.get(start).key !== key)
    startHulls.set(start, { key, hull: hullOf(recording.startColumn(a), recording.startColumn(b)) });
  const first = startHulls.get(start).hull;
  polygon(pen, first.map((p) => project(...p)), soft, [2, 4]);
  polygon(pen, now.map((p) => project(...p)), ink, []);
}

function polygon(pen, corners, colour, dash) {
  if (corners.length < 2 || corners.some(([x, y]) => !Number.isFinite(x + y))) return;
  pen.beginPath();
  corners.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.closePath();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.3;
  pen.setLineDash(dash);
  pen.stroke();
  pen.setLineDash([]);
}

/** The circles |x| = R(t) and |x| = the bound, with their names; in space their outlines. */
export function drawCircles(pen, recording, place, camera, project) {
  const { palette, font } = theme();
  const circles = [
    ["radius", "R(t)", palette[0], [], -0.75],
    ["bound", "bound on R(t)", palette[1], [6, 4], -0.5],
  ];
  const [x, y, near] = project(0, 0, 0);
  const outsideWords = [];
  if (!Number.isFinite(near)) return;
  for (const [name, words, colour, dash, angle] of circles) {
    const value = recording.curveAt(name, place);
    const radius = value * camera.scale[0] * near;
    const farthest = Math.hypot(Math.max(x, camera.width - x), Math.max(y, camera.height - y));
    if (radius > farthest) outsideWords.push([`${words} = ${formatNumber(value, 3)}: outside the view`, colour]);
    if (!(radius > 0 && radius <= farthest)) continue;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    pen.setLineDash(dash);
    pen.stroke();
    pen.setLineDash([]);
    named(pen, words, [x + radius * Math.cos(angle), y + radius * Math.sin(angle)], font, colour);
  }
  outsideWords.forEach(([words, colour], k) => {
    const middle = camera.inset.left + 6 + (pen.measureText(words).width + 8) / 2;
    named(pen, words, [Math.max(middle, camera.inset.left + 110), camera.height - camera.inset.bottom - 14 - 18 * k],
      font, colour);
  });
}

/** In one dimension: the curves of R and of the bound, up and down, against the time. */
export function drawEnvelopes(pen, recording, project) {
  const { palette, font } = theme();
  for (const [name, words, colour, dash] of [["radius", "R(t)", palette[0], []],
    ["bound", "bound on R(t)", palette[1], [6, 4]]]) {
    const curve = recording.curves[name];
    if (!curve) continue;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.3;
    pen.setLineDash(dash);
    for (const sign of [1, -1]) {
      pen.beginPath();
      curve.forEach((value, k) => {
        const [x, y] = project(recording.times[k], sign * value);
        if (Number.isFinite(y) && Math.abs(y) < 1e5) pen.lineTo(x, y);
      });
      pen.stroke();
    }
    pen.setLineDash([]);
    const k = Math.floor(curve.length * (name === "radius" ? 0.2 : 0.35));
    if (Number.isFinite(curve[k])) named(pen, words, project(recording.times[k], curve[k]), font, colour);
  }
}

/** Words on a piece of paper, so that they can be read over points and lines; kept inside the picture. */
export function named(pen, words, [x, y], font, colour, strong = false) {
  const { card, paper } = theme();
  pen.font = `${strong ? "600 " : ""}12px ${font}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const width = pen.measureText(words).width + 8;
  pen.fillStyle = card || paper;
  pen.globalAlpha = 0.85;
  pen.fillRect(x - width / 2, y - 8, width, 16);
  pen.globalAlpha = 1;
  pen.fillStyle = colour;
  pen.fillText(words, x, y + 0.5);
  pen.textBaseline = "alphabetic";
}

/** Rings where the tokens started. */
export function drawStarts(pen, recording, project, shown, radius) {
  const { soft } = theme();
  const { n, d, start } = recording;
  const stride = Math.ceil(n / MOST_STARTS);
  const value = (i, c) => (c === "t" ? recording.t0 : c === undefined ? 0 : start[i * d + c]);
  pen.strokeStyle = soft;
  pen.globalAlpha = 0.7;
  pen.lineWidth = 1;
  for (let i = 0; i < n; i += stride) {
    const [x, y] = project(value(i, shown[0]), value(i, shown[1]), value(i, shown[2]));
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

const centres = new WeakMap(); // by the clusters: a list over the frames

/** The centres of the clusters that have numbers, at a frame: kept, as they move as linearly as the tokens. */
function centresOf(recording, k) {
  const { clusters, n, d } = recording;
  if (!centres.has(clusters)) centres.set(clusters, new Map());
  const known = centres.get(clusters);
  const points = recording.count ? recording.frames[k] : recording.start;
  if (!known.has(points)) {
    const sums = new Float64Array(MOST_NUMBERS * d);
    for (let i = 0; i < n; i++) {
      const place = clusters.places[i];
      if (place >= 0 && place < MOST_NUMBERS) for (let c = 0; c < d; c++) sums[place * d + c] += points[i * d + c];
    }
    known.set(points, sums.map((sum, at) => sum / clusters.sizes[Math.floor(at / d)]));
  }
  return known.get(points);
}

/** The numbers of the clusters, the largest is 1, beside their centres: colour alone would not tell them apart. */
export function drawNumbers(pen, recording, place, camera, project, shown) {
  const { font, ink } = theme();
  const { marked } = recording.clusters;
  const { k: first, next, share } = recording.between(place);
  const [from, to] = [centresOf(recording, first), centresOf(recording, next)];
  const middle = (k, c) => from[k * recording.d + c] + share * (to[k * recording.d + c] - from[k * recording.d + c]);
  // Numbers that stand on one another say nothing: a smaller cluster's is left out where a larger one's stands.
  const taken = [];
  const time = recording.timeAt(place);
  for (let k = 0; k < Math.min(marked, MOST_NUMBERS); k++) {
    const [x, y] = project(...shown.map((c) => (c === "t" ? time : middle(k, c))));
    if (!(x > -20 && x < camera.width + 20 && y > -20 && y < camera.height + 20)) continue;
    const at = [clamp(x + 13, camera.inset.left + 12, camera.width - 12), clamp(y - 12, 11, camera.height - 11)];
    if (taken.some((other) => Math.hypot(other[0] - at[0], other[1] - at[1]) < 19)) continue;
    taken.push(at);
    named(pen, String(k + 1), at, font, ink, true);
    pen.strokeStyle = clusterColour(k);
    pen.lineWidth = 1.5;
    const width = pen.measureText(String(k + 1)).width + 8;
    pen.strokeRect(at[0] - width / 2, at[1] - 8, width, 16);
  }
}
