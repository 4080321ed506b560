package main

// GET /metrics in the Prometheus text format, version 0.0.4. Label values come from sets of bounded
// size, such as states, route patterns, status codes and the first templates. Whoever scrapes both
// roles of a process gets each series once: the orchestration role reports on the process, what each
// role counts has the label role; series that only the worker role reports have their own names.

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const metricsContentType = "text/plain; version=0.0.4; charset=utf-8"

// metricsText collects metrics in the text format.
type metricsText struct {
	b      []byte
	role   string // whose requests are counted
	prefix string // what names begin with instead of namePrefix
}

// namePrefix is what the names of metrics begin with in this program.
const namePrefix = "stepwell"

// named returns the name by which a metric is shown. Names that all programs have, such as process_cpu_seconds_total,
// stay.
func (m *metricsText) named(name string) string {
	rest, own := strings.CutPrefix(name, namePrefix)
	if !own || m.prefix == namePrefix {
		return name // without a copy
	}
	return m.prefix + rest
}

// family begins a metric. The kind is counter, gauge or histogram.
func (m *metricsText) family(name, kind, help string) {
	name = m.named(name)
	for _, part := range [...]string{"# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"} {
		m.b = append(m.b, part...)
	}
}

// sample adds a value. Labels are name, value, name, value, …
func (m *metricsText) sample(name string, value float64, labels ...string) {
	b := append(m.b, m.named(name)...)
	for i := 0; i < len(labels); i += 2 {
		b = append(append(append(b, pick[byte](i == 0, '{', ',')), labels[i]...), `="`...)
		b = append(append(b, labelEscaper.Replace(labels[i+1])...), '"')
	}
	if len(labels) > 0 {
		b = append(b, '}')
	}
	m.b = append(strconv.AppendFloat(append(b, ' '), value, 'g', -1, 64), '\n')
}

// roleMetrics are metrics of the requests to one role.
type roleMetrics struct{ *metricsText }

func (m roleMetrics) sample(name string, value float64, labels ...string) {
	m.metricsText.sample(name, value, append([]string{"role", m.role}, labels...)...)
}

// single adds a metric of one sample.
func (m *metricsText) single(name, kind, help string, value float64) {
	m.family(name, kind, help)
	m.sample(name, value)
}

// counts adds a metric with one sample for each value of a label.
func counts[N int | uint64](m *metricsText, name, kind, help, label string, values []string, counts []N) {
	m.family(name, kind, help)
	for i, n := range counts {
		m.sample(name, float64(n), label, values[i])
	}
}

// metricBounds are the bounds of buckets, in microseconds. A duration that is less than 6 % from a bound may count on its
// other side.
var metricBounds = []int64{500, 1e3, 5e3, 10e3, 50e3, 100e3, 500e3, 1e6, 5e6, 30e6, 300e6}

// histogram adds the samples of a histogram, whose durations are shown in a unit.
func (m *metricsText) histogram(name string, h *histogram, unit time.Duration, labels ...string) {
	shown := func(us int64) float64 { return float64(us) / float64(unit.Microseconds()) }
	var total uint64
	for i, n := range h.distribution(metricBounds) {
		total += n
		le := "+Inf"
		if i < len(metricBounds) {
			le = strconv.FormatFloat(shown(metricBounds[i]), 'g', -1, 64)
		}
		m.sample(name+"_bucket", float64(total), append(slices.Clone(labels), "le", le)...)
	}
	m.sample(name+"_sum", shown(h.sum), labels...)
	m.sample(name+"_count", float64(total), labels...)
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// metrics answers with the metrics of the service and of the surface's listener.
func (s *surface) metrics(w *responseWriter, _ *http.Request) (any, error) {
	t := s.scrape.get(w.arrived, s.metricsNow)
	return t, w.hold(len(t.plain))
}

// metricsNow returns the metrics, about size bytes.
func (s *surface) metricsNow(size int) *packedText {
	m := metricsText{b: make([]byte, 0, size+size/8), role: s.stats.role, prefix: s.svc.cfg.Metrics.Prefix}
	if m.role != "worker" || s.svc.cfg.Role == "worker" {
		s.svc.writeMetrics(&m)
	}
	if m.role == "worker" {
		s.svc.writeWorkerMetrics(&m)
	}
	s.stats.write(roleMetrics{&m})
	return newPackedText(metricsContentType, m.b, gzip.BestSpeed)
}

// writeWorkerMetrics writes what the worker role alone reports. With the prefix tasker, these are the names that
// dashboards for Tasker's workers expect.
func (s *service) writeWorkerMetrics(m *metricsText) {
	m.family("stepwell_worker_info", "gauge", "Always 1; the labels describe the worker.")
	m.sample("stepwell_worker_info", 1, "version", version, "worker_id", s.workerID, "worker_type", workerType)
	m.single("stepwell_worker_uptime_seconds", "gauge", "Seconds since the worker started.", float64(s.uptimeSeconds()))
	if s.engine == nil {
		return // steps run in other processes
	}
	f := s.workFigures()
	m.single("stepwell_worker_steps_executions_total", "counter", "Step attempts that ended.", float64(f.attempts[0]+f.attempts[1]))
	m.single("stepwell_worker_steps_failures_total", "counter", "Step attempts that failed.", float64(f.attempts[0]))
	m.family("stepwell_worker_step_execution_duration_milliseconds", "histogram",
		"How long attempts took in HTTP, exec and delayed handlers.")
	m.histogram("stepwell_worker_step_execution_duration_milliseconds", &f.durations, time.Millisecond)
}

func (s *service) writeMetrics(m *metricsText) {
	m.family("stepwell_build_info", "gauge", "Always 1; the label gives the version.")
	m.sample("stepwell_build_info", 1, "version", version)
	if c, ok := s.clock.(*realClock); ok {
		_, lead := c.read()
		m.single("stepwell_clock_lead_seconds", "gauge",
			"How far the service's time is ahead of the machine's, because that was set back since the start.", lead.Seconds())
	}
	m.single("stepwell_uptime_seconds", "gauge", "Seconds since the service started.",
		s.clock.now().sub(s.started).Seconds())
	if s.store != nil {
		f := s.workFigures()
		f.writeTasks(m)
		f.writeOutside(m)
		f.writeLetters(m)
		m.single("stepwell_stale_tasks", "gauge",
			"Stale tasks that the latest search found, including those it moved to error.", float64(s.staleness.found.Load()))
		writeJournalMetrics(m, s.store.status())
		writeStreamMetrics(m, s.store.eventLog().figures())
		events := s.publishedFigures()
		events.write(m)
	}
	s.quotas.write(m)
	m.single("stepwell_log_lines_lost_total", "counter",
		"Lines of the log that were dropped because standard error was stuck, or could not be written.",
		float64(s.quotas.lostLines.Load()))
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.single("stepwell_goroutines", "gauge", "Goroutines of the process.", float64(runtime.NumGoroutine()))
	m.single("stepwell_heap_bytes", "gauge", "Bytes of live and not yet collected heap.", float64(mem.HeapAlloc))
	writeProcessMetrics(m)
}

// processStart is when this process began.
var processStart = time.Now()

// writeProcessMetrics writes what the system tells about this process, under the names and with the types of Prometheus'
// clients.
func writeProcessMetrics(m *metricsText) {
	p := ownProcess()
	for _, f := range []struct {
		name, kind, help string
		value            float64
	}{
		{"cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", p.cpu},
		{"open_fds", "gauge", "Number of open file descriptors.", p.files},
		{"max_fds", "gauge", "Maximum number of open file descriptors.", p.mostFiles},
		{"resident_memory_bytes", "gauge", "Resident memory size in bytes.", p.resident},
		{"start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", float64(processStart.UnixMicro()) / 1e6},
	} {
		if f.value >= 0 { // what the system tells
			m.single("process_"+f.name, f.kind, f.help, f.value)
		}
	}
}

func (q *quotas) write(m *metricsText) {
	m.family("stepwell_limit", "gauge", "Capacity that callers share, by limit.")
	for _, q := range q.named() {
		m.sample("stepwell_limit", float64(q.most), "limit", q.name)
	}
	m.family("stepwell_limit_used", "gauge", "Capacity that callers use now, by limit.")
	for _, q := range q.named() {
		m.sample("stepwell_limit_used", float64(q.used.Load()), "limit", q.name)
	}
	m.family("stepwell_limit_refusals_total", "counter", "Requests and connections refused because of a limit.")
	for _, q := range q.named() {
		m.sample("stepwell_limit_refusals_total", float64(q.refused.Load()), "limit", q.name)
	}
}

// workFigures are the figures of store and engine at one moment.
type workFigures struct {
	storeLoad
	counters
	work engineFigures

	// Outside actors.
	claims, expired             uint64
	claimable, leases, claimers int

	misfits [2]uint64 // contexts and results
}

// engineFigures are those of steps that are ready or run.
type engineFigures struct {
	queued, running int
	absent          []absence
}

func (s *service) workFigures() (f workFigures) {
	registered := s.templates.registry()
	s.store.locked(func() {
		e, w := s.engine, &s.engine.outside
		e.stats.noteTemplates(registered, s.store.table().blockedTasks())
		// Everything is copied at one moment, so that figures which belong together fit; it is written without the
		// lock.
		f = workFigures{s.store.loadLocked(), e.stats.copied(), engineFigures{e.queues.queued(), len(e.work.running), e.absent.told()},
			w.claims, e.leases.expired, len(w.waiting.steps), len(e.leases.held.items), len(w.claimers),
			[2]uint64{e.schemas.contexts.Load(), e.schemas.results.Load()}}
	})
	return f
}

func (f *workFigures) writeTasks(m *metricsText) {
	counts(m, "stepwell_tasks", "gauge", "Tasks kept, by state.", "state", taskStateNames[:], f.tasks[:])
	counts(m, "stepwell_steps", "gauge", "Steps of the tasks kept, by state.", "state", stepStateNames[:], f.steps[:])
	m.single("stepwell_tasks_dropped_total", "counter",
		"Finished tasks dropped to keep within the limits, since the store was created.", float64(f.dropped))
	m.single("stepwell_tasks_dropped_early_total", "counter",
		"Of these, tasks dropped since the start because tasks took nearly all the memory for them.", float64(f.early))
	counts(m, "stepwell_task_transitions_total", "counter", "Transitions of tasks into each state.",
		"to", taskStateNames[:], f.taskMoves[:])
	counts(m, "stepwell_step_transitions_total", "counter", "Transitions of steps into each state.",
		"to", stepStateNames[:], f.stepMoves[:])
	f.writeTemplates(m)
	counts(m, "stepwell_attempts_total", "counter", "Step attempts that ended, by outcome.",
		"outcome", []string{"failure", "success"}, f.attempts[:])
	m.single("stepwell_late_results_total", "counter", "Handler results that came too late to count.", float64(f.late))
	counts(m, "stepwell_checkpoints_total", "counter", "Checkpoints of steps, and those refused because the step had made the most.",
		"outcome", []string{"taken", "refused"}, f.checkpoints[:])
	counts(m, "stepwell_schema_misfits_total", "counter", "Contexts and results that did not fit their schemas.", "of",
		[]string{"context", "result"}, f.misfits[:])
	m.family("stepwell_handler_duration_seconds", "histogram", "How long attempts took in HTTP, exec and delayed handlers.")
	m.histogram("stepwell_handler_duration_seconds", &f.durations, time.Second)
	m.single("stepwell_queue_depth", "gauge", "Steps that are ready and wait for a slot.", float64(f.work.queued))
	m.family("stepwell_handler_waiting_steps", "gauge", "Steps that wait for an HTTP handler that does not listen, by its address.")
	for _, a := range f.work.absent {
		m.sample("stepwell_handler_waiting_steps", float64(a.steps), "address", a.address)
	}
	m.single("stepwell_handlers_running", "gauge", "Attempts in flight in this process.", float64(f.work.running))
	m.single("stepwell_waiting_requests", "gauge", "Requests that wait for a task.", float64(f.waiting))
}

func (f *workFigures) writeTemplates(m *metricsText) {
	m.family("stepwell_template_tasks_total", "counter", fmt.Sprintf("Transitions of tasks into pending and into states in "+
		"which they stay, by template; after %d templates, the others together as *.", maxCountedTemplates))
	names := slices.SortedFunc(maps.Keys(f.templates), func(a, b templateName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	for _, name := range names {
		for state, n := range f.templates[name].moves {
			if countedMoves.has(taskState(state)) {
				m.sample("stepwell_template_tasks_total", float64(n),
					"namespace", name.namespace, "template", name.name, "to", taskState(state).String())
			}
		}
	}
	m.family("stepwell_tasks_blocked", "gauge", "Tasks blocked by failures now, by template like stepwell_template_tasks_total.")
	for _, name := range names {
		m.sample("stepwell_tasks_blocked", float64(f.templates[name].blocked), "namespace", name.namespace, "template", name.name)
	}
}

func (f *workFigures) writeOutside(m *metricsText) {
	m.single("stepwell_claims_total", "counter", "Steps claimed by outside actors.", float64(f.claims))
	m.single("stepwell_leases_expired_total", "counter", "Leases of claimed steps that expired.", float64(f.expired))
	m.single("stepwell_claimable_steps", "gauge", "Enqueued steps that wait for an outside actor.", float64(f.claimable))
	m.single("stepwell_leases", "gauge", "Steps that outside actors have claimed.", float64(f.leases))
	m.single("stepwell_claimers_waiting", "gauge", "Outside actors that wait for a step to claim.", float64(f.claimers))
}

func (f *workFigures) writeLetters(m *metricsText) {
	m.family("stepwell_dlq_entries", "gauge", "Entries of the dead letter queue, by reason and resolution status.")
	for reason, ofReason := range f.letters {
		for status, n := range ofReason {
			m.sample("stepwell_dlq_entries", float64(n),
				"reason", dlqReasonWords[reason], "status", dlqStatusWords[status])
		}
	}
}

func writeJournalMetrics(m *metricsText, st journalStatus) {
	m.single("stepwell_journal_bytes", "gauge", "Size of the records after the compacted part of the file.", float64(st.journalBytes))
	m.single("stepwell_snapshot_bytes", "gauge", "Size of the compacted part of the store's file.", float64(st.snapshotBytes))
	m.single("stepwell_journal_records_total", "counter", "Records appended to the journal.", float64(st.records))
	m.single("stepwell_journal_fsyncs_total", "counter", "Times the journal was made durable.", float64(st.syncs))
	m.single("stepwell_journal_writable", "gauge", "1 while changes can be recorded.", pick(st.writable, 1.0, 0))
}

func writeStreamMetrics(m *metricsText, f streamFigures) {
	m.single("stepwell_event_streams", "gauge", "Event streams open now.", float64(f.open))
	m.single("stepwell_events_delivered_total", "counter", "Transitions written to event streams.", float64(f.delivered))
	m.single("stepwell_event_streams_cut_total", "counter", "Event streams ended because their reader was too slow.",
		float64(f.cut))
}

// write writes what became of domain events.
func (f *publishedFigures) write(m *metricsText) {
	counts(m, "stepwell_domain_events_total", "counter", "Domain events published, by mode of delivery.", "mode",
		deliveryModeNames[:], f.published[:])
	m.single("stepwell_domain_events_withheld_total", "counter",
		"Domain events not published because their payload is not as their schema says.", float64(f.withheld))
	m.family("stepwell_event_deliveries_total", "counter", "Attempts to send domain events to subscribers, and events given up.")
	for _, s := range f.subscribers {
		m.sample("stepwell_event_deliveries_total", float64(s.delivered), "subscriber", s.name, "result", "delivered")
		m.sample("stepwell_event_deliveries_total", float64(s.failed), "subscriber", s.name, "result", "failed")
		m.sample("stepwell_event_deliveries_total", float64(s.dead), "subscriber", s.name, "result", "dead")
	}
	m.family("stepwell_event_deliveries_waiting", "gauge", "Domain events that subscribers have not got yet.")
	for _, s := range f.subscribers {
		m.sample("stepwell_event_deliveries_waiting", float64(s.waiting), "subscriber", s.name)
	}
	m.family("stepwell_event_deliveries_dead", "gauge", "Domain events that were given up and are kept.")
	for _, s := range f.subscribers {
		m.sample("stepwell_event_deliveries_dead", float64(s.kept), "subscriber", s.name)
	}
}

// httpStats counts the requests to one listener by route pattern.
type httpStats struct {
	mu       sync.Mutex
	requests map[requestKey]uint64 // guarded by mu
	times    map[string]*histogram // by route pattern; guarded by mu

	role string // of the listener
	auth *authMetrics
}

type requestKey struct {
	route  string // a pattern of the route table, or "unmatched"
	status int
}

func newHTTPStats(role string, auth *authenticator) *httpStats {
	return &httpStats{requests: map[requestKey]uint64{}, times: map[string]*histogram{}, role: role, auth: auth.metrics}
}

func (h *httpStats) observe(route string, status int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests[requestKey{route, status}]++
	t := h.times[route]
	if t == nil {
		t = new(histogram)
		h.times[route] = t
	}
	t.took(took)
}

// writeAuth writes what became of credentials.
func (m roleMetrics) writeAuth(a *authMetrics) {
	m.family("stepwell_auth_failures_total", "counter", "Requests refused by authentication, by reason.")
	for i, reason := range authReasons {
		m.sample("stepwell_auth_failures_total", float64(a.failures[i].Load()), "reason", reason)
	}
	m.family("stepwell_auth_requests_total", "counter", "Requests to protected routes, by method and result.")
	for i, method := range authMethods {
		for j, result := range authResults {
			m.sample("stepwell_auth_requests_total", float64(a.requests[i][j].Load()), "method", method, "result", result)
		}
	}
	m.family("stepwell_permission_denials_total", "counter", "Requests refused for lack of a permission, by permission.")
	for p := range permissionCount {
		m.sample("stepwell_permission_denials_total", float64(a.denials[p].Load()), "permission", p.String())
	}
	const verification = "stepwell_auth_jwt_verification_duration_seconds"
	m.family(verification, "histogram", "Time to verify a token that was not in the cache.")
	took := a.verified()
	m.histogram(verification, &took, time.Second, "role", m.role)
}

func (h *httpStats) write(m roleMetrics) {
	m.writeAuth(h.auth)
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(h.requests), func(a, b requestKey) int {
		return cmp.Or(cmp.Compare(a.route, b.route), cmp.Compare(a.status, b.status))
	})
	internal := uint64(0)
	m.family("stepwell_http_requests_total", "counter", "Requests answered, by route and status.")
	for _, k := range keys {
		if k.status == http.StatusInternalServerError {
			internal += h.requests[k]
		}
		m.sample("stepwell_http_requests_total", float64(h.requests[k]), "route", k.route, "status", strconv.Itoa(k.status))
	}
	m.family("stepwell_internal_errors_total", "counter", "Requests answered with an internal error (status 500).")
	m.sample("stepwell_internal_errors_total", float64(internal))
	m.family("stepwell_http_request_duration_seconds", "histogram", "Time to answer, by route.")
	for _, route := range slices.Sorted(maps.Keys(h.times)) {
		m.histogram("stepwell_http_request_duration_seconds", h.times[route], time.Second, "role", m.role, "route", route)
	}
}

// The health routes of a role.

// roleHealth answers the health routes of a role.
type roleHealth struct {
	role     string
	clock    clock
	workerID string // "" on the orchestration role
	checker  *health
	complete func(v *readyView) // adds what only this role reports
}

func (h *roleHealth) alive(status string) aliveView {
	return aliveView{status, zonedTime(h.clock.now()), h.workerID}
}

// aliveAs returns a handler that answers with a status, without a check.
func (h *roleHealth) aliveAs(status string) handlerFunc {
	return func(*responseWriter, *http.Request) (any, error) { return h.alive(status), nil }
}

// healthReady answers 200 if every check is healthy, else 503.
func (h *roleHealth) healthReady(w *responseWriter, _ *http.Request) (any, error) {
	v, healthy := h.view(false, "ready", "not_ready")
	return checkedReply(w, healthy, v), nil
}

// healthDetailed answers 200 whatever the checks found.
func (h *roleHealth) healthDetailed(*responseWriter, *http.Request) (any, error) {
	v, _ := h.view(true, healthyWord, degradedWord)
	return v, nil
}

// view runs the checks. The answer's status is good if every check is healthy, else bad.
func (h *roleHealth) view(detailed bool, good, bad string) (v readyView, healthy bool) {
	checks := h.checker.checks(h.role, detailed)
	v, healthy = readyView{aliveView: h.alive(good), Checks: checks}, true
	for _, c := range v.Checks {
		if c.Status != healthyWord {
			v.Status, healthy = bad, false
		}
	}
	h.complete(&v)
	return v, healthy
}

// checkedReply answers 200 if every check is healthy, else 503 with the time after which to ask again.
func checkedReply(w *responseWriter, healthy bool, v any) reply {
	if healthy {
		return reply{http.StatusOK, v}
	}
	w.Header().Set("Retry-After", "1")
	return reply{http.StatusServiceUnavailable, v}
}
