package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// keyed sends a creation with an Idempotency-Key.
func keyed(s *testServer, path, body, key string) *answer {
	s.t.Helper()
	return s.do("POST", path, body, "Idempotency-Key: "+key)
}

const manualTask = `{"namespace":"t","name":"manual"}`

// submitKeyed creates a task under a key, from a template of the namespace t.
func submitKeyed(ctx context.Context, s *service, subject, key, body string) (*submitted, error) {
	q, err := parseTaskRequest([]byte(body))
	if err != nil {
		return nil, err
	}
	q.request = markFor(subject, key, body)
	return s.tasks.submit(ctx, &submission{taskRequest: q})
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
	if n := len(s.store.requests.kept); n != 1 {
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
		c.Store.RetainFinishedCount, c.Requests.KeepHours = 1, 48
	}}
	open := func() *testServer {
		svc := openTestService(t, o)
		return (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	}
	s := open()
	ids := map[string]string{}
	for _, key := range []string{"a", "b", "c", "kept"} {
		ids[key] = keyed(s, "/v1/tasks", body, key).want(201).text("task_uuid")
	}
	check := func(when string) {
		t.Helper()
		for _, key := range []string{"a", "b", "c"} {
			for _, query := range []string{"", "?wait=1s"} {
				a := keyed(s, "/v1/tasks"+query, body, key).want(410)
				if a.text("error.code") != "TASK_DROPPED" || a.text("error.task_uuid") != ids[key] ||
					!strings.Contains(a.text("error.message"), ids[key]) || a.header.Get("Location") != "" {
					t.Errorf("%s: got %v %s; want task %s told as dropped", when, a.header, a.body, ids[key])
				}
			}
			keyed(s, "/v1/tasks", manualTask, key).want(422)
		}
		if got := keyed(s, "/v1/tasks", body, "kept").want(201).text("task_uuid"); got != ids["kept"] {
			t.Errorf("%s: got task %s; want %s", when, got, ids["kept"])
		}
	}
	check("at first")
	for _, step := range []struct {
		when string
		do   func()
	}{
		{"after a restart", func() { closeTestService(t, s.svc) }},
		{"from a compacted part", func() { noError(t, s.svc.store.compact()); closeTestService(t, s.svc) }},
		{"compacted again", func() { noError(t, s.svc.store.compact()); closeTestService(t, s.svc) }},
		{"after a crash", func() {
			crashed := filepath.Join(t.TempDir(), "data")
			noError(t, os.CopyFS(crashed, os.DirFS(o.dir)))
			closeTestService(t, s.svc)
			o.dir = crashed
		}},
		{"from a state", func() {
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
	if got := keyed(s, "/v1/tasks", body, "a").want(201); got.header.Get("Idempotency-Replayed") != "" || got.text("task_uuid") == ids["a"] {
		t.Errorf("got %v %s after its time; want a new task", got.header, got.body)
	}
	a := keyed(s, "/stepwell/tasks", body, "m").want(201).text("id")
	s.create(body)
	m := keyed(s, "/stepwell/tasks", body, "m").want(410)
	if m.text("error.type") != "TaskDropped" || m.text("error.code") != "TASK_DROPPED" || m.text("error.task_id") != a {
		t.Errorf("got %s at the mount point; want task %s told as dropped", m.body, a)
	}
	closeTestService(t, s.svc)
}

// TestIdempotencyKeysAreEvicted drops more tasks than keys are remembered for.
func TestIdempotencyKeysAreEvicted(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{templates: "testdata/templates", config: func(c *Config) { c.Store.RetainFinishedCount = 1 }})
	s.svc.store.mu.Lock()
	s.svc.store.requests.limits.count = 1
	s.svc.store.mu.Unlock()
	const body = `{"namespace":"t","name":"diamond"}`
	for _, key := range []string{"evicted", "dropped", "kept"} {
		keyed(s, "/v1/tasks", body, key).want(201)
	}
	keyed(s, "/v1/tasks", body, "dropped").want(410)
	keyed(s, "/v1/tasks", body, "evicted").want(201)
}

// TestIdempotencyInFlight repeats a request while the first one waits: the
// repetition is refused until the first is answered, and a replay afterwards.
func TestIdempotencyInFlight(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	ctx, cancel := context.WithCancel(t.Context())
	q := must(parseTaskRequest([]byte(manualTask)))(t)
	q.request = markFor("", "k", manualTask)
	answered := make(chan error)
	go func() {
		_, err := s.svc.tasks.submit(ctx, &submission{taskRequest: q, wants: terminalStates, limit: time.Hour})
		answered <- err
	}()
	awaitWaiters(t, s.svc, 1)
	a := keyed(s, "/v1/tasks", manualTask, "k").want(409)
	if a.header.Get("Retry-After") != "1" || a.text("error.code") != "CONFLICT" {
		t.Errorf("got %v %s; want a conflict with Retry-After", a.header, a.body)
	}
	keyed(s, "/v1/tasks", `{"namespace":"t","name":"diamond"}`, "k").want(422)
	keyed(s, "/v1/tasks", manualTask, "other").want(201)
	cancel() // the client goes away
	if err := <-answered; err != context.Canceled {
		t.Errorf("got %v; want the cancellation", err)
	}
	if got := keyed(s, "/v1/tasks", manualTask, "k").want(201).header.Get("Idempotency-Replayed"); got != "true" {
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
	_, before := must2(s.store.requests.begin(m))(t)
	s.store.requests.flights = map[replayKey]*requestMark{}
	_, after := must2(s.store.requests.begin(m))(t)
	s.store.requests.end(before)
	if _, _, err := s.store.requests.begin(m); kindOf(err) != conflict {
		t.Errorf("got %v while the second request is in flight; want a conflict", err)
	}
	s.store.requests.end(after)
	if _, _, err := s.store.requests.begin(m); err != nil {
		t.Errorf("got %v once nothing is in flight", err)
	}
}

// TestRequestIndexOfDroppedTasks expects the entries of dropped tasks to take no more room
// than their number allows, and all entries to leave after their time.
func TestRequestIndexOfDroppedTasks(t *testing.T) {
	const kept = 100
	x, memory := newRequestIndex(), int64(0)
	x.limits = limits{2 * kept, 24 * time.Hour}
	x.resize = func(by int64) { memory += by }
	mark := func(i int) requestMark { return requestMark{key: hashOf(fmt.Append(nil, i))} }
	for i := range 100 * kept {
		x.insert(mark(i), uuid{}.plus(i+1), testStart.add(time.Duration(i)*time.Millisecond))
		if old := i - kept; old >= 0 {
			x.drop(mark(old), uuid{}.plus(old+1))
		}
	}
	if n := len(x.aged); len(x.kept) != 3*kept || n > 2*kept+agesFloor {
		t.Errorf("%d keys take %d entries", len(x.kept), n)
	}
	if x.gone != 2*kept || len(x.dropped) != 2*kept || memory != 2*kept*droppedRequestBytes {
		t.Errorf("%d keys of dropped tasks take %d entries and %d bytes", x.gone, len(x.dropped), memory)
	}
	x.forget(testStart.add(25 * time.Hour))
	if len(x.kept)+len(x.aged)+len(x.dropped)+x.gone != 0 || memory != 0 {
		t.Errorf("%d, %d and %d keys are left after their day, with %d bytes; want none", len(x.kept), len(x.aged),
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

// TestActs compares what operators did by a plain reading of all records with store.acts, and after a restart.
func TestActs(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{testTemplate("manual", stepSpec{name: "a", callable: "Outside"})}, config: retaining(40)}
	s := openTestService(t, o)
	r := rand.New(rand.NewPCG(5, 5))
	for n := range 60 { // some of them are dropped
		id := mustCreate(t, s, "manual").id
		by := fmt.Sprintf("actor %d", r.IntN(3))
		act := stepRequest{action: choose(r, actionFail, actionResolve, actionComplete), by: by, reason: fmt.Sprint("reason ", n),
			result: []byte("1"), err: &stepError{message: "no", errorType: "E"}, who: taskActor{subject: "subject"}}
		if r.IntN(4) > 0 {
			_, _, err := s.operator.act(t.Context(), id, must(s.store.view(id))(t).stepID(0), &act)
			noError(t, err)
		}
		o.clock.(*virtualClock).set(s.clock.now().add(time.Second))
	}
	settle(s)
	check := func(when string) {
		t.Helper()
		want := map[string]bool{} // by reason
		for _, sl := range s.store.tasks.slots {
			if sl == nil {
				continue
			}
			v := must(sl.task())(t)
			for entry := range logEntries(v.log) {
				if r := must(decodeRecord(entry))(t); r.kind == recOperator {
					want[r.by+" "+r.reason] = true
				}
			}
		}
		all := must(s.store.acts(actQuery{}, nil))(t)
		if len(want) == 0 || len(all) != len(want) {
			t.Fatalf("%s: %d acts; want %d", when, len(all), len(want))
		}
		for i, a := range all {
			if by, subject := a.first.who(); !want[by+" "+a.first.why()] || subject != "subject" || len(a.tasks) != 1 || a.steps != 1 {
				t.Errorf("%s: unexpected act %+v", when, a)
			}
			if i > 0 && a.first.seq > all[i-1].first.seq {
				t.Errorf("%s: act %d comes after an earlier one", when, i)
			}
		}
		since := all[len(all)/2].first.at
		for _, a := range must(s.store.acts(actQuery{since: since, actor: "actor 1"}, nil))(t) {
			if by, _ := a.first.who(); by != "actor 1" || a.first.at <= since {
				t.Errorf("%s: act of %s at %s; want those of actor 1 after %s", when, by, a.first.at.zoned(), since.zoned())
			}
		}
	}
	check("before a restart")
	s.finish(t.Context())
	s.close()
	s = openTestService(t, o)
	check("after a restart")
}

// BenchmarkActs asks for what operators did to 100,000 tasks, one act each: for all, for the newest 1,000, and for none.
func BenchmarkActs(b *testing.B) {
	svc, large := stuckService(b, 100_000, 20)
	since := must(svc.store.acts(actQuery{}, nil))(b)[1000].first.at.zoned()
	for b.Loop() {
		for name, query := range map[string]string{"all": "", "newest": "?since=" + since, "none": "?since=2100-01-01T00:00:00Z"} {
			large.ask(b, storedRequest{"/v1/audit" + query, name})
		}
	}
	for name := range large.times {
		cpu, _ := percentiles(large.cpu[name])
		b.ReportMetric(float64(cpu.Microseconds()), name+"-cpu-µs")
	}
}
