package main

// Tests of creating tasks: reading requests, repeated requests, and waiting for
// tasks.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// createTask creates a task and returns it once it is durable.
func (s *service) createTask(ctx context.Context, q *taskRequest, mayRead bool) (*task, error) {
	done, err := s.tasks.submit(ctx, &submission{taskRequest: q, mayRead: mayRead})
	if err != nil {
		return nil, err
	}
	return done.task, nil
}

// FuzzRequests reads any JSON as a creation payload and as a step action. Both
// accept it or say why not, and an accepted one can be journaled and read back.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		`{"name":"n","namespace":null,"context":{"a":[1.50]},"tags":["x","\u00e9"],"priority":1e400}`,
		`{"name":"n","priority":-12345678901234567890,"correlation_id":"0198c0de-0000-7000-8000-000000000001",` +
			`"requested_at":"2026-01-02T03:04:05.123456789","options":{},"idempotency_key":"k","version":""}`,
		`{"action_type":"reset_for_retry","reason":"r","reset_by":"b"}`,
		`{"action_type":"complete_manually","completion_data":{"result":null,"metadata":{"a":1}},"reason":"r","completed_by":"b"}`,
		`{"action_type":"fail","error":{"message":"m","error_type":null,"retryable":false},"reason":"r","failed_by":"b"}`,
		`{"action_type":"resolve_manually","reason":5}`, `[]`, `null`, ` {"name" : "n" } `,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if checkJSON(body) != nil {
			return
		}
		if q, err := parseTaskRequest(body); acceptable(t, err) {
			checkCreationRoundTrip(t, q)
		}
		if q, err := parseStepRequest(body); acceptable(t, err) {
			checkActionRoundTrip(t, q)
		}
	})
}

// acceptable reports whether a body was accepted. A refusal must say why.
func acceptable(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return true
	}
	f, ok := err.(*failure)
	if !ok || f.kind != badRequest && (f.kind != invalidFields || len(f.details) == 0) || !utf8.ValidString(f.message) {
		t.Errorf("refused by %#v", err)
	}
	return false
}

func checkCreationRoundTrip(t *testing.T, q *taskRequest) {
	t.Helper()
	by := &creation{template: "h", context: q.context, initiator: cmp.Or(q.initiator, defaultInitiator),
		source: cmp.Or(q.source, defaultSource), reason: cmp.Or(q.reason, defaultReason), tags: q.tags,
		priority: q.priority, correlation: q.correlation, parentCorrelation: q.parent, requested: q.requested,
		options: q.options, key: q.key}
	if by.context == nil {
		by.context = []byte("{}")
	}
	if q.name == "" || q.namespace == "" || max(q.priority, -q.priority) > priorityLimit {
		t.Errorf("accepted %+v", q)
	}
	checkRoundTrip(t, &record{kind: recCreated, step: -1, created: by})
}

func checkActionRoundTrip(t *testing.T, q *stepRequest) {
	t.Helper()
	r := &record{kind: recOperator, action: q.action, by: q.by, reason: q.reason}
	switch q.action {
	case noAction:
		t.Errorf("accepted %+v", q)
	case actionComplete:
		r.end = &ending{success: true, result: q.result, metadata: q.completionMetadata()}
	case actionFail:
		r.end = &ending{err: q.err.appendJSON(nil)}
	}
	checkRoundTrip(t, r)
}

// checkRoundTrip writes a record, reads it and writes it again.
func checkRoundTrip(t *testing.T, r *record) {
	t.Helper()
	text := append(appendRecordMembers([]byte{'{'}, r), '}')
	if err := checkJSON(text); err != nil || !json.Valid(text) {
		t.Fatalf("%s is not JSON: %v", text, err)
	}
	again, err := decodeRecord(text)
	if err != nil {
		t.Fatalf("%s is refused: %v", text, err)
	}
	if got := append(appendRecordMembers([]byte{'{'}, again), '}'); string(got) != string(text) {
		t.Errorf("got %s; want %s", got, text)
	}
}

// Tests of the Idempotency-Key header.

// checkRequestIndex compares the index of repeated requests with the tasks.
func checkRequestIndex(t testing.TB, s *store) {
	t.Helper()
	again := newRequestIndex()
	again.requestLimits = s.requests.requestLimits
	for i, sl := range s.slots {
		if sl.live == nil && sl.line == nil {
			continue // it was dropped
		}
		task, err := sl.task(s)
		if err != nil {
			t.Errorf("the task at %d cannot be read: %v", i, err)
			continue
		}
		again.insert(task.by.request, task.id, task.created)
	}
	again.forget(s.clock.now())
	s.requests.forget(s.clock.now())
	ages := slices.DeleteFunc(slices.Clone(s.requests.ages), func(a agedRequest) bool {
		return s.requests.tasks[a.key] != a.task // of a task that was dropped
	})
	if !maps.Equal(again.tasks, s.requests.tasks) || !slices.Equal(again.ages, ages) {
		t.Errorf("the index of requests is %v, %v; want %v, %v", s.requests.tasks, ages, again.tasks, again.ages)
	}
}

// task returns the task in a slot, whether live or thawed.
func (sl slot) task(s *store) (*task, error) {
	if sl.live != nil {
		return sl.live, nil
	}
	return s.readTaskLine(sl.line.text())
}

// keyed sends a creation with an Idempotency-Key.
func keyed(t *testing.T, s *testServer, path, body string, keys ...string) *answer {
	t.Helper()
	req := must(http.NewRequest("POST", s.url+path, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header["Idempotency-Key"] = keys
	return send(t, req)
}

func send(t *testing.T, req *http.Request) *answer {
	t.Helper()
	resp := must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	var b bytes.Buffer
	must(b.ReadFrom(resp.Body))(t)
	return &answer{t, resp.StatusCode, resp.Header, b.Bytes()}
}

const manualTask = `{"namespace":"t","name":"manual"}`

func TestIdempotencyKeyForm(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	for _, keys := range [][]string{
		{""}, {" "}, {"a b"}, {"a\tb"}, {"\u00e4"}, {"\xff"}, {strings.Repeat("k", 256)}, {"a", "a"}, {"a", "b"},
	} {
		a := keyed(t, s, "/v1/tasks", manualTask, keys...).want(400)
		if !strings.Contains(a.text("error.message"), "Idempotency-Key") {
			t.Errorf("%q: got %s; want the header's name", keys, a.body)
		}
	}
	for _, key := range []string{"!", "~", `"quoted"`, strings.Repeat("k", 255)} {
		keyed(t, s, "/v1/tasks", manualTask, key).want(201)
	}
}

// submitKeyed creates a task under a key, from a template of the namespace t.
func submitKeyed(ctx context.Context, s *service, subject, key, body string) (*submitted, error) {
	q, err := parseTaskRequest([]byte(body))
	if err != nil {
		return nil, err
	}
	return s.tasks.submit(ctx, &submission{taskRequest: q, request: markFor(subject, key, body)})
}

// markFor returns the mark of a creation.
func markFor(subject, key, body string) (m requestMark) {
	m.key = hashOf([]byte(subject), []byte("/v1/tasks"), []byte(key))
	m.body = hashOf(canonicalJSON(nil, []byte(body)))
	return m
}

// mustReplay fails the test unless a submission under the key returns the task,
// replayed as expected.
func mustReplay(t *testing.T, s *service, key string, want uuid, replayed bool) uuid {
	t.Helper()
	done := must(submitKeyed(t.Context(), s, "", key, manualTask))(t)
	if done.replayed != replayed || replayed && done.task.id != want {
		t.Errorf("key %s: got task %s, replayed %t; want %s, %t", key, done.task.id, done.replayed, want, replayed)
	}
	return done.task.id
}

// TestIdempotencyKeysSurviveRestarts restarts with keys in the journal and in the
// snapshot, of live and of ended tasks.
func TestIdempotencyKeysSurviveRestarts(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), templates: "testdata/templates", clock: clock}
	s := openTestService(t, o)
	ids := map[string]uuid{}
	for _, key := range []string{"old", "older"} {
		ids[key] = mustReplay(t, s, key, uuid{}, false)
		clock.advance(time.Hour)
	}
	must(s.operator.cancelTask(t.Context(), ids["old"], taskActor{}))(t)
	noError(t, s.store.snapshot())
	ids["new"] = mustReplay(t, s, "new", uuid{}, false)
	for range 3 {
		s = reopenTestService(t, s, o)
		for key, id := range ids {
			mustReplay(t, s, key, id, true)
		}
		if _, err := submitKeyed(t.Context(), s, "", "new", `{"namespace":"t","name":"diamond"}`); kindOf(err) != invalidFields {
			t.Errorf("another body after a restart: got %v; want it refused", err)
		}
		noError(t, s.store.snapshot())
	}
	closeTestService(t, s)
}

// TestIdempotencyKeysExpire expects keys to be remembered for exactly 24 hours,
// also across a restart.
func TestIdempotencyKeysExpire(t *testing.T) {
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), templates: "testdata/templates", clock: clock}
	s := openTestService(t, o)
	first := mustReplay(t, s, "a", uuid{}, false)
	clock.advance(time.Hour)
	other := mustReplay(t, s, "b", uuid{}, false)
	clock.advance(23*time.Hour - time.Microsecond)
	mustReplay(t, s, "a", first, true) // does not prolong it
	clock.advance(time.Microsecond)
	second := mustReplay(t, s, "a", uuid{}, false)
	if second == first {
		t.Fatalf("got task %s again", first)
	}
	mustReplay(t, s, "b", other, true)
	closeTestService(t, s)
	s = newTestService(t, o)
	mustReplay(t, s, "a", second, true)
	mustReplay(t, s, "b", other, true)
	clock.advance(24 * time.Hour)
	mustReplay(t, s, "b", uuid{}, false)
	if n := len(s.store.requests.ages); n != 1 {
		t.Errorf("got %d keys; want the new one alone", n)
	}
}

// TestIdempotencyKeysOfDroppedTasks repeats requests whose tasks retention dropped, after
// everything that may happen to a store in between.
func TestIdempotencyKeysOfDroppedTasks(t *testing.T) {
	t.Parallel()
	const body = `{"namespace":"t","name":"diamond"}`
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), templates: "testdata/templates", clock: clock, config: func(c *Config) {
		c.Store.RetainFinishedCount, c.Requests.KeepHours, c.Requests.KeepCount = 1, 48, 3
	}}
	open := func() *testServer {
		svc := openTestService(t, o)
		return (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	}
	s := open()
	ids := map[string]string{}
	for _, key := range []string{"evicted", "a", "b", "c", "kept"} {
		ids[key] = keyed(t, s, "/v1/tasks", body, key).want(201).text("task_uuid")
	}
	check := func(when string) {
		t.Helper()
		for _, key := range []string{"a", "b", "c"} {
			for _, query := range []string{"", "?wait=1s"} {
				a := keyed(t, s, "/v1/tasks"+query, body, key).want(410)
				if a.text("error.code") != "TASK_DROPPED" || a.text("error.task_uuid") != ids[key] ||
					!strings.Contains(a.text("error.message"), ids[key]) || a.header.Get("Location") != "" {
					t.Errorf("%s: got %v %s; want task %s told as dropped", when, a.header, a.body, ids[key])
				}
			}
			keyed(t, s, "/v1/tasks", manualTask, key).want(422)
		}
		if got := keyed(t, s, "/v1/tasks", body, "kept").want(201).text("task_uuid"); got != ids["kept"] {
			t.Errorf("%s: got task %s; want %s", when, got, ids["kept"])
		}
		metrics := readMetrics(string(s.do("GET", "/metrics", "").body)).families
		if got := fmt.Sprint(metrics["stepwell_idempotency_keys"].samples); got !=
			"map[stepwell_idempotency_keys[[task dropped]]:3 stepwell_idempotency_keys[[task kept]]:1]" {
			t.Errorf("%s: the metrics show %s", when, got)
		}
	}
	check("at first")
	evicted := readMetrics(string(s.do("GET", "/metrics", "").body)).families["stepwell_idempotency_keys_evicted_total"]
	if got := evicted.samples["stepwell_idempotency_keys_evicted_total[]"]; got != 1 {
		t.Errorf("%v keys were forgotten early; want 1", got)
	}
	for _, step := range []struct {
		when string
		do   func()
	}{
		{"after a restart", func() { closeTestService(t, s.svc) }},
		{"from a snapshot", func() { noError(t, s.svc.store.snapshot()); closeTestService(t, s.svc) }},
		{"from a snapshot of a snapshot", func() { noError(t, s.svc.store.snapshot()); closeTestService(t, s.svc) }},
		{"after a crash", func() {
			crashed := filepath.Join(t.TempDir(), "data")
			noError(t, os.CopyFS(crashed, os.DirFS(o.dir)))
			closeTestService(t, s.svc)
			o.dir = crashed
		}},
		{"from a state document", func() {
			text := exported(t, s.svc)
			closeTestService(t, s.svc)
			o.dir, o.state = t.TempDir(), &stateSource{document: strings.NewReader(text)}
		}},
	} {
		step.do()
		s = open()
		o.state = nil
		check(step.when)
	}
	clock.advance(48*time.Hour - time.Microsecond)
	check("just before their time is over")
	clock.advance(time.Microsecond)
	if got := keyed(t, s, "/v1/tasks", body, "a").want(201); got.header.Get("Idempotency-Replayed") != "" || got.text("task_uuid") == ids["a"] {
		t.Errorf("got %v %s after its time; want a new task", got.header, got.body)
	}
	a := keyed(t, s, "/stepwell/tasks", body, "m").want(201).text("id")
	s.create(body)
	m := keyed(t, s, "/stepwell/tasks", body, "m").want(410)
	if m.text("error.type") != "TaskDropped" || m.text("error.code") != "TASK_DROPPED" || m.text("error.task_id") != a {
		t.Errorf("got %s at the mount point; want task %s told as dropped", m.body, a)
	}
	closeTestService(t, s.svc)
}

func TestIdempotencyScope(t *testing.T) {
	s := newTestService(t, serviceTest{templates: "testdata/templates"})
	seen := map[uuid]bool{}
	for _, subject := range []string{"", "anna", "bert"} {
		for _, key := range []string{"k", "K"} {
			done := must(submitKeyed(t.Context(), s, subject, key, manualTask))(t)
			if done.replayed || seen[done.task.id] {
				t.Errorf("%q of %q: got task %s again; want a new one", key, subject, done.task.id)
			}
			seen[done.task.id] = true
		}
	}
}

// TestIdempotencyInFlight repeats a request while the first one waits: the
// repetition is refused until the first is answered, and a replay afterwards.
func TestIdempotencyInFlight(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	ctx, cancel := context.WithCancel(t.Context())
	q := must(parseTaskRequest([]byte(manualTask)))(t)
	answered := make(chan error)
	go func() {
		_, err := s.svc.tasks.submit(ctx, &submission{
			taskRequest: q, request: markFor("", "k", manualTask), waits: true, limit: time.Hour})
		answered <- err
	}()
	awaitWaiters(t, s.svc, 1)
	a := keyed(t, s, "/v1/tasks", manualTask, "k").want(409)
	if a.header.Get("Retry-After") != "1" || a.text("error.code") != "CONFLICT" {
		t.Errorf("got %v %s; want a conflict with Retry-After", a.header, a.body)
	}
	keyed(t, s, "/v1/tasks", `{"namespace":"t","name":"diamond"}`, "k").want(422)
	keyed(t, s, "/v1/tasks", manualTask, "other").want(201)
	cancel() // the client goes away
	if err := <-answered; err != context.Canceled {
		t.Errorf("got %v; want the cancellation", err)
	}
	if got := keyed(t, s, "/v1/tasks", manualTask, "k").want(201).header.Get("Idempotency-Replayed"); got != "true" {
		t.Errorf("got Idempotency-Replayed %q; want true", got)
	}
	s.svc.store.mu.Lock()
	defer s.svc.store.mu.Unlock()
	if n := len(s.svc.store.requests.flights); n > 0 {
		t.Errorf("%d requests are still being answered; want none", n)
	}
}

// TestFlightOfAnotherWorld ends a request that began before a reset. A later
// request with the same key must stay in flight.
func TestFlightOfAnotherWorld(t *testing.T) {
	s := newTestService(t, serviceTest{})
	m := markFor("", "k", manualTask)
	_, before := must2(s.store.beginRequest(m))(t)
	s.store.requests = newRequestIndex()
	_, after := must2(s.store.beginRequest(m))(t)
	s.store.endRequest(before)
	if _, _, err := s.store.beginRequest(m); kindOf(err) != conflict {
		t.Errorf("got %v while the second request is in flight; want a conflict", err)
	}
	s.store.endRequest(after)
	if _, _, err := s.store.beginRequest(m); err != nil {
		t.Errorf("got %v once nothing is in flight", err)
	}
}

// TestRequestIndexOfDroppedTasks expects the entries of dropped tasks to take no more room
// than their number allows, and all entries to leave after their time.
func TestRequestIndexOfDroppedTasks(t *testing.T) {
	const kept = 100
	x, memory := newRequestIndex(), int64(0)
	x.limit(requestLimits{24 * time.Hour, 2 * kept}, testStart)
	x.resize = func(by int64) { memory += by }
	mark := func(i int) requestMark { return requestMark{key: hashOf(fmt.Append(nil, i))} }
	for i := range 100 * kept {
		x.insert(mark(i), uuid{}.plus(i+1), testStart.add(time.Duration(i)*time.Millisecond))
		if old := i - kept; old >= 0 {
			x.drop(mark(old), uuid{}.plus(old+1), testStart.add(time.Duration(old)*time.Millisecond))
		}
	}
	if n := len(x.ages); len(x.tasks) != kept || n > 2*kept+agesFloor {
		t.Errorf("%d keys take %d entries", len(x.tasks), n)
	}
	if len(x.dropped) != 2*kept || len(x.order) != 2*kept || x.evicted != 97*kept || memory != 2*kept*droppedRequestBytes {
		t.Errorf("%d keys of dropped tasks take %d entries and %d bytes, %d were forgotten early", len(x.dropped),
			len(x.order), memory, x.evicted)
	}
	x.forget(testStart.add(25 * time.Hour))
	if len(x.tasks)+len(x.ages)+len(x.dropped)+len(x.order) != 0 || memory != 0 {
		t.Errorf("%d, %d and %d keys are left after their day, with %d bytes; want none", len(x.tasks), len(x.ages),
			len(x.dropped), memory)
	}
}

// TestIdempotencyRace sends the same request many times at once.
func TestIdempotencyRace(t *testing.T) {
	s := newTestService(t, serviceTest{templates: "testdata/templates"})
	for round := range 20 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		ids, created := map[uuid]bool{}, 0
		for range 16 {
			wg.Go(func() {
				done, err := submitKeyed(t.Context(), s, "", fmt.Sprint(round), manualTask)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					if kindOf(err) != conflict {
						t.Errorf("got %v; want a task or a conflict", err)
					}
					return
				}
				ids[done.task.id] = true
				if !done.replayed {
					created++
				}
			})
		}
		wg.Wait()
		if len(ids) != 1 || created != 1 {
			t.Fatalf("got %d tasks, %d of them created; want one of each", len(ids), created)
		}
	}
}

// TestIdempotencyFailures expects failed requests not to be remembered.
func TestIdempotencyFailures(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates",
		config: func(c *Config) { c.Tasks.MaxContextBytes = 100 }})
	large := fmt.Sprintf(`{"namespace":"t","name":"manual","context":{"a":%q}}`, strings.Repeat("x", 100))
	for _, tt := range []struct {
		body string
		want int
	}{
		{`{"namespace":"t","name":"manul"}`, 404},
		{`{"namespace":"t","name":"manual","priority":"high"}`, 422},
		{`{"namespace":"t"`, 400},
		{`{"namespace":"t","name":"keyed"}`, 400},
		{large, 413},
	} {
		keyed(t, s, "/v1/tasks", tt.body, "k").want(tt.want)
	}
	if got := keyed(t, s, "/v1/tasks", manualTask, "k").want(201).header.Get("Idempotency-Replayed"); got != "" {
		t.Errorf("got Idempotency-Replayed %q; want none", got)
	}
}

// markBy returns the mark of a request by a caller.
func markBy(t *testing.T, sc *securityContext, route, key, body string) requestMark {
	t.Helper()
	r := httptest.NewRequest("POST", "/", nil)
	r = r.WithContext(withSecurity(t.Context(), sc))
	r.Header.Set("Idempotency-Key", key)
	return must(requestMarkOf(r, route, []byte(body)))(t)
}

// TestRequestMarksOfCallers expects callers to share their marks only if their
// credentials say that they are the same.
func TestRequestMarksOfCallers(t *testing.T) {
	t.Parallel()
	keys := authKeys()
	jwks := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey), rsaWebKey("b", &keys.rsa2.PublicKey)))
	who := newKeyServer(t, `{"subject":"ci","permissions":[]}`)
	local := newKeySetBench(t, jwks, func(c *authConfig) {
		for i, description := range []string{"ci", "ci", "", ""} {
			c.APIKeys = append(c.APIKeys, apiKeyConfig{fmt.Sprint("the-key-of-caller-", i), []string{"tasks:*"}, description})
		}
		c.APIKeysEnabled = true
	})
	foreign := newKeySetBench(t, jwks, func(c *authConfig) { c.JWTIssuer = "other" })
	forward := newAuthBench(t, func(c *authConfig) { c.JWTPublicKey, c.AuthenticatorURL = "", who.URL })
	token := func(kid string, key any, claims string) string {
		return "Authorization: Bearer " + signedText(t, "RS256", key, fmt.Sprintf(`{"alg":"RS256","kid":%q}`, kid), claims)
	}
	known := map[requestMark]string{}
	for _, tt := range []struct {
		name, like string // like: an earlier one that is the same caller
		b          *authBench
		line       string
	}{
		{"an API key", "", local, "X-API-Key: the-key-of-caller-0"},
		{"the same key", "an API key", local, "X-API-Key: the-key-of-caller-0"},
		{"another with its description", "", local, "X-API-Key: the-key-of-caller-1"},
		{"one without a description", "", local, "X-API-Key: the-key-of-caller-2"},
		{"another without", "", local, "X-API-Key: the-key-of-caller-3"},
		{"a token with that subject", "", local, token("a", keys.rsa, goodClaims(""))},
		{"its renewal", "a token with that subject", local, token("a", keys.rsa, goodClaims(`,"jti":"2"`))},
		{"its renewal by a rotated key", "a token with that subject", local, token("b", keys.rsa2, goodClaims(""))},
		{"another subject", "", local, token("a", keys.rsa, claimsWith("sub", `"deploy"`))},
		{"no subject", "", local, token("a", keys.rsa, claimsWith("sub", ""))},
		{"no subject, another key", "", local, token("b", keys.rsa2, claimsWith("sub", ""))},
		{"another issuer", "", foreign, token("a", keys.rsa, claimsWith("iss", `"other"`))},
		{"the authenticator's caller", "", forward, "Cookie: a=b"},
		{"the same with another cookie", "the authenticator's caller", forward, "Cookie: c=d"},
	} {
		sc, f := tt.b.ask(tt.line)
		if f != nil {
			t.Fatalf("%s: %+v", tt.name, f)
		}
		m := markBy(t, sc, "/v1/tasks", "k", `{}`)
		if known[m] != tt.like {
			t.Errorf("%s: got the mark of %q; want that of %q", tt.name, known[m], tt.like)
		}
		if tt.like == "" {
			known[m] = tt.name
		}
	}
	// Without authentication all callers are one, as in stores of older versions.
	if got := markBy(t, unrestricted(), "/v1/tasks", "k", `{}`); got != markFor("", "k", `{}`) || known[got] != "" {
		t.Errorf("authentication off: got %v; want the mark without a caller", got)
	}
	// Marks that an older version stored for a subject alone belong to nobody.
	if name, ok := known[markFor("ci", "k", `{}`)]; ok {
		t.Errorf("%s: got the mark of every caller with its subject", name)
	}
}

// TestRequestMarks expects the mark to depend on caller, route, key and body, and
// on nothing else.
func TestRequestMarks(t *testing.T) {
	mark := func(subject, route, key, body string) requestMark {
		t.Helper()
		return markBy(t, &securityContext{subject: subject, method: authByAPIKey}, route, key, body)
	}
	first := mark("anna", "/v1/tasks", "k", `{"a":1,"b":"x"}`)
	for _, tt := range []struct {
		subject, route, key, body string
		sameKey, sameBody         bool
	}{
		{"anna", "/v1/tasks", "k", `{ "b":"\u0078", "a":1 }`, true, true},
		{"anna", "/v1/tasks", "k", `{"a":2,"b":"x"}`, true, false},
		{"anna", "/v1/tasks", "k", `{"a":"1","b":"x"}`, true, false},
		{"anna", "/v1/tasks", "k2", `{"a":1,"b":"x"}`, false, true},
		{"anna", "/tasks", "k", `{"a":1,"b":"x"}`, false, true},
		{"bert", "/v1/tasks", "k", `{"a":1,"b":"x"}`, false, true},
		{"", "anna/v1/tasks", "k", `{"a":1,"b":"x"}`, false, true},
	} {
		m := mark(tt.subject, tt.route, tt.key, tt.body)
		if (m.key == first.key) != tt.sameKey || (m.body == first.body) != tt.sameBody {
			t.Errorf("%+v: got the same key %t, the same body %t", tt, m.key == first.key, m.body == first.body)
		}
		r := &record{kind: recCreated, created: &creation{template: "h", request: m}}
		again, err := decodeRecord(append(appendRecordMembers([]byte{'{'}, r), '}'))
		if err != nil || again.created.request != m {
			t.Errorf("%+v: got %+v back, %v; want %v", tt, again, err, m)
		}
	}
}

// TestRequestIndexMemory measures the memory of a key, without that of its task.
func TestRequestIndexMemory(t *testing.T) {
	slow(t)
	const many, most = 100_000, 150
	x := newRequestIndex()
	before := heapBytes()
	for i := range many {
		x.insert(requestMark{key: hashOf(fmt.Append(nil, i))}, uuid{}.plus(i+1), testStart)
	}
	each := (heapBytes() - before) / many
	t.Logf("%d bytes a key", each)
	if each > most {
		t.Errorf("a key takes %d bytes; want at most %d", each, most)
	}
	for i := range many {
		x.drop(requestMark{key: hashOf(fmt.Append(nil, i))}, uuid{}.plus(i+1), testStart)
	}
	x.limit(requestLimits{age: time.Hour}, testStart)
	each = (heapBytes() - before) / many
	t.Logf("%d bytes a key of a dropped task", each)
	if each > droppedRequestBytes*5/4 {
		t.Errorf("a key of a dropped task takes %d bytes; want about %d", each, droppedRequestBytes)
	}
	x.forget(testStart.add(time.Hour))
	if len(x.tasks)+len(x.ages)+len(x.dropped)+len(x.order) != 0 {
		t.Errorf("%d, %d and %d keys are left; want none", len(x.tasks), len(x.ages), len(x.dropped))
	}
}

// Tests of waiting: a wait notices its state whenever it begins, and leaves nothing behind
// however it ends.

// awaitWaiters waits until there are n waiters.
func awaitWaiters(t *testing.T, s *service, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " waiters"), func() bool { return waiting(s) == n })
}

func waiting(s *service) int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.waiters.count
}

// wantNobody fails the test if a waiter is left.
func wantNobody(t *testing.T, s *service) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if w := &s.store.waiters; w.count != 0 || len(w.tasks) != 0 {
		t.Errorf("%d waiters for %d tasks are left", w.count, len(w.tasks))
	}
}

// awaitedMove is a transition of a task, and how to cause it.
type awaitedMove struct {
	name     string
	template string
	before   []stepRequest // actions on the first step, before the move
	do       func(t *testing.T, s *service, v *task)
	passes   []string // states that it passes through
	to       string
}

func acting(q stepRequest) func(*testing.T, *service, *task) {
	return func(t *testing.T, s *service, v *task) { mustAct(t, s, v, 0, q) }
}

func cancelling(t *testing.T, s *service, v *task) {
	if _, err := s.operator.cancelTask(t.Context(), v.id, taskActor{}); err != nil {
		t.Error(err)
	}
}

func passing(d time.Duration) func(*testing.T, *service, *task) {
	return func(_ *testing.T, s *service, _ *task) { s.clock.(*virtualClock).advance(d) }
}

var moves = []awaitedMove{
	{"an actor completes the last step", "one", nil, acting(completeAction), []string{"evaluating_results"}, "complete"},
	{"an actor completes a step", "two", nil, acting(completeAction),
		[]string{"evaluating_results", "enqueuing_steps"}, "steps_in_process"},
	{"a step fails for good", "one", nil, acting(failAction), []string{"evaluating_results"}, "blocked_by_failures"},
	{"a step fails for now", "one", nil, acting(retryAction), []string{"evaluating_results"}, "waiting_for_retry"},
	{"a retry is due", "one", []stepRequest{retryAction}, passing(time.Hour),
		[]string{"evaluating_results", "enqueuing_steps"}, "steps_in_process"},
	{"a failed step is reset", "one", []stepRequest{failAction}, acting(resetAction),
		[]string{"evaluating_results", "enqueuing_steps"}, "steps_in_process"},
	{"a failed step is resolved", "one", []stepRequest{failAction}, acting(resolveAction),
		[]string{"evaluating_results"}, "complete"},
	{"the task is cancelled", "one", nil, cancelling, nil, "cancelled"},
	{"a blocked task is cancelled", "one", []stepRequest{failAction}, cancelling, nil, "cancelled"},
	{"the task is found stale", "stale", nil, passing(time.Hour), nil, "error"},
}

func (m *awaitedMove) service(t *testing.T) (*service, *task) {
	t.Helper()
	outside := stepSpec{name: "a", callable: "Outside", retry: `{"backoff_base_ms":60000}`}
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("one", outside),
		testTemplate("two", outside, stepSpec{name: "b", callable: "Outside", after: []string{"a"}}),
		withLifecycle(testTemplate("stale", outside), `{"staleness_action":"error"}`),
	}})
	v := mustCreate(t, s, m.template)
	for _, q := range m.before {
		v = mustAct(t, s, v, 0, q)
	}
	return s, v
}

// stateOf returns the states that a word of the API means.
func stateOf(t *testing.T, word string) stateSet {
	t.Helper()
	if word == "terminal" {
		return terminalStates
	}
	s, ok := parseTaskState(word)
	if !ok {
		t.Fatalf("no state %s", word)
	}
	return setOf(s)
}

// words returns the states to wait for that the move reaches.
func (m *awaitedMove) words() []string {
	s, _ := parseTaskState(m.to)
	if terminalStates.has(s) {
		return []string{m.to, "terminal"}
	}
	return []string{m.to}
}

// TestWaitBefore begins to wait before each transition, for the state that it leads to and
// those that it passes through.
func TestWaitBefore(t *testing.T) {
	t.Parallel()
	for _, m := range moves {
		for _, word := range append(m.words(), m.passes...) {
			t.Run(m.name+"/"+word, func(t *testing.T) {
				s, v := m.service(t)
				if v.state.String() == word || word == "terminal" && terminalStates.has(v.state) {
					t.Skip("it holds already")
				}
				n := must(s.store.await(v.id, stateOf(t, word)))(t)
				if n.finished() {
					t.Fatal("the waiter was released before the transition")
				}
				m.do(t, s, v)
				wantTold(t, s, n, m.to)
				wantNobody(t, s)
			})
		}
	}
}

// wantTold fails the test unless the waiter is done and found the state.
func wantTold(t *testing.T, s *service, n *waiter, state string) {
	t.Helper()
	got, end := must2(s.tasks.waitOut(t.Context(), n, 0))(t)
	if end != waitReached || got.state.String() != state {
		t.Errorf("got %s, %q; want %s", got.state, end, state)
	}
}

// TestWaitAfter begins to wait after the transition, and again.
func TestWaitAfter(t *testing.T) {
	t.Parallel()
	for _, m := range moves {
		for _, word := range m.words() {
			t.Run(m.name+"/"+word, func(t *testing.T) {
				s, v := m.service(t)
				m.do(t, s, v)
				for range 2 {
					n := must(s.store.await(v.id, stateOf(t, word)))(t)
					wantTold(t, s, n, m.to)
				}
				wantNobody(t, s)
			})
		}
	}
}

// TestWaitWhile runs waits and the transition at the same time.
func TestWaitWhile(t *testing.T) {
	t.Parallel()
	for _, m := range moves {
		for _, word := range m.words() {
			t.Run(m.name+"/"+word, func(t *testing.T) {
				s, v := m.service(t)
				var wg sync.WaitGroup
				s.store.mu.Lock()
				for range 8 {
					wg.Go(func() {
						got, end, err := s.tasks.await(t.Context(), v.id, stateOf(t, word), time.Hour)
						if err != nil || end != waitReached || !stateOf(t, word).has(got.state) {
							t.Errorf("got %v, %q, %v; want %s", got, end, err, word)
						}
					})
				}
				wg.Go(func() { m.do(t, s, v) })
				s.store.mu.Unlock()
				wg.Wait()
				wantNobody(t, s)
			})
		}
	}
}

// TestWaiters tests the registry of waiters alone, with every pair of states.
func TestWaiters(t *testing.T) {
	id := uuid{1}
	for to := range taskStates {
		for wanted := range taskStates {
			var w waiters
			n := w.join(id, setOf(wanted), taskStates)
			w.moved(uuid{2}, wanted)
			if w.hasNews(uuid{2}) {
				t.Fatal("another task's transition is due")
			}
			w.moved(id, to)
			due := w.hasNews(id)
			if due {
				w.notify(id, slot{})
			}
			switch {
			case to == wanted && (!n.finished() || n.end != waitReached):
				t.Errorf("in %s: got %t, %q; want it released", to, n.finished(), n.end)
			case to != wanted && to.final() && (!n.finished() || n.end != waitEnded):
				t.Errorf("for %s in %s: got %t, %q; want it ended", wanted, to, n.finished(), n.end)
			case to != wanted && !to.final() && (n.finished() || due || w.count != 1):
				t.Errorf("for %s in %s: it was released; want it to wait", wanted, to)
			}
			if n.finished() && (w.count != 0 || len(w.tasks) != 0) {
				t.Errorf("%d waiters are left", w.count)
			}
		}
	}
}

// TestWaitersOfOneTask releases some waiters of a task and keeps others.
func TestWaitersOfOneTask(t *testing.T) {
	var w waiters
	id := uuid{1}
	var all []*waiter
	for i := range 12 {
		all = append(all, w.join(id, setOf(taskState(i%3)), taskStates))
	}
	w.withdraw(all[4], waitTimedOut, slot{})
	w.withdraw(all[4], waitShutdown, slot{}) // no more than once
	w.moved(id, 0)
	if !w.hasNews(id) {
		t.Fatal("no waiter was released")
	}
	w.notify(id, slot{})
	w.withdraw(all[11], waitTimedOut, slot{})
	for i, n := range all {
		want := i%3 == 0 || i == 4 || i == 11
		if n.finished() != want {
			t.Errorf("waiter %d: released %t; want %t", i, n.finished(), want)
		}
	}
	if all[4].end != waitTimedOut || w.count != 6 {
		t.Errorf("got %q, %d left; want a timeout and 6", all[4].end, w.count)
	}
	w.releaseAll(waitReset)
	if all[1].end != waitReset || all[0].end != waitReached || w.count != 0 || w.tasks != nil {
		t.Errorf("got %q, %q and %d left; want all released", all[1].end, all[0].end, w.count)
	}
}

// TestWaitOfOneThatEndsOtherwise expects a wait to end once its state cannot be
// reached any more.
func TestWaitOfOneThatEndsOtherwise(t *testing.T) {
	m := moves[0]
	s, v := m.service(t)
	n := must(s.store.await(v.id, setOf(taskError)))(t)
	m.do(t, s, v)
	got, end, err := s.tasks.waitOut(t.Context(), n, time.Hour)
	if err != nil || end != waitEnded || got.state != taskComplete {
		t.Errorf("got %v, %q, %v; want it complete and ended", got, end, err)
	}
	got, end, err = s.tasks.await(t.Context(), v.id, setOf(taskError), time.Hour)
	if err != nil || end != waitEnded || got.state != taskComplete {
		t.Errorf("afterwards: got %v, %q, %v; want it complete and ended", got, end, err)
	}
}

// TestWaitOfADroppedTask expects a wait to end when its task is dropped.
func TestWaitOfADroppedTask(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, config: retaining(1), extra: append(storyTemplates, staleErrorTemplate())})
	v := mustCreate(t, s, "stale")
	clock.advance(15 * time.Minute)
	n, err := s.store.await(v.id, setOf(taskComplete))
	if err != nil || n.finished() {
		t.Fatalf("got %v, released %t; want to wait for what an operator may bring about", err, n.finished())
	}
	mustCreate(t, s, "noop")
	if !n.finished() {
		t.Fatal("it is waited for still after it was dropped")
	}
	got, end, err := s.tasks.waitOut(t.Context(), n, time.Hour)
	if err != nil || end != waitEnded || got.state != taskError {
		t.Errorf("got %v, %q; want the task in error, as it was dropped", err, end)
	}
	wantNobody(t, s)
}

// TestWaitLimit waits on real time, whatever the service's clock does.
func TestWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := moves[0].service(t)
		began := time.Now()
		got, end, err := s.tasks.await(t.Context(), v.id, terminalStates, 10*time.Second)
		if err != nil || end != waitTimedOut || got.state != taskStepsInProcess {
			t.Errorf("got %v, %q, %v; want a timeout", got, end, err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %s; want 10 s", took)
		}
		wantNobody(t, s)
	})
}

// TestWaitOfAClientThatIsGone expects a wait to end with its request.
func TestWaitOfAClientThatIsGone(t *testing.T) {
	s, v := moves[0].service(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := s.tasks.await(ctx, v.id, terminalStates, time.Hour)
		ended <- err
	}()
	awaitWaiters(t, s, 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want the cancellation", err)
	}
	wantNobody(t, s)
}

// TestWaitAtShutdown checks that a wait is answered with the current state when the shutdown
// begins, and a later one at once.
func TestWaitAtShutdown(t *testing.T) {
	s, v := moves[0].service(t)
	ended := make(chan waitEnd)
	go func() {
		got, end, err := s.tasks.await(t.Context(), v.id, terminalStates, time.Hour)
		if err != nil || got.state != taskStepsInProcess {
			t.Errorf("got %v, %v; want the task as it is", got, err)
		}
		ended <- end
	}()
	awaitWaiters(t, s, 1)
	s.finish(t.Context())
	if end := <-ended; end != waitShutdown {
		t.Errorf("got %q; want shutdown", end)
	}
	if _, end, err := s.tasks.await(t.Context(), v.id, terminalStates, time.Hour); err != nil || end != waitShutdown {
		t.Errorf("a later wait: got %q, %v; want shutdown", end, err)
	}
	if _, end, err := s.tasks.await(t.Context(), v.id, setOf(taskStepsInProcess), 0); err != nil || end != waitReached {
		t.Errorf("a later wait for what is: got %q, %v; want it reached", end, err)
	}
	wantNobody(t, s)
}

// TestWaitIsDurable expects a waiter to be answered only once the end is on disk.
func TestWaitIsDurable(t *testing.T) {
	s := newTestService(t, serviceTest{dir: t.TempDir(),
		extra: []string{testTemplate("one", stepSpec{name: "a", callable: "Outside"})}})
	v := mustCreate(t, s, "one")
	n := must(s.store.await(v.id, terminalStates))(t)
	release := holdFlusher(t, s)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.operator.cancelTask(gone, v.id, taskActor{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want the cancellation to be under way", err)
	}
	if !n.finished() {
		t.Fatal("the waiter was not released")
	}
	if _, _, err := s.tasks.waitOut(gone, n, time.Hour); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want an answer to wait for the disk", err)
	}
	release()
	got, end, err := s.tasks.waitOut(t.Context(), n, time.Hour)
	if err != nil || end != waitReached || got.state != taskCancelled {
		t.Fatalf("got %v, %q, %v; want it cancelled", got, end, err)
	}
	if durable := s.store.journal.durable(); durable < got.lastSeq {
		t.Errorf("released by record %d with %d on disk", got.lastSeq, durable)
	}
}

// TestWaitOutlivesDeadlines waits longer than the server's deadlines.
func TestWaitOutlivesDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := testTemplate("one", stepSpec{name: "a", callable: "Outside"})
		p := newPipedServer(t, serviceTest{extra: []string{one}})
		v := mustCreate(t, p.svc, "one")
		const body = `{"namespace":"t","name":"one"}`
		for _, request := range []string{
			"GET /v1/tasks/" + v.id.String() + "?wait=terminal&timeout=10m HTTP/1.1\r\nHost: localhost\r\n\r\n",
			fmt.Sprintf("POST /v1/tasks?wait=10m HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\n\r\n%s", len(body), body),
		} {
			a := p.answerOn(p.dial(request))
			if a.header.Get("X-Stepwell-Wait") != "timeout" || a.text("status") != "steps_in_process" {
				t.Errorf("%s: got %d %v %s; want a timeout", request, a.status, a.header, a.body)
			}
		}
	})
}

// TestWaitOfALostConnection expects no waiter to be left when connections break.
func TestWaitOfALostConnection(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	id := s.create(manualTask)
	for _, request := range []string{
		"GET /v1/tasks/" + id + "?wait=terminal&timeout=1h HTTP/1.1\r\nHost: localhost\r\n\r\n",
		fmt.Sprintf("POST /v1/tasks?wait=1h HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Idempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s", len(manualTask), manualTask),
	} {
		c := must(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(t)
		w := bufio.NewWriter(c)
		w.WriteString(request)
		noError(t, w.Flush())
		awaitWaiters(t, s.svc, 1)
		c.Close()
		awaitWaiters(t, s.svc, 0)
		wantNobody(t, s.svc)
	}
	eventually(t, "the request with the key to end", func() bool {
		return keyed(t, s, "/v1/tasks", manualTask, "k").status == 201
	})
}

// TestManyWaiters releases 10,000 waiters, spread unevenly over a hundred tasks,
// in each possible way.
func TestManyWaiters(t *testing.T) {
	t.Parallel()
	slow(t)
	const many = 10_000
	m := moves[0]
	s, one := m.service(t)
	ids := []uuid{one.id}
	for range 99 {
		ids = append(ids, mustCreate(t, s, "one").id)
	}
	for _, tc := range []struct {
		name    string
		release func(cancel func())
		end     waitEnd
		err     error
	}{
		{"their clients go", func(cancel func()) { cancel() }, "", context.Canceled},
		{"a reset", func(func()) { s.store.locked(func() { s.store.waiters.releaseAll(waitReset) }) }, waitReset, nil},
		{"their tasks end", func(func()) {
			for _, id := range ids {
				if _, err := s.operator.cancelTask(t.Context(), id, taskActor{}); err != nil {
					t.Error(err)
				}
			}
		}, waitReached, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			for i := range many {
				n := must(s.store.await(ids[i*i%len(ids)], terminalStates))(t)
				wg.Go(func() {
					if _, end, err := s.tasks.waitOut(ctx, n, time.Hour); end != tc.end || !errors.Is(err, tc.err) {
						t.Errorf("got %q, %v; want %q, %v", end, err, tc.end, tc.err)
					}
				})
			}
			if n := waiting(s); n != many {
				t.Errorf("%d wait; want %d", n, many)
			}
			tc.release(cancel)
			wg.Wait()
			wantNobody(t, s)
		})
	}
}

// TestWaiterMemory measures the memory of a waiter, without that of its request.
func TestWaiterMemory(t *testing.T) {
	const many, most = 10_000, 400
	var w waiters
	kept := make([]*waiter, many)
	before := heapBytes()
	for i := range kept {
		kept[i] = w.join(uuid{}.plus(i+1), terminalStates, taskStepsInProcess)
	}
	each := (heapBytes() - before) / many
	t.Logf("%d bytes a waiter", each)
	if each > most {
		t.Errorf("a waiter takes %d bytes; want at most %d", each, most)
	}
	runtime.KeepAlive(kept)
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestTransitionsWithoutWaiters expects transitions of tasks without waiters to
// allocate nothing.
func TestTransitionsWithoutWaiters(t *testing.T) {
	var w waiters
	for _, others := range []int{0, 1} {
		for i := range others {
			w.join(uuid{9}.plus(i), terminalStates, taskPending)
		}
		if n := testing.AllocsPerRun(100, func() {
			w.moved(uuid{1}, taskComplete)
			if w.hasNews(uuid{1}) {
				t.Error("a waiter was released")
			}
		}); n != 0 {
			t.Errorf("with %d waiters for others: got %v allocations; want none", others, n)
		}
	}
}

// TestWaitStress creates, awaits, changes and cancels tasks at the same time.
// Every wait must end.
func TestWaitStress(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{dir: t.TempDir(), config: func(c *Config) { c.Store.Sync = "never" }, extra: []string{
		testTemplate("one", stepSpec{name: "a", callable: "Outside"}),
		testTemplate("quick", stepSpec{name: "a", callable: "builtin:noop"},
			stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}),
		testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":1}`}),
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`}),
	}})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 60 {
				name := []string{"one", "quick", "slow", "fails"}[(worker+i)%4]
				stressOne(t, s, name, i)
			}
		})
	}
	wg.Wait()
	wantNobody(t, s)
}

// stressOne creates a task, waits for it in three ways, and ends it unless it has
// ended.
func stressOne(t *testing.T, s *service, name string, i int) {
	body := fmt.Sprintf(`{"namespace":"t","name":%q}`, name)
	q, err := parseTaskRequest([]byte(body))
	if err != nil {
		t.Error(err)
		return
	}
	if name != "one" && i%2 == 0 { // its creator waits
		done, err := s.tasks.submit(t.Context(), &submission{taskRequest: q, waits: true, limit: time.Minute})
		if err != nil || done.end != waitReached || !terminalStates.has(done.task.state) {
			t.Errorf("%s: got %+v, %v; want its end", name, done, err)
		}
		return
	}
	made, err := s.createTask(t.Context(), q, true)
	if err != nil {
		t.Error(err)
		return
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			got, end, err := s.tasks.await(t.Context(), made.id, terminalStates, time.Minute)
			if err != nil || end != waitReached || !terminalStates.has(got.state) {
				t.Errorf("%s: got %v, %q, %v; want its end", name, got, end, err)
			}
		})
	}
	wg.Go(func() { // times out at once, or sees the end
		if _, _, err := s.tasks.await(t.Context(), made.id, terminalStates, 0); err != nil {
			t.Error(err)
		}
	})
	if name == "one" {
		if _, err := s.operator.cancelTask(t.Context(), made.id, taskActor{}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

// TestAddedTemplate expects an added template on both roles at once, until the
// reset.
func TestAddedTemplate(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	worker := httptest.NewServer(&s.world.gates.worker)
	t.Cleanup(worker.Close)
	w := &testServer{t: t, url: worker.URL}
	text := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: `{"add":1}`})
	a := s.do("POST", "/_stepwell/templates", text).want(201)
	path := a.header.Get("Location")
	if path != "/v1/templates/t/late/1.0.0" {
		t.Errorf("it is at %q", path)
	}
	w.do("GET", path, "").want(200)
	first := s.create(`{"namespace":"t","name":"late"}`)
	other := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: `{"add":2}`})
	s.do("POST", "/_stepwell/templates", other).want(200)
	second := s.create(`{"namespace":"t","name":"late"}`)
	if got := s.story(first) + s.story(second); !strings.Contains(got, "deliveries: 1complete") || !strings.HasSuffix(got, " 2") {
		t.Errorf("got %s; want each task by the template of its time", got)
	}
	s.do("POST", "/_stepwell/reset", "").want(204)
	s.do("GET", path, "").want(404)
	w.do("GET", path, "").want(404)
}

// TestRefusedTemplates expects every problem to be named and nothing to be added.
func TestRefusedTemplates(t *testing.T) {
	s := newFixtureServer(t, serviceTest{config: func(c *Config) {
		c.Fixture.AllowTargets = []string{"handlers.test", "2001:db8::1"}
		c.Worker.Handlers = map[string]string{"http://mapped.example/*": "builtin:noop", "exec:mapped": "builtin:noop"}
		c.Worker.AllowExec = true
	}})
	for callable, status := range map[string]int{
		"http://127.0.0.1:9/x": 201, "http://[::1]/": 201, "https://localhost/": 201, "HTTP://a.localhost./": 201,
		"http://handlers.test:9/": 201, "http://HANDLERS.test./": 201, "http://[2001:db8::1]:80/": 201, "charge": 201,
		"http://mapped.example/x": 201,
		"http://example.com/":     422, "http://127.0.0.1.example.com/": 422, "http://localhost@example.com/": 422,
		"http://2130706433/": 422, "http://0.0.0.0/": 422, "http://169.254.169.254/": 422, "http://x.handlers.test/": 422,
		"exec:sh": 422, "exec:mapped": 422, "builtin:nope": 422, "http://": 422,
	} {
		a := s.do("POST", "/_stepwell/templates", testTemplate(fmt.Sprintf("t%d", len(callable)), stepSpec{name: "a", callable: callable}))
		if a.status != status && !(status == 201 && a.status == 200) {
			t.Errorf("%s: got %d, %s; want %d", callable, a.status, a.body, status)
		}
		if a.status == 422 && a.text("error.details.0.field") != "steps[0].handler.callable" {
			t.Errorf("%s: got %s; want the callable's path", callable, a.body)
		}
	}
	a := s.do("POST", "/_stepwell/templates", `{"name":"x","version":"y","steps":[{"name":"a"}]}`).want(422)
	if n := strings.Count(string(a.body), `"field"`); n != 2 {
		t.Errorf("%d problems are named: %s", n, a.body)
	}
	s.do("POST", "/_stepwell/templates", `{`).want(400)
}

// TestTargetsAreBounded expects the engine to forget replaced templates.
func TestTargetsAreBounded(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	s := newFixtureServer(t, serviceTest{})
	svc := s.world.service()
	for i := range maxTargets + 10 {
		text := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: fmt.Sprintf(`{"add":%d}`, i)})
		if _, replaced, err := svc.templates.add([]byte(text)); err != nil || replaced != (i > 0) {
			t.Fatalf("got %v, error %v", replaced, err)
		}
		mustCreate(t, svc, "late")
	}
	svc.store.mu.Lock()
	defer svc.store.mu.Unlock()
	if n := len(svc.engine.targets); n == 0 || n > maxTargets {
		t.Errorf("the targets of %d templates are remembered", n)
	}
}

// TestTemplateUse counts the look-ups of each service, timed by its clock.
func TestTemplateUse(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, templates: apiTemplates})
	other := newTestService(t, serviceTest{clock: clock, templates: apiTemplates})
	clock.advance(90 * time.Second)
	look := func(version string) { s.templates.find("t", "versions", version) }
	for _, version := range []string{"", "latest", "1.2.0", "1.0.0", "9.9.9"} {
		look(version)
	}
	got := s.templates.usage()
	if got.CacheHits != 4 || got.CacheMisses != 1 || got.CacheEvictions != 0 || got.OldestEntryAgeSeconds != 90 {
		t.Errorf("got %+v; want 4 hits, a miss, 90 seconds", got)
	}
	if want := 4 / float64(got.TotalCached); got.AverageAccessCount != want || got.TotalCached != len(s.templates.registry().all()) {
		t.Errorf("got %+v; want an average of %v", got, want)
	}
	latest, _ := s.templates.registry().get("t", "versions", "1.2.0")
	if n := s.templates.entry(latest).count.Load(); n != 3 {
		t.Errorf("got %d look-ups of the latest version; want 3", n)
	}
	if v := other.templates.usage(); v.CacheHits != 0 || v.OldestEntryAgeSeconds != 90 {
		t.Errorf("another service: got %+v; want its own figures", v)
	}
}

// TestTemplateUseOfNewcomers counts the look-ups of a template that was added later, and those
// of a service without templates.
func TestTemplateUseOfNewcomers(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock})
	clock.advance(time.Hour)
	late, _, _ := parseTemplate("late", []byte(testTemplate("late")), "json", "", nil)
	s.templates.files.Store(newRegistry([]*template{late}))
	s.templates.find("t", "late", "latest")
	clock.advance(5 * time.Second)
	if got := s.templates.usage(); got.TotalCached != 1 || got.OldestEntryAgeSeconds != 5 || got.AverageAccessCount != 1 {
		t.Errorf("got %+v; want one of 5 seconds, looked up once", got)
	}
	s.templates.files.Store(newRegistry(nil))
	if got := s.templates.usage(); got.TotalCached != 0 || got.AverageAccessCount != 0 || len(got.SupportedNamespaces) != 0 {
		t.Errorf("got %+v; want nothing", got)
	}
}

func TestTemplateUseAtOnce(t *testing.T) {
	s := newTestService(t, serviceTest{})
	tpl, _, _ := parseTemplate("late", []byte(testTemplate("late")), "json", "", nil)
	s.templates.files.Store(s.templates.registry().with(tpl))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				s.templates.find("t", "late", "1.0.0")
				s.templates.find("t", "nobody", "")
				s.templates.usage()
			}
		})
	}
	all.Wait()
	if n := s.templates.entry(tpl).count.Load(); n != 800 || s.templates.misses.Load() != 800 {
		t.Errorf("got %d look-ups and %d misses; want 800 of each", n, s.templates.misses.Load())
	}
}

// TestCreatingCountsAsUse expects the creation of a task to count as a look-up.
func TestCreatingCountsAsUse(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	s.create(`{"namespace":"demo","name":"diamond"}`)
	s.do("GET", "/v1/templates/demo/diamond/latest", "").want(200)
	s.do("POST", "/v1/tasks", `{"namespace":"demo","name":"nobody"}`).want(404)
	if got := s.svc.templates.usage(); got.CacheHits != 2 || got.CacheMisses != 1 {
		t.Errorf("got %+v; want 2 hits and a miss", got)
	}
}

// TestEveryFailureHasAWord checks that the table of failures is complete: only the
// two worker errors that have the orchestration role's body may lack a word.
func TestEveryFailureHasAWord(t *testing.T) {
	for kind, row := range failureForms {
		without := failureKind(kind) == unauthenticated || failureKind(kind) == forbidden
		if row.status == 0 || row.code == "" || (row.word == "") != without {
			t.Errorf("kind %d: got %+v; want status, code and word", kind, row)
		}
	}
}

// schemaTemplate has a schema for its context and one for the result of each step.
const schemaTemplate = `{"name":"checked","version":"1.0.0","identity_strategy":"always_unique","default_context":{"currency":"EUR"},
	"input_schema":{"required":["items","currency"],"properties":{"items":{"items":{"properties":{"price":{"type":"number"}}}}}},
	"steps":[{"name":"sum","handler":{"callable":"builtin:echo"},"retry":{"max_attempts":5},
		"result_schema":{"properties":{"total":{"type":"integer"}}}},
		{"name":"ask","handler":{"callable":"people"},"dependencies":["sum"],"result_schema":{"type":["integer","null"]}}]}`

// TestEnforcedSchemas checks contexts and the results of builtins, outside actors and operators.
func TestEnforcedSchemas(t *testing.T) {
	const misfit = `{"name":"checked","context":{"items":[{"price":"ü"}],"total":1.5}}`
	start := func(mode string) (*testServer, *logLines) {
		log := &logLines{}
		return newTestServer(t, serviceTest{log: log, extra: []string{schemaTemplate}, config: func(c *Config) {
			c.Templates.EnforceInputSchema = mode
		}}), log
	}
	metric := func(s *testServer, context, result int) {
		t.Helper()
		got := string(s.do("GET", "/metrics", "").want(200).body)
		for value, n := range map[string]int{"context": context, "result": result} {
			if line := fmt.Sprintf("stepwell_schema_misfits_total{of=%q} %d\n", value, n); !strings.Contains(got, line) {
				t.Errorf("got no %s", line)
			}
		}
	}
	complete := func(s *testServer, id, result string) *answer {
		step := s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").text("1.step_uuid")
		return s.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+step, `{"action_type":"complete_manually","reason":"r",
			"completed_by":"b","completion_data":{"result":`+result+`}}`)
	}

	off, _ := start("off")
	if a := off.do("POST", "/v1/tasks", misfit).want(201); a.header.Get("X-Stepwell-Warning") != "" {
		t.Errorf("off: got %v", a.header)
	}
	metric(off, 0, 0)

	warn, log := start("warn")
	a := warn.do("POST", "/v1/tasks", misfit).want(201)
	if got := a.header["X-Stepwell-Warning"]; len(got) != 1 || got[0] != `/context/items/0/price: got "\u00fc"; want a number` {
		t.Errorf("warn: got %q", got)
	}
	complete(warn, a.text("task_uuid"), `"x"`).want(200)
	warn.await(a.text("task_uuid"), "complete")
	metric(warn, 1, 2)
	for _, line := range []string{
		"a context does not fit the template's input_schema template=default.checked@1.0.0 problems=/items/0/price: want a number",
		"a result does not fit the step's result_schema step=sum problems=/total: want an integer",
		"a result does not fit the step's result_schema step=ask problems=want an integer or null",
	} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("warn: got the log %s; want %s", log, line)
		}
	}

	reject, _ := start("reject")
	a = reject.do("POST", "/v1/tasks", misfit).want(422)
	if got := a.text("error.details.0.field") + " " + a.text("error.details.0.message"); got != `/context/items/0/price got "ü"; want a number` {
		t.Errorf("reject: got %s", a.body)
	}
	if a = reject.do("POST", "/v1/tasks", `{"name":"checked"}`).want(422); a.text("error.details.0.field") != "/context/items" {
		t.Errorf("reject: got %s", a.body)
	}
	reject.do("POST", "/stepwell/tasks", misfit).want(422)
	id := reject.create(`{"name":"checked","context":{"items":[],"total":1.5}}`)
	reject.await(id, "blocked_by_failures")
	step := reject.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
	if got := step.text("0.results.error.message"); got != "the result does not fit result_schema: /total: got 1.5; want an integer" {
		t.Errorf("got %s", step.body)
	}
	if step.text("0.attempts") != "1" || step.text("0.results.error.error_type") != schemaMismatchType || step.get("0.results.error.retryable") != false {
		t.Errorf("got %s; want a permanent failure", step.body)
	}
	id = reject.create(`{"name":"checked","context":{"items":[]}}`)
	a = complete(reject, id, `"x"`).want(422)
	if got := a.text("error.details.0.field"); got != "/completion_data/result" {
		t.Errorf("got %s", a.body)
	}
	metric(reject, 3, 2)
	claimed := must(reject.svc.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, worker: "w"}))(t)[0]
	answer := func() (stepView, error) {
		q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true, result: []byte(`1.5`)}}
		q.setLease(claimed.token)
		return reject.svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: claimed.attempt.stepID})
	}
	for range 2 { // the repetition, whose first answer may have been lost, gets the same
		if v, err := answer(); err != nil || v.CurrentState != "error" {
			t.Errorf("got %v, %v; want the step in error", v.CurrentState, err)
		}
	}
	complete(reject, reject.create(`{"name":"checked","context":{"items":[]}}`), `null`).want(200)
}

// TestRefusedSchemas loads a template with schemas that cannot be enforced.
func TestRefusedSchemas(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "t.yaml")
	noError(t, os.WriteFile(file, []byte("name: t\nversion: 1.0.0\ninput_schema:\n  patternproperties: {}\nsteps:\n- name: s\n"+
		"  handler: {callable: x}\n  result_schema: {items: {$ref: 'a.json'}}\n"), 0o600))
	want := []string{
		file + ":4:3: input_schema.patternproperties: the keyword patternproperties is not supported (did you mean patternProperties?)",
		file + `:8:27: steps[0].result_schema.items["$ref"]: "a.json" is outside of the schema; references to other documents are not supported`,
	}
	_, _, err := loadTemplates([]string{dir}, "", &templateRules{schemas: schemasRefused})
	if err == nil || !strings.HasPrefix(err.Error(), strings.Join(want, "\n")) {
		t.Errorf("refused: got %v; want %q", err, want)
	}
	for rule, told := range map[schemaRule]int{schemasKept: 0, schemasTold: 2} {
		r, warnings, err := loadTemplates([]string{dir}, "", &templateRules{schemas: rule})
		if err != nil || len(r.all()) != 1 || len(warnings) != told {
			t.Errorf("%v: got %q, %v; want %d warnings", rule, warnings, err, told)
		}
	}
	s := newTestService(t, serviceTest{})
	v := s.templates.validateDefinition([]byte(`{"name":"x","version":"1.0.0","input_schema":{"a":1}}`), templateName{"default", "x"}, "1.0.0")
	if want := []string{"input_schema.a: the keyword a is not supported; the schema cannot be enforced"}; !v.Valid || !slices.Equal(v.Warnings, want) {
		t.Errorf("got %+v; want the warning %q", v, want)
	}
}
