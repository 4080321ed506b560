// Talks to all three APIs with clients that openapi-typescript and @hey-api/openapi-ts
// generated. Types are checked by tsc.
//
// Usage: conversation ORCHESTRATION_URL WORKER_URL MOUNT_URL

import createClient from "openapi-fetch";
import type { paths as MountPaths } from "./mount/schema";
import type { paths } from "./orchestration/schema";
import type { paths as WorkerPaths } from "./worker/schema";
import { createClient as createOther } from "./orchestration/hey/client";
import { createTask, getTask, listSteps } from "./orchestration/hey";

function want<T>(what: string, got: T | undefined, wanted: T) {
  if (got !== wanted) throw new Error(`${what}: got ${JSON.stringify(got)}; want ${JSON.stringify(wanted)}`);
}

async function throughFetch(urls: string[]) {
  const client = createClient<paths>({ baseUrl: urls[0] });
  const created = await client.POST("/v1/tasks", {
    params: { query: { wait: "30s" } },
    body: { name: "diamond", namespace: "demo", context: { order_id: 7 }, tags: ["generated"] },
  });
  want("createTask", created.data?.status, "complete");
  const task_uuid = created.data!.task_uuid;
  const read = await client.GET("/v1/tasks/{task_uuid}", { params: { path: { task_uuid } } });
  want("getTask", read.data?.context.order_id, 7);
  const waited = await client.GET("/v1/tasks/{task_uuid}", {
    params: { path: { task_uuid }, query: { wait: "terminal", timeout: "1s" } },
  });
  want("getTask, waiting", waited.data?.total_steps, 4);
  const step_uuid = waited.data!.steps[0].workflow_step_uuid;
  const refused = await client.PATCH("/v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", {
    params: { path: { task_uuid, step_uuid } },
    body: { action_type: "reset_for_retry", reason: "a test", reset_by: "a test" },
  });
  want("actOnStep", refused.error?.error.code, "BAD_REQUEST");
  want("listDeliveries", (await client.GET("/v1/events/deliveries")).data?.deliveries.length, 0);
  want("getClock", (await client.GET("/_stepwell/clock")).data?.mode, "real");

  const worker = createClient<WorkerPaths>({ baseUrl: urls[1] });
  const path = { namespace: "demo", name: "diamond", version: "latest" };
  const verdict = await worker.POST("/v1/templates/{namespace}/{name}/{version}/validate", {
    params: { path },
    body: { name: "own", version: "1.0.0", steps: [{ name: "only", handler: { callable: "builtin:noop" } }] },
  });
  want("validateTemplate", verdict.data?.valid, true);

  const mount = createClient<MountPaths>({ baseUrl: urls[2] });
  const mounted = await mount.GET("/tasks/{id}", {
    params: { path: { id: task_uuid }, query: { include_dependencies: true } },
  });
  want("mount getTask", mounted.data?.dependency_analysis?.critical_paths.longest_path_length, 3);
}

async function throughFunctions(url: string) {
  const client = createOther({ baseUrl: url });
  const created = await createTask({ client, body: { name: "linear", namespace: "demo" }, query: { wait: "30s" } });
  want("createTask of hey-api", created.data?.status, "complete");
  const path = { task_uuid: created.data!.task_uuid };
  want("getTask of hey-api", (await getTask({ client, path })).data?.total_steps, 4);
  const steps = await listSteps({ client, path });
  want("listSteps of hey-api", steps.data?.[0].results?.success, true);
  const missing = await createTask({ client, body: { name: "nothing" } });
  want("createTask of hey-api", missing.error?.error.code, "NOT_FOUND");
}

async function main(urls: string[]) {
  await throughFetch(urls);
  await throughFunctions(urls[0]);
  console.log("typescript: talked to orchestration, worker, mount point");
}

main(process.argv.slice(2)).catch((error) => {
  console.error(String(error));
  process.exitCode = 1;
});
