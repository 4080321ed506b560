package main

// The tasker family: tasks that move to Tasker, the distributed service with the same API, and back. It uses the views
// of the service family, and knows no connection and no command.
//
//	tasker.go       the move of tasks, and the obstacles that keep one from it
//	tasker_pull.go  pulled tasks, a contradiction in them
//	tasker_rows.go  the rows of one task, from its fold
//	tasker_sql.go   the script for psql, and the text of a context that is hashed there

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// taskerMove says which tasks of a store move to Tasker.
type taskerMove struct {
	only          string  // finished or unfinished; "" for both
	namespace     string  // "" for any
	after, before instant // of their creation; 0 for no limit
	skip          bool    // leave out what cannot move
	now           instant
	running       bool // steps of unfinished tasks that are not held may still run here
	held          bool // leave out what is neither over nor held

	last     instant              // when a task of the store last changed
	contents map[string]*template // by name and version: the definition that moves, which is that of the newest task
	refused  []taskerRefusal
	free     []uuid // tasks that can move and are neither over nor held
	holds    []uuid // tasks that are held
}

// taskerRefusal is a task that cannot move, and why.
type taskerRefusal struct {
	task    uuid
	name    string // of its template
	reasons []string
}

// wants reports whether a task is among those to move.
func (m *taskerMove) wants(h *taskHeader, tpl *template) bool {
	finished := terminalStates.has(h.state)
	switch {
	case m.only == "finished" && !finished, m.only == "unfinished" && finished:
	case m.namespace != "" && m.namespace != tpl.namespace:
	case m.after != 0 && h.created <= m.after, m.before != 0 && h.created >= m.before:
	default:
		return true
	}
	return false
}

// check finds the tasks that cannot move. It returns how many can.
func (m *taskerMove) check(s *store) (moved int, err error) {
	newest := map[string]uint64{}
	m.contents, m.refused, m.free, m.holds = map[string]*template{}, nil, nil, nil
	// First the newest definitions: all tasks are compared with them.
	err = eachTask(s, func(h *taskHeader, tpl *template) error {
		m.last = max(m.last, h.updated)
		if m.wants(h, tpl) {
			if h.seq >= newest[tpl.fullName()] {
				newest[tpl.fullName()], m.contents[tpl.fullName()] = h.seq, tpl
			}
		}
		return nil
	})
	going := 0
	err = cmp.Or(err, eachTask(s, func(h *taskHeader, tpl *template) error {
		if !m.wants(h, tpl) {
			return nil
		}
		t, rows, err := movedTask(h, tpl)
		if err != nil || m.leaves(t) {
			return err
		}
		going += boolCount(unfinished(t) && t.hold == nil)
		reasons := append(m.obstacles(t), textObstacles(rows)...)
		switch {
		case len(reasons) > 0:
			m.refused = append(m.refused, taskerRefusal{t.id, tpl.fullName(), reasons})
		case t.hold == nil && !t.state.final():
			m.free = append(m.free, t.id)
		}
		if t.hold != nil {
			m.holds = append(m.holds, t.id)
		}
		moved += boolCount(len(reasons) == 0)
		return nil
	}))
	if err == nil && going > 0 && m.running {
		return 0, fmt.Errorf("%s unfinished, and may still run here, so that their steps would run in both services: "+
			"hold them with --hold PLACE, or stop the service and export its directory, or export finished tasks only",
			counted(going, "task is", "tasks are"))
	}
	return moved, err
}

// leaves reports whether a task stays here since it is not held.
func (m *taskerMove) leaves(t *task) bool { return m.held && t.hold == nil && !t.state.final() }

// changeHolds does a bulk action on holds in a store that no service uses. reason says where the tasks continue, or
// why.
func changeHolds(s *store, ids []uuid, action, reason string) error {
	var seq uint64
	for batch := range slices.Chunk(ids, bulkBatch) {
		var err error
		seq, err = s.update(func(c *change) error {
			for _, id := range batch {
				t, err := c.task(id)
				if err != nil {
					return err
				}
				r, err := taskActions[action](t, taskActor{reason: reason})
				if err == nil {
					err = c.append(t, r)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	// Once for all batches, since the journal keeps their order.
	return s.wait(context.Background(), seq)
}

// movedTask returns a task and its rows.
func movedTask(h *taskHeader, tpl *template) (*task, []byte, error) {
	fold := &taskerFold{}
	t, err := h.replay(tpl, fold)
	if err != nil {
		return nil, nil, err
	}
	fold.note(t)
	rows, err := rowsOf(t, fold)
	return t, rows, err
}

// write writes the transaction that moves those tasks of a store that check did not refuse.
func (m *taskerMove) write(s *store, to io.Writer) error {
	script, unmoved, used := newTaskerScript(to), map[uuid]bool{}, map[string]bool{}
	for _, r := range m.refused {
		unmoved[r.task] = true
	}
	script.stage("moved")
	err := eachTask(s, func(h *taskHeader, tpl *template) error {
		if !m.wants(h, tpl) || unmoved[h.id] {
			return nil
		}
		t, rows, err := movedTask(h, tpl)
		if err != nil || m.leaves(t) {
			return err
		}
		used[tpl.fullName()] = true
		script.row(rows)
		return nil
	})
	script.end()
	script.stage("moved_templates")
	for _, name := range slices.Sorted(maps.Keys(used)) {
		tpl := m.contents[name]
		w := jsonWriter{b: []byte{'{'}}
		w.text("namespace", tpl.namespace)
		w.text("name", tpl.name)
		w.text("version", tpl.version)
		w.raw("configuration", tpl.json)
		script.row(append(w.b, '}'))
	}
	script.end()
	return cmp.Or(err, script.finish())
}

// What the database and the service there limit.
const (
	taskerRetry  = 30 * time.Minute // how far away a retry may be, and how long a step may wait for somebody
	taskerCursor = 2000             // bytes of a checkpoint's cursor, which has an index
)

// obstacles returns why a task cannot move.
func (m *taskerMove) obstacles(t *task) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	long := func(what, text string, most int) {
		if n := utf8.RuneCountInString(text); n > most {
			say("its %s has %d characters; at most %d fit", what, n, most)
		}
	}
	long("namespace", t.tpl.namespace, 29)
	long("template's name", t.tpl.name, 64)
	long("template's version", t.tpl.version, 16)
	if int(int32(t.by.priority)) != t.by.priority {
		say("its priority %d is not an integer of 32 bits", t.by.priority)
	}
	for i := range t.steps {
		s, name := &t.steps[i], t.def(i).name
		long(fmt.Sprintf("step name %.40q", name), name, 128)
		if s.checkpoint != nil && len(objectMember(s.checkpoint.data, "cursor")) > taskerCursor {
			say("the cursor of the checkpoint of step %q has more than %d bytes", name, taskerCursor)
		}
		if unfinished(t) && !s.state.finished() {
			if why := m.obstacle(t, i); why != "" {
				say("step %q %s", name, why)
			}
		}
	}
	if finalStates.has(t.state) || t.state == taskError {
		return all
	}
	if m.contents[t.tpl.fullName()].hash != t.tpl.hash {
		say("a later task was made from another definition of %s, and there only one can have this name and version", t.tpl.fullName())
	}
	if unfinished(t) && t.counts[stepCancelled] > 0 {
		say("one of its steps is cancelled, and there a task with a cancelled step never completes")
	}
	if unfinished(t) && t.counts[stepEnqueued]+t.counts[stepInProgress]+t.counts[stepWaitingForRetry] == 0 {
		say("none of its steps can run")
	}
	return all
}

// obstacle returns why a step of an unfinished task cannot continue there, or "".
func (m *taskerMove) obstacle(t *task, i int) string {
	s, def := &t.steps[i], t.def(i)
	attempts := s.movedAttempts()
	switch {
	case s.state == stepInError:
		return "has failed for good, which blocks its task there"
	case s.state == stepWaitingForRetry && s.retryAt.sub(m.now) > taskerRetry:
		return fmt.Sprintf("is due to be retried at %s, more than %v from now, which is longer than its task may wait there",
			s.retryAt.zoned(), taskerRetry)
	case s.state == stepEnqueued && m.last.sub(s.updated) > taskerRetry:
		return fmt.Sprintf("has waited since %s to be claimed, longer than the %v that its task may wait there",
			s.updated.zoned(), taskerRetry)
	case s.inputs != "":
		return "has inputs that an operator set, which cannot be stored there"
	case attempts > 0 && !(def.retry.Retryable && attempts < s.maxAttempts):
		return fmt.Sprintf("has had %d attempts, and may not have more there", attempts)
	case def.kind == stepBatchWorker && jsonKind(objectMember(def.config, "cursor")) != '{':
		return "has a cursor that is not an object"
	}
	return ""
}

// textObstacles returns what PostgreSQL cannot store of a JSON text: U+0000, which earlier versions accepted, and
// numbers with more than 16383 digits after the point or 131072 before it.
func textObstacles(text []byte) (all []string) {
	const most = 16000
	digits := 0
	for i := 0; i < len(text) && len(all) == 0; i++ {
		switch c := text[i]; {
		case c == '"':
			end := skipJSONString(text, i)
			if s, _ := jsonString(text[i:end]); strings.ContainsRune(s, 0) {
				all = append(all, "a text of it has U+0000")
			}
			i, digits = end-1, 0
		case '0' <= c && c <= '9':
			digits++
		case (c == 'e' || c == 'E') && digits > 0:
			// PostgreSQL stores the digits that an exponent stands for.
			n, _ := leadingNumber(bytes.TrimLeft(text[i+1:min(i+24, len(text))], "+-0"))
			digits += int(n)
		case c != '.':
			digits = 0
		}
		if digits > most {
			all = append(all, "a number of it has more digits than PostgreSQL stores")
		}
	}
	return all
}
