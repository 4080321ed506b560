package main

// Following a task to its end: a line per transition, on a terminal with one bar below them.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	lookEvery    = 500 * time.Millisecond // for what is new of a task
	pauseBetween = 50 * time.Millisecond  // or a service that is stopping would be asked all the time

	looksToExplain = 4 // after so many at which nothing was new, the explanation is shown
)

// endStates are the states of a task in which nothing happens any more without an operator, and
// whether the workflow did what it should.
var endStates = map[string]bool{
	"complete": true, "resolved_manually": true, "error": false, "cancelled": false, "blocked_by_failures": false,
}

// endError returns the error for the state in which a task ended, or nil.
func (c *client) endError(ctx context.Context, t document) error {
	if good, ended := endStates[t.text("status")]; ended && !good {
		return exitf(exitWorkflow, "the task is %s%s", t.text("status"), c.why(ctx, t.text("task_uuid")))
	}
	return nil
}

// why returns the explanation of a task, as the end of a message.
func (c *client) why(ctx context.Context, id string) string {
	// ctx may have ended: that the wait is over is often why this is asked.
	e, err := c.get(context.WithoutCancel(ctx), "/v1/tasks/"+id+"/explain", nil)
	if err != nil {
		return "; " + programCalled() + " task explain " + id + " says why"
	}
	return ": " + e.text("message")
}

// awaitEnd waits until a task ends, and returns it with the error for how it ended. It calls look with the task as it is
// now, every so often, and as it ended.
func (c *client) awaitEnd(ctx context.Context, id string, every time.Duration, look func(t document) error) (document, error) {
	path, query := "/v1/tasks/"+id, url.Values(nil)
	for {
		t, err := c.get(ctx, path, query)
		if err == nil {
			err = look(t)
		}
		if _, ended := endStates[t.text("status")]; ended && err == nil {
			return t, c.endError(ctx, t)
		}
		if err == nil && query != nil {
			err = closedWithin(ctx, nil, pauseBetween)
		}
		if err != nil && err != errTooLong {
			t, _ = c.get(context.WithoutCancel(ctx), path, nil)
			return t, c.watchError(ctx, id, err)
		}
		query = url.Values{"wait": {"terminal"}, "timeout": {every.String()}}
	}
}

// watchError returns the error for a wait that ended before the task did.
func (c *client) watchError(ctx context.Context, id string, err error) error {
	switch context.Cause(ctx) {
	case errInterrupted:
		return errInterrupted
	case errWatchEnded:
		return exitf(exitTimedOut, "timed out before the task ended%s", c.why(ctx, id))
	}
	return err
}

func watchTask(o *options) runner {
	limit := o.duration("timeout", 0, "`DURATION`: give up after this time, with exit code 5")
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		ctx, stop := interruptible(ctx, *limit)
		defer stop()
		_, id, err := c.taskPath(ctx, operands[0])
		if err != nil {
			return err
		}
		t, err := c.watchTask(ctx, o, id, nil)
		if t.raw != nil && !o.forPeople() {
			if err := o.print(taskOutput(t)); err != nil {
				return err
			}
		}
		return err
	})
}

// watchTask writes a line per transition of a task until it has ended, on standard output, or on standard error if the
// result is for a program. On a terminal, a bar below the lines shows its progress. Unless it is nil, answers is called
// again and again meanwhile.
func (c *client) watchTask(ctx context.Context, o *options, id string, answers *answerer) (document, error) {
	w := behindDoor(pick(o.forPeople(), c.p.stdout, c.p.stderr))
	s, erase := c.p.styleOf(w), ""
	if s.terminal != nil {
		erase = "\r\x1b[K"
		defer io.WriteString(w, erase)
	}
	var before document
	var began time.Time
	told := 0  // transitions
	still := 0 // looks at which nothing was new
	return c.awaitEnd(ctx, id, lookEvery, func(t document) error {
		text := erase
		if !bytes.Equal(t.raw, before.raw) {
			history, err := c.get(ctx, "/v1/tasks/"+id+"/transitions", nil)
			if err != nil {
				return err
			}
			all := history.at("transitions").list()
			for _, e := range all[min(told, len(all)):] {
				if began.IsZero() {
					began, _ = e.when("recorded_at")
				}
				if !passedThrough[e.text("to_state")] {
					text += s.transition(e, began) + "\n"
				}
			}
			before, told, still = t, len(all), 0
		} else if still++; still == looksToExplain {
			if e, err := c.get(ctx, "/v1/tasks/"+id+"/explain", nil); err == nil {
				text += s.paint(faint, e.text("message")) + "\n"
			}
		}
		if answers != nil {
			io.WriteString(w, text)
			text = ""
			if err := answers.look(ctx); err != nil {
				return err
			}
		}
		if s.terminal != nil {
			age := cmp.Or(took(t, "created_at", "completed_at"), c.p.age(t, "created_at"))
			bar := s.state(t.text("status")) + "  " + templateColumn.show(nil, t) + "  " + progress(t) + "  " + age
			text += clipShown(bar, terminalColumns(s.terminal)-1)
		}
		if text != "" {
			io.WriteString(w, text)
		}
		return nil
	})
}

// terminalColumns returns the columns of a terminal, or 80.
func terminalColumns(f *os.File) int {
	if columns := windowColumns(f); columns > 0 {
		return columns
	}
	return 80
}

// passedThrough are the states that tasks and steps only pass through; task events shows them.
var passedThrough = map[string]bool{
	"pending": true, "initializing": true, "enqueuing_steps": true, "evaluating_results": true, "steps_in_process": true,
	"enqueued_for_orchestration": true, "enqueued_as_error_for_orchestration": true,
}

// lineTime is the layout of times in lines, in UTC.
const lineTime = "15:04:05.000"

// transition writes a transition as a line, with the days since the first one.
func (s style) transition(e document, first time.Time) string {
	at, _ := e.when("recorded_at")
	text := at.Format(lineTime)
	const day = 24 * time.Hour
	if days := at.Truncate(day).Sub(first.Truncate(day)) / day; days > 0 {
		text += fmt.Sprintf(" +%dd", days)
	}
	text += "  " + cmp.Or(e.text("step_name"), s.paint(bold, "task")) + "  " + s.state(e.text("to_state"))
	if reason := e.text("reason"); reason != "" {
		text += "  " + reason
	} else if n := e.text("attempt"); n != "" {
		text += "  attempt " + n
	}
	return text
}

var transitionList = listing{path: "/transitions", member: "transitions", name: "to_state", none: "no transition", columns: []column{
	ageOf("AGE", "recorded_at"), of("STEP", "step_name"), of("FROM", "from_state"), stateOfColumn("TO", "to_state"),
	of("RECORDED", "recorded_at").whenWide(), of("SEQUENCE", "sequence").whenWide(),
}}

// shape is the dependency graph of a template, by the names of its steps, in their order.
type shape struct {
	names   []string
	parents map[string][]string
	kinds   map[string]string // decision, batchable and so on
	answers map[string]string // until when steps must be answered, and what holds if nobody answers
	levels  map[string]int    // how many steps are before a step, on the longest way to it; see level
}

// readShape reads the graph of a template's description or summary.
func readShape(d document) *shape {
	s := &shape{parents: map[string][]string{}, kinds: map[string]string{}, answers: map[string]string{}, levels: map[string]int{}}
	for _, step := range d.at("steps").list() {
		name := step.text("name")
		s.names = append(s.names, name)
		s.kinds[name] = cmp.Or(step.text("type"), step.text("step_type"))
		config := step.at("handler.initialization")
		if rule, _, _ := answerRuleOf(step.text("handler.callable"), config.raw); rule != nil {
			s.answers[name] = "answer within " + rule.text + pick(rule.otherwise == nil, ", or it fails", ", or it is "+clipText(string(rule.otherwise), 40))
		}
		for _, parent := range step.at("dependencies").list() {
			s.parents[name] = append(s.parents[name], parent.text(""))
		}
	}
	return s
}

// shape asks for the dependencies of a task's steps. Without them steps are shown in the order of their creation.
func (c *client) shape(ctx context.Context, t document) *shape {
	d, _ := c.get(ctx, "/v1/tasks/"+t.text("task_uuid")+"/summary", nil)
	return readShape(d.at("template"))
}

// declared returns the step of the template that a step is an instance of.
func (s *shape) declared(step string) string {
	name := step
	for s.kinds[name] == "" {
		at := strings.LastIndexByte(name, '_')
		if at < 0 {
			return step
		}
		name = name[:at]
	}
	return name
}

// level returns how many steps are before a step, on the longest way to it.
func (s *shape) level(name string) int {
	if known, ok := s.levels[name]; ok {
		return known
	}
	s.levels[name] = 0 // for a graph with a cycle, which no service has
	deepest := 0
	for _, parent := range s.parents[name] {
		deepest = max(deepest, s.level(parent)+1)
	}
	s.levels[name] = deepest
	return deepest
}

// byLevel returns the names, those with fewer steps before them first.
func (s *shape) byLevel() []string {
	names := slices.Clone(s.names)
	slices.SortStableFunc(names, func(a, b string) int { return s.level(a) - s.level(b) })
	return names
}

// finishedSteps are the states of steps for which nothing is left to do.
var finishedSteps = []string{"complete", "resolved_manually", "cancelled"}

// maxShownSteps is how many steps of a task a table shows.
const maxShownSteps = 100

// steps adds a row for each step of a task, in the order of their dependencies, or only for the unfinished ones, as if
// there are many. It counts the rest.
func (t *table) steps(task document, s *shape, unfinished bool) {
	steps := task.at("steps").list()
	all := len(steps)
	if unfinished || all > maxShownSteps {
		steps = slices.DeleteFunc(steps, func(d document) bool { return slices.Contains(finishedSteps, d.text("current_state")) })
	}
	left := len(steps)
	level := func(step document) int { return s.level(s.declared(step.text("name"))) }
	slices.SortStableFunc(steps, func(a, b document) int { return level(a) - level(b) })
	if steps = steps[:min(left, maxShownSteps)]; left > 0 {
		t.list(steps, []column{
			{head: "STEP", show: func(_ *table, d document) string { return strings.Repeat("  ", level(d)) + d.text("name") }},
			stateOfColumn("STATE", "current_state"),
			attemptsColumn("ATTEMPT"),
			{head: "AFTER", show: func(_ *table, d document) string {
				return strings.Join(s.parents[s.declared(d.text("name"))], ", ")
			}},
			{head: "", show: (*table).waits},
		})
	}
	if all > left {
		t.line(fmt.Sprintf("and %s: %s step list %s", counted(all-left, "finished step", "finished steps"), programCalled(), task.text("task_uuid")))
	}
	if more := left - len(steps); more > 0 {
		t.line(fmt.Sprintf("and %s", counted(more, "more unfinished step", "more unfinished steps")))
	}
}

// waits says what a step waits for.
func (t *table) waits(step document) string {
	if at, ok := step.when("next_retry_at"); ok && step.text("current_state") == "waiting_for_retry" {
		return "retry in " + shortDuration(max(0, at.Sub(t.p.serviceNow().time())).Round(time.Second))
	}
	if at, ok := step.when("last_attempted_at"); ok && step.text("current_state") == "in_progress" {
		return "for " + shortDuration(t.p.serviceNow().time().Sub(at))
	}
	if n, m := step.text("completed_parents"), step.text("total_parents"); n != m && step.text("current_state") == "pending" {
		return n + " of " + m + " parents done"
	}
	return ""
}
