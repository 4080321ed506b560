package e2e

// What a person has in hand while pages change: the focus, a click, what is typed, selected, opened and scrolled to,
// and what a page says when it is cut off.

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// redrawn waits until the page changes, at most two seconds.
const redrawn = `new Promise((done) => {
	const watch = new MutationObserver(() => { watch.disconnect(); setTimeout(done, 30); });
	watch.observe(document.getElementById("page"), { childList: true, subtree: true, characterData: true });
	setTimeout(done, 2000);
})`

// held does something in the page, waits for a change, and returns what is lost by then: check returns that.
func (p *page) held(do, check string) {
	p.t.Helper()
	if lost := p.eval(fmt.Sprintf(`(async () => { %s; await %s; return %s; })()`, do, redrawn, check)); lost != "" {
		p.t.Errorf("lost: %v", lost)
	}
}

// press presses the mouse on an element, waits for a change of the page, and releases it.
func (p *page) press(element, condition string) {
	p.t.Helper()
	p.mouse(element, "mouseMoved", "mousePressed")
	p.eval(redrawn)
	at := p.eval(`(() => { const r = window.pressed.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`).([]any)
	p.command("Input.dispatchMouseEvent", object{"type": "mouseReleased", "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	if held, err := p.holdsSoon(condition); !held && err == nil {
		p.t.Errorf("lost: a click on %s", element)
	}
}

var consoleHands = flag.Int("console-hands", 12, "how many things TestConsoleKeepsHands does")

// TestConsoleKeepsHands works with two lists while 13 tasks fail each second: it moves the focus, clicks, types, selects,
// marks, opens and goes back, and loses nothing. All by hand: go test ./e2e -run ConsoleKeepsHands -console-hands 1000
func TestConsoleKeepsHands(t *testing.T) {
	t.Parallel()
	want := *consoleHands
	if os.Getenv("LONG_TESTS") != "" {
		want = max(want, 60)
	}
	tasks, letters := newPage(t), newPage(t)
	s := serve(t, "--memory")
	for range 60 {
		s.api().create(`{"namespace":"demo","name":"failing"}`)
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { createTasks(ctx, s.api(), "failing", time.Second/13) })

	var done atomic.Int64
	work := func(round func(i int)) func() {
		return func() {
			for i := 0; done.Load() < int64(want) && !t.Failed(); i++ {
				round(i)
			}
		}
	}
	tasks.open(s.ready.OrchestrationURL + "/console/tasks?q=f")
	letters.open(s.ready.OrchestrationURL + "/console/dlq")
	for _, p := range []*page{tasks, letters} {
		p.eval(`addEventListener("pointerdown", (e) => { 
			const pressed = window.pressed = e.target.closest("a, button");
			if (pressed?.pathname) window.was = [pressed.getBoundingClientRect().top, pressed.pathname];
		}, true);
			window.at = () => document.activeElement.outerHTML.slice(0, 90); void 0`)
		p.wait(`document.querySelector("#page tbody tr")`)
	}
	tasks.clickText("Show more")
	var both sync.WaitGroup
	both.Go(work(func(i int) { done.Add(workInTasks(tasks, 5+i*7%40)) }))
	both.Go(work(func(i int) { done.Add(workInLetters(letters, 2+i*7%40)) }))
	both.Wait()
	t.Logf("%d things done", done.Load())
}

// selectText selects the text of a cell; selected returns what is lost of that.
const (
	selectText = `const cell = document.querySelector("#page tbody tr:nth-child(3) td:nth-child(3)");
		getSelection().selectAllChildren(cell); const text = String(getSelection());`
	selected = `String(getSelection()) === text ? "" : "the selection " + text`
)

// workInTasks types, selects, scrolls, clicks on a row and comes back from its task. It returns how many things it did.
func workInTasks(p *page, row int) int64 {
	p.t.Helper()
	link := fmt.Sprintf(`document.querySelector("#page tbody tr:nth-child(%d) .what a")`, row)
	p.wait(link)
	p.held(`const input = document.querySelector("input[placeholder^=Tags]"); input.focus(); input.value = "draft";`+
		selectText+`scrollTo(0, 400); const y = scrollY`,
		`[document.activeElement === input && input.value === "draft" ? "" : "what was typed", `+selected+`,
			scrollY === y ? "" : "the scroll from " + y + " to " + scrollY].join("")`)
	p.eval(`document.querySelector("input[placeholder^=Tags]").value = ""; getSelection().removeAllRanges(); window.count = document.querySelectorAll("tbody tr").length; void 0`)
	p.eval(link + `.scrollIntoView({ block: "center", behavior: "instant" })`)
	p.press(link, `location.pathname === was[1]`)
	p.wait(`document.querySelector(".task-head")`)
	p.eval(`history.back()`)
	p.wait(`location.pathname === "/console/tasks" && document.querySelectorAll("tbody tr").length >= count`)
	top := `Math.abs(document.activeElement.getBoundingClientRect().top - was[0])`
	if held, _ := p.holdsSoon(`document.activeElement.pathname === was[1] && ` + top + ` < 200`); !held {
		p.t.Errorf("lost: the place in the list after *back*: %v, %v", p.eval("at()"), p.eval(top))
	}
	return 6 // typed, selected, scrolled, clicked, came back to the rows, and to the place
}

// workInLetters marks, selects, opens an investigation, writes in it and closes it. It returns how many things it did.
func workInLetters(p *page, row int) int64 {
	p.t.Helper()
	button := fmt.Sprintf(`document.querySelector("#page tbody tr:nth-child(%d) button")`, row)
	p.wait(button)
	p.held(`const b = `+button+`, box = b.closest("tr").querySelector("input"); b.focus(); box.click();`+selectText,
		`[document.activeElement === b ? "" : "the focus, now at " + at(), box.isConnected && box.checked ? "" : "a mark", `+selected+`].join("")`)
	p.eval(`document.querySelectorAll("#page tbody input:checked").forEach((box) => box.click())`)
	p.press(button, `document.querySelector("dialog[open] textarea")`)
	p.fill("dialog textarea", "my notes")
	p.held(`const details = document.querySelector("dialog details"); details.open = true`,
		`details.isConnected && details.open && document.querySelector("dialog textarea").value === "my notes" ? "" : "what is open or typed in the dialog"`)
	p.key("Escape")
	p.wait(`!document.querySelector("dialog")`)
	if at := p.eval(`document.activeElement === window.pressed ? "" : at()`); at != "" {
		p.t.Errorf("lost: the focus after a dialog, now at %v", at)
	}
	return 7 // moved the focus, marked, selected, clicked, typed, opened, and closed
}

// TestConsoleComesBackToRow comes back from a task to its row, which new tasks have pushed below the rows that were loaded.
func TestConsoleComesBackToRow(t *testing.T) {
	p, s := newConsole(t)
	id := s.api().create(`{"namespace":"demo","name":"approval"}`)
	p.open("/tasks")
	p.wait(`document.querySelector("tbody .what a")`)
	p.click("tbody .what a")
	p.wait(`document.querySelector(".task-head")`)
	for range 60 {
		s.api().create(`{"namespace":"demo","name":"diamond"}`)
	}
	p.eval(`history.back()`)
	p.wait(fmt.Sprintf(`document.activeElement.pathname?.endsWith(%q)`, id))
}

// TestConsoleCutOff has the service refuse what an open list reads: it says since when it is not current, and continues by
// itself once the service answers.
func TestConsoleCutOff(t *testing.T) {
	p, a, proxy := proxyConsole(t)
	id := a.create(`{"namespace":"demo","name":"approval"}`)
	for path, row := range map[string]string{"/tasks": `tr[data-id="` + id + `"]`, "/dlq": "h1"} {
		p.open(path, "Live")
		p.wait(fmt.Sprintf("document.querySelector(%q)", row))
		for _, status := range []int{http.StatusServiceUnavailable, http.StatusForbidden, http.StatusUnauthorized} {
			proxy.fail(status)
			proxy.server.CloseClientConnections()
			p.wait(`/^Not current since \d/.test(document.querySelector(".cut")?.innerText)`)
			p.size(390, 844)
			if high := p.eval(`document.querySelector(".cut").offsetHeight`).(float64); high > 170 {
				t.Errorf("%s, %d: the banner is %v pixels high on a phone; want a fifth of it at most", path, status, high)
			}
			p.size(1280, 900)
			p.wait(fmt.Sprintf("document.querySelector(%q)", row)) // what was known is still shown
			again := find(".cut button", "Try again")
			if status == http.StatusForbidden {
				p.wait(again)
			}
			proxy.fail(0)
			switch status {
			case http.StatusUnauthorized:
				p.clickText("Enter a credential …")
				p.inspect("cut-off-401")
				p.fill("dialog form.signin input", "another-token")
				p.key("Enter")
			case http.StatusForbidden: // the page may have recovered meanwhile, since it also follows the events again by itself
				p.eval(again + "?.click()")
			}
			p.wait(`!document.querySelector(".cut")`)
		}
		p.waitText("Live")
	}
}

// TestConsoleFormSignsIn has the credential refused when a form is sent: it asks for another one, closes that and goes on.
func TestConsoleFormSignsIn(t *testing.T) {
	p, a, proxy := proxyConsole(t)
	id := a.create(`{"namespace":"demo","name":"approval"}`)
	p.open("/tasks/" + id)
	p.clickText("Cancel the task …")
	p.enter("Reason", "ordered twice")
	proxy.fail(http.StatusUnauthorized)
	p.clickText("Cancel the task")
	p.wait(`document.querySelector("dialog .signin")`)
	proxy.fail(0)
	p.fill("dialog .signin input", "another-token")
	p.key("Enter")
	a.await(id, "cancelled")
	p.wait(`!document.querySelector("dialog")`)
}

// TestConsoleKeepsDraft types into the form that starts a task: what is typed stays when the credential is renewed, and is
// there again on *back*.
func TestConsoleKeepsDraft(t *testing.T) {
	p, _ := openConsole(t, "/start/demo/batch/1.0.0")
	p.enter("Context", `{"total_items": 7}`)
	p.clickText("Reason, tags, priority and key")
	p.enter("Reason", "a long reason")
	p.eval(`import(document.querySelector("script").src.replace("begin.js", "api.js")).then((api) => api.setCredential({ kind: "token", value: "x" }))`)
	p.clickText("Templates", "demo/batch")
	p.eval(`history.back()`)
	back := find("label", "Context") + `?.control?.value.includes("7")`
	p.wait(back)
	if got := p.eval(`[...document.querySelectorAll("input")].map((e) => e.value).join()`); got != "a long reason,,0," {
		t.Errorf("got %v; want the reason", got)
	}
	p.eval(`location.reload()`)
	p.wait(back)
}

// TestConsoleForgets types into forms, and forgets the credential: nothing of what was typed is left, neither in the page nor
// where it lay for the way back.
func TestConsoleForgets(t *testing.T) {
	keys := strings.Replace(consoleKeys, `["tasks:list"`, `["tasks:create", "tasks:list"`, 1)
	p, _ := newConsole(t, "--config", configFile(t, keys))
	enter := func() {
		p.wait(`document.querySelector("form.signin input")`)
		p.eval(`document.querySelector("form.signin select").value = "key"`)
		p.fill("form.signin input", "key-of-the-reader")
		p.key("Enter")
	}
	p.open("/start/demo/batch/1.0.0")
	enter()
	context := find("label", "Context") + `?.control?.value`
	p.wait(context)
	was := p.eval(context)
	p.enter("Context", `{"total_items": 7, "typed": "by-the-first"}`)
	p.clickText("Reason, tags, priority and key")
	p.enter("Reason", "by-the-first")
	p.clickText("Credentials")
	p.clickText("Forget it", "Credentials needed")
	if got := p.eval(`JSON.stringify([{ ...sessionStorage }, { ...localStorage }])`).(string); strings.Contains(got, "by-the-first") {
		t.Errorf("the browser keeps %s", got)
	}
	enter()
	p.wait(context)
	got := p.eval(`[...document.querySelectorAll("input, textarea")].map((e) => e.value).join()`).(string)
	if strings.Contains(got, "by-the-first") || p.eval(context) != was {
		t.Errorf("got %s; want what the form begins with, %v", got, was)
	}
}
