package main

// The command pull: tasks from the HTTP API of Tasker become the lines of a store. The API gives the steps and the outcome
// of each attempt. What happened in between follows from these, see replay.go. What the API leaves out is noted.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// pull is one run of the command.
type pull struct {
	p           *program
	orchestra   *client
	worker      *client
	stepsDecide bool // a task whose state contradicts its steps gets the state that follows from them

	definitions map[string]*definition // by the path of the template
	seq         int                    // of the newest record
	clock       int64                  // the last change of all tasks, in microseconds
	templates   []*definition
	tasks       []taskLine
}

// taskLine is the line of a task in a store; the rest of such a line follows from its log.
type taskLine struct {
	Task     string   `json:"task"`
	Template string   `json:"template"`
	Log      []object `json:"log"`
}

func (p *program) pullCommand(flags *flag.FlagSet) func(context.Context, []string) error {
	x := &pull{p: p, definitions: map[string]*definition{}}
	address := flags.String("worker-url", "", "read the templates from the worker role at this `URL`, since only workers have whole templates")
	flags.BoolVar(&x.stepsDecide, "steps-decide", false, "if the state of a task contradicts its steps, derive the state from the steps")
	return func(ctx context.Context, operands []string) (err error) {
		switch {
		case len(operands) < 2:
			return failf(exitUsage, "pull: want the URL of Tasker and the UUIDs of tasks")
		case *address == "":
			return failf(exitUsage, "pull: missing --worker-url: only the worker role has whole templates")
		}
		if x.orchestra, err = p.client(operands[0], "ORCHESTRATION"); err != nil {
			return err
		}
		if x.worker, err = p.client(*address, "WORKER"); err != nil {
			return err
		}
		return x.run(ctx, operands[1:])
	}
}

var isUUID = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`).MatchString

// run reads the tasks and writes the lines. It names the tasks that cannot be pulled, and continues with the others.
func (x *pull) run(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if !isUUID(id) {
			return failf(exitUsage, "%q is not the UUID of a task", id)
		}
	}
	var given []*task
	left := 0
	leave := func(id string, err error) error {
		if f, ok := errors.AsType[*failure](err); ok && f.status != 404 {
			return err
		}
		x.p.say("task %s is not pulled: %v", id, err)
		left++
		return nil
	}
	for _, id := range ids {
		t, err := x.orchestra.readTask(ctx, strings.ToLower(id), nil)
		if err == nil {
			t.def, err = x.definition(ctx, t)
		}
		if err == nil {
			given = append(given, t)
		} else if err = leave(id, err); err != nil {
			return err
		}
	}
	slices.SortStableFunc(given, func(a, b *task) int { return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID)) })
	for _, t := range given {
		if err := x.add(t); err != nil {
			leave(t.ID, err)
		}
	}
	if len(x.tasks) > 0 {
		if err := x.write(); err != nil {
			return err
		}
	}
	if left > 0 {
		return failf(exitFailed, "%s not pulled; the other %d were", counted(left, "task was", "tasks were"), len(x.tasks))
	}
	return nil
}

// definition returns the template of a task as the worker has it now, in the form of a store.
func (x *pull) definition(ctx context.Context, t *task) (*definition, error) {
	path := "/v1/templates/" + url.PathEscape(t.Namespace) + "/" + url.PathEscape(t.Name) + "/" + url.PathEscape(t.Version)
	if d := x.definitions[path]; d != nil {
		return d, nil
	}
	var answer struct {
		Template struct{ Template json.RawMessage }
	}
	if err := x.worker.get(ctx, path, &answer); err != nil {
		return nil, err
	}
	all := members(answer.Template.Template)
	if all == nil {
		return nil, failf(exitFailed, "%s does not tell the whole template %s: is it a worker?", x.worker.url, t.fullName())
	}
	delete(all, "environments") // which have no effect there
	line, err := x.p.convert(ctx, encode(all), "line")
	if err != nil {
		return nil, fmt.Errorf("its template cannot be used here: %w", err)
	}
	x.definitions[path], err = readDefinition(line)
	return x.definitions[path], err
}

// add adds a task. The error says what in the answers contradicts what.
func (x *pull) add(t *task) error {
	r := &replay{task: t, stepsDecide: x.stepsDecide, seq: x.seq, made: map[int]bool{}}
	line, err := r.run()
	if err != nil {
		return err
	}
	for _, note := range r.notes {
		x.p.say("%s: %s", t.ID, note)
	}
	x.seq, x.clock = r.seq, max(x.clock, r.clock)
	x.tasks = append(x.tasks, line)
	if !slices.ContainsFunc(x.templates, func(d *definition) bool { return d.hash == t.def.hash }) {
		x.templates = append(x.templates, t.def)
	}
	return nil
}

// write writes the lines as of the last change, where the clock stands.
func (x *pull) write() error {
	now := time.UnixMicro(x.clock).UTC().Format("2006-01-02T15:04:05.000000Z")
	lines := []any{json.RawMessage(fmt.Sprintf(`{"format":3,"seq":%d,"clock":{"now":%q,"mode":"frozen"}}`, x.seq, now))}
	for _, d := range x.templates {
		lines = append(lines, json.RawMessage(fmt.Sprintf(`{"hash":%q,"definition":%s}`, d.hash, d.json)))
	}
	for _, t := range x.tasks {
		lines = append(lines, t)
	}
	lines = append(lines, json.RawMessage(`{"end":{}}`))
	e := json.NewEncoder(x.p.stdout)
	e.SetEscapeHTML(false) // a definition is hashed as it is
	for _, line := range lines {
		if err := e.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
