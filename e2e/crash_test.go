package e2e

// The program, killed under load again and again: every acknowledged change must survive, and
// nothing else may exist except what was sent.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// compactFloor is the size of all records, in bytes, below which no compaction is due.
const compactFloor = 16 << 20

var crashDuration = flag.Duration("crash.duration", time.Duration(size(1, 5))*time.Second, "how long TestCrash goes on killing")

// crashTest holds a data directory, the load on it, and the books.
type crashTest struct {
	t       *testing.T
	args    []string
	env     []string // of the program
	data    string
	padding string // in the context of every task
	handler *crashHandler
	program *program

	over chan struct{} // closed: the clients end
	load sync.WaitGroup

	mu      sync.Mutex
	life    *programLife           // the newest
	tasks   map[string]*sentTask   // by marker
	actions map[string]*sentAction // by marker
}

// programLife is one run of the program, from the moment it is ready.
type programLife struct {
	url  string
	next chan struct{} // closed when the next one begins
}

// sentTask is a task that a client sent.
type sentTask struct {
	name  string
	id    string // if its creation was acknowledged
	keyed bool   // sent again after a crash, under the same key
}

// sentAction is an action that a client sent.
type sentAction struct {
	task, step string
	action     string
	acked      bool
}

var (
	diamondTemplate = testTemplate("diamond", stepSpec{name: "a", callable: "builtin:noop"},
		stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}},
		stepSpec{name: "c", callable: "builtin:noop", after: []string{"a"}},
		stepSpec{name: "d", callable: "builtin:noop", after: []string{"b", "c"}})
	flakyTemplate = testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":2}`,
		retry: `{"max_attempts":6,"backoff_base_ms":5,"max_backoff_ms":20}`},
		stepSpec{name: "b", callable: "builtin:sleep", config: `{"duration_ms":20}`, after: []string{"a"}})
)

// crashTemplates are templates of every kind: builtins that end at once, fail or wait,
// handlers, and a step for an outside actor, whose part the clients play.
func crashTemplates(url string) []string {
	soon := `{"max_attempts":6,"backoff_base_ms":5,"max_backoff_ms":20}`
	return []string{
		diamondTemplate, flakyTemplate, testTemplate("sentinel", stepSpec{name: "a", callable: "builtin:noop"}),
		testTemplate("web", stepSpec{name: "a", callable: url, retry: soon, timeout: 600},
			stepSpec{name: "b", callable: url, retry: soon, timeout: 600, after: []string{"a"}}),
		testTemplate("act", stepSpec{name: "a", callable: "builtin:noop"},
			stepSpec{name: "act", callable: "Outside", after: []string{"a"}, retry: `{"max_attempts":50,"backoff_base_ms":1}`},
			stepSpec{name: "b", callable: url, retry: soon, timeout: 600, after: []string{"act"}}),
		testTemplate("wait", stepSpec{name: "a", callable: "builtin:noop"},
			stepSpec{name: "act", callable: "Outside", after: []string{"a"}, retry: `{"max_attempts":50,"backoff_base_ms":1}`}),
		testTemplate("grow", stepSpec{name: "a", kind: "batchable", callable: "builtin:batch",
			config: `{"total_items":5,"batch_size":2,"worker_template_name":"w"}`},
			stepSpec{name: "w", kind: "batch_worker", callable: url, retry: soon, timeout: 600, after: []string{"a"}},
			stepSpec{name: "b", kind: "deferred_convergence", callable: "builtin:noop", after: []string{"w"}}),
	}
}

func newCrashTest(t *testing.T, padding string) *crashTest {
	t.Helper()
	c := &crashTest{t: t, padding: padding, over: make(chan struct{}), handler: newCrashHandler(t),
		data: filepath.Join(t.TempDir(), "data"), tasks: map[string]*sentTask{}, actions: map[string]*sentAction{}}
	templates := templateDir(t, crashTemplates(c.handler.url)...)
	c.args = serveArguments("--data", c.data, "--sync", "always", "--templates", templates)
	return c
}

// start starts the program and passes it to the clients.
func (c *crashTest) start() {
	c.t.Helper()
	c.program = launch(c.t, c.env, c.args...).awaitReady()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life != nil {
		close(c.life.next)
	}
	c.life = &programLife{c.program.ready.OrchestrationURL, make(chan struct{})}
}

// kill ends the program as a crash does.
func (c *crashTest) kill() {
	c.t.Helper()
	c.program.kill()
	c.checkLog()
}

// checkLog looks for errors in the log of the program.
func (c *crashTest) checkLog() {
	c.t.Helper()
	for line := range strings.Lines(c.program.stderr.String()) {
		if !strings.HasPrefix(line, `{"time":`) && !strings.HasPrefix(line, "Stepwell") && !strings.HasPrefix(line, "  ") ||
			strings.Contains(line, `"level":"ERROR"`) {
			c.t.Errorf("the program says: %s", line)
		}
	}
}

// begin starts clients that create tasks and act on steps until c.over is closed.
func (c *crashTest) begin(clients int, names ...string) {
	for i := range clients {
		client := &http.Client{Transport: &http.Transport{}}
		k := &crashClient{c: c, http: client, name: fmt.Sprintf("client-%d", i), names: names}
		c.load.Go(k.run)
	}
}

// crashClient is a client. It sends one request at a time.
type crashClient struct {
	c     *crashTest
	http  *http.Client
	name  string
	names []string // of the templates of its tasks
	sent  int
	open  []*openStep // to act on
}

// openStep is a step that waits for its actor.
type openStep struct {
	task, step string
	unsure     bool // an action was sent and not answered
}

// run sends requests with pauses that leave some of the processor to others.
func (k *crashClient) run() {
	defer k.http.CloseIdleConnections()
	pace := time.NewTicker(3 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-k.c.over:
			return
		}
		if len(k.open) > 0 && rand.IntN(3) == 0 {
			k.act()
		} else {
			k.create()
		}
	}
}

// send sends a request to the newest program. Without an answer, it waits for the next program
// and returns status 0.
func (k *crashClient) send(method, path, body string, key ...string) (status int, reply []byte) {
	k.c.mu.Lock()
	life := k.c.life
	k.c.mu.Unlock()
	status, reply = sendOnce(k.http, method, life.url+path, body, key...)
	if status == 0 {
		select {
		case <-life.next:
		case <-k.c.over:
		}
	}
	return status, reply
}

// sendOnce sends a request, with an Idempotency-Key or without. The status is 0 if the answer
// is incomplete.
func sendOnce(client *http.Client, method, url, body string, key ...string) (status int, reply []byte) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if len(key) > 0 {
		req.Header["Idempotency-Key"] = key
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if reply, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, reply
}

// create creates a task. Most have a key, in the body or as a header, and are sent again until
// there is an answer.
func (k *crashClient) create() {
	k.sent++
	marker := fmt.Sprintf("%s-%d", k.name, k.sent)
	s := &sentTask{name: k.names[rand.IntN(len(k.names))], keyed: rand.IntN(3) > 0}
	body := fmt.Sprintf(`{"namespace":"t","name":%q,"context":{"marker":%q,"padding":%q}`, s.name, marker, k.c.padding)
	var header []string // with it, a repeated request returns the task, otherwise a conflict
	switch {
	case s.keyed && rand.IntN(2) == 0:
		header = []string{marker}
	case s.keyed:
		body += fmt.Sprintf(`,"idempotency_key":%q`, marker)
	}
	body += "}"
	k.c.mu.Lock()
	k.c.tasks[marker] = s
	k.c.mu.Unlock()
	status, reply := k.send("POST", "/v1/tasks", body, header...)
	again := status == 0
	for status == 0 && s.keyed && !k.ended() {
		status, reply = k.send("POST", "/v1/tasks", body, header...)
	}
	switch {
	case status == http.StatusCreated:
		k.created(s, reply)
	case status == http.StatusConflict && again && header == nil:
	case status != 0:
		k.c.t.Errorf("creating %s: got status %d: %s", marker, status, reply)
	}
}

func (k *crashClient) ended() bool {
	select {
	case <-k.c.over:
		return true
	default:
		return false
	}
}

// created notes an acknowledged task. Three of four steps for actors will get an action.
func (k *crashClient) created(s *sentTask, reply []byte) {
	var v taskView
	if err := json.Unmarshal(reply, &v); err != nil {
		k.c.t.Errorf("%v in %s", err, reply)
		return
	}
	k.c.mu.Lock()
	s.id = v.TaskUUID
	k.c.mu.Unlock()
	if len(v.Steps) > 1 && v.hasActor() && rand.IntN(4) > 0 {
		k.open = append(k.open, &openStep{task: v.TaskUUID, step: v.Steps[1].StepUUID})
	}
}

// act fails, resolves or completes an open step.
func (k *crashClient) act() {
	k.sent++
	at := rand.IntN(len(k.open))
	o := k.open[at]
	marker := fmt.Sprintf("%s-%d", k.name, k.sent)
	s := &sentAction{task: o.task, step: o.step, action: "complete_manually"}
	body := fmt.Sprintf(`{"action_type":"complete_manually","reason":"r","completed_by":%q,`+
		`"completion_data":{"result":{"by":%q}}}`, marker, marker)
	switch rand.IntN(4) {
	case 0:
		s.action = "fail"
		body = fmt.Sprintf(`{"action_type":"fail","reason":"r","failed_by":%q,`+
			`"error":{"message":"m","retryable":true}}`, marker)
	case 1:
		s.action = "resolve_manually"
		body = fmt.Sprintf(`{"action_type":"resolve_manually","reason":"r","resolved_by":%q}`, marker)
	}
	k.c.mu.Lock()
	k.c.actions[marker] = s
	k.c.mu.Unlock()
	status, reply := k.send("PATCH", "/v1/tasks/"+o.task+"/workflow_steps/"+o.step, body)
	ends := s.action != "fail"
	switch {
	case status == http.StatusOK:
		k.c.mu.Lock()
		s.acked = true
		k.c.mu.Unlock()
	case status == 0:
		o.unsure = true
		return
	case status == http.StatusBadRequest && (!ends || o.unsure):
		// The step waits for its next attempt, or an action without an answer has ended it.
		ends = ends && o.unsure
	case status == http.StatusConflict && o.unsure:
		ends = true // an action without an answer has ended it
	default:
		k.c.t.Errorf("%s of %s: got status %d: %s", s.action, marker, status, reply)
	}
	if ends {
		k.open = slices.Delete(k.open, at, at+1)
	}
}

// crashHandler runs steps and records its calls.
type crashHandler struct {
	url     string
	release chan struct{} // closed: calls are not held any more
	free    func()        // closes it

	mu      sync.Mutex
	calls   map[string]int              // by Idempotency-Key
	cut     map[string]*handlerEnvelope // calls that a crash cut off, by their keys
	given   map[string][]string         // by task: the results of a that b received
	replies map[string][]string         // by step
	seen    map[string]bool             // tasks
	n       int
}

func newCrashHandler(t *testing.T) *crashHandler {
	h := &crashHandler{release: make(chan struct{}), calls: map[string]int{}, cut: map[string]*handlerEnvelope{},
		given: map[string][]string{}, replies: map[string][]string{}, seen: map[string]bool{}}
	h.free = sync.OnceFunc(func() { close(h.release) })
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := readEnvelope(r)
		if err != nil {
			if r.Context().Err() == nil && !strings.Contains(err.Error(), "unexpected EOF") {
				t.Errorf("the handler got %v", err)
			}
			return
		}
		h.call(w, r, e)
	}))
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}

// call answers most calls at once, never answers the first call of some keys, and fails the
// first attempt of some steps.
func (h *crashHandler) call(w http.ResponseWriter, r *http.Request, e *handlerEnvelope) {
	key := r.Header.Get("Idempotency-Key")
	if h.enter(key, e) == 1 && rand.IntN(8) == 0 {
		select {
		case <-h.release:
		case <-r.Context().Done():
			h.mu.Lock()
			defer h.mu.Unlock()
			h.cut[key] = e
			return
		}
	}
	if e.Step.Attempt == 1 && rand.IntN(8) == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	fmt.Fprint(w, h.reply(e.Step.StepUUID))
}

// cutOff returns how many calls crashes have cut off.
func (h *crashHandler) cutOff() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.cut)
}

// enter records a call and returns how often its key was called.
func (h *crashHandler) enter(key string, e *handlerEnvelope) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[key]++
	h.seen[e.Task.TaskUUID] = true
	if e.Task.Name == "web" && e.Step.Name == "b" {
		h.given[e.Task.TaskUUID] = append(h.given[e.Task.TaskUUID], string(e.DependencyResults["a"]))
	}
	return h.calls[key]
}

// reply returns a number that was not used before.
func (h *crashHandler) reply(step string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	text := fmt.Sprint(h.n)
	h.replies[step] = append(h.replies[step], text)
	return text
}

// settle ends the load, and waits until every task is settled.
func (c *crashTest) settle() {
	c.t.Helper()
	close(c.over)
	c.load.Wait()
	c.handler.free()
	eventually(c.t, "every task has run as far as it goes", c.settled)
}

// check compares the books with the program, and with the next one.
func (c *crashTest) check() {
	c.t.Helper()
	c.checkTasks()
	c.checkActions()
	c.checkHandler()
	before := c.everything()
	c.program.stop()
	c.checkLog()
	c.checkFiles(before)
}

// list returns a page of the tasks in a state.
func (c *crashTest) list(status string, page, perPage int) (list taskPage) {
	c.get(fmt.Sprintf("/v1/tasks?status=%s&page=%d&per_page=%d", status, page, perPage), &list)
	return list
}

func (c *crashTest) get(path string, v any) {
	c.t.Helper()
	c.program.api().do("GET", path, "").want(200).into(v)
}

// all returns every task in a state.
func (c *crashTest) all(status string) (tasks []taskView) {
	const perPage = 50
	for page := 1; ; page++ {
		more := c.list(status, page, perPage).Tasks
		if tasks = append(tasks, more...); len(more) < perPage {
			return tasks
		}
	}
}

// settled reports whether every task is complete or waits for its actor.
func (c *crashTest) settled() bool {
	count := func(status string) int { return c.list(status, 1, 1).Pagination.TotalCount }
	moves := func(v taskView) bool { return !v.waitsForActor() }
	return count("")-count("complete") == count("steps_in_process") && !slices.ContainsFunc(c.all("steps_in_process"), moves)
}

// hasActor reports whether the task's second step is for an outside actor.
func (v *taskView) hasActor() bool { return v.Name == "act" || v.Name == "wait" }

// waitsForActor reports whether only an actor can move a task in process.
func (v *taskView) waitsForActor() bool {
	return v.hasActor() && v.CompletedSteps == 1 && v.InProgressSteps == 0 && v.FailedSteps == 0
}

// checkTasks checks that each acknowledged task exists once, and that every task was sent.
func (c *crashTest) checkTasks() {
	ids, markers := map[string]string{}, map[string]string{}
	for _, v := range c.all("") {
		s, marker := c.tasks[v.Context.Marker], v.Context.Marker
		if ids[v.TaskUUID] != "" || markers[marker] != "" {
			c.t.Errorf("task %s (%s) is there twice", v.TaskUUID, marker)
		}
		ids[v.TaskUUID], markers[marker] = marker, v.TaskUUID
		if s == nil || s.name != v.Name {
			c.t.Errorf("task %s (%s, %s) was never sent", v.TaskUUID, v.Name, marker)
		}
	}
	for marker, s := range c.tasks {
		if s.id != "" && markers[marker] != s.id {
			c.t.Errorf("the acknowledged task %s (%s, %s) is not there", s.id, s.name, marker)
		}
	}
	for id := range c.handler.seen {
		if ids[id] == "" {
			c.t.Errorf("a handler was called for task %s, which is not there", id)
		}
	}
	c.t.Logf("%d tasks sent, %d there", len(c.tasks), len(ids))
}

// crashAudit holds the members of an audit entry that the test reads.
type crashAudit struct {
	Success bool   `json:"success"`
	ToState string `json:"to_state"`
	Action  string `json:"action"`
	ActedBy string `json:"acted_by"`
}

// checkActions checks that each acknowledged action is in the audit once, that every action in
// the audit was sent, and that the last one to end a step decides its state and result. A
// resolved step may still be completed.
func (c *crashTest) checkActions() {
	steps := map[string]*sentAction{}
	for _, s := range c.actions {
		steps[s.step] = s
	}
	audited := map[string]bool{}
	for _, s := range steps {
		var audit []crashAudit
		c.get("/v1/tasks/"+s.task+"/workflow_steps/"+s.step+"/audit", &audit)
		var last *crashAudit
		for i, a := range audit {
			sent := c.actions[a.ActedBy]
			if sent == nil || sent.step != s.step || sent.action != a.Action || audited[a.ActedBy] {
				c.t.Errorf("the audit of step %s has %+v, which was not sent, or is there twice", s.step, a)
				continue
			}
			audited[a.ActedBy] = true
			switch {
			case sent.action == "fail":
			case last == nil: // the newest comes first
				last = &audit[i]
			case sent.action != "resolve_manually":
				c.t.Errorf("step %s was ended twice: by %+v, then by %+v", s.step, a, *last)
			}
		}
		c.checkActedStep(s, last)
	}
	for marker, s := range c.actions {
		if s.acked && !audited[marker] {
			c.t.Errorf("the acknowledged %s of step %s by %s is not in the audit", s.action, s.step, marker)
		}
	}
	c.t.Logf("%d actions sent, %d in the audit", len(c.actions), len(audited))
}

// checkActedStep compares a step with the action that ended it, if any.
func (c *crashTest) checkActedStep(s *sentAction, last *crashAudit) {
	var v stepView
	c.get("/v1/tasks/"+s.task+"/workflow_steps/"+s.step, &v)
	var result struct {
		By string `json:"by"`
	}
	json.Unmarshal(v.Results.Result, &result) // fails without a result
	want, by := "enqueued", ""
	if last != nil {
		want = last.ToState
		if last.Action == "complete_manually" {
			by = last.ActedBy
		}
	}
	if v.State != want || result.By != by {
		c.t.Errorf("step %s is %s with the result of %q; want %s and %q", s.step, v.State, result.By, want, by)
	}
}

// checkHandler checks that an attempt which a crash cut off came again under its key, unless later crashes were quicker
// than each of its deliveries, and that every attempt of b received the result of a.
func (c *crashTest) checkHandler() {
	h := c.handler
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, call := range h.cut {
		audit := "/v1/tasks/" + call.Task.TaskUUID + "/workflow_steps/" + call.Step.StepUUID + "/audit"
		if h.calls[key] < 2 && !bytes.Contains(c.program.api().do("GET", audit, "").want(200).body, []byte("worker_lost")) {
			c.t.Errorf("the attempt %s was cut off and never delivered again", key)
		}
	}
	for id, given := range h.given {
		steps := c.program.api().steps(id)
		for _, s := range steps {
			if !slices.Contains(h.replies[s.StepUUID], string(s.Results.Result)) {
				c.t.Errorf("step %s has the result %s, which the handler never gave", s.StepUUID, s.Results.Result)
			}
		}
		for _, g := range given {
			if g != string(steps[0].Results.Result) {
				c.t.Errorf("task %s: b was given %v as the result of a, which is %s", id, given, steps[0].Results.Result)
			}
		}
	}
	c.t.Logf("%d attempts delivered, %d of them cut off and delivered again", len(h.calls), len(h.cut))
}

// checkFiles checks that the files are valid, and that the next start restores from them what
// the stopped program had in memory.
func (c *crashTest) checkFiles(before string) {
	wantExit(c.t, 0, nil, "store", "check", "--data", c.data)
	c.program = launch(c.t, c.env, c.args...).awaitReady()
	if after := c.everything(); after != before {
		c.t.Errorf("after the last start there is\n%s\nbefore it there was\n%s", after, before)
	}
	c.program.stop()
	c.checkLog()
}

// everything returns all that the API shows of all tasks, and the figures of their states.
func (c *crashTest) everything() string {
	var b strings.Builder
	for _, v := range c.all("") {
		for _, path := range []string{"", "/workflow_steps", "/transitions"} {
			fmt.Fprintf(&b, "%s\n", c.program.api().do("GET", "/v1/tasks/"+v.TaskUUID+path, "").want(200).body)
		}
	}
	for line := range strings.Lines(c.program.api().metrics()) {
		if strings.HasPrefix(line, "stepwell_tasks{") || strings.HasPrefix(line, "stepwell_steps{") || strings.HasPrefix(line, "stepwell_dlq_entries") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestCrash kills the program at random moments, during work and during its start. On a busy machine, where clients hardly
// begin in half a second, it lives longer from kill to kill.
func TestCrash(t *testing.T) {
	t.Parallel()
	slow(t)
	c := newCrashTest(t, "")
	c.start()
	c.begin(16, "diamond", "flaky", "web", "act", "grow")
	kills := 0
	for began := time.Now(); kills < 4 || time.Since(began) < *crashDuration || c.handler.cutOff() == 0 && kills < 40; kills++ {
		<-time.After(time.Duration(50+rand.IntN(400+max(0, kills-10)*150)) * time.Millisecond)
		c.kill()
		if rand.IntN(3) == 0 {
			c.program = launch(t, c.env, c.args...)
			<-time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
			c.kill()
		}
		c.start()
	}
	c.settle()
	c.check()
	if c.handler.cutOff() == 0 {
		t.Error("no handler was cut off: the test tested too little")
	}
	t.Logf("%d kills", kills)
}

// TestCrashInCompaction kills the program while it compacts its file, between any two of the steps of a compaction.
func TestCrashInCompaction(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	c := newCrashTest(t, strings.Repeat("0123456789abcdef", 20<<10)) // compactions are due often
	c.start()
	c.begin(4, "diamond", "wait")
	// size returns the size of the new file, -1 if there is none.
	size := func() int64 {
		info, err := os.Lstat(filepath.Join(c.data, "store.jsonl.new"))
		if err != nil {
			return -1
		}
		return info.Size()
	}
	for range 2 {
		seen := false
		for name, now := range map[string]func() bool{
			"the new file is made":           func() bool { return size() >= 0 },
			"half of it is written":          func() bool { return size() >= compactFloor/2 },
			"it has the name of the old one": func() bool { seen = seen || size() >= 0; return seen && size() < 0 },
		} {
			tick, limit := time.NewTicker(100*time.Microsecond), time.After(2*patience)
			for !now() { // which may be short
				select {
				case <-tick.C:
				case <-limit:
					t.Fatalf("the moment never came when %s", name)
				}
			}
			tick.Stop()
			c.kill()
			c.start()
		}
	}
	c.settle()
	c.check()
}
