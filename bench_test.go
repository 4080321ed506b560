package main

// Benchmarks of the service as its clients see it, over real connections, each
// beside a bare handler that moves bodies of the same size. README says how to
// run them.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	diamondBody = `{"namespace":"bench","name":"diamond","context":{"order":12345,"customer":"c-77","items":["a","b"]}}`
	manualBody  = `{"namespace":"bench","name":"manual","context":{"order":12345,"customer":"c-77","items":["a","b"]}}`
)

// benchTemplate is a template of noop steps with the given parents.
func benchTemplate(name, callable string, parents [][]int) string {
	steps := make([]string, len(parents))
	for i, ps := range parents {
		names := make([]string, len(ps))
		for j, p := range ps {
			names[j] = fmt.Sprintf(`"s%d"`, p)
		}
		steps[i] = fmt.Sprintf(`{"name":"s%d","handler":{"callable":%q},"dependencies":[%s]}`,
			i, callable, strings.Join(names, ","))
	}
	return fmt.Sprintf(`{"namespace":"bench","name":%q,"version":"1.0.0","identity_strategy":"always_unique","steps":[%s]}`,
		name, strings.Join(steps, ","))
}

var diamondParents = [][]int{{}, {0}, {0}, {1, 2}}

func benchService(b *testing.B, dir string) *service {
	return newTestService(b, serviceTest{
		dir: dir, log: io.Discard,
		extra: []string{
			benchTemplate("diamond", "builtin:noop", diamondParents),
			benchTemplate("manual", "Outside::Actor", diamondParents),
		},
	})
}

// client is one keep-alive connection that speaks just enough HTTP.
type client struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
	body []byte
}

func dialClient(b *testing.B, url string) *client {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	return &client{conn: conn, r: bufio.NewReaderSize(conn, 16<<10)}
}

// do sends a request and reads the answer's status and body.
func (c *client) do(method, path, body string) (int, []byte, error) {
	c.out = fmt.Appendf(c.out[:0], "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path)
	if body != "" {
		c.out = fmt.Appendf(c.out, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	c.out = append(append(c.out, "\r\n"...), body...)
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, err
	}
	status, length := 0, 0
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		switch {
		case status == 0:
			status, _ = strconv.Atoi(string(line[9:12]))
		case len(line) == 2:
			if cap(c.body) < length {
				c.body = make([]byte, length)
			}
			c.body = c.body[:length]
			_, err := io.ReadFull(c.r, c.body)
			return status, c.body, err
		case bytes.HasPrefix(line, []byte("Content-Length: ")):
			length, _ = strconv.Atoi(string(bytes.TrimSpace(line[16:])))
		}
	}
}

// drive runs op b.N times over as many connections as there are clients, and
// reports throughput and the median latency.
func drive(b *testing.B, url string, clients int, op func(c *client) error) {
	var next sync.Mutex
	left := b.N
	take := func() bool {
		next.Lock()
		defer next.Unlock()
		left--
		return left >= 0
	}
	var wg sync.WaitGroup
	times := make([][]time.Duration, clients)
	b.ResetTimer()
	began := time.Now()
	for i := range clients {
		c := dialClient(b, url)
		wg.Go(func() {
			defer c.conn.Close()
			for take() {
				at := time.Now()
				if err := op(c); err != nil {
					b.Error(err)
					return
				}
				times[i] = append(times[i], time.Since(at))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(times...)
	slices.Sort(all)
	if len(all) > 0 {
		b.ReportMetric(float64(len(all))/time.Since(began).Seconds(), "op/s")
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	}
}

// bareTask is a task view as a program with encoding/json would have it.
type bareTask struct {
	TaskUUID             string          `json:"task_uuid"`
	Name                 string          `json:"name"`
	Namespace            string          `json:"namespace"`
	Version              string          `json:"version"`
	Status               string          `json:"status"`
	CreatedAt            string          `json:"created_at"`
	UpdatedAt            string          `json:"updated_at"`
	CompletedAt          *string         `json:"completed_at"`
	Context              json.RawMessage `json:"context"`
	Initiator            string          `json:"initiator"`
	SourceSystem         string          `json:"source_system"`
	Reason               string          `json:"reason"`
	Priority             int             `json:"priority"`
	Tags                 []string        `json:"tags"`
	CorrelationID        string          `json:"correlation_id"`
	ParentCorrelationID  *string         `json:"parent_correlation_id"`
	TotalSteps           int             `json:"total_steps"`
	PendingSteps         int             `json:"pending_steps"`
	InProgressSteps      int             `json:"in_progress_steps"`
	CompletedSteps       int             `json:"completed_steps"`
	FailedSteps          int             `json:"failed_steps"`
	ReadySteps           int             `json:"ready_steps"`
	ExecutionStatus      string          `json:"execution_status"`
	RecommendedAction    string          `json:"recommended_action"`
	CompletionPercentage float64         `json:"completion_percentage"`
	HealthStatus         string          `json:"health_status"`
	Steps                []bareStep      `json:"steps"`
}

type bareStep struct {
	WorkflowStepUUID      string  `json:"workflow_step_uuid"`
	TaskUUID              string  `json:"task_uuid"`
	NamedStepUUID         string  `json:"named_step_uuid"`
	Name                  string  `json:"name"`
	CurrentState          string  `json:"current_state"`
	DependenciesSatisfied bool    `json:"dependencies_satisfied"`
	RetryEligible         bool    `json:"retry_eligible"`
	ReadyForExecution     bool    `json:"ready_for_execution"`
	LastFailureAt         *string `json:"last_failure_at"`
	NextRetryAt           *string `json:"next_retry_at"`
	TotalParents          int     `json:"total_parents"`
	CompletedParents      int     `json:"completed_parents"`
	Attempts              int     `json:"attempts"`
	MaxAttempts           int     `json:"max_attempts"`
	BackoffRequestSeconds *int64  `json:"backoff_request_seconds"`
	LastAttemptedAt       *string `json:"last_attempted_at"`
}

// bareHandler decodes a creation body and encodes a task view of the same size
// as the service's, with nothing between: the ceiling of this machine.
func bareHandler(b *testing.B) http.Handler {
	svc := benchService(b, "")
	q, err := parseTaskRequest([]byte(manualBody))
	if err != nil {
		b.Fatal(err)
	}
	t, err := svc.createTask(b.Context(), q, true)
	if err != nil {
		b.Fatal(err)
	}
	var v bareTask
	if err := json.Unmarshal(taskView{t, svc.clock.now(), false, true}.appendJSON(nil), &v); err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/tasks", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Namespace, Name string
			Context         json.RawMessage
		}
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		body, err := json.Marshal(v)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusCreated)
		w.Write(body)
	})
	return mux
}

func expect(want int) func(status int, body []byte, err error) error {
	return func(status int, body []byte, err error) error {
		if err == nil && status != want {
			err = fmt.Errorf("got status %d; want %d: %s", status, want, body)
		}
		return err
	}
}

// BenchmarkCreate is POST /v1/tasks by 16 clients in memory mode, of a task
// whose steps wait for outside actors, beside the bare handler.
func BenchmarkCreate(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		h := httptest.NewServer(bareHandler(b))
		defer h.Close()
		drive(b, h.URL, 16, func(c *client) error { return expect(201)(c.do("POST", "/v1/tasks", manualBody)) })
	})
	b.Run("stepwell", func(b *testing.B) {
		h := httptest.NewServer(newOrchestrationAPI(benchService(b, "")))
		defer h.Close()
		drive(b, h.URL, 16, func(c *client) error { return expect(201)(c.do("POST", "/v1/tasks", manualBody)) })
	})
}

// runDiamond creates a diamond of noop steps and asks until it is complete.
func runDiamond(c *client) error {
	status, body, err := c.do("POST", "/v1/tasks", diamondBody)
	if err := expect(201)(status, body, err); err != nil {
		return err
	}
	const name = `"task_uuid":"`
	at := bytes.Index(body, []byte(name))
	if at < 0 {
		return fmt.Errorf("no task_uuid in %s", body)
	}
	path := "/v1/tasks/" + string(body[at+len(name):at+len(name)+36])
	for {
		status, body, err := c.do("GET", path, "")
		if err := expect(200)(status, body, err); err != nil {
			return err
		}
		if bytes.Contains(body, []byte(`"status":"complete"`)) {
			return nil
		}
	}
}

// BenchmarkDiamond is a four-step diamond of noop, created and seen complete.
func BenchmarkDiamond(b *testing.B) {
	for _, mode := range []string{"memory", "always"} {
		for _, clients := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/clients=%d", mode, clients), func(b *testing.B) {
				dir := ""
				if mode == "always" {
					dir = b.TempDir()
				}
				svc := benchService(b, dir)
				h := httptest.NewServer(newOrchestrationAPI(svc))
				defer h.Close()
				before := svc.store.journal.status().syncs
				drive(b, h.URL, clients, runDiamond)
				syncs := svc.store.journal.status().syncs - before
				b.ReportMetric(float64(syncs)/float64(b.N), "fsync/op")
			})
		}
	}
	b.Run("bare/clients=16", func(b *testing.B) {
		h := httptest.NewServer(bareHandler(b))
		defer h.Close()
		drive(b, h.URL, 16, func(c *client) error {
			if err := expect(201)(c.do("POST", "/v1/tasks", diamondBody)); err != nil {
				return err
			}
			return expect(201)(c.do("GET", "/v1/tasks", ""))
		})
	})
}

// BenchmarkStart is from exec to the first answered request, of a real process,
// with nothing and with a million finished tasks in its directory.
func BenchmarkStart(b *testing.B) {
	for _, tasks := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			dir := b.TempDir()
			fillStore(b, dir, tasks)
			for b.Loop() {
				p := launch(b, []string{"STEPWELL_STORE__RETAIN_FINISHED_COUNT=0"}, serveArguments("--data", dir, "--quiet")...)
				if err := p.awaitReady(); err != nil {
					b.Fatal(err)
				}
				c := dialClient(b, p.ready.OrchestrationURL)
				if err := expect(200)(c.do("GET", "/v1/tasks?per_page=1", "")); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				b.ReportMetric(float64(residentBytes(b, p.cmd.Process.Pid))/1e6, "RSS-MB")
				p.stop()
				b.StartTimer()
			}
		})
	}
}

// residentBytes is the memory that a process holds, as Linux counts it.
func residentBytes(b testing.TB, pid int) int64 {
	b.Helper()
	fields := strings.Fields(string(readFile(b, fmt.Sprintf("/proc/%d/statm", pid))))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// fillStore leaves finished diamonds in a directory.
func fillStore(b *testing.B, dir string, tasks int) {
	svc := openTestService(b, serviceTest{
		dir: dir, log: io.Discard,
		config: func(c *Config) { c.Store.Sync, c.Store.RetainFinishedCount = "never", 0 },
		extra:  []string{benchTemplate("diamond", "builtin:noop", diamondParents)},
	})
	q, err := parseTaskRequest([]byte(diamondBody))
	if err != nil {
		b.Fatal(err)
	}
	for range tasks {
		if _, err := svc.createTask(b.Context(), q, true); err != nil {
			b.Fatal(err)
		}
	}
	if err := svc.closeStore(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFsync is the limit of the disk: one write and one fdatasync of a
// record's size, in a row.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(b.TempDir() + "/reference")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	record := bytes.Repeat([]byte("x"), 500)
	for b.Loop() {
		if _, err := f.Write(record); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}
