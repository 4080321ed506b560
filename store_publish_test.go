package main

// Domain events: which attempts publish which, in which order, and what a restart finds again.

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

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
	f := must(s.store.events.follow(eventFilter{kind: domainKind}, 1))(t)
	if !f.missed || f.oldest != all[0].Seq {
		t.Errorf("got missed %v, oldest %d; want a gap up to %d", f.missed, f.oldest, all[0].Seq)
	}
	if got := s.store.events.domain.published; got != [deliveryModes]uint64{8, 0, 0} {
		t.Errorf("got the counts %v", got)
	}
}

// publishedLog returns a log with random events, and subscribers that got some of them and gave
// others up.
func publishedLog(r *rand.Rand, keep, records int) *domainLog {
	l := &domainLog{eventRing: eventRing{keep: keep}}
	l.drops = l.overtake
	events := []publishedEvent{{name: "a.x", mode: "durable"}, {name: "a.y", mode: "fast"}, {name: "b", mode: "broadcast"}}
	for i, pattern := range []string{"*", "a.*", "b"} {
		s := &subscription{name: pattern, from: uint64(i), wants: (&subscriber{subscriberConfig: subscriberConfig{Events: []string{pattern}}}).wants}
		l.subscriptions = append(l.subscriptions, s)
	}
	for seq := uint64(1); seq <= uint64(records); seq++ {
		for n := range r.IntN(4) {
			l.append((&domainEvent{publishedEvent: &events[r.IntN(3)], seq: seq, n: n + 1}).move())
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
		for s.next > l.first && s.next < l.end() && l.event(s.next-1).seq == l.event(s.next).seq {
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
		for number := l.first; number < l.end(); number++ {
			e := l.event(number)
			x := s.deadNotice(e.seq, e.n)
			if e.fast() || e.seq <= s.from || !s.wants(e) {
				continue
			}
			row := deliveryRow{subscriber: s.name, status: deliveryDelivered, notice: e.given(e.at, 0, "")}
			if pending := number >= s.next; pending {
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
		l := publishedLog(r, 1+r.IntN(40), r.IntN(60))
		for _, status := range []string{"", deliveryPending, deliveryDelivered, deliveryDead} {
			for _, name := range []string{"", "*", "a.*", "b", "none"} {
				f := deliveryFilter{name, status}
				want := everyDelivery(l, f)
				offset, limit := r.IntN(len(want)+3), r.IntN(20)
				got, total := l.deliveriesLocked(f, offset, limit)
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
		l := publishedLog(rand.New(rand.NewPCG(1, 1)), held, held)
		for _, status := range []string{"", deliveryPending, deliveryDelivered, deliveryDead} {
			f := deliveryFilter{status: status}
			b.Run(fmt.Sprintf("%d/%s", held, cmp.Or(status, "all")), func(b *testing.B) {
				for b.Loop() {
					l.deliveriesLocked(f, 0, 50)
				}
			})
		}
		b.Run(fmt.Sprintf("%d/reference", held), func(b *testing.B) {
			for b.Loop() {
				everyDelivery(l, deliveryFilter{})
			}
		})
	}
}
