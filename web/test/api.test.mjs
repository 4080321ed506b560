import assert from "node:assert/strict";
import test from "node:test";
import "./dom.mjs";

const { reader } = await import("../console/api.js");

test("a part is read again after ten times as long as reading it took, but soon enough", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const began = [];
  let takes = 0;
  const soon = reader(new AbortController().signal, () => {
    began.push(Date.now());
    return new Promise((done) => { setTimeout(done, takes); });
  }, 1000);
  for (takes of [200, 4000, 0]) { // milliseconds
    soon();
    for (let n = began.length; began.length === n || Date.now() < began[n] + takes;) {
      t.mock.timers.tick(100);
      await new Promise(setImmediate);
    }
    await new Promise(setImmediate);
  }
  assert.deepEqual(began.map((at, i) => at - (began[i - 1] ?? 0)), [1000, 2200, 14_000]);
});
