#!/usr/bin/env node
// The handlers of the approval workflow, an HTTP service. Run: node handlers.mjs [PORT [ADDRESS]]
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const choose = (...step_names) => ({ decision_point_outcome: { type: "create_steps", step_names } });

// steps maps each callable to its function.
const steps = {
  "expenses.record": ({ task }) => ({ amount: task.context.amount }),
  "expenses.check": ({ dependency_results: { record } }) => choose(record.amount < 100 ? "pay" : "approve"),
  "expenses.decide": ({ dependency_results: { approve } }) => choose(approve.approved ? "pay" : "reject"),
  "expenses.pay": ({ task }) => ({ paid: task.context.amount }),
  "expenses.reject": ({ dependency_results: { approve } }) => ({ rejected: approve.reason ?? "no reason given" }),
  "expenses.tell": ({ dependency_results: { pay, reject } }) => (pay ? `paid ${pay.paid}` : `rejected: ${reject.rejected}`),
};

export const server = createServer(async (request, reply) => {
  const call = JSON.parse(Buffer.concat(await request.toArray()));
  const step = steps[call.step.handler.callable];
  if (!step) return reply.writeHead(404).end(`no step ${call.step.handler.callable}`);
  reply.setHeader("Content-Type", "application/json");
  try {
    reply.end(JSON.stringify(step(call)));
  } catch (e) { // an error of the program, which another attempt would not mend
    reply.end(JSON.stringify({ success: false, error: { message: e.message, error_type: e.name, retryable: false } }));
  }
});

if (import.meta.url === pathToFileURL(process.argv[1]).href) server.listen(process.argv[2] ?? 9000, process.argv[3] ?? "127.0.0.1");
