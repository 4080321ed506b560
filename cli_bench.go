package main

// The command bench: load on a service, and what came of it.

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxBenchClients = 10_000
	benchLongPoll   = time.Second            // how long the creation itself waits, where the service has that
	benchPollEvery  = 100 * time.Millisecond // at most, after that
	benchFailures   = 10                     // messages of failures that are counted apart
)

func benchCommand() command {
	return command{
		name: "bench", help: "create tasks for a while, and measure how long they take",
		more: "It uses POST /v1/tasks with wait; if the service does not wait, it polls GET /v1/tasks/{task_uuid} until " +
			"the task has ended. Without --rate, each client creates a task when its last one has ended (closed loop). " +
			"With --rate, tasks are due at fixed times, and each is timed from when it was due, so that no stall is hidden (open " +
			"loop). Percentiles are at most 6 % off. The first task is a trial, which is not counted; if it fails, its error ends the command.",
		examples: []string{
			"bench --template demo/diamond --clients 16 --duration 10s", "bench --rate 500 --duration 1m -o json",
		},
		define: bench,
	}
}

func bench(o *options) runner {
	o.withClient().withOutput()
	template := o.String("template", "demo/diamond", "`TEMPLATE`: create tasks of this template")
	text := o.String("context", "", "`JSON`: set the context of the tasks, from JSON, @FILE, or - for standard input")
	b := &benchLoad{failures: map[string]int{}}
	o.IntVar(&b.clients, "clients", 16, "`N`: create tasks with this many clients, each one at a time")
	o.Float64Var(&b.rate, "rate", 0, "`N`: create this many tasks per second, whether or not earlier ones have ended")
	o.durationVar(&b.length, "duration", 10*time.Second, "`DURATION`: create tasks for this long")
	o.durationVar(&b.patience, "timeout", 30*time.Second, "`DURATION`: count a task as failed if it has not ended after this time")
	noWait := o.Bool("no-wait", false, "measure only the creation of tasks, not their end")
	return o.asks(func(ctx context.Context, c *client, _ []string) error {
		ref, err := parseTemplateRef(*template)
		switch {
		case err != nil:
			return err
		case b.clients < 1 || b.clients > maxBenchClients:
			return o.misuse("--clients must be from 1 to %d", maxBenchClients)
		case !(b.rate >= 0 && b.rate <= 1e6):
			return o.misuse("--rate must be from 0 to 1000000")
		case b.length <= 0 || b.patience <= 0:
			return o.misuse("--duration and --timeout must be more than 0")
		}
		b.client, b.waits, b.mark = c, !*noWait, fmt.Sprintf("bench-%d-", o.p.now())
		b.body = map[string]any{"namespace": ref.namespace, "name": ref.name, "source_system": "stepwell bench"}
		if ref.version != "" {
			b.body["version"] = ref.version
		}
		if *text != "" {
			if b.body["context"], err = o.p.jsonArgument("--context", *text); err != nil {
				return err
			}
		}
		return runBench(ctx, o, b)
	})
}

// runBench makes the load, and prints what it has measured, also if it is interrupted.
func runBench(ctx context.Context, o *options, b *benchLoad) error {
	ctx, release := interruptible(ctx, 0)
	defer release()
	transport := b.client.http.Transport.(*http.Transport)
	// The default keeps two idle connections to a host: most requests of many clients would measure a new connection.
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, b.clients
	defer transport.CloseIdleConnections()
	// The first task warms up both sides, and finds mistakes in the arguments before many clients repeat them.
	if err := b.one(ctx, 0); err != nil {
		return err
	}
	show, end := o.p.progressLine()
	b.run(ctx, show)
	end()
	v := b.result()
	if err := o.print(output{v, member("tasks_per_second"), v.table}); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if v.Tasks == 0 {
		return exitf(exitFailed, "no task ended as it should: %s", v.worst())
	}
	return nil
}

// progressLine returns a function that shows a line of progress on standard error, on a terminal instead of the
// previous one, and a function that removes it there at the end.
func (p *process) progressLine() (show func(line string), end func()) {
	w := behindDoor(p.stderr)
	if p.styleOf(w).terminal == nil {
		return func(line string) { fmt.Fprintln(w, line) }, func() {}
	}
	const clearLine = "\r\x1b[K"
	return func(line string) { io.WriteString(w, clearLine+line) }, func() { io.WriteString(w, clearLine) }
}

// benchLoad is the load that bench makes, and what it has measured.
type benchLoad struct {
	client           *client
	body             map[string]any // of each creation, without its key
	mark             string         // begins the keys
	waits            bool           // for the ends of tasks
	clients          int
	rate             float64 // tasks per second; 0 for as many as the clients can create
	length, patience time.Duration

	next  atomic.Int64 // the number of the newest task
	began time.Time
	took  time.Duration // from began to the end of the last task

	mu          sync.Mutex
	all, second benchCount     // second: since the last line of progress; guarded by mu, as all below
	failures    map[string]int // by message
}

// benchCount counts tasks that ended as they should, by how long they took, and others.
type benchCount struct {
	times  latencyHistogram
	failed int
}

func (c *benchCount) note(took time.Duration, err error) {
	if err != nil {
		c.failed++
		return
	}
	c.times.observe(took.Microseconds())
}

// run makes the load. It calls show with a line each second.
func (b *benchLoad) run(ctx context.Context, show func(line string)) {
	b.began = time.Now()
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range b.clients {
		clients.Go(func() { b.work(ctx) })
	}
	go func() {
		clients.Wait()
		close(done)
	}()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			show(b.progress())
		case <-done:
			b.took = time.Since(b.began)
			return
		}
	}
}

// work plays a client.
func (b *benchLoad) work(ctx context.Context) {
	end := b.began.Add(b.length)
	for {
		n := b.next.Add(1)
		due := time.Now()
		if b.rate > 0 {
			due = b.began.Add(time.Duration(float64(n-1) / b.rate * float64(time.Second)))
		}
		if !due.Before(end) || !sleepUntil(ctx, due) || !time.Now().Before(end) {
			b.next.Add(-1) // it was not created
			return
		}
		err := b.one(ctx, n)
		if ctx.Err() != nil {
			return // it may have failed because of that
		}
		// From when it was due, not from when it was sent: while the service stalls, all clients wait, and the tasks
		// that they could not send would otherwise seem fast.
		b.note(time.Since(due), err)
	}
}

// sleepUntil waits for a moment, and reports whether it came before the end of ctx.
func sleepUntil(ctx context.Context, at time.Time) bool {
	if d := time.Until(at); d > 0 {
		receiveWithin(ctx.Done(), d)
	}
	return ctx.Err() == nil
}

// one creates a task that duplicates no earlier one, and waits until it has ended. The error says why it did not end as
// it should.
func (b *benchLoad) one(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	q := call{method: "POST", path: "/v1/tasks", body: maps.Clone(b.body)}
	// Without its own key, a task could be refused as a duplicate of another with the same context.
	q.body.(map[string]any)["idempotency_key"] = b.mark + strconv.FormatInt(n, 10)
	if b.waits {
		q.query = url.Values{"wait": {min(b.patience, benchLongPoll).String()}}
	}
	t, err := b.client.do(ctx, q)
	for pause := time.Millisecond; err == nil && b.waits; pause = min(2*pause, benchPollEvery) {
		if good, ended := endStates[t.text("status")]; ended && !good {
			return exitf(exitWorkflow, "the task is %s", t.text("status"))
		} else if ended {
			return nil
		}
		if !sleepUntil(ctx, time.Now().Add(pause)) {
			return b.client.failed(ctx, ctx.Err())
		}
		t, err = b.client.get(ctx, "/v1/tasks/"+t.text("task_uuid"), nil)
	}
	return err
}

// note counts a task.
func (b *benchLoad) note(took time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all.note(took, err)
	b.second.note(took, err)
	if err == nil {
		return
	}
	message := err.Error()
	// Messages may contain ids, so there may be as many as tasks.
	if _, known := b.failures[message]; !known && len(b.failures) >= benchFailures {
		message = "other failures"
	}
	b.failures[message]++
}

// progress describes the time since it was last called.
func (b *benchLoad) progress() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.second
	b.second = benchCount{}
	return fmt.Sprintf("%4.0fs  %d tasks/s  p50 %s  p99 %s  max %s  %d failed", time.Since(b.began).Seconds(), c.times.count,
		benchTime(c.times.quantile(0.5)), benchTime(c.times.quantile(0.99)), benchTime(float64(c.times.max)), c.failed)
}

// benchTime writes a time in microseconds.
func benchTime(us float64) string {
	return shortDuration(time.Duration(us * float64(time.Microsecond)))
}

// benchResult holds the figures that bench prints. Times are in milliseconds.
type benchResult struct {
	URL            string             `json:"url"`
	Template       string             `json:"template"`
	Loop           string             `json:"loop"` // open or closed
	Clients        int                `json:"clients"`
	Rate           *float64           `json:"rate"` // null in a closed loop
	Seconds        float64            `json:"duration_seconds"`
	Tasks          uint64             `json:"tasks"` // that ended as they should
	TasksPerSecond float64            `json:"tasks_per_second"`
	Latency        map[string]float64 `json:"latency_ms"`
	Errors         int                `json:"errors"`
	Failures       map[string]int     `json:"failures"` // errors by message
	Missed         int                `json:"missed"`   // due in an open loop, but no client was free
}

// benchQuantiles are the percentiles that bench prints.
var benchQuantiles = []struct {
	name  string
	share float64
}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"p99_9", 0.999}}

func (b *benchLoad) result() *benchResult {
	thousandth := func(f float64) float64 { return math.Round(f*1000) / 1000 }
	seconds := b.took.Seconds()
	v := &benchResult{
		URL: b.client.url, Template: fmt.Sprintf("%s/%s", b.body["namespace"], b.body["name"]),
		Loop: "closed", Clients: b.clients, Seconds: thousandth(seconds), Tasks: b.all.times.count,
		TasksPerSecond: thousandth(float64(b.all.times.count) / seconds), Errors: b.all.failed, Failures: b.failures,
		Latency: map[string]float64{
			"mean": thousandth(b.all.times.mean() / 1000), "max": thousandth(float64(b.all.times.max) / 1000),
		},
	}
	for _, q := range benchQuantiles {
		v.Latency[q.name] = thousandth(b.all.times.quantile(q.share) / 1000)
	}
	if b.rate > 0 {
		due := math.Ceil(b.rate * min(seconds, b.length.Seconds()))
		v.Loop, v.Rate, v.Missed = "open", &b.rate, max(int(due)-int(b.next.Load()), 0)
	}
	return v
}

// worst returns the most frequent failure.
func (v *benchResult) worst() string {
	worst := "no task was created"
	for _, message := range slices.Sorted(maps.Keys(v.Failures)) {
		if v.Failures[message] > v.Failures[worst] {
			worst = message
		}
	}
	return worst
}

func (v *benchResult) table(t *table) {
	row := func(name, format string, args ...any) { t.row(t.paint(faint, name), fmt.Sprintf(format, args...)) }
	row("template", "%s at %s", printable(v.Template), printable(v.URL))
	load := fmt.Sprintf("closed loop, %d clients", v.Clients)
	if v.Rate != nil {
		load = fmt.Sprintf("open loop, %v tasks/s by at most %d clients", *v.Rate, v.Clients)
	}
	row("load", "%s, for %s", load, shortDuration(time.Duration(v.Seconds*float64(time.Second))))
	row("throughput", "%.1f tasks/s", v.TasksPerSecond)
	row("tasks", "%d", v.Tasks)
	for _, q := range benchQuantiles {
		row(strings.ReplaceAll(q.name, "_", "."), "%s", benchTime(v.Latency[q.name]*1000))
	}
	row("max", "%s", benchTime(v.Latency["max"]*1000))
	row("errors", "%d", v.Errors)
	for _, message := range slices.Sorted(maps.Keys(v.Failures)) {
		t.row("", fmt.Sprintf("%d: %s", v.Failures[message], printable(message)))
	}
	if v.Rate != nil {
		row("missed", "%d: due, but no client was free", v.Missed)
	}
}
