// The run of a density on a line as the page holds it: frames so far, and their mass, mean, variance, quantiles.

export const QUANTILES = [0.05, 0.5, 0.95];
// Shares of the highest density of a frame above which something is seen: on a plain scale, on a logarithmic one.
const VISIBLE = { plain: 1 / 196, log: 1e-6 };

/** Frames of a run; the player and the charts ask it for `count`, `total`, `timeAt`, `placeOf`, `discrete`, `end`. */
export class DensityRun {
  constructor(start) {
    this.x = start.arrays.x.data;
    this.spacing = start.spacing ?? (this.x.length > 1 ? this.x[1] - this.x[0] : 1);
    Object.assign(this, { t0: start.t0 ?? 0, t1: start.t1, planned: Math.max(1, start.times) });
    Object.assign(this, { discrete: false, end: null, outcome: null, times: [], frames: [], lost: [] });
    Object.assign(this, { mass: [], mean: [], variance: [], quantiles: QUANTILES.map(() => []), highest: 0 });
    this.reach = { plain: [Infinity, -Infinity], log: [Infinity, -Infinity] };
    // The start is seen before anything is computed; the first frame says the same again.
    this.addFrames({ first: 0, arrays: { times: { data: [this.t0] }, density: start.arrays.density } });
  }

  get count() {
    return this.frames.length;
  }

  get total() {
    return this.end ? Math.max(1, this.count) : Math.max(this.planned, this.count);
  }

  addFrames(answer) {
    const { times, density, lost } = answer.arrays;
    const cells = this.x.length;
    for (let k = 0; k < times.data.length; k += 1) {
      const at = answer.first === undefined ? this.count : answer.first + k;
      const frame = density.data.subarray(k * cells, (k + 1) * cells);
      this.times[at] = Number(times.data[k]);
      this.lost[at] = lost ? Number(lost.data[k]) : 0;
      this.frames[at] = frame;
      this.measure(frame, at);
    }
  }

  measure(frame, at) {
    const { x, spacing } = this;
    let [mass, first, top] = [0, 0, 0];
    for (let i = 0; i < frame.length; i += 1) {
      mass += frame[i] * spacing;
      first += frame[i] * spacing * x[i];
      if (frame[i] > top) top = frame[i];
    }
    const mean = first / mass;
    let second = 0;
    for (let i = 0; i < frame.length; i += 1) second += frame[i] * spacing * (x[i] - mean) ** 2;
    // To nine digits: what is beyond is rounding, and would fill the chart.
    this.mass[at] = Number(mass.toPrecision(9));
    this.variance[at] = second / mass;
    // A mean far below the width is rounding too.
    this.mean[at] = Math.abs(mean) < 1e-9 * Math.sqrt(this.variance[at]) ? 0 : mean;
    quantilesOf(frame, x, spacing, mass).forEach((q, k) => (this.quantiles[k][at] = q));
    this.highest = Math.max(this.highest, top);
    for (const [scale, share] of Object.entries(VISIBLE)) this.widen(this.reach[scale], frame, share * top);
  }

  widen(reach, frame, level) {
    let [low, high] = [0, frame.length - 1];
    while (low < high && frame[low] <= level) low += 1;
    while (high > low && frame[high] <= level) high -= 1;
    reach[0] = Math.min(reach[0], this.x[low] - this.spacing);
    reach[1] = Math.max(reach[1], this.x[high] + this.spacing);
  }

  finish(answer) {
    this.end = answer;
    this.outcome = answer.outcome ?? null;
  }

  between(place) {
    const last = Math.max(0, this.count - 1);
    const k = Math.min(Math.max(Math.floor(place), 0), last);
    return k >= last ? { k, next: k, share: 0 } : { k, next: k + 1, share: Math.min(1, Math.max(0, place - k)) };
  }

  at(list, place) {
    const { k, next, share } = this.between(place);
    return share === 0 ? list[k] : list[k] + share * (list[next] - list[k]);
  }

  timeAt(place) {
    return this.count ? this.at(this.times, place) : this.t0;
  }

  /** The density at a place between frames. */
  frameAt(place) {
    const { k, next, share } = this.between(place);
    const [a, b] = [this.frames[k], this.frames[next]];
    return share === 0 ? a : a.map((value, i) => value + share * (b[i] - value));
  }

  placeOf(time) {
    const next = this.times.findIndex((t) => t >= time);
    if (next < 0) return Math.max(0, this.count - 1);
    if (next === 0) return 0;
    const before = this.times[next - 1];
    return next - 1 + (time - before) / (this.times[next] - before);
  }
}

// Places below which these shares of the mass lie; the mass of a cell is spread evenly over it.
function quantilesOf(frame, x, spacing, mass) {
  const found = [];
  let below = 0;
  for (let i = 0; i < frame.length && found.length < QUANTILES.length; i += 1) {
    const here = frame[i] * spacing;
    while (found.length < QUANTILES.length && below + here >= QUANTILES[found.length] * mass && here > 0)
      found.push(x[i] - spacing / 2 + (spacing * (QUANTILES[found.length] * mass - below)) / here);
    below += here;
  }
  while (found.length < QUANTILES.length) found.push(NaN);
  return found;
}
