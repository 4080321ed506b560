package e2e

// A soak: the program under mixed load, sometimes killed, that keeps few of many tasks.
// Acknowledged changes must survive each kill, and its use of the machine must not grow.

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

var soakDuration = flag.Duration("soak.duration", time.Duration(size(2, 10))*time.Second, "how long TestSoak goes on; a tenth of it is the least for one life")

const (
	soakKept    = 2_000 // finished tasks
	soakClients = 8
	soakRecent  = 400 // acknowledged changes that are checked after a kill: fewer than are kept
)

// soakTest holds the load and its books.
type soakTest struct {
	t       *testing.T
	data    string
	args    []string
	program *program
	sent    atomic.Int64 // requests that were answered

	mu      sync.RWMutex // held for reading by a client while it works
	recent  []soakFact   // the newest acknowledged changes; guarded by booksMu, as anchors
	anchors []string     // tasks that nobody ever acts on
	booksMu sync.Mutex

	over chan struct{}
	load sync.WaitGroup
}

// soakFact is an acknowledged change: what a GET must return.
type soakFact struct{ path, text string }

// soakTemplates are templates of tasks that finish at once, that are retried, that fail for
// good, and that an outside worker approves.
func soakTemplates() []string {
	soon := `{"max_attempts":4,"backoff_base_ms":5,"max_backoff_ms":20}`
	return []string{
		diamondTemplate, flakyTemplate,
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", retry: `{"max_attempts":1}`}),
		testTemplate("approval", stepSpec{name: "a", callable: "builtin:noop"},
			stepSpec{name: "act", callable: "soak.approve", after: []string{"a"}, retry: soon},
			stepSpec{name: "b", callable: "builtin:noop", after: []string{"act"}}),
		testTemplate("anchor", stepSpec{name: "a", callable: "Nobody"}),
	}
}

func newSoakTest(t *testing.T) *soakTest {
	t.Helper()
	s := &soakTest{t: t, data: filepath.Join(t.TempDir(), "data"), over: make(chan struct{})}
	s.args = serveArguments("--data", s.data, "--sync", "always", "--templates", templateDir(t, soakTemplates()...))
	return s
}

// start starts the program while no client works.
func (s *soakTest) start() {
	s.t.Helper()
	s.program = launch(s.t, []string{fmt.Sprintf("STEPWELL_STORE__RETAIN_FINISHED_COUNT=%d", soakKept)}, s.args...).awaitReady()
}

// crash kills the program under load, starts it again, and checks what it had acknowledged.
func (s *soakTest) crash() {
	s.t.Helper()
	s.program.kill()
	s.mu.Lock() // the clients pause
	defer s.mu.Unlock()
	s.checkLog()
	s.start()
	s.checkBooks()
}

func (s *soakTest) checkLog() {
	s.t.Helper()
	for line := range strings.Lines(s.program.stderr.String()) {
		if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "panic") {
			s.t.Errorf("the program says: %s", line)
		}
	}
}

// checkBooks checks the recent changes and the anchors. No client works meanwhile.
func (s *soakTest) checkBooks() {
	s.t.Helper()
	api := s.program.api()
	for _, f := range s.recent {
		if a := api.do("GET", f.path, ""); a.status != http.StatusOK || !bytes.Contains(a.body, []byte(f.text)) {
			s.t.Errorf("GET %s: got status %d, %.300s; acknowledged was %s", f.path, a.status, a.body, f.text)
		}
	}
	anchors := api.do("GET", "/v1/tasks?name=anchor&status=steps_in_process&per_page=1", "").want(200)
	if got, _ := strconv.Atoi(anchors.text("pagination.total_count")); got < len(s.anchors) {
		s.t.Errorf("got %d anchors; %d were acknowledged", got, len(s.anchors))
	}
}

// begin starts the clients.
func (s *soakTest) begin() {
	for i := range soakClients {
		c := &soakClient{s: s, http: &http.Client{Transport: &http.Transport{}}, name: fmt.Sprintf("client-%d", i)}
		s.load.Go(c.run)
	}
}

// soakClient is a client that sends one request after the other.
type soakClient struct {
	s    *soakTest
	http *http.Client
	name string
	n    int
}

// run works with pauses that leave some of the processor to others, until the soak is over.
func (c *soakClient) run() {
	defer c.http.CloseIdleConnections()
	pace := time.NewTicker(4 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-c.s.over:
			return
		}
		c.s.mu.RLock()
		c.work()
		c.s.mu.RUnlock()
	}
}

// send sends a request and returns the answer if it has the expected status, otherwise nil.
// There is no answer while the program is down.
func (c *soakClient) send(want int, method, path, body string) []byte {
	status, reply := sendOnce(c.http, method, c.s.program.ready.OrchestrationURL+path, body)
	switch status {
	case want:
		c.s.sent.Add(1)
		return reply
	case 0:
	default:
		c.s.t.Errorf("%s %s: got status %d; want %d: %s", method, path, status, want, reply)
	}
	return nil
}

// work does one of the things that clients do.
func (c *soakClient) work() {
	c.n++
	switch n := rand.IntN(100); {
	case n < 30:
		if id := c.create("diamond", "?wait=10s"); id != "" {
			c.s.note("/v1/tasks/"+id, `"status":"complete"`)
		}
	case n < 45:
		if id := c.create("flaky", ""); id != "" {
			c.s.note("/v1/tasks/"+id, id)
		}
	case n < 60:
		c.create("approval", "")
	case n < 62:
		c.create("fails", "")
	case n < 65:
		c.cancel()
	case n < 80:
		c.claim()
	case n < 82:
		c.resolve()
	case n < 83 && c.n%20 == 0:
		if id := c.create("anchor", ""); id != "" {
			c.s.booksMu.Lock()
			c.s.anchors = append(c.s.anchors, id)
			c.s.booksMu.Unlock()
		}
	default:
		c.read()
	}
}

// create returns the id of an acknowledged task.
func (c *soakClient) create(name, query string) string {
	reply := c.send(http.StatusCreated, "POST", "/v1/tasks"+query, fmt.Sprintf(
		`{"namespace":"t","name":%q,"context":{"marker":"%s-%d","padding":%q}}`, name, c.name, c.n, strings.Repeat("p", 1000)))
	var v taskView
	if reply != nil && json.Unmarshal(reply, &v) != nil {
		c.s.t.Errorf("got %s", reply)
	}
	return v.TaskUUID
}

func (c *soakClient) cancel() {
	id := c.create("anchor", "")
	if id != "" && c.send(http.StatusOK, "DELETE", "/v1/tasks/"+id, "") != nil {
		c.s.note("/v1/tasks/"+id, `"status":"cancelled"`)
	}
}

// claim acts as an outside worker: it completes most steps, and fails some.
func (c *soakClient) claim() {
	reply := c.send(http.StatusOK, "POST", "/v1/steps/claim",
		fmt.Sprintf(`{"callables":["soak.*"],"limit":4,"worker_id":%q,"lease_seconds":10}`, c.name))
	if reply == nil {
		return
	}
	var claims []claimedStep
	if err := json.Unmarshal(reply, &claims); err != nil {
		c.s.t.Errorf("%v in %s", err, reply)
	}
	for _, k := range claims {
		path := "/v1/steps/" + k.Step.StepUUID
		if rand.IntN(8) == 0 {
			c.send(http.StatusOK, "POST", path+"/fail", fmt.Sprintf(`{"lease":%q,"error":{"message":"m","retryable":true}}`, k.Lease))
			continue
		}
		by := fmt.Sprintf("%s-%d", c.name, c.n)
		if c.send(http.StatusOK, "POST", path+"/complete", fmt.Sprintf(`{"lease":%q,"result":{"by":%q}}`, k.Lease, by)) != nil {
			c.s.note("/v1/tasks/"+k.Task.TaskUUID+"/workflow_steps/"+k.Step.StepUUID, fmt.Sprintf(`{"by":%q}`, by))
		}
	}
}

// resolve empties the dead letter queue; one client does that at a time.
func (c *soakClient) resolve() {
	if c.name != "client-0" {
		return
	}
	reply := c.send(http.StatusOK, "GET", "/v1/dlq?resolution_status=Pending&limit=100", "")
	var entries []struct {
		Entry string `json:"dlq_entry_uuid"`
		Task  string `json:"task_uuid"`
	}
	if reply != nil && json.Unmarshal(reply, &entries) != nil {
		c.s.t.Errorf("got %s", reply)
	}
	for _, e := range entries {
		cancelled, _ := sendOnce(c.http, "DELETE", c.s.program.ready.OrchestrationURL+"/v1/tasks/"+e.Task, "")
		if cancelled == 0 { // otherwise it was cancelled before a crash
			return
		}
		path := "/v1/dlq/entry/" + e.Entry
		if c.send(http.StatusOK, "PATCH", path, `{"resolution_status":"ManuallyResolved","resolved_by":"soak"}`) != nil {
			c.s.note("/v1/dlq/task/"+e.Task, "ManuallyResolved")
		}
	}
}

// read reads something that others change.
func (c *soakClient) read() {
	paths := []string{"/v1/tasks?page=3", "/v1/tasks?status=complete&name=flaky", "/v1/analytics/performance",
		"/v1/analytics/bottlenecks", "/v1/dlq/stats", "/v1/steps?callable=soak.*", "/health/detailed", "/metrics"}
	c.send(http.StatusOK, "GET", paths[rand.IntN(len(paths))], "")
}

// note adds an acknowledged change to the books.
func (s *soakTest) note(path, text string) {
	s.booksMu.Lock()
	defer s.booksMu.Unlock()
	if s.recent = append(s.recent, soakFact{path, text}); len(s.recent) > soakRecent {
		s.recent = slices.Delete(s.recent, 0, len(s.recent)-soakRecent)
	}
}

// soakFootprint holds what a process uses of the machine.
type soakFootprint struct {
	requests, rss, heap, goroutines, files, disk, unfinished int64
}

func (f soakFootprint) String() string {
	return fmt.Sprintf("after %d requests: RSS %.1f MB, heap %.1f MB, %d goroutines, %d files open, %.1f MB on disk, %d tasks unfinished",
		f.requests, float64(f.rss)/1e6, float64(f.heap)/1e6, f.goroutines, f.files, float64(f.disk)/1e6, f.unfinished)
}

// measure pauses the load, waits until background work is done, and measures.
func (s *soakTest) measure() (f soakFootprint) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	eventually(s.t, "nothing runs", func() bool {
		text := s.program.api().metrics()
		return metricValue(s.t, text, "stepwell_handlers_running") == 0 &&
			metricValue(s.t, text, `stepwell_steps{state="waiting_for_retry"}`) == 0
	})
	text := s.program.api().metrics()
	f.requests = s.sent.Load()
	f.heap = metricValue(s.t, text, "stepwell_heap_bytes")
	f.goroutines = metricValue(s.t, text, "stepwell_goroutines")
	f.unfinished = metricValue(s.t, text, `stepwell_tasks{state="steps_in_process"}`) - int64(len(s.anchors))
	f.rss, f.files = wire.ResidentBytes(s.t, s.program.cmd.Process.Pid), openFiles(s.t, s.program.cmd.Process.Pid)
	f.disk = directorySize(s.t, s.data)
	s.t.Log(f)
	return f
}

// directorySize returns the total length of the files in a directory.
func directorySize(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // a compaction has just ended
			return nil
		}
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

// wantFlat compares what a process uses at the end with what it used after it had warmed up.
// Memory, which depends on the garbage collector, may grow by a third plus 24 MB. The files on
// disk may grow by records that are not due for a compaction yet, and by a file that is being compacted.
func wantFlat(t *testing.T, warm, end soakFootprint) {
	t.Helper()
	for _, limit := range []struct {
		what      string
		got, most int64
	}{
		{"RSS", end.rss, warm.rss + warm.rss/3 + 24<<20},
		{"goroutines", end.goroutines, warm.goroutines + 10},
		{"open files", end.files, warm.files + 10},
		{"bytes on disk", end.disk, warm.disk + warm.disk/4 + 2*compactFloor},
		{"unfinished tasks", end.unfinished, warm.unfinished + 200},
	} {
		if limit.got > limit.most {
			t.Errorf("%s: got %d at the end; want at most %d", limit.what, limit.got, limit.most)
		}
	}
}

// pause lets the load continue for a while.
func (s *soakTest) pause(d time.Duration) { receiveWithin(s.over, d) }

// TestSoak spends half of its time with kills and half in one life.
//
//	go test ./e2e -run TestSoak -soak.duration 10m -timeout 20m -v
func TestSoak(t *testing.T) {
	t.Parallel()
	slow(t)
	if runtime.GOOS != "linux" {
		wire.Skip(t, "looks into /proc")
	}
	s := newSoakTest(t)
	s.start()
	s.begin()
	kills := 0
	for began := time.Now(); time.Since(began) < *soakDuration/2; kills++ {
		s.pause(*soakDuration/20 + rand.N(*soakDuration/20))
		s.crash()
	}
	s.measure()
	s.pause(*soakDuration / 4)
	warm := s.measure()
	s.pause(*soakDuration / 4)
	eventually(t, "there was enough load", func() bool { // on a busy machine, later
		s.booksMu.Lock()
		defer s.booksMu.Unlock()
		return len(s.recent) >= soakRecent/4 && s.sent.Load() > warm.requests
	})
	end := s.measure()
	close(s.over)
	s.load.Wait()
	s.checkBooks()
	s.program.stop()
	s.checkLog()
	wantFlat(t, warm, end)
	t.Logf("%d kills, %d anchors", kills, len(s.anchors))
}

// openFiles returns the number of open files of a process.
func openFiles(t testing.TB, pid int) int64 {
	t.Helper()
	entries := wire.Must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	return int64(len(entries))
}

// claimedStep holds the members of a claimed step that an outside worker reads.
type claimedStep struct {
	Task struct {
		TaskUUID string `json:"task_uuid"`
	} `json:"task"`
	Step struct {
		StepUUID string `json:"step_uuid"`
		Attempt  int    `json:"attempt"`
	} `json:"step"`
	Lease   string `json:"lease"`
	Expires string `json:"lease_expires_at"`
}
