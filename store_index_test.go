package main

// Benchmarks of lists and analytics, which must not depend on how much is stored, with 1,000
// and with 1,000,000 tasks; and of the cost of counting.

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkCounting applies the log of a four-step diamond, with and without figures. The
// difference is the cost of counting a task and its steps.
func BenchmarkCounting(b *testing.B) {
	svc := benchService(b, "")
	q := must(parseTaskRequest([]byte(diamondBody)))(b)
	must(svc.createTask(b.Context(), q, true))(b)
	line := svc.store.slots[0].line
	if line == nil {
		b.Fatal("the diamond did not end")
	}
	for _, bc := range []struct {
		name string
		obs  replayer
	}{{"without", unobserved{}}, {"with", newAnalytics()}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(svc.store.replayLine(line, bc.obs))(b)
			}
		})
	}
}

// The stored tasks of BenchmarkStored: some hours of some templates.
const (
	storedNamespaces = 4
	storedNames      = 5
	storedHours      = 48
	storedLive       = 100 // unfinished ones
)

func storedTemplates() []string {
	var all []string
	for ns := range storedNamespaces {
		for n := range storedNames {
			for _, kind := range [][2]string{{"auto", "builtin:noop"}, {"manual", "Outside::Actor"}} {
				t := benchTemplate(fmt.Sprintf("%s%d", kind[0], n), kind[1], diamondParents)
				all = append(all, strings.Replace(t, `"bench"`, fmt.Sprintf(`"bench%d"`, ns), 1))
			}
		}
	}
	return all
}

// storedService returns a service on its own clock, without the invariant
// checks.
func storedService(b *testing.B) *service {
	svc := openTestService(b, serviceTest{
		clock: newVirtualClock(testStart), log: io.Discard, extra: storedTemplates(), config: retaining(0),
	})
	b.Cleanup(func() {
		svc.finish(context.Background())
		svc.close()
	})
	return svc
}

func createStored(b *testing.B, svc *service, namespace int, name string) *task {
	body := fmt.Sprintf(`{"namespace":"bench%d","name":%q,"context":{"order":12345,"customer":"c-77"}}`, namespace, name)
	q := must(parseTaskRequest([]byte(body)))(b)
	return must(svc.createTask(b.Context(), q, true))(b)
}

// storedLines returns ended tasks as their lines: for each hour, one of each template that is
// complete, and every tenth cancelled.
func storedLines(b *testing.B) (*service, [][]byte) {
	svc := storedService(b)
	for hour := range storedHours {
		for i := range storedNamespaces * storedNames {
			ns, n := i/storedNames, i%storedNames
			createStored(b, svc, ns, fmt.Sprintf("auto%d", n))
			if (hour+i)%10 == 0 {
				must(svc.operator.cancelTask(b.Context(), createStored(b, svc, ns, fmt.Sprintf("manual%d", n)).id, taskActor{}))(b)
			}
		}
		svc.clock.(*virtualClock).advance(time.Hour)
	}
	var lines [][]byte
	for i := range svc.store.slots {
		if line := svc.store.slots[i].line; line != nil {
			lines = append(lines, line)
		}
	}
	return svc, lines
}

// fillStored returns a service with that many tasks, loaded into the store as at a start. Their
// lines differ only in their ids.
func fillStored(b *testing.B, tasks int) *service {
	from, lines := storedLines(b)
	svc := storedService(b)
	for _, tpl := range from.store.allTemplates() {
		svc.store.keepTemplate(tpl)
	}
	l := &restorer{s: svc.store}
	first := svc.ids.reserve(8 * tasks)
	for i := range tasks - storedLive {
		id := first.plus(8 * i)
		line := slices.Clone(lines[i%len(lines)])
		id.appendText(line[:len(`{"task":"`)])
		line = append(line[:len(line)-1], `,"sum":"00000000"}`...) // which snapshotLine cuts off
		noError(b, l.snapshotLine(line))
	}
	svc.clock.(*virtualClock).advance(storedHours * time.Hour)
	for i := range storedLive {
		createStored(b, svc, i%storedNamespaces, fmt.Sprintf("manual%d", i%storedNames))
	}
	return svc
}

// storedRequest is a path, and a name under which it is compared with a request to another
// store: the one for a page with as many tasks.
type storedRequest struct{ path, name string }

// storedRequests returns the lists and the analytics of both surfaces. The mount point's
// analytics are cached, so the benchmark measures the cache.
func storedRequests(b *testing.B, svc *service) []storedRequest {
	var requests []storedRequest
	for _, path := range []string{
		"/v1/analytics/performance", "/v1/analytics/performance?hours=720", "/v1/analytics/bottlenecks",
		"/v1/analytics/history?hours=720",
		"/stepwell/analytics/performance", "/stepwell/analytics/bottlenecks?namespace=bench1", "/stepwell/health/status",
	} {
		requests = append(requests, storedRequest{path, path})
	}
	states := []string{"", "complete", "cancelled", "steps_in_process"}
	requests = append(requests, storedLists(b, svc, "/v1/tasks", states)...)
	return append(requests, storedLists(b, svc, "/stepwell/tasks", append(briefStatusNames[:], states[0], states[3]))...)
}

// storedLists returns every combination of filters, with the first and the last page.
func storedLists(b *testing.B, svc *service, path string, statuses []string) (requests []storedRequest) {
	for _, status := range statuses {
		for _, namespace := range []string{"", "bench1"} {
			for _, name := range []string{"", "auto3", "manual3"} {
				f := taskFilter{namespace: namespace, name: name}
				if word, ok := parseBriefStatus(status); ok && path != "/v1/tasks" {
					f.status = &word
				} else if state, ok := parseTaskState(status); ok {
					f.state = &state
				}
				filters := fmt.Sprintf("&status=%s&namespace=%s&name=%s", status, namespace, name)
				requests = append(requests, storedPages(b, svc, path, filters, &f)...)
			}
		}
	}
	return requests
}

func storedPages(b *testing.B, svc *service, path, filters string, f *taskFilter) []storedRequest {
	_, total, _ := svc.store.list(f, 0, 1)
	first := fmt.Sprintf("%s, first page, %d tasks, %s", path, min(total, 25), filters)
	pages := []storedRequest{{path + "?page=1" + filters, first}}
	if last := total / 25; last > 1 { // the last full page
		pages = append(pages, storedRequest{fmt.Sprintf("%s?page=%d%s", path, last, filters), path + ", last page, " + filters})
	}
	return pages
}

// BenchmarkStored sends every request with 1,000 tasks and with 1,000,000. The requests take
// turns, so that a slow moment of the machine affects all of them. The p99 of each request is
// compared with the same for 1,000.
func BenchmarkStored(b *testing.B) {
	small := map[string]storedTimes{}
	for _, tasks := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) { benchStored(b, tasks, small) })
	}
}

func benchStored(b *testing.B, tasks int, small map[string]storedTimes) {
	svc := fillStored(b, tasks)
	h := httptest.NewServer(newOrchestrationAPI(svc, nil))
	defer h.Close()
	c := dialClient(b, h.URL)
	defer c.conn.Close()
	requests := storedRequests(b, svc)
	times := make([][]time.Duration, len(requests))
	b.ResetTimer()
	for range b.N {
		for i, q := range requests {
			at := time.Now()
			noError(b, expect(200)(c.do("GET", q.path, "")))
			times[i] = append(times[i], time.Since(at))
		}
	}
	b.StopTimer()
	reportStored(b, requests, times, small)
}

// reportStored reports the slowest request, how much the number of tasks slows down the most
// affected one, and which ones are slowed down too much. With few rounds, that is the noise of
// the machine.
func reportStored(b *testing.B, requests []storedRequest, times [][]time.Duration, small map[string]storedTimes) {
	if b.N == 1 {
		return
	}
	var worst storedTimes
	var worst50, worst99 float64
	for i, q := range requests {
		slices.Sort(times[i])
		t := storedTimes{times[i][len(times[i])/2], times[i][len(times[i])*99/100]}
		worst = storedTimes{max(worst.p50, t.p50), max(worst.p99, t.p99)}
		than, ok := small[q.name]
		if !ok {
			small[q.name] = t
			continue
		}
		r50, r99 := float64(t.p50)/float64(than.p50), float64(t.p99)/float64(than.p99)
		if r50 > 2 || r99 > 2 {
			b.Logf("%s: p50 %v after %v, p99 %v after %v", q.name, t.p50, than.p50, t.p99, than.p99)
		}
		worst50, worst99 = max(worst50, r50), max(worst99, r99)
	}
	b.ReportMetric(float64(worst.p50.Microseconds()), "worst-p50-µs")
	b.ReportMetric(float64(worst.p99.Microseconds()), "worst-p99-µs")
	b.ReportMetric(worst50, "worst-p50-ratio")
	b.ReportMetric(worst99, "worst-p99-ratio")
}

// storedTimes holds the durations of a request.
type storedTimes struct{ p50, p99 time.Duration }

// TestTaskIndex compares pages of every kind of filter with a plain search, for
// values that few, many or no tasks have.
func TestTaskIndex(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for name, users := range map[string]int{"many combinations": 200, "few combinations": 9} {
		t.Run(name, func(t *testing.T) { testTaskIndex(t, users) })
	}
}

func testTaskIndex(t *testing.T, users int) {
	type entry struct {
		tpl   *template
		by    creation
		state taskState
	}
	r := rand.New(rand.NewPCG(1, 2))
	x := newTaskIndex()
	templates := make([]*template, 15)
	for i := range templates {
		templates[i] = &template{namespace: fmt.Sprint("n", i%3), name: fmt.Sprint("t", i%5), version: "1.0.0"}
	}
	var all []entry
	for i := range 3000 {
		e := entry{
			tpl:   templates[r.IntN(len(templates))],
			by:    creation{initiator: fmt.Sprint("user", r.IntN(users)), source: fmt.Sprint("s", r.IntN(2))},
			state: taskState(r.IntN(int(taskStates))),
		}
		all = append(all, e)
		x.move(uint32(i), taskPending, e.state, x.insert(uint32(i), e.tpl, &e.by))
	}
	choose := func(values ...string) string { return values[r.IntN(len(values))] }
	for range 2000 {
		f := taskFilter{
			namespace: choose("", "n0", "n1", "none"), name: choose("", "", "t3"), version: choose("", "1.0.0"),
			initiator: choose("", "", "user7", "user8"), source: choose("", "s1"),
		}
		if r.IntN(2) == 0 {
			f.state = new(taskState(r.IntN(int(taskStates))))
		}
		if r.IntN(3) == 0 {
			f.status = new(briefStatus(r.IntN(int(briefStatuses))))
		}
		var want []uint32
		for i := len(all) - 1; i >= 0; i-- {
			e := &all[i]
			if (f.namespace == "" || f.namespace == e.tpl.namespace) && (f.name == "" || f.name == e.tpl.name) &&
				(f.version == "" || f.version == e.tpl.version) && (f.initiator == "" || f.initiator == e.by.initiator) &&
				(f.source == "" || f.source == e.by.source) && (f.state == nil || *f.state == e.state) &&
				(f.status == nil || *f.status == e.state.brief()) {
				want = append(want, uint32(i))
			}
		}
		skip, limit := r.IntN(len(want)+2), 1+r.IntN(50)
		page, total := x.page(&f, skip, limit)
		from := min(skip, len(want))
		if part := want[from:min(from+limit, len(want))]; total != len(want) || !slices.Equal(page, part) {
			t.Fatalf("%+v from %d: got %v of %d; want %v of %d", f, skip, page, total, part, len(want))
		}
	}
}
