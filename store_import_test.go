package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// exported returns the state of a service.
func exported(t testing.TB, s *service) string {
	t.Helper()
	var b bytes.Buffer
	noError(t, s.store.export(s.store.cut(), &b))
	return b.String()
}

// unsealed returns lines without their checksums.
func unsealed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if i := strings.LastIndex(line, sumName); i >= 0 {
			line = line[:i] + "}\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// respelled returns lines as a program writes them that sorts members, escapes and adds blanks.
func respelled(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(unsealed(text)) {
		var v any
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		noError(t, d.Decode(&v))
		b.WriteString(strings.ReplaceAll(string(must(json.Marshal(v))(t)), "→", `\u2192`) + " \r\n\n")
	}
	return strings.ReplaceAll(b.String(), `,"`, `, "`)
}

// withoutStore returns a state without what an import into another store does not keep: the id of the store.
func withoutStore(text string) string {
	i := strings.Index(text, `"store":"`) + len(`"store":"`)
	k := i + strings.IndexByte(text[i:], '"')
	return text[:i] + unsealed(text)[k:]
}

// TestStateRoundTrip imports a state into memory and into a directory, and exports the same bytes from both. The service
// continues from there. How the lines are spelled makes no difference, nor whether records follow.
func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	odd := testTemplate("odd", stepSpec{name: "a", callable: "builtin:noop", config: `{"z":"→","a":1.50}`})
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: append([]string{odd}, storyTemplates...), config: retaining(3)}
	s := newTestService(t, o)
	tellStory(t, s)
	noError(t, s.store.compact())
	tellStoryWithoutKey(t, s)
	mustCreate(t, s, "odd")
	noError(t, s.store.waitAll(t.Context()))
	want := exported(t, s)
	spelled := respelled(t, want)
	if !strings.Contains(spelled, `\u2192`) || !strings.Contains(spelled, `{"completed":`) {
		t.Fatalf("the state is hardly spelled in another way:\n%s", spelled)
	}
	file := string(readFile(t, o.dir+"/"+storeName))
	for name, text := range map[string]string{"as written": want, "without sums": unsealed(want), "spelled": spelled, "the file": file} {
		for _, dir := range []string{"", t.TempDir()} {
			t.Run(name+dir, func(t *testing.T) {
				o := o
				o.dir, o.state = dir, &stateSource{document: strings.NewReader(text)}
				s := newTestService(t, o)
				got, want := withoutStore(exported(t, s)), withoutStore(want)
				if name == "spelled" { // errors and such stay as they are given
					got, want = respelled(t, got), respelled(t, want)
				}
				if got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				if n := len(o.state.losses); n > 0 {
					t.Errorf("got losses %q", o.state.losses)
				}
				mustAct(t, s, mustCreate(t, s, "pair"), 0, completeAction)
			})
		}
	}
}

// TestStateWrittenByHand imports lines with the least that is necessary: everything else follows from the logs.
func TestStateWrittenByHand(t *testing.T) {
	o := serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates}
	s := newTestService(t, o)
	tellStory(t, s)
	var text strings.Builder
	text.WriteString(fmt.Sprintf(`{"format":3,"seq":%d}`, s.store.seq) + "\n")
	for line := range strings.Lines(unsealed(exported(t, s))) {
		if strings.HasPrefix(line, templateHead) {
			text.WriteString(line)
		}
		if strings.HasPrefix(line, taskHead) {
			fmt.Fprintf(&text, "{\"task\":%s, \"template\":%s,\"log\":%s}\n", objectMember([]byte(line), "task"),
				objectMember([]byte(line), "template"), objectMember([]byte(line), "log"))
		}
	}
	text.WriteString("{\"end\":{}}\n")
	o.state = &stateSource{document: strings.NewReader(text.String())}
	again := newTestService(t, o)
	if got, want := figuresText(again.store.analytics), figuresText(s.store.analytics); got != want {
		t.Errorf("the figures are\n%s\nwant\n%s", got, want)
	}
	wantLines(t, "written by hand", again, lines(s))
	if got := len(again.store.lives); got != 2 {
		t.Errorf("got %d lives; want one of what was read, and that of the process", got)
	}
}

// changingWriter calls change before each write.
type changingWriter struct {
	io.Writer
	change func()
}

func (w changingWriter) Write(p []byte) (int, error) {
	w.change()
	return w.Writer.Write(p)
}

// TestExportAsOfOneRecord exports while tasks change and finish: the state is that of the moment when the export began.
func TestExportAsOfOneRecord(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(500)})
	var waiting []*task
	for range 512 {
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
	noError(t, s.store.export(s.store.cut(), changingWriter{&got, change}))
	if got.String() != want {
		t.Error("the state is another than before the changes")
	}
}

// TestExportKeepsNothing checks that finished tasks are dropped while a reader of the state takes its time, who gets them
// all the same.
func TestExportKeepsNothing(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(3)})
	old := mustCreate(t, s, "noop")
	cut := s.store.cut()
	for range 10 {
		mustCreate(t, s, "noop")
	}
	if _, err := s.store.view(old.id); kindOf(err) != taskMissing {
		t.Errorf("the task after ten more: got error %v; want it dropped", err)
	}
	var b bytes.Buffer
	noError(t, s.store.export(cut, &b))
	if !strings.Contains(b.String(), old.id.String()) {
		t.Error("the state lacks the task, which was there at first")
	}
}

// TestUnfitStateIsRefused checks that the error names the line of the fault, and that nothing is written.
func TestUnfitStateIsRefused(t *testing.T) {
	t.Parallel()
	o := serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates}
	s := newTestService(t, o)
	mustCreate(t, s, "noop")
	mustAct(t, s, mustCreate(t, s, "pair", `"idempotency_key":"k"`), 0, completeAction)
	settle(s)
	good := unsealed(exported(t, s))
	given := strings.SplitAfter(good, "\n")
	last := given[len(given)-3] // the second task
	header := given[0]
	for _, tt := range []struct {
		name, old, new string
		want           string
	}{
		{"nothing", good, "", "state: it has no lines"},
		{"no object", good, "[]", "line 1: it is not a JSON object"},
		{"no end", given[len(given)-2], "", `the line {"end":…} is missing: the file was cut off`},
		{"a strange end", `{"end":{`, `{"end":{"x":1,`, "unknown member"},
		{"more", given[len(given)-2], given[len(given)-2] + last, "it is neither a record nor the begin of a life"},
		{"no format", `"format":3,`, ``, "line 1: "},
		{"a newer format", `"format":3,`, `"format":4,`, "line 1: it has format 4, and this version of stepwell reads format 3"},
		{"a strange member", `"format":3,`, `"format":3,"novelty":1,`, `line 1: member "novelty": unknown member`},
		{"a negative number", `"seq":7,`, `"seq":-7,`, "line 1: its numbers must be integers from 0 to 9007199254740991"},
		{"a number without room", `"seq":7,`, `"seq":9007199254740992,`, "line 1: its numbers must be integers from 0 to "},
		{"a clock", `"clock":{"now":"`, `"clock":{"now":"x`, "line 1: its clock must have"},
		{"no id", `"last_id":"`, `"last_id":"x`, `line 1: member "last_id"`},
		{"an early number", `"seq":7,`, `"seq":6,`, "ends with record 7, which is not among those of the store"},
		{"a checksum", `"log":[`, `"sum":"00000000","log":[`, "the checksum does not match: remove the member"},
		{"a line of no kind", given[len(given)-2], "{\"x\":1}\n" + given[len(given)-2], "it is of no kind of line that a store has"},
		{"a life twice", header, header + "{\"life\":\"0000000a\",\"from\":1,\"to\":1}\n{\"life\":\"0000000b\",\"from\":2,\"to\":2}\n{\"life\":\"0000000a\",\"from\":3,\"to\":3}\n", "line 4: there are two lives 0000000a"},
		{"a life beyond the end", header, header + "{\"life\":\"0000000a\",\"from\":1,\"to\":9}\n", "line 2: life 0000000a ends with record 9"},
		{"lives that overlap", header, header + "{\"life\":\"0000000a\",\"from\":1,\"to\":2}\n{\"life\":\"0000000b\",\"from\":2,\"to\":3}\n", "line 3: life 0000000b begins with record 2, after record 2"},
		{"a life without a name", header, header + "{\"life\":\"a\",\"from\":1,\"to\":2}\n", "line 2: a life must have an id of 8 hexadecimal digits"},
		{"a changed template", `"definition":{"name":"noop"`, `"definition":{"name":"other"`, ": template "},
		{"figures twice", `{"figures":`, strings.TrimSuffix(firstWith(given, `{"figures":`), "\n") + "\n" + `{"figures":`, "duplicate figures of"},
		{"a state", `"state":"complete"`, `"state":"cancelled"`, `its state is "cancelled", but its log gives "complete"`},
		{"a count", `"steps":{"complete":2}`, `"steps":{"complete":1}`, ": its steps is "},
		{"a short traceparent", `"context":{}`, `"context":{},"traceparent":"x"`, "is not a W3C traceparent"},
		{"a header in a tracestate", `"context":{}`, `"context":{},"tracestate":"a=b\r\nX-Y: z"`, "is not a W3C tracestate"},
		{"a record that does not fit", `"kind":"operator"`, `"kind":"due"`, "log[1]: "},
		{"a record of no kind", `"kind":"operator"`, `"kind":"nonsense"`, "log[1]: "},
		{"records out of order", `{"seq":7,"at"`, `{"seq":5,"at"`, "log[2]: record 5 comes after 6"},
		{"a task twice", last, last + last, ": its seq 5 is not after that of the task before it, 5"},
		{"bad text", `"key":"k"`, "\"key\":\"\xff\"", "line "},
		{"a subscriber ahead", header, header + "{\"subscriber\":\"a\",\"done\":8}\n", "subscriber a got events up to record 8, "},
		{"a subscriber twice", header, header + "{\"subscriber\":\"a\"}\n{\"subscriber\":\"a\"}\n", "line 3: "},
		{"dead letters out of order", header, header + "{\"subscriber\":\"a\",\"dead\":[{\"seq\":3},{\"seq\":2}]}\n", "line 2: "},
		{"a member twice", `"key":"k"`, `"key":"k","key":"k"`, "line "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(good, tt.old) {
				t.Fatalf("%q does not stand in\n%s", tt.old, good)
			}
			text := strings.Replace(good, tt.old, tt.new, 1)
			dir := t.TempDir()
			state := &stateSource{document: strings.NewReader(text), salvage: true}
			_, err := importStore(journalOptions{dir: dir, log: s.log, now: s.clock.now}, state, s.log)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
			assertFiles(t, dir, lockName)
		})
	}
}

// firstWith returns the first line with a beginning.
func firstWith(lines []string, begin string) string {
	for _, line := range lines {
		if strings.HasPrefix(line, begin) {
			return line
		}
	}
	return ""
}

// TestImportOfWhatIsLeft imports a store from whose file a line was removed, as a start advises: what lacks something is
// left out and named, and everything else is as it was. A start and other readers refuse the same.
func TestImportOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	ended, live := mustCreate(t, s, "noop"), mustCreate(t, s, "pair")
	noError(t, s.store.compact())
	mustAct(t, s, live, 0, completeAction)
	later := mustCreate(t, s, "noop")
	settle(s)
	closeTestService(t, s)
	text := strings.SplitAfter(string(readFile(t, o.dir+"/"+storeName)), "\n")
	find := func(parts ...string) (at int) {
		for at = range text {
			all := true
			for _, part := range parts {
				all = all && strings.Contains(text[at], part)
			}
			if all {
				return at
			}
		}
		t.Fatalf("no line has %q", parts)
		return 0
	}
	noop := string(objectMember([]byte(text[find(taskHead+ended.id.String())]), "template"))
	for name, tt := range map[string]struct {
		remove int
		kept   []uuid
		losses []string
	}{
		"nothing":                {len(text) - 1, []uuid{ended.id, live.id, later.id}, nil},
		"a task without records": {find(taskHead + ended.id.String()), []uuid{live.id, later.id}, []string{"it counts "}},
		"a task with records": {find(taskHead + live.id.String()), []uuid{ended.id, later.id},
			[]string{"it counts ", "task " + live.id.String() + " is left out (records of it after the compacted part: 2): record "}},
		"a template": {find(`{"hash":` + noop), []uuid{live.id},
			[]string{"it counts ", "task " + ended.id.String() + " is left out", "task " + later.id.String() + " is left out"}},
		"the end": {find(endHead), []uuid{ended.id, live.id, later.id}, []string{`the line {"end":…} is missing before line `}},
		"a life":  {find(lifeHead, `"to"`), []uuid{ended.id, live.id, later.id}, []string{"it counts "}},
		"the creation of a task": {find(`"created"`, `{"seq":`, later.id.String()), []uuid{ended.id, live.id},
			[]string{"record 8 is missing; tasks that were unfinished then", "task " + later.id.String() + " is left out"}},
		"the last record": {len(text) - 2, []uuid{ended.id, live.id, later.id}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			left := strings.Join(append(text[:tt.remove:tt.remove], text[tt.remove+1:]...), "")
			o := o
			o.dir = t.TempDir()
			state := &stateSource{document: strings.NewReader(left), salvage: true}
			must(importStore(journalOptions{dir: o.dir, log: s.log, now: s.clock.now}, state, s.log))(t)
			if len(state.losses) != len(tt.losses) {
				t.Errorf("got losses %q; want %d", state.losses, len(tt.losses))
			}
			for i, want := range tt.losses[:min(len(tt.losses), len(state.losses))] {
				if !strings.Contains(state.losses[i], want) {
					t.Errorf("loss %d: got %q; want %q", i, state.losses[i], want)
				}
			}
			_, _, err := tryOpen(t, map[string]string{storeName: left})
			_, outside := storeOf(&stateSource{document: strings.NewReader(left)}, s.log)
			if refused := len(tt.losses) > 0; (err != nil) != refused || outside != nil && !refused {
				t.Errorf("a start says %v, another reader %v; want them refused: %v", err, outside, refused)
			}
			again := must(openService(testParts(t, o)))(t) // whose figures count what is left out
			defer again.close()
			if got := kept(again); !slices.Equal(got, tt.kept) {
				t.Errorf("got %v; want %v", got, tt.kept)
			}
		})
	}
}

// TestImportAtEveryFault makes each operation of an import fail, before or after it was done, and stops the machine at it.
// The directory then contains no store, all of it, or what a start refuses.
func TestImportAtEveryFault(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates})
	tellStory(t, s)
	text, want := exported(t, s), lines(s)
	try := func(disk *memDisk) error {
		_, err := importStore(diskOptions(disk), &stateSource{document: strings.NewReader(text)}, s.log)
		return err
	}
	whole := newMemDisk()
	noError(t, try(whole))
	if try(whole.crash(true, true, nil)) == nil {
		t.Error("a second import into the same directory: got no error")
	}
	found := map[string]int{}
	look := func(name string, image *memDisk) {
		again, err := openStore(diskOptions(image), defaultKeptEvents, s.clock, s.log)
		if err != nil {
			if !strings.Contains(err.Error(), "run the import again") {
				t.Fatalf("%s: a start is refused: %v", name, err)
			}
			found["refused"]++
			noError(t, try(image))
			return
		}
		got := lines(&service{store: again})
		if got != "" && got != want {
			t.Fatalf("%s: the store has\n%s\nwant nothing or\n%s", name, got, want)
		}
		if found[got]++; got == "" && image.count("create", importName) > 0 {
			t.Fatalf("%s: an import was interrupted, and a start makes an empty store", name)
		}
		again.close()
	}
	for at := range whole.ops {
		disk := newMemDisk()
		disk.dieAt = at + 1
		try(disk)
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
			try(disk)
			look(fmt.Sprintf("%s failed, after it happened: %v", entry, after), disk.restart())
		}
	}
	if found[""] == 0 || found[want] == 0 || found["refused"] == 0 {
		t.Errorf("got %d empty stores, %d whole ones, %d refused; want some of each", found[""], found[want], found["refused"])
	}
}
