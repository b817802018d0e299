// Tokens as points on a plain canvas, where there is no WebGL: all up to 5,000, else an even subset.

import { PointSet } from "./pointset.js";

const MOST = 5000;

/** The same interface as the drawer of points.js. */
export function createFlatPoints(canvas) {
  return new FlatPoints(canvas);
}

class FlatPoints extends PointSet {
  constructor(canvas) {
    super(canvas, "canvas");
    this.pen = canvas.getContext("2d");
  }

  draw({ camera, share, diameter, alpha, ratio }) {
    const { pen, canvas, d, from, to, colours } = this;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    if (!this.n || !from || !colours) return 0;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const project = camera.projector();
    const time = this.times[0] + share * (this.times[1] - this.times[0]);
    const value = (i, c) => {
      if (c === "t") return time;
      return c === undefined ? 0 : from[i * d + c] + share * (to[i * d + c] - from[i * d + c]);
    };
    const stride = Math.ceil(this.n / MOST);
    let drawn = 0;
    for (let i = 0; i < this.n; i += stride) {
      const [x, y, near] = project(value(i, this.shown[0]), value(i, this.shown[1]), value(i, this.shown[2]));
      if (!Number.isFinite(x + y + near)) continue;
      const at = 4 * i;
      pen.globalAlpha = (alpha * colours[at + 3]) / 255;
      pen.fillStyle = `rgb(${colours[at]}, ${colours[at + 1]}, ${colours[at + 2]})`;
      pen.beginPath();
      pen.arc(x, y, Math.max(0.8, (diameter * (this.sizes ? this.sizes[i] : 1) * near) / 2), 0, 2 * Math.PI);
      pen.fill();
      drawn++;
    }
    return drawn;
  }
}
