// Experiments as the page edits them: what a table means, and the same experiment with one thing changed. All pure.

import {
  filled, identity, isMatrix, multiply, randomNormal, resized, rounded, scaled, transpose, zeros,
} from "./linalg.js";

/** The kinds: their names, the weights p(x, y) that they give, the key of their temperature, options of their own. */
export const KINDS = {
  softmax: { name: "Softmax", weights: "p ∝ exp(Qx·Ky / τ)", after: "divided by its integral over y", heat: "tau" },
  l2: { name: "L2", weights: "p ∝ exp(−|Qx − Ky|² / τ)", after: "divided by its integral over y", heat: "tau" },
  sinkhorn: { name: "Sinkhorn", weights: "p = exp(f(x) + g(y) + c(x, y) / ε)", heat: "eps",
    after: "with integral one over x and over y; c = Qx·Ky, or −|Qx − Ky|²", own: { kernel: "dot", tol: 1e-8 } },
  sigmoid: { name: "Sigmoid", weights: "p = σ(Qx·Ky / τ + b)", after: "σ(s) = 1 / (1 + exp(−s))", heat: "tau",
    own: { bias: 0 } },
  linear: { name: "Linear", weights: "p = Qx·Ky / τ", after: "one linear map moves all tokens", heat: "tau" },
  unnormalised: { name: "Unnormalised", weights: "p = exp(Qx·Ky / τ)", after: "not divided by anything", heat: "tau" },
  hardmax: { name: "Hardmax", weights: "p = 1 at argmax Qx·Ky over y", after: "the limit τ → 0 of softmax" },
};
const SHARED = ["Q", "K", "V", "query_bias", "key_bias", "value_bias"];
export const FAST_FROM = 5000;
export const FAST_ACCURACY = 1e-5;

const copied = (value) => structuredClone(value);
const chosen = (table, names) =>
  Object.fromEntries(names.filter((name) => table[name] !== undefined).map((name) => [name, table[name]]));
const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** What the form edits of an attention: {causal, prefix, heads, W}; null for combinations that it does not know. */
export function unwrapped(attention) {
  const masked = attention.kind === "causal";
  const inner = masked ? attention.of : attention;
  const several = isTable(inner) && inner.kind === "multi-head";
  const heads = several ? inner.heads : [inner];
  if (!Array.isArray(heads) || !heads.every((head) => isTable(head) && head.kind in KINDS)) return null;
  return { causal: masked, prefix: attention.prefix, heads, W: several ? inner.W : undefined };
}

/** The attention of these heads; with one head and no output matrix, the head itself. */
export function wrapped({ causal, prefix, heads, W }) {
  const inner = heads.length > 1 || W ? { kind: "multi-head", heads, ...(W ? { W } : {}) } : heads[0];
  return causal ? { kind: "causal", of: inner, ...(prefix ? { prefix } : {}) } : inner;
}

/** The experiment with `change(head, number)` in place of each head; as it is, if the form does not know its heads. */
export function withHeadsChanged(experiment, change) {
  const parts = unwrapped(experiment.attention);
  return parts ? { ...experiment, attention: wrapped({ ...parts, heads: parts.heads.map(change) }) } : experiment;
}

/** The path of a refusal without the wrappers around the heads, and the number of the head that it names. */
export function plainPath(path) {
  if (path[0] !== "attention") return { path, head: null };
  const rest = path.slice(1);
  let head = null;
  while (rest[0] === "of" || rest[0] === "heads") {
    if (rest.shift() === "heads" && rest.length) head = Number(rest.shift());
  }
  return { path: ["attention", ...rest], head };
}

/** The dimension of the tokens. */
export function dimension(experiment) {
  const measure = experiment.measure || {};
  const law = measure.kind === "density" ? measure.of : measure;
  const lists = [law.points?.[0], law.means?.[0], law.mean, law.cov, law.low, law.high, law.around];
  const given = law.d || lists.find(Array.isArray)?.length;
  const V = unwrapped(experiment.attention)?.heads[0].V;
  return given || (isMatrix(V) ? V.length : 2);
}

/** The rows that a matrix of an experiment file means; null if it is drawn at random or comes from a file. */
export function rowsOf(spec, [rows, columns], others = {}) {
  if (Array.isArray(spec)) return isMatrix(spec) ? spec : null;
  if (typeof spec === "number") return scaled(identity(rows, columns), spec);
  if (spec === "identity" || spec === "zero") return spec === "zero" ? zeros(rows, columns) : identity(rows, columns);
  if (!isTable(spec)) return null;
  const made = unscaledRows(spec, [rows, columns], others);
  return made && rounded(scaled(made, spec.scale ?? 1), 15);
}

function unscaledRows(spec, [rows, columns], others) {
  if ("identity" in spec) return scaled(identity(rows, columns), spec.identity);
  if ("diagonal" in spec) return spec.diagonal.map((x, i) => spec.diagonal.map((_, j) => (i === j ? x : 0)));
  if ("rotation" in spec) {
    const [c, s] = [Math.cos(spec.rotation), Math.sin(spec.rotation)];
    return [[c, -s], [s, c]];
  }
  if ("gram" in spec) {
    const W = rowsOf(spec.gram, [rows, columns], others);
    return W && multiply(transpose(W), W);
  }
  if (!("of" in spec) || spec.of in (others.asked || {})) return null;
  return rowsOf(others[spec.of], [rows, columns], { ...others, asked: { ...others.asked, [spec.of]: true } });
}

/** The experiment with all matrices as rows that are not random, and without the words about it. */
export function withRows(experiment) {
  const { title, about, cites, figures, diagnostics, ...rest } = copied(experiment);
  const d = dimension(rest);
  const made = withHeadsChanged(rest, (head) => {
    const written = (name) => rowsOf(head[name], [d, d], head) || head[name];
    return { ...head, Q: written("Q"), K: written("K"), V: written("V") };
  });
  const law = made.measure?.kind === "density" ? made.measure.of : made.measure;
  if (law?.kind === "normal" && law.factor === undefined) law.cov ??= "identity";
  if (law?.cov !== undefined) law.cov = rowsOf(law.cov, [d, d]) || law.cov;
  if (law && law.kind !== "points") law.d = d;
  return made;
}

/** Another kind of attention, with the same matrices and temperature; hardmax takes explicit steps. */
export function withKind(experiment, kind) {
  const before = unwrapped(experiment.attention)?.heads[0].kind;
  const changed = withHeadsChanged(copied(experiment), (head) => {
    const kept = chosen(head, SHARED);
    const heat = KINDS[kind].heat;
    const own = head.kind === kind ? head : KINDS[kind].own;
    return { ...kept, ...own, kind, ...(heat ? { [heat]: head.tau ?? head.eps ?? 1 } : {}) };
  });
  const { flow } = changed;
  if (flow && kind === "hardmax" && before !== "hardmax") Object.assign(flow, { solver: "euler", step: 0.02 });
  if (flow?.solver === "euler" && kind !== "hardmax" && before === "hardmax") {
    delete flow.solver;
    delete flow.step;
  }
  return changed;
}

/** So many heads: the last are taken away, or new ones with random Q = K and V = I/2 are added. */
export function withHeadCount(experiment, count) {
  const parts = unwrapped(experiment.attention);
  if (!parts) return experiment;
  const d = dimension(experiment);
  const heads = copied(parts.heads.slice(0, count));
  const W = parts.W?.slice(0, count);
  while (heads.length < count) {
    const Q = randomNormal(d, d);
    heads.push({ ...copied(heads[0]), Q, K: copied(Q), V: scaled(identity(d), 0.5) });
    if (W) W.push(identity(d));
  }
  return { ...experiment, attention: wrapped({ ...parts, heads, W: count > 1 ? W : undefined }) };
}

/** With or without the causal mask, which needs positions. */
export function withMask(experiment, causal) {
  const parts = unwrapped(experiment.attention);
  if (!parts) return experiment;
  const { positions, ...measure } = experiment.measure || {};
  return {
    ...experiment,
    attention: wrapped({ ...parts, causal }),
    ...(experiment.measure ? { measure: causal ? { ...measure, positions: true } : measure } : {}),
  };
}

/** On the unit sphere, where the frame is the plain one; or in all of space. */
export function withSphere(experiment, on) {
  const changed = copied(experiment);
  for (const run of [changed.flow, changed.layers].filter(Boolean)) {
    if (on) run.space = "sphere";
    else delete run.space;
    if (on) delete run.frame;
  }
  if (on) changed.measure.project = "sphere";
  else delete changed.measure.project;
  return changed;
}

/** Continuous time, or layers whose steps add up to the same time. */
export function withLayers(experiment, on) {
  const { flow, layers, save, ...rest } = copied(experiment);
  const run = flow || layers || {};
  const shared = chosen(run, ["accuracy", "space"]);
  const { times, ...saved } = save || {};
  if (on) {
    const t1 = Number.isFinite(run.t1) ? run.t1 : 6;
    const depth = Math.min(200, Math.max(1, Math.round(10 * t1)));
    return { ...rest, layers: { depth, step: rounded([[t1 / depth]], 4)[0][0], ...shared }, save: saved };
  }
  const t1 = rounded([[run.step === undefined ? 1 : (run.depth || 12) * run.step]], 4)[0][0];
  const hard = unwrapped(rest.attention)?.heads[0].kind === "hardmax";
  return {
    ...rest,
    flow: { t1, ...(hard ? { solver: "euler", step: 0.02 } : {}), ...shared },
    save: { ...saved, times: framesFor(rest.measure.n || 1, dimension(rest)) },
  };
}

export const framesFor = (n, d) => (n > FAST_FROM ? Math.min(101, Math.max(11, Math.round(3e6 / (n * d)))) : 101);

/** Another number of tokens. Above `FAST_FROM` sums are fast and frames fewer, unless the user chose otherwise. */
export function withCount(experiment, n) {
  const changed = copied(experiment);
  const [before, d] = [experiment.measure.n, dimension(experiment)];
  changed.measure.n = n;
  const run = changed.flow || changed.layers;
  const many = (count) => count > FAST_FROM;
  if (run && many(n) && !many(before)) run.accuracy = FAST_ACCURACY;
  if (run && !many(n) && many(before)) delete run.accuracy;
  const times = changed.save?.times;
  const untouched = times === undefined || times === framesFor(before, d);
  if (changed.flow && (untouched || (many(n) && typeof times === "number")))
    changed.save = { ...changed.save, times: Math.min(untouched ? Infinity : times, framesFor(n, d)) };
  return changed;
}

/** Another dimension: matrices are cut, or continued by the pattern of the identity; vectors by zeros. */
export function withDimension(experiment, d) {
  const old = dimension(experiment);
  const changed = withHeadsChanged(copied(experiment), (head) => {
    const k = (M) => (M.length === old ? d : Math.min(M.length, d));
    const sized = (M, rows) => (isMatrix(M) ? resized(M, rows, d) : M);
    const made = { ...head, Q: sized(head.Q, k(head.Q)), K: sized(head.K, k(head.K)), V: sized(head.V, d) };
    for (const [bias, name] of [["query_bias", "Q"], ["key_bias", "K"], ["value_bias", "V"]])
      if (Array.isArray(head[bias])) made[bias] = lengthened(head[bias], made[name].length);
    return made;
  });
  const parts = unwrapped(changed.attention);
  if (parts?.W) changed.attention = wrapped({ ...parts, W: parts.W.map((M) => (isMatrix(M) ? resized(M, d, d) : M)) });
  changed.measure = measureIn(changed.measure, d);
  return d === 1 ? withSphere(changed, false) : changed;
}

const lengthened = (list, size, more = 0) => Array.from({ length: size }, (_, i) => (i < list.length ? list[i] : more));

function measureIn(measure, d) {
  const made = { ...measure };
  if (measure.kind === "density") return { ...made, of: measureIn(measure.of, d) };
  if (measure.kind === "points") return { ...made, points: measure.points.map((point) => lengthened(point, d)) };
  if (measure.kind === "mixture" && measure.means[0].length !== d) Object.assign(made, petals(measure.means.length, d));
  for (const name of ["low", "high"])
    if (Array.isArray(measure[name])) made[name] = lengthened(measure[name], d, measure[name].at(-1));
  for (const name of ["mean", "around"]) if (Array.isArray(measure[name])) made[name] = lengthened(measure[name], d);
  for (const name of ["cov", "factor"]) if (isMatrix(measure[name])) made[name] = resized(measure[name], d, d);
  return { ...made, d };
}

/** `count` Gaussians around 0, stretched towards it as petals; on a line side by side, in space in the first plane. */
export function petals(count, d, radius = 1) {
  const means = [];
  const covs = [];
  const [along, across] = [0.1 * radius ** 2, 0.02 * radius ** 2 * Math.min(1, 5 / count) ** 2];
  for (let k = 0; k < count; k++) {
    const angle = Math.PI / 2 + (2 * Math.PI * k) / count;
    const u = [Math.cos(angle), Math.sin(angle)];
    if (d === 1) means.push([count === 1 ? 0 : radius * ((2 * k) / (count - 1) - 1)]);
    else means.push(lengthened(u.map((x) => radius * x), d));
    const stretch = (i, j) => (d > 1 && i < 2 && j < 2 ? (along - across) * u[i] * u[j] : 0);
    covs.push(filled(d, d, (i, j) => stretch(i, j) + (i === j ? across : 0)));
  }
  const short = (M) => M.map((row) => row.map((x) => Number(x.toFixed(6)) + 0));
  return { means: short(means), covs: covs.map(short) };
}

/** A law with its usual parameters; how many tokens, and what is done with them, stays. */
export function withLaw(experiment, kind) {
  const d = dimension(experiment);
  const { n = 200, points } = experiment.measure;
  const kept = chosen(experiment.measure, ["seed", "centre", "project", "positions", "dtype", "weighting"]);
  const count = Math.min(points?.length || n, kind === "points" ? 12 : Infinity);
  const own = {
    cube: () => ({ low: -2, high: 2 }),
    ball: () => ({ radius: 2 }),
    sphere: () => ({ radius: 1 }),
    normal: () => ({ cov: identity(d) }),
    mixture: () => petals(5, d),
    points: () => ({ points: circlePoints(count, d) }),
  }[kind]();
  if (kind === "points") delete kept.weighting;
  const sized = kind === "points" ? own : { n: count, d, ...own };
  return { ...experiment, measure: { kind, ...sized, ...kept } };
}

/** Tokens on a circle (on an interval, if d = 1), for a start by hand. */
const circlePoints = (count, d) =>
  Array.from({ length: count }, (_, k) => {
    const angle = (2 * Math.PI * k) / count;
    const place = d === 1 ? [count === 1 ? 0 : (2 * k) / (count - 1) - 1] : [Math.cos(angle), Math.sin(angle)];
    return lengthened(place, d).map((x) => Number(x.toFixed(4)) + 0);
  });

/** How many frames an experiment will have, as far as it says. */
export function plannedFrames({ layers, save = {} }) {
  if (typeof save.times === "number") return save.times;
  if (Array.isArray(save.times)) return save.times.length;
  if (save.times === "final") return 2;
  if (save.times && save.times.count) return save.times.count;
  return layers ? layers.depth + 1 : 101;
}
