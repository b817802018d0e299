// How a run ended, in words for the page.

import { formatNumber, plural } from "./dom.js";

const WORDS = {
  REACHED: (t) => [`Reached t = ${t}.`, false],
  STOPPED: (t) => [`Stopped by a rule at t = ${t}.`, false],
  STEP_TOO_SMALL: (t) => [`Blows up near t = ${t}.`, true],
  NOT_FINITE: (t) => [`Blew up at t = ${t}.`, true],
  STEP_LIMIT: (t) => [`Ended at t = ${t}.`, true],
  SINKHORN_STALLED: (t) => [`Ended at t = ${t}.`, true],
};

const ENORMOUS = 1e100; // of a radius: its square is near the end of the floating-point range

/**
 * The outcome {kind, words, time} as [the main thing, its explanation], both sentences; the second may be empty. A run
 * whose tokens are too far out for floating-point numbers need not blow up: `radius` is the last that is known.
 */
export function outcomeWords({ kind, words, time }, radius = 0) {
  if (!WORDS[kind]) return [sentence(words), ""];
  if (radius > ENORMOUS && (kind === "STEP_TOO_SMALL" || kind === "NOT_FINITE"))
    return [`Ended near t = ${formatNumber(time)}: the tokens are too far out for floating-point numbers.`,
      "They may grow for all times. End the run earlier, or look at the rescaled frame."];
  const [main, explained] = WORDS[kind](formatNumber(time));
  // The words are "KIND at t = TIME: explanation".
  return [main, explained ? sentence(words.slice(words.indexOf(": ") + 2)) : ""];
}

/** The clusters at the end: where hardly any tokens are together, there are none to speak of. */
export const clusterWords = (count, n) =>
  count > n / 3 && n > 10 ? "no clusters at the end" : `${plural(count, "cluster")} at the end`;

/** The words with a capital and a full stop. */
export function sentence(words) {
  const text = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
