package main

// The command store export: a state, or with --to tasker the tasks of a directory, a service or a state
// document for Tasker.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
)

// taskerExport is an export for Tasker as the flags say.
type taskerExport struct {
	o         *options
	dir, from *string
	hold      *string // the place where the tasks continue that are held; "" to hold none
	release   *bool
	force     *bool
	move      taskerMove

	log   *slog.Logger
	store *store // what is exported
	close func() error
}

// exportStoreTo exports a state, or the tasks for Tasker.
func exportStoreTo(o *options) runner {
	o.withClient()
	e := &taskerExport{o: o, log: slog.New(slog.NewTextHandler(o.p.stderr, nil))}
	e.force = o.forceFlag()
	e.dir = o.String("data", "./stepwell-data", "`DIR`: use this data directory")
	to := o.String("to", "", "`PRODUCT`: write the tasks for another product: tasker")
	e.from = o.String("from", "", "`FILE`: with --to, read this state; - is standard input")
	e.hold = o.String("hold", "", "`PLACE`: with --to, keep each exported task from running here, and record this place, such as a URL, where it continues")
	e.release = o.Bool("release", false, "with --to, write nothing, and let held tasks continue here")
	o.StringVar(&e.move.only, "only", "", "`KIND`: with --to, write only tasks of this kind: finished (which includes blocked) or unfinished")
	o.StringVar(&e.move.namespace, "namespace", "", "`NAMESPACE`: with --to, write only tasks of this namespace")
	o.BoolVar(&e.move.skip, "skip", false, "with --to, omit tasks that cannot move, and write the others")
	for name, at := range map[string]*instant{"created-after": &e.move.after, "created-before": &e.move.before} {
		o.Func(name, "`TIME`: with --to, write only tasks "+strings.Replace(name, "-", " ", 1)+" this time, such as 2026-01-31T12:00:00Z",
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
		case *e.release && *e.hold != "":
			return o.misuse("--release takes back what --hold does: give one of them")
		case *e.from != "" && (*e.release || *e.hold != ""):
			return o.misuse("tasks are held in a service or a directory, not in the document that --from reads")
		case *to != "":
			return o.named(e.run(ctx, files))
		}
		lost := ""
		o.Visit(func(f *flag.Flag) {
			if f.Name != "data" && f.Name != "force" {
				lost = f.Name
			}
		})
		if lost != "" {
			return o.misuse("--%s needs --to", lost)
		}
		return o.p.exportStore(*e.dir, files, *e.force)
	}
}

// run checks which tasks can move, lists the others, and writes the transaction. Tasks that are held are checked once
// more as they are then, since a service may have changed them meanwhile.
func (e *taskerExport) run(ctx context.Context, files []string) (err error) {
	p, m := e.o.p, &e.move
	if err := e.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	// Tasks that will be held cannot run on meanwhile, so that running steps are no obstacle here.
	m.now, m.running = p.now(), m.running && *e.hold == "" && !*e.release
	moved, err := m.check(e.store)
	switch {
	case err != nil:
		return err
	case *e.release:
		return e.act(ctx, bulkRelease, m.holds)
	}
	stay := m.refused
	e.list(stay)
	if len(stay) > 0 && !m.skip {
		return exitf(exitFailed, "%s, so nothing was written; --skip writes the other %d", cannotMove(stay), moved)
	}
	if *e.hold != "" {
		var late []taskerRefusal
		if moved, late, err = e.holdMoved(ctx); err != nil {
			return err
		}
		stay = append(stay, late...)
	}
	err = p.writeExport(files, *e.force, func(w io.Writer) error { return m.write(e.store, w) })
	if err == nil && len(stay) > 0 {
		return exitf(exitFailed, "%s; the other %d were written", cannotMove(stay), moved)
	}
	return err
}

func cannotMove(refused []taskerRefusal) string {
	return counted(len(refused), "task cannot", "tasks cannot") + " move"
}

// list prints which tasks cannot move, and why.
func (e *taskerExport) list(refused []taskerRefusal) {
	for _, r := range refused {
		for _, reason := range r.reasons {
			fmt.Fprintf(e.o.p.stderr, "task %s of %s: %s\n", r.task, r.name, reason)
		}
	}
}

// holdMoved holds the tasks that can move and are not over. It returns how many tasks move then, and those that cannot
// move any more once they are held, which continue here.
func (e *taskerExport) holdMoved(ctx context.Context) (moved int, late []taskerRefusal, err error) {
	m, held := &e.move, e.move.free
	if err := e.act(ctx, bulkHold, held); err != nil {
		return 0, nil, err
	}
	// Of a service, the tasks were copies from before they were held.
	if *e.o.url != "" {
		if err := e.open(ctx); err != nil {
			return 0, nil, err
		}
	}
	m.held = true
	if moved, err = m.check(e.store); err != nil {
		return 0, nil, err
	}
	var back []uuid
	for _, r := range m.refused {
		if slices.Contains(held, r.task) { // and not by an earlier run, since when it continues there
			late, back = append(late, r), append(back, r.task)
		}
	}
	e.list(late)
	return moved, late, e.act(ctx, bulkRelease, back)
}

// act holds or releases tasks, in the service or the directory that has them.
func (e *taskerExport) act(ctx context.Context, action string, ids []uuid) error {
	reason, did, done := *e.hold, "held", 0
	if action == bulkRelease {
		reason, did = "released on the command line", "released"
	}
	err := e.actThere(ctx, action, ids, reason, &done)
	if done > 0 {
		fmt.Fprintf(e.o.p.stderr, "%s %s\n", did, counted(done, "task", "tasks"))
	}
	return err
}

func (e *taskerExport) actThere(ctx context.Context, action string, ids []uuid, reason string, done *int) error {
	if *e.o.url == "" {
		err := changeHolds(e.store, ids, action, reason)
		if err == nil {
			*done = len(ids)
		}
		return err
	}
	c, err := e.o.client()
	if err != nil {
		return err
	}
	for part := range slices.Chunk(ids, maxBulkIDs) {
		words := make([]string, len(part))
		for i := range part {
			words[i] = part[i].String()
		}
		bulk := &bulkFlags{o: e.o, one: "task", many: "tasks"}
		last, _, err := bulk.stream(ctx, c, map[string]any{"action": action, "reason": reason, "filter": map[string]any{"task_uuid": words}}, 0)
		if err != nil {
			return err
		}
		*done += int(last.number("done"))
		if last.text("finished") != "true" {
			return fmt.Errorf("stopped: %s", last.text("error.message"))
		}
	}
	return nil
}

// open opens the tasks, and their directory for itself if nobody holds it. Unless they come from such a directory,
// their steps may continue meanwhile.
func (e *taskerExport) open(ctx context.Context) (err error) {
	document := io.NopCloser(e.o.p.stdin)
	e.move.running, e.close = true, func() error { return nil }
	switch {
	case *e.from == "-":
	case *e.from != "":
		document, err = os.Open(*e.from)
	case *e.o.url != "":
		document, err = e.backup(ctx)
	case *e.hold != "" || *e.release:
		return e.openToChange()
	default:
		return e.read()
	}
	if err != nil {
		return err
	}
	defer document.Close()
	e.store, err = storeOf(&stateSource{document: document}, e.log)
	return err
}

// backup returns the state of the service.
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

// openToChange opens the store of the data directory, which no service may hold.
func (e *taskerExport) openToChange() error {
	o, err := e.o.p.toolJournal(*e.dir)
	if err != nil {
		return err
	}
	e.move.running = false
	if e.store, err = openStore(o, defaultKeptEvents, new(realClock), e.log); err == nil {
		e.close = e.store.close
	}
	return err
}

// read reads the tasks of the data directory, which it holds if no service does.
func (e *taskerExport) read() error {
	if _, err := os.Stat(*e.dir); err != nil {
		return err
	}
	if lock, err := lockStore(*e.dir); err == nil {
		e.move.running, e.close = false, lock.Close
	}
	o := journalOptions{dir: *e.dir, log: e.log}
	s, _, err := readStore(&o, storePath(o.dir, storeName))
	if err != nil {
		return errors.Join(err, e.close())
	}
	e.store = s
	return nil
}
