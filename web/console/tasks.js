// The list of tasks.

import * as api from "./api.js";
import { ago, empty, h, link, shortId, state, table } from "./ui.js";

export async function show(root, { query }) {
  const page = await api.get("/v1/tasks" + api.query({ per_page: 50, status: query.get("status") }));
  if (page.tasks.length === 0) return root.replaceChildren(empty("No task", "Start one, and it appears here."));
  root.replaceChildren(h("h1", {}, "Tasks"), table("Tasks", ["State", "Template", "Id", "Created"], page.tasks.map((t) =>
    [state(t.status), `${t.namespace}/${t.name}`, link("/tasks/" + t.task_uuid, shortId(t.task_uuid)), ago(t.created_at)])));
}
