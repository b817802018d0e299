// Several canvases as one picture on paper, with a title: for exports.

import { theme } from "./theme.js";

const MARGIN = 24;
const GAP = 18;
const LINE = 22;

/** Rows of {canvas, title}, one below the other, under a title; canvases that are not drawn are left out. */
export function composed(rows, title) {
  const { paper, ink, soft, font } = theme();
  const pen = document.createElement("canvas").getContext("2d");
  const sized = rows.map((row) => rowOf(row.filter(({ canvas }) => canvas.width > 1))).filter((row) => row.width);
  const width = 2 * MARGIN + Math.max(300, ...sized.map((row) => row.width));
  const lines = wrapped(pen, title, `600 16px ${font}`, width - 2 * MARGIN);
  const height = 2 * MARGIN + LINE * lines.length + sized.reduce((sum, row) => sum + row.height + GAP, 0);
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  Object.assign(pen.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  pen.scale(ratio, ratio);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = ink;
  pen.font = `600 16px ${font}`;
  lines.forEach((line, k) => pen.fillText(line, MARGIN, MARGIN + 14 + LINE * k));
  pen.fillStyle = soft;
  pen.font = `600 13px ${font}`;
  let y = MARGIN + LINE * lines.length + GAP / 2;
  for (const row of sized) {
    let x = MARGIN + (width - 2 * MARGIN - row.width) / 2;
    for (const { canvas, wide, high, title: words } of row.parts) {
      if (words) pen.fillText(words, x, y + 12);
      pen.drawImage(canvas, x, y + (words ? LINE : 0), wide, high);
      x += wide + GAP;
    }
    y += row.height + GAP;
  }
  return pen.canvas;
}

// A canvas that is not on the page has two pixels for each of the page's.
function rowOf(row) {
  const parts = row.map(({ canvas, title = "" }) => {
    const shown = canvas.clientWidth > 1;
    return {
      canvas,
      title,
      wide: shown ? canvas.clientWidth : canvas.width / 2,
      high: shown ? canvas.clientHeight : canvas.height / 2,
    };
  });
  const width = parts.reduce((sum, { wide }) => sum + wide, 0) + GAP * Math.max(0, parts.length - 1);
  return { parts, width, height: Math.max(0, ...parts.map(({ high, title }) => high + (title ? LINE : 0))) };
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
