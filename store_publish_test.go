package main

// Domain events: which attempts publish which, in which order, and what a restart finds again.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// publishing returns a template of the namespace t with one step that publishes the events.
func publishing(name, callable, config string, events ...string) string {
	return fmt.Sprintf(`{"namespace":"t","name":%q,"version":"1.0.0","identity_strategy":"always_unique","steps":[
		{"name":"pay","handler":{"callable":%q,"initialization":%s},
		 "retry":{"max_attempts":2,"backoff":"none"},"publishes_events":[%s]}]}`,
		name, callable, config, strings.Join(events, ","))
}

// published declares an event.
func published(name, members string) string {
	return fmt.Sprintf(`{"name":%q,"description":"","schema":{}%s}`, name, members)
}

// everyCondition declares an event for each condition, named after it.
func everyCondition() (all []string) {
	for _, c := range []string{"success", "failure", "retryable_failure", "permanent_failure", "always"} {
		all = append(all, published(c, fmt.Sprintf(`,"condition":%q`, c)))
	}
	return all
}

// domainView is an event as readers get it.
type domainView struct {
	ID, Type      string
	Seq           uint64
	Attempt, N    int
	Success       bool
	TaskUUID      string `json:"task_uuid"`
	DeliveryMode  string `json:"delivery_mode"`
	Publisher     *string
	Data          json.RawMessage
	CorrelationID string `json:"correlation_id"`
}

// domainOf returns the domain events that a follower would receive from a sequence on, once the service
// has settled.
func domainOf(t *testing.T, s *service, filter eventFilter, after uint64) (events []domainView) {
	t.Helper()
	settle(s)
	filter.kind = domainKind
	for line := range strings.Lines(allEvents(t, s, filter, after)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var e domainView
			noError(t, json.Unmarshal([]byte(data), &e))
			events = append(events, e)
		}
	}
	return events
}

func typesOf(events []domainView) (types []string) {
	for _, e := range events {
		types = append(types, fmt.Sprintf("%s %d", e.Type, e.Attempt))
	}
	return types
}

// TestPublishingConditions checks which attempts publish an event of each condition.
func TestPublishingConditions(t *testing.T) {
	for name, test := range map[string]struct {
		callable, config string
		want             []string
	}{
		"a success":        {"builtin:noop", "{}", []string{"success 1", "always 1"}},
		"one failure":      {"builtin:flaky", `{"failures":1}`, []string{"failure 1", "retryable_failure 1", "always 1", "success 2", "always 2"}},
		"no attempts left": {"builtin:fail", `{"retryable":true}`, []string{"failure 1", "retryable_failure 1", "always 1", "failure 2", "permanent_failure 2", "always 2"}},
		"not retryable":    {"builtin:fail", `{"retryable":false}`, []string{"failure 1", "permanent_failure 1", "always 1"}},
		"an outside actor": {"Outside", "{}", []string{"success 1", "always 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTestService(t, serviceTest{
				clock: newVirtualClock(testStart), extra: []string{publishing("pay", test.callable, test.config, everyCondition()...)},
			})
			made := mustCreate(t, s, "pay")
			settle(s)
			s.clock.(*virtualClock).advance(time.Minute)
			settle(s)
			if test.callable == "Outside" {
				complete(t, s, made)
			}
			if got := typesOf(domainOf(t, s, eventFilter{}, 0)); !slices.Equal(got, test.want) {
				t.Errorf("got %v; want %v", got, test.want)
			}
		})
	}
}

// complete completes the only step of a task as an outside actor does.
func complete(t *testing.T, s *service, made *task) {
	t.Helper()
	q := &stepRequest{action: actionComplete, by: "somebody", reason: "paid", result: []byte(`{"paid":1}`)}
	_, _, err := s.operator.act(t.Context(), made.id, made.stepID(0), q)
	noError(t, err)
}

// TestPublishedEventsSurvive checks that the durable events are the same after restarts, with
// and without a snapshot, and that fast ones are gone; and that a task which is dropped leaves
// a gap.
func TestPublishedEventsSurvive(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{publishing("pay", "builtin:echo", "{}",
		published("kept", `,"publisher":"Billing"`), published("lost", `,"delivery_mode":"fast"`),
		published("both", `,"delivery_mode":"broadcast"`))}}
	s := openTestService(t, o)
	mustCreate(t, s, "pay", `"context":{"amount":1}`)
	mustCreate(t, s, "pay", `"context":{"amount":2}`)
	before := domainOf(t, s, eventFilter{}, 0)
	if got, want := typesOf(before), []string{"kept 1", "lost 1", "both 1", "kept 1", "lost 1", "both 1"}; !slices.Equal(got, want) {
		t.Fatalf("got %v; want %v", got, want)
	}
	if e := before[3]; string(e.Data) != `{"amount":2}` || !e.Success || *e.Publisher != "Billing" || e.DeliveryMode != "durable" || e.N != 1 {
		t.Errorf("got %+v", e)
	}
	lasting := jsonOf(slices.DeleteFunc(slices.Clone(before), func(e domainView) bool { return e.Type == "lost" }))
	for range 2 {
		s = reopenTestService(t, s, o)
		if got := jsonOf(domainOf(t, s, eventFilter{}, 0)); string(got) != string(lasting) {
			t.Errorf("got %s; want %s", got, lasting)
		}
		mustSnapshot(t, s.store)
	}
	if got := domainOf(t, s, eventFilter{}, before[0].Seq); len(got) != 2 || got[0].ID != before[3].ID {
		t.Errorf("got %v after the first task; want what the second published", got)
	}
	if f := must(s.store.follow(eventFilter{kind: domainKind}, before[0].Seq))(t); f.missed {
		t.Error("a reader that has everything was told of a gap")
	}
	closeTestService(t, s)
}

// TestDomainEventsAreBounded checks that records leave the log whole, and that a reader learns
// what is gone.
func TestDomainEventsAreBounded(t *testing.T) {
	s := openTestService(t, serviceTest{
		extra:  []string{publishing("pay", "builtin:noop", "{}", published("a", ""), published("b", ""))},
		config: func(c *Config) { c.Events.Keep = 5 },
	})
	for range 4 {
		mustCreate(t, s, "pay")
	}
	all := domainOf(t, s, eventFilter{}, 0)
	if got, want := typesOf(all), []string{"a 1", "b 1", "a 1", "b 1"}; !slices.Equal(got, want) {
		t.Fatalf("got %v; want %v", got, want)
	}
	f := must(s.store.follow(eventFilter{kind: domainKind}, 1))(t)
	if !f.missed || f.oldest != all[0].Seq {
		t.Errorf("got missed %v, oldest %d; want a gap up to %d", f.missed, f.oldest, all[0].Seq)
	}
	if got := s.store.events.domain.published; got != [deliveryModes]uint64{8, 0, 0} {
		t.Errorf("got the counts %v", got)
	}
}

// TestWithheldEvents checks that an event whose payload does not fit its schema is not published,
// is told of, and does not change the outcome; also after a restart.
func TestWithheldEvents(t *testing.T) {
	typed := `{"name":"paid \"x\"","description":"","schema":{"type":"object","required":["amount"],"properties":{"amount":{"type":"integer"}}}}`
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{
		publishing("pay", "builtin:echo", "{}", typed, published("seen", "")), publishing("ask", "Outside", "{}", typed)}}
	s := openTestService(t, o)
	bad := mustCreate(t, s, "pay", `"context":{"amount":"much"}`)
	good := mustCreate(t, s, "pay", `"context":{"amount":1}`)
	complete(t, s, mustCreate(t, s, "ask"))
	for range 2 {
		got := domainOf(t, s, eventFilter{}, 0)
		if types := typesOf(got); !slices.Equal(types, []string{"seen 1", `paid "x" 1`, "seen 1"}) || got[1].TaskUUID != good.id.String() {
			t.Errorf("got %v", types)
		}
		v := must(s.history.audit(bad.id, bad.stepID(0), nil))(t)[0]
		if want := `{"paid \"x\"":"/amount: `; !v.Success || !strings.HasPrefix(string(v.WithheldEvents), want) {
			t.Errorf("got the audit %s; want %s", v.WithheldEvents, want)
		}
		if got := s.store.events.domain.withheld; got != 2 {
			t.Errorf("got %d events withheld; want 2", got)
		}
		s = reopenTestService(t, s, o)
		s.store.locked(func() { s.store.events.domain.withheld = 2 })
	}
	closeTestService(t, s)
}

// publishedLog returns a log with random events, and subscribers that got some of them and gave
// others up.
func publishedLog(r *rand.Rand, keep, records int) *domainLog {
	l := &domainLog{keep: keep}
	events := []publishedEvent{{name: "a.x", mode: "durable"}, {name: "a.y", mode: "fast"}, {name: "b", mode: "broadcast"}}
	for i, pattern := range []string{"*", "a.*", "b"} {
		s := &subscription{name: pattern, from: uint64(i), wants: (&subscriber{subscriberConfig: subscriberConfig{Events: []string{pattern}}}).wants}
		l.subscriptions = append(l.subscriptions, s)
	}
	for seq := uint64(1); seq <= uint64(records); seq++ {
		for n := range r.IntN(4) {
			l.append(domainEvent{publishedEvent: &events[r.IntN(3)], seq: seq, n: n + 1})
		}
		for _, s := range l.subscriptions {
			for e := l.skip(s); e != nil && r.IntN(3) > 0; e = l.skip(s) {
				if x := e.given(0, 1, "no"); !e.fast() && r.IntN(3) == 0 {
					l.apply(&subscriberMark{subscriber: s.name, dead: &x})
				}
				s.next++
			}
			if len(s.dead) > 0 && r.IntN(5) == 0 {
				l.apply(&subscriberMark{subscriber: s.name, resent: new(s.dead[r.IntN(len(s.dead))])})
			}
			s.overtaken = nil
		}
	}
	for _, s := range l.subscriptions { // as after a crash in the middle of a record
		for s.next > l.first && s.next < l.end() && l.held[s.next-l.first-1].seq == l.held[s.next-l.first].seq {
			s.next--
		}
	}
	return l
}

// everyDelivery looks at all held events and notices to list the deliveries, as the reference of
// deliveriesLocked.
func everyDelivery(l *domainLog, f deliveryFilter) (all []deliveryRow) {
	for _, s := range l.subscriptions {
		held := map[deadNotice]bool{}
		for i := range l.held {
			e := &l.held[i]
			x := s.deadNotice(e.seq, e.n)
			if e.fast() || e.seq <= s.from || !s.wants(e) {
				continue
			}
			row := deliveryRow{subscriber: s.name, status: deliveryDelivered, notice: e.given(e.at, 0, "")}
			if pending := l.first+uint64(i) >= s.next; pending {
				row.status, row.first = deliveryPending, l.skip(s) == e
			} else if x != nil {
				row.status, row.notice = deliveryDead, *x
			}
			if all = append(all, row); x != nil {
				held[*x] = true
			}
		}
		for _, x := range s.dead {
			if !held[x] {
				all = append(all, deliveryRow{s.name, deliveryDead, false, x})
			}
		}
	}
	all = slices.DeleteFunc(all, func(r deliveryRow) bool {
		return f.subscriber != "" && f.subscriber != r.subscriber || f.status != "" && f.status != r.status
	})
	slices.SortStableFunc(all, func(a, b deliveryRow) int {
		return cmp.Or(cmp.Compare(b.notice.seq, a.notice.seq), cmp.Compare(b.notice.n, a.notice.n))
	})
	return all
}

// TestListingDeliveries compares pages of the deliveries with a walk through all of them, for
// random subscribers.
func TestListingDeliveries(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &store{}
		s.events.domain = *publishedLog(r, 1+r.IntN(40), r.IntN(60))
		for _, status := range []string{"", deliveryPending, deliveryDelivered, deliveryDead} {
			for _, name := range []string{"", "*", "a.*", "b", "none"} {
				f := deliveryFilter{name, status}
				want := everyDelivery(&s.events.domain, f)
				offset, limit := r.IntN(len(want)+3), r.IntN(20)
				got, total := s.deliveriesLocked(f, offset, limit)
				page := want[min(offset, len(want)):min(offset+limit, len(want))]
				if total != len(want) || !slices.Equal(got, page) {
					t.Fatalf("seed %d, %+v from %d: got %d, %+v; want %d, %+v", seed, f, offset, total, got, len(want), page)
				}
			}
		}
	}
}

// BenchmarkDeliveries lists the first page for logs of different lengths, and beside it, as the
// reference, walks through all deliveries.
func BenchmarkDeliveries(b *testing.B) {
	for _, held := range []int{1000, 100_000} {
		s := &store{}
		s.events.domain = *publishedLog(rand.New(rand.NewPCG(1, 1)), held, held)
		for _, status := range []string{"", deliveryPending, deliveryDelivered, deliveryDead} {
			f := deliveryFilter{status: status}
			b.Run(fmt.Sprintf("%d/%s", held, cmp.Or(status, "all")), func(b *testing.B) {
				for b.Loop() {
					s.deliveriesLocked(f, 0, 50)
				}
			})
		}
		b.Run(fmt.Sprintf("%d/reference", held), func(b *testing.B) {
			for b.Loop() {
				everyDelivery(&s.events.domain, deliveryFilter{})
			}
		})
	}
}
