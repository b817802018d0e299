// The colours of the page for drawings: read from the variables of style.css, again when the scheme changes.

const NAMES = { paper: "--paper", card: "--card", ink: "--ink", soft: "--soft", faint: "--faint", accent: "--accent" };
const PALETTE = ["#4477AA", "#EE6677", "#228833", "#CCBB44", "#AA3377", "#66CCEE", "#444B54"];

// Viridis at 18 equally spaced places, as hexadecimal digits; straight lines between them are within 5 of 255.
const VIRIDIS = (
  "440154481769472a7a433d843d4e8a355e8d2e6d8e297b8e23898e" +
  "1f978b21a5852eb37c46c06f65cb5e89d548b0dd2fd8e219fde725"
).match(/.{6}/g).map(toRgb);

/** The colour of u in [0, 1] as [red, green, blue], each 0 to 255. */
export function viridisRgb(u) {
  const place = Math.min(Math.max(Number.isFinite(u) ? u : 0, 0), 1) * (VIRIDIS.length - 1);
  const k = Math.min(Math.floor(place), VIRIDIS.length - 2);
  return VIRIDIS[k].map((low, c) => Math.round(low + (place - k) * (VIRIDIS[k + 1][c] - low)));
}

export const viridis = (u) => `rgb(${viridisRgb(u).join(", ")})`;

/** "#rgb", "#rrggbb" or "rgb(...)" as [red, green, blue], each 0 to 255. */
export function toRgb(colour) {
  const hex = /^#?([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(colour.trim());
  if (!hex) return (colour.match(/[\d.]+/g) || [0, 0, 0]).slice(0, 3).map(Number);
  const full = hex[1].length === 3 ? hex[1].replace(/./g, "$&$&") : hex[1];
  return [0, 2, 4].map((place) => parseInt(full.slice(place, place + 2), 16));
}

/** The same colour, see-through: `alpha` in [0, 1]. */
export const faded = (colour, alpha) => `rgba(${toRgb(colour).join(", ")}, ${alpha})`;

const listeners = new Set();
const media = ["(prefers-color-scheme: dark)", "(forced-colors: active)"].map((query) => window.matchMedia(query));
let known = null;

for (const query of media) {
  query.addEventListener("change", () => {
    known = null;
    for (const f of listeners) f(theme());
  });
}

/** {paper, card, ink, soft, faint, accent, palette, dark, font, viridis, viridisRgb}: the colours in force now. */
export function theme() {
  if (known === null) {
    const style = getComputedStyle(document.documentElement);
    const read = (variable, otherwise) => style.getPropertyValue(variable).trim() || otherwise;
    const colours = Object.entries(NAMES).map(([name, variable]) => [name, read(variable, "#444B54")]);
    const palette = PALETTE.map((colour, k) => read(`--c${k + 1}`, colour));
    const font = read("--font", "sans-serif");
    known = { ...Object.fromEntries(colours), palette, font, dark: media[0].matches, viridis, viridisRgb };
  }
  return known;
}

/** Call `f(theme)` after each change of the scheme; returns a function that stops this. */
export function onThemeChange(f) {
  listeners.add(f);
  return () => listeners.delete(f);
}
