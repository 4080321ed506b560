// Tests workflows with a real Stepwell: one process for a file of tests, and an isolated sandbox with a virtual clock
// for each test. index.d.cts documents what it exports.
"use strict";
const { execFileSync, spawn } = require("node:child_process");
const { once } = require("node:events");
const { accessSync, constants, existsSync, fstatSync, mkdtempSync, openSync, readSync, realpathSync, rmSync, statSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");

const serve = ["--fixture", "--quiet", "--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--print-ready",
  "--exit-with-parent"];
const windows = process.platform === "win32";
let service; // a promise of { program, url, log }
let untended; // shows the log of the latest test that does not say whether it fails
const open = new Set(); // the sandboxes that are not deleted

// fail ends a test with one line. The stack shows the test, not this file.
function fail(message) {
  untended?.();
  const error = new Error(message);
  error.stack = error.stack.split("\n").filter((line) => !line.includes(__filename)).join("\n");
  throw error;
}

async function request(method, url, body) {
  const reply = await fetch(url, { method, headers: { "Content-Type": "application/json" }, body: body && JSON.stringify(body) })
    .catch((e) => fail(`${method} ${url}: ${e.cause?.message ?? e.message}`)); // such as a service that has ended
  const text = await reply.text();
  const [type] = reply.headers.get("Content-Type")?.split(";") ?? [];
  if (reply.ok) return text && type === "application/json" ? JSON.parse(text) : text || undefined;
  let message;
  try { message = JSON.parse(text).error.message; } catch { /* not from the service */ }
  fail(message ?? `${method} ${url}: ${text}`);
}

// named returns the members that name a template, given as "namespace/name".
function named(template) {
  const [namespace, ...name] = template.split("/");
  return { namespace, name: name.join("/") };
}

// which returns the path of a program on PATH.
function which(name, env) {
  return (env.PATH ?? env.Path ?? "").split(path.delimiter).map((dir) => path.join(dir, windows ? name + ".exe" : name))
    .find((file) => {
      try { accessSync(file, constants.X_OK); } catch { return false; }
      return path.isAbsolute(file) && statSync(file).isFile();
    });
}

// packaged returns the program in the optional package for this platform, which a release has.
function packaged() {
  try {
    return require.resolve(`@stepwell/${process.platform}-${process.arch}/${windows ? "stepwell.exe" : "stepwell"}`);
  } catch { /* there is none */ }
}

// find returns the command that starts Stepwell, found as docs/testing.md says.
function find(env) {
  const given = env.STEPWELL;
  if (given) return existsSync(given) ? [given] : given.split(/\s+/);
  const found = packaged() ?? which("stepwell", env);
  if (found) return [found];
  const checkout = path.join(__dirname, "../.."); // of which npm has linked this directory
  const source = env.STEPWELL_SOURCE || (existsSync(path.join(checkout, "go.mod")) && checkout);
  if (!source) fail("there is no program stepwell: put it on PATH, set STEPWELL to it, or set STEPWELL_SOURCE to its checkout");
  return [build(realpathSync(source), env)];
}

const built = new Map(); // the programs of checkouts

// build builds the program of a checkout, which takes no time if nothing has changed.
function build(source, env) {
  if (built.has(source)) return built.get(source);
  const go = which("go", env) ?? fail(`there is no program stepwell, and no Go to build it in ${source}`);
  try {
    const program = execFileSync(go, ["run", "./packages/build"], { cwd: source, encoding: "utf8",
      stdio: ["ignore", "pipe", "inherit"], env: { ...env, GOFLAGS: "", GOWORK: "off" } }).trim();
    built.set(source, program);
    return program;
  } catch {
    fail(`building the service in ${source} failed: its output says why`);
  }
}

// newLog opens a file for the log of Stepwell, which ends with its last user.
function newLog() {
  const dir = mkdtempSync(path.join(tmpdir(), "stepwell-")), file = openSync(path.join(dir, "log"), "a+");
  try { rmSync(dir, { recursive: true }); } catch { /* Windows does not remove open files */ }
  return file;
}

// tell shows what Stepwell has logged from a position in the file.
function tell(file, from) {
  const text = Buffer.alloc(fstatSync(file).size - from);
  readSync(file, text, 0, text.length, from);
  process.stderr.write(text);
}

async function launch(flags, variables) {
  const env = { ...process.env, ...variables }, [file, ...args] = find(env), log = newLog();
  const program = spawn(file, [...args, ...serve, ...flags], { stdio: ["pipe", "pipe", log], env });
  const refused = () => {
    tell(log, 0);
    fail(`${["stepwell", ...flags].join(" ")} did not start: its output says why`);
  };
  const ended = once(program, "exit").then(refused, (e) => fail(`${file} does not run: ${e.message}`));
  ended.catch(() => {}); // once it serves, it may end
  const [ready] = await Promise.race([once(program.stdout, "data"), ended]);
  // This process ends when nothing else is left to do. That closes the program's standard input, which ends it.
  for (const handle of [program, program.stdin, program.stdout]) handle.unref();
  return { program, log, url: JSON.parse(ready).orchestration_url };
}

// stop ends Stepwell with a file of tests. Its sandboxes go first, so that it has no work to warn about.
async function stop() {
  const ending = service;
  service = undefined;
  await Promise.all([...open].map((s) => s.delete()));
  (await ending?.catch(() => undefined))?.program.stdin.end();
}

// jest, and vitest with its globals, run several files in one process.
globalThis.afterAll?.(stop);

function start(flags = [], env = {}) {
  const before = stop();
  service = before.then(() => launch(flags, env));
  service.catch(() => {}); // sandbox says it
  return service;
}

async function sandbox(t, options = {}) {
  if (!service) start();
  const { url, log } = await service, s = new Sandbox(url + "/_stepwell/sandboxes"), end = t?.after ?? t?.onTestFinished;
  const show = tell.bind(null, log, fstatSync(log).size);
  await s.open(options);
  end?.call(t, () => {
    if (t.passed === false || t.task?.result?.state === "fail") show();
    return s.delete();
  });
  untended = end ? undefined : show;
  return s;
}

class Sandbox {
  #sandboxes;
  #name;

  constructor(sandboxes) { this.#sandboxes = sandboxes; }

  async open(options) {
    const box = await request("POST", this.#sandboxes, options);
    this.#name = box.name;
    this.url = box.orchestration_url;
    open.add(this);
    await this.clock({ freeze: true });
  }

  async delete() {
    open.delete(this);
    await request("DELETE", `${this.#sandboxes}/${this.#name}`);
  }

  request(method, path, body) { return request(method, this.url + path, body); }

  async control(path, body) {
    const reply = await this.request("POST", `/_stepwell/${path}`, body);
    if (reply?.warning) fail(reply.warning); // such as an unknown step
    return reply;
  }

  clock(change) { return this.control("clock", change); }

  stub(step, ...outcomes) { return this.stubThen("last", step, ...outcomes); }

  async stubThen(then, step, ...outcomes) {
    for (const [i, outcome] of outcomes.entries()) {
      try { JSON.stringify(outcome); } catch (e) { fail(`outcomes[${i}] of step ${step} is not JSON: ${e.message.split("\n")[0]}`); }
    }
    await this.control("stubs", { match: { step }, outcomes, then });
  }

  async create(template, context = {}) {
    return (await this.request("POST", "/v1/tasks", { ...named(template), context })).task_uuid;
  }

  async explore(template, context = {}, options = {}) {
    const found = await this.control("explore", { ...named(template), context, ...options });
    if (found.findings) fail("\n" + found.text);
  }

  async steps(task) {
    await this.control("wait-idle");
    return this.request("GET", `/v1/tasks/${task}/workflow_steps`);
  }

  async step(task, name) {
    const steps = await this.steps(task);
    return steps.find((s) => s.name === name) ??
      fail(`the task has no step ${name}; it has ${steps.map((s) => s.name).join(", ")}`);
  }

  async complete(task, step, result) {
    const { step_uuid } = await this.step(task, step);
    await this.request("PATCH", `/v1/tasks/${task}/workflow_steps/${step_uuid}`, {
      action_type: "complete_manually", completion_data: { result }, reason: "test", completed_by: "test",
    });
  }

  async status(task, want) {
    await this.control("wait-idle");
    await this.control("verify", { task_uuid: task, status: want });
  }

  async why(task) { return (await this.request("GET", `/v1/tasks/${task}/explain`)).message; }

  async calls(step, want) {
    await this.control("wait-idle");
    await this.control("verify", { match: { step }, count: { exactly: want } });
  }

  async result(task, step) {
    const found = await this.step(task, step);
    if (!["complete", "resolved_manually"].includes(found.current_state)) {
      fail(`step ${step} has no result: ${await this.why(task)}`);
    }
    return found.results?.result;
  }
}

// A build takes up to a minute. It happens on import, before the limit of the first test begins.
try { find(process.env); } catch { /* sandbox says it */ }

module.exports = { sandbox, start };
