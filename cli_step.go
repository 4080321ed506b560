package main

// The command step: listing and showing steps, and the actions of operators on them.

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

func stepCommands() command {
	return command{name: "step", help: "list, show and act on the steps of a task", commands: []command{
		{
			name: "list", effect: reads, operands: "TASK", help: "list the steps of a task in the order of their creation",
			examples: []string{"step list latest", "step list 5666cd0c -o wide"},
			define:   lists(listing{path: "/workflow_steps", name: "name", none: "the task has no step", columns: stepColumns}),
		},
		{
			name: "show", effect: reads, operands: "TASK STEP", help: "show a step and its result",
			more:     "STEP is " + operandHelp["STEP"] + ".",
			examples: []string{"step show latest charge", "step show latest charge -o json"}, define: showStep,
		},
		{
			name: "audit", effect: reads, operands: "TASK STEP", help: "list the attempts at a step and what operators did, the newest first",
			examples: []string{"step audit latest charge", "step audit latest charge -o json"},
			define:   lists(listing{path: "/audit", name: "audit_uuid", none: "nothing has happened to the step yet", columns: auditColumns}),
		},
		{
			name: "inbox", effect: reads, help: "list the steps that wait for people or other outside actors, the most urgent first, and what they are about",
			more:     "If the configuration of the service lists callables in console.people, only steps with these callables are listed, unless --all or --callable is given.",
			examples: []string{"step inbox", "step inbox --callable 'people.*' -o wide"}, define: showInbox,
		},
		stepActionCommand("complete", "complete a step with a result, which its dependents can read"),
		stepActionCommand("fail", "fail a step, as if an outside actor reported that the work failed"),
		stepActionCommand("resolve", "resolve a failed step without a result, so that its dependents run"),
		stepActionCommand("reset", "run a failed step again"),
		stepActionCommand("retry", "retry a step at once, without waiting for the end of its back-off"),
		stepActionCommand("cancel", "cancel a step"),
	}}
}

// actionVerbs holds the verbs of the command line for the actions of the API.
var actionVerbs = map[string]string{
	"complete_manually": "complete", "fail": "fail", "resolve_manually": "resolve", "reset_for_retry": "reset",
	"cancel": "cancel", "retry_now": "retry",
}

// stepVerbs holds, by verb, the action, the member that names who acts, and an example.
var stepVerbs = map[string]struct{ action, actor, example string }{
	"complete": {"complete_manually", "completed_by", `step complete latest approve --result '{"approved":true}'`},
	"fail":     {"fail", "failed_by", `step fail latest approve --message "not approved" --final`},
	"resolve":  {"resolve_manually", "resolved_by", `step resolve latest charge --reason "paid in cash"`},
	"reset":    {"reset_for_retry", "reset_by", `step reset latest charge --reason "the card was replaced"`},
	"cancel":   {"cancel", "cancelled_by", `step cancel latest deliver --reason "picked up by the customer"`},
	"retry":    {"retry_now", "retried_by", `step retry latest charge --reason "the outage is over"`},
}

func stepActionCommand(verb, help string) command {
	v := stepVerbs[verb]
	action, many := bulkVerbs[verb]
	operands, needed, more := "TASK STEP", 0, ""
	if many {
		operands, needed, more = "[TASK] [STEP]", 2, "Without TASK and STEP, flags select steps of many tasks; --yes acts on them."
	}
	return command{
		name: verb, effect: changes, operands: operands, help: help, more: more,
		examples: []string{v.example, v.example + " --by jo"},
		define: func(o *options) runner {
			reason := o.String("reason", "on the command line", "`TEXT`: record why")
			by := o.String("by", "", "`WHO`: record who acts; by default $USER")
			member := o.actionMember(verb)
			var bulk *bulkFlags
			if many {
				bulk = o.withBulk("step", "steps", stepSelection...)
				o.waitFlag(&bulk.wait, "of many steps, wait for what becomes of them")
			}
			return o.asks(func(ctx context.Context, c *client, operands []string) error {
				actor := cmp.Or(*by, o.p.getenv("USER"), "stepwell-cli")
				body := map[string]any{"reason": *reason}
				if err := member(body); err != nil {
					return err
				}
				if many {
					// The action on many has one member for the actor, the actions on one step each have their own.
					of := maps.Clone(body)
					of["by"] = actor
					if done, err := bulk.instead(ctx, c, operands, needed, action, of); done {
						return err
					}
				}
				body["action_type"], body[v.actor] = v.action, actor
				path, err := c.stepPath(ctx, operands[0], operands[1])
				if err != nil {
					return err
				}
				s, err := c.do(ctx, call{method: "PATCH", path: path, body: body})
				if err != nil {
					return fmt.Errorf("step %s: %w", verb, err)
				}
				return o.print(stepOutput(s))
			})
		},
	}
}

// actionMember defines the flags of complete, fail and reset, and returns a function that sets their members of the
// request.
func (o *options) actionMember(verb string) func(body map[string]any) error {
	switch verb {
	case "complete":
		result := o.String("result", "null", "`JSON`: set the result, from JSON, @FILE, or - for standard input")
		return func(body map[string]any) error {
			v, err := o.p.jsonArgument("--result", *result)
			body["completion_data"] = map[string]any{"result": v}
			return err
		}
	case "fail":
		message := o.String("message", "failed by an operator", "`TEXT`: set the message of the error")
		kind := o.String("type", "", "`TYPE`: set the type of the error")
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
		forget := o.Bool("clear-checkpoint", false, "begin from the start, not from the checkpoint of the step")
		limit := o.Int("max-attempts", 0, "`N`: allow this many attempts from now on, 1 to 100; by default as many as before")
		return func(body map[string]any) error {
			if *limit != 0 {
				body["max_attempts"] = *limit
			}
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
	{head: "RESULT", show: func(_ *table, d document) string { return outcomeText(d) }},
	of("UUID", "step_uuid").whenWide(), ageOf("AGE", "created_at").whenWide(),
	of("NEXT RETRY", "next_retry_at").whenWide(),
}

// aboutColumn has what a task is about.
var aboutColumn = column{head: "ABOUT", show: func(_ *table, d document) string {
	var parts []string
	for path, value := range d.at("about").members() {
		parts = append(parts, path+"="+value.text(""))
	}
	return strings.Join(parts, ", ")
}}

// speakingColumns have what a task is about and why it fails, if that is known of any.
var speakingColumns = []column{
	{head: aboutColumn.head, show: aboutColumn.show, any: true},
	{head: "FAILURE", any: true, show: func(t *table, d document) string {
		if d.text("kind") == "error" { // which a hit of find shows already
			return ""
		}
		return failureColumn("failure").show(t, d)
	}},
}

var inboxColumns = []column{
	of("TASK", "task_uuid"), of("STEP", "name"), of("CALLABLE", "callable"),
	{head: "WAITS", show: func(t *table, d document) string {
		return cmp.Or(t.p.age(d, "waiting_since"), t.p.age(d, "updated_at"))
	}},
	{head: "DUE IN", show: func(t *table, d document) string { return t.p.until(d, "answer_due_at") }},
	aboutColumn,
	{head: "ANSWER", show: func(_ *table, d document) string {
		return pick(d.text("result_schema") == "", "any", d.json("result_schema"))
	}},
	of("PRIORITY", "priority").whenWide(), of("UUID", "step_uuid").whenWide(),
}

func showInbox(o *options) runner {
	query := url.Values{"state": {"enqueued"}, "sort": {"answer_due_at"}}
	o.filters(query, [][2]string{{"callable", "`CALLABLE`: list only steps with this callable; a final * matches any suffix"}, {"namespace", "`NAMESPACE`: list only steps of tasks in this namespace"}})
	all := o.Bool("all", false, "also list steps that do not wait for people")
	limit := o.Int("limit", 50, "`N`: list at most this many steps")
	return o.asks(func(ctx context.Context, c *client, _ []string) error {
		query.Set("limit", strconv.Itoa(*limit))
		if !*all && !query.Has("callable") {
			query.Set("for_person", "true")
		}
		d, err := c.get(ctx, "/v1/steps", query)
		if err != nil {
			return err
		}
		return o.print(listOutput(d.list(), "step_uuid", "nothing waits for a person", inboxColumns))
	})
}

// errorLine returns the line of an error's message that says what happened.
func errorLine(d document, path string) string {
	return printable(spacedTabs(headline(d.exact(path))))
}

// outcomeText writes the result or the error of a step.
func outcomeText(step document) string {
	if message := errorLine(step, "results.error.message"); message != "" {
		if state := step.text("current_state"); state != "error" && state != "waiting_for_retry" {
			message = "last error: " + message
		}
		return message
	}
	return step.json("results.result")
}

func showStep(o *options) runner { return o.shows("", nil, stepOutput) }

func stepOutput(s document) output {
	return output{s, member("name"), func(t *table) {
		t.fields(s, []column{
			of("step", "name"), of("uuid", "step_uuid"), stateOfColumn("state", "current_state"),
			attemptsColumn("attempts"), tookColumn("took"),
			of("next retry", "next_retry_at"), of("answer due", "answer_due_at"), {head: "last error", show: func(_ *table, d document) string {
				return printableLines(d.exact("results.error.message"))
			}},
			of("error type", "results.error.error_type"),
			{head: "result", show: func(_ *table, d document) string {
				if d.text("results.error.message") != "" {
					return ""
				}
				return d.json("results.result")
			}},
			of("created", "created_at").whenWide(), of("completed", "completed_at").whenWide(),
			of("metadata", "results.metadata").whenWide(),
		})
	}}
}

// attemptEnds says how an attempt ended, by the state that its step passed through next.
var attemptEnds = map[string]string{
	"enqueued_for_orchestration": "succeeded", "enqueued_as_error_for_orchestration": "failed",
}

var auditColumns = []column{
	ageOf("AGE", "recorded_at"), of("FROM", "from_state"), {head: "TO", show: func(t *table, d document) string {
		to := d.text("to_state")
		return t.state(cmp.Or(attemptEnds[to], to))
	}},
	{head: "SUCCESS", show: func(_ *table, d document) string { return d.text("success") }},
	{head: "TOOK", show: func(_ *table, d document) string {
		ms, err := strconv.Atoi(d.text("execution_time_ms"))
		if err != nil {
			return ""
		}
		return shortDuration(time.Duration(ms) * time.Millisecond)
	}},
	{head: "RESULT", show: func(_ *table, d document) string {
		return cmp.Or(errorLine(d, "result.error.message"), d.json("result.result"))
	}},
	of("BY", "acted_by"), {head: "REASON", show: func(_ *table, d document) string {
		if from := d.text("copied_from.task_uuid"); from != "" {
			return "copied from task " + from
		}
		if d.text("action") == recUnanswered.String() {
			return "nobody answered in time"
		}
		return d.text("action_reason")
	}},
	of("SUBJECT", "subject").whenWide(), of("RECORDED", "recorded_at").whenWide(), of("UUID", "audit_uuid").whenWide(),
}

// Answers of a person in a run: on a terminal it asks for the results of the steps that wait for one.

// answerer answers the steps of a run that wait for outside actors.
type answerer struct {
	*client
	lines chan string // that somebody types, until the end of input; nil before the first question
}

// attended reports whether somebody is at a terminal, to read questions and type answers.
func (p *process) attended() bool {
	in, ok := p.stdin.(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(p.stderr) {
		return false
	}
	info, err := in.Stat()
	null, _ := os.Stat(os.DevNull) // a character device, too
	return err == nil && !os.SameFile(info, null)
}

// look answers the steps that wait now. It returns an error for a step that nobody here can answer.
func (a *answerer) look(ctx context.Context) error {
	waiting, err := a.get(ctx, "/v1/steps", nil)
	for _, step := range waiting.list() {
		name := step.text("name")
		if !a.p.attended() || step.text("for_person") != "true" {
			return nobodyAnswers(fmt.Sprintf("%s (callable %s)", name, step.text("callable")))
		}
		fmt.Fprintf(a.p.stderr, "%s waits for a person; an empty line leaves out a value %s\n", name, strings.TrimSuffix(step.json("about"), "null"))
		result, err := a.ask(ctx, step.at("result_schema"))
		if err != nil {
			io.WriteString(a.p.stderr, "\n")
			return fmt.Errorf("step %s has no answer: %w", name, err)
		}
		body := map[string]any{"action_type": "complete_manually", "completion_data": map[string]json.RawMessage{"result": result},
			"reason": "answered in the terminal", "completed_by": cmp.Or(a.p.getenv("USER"), "stepwell run")}
		path := "/v1/tasks/" + step.text("task_uuid") + "/workflow_steps/" + step.text("step_uuid")
		if _, err := a.do(ctx, call{method: "PATCH", path: path, body: body}); ctx.Err() != nil {
			return err
		} else if err != nil {
			fmt.Fprintln(a.p.stderr, err) // its deadline may have passed: the next look finds out what became of it
		}
	}
	return err
}

func nobodyAnswers(steps string) error {
	return usagef("no handler is configured for %s: %s for each", steps, runAdvice)
}

// ask asks for a result until it fits the schema: for an object member by member, as the form of the console does.
func (a *answerer) ask(ctx context.Context, schema document) (result []byte, err error) {
	members := schema.at("properties").raw
	for {
		if jsonKind(members) != '{' {
			result, err = a.field(ctx, "result", schema)
		} else {
			object := map[string]json.RawMessage{}
			for name, of := range jsonMembers(members) {
				v, err := a.field(ctx, printable(name), document{of})
				if err != nil {
					return nil, err
				}
				if v != nil {
					object[name] = v
				}
			}
			result, err = json.Marshal(object)
		}
		if result == nil {
			result = []byte("null")
		}
		wrong := misfitsOf(schema, result)
		if err != nil || len(wrong) == 0 {
			return result, err
		}
		fmt.Fprintf(a.p.stderr, "that does not fit: %s\n", wrong)
	}
}

// field asks for a value, JSON or a text, until it fits the schema. It returns nil for an empty line.
func (a *answerer) field(ctx context.Context, label string, schema document) ([]byte, error) {
	for {
		fmt.Fprintf(a.p.stderr, "  %s (%s): ", label, cmp.Or(schema.json("enum"), strings.Trim(schema.json("type"), `"`), "JSON"))
		text, err := a.line(ctx)
		if err != nil || text == "" {
			return nil, err
		}
		var wrong misfits
		for _, v := range [][]byte{[]byte(text), appendJSONString(nil, text)} {
			if checkJSON(v) != nil {
				continue
			}
			found := misfitsOf(schema, v)
			if len(found) == 0 {
				return compactJSON(nil, v), nil
			}
			wrong = append(wrong, found...)
		}
		fmt.Fprintf(a.p.stderr, "that does not fit: %s\n", wrong[:1])
	}
}

// misfitsOf returns what is wrong with a value, as far as the schema can be used alone.
func misfitsOf(schema document, value []byte) misfits {
	s := newSchemaSource("result_schema", schema.raw)
	if s == nil || len(s.schema().problems) > 0 {
		return nil
	}
	b := newLocalBudget()
	defer b.end()
	return s.schema().check(b, value)
}

// line returns the next line that somebody types.
func (a *answerer) line(ctx context.Context) (string, error) {
	if a.lines == nil {
		a.lines = make(chan string)
		go func() {
			defer close(a.lines)
			for s := bufio.NewScanner(a.p.stdin); s.Scan(); {
				a.lines <- s.Text()
			}
		}()
	}
	select {
	case text, ok := <-a.lines:
		if !ok {
			return "", usagef("the input has ended; %s", runAdvice)
		}
		return strings.TrimSpace(text), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
