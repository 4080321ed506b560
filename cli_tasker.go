package main

// The command store export: a state document, or with --to tasker the tasks of a directory, a service or a state
// document for the distributed service.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// taskerExport is an export for the distributed service as the flags say.
type taskerExport struct {
	o         *options
	dir, from *string
	move      taskerMove
}

// exportStoreTo exports a state document, or the tasks for the distributed service.
func exportStoreTo(o *options) runner {
	o.withClient()
	e := &taskerExport{o: o}
	e.dir = o.String("data", "./stepwell-data", "the data `DIR`")
	to := o.String("to", "", "write the tasks for another `PRODUCT`: tasker, the distributed service")
	e.from = o.String("from", "", "with --to: read the state document `FILE`; - is standard input")
	o.StringVar(&e.move.only, "only", "", "with --to: only tasks of this `KIND`: finished, as blocked ones are, or unfinished")
	o.StringVar(&e.move.namespace, "namespace", "", "with --to: only tasks of this `NAMESPACE`")
	o.BoolVar(&e.move.skip, "skip", false, "with --to: leave out tasks that cannot move, and write the others")
	for name, at := range map[string]*instant{"created-after": &e.move.after, "created-before": &e.move.before} {
		o.Func(name, "with --to: only tasks "+strings.Replace(name, "-", " ", 1)+" this `TIME`, like 2026-01-31T12:00:00Z",
			func(text string) (err error) {
				*at, err = parseInstant(text)
				return err
			})
	}
	return func(ctx context.Context, files []string) error {
		only := e.move.only
		switch {
		case *to != "" && *to != "tasker":
			return o.misuse("--to must be tasker, not %q", *to)
		case only != "" && only != "finished" && only != "unfinished":
			return o.misuse("--only must be finished or unfinished, not %q", only)
		case *to != "":
			return o.named(e.run(ctx, files))
		}
		lost := ""
		o.Visit(func(f *flag.Flag) {
			if f.Name != "data" {
				lost = f.Name
			}
		})
		if lost != "" {
			return o.misuse("--%s needs --to", lost)
		}
		return o.p.exportStore(*e.dir, files)
	}
}

// run checks which tasks can move, lists the others, and writes the transaction.
func (e *taskerExport) run(ctx context.Context, files []string) error {
	p, m := e.o.p, &e.move
	s, release, err := e.source(ctx)
	if err != nil {
		return err
	}
	defer release()
	m.now = p.now()
	moved, err := m.check(s)
	if err != nil {
		return err
	}
	for _, r := range m.refused {
		for _, reason := range r.reasons {
			fmt.Fprintf(p.stderr, "task %s of %s: %s\n", r.task, r.name, reason)
		}
	}
	left := counted(len(m.refused), "task cannot", "tasks cannot") + " move"
	if len(m.refused) > 0 && !m.skip {
		return exitf(exitFailed, "%s, so nothing was written; --skip writes the other %d", left, moved)
	}
	err = p.writeExport(files, func(w io.Writer) error { return m.write(s, w) })
	if err == nil && len(m.refused) > 0 {
		return exitf(exitFailed, "%s; the other %d were written", left, moved)
	}
	return err
}

// source returns the tasks, and releases their directory at the end. Unless they come from a directory that no service
// holds, their steps may go on meanwhile.
func (e *taskerExport) source(ctx context.Context) (s *store, release func(), err error) {
	document, log := io.NopCloser(e.o.p.stdin), slog.New(slog.NewTextHandler(e.o.p.stderr, nil))
	e.move.running = true
	switch {
	case *e.from == "-":
	case *e.from != "":
		document, err = os.Open(*e.from)
	case *e.o.url != "":
		document, err = e.backup(ctx)
	default:
		return e.directory(log)
	}
	if err != nil {
		return nil, nil, err
	}
	defer document.Close()
	s, err = storeOf(&stateSource{document: document}, log)
	return s, func() {}, err
}

// backup asks the service for its state.
func (e *taskerExport) backup(ctx context.Context) (io.ReadCloser, error) {
	c, err := e.o.client()
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, call{method: "GET", path: "/v1/backup"})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// directory returns the tasks of the data directory, which it holds if no service does.
func (e *taskerExport) directory(log *slog.Logger) (*store, func(), error) {
	if _, err := os.Stat(*e.dir); err != nil {
		return nil, nil, err
	}
	release := func() {}
	if lock, err := lockStore(*e.dir); err == nil {
		e.move.running, release = false, func() { lock.Close() }
	}
	s, err := readStore(*e.dir, log)
	if err != nil {
		release()
	}
	return s, release, err
}
