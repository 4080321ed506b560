// Compiled by strict TypeScript as an ECMAScript module, and never run.
import { test } from "node:test";
import { sandbox, start, type Sandbox } from "stepwell";

await start(["--templates", "order.json"], { STEPWELL_WORKER__HANDLERS: "{}" });

test("node:test", async (t) => {
  const s: Sandbox = await sandbox(t, { deterministic_ids: "seed" });
  const task: string = await s.create("shop/order", { amount: 120 });
  await s.stubThen("handler", "charge", { error: { message: "busy" } });
  const attempts: number = (await s.step(task, "charge")).attempts;
  // @ts-expect-error: a status is a string
  await s.status(task, attempts);
});
