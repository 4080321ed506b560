// Compiled by strict TypeScript with the types of vitest, and never run.
import { test } from "vitest";
import { sandbox } from "stepwell";

test("vitest", async (t) => {
  const receipt: { receipt: number } = await (await sandbox(t)).result("task", "charge");
  // @ts-expect-error: there is no such verb
  await (await sandbox(t)).pay(receipt);
});
