// The Open menu: an experiment file, a run folder, or this view as it was at first.

import { append, clear, h } from "./dom.js";
import { menuButton, showDialog } from "./menu.js";

const LARGEST_FILE = 900_000;

/** The menu. `openExperiment(experiment)` shows one in the view that fits it, `reset()` starts the view anew. */
export function openMenu(context, { openExperiment, reset }) {
  return menuButton("Open", "open", () => [
    item("toml", "Experiment file …", "TOML, as meanformer run reads it", () => fileDialog(context, openExperiment)),
    item("run", "Run folder …", "replay what meanformer run has saved", () => runsDialog(context)),
    item("reset", "First experiment", "this view as it was at first", reset),
  ]);
}

const item = (id, label, hint, run) => ({ id, label, hint, run });

function fileDialog(context, openExperiment) {
  const error = h("p", { class: "error", role: "alert" });
  const waiting = h("p", { class: "hint", role: "status" });
  const text = h("textarea", {
    "aria-label": "Text of the experiment file", spellcheck: "false", "data-testid": "open-text",
    placeholder: "[attention]\nkind = \"softmax\"\nQ = \"identity\"\nK = \"identity\"\nV = \"identity\"\n…",
  });
  const read = async (words) => {
    error.textContent = "";
    try {
      if (words.length > LARGEST_FILE) throw new Error("The file is too large: experiments here have at most 0.9 MB.");
      const answer = await context.socket.ask("read", { do: "read", text: words }, "read", (meanwhile) => {
        waiting.textContent = meanwhile;
      });
      dialog.close();
      openExperiment(answer.experiment);
      context.status(answer.title ? `Opened: ${answer.title}` : "The experiment is open.");
    } catch (refused) {
      waiting.textContent = "";
      error.textContent = refused.message;
    }
  };
  const choose = h("input", {
    type: "file", accept: ".toml,text/plain", "aria-label": "Experiment file", "data-testid": "open-file",
    onchange: async () => {
      const [file] = choose.files;
      if (!file) return;
      text.value = file.size > LARGEST_FILE ? "" : await file.text();
      read(file.size > LARGEST_FILE ? " ".repeat(LARGEST_FILE + 1) : text.value);
    },
  });
  const clicked = { onclick: () => read(text.value), "data-testid": "open-go" };
  const go = h("button", { type: "button", class: "primary", ...clicked }, "Open");
  const dialog = showDialog(
    "Experiment file", h("p", {}, "Choose a file, or paste its text."), h("p", {}, choose), h("p", {}, text),
    waiting, error, h("div", { class: "buttons" }, go),
  );
}

async function runsDialog(context) {
  const list = h("ul", { class: "runs", "aria-label": "Run folders" });
  const filterWords = { placeholder: "Filter by name or title", "aria-label": "Filter by name or title" };
  const filter = h("input", { type: "search", ...filterWords, hidden: true });
  const words = h("p", { class: "hint", role: "status" }, "Reading the run folders.");
  const dialog = showDialog("Run folder", filter, words, list);
  let runs = [];
  const show = () => {
    const parts = filter.value.toLowerCase().split(/\s+/);
    const found = runs.filter((run) => parts.every((part) => `${run.shown} ${run.title}`.toLowerCase().includes(part)));
    words.textContent = found.length ? "" : "No run folder fits.";
    append(clear(list), found.map((run) => h("li", {}, runButton(run, () => {
      dialog.close();
      context.replay(run.name);
    }))));
  };
  filter.addEventListener("input", show);
  try {
    const answer = await fetch("api/runs");
    if (!answer.ok) throw new Error(`The server refused this (${answer.status}).`);
    runs = await answer.json();
  } catch (error) {
    words.textContent = `The run folders could not be listed. ${error.message}`;
    return;
  }
  if (runs.length === 0) {
    words.textContent = "There are no run folders yet where the explorer was started: meanformer run makes them.";
    return;
  }
  filter.hidden = false;
  filter.focus();
  show();
}

function runButton(run, onclick) {
  const about = run.damaged || [run.kind, run.created && readable(run.created)].filter(Boolean).join(", ");
  const can = { type: "button", onclick, disabled: Boolean(run.damaged), "data-testid": `run-${run.shown}` };
  // Each in a line of its own direction: letters that are read from right to left turn nothing else around.
  const words = [h("bdi", {}, run.shown), run.title ? [": ", h("bdi", {}, run.title)] : ""];
  return h("button", can, words, h("span", { class: run.damaged ? "hint damaged" : "hint" }, about));
}

/** A time as "2026-01-31 14:05"; what is no time stays as it is. */
function readable(created) {
  const time = new Date(typeof created === "number" ? created * 1000 : created);
  if (Number.isNaN(time.getTime())) return String(created);
  const local = new Date(time.getTime() - time.getTimezoneOffset() * 60000);
  return local.toISOString().slice(0, 16).replace("T", " ");
}
