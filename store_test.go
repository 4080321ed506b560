package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// storyTemplates are the templates of the tasks of recovery tests.
var storyTemplates = []string{
	testTemplate("pair", stepSpec{name: "a", callable: "Outside", retry: `{"backoff_base_ms":3600000,"max_backoff_ms":3600000}`},
		stepSpec{name: "b", callable: "builtin:echo", after: []string{"a"}}),
	testTemplate("noop", stepSpec{name: "a", callable: "builtin:noop"}),
}

// tellStory creates tasks in every kind of state that survives a restart.
func tellStory(t *testing.T, s *service) {
	t.Helper()
	mustCreate(t, s, "noop")
	mustCreate(t, s, "pair", `"context":{"n":123456789012345678901234567890.50,"é":"\u20ac"}`, `"tags":["x","y"]`,
		`"priority":7`, `"initiator":"me"`, `"source_system":"here"`, `"reason":"a \"quoted\" one"`,
		`"parent_correlation_id":"0198c0de-0000-7000-8000-000000000001"`, `"requested_at":"2026-01-02T03:04:05"`,
		`"options":{"a":[1,2]}`, `"idempotency_key":"k1"`)
	mustAct(t, s, mustCreate(t, s, "pair"), 0, retryAction)
	v := mustAct(t, s, mustCreate(t, s, "pair"), 0, failAction)
	mustAct(t, s, mustAct(t, s, v, 0, resetAction), 0, completeAction)
	mustAct(t, s, mustCreate(t, s, "pair"), 0, failAction)
	must(s.operator.cancelTask(t.Context(), mustCreate(t, s, "pair").id, taskActor{subject: "someone"}))(t)
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"always", "never"} {
		t.Run(mode, func(t *testing.T) {
			o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates,
				config: func(c *Config) { c.Store.Sync = mode }}
			s := openTestService(t, o)
			tellStory(t, s)
			before := lines(s)
			closeTestService(t, s)
			s = newTestService(t, o)
			wantLines(t, "after the restart", s, before)
			if _, err := parseAndCreate(s, `{"namespace":"t","name":"pair","idempotency_key":"k1"}`); kindOf(err) != conflict {
				t.Errorf("the same key after a restart: got %v; want a conflict", err)
			}
		})
	}
}

func parseAndCreate(s *service, body string) (*task, error) {
	q, err := parseTaskRequest([]byte(body))
	if err != nil {
		return nil, err
	}
	return s.createTask(context.Background(), q, true)
}

// TestRedelivery restarts during an attempt: it is delivered again with the same number, three
// times, and then lost.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), log: io.Discard, extra: []string{
		testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":60000}`, retry: `{"max_attempts":2}`})}}
	s := openTestService(t, o)
	id := mustCreate(t, s, "slow").id
	for restart := range 4 {
		s = reopenTestService(t, s, o)
		v := settled(t, s, id)
		if restart < 3 {
			wantStates(t, v, "steps_in_process: in_progress")
			if v.steps[0].attempts != 1 || v.steps[0].redelivered != restart+1 {
				t.Fatalf("restart %d: attempt %d delivered again %d times; want attempt 1, %d times",
					restart, v.steps[0].attempts, v.steps[0].redelivered, restart+1)
			}
			continue
		}
		wantStates(t, v, "waiting_for_retry: waiting_for_retry")
		if got := string(v.steps[0].last.err); !strings.Contains(got, `"worker_lost"`) {
			t.Errorf("got %s; want worker_lost", got)
		}
	}
	closeTestService(t, s)
}

func TestIdentity(t *testing.T) {
	strict := strings.Replace(testTemplate("strict", stepSpec{name: "a", callable: "builtin:noop"}), "always_unique", "strict", 1)
	keyed := strings.Replace(testTemplate("keyed", stepSpec{name: "a", callable: "builtin:noop"}), "always_unique", "caller_provided", 1)
	s := newTestService(t, serviceTest{extra: []string{strict, keyed, testTemplate("free", stepSpec{name: "a", callable: "builtin:noop"})}})
	for _, tc := range []struct {
		body string
		want failureKind // internalFailure for none
	}{
		{`{"namespace":"t","name":"strict","context":{"a":1,"b":2}}`, internalFailure},
		{`{"namespace":"t","name":"strict","context":{"b":2,"a":1}}`, conflict},
		{`{"namespace":"t","name":"strict","context":{"a":1.0,"b":2}}`, internalFailure},
		{`{"namespace":"t","name":"strict","context":{"a":1,"b":2},"idempotency_key":"k"}`, internalFailure},
		{`{"namespace":"t","name":"strict","context":{"c":3},"idempotency_key":"k"}`, conflict},
		{`{"namespace":"t","name":"keyed"}`, badRequest},
		{`{"namespace":"t","name":"keyed","idempotency_key":"k"}`, internalFailure},
		{`{"namespace":"t","name":"keyed","idempotency_key":"k"}`, conflict},
		{`{"namespace":"t","name":"free"}`, internalFailure},
		{`{"namespace":"t","name":"free"}`, internalFailure},
		{`{"namespace":"t","name":"free","idempotency_key":"k"}`, internalFailure},
		{`{"namespace":"t","name":"free","idempotency_key":"k"}`, conflict},
	} {
		if _, err := parseAndCreate(s, tc.body); kindOf(err) != tc.want || (err == nil) != (tc.want == internalFailure) {
			t.Errorf("%s: got %v; want kind %d", tc.body, err, tc.want)
		}
	}
}

// TestDamageIsNamed flips a byte in the middle of the file.
func TestDamageIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := serviceTest{dir: dir, clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	tellStory(t, s)
	closeTestService(t, s)
	name := dir + "/" + storeName
	data := readFile(t, name)
	at := bytes.Index(data, []byte(`"kind":"created"`)) + 9
	data[at] ^= 1
	writeFile(t, name, data)
	_, err := openStore(journalOptions{dir: dir, log: s.log, now: s.clock.now}, defaultKeptEvents, s.clock, s.log)
	if err == nil {
		t.Fatal("a damaged store was opened")
	}
	for _, word := range []string{"store.jsonl", "line 5", "head -n 4 "} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("got %q; want it to name %q", err, word)
		}
	}
}

func TestUnfitRecordsAreRefused(t *testing.T) {
	for _, text := range []string{
		`[]`, `{"seq":1}`, `{"seq":1,"kind":"nonsense"}`, `{"seq":1,"kind":"started"}`, `{"seq":1,"kind":"ended"}`,
		`{"seq":1,"kind":"created"}`, `{"seq":1,"kind":"template","hash":"x"}`, `{"seq":1,"kind":"due","step":0,"novelty":1}`,
		`{"seq":"1","kind":"due","step":0}`, `{"seq":1,"kind":"due","step":0,"task":"x"}`,
		`{"seq":1,"kind":"created","template":"h","identity":"zz"}`,
	} {
		if r, err := decodeRecord([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, r)
		}
	}
}

// TestValuesOfOtherKindsAreRefused changes one value of a valid record to another kind: a state
// document must not introduce values that clients cannot read.
func TestValuesOfOtherKindsAreRefused(t *testing.T) {
	const (
		created = `{"seq":1,"kind":"created","template":"h","context":{},"options":{}}`
		ended   = `{"seq":1,"kind":"ended","step":0,"ok":false,"retry_at":5,"error":{"message":"m","error_type":"t",` +
			`"retryable":true,"status_code":7,"context":{}},"metadata":{}}`
		success = `{"seq":1,"kind":"ended","step":0,"metadata":{}}`
		updated = `{"seq":1,"kind":"investigated","dlq":{"entry":1,"metadata":{}}}`
	)
	for _, tc := range []struct{ good, old, bad string }{
		{created, `"context":{}`, `"context":%s`}, {created, `"options":{}`, `"options":%s`},
		{updated, `"metadata":{}`, `"metadata":%s`}, {success, `"metadata":{}`, `"metadata":%s`},
		{ended, `"metadata":{}`, `"metadata":%s`}, {ended, `"error":{`, `"error":%s,"x":{`},
		{ended, `"message":"m"`, `"message":%s`}, {ended, `"error_type":"t"`, `"error_type":%s`},
		{ended, `"retryable":true`, `"retryable":%s`}, {ended, `"status_code":7`, `"status_code":%s`},
		{ended, `"context":{}`, `"context":%s`},
	} {
		for _, value := range []string{"null", "5", "1.5", `"x"`, "[]", "{}", "true", "-1"} {
			text := strings.Replace(tc.good, tc.old, fmt.Sprintf(tc.bad, value), 1)
			kind := jsonKind([]byte(tc.old[strings.IndexByte(tc.old, ':')+1:]))
			fits := jsonKind([]byte(value)) == kind && value != "1.5" && value != "-1" && tc.old != `"error":{` ||
				value == "null" && kind == '0'
			if _, err := decodeRecord([]byte(text)); (err == nil) != fits {
				t.Errorf("%s: got error %v", text, err)
			}
		}
	}
	for _, text := range []string{
		strings.Replace(ended, `"ok":false,`, "", 1), strings.Replace(ended, `"retryable":true,`, "", 1),
		strings.Replace(success, `"metadata":{}`, `"retry_at":5`, 1), strings.Replace(success, `"metadata":{}`, `"ok":false`, 1),
		strings.Replace(success, `"metadata":{}`, `"ok":7`, 1),
	} {
		if r, err := decodeRecord([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, r)
		}
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	s := openTestService(t, serviceTest{dir: t.TempDir(), extra: storyTemplates})
	closeTestService(t, s)
	_, err := s.store.update(func(c *change) error { return errors.New("decide was asked") })
	if kindOf(err) != unavailable {
		t.Errorf("got %v; want unavailable", err)
	}
}

// TestReadersSeeNoChange checks that a view does not change while the task does.
func TestReadersSeeNoChange(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates})
	v := mustCreate(t, s, "pair")
	before := states(v) + string(v.log)
	mustAct(t, s, v, 0, completeAction)
	if after := states(v) + string(v.log); after != before {
		t.Errorf("the view became %s; want %s", after, before)
	}
}

// TestIDsGoOnAfterARestart restarts with a clock that stopped or was set back: no id is used
// twice, in whatever order the tasks entered the store.
func TestIDsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	tpl, _ := s.templates.registry().get("t", "pair", "")
	ids := []uuid{s.ids.reserve(4), s.ids.reserve(4)}
	for i := range ids { // the other way round, as when two callers race
		id := ids[len(ids)-1-i]
		must(s.store.update(func(c *change) error {
			_, err := c.create(&record{kind: recCreated, task: id, created: &creation{template: tpl.hash, context: []byte("{}"), initiator: "api", source: "stepwell"}}, tpl)
			return err
		}))(t)
	}
	greatest := ids[1].plus(3).String()
	for _, start := range []instant{testStart, testStart, testStart.add(-time.Hour)} {
		closeTestService(t, s)
		o.clock = newVirtualClock(start)
		s = openTestService(t, o)
		if got := s.ids.reserve(1).String(); got <= greatest {
			t.Errorf("after a restart at %s: got id %s; want one after %s", start.zoned(), got, greatest)
		}
		last := mustCreate(t, s, "pair")
		greatest = max(last.stepID(1).String(), last.by.correlation.String())
	}
	closeTestService(t, s)
}

// TestCompactionAfterALoneTemplate restarts from a compacted part whose newest record is not about a
// task, as after a crash between a new template and its first task.
func TestCompactionAfterALoneTemplate(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	mustCreate(t, s, "noop")
	tpl, _ := s.templates.registry().get("t", "pair", "")
	if _, err := s.store.update(func(c *change) error {
		c.write(&record{kind: recTemplate, hash: tpl.hash, definition: tpl.json})
		s.store.templates.keep(tpl)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	noError(t, s.store.compact())
	closeTestService(t, s)
	s = newTestService(t, o)
	mustAct(t, s, mustCreate(t, s, "pair"), 0, completeAction)
}

// TestDropsFlippedBytes changes each byte of the file, or each seventh: it is refused with its line, or only the last
// write is lost.
func TestDropsFlippedBytes(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	text := droppingStore(t)
	rest := text
	for rest[strings.LastIndexByte(rest[:len(rest)-1], '\n')+1:] != "" && strings.Contains(rest[strings.LastIndexByte(rest[:len(rest)-1], '\n')+1:], recordWrite) {
		rest = rest[:strings.LastIndexByte(rest[:len(rest)-1], '\n')+1]
	}
	rest = rest[:strings.LastIndexByte(rest[:len(rest)-1], '\n')+1] // without the last write
	want := must(reopened(t, text))(t)
	least := must(reopened(t, rest))(t)
	for i := 0; i < len(text); i += size(7, 1) {
		b := []byte(text)
		b[i] ^= 1
		got, err := reopened(t, string(b))
		if err == nil && !slices.Equal(got, want) && !(i >= len(rest) && slices.Equal(got, least)) && i < len(rest) {
			t.Fatalf("byte %d: the store keeps %v; want %v", i, got, want)
		}
		if err != nil && !strings.Contains(err.Error(), "store.jsonl, line ") {
			t.Fatalf("byte %d: got %v; want it to name the line", i, err)
		}
	}
}

// TestDropsKillPoints stops the machine at each operation of a store that drops tasks, before,
// during and after compactions. The store keeps the state after the last acknowledged creation,
// or after a part of the next one.
func TestDropsKillPoints(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		disk := newMemDisk()
		disk.dieAt = at
		states, err := dropUntilDeath(t, disk)
		for _, keep := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
			name := fmt.Sprintf("killed at operation %d, %v kept", at, keep)
			got, err := reopened(t, disk.crash(keep[0], keep[1], nil).files()[storeName])
			if err != nil {
				t.Fatalf("%s: a start is refused: %v", name, err)
			}
			if !slices.ContainsFunc(states, func(s []uuid) bool { return slices.Equal(s, got) }) {
				t.Fatalf("%s: the store keeps %v; want one of %v", name, got, states)
			}
		}
		if err == nil {
			if at < 30 {
				t.Errorf("the scenario took %d operations; want more", at)
			}
			return
		}
	}
}

// dropUntilDeath creates tasks, of which two are kept, and compacts. It returns the
// tasks that may be kept after the first error.
func dropUntilDeath(t *testing.T, disk *memDisk) (states [][]uuid, err error) {
	t.Helper()
	c := newVirtualClock(testStart)
	s, err := openStore(diskOptions(disk), defaultKeptEvents, c, diskOptions(disk).log)
	if err != nil {
		return [][]uuid{nil}, err
	}
	s.retain.keepUpTo(limits{count: 2}, &quota{most: 1 << 30})
	ids, tpl := newIDSource(c, &[32]byte{}), mustParseTemplate(t, storyTemplates[1])
	states = [][]uuid{nil}
	for i := range 12 {
		before := kept(&service{store: s})
		id := ids.reserve(tpl.ids())
		states = [][]uuid{before, append(slices.Clone(before), id)}
		if err := createEnded(t, s, id, tpl); err != nil {
			states = append(states, kept(&service{store: s}))
			return states, err
		}
		states = [][]uuid{kept(&service{store: s})}
		if i%4 != 3 {
			continue
		}
		if err := s.compact(); err != nil {
			return states, err
		}
	}
	return states, s.close()
}

// createEnded creates a task that ends at once, and waits until it is durable.
func createEnded(t *testing.T, s *store, id uuid, tpl *template) error {
	t.Helper()
	seq, err := s.update(func(c *change) error {
		by := &creation{template: tpl.hash, context: []byte("{}")}
		task, err := c.create(&record{kind: recCreated, task: id, created: by}, tpl)
		if err != nil {
			return err
		}
		return c.append(task, &record{kind: recRan, step: 0, startedAt: c.now, end: &ending{success: true}})
	})
	if err != nil {
		return err
	}
	return s.journal.wait(t.Context(), seq)
}

// TestRetentionOnAClockThatGoesBack checks that an age limit drops nothing early if the clock
// is set back, and that the limit on the count still applies.
func TestRetentionOnAClockThatGoesBack(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates, log: io.Discard,
		config: func(c *Config) { c.Store.RetainFinishedCount, c.Store.RetainFinishedAgeHours = 2, 1 }}
	s := openTestService(t, o)
	first := mustCreate(t, s, "noop").id
	closeTestService(t, s)
	clock := newVirtualClock(testStart.add(-3 * time.Hour))
	o.clock = clock
	s = newTestService(t, o)
	second := mustCreate(t, s, "noop").id
	clock.advance(30 * time.Minute)
	wantKept(t, s, first, second)
	third := mustCreate(t, s, "noop").id
	if n := len(kept(s)); n != 2 {
		t.Errorf("%d tasks are kept; want 2", n)
	}
	if !slices.Contains(kept(s), third) {
		t.Error("the newest task was dropped")
	}
	clock.advance(5 * time.Hour)
	wantKept(t, s)
}

// TestViewAfterIsDurable expects the answer to a change to wait also for what happened to its
// task since then.
func TestViewAfterIsDurable(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{dir: testDir, disk: newMemDisk(), extra: claimTemplates})
	holdFlusher(t, s)
	id := createAside(t, s, "one")
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.store.viewAfter(gone, &task{taskHeader: taskHeader{id: id}}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want the answer to wait for the disk", err)
	}
}

// TestLargeTemplateOnAFullDisk uses a template of more bytes than are reserved for a change, on
// a disk that has no more: it is refused, and everything else continues.
func TestLargeTemplateOnAFullDisk(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	for _, plain := range []bool{false, true} {
		disk := newMemDisk()
		disk.plain = plain
		large := testTemplate("large", stepSpec{name: "a", callable: "Outside",
			config: `{"pad":"` + strings.Repeat("x", 20<<20) + `"}`})
		s := newTestServer(t, serviceTest{dir: testDir, disk: disk, log: io.Discard, extra: append(claimTemplates, large)})
		s.create(`{"namespace":"t","name":"one"}`)
		disk.setCapacity(disk.used() + 1<<20)
		for range 2 {
			a := s.do("POST", "/v1/tasks", `{"namespace":"t","name":"large"}`).want(503)
			if !strings.Contains(a.text("error.message"), "no space left") || a.header.Get("Retry-After") == "" {
				t.Errorf("plain=%v: got %s; want no space, and when to try again", plain, a.body)
			}
			s.create(`{"namespace":"t","name":"two"}`)
		}
		disk.setCapacity(disk.used() + 64<<20)
		s.create(`{"namespace":"t","name":"large"}`)
		if st := s.svc.store.status(); !st.writable {
			t.Errorf("plain=%v: got the store read-only: %s", plain, st.reason)
		}
	}
}

// TestWithheldEvents checks that an event whose payload does not fit its schema is not published,
// is notified of, and does not change the outcome; also after a restart.
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
		v := must(s.history.audit(bad.id, 0, nil))(t)[0]
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

// TestContextEvents checks that an event of a failure carries the context of the error if its schema fits that alone, also
// after a restart.
func TestContextEvents(t *testing.T) {
	typed := `{"name":"refused","condition":"failure","description":"","schema":{"type":"object","required":["code"],"properties":{"code":{"type":"integer"}}}}`
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{
		publishing("charge", "Outside", "{}", typed, published("failed", `,"condition":"failure"`))}}
	s := openTestService(t, o)
	for _, context := range [][]byte{[]byte(`{"code":7}`), []byte(`{"code":"7"}`), []byte(`{"message":"m"}`), nil} {
		id := mustCreate(t, s, "charge").id
		given := must(s.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Hour}))(t)[0]
		if given.attempt.taskID != id {
			t.Fatalf("claimed a step of %s", given.attempt.taskID)
		}
		q := &leaseAnswer{verb: failVerb, outcome: outcome{err: &stepError{message: "no", errorType: "e", context: context}}}
		q.setLease(given.token)
		_, err := s.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: given.attempt.stepID})
		noError(t, err)
	}
	for range 2 {
		var refused []string
		for _, e := range domainOf(t, s, eventFilter{}, 0) {
			if e.Type == "refused" {
				refused = append(refused, string(e.Data))
			} else if !strings.Contains(string(e.Data), `"message":"no"`) {
				t.Errorf("the event without a schema has %s", e.Data)
			}
		}
		if !slices.Equal(refused, []string{`{"code":7}`}) {
			t.Errorf("got %q; want the context that fits", refused)
		}
		s = reopenTestService(t, s, o)
	}
	closeTestService(t, s)
}

// kept returns the ids of a store's tasks in the order of creation.
func kept(s *service) (ids []uuid) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for _, sl := range s.store.tasks.slots {
		if sl != nil {
			ids = append(ids, sl.id)
		}
	}
	return ids
}
