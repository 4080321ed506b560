package main

// Tests of the Idempotency-Key header.

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// checkRequestIndex holds the index of repeated requests against the tasks.
func checkRequestIndex(t testing.TB, s *store) {
	t.Helper()
	again := newRequestIndex()
	for i, sl := range s.slots {
		if sl.live == nil && sl.line == nil {
			continue // it was dropped
		}
		task, err := sl.task(s)
		if err != nil {
			t.Errorf("the task at %d cannot be read: %v", i, err)
			continue
		}
		again.add(task.by.request, task.id, task.created)
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

// task is the task in a slot, live or thawed.
func (sl slot) task(s *store) (*task, error) {
	if sl.live != nil {
		return sl.live, nil
	}
	return s.thaw(sl.line)
}

// keyed sends a creation with an Idempotency-Key.
func keyed(t *testing.T, s *testServer, path, body string, keys ...string) *answer {
	t.Helper()
	req, err := http.NewRequest("POST", s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["Idempotency-Key"] = keys
	return send(t, req)
}

func send(t *testing.T, req *http.Request) *answer {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
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

// submitKeyed creates a task of a template of the namespace t under a key.
func submitKeyed(ctx context.Context, s *service, subject, key, body string) (*submitted, error) {
	q, err := parseTaskRequest([]byte(body))
	if err != nil {
		return nil, err
	}
	return s.submitTask(ctx, &submission{taskRequest: q, request: markFor(subject, key, body)})
}

// markFor is the mark of a creation.
func markFor(subject, key, body string) (m requestMark) {
	m.key = hashOf([]byte(subject), []byte("/v1/tasks"), []byte(key))
	m.body = hashOf(canonicalJSON(nil, []byte(body)))
	return m
}

// mustReplay fails the test unless the key gives the task, replayed or not.
func mustReplay(t *testing.T, s *service, key string, want uuid, replayed bool) uuid {
	t.Helper()
	done, err := submitKeyed(t.Context(), s, "", key, manualTask)
	if err != nil {
		t.Fatal(err)
	}
	if done.replayed != replayed || replayed && done.task.id != want {
		t.Errorf("key %s: got task %s, replayed %t; want %s, %t", key, done.task.id, done.replayed, want, replayed)
	}
	return done.task.id
}

// TestIdempotencyKeysSurviveRestarts has keys in the journal, in the snapshot,
// and of tasks that are live and that have ended.
func TestIdempotencyKeysSurviveRestarts(t *testing.T) {
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), templates: "testdata/templates", clock: clock}
	s := openTestService(t, o)
	ids := map[string]uuid{}
	for _, key := range []string{"old", "older"} {
		ids[key] = mustReplay(t, s, key, uuid{}, false)
		clock.advance(time.Hour)
	}
	if _, err := s.cancelTask(t.Context(), ids["old"], ""); err != nil {
		t.Fatal(err)
	}
	if err := s.store.snapshot(); err != nil {
		t.Fatal(err)
	}
	ids["new"] = mustReplay(t, s, "new", uuid{}, false)
	for range 3 {
		closeTestService(t, s)
		s = openTestService(t, o)
		for key, id := range ids {
			mustReplay(t, s, key, id, true)
		}
		if _, err := submitKeyed(t.Context(), s, "", "new", `{"namespace":"t","name":"diamond"}`); kindOf(err) != invalidFields {
			t.Errorf("another body after a restart: got %v; want it refused", err)
		}
		if err := s.store.snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	closeTestService(t, s)
}

// TestIdempotencyKeysExpire has them remembered for 24 hours to the microsecond,
// also by a service that was started meanwhile.
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

func TestIdempotencyScope(t *testing.T) {
	s := newTestService(t, serviceTest{templates: "testdata/templates"})
	seen := map[uuid]bool{}
	for _, subject := range []string{"", "anna", "bert"} {
		for _, key := range []string{"k", "K"} {
			done, err := submitKeyed(t.Context(), s, subject, key, manualTask)
			if err != nil {
				t.Fatal(err)
			}
			if done.replayed || seen[done.task.id] {
				t.Errorf("%q of %q: got task %s again; want one of its own", key, subject, done.task.id)
			}
			seen[done.task.id] = true
		}
	}
}

// TestIdempotencyInFlight has a request repeated while the first one waits: it
// is refused until that one is answered, and a replay afterwards.
func TestIdempotencyInFlight(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	ctx, cancel := context.WithCancel(t.Context())
	q, err := parseTaskRequest([]byte(manualTask))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error)
	go func() {
		_, err := s.svc.submitTask(ctx, &submission{
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

// TestFlightOfAnotherWorld: the end of a request that began before a reset leaves
// alone the request that came under its key after it.
func TestFlightOfAnotherWorld(t *testing.T) {
	s := newTestService(t, serviceTest{})
	m := markFor("", "k", manualTask)
	_, before, err := s.store.beginRequest(m)
	if err != nil {
		t.Fatal(err)
	}
	s.store.requests = newRequestIndex()
	_, after, err := s.store.beginRequest(m)
	if err != nil {
		t.Fatal(err)
	}
	s.store.endRequest(before)
	if _, _, err := s.store.beginRequest(m); kindOf(err) != conflict {
		t.Errorf("got %v while the second request is in flight; want a conflict", err)
	}
	s.store.endRequest(after)
	if _, _, err := s.store.beginRequest(m); err != nil {
		t.Errorf("got %v once nothing is in flight", err)
	}
}

// TestRequestIndexOfDroppedTasks: keys of tasks that are kept no longer take no
// memory until their day is over.
func TestRequestIndexOfDroppedTasks(t *testing.T) {
	const kept = 100
	x := newRequestIndex()
	mark := func(i int) requestMark { return requestMark{key: hashOf(fmt.Append(nil, i))} }
	for i := range 100 * kept {
		x.add(mark(i), uuid{}.plus(i+1), testStart.add(time.Duration(i)*time.Millisecond))
		if old := i - kept; old >= 0 {
			x.remove(mark(old).key, uuid{}.plus(old+1))
		}
	}
	if n := len(x.ages); len(x.tasks) != kept || n > 2*kept+agesFloor {
		t.Errorf("%d keys take %d entries", len(x.tasks), n)
	}
	x.forget(testStart.add(replayKeyAge + time.Hour))
	if len(x.tasks) != 0 || len(x.ages) != 0 {
		t.Errorf("%d and %d keys are left after their day; want none", len(x.tasks), len(x.ages))
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

// TestIdempotencyFailures has requests that failed forgotten.
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

// TestRequestMarks tells requests apart by who asks, for which route, under
// which key and with what, and by nothing else.
func TestRequestMarks(t *testing.T) {
	mark := func(subject, route, key, body string) requestMark {
		t.Helper()
		r := httptest.NewRequest("POST", "/", nil)
		r = r.WithContext(withSecurity(t.Context(), &securityContext{subject: subject}))
		r.Header.Set("Idempotency-Key", key)
		m, err := requestMarkOf(r, route, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return m
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
		if again, ok := parseRequestMark(string(appendRequestMark(nil, m)[len(`,"request":"`):][:64])); !ok || again != m {
			t.Errorf("%+v: got %v back, %t; want %v", tt, again, ok, m)
		}
	}
}

// TestRequestIndexMemory measures what a key costs beside its task.
func TestRequestIndexMemory(t *testing.T) {
	const many, most = 100_000, 150
	x := newRequestIndex()
	before := heapBytes()
	for i := range many {
		x.add(requestMark{key: hashOf(fmt.Append(nil, i))}, uuid{}.plus(i+1), testStart)
	}
	each := (heapBytes() - before) / many
	t.Logf("%d bytes a key", each)
	if each > most {
		t.Errorf("a key takes %d bytes; want at most %d", each, most)
	}
	x.forget(testStart.add(replayKeyAge))
	if len(x.tasks) != 0 || len(x.ages) != 0 {
		t.Errorf("%d and %d keys are left; want none", len(x.tasks), len(x.ages))
	}
}
