package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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

// TestBudget takes memory up to the limit of one request, and up to that of all.
func TestBudget(t *testing.T) {
	pool := &quota{most: 64 << 20}
	b := newBudget(t.Context(), pool)
	for range 2 {
		if !b.take(requestMemory/2, "a", "half") {
			t.Errorf("half of the limit: %v", b.err)
		}
	}
	if pool.used.Load() != requestMemory {
		t.Errorf("got %d bytes; want memory up to the limit", pool.used.Load())
	}
	if b.give(1); !b.take(1, "a", "a byte") || b.take(1, "a.b", "the thing") || b.take(0, "c", "more") {
		t.Errorf("got %d bytes; want at most %d", b.taken, requestMemory)
	}
	const want = "the request is too expensive: a.b the thing needs more memory than the 24 MiB that one request may use"
	if kindOf(b.err) != invalidFields || b.err.Error() != want {
		t.Errorf("got %v; want %s", b.err, want)
	}
	gone, leave := context.WithCancel(t.Context())
	left := newBudget(gone, pool)
	if leave(); left.take(1, "", "") || left.err != context.Canceled {
		t.Errorf("got %v; want the work to end when the client leaves", left.err)
	}
	for _, free := range []*budget{nil, newBudget(t.Context(), nil), newOwnBudget(pool)} {
		if !free.take(1<<40, "", "") {
			t.Errorf("got %v; want no limit", free.err)
		}
		free.end()
	}
	pool.take(pool.most - requestMemory)
	if late := newBudget(t.Context(), pool); late.take(1, "", "") || kindOf(late.err) != backpressure || pool.refused.Load() != 1 {
		t.Errorf("got %v and %d refusals; want one", late.err, pool.refused.Load())
	}
	if b.end(); pool.used.Load() != pool.most-requestMemory {
		t.Errorf("got %d bytes still in use; want what others have", pool.used.Load())
	}
}

// TestOwnChecks checks results of handlers while requests hold all memory.
func TestOwnChecks(t *testing.T) {
	def := &mustParseTemplate(t, schemaTemplate).steps[0]
	g := &schemaGuard{mode: "reject", log: slog.New(slog.DiscardHandler), memory: &quota{most: 64 << 20}}
	g.memory.take(g.memory.most)
	for result, want := range map[string]string{
		`{"total":1}`: "", `{"total":1.5}`: "the result does not fit result_schema: /total: got 1.5; want an integer",
	} {
		if o := g.fittedOwn(def, outcome{success: true, result: []byte(result)}); o.misfit != want {
			t.Errorf("%s: got %q; want %q", result, o.misfit, want)
		}
	}
	if used := g.memory.used.Load(); used != g.memory.most {
		t.Errorf("got %d bytes in use; want %d, as before", used, g.memory.most)
	}
}

// TestNamedProblems checks that an answer names some of many problems, and how many there are.
func TestNamedProblems(t *testing.T) {
	f := fieldReader{}
	for range maxProblems + 17 {
		f.complain("a", "is wrong")
	}
	err := f.failure("refused").(*failure)
	if !strings.HasSuffix(err.message, "; a is wrong; and 17 more") || len(err.details) != maxProblems {
		t.Errorf("got %d details, …%s; want %d, and the number of the others", len(err.details), err.message[len(err.message)-30:], maxProblems)
	}
}

func TestHistogramBins(t *testing.T) {
	last := int64(-1)
	check := func(us int64) {
		t.Helper()
		n := int64(binOf(us))
		lo, hi := binRange(uint64(n))
		if float64(us) < lo || float64(us) >= hi && us < 1<<53 {
			t.Errorf("%d is in bin %d, from %g to %g", us, n, lo, hi)
		}
		if n < last || n > last+1 && last >= 0 {
			t.Errorf("%d is in bin %d, the one before in %d", us, n, last)
		}
		last = n
	}
	for us := range int64(1 << 16) {
		check(us)
	}
	for _, us := range []int64{1<<40 - 1, 1 << 40, math.MaxInt64} {
		last = -1
		check(us)
	}
	if got := binOf(-5); got != 0 {
		t.Errorf("a negative duration is in bin %d; want 0", got)
	}
}

// TestHistogramError compares percentiles with the exact ones.
func TestHistogramError(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var h histogram
		exact := make([]int64, 1+r.IntN(500))
		for i := range exact {
			exact[i] = int64(math.Exp(r.Float64() * 30)) // 1 µs to four months
			h.observe(exact[i])
		}
		slices.Sort(exact)
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.95, 0.99, 1} {
			want := float64(exact[max(int(math.Ceil(q*float64(len(exact)))), 1)-1])
			if got := h.quantile(q); math.Abs(got-want) > 0.06*want {
				t.Fatalf("quantile %g of %d durations: got %g; want %g", q, len(exact), got, want)
			}
		}
		if h.max != exact[len(exact)-1] || h.count != uint64(len(exact)) {
			t.Fatalf("got %d durations up to %d; want %d up to %d", h.count, h.max, len(exact), exact[len(exact)-1])
		}
	}
}
