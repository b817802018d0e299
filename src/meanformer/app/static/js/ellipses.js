// Ellipses of all covariances at the present moment, in a grid; the start is outlined behind each.

import { h, wiped } from "./dom.js";
import { fateLook } from "./fates.js";
import { faded, theme } from "./theme.js";

const THIN = 1; // pixels below which an ellipse has no width any more

/** The picture of `scene` (see disc.js); `trueSize()` tells whether sizes are kept; `on.select(i)`, `on.hover(i)`. */
export function ellipsePicture(scene, on, trueSize) {
  const canvas = h("canvas", {
    class: "gaussian-canvas ellipses-canvas",
    role: "img",
    "aria-label": "Ellipses of the covariances at the present moment, one for each start",
    "data-testid": "ellipses",
  });
  let grid = null;

  function draw() {
    if (!canvas.clientWidth) return;
    const { pen: ctx, width, height } = wiped(canvas);
    grid = gridOf(scene.starts.length, width, height);
    const colours = theme();
    // In true size the largest start fills half a cell, so that growth can be seen before it leaves.
    const reach = Math.max(...scene.shapes.map(longest), 1e-300);
    scene.starts.forEach((_, i) => drawCell(ctx, i, trueSize() ? reach : 0, colours));
  }

  function drawCell(ctx, i, reach, colours) {
    const [x, y] = grid.corner(i);
    const half = grid.size / 2;
    ctx.save();
    ctx.beginPath();
    ctx.roundRect(x + 1.5, y + 1.5, grid.size - 3, grid.size - 3, 4);
    ctx.fillStyle = faded(colours.faint, i === scene.selected ? 0.34 : i === scene.hover ? 0.24 : 0.1);
    ctx.fill();
    if (i === scene.selected) {
      ctx.strokeStyle = colours.ink;
      ctx.lineWidth = 1.5;
      ctx.stroke();
    }
    ctx.clip();
    ctx.fillStyle = colours.soft;
    ctx.font = `${Math.min(11, Math.max(9, 0.16 * grid.size))}px ${colours.font}`;
    ctx.textAlign = "left";
    ctx.textBaseline = "top";
    ctx.fillText(String(i + 1), x + 5, y + 5);
    ctx.translate(x + half, y + half);
    const shape = { ...scene.shapes[i], logTrace: Math.log(scene.shapes[i].trace) };
    ctx.strokeStyle = colours.soft;
    ctx.setLineDash([2, 2]);
    drawEllipse(ctx, shape, half, reach, null, 0.9);
    ctx.setLineDash([]);
    if (scene.paths[i]) {
      ctx.globalAlpha = scene.paths[i].stale ? 0.3 : 1;
      const look = fateLook(scene.paths[i].fate, colours);
      ctx.strokeStyle = look.colour;
      const left = drawEllipse(ctx, scene.now(i), half, reach, faded(look.colour, 0.22), 1.8);
      if (left) drawOutward(ctx, half, look.colour);
    }
    ctx.restore();
  }

  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return grid ? grid.at(event.clientX - box.left, event.clientY - box.top) : -1;
  };
  canvas.addEventListener("click", (event) => on.select(cellAt(event)));
  canvas.addEventListener("pointermove", (event) => on.hover(cellAt(event)));
  canvas.addEventListener("pointerleave", () => on.hover(-1));
  return { canvas, draw };
}

const longest = ({ x, y, trace }) => Math.sqrt((trace / 2) * (1 + Math.hypot(x, y)));

// An ellipse of one standard deviation around 0; without width a segment, without length a dot. Whether it leaves.
function drawEllipse(ctx, { x, y, logTrace }, half, reach, fill, lineWidth) {
  const r = Math.min(1, Math.hypot(x, y));
  const unit = reach > 0 ? Math.exp(Math.min(logTrace / 2 - Math.log(reach), 60)) / Math.sqrt(2) : 1 / Math.sqrt(1 + r);
  const size = (reach > 0 ? 0.5 : 0.78) * half * unit;
  const [major, minor] = [size * Math.sqrt(1 + r), size * Math.sqrt(1 - r)];
  // Far outside nothing is seen, and ellipses of any size are slow to draw.
  const [long, short] = [Math.min(major, 20 * half), Math.min(minor, 20 * half)];
  ctx.lineWidth = lineWidth;
  ctx.beginPath();
  if (long < THIN) {
    ctx.arc(0, 0, 1.4 + lineWidth / 2, 0, 2 * Math.PI);
    ctx.fillStyle = ctx.strokeStyle;
    ctx.fill();
    return false;
  }
  const angle = -Math.atan2(y, x) / 2;
  if (short < THIN / 2) {
    ctx.lineCap = "round";
    ctx.moveTo(-long * Math.cos(angle), -long * Math.sin(angle));
    ctx.lineTo(long * Math.cos(angle), long * Math.sin(angle));
  } else ctx.ellipse(0, 0, long, short, angle, 0, 2 * Math.PI);
  if (fill) {
    ctx.fillStyle = fill;
    ctx.fill();
  }
  ctx.stroke();
  return major > 1.3 * half;
}

// A small arrow in the corner: the ellipse is larger than its cell.
function drawOutward(ctx, half, colour) {
  const at = half - 9;
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.6;
  ctx.beginPath();
  ctx.moveTo(at - 6, -at + 6);
  ctx.lineTo(at, -at);
  ctx.moveTo(at - 5, -at);
  ctx.lineTo(at, -at);
  ctx.lineTo(at, -at + 5);
  ctx.stroke();
}

// Square cells, as large as fit.
function gridOf(count, width, height) {
  let best = { size: 0, columns: 1 };
  for (let columns = 1; columns <= Math.max(1, count); columns += 1) {
    const size = Math.min(width / columns, height / Math.ceil(Math.max(1, count) / columns), 120);
    if (size > best.size) best = { size, columns };
  }
  const { size, columns } = best;
  const rows = Math.ceil(Math.max(1, count) / columns);
  const [left, top] = [(width - columns * size) / 2, (height - rows * size) / 2];
  return {
    size,
    corner: (i) => [left + (i % columns) * size, top + Math.floor(i / columns) * size],
    at(px, py) {
      const [column, row] = [Math.floor((px - left) / size), Math.floor((py - top) / size)];
      const i = row * columns + column;
      return column >= 0 && column < columns && row >= 0 && i < count ? i : -1;
    },
  };
}
