package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// whimHandler answers after a random time, by path: /ok with the number of the attempt, /fails2
// in the same way from the third attempt on, /never with an error, /choose with a decision.
func whimHandler(t testing.TB) string {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(rand.N(8 * time.Millisecond)):
		case <-r.Context().Done():
		}
		_, attempt, _ := strings.Cut(r.Header.Get("Idempotency-Key"), ":")
		switch {
		case r.URL.Path == "/fails2" && attempt < "3":
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		case r.URL.Path == "/never":
			http.Error(w, "no", http.StatusBadRequest)
		case r.URL.Path == "/choose":
			fmt.Fprint(w, `{"type":"create_steps","step_names":["left","right"]}`)
		default:
			fmt.Fprintf(w, `{"attempt":%s}`, attempt)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// whimTemplates returns templates with steps of every kind, run by handlers at a URL.
func whimTemplates(url string) []string {
	fan := []stepSpec{{name: "start", callable: "builtin:noop"}}
	join := stepSpec{name: "join", callable: "builtin:sum"}
	for i := range 8 {
		s := stepSpec{name: fmt.Sprintf("s%d", i), callable: url + "/ok", after: []string{"start"}}
		switch i % 4 {
		case 1:
			s.callable = "builtin:echo"
		case 2:
			s.callable, s.retry = url+"/fails2", `{"max_attempts":4,"backoff":"exponential","backoff_base_ms":1000}`
		case 3:
			s.callable, s.config = "builtin:flaky", `{"failures":1}`
			s.retry = `{"max_attempts":3,"backoff":"none"}`
		}
		fan, join.after = append(fan, s), append(join.after, s.name)
	}
	return []string{
		testTemplate("fan", append(fan, join)...),
		testTemplate("chain", stepSpec{name: "a", callable: url + "/ok"},
			stepSpec{name: "b", callable: "builtin:sleep", config: `{"duration_ms":1500}`, after: []string{"a"}},
			stepSpec{name: "c", callable: url + "/ok", after: []string{"b"}}),
		testTemplate("dead", stepSpec{name: "a", callable: url + "/never"}, stepSpec{name: "b", callable: url + "/ok"},
			stepSpec{name: "c", callable: "builtin:noop"}, stepSpec{name: "d", callable: "builtin:noop", after: []string{"c"}}),
		testTemplate("choice", stepSpec{name: "d", callable: url + "/choose", kind: stepDecision},
			stepSpec{name: "left", callable: url + "/ok", after: []string{"d"}},
			stepSpec{name: "right", callable: "builtin:noop", after: []string{"d"}},
			stepSpec{name: "end", callable: url + "/ok", kind: stepDeferredConvergence, after: []string{"left", "right"}}),
		testTemplate("batches", stepSpec{name: "split", callable: "builtin:batch", kind: stepBatchable,
			config: `{"worker_template_name":"w","total_items":5,"batch_size":1}`},
			stepSpec{name: "w", callable: url + "/ok", kind: stepBatchWorker, after: []string{"split"}},
			stepSpec{name: "end", callable: "builtin:noop", kind: stepDeferredConvergence, after: []string{"w"}}),
		testTemplate("outside", stepSpec{name: "before", callable: url + "/ok"},
			stepSpec{name: "pack", callable: "Shop::Pack", retry: `{"max_attempts":3,"backoff_base_ms":500}`, after: []string{"before"}},
			stepSpec{name: "after", callable: url + "/ok", after: []string{"pack"}}),
	}
}

// player plays a script on one service.
type player struct {
	*testServer
	url   string              // of the handlers
	reads func(s *testServer) // between the steps of the script; nil for none
}

func (p *player) clock(body string) {
	p.t.Helper()
	p.do("POST", "/_stepwell/clock", body).want(200)
	p.idle()
}

func (p *player) idle() {
	p.t.Helper()
	p.do("POST", "/_stepwell/wait-idle", "").want(200)
}

func (p *player) make(names ...string) (ids []string) {
	p.t.Helper()
	for i, name := range names {
		if p.reads != nil {
			p.reads(p.testServer)
		}
		ids = append(ids, p.create(fmt.Sprintf(`{"namespace":"t","name":%q,"priority":%d,"context":{"n":%d}}`, name, i%3, i)))
	}
	return ids
}

// stepIDs returns the ids of a task's steps by name.
func (p *player) stepIDs(task string) map[string]string {
	p.t.Helper()
	var steps []struct {
		UUID string `json:"step_uuid"`
		Name string `json:"name"`
	}
	noError(p.t, json.Unmarshal(p.do("GET", "/v1/tasks/"+task+"/workflow_steps", "").want(200).body, &steps))
	ids := map[string]string{}
	for _, s := range steps {
		ids[s.Name] = s.UUID
	}
	return ids
}

// play does one thing after another, without waiting for the effects, and returns everything
// that the API shows at the end.
func (p *player) play() string {
	p.t.Helper()
	p.make("fan", "chain", "fan", "batches", "choice")
	p.clock(`{"advance":"1s"}`)
	dead := p.make("dead", "fan", "outside", "outside")
	p.do("POST", "/v1/tasks", `{"namespace":"t","name":"nothing"}`).want(404)
	p.idle()
	p.letters(dead[0])
	p.outside()
	cancelled := p.make("chain", "fan")
	p.do("DELETE", "/v1/tasks/"+cancelled[0], "").want(200)
	p.clock(`{"advance_to_next":true}`)
	p.make("batches", "dead", "choice", "outside")
	p.clock(`{"auto":true}`)
	p.make("chain", "fan", "batches")
	p.idle()
	p.clock(`{"freeze":true}`)
	p.make("fan", "chain")
	p.stubbed()
	p.clock(`{"advance":"3h"}`) // the detector of stale tasks runs meanwhile
	return p.account()
}

// letters lets an operator handle a failed task.
func (p *player) letters(task string) {
	p.t.Helper()
	entry := p.do("GET", "/v1/dlq", "").want(200).text("0.dlq_entry_uuid")
	p.do("PATCH", "/v1/dlq/entry/"+entry, `{"resolution_status":"ManuallyResolved","resolution_notes":"by hand","resolved_by":"op"}`).want(200)
	at := "/v1/tasks/" + task + "/workflow_steps/" + p.stepIDs(task)["a"]
	p.do("PATCH", at, `{"action_type":"reset_for_retry","reason":"again","reset_by":"op"}`).want(200)
	p.do("PATCH", at, `{"action_type":"resolve_manually","reason":"enough","resolved_by":"op"}`).want(200)
}

// outside lets actors claim steps: one completes its step, one fails it, and one that has been
// waiting gets a step and never answers.
func (p *player) outside() {
	p.t.Helper()
	first := p.claimOne(anyOne)
	second := p.claimOne(anyOne)
	var wg sync.WaitGroup
	wg.Go(func() { p.claimOne(`{"callables":["*"],"worker_id":"w9","wait_seconds":20,"lease_seconds":60}`) })
	eventually(p.t, "an actor waits", func() bool {
		return strings.Contains(string(p.do("GET", "/metrics", "").body), "\nstepwell_claimers_waiting 1\n")
	})
	p.make("outside")
	wg.Wait()
	p.answer(first, "complete", `,"result":{"ok":1}`).want(200)
	p.answer(second, "fail", `,"error":{"message":"broken"}`).want(200)
	p.clock(`{"advance":"90s"}`) // the lease expires, and the retry is due
	for _, c := range p.claim(anyTen) {
		p.answer(c, "complete", `,"result":2`).want(200)
	}
}

// account returns everything that the API shows of the tasks.
func (p *player) account() string {
	p.t.Helper()
	p.idle()
	var b bytes.Buffer
	tell := func(path string) *answer {
		a := p.do("GET", path, "").want(200)
		fmt.Fprintf(&b, "%s\n%s\n", path, a.body)
		return a
	}
	var list struct {
		Tasks []struct {
			UUID string `json:"task_uuid"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(tell("/v1/tasks?per_page=100").body, &list); err != nil || len(list.Tasks) == 0 {
		p.t.Fatalf("the list has %d tasks, %v", len(list.Tasks), err)
	}
	moves := 0
	for _, task := range list.Tasks {
		at := "/v1/tasks/" + task.UUID
		tell(at)
		moves += strings.Count(string(tell(at+"/transitions").body), `"to_state"`)
		tell(at + "/explain")
		tell(at + "/summary")
		var steps []struct {
			UUID string `json:"step_uuid"`
		}
		if err := json.Unmarshal(tell(at+"/workflow_steps").body, &steps); err != nil || len(steps) == 0 {
			p.t.Fatalf("the task has %d steps, %v", len(steps), err)
		}
		for _, s := range steps {
			tell(at + "/workflow_steps/" + s.UUID + "/audit")
		}
	}
	for _, path := range []string{"/v1/dlq", "/v1/dlq/stats", "/v1/dlq/staleness", "/v1/dlq/investigation-queue",
		"/v1/analytics/performance", "/v1/analytics/bottlenecks", "/v1/analytics/history", "/_stepwell/clock"} {
		tell(path)
	}
	stream := p.openStream("?after=0")
	for n := 0; n < moves; {
		if event := readBlock(p.t, stream); strings.Contains(event, "\ndata:") { // others only mark the place
			b.WriteString(event)
			n++
		}
	}
	return b.String()
}

func newDeterministicServer(t testing.TB, url, seed string) *fixtureServer {
	return newFixtureServer(t, serviceTest{extra: whimTemplates(url), config: func(c *Config) {
		c.Fixture.DeterministicIDs = seed
		c.Worker.HTTPConcurrency, c.Worker.Concurrency = 6, 4 // less than is ready at times
	}})
}

// wantSame fails the test at the first line that differs.
func wantSame(t *testing.T, what, got, want string) {
	t.Helper()
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d:\n%.3000s\nthe first time:\n%.3000s", what, i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%s: %d lines; the first time %d", what, len(a), len(b))
	}
}

var scriptPlays = flag.Int("script-plays", pick(wire.RaceDetector(), 2, size(1, 2)), "plays of the script of TestSameScriptSameState")

// TestSameScriptSameState plays a script on several services, again after a reset, and with
// reads in between.
func TestSameScriptSameState(t *testing.T) {
	t.Parallel()
	slow(t)
	url := whimHandler(t)
	var document, account string
	first := 0
	if wire.RaceDetector() {
		first = 1 // the play with reads in between, beside which nothing else is new to the detector
	}
	for n := first; n < *scriptPlays; n++ {
		s := newDeterministicServer(t, url, "seed")
		p := &player{testServer: s.testServer, url: url}
		var storm *getStorm
		if n%2 == 1 {
			storm = startGetStorm(s.testServer)
		}
		for _, what := range []string{"fresh", "after a reset"} {
			a, d := p.play(), s.document()
			if document == "" {
				account, document = a, d
			}
			wantSame(t, "the state, "+what, d, document)
			wantSame(t, "the account, "+what, a, account)
			s.do("POST", "/_stepwell/reset", "").want(204)
		}
		if storm != nil {
			storm.end()
		}
	}
	other := newDeterministicServer(t, url, "another seed")
	(&player{testServer: other.testServer, url: url}).play()
	if got := other.document(); got == document {
		t.Error("another seed gives the same state")
	}
}

// getStorm sends reads without pause.
type getStorm struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	reads  atomic.Int64
}

func startGetStorm(s *testServer) *getStorm {
	ctx, cancel := context.WithCancel(s.t.Context())
	storm := &getStorm{cancel: cancel}
	for range 2 {
		storm.wg.Go(func() {
			for ctx.Err() == nil {
				for _, path := range []string{"/v1/tasks", "/v1/steps", "/v1/dlq", "/v1/tasks/00000000-0000-7000-8000-000000000000",
					"/metrics", "/v1/analytics/performance", "/_stepwell/clock", "/v1/templates"} {
					s.do("GET", path, "")
					storm.reads.Add(1)
				}
			}
		})
	}
	return storm
}

func (g *getStorm) end() {
	g.cancel()
	g.wg.Wait()
}

// TestBatchOrder ends handlers in reverse order and a builtin at once: all outcomes are
// recorded by task and step when the last handler has ended.
func TestBatchOrder(t *testing.T) {
	url, gates := gatedHandler(t, "a", "b", "c")
	s := newBatchServer(t, stepSpec{name: "a", callable: url + "/a"}, stepSpec{name: "b", callable: url + "/b"},
		stepSpec{name: "quick", callable: "builtin:noop"}, stepSpec{name: "c", callable: url + "/c"},
		stepSpec{name: "next", callable: "builtin:noop", after: []string{"quick"}})
	id := s.create(`{"namespace":"t","name":"batch"}`)
	for i, name := range []string{"/c", "/b", "/a"} {
		if got := s.ends(id); len(got) > 0 {
			t.Errorf("%v is recorded after %d handlers of 3 ended", got, i)
		}
		close(gates[name])
		if i < 2 {
			s.awaitHeld(i + 2) // the builtin, too
		}
	}
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	if got, want := s.ends(id), []string{"a", "b", "quick", "c", "next"}; !slices.Equal(got, want) {
		t.Errorf("ended in the order %v; want %v", got, want)
	}
}

// Stubs, templates at run time, sandboxes and restored states of deterministic
// services.

// stubsOfSteps are stubs for the steps of stubbedTemplate.
var stubsOfSteps = []struct{ step, outcomes, then string }{
	{"instant", `[{"error":{"message":"no"}},{"result":1}]`, "last"},
	{"soon", `[{"delay":"2s","result":2}]`, "last"},
	{"hangs", `[{"hang":true}]`, "handler"},
	{"vanishes", `[{"fault":"worker_lost"},{"fault":"worker_lost","delay":"1s"}]`, "handler"},
	{"loses", `[{"fault":"result_lost"},{"fault":"result_lost","delay":"1s"}]`, "handler"},
	{"twice", `[{"fault":"duplicate_delivery"}]`, "last"},
	{"late", `[{"fault":"late_completion"}]`, "handler"},
	{"doubled", `[{"fault":"duplicate_delivery"}]`, "last"},
	{"actor", `[{"fault":"late_completion","delay":"1s"},{"result":3}]`, "last"},
}

// stubbedTemplate returns a template with a step for each stub, and one without.
func stubbedTemplate(url string) string {
	const retry = `{"max_attempts":3,"backoff":"linear","backoff_base_ms":1000}`
	callables := map[string]string{"doubled": "builtin:echo", "actor": "Shop::Pack"}
	steps := []stepSpec{{name: "plain", callable: url + "/ok"}}
	join := stepSpec{name: "join", callable: "builtin:noop"}
	for _, s := range stubsOfSteps {
		callable := callables[s.step]
		if callable == "" {
			callable = url + "/ok"
		}
		steps = append(steps, stepSpec{name: s.step, callable: callable, retry: retry, after: []string{"plain"}})
		join.after = append(join.after, s.step)
	}
	return testTemplate("stubbed", append(steps, join)...)
}

// stubbed adds a template at run time and plays its steps by stubs.
func (p *player) stubbed() {
	p.t.Helper()
	p.do("POST", "/_stepwell/templates", stubbedTemplate(p.url)).want(201)
	for _, s := range stubsOfSteps {
		p.do("POST", "/_stepwell/stubs", fmt.Sprintf(`{"match":{"name":"stubbed","step":%q},"outcomes":%s,"then":%q}`,
			s.step, s.outcomes, s.then)).want(201)
	}
	ids := p.make("stubbed", "fan", "stubbed")
	p.clock(`{"advance":"1s"}`)
	ids = append(ids, p.make("stubbed")...)
	p.clock(`{"advance":"1h"}`)
	for _, id := range ids {
		p.await(id, "complete")
	}
}

// document returns the state of a service.
func (s *fixtureServer) document() string {
	s.t.Helper()
	var b bytes.Buffer
	svc := s.world.service()
	noError(s.t, svc.store.export(svc.store.cut(), &b))
	return b.String()
}
