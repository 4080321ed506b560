// Run: npm install --prefix .., and node --test.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, test } from "node:test";
import { sandbox, start } from "stepwell";
import { server } from "./handlers.mjs";

await once(server.listen(0, "127.0.0.1"), "listening");
after(() => server.close());
await start(["--templates", new URL("approval.yaml", import.meta.url).pathname],
  { STEPWELL_WORKER__HANDLERS: JSON.stringify({ "expenses.*": `http://127.0.0.1:${server.address().port}` }) });

test("a small expense is paid at once", async (t) => {
  const s = await sandbox(t), task = await s.create("expenses/approval", { amount: 20 });
  await s.status(task, "complete");
  assert.equal(await s.result(task, "tell"), "paid 20");
});

test("a large expense waits for a person, even for a day", async (t) => {
  const s = await sandbox(t), task = await s.create("expenses/approval", { amount: 200 });
  await s.clock({ advance: "24h" });
  await s.status(task, "steps_in_process");
  await s.calls("pay", 0);
  await s.complete(task, "approve", { approved: true });
  await s.status(task, "complete");
  assert.equal(await s.result(task, "tell"), "paid 200");
});

test("a person may say no", async (t) => {
  const s = await sandbox(t), task = await s.create("expenses/approval", { amount: 200 });
  await s.complete(task, "approve", { approved: false, reason: "too dear" });
  await s.status(task, "complete");
  assert.equal(await s.result(task, "tell"), "rejected: too dear");
  await s.calls("pay", 0);
});

test("an answer that makes no sense needs a person again", async (t) => {
  const s = await sandbox(t), task = await s.create("expenses/approval", { amount: 200 });
  await s.complete(task, "approve", null);
  await s.status(task, "blocked_by_failures");
});
