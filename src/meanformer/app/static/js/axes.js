// Axes of a picture of tokens: ticks and a light grid in the plane, a light box in space.

import { formatNumber } from "./dom.js";
import { theme } from "./theme.js";
import { ticks } from "./ticks.js";

const SUBSCRIPTS = "₁₂₃₄₅₆₇₈";

/** The name of a shown coordinate: x₁, in the rescaled frame z₁; x alone in one dimension; t for the time. */
export function axisName(c, { d, rescaled }) {
  if (c === "t") return "t";
  return (rescaled ? "z" : "x") + (d > 1 ? SUBSCRIPTS[c] : "");
}

/** Ticks, grid and names of two axes. `bare` leaves out the numbers, for small pictures. */
export function flatAxes(pen, camera, names, { bare = false } = {}) {
  const { soft, faint, font } = theme();
  const { width, height, inset, centre, scale, middle } = camera;
  const [left, bottom] = [inset.left, height - inset.bottom];
  const toX = (x) => middle[0] + (x - centre[0]) * scale[0];
  const toY = (y) => middle[1] - (y - centre[1]) * scale[1];
  const xs = ticks(centre[0] + (left - middle[0]) / scale[0], centre[0] + (width - middle[0]) / scale[0], width / 90);
  const ys = ticks(centre[1] - (bottom - middle[1]) / scale[1], centre[1] + middle[1] / scale[1], height / 70);
  pen.lineWidth = 1;
  pen.font = `11.5px ${font}`;
  pen.fillStyle = soft;
  for (const x of xs) {
    grid(pen, faint, x === 0 && !camera.stretched, toX(x), 0, toX(x), bottom);
    pen.textAlign = "center";
    if (!bare && toX(x) < width - 26 && toX(x) > left + 6) pen.fillText(formatNumber(x, 3), toX(x), height - 7);
  }
  for (const y of ys) {
    grid(pen, faint, y === 0, left, toY(y), width, toY(y));
    pen.textAlign = "right";
    if (!bare && toY(y) > 26 && toY(y) < bottom - 4) pen.fillText(formatNumber(y, 3), left - 6, toY(y) + 4);
  }
  if (bare) return;
  pen.strokeStyle = soft;
  stroke(pen, left, 0, left, bottom);
  stroke(pen, left, bottom, width, bottom);
  pen.font = `italic 15px ${getComputedStyle(document.documentElement).getPropertyValue("--serif") || "serif"}`;
  pen.textAlign = "right";
  pen.fillText(names[0], width - 8, height - 7);
  pen.fillText(names[1], left - 8, 17);
}

function grid(pen, colour, strong, x0, y0, x1, y1) {
  pen.strokeStyle = colour;
  pen.globalAlpha = strong ? 0.9 : 0.35;
  stroke(pen, Math.round(x0) + 0.5, Math.round(y0) + 0.5, Math.round(x1) + 0.5, Math.round(y1) + 0.5);
  pen.globalAlpha = 1;
}

function stroke(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

/** The edges of a box {low, high} in space, with names and the values at the ends of the three axes. */
export function boxAxes(pen, camera, box, names, { bare = false } = {}) {
  const { soft, faint, font } = theme();
  const project = camera.projector();
  const corner = (bits) => project(...[0, 1, 2].map((c) => ((bits >> c) & 1 ? box.high[c] : box.low[c])));
  const corners = Array.from({ length: 8 }, (_, bits) => corner(bits));
  if (corners.some((p) => !Number.isFinite(p[2]))) return;
  // The farthest corner: the three edges there are the back of the box and carry the names.
  const back = corners.reduce((best, p, k) => (p[2] < corners[best][2] ? k : best), 0);
  pen.lineWidth = 1;
  for (let k = 0; k < 8; k++) {
    for (let c = 0; c < 3; c++) {
      const other = k | (1 << c);
      if (other === k) continue;
      pen.strokeStyle = faint;
      pen.globalAlpha = k === back || other === back ? 1 : 0.45;
      stroke(pen, corners[k][0], corners[k][1], corners[other][0], corners[other][1]);
    }
  }
  pen.globalAlpha = 1;
  if (!bare) edgeNames(pen, corners, box, names, soft, font);
}

/** Each axis has its name at the middle of its lowest edge, and its values at the ends of it. */
function edgeNames(pen, corners, box, names, soft, font) {
  const middle = [0, 1].map((k) => corners.reduce((sum, p) => sum + p[k] / 8, 0));
  const height = (k, c) => corners[k][1] + corners[k | (1 << c)][1];
  const side = (k, c) => corners[k][0] + corners[k | (1 << c)][0];
  pen.fillStyle = soft;
  pen.textAlign = "center";
  for (let c = 0; c < 3; c++) {
    const edges = [0, 1, 2, 3, 4, 5, 6, 7].filter((k) => !((k >> c) & 1));
    const better = (k, best) => (c < 2 ? height(k, c) > height(best, c) : side(k, c) < side(best, c));
    const chosen = edges.reduce((best, k) => (better(k, best) ? k : best));
    const [a, b] = [corners[chosen], corners[chosen | (1 << c)]];
    const out = (x, y, by) => {
      const away = [x - middle[0], y - middle[1]];
      const length = Math.hypot(...away) || 1;
      return [x + (away[0] / length) * by, y + (away[1] / length) * by];
    };
    pen.font = `italic 15px ${getComputedStyle(document.documentElement).getPropertyValue("--serif") || "serif"}`;
    pen.fillText(names[c], ...out((a[0] + b[0]) / 2, (a[1] + b[1]) / 2 + 4, 20));
    pen.font = `11px ${font}`;
    pen.fillText(formatNumber(box.low[c], 2), ...out(0.94 * a[0] + 0.06 * b[0], 0.94 * a[1] + 0.06 * b[1] + 4, 13));
    pen.fillText(formatNumber(box.high[c], 2), ...out(0.06 * a[0] + 0.94 * b[0], 0.06 * a[1] + 0.94 * b[1] + 4, 13));
  }
}
