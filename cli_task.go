package main

// The commands task and step, and bench, which creates tasks under load and measures how they fare.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func (p *process) taskCommands() command {
	return command{name: "task", help: "create, show, watch and cancel tasks", commands: []command{
		{
			name: "create", operands: "TEMPLATE", help: "create a task of a template",
			more: "TEMPLATE is NAMESPACE/NAME or NAMESPACE/NAME@VERSION. With --wait, the exit code is 4 if the workflow " +
				"failed, and 5 if it has not ended in time.",
			examples: []string{
				`task create demo/diamond --wait`,
				`task create demo/routing --context '{"size":"large"}' --key order-7 --wait=30s`,
			},
			define: p.taskCreate,
		},
		{
			name: "list", help: "list tasks, the newest first",
			examples: []string{
				"task list --status error,blocked_by_failures --sort -updated_at", "task list --namespace demo --limit 5 -o name",
			},
			define: p.taskList,
		},
		{
			name: "show", operands: "TASK", help: "show a task and its steps, in the order of their dependencies",
			more:     "TASK is a UUID, at least 6 characters of its beginning or end, or latest.",
			examples: []string{"task show latest", "task show 5666cd0c -o json"},
			define:   p.taskShow,
		},
		{
			name: "watch", operands: "TASK", help: "follow a task until it ends or is blocked",
			more:     "On a terminal a picture of the steps changes in place; elsewhere each change is a line.",
			examples: []string{"task watch latest", "task watch 5666cd0c --timeout 1m"},
			define:   p.taskWatch,
		},
		{
			name: "explain", operands: "TASK", help: "say why a task is stuck, and what would help",
			examples: []string{"task explain latest", "task explain 5666cd0c -o json"},
			define:   p.taskExplain,
		},
		{
			name: "context", operands: "TASK", help: "print the context of a task as JSON",
			examples: []string{"task context latest", "task context 5666cd0c --url http://127.0.0.1:9000"},
			define:   p.taskContext,
		},
		{
			name: "events", operands: "[TASK]", help: "print the transitions of a task, or of all",
			more:     "With --follow it goes on until it is interrupted.",
			examples: []string{"task events latest", "task events --follow --namespace demo -o jsonl"},
			define:   p.taskEvents,
		},
		{
			name: "cancel", operands: "TASK…", help: "cancel tasks",
			examples: []string{`task cancel latest --reason "ordered twice"`, "task cancel 5666cd0c 77aa01be"},
			define:   p.taskCancel,
		},
	}}
}

// defaultWatch is how long --wait waits.
const defaultWatch = 10 * time.Minute

func (p *process) taskCreate(o *options) runner {
	o.withClient().withOutput()
	text := o.String("context", "", "the context: `JSON`, @FILE, or - for standard input")
	var wait waitFlag
	o.Var(&wait, "wait", "wait for the end, for at most a `DURATION` given as --wait=30s; 10m otherwise")
	key := o.String("key", "", "the Idempotency-Key `KEY`: a repeat with it creates no second task")
	priority := o.Int("priority", 0, "the priority `N`, -100 to 100")
	var tags listFlag
	o.Var(&tags, "tag", "a `TAG` (repeatable)")
	body := map[string]any{}
	for member, help := range map[string]string{
		"initiator": "`WHO` starts it", "source-system": "the `SYSTEM` that starts it", "reason": "the `TEXT` why",
		"correlation-id": "the `UUID` that joins it to other work",
	} {
		o.Func(member, help, func(text string) error {
			body[strings.ReplaceAll(member, "-", "_")] = text
			return nil
		})
	}
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		ref, err := parseTemplateRef(operands[0])
		if err != nil {
			return err
		}
		body["namespace"], body["name"], body["priority"] = ref.namespace, ref.name, *priority
		if ref.version != "" {
			body["version"] = ref.version
		}
		if len(tags) > 0 {
			body["tags"] = []string(tags)
		}
		if *text != "" {
			if body["context"], err = p.jsonArgument("--context", *text); err != nil {
				return err
			}
		}
		created, err := c.do(ctx, call{method: "POST", path: "/v1/tasks", body: body, key: *key})
		if err != nil {
			return err
		}
		if !wait.given {
			return p.print(o, taskOutput(created))
		}
		return p.waitFor(ctx, o, c, created.text("task_uuid"), wait.limit)
	})
}

// waitFor waits for the end of a task, prints it, and returns the error for how it ended.
func (p *process) waitFor(ctx context.Context, o *options, c *client, id string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errWatchEnded)
	defer cancel()
	t, err := c.awaitEnd(ctx, id, nil)
	if t.raw != nil {
		if err := p.print(o, taskOutput(t)); err != nil {
			return err
		}
	}
	return err
}

// taskOutput is one task.
func taskOutput(t document) output {
	return output{t, member("task_uuid"), func(tb *table) {
		tb.fields(t, []column{
			of("task", "task_uuid"), templateColumn, stateOfColumn("status", "status"),
			{head: "steps", show: func(_ *table, d document) string { return progress(d) }},
			{head: "age", show: func(tb *table, d document) string { return tb.p.age(d, "created_at") }},
			{head: "took", show: func(_ *table, d document) string { return took(d, "created_at", "completed_at") }},
			of("reason", "reason"), of("initiator", "initiator"), listColumn("tags", "tags"),
			of("priority", "priority").whenWide(), of("source", "source_system").whenWide(),
			of("correlation", "correlation_id").whenWide(), of("health", "health_status").whenWide(),
			of("context", "context").whenWide(),
		})
	}}
}

var templateColumn = column{head: "template", show: func(_ *table, d document) string {
	return printable(qualifiedName(d) + "@" + d.text("version"))
}}

func listColumn(head, path string) column {
	return column{head: head, show: func(_ *table, d document) string {
		var words []string
		for _, e := range d.at(path).list() {
			words = append(words, printable(e.text("")))
		}
		return strings.Join(words, ", ")
	}}
}

// progress writes how many of a task's steps are done, and how many failed.
func progress(t document) string {
	text := t.text("completed_steps") + "/" + t.text("total_steps")
	if failed := t.text("failed_steps"); failed != "0" && failed != "" {
		text += ", " + failed + " failed"
	}
	return text
}

// took writes the time between two members, or nothing if one is missing.
func took(d document, begin, end string) string {
	from, ok := d.when(begin)
	to, also := d.when(end)
	if !ok || !also {
		return ""
	}
	return shortDuration(to.Sub(from))
}

var taskColumns = []column{
	of("TASK", "task_uuid"), {head: "TEMPLATE", show: templateColumn.show}, stateOfColumn("STATUS", "status"),
	{head: "STEPS", show: func(_ *table, d document) string { return progress(d) }},
	ageOf("AGE", "created_at"),
	{head: "TOOK", show: func(_ *table, d document) string { return took(d, "created_at", "completed_at") }},
	of("PRIORITY", "priority").whenWide(), of("INITIATOR", "initiator").whenWide(),
	of("SOURCE", "source_system").whenWide(), listColumn("TAGS", "tags").whenWide(), of("REASON", "reason").whenWide(),
}

func (p *process) taskList(o *options) runner {
	o.withClient().withOutput()
	query := url.Values{}
	o.filters(query, [][2]string{
		{"namespace", "only of this `NAMESPACE`"}, {"name", "only of templates of this `NAME`"},
		{"template-version", "only of this `VERSION` of a template"}, {"status", "only in this `STATE`, or in several between commas"},
		{"text", "only of templates with this `TEXT` in namespace or name"}, {"tag", "only with this `TAG`; repeat it for several"},
		{"initiator", "only by this `INITIATOR`"}, {"source-system", "only from this `SYSTEM`"},
		{"correlation-id", "only with this correlation `UUID`"},
		{"parent-correlation-id", "only with this parent correlation `UUID`"},
		{"created-after", "only created after this `TIME`, like 2026-01-31T12:00:00Z"},
		{"created-before", "only created before this `TIME`"},
		{"updated-after", "only last changed after this `TIME`"}, {"updated-before", "only last changed before this `TIME`"},
		{"completed-after", "only completed after this `TIME`"}, {"completed-before", "only completed before this `TIME`"},
		{"sort", "in this `ORDER`: created_at, updated_at, completed_at, priority; the last first with a minus"},
	})
	limit := o.Int("limit", 25, "list `N` tasks at most")
	watch := o.Bool("watch", false, "list again whenever something changes, until interrupted")
	return p.asks(o, func(ctx context.Context, c *client, _ []string) error {
		if *limit < 1 {
			return o.misuse("--limit must be 1 or more")
		}
		show := func() (output, error) {
			tasks, _, err := c.tasks(ctx, query, *limit)
			return listOutput(tasks, "task_uuid", "no task", taskColumns), err
		}
		if *watch {
			return p.watchList(ctx, o, c, show)
		}
		out, err := show()
		if err != nil {
			return err
		}
		return p.print(o, out)
	})
}

// filters adds a flag for each name that sets the parameter of a query.
func (o *options) filters(query url.Values, flags [][2]string) {
	for _, f := range flags {
		key := strings.ReplaceAll(strings.TrimPrefix(f[0], "template-"), "-", "_")
		o.Func(f[0], f[1], func(text string) error {
			switch key {
			case "text":
				query.Set("q", text)
			case "tag":
				query.Add(key, text)
			default:
				query.Set(key, text)
			}
			return nil
		})
	}
}

// listOutput is a list of items, or a sentence if there are none.
func listOutput(items []document, name, none string, columns []column) output {
	if items == nil {
		items = []document{}
	}
	return output{items, member(name), func(t *table) {
		if len(items) == 0 && !t.headless {
			t.line(none)
			return
		}
		t.list(items, columns)
	}}
}

func (p *process) taskShow(o *options) runner {
	o.withClient().withOutput()
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		path, _, err := c.taskPath(ctx, operands[0])
		if err != nil {
			return err
		}
		t, err := c.get(ctx, path, nil)
		if err != nil {
			return err
		}
		out := taskOutput(t)
		head := out.table
		out.table = func(tb *table) {
			head(tb)
			tb.line("")
			tb.steps(newPicture(t, c.shape(ctx, t)))
		}
		return p.print(o, out)
	})
}

func (p *process) taskExplain(o *options) runner {
	o.withClient().withOutput()
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		path, id, err := c.taskPath(ctx, operands[0])
		if err != nil {
			return err
		}
		e, err := c.get(ctx, path+"/explain", nil)
		if c.lacks(ctx, err, path) {
			return exitf(exitFailed, "%s has no explanations; stepwell task show %s lists the steps", c.base, id)
		}
		if err != nil {
			return err
		}
		return p.print(o, output{e, member("task_uuid"), func(t *table) { t.explanation(e) }})
	})
}

// explanation adds why a task is stuck: the message, and each unfinished step.
func (t *table) explanation(e document) {
	t.line(t.state(e.text("status")) + ": " + printable(e.text("message")))
	for _, s := range e.at("steps").list() {
		t.row(t.sign(s.text("current_state"))+" "+printable(s.text("name")), printable(s.text("message")))
		var verbs []string
		for _, a := range s.at("actions").list() {
			verbs = append(verbs, cmp.Or(actionVerbs[a.text("")], a.text("")))
		}
		if len(verbs) > 0 {
			t.row("", t.paint(faint, fmt.Sprintf("stepwell step %s %s %s", strings.Join(verbs, "|"),
				e.text("task_uuid"), printable(s.text("name")))))
		}
	}
}

func (p *process) taskContext(o *options) runner {
	o.withClient()
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		path, _, err := c.taskPath(ctx, operands[0])
		if err != nil {
			return err
		}
		d, err := c.get(ctx, path+"/context", nil)
		if err != nil {
			return err
		}
		return p.printJSON(d.at("context"))
	})
}

func (p *process) printJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (p *process) taskCancel(o *options) runner {
	o.withClient().withOutput()
	reason := o.String("reason", "", "the `TEXT` why")
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		cancelled, query := []document{}, url.Values{}
		if *reason != "" {
			query.Set("reason", *reason)
		}
		for _, name := range operands {
			path, _, err := c.taskPath(ctx, name)
			if err != nil {
				return err
			}
			t, err := c.do(ctx, call{method: "DELETE", path: path, query: query})
			if err != nil {
				return err
			}
			cancelled = append(cancelled, t)
		}
		return p.print(o, listOutput(cancelled, "task_uuid", "", taskColumns))
	})
}

func (p *process) stepCommands() command {
	actor := []string{"by", "`WHO` acts; by default $USER"}
	return command{name: "step", help: "list, show and act on the steps of a task", commands: []command{
		{
			name: "list", operands: "TASK", help: "list the steps of a task in the order of their creation",
			examples: []string{"step list latest", "step list 5666cd0c -o wide"}, define: p.stepList,
		},
		{
			name: "show", operands: "TASK STEP", help: "show a step and its result",
			more:     "STEP is the name of the step, or its UUID.",
			examples: []string{"step show latest charge", "step show latest charge -o json"}, define: p.stepShow,
		},
		{
			name: "audit", operands: "TASK STEP", help: "list the attempts at a step and what operators did, the newest first",
			examples: []string{"step audit latest charge", "step audit latest charge -o json"}, define: p.stepAudit,
		},
		p.stepAction("complete", "complete a step with a result, which its dependents can read", actor),
		p.stepAction("fail", "fail a step, as an outside actor does whose work failed", actor),
		p.stepAction("resolve", "resolve a failed step without a result, so that its dependents run", actor),
		p.stepAction("reset", "run a failed step again", actor),
		p.stepAction("cancel", "cancel a step", actor),
	}}
}

// actionVerbs holds the verbs of the command line for the actions of the API.
var actionVerbs = map[string]string{
	"complete_manually": "complete", "fail": "fail", "resolve_manually": "resolve", "reset_for_retry": "reset",
	"cancel": "cancel",
}

// stepVerbs holds, by verb, the action, the member that names who acts, and an example.
var stepVerbs = map[string]struct{ action, actor, example string }{
	"complete": {"complete_manually", "completed_by", `step complete latest approve --result '{"approved":true}'`},
	"fail":     {"fail", "failed_by", `step fail latest approve --message "not approved" --final`},
	"resolve":  {"resolve_manually", "resolved_by", `step resolve latest charge --reason "paid in cash"`},
	"reset":    {"reset_for_retry", "reset_by", `step reset latest charge --reason "the card was replaced"`},
	"cancel":   {"cancel", "cancelled_by", `step cancel latest deliver --reason "picked up by the customer"`},
}

// stepAction returns the command for an action on a step.
func (p *process) stepAction(verb, help string, actor []string) command {
	v := stepVerbs[verb]
	return command{
		name: verb, operands: "TASK STEP", help: help,
		examples: []string{v.example, v.example + " --by jo"},
		define: func(o *options) runner {
			o.withClient().withOutput()
			reason := o.String("reason", "by the command line", "the `TEXT` why")
			by := o.String(actor[0], "", actor[1])
			member := o.actionMember(verb, p)
			return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
				body := map[string]any{
					"action_type": v.action, "reason": *reason,
					v.actor: cmp.Or(*by, p.getenv("USER"), "stepwell-cli"),
				}
				if err := member(body); err != nil {
					return err
				}
				path, err := c.stepPath(ctx, operands[0], operands[1])
				if err != nil {
					return err
				}
				s, err := c.do(ctx, call{method: "PATCH", path: path, body: body})
				if err != nil {
					return fmt.Errorf("step %s: %w", verb, err)
				}
				return p.print(o, stepOutput(s))
			})
		},
	}
}

// actionMember defines the flags of complete, fail and reset, and returns what sets their member of
// the action.
func (o *options) actionMember(verb string, p *process) func(body map[string]any) error {
	switch verb {
	case "complete":
		result := o.String("result", "null", "the result: `JSON`, @FILE, or - for standard input")
		return func(body map[string]any) error {
			v, err := p.jsonArgument("--result", *result)
			body["completion_data"] = map[string]any{"result": v}
			return err
		}
	case "fail":
		message := o.String("message", "failed by an operator", "the `TEXT` of the error")
		kind := o.String("type", "", "the `TYPE` of the error")
		final := o.Bool("final", false, "do not retry")
		return func(body map[string]any) error {
			e := map[string]any{"message": *message, "retryable": !*final}
			if *kind != "" {
				e["error_type"] = *kind
			}
			body["error"] = e
			return nil
		}
	case "reset":
		forget := o.Bool("clear-checkpoint", false, "begin from the start, not from the step's checkpoint")
		return func(body map[string]any) error {
			if *forget { // services from before checkpoints do not know it
				body["clear_checkpoint"] = true
			}
			return nil
		}
	}
	return func(map[string]any) error { return nil }
}

func attemptsColumn(head string) column {
	return column{head: head, show: func(_ *table, d document) string { return d.text("attempts") + "/" + d.text("max_attempts") }}
}

func tookColumn(head string) column {
	return column{head: head, show: func(_ *table, d document) string {
		return took(d, "results.metadata.started_at", "completed_at")
	}}
}

var stepColumns = []column{
	of("STEP", "name"),
	stateOfColumn("STATE", "current_state"),
	attemptsColumn("ATTEMPT"),
	tookColumn("TOOK"),
	{head: "RESULT", show: func(_ *table, d document) string { return outcomeText(d, 60) }},
	of("UUID", "step_uuid").whenWide(), ageOf("AGE", "created_at").whenWide(),
	of("NEXT RETRY", "next_retry_at").whenWide(),
}

// outcomeText writes the result or the error of a step, clipped.
func outcomeText(step document, limit int) string {
	if message := step.text("results.error.message"); message != "" {
		if state := step.text("current_state"); state != "error" && state != "waiting_for_retry" {
			message = "last error: " + message
		}
		return clipText(printable(message), limit)
	}
	result := step.at("results.result")
	if len(result.raw) == 0 {
		return ""
	}
	return clipText(string(result.raw), limit)
}

func (p *process) stepList(o *options) runner {
	o.withClient().withOutput()
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		path, _, err := c.taskPath(ctx, operands[0])
		if err != nil {
			return err
		}
		steps, err := c.get(ctx, path+"/workflow_steps", nil)
		if err != nil {
			return err
		}
		return p.print(o, listOutput(steps.list(), "name", "the task has no step", stepColumns))
	})
}

// ofStep is a command about a step: its flags, and a path below it.
func (p *process) ofStep(o *options, below string, print func(document) error) runner {
	o.withClient().withOutput()
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		path, err := c.stepPath(ctx, operands[0], operands[1])
		if err != nil {
			return err
		}
		d, err := c.get(ctx, path+below, nil)
		if err != nil {
			return err
		}
		return print(d)
	})
}

func (p *process) stepShow(o *options) runner {
	return p.ofStep(o, "", func(d document) error { return p.print(o, stepOutput(d)) })
}

func stepOutput(s document) output {
	return output{s, member("name"), func(t *table) {
		t.fields(s, []column{
			of("step", "name"), of("uuid", "step_uuid"), stateOfColumn("state", "current_state"),
			attemptsColumn("attempts"), tookColumn("took"),
			of("next retry", "next_retry_at"), of("last error", "results.error.message"),
			of("error type", "results.error.error_type"),
			{head: "result", show: func(_ *table, d document) string {
				if d.text("results.error.message") != "" {
					return ""
				}
				return string(d.at("results.result").raw)
			}},
			of("created", "created_at").whenWide(), of("completed", "completed_at").whenWide(),
			of("metadata", "results.metadata").whenWide(),
		})
	}}
}

// bench: load on a service, and what came of it.

const (
	maxBenchClients = 10_000
	benchLongPoll   = time.Second            // how long the creation itself waits, where the service has that
	benchPollEvery  = 100 * time.Millisecond // at most, after that
	benchFailures   = 10                     // kinds of failures that are told apart
)

func (p *process) benchCommand() command {
	return command{
		name: "bench", help: "create tasks for a while, and measure how long they take to end",
		more: "It uses POST /v1/tasks with wait, and GET /v1/tasks/{task_uuid} until the task has ended where the " +
			"service does not wait. Without --rate each client creates a task when its last one has ended (closed loop). " +
			"With --rate tasks are due at fixed times, and their time counts from then, so that no stall is hidden (open loop). " +
			"Percentiles are at most 6 % off. The first task is not counted: if it fails, its error ends the command.",
		examples: []string{
			"bench --template demo/diamond --clients 16 --duration 10s", "bench --rate 500 --duration 1m -o json",
		},
		define: p.bench,
	}
}

func (p *process) bench(o *options) runner {
	o.withClient().withOutput()
	template := o.String("template", "demo/diamond", "create tasks of this `TEMPLATE`")
	text := o.String("context", "", "their context: `JSON`, @FILE, or - for standard input")
	b := &benchLoad{failures: map[string]int{}}
	o.IntVar(&b.clients, "clients", 16, "let `N` clients create tasks, each one at a time")
	o.Float64Var(&b.rate, "rate", 0, "create `N` tasks per second, whether or not earlier ones have ended")
	o.DurationVar(&b.length, "duration", 10*time.Second, "create tasks for a `DURATION`")
	o.DurationVar(&b.patience, "timeout", 30*time.Second, "a task fails that has not ended after a `DURATION`")
	noWait := o.Bool("no-wait", false, "measure the creation only, and do not wait for the end")
	return p.asks(o, func(ctx context.Context, c *client, _ []string) error {
		ref, err := parseTemplateRef(*template)
		switch {
		case err != nil:
			return err
		case b.clients < 1 || b.clients > maxBenchClients:
			return o.misuse("--clients must be from 1 to %d", maxBenchClients)
		case !(b.rate >= 0 && b.rate <= 1e6):
			return o.misuse("--rate must be from 0 to 1000000")
		case b.length <= 0 || b.patience <= 0:
			return o.misuse("--duration and --timeout must be more than 0")
		}
		b.client, b.waits, b.mark = c, !*noWait, fmt.Sprintf("bench-%d-", p.now())
		b.body = map[string]any{"namespace": ref.namespace, "name": ref.name, "source_system": "stepwell bench"}
		if ref.version != "" {
			b.body["version"] = ref.version
		}
		if *text != "" {
			if b.body["context"], err = p.jsonArgument("--context", *text); err != nil {
				return err
			}
		}
		return p.runBench(ctx, o, b)
	})
}

// runBench makes the load, and prints what it has measured, also if it is interrupted.
func (p *process) runBench(ctx context.Context, o *options, b *benchLoad) error {
	ctx, release := interruptible(ctx, 0)
	defer release()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, b.clients
	b.client.http.Transport = transport
	defer transport.CloseIdleConnections()
	if err := b.one(ctx, 0); err != nil {
		return err
	}
	show, end := p.progressLine()
	b.run(ctx, show)
	end()
	v := b.result()
	if err := p.print(o, output{v, member("tasks_per_second"), v.table}); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if v.Tasks == 0 {
		return exitf(exitFailed, "no task ended as it should: %s", v.worst())
	}
	return nil
}

// progressLine returns what shows a line of progress on standard error, on a terminal in place of the
// last one, and what removes it there at the end.
func (p *process) progressLine() (show func(line string), end func()) {
	if p.styleOf(p.stderr).terminal == nil {
		return func(line string) { fmt.Fprintln(p.stderr, line) }, func() {}
	}
	const clearLine = "\r\x1b[K"
	return func(line string) { io.WriteString(p.stderr, clearLine+line) }, func() { io.WriteString(p.stderr, clearLine) }
}

// benchLoad is the load that bench makes, and what it has measured.
type benchLoad struct {
	client           *client
	body             map[string]any // of each creation, without its key
	mark             string         // begins the keys
	waits            bool           // for the ends of tasks
	clients          int
	rate             float64 // tasks per second; 0 for as many as the clients can create
	length, patience time.Duration

	next  atomic.Int64 // the number of the newest task
	began time.Time
	took  time.Duration // from began to the end of the last task

	mu          sync.Mutex
	all, second benchCount     // second: since the last line of progress; guarded by mu, as all below
	failures    map[string]int // by message
}

// benchCount counts tasks that ended as they should, by how long they took, and others.
type benchCount struct {
	times  latencyHistogram
	failed int
}

func (c *benchCount) note(took time.Duration, err error) {
	if err != nil {
		c.failed++
		return
	}
	c.times.observe(took.Microseconds())
}

// run makes the load. It calls show with a line each second.
func (b *benchLoad) run(ctx context.Context, show func(line string)) {
	b.began = time.Now()
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range b.clients {
		clients.Go(func() { b.work(ctx) })
	}
	go func() {
		clients.Wait()
		close(done)
	}()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			show(b.progress())
		case <-done:
			b.took = time.Since(b.began)
			return
		}
	}
}

// work plays a client.
func (b *benchLoad) work(ctx context.Context) {
	end := b.began.Add(b.length)
	for {
		n := b.next.Add(1)
		due := time.Now()
		if b.rate > 0 {
			due = b.began.Add(time.Duration(float64(n-1) / b.rate * float64(time.Second)))
		}
		if !due.Before(end) || !sleepUntil(ctx, due) || !time.Now().Before(end) {
			b.next.Add(-1) // it was not created
			return
		}
		err := b.one(ctx, n)
		if ctx.Err() != nil {
			return // it may have failed because of that
		}
		b.note(time.Since(due), err)
	}
}

// sleepUntil waits for a moment, and reports whether it came before the end of ctx.
func sleepUntil(ctx context.Context, at time.Time) bool {
	if d := time.Until(at); d > 0 {
		receiveWithin(ctx.Done(), d)
	}
	return ctx.Err() == nil
}

// one creates a task, whatever there was before, and waits until it has ended. The error is why it did
// not end as it should.
func (b *benchLoad) one(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	q := call{method: "POST", path: "/v1/tasks", body: maps.Clone(b.body)}
	q.body.(map[string]any)["idempotency_key"] = b.mark + strconv.FormatInt(n, 10)
	if b.waits {
		q.query = url.Values{"wait": {min(b.patience, benchLongPoll).String()}}
	}
	t, err := b.client.do(ctx, q)
	for pause := time.Millisecond; err == nil && b.waits; pause = min(2*pause, benchPollEvery) {
		if good, ended := endStates[t.text("status")]; ended && !good {
			return exitf(exitWorkflow, "the task is %s", t.text("status"))
		} else if ended {
			return nil
		}
		if !sleepUntil(ctx, time.Now().Add(pause)) {
			return b.client.failed(ctx, ctx.Err())
		}
		t, err = b.client.get(ctx, "/v1/tasks/"+t.text("task_uuid"), nil)
	}
	return err
}

// note counts a task.
func (b *benchLoad) note(took time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all.note(took, err)
	b.second.note(took, err)
	if err == nil {
		return
	}
	message := err.Error()
	if _, known := b.failures[message]; !known && len(b.failures) >= benchFailures {
		message = "other failures"
	}
	b.failures[message]++
}

// progress describes the time since it was last called.
func (b *benchLoad) progress() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.second
	b.second = benchCount{}
	return fmt.Sprintf("%4.0fs  %d tasks/s  p50 %s  p99 %s  max %s  %d failed", time.Since(b.began).Seconds(), c.times.count,
		benchTime(c.times.quantile(0.5)), benchTime(c.times.quantile(0.99)), benchTime(float64(c.times.max)), c.failed)
}

// benchTime writes a time in microseconds.
func benchTime(us float64) string {
	return shortDuration(time.Duration(us * float64(time.Microsecond)))
}

// benchResult holds the figures that bench prints. Times are in milliseconds.
type benchResult struct {
	URL            string             `json:"url"`
	Template       string             `json:"template"`
	Loop           string             `json:"loop"` // open or closed
	Clients        int                `json:"clients"`
	Rate           *float64           `json:"rate"` // null in a closed loop
	Seconds        float64            `json:"duration_seconds"`
	Tasks          uint64             `json:"tasks"` // that ended as they should
	TasksPerSecond float64            `json:"tasks_per_second"`
	Latency        map[string]float64 `json:"latency_ms"`
	Errors         int                `json:"errors"`
	Failures       map[string]int     `json:"failures"` // errors by message
	Missed         int                `json:"missed"`   // due in an open loop, but no client was free
}

// benchQuantiles are the percentiles that bench prints.
var benchQuantiles = []struct {
	name  string
	share float64
}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"p99_9", 0.999}}

func (b *benchLoad) result() *benchResult {
	thousandth := func(f float64) float64 { return math.Round(f*1000) / 1000 }
	seconds := b.took.Seconds()
	v := &benchResult{
		URL: redactURL(b.client.base), Template: fmt.Sprintf("%s/%s", b.body["namespace"], b.body["name"]),
		Loop: "closed", Clients: b.clients, Seconds: thousandth(seconds), Tasks: b.all.times.count,
		TasksPerSecond: thousandth(float64(b.all.times.count) / seconds), Errors: b.all.failed, Failures: b.failures,
		Latency: map[string]float64{
			"mean": thousandth(b.all.times.mean() / 1000), "max": thousandth(float64(b.all.times.max) / 1000),
		},
	}
	for _, q := range benchQuantiles {
		v.Latency[q.name] = thousandth(b.all.times.quantile(q.share) / 1000)
	}
	if b.rate > 0 {
		due := math.Ceil(b.rate * min(seconds, b.length.Seconds()))
		v.Loop, v.Rate, v.Missed = "open", &b.rate, max(int(due)-int(b.next.Load()), 0)
	}
	return v
}

// worst returns the most frequent failure.
func (v *benchResult) worst() string {
	worst := "none was created"
	for _, message := range slices.Sorted(maps.Keys(v.Failures)) {
		if v.Failures[message] > v.Failures[worst] {
			worst = message
		}
	}
	return worst
}

func (v *benchResult) table(t *table) {
	row := func(name, format string, args ...any) { t.row(t.paint(faint, name), fmt.Sprintf(format, args...)) }
	row("template", "%s at %s", printable(v.Template), printable(v.URL))
	load := fmt.Sprintf("closed loop, %d clients", v.Clients)
	if v.Rate != nil {
		load = fmt.Sprintf("open loop, %v tasks/s by at most %d clients", *v.Rate, v.Clients)
	}
	row("load", "%s, for %s", load, shortDuration(time.Duration(v.Seconds*float64(time.Second))))
	row("throughput", "%.1f tasks/s", v.TasksPerSecond)
	row("tasks", "%d", v.Tasks)
	for _, q := range benchQuantiles {
		row(strings.ReplaceAll(q.name, "_", "."), "%s", benchTime(v.Latency[q.name]*1000))
	}
	row("max", "%s", benchTime(v.Latency["max"]*1000))
	row("errors", "%d", v.Errors)
	for _, message := range slices.Sorted(maps.Keys(v.Failures)) {
		t.row("", fmt.Sprintf("%d: %s", v.Failures[message], printable(message)))
	}
	if v.Rate != nil {
		row("missed", "%d: due, but no client was free", v.Missed)
	}
}
