// The convex hull of many points of the plane.

const DIRECTIONS = Array.from({ length: 16 }, (_, k) => [Math.cos((k * Math.PI) / 8), Math.sin((k * Math.PI) / 8)]);

/** The corners of the convex hull of points [x, y], counter-clockwise. `x(i)`, `y(i)` for i = 0 .. n - 1. */
export function hullOf(n, x, y) {
  let kept = [];
  for (let i = 0; i < n; i++) {
    const point = [x(i), y(i)];
    if (Number.isFinite(point[0]) && Number.isFinite(point[1])) kept.push(point);
  }
  // Few of many points are corners: those inside the polygon of the extreme ones in some directions cannot be.
  if (kept.length > 200) kept = outside(kept, chain(DIRECTIONS.map((direction) => extreme(kept, direction))));
  return chain(kept);
}

function extreme(points, [a, b]) {
  let [best, most] = [points[0], -Infinity];
  for (const point of points) {
    const value = a * point[0] + b * point[1];
    if (value > most) [best, most] = [point, value];
  }
  return best;
}

function outside(points, polygon) {
  if (polygon.length < 3) return points;
  const inside = (point) => polygon.every((p, k) => cross(p, polygon[(k + 1) % polygon.length], point) > 0);
  return points.filter((point) => !inside(point));
}

const cross = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);

/** Andrew's monotone chain. */
function chain(points) {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  if (sorted.length < 3) return sorted;
  const half = (list) => {
    const corners = [];
    for (const point of list) {
      while (corners.length > 1 && cross(corners[corners.length - 2], corners[corners.length - 1], point) <= 0)
        corners.pop();
      corners.push(point);
    }
    corners.pop();
    return corners;
  };
  return [...half(sorted), ...half(sorted.reverse())];
}
