// The steps of the arithmetic templates, for the example worker in JavaScript.
import { codec, work } from "../../examples/worker.mjs";

// Long integers are read as BigInt and written with all their digits.
codec.parse = (text) =>
  JSON.parse(text.replace(/([:[,])(\d{15,})(?=[,\]}])/g, '$1"$2n"'), (_, v) =>
    typeof v === "string" && /^\d+n$/.test(v) ? BigInt(v.slice(0, -1)) : v,
  );
codec.stringify = (value) =>
  JSON.stringify(value, (_, v) => (typeof v === "bigint" ? `${v}n` : v)).replace(/"(\d+)n"/g, "$1");

const parents = JSON.parse(process.env.STEP_PARENTS); // names by name

function compute({ task, step, dependency_results }) {
  const from = parents[step.name];
  const factors = from.length > 0 ? from.map((p) => dependency_results[p]) : [task.context.even_number];
  return factors.reduce((product, n) => product * BigInt(n), 1n) ** 2n;
}

await work({ "tasker_example_rs::*": compute }, "arithmetic.mjs");
