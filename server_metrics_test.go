package main

// /metrics: what it counts, that Prometheus' own tool finds nothing wrong with it, and that no label has a value that would
// make the number of series grow without bound.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
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
	samples map[string]float64 // by name and labels, as written
}

// metricSample is a line of a scrape.
type metricSample struct {
	name   string
	labels [][2]string
	value  float64
}

// metricsReader has a scrape, and lines of it that are no samples or are there twice.
type metricsReader struct {
	families map[string]*metricFamily
	samples  []metricSample
	problems []string
}

const metricLabelForm = `([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"`

var (
	metricLine   = regexp.MustCompile(`^([a-zA-Z_:]\w*)(?:\{(` + metricLabelForm + `(?:,` + metricLabelForm + `)*)\})? (\S+)$`)
	metricLabel  = regexp.MustCompile(metricLabelForm)
	metricSuffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// readMetrics reads a scrape.
func readMetrics(text string) *metricsReader {
	r := &metricsReader{families: map[string]*metricFamily{}}
	for line := range strings.Lines(text) {
		if name, isType := strings.CutPrefix(line, "# TYPE "); isType {
			name, kind, _ := strings.Cut(strings.TrimSuffix(name, "\n"), " ")
			r.families[name] = &metricFamily{kind, map[string]float64{}}
		}
		if strings.HasPrefix(line, "# ") {
			continue
		}
		s, f := metricSample{}, (*metricFamily)(nil)
		m := metricLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m != nil {
			s.name = m[1]
			f = cmp.Or(r.families[s.name], r.families[metricSuffix.ReplaceAllString(s.name, "")])
		}
		if f == nil {
			r.problems = append(r.problems, fmt.Sprintf("%q is no sample, or its metric has no type", line))
			continue
		}
		for _, label := range metricLabel.FindAllStringSubmatch(m[2], -1) {
			s.labels = append(s.labels, [2]string{label[1], label[2]})
		}
		key := s.name + fmt.Sprint(s.labels)
		value, err := strconv.ParseFloat(m[len(m)-1], 64)
		if _, twice := f.samples[key]; twice || err != nil {
			r.problems = append(r.problems, fmt.Sprintf("%q is there twice: %v; %v", line, twice, err))
		}
		s.value, f.samples[key] = value, value
		r.samples = append(r.samples, s)
	}
	return r
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

// TestPrometheusExamples checks that the alert rules and the dashboard use only metrics that there
// are, and that each alert has a test. Where Prometheus' own tool is installed, it checks both pages and runs
// these tests, in which each alert fires.
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
	for at, server := range map[string]*testServer{"orchestration": s, "worker": s.with(newWorkerAPI(s.svc, nil))} {
		cmd := exec.Command(tool, "check", "metrics")
		cmd.Stdin = bytes.NewReader(server.do("GET", "/metrics", "").body)
		out, _ := cmd.CombinedOutput()
		// Clients of the worker know this one by its name.
		said := regexp.MustCompile(`\w+_step_execution_duration_milliseconds use base unit "seconds".*\n`).ReplaceAll(out, nil)
		if len(said) > 0 || cmd.ProcessState.ExitCode() == 1 {
			t.Errorf("%s: %s", at, out)
		}
	}
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
	type bucket struct{ bound, total float64 }
	last := map[string]bucket{} // of each series of a histogram
	for _, sample := range r.samples {
		family, labels := metricSuffix.ReplaceAllString(sample.name, ""), sample.labels
		if f := r.families[family]; f == nil || f.kind != "histogram" {
			continue
		}
		if n := len(labels) - 1; strings.HasSuffix(sample.name, "_bucket") {
			before, seen := last[family+fmt.Sprint(labels[:n])]
			bound, err := strconv.ParseFloat(labels[n][1], 64)
			if err != nil || seen && (bound <= before.bound || sample.value < before.total) {
				t.Errorf("got %+v after %+v; want buckets that ascend", sample, before)
			}
			last[family+fmt.Sprint(labels[:n])] = bucket{bound, sample.value}
		} else if b := last[family+fmt.Sprint(labels)]; b.bound != math.Inf(1) || !strings.HasSuffix(sample.name, "_sum") && b.total != sample.value {
			t.Errorf("got %+v after %+v; want a sum and a count after the last bucket", sample, b)
		}
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
