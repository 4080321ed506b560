package e2e

// Hostile clients: thousands of connections of one kind, each of which costs the service as
// much as it can. The memory of the service stays bounded, and an honest client is answered or
// refused. LONG_TESTS=1 opens 5,000 of them.

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

const (
	hostileMost     = 5000
	hostileMemory   = 200 << 20 // bytes that the service may take more than before the attack
	hostileRequests = 400       // of an honest client in a round
	hostileRounds   = 2
	hostileRound    = 2 * time.Second
)

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
	// first is sent at the beginning of a connection. Parameters of paths are replaced by what is stored.
	first string
	// beat is called for each connection every second; nil for no more traffic. An error says
	// that the service has closed the connection.
	beat   func(h *hostileTest, c net.Conn) error
	worker bool // the connections are those of the worker role
	// every is the time between two beats, a second if 0, and beats how many the honest client stays for, or two rounds.
	every time.Duration
	beats int64
	limit int // the number of sockets that the service may have besides its listeners; 0 for any
}

var hostileKinds = []hostileKind{
	{name: "idle connections"},
	{name: "slow headers", first: hostileGet("/v1/tasks", "X-A: b\r\n"), beat: sends("X-A: b\r\n")},
	{name: "large headers", first: hostileGet("/v1/tasks", "X-A: "+strings.Repeat("a", 17<<10)), beat: sends("a")},
	{name: "announced and silent bodies", first: hostileBody("")},
	{name: "dribbled bodies", first: hostileBody(`{"name":"`), beat: sends("a")},
	{name: "unfinished bodies",
		first: hostileBody(`{"name":"` + strings.Repeat("a", 64<<10)), beat: sends("a")},
	{name: "waiting requests", first: hostileGet("/v1/tasks/{task_uuid}?wait=terminal&timeout=1h", "\r\n"), beat: drains},
	{name: "event streams", first: hostileGet("/v1/events", "\r\n"), beat: drains},
	{name: "refused credentials", first: hostileGet("/v1/tasks", "\r\n"), beat: asksAgain, env: []string{
		"STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true", "STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS_ENABLED=true",
		`STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS=[{"key":"` + hostileKey + `","permissions":["*"]}]`,
		"STEPWELL_WORKER__WEB__AUTH__ENABLED=false",
	}},
	unread("contexts", "/v1/tasks?per_page=100", nil, largeContexts),
	unread("contexts at the mount point", "/stepwell/tasks?per_page=100", nil, largeContexts),
	unread("a context", "/v1/tasks/{task_uuid}", nil, largeContexts),
	unread("steps", "/v1/tasks/{task_uuid}/workflow_steps", denseTemplate, denseTask),
	unread("steps at the mount point", "/stepwell/tasks/{task_uuid}/workflow_steps", denseTemplate, denseTask),
	unread("an analysis", "/stepwell/tasks/{task_uuid}?include_dependencies=true", denseTemplate, denseTask),
	unread("a history", "/v1/tasks/{task_uuid}/transitions", denseTemplate, denseTask),
	unread("a summary", "/v1/tasks/{task_uuid}/summary", denseTemplate, denseTask),
	unread("a handler", "/stepwell/handlers/t/dense", denseTemplate, denseTask),
	unread("dead letters", "/v1/dlq?limit=1000", failingTemplate, failedTasks),
	unread("an API document", "/stepwell/api-docs.json", nil, nil),
	unread("requests", "/_stepwell/requests?limit=10000", nil, largeContexts, "--fixture"),
	unread("a state", "/_stepwell/state", nil, largeContexts, "--fixture"),
}

// unread is a kind of connections that ask for an answer every second and read nothing. What bounds them is the same for
// every answer, so that one kind has all connections, and the others have a quarter.
func unread(name, path string, templates func() []string, stored func(*hostileTest) string, args ...string) hostileKind {
	kind := hostileKind{name: name + " that nobody reads", first: hostileGet(path, "\r\n"), beat: sends(hostileGet(path, "\r\n")),
		templates: templates, stored: stored, args: args}
	if name != "contexts" {
		kind.count = hostileMost / 4
	}
	return kind
}

// largeContexts creates tasks with contexts of 1 MB.
func largeContexts(h *hostileTest) (task string) {
	body := `{"namespace":"t","name":"anchor","context":{"x":"` + strings.Repeat("y", 1000*1000) + `"}}`
	for range 100 {
		task = h.ask("POST", "/v1/tasks", body).want(201).text("task_uuid")
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
	return h.ask("POST", "/v1/tasks?wait=1m", `{"namespace":"t","name":"dense"}`).want(201).text("task_uuid")
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
		h.ask("POST", "/v1/tasks?wait=1m", `{"namespace":"t","name":"failing"}`).want(201)
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
func sends(text string) func(*hostileTest, net.Conn) error {
	return func(_ *hostileTest, c net.Conn) error {
		_, err := io.WriteString(c, text)
		return err
	}
}

// drains is a beat that reads the available bytes.
func drains(_ *hostileTest, c net.Conn) error {
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return cmp.Or(err, io.EOF)
}

// asksAgain is a beat that reads the available bytes and sends what was sent first.
func asksAgain(h *hostileTest, c net.Conn) error {
	if err := drains(h, c); err != nil {
		return err
	}
	return sends(h.kind.first)(h, c)
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
	lines   int           // of the log before the attack
	beaten  atomic.Int64  // beats of all hands
	over    chan struct{} // closed at the end
	load    sync.WaitGroup
}

func newHostileTest(t *testing.T, kind hostileKind) *hostileTest {
	h := &hostileTest{T: t, kind: kind, count: cmp.Or(kind.count, hostileMost), over: make(chan struct{})}
	h.kind.every = cmp.Or(kind.every, time.Second)
	templates := []string{diamondTemplate, testTemplate("anchor", stepSpec{name: "a", callable: "Nobody"})}
	if kind.templates != nil {
		templates = append(templates, kind.templates()...)
	}
	args := append([]string{"--memory", "--quiet", "--templates", templateDir(t, templates...)}, kind.args...)
	h.program = serveWith(t, kind.env, args...)
	h.address = strings.TrimPrefix(h.program.ready.OrchestrationURL, "http://")
	if kind.worker {
		h.address = strings.TrimPrefix(h.program.ready.WorkerURL, "http://")
	}
	task := h.ask("POST", "/v1/tasks", `{"namespace":"t","name":"anchor"}`).want(201).text("task_uuid")
	if kind.stored != nil {
		task = kind.stored(h)
		h.lines = strings.Count(h.program.stderr.String(), "\n")
	}
	h.kind.first = h.parameters(task).Replace(kind.first)
	return h
}

// consoleScript finds the files of the console in its page.
var consoleScript = regexp.MustCompile(`console/web/([0-9a-f]+)/(\w+\.js)`)

// parameters replaces the parameters of paths.
func (h *hostileTest) parameters(task string) *strings.Replacer {
	step := ""
	if task != "" {
		step = h.ask("GET", "/v1/tasks/"+task+"/workflow_steps", "").text("0.step_uuid")
	}
	file := consoleScript.FindSubmatch(h.ask("GET", "/console", "").body)
	return strings.NewReplacer("{task_uuid}", task, "{task_id}", task, "{id}", task, "{step_uuid}", step, "{step_id}", step,
		"{namespace}", "t", "{name}", "diamond", "{version}", "1.0.0", "{page}", "tasks",
		"{build}", string(file[1]), "{file}", string(file[2]))
}

// ask sends a request of the honest client.
func (h *hostileTest) ask(method, path, body string) *answer {
	h.Helper()
	return readAnswer(h, wire.Must(http.DefaultClient.Do(h.request(method, path, body)))(h))
}

func (h *hostileTest) request(method, path, body string) *http.Request {
	req := wire.Must(http.NewRequest(method, h.program.ready.OrchestrationURL+path, strings.NewReader(body)))(h)
	req.Header = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {hostileKey}}
	return req
}

func (h *hostileTest) run() {
	began := time.Now()
	idle := h.idleBytes()
	h.attack()
	defer func() { close(h.over); h.load.Wait() }()
	asked, refused := h.beside()
	peak := peakBytes(h, h.program.ready.PID)
	h.Logf("%d connections: %d MB, at most %d MB more; %d of %d requests were refused", h.count, idle>>20, (peak-idle)>>20, refused, asked)
	if raceDetector() {
		return // with it, everything takes more time and memory
	}
	if peak > idle+hostileMemory {
		h.Errorf("got %d bytes of memory; want at most %d more than %d", peak, hostileMemory, idle)
	}
	if n, most := strings.Count(h.program.stderr.String(), "\n")-h.lines, 12*int(time.Since(began).Seconds()+2); n > most {
		h.Errorf("got %d lines in the log; want at most %d:\n%.2000s", n, most, h.program.stderr)
	}
}

// idleBytes returns the memory of the service before the attack, from which on its peak is measured.
func (h *hostileTest) idleBytes() int64 {
	dir := fmt.Sprintf("/proc/%d/", h.program.ready.PID)
	writeFile(h, dir+"clear_refs", []byte("5")) // makes the present memory the peak
	return peakBytes(h, h.program.ready.PID)
}

// beside sends requests of the honest client while the others send theirs, and returns how many these were, and how many
// were refused.
func (h *hostileTest) beside() (asked, refused int) {
	for n := 0; h.kind.beats == 0 && n < hostileRounds || h.beaten.Load() < h.kind.beats*hostileHands; n++ {
		requests, refusals := h.honest()
		asked, refused = asked+requests, refused+refusals
		if n, most := h.sockets(), h.kind.limit+4; h.kind.limit > 0 && n > most {
			h.Errorf("got %d sockets; want at most %d, with two listeners that may just close what is too much", n, most)
		}
	}
	return asked, refused
}

// sockets counts the sockets of the service.
func (h *hostileTest) sockets() (n int) {
	dir := fmt.Sprintf("/proc/%d/fd/", h.program.ready.PID)
	for _, f := range wire.Must(os.ReadDir(dir))(h) {
		if to, _ := os.Readlink(dir + f.Name()); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
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
			h.keep(conns, time.Duration(n)*h.kind.every/hostileHands)
		})
	}
	opened.Wait()
}

// open opens a connection; one that is closed if the service does not accept it.
func (h *hostileTest) open() net.Conn {
	c, err := net.Dial("tcp", h.address)
	if err != nil {
		c, _ = net.Pipe()
		c.Close()
	}
	c.SetWriteDeadline(time.Now().Add(patience))
	io.WriteString(c, h.kind.first) // the service may have closed it
	return c
}

// keep keeps connections busy, and replaces some of those that the service closes.
func (h *hostileTest) keep(conns []net.Conn, pause time.Duration) {
	beat := time.NewTimer(pause)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			beat.Reset(h.kind.every)
			h.beaten.Add(1)
		case <-h.over:
			for _, c := range conns {
				c.Close()
			}
			return
		}
		again := hostileAgain
		for i, c := range conns {
			if h.kind.beat != nil && h.kind.beat(h, c) != nil && again > 0 {
				again--
				c.Close()
				conns[i] = h.open()
			}
		}
	}
}

// honest sends requests one after the other, some on new connections, but for no more than hostileRound. It returns how
// many these were, and how many were refused or lost their connection to others.
func (h *hostileTest) honest() (asked, refused int) {
	h.Helper()
	end := time.Now().Add(hostileRound)
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for ; asked < hostileRequests && time.Now().Before(end); asked++ {
		method, path, client := "GET", "/v1/tasks?per_page=10", http.DefaultClient
		switch asked % 4 {
		case 0:
			method, path = "POST", "/v1/tasks"
		case 2:
			client = fresh
		case 3:
			path, client = "/health/ready", fresh
		}
		resp, err := client.Do(h.request(method, path, `{"namespace":"t","name":"diamond"}`))
		if err != nil {
			refused++
			continue
		}
		switch a := readAnswer(h, resp); {
		case a.status == 503 && a.header.Get("Retry-After") == "1":
			refused++
		case a.status >= 300:
			h.Errorf("got %d: %s", a.status, a.body)
		}
	}
	return asked, refused
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
		{"at the start", "ulimit -n 64 && exec", "the limit of open files is too low for web.max_connections"},
		{"later", "ulimit -n 8192 && exec", "out of file descriptors"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wire.Need(t, "prlimit")
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

// pipelinedRequests are sent at once on each connection; 40 for those on every path.
const pipelinedRequests = 20

var pipelines = flag.Int("hostile.pipelines", 0, "connections of TestHostilePipelines on every path")

// dailyPaths are attacked in each run.
var dailyPaths = regexp.MustCompile(`^orchestration/(metrics|v1/tasks)$`)

// TestHostilePipelines sends pipelined requests (RFC 9112, 9.3.2) to a sixteenth of the GET routes of the program, another
// one each day, and to all if the flag says to how many connections. What bounds them is the same for every route, so that
// one of them has all connections, and the others have a quarter.
func TestHostilePipelines(t *testing.T) {
	wire.Long(t)
	p := serveWith(t, nil, "--memory", "--quiet")
	for _, surface := range []struct{ name, url, prefix string }{
		{"orchestration", p.ready.OrchestrationURL, ""}, {"worker", p.ready.WorkerURL, ""}, {"mount", p.ready.OrchestrationURL, "/stepwell"},
	} {
		for n, path := range getPaths(t, surface.url+surface.prefix) {
			today := *pipelines > 0 || (n+time.Now().YearDay())%16 == 0
			if !dailyPaths.MatchString(surface.name+path) && !today {
				continue
			}
			count := cmp.Or(*pipelines, hostileMost/4)
			if *pipelines == 0 && surface.name+path == "orchestration/v1/tasks" {
				count = hostileMost
			}
			t.Run(surface.name+path, func(t *testing.T) {
				newHostileTest(t, pipelined(surface.prefix+path, surface.name == "worker", count)).run()
			})
		}
	}
	p.stop()
}

// getPaths returns the paths of a surface's GET routes by its OpenAPI document, which has them all.
func getPaths(t *testing.T, url string) (paths []string) {
	t.Helper()
	document := (&api{t, url}).do("GET", "/api-docs.json", "").want(200).get("paths").(object)
	for _, path := range slices.Sorted(maps.Keys(document)) {
		if document[path].(object)["get"] != nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// pipelined is a kind that sends many requests for a path at once and reads the responses.
func pipelined(path string, worker bool, count int) hostileKind {
	many := pipelinedRequests
	if *pipelines > 0 {
		many *= 2
	}
	requests := strings.Repeat(hostileGet(path, "Accept-Encoding: gzip\r\n\r\n"), many)
	limit := count * 3 / 5 // 3000 of 5000, as without any configuration
	return hostileKind{
		name: path, count: count, first: requests, beat: asksAgain, worker: worker, every: time.Second / 2, beats: 2, limit: limit,
		env: []string{fmt.Sprint("STEPWELL_WEB__MAX_CONNECTIONS=", limit)},
	}
}
