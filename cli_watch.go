package main

// Following a task to its end: a line per transition, from the event stream, on a terminal with one bar below them.

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	pollEvery = 500 * time.Millisecond // to show the bar, or to wait for a task again
	tickEvery = time.Second            // to reconnect a stream that broke
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
		return "; stepwell task explain " + id + " says why"
	}
	return ": " + e.text("message")
}

// awaitEnd waits until a task ends, and returns it with the error for how it ended.
func (c *client) awaitEnd(ctx context.Context, id string) (document, error) {
	path, query := "/v1/tasks/"+id, url.Values{"wait": {"terminal"}, "timeout": {"20s"}}
	for {
		t, err := c.get(ctx, path, query)
		if _, ended := endStates[t.text("status")]; ended {
			return t, c.endError(ctx, t)
		}
		if err == nil {
			err = closedWithin(ctx, nil, pollEvery) // or a service that is stopping would be asked all the time
		}
		if err != errTooLong {
			t, _ = c.get(context.WithoutCancel(ctx), path, nil)
			return t, c.watchError(ctx, id, err)
		}
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

// follow calls each with the events that match a query, after the one with an id unless it is empty,
// until ctx ends or each returns an error. It connects again when the stream breaks.
func (c *client) follow(ctx context.Context, query url.Values, after string, each func(document) error) error {
	for {
		if after != "" {
			query.Set("after", after)
		}
		last, err := c.stream(ctx, query, each)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		if last != "" {
			after = last
		}
		select {
		case <-time.After(tickEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stream reads one event stream (https://html.spec.whatwg.org/#server-sent-events) to its end, and returns
// the last id. A stream that breaks is not an error.
func (c *client) stream(ctx context.Context, query url.Values, each func(document) error) (last string, err error) {
	resp, err := c.send(ctx, call{method: "GET", path: "/v1/events", query: query, stream: true})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	// An event is one line, and the scanner's own limit is 64 KiB.
	lines.Buffer(nil, maxReplyLine)
	id := ""
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		switch value = strings.TrimPrefix(value, " "); field {
		case "id":
			id = value
		case "data":
			if err := each(readDocument([]byte(value))); err != nil {
				return last, err
			}
		case "":
			last = id
		}
	}
	if lines.Err() == bufio.ErrTooLong {
		return last, exitf(exitFailed, "the event stream of %s has a line of more than %d MiB", c.host(), maxReplyLine>>20)
	}
	return last, nil
}

func watchTask(o *options) runner {
	o.withClient().withOutput()
	limit := o.duration("timeout", 0, "`DURATION`: give up after this time, with exit code 5")
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		ctx, stop := interruptible(ctx, *limit)
		defer stop()
		_, id, err := c.taskPath(ctx, operands[0])
		if err != nil {
			return err
		}
		t, err := c.watchTask(ctx, o, id, settleFor)
		if t.raw != nil && !o.forPeople() {
			if err := o.print(taskOutput(t)); err != nil {
				return err
			}
		}
		return err
	})
}

// watchTask writes a line per transition of a task until it has ended, on standard output, or on standard error if the
// result is for a program. On a terminal, a bar below the lines shows its progress.
func (c *client) watchTask(ctx context.Context, o *options, id string, settle time.Duration) (document, error) {
	b := &progressBar{w: behindDoor(c.p.stdout)}
	if !o.forPeople() {
		b.w = behindDoor(c.p.stderr)
	}
	s := c.p.styleOf(b.w)
	drawn, stop := context.WithCancel(ctx)
	var drawing sync.WaitGroup
	if s.terminal != nil {
		drawing.Go(func() { c.drawBar(drawn, id, b, s) })
	}
	defer func() {
		stop()
		drawing.Wait()
		b.show("")
	}()
	return c.watchLines(ctx, id, b, s, settle)
}

// progressBar writes lines, and one more below them that is written over itself.
type progressBar struct {
	w io.Writer

	mu   sync.Mutex
	text string // "" for none
}

// line writes a line.
func (b *progressBar) line(text string) { b.write(func() string { return text + "\n" + b.text }) }

// show writes the bar; "" removes it.
func (b *progressBar) show(text string) {
	b.write(func() string {
		b.text = text
		return text
	})
}

func (b *progressBar) write(next func() string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	over := pick(b.text == "", "", "\r\x1b[K")
	if out := over + next(); out != "" {
		io.WriteString(b.w, out)
	}
}

// drawBar shows the progress of a task until ctx ends.
func (c *client) drawBar(ctx context.Context, id string, b *progressBar, s style) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if t, err := c.get(ctx, "/v1/tasks/"+id, nil); err == nil {
			age := cmp.Or(took(t, "created_at", "completed_at"), c.p.age(t, "created_at"))
			b.show(clipShown(s.state(t.text("status"))+"  "+templateColumn.show(nil, t)+"  "+progress(t)+"  "+age, terminalColumns(s.terminal)-1))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
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

// settleFor is how long nothing must happen to a task that has ended, because its history may have several
// ends.
const settleFor = 300 * time.Millisecond

// watchLines writes a line per transition, from the first, until the task has ended and nothing happened to
// it for a while.
func (c *client) watchLines(ctx context.Context, id string, b *progressBar, s style, settle time.Duration) (t document, err error) {
	following, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var began time.Time
	ended := errors.New("ended")
	// The history comes first and may contain several ends, each of which starts the timer.
	settled := time.AfterFunc(math.MaxInt64, func() { stop(ended) })
	defer settled.Stop()
	err = c.follow(following, url.Values{"task_uuid": {id}}, "0", func(e document) error {
		settled.Stop()
		state := e.text("to_state")
		if began.IsZero() {
			began, _ = e.when("recorded_at")
		}
		if !passedThrough[state] {
			b.line(s.event(e, began))
		}
		if _, end := endStates[state]; !end || e.text("step_name") != "" {
			return nil
		}
		// The event may be an old one: only the task shows whether this is its last end.
		t, err = c.get(ctx, "/v1/tasks/"+id, nil)
		if t.text("status") != state || err != nil {
			return err
		}
		settled.Reset(settle)
		return nil
	})
	if err == ended {
		return t, c.endError(ctx, t)
	}
	t, _ = c.get(context.WithoutCancel(ctx), "/v1/tasks/"+id, nil)
	return t, c.watchError(ctx, id, err)
}

// lineTime is the layout of times in lines, in UTC.
const lineTime = "15:04:05.000"

// event writes a transition as a line, with the days since the first one unless that is zero.
func (s style) event(e document, first time.Time) string {
	if e.text("oldest_available") != "" || e.text("to_state") == "" {
		return s.paint(yellow, "some events are gone: "+e.text(""))
	}
	name := cmp.Or(e.text("step_name"), s.paint(bold, "task"))
	at, _ := e.when("recorded_at")
	text := at.Format(lineTime)
	const day = 24 * time.Hour
	if days := at.Truncate(day).Sub(first.Truncate(day)) / day; days > 0 && !first.IsZero() {
		text += fmt.Sprintf(" +%dd", days)
	}
	text += "  " + name + "  " + s.state(e.text("to_state"))
	if n := e.text("attempt"); n != "" && n != "0" {
		text += "  attempt " + n
	}
	return text
}

func printEvents(o *options) runner {
	o.withClient().withOutput()
	query := url.Values{}
	o.filters(query, [][2]string{{"namespace", "`NAMESPACE`: with --follow, print only transitions in this namespace"}})
	follow := o.Bool("follow", false, "continue with events as they happen, until interrupted")
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		if len(operands) == 0 && !*follow {
			return o.misuse("missing TASK; or give --follow for the events of all tasks")
		}
		after, path := "", ""
		if len(operands) > 0 {
			var id string
			var err error
			if path, id, err = c.taskPath(ctx, operands[0]); err != nil {
				return err
			}
			query.Set("task_uuid", id)
			after = "0"
		}
		if !*follow {
			return c.printTransitions(ctx, o, path)
		}
		ctx, stop := interruptible(ctx, 0)
		defer stop()
		s, w := o.p.styleOf(o.p.stdout), o.p.stdout
		if o.forPeople() {
			w = behindDoor(w)
		}
		return c.follow(ctx, query, after, func(e document) error {
			text := s.event(e, time.Time{})
			if !o.forPeople() {
				text = string(e.raw)
			} else if len(operands) == 0 {
				text = e.text("task_uuid") + "  " + text
			}
			_, err := fmt.Fprintln(w, text)
			return err
		})
	})
}

// printTransitions prints the transitions of a task so far.
func (c *client) printTransitions(ctx context.Context, o *options, path string) error {
	d, err := c.get(ctx, path+"/transitions", nil)
	if err != nil {
		return err
	}
	return o.print(listOutput(d.at("transitions").list(), "to_state", "no transition", []column{
		ageOf("AGE", "recorded_at"), of("STEP", "step_name"), of("FROM", "from_state"), stateOfColumn("TO", "to_state"),
		of("RECORDED", "recorded_at").whenWide(), of("SEQUENCE", "sequence").whenWide(),
	}))
}

// shape is the dependency graph of a template, by the names of its steps, in their order.
type shape struct {
	names   []string
	parents map[string][]string
	kinds   map[string]string // decision, batchable and so on
	levels  map[string]int    // how many steps are before a step, on the longest way to it; see level
}

// readShape reads the graph of a template's description or summary.
func readShape(d document) *shape {
	s := &shape{parents: map[string][]string{}, kinds: map[string]string{}, levels: map[string]int{}}
	for _, step := range d.at("steps").list() {
		name := step.text("name")
		s.names = append(s.names, name)
		s.kinds[name] = cmp.Or(step.text("type"), step.text("step_type"))
		for _, parent := range step.at("dependencies").list() {
			s.parents[name] = append(s.parents[name], parent.text(""))
		}
	}
	return s
}

// shape asks for the dependencies of a task's steps. Without them steps are shown in the order of their
// creation.
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

// steps adds a row for each step of a task, in the order of their dependencies.
func (t *table) steps(task document, s *shape) {
	steps := task.at("steps").list()
	level := func(step document) int { return s.level(s.declared(step.text("name"))) }
	slices.SortStableFunc(steps, func(a, b document) int { return level(a) - level(b) })
	t.listOf(steps, []column{
		of("STEP", "name"),
		stateOfColumn("STATE", "current_state"),
		attemptsColumn("ATTEMPT"),
		{head: "AFTER", show: func(_ *table, d document) string {
			return strings.Join(s.parents[s.declared(d.text("name"))], ", ")
		}},
		{head: "", show: func(t *table, d document) string { return t.waits(d) }},
	}, func(i int) string { return strings.Repeat("  ", level(steps[i])) })
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
