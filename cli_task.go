package main

// The command task.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func taskCommands() command {
	return command{name: "task", help: "create, show, watch and cancel tasks", commands: []command{
		{
			name: "create", effect: adds, operands: "TEMPLATE", help: "create a task of a template",
			more: "TEMPLATE is " + operandHelp["TEMPLATE"] + ". With --wait, the exit code is 4 if the workflow " +
				"failed, and 5 if it timed out.",
			examples: []string{
				`task create demo/diamond --wait`,
				`task create demo/routing --context '{"size":"large"}' --key order-7 --wait=30s`,
			},
			define: createTask,
		},
		{
			name: "again", effect: adds, operands: "TASK", help: "repeat a task from a step on, with the results of the steps before it",
			more: "The new task begins with the results of all finished steps that do not depend on STEP. STEP and the " +
				"remaining steps run again. STEP may be one instance of a batch worker, or the batch worker itself for all instances.",
			examples: []string{
				"task again latest --from charge --wait",
				`task again 5666cd0c --from charge --latest --context '{"amount":5}'`,
			},
			define: repeatTask,
		},
		{
			name: "list", effect: reads, help: "list tasks, the newest first",
			examples: []string{
				"task list --status error,blocked_by_failures --sort -updated_at", "task list --namespace demo --limit 5 -o name",
			},
			define: listTasks,
		},
		{
			name: "show", effect: reads, operands: "TASK", help: "show a task and its steps, in the order of their dependencies",
			more: "TASK is " + operandHelp["TASK"] + ". Of a task with more than " + strconv.Itoa(maxShownSteps) + " steps, only that many " +
				"unfinished ones are shown.",
			examples: []string{"task show latest --unfinished", "task show 5666cd0c -o json"},
			define:   showTask,
		},
		{
			name: "watch", operands: "TASK", help: "follow a task until it ends or is blocked",
			more:     "Each change is a line; on a terminal, a bar below the lines shows the progress.",
			examples: []string{"task watch latest", "task watch 5666cd0c --timeout 1m"},
			define:   watchTask,
		},
		{
			name: "explain", effect: reads, operands: "TASK", help: "explain why a task is stuck, and what would help",
			examples: []string{"task explain latest", "task explain 5666cd0c -o json"},
			define:   explainTask,
		},
		{
			name: "context", effect: reads, operands: "TASK", help: "print the context of a task as JSON",
			examples: []string{"task context latest", "task context 5666cd0c --url http://127.0.0.1:9000"},
			define:   printContext,
		},
		{
			name: "events", effect: reads, operands: "TASK", help: "print the transitions of a task so far",
			examples: []string{"task events latest", "task events 5666cd0c -o jsonl"},
			define:   lists(transitionList),
		},
		{
			name: "cancel", effect: changes, operands: "[TASK…]", help: "cancel tasks",
			more: "Without TASK, flags select many tasks; --yes cancels them.",
			examples: []string{
				`task cancel latest --reason "ordered twice"`,
				"task cancel --status waiting_for_retry --name import --yes",
			},
			define: cancelTasks,
		},
	}}
}

// defaultWatch is how long --wait waits.
const defaultWatch = 10 * time.Minute

func createTask(o *options) runner {
	text := o.String("context", "", "`JSON`: set the context, from JSON, @FILE, or - for standard input")
	create := o.creates()
	priority := o.Int("priority", 0, "`N`: set the priority; higher runs first")
	var tags []string
	o.Func("tag", "`TAG`: add a tag (repeatable)", func(text string) error {
		tags = append(tags, text)
		return nil
	})
	body := map[string]any{}
	o.memberFlag(body, "initiator", "initiator", "`WHO`: record who starts the task")
	o.memberFlag(body, "source-system", "source_system", "`SYSTEM`: record which system starts the task")
	o.memberFlag(body, "reason", "reason", "`TEXT`: record why")
	o.memberFlag(body, "idempotency-key", "idempotency_key", "`KEY`: set the task's own key, which no second task of the template may have")
	o.memberFlag(body, "correlation-id", "correlation_id", "`UUID`: set the correlation ID, which joins the task to other work")
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		ref, err := parseTemplateRef(operands[0])
		if err != nil {
			return err
		}
		body["namespace"], body["name"], body["priority"] = ref.namespace, ref.name, *priority
		if ref.version != "" {
			body["version"] = ref.version
		}
		if len(tags) > 0 {
			body["tags"] = tags
		}
		if err := o.p.addJSON(body, "context", *text); err != nil {
			return err
		}
		return create(ctx, c, "/v1/tasks", body)
	})
}

// creates defines --key and --wait, and returns a function that creates a task and prints it: at once, or after waiting
// for its end.
func (o *options) creates() func(ctx context.Context, c *client, path string, body any) error {
	key := o.String("key", "", "`KEY`: send this Idempotency-Key, so that a repeat creates no second task")
	var wait time.Duration
	o.waitFlag(&wait, "wait for the end")
	return func(ctx context.Context, c *client, path string, body any) error {
		t, err := c.do(ctx, call{method: "POST", path: path, body: body, key: *key})
		switch {
		case err != nil:
			return err
		case wait == 0:
			return o.print(taskOutput(t))
		}
		return c.waitFor(ctx, o, t.text("task_uuid"), wait)
	}
}

// waitFlag defines --wait for a limit of time, which is 0 without the flag.
func (o *options) waitFlag(wait *time.Duration, help string) {
	o.BoolFunc("wait", "`DURATION`: "+help+", at most this long (10m for --wait alone)", func(text string) error {
		// Package flag passes "true" for a flag without a value.
		switch d, err := parseDuration(text); {
		case text == "true":
			*wait = defaultWatch
		case text == "false":
			*wait = 0
		case err != nil || d <= 0:
			return cmp.Or(err, errDuration)
		default:
			*wait = d
		}
		return nil
	})
}

// againArgs are the flags of a repetition.
type againArgs struct {
	from, context string
	latest        bool
}

func (o *options) againFlags(a *againArgs) {
	o.StringVar(&a.from, "from", "", "`STEP`: repeat the task from this step on")
	o.BoolVar(&a.latest, "latest", false, "repeat with the newest version of the template, not the version of the task")
}

// body returns the request for a repetition.
func (a *againArgs) body(p *process) (map[string]any, error) {
	body := map[string]any{"from": a.from, "latest": a.latest}
	return body, p.addJSON(body, "context", a.context)
}

func repeatTask(o *options) runner {
	a := &againArgs{}
	o.againFlags(a)
	o.StringVar(&a.context, "context", "", "`JSON`: replace the context of the task, from JSON, @FILE, or - for standard input")
	reason := o.String("reason", "", "`TEXT`: record why")
	create := o.creates()
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		if a.from == "" {
			return o.misuse("missing --from STEP")
		}
		body, err := a.body(o.p)
		if err != nil {
			return err
		}
		if *reason != "" {
			body["reason"] = *reason
		}
		path, _, err := c.taskPath(ctx, operands[0])
		if err != nil {
			return err
		}
		return create(ctx, c, path+"/again", body)
	})
}

// waitFor waits for the end of a task, prints it, and returns the error for how it ended.
func (c *client) waitFor(ctx context.Context, o *options, id string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errWatchEnded)
	defer cancel()
	t, err := c.awaitEnd(ctx, id, 20*time.Second, func(document) error { return nil })
	if t.raw != nil {
		if err := o.print(taskOutput(t)); err != nil {
			return err
		}
	}
	return err
}

func taskOutput(t document) output {
	return output{t, member("task_uuid"), func(tb *table) {
		tb.fields(t, []column{
			of("task", "task_uuid"), templateColumn, stateOfColumn("status", "status"),
			{head: "steps", show: func(_ *table, d document) string { return progress(d) }},
			{head: "age", show: func(tb *table, d document) string { return tb.p.age(d, "created_at") }},
			{head: "took", show: func(_ *table, d document) string { return took(d, "created_at", "completed_at") }},
			of("reason", "reason"), of("again of", "again_of.task_uuid"), of("initiator", "initiator"), listColumn("tags", "tags"),
			of("priority", "priority").whenWide(), of("source", "source_system").whenWide(),
			of("correlation", "correlation_id").whenWide(), of("health", "health_status").whenWide(),
			of("context", "context").whenWide(),
		})
	}}
}

var templateColumn = column{head: "template", show: func(_ *table, d document) string {
	return qualifiedName(d) + "@" + d.text("version")
}}

func listColumn(head, path string) column {
	return column{head: head, show: func(_ *table, d document) string {
		var words []string
		for _, e := range d.at(path).list() {
			words = append(words, e.text(""))
		}
		return strings.Join(words, ", ")
	}}
}

// progress returns how many of a task's steps are done, and how many failed.
func progress(t document) string {
	text := t.text("completed_steps") + "/" + t.text("total_steps")
	if failed := t.text("failed_steps"); failed != "0" && failed != "" {
		text += ", " + failed + " failed"
	}
	return text
}

// took returns the time between two members, or nothing if one is missing.
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

func listTasks(o *options) runner {
	query := url.Values{}
	o.filters(query, [][2]string{
		{"namespace", "`NAMESPACE`: list only tasks of templates in this namespace"}, {"name", "`NAME`: list only tasks of templates with this name"},
		{"template-version", "`VERSION`: list only tasks of templates with this version"}, {"status", "`STATE`: list only tasks in these states, separated by commas: " + strings.Join(taskStateNames[:], ", ")},
		{"text", "`TEXT`: list only tasks of templates with this text in their namespace or name"}, {"tag", "`TAG`: list only tasks with this tag (repeatable)"},
		{"initiator", "`INITIATOR`: list only tasks of this initiator"}, {"source-system", "`SYSTEM`: list only tasks from this system"},
		{"correlation-id", "`UUID`: list only tasks with this correlation ID"},
		{"parent-correlation-id", "`UUID`: list only tasks with this parent correlation ID"},
		{"group", "`GROUP`: list only tasks in this group of \"stepwell failures\""},
		{"context", "`PATH=VALUE`: list only tasks with this value in their context, at a path that their template lists under search (repeatable)"},
		{"since", "`DURATION`: list only tasks created at most this long ago, such as 24h"},
		{"created-after", "`TIME`: list only tasks created after this time, such as 2026-01-31T12:00:00Z"},
		{"created-before", "`TIME`: list only tasks created before this time"},
		{"updated-after", "`TIME`: list only tasks last changed after this time"}, {"updated-before", "`TIME`: list only tasks last changed before this time"},
		{"completed-after", "`TIME`: list only tasks completed after this time"}, {"completed-before", "`TIME`: list only tasks completed before this time"},
		{"sort", "`ORDER`: sort by one of these, in descending order with a minus: created_at, updated_at, completed_at, priority"},
	})
	limit := o.Int("limit", 25, "`N`: list at most this many tasks")
	return o.asks(func(ctx context.Context, c *client, _ []string) error {
		if *limit < 1 {
			return o.misuse("--limit must be 1 or more")
		}
		query.Set("about", "true")
		tasks, total, err := c.tasks(ctx, query, *limit)
		if err != nil {
			return err
		}
		return o.print(listOutput(tasks, "task_uuid", "no task", slices.Concat(taskColumns, speakingColumns)).outOf(len(tasks), total))
	})
}

// filters adds a flag for each name that sets the parameter of a query.
func (o *options) filters(query url.Values, flags [][2]string) {
	for _, f := range flags {
		// The flag is not --version, which prints that of the program.
		key := strings.ReplaceAll(strings.TrimPrefix(f[0], "template-"), "-", "_")
		define := o.Func
		if key == "over" {
			define = o.BoolFunc
		}
		define(f[0], f[1], func(text string) error {
			switch key {
			case "text":
				query.Set("q", text)
			case "group":
				query.Set("failure_group", text)
			case "tag":
				query.Add(key, text)
			case "status": // given again, one more that may match
				query.Set(key, strings.TrimPrefix(query.Get(key)+","+text, ","))
			case "since":
				if d, err := parseDuration(text); err != nil || d <= 0 {
					return cmp.Or(err, errDuration)
				}
				query.Set(key, text)
			case "context":
				path, value, _ := strings.Cut(text, "=")
				query.Set("context."+path, value)
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
		// As JSON, no items are [], not null.
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

func showTask(o *options) runner {
	unfinished := o.Bool("unfinished", false, "show only unfinished steps, and count the others")
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		t, err := c.ask(ctx, o, operands, "", nil)
		if err != nil {
			return err
		}
		out := taskOutput(t)
		head := out.table
		out.table = func(tb *table) {
			head(tb)
			tb.line("")
			if t.text("completed_at") == "" { // or nothing is left to do
				if e, err := c.get(ctx, "/v1/tasks/"+t.text("task_uuid")+"/explain", nil); err == nil {
					tb.line(e.text("message"))
				}
			}
			tb.steps(t, c.shape(ctx, t), *unfinished)
			tb.undelivered(t)
		}
		return o.print(out)
	})
}

func explainTask(o *options) runner {
	return o.shows("/explain", nil, func(e document) output {
		return output{e, member("task_uuid"), func(t *table) { t.explanation(e) }}
	})
}

// explanation adds why a task is stuck: the message, and each unfinished step.
func (t *table) explanation(e document) {
	t.line(t.state(e.text("status")) + ": " + e.text("message"))
	for _, s := range e.at("steps").list() {
		t.row(t.sign(s.text("current_state"))+" "+s.text("name"), s.text("message"))
		var verbs []string
		for _, a := range s.at("actions").list() {
			verbs = append(verbs, cmp.Or(actionVerbs[a.text("")], a.text("")))
		}
		if len(verbs) > 0 {
			t.row("", t.paint(faint, fmt.Sprintf("%s step %s %s %s", programCalled(), strings.Join(verbs, "|"),
				e.text("task_uuid"), s.text("name"))))
		}
	}
	t.undelivered(e)
}

func printContext(o *options) runner {
	return o.calls(func(ctx context.Context, c *client, operands []string) error {
		d, err := c.ask(ctx, o, operands, "/context", nil)
		if err != nil {
			return err
		}
		return o.p.printJSON(d.at("context"))
	})
}

func (p *process) printJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func cancelTasks(o *options) runner {
	reason := o.String("reason", "", "`TEXT`: record why")
	bulk := o.withBulk("task", "tasks", taskSelection...)
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		body := map[string]any{"reason": cmp.Or(*reason, "on the command line")}
		if done, err := bulk.instead(ctx, c, operands, 1, bulkCancel, body); done {
			return err
		}
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
		return o.print(listOutput(cancelled, "task_uuid", "", taskColumns))
	})
}
