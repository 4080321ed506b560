// What a page shows of the service now: read anew after events that concern it.

import * as api from "./api.js";

// live calls read() after events that concern(event) the page, and when events were missed, once a second at most. The
// errors of read() are its own.
export function live(signal, concerns, read, filter = {}) {
  let timer = 0, last = 0;
  const soon = () => {
    timer ||= setTimeout(async () => {
      await read();
      last = Date.now();
      timer = 0;
    }, Math.max(300, last + 1000 - Date.now()));
  };
  const stop = api.events(filter, (e) => { if (concerns(e)) soon(); }, (state) => { if (/open|gap|poll/.test(state)) soon(); });
  signal.addEventListener("abort", () => { stop(); clearTimeout(timer); });
  return soon;
}
