import { test } from "node:test";
import { sandbox } from "stepwell";

test("a declined card is charged again later", async (t) => {
  const s = await sandbox(t);
  await s.stub("charge", { error: { message: "declined" } });
  await s.status(await s.create("shop/order"), "waiting_for_retry");
});

test("the payment is settled after a retry and seven days", async (t) => {
  const s = await sandbox(t);
  await s.stub("charge", { error: { message: "declined" } }, { result: { receipt: 1 } });
  await s.stub("settle", { result: "settled" });
  const task = await s.create("shop/order", { amount: 120 });
  await s.clock({ advance: "1h" });
  await s.calls("charge", 2);
  await s.clock({ advance: "167h59m" });
  await s.calls("settle", 0);
  await s.clock({ advance: "1m" });
  await s.status(task, "complete");
});
