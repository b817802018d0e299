// Pointers on a picture: drag, pinch, wheel, hover; mouse, pen and touch.

const SLACK = 20;

/**
 * Listens on `node`. Handlers get CSS pixels of the node: `grabs(x, y)` tells whether a drag that begins there is meant
 * for what is there (then touch does not scroll the page), `down(x, y)`, `drag(dx, dy, x, y)`, `up()`; with two fingers
 * `shift(dx, dy)` and, also with the wheel, `pinch(factor, x, y)`; `hover(x, y)`, `leave()`.
 */
export function attachGestures(node, handlers) {
  const pointers = new Map();
  let held = null;
  const at = (event) => {
    const box = node.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[x0, y0], [x1, y1]] = [...pointers.values()];
    return { length: Math.hypot(x1 - x0, y1 - y0), x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
  };

  node.addEventListener("touchstart", (event) => {
    const [x, y] = at(event.touches[0]);
    // One finger on the background scrolls the page up and down; on a token, or two fingers, the picture has them.
    if (event.touches.length > 1 || handlers.grabs(x, y)) event.preventDefault();
  }, { passive: false });

  node.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button, select, input, label")) return;
    node.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    // A finger on the background may be about to scroll the page: it moves the picture after some pixels only.
    const [x, y] = at(event);
    held = event.pointerType === "touch" && !handlers.grabs(x, y) ? [x, y] : null;
    if (pointers.size === 1) handlers.down(x, y);
    else handlers.up();
  });

  node.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!pointers.has(event.pointerId)) {
      if (event.pointerType !== "touch") handlers.hover(x, y);
      return;
    }
    const [px, py] = pointers.get(event.pointerId);
    const before = pointers.size === 2 ? spread() : null;
    if (!before && held && Math.hypot(x - held[0], y - held[1]) < SLACK) return;
    pointers.set(event.pointerId, [x, y]);
    const waited = held !== null;
    held = null;
    if (waited && !before) return;
    if (before) {
      const after = spread();
      handlers.shift(after.x - before.x, after.y - before.y);
      handlers.pinch(after.length / Math.max(before.length, 1), after.x, after.y);
    } else handlers.drag(x - px, y - py, x, y);
  });

  const gone = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (!pointers.size) handlers.up();
  };
  node.addEventListener("pointerup", gone);
  node.addEventListener("pointercancel", gone);
  node.addEventListener("pointerleave", () => handlers.leave());
  node.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    handlers.pinch(Math.exp(-Math.max(-120, Math.min(120, event.deltaY * lines)) * 0.0022), ...at(event));
  }, { passive: false });
}

/** The token nearest to the pixel (x, y), within `reach` pixels; -1 if there is none. */
export function nearestToken({ recording, place, shown, camera }, x, y, reach = 14) {
  const [right, up, out] = camera.rows();
  const [mx, my] = camera.middle;
  const { centre, distance } = camera;
  const { n } = recording;
  const time = recording.timeAt(place);
  const value = (i, c) => (c === "t" ? time : c === undefined ? 0 : recording.coordinate(i, c, place));
  let [best, least] = [-1, reach * reach];
  for (let i = 0; i < n; i++) {
    const p = value(i, shown[0]) - centre[0];
    const q = value(i, shown[1]) - centre[1];
    const r = value(i, shown[2]) - centre[2];
    const depth = 1 - (out[0] * p + out[1] * q + out[2] * r) / distance;
    if (!(depth > 0.05)) continue;
    const dx = mx + (right[0] * p + right[1] * q + right[2] * r) / depth - x;
    const dy = my - (up[0] * p + up[1] * q + up[2] * r) / depth - y;
    const square = dx * dx + dy * dy;
    if (square < least) [best, least] = [i, square];
  }
  return best;
}
