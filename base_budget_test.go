package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
)

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
