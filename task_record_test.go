package main

// Records with valid checksums that this program would not have written: they are read or
// refused, and never cause a panic.

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestMembersInAnySpelling reads records whose members are not spelled as they
// are written, or not known, or repeated.
func TestMembersInAnySpelling(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`{"worker":"w","ms":1,"kind":"ran","at":5,"began":3,"st\u0065p":2,"seq":7,"task":"01000000-0000-0000-0000-000000000000"}`,
			`{"task":"01000000-0000-0000-0000-000000000000","at":5,"kind":"ran","step":2,"began":3,"ms":1,"worker":"w"}`},
		{`{"stale":{"reason":"worker_unavailable","limit":1},"kind":"stale","at":1}`,
			`{"at":1,"kind":"stale","stale":{"limit":1,"reason":"worker_unavailable"}}`},
		{`{"seq":7,"kind":"stale","stale":{"limit":1,"novelty":2}}`, `member "novelty": unknown member, from a newer version`},
		{`{"at":1,"kind":"created","template":"t","again":{"from":"a","copies":[{"step":0, "of":"01000000-0000-0000-0000-000000000000"}]}}`,
			`{"at":1,"kind":"created","template":"t","context":{},"again":{"from":"a","copies":[{"step":0,"of":"01000000-0000-0000-0000-000000000000"}]}}`},
		{`{"at":1,"kind":"created","template":"t","again":{"from":"a","copies":[{"step":0,"novelty":1}]}}`, `member "novelty": unknown member, from a newer version`},
		{" {\"at\" :1, \"kind\": \"stale\" ,\"stale\":{\"limit\":1, \"reason\":\"worker_unavailable\"\n}}\n",
			`{"at":1,"kind":"stale","stale":{"limit":1,"reason":"worker_unavailable"}}`},
		{`{"at":1,"kind":"stale","stale": {"limit":-1} }`, `{"at":1,"kind":"stale","stale":{"limit":-1}}`},
		{`{"at":1,"at":1,"kind":"due","step":0}`, `member "at": unknown member, from a newer version`},
		{`{"at":1,"kind":"due","step":0,"sum":"","sum":""}`, `member "sum": unknown member, from a newer version`},
		{`{"at":1,"kind":"due","step":0,"":1}`, `member "": unknown member, from a newer version`},
		{`{"step":0,"kind":"due","novelty":1}`, `member "novelty": unknown member, from a newer version`},
		{`{"at":"1","kind":"due","step":0}`, `member "at": "1" is not an integer`},
		{`{"seq":1}`, `member "kind": missing`},
		{`{}`, `member "kind": missing`},
		{`[]`, `[] is not an object`},
	} {
		r, err := decodeRecord([]byte(tc.text))
		got := fmt.Sprint(err)
		if err == nil {
			got = string(append(appendRecordMembers([]byte{'{'}, r), '}'))
		}
		if got != tc.want {
			t.Errorf("%s: got %s; want %s", tc.text, got, tc.want)
		}
	}
}

// TestReadRecordKeepsNothing reads the records of a store, and expects no record to change with the memory that it was
// read from.
func TestReadRecordKeepsNothing(t *testing.T) {
	dir, kinds := t.TempDir(), map[recordKind]bool{}
	closeTestService(t, eventWorld(t, serviceTest{dir: dir, clock: newVirtualClock(testStart)}))
	for line := range bytes.Lines(readFile(t, filepath.Join(dir, storeName))) {
		if !bytes.HasPrefix(line, []byte(recordHead)) {
			continue
		}
		var got record
		want := must(decodeRecord(bytes.Clone(line[:len(line)-1])))(t)
		noError(t, got.read(line[:len(line)-1]))
		for i := range line {
			line[i] = 'x'
		}
		if !reflect.DeepEqual(&got, want) {
			t.Errorf("got %+v; want %+v", got, want)
		}
		kinds[got.kind] = true
	}
	if len(kinds) < 6 {
		t.Errorf("got records of %d kinds", len(kinds))
	}
}

// TestTwoDecisions checks that a convergence waits while a dependency can still be created.
func TestTwoDecisions(t *testing.T) {
	steps := []stepSpec{stepOf(stepDecision, "d1"), stepOf(stepDecision, "d2"), stepOf("", "a", "d1"), stepOf("", "b", "d2"),
		stepOf(stepDeferredConvergence, "end", "a", "b")}
	a := newActor(t, serviceTest{}, steps...)
	a.decide("d1", "a")
	a.complete("a")
	a.want("steps_in_process: d1=complete d2=enqueued a=complete end=pending")
	if x := newStepView(a.view(), 3, 0, ""); x.parents != 1 || x.step.waitingFor != 0 || x.satisfied {
		t.Errorf("got %+v; want its one parent complete, and not satisfied", x)
	}
	a.decide("d2", "b")
	a.want("steps_in_process: d1=complete d2=complete a=complete end=pending b=enqueued")
	a.complete("b", "end")
	a.want("complete: d1=complete d2=complete a=complete end=complete b=complete")

	a = newActor(t, serviceTest{}, steps...)
	a.decide("d1", "a")
	a.complete("a")
	a.decide("d2")
	a.want("steps_in_process: d1=complete d2=complete a=complete end=enqueued")

	a = newActor(t, serviceTest{}, steps...)
	a.decide("d1", "a")
	a.complete("a")
	noError(t, a.act("d2", stepRequest{action: actionCancel}))
	a.want("steps_in_process: d1=complete d2=cancelled a=complete end=enqueued")
}

// TestNoBatches checks that without batches one instance is given to its handler, if the batchable step names the
// worker, and that else the task continues without it and what depends on it.
func TestNoBatches(t *testing.T) {
	const none = `{"batch_processing_outcome":{"type":"no_batches"}}`
	steps := []stepSpec{stepOf(stepBatchable, "split"), stepOf(stepBatchWorker, "w", "split"),
		stepOf(stepDeferredConvergence, "end", "w"), stepOf("", "last", "split")}
	for _, result := range []string{"", createBatches("w", 0), none, `{"batch_processing_outcome":"no_batches"}`} {
		a := newActor(t, serviceTest{}, steps...)
		a.completeWith("split", result)
		a.want("steps_in_process: split=complete last=enqueued")
		a.complete("last")
		a.want("complete: split=complete last=complete")
	}

	steps[0].config, steps[1].after, steps[1].config = `{"worker_template_name":"w"}`, nil, `{"unit":"row"}` // named, not declared
	for _, result := range []string{createBatches("w", 0), none, `{"batch_processing_outcome":"no_batches"}`} {
		a := newActor(t, serviceTest{dir: t.TempDir()}, steps...)
		a.completeWith("split", result)
		a.want("steps_in_process: split=complete last=enqueued w_000=enqueued end=pending")
		c := a.s.engine.attemptLocked(a.view(), a.step("w_000"), 1, true)
		if got, want := string(c.config), `{"unit":"row","cursor":`+noOpCursor+`}`; got != want {
			t.Errorf("got the config %s; want %s", got, want)
		}
		if got := string(c.allInputs()); !strings.Contains(got, `"is_no_op":true`) || !strings.Contains(got, `"batch_id":"000"`) {
			t.Errorf("got the inputs %s; want those of no batch", got)
		}
		a.completeWith("w_000", `{"no_op":true}`)
		a.want("steps_in_process: split=complete last=enqueued w_000=complete end=enqueued")
		v := a.view()
		if got := v.resultsFor(a.step("end")); len(got) != 2 || got[1].step != "w_000" || string(got[1].result) != `{"no_op":true}` {
			t.Errorf("the convergence gets %+v; want the result of w_000", got)
		}
		a.complete("end", "last")
		a.want("complete: split=complete last=complete w_000=complete end=complete")
	}

	a := newActor(t, serviceTest{}, steps...)
	a.completeWith("split", "") // no outcome
	a.want("steps_in_process: split=complete last=enqueued")
	a = newActor(t, serviceTest{}, steps...)
	noError(t, a.act("split", resolveAction))
	a.want("steps_in_process: split=resolved_manually last=enqueued")
	if err := a.act("split", stepRequest{action: actionComplete, result: []byte(createBatches("w", 3))}); kindOf(err) != invalidFields {
		t.Errorf("batches after all: got %v; want them refused", err)
	}
	a.completeWith("split", "")
	a.want("steps_in_process: split=complete last=enqueued")

	steps = append(steps, stepOf("", "w_000"))
	a = newActor(t, serviceTest{}, steps...)
	if err := a.act("split", stepRequest{action: actionComplete, result: []byte(none)}); kindOf(err) != invalidFields {
		t.Errorf("a step that has the name of the instance: got %v; want an error", err)
	}
}

// TestGrowthWhileBlocked checks that the steps that a decision creates while the task is
// blocked start once it continues, and that a branch that depends on a cancelled step blocks.
func TestGrowthWhileBlocked(t *testing.T) {
	a := newActor(t, serviceTest{}, stepOf("", "x"), stepOf("", "y"), stepOf(stepDecision, "d"), stepOf("", "b", "d", "y"))
	noError(t, a.act("x", failAction))
	noError(t, a.act("y", stepRequest{action: actionCancel}))
	a.decide("d", "b")
	a.want("blocked_by_failures: x=error y=cancelled d=complete b=pending")
	a.complete("x")
	a.want("blocked_by_failures: x=complete y=cancelled d=complete b=pending")
	noError(t, a.act("b", resolveAction))
	a.want("complete: x=complete y=cancelled d=complete b=resolved_manually")
}

// TestErrorTexts makes the texts by which errors are found.
func TestErrorTexts(t *testing.T) {
	trace := "Traceback\n" + strings.Repeat("  in here\n", 200) + "ValueError: No Such Order"
	for _, test := range []struct{ errorType, message, begin, end string }{
		{"NetError", "Connection REFUSED", "neterror: connection refused", "neterror: connection refused"},
		{"E", "see http://me:secret@host/x", "e: see http://[redacted]@host/x", "@host/x"},
		{"E", trace, "e: traceback\n", "valueerror: no such order"},
	} {
		text := errorTextOf(fmt.Appendf(nil, `{"message":%s,"error_type":%q}`, jsonOf(test.message), test.errorType))
		if !strings.HasPrefix(text, test.begin) || !strings.HasSuffix(text, test.end) || len(text) > 2*errorTextPart+1 {
			t.Errorf("%s: got %q of %d bytes; want %q … %q", test.errorType, text, len(text), test.begin, test.end)
		}
	}
	for _, start := range []string{"", "x"} {
		text := errorTextOf(fmt.Appendf(nil, `{"message":%s,"error_type":"E"}`, jsonOf(start+strings.Repeat("é", 2*errorTextPart))))
		if !utf8.ValidString(text) || len(text) < 2*errorTextPart-1 {
			t.Errorf("got %q; want whole characters", text)
		}
	}
	if got := errorTextOf([]byte(`{"message":{"A":1},"error_type":"T"}`)); got != `t: {"a":1}` {
		t.Errorf("got %s of a message that is no text", got)
	}
}
