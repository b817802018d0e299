// A run of tokens as a picture and as a table.

import { h, plural } from "./dom.js";
import { KINDS, unwrapped } from "./experiment.js";
import { outcomeWords } from "./outcomes.js";
import { theme } from "./theme.js";

const MARGIN = 20;

/** Stages on one canvas: a title line, each stage with its own title, what time it is. */
export function composedStages(stages, { title, time, columns = 1 }) {
  const boxes = stages.map(({ stage }) => [stage.node.clientWidth, stage.node.clientHeight]);
  const [width, height] = [Math.max(1, ...boxes.map((b) => b[0])), Math.max(1, ...boxes.map((b) => b[1]))];
  const head = stages.length > 1 ? 24 : 0;
  const rows = Math.ceil(stages.length / columns);
  const size = [2 * MARGIN + columns * width + (columns - 1) * MARGIN, 62 + rows * (height + head + MARGIN)];
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const canvas = h("canvas", { width: Math.round(size[0] * ratio), height: Math.round(size[1] * ratio) });
  const pen = canvas.getContext("2d");
  const { paper, card, ink, soft, faint, font } = theme();
  pen.scale(ratio, ratio);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, ...size);
  pen.fillStyle = soft;
  pen.font = `14px ${font}`;
  pen.textAlign = "right";
  pen.fillText(time, size[0] - MARGIN, 36);
  const room = size[0] - 3 * MARGIN - pen.measureText(time).width;
  pen.textAlign = "left";
  pen.fillStyle = ink;
  pen.font = `600 16px ${font}`;
  pen.fillText(shortened(pen, title, room), MARGIN, 36);
  stages.forEach(({ stage, title: own }, k) => {
    const [x, y] = [MARGIN + (k % columns) * (width + MARGIN), 52 + Math.floor(k / columns) * (height + head + MARGIN)];
    pen.fillStyle = ink;
    pen.font = `600 14px ${font}`;
    if (head) pen.fillText(shortened(pen, own, width), x, y + 15);
    pen.fillStyle = card || paper;
    pen.fillRect(x, y + head, ...boxes[k]);
    stage.paint(pen, x, y + head, ...boxes[k]);
    pen.strokeStyle = faint;
    pen.lineWidth = 1;
    pen.strokeRect(x, y + head, ...boxes[k]);
  });
  return canvas;
}

function shortened(pen, text, room) {
  let shown = text;
  while (shown.length > 4 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2).trimEnd()}…`;
  return shown;
}

/** The picture of the Tokens view; its title tells what runs, and how it ended. */
export function picture({ stage, recording, player, folder }, experiment) {
  const heads = unwrapped(experiment.attention)?.heads || [];
  const names = [...new Set(heads.map(({ kind }) => KINDS[kind].name))].join(" and ") || "Attention";
  const what = folder === null ? names : folder;
  const count = recording ? `, ${plural(recording.n, "token")}, d = ${recording.d}. ` : "";
  const title = `${what}${count}${recording && recording.outcome ? outcomeWords(recording.outcome)[0] : ""}`;
  return composedStages([{ stage, title }], { title, time: player.timeWords(player.shown) });
}

/** Each token at each time: a row. */
export function tableOf(recording) {
  const { n, d, rescaled } = recording;
  const letter = rescaled ? "z" : "x";
  const columns = ["time", "token", ...Array.from({ length: d }, (_, c) => `${letter}${c + 1}`), "weight"];
  const clusters = recording.end && recording.clusters;
  if (clusters) columns.push("cluster_at_the_end");
  const cluster = (i) => (clusters ? [clusters.places[i] < 0 ? "" : clusters.places[i] + 1] : []);
  function* rows() {
    for (let k = 0; k < recording.count; k++) {
      for (let i = 0; i < n; i++) {
        const point = recording.exact[k].subarray(i * d, (i + 1) * d);
        yield [recording.times[k], i + 1, ...point, recording.weights[i], ...cluster(i)];
      }
    }
  }
  return { columns, rows };
}
