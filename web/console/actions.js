// What a person can do about a step or a task: forms that say what they do, ask for a reason and
// show the same as commands.

import * as api from "./api.js";
import { ResultInput, resultSchema } from "./schema.js";
import { allowedAll, confirmForm, field, h, plural, readJSON, select, toast } from "./ui.js";

let entered = "";

// actor returns the name for forms: as last entered, else that of the caller; actAs notes one that was entered.
export const actor = () => entered || api.subject() || "console";
export const actAs = (name) => {
  entered = name;
};

function namesOf(steps) {
  const some = steps
    .slice(0, 3)
    .map((s) => s.name)
    .join(", ");
  return steps.length > 3 ? `${some} and ${steps.length - 3} more` : some;
}

function thenRuns(children) {
  if (!children) return "";
  return children.length ? `Then ${namesOf(children)} can run.` : "No other step waits for it.";
}

// actions describes each action on a step: its verb on the command line, the button, what it does,
// and the member that says who acts.
const actions = {
  reset_for_retry: {
    verb: "reset",
    label: "Reset …",
    heading: "Reset",
    by: "reset_by",
    action: "Run it again",
    about: (s) => `It runs again, attempts counted from zero: up to ${plural(s.max, "attempt")}.`,
  },
  retry_now: {
    verb: "retry",
    label: "Retry now …",
    heading: "Retry",
    by: "retried_by",
    action: "Retry",
    about: (s) => `Starts at once: ${s.attempts} of ${s.max} attempts used.`,
  },
  complete_manually: {
    verb: "complete",
    label: "Complete …",
    heading: "Complete",
    by: "completed_by",
    action: "Complete the step",
    about: (s, after) => `The step ends as complete, with the result below. ${thenRuns(after)}`,
    inputs: resultInputs,
  },
  resolve_manually: {
    verb: "resolve",
    label: "Resolve …",
    heading: "Resolve",
    by: "resolved_by",
    action: "Resolve the step",
    about: (s, after) => `The step ends as resolved, without a result. ${thenRuns(after)}`,
  },
  fail: {
    verb: "fail",
    label: "Fail …",
    heading: "Fail",
    by: "failed_by",
    action: "Fail the step",
    danger: true,
    about: (s) =>
      `The attempt fails. While attempts are left (${s.attempts} of ${s.max} used), the step is ` +
      `retried, unless you say that it is final.`,
    inputs: errorInputs,
  },
  cancel: {
    verb: "cancel",
    label: "Cancel the step …",
    heading: "Cancel the step",
    by: "cancelled_by",
    action: "Cancel the step",
    danger: true,
    about: (s, after) =>
      "The step will never run." +
      (after?.length
        ? ` ${namesOf(after)} can then not run either, and the task is blocked until somebody acts on ` +
          `${after.length > 1 ? "them" : "it"}.`
        : ""),
  },
};

function resultInputs(schema) {
  const input = new ResultInput(schema);
  return {
    fields: [input.element],
    input,
    body: () => ({ completion_data: { result: input.value() ?? null } }),
    words: () => ["--result", JSON.stringify(input.value() ?? null)],
  };
}

function errorInputs() {
  const message = h("input", { required: true, value: "failed by an operator" }),
    type = h("input", { placeholder: "for example Rejected" });
  const final = select(
    [
      ["retry", "Retry while attempts are left"],
      ["final", "Final: do not retry"],
    ],
    "retry",
  );
  const last = () => final.value === "final";
  const body = () => ({
    error: { message: message.value, retryable: !last(), ...(type.value && { error_type: type.value }) },
  });
  const words = () => [
    "--message",
    message.value,
    ...(type.value ? ["--type", type.value] : []),
    ...(last() ? ["--final"] : []),
  ];
  return {
    fields: [field("Error message", message), field("Error type", type, "Optional."), field("Afterwards", final)],
    body,
    words,
  };
}

// stepForm returns what the form for an action on a step has; schema is that of a result, children are the steps that
// depend on it, if they are known.
/** @type {(name: string, task: any, step: any, options: Record<string, any>) => Record<string, any>} */
export function stepForm(name, task, step, { children, schema, reason: why = "" }) {
  const a = actions[name],
    extra = a.inputs?.(schema) ?? { fields: [], body: () => ({}), words: () => [] };
  const reason = h("input", { required: true, value: why, placeholder: "Why? It is kept in the audit of the step" });
  const by = h("input", { required: true, value: actor() });
  const path = `/v1/tasks/${task.task_uuid}/workflow_steps/${step.id}`;
  const body = () => ({ action_type: name, ...extra.body(), reason: reason.value, [a.by]: by.value });
  return {
    heading: `${a.heading} ${step.name}`,
    about: a.about(step, children),
    action: a.action,
    danger: a.danger,
    fields: [...extra.fields, field("Reason", reason), field("Your name", by)],
    input: extra.input,
    commands: () => [
      ["curl", api.curl("PATCH", path, body())],
      [
        "Command line",
        api.cli(
          "step",
          a.verb,
          task.task_uuid,
          step.name,
          ...extra.words(),
          "--reason",
          reason.value,
          "--by",
          by.value,
        ),
      ],
    ],
    submit: async () => {
      actAs(by.value);
      const changed = await api.patch(path, body());
      toast(`Done: ${a.heading.toLowerCase()} ${step.name}`);
      return changed;
    },
  };
}

// actOn opens the form for an action, and resolves to the changed step or undefined.
const actOn = async (name, task, step, children) =>
  confirmForm(
    stepForm(name, task, step, {
      children,
      schema: name === "complete_manually" && (await resultSchema(task, step.name)),
    }),
  );

// stepButtons makes the buttons for actions on a step, the first one of the kind lead.
export function stepButtons(names, task, step, children, lead = "primary") {
  const order = Object.keys(actions).filter((name) => names.includes(name));
  return allowedAll(
    "steps:resolve",
    order.map((name, i) => [
      actions[name].label,
      () => actOn(name, task, step, children),
      (i === 0 ? lead : "quiet") + " small",
      { "aria-label": actions[name].label.replace("…", step.name) },
    ]),
  );
}

// againFrom opens the form that repeats a task from a step on. It resolves to the new task.
export function againFrom(task, step) {
  const context = h("textarea", { spellcheck: "false" }),
    value = () => readJSON(context, "null");
  const which = select(
    [
      ["", "As it was then"],
      ["--latest", "The newest version"],
    ],
    "",
  );
  const path = `/v1/tasks/${task.task_uuid}/again`,
    body = () => ({ from: step.name, context: value(), latest: !!which.value });
  return confirmForm({
    heading: `Again from ${step.name}`,
    action: "Create the task",
    about: "A new task begins with the results of the steps that do not depend on this one. The others run again.",
    fields: [field("Template", which), field("Context", context, "Leave empty to use the context of this task.")],
    commands: () => [
      ["curl", api.curl("POST", path, body())],
      [
        "Command line",
        api.cli(
          "task",
          "again",
          task.task_uuid,
          "--from",
          step.name,
          ...[which.value, context.value && "--context", context.value].filter(Boolean),
        ),
      ],
    ],
    submit: () => {
      if (value() === undefined) throw new api.ApiError(422, { message: "The context is not valid JSON." });
      return api.post(path, body());
    },
  });
}

// causes returns the steps to act on, without those that only wait for them.
export function causes(steps) {
  const helpful = steps.filter((s) => s.actions.length),
    failed = helpful.filter((s) => s.cause === "failed");
  const roots = failed.length
    ? failed
    : helpful.filter((s) => !s.cause.startsWith("dependency_") && s.cause !== "task_stopped");
  return roots.length ? roots : helpful;
}

export function cancelTask(task, unfinished) {
  const reason = h("input", { required: true, maxlength: 500, placeholder: "Why? It is kept with the task" });
  const path = () => `/v1/tasks/${task.task_uuid}` + api.query({ reason: reason.value });
  return confirmForm({
    heading: "Cancel the task",
    action: "Cancel the task",
    danger: true,
    fields: [field("Reason", reason)],
    about:
      `${plural(unfinished, "unfinished step")} will be cancelled and running handlers stopped. This cannot ` +
      `be undone.`,
    commands: () => [
      ["curl", api.curl("DELETE", path())],
      ["Command line", api.cli("task", "cancel", task.task_uuid, ...(reason.value ? ["--reason", reason.value] : []))],
    ],
    submit: async () => {
      const changed = await api.del(path());
      toast("The task is cancelled.");
      return changed;
    },
  });
}
