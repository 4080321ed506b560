// The package's own suite, under node:test. Run all of it with: npm install && npm test
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { sandbox, start } from "stepwell";

const [order, leave] = ["order.json", "leave.yaml"].map((name) => new URL("../../../examples/testing/" + name, import.meta.url).pathname);
await start(["--templates", `${order},${leave}`]);

// temporary returns the path of a directory that ends with the test.
function temporary(t) {
  const dir = realpathSync(mkdtempSync(path.join(tmpdir(), "stepwell-npm-")));
  t.after(() => rmSync(dir, { recursive: true }));
  return dir;
}

test("a payment is settled after a retry and seven days", async (t) => {
  const s = await sandbox(t);
  await s.stub("charge", { error: { message: "declined" } }, { result: { receipt: 1 } });
  const task = await s.create("shop/order", { amount: 120 });
  await s.status(task, "waiting_for_retry");
  await s.clock({ advance: "1h" });
  await s.calls("charge", 2);
  assert.deepEqual(await s.result(task, "charge"), { receipt: 1 });
  await s.clock({ auto: true });
  await s.control("wait-idle");
  await s.complete(task, "settle", "settled");
  await s.status(task, "complete");
  assert.equal(await s.result(task, "settle"), "settled");
  assert.deepEqual((await s.steps(task)).map((step) => step.name), ["charge", "return_period", "settle"]);
  assert.equal((await s.step(task, "charge")).attempts, 2);
  assert.equal(await s.why(task), "the task is complete: nothing is left to do");
});

test("every fault of every step", async (t) => {
  const s = await sandbox(t);
  await s.stub("charge", { result: { receipt: 1 } });
  await s.stub("settle", { result: "settled" });
  await assert.rejects(s.explore("shop/order", { amount: 120 }), /STEP +fails_once[^]*--only charge:nobody  stuck: /);
  await s.explore("shop/order", { amount: 120 }, { allow: { nobody: ["stuck"] } });
});

test("nobody answers", async (t) => {
  const s = await sandbox(t), task = await s.create("people/leave", { who: "anna" });
  await s.clock({ auto: true }); // which does not jump to a deadline
  await s.control("wait-idle");
  await s.status(task, "steps_in_process");
  await s.clock({ advance: "48h" });
  assert.equal((await s.step(task, "remind")).current_state, "complete");
  await s.clock({ advance: "24h" });
  await s.status(task, "complete");
  assert.deepEqual((await s.steps(task)).map((step) => step.name), ["ask", "approve", "remind", "approve_late", "nobody_answered"]);
});

test("somebody answers", async (t) => {
  const s = await sandbox(t), task = await s.create("people/leave", { who: "anna" });
  await s.clock({ advance: "71h" });
  await s.complete(task, "approve_late", { decision_point_outcome: { type: "create_steps", step_names: ["grant"] } });
  await s.status(task, "complete");
  assert.deepEqual((await s.steps(task)).map((step) => step.name), ["ask", "approve", "remind", "approve_late", "grant"]);
});

test("tests do not see each other, and a sandbox ends with its test", async (t) => {
  let ended;
  await t.test("first", async (t) => {
    ended = await sandbox(t);
    await ended.create("shop/order");
  });
  await assert.rejects(ended.steps("x"), { message: new RegExp(`^POST ${ended.url}/_stepwell/wait-idle: `) });
  const s = await sandbox(t, { deterministic_ids: "seed" });
  assert.equal((await s.request("GET", "/v1/tasks")).pagination.total_count, 0);
  assert.match((await s.clock({ freeze: true })).now, /^2026-01-01T00:00:00/);
  const task = await s.create("shop/order"), saved = await sandbox(t, { seed: await s.request("GET", "/_stepwell/state") });
  await saved.status(task, "steps_in_process");
});

test("a failure says in one line what happened, and shows the test", async (t) => {
  const s = await sandbox(t);
  await s.stub("charge", { error: { message: "declined" } });
  const task = await s.create("shop/order");
  for (const [check, want] of [
    [() => s.status(task, "complete"), 'the task is waiting_for_retry, not complete: step "charge" '],
    [() => s.status(task, "completed"), 'must be a state of tasks, not "completed"; did you mean complete?'],
    [() => s.stub("charge", { result: 1 }, { result: 1n }), "outcomes[1] of step charge is not JSON: "],
    [() => s.stub("charge", '{"result": 1}'), "outcomes[0] must be an object"],
    [() => s.calls("charge", 2), "1 call matches, 2 wanted: attempt 1 failed (declined)"],
    [() => s.calls("chrge", 1), 'no template has a step "chrge"'],
    [() => s.result(task, "charge"), "step charge has no result: "],
    [() => s.step(task, "pay"), "the task has no step pay; it has charge, return_period, settle"],
    [() => s.create("shop/order/1.0.0"), "no template shop/order/1.0.0 is registered"],
    [() => s.create("shop/odrer"), "no template shop/odrer is registered; did you mean shop/order?"],
    [() => s.request("GET", "/nowhere"), "no such path: /nowhere"],
  ]) {
    await assert.rejects(check, (e) => e.message.includes(want) && !e.message.includes("\n") && !e.stack.includes("index.cjs"), want);
  }
});

test("a service that does not start says so", async (t) => {
  const file = path.join(temporary(t), "test.mjs");
  const entry = new URL("../index.mjs", import.meta.url).href;
  writeFileSync(file, `import { test } from "node:test"; import { sandbox, start } from "${entry}";
    start(["--templates", "nowhere.json"]); test("it", (t) => sandbox(t));`);
  const said = await run([file]);
  assert.match(said, /error: 'stepwell --templates nowhere.json did not start: its output says why'/);
  assert.match(said, /nowhere.json: reading the template: no such file/);
  assert.match(await run([file], { STEPWELL: "/no/such program" }), /error: '\/no\/such does not run: spawn \/no\/such ENOENT'/);
});

test("the log is shown with the test that fails only", async (t) => {
  const file = path.join(temporary(t), "test.mjs");
  writeFileSync(file, `import { test } from "node:test"; import { sandbox, start } from "${new URL("../index.mjs", import.meta.url).href}";
    start(["--templates", "${order}"]);
    for (const [name, want] of [["one", "waiting_for_retry"], ["two", "complete"]]) test(name, async (t) => {
      const s = await sandbox(t);
      await s.stub("charge", { error: { message: "declined " + name } });
      await s.status(await s.create("shop/order"), want);
    });`);
  const said = await run([file]);
  assert.match(said, /"INFO".*declined two/);
  assert.doesNotMatch(said, /declined one/);
});

// run returns the output of a Node that fails. It ends only when the services that it started have ended.
async function run(args, env = {}) {
  const node = spawn(process.execPath, ["--test-reporter=tap", ...args],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, NODE_TEST_CONTEXT: "", ...env } });
  let said = "";
  for (const stream of [node.stdout, node.stderr]) stream.on("data", (text) => { said += text; });
  assert.notDeepEqual(await once(node, "close"), [0, null], said);
  return said;
}

test("the service ends when its runner is killed", async (t) => {
  const file = path.join(temporary(t), "run.mjs");
  const entry = new URL("../index.mjs", import.meta.url).href;
  writeFileSync(file, `import { sandbox } from "${entry}"; console.error((await sandbox()).url);
    process.kill(process.pid, "SIGKILL");`);
  const url = await run([file]);
  while (await fetch(url.trim() + "/health/live").then(() => true, () => false));
});

const posix = { skip: process.platform === "win32" && "needs a shell" };

test("the program is found where it is given, on PATH, or in a checkout", posix, (t) => {
  const dir = temporary(t), installed = path.join(dir, "node_modules/stepwell"), checkout = path.join(dir, "checkout");
  const script = (file, text) => {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, "#!/bin/sh\n" + text);
    chmodSync(file, 0o755);
  };
  for (const to of [installed, path.join(checkout, "packages/npm")]) {
    mkdirSync(to, { recursive: true });
    cpSync(new URL("../index.cjs", import.meta.url).pathname, path.join(to, "index.cjs"));
  }
  script(path.join(dir, "bin/stepwell"), 'echo "on PATH $1" >&2; exit 1');
  script(path.join(dir, "a b/stepwell"), 'echo "given $1" >&2; exit 1');
  script(path.join(dir, "go/go"), `[ ! -e broken ] || { echo "broken: $*" >&2; exit 1; }
    printf '#!/bin/sh\\necho built by %s in %s >&2; exit 1\\n' "$*" "$PWD" >program; chmod +x program; echo "$PWD/program"`);
  // find runs the package that is in a directory, with these variables only, and returns what is said.
  const find = (package_, env) => {
    const code = `require(${JSON.stringify(path.join(package_, "index.cjs"))}).sandbox().catch((e) => console.error(e.message))`;
    const node = `exec "${process.execPath}" -e '${code}' 2>&1`;
    return execFileSync("/bin/sh", ["-c", node], { encoding: "utf8", env });
  };
  const PATH = path.join(dir, "go") + ":/bin:/usr/bin", STEPWELL_SOURCE = checkout;
  assert.match(find(installed, { PATH: path.join(dir, "bin"), STEPWELL: path.join(dir, "a b/stepwell") }), /^given --fixture/);
  assert.match(find(installed, { PATH: path.join(dir, "bin"), STEPWELL_SOURCE }), /^on PATH --fixture/);
  assert.match(find(installed, { PATH: dir }), /^there is no program stepwell: put it on PATH, set STEPWELL to it, or set/);
  assert.equal(find(installed, { PATH: dir, STEPWELL_SOURCE }),
    `there is no program stepwell, and no Go to build it in ${checkout}\n`);
  const built = new RegExp(`^built by run ./packages/build in ${checkout}\n`);
  assert.match(find(installed, { PATH, STEPWELL_SOURCE }), built);
  writeFileSync(path.join(checkout, "broken"), "");
  assert.match(find(installed, { PATH, STEPWELL_SOURCE }),
    new RegExp(`^broken: run ./packages/build\n(?:.*\n)*building the service in ${checkout} failed: its output says why\n$`));
  rmSync(path.join(checkout, "broken"));
  writeFileSync(path.join(checkout, "go.mod"), "");
  assert.match(find(path.join(checkout, "packages/npm"), { PATH }), built, "linked");
});

test("CommonJS and modules share one service", () => {
  assert.equal(createRequire(import.meta.url)("stepwell").sandbox, sandbox);
});

test("the types name what there is", async (t) => {
  const declared = readFileSync(new URL("../index.d.cts", import.meta.url), "utf8").split("interface Sandbox")[1];
  const s = await sandbox(t), names = [...declared.matchAll(/^ {2}(?:readonly )?(\w+)[(:]/gm)].map((m) => m[1]);
  const verbs = Object.getOwnPropertyNames(Object.getPrototypeOf(s)).filter((name) => !["constructor", "open"].includes(name));
  assert.deepEqual(names.toSorted(), [...verbs, "url"].toSorted());
});
