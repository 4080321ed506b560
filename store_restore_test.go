package main

import (
	"bytes"
	"log/slog"
	"maps"
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

// TestLoadedLinesShareMemory loads lines one by one, as an import does: each takes little more than itself.
func TestLoadedLinesShareMemory(t *testing.T) {
	slowAndSequential(t)
	const count = 200
	svc := newTestService(t, serviceTest{extra: storyTemplates})
	l := &restorer{s: newStore(svc.clock, slog.New(slog.DiscardHandler)), seq: maxStateCount}
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
		noError(t, l.taskLine(line))
	}
	if took := (liveHeap() - before) * 1e6 / count; took > 8<<10 {
		t.Errorf("each of %d lines takes %.0f bytes; want at most %d", count, took, 8<<10)
	}
	runtime.KeepAlive(l)
}

// TestReadStoreTakesNoChanges reads the files of a store and ends a walk over its tasks, as an
// export does: a change is refused at once and asks the disk for nothing.
func TestReadStoreTakesNoChanges(t *testing.T) {
	dir := t.TempDir()
	closeTestService(t, openTestService(t, serviceTest{dir: dir}))
	s := readTestStore(t, dir)
	_, err := s.update(func(*change) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got error %v; want a store that is closed", err)
	}
}

// oldTemplate has names that misname changes.
const oldTemplate = `{"namespace":"t","name":"OldTemplate","version":"1.0.0","identity_strategy":"always_unique",
	"metadata":{"tags":["EscLabel"]},"steps":[
	{"name":"OldStep","type":"batchable","handler":{"callable":"Outside"},
	 "publishes_events":[{"name":"OldEvent","description":"","schema":{}}]},
	{"name":"w","type":"batch_worker","dependencies":["OldStep"],"handler":{"callable":"builtin:noop"}}]}`

// misname puts characters that mislead in the place of Old and Esc in the lines of a store, as a version wrote them that
// accepted these.
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

// TestMisnamedStates checks that a state from outside is refused for a name, with its line.
func TestMisnamedStates(t *testing.T) {
	t.Parallel()
	o := serviceTest{extra: []string{oldTemplate}}
	a := &actor{t, openTestService(t, o), uuid{}}
	a.id = mustCreate(t, a.s, "OldTemplate", `"tags":["OldTag"]`).id
	a.completeWith("OldStep", cursorsOf("w", `{"batch_id":"OldBatch"}`))
	plain := unsealed(exported(t, a.s))
	old := misname(t, plain)
	closeTestService(t, a.s)
	for name, tt := range map[string]struct {
		o        serviceTest
		document string
		place    string // of the problem; "" for none
		name     string
	}{
		"a template":         {o, old, "line 3: ", `a\u202ebTemplate`},
		"a tag":              {o, strings.Replace(plain, "OldTag", "a\u202eb", 1), "line ", `a\u202eb`},
		"a batch":            {o, strings.ReplaceAll(plain, "OldBatch", "a\u202eb"), "line ", `w_a\u202eb`},
		"nothing misleading": {o, plain, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixtureServer(t, tt.o)
			before := string(s.do("GET", "/_stepwell/state", "").body)
			for method, path := range map[string]string{"PUT": "/_stepwell/state", "POST": "/_stepwell/sandboxes"} {
				body := tt.document
				if method == "POST" {
					body = `{"seed":` + string(appendJSONString(nil, body)) + `}`
				}
				a := s.do(method, path, body)
				if tt.place == "" {
					if a.status >= 300 {
						t.Errorf("%s %s: got %d, %s", method, path, a.status, a.body)
					}
					continue
				}
				field, message := a.want(422).text("error.details.0.field"), a.text("error.details.0.message")
				if !strings.HasPrefix(message, tt.place) || !strings.Contains(message, `the name "`+tt.name+`" has the character U+202E; `) {
					t.Errorf("%s %s: got %q: %s; want %s refused", method, path, field, message, tt.place)
				}
				_, was, _ := strings.Cut(before, "\n") // the header has the time
				if _, now, _ := strings.Cut(string(s.do("GET", "/_stepwell/state", "").body), "\n"); now != was {
					t.Errorf("the state became %s", now)
				}
			}
		})
	}
}
