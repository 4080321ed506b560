package e2e

// Every state that a crash of the machine may leave of a store: the program runs under strace,
// and from its system calls the test builds what the disk may hold after a crash at any moment.
// The program must read every state, and serve from it exactly the records up to a sequence, with
// all that had been acknowledged, shown, or passed to a handler.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"stepwell/e2e/wire"
)

var crashStates = flag.Int("crash.states", size(10, 200), "states of TestCrashStates; 10000 is the full test")

// told is something that the program told a client or a handler: a task has a record of a kind.
type told struct{ task, kind string }

// allRecords is the kind of a fact about a task that is over: it has all its records.
const allRecords = "all"

// tracedLoad is a program under strace, and the clients that it serves.
type tracedLoad struct {
	t         *testing.T
	strace    string
	dir       string
	data      string
	args      []string
	templates string
	env       []string
	steps     []traceStep
	life      int

	sent, answered atomic.Int64

	mu    sync.Mutex
	facts map[string]told // by the id of the request that is answered with it
	calls map[string]told // by step: what a handler's call tells
}

func newTracedLoad(t *testing.T) *tracedLoad {
	t.Helper()
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"n":1}`)
	}))
	t.Cleanup(handler.Close)
	l := &tracedLoad{t: t, strace: findStrace(t), dir: t.TempDir(), facts: map[string]told{}, calls: map[string]told{}}
	l.data = filepath.Join(l.dir, "data")
	l.env = []string{"STEPWELL_STORE__RETAIN_FINISHED_COUNT=25"}
	l.templates = templateDir(t, diamondTemplate,
		testTemplate("web", stepSpec{name: "a", callable: handler.URL},
			stepSpec{name: "b", callable: handler.URL, after: []string{"a"}}),
		testTemplate("act", stepSpec{name: "a", callable: "Outside"}))
	l.args = serveArguments("--data", l.data, "--sync", "always", "--templates", l.templates)
	return l
}

// launch starts the program under strace. It returns the file of the trace, too.
func (l *tracedLoad) launch(args ...string) (p *program, trace string) {
	l.t.Helper()
	l.life++
	trace = filepath.Join(l.dir, fmt.Sprintf("trace-%d", l.life))
	args = append(straceArguments(trace), append([]string{programFile(l.t)}, args...)...)
	return launchFile(l.t, l.strace, nil, l.env, args...), trace
}

// compact has the program compact the store that it left.
func (l *tracedLoad) compact() {
	l.t.Helper()
	p, trace := l.launch("store", "compact", "--data", l.data)
	if code := p.wait(); code != 0 {
		l.t.Fatalf("store compact: got exit code %d\n%s", code, p.stderr)
	}
	l.addSteps(trace)
}

// run starts the program, sends requests, and ends the program while more are on their way.
func (l *tracedLoad) run(requests int, end func(p *program)) {
	l.t.Helper()
	p, trace := l.launch(l.args...)
	p.awaitReady()
	enough := l.answered.Load() + int64(requests)
	var clients sync.WaitGroup
	for i := range 8 {
		c := &tracedClient{l: l, url: p.ready.OrchestrationURL, rnd: rand.New(rand.NewPCG(uint64(l.life), uint64(i)))}
		clients.Go(c.run)
	}
	eventually(l.t, "enough requests are answered", func() bool { return l.answered.Load() >= enough || !p.running() })
	end(p)
	clients.Wait()
	l.addSteps(trace)
}

// addSteps adds the steps of a program that has ended.
func (l *tracedLoad) addSteps(trace string) {
	l.t.Helper()
	left := readFiles(l.t, l.data)
	for _, s := range readTrace(l.t, trace) {
		if s.call.ret != "" || s.call.name != "pwrite64" || s.call.wrote(l.t, left) {
			l.steps = append(l.steps, s)
		}
	}
	l.steps = append(l.steps, traceStep{left: left})
}

// readFiles returns the files of a directory.
func readFiles(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, e := range wire.Must(os.ReadDir(dir))(t) {
		files[e.Name()] = readFile(t, filepath.Join(dir, e.Name()))
	}
	return files
}

// tracedClient sends one request after the other until the program has ended.
type tracedClient struct {
	l     *tracedLoad
	url   string
	rnd   *rand.Rand
	tasks []taskView
}

func (c *tracedClient) run() {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for c.request(client) {
		c.l.answered.Add(1)
	}
}

// request creates a task, or looks at one, cancels it, or completes its step.
func (c *tracedClient) request(client *http.Client) (ok bool) {
	if len(c.tasks) == 0 || c.rnd.IntN(2) == 0 {
		name := []string{"diamond", "web", "act"}[c.rnd.IntN(3)]
		padding := strings.Repeat("x", c.rnd.IntN(size(24_000, 80_000)))
		body := fmt.Sprintf(`{"namespace":"t","name":%q,"context":{"padding":%q}}`, name, padding)
		var v taskView
		if !c.send(client, &v, told{kind: "created"}, "POST", "/v1/tasks", body) {
			return false
		}
		if v.TaskUUID != "" {
			c.tasks = append(c.tasks, v)
		}
		return true
	}
	at := len(c.tasks) - 1 - c.rnd.IntN(min(len(c.tasks), 12))
	v := c.tasks[at]
	path := "/v1/tasks/" + v.TaskUUID
	switch {
	case v.Name == "act" && c.rnd.IntN(4) == 0:
		return c.send(client, &v, told{v.TaskUUID, "cancelled"}, "DELETE", path, "")
	case v.Name == "act" && c.rnd.IntN(2) == 0:
		path += "/workflow_steps/" + v.Steps[0].StepUUID
		return c.send(client, new(stepView), told{v.TaskUUID, "operator"}, "PATCH", path,
			`{"action_type":"complete_manually","reason":"r","completed_by":"me","completion_data":{"result":1}}`)
	}
	return c.send(client, &v, told{task: v.TaskUUID}, "GET", path, "")
}

// send sends a request and notes what its answer tells. It reports whether there was one.
func (c *tracedClient) send(client *http.Client, v any, fact told, method, path, body string) (ok bool) {
	id := fmt.Sprintf("request-%d", c.l.sent.Add(1))
	req := wire.Must(http.NewRequest(method, c.url+path, strings.NewReader(body)))(c.l.t)
	req.Header.Set("X-Request-Id", id)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode < 300 && json.NewDecoder(resp.Body).Decode(v) != nil {
		return false
	}
	c.l.note(id, fact, resp.StatusCode, v)
	return true
}

// note keeps what an answer told.
func (l *tracedLoad) note(id string, fact told, status int, v any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	task, isTask := v.(*taskView)
	switch {
	case status == http.StatusNotFound:
		fact.kind = "dropped"
	case status == http.StatusBadRequest || status == http.StatusConflict || status == http.StatusServiceUnavailable:
		return // the step or the task is over, or the program is about to end
	case status >= 300:
		l.t.Errorf("%s got status %d", id, status)
		return
	case fact.kind == "created":
		fact.task = task.TaskUUID
		for i, s := range task.Steps { // the second one of "web" is given the result of the first
			l.calls[s.StepUUID] = told{task.TaskUUID, []string{"created", "ended"}[min(i, 1)]}
		}
	case fact.kind == "" && isTask && (task.Status == "complete" || task.Status == "cancelled"):
		fact.kind = allRecords
	case fact.kind == "":
		return
	}
	l.facts[id] = fact
}

// crashHistory holds all records that the program ever wrote.
type crashHistory struct {
	records []historyRecord // by sequence, which begins with 1
	tasks   map[string][]uint64
}

type historyRecord struct {
	task, kind string
	element    string // its form in the log of a task
}

var (
	recordLine = regexp.MustCompile(`^{"seq":(\d+),(?:"task":"([^"]*)",)?(.*?)(?:,"w":\d+)?,"sum":"[0-9a-f]{8}"}$`)
	recordKind = regexp.MustCompile(`"kind":"([a-z]+)"`)
)

// add adds the records among the lines that are written to a file.
func (h *crashHistory) add(t testing.TB, data string) {
	for line := range strings.Lines(data) {
		m := recordLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil || !json.Valid([]byte(line)) { // a write of a compaction may begin within the log of a task
			continue
		}
		seq := wire.Must(strconv.Atoi(m[1]))(t)
		r := historyRecord{m[2], recordKind.FindStringSubmatch(m[3])[1], fmt.Sprintf(`{"seq":%d,%s}`, seq, m[3])}
		switch {
		case seq <= len(h.records) && h.records[seq-1] != r:
			t.Fatalf("sequence %d is there twice: %s and %s", seq, h.records[seq-1].element, r.element)
		case seq > len(h.records)+1:
			t.Fatalf("sequence %d follows %d", seq, len(h.records))
		case seq == len(h.records)+1:
			h.records = append(h.records, r)
			if r.task != "" {
				h.tasks[r.task] = append(h.tasks[r.task], uint64(seq))
			}
		}
	}
}

// TestCrashHistory adds a record, and a piece of a compacted part that begins with the same record in the log of its task.
func TestCrashHistory(t *testing.T) {
	h := &crashHistory{tasks: map[string][]uint64{}}
	h.add(t, `{"seq":1,"task":"a","kind":"ran","step":1,"sum":"01234567"}`+"\n")
	h.add(t, `{"seq":1,"kind":"ran","step":1},{"seq":2,"kind":"ran","step":2}]},"sum":"01234567"}`+"\n")
	if len(h.records) != 1 {
		t.Errorf("got %d records; want 1", len(h.records))
	}
}

// sequence returns the sequence of the record that a fact is about.
func (h *crashHistory) sequence(t testing.TB, f told) (seq uint64) {
	for _, n := range h.tasks[f.task] {
		kind := h.records[n-1].kind
		if kind == f.kind || f.kind == allRecords && kind != "dropped" {
			seq = n
		}
		if kind == f.kind {
			return n
		}
	}
	if seq == 0 {
		t.Fatalf("the program told %v, and there is no record of that", f)
	}
	return seq
}

var (
	headerSeq = regexp.MustCompile(`^{"format":.*?,"seq":(\d+)`)
	taskLine  = regexp.MustCompile(`^{"task":"([^"]*)",.*?,"log":\[(.*)\],"sum":"[0-9a-f]{8}"}$`)
)

// fault returns what is wrong with an exported state, which must have exactly the records up to its sequence, or "".
func (h *crashHistory) fault(state string) (until int, fault string) {
	header, rest, _ := strings.Cut(state, "\n")
	if m := headerSeq.FindStringSubmatch(header); m != nil {
		until, _ = strconv.Atoi(m[1])
	}
	if until > len(h.records) {
		return until, fmt.Sprintf("sequence %d was never written", until)
	}
	found := 0
	for line := range strings.Lines(rest) {
		m := taskLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		found++
		if want := h.log(m[1], uint64(until)); want == "" || m[2] != want {
			return until, fmt.Sprintf("at sequence %d, task %s is\n%s\nand its records are\n%s", until, m[1], line, want)
		}
	}
	if want := h.alive(until); found != want {
		return until, fmt.Sprintf("at sequence %d, %d tasks are there; want %d", until, found, want)
	}
	return until, ""
}

// log returns the log of a task after the records up to a sequence: empty if it is not there.
func (h *crashHistory) log(task string, until uint64) string {
	var elements []string
	for _, n := range h.tasks[task] {
		if r := h.records[n-1]; n <= until && r.kind == "dropped" {
			return ""
		} else if n <= until {
			elements = append(elements, r.element)
		}
	}
	return strings.Join(elements, ",")
}

// alive returns how many tasks are there after the records up to a sequence.
func (h *crashHistory) alive(until int) (n int) {
	for _, r := range h.records[:until] {
		switch r.kind {
		case "created":
			n++
		case "dropped":
			n--
		}
	}
	return n
}

// crashCheck is a state, and what became of it.
type crashCheck struct {
	number   int
	dir      string
	kind     string
	names    string // of its files
	required uint64 // sequence of the newest record that somebody knew of
	until    uint64 // sequence that the program served
	refusal  string // why it served nothing
}

// crashCheckers checks states, each in a separate process.
type crashCheckers struct {
	t       *testing.T
	load    *tracedLoad
	history *crashHistory
	dir     string
	queue   chan *crashCheck
	workers sync.WaitGroup
	checks  map[uint64]*crashCheck // by content
	serve   int                    // one of so many states is served too
}

// crashStates replays the trace again and again, and checks different states until there are
// enough of them.
func (l *tracedLoad) crashStates(t *testing.T, want int, noSyncs bool) *crashCheckers {
	c := &crashCheckers{t: t, load: l, history: l.history(), dir: t.TempDir(), queue: make(chan *crashCheck, 16),
		checks: map[uint64]*crashCheck{}, serve: 100}
	for range runtime.GOMAXPROCS(0) {
		c.workers.Go(c.work)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := 0; len(c.checks) < want && round < 1000; round++ {
		c.replay(rnd, want, noSyncs)
	}
	close(c.queue)
	c.workers.Wait()
	return c
}

// history returns all records of the trace.
func (l *tracedLoad) history() *crashHistory {
	h := &crashHistory{tasks: map[string][]uint64{}}
	for _, s := range l.steps {
		if s.begins && s.call.name == "pwrite64" {
			texts, _ := s.call.texts(l.t)
			h.add(l.t, texts[0])
		}
	}
	return h
}

var (
	answeredID = regexp.MustCompile(`^HTTP/1\.1 (?s:.*?)\r\nX-Request-Id: (\S+)\r\n`)
	calledStep = regexp.MustCompile(`^POST (?s:.*?)\r\nIdempotency-Key: ([^:]+):`)
)

// replay follows the trace once, and takes states at some of its moments: more often while
// names are not synced.
func (c *crashCheckers) replay(rnd *rand.Rand, want int, noSyncs bool) {
	d := newTracedDisk(c.t, c.load.data)
	d.noSyncs = noSyncs
	required, share := uint64(0), 1+len(c.load.steps)/want
	for _, s := range c.load.steps {
		sent := d.replay(s)
		known := c.known(sent)
		required = max(required, known)
		changed := sent == nil || known > 0
		if changed && len(c.checks) < want && (len(d.renaming) > 0 || rnd.IntN(share) == 0) {
			c.take(d.crash(rnd), required)
		}
	}
}

// known returns the sequence of the record that a message tells of, or 0.
func (c *crashCheckers) known(sent []byte) uint64 {
	if m := answeredID.FindSubmatch(sent); m != nil {
		if fact, ok := c.load.facts[string(m[1])]; ok {
			return c.history.sequence(c.t, fact)
		}
	}
	if m := calledStep.FindSubmatch(sent); m != nil {
		if fact, ok := c.load.calls[string(m[1])]; ok {
			return c.history.sequence(c.t, fact)
		}
	}
	return 0
}

// take has a state checked unless its content was.
func (c *crashCheckers) take(s *crashState, required uint64) {
	key := s.key()
	check := c.checks[key]
	if check == nil {
		n := len(c.checks) + 1
		check = &crashCheck{number: n, kind: s.kind, dir: filepath.Join(c.dir, fmt.Sprint(n)),
			names: strings.Join(slices.Sorted(maps.Keys(s.files)), " ")}
		c.checks[key] = check
		s.write(c.t, check.dir)
		c.queue <- check
	}
	check.required = max(check.required, required)
}

func (c *crashCheckers) work() {
	for check := range c.queue {
		c.check(check)
		if check.refusal == "" && check.number%c.serve == 0 {
			c.serveState(check)
		}
		os.RemoveAll(check.dir)
	}
}

// check exports a state and compares it with the history.
func (c *crashCheckers) check(check *crashCheck) {
	state, refusal := c.export(check.dir)
	if strings.Contains(refusal, "store.jsonl: no such file or directory") {
		return // it was not made yet, and check.required is 0
	}
	if check.refusal = refusal; refusal != "" {
		return
	}
	until, fault := c.history.fault(state)
	if check.until = uint64(until); fault != "" {
		c.t.Errorf("state %d (%s): %s", check.number, check.kind, fault)
	}
}

// export returns the state of a store, or why there is none.
func (c *crashCheckers) export(dir string) (state, refusal string) {
	cmd := exec.Command(programFile(c.t), "store", "export", "--data", dir)
	cmd.Env = append(programEnv(), "GOGC=off", "GOMAXPROCS=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Sprintf("%v: %s", err, stderr.String())
	}
	return stdout.String(), ""
}

// serveState serves a state as a start after the crash does. What it had must be there still.
func (c *crashCheckers) serveState(check *crashCheck) {
	args := serveArguments("--data", check.dir, "--sync", "always", "--templates", c.load.templates)
	launch(c.t, nil, args...).awaitReady().stop()
	state, refusal := c.export(check.dir)
	for task := range c.history.tasks {
		if want := c.history.log(task, check.until); want != "" && !strings.Contains(state, want) {
			c.t.Errorf("state %d (%s): after a start there is no longer %s (%s)", check.number, check.kind, want, refusal)
		}
	}
}

// lost returns the states that lack what somebody knew of.
func (c *crashCheckers) lost() (lost []*crashCheck) {
	for _, check := range c.checks {
		if check.refusal == "" && check.until < check.required {
			lost = append(lost, check)
		}
	}
	return lost
}

// report logs how many states of each kind there were, and of each set of files.
func (c *crashCheckers) report() {
	counts := map[string]int{}
	for _, check := range c.checks {
		counts["that keep "+check.kind]++
		counts["with the files "+check.names]++
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		c.t.Logf("%d states %s", counts[what], what)
	}
}

// reached reports whether there is a state with these files among others.
func (c *crashCheckers) reached(names string) bool {
	for _, check := range c.checks {
		if strings.Contains(check.names, names) {
			return true
		}
	}
	return false
}

// TestCrashStates checks the states that a crash may leave of a store under load, through compactions, retention, two
// kills, a shutdown, and the starts after them.
func TestCrashStates(t *testing.T) {
	t.Parallel()
	slow(t)
	l := newTracedLoad(t)
	l.run(size(300, 1000), (*program).kill)
	l.run(size(100, 500), (*program).stop)
	l.compact()
	l.run(size(50, 200), (*program).kill)
	want := *crashStates
	c := l.crashStates(t, want, false)
	c.report()
	t.Logf("%d records, %d steps of system calls", len(c.history.records), len(l.steps))
	for _, check := range c.lost() {
		t.Errorf("state %d (%s): sequence %d was known of, and %d is served", check.number, check.kind,
			check.required, check.until)
	}
	for _, check := range c.checks {
		if check.refusal != "" {
			t.Errorf("state %d (%s): refused: %s", check.number, check.kind, check.refusal)
		}
	}
	if len(c.checks) < want || want >= 500 && !c.reached("store.jsonl store.jsonl.new") { // few may miss it
		t.Errorf("there are %d states; want %d, also of the time of a compaction", len(c.checks), want)
	}
	// Would the test notice if nothing was ever synced?
	if blind := l.crashStates(t, 40, true); len(blind.lost()) == 0 {
		t.Error("without syncs, nothing is lost either: the test tests nothing")
	}
}
