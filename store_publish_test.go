package main

// Domain events: which attempts publish which, in which order, and what a restart finds again.

import (
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
