// The cone of covariances of the plane: (a - b, 2c, a + b), turned by dragging; paths coloured by their fate.

import { clamp, h, wiped } from "./dom.js";
import { drawMarker, fateLook, isJoined } from "./fates.js";
import { hullOf } from "./hull.js";
import { faded, theme } from "./theme.js";

const FIRST_LOOK = { azimuth: -0.95, elevation: 0.3, zoom: 1 };

/** The picture of `scene` (see disc.js); options: {log(): whether heights are logarithmic}; `on.select(i)`. */
export function conePicture(scene, on, log) {
  const canvas = h("canvas", {
    class: "gaussian-canvas cone-canvas",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "cone of covariances",
    "aria-label":
      "Cone of covariances: surface rank one, tip zero, height the trace. Arrows turn it, plus and minus zoom, " +
      "Home looks from the front.",
    "data-testid": "cone",
  });
  const camera = { ...FIRST_LOOK };
  let frame = null;

  function draw() {
    if (!canvas.clientWidth) return;
    const { pen: ctx, width, height } = wiped(canvas);
    const colours = theme();
    frame = { project: projection(camera, width, height), heights: heightScale(scene, log()) };
    drawCone(ctx, frame, colours, log());
    const order = scene.starts.map((_, i) => i).sort((i, j) => marked(i) - marked(j));
    for (const i of order) if (scene.paths[i]) drawPath(ctx, i, colours);
  }

  const marked = (i) => (i === scene.selected ? 2 : i === scene.hover ? 1 : 0);
  const dimmed = (i) => scene.selected >= 0 && !marked(i);

  function drawPath(ctx, i, colours) {
    const path = scene.paths[i];
    const look = fateLook(path.fate, colours);
    const { points, left } = visible(path, frame.heights);
    const drawn = points.map((point) => frame.project(...point));
    if (!drawn.length) return;
    ctx.globalAlpha = path.stale ? 0.25 : dimmed(i) ? 0.45 : 0.95;
    ctx.strokeStyle = look.colour;
    ctx.lineWidth = marked(i) === 2 ? 2.6 : marked(i) ? 2.2 : 1.4;
    ctx.setLineDash(look.dash);
    ctx.beginPath();
    drawn.forEach(([px, py], k) => (joined(path, k) ? ctx.lineTo(px, py) : ctx.moveTo(px, py)));
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.lineWidth = 1;
    ctx.fillStyle = look.colour;
    ctx.strokeStyle = colours.card;
    drawMarker(ctx, "circle", ...drawn[0], marked(i) ? 4.5 : 2.6);
    if (look.marker === "ring" && !left) ctx.strokeStyle = look.colour;
    drawMarker(ctx, left ? "triangle" : look.marker, ...drawn[drawn.length - 1], marked(i) ? 6 : 4.6);
    const now = scene.now(i);
    const level = frame.heights.of(now.logTrace);
    const place = frame.project(level * now.x, level * now.y, level);
    const [ex, ey] = drawn[drawn.length - 1];
    // An open circle at the present, unless it would hide the marker of the end.
    if (level <= 1 && Math.hypot(place[0] - ex, place[1] - ey) >= 5) {
      ctx.fillStyle = colours.card;
      ctx.strokeStyle = look.colour;
      ctx.lineWidth = 1.8;
      drawMarker(ctx, "circle", ...place, marked(i) ? 5 : 3.6);
    }
    ctx.globalAlpha = 1;
  }

  let grip = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    grip = { x: event.clientX, y: event.clientY, moved: 0 };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const [dx, dy] = [event.clientX - grip.x, event.clientY - grip.y];
    grip = { x: event.clientX, y: event.clientY, moved: grip.moved + Math.abs(dx) + Math.abs(dy) };
    turn(-0.008 * dx, 0.008 * dy);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (grip && grip.moved < 4) on.select(pathAt(event));
    grip = null;
  });
  canvas.addEventListener("pointercancel", () => (grip = null));

  function turn(azimuth, elevation) {
    camera.azimuth += azimuth;
    camera.elevation = clamp(camera.elevation + elevation, -0.2, Math.PI / 2);
    draw();
  }

  function zoom(factor) {
    camera.zoom = clamp(camera.zoom * factor, 0.5, 6);
    draw();
  }

  canvas.addEventListener(
    "wheel",
    (event) => {
      // The page scrolls as elsewhere, unless the cone is in use.
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      zoom(Math.exp(-0.0015 * event.deltaY));
    },
    { passive: false },
  );

  const KEYS = {
    ArrowLeft: () => turn(0.1, 0),
    ArrowRight: () => turn(-0.1, 0),
    ArrowUp: () => turn(0, 0.08),
    ArrowDown: () => turn(0, -0.08),
    "+": () => zoom(1.15),
    "=": () => zoom(1.15),
    "-": () => zoom(1 / 1.15),
    Home: () => draw(Object.assign(camera, FIRST_LOOK)),
  };
  canvas.addEventListener("keydown", (event) => {
    const action = KEYS[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });

  // The path next to a click, within 10 pixels; -1 for none.
  function pathAt(event) {
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let [best, distance] = [-1, 10];
    scene.paths.forEach((path, i) => {
      if (!path || !frame) return;
      for (const point of visible(path, frame.heights).points) {
        const [qx, qy] = frame.project(...point);
        const far = Math.hypot(px - qx, py - qy);
        if (far < distance) [best, distance] = [i, far];
      }
    });
    return best;
  }

  return { canvas, draw };
}

// The point where a path leaves is one more than its states, and always joined.
const joined = (path, k) => (k < path.x.length ? isJoined(path, k) : k > 0);

// From (x, y, height), all of them at most 1, to pixels: a view from afar, without perspective.
function projection({ azimuth, elevation, zoom }, width, height) {
  const [ca, sa, ce, se] = [Math.cos(azimuth), Math.sin(azimuth), Math.cos(elevation), Math.sin(elevation)];
  const scale = zoom * Math.min(width / 2.5, height / 2.15);
  // The middle between the highest and the lowest place: the rim from se below to se above its centre, and the tip.
  const tall = 1.35 * ce;
  const middle = (tall + Math.abs(se) + Math.min(0, tall - Math.abs(se))) / 2;
  return (x, y, z) => {
    const u = -sa * x + ca * y;
    const v = ca * x + sa * y;
    return [width / 2 + scale * u, height / 2 - scale * (tall * z - se * v - middle)];
  };
}

// Heights as shares of the picture: of(log trace), and the trace at the top.
function heightScale(scene, log) {
  const starts = scene.shapes.map((shape) => shape.trace);
  const first = Math.max(...starts, 1e-12);
  const ends = scene.paths.filter((path) => path && path.fate.kind === "CONVERGED").map((path) => path.logTrace.at(-1));
  const highest = Math.max(-Infinity, ...scene.paths.filter(Boolean).map((path) => Math.max(...path.logTrace)));
  if (log) {
    const unit = 0.1 * Math.min(...starts, first);
    const top = Math.exp(clamp(highest, Math.log(2 * first), Math.log(1e3 * first)));
    const whole = Math.log1p(top / unit);
    // log(1 + e^s) without overflow.
    const of = (value) => softplus(value - Math.log(unit)) / whole;
    return { of, top, inverse: (level) => unit * Math.expm1(level * whole) };
  }
  const settled = Math.exp(Math.min(Math.max(-Infinity, ...ends), Math.log(8 * first)));
  const top = Math.min(Math.max(2 * first, 1.02 * settled), Math.exp(Math.max(highest, Math.log(first))));
  return { of: (value) => Math.exp(Math.min(value, 700)) / top, top, inverse: (level) => level * top };
}

const softplus = (s) => (s > 30 ? s : Math.log1p(Math.exp(s)));

// The path up to where it leaves the picture, which may be never; between states it goes straight.
function visible(path, heights) {
  const points = [];
  for (let k = 0; k < path.x.length; k += 1) {
    const level = heights.of(path.logTrace[k]);
    const point = [level * path.x[k], level * path.y[k], level];
    if (level > 1 + 1e-9) {
      const before = points.at(-1);
      const share = before && Number.isFinite(level) ? (1 - before[2]) / (level - before[2]) : 0;
      if (before) points.push(before.map((value, c) => (c === 2 ? 1 : value + share * (point[c] - value))));
      return { points, left: true };
    }
    points.push(point);
  }
  return { points, left: false };
}

function drawCone(ctx, { project, heights }, colours, log) {
  const circle = Array.from({ length: 73 }, (_, k) => [Math.cos((k * Math.PI) / 36), Math.sin((k * Math.PI) / 36)]);
  const ring = (level) => {
    ctx.beginPath();
    circle.forEach(([x, y], k) => {
      const [px, py] = project(level * x, level * y, level);
      if (k) ctx.lineTo(px, py);
      else ctx.moveTo(px, py);
    });
  };
  const tip = project(0, 0, 0);
  fillSilhouette(ctx, tip, circle.map(([x, y]) => project(x, y, 1)), faded(colours.faint, 0.16));
  ctx.strokeStyle = faded(colours.faint, 0.9);
  ctx.lineWidth = 0.6;
  for (let k = 0; k < 72; k += 6) {
    ctx.beginPath();
    ctx.moveTo(...tip);
    ctx.lineTo(...project(...circle[k], 1));
    ctx.stroke();
  }
  for (const level of [0.25, 0.5, 0.75, 1]) {
    ring(level);
    ctx.lineWidth = level === 1 ? 1.3 : 0.7;
    ctx.strokeStyle = level === 1 ? colours.soft : faded(colours.faint, 0.9);
    ctx.stroke();
  }
  drawNames(ctx, project, heights, colours, log);
}

// The cone seen from the side is the hull of its tip and its upper ring.
function fillSilhouette(ctx, tip, ring, colour) {
  ctx.beginPath();
  const outline = [tip, ...ring];
  const corners = hullOf(outline.length, (k) => outline[k][0], (k) => outline[k][1]);
  corners.forEach(([px, py], k) => (k ? ctx.lineTo(px, py) : ctx.moveTo(px, py)));
  ctx.closePath();
  ctx.fillStyle = colour;
  ctx.fill();
}

function drawNames(ctx, project, heights, colours, log) {
  ctx.fillStyle = colours.soft;
  ctx.strokeStyle = colours.faint;
  ctx.lineWidth = 0.8;
  ctx.font = `12px ${colours.font}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const axis = (point, words) => {
    ctx.beginPath();
    ctx.moveTo(...project(0, 0, 1));
    ctx.lineTo(...project(point[0], point[1], 1));
    ctx.stroke();
    ctx.fillText(words, ...project(1.13 * point[0], 1.13 * point[1], 1));
  };
  axis([1, 0], "a − b");
  axis([0, 1], "2c");
  const [tx, ty] = project(0, 0, 0);
  ctx.fillText("Σ = 0", tx, ty + 12);
  const digits = heights.top >= 1e4 ? heights.top.toExponential(1).replace("e+", "e") : heights.top.toPrecision(3);
  ctx.textAlign = "left";
  ctx.fillText(`height: tr Σ up to ${Number(digits)}${log ? " (log)" : ""}`, 8, ctx.canvas.clientHeight - 12);
}
