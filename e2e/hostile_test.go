package e2e

// Hostile clients: thousands of connections of one kind, each of which costs the service as
// much as it can. The memory of the service stays bounded, and an honest client is answered as
// if they did not exist. LONG_TESTS=1 opens 5,000 of them.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// Bounds with hostileMost connections. With fewer connections, memory may grow proportionally
// less.
const (
	hostileMost    = 5000
	hostileMemory  = 150 << 20 // bytes
	hostileAlone   = 40 << 20  // of these without any connection
	hostileEmpty   = 20 << 20  // of these before anything is stored
	hostileRefused = 4         // requests of an honest client, of hostileRequests

	hostileRequests = 400
)

// hostileRounds is how often an honest client asks until few enough of its requests are refused, because it
// meets the neighbours while they send all their requests at once.
const hostileRounds = 8

// hostileKind is one way to cost the service something.
type hostileKind struct {
	name  string
	count int      // of connections; hostileMost if 0
	env   []string // of the service
	args  []string
	// stored stores what the connections ask for, in a service with more templates, and returns
	// the task that they ask for, if it is one; nil for nothing.
	templates func() []string
	stored    func(h *hostileTest) (task string)
	// first is sent at the beginning of a connection: {task} is replaced by the id of a task.
	first string
	// beat is called for each connection every second; nil for no more traffic. An error says
	// that the service has closed the connection.
	beat func(c net.Conn) error
}

var hostileKinds = []hostileKind{
	{name: "idle connections"},
	{name: "slow headers", first: hostileGet("/v1/tasks", "X-A: b\r\n"), beat: sends("X-A: b\r\n")},
	{name: "large headers", first: hostileGet("/v1/tasks", "X-A: "+strings.Repeat("a", 60<<10)), beat: sends("a")},
	{name: "announced and silent bodies", first: hostileBody("")},
	{name: "dribbled bodies", first: hostileBody(`{"name":"`), beat: sends("a")},
	{name: "unfinished bodies",
		first: hostileBody(`{"name":"` + strings.Repeat("a", 64<<10)), beat: sends("a")},
	{name: "waiting requests", first: hostileGet("/v1/tasks/{task}?wait=terminal&timeout=1h", "\r\n"), beat: drains},
	{name: "event streams", first: hostileGet("/v1/events", "\r\n"), beat: drains},
	{name: "refused credentials", first: hostileGet("/v1/tasks", "\r\n"), beat: asksAgain, env: []string{
		"STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true", "STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS_ENABLED=true",
		`STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS=[{"key":"` + hostileKey + `","permissions":["*"]}]`,
		"STEPWELL_WORKER__WEB__AUTH__ENABLED=false",
	}},
	crowded(unread("contexts", "/v1/tasks?per_page=100", nil, largeContexts)),
	unread("contexts at the mount point", "/stepwell/tasks?per_page=100", nil, largeContexts),
	unread("a context", "/v1/tasks/{task}", nil, largeContexts),
	unread("steps", "/v1/tasks/{task}/workflow_steps", denseTemplate, denseTask),
	unread("steps at the mount point", "/stepwell/tasks/{task}/workflow_steps", denseTemplate, denseTask),
	unread("an analysis", "/stepwell/tasks/{task}?include_dependencies=true", denseTemplate, denseTask),
	unread("a history", "/v1/tasks/{task}/transitions", denseTemplate, denseTask),
	unread("a summary", "/v1/tasks/{task}/summary", denseTemplate, denseTask),
	unread("a handler", "/stepwell/handlers/t/dense", denseTemplate, denseTask),
	unread("dead letters", "/v1/dlq?limit=1000", failingTemplate, failedTasks),
	unread("an API document", "/stepwell/api-docs.json", nil, nil),
	unread("requests", "/_stepwell/requests?limit=10000", nil, largeContexts, "--fixture"),
	unread("a state", "/_stepwell/state", nil, largeContexts, "--fixture"),
}

// unread is a kind of connections that ask for an answer every second and read nothing. What bounds them is the same for
// every answer, so that one kind has all connections, and the others have a quarter.
func unread(
	name, path string, templates func() []string, stored func(*hostileTest) string, args ...string,
) hostileKind {
	request := hostileGet(path, "\r\n")
	return hostileKind{
		name: name + " that nobody reads", first: request, beat: sends(request), templates: templates, stored: stored, args: args,
		count: hostileMost / 4,
	}
}

// crowded is a kind with all connections.
func crowded(kind hostileKind) hostileKind {
	kind.count = hostileMost
	return kind
}

// largeContexts creates tasks with contexts of 1 MB.
func largeContexts(h *hostileTest) (task string) {
	body := `{"namespace":"t","name":"anchor","context":{"x":"` + strings.Repeat("y", 1000*1000) + `"}}`
	for range 100 {
		task = h.ask(http.DefaultClient, "POST", "/v1/tasks", body).want(201).text("task_uuid")
	}
	return task
}

// denseTemplate is a template of 10,000 steps, each of which waits for the 99 before it.
func denseTemplate() []string {
	steps := make([]stepSpec, 10_000)
	for i := range steps {
		steps[i] = stepSpec{name: fmt.Sprint("s", i), callable: "builtin:noop"}
		for j := max(0, i-99); j < i; j++ {
			steps[i].after = append(steps[i].after, steps[j].name)
		}
	}
	return []string{testTemplate("dense", steps...)}
}

func denseTask(h *hostileTest) (task string) {
	return h.ask(http.DefaultClient, "POST", "/v1/tasks?wait=1m", `{"namespace":"t","name":"dense"}`).want(201).text("task_uuid")
}

// failingTemplate is a template of 2,001 steps, one of which fails.
func failingTemplate() []string {
	steps := make([]stepSpec, 2_000)
	for i := range steps {
		steps[i] = stepSpec{name: fmt.Sprint("s", i), callable: "builtin:noop"}
	}
	steps = append(steps, stepSpec{name: "bad", callable: "builtin:fail", retry: `{"max_attempts":1}`})
	return []string{testTemplate("failing", steps...)}
}

func failedTasks(h *hostileTest) (task string) {
	for range 100 {
		h.ask(http.DefaultClient, "POST", "/v1/tasks?wait=1m", `{"namespace":"t","name":"failing"}`).want(201)
	}
	return ""
}

// hostileKey is the API key of the honest client.
const hostileKey = "the-key-of-the-honest"

// hostileGet returns the beginning of a request without a body.
func hostileGet(path, rest string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: forged\r\n" + rest
}

// hostileBody returns the beginning of a request with the largest body.
func hostileBody(first string) string {
	return "POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" +
		"Content-Length: 4194304\r\n\r\n" + first
}

// sends returns a beat that sends a text.
func sends(text string) func(net.Conn) error {
	return func(c net.Conn) error {
		_, err := io.WriteString(c, text)
		return err
	}
}

// drains is a beat that reads the available bytes.
func drains(c net.Conn) error {
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return cmp.Or(err, io.EOF)
}

// asksAgain is a beat that reads an answer and sends another request.
func asksAgain(c net.Conn) error {
	if err := drains(c); err != nil {
		return err
	}
	_, err := io.WriteString(c, hostileGet("/v1/tasks", "\r\n"))
	return err
}

func TestHostileNeighbours(t *testing.T) {
	wire.Long(t)
	for _, kind := range hostileKinds {
		t.Run(kind.name, func(t *testing.T) { newHostileTest(t, kind).run() })
	}
}

// hostileTest holds a service and its clients.
type hostileTest struct {
	*testing.T
	kind    hostileKind
	program *program
	address string
	count   int
	stored  int64         // bytes of memory that the service takes for what it stores
	lines   int           // of the log until then
	over    chan struct{} // closed at the end
	load    sync.WaitGroup
}

func newHostileTest(t *testing.T, kind hostileKind) *hostileTest {
	h := &hostileTest{T: t, kind: kind, count: cmp.Or(kind.count, hostileMost), over: make(chan struct{})}
	templates := []string{diamondTemplate, testTemplate("anchor", stepSpec{name: "a", callable: "Nobody"})}
	if kind.templates != nil {
		templates = append(templates, kind.templates()...)
	}
	args := append([]string{"--memory", "--quiet", "--templates", templateDir(t, templates...)}, kind.args...)
	h.program = serveWith(t, kind.env, args...)
	h.address = strings.TrimPrefix(h.program.ready.OrchestrationURL, "http://")
	task := h.ask(http.DefaultClient, "POST", "/v1/tasks", `{"namespace":"t","name":"anchor"}`).want(201).text("task_uuid")
	if kind.stored != nil {
		task = kind.stored(h)
		h.stored = max(peakBytes(t, h.program.ready.PID)-hostileEmpty, 0)
		h.lines = strings.Count(h.program.stderr.String(), "\n")
	}
	h.kind.first = strings.ReplaceAll(kind.first, "{task}", task)
	return h
}

// machineIsBusy reports whether more processes wanted a processor in the last minute than there are.
func machineIsBusy() bool {
	text, _ := os.ReadFile("/proc/loadavg")
	var load float64
	fmt.Sscan(string(text), &load)
	return load > float64(runtime.NumCPU())
}

// ask sends a request of the honest client.
func (h *hostileTest) ask(client *http.Client, method, path, body string) *answer {
	h.Helper()
	req := wire.Must(http.NewRequest(method, h.program.ready.OrchestrationURL+path, strings.NewReader(body)))(h)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", hostileKey)
	return readAnswer(h, wire.Must(client.Do(req))(h))
}

func (h *hostileTest) run() {
	began, busy := time.Now(), machineIsBusy()
	_, alone := h.honest()
	h.attack()
	defer h.end()
	var refused int
	var beside time.Duration
	for range hostileRounds {
		if refused, beside = h.honest(); refused < hostileRefused {
			break
		}
	}
	peak := peakBytes(h, h.program.ready.PID)
	h.Logf("%d connections: at most %d MB; p99 of an honest client %s, %s without them; %d of its requests were refused",
		h.count, peak>>20, beside, alone, refused)
	if raceDetector() {
		return // with it, everything takes more time and memory
	}
	most := h.stored + int64(hostileAlone+(hostileMemory-hostileAlone)*h.count/hostileMost)
	if busy { // so that garbage is collected late
		most += most / 2
	}
	if peak > most {
		h.Errorf("got %d bytes of memory; want at most %d", peak, most)
	}
	if refused >= hostileRefused {
		h.Errorf("%d of %d requests of an honest client were refused; want fewer than %d", refused, hostileRequests, hostileRefused)
	}
	if n, most := strings.Count(h.program.stderr.String(), "\n")-h.lines, 12*int(time.Since(began).Seconds()+2); n > most {
		h.Errorf("got %d lines in the log; want at most %d:\n%.2000s", n, most, h.program.stderr)
	}
}

const (
	hostileHands = 50 // goroutines that share the connections
	hostileAgain = 4  // closed connections that each of them replaces in a second
)

// attack opens the connections and keeps them busy until the end.
func (h *hostileTest) attack() {
	var opened sync.WaitGroup
	for n := range hostileHands {
		opened.Add(1)
		h.load.Go(func() {
			conns := make([]net.Conn, h.count/hostileHands)
			for i := range conns {
				conns[i] = h.open()
			}
			opened.Done()
			h.keep(conns, time.Duration(n)*time.Second/hostileHands)
		})
	}
	opened.Wait()
}

// open opens a connection; nil if the service does not accept it.
func (h *hostileTest) open() net.Conn {
	c, err := net.Dial("tcp", h.address)
	if err == nil {
		c.SetWriteDeadline(time.Now().Add(patience))
		io.WriteString(c, h.kind.first) // the service may have closed it
	}
	return c
}

// keep keeps connections busy, and replaces some of those that the service closes.
func (h *hostileTest) keep(conns []net.Conn, pause time.Duration) {
	beat := time.NewTimer(pause)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			beat.Reset(time.Second)
		case <-h.over:
			for _, c := range conns {
				c.Close()
			}
			return
		}
		again := hostileAgain
		for i, c := range conns {
			if h.kind.beat != nil && h.kind.beat(c) != nil && again > 0 {
				again--
				c.Close()
				conns[i] = h.open()
			}
		}
	}
}

func (h *hostileTest) end() {
	close(h.over)
	h.load.Wait()
}

// honest sends requests one after the other, some on new connections, and returns how many were refused, and
// for the log the 99th percentile of their durations.
func (h *hostileTest) honest() (refused int, p99 time.Duration) {
	h.Helper()
	var took [hostileRequests]time.Duration
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range took {
		var a *answer
		began := time.Now()
		switch i % 4 {
		case 0:
			a = h.ask(http.DefaultClient, "POST", "/v1/tasks", `{"namespace":"t","name":"diamond"}`)
		case 1:
			a = h.ask(http.DefaultClient, "GET", "/v1/tasks?per_page=10", "")
		case 2:
			a = h.ask(fresh, "GET", "/v1/tasks?per_page=1", "")
		case 3:
			a = h.ask(fresh, "GET", "/health/ready", "")
		}
		took[i] = time.Since(began)
		if a.status == 503 && a.text("error.code") == "OVERLOADED" {
			refused++
		} else if a.status >= 300 {
			h.Errorf("got %d: %s", a.status, a.body)
		}
	}
	slices.Sort(took[:])
	return refused, took[hostileRequests*99/100]
}

// TestFewFiles lets a program open few files and fills it with idle connections: it says so
// once, and others are served.
func TestFewFiles(t *testing.T) {
	slow(t)
	t.Parallel()
	const files = 64
	for _, tt := range []struct {
		name, limits, says string
	}{
		{"at the start", "ulimit -n 64 && exec", "the process may not open enough files for web.max_connections"},
		{"later", "ulimit -n 8192 && exec", "out of file descriptors"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath("prlimit"); err != nil {
				t.Skip(err)
			}
			args := append([]string{"-c", tt.limits + ` "$@"`, "sh", programFile(t)}, serveArguments("--memory", "--quiet")...)
			p := launchFile(t, "/bin/sh", nil, nil, args...).awaitReady()
			if tt.name == "later" {
				limit := exec.Command("prlimit", fmt.Sprint("--pid=", p.ready.PID), fmt.Sprintf("--nofile=%d:8192", files))
				wire.Must(limit.CombinedOutput())(t)
			}
			for range 3 * files {
				c := wire.Must(net.Dial("tcp", strings.TrimPrefix(p.ready.OrchestrationURL, "http://")))(t)
				defer c.Close()
			}
			for range 10 {
				p.api().create(`{"namespace":"demo","name":"diamond"}`)
			}
			p.stop()
			if n := strings.Count(p.stderr.String(), "WARN"); n != 1 || !strings.Contains(p.stderr.String(), tt.says) {
				t.Errorf("got %d warnings; want one, %q, in\n%s", n, tt.says, p.stderr)
			}
		})
	}
}

// peakBytes returns the peak memory of a process, as Linux counts it.
func peakBytes(t testing.TB, pid int) (n int64) {
	t.Helper()
	_, rest, _ := strings.Cut(string(readFile(t, fmt.Sprintf("/proc/%d/status", pid))), "VmHWM:")
	fmt.Sscan(rest, &n)
	return n << 10
}
