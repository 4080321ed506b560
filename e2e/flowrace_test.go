package e2e

// The race: clients that create, wait and cancel, actors that claim, readers that follow the
// event stream, and operators that interfere, all at the same time. The checks afterwards are
// in flowrace_check_test.go.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

var raceTasks = flag.Int("race.tasks", size(40, 250), "tasks of TestFlowRace; 10000 is the full race")

const (
	raceClients  = 32
	raceClaimers = 8
	raceReaders  = 4
	raceRetry    = `{"max_attempts":3,"backoff":"linear","backoff_base_ms":1}`
)

// raceTemplates are the templates of the race.
var raceTemplates = []string{
	testTemplate("chain", stepSpec{name: "a", callable: "builtin:noop"},
		stepSpec{name: "b", callable: "Race::Work", after: []string{"a"}, retry: raceRetry},
		stepSpec{name: "c", callable: "builtin:flaky", after: []string{"b"}, retry: raceRetry, config: `{"failures":1}`},
		stepSpec{name: "d", callable: "Race::Work", after: []string{"c"}, retry: raceRetry}),
	testTemplate("diamond", stepSpec{name: "a", callable: "Race::Work", retry: raceRetry},
		stepSpec{name: "b", callable: "Race::Work", after: []string{"a"}, retry: raceRetry},
		stepSpec{name: "c", callable: "Race::Work", after: []string{"a"}, retry: raceRetry},
		stepSpec{name: "d", callable: "builtin:noop", after: []string{"b", "c"}}),
	testTemplate("decision", stepSpec{name: "a", kind: "decision", callable: "Race::Decide", retry: raceRetry},
		stepSpec{name: "b", callable: "Race::Work", after: []string{"a"}, retry: raceRetry},
		stepSpec{name: "c", callable: "builtin:noop", after: []string{"a"}},
		stepSpec{name: "d", kind: "deferred_convergence", callable: "Race::Work", after: []string{"b", "c"}, retry: raceRetry}),
	testTemplate("batch", stepSpec{name: "a", kind: "batchable", callable: "Race::Split", retry: raceRetry},
		stepSpec{name: "b", kind: "batch_worker", callable: "Race::Work", after: []string{"a"}, retry: raceRetry},
		stepSpec{name: "c", kind: "deferred_convergence", callable: "builtin:noop", after: []string{"b"}}),
	strings.Replace(testTemplate("quick", stepSpec{name: "a", callable: "builtin:noop"},
		stepSpec{name: "b", callable: "builtin:flaky", after: []string{"a"}, retry: raceRetry, config: `{"failures":2}`}),
		`"namespace":"t"`, `"namespace":"u"`, 1),
	strings.Replace(testTemplate("sentinel", stepSpec{name: "a", callable: "builtin:noop"}), `"namespace":"t"`, `"namespace":"u"`, 1),
}

// TestFlowRace checks that nothing is lost and nothing is done twice, whatever all of them do
// at once.
func TestFlowRace(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, mode := range []string{"memory", "file"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			args := []string{"--quiet", "--templates", templateDir(t, raceTemplates...)}
			if mode == "file" {
				args = append(args, "--data", filepath.Join(t.TempDir(), "data"), "--sync", "never")
			} else {
				args = append(args, "--memory")
			}
			env := []string{fmt.Sprintf("STEPWELL_EVENTS__KEEP=%d", 300*(*raceTasks+100))}
			r := newFlowRace(t, serveWith(t, env, args...))
			idle := r.program.api().metric("stepwell_goroutines")
			r.run(*raceTasks)
			r.check()
			r.close()
			eventually(t, "the program's goroutines end", func() bool {
				http.DefaultClient.CloseIdleConnections() // each connection has goroutines, too
				return r.program.api().metric("stepwell_goroutines") <= idle+2
			})
			r.program.stop()
			if mode == "file" {
				r.checkAgain(serveWith(t, env, args...))
			}
		})
	}
}

// stateSet is a set of states of tasks.
type stateSet map[string]bool

var (
	terminalStates = stateSet{"complete": true, "error": true, "cancelled": true, "resolved_manually": true, "blocked_by_failures": true}
	finalStates    = stateSet{"complete": true, "cancelled": true, "resolved_manually": true}
)

// flowRace holds a race and what its participants know of it.
type flowRace struct {
	t       *testing.T
	program *program
	client  *http.Client
	ctx     context.Context // ends long after the race should end
	cancel  context.CancelFunc

	next   atomic.Int64 // numbers, for any use
	events []wire.Marks // of each reader
	counts [raceCounts]atomic.Int64

	mu        sync.Mutex
	tasks     map[string]*racedTask
	steps     map[string]*racedStep
	abandoned map[string][]*racedLease // by step
}

// racedTask holds what its creator knows of a task.
type racedTask struct {
	namespace, name string
	cancels         int      // that were accepted
	touched         bool     // there was an attempt to cancel it
	passed          stateSet // states that a client waited for and that it reached
	end             string   // the last state
}

// racedStep holds what was done to a step.
type racedStep struct {
	lease     *racedLease // the newest
	completed int         // answers that completed it
	nonce     int64       // of the result that it was completed with
	operated  int         // operators' actions that were accepted
	touched   bool        // an operator tried to act on it
	given     map[int]int // how often each attempt was given out
	late      int         // outcomes under leases that were over
}

// racedLease is a step that a claimer received.
type racedLease struct {
	claimedStep
	Callable string `json:"callable"`
	until    time.Time
	answered bool // an answer was sent, and may be accepted at any moment
}

// Counters that show that the participants really met.
const (
	raceReplays = iota
	raceTimeouts
	raceDeaths
	raceLate
	raceTwice
	raceBlocked
	raceInterfered
	raceCancelled
	raceTorn
	raceCounts
)

var raceCountNames = [raceCounts]string{"replays", "timeouts", "deaths", "late", "twice", "blocked", "interfered",
	"cancelled", "torn streams"}

func newFlowRace(t *testing.T, p *program) *flowRace {
	t.Helper()
	r := &flowRace{
		t: t, program: p, events: make([]wire.Marks, raceReaders+1),
		tasks: map[string]*racedTask{}, steps: map[string]*racedStep{}, abandoned: map[string][]*racedLease{},
	}
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4 * raceClients}}
	r.ctx, r.cancel = context.WithTimeout(t.Context(), 4*patience+time.Duration(*raceTasks)*100*time.Millisecond)
	return r
}

// close ends everything but the program.
func (r *flowRace) close() {
	r.cancel()
	r.client.CloseIdleConnections()
}

func (r *flowRace) run(n int) {
	began := time.Now()
	var readers, claimers, clients sync.WaitGroup
	for i := range r.events {
		readers.Go(func() { r.follow(i) })
	}
	working, stop := context.WithCancel(r.ctx)
	for i := range raceClaimers {
		claimers.Go(func() { r.work(working, rand.New(rand.NewPCG(uint64(i), 1))) })
	}
	var created atomic.Int64
	for i := range raceClients {
		clients.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(i), 2))
			for created.Add(1) <= int64(n) && r.ctx.Err() == nil {
				r.live(chance)
			}
		})
	}
	clients.Wait()
	stop()
	claimers.Wait()
	r.submit("u", "sentinel", "", "", nil)
	readers.Wait()
	line := fmt.Sprintf("%d tasks in %s:", n, time.Since(began).Round(time.Millisecond))
	for i := range r.counts {
		line += fmt.Sprintf(" %d %s,", r.counts[i].Load(), raceCountNames[i])
	}
	r.t.Log(strings.TrimSuffix(line, ","))
	if r.ctx.Err() != nil {
		r.t.Fatalf("the race did not come to its end: of %d tasks %s", len(r.tasks), r.unfinished())
	}
}

// unfinished returns the number of tasks by state, and the progress of the readers.
func (r *flowRace) unfinished() string {
	line := ""
	for m := range strings.Lines(r.program.api().metrics()) {
		if strings.HasPrefix(m, "stepwell_tasks{") && !strings.HasSuffix(m, " 0\n") {
			line += strings.TrimSpace(m) + ", "
		}
	}
	for i := range r.events {
		line += fmt.Sprintf("reader %d had %d transitions, ", i, len(r.events[i].All))
	}
	return strings.TrimSuffix(line, ", ")
}

// raceAnswer is an answer; its status is 0 if there was none.
type raceAnswer struct {
	status int
	header http.Header
	body   []byte
	sent   time.Time
	took   time.Duration
}

func (a *raceAnswer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Errorf("%v in %s", err, a.body)
	}
}

// call sends a request. A missing answer is an error unless ctx has ended.
func (r *flowRace) call(ctx context.Context, method, path, body string, header ...string) *raceAnswer {
	req, err := http.NewRequestWithContext(ctx, method, r.program.ready.OrchestrationURL+path, strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return &raceAnswer{}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	a := &raceAnswer{sent: time.Now()}
	resp, err := r.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		a.header = resp.Header
		a.body, err = io.ReadAll(resp.Body)
	}
	a.took = time.Since(a.sent)
	switch {
	case err == nil:
		a.status = resp.StatusCode
	case ctx.Err() == nil:
		r.t.Errorf("%s %s: %v", method, path, err)
	}
	return a
}

// ask is call for a request that must be answered with one of the given statuses.
func (r *flowRace) ask(method, path, body string, allowed ...int) *raceAnswer {
	a := r.call(r.ctx, method, path, body)
	if !slices.Contains(allowed, a.status) && r.ctx.Err() == nil {
		r.t.Errorf("%s %s %s: got %d; want one of %v: %s", method, path, body, a.status, allowed, a.body)
	}
	return a
}

// live plays the life of one task, from its creation to its end.
func (r *flowRace) live(chance *rand.Rand) {
	names := []string{"chain", "diamond", "decision", "batch", "quick"}
	name := names[chance.IntN(len(names))]
	namespace := "t"
	if name == "quick" {
		namespace = "u"
	}
	id := r.create(chance, namespace, name)
	if id == "" {
		return
	}
	var others sync.WaitGroup
	defer others.Wait()
	seed := chance.Uint64()
	for _, other := range []struct {
		percent int
		do      func(*rand.Rand, string)
	}{{30, r.waitForSome}, {8, r.interfere}, {3, r.cancelTask}, {2, r.cancelTask}} {
		if chance.IntN(100) < other.percent {
			others.Go(func() { other.do(rand.New(rand.NewPCG(seed, uint64(other.percent))), id) })
		}
	}
	for r.ctx.Err() == nil {
		limit := []string{"20ms", "30s", "30s", "1m"}[chance.IntN(4)]
		switch v := r.wait(id, "terminal", limit, terminalStates); v.Status {
		case "complete", "cancelled":
			r.mu.Lock()
			r.tasks[id].end = v.Status
			r.mu.Unlock()
			return
		case "blocked_by_failures":
			r.counts[raceBlocked].Add(1)
			r.unblock(chance, v)
		}
	}
}

// create creates a task in one of several ways.
func (r *flowRace) create(chance *rand.Rand, namespace, name string) string {
	query := []string{"", "", "?wait=30ms", "?wait=30s"}[chance.IntN(4)]
	if chance.IntN(5) == 0 {
		return r.createOnce(chance, namespace, name)
	}
	key := ""
	if chance.IntN(3) == 0 {
		key = fmt.Sprint("alone-", r.next.Add(1))
	}
	id, replayed := r.submit(namespace, name, query, key, nil)
	if replayed {
		r.t.Errorf("task %s was created by nobody else, and is said to be a replay", id)
	}
	return id
}

// createOnce sends the same creation several times at once.
func (r *flowRace) createOnce(chance *rand.Rand, namespace, name string) string {
	n := 2 + chance.IntN(3)
	key := fmt.Sprint("shared-", r.next.Add(1))
	ids, first := make([]string, n), 0
	answered := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		query := []string{"", "", "?wait=10ms"}[chance.IntN(3)]
		wg.Go(func() {
			id, replayed := r.submit(namespace, name, query, key, answered)
			once.Do(func() { close(answered) })
			mu.Lock()
			defer mu.Unlock()
			ids[i] = id
			if !replayed {
				first++
			}
		})
	}
	wg.Wait()
	if r.ctx.Err() == nil && (first != 1 || len(slices.Compact(slices.Clone(ids))) != 1) {
		r.t.Errorf("%d requests with the key %s gave the tasks %v, %d of them new", n, key, ids, first)
	}
	return ids[0]
}

// submit creates a task. While an earlier request with the same key is in progress, it tries
// again.
func (r *flowRace) submit(namespace, name, query, key string, answered <-chan struct{}) (id string, replayed bool) {
	body := fmt.Sprintf(`{"namespace":%q,"name":%q}`, namespace, name)
	header := []string{}
	if key != "" {
		header = []string{"Idempotency-Key", key}
	}
	a := r.call(r.ctx, "POST", "/v1/tasks"+query, body, header...)
	if a.status == 409 && answered != nil && a.header.Get("Retry-After") != "" {
		select {
		case <-answered:
			a = r.call(r.ctx, "POST", "/v1/tasks"+query, body, header...)
		case <-r.ctx.Done():
		}
	}
	if a.status == 0 {
		return "", false
	}
	return r.submitted(a, namespace, name, query)
}

// submitted compares the answer to a creation with the request.
func (r *flowRace) submitted(a *raceAnswer, namespace, name, query string) (id string, replayed bool) {
	var v taskView
	if a.status == 201 || a.status == 202 {
		a.into(r.t, &v)
	}
	state := v.Status
	end := a.header.Get("X-Stepwell-Wait")
	switch {
	case v.TaskUUID == "":
		r.t.Errorf("POST %s: got %d: %s", query, a.status, a.body)
		return "", false
	case a.status == 202 && (end != "timeout" || query == ""),
		a.status == 201 && (end != "" || query != "" && !terminalStates[state]):
		r.t.Errorf("POST %s: got %d, %q and the state %s", query, a.status, end, v.Status)
	case end == "timeout":
		r.timedOut(a, query)
	}
	if replayed = a.header.Get("Idempotency-Replayed") == "true"; replayed {
		r.counts[raceReplays].Add(1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks[v.TaskUUID] == nil {
		r.tasks[v.TaskUUID] = &racedTask{namespace: namespace, name: name, passed: stateSet{}}
	} else if !replayed && !strings.Contains(a.header.Get("Location"), v.TaskUUID) {
		r.t.Errorf("task %s was created twice", v.TaskUUID)
	}
	return v.TaskUUID, replayed
}

// timedOut checks that a wait lasted as long as the answer says.
func (r *flowRace) timedOut(a *raceAnswer, query string) {
	r.counts[raceTimeouts].Add(1)
	_, text, _ := strings.Cut(query, "wait=")
	if d, err := time.ParseDuration(text); err != nil || a.took < d {
		r.t.Errorf("a wait of %s timed out after %s", text, a.took)
	}
}

// wait waits for a task, and compares the answer with the request.
func (r *flowRace) wait(id, word, limit string, wants stateSet) (v taskView) {
	a := r.ask("GET", "/v1/tasks/"+id+"?wait="+word+"&timeout="+limit, "", 200)
	if a.status != 200 {
		return v
	}
	a.into(r.t, &v)
	state := v.Status
	switch end := a.header.Get("X-Stepwell-Wait"); {
	case end == "" && word != "terminal": // it may be shown as it was just after that state
		r.mu.Lock()
		maps.Copy(r.tasks[id].passed, wants)
		r.mu.Unlock()
	case end == "" && wants[state]:
	case end == "ended" && finalStates[state] && !wants[state]:
	case end == "timeout" && !wants[state]:
		r.timedOut(a, "?wait="+limit)
	default:
		r.t.Errorf("waited for %s of task %s: got %q in the state %s", word, id, end, v.Status)
	}
	return v
}

// waitForSome waits for any state, reached or not.
func (r *flowRace) waitForSome(chance *rand.Rand, id string) {
	states := wire.Words("TaskState")
	state := states[chance.IntN(len(states))]
	r.wait(id, state, []string{"5ms", "200ms", "2s"}[chance.IntN(3)], stateSet{state: true})
}

// cancelTask cancels a task at any moment of its life.
func (r *flowRace) cancelTask(chance *rand.Rand, id string) {
	if chance.IntN(2) == 0 {
		r.wait(id, "steps_in_process", "50ms", stateSet{"steps_in_process": true})
	}
	r.mu.Lock()
	r.tasks[id].touched = true
	r.mu.Unlock()
	if a := r.ask("DELETE", "/v1/tasks/"+id, "", 200, 400); a.status == 200 {
		r.counts[raceCancelled].Add(1)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tasks[id].cancels++
	}
}

func (r *flowRace) view(id string) (v taskView) {
	if a := r.ask("GET", "/v1/tasks/"+id, "", 200); a.status == 200 {
		a.into(r.t, &v)
	}
	return v
}

// stepLocked returns what is known of a step.
func (r *flowRace) stepLocked(id string) *racedStep {
	if r.steps[id] == nil {
		r.steps[id] = &racedStep{given: map[int]int{}}
	}
	return r.steps[id]
}

const (
	raceReset    = `{"action_type":"reset_for_retry","reason":"r","reset_by":"op"}`
	raceResolve  = `{"action_type":"resolve_manually","reason":"r","resolved_by":"op"}`
	raceComplete = `{"action_type":"complete_manually","reason":"r","completed_by":"op","completion_data":{"result":{"by":"op"}}}`
	raceFail     = `{"action_type":"fail","reason":"r","failed_by":"op","error":{"message":"no"}}`
)

// act does something to a step that others may have done before, each time for another reason: the same
// action again would be answered as before.
func (r *flowRace) act(task, step, action string) {
	action = strings.Replace(action, `"reason":"r"`, fmt.Sprintf(`"reason":"r%d"`, r.next.Add(1)), 1)
	r.mu.Lock()
	r.stepLocked(step).touched = true
	r.mu.Unlock()
	a := r.ask("PATCH", "/v1/tasks/"+task+"/workflow_steps/"+step, action, 200, 400, 409)
	if a.status == 200 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stepLocked(step).operated++
	}
}

// unblock lets operators handle the failed steps, some of them at once.
func (r *flowRace) unblock(chance *rand.Rand, v taskView) {
	var wg sync.WaitGroup
	for _, s := range v.Steps {
		if s.State != "error" {
			continue
		}
		action := []string{raceReset, raceReset, raceResolve, raceComplete}[chance.IntN(4)]
		for range 1 + chance.IntN(2) {
			wg.Go(func() { r.act(v.TaskUUID, s.StepUUID, action) })
		}
	}
	wg.Wait()
}

// interfere lets an operator act on a step without need.
func (r *flowRace) interfere(chance *rand.Rand, id string) {
	r.wait(id, "steps_in_process", "50ms", stateSet{"steps_in_process": true})
	v := r.view(id)
	if len(v.Steps) == 0 {
		return
	}
	r.counts[raceInterfered].Add(1)
	s := v.Steps[chance.IntN(len(v.Steps))]
	r.act(id, s.StepUUID, []string{raceResolve, raceComplete, raceFail, raceFail}[chance.IntN(4)])
}

// work plays the life of one claimer.
func (r *flowRace) work(ctx context.Context, chance *rand.Rand) {
	for ctx.Err() == nil {
		seconds, dies := 30, false
		asking, hangUp := ctx, context.CancelFunc(func() {})
		switch chance.IntN(20) {
		case 0:
			seconds, dies = 1, true
		case 1: // the answer may never reach it
			seconds = 1
			asking, hangUp = context.WithTimeout(ctx, time.Duration(chance.IntN(20_000))*time.Microsecond)
		}
		body := fmt.Sprintf(`{"callables":["Race::*"],"lease_seconds":%d,"wait_seconds":5,"limit":%d}`, seconds, 1+chance.IntN(4))
		a := r.call(asking, "POST", "/v1/steps/claim", body)
		hangUp()
		if a.status == 0 {
			continue
		}
		for _, l := range r.given(a) {
			if dies {
				r.abandon(l)
			} else {
				r.answerClaim(chance, l)
			}
		}
	}
}

// given notes the leases of an answer, and checks that no other claimer has them.
func (r *flowRace) given(a *raceAnswer) (all []*racedLease) {
	if a.status != 200 {
		r.t.Errorf("claiming: got %d: %s", a.status, a.body)
		return nil
	}
	a.into(r.t, &all)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range all {
		var err error
		if l.until, err = time.Parse(time.RFC3339, l.Expires); err != nil {
			r.t.Error(err)
		}
		s := r.stepLocked(l.Step.StepUUID)
		s.given[l.Step.Attempt]++
		if old := s.lease; old != nil && !old.answered && !s.touched && now.Before(old.until) {
			r.t.Errorf("step %s was given out while another had it: attempt %d until %s, then attempt %d at %s",
				l.Step.StepUUID, old.Step.Attempt, old.until, l.Step.Attempt, now)
		}
		s.lease = l
	}
	return all
}

func (r *flowRace) abandon(l *racedLease) {
	r.counts[raceDeaths].Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned[l.Step.StepUUID] = append(r.abandoned[l.Step.StepUUID], l)
}

// answerClaim answers for a step in one of many ways, sometimes first under leases of claimers
// that gave up.
func (r *flowRace) answerClaim(chance *rand.Rand, l *racedLease) {
	r.mu.Lock()
	dead := r.abandoned[l.Step.StepUUID]
	delete(r.abandoned, l.Step.StepUUID)
	r.mu.Unlock()
	for _, d := range dead {
		r.counts[raceLate].Add(1)
		r.say(d, raceDone, raceDone)
	}
	done := raceDone
	if l.Callable != "Race::Work" {
		done = raceOutcome(chance, l)
	}
	switch n := chance.IntN(100); {
	case n < 70:
		r.say(l, done)
	case n < 78:
		r.say(l, `fail {"error":{"message":"no"}`)
	case n < 81:
		r.say(l, `fail {"error":{"message":"no","retryable":false}`)
	case n < 90:
		r.extend(l)
		r.say(l, done)
	case n < 95:
		r.counts[raceTwice].Add(1)
		r.say(l, done, done)
	default:
		r.counts[raceTwice].Add(1)
		r.say(l, done, `fail {"error":{"message":"no"}`)
	}
}

// raceDone completes a step, apart from the lease; the number makes the result unique.
const raceDone = `complete {"result":{"nonce":%d}`

// raceOutcome completes a step that decides about other steps.
func raceOutcome(chance *rand.Rand, l *racedLease) string {
	if l.Callable == "Race::Decide" {
		names := []string{``, `"b"`, `"c"`, `"b","c"`}[chance.IntN(4)]
		return `complete {"result":{"nonce":%d,"decision_point_outcome":{"type":"create_steps","step_names":[` + names + `]}}`
	}
	cursors := strings.TrimSuffix(strings.Repeat(`{},`, chance.IntN(4)), ",")
	return `complete {"result":{"nonce":%d,"batch_processing_outcome":{"type":"create_batches",` +
		`"worker_template_name":"b","cursor_configs":[` + cursors + `]}}`
}

func (r *flowRace) extend(l *racedLease) {
	a := r.ask("POST", "/v1/steps/"+l.Step.StepUUID+"/extend", fmt.Sprintf(`{"lease":%q,"lease_seconds":40}`, l.Lease), 200, 409)
	if a.status != 200 {
		r.wantLost(l, a)
		return
	}
	var v struct {
		Until string `json:"lease_expires_at"`
	}
	a.into(r.t, &v)
	at, err := time.Parse(time.RFC3339, v.Until)
	if err != nil { // it has ended meanwhile
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.until.After(at) {
		r.t.Errorf("a lease until %s was extended to %s", l.until, at)
	}
	l.until = at
}

// say sends answers for a step, all at once. At most one may be accepted; if none is, the lease
// was over, and the outcome is in the audit once.
func (r *flowRace) say(l *racedLease, words ...string) {
	r.mu.Lock()
	l.answered = true
	r.mu.Unlock()
	var wg sync.WaitGroup
	answers, nonces := make([]*raceAnswer, len(words)), make([]int64, len(words))
	for i, word := range words {
		verb, body, _ := strings.Cut(word, " ")
		if verb == "complete" {
			nonces[i] = r.next.Add(1)
			body = fmt.Sprintf(body, nonces[i])
		}
		wg.Go(func() {
			answers[i] = r.ask("POST", "/v1/steps/"+l.Step.StepUUID+"/"+verb, fmt.Sprintf(`%s,"lease":%q}`, body, l.Lease), 200, 409)
		})
	}
	wg.Wait()
	taken := slices.IndexFunc(answers, func(a *raceAnswer) bool { return a.status == 200 })
	if taken < 0 {
		r.wantLost(l, answers[0])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stepLocked(l.Step.StepUUID)
	switch {
	case taken < 0:
		s.late++
	case slices.ContainsFunc(answers[taken+1:], func(a *raceAnswer) bool { return a.status == 200 }):
		r.t.Errorf("step %s: two answers under the same lease were taken", l.Step.StepUUID)
	case nonces[taken] != 0:
		s.completed++
		s.nonce = nonces[taken]
	}
}

// wantLost checks that a lease which is reported as over can be over.
func (r *flowRace) wantLost(l *racedLease, a *raceAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	task := r.tasks[l.Task.TaskUUID]
	touched := r.stepLocked(l.Step.StepUUID).touched || task != nil && task.touched
	if r.ctx.Err() == nil && !touched && a.sent.Add(a.took).Before(l.until) {
		r.t.Errorf("step %s: an answer was refused %s before the end of its lease: %s",
			l.Step.StepUUID, l.until.Sub(a.sent.Add(a.took)), a.body)
	}
}

// follow reads the event stream until the sentinel is complete. The first reader stays
// connected, the others are cut off again and again; the last one follows a single namespace.
func (r *flowRace) follow(reader int) {
	chance := rand.New(rand.NewPCG(uint64(reader), 3))
	query := ""
	if reader == len(r.events)-1 {
		query = "?namespace=u"
	}
	m := &r.events[reader]
	for !m.Over && r.ctx.Err() == nil {
		ctx, tear := r.ctx, context.CancelFunc(func() {})
		if reader > 0 {
			ctx, tear = context.WithTimeout(r.ctx, time.Duration(chance.IntN(500))*time.Millisecond)
		}
		err := r.read(ctx, m, query)
		tear()
		if err != nil && ctx.Err() == nil {
			r.t.Errorf("reader %d: %v", reader, err)
		}
		r.counts[raceTorn].Add(1)
	}
}

// read reads one stream, from the last event of the reader, until it ends or is cut off.
func (r *flowRace) read(ctx context.Context, m *wire.Marks, query string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", r.program.ready.OrchestrationURL+"/v1/events"+query, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", cmp.Or(m.LastMark, "0"))
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return fmt.Errorf("got the status %d", resp.StatusCode)
	}
	var pending bytes.Buffer
	buf := make([]byte, 16<<10)
	for !m.Over {
		n, err := resp.Body.Read(buf)
		pending.Write(buf[:n])
		if whole := bytes.LastIndex(pending.Bytes(), []byte("\n\n")); whole >= 0 {
			if err := m.Take(string(pending.Next(whole + 2))); err != nil {
				return err
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil {
			return nil
		}
	}
	return nil
}
