import { test } from "node:test";
import { sandbox, start } from "stepwell";

await start(["--templates", new URL("order.json", import.meta.url).pathname]);

test("a declined card is retried after an hour", async (t) => {
  const s = await sandbox(t);
  await s.stub("charge", { error: { message: "declined" } }, { result: { receipt: 1 } });
  const task = await s.create("shop/order", { amount: 120 });
  await s.status(task, "waiting_for_retry");
  await s.clock({ advance: "1h" });
  await s.calls("charge", 2);
});

test("the payment is settled after seven days", async (t) => {
  const s = await sandbox(t);
  await s.stub("charge", { result: { receipt: 1 } });
  await s.stub("settle", { result: "settled" });
  const task = await s.create("shop/order", { amount: 120 });
  await s.clock({ advance: "167h59m" });
  await s.calls("settle", 0);
  await s.clock({ advance: "1m" });
  await s.status(task, "complete");
});
