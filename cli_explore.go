package main

// The command explore: what becomes of a workflow if something goes wrong, for each of its steps and each fault.

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

func exploreCommand() command {
	return command{
		name: "explore", operands: "FILE|TEMPLATE", help: "run one workflow with each fault that can hit a step, and print how it ended",
		more: "The workflow first runs without a fault, then once for each of its steps and each of the faults " + strings.Join(faultNames(), ", ") +
			", in virtual time and without a server. FILE, TEMPLATE and the configuration are as for \"stepwell run\". A step that nothing handles " +
			"needs --stub, with which it is claimed and completed. -o is table, json or junit. The exit code is 4 if a run with a fault does not end like the run without, unless " +
			"the workflow is blocked because the fault is for good, or --allow says so.",
		examples: []string{
			`explore order.json --handler 'shop.*=http://127.0.0.1:9000' --check http://127.0.0.1:9000/check`,
			"explore order.json --stub charge=true --only charge:result_lost",
		},
		define: exploreWorkflow,
	}
}

func exploreWorkflow(o *options) runner {
	a, x := &runArgs{}, &exploration{allow: map[string][]string{}}
	o.withForms("table", "json", "junit").runFlags(a)
	o.StringVar(&x.only, "only", "", "`STEP:FAULT`: try only this, and print the transitions")
	o.StringVar(&x.before, "before", "", "`URL`: post to this address before each run, such as to reset a database")
	o.StringVar(&x.check, "check", "", "`URL`: post the task to this address after each run; a reply that is not 2xx is a finding, with its text")
	o.IntVar(&x.parallel, "parallel", 0, "`N`: run so many at a time; by default one with --before or --check, else as many as there are cores")
	o.Func("allow", "`FAULT=END`: accept a further end: same, recovered, blocked, other, twice or stuck; several after commas (repeatable)",
		func(text string) error {
			fault, ends, _ := strings.Cut(text, "=")
			for end := range strings.SplitSeq(ends, ",") {
				if !slices.Contains(faultNames(), fault) || !slices.Contains(exploredEnds[1:], end) {
					return fmt.Errorf("want one of %s, with %s", strings.Join(faultNames(), ", "), anyOf(exploredEnds[1:]))
				}
				x.allow[fault] = append(x.allow[fault], end)
			}
			return nil
		})
	return func(ctx context.Context, operands []string) error {
		ctx, stop := interruptible(ctx, 0)
		defer stop()
		if x.parallel < 0 {
			return o.misuse("--parallel must be at least 1")
		}
		v, err := exploreIn(ctx, o.p, a, x, operands[0])
		if err == nil {
			err = o.p.printExploration(v, *o.output)
		}
		if err == nil && v.Findings > 0 {
			err = exitf(exitWorkflow, "%d of %s did not end as allowed; --only STEP:FAULT shows one", v.Findings, counted(len(v.Cells), "fault", "faults"))
		}
		return o.named(err)
	}
}

// exploreIn explores a template in a service that nothing else uses.
func exploreIn(ctx context.Context, p *process, a *runArgs, x *exploration, operand string) (*explorationView, error) {
	c, w, end, err := a.open(p, operand)
	if err != nil {
		return nil, err
	}
	defer end()
	x.host = w.service().extension.(*fixture)
	body, err := a.taskBody(p, w.service(), operand, "stepwell explore")
	if err == nil {
		err = a.prepare(ctx, c)
	}
	if err != nil {
		return nil, a.unlessNamed(p, err)
	}
	text, _ := json.Marshal(body) // which cannot fail
	if x.task, err = parseTaskRequest(text); err != nil {
		return nil, usagef("%v", err)
	}
	v, err := x.explore(ctx)
	switch kind := kindOf(err); {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case kind == badRequest || kind == invalidFields: // of the context
		err = usagef("%v", err)
	case kind == conflict:
		err = a.unlessNamed(p, exitf(exitWorkflow, "%v", err))
	}
	return v, err
}

// printExploration prints how the runs ended.
func (p *process) printExploration(v *explorationView, form string) error {
	text := printableLines(v.Text) + "\n"
	switch moves := (document{v.Cells[0].Transitions}).list(); {
	case form == "json":
		return p.printJSON(v)
	case form == "junit":
		text = v.junit()
	case len(moves) > 0:
		first, _ := moves[0].when("recorded_at")
		for _, e := range moves {
			if !passedThrough[e.text("to_state")] {
				fmt.Fprintln(p.stdout, p.styleOf(p.stdout).transition(e, first))
			}
		}
	}
	_, err := io.WriteString(p.stdout, text)
	return err
}

// junit returns a report that CI systems read.
func (v *explorationView) junit() string {
	var b strings.Builder
	quoted := func(text string) string { return `"` + html.EscapeString(printable(text)) + `"` }
	fmt.Fprintf(&b, "<testsuite name=%s tests=\"%d\" failures=\"%d\">\n", quoted(v.Template), len(v.Cells), v.Findings)
	for _, c := range v.Cells {
		failure := "<failure message=" + quoted(c.End+": "+c.Message) + "/>"
		fmt.Fprintf(&b, "  <testcase classname=%s name=%s>%s</testcase>\n", quoted(v.Template), quoted(c.name()), pick(c.Allowed, "", failure))
	}
	return b.String() + "</testsuite>\n"
}
