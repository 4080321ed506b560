package main

// The command export: tasks of a running Stepwell become a script for psql. Each task is read by requests for itself,
// its steps, its transitions, its audit and its dead letters.

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
)

// export is one run of the command.
type export struct {
	p         *program
	c         *client
	only      string // finished or unfinished; "" for both
	namespace string // "" for any
	after     string // of the creation of tasks; "" for no limit
	before    string
	hold      string // where the tasks continue; "" to hold none
	skip      bool   // leave out what cannot move

	last     string                 // when a task last changed
	contents map[string]*definition // by name and version: the definition that moves, which is that of the newest task
	rows     *os.File               // of the tasks that can move, a line each
	used     map[string]bool        // contents that are needed
	moved    int                    // how many rows there are
	refused  int
	free     []task // can move, and could continue here
}

func (p *program) exportCommand(flags *flag.FlagSet) func(context.Context, []string) error {
	e := &export{p: p}
	address := flags.String("url", "", "read the tasks of the Stepwell at this `URL` or unix:PATH, by default $STEPWELL_URL")
	flags.StringVar(&e.hold, "hold", "", "keep each exported task from running here, and record this `PLACE`, such as a URL, where it continues")
	flags.BoolVar(&e.skip, "skip", false, "omit tasks that cannot move, and write the others")
	flags.StringVar(&e.only, "only", "", "write only tasks of this `KIND`: finished (which includes blocked) or unfinished")
	flags.StringVar(&e.namespace, "namespace", "", "write only tasks of this `NAMESPACE`")
	flags.StringVar(&e.after, "created-after", "", "write only tasks created after this `TIME`, such as 2026-01-31T12:00:00Z")
	flags.StringVar(&e.before, "created-before", "", "write only tasks created before this `TIME`")
	return func(ctx context.Context, operands []string) (err error) {
		if *address == "" {
			*address = p.getenv("STEPWELL_URL")
		}
		switch {
		case len(operands) > 0:
			return failf(exitUsage, "export: it takes no operand; the script goes to standard output")
		case *address == "":
			return failf(exitUsage, "export: missing --url")
		case e.only != "" && e.only != "finished" && e.only != "unfinished":
			return failf(exitUsage, "--only must be finished or unfinished, not %q", e.only)
		}
		if e.c, err = p.client(*address, "ORCHESTRATION"); err == nil {
			err = e.run(ctx)
		}
		return err
	}
}

// run reads the tasks, lists those that cannot move, holds the others, and writes the script. Tasks that are held are
// read once more as they are then.
func (e *export) run(ctx context.Context) (err error) {
	if e.rows, err = os.CreateTemp("", "tasker-"); err != nil {
		return err
	}
	defer os.Remove(e.rows.Name())
	defer e.rows.Close()
	e.contents, e.used = map[string]*definition{}, map[string]bool{}
	tasks, err := e.list(ctx)
	if err != nil {
		return err
	}
	going := 0
	for i := range tasks {
		if t := &tasks[i]; t.unfinished() && t.Hold == nil {
			going++
		}
	}
	if going > 0 && e.hold == "" {
		return failf(exitFailed, "%s unfinished, and may still run here, so that their steps would run in both services: "+
			"hold them with --hold PLACE, or export finished tasks only", counted(going, "task is", "tasks are"))
	}
	for i := range tasks {
		if err := e.add(ctx, tasks[i], e.hold != ""); err != nil {
			return err
		}
	}
	if e.refused > 0 && !e.skip {
		return failf(exitFailed, "%s cannot move, so nothing was written; --skip writes the other %d",
			counted(e.refused, "task", "tasks"), e.moved+len(e.free))
	}
	if err := e.holdFree(ctx); err != nil {
		return err
	}
	if err := e.write(); err != nil {
		return err
	}
	if e.refused > 0 {
		return failf(exitFailed, "%s cannot move; the other %d were written", counted(e.refused, "task", "tasks"), e.moved)
	}
	return nil
}

// list returns the tasks to move, the newest first, without their contexts.
func (e *export) list(ctx context.Context) (tasks []task, err error) {
	query := url.Values{"per_page": {"100"}, "context": {"false"}, "cursor": {""}}
	for name, value := range map[string]string{"namespace": e.namespace, "created_after": e.after, "created_before": e.before} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for {
		var page struct {
			Tasks      []task
			Pagination struct {
				Next string `json:"next_cursor"`
			}
		}
		if err := e.c.get(ctx, "/v1/tasks?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		for _, t := range page.Tasks {
			if e.only == "" || t.unfinished() == (e.only == "unfinished") {
				tasks, e.last = append(tasks, t), max(e.last, t.Updated)
			}
		}
		if page.Pagination.Next == "" {
			return tasks, nil
		}
		query.Set("cursor", page.Pagination.Next)
	}
}

// add adds the rows of a task, or says why it cannot move. Tasks that are to be held first are noted as free instead.
func (e *export) add(ctx context.Context, listed task, first bool) error {
	x, err := e.read(ctx, listed.ID)
	if err != nil {
		return err
	}
	row := encode(x.rows())
	if reasons := append(e.obstacles(x), textObstacles(row)...); len(reasons) > 0 {
		for _, reason := range reasons {
			e.p.say("task %s of %s: %s", x.ID, x.fullName(), reason)
		}
		e.refused++
		return nil
	}
	if first && x.Hold == nil && !x.over() {
		e.free = append(e.free, listed)
		return nil
	}
	e.moved, e.used[x.fullName()] = e.moved+1, true
	_, err = e.rows.Write(append(row, '\n'))
	return err
}

// read reads everything about a task.
func (e *export) read(ctx context.Context, id string) (*moved, error) {
	var history struct{ Transitions []transition }
	t, err := e.c.readTask(ctx, id, map[string]any{"/transitions": &history})
	if err == nil {
		t.def, err = e.definition(ctx, t)
	}
	switch {
	case errors.Is(err, errChanged):
		return nil, failf(exitFailed, "task %s: %v", id, err)
	case err != nil:
		return nil, err
	case t.Redacted:
		return nil, failf(exitRefused, "the context of task %s is redacted: the export needs all permissions", id)
	}
	x := &moved{task: t}
	return x, x.link(history.Transitions)
}

// definition returns the template that a task was created with. The first task of a name and version, which is the
// newest, says which definition moves.
func (e *export) definition(ctx context.Context, t *task) (*definition, error) {
	text, err := e.c.send(ctx, "GET", "/v1/tasks/"+t.ID+"/template", nil)
	if err != nil {
		return nil, err
	}
	d, err := readDefinition(text)
	if err == nil && e.contents[t.fullName()] == nil {
		e.contents[t.fullName()] = d
	}
	return d, err
}

// holdFree holds the tasks that can move and could continue here, and adds them as they are then. Those that cannot move
// any more continue here.
func (e *export) holdFree(ctx context.Context) error {
	ids := make([]string, len(e.free))
	for i := range e.free {
		ids[i] = e.free[i].ID
	}
	held, err := e.c.act(ctx, "hold", e.hold, ids)
	if held > 0 {
		e.p.say("held %s", counted(held, "task", "tasks"))
	}
	var back []string
	for _, t := range e.free {
		refused := e.refused
		if err == nil {
			err = e.add(ctx, t, false)
		}
		if e.refused > refused {
			back = append(back, t.ID)
		}
	}
	if err == nil && len(back) > 0 {
		_, err = e.c.act(ctx, "release", "cannot move", back)
	}
	return err
}

// scriptBegin checks the schema, and makes the staging tables and the function for identities; scriptEnd inserts the rows of
// the tasks that are not there.
//
//go:embed begin.sql
var scriptBegin string

//go:embed end.sql
var scriptEnd string

// write writes the script.
func (e *export) write() error {
	if _, err := e.rows.Seek(0, io.SeekStart); err != nil {
		return err
	}
	out := bufio.NewWriter(e.p.stdout) // whose first error stays
	out.WriteString(scriptBegin + "\nCOPY moved FROM STDIN;\n")
	for lines := bufio.NewReader(e.rows); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		out.WriteString(copied(line))
	}
	out.WriteString("\\.\n\nCOPY moved_templates FROM STDIN;\n")
	for _, name := range slices.Sorted(maps.Keys(e.used)) {
		out.WriteString(copied(string(encode(object{"configuration": e.contents[name].json})) + "\n"))
	}
	out.WriteString("\\.\n" + scriptEnd)
	return out.Flush()
}

// copied returns a line of JSON as COPY reads it, which has escapes of its own.
func copied(line string) string { return strings.ReplaceAll(line, `\`, `\\`) }
