// The search runs in a worker, and browsers start none from a file. There, a hidden frame takes its place: it has the
// same two ends, `postMessage` and the event `message`.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.importScripts = () => {};
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      this.ready = new Promise((done) => (script.onload = done));
      script.src = new URL(url, location.href).href;
      inside.document.body.append(script);
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
