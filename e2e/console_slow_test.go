package e2e

// Why a task is slow, as the console shows it: the timeline and the critical path.

import (
	"testing"
)

// TestConsoleWhySlow shows a task that waits for a person and one that ended as stale: the wait lasts to the end of the
// axis, a sentence sums it, and the steps that the end waited for are marked. Rows of failed and critical steps come first,
// and a bar that goes on beyond the axis says so.
func TestConsoleWhySlow(t *testing.T) {
	p, s := newConsole(t, "--fixture", "--templates", templateDir(t, testTemplate("flow",
		stepSpec{name: "first", callable: "builtin:sleep", config: `{"duration_ms":2000}`},
		stepSpec{name: "short", callable: "builtin:noop"},
		stepSpec{name: "approve", callable: "t.nobody", after: []string{"first", "short"}},
		stepSpec{name: "last", callable: "builtin:sleep", config: `{"duration_ms":9000}`, after: []string{"approve"}})))
	a := s.api()
	s.clock(`{"freeze":true}`)
	id := a.create(`{"namespace":"t","name":"flow"}`)
	s.clock(`{"advance":"2s"}`)
	s.clock(`{"advance":"23s"}`)
	p.openTask(id)
	p.waitText("Critical path: 23 s of 25 s waited for a person · 2 s ran")
	const right = `.getBoundingClientRect().right`
	p.wait(`document.querySelector(".timeline .attempt.people")` + right + ` > document.querySelector(".timeline .attempt.good")` + right + ` + 300`)
	const marked = `[...document.querySelectorAll(".timeline .critical .label")].map((e) => e.textContent).join()`
	p.wait(marked + ` === "first,approve"`)
	completeStep(a, id, "approve")
	s.clock(`{"advance":"9s"}`)
	p.waitText("Critical path: 23 s of 34 s waited for a person · 11 s ran")
	p.wait(marked + ` === "first,approve,last"`)
	p.wait(`document.querySelectorAll(".graph .way").length === 1 && document.querySelector(".graph .way").getAttribute("d").match(/C/g).length === 2`)
	p.wait(count(".timeline .attempt.people", 1)) // though the wait is over
	const labels = `[...document.querySelectorAll(".timeline .label")].map((e) => e.textContent).join()`
	p.wait(labels + ` === "first,approve,last,short"`) // the critical path first
	p.eval(`(() => { const e = document.querySelector("[aria-label='Order of the steps']"); e.value = "long"; e.dispatchEvent(new Event("change")); })()`)
	p.wait(labels + ` === "last,first,short,approve"`)
	p.inspect("task-slow")

	failed := a.create(`{"namespace":"t","name":"flow"}`)
	p.openTask(failed)
	p.wait(`document.querySelector(".timeline .label") && !document.querySelector(".sum").textContent.includes("path")`) // no time has passed
	s.clock(`{"advance":"2s"}`)
	failStep(a, failed, "approve", "no")
	s.clock(`{"advance":"1h"}`)
	p.wait(labels + ` === "approve,first,short,last"`)
	p.wait(`[...document.querySelectorAll(".timeline .took")].some((e) => e.textContent === "→ 59 min 59 s")`)
}

// TestConsoleTimelineFolds folds a batch into one row of the timeline, which unfolds and stays where it was scrolled.
func TestConsoleTimelineFolds(t *testing.T) {
	p, s := newConsole(t)
	p.openTask(s.api().create(`{"namespace":"demo","name":"batch","context":{"total_items":400,"batch_size":10}}`))
	p.waitState("Complete")
	const rows = `[...document.querySelectorAll(".timeline .label")].map((e) => e.textContent).join().slice(0, 60)`
	p.wait(rows + ` === "split,▸ count × 40,total"`)
	p.clickAt(find(".timeline .label", "▸ count × 40"))
	p.wait(rows + `.startsWith("split,▾ count × 40,count_001,")`)
	p.eval(`document.querySelector(".timeline").scrollTop = 120`)
	p.clickText("Events", "split")
	p.clickText("Timeline")
	p.wait(`document.querySelector(".timeline").scrollTop === 120`) // the other tab has not lost the place
}

// TestConsoleStaleInTimeline opens a task that ended as stale: the wait that ended it is drawn to the end, with its length.
func TestConsoleStaleInTimeline(t *testing.T) {
	p, s := newConsole(t, "--fixture", "--templates", templateDir(t, `{"namespace":"t","name":"slow","version":"1.0.0",
		"lifecycle":{"max_steps_in_process_minutes":2,"staleness_action":"error"},"steps":[
		{"name":"fetch","handler":{"callable":"builtin:noop"}},{"name":"decide","handler":{"callable":"t.nobody"},"dependencies":["fetch"]}]}`))
	s.clock(`{"freeze":true}`)
	id := s.api().create(`{"namespace":"t","name":"slow"}`)
	s.clock(`{"advance":"10m"}`) // which the service looks for now and then
	s.api().await(id, "error")
	p.openTask(id)
	p.waitState("Failed")
	const bars = `[...document.querySelectorAll(".timeline .line")].map((e) => [...e.querySelectorAll(".attempt")].at(-1))`
	p.wait(bars + `.length === 2 && ` + bars + `[1].getBoundingClientRect().width > 300`)
	took := p.eval(bars + `[1].textContent`).(string)
	head := p.eval(`document.querySelector(".facts").innerText.match(/took (.*)/)[1]`).(string)
	if took != "ready for, "+head && took != "waited for a person for, "+head {
		t.Errorf("got the wait %q of a task that took %s", took, head)
	}
	p.wait(`!document.querySelector(".timeline .now")`)
}
