package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
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

// TestRetentionByAge checks that tasks that finished too long ago are dropped
// by the clock alone, without any change.
func TestRetentionByAge(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: storyTemplates, config: func(c *Config) {
		c.Store.RetainFinishedCount, c.Store.RetainFinishedAgeHours = 0, 2
	}})
	ended := func() uuid { return settled(t, s, mustCreate(t, s, "noop").id).id } // before the clock moves
	waiting, first := mustCreate(t, s, "pair").id, ended()
	clock.advance(time.Hour)
	second := ended()
	clock.advance(time.Hour - time.Microsecond)
	wantKept(t, s, waiting, first, second)
	clock.advance(time.Microsecond)
	wantKept(t, s, waiting, second)
	clock.advance(48 * time.Hour)
	wantKept(t, s, waiting)
	third := ended()
	clock.advance(3 * time.Hour)
	wantKept(t, s, waiting)
	if _, err := s.store.view(third); kindOf(err) != taskMissing {
		t.Errorf("a dropped task: got %v; want not found", err)
	}
}

// TestRetentionFreesIdentity checks that a dropped task can be created again.
func TestRetentionFreesIdentity(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(1)}
	s := openTestService(t, o)
	body := `{"namespace":"t","name":"noop","idempotency_key":"k"}`
	for range 3 {
		v := must(parseAndCreate(s, body))(t)
		if _, err := parseAndCreate(s, body); kindOf(err) != conflict {
			t.Errorf("while it is kept: got %v; want a conflict", err)
		}
		last := mustCreate(t, s, "noop")
		if _, err := s.store.view(v.id); kindOf(err) != taskMissing {
			t.Errorf("the task before the last: got %v; want not found", err)
		}
		s = reopenTestService(t, s, o)
		wantKept(t, s, last.id)
	}
	closeTestService(t, s)
}

// TestLoadedLinesShareMemory loads lines one by one, as an import does: each takes little more than itself.
func TestLoadedLinesShareMemory(t *testing.T) {
	slowAndSequential(t)
	const count = 200
	svc := newTestService(t, serviceTest{extra: storyTemplates})
	l := &restorer{s: newStore(svc.clock, slog.New(slog.DiscardHandler)), seq: maxStateCount}
	for range count {
		mustCreate(t, svc, "noop")
	}
	var lines [][]byte
	for _, sl := range svc.store.tasks.slots {
		lines = append(lines, sl.line())
	}
	for _, tpl := range svc.store.templates.byHash {
		l.s.templates.keep(tpl)
	}
	before := liveHeap()
	for _, line := range lines {
		noError(t, l.taskLine(line))
	}
	if took := (liveHeap() - before) * 1e6 / count; took > 8<<10 {
		t.Errorf("each of %d lines takes %.0f bytes; want at most %d", count, took, 8<<10)
	}
	runtime.KeepAlive(l)
}

// TestReadStoreTakesNoChanges reads the files of a store and ends a walk over its tasks, as an
// export does: a change is refused at once and asks the disk for nothing.
func TestReadStoreTakesNoChanges(t *testing.T) {
	dir := t.TempDir()
	closeTestService(t, openTestService(t, serviceTest{dir: dir}))
	s := readTestStore(t, dir)
	_, err := s.update(func(*change) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got error %v; want a store that is closed", err)
	}
}

// storedTaskLines returns the lines of tasks in many states, without their sums.
func storedTaskLines(t *testing.T) (lines [][]byte) {
	t.Helper()
	s := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	defer closeTestService(t, s)
	for line := range bytes.Lines([]byte(exported(t, s))) {
		if bytes.HasPrefix(line, []byte(taskHead)) {
			lines = append(lines, cutSum(line))
		}
	}
	if len(lines) < 10 {
		t.Fatalf("got %d lines of tasks", len(lines))
	}
	return lines
}

// checkShort checks that a log comes back from its short form.
func checkShort(t *testing.T, log []byte) (short shortLog) {
	t.Helper()
	var room []byte
	short = shortenIn(&room, log)
	if got := short.text(); !bytes.Equal(got, log) {
		t.Fatalf("got %s; want %s", got, log)
	}
	return short
}

// TestShortLogs shortens logs of tasks, and logs that no task has.
func TestShortLogs(t *testing.T) {
	if len(logWords) > 0x20 || logWords[0].text != recordHead {
		t.Errorf("got %d words; want 32 at most, with %s as the first", len(logWords), recordHead)
	}
	for _, line := range storedTaskLines(t) {
		l := must(readTaskLine(line))(t)
		if short := checkShort(t, l.log); l.counts == [stepStates]int{stepComplete: 4} && 2*len(short) > len(l.log) {
			t.Errorf("got %d bytes for %d: %s", len(short), len(l.log), l.log)
		}
	}
	const id, head = `01a206b4-ab5b-7576-be95-471a2111fe97`, `{"seq":1`
	for _, log := range []string{
		``, `{`, head, head + `","correlation":"` + id, head + `","correlation":"` + strings.ToUpper(id),
		head + `","correlation":"` + strings.ReplaceAll(id, "-", "") + `"}`, head + "\x00",
		head + `,"at":007,"at":0,"at":-1,"at":12345678901234567890`, `{"seq":007`, `{"seq":18446744073709551615`,
		head + `,"lease":"` + strings.Repeat("A0", 16) + `,"lease":"` + strings.Repeat("a0", 16) + `,"lease":"x`,
		head + `,"at":999999999999999999,"at":5,"at":1.5,"at":1e9,"at":`,
		head + strings.Repeat("ü,{}\"", maxShortened),
	} {
		checkShort(t, []byte(log))
	}
}

// TestShortLogsOfAnyText shortens logs whose bytes were changed at random.
func TestShortLogsOfAnyText(t *testing.T) {
	lines, r := storedTaskLines(t), rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		log := slices.Clone(must(readTaskLine(lines[r.IntN(len(lines))]))(t).log)
		for range 1 + r.IntN(4) {
			at := r.IntN(len(log))
			switch r.IntN(3) {
			case 0:
				log[at] = byte(r.IntN(256))
			case 1:
				log = slices.Delete(log, at, min(at+r.IntN(9), len(log)))
			default:
				log = slices.Insert(log, at, []byte(logWords[r.IntN(len(logWords))].text)...)
			}
		}
		checkShort(t, log)
	}
}
