// The camera of a picture of tokens: flat (two axes), or solid (three axes, seen in perspective).

import { clamp } from "./dom.js";

const MARGIN = 0.86;
const NEAR = 0.05;

/** Maps the shown coordinates to CSS pixels. `version` grows with each change, so that drawings can be kept. */
export class Camera {
  constructor() {
    this.solid = false;
    this.stretched = false; // whether the two axes of a flat picture have scales of their own, as for time
    this.centre = [0, 0, 0];
    this.scale = [1, 1];
    this.yaw = 0.7;
    this.pitch = 0.42;
    this.width = this.height = 1;
    this.inset = { left: 0, right: 0, top: 0, bottom: 0 };
    this.version = 0;
  }

  resize(width, height, inset = this.inset) {
    if (width === this.width && height === this.height && inset === this.inset) return;
    const ratio = Math.min(width, height) / Math.min(this.width, this.height);
    if (!this.stretched) this.scale = this.scale.map((s) => s * ratio);
    Object.assign(this, { width, height, inset });
    this.version++;
  }

  /** The middle of the picture, in pixels. */
  get middle() {
    const { left, right, top, bottom } = this.inset;
    return [(left + this.width - right) / 2, (top + this.height - bottom) / 2];
  }

  /** Fit a box {low, high} of the shown coordinates into the picture. */
  fit(box) {
    const { left, right, top, bottom } = this.inset;
    const room = [Math.max(20, this.width - left - right), Math.max(20, this.height - top - bottom)];
    const centre = box.low.map((low, c) => (low + box.high[c]) / 2);
    const spans = box.low.map((low, c) => Math.max(box.high[c] - low, 1e-9 * Math.abs(low) + 1e-12));
    let scale;
    if (this.solid) {
      const diagonal = Math.hypot(...spans);
      scale = (Math.min(...room) * 0.92) / diagonal;
      scale = [scale, scale];
    } else if (this.stretched) {
      scale = [room[0] / spans[0], (MARGIN * room[1]) / spans[1]];
    } else {
      const both = MARGIN * Math.min(room[0] / spans[0], room[1] / spans[1]);
      scale = [both, both];
    }
    while (centre.length < 3) centre.push(0);
    const same = scale.every((s, c) => s === this.scale[c]) && centre.every((x, c) => x === this.centre[c]);
    if (same) return;
    Object.assign(this, { centre, scale });
    this.version++;
  }

  /** Rows of the map from the world to pixels along right, up, towards the eye. */
  rows() {
    const [sx, sy] = this.scale;
    if (!this.solid) return [[sx, 0, 0], [0, sy, 0], [0, 0, 0]];
    const [cy, sn] = [Math.cos(this.yaw), Math.sin(this.yaw)];
    const [cp, sp] = [Math.cos(this.pitch), Math.sin(this.pitch)];
    // The third axis points up; yaw turns about it, pitch lifts the eye.
    return [
      [-sn * sx, cy * sx, 0],
      [-cy * sp * sx, -sn * sp * sx, cp * sx],
      [cy * cp * sx, sn * cp * sx, sp * sx],
    ];
  }

  /** How far the eye is from the centre, in pixels; a flat picture is seen from very far. */
  get distance() {
    return this.solid ? 3 * Math.min(this.width, this.height) : 1e9;
  }

  /** A function (x, y, z) -> [pixel x, pixel y, nearness]; nearness 1 at the centre, NaN behind the eye. */
  projector() {
    const [right, up, out] = this.rows();
    const [mx, my] = this.middle;
    const [a, b, c] = this.centre;
    const { distance } = this;
    return (x, y, z = 0) => {
      const [p, q, r] = [x - a, y - b, z - c];
      const depth = 1 - (out[0] * p + out[1] * q + out[2] * r) / distance;
      const near = depth > NEAR ? 1 / depth : NaN;
      return [
        mx + (right[0] * p + right[1] * q + right[2] * r) * near,
        my - (up[0] * p + up[1] * q + up[2] * r) * near,
        near,
      ];
    };
  }

  /** The world's step for a step of pixels, in the plane parallel to the screen, at a nearness. */
  step(dx, dy, near = 1) {
    const [sx, sy] = this.scale;
    if (!this.solid) return [dx / sx, -dy / sy, 0];
    const [right, up] = this.rows();
    const square = sx * sx * near;
    return [0, 1, 2].map((c) => (right[c] * dx - up[c] * dy) / square);
  }

  pan(dx, dy) {
    const by = this.step(dx, dy);
    if (this.stretched) by[0] = 0;
    this.centre = this.centre.map((x, c) => x - by[c]);
    this.version++;
  }

  orbit(dx, dy) {
    this.yaw -= dx * 0.008;
    this.pitch = clamp(this.pitch + dy * 0.008, -1.55, 1.55);
    this.version++;
  }

  /** Zoom by a factor; what is at the pixel (x, y) stays there. */
  zoom(factor, x = this.middle[0], y = this.middle[1]) {
    const next = clamp(this.scale[1] * factor, 1e-30, 1e12);
    const by = next / this.scale[1];
    const away = this.step(x - this.middle[0], y - this.middle[1]);
    const share = 1 - 1 / by;
    if (!this.solid) this.centre = this.centre.map((c, k) => (this.stretched && k === 0 ? c : c + away[k] * share));
    this.scale = this.stretched ? [this.scale[0], next] : [next, next];
    this.version++;
  }
}
