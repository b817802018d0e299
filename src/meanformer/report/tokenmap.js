// The map of tokens: it plays through the layers; pointing, typing or the arrow keys choose a token.
// #layer=3&token=5 in the address shows that layer and that token.
for (const box of document.querySelectorAll(".tokenmap")) {
  const part = name => box.querySelector("." + name);
  const data = JSON.parse(part("map-data").textContent);
  const canvas = part("map-canvas"), pen = canvas.getContext("2d"), play = part("map-play"), slider = part("map-layer");
  const where = part("map-where"), told = part("map-told"), find = part("map-find"), words = part("map-words");
  const { points, labels, names, order } = data, n = labels.length, last = points.length - 1;
  const [left, bottom, right, top] = data.box;
  const hollow = new Set(data.hollow), still = matchMedia("(prefers-reduced-motion: reduce)");
  const state = { at: 0, from: 0, to: 0, began: 0, lasts: 0, playing: false, chosen: -1, pinned: false, zoom: 1, hits: new Set() };
  let width = 0, height = 0, look = {}, waiting = false;
  const named = new Map(), widths = new Map();
  box.hidden = false;

  // Words below or beside the map, in the colours of the tokens.
  const patches = data.grid ? data.grid[0] * data.grid[1] : 0;
  const chips = labels.map((label, i) => {
    const chip = document.createElement("span");
    chip.className = "chip";
    chip.dataset.token = i;
    const patch = i >= n - patches;
    chip.style[patch ? "backgroundColor" : "borderColor"] = `light-dark(${data.light[i]}, ${data.dark[i]})`;
    if (patch) { chip.classList.add("patch"); chip.title = label; }
    else chip.textContent = label;
    return chip;
  });
  words.append(...chips.slice(0, n - patches).flatMap(chip => [chip, " "]));
  if (patches) {
    const image = document.createElement("div");
    image.className = "map-image";
    image.style.gridTemplateColumns = `repeat(${data.grid[1]}, 1fr)`;
    image.append(...chips.slice(n - patches));
    words.append(image);
  }

  // Where tokens are, on the map and on the screen, at a depth that may lie between two layers.
  const place = (i, at) => {
    const layer = Math.min(Math.floor(at), last), next = Math.min(layer + 1, last), t = at - layer;
    const mix = k => (1 - t) * points[layer][2 * i + k] + t * points[next][2 * i + k];
    return [mix(0), mix(1)];
  };
  const screen = (i, at, inside = true) => {
    const focus = state.chosen < 0 ? [0, 0] : place(state.chosen, state.at), z = state.zoom;
    const scale = z * Math.min(width / (right - left), height / (top - bottom));
    const [x, y] = place(i, at);
    const centre = [(left + right) / 2, (bottom + top) / 2].map((c, k) => focus[k] + (c - focus[k]) / z);
    const spot = [width / 2 + scale * (x - centre[0]), height / 2 - scale * (y - centre[1])];
    return inside ? [Math.min(Math.max(spot[0], 5), width - 5), Math.min(Math.max(spot[1], 5), height - 5)] : spot;
  };
  const length = i => {
    if (!widths.has(i)) widths.set(i, pen.measureText(labels[i]).width);
    return widths.get(i);
  };
  // The names that have room at a layer, the telling ones first.
  const roomy = layer => {
    const key = [layer, width, height, state.zoom, state.zoom > 1 ? state.chosen : -1].join();
    if (!named.has(key)) {
      const taken = [], found = new Set();
      for (const i of order) {
        if (taken.length > width * height / 7000) break;
        const [x, y] = screen(i, layer), start = x + 7, end = start + length(i);
        if (end > width - 2 || x < 6 || y < 9 || y > height - 9) continue;
        if (taken.some(([a, b, c]) => Math.abs(c - y) < 14 && start < b + 4 && end > a - 10)) continue;
        taken.push([start, end, y]);
        found.add(i);
      }
      if (named.size > 200) named.clear();
      named.set(key, found);
    }
    return named.get(key);
  };

  const dot = (x, y, radius, i) => {
    pen.beginPath();
    pen.arc(x, y, radius, 0, 7);
    if (hollow.has(i)) { pen.lineWidth = 1.4; pen.strokeStyle = look.tokens[i]; pen.stroke(); }
    else { pen.fillStyle = look.tokens[i]; pen.fill(); }
  };
  const name = (i, bold) => {
    const [x, y] = screen(i, state.at);
    pen.font = (bold ? "600 13px " : "12px ") + look.font;
    const wide = pen.measureText(labels[i]).width, start = x + 7 + wide > width ? x - 7 - wide : x + 7;
    pen.lineWidth = 3.5;
    pen.strokeStyle = look.card;
    pen.strokeText(labels[i], start, y);
    pen.fillStyle = bold ? look.ink : look.soft;
    pen.fillText(labels[i], start, y);
  };
  const draw = () => {
    waiting = false;
    const ratio = devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.lineJoin = "round";
    pen.textBaseline = "middle";
    pen.font = "12px " + look.font;
    const { at, chosen, hits } = state, busy = chosen >= 0 || hits.size > 0;
    if (chosen >= 0) {
      pen.beginPath();
      for (let layer = 0; layer <= last; layer++) pen.lineTo(...screen(chosen, layer, false));
      pen.lineWidth = 1.5;
      pen.strokeStyle = look.accent;
      pen.stroke();
      for (let layer = 0; layer <= last; layer++) dot(...screen(chosen, layer, false), 2, chosen);
    }
    const radius = n < 150 ? 4 : n < 500 ? 3.2 : 2.4;
    pen.globalAlpha = busy ? 0.45 : 0.9;
    for (let i = 0; i < n; i++) dot(...screen(i, at), radius, i);
    pen.globalAlpha = 1;
    const same = chosen < 0 ? [] : labels.flatMap((label, i) => label === labels[chosen] && i !== chosen ? [i] : []);
    for (const i of [...same, ...hits]) {
      const [x, y] = screen(i, at);
      dot(x, y, radius, i);
      pen.beginPath();
      pen.arc(x, y, radius + 3, 0, 7);
      pen.lineWidth = 1.3;
      pen.strokeStyle = look.accent;
      pen.stroke();
    }
    if (!busy) {
      const after = roomy(Math.min(Math.ceil(at), last));
      for (const i of roomy(Math.floor(at))) if (after.has(i)) name(i, false);
    }
    if (hits.size <= 40) for (const i of hits) name(i, false);
    if (chosen >= 0) { dot(...screen(chosen, at), radius + 2, chosen); name(chosen, true); }
  };
  const redraw = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };

  const show = at => {
    state.at = at;
    const layer = Math.round(at);
    slider.value = layer;
    slider.setAttribute("aria-valuetext", names[layer]);
    const words = names[layer] + (data.explained ? `; the plane shows ${data.explained[layer]} % of the variance` : "");
    if (where.textContent !== words) where.textContent = words;
    redraw();
  };
  const step = () => {
    if (!state.lasts) return;
    const t = Math.min((performance.now() - state.began) / state.lasts, 1), ease = t * t * (3 - 2 * t);
    show(state.from + (state.to - state.from) * ease);
    if (t < 1) return requestAnimationFrame(step);
    state.lasts = 0;
    if (state.playing) state.to < last ? setTimeout(() => { if (state.playing) move(state.to + 1, pace); }, pace / 3) : pause();
  };
  const move = (to, lasts) => {
    const running = state.lasts > 0;
    Object.assign(state, { from: state.at, to, began: performance.now(), lasts: still.matches ? 1 : lasts });
    if (!running) requestAnimationFrame(step);
  };
  const pace = Math.min(800, 16000 / Math.max(last, 1));
  const pause = () => { state.playing = false; play.textContent = "▶ play"; };
  play.addEventListener("click", () => {
    if (state.playing) return pause();
    state.playing = true;
    play.textContent = "❚❚ pause";
    if (state.at >= last) show(0);
    move(Math.floor(state.at) + 1, pace);
  });
  slider.addEventListener("input", () => { pause(); move(Number(slider.value), 300); });

  const choose = (i, pinned = false) => {
    if (i === state.chosen && pinned === state.pinned) return;
    chips[state.chosen]?.classList.remove("on");
    Object.assign(state, { chosen: i, pinned });
    const chip = chips[i];
    if (chip) {
      chip.classList.add("on");
      const room = words.clientHeight, start = chip.offsetTop;
      if (start < words.scrollTop || start + chip.offsetHeight > words.scrollTop + room) words.scrollTop = start - room / 2;
      const others = labels.filter(label => label === labels[i]).length - 1;
      const more = others ? `; ${others} more of this name, in rings` : "";
      told.textContent = `token ${data.numbers ? data.numbers[i] : i}: ${labels[i]}${more}. The line is its way through all layers.`;
    } else told.textContent = data.hint;
    redraw();
  };
  const near = event => {
    const area = canvas.getBoundingClientRect(), reach = event.pointerType === "touch" ? 30 : 16;
    const x = event.clientX - area.left - canvas.clientLeft, y = event.clientY - area.top - canvas.clientTop;
    let best = -1, least = reach * reach;
    for (let i = 0; i < n; i++) {
      const [a, b] = screen(i, state.at), far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) { best = i; least = far; }
    }
    return best;
  };
  const over = event => event.target.dataset?.token === undefined ? -1 : Number(event.target.dataset.token);
  for (const [area, token] of [[canvas, near], [words, over]]) {
    area.addEventListener("pointermove", event => { if (!state.pinned) choose(token(event)); });
    area.addEventListener("pointerleave", () => { if (!state.pinned) choose(-1); });
    area.addEventListener("click", event => {
      const i = token(event);
      choose(i, i >= 0 && !(state.pinned && i === state.chosen));
    });
  }
  canvas.addEventListener("keydown", event => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by) { choose((Math.max(state.chosen, by < 0 ? 0 : -1) + by + n) % n, true); event.preventDefault(); }
    if (event.key === "Escape") choose(-1);
  });
  find.addEventListener("input", () => {
    const asked = find.value.trim().toLowerCase();
    state.hits = new Set(asked ? labels.flatMap((label, i) => label.toLowerCase().includes(asked) ? [i] : []) : []);
    chips.forEach((chip, i) => chip.classList.toggle("hit", state.hits.has(i)));
    choose(-1);
    told.textContent = asked ? `${state.hits.size} of ${n} tokens have this in their names` : data.hint;
    const first = chips[[...state.hits][0]];
    if (first) words.scrollTop = first.offsetTop - words.clientHeight / 2;
    redraw();
  });
  for (const [button, factor] of [["map-closer", 1.5], ["map-farther", 1 / 1.5]])
    part(button).addEventListener("click", () => { state.zoom = Math.min(Math.max(state.zoom * factor, 1), 60); redraw(); });

  // The colours are those of the page, also when it changes them.
  const dress = () => {
    const style = getComputedStyle(canvas), dark = /\d+/.exec(style.backgroundColor)[0] < 128;
    look = { ink: style.color, card: style.backgroundColor, soft: style.columnRuleColor, accent: style.caretColor, font: style.fontFamily };
    look.tokens = dark ? data.dark : data.light;
    redraw();
  };
  const fit = () => {
    const ratio = devicePixelRatio || 1;
    [width, height] = [canvas.clientWidth, canvas.clientHeight];
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    widths.clear();
    redraw();
  };
  const follow = () => {
    const asked = new URLSearchParams(location.hash.slice(1)), within = (name, most) => {
      const value = Number(asked.get(name));
      return asked.has(name) && Number.isInteger(value) && value >= 0 && value <= most ? value : -1;
    };
    const layer = within("layer", last), token = within("token", n - 1);
    if (layer >= 0) { pause(); state.lasts = 0; show(layer); }
    if (token >= 0) choose(token, true);
  };
  new ResizeObserver(fit).observe(canvas);
  new MutationObserver(dress).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dress);
  addEventListener("hashchange", follow);
  told.textContent = data.hint;
  dress();
  fit();
  show(0);
  follow();
}
