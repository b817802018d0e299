// The paths of tokens so far, on a canvas that is kept: while time goes on, only what is new is drawn.

const ALL = 500;
const SOME = 200;
const SEGMENTS = 25000;

/** Which tokens have paths: all of a few, else an even sample. */
export function pathTokens(n) {
  if (n <= ALL) return Array.from({ length: n }, (_, i) => i);
  return Array.from({ length: SOME }, (_, k) => Math.floor((k * n) / SOME));
}

/** Draws the paths of a recording; `value(i, k, axis)` is the shown coordinate of token i at frame k. */
export class Trails {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.pen = this.canvas.getContext("2d");
    this.key = null;
    this.done = 0;
  }

  /** Bring the paths up to frame k. `key` tells when all has to be drawn anew: it is compared by its parts. */
  update({ recording, k, camera, shown, colours, ratio, size, key }) {
    const same = this.key && key.length === this.key.length && key.every((part, j) => part === this.key[j]);
    this.tokens = this.recording === recording && this.tokens ? this.tokens : pathTokens(recording.n);
    this.recording = recording;
    const stride = Math.max(1, Math.ceil((this.tokens.length * recording.total) / SEGMENTS));
    const last = Math.floor(k / stride) * stride;
    if (!same || last < this.done || stride !== this.stride) {
      this.canvas.width = size[0];
      this.canvas.height = size[1];
      this.done = 0;
      this.key = key;
      this.stride = stride;
    }
    if (last > this.done) this.draw(this.pen, this.done, last, stride, camera, shown, colours, ratio);
    this.done = last;
  }

  /** The last piece, from the last kept frame to the present place; on the canvas of the caller. */
  tip(pen, place, camera, shown, colours) {
    const project = camera.projector();
    const { recording } = this;
    const from = (i, c) => axisValue(recording, i, c, this.done);
    const time = recording.timeAt(place);
    const to = (i, c) => (c === "t" ? time : c === undefined ? 0 : recording.coordinate(i, c, place));
    this.strokes(pen, colours, (i) => {
      line(pen, project(...shown3(shown, (c) => from(i, c))), project(...shown3(shown, (c) => to(i, c))));
    });
  }

  draw(pen, first, last, stride, camera, shown, colours, ratio) {
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const project = camera.projector();
    const { recording } = this;
    this.strokes(pen, colours, (i) => {
      let down = false;
      for (let k = first; k <= last; k += stride) {
        const [x, y] = project(...shown3(shown, (c) => axisValue(recording, i, c, k)));
        const good = Math.abs(x) < 1e5 && Math.abs(y) < 1e5;
        if (good && down) pen.lineTo(x, y);
        else if (good) pen.moveTo(x, y);
        down = good;
      }
    });
  }

  /** One stroke for each colour: many small strokes are slow. */
  strokes(pen, colours, path) {
    const byColour = new Map();
    for (const i of this.tokens) {
      // Close shades of a scale share a stroke.
      const key = (colours[4 * i] >> 3) * 65536 + (colours[4 * i + 1] >> 3) * 256 + (colours[4 * i + 2] >> 3);
      if (!byColour.has(key)) byColour.set(key, []);
      byColour.get(key).push(i);
    }
    pen.lineWidth = 1;
    pen.lineJoin = "round";
    pen.globalAlpha = this.tokens.length > 100 ? 0.3 : 0.5;
    for (const tokens of byColour.values()) {
      const at = 4 * tokens[0];
      pen.strokeStyle = `rgb(${colours[at]}, ${colours[at + 1]}, ${colours[at + 2]})`;
      pen.beginPath();
      for (const i of tokens) path(i);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }
}

const shown3 = (shown, value) => [value(shown[0]), value(shown[1]), value(shown[2])];

function axisValue(recording, i, c, k) {
  if (c === "t") return recording.times[k];
  return c === undefined ? 0 : recording.frames[k][i * recording.d + c];
}

function line(pen, [x0, y0], [x1, y1]) {
  if (!(Math.abs(x0) < 1e5 && Math.abs(y0) < 1e5 && Math.abs(x1) < 1e5 && Math.abs(y1) < 1e5)) return;
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
}
