// Why a task took as long as it did: the steps that its end waited for, and what their time went to. Nothing here
// touches the page.

// endOf returns when a step ended, or until when it continues.
const endOf = (model, s) => (s.spans.length ? (s.spans.at(-1).to ?? model.end()) : (s.since ?? s.created));

const latest = (model, steps) => steps.reduce((a, b) => (a && endOf(model, a) >= endOf(model, b) ? a : b), undefined);

// criticalPath returns the steps that the end of the task waited for, the first one first: before each stands the one
// of its parents that ended last.
export function criticalPath(model) {
  const path = [];
  for (
    let s = latest(
      model,
      [...model.steps.values()].filter((one) => one.spans.length),
    );
    s;
    s = latest(model, model.parents(s))
  )
    path.unshift(s);
  return path;
}

// timeOf returns what the time of a task went to along its critical path, {run, queue, people, retry, rest} in
// milliseconds.
export function timeOf(model, path) {
  const sum = { run: 0, queue: 0, people: 0, retry: 0, rest: 0 };
  let at = model.created;
  for (const step of path) {
    for (const s of step.spans) {
      const from = Math.max(at, s.from),
        to = Math.max(from, s.to ?? model.end());
      sum.rest += from - at;
      sum[model.kindOf(s, step)] += to - from;
      at = to;
    }
  }
  sum.rest += Math.max(0, model.end() - at);
  return sum;
}
