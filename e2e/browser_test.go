package e2e

// A browser for the tests of the console: Chromium without a window, driven over a pipe by the
// DevTools protocol, JSON messages that end with a zero byte.

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// browser is one Chromium, which all tests share. Each page has its own storage.
type browser struct {
	dir string // its profile
	cmd *exec.Cmd
	in  *os.File

	mu      sync.Mutex // guards all below
	last    int        // id of a command
	answers map[int]chan browserMessage
	pages   map[string]*page // by session
	gone    error            // why there are no more messages
}

// browserMessage is a command, an answer to one, or an event.
type browserMessage struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// chromiumNames are the names of the program on different systems.
var chromiumNames = []string{"chromium", "chromium-browser", "google-chrome"}

// sharedBrowser starts the browser once; closeBrowser, from TestMain, ends it.
var sharedBrowser = sync.OnceValues(startBrowser)

var errNoBrowser = errors.New("needs Chromium")

func startBrowser() (*browser, error) {
	var path string
	for _, name := range chromiumNames {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		return nil, errNoBrowser
	}
	fromUs, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, toUs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "stepwell-chromium-")
	if err != nil {
		return nil, err
	}
	b := &browser{dir: dir, in: in, answers: map[int]chan browserMessage{}, pages: map[string]*page{}}
	b.cmd = exec.Command(path, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
		"--user-data-dir="+dir, "about:blank")
	b.cmd.ExtraFiles = []*os.File{fromUs, toUs} // descriptors 3 and 4
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	fromUs.Close()
	toUs.Close()
	go b.read(out)
	return b, nil
}

// closeBrowser ends the browser if a test has started it, so that its files can be removed.
func closeBrowser() {
	if !browserUsed {
		return
	}
	if b, err := sharedBrowser(); err == nil {
		b.send("", "Browser.close", nil)
		b.cmd.Wait()
		os.RemoveAll(b.dir)
	}
}

var browserUsed bool // set by tests before TestMain's end

// read delivers messages until the browser ends.
func (b *browser) read(out *os.File) {
	for r := bufio.NewReaderSize(out, 1<<20); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.end(err)
			return
		}
		var m browserMessage
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.end(fmt.Errorf("decoding a message of the browser: %w", err))
			return
		}
		b.mu.Lock()
		answer, p := b.answers[m.ID], b.pages[m.SessionID]
		delete(b.answers, m.ID)
		b.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case p != nil && m.Method != "":
			p.happened(m)
		}
	}
}

// end answers all commands that wait.
func (b *browser) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = err
	for id, c := range b.answers {
		delete(b.answers, id)
		close(c)
	}
}

// send sends a command to the browser, or to a page with a session, and returns its result.
func (b *browser) send(session, method string, params any) (json.RawMessage, error) {
	b.mu.Lock()
	b.last++
	m := browserMessage{ID: b.last, SessionID: session, Method: method}
	answer := make(chan browserMessage, 1)
	b.answers[m.ID] = answer
	m.Params, _ = json.Marshal(params)
	if params == nil {
		m.Params = nil
	}
	text, _ := json.Marshal(m)
	_, err := b.in.Write(append(text, 0))
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case got, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%s: the browser ended: %w", method, b.gone)
		}
		if got.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, got.Error.Message)
		}
		return got.Result, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("%s: no answer from the browser", method)
	}
}

// page is a tab of the browser.
type page struct {
	t       testing.TB
	b       *browser
	session string
	service string // the URL of the service that the paths of the test are those of

	mu        sync.Mutex                // guards all below
	contracts map[string]*wire.Contract // the documents of the API, by the URL of the service: its origin and what is before its paths
	problems  []string                  // script errors, refusals of the policy, requests to elsewhere or that are not documented
	requests  []string                  // method and URL
}

// everydayPages are the tests in the browser that do not need LONG_TESTS.
var everydayPages = map[string]bool{"TestConsoleFirstVisit": true, "TestConsoleFollowsTask": true, "TestConsoleActions": true,
	"TestConsoleKeepsHands": true, "TestConsolePictures": true}

// newPage opens an empty tab with its own storage. At the end of the test it must have seen no
// script error, no breach of its policy, and no request to another origin.
func newPage(t testing.TB) *page {
	t.Helper()
	wire.Slow(t)
	if !everydayPages[t.Name()] {
		wire.Long(t)
	}
	if raceDetector() {
		wire.Skip(t, "the browser is too slow for a server with the race detector")
	}
	b, err := sharedBrowser()
	if errors.Is(err, errNoBrowser) {
		wire.Lack(t, "chromium", "%v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	browserUsed = true
	p := &page{t: t, b: b, contracts: map[string]*wire.Contract{}}
	var made struct{ BrowserContextID, TargetID, SessionID string }
	p.browserCommand("Target.createBrowserContext", nil, &made)
	p.browserCommand("Target.createTarget", object{"url": "about:blank", "browserContextId": made.BrowserContextID}, &made)
	p.browserCommand("Target.attachToTarget", object{"targetId": made.TargetID, "flatten": true}, &made)
	p.session = made.SessionID
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.command(domain+".enable", nil, nil)
	}
	p.size(1280, 900)
	t.Cleanup(func() {
		b.mu.Lock()
		delete(b.pages, p.session)
		b.mu.Unlock()
		b.send("", "Target.disposeBrowserContext", object{"browserContextId": made.BrowserContextID})
		p.wantNoProblems()
	})
	return p
}

// browserCommand is a command to the browser as a whole.
func (p *page) browserCommand(method string, params, into any) {
	p.t.Helper()
	result := wire.Must(p.b.send("", method, params))(p.t)
	if err := json.Unmarshal(result, into); err != nil {
		p.t.Fatal(err)
	}
}

// command sends a command to the page and decodes its result, unless into is nil.
func (p *page) command(method string, params, into any) {
	p.t.Helper()
	result := wire.Must(p.b.send(p.session, method, params))(p.t)
	if into == nil {
		return
	}
	if err := json.Unmarshal(result, into); err != nil {
		p.t.Fatal(err)
	}
}

// happened notes an event of the page.
func (p *page) happened(m browserMessage) {
	var e struct {
		Request          struct{ Method, URL string }
		DocumentURL      string // of the page that makes the request
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Entry struct{ Source, Level, Text, URL string }
		Type  string
		Args  []struct{ Value, Description any }
	}
	json.Unmarshal(m.Params, &e)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.Method+" "+e.Request.URL)
		p.judge(e.Request.Method, e.Request.URL, e.DocumentURL)
	case "Runtime.exceptionThrown":
		p.problems = append(p.problems, "script error: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		if e.Entry.Level == "error" && e.Entry.Source != "network" { // an answer of 404 is not an error of the page
			p.problems = append(p.problems, "logged: "+e.Entry.Text)
		}
	case "Runtime.consoleAPICalled":
		if e.Type == "error" {
			p.problems = append(p.problems, fmt.Sprint("console.error: ", e.Args))
		}
	}
}

// judge notes a request to elsewhere than the service of the page that makes it, and one that is neither for a
// file of the console nor documented, with each parameter.
func (p *page) judge(method, address, from string) {
	service := serviceOf(from)
	target, own := strings.CutPrefix(address, service)
	switch contract := p.contracts[service]; {
	case address == "about:blank" || strings.HasPrefix(address, "data:") || strings.HasSuffix(address, "/favicon.ico"): // which the browser asks for
	case contract == nil || !own:
		p.problems = append(p.problems, "a request to "+address+" from "+from)
	case !(method == "GET" && strings.HasPrefix(target, "/console")) && !contract.Documents(method, target):
		p.problems = append(p.problems, "a request that is not documented: "+method+" "+target)
	}
}

func (p *page) wantNoProblems() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.t.Error("the page: ", problem)
	}
	p.problems = nil
}

var (
	originOf = regexp.MustCompile(`^\w+://[^/]*`)
	// ownPath is where the paths of the service begin in the path of one of its pages.
	ownPath = regexp.MustCompile(`/(?:console|api-docs|health)|/?(?:\?|#|$)`)
)

// serviceOf returns the URL of the service, without a slash at its end, that has a page.
func serviceOf(page string) string {
	origin := originOf.FindString(page)
	return page[:len(origin)+ownPath.FindStringIndex(page[len(origin):])[0]]
}

// expect has the requests of the pages of a service judged by its document.
func (p *page) expect(address string) {
	p.t.Helper()
	service := serviceOf(address)
	p.mu.Lock()
	known := p.contracts[service] != nil
	p.mu.Unlock()
	if known {
		return
	}
	document := (&api{p.t, service}).do("GET", "/api-docs/openapi.json", "").want(200)
	contract := wire.Must(wire.NewContract(document.body, ""))(p.t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.contracts[service] = contract
}

// open goes to a page, by its path in the console of the service or by its URL, and waits until it shows texts.
func (p *page) open(address string, shown ...string) {
	p.t.Helper()
	if address == "" || address[0] == '/' {
		address = p.service + "/console" + address
	}
	p.expect(address)
	p.visit(address)
	p.waitText(shown...)
}

// visit goes to any page and waits until the document is read.
func (p *page) visit(url string) {
	p.t.Helper()
	var got struct{ ErrorText string }
	p.command("Page.navigate", object{"url": url}, &got)
	if got.ErrorText != "" {
		p.t.Fatalf("opening %s: %s", url, got.ErrorText)
	}
	p.wait(fmt.Sprintf("location.href === %q || document.readyState === 'complete'", url))
}

// eval evaluates an expression, waits for its promise, and returns its value.
func (p *page) eval(expression string) any {
	p.t.Helper()
	v, err := p.tryEval(expression)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func (p *page) tryEval(expression string) (any, error) {
	result, err := p.b.send(p.session, "Runtime.evaluate", object{
		"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true})
	if err != nil {
		return nil, err
	}
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(result, &got); err != nil {
		return nil, err
	}
	if d := got.ExceptionDetails; d != nil {
		return nil, fmt.Errorf("evaluating %.200s: %s %s", expression, d.Text, d.Exception.Description)
	}
	return got.Result.Value, nil
}

// wait waits until an expression is true. The page itself looks at it, again and again.
func (p *page) wait(condition string) {
	p.t.Helper()
	var err error
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		var held bool
		if held, err = p.holdsSoon(condition); held { // err if the page goes elsewhere meanwhile
			return
		}
	}
	text, _ := p.tryEval("location.href + '\\n' + document.body.innerText")
	p.t.Fatalf("never: %s %v\n%v", condition, errors.Join(err), text)
}

// holdsSoon reports whether a condition holds within two seconds.
func (p *page) holdsSoon(condition string) (bool, error) {
	v, err := p.tryEval(fmt.Sprintf(`new Promise((done) => {
		const until = Date.now() + 2000;
		const look = () => {
			let holds = false;
			try { holds = Boolean(%s); } catch { }
			if (holds || Date.now() > until) done(holds); else setTimeout(look, 10);
		};
		look();
	})`, condition))
	return v == true, err
}

// waitText waits until the page has shown each of the texts.
func (p *page) waitText(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.wait(fmt.Sprintf("document.body.innerText.includes(%q)", text))
	}
}

// click clicks the first visible element that a selector matches, as a mouse does, and waits for texts.
func (p *page) click(selector string, shown ...string) {
	p.t.Helper()
	p.clickAt(fmt.Sprintf("[...document.querySelectorAll(%q)].find((e) => e.checkVisibility())", selector))
	p.waitText(shown...)
}

// clickText clicks the button, link, tab or summary with a text, and waits for texts.
func (p *page) clickText(text string, shown ...string) {
	p.t.Helper()
	p.clickAt(fmt.Sprintf(`[...document.querySelectorAll("button, a, summary, [role=tab]")].filter((e) =>
		e.checkVisibility() && (e.closest("dialog") || !document.querySelector("dialog[open]"))).find((e) =>
		e.textContent.trim() === %q)`, text))
	p.waitText(shown...)
}

// until does something, and again if a condition does not hold soon.
func (p *page) until(condition string, do func()) {
	p.t.Helper()
	for range 5 {
		do()
		if held, err := p.holdsSoon(condition); held || err != nil {
			return
		}
	}
	p.wait(condition)
}

// hoverUntil moves the mouse to the element that an expression names until a condition holds: what moves meanwhile may
// have taken the place of the element.
func (p *page) hoverUntil(element, condition string) {
	p.t.Helper()
	p.until(condition, func() { p.mouse(element, "mouseMoved") })
}

// clickAt clicks the middle of the element that an expression names, again if the click does not reach it.
func (p *page) clickAt(element string) {
	p.t.Helper()
	for range 5 { // until what moves meanwhile does not take the place of the element
		p.mouse(element, "mouseMoved", "mousePressed", "mouseReleased")
		if hit, err := p.tryEval("window.clicked"); err != nil || hit != false { // an error if the click left the page
			return
		}
	}
}

// mouse does things with the mouse in the middle of an element, once that stays where it is.
func (p *page) mouse(element string, what ...string) {
	p.t.Helper()
	p.wait(element)
	at := p.eval(fmt.Sprintf(`(async () => {
		for (let last = "", e; ; await new Promise((done) => setTimeout(done, 30))) {
			if (!(e = %s)) continue;
			e.scrollIntoView({ block: "center", behavior: "instant" });
			const r = e.getBoundingClientRect(), at = [r.x + r.width / 2, r.y + r.height / 2];
			if (last === at.join()) {
				window.clicked = false;
				addEventListener("pointerdown", (press) => { window.clicked = e.contains(press.target); }, { capture: true, once: true });
				addEventListener("pointerup", () => { window.clicked &&= e.isConnected; }, { capture: true, once: true });
				return at;
			}
			last = at.join();
		}
	})()`, element)).([]any)
	for _, w := range what {
		p.command("Input.dispatchMouseEvent", object{
			"type": w, "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	}
}

// countRequests counts the requests of the page for documents and files whose path has a part.
func (p *page) countRequests(part string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if strings.Contains(r, part) {
			n++
		}
	}
	return n
}

// fill replaces the text of the input that a selector matches.
func (p *page) fill(selector, text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("document.querySelector(%q)", selector))
	for range 5 { // until the page does not take the focus away meanwhile
		p.eval(fmt.Sprintf("(() => { const e = document.querySelector(%q); e.focus(); e.select(); })()", selector))
		p.command("Input.insertText", object{"text": text}, nil)
		if v, err := p.tryEval(fmt.Sprintf("document.querySelector(%q)?.value", selector)); err != nil || v == text {
			return
		}
	}
}

// key presses a key: a character, or a name such as Enter, Escape, Tab or ArrowDown.
func (p *page) key(names ...string) {
	p.t.Helper()
	codes := map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, " ": 32}
	for _, name := range names {
		down := object{"type": "keyDown", "key": name, "windowsVirtualKeyCode": codes[name]}
		switch {
		case name == "Enter":
			down["text"] = "\r"
		case len(name) == 1:
			down["text"] = name
		}
		p.command("Input.dispatchKeyEvent", down, nil)
		p.command("Input.dispatchKeyEvent", object{"type": "keyUp", "key": name, "windowsVirtualKeyCode": codes[name]}, nil)
	}
}

// size sets the size of the page in CSS pixels.
func (p *page) size(width, height int) {
	p.t.Helper()
	p.command("Emulation.setDeviceMetricsOverride", object{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
}

// scheme sets what the system prefers: light or dark.
func (p *page) scheme(name string) {
	p.t.Helper()
	p.command("Emulation.setEmulatedMedia", object{
		"features": []any{object{"name": "prefers-color-scheme", "value": name}}}, nil)
}

// picture writes what is seen to a file in a directory, which it makes.
func (p *page) picture(dir, name string, width int, scheme string) {
	p.t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		p.t.Fatal(err)
	}
	wire.WriteFile(p.t, filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), p.capture())
}

// capture returns a picture of what is seen, as PNG, once nothing follows from a change of size or colours any more.
func (p *page) capture() []byte {
	p.t.Helper()
	p.eval(`new Promise((done) => requestAnimationFrame(() => setTimeout(done, 250)))`)
	var shot struct{ Data string }
	p.command("Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": false}, &shot)
	return wire.Must(base64.StdEncoding.DecodeString(shot.Data))(p.t)
}

// newConsole runs a test beside others: it starts the service, whose console the page is to open.
func newConsole(t *testing.T, args ...string) (*page, *program) {
	t.Helper()
	t.Parallel()
	p := newPage(t)
	s := serve(t, append([]string{"--memory"}, args...)...)
	p.service = s.ready.OrchestrationURL
	return p, s
}

// openConsole also opens a page.
func openConsole(t *testing.T, path string, args ...string) (*page, *program) {
	t.Helper()
	p, s := newConsole(t, args...)
	p.open(path)
	return p, s
}

// find is an expression for the first element of a selector with a text.
func find(selector, text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%q)].find((e) => e.checkVisibility() && e.textContent === %q)`, selector, text)
}

// count is a condition: so many elements match a selector.
func count(selector string, n int) string {
	return fmt.Sprintf(`document.querySelectorAll(%q).length === %d`, selector, n)
}

// input returns a selector of the input with a label, which it waits for.
func (p *page) input(label string) string {
	p.t.Helper()
	p.wait(find("label", label))
	return "#" + p.eval(find("label", label)+".htmlFor").(string)
}

// enter replaces the text of the input with a label.
func (p *page) enter(label, text string) {
	p.t.Helper()
	p.fill(p.input(label), text)
}

// choose chooses an option of a list by its text.
func (p *page) choose(label, option string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.value = [...e.options].find((o) => o.text === %q).value;
		for (const name of ["input", "change"]) e.dispatchEvent(new Event(name, { bubbles: true }));
	})()`, p.input(label), option))
}

// wrongAt returns what the page says is wrong with an input.
func (p *page) wrongAt(label string) string {
	p.t.Helper()
	return p.eval(fmt.Sprintf("document.querySelector(%q).textContent", p.input(label)+"-wrong")).(string)
}
