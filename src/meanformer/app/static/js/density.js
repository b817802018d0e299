// The Density view: the law of the tokens on a line as a density, moved by the equation itself.

import { debounce, formatNumber, h } from "./dom.js";
import { createChart } from "./chart.js";
import { densityBar, densityCurve, densityMap } from "./densitymap.js";
import { DensityRun } from "./densityrun.js";
import { KINDS } from "./experiment.js";
import { experimentForm } from "./form.js";
import { outcomeWords } from "./outcomes.js";
import { composed } from "./paper.js";
import { createPlayer } from "./player.js";
import { getState, subscribe, update } from "./state.js";
import { onThemeChange } from "./theme.js";

const SLOT = "density";
const LOST = 1e-6; // of the mass: less is not worth words
const SCALES = { linear: "linear", root: "square root", log: "logarithmic" };

export function mount(root, context) {
  const { socket, status } = context;
  const view = { run: null, place: 0, scale: "root", quantiles: true, name: "" };
  let shown = false;
  let folder = null; // of a replay
  let asked = null; // the experiment whose run is seen or under way

  // --- parts of the page
  const formRoot = h("div", { class: "form" });
  const problem = h("p", { class: "error", role: "alert", hidden: true });
  const outcome = h("p", { class: "words", "data-testid": "density-outcome", "aria-live": "polite" });
  const stop = { onclick: () => socket.cancel(SLOT), "data-testid": "density-cancel" };
  const cancel = h("button", { type: "button", class: "small", hidden: true, ...stop }, "Cancel");
  const note = h("div", { class: "replay-note", hidden: true });
  const map = densityMap(view, (time) => player.seekTime(time));
  const curve = densityCurve(view);
  const scale = h(
    "select",
    { "data-testid": "density-scale", onchange: () => set("scale", scale.value) },
    Object.entries(SCALES).map(([value, words]) => h("option", { value }, words)),
  );
  scale.value = view.scale;
  const quantiles = h("input", { type: "checkbox", onchange: () => set("quantiles", quantiles.checked) });
  quantiles.checked = view.quantiles;
  const barRoot = h("div");
  const charts = h("div", { class: "charts" });
  const mapHint = "White lines: 5, 50 and 95 % of the mass lie to the left of them. Click to go to a time.";
  const colourBar = densityBar(view);
  const pictures = h(
    "div",
    { class: "pictures density-pictures" },
    note,
    problem,
    h("div", { class: "row spread" }, outcome, cancel),
    h(
      "figure",
      { class: "panel" },
      h(
        "div",
        { class: "panel-head" },
        h("h3", {}, "Density ρ(t, x)"),
        colourBar.node,
        h("label", { class: "check" }, "Colours", scale),
        h("label", { class: "check" }, quantiles, "quantiles"),
      ),
      map.canvas,
      h("figcaption", { class: "hint" }, mapHint),
    ),
    barRoot,
    h(
      "figure",
      { class: "panel" },
      h("div", { class: "panel-head" }, h("h3", {}, "At the present time")),
      curve.canvas,
      h("figcaption", { class: "hint" }, "Filled: now. Dashed: at the start."),
    ),
    charts,
  );
  root.append(formRoot, pictures);
  const player = createPlayer(barRoot, {
    speed: getState().display.speed,
    onSpeed: (speed) => update(["display", "speed"], speed),
    onMove() {
      view.place = player.shown;
      draw();
    },
  });
  for (const canvas of [map.canvas, curve.canvas]) {
    canvas.tabIndex = 0;
    canvas.addEventListener("keydown", (event) => player.handleKey(event));
  }
  const chart = (name, sign, title, colour) =>
    createChart(charts, {
      title,
      series: [{ name, sign, colour }],
      testid: `chart-${name}`,
      onScrub: (time) => player.seekTime(time),
    });
  const curves = [
    ["mean", chart("mean", "m", "Mean", 0)],
    ["variance", chart("variance", "σ²", "Variance", 1)],
    ["mass", chart("mass", "mass", "Mass on the grid", 2)],
  ];
  const form = experimentForm(formRoot, {
    get: () => getState().density.experiment,
    set: (experiment) => update(["density", "experiment"], experiment),
    d: [1],
    measures: "density",
    kinds: Object.keys(KINDS).filter((kind) => kind !== "hardmax"), // a grid of cells is no set of leaders
    dynamics: true,
    heads: true,
    view: "density",
    limits: socket.hello?.limits,
  });

  function set(name, value) {
    view[name] = value;
    draw();
  }

  // --- drawing
  function draw() {
    if (!shown) return;
    map.draw();
    curve.draw();
    colourBar.draw();
    const { run } = view;
    if (!run || !run.count) return;
    for (const [name, one] of curves) one.setCursor(run.timeAt(view.place), (key) => run.at(run[key], view.place));
  }

  function fill() {
    const { run } = view;
    if (!run || !run.count) return;
    const span = [run.times[0], run.end ? run.times.at(-1) : Math.max(run.t1, run.times.at(-1))];
    for (const [name, one] of curves) one.set(run.times, { [name]: run[name] }, span);
  }

  function words(run) {
    const lost = run.lost.at(-1) ?? 0;
    const gone = lost > LOST ? ` ${formatNumber(100 * lost, 2)} % of the mass has left the grid.` : "";
    return `${run.outcome ? [outcomeWords(run.outcome)].flat().join(" ").trim() : ""}${gone}`;
  }

  // --- asking the server
  const askSoon = debounce(ask, 30);

  function ask() {
    const { experiment } = getState().density;
    if (!shown || !socket.ready || (!folder && experiment === asked)) return;
    asked = folder ? null : experiment;
    say("");
    form.clearRefusals();
    cancel.hidden = false;
    status(folder ? "Reading the run folder." : "Asking.", "busy");
    socket.request(SLOT, folder ? { do: "replay", folder } : { do: "run", experiment }, receive);
  }

  function receive(answer) {
    if (answer.say === "start") begin(answer);
    else if (answer.say === "frames" && view.run) {
      view.run.addFrames(answer);
      fill();
      player.grown();
    } else if (answer.say === "end" && view.run) finish(answer);
    else if (answer.say === "queued" || answer.say === "doing") status(answer.words, "busy");
    else if (answer.say === "cancelled") {
      cancel.hidden = true;
      status("Cancelled.");
      outcome.textContent = "Cancelled.";
      if (view.run) view.run.end ??= {};
      player.grown();
    } else if (answer.say === "refused" || answer.say === "failed") refuse(answer);
  }

  function begin(answer) {
    if (answer.of !== "density") return refuse({ say: "failed", words: "This folder holds tokens, not a density." });
    view.run = new DensityRun(answer);
    outcome.textContent = "Running.";
    outcome.classList.remove("bad");
    view.name = folder ? `replay of ${folder}` : getState().density.experiment.attention.kind;
    return player.load(view.run);
  }

  function finish(answer) {
    cancel.hidden = true;
    view.run.finish(answer);
    outcome.textContent = words(view.run);
    outcome.classList.toggle("bad", answer.outcome ? !answer.outcome.ok : false);
    const seconds = answer.seconds ? ` in ${formatNumber(answer.seconds, 2)} s` : "";
    status(`Done${seconds}: ${view.run.count} frames of ${view.run.x.length} cells.`);
    fill();
    player.grown();
  }

  function refuse(answer) {
    cancel.hidden = true;
    const found = answer.say === "refused" && form.showRefusal(answer);
    say(found ? "" : answer.words);
    status(answer.words, "bad");
    const before = view.run ? ` The pictures are of ${view.run.end ? "the run before" : "its start"}.` : "";
    outcome.textContent = `${found ? "This cannot be run: see the form." : "This could not be run."}${before}`;
    outcome.classList.add("bad");
  }

  function say(trouble) {
    problem.textContent = trouble;
    problem.hidden = !trouble;
  }

  // --- replays
  function showNote() {
    note.hidden = !folder;
    form.setDisabled(Boolean(folder));
    note.replaceChildren();
    if (!folder) return;
    const back = { type: "button", class: "small", onclick: () => replay(null) };
    const leave = h("button", back, "Back to the experiment");
    note.append(h("span", { class: "badge" }, `Replay of ${folder}`), leave);
  }

  function replay(name) {
    folder = name;
    asked = null;
    showNote();
    ask();
  }

  subscribe((state, before) => {
    if (state.density.experiment === before.density.experiment) return;
    form.refresh();
    if (folder) {
      folder = null;
      showNote();
    }
    askSoon();
  });
  socket.onOpen(() => {
    // What was under way when the connection was lost is asked for again.
    if (!view.run?.end) asked = null;
    ask();
  });
  onThemeChange(draw);
  new ResizeObserver(draw).observe(pictures);

  return {
    replay,
    show() {
      shown = true;
      ask();
      draw();
    },
    hide() {
      shown = false;
      if (player.playing) player.pause();
      if (!cancel.hidden) {
        asked = null;
        socket.cancel(SLOT);
      }
    },
    exports: {
      name: "density",
      experiment: () => (folder ? null : getState().density.experiment),
      picture() {
        const small = curves.map(([, one]) => ({ canvas: one.canvas, title: one.title }));
        return composed([[{ canvas: map.canvas }], [{ canvas: curve.canvas }], small], title());
      },
      frameCount: () => view.run?.count ?? 0,
      currentFrame: () => Math.round(view.place),
      seek(k) {
        player.seek(k);
        view.place = k;
        draw();
      },
      table: () => (view.run?.count ? { columns: ["time", "x", "density"], rows: () => rows(view.run) } : null),
    },
  };

  function title() {
    const time = view.run?.count ? `, t = ${view.run.timeAt(view.place).toPrecision(3)}` : "";
    return `Density, ${view.name}${time}`;
  }
}

function* rows(run) {
  for (let k = 0; k < run.count; k += 1) {
    for (let i = 0; i < run.x.length; i += 1) yield [run.times[k], run.x[i], run.frames[k][i]];
  }
}
