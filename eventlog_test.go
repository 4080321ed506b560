package main

// The event stream: that every transition is told once and in order, whoever
// resumes from wherever, over restarts, and however slow the reader is.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// told is one event as it came.
type told struct {
	id    uint64 // 0 for none
	event string
	data  string
}

// place is where an event stands in the order of all.
func (e told) place(t testing.TB) (place struct{ Seq, N int }) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.data), &place); err != nil {
		t.Fatalf("%v in %q", err, e.data)
	}
	return place
}

// parseEvents reads a stream as the rules of server-sent events say.
func parseEvents(text string) (events []told, lastID uint64) {
	for block := range strings.SplitSeq(text, "\n\n") {
		e := told{}
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "id":
				e.id, _ = strconv.ParseUint(value, 10, 64)
				lastID = e.id
			case "event":
				e.event = value
			case "data":
				e.data = value
			}
		}
		if e.data != "" {
			events = append(events, e)
		}
	}
	return events, lastID
}

// allEvents is everything that a follower is told now, as text.
func allEvents(t testing.TB, s *service, filter eventFilter, after uint64) string {
	t.Helper()
	f, err := s.store.follow(filter, after)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for more := true; more; {
		var batch []event
		var behind bool
		batch, more, behind, err = f.take()
		if err != nil || behind {
			t.Fatalf("behind %v, error %v", behind, err)
		}
		for i := range batch {
			b = batch[i].append(b)
		}
	}
	return string(b)
}

// eventWorld is a service with tasks of many kinds of history.
func eventWorld(t *testing.T, o serviceTest) *service {
	t.Helper()
	o.extra = append(o.extra,
		testTemplate("pair", stepSpec{name: "a", callable: "builtin:noop"}, stepSpec{name: "b", callable: "Outside", after: []string{"a"}}),
		testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`}),
		testTemplate("bad", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`}),
		testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":2000}`}))
	s := openTestService(t, o)
	moveWorld(t, s)
	return s
}

// moveWorld has tasks of all the world's templates get on.
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
	}
	mustCreate(t, s, "pair")
	settle(s)
}

// historyEvents is what the tasks' own histories say, in the stream's order.
func historyEvents(t *testing.T, s *service) (lines []string) {
	t.Helper()
	type at struct {
		seq  uint64
		line string
	}
	var all []at
	for pos := range s.store.slots {
		h, err := s.history(s.store.idLocked(uint32(pos)))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range h.Transitions {
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

// TestEventsAreTheHistories holds the stream against the transitions of every task.
func TestEventsAreTheHistories(t *testing.T) {
	s := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	defer closeTestService(t, s)
	var got []string
	events, _ := parseEvents(allEvents(t, s, eventFilter{}, 0))
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
		if err := json.Unmarshal([]byte(e.data), &d); err != nil {
			t.Fatal(err)
		}
		if (d.StepName == "") != (e.event == "task") || d.Namespace != "t" || d.Name == "" || d.Version != "1.0.0" {
			t.Errorf("got event %s with data %s", e.event, e.data)
		}
		got = append(got, fmt.Sprintln(d.Seq, d.Task, d.StepName, d.FromState, d.ToState, d.RecordedAt, d.Attempt))
	}
	if want := historyEvents(t, s); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// checkSuffixes resumes at every id there could be: what is told must be the end of
// what was told from the beginning.
func checkSuffixes(t *testing.T, s *service, whole string) {
	t.Helper()
	events, last := parseEvents(whole)
	for id := uint64(1); id <= last; id++ {
		f, err := s.store.follow(eventFilter{}, id)
		if err != nil {
			t.Fatal(err)
		}
		if f.missed {
			continue
		}
		i := slices.IndexFunc(events, func(e told) bool { return uint64(e.place(t).Seq) > id })
		if i < 0 {
			i = len(events)
		}
		if got, _ := parseEvents(allEvents(t, s, eventFilter{}, id)); !slices.Equal(got, events[i:]) {
			t.Errorf("after %d: got %d events; want the last %d", id, len(got), len(events)-i)
		}
	}
}

func TestEventsResumeAnywhere(t *testing.T) {
	s := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	defer closeTestService(t, s)
	whole := allEvents(t, s, eventFilter{}, 0)
	checkSuffixes(t, s, whole)
	events, last := parseEvents(whole)
	for i, e := range events {
		end := i+1 == len(events) || events[i+1].place(t).Seq != e.place(t).Seq
		if (e.id != 0) != end || end && e.id != uint64(e.place(t).Seq) {
			t.Errorf("event %+v has id %d; want one at the end of a record alone", e.place(t), e.id)
		}
	}
	if last != s.store.seq {
		t.Errorf("the last id is %d; want %d", last, s.store.seq)
	}
}

// TestEventsOverARestart: whatever is offered after a restart is what was
// offered before it, with a snapshot between and without, again and again.
func TestEventsOverARestart(t *testing.T) {
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
					closeTestService(t, s)
					s = openTestService(t, o)
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

// BenchmarkEventLog is what a transition costs to be held.
func BenchmarkEventLog(b *testing.B) {
	l := &eventLog{keep: defaultKeptEvents}
	for n := uint64(0); b.Loop(); n++ {
		l.maker.seq = n / 8
		l.add(l.maker.taskMove(1, taskPending, taskInitializing, testStart))
	}
}
