package main

// The harness: a working service or server in one line.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestMain(m *testing.M) { wire.Main(m, "stepwell", func() {}, func() {}) }

// allocated returns how many bytes f allocates, with what other goroutines allocate meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// serviceTest holds a test's changes to the usual setup.
type serviceTest struct {
	config    func(c *Config)
	templates string   // a directory; the demo templates if empty
	extra     []string // templates as JSON, in addition
	dir       string   // of the store; in memory if empty
	clock     clock    // the real one if nil
	disk      diskFS   // with dir; the real one if nil
	log       io.Writer
	state     *stateSource // to begin with; none if nil
	seed      string       // a file with one, for a world in fixture mode

	reloaded *atomic.Pointer[registry] // templates that may be replaced; nil for none
}

// files returns the place of the templates of files.
func (o serviceTest) files(r *registry) *atomic.Pointer[registry] {
	if o.reloaded != nil {
		return o.reloaded
	}
	place := new(atomic.Pointer[registry])
	place.Store(r)
	return place
}

// testConfig returns the standard configuration, in memory.
func testConfig(t testing.TB, o serviceTest) *Config {
	t.Helper()
	cfg := defaultConfig()
	cfg.Store.Memory = o.dir == ""
	cfg.Store.Path = o.dir
	cfg.Log.Quiet = true
	if o.templates != "" {
		cfg.Templates.Dirs = []string{o.templates}
	}
	if o.config != nil {
		o.config(cfg)
	}
	if reflect.DeepEqual(cfg.Mount.Auth, defaultConfig().Mount.Auth) {
		cfg.Mount.Auth = cfg.Orchestration.Web.Auth // as inherited
	}
	return cfg
}

// newTestService opens a service that ends with the test. Its logger fails the test on an
// error. After the test, every task is compared with its own log.
func newTestService(t testing.TB, o serviceTest) *service {
	t.Helper()
	s := openTestService(t, o)
	t.Cleanup(func() { closeTestService(t, s) })
	return s
}

// testWork holds what many tests load in the same way: registries by their directories, for the
// default configuration of the worker, and templates by their text. Both are immutable.
var testWork struct{ registries, templates sync.Map }

// loadTestWork is loadWork with more templates, as JSON.
func loadTestWork(t testing.TB, cfg *Config, log *slog.Logger, extra []string) (*handlerSet, *registry) {
	t.Helper()
	handlers, registry := loadCommonWork(t, cfg, log)
	for _, text := range extra {
		known, ok := testWork.templates.Load(text)
		if !ok {
			tpl, problems, _ := parseTemplate("extra", []byte(text), "json", "", nil)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			known, _ = testWork.templates.LoadOrStore(text, tpl)
		}
		registry = registry.with(known.(*template))
	}
	return handlers, registry
}

// loadCommonWork is loadWork. It reads the templates of the repository once.
func loadCommonWork(t testing.TB, cfg *Config, log *slog.Logger) (*handlerSet, *registry) {
	t.Helper()
	getenv := func(string) string { return "" }
	common := reflect.DeepEqual(cfg.Worker, defaultConfig().Worker) && cfg.Role == defaultConfig().Role
	key := fmt.Sprint(cfg.Templates.Dirs, cfg.Environment)
	if known, ok := testWork.registries.Load(key); ok && common {
		handlers := newHandlerSet(&cfg.Worker, version, getenv)
		return handlers, known.(*registry)
	}
	handlers, registry, err := loadWork(cfg, log, getenv)
	if err != nil {
		t.Fatal(err)
	}
	if common && (len(cfg.Templates.Dirs) == 0 || slices.Equal(cfg.Templates.Dirs, []string{apiTemplates})) {
		testWork.registries.Store(key, registry)
	}
	return handlers, registry
}

func openTestService(t testing.TB, o serviceTest) *service {
	t.Helper()
	s, err := openService(testParts(t, o))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testParts returns what openTestService opens a service with.
func testParts(t testing.TB, o serviceTest) serviceOptions {
	t.Helper()
	cfg := testConfig(t, o)
	log := slog.New(&failingHandler{t: t, out: o.log})
	handlers, registry := loadTestWork(t, cfg, log, o.extra)
	c := o.clock
	if c == nil {
		rc := newRealClock()
		t.Cleanup(rc.stop)
		c = rc
	}
	var x extension
	if v, ok := c.(*virtualClock); ok && (cfg.Fixture.Enabled || cfg.Fixture.DeterministicIDs != "") {
		x = newFixture(&world{sandbox: "test"}, v)
	}
	return serviceOptions{
		extension: x, cfg: cfg, log: log, auth: testAuthenticators(t, cfg, c, log), clock: c, files: o.files(registry), handlers: handlers, disk: o.disk,
		state: o.state, deterministic: cfg.Fixture.DeterministicIDs,
	}
}

func closeTestService(t testing.TB, s *service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s.finish(ctx)
	checkInvariants(t, s)
	if err := s.close(); err != nil {
		t.Errorf("closing the store: %v", err)
	}
}

// checkInvariants compares every live task with the replay of its log, and the indexes and
// figures with the tasks.
func checkInvariants(t testing.TB, s *service) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var states [taskStates]int
	var steps [stepStates]int
	recount := newAnalytics()
	var dead []dlqRow
	var failed []plainFailure
	blocked := map[templateName]int{}
	for i, sl := range s.store.tasks.slots {
		if sl == nil {
			continue
		}
		line := sl.line()
		again, err := s.store.replayLine(line, recount)
		if err != nil {
			t.Errorf("the task at %d does not replay: %v", i, err)
			continue
		}
		if got := again.appendTaskLine(nil); !bytes.Equal(got, line) {
			t.Errorf("replay gives %s; the store has %s", got, line)
		}
		if sl.live != nil {
			compareSteps(t, again, sl.live)
		}
		compareListed(t, s.store, *sl, again)
		checkIndexed(t, s.store, sl, again)
		for n := range again.dead {
			dead = append(dead, again.letterRow(n))
		}
		failed = append(failed, plainFailures(again, sl, &s.store.tasks.index.key)...)
		states[again.state]++
		if again.state == taskBlockedByFailures {
			blocked[again.tpl.names()]++
		}
		for st, n := range again.counts {
			steps[st] += n
		}
	}
	for st, n := range states {
		if got := s.store.tasks.index.states[st]; got != n {
			t.Errorf("the index has %d tasks in %s; want %d", got, taskState(st), n)
		}
	}
	if got := s.store.tasks.index.steps; got != steps {
		t.Errorf("the index counts steps %v; want %v", got, steps)
	}
	if got, want := figuresText(s.store.analytics), figuresText(recount); got != want && s.store.retain.dropped == 0 {
		t.Errorf("the figures are\n%s\nwant what the tasks' logs give:\n%s", got, want)
	}
	if got := s.store.tasks.blockedTasks(); !maps.Equal(got, blocked) {
		t.Errorf("the index counts as blocked %v; want %v", got, blocked)
	}
	checkLetters(t, &s.store.dead, dead, s.clock.now())
	checkFailures(t, s.store, failed)
	checkRetention(t, s.store)
	checkFound(t, s.store)
	checkRequestIndex(t, s.store)
}

// compareListed compares a task as lists show it, perhaps from the head of its line alone, with
// the whole task.
func compareListed(t testing.TB, s *store, sl slot, whole *task) {
	t.Helper()
	l := sl.kept(s.clock.now())
	if sl.live != nil {
		whole = sl.live
	}
	v, ready, err := l.listed(nil)
	if err != nil {
		t.Errorf("task %s cannot be listed: %v", whole.id, err)
		return
	}
	text := func(v *task, ready int) string {
		var o jsonWriter
		taskView{task: v}.writeTask(&o, ready)
		mountTaskView{task: v}.writeJSON(&o)
		return string(o.b)
	}
	if got, want := text(v, ready), text(whole, whole.readySteps(l.at)); got != want {
		t.Errorf("a list shows %s; want %s", got, want)
	}
}

// checkIndexed checks what lists find a task by.
func checkIndexed(t testing.TB, s *store, sl *slot, whole *task) {
	t.Helper()
	marks := &s.tasks.marks[s.tasks.place(sl.seq)]
	if marks.created != whole.created || sl.seq != whole.seq || marks.updated != whole.updated || marks.completed != whole.completed ||
		sl.lastSeq != whole.lastSeq || sl.state != whole.state || int(marks.priority) != whole.by.priority {
		t.Errorf("task %s has the slot %+v with %+v", whole.id, sl, marks)
	}
	own := whole.correlation()
	for _, f := range []taskFilter{{tags: whole.by.tags}, {correlation: own}, {parent: whole.by.parentCorrelation},
		{initiator: whole.by.initiator, source: whole.by.source}} {
		if m := s.tasks.matcher(&f); !m.matches(s.tasks.place(sl.seq)) {
			t.Errorf("task %s is not found by %+v", whole.id, f)
		}
	}
}

func compareSteps(t testing.TB, again, live *task) {
	t.Helper()
	if len(again.steps) != len(live.steps) || !reflect.DeepEqual(again.plan, live.plan) {
		t.Errorf("task %s: replay gives %d steps and the plan %+v; live are %d, %+v",
			live.id, len(again.steps), again.plan, len(live.steps), live.plan)
		return
	}
	for i := range live.steps {
		a, b := again.steps[i], live.steps[i]
		if !reflect.DeepEqual(a.lease, b.lease) {
			t.Errorf("task %s step %d: replay gives the lease %+v; live is %+v", live.id, i, a.lease, b.lease)
		}
		if ra, rb := a.operated, b.operated; ra != rb && (ra == nil || rb == nil || ra.seq != rb.seq) {
			t.Errorf("task %s step %d: replay gives the action %+v; live is %+v", live.id, i, ra, rb)
		}
		if !reflect.DeepEqual(a.checkpoint, b.checkpoint) {
			t.Errorf("task %s step %d: replay gives the checkpoint %+v; live is %+v", live.id, i, a.checkpoint, b.checkpoint)
		}
		a.checkpoint, b.checkpoint = nil, nil
		a.last, b.last, a.queued, b.queued, a.lease, b.lease = nil, nil, false, false, nil, nil
		a.operated, b.operated = nil, nil
		if a != b {
			t.Errorf("task %s step %d: replay gives %+v; live is %+v", live.id, i, a, b)
		}
	}
	if again.blockers != live.blockers || again.setAside != live.setAside || again.since != live.since {
		t.Errorf("task %s: replay gives blockers %d since %d; live is %d, %d",
			live.id, again.blockers, again.since, live.blockers, live.since)
	}
}

// failingHandler fails the test on an error in the log.
type failingHandler struct {
	t   testing.TB
	mu  sync.Mutex
	out io.Writer // may be nil; written under mu, so read it once the service has ended
}

func (h *failingHandler) Enabled(_ context.Context, l slog.Level) bool { return true }

func (h *failingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h *failingHandler) WithGroup(string) slog.Handler { return h }

func (h *failingHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s", a); return true })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.out != nil {
		fmt.Fprintln(h.out, b.String())
	} else if r.Level >= slog.LevelError {
		h.t.Error("logged: " + b.String())
	}
	return nil
}

// testServer is an orchestration surface on its own listener.
type testServer struct {
	t       testing.TB
	svc     *service
	url     string
	surface string // its name; "" if it is unknown
}

func newTestServer(t testing.TB, o serviceTest) *testServer {
	t.Helper()
	s := &testServer{t: t, svc: newTestService(t, o)}
	return s.with(newOrchestrationAPI(s.svc, nil))
}

// manyConnections returns connections that no test has too many of.
func manyConnections() *connections {
	return newConnections(newQuotas(defaultConfig()), nil)
}

// with returns another surface of the same service, on its own listener.
func (s *testServer) with(surface http.Handler) *testServer {
	h := httptest.NewServer(surface)
	s.t.Cleanup(h.Close)
	return &testServer{s.t, s.svc, h.URL, surfaceName(surface)}
}

// surfaceName returns the name of a surface, or "" for one with another document.
func surfaceName(h http.Handler) string {
	switch h := h.(type) {
	case *orchestrationAPI:
		if h.surface.svc.cfg.Mount.Path == defaultConfig().Mount.Path {
			return h.surface.name
		}
	case *workerAPI:
		return h.name
	}
	return ""
}

// answer is a complete response.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// headerLines sets header lines, each "Name: value".
func headerLines(h http.Header, lines ...string) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h[http.CanonicalHeaderKey(name)] = append(h.Values(name), value)
	}
}

// served returns what a handler answers to a request for localhost, with a body as JSON unless header lines say otherwise.
func served(t testing.TB, h http.Handler, method, target, body string, lines ...string) *answer {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	headerLines(r.Header, lines...)
	if r.Host = "localhost"; r.Header["Content-Type"] == nil {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return &answer{t, w.Code, w.Header(), w.Body.Bytes()}
}

// do sends a request, with a body as JSON and more header lines.
func (s *testServer) do(method, path, body string, lines ...string) *answer {
	s.t.Helper()
	req := must(http.NewRequest(method, s.url+path, strings.NewReader(body)))(s.t)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	headerLines(req.Header, lines...)
	resp := must(http.DefaultClient.Do(req))(s.t)
	checkDeclared(s.t, s.surface, method, path, resp.StatusCode)
	return readAnswer(s.t, resp)
}

// withCallers makes a service recognize callers by their API keys.
func withCallers(callers map[string][]string) func(c *Config) {
	return func(c *Config) {
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled = true, true
		for key, permissions := range callers {
			a.APIKeys = append(a.APIKeys, apiKeyConfig{Key: key, Permissions: permissions, Description: key})
		}
	}
}

// as sends a request with an API key.
func (s *testServer) as(key, method, path, body string) *answer {
	s.t.Helper()
	return s.do(method, path, body, "X-API-Key: "+key)
}

func readAnswer(t testing.TB, resp *http.Response) *answer {
	t.Helper()
	defer resp.Body.Close()
	data := must(io.ReadAll(resp.Body))(t)
	return &answer{t, resp.StatusCode, resp.Header, data}
}

// want fails the test unless the status is the one given.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("got status %d; want %d: %s", a.status, status, a.body)
	}
	return a
}

// lastDecoded is the value of the body that was decoded last. Tests read several values of most
// bodies.
var lastDecoded struct {
	sync.Mutex
	body  []byte
	value any
}

// decoded returns the value of the body, numbers as json.Number.
func (a *answer) decoded() any {
	a.t.Helper()
	lastDecoded.Lock()
	defer lastDecoded.Unlock()
	if len(a.body) > 0 && len(a.body) == len(lastDecoded.body) && &a.body[0] == &lastDecoded.body[0] {
		return lastDecoded.value
	}
	v, err := wire.Decode(a.body)
	if err != nil {
		a.t.Fatalf("%v in %s", err, a.body)
	}
	lastDecoded.body, lastDecoded.value = a.body, v
	return v
}

// get returns the value at a path like "steps.0.name", as wire.LookUp finds it. A missing
// member of an object is nil.
func (a *answer) get(path string) any {
	a.t.Helper()
	v, ok := wire.LookUp(a.decoded(), path)
	if !ok {
		at := strings.LastIndexByte(path, '.')
		in, _ := wire.LookUp(a.decoded(), cmp.Or(path[:max(at, 0)], "."))
		if _, isObject := in.(map[string]any); !isObject {
			a.t.Fatalf("no %s in %s", path, a.body)
		}
	}
	return v
}

func (a *answer) text(path string) string {
	a.t.Helper()
	return fmt.Sprint(a.get(path))
}

// create creates a task and returns its id.
func (s *testServer) create(body string) string {
	s.t.Helper()
	return s.do("POST", "/v1/tasks", body).want(201).text("task_uuid")
}

// await polls a task until its status is the one given.
func (s *testServer) await(id, status string) (a *answer) {
	s.t.Helper()
	if !wire.Poll(func() bool {
		a = s.do("GET", "/v1/tasks/"+id, "").want(200)
		return a.text("status") == status
	}) {
		s.t.Fatalf("task %s never became %s: %s", id, status, a.body)
	}
	return a
}

// apiTemplates is the directory with the templates of the conversations.
const apiTemplates = "testdata/templates"

// Helpers shared with the tests of the whole program.
var (
	readFile, writeFile = wire.ReadFile, wire.WriteFile
	eventually          = wire.Eventually
	slow, size          = wire.Slow, wire.Size
)

const patience = wire.Patience

// createHeld creates a task of a template whose step a held handler runs.
const createHeld = `{"namespace":"t","name":"held"}`

// slowAndSequential is for slow tests with one goroutine, or with the same ones as a quicker test.
func slowAndSequential(t testing.TB) {
	t.Helper()
	slow(t)
	sequential(t)
}

// sequential skips a test with the race detector, which makes it ten times as slow and finds
// nothing if there is only one goroutine, or if another test runs the same goroutines.
func sequential(t testing.TB) {
	t.Helper()
	if wire.RaceDetector() {
		wire.Skip(t, "takes too long with -race, and races nothing that others do not")
	}
}

// jsonOf returns the JSON of a view.
func jsonOf(v any) []byte {
	var o jsonWriter
	o.value(v)
	return o.b
}

// Tests of the Idempotency-Key header.

// checkRequestIndex compares the index of repeated requests with the tasks.
func checkRequestIndex(t testing.TB, s *store) {
	t.Helper()
	again := newRequestIndex()
	again.limits = s.requests.limits
	for i, sl := range s.tasks.slots {
		if sl == nil {
			continue // it was dropped
		}
		task, err := sl.task()
		if err != nil {
			t.Errorf("the task at %d cannot be read: %v", i, err)
			continue
		}
		again.insert(task.by.request, task.id, task.created)
	}
	again.forget(s.clock.now())
	s.requests.forget(s.clock.now())
	aged := func(x *requestIndex) (all []keptRequest) {
		for _, r := range x.aged {
			if !r.dropped && x.holds(r) {
				all = append(all, *r)
			}
		}
		return all
	}
	if got, want := aged(s.requests), aged(again); !slices.Equal(got, want) || len(got) != len(s.requests.kept)-s.requests.gone {
		t.Errorf("the index of requests is %v; want %v", got, want)
	}
}

// task returns the task in a slot, whether live or over.
func (sl *slot) task() (*task, error) {
	if sl.live != nil {
		return sl.live, nil
	}
	return sl.replay(unobserved{})
}

// line returns the line of the task in a slot.
func (sl *slot) line() []byte {
	if sl.live != nil {
		return sl.live.appendTaskLine(nil)
	}
	return sl.appendLine(nil)
}

// replayLine replays the line of a task for an observer.
func (s *store) replayLine(line []byte, obs replayer) (*task, error) {
	l, err := readTaskLine(line)
	if err != nil {
		return nil, err
	}
	return replayRecords(l.id, s.templates.find(l.template), l.log, obs)
}

// equalRows compares two entries, with what they point to.
func equalRows(a, b dlqRow) bool { return reflect.DeepEqual(a, b) }

// checkLetters compares the index with the tasks' entries, and what it answers with a look at each of them. The caller
// holds the store's lock.
func checkLetters(t testing.TB, d *storedLetters, rows []dlqRow, now instant) {
	t.Helper()
	var got []dlqRow
	for _, r := range d.rows {
		if !r.id.isZero() {
			if r.in != d.tasks.byID[r.task].trouble {
				t.Errorf("entry %s does not know what has gone wrong in its task", r.id)
			}
			got = append(got, *r)
			got[len(got)-1].in = nil
		}
		if !r.id.isZero() && d.byID[r.id] != r {
			t.Errorf("entry %s is not found by its id", r.id)
		}
	}
	slices.SortFunc(rows, func(a, b dlqRow) int { return cmp.Compare(a.seq, b.seq) })
	if !slices.EqualFunc(got, rows, equalRows) || len(d.byID) != len(rows) {
		t.Errorf("the index has entries %+v; want %+v", got, rows)
	}
	own := *d
	own.mu = new(sync.Mutex) // which is free
	var counts [dlqReasons][dlqStatuses]int
	for _, r := range rows {
		counts[r.reason][r.status]++
	}
	figures := own.figures()
	for reason, want := range counts {
		i := slices.IndexFunc(figures, func(f dlqFigures) bool { return int(f.reason) == reason })
		if want != d.counts[reason] || i >= 0 && figures[i].counts != want || i < 0 && want != [dlqStatuses]int{} {
			t.Errorf("the index counts %v for %s; want %v", d.counts[reason], dlqReason(reason), want)
		}
	}
	pending := 0
	for st := range dlqStatuses {
		for _, over := range []bool{false, true} {
			listed, _, total := own.page(dlqFilter{status: &st, over: &over}, 0, 1e6)
			want := slices.DeleteFunc(slices.Clone(rows), func(r dlqRow) bool { return r.status != st || r.over != over })
			slices.Reverse(want)
			for i := range listed {
				listed[i].in = nil
			}
			if !slices.EqualFunc(listed, want, equalRows) || total != len(want) {
				t.Errorf("the index lists other entries in %s, over %t, than the tasks have", st, over)
			}
			pending += boolCount(st == dlqPending) * len(want)
		}
	}
	queued, total := own.queue(dlqFilter{}, now, 0, 1e6)
	if len(queued) != pending || total != pending || !slices.IsSortedFunc(queued, func(a, b queuedLetter) int {
		return cmp.Compare(b.priority(now), a.priority(now))
	}) {
		t.Errorf("the queue has %d of %d entries; want %d, the most urgent first", len(queued), total, pending)
	}
}

// appendTaskLine appends the line, without a checksum.
func (t *task) appendTaskLine(b []byte) []byte {
	return append(append(t.appendHead(b), t.log...), "]}"...)
}

func (a *answer) wantText(pairs ...string) {
	a.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := a.text(pairs[i]); got != pairs[i+1] {
			a.t.Errorf("%s: got %q; want %q in %s", pairs[i], got, pairs[i+1], a.body)
		}
	}
}

// The wire contract from package wire, for the tests of this package.

// newAPIContract returns the document of a surface, to check answers with.
func newAPIContract(t testing.TB, surface string) *wire.Contract {
	t.Helper()
	text := openAPIForSurface("X-API-Key", "/stepwell", surface)
	prefix := ""
	if surface == "mount" {
		prefix = "/stepwell"
	}
	c := must(wire.NewContract(text, prefix))(t)
	return c
}

// contracts holds the documents of all surfaces, by name.
var contracts = sync.OnceValue(func() map[string]*wire.Contract {
	all := map[string]*wire.Contract{}
	for name, prefix := range map[string]string{"orchestration": "", "worker": "", "mount": "/stepwell"} {
		contract, err := wire.NewContract(openAPIForSurface("X-API-Key", "/stepwell", name), prefix)
		if err != nil {
			panic(err)
		}
		all[name] = contract
	}
	return all
})

// checkDeclared fails the test if the document of a surface does not declare that an operation may
// answer with a status.
func checkDeclared(t testing.TB, surface, method, path string, status int) {
	t.Helper()
	if surface == "orchestration" && strings.HasPrefix(path, "/stepwell") {
		surface = "mount"
	}
	path, _, _ = strings.Cut(path, "?")
	if c := contracts()[surface]; c != nil {
		if err := c.Undeclared(method, path, status); err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
	}
}

// contractProblem returns what is wrong with the answer to a request like "GET /path".
func contractProblem(c *wire.Contract, a *answer, request string) error {
	return c.Problem(&wire.Answer{Code: a.status, Header: a.header, Body: a.body, Request: request})
}

// checkShape fails the test for every member of a body that is missing or does not match the
// shape, a kind of wire.Problems.
func checkShape(t *testing.T, shape string, body []byte) {
	t.Helper()
	if _, err := wire.CheckShape(shape, body); err != nil {
		t.Errorf("%s: %v in %s", shape, err, body)
	}
}

// TestSchemasUseKnownKeywords checks that the schemas contain no keyword that would be ignored,
// and say of each object which members it may have.
func TestSchemasUseKnownKeywords(t *testing.T) {
	sequential(t)
	t.Parallel()
	eachOpenAPIDocument(t, func(t *testing.T, _ string, doc map[string]any) {
		var visit func(path string, schema any)
		visit = func(path string, schema any) {
			if _, ok := schema.(bool); ok {
				return // which allows every value, or none
			}
			s, ok := schema.(map[string]any)
			if !ok {
				t.Errorf("%s: got %s; want a schema", path, wire.Text(schema))
				return
			}
			types, names := wire.Text(s["type"]), s["properties"] != nil || s["additionalProperties"] != nil
			if strings.Contains(types, `"object"`) && !names {
				t.Errorf("%s: got an object that names neither its members nor additionalProperties", path)
			}
			for word, v := range s {
				if !slices.Contains(wire.SchemaKeywords, word) {
					t.Errorf("%s: got keyword %q, which no check knows", path, word)
				}
				switch word {
				case "items", "additionalProperties":
					visit(path+"."+word, v)
				case "anyOf", "oneOf":
					for _, alternative := range v.([]any) {
						visit(path+"."+word, alternative)
					}
				case "properties":
					for name, member := range v.(map[string]any) {
						visit(path+"."+name, member)
					}
				}
			}
		}
		for name, schema := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
			visit(name, schema)
		}
	})
}
