package main

// Acting on many: commands that act on everything that their flags select, instead of what operands name.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// bulkFlags are the flags with which a command acts on many.
type bulkFlags struct {
	o         *options
	one, many string // what is acted on, in the singular and the plural
	filter    url.Values
	yes, dry  *bool
	first     *int
	wait      time.Duration // for what becomes of the steps; 0 for no wait
}

// taskSelection are the flags that select tasks.
var taskSelection = [][2]string{
	{"status", "`STATE`: select only tasks in these states, separated by commas: " + strings.Join(taskStateNames[:], ", ")},
	{"namespace", "`NAMESPACE`: select only tasks of this namespace"}, {"name", "`NAME`: select only tasks of templates with this name"},
	{"tag", "`TAG`: select only tasks with this tag (repeatable)"},
	{"group", "`GROUP`: select only tasks in this group of \"stepwell failures\""},
	{"since", "`DURATION`: select only tasks created at most this long ago, such as 24h"},
	{"created-after", "`TIME`: select only tasks created after this time, such as 2026-01-31T12:00:00Z"},
	{"created-before", "`TIME`: select only tasks created before this time"},
}

// withBulk adds the flags that select many, and those that say how they are acted on.
func (o *options) withBulk(one, many string, selection ...[2]string) *bulkFlags {
	b := &bulkFlags{o: o, one: one, many: many, filter: url.Values{}}
	o.filters(b.filter, selection)
	b.yes = o.Bool("yes", false, "act on all that match; without --yes, only show how many do")
	b.dry = o.Bool("dry-run", false, "only show how many match, even with --yes")
	b.first = o.Int("first", 0, "`N`: act on this many and stop, to try it")
	return b
}

// instead acts on what the flags select, if they select anything. It reports whether nothing is left to do: operands are
// given as well, or fewer than needed without flags, which are errors, or it has acted.
func (b *bulkFlags) instead(
	ctx context.Context, c *client, operands []string, needed int, action string, body map[string]any,
) (done bool, err error) {
	switch many := len(b.filter) > 0; {
	case many && len(operands) > 0:
		return true, b.o.misuse("give %q or flags that select %s, not both", operands[0], b.many)
	case many:
		return true, b.act(ctx, c, action, body)
	case len(operands) < needed:
		names := b.o.command.operands
		return true, b.o.misuse("give %sflags that select %s", pick(names == "", "", names+", or "), b.many)
	}
	return false, nil
}

// act applies an action to everything that matches. Without --yes it only shows how much matches. body has what the
// action needs besides the filter.
func (b *bulkFlags) act(ctx context.Context, c *client, action string, body map[string]any) error {
	selection, err := c.timed(ctx, b.filter, "created_after")
	if err != nil {
		return err
	}
	filter := map[string]any{}
	for name, values := range selection {
		if filter[name] = values; !isBulkList(action, name) {
			filter[name] = strings.Join(values, ",")
		}
	}
	body = maps.Clone(body)
	body["action"], body["filter"], body["dry_run"] = action, filter, true
	// A dry run comes first, even with --yes. It counts for the progress bar, and its sequence makes the service leave
	// alone what changes between the two requests.
	found, begun, err := b.stream(ctx, c, body, 0)
	if err != nil {
		return err
	}
	if total := int(found.number("done")); !*b.dry && *b.yes && total > 0 {
		body["dry_run"], body["as_of"] = false, begun.exact("as_of")
		if *b.first > 0 {
			body["first"], total = *b.first, min(total, *b.first)
		}
		if found, begun, err = b.stream(ctx, c, body, total); err != nil {
			return err
		}
		if b.wait > 0 && found.text("finished") == "true" && found.number("done") > 0 {
			return errors.Join(b.outcome(found), b.verdict(ctx, c, found, begun.exact("request_id")))
		}
	}
	return errors.Join(b.print(found), b.outcome(found))
}

// verdict waits for what becomes of the steps, and prints it.
func (b *bulkFlags) verdict(ctx context.Context, c *client, found document, request string) error {
	ends := time.Now().Add(b.wait)
	for {
		d, err := c.get(ctx, "/v1/audit", url.Values{"request_id": {request}})
		if err != nil {
			return err
		}
		if len(d.list()) == 0 {
			return errors.Join(b.print(found), errors.New("the tasks are not kept any more, so what became of the steps is not known"))
		}
		act := d.list()[0]
		v := act.at("verdict")
		running, failed := int(v.number("running")), int(v.number("failed"))
		if running > 0 && time.Now().Before(ends) {
			if err := closedWithin(ctx, nil, verdictPause); err != errTooLong {
				return err
			}
			continue
		}
		err = b.o.print(output{act, func(d document) string { return d.text("steps") }, func(t *table) {
			text := fmt.Sprintf("done: %s: %s succeeded", counted(int(act.number("steps")), b.one, b.many), v.text("done"))
			if running > 0 {
				text += fmt.Sprintf(", %d still running", running)
			}
			if failed > 0 {
				text += fmt.Sprintf(", %d failed again, for %s", failed, counted(int(v.number("causes")), "cause", "causes"))
				if n := int(v.number("new_causes")); n > 0 {
					text += fmt.Sprintf(", %d of them new", n)
				}
			}
			t.line(text)
		}})
		if err == nil && running+failed > 0 {
			err = exitf(exitWorkflow, "%s not succeed", pick(running+failed == 1, "one "+b.one+" did", fmt.Sprintf("%d %s did", running+failed, b.many)))
		}
		return err
	}
}

// verdictPause is the time between two looks at what becomes of steps.
const verdictPause = time.Second / 2

// stream sends a request and follows its progress, with a progress bar unless total is 0. It returns the last line of
// the response and the first one.
func (b *bulkFlags) stream(ctx context.Context, c *client, body map[string]any, total int) (last, begun document, err error) {
	resp, err := c.send(ctx, call{method: "POST", path: "/v1/actions", body: body, stream: true})
	if err != nil {
		return last, begun, err
	}
	defer resp.Body.Close()
	style := b.o.p.styleOf(b.o.p.stderr)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxReplyLine)
	for {
		more := lines.Scan()
		if more {
			last = readDocument(lines.Bytes())
			if begun.raw == nil {
				begun = last
			}
		}
		if style.terminal != nil && total > 0 {
			end := pick(more, "", "\n")
			fmt.Fprintf(b.o.p.stderr, "\r%s%s", bar(style, int(last.number("done")+last.number("refused")+last.number("left_alone")), total), end)
		}
		switch {
		// The status was sent before the work began, so only the last line shows whether the response is complete.
		case more:
		case lines.Err() == nil && last.at("finished").raw != nil:
			return last, begun, nil
		default:
			return last, begun, exitf(exitUnreachable, "the response was cut off after %s; run the command again to continue",
				counted(int(last.number("done")), b.one, b.many))
		}
	}
}

// bar draws a progress bar.
func bar(s style, done, total int) string {
	const width = 30
	full := min(width, width*done/total)
	text := ""
	for i := range width {
		text += pick(i < full, "█", "░")
	}
	return fmt.Sprintf("%s %d of %d", s.paint(blue, text), done, total)
}

// print prints the last line of a stream.
func (b *bulkFlags) print(found document) error {
	return b.o.print(output{found, func(d document) string { return d.text("done") }, func(t *table) {
		done := counted(int(found.number("done")), b.one, b.many)
		if found.text("dry_run") == "true" {
			t.line(done + pick(found.number("done") == 1, " matches", " match"))
			samples := found.at("samples").list()
			for _, s := range samples {
				t.row("  "+s.text("task_uuid"), s.text("step"), s.text("dlq_entry_uuid"))
			}
			if more := int(found.number("done")) - len(samples); len(samples) > 0 && more > 0 {
				t.line(fmt.Sprintf("  and %d more", more))
			}
		} else {
			t.line("done: " + done)
		}
		if n := int(found.number("left_alone")); n > 0 {
			t.line(counted(n, "task has", "tasks have") + " changed in the meantime: run the command again to include what changed")
		}
		for _, w := range found.at("warnings").list() {
			t.line("warning: " + w.text(""))
		}
		for _, r := range found.at("refusals").list() {
			t.line(fmt.Sprintf("refused: %s, such as: %s", counted(int(r.number("count")), b.one, b.many), r.text("message")))
		}
	}})
}

// outcome returns an error if something was not done.
func (b *bulkFlags) outcome(found document) error {
	switch refused := int(found.number("refused")); {
	case found.text("finished") != "true":
		return fmt.Errorf("stopped after %s: %s", counted(int(found.number("done")), b.one, b.many), found.text("error.message"))
	case found.text("dry_run") == "true" && !*b.dry && found.number("done") > 0:
		all := pick(*b.first > 0, fmt.Sprintf("%d of them", *b.first), "all of them")
		return b.o.misuse("nothing was done yet: add --yes to act on %s", all)
	case refused > 0 && found.text("dry_run") != "true":
		return fmt.Errorf("%s refused", counted(refused, b.one+" was", b.many+" were"))
	}
	return nil
}

// bulkVerbs are the actions of the API for many, by verb of the command step.
var bulkVerbs = map[string]string{"complete": "complete", "resolve": "resolve", "reset": "reset", "retry": "retry_now"}

// stepSelection are the flags that select steps.
var stepSelection = slices.Concat([][2]string{{"step", "`NAME`: select only steps with this name"}}, taskSelection)
