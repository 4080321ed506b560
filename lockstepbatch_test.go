package main

// Batches, one by one: what is recorded when, what has to wait, and what
// happens when something is in the way.

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// gatedHandler answers a call to /name when the channel of that name says so.
func gatedHandler(t testing.TB, names ...string) (url string, gates map[string]chan struct{}) {
	gates = map[string]chan struct{}{}
	for _, name := range names {
		gates["/"+name] = make(chan struct{})
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or its context would not end with the call
		select {
		case <-gates[r.URL.Path]:
			fmt.Fprint(w, `1`)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(h.Close)
	return h.URL, gates
}

// ends are the steps of a task in the order in which their attempts ended.
func (s *testServer) ends(id string) (names []string) {
	s.t.Helper()
	var v struct {
		Transitions []struct {
			StepName *string `json:"step_name"`
			ToState  string  `json:"to_state"`
		} `json:"transitions"`
	}
	if err := json.Unmarshal(s.do("GET", "/v1/tasks/"+id+"/transitions", "").want(200).body, &v); err != nil {
		s.t.Fatal(err)
	}
	for _, m := range v.Transitions {
		if m.StepName != nil && m.ToState == stepComplete.String() {
			names = append(names, *m.StepName)
		}
	}
	return names
}

func newBatchServer(t *testing.T, steps ...stepSpec) *fixtureServer {
	t.Helper()
	return newFixtureServer(t, serviceTest{
		config: func(c *Config) { c.Fixture.DeterministicIDs = "batches" },
		extra:  []string{testTemplate("batch", steps...), testTemplate("quick", stepSpec{name: "a", callable: "builtin:noop"})},
	})
}

// TestBatchOrder: handlers end in the reverse order, a builtin at once; all is
// recorded by task and step, when the last has ended.
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

// awaitHeld waits until so many outcomes are held.
func (s *fixtureServer) awaitHeld(n int) {
	s.t.Helper()
	e := s.world.service().engine
	eventually(s.t, fmt.Sprintf("%d outcomes are held", n), func() bool {
		e.store.mu.Lock()
		defer e.store.mu.Unlock()
		return len(e.lockstep.ended) == n
	})
}

// TestChangesWaitForTheBatch, and give up when it takes too long, leaving no
// trace; reads do not.
func TestChangesWaitForTheBatch(t *testing.T) {
	url, gates := gatedHandler(t, "a")
	s := newBatchServer(t, stepSpec{name: "a", callable: url + "/a"})
	k := s.world.service().keeper
	id := s.create(`{"namespace":"t","name":"batch"}`)
	k.patience = 20 * time.Millisecond
	at := "/v1/tasks/" + id + "/workflow_steps/" + (&player{testServer: s.testServer}).stepIDs(id)["a"]
	for _, change := range []struct{ method, path, body string }{
		{"POST", "/v1/tasks", `{"namespace":"t","name":"quick"}`},
		{"DELETE", "/v1/tasks/" + id, ""},
		{"PATCH", at, `{"action_type":"cancel","reason":"r","cancelled_by":"me"}`},
		{"POST", "/v1/steps/claim", anyOne},
		{"POST", "/_stepwell/stubs", `{"match":{},"outcomes":[{"result":1}]}`},
		{"DELETE", "/_stepwell/stubs", ""},
	} {
		a := s.do(change.method, change.path, change.body).want(503)
		if a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), "longer than 20ms") {
			t.Errorf("%s %s: got %s, Retry-After %q", change.method, change.path, a.body, a.header.Get("Retry-After"))
		}
	}
	k.patience = time.Minute
	created := make(chan string, 1)
	go func() { created <- s.create(`{"namespace":"t","name":"quick"}`) }()
	if got := s.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "1" {
		t.Errorf("there are %s tasks while a batch is in flight; want 1", got)
	}
	close(gates["/a"])
	second, _ := parseUUID(<-created)
	if second.blockNumber() != 2 {
		t.Errorf("the second task has the id %s, of block %d; want 2: a refused creation takes none", second, second.blockNumber())
	}
	s.await(second.String(), "complete")
	if got := s.ends(id); len(got) != 1 {
		t.Errorf("%v has ended; want the first task's step before the second was created", got)
	}
}

// TestCallingBack: a handler that changes something in its own batch is refused,
// rather than held up for ever.
func TestCallingBack(t *testing.T) {
	var s *fixtureServer
	answered := make(chan int, 1)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered <- s.do("POST", "/v1/tasks", `{"namespace":"t","name":"quick"}`).status
		fmt.Fprint(w, `1`)
	}))
	t.Cleanup(h.Close)
	s = newBatchServer(t, stepSpec{name: "a", callable: h.URL})
	s.world.service().keeper.patience = 50 * time.Millisecond
	id := s.create(`{"namespace":"t","name":"batch"}`)
	if got := <-answered; got != 503 {
		t.Errorf("got %d; want 503", got)
	}
	s.await(id, "complete")
}

// TestBatchRests: a deterministic service at rest does nothing at all.
func TestBatchRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeterministicWorld(t)
		mustCreate(t, s, "slow")
		synctest.Wait() // which a service that is busy with itself never ends
		if err := s.keeper.setMode(t.Context(), clockAuto); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := s.clock.now(), deterministicStart.add(time.Second); got != want {
			t.Errorf("the clock is at %s; want %s, when the delay was over", got.zoned(), want.zoned())
		}
		if err := abort(s); err != nil {
			t.Error(err)
		}
	})
}

// newDeterministicWorld is a deterministic service with its timekeeper, without
// a listener.
func newDeterministicWorld(t *testing.T) *service {
	t.Helper()
	c := newVirtualClock(deterministicStart)
	s := openTestService(t, serviceTest{clock: c, config: func(c *Config) { c.Fixture.DeterministicIDs = "rest" },
		extra: []string{sleepTemplate("slow", "1s")}})
	s.keeper = newTimekeeper(s, c)
	return s
}

// TestHeldBatch: a disk without room holds a batch up, in its order.
func TestHeldBatch(t *testing.T) {
	url, gates := gatedHandler(t, "a", "b")
	disk := newMemDisk()
	s := newTestServer(t, serviceTest{
		clock: newVirtualClock(deterministicStart), disk: disk, dir: "/data", log: io.Discard,
		config: func(c *Config) { c.Fixture.DeterministicIDs = "held" },
		extra:  []string{testTemplate("batch", stepSpec{name: "a", callable: url + "/a"}, stepSpec{name: "b", callable: url + "/b"})},
	})
	id := s.create(`{"namespace":"t","name":"batch"}`)
	disk.setCapacity(1 << 40)
	free, err := disk.free("/data")
	if err != nil {
		t.Fatal(err)
	}
	disk.setCapacity(1<<40 - free)
	filler := `{"namespace":"t","name":"batch","context":{"a":"` + strings.Repeat("x", 900_000) + `"}}`
	for range 40 {
		if _, err = parseAndCreate(s.svc, filler); err != nil {
			break
		}
	}
	if kindOf(err) != unavailable {
		t.Fatalf("got %v on a full disk; want unavailable", err)
	}
	close(gates["/b"])
	close(gates["/a"])
	awaitReal(t, "an outcome that cannot be recorded", func() bool {
		s.svc.store.mu.Lock()
		defer s.svc.store.mu.Unlock()
		l := s.svc.engine.lockstep
		return l.open && l.waiting == 0
	})
	disk.setCapacity(1 << 40)
	s.await(id, "complete")
	if got, want := s.ends(id), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("ended in the order %v; want %v", got, want)
	}
}
