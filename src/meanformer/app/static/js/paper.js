// Several canvases as one picture on paper, with a title: for exports.

import { theme } from "./theme.js";

const MARGIN = 24;
const GAP = 18;
const TITLE = 30;

/** Rows of [canvas, caption] or canvases, one below the other; a canvas without size is left out. */
export function composed(rows, title) {
  const seen = rows.map((row) => row.filter((canvas) => canvas && canvas.width > 1 && canvas.clientWidth > 1));
  const sizes = seen.filter((row) => row.length).map((row) => ({
    row,
    width: row.reduce((sum, canvas) => sum + canvas.clientWidth, 0) + GAP * (row.length - 1),
    height: Math.max(...row.map((canvas) => canvas.clientHeight)),
  }));
  const width = 2 * MARGIN + Math.max(300, ...sizes.map((size) => size.width));
  const { paper, ink, font } = theme();
  const pen = document.createElement("canvas").getContext("2d");
  const lines = wrapped(pen, title, `600 16px ${font}`, width - 2 * MARGIN);
  const height = 2 * MARGIN + TITLE + 22 * (lines.length - 1) + sizes.reduce((sum, size) => sum + size.height + GAP, 0);
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  Object.assign(pen.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  pen.scale(ratio, ratio);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = ink;
  pen.font = `600 16px ${font}`;
  lines.forEach((line, k) => pen.fillText(line, MARGIN, MARGIN + 12 + 22 * k));
  let y = MARGIN + TITLE + 22 * (lines.length - 1);
  for (const { row, width: wide, height: high } of sizes) {
    let x = (width - wide) / 2;
    for (const canvas of row) {
      pen.drawImage(canvas, x, y, canvas.clientWidth, canvas.clientHeight);
      x += canvas.clientWidth + GAP;
    }
    y += high + GAP;
  }
  return pen.canvas;
}

function wrapped(pen, text, font, width) {
  pen.font = font;
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (pen.measureText(longer).width > width && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
