// The Gaussian view: covariances of the plane under attention, their paths in the disc and the cone, their fates.

import { clamp, formatNumber, h, plural } from "./dom.js";
import { conePicture } from "./cone.js";
import { discPicture } from "./disc.js";
import { ellipsePicture } from "./ellipses.js";
import { atShare, atTime, covarianceOf, gridOfStarts, randomStarts, shapeOf, summaryOf } from "./fates.js";
import { fateLegend, fateTable, fateWords } from "./fatetable.js";
import { experimentForm } from "./form.js";
import { momentBar } from "./moment.js";
import { composed } from "./paper.js";
import { pathKeeper } from "./paths.js";
import { spectrumPicture } from "./spectrum.js";
import { getState, subscribe, update } from "./state.js";
import { onThemeChange } from "./theme.js";

const KINDS = ["softmax", "l2", "sinkhorn", "linear"]; // those that keep Gaussians
const GIF_FRAMES = 61;
const PANELS = [
  [["Disc of shapes", "disc"], ["Cone of covariances", "cone"]],
  [["Ellipses", "ellipses"], ["Spectrum", "spectrum"]],
];
const DISC_HINT =
  "Σ = (a c; c b) lies at ((a − b)/tr Σ, 2c/tr Σ). Its centre is round, its circle is rank one: strokes show the " +
  "line. Click to add a start, drag to move it.";
const CONE_HINT =
  "Σ lies at (a − b, 2c, a + b): the surface is rank one, the tip is zero. Drag to turn. A triangle at the height of " +
  "the rim marks where a path leaves the picture.";
const ELLIPSE_HINT = "One standard deviation, at the moment of the slider; dotted: the start. Click to select.";
const SPECTRUM_HINT =
  "Eigenvalues of the selected start, or of the first; both axes logarithmic, but exponential growth over t itself. " +
  "The upright line is the present.";

export function mount(root, context) {
  const { socket, status } = context;
  const limit = () => socket.hello?.limits?.starts ?? 40;
  const scene = { starts: [], shapes: [], paths: [], selected: -1, hover: -1, now };
  const settings = { trace: 1, log: false, trueSize: false };
  let shown = false;
  let refused = "";

  // --- the moment
  const barRoot = h("div", { class: "moment" });
  const bar = momentBar(barRoot, span, () => drawPicturesSoon());

  function now(i) {
    const path = scene.paths[i];
    return bar.isCommon() ? atTime(path, bar.time()) : atShare(path, bar.share());
  }

  // From the first time at which a path has moved by a hundredth of its way, to the last time of all.
  function span() {
    let [first, last] = [Infinity, 0];
    for (const path of scene.paths.filter(Boolean)) {
      const k = path.travelled.findIndex((share) => share > 0.01);
      first = Math.min(first, path.times[Math.max(1, k)] ?? Infinity);
      last = Math.max(last, path.times.at(-1));
    }
    return first < last ? [first, last] : [1e-2, 1];
  }

  // --- what the reader does
  const starts = () => getState().gaussian.starts;
  const setStarts = (next) => update(["gaussian", "starts"], next);
  const on = {
    select(i) {
      scene.selected = i;
      if (i >= 0) setTrace(scene.shapes[i].trace);
      drawSoon();
    },
    hover(i) {
      if (scene.hover === i) return;
      scene.hover = i;
      drawSoon();
    },
    add(x, y) {
      if (starts().length >= limit()) return say(`At most ${limit()} starts: remove one first.`);
      scene.selected = starts().length;
      return setStarts([...starts(), covarianceOf(x, y, settings.trace)]);
    },
    move(i, x, y) {
      setStarts(starts().map((cov, j) => (j === i ? covarianceOf(x, y, shapeOf(cov).trace) : cov)));
    },
    remove(i) {
      scene.selected = scene.selected === i ? -1 : scene.selected - (scene.selected > i ? 1 : 0);
      scene.hover = -1;
      setStarts(starts().filter((_, j) => j !== i));
    },
  };

  // --- parts of the page
  const disc = discPicture(scene, on);
  const cone = conePicture(scene, on, () => settings.log);
  const ellipses = ellipsePicture(scene, on, () => settings.trueSize);
  const spectrum = spectrumPicture(scene, now);
  const table = fateTable(scene, on);
  const legend = fateLegend(scene);
  const summary = h("p", { class: "words", "data-testid": "fate", "aria-live": "polite" });
  const problem = h("p", { class: "error", role: "alert", hidden: true });
  const traceWords = h("output", {}, "1");
  const trace = h("input", {
    type: "range",
    min: -2,
    max: 2,
    step: 0.02,
    value: 0,
    "aria-label": "Trace of the selected start and of new ones",
    "data-testid": "trace",
    oninput: () => changeTrace(10 ** Number(trace.value)),
  });
  const tick = (words, name) => {
    const box = h("input", { type: "checkbox", "data-testid": name, onchange: () => set(name, box.checked) });
    return h("label", { class: "check" }, box, words);
  };
  const formRoot = h("div", { class: "form" });

  function set(name, value) {
    settings[name] = value;
    drawSoon();
  }

  function setTrace(value) {
    settings.trace = Number(value.toPrecision(3));
    trace.value = Math.log10(value);
    traceWords.textContent = formatNumber(settings.trace, 3);
    trace.setAttribute("aria-valuetext", traceWords.textContent);
  }

  function changeTrace(value) {
    setTrace(value);
    const i = scene.selected;
    if (i < 0) return;
    const { x, y } = scene.shapes[i];
    setStarts(starts().map((cov, j) => (j === i ? covarianceOf(x, y, settings.trace) : cov)));
  }

  function replaceStarts(next) {
    scene.selected = -1;
    scene.hover = -1;
    setStarts(next);
  }

  const button = (words, onclick, testid, title) =>
    h("button", { type: "button", class: "small", onclick, title, "data-testid": testid }, words);
  const removeButton = button("Remove", () => on.remove(scene.selected), "starts-remove", "Remove the selected start");
  const startButtons = h(
    "div",
    { class: "buttons" },
    button("Grid", () => replaceStarts(gridOfStarts(7, settings.trace)), "starts-grid", "25 starts on a grid"),
    button("Random", () => replaceStarts(randomStarts(12, settings.trace)), "starts-random", "12 starts at random"),
    removeButton,
    button("Clear", () => replaceStarts([]), "starts-clear", "Remove all starts"),
  );
  const traceField = h("label", { class: "trace-field", title: "Of the selected start, and of new ones" },
    h("span", {}, "tr Σ of the start"), trace, traceWords);
  const panel = (title, tools, ...parts) =>
    h("figure", { class: "panel" }, h("div", { class: "panel-head" }, h("h3", {}, title), tools), parts);
  const hint = (words) => h("figcaption", { class: "hint" }, words);
  const pictures = h(
    "div",
    { class: "pictures gaussian-pictures" },
    problem,
    summary,
    legend.node,
    h(
      "div",
      { class: "gaussian-grid" },
      panel("Disc of shapes", startButtons, disc.canvas, traceField, hint(DISC_HINT)),
      panel("Cone of covariances", tick("log height", "log"), cone.canvas, hint(CONE_HINT)),
    ),
    barRoot,
    h(
      "div",
      { class: "gaussian-grid" },
      panel("Ellipses", tick("true size", "trueSize"), ellipses.canvas, hint(ELLIPSE_HINT)),
      panel("Spectrum", null, spectrum.canvas, hint(SPECTRUM_HINT)),
    ),
    h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Table of fates" }, table.node),
  );
  root.append(formRoot, pictures);
  const form = experimentForm(formRoot, {
    get: () => getState().gaussian.experiment,
    set: (experiment) => update(["gaussian", "experiment"], experiment),
    d: [2],
    measures: "gaussian",
    dynamics: false,
    heads: true,
    kinds: KINDS,
    view: "gaussian",
    limits: socket.hello?.limits,
  });

  // --- drawing
  let frame = null;
  let wordsChanged = true; // time alone changes the pictures, not the words and the table
  function drawSoon() {
    wordsChanged = true;
    drawPicturesSoon();
  }

  function drawPicturesSoon() {
    if (frame === null && shown) frame = requestAnimationFrame(draw);
  }

  function draw() {
    frame = null;
    for (const part of [disc, cone, ellipses, spectrum]) part.draw();
    if (!wordsChanged) return;
    wordsChanged = false;
    table.draw();
    legend.draw();
    removeButton.disabled = scene.selected < 0;
    const told = words();
    // The same words again would be read out again.
    if (summary.textContent !== told) summary.textContent = told;
  }

  function words() {
    const found = keeper.fresh();
    const one = scene.paths[scene.selected]?.stale ? null : scene.paths[scene.selected];
    if (!scene.starts.length) return "No start: click into the disc to add one.";
    if (!found.length) return refused || "Computing.";
    const waiting = found.length < scene.starts.length ? `${found.length} of ` : "";
    const all = `${waiting}${plural(scene.starts.length, "start")}: ${summaryOf(found)}.`;
    return one ? `Start ${scene.selected + 1} ${fateWords(one)}. ${all}` : all;
  }

  // --- asking the server
  const keeper = pathKeeper(socket, scene, {
    busy(told) {
      settle();
      status(told, "busy");
    },
    changed() {
      scene.selected = clamp(scene.selected, -1, scene.starts.length - 1);
      if (keeper.fresh().length) bar.begin();
      drawSoon();
    },
    done() {
      settle();
      status(scene.starts.length ? `Done: ${summaryOf(keeper.fresh())}.` : "No starts.");
    },
    cancelled: () => status("Cancelled."),
    refused(answer) {
      const found = answer.say === "refused" && form.showRefusal(answer);
      refused = found ? "This cannot be run: see the form." : "This could not be run.";
      say(found ? "" : answer.words);
      status(answer.words, "bad");
      drawSoon();
    },
  });

  function refresh() {
    const { experiment, starts: covs } = getState().gaussian;
    keeper.want(experiment.attention, covs);
  }

  function settle() {
    refused = "";
    say("");
    form.clearRefusals();
  }

  function say(trouble) {
    problem.textContent = trouble;
    problem.hidden = !trouble;
    if (trouble) status(trouble, "bad");
  }

  subscribe((state, before) => {
    if (state.gaussian === before.gaussian) return;
    if (state.gaussian.experiment !== before.gaussian.experiment) form.refresh();
    if (shown) refresh();
  });
  onThemeChange(drawSoon);
  const resized = new ResizeObserver(drawSoon);
  for (const { canvas } of [disc, cone, ellipses, spectrum]) resized.observe(canvas);

  return {
    show() {
      shown = true;
      refresh();
    },
    hide() {
      shown = false;
      if (bar.player.playing) bar.player.pause();
      keeper.stop();
    },
    exports: {
      name: "gaussian",
      note: () =>
        getState().gaussian.starts.length > 1 ? `It has one start, number ${Math.max(0, scene.selected) + 1}.` : "",
      // One experiment has one start: the selected one, or the first.
      experiment() {
        const { experiment, starts: covs } = getState().gaussian;
        const cov = covs[Math.max(0, scene.selected)] ?? [[1, 0], [0, 1]];
        return { ...experiment, measure: { kind: "gaussian", cov }, flow: { t1: "inf" } };
      },
      picture: () => composed([[{ canvas: legend.picture() }], ...PANELS.map((row) => row.map(titled))], title()),
      frameCount: () => (keeper.fresh().length ? GIF_FRAMES : 0),
      currentFrame: () => Math.round(bar.share() * (GIF_FRAMES - 1)),
      seek(k) {
        bar.seek(k / (GIF_FRAMES - 1));
        draw();
      },
      table: () => (keeper.fresh().length ? { columns: COLUMNS, rows: () => rows(scene.paths) } : null),
    },
  };

  function titled([words, name]) {
    return { title: words, canvas: { disc, cone, ellipses, spectrum }[name].canvas };
  }

  function title() {
    const { kind } = getState().gaussian.experiment.attention;
    return `Gaussian covariances, ${kind}, ${bar.words()}: ${summaryOf(keeper.fresh())}`;
  }
}

const COLUMNS = ["start", "time", "a", "c", "b", "lambda_1", "lambda_2", "fate"];

function* rows(paths) {
  for (const [i, path] of paths.entries()) {
    if (!path || path.stale) continue;
    for (const [k, time] of path.times.entries()) {
      const half = Math.exp(path.logTrace[k]) / 2;
      const [a, c, b] = [half * (1 + path.x[k]), half * path.y[k], half * (1 - path.x[k])];
      yield [i + 1, time, a, c, b, path.high[k], path.low[k], path.fate.kind];
    }
  }
}
