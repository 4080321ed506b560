package main

// The event stream: every transition is reported once and in order, wherever a
// reader resumes, across restarts, and however slow the reader is.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// allEvents returns everything that a follower would receive now, as text.
func allEvents(t testing.TB, s *service, filter eventFilter, after uint64) string {
	t.Helper()
	s.store.mu.Lock()
	newest := s.store.seq
	s.store.mu.Unlock()
	if err := s.store.journal.wait(t.Context(), newest); err != nil { // nothing is streamed before that
		t.Fatal(err)
	}
	return eventsOf(t, s.store, filter, after)
}

func eventsOf(t testing.TB, s *store, filter eventFilter, after uint64) string {
	t.Helper()
	f := must(s.follow(filter, after))(t)
	var b []byte
	for more := true; more; {
		c := f.take(b)
		if b, more = c.text, c.more; c.behind {
			t.Fatal("the follower is behind")
		}
	}
	return string(b)
}

// eventTemplates have histories of many kinds.
var eventTemplates = []string{
	testTemplate("pair", stepSpec{name: "a", callable: "builtin:noop"}, stepSpec{name: "b", callable: "Outside", after: []string{"a"}}),
	testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`}),
	testTemplate("bad", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`}),
	testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":2000}`}),
	testTemplate("grows", stepSpec{kind: stepDecision, name: "route", callable: "Outside"},
		stepSpec{kind: stepBatchable, name: "split", callable: "Outside", after: []string{"route"}},
		stepSpec{kind: stepBatchWorker, name: "work", callable: "builtin:noop", after: []string{"split"}},
		stepSpec{kind: stepDeferredConvergence, name: "end", callable: "builtin:noop", after: []string{"work"}}),
}

// eventWorld returns a service whose tasks have histories of many kinds.
func eventWorld(t *testing.T, o serviceTest) *service {
	t.Helper()
	o.extra = append(o.extra, eventTemplates...)
	s := openTestService(t, o)
	moveWorld(t, s)
	return s
}

// moveWorld advances tasks of all templates of the world.
func moveWorld(t *testing.T, s *service) {
	t.Helper()
	for range 3 {
		pair := mustCreate(t, s, "pair")
		mustCreate(t, s, "flaky")
		bad := mustCreate(t, s, "bad")
		mustCreate(t, s, "slow")
		settle(s)
		s.clock.(*virtualClock).advance(3 * time.Second)
		settle(s)
		mustAct(t, s, pair, 1, completeAction)
		mustAct(t, s, bad, 0, resetAction)
		growWorld(t, s)
	}
	mustCreate(t, s, "pair")
	settle(s)
}

// growWorld lets a task decide and create instances, by actors who claim its steps.
func growWorld(t *testing.T, s *service) {
	t.Helper()
	id := mustCreate(t, s, "grows").id
	for _, result := range []string{createSteps("split"), createBatches("work", 2)} {
		for _, c := range mustClaim(t, s) {
			if c.key.task != id {
				s.engine.unclaim([]claimedStep{c})
				continue
			}
			q := &leaseAnswer{verb: completeVerb, hash: hashLease(c.token), outcome: outcome{success: true, result: []byte(result)}}
			must(s.outside.answer(t.Context(), c.attempt.stepID, q))(t)
		}
		settle(s)
	}
	if v := settled(t, s, id); v.state != taskComplete || v.def(3).name != "work_002" {
		t.Fatalf("got %s", grown(v))
	}
}

// mustClaim claims every step that can be claimed.
func mustClaim(t *testing.T, s *service) []claimedStep {
	t.Helper()
	return must(s.outside.claim(t.Context(), &claimRequest{callables: []string{"Outside"}, limit: 100, lease: time.Minute, worker: "w"}))(t)
}

// block is an event as it was sent.
type block struct {
	seq  uint64
	text string
}

func blocksOf(t testing.TB, whole string) (blocks []block) {
	t.Helper()
	for text := range strings.SplitAfterSeq(whole, "\n\n") {
		if events, _ := wire.ParseEvents(text); len(events) > 0 {
			blocks = append(blocks, block{uint64(events[0].Place(t).Seq), text})
		}
	}
	return blocks
}

// between returns the part of a stream after a sequence and up to another.
func between(blocks []block, after, upTo uint64) string {
	var b strings.Builder
	for _, e := range blocks {
		if e.seq > after && e.seq <= upTo {
			b.WriteString(e.text)
		}
	}
	return b.String()
}

// historyEvents returns the transitions in the tasks' own histories, in the order of the
// stream.
func historyEvents(t *testing.T, s *service) (lines []string) {
	t.Helper()
	type at struct {
		seq  uint64
		line string
	}
	var all []at
	for pos := range s.store.slots {
		h := must(s.history.transitions(s.store.idLocked(uint32(pos)), nil))(t)
		for n := range h.moves {
			m := h.view(n)
			from, step := "", ""
			if m.FromState != nil {
				from = *m.FromState
			}
			if m.StepName != nil {
				step = *m.StepName
			}
			all = append(all, at{m.Sequence, fmt.Sprintln(m.Sequence, h.TaskUUID, step, from, m.ToState, instant(m.RecordedAt).zoned(), m.Attempt)})
		}
	}
	slices.SortStableFunc(all, func(a, b at) int { return int(a.seq) - int(b.seq) })
	for _, a := range all {
		lines = append(lines, a.line)
	}
	return lines
}

// TestEventsAreTheHistories compares the stream with the transitions of every
// task.
func TestEventsAreTheHistories(t *testing.T) {
	s := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	defer closeTestService(t, s)
	var got []string
	events, _ := wire.ParseEvents(allEvents(t, s, eventFilter{}, 0))
	for _, e := range events {
		var d struct {
			Seq                      uint64
			TaskUUID                 uuid   `json:"-"`
			Task                     string `json:"task_uuid"`
			StepName                 string `json:"step_name"`
			FromState                string `json:"from_state"`
			ToState                  string `json:"to_state"`
			RecordedAt               string `json:"recorded_at"`
			Attempt                  int
			Namespace, Name, Version string
		}
		noError(t, json.Unmarshal([]byte(e.Data), &d))
		if (d.StepName == "") != (e.Type == "task") || d.Namespace != "t" || d.Name == "" || d.Version != "1.0.0" {
			t.Errorf("got event %s with data %s", e.Type, e.Data)
		}
		got = append(got, fmt.Sprintln(d.Seq, d.Task, d.StepName, d.FromState, d.ToState, d.RecordedAt, d.Attempt))
	}
	if want := historyEvents(t, s); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// checkSuffixes resumes at every possible id: the rest of the stream must
// follow.
func checkSuffixes(t *testing.T, s *service, whole string) {
	t.Helper()
	blocks := blocksOf(t, whole)
	for id := uint64(1); id <= s.store.seq; id++ {
		f := must(s.store.follow(eventFilter{}, id))(t)
		if f.missed {
			continue
		}
		if got, want := allEvents(t, s, eventFilter{}, id), between(blocks, id, s.store.seq); got != want {
			t.Errorf("after %d: got\n%s\nwant\n%s", id, got, want)
		}
	}
}

func TestEventsResumeAnywhere(t *testing.T) {
	t.Parallel()
	s := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	defer closeTestService(t, s)
	whole := allEvents(t, s, eventFilter{}, 0)
	checkSuffixes(t, s, whole)
	events, last := wire.ParseEvents(whole)
	for i, e := range events {
		end := i+1 == len(events) || events[i+1].Place(t).Seq != e.Place(t).Seq
		if (e.ID != 0) != end || end && e.ID != uint64(e.Place(t).Seq) {
			t.Errorf("event %+v has id %d; want one at the end of a record alone", e.Place(t), e.ID)
		}
	}
	if last != s.store.seq {
		t.Errorf("the last id is %d; want %d", last, s.store.seq)
	}
}

// TestEventsOverARestart checks that a restart offers the same events as before
// it, with and without a snapshot in between, repeatedly.
func TestEventsOverARestart(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, keep := range []int{100_000, 60, 7} {
		for _, snapshot := range []func(*testing.T, *service){
			func(*testing.T, *service) {},
			func(t *testing.T, s *service) { snapshotAround(t, s.store, func() {}) },
			func(t *testing.T, s *service) { snapshotAround(t, s.store, func() { moveWorld(t, s) }) },
		} {
			t.Run(fmt.Sprintf("keep %d", keep), func(t *testing.T) {
				o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), config: func(c *Config) { c.Events.Keep = keep }}
				s := eventWorld(t, o)
				snapshot(t, s)
				moveWorld(t, s)
				whole, lost := allEvents(t, s, eventFilter{}, 0), s.store.events.lost
				for range 2 {
					s = reopenTestService(t, s, o)
					again := allEvents(t, s, eventFilter{}, 0)
					if again != whole || s.store.events.lost != lost {
						t.Fatalf("after a restart: got, missing up to %d,\n%s\nwant, up to %d,\n%s", s.store.events.lost, again, lost, whole)
					}
				}
				checkSuffixes(t, s, whole)
				closeTestService(t, s)
			})
		}
	}
}

// TestEventsOfDroppedTasks checks that the transitions of dropped tasks are
// reported while the process lives. A snapshot does not contain them; after a
// restart the stream is the same from its first complete sequence on.
func TestEventsOfDroppedTasks(t *testing.T) {
	t.Parallel()
	slow(t)
	for name, snapshot := range map[string]func(*testing.T, *service){
		"journal only":   func(*testing.T, *service) {},
		"snapshot":       func(t *testing.T, s *service) { snapshotAround(t, s.store, func() {}) },
		"slow snapshot":  func(t *testing.T, s *service) { snapshotAround(t, s.store, func() { moveWorld(t, s) }) },
		"two snapshots":  func(t *testing.T, s *service) { mustSnapshot(t, s.store); moveWorld(t, s); mustSnapshot(t, s.store) },
		"with a restart": func(t *testing.T, s *service) { mustSnapshot(t, s.store); moveWorld(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), config: retaining(2)}
			s := eventWorld(t, o)
			snapshot(t, s)
			written := s.store.events.missing()
			moveWorld(t, s)
			whole := allEvents(t, s, eventFilter{}, 0)
			blocks := blocksOf(t, whole)
			if log := &s.store.events; log.lost != 0 || log.missing() == 0 || log.missing() >= s.store.seq {
				t.Fatalf("lost up to %d, dropped up to %d of %d", log.lost, log.missing(), s.store.seq)
			}
			for restart := range 3 {
				s = reopenTestService(t, s, o)
				lost := s.store.events.lost
				if name == "journal only" && restart < 2 && lost != 0 || lost > written && restart < 2 {
					t.Errorf("restart %d lost up to %d; want at most %d", restart, lost, written)
				}
				if again := allEvents(t, s, eventFilter{}, 0); again == "" || again != between(blocks, lost, s.store.seq) {
					t.Fatalf("restart %d: got, missing up to %d,\n%s\nwant the end of\n%s", restart, lost, again, whole)
				}
				if f, _ := s.store.follow(eventFilter{}, max(lost, 2)-1); f.missed != (lost > 1) {
					t.Errorf("restart %d: got missed %v before %d", restart, f.missed, lost)
				}
				if restart == 1 {
					mustSnapshot(t, s.store)
				}
			}
			checkSuffixes(t, s, whole)
			closeTestService(t, s)
		})
	}
}

func mustSnapshot(t *testing.T, s *store) {
	t.Helper()
	noError(t, s.snapshot())
}

// TestEventsOfACutJournal checks that a journal cut anywhere gives the events
// of the time when it was that long, with tasks dropped before and after.
func TestEventsOfACutJournal(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for _, snapshot := range []bool{false, true} {
		dir := t.TempDir()
		s := eventWorld(t, serviceTest{dir: dir, clock: newVirtualClock(testStart), config: retaining(2)})
		shown := uint64(0) // in the snapshot: the journal is on disk that far
		if snapshot {
			snapshotAround(t, s.store, func() {
				moveWorld(t, s)
				shown = s.store.seq
			})
		}
		moveWorld(t, s)
		whole := blocksOf(t, allEvents(t, s, eventFilter{}, 0))
		closeTestService(t, s)
		files := map[string]string{}
		for _, name := range []string{journalName, snapshotName} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				files[name] = string(text)
			}
		}
		lines := strings.SplitAfter(strings.TrimRight(files[journalName], "\n\x00")+"\n", "\n")
		lines = lines[:len(lines)-1]
		first := s.store.seq - uint64(len(lines)-1)
		for n := 1 + int(max(shown, first)-first); n <= len(lines); n++ {
			files[journalName] = strings.Join(lines[:n], "")
			again := must(openStore(journalOptions{dir: dir, fs: memDiskWith(dir, files), log: s.log, now: s.clock.now},
				defaultKeptEvents, s.clock, s.log))(t)
			end := first + uint64(n-1)
			want := between(whole, again.events.lost, end)
			if got := eventsOf(t, again, eventFilter{}, 0); got != want || snapshot != (again.events.lost > 0) {
				t.Fatalf("snapshot %v, cut at %d: missing up to %d\n%s\nwant\n%s", snapshot, end, again.events.lost, got, want)
			}
			again.close()
		}
	}
}

// TestEventsOfAnImportedState checks that the events of an imported document
// begin after it, in memory and on disk, and survive a restart.
func TestEventsOfAnImportedState(t *testing.T) {
	t.Parallel()
	from := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	document, seq := exported(t, from), from.store.seq
	closeTestService(t, from)
	for _, dir := range []string{"", t.TempDir()} {
		o := serviceTest{dir: dir, clock: newVirtualClock(testStart), extra: eventTemplates, state: &stateSource{document: strings.NewReader(document)}}
		s := openTestService(t, o)
		if log := &s.store.events; log.oldest() != seq+1 || s.store.journal.published.Load() < seq {
			t.Errorf("in %q: the oldest is %d; want %d", dir, log.oldest(), seq+1)
		}
		moveWorld(t, s)
		whole := allEvents(t, s, eventFilter{}, 0)
		checkSuffixes(t, s, whole)
		closeTestService(t, s)
		if dir == "" {
			continue
		}
		o.state = nil
		s = openTestService(t, o)
		if again := allEvents(t, s, eventFilter{}, 0); again != whole || s.store.events.lost != seq {
			t.Errorf("after a restart: got, missing up to %d,\n%s\nwant, up to %d,\n%s", s.store.events.lost, again, seq, whole)
		}
		closeTestService(t, s)
	}
}

// BenchmarkEventLog measures the cost of keeping a transition.
func BenchmarkEventLog(b *testing.B) {
	l, of := &eventLog{keep: defaultKeptEvents}, &task{tpl: &template{}}
	for n := uint64(0); b.Loop(); n++ {
		l.maker.startRecord(of, &record{seq: n / 8})
		l.append(l.maker.taskMove(of, taskPending, taskInitializing, testStart))
	}
}
