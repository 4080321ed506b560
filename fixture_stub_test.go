package main

// Stubs: which one applies, what is refused, and what waits for them.

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// TestStubPrecedence checks that the most specific stub wins, then the newest, and that
// the n-th delivery has the n-th outcome.
func TestStubPrecedence(t *testing.T) {
	sequential(t)
	t.Parallel()
	rows := []struct {
		name    string
		matches []string // of stubs whose results are 1, 2, …
		context string
		want    string
	}{
		{"the newest of equals", []string{`{}`, `{}`}, `{}`, "2"},
		{"more members", []string{`{"namespace":"t","step":"a"}`, `{"step":"a"}`}, `{}`, "1"},
		{"what does not match counts nothing", []string{`{"step":"a"}`, `{"step":"b","namespace":"t","name":"one"}`}, `{}`, "1"},
		{"version and attempt", []string{`{"version":"1.0.0","attempt":1}`, `{"version":"1.0.0","attempt":2}`}, `{}`, "1"},
		{"callable", []string{`{"callable":"builtin:noop"}`, `{"callable":"noop"}`}, `{}`, "1"},
		{"context", []string{`{"context":{"a":1}}`, `{}`}, `{"a":1,"b":2}`, "1"},
		{"more of the context", []string{`{"context":{"a":1,"b":{"c":[1]}}}`, `{"context":{"a":1}}`}, `{"a":1.0,"b":{"c":[1e0],"d":1}}`, "1"},
		{"arrays are equal", []string{`{}`, `{"context":{"a":[1]}}`}, `{"a":[1,2]}`, "1"},
		{"objects in arrays are equal", []string{`{}`, `{"context":{"a":[{"x":1}]}}`}, `{"a":[{"x":1,"y":2}]}`, "1"},
		{"numbers by value", []string{`{}`, `{"context":{"a":10000000000000000000001}}`}, `{"a":1.0000000000000000000001e22}`, "2"},
		{"digits count", []string{`{}`, `{"context":{"a":10000000000000000000001}}`}, `{"a":10000000000000000000002}`, "1"},
		{"strings by value", []string{`{}`, `{"context":{"a":"\u0041"}}`}, `{"a":"A"}`, "2"},
		{"kinds differ", []string{`{}`, `{"context":{"a":"1"}}`}, `{"a":1}`, "1"},
		{"null is there", []string{`{}`, `{"context":{"a":null}}`}, `{}`, "1"},
		{"none", []string{`{"name":"two"}`}, `{}`, "<nil>"},
	}
	s := newFixtureServer(t, serviceTest{extra: []string{testTemplate("one", stepSpec{name: "a", callable: "builtin:noop"})}})
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s.t = t
			s.do("DELETE", "/_stepwell/stubs", "").want(204)
			for i, match := range row.matches {
				s.stub(`{"match":%s,"outcomes":[{"result":%d}]}`, match, i+1)
			}
			id := s.create(fmt.Sprintf(`{"namespace":"t","name":"one","context":%s}`, row.context))
			want := "complete after 1 attempts, 1 deliveries: " + row.want
			if got := s.story(id); got != want {
				t.Errorf("got %s; want %s", got, want)
			}
		})
	}
}

// TestStubsOfABatchWorker checks that the name of a batch worker in the template matches its
// instances: in a stub, in the journal and in a verification.
func TestStubsOfABatchWorker(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: []string{testTemplate("grows", stepSpec{kind: stepBatchable, name: "split", callable: "Outside"},
		stepSpec{kind: stepBatchWorker, name: "w", callable: "builtin:noop", after: []string{"split"}})}})
	s.stub(`{"match":{"step":"split"},"outcomes":[{"result":%s}]}`, createBatches("w", 3))
	s.stub(`{"match":{"step":"w"},"outcomes":[{"result":1}]}`)
	s.stub(`{"match":{"step":"w_002"},"outcomes":[{"result":2}]}`)
	id := s.create(`{"namespace":"t","name":"grows"}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	a := s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
	for i, want := range []string{1: "1", "2", "1"} {
		if got := a.text(fmt.Sprintf("%d.results.result", i)); i > 0 && got != want {
			t.Errorf("step %d: got %s; want %s", i, got, want)
		}
	}
	for step, want := range map[string]string{
		"w":     "w_001 1 true true, w_002 1 true true, w_003 1 true true",
		"w_002": "w_002 1 true true", "split": "split 1 true true", "w_00": "",
	} {
		if got := s.entries("?step=" + step); got != want {
			t.Errorf("the journal of %s: got %s; want %s", step, got, want)
		}
	}
	s.do("POST", "/_stepwell/verify", `{"match":{"step":"w","attempt":1},"count":{"exactly":3}}`).want(200)
}

// TestUnknownStepsAreNamed checks that stubs and verifications warn of a step that no template has.
func TestUnknownStepsAreNamed(t *testing.T) {
	t.Parallel()
	s := newFixtureServer(t, serviceTest{extra: []string{testTemplate("photos", stepSpec{name: "pack", callable: "builtin:noop"},
		stepSpec{kind: stepBatchable, name: "split", callable: "Outside"},
		stepSpec{kind: stepBatchWorker, name: "print", callable: "builtin:noop", after: []string{"split"}})}})
	const typo = `no template has a step "pakc"; did you mean pack?`
	stub := func(match string) string { return `{"match":{` + match + `},"outcomes":[{"result":1}]}` }
	for match, want := range map[string]string{
		`"step":"pakc"`: typo, `"step":"pack"`: "<nil>", `"step":"print"`: "<nil>", `"step":"print_007"`: "<nil>", `"name":"x"`: "<nil>", "": "<nil>",
		`"step":"entirely_different"`:     `no template has a step "entirely_different"`,
		`"kind":"delivery","step":"pakc"`: typo,
	} {
		if got := s.do("POST", "/_stepwell/stubs", stub(match)).want(201).text("warning"); got != want {
			t.Errorf("a stub for {%s}: got the warning %q; want %q", match, got, want)
		}
		put := s.do("PUT", "/_stepwell/stubs", `{"stubs":[`+stub(match)+`]}`).want(200)
		if got := put.text("stubs.0.warning"); got != want {
			t.Errorf("the stub for {%s} alone: got the warning %q; want %q", match, got, want)
		}
	}
	if a := s.do("GET", "/_stepwell/stubs", "").want(200); strings.Contains(string(a.body), "warning") {
		t.Errorf("got %s; want the warning only where the stub is made", a.body)
	}
	none := func(step string) string { return `{"match":{"step":"` + step + `"},"count":{"exactly":0}}` }
	if got := s.do("POST", "/_stepwell/verify", none("pakc")).want(200).text("warning"); got != typo {
		t.Errorf("no call of pakc: got the warning %q; want %q", got, typo)
	}
	if got := strings.TrimSpace(string(s.do("POST", "/_stepwell/verify", none("pack")).want(200).body)); got != `{"count":0}` {
		t.Errorf("no call of pack: got %s", got)
	}
	for _, question := range []string{`{"match":{"step":"pakc"}}`, `{"match":{},"order":[{"step":"pack"},{"step":"pakc"}]}`} {
		if got := s.do("POST", "/_stepwell/verify", question).want(422).text("error.message"); !strings.HasSuffix(got, "; "+typo) {
			t.Errorf("%s: got %q; want the warning in it", question, got)
		}
	}
	s.do("POST", "/_stepwell/templates", testTemplate("later", stepSpec{name: "pakc", callable: "builtin:noop"})).want(201)
	if got := s.do("POST", "/_stepwell/stubs", stub(`"step":"pakc"`)).want(201).text("warning"); got != "<nil>" {
		t.Errorf("once a template has the step: got the warning %q", got)
	}
}

// TestStubsAreBounded checks how many stubs may exist.
func TestStubsAreBounded(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	one := `{"match":{},"outcomes":[{"result":1}]}`
	many := func(n int) string { return `{"stubs":[` + strings.Repeat(one+",", n-1) + one + `]}` }
	s.do("PUT", "/_stepwell/stubs", many(maxStubs)).want(200)
	s.do("POST", "/_stepwell/stubs", one).want(409)
	s.do("PUT", "/_stepwell/stubs", many(maxStubs+1)).want(409)
	if got := strings.Count(string(s.do("GET", "/_stepwell/stubs", "").body), `"id"`); got != maxStubs {
		t.Errorf("%d stubs are left; want those of before", got)
	}
}

// TestStubsAreStrict checks that each mistake is named by its path.
func TestStubsAreStrict(t *testing.T) {
	const match, outcomes = `"match":{}`, `"outcomes":[{"result":1}]`
	rows := []struct{ body, fields string }{
		{`{}`, "match outcomes"},
		{`{` + match + `}`, "outcomes"},
		{`{` + match + `,"outcomes":[]}`, "outcomes"},
		{`{` + match + `,"outcomes":{}}`, "outcomes"},
		{`{"match":[],` + outcomes + `}`, "match"},
		{`{"match":null,` + outcomes + `}`, "match"},
		{`{` + match + `,` + outcomes + `,"than":"last"}`, "than"},
		{`{` + match + `,` + outcomes + `,"then":"again"}`, "then"},
		{`{"match":{"stpe":"a","name":1,"attempt":0,"context":[]},` + outcomes + `}`,
			"match.stpe match.name match.attempt match.context"},
		{`{"match":{"attempt":"1"},` + outcomes + `}`, "match.attempt"},
		{`{` + match + `,"outcomes":[{"result":1},{}]}`, "outcomes[1]"},
		{`{` + match + `,"outcomes":[1]}`, "outcomes[0]"},
		{`{` + match + `,"outcomes":[{"reslut":1}]}`, "outcomes[0].reslut"},
		{`{` + match + `,"outcomes":[{"result":1,"error":{"message":"m"}}]}`, "outcomes[0].error"},
		{`{` + match + `,"outcomes":[{"error":{}}]}`, "outcomes[0].error.message"},
		{`{` + match + `,"outcomes":[{"error":"m"}]}`, "outcomes[0].error"},
		{`{` + match + `,"outcomes":[{"error":{"message":"","type":"x","error_type":1,"retryable":1,"retry_after":5}}]}`,
			"outcomes[0].error.message outcomes[0].error.type outcomes[0].error.error_type outcomes[0].error.retryable outcomes[0].error.retry_after"},
		{`{` + match + `,"outcomes":[{"error":{"message":"m","retry_after":"61m"}}]}`, "outcomes[0].error.retry_after"},
		{`{` + match + `,"outcomes":[{"delay":"-1s"}]}`, "outcomes[0].delay"},
		{`{` + match + `,"outcomes":[{"delay":2}]}`, "outcomes[0].delay"},
		{`{` + match + `,"outcomes":[{"delay":"1000000h"}]}`, "outcomes[0].delay"},
		{`{` + match + `,"outcomes":[{"hang":false}]}`, "outcomes[0].hang"},
		{`{` + match + `,"outcomes":[{"hang":true,"delay":"1s"}]}`, "outcomes[0].hang"},
		{`{` + match + `,"outcomes":[{"fault":"oops"}]}`, "outcomes[0].fault"},
		{`{` + match + `,"outcomes":[{"fault":"worker_lost","result":1}]}`, "outcomes[0].fault"},
		{`{` + match + `,"outcomes":[{"fault":"duplicate_delivery","delay":"1s"}]}`, "outcomes[0].delay"},
	}
	s := newFixtureServer(t, serviceTest{})
	for _, row := range rows {
		for path, body := range map[string]string{"POST": row.body, "PUT": `{"stubs":[{` + match + `,` + outcomes + `},` + row.body + `]}`} {
			before := map[string]string{"PUT": "stubs[1]."}[path]
			a := s.do(path, "/_stepwell/stubs", body).want(422)
			var got []string
			for i := range strings.Count(string(a.body), `"field"`) {
				got = append(got, strings.TrimPrefix(a.text(fmt.Sprintf("error.details.%d.field", i)), before))
			}
			if strings.Join(got, " ") != row.fields {
				t.Errorf("%s %s: got %q; want %q", path, body, got, row.fields)
			}
		}
	}
	s.do("PUT", "/_stepwell/stubs", `{"stub":[]}`).want(422)
	s.do("PUT", "/_stepwell/stubs", `{}`).want(422)
	s.do("PUT", "/_stepwell/stubs", `{"stubs":{}}`).want(422)
	s.do("PUT", "/_stepwell/stubs", `[]`).want(400)
	s.do("POST", "/_stepwell/stubs", `[]`).want(400)
	if got := strings.TrimSpace(string(s.do("GET", "/_stepwell/stubs", "").body)); got != `{"stubs":[]}` {
		t.Errorf("what was refused left %s", got)
	}
}

// TestStubResultsAreLimited checks that a stub cannot play a result that a handler could not
// return.
func TestStubResultsAreLimited(t *testing.T) {
	s := newFixtureServer(t, serviceTest{config: func(c *Config) { c.Worker.MaxResultBytes = 10 }})
	const fits, large = `{"match":{},"outcomes":[{"hang":true},{"result":"12345678"}]}`,
		`{"match":{},"outcomes":[{"hang":true},{"result":"123456789"}]}`
	s.do("POST", "/_stepwell/stubs", fits).want(201)
	s.do("PUT", "/_stepwell/stubs", `{"stubs":[`+fits+`]}`).want(200)
	for method, body := range map[string]string{"POST": large, "PUT": `{"stubs":[` + fits + `,` + large + `]}`} {
		a := s.do(method, "/_stepwell/stubs", body).want(413)
		if !strings.Contains(a.text("error.message"), "worker.max_result_bytes") {
			t.Errorf("%s: got %s; want the limit named", method, a.body)
		}
	}
}

// TestStubTakesWaitingSteps checks that a step that waits for an outside actor is played
// once a stub matches, and waits again when the stub leaves it to the actor.
func TestStubTakesWaitingSteps(t *testing.T) {
	s := frozenServer(t, serviceTest{extra: []string{testTemplate("out", stepSpec{name: "a", callable: "charge",
		retry: `{"max_attempts":5,"backoff":"linear","backoff_base_ms":1000}`})}})
	var ids []string
	for range 3 {
		ids = append(ids, s.create(`{"namespace":"t","name":"out"}`))
	}
	s.stub(`{"match":{"callable":"charge","attempt":2},"outcomes":[{"result":"never"}]}`)
	s.stub(`{"match":{"callable":"charge"},"outcomes":[{"result":1},{"fault":"worker_lost"}],"then":"handler"}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	got := []string{s.status(ids[0]), s.status(ids[1]), s.status(ids[2])}
	if want := "[complete steps_in_process steps_in_process]"; fmt.Sprint(got) != want {
		t.Errorf("the tasks are %v; want %s", got, want)
	}
	if got := s.do("GET", "/v1/steps?callable=charge", "").want(200); strings.Count(string(got.body), "task_uuid") != 2 {
		t.Errorf("for outside actors there is %s; want two steps", got.body)
	}
	c := s.claimOne(`{"callables":["charge"]}`)
	s.testServer.answer(c, "fail", `,"error":{"message":"no"}`).want(200)
	s.clock(`{"advance":"2s"}`).want(200)
	if got := s.status(ids[1]); got != "complete" {
		t.Errorf("attempt 2 by the stub: the task is %s", got)
	}
}

// Stubs through the control API, on the virtual clock.

// handlerLog is an HTTP handler that answers with the number of the call, and records
// the keys of the calls.
type handlerLog struct {
	url  string
	mu   sync.Mutex
	keys []string // guarded by mu
}

func newHandlerLog(t *testing.T) *handlerLog {
	l := &handlerLog{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.keys = append(l.keys, r.Header.Get("Idempotency-Key"))
		fmt.Fprint(w, len(l.keys))
	}))
	t.Cleanup(h.Close)
	l.url = h.URL
	return l
}

func (l *handlerLog) calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.keys...)
}

func (l *handlerLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = nil
}

// TestStubOutcomes plays every outcome and fault on each kind of handler.
func TestStubOutcomes(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	const policy = `{"max_attempts":3,"backoff":"linear","backoff_base_ms":1000}`
	type row struct {
		name, outcomes, then  string
		builtin, web, outside string // the stories; outside "" when it is the builtin's
		calls                 int    // of the HTTP handler
	}
	rows := []row{
		{"result", `[{"result":{"n":1.0}}]`, "", `complete after 1 attempts, 1 deliveries: map[n:1.0]`, "=", "=", 0},
		{"null", `[{"result":null}]`, "", `complete after 1 attempts, 1 deliveries: <nil>`, "=", "=", 0},
		{"permanent", `[{"error":{"message":"no","error_type":"card","retryable":false}}]`, "",
			`error after 1 attempts, 1 deliveries: card`, "=", "=", 0},
		{"retried", `[{"error":{"message":"no"}},{"error":{"message":"no","retry_after":"30s"}},{"result":3}]`, "",
			`complete after 3 attempts, 3 deliveries: handler_error, handler_error, 3`, "=", "=", 0},
		{"last again", `[{"error":{"message":"no"}}]`, "last",
			`error after 3 attempts, 3 deliveries: handler_error, handler_error, handler_error`, "=", "=", 0},
		{"then fail", `[{"error":{"message":"no"}}]`, "fail",
			`error after 2 attempts, 2 deliveries: handler_error, stub_exhausted`, "=", "=", 0},
		{"then handler", `[{"error":{"message":"no"}}]`, "handler",
			`complete after 2 attempts, 2 deliveries: handler_error, 7`, `complete after 2 attempts, 2 deliveries: handler_error, 1`,
			`enqueued after 1 attempts, 1 deliveries: handler_error`, 1},
		{"delay", `[{"delay":"20s"}]`, "", `complete after 1 attempts, 1 deliveries: <nil>`, "=", "=", 0},
		{"delayed error", `[{"delay":"2s","error":{"message":"no"}},{"delay":"1h","result":1},{"delay":"29s","result":3}]`, "",
			`complete after 3 attempts, 3 deliveries: handler_error, timeout, 3`, "=", "=", 0},
		{"hang", `[{"hang":true},{"result":2}]`, "", `complete after 2 attempts, 2 deliveries: timeout, 2`, "=", "=", 0},
		{"worker lost", `[{"fault":"worker_lost"},{"result":2}]`, "", `complete after 1 attempts, 2 deliveries: 2`, "=", "=", 0},
		{"worker lost later", `[{"fault":"worker_lost","delay":"5s"},{"result":2}]`, "",
			`complete after 1 attempts, 2 deliveries: 2`, "=", "=", 0},
		{"worker lost, then handled", `[{"fault":"worker_lost"}]`, "handler", `complete after 1 attempts, 2 deliveries: 7`,
			`complete after 1 attempts, 2 deliveries: 1`, `enqueued after 1 attempts, 1 deliveries: `, 1},
		{"worker lost for good", `[{"fault":"worker_lost"}]`, "",
			`error after 3 attempts, 12 deliveries: worker_lost, worker_lost, worker_lost`, "=", "=", 0},
		{"result lost", `[{"fault":"result_lost"}]`, "handler", `complete after 1 attempts, 2 deliveries: 7`,
			`complete after 1 attempts, 2 deliveries: 2`, `enqueued after 1 attempts, 1 deliveries: `, 2},
		{"stub's result lost", `[{"fault":"result_lost","result":1},{"result":2}]`, "",
			`complete after 1 attempts, 2 deliveries: 2`, "=", "=", 0},
		{"duplicate", `[{"fault":"duplicate_delivery"}]`, "", `complete after 1 attempts, 1 deliveries: 7, late 7`,
			`complete after 1 attempts, 1 deliveries: 1, late 2`, `complete after 1 attempts, 1 deliveries: <nil>, late <nil>`, 2},
		{"duplicate failure", `[{"fault":"duplicate_delivery","error":{"message":"no"}},{"result":2}]`, "",
			`complete after 2 attempts, 2 deliveries: handler_error, late handler_error, 2`, "=", "=", 0},
		{"late", `[{"fault":"late_completion"}]`, "handler", `complete after 2 attempts, 2 deliveries: timeout, late 7, 7`,
			`complete after 2 attempts, 2 deliveries: timeout, late 1, 2`,
			`enqueued after 1 attempts, 1 deliveries: timeout, late <nil>`, 2},
		{"very late", `[{"fault":"late_completion","result":1,"delay":"1m"},{"result":2}]`, "",
			`complete after 2 attempts, 2 deliveries: timeout, 2, late 1`, "=", "=", 0},
	}
	handler := newHandlerLog(t)
	callables := []string{"builtin:sum", handler.url, "charge"}
	s := newFixtureServer(t, serviceTest{extra: []string{
		testTemplate("k0", stepSpec{name: "a", callable: callables[0], config: `{"add":7}`, retry: policy}),
		testTemplate("k1", stepSpec{name: "a", callable: callables[1], retry: policy}),
		testTemplate("k2", stepSpec{name: "a", callable: callables[2], retry: policy}),
	}})
	for _, row := range rows {
		for kind, want := range []string{row.builtin, row.web, row.outside} {
			t.Run(fmt.Sprintf("%s/%s", row.name, []string{"builtin", "http", "outside"}[kind]), func(t *testing.T) {
				s.t = t
				if want == "=" {
					want = row.builtin
				}
				s.do("POST", "/_stepwell/reset", "").want(204)
				s.clock(`{"auto":true}`).want(200)
				then := ""
				if row.then != "" {
					then = fmt.Sprintf(`,"then":%q`, row.then)
				}
				handler.forget()
				s.stub(`{"match":{"namespace":"t"},"outcomes":%s%s}`, row.outcomes, then)
				id := s.create(fmt.Sprintf(`{"namespace":"t","name":"k%d"}`, kind))
				if got := s.story(id); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				keys := handler.calls()
				if kind == 1 && len(keys) != row.calls {
					t.Errorf("the handler was called with %q; want %d calls", keys, row.calls)
				}
				if len(keys) == 2 && (keys[0] == keys[1]) == (row.name == "late") {
					t.Errorf("the handler was called with %q", keys)
				}
			})
		}
	}
}

// sendingScript makes subscribers fail on a deterministic service, and returns its state and what
// was sent.
func sendingScript(t *testing.T, send bool) (state, sent string) {
	s := newFixtureServer(t, serviceTest{
		extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""), published("seen", `,"delivery_mode":"fast"`))},
		config: func(c *Config) {
			subscribed([]string{"a", "http://127.0.0.1:1/", "*"}, []string{"b", "http://127.0.0.1:1/", "paid"})(c)
			c.Fixture.DeterministicIDs, c.Fixture.SendEvents = "seed", send
		},
	})
	s.do("POST", "/_stepwell/stubs", `{"match":{"kind":"delivery"},"then":"fail","outcomes":[{"error":{"message":"one"}},
		{"error":{"message":"two","retry_after":"90s"}},{"delay":"2s"},{"result":1},{"error":{"message":"no","retryable":false}}]}`).want(201)
	s.do("POST", "/_stepwell/clock", `{"auto":true}`).want(200)
	for range 3 {
		s.create(`{"namespace":"t","name":"pay"}`)
	}
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	for _, path := range []string{"/_stepwell/requests?kind=delivery", "/v1/events/deliveries", "/_stepwell/clock"} {
		sent += string(s.do("GET", path, "").want(200).body)
	}
	sent = regexp.MustCompile(`"id":\d+,`).ReplaceAllString(sent, "") // requests that have been answered count too
	return string(s.do("GET", "/_stepwell/state", "").want(200).body), sent
}

// TestStubbedSubscribersAreDeterministic checks that the same script gives the same state and the
// same deliveries, although each subscriber has a goroutine, and that the oldest event goes out
// first.
func TestStubbedSubscribersAreDeterministic(t *testing.T) {
	t.Parallel()
	state, sent := sendingScript(t, false)
	for i, want := range []string{`"attempt":1,"stubbed":true,"stub":"stub-1"`, `"message":"two"`, `"problem":"no"`, "has no outcome left"} {
		if !strings.Contains(sent, want) {
			t.Errorf("%d: %s is missing in %s", i, want, sent)
		}
	}
	for range 5 {
		if again, also := sendingScript(t, false); again != state || also != sent {
			t.Fatalf("got %s\n%s\nthe first time, and then %s\n%s", state, sent, again, also)
		}
	}
}

// TestFixtureSendsNoEvents checks that nothing goes out to a subscriber unless the configuration
// says so, that it does then, and that a stub comes first.
func TestFixtureSendsNoEvents(t *testing.T) {
	t.Parallel()
	for _, send := range []bool{false, true} {
		r := newReceiver(t)
		s := newFixtureServer(t, serviceTest{
			extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""))},
			config: func(c *Config) {
				subscribed([]string{"shop", r.url, "*"})(c)
				c.Fixture.SendEvents = send
			},
		})
		s.create(`{"namespace":"t","name":"pay"}`)
		s.do("POST", "/_stepwell/wait-idle", "").want(200)
		s.do("POST", "/_stepwell/stubs", `{"match":{"kind":"delivery"},"outcomes":[{"result":null}],"then":"handler"}`).want(201)
		s.create(`{"namespace":"t","name":"pay"}`)
		s.do("POST", "/_stepwell/wait-idle", "").want(200)
		if got := len(r.got()); got != boolCount(send) {
			t.Errorf("with %v, the subscriber got %d events", send, got)
		}
		s.do("POST", "/_stepwell/verify", fmt.Sprintf(`{"match":{"kind":"delivery","stubbed":true},"count":{"exactly":%d}}`, 2-boolCount(send))).want(200)
		if list := s.do("GET", "/v1/events/deliveries?status=delivered", "").want(200); list.text("total_count") != "2" {
			t.Errorf("got %s", list.body)
		}
	}
}

// TestWaitIdleKnowsOfSending checks that a service is not idle while an event is being sent, which
// is told, and that a reset does not wait for it.
func TestWaitIdleKnowsOfSending(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan bool, 1), make(chan bool)
	slowly := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- true
		<-release
	}))
	t.Cleanup(slowly.Close)
	t.Cleanup(func() { close(release) })
	s := newFixtureServer(t, serviceTest{
		extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""))},
		config: func(c *Config) {
			subscribed([]string{"shop", slowly.URL, "*"})(c)
			c.Fixture.SendEvents = true
		},
	})
	s.create(`{"namespace":"t","name":"pay"}`)
	<-arrived
	a := s.do("POST", "/_stepwell/wait-idle", `{"timeout":"50ms"}`).want(408)
	if a.text("error.blocking.0.reason") != "sending" || a.text("error.blocking.0.subscriber") != "shop" {
		t.Errorf("got %s", a.body)
	}
	s.do("POST", "/_stepwell/reset", "").want(204)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
}

// stub adds a stub and returns its id.
func (s *fixtureServer) stub(format string, args ...any) string {
	s.t.Helper()
	return s.do("POST", "/_stepwell/stubs", fmt.Sprintf(format, args...)).want(201).text("id")
}

// story returns the history of a task's first step: its state, its attempts and
// deliveries, the audit, oldest entry first, and when it last changed, in seconds after
// the task's creation.
func (s *fixtureServer) story(id string) string {
	s.t.Helper()
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	step := s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
	at := "/v1/tasks/" + id + "/workflow_steps/" + step.text("0.step_uuid")
	audit := s.do("GET", at+"/audit", "").want(200)
	var entries []string
	for i := strings.Count(string(audit.body), `"audit_uuid"`) - 1; i >= 0; i-- {
		p := fmt.Sprintf("%d.", i)
		what := audit.text(p + "result.result")
		if audit.text(p+"success") == "false" {
			what = audit.text(p + "result.error.error_type")
		}
		if !strings.Contains(string(audit.body), `"from_state"`) || audit.get(p+"from_state") == nil {
			what = "late " + what
		}
		entries = append(entries, what)
	}
	starts := strings.Count(string(s.do("GET", "/v1/tasks/"+id+"/transitions", "").want(200).body), `"to_state":"in_progress"`)
	return fmt.Sprintf("%s after %s attempts, %d deliveries: %s", step.text("0.current_state"), step.text("0.attempts"), starts,
		strings.Join(entries, ", "))
}

// TestStubsReadOnce checks that an attempt is compared with all stubs by one reading of its context, and that the matches
// of all stubs are bounded.
func TestStubsReadOnce(t *testing.T) {
	var l stubs
	for i := range 100 {
		f := fieldReader{}
		s := f.stub("", fmt.Appendf(nil, `{"match":{"context":{"a":[1,%d]}},"outcomes":[{"result":1}]}`, i+3))
		noError(t, l.insert([]*stub{s}))
	}
	long := []byte(`{"a":[1,2` + strings.Repeat(",7", 10_000) + `],"b":3}`)
	for _, search := range []func(){
		func() { l.choose(handlerEntry, facts{document: long}) },
		func() { l.mayAct(facts{document: long}) },
	} {
		once := testing.AllocsPerRun(1, func() { newJSONValue(long) })
		if got := testing.AllocsPerRun(1, search); got > 2*once {
			t.Errorf("got %.0f allocations; want about the %.0f of one reading", got, once)
		}
	}
	s := newFixtureServer(t, serviceTest{})
	large := fmt.Sprintf(`{"match":{"context":{"a":%q}},"outcomes":[{"result":1}]}`, strings.Repeat("a", maxStubMatches*2/3))
	s.do("POST", "/_stepwell/stubs", large).want(201)
	if a := s.do("POST", "/_stepwell/stubs", large).want(409); !strings.Contains(a.text("error.message"), "the matches of all stubs") {
		t.Errorf("got %s; want the limit named", a.body)
	}
	s.do("DELETE", "/_stepwell/stubs", "").want(204)
	s.do("POST", "/_stepwell/stubs", large).want(201)
	deep := `{"match":{"context":{"a":[0` + strings.Repeat(",0", 2_000_000) + `]}},"outcomes":[{"result":1}]}`
	if a := s.do("POST", "/_stepwell/stubs", deep).want(422); !strings.Contains(a.text("error.message"), "match.context the decoded value needs") {
		t.Errorf("got %s; want what takes too much", a.body)
	}
}
