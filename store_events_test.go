package main

// The event stream: every transition is reported once and in order, wherever a
// reader resumes, across restarts, and however slow the reader is.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
	"time"
)

// allEvents returns everything that a follower would receive now, as text.
func allEvents(t testing.TB, s *service, filter eventFilter, after uint64) string {
	t.Helper()
	s.store.mu.Lock()
	newest := s.store.seq
	s.store.mu.Unlock()
	if err := s.store.journal.wait(t.Context(), newest); err != nil { // nothing is streamed before that
		t.Fatal(err)
	}
	return eventsOf(t, s.store, filter, after)
}

func eventsOf(t testing.TB, s *store, filter eventFilter, after uint64) string {
	t.Helper()
	f := must(s.events.follow(filter, after))(t)
	var b []byte
	for more := true; more; {
		c := f.nextChunk(b)
		if b, more = c.text, c.more; c.behind {
			t.Fatal("the follower is behind")
		}
	}
	return string(b)
}

// eventTemplates have histories of many kinds.
var eventTemplates = []string{
	testTemplate("pair", stepSpec{name: "a", callable: "builtin:noop"}, stepSpec{name: "b", callable: "Outside", after: []string{"a"}}),
	testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`}),
	testTemplate("bad", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`}),
	testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":2000}`}),
	testTemplate("grows", stepSpec{kind: stepDecision, name: "route", callable: "Outside"},
		stepSpec{kind: stepBatchable, name: "split", callable: "Outside", after: []string{"route"}},
		stepSpec{kind: stepBatchWorker, name: "work", callable: "builtin:noop", after: []string{"split"}},
		stepSpec{kind: stepDeferredConvergence, name: "end", callable: "builtin:noop", after: []string{"work"}}),
}

// eventWorld returns a service whose tasks have histories of many kinds.
func eventWorld(t *testing.T, o serviceTest) *service {
	t.Helper()
	o.extra = append(o.extra, eventTemplates...)
	s := openTestService(t, o)
	moveWorld(t, s)
	return s
}

// moveWorld advances tasks of all templates of the world.
func moveWorld(t *testing.T, s *service) {
	t.Helper()
	for range 3 {
		pair := mustCreate(t, s, "pair")
		mustCreate(t, s, "flaky")
		bad := mustCreate(t, s, "bad")
		mustCreate(t, s, "slow")
		settle(s)
		s.clock.(*virtualClock).advance(3 * time.Second)
		settle(s)
		mustAct(t, s, pair, 1, completeAction)
		mustAct(t, s, bad, 0, resetAction)
		growWorld(t, s)
	}
	mustCreate(t, s, "pair")
	settle(s)
}

// growWorld lets a task decide and create instances, by actors who claim its steps.
func growWorld(t *testing.T, s *service) {
	t.Helper()
	id := mustCreate(t, s, "grows").id
	for _, result := range []string{createSteps("split"), createBatches("work", 2)} {
		for _, c := range mustClaim(t, s) {
			if c.key.task != id {
				s.engine.outside.unclaim([]claimedStep{c})
				continue
			}
			q := &leaseAnswer{verb: completeVerb, hash: hashLease(c.token), outcome: outcome{success: true, result: []byte(result)}}
			must(s.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: c.attempt.stepID}))(t)
		}
		settle(s)
	}
	if v := settled(t, s, id); v.state != taskComplete || v.def(3).name != "work_002" {
		t.Fatalf("got %s", grown(v))
	}
}

// mustClaim claims every step that can be claimed.
func mustClaim(t *testing.T, s *service) []claimedStep {
	t.Helper()
	return must(s.outside.claim(t.Context(), &claimRequest{callables: []string{"Outside"}, limit: 100, lease: time.Minute, worker: "w"}))(t)
}

// block is an event as it was sent.
type block struct {
	seq  uint64
	text string
}

func blocksOf(t testing.TB, whole string) (blocks []block) {
	t.Helper()
	for text := range strings.SplitAfterSeq(whole, "\n\n") {
		if events, _ := wire.ParseEvents(text); len(events) > 0 {
			blocks = append(blocks, block{uint64(events[0].Place(t).Seq), text})
		}
	}
	return blocks
}

// between returns the part of a stream after a sequence and up to another.
func between(blocks []block, after, upTo uint64) string {
	var b strings.Builder
	for _, e := range blocks {
		if e.seq > after && e.seq <= upTo {
			b.WriteString(e.text)
		}
	}
	return b.String()
}

// checkSuffixes resumes at every possible id: the rest of the stream must
// follow.
func checkSuffixes(t *testing.T, s *service, whole string) {
	t.Helper()
	blocks := blocksOf(t, whole)
	for id := uint64(1); id <= s.store.seq; id++ {
		f := must(s.store.events.follow(eventFilter{}, id))(t)
		if f.missed {
			continue
		}
		if got, want := allEvents(t, s, eventFilter{}, id), between(blocks, id, s.store.seq); got != want {
			t.Errorf("after %d: got\n%s\nwant\n%s", id, got, want)
		}
	}
}

func TestEventsResumeAnywhere(t *testing.T) {
	t.Parallel()
	s := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	defer closeTestService(t, s)
	whole := allEvents(t, s, eventFilter{}, 0)
	checkSuffixes(t, s, whole)
	events, last := wire.ParseEvents(whole)
	for i, e := range events {
		end := i+1 == len(events) || events[i+1].Place(t).Seq != e.Place(t).Seq
		if (e.ID != 0) != end || end && e.ID != uint64(e.Place(t).Seq) {
			t.Errorf("event %+v has id %d; want one at the end of a record alone", e.Place(t), e.ID)
		}
	}
	if last != s.store.seq {
		t.Errorf("the last id is %d; want %d", last, s.store.seq)
	}
}

// TestEventsOverARestart checks that a restart offers the same events as before
// it, with and without a compaction in between, repeatedly.
func TestEventsOverARestart(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for _, keep := range []int{100_000, 60, 7} {
		for _, compact := range []func(*testing.T, *service){
			func(*testing.T, *service) {},
			func(t *testing.T, s *service) { compactAround(t, s.store, func() {}) },
			func(t *testing.T, s *service) { compactAround(t, s.store, func() { moveWorld(t, s) }) },
		} {
			t.Run(fmt.Sprintf("keep %d", keep), func(t *testing.T) {
				o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), config: func(c *Config) { c.Events.Keep = keep }}
				s := eventWorld(t, o)
				compact(t, s)
				moveWorld(t, s)
				whole, lost := allEvents(t, s, eventFilter{}, 0), s.store.events.lost
				for range 2 {
					s = reopenTestService(t, s, o)
					again := allEvents(t, s, eventFilter{}, 0)
					if again != whole || s.store.events.lost != lost {
						t.Fatalf("after a restart: got, missing up to %d,\n%s\nwant, up to %d,\n%s", s.store.events.lost, again, lost, whole)
					}
				}
				checkSuffixes(t, s, whole)
				closeTestService(t, s)
			})
		}
	}
}

// TestEventsOfDroppedTasks checks that the transitions of dropped tasks are
// reported while the process lives. A compacted part does not contain them; after a
// restart the stream is the same from its first complete sequence on.
func TestEventsOfDroppedTasks(t *testing.T) {
	t.Parallel()
	slow(t)
	for name, compact := range map[string]func(*testing.T, *service){
		"records only":   func(*testing.T, *service) {},
		"compacted":      func(t *testing.T, s *service) { compactAround(t, s.store, func() {}) },
		"slowly":         func(t *testing.T, s *service) { compactAround(t, s.store, func() { moveWorld(t, s) }) },
		"twice":          func(t *testing.T, s *service) { mustCompact(t, s.store); moveWorld(t, s); mustCompact(t, s.store) },
		"with a restart": func(t *testing.T, s *service) { mustCompact(t, s.store); moveWorld(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), config: retaining(2)}
			s := eventWorld(t, o)
			compact(t, s)
			written := s.store.events.missing()
			moveWorld(t, s)
			whole := allEvents(t, s, eventFilter{}, 0)
			blocks := blocksOf(t, whole)
			if log := &s.store.events; log.lost != 0 || log.missing() == 0 || log.missing() >= s.store.seq {
				t.Fatalf("lost up to %d, dropped up to %d of %d", log.lost, log.missing(), s.store.seq)
			}
			for restart := range 3 {
				s = reopenTestService(t, s, o)
				lost := s.store.events.lost
				if name == "journal only" && restart < 2 && lost != 0 || lost > written && restart < 2 {
					t.Errorf("restart %d lost up to %d; want at most %d", restart, lost, written)
				}
				if again := allEvents(t, s, eventFilter{}, 0); again == "" || again != between(blocks, lost, s.store.seq) {
					t.Fatalf("restart %d: got, missing up to %d,\n%s\nwant the end of\n%s", restart, lost, again, whole)
				}
				if f, _ := s.store.events.follow(eventFilter{}, max(lost, 2)-1); f.missed != (lost > 1) {
					t.Errorf("restart %d: got missed %v before %d", restart, f.missed, lost)
				}
				if restart == 1 {
					mustCompact(t, s.store)
				}
			}
			checkSuffixes(t, s, whole)
			closeTestService(t, s)
		})
	}
}

func mustCompact(t *testing.T, s *store) {
	t.Helper()
	noError(t, s.compact())
}

// TestEventsOfACutFile checks that a file cut anywhere gives the events of the time when it was that long, with tasks
// dropped before and after.
func TestEventsOfACutFile(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for _, compacted := range []bool{false, true} {
		dir := t.TempDir()
		s := eventWorld(t, serviceTest{dir: dir, clock: newVirtualClock(testStart), config: retaining(2)})
		if compacted {
			compactAround(t, s.store, func() { moveWorld(t, s) })
		}
		moveWorld(t, s)
		whole := blocksOf(t, allEvents(t, s, eventFilter{}, 0))
		closeTestService(t, s)
		text := string(readFile(t, filepath.Join(dir, storeName)))
		head := strings.Index(text, endHead)
		head += strings.IndexByte(text[head:], '\n') + 1
		for n := head; n <= len(text); n += strings.IndexByte(text[n:]+"\n", '\n') + 1 {
			files := map[string]string{storeName: text[:n]}
			again := must(openStore(journalOptions{dir: dir, fs: memDiskWith(dir, files), log: s.log, now: s.clock.now},
				defaultKeptEvents, s.clock, s.log))(t)
			want := between(whole, again.events.lost, again.seq)
			if got := eventsOf(t, again, eventFilter{}, 0); got != want || compacted != (again.events.lost > 0) {
				t.Fatalf("compacted %v, cut after %d: missing up to %d\n%s\nwant\n%s", compacted, again.seq, again.events.lost, got, want)
			}
			again.close()
		}
	}
}

// TestEventsOfAnImportedState checks that an imported state has the events of the store that it is from, with their ids,
// in memory and on disk, and that they survive a restart.
func TestEventsOfAnImportedState(t *testing.T) {
	t.Parallel()
	from := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	text, before := exported(t, from), allEvents(t, from, eventFilter{}, 0)
	closeTestService(t, from)
	for _, dir := range []string{"", t.TempDir()} {
		o := serviceTest{dir: dir, clock: newVirtualClock(testStart), extra: eventTemplates, state: &stateSource{document: strings.NewReader(text)}}
		s := openTestService(t, o)
		moveWorld(t, s)
		whole := allEvents(t, s, eventFilter{}, 0)
		if !strings.HasPrefix(whole, before) || whole == before {
			t.Errorf("in %q: got\n%s\nwant it to begin with\n%s", dir, whole, before)
		}
		checkSuffixes(t, s, whole)
		closeTestService(t, s)
		if dir == "" {
			continue
		}
		o.state = nil
		s = openTestService(t, o)
		if again := allEvents(t, s, eventFilter{}, 0); again != whole {
			t.Errorf("after a restart: got, missing up to %d,\n%s\nwant\n%s", s.store.events.lost, again, whole)
		}
		closeTestService(t, s)
	}
}

// scene is a situation in which changes are in memory and not on disk: the callers of
// these requests did not wait for the answer. {task}, {step}, {lease} and {entry} stand for
// what the scene's task has.
type scene struct {
	name   string
	lease  bool // the task's first step is claimed
	failed bool // it has failed, and its task has a dead letter
	aside  []string
	then   []toldRequest
}

// toldRequest is a request with its status once everything is on disk.
type toldRequest struct {
	request string // METHOD path [body]
	status  int
}

const (
	toldTask = `POST /v1/tasks {"namespace":"t","name":"one","idempotency_key":"k"}`
	toldStep = `/v1/tasks/{task}/workflow_steps/{step}`
)

var scenes = []scene{
	{name: "created", aside: []string{toldTask, `key=i POST /v1/tasks {"namespace":"t","name":"two"}`}, then: []toldRequest{
		{toldTask, 409},
		{`POST /stepwell/tasks {"namespace":"t","name":"one","idempotency_key":"k"}`, 409},
		{`key=i POST /v1/tasks {"namespace":"t","name":"two"}`, 201},
		{`key=i POST /v1/tasks {"namespace":"t","name":"two"}`, 201},
		{`key=i POST /v1/tasks {"namespace":"t","name":"one"}`, 422},
		{`GET /v1/tasks`, 200}, {`GET /stepwell/tasks`, 200}, {`GET /v1/steps`, 200},
	}},
	{name: "cancelled", aside: []string{`DELETE /v1/tasks/{task}`}, then: []toldRequest{
		{`DELETE /v1/tasks/{task}`, 400}, {`DELETE /stepwell/tasks/{task}`, 409},
		{`PATCH ` + toldStep + ` ` + completeBody, 400}, {`PATCH ` + toldStep + ` ` + failBody, 400},
		{`DELETE /stepwell/tasks/{task}/workflow_steps/{step}`, 409},
		{`PATCH /stepwell/tasks/{task}/workflow_steps/{step} {"retry_limit":5}`, 409},
		{`POST /v1/steps/claim ` + anyOne, 200},
		{`GET /v1/tasks/{task}`, 200}, {`GET /v1/tasks/{task}/context`, 200}, {`GET /v1/tasks/{task}/transitions`, 200},
		{`GET /v1/tasks/{task}/explain`, 200}, {`GET /v1/tasks/{task}/workflow_steps`, 200}, {`GET ` + toldStep, 200},
		{`GET ` + toldStep + `/audit`, 200}, {`GET /v1/tasks/{task}/summary`, 200},
		{`GET /v1/tasks/{task}?wait=cancelled`, 200}, {`GET /stepwell/tasks/{task}`, 200},
		{`GET /stepwell/tasks/{task}/explain`, 200}, {`GET /stepwell/tasks/{task}/workflow_steps`, 200},
		{`GET /stepwell/tasks/{task}/workflow_steps/{step}`, 200},
	}},
	{name: "completed", aside: []string{`PATCH ` + toldStep + ` ` + completeBody}, then: []toldRequest{
		{`PATCH ` + toldStep + ` ` + completeBody, 200}, {`PATCH ` + toldStep + ` ` + resolveBody, 400},
		{`DELETE /v1/tasks/{task}`, 400},
		{`PATCH /stepwell/tasks/{task}/workflow_steps/{step} {"inputs":{}}`, 409},
	}},
	{name: "adjusted", aside: []string{`PATCH /stepwell/tasks/{task}/workflow_steps/{step} {"retry_limit":5}`}, then: []toldRequest{
		{`PATCH /stepwell/tasks/{task}/workflow_steps/{step} {"retry_limit":5}`, 200},
	}},
	{name: "failed once", aside: []string{`PATCH ` + toldStep + ` {"action_type":"fail","error":{"message":"m"},"reason":"r","failed_by":"a"}`}, then: []toldRequest{
		{`PATCH /stepwell/tasks/{task}/workflow_steps/{step} {"retry_limit":1}`, 422},
		{`PATCH ` + toldStep + ` ` + resetBody, 400}, {`GET /v1/analytics/failures`, 200},
	}},
	{name: "claimed", aside: []string{`POST /v1/steps/claim ` + anyOne}, then: []toldRequest{
		{`POST /v1/steps/claim ` + anyOne, 200}, {`PATCH ` + toldStep + ` ` + resetBody, 400},
		{`POST /v1/steps/{step}/complete {"lease":"x","result":1}`, 409},
		{`POST /v1/steps/{step}/extend {"lease":"x"}`, 409},
		{`GET /v1/steps?state=in_progress`, 200},
	}},
	{name: "answered", lease: true, aside: []string{`POST /v1/steps/{step}/complete {"lease":"{lease}","result":1}`}, then: []toldRequest{
		{`POST /v1/steps/{step}/complete {"lease":"{lease}","result":2}`, 409},
		{`POST /v1/steps/{step}/fail {"lease":"{lease}","error":{"message":"m"}}`, 409},
		{`POST /v1/steps/{step}/extend {"lease":"{lease}"}`, 409},
	}},
	{name: "extended", lease: true, aside: []string{`POST /v1/steps/{step}/extend {"lease":"{lease}","lease_seconds":60}`}, then: []toldRequest{
		{`POST /v1/steps/{step}/extend {"lease":"{lease}","lease_seconds":1}`, 200},
	}},
	{name: "investigated", failed: true, aside: []string{`PATCH /v1/dlq/entry/{entry} {"resolution_status":"cancelled"}`}, then: []toldRequest{
		{`PATCH /v1/dlq/entry/{entry} {"resolution_status":"cancelled"}`, 200},
		{`PATCH /v1/dlq/entry/{step} {"resolution_status":"cancelled"}`, 404},
		{`GET /v1/dlq`, 200}, {`GET /v1/dlq/task/{task}`, 200}, {`GET /v1/dlq/investigation-queue`, 200},
		{`GET /v1/dlq/staleness`, 200},
	}},
	{name: "dropped", aside: []string{`DELETE /v1/tasks/{task}`, `POST /v1/tasks {"namespace":"t","name":"empty"}`}, then: []toldRequest{
		{`GET /v1/tasks/{task}`, 404}, {`GET /v1/tasks/{task}?wait=terminal`, 404}, {`DELETE /v1/tasks/{task}`, 404},
		{`PATCH ` + toldStep + ` ` + resetBody, 404}, {`GET ` + toldStep, 404}, {`GET ` + toldStep + `/audit`, 404},
		{`GET /v1/events?task_uuid={task}`, 404}, {`POST /v1/steps/{step}/fail {"lease":"x","error":{"message":"m"}}`, 404},
	}},
}

// TestAnswersAreDurable expects every answer that tells of a task, also a refusal, to wait
// until what it tells is on disk.
func TestAnswersAreDurable(t *testing.T) {
	t.Parallel()
	for _, sc := range scenes {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			s := newClaimServer(t, serviceTest{dir: testDir, disk: newMemDisk(), extra: []string{testTemplate("empty")},
				config: func(c *Config) { c.Store.RetainFinishedCount = 1 }})
			sc.play(t, s)
		})
	}
}

func (sc *scene) play(t *testing.T, s *testServer) {
	task := s.create(`{"namespace":"t","name":"one"}`)
	step := path.Base(s.step(task, 0))
	words := []string{"{task}", task, "{step}", step}
	if sc.lease {
		words = append(words, "{lease}", s.claimOne(anyOne).Lease)
	}
	if sc.failed {
		s.do("PATCH", s.step(task, 0), failBody).want(200)
		words = append(words, "{entry}", s.entry(task))
	}
	fill := strings.NewReplacer(words...)
	api := newOrchestrationAPI(s.svc, nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	release := holdFlusher(t, s.svc)
	for _, request := range sc.aside {
		if a := told(t, api, gone, fill.Replace(request)); a.status != 503 {
			t.Fatalf("%s: got %d %s; want its answer to wait for the disk", request, a.status, a.body)
		}
	}
	for _, r := range sc.then {
		if a := told(t, api, gone, fill.Replace(r.request)); a.status != 503 {
			t.Errorf("%s: got %d %s before its records are on disk", r.request, a.status, a.body)
		}
	}
	release()
	for _, r := range sc.then {
		if a := told(t, api, t.Context(), fill.Replace(r.request)); a.status != r.status {
			t.Errorf("%s: got %d %s; want %d", r.request, a.status, a.body, r.status)
		}
	}
}

// told sends a request, with an Idempotency-Key if it begins with key=, to a surface. A
// caller who has gone gets 503 from whatever waits for the disk.
func told(t *testing.T, api http.Handler, caller context.Context, request string) *answer {
	t.Helper()
	key, keyed := strings.CutPrefix(request, "key=")
	if keyed {
		key, request, _ = strings.Cut(key, " ")
	}
	method, rest, _ := strings.Cut(request, " ")
	target, body, _ := strings.Cut(rest, " ")
	r := httptest.NewRequestWithContext(caller, method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if keyed {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return &answer{t, w.Code, w.Header(), w.Body.Bytes()}
}

// TestWaitShowsTheTaskAsRead checks that all that the answer to a creation that waits shows is in that of
// a later request, although one comes from the task itself and the other from its line.
func TestWaitShowsTheTaskAsRead(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	for _, name := range []string{"diamond", "empty", "echo"} {
		body := fmt.Sprintf(`{"namespace":"t","name":%q,"context":{"order_id":1},"tags":["a"]}`, name)
		waited := s.do("POST", "/v1/tasks?wait=20s", body).want(201)
		read := s.do("GET", "/v1/tasks/"+waited.text("task_uuid"), "").want(200)
		var shown map[string]json.RawMessage
		noError(t, json.Unmarshal(waited.body, &shown))
		for key, got := range shown {
			if !bytes.Contains(read.body, fmt.Appendf(nil, "%q:%s", key, got)) {
				t.Errorf("%s: %s: got %s; want what %s has", name, key, got, read.body)
			}
		}
		if len(shown) < 20 {
			t.Errorf("%s: got %d members; want at least 20", name, len(shown))
		}
	}
}

// publishing returns a template of the namespace t with one step that publishes the events.
func publishing(name, callable, config string, events ...string) string {
	return fmt.Sprintf(`{"namespace":"t","name":%q,"version":"1.0.0","identity_strategy":"always_unique","steps":[
		{"name":"pay","handler":{"callable":%q,"initialization":%s},
		 "retry":{"max_attempts":2,"backoff":"none"},"publishes_events":[%s]}]}`,
		name, callable, config, strings.Join(events, ","))
}

// published declares an event.
func published(name, members string) string {
	return fmt.Sprintf(`{"name":%q,"description":"","schema":{}%s}`, name, members)
}

// everyCondition declares an event for each condition, named after it.
func everyCondition() (all []string) {
	for _, c := range []string{"success", "failure", "retryable_failure", "permanent_failure", "always"} {
		all = append(all, published(c, fmt.Sprintf(`,"condition":%q`, c)))
	}
	return all
}

// domainView is an event as readers get it.
type domainView struct {
	ID, Type      string
	Seq           uint64
	Attempt, N    int
	Success       bool
	TaskUUID      string `json:"task_uuid"`
	DeliveryMode  string `json:"delivery_mode"`
	Publisher     *string
	Data          json.RawMessage
	CorrelationID string `json:"correlation_id"`
}

// domainOf returns the domain events that a follower would receive from a sequence on, once the service
// has settled.
func domainOf(t *testing.T, s *service, filter eventFilter, after uint64) (events []domainView) {
	t.Helper()
	settle(s)
	filter.kind = domainKind
	for line := range strings.Lines(allEvents(t, s, filter, after)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var e domainView
			noError(t, json.Unmarshal([]byte(data), &e))
			events = append(events, e)
		}
	}
	return events
}

func typesOf(events []domainView) (types []string) {
	for _, e := range events {
		types = append(types, fmt.Sprintf("%s %d", e.Type, e.Attempt))
	}
	return types
}

// TestPublishingConditions checks which attempts publish an event of each condition.
func TestPublishingConditions(t *testing.T) {
	for name, test := range map[string]struct {
		callable, config string
		want             []string
	}{
		"a success":        {"builtin:noop", "{}", []string{"success 1", "always 1"}},
		"one failure":      {"builtin:flaky", `{"failures":1}`, []string{"failure 1", "retryable_failure 1", "always 1", "success 2", "always 2"}},
		"no attempts left": {"builtin:fail", `{"retryable":true}`, []string{"failure 1", "retryable_failure 1", "always 1", "failure 2", "permanent_failure 2", "always 2"}},
		"not retryable":    {"builtin:fail", `{"retryable":false}`, []string{"failure 1", "permanent_failure 1", "always 1"}},
		"an outside actor": {"Outside", "{}", []string{"success 1", "always 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTestService(t, serviceTest{
				clock: newVirtualClock(testStart), extra: []string{publishing("pay", test.callable, test.config, everyCondition()...)},
			})
			made := mustCreate(t, s, "pay")
			settle(s)
			s.clock.(*virtualClock).advance(time.Minute)
			settle(s)
			if test.callable == "Outside" {
				complete(t, s, made)
			}
			if got := typesOf(domainOf(t, s, eventFilter{}, 0)); !slices.Equal(got, test.want) {
				t.Errorf("got %v; want %v", got, test.want)
			}
		})
	}
}

// complete completes the only step of a task as an outside actor does.
func complete(t *testing.T, s *service, made *task) {
	t.Helper()
	q := &stepRequest{action: actionComplete, by: "somebody", reason: "paid", result: []byte(`{"paid":1}`)}
	_, _, err := s.operator.act(t.Context(), made.id, made.stepID(0), q)
	noError(t, err)
}

// TestPublishedEventsSurvive checks that the durable events are the same after restarts, with
// and without a snapshot, and that fast ones are gone; and that a task which is dropped leaves
// a gap.
func TestPublishedEventsSurvive(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{publishing("pay", "builtin:echo", "{}",
		published("kept", `,"publisher":"Billing"`), published("lost", `,"delivery_mode":"fast"`),
		published("both", `,"delivery_mode":"broadcast"`))}}
	s := openTestService(t, o)
	mustCreate(t, s, "pay", `"context":{"amount":1}`)
	mustCreate(t, s, "pay", `"context":{"amount":2}`)
	before := domainOf(t, s, eventFilter{}, 0)
	if got, want := typesOf(before), []string{"kept 1", "lost 1", "both 1", "kept 1", "lost 1", "both 1"}; !slices.Equal(got, want) {
		t.Fatalf("got %v; want %v", got, want)
	}
	if e := before[3]; string(e.Data) != `{"amount":2}` || !e.Success || *e.Publisher != "Billing" || e.DeliveryMode != "durable" || e.N != 1 {
		t.Errorf("got %+v", e)
	}
	lasting := jsonOf(slices.DeleteFunc(slices.Clone(before), func(e domainView) bool { return e.Type == "lost" }))
	for range 2 {
		s = reopenTestService(t, s, o)
		if got := jsonOf(domainOf(t, s, eventFilter{}, 0)); string(got) != string(lasting) {
			t.Errorf("got %s; want %s", got, lasting)
		}
		mustCompact(t, s.store)
	}
	if got := domainOf(t, s, eventFilter{}, before[0].Seq); len(got) != 2 || got[0].ID != before[3].ID {
		t.Errorf("got %v after the first task; want what the second published", got)
	}
	if f := must(s.store.events.follow(eventFilter{kind: domainKind}, before[0].Seq))(t); f.missed {
		t.Error("a reader that has everything was told of a gap")
	}
	closeTestService(t, s)
}

// Domain events: which attempts publish which, in which order, and what a restart finds again.

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
