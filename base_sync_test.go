package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestLogRate checks that only so many messages pass in a second, and that the next one after
// it says how many were left out, whatever the clock does.
func TestLogRate(t *testing.T) {
	l := &logRate{most: 2}
	for i, tt := range []struct {
		at      time.Duration
		dropped int
		ok      bool
	}{
		{0, 0, true}, {0, 0, true}, {0, 0, false}, {time.Second - 1000, 0, false}, {time.Second, 2, true},
		{time.Second, 0, true}, {time.Second, 0, false}, {-time.Hour, 1, true},
	} {
		if dropped, ok := l.allow(testStart.add(tt.at)); dropped != tt.dropped || ok != tt.ok {
			t.Errorf("message %d: got %d, %v; want %d, %v", i, dropped, ok, tt.dropped, tt.ok)
		}
	}
}

func TestAnswerCacheIsBounded(t *testing.T) {
	c := newCountedAnswer()
	for i := range 3 * maxCachedAnswers {
		c.ask(fmt.Sprint("q", i, "."))
		c.clock.advance(time.Microsecond)
		if n := len(c.cache.entries); n > maxCachedAnswers {
			t.Fatalf("got %d entries; want at most %d", n, maxCachedAnswers)
		}
	}
	oldest, gone := 2*maxCachedAnswers, 2*maxCachedAnswers-1
	if got, want := c.ask(fmt.Sprint("q", oldest, ".")), fmt.Sprint("q", oldest, ".1 true"); got != want {
		t.Errorf("the oldest kept: got %s; want %s", got, want)
	}
	if got, want := c.ask(fmt.Sprint("q", gone, ".")), fmt.Sprint("q", gone, ".2 false"); got != want {
		t.Errorf("the one before: got %s; want %s", got, want)
	}
}

// TestAnswerIsComputedOnce has many ask at the same time.
func TestAnswerIsComputedOnce(t *testing.T) {
	var cache answerCache[string, int]
	var all sync.WaitGroup
	clk, times := newVirtualClock(testStart), 0
	for range 20 {
		all.Go(func() {
			v, _, err := cache.get("q", clk, time.Minute, func() (int, error) {
				times++
				return 42, nil
			})
			if v != 42 || err != nil {
				t.Errorf("got %d, %v; want 42", v, err)
			}
		})
	}
	if all.Wait(); times != 1 {
		t.Errorf("computed %d times; want once", times)
	}
}

// TestAnswerCacheFailures checks that failed and panicking computations are not cached.
func TestAnswerCacheFailures(t *testing.T) {
	broken := errors.New("broken")
	for name, failure := range map[string]func() (int, error){
		"error": func() (int, error) { return 0, broken }, "panic": func() (int, error) { panic("no") },
	} {
		var cache answerCache[string, int]
		clk := newVirtualClock(testStart)
		func() {
			defer func() { recover() }()
			if _, _, err := cache.get("q", clk, time.Minute, failure); err != broken {
				t.Errorf("%s: got %v; want it", name, err)
			}
		}()
		v, hit, err := cache.get("q", clk, time.Minute, func() (int, error) { return 1, nil })
		if v != 1 || hit || err != nil {
			t.Errorf("after the %s: got %d, %t, %v; want 1, newly computed", name, v, hit, err)
		}
	}
}

// TestPriorityQueue pushes, changes, removes and pops at random, and compares the result with a
// sorted slice.
func TestPriorityQueue(t *testing.T) {
	type element struct{ value, place int }
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		q := priorityQueue[*element]{
			before: func(a, b *element) bool { return a.value < b.value },
			placed: func(e *element, place int) { e.place = place },
		}
		var all []*element
		for range 100 {
			switch n := r.IntN(4); {
			case n < 2 || len(all) == 0:
				e := &element{value: r.IntN(50)}
				q.push(e)
				all = append(all, e)
			case n == 2:
				e := all[r.IntN(len(all))]
				e.value = r.IntN(50)
				q.fix(e.place)
			default:
				i := r.IntN(len(all))
				if got := q.remove(all[i].place); got != all[i] {
					t.Fatalf("remove(%d): got %v; want %v", all[i].place, *got, *all[i])
				}
				all = slices.Delete(all, i, i+1)
			}
			for i, e := range q.items {
				if e.place != i {
					t.Fatalf("the element at place %d was told %d", i, e.place)
				}
			}
		}
		slices.SortFunc(all, func(a, b *element) int { return a.value - b.value })
		for _, want := range all {
			if got := q.pop(); got.value != want.value {
				t.Fatalf("pop: got %d; want %d", got.value, want.value)
			}
		}
	}
}
