package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// storyTemplates are the templates of the tasks of recovery tests.
var storyTemplates = []string{
	testTemplate("pair", stepSpec{name: "a", callable: "Outside", retry: `{"backoff_base_ms":3600000,"max_backoff_ms":3600000}`},
		stepSpec{name: "b", callable: "builtin:echo", after: []string{"a"}}),
	testTemplate("noop", stepSpec{name: "a", callable: "builtin:noop"}),
}

// tellStory creates tasks in every kind of state that survives a restart.
func tellStory(t *testing.T, s *service) {
	t.Helper()
	mustCreate(t, s, "noop")
	mustCreate(t, s, "pair", `"context":{"n":123456789012345678901234567890.50,"é":"\u20ac"}`, `"tags":["x","y"]`,
		`"priority":7`, `"initiator":"me"`, `"source_system":"here"`, `"reason":"a \"quoted\" one"`,
		`"parent_correlation_id":"0198c0de-0000-7000-8000-000000000001"`, `"requested_at":"2026-01-02T03:04:05"`,
		`"options":{"a":[1,2]}`, `"idempotency_key":"k1"`)
	mustAct(t, s, mustCreate(t, s, "pair"), 0, retryAction)
	v := mustAct(t, s, mustCreate(t, s, "pair"), 0, failAction)
	mustAct(t, s, mustAct(t, s, v, 0, resetAction), 0, completeAction)
	mustAct(t, s, mustCreate(t, s, "pair"), 0, failAction)
	must(s.operator.cancelTask(t.Context(), mustCreate(t, s, "pair").id, taskActor{subject: "someone"}))(t)
}

// reopenTestService closes a service and opens it again.
func reopenTestService(t testing.TB, s *service, o serviceTest) *service {
	t.Helper()
	closeTestService(t, s)
	return openTestService(t, o)
}

// lines returns every task of a store as its line, in order.
func lines(s *service) string {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var b strings.Builder
	for _, sl := range s.store.slots {
		line := sl.line.text()
		if sl.live != nil {
			line = sl.live.appendTaskLine(nil)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

func wantLines(t *testing.T, when string, s *service, want string) {
	t.Helper()
	if got := lines(s); got != want {
		t.Errorf("%s the store has\n%s\nwant\n%s", when, got, want)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"always", "interval", "never"} {
		t.Run(mode, func(t *testing.T) {
			o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates,
				config: func(c *Config) { c.Store.Sync = mode }}
			s := openTestService(t, o)
			tellStory(t, s)
			before := lines(s)
			closeTestService(t, s)
			s = newTestService(t, o)
			wantLines(t, "after the restart", s, before)
			if _, err := parseAndCreate(s, `{"namespace":"t","name":"pair","idempotency_key":"k1"}`); kindOf(err) != conflict {
				t.Errorf("the same key after a restart: got %v; want a conflict", err)
			}
		})
	}
}

func parseAndCreate(s *service, body string) (*task, error) {
	q, err := parseTaskRequest([]byte(body))
	if err != nil {
		return nil, err
	}
	return s.createTask(context.Background(), q, true)
}

// TestSnapshot writes snapshots in the middle of the story. A start from them and the journal
// gives the same tasks.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	for range 3 {
		tellStoryWithoutKey(t, s)
		noError(t, s.store.snapshot())
	}
	tellStoryWithoutKey(t, s)
	before := lines(s)
	s = reopenTestService(t, s, o)
	wantLines(t, "after the restart", s, before)
	if err := s.store.snapshot(); err != nil { // of lines that came from a snapshot
		t.Fatal(err)
	}
	closeTestService(t, s)
	s = newTestService(t, o)
	wantLines(t, "after a snapshot of a snapshot", s, before)
}

func tellStoryWithoutKey(t *testing.T, s *service) {
	t.Helper()
	for range 5 {
		mustCreate(t, s, "noop")
		mustAct(t, s, mustCreate(t, s, "pair"), 0, retryAction)
		v := mustAct(t, s, mustCreate(t, s, "pair"), 0, failAction)
		mustAct(t, s, mustAct(t, s, v, 0, resetAction), 0, completeAction)
		mustCreate(t, s, "pair")
	}
}

// TestSnapshotBesideChanges writes snapshots while tasks are created and ended.
func TestSnapshotBesideChanges(t *testing.T) {
	t.Parallel()
	slow(t)
	o := serviceTest{dir: t.TempDir(), extra: storyTemplates, config: func(c *Config) { c.Store.Sync = "never" }}
	s := openTestService(t, o)
	done := make(chan error)
	go func() {
		for range 5 {
			if err := s.store.snapshot(); err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	for i := 0; ; i++ {
		mustAct(t, s, mustCreate(t, s, "pair"), 0, completeAction)
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		default:
			continue
		}
		break
	}
	before := lines(s)
	closeTestService(t, s)
	if after := lines(newTestService(t, o)); after != before {
		t.Error("after the restart the store is another")
	}
}

// TestRedelivery restarts during an attempt: it is delivered again with the same number, three
// times, and then lost.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), log: io.Discard, extra: []string{
		testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":60000}`, retry: `{"max_attempts":2}`})}}
	s := openTestService(t, o)
	id := mustCreate(t, s, "slow").id
	for restart := range 4 {
		s = reopenTestService(t, s, o)
		v := settled(t, s, id)
		if restart < 3 {
			wantStates(t, v, "steps_in_process: in_progress")
			if v.steps[0].attempts != 1 || v.steps[0].redelivered != restart+1 {
				t.Fatalf("restart %d: attempt %d delivered again %d times; want attempt 1, %d times",
					restart, v.steps[0].attempts, v.steps[0].redelivered, restart+1)
			}
			continue
		}
		wantStates(t, v, "waiting_for_retry: waiting_for_retry")
		if got := string(v.steps[0].last.err); !strings.Contains(got, `"worker_lost"`) {
			t.Errorf("got %s; want worker_lost", got)
		}
	}
	closeTestService(t, s)
}

func TestIdentity(t *testing.T) {
	strict := strings.Replace(testTemplate("strict", stepSpec{name: "a", callable: "builtin:noop"}), "always_unique", "strict", 1)
	keyed := strings.Replace(testTemplate("keyed", stepSpec{name: "a", callable: "builtin:noop"}), "always_unique", "caller_provided", 1)
	s := newTestService(t, serviceTest{extra: []string{strict, keyed, testTemplate("free", stepSpec{name: "a", callable: "builtin:noop"})}})
	for _, tc := range []struct {
		body string
		want failureKind // internalFailure for none
	}{
		{`{"namespace":"t","name":"strict","context":{"a":1,"b":2}}`, internalFailure},
		{`{"namespace":"t","name":"strict","context":{"b":2,"a":1}}`, conflict},
		{`{"namespace":"t","name":"strict","context":{"a":1.0,"b":2}}`, internalFailure},
		{`{"namespace":"t","name":"strict","context":{"a":1,"b":2},"idempotency_key":"k"}`, internalFailure},
		{`{"namespace":"t","name":"strict","context":{"c":3},"idempotency_key":"k"}`, conflict},
		{`{"namespace":"t","name":"keyed"}`, badRequest},
		{`{"namespace":"t","name":"keyed","idempotency_key":"k"}`, internalFailure},
		{`{"namespace":"t","name":"keyed","idempotency_key":"k"}`, conflict},
		{`{"namespace":"t","name":"free"}`, internalFailure},
		{`{"namespace":"t","name":"free"}`, internalFailure},
		{`{"namespace":"t","name":"free","idempotency_key":"k"}`, internalFailure},
		{`{"namespace":"t","name":"free","idempotency_key":"k"}`, conflict},
	} {
		if _, err := parseAndCreate(s, tc.body); kindOf(err) != tc.want || (err == nil) != (tc.want == internalFailure) {
			t.Errorf("%s: got %v; want kind %d", tc.body, err, tc.want)
		}
	}
}

// TestDamageIsNamed flips a byte in the middle of the journal.
func TestDamageIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := serviceTest{dir: dir, clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	tellStory(t, s)
	closeTestService(t, s)
	name := dir + "/journal.jsonl"
	data := readFile(t, name)
	at := bytes.Index(data, []byte(`"kind":"created"`)) + 9
	data[at] ^= 1
	writeFile(t, name, data)
	_, err := openStore(journalOptions{dir: dir, log: s.log, now: s.clock.now}, defaultKeptEvents, s.clock, s.log)
	if err == nil {
		t.Fatal("a damaged journal was opened")
	}
	for _, word := range []string{"journal.jsonl", "line 3", "store check"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("got %q; want it to name %q", err, word)
		}
	}
}

func TestUnfitRecordsAreRefused(t *testing.T) {
	for _, text := range []string{
		`[]`, `{"seq":1}`, `{"seq":1,"kind":"nonsense"}`, `{"seq":1,"kind":"started"}`, `{"seq":1,"kind":"ended"}`,
		`{"seq":1,"kind":"created"}`, `{"seq":1,"kind":"template","hash":"x"}`, `{"seq":1,"kind":"due","step":0,"novelty":1}`,
		`{"seq":"1","kind":"due","step":0}`, `{"seq":1,"kind":"due","step":0,"task":"x"}`,
		`{"seq":1,"kind":"created","template":"h","identity":"zz"}`,
	} {
		if r, err := decodeRecord([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, r)
		}
	}
}

// TestValuesOfOtherKindsAreRefused changes one value of a valid record to another kind: a state
// document must not introduce values that clients cannot read.
func TestValuesOfOtherKindsAreRefused(t *testing.T) {
	const (
		created = `{"seq":1,"kind":"created","template":"h","context":{},"options":{}}`
		ended   = `{"seq":1,"kind":"ended","step":0,"ok":false,"retry_at":5,"error":{"message":"m","error_type":"t",` +
			`"retryable":true,"status_code":7,"context":{}},"metadata":{}}`
		success = `{"seq":1,"kind":"ended","step":0,"metadata":{}}`
		updated = `{"seq":1,"kind":"investigated","dlq":{"entry":1,"metadata":{}}}`
	)
	for _, tc := range []struct{ good, old, bad string }{
		{created, `"context":{}`, `"context":%s`}, {created, `"options":{}`, `"options":%s`},
		{updated, `"metadata":{}`, `"metadata":%s`}, {success, `"metadata":{}`, `"metadata":%s`},
		{ended, `"metadata":{}`, `"metadata":%s`}, {ended, `"error":{`, `"error":%s,"x":{`},
		{ended, `"message":"m"`, `"message":%s`}, {ended, `"error_type":"t"`, `"error_type":%s`},
		{ended, `"retryable":true`, `"retryable":%s`}, {ended, `"status_code":7`, `"status_code":%s`},
		{ended, `"context":{}`, `"context":%s`},
	} {
		for _, value := range []string{"null", "5", "1.5", `"x"`, "[]", "{}", "true", "-1"} {
			text := strings.Replace(tc.good, tc.old, fmt.Sprintf(tc.bad, value), 1)
			kind := jsonKind([]byte(tc.old[strings.IndexByte(tc.old, ':')+1:]))
			fits := jsonKind([]byte(value)) == kind && value != "1.5" && value != "-1" && tc.old != `"error":{` ||
				value == "null" && kind == '0'
			if _, err := decodeRecord([]byte(text)); (err == nil) != fits {
				t.Errorf("%s: got error %v", text, err)
			}
		}
	}
	for _, text := range []string{
		strings.Replace(ended, `"ok":false,`, "", 1), strings.Replace(ended, `"retryable":true,`, "", 1),
		strings.Replace(success, `"metadata":{}`, `"retry_at":5`, 1), strings.Replace(success, `"metadata":{}`, `"ok":false`, 1),
		strings.Replace(success, `"metadata":{}`, `"ok":7`, 1),
	} {
		if r, err := decodeRecord([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, r)
		}
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	s := openTestService(t, serviceTest{dir: t.TempDir(), extra: storyTemplates})
	closeTestService(t, s)
	_, err := s.store.update(func(c *change) error { return errors.New("decide was asked") })
	if kindOf(err) != unavailable {
		t.Errorf("got %v; want unavailable", err)
	}
}

// TestReadersSeeNoChange checks that a view does not change while the task does.
func TestReadersSeeNoChange(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates})
	v := mustCreate(t, s, "pair")
	before := states(v) + string(v.log)
	mustAct(t, s, v, 0, completeAction)
	if after := states(v) + string(v.log); after != before {
		t.Errorf("the view became %s; want %s", after, before)
	}
}

// TestEndedTaskIsNotDecodedAtOnce: a task that has just ended is shown as it is in memory, unless
// it is large, until others have taken its place.
func TestEndedTaskIsNotDecodedAtOnce(t *testing.T) {
	s := newTestService(t, serviceTest{extra: storyTemplates})
	small := mustCreate(t, s, "noop")
	large := mustCreate(t, s, "noop", fmt.Sprintf(`"context":{"text":%q}`, strings.Repeat("x", smallCopy)))
	kept := func(v *task) bool {
		first, second := must(s.store.view(v.id))(t), must(s.store.view(v.id))(t)
		return first == second
	}
	if !kept(small) || kept(large) {
		t.Errorf("kept: the small task %v, the large one %v; want the small one alone", kept(small), kept(large))
	}
	decoded := must(s.store.readTaskLine(s.store.slots[small.pos].line.text()))(t)
	if got, want := string(must(s.store.view(small.id))(t).appendTaskLine(nil)), string(decoded.appendTaskLine(nil)); got != want {
		t.Errorf("the task that was kept has the line %s; want %s", got, want)
	}
	for range len(s.store.decoded) {
		mustCreate(t, s, "noop")
	}
	if kept(small) {
		t.Errorf("the task is kept after %d others", len(s.store.decoded))
	}
}

// TestIDsGoOnAfterARestart restarts with a clock that stopped or was set back: no id is used
// twice, in whatever order the tasks entered the store.
func TestIDsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	tpl, _ := s.templates.registry().get("t", "pair", "")
	ids := []uuid{s.ids.reserve(4), s.ids.reserve(4)}
	for i := range ids { // the other way round, as when two callers race
		id := ids[len(ids)-1-i]
		must(s.store.update(func(c *change) error {
			_, err := c.create(&record{kind: recCreated, task: id, created: &creation{template: tpl.hash, context: []byte("{}")}}, tpl)
			return err
		}))(t)
	}
	greatest := ids[1].plus(3).String()
	for _, start := range []instant{testStart, testStart, testStart.add(-time.Hour)} {
		closeTestService(t, s)
		o.clock = newVirtualClock(start)
		s = openTestService(t, o)
		if got := s.ids.reserve(1).String(); got <= greatest {
			t.Errorf("after a restart at %s: got id %s; want one after %s", start.zoned(), got, greatest)
		}
		last := mustCreate(t, s, "pair")
		greatest = max(last.stepID(1).String(), last.by.correlation.String())
	}
	closeTestService(t, s)
}

// TestSnapshotAfterALoneTemplate restarts from a snapshot whose newest record is not about a
// task, as after a crash between a new template and its first task.
func TestSnapshotAfterALoneTemplate(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	mustCreate(t, s, "noop")
	tpl, _ := s.templates.registry().get("t", "pair", "")
	if _, err := s.store.update(func(c *change) error {
		c.write(&record{kind: recTemplate, hash: tpl.hash, definition: tpl.json})
		s.store.keepTemplate(tpl)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	noError(t, s.store.snapshot())
	closeTestService(t, s)
	s = newTestService(t, o)
	mustAct(t, s, mustCreate(t, s, "pair"), 0, completeAction)
}

// Faults in the files of a store. After each, no acknowledged change is lost and none is
// invented, or the start is refused and the damage is named.

// droppingStore returns the files of a store that dropped tasks before and
// after its snapshot.
func droppingStore(t *testing.T) map[string]string {
	t.Helper()
	disk := newMemDisk()
	o := serviceTest{dir: testDir, disk: disk, clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(2)}
	s := openTestService(t, o)
	for i := range 8 {
		mustCreate(t, s, "noop", fmt.Sprintf(`"idempotency_key":"k%d"`, i%4))
		if i == 3 {
			mustCreate(t, s, "pair")
			noError(t, s.store.snapshot())
		}
	}
	closeTestService(t, s)
	files := disk.files()
	delete(files, lockName)
	return files
}

// reopened returns the tasks that a store keeps when it is opened from files.
func reopened(t *testing.T, files map[string]string) (ids []uuid, err error) {
	t.Helper()
	return keptOn(t, memDiskWith(testDir, files))
}

func keptOn(t *testing.T, disk *memDisk) (ids []uuid, err error) {
	t.Helper()
	c := newVirtualClock(testStart)
	s, err := openStore(diskOptions(disk), defaultKeptEvents, c, diskOptions(disk).log)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.mu.Lock()
	checkRetention(t, s)
	s.mu.Unlock()
	return kept(&service{store: s}), nil
}

// keptAfter returns the tasks that the complete lines of a journal give, on top of a snapshot.
func keptAfter(t *testing.T, base []uuid, covered uint64, journal string) []uuid {
	t.Helper()
	ids := slices.Clone(base)
	for line := range strings.Lines(journal) {
		var r struct {
			Seq        uint64
			Task, Kind string
		}
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &r) != nil || r.Seq <= covered {
			continue
		}
		id, _ := parseUUID(r.Task)
		switch r.Kind {
		case "created":
			ids = append(ids, id)
		case "dropped":
			ids = slices.DeleteFunc(ids, func(other uuid) bool { return other == id })
		}
	}
	return ids
}

// TestDropsCutAtEveryByte checks that a journal of any length gives the tasks that were kept
// after its last complete record.
func TestDropsCutAtEveryByte(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	files := droppingStore(t)
	journal := files[journalName]
	header := strings.IndexByte(journal, '\n') + 1
	files[journalName] = journal[:header]
	base, err := reopened(t, files)
	if err != nil || len(base) != 3 {
		t.Fatalf("the snapshot keeps %v, %v; want 3 tasks", base, err)
	}
	for n := header; n <= len(journal); n += size(5, 1) {
		files[journalName] = journal[:n]
		got, err := reopened(t, files)
		if want := keptAfter(t, base, 0, journal[:n]); err != nil || !slices.Equal(got, want) {
			t.Fatalf("cut at byte %d: got %v, %v; want %v", n, got, err, want)
		}
	}
}

// TestDropsFlippedBytes changes each byte of both files, or each seventh: either it is refused, by file and
// line, or nothing is lost.
func TestDropsFlippedBytes(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	files := droppingStore(t)
	want := must(reopened(t, files))(t)
	for name, text := range files {
		for i := 0; i < len(text); i += size(7, 1) {
			b := []byte(text)
			b[i] ^= 1
			files[name] = string(b)
			got, err := reopened(t, files)
			if err == nil && !slices.Equal(got, want) {
				t.Fatalf("%s, byte %d: the store keeps %v; want %v", name, i, got, want)
			}
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Fatalf("%s, byte %d: got %v; want it to name the file", name, i, err)
			}
		}
		files[name] = text
	}
}

// TestDropsKillPoints stops the machine at each operation of a store that drops tasks, before,
// during and after snapshots. The store keeps the state after the last acknowledged creation,
// or after a part of the next one.
func TestDropsKillPoints(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		disk := newMemDisk()
		disk.dieAt = at
		states, err := dropUntilDeath(t, disk)
		for _, keep := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
			name := fmt.Sprintf("killed at operation %d, %v kept", at, keep)
			got, err := keptOn(t, disk.crash(keep[0], keep[1], nil))
			if err != nil {
				t.Fatalf("%s: a start is refused: %v", name, err)
			}
			if !slices.ContainsFunc(states, func(s []uuid) bool { return slices.Equal(s, got) }) {
				t.Fatalf("%s: the store keeps %v; want one of %v", name, got, states)
			}
		}
		if err == nil {
			if at < 30 {
				t.Errorf("the scenario took %d operations; want more", at)
			}
			return
		}
	}
}

// dropUntilDeath creates tasks, of which two are kept, and writes snapshots. It returns the
// tasks that may be kept after the first error.
func dropUntilDeath(t *testing.T, disk *memDisk) (states [][]uuid, err error) {
	t.Helper()
	c := newVirtualClock(testStart)
	s, err := openStore(diskOptions(disk), defaultKeptEvents, c, diskOptions(disk).log)
	if err != nil {
		return [][]uuid{nil}, err
	}
	s.retainUpTo(limits{count: 2}, &quota{most: 1 << 30}, new(quota))
	ids, tpl := newIDSource(c, &[32]byte{}), mustParseTemplate(t, storyTemplates[1])
	states = [][]uuid{nil}
	for i := range 12 {
		before := kept(&service{store: s})
		id := ids.reserve(tpl.ids())
		states = [][]uuid{before, append(slices.Clone(before), id)}
		if err := createEnded(t, s, id, tpl); err != nil {
			states = append(states, kept(&service{store: s}))
			return states, err
		}
		states = [][]uuid{kept(&service{store: s})}
		if i%4 != 3 {
			continue
		}
		if err := s.snapshot(); err != nil {
			return states, err
		}
	}
	return states, s.close()
}

// createEnded creates a task that ends at once, and waits until it is durable.
func createEnded(t *testing.T, s *store, id uuid, tpl *template) error {
	t.Helper()
	seq, err := s.update(func(c *change) error {
		by := &creation{template: tpl.hash, context: []byte("{}")}
		task, err := c.create(&record{kind: recCreated, task: id, created: by}, tpl)
		if err != nil {
			return err
		}
		return c.append(task, &record{kind: recRan, step: 0, startedAt: c.now, end: &ending{success: true}})
	})
	if err != nil {
		return err
	}
	return s.journal.wait(t.Context(), seq)
}

// TestRetentionOnAClockThatGoesBack checks that an age limit drops nothing early if the clock
// is set back, and that the limit on the count still applies.
func TestRetentionOnAClockThatGoesBack(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates, log: io.Discard,
		config: func(c *Config) { c.Store.RetainFinishedCount, c.Store.RetainFinishedAgeHours = 2, 1 }}
	s := openTestService(t, o)
	first := mustCreate(t, s, "noop").id
	closeTestService(t, s)
	clock := newVirtualClock(testStart.add(-3 * time.Hour))
	o.clock = clock
	s = newTestService(t, o)
	second := mustCreate(t, s, "noop").id
	clock.advance(30 * time.Minute)
	wantKept(t, s, first, second)
	third := mustCreate(t, s, "noop").id
	if n := len(kept(s)); n != 2 {
		t.Errorf("%d tasks are kept; want 2", n)
	}
	if !slices.Contains(kept(s), third) {
		t.Error("the newest task was dropped")
	}
	clock.advance(5 * time.Hour)
	wantKept(t, s)
}
