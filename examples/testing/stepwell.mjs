// Tests workflows with a real Stepwell: one process for a file of tests, and an isolated sandbox with a virtual clock
// for each test. Copy this file. The variable STEPWELL is the command to run; the default is "stepwell".
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after } from "node:test";

const serve = "--fixture --quiet --log-level warn --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0 --print-ready --exit-with-parent";
let sandboxes; // the URL that creates sandboxes

// request sends a request and returns the response. It fails the test with one line if the service refuses.
async function request(method, url, body) {
  const reply = await fetch(url, { method, headers: { "Content-Type": "application/json" }, body: body && JSON.stringify(body) });
  const text = await reply.text();
  if (reply.ok) return text && JSON.parse(text);
  let message = `${method} ${url}: ${text}`;
  try { message = JSON.parse(text).error.message; } catch { /* not from the service */ }
  throw new assert.AssertionError({ message });
}

// start starts Stepwell with further flags, such as ["--templates", file], and variables.
export async function start(flags = [], env = {}) {
  const [file, ...args] = `${process.env.STEPWELL ?? "stepwell"} ${serve}`.split(/\s+/);
  const program = spawn(file, [...args, ...flags], { stdio: ["pipe", "pipe", "inherit"], env: { ...process.env, ...env } });
  const ended = once(program, "exit").then(() => assert.fail(`${file} ${flags.join(" ")} did not start: its output says why`),
    () => assert.fail(`there is no program "${file}": set STEPWELL to the command that starts it`));
  const [ready] = await Promise.race([once(program.stdout, "data"), ended]);
  ended.catch(() => {});
  after(() => program.stdin.end()); // which ends it
  sandboxes = JSON.parse(ready).orchestration_url + "/_stepwell/sandboxes";
}

// sandbox creates the sandbox of test t, whose clock is frozen.
export async function sandbox(t) {
  const box = await request("POST", sandboxes), s = new Sandbox(box.orchestration_url);
  t.after(() => request("DELETE", `${sandboxes}/${box.name}`));
  await s.clock({ freeze: true });
  return s;
}

class Sandbox {
  constructor(url) { this.url = url; } // for the application under test

  async control(path, body) {
    const reply = await request("POST", `${this.url}/_stepwell/${path}`, body);
    if (reply?.warning) assert.fail(reply.warning); // such as an unknown step
  }

  // clock moves the clock: { advance: "1h" }, or { auto: true } to jump to each timer.
  clock(change) { return this.control("clock", change); }

  // stub scripts the outcomes of a step's attempts; the last one repeats.
  stub(step, ...outcomes) { return this.stubThen("last", step, ...outcomes); }

  // stubThen is stub, but after the last outcome the step runs if then is "handler".
  stubThen(then, step, ...outcomes) { return this.control("stubs", { match: { step }, outcomes, then }); }

  // create creates a task of the template "namespace/name", and returns its id.
  async create(template, context = {}) {
    const [namespace, name] = template.split("/");
    return (await request("POST", `${this.url}/v1/tasks`, { namespace, name, context })).task_uuid;
  }

  async steps(task) {
    await this.control("wait-idle");
    return request("GET", `${this.url}/v1/tasks/${task}/workflow_steps`);
  }

  async step(task, name) {
    const steps = await this.steps(task), found = steps.find((s) => s.name === name);
    return found ?? assert.fail(`the task has no step ${name}; it has ${steps.map((s) => s.name).join(", ")}`);
  }

  // complete completes a step as a person does.
  async complete(task, step, result) {
    const { step_uuid } = await this.step(task, step);
    await request("PATCH", `${this.url}/v1/tasks/${task}/workflow_steps/${step_uuid}`, {
      action_type: "complete_manually", completion_data: { result }, reason: "test", completed_by: "test",
    });
  }

  // status waits until nothing runs, and checks the status of a task.
  async status(task, want) {
    await this.control("wait-idle");
    const url = `${this.url}/v1/tasks/${task}`, got = (await request("GET", url)).status;
    if (got !== want) assert.fail(`the task is ${got}, not ${want}: ${await this.why(task)}`);
  }

  // why says in one line why a task is stuck.
  async why(task) {
    return (await request("GET", `${this.url}/v1/tasks/${task}/explain`)).message;
  }

  // calls waits until nothing runs, and checks how often a step's handler or stub was called.
  async calls(step, want) {
    await this.control("wait-idle");
    await this.control("verify", { match: { step }, count: { exactly: want } });
  }

  // result waits until nothing runs, and returns the result of a step. It fails the test if the step has none.
  async result(task, step) {
    const found = await this.step(task, step);
    if (["complete", "resolved_manually"].includes(found.current_state)) return found.results?.result;
    assert.fail(`step ${step} has no result: ${await this.why(task)}`);
  }
}
