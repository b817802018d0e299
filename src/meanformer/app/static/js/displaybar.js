// What the picture shows: colours, overlays, how the view is fitted.

import { freshId, h } from "./dom.js";
import { COLOURS } from "./colours.js";

const OVERLAYS = [
  ["paths", "Paths", "The paths of the tokens so far"],
  ["starts", "Starts", "Rings where the tokens started"],
  ["hull", "Hull", "The convex hull now, and dotted at the start"],
  ["bound", "R(t), bound", "The circle of the radius R(t), and dashed the bound of the theory"],
];
const FITS = [["run", "run"], ["frame", "each frame"]];

/** The bar in `root`. `get()` gives the display, `set(name, value)` changes it; `names` of what is offered. */
export function createDisplayBar(root, { get, set, overlays = OVERLAYS.map(([name]) => name) }) {
  const boxes = OVERLAYS.filter(([name]) => overlays.includes(name)).map(([name, words, title]) => ({
    name,
    box: h("input", { type: "checkbox", dataset: { testid: `show-${name}` },
      onchange: (event) => set(name, event.target.checked) }),
    words,
    title,
  }));
  const colour = select("Colour", "colour", COLOURS, (value) => set("colour", value));
  const fit = select("Fit to", "fit-to", FITS, (value) => set("fit", value));
  root.append(h("div", { class: "row display-bar" }, colour.node,
    boxes.map(({ box, words, title }) => h("label", { class: "check", title }, box, words)), fit.node));
  const refresh = () => {
    const display = get();
    for (const { name, box } of boxes) box.checked = Boolean(display[name]);
    colour.input.value = display.colour;
    fit.input.value = display.fit;
  };
  refresh();
  return { refresh };
}

function select(label, testid, options, onchange) {
  const id = freshId(testid);
  const input = h("select", { id, dataset: { testid }, onchange: (event) => onchange(event.target.value) },
    options.map(([value, words]) => h("option", { value }, words)));
  return { input, node: h("span", { class: "display-choice" }, h("label", { for: id }, label), input) };
}
