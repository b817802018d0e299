// The start of the page: tabs, header, status line; views are mounted when they are first shown.

import { clear, h } from "./dom.js";
import { dimension } from "./experiment.js";
import { exportMenu } from "./exports.js";
import { closeByBackdrop } from "./menu.js";
import { openMenu } from "./open.js";
import { connect } from "./socket.js";
import { VIEWS, defaultState, getState, readLink, replaceState, subscribe, update } from "./state.js";
import { onThemeChange, theme } from "./theme.js";

const find = (id) => document.getElementById(id);
const views = {};
const words = {};
let shown = null;
let current = null;

const linked = location.hash.length > 1;
const damaged = readLink();
const socket = connect();

/** What a view gets. Words of a view that is not shown wait until it is. */
const contextOf = (name) => ({
  socket, getState, update, replaceState, subscribe, theme, onThemeChange, alert: showAlert, replay, openExperiment,
  status: (text, kind = "") => {
    words[name] = [text, kind];
    if (shown === name) showStatus(text, kind);
  },
});

function showStatus(text, kind = "") {
  const line = find("status");
  line.dataset.kind = kind;
  // The same words again would be read out again.
  if (line.textContent !== text) line.textContent = text;
}

/** A sentence above everything, until it is closed; without words it is closed. */
function showAlert(text) {
  find("alert").hidden = !text;
  find("alert").querySelector(".alert-words").textContent = text || "";
}

/** The view `name`, mounted at its first use. */
async function mounted(name) {
  if (!views[name]) {
    const root = find(`view-${name}`);
    views[name] = import(`./${name}.js`).then((module) => module.mount(clear(root), contextOf(name))).catch((error) => {
      console.error(error);
      clear(root).append(h("p", { class: "notice" }, "This view could not be loaded. Reload the page to try again."));
      return { show() {}, hide() {}, exports: {} };
    });
  }
  return views[name];
}

async function show(name) {
  if (name === shown) return;
  const before = shown;
  shown = name;
  for (const tab of find("tabs").children) {
    const chosen = tab.dataset.view === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    find(`view-${tab.dataset.view}`).hidden = !chosen;
    if (chosen) document.title = `${tab.textContent.trim()} · meanformer`;
  }
  showStatus(...(words[name] || [""]));
  if (before) (await mounted(before)).hide?.();
  const view = await mounted(name);
  if (shown !== name) return; // Another tab was chosen meanwhile.
  current = { name, ...view };
  view.show?.();
}

/** Replay a run folder, in the view that shows what moves there, which the first words of the answer tell. */
async function replay(folder) {
  try {
    const waiting = (text) => contextOf(shown).status(text, "busy");
    const start = await socket.ask("replay", { do: "replay", folder }, "start", waiting);
    socket.cancel("replay"); // The view asks for itself.
    const name = start.of === "density" ? "density" : "tokens";
    update(["view"], name);
    await show(name);
    (await mounted(name)).replay(folder);
  } catch (error) {
    contextOf(shown).status("");
    showAlert(error.message);
  }
}

/** Show an experiment in the view that fits its measure. */
function openExperiment(experiment) {
  const state = getState();
  const { kind, cov } = experiment.measure || {};
  const name = kind === "gaussian" || kind === "density" ? kind : "tokens";
  const d = dimension(experiment);
  if (name === "gaussian" && d !== 2) {
    showAlert(`The Gaussian view shows covariances of the plane, and this experiment has dimension ${d}.`);
    return;
  }
  const { mean = [0] } = experiment.measure;
  if (name === "gaussian" && ([mean].flat().some((x) => x !== 0) || Number.isFinite(experiment.flow?.t1)))
    showAlert("The Gaussian view shows centred Gaussians until their fate is known: mean and t1 are left out.");
  const part = { ...state[name], experiment };
  if (name === "gaussian") part.starts = [Array.isArray(cov) ? cov : [[cov > 0 ? cov : 1, 0], [0, cov > 0 ? cov : 1]]];
  replaceState({ ...state, view: name, [name]: part });
  show(name);
}

/** Show the experiment of a file, given by its text. */
async function openText(text) {
  try {
    openExperiment((await socket.ask("read", { do: "read", text })).experiment);
  } catch (error) {
    showAlert(error.message);
  }
}

const reset = () => update([getState().view], defaultState()[getState().view]);

function listenToTabs() {
  const tabs = [...find("tabs").children];
  const choose = (place) => {
    const tab = tabs[(place + tabs.length) % tabs.length];
    update(["view"], tab.dataset.view);
    show(tab.dataset.view);
    tab.focus();
  };
  tabs.forEach((tab, k) => {
    tab.addEventListener("click", () => choose(k));
    tab.addEventListener("keydown", (event) => {
      const places = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: tabs.length - 1 };
      if (!(event.key in places)) return;
      event.preventDefault();
      choose(places[event.key]);
    });
  });
}

const writes = (target) => target.closest?.("input:not([type=range], [type=checkbox], [type=radio]), textarea, select");

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.altKey && /^Digit[1-4]$/.test(event.code)) {
      event.preventDefault();
      update(["view"], VIEWS[Number(event.code.slice(5)) - 1]);
    } else if (event.key === "?" && !writes(event.target) && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      find("help").showModal();
    } else if (event.key === " " && event.target === document.body) { // nothing has the focus yet
      const play = find(`view-${shown}`).querySelector(".player-play");
      if (!play) return;
      event.preventDefault();
      play.click();
    }
  });
}

function build() {
  const context = { ...contextOf(null), status: (text, kind) => contextOf(shown).status(text, kind) };
  find("tools").prepend(openMenu(context, { openExperiment, reset }), exportMenu(context, () => current));
  find("help-button").addEventListener("click", () => find("help").showModal());
  find("help-close").addEventListener("click", () => find("help").close());
  closeByBackdrop(find("help"));
  find("alert").querySelector("button").addEventListener("click", () => showAlert(""));
  find("skip").addEventListener("click", (event) => {
    event.preventDefault(); // The part of the address after # is the state.
    const pictures = find(`view-${shown}`).querySelector(".pictures");
    pictures?.setAttribute("tabindex", "-1");
    (pictures || find("main")).focus();
  });
  listenToTabs();
  listenToKeys();
}

/** What was being computed is lost with the connection; the views ask again when it is back. */
function interrupt() {
  const busy = VIEWS.filter((name) => words[name]?.[1] === "busy");
  for (const name of busy) contextOf(name).status("Interrupted: the connection was lost.");
}

function listenToServer() {
  socket.onState((state, text) => {
    find("connection").dataset.state = state;
    find("connection").textContent = text;
    if (state === "closed") interrupt();
  });
  let first = true;
  socket.onOpen((hello) => {
    find("version").textContent = hello.version ? `meanformer ${hello.version}` : "";
    if (first && !linked) {
      if (hello.start) openText(hello.start);
      if (hello.replay) replay(hello.replay);
    }
    first = false;
  });
}

build();
listenToServer();
if (damaged) showAlert(damaged);
subscribe((state) => show(state.view));
window.addEventListener("hashchange", () => showAlert(readLink()));
window.addEventListener("error", (event) => showAlert(`A part of this page failed: ${event.message}.`));
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name !== "AbortError") showAlert(`A part of this page failed: ${event.reason?.message}.`);
});
window.meanformer = Object.assign(window.meanformer || {}, {
  getState, update, replaceState, socket, views, seen: () => current,
});
show(getState().view);
