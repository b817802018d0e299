// The convex hull of many points of the plane.

const DIRECTIONS = Array.from({ length: 16 }, (_, k) => [Math.cos((k * Math.PI) / 8), Math.sin((k * Math.PI) / 8)]);
const MANY = 200;

/** The corners of the convex hull of the points (x[i], y[i]), counter-clockwise; what is not finite is left out. */
export function hullOf(x, y) {
  // Few of many points are corners: those inside the polygon of the extreme ones in some directions cannot be.
  const inside = x.length > MANY ? insideOf(chain(extremes(x, y))) : () => false;
  const kept = [];
  for (let i = 0; i < x.length; i++) {
    if (Number.isFinite(x[i]) && Number.isFinite(y[i]) && !inside(x[i], y[i])) kept.push([x[i], y[i]]);
  }
  return chain(kept);
}

function extremes(x, y) {
  return DIRECTIONS.map(([a, b]) => {
    let [best, most] = [0, -Infinity];
    for (let i = 0; i < x.length; i++) {
      const value = a * x[i] + b * y[i];
      if (value > most) [best, most] = [i, value];
    }
    return [x[best], y[best]];
  });
}

/** Whether a point is strictly inside a convex polygon; most are in the largest disc around its middle. */
function insideOf(polygon) {
  if (polygon.length < 3) return () => false;
  const middle = [0, 1].map((c) => polygon.reduce((sum, p) => sum + p[c] / polygon.length, 0));
  const edges = polygon.map((p, k) => [p, polygon[(k + 1) % polygon.length]]);
  const distance = ([p, q]) => cross(p, q, middle) / Math.hypot(q[0] - p[0], q[1] - p[1]);
  const square = Math.min(...edges.map(distance)) ** 2;
  return (x, y) => {
    const [u, v] = [x - middle[0], y - middle[1]];
    return u * u + v * v < square || edges.every(([p, q]) => cross(p, q, [x, y]) > 0);
  };
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
