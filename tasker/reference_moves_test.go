package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"testing"
	"time"
)

// bigInteger is an integer of more than 64 bits.
const bigInteger = "123456789012345678901234567890"

// movedTasks is how many tasks TestReferenceTasks makes.
const movedTasks = 1000

// TestReferenceTasks makes tasks of every shape in every state, exports them from the service that runs and holds them, and has
// Tasker continue them.
func TestReferenceTasks(t *testing.T) {
	count := movedTasks
	if n, err := strconv.Atoi(os.Getenv("MOVED_TASKS")); err == nil {
		count = n
	}
	templates := wire.Must(filepath.Abs("testdata/moves"))(t)
	there := startReference(t, templates)
	m := &mover{t: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(7, 7))}
	data := filepath.Join(m.dir, "data")
	here := serve(t, "--data", data, "--quiet", "--templates", templates)
	m.url = here.ready.OrchestrationURL
	m.make(count)
	sql := filepath.Join(m.dir, "tasks.sql")
	refused := m.export(sql, "--url", m.url, "--hold", there.OrchestrationURL)
	here.stop()
	here = serve(t, "--data", data, "--quiet", "--templates", templates) // which runs no step of what it holds
	for round, want := range []int{count - len(refused), 0} {
		if got := there.psql(t, "-f", sql); got != strconv.Itoa(want) {
			t.Fatalf("round %d moved %s tasks; want %d", round, got, want)
		}
	}
	got := there.psql(t, "-c", "SELECT count(*) FROM tasker.tasks WHERE context->>'big' = '"+bigInteger+"'")
	if got != strconv.Itoa(count-len(refused)) {
		t.Errorf("%s tasks have an exact integer in the database; want %d", got, count-len(refused))
	}
	t.Logf("| moved | %d tasks of %d, %d refused |", count-len(refused), count, len(refused))
	m.compare(here.ready.OrchestrationURL, there.OrchestrationURL, refused)
}

// mover makes tasks in Stepwell and compares them with those of Tasker.
type mover struct {
	t         *testing.T
	dir       string
	url       string
	random    *rand.Rand
	differing map[string]int
}

// until waits until something holds.
func (m *mover) until(what string, holds func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(25 * time.Minute); !holds(); {
		if time.Now().After(deadline) {
			m.t.Fatalf("%s: not within 25 minutes", what)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// ask sends a request and returns the answer as JSON. An empty method is GET.
func (m *mover) ask(method, url string, body any) (status int, answer any) {
	m.t.Helper()
	a := (&api{m.t, url}).do(cmp.Or(method, "GET"), "", string(encode(body)))
	answer, err := wire.Decode(a.body)
	if err != nil {
		answer = string(a.body)
	}
	return a.status, answer
}

// member returns a member of a JSON value, by its path.
func member(v any, path ...string) any {
	for _, name := range path {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// make creates tasks, works on each up to a random number of steps, and leaves it in a random way.
func (m *mover) make(count int) {
	names := strings.Fields("linear diamond routing batch single chain wide layers declined nothing nested later")
	for i := range count {
		body := object{
			"namespace": "moves", "name": names[i%len(names)], "version": "1.0.0", "priority": i % 5, "reason": "move",
			"initiator": "test", "source_system": "e2e", "tags": []string{"moved", fmt.Sprint("n", i%7)},
			"context": object{
				"number": i, "work": m.random.IntN(9), "big": json.Number(bigInteger), "text": "é \" \\ \n ✓", "rate": 1.5,
				"deep": []any{nil, true, object{}},
			},
		}
		if status, answer := m.ask("POST", m.url+"/v1/tasks", body); status != http.StatusCreated {
			m.t.Fatalf("create: %d %v", status, answer)
		}
	}
	done := map[string]int64{} // steps by task
	var parked []any
	for rounds := count/100*6 + 12; ; rounds-- {
		_, answer := m.ask("POST", m.url+"/v1/steps/claim", object{
			"callables": []string{"moves.*"}, "limit": 100, "lease_seconds": 3600,
		})
		claims, _ := answer.([]any)
		for _, c := range claims {
			id, _ := member(c, "task", "task_uuid").(string)
			work, _ := member(c, "task", "context", "work").(json.Number)
			n, _ := work.Int64()
			if done[id]++; done[id] > n {
				parked = append(parked, c)
				continue
			}
			m.work(c)
		}
		if len(claims) == 0 || rounds < 0 {
			break
		}
	}
	for _, c := range parked {
		m.leave(c)
	}
	m.operate()
}

// work ends a claimed step, mostly with a result.
func (m *mover) work(claim any) {
	lease := object{"lease": member(claim, "lease")}
	switch n := m.random.IntN(100); {
	case n < 4, member(claim, "step", "name") == "patient" && n < 60:
		m.answer(claim, "fail", lease, stepFailure("no luck\n", "Luck", true))
	case n < 7:
		m.answer(claim, "fail", lease, stepFailure("refused", "Refused", false))
	case n < 12:
		m.answer(claim, "checkpoint", lease, object{
			"cursor": object{"at": n}, "items_processed": n, "accumulated_results": []int{n},
		})
	default:
		m.answer(claim, "complete", lease, object{"result": m.result(claim)})
	}
}

// stepFailure returns the body of an answer that a step failed.
func stepFailure(message, kind string, retryable bool) object {
	return object{"error": object{"message": message, "error_type": kind, "retryable": retryable}}
}

// result returns what a step of a kind results in.
func (m *mover) result(claim any) any {
	config := member(claim, "step", "config")
	if result := member(config, "result"); result != nil {
		return result
	}
	switch member(claim, "step", "name") {
	case "route", "route2":
		return object{"decision_point_outcome": object{
			"type": "create_steps", "step_names": member(config, "choose"),
		}}
	case "split":
		var cursors []any
		for i := range m.random.IntN(3) + 1 {
			cursors = append(cursors, object{
				"batch_id": fmt.Sprintf("%03d", i+1), "start_cursor": i * 10, "end_cursor": i*10 + 10, "batch_size": 10,
			})
		}
		return object{"batch_processing_outcome": object{
			"type": "create_batches", "worker_template_name": "count", "worker_count": len(cursors),
			"cursor_configs": cursors, "total_items": 10 * len(cursors),
		}}
	}
	return object{"step": member(claim, "step", "name"), "n": m.random.IntN(1000), "text": "ü\t\\"}
}

func (m *mover) answer(claim any, verb string, bodies ...map[string]any) {
	m.t.Helper()
	body := object{}
	for _, b := range bodies {
		maps.Copy(body, b)
	}
	id, _ := member(claim, "step", "step_uuid").(string)
	status, answer := m.ask("POST", m.url+"/v1/steps/"+id+"/"+verb, body)
	if status >= 300 && status != http.StatusConflict {
		m.t.Fatalf("%s of %s: %d %v", verb, member(claim, "step", "name"), status, answer)
	}
}

// leave leaves a claimed step in one of the states in which a move finds steps.
func (m *mover) leave(claim any) {
	lease := object{"lease": member(claim, "lease")}
	switch m.random.IntN(8) {
	case 0, 1:
		m.answer(claim, "checkpoint", lease, object{"cursor": 40, "items_processed": 40})
	case 2, 3:
		m.answer(claim, "fail", lease, stepFailure("later", "Later", true))
	case 4:
		m.answer(claim, "complete", lease, object{"result": m.result(claim)})
	case 5:
		m.answer(claim, "fail", lease, stepFailure("never", "Never", false))
	} // else it is in flight
}

// operate cancels some tasks, and has an operator act on some that are blocked.
func (m *mover) operate() {
	for page := 1; ; page++ {
		_, list := m.ask("", fmt.Sprintf("%s/v1/tasks?per_page=100&page=%d", m.url, page), nil)
		tasks, _ := member(list, "tasks").([]any)
		if len(tasks) == 0 {
			return
		}
		for _, task := range tasks {
			url := m.url + "/v1/tasks/" + member(task, "task_uuid").(string)
			switch state := member(task, "status"); {
			case state == "blocked_by_failures":
				m.mend(url)
			case state != "complete" && m.random.IntN(15) == 0:
				m.ask("DELETE", url, object{"reason": "not needed"})
			}
		}
	}
}

// mend has an operator deal with the failed steps of a task, or investigate it, or leaves it blocked.
func (m *mover) mend(url string) {
	what := m.random.IntN(5)
	if what == 0 {
		return
	}
	if what == 1 {
		_, letter := m.ask("", strings.Replace(url, "/tasks/", "/dlq/task/", 1), nil)
		entry, _ := member(letter, "dlq_entry_uuid").(string)
		if status, answer := m.ask("PATCH", m.url+"/v1/dlq/entry/"+entry, object{
			"resolution_status": "permanently_failed", "resolution_notes": "given up", "resolved_by": "ops",
		}); status >= 300 {
			m.t.Fatalf("investigate: %d %v", status, answer)
		}
		return
	}
	_, steps := m.ask("", url+"/workflow_steps", nil)
	for _, step := range steps.([]any) {
		if member(step, "current_state") != "error" {
			continue
		}
		action := object{"action_type": "reset_for_retry", "reset_by": "ops", "reason": "again"}
		switch what {
		case 3:
			action = object{"action_type": "resolve_manually", "resolved_by": "ops", "reason": "done by hand"}
		case 4:
			if !slices.Contains([]string{"route", "route2", "refuse", "split", "none"}, member(step, "name").(string)) {
				action = object{
					"action_type": "complete_manually", "completed_by": "ops", "reason": "by hand",
					"completion_data": object{"result": object{"by": "hand"}},
				}
			}
		}
		if status, answer := m.ask("PATCH", url+"/workflow_steps/"+member(step, "step_uuid").(string), action); status >= 300 {
			m.t.Fatalf("mend: %d %v", status, answer)
		}
	}
}

// export writes the transaction, and returns the tasks that cannot move.
func (m *mover) export(file string, from ...string) map[string]string {
	args := append([]string{"export"}, from...)
	if code, script, said := runTasker(m.t, nil, args...); code != 1 || script != "" {
		m.t.Fatalf("tasks that cannot move were exported: exit code %d\n%s", code, said)
	}
	code, script, said := runTasker(m.t, nil, append(args, "--skip")...)
	if code != 1 {
		m.t.Fatalf("export: exit code %d\n%s", code, said)
	}
	writeFile(m.t, file, []byte(script))
	refused := map[string]string{}
	for line := range strings.Lines(said) {
		if id, ok := strings.CutPrefix(line, "task "); ok {
			id, reason, _ := strings.Cut(id, " ")
			if refused[id] = reason; !strings.Contains(reason, "is due to be retried at") {
				m.t.Errorf("task %s: %s", id, reason)
			}
		}
	}
	return refused
}

// compare compares what both services answer about each task, and waits until the unfinished ones have ended there.
func (m *mover) compare(here, there string, refused map[string]string) {
	m.differing = map[string]int{}
	going := object{}
	for page := 1; ; page++ {
		_, list := m.ask("", fmt.Sprintf("%s/v1/tasks?per_page=100&page=%d", here, page), nil)
		tasks, _ := member(list, "tasks").([]any)
		if len(tasks) == 0 {
			break
		}
		for _, task := range tasks {
			id, state := member(task, "task_uuid").(string), member(task, "status").(string)
			switch {
			case refused[id] != "":
				if status, _ := m.ask("", there+"/v1/tasks/"+id, nil); status != http.StatusNotFound {
					m.t.Errorf("task %s is there, but was refused: %s", id, refused[id])
				}
			case slices.Contains(ended, state):
				m.compareTask(here, there, id, state)
			default:
				going[id] = task
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(m.differing)) {
		if m.differing[kind] < 0 {
			m.t.Logf("| differing | %d answers, as the guide says: %s |", -m.differing[kind], kind)
		} else {
			m.t.Errorf("%d answers differ: %s", m.differing[kind], kind)
		}
	}
	for _, d := range movedDifferences {
		if m.differing[d.about] == 0 {
			m.t.Errorf("no answer differs as the guide says: %s", d.about)
		}
	}
	states := map[string]int{}
	m.until("the unfinished tasks complete", func() bool {
		clear(states)
		for id := range going {
			_, task := m.ask("", there+"/v1/tasks/"+id, nil)
			states[fmt.Sprint(member(task, "status"))]++
		}
		return states["complete"] == len(going)
	})
	m.t.Logf("| continued | %d tasks, by themselves, until they were complete |", len(going))
	for _, task := range going {
		m.repeat(there, task)
	}
}

var ended = []string{"complete", "error", "cancelled", "resolved_manually", "blocked_by_failures"}

// repeat creates a task again that was unfinished, which is refused there as it was here unless its template allows it.
func (m *mover) repeat(there string, task any) {
	body := object{}
	for _, name := range []string{"namespace", "name", "version", "context", "initiator", "source_system", "reason"} {
		body[name] = member(task, name)
	}
	if body["name"] == "diamond" {
		return
	}
	if status, answer := m.ask("POST", there+"/v1/tasks", body); status != http.StatusConflict {
		m.t.Errorf("task %s was created again: %d %v", member(task, "task_uuid"), status, answer)
	}
}

// compareTask compares the answers about a task that has ended.
func (m *mover) compareTask(here, there, id, state string) {
	for _, path := range []string{"", "/workflow_steps", "/summary", "/context"} {
		m.compareAnswer(state+path, here, there, "/v1/tasks/"+id+path)
	}
	m.compareAnswer(state+"/dlq", here, there, "/v1/dlq/task/"+id)
	_, steps := m.ask("", here+"/v1/tasks/"+id+"/workflow_steps", nil)
	for _, step := range steps.([]any) {
		path := "/v1/tasks/" + id + "/workflow_steps/" + member(step, "step_uuid").(string) + "/audit"
		m.compareAnswer(state+"/audit", here, there, path)
	}
}

func (m *mover) compareAnswer(what, here, there, path string) {
	status, mine := m.ask("", here+path, nil)
	other, theirs := m.ask("", there+path, nil)
	switch {
	case status != other:
		m.note(fmt.Sprintf("%s: status %d, there %d", what, status, other), mine, theirs)
	case status != http.StatusOK:
	case strings.HasSuffix(what, "/audit"):
		entries := slices.DeleteFunc(mine.([]any), func(e any) bool {
			operators := member(e, "action") != nil && member(e, "action") != "fail"
			if operators {
				m.note(what+"[].action", member(e, "action"), nil)
			}
			return operators
		})
		for _, e := range theirs.([]any) {
			e.(map[string]any)["result"] = member(e, "result", "data")
		}
		m.diff(what, entries, theirs)
	default:
		m.diff(what, mine, theirs)
	}
}

// movedDifferences are the differences between the answers about a task that moved; docs/reference/migrating.md lists them.
var movedDifferences = []struct{ place, about string }{
	{`^(complete|cancelled)\.completed_at|summary\.task\.completed_at`, "completed_at of a task is null"},
	{`\.trace_id$`, "trace_id is missing there"},
	{`\.hold$`, "hold is missing there"},
	{`\.context\.big$`, "an integer of more than 64 bits is rounded there"},
	{`named_step_uuid$`, "named_step_uuid is that of a row there"},
	{`\.next_retry_at$`, "next_retry_at has a time there for steps that failed for good once"},
	{`\.last_failure_at$`, "last_failure_at is null there unless a step failed for good"},
	{`/audit\[\]\.action$`, "the audit has no actions of operators, checkpoints and late results there"},
	{`/context: status 200, there 404$`, "there is no route for the context there"},
	{`/dlq\.(current_state|entries|error|over)$`, "a dead letter is the newest entry alone"},
	{`/workflow_steps\[\]\.checkpoint$`, "a step has no checkpoint there"},
	{`/summary\.dlq\.`, "dlq of a summary is only about pending entries there"},
	{`/summary\.links\.dlq$`, "links.dlq of a summary is the whole queue there"},
	{`/summary\.steps\[\]\.error$`, "error of a step in a summary is null there"},
}

// note counts a difference, as a negative number if the guide lists it.
func (m *mover) note(place string, mine, theirs any) {
	for _, d := range movedDifferences {
		if regexp.MustCompile(d.place).MatchString(place) {
			m.differing[d.about]--
			return
		}
	}
	m.differing[fmt.Sprintf("%s: %.200v, there %.200v", place, mine, theirs)]++
}

// diff notes where two JSON values differ. Members that one lacks are as null.
func (m *mover) diff(place string, mine, theirs any) {
	switch a := mine.(type) {
	case map[string]any:
		b, ok := theirs.(map[string]any)
		if !ok {
			break
		}
		for key, v := range b {
			if _, has := a[key]; !has {
				m.diff(place+"."+key, nil, v)
			}
		}
		for key, v := range a {
			_, has := b[key]
			switch {
			case !has && v == nil:
				m.note(place+"."+key, nil, "no member")
			case key == "last_attempted_at" && a["current_state"] == "waiting_for_retry" && b["current_state"] == a["current_state"]:
				// which is set from next_retry_at, see the guide; only some runs have such a step in a blocked task
			default:
				m.diff(place+"."+key, v, b[key])
			}
		}
		return
	case []any:
		if b, ok := theirs.([]any); ok && len(a) == len(b) {
			byID(a)
			byID(b)
			for i := range a {
				m.diff(place+"[]", a[i], b[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(plain(mine), plain(theirs)) || strings.HasSuffix(place, ".big") && mine != theirs {
		m.note(place, mine, theirs)
	}
}

// plain returns numbers and times in one form.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64()
		return f
	case string:
		if at, err := time.Parse("2006-01-02T15:04:05.999999999", strings.TrimSuffix(v, "Z")); err == nil {
			return at
		}
	}
	return v
}

// byID sorts steps and entries of an audit by their ids.
func byID(list []any) {
	slices.SortStableFunc(list, func(a, b any) int {
		id := func(v any) string {
			return fmt.Sprint(member(v, "workflow_step_uuid"), member(v, "step_uuid"), member(v, "audit_uuid"))
		}
		return strings.Compare(id(a), id(b))
	})
}
