package e2e

// The frame of the console, its list of tasks and its first visit, in a browser: live changes,
// credentials, errors, a stream that is cut, accessibility, and memory.

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// TestConsoleFrame opens the console as a person does who types the address of the service, and
// uses its navigation with keys.
func TestConsoleFrame(t *testing.T) {
	p, s := newConsole(t)
	s.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.open(s.ready.OrchestrationURL + "/")
	p.wait(`location.pathname === "/console" && document.title === "Tasks · Stepwell"`)
	p.waitText("diamond")
	p.key("g", "m")
	p.wait(`location.pathname === "/console/templates" && document.title.startsWith("Templates") &&
		document.querySelector("#nav [aria-current]").textContent === "Templates" && document.activeElement.closest("#page")`)
	p.key("?")
	p.wait(`document.querySelector("dialog[open]")`)
	p.eval(`history.back()`)
	p.wait(`location.pathname === "/console" && document.querySelector("tbody tr") && !document.querySelector("dialog")`)
	p.key("?")
	p.wait(`document.querySelector("dialog[open]").innerText.includes("Start a task")`)
	p.inspect("keys")
	p.key("Escape")
	p.wait(`!document.querySelector("dialog")`)
	p.key("/")
	p.wait(`document.activeElement.matches("[data-search]")`)

	p.click("#theme")
	p.click("#theme")
	p.wait(`getComputedStyle(document.body).colorScheme === "dark" || document.documentElement.dataset.theme === "dark"`)
	p.open("/nowhere", "The console has no page at this address.")
	p.wait(`document.documentElement.dataset.theme === "dark"`) // before anything was drawn
}

// TestConsoleFirstPaint opens the console in a browser that has none of its files, and counts those that it must read
// before it paints the bar: the style and one small script.
func TestConsoleFirstPaint(t *testing.T) {
	p, _ := openConsole(t, "/tasks")
	p.wait(`performance.getEntriesByName("first-contentful-paint")[0]`)
	files := p.eval(`performance.getEntriesByType("resource").filter((file) => file.renderBlockingStatus === "blocking").map((file) => file.name).join(" ")`)
	if n := len(strings.Fields(files.(string))); n > 2 {
		t.Errorf("%d files were read before the first paint, %s; want 2 at most", n, files)
	}
	p.waitText("No task yet") // the page has read everything before the service ends
}

// TestConsoleWithoutPaint opens the console in a browser that does not tell when it has drawn, and in one that is too old.
func TestConsoleWithoutPaint(t *testing.T) {
	p, _ := newConsole(t)
	for _, tt := range [][2]string{
		{`PerformanceObserver = class { observe() {} };`, "Welcome to Stepwell"},
		{`Set.prototype.union = undefined;`, "This browser is too old for the console"},
	} {
		p.command("Page.addScriptToEvaluateOnNewDocument", object{"source": tt[0]}, nil)
		p.open("/", tt[1])
	}
}

// TestConsoleBehindPrefix opens the console behind a proxy that serves it below a path.
func TestConsoleBehindPrefix(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	proxy := newConsoleProxy(t, serve(t, "--memory").ready.OrchestrationURL, "/flows")
	p.open(proxy.url+"/flows/console/tasks", "No task yet")
	p.clickText("Templates")
	p.wait(`location.pathname === "/flows/console/templates"`)
	p.waitText("diamond")
}

// TestConsoleSandbox opens the console of a sandbox, which has its own address and virtual time.
func TestConsoleSandbox(t *testing.T) {
	p, s := newConsole(t, "--fixture")
	s.api().create(`{"namespace":"demo","name":"diamond"}`)
	made := s.api().do("POST", "/_stepwell/sandboxes", `{"name":"checkout-7"}`).want(201)
	box := &api{t, made.text("orchestration_url")}
	box.do("POST", "/_stepwell/clock", `{"freeze":true}`).want(200)
	p.open(box.url+"/console/tasks", "No task yet", "Time is virtual and frozen at")
	box.create(`{"namespace":"demo","name":"approval"}`)
	p.wait(`document.querySelectorAll("tbody tr").length === 1 && document.querySelector("tbody tr").innerText.includes("approval")`)
}

// TestConsoleTasksLive follows tasks in the list from the first one's creation, which ends the welcome, to their end.
func TestConsoleTasksLive(t *testing.T) {
	p, s := newConsole(t)
	a := s.api()
	p.open("", "Welcome to Stepwell", "Live")
	id := a.create(`{"namespace":"demo","name":"approval","tags":["eu"]}`)
	row := fmt.Sprintf(`document.querySelector('tr[data-id="%s"]')`, id)
	p.wait(row + `.innerText.includes("In progress") && ` + row + `.innerText.includes("1 / 3")`)
	p.wait(`[...document.querySelectorAll(".chip")].some((c) => c.textContent === "In progress 1")`)
	requests := p.countRequests("/console")
	completeStep(a, id, "approve")
	p.wait(row + `.innerText.includes("Complete") && ` + row + `.innerText.includes("3 / 3")`)
	if now := p.countRequests("/console"); now != requests {
		t.Errorf("the page was loaded again")
	}

	// New tasks wait while the pointer is among the rows.
	p.mouse(`document.querySelector("tbody tr")`, "mouseMoved")
	at := p.eval(row + `.getBoundingClientRect().top`)
	for range 3 {
		a.create(`{"namespace":"demo","name":"diamond"}`)
	}
	p.waitText("3 new tasks")
	if now := p.eval(row + `.getBoundingClientRect().top`); now != at {
		t.Errorf("the row moved from %v to %v while it was read", at, now)
	}
	p.key("n")
	p.wait(`document.querySelectorAll("tbody tr").length === 4 && !document.body.innerText.includes("new tasks")`)
	p.key("j", "j")
	p.wait(`document.activeElement.closest("tr") === document.querySelectorAll("tbody tr")[1]`)

	// A row that is not in the list any more stays while it is read, crossed out.
	id = a.create(`{"namespace":"demo","name":"approval"}`)
	p.open("/tasks?status=enqueuing_steps,steps_in_process")
	p.hoverUntil(`document.querySelector("tbody tr")`, `document.querySelector("tbody tr:hover")`)
	completeStep(a, id, "approve")
	p.wait(`document.querySelector("tbody tr.gone")`)
	p.clickText("Show the current list", "No task matches")
}

// TestConsoleFilters filters the list, and opens the same list by its address.
func TestConsoleFilters(t *testing.T) {
	p, s := newConsole(t)
	a := s.api()
	for i := range 60 {
		a.create(fmt.Sprintf(`{"namespace":"demo","name":"diamond","tags":["n%d"]}`, i%30))
	}
	a.create(`{"namespace":"demo","name":"approval","tags":["eu","urgent"]}`)
	p.open("/tasks")
	p.wait(count("tbody tr", 50))
	p.clickText("Show more")
	p.wait(count("tbody tr", 61))
	if n := p.eval(`import(document.querySelector("script").src.replace("begin.js", "list.js")).then(async ({ List }) => {
		const all = [1, 2, 3], read = async (count) => ({ items: all.slice(0, count), more: count < 3 }), no = () => {};
		const list = new List({ signal: new AbortController().signal, kept: {}, keys: no, renew: no },
			{ perPage: 2, key: String, read, draw: no });
		list.show(await read(2));
		list.count = 3;
		await Promise.all([list.refresh(true), list.refresh(true)]);
		return list.items.join();
	})`); n != "1,2,3" {
		t.Errorf("got the items %v of a list that is read twice at once; want each once", n)
	}

	rows := func(n int) string { return count("tbody tr", n) }
	p.clickText("In progress 1")
	p.wait(rows(1) + ` && location.search.startsWith("?status=")`)
	p.open(p.eval("location.href").(string))
	p.wait(rows(1) + ` && document.querySelector('.chip[aria-pressed="true"]').textContent === "In progress 1"`)
	p.clickText("In progress 1")
	p.wait(rows(50) + ` && location.search === ""`)

	p.fill("[data-search]", "appr")
	p.wait(rows(1) + ` && location.search === "?q=appr"`)
	p.fill("[data-search]", "nothing at all")
	p.waitText("No task matches")
	p.clickText("Clear the filter")
	p.wait(rows(50))
	for query, want := range map[string]int{
		"name=approval": 1, "tag=eu&tag=urgent": 1, "tag=n3": 2, "tag=none": 0, "since=1h": 50,
		"created_before=2020-01-01T00:00:00Z": 0, "namespace=demo&name=diamond&tag=n4": 2, "q=DIAM&tag=n1": 2,
	} {
		p.open("/tasks?" + query)
		p.wait(rows(want) + ` && (document.querySelector("tbody tr") || document.querySelector(".empty"))`)
	}
	for query, want := range map[string]string{ // which mean nothing
		"since=99x":             `since must be a number of minutes, hours or days, such as 15m, not "99x"`,
		"created_after=garbage": `created_after: "garbage" is not a timestamp`, "status=nonsense": `"nonsense"`, "sort=color": `sort`,
	} {
		p.open("/tasks?"+query, want)
		p.clickText("Clear the filter")
		p.wait(rows(50))
	}
}

// TestConsoleOrder sorts the list; the address has the order, and rows move when it changes.
func TestConsoleOrder(t *testing.T) {
	p, s := newConsole(t)
	a := s.api()
	first := a.create(`{"namespace":"demo","name":"approval","priority":5}`)
	a.create(`{"namespace":"demo","name":"approval"}`)
	ids := func(n int) string {
		return fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].findIndex((r) => r.dataset.id === %q) === %d`, first, n)
	}
	p.open("/tasks")
	p.wait(ids(1))
	p.choose("Order", "Highest priority first")
	p.wait(ids(0) + ` && location.search === "?sort=-priority"`)
	p.open("/tasks?sort=-updated_at", "Live")
	p.wait(ids(1))
	completeStep(a, first, "approve")
	p.wait(ids(0))
	p.mouse(`document.querySelector("tbody tr")`, "mouseMoved") // now somebody reads
	a.create(`{"namespace":"demo","name":"diamond"}`)
	p.waitText("1 new task")
	p.wait(ids(0))
	p.key("n")
	p.wait(ids(1))
}

var consoleData = flag.String("console-data", "", "the data directory, with many tasks, that TestConsoleManyTasks opens")

// TestConsoleManyTasks counts the requests for the first page of a list, and how often its rows change. By hand
// with many tasks: go test ./e2e -run ConsoleManyTasks -v -console-data DIR
func TestConsoleManyTasks(t *testing.T) {
	p := newPage(t)
	where := []string{"--memory"}
	if *consoleData != "" {
		where = []string{"--data", *consoleData, "--config", configFile(t, "[store]\nretain_finished_count = 0\n")}
	}
	s := serve(t, where...)
	p.service = s.ready.OrchestrationURL
	for range 60 { // the page asks again while something happens to tasks
		s.api().await(s.api().create(`{"namespace":"demo","name":"diamond"}`), "complete")
	}
	p.open("/tasks")
	p.wait(count("tbody tr", 50))
	p.waitText("Live")
	p.eval(`performance.clearResourceTimings()`)
	for range 5 {
		changes := p.eval(`new Promise((done) => {
			let changes = 0;
			const rows = new MutationObserver((list) => { changes += list.length; });
			rows.observe(document.querySelector("tbody"), { childList: true });
			new MutationObserver((_, watch) => requestAnimationFrame(() => {
				watch.disconnect();
				rows.disconnect();
				done(changes);
			})).observe(document.querySelector(".chips"), { attributeFilter: ["aria-pressed"], subtree: true });
			document.querySelector(".chip.good").click(); // complete ones, or all: the same tasks
		})`)
		if changes != 0.0 {
			t.Errorf("the rows were changed %v times; want the same ones kept", changes)
		}
	}
	asked := p.eval(`performance.getEntriesByType("resource").filter((file) => /\/v1\/tasks\?/.test(file.name)).length`)
	if asked.(float64) > 6 { // the page asks for the first of them twice
		t.Errorf("the page asked %v times for 5 lists", asked)
	}
}

// TestConsoleFirstVisit runs the demo workflow from the page of an empty service.
func TestConsoleFirstVisit(t *testing.T) {
	p, _ := openConsole(t, "")
	p.waitText("Welcome to Stepwell")
	p.clickText("Run a demo workflow")
	p.wait(`/^\/console\/tasks\/[0-9a-f-]{36}$/.test(location.pathname)`)
	p.waitText("In progress")
}

// consoleKeys are API keys with different rights.
const consoleKeys = `
[orchestration.web.auth]
enabled = true
api_keys_enabled = true
api_key_header = "X-Console-Key"
[[orchestration.web.auth.api_keys]]
key = "key-of-the-reader"
permissions = ["tasks:list", "tasks:read", "templates:read", "dlq:read"]
description = "reader"
[[orchestration.web.auth.api_keys]]
key = "key-of-the-worker"
permissions = ["worker:config_read"]
description = "worker"
`

// TestConsoleCredentials meets a service that asks for credentials: none, a wrong one, one that
// may do nothing, and one that may read. What is missing is explained, and the credential lasts
// as long as the tab.
func TestConsoleCredentials(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	private, public := generateKeys(t)
	s := serveWith(t, []string{"STEPWELL_JWT_PUBLIC_KEY_PATH=" + public}, "--memory", "--config", configFile(t, consoleKeys))
	token := func(permissions string) string {
		return authCommand(t, "generate-token", "--private-key", private, "--permissions", permissions)
	}
	enter := func(kind, value string, shown ...string) {
		p.wait(`document.querySelector("form.signin input")`)
		p.eval(fmt.Sprintf(`document.querySelector("form.signin select").value = %q`, kind))
		p.fill("form.signin input", value)
		p.key("Enter")
		p.waitText(shown...)
	}
	p.service = s.ready.OrchestrationURL
	p.open("/tasks", "Credentials needed")
	enter("token", "no-token-at-all", "This credential was refused")
	enter("key", "key-of-the-worker", "Missing required permission: tasks:list")
	p.clickText("Credentials")
	enter("key", "key-of-the-reader", "No task yet", "needs tasks:create") // before anything was refused
	p.open("/tasks", "No task yet")                                        // the tab keeps it
	p.wait(`![...document.querySelectorAll(".nav a")].some((a) => a.checkVisibility() && /Audit|Analytics/.test(a.text))`)
	p.open("/analytics", "Not allowed")
	p.open("/fixture", "Fixture mode is off")
	p.clickText("Dead letters", "Nothing needs you")
	p.clickText("Templates", "demo/diamond", "system:analytics_read") // why there are no figures
	p.clickText("Credentials")
	enter("token", token("tasks:list,tasks:read"))
	p.open("/tasks", "needs tasks:create")
	if disabled := p.eval(`document.querySelector(".denied button").disabled`); disabled != true {
		t.Error("the button that needs another permission is enabled")
	}
	other := newPage(t) // another tab knows nothing of it
	other.open(s.ready.OrchestrationURL+"/console/tasks", "Credentials needed")
}

// consoleProxy stands between the browser and the service, to cut streams and to fail.
type consoleProxy struct {
	url    string
	server *httptest.Server

	mu      sync.Mutex
	resumed []string // Last-Event-ID of the streams
	status  int      // of every answer of the API, unless it is 0
	held    bool     // whether streams are held back
}

// proxyConsole is newConsole with the page behind a proxy.
func proxyConsole(t *testing.T) (*page, *api, *consoleProxy) {
	t.Helper()
	p, s := newConsole(t)
	proxy := newConsoleProxy(t, p.service, "")
	p.service = proxy.url
	return p, s.api(), proxy
}

func newConsoleProxy(t *testing.T, upstream, prefix string) *consoleProxy {
	t.Helper()
	p := &consoleProxy{}
	target := wire.Must(url.Parse(upstream))(t)
	forward := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, prefix)
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(502) }}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		status, held := p.status, p.held
		if strings.HasSuffix(r.URL.Path, "/v1/events") {
			p.resumed = append(p.resumed, r.Header.Get("Last-Event-ID"))
		}
		p.mu.Unlock()
		if status != 0 && strings.Contains(r.URL.Path, "/v1/") {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"code":"X","message":"it answers %d on purpose","request_id":"r-1"}}`, status)
			return
		}
		if held && strings.HasSuffix(r.URL.Path, "/v1/events") {
			<-r.Context().Done()
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(p.server.Close)
	t.Cleanup(p.server.CloseClientConnections)
	p.url = p.server.URL
	return p
}

// fail has the API answer with a status, or 0 for its own answers.
func (p *consoleProxy) fail(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

// hold has streams held back, or let through.
func (p *consoleProxy) hold(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
}

func (p *consoleProxy) streams() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.resumed)
}

// TestConsoleStreamIsResumed cuts the event stream, and the page continues where it was cut.
func TestConsoleStreamIsResumed(t *testing.T) {
	p, a, proxy := proxyConsole(t)
	first := a.create(`{"namespace":"demo","name":"approval"}`)
	p.open("/tasks", "Live")
	completeStep(a, first, "approve")
	p.wait(`document.querySelector("tbody tr").innerText.includes("Complete")`)
	proxy.fail(503)
	proxy.server.CloseClientConnections()
	p.waitText("Reconnecting")
	second := a.create(`{"namespace":"demo","name":"diamond"}`) // while the page is cut off
	proxy.fail(0)
	p.waitText("Live")
	p.wait(fmt.Sprintf(`document.querySelector('tr[data-id="%s"]').innerText.includes("Complete")`, second))
	streams := proxy.streams()
	if last := streams[len(streams)-1]; streams[0] != "" || last == "" {
		t.Errorf("got streams from %q; want the last to go on from an event", streams)
	}
}

// TestConsoleStreamHeldBack opens a task behind a proxy that holds streams back: it is shown at once, and the page asks
// what is new until the proxy lets events through.
func TestConsoleStreamHeldBack(t *testing.T) {
	p, a, proxy := proxyConsole(t)
	proxy.hold(true)
	id := a.create(`{"namespace":"demo","name":"approval"}`)
	p.open("/tasks/" + id)
	p.waitNode("approve", "Ready")
	if got := p.eval(`document.getElementById("live").textContent`); got == "Live" {
		t.Error("the page says that it is live before an event came through")
	}
	p.waitText("Polling")
	completeStep(a, id, "approve")
	p.waitNode("approve", "Complete")
	p.open("/tasks/" + a.create(`{"namespace":"demo","name":"failing"}`) + "?step=charge")
	p.wait(`performance.getEntriesByType("resource").filter((e) => e.name.endsWith("/explain")).length > 2 && // read again and again
		document.querySelector(".result .problem").innerText.includes("the card was declined")`)
	proxy.hold(false)
	proxy.server.CloseClientConnections()
	p.waitText("Live")
}

// TestConsoleErrors shows what the list says when the service fails, and when it is gone.
func TestConsoleErrors(t *testing.T) {
	p, _, proxy := proxyConsole(t)
	proxy.fail(500)
	p.open("/tasks", "it answers 500 on purpose", "r-1")
	proxy.fail(0)
	p.clickText("Try again", "No task yet")
	p.open("/tasks/00000000-0000-7000-8000-000000000000", "not found")
	p.wait(`document.querySelector("#live").textContent === ""`) // there is nothing to follow
	p.key("s")                                                   // there are no steps to show
	p.open("/tasks", "No task yet")
	proxy.server.CloseClientConnections()
	proxy.server.Listener.Close()
	p.clickText("In progress 0", "The service does not respond")
}

// controls is the list of what a person can operate on the page that is shown.
const controls = `[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter((e) =>
	e.tabIndex >= 0 && !e.disabled && e.checkVisibility({ visibilityProperty: true }))`

// watchFocus notes which elements get the focus, and which of them do not show it.
const watchFocus = `window.reached = new Set(), window.unseen = new Set();
	document.addEventListener("focusin", ({ target }) => {
		const shows = (part) => { const s = getComputedStyle(target, part); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0; };
		reached.add(target);
		if (shows(null) || shows("::after")) unseen.delete(target); else unseen.add(target);
	});`

// wantKeyboard goes through the page with the Tab key: it reaches each control, and each shows that it has the focus.
func (p *page) wantKeyboard(what string) {
	p.t.Helper()
	p.eval(watchFocus)
	const describe = `.map((e) => e.outerHTML.slice(0, 120)).join("\n")`
	missed, unseen := any("not tried"), any("")
	for tries := 0; tries < 3 && (missed != "" || unseen != ""); tries++ { // a row that comes in meanwhile is reached the next time
		for range int(p.eval(controls+".length").(float64)) + 3 {
			p.key("Tab")
		}
		missed, unseen = p.eval(controls+".filter((e) => !reached.has(e))"+describe), p.eval("[...unseen]"+describe)
	}
	if missed != "" || unseen != "" {
		p.t.Errorf("%s: Tab does not reach\n%v\nand these do not show that they have the focus:\n%v", what, missed, unseen)
	}
}

// wantNames checks that each control has a name in the tree that screen readers get.
func (p *page) wantNames(what string) {
	p.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	p.command("Accessibility.getFullAXTree", nil, &tree)
	named := 0
	for _, n := range tree.Nodes {
		switch n.Role.Value {
		case "button", "link", "textbox", "searchbox", "spinbutton", "combobox", "checkbox", "tab", "DisclosureTriangle", "application", "region":
			if named++; !n.Ignored && (n.Name.Value == nil || n.Name.Value == "") {
				p.t.Errorf("%s: a %v has no name", what, n.Role.Value)
			}
		}
	}
	if named < 5 {
		p.t.Errorf("%s: got %d controls in the tree; want at least those of the bar", what, named)
	}
}

// TestConsolePages opens every page. Keys reach each control, which has a name and shows the focus; what is shown is part
// of that name; on a screen, a tablet and a phone, nothing is out of view, and axe-core, whose file STEPWELL_AXE names and
// .ci/run installs, finds nothing. As in every test of the console, each request must be documented.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	named := 0.0
	pages := consolePages(t)
	for name, address := range pages {
		p.show(address, 1440)
		long := strings.HasPrefix(name, "long-")
		for _, width := range []int{390, 1024, 1440} {
			p.size(width, 900)
			if bad := p.eval(outOfView); bad != "" {
				t.Errorf("%s at %d pixels:\n%v", name, width, bad)
			}
			if !long {
				p.wantAccessible(fmt.Sprintf("%s at %d pixels", name, width))
			}
		}
		if long {
			continue
		}
		if p.inspect(name); name == "api" {
			continue
		}
		p.wantNames(name)
		if wrong := p.eval(mislabelled); wrong != "" {
			t.Errorf("%s: names without the text that is shown: %v", name, wrong)
		}
		named += p.eval(`[...document.querySelectorAll("#page [aria-label]")].filter((e) => e.innerText).length`).(float64)
		p.wantKeyboard(name)
	}
	if named < 50 {
		t.Errorf("got %v controls with names; want those of all pages", named)
	}
	p.wantNoProblems()
	p.open(pages["fixture"])
	for _, operation := range []string{"GET /v1/tasks?q=a", "GET /v1/events", "POST /_stepwell/reset",
		"GET /v1/secrets", "GET /v1/tasks?color=red", "PUT /v1/tasks"} {
		method, path, _ := strings.Cut(operation, " ")
		p.eval(fmt.Sprintf(`fetch(%q, { method: %q, signal: AbortSignal.timeout(1000) }).then(() => 0, () => 0)`, path, method))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	want := []string{"a request that is not documented: GET /v1/secrets",
		"a request that is not documented: GET /v1/tasks?color=red", "a request that is not documented: PUT /v1/tasks"}
	if !slices.Equal(p.problems, want) {
		t.Errorf("got %q; want %q", p.problems, want)
	}
	p.problems = nil
	if os.Getenv("STEPWELL_AXE") == "" {
		wire.Lack(t, "STEPWELL_AXE", "needs axe-core: STEPWELL_AXE=…/axe.min.js")
	}
}

// TestConsoleKeyboardOperates opens forms, tabs and lists with Enter, Space and the arrow keys; Escape closes a
// dialog, which gives the focus back.
func TestConsoleKeyboardOperates(t *testing.T) {
	p, s := newConsole(t)
	p.openTask(s.api().create(`{"namespace":"demo","name":"approval"}`))
	focus := func(element string) { p.eval("window.at = " + element + "; at.focus()") }
	for _, c := range []struct{ element, key, inside string }{
		{`document.querySelector("#keys")`, "Enter", "button"},
		{`[...document.querySelectorAll("button")].find((e) => e.textContent === "Cancel the task …")`, " ", "input"},
		{`document.querySelector('.explain [aria-label="Complete approve"]')`, "Enter", "textarea"},
	} {
		p.wait(c.element)
		focus(c.element)
		p.key(c.key)
		p.wait(fmt.Sprintf(`document.querySelector("dialog[open]")?.contains(document.activeElement) && document.activeElement.matches(%q)`, c.inside))
		for range 12 {
			p.key("Tab")
		}
		p.wait(`document.activeElement === document.body || document.activeElement.closest("dialog")`) // not on the page below
		p.key("Escape")
		p.wait(`!document.querySelector("dialog") && document.activeElement === at`)
	}
	focus(`document.querySelector("[role=tab][aria-selected=true]")`)
	p.key("ArrowRight")
	p.wait(`document.activeElement.textContent === "Steps" && document.querySelector(".step-list")`)
	p.key("Tab", "Tab")
	p.wait(`document.activeElement.matches(".step-list input")`)
	focus(`document.querySelector(".step-list tbody tr:nth-child(2) button")`)
	p.key("Enter")
	p.wait(`document.querySelector(".step-card")`)
	focus(`document.querySelector("#nav a[href$=templates]")`)
	p.key("Enter")
	p.wait(`location.pathname === "/console/templates" && document.querySelector("tbody tr")`)
}

// settle waits until the page that is shown has read what it shows.
func (p *page) settle() {
	p.t.Helper()
	p.wait(`document.querySelector(".view")?.children.length && !document.querySelector(".loading")`)
	p.eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`)
}

// wantAccessible has axe-core look at what is shown, if there is one.
func (p *page) wantAccessible(what string) {
	p.t.Helper()
	file := os.Getenv("STEPWELL_AXE")
	if file == "" {
		return
	}
	if has, _ := p.tryEval("Boolean(window.axe)"); has != true {
		p.tryEval(string(readFile(p.t, file)) + "; true")
	}
	found := p.eval(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.map((v) =>
		v.id + ": " + v.help + "\n  " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + "\n  " + (n.any[0]?.message || "")).join("\n  ")))`)
	for _, violation := range found.([]any) {
		p.t.Errorf("%s: %s", what, violation)
	}
}

var consoleSoak = flag.Duration("console-soak", 3*time.Second, "how long TestConsoleMemory sends events to the page")

// TestConsoleMemory sends the list a thousand events a second, and checks that what the page
// holds does not grow. Longer by hand: go test ./e2e -run ConsoleMemory -console-soak 10m
func TestConsoleMemory(t *testing.T) {
	p := newPage(t)
	s := serve(t, "--memory")
	p.open(s.ready.OrchestrationURL+"/console/tasks", "Live")
	load := func(d time.Duration) {
		ctx, stop := context.WithTimeout(t.Context(), d)
		defer stop()
		createTasks(ctx, s.api(), "diamond", 24*time.Millisecond) // a diamond makes 25 transitions
	}
	load(*consoleSoak / 3) // until the list is full
	before, events := p.heap(), s.api().metric("stepwell_events_delivered_total")
	began := time.Now()
	load(*consoleSoak)
	rate := float64(s.api().metric("stepwell_events_delivered_total")-events) / time.Since(began).Seconds()
	after := p.heap()
	t.Logf("%.1f MB of script memory, then %.1f MB after %v at %.0f events/s", before, after, *consoleSoak, rate)
	if after > before+4 {
		t.Errorf("the page holds %.1f MB more than before", after-before)
	}
}

// createTasks creates a task of a demo template every so often until the context ends.
func createTasks(ctx context.Context, a *api, name string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.create(`{"namespace":"demo","name":"` + name + `"}`)
		}
	}
}

// heap returns the memory in MB that the page's scripts use, without what is garbage.
func (p *page) heap() float64 {
	p.t.Helper()
	p.command("HeapProfiler.collectGarbage", nil, nil)
	var used struct{ UsedSize float64 }
	p.command("Runtime.getHeapUsage", nil, &used)
	return used.UsedSize / 1e6
}
