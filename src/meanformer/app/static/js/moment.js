// The moment at which all covariances are seen: a player over their paths, in two clocks.

import { formatNumber, h } from "./dom.js";
import { createPlayer } from "./player.js";

const FRAMES = 121;

/** A player in `root` for a share in [0, 1] of the paths; `span()` gives the ends of the common clock. */
export function momentBar(root, span, changed) {
  let clock = "share";
  const player = createPlayer(root, { onMove: changed });
  const share = () => player.place / (FRAMES - 1);
  const select = h(
    "select",
    { "data-testid": "clock", onchange: () => changed((clock = select.value), player.changed()) },
    h("option", { value: "share" }, "each along its own path"),
    h("option", { value: "time" }, "all at the same time t (log)"),
  );
  player.bar.append(h("label", { class: "check" }, "Clock", select));
  player.bar.setAttribute("aria-label", "Moment of the paths");
  player.slider.setAttribute("aria-label", "Moment");

  // The common clock is logarithmic, from the first time at which something has moved.
  const time = () => {
    const [first, last] = span();
    return share() <= 0 ? 0 : first * (last / first) ** share();
  };
  const words = () => (clock === "time" ? `t = ${formatNumber(time(), 3)}` : `${Math.round(100 * share())} %`);
  player.timeWords = words;

  return {
    player,
    time,
    share,
    words,
    isCommon: () => clock === "time",
    /** Play the paths once, unless the reader has moved the time or wants no motion. */
    begin() {
      if (player.recording) player.changed();
      else player.load({ total: FRAMES, count: FRAMES, discrete: false, end: {}, t1: 1 });
    },
    seek: (s) => player.seek(s * (FRAMES - 1)),
  };
}
