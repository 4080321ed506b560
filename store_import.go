package main

// States from outside: an import fills an empty directory with one, a seed or fixture mode a store in memory. Every task
// must follow from its own records, which are applied one by one.

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// stateSource is a state to read: the lines of a store, with or without records after the compacted part.
type stateSource struct {
	document io.Reader
	size     int64                   // 0 if it is unknown
	admit    func(t *template) error // refuses templates of it; nil refuses none

	// salvage leaves out what lacks something that it needs, such as the tasks of a template whose line was removed.
	salvage bool
	losses  []string // what was missing, or left out; set by reading
}

// stateError is what is wrong with a state from outside.
type stateError struct{ error }

func (e stateError) Error() string { return "state: " + e.error.Error() }

func (e stateError) Unwrap() error { return e.error }

// readState reads a state into a new store that nobody uses yet. The error names the line; after an error the store is
// useless.
func (s *store) readState(from *stateSource) error {
	check := &outsideChecker{s: s, admit: from.admit, lost: map[uuid]*lostTask{}}
	l := &restorer{s: s, check: check}
	r := &storeReader{src: from.document, size: from.size, file: "the state", loader: l, outside: true, salvage: from.salvage}
	if from.salvage {
		r.loader = salvager{l, r}
	}
	err := r.read()
	if err == nil {
		err = l.finish(r)
	}
	if err != nil {
		return stateError{err}
	}
	from.losses = append(r.losses, check.lostTasks()...)
	s.journal.groups.begin(s.seq)
	return nil
}

func storeOf(state *stateSource, log *slog.Logger) (*store, error) {
	s := unchangingStore(log)
	return s, s.readState(state)
}

// openStoreWith opens an empty store with a state.
func openStoreWith(o journalOptions, state *stateSource, keepEvents int, c clock, log *slog.Logger) (*store, error) {
	if !o.memory {
		if _, err := importStore(o, state, log); err != nil {
			return nil, err
		}
		return openStore(o, keepEvents, c, log)
	}
	s, err := openStore(o, keepEvents, c, log)
	if err != nil {
		return nil, err
	}
	if err = s.readState(state); err == nil {
		s.nameLives(o.seed)
		s.beginLife(o.seed)
	}
	return s, err
}

// importStore creates the file of a store with a state, in a directory that holds none. The file has another name until
// it is complete.
func importStore(o journalOptions, state *stateSource, log *slog.Logger) (*store, error) {
	o.fs = cmp.Or(o.fs, diskFS(osDisk{}))
	lock, err := takeDir(&o)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if name, err := dirHolds(&o, storeName); err != nil {
		return nil, err
	} else if name != "" {
		return nil, fmt.Errorf("data directory %s already holds a store (%s): a state can only be imported into an empty one", o.dir, name)
	}
	s, err := spoolState(o, state, log)
	if err == nil {
		err = installImport(&o, lock.syncDir)
	}
	return s, err
}

// spoolState checks a state and writes it beside the store in a directory, where installImport finds it.
func spoolState(o journalOptions, state *stateSource, log *slog.Logger) (*store, error) {
	o.fs = cmp.Or(o.fs, diskFS(osDisk{}))
	s, err := storeOf(state, log)
	if err != nil {
		return nil, err
	}
	s.nameLives(o.seed)
	s.journal.of.id = cmp.Or(o.id, s.journal.of.id)
	if s.tasks.index.key == (failureKey{}) {
		s.tasks.index.key = cmp.Or(o.key, newFailureKey())
	}
	cut := s.cut()
	f, _, err := writeStoreFile(&o, importName, func(w *lineWriter) error { return s.write(cut, w) }, diskFile.sync)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("import into %s: %w", o.dir, err)
	}
	return s, nil
}

// installImport gives a state that was spooled the name of the store.
func installImport(o *journalOptions, syncDir func() error) error {
	o.fs = cmp.Or(o.fs, diskFS(osDisk{}))
	if err := nameStoreFile(o, importName, syncDir); err != nil {
		return fmt.Errorf("import into %s: %w", o.dir, err)
	}
	return nil
}

// storeID returns the id of a store that follows from a seed.
func storeID(seed [32]byte) string { return hex.EncodeToString(seed[:13]) }

// storePath returns the path of a file in a data directory.
func storePath(dir, name string) string { return filepath.Join(dir, name) }

// salvager loads a state and notes the tasks that lack something.
type salvager struct {
	*restorer
	r *storeReader
}

// lostTask is a task that is left out.
type lostTask struct {
	why     string
	records int // that are left out with it
}

// missing is the error for what refers to something that is not there.
type missing struct{ error }

func (v salvager) compacted(line *checkedLine) error {
	err := v.restorer.compacted(line)
	if _, lacks := errors.AsType[missing](err); lacks {
		if id, ok := lineID(line.text); ok {
			v.check.lost[id] = &lostTask{why: err.Error()}
			return nil
		}
	}
	return err
}

func (v salvager) record(line *checkedLine) error {
	if line.err != nil {
		return line.err
	}
	id := line.record.task
	if lost := v.check.lost[id]; lost != nil {
		if lost.records++; line.record.kind == recDropped {
			delete(v.check.lost, id)
		}
		v.s.seq = line.seq
		return nil
	}
	err := v.restorer.record(line)
	_, lacks := errors.AsType[missing](err)
	if err == nil || id.isZero() || !lacks && !v.r.gap {
		return err
	}
	if line.record.kind != recDropped {
		v.check.lost[id] = &lostTask{fmt.Sprintf("record %d: %v", line.seq, err), 1}
	}
	return nil
}

// outsideChecker checks lines from outside.
type outsideChecker struct {
	s      *store
	admit  func(t *template) error // see stateSource
	newest uint64                  // sequence of the last task's creation
	lost   map[uuid]*lostTask
}

// lostTasks describes the tasks that are left out, and drops them from the store.
func (c *outsideChecker) lostTasks() (losses []string) {
	byID := func(a, b uuid) int { return bytes.Compare(a[:], b[:]) }
	for _, id := range slices.SortedFunc(maps.Keys(c.lost), byID) {
		l := c.lost[id]
		losses = append(losses, fmt.Sprintf("task %s is left out (records of it after the compacted part: %d): %s", id, l.records, strings.TrimPrefix(l.why, "task "+id.String()+": ")))
		if sl, ok := c.s.tasks.find(id); ok {
			c.s.tasks.remove(sl) // nothing but a cut reads this store any more
		}
	}
	return losses
}

// template returns the line of a template whose definition may be spelled differently from the text that was hashed.
func (c *outsideChecker) template(line []byte) []byte {
	hash, definition := objectMember(line, "hash"), objectMember(line, "definition")
	name, _ := jsonString(hash)
	if t, err := templateFromNormalized(definition); err == nil && t.hash != name {
		if t, _, _ = parseTemplate("", definition, "json", "", nil); t != nil && t.hash == name {
			line = fmt.Appendf(nil, `{"hash":%s,"definition":%s}`, hash, t.json)
		}
	}
	return line
}

// task checks that a task follows from its log, and returns its line as this program writes it.
func (c *outsideChecker) task(line []byte) ([]byte, error) {
	h, err := readTaskLine(line)
	if err != nil {
		return nil, err
	}
	tpl := c.s.templates.find(h.template)
	if tpl == nil {
		return nil, templateMissing(&h)
	}
	order := &logOrder{}
	t, err := replayRecords(h.id, tpl, h.log, order)
	if err = cmp.Or(err, order.err); err != nil {
		return nil, err
	}
	again := append(append(t.appendHead(nil), order.log...), "]}"...)
	if !bytes.Equal(line, again) {
		err = follows(line, again)
	}
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", h.id, err)
	}
	// Positions must be in the order of creation.
	if t.seq <= c.newest {
		return nil, fmt.Errorf("task %s: its seq %d is not after that of the task before it, %d", h.id, t.seq, c.newest)
	}
	c.newest = t.seq
	if first, twice := c.s.tasks.identities[t.by.identity]; twice {
		return nil, fmt.Errorf("task %s: it has the same identity as task %s", h.id, first)
	}
	if err := c.checkStepIDs(t); err != nil {
		return nil, err
	}
	return again, nil
}

// checkStepIDs returns an error if the creation of a task names the id of a step that is there already.
func (c *outsideChecker) checkStepIDs(t *task) error {
	seen := map[uuid]bool{t.id: true}
	for i := range t.by.steps {
		id := t.by.stepID(t.id, i)
		if _, taken := c.s.tasks.byStep[id]; taken || seen[id] {
			return fmt.Errorf("task %s: it names a step %s, as does a task before it, or itself", t.id, id)
		}
		if seen[id] = true; i >= len(t.tpl.steps) && t.by.steps[i].isZero() {
			return fmt.Errorf("task %s: it names no id for instance %d", t.id, i-len(t.tpl.steps)+1)
		}
	}
	return nil
}

// follows checks what a line says of a task against the line that a replay of its log gives.
func follows(line, again []byte) (err error) {
	for key, value := range jsonMemberBytes(line) {
		switch string(key) {
		case "task", "template", "log": // which it is made from
			continue
		}
		if want := objectMember(again, string(key)); !bytes.Equal(canonicalJSON(nil, value), canonicalJSON(nil, want)) {
			err = fmt.Errorf("its %s is %s, but its log gives %s", key, value, cmp.Or(string(want), "none"))
		}
		if err != nil {
			break
		}
	}
	return err
}

// logOrder checks that the records of a task are in order and have a time, and writes them as this program does.
type logOrder struct {
	unobserved
	n    int
	last uint64
	err  error

	log, members []byte
}

func (o *logOrder) startRecord(t *task, r *record) {
	switch {
	case o.err != nil:
	case r.seq <= o.last:
		o.err = fmt.Errorf("task %s: log[%d]: record %d comes after %d", t.id, o.n, r.seq, o.last)
	case r.at == 0:
		o.err = fmt.Errorf("task %s: log[%d]: it has no time", t.id, o.n)
	}
	o.last = r.seq
	o.n++
	o.members = appendRecordMembers(o.members[:0], r)
	o.log = appendLogEntry(o.log, r.seq, o.members)
}
