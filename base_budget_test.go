package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func decodedOf(most int64) *decodedMemory {
	return &decodedMemory{quota: quota{most: most}, last: make(chan struct{}, 1)}
}

// TestBudget takes memory up to the limit of one request, and up to that of all.
func TestBudget(t *testing.T) {
	for most, want := range map[int64]string{
		64 << 20: "the request is too expensive: a.b the thing needs more memory than the 24 MiB that one request may use",
		16 << 20: "the request is too expensive: a.b the thing needs more memory than the 8 MiB that one request may use",
	} {
		pool := decodedOf(most)
		b := newBudget(t.Context(), pool)
		for range 2 {
			if !b.take(int(pool.each()/2), "a", "half") {
				t.Errorf("half of the limit: %v", b.err)
			}
		}
		if pool.used.Load() != pool.each() {
			t.Errorf("got %d bytes; want memory up to the limit", pool.used.Load())
		}
		if b.give(1); !b.take(1, "a", "a byte") || b.take(1, "a.b", "the thing") || b.take(0, "c", "more") {
			t.Errorf("got %d bytes; want at most %d", b.taken, pool.each())
		}
		if kindOf(b.err) != invalidFields || b.err.Error() != want {
			t.Errorf("got %v; want %s", b.err, want)
		}
		if b.end(); pool.used.Load() != 0 {
			t.Errorf("got %d bytes still in use; want none", pool.used.Load())
		}
	}
	pool := decodedOf(64 << 20)
	gone, leave := context.WithCancel(t.Context())
	b := newBudget(gone, pool)
	if leave(); b.take(1, "", "") || b.err != context.Canceled {
		t.Errorf("got %v; want the work to end when the client leaves", b.err)
	}
	for _, free := range []*budget{nil, newBudget(t.Context(), nil), newOwnBudget(pool, 0)} {
		if !free.take(1<<40, "", "") {
			t.Errorf("got %v; want no limit", free.err)
		}
		free.end()
	}
	if used := pool.used.Load(); used != 0 || len(pool.last) != 0 {
		t.Errorf("got %d bytes still in use; want none", used)
	}
}

// TestBudgetsTogether checks what happens when the memory for all is taken.
func TestBudgetsTogether(t *testing.T) {
	const half, most = requestMemory / 2, 2 * requestMemory
	for name, others := range map[string]func(t *testing.T, pool *decodedMemory, one, two *budget){
		"both want more: one after the other gets it": func(t *testing.T, pool *decodedMemory, one, two *budget) {
			done := make(chan *budget)
			for _, b := range []*budget{one, two} {
				go func() {
					defer func() { b.end(); done <- b }()
					b.take(half, "", "")
				}()
			}
			if first, second := <-done, <-done; first.err != nil || second.err != nil {
				t.Errorf("got %v, %v; want memory for both", first.err, second.err)
			}
		},
		"the last part is taken: refused after a while": func(t *testing.T, pool *decodedMemory, one, two *budget) {
			one.take(half, "", "")
			began := time.Now()
			if two.take(1, "", ""); kindOf(two.err) != backpressure || time.Since(began) < memoryPatience || pool.refused.Load() != 1 {
				t.Errorf("got %v after %s, %d refusals; want one", two.err, time.Since(began), pool.refused.Load())
			}
		},
		"the service itself is not refused": func(t *testing.T, pool *decodedMemory, one, two *budget) {
			one.take(half, "", "")
			for _, patience := range []time.Duration{0, time.Second} {
				began, own := time.Now(), newOwnBudget(pool, patience)
				if !own.take(half, "", "") || time.Since(began) < patience || pool.used.Load() != most {
					t.Errorf("got %v after %s, %d bytes; want memory", own.err, time.Since(began), pool.used.Load())
				}
				own.end()
			}
		},
		"the client of one that waits leaves": func(t *testing.T, pool *decodedMemory, one, two *budget) {
			one.take(half, "", "")
			gone, leave := context.WithTimeout(t.Context(), time.Second)
			defer leave()
			if three := newBudget(gone, pool); three.take(1, "", "") || three.err != context.DeadlineExceeded {
				t.Errorf("got %v; want the end of waiting", three.err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := decodedOf(most)
				one, two := newBudget(t.Context(), pool), newBudget(t.Context(), pool)
				if !one.take(half, "", "") || !two.take(half, "", "") {
					t.Fatalf("got %v, %v; want half of all for both", one.err, two.err)
				}
				others(t, pool, one, two)
				one.end()
				if two.end(); pool.used.Load() != 0 || len(pool.last) != 0 {
					t.Errorf("got %d bytes still in use; want none", pool.used.Load())
				}
			})
		})
	}
}

// TestOwnChecks checks results of handlers while requests hold all memory.
func TestOwnChecks(t *testing.T) {
	def := &mustParseTemplate(t, schemaTemplate).steps[0]
	for _, patience := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g := &schemaGuard{mode: "reject", log: slog.New(slog.DiscardHandler), memory: decodedOf(64 << 20)}
			g.memory.used.Add(g.memory.most)
			g.memory.last <- struct{}{}
			for result, want := range map[string]string{
				`{"total":1}`: "", `{"total":1.5}`: "the result does not fit result_schema: /total: got 1.5; want an integer",
			} {
				if o := g.fittedOwn(patience, def, outcome{success: true, result: []byte(result)}); o.misfit != want {
					t.Errorf("%s: got %q; want %q", result, o.misfit, want)
				}
			}
			if used := g.memory.used.Load(); used != g.memory.most {
				t.Errorf("got %d bytes in use; want %d, as before", used, g.memory.most)
			}
		})
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
