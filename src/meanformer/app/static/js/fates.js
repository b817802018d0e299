// Covariances of the plane and what becomes of them: coordinates, paths without overflow, words and looks of fates.

// A path is kept as its shape (x, y) in the disc and the logarithm of its trace, so that blow-ups do not overflow:
// Sigma = tr/2 (1 + x, y; y, 1 - x), with eigenvalues tr/2 (1 +- r), r = |(x, y)|.

export const shapeOf = (cov) => {
  const [[a, c], [, b]] = cov;
  const trace = a + b;
  return trace > 0 ? { x: (a - b) / trace, y: (2 * c) / trace, trace } : { x: 0, y: 0, trace: 0 };
};

const round = (value) => Number(value.toPrecision(6));

export const covarianceOf = (x, y, trace) => {
  const c = round((trace * y) / 2);
  return [
    [round((trace * (1 + x)) / 2), c],
    [c, round((trace * (1 - x)) / 2)],
  ];
};

// The angle of the longest axis, in (-90, 90] degrees: a line at the angle theta lies at 2 theta in the disc.
export const directionOf = (x, y) => {
  const degrees = (Math.atan2(y, x) / 2) * (180 / Math.PI);
  return degrees <= -90 + 1e-9 ? 90 : degrees;
};

// Keeps a place inside the open disc: on the circle itself a covariance has rank one, which no flow can leave.
export const intoDisc = (x, y, radius = 0.995) => {
  const r = Math.hypot(x, y);
  return r > radius ? [(x * radius) / r, (y * radius) / r] : [x, y];
};

// The starts of target A4: those of a square grid of side x side points that lie in the disc.
export function gridOfStarts(side, trace) {
  const starts = [];
  for (let i = 0; i < side; i += 1) {
    for (let j = 0; j < side; j += 1) {
      const [x, y] = [(2 * j) / (side - 1) - 1, (2 * i) / (side - 1) - 1];
      if (x * x + y * y < 0.98) starts.push(covarianceOf(x, y, trace));
    }
  }
  return starts;
}

export function randomStarts(count, trace) {
  return Array.from({ length: count }, () => {
    const [r, angle] = [0.97 * Math.sqrt(Math.random()), 2 * Math.PI * Math.random()];
    return covarianceOf(r * Math.cos(angle), r * Math.sin(angle), trace);
  });
}

// A message "path" as arrays of x, y, log trace and eigenvalues over times; cut before the first state not finite.
export function readPath(answer) {
  const { times, covs, eigenvalues } = answer.arrays;
  const path = { fate: answer.fate, times: [], x: [], y: [], logTrace: [], high: [], low: [] };
  for (let k = 0; k < times.data.length; k += 1) {
    const [a, c, , b] = covs.data.subarray(4 * k, 4 * k + 4);
    if (![a, b, c].every(Number.isFinite)) break;
    // Divided by the largest entry first: a + b may overflow where a and b do not.
    const size = Math.max(Math.abs(a), Math.abs(b));
    const shape = size > 0 ? shapeOf([[a / size, c / size], [c / size, b / size]]) : { x: 0, y: 0, trace: 0 };
    path.times.push(times.data[k]);
    path.x.push(shape.x);
    path.y.push(shape.y);
    path.logTrace.push(size > 0 ? Math.log(shape.trace) + Math.log(size) : -Infinity);
    const r = Math.min(1, Math.hypot(shape.x, shape.y));
    const half = (shape.trace * size) / 2;
    path.high.push(eigenvalues ? eigenvalues.data[2 * k] : half * (1 + r));
    // From the entries the small eigenvalue is known to round-off of the large one only.
    path.low.push(eigenvalues ? eigenvalues.data[2 * k + 1] : 1 - r > 4e-15 ? half * (1 - r) : NaN);
  }
  path.travelled = travelled(path);
  return path;
}

// How far the shape and the size have moved, from 0 to 1: an even pace for pictures, whatever the times.
function travelled(path) {
  const lengths = [0];
  const logs = path.logTrace.map((value) => Math.max(value, -40));
  for (let k = 1; k < path.times.length; k += 1) {
    const shape = Math.hypot(path.x[k] - path.x[k - 1], path.y[k] - path.y[k - 1]);
    lengths.push(lengths[k - 1] + shape + 0.1 * Math.abs(logs[k] - logs[k - 1]));
  }
  const all = lengths[lengths.length - 1];
  return lengths.map((length, k) => (all > 0 ? length / all : k / Math.max(1, lengths.length - 1)));
}

// Whether the states k - 1 and k are joined by a line: not, if the path may have turned round and round between them.
export const isJoined = ({ x, y, fate }, k) =>
  k > 0 && (fate.kind !== "UNDECIDED" || Math.hypot(x[k] - x[k - 1], y[k] - y[k - 1]) < 0.2);

// The state of a path at a share of its way, or at a time: {x, y, logTrace, time, ended}.
export const atShare = (path, share) => between(path, path.travelled, share);
export const atTime = (path, time) => between(path, path.times, time);

function between(path, axis, value) {
  const last = axis.length - 1;
  let k = 0;
  let top = last;
  while (top - k > 1) {
    const middle = (k + top) >> 1;
    if (axis[middle] <= value) k = middle;
    else top = middle;
  }
  const width = axis[top] - axis[k];
  const u = width > 0 ? Math.min(1, Math.max(0, (value - axis[k]) / width)) : 1;
  const mix = (list) => (u === 0 ? list[k] : u === 1 ? list[top] : (1 - u) * list[k] + u * list[top]);
  return {
    x: mix(path.x),
    y: mix(path.y),
    logTrace: mix(path.logTrace),
    time: mix(path.times),
    ended: value > axis[last],
  };
}

export const growsExponentially = ({ law }) => law === "exponential";

// Looks: colour, dashes and a marker for each fate, so that nothing is told by colour alone.
const LOOKS = {
  "rank 0": { colour: 2, dash: [2, 3], marker: "circle", words: "converges to rank 0" },
  "rank 1": { colour: 0, dash: [], marker: "square", words: "converges to rank 1" },
  "rank 2": { colour: 5, dash: [12, 3], marker: "diamond", words: "converges to rank 2" },
  BLEW_UP: { colour: 1, dash: [7, 3], marker: "triangle", words: "blows up" },
  DIVERGED: { colour: 4, dash: [8, 3, 2, 3], marker: "wedge", words: "grows without end" },
  UNDECIDED: { colour: 6, dash: [1, 4], marker: "ring", words: "is undecided" },
};

export const fateKey = (fate) => (fate.kind === "CONVERGED" ? `rank ${Math.min(fate.rank ?? 0, 2)}` : fate.kind);

export function fateLook(fate, colours) {
  const key = fateKey(fate);
  const look = LOOKS[key] ?? LOOKS.UNDECIDED;
  return { ...look, key, colour: key in LOOKS && key !== "UNDECIDED" ? colours.palette[look.colour] : colours.soft };
}

const PLURAL = {
  "converges to rank 0": "converge to rank 0",
  "converges to rank 1": "converge to rank 1",
  "converges to rank 2": "converge to rank 2",
  "blows up": "blow up",
  "grows without end": "grow without end",
  "is undecided": "are undecided",
};

// "7 converge to rank 1, 5 blow up", the most frequent first.
export function summaryOf(paths) {
  const counts = new Map();
  for (const path of paths) {
    const words = (LOOKS[fateKey(path.fate)] ?? LOOKS.UNDECIDED).words;
    counts.set(words, (counts.get(words) ?? 0) + 1);
  }
  const parts = [...counts].sort((p, q) => q[1] - p[1]);
  return parts.map(([words, count]) => `${count} ${count === 1 ? words : PLURAL[words]}`).join(", ");
}

// A marker of the shape that belongs to a fate, at a place of a canvas.
export function drawMarker(ctx, marker, x, y, size) {
  ctx.beginPath();
  if (marker === "circle" || marker === "ring") ctx.arc(x, y, size, 0, 2 * Math.PI);
  else if (marker === "square") ctx.rect(x - 0.88 * size, y - 0.88 * size, 1.76 * size, 1.76 * size);
  else polygon(ctx, CORNERS[marker], x, y, 1.25 * size);
  if (marker !== "ring") ctx.fill();
  ctx.stroke();
}

const CORNERS = {
  diamond: [[0, -1], [1, 0], [0, 1], [-1, 0]],
  triangle: [[0, -1], [0.95, 0.7], [-0.95, 0.7]],
  wedge: [[-0.7, -0.95], [1, 0], [-0.7, 0.95]],
};

function polygon(ctx, corners, x, y, size) {
  corners.forEach(([u, v], i) => (i ? ctx.lineTo(x + size * u, y + size * v) : ctx.moveTo(x + size * u, y + size * v)));
  ctx.closePath();
}
