package e2e

// The alerts and the dashboard of examples/prometheus, as Prometheus itself evaluates them.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"stepwell/e2e/wire"
)

// prometheus is a running Prometheus with the rules of the example.
type prometheus struct {
	api
	rules string // the text of alerts.yml
}

// startPrometheus runs the program of Prometheus in the example's configuration, with other targets and with less waiting.
func startPrometheus(t *testing.T, path string, targets ...string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	example := func(name string) string { return string(readFile(t, repository("examples/prometheus/"+name))) }
	replaced := func(text, from, to string) string {
		if !strings.Contains(text, from) {
			t.Fatalf("the example lacks %s", from)
		}
		return strings.Replace(text, from, to, 1)
	}
	config := replaced(example("prometheus.yml"), "scrape_interval: 15s", "scrape_interval: 250ms\n  evaluation_interval: 250ms")
	list, _ := json.Marshal(targets)
	writeFile(t, filepath.Join(dir, "prometheus.yml"), []byte(replaced(config, `["127.0.0.1:8080", "127.0.0.1:8081"]`, string(list))))
	rules := example("alerts.yml")
	writeFile(t, filepath.Join(dir, "alerts.yml"), regexp.MustCompile(`for: \d+m`).ReplaceAll([]byte(rules), []byte("for: 1s")))
	p := launchFile(t, path, nil, nil, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	listens := regexp.MustCompile(`"Listening on" address=(\S+)`)
	eventually(t, "Prometheus listens", func() bool {
		if !p.running() {
			t.Fatalf("Prometheus ended: %s", p.stderr)
		}
		return listens.MatchString(p.stderr.String())
	})
	started := &prometheus{api{t, "http://" + listens.FindStringSubmatch(p.stderr.String())[1]}, rules}
	eventually(t, "Prometheus is ready", func() bool { return started.do("GET", "/-/ready", "").status == 200 })
	return started
}

// values returns the values of an expression, without those that are not a number.
func (p *prometheus) values(expr string) (values []string) {
	p.t.Helper()
	var reply struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	p.do("GET", "/api/v1/query?query="+url.QueryEscape(expr), "").want(200).into(&reply)
	for _, r := range reply.Data.Result {
		if text := r.Value[1].(string); text != "NaN" {
			values = append(values, text)
		}
	}
	return values
}

// awaitData waits until an expression has a value.
func (p *prometheus) awaitData(expr string) {
	p.t.Helper()
	if !wire.Poll(func() bool { return len(p.values(expr)) > 0 }) {
		p.t.Errorf("no data for %s", expr)
	}
}

// firing reports whether an alert with these labels fires. Its annotations must be complete.
func (p *prometheus) firing(name string, labels map[string]string) bool {
	p.t.Helper()
	var reply struct {
		Data struct {
			Alerts []struct {
				Labels, Annotations map[string]string
				State               string
			}
		}
	}
	p.do("GET", "/api/v1/alerts", "").want(200).into(&reply)
	for _, a := range reply.Data.Alerts {
		same := a.Labels["alertname"] == name
		for label, value := range labels {
			same = same && a.Labels[label] == value
		}
		if !same || a.State != "firing" {
			continue
		}
		summary := a.Annotations["summary"]
		if summary == "" || strings.Contains(summary, "  ") || strings.Contains(summary, "<") || a.Labels["severity"] == "" {
			p.t.Errorf("%s: got the summary %q, severity %q", name, summary, a.Labels["severity"])
		}
		return true
	}
	return false
}

// changedMetrics returns the address of a service whose /metrics have a series with another value once changed is set: for
// what no request can cause.
func changedMetrics(t *testing.T, service, series, from, to string, changed *atomic.Bool) string {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reply, err := http.Get(service + "/metrics")
		if err != nil { // a test that ends the service says so itself
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err == nil && changed.Load() {
			text = bytes.Replace(text, []byte(series+" "+from+"\n"), []byte(series+" "+to+"\n"), 1)
		}
		w.Write(text)
	}))
	t.Cleanup(h.Close)
	return host(h.URL)
}

// host returns the address of a URL, which is the label instance.
func host(address string) string { return strings.TrimPrefix(address, "http://") }

// TestPrometheus makes each alert of the example fire by its first event, which no alert's series waits for, and looks
// for data in each panel of the dashboard.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	path := wire.Need(t, "prometheus")
	hold := make(chan struct{})
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(handler.Close)
	steps := make([]stepSpec, 1200)
	for i := range steps {
		steps[i] = stepSpec{name: fmt.Sprint("s", i), callable: handler.URL}
	}
	fails := func(name string) string {
		return testTemplate(name, stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`})
	}
	fixture := serve(t, "--fixture", "--templates", templateDir(t, fails("fails"), testTemplate("parked", stepSpec{name: "a", callable: "people.sign"})))
	busy := serve(t, "--memory", "--templates", templateDir(t, testTemplate("many", steps...)),
		"--config", configFile(t, "[worker]\nconcurrency = 1\nhttp_concurrency = 1\n[events]\nmax_streams = 1\n"))
	durable := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	var broken, full atomic.Bool
	instances := []string{host(fixture.ready.OrchestrationURL), host(busy.ready.OrchestrationURL),
		changedMetrics(t, durable.ready.OrchestrationURL, "stepwell_journal_writable", "1", "0", &full),
		changedMetrics(t, fixture.ready.WorkerURL, `stepwell_internal_errors_total{role="worker"}`, "0", "1", &broken),
		host(durable.ready.OrchestrationURL)}
	p := startPrometheus(t, path, instances...)

	p.awaitData("count(up == 1) == 5")
	for _, series := range regexp.MustCompile(`\b(up|stepwell_\w+)(\{[^}]*\})?`).FindAllString(p.rules, -1) {
		p.awaitData(series)
	}
	blocked := func(template string) map[string]string {
		return map[string]string{"namespace": "t", "template": template}
	}
	at := func(i int) map[string]string { return map[string]string{"instance": instances[i]} }
	fired := map[string]bool{}
	for _, event := range []struct {
		alert  string
		labels map[string]string
		cause  func() // nil: the same event as before
	}{
		{"StepwellTasksBlocked", blocked("fails"), func() { fixture.api().create(`{"namespace":"t","name":"fails"}`) }},
		{"StepwellTasksStayBlocked", blocked("fails"), nil},
		{"StepwellAttemptsFail", at(0), nil},
		{"StepwellTasksBlocked", blocked("born"), func() { // probably in no scrape before
			fixture.api().do("POST", "/_stepwell/templates", fails("born")).want(201)
			fixture.api().create(`{"namespace":"t","name":"born"}`)
		}},
		{"StepwellTasksStale", at(0), func() {
			fixture.api().create(`{"namespace":"t","name":"parked"}`)
			fixture.api().do("POST", "/_stepwell/clock", `{"advance":"2h"}`).want(200)
		}},
		{"StepwellQueueGrows", at(1), func() { busy.api().create(`{"namespace":"t","name":"many"}`) }},
		{"StepwellRefusesRequests", at(1), func() {
			held := wire.Must(http.Get(busy.ready.OrchestrationURL + "/v1/events"))(t)
			t.Cleanup(func() { held.Body.Close() })
			busy.api().do("GET", "/v1/events", "").want(503)
		}},
		{"StepwellServerErrors", map[string]string{"instance": instances[3], "role": "worker"}, func() { broken.Store(true) }},
		{"StepwellDiskFull", at(2), func() { full.Store(true) }},
		{"StepwellDown", at(4), func() { durable.kill() }},
	} {
		fired[event.alert] = true
		if event.cause != nil {
			if p.firing(event.alert, event.labels) {
				t.Errorf("%s fires before its event", event.alert)
			}
			event.cause()
		}
		if !wire.Poll(func() bool { return p.firing(event.alert, event.labels) }) {
			t.Errorf("%s does not fire: %s", event.alert, p.do("GET", "/api/v1/rules?type=alert", "").body)
		}
	}
	var alerts []string
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(p.rules, -1) {
		alerts = append(alerts, alert[1])
	}
	if !slices.Equal(slices.Sorted(slices.Values(alerts)), slices.Sorted(maps.Keys(fired))) {
		t.Errorf("got the alerts %q; want those with an event", alerts)
	}

	close(hold)
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(readFile(t, repository("examples/prometheus/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			p.awaitData(strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m").Replace(target.Expr))
		}
	}
}
