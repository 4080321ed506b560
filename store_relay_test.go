package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestFiltersOverManySpans checks that a follower with a filter gets the events of its task or namespace,
// wherever it begins in a log that is longer than all spans held.
func TestFiltersOverManySpans(t *testing.T) {
	s := newTestService(t, serviceTest{extra: []string{
		testTemplate("pair", stepSpec{name: "a", callable: "builtin:noop"}, stepSpec{name: "b", callable: "builtin:noop"}),
		benchTemplate("rare", "builtin:noop", [][]int{{}}),
	}})
	var id uuid
	for n := 0; s.store.events.held < (keptSpans+20)*spanMoves; n++ {
		common := mustCreate(t, s, "pair").id
		if n%200 == 0 {
			must(s.createTask(t.Context(), must(parseTaskRequest([]byte(`{"namespace":"bench","name":"rare"}`)))(t), true))(t)
		}
		if n == 300 {
			id = common
		}
		settle(s)
	}
	whole := blocksOf(t, allEvents(t, s, eventFilter{}, 0))
	for _, tt := range []struct {
		filter eventFilter
		text   string // in the events that it selects
	}{
		{eventFilter{task: id}, fmt.Sprintf(`"task_uuid":"%s"`, id)},
		{eventFilter{namespace: "bench"}, `"namespace":"bench"`},
		{eventFilter{task: id, namespace: "bench"}, "none"},
	} {
		for _, after := range []uint64{0, 1, whole[len(whole)/2].seq, whole[len(whole)-1].seq} {
			var want strings.Builder
			for _, e := range whole {
				if e.seq > after && strings.Contains(e.text, tt.text) {
					want.WriteString(e.text)
				}
			}
			if got := allEvents(t, s, tt.filter, after); got != want.String() {
				t.Errorf("%+v after %d: got\n%s\nwant\n%s", tt.filter, after, got, want.String())
			}
		}
	}
}

// TestFollowersSleepPastOthers checks that a follower is not woken by transitions that its filter excludes,
// that it does not fall behind when the log drops them, and that its id moves past them.
func TestFollowersSleepPastOthers(t *testing.T) {
	s := newTestService(t, serviceTest{config: func(c *Config) { c.Events.Keep = 40 }, extra: []string{
		testTemplate("one", stepSpec{name: "a", callable: "Outside"}),
		benchTemplate("other", "builtin:noop", [][]int{{}}),
	}})
	id := mustCreate(t, s, "one").id
	f, now, err := s.store.events.followNow(eventFilter{task: id})
	if err != nil {
		t.Fatal(err)
	}
	relay := &s.store.events.relay
	relay.tell(&s.store.events)
	news := f.news()
	f.take(nil)
	other := must(parseTaskRequest([]byte(`{"namespace":"bench","name":"other"}`)))(t)
	shared := namespaceMark("bench") == taskMark(id)
	for range 20 {
		v := must(s.createTask(t.Context(), other, true))(t)
		shared = shared || taskMark(v.id) == taskMark(id)
		settle(s)
		relay.tell(&s.store.events)
	}
	if closed(news) && !shared {
		t.Error("the follower is woken by other tasks")
	}
	f.skip()
	if c := f.take(nil); c.behind || c.moves > 0 || f.after <= now {
		t.Errorf("got behind %v, %d events and id %d; want none, and an id after %d", c.behind, c.moves, f.after, now)
	}
	news = f.news()
	f.take(nil)
	mustAct(t, s, must(s.store.view(id))(t), 0, completeAction)
	relay.tell(&s.store.events)
	must(s.createTask(t.Context(), other, true))(t)
	if !closed(news) {
		t.Fatal("the follower is not woken by its task")
	}
	f.skip()
	if c := f.take(nil); c.behind || !strings.Contains(string(c.text), `"to_state":"complete"`) {
		t.Errorf("got behind %v, %s; want the events of the task", c.behind, c.text)
	}
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
