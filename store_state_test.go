package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
)

// exported returns the state of a service as a document.
func exported(t testing.TB, s *service) string {
	t.Helper()
	var b bytes.Buffer
	noError(t, s.store.exportState(&b, s.store.cutState(testStart)))
	return b.String()
}

// TestStateRoundTrip imports a document into memory and into a directory, and exports the same
// bytes from both. The service continues from there. How the document is spelled makes no difference.
func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	odd := testTemplate("odd", stepSpec{name: "a", callable: "builtin:noop", config: `{"z":"→","a":1.50}`})
	o := serviceTest{clock: newVirtualClock(testStart), extra: append([]string{odd}, storyTemplates...), config: retaining(3)}
	s := newTestService(t, o)
	tellStory(t, s)
	tellStoryWithoutKey(t, s)
	mustCreate(t, s, "odd")
	want := exported(t, s)
	if !json.Valid([]byte(want)) {
		t.Fatalf("the document is not valid JSON:\n%s", want)
	}
	var pretty bytes.Buffer
	json.Indent(&pretty, []byte(want), "", "  ")
	var sorted any
	numbers := json.NewDecoder(strings.NewReader(want))
	numbers.UseNumber()
	noError(t, numbers.Decode(&sorted))
	escaped := strings.ReplaceAll(string(must(json.MarshalIndent(sorted, "", " "))(t)), "→", `\u2192`) // as jq -S and json.dump write it
	if !strings.Contains(escaped, `\u2192`) || strings.Index(escaped, `"templates"`) < strings.Index(escaped, `"tasks"`) {
		t.Fatalf("the document is hardly spelled in another way:\n%s", escaped)
	}
	for name, text := range map[string]string{"as written": want, "indented": pretty.String(), "sorted": escaped} {
		for _, dir := range []string{"", t.TempDir()} {
			t.Run(name+dir, func(t *testing.T) {
				o := o
				o.dir, o.state = dir, &stateSource{document: strings.NewReader(text)}
				s := newTestService(t, o)
				got, want := exported(t, s), want
				if name == "sorted" { // errors and such stay as they are given
					got, want = string(canonicalJSON(nil, []byte(got))), string(canonicalJSON(nil, []byte(want)))
				}
				if got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				mustAct(t, s, mustCreate(t, s, "pair"), 0, completeAction)
			})
		}
	}
}

// TestStateWithoutFigures imports a document without figures: they are counted
// from the tasks.
func TestStateWithoutFigures(t *testing.T) {
	o := serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates}
	s := newTestService(t, o)
	tellStory(t, s)
	var document map[string]json.RawMessage
	noError(t, json.Unmarshal([]byte(exported(t, s)), &document))
	text := fmt.Sprintf(`{"format":1,"failure_key":%s,"templates":%s,"tasks":%s}`, document["failure_key"], document["templates"],
		document["tasks"])
	o.state = &stateSource{document: strings.NewReader(text)}
	if got, want := exported(t, newTestService(t, o)), exported(t, s); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// changingWriter changes the state while it is being exported.
type changingWriter struct {
	io.Writer
	change func()
}

func (w changingWriter) Write(p []byte) (int, error) {
	w.change()
	return w.Writer.Write(p)
}

// TestExportAsOfOneSequence exports while tasks change and finish: the document shows the
// moment when the export began.
func TestExportAsOfOneSequence(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(500)})
	var waiting []*task
	for range 2 * snapshotBatch {
		mustCreate(t, s, "noop", `"context":{"padding":"`+strings.Repeat("x", 500)+`"}`)
		waiting = append(waiting, mustCreate(t, s, "pair"))
	}
	settle(s) // a noop that still ran would end between the two exports
	want := exported(t, s)
	var got bytes.Buffer
	change := func() {
		if n := len(waiting); n > 0 {
			mustAct(t, s, waiting[n-1], 0, completeAction)
			waiting = waiting[:n-1]
		}
		mustCreate(t, s, "noop")
	}
	noError(t, s.store.exportState(changingWriter{&got, change}, s.store.cutState(testStart)))
	if got.String() != want {
		t.Error("the document is another than before the changes")
	}
}

// TestExportKeepsNothing checks that finished tasks are dropped while a reader of the state takes
// its time, who gets them all the same.
func TestExportKeepsNothing(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(3)})
	old := mustCreate(t, s, "noop")
	cut := s.store.cutState(testStart)
	for range 10 {
		mustCreate(t, s, "noop")
	}
	if _, err := s.store.view(old.id); kindOf(err) != taskMissing {
		t.Errorf("the task after ten more: got error %v; want it dropped", err)
	}
	var b bytes.Buffer
	noError(t, s.store.exportState(&b, cut))
	if !strings.Contains(b.String(), old.id.String()) {
		t.Error("the document lacks the task, which was there at first")
	}
}

// TestUnfitStateIsRefused checks that the error names the position of the fault.
func TestUnfitStateIsRefused(t *testing.T) {
	t.Parallel()
	o := serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates}
	s := newTestService(t, o)
	mustCreate(t, s, "noop")
	mustAct(t, s, mustCreate(t, s, "pair", `"idempotency_key":"k"`), 0, completeAction)
	good := exported(t, s)
	lines := strings.Split(good, "\n")
	last := strings.TrimSuffix(lines[len(lines)-2], "]}") // the second task
	for _, tt := range []struct {
		name, old, new string
		want           string
	}{
		{"nothing", good, "", "unexpected EOF"},
		{"no object", good, "[]", "got [; want {"},
		{"cut off", "]}\n", "", "tasks: unexpected EOF"},
		{"more", "]}\n", "]}{}", "unexpected data after the document"},
		{"no format", `"format":1,`, ``, "format: it is missing"},
		{"a newer format", `"format":1,`, `"format":2,`, "format: it is 2, and this version of stepwell reads formats up to 1"},
		{"another product", `"product":"stepwell"`, `"product":"other"`, `product: got "other"; want "stepwell"`},
		{"a strange member", `"format":1,`, `"format":1,"novelty":1,`, "novelty: unknown member"},
		{"a negative sequence", `"seq":7,`, `"seq":-7,`, "seq: it must be an integer from 0 to 9007199254740991"},
		{"a sequence without room", `"seq":7,`, `"seq":9007199254740992,`, "seq: it must be an integer from 0 to "},
		{"a negative number of dropped tasks", `"dropped":0,`, `"dropped":-1,`, "dropped: it must be an integer from 0 to "},
		{"a version that is a number", `"version":"` + version + `"`, `"version":2`, "version: it must be a string"},
		{"no time", `"exported_at":"`, `"exported_at":"on `, "exported_at: it must be a timestamp"},
		{"no id", `"last_id":"`, `"last_id":"x`, "last_id: it must be a UUID"},
		{"an early sequence", `"seq":7,`, `"seq":6,`, "its seq is 6, but it contains sequence 7"},
		{"no templates", `"templates":[`, `"analytics":[],"templates":[`, "analytics: duplicate"},
		{"a changed template", `"definition":{"name":"noop"`, `"definition":{"name":"other"`, "templates[0]: "},
		{"figures twice", `"analytics":[`, `"analytics":[` + strings.TrimSuffix(lines[5], ",") + `,`, "duplicate figures of"},
		{"a state", `"state":"complete"`, `"state":"cancelled"`, "tasks[0]: its state is cancelled, but its log gives complete"},
		{"a count", `"steps":{"complete":2}`, `"steps":{"complete":1}`, "tasks[1]: its steps is "},
		{"a short traceparent", `"context":{}`, `"context":{},"traceparent":"x"`, "is not a W3C traceparent"},
		{"a header in a tracestate", `"context":{}`, `"context":{},"tracestate":"a=b\r\nX-Y: z"`, "is not a W3C tracestate"},
		{"a record that does not fit", `"kind":"operator"`, `"kind":"due"`, "tasks[1].log[1]: "},
		{"a record of no kind", `"kind":"operator"`, `"kind":"nonsense"`, "tasks[1].log[1]: "},
		{"records out of order", `{"seq":7,"at"`, `{"seq":5,"at"`, "tasks[1].log[2]: sequence 5 comes after 6"},
		{"a task twice", last + "]}", last + ",\n" + last + "]}", "tasks[2]: its seq 5 is not after that of the task before it, 5"},
		{"bad text", `"key":"k"`, "\"key\":\"\xff\"", "tasks[1]: "},
		{"a subscriber ahead", `"tasks":[`, `"subscribers":[{"subscriber":"a","done":8}],"tasks":[`, "subscribers[0]: subscriber a got events up to sequence 8, "},
		{"a subscriber twice", `"tasks":[`, `"subscribers":[{"subscriber":"a"},{"subscriber":"a"}],"tasks":[`, "subscribers[1]: "},
		{"dead letters out of order", `"tasks":[`, `"subscribers":[{"subscriber":"a","dead":[{"seq":3},{"seq":2}]}],"tasks":[`, "subscribers[0]: "},
		{"late subscribers", "]}\n", `],"subscribers":[]}`, "subscribers: it comes after tasks"},
		{"a member twice", `"key":"k"`, `"key":"k","key":"k"`, "tasks[1]: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(good, tt.old) {
				t.Fatalf("%q does not stand in\n%s", tt.old, good)
			}
			text := strings.Replace(good, tt.old, tt.new, 1)
			dir := t.TempDir()
			_, err := importStore(journalOptions{dir: dir, log: s.log, now: s.clock.now}, &stateSource{document: strings.NewReader(text)}, s.log)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
			assertFiles(t, dir, lockName)
		})
	}
}

// TestImportAtEveryFault makes each operation of an import fail, before or after it was done,
// and stops the machine at it. The directory then contains either no store or all of it.
func TestImportAtEveryFault(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates})
	tellStory(t, s)
	document, want := exported(t, s), lines(s)
	whole := newMemDisk()
	mustImport(t, whole, document, s)
	found := map[string]int{}
	look := func(name string, image *memDisk) {
		again, err := openStore(diskOptions(image), defaultKeptEvents, s.clock, s.log)
		if err != nil {
			t.Fatalf("%s: a start is refused: %v", name, err)
		}
		got := lines(&service{store: again})
		if got != "" && got != want {
			t.Fatalf("%s: the store has\n%s\nwant nothing or\n%s", name, got, want)
		}
		found[got]++
		again.close()
	}
	for at := range whole.ops {
		disk := newMemDisk()
		disk.dieAt = at + 1
		importStore(diskOptions(disk), &stateSource{document: strings.NewReader(document)}, s.log)
		for _, keep := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
			look(fmt.Sprintf("killed at operation %d, %v kept", at+1, keep), disk.crash(keep[0], keep[1], nil))
		}
	}
	for i, entry := range whole.log {
		op, file, _ := strings.Cut(entry, " ")
		skip := strings.Count(strings.Join(whole.log[:i], "\n")+"\n", entry+"\n")
		for _, after := range []bool{false, true} {
			disk := newMemDisk()
			disk.fail(diskFault{op: op, file: file, skip: skip, times: 1, err: syscall.EIO, after: after})
			importStore(diskOptions(disk), &stateSource{document: strings.NewReader(document)}, s.log)
			look(fmt.Sprintf("%s failed, after it happened: %v", entry, after), disk.restart())
		}
	}
	if found[""] == 0 || found[want] == 0 {
		t.Errorf("got %d empty stores and %d whole ones; want some of both", found[""], found[want])
	}
}

func mustImport(t *testing.T, disk *memDisk, document string, s *service) {
	t.Helper()
	must(importStore(diskOptions(disk), &stateSource{document: strings.NewReader(document)}, s.log))(t)
	second := disk.crash(true, true, nil)
	if _, err := importStore(diskOptions(second), &stateSource{document: strings.NewReader(document)}, s.log); err == nil {
		t.Error("a second import into the same directory: got no error")
	}
}
