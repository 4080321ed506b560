package main

// Benchmarks of load of other kinds: tasks with many steps, steps in a row,
// requests beside a snapshot, waiting tasks, and slow handlers.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

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

// benchRequest is a creation of a task of the namespace bench.
func benchRequest(b *testing.B, name string) *taskRequest {
	q, err := parseTaskRequest([]byte(fmt.Sprintf(`{"namespace":"bench","name":%q}`, name)))
	if err != nil {
		b.Fatal(err)
	}
	return q
}

// createAndFinish creates a task and waits until it is complete.
func createAndFinish(b *testing.B, svc *service, q *taskRequest) *task {
	done, err := svc.submitTask(b.Context(), &submission{taskRequest: q, waits: true, limit: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	if done.task.state != taskComplete {
		b.Fatalf("the task ended %s", done.task.state)
	}
	return done.task
}

// BenchmarkSteps is one task of n noop steps, from its creation to its end.
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

// benchChain is how many steps the tasks of BenchmarkSequentialStep have.
const benchChain = 20

// BenchmarkSequentialStep is the median time of a step in a chain: of noop steps,
// and of steps that an HTTP handler runs, beside the same calls of the handler
// without an engine, and bare syncs of 500 bytes.
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
		to, attempt := svc.handlers.resolve(handler.URL), svc.engine.attemptLocked(t, benchChain/2, true)
		return func() {
			if o := svc.handlers.run(b.Context(), to, attempt); o.err != nil {
				b.Fatal(o.err)
			}
		}
	}
	// What the machine gives without an engine: calls, syncs, and both in turns,
	// where each finds the processor idle after the other.
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

// benchSyncer writes a record's worth of bytes and syncs them.
func benchSyncer(b *testing.B) func() {
	f, err := osDisk{}.create(filepath.Join(b.TempDir(), "bare"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	pos, end := int64(0), int64(0)
	return func() {
		if pos+benchBody > end { // as the journal does
			end += spaceStep
			f.allocate(end-spaceStep, spaceStep)
		}
		if _, err := f.WriteAt(make([]byte, benchBody), pos); err != nil {
			b.Fatal(err)
		}
		if err := f.sync(); err != nil {
			b.Fatal(err)
		}
		pos += benchBody
	}
}

// medianStep is the median of what f takes for each of benchChain steps, in microseconds.
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

// BenchmarkBesideSnapshot is the latency of requests while a snapshot of a
// million tasks is written, and as long again without.
//
//	go test -run XXX -bench BesideSnapshot -benchtime 3x .
func BenchmarkBesideSnapshot(b *testing.B) {
	dir := b.TempDir()
	fillStore(b, dir, 1_000_000)
	svc := openTestService(b, serviceTest{dir: dir, log: io.Discard, config: retaining(0),
		extra: []string{benchTemplate("diamond", "builtin:noop", diamondParents)}})
	defer func() { // without the invariants of a million tasks
		svc.finish(context.Background())
		svc.closeStore()
	}()
	h := httptest.NewServer(newOrchestrationAPI(svc))
	defer h.Close()
	for b.Loop() {
		began := time.Now()
		during := latenciesWhile(b, h.URL, func() {
			if err := svc.store.snapshot(); err != nil {
				b.Error(err)
			}
		})
		took := time.Since(began)
		alone := latenciesWhile(b, h.URL, func() { receiveWithin(make(chan int), took) })
		b.ReportMetric(took.Seconds(), "snapshot-s")
		b.ReportMetric(ms(during, 0.999), "p99.9-ms")
		b.ReportMetric(ms(alone, 0.999), "alone-p99.9-ms")
		b.ReportMetric(ms(during, 0.5), "p50-ms")
		b.ReportMetric(ms(alone, 0.5), "alone-p50-ms")
		b.ReportMetric(float64(len(during))/took.Seconds(), "op/s")
		b.ReportMetric(float64(len(alone))/took.Seconds(), "alone-op/s")
	}
}

// ms is a quantile of sorted times in milliseconds.
func ms(times []time.Duration, q float64) float64 {
	return float64(times[int(q*float64(len(times)-1))].Microseconds()) / 1000
}

// latenciesWhile is how long each request of two clients took, sorted, as long as f ran.
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

// BenchmarkWaiting is what 100,000 tasks that wait an hour for their next
// attempt take of the processor and of memory.
func BenchmarkWaiting(b *testing.B) {
	const tasks = 100_000
	svc := newTestService(b, serviceTest{log: io.Discard, extra: []string{`{"namespace":"bench","name":"later",
		"version":"1.0.0","identity_strategy":"always_unique","steps":[{"name":"s","handler":{"callable":"builtin:fail",
		"initialization":{"retryable":true}},"retry":{"max_attempts":5,"backoff_base_ms":3600000,"max_backoff_ms":3600000}}]}`}})
	q := benchRequest(b, "later")
	before := heapBytes()
	for range tasks {
		if _, err := svc.createTask(b.Context(), q, true); err != nil {
			b.Fatal(err)
		}
	}
	each := float64(heapBytes()-before) / tasks
	used, began := cpuTime(b), time.Now()
	for b.Loop() {
		receiveWithin(make(chan int), time.Second)
	}
	b.ReportMetric(float64((cpuTime(b)-used).Microseconds())/1000/time.Since(began).Seconds(), "cpu-ms/s")
	b.ReportMetric(each, "B/task")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
}

// cpuTime is the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBesideSlowHandlers is the diamond by 16 clients while a thousand HTTP
// handlers are waited for, and without them.
func BenchmarkBesideSlowHandlers(b *testing.B) {
	for _, slow := range []int{0, 1_000} {
		b.Run(fmt.Sprintf("slow=%d", slow), func(b *testing.B) {
			slowly := newStuckHandler(b, slow)
			svc := newTestService(b, serviceTest{log: io.Discard, extra: []string{
				benchTemplate("diamond", "builtin:noop", diamondParents), slowly.template("slow"),
			}})
			defer close(slowly.release)
			q, err := parseTaskRequest([]byte(`{"namespace":"t","name":"slow"}`))
			if err != nil {
				b.Fatal(err)
			}
			for range slow {
				if _, err := svc.createTask(b.Context(), q, true); err != nil {
					b.Fatal(err)
				}
			}
			slowly.awaitAll()
			h := httptest.NewServer(newOrchestrationAPI(svc))
			defer h.Close()
			drive(b, h.URL, 16, runDiamond)
		})
	}
}
