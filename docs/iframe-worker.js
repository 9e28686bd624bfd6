// Browsers start no worker for a page that was opened from a disk, and the theme's search is one.
// There a frame takes the worker's place: the same script, with its messages handed to and fro.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.inside.importScripts = (...scripts) =>
        scripts.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve());
      this.started = this.load(script);
    }

    load(script) {
      return new Promise((loaded, failed) => {
        const tag = this.inside.document.createElement("script");
        tag.src = new URL(script, location);
        tag.onload = loaded;
        tag.onerror = failed;
        this.inside.document.head.append(tag);
      });
    }

    postMessage(data) {
      this.started.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
