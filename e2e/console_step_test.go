package e2e

// A step in the console: its attempts, its errors with their stack traces, and values of any size.

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// fails runs the callables t.* : the n-th attempt of a step ends with what reply returns for n, from 1.
func fails(t *testing.T, reply func(n int) any) (handler string) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(reply(int(n.Add(1))))
	}))
	t.Cleanup(s.Close)
	return "t.*=" + s.URL
}

// stepError is the reply of a handler that failed.
func stepError(message, kind string, retryable bool) object {
	return object{"success": false, "error": object{"message": message, "error_type": kind, "retryable": retryable}}
}

// traced is the reply of a handler that failed with a stack trace, and said something.
func traced(int) any {
	reply := stepError(trace, "CardError", false)
	reply["error"].(object)["context"] = object{"order": 17, "stderr": "warming up\nno route\n"}
	return reply
}

const own = "orders.CardError: insufficient_funds"

// trace is a stack trace of Python with 24 frames, three of them of the program itself.
var trace = "Traceback (most recent call last):\n  File \"/srv/app/charge.py\", line 88, in handle\n    return gateway.authorize(order)\n" +
	strings.Repeat("  File \"/usr/lib/python3.12/site-packages/urllib3/connectionpool.py\", line 300, in urlopen\n    retries = "+strings.Repeat("long", 40)+"\n", 21) +
	"  File \"/srv/app/gateway.py\", line 41, in authorize\n    check()\n  File \"/srv/app/errors.py\", line 12, in check\n    raise CardError\n" + own

// TestConsoleStackTraces shows what a stack trace and the standard error of a program say, once: the headline, and folded
// the frames in their lines, those of the program before those of libraries. The page does not grow.
func TestConsoleStackTraces(t *testing.T) {
	p, s := newConsole(t, "--templates", templateDir(t, testTemplate("flow", stepSpec{name: "charge", callable: "t.charge"})),
		"--handler", fails(t, traced))
	id := s.api().create(`{"namespace":"t","name":"flow"}`)
	s.api().await(id, "blocked_by_failures")
	p.openTask(id)
	p.click(`.node[aria-label^="charge:"]`)
	p.wait(count(".trace", 2))
	if n := strings.Count(p.eval(`document.querySelector(".step-card").innerText`).(string), own); n != 1 {
		t.Errorf("got the headline %d times in the card of the step; want it once", n)
	}
	if got := p.eval(`[...document.querySelectorAll(".trace > summary")].map((e) => e.textContent).join("; ")`); got != "Stack trace: 24 frames, 3 outside libraries; 2 lines" {
		t.Errorf("got %q", got)
	}
	for range 2 {
		if width, height := p.eval(`document.documentElement.scrollWidth`).(float64), p.eval(`document.documentElement.scrollHeight`).(float64); width > 1280 || height > 2200 {
			t.Errorf("the page is %v by %v pixels", width, height)
		}
		p.click(".trace > summary")
	}
	p.click(".trace > summary")
	const frames = `[...document.querySelectorAll(".trace[open] > pre")].map((e) => e.innerText).join("|")`
	if got, want := p.eval(frames), "File \"/srv/app/charge.py\", line 88, in handle\n  return gateway.authorize(order)\nFile \"/srv/app/gateway.py\", line 41, in authorize\n"+
		"  check()\nFile \"/srv/app/errors.py\", line 12, in check\n  raise CardError"; got != want {
		t.Errorf("got the frames %q; want %q", got, want)
	}
	if wide := p.eval(`document.querySelector(".trace[open] > pre").clientWidth`).(float64); wide < 1000 {
		t.Errorf("the frames have %v pixels; want the width of the page", wide)
	}
	p.clickText("21 frames of libraries")
	p.wait(`document.querySelector(".trace details[open] pre").innerText.split("\n").length === 42`)
	p.inspect("task-trace-open")
	p.open("/dlq")
	p.waitText("charge: insufficient_funds") // not what every traceback begins with
	p.investigate()
	p.wait(`document.querySelector("dialog .trace > summary").textContent.startsWith("Stack trace: 24 frames")`)
	s.api().actOn(id, "charge", `{"action_type":"reset_for_retry","reset_by":"test","reason":"again"}`)
	p.open("/tasks/" + id + "?step=charge")
	p.wait(`[...document.querySelectorAll(".attempts .chip")].map((e) => e.textContent).join() === "1,reset 1 · attempt 1"`)
}

// TestConsoleAttempts shows each attempt at a step with its own error, and starts the next one in its back-off. A trace
// that is unfolded stays when the next one ends.
func TestConsoleAttempts(t *testing.T) {
	p, s := newConsole(t, "--templates", templateDir(t, testTemplate("flow", stepSpec{name: "charge", callable: "t.charge",
		retry: `{"max_attempts":4,"backoff":"exponential","backoff_base_ms":600000,"max_backoff_ms":600000}`})),
		"--handler", fails(t, func(n int) any {
			if n == 3 {
				return object{"paid": true}
			}
			return stepError(fmt.Sprintf("try %d failed\n    at run (/srv/app/pay.js:3:1)", n), "Busy", true)
		}))
	id := s.api().create(`{"namespace":"t","name":"flow"}`)
	p.openTask(id)
	p.waitNode("charge", "Retry")
	p.click(`.node[aria-label^="charge:"]`, "try 1 failed")
	p.click(".trace > summary")
	for n := 2; n <= 3; n++ {
		p.clickAt(find(".step-card button", "Retry now …"))
		p.fill(`dialog input[placeholder^="Why"]`, "the gateway is back")
		p.clickText("Retry")
		p.wait(count(".attempts .chip", n))
	}
	p.waitState("Complete")
	p.wait(`document.querySelector(".attempts [aria-pressed=true]").textContent === "1" && document.querySelector(".trace[open]").innerText.includes("pay.js")`)
	p.click(".attempts .chip:last-child", "paid: true")
	p.click(".attempts .chip:nth-child(2)")
	p.wait(`document.querySelector(".attempts").innerText.includes("try 2 failed") && document.activeElement.textContent === "2"`)
	p.inspect("task-attempts")
}

// TestConsoleTaskKeepsFocus has the focus in the header of a task, what is typed in its lists and a click that spans
// events stay while events come in.
func TestConsoleTaskKeepsFocus(t *testing.T) {
	p, s := newConsole(t, "--fixture", "--templates", templateDir(t, layers("chain", 20, 1)))
	s.clock(`{"freeze":true}`)
	s.api().do("POST", "/_stepwell/stubs", `{"match":{"name":"chain"},"outcomes":[{"delay":"1s","result":{}}]}`).want(201)
	p.openTask(s.api().create(`{"namespace":"t","name":"chain"}`))
	p.clickText("Steps")
	done := 0
	more := func() {
		done++
		s.clock(`{"advance":"1s"}`)
		p.waitText(fmt.Sprintf("%d of 20 steps done", done))
	}
	for _, focus := range []string{
		`[...document.querySelectorAll(".task-head button")].at(-1)`, `document.querySelector(".task-head a.button")`, `document.querySelector(".facts a")`,
		`document.querySelector(".step-list tbody tr:nth-child(9) button")`, `document.querySelector(".chips button:nth-child(2)")`, `document.querySelector("[aria-label='About the task'] button")`,
		`document.querySelector(".step-list input")`,
	} {
		p.eval("window.at = " + focus + "; at.focus()")
		more()
		if p.eval(`document.activeElement === at`) != true {
			t.Errorf("an event took the focus from %s to %v", focus, p.eval(`document.activeElement.outerHTML.slice(0, 80)`))
		}
	}
	p.fill(".step-list input", "s1")
	more()
	p.wait(`document.querySelector(".step-list input").value === "s1" && document.querySelectorAll(".step-list tbody tr").length === 11`)
	press := func(selector string, after string) {
		p.mouse(fmt.Sprintf("document.querySelector(%q)", selector), "mouseMoved", "mousePressed")
		more()
		p.mouse(fmt.Sprintf("document.querySelector(%q)", selector), "mouseReleased")
		p.wait(after)
	}
	press(`.step-list tbody tr:nth-child(3) button`, `location.search.includes("step=s11")`)
	p.clickText("Timeline")
	press(`.timeline [data-id]:nth-child(6) .label`, `!location.search.includes("step=s11") && location.search.includes("step=")`)
	press(`.task-head button`, `document.querySelector("dialog[open]")`)
}

// blocked has a page note how long its scripts block it: the tasks of more than 50 ms, in milliseconds.
const blocked = `window.blocked = []; new PerformanceObserver((list) => {
	for (const e of list.getEntries()) window.blocked.push(Math.round(e.duration));
}).observe({ type: "longtask", buffered: true });`

// TestConsoleLargeValues shows results of 2.2 MB with a string of 1.5 MB as a tree and raw, and their last line, and no
// step of that blocks the page for longer than 100 ms when the machine has time for it.
func TestConsoleLargeValues(t *testing.T) {
	p := newPage(t)
	rows := make([]object, 9000)
	for i := range rows {
		rows[i] = object{"id": i, "name": fmt.Sprint("row ", i), "share": float64(i) / 7, "tags": []string{"a", "b"}}
	}
	s := serve(t, "--memory", "--config", configFile(t, "[worker]\nmax_result_bytes = 4194304\n"),
		"--templates", templateDir(t, testTemplate("flow", stepSpec{name: "load", callable: "t.load"})),
		"--handler", fails(t, func(int) any {
			return object{"rows": rows, "text": strings.Repeat("a line of text\n", 100_000), "z": "the end"}
		}))
	id := s.api().create(`{"namespace":"t","name":"flow"}`)
	s.api().await(id, "complete")
	p.command("Page.addScriptToEvaluateOnNewDocument", object{"source": blocked}, nil)
	p.expect(s.ready.OrchestrationURL + "/console")
	worst := map[string]float64{}
	for tries := 0; tries < 3 || tries < 12 && slices.Max(slices.Collect(maps.Values(worst))) > 100; tries++ { // other work takes time away
		p.visit(s.ready.OrchestrationURL + "/console/tasks/" + id + "?step=load")
		for _, do := range []struct{ what, click, until string }{
			{"open", ``, `document.querySelector(".result .json")`},
			{"raw", find(".result button", "Raw"), `parseInt(document.querySelector(".lines")?.ariaLabel.replace(",", "")) > 86000`},
			{"scroll", ``, `(document.querySelector(".lines").scrollTop = 1e9) && document.querySelector(".lines").innerText.includes('"z": "the end"')`},
			{"tree", find(".result button", "Raw"), `document.querySelector(".result .string button")`},
			{"string", `document.querySelector(".result .string button")`, `document.querySelector(".lines")?.ariaLabel === "100,000 lines"`},
		} {
			if do.click != "" {
				p.wait(do.click)
				p.eval(do.click + ".click()")
			}
			p.wait(do.until)
			most := p.eval(`new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(Math.max(0, ...blocked.splice(0))), 50)))`).(float64)
			if before, tried := worst[do.what]; !tried || most < before {
				worst[do.what] = most
			}
		}
	}
	t.Logf("longest tasks in milliseconds: %v", worst)
	for what, most := range worst {
		if most > 100 {
			t.Errorf("%s: the page was blocked for %v ms; want 100 at most", what, most)
		}
	}
}
