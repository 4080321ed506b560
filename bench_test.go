package main

// Benchmarks of the service over real connections, as its clients see it, each next to a bare
// handler that moves bodies of the same size. docs/BENCHMARKS.md says how to run them.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// benchServer serves the orchestration role as a service does: its connections are known.
func benchServer(b *testing.B, svc *service) (url string) {
	h := newHTTPServer(must(net.Listen("tcp", "127.0.0.1:0"))(b), newOrchestrationAPI(svc, nil), manyConnections(), svc.log)
	go h.serve()
	b.Cleanup(func() { h.server.Close() })
	return h.url()
}

// wireClient is a keep-alive connection that speaks just enough HTTP.
type wireClient struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
	body []byte
}

func dialClient(b *testing.B, url string) *wireClient {
	conn := must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(b)
	return &wireClient{conn: conn, r: bufio.NewReaderSize(conn, 16<<10)}
}

// do sends a request and reads the answer's status and body.
func (c *wireClient) do(method, path, body string) (int, []byte, error) {
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
func drive(b *testing.B, url string, clients int, op func(c *wireClient) error) {
	b.ResetTimer()
	all, took := driveTimes(b, url, clients, b.N, op)
	b.StopTimer()
	if len(all) > 0 {
		b.ReportMetric(float64(len(all))/took.Seconds(), "op/s")
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	}
}

// driveTimes runs op n times over as many connections as there are clients, and returns the sorted
// latencies and how long it took.
func driveTimes(
	b *testing.B, url string, clients, n int, op func(c *wireClient) error,
) (all []time.Duration, took time.Duration) {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	times := make([][]time.Duration, clients)
	began := time.Now()
	for i := range clients {
		c := dialClient(b, url)
		wg.Go(func() {
			defer c.conn.Close()
			for left.Add(-1) >= 0 {
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
	took = time.Since(began)
	all = slices.Concat(times...)
	slices.Sort(all)
	return all, took
}

// bareTask is a task view as a program that uses encoding/json would define it.
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

// bareHandler decodes a creation body and encodes a task view of the same size as the
// service's, and does nothing else: it is as fast as this machine can be.
func bareHandler(b *testing.B) http.Handler {
	svc := benchService(b, "")
	t := createMany(b, svc, manualBody, 1)
	var v bareTask
	if err := json.Unmarshal(jsonOf(taskView{task: t, now: svc.clock.now()}), &v); err != nil {
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

// BenchmarkCreate measures POST /v1/tasks by 16 clients in memory mode, of a task whose steps
// wait for outside actors, and the bare handler.
func BenchmarkCreate(b *testing.B) {
	run := func(b *testing.B, handler http.Handler) {
		h := httptest.NewServer(handler)
		defer h.Close()
		drive(b, h.URL, 16, func(c *wireClient) error { return expect(201)(c.do("POST", "/v1/tasks", manualBody)) })
	}
	b.Run("bare", func(b *testing.B) { run(b, bareHandler(b)) })
	b.Run("stepwell", func(b *testing.B) { run(b, newOrchestrationAPI(benchService(b, ""), nil)) })
}

// runDiamond creates a diamond of noop steps and asks until it is complete.
func runDiamond(c *wireClient) error { return runTask(c, diamondBody) }

// runTask creates a task and asks until it is complete.
func runTask(c *wireClient, request string) error {
	status, body, err := c.do("POST", "/v1/tasks", request)
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

// BenchmarkDiamond measures a four-step diamond of noop, from its creation until a client sees
// it complete.
func BenchmarkDiamond(b *testing.B) {
	for _, mode := range []string{"memory", "always"} {
		for _, clients := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/clients=%d", mode, clients), func(b *testing.B) {
				dir := ""
				if mode == "always" {
					dir = b.TempDir()
				}
				svc := benchService(b, dir)
				url := benchServer(b, svc)
				before := svc.store.journal.status().syncs
				drive(b, url, clients, runDiamond)
				syncs := svc.store.journal.status().syncs - before
				b.ReportMetric(float64(syncs)/float64(b.N), "fsync/op")
			})
		}
	}
	b.Run("bare/clients=16", func(b *testing.B) {
		h := httptest.NewServer(bareHandler(b))
		defer h.Close()
		drive(b, h.URL, 16, func(c *wireClient) error {
			if err := expect(201)(c.do("POST", "/v1/tasks", diamondBody)); err != nil {
				return err
			}
			return expect(201)(c.do("GET", "/v1/tasks", ""))
		})
	})
}

// handlerTurns is how often BenchmarkHandlers gives each row its turn.
const handlerTurns = 8

// handlerRow is a way to have the four steps of a diamond handled.
type handlerRow struct {
	name    string
	url     string // of the service
	store   *store // nil without one
	diamond func(c *wireClient) error

	all    []time.Duration
	rates  []float64 // by turn
	used   []float64 // µs of processor per diamond, by turn
	allocs uint64
	syncs  uint64
}

// BenchmarkHandlers measures diamonds whose steps an HTTP handler in another process runs, each
// from a creation to its answer at the end: in memory and with store.sync = "always". The references
// make the same four calls in the same order with net/http, without an engine; the one for "always"
// also waits for a sync where the service does. The four take turns.
//
//	go test -run XXX -bench Handlers -benchtime 20000x .
func BenchmarkHandlers(b *testing.B) {
	handler := startHandler(b)
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			memory, always := webDiamonds(b, "memory", "", handler), webDiamonds(b, "always", b.TempDir(), handler)
			bare, synced := bareDiamonds(b, "bare", memory, handler, func() {}), bareDiamonds(b, "synced", memory, handler, benchGroupSyncer(b))
			rows := []*handlerRow{bare, synced, memory, always}
			b.ResetTimer()
			for range handlerTurns {
				for _, row := range rows {
					row.turn(b, clients, b.N/handlerTurns+1)
				}
			}
			b.StopTimer()
			b.ReportMetric(medianRatio(memory.rates, bare.rates), "memory/bare")
			b.ReportMetric(medianRatio(synced.rates, bare.rates), "synced/bare")
			b.ReportMetric(medianRatio(always.rates, synced.rates), "always/synced")
			b.ReportMetric(medianRatio(always.rates, memory.rates), "always/memory")
			for _, row := range rows {
				row.report(b)
			}
		})
	}
}

// startHandler starts a handler in a separate process, which ends with the benchmark.
func startHandler(b *testing.B) (url string) {
	p := exec.Command(must(os.Executable())(b), handlerProgramArgs("serve")...)
	stdin, stdout := must(p.StdinPipe())(b), must(p.StdoutPipe())(b)
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		p.Wait()
	})
	return strings.TrimSpace(must(bufio.NewReader(stdout).ReadString('\n'))(b))
}

// webDiamonds is the row of a service whose creations wait for the end.
func webDiamonds(b *testing.B, name, dir, handler string) *handlerRow {
	svc := newTestService(b, serviceTest{dir: dir, log: io.Discard, config: retaining(1000),
		extra: []string{benchTemplate("diamond", handler, diamondParents)}})
	return &handlerRow{name: name, url: benchServer(b, svc), store: svc.store, diamond: func(c *wireClient) error {
		status, body, err := c.do("POST", "/v1/tasks?wait=30s", diamondBody)
		if err == nil && !bytes.Contains(body, []byte(`"status":"complete"`)) {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		return expect(201)(status, body, err)
	}}
}

// bareDiamonds is the row of a client without an engine, which calls sync where the service has to
// wait for one: after the creation and after each call, and once after the two calls at the same time. Its bodies have the size
// of the service's.
func bareDiamonds(b *testing.B, name string, service *handlerRow, handler string, sync func()) *handlerRow {
	client := &http.Client{Transport: newHandlerTransport(1000, nil)}
	body := bytes.Repeat([]byte(" "), 900)
	call := func() error {
		r, err := client.Post(handler, jsonType, bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		_, err = io.ReadAll(r.Body)
		return err
	}
	return &handlerRow{name: name, url: service.url, diamond: func(*wireClient) error {
		sync()
		first := call()
		sync()
		other := make(chan error, 1)
		go func() { other <- call() }()
		second, third := call(), <-other
		sync()
		last := call()
		sync()
		return errors.Join(first, second, third, last)
	}}
}

// turn has n diamonds made.
func (r *handlerRow) turn(b *testing.B, clients, n int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, syncs := cpuTime(), r.syncCount()
	times, took := driveTimes(b, r.url, clients, n, r.diamond)
	if b.Failed() {
		b.FailNow()
	}
	r.used = append(r.used, float64((cpuTime()-cpu).Microseconds())/float64(n))
	r.syncs += r.syncCount() - syncs
	runtime.ReadMemStats(&after)
	r.allocs += after.Mallocs - before.Mallocs
	r.all = append(r.all, times...)
	r.rates = append(r.rates, float64(n)/took.Seconds())
}

func (r *handlerRow) syncCount() uint64 {
	if r.store == nil {
		return 0
	}
	return r.store.journal.status().syncs
}

// report reports the row's figures of all turns.
func (r *handlerRow) report(b *testing.B) {
	n := float64(len(r.all))
	slices.Sort(r.all)
	slices.Sort(r.rates)
	slices.Sort(r.used)
	b.ReportMetric(r.rates[len(r.rates)/2], r.name+"-tasks/s")
	b.ReportMetric(1000*ms(r.all, 0.5), r.name+"-p50-µs")
	b.ReportMetric(1000*ms(r.all, 0.99), r.name+"-p99-µs")
	b.ReportMetric(float64(r.allocs)/n/4, r.name+"-allocs/step")
	b.ReportMetric(r.used[len(r.used)/2], r.name+"-cpu-µs/task")
	if r.name == "always" {
		b.ReportMetric(float64(r.syncs)/n, "syncs/task")
	}
}

// medianRatio returns the median of the ratios of each turn.
func medianRatio(rates, references []float64) float64 {
	var ratios []float64
	for i := range rates {
		ratios = append(ratios, rates[i]/references[i])
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// BenchmarkStart measures the time from exec to the first answered request of the released
// program, with an empty directory and with a million finished tasks in it.
func BenchmarkStart(b *testing.B) {
	file := buildRelease(b)
	for _, tasks := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			dir := b.TempDir()
			fillStore(b, dir, tasks)
			for b.Loop() {
				timeStart(b, file, dir)
			}
		})
	}
}

// timeStart starts the program, sends it a request, and stops it outside the measured time.
func timeStart(b *testing.B, file, dir string) {
	p := startRelease(b, file, dir)
	c := dialClient(b, p.url)
	if err := expect(200)(c.do("GET", "/v1/tasks?per_page=1", "")); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(wire.ResidentBytes(b, p.Process.Pid))/1e6, "RSS-MB")
	c.conn.Close()
	p.stop(b)
	b.StartTimer()
}

// fillStore fills a directory with finished diamonds.
func fillStore(b *testing.B, dir string, tasks int) {
	svc := openTestService(b, serviceTest{
		dir: dir, log: io.Discard,
		config: func(c *Config) { c.Store.Sync, c.Store.RetainFinishedCount = "never", 0 },
		extra:  []string{benchTemplate("diamond", "builtin:noop", diamondParents)},
	})
	createMany(b, svc, diamondBody, tasks)
	if err := svc.close(); err != nil {
		b.Fatal(err)
	}
}

// createMany creates tasks and returns the last.
func createMany(b *testing.B, svc *service, body string, tasks int) (t *task) {
	b.Helper()
	q := must(parseTaskRequest([]byte(body)))(b)
	for range tasks {
		t = must(svc.createTask(b.Context(), q, true))(b)
	}
	return t
}

// BenchmarkFsync measures the limit of the disk: one write of a record's size and one fdatasync
// at a time.
func BenchmarkFsync(b *testing.B) {
	f := must(os.Create(b.TempDir() + "/reference"))(b)
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

// Benchmarks of the released program: its size, its memory while idle, and how soon it answers.

// buildRelease builds the program as for a release: static and stripped.
func buildRelease(b *testing.B) string {
	b.Helper()
	out := filepath.Join(b.TempDir(), "stepwell")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	return out
}

// benchProgram is a running server.
type benchProgram struct {
	*exec.Cmd
	url string
}

// startRelease starts a program that serves a data directory, and waits until it is ready.
func startRelease(b *testing.B, file, dir string) *benchProgram {
	b.Helper()
	p := &benchProgram{Cmd: exec.Command(file, "--data", dir, "--quiet", "--print-ready",
		"--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0")}
	p.Env = append(os.Environ(), "STEPWELL_STORE__RETAIN_FINISHED_COUNT=0")
	p.Stderr = os.Stderr
	stdout := must(p.StdoutPipe())(b)
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	var ready readyReport
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		b.Fatal(err)
	}
	p.url = ready.OrchestrationURL
	return p
}

// stop ends the program as a service manager does.
func (p *benchProgram) stop(b *testing.B) {
	b.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBinary reports the size of the released program. Its time is the build's.
//
//	go test -run XXX -bench Binary -benchtime 1x .
func BenchmarkBinary(b *testing.B) {
	for b.Loop() {
		info := must(os.Stat(buildRelease(b)))(b)
		b.ReportMetric(float64(info.Size())/1e6, "MB")
	}
}

// BenchmarkIdle measures the time from exec to the first answered request of the released
// program with an empty store, and its memory then.
//
//	go test -run XXX -bench Idle -benchtime 10x .
func BenchmarkIdle(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("looks into /proc")
	}
	file := buildRelease(b)
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		b.StartTimer()
		timeStart(b, file, dir)
	}
}

// Benchmarks of other kinds of load: tasks with many steps, sequential steps, requests during a
// snapshot, waiting tasks, and slow handlers.

// stepShapes are graphs of n steps.
var stepShapes = []struct {
	name    string
	parents func(i, n int) []int
}{
	{"independent", func(i, n int) []int { return nil }},
	{"chain", func(i, n int) []int {
		if i == 0 {
			return nil
		}
		return []int{i - 1}
	}},
	{"layered", func(i, n int) []int { // a hundred layers, each step after two of the layer before
		width := n / 100
		if i < width {
			return nil
		}
		first := (i/width - 1) * width
		return []int{first + i%width, first + (i+1)%width}
	}},
}

func shapeParents(n int, parents func(i, n int) []int) [][]int {
	all := make([][]int, n)
	for i := range all {
		for _, p := range parents(i, n) {
			if !slices.Contains(all[i], p) {
				all[i] = append(all[i], p)
			}
		}
	}
	return all
}

// benchRequest returns a request to create a task of the namespace bench.
func benchRequest(b *testing.B, name string) *taskRequest {
	q := must(parseTaskRequest([]byte(fmt.Sprintf(`{"namespace":"bench","name":%q}`, name))))(b)
	return q
}

// createAndFinish creates a task and waits until it is complete.
func createAndFinish(b *testing.B, svc *service, q *taskRequest) *task {
	done := must(svc.tasks.submit(b.Context(), &submission{taskRequest: q, wants: terminalStates, limit: time.Minute}))(b)
	if done.task.state != taskComplete {
		b.Fatalf("the task ended %s", done.task.state)
	}
	return done.task
}

// BenchmarkSteps measures a task of n noop steps, from its creation to its end.
func BenchmarkSteps(b *testing.B) {
	for _, shape := range stepShapes {
		thousand := 0.0
		for _, n := range []int{1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/steps=%d", shape.name, n), func(b *testing.B) {
				svc := openTestService(b, serviceTest{log: io.Discard, config: retaining(1), extra: []string{
					benchTemplate("shape", "builtin:noop", shapeParents(n, shape.parents))}})
				defer closeTestService(b, svc)
				q := benchRequest(b, "shape")
				createAndFinish(b, svc, q) // the first one also records the template
				for b.Loop() {
					createAndFinish(b, svc, q)
				}
				each := float64(b.Elapsed()) / float64(b.N)
				b.ReportMetric(each/float64(n), "ns/step")
				if n == 1_000 {
					thousand = each
				} else if thousand > 0 {
					b.ReportMetric(each/thousand, "times-1000-steps")
				}
			})
		}
	}
}

// benchChain is the number of steps of the tasks of BenchmarkSequentialStep.
const benchChain = 20

// BenchmarkSequentialStep measures the median time of a step in a chain, of noop and of an HTTP
// handler, and as references the same calls of the handler without an engine, and bare syncs of
// 500 bytes.
func BenchmarkSequentialStep(b *testing.B) {
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "1")
	}))
	defer handler.Close()
	chain := shapeParents(benchChain, stepShapes[1].parents)
	open := func(b *testing.B, dir string) *service {
		return newTestService(b, serviceTest{dir: dir, log: io.Discard, extra: []string{
			benchTemplate("noop", "builtin:noop", chain), benchTemplate("web", handler.URL, chain)}})
	}
	b.Run("noop", func(b *testing.B) {
		svc := open(b, "")
		q := benchRequest(b, "noop")
		b.ReportMetric(medianStep(b, func() { createAndFinish(b, svc, q) }), "p50-µs/step")
	})
	caller := func(b *testing.B) func() {
		svc := open(b, "")
		t := createAndFinish(b, svc, benchRequest(b, "web"))
		to, attempt := svc.handlers.resolve(handler.URL), svc.engine.attemptLocked(t, benchChain/2, 0, true)
		return func() {
			if o := svc.handlers.run(context.Background(), to, attempt); o.err != nil {
				b.Fatal(o.err)
			}
		}
	}
	// The references: calls, syncs, and both alternating, where each finds the processor idle
	// after the other.
	bare := map[string]float64{}
	for name, kinds := range map[string][]func(*testing.B) func(){
		"bare-call": {caller}, "bare-sync": {benchSyncer}, "bare-call-and-sync": {caller, benchSyncer},
	} {
		b.Run(name, func(b *testing.B) {
			var each []func()
			for _, kind := range kinds {
				each = append(each, kind(b))
			}
			bare[name] = medianStep(b, func() {
				for n := range benchChain * len(each) {
					each[n%len(each)]()
				}
			})
			b.ReportMetric(bare[name], "p50-µs/step")
		})
	}
	for _, mode := range []string{"memory", "always"} {
		b.Run("web/"+mode, func(b *testing.B) {
			dir, reference := "", bare["bare-call"]
			if mode == "always" {
				dir, reference = b.TempDir(), bare["bare-call-and-sync"]
			}
			svc := open(b, dir)
			q := benchRequest(b, "web")
			before := svc.store.journal.status().syncs
			each := medianStep(b, func() { createAndFinish(b, svc, q) })
			b.ReportMetric(each, "p50-µs/step")
			b.ReportMetric(float64(svc.store.journal.status().syncs-before)/float64(b.N)/benchChain, "syncs/step")
			if reference > 0 {
				b.ReportMetric(each-reference, "µs/step-over-bare")
			}
		})
	}
}

// benchGroupSyncer is benchSyncer for many callers at once: all who ask during a sync share the next.
func benchGroupSyncer(b *testing.B) func() {
	sync, asks := benchSyncer(b), make(chan chan struct{}, 1000)
	go func() {
		for ask := range asks {
			group := []chan struct{}{ask}
			for len(asks) > 0 {
				group = append(group, <-asks)
			}
			sync()
			for _, ask := range group {
				close(ask)
			}
		}
	}()
	b.Cleanup(func() { close(asks) })
	return func() {
		done := make(chan struct{})
		asks <- done
		<-done
	}
}

// benchSyncer writes the bytes of a record and syncs them, in a file that has reserved blocks, as the store has.
func benchSyncer(b *testing.B) func() {
	f := must(osDisk{}.create(filepath.Join(b.TempDir(), "bare")))(b)
	b.Cleanup(func() { f.Close() })
	pos, allocated := int64(0), int64(0)
	record := make([]byte, benchBody)
	return func() {
		if pos+benchBody > allocated {
			f.allocate(allocated, spaceStep)
			allocated += spaceStep
		}
		_, err := f.WriteAt(record, pos)
		if err == nil {
			err = f.sync()
		}
		if err != nil {
			panic(err) // not b.Fatal: some callers are other goroutines
		}
		pos += benchBody
	}
}

// medianStep returns the median time that f takes for each of benchChain steps, in
// microseconds.
func medianStep(b *testing.B, f func()) float64 {
	var times []time.Duration
	for b.Loop() {
		at := time.Now()
		f()
		times = append(times, time.Since(at))
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1000 / benchChain
}

// BenchmarkBesideCompaction measures the latency of requests while a store of a million tasks is compacted, and for as
// long without.
//
//	go test -run XXX -bench BesideCompaction -benchtime 3x .
func BenchmarkBesideCompaction(b *testing.B) {
	dir := b.TempDir()
	fillStore(b, dir, 1_000_000)
	svc := openTestService(b, serviceTest{dir: dir, log: io.Discard, config: retaining(0),
		extra: []string{benchTemplate("diamond", "builtin:noop", diamondParents)}})
	defer func() { // without the invariants of a million tasks
		svc.finish(context.Background())
		svc.close()
	}()
	url := benchServer(b, svc)
	for b.Loop() {
		began := time.Now()
		during := latenciesWhile(b, url, func() {
			if err := svc.store.compact(); err != nil {
				b.Error(err)
			}
		})
		took := time.Since(began)
		alone := latenciesWhile(b, url, func() { receiveWithin(make(chan int), took) })
		b.ReportMetric(took.Seconds(), "compaction-s")
		b.ReportMetric(ms(during, 0.999), "p99.9-ms")
		b.ReportMetric(ms(alone, 0.999), "alone-p99.9-ms")
		b.ReportMetric(ms(during, 0.5), "p50-ms")
		b.ReportMetric(ms(alone, 0.5), "alone-p50-ms")
		b.ReportMetric(float64(len(during))/took.Seconds(), "op/s")
		b.ReportMetric(float64(len(alone))/took.Seconds(), "alone-op/s")
	}
}

// ms returns a quantile of sorted times in milliseconds.
func ms(times []time.Duration, q float64) float64 {
	return float64(times[int(q*float64(len(times)-1))].Microseconds()) / 1000
}

// latenciesWhile returns the sorted latencies of the requests of two clients while f runs.
func latenciesWhile(b *testing.B, url string, f func()) []time.Duration {
	done := make(chan struct{})
	var wg sync.WaitGroup
	times := make([][]time.Duration, 2)
	for i := range times {
		c := dialClient(b, url)
		wg.Go(func() {
			defer c.conn.Close()
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, request := range [][2]string{{"POST", diamondBody}, {"GET", ""}} {
					at := time.Now()
					if status, _, err := c.do(request[0], "/v1/tasks", request[1]); err != nil || status > 201 {
						b.Errorf("got status %d, %v", status, err)
						return
					}
					times[i] = append(times[i], time.Since(at))
				}
			}
		})
	}
	f()
	close(done)
	wg.Wait()
	all := slices.Concat(times...)
	slices.Sort(all)
	return all
}

// BenchmarkWaiting measures the processor time and memory of 100,000 tasks that wait an hour
// for their next attempt.
func BenchmarkWaiting(b *testing.B) {
	const tasks = 100_000
	svc := newTestService(b, serviceTest{log: io.Discard, extra: []string{`{"namespace":"bench","name":"later",
		"version":"1.0.0","identity_strategy":"always_unique","steps":[{"name":"s","handler":{"callable":"builtin:fail",
		"initialization":{"retryable":true}},"retry":{"max_attempts":5,"backoff_base_ms":3600000,"max_backoff_ms":3600000}}]}`}})
	before := heapBytes()
	createMany(b, svc, `{"namespace":"bench","name":"later"}`, tasks)
	each := float64(heapBytes()-before) / tasks
	used, began := cpuTime(), time.Now()
	for b.Loop() {
		receiveWithin(make(chan int), time.Second)
	}
	b.ReportMetric(float64((cpuTime()-used).Microseconds())/1000/time.Since(began).Seconds(), "cpu-ms/s")
	b.ReportMetric(each, "B/task")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	return time.Duration(ownProcess().cpu * 1e9)
}

// BenchmarkBesideSlowHandlers measures the diamond by 16 clients while a thousand HTTP handlers
// are pending, and without them.
func BenchmarkBesideSlowHandlers(b *testing.B) {
	for _, slow := range []int{0, 1_000} {
		b.Run(fmt.Sprintf("slow=%d", slow), func(b *testing.B) {
			slowly := wire.NewHeldHandler(b, slow)
			svc := newTestService(b, serviceTest{log: io.Discard, extra: []string{
				benchTemplate("diamond", "builtin:noop", diamondParents), stuckTemplate(slowly),
			}})
			defer close(slowly.Release)
			createMany(b, svc, `{"namespace":"t","name":"slow"}`, slow)
			for range slow {
				slowly.Await(b)
			}
			drive(b, benchServer(b, svc), 16, runDiamond)
		})
	}
}

// postSteps sends a request about steps, and reads the answer.
func postSteps(url, path string, body []byte, want int, answer any) error {
	r, err := http.Post(url+"/v1/steps/"+path, jsonType, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err = expect(want)(r.StatusCode, text, err); err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// BenchmarkWaitingClaim measures how long a step that becomes ready takes to reach a worker that
// waits for one, with store.sync = "always", in turns with a bare sync.
func BenchmarkWaitingClaim(b *testing.B) {
	svc := newTestService(b, serviceTest{dir: b.TempDir(), log: io.Discard,
		extra: []string{benchTemplate("one", "Outside::Actor", [][]int{{}})}})
	url, bare := benchServer(b, svc), benchSyncer(b)
	creator := dialClient(b, url)
	var took, synced []time.Duration
	before := svc.store.journal.status().syncs
	for b.Loop() {
		at := make(chan instant, 1)
		go func() {
			var given []claimed
			err := postSteps(url, "claim", []byte(`{"callables":["Outside::*"],"wait_seconds":60}`), 200, &given)
			at <- realNow()
			for _, c := range given {
				err = postSteps(url, c.Step.StepUUID+"/complete", fmt.Appendf(nil, `{"lease":%q,"result":null}`, c.Lease), 200, new(any))
			}
			if err != nil {
				b.Error(err)
			}
		}()
		for waiting := false; !waiting; {
			svc.store.locked(func() { waiting = len(svc.engine.outside.claimers) > 0 })
		}
		status, body, err := creator.do("POST", "/v1/tasks", `{"namespace":"bench","name":"one"}`)
		if err := expect(201)(status, body, err); err != nil {
			b.Fatal(err)
		}
		received := <-at
		id, _ := parseUUID(string(bytes.Trim(objectMember(body, "task_uuid"), `"`)))
		took = append(took, received.sub(must(svc.store.view(id))(b).stepCreated(0)))
		began := time.Now()
		bare()
		synced = append(synced, time.Since(began))
	}
	slices.Sort(took)
	slices.Sort(synced)
	b.ReportMetric(1000*ms(took, 0.5), "p50-µs")
	b.ReportMetric(1000*ms(took, 0.99), "p99-µs")
	b.ReportMetric(1000*ms(synced, 0.5), "bare-sync-p50-µs")
	b.ReportMetric(1000*(ms(took, 0.5)-ms(synced, 0.5)), "p50-µs-over-sync")
	b.ReportMetric(float64(svc.store.journal.status().syncs-before)/float64(b.N), "syncs/step")
}

// benchFollowers is how many event streams BenchmarkFollowers opens.
const benchFollowers = 100

// followerKinds are what the followers of BenchmarkFollowers ask for, and in how many namespaces the
// diamonds are. Each follower asks for one of 100 tasks that wait, for a namespace, or for all events.
var followerKinds = []struct {
	name       string
	namespaces int
	query      func(i int, waiting []uuid) string
}{
	{"task", 1, func(i int, waiting []uuid) string { return "task_uuid=" + waiting[i].String() }},
	{"namespace-each", benchFollowers, benchNamespaceQuery(benchFollowers)},
	{"namespace-of-100", 100, benchNamespaceQuery(100)},
	{"all", 1, func(int, []uuid) string { return "" }},
}

func benchNamespaceQuery(namespaces int) func(i int, waiting []uuid) string {
	return func(i int, _ []uuid) string { return fmt.Sprintf("namespace=n%d", i%namespaces) }
}

// followersPace is how many diamonds a second make 5,000 transitions.
const followersPace = 5_000 / 34

// BenchmarkFollowers measures the diamonds of 16 clients beside 100 followers of event streams, and
// in turns without them: a second each at 5,000 transitions a second, and a second each as fast as possible.
// Clients and followers are in the same process.
//
//	go test -run XXX -bench Followers -benchtime 5x .
func BenchmarkFollowers(b *testing.B) {
	for _, kind := range followerKinds {
		b.Run(kind.name, func(b *testing.B) {
			extra := []string{benchTemplate("manual", "Outside::Actor", diamondParents)}
			for i := range kind.namespaces {
				extra = append(extra, strings.Replace(benchTemplate("diamond", "builtin:noop", diamondParents),
					`"bench"`, fmt.Sprintf(`"n%d"`, i), 1))
			}
			svc := newTestService(b, serviceTest{log: io.Discard, extra: extra, config: func(c *Config) {
				c.Store.RetainFinishedCount, c.Events.MaxStreams = 10*benchFollowers, benchFollowers
			}})
			var waiting []uuid
			for range benchFollowers {
				waiting = append(waiting, createMany(b, svc, manualBody, 1).id)
			}
			url := benchServer(b, svc)
			var alone, beside, alonePaced, besidePaced followerTurn
			for b.Loop() {
				alonePaced.add(b, svc, url, kind.namespaces, followersPace)
				alone.add(b, svc, url, kind.namespaces, 0)
				var streams []net.Conn
				for i := range benchFollowers {
					streams = append(streams, openBenchStream(b, url, kind.query(i, waiting)))
				}
				besidePaced.add(b, svc, url, kind.namespaces, followersPace)
				beside.add(b, svc, url, kind.namespaces, 0)
				for _, s := range streams {
					s.Close()
				}
				for svc.store.events.figures().open > 0 {
					runtime.Gosched()
				}
			}
			b.ReportMetric(beside.rate()/alone.rate(), "of-alone")
			b.ReportMetric(beside.rate(), "op/s")
			b.ReportMetric(alone.rate(), "alone-op/s")
			b.ReportMetric(float64(beside.moves)/beside.took.Seconds(), "transitions/s")
			b.ReportMetric(float64(beside.sent)/beside.took.Seconds(), "events/s")
			b.ReportMetric(float64(svc.store.events.figures().cut)/float64(b.N), "cut/op")
			b.ReportMetric(float64(besidePaced.moves)/besidePaced.took.Seconds(), "paced-transitions/s")
			b.ReportMetric(float64(besidePaced.sent)/besidePaced.took.Seconds(), "paced-events/s")
			b.ReportMetric(besidePaced.cores(), "paced-cores")
			b.ReportMetric(alonePaced.cores(), "paced-alone-cores")
			b.ReportMetric(float64(beside.cpu.Microseconds())/float64(beside.done), "cpu-µs/op")
			b.ReportMetric(float64(alone.cpu.Microseconds())/float64(alone.done), "alone-cpu-µs/op")
		})
	}
}

// openBenchStream opens an event stream, and reads it until it is closed.
func openBenchStream(b *testing.B, url, query string) net.Conn {
	c := dialClient(b, url)
	fmt.Fprintf(c.conn, "GET /v1/events?%s HTTP/1.1\r\nHost: localhost\r\n\r\n", query)
	if line, err := c.r.ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
		b.Fatalf("got %q, %v", line, err)
	}
	go io.Copy(io.Discard, c.conn)
	return c.conn
}

// followerTurn adds up what happened in some seconds.
type followerTurn struct {
	took, cpu         time.Duration
	done, moves, sent uint64
}

func (f *followerTurn) rate() float64 { return float64(f.done) / f.took.Seconds() }

// cores returns how many cores were in use.
func (f *followerTurn) cores() float64 { return f.cpu.Seconds() / f.took.Seconds() }

// add makes 16 clients create diamonds for a second, at most pace of them; 0 is no limit.
func (f *followerTurn) add(b *testing.B, svc *service, url string, namespaces, pace int) {
	moves := func() (n uint64) {
		svc.store.locked(func() { n = svc.store.events.end() })
		return n
	}
	sent, moved, used, began := svc.store.events.figures().delivered, moves(), cpuTime(), time.Now()
	var next, done atomic.Uint64
	var clients sync.WaitGroup
	for range 16 {
		c := dialClient(b, url)
		clients.Go(func() {
			defer c.conn.Close()
			for time.Since(began) < time.Second {
				n := next.Add(1)
				if pace > 0 {
					<-time.After(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(pace))))
				}
				body := strings.Replace(diamondBody, "bench", fmt.Sprintf("n%d", n%uint64(namespaces)), 1)
				if err := runTask(c, body); err == nil {
					done.Add(1)
				} else if !strings.Contains(err.Error(), "BACKPRESSURE") {
					b.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	f.took, f.cpu, f.done = f.took+time.Since(began), f.cpu+cpuTime()-used, f.done+done.Load()
	f.moves, f.sent = f.moves+moves()-moved, f.sent+svc.store.events.figures().delivered-sent
}
