// Ticks of axes: round numbers, and powers of ten.

import { clamp, formatNumber } from "./dom.js";

/** About `count` round numbers in [low, high]: 1, 2 or 5 times a power of ten apart. */
export function ticks(low, high, count) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [];
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((k) => k * power >= rough) || 10);
  const list = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-12) && list.length < 50; k++) list.push(k * step);
  return list;
}

/** The same with their names: [[value, text], ...]. */
export function namedTicks(low, high, count) {
  const values = ticks(low, high, count);
  const texts = tickTexts(values);
  return values.map((value, k) => [value, texts[k]]);
}

/** The numbers of ticks as texts, with as many digits as tell them apart. */
function tickTexts(values) {
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : Infinity;
  return values.map((value) => {
    const size = Math.max(Math.abs(value), Number.MIN_VALUE);
    const digits = Number.isFinite(step) ? Math.ceil(Math.log10(size / step) - 1e-9) + 1 : 3;
    return formatNumber(value, clamp(digits, 3, 9));
  });
}

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = (k) => `10${String(k).replace("-", "⁻").replace(/\d/g, (digit) => SUPERSCRIPTS[digit])}`;

/** Ticks of a logarithmic axis with at most `most` names: powers of ten, or 1, 2, 5 of each where there are few. */
export function logTicks(low, high, most) {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  if (!Number.isFinite(b - a)) return [];
  if (b - a < 0.7) return namedTicks(low, high, 3);
  const every = Math.max(1, Math.ceil((b - a) / most));
  const powers = [];
  for (let k = Math.ceil(a / every) * every; k <= b; k += every) powers.push(k);
  if (powers.length > 2) return powers.map((k) => [10 ** k, Math.abs(k) > 3 ? power(k) : formatNumber(10 ** k)]);
  const few = [];
  for (let k = Math.floor(a); k <= b; k += 1) for (const m of [1, 2, 5]) few.push(m * 10 ** k);
  const inside = few.filter((v) => v >= low && v <= high);
  const shown = inside.length > most + 1 ? inside.filter((v) => /^1/.test(v.toExponential())) : inside;
  return shown.map((v) => [v, formatNumber(v, 2)]);
}
