/** Starts Stepwell for this file of tests, with further flags such as ["--templates", file], and environment variables. */
export function start(flags?: readonly string[], env?: Record<string, string>): Promise<void>;

/**
 * Creates a sandbox, whose clock is frozen. It ends with the test whose context t is, of node:test or vitest, and
 * without one with this file of tests. Options are such as { deterministic_ids: "SEED" }.
 */
export function sandbox(t?: TestContext | null, options?: Record<string, unknown>): Promise<Sandbox>;

/** What a test context of node:test or vitest has. */
export type TestContext = { after(end: () => Promise<void>): void } | { onTestFinished(end: () => Promise<void>): void };

/** A step as the API gives it, with the members that tests need most. */
export interface Step {
  step_uuid: string;
  name: string;
  current_state: string;
  attempts: number;
  [member: string]: unknown;
}

/** A service for one test, with tasks, stubs and a clock of its own. */
export interface Sandbox {
  /** For the application under test. */
  readonly url: string;
  /** Sends a request, fails the test if the service refuses it, and returns the response: JSON as values, else text. */
  request(method: string, path: string, body?: unknown): Promise<any>;
  /** Posts to the control API, under /_stepwell/, and fails the test if the response has a warning. */
  control(path: string, body?: unknown): Promise<any>;
  /** Moves the clock: { advance: "1h" }, or { auto: true } to jump to each timer. */
  clock(change: Record<string, unknown>): Promise<any>;
  /** Scripts the outcomes of a step's attempts; the last one repeats. */
  stub(step: string, ...outcomes: unknown[]): Promise<void>;
  /** Is stub, but after the last outcome the step runs if then is "handler". */
  stubThen(then: "last" | "handler" | "fail", step: string, ...outcomes: unknown[]): Promise<void>;
  /** Creates a task of the template "namespace/name", and returns its id. */
  create(template: string, context?: unknown): Promise<string>;
  /** Runs a task with every fault of every step, and fails the test with the table if one does not end as it should. */
  explore(template: string, context?: unknown, options?: { before?: string; check?: string; allow?: Record<string, string[]> }): Promise<void>;
  /** Waits until nothing runs, and returns the steps of a task. */
  steps(task: string): Promise<Step[]>;
  /** Waits until nothing runs, and returns a step of a task. */
  step(task: string, name: string): Promise<Step>;
  /** Completes a step as a person does. */
  complete(task: string, step: string, result: unknown): Promise<void>;
  /** Waits until nothing runs, and checks the status of a task. */
  status(task: string, want: string): Promise<void>;
  /** Says in one line why a task is stuck. */
  why(task: string): Promise<string>;
  /** Waits until nothing runs, and checks how often a step's handler or stub was called, in this sandbox. */
  calls(step: string, want: number): Promise<void>;
  /** Waits until nothing runs, and returns the result of a step. It fails the test if the step has none. */
  result(task: string, step: string): Promise<any>;
  /** Deletes the sandbox before its test ends. */
  delete(): Promise<void>;
}
