// Compiled by strict TypeScript as CommonJS, and never run.
import { strictEqual } from "node:assert/strict";
import { test } from "node:test";
import { sandbox, start } from "stepwell";

void start();

void test("without a context", async () => {
  const s = await sandbox();
  const names: string[] = (await s.steps("task")).map((step) => step.name);
  strictEqual(names[0], "charge");
  // @ts-expect-error: the number of calls is a number
  await s.calls("charge", "2");
});
