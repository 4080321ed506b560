package main

// A strict reader of /metrics: it rejects what a scraper would reject, and label
// values that would make the number of series grow without bound.

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"testing"
	"time"
)

// metricFamily is one metric of a scrape.
type metricFamily struct {
	kind    string
	help    bool
	samples map[string]float64 // by name and labels, as written
}

// metricSample is a line of a scrape.
type metricSample struct {
	name   string
	labels [][2]string
	value  float64
}

var (
	metricName   = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	metricLine   = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	metricLabel  = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)`)
	metricKinds  = []string{"counter", "gauge", "histogram", "summary"}
	metricSuffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// metricsReader reads a scrape and collects its errors.
type metricsReader struct {
	families map[string]*metricFamily
	samples  []metricSample
	current  string // the family whose lines are read
	problems []string
}

func (r *metricsReader) wrong(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// readMetrics reads a scrape.
func readMetrics(text string) *metricsReader {
	r := &metricsReader{families: map[string]*metricFamily{}}
	if !strings.HasSuffix(text, "\n") {
		r.wrong("the last line does not end")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "# HELP "):
			r.help(strings.TrimPrefix(line, "# HELP "))
		case strings.HasPrefix(line, "# TYPE "):
			r.kind(strings.TrimPrefix(line, "# TYPE "))
		default:
			r.sample(line)
		}
	}
	r.checkFamilies()
	return r
}

// help begins a family.
func (r *metricsReader) help(rest string) {
	name, text, _ := strings.Cut(rest, " ")
	switch {
	case !metricName.MatchString(name):
		r.wrong("HELP of %q: that is no name", name)
	case r.families[name] != nil:
		r.wrong("HELP of %s is there twice", name)
	case strings.TrimSpace(text) == "":
		r.wrong("HELP of %s is empty", name)
	}
	r.current = name
	r.families[name] = &metricFamily{help: true, samples: map[string]float64{}}
}

func (r *metricsReader) kind(rest string) {
	name, kind, _ := strings.Cut(rest, " ")
	f := r.families[name]
	switch {
	case f == nil || r.current != name:
		r.wrong("TYPE of %s does not follow its HELP", name)
		return
	case f.kind != "" || len(f.samples) > 0:
		r.wrong("TYPE of %s is there twice, or after a sample", name)
	case !slices.Contains(metricKinds, kind):
		r.wrong("TYPE of %s is %q", name, kind)
	case kind == "counter" && !strings.HasSuffix(name, "_total"):
		r.wrong("the counter %s does not end in _total", name)
	}
	f.kind = kind
}

func (r *metricsReader) sample(line string) {
	m := metricLine.FindStringSubmatch(line)
	if m == nil {
		r.wrong("%q is no sample", line)
		return
	}
	s := metricSample{name: m[1]}
	family := s.name
	f := r.families[metricSuffix.ReplaceAllString(s.name, "")]
	if f != nil && (f.kind == "histogram" || f.kind == "summary") {
		family = metricSuffix.ReplaceAllString(s.name, "")
	}
	f = r.families[family]
	if f == nil || family != r.current || f.kind == "" {
		r.wrong("%s is not with its HELP and TYPE", s.name)
		return
	}
	s.labels = r.labels(s.name, m[2])
	key := s.name + fmt.Sprint(s.labels)
	if _, twice := f.samples[key]; twice {
		r.wrong("%s is there twice", line)
	}
	var err error
	if s.value, err = strconv.ParseFloat(m[3], 64); err != nil || s.value < 0 && f.kind != "gauge" {
		r.wrong("%q has no value that a %s may have", line, f.kind)
	}
	f.samples[key] = s.value
	r.samples = append(r.samples, s)
}

func (r *metricsReader) labels(name, text string) (labels [][2]string) {
	seen := map[string]bool{}
	for text != "" {
		m := metricLabel.FindStringSubmatch(text)
		if m == nil {
			r.wrong("%s: %q are no labels", name, text)
			return labels
		}
		if seen[m[1]] {
			r.wrong("%s: label %s is there twice", name, m[1])
		}
		seen[m[1]] = true
		labels = append(labels, [2]string{m[1], m[2]})
		text = text[len(m[0]):]
	}
	return labels
}

// checkFamilies checks the rules for a metric as a whole.
func (r *metricsReader) checkFamilies() {
	for _, name := range slices.Sorted(maps.Keys(r.families)) {
		f := r.families[name]
		if f.kind == "" {
			r.wrong("%s has no TYPE", name)
		}
		if f.kind == "histogram" {
			r.checkHistogram(name)
		}
	}
}

// checkHistogram checks that the buckets of each series ascend and add up.
func (r *metricsReader) checkHistogram(name string) {
	type series struct {
		bound, total float64
		ended        bool
		counts, sums int
	}
	all := map[string]*series{}
	for _, s := range r.samples {
		if metricSuffix.ReplaceAllString(s.name, "") != name {
			continue
		}
		bound, others := 0.0, [][2]string{}
		for _, l := range s.labels {
			if l[0] == "le" {
				bound, _ = strconv.ParseFloat(l[1], 64)
			} else {
				others = append(others, l)
			}
		}
		key := fmt.Sprint(others)
		if all[key] == nil {
			all[key] = &series{bound: -1}
		}
		x := all[key]
		switch strings.TrimPrefix(s.name, name) {
		case "_bucket":
			if bound <= x.bound || s.value < x.total || s.value != float64(uint64(s.value)) {
				r.wrong("%s%s: bucket %v of %v after bucket %v of %v", name, key, bound, s.value, x.bound, x.total)
			}
			x.bound, x.total, x.ended = bound, s.value, slices.Contains(s.labels, [2]string{"le", "+Inf"})
		case "_count":
			x.counts++
			if s.value != x.total {
				r.wrong("%s%s: %v in all, %v in the buckets", name, key, s.value, x.total)
			}
		case "_sum":
			x.sums++
		default:
			r.wrong("%s is a sample of the histogram %s", s.name, name)
		}
	}
	for key, x := range all {
		if !x.ended || x.counts != 1 || x.sums != 1 {
			r.wrong("%s%s: it ends with +Inf: %v; counts: %d, sums: %d", name, key, x.ended, x.counts, x.sums)
		}
	}
}

// TestMetricsText scrapes both roles after traffic of every kind, some of it meant
// to break out of labels or to multiply them.
func TestMetricsText(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	w := s.with(newWorkerAPI(s.svc, nil))
	for _, name := range []string{"diamond", "fails", "manual"} {
		s.create(`{"namespace":"t","name":"` + name + `"}`)
	}
	for i, server := range []*testServer{s, w} {
		for _, path := range []string{
			"/", "/health", "/v1/templates/t/diamond/1.0.0", "/api/v1/templates", "/v1/templates/a%22%7D%0Ab/c/d",
			"/nowhere/1", "/nowhere/2", "/v1/tasks/x\"y", "/metrics", "/%5c%22", fmt.Sprint("/n/", i),
		} {
			server.do("GET", path, "")
			server.do("DELETE", path, "")
			server.do("BREW", path, "")
		}
	}
	checkMetrics(t, s, patternsOf(newOrchestrationAPI(s.svc, nil).routes()))
	checkMetrics(t, w, patternsOf(newWorkerAPI(s.svc, nil).routes()))
}

// TestScrapingBothRoles checks that whoever scrapes both roles of a process, or its two pages for
// one role, gets nothing twice that would then be added up.
func TestScrapingBothRoles(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	w := s.with(newWorkerAPI(s.svc, nil))
	s.create(`{"namespace":"t","name":"diamond"}`)
	w.do("GET", "/health", "")
	seen := map[string]bool{}
	for _, server := range []*testServer{s, w} {
		r := readMetrics(string(server.do("GET", "/metrics", "").body))
		for _, sample := range r.samples {
			key := fmt.Sprint(sample.name, sample.labels)
			if seen[key] {
				t.Errorf("got %s from both roles", key)
			}
			seen[key] = true
		}
	}
	if !seen["stepwell_tasks[[state complete]]"] || !seen["stepwell_http_requests_total[[role worker] [route GET /health] [status 200]]"] {
		t.Errorf("got %v; want figures of both", slices.Sorted(maps.Keys(seen)))
	}
}

// templateSeries returns the values of the series by template, each as "template to", or "template blocked".
func templateSeries(text string) map[string]float64 {
	values := map[string]float64{}
	for _, sample := range readMetrics(text).samples {
		switch sample.name {
		case "stepwell_template_tasks_total":
			values[sample.labels[1][1]+" "+sample.labels[2][1]] = sample.value
		case "stepwell_tasks_blocked":
			values[sample.labels[1][1]+" blocked"] = sample.value
		}
	}
	return values
}

// wantSeries fails the test unless series by template have these values. What names a template alone means that all
// of its series are 0.
func wantSeries(t *testing.T, when string, s *testServer, want map[string]float64) {
	t.Helper()
	got := templateSeries(string(s.do("GET", "/metrics", "").want(200).body))
	for series, value := range want {
		names := []string{series}
		if !strings.Contains(series, " ") {
			names = strings.Fields(strings.ReplaceAll("@blocked @pending @complete @error @cancelled @resolved_manually "+
				"@blocked_by_failures", "@", series+"@"))
		}
		for _, name := range names {
			name = strings.Replace(name, "@", " ", 1)
			if v, ok := got[name]; !ok || v != value {
				t.Errorf("%s: got %v, %v as %s; want %v", when, v, ok, name, value)
			}
		}
	}
}

// failingTemplate is a template whose tasks are blocked at once.
func failingTemplate(name string) string {
	return testTemplate(name, stepSpec{name: "a", callable: "builtin:fail", retry: `{"max_attempts":1}`})
}

// TestSeriesByTemplate checks that the series of each template exist before its first task, that blocked tasks are
// counted, and what becomes of both in fixture mode.
func TestSeriesByTemplate(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: []string{failingTemplate("fail"), failingTemplate("other")}})
	wantSeries(t, "at the start", s.testServer, map[string]float64{"fail": 0, "other": 0, "diamond": 0})
	s.do("POST", "/_stepwell/templates", failingTemplate("added")).want(201)
	wantSeries(t, "added", s.testServer, map[string]float64{"fail": 0, "other": 0, "added": 0})
	var first string
	for range 3 {
		first = s.create(`{"namespace":"t","name":"fail"}`)
	}
	s.create(`{"namespace":"t","name":"added"}`)
	created := map[string]float64{"fail blocked": 3, "fail blocked_by_failures": 3, "fail pending": 3,
		"added blocked": 1, "other": 0}
	wantSeries(t, "blocked", s.testServer, created)
	s.do("DELETE", "/v1/tasks/"+first, "").want(200)
	wantSeries(t, "cancelled", s.testServer, map[string]float64{"fail blocked": 2, "fail cancelled": 1, "fail blocked_by_failures": 3})
	document := s.state()
	s.do("POST", "/_stepwell/reset", "").want(204)
	wantSeries(t, "reset", s.testServer, map[string]float64{"fail": 0, "other": 0})
	if got := templateSeries(string(s.do("GET", "/metrics", "").body)); got["added blocked"] != 0 {
		t.Errorf("after a reset: got %v", got)
	}
	s.putState(document).want(204)
	wantSeries(t, "restored", s.testServer, map[string]float64{"fail blocked": 2, "added blocked": 1, "other": 0,
		"fail blocked_by_failures": 0, "fail cancelled": 0})
}

// TestBlockedTasksAfterRestart checks the gauge of blocked tasks when finished tasks were dropped, after restarts
// that read the journal and a snapshot, and when the template is gone.
func TestBlockedTasksAfterRestart(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), extra: []string{failingTemplate("fail"), testTemplate("ok", stepSpec{name: "a", callable: "noop"})},
		config: func(c *Config) { c.Store.RetainFinishedCount = 1 }}
	want := map[string]float64{"fail blocked": 2, "ok blocked": 0}
	for _, when := range []string{"journal", "snapshot", "gone"} {
		s := openTestService(t, o)
		server := (&testServer{t: t, svc: s}).with(newOrchestrationAPI(s, nil))
		switch when {
		case "journal":
			for _, name := range []string{"fail", "ok", "ok", "fail", "ok", "ok"} {
				mustCreate(t, s, name)
			}
			wantSeries(t, "before a restart", server, want)
		case "snapshot":
			wantSeries(t, when, server, want)
			noError(t, s.store.compact())
		case "gone":
			wantSeries(t, when, server, map[string]float64{"fail blocked": 2})
		}
		closeTestService(t, s)
		if when == "snapshot" {
			o.extra = nil
		}
	}
}

// TestTemplateCountersAreBounded creates tasks of more templates than are counted apart, whose series are there before.
func TestTemplateCountersAreBounded(t *testing.T) {
	var extra []string
	for n := range maxCountedTemplates + 30 {
		extra = append(extra, testTemplate(fmt.Sprint("t", n), stepSpec{name: "a", callable: "noop"}))
	}
	s := newTestServer(t, serviceTest{extra: extra})
	before := templateSeries(string(s.do("GET", "/metrics", "").body))
	for n := range maxCountedTemplates + 30 {
		mustCreate(t, s.svc, fmt.Sprint("t", n))
	}
	wantSeries(t, "more templates than series", s, map[string]float64{"* blocked": 0})
	after := templateSeries(string(s.do("GET", "/metrics", "").body))
	if len(before) != 7*(maxCountedTemplates+1) || !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
		t.Errorf("got %d series before the first task, %d after; want 7 each for %d templates", len(before), len(after),
			maxCountedTemplates+1)
	}
	names, total := map[string]bool{}, 0.0
	for _, sample := range readMetrics(string(s.do("GET", "/metrics", "").body)).samples {
		if sample.name == "stepwell_template_tasks_total" && sample.labels[2] == [2]string{"to", "pending"} {
			names[sample.labels[1][1]] = true
			total += sample.value
		}
	}
	if len(names) != maxCountedTemplates+1 || !names["*"] || total != maxCountedTemplates+30 {
		t.Errorf("got %d names, %v tasks in all; want %d with *, and every task", len(names), total, maxCountedTemplates+1)
	}
}

// TestWorkerMetrics checks what the worker role reports of steps, by the names that dashboards for Tasker's workers
// expect, and that it repeats no series of the orchestration role.
func TestWorkerMetrics(t *testing.T) {
	s := newTestServer(t, serviceTest{extra: []string{
		testTemplate("ok", stepSpec{name: "a", callable: "builtin:noop"}), failingTemplate("fail"),
	}, config: func(c *Config) { c.Metrics.Prefix = "tasker" }})
	for _, name := range []string{"ok", "ok", "fail"} {
		s.create(`{"namespace":"t","name":"` + name + `"}`)
	}
	s.svc.store.locked(func() { s.svc.engine.stats.handlerDone(&ending{took: 20 * time.Millisecond}) })
	r := readMetrics(string(s.with(newWorkerAPI(s.svc, nil)).do("GET", "/metrics", "").want(200).body))
	for _, p := range r.problems {
		t.Error(p)
	}
	const duration = "tasker_worker_step_execution_duration_milliseconds"
	for series, want := range map[string]float64{
		"tasker_worker_steps_executions_total[]": 3, "tasker_worker_steps_failures_total[]": 1,
		duration + "_bucket[[le 10]]": 0, duration + "_bucket[[le 50]]": 1, duration + "_sum[]": 20, duration + "_count[]": 1,
		"tasker_worker_info[[version " + version + "] [worker_id " + s.svc.workerID + "] [worker_type " + workerType + "]]": 1,
	} {
		name, _, _ := strings.Cut(series, "[")
		f := r.families[name]
		if f == nil {
			f = r.families[metricSuffix.ReplaceAllString(name, "")]
		}
		if f == nil {
			t.Errorf("got no %s", series)
		} else if got, ok := f.samples[series]; got != want || !ok {
			t.Errorf("%s: got %v (%v); want %v", series, got, ok, want)
		}
	}
	both := readMetrics(string(s.do("GET", "/metrics", "").want(200).body))
	for _, f := range both.families {
		for series := range f.samples {
			if name, _, _ := strings.Cut(series, "["); r.families[name] != nil && r.families[name].samples[series] != 0 {
				t.Errorf("both roles report %s", series)
			}
		}
	}
}

// TestPrometheusExamples checks that the alert rules and the dashboard use only metrics that there
// are, and that each alert has a test. Where Prometheus' own tool is installed, it runs these tests,
// in which each alert fires.
func TestPrometheusExamples(t *testing.T) {
	slow(t)
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	s.create(`{"namespace":"t","name":"diamond"}`)
	scrape := readMetrics(string(s.do("GET", "/metrics", "").body))
	for _, file := range []string{"alerts.yml", "dashboard.json"} {
		text := string(readFile(t, "examples/prometheus/"+file))
		used := regexp.MustCompile(`\b(stepwell|process|go)_[a-z_]+`).FindAllString(text, -1)
		if len(used) < 8 {
			t.Errorf("%s: got %d metrics; want many", file, len(used))
		}
		for _, name := range used {
			if scrape.families[name] == nil && scrape.families[metricSuffix.ReplaceAllString(name, "")] == nil {
				t.Errorf("%s: got %s; want a metric", file, name)
			}
		}
		if file == "dashboard.json" && !json.Valid([]byte(text)) {
			t.Errorf("%s is not valid JSON", file)
		}
	}
	fires := string(readFile(t, "examples/prometheus/alerts_test.yml"))
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(readFile(t, "examples/prometheus/alerts.yml")), -1)
	for _, alert := range alerts {
		if !strings.Contains(fires, "alertname: "+alert[1]+"\n        exp_alerts:") {
			t.Errorf("alerts_test.yml has no test in which %s fires", alert[1])
		}
	}
	tool := wire.Need(t, "promtool")
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.Command(tool, args...)
		cmd.Dir = "examples/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// TestProcessMetrics compares the figures of the process with what Prometheus' clients export. A worker reports them if it is alone in its process.
func TestProcessMetrics(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		wire.Skip(t, "other systems tell less about a process")
	}
	want := map[string]string{
		"counter": "process_cpu_seconds_total",
		"gauge":   "process_max_fds process_open_fds process_resident_memory_bytes process_start_time_seconds",
	}
	s := newTestServer(t, serviceTest{})
	alone := openTestService(t, serviceTest{config: func(c *Config) { c.Role = "worker" }})
	for at, server := range map[string]*testServer{
		"/metrics": s, "/metrics of the worker": s.with(newWorkerAPI(alone, nil)), "/stepwell/metrics": s,
	} {
		path, _, _ := strings.Cut(at, " ")
		r := readMetrics(string(server.do("GET", path, "").want(200).body))
		for kind, names := range want {
			for name := range strings.FieldsSeq(names) {
				f := r.families[name]
				if f == nil || f.kind != kind || len(f.samples) == 0 {
					t.Errorf("%s: got %s as %+v; want a %s", at, name, f, kind)
				}
			}
		}
		is := func(name string, from, to float64) {
			t.Helper()
			if got := r.families[name].samples[name+"[]"]; got < from || got > to {
				t.Errorf("%s: %s is %v; want %v to %v", at, name, got, from, to)
			}
		}
		now := float64(time.Now().Unix())
		is("process_start_time_seconds", now-3600, now+1)
		is("process_resident_memory_bytes", 1<<20, 1<<40)
		is("process_open_fds", 3, r.families["process_max_fds"].samples["process_max_fds[]"])
	}
}

func patternsOf(rows []route) (patterns []string) {
	for _, row := range rows {
		patterns = append(patterns, row.patterns()...)
	}
	return patterns
}

// checkMetrics reads a scrape and checks that labels have values from known sets.
func checkMetrics(t *testing.T, s *testServer, patterns []string) {
	t.Helper()
	a := s.do("GET", "/metrics", "").want(200)
	if got := a.header.Get("Content-Type"); got != metricsContentType {
		t.Errorf("got Content-Type %q; want %q", got, metricsContentType)
	}
	r := readMetrics(string(a.body))
	for _, p := range r.problems {
		t.Error(p)
	}
	if len(r.families) < 5 || len(r.samples) < 50 {
		t.Errorf("got %d families and %d samples; want many", len(r.families), len(r.samples))
	}
	allowed := map[string][]string{
		"route": append(patterns, "unmatched"), "version": {version, runtime.Version()}, "outcome": {"success", "failure", "taken", "refused"},
		"reason": append(wordsOf(authReasons[:]), dlqReasonWords[:]...), "status": dlqStatusWords[:],
		"method": wordsOf(authMethods[:]), "result": wordsOf(authResults[:]), "permission": permissionNames[:],
		"mode": deliveryModeNames[:], "task": {"kept", "dropped"}, "of": {"context", "result"}, "role": {"orchestration", "worker"},
		"worker_id": {s.svc.workerID}, "worker_type": {workerType},
		"limit": {"connections", "requests", "request_bytes", "waiting_requests", "event_streams", "actions", "stored_bytes"},
		"state": append(taskStateNames[:], stepStateNames[:]...), "to": append(taskStateNames[:], stepStateNames[:]...),
	}
	for _, tpl := range s.svc.templates.registry().sorted {
		allowed["namespace"], allowed["template"] = append(allowed["namespace"], tpl.namespace), append(allowed["template"], tpl.name)
	}
	number := regexp.MustCompile(`^([1-5][0-9][0-9]|[0-9.e+-]+|\+Inf)$`)
	for _, sample := range r.samples {
		for _, l := range sample.labels {
			words := allowed[l[0]]
			if strings.HasPrefix(sample.name, "stepwell_http_") && l[0] == "status" {
				words = nil // a number
			}
			if words == nil && !number.MatchString(l[1]) || words != nil && !slices.Contains(words, l[1]) {
				t.Errorf("%s: got label %s=%q; want one of a known set", sample.name, l[0], l[1])
			}
		}
	}
}

// wordsOf converts words of any type to strings.
func wordsOf[S ~string](words []S) []string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return texts
}

func TestMetricsReaderFindsProblems(t *testing.T) {
	const head, histogram = "# HELP a_total A.\n# TYPE a_total counter\n", "# HELP h H.\n# TYPE h histogram\n"
	for _, tt := range []struct{ text, want string }{
		{head + "a_total 1\na_total{x=\"1\",y=\"\\\"\\\\\\n\"} 2\n", ""},
		{histogram + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n", ""},
		{head + "a_total 1", "the last line does not end"},
		{"a_total 1\n", "a_total is not with its HELP and TYPE"},
		{"# HELP a_total A.\na_total 1\n", "a_total is not with its HELP and TYPE"},
		{"# TYPE a_total counter\n", "TYPE of a_total does not follow its HELP"},
		{head + head, "HELP of a_total is there twice"},
		{"# HELP a_total \n# TYPE a_total counter\n", "HELP of a_total is empty"},
		{"# HELP a A.\n# TYPE a counter\n", "the counter a does not end in _total"},
		{"# HELP a A.\n# TYPE a sum\n", `TYPE of a is "sum"`},
		{head + "# HELP b B.\n# TYPE b gauge\na_total 1\n", "a_total is not with its HELP and TYPE"},
		{head + "a_total 1\na_total 1\n", "a_total 1 is there twice"},
		{head + "a_total -1\n", "has no value that a counter may have"},
		{head + "a_total one\n", "has no value"},
		{head + "a_total{x=1} 1\n", "are no labels"},
		{head + "a_total{x=\"a\\q\"} 1\n", "are no labels"},
		{head + "a_total{x=\"1\",x=\"2\"} 1\n", "label x is there twice"},
		{head + "\n", `"" is no sample`},
		{histogram + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 3\nh_count 1\n", "bucket +Inf of 1 after bucket 1 of 2"},
		{histogram + "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 3\nh_count 1\n", "after bucket 2"},
		{histogram + "h_bucket{le=\"1\"} 1\nh_sum 3\nh_count 1\n", "ends with +Inf: false"},
		{histogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 3\nh_count 2\n", "2 in all, 1 in the buckets"},
		{histogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 3\n", "counts: 0"},
		{histogram + "h 1\n", "h is a sample of the histogram h"},
	} {
		got := strings.Join(readMetrics(tt.text).problems, "; ")
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%q: got %q; want %q", tt.text, got, tt.want)
		}
	}
}

// TestMetricsPrefix checks that all names begin with metrics.prefix but those that all programs have, and that the rest
// stays as it is.
func TestMetricsPrefix(t *testing.T) {
	names := func(prefix string) string {
		s := newTestServer(t, serviceTest{config: func(c *Config) { c.Metrics.Prefix = prefix },
			extra: []string{testTemplate("one", stepSpec{name: "a", callable: "builtin:noop"})}})
		s.create(`{"namespace":"t","name":"one"}`)
		var all []string
		for line := range strings.Lines(string(s.do("GET", "/metrics", "").want(200).body)) {
			name := strings.Fields(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "))[0]
			name, _, _ = strings.Cut(name, "{")
			if !strings.HasPrefix(name, prefix+"_") && !strings.HasPrefix(name, "process_") && !strings.HasPrefix(name, "go_") {
				t.Errorf("prefix %s: got the metric %s", prefix, name)
			}
			all = append(all, strings.TrimPrefix(name, prefix))
		}
		slices.Sort(all)
		return strings.Join(slices.Compact(all), " ")
	}
	if got, want := names("tasker"), names("stepwell"); got != want {
		t.Errorf("got the names %s; want %s", got, want)
	}
	for _, word := range []string{"", "1a", "a-b", "a:b", "ä", strings.Repeat("a", 65)} {
		if checkMetricPrefix(word) == nil {
			t.Errorf("the prefix %q is allowed", word)
		}
	}
	noError(t, checkMetricPrefix("_a1"))
}
