// The connection to the server: one websocket, requests by slot, answers as text or packed arrays; it reconnects.

const ARRAYS = { float32: Float32Array, float64: Float64Array, int32: Int32Array, uint8: Uint8Array };
const LONGEST = 2 ** 20; // characters of a request, as the server has it
const PAUSES = [300, 1000, 2000, 5000, 10000];
const LAST_WORDS = new Set(["end", "refused", "failed", "cancelled", "toml", "read"]);

/** Read a packed message: the header, with `arrays[name] = {data, shape}`. */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  let offset = 4 + length;
  for (const { name, dtype, shape } of header.arrays || []) {
    const size = shape.reduce((product, k) => product * k, 1);
    arrays[name] = { data: new ARRAYS[dtype](buffer, offset, size), shape };
    offset += padded(size * ARRAYS[dtype].BYTES_PER_ELEMENT);
  }
  return { ...header, arrays };
}

/** The same the other way: a header and [{name, data, shape}] as one buffer. */
export function pack(header, arrays) {
  const kind = (data) => Object.keys(ARRAYS).find((name) => data instanceof ARRAYS[name]);
  const described = arrays.map(({ name, data, shape }) => ({ name, dtype: kind(data), shape: shape || [data.length] }));
  const text = new TextEncoder().encode(JSON.stringify({ ...header, arrays: described }));
  const start = padded(4 + text.length);
  const packed = new Uint8Array(arrays.reduce((size, { data }) => size + padded(data.byteLength), start));
  new DataView(packed.buffer).setUint32(0, start - 4, true);
  packed.fill(32, 4, start);
  packed.set(text, 4);
  let offset = start;
  for (const { data } of arrays) {
    packed.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
    offset += padded(data.byteLength);
  }
  return packed.buffer;
}

const padded = (bytes) => Math.ceil(bytes / 8) * 8;

/**
 * Open the connection. `socket.request(slot, message, handler)` sends and returns the run's number; `handler(answer)`
 * gets each answer of this run, and none after a newer request in the same slot. `socket.onOpen(f)`: f(hello) after
 * the server's greeting, now and after each reconnection: views then ask again. `socket.onState(f)`: f(state, words).
 */
export function connect(address = new URL("ws", location.href.replace(/^http/, "ws").split("#")[0]).href) {
  return new Connection(address);
}

class Connection {
  constructor(address) {
    this.address = address;
    this.hello = null;
    this.state = "connecting";
    this.words = "Connecting";
    this.runs = new Map();
    this.lastRun = 0;
    this.tries = 0;
    this.refused = false;
    this.openListeners = new Set();
    this.stateListeners = new Set();
    this.open();
    const now = () => this.retryNow();
    window.addEventListener("online", now);
    document.addEventListener("visibilitychange", now);
    window.addEventListener("storage", () => this.move());
  }

  open() {
    clearTimeout(this.timer);
    const web = new WebSocket(this.address);
    web.binaryType = "arraybuffer";
    web.onmessage = (event) => this.receive(event.data);
    web.onclose = (event) => this.lost(web, event);
    this.web = web;
  }

  /** Whether requests can be sent. */
  get ready() {
    return this.hello !== null && this.web.readyState === WebSocket.OPEN;
  }

  request(slot, message, handler = () => {}) {
    const run = ++this.lastRun;
    this.runs.set(slot, { run, handler });
    // Not connected: nothing is kept, as the view is told when there is a connection, and asks for what it then wants.
    const text = JSON.stringify({ ...message, slot, run });
    if (text.length > LONGEST) {
      const words = `This is too much for one request: ${text.length.toLocaleString("en")} characters, ` +
        `at most ${LONGEST.toLocaleString("en")}.`;
      setTimeout(() => handler({ say: "refused", slot, run, words, path: [], arrays: {} }));
    } else if (this.ready) this.web.send(text);
    return run;
  }

  /** Stop what goes on in a slot; its handler still hears "cancelled". */
  cancel(slot) {
    const run = this.runs.get(slot)?.run ?? 0;
    if (this.ready) this.web.send(JSON.stringify({ do: "cancel", slot, run }));
  }

  /**
   * Ask for one answer: a promise of the answer `say`; refusals and failures reject with the sentence. `onWords(words)`
   * hears what is done meanwhile.
   */
  ask(slot, message, say = message.do, onWords = () => {}) {
    return new Promise((resolve, reject) => {
      if (!this.ready) {
        reject(new Error("There is no connection to the server."));
        return;
      }
      const lost = this.onState((state) => state === "closed" && reject(new Error("The connection was lost.")));
      this.request(slot, message, (answer) => {
        if (LAST_WORDS.has(answer.say)) lost();
        if (answer.say === say) resolve(answer);
        else if (answer.say === "queued" || answer.say === "doing") onWords(answer.words);
        else if (answer.say === "cancelled") reject(new DOMException("This was cancelled.", "AbortError"));
        else if (answer.say === "refused" || answer.say === "failed")
          reject(Object.assign(new Error(answer.words), { refusal: answer }));
      });
    });
  }

  /** Call `f(hello)` after each greeting, at once if there was one; returns a function that stops this. */
  onOpen(f) {
    this.openListeners.add(f);
    if (this.ready) f(this.hello);
    return () => this.openListeners.delete(f);
  }

  /** Call `f(state, words)` now and at each change; states: connecting, open, closed. */
  onState(f) {
    this.stateListeners.add(f);
    f(this.state, this.words);
    return () => this.stateListeners.delete(f);
  }

  say(state, words) {
    [this.state, this.words] = [state, words];
    for (const f of [...this.stateListeners]) f(state, words);
  }

  receive(data) {
    const answer = typeof data === "string" ? { arrays: {}, ...JSON.parse(data) } : unpack(data);
    if (answer.say === "hello") {
      this.tries = 0;
      this.hello = answer;
      localStorage.setItem("place", location.pathname); // where the door finds it for other tabs
      this.say("open", "Connected");
      for (const f of [...this.openListeners]) f(answer);
      return;
    }
    const current = this.runs.get(answer.slot);
    if (current && current.run === answer.run) current.handler(answer);
  }

  lost(web, event) {
    if (web !== this.web) return;
    this.hello = null;
    this.runs.clear();
    const pause = PAUSES[Math.min(this.tries++, PAUSES.length - 1)];
    this.say("closed", event.reason ? `Not connected: ${event.reason}` : "Not connected; trying again");
    if (!event.reason) this.explain(web);
    this.timer = setTimeout(() => this.open(), pause);
  }

  /** The browser does not tell why a connection fails; an ordinary request does. */
  async explain(web) {
    const answer = await fetch("api/runs", { method: "GET", cache: "no-store" }).catch(() => null);
    if (web !== this.web || this.state !== "closed") return;
    this.refused = answer?.status === 403;
    if (answer === null) this.say("closed", "Not connected: the explorer does not answer; trying again");
    else if (this.refused) this.say("closed", "Not connected: open a new address, which Enter prints in the terminal");
    this.move();
  }

  /** Another tab was let in by a new explorer at this address: the place of the old one leads nowhere any more. */
  move() {
    const place = localStorage.getItem("place");
    if (this.refused && place && place !== location.pathname) location.replace(place + location.hash);
  }

  retryNow() {
    if (document.visibilityState === "visible" && this.web.readyState === WebSocket.CLOSED) this.open();
  }
}
