// The form of an experiment: preset, attention, matrices, start, dynamics. It edits what an experiment file says.

import { clear, h } from "./dom.js";
import { checkField, noteField, numberField, segmentedField, selectField } from "./controls.js";
import { dynamicsControls, solverControls, solverSection } from "./dynamicsform.js";
import {
  KINDS, dimension, plainPath, unwrapped, withHeadCount, withHeadsChanged, withKind, withMask, withRows,
} from "./experiment.js";
import { identity } from "./linalg.js";
import { matricesSection } from "./matrices.js";
import { densityControls, tokenControls } from "./measureform.js";

const LIMITS = { n: 100000, t1: 1e4, depth: 2000, frames: 1001, cells: 4000 };

/**
 * The controls of an experiment, put into `root`. `get()` gives the experiment, `set(experiment)` takes a new one.
 * Options: `d` (dimensions to choose from), `measures` ("tokens", "gaussian", "density"), `dynamics`, `heads`, `kinds`,
 * `limits` (those of the server's hello), `view` (whose presets are offered; by default that of the measures).
 * Returns {refresh(), showRefusal(refusal), clearRefusals(), setDisabled(bool)}.
 */
export function experimentForm(root, options) {
  const { get, set, measures = "tokens", dynamics = true, heads = true, kinds = Object.keys(KINDS) } = options;
  const dimensions = options.d || [1, 2, 3];
  const limits = { ...LIMITS, ...options.limits };
  const form = {
    get,
    set: (experiment) => {
      set(experiment);
      refresh();
    },
  };
  const presets = presetControls(form, options.view || measures);
  const matrices = matricesSection(form);
  const parts = [
    ["Preset", [presets], true],
    ["Attention", attentionControls(form, { kinds, heads, masks: measures === "tokens" }), true],
    ["Matrices", [matrices], true],
  ];
  if (measures === "tokens") parts.push(["Tokens", tokenControls(form, { dimensions, limits }), true]);
  if (measures === "density") parts.push(["Density", densityControls(form, { limits }), true]);
  const solver = dynamics && measures === "tokens" ? solverControls(form) : [];
  if (dynamics) {
    const controls = dynamicsControls(form, { limits, density: measures === "density" });
    parts.push(["Dynamics", solver.length ? [...controls, solverSection(solver)] : controls, true]);
  }
  const fields = h("fieldset", { class: "experiment" }, parts.map(([title, controls, open]) =>
    h("details", { open, dataset: { section: title.toLowerCase() } }, h("summary", {}, title),
      controls.map((control) => control.node))));
  clear(root).append(fields);

  const shown = parts.flatMap(([, controls]) => controls);
  // The places of refusals: every control with a path, those inside sections too.
  const places = [...shown, ...matrices.controls, ...solver].filter((control) => control.fail);
  let refused = [];

  function refresh() {
    const experiment = get();
    for (const control of shown) control.refresh(experiment);
  }

  function showRefusal({ path = [], words = "" }) {
    const { path: plain, head } = plainPath(path.map(String));
    if (head !== null) matrices.showHead(head);
    const place = best(places.filter((control) => !control.node.hidden), plain);
    if (!place) return false;
    place.fail(words);
    refused.push(place);
    for (let node = place.node.parentElement; node && node !== root; node = node.parentElement)
      if (node.tagName === "DETAILS") node.open = true;
    return true;
  }

  function clearRefusals() {
    for (const place of refused) place.fail("");
    refused = [];
  }

  refresh();
  return { refresh, showRefusal, clearRefusals, setDisabled: (on) => (fields.disabled = on) };
}

/** The control whose path shares most with that of a refusal; its table at least. */
function best(controls, path) {
  const shared = ({ path: own }) => {
    let k = 0;
    while (k < Math.min(own.length, path.length) && own[k] === path[k]) k++;
    return k === own.length || k === path.length ? k : k === 1 && path.length > 1 ? 0 : k;
  };
  const found = controls.map((control) => [shared(control), control]).filter(([k]) => k > 0);
  return found.reduce((top, each) => (top === null || each[0] > top[0] ? each : top), null)?.[1] || null;
}

function attentionControls(form, { kinds, heads, masks }) {
  const first = (experiment) => unwrapped(experiment.attention)?.heads[0];
  const isKind = (...names) => (experiment) => names.includes(first(experiment)?.kind);
  const all = (experiment, name, value) => withHeadsChanged(experiment, (head) => ({ ...head, [name]: value }));
  const heat = (experiment) => KINDS[first(experiment)?.kind]?.heat;
  const known = (experiment) => first(experiment) !== undefined;
  const names = (experiment) => {
    const offered = [...new Set([...kinds, ...(known(experiment) ? [first(experiment).kind] : [])])];
    const table = Object.fromEntries(offered.map((kind) => [kind, KINDS[kind].name]));
    return known(experiment) ? table : { "": "as in its file", ...table };
  };
  const temperature = numberField(form, { name: "tau", label: "Temperature τ", path: ["attention", "tau"], low: 1e-6,
    high: 1e6, slider: { low: 0.01, high: 100, log: true }, visible: (experiment) => Boolean(heat(experiment)),
    get: (experiment) => first(experiment)?.[heat(experiment)] ?? 1,
    set: (experiment, value) => all(experiment, heat(experiment), value) });
  const label = {
    ...temperature,
    refresh: (experiment) => {
      const sinkhorn = heat(experiment) === "eps";
      temperature.title.textContent = sinkhorn ? "Entropy ε" : "Temperature τ";
      label.path[1] = sinkhorn ? "eps" : "tau";
      temperature.refresh(experiment);
    },
  };
  return [
    selectField(form, { name: "kind", label: "Kind", path: ["attention", "kind"], options: names,
      get: (experiment) => first(experiment)?.kind || "",
      set: (experiment, kind) => withKind(known(experiment) ? experiment : plain(experiment), kind || "softmax") }),
    formulas((experiment) => KINDS[first(experiment)?.kind]),
    noteField((experiment) => (known(experiment) ? "" : "This attention is edited in its file.")),
    label,
    selectField(form, { name: "kernel", label: "Kernel", path: ["attention", "kernel"], visible: isKind("sinkhorn"),
      options: { dot: "c = Qx·Ky", distance: "c = −|Qx − Ky|²" },
      get: (experiment) => first(experiment)?.kernel || "dot",
      set: (experiment, kernel) => all(experiment, "kernel", kernel) }),
    numberField(form, { name: "tol", label: "Tolerance", path: ["attention", "tol"], low: 1e-15, high: 0.1,
      visible: isKind("sinkhorn"), get: (experiment) => first(experiment)?.tol,
      set: (experiment, tol) => all(experiment, "tol", tol) }),
    numberField(form, { name: "bias", label: "Bias b", path: ["attention", "bias"], low: -1e3, high: 1e3,
      slider: { low: -8, high: 8 }, visible: isKind("sigmoid"), get: (experiment) => first(experiment)?.bias ?? 0,
      set: (experiment, bias) => all(experiment, "bias", bias) }),
    segmentedField(form, { name: "heads", label: "Heads", path: ["attention", "heads"],
      options: (experiment) => headOptions(unwrapped(experiment.attention)?.heads.length || 1),
      visible: (experiment) => heads && known(experiment),
      get: (experiment) => unwrapped(experiment.attention)?.heads.length,
      set: (experiment, count) => withHeadCount(experiment, Number(count)) }),
    noteField((experiment) => mixedWords(unwrapped(experiment.attention)?.heads || [])),
    checkField(form, { name: "mask", label: "Causal mask", path: ["attention", "prefix"],
      hint: "A token sees those before it and itself.",
      visible: (experiment) => masks && known(experiment), set: withMask,
      get: (experiment) => Boolean(unwrapped(experiment.attention)?.causal) }),
  ];
}

const headOptions = (present) =>
  Object.fromEntries([1, 2, 3, 4, ...(present > 4 ? [present] : [])].map((count) => [count, String(count)]));

/** An experiment whose attention the form knows: one head of identities. */
function plain(experiment) {
  const d = dimension(experiment);
  return { ...experiment, attention: { kind: "softmax", Q: identity(d), K: identity(d), V: identity(d), tau: 1 } };
}

const mixedWords = (heads) =>
  new Set(heads.map(({ kind, tau, eps }) => `${kind} ${tau ?? eps ?? 1}`)).size > 1
    ? "The heads differ in kind or temperature; a change here is for all of them." : "";

/** The weights of the kind, set as a formula, with the field that they give. */
function formulas(kindOf) {
  const weights = h("p", { class: "formula" });
  const after = h("p", { class: "hint" });
  const node = h("div", { class: "kind-formula", dataset: { testid: "formula" } }, weights, after);
  const refresh = (experiment) => {
    const kind = kindOf(experiment);
    node.hidden = !kind;
    if (!kind) return;
    weights.textContent = kind.weights;
    after.textContent = `${kind.after}. Γ(x) = V ∫ y p(x, y) dμ(y), Qx·Ky = Ax·y with A = KᵀQ.`;
  };
  return { node, path: [], refresh };
}

let loading = null;

/** The presets of the server, asked for once. */
const allPresets = () => (loading ??= fetch("api/presets").then((answer) => {
  if (!answer.ok) throw new Error(`The presets could not be read (${answer.status}).`);
  return answer.json();
}));

/** The choice of a preset. What is shown follows the experiment: a changed preset is no preset any more. */
function presetControls(form, view) {
  const select = h("select", { "aria-label": "Preset", dataset: { testid: "preset" }, onchange: () => choose() });
  const about = h("p", { class: "hint preset-about" });
  const node = h("div", { class: "field wide" }, select, about);
  let known = [];
  select.append(h("option", { value: "" }, "own settings"));
  const key = (experiment) => JSON.stringify(sorted(experiment));

  const choose = () => {
    const preset = known.find(({ name }) => name === select.value);
    if (preset) form.set(structuredClone(preset.experiment));
  };
  const refresh = (experiment) => {
    // Presets have no tokens by hand, of which there may be thousands to compare.
    const own = experiment.measure?.kind === "points" ? "" : key(withRows(experiment));
    const found = known.find((preset) => preset.key === own);
    select.value = found?.name || "";
    about.textContent = found?.about || (known.length ? "Choose one, then change what you like." : "");
  };
  allPresets().then((list) => {
    known = list.filter((preset) => preset.view === view).map((preset) => {
      const experiment = withRows(preset.experiment);
      return { ...preset, experiment, key: key(experiment) };
    });
    for (const group of new Set(known.map((preset) => preset.group)))
      select.append(h("optgroup", { label: group }, known.filter((preset) => preset.group === group)
        .map(({ name, title }) => h("option", { value: name }, title))));
    refresh(form.get());
  }).catch((error) => {
    loading = null;
    about.textContent = error.message;
  });
  return { node, path: [], refresh };
}

/** The same value with keys in one order, for comparisons. */
function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}
