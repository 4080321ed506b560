package main

// Stubs, templates at run time, sandboxes and restored states of deterministic
// services.

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// stubsOfSteps is what stubs make of the steps of stubbedTemplate.
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

// stubbedTemplate has a step for each of them, and one without.
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

// stubbed has stubs play steps of a template that is added at run time.
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

// TestSameScriptSandboxes: a sandbox plays as a service of its own with the same
// seed does, again after its reset, and beside another one.
func TestSameScriptSandboxes(t *testing.T) {
	url := whimHandler(t)
	alone := newDeterministicServer(t, url, "seed")
	account := (&player{testServer: alone.testServer, url: url}).play()
	document := string(alone.do("GET", "/_stepwell/state", "").want(200).body)

	host := newDeterministicServer(t, url, "another seed")
	boxes := []*sandboxClient{host.sandbox(`{"deterministic_ids":"seed"}`), host.sandbox(`{"deterministic_ids":"seed"}`)}
	for range 2 {
		for _, box := range boxes {
			wantSame(t, "the account", (&player{testServer: box.testServer, url: url}).play(), account)
			wantSame(t, "the state", string(box.do("GET", "/_stepwell/state", "").want(200).body), document)
		}
		boxes = boxes[:1]
		boxes[0].do("POST", "/_stepwell/reset", "").want(204)
	}
	if got := host.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "0" {
		t.Errorf("the service has %s tasks; want those in its sandboxes alone", got)
	}
}

// TestStubbedBatch: what stubs make of attempts is held with their batch.
func TestStubbedBatch(t *testing.T) {
	url, gates := gatedHandler(t, "a", "b", "c")
	s := newBatchServer(t, stepSpec{name: "a", callable: url + "/a"}, stepSpec{name: "b", callable: url + "/b"},
		stepSpec{name: "c", callable: url + "/c"}, stepSpec{name: "d", callable: url + "/never"},
		stepSpec{name: "e", callable: url + "/never", retry: `{"retryable":false}`})
	s.stub(`{"match":{"step":"b"},"outcomes":[{"fault":"duplicate_delivery"}]}`)
	s.stub(`{"match":{"step":"c"},"outcomes":[{"fault":"result_lost"}],"then":"handler"}`)
	s.stub(`{"match":{"step":"d"},"outcomes":[{"result":1}]}`)
	s.stub(`{"match":{"step":"e"},"outcomes":[{"delay":"1s"}]}`)
	id := s.create(`{"namespace":"t","name":"batch"}`)
	s.awaitHeld(1)
	close(gates["/c"])
	s.awaitHeld(2)
	close(gates["/b"])
	s.awaitHeld(4) // both deliveries
	if got := s.ends(id); len(got) > 0 {
		t.Errorf("%v is recorded while a handler of the batch runs", got)
	}
	close(gates["/a"])
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	if got, want := s.ends(id), []string{"a", "b", "d", "c"}; !slices.Equal(got, want) {
		t.Errorf("ended in the order %v; want %v: c is delivered again in the next batch", got, want)
	}
	s.clock(`{"advance":"1s"}`).want(200)
	s.await(id, "complete")
	wantFreeSlots(t, s.world.service())
}

// TestCancelledStubbedBatch: a task that fails in its batch leaves no delay behind.
func TestCancelledStubbedBatch(t *testing.T) {
	url, gates := gatedHandler(t, "a")
	s := newBatchServer(t, stepSpec{name: "a", callable: url + "/a"})
	s.stub(`{"match":{"step":"a"},"outcomes":[{"fault":"result_lost","delay":"1m"}],"then":"handler"}`)
	id := s.create(`{"namespace":"t","name":"batch"}`)
	close(gates["/a"])
	s.do("DELETE", "/v1/tasks/"+id, "").want(200)
	if got := s.clock(`{"advance":"1h"}`).want(200).text("fired"); got != "0" {
		t.Errorf("%s timers fired after the end", got)
	}
	wantFreeSlots(t, s.world.service())
}

// TestDeterministicClock: a sandbox with a seed stands still at the same instant
// as a service with one, unless a document says otherwise.
func TestDeterministicClock(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: sandboxTemplates})
	box := s.sandbox(`{"deterministic_ids":"a"}`)
	wantClock(t, box, "frozen", deterministicStart)
	later := deterministicStart.add(72 * time.Hour)
	box.do("PUT", "/_stepwell/state", frozenAt(later)).want(204)
	wantClock(t, box, "frozen", later)
	box.clock(`{"auto":true}`).want(200)
	box.do("PUT", "/_stepwell/state", `{"format":1}`).want(204)
	wantClock(t, box, "frozen", deterministicStart)
	box.do("POST", "/_stepwell/reset", "").want(204)
	wantClock(t, box, "frozen", deterministicStart)

	seeded := s.sandbox(`{"deterministic_ids":"a","seed":%s}`, frozenAt(later))
	wantClock(t, seeded, "frozen", later)
	seeded.clock(`{"advance":"1h"}`).want(200)
	seeded.do("POST", "/_stepwell/reset", "").want(204)
	wantClock(t, seeded, "frozen", later)
	id, _ := parseUUID(seeded.create(`{"namespace":"t","name":"quick"}`))
	if got, want := id.millis(), uint64(later)/1000; got != want || id.blockNumber() != 1 {
		t.Errorf("the first id is %s, of %d ms; want block 1 at %d ms", id, got, want)
	}
}

func wantClock(t *testing.T, s *sandboxClient, mode string, at instant) {
	t.Helper()
	if got := s.do("GET", "/_stepwell/clock", "").want(200); got.text("mode") != mode || got.text("now") != at.zoned() {
		t.Errorf("the clock is %s; want it %s at %s", got.body, mode, at.zoned())
	}
}
