// Talks to all three APIs with clients that openapi-generator generated for typescript-fetch. Types are checked by tsc.
//
// Usage: conversation ORCHESTRATION_URL WORKER_URL MOUNT_URL

import * as mount from "./mount/index";
import * as orchestration from "./orchestration/index";
import * as worker from "./worker/index";

function want<T>(what: string, got: T, wanted: T) {
  if (got !== wanted) throw new Error(`${what}: got ${JSON.stringify(got)}; want ${JSON.stringify(wanted)}`);
}

async function main([orchestrationURL, workerURL, mountURL]: string[]) {
  const tasks = new orchestration.TasksApi(new orchestration.Configuration({ basePath: orchestrationURL }));
  const task = await tasks.createTask({
    taskRequest: { name: "diamond", namespace: "demo", context: { order_id: 7 }, tags: ["generated"] }, wait: "30s",
  });
  want("createTask", task.status, "complete");
  want("getTask", (await tasks.getTask({ taskUuid: task.taskUuid })).context?.order_id, 7);
  const { transitions } = await tasks.listTransitions({ taskUuid: task.taskUuid });
  want("listTransitions", transitions[transitions.length - 1].toState, "complete");
  const stepsAPI = new orchestration.StepsApi(new orchestration.Configuration({ basePath: orchestrationURL }));
  const steps = await stepsAPI.listSteps({ taskUuid: task.taskUuid });
  want("listSteps", steps[0].results?.success, true);
  const refusal: Response = await stepsAPI.actOnStep({
    taskUuid: task.taskUuid, stepUuid: steps[0].stepUuid,
    stepManualAction: { actionType: "reset_for_retry", reason: "a test", resetBy: "a test" },
  }).then(() => { throw new Error("a step that is complete was reset"); }, (error) => error.response);
  want("actOnStep", orchestration.ApiErrorFromJSON(await refusal.json()).error.code, "BAD_REQUEST");

  const templates = new worker.TemplatesApi(new worker.Configuration({ basePath: workerURL }));
  const path = { namespace: "demo", name: "diamond", version: "latest" };
  const only = { name: "only", handler: { callable: "builtin:noop" } };
  const verdict = await templates.validateTemplate({ ...path, templateDefinition: { name: "own", version: "1.0.0", steps: [only] } });
  want("validateTemplate", verdict.valid, true);

  const mounted = await new mount.TasksApi(new mount.Configuration({ basePath: mountURL })).getTask(
    { id: task.taskUuid, includeDependencies: true });
  want("getTask of the mount", mounted.dependencyAnalysis?.criticalPaths.longestPathLength, 3);
  console.log("typescript-fetch: talked to orchestration, worker, mount point");
}

main(process.argv.slice(2)).catch((error) => {
  console.error(String(error));
  process.exitCode = 1;
});
