package main

// Sandboxes: each is an independent service, and leaves nothing when it is deleted.

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// sandboxClient talks to one sandbox.
type sandboxClient struct {
	*fixtureServer // on its orchestration address
	view           sandboxView
	worker, mount  *testServer
}

var sandboxTemplates = []string{
	sleepTemplate("hour", time.Hour),
	testTemplate("retried", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
		retry: `{"max_attempts":3,"backoff_base_ms":60000}`}),
	testTemplate("quick", stepSpec{name: "a", callable: "builtin:noop"}),
}

// TestSandboxesHaveNone checks that a sandbox has no sandboxes.
func TestSandboxesHaveNone(t *testing.T) {
	c := newFixtureServer(t, serviceTest{}).sandbox(`{"name":"one"}`)
	for _, request := range []string{"POST /_stepwell/sandboxes", "GET /_stepwell/sandboxes",
		"GET /_stepwell/sandboxes/one", "DELETE /_stepwell/sandboxes/one"} {
		method, path, _ := strings.Cut(request, " ")
		if got := c.do(method, path, "").want(409).text("error.message"); !strings.Contains(got, `sandbox "one"`) {
			t.Errorf("%s: got %q; want the sandbox's name", request, got)
		}
	}
}

// TestSandboxSeed checks that a sandbox starts with a state, and resets to it, whether it is given as a text or as an array
// of the objects of its lines.
func TestSandboxSeed(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: sandboxTemplates})
	s.clock(`{"freeze":true}`).want(200)
	id := s.create(`{"namespace":"t","name":"retried"}`)
	want := sameHistory(string(s.do("GET", "/_stepwell/state", "").want(200).body))
	s.sandbox(`{"seed":[%s]}`, strings.ReplaceAll(strings.TrimSpace(want), "\n", ","))
	c := s.sandbox(`{"seed":%s}`, seedOf(want))
	if got := sameHistory(string(c.do("GET", "/_stepwell/state", "").body)); got != want {
		t.Errorf("the state is\n%s\nwant\n%s", got, want)
	}
	for range 2 {
		c.clock(`{"advance":"10m"}`).want(200)
		if got := c.do("GET", "/v1/tasks/"+id, "").text("status"); got != "blocked_by_failures" {
			t.Errorf("the task is %s; want every retry to have happened", got)
		}
		c.do("POST", "/_stepwell/reset", "").want(204)
		if got := sameHistory(string(c.do("GET", "/_stepwell/state", "").body)); got != want {
			t.Errorf("after a reset the state is\n%s\nwant\n%s", got, want)
		}
	}
	if got := s.do("GET", "/v1/tasks/"+id, "").text("status"); got != "waiting_for_retry" {
		t.Errorf("outside the task is %s; want it to wait", got)
	}
	bad := strings.Replace(want, `"state":"waiting_for_retry"`, `"state":"complete"`, 1)
	a := s.do("POST", "/_stepwell/sandboxes", `{"seed":`+seedOf(unsealed(bad))+`}`).want(422)
	a.wantText("error.details.0.field", "seed")
	if got := a.text("error.message"); !strings.Contains(got, "but its log gives") {
		t.Errorf("a bad seed: got %s", got)
	}
}

// TestSandboxAuthentication checks that a sandbox accepts the credentials of the service, and
// counts them itself.
func TestSandboxAuthentication(t *testing.T) {
	key := apiKeyConfig{Key: "a-key-for-everything", Permissions: allWildcards()}
	s := newFixtureServer(t, serviceTest{config: func(c *Config) {
		for _, a := range []*authConfig{&c.Orchestration.Web.Auth, &c.Worker.Web.Auth} {
			a.Enabled, a.APIKeysEnabled, a.APIKeys = true, true, []apiKeyConfig{key}
			a.JWTPublicKey = publicPEM(t, authKeys().rsa)
		}
	}})
	s.do("POST", "/_stepwell/sandboxes", "").want(401)
	refusals := func() string { return authFigures(string(s.do("GET", "/metrics", "").body)) }
	var v sandboxView
	noError(t, json.Unmarshal(s.as(key.Key, "POST", "/_stepwell/sandboxes").want(201).body, &v))
	before := refusals()
	box := &testServer{t: t, url: v.OrchestrationURL}
	for _, path := range []string{"/v1/tasks", "/_stepwell/clock", "/stepwell/tasks"} {
		box.do("GET", path, "").want(401)
	}
	(&testServer{t: t, url: v.WorkerURL}).do("GET", "/v1/templates", "").want(401)
	r, _ := http.NewRequest("GET", v.OrchestrationURL+"/v1/tasks", nil)
	r.Header.Set("X-API-Key", key.Key)
	resp := must(http.DefaultClient.Do(r))(t)
	readAnswer(t, resp).want(200)
	if got := refusals(); got != before {
		t.Errorf("the figures of the service are\n%s\nwant what they were:\n%s", got, before)
	}
	if own := authFigures(string(box.do("GET", "/metrics", "").body)); own == before {
		t.Error("the sandbox counted nobody")
	}
}

func authFigures(text string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "stepwell_auth_") && !strings.HasSuffix(line, " 0\n") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// freePorts returns the first of n consecutive free ports.
func freePorts(t *testing.T, n int) (low int) {
	t.Helper()
	for range 100 {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		low, open := l.Addr().(*net.TCPAddr).Port, []net.Listener{l}
		for i := 1; i < n; i++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", low+i))
			if err != nil {
				break
			}
			open = append(open, l)
		}
		for _, l := range open {
			l.Close()
		}
		if len(open) == n {
			return low
		}
	}
	t.Fatal("no free ports in a row")
	return 0
}

// TestSandboxPorts checks that sandboxes take the ports of a range, which can be
// exhausted and reused.
func TestSandboxPorts(t *testing.T) {
	low := freePorts(t, 5)
	taken := must(net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", low+1)))(t)
	defer taken.Close()
	s := newFixtureServer(t, serviceTest{config: func(c *Config) {
		c.Fixture.PortRange = fmt.Sprintf("%d-%d", low, low+4)
	}})
	ports := func(c *sandboxClient) [2]string { return [2]string{c.view.OrchestrationURL, c.view.WorkerURL} }
	at := func(i int) string { return fmt.Sprintf("http://127.0.0.1:%d", low+i) }
	first, second := s.sandbox(""), s.sandbox("")
	if got, want := [][2]string{ports(first), ports(second)}, [][2]string{{at(0), at(2)}, {at(3), at(4)}}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	a := s.do("POST", "/_stepwell/sandboxes", `{"name":"late"}`).want(503)
	if got := a.text("error.message"); !strings.Contains(got, fmt.Sprintf("fixture.port_range, %d-%d", low, low+4)) {
		t.Errorf("got %q; want the range in it", got)
	}
	s.deleteSandbox(first)
	if got, want := ports(s.sandbox(`{"name":"late"}`)), [2]string{at(0), at(2)}; got != want {
		t.Errorf("after one was deleted: got %q; want %q", got, want)
	}
}

// TestSandboxPublicHost checks that a sandbox is announced, and reached, by this
// machine's public name.
func TestSandboxPublicHost(t *testing.T) {
	s := newFixtureServer(t, serviceTest{config: func(c *Config) { c.Fixture.PublicHost = "stepwell.test" }})
	var v sandboxView
	noError(t, json.Unmarshal(s.do("POST", "/_stepwell/sandboxes", "").want(201).body, &v))
	for _, url := range []string{v.OrchestrationURL, v.WorkerURL, v.MountURL} {
		if !strings.HasPrefix(url, "http://stepwell.test:") {
			t.Errorf("got %s; want the public host", url)
		}
	}
	box, _ := s.world.boxes.get(v.Name)
	for host, want := range map[string]int{"stepwell.test": 200, "elsewhere.test": 421} {
		r, _ := http.NewRequest("GET", box.servers[0].url()+"/_stepwell/clock", nil)
		r.Host = host
		resp := must(http.DefaultClient.Do(r))(t)
		readAnswer(t, resp).want(want)
	}
}

// TestSandboxLimit checks how many sandboxes may exist.
func TestSandboxLimit(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	for i := range maxSandboxes {
		must(s.world.boxes.reserve(fmt.Sprintf("n%d", i)))(t)
	}
	s.do("POST", "/_stepwell/sandboxes", "").want(503)
	s.world.boxes.forget(&sandbox{view: sandboxView{Name: "n7"}})
	s.do("POST", "/_stepwell/sandboxes", "").want(201)
}

// TestSandboxDeletion checks that a deletion cuts off everything that the sandbox does.
func TestSandboxDeletion(t *testing.T) {
	began, cut := make(chan struct{}), make(chan struct{})
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then does the server notice that its client has gone
		close(began)
		<-r.Context().Done()
		close(cut)
	}))
	t.Cleanup(handler.Close)
	s := newFixtureServer(t, serviceTest{extra: append(sandboxTemplates,
		testTemplate("call", stepSpec{name: "a", callable: handler.URL, timeout: 60}))})
	c := s.sandbox("")
	id := c.create(`{"namespace":"t","name":"call"}`)
	<-began
	box, _ := s.world.boxes.get(c.view.Name)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		if resp, err := http.Get(c.url + "/v1/tasks/" + id + "?wait=terminal&timeout=60s"); err == nil {
			resp.Body.Close()
		}
	}()
	store := box.world.service().store
	eventually(t, "a request waits", func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.waiters.count == 1
	})
	s.deleteSandbox(c)
	<-cut
	<-waited
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(c.url, "http://"), time.Second); err == nil {
		t.Error("somebody still listens")
	}
	s.do("DELETE", "/_stepwell/sandboxes/"+c.view.Name, "").want(404)
	if err := box.world.reset(); kindOf(err) != unavailable {
		t.Errorf("a reset of what was deleted: got %v; want a refusal", err)
	}
	s.sandbox(`{"name":%q}`, c.view.Name)
}

// TestSandboxesRace lets many callers create and delete the same few names.
func TestSandboxesRace(t *testing.T) {
	t.Parallel()
	s := newFixtureServer(t, serviceTest{})
	var made, gone atomic.Int64
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("n%d", (caller+i)%3)
				switch a := s.do("POST", "/_stepwell/sandboxes", fmt.Sprintf(`{"name":%q}`, name)); a.status {
				case 201:
					made.Add(1)
				case 409:
				default:
					t.Errorf("got %d: %s", a.status, a.body)
				}
				switch a := s.do("DELETE", "/_stepwell/sandboxes/"+name, ""); a.status {
				case 204:
					gone.Add(1)
				case 404:
				default:
					t.Errorf("got %d: %s", a.status, a.body)
				}
			}
		})
	}
	wg.Wait()
	if left := int64(len(s.world.boxes.list())); made.Load() == 0 || made.Load()-gone.Load() != left {
		t.Errorf("%d were made, %d deleted, and %d are left", made.Load(), gone.Load(), left)
	}
}

// TestSandboxesEndWithTheService checks that the end of a service ends its sandboxes and
// that no more are made.
func TestSandboxesEndWithTheService(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: sandboxTemplates})
	c := s.sandbox("")
	c.create(`{"namespace":"t","name":"hour"}`)
	s.world.finish(t.Context())
	s.do("POST", "/_stepwell/sandboxes", "").want(503)
	s.world.boxes.close()
	if len(s.world.boxes.list()) != 0 {
		t.Error("one is left")
	}
	if _, err := http.Get(c.url + "/health/live"); err == nil {
		t.Error("it still answers")
	}
}

var sandboxRounds = flag.Int("sandbox-rounds", 2, "rounds of each of the 32 tests of TestSandboxesAreApart")

// TestSandboxesAreApart runs 32 tests at once, each in its own sandboxes and at its own time.
// Nothing of one shows in another.
func TestSandboxesAreApart(t *testing.T) {
	slow(t)
	s := newFixtureServer(t, serviceTest{extra: sandboxTemplates})
	began := realNow()
	t.Run("at once", func(t *testing.T) {
		for n := range 32 {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				own := &fixtureServer{&testServer{t: t, url: s.url}, s.world}
				for round := range *sandboxRounds {
					own.liveApart(n, round)
				}
			})
		}
	})
	t.Logf("32 × %d rounds took %v", *sandboxRounds, realNow().sub(began))
	if got := s.do("GET", "/v1/tasks", "").text("pagination.total_count"); got != "0" {
		t.Errorf("%s tasks are outside of all sandboxes", got)
	}
}

// sandbox creates a sandbox.
func (s *fixtureServer) sandbox(format string, args ...any) *sandboxClient {
	s.t.Helper()
	a := s.do("POST", "/_stepwell/sandboxes", fmt.Sprintf(format, args...)).want(201)
	c := &sandboxClient{}
	noError(s.t, json.Unmarshal(a.body, &c.view))
	box := must(s.world.boxes.get(c.view.Name))(s.t)
	c.fixtureServer = &fixtureServer{&testServer{t: s.t, url: c.view.OrchestrationURL}, box.world}
	c.worker = &testServer{t: s.t, url: c.view.WorkerURL}
	c.mount = &testServer{t: s.t, url: c.view.MountURL}
	return c
}

func (s *fixtureServer) deleteSandbox(c *sandboxClient) {
	s.t.Helper()
	s.do("DELETE", "/_stepwell/sandboxes/"+c.view.Name, "").want(204)
}

// liveApart plays one round of one test; n determines its time and how much it does.
func (s *fixtureServer) liveApart(n, round int) {
	s.t.Helper()
	marker := fmt.Sprintf("test-%d-%d", n, round)
	start := testStart.add(time.Duration(n*100+round) * time.Hour)
	c := s.sandbox(`{"name":%q,"seed":%s}`, marker, seedOf(frozenAt(start)))
	tasks := 1 + n%5
	var ids []string
	for range tasks {
		ids = append(ids, c.create(fmt.Sprintf(`{"namespace":"t","name":"retried","initiator":%q}`, marker)))
	}
	for retry, by := range []time.Duration{time.Duration(n) * time.Second, 10 * time.Minute} {
		want := []string{"waiting_for_retry", "blocked_by_failures"}[retry]
		start = start.add(by)
		a := c.clock(`{"advance":%q}`, by).want(200)
		if got := a.text("now"); got != start.zoned() {
			s.t.Errorf("the clock is at %s; want %s", got, start.zoned())
		}
		for _, id := range ids {
			if got := c.do("GET", "/v1/tasks/"+id, "").want(200).text("status"); got != want {
				s.t.Errorf("%s after %s is %s; want %s", marker, by, got, want)
			}
		}
	}
	s.wantOwn(c, marker, ids)
	checkInvariants(s.t, c.world.service())
	s.deleteSandbox(c)
}

// wantOwn checks everything that a sandbox shows.
func (s *fixtureServer) wantOwn(c *sandboxClient, marker string, ids []string) {
	s.t.Helper()
	n := fmt.Sprint(len(ids))
	list := c.do("GET", "/v1/tasks", "").want(200)
	if got := list.text("pagination.total_count"); got != n || strings.Count(string(list.body), marker) != len(ids) {
		s.t.Errorf("it lists %s tasks: %s; want its own %s", got, list.body, n)
	}
	if got := c.do("GET", "/v1/analytics/performance", "").want(200).text("failed_tasks"); got != n {
		s.t.Errorf("it counts %s failed tasks; want %s", got, n)
	}
	if got := c.mount.do("GET", "/tasks", "").want(200).body; strings.Count(string(got), marker) != len(ids) {
		s.t.Errorf("the mount point lists %s; want its own %s", got, n)
	}
	state := string(c.do("GET", "/_stepwell/state", "").want(200).body)
	if got := strings.Count(state, `{"task":`); got != len(ids) || strings.Count(state, marker) != len(ids) {
		s.t.Errorf("its state has %d tasks; want its own %s", got, n)
	}
	metrics := string(c.do("GET", "/metrics", "").want(200).body)
	if want := "stepwell_tasks{state=\"blocked_by_failures\"} " + n + "\n"; !strings.Contains(metrics, want) {
		s.t.Errorf("its figures lack %s", want)
	}
}
