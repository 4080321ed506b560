package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestStoredTasks reads lines of tasks one after the other, and compares what they have in common
// with what each says by itself.
func TestStoredTasks(t *testing.T) {
	var slab lineSlab
	lines := storedTaskLines(t)
	for _, line := range slices.Concat(lines, lines, lines[:1], lines[:1]) {
		got, want := readStoredTask(line, &slab), must(readTaskHeader(line))(t)
		by := *must(want.creationRecord())(t).created
		if got.err != nil || !reflect.DeepEqual(got.taskHeader, want) {
			t.Errorf("got %+v, %v; want %+v", got.taskHeader, got.err, want)
		}
		if by.context = got.by.context; !reflect.DeepEqual(*got.by, by) {
			t.Errorf("got %+v; want %+v", got.by, by)
		}
		if text := got.line.text(); !bytes.Equal(text, line) {
			t.Errorf("got %s; want %s", text, line)
		}
	}
}

// TestStoredValues reads lines of tasks that are found by values, by none, or failed, one after the other: each says the same
// by itself.
func TestStoredValues(t *testing.T) {
	svc := newTestService(t, serviceTest{templates: apiTemplates, clock: newVirtualClock(testStart)})
	for _, name := range []string{"echo", "fails", "exhausted"} {
		for _, more := range []string{
			`{"order_id":"ORD-1"}`, `{"order_id":"ORD-2","customer":{"email":"a@b"},"amount":1e2}`, `{"loud":null}`, `{}`,
			`{"order_id":"ORD-3"},"tags":["x"]`, `{"order_id":"ORD-4"},"tags":["x"]`, `{"search":{"order_id":1}}`, `{"search":1},"reason":"r"`,
		} {
			if task := mustCreate(t, svc, name, `"context":`+more); name != "echo" {
				must(svc.operator.cancelTask(t.Context(), task.id, taskActor{}))(t)
			}
		}
	}
	settle(svc)
	var slab lineSlab
	apart, texts := 0, map[string]bool{}
	for i := range svc.store.tasks.slots {
		line := svc.store.tasks.slots[i].line.text()
		got, whole := readStoredTask(line, &slab), must(svc.store.viewAt(uint32(i)))(t)
		search := got.by.search
		if got.search != nil {
			apart++
			search = got.search
		}
		by := *whole.by
		if by.context, by.search = got.by.context, got.by.search; got.err != nil || !reflect.DeepEqual(*got.by, by) || !bytes.Equal(search, whole.by.search) {
			t.Errorf("%s: got %+v with %s, %v", line, got.by, search, got.err)
		}
		for _, text := range got.errors {
			texts[text] = true
		}
	}
	if apart < 4 || !maps.Equal(texts, map[string]bool{"printererror: out of paper": true, "builtin_fail: jammed": true}) {
		t.Errorf("%d lines have their values apart, and the errors are %v", apart, texts)
	}
}

// TestLoadedLinesShareMemory loads lines one by one, as an import and a repair do: each takes little more
// than itself.
func TestLoadedLinesShareMemory(t *testing.T) {
	slowAndSequential(t)
	const count = 200
	svc := newTestService(t, serviceTest{extra: storyTemplates})
	l := &restorer{s: newStore(svc.clock, slog.New(slog.DiscardHandler))}
	for range count {
		mustCreate(t, svc, "noop")
	}
	var lines [][]byte
	for _, sl := range svc.store.tasks.slots {
		lines = append(lines, sl.line.text())
	}
	for _, tpl := range svc.store.templates.byHash {
		l.s.templates.keep(tpl)
	}
	before := liveHeap()
	for _, line := range lines {
		noError(t, l.line(line))
	}
	if took := (liveHeap() - before) * 1e6 / count; took > 8<<10 {
		t.Errorf("each of %d lines takes %.0f bytes; want at most %d", count, took, 8<<10)
	}
	runtime.KeepAlive(l)
}

// TestRepeatedRecordCostsNothing expects a record that the snapshot's line of its task has to
// be skipped at once.
func TestRepeatedRecordCostsNothing(t *testing.T) {
	id := newIDSource(newVirtualClock(testStart), nil).random()
	l := &restorer{s: newStore(nil, slog.New(slog.DiscardHandler)), ahead: map[uuid]uint64{id: 9}, last: 9}
	line := fmt.Appendf(nil, `{"seq":9,"task":"%s","kind":"nonsense"}`, id)
	repeated, next := &checkedLine{text: line, seq: 9}, &checkedLine{text: line, seq: 10}
	next.record, next.err = decodeRecord(line)
	cost := testing.AllocsPerRun(100, func() { noError(t, l.record(repeated)) })
	if cost != 0 || l.s.seq != 9 {
		t.Errorf("got %v allocations, sequence %d; want 0, 9", cost, l.s.seq)
	}
	if l.record(next) == nil || l.repeats(9, line[:30]) || l.repeats(9, []byte(`{"seq":9}`)) {
		t.Error("a record that the line does not have was skipped")
	}
}

// TestReadStoreTakesNoChanges reads the files of a store and ends a walk over its tasks, as an
// export does: a change is refused at once and asks the disk for nothing.
func TestReadStoreTakesNoChanges(t *testing.T) {
	dir := t.TempDir()
	closeTestService(t, openTestService(t, serviceTest{dir: dir}))
	s := must(readStore(dir, slog.New(slog.DiscardHandler)))(t)
	_, err := s.update(func(*change) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "closed") || s.journal.space.watch.timer != nil {
		t.Errorf("got error %v; want a store that is closed, and no look at the disk", err)
	}
}

// oldTemplate has names that misname changes.
const oldTemplate = `{"namespace":"t","name":"OldTemplate","version":"1.0.0","identity_strategy":"always_unique",
	"metadata":{"tags":["EscLabel"]},"steps":[
	{"name":"OldStep","type":"batchable","handler":{"callable":"Outside"},
	 "publishes_events":[{"name":"OldEvent","description":"","schema":{}}]},
	{"name":"w","type":"batch_worker","dependencies":["OldStep"],"handler":{"callable":"builtin:noop"}}]}`

// misname puts characters that mislead in the place of Old and Esc in a journal or a state document, as
// a version wrote it that accepted them.
func misname(t *testing.T, text string) string {
	t.Helper()
	text = strings.NewReplacer("Old", "a\u202eb", "Esc", `a\u001bb`).Replace(text)
	const head = `"hash":"`
	for rest := text; strings.Contains(rest, head); {
		_, rest, _ = strings.Cut(rest, head)
		old, after, _ := strings.Cut(rest, `","definition":`)
		tpl := must(templateFromNormalized([]byte(after[:skipJSONValue([]byte(after), 0)])))(t)
		text = strings.ReplaceAll(text, old, tpl.hash)
	}
	return text
}

// TestOldNames opens stores with names that are refused now: from a journal, from a snapshot, only to be
// read, and from a state document. Each says so once, and everything can be found by these names.
func TestOldNames(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), extra: []string{oldTemplate}}
	s := openTestService(t, o)
	finished := &actor{t, s, mustCreate(t, s, "OldTemplate", `"tags":["EscTag","plain"]`).id}
	finished.completeWith("OldStep", cursorsOf("w", `{"batch_id":"OldBatch"}`, `{"batch_id":"eu"}`))
	mustCreate(t, s, "OldTemplate")
	settle(s)
	noError(t, s.store.waitAll(t.Context()))
	closeTestService(t, s)
	path := filepath.Join(o.dir, journalName)
	lines := strings.SplitAfter(misname(t, strings.TrimRight(string(readFile(t, path)), "\x00")), "\n")
	for i, line := range lines[:len(lines)-1] {
		lines[i] = string(sumLine([]byte(line[:len(line)-len(sumTail)-1])))
	}
	writeFile(t, path, []byte(strings.Join(lines, "")))
	o.extra = nil

	open := func(name string, o serviceTest, change func(p *serviceOptions)) *service {
		told := &logLines{}
		o.log = told
		parts := testParts(t, o)
		change(&parts)
		s := must(openService(parts))(t)
		const want = `names=6 example=a\x1bbLabel`
		if got := told.String(); strings.Count(got, "which are refused now") != 1 || !strings.Contains(got, want) {
			t.Errorf("%s: the log is\n%s\nwant one warning, with %s", name, got, want)
		}
		h := (&testServer{t: t, svc: s}).with(newOrchestrationAPI(s, nil))
		for query, want := range map[string]string{"tag": "a\x1bbTag", "name": "a\u202ebTemplate", "q": "\u202e"} {
			a := h.do("GET", "/v1/tasks?"+url.Values{query: {want}}.Encode(), "").want(200)
			if n := a.text("pagination.total_count"); n != map[string]string{"tag": "1", "name": "2", "q": "2"}[query] {
				t.Errorf("%s: %s=%q finds %s tasks: %s", name, query, want, n, a.body)
			}
		}
		if got, want := instancesOf(must(s.store.view(finished.id))(t)), "w_a\u202ebBatch w_eu"; got != want {
			t.Errorf("%s: the instances are %q; want %q", name, got, want)
		}
		return s
	}
	closeTestService(t, open("a journal to be read", o, func(p *serviceOptions) { p.readOnly = true }))
	s = open("a journal", o, func(*serviceOptions) {})
	noError(t, s.store.snapshot())
	document := exported(t, s)
	closeTestService(t, s)
	closeTestService(t, open("a snapshot", o, func(*serviceOptions) {}))
	closeTestService(t, open("read-only", o, func(p *serviceOptions) { p.readOnly = true }))
	o.dir = ""
	state := func(p *serviceOptions) { p.state = &stateSource{document: strings.NewReader(document)} }
	closeTestService(t, open("a document", o, state))
	o.dir = t.TempDir()
	closeTestService(t, open("an import", o, state))
}

// TestMisnamedStates checks that a state document which comes by the API is refused for a name, with its place,
// unless the service began with that name.
func TestMisnamedStates(t *testing.T) {
	t.Parallel()
	o := serviceTest{extra: []string{oldTemplate}}
	a := &actor{t, openTestService(t, o), uuid{}}
	a.id = mustCreate(t, a.s, "OldTemplate", `"tags":["OldTag"]`).id
	a.completeWith("OldStep", cursorsOf("w", `{"batch_id":"OldBatch"}`))
	plain := exported(t, a.s)
	old := misname(t, plain)
	seed := filepath.Join(t.TempDir(), "seed.json")
	writeFile(t, seed, []byte(old))
	closeTestService(t, a.s)
	for name, tt := range map[string]struct {
		o        serviceTest
		document string
		place    string // of the problem; "" for none
		name     string
	}{
		"a template":         {o, old, "templates[0]", `a\u202ebTemplate`},
		"a tag":              {o, strings.Replace(plain, "OldTag", "a\u202eb", 1), "tasks[0]", `a\u202eb`},
		"a batch":            {o, strings.ReplaceAll(plain, "OldBatch", "a\u202eb"), "tasks[0]", `w_a\u202eb`},
		"its own":            {serviceTest{seed: seed}, old, "", ""},
		"another name":       {serviceTest{seed: seed}, strings.Replace(old, "a\u202ebTag", "a\u202ebTug", 1), "tasks[0]", `a\u202ebTug`},
		"nothing misleading": {o, plain, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixtureServer(t, tt.o)
			before := string(s.do("GET", "/_stepwell/state", "").body)
			for method, path := range map[string]string{"PUT": "/_stepwell/state", "POST": "/_stepwell/sandboxes"} {
				body := tt.document
				if method == "POST" {
					body = `{"seed":` + body + `}`
				}
				a := s.do(method, path, body)
				if tt.place == "" {
					if a.status >= 300 {
						t.Errorf("%s %s: got %d, %s", method, path, a.status, a.body)
					}
					continue
				}
				field, message := a.want(422).text("error.details.0.field"), a.text("error.details.0.message")
				if !strings.HasSuffix(field, tt.place) || !strings.Contains(message, `the name "`+tt.name+`" has the character U+202E; `) {
					t.Errorf("%s %s: got %q: %s; want %s refused", method, path, field, message, tt.place)
				}
				if now := string(s.do("GET", "/_stepwell/state", "").body); now[strings.Index(now, `"seq"`):] != before[strings.Index(before, `"seq"`):] {
					t.Errorf("the state became %s", now)
				}
			}
		})
	}
}
