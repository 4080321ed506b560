package main

// Tasks that grow: decisions, convergences and batches, played step by step.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestFailureStrategies checks what each failure_strategy makes of an instance that fails for
// good: which steps still run, when the task is blocked, and how it continues; also after a restart.
func TestFailureStrategies(t *testing.T) {
	for strategy, want := range map[string][]string{
		"fail_fast": {
			"blocked_by_failures: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=pending",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=pending",
		},
		"continue_on_failure": {
			"steps_in_process: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=pending",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=pending",
		},
		"isolate": {
			"steps_in_process: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"steps_in_process: split=complete w_001=error w_002=complete w_003=complete end=enqueued",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=complete",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=complete",
		},
	} {
		steps := batchSteps(strategy, 10)[:3]
		dir := t.TempDir()
		a := newActor(t, serviceTest{dir: dir}, steps...)
		blocked := false
		next := func() {
			t.Helper()
			a.want(want[0])
			blocked = blocked || strings.HasPrefix(want[0], "blocked")
			if blocked != (a.view().pendingLetter() != nil) {
				t.Errorf("%s: dead letters %v", want[0], a.view().dead)
			}
			want = want[1:]
			closeTestService(t, a.s)
			a.s = newTestService(t, serviceTest{dir: dir, extra: []string{actorTemplate(steps...)}})
		}
		a.completeWith("split", createBatches("w", 3))
		noError(t, a.act("w_001", failAction))
		next()
		a.complete("w_002", "w_003")
		next()
		if strategy == "isolate" {
			v := a.view()
			if got := v.resultsFor(a.step("end")); len(got) != 4 || got[1].step != "w_001" || got[1].done {
				t.Errorf("the convergence gets %v; want no result of the isolated instance", got)
			}
			a.complete("end")
			next()
		}
		noError(t, a.act("w_001", resetAction))
		next()
		a.complete("w_001")
		if strategy != "isolate" {
			a.complete("end")
		}
		a.want("complete: split=complete w_001=complete w_002=complete w_003=complete end=complete")
		a.s.store.locked(func() {
			if n := len(a.s.engine.gates); n != 0 {
				t.Errorf("%s: %d gates are left", strategy, n)
			}
		})
	}
}

// TestIsolatedFailures checks steps that depend on instances which failed in isolation: all
// failed, one is reset before the dependents ran, or cancelled.
func TestIsolatedFailures(t *testing.T) {
	newBatch := func() *actor {
		a := newActor(t, serviceTest{}, batchSteps("isolate", 10)...)
		a.completeWith("split", createBatches("w", 2))
		return a
	}
	a := newBatch()
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_002", failAction))
	a.want("steps_in_process: split=complete w_001=error w_002=error end=enqueued last=pending")
	a.complete("end", "last")
	a.want("blocked_by_failures: split=complete w_001=error w_002=error end=complete last=complete")
	noError(t, a.act("w_001", resolveAction))
	noError(t, a.act("w_002", resolveAction))
	a.want("complete: split=complete w_001=resolved_manually w_002=resolved_manually end=complete last=complete")

	a = newBatch()
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_001", resetAction))
	a.complete("w_002")
	a.want("steps_in_process: split=complete w_001=enqueued w_002=complete end=pending last=pending")
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_001", cancelAction))
	a.want("blocked_by_failures: split=complete w_001=cancelled w_002=complete end=enqueued last=pending")
}

// TestHold holds tasks in every way of going on: nothing of them runs, also after a restart, until they are released.
func TestHold(t *testing.T) {
	t.Parallel()
	parts := strings.NewReplacer("batches", "parts", "builtin:tally", "Outside::Work").Replace(string(must(os.ReadFile("testdata/templates/t.batches.1.0.0.json"))(t)))
	o := serviceTest{dir: t.TempDir(), templates: "testdata/templates", extra: []string{parts}, clock: newVirtualClock(testStart)}
	c := o.clock.(*virtualClock)
	serve := func(svc *service) *testServer {
		return (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	}
	s := serve(openTestService(t, o))
	ids := map[string]string{}
	for _, name := range []string{"backoff", "sleeper", "parts", "fails", "echo"} {
		ids[name] = s.create(`{"namespace":"t","name":"` + name + `"}`)
	}
	ids["claimed"] = s.create(`{"namespace":"t","name":"manual"}`)
	ids["waits"] = s.create(`{"namespace":"t","name":"manual"}`)
	split := s.claimOne(`{"callables":["Outside::Split"]}`)
	s.answer(split, "complete", `,"result":{"batch_processing_outcome":{"type":"create_batches","worker_template_name":"work",
		"worker_count":3,"cursor_configs":[{"batch_id":"1"},{"batch_id":"2"},{"batch_id":"3"}],"total_items":3}}`).want(200)
	given := s.claimOne(`{"callables":["Outside::Approve"]}`)
	if given.Task.TaskUUID != ids["claimed"] {
		ids["claimed"], ids["waits"] = ids["waits"], ids["claimed"]
	}
	settle(s.svc)
	s.bulk(`{"action":"hold","reason":"nowhere","filter":{"namespace":"t"},"dry_run":true}`)
	s.bulk(`{"action":"release","reason":"r","filter":{"namespace":"t"}}`)
	lines := s.bulk(`{"action":"hold","reason":"https://tasks.example.com","filter":{"namespace":"t"}}`)
	if last := lines[len(lines)-1]; last.number("done") != float64(len(ids)-1) || last.text("refusals.0.message") != "task "+ids["echo"]+" is complete" {
		t.Fatalf("hold: got %s", last.raw)
	}
	for _, path := range []string{"/v1/tasks/" + ids["waits"], "/v1/tasks?name=sleeper"} { // a task and a list say so
		if a := s.do("GET", path, "").want(200); !strings.Contains(string(a.body), `"hold":{"since":"`+testStart.zoned()+`","place":"https://tasks.example.com"}`) {
			t.Errorf("%s: got %s", path, a.body)
		}
	}
	if a := s.do("GET", "/v1/tasks/"+ids["echo"], ""); strings.Contains(string(a.body), `"hold"`) {
		t.Errorf("a task that is not held: %s", a.body)
	}
	states := func() (all string) {
		for _, name := range []string{"backoff", "sleeper", "parts", "fails", "echo", "claimed", "waits"} {
			all += fmt.Sprintf("%s: %s\n", name, s.state(ids[name]))
		}
		return all
	}
	held := states()
	if strings.Contains(held, "in_progress") {
		t.Errorf("something runs in\n%s", held)
	}
	nothingRuns := func() {
		t.Helper()
		c.advance(30 * 24 * time.Hour)
		if got := s.claim(`{"callables":["*"],"limit":10}`); len(got) > 0 {
			t.Errorf("%d steps of held tasks were given away", len(got))
		}
		if got := states(); got != held {
			t.Errorf("held tasks went on:\n%s\nbefore:\n%s", got, held)
		}
	}
	nothingRuns()
	s.answer(given, "complete", `,"result":1`).want(409)
	for name, id := range ids {
		if name == "echo" {
			continue
		}
		at := "/v1/tasks/" + id
		if got := s.do("GET", at+"/explain", "").want(200).text("message"); !strings.Contains(got, "continues in https://tasks.example.com") {
			t.Errorf("%s: explained as %q", name, got)
		}
		step := s.do("GET", at, "").text("steps.0.workflow_step_uuid")
		for _, refused := range []*answer{
			s.do("DELETE", at, ""),
			s.do("PATCH", at+"/workflow_steps/"+step, `{"action_type":"resolve_manually","reason":"r","resolved_by":"me"}`),
			s.do("PATCH", at+"/workflow_steps/"+step, `{"action_type":"adjust","retry_limit":9}`),
		} {
			if refused.status/100 != 4 {
				t.Errorf("%s: got %d, %s", name, refused.status, refused.body)
			}
		}
	}
	closeTestService(t, s.svc)
	s = serve(newTestService(t, o))
	nothingRuns()

	c.advance(time.Second)
	s.bulk(`{"action":"release","reason":"the other one is down","filter":{"namespace":"t"}}`)
	if got := s.claim(`{"callables":["Outside::Approve"],"limit":10}`); len(got) != 2 {
		t.Errorf("%d steps can be claimed after the release; want 2", len(got))
	}
	if got := s.claim(`{"callables":["Outside::Work"],"limit":10}`); len(got) != 2 {
		t.Errorf("%d parts can be claimed after the release; want 2 at once", len(got))
	}
	c.advance(11 * time.Minute)
	if got := s.do("GET", "/v1/tasks/"+ids["sleeper"], ""); got.text("status") != "complete" || got.text("steps.0.attempts") != "1" {
		t.Errorf("the attempt that was cut off: got %s", got.body)
	}
	if got := s.state(ids["backoff"]); !strings.Contains(got, "waiting_for_retry") ||
		s.do("GET", "/v1/tasks/"+ids["backoff"], "").text("steps.0.attempts") != "2" {
		t.Errorf("the retry that fell due: got %s", got)
	}
}

// TestBriefStatuses checks all states against the contract's mapping, word for
// word.
func TestBriefStatuses(t *testing.T) {
	tasks := map[string]string{
		"pending": "pending", "initializing": "pending",
		"enqueuing_steps": "in_progress", "steps_in_process": "in_progress", "evaluating_results": "in_progress",
		"waiting_for_dependencies": "in_progress", "waiting_for_retry": "in_progress",
		"complete": "complete", "blocked_by_failures": "error", "error": "error",
		"cancelled": "cancelled", "resolved_manually": "resolved_manually",
	}
	if len(tasks) != int(taskStates) {
		t.Fatalf("got %d rows for tasks; want %d", len(tasks), taskStates)
	}
	for s := range taskStates {
		if got := s.brief().String(); got != tasks[s.String()] {
			t.Errorf("a task in %s: got %s; want %s", s, got, tasks[s.String()])
		}
	}
	steps := map[string]string{
		"pending": "pending", "enqueued": "pending", "waiting_for_retry": "pending",
		"in_progress": "in_progress", "enqueued_for_orchestration": "in_progress",
		"enqueued_as_error_for_orchestration": "in_progress",
		"complete":                            "complete", "error": "error", "cancelled": "cancelled", "resolved_manually": "resolved_manually",
	}
	if len(steps) != int(stepStates) {
		t.Fatalf("got %d rows for steps; want %d", len(steps), stepStates)
	}
	for s := range stepStates {
		if got := s.brief().String(); got != steps[s.String()] {
			t.Errorf("a step in %s: got %s; want %s", s, got, steps[s.String()])
		}
	}
}

// readStates reads testdata/states.txt: "task from event" to the state it leads to.
func readStates(t *testing.T) map[string]string {
	t.Helper()
	data := readFile(t, "testdata/states.txt")
	moves := map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 4 {
			t.Fatalf("states.txt: %q has %d words; want 4", line, len(f))
		}
		for from := range strings.SplitSeq(f[1], ",") {
			moves[f[0]+" "+from+" "+f[2]] = f[3]
		}
	}
	return moves
}

func TestStateTables(t *testing.T) {
	want := readStates(t)
	seen := 0
	compare := func(pair string, to fmt.Stringer, ok bool) {
		got := ""
		if ok {
			got = to.String()
			seen++
		}
		if got != want[pair] {
			t.Errorf("%s leads to %q; want %q", pair, got, want[pair])
		}
	}
	for s := range taskStates {
		for e := range taskEvents {
			to, ok := s.next(e)
			compare("task "+s.String()+" "+e.String(), to, ok)
		}
	}
	for s := range stepStates {
		for e := range stepEvents {
			to, ok := s.next(e)
			compare("step "+s.String()+" "+e.String(), to, ok)
		}
	}
	if seen != len(want) {
		t.Errorf("the tables have %d moves; states.txt has %d", seen, len(want))
	}
}

// TestGroupMessage shows what is left of messages, and so which of them are of one group.
func TestGroupMessage(t *testing.T) {
	for _, test := range []struct{ message, want string }{
		{"", ""},
		{"insufficient_funds", "insufficient_funds"},
		{"CardError: insufficient_funds", "CardError: insufficient_funds"},
		{"the service does not answer", "the service does not answer"},
		// Numbers.
		{"attempt 3 of 12 took 1.5s, not 900 ms", "attempt * of * took *, not * ms"},
		{"the balance is -5.20, below 1,000.00", "the balance is *, below *"},
		{"disk is 97% full (+3%)", "disk is *% full (*%)"},
		{"missing: [1, 2, 3]", "missing: [*]"},
		{"missing: [4]", "missing: [*]"},
		{"error code 0x1F4", "error code *"},
		{"HTTP 503", "HTTP *"},
		// Ids.
		{"no order 019b76da-a800-7000-8000-04acaa6eed04", "no order *"},
		{"no order ord_9aZ3/ch_3LkX", "no order *"},
		{"commit deadbeef is gone, and Cafe-Bead too", "commit * is gone, and * too"},
		{"the facade has no decade", "the facade has no decade"},
		{"/orders/123/items: not found", "/orders/*/items: not found"},
		// Times.
		{"expired at 2026-01-31T12:00:00.123Z", "expired at *"},
		{"expired at 2026-01-31 12:00:00+02:00 already", "expired at * already"},
		{"expired Mon, 02 Jan 2006 15:04:05 GMT", "expired * GMT"},
		{"expired at 3:04 PM", "expired at *"},
		{"Mayday in March", "Mayday in March"},
		// Addresses.
		{"dial tcp 10.0.0.7:5432: connect: connection refused", "dial tcp *: connect: connection refused"},
		{"dial tcp [fe80::abcd:1]:443: connection refused", "dial tcp [*]:*: connection refused"},
		{"dial tcp [::1]:443: connection refused", "dial tcp [*]:*: connection refused"},
		{"no route to 1::abcd: gave up", "no route to *: gave up"},
		{"lookup db.internal: no such host", "lookup db.internal: no such host"},
		{"db.internal:5432 refused", "db.internal:* refused"},
		{"400:bad request", "*:bad request"},
		{"bounced: ada.l@example.com and bob@example.org", "bounced: * and *"},
		{`Get "https://pay.example/charge?token=abc": timeout`, "Get *: timeout"},
		{"https://u:p@pay.example/charge?token=s3cret: timeout (see http://docs.example)", "* timeout (see *)"},
		// Quoted values.
		{`no field "amount" in 'order', nor in ` + "`cart`", "no field * in *, nor in *"},
		{`unknown "a \"b\" c" here`, "unknown * here"},
		{"can't find customer 'O'Neil' of ‘x’ or “y z” or «w»", "can't find customer * of * or * or *"},
		{`an open " quote, and ''`, `an open " quote, and *`},
		{`{"code":"declined","id":7}`, "{*}"},
		// Other texts.
		{"  spaces\tand  tabs\r\n  at f (x.js:3)", "spaces and tabs"},
		{"Traceback (most recent call last):\n  File \"x.py\", line 3\nValueError: bad id 7\n", "ValueError: bad id *"},
		{"заказ 7 не найден", "заказ * не найден"},
		{"5", "*"},
		{"invalid \xff bytes", "invalid \ufffd bytes"},
	} {
		if got := groupMessage(test.message); got != test.want {
			t.Errorf("groupMessage(%q) = %q; want %q", test.message, got, test.want)
		}
	}
}

// TestGroupMessageIsBounded cuts messages where a character begins.
func TestGroupMessageIsBounded(t *testing.T) {
	for _, part := range []string{"x ", "é ", "wörd ", "漢"} {
		got := groupMessage(strings.Repeat(part, 10_000))
		if len(got) > maxGroupMessage+len("…") || !utf8.ValidString(got) {
			t.Errorf("%q repeated becomes %q, of %d bytes", part, got, len(got))
		}
	}
	if got := groupMessage(strings.Repeat("7 ", 10_000)); got != "*" {
		t.Errorf("numbers become %q", got)
	}
}

// TestGroupMessageOfRandomValues puts failures that differ by their values alone in one group.
func TestGroupMessageOfRandomValues(t *testing.T) {
	sequential(t)
	r := rand.New(rand.NewPCG(1, 2))
	hex := func(n int) string { return fmt.Sprintf("%0*x", n, r.Uint64()>>(64-4*n)) }
	for _, form := range []string{
		"no order %s", "no order '%s'", "no order %s.", "order=%s: not found", "dial tcp %s: refused", "[%s] refused", "a %s (of 7)",
	} {
		for range 2000 {
			for _, value := range []string{
				hex(8), hex(16), "0x" + hex(8), fmt.Sprint(r.IntN(1e6)), fmt.Sprint(-r.Float64()), uuid{}.plus(r.IntN(1e9)).String(),
				hex(8) + "-" + hex(4) + "-" + hex(4) + "-" + hex(4) + "-" + hex(12), instant(r.Int64N(1e16)).zoned(),
				fmt.Sprintf("%d.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256)),
				fmt.Sprintf("1%s:%s:%s::%s", hex(3), hex(4), hex(4), hex(4)), "u" + fmt.Sprint(r.IntN(99)) + "@example.com",
				"https://" + hex(5) + ".example/" + hex(3),
			} {
				want := groupMessage(fmt.Sprintf(form, "1"))
				if got := groupMessage(fmt.Sprintf(form, value)); got != want {
					t.Fatalf("%q becomes %q; want %q", fmt.Sprintf(form, value), got, want)
				}
			}
		}
	}
}

// FuzzGroupMessage checks that a message is bounded, one line, and that none of a URL's secrets is left.
func FuzzGroupMessage(f *testing.F) {
	f.Add("Get \"https://u:secret@host/p?t=secret\": no\n at 5", "")
	f.Add(`'a 'b "c`, "\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := groupMessage(a + "http://user:hushhush@host/" + b)
		if len(got) > maxGroupMessage+len("…") || strings.ContainsAny(got, "\r\n\t") || !utf8.ValidString(got) {
			t.Errorf("%q becomes %q", a+b, got)
		}
		if strings.Contains(got, "hushhush") && !strings.Contains(a+b, "hush") {
			t.Errorf("%q becomes %q", a+b, got)
		}
	})
}

// TestFailureGroupNames pins a name: it stays the same for the life of a store, so it must not change from one version
// to the next without need.
func TestFailureGroupNames(t *testing.T) {
	c, key := failureCause{"shop", "order", "charge", "CardError", "insufficient_funds"}, testFailureKey
	if got := c.group(&key).String(); got != "f54f475355e7ad06" {
		t.Errorf("the group is called %s", got)
	}
	seen := map[failureGroup]bool{c.group(&key): true}
	for i := range key {
		another := key
		another[i] ^= 1
		if g := c.group(&another); seen[g] {
			t.Errorf("with another byte %d in the key the group is called %s as well", i, g)
		} else {
			seen[g] = true
		}
	}
	for _, other := range []failureCause{
		{"shops", "order", "charge", "CardError", "insufficient_funds"},
		{"sho", "porder", "charge", "CardError", "insufficient_funds"},
		{"shop", "order", "charg", "eCardError", "insufficient_funds"},
		{"shop", "order", "charge", "Card", "insufficient_funds"},
		{"shop", "order", "charge", "CardError", "expired"},
	} {
		if seen[other.group(&key)] {
			t.Errorf("%+v has the name of another group", other)
		}
		seen[other.group(&key)] = true
	}
	for _, name := range []string{c.group(&key).String(), "00000000000000ff"} {
		if g, ok := parseFailureGroup(name); !ok || g.String() != name {
			t.Errorf("%s is read as %s, %t", name, g, ok)
		}
	}
	for _, name := range []string{"", "f", "0000000000000000", "00000000000000fg", "00000000000000fff", "+0000000000000ff", "0000_0000_0000_f"} {
		if g, ok := parseFailureGroup(name); ok {
			t.Errorf("%q is read as %s", name, g)
		}
	}
}

// Records with valid checksums that this program would not have written: they are read or
// refused, and never cause a panic.

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
