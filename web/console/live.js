// What a page shows of the service now, read again after events that concern it.

import * as api from "./api.js";

// live calls read() after events that concern(event) the page, when events were missed, and when the function that it
// returns is called, once a second at most.
export function live(signal, concerns, read, filter = {}) {
  const soon = api.reader(signal, read, 1000);
  const stop = api.events(filter, (e) => { if (concerns(e)) soon(); },
    (state) => { if (/open|gap|poll/.test(state)) soon(); });
  signal.addEventListener("abort", stop);
  return soon;
}
