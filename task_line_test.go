package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// replayTemplate is the template of the fuzz target's tasks.
func replayTemplate(t testing.TB) *template {
	t.Helper()
	return mustParseTemplate(t, testTemplate("fuzz", stepSpec{name: "a", callable: "Outside"},
		stepSpec{name: "b", callable: "Outside", after: []string{"a"}},
		stepSpec{name: "c", callable: "builtin:noop", after: []string{"a", "b"}}))
}

// FuzzReplay decodes records, one a line, and applies them to a task. Accepted records must be
// the same in the task's line.
func FuzzReplay(f *testing.F) {
	for _, log := range fuzzLogs {
		f.Add([]byte(log))
	}
	tpl := replayTemplate(f)
	f.Fuzz(func(t *testing.T, log []byte) {
		records := bytes.Split(log, []byte("\n"))
		for _, r := range records {
			if jsonKind(r) != '{' || checkJSON(r) != nil {
				return
			}
		}
		joined := bytes.Join(records, []byte(","))
		v, err := replayRecords(uuid{1}, tpl, joined, &transitionObserver{})
		if err != nil {
			return
		}
		for i := range v.steps {
			newStepView(v, i, testStart, "w")
			if _, err := replayRecords(uuid{1}, tpl, joined, &auditObserver{step: i}); err != nil {
				t.Errorf("it replays once and not twice: %v", err)
			}
		}
		checkRewritten(t, joined, tpl)
	})
}

// fuzzLogs are logs of tasks of replayTemplate, valid and damaged.
var fuzzLogs = []string{
	`{"seq":1,"at":1,"kind":"created","template":"h","context":{"a":1},"tags":["x"],"priority":-3}`,
	`{"seq":1,"at":1,"kind":"created","template":"h"}
{"seq":2,"at":2,"kind":"started","step":0}
{"seq":3,"at":3,"kind":"recovered","step":0}
{"seq":4,"at":4,"kind":"ran","step":0,"ok":false,"retry_at":9,"error":{"message":"m"}}
{"seq":5,"at":9,"kind":"due","step":0}
{"seq":6,"at":9,"kind":"operator","step":0,"action":"complete_manually","by":"x","reason":"y","ok":true,"result":5}
{"seq":7,"at":10,"kind":"late","step":0,"ok":true,"attempt":1}
{"seq":8,"at":11,"kind":"cancelled"}`,
	`{"seq":1,"at":1,"kind":"created","template":"h"}
{"seq":2,"at":2,"kind":"operator","step":0,"action":"fail","by":"x"}`,
	`{"seq":1,"at":1,"kind":"created","template":"h"}
{"seq":2,"at":2,"kind":"created","template":"h"}`,
	`{"seq":1,"at":1,"kind":"created","template":"h","request":"` + strings.Repeat("1f", 32) + `"}`,
	`{"seq":1,"at":1,"kind":"created","template":"h"}
{"seq":2,"at":2,"kind":"cancelled","step":0,"ok":true}`,
}

// rewriter writes every record that is replayed.
type rewriter struct {
	unobserved
	t task
}

func (w *rewriter) startRecord(_ *task, r *record) {
	named := *r // a task's own log leaves out its id
	named.task = uuid{1}
	w.t.appendLog(r.seq, appendRecordMembers(nil, &named))
}

// rewrite returns the log as this program writes it.
func rewrite(t *testing.T, log []byte, tpl *template) ([]byte, *task) {
	t.Helper()
	w := &rewriter{}
	v, err := replayRecords(uuid{1}, tpl, log, w)
	if err != nil {
		t.Fatalf("%s does not replay: %v", log, err)
	}
	return w.t.log, v
}

// checkRewritten replays the log as this program writes it: it must have the same meaning, and
// be written in the same way again.
func checkRewritten(t *testing.T, log []byte, tpl *template) {
	t.Helper()
	once, v := rewrite(t, log, tpl)
	twice, again := rewrite(t, once, tpl)
	if !bytes.Equal(once, twice) {
		t.Errorf("got %s; want %s", twice, once)
	}
	compareSteps(t, again, v)
	line := v.appendTaskLine(nil)
	if got, err := readTaskLine(line); err != nil || got.state != v.state || got.counts != v.counts {
		t.Errorf("%s is read as %+v, %v", line, got, err)
	}
}

// TestDamagedLogsAreRefused checks that logs with good checksums but impossible
// contents are refused, with the reason.
func TestDamagedLogsAreRefused(t *testing.T) {
	const created = `{"seq":1,"at":1,"kind":"created","template":"h"},`
	tpl := replayTemplate(t)
	for _, tc := range []struct{ log, want string }{
		{``, "empty"},
		{`{"seq":1,"at":1,"kind":"created","template":"h","request":"1f"}`, "64 hex digits"},
		{`{"seq":1,"at":1,"kind":"created","template":"h","request":7}`, `member "request"`},
		{`{"seq":1,"at":1,"kind":"due","step":0}`, "begin with its creation"},
		{created + `{"seq":2,"at":2,"kind":"started","step":3}`, "no step 3"},
		{created + `{"seq":2,"at":2,"kind":"started","step":1}`, "cannot take start"},
		{created + `{"seq":2,"at":2,"kind":"operator","step":0}`, "names no action"},
		{created + `{"seq":2,"at":2,"kind":"operator","step":0,"action":"fail"}`, "without its error"},
		{created + created[:len(created)-1], "cannot take start"},
		{created + `{"seq":2,"at":2,"kind":"template","hash":"h","definition":{}}`, "no step"},
	} {
		if _, err := replayRecords(uuid{1}, tpl, []byte(tc.log), unobserved{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v; want an error with %q", tc.log, err, tc.want)
		}
	}
}

func TestRefusedOutcomes(t *testing.T) {
	type row struct{ step, result, want string }
	decision := func(outcome, want string) row {
		return row{"route", `{"decision_point_outcome":` + outcome + `}`, want}
	}
	batch := func(outcome, want string) row {
		return row{"split", `{"batch_processing_outcome":` + outcome + `}`, want}
	}
	many := strings.Repeat("1,", maxInstances) + "1"
	rows := []row{
		decision(`7`, "decision_point_outcome is 7; want an object or a word"),
		decision(`{}`, "decision_point_outcome.type is missing"),
		decision(`{"type":3}`, "type is 3; want a word"),
		decision(`{"type":"create"}`, `type "create" is neither no_branches nor create_steps`),
		decision(`"no_batches"`, `decision_point_outcome "no_batches" is neither no_branches nor create_steps`),
		decision(`"create_steps"`, "step_names must be a list"),
		decision(`{"type":"create_steps"}`, "step_names must be a list"),
		decision(`{"type":"create_steps","step_names":"a"}`, "step_names must be a list"),
		decision(`{"type":"create_steps","step_names":["a",1]}`, "is 1; want a name"),
		decision(`{"type":"create_steps","step_names":["a","nobody"]}`, `no step "nobody"`),
		decision(`{"type":"create_steps","step_names":["a","other"]}`, `"other" does not depend on the decision "route"`),
		decision(`{"type":"create_steps","step_names":["route"]}`, `"route" does not depend`),
		decision(`{"type":"create_steps","step_names":["b2"]}`, `"b2" depends on the decision only through`),
		decision(`{"type":"create_steps","step_names":["w"]}`, `"w" is a batch_worker`),
		batch(`[]`, "batch_processing_outcome is a list; want an object or a word"),
		batch(`"none"`, `batch_processing_outcome "none" is neither no_batches nor create_batches`),
		batch(`"create_batches"`, "worker_template_name is missing"),
		batch(`{"type":"create_steps"}`, "neither no_batches nor create_batches"),
		batch(`{"type":"create_batches","cursor_configs":[1]}`, "worker_template_name is missing"),
		batch(`{"type":"create_batches","worker_template_name":"nobody","cursor_configs":[1]}`, `no step "nobody"`),
		batch(`{"type":"create_batches","worker_template_name":"a","cursor_configs":[1]}`, `"a" is not a batch_worker`),
		batch(`{"type":"create_batches","worker_template_name":"w3","cursor_configs":[1]}`, `"w3" does not depend on`),
		batch(`{"type":"create_batches","worker_template_name":"w"}`, "cursor_configs must be a list"),
		batch(`{"type":"create_batches","worker_template_name":"w","worker_count":2,"cursor_configs":[1]}`, "worker_count is 2, and there are 1"),
		batch(`{"type":"create_batches","worker_template_name":"w","worker_count":1.5,"cursor_configs":[1]}`, "worker_count is 1.5; want an integer"),
		batch(`{"type":"create_batches","worker_template_name":"w","total_items":-1,"cursor_configs":[1]}`, "total_items is -1"),
		batch(`{"type":"create_batches","worker_template_name":"w","cursor_configs":[`+many+`]}`, "10001 workers, more than 10000"),
		batch(`{"type":"create_batches","worker_template_name":"w2","cursor_configs":[1]}`, `name of the step "w2_001"`),
	}
	a := newActor(t, serviceTest{}, stepOf(stepDecision, "route"), stepOf("", "a", "route"), stepOf("", "b", "route"),
		stepOf("", "b2", "b"), stepOf("", "other"), stepOf(stepBatchable, "split"), stepOf(stepBatchWorker, "w", "split", "route"),
		stepOf(stepBatchWorker, "w2", "split"), stepOf("", "w2_001"), stepOf(stepBatchWorker, "w3", "other"))
	before := string(a.view().appendTaskLine(nil))
	for _, r := range rows {
		err := a.act(r.step, stepRequest{action: actionComplete, result: []byte(r.result)})
		if kindOf(err) != invalidFields || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s with %.200s: got %v; want it refused with %s", r.step, r.result, err, r.want)
		}
	}
	if after := string(a.view().appendTaskLine(nil)); after != before {
		t.Errorf("refused outcomes changed the task:\n%s\nto\n%s", before, after)
	}
}

// yieldingTask is a task of two steps for outside actors: a, which yields, and b.
type yieldingTask struct {
	*testing.T
	*service
	id uuid
}

func newYieldingTask(t *testing.T) yieldingTask {
	s := newTestService(t, serviceTest{extra: []string{testTemplate("yields",
		stepSpec{name: "a", callable: "A"}, stepSpec{name: "b", callable: "B", retry: `{"retryable":false}`})}})
	return yieldingTask{t, s, mustCreate(t, s, "yields").id}
}

// answer claims the step of a callable and answers it.
func (y yieldingTask) answer(callable string, verb leaseVerb, o outcome) {
	y.Helper()
	y.answerTo(y.claim(callable), verb, o)
}

func (y yieldingTask) claim(callable string) claimedStep {
	y.Helper()
	return must(y.outside.claim(y.Context(), &claimRequest{callables: []string{callable}, limit: 1, lease: time.Hour}))(y)[0]
}

func (y yieldingTask) answerTo(g claimedStep, verb leaseVerb, o outcome) {
	y.Helper()
	q := leaseAnswer{verb: verb, outcome: o}
	q.setLease(g.token)
	_, err := y.outside.answer(y.Context(), &stepAnswer{leaseAnswer: q, step: g.attempt.stepID})
	noError(y, err)
}

var oneCheckpoint = outcome{success: true, checkpoint: []byte(`{"cursor":1}`)}

// TestCheckpointsOfStaleTask lets a task become stale while its first step runs, which then yields more than once: the
// compacted log still gives the task.
func TestCheckpointsOfStaleTask(t *testing.T) {
	y := newYieldingTask(t)
	g := y.claim("A")
	_, err := y.store.update(func(c *change) error {
		v, err := c.task(y.id)
		noError(t, err)
		return c.append(v, &record{kind: recStale, step: -1, stale: &staleMark{limit: 1, reason: noDLQReason}})
	})
	noError(t, err)
	y.answerTo(g, yieldVerb, oneCheckpoint)
	mustAct(t, y.service, must(y.store.view(y.id))(t), 1, completeAction)
	y.answer("A", yieldVerb, oneCheckpoint)
	y.answer("A", completeVerb, outcome{success: true, result: []byte("1")})
	if v := must(y.store.view(y.id))(t); v.state != taskComplete || v.steps[0].attempts != 1 {
		t.Errorf("got %s with %d attempts; want the task complete after one", v.state, v.steps[0].attempts)
	}
}

// TestLettersKeepTheirSnapshots compares the snapshot in a dead letter before and after later checkpoints.
func TestLettersKeepTheirSnapshots(t *testing.T) {
	for _, running := range []bool{false, true} {
		y := newYieldingTask(t)
		y.answer("A", yieldVerb, oneCheckpoint)
		var g claimedStep
		if running {
			g = y.claim("A")
		}
		y.answer("B", failVerb, outcome{err: &stepError{message: "no", errorType: "x"}})
		snapshot := func() string {
			v, err := y.dlq.entry(must(y.store.keptOf(y.id))(t), 0, true, nil)
			noError(t, err)
			return string(must(json.Marshal(v.TaskSnapshot))(t))
		}
		want := snapshot()
		mustAct(t, y.service, must(y.store.view(y.id))(t), 1, completeAction)
		if !running {
			g = y.claim("A")
		}
		y.answerTo(g, yieldVerb, oneCheckpoint)
		y.answer("A", yieldVerb, oneCheckpoint)
		y.answer("A", completeVerb, outcome{success: true, result: []byte("1")})
		if got := snapshot(); got != want {
			t.Errorf("running %t: got %s; want %s", running, got, want)
		}
		if n := strings.Count(string(must(y.store.view(y.id))(t).log), `"kind":"checkpoint"`); n > 2+boolCount(running) {
			t.Errorf("running %t: got %d checkpoints in the log", running, n)
		}
	}
}
