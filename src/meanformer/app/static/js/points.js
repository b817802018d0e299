// Tokens as points: WebGL, with the motion between two frames computed on the graphics card; else a plain canvas.

import { createFlatPoints } from "./flatpoints.js";
import { PointSet } from "./pointset.js";

const VERTEX = `
attribute float x0; attribute float y0; attribute float z0;
attribute float x1; attribute float y1; attribute float z1;
attribute float size; attribute vec4 colour;
uniform float share; uniform vec3 centre; uniform mat3 rows; uniform vec2 half_size; uniform vec2 shift;
uniform float distance_; uniform float diameter; uniform float depth_range; uniform float fog; uniform vec3 paper;
varying vec4 tint; varying float pixels;
void main() {
  vec3 p = mix(vec3(x0, y0, z0), vec3(x1, y1, z1), share) - centre;
  vec3 v = rows * p;
  float w = 1.0 - v.z / distance_;
  // What is not a number, or behind the eye, goes out of the picture.
  bool seen = w > 0.05 && abs(v.x) < 1e9 && abs(v.y) < 1e9;
  float depth = clamp(-v.z / depth_range, -0.99, 0.99);
  gl_Position = seen ? vec4(v.xy / half_size + shift * w, depth * w, w) : vec4(2.0, 2.0, 2.0, 1.0);
  pixels = clamp(diameter * size / (seen ? w : 1.0), 1.0, 60.0);
  gl_PointSize = pixels + 1.0;
  float haze = fog * clamp(0.5 + 0.5 * depth, 0.0, 1.0);
  tint = vec4(mix(colour.rgb, paper, haze), colour.a);
}`;

const FRAGMENT = `
precision mediump float;
varying vec4 tint; varying float pixels;
uniform float alpha; uniform vec3 rim; uniform float rim_width; uniform float cut;
void main() {
  float r = length(gl_PointCoord - 0.5) * (pixels + 1.0);
  float cover = clamp(pixels * 0.5 - r + 0.5, 0.0, 1.0);
  if (cover <= cut) discard;
  float inner = clamp(pixels * 0.5 - rim_width - r + 0.5, 0.0, 1.0);
  vec3 shown = mix(rim, tint.rgb, rim_width > 0.0 ? inner : 1.0);
  float a = cover * alpha * tint.a;
  gl_FragColor = vec4(shown * a, a);
}`;

const AXES = ["x", "y", "z"];

/** A drawer of points on a canvas: setCloud, setFrames, setColours, draw; `kind` is "webgl" or "canvas". */
export function createPoints(canvas, { onRestored = () => {}, plain = false } = {}) {
  const options = { alpha: true, antialias: false, premultipliedAlpha: true, powerPreference: "high-performance" };
  const gl = plain ? null : canvas.getContext("webgl2", options) || canvas.getContext("webgl", options);
  return gl ? new GlPoints(canvas, gl, onRestored) : createFlatPoints(canvas);
}

class GlPoints extends PointSet {
  constructor(canvas, gl, onRestored) {
    super(canvas, "webgl");
    Object.assign(this, { gl, held: [null, null] });
    canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault();
      this.ready = false;
    });
    canvas.addEventListener("webglcontextrestored", () => {
      this.build();
      onRestored();
    });
    this.build();
  }

  build() {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost())
      throw new Error(`The drawing program of the points does not link: ${gl.getProgramInfoLog(program)}`);
    this.program = program;
    this.place = {};
    for (const name of ["x0", "y0", "z0", "x1", "y1", "z1", "size", "colour"])
      this.place[name] = gl.getAttribLocation(program, name);
    this.uniform = {};
    for (const name of ["share", "centre", "rows", "half_size", "shift", "distance_", "diameter", "depth_range", "fog",
      "paper", "alpha", "rim", "rim_width", "cut"]) this.uniform[name] = gl.getUniformLocation(program, name);
    this.buffers = [gl.createBuffer(), gl.createBuffer()];
    this.colourBuffer = gl.createBuffer();
    this.sizeBuffer = gl.createBuffer();
    this.held = [null, null];
    this.coloursHeld = this.sizesHeld = null;
    this.ready = true;
  }

  upload() {
    const { gl } = this;
    const fill = (buffer, data) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, data, gl.DYNAMIC_DRAW);
    };
    // The next pair often begins with the frame that ended the last one: then one frame is uploaded, not two.
    if (this.held[0] !== this.from && this.held[1] === this.from) {
      this.buffers.reverse();
      this.held.reverse();
    }
    for (const [k, frame] of [this.from, this.to].entries()) {
      if (this.held[k] === frame) continue;
      fill(this.buffers[k], frame);
      this.held[k] = frame;
    }
    if (this.coloursHeld !== this.colours) fill(this.colourBuffer, (this.coloursHeld = this.colours));
    if (this.sizes && this.sizesHeld !== this.sizes) fill(this.sizeBuffer, (this.sizesHeld = this.sizes));
  }

  /** Tell where the numbers of each token are; of every token, or of one of `every`. */
  bind(every) {
    const { gl, place } = this;
    for (const side of [0, 1]) {
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[side]);
      AXES.forEach((axis, k) => {
        const at = place[axis + side];
        const coordinate = this.shown[k];
        if (typeof coordinate === "number") {
          gl.enableVertexAttribArray(at);
          gl.vertexAttribPointer(at, 1, gl.FLOAT, false, 4 * this.d * every, 4 * coordinate);
        } else {
          gl.disableVertexAttribArray(at);
          gl.vertexAttrib1f(at, coordinate === "t" ? this.times[side] : 0);
        }
      });
    }
    gl.bindBuffer(gl.ARRAY_BUFFER, this.colourBuffer);
    gl.enableVertexAttribArray(place.colour);
    gl.vertexAttribPointer(place.colour, 4, gl.UNSIGNED_BYTE, true, 4 * every, 0);
    if (this.sizes) {
      gl.bindBuffer(gl.ARRAY_BUFFER, this.sizeBuffer);
      gl.enableVertexAttribArray(place.size);
      gl.vertexAttribPointer(place.size, 1, gl.FLOAT, false, 4 * every, 0);
    } else {
      gl.disableVertexAttribArray(place.size);
      gl.vertexAttrib1f(place.size, 1);
    }
  }

  /** Draw. Returns how many tokens are drawn. Colours are [red, green, blue] from 0 to 255; lengths in CSS pixels. */
  draw({ camera, share, diameter, alpha, paper, rim = 0, ratio, every = 1 }) {
    const { gl, uniform, canvas } = this;
    if (!this.ready || gl.isContextLost()) return 0;
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    if (!this.n || !this.from || !this.colours) return 0;
    this.upload();
    gl.useProgram(this.program);
    this.bind(every);
    const [right, up, out] = camera.rows();
    const unit = (rgb) => rgb.map((part) => part / 255);
    gl.uniform1f(uniform.share, share);
    gl.uniform3fv(uniform.centre, camera.centre);
    // Columns first, as the shader's matrices are stored.
    gl.uniformMatrix3fv(uniform.rows, false, [0, 1, 2].flatMap((c) => [right[c], up[c], out[c]]));
    gl.uniform2f(uniform.half_size, camera.width / 2, camera.height / 2);
    const [mx, my] = camera.middle;
    gl.uniform2f(uniform.shift, (2 * mx) / camera.width - 1, 1 - (2 * my) / camera.height);
    gl.uniform1f(uniform.distance_, camera.distance);
    gl.uniform1f(uniform.depth_range, 2 * Math.min(camera.width, camera.height));
    gl.uniform1f(uniform.diameter, diameter * ratio);
    gl.uniform1f(uniform.fog, camera.solid ? 0.7 : 0);
    gl.uniform3fv(uniform.paper, unit(paper));
    gl.uniform3fv(uniform.rim, unit(paper));
    gl.uniform1f(uniform.rim_width, rim * ratio);
    gl.uniform1f(uniform.alpha, alpha);
    gl.uniform1f(uniform.cut, camera.solid ? 0.5 : 0);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    if (camera.solid) gl.enable(gl.DEPTH_TEST);
    else gl.disable(gl.DEPTH_TEST);
    const count = Math.ceil(this.n / every);
    gl.drawArrays(gl.POINTS, 0, count);
    return count;
  }
}
