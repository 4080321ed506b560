package main

// Benchmarks of lists and analytics, which must not depend on how much is stored, with 1,000
// and with 1,000,000 tasks; and of the cost of counting.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

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
				t = strings.Replace(t, `"steps"`, `"search":["order","customer"],"steps"`, 1)
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

// storedCorrelation and storedTrace are replaced by another correlation id and trace id in each stored
// task.
const (
	storedCorrelation = "00000000-0000-7000-8000-000000000000"
	storedTrace       = "0123456789abcdef0123456789abcdef"
)

func createStored(b *testing.B, svc *service, namespace int, name string) *task {
	n := len(svc.store.tasks.slots)
	body := fmt.Sprintf(`{"namespace":"bench%d","name":%q,"context":{"order":12345,"customer":"`+storedCustomer+`"},`+
		`"tags":["all","one in ten %d"],"correlation_id":%q,"priority":%d}`, namespace, name, n%10, storedCorrelation, n%3)
	q := must(parseTaskRequest([]byte(body)))(b)
	q.traceparent = "00-" + storedTrace + "-00f067aa0ba902b7-01"
	return must(svc.createTask(b.Context(), q, true))(b)
}

// storedCustomer is replaced in the same way, in the context and in errors.
const storedCustomer = "c-77"

// storedLines returns ended tasks as their lines: for each hour, one of each template that is
// complete, and every tenth cancelled while it waited for a retry.
func storedLines(b *testing.B) (*service, [][]byte) {
	svc := storedService(b)
	for hour := range storedHours {
		for i := range storedNamespaces * storedNames {
			ns, n := i/storedNames, i%storedNames
			createStored(b, svc, ns, fmt.Sprintf("auto%d", n))
			if (hour+i)%10 == 0 {
				t := createStored(b, svc, ns, fmt.Sprintf("manual%d", n))
				_, _, err := svc.operator.act(b.Context(), t.id, t.id.plus(1), must(parseStepRequest([]byte(`{"action_type":"fail","reason":"r",`+
					`"failed_by":"me","error":{"message":"order of `+storedCustomer+` refused","retryable":true}}`)))(b))
				noError(b, err)
				must(svc.operator.cancelTask(b.Context(), t.id, taskActor{}))(b)
			}
		}
		svc.clock.(*virtualClock).advance(time.Hour)
	}
	var lines [][]byte
	for _, sl := range svc.store.tasks.slots {
		if sl != nil && sl.live == nil {
			lines = append(lines, sl.line())
		}
	}
	return svc, lines
}

// storedLine returns a line as that of the i-th of some tasks, which were created in that order
// and ended seconds later, apart from every thousandth, which took a day.
func storedLine(b *testing.B, line []byte, i, tasks int, id uuid) []byte {
	h := must(readTaskLine(line))(b)
	took := time.Duration(1+i%7) * time.Second
	if i%1000 == 999 {
		took = 24 * time.Hour
	}
	h.id, h.seq, h.lastSeq = id, uint64(10*i+1), uint64(10*i+10)
	h.created = testStart.add(time.Duration(float64(i) / float64(tasks) * float64(storedHours*time.Hour)))
	h.updated = h.created.add(took)
	h.completed = h.updated
	c := memberCoder{b: []byte{'{'}}
	h.members(&c, &h.template)
	log := bytes.Replace(h.log, []byte(storedCorrelation), []byte(id.String()), 1)
	log = bytes.Replace(log, []byte(storedTrace), fmt.Appendf(nil, "%x", id[:]), 1)
	log = bytes.ReplaceAll(log, []byte(storedCustomer), fmt.Appendf(nil, "c-%d", i))
	return append(append(append(c.b, `,"log":[`...), log...), `],"sum":"00000000"}`...) // which cutSum cuts off
}

// fillStored returns a service with that many tasks, loaded into the store as at a start.
func fillStored(b *testing.B, tasks int) *service {
	from, lines := storedLines(b)
	svc := storedService(b)
	for _, tpl := range from.store.templates.all() {
		svc.store.templates.keep(tpl)
	}
	l := &restorer{s: svc.store, seq: maxStateCount}
	first := svc.ids.reserve(8 * tasks)
	for i := range tasks - storedLive {
		noError(b, l.taskLine(cutSum(storedLine(b, lines[i%len(lines)], i, tasks, first.plus(8*i)))))
	}
	svc.store.seq = uint64(10 * tasks) // as in storedLine, or cursors would be of another history
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
				if path != "/v1/tasks" {
					f.states, _ = briefStates(status)
				} else if state, ok := parseTaskState(status); ok {
					f.states = setOf(state)
				}
				filters := fmt.Sprintf("&status=%s&namespace=%s&name=%s", status, namespace, name)
				requests = append(requests, storedPages(b, svc, path, filters, &f)...)
			}
		}
	}
	return requests
}

func storedPages(b *testing.B, svc *service, path, filters string, f *taskFilter) []storedRequest {
	total := svc.store.count(f)
	first := fmt.Sprintf("%s, first page, %d tasks, %s", path, min(total, 25), filters)
	pages := []storedRequest{{path + "?page=1" + filters, first}}
	if last := total / 25; last > 1 { // the last full page
		pages = append(pages, storedRequest{fmt.Sprintf("%s?page=%d%s", path, last, filters), path + ", last page, " + filters})
	}
	return pages
}

// storedFilters returns lists by the filters that are not of a template or a state, in every
// order, with the first page, the last one, and one after a cursor.
func storedFilters(b *testing.B, svc *service) (requests []storedRequest) {
	some := svc.store.list(&taskQuery{limit: 1, skip: len(svc.store.tasks.slots) / 2})
	t, _, err := some.tasks[0].listed(nil)
	noError(b, err)
	hours := func(n float64) string {
		return testStart.add(time.Duration(n * float64(time.Hour))).zoned()
	}
	for _, filters := range []string{
		"", "&status=complete,cancelled", "&status=complete,cancelled&counts=true", "&tag=all", "&tag=all&tag=one+in+ten+3",
		"&tag=none", "&q=NCH1", "&q=auto3&counts=true", "&correlation_id=" + t.correlation().String(), "&trace_id=" + t.by.traceID(),
		"&tag=all&tag=one+in+ten+3&updated_after=" + hours(12) + "&updated_before=" + hours(36),
		"&created_after=" + hours(10) + "&created_before=" + hours(20), "&updated_after=" + hours(40),
		"&completed_before=" + hours(12.3) + "&tag=all", "&updated_after=" + hours(10) + "&completed_before=" + hours(30) +
			"&created_before=" + hours(25) + "&namespace=bench1&status=complete,cancelled",
	} {
		for _, sort := range sortWords {
			requests = append(requests, storedOrder(b, svc, "&sort="+sort+filters)...)
		}
	}
	return requests
}

// storedOrder returns the requests of one list in one order.
func storedOrder(b *testing.B, svc *service, text string) (requests []storedRequest) {
	const path = "/v1/tasks"
	q := &query{values: must(url.ParseQuery(text[1:]))(b)}
	l := q.listing()
	l.states = q.states(filteredState, "")
	requests = storedPages(b, svc, path, text, &l.taskFilter)
	l.skip, l.limit = svc.store.count(&l.taskFilter)/2, 1
	if l.skip < 25 {
		return requests
	}
	after := "&cursor=" + l.cursorAfter(svc.store.list(&l.taskQuery).last, svc.store.lives)
	return append(requests, storedRequest{path + "?" + text[1:] + after, path + ", cursor, " + text})
}

// BenchmarkStoredFilters is BenchmarkStored for the lists of storedFilters, and for the default
// retention, too.
func BenchmarkStoredFilters(b *testing.B) {
	for _, tasks := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) { benchStored(b, tasks, storedFilters) })
	}
}

// BenchmarkStored sends every request to a service with 1,000 tasks and to one with 1,000,000,
// in turns, so that a slow moment of the machine affects both.
func BenchmarkStored(b *testing.B) { benchStored(b, 1_000_000, storedRequests) }

func benchStored(b *testing.B, tasks int, asked func(b *testing.B, svc *service) []storedRequest) {
	if b.N == 1 { // a run that measures nothing
		return
	}
	small, large := serveStored(b, 1_000, asked), serveStored(b, tasks, asked)
	b.ResetTimer()
	for range b.N {
		for _, q := range large.requests {
			large.ask(b, q)
			if i := slices.IndexFunc(small.requests, func(r storedRequest) bool { return r.name == q.name }); i >= 0 {
				small.ask(b, small.requests[i])
			}
		}
	}
	b.StopTimer()
	reportStored(b, small, large)
}

// storedServer is a service with stored tasks, the requests that it is sent, how long they took, and
// how much processor time the process used, the client's share included.
type storedServer struct {
	client   *wireClient
	requests []storedRequest
	times    map[string][]time.Duration
	cpu      map[string][]time.Duration
}

func serveStored(b *testing.B, tasks int, asked func(b *testing.B, svc *service) []storedRequest) *storedServer {
	svc := fillStored(b, tasks)
	h := httptest.NewServer(newOrchestrationAPI(svc, nil))
	b.Cleanup(h.Close)
	c := dialClient(b, h.URL)
	b.Cleanup(func() { c.conn.Close() })
	return &storedServer{c, asked(b, svc), map[string][]time.Duration{}, map[string][]time.Duration{}}
}

func (s *storedServer) ask(b *testing.B, q storedRequest) {
	at, used := time.Now(), cpuTime()
	noError(b, expect(200)(s.client.do("GET", q.path, "")))
	s.times[q.name] = append(s.times[q.name], time.Since(at))
	s.cpu[q.name] = append(s.cpu[q.name], cpuTime()-used)
}

// percentiles returns the median and the p99 of some times, or zero if there are none.
func percentiles(times []time.Duration) (p50, p99 time.Duration) {
	if times = slices.Sorted(slices.Values(times)); len(times) > 0 {
		p50, p99 = times[len(times)/2], times[len(times)*99/100]
	}
	return p50, p99
}

// reportStored reports the slowest request, how much the number of tasks slows down the most
// affected one, and with -v all of them. With few rounds, the p99 is the noise of the machine.
func reportStored(b *testing.B, small, large *storedServer) {
	var slow50, slow99, slowCPU time.Duration
	var worst50, worst99 float64
	for _, q := range large.requests {
		p50, p99 := percentiles(large.times[q.name])
		cpu, _ := percentiles(large.cpu[q.name])
		slow50, slow99, slowCPU = max(slow50, p50), max(slow99, p99), max(slowCPU, cpu)
		than50, than99 := percentiles(small.times[q.name])
		if than50 == 0 {
			continue
		}
		r50, r99 := float64(p50)/float64(than50), float64(p99)/float64(than99)
		if testing.Verbose() { // b.Log cuts off long output
			thanCPU, _ := percentiles(small.cpu[q.name])
			fmt.Printf("%5.2f × p50 %v after %v, p99 %v after %v, cpu %v after %v, %s\n",
				r50, p50, than50, p99, than99, cpu, thanCPU, q.name)
		}
		worst50, worst99 = max(worst50, r50), max(worst99, r99)
	}
	b.ReportMetric(float64(slow50.Microseconds()), "worst-p50-µs")
	b.ReportMetric(float64(slow99.Microseconds()), "worst-p99-µs")
	b.ReportMetric(float64(slowCPU.Microseconds()), "worst-cpu-p50-µs")
	b.ReportMetric(worst50, "worst-p50-ratio")
	b.ReportMetric(worst99, "worst-p99-ratio")
}

// plainTask is a task as a plain search sees it.
type plainTask struct {
	slot *slot // in the table
	tpl  *template
	by   creation
	slotTimes
	own uuid // its own correlation id
}

// slotTimes holds what a plain task has in addition to its slot.
type slotTimes struct {
	state                       taskState
	created, updated, completed instant
	seq                         uint64
}

func (t *plainTask) correlation() uuid { return cmp.Or(t.by.correlation, t.own) }

func (t *plainTask) matches(f *taskFilter) bool {
	text := strings.Contains(strings.ToLower(t.tpl.namespace), f.text) || strings.Contains(strings.ToLower(t.tpl.name), f.text)
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.namespace, t.tpl.namespace) && is(f.name, t.tpl.name) && is(f.version, t.tpl.version) &&
		is(f.initiator, t.by.initiator) && is(f.source, t.by.source) && text &&
		(f.states == 0 || f.states.has(t.state)) &&
		!slices.ContainsFunc(f.tags, func(tag string) bool { return !slices.Contains(t.by.tags, tag) }) &&
		!slices.ContainsFunc(f.values, func(v contextValue) bool { return !t.has(v) }) &&
		(f.correlation.isZero() || f.correlation == t.correlation()) &&
		(f.trace == "" || f.trace == t.by.traceID()) && (f.parent.isZero() || f.parent == t.by.parentCorrelation) && f.created.has(t.created) &&
		f.updated.has(t.updated) && (f.completed == period{} || t.state.ended() && f.completed.has(t.completed))
}

// has reports whether the task is found by a value.
func (t *plainTask) has(v contextValue) bool {
	value := objectMember(t.by.search, v.path)
	if text, ok := jsonString(value); ok {
		return text == v.text
	}
	return value != nil && checkJSON([]byte(v.text)) == nil && sameJSON(value, []byte(v.text))
}

func (t *plainTask) rank(o taskOrder) int64 {
	switch {
	case o == orderUpdated:
		return int64(t.updated)
	case o == orderCompleted && t.state.ended():
		return int64(t.completed)
	case o == orderPriority:
		return int64(t.by.priority)
	}
	return 0
}

// plainList is the expected answer of a list: tasks by the sequences of their creations.
type plainList struct {
	seqs          []uint64
	total, before int
	counts        stateCount
}

// list is the answer of a list, by a plain search, with all that follow.
func (w *indexWorld) list(q *taskQuery) (r plainList) {
	compare := func(a, b taskPlace) int {
		c := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.seq, b.seq))
		if q.ascending {
			return c
		}
		return -c
	}
	var all []taskPlace
	for _, t := range w.tasks {
		any := q.taskFilter
		any.states = 0
		if q.counted && t.matches(&any) {
			r.counts[t.state]++
		}
		if t.matches(&q.taskFilter) {
			all = append(all, taskPlace{t.rank(q.order), t.seq})
		}
	}
	slices.SortFunc(all, compare)
	r.total = len(all)
	if q.after != nil {
		all = slices.DeleteFunc(all, func(p taskPlace) bool { return compare(p, *q.after) <= 0 })
	}
	r.before = r.total - len(all)
	for _, p := range all {
		r.seqs = append(r.seqs, p.seq)
	}
	return r
}

// TestTaskIndex compares pages of every kind of filter and order with a plain search, for
// values that few, many or no tasks have, while tasks move, are dropped, and get other places in the table.
func TestTaskIndex(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	for name, users := range map[string]int{"many combinations": 200, "few combinations": 9} {
		t.Run(name, func(t *testing.T) { testTaskIndex(t, users) })
	}
}

func testTaskIndex(t *testing.T, users int) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newIndexWorld(seed, users)
	for range 6000 {
		w.create()
	}
	w.compare(t, size(60, 250))
	for range 2000 {
		w.drop()
		w.touch()
	}
	w.compare(t, size(60, 250))
	w.s.tasks.goneFloor = -len(w.s.tasks.slots)
	if w.drop(); w.s.tasks.moved != 1 || len(w.s.tasks.slots) != len(w.tasks) {
		t.Errorf("got a table of %d places after %d moves; want %d after one", len(w.s.tasks.slots), w.s.tasks.moved, len(w.tasks))
	}
	for range 3000 {
		w.create()
	}
	w.compare(t, size(60, 250))
	if w.found < 20 {
		t.Errorf("all queries found %d tasks, too few", w.found)
	}
}

// indexWorld is a store and the plain form of what it has.
type indexWorld struct {
	r         *rand.Rand
	users     int
	s         *store
	tasks     []*plainTask // in the order of creation
	templates []*template
	clock     instant
	seq       uint64
	found     int // tasks in pages
}

func newIndexWorld(seed uint64, users int) *indexWorld {
	w := &indexWorld{r: rand.New(rand.NewPCG(seed, 2)), users: users}
	w.s = newStore(newVirtualClock(testStart), slog.New(slog.DiscardHandler))
	w.s.journal = closedJournal()
	for i := range 15 {
		w.templates = append(w.templates, &template{
			namespace: fmt.Sprint("n", i%3), name: fmt.Sprint("T", i%5), version: "1.0.0",
		})
	}
	return w
}

func choose[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// create adds a task. Now and then the clock was set back.
func (w *indexWorld) create() {
	r := w.r
	w.clock += instant(r.IntN(3))
	if r.IntN(500) == 0 {
		w.clock -= instant(r.IntN(2000))
	}
	w.clock = max(w.clock, 1)
	w.seq += 1 + uint64(r.IntN(3))
	e := &plainTask{
		tpl: choose(r, w.templates...), own: uuid{1, byte(w.seq >> 8), byte(w.seq)},
		by: creation{
			initiator: fmt.Sprint("user", r.IntN(w.users)), source: fmt.Sprint("s", r.IntN(2)), priority: r.IntN(3) - 1,
			parentCorrelation: choose(r, uuid{}, uuid{2}, uuid{3, byte(r.IntN(200))}),
			correlation:       choose(r, uuid{}, uuid{}, uuid{1, byte(r.IntN(40)), 7}, uuid{1, 0, 3}),
			traceparent:       fmt.Sprintf("00-%032X-00f067aa0ba902b7-01", 1+w.seq%20),
		},
	}
	e.seq, e.created, e.updated = w.seq, w.clock, w.clock
	e.by.search = choose(r, nil, nil, []byte(`{"k":"common"}`), fmt.Appendf(nil, `{"k":"v%d","n":%d.0}`, w.seq, w.seq%50),
		[]byte(`{"k":"c\u006fmmon","n":"7"}`))
	e.by.tags = choose(r, nil, nil, []string{"common"}, []string{"common", fmt.Sprint("t", w.seq), fmt.Sprint("t", w.seq)})
	e.slot = &slot{taskHeader: taskHeader{id: e.own.plus(-1), seq: e.seq, tpl: e.tpl, created: e.created, updated: e.created}}
	w.tasks = append(w.tasks, e)
	w.s.tasks.insert(e.slot, &e.by)
	w.move(e, taskState(r.IntN(int(taskStates))))
}

// move moves a task to a state, and perhaps changes it later.
func (w *indexWorld) move(e *plainTask, to taskState) {
	e.state, e.updated, e.completed = to, max(w.clock+instant(w.r.IntN(50)), 1), 0
	if w.r.IntN(100) == 0 {
		e.updated += instant(w.r.IntN(5000))
	}
	if to.ended() {
		e.completed = e.updated
		e.updated += instant(w.r.IntN(100)) / 99
	}
	if e.slot.state.ended() || to.ended() {
		e.slot = new(*e.slot)
	}
	e.slot.state, e.slot.updated, e.slot.completed = e.state, e.updated, e.completed
	w.s.tasks.replace(e.slot)
}

// some returns a task.
func (w *indexWorld) some() *plainTask { return choose(w.r, w.tasks...) }

func (w *indexWorld) touch() { w.move(w.some(), taskState(w.r.IntN(int(taskStates)))) }

func (w *indexWorld) drop() {
	e := w.some()
	w.s.tasks.remove(e.slot)
	w.tasks = slices.DeleteFunc(w.tasks, func(t *plainTask) bool { return t == e })
}

// query returns any query.
func (w *indexWorld) query() *taskQuery {
	r := w.r
	period := func() (p period) {
		if r.IntN(4) == 0 {
			p.after = instant(r.IntN(int(w.clock)))
		}
		if r.IntN(4) == 0 {
			p.before = instant(r.IntN(int(w.clock)))
		}
		return p
	}
	q := &taskQuery{
		taskFilter: taskFilter{
			namespace: choose(r, "", "n0", "n1", "none"), name: choose(r, "", "", "T3"), version: choose(r, "", "1.0.0"),
			initiator: choose(r, "", "", "", "user7", "user8"), source: choose(r, "", "s1"),
			text: choose(r, "", "", "", "t1", "n", "x"), parent: choose(r, uuid{}, uuid{}, uuid{}, uuid{2}, uuid{3, 5}),
			correlation: choose(r, uuid{}, uuid{}, uuid{}, uuid{1, byte(r.IntN(40)), 7}, uuid{1, 0, 3}),
			tags: choose(r, nil, nil, nil, []string{"common"}, []string{"none"},
				[]string{"common", fmt.Sprint("t", w.some().seq)}),
			values: choose(r, nil, nil, nil, []contextValue{{"k", "common"}}, []contextValue{{"n", "7"}}, []contextValue{{"n", "7.00"}},
				[]contextValue{{"k", "common"}, {"n", "7"}}, []contextValue{{"n", "common"}}, []contextValue{{"other", "common"}},
				[]contextValue{{"k", fmt.Sprint("v", w.some().seq)}}),
		},
		order: taskOrder(r.IntN(4)), ascending: r.IntN(2) == 0, limit: 1 + r.IntN(50), counted: r.IntN(4) == 0,
	}
	if q.limit%15 == 0 {
		q.trace = fmt.Sprintf("%032x", 1+q.limit/15)
	}
	if r.IntN(3) == 0 { // what the index has counted
		q.taskFilter = taskFilter{namespace: q.namespace, name: q.name}
	}
	if r.IntN(2) == 0 {
		q.states = stateSet(r.IntN(int(anyState)))
	}
	if r.IntN(2) == 0 {
		q.created, q.updated, q.completed = period(), period(), period()
	}
	if r.IntN(2) == 0 {
		e := w.some()
		q.after = &taskPlace{e.rank(q.order) + int64(r.IntN(3)) - 1, e.seq + uint64(r.IntN(2))}
	}
	return q
}

func (w *indexWorld) compare(t *testing.T, queries int) {
	t.Helper()
	for range queries {
		q := w.query()
		want := w.list(q)
		q.skip = w.r.IntN(want.total + 2)
		from := min(q.skip, len(want.seqs))
		want.seqs = want.seqs[from:min(from+q.limit, len(want.seqs))]
		got := w.s.list(q)
		var seqs []uint64
		for _, l := range got.tasks {
			seqs = append(seqs, l.header().seq)
		}
		if got.total != want.total || !slices.Equal(seqs, want.seqs) || q.counted && got.counts != want.counts ||
			q.after != nil && got.before != want.before {
			t.Fatalf("%+v after %+v:\ngot  %+v of %d after %d, %v\nwant %+v", q, q.after, seqs, got.total, got.before, got.counts, want)
		}
		w.found += len(seqs)
	}
}

// TestListsWorkInParts checks how much pages of 100,000 tasks do under the lock at a time, and that the first pages of
// lists by state and template look at few tasks. A task that ends meanwhile is not listed as what it was.
func TestListsWorkInParts(t *testing.T) {
	slow(t)
	t.Parallel()
	w := newIndexWorld(3, 9)
	for range size(20_000, 100_000) {
		w.create()
	}
	for name, tt := range map[string]struct {
		q    taskQuery
		most int // tasks that are looked at
	}{
		"newest first": {taskQuery{limit: 25}, 25}, "by state": {taskQuery{taskFilter: taskFilter{states: setOf(taskComplete)}, limit: 25}, 25},
		"by template": {taskQuery{taskFilter: taskFilter{name: "T3"}, limit: 25, ascending: true}, 25},
		"by tag":      {taskQuery{taskFilter: taskFilter{tags: []string{"common"}}, limit: 25}, math.MaxInt},
		"by change":   {taskQuery{order: orderUpdated, limit: 25, ascending: true}, math.MaxInt},
	} {
		l, looked := pageMaker{q: &tt.q}, 0
		for more := true; more; {
			more = l.look(&w.s.tasks)
			looked += l.walk.work / lookWork
			if l.walk.work > walkWork+lookWork {
				t.Errorf("%s: did %d under the lock; want at most %d", name, l.walk.work, walkWork)
			}
		}
		if most := tt.most; most < math.MaxInt && looked > most+len(w.s.tasks.slots)/lookWork {
			t.Errorf("%s: looked at %d tasks; want %d", name, looked, most)
		}
	}
	q := taskQuery{taskFilter: taskFilter{tags: []string{"common"}, states: setOf(taskPending)}, limit: 3}
	l := pageMaker{q: &q}
	for l.look(&w.s.tasks) {
	}
	gone := l.found[1].seq
	i := slices.IndexFunc(w.tasks, func(e *plainTask) bool { return e.seq == gone })
	w.move(w.tasks[i], taskComplete)
	if l.finish(w.s); len(l.list.tasks) != 2 {
		t.Errorf("got %d tasks; want 2, because one of three has ended", len(l.list.tasks))
	}
}

// TestTableBoundsMemory creates many tasks and keeps few: everything that grows with them stays small, even with an old
// task in front.
func TestTableBoundsMemory(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	s := newTestService(t, serviceTest{extra: append(storyTemplates, dlqTemplates[1]), config: retaining(50)})
	mustCreate(t, s, "pair")
	for i := range 20_000 {
		mustCreate(t, s, "noop", fmt.Sprintf(`"initiator":"user %d"`, i))
	}
	st := s.store
	const room = 8192
	if len(st.tasks.slots) > room || cap(st.tasks.slots) > room || cap(st.tasks.seqs) > room || cap(st.retain.queue) > room {
		t.Errorf("got %d places, room for %d, and for %d in the queue; want at most %d",
			len(st.tasks.slots), cap(st.tasks.slots), cap(st.retain.queue), room)
	}
	if len(st.tasks.byID) > 60 {
		t.Errorf("got %d tasks; want at most 60", len(st.tasks.byID))
	}
}

// checkFound compares what tasks are found by with the tasks. The caller holds the store's lock.
func checkFound(t testing.TB, s *store) {
	t.Helper()
	x := &s.tasks.index
	labels, errors, failing, texts := 0, 0, 0, map[string]int{}
	for at, sl := range s.tasks.slots {
		if sl == nil {
			continue
		}
		own := s.tasks.marks[at].labels
		v, err := sl.task()
		noError(t, err)
		for path, value := range jsonMemberBytes(v.by.search) {
			if !slices.Contains(own, x.valueLabel(string(path), value)) {
				t.Errorf("task %s has no label of a value in %s", sl.id, v.by.search)
			}
		}
		labels += len(own)
		var got []string
		if sl.trouble != nil {
			failing += len(sl.failures)
			for _, e := range sl.errors {
				got = append(got, e.text)
				if x.texts[e.text] != e {
					t.Errorf("the text %q of task %s is not in the index", e.text, sl.id)
				}
			}
		}
		want := errorTextsIn(v.log)
		if len(want) > maxTaskErrors {
			want = got
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("task %s is found by the errors %q; want %q", sl.id, got, want)
		}
		for _, text := range got {
			texts[text]++
		}
		errors += len(got)
	}
	length := 0
	for text, n := range texts {
		length += len(text)
		if x.texts[text] == nil || x.texts[text].tasks != n {
			t.Errorf("the text %q counts %+v; want %d tasks", text, x.texts[text], n)
		}
	}
	taken := labels*labelBytes + failing*failingBytes + errors*errorBytes + len(texts)*textBytes + length
	if len(x.texts) != len(texts) || x.bytes != int64(taken) {
		t.Errorf("the index has %d texts, and counts %d bytes; want %d and %d", len(x.texts), x.bytes, len(texts), taken)
	}
}

// foundTask is the model of a task in TestFindIndex.
type foundTask struct {
	slot   slot
	labels []uint64
	by     *creation
	texts  map[string]bool // of its errors
}

// TestFindIndex compares values and errors, and what they take of the memory, with plain sets, while tasks fail and are
// dropped. Nothing remains of them in the end.
func TestFindIndex(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	x := newTaskIndex(func(int64) {})
	tasks := map[int]*foundTask{}
	for range 20_000 {
		n := r.IntN(400)
		task := tasks[n]
		switch {
		case task == nil:
			task = &foundTask{by: &creation{search: fmt.Appendf(nil, `{"k":"v%d","n":%d}`, r.IntN(50), n)}, texts: map[string]bool{}}
			tasks[n] = task
			task.slot.trouble = &trouble{}
			task.labels = x.label(&task.slot, task.by)
		case r.IntN(10) == 0:
			x.unlabel(&task.slot, task.labels)
			delete(tasks, n)
		default:
			text := fmt.Sprintf("E: order %d of many", r.IntN(300)*r.IntN(3))
			x.fail(task.slot.trouble, text)
			task.texts[text] = true
		}
	}
	checkFoundTasks(t, &x, tasks)
	for _, task := range tasks {
		x.unlabel(&task.slot, task.labels)
	}
	if x.bytes != 0 || len(x.texts) > 0 {
		t.Errorf("seed %d: %d bytes and %d texts remain; want nothing", seed, x.bytes, len(x.texts))
	}
}

// checkFoundTasks checks that the index has all of the tasks.
func checkFoundTasks(t *testing.T, x *taskIndex, tasks map[int]*foundTask) {
	t.Helper()
	for n, task := range tasks {
		for path, value := range jsonMemberBytes(task.by.search) {
			if !slices.Contains(task.labels, x.valueLabel(string(path), value)) {
				t.Errorf("a value of task %d is missing", n)
			}
		}
		for text := range task.texts {
			known := slices.ContainsFunc(task.slot.errors, func(e *failureText) bool { return e.text == text })
			if !known && len(task.slot.errors) < maxTaskErrors {
				t.Errorf("%q of task %d is missing", text, n)
			}
		}
		if len(task.slot.errors) > maxTaskErrors {
			t.Errorf("%d errors of a task are indexed; want at most %d", len(task.slot.errors), maxTaskErrors)
		}
	}
}

// TestFindByIDPart compares searches for beginnings and ends of ids with a plain search through all of them.
func TestFindByIDPart(t *testing.T) {
	s := newTestService(t, serviceTest{extra: storyTemplates, config: retaining(300)})
	r := rand.New(rand.NewPCG(7, 7))
	for range 400 { // some of them are dropped
		mustCreate(t, s, choose(r, "noop", "pair"))
	}
	type anyID struct {
		id, task uuid
		plus     int
	}
	var all []anyID // the newest task first
	for _, sl := range slices.Backward(s.store.tasks.slots) {
		if sl != nil {
			v := must(sl.task())(t)
			for n := range v.tpl.ids() {
				all = append(all, anyID{v.id.plus(n), v.id, n})
			}
		}
	}
	for range 300 {
		some := choose(r, all...).id.String()
		digits := strings.ReplaceAll(some, "-", "")
		if n := shortestIDPart + r.IntN(32-shortestIDPart+1); r.IntN(2) == 0 {
			digits = digits[:n]
		} else {
			digits = digits[32-n:]
		}
		limit := 1 + r.IntN(20)
		found := newFinder(s.store).find(&taskSearch{part: newIDPart(digits), limit: limit})
		var wantOwn, wantOthers []foundID
		for _, id := range all {
			text := strings.ReplaceAll(id.id.String(), "-", "")
			switch {
			case id.plus == 0 && len(wantOwn) < limit && (strings.HasPrefix(text, digits) || strings.HasSuffix(text, digits)):
				wantOwn = append(wantOwn, foundID{task: id.task})
			case id.plus > 0 && len(wantOthers) < limit && strings.HasSuffix(text, digits):
				wantOthers = append(wantOthers, foundID{task: id.task, plus: id.plus})
			}
		}
		if !slices.Equal(found.own, wantOwn) || !slices.Equal(found.others, wantOthers) {
			t.Errorf("%s: got %v and %v; want %v and %v", digits, found.own, found.others, wantOwn, wantOthers)
		}
	}
	sl := slot{taskHeader: taskHeader{id: all[0].id, tpl: &template{}}, live: &task{}}
	second := sl.id.plus(1).String()
	right := second[17:18] // a digit of the half that seldom differs
	for digit, want := range map[string]bool{right: true, pick(right == "0", "1", "0"): false} {
		digits := strings.ReplaceAll(digit+second[18:], "-", "")
		if n, ok := sl.idWith(newIDPart(digits)); ok != want || want && n != 1 {
			t.Errorf("%s: got %d, %v; want %v", digits, n, ok, want)
		}
	}
}
