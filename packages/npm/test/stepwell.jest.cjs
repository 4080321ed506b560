// The suite under jest, as CommonJS, without await at the top.
const { sandbox, start } = require("stepwell");

start(["--templates", require.resolve("../../../examples/testing/order.json")]);

test("a declined card is retried after an hour", async () => {
  const s = await sandbox();
  await s.stub("charge", { error: { message: "declined" } }, { result: { receipt: 1 } });
  const task = await s.create("shop/order", { amount: 120 });
  await s.status(task, "waiting_for_retry");
  await s.clock({ advance: "1h" });
  await s.calls("charge", 2);
  expect(await s.result(task, "charge")).toEqual({ receipt: 1 });
});

test("a failure says in one line what happened", async () => {
  const s = await sandbox();
  await expect(s.calls("charge", 1)).rejects.toThrow(/^0 calls match, 1 wanted; there were none at all$/);
});
