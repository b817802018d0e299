// The disc of shapes: covariances of the plane without their size, with their paths; starts are added, moved, removed.

import { h, wiped } from "./dom.js";
import { atShare, drawMarker, fateLook, intoDisc, isJoined } from "./fates.js";
import { faded, theme } from "./theme.js";

const NEAR = 16; // pixels within which a start is taken hold of
const EDGE = 1.22; // the picture reaches so far, the circle has radius 1
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * The picture of `scene` = {starts, shapes, paths, selected, hover, now(i)}; what the reader does is told to
 * `on` = {select(i), hover(i), add(x, y), move(i, x, y), remove(i)}.
 */
export function discPicture(scene, on) {
  const canvas = h("canvas", {
    class: "gaussian-canvas disc-canvas",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "disc of covariances",
    "aria-label":
      "Shapes of covariances in the unit disc. Enter adds a start, arrows move the selected one, " +
      "square brackets select, Delete removes.",
    "data-testid": "disc",
  });
  const view = { width: 0, height: 0, scale: 1 };
  const place = (x, y) => [view.width / 2 + view.scale * x, view.height / 2 - view.scale * y];

  function draw() {
    if (!canvas.clientWidth) return;
    const { pen: ctx, width, height } = wiped(canvas);
    Object.assign(view, { width, height, scale: Math.min(width, height) / 2 / EDGE });
    const colours = theme();
    drawDisc(ctx, place, view.scale, colours);
    const order = scene.starts.map((_, i) => i).sort((i, j) => marked(i) - marked(j));
    for (const i of order) drawPath(ctx, i, colours);
    for (const i of order) drawEnds(ctx, i, colours);
  }

  const marked = (i) => (i === scene.selected ? 2 : i === scene.hover ? 1 : 0);
  const dimmed = (i) => scene.selected >= 0 && !marked(i);

  function drawPath(ctx, i, colours) {
    const path = scene.paths[i];
    if (!path) return;
    const look = fateLook(path.fate, colours);
    ctx.strokeStyle = look.colour;
    ctx.globalAlpha = path.stale ? 0.25 : dimmed(i) ? 0.45 : 0.95;
    ctx.lineWidth = marked(i) === 2 ? 2.6 : marked(i) ? 2.2 : 1.4;
    ctx.setLineDash(look.dash);
    ctx.beginPath();
    for (let k = 0; k < path.x.length; k += 1) {
      const [px, py] = place(path.x[k], path.y[k]);
      if (isJoined(path, k)) ctx.lineTo(px, py);
      else ctx.moveTo(px, py);
    }
    ctx.stroke();
    ctx.setLineDash([]);
    drawHeading(ctx, path, look.colour);
    ctx.globalAlpha = 1;
  }

  // An arrow head half way tells the direction of time, where the path is long enough to have one.
  function drawHeading(ctx, path, colour) {
    if (path.fate.kind === "UNDECIDED") return;
    const [from, to] = [0.47, 0.53].map((share) => atShare(path, share));
    const [[px, py], [qx, qy]] = [place(from.x, from.y), place(to.x, to.y)];
    if (Math.hypot(qx - px, qy - py) < 1.2) return;
    const angle = Math.atan2(qy - py, qx - px);
    ctx.fillStyle = colour;
    ctx.beginPath();
    for (const turn of [0, 2.6, -2.6]) ctx.lineTo(qx + 5 * Math.cos(angle + turn), qy + 5 * Math.sin(angle + turn));
    ctx.closePath();
    ctx.fill();
  }

  function drawEnds(ctx, i, colours) {
    const [path, shape] = [scene.paths[i], scene.shapes[i]];
    const look = path ? fateLook(path.fate, colours) : null;
    const [sx, sy] = place(shape.x, shape.y);
    ctx.lineWidth = 1;
    if (path) {
      const last = path.x.length - 1;
      ctx.fillStyle = look.colour;
      ctx.strokeStyle = look.marker === "ring" ? look.colour : colours.card;
      ctx.globalAlpha = path.stale ? 0.25 : dimmed(i) ? 0.6 : 1;
      drawMarker(ctx, look.marker, ...place(path.x[last], path.y[last]), marked(i) ? 6 : 4.6);
      drawPresent(ctx, place(scene.now(i).x, scene.now(i).y), place(path.x[last], path.y[last]), look, i, colours);
      ctx.globalAlpha = 1;
    }
    ctx.fillStyle = path && !path.stale ? look.colour : colours.soft;
    ctx.strokeStyle = colours.card;
    ctx.lineWidth = 1;
    drawMarker(ctx, "circle", sx, sy, marked(i) ? 4.5 : 2.8);
    if (!marked(i)) return;
    ctx.strokeStyle = colours.ink;
    ctx.lineWidth = marked(i) === 2 ? 1.8 : 1;
    ctx.beginPath();
    ctx.arc(sx, sy, 9, 0, 2 * Math.PI);
    ctx.stroke();
    ctx.fillStyle = colours.ink;
    ctx.font = `600 12px ${colours.font}`;
    ctx.textAlign = shape.x > 0.75 ? "right" : "left";
    ctx.textBaseline = "middle";
    ctx.fillText(String(i + 1), sx + (shape.x > 0.75 ? -13 : 13), sy - 8);
  }

  // An open circle, unless it would hide the marker of the end.
  function drawPresent(ctx, [px, py], [ex, ey], look, i, colours) {
    if (Math.hypot(px - ex, py - ey) < 5) return;
    ctx.fillStyle = colours.card;
    ctx.strokeStyle = look.colour;
    ctx.lineWidth = 1.8;
    drawMarker(ctx, "circle", px, py, marked(i) ? 5 : 3.6);
  }

  const spot = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const inDisc = ([px, py]) => [(px - view.width / 2) / view.scale, (view.height / 2 - py) / view.scale];

  function nearest([px, py]) {
    let [best, distance] = [-1, NEAR];
    scene.shapes.forEach((shape, i) => {
      const [qx, qy] = place(shape.x, shape.y);
      const far = Math.hypot(px - qx, py - qy);
      if (far <= distance) [best, distance] = [i, far];
    });
    return best;
  }

  let held = -1;
  let pressed = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const at = spot(event);
    held = nearest(at);
    pressed = { at, moved: false };
    if (held < 0) return;
    canvas.setPointerCapture(event.pointerId);
    on.select(held);
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = spot(event);
    if (pressed && Math.hypot(at[0] - pressed.at[0], at[1] - pressed.at[1]) > 4) pressed.moved = true;
    if (held >= 0 && pressed.moved) on.move(held, ...intoDisc(...inDisc(at)));
    else if (!pressed) on.hover(nearest(at));
    canvas.style.cursor = held >= 0 ? "grabbing" : scene.hover >= 0 ? "grab" : "crosshair";
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = inDisc(spot(event));
    if (pressed && held < 0 && !pressed.moved && Math.hypot(x, y) < 1.04) on.add(...intoDisc(x, y));
    held = -1;
    pressed = null;
  });
  canvas.addEventListener("pointercancel", () => {
    held = -1;
    pressed = null;
  });
  canvas.addEventListener("pointerleave", () => on.hover(-1));
  // A finger on a start moves it; elsewhere it scrolls the page.
  const hold = (event) => nearest(spot(event.touches[0])) >= 0 && event.preventDefault();
  canvas.addEventListener("touchstart", hold, { passive: false });

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [count, i] = [scene.starts.length, scene.selected];
    const arrow = ARROWS[event.key];
    if (arrow && i >= 0) {
      const step = event.shiftKey ? 0.1 : 0.02;
      on.move(i, ...intoDisc(scene.shapes[i].x + step * arrow[0], scene.shapes[i].y + step * arrow[1]));
    } else if (arrow && count) on.select(0);
    else if (event.key === "Enter") on.add(...besideSelected(scene));
    else if (event.key === "]" && count) on.select((i + 1) % count);
    else if (event.key === "[" && count) on.select((i + count - (i < 0 ? 0 : 1)) % count);
    else if (event.key === "Escape" && i >= 0) on.select(-1);
    else if ((event.key === "Delete" || event.key === "Backspace") && i >= 0) on.remove(i);
    else return;
    event.preventDefault();
  });
  return { canvas, draw };
}

// Where Enter puts a new start: the middle, or a step beside the selected one.
function besideSelected(scene) {
  const shape = scene.shapes[scene.selected];
  return shape ? intoDisc(shape.x + 0.12, shape.y + 0.08) : [0, 0];
}

function drawDisc(ctx, place, scale, colours) {
  const [cx, cy] = place(0, 0);
  ctx.beginPath();
  ctx.arc(cx, cy, scale, 0, 2 * Math.PI);
  ctx.fillStyle = faded(colours.faint, 0.18);
  ctx.fill();
  ctx.strokeStyle = colours.soft;
  ctx.lineWidth = 1;
  ctx.stroke();
  ctx.strokeStyle = faded(colours.faint, 0.8);
  ctx.lineWidth = 0.6;
  for (const radius of [0.25, 0.5, 0.75]) {
    ctx.beginPath();
    ctx.arc(cx, cy, radius * scale, 0, 2 * Math.PI);
    ctx.stroke();
  }
  ctx.strokeStyle = colours.soft;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const [dx, dy] of [[4, 0], [0, 4]]) {
    ctx.moveTo(cx - dx, cy - dy);
    ctx.lineTo(cx + dx, cy + dy);
  }
  ctx.stroke();
  // A line at the angle theta has the shape (cos 2 theta, sin 2 theta): strokes around the circle show these lines.
  ctx.lineWidth = 1.6;
  ctx.lineCap = "round";
  for (let k = 0; k < 16; k += 1) {
    const angle = (2 * Math.PI * k) / 16;
    const [px, py] = place(1.11 * Math.cos(angle), 1.11 * Math.sin(angle));
    const [dx, dy] = [0.055 * scale * Math.cos(angle / 2), -0.055 * scale * Math.sin(angle / 2)];
    ctx.beginPath();
    ctx.moveTo(px - dx, py - dy);
    ctx.lineTo(px + dx, py + dy);
    ctx.stroke();
  }
  ctx.lineCap = "butt";
}
