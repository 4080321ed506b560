package e2e

// Pages of other origins, in a browser.

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// newSite serves an empty page, and returns its origin.
func newSite(t testing.TB) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><title>site</title>")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestPagesUseTheAPI lets pages of an allowed and of another origin do in Chromium what an
// application does: create and read with its own headers, see the headers of answers, follow
// events, and act. The control of the service is for neither.
func TestPagesUseTheAPI(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	allowed, other := newSite(t), newSite(t)
	who := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"subject": "ann", "permissions": ["tasks:*", "steps:*"]}`)
	}))
	t.Cleanup(who.Close)
	for _, tt := range []struct {
		setting, origin, credentials string
		forward                      bool // an authenticator decides, which sees what browsers add
		may                          bool
	}{
		{allowed, allowed, "omit", false, true},
		{allowed, allowed, "include", false, false},
		{allowed, allowed, "include", true, true},
		{allowed, other, "omit", false, false},
		{"*", other, "omit", false, true},
		{"*", other, "include", false, false},
	} {
		env := []string{"STEPWELL_WEB__ALLOWED_ORIGINS=" + tt.setting}
		for _, section := range []string{"STEPWELL_ORCHESTRATION__WEB__AUTH__", "STEPWELL_MOUNT__AUTH__"} {
			if tt.forward {
				env = append(env, section+"ENABLED=true", section+"AUTHENTICATOR_URL="+who.URL)
			}
		}
		s := serveWith(t, env, "--memory", "--fixture")
		p.visit(tt.origin + "/")
		tried := func(script string) any {
			t.Helper()
			return p.eval(fmt.Sprintf(`(async () => {
				const url = %q, credentials = %q, json = {"Content-Type": "application/json", "If-Match": "*"};
				const ask = (path, o) => fetch(url + path, {credentials, ...o});
				try { %s } catch (e) { return String(e); }
			})()`, s.ready.OrchestrationURL, tt.credentials, script))
		}
		want := func(what string, got any, may string) {
			t.Helper()
			if tt.may && got != may || !tt.may && !strings.Contains(fmt.Sprint(got), "Failed to fetch") {
				t.Errorf("%+v, %s: got %v; want %s, or a failure: %v", tt, what, got, may, !tt.may)
			}
		}
		want("a task", tried(`
			const a = await ask("/v1/tasks", {method: "POST", body: '{"name":"diamond","namespace":"demo"}',
				headers: {...json, "Idempotency-Key": "k", traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}});
			const b = await ask(a.headers.get("Location") + "?wait=terminal");
			return a.status + " " + (await b.json()).status + " " + b.headers.has("ETag") + b.headers.has("X-Request-Id");`),
			"201 complete truetrue")
		want("an error", tried(`
			const a = await ask("/v1/tasks/x");
			return a.status + " " + (await a.json()).error.code;`), "400 INVALID_UUID")
		want("an action", tried(`
			const a = await ask("/stepwell/tasks/01890a5d-ac96-774b-bcce-b302099a8057", {method: "DELETE", headers: json});
			return a.status + " " + (await a.json()).error.code;`), "404 TASK_NOT_FOUND")
		want("events", tried(`
			const a = await ask("/v1/events");
			const text = new TextDecoder().decode((await a.body.getReader().read()).value);
			return a.status + " " + text.split("\n")[0];`), "200 : stepwell events")
		tt.may = false // whatever is configured
		want("control", tried(`return (await ask("/_stepwell/clock")).status;`), "")
		want("control", tried(`return (await ask("/_stepwell/reset", {method: "POST", headers: json})).status;`), "")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = nil // requests to another origin, and refusals, are what this test is about
}

// TestOtherPortsChangeNothing lets a page on another port of this machine send, in Chromium, what a page
// can: forms and requests without a preflight, which the service must refuse, and JSON and DELETE, which the
// browser does not send without one. A page of the service may reset it.
func TestOtherPortsChangeNothing(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	s := serve(t, "--memory", "--fixture")
	s.api().create(`{"namespace":"demo","name":"diamond"}`)
	tasks := func() any { return s.api().do("GET", "/v1/tasks", "").want(200).get("pagination.total_count") }
	port := s.ready.OrchestrationURL[strings.LastIndex(s.ready.OrchestrationURL, ":"):]
	site := newSite(t)
	for _, target := range []string{s.ready.OrchestrationURL, "http://localhost" + port} {
		p.visit(site + "/")
		for _, script := range []string{
			`fetch(url, {method: "POST", mode: "no-cors"})`,
			`fetch(url, {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: "{}"})`,
			`fetch(url, {method: "POST", credentials: "include", body: new URLSearchParams("a=b")})`,
			`fetch(url, {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"})`,
			`fetch(url, {method: "DELETE"})`,
		} {
			p.eval(fmt.Sprintf(`(async (url) => { try { await %s; } catch { } })(%q)`, script, target+"/_stepwell/reset"))
			if n := fmt.Sprint(tasks()); n != "1" {
				t.Fatalf("%s, %s: got %v tasks; want 1", target, script, n)
			}
		}
		for _, media := range []string{"text/plain", "multipart/form-data", "application/x-www-form-urlencoded"} {
			p.visit(site + "/")
			p.wait("document.body")
			p.eval(fmt.Sprintf(`(() => {
				const form = Object.assign(document.createElement("form"), {method: "POST", enctype: %q, action: %q});
				document.body.append(form);
				form.submit();
			})()`, media, target+"/_stepwell/reset"))
			p.waitText("may not control this service")
		}
	}
	if n := fmt.Sprint(tasks()); n != "1" {
		t.Fatalf("got %v tasks; want 1", n)
	}
	p.mu.Lock()
	p.problems = nil // requests to another origin, and refusals
	p.mu.Unlock()
	p.open(s.ready.OrchestrationURL + "/health")
	if status := p.eval(`fetch("/_stepwell/reset", {method: "POST"}).then((answer) => answer.status)`); fmt.Sprint(status) != "204" {
		t.Errorf("a page of the service: got %v; want 204", status)
	}
	p.wantNoProblems()
}
