// The four charts of a run of tokens: radius and bound, clusters, effective rank, energy.

import { h } from "./dom.js";
import { createChart } from "./chart.js";

const SPECIFICATIONS = [
  { title: "Radius R(t) and its bound", testid: "chart-radius", log: true, none: "no radius here",
    series: [{ name: "radius", sign: "R", colour: 0 }, { name: "bound", sign: "bound", colour: 1, dashed: true }] },
  { title: "Clusters", testid: "chart-clusters", zero: true, none: "counted after the run",
    series: [{ name: "clusters", sign: "clusters", colour: 2, step: true }] },
  { title: "Effective rank", testid: "chart-rank", none: "no rank here",
    series: [{ name: "effective_rank", sign: "rank", colour: 4 }] },
  { title: "Energy", testid: "chart-energy", wide: true, none: "none known for this attention",
    series: [{ name: "energy", sign: "E", colour: 0 }] },
];

/** The charts in `root`; `onScrub(time)` while the pointer is down in one of them. */
export function createCharts(root, onScrub) {
  const node = h("div", { class: "charts token-charts" });
  root.append(node);
  const charts = SPECIFICATIONS.map((specification) => createChart(node, { ...specification, onScrub }));
  const [radius, , , energy] = charts;
  return {
    node,
    charts,
    setRecording(recording) {
      const last = recording.count ? recording.times[recording.count - 1] : recording.t0;
      // The axis is the whole horizon, until a run has ended before it: then its last moments are what matters.
      const t1 = !recording.end && Number.isFinite(recording.t1) ? Math.max(recording.t1, last) : last;
      const bounded = recording.curves.bound || !recording.count;
      radius.setTitle(bounded ? "Radius R(t) and its bound" : "Radius R(t); no bound known");
      energy.setTitle(recording.energyName ? `Energy: ${recording.energyName}` : "Energy");
      energy.none = !recording.complete ? "computed after the run" :
        recording.energyName ? "computed for at most 2,000 tokens" : "none known for this attention";
      for (const chart of charts) chart.set(recording.times, recording.curves, [recording.t0, t1]);
    },
    setPlace(recording, place) {
      const time = recording.timeAt(place);
      for (const chart of charts) chart.setCursor(time, (name) => recording.curveAt(name, place));
    },
  };
}
