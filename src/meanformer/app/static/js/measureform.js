// The sections of a form about the start: laws of tokens, or of a density on a line.

import { freshId, h, plural } from "./dom.js";
import {
  checkField, field, isBegun, noteField, numberField, parseNumber, segmentedField, selectField, typed,
} from "./controls.js";
import { dimension, petals, withCount, withDimension, withLaw, withSphere } from "./experiment.js";
import { isMatrix } from "./linalg.js";
import { matrixGrid } from "./matrix.js";

const LAWS = {
  cube: "uniform in a cube", ball: "uniform in a ball", sphere: "uniform on a sphere", normal: "normal",
  mixture: "petals (mixture)", points: "points, one by one",
};
const WEIGHTS = { equal: "equal", random: "random", zipf: "like 1/rank (Zipf)" };
const ABOVE_ZERO = 1e-9;
const MOST_LISTED = 400;

const is = (...kinds) => ({ measure }) => kinds.includes(measure.kind);
const with_ = (experiment, changes) => {
  const measure = { ...experiment.measure, ...changes };
  for (const [name, value] of Object.entries(changes)) if (value === undefined) delete measure[name];
  return { ...experiment, measure };
};
const number = (x) => (Number.isFinite(x) ? x : undefined);

/** The controls of the tokens: law, number, dimension, weights, seed. */
export function tokenControls(form, { dimensions, limits }) {
  const usual = { low: -1, high: 1, radius: 1 };
  const own = (name, rest) => numberField(form, { name, path: ["measure", name],
    get: ({ measure }) => number(measure[name] ?? usual[name]),
    set: (experiment, value) => with_(experiment, { [name]: value }), ...rest });
  const law = selectField(form, { name: "law", label: "Law", path: ["measure", "kind"], options: LAWS,
    get: ({ measure }) => measure.kind, set: withLaw });
  const count = numberField(form, { name: "n", label: "Tokens n", path: ["measure", "n"], low: 1, high: limits.n,
    whole: true, slider: { low: 2, high: limits.n, log: true }, visible: ({ measure }) => measure.kind !== "points",
    get: ({ measure }) => measure.n, set: withCount });
  const chosen = dimensions.length > 5 ? selectField : segmentedField;
  const size = chosen(form, { name: "d", label: "Dimension d", path: ["measure", "d"], get: dimension,
    options: Object.fromEntries(dimensions.map((d) => [d, String(d)])), visible: () => dimensions.length > 1,
    set: (experiment, d) => withDimension(experiment, Number(d)) });
  return [
    law, count, size,
    own("low", { label: "From", visible: is("cube") }),
    own("high", { label: "To", visible: is("cube") }),
    own("radius", { label: "Radius", visible: is("ball", "sphere"), low: ABOVE_ZERO }),
    covariance(form),
    ...petalControls(form),
    pointList(form),
    noteField(({ measure }) => (measure.weights ? "The weights are those of the file." : "")),
    selectField(form, { name: "weighting", label: "Weights", path: ["measure", "weighting"], options: WEIGHTS,
      get: ({ measure }) => measure.weighting || "equal", visible: ({ measure }) => !measure.weights,
      set: (experiment, word) => with_(experiment, { weighting: word === "equal" ? undefined : word }) }),
    seedField(form),
    checkField(form, { name: "centre", label: "Centre at 0", path: ["measure", "centre"],
      get: ({ measure }) => measure.centre, set: (experiment, on) => with_(experiment, { centre: on || undefined }) }),
    checkField(form, { name: "sphere", label: "On the unit sphere", path: ["measure", "project"],
      visible: (experiment) => dimension(experiment) > 1, set: withSphere,
      get: ({ flow, layers }) => Boolean((flow || layers || {}).space) }),
  ];
}

function covariance(form) {
  const id = freshId("error");
  const get = () => form.get().measure.cov;
  const grid = matrixGrid({ name: "covariance", get, errorId: id, tell: (words) => made.fail(words),
    set: (M) => form.set(with_(form.get(), { cov: mirrored(get(), M) })) });
  const made = field({ label: "Covariance", path: ["measure", "cov"], visible: is("normal") }, grid.node, [grid.node]);
  made.node.querySelector(".error").id = id;
  const refresh = (experiment) => {
    made.show(experiment);
    if (!isMatrix(experiment.measure.cov)) made.node.hidden = true;
    if (!made.node.hidden) grid.refresh();
  };
  return { ...made, refresh };
}

/** A covariance is symmetric: what was changed in it is copied across the diagonal. */
const mirrored = (before, M) => M.map((row, i) => row.map((x, j) => (before[j][i] !== M[j][i] ? M[j][i] : x)));

function petalControls(form) {
  const rebuilt = (experiment, count, radius) => with_(experiment, petals(count, dimension(experiment), radius));
  const radius = ({ measure }) => Number(Math.max(...measure.means.map((mean) => Math.hypot(...mean))).toPrecision(4));
  const visible = is("mixture");
  return [
    numberField(form, { name: "petals", label: "Petals", path: ["measure", "means"], low: 1, high: 12, whole: true,
      visible, slider: { low: 1, high: 12 }, get: ({ measure }) => measure.means?.length,
      set: (experiment, count) => rebuilt(experiment, count, radius(experiment) || 1) }),
    numberField(form, { name: "petal-radius", label: "Distance to 0", path: ["measure", "covs"], low: 0.01, high: 1000,
      visible, get: (experiment) => experiment.measure.means && radius(experiment),
      set: (experiment, value) => rebuilt(experiment, experiment.measure.means.length, value) }),
  ];
}

function seedField(form) {
  const seed = numberField(form, { name: "seed", label: "Seed", path: ["seed"], low: 0, high: 2 ** 32 - 1, whole: true,
    get: (experiment) => experiment.seed ?? 0, set: (experiment, value) => ({ ...experiment, seed: value }) });
  const again = h("button", { type: "button", dataset: { testid: "draw-again" },
    onclick: () => form.set({ ...form.get(), seed: Math.floor(Math.random() * 10000) }) }, "draw again");
  const row = h("div", { class: "seed" });
  seed.input.replaceWith(row);
  row.append(seed.input, again);
  return seed;
}

/** Tokens by their coordinates, a line for each; too many to list are only counted. */
function pointList(form) {
  const text = h("textarea", { rows: 6, spellcheck: "false", dataset: { testid: "points" }, onchange: () => read() });
  const made = field({ label: "A line for each token", path: ["measure", "points"], visible: is("points"), wide: true },
    text, [text]);
  const note = h("p", { class: "hint" });
  made.node.append(note);
  const read = () => {
    const d = dimension(form.get());
    const rows = text.value.split("\n").map((line) => line.trim()).filter(Boolean)
      .map((line) => line.split(/[\s,;]+/).filter(Boolean).map(parseNumber));
    const bad = rows.findIndex((row) => row.length !== d || row.includes(null));
    if (bad >= 0 || !rows.length) {
      made.fail(`Token ${bad + 1 || 1}: expected ${plural(d, "number")}, with commas or spaces between them.`);
      return;
    }
    made.fail("");
    const { weights, ...measure } = form.get().measure;
    const same = weights && weights.length === rows.length ? { weights } : {};
    form.set({ ...form.get(), measure: { ...measure, points: rows, ...same } });
  };
  const refresh = (experiment) => {
    made.show(experiment);
    const { points } = experiment.measure;
    if (made.node.hidden || !Array.isArray(points)) return;
    note.textContent = plural(points.length, "token");
    text.hidden = points.length > MOST_LISTED;
    if (document.activeElement !== text && !text.hidden) {
      text.value = points.map((point) => point.map((x) => typed(x)).join(", ")).join("\n");
      made.fail("");
    }
  };
  return { ...made, refresh };
}

const DENSITIES = { gaussian: "normal", mixture: "normal mixture", cube: "uniform" };
const STARTS = {
  gaussian: { kind: "gaussian", d: 1, mean: [0], cov: [[0.5]] },
  mixture: { kind: "mixture", d: 1, means: [[-1], [1.5]], covs: [[0.1]], weights: [0.4, 0.6] },
  cube: { kind: "cube", d: 1, low: -1, high: 1 },
};

/** The controls of a density on a line: its law and the number of cells. */
export function densityControls(form, { limits }) {
  const law = ({ measure }) => measure.of;
  const change = (experiment, changes) => with_(experiment, { of: { ...law(experiment), ...changes } });
  const of = (...kinds) => (experiment) => kinds.includes(law(experiment).kind);
  const scalar = (M) => number(Array.isArray(M) ? M.flat(2)[0] : M);
  const plain = (name, label, rest) => numberField(form, { name, label, path: ["measure", "of", name],
    get: (experiment) => scalar(law(experiment)[name]), set: (experiment, x) => change(experiment, { [name]: x }),
    ...rest });
  return [
    selectField(form, { name: "law", label: "Law", path: ["measure", "of"], options: DENSITIES,
      get: (experiment) => law(experiment).kind, set: (experiment, kind) => with_(experiment, { of: STARTS[kind] }) }),
    plain("mean", "Mean", { visible: of("gaussian"), set: (experiment, x) => change(experiment, { mean: [x] }) }),
    plain("cov", "Variance", { visible: of("gaussian"), low: ABOVE_ZERO,
      set: (experiment, x) => change(experiment, { cov: [[x]] }) }),
    listField(form, { name: "means", label: "Means", path: ["measure", "of", "means"], visible: of("mixture"),
      get: (experiment) => law(experiment).means?.flat(),
      set: (experiment, list) => {
        const { weights, ...rest } = law(experiment);
        const same = weights?.length === list.length ? { weights } : {};
        const covs = [[scalar(rest.covs) ?? 0.1]];
        return with_(experiment, { of: { ...rest, means: list.map((x) => [x]), covs, ...same } });
      } }),
    plain("covs", "Variance", { visible: of("mixture"), low: ABOVE_ZERO,
      set: (experiment, x) => change(experiment, { covs: [[x]] }) }),
    listField(form, { name: "weights", label: "Weights", path: ["measure", "of", "weights"], visible: of("mixture"),
      get: (experiment) => law(experiment).weights || law(experiment).means?.map(() => 1),
      set: (experiment, weights) => change(experiment, { weights: shares(weights) }),
      size: (experiment) => law(experiment).means.length, positive: true }),
    plain("low", "From", { visible: of("cube") }),
    plain("high", "To", { visible: of("cube") }),
    numberField(form, { name: "cells", label: "Cells", path: ["measure", "cells"], low: 10, high: limits.cells,
      whole: true, slider: { low: 50, high: 2000, log: true }, get: ({ measure }) => measure.cells ?? 300,
      set: (experiment, cells) => with_(experiment, { cells }) }),
  ];
}

function shares(weights) {
  const total = weights.reduce((sum, x) => sum + x, 0);
  return Math.abs(total - 1) < 1e-9 ? weights : weights.map((x) => Number((x / total).toPrecision(12)));
}

/** A list of numbers with commas between them. */
function listField(form, { get, set, size, positive = false, name, ...rest }) {
  const input = h("input", { type: "text", autocomplete: "off", dataset: { testid: name }, oninput: () => read(false),
    onchange: () => read(true) });
  const made = field(rest, input, [input]);
  const read = (left) => {
    const parts = input.value.split(/[\s,;]+/).filter(Boolean);
    const numbers = parts.map(parseNumber);
    const wanted = size?.(form.get());
    const right = numbers.length > 0 && !numbers.includes(null) && (!wanted || numbers.length === wanted) &&
      (!positive || numbers.every((x) => x > 0));
    if (right && (left || !input.value.trim().endsWith(","))) {
      made.fail("");
      form.set(set(form.get(), numbers));
    } else if (left || !parts.every(isBegun)) {
      const noun = positive ? "positive number" : "number";
      made.fail(`${rest.label}: expected ${wanted ? plural(wanted, noun) : `${noun}s`}, with commas between them.`);
    }
  };
  const refresh = (experiment) => {
    made.show(experiment);
    if (made.node.hidden || document.activeElement === input) return;
    input.value = (get(experiment) || []).map(typed).join(", ");
    made.fail("");
  };
  return { ...made, refresh };
}
