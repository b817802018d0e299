// The colours of tokens: by cluster, by where they start, by the attention that they receive, or plain.

import { formatNumber } from "./dom.js";
import { theme, toRgb } from "./theme.js";

export const COLOURS = [
  ["cluster", "cluster"],
  ["position", "start"],
  ["received", "attention received"],
  ["plain", "plain"],
];

/** The colour of the cluster at a place in the order of sizes; they repeat, so that numbers tell them apart too. */
export const clusterColour = (place) => theme().palette[place % 6];

/** The colour of an ordered value u in [0, 1]: viridis without the end that the paper swallows. */
export function orderedRgb(u) {
  const { dark, viridisRgb } = theme();
  return viridisRgb(dark ? 0.18 + 0.82 * u : 0.93 * u);
}

/** Red, green, blue and opacity of each token, as bytes. `place` matters for "received" only. */
export function tokenColours(recording, mode, place) {
  const { n } = recording;
  const bytes = new Uint8Array(4 * n);
  const paint = (i, rgb) => {
    [bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]] = [rgb[0], rgb[1], rgb[2], 255];
  };
  const { soft, accent } = theme();
  if (mode === "cluster" && recording.clusters) {
    const colours = Array.from({ length: recording.clusters.marked }, (_, k) => toRgb(clusterColour(k)));
    const none = toRgb(soft);
    for (let i = 0; i < n; i++) paint(i, colours[recording.clusters.places[i]] || none);
  } else if (mode === "position" || mode === "received") {
    const values = (mode === "position" ? startValues(recording) : recording.receivedAt(place)) || new Float32Array(n);
    const table = Array.from({ length: 256 }, (_, k) => orderedRgb(k / 255));
    const [low, high] = extent(values);
    const scale = high > low ? 255 / (high - low) : 0;
    for (let i = 0; i < n; i++) paint(i, table[Math.round((values[i] - low) * scale)] || table[0]);
  } else {
    const rgb = toRgb(mode === "plain" ? accent : soft);
    for (let i = 0; i < n; i++) paint(i, rgb);
  }
  return bytes;
}

/** What the colours mean, for the legend: {words, low, high} with the ends of the scale, or words alone. */
export function legendOf(recording, mode, place) {
  if (mode === "cluster") return { words: clusterWords(recording) };
  if (mode === "plain") return { words: "" };
  const values = mode === "position" ? startValues(recording) : recording.receivedAt(place);
  if (!values) return { words: unknownReceived(recording) };
  const [low, high] = extent(values);
  const words = mode === "received" ? "attention received over the weight of a token, averaged over heads" :
    recording.positions ? "position in the sequence" : `${recording.d > 1 ? "x₁" : "x"} at the start`;
  return { words, low: formatNumber(low, 3), high: formatNumber(high, 3) };
}

function clusterWords({ clusters }) {
  if (!clusters) return "Clusters are known at the end of the run.";
  return clusters.marked < clusters.sizes.length ? "Grey: tokens of clusters with less than 1.5 % of all tokens." : "";
}

function unknownReceived({ complete, n }) {
  if (!complete) return "The attention received is known after the run.";
  return n > 2000 ? "The attention received is computed for at most 2,000 tokens." :
    "The attention received is not known for this attention.";
}

/** The position in the sequence if tokens have one, else the first coordinate of the start. */
function startValues({ positions, start, n, d }) {
  return positions || Float64Array.from({ length: n }, (_, i) => start[i * d]);
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const x of values) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  return low <= high ? [low, high] : [0, 0];
}
