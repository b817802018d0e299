// The editor of Q, K and V: grids of numbers, buttons that change a matrix as a whole, eigenvalues that can be set.

import { clear, formatNumber, freshId, h } from "./dom.js";
import { numberInput, typed } from "./controls.js";
import * as la from "./linalg.js";

const BUTTONS = [
  ["identity", "identity", "ones on the diagonal", (M) => la.identity(...la.shape(M))],
  ["zero", "zero", "all entries 0", (M) => la.zeros(...la.shape(M))],
  ["random", "random", "independent normal entries", (M) => la.randomNormal(...la.shape(M))],
  ["symmetric", "symmetric", "(M + Mᵀ) / 2", (M) => la.rounded(la.symmetricPart(M)), true],
  ["transpose", "transpose", "rows become columns", la.transpose, true],
  ["negative", "negative", "the opposite sign", (M) => la.scaled(M, -1)],
];

const WITHIN = { low: -1e6, high: 1e6 };

/**
 * A grid of number inputs. `get()` gives the matrix, `set(M)` takes one; `tell(words)` shows what is wrong. Arrow keys
 * move between cells: up and down always, left and right at the ends of a text. Returns {node, refresh}.
 */
export function matrixGrid({ name, get, set, tell, errorId, locked = () => false }) {
  const node = h("div", { class: "matrix-grid", role: "group", "aria-label": `Matrix ${name}`,
    dataset: { testid: `matrix-${name}` } });
  let cells = [];
  const wrong = new Map();

  const telling = (input, words) => {
    if (words) wrong.set(input, words);
    else wrong.delete(input);
    mark(input, words, errorId);
    tell([...wrong.values()][0] || "");
  };

  const cell = (i, j) => {
    const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false",
      "aria-label": `${name}, row ${i + 1}, column ${j + 1}`, dataset: { testid: `cell-${name}-${i}-${j}` },
      onkeydown: (event) => moved(event, i, j), onfocus: () => input.select() });
    const accept = (x) => set(get().map((row, r) => row.map((y, c) => (r === i && c === j ? x : y))));
    const box = numberInput(input, { value: () => get()?.[i]?.[j], accept, tell: (words) => telling(input, words),
      ...WITHIN, what: `${name}, row ${i + 1}, column ${j + 1}` });
    return { input, refresh: box.refresh };
  };

  const moved = (event, i, j) => {
    const { selectionStart: from, selectionEnd: to, value } = event.target;
    const whole = from === 0 && to === value.length;
    const step = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], Enter: [1, 0],
      ArrowLeft: from === 0 && (whole || to === 0) ? [0, -1] : null,
      ArrowRight: to === value.length && (whole || from === to) ? [0, 1] : null,
    }[event.key];
    const next = step && !event.shiftKey && !event.ctrlKey && !event.metaKey && cells[i + step[0]]?.[j + step[1]];
    if (!next) return;
    event.preventDefault();
    next.input.focus();
  };

  const refresh = () => {
    const M = get();
    node.hidden = !la.isMatrix(M);
    if (node.hidden) return;
    const [rows, columns] = la.shape(M);
    if (cells.length !== rows || cells[0].length !== columns) {
      wrong.clear();
      tell("");
      cells = la.filled(rows, columns, cell);
      clear(node).append(...cells.flat().map(({ input }) => input));
    }
    // Cells grow for long numbers, but not while one types.
    if (!node.contains(document.activeElement)) {
      const letters = Math.max(...M.flat().map((x) => typed(x).length));
      node.style.gridTemplateColumns = `repeat(${columns}, ${letters > 4 ? Math.min(92, 8 * letters + 12) : 38}px)`;
    }
    for (const { input, refresh: show } of cells.flat()) {
      show();
      input.readOnly = locked();
    }
  };
  return { node, refresh };
}

/** Mark an input as wrong, with the place of the sentence that says why; or no longer. */
function mark(input, wrong, errorId) {
  for (const [name, value] of [["aria-invalid", "true"], ["aria-describedby", errorId]])
    if (wrong) input.setAttribute(name, value);
    else input.removeAttribute(name);
}

/** Buttons and a scale for one matrix: `get()`, `set(M)`; `name()` says which. Returns {node, refresh}. */
export function matrixButtons({ name, get, set }) {
  const made = BUTTONS.map(([id, words, title, change, square]) => ({
    square,
    node: h("button", { type: "button", class: "small", title, dataset: { testid: `matrix-${id}` },
      onclick: () => set(change(get())) }, words),
  }));
  let start = null;
  const scale = h("input", { type: "range", min: -100, max: 100, step: 1, value: 0, dataset: { testid: "matrix-scale" },
    oninput: () => {
      start ??= get();
      const factor = 4 ** (Number(scale.value) / 100);
      set(la.rounded(la.scaled(start, factor), 3));
      say(factor);
    },
    onchange: () => rest(), onblur: () => rest() });
  const factorText = h("output", { class: "hint" });
  const say = (factor) => {
    factorText.textContent = `× ${formatNumber(factor, 3)}`;
    scale.setAttribute("aria-valuetext", `times ${formatNumber(factor, 3)}`);
  };
  // The slider returns to the middle: what was made is the matrix that the next scale starts from.
  const rest = () => {
    start = null;
    scale.value = 0;
    say(1);
  };
  rest();
  const title = h("h3", {});
  const node = h("div", { class: "matrix-tools" }, title,
    h("div", { class: "buttons" }, made.map((button) => button.node)),
    h("label", { class: "matrix-scale" }, h("span", { class: "label" }, "Scale"), scale, factorText));
  const refresh = () => {
    const M = get();
    node.hidden = !la.isMatrix(M);
    if (node.hidden) return;
    const square = M.length === M[0].length && M.length > 1;
    for (const each of made) each.node.hidden = Boolean(each.square) && !square;
    title.textContent = `Change ${name()}`;
    scale.setAttribute("aria-label", `Scale of ${name()}`);
  };
  return { node, refresh };
}

/**
 * The eigenvalues of one matrix, as inputs: real ones, or pairs a ± bi. Setting one changes the matrix on its present
 * eigenvectors; where these do not span the space, on the coordinate axes. Returns {node, refresh}.
 */
export function eigenvalueEditor({ name, get, set }) {
  const list = h("div", { class: "eigenvalues" });
  const words = h("p", { class: "hint" });
  const error = h("p", { class: "error", hidden: true, id: freshId("error") });
  const title = h("h3", {});
  const node = h("div", { class: "eigenvalue-editor", dataset: { testid: "eigenvalues" } }, title, list, error, words);
  // What the last change here made: its basis is kept even when two eigenvalues meet, and eigenvectors are lost.
  let last = null;
  let known = { matrix: null };
  let inputs = [];
  let shown = "";

  const present = () => {
    const M = get();
    if (last && last.name === name() && la.equal(last.matrix, M)) return last;
    if (known.matrix !== M) known = { matrix: M, values: la.eigenvalues(M), basis: la.eigenbasis(M) };
    return known;
  };
  const change = (values) => {
    const basis = present().basis || la.identity(values.length);
    const matrix = la.rounded(la.withEigenvalues(values, basis));
    last = { values, basis, matrix, name: name() };
    set(matrix);
  };
  const tell = (input, sentence) => {
    error.textContent = sentence;
    error.hidden = sentence === "";
    for (const each of inputs) mark(each.input, sentence && each.input === input, error.id);
  };
  const number = (k, part, label, size) => {
    const input = h("input", { type: "text", autocomplete: "off", "aria-label": label,
      dataset: { testid: part ? `eigenvalue-${k}-i` : `eigenvalue-${k}` }, onfocus: () => input.select() });
    const accept = (x) => change(replaced(present().values, k, part, x));
    const value = () => Number(present().values[k]?.[part].toPrecision(4));
    // A pair with imaginary part 0 is no pair: its box would go while "0.5" is typed.
    const late = (x) => part === 1 && x === 0;
    const box = numberInput(input, { value, accept, late, tell: (text) => tell(input, text), what: label, ...WITHIN });
    inputs.push({ input, refresh: box.refresh });
    input.size = size;
    return input;
  };
  const single = (k) => h("span", { class: "eigenvalue" }, number(k, 0, `Eigenvalue ${k + 1} of ${name()}`, 6));
  const pair = (k) => h("span", { class: "eigenvalue" }, number(k, 0, `Real part of a pair of ${name()}`, 5), " ± ",
    number(k, 1, `Imaginary part of a pair of ${name()}`, 5), " i");
  const pairing = (values, k) => h("button", { type: "button", class: "small", dataset: { testid: `pair-${k}` },
    title: "make a pair a ± bi of these two: the matrix turns the plane of their eigenvectors",
    onclick: () => change(paired(present().values, k)) }, values.length === 2 ? "complex pair" : "pair");

  const rebuild = (values) => {
    inputs = [];
    clear(list);
    values.forEach(([, im], k) => {
      if (im < 0) return;
      list.append(im > 0 ? pair(k) : single(k));
      const before = values[k - 1];
      if (im === 0 && before && before[1] === 0) list.append(pairing(values, k - 1));
    });
    error.hidden = true;
  };

  const refresh = () => {
    const M = get();
    node.hidden = !la.isMatrix(M);
    if (node.hidden) return;
    const square = M.length === M[0].length;
    title.textContent = square ? `Eigenvalues of ${name()}` : `${name()} has ${M.length} of ${M[0].length} rows`;
    list.hidden = !square;
    const { values, basis } = square ? present() : { values: [], basis: [] };
    const form = `${name()} ${values.map(([, im]) => Math.sign(im))}`;
    if (form !== shown) rebuild(values);
    shown = form;
    for (const input of inputs) input.refresh();
    words.hidden = M[0].length === 1;
    words.textContent = square ? spectrumWords(M, basis) : `Rank ${la.rank(M)}. Only square matrices have eigenvalues.`;
  };
  return { node, refresh };
}

function replaced(values, k, part, x) {
  const made = values.map((z) => [...z]);
  made[k][part] = x;
  if (made[k][1] < 0) made[k][1] = -made[k][1];
  // The partner of a pair follows; with b = 0 the two are real.
  if (values[k][1] > 0) made[k + 1] = [made[k][0], -made[k][1] + 0];
  return made;
}

function paired(values, k) {
  const [a, b] = [(values[k][0] + values[k + 1][0]) / 2, Math.abs(values[k][0] - values[k + 1][0]) / 2 || 1];
  return values.map((z, i) => (i === k ? [a, b] : i === k + 1 ? [a, -b] : z));
}

function spectrumWords(M, basis) {
  const sign = la.isSymmetric(M) ? "Symmetric" : "Its symmetric part is";
  const words = signWords(la.inertia(la.symmetricPart(M)));
  const axes = basis ? "" : " Eigenvectors do not span the space: setting a value uses the coordinate axes.";
  return `${la.isSymmetric(M) ? `${sign}, ${words}.` : `${sign} ${words}.`}${axes}`;
}

/** The signs of a symmetric matrix, in words. */
export function signWords({ positive: p, zero: z, negative: m }) {
  if (p + m === 0) return "zero";
  if (p && m) return `indefinite (${p} positive, ${z ? `${z} zero, ` : ""}${m} negative)`;
  return `${p ? "positive" : "negative"} ${z ? `semidefinite (rank ${p + m})` : "definite"}`;
}

/** Eigenvalues in a line: 1, 0.5 ± 2i. */
const spectrum = (M) =>
  la.eigenvalues(M).filter(([, im]) => im >= 0)
    .map(([re, im]) => formatNumber(re, 3) + (im > 0 ? ` ± ${formatNumber(im, 3)}i` : "")).join(", ");

/** What A = KᵀQ says: its eigenvalues, the signs of A + Aᵀ, and what follows for Gaussians under one head. */
export function bilinearWords(head, heads) {
  const A = la.multiply(la.transpose(head.K), head.Q);
  const inertia = la.inertia(la.add(A, la.transpose(A)));
  const first = A.length === 1 ? `A = KQ = ${spectrum(A)}.`
    : `A = KᵀQ has eigenvalues ${spectrum(A)}. A + Aᵀ is ${signWords(inertia)}.`;
  return `${first} ${heads === 1 ? fateWords(head, A, inertia) : ""}`.trim();
}

/** The theorems on centred Gaussians of full rank; "" where none is known that reads off these matrices alone. */
function fateWords({ kind, Q, K, V }, A, { positive, zero }) {
  const d = V.length;
  if (la.largest(V) === 0) return "V = 0: nothing moves.";
  if (!["softmax", "l2", "sinkhorn"].includes(kind)) return "";
  if (la.equal(K, la.scaled(Q, -1)) && la.isSymmetric(V) && la.inertia(V).positive === d)
    return `K = −Q and V is positive definite: a Gaussian of full rank converges to rank ${d - la.rank(Q)}.`;
  const turned = la.equal(V, la.scaled(la.identity(d), V[0][0])) ? Math.sign(V[0][0]) : 0;
  if (kind === "softmax" && turned) {
    const grows = turned > 0 ? positive : d - positive - zero;
    return grows
      ? "V is a multiple of I: a Gaussian of full rank blows up in finite time (finitely many tokens do not)."
      : `V is a multiple of I: a Gaussian of full rank converges to rank ${zero}.`;
  }
  if (kind === "sinkhorn" || (kind === "l2" && la.rank(K) === d)) return "A Gaussian lives for all times.";
  return kind === "softmax" ? "A + Aᵀ and V decide together whether a Gaussian blows up." : "";
}
