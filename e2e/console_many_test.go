package e2e

// The pages of the console that show many at once, in a browser: failures by cause, steps that wait for people, check
// boxes and actions on all that match.

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// failApprovals creates tasks whose step approve failed for good with a message, and returns their ids.
func failApprovals(a *api, n int, message string) (ids []string) {
	a.t.Helper()
	for range n {
		id := a.create(`{"namespace":"demo","name":"approval"}`)
		failStep(a, id, "approve", message)
		ids = append(ids, id)
	}
	return ids
}

// failStep fails a step that waits for an outside actor for good.
func failStep(a *api, id, name, message string) {
	a.t.Helper()
	for _, step := range a.steps(id) {
		if step.Name == name {
			a.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+step.StepUUID, fmt.Sprintf(`{"action_type":"fail","failed_by":"test",
				"error":{"message":%q,"error_type":"CardError","retryable":false},"reason":"fine"}`, message)).want(200)
		}
	}
}

// TestConsoleFailures finds the cause that stops the most tasks at the top, and sets all of them going with one reason.
func TestConsoleFailures(t *testing.T) {
	t.Parallel()
	p, s := openConsole(t, "/failures")
	p.waitText("Nothing is failing")
	stuck := failApprovals(s.api(), 3, "insufficient funds")
	failApprovals(s.api(), 1, "no such account")
	p.wait(`[...document.querySelectorAll(".cause")].map((e) => e.querySelector("h2").innerText + e.querySelector(".cause-count").innerText).join() ===
		"approve · CardError: insufficient funds3 stuck,approve · CardError: no such account1 stuck"`)
	p.inspect("failures")
	p.clickText("Reset 3 …")
	p.waitText("3 steps match.")
	p.fill(p.input("Reason"), "the bank is back")
	p.inspect("many-form")
	p.clickText("The same as a command")
	p.wait(`document.querySelector("dialog").innerText.includes("stepwell step reset --group ")`)
	p.clickText("Reset 3 steps")
	p.waitText("3 reset: 0 done, 3 still running.")
	p.key("Escape")
	p.wait(`document.querySelectorAll(".cause").length === 1`)
	for _, id := range stuck {
		for _, step := range s.api().steps(id) {
			audit := s.api().do("GET", "/v1/tasks/"+id+"/workflow_steps/"+step.StepUUID+"/audit", "").want(200)
			if got := strings.Contains(string(audit.body), "the bank is back"); got != (step.Name == "approve") {
				t.Errorf("step %s: got an audit with the reason: %v", step.Name, got)
			}
		}
	}
	for _, path := range []string{"/analytics", "/dlq"} {
		p.open(s.ready.OrchestrationURL + "/console" + path)
		p.wait(`document.querySelector(".top:not([hidden])").innerText.includes("approve · CardError: no such account")`)
		p.wait(`[...document.querySelectorAll(".nav [data-count]")].map((a) => a.text + a.dataset.count).join() === "Failures1,Waits for me3,Dead letters4"`)
	}
}

// TestConsoleVerdict tries ten of those that fail for one cause, reads what became of them as it happens, goes on with
// the rest, and finds on the page of the audit who did it and why.
func TestConsoleVerdict(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	var broken, slow atomic.Bool
	broken.Store(true)
	release := make(chan struct{})
	s := serve(t, "--memory", "--templates", templateDir(t, testTemplate("flow", stepSpec{name: "charge", callable: "t.charge"})),
		"--handler", fails(t, func(int) any {
			if !broken.Load() {
				if slow.Load() {
					<-release
				}
				return object{"success": false, "error": object{"message": "no such card", "error_type": "CardError", "retryable": false}}
			}
			return object{"success": false, "error": object{"message": "the bank is closed", "error_type": "BankError", "retryable": false}}
		}))
	a := s.api()
	for range 12 {
		a.await(a.create(`{"namespace":"t","name":"flow"}`), "blocked_by_failures")
	}
	p.open(s.ready.OrchestrationURL + "/console/failures")
	p.clickText("Reset 12 …")
	p.waitText("12 steps match.")
	p.fill(p.input("Reason"), "the bank opens")
	p.fill(p.input("Your name"), "alice")
	broken.Store(false)
	slow.Store(true)
	p.clickText("Try 10 first")
	p.waitText("Done: 10 steps")
	p.waitText("10 reset: 0 done, 10 still running.")
	p.inspect("many-verdict")
	close(release)
	p.waitText("10 reset: 0 done, 10 failed again: 1 new cause.")
	p.clickText("Go on with 2 more …")
	p.waitText("2 steps match.")
	p.key("Escape")
	p.clickText("Audit")
	p.waitText("the bank opens")
	p.wait(`[...document.querySelector("tbody tr").cells].slice(1, 4).map((e) => e.innerText.split("\n")[0]).join() === "alice,Reset,the bank opens"`)
	p.clickText("What became of them")
	p.waitText("10 reset: 0 done, 10 failed again: 1 new cause.")
	p.inspect("audit")
	p.fill(p.input("Who"), "bob")
	p.key("Enter")
	p.waitText("Nothing was done")
	p.wait(`location.search === "?actor=bob"`)
}

// refundTemplate has a step for people with a schema of its result.
const refundTemplate = `{"namespace":"shop","name":"refund","version":"1.0.0","search":["order_id"],"steps":[
	{"name":"decide","handler":{"callable":"people.decide"},"result_schema":{"type":"object","required":["approved","note"],
		"properties":{"approved":{"type":"boolean","title":"Approved"},"note":{"type":"string","title":"Note","minLength":3}}}},
	{"name":"pay","handler":{"callable":"builtin:echo"},"dependencies":["decide"]}]}`

// TestConsoleWaits answers a step for people by the form of its schema, keeps what is typed while other steps come and
// go, and completes the others together.
func TestConsoleWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "refund.json"), []byte(refundTemplate))
	p, s := openConsole(t, "/waits", "--templates", dir)
	p.waitText("Nothing waits for you")
	a := s.api()
	create := func(order string) string {
		return a.create(`{"namespace":"shop","name":"refund","context":{"order_id":"` + order + `"}}`)
	}
	first := create("ORD-1")
	p.waitText("ORD-1") // by itself
	p.click("summary")
	p.fill(p.input("Note"), "ok")
	others := []string{create("ORD-2"), create("ORD-3")}
	p.waitText("ORD-3")
	p.clickText("Complete the step")
	p.wait(`document.querySelector(".wait-card .wrong:not(:empty)")`)
	if got := p.wrongAt("Note"); got != "Enter at least 3 characters." {
		t.Errorf("got %q at the note; want its limit", got)
	}
	p.fill(p.input("Note"), "paid twice")
	p.choose("Approved", "Yes")
	p.inspect("waits")
	p.clickText("Complete the step")
	a.await(first, "complete")
	p.wait(`document.querySelectorAll(".wait-card").length === 2`)

	// What is typed stays when somebody else has acted, and the card says so.
	p.click("summary")
	p.fill(p.input("Note"), "half a word")
	completeStepWith(a, others[0], "decide", `{"approved":false,"note":"by another"}`)
	p.waitText("This step no longer waits")
	p.wait(fmt.Sprintf("document.querySelector(%q).value === 'half a word'", p.input("Note")))

	p.click(`.wait-card:last-child input[type=checkbox]`)
	p.waitText("1 step selected")
	p.clickText("Complete …")
	p.waitText("1 step matches.")
	p.fill("dialog input[placeholder^=Why]", "the books agree")
	p.clickText("Complete 1 step")
	p.wait(`document.querySelectorAll("dialog .wrong:not(:empty)").length === 2`) // both members are required
	p.fill("dialog input[type=text]", "all fine")
	p.eval(`(() => { const e = document.querySelector("dialog select"); e.value = "0"; e.dispatchEvent(new Event("change", { bubbles: true })); })()`)
	p.clickText("Complete 1 step")
	a.await(others[1], "complete")
}

// TestConsoleResultForms asks for the result of a step by the form of its schema wherever a step is completed.
func TestConsoleResultForms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "refund.json"), []byte(refundTemplate))
	p, s := openConsole(t, "/tasks", "--templates", dir)
	a := s.api()
	id := a.create(`{"namespace":"shop","name":"refund","context":{"order_id":"ORD-1"}}`)
	failStep(a, id, "decide", "nobody agrees")
	a.await(id, "blocked_by_failures")
	for _, path := range []string{"/failures", "/dlq", "/tasks/" + id} {
		p.open(s.ready.OrchestrationURL + "/console" + path)
		if path == "/dlq" {
			p.clickUntil("Investigate", `document.querySelector("dialog[open]") !== null`)
		}
		p.clickText("Complete …")
		p.wait(`[...document.querySelectorAll("dialog:last-of-type label")].some((e) => e.textContent === "Note")`)
	}
	p.fill(p.input("Note"), "no")
	p.fill(p.input("Reason"), "asked by telephone")
	p.choose("Approved", "Yes")
	p.clickText("Complete the step")
	p.wait(`document.querySelector("dialog .wrong:not(:empty)").textContent === "Enter at least 3 characters."`)
	p.inspect("complete-form")
	p.fill(p.input("Note"), "agreed")
	p.clickText("Complete the step")
	a.await(id, "complete")
}

// TestConsoleWaitsAbout shows what an answer is about if the template names nothing to search, and what the steps before
// found.
func TestConsoleWaitsAbout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "ask.json"), []byte(`{"namespace":"t","name":"ask","version":"1.0.0","steps":[
		{"name":"look","handler":{"callable":"builtin:echo"}},{"name":"answer","handler":{"callable":"people.answer"},"dependencies":["look"]}]}`))
	p, s := openConsole(t, "/waits", "--templates", dir)
	id := s.api().create(`{"namespace":"t","name":"ask","context":{"order":"ORD-9","lines":[1]}}`)
	p.waitText(id[len(id)-8:])
	p.click(".wait-card summary")
	p.wait(`document.querySelector(".wait-card summary .about-pairs").innerText.split("\n").join() === "order,ORD-9"`)
	p.clickText("Results of the steps before")
	p.wait(`document.querySelector(".wait-card .form .form strong").textContent === "look"`)
	p.inspect("waits-about")
}

// TestConsoleDeadline shows the step with the nearest deadline first, and until when it must be answered.
func TestConsoleDeadline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, config := range map[string]string{"soon": `{"answer_within":"3h"}`, "ever": "{}"} {
		writeFile(t, filepath.Join(dir, name+".json"), fmt.Appendf(nil, `{"namespace":"t","name":%q,"version":"1.0.0","identity_strategy":"always_unique",
			"steps":[{"name":"answer_%[1]s","handler":{"callable":"people.answer","initialization":%[2]s}}]}`, name, config))
	}
	p, s := openConsole(t, "/waits", "--templates", dir)
	a := s.api()
	a.create(`{"namespace":"t","name":"ever"}`)
	soon := a.create(`{"namespace":"t","name":"soon"}`)
	p.waitText("answer_soon")
	p.wait(`document.querySelectorAll(".wait-card").length === 2`)
	p.wait(`/answer_soon.*, until /.test(document.querySelector(".wait-card").textContent)`)
	p.openTask(s, soon)
	p.waitText("waits for an answer until")
}

// completeStepWith completes a step with a result.
func completeStepWith(a *api, id, name, result string) {
	a.t.Helper()
	for _, step := range a.steps(id) {
		if step.Name == name {
			a.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+step.StepUUID, `{"action_type":"complete_manually",
				"completion_data":{"result":`+result+`},"reason":"fine","completed_by":"test"}`).want(200)
		}
	}
}

// TestConsoleSelection chooses tasks by check boxes and all that match, acts on them with one reason, and hears which were
// refused.
func TestConsoleSelection(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	s := serve(t, "--memory")
	a := s.api()
	ids := failApprovals(a, 55, "insufficient funds")
	p.open(s.ready.OrchestrationURL + "/console/tasks?status=blocked_by_failures")
	p.wait(`document.querySelectorAll("tbody tr").length === 50`)
	p.click("tbody [data-pick]")
	p.waitText("1 task selected")
	p.clickText("Cancel tasks …")
	p.waitText("1 task matches.")
	p.fill(p.input("Reason"), "ordered twice")
	p.clickText("Cancel 1 task")
	a.await(ids[54], "cancelled")
	p.wait(`document.querySelector(".picked").hidden`)

	p.click("thead [data-pick]")
	p.waitText("Select all 54 that match")
	p.inspect("tasks-selected")
	p.clickText("Select all 54 that match")
	p.waitText("All 54 tasks selected")
	p.clickText("Reset …")
	p.waitText("54 steps match.")
	p.fill(p.input("Reason"), "the bank is back")
	p.clickText("Reset 54 steps")
	p.waitText("Done: 54 steps")
	p.key("Escape")
	for _, id := range ids[:54] {
		a.await(id, "steps_in_process")
	}
	p.wait(`[...document.querySelectorAll("tbody tr")].filter((row) => row.innerText.includes("In progress")).length === 49`)
}

// TestConsoleFind finds by the end of an id as the list prints it, by a value of the context, a step and an error. One hit
// opens it.
func TestConsoleFind(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	s := serve(t, "--memory")
	id := failApprovals(s.api(), 1, "insufficient funds")[0]
	other := s.api().create(`{"namespace":"demo","name":"approval","context":{"amount":77}}`)
	p.open(s.ready.OrchestrationURL + "/console/tasks")
	p.waitText("approval")
	find := func(text, want string) {
		t.Helper()
		p.key("q")
		p.fill("dialog input", text)
		p.wait(fmt.Sprintf(`document.querySelector("dialog .hits li:only-child").innerText.includes(%q)`, want))
		p.key("Enter")
		p.wait(`!document.querySelector("dialog")`)
	}
	find(other[len(other)-8:], other[len(other)-8:])
	p.wait(fmt.Sprintf(`location.pathname.endsWith(%q)`, other))
	find("insufficient", "CardError")
	p.wait(fmt.Sprintf(`location.pathname.endsWith(%q) && location.search.includes("step=approve")`, id))
	find("amount=77", "amount")
	p.wait(fmt.Sprintf(`location.pathname.endsWith(%q)`, other))
	p.open(s.ready.OrchestrationURL + "/console/tasks") // whose box looks for what is in no name, too
	p.fill(p.input("Text"), "insufficient")
	p.waitText("No name contains “insufficient”, but this does:")
	p.wait(`document.querySelector(".hits li a").innerText.includes("CardError")`)
	p.click("#find")
	p.fill("dialog input", "approv")
	p.wait(`document.querySelectorAll("dialog .hits li").length > 1`)
	p.inspect("find")
	p.fill("dialog input", "nothing at all")
	p.waitText("Nothing matches.")
}

// TestConsoleService shows health, permissions and the configuration, sends deliveries again that were given up, changes
// how times are shown, and offers what the page has read as commands.
func TestConsoleService(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	s := serve(t, "--memory", "--config", configFile(t, "[orchestration.web]\nconfig_endpoint_enabled = true\n"))
	p.open(s.ready.OrchestrationURL + "/console/service")
	p.waitText("new tasks are accepted")
	p.wait(`!document.querySelector(".loading")`)
	p.waitText("Authentication is off: anyone can do everything.")
	p.waitText("No subscriber is configured")
	p.choose("Times", "ISO 8601")
	p.wait(`/it is \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/.test(document.body.innerText)`)
	p.clickText("Effective configuration")
	p.waitText("store: ")
	p.inspect("service")
	p.key("y")
	p.wait(`document.querySelector("dialog").innerText.includes("/v1/events/deliveries?status=dead")`)
	p.key("Escape")
	p.open(s.ready.OrchestrationURL + "/console/service") // which the browser keeps
	p.wait(`document.querySelector("select").value === "iso"`)
}

// TestConsoleSelectionBeyond selects what the pages have not loaded: steps that wait for people, and dead letters. Of
// deliveries, exactly the chosen ones are sent again.
func TestConsoleSelectionBeyond(t *testing.T) {
	t.Parallel()
	const many = 505 // more than fit into one answer
	var got atomic.Int32
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		got.Add(1)
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(gone.Close)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "paid.json"), []byte(`{"namespace":"shop","name":"paid","version":"1.0.0","steps":[
		{"name":"pay","handler":{"callable":"builtin:echo"},"publishes_events":[
			{"name":"payment.made","description":"","schema":{}},{"name":"receipt.due","description":"","schema":{}}]}]}`))
	writeFile(t, filepath.Join(dir, "approval.json"), []byte(`{"namespace":"demo","name":"approval","version":"1.0.0","identity_strategy":"always_unique","steps":[
		{"name":"approve","handler":{"callable":"people.approve"}}]}`))
	p, s := openConsole(t, "/waits", "--templates", dir, "--config", configFile(t, `[[events.subscribers]]
name = "billing"
url = "`+gone.URL+`"
events = ["*"]
secret = "`+signingSecret+`"
`))
	a := s.api()
	ids := failApprovals(a, 105, "insufficient funds")
	for range many {
		a.create(`{"namespace":"demo","name":"approval"}`)
	}
	paid := a.create(`{"namespace":"shop","name":"paid"}`)
	a.await(paid, "complete")

	p.waitText("100 steps or more")
	p.click(".wait-card [data-pick]")
	p.clickText("Select all that match")
	p.waitText("All that match selected")
	p.clickText("Resolve …")
	p.waitText(fmt.Sprintf("%d steps match.", many))
	p.key("Escape")
	for n := 200; n < many; n += 100 {
		p.clickText("Show more")
		p.waitText(fmt.Sprintf("%d steps or more", n))
	}
	p.clickText("Show more")
	p.wait(fmt.Sprintf(`document.querySelectorAll(".wait-card").length === %d`, many))

	p.open(s.ready.OrchestrationURL + "/console/dlq")
	p.click("thead [data-pick]")
	p.clickText(fmt.Sprintf("Select all %d that match", len(ids)))
	p.clickText("Reset …")
	p.waitText(fmt.Sprintf("%d steps match.", len(ids)))

	p.open(s.ready.OrchestrationURL + "/console/service")
	p.waitText("2 deliveries.")
	before := got.Load()
	p.click("tbody [data-pick]")
	p.waitText("1 delivery selected")
	p.clickText("Send again …")
	p.waitText("1 delivery matches.")
	p.fill(p.input("Reason"), "billing is back")
	p.clickText("Send again 1 delivery")
	p.waitText("1 refused") // it is gone still
	if n := got.Load() - before; n != 1 {
		t.Errorf("%d deliveries were sent again; want the chosen one", n)
	}
}
