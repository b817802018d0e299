// A run as the page holds it: the frames that have arrived, the curves, the end.

const MARKED = 0.015; // the share of the tokens from which on a cluster is marked
const CURVES = ["radius", "bound", "clusters", "effective_rank", "energy"];

/** The frames of one run of tokens. Positions are float32, a frame after the other; frames may still be arriving. */
export class Recording {
  constructor(start) {
    const { points, weights, positions } = start.arrays;
    Object.assign(this, { n: start.n, d: start.d, discrete: Boolean(start.discrete), t0: start.t0, t1: start.t1 });
    this.rescaled = start.frame === "rescaled";
    this.planned = Math.max(1, start.times);
    this.summary = start.summary || "";
    this.start = floats(points.data);
    this.weights = weights ? Float64Array.from(weights.data) : new Float64Array(this.n).fill(1 / this.n);
    this.equalWeights = isConstant(this.weights);
    this.positions = positions ? Float64Array.from(positions.data) : null;
    this.times = [];
    this.frames = [];
    this.exact = []; // the frames as they were sent, in double precision if they were
    this.received = [];
    this.boxes = [];
    this.curves = {};
    this.energyName = null;
    this.complete = false;
    this.outcome = null;
    this.end = null;
    this.clusters = null;
  }

  /** Until its clusters are known, a run has those of the run before, so that small changes do not flicker. */
  inherit(before) {
    if (before && before.n === this.n && !this.clusters) this.clusters = before.clusters;
  }

  /** How many frames have arrived. */
  get count() {
    return this.frames.length;
  }

  /** How many frames there will be: after the end, those that there are. */
  get total() {
    return this.end ? Math.max(1, this.count) : Math.max(this.planned, this.count);
  }

  addFrames(answer) {
    const { times, points } = answer.arrays;
    const first = answer.first === undefined ? this.count : answer.first;
    const size = this.n * this.d;
    const data = floats(points.data);
    for (let k = 0; k < times.data.length; k++) {
      const frame = data.subarray(k * size, (k + 1) * size);
      this.times[first + k] = Number(times.data[k]);
      this.frames[first + k] = frame;
      this.exact[first + k] = points.data.subarray(k * size, (k + 1) * size);
      this.boxes[first + k] = boxOf(frame, this.d);
    }
    this.addCurves(answer);
  }

  /** Values over time: with the frames, or on their own when they take longer to compute. */
  addCurves(answer) {
    const first = answer.first || 0;
    const { received } = answer.arrays;
    for (let k = 0; received && k < received.shape[0]; k++)
      this.received[first + k] = received.data.subarray(k * this.n, (k + 1) * this.n);
    for (const name of CURVES) {
      const curve = answer.arrays[name];
      if (!curve) continue;
      this.curves[name] = this.curves[name] || [];
      for (let k = 0; k < curve.data.length; k++) this.curves[name][first + k] = Number(curve.data[k]);
    }
    if ("energy_name" in answer) {
      this.complete = true; // the energy is the last thing that is told, even if there is none
      this.energyName = answer.energy_name;
    }
  }

  finish(answer) {
    this.end = answer;
    this.outcome = answer.outcome || null;
    const { labels } = answer.arrays;
    this.clusters = labels ? groups(labels.data, this.n) : null;
  }

  /** The frame before a place u in [0, count - 1], the one after, and the share of the way between them. */
  between(u) {
    const last = this.count - 1;
    const k = Math.min(Math.max(Math.floor(u), 0), Math.max(last, 0));
    if (this.discrete || k >= last) return { k, next: k, share: 0 };
    return { k, next: k + 1, share: Math.min(Math.max(u - k, 0), 1) };
  }

  timeAt(u) {
    if (!this.count) return this.t0;
    const { k, next, share } = this.between(u);
    return this.times[k] + share * (this.times[next] - this.times[k]);
  }

  /** The place of a time among the frames, by bisection. */
  placeOf(time) {
    let [low, high] = [0, this.count - 1];
    if (high <= 0 || time <= this.times[0]) return 0;
    if (time >= this.times[high]) return high;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= time) low = middle;
      else high = middle;
    }
    return low + (time - this.times[low]) / (this.times[high] - this.times[low]);
  }

  /** The value of a curve at a place u; undefined if there is no such curve, NaN where it is unknown. */
  curveAt(name, u) {
    const curve = this.curves[name];
    if (!curve || !this.count) return undefined;
    // Costly curves are known at some frames only: the value is between the known ones around the place.
    const known = (k) => Number.isFinite(curve[k]);
    let { k, next } = this.between(u);
    while (k > 0 && !known(k)) k--;
    while (next < curve.length - 1 && !known(next)) next++;
    // Counts have no values between frames.
    if (name === "clusters" || next === k || !(u > k)) return curve[k];
    return curve[k] + ((u - k) / (next - k)) * (curve[next] - curve[k]);
  }

  /** The attention that each token receives, over its weight (1 is the average), at the last frame that knows it. */
  receivedAt(u) {
    let k = Math.min(Math.floor(u), this.received.length - 1);
    while (k > 0 && !Number.isFinite(this.received[k][0])) k--;
    const values = this.received[k];
    return values && Number.isFinite(values[0]) ? values : null;
  }

  /** Put a token somewhere else in the first frame, as it is dragged; the rest is of the run before. */
  moveStart(i, coordinates) {
    const moved = (points) => {
      const copy = points.slice();
      coordinates.forEach((x, c) => (copy[i * this.d + c] = x));
      return copy;
    };
    this.start = moved(this.start);
    if (this.count) this.frames[0] = moved(this.frames[0]);
  }

  /** Coordinate c of token i at a place u. */
  coordinate(i, c, u) {
    const at = i * this.d + c;
    if (!this.count) return this.start[at];
    const { k, next, share } = this.between(u);
    return this.frames[k][at] + share * (this.frames[next][at] - this.frames[k][at]);
  }

  /** Coordinate c of all tokens at a place u. */
  column(c, u) {
    if (!this.count) return this.startColumn(c);
    const { k, next, share } = this.between(u);
    const [a, b, d] = [this.frames[k], this.frames[next], this.d];
    const values = new Float64Array(this.n);
    for (let i = 0, at = c; i < this.n; i++, at += d) values[i] = a[at] + share * (b[at] - a[at]);
    return values;
  }

  startColumn(c) {
    return Float64Array.from({ length: this.n }, (_, i) => this.start[i * this.d + c]);
  }

  /** The smallest box around frames first..last, as {low, high}; `null` without frames. */
  boxOver(first, last) {
    const box = { low: new Array(this.d).fill(Infinity), high: new Array(this.d).fill(-Infinity) };
    for (let k = first; k <= Math.min(last, this.count - 1); k++) widen(box, this.boxes[k]);
    return box.low.every(Number.isFinite) ? box : null;
  }

  /** The box around what is seen at a place u; before any frame, around the start. */
  boxAt(u) {
    if (!this.count) return boxOf(this.start, this.d);
    const { k, next, share } = this.between(u);
    const [a, b] = [this.boxes[k], this.boxes[next]];
    const mix = (p, q) => p.map((x, c) => x + share * (q[c] - x));
    return { low: mix(a.low, b.low), high: mix(a.high, b.high) };
  }

  /** The box around all frames so far. */
  box() {
    return this.boxOver(0, this.count - 1) || boxOf(this.start, this.d);
  }
}

const floats = (data) => (data instanceof Float32Array ? data : Float32Array.from(data));

function isConstant(values) {
  const tolerance = 1e-6 * Math.abs(values[0]);
  return values.every((value) => Math.abs(value - values[0]) <= tolerance);
}

function boxOf(points, d) {
  const low = new Array(d).fill(Infinity);
  const high = new Array(d).fill(-Infinity);
  for (let at = 0; at < points.length; at += d) {
    for (let c = 0; c < d; c++) {
      const x = points[at + c];
      if (!Number.isFinite(x)) continue;
      if (x < low[c]) low[c] = x;
      if (x > high[c]) high[c] = x;
    }
  }
  for (let c = 0; c < d; c++) if (low[c] > high[c]) [low[c], high[c]] = [-1, 1];
  return { low, high };
}

function widen(box, other) {
  for (let c = 0; c < box.low.length; c++) {
    box.low[c] = Math.min(box.low[c], other.low[c]);
    box.high[c] = Math.max(box.high[c], other.high[c]);
  }
}

/**
 * Clusters by size, the largest first: `sizes`, numbers of tokens; `places`, for each token that of its cluster;
 * `marked`, how many are large enough to have a colour and a number: a colour for each token would tell nothing.
 */
function groups(labels, n) {
  const sizes = new Map();
  for (let i = 0; i < n; i++) if (labels[i] >= 0) sizes.set(labels[i], (sizes.get(labels[i]) || 0) + 1);
  const order = [...sizes.entries()].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const rank = new Map(order.map(([label], place) => [label, place]));
  const places = Int32Array.from(labels, (label) => rank.get(label) ?? -1);
  const list = order.map(([, size]) => size);
  return { sizes: list, places, marked: list.filter((size) => size >= MARKED * n).length };
}
