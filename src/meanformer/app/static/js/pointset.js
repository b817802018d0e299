// What a picture of points is drawn from, whatever draws it.

/** The state of a drawer: the cloud, two frames, the colours. Drawers add `draw`. */
export class PointSet {
  constructor(canvas, kind) {
    Object.assign(this, { canvas, kind, n: 0, d: 1, shown: [0] });
  }

  /** n tokens of dimension d; `shown`: coordinates that are axes, "t" for the time; `sizes` relative to 1, or null. */
  setCloud({ n, d, shown, sizes = null }) {
    Object.assign(this, { n, d, shown, sizes });
  }

  /** The two frames (float32, n times d) between which `share` moves, and their times. */
  setFrames(from, to, times = [0, 0]) {
    Object.assign(this, { from, to, times });
  }

  /** One colour for each token: red, green, blue, opacity as bytes. A new array for new colours. */
  setColours(colours) {
    this.colours = colours;
  }
}
