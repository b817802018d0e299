// The section of a form about time: continuous or layers, how long, in which frame, with which sums and steps.

import { h } from "./dom.js";
import { checkField, noteField, numberField, segmentedField, selectField } from "./controls.js";
import { FAST_ACCURACY, dimension, framesFor, unwrapped, withLayers } from "./experiment.js";
import { isMatrix } from "./linalg.js";

const SOLVERS = {
  "": "automatic (Tsit5)", dopri5: "Dopri5", dopri8: "Dopri8", bosh3: "Bosh3", kvaerno5: "Kvaerno5, implicit",
  euler: "Euler, equal steps",
};
const ABOVE_ZERO = 1e-9;

const flowing = ({ flow }) => Boolean(flow);
const layered = ({ layers }) => Boolean(layers);
const part = ({ flow }) => (flow ? "flow" : "layers");

/** The experiment with keys of one table changed; undefined takes a key away. */
function changed(experiment, table, changes) {
  const made = { ...experiment[table], ...changes };
  for (const [name, value] of Object.entries(changes)) if (value === undefined) delete made[name];
  return { ...experiment, [table]: made };
}

/** The controls of the dynamics; a density has a time span and frames only. */
export function dynamicsControls(form, { limits, density }) {
  const tokens = (test) => (experiment) => !density && test(experiment);
  const time = numberField(form, { name: "t1", label: "Until t =", path: ["flow", "t1"], low: ABOVE_ZERO,
    high: limits.t1, slider: { low: 0.05, high: 500, log: true }, visible: flowing,
    get: ({ flow }) => (Number.isFinite(flow?.t1) ? flow.t1 : undefined),
    set: (experiment, t1) => changed(experiment, "flow", { t1 }) });
  const frame = segmentedField(form, { name: "frame", label: "Frame", path: ["flow", "frame"],
    options: { plain: "x, plain", rescaled: "z, rescaled" },
    visible: tokens(({ flow }) => Boolean(flow) && !flow.space), get: ({ flow }) => flow?.frame || "plain",
    set: (experiment, word) => changed(experiment, "flow", { frame: word === "plain" ? undefined : word }) });
  return [
    segmentedField(form, { name: "dynamics", label: "Time", path: ["layers"], visible: tokens(() => true),
      options: { flow: "continuous", layers: "layers" }, get: part,
      set: (experiment, word) => withLayers(experiment, word === "layers") }),
    time,
    numberField(form, { name: "depth", label: "Depth L", path: ["layers", "depth"], low: 1, high: limits.depth,
      whole: true, slider: { low: 1, high: 500, log: true }, visible: layered, get: ({ layers }) => layers?.depth,
      set: (experiment, depth) => changed(experiment, "layers", { depth }) }),
    numberField(form, { name: "layer-step", label: "Step", path: ["layers", "step"], low: ABOVE_ZERO, high: 100,
      visible: layered, get: ({ layers }) => layers && (layers.step ?? 1 / layers.depth),
      set: (experiment, step) => changed(experiment, "layers", { step }) }),
    noteField(({ layers }) => (layers ? "Layer by layer: x ← x + step · Γ(x)." : "")),
    checkField(form, { name: "redraw", label: "Each layer draws its own random matrices", path: ["layers", "redraw"],
      visible: (experiment) => layered(experiment) && isDrawn(experiment), get: ({ layers }) => layers?.redraw,
      set: (experiment, on) => changed(experiment, "layers", { redraw: on || undefined }) }),
    frame,
    noteField(({ flow }) => (flow?.frame ? "z = exp(−tV) x, with the sum of the V of all heads." : "")),
    ...sumsAndFrames(form, { limits, tokens }),
  ];
}

function sumsAndFrames(form, { limits, tokens }) {
  const times = ({ save }) => save?.times;
  const count = (experiment) => {
    const given = times(experiment);
    return given?.count ?? (Array.isArray(given) ? given.length : given);
  };
  const saved = (experiment, value) => ({ ...experiment, save: { ...experiment.save, times: value } });
  return [
    segmentedField(form, { name: "sums", label: "Sums", path: ["flow", "accuracy"], visible: tokens(() => true),
      options: { exact: "exact", fast: "fast" },
      get: (experiment) => (experiment[part(experiment)]?.accuracy ? "fast" : "exact"),
      set: (experiment, word) =>
        changed(experiment, part(experiment), { accuracy: word === "fast" ? FAST_ACCURACY : undefined }) }),
    noteField((experiment) => {
      const accuracy = experiment[part(experiment)]?.accuracy;
      return accuracy ? `Sums over tokens to a relative accuracy of ${accuracy}.` : "";
    }),
    numberField(form, { name: "frames", label: "Frames", path: ["save", "times"], low: 3, high: limits.frames,
      whole: true, visible: flowing, get: (experiment) => count(experiment) ?? usual(experiment),
      set: (experiment, value) => {
        const before = times(experiment);
        return saved(experiment, before?.count ? { ...before, count: value } : value);
      } }),
    checkField(form, { name: "log-times", label: "Equally spaced in log t", path: ["save", "times", "log_from"],
      visible: tokens(flowing), get: (experiment) => Boolean(times(experiment)?.log_from),
      set: (experiment, on) => {
        const frames = Math.max(3, count(experiment) || 101);
        const first = Number((experiment.flow.t1 / 1000).toPrecision(2));
        return saved(experiment, on ? { count: frames, log_from: first } : frames);
      } }),
  ];
}

const usual = (experiment) => framesFor(experiment.measure?.n || 1, dimension(experiment));

/** The choice of the solver, which few need. */
export function solverControls(form) {
  return [
    selectField(form, { name: "solver", label: "Solver", path: ["flow", "solver"], options: SOLVERS,
      get: ({ flow }) => flow?.solver || "",
      set: (experiment, solver) => {
        const step = solver === "euler" ? experiment.flow.step || 0.02 : undefined;
        return changed(experiment, "flow", { solver: solver || undefined, step });
      } }),
    numberField(form, { name: "step", label: "Step", path: ["flow", "step"], low: ABOVE_ZERO, high: 100,
      visible: ({ flow }) => flow?.solver === "euler", get: ({ flow }) => flow?.step,
      set: (experiment, step) => changed(experiment, "flow", { step }) }),
    numberField(form, { name: "rtol", label: "Tolerance", path: ["flow", "rtol"], low: 1e-13, high: 0.1,
      visible: ({ flow }) => flow?.solver !== "euler", get: ({ flow }) => flow?.rtol, hint: "relative, in each step",
      set: (experiment, rtol) => changed(experiment, "flow", { rtol }) }),
  ];
}

/** A nested section that shows for flows of tokens only. */
export function solverSection(controls) {
  const node = h("details", {}, h("summary", {}, "Solver"), controls.map((control) => control.node));
  const refresh = (experiment) => {
    node.hidden = !flowing(experiment);
    if (!node.hidden) for (const control of controls) control.refresh(experiment);
  };
  return { node, refresh };
}

function isDrawn({ attention }) {
  const parts = unwrapped(attention);
  return !parts || parts.heads.some((head) => !["Q", "K", "V"].every((name) => isMatrix(head[name])));
}
