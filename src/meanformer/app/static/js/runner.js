// Runs of tokens in one slot: asks the server, collects the frames, measures how long it takes.

import { Recording } from "./recording.js";

const PATIENCE = 400; // milliseconds that a run gets to show something before a newer wish replaces it

/**
 * Handlers: onBusy(words, share), onStart(recording), onFrames(recording), onCurves(recording), onEnd(recording),
 * onProblem(answer), onIdle(). The latest wish wins; but a run that has begun may first show its beginning, so that a
 * reader who drags sees something move all the while.
 */
export class Runner {
  constructor(socket, slot, handlers) {
    Object.assign(this, { socket, slot, handlers, wish: null, asked: null, recording: null, latency: {} });
    // What a lost connection had promised does not come; the view asks again when there is a new one.
    socket.onState((state) => {
      if (state !== "closed" || !this.asked) return;
      this.asked = null;
      handlers.onIdle();
    });
  }

  get busy() {
    return this.wish !== null || (this.asked !== null && !this.asked.over);
  }

  /** Ask for a run: a message without slot and number. */
  ask(message) {
    this.wish = { message, since: this.wish ? this.wish.since : performance.now() };
    const waits = this.asked && !this.asked.shown && performance.now() - this.asked.at < PATIENCE;
    if (!waits) this.send();
    else if (!this.timer) this.timer = setTimeout(() => this.send(), PATIENCE);
  }

  send() {
    clearTimeout(this.timer);
    this.timer = null;
    if (!this.wish || !this.socket.ready) return;
    const { message, since } = this.wish;
    this.wish = null;
    const asked = { at: performance.now(), since, shown: false, message };
    this.asked = asked;
    this.handlers.onBusy("Asking the server.", null);
    this.socket.request(this.slot, message, (answer) => {
      if (this.asked === asked) this.hear(answer);
    });
  }

  /** Stop at once, without waiting for the server's word. */
  cancel() {
    clearTimeout(this.timer);
    this.timer = this.wish = null;
    if (this.asked) this.socket.cancel(this.slot);
    this.asked = null;
    this.handlers.onIdle();
  }

  hear(answer) {
    const { handlers, asked } = this;
    if (answer.say === "start" && answer.of !== "density") {
      this.recording = new Recording(answer);
      this.latency.start = performance.now() - asked.since;
      handlers.onStart(this.recording);
    } else if (answer.say === "frames") {
      this.recording.addFrames(answer);
      this.first();
      handlers.onFrames(this.recording);
    } else if (answer.say === "curves") {
      this.recording.addCurves(answer);
      handlers.onCurves(this.recording);
    } else if (answer.say === "end") {
      this.recording.finish(answer);
      this.latency.last = performance.now() - asked.since;
      this.done();
      handlers.onEnd(this.recording);
    } else if (answer.say === "doing" || answer.say === "queued") handlers.onBusy(answer.words, answer.share);
    else this.ended(answer);
  }

  /** The first frames are here: the time until they are on the screen; then a newer wish may be sent. */
  first() {
    const { asked } = this;
    if (asked.shown) return;
    asked.shown = true;
    requestAnimationFrame(() => {
      this.latency.first = performance.now() - asked.since;
      if (window.meanformer) window.meanformer.latency = this.latency;
    });
    if (this.wish) this.send();
  }

  ended(answer) {
    this.done();
    if (answer.say === "refused" || answer.say === "failed") this.handlers.onProblem(answer);
    else if (answer.say === "start") {
      this.handlers.onProblem({ words: "This is the run of a density: see its view." });
      this.asked = null; // its frames are not for this view
    }
  }

  /** The run is over; but its slot still listens, as costly curves follow the end. */
  done() {
    Object.assign(this.asked, { shown: true, over: true });
    if (this.wish) this.send();
    else this.handlers.onIdle();
  }
}
