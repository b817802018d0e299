// The paths of the starts of the Gaussian view: known ones are kept, missing ones are asked for, the latest wish wins.

import { throttle } from "./dom.js";
import { readPath, shapeOf } from "./fates.js";

const SLOT = "gaussian";
const PATIENCE = 400; // milliseconds that a request gets to show a path before a newer one replaces it

const keyOf = (cov) => JSON.stringify(cov);

/**
 * Fills `scene` = {starts, shapes, paths}. Tells `on` = {busy(words), changed(), done(), cancelled(), refused(answer)}.
 * Until the new path of a start is known, the one before stays, with `stale: true`: so nothing flickers.
 */
export function pathKeeper(socket, scene, on) {
  const known = new Map();
  let wish = { attention: null, text: "", starts: [] };
  let request = null;
  let active = false;

  function want(attention, starts) {
    const text = JSON.stringify(attention);
    if (text !== wish.text) known.clear();
    wish = { attention, text, starts };
    const before = { keys: scene.starts.map(keyOf), paths: scene.paths };
    const same = before.keys.length === starts.length;
    scene.starts = starts;
    scene.shapes = starts.map(shapeOf);
    scene.paths = starts.map((cov, i) => {
      const old = before.paths[same ? i : before.keys.indexOf(keyOf(cov))];
      return known.get(keyOf(cov)) ?? (old ? { ...old, stale: true } : null);
    });
    active = true;
    on.changed();
    askSoon();
  }

  const askSoon = throttle(ask, 30);

  function ask() {
    if (!active) return;
    const { attention, text, starts } = wish;
    const missing = starts.map((cov, index) => ({ cov, index, key: keyOf(cov) })).filter(({ key }) => !known.has(key));
    if (!missing.length) {
      stop();
      active = true;
      on.done();
      return;
    }
    if (!socket.ready) return;
    // A request that has begun may show its first path, so that something moves while the reader drags.
    if (request && !request.shown && performance.now() - request.since < PATIENCE) {
      askSoon();
      return;
    }
    on.busy("Computing.");
    const asked = { since: performance.now(), shown: false, missing, text };
    request = asked;
    const message = { do: "gaussians", experiment: { attention }, starts: missing.map(({ cov }) => cov) };
    socket.request(SLOT, message, (answer) => receive(answer, asked));
  }

  function receive(answer, asked) {
    if (answer.say === "path") {
      asked.shown = true;
      keep(readPath(answer), asked.missing[answer.number], asked.text);
      on.changed();
      return;
    }
    if (answer.say === "queued" || answer.say === "doing") {
      on.busy(answer.words);
      return;
    }
    if (request === asked) request = null;
    if (answer.say === "end") on.done();
    else if (answer.say === "cancelled") on.cancelled();
    else if (answer.say === "refused" || answer.say === "failed") {
      scene.paths = scene.paths.map((path) => (path && !path.stale ? path : null));
      on.refused(answer);
    }
  }

  // A path of a start that has moved on is shown too, as a stale one, if nothing newer is known.
  function keep(path, { key, index }, text) {
    const current = text === wish.text;
    if (current) known.set(key, path);
    scene.starts.forEach((cov, i) => {
      if (current && keyOf(cov) === key) scene.paths[i] = path;
      else if (i === index && !known.has(keyOf(cov))) scene.paths[i] = { ...path, stale: true };
    });
  }

  function stop() {
    if (request) socket.cancel(SLOT);
    request = null;
    active = false;
  }

  socket.onOpen(() => {
    request = null;
    askSoon();
  });
  return { want, stop, fresh: () => scene.paths.filter((path) => path && !path.stale) };
}
