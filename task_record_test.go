package main

// Records with valid checksums that this program would not have written: they are read or
// refused, and never cause a panic.

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// replayTemplate is the template of the fuzz target's tasks.
func replayTemplate(t testing.TB) *template {
	t.Helper()
	return mustParseTemplate(t, testTemplate("fuzz", stepSpec{name: "a", callable: "Outside"},
		stepSpec{name: "b", callable: "Outside", after: []string{"a"}},
		stepSpec{name: "c", callable: "builtin:noop", after: []string{"a", "b"}}))
}

// FuzzReplay decodes records, one a line, and applies them to a task. Accepted records must be
// the same in the task's line.
func FuzzReplay(f *testing.F) {
	for _, log := range fuzzLogs {
		f.Add([]byte(log))
	}
	tpl := replayTemplate(f)
	f.Fuzz(func(t *testing.T, log []byte) {
		records := bytes.Split(log, []byte("\n"))
		for _, r := range records {
			if jsonKind(r) != '{' || checkJSON(r) != nil {
				return
			}
		}
		h := taskHeader{id: uuid{1}, template: tpl.hash, log: append(append([]byte("["), bytes.Join(records, []byte(","))...), ']')}
		v, err := h.replay(tpl, &transitionObserver{})
		if err != nil {
			return
		}
		for i := range v.steps {
			v.stepView(i, testStart, "w")
			if _, err := h.replay(tpl, &auditObserver{step: i}); err != nil {
				t.Errorf("it replays once and not twice: %v", err)
			}
		}
		checkRewritten(t, h, tpl)
	})
}

// fuzzLogs are logs of tasks of replayTemplate, valid and damaged.
var fuzzLogs = []string{
	`{"seq":1,"at":1,"kind":"created","template":"h","context":{"a":1},"tags":["x"],"priority":-3}`,
	`{"seq":1,"at":1,"kind":"created","template":"h"}
{"seq":2,"at":2,"kind":"started","step":0}
{"seq":3,"at":3,"kind":"recovered","step":0}
{"seq":4,"at":4,"kind":"ran","step":0,"started":4,"ok":false,"retry_at":9,"error":{"message":"m"}}
{"seq":5,"at":9,"kind":"due","step":0}
{"seq":6,"at":9,"kind":"operator","step":0,"action":"complete_manually","by":"x","reason":"y","ok":true,"result":5}
{"seq":7,"at":10,"kind":"late","step":0,"ok":true,"attempt":1}
{"seq":8,"at":11,"kind":"cancelled"}`,
	`{"seq":1,"at":1,"kind":"created","template":"h"}
{"seq":2,"at":2,"kind":"operator","step":0,"action":"fail","by":"x"}`,
	`{"seq":1,"at":1,"kind":"created","template":"h"}
{"seq":2,"at":2,"kind":"created","template":"h"}`,
	`{"seq":1,"at":1,"kind":"created","template":"h","request":"` + strings.Repeat("1f", 32) + `"}`,
	`{"seq":1,"at":1,"kind":"created","template":"h"}
{"seq":2,"at":2,"kind":"cancelled","step":0,"ok":true}`,
}

// rewriter writes every record that is replayed.
type rewriter struct {
	unobserved
	t task
}

func (w *rewriter) startRecord(_ *task, r *record) {
	named := *r // a task's own log leaves out its id
	named.task = uuid{1}
	w.t.appendLog(r.seq, appendRecordMembers(nil, &named))
}

// rewrite returns the log as this program writes it.
func rewrite(t *testing.T, h taskHeader, tpl *template) (taskHeader, *task) {
	t.Helper()
	w := &rewriter{}
	v, err := h.replay(tpl, w)
	if err != nil {
		t.Fatalf("%s does not replay: %v", h.log, err)
	}
	h.log = append(append([]byte("["), w.t.log...), ']')
	return h, v
}

// checkRewritten replays the log as this program writes it: it must have the same meaning, and
// be written in the same way again.
func checkRewritten(t *testing.T, h taskHeader, tpl *template) {
	t.Helper()
	once, v := rewrite(t, h, tpl)
	twice, again := rewrite(t, once, tpl)
	if !bytes.Equal(once.log, twice.log) {
		t.Errorf("got %s; want %s", twice.log, once.log)
	}
	compareSteps(t, again, v)
	line := v.appendTaskLine(nil)
	if got, err := readTaskHeader(line); err != nil || got.state != v.state || got.counts != v.counts {
		t.Errorf("%s is read as %+v, %v", line, got, err)
	}
}

// TestDamagedLogsAreRefused checks that logs with good checksums but impossible
// contents are refused, with the reason.
func TestDamagedLogsAreRefused(t *testing.T) {
	const created = `{"seq":1,"at":1,"kind":"created","template":"h"},`
	tpl := replayTemplate(t)
	for _, tc := range []struct{ log, want string }{
		{``, "empty"},
		{`{"seq":1,"at":1,"kind":"created","template":"h","request":"1f"}`, "64 hex digits"},
		{`{"seq":1,"at":1,"kind":"created","template":"h","request":7}`, `member "request"`},
		{`{"seq":1,"at":1,"kind":"due","step":0}`, "begin with its creation"},
		{created + `{"seq":2,"at":2,"kind":"started","step":3}`, "no step 3"},
		{created + `{"seq":2,"at":2,"kind":"started","step":1}`, "cannot take start"},
		{created + `{"seq":2,"at":2,"kind":"operator","step":0}`, "names no action"},
		{created + `{"seq":2,"at":2,"kind":"operator","step":0,"action":"fail"}`, "without its error"},
		{created + created[:len(created)-1], "cannot take start"},
		{created + `{"seq":2,"at":2,"kind":"template","hash":"h","definition":{}}`, "no step"},
	} {
		h := taskHeader{id: uuid{1}, log: []byte("[" + tc.log + "]")}
		if _, err := h.replay(tpl, unobserved{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v; want an error with %q", tc.log, err, tc.want)
		}
	}
}

// TestMembersInAnySpelling reads records whose members are not spelled as they
// are written, or not known, or repeated.
func TestMembersInAnySpelling(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`{"worker":"w","ms":1,"kind":"ran","at":5,"began":3,"st\u0065p":2,"seq":7,"task":"01000000-0000-0000-0000-000000000000"}`,
			`{"task":"01000000-0000-0000-0000-000000000000","at":5,"kind":"ran","step":2,"began":3,"ms":1,"worker":"w"}`},
		{`{"stale":{"reason":"worker_unavailable","limit":1},"kind":"stale","at":1}`,
			`{"at":1,"kind":"stale","stale":{"limit":1,"reason":"worker_unavailable"}}`},
		{`{"seq":7,"kind":"stale","stale":{"limit":1,"novelty":2}}`, `member "novelty": unknown member, from a newer version`},
		{" {\"at\" :1, \"kind\": \"stale\" ,\"stale\":{\"limit\":1, \"reason\":\"worker_unavailable\"\n}}\n",
			`{"at":1,"kind":"stale","stale":{"limit":1,"reason":"worker_unavailable"}}`},
		{`{"at":1,"kind":"stale","stale": {"limit":-1} }`, `{"at":1,"kind":"stale","stale":{"limit":-1}}`},
		{`{"at":1,"at":1,"kind":"due","step":0}`, `member "at": unknown member, from a newer version`},
		{`{"at":1,"kind":"due","step":0,"sum":"","sum":""}`, `member "sum": unknown member, from a newer version`},
		{`{"at":1,"kind":"due","step":0,"":1}`, `member "": unknown member, from a newer version`},
		{`{"step":0,"kind":"due","novelty":1}`, `member "novelty": unknown member, from a newer version`},
		{`{"at":"1","kind":"due","step":0}`, `member "at": "1" is not an integer`},
		{`{"seq":1}`, `member "kind": missing`},
		{`{}`, `member "kind": missing`},
		{`[]`, `[] is not an object`},
	} {
		r, err := decodeRecord([]byte(tc.text))
		got := fmt.Sprint(err)
		if err == nil {
			got = string(append(appendRecordMembers([]byte{'{'}, r), '}'))
		}
		if got != tc.want {
			t.Errorf("%s: got %s; want %s", tc.text, got, tc.want)
		}
	}
}

// TestReadRecordKeepsNothing reads the records of the stores of earlier versions, and expects no record to change
// with the memory that it was read from.
func TestReadRecordKeepsNothing(t *testing.T) {
	kinds := map[recordKind]bool{}
	for _, name := range must(filepath.Glob("testdata/stores/*/data/journal.jsonl"))(t) {
		for line := range bytes.Lines(must(os.ReadFile(name))(t)) {
			if !bytes.HasPrefix(line, []byte(recordHead)) {
				continue
			}
			var got record
			want := must(decodeRecord(bytes.Clone(line[:len(line)-1])))(t)
			noError(t, got.read(line[:len(line)-1]))
			for i := range line {
				line[i] = 'x'
			}
			if !reflect.DeepEqual(&got, want) {
				t.Errorf("got %+v; want %+v", got, want)
			}
			kinds[got.kind] = true
		}
	}
	if len(kinds) < 6 {
		t.Errorf("got records of %d kinds", len(kinds))
	}
}
