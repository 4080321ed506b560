// The suite under vitest, whose context of a test ends the sandbox.
import { expect, test } from "vitest";
import { sandbox, start } from "stepwell";

await start(["--templates", new URL("../../../examples/testing/order.json", import.meta.url).pathname]);

let first;

test("a declined card is retried after an hour", async (t) => {
  const s = first = await sandbox(t);
  await s.stub("charge", { error: { message: "declined" } }, { result: { receipt: 1 } });
  const task = await s.create("shop/order", { amount: 120 });
  await s.status(task, "waiting_for_retry");
  await s.clock({ advance: "1h" });
  await s.calls("charge", 2);
  expect(await s.result(task, "charge")).toEqual({ receipt: 1 });
});

test("a failure says in one line what happened, and the sandbox before is gone", async (t) => {
  const s = await sandbox(t);
  await expect(s.calls("charge", 1)).rejects.toThrow(/^0 calls match, 1 wanted; there were none at all$/);
  await expect(first.steps("x")).rejects.toThrow();
});
