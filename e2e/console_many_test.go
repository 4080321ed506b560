package e2e

// The pages of the console that show many at once, in a browser: failures by cause, steps that wait for people, check
// boxes and actions on all that match.

import (
	"fmt"
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

// actOn acts on a step of a task by its name.
func (s *api) actOn(id, name, action string) {
	s.t.Helper()
	for _, step := range s.steps(id) {
		if step.Name == name {
			s.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+step.StepUUID, action).want(200)
		}
	}
}

// failStep fails a step that waits for an outside actor for good.
func failStep(a *api, id, name, message string) {
	a.t.Helper()
	a.actOn(id, name, fmt.Sprintf(`{"action_type":"fail","failed_by":"test","reason":"fine",
		"error":{"message":%q,"error_type":"CardError","retryable":false}}`, message))
}

// completeStep completes a step that waits for an outside actor, with a result or {}.
func completeStep(a *api, id, name string, result ...string) {
	a.t.Helper()
	a.actOn(id, name, fmt.Sprintf(`{"action_type":"complete_manually","completed_by":"test","reason":"fine",
		"completion_data":{"result":%s}}`, append(result, "{}")[0]))
}

// TestConsoleFailures finds the cause that stops the most tasks at the top, and sets all of them going with one reason.
func TestConsoleFailures(t *testing.T) {
	p, s := openConsole(t, "/failures")
	p.waitText("Nothing is failing")
	stuck := failApprovals(s.api(), 3, "insufficient funds")
	failApprovals(s.api(), 1, "no such account")
	p.wait(`[...document.querySelectorAll(".cause")].map((e) => e.querySelector("h2").innerText + e.querySelector(".cause-count").innerText).join() ===
		"approve · CardError: insufficient funds3 stuck,approve · CardError: no such account1 stuck"`)
	p.inspect("failures")
	p.clickText("Reset 3 …", "3 steps match.")
	p.enter("Reason", "the bank is back")
	p.inspect("many-form")
	p.clickText("The same as a command")
	p.wait(`document.querySelector("dialog").innerText.includes("stepwell step reset --group ")`)
	p.clickText("Reset 3 steps", "3 reset: 0 done, 3 still running.")
	p.key("Escape")
	p.wait(count(".cause", 1))
	for _, id := range stuck {
		for _, step := range s.api().steps(id) {
			audit := s.api().do("GET", "/v1/tasks/"+id+"/workflow_steps/"+step.StepUUID+"/audit", "").want(200)
			if got := strings.Contains(string(audit.body), "the bank is back"); got != (step.Name == "approve") {
				t.Errorf("step %s: got an audit with the reason: %v", step.Name, got)
			}
		}
	}
	p.open("/dlq")
	p.wait(`[...document.querySelectorAll(".nav [data-count]")].map((a) => a.text + a.dataset.count).join() === "Failures1,Waits for me3,Dead letters4"`)
}

// TestConsoleVerdict tries ten of those that fail for one cause, reads what became of them as it happens, goes on with
// the rest, and finds on the page of the audit who did it and why.
func TestConsoleVerdict(t *testing.T) {
	var broken, slow atomic.Bool
	broken.Store(true)
	release := make(chan struct{})
	p, s := newConsole(t, "--templates", templateDir(t, testTemplate("flow", stepSpec{name: "charge", callable: "t.charge"})),
		"--handler", fails(t, func(int) any {
			if broken.Load() {
				return stepError("the bank is closed", "BankError", false)
			}
			if slow.Load() {
				<-release
			}
			return stepError("no such card", "CardError", false)
		}))
	a := s.api()
	for range 12 {
		a.await(a.create(`{"namespace":"t","name":"flow"}`), "blocked_by_failures")
	}
	p.open("/failures")
	p.clickText("Reset 12 …", "12 steps match.")
	p.enter("Reason", "the bank opens")
	p.enter("Your name", "alice")
	broken.Store(false)
	slow.Store(true)
	p.clickText("Try 10 first", "Done: 10 steps", "10 reset: 0 done, 10 still running.")
	p.inspect("many-verdict")
	close(release)
	p.waitText("10 reset: 0 done, 10 failed again: 1 new cause.")
	p.clickText("Go on with 2 more …", "2 steps match.")
	p.key("Escape")
	p.clickText("Audit", "the bank opens")
	p.wait(`[...document.querySelector("tbody tr").cells].slice(1, 4).map((e) => e.innerText.split("\n")[0]).join() === "alice,Reset,the bank opens"`)
	p.clickText("What became of them", "10 reset: 0 done, 10 failed again: 1 new cause.")
	p.inspect("audit")
	p.enter("Who", "bob")
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
	p, s := openConsole(t, "/waits", "--templates", templateDir(t, refundTemplate))
	p.waitText("Nothing waits for you")
	a := s.api()
	create := func(order string) string {
		return a.create(`{"namespace":"shop","name":"refund","context":{"order_id":"` + order + `"}}`)
	}
	first := create("ORD-1")
	p.waitText("ORD-1") // by itself
	p.click("summary")
	p.enter("Note", "ok")
	others := []string{create("ORD-2"), create("ORD-3")}
	p.waitText("ORD-3")
	if p.eval(`document.activeElement.value`) != "ok" {
		t.Error("steps that came took the focus from what is typed")
	}
	p.clickText("Complete the step")
	p.wait(`document.querySelector(".wait-card .wrong:not(:empty)")`)
	if got := p.wrongAt("Note"); got != "Enter at least 3 characters." {
		t.Errorf("got %q at the note; want its limit", got)
	}
	p.enter("Note", "paid twice")
	p.choose("Approved", "Yes")
	p.inspect("waits")
	p.clickText("Complete the step")
	a.await(first, "complete")
	p.wait(count(".wait-card", 2))

	// What is typed stays when somebody else has acted, and the card says so.
	p.click("summary")
	p.enter("Note", "half a word")
	completeStep(a, others[0], "decide", `{"approved":false,"note":"by another"}`)
	p.waitText("This step no longer waits")
	p.wait(fmt.Sprintf("document.querySelector(%q).value === 'half a word'", p.input("Note")))

	p.click(`.wait-card:last-child input[type=checkbox]`, "1 step selected")
	p.clickText("Complete …", "1 step matches.")
	p.fill("dialog input[placeholder^=Why]", "the books agree")
	p.clickText("Complete 1 step")
	p.wait(count("dialog .wrong:not(:empty)", 2)) // both members are required
	p.fill("dialog input[type=text]", "all fine")
	p.eval(`(() => { const e = document.querySelector("dialog select"); e.value = "0"; e.dispatchEvent(new Event("change", { bubbles: true })); })()`)
	p.clickText("Complete 1 step")
	a.await(others[1], "complete")
}

// TestConsoleResultForms asks for the result of a step by the form of its schema wherever a step is completed.
func TestConsoleResultForms(t *testing.T) {
	p, s := openConsole(t, "/tasks", "--templates", templateDir(t, refundTemplate))
	a := s.api()
	id := a.create(`{"namespace":"shop","name":"refund","context":{"order_id":"ORD-1"}}`)
	failStep(a, id, "decide", "nobody agrees")
	a.await(id, "blocked_by_failures")
	for _, path := range []string{"/failures", "/tasks/" + id} {
		p.open(path)
		p.clickText("Complete …")
		p.wait(`[...document.querySelectorAll("dialog:last-of-type label")].some((e) => e.textContent === "Note")`)
	}
	p.enter("Note", "no")
	p.enter("Reason", "asked by telephone")
	p.choose("Approved", "Yes")
	p.clickText("Complete the step")
	p.wait(`document.querySelector("dialog .wrong:not(:empty)").textContent === "Enter at least 3 characters."`)
	p.inspect("complete-form")
	p.enter("Note", "agreed")
	p.clickText("Complete the step")
	a.await(id, "complete")
}

// TestConsoleWaitsAbout shows what an answer is about if the template names nothing to search, and what the steps before
// found.
func TestConsoleWaitsAbout(t *testing.T) {
	p, s := openConsole(t, "/waits", "--templates", templateDir(t, testTemplate("ask", stepSpec{name: "look", callable: "builtin:echo"},
		stepSpec{name: "answer", callable: "people.answer", after: []string{"look"}})))
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
	ask := func(name, config string) string {
		return testTemplate(name, stepSpec{name: "answer_" + name, callable: "people.answer", config: config})
	}
	p, s := openConsole(t, "/waits", "--templates", templateDir(t, ask("soon", `{"answer_within":"3h"}`), ask("ever", "{}")))
	a := s.api()
	a.create(`{"namespace":"t","name":"ever"}`)
	soon := a.create(`{"namespace":"t","name":"soon"}`)
	p.waitText("answer_soon")
	p.wait(count(".wait-card", 2))
	p.wait(`/answer_soon.*, until /.test(document.querySelector(".wait-card").textContent)`)
	p.openTask(soon)
	p.waitText("waits for an answer until")
}

// TestConsoleSelection chooses tasks by check boxes and all that match, acts on them with one reason, and hears which were
// refused.
func TestConsoleSelection(t *testing.T) {
	p, s := newConsole(t)
	a := s.api()
	ids := failApprovals(a, 55, "insufficient funds")
	p.open("/tasks?status=blocked_by_failures,error")
	p.wait(count("tbody tr", 50))
	p.click("tbody [data-pick]", "1 task selected")
	p.clickText("Cancel tasks …", "1 task matches.")
	p.enter("Reason", "ordered twice")
	p.clickText("Cancel 1 task")
	a.await(ids[54], "cancelled")
	p.wait(`document.querySelector(".picked").hidden`)

	p.click("thead [data-pick]", "Select all 54 that match")
	p.inspect("tasks-selected")
	p.clickText("Select all 54 that match", "All 54 tasks selected")
	p.clickText("Reset …", "54 steps match.")
	p.clickText("The same as a command", "stepwell step reset --status blocked_by_failures,error --reason")
	p.enter("Reason", "the bank is back")
	p.eval(`{
		const whole = window.fetch;
		window.fetch = (path, options) => {
			if (!options?.body?.includes("as_of")) return whole(path, options);
			window.fetch = whole;
			return Promise.reject(new TypeError("the connection is cut"));
		};
	}`)
	p.clickText("Reset 54 steps", "Stopped after 0 steps.")
	p.clickText("Go on", "Done: 54 steps", "54 reset: 0 done, 54 still running.")
	p.key("Escape")
	p.waitText("No task matches") // they are not blocked any more

	p.open("/tasks")
	p.click("thead [data-pick]")
	p.clickText("Select all 55 that match")
	p.clickText("Cancel tasks …", "54 tasks match.", "1 would be refused")
	p.enter("Reason", "ordered twice")
	p.clickText("Cancel 54 tasks", "Done: 54 tasks", "1 refused")
	p.wait(`!document.querySelector("dialog").innerText.includes("Go on")`) // nothing is left
}

// TestConsoleFind finds by the end of an id as the list prints it, by a value of the context and an error. Enter opens the
// only hit. Those of one cause are one row, with a link to the list, whose rows tell the error.
func TestConsoleFind(t *testing.T) {
	p, s := newConsole(t)
	id := failApprovals(s.api(), 1, "insufficient funds")[0]
	other := s.api().create(`{"namespace":"demo","name":"approval","context":{"amount":77}}`)
	p.open("/tasks", "approval")
	find := func(text, want string) {
		t.Helper()
		p.key("q") // from wherever the last one led
		p.wait(`document.activeElement.matches("[data-search]") && location.pathname.endsWith("/tasks")`)
		p.fill("[data-search]", text)
		p.wait(fmt.Sprintf(`document.querySelector(".hits li:only-child")?.innerText.includes(%q)`, want))
		p.waitText("No name here contains “" + text + "”, but this does:")
		p.key("Enter")
		p.wait(`location.pathname.includes("/tasks/")`)
	}
	find(other[len(other)-8:], other[len(other)-8:])
	p.wait(fmt.Sprintf(`location.pathname.endsWith(%q)`, other))
	find("insufficient", "CardError")
	p.wait(fmt.Sprintf(`location.pathname.endsWith(%q) && location.search.includes("step=approve")`, id))
	find("amount=77", "amount")
	p.wait(fmt.Sprintf(`location.pathname.endsWith(%q)`, other))

	failApprovals(s.api(), 2, "insufficient funds") // hits of one cause are one row
	p.click("#find")
	p.wait(`document.activeElement.matches("[data-search]")`)
	p.fill("[data-search]", "insufficient")
	p.wait(`document.querySelector(".hits li:only-child")?.innerText.includes("and 2 more that fail for this cause")`)
	p.inspect("find")
	p.clickText("and 2 more that fail for this cause")
	p.wait(`document.querySelectorAll("tbody tr .bad-text").length === 3 &&
		[...document.querySelectorAll("tbody tr .bad-text")].every((e) => e.innerText === "approve · CardError: insufficient funds")`)
	p.fill("[data-search]", "nothing at all")
	p.waitText("Nothing else contains it either.")
	p.open("/tasks?status=cancelled&q=approval", "No name here contains “approval”, but this does:")
}

// TestConsoleService shows health, permissions and the configuration, and changes
// how times are shown.
func TestConsoleService(t *testing.T) {
	p, _ := openConsole(t, "/service", "--config", configFile(t, "[orchestration.web]\nconfig_endpoint_enabled = true\n"))
	p.waitText("new tasks are accepted")
	p.wait(`!document.querySelector(".loading")`)
	p.waitText("Authentication is off: anyone can do everything.", "No subscriber is configured")
	p.choose("Times", "ISO 8601")
	p.wait(`/it is \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/.test(document.body.innerText)`)
	p.clickText("Effective configuration", "store: ")
	p.inspect("service")
	p.open("/service") // which the browser keeps
	p.wait(`document.querySelector("select").value === "iso"`)
}

// TestConsoleSelectionBeyond selects what the pages have not loaded: steps that wait for people, and dead letters.
func TestConsoleSelectionBeyond(t *testing.T) {
	const many = 505 // more than fit into one answer
	p, s := openConsole(t, "/waits", "--templates", templateDir(t, strings.Replace(testTemplate("approval",
		stepSpec{name: "approve", callable: "people.approve"}), `"namespace":"t"`, `"namespace":"demo"`, 1), refundTemplate))
	a := s.api()
	ids := failApprovals(a, 105, "insufficient funds")
	for range many {
		a.create(`{"namespace":"demo","name":"approval"}`)
	}

	p.waitText("100 steps or more")
	p.click(".wait-card [data-pick]")
	p.clickText("Select all that match", "All that match selected")
	p.clickText("Resolve …", fmt.Sprintf("%d steps match.", many))
	p.key("Escape")
	a.create(`{"namespace":"shop","name":"refund"}`) // whose step comes after those that are shown
	p.clickText("Resolve …", "Choose steps of one kind: these are demo/approval/1.0.0/approve, shop/refund/1.0.0/decide.")
	for n := 200; n < many; n += 100 {
		p.clickText("Show more", fmt.Sprintf("%d steps or more", n))
	}
	p.clickText("Show more")
	p.wait(count(".wait-card", many+1))

	p.open("/dlq")
	p.click("thead [data-pick]")
	p.clickText(fmt.Sprintf("Select all %d that match", len(ids)))
	p.clickText("Reset …", fmt.Sprintf("%d steps match.", len(ids)))
}
