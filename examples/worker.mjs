#!/usr/bin/env node
// A Stepwell worker: claims steps over HTTP and runs them. Copy it, and replace the steps at the end.
// STEPWELL_URL is the URL of the service; STEPWELL_TOKEN is a bearer token, if the service requires one.
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const URL = process.env.STEPWELL_URL ?? "http://127.0.0.1:8080";
const LEASE = 30; // seconds; each claim is extended every third of this
export const codec = { parse: JSON.parse, stringify: JSON.stringify }; // replace for integers beyond 2^53

// Thrown by a step to fail without a retry.
export class Permanent extends Error {}

// Thrown by a step to continue later: the next claim has the cursor in claim.step.checkpoint.
export class Checkpoint extends Error {
  constructor(cursor, items_processed = 0, accumulated_results = null) {
    super("a checkpoint");
    this.body = { cursor, items_processed, accumulated_results };
  }
}

async function send(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (process.env.STEPWELL_TOKEN) headers.Authorization = `Bearer ${process.env.STEPWELL_TOKEN}`;
  const reply = await fetch(`${URL}/v1/steps/${path}`, { method: "POST", headers, body });
  const text = await reply.text();
  if (!reply.ok) throw Object.assign(new Error(`${path}: ${reply.status} ${text}`), { status: reply.status });
  return codec.parse(text);
}

const post = (path, body) => send(path, codec.stringify(body));

// deliver sends an outcome, again and again while there is no response, for the length of a lease.
async function deliver(path, body) {
  for (let left = LEASE; ; left--) {
    try {
      return await send(path, body);
    } catch (e) {
      if (!left || e.status < 500) throw e;
      await sleep(1000);
    }
  }
}

const failure = (e) => ({ message: String(e.message ?? e), error_type: e.name, retryable: !(e instanceof Permanent) });

async function run(steps, claim) {
  const { callable, lease } = claim;
  const path = claim.step.step_uuid;
  const extend = () => post(`${path}/extend`, { lease, lease_seconds: LEASE }).catch((e) => console.error(e.message));
  const alive = setInterval(extend, (LEASE / 3) * 1000);
  const fail = (e) => codec.stringify({ lease, error: failure(e) });
  let verb, body;
  try {
    const fits = (name) => (name.endsWith("*") ? callable.startsWith(name.slice(0, -1)) : callable === name);
    const result = (await steps[Object.keys(steps).find(fits)](claim)) ?? null;
    [verb, body] = ["complete", codec.stringify({ lease, result })]; // a result that is not JSON is a failure of the step
  } catch (e) {
    if (e instanceof Checkpoint) [verb, body] = ["checkpoint", codec.stringify({ lease, ...e.body })];
    else [verb, body] = ["fail", fail(e)];
  } finally {
    clearInterval(alive);
  }
  await deliver(`${path}/${verb}`, body).catch((e) => {
    if (![400, 413, 422].includes(e.status)) throw e; // such as 409: the lease has expired
    return deliver(`${path}/fail`, fail(new Permanent(e.message)));
  });
}

// work claims and runs steps. steps maps each callable, or a prefix and *, to a function.
export async function work(steps, worker_id = hostname()) {
  const want = { callables: Object.keys(steps), limit: 10, lease_seconds: LEASE, wait_seconds: 30, worker_id };
  for (;;) {
    try {
      await Promise.all((await post("claim", want)).map((claim) => run(steps, claim)));
    } catch (e) {
      console.error(e.message);
      await sleep(1000);
    }
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await work({
    "demo.approve": async ({ task }) => ({ approved: task.context.amount < 1000, by: hostname() }),
    "demo.count": async ({ task, step }) => { // counts to the limit in the context, a hundred at a time
      const cursor = Math.min((step.checkpoint?.cursor ?? 0) + 100, task.context.limit);
      if (cursor < task.context.limit) throw new Checkpoint(cursor, cursor);
      return cursor;
    },
  });
}
