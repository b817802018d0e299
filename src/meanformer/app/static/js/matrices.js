// The section of a form that edits the matrices of the heads: Q, K, V in grids, tools for the chosen one, A = KᵀQ.

import { clear, freshId, h } from "./dom.js";
import { noteField, numberField, selectField } from "./controls.js";
import { dimension, unwrapped, withHeadsChanged } from "./experiment.js";
import { equal, identity, isMatrix, resized, scaled } from "./linalg.js";
import { bilinearWords, eigenvalueEditor, matrixButtons, matrixGrid } from "./matrix.js";

const NAMES = ["Q", "K", "V"];
const LINKS = { own: "on its own", same: "K = Q", opposite: "K = −Q" };

/** Controls, nodes and `refresh(experiment)`; `showHead(number)` turns to a head, `place(path)` finds a matrix. */
export function matricesSection(form) {
  let chosen = "V";
  let number = 0;
  const links = {};

  const heads = (experiment = form.get()) => unwrapped(experiment.attention)?.heads || [];
  const head = () => heads()[number] || heads()[0] || {};
  const link = () => links[number] || "own";
  const follows = (name) => name === "K" && link() !== "own";
  const linked = (Q) => (link() === "same" ? Q : scaled(Q, -1)).map((row) => [...row]);

  const withHead = (experiment, change) =>
    withHeadsChanged(experiment, (each, k) => (k === number ? change(each) : each));
  const setMatrix = (name, M) => {
    const K = name === "Q" && link() !== "own" && isMatrix(M) ? { K: linked(M) } : {};
    form.set(withHead(form.get(), (each) => ({ ...each, [name]: M, ...K })));
  };

  const blocks = NAMES.map((name) => block(name));
  const tools = { name: () => chosen, get: () => head()[chosen], set: (M) => setMatrix(chosen, M) };
  const parts = [matrixButtons(tools), eigenvalueEditor(tools)];
  const followNote = h("p", { class: "hint", hidden: true });

  function block(name) {
    const id = freshId("error");
    const error = h("p", { class: "error", id, hidden: true });
    const tell = (words) => {
      error.textContent = words;
      error.hidden = words === "";
    };
    const fail = (words) => {
      tell(words);
      grid.node.classList.toggle("wrong", words !== "");
      if (words) grid.node.setAttribute("aria-describedby", id);
      else grid.node.removeAttribute("aria-describedby");
    };
    const grid = matrixGrid({ name, get: () => head()[name], set: (M) => setMatrix(name, M), tell, errorId: id,
      locked: () => follows(name) });
    const choose = h("button", { type: "button", class: "small matrix-name", dataset: { testid: `choose-${name}` },
      "aria-label": `Tools for ${name}`, onclick: () => turn(name) }, name);
    const drawn = h("p", { class: "hint" });
    const write = h("button", { type: "button", class: "small",
      onclick: () => setMatrix(name, identity(dimension(form.get()))) }, "write numbers");
    const node = h("div", { class: "matrix-block", onfocusin: () => turn(name) }, choose, grid.node, drawn, write);
    const refresh = () => {
      const M = head()[name];
      choose.setAttribute("aria-pressed", String(chosen === name));
      drawn.hidden = write.hidden = isMatrix(M);
      node.classList.toggle("drawn", !isMatrix(M));
      drawn.textContent = isMatrix(M) ? "" : drawnWords(M);
      grid.refresh();
    };
    return { node, error, path: ["attention", name], fail, refresh };
  }

  function turn(name) {
    if (chosen === name) return;
    chosen = name;
    refresh(form.get());
  }

  const linkField = selectField(form, { name: "link", label: "K is", path: ["attention", "K", "link"], options: LINKS,
    visible: () => isMatrix(head().Q),
    get: link,
    set: (experiment, word) => {
      links[number] = word;
      const { Q } = head();
      if (word === "own" || !isMatrix(Q)) return experiment;
      return withHead(experiment, (each) => ({ ...each, K: linked(Q) }));
    } });

  const rowsField = numberField(form, { name: "rows", label: "Rows of Q, K", path: ["attention", "rows"], whole: true,
    low: 1, high: () => dimension(form.get()), get: () => head().Q?.length,
    visible: (experiment) => dimension(experiment) > 1 && isMatrix(head().Q),
    set: (experiment, k) => {
      const d = dimension(experiment);
      const sized = (each) => {
        const { query_bias: _, key_bias: __, ...rest } = each;
        const matrix = (M) => (isMatrix(M) ? resized(M, k, d) : M);
        return { ...rest, Q: matrix(each.Q), K: matrix(each.K) };
      };
      return withHead(experiment, sized);
    } });

  const tabs = h("div", { class: "segmented head-tabs", role: "group", "aria-label": "Head" });
  const words = noteField(() => {
    const { Q, K, V } = head();
    return [Q, K, V].every(isMatrix) && Q.length === K.length ? bilinearWords(head(), heads().length) : "";
  });

  function refreshTabs() {
    const count = heads().length;
    tabs.hidden = count < 2;
    if (tabs.childElementCount !== count)
      clear(tabs).append(...heads().map((_, k) => h("button", { type: "button", dataset: { testid: `head-${k}` },
        onclick: () => showHead(k) }, `Head ${k + 1}`)));
    [...tabs.children].forEach((button, k) => button.setAttribute("aria-pressed", String(k === number)));
  }

  function showHead(k) {
    number = k;
    refresh(form.get());
  }

  function refresh(experiment) {
    const all = heads(experiment);
    node.hidden = all.length === 0;
    if (node.hidden) return;
    number = Math.min(number, all.length - 1);
    const { Q, K } = head();
    // A link holds as long as the matrices do what it says: a preset or a file may have changed them.
    if (link() !== "own" && !(isMatrix(Q) && isMatrix(K) && equal(K, linked(Q)))) links[number] = "own";
    refreshTabs();
    for (const each of [...blocks, linkField, rowsField, words]) each.refresh(experiment);
    for (const part of parts) part.refresh();
    if (follows(chosen)) for (const part of parts) part.node.hidden = true;
    followNote.hidden = !follows(chosen);
    followNote.textContent = `${LINKS[link()]}: it follows Q.`;
  }

  const node = h("div", { class: "matrices" }, tabs,
    h("div", { class: "matrix-blocks" }, blocks.map((each) => each.node)), blocks.map((each) => each.error),
    linkField.node, rowsField.node, words.node, parts[0].node, followNote, parts[1].node);
  return { node, controls: [...blocks, rowsField], refresh, showHead };
}

function drawnWords(spec) {
  if (spec && typeof spec === "object" && "random" in spec) {
    const scale = spec.scale === undefined ? "" : `, times ${spec.scale}`;
    return `random (${spec.random}${scale}), drawn by the seed`;
  }
  return "given in its file";
}
