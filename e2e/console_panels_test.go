package e2e

// The pages of the console about templates, starting tasks, dead letters, analytics and fixture
// mode, and the page of the API.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// inspect has axe-core look at what is shown in dark.
func (p *page) inspect(name string) {
	p.t.Helper()
	p.scheme("dark")
	p.wantAccessible(name + ", dark")
	p.scheme("light")
}

// orderTemplate has a schema of its input.
const orderTemplate = `{"namespace":"shop","name":"order","version":"1.2.0","description":"Takes payment, see https://wiki.example/orders#refunds.",
	"input_schema":{"type":"object","required":["order_id","amount","customer","express"],"properties":{
		"order_id":{"type":"string","title":"Order number","pattern":"^O-[0-9]+$"},
		"amount":{"type":"number","minimum":0.01,"maximum":10000},
		"currency":{"enum":["EUR","USD"],"default":"EUR"},
		"customer":{"type":"object","required":["email"],"properties":{"name":{"type":"string"},"email":{"type":"string"}}},
		"express":{"type":"boolean"},"items":{"type":"array","items":{"type":"object"}}}},
	"steps":[{"name":"reserve","handler":{"callable":"builtin:noop"}},
		{"name":"ship","handler":{"callable":"builtin:noop"},"dependencies":["reserve"]}]}`

// TestConsoleStart starts a task from a form that a schema makes, after errors at its fields, and
// again with changes.
func TestConsoleStart(t *testing.T) {
	p, s := openConsole(t, "/start/shop/order/1.2.0", "--templates", templateDir(t, orderTemplate))
	p.enter("Order number", "1234")
	p.enter("amount", "12.5")
	p.clickText("Start the task")
	for label, want := range map[string]string{
		"Order number": "This must match ^O-[0-9]+$.", "amount": "", "email": "This is required.",
		"express": "This is required.", "items (optional)": "",
	} {
		if got := p.wrongAt(label); got != want {
			t.Errorf("%s: got %q; want %q", label, got, want)
		}
	}
	p.inspect("start-errors")
	p.enter("Order number", "O-1234")
	p.enter("email", "a@example.com")
	p.enter("items (optional)", `[{"sku":1}]`)
	p.choose("express", "No")
	p.clickText("Start the task")
	p.wait(`location.pathname.startsWith("/console/tasks/")`)
	id := filepath.Base(p.eval("location.pathname").(string))
	want := `{"amount":12.5,"currency":"EUR","customer":{"email":"a@example.com"},"express":false,"items":[{"sku":1}],"order_id":"O-1234"}`
	if got := wire.Text(s.api().await(id, "complete").get("context")); got != want {
		t.Errorf("got context %s; want %s", got, want)
	}

	p.open("/start?from="+id, "Start again, with changes")
	p.enter("amount", "99")
	p.clickText("Edit as JSON")
	p.wait(fmt.Sprintf(`JSON.parse(document.querySelector(%q).value).amount === 99`, p.input("Context")))
	p.clickText("Start the task")
	p.wait(fmt.Sprintf(`location.pathname.startsWith("/console/tasks/") && !location.pathname.endsWith(%q)`, id))
	p.waitText("shop/order")
}

// TestConsoleStartAsJSON starts a task of a template without a schema. Its numbers keep their digits.
func TestConsoleStartAsJSON(t *testing.T) {
	p, s := openConsole(t, "/start/demo/batch/1.0.0")
	p.enter("Context", `[1`)
	p.clickText("Start the task")
	if got := p.wrongAt("Context"); !strings.HasPrefix(got, "This is not valid JSON") {
		t.Errorf("got %q", got)
	}
	p.enter("Context", `[1]`)
	p.clickText("Start the task", "The context must be a JSON object")
	p.enter("Context", `{"total_items": 100, "batch_size": 50, "order": 12345678901234567890, "rate": 0.1234567890123456789}`)
	p.clickText("Reason, tags, priority and key", "Key")
	p.enter("Key", "order-7")
	p.clickText("The same as a command", "--idempotency-key order-7")
	p.clickText("Start the task")
	p.wait(`location.pathname.startsWith("/console/tasks/")`)
	id := filepath.Base(p.eval("location.pathname").(string))
	s.api().await(id, "complete")
	p.waitText("demo/batch")
	p.clickText("Data", "12345678901234567890", "0.1234567890123456789")
	p.open("/start?from=" + id)
	p.wait(fmt.Sprintf(`document.querySelector(%q)?.value.includes('"order": 12345678901234567890')`, p.input("Context")))
}

// TestConsoleTemplates finds a template, with its figures, and looks at it.
func TestConsoleTemplates(t *testing.T) {
	next := strings.Replace(orderTemplate, "1.2.0", "1.10.0", 1)
	p, s := openConsole(t, "/templates", "--templates", templateDir(t, orderTemplate, next))
	p.waitText("shop/order")
	s.api().await(s.api().create(`{"namespace":"shop","name":"order"}`), "complete")
	p.open("/templates")
	row := `[...document.querySelectorAll("tbody tr")].find((r) => r.checkVisibility() && r.innerText.includes("shop/order"))`
	p.wait(row + `.cells[3].innerText === "1"`)
	if got := p.eval(row + `.innerText.split(/\s+/).slice(5, 11).join(" ")`); got != "1.10.0 1.2.0 2 1 100 %" {
		t.Errorf("got %q; want both versions, the newest first, and the success", got)
	}
	p.waitText("see https://wiki.example/orders#refunds.")
	p.inspect("templates")
	p.fill("input[type=search]", "nothing")
	p.waitText("No template matches.")
	p.fill("input[type=search]", "ORDER")
	p.wait(`[...document.querySelectorAll("tbody tr")].filter((r) => r.checkVisibility()).length === 1 && location.search === "?q=ORDER"`)
	p.clickText("shop/order")
	p.wait(`location.pathname === "/console/templates/shop/order/1.10.0"`)
	p.wait(`document.querySelectorAll(".node").length === 2 && document.querySelector(".chip[aria-current]").textContent === "1.10.0"`)
	p.clickText("Definition", "builtin:noop")
	p.inspect("template")
}

// investigate opens the form of a dead letter, from a list that may still move.
func (p *page) investigate() {
	p.t.Helper()
	p.until(`document.querySelector("dialog[open]") !== null`, func() { p.clickText("Investigate") })
}

// TestConsoleLetters looks into a dead letter, acts on its task, and notes what came of it.
func TestConsoleLetters(t *testing.T) {
	p, s := openConsole(t, "/dlq")
	p.waitText("Nothing needs you")
	p.inspect("dlq-empty")
	id := s.api().create(`{"namespace":"demo","name":"failing"}`)
	p.waitText("demo/failing") // by itself
	p.inspect("dlq")
	p.investigate()
	p.waitText("the card was declined")
	p.inspect("dlq-entry")
	p.choose("State", "Resolved")
	p.enter("Notes", "paid in cash")
	p.enter("Your name", "ann")
	p.clickText("Save", "The investigation is recorded.")
	entry := s.api().do("GET", "/v1/dlq/task/"+id, "").want(200)
	for member, want := range map[string]string{
		"resolution_status": "ManuallyResolved", "resolution_notes": "paid in cash", "resolved_by": "ann"} {
		if got := entry.text(member); got != want {
			t.Errorf("%s: got %q; want %q", member, got, want)
		}
	}
	p.clickAt(`document.querySelectorAll(".chip")[1]`)
	p.waitText("paid in cash")
	p.investigate()
	p.clickText("Act on the task")
	p.click(`.explain [aria-label="Resolve charge"]`)
	p.fill("dialog input[placeholder^=Why]", "paid in cash")
	p.clickText("Resolve the step")
	s.api().await(id, "complete")
	p.clickText("Dead letters")
	p.wait(`[...document.querySelectorAll(".chip b")].map((e) => e.textContent).join() === "0,1,0,0"`)
	over := s.api().create(`{"namespace":"demo","name":"failing"}`)
	s.api().await(over, "blocked_by_failures")
	s.api().do("DELETE", "/v1/tasks/"+over, "").want(200)
	p.clickText("Close 1 that are over …")
	p.fill("dialog:last-of-type input", "ordered twice")
	p.inspect("dlq-over")
	p.clickAt(`document.querySelector("dialog:last-of-type button[type=submit]")`)
	p.waitText("Done: 1 dead letter")
	p.wait(`[...document.querySelectorAll(".chip b")].map((e) => e.textContent).join() === "0,2,0,0"`)
	p.clickAt(`document.querySelectorAll(".chip")[1]`)
	p.waitText("ordered twice")
	s.api().do("PATCH", "/v1/dlq/entry/"+entry.text("dlq_entry_uuid"), `{"resolution_notes":"by another person"}`).want(200)
	p.waitText("by another person") // which no event reports
}

// TestConsoleAnalytics shows figures as charts and as a table.
func TestConsoleAnalytics(t *testing.T) {
	p, s := openConsole(t, "/analytics")
	p.waitText("No figures yet")
	for range 3 {
		s.api().await(s.api().create(`{"namespace":"demo","name":"diamond"}`), "complete")
	}
	s.api().await(s.api().create(`{"namespace":"demo","name":"failing"}`), "blocked_by_failures")
	p.open("/analytics")
	p.wait(`document.querySelectorAll(".chart svg").length === 2 && document.querySelectorAll(".bar-part.good").length`)
	p.clickText("The figures as a table")
	p.wait(`[2, 3, 4, 5].map((n) => [...document.querySelectorAll("details td:nth-child(" + n + ")")].reduce((sum, e) => sum + Number(e.innerText), 0)).join() === "4,3,1,0"`)
	p.wait(`document.querySelector(".chart").querySelectorAll(".hit").length >= 30`) // by the minute
	p.inspect("analytics")
	for _, period := range []string{"6 hours", "24 hours", "3 days", "7 days", "30 days"} {
		p.clickText(period)
		p.wait(fmt.Sprintf(`document.querySelector(".chip[aria-pressed=true]").textContent === %q`, period))
		p.wait(count(".chart svg", 2))
	}
	p.eval(`(() => { // a service that has counted minutes for an hour, and was used before
		const read = fetch;
		window.fetch = async (url, options) => {
			const answer = await read(url, options);
			if (!url.includes("/analytics/history")) return answer;
			const figures = await answer.json();
			figures.minutes_start = new Date(Date.parse(figures.calculated_at) - 3600e3).toISOString();
			figures.minutes = figures.minutes.slice(0, 0);
			return new Response(JSON.stringify(figures), { headers: answer.headers });
		};
	})()`)
	const note = `[...document.querySelectorAll("#page p")].some((e) => /^The charts begin at .*, when the service started to count minutes\.$/.test(e.innerText))`
	p.wait("!" + note) // on charts by the hour
	p.clickText("2 hours")
	p.wait(note)
	p.clickText("30 days")
	p.wait("!" + note)
	if got := p.eval("location.search"); got != "?hours=720" {
		t.Errorf("got %v in the address; want the period", got)
	}
}

// TestConsoleFixture moves the clock, shows a stub and what was requested, and resets the service.
func TestConsoleFixture(t *testing.T) {
	p, s := openConsole(t, "/fixture", "--fixture")
	p.clickText("Freeze", "Time is virtual and frozen at")
	id := s.api().create(`{"namespace":"demo","name":"slow"}`)
	p.waitText(", at ") // what is due next
	p.inspect("fixture")
	p.wait(`[...document.querySelectorAll("button:enabled")].some((e) => e.textContent === "To the next timer")`)
	p.clickText("To the next timer", "1 timer fired.")
	p.fill("input[aria-label='Advance by']", "1h")
	p.clickText("Advance")
	s.api().await(id, "complete")
	p.waitText("Nothing: no retry, lease or delay is pending.")
	p.clickText("Automatic", "jumps to the next timer whenever nothing runs")

	s.api().do("POST", "/_stepwell/stubs", `{"match":{"name":"approval"},"outcomes":[{"delay":"2s","result":{}}]}`).want(201)
	p.clickText("Refresh", "stub-1")
	id = s.api().create(`{"namespace":"demo","name":"approval"}`)
	s.api().await(id, "complete")
	p.clickText("Requests", "demo/approval · approve, attempt 1")
	p.inspect("fixture-requests")

	block := func(urls ...string) { // as if the service were gone
		p.command("Network.setBlockedURLs", object{"urls": append([]string{}, urls...)}, nil)
	}
	refused := func(act string) { // what cannot be read or done is said in its place
		block("*/_stepwell/requests*", "*/_stepwell/stubs")
		p.clickText(act, "The service does not respond.")
		block()
		p.clickText("Try again", "Refresh")
	}
	refused("Refresh")
	refused("Clear")
	p.clickText("Stubs", "stub-1")
	refused("Refresh")

	p.clickText("Reset …")
	p.clickText("Reset", "The service is reset.")
	if got := s.api().do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "0" {
		t.Errorf("got %s tasks after the reset; want none", got)
	}
}

// TestDocsPage follows the event stream on the page of the API, stops it, and goes to the page
// of the worker role.
func TestDocsPage(t *testing.T) {
	p, s := newConsole(t)
	p.open(s.ready.OrchestrationURL + "/api-docs/ui#streamEvents")
	p.wait(`document.querySelector("#streamEvents[open]")`)
	if got := p.eval(`[...document.querySelectorAll("#contents h2")].map((e) => e.textContent).join()`); !strings.HasPrefix(got.(string), "Tasks,Steps,Templates,") {
		t.Errorf("got groups %v; want tasks first", got)
	}
	if got := p.eval(`document.querySelector("#contents a").textContent`); got != "POSTCreate a task" {
		t.Errorf("got %v as the first operation; want the creation of a task", got)
	}
	if got := p.eval(`document.querySelector("#credentials").className`); got != "quiet" {
		t.Errorf("got the button %q; want no prominent one when authentication is off", got)
	}
	send := `[...document.querySelectorAll("#streamEvents button")].find((e) => /^(Send|Stop)/.test(e.textContent))`
	p.eval(send + ".click()") // the page may still scroll
	p.wait(send + `.textContent === "Stop" && document.querySelector("#streamEvents .answer")`)
	s.api().await(s.api().create(`{"namespace":"demo","name":"diamond"}`), "complete")
	p.wait(`document.querySelector("#streamEvents .answer pre").textContent.includes('"to_state":"complete"')`)
	p.eval(send + ".click()")
	p.wait(`document.querySelector("#streamEvents .measure").textContent.startsWith("Stream stopped · ")`)
	p.wait(send + `.textContent === "Send GET"`)

	p.wantWholeTitle()

	p.open(s.ready.WorkerURL+"/", "Stepwell worker API")
	p.wantWholeTitle()
	p.open(s.ready.MountURL+"/", "Stepwell mount API")
	p.wantWholeTitle()
	if p.eval(`document.body.textContent.includes("/v1")`) == true {
		t.Error("the mount point's page speaks of /v1")
	}
}

// wantWholeTitle checks that the page of the API shows its whole title in its bar on a phone, and is not wider.
func (p *page) wantWholeTitle() {
	p.t.Helper()
	p.size(390, 844)
	if cut := p.eval(`(() => {
		const e = document.querySelector("#title"), next = document.querySelector("#theme").getBoundingClientRect();
		return e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > next.left && e.getBoundingClientRect().bottom > next.top ||
			document.documentElement.scrollWidth > 390;
	})()`); cut != false {
		p.t.Errorf("%v: the title %v is cut on a phone", p.eval("location.href"), p.eval(`document.querySelector("#title").textContent`))
	}
	p.size(1280, 900)
}

// TestConsoleFullDisk opens the console of a service whose disk is full: it says so, and shows the tasks.
func TestConsoleFullDisk(t *testing.T) {
	p := newPage(t)
	f := newFullDiskTest(t)
	p.open(f.program.ready.OrchestrationURL + "/console/tasks")
	p.wait(`document.querySelector("[role=alert]")?.textContent.includes("no space left")`)
	p.wait(`document.querySelector("#page").textContent.includes("noop")`)
	p.inspect("a full disk")
	close(f.held.Release)
	os.Remove(f.ballast)
	f.checkWorking(t)
}
