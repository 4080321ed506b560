// Tests of an application's Stepwell workflow. Run: node --test order.test.mjs. STEPWELL is the command to run.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { after, afterEach, beforeEach, test } from "node:test";

const serve = "--fixture --quiet --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0 --print-ready --exit-with-parent";
const template = JSON.parse(readFileSync(new URL("order.json", import.meta.url))); // the application's template

async function request(method, url, body) {
  const headers = { "Content-Type": "application/json" };
  const reply = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  if (!reply.ok) assert.fail(`${method} ${url}: ${reply.status} ${await reply.text()}`);
  return reply.status === 204 ? null : reply.json();
}

// One process for all tests, which exits when its standard input closes. Each test gets its own sandbox.
const options = { shell: true, stdio: ["pipe", "pipe", "inherit"] };
const stepwell = spawn(`${process.env.STEPWELL ?? "stepwell"} ${serve}`, options);
const sandboxes = JSON.parse((await once(stepwell.stdout, "data"))[0]).orchestration_url + "/_stepwell/sandboxes";
const control = (path, body) => request("POST", `${box.orchestration_url}/_stepwell/${path}`, body);
let box, task;
beforeEach(async () => {
  box = await request("POST", sandboxes);
  await control("templates", template);
  await control("clock", { freeze: true });
});
afterEach(() => request("DELETE", `${sandboxes}/${box.name}`));
after(() => stepwell.stdin.end());

async function order(charge) { // as the application does; charge lists the outcomes of the charge step
  await control("stubs", { match: { step: "charge" }, outcomes: charge });
  await control("stubs", { match: { step: "settle" }, outcomes: [{ result: "settled" }] });
  task = await request("POST", `${box.orchestration_url}/v1/tasks`, { namespace: "shop", name: "order" });
}
async function check(status, step, calls) {
  await control("wait-idle");
  assert.equal((await request("GET", `${box.orchestration_url}/v1/tasks/${task.task_uuid}`)).status, status);
  await control("verify", { match: { step }, count: { exactly: calls } });
}
test("a declined card is retried after an hour", async () => {
  await order([{ error: { message: "declined" } }, { result: { receipt: 1 } }]);
  await check("waiting_for_retry", "charge", 1);
  await control("clock", { advance: "1h" });
  await check("steps_in_process", "charge", 2);
});
test("the payment is settled after seven days", async () => {
  await order([{ result: { receipt: 1 } }]);
  await control("clock", { advance: "167h59m" });
  await check("steps_in_process", "settle", 0);
  await control("clock", { advance: "1m" });
  await check("complete", "settle", 1);
});
test("a lost worker's step is delivered again", async () => {
  await order([{ fault: "worker_lost" }, { result: { receipt: 1 } }]);
  await control("clock", { auto: true }); // jump to each timer
  await check("complete", "charge", 2);
});
