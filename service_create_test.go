package main

// Tests of creating tasks: reading requests, repeated requests, and waiting for
// tasks.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// createTask creates a task and returns it once it is durable.
func (s *service) createTask(ctx context.Context, q *taskRequest, mayRead bool) (*task, error) {
	done, err := s.tasks.submit(ctx, &submission{taskRequest: q, mayRead: mayRead})
	if err != nil {
		return nil, err
	}
	return done.task, nil
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// again repeats the task from a step on.
func (a *actor) again(from, more string) (*actor, error) {
	a.t.Helper()
	q := must(parseAgain(fmt.Appendf(nil, `{"from":%q%s}`, from, more), &againRequest{task: a.id}))(a.t)
	done, err := a.s.tasks.submit(a.t.Context(), &submission{taskRequest: q})
	if err != nil {
		return nil, err
	}
	settle(a.s)
	return &actor{a.t, a.s, done.task.id}, nil
}

// checkCopies compares each step that was not run with the step that its audit names.
func (a *actor) checkCopies(b *actor) {
	a.t.Helper()
	old, v := a.view(), b.view()
	if x := v.by.origin; x == nil || x.task != a.id {
		a.t.Fatalf("got the origin %+v; want task %s", x, a.id)
	}
	for i := range v.steps {
		s, c, id := &v.steps[i], v.by.origin.copyOf(i), v.stepID(i)
		if found, ok := v.stepIndex(id); !ok || found != i || bytes.Compare(id[:], v.id[:]) <= 0 {
			a.t.Errorf("%s: got the id %s; want one of its own, after that of the task", v.def(i).name, id)
		}
		entries := must(b.s.history.audit(b.id, i, nil))(a.t)
		if c == nil {
			if len(entries) > 0 && entries[len(entries)-1].CopiedFrom != nil {
				a.t.Errorf("%s: got the audit %+v; want no copy", v.def(i).name, entries)
			}
			continue
		}
		at, ok := old.stepIndex(c.of)
		if !ok || old.def(at).name != v.def(i).name || old.steps[at].state != s.state || s.attempts != 0 || s.checkpoint != nil {
			a.t.Errorf("%s: got %+v; want a copy of %s without an attempt", v.def(i).name, s, c.of)
			continue
		}
		if s.state == stepComplete && !bytes.Equal(s.last.result, old.steps[at].last.result) {
			a.t.Errorf("%s: got the result %s; want %s", v.def(i).name, s.last.result, old.steps[at].last.result)
		}
		if !bytes.Equal(v.def(i).config, old.def(at).config) {
			a.t.Errorf("%s: got the configuration %s; want %s", v.def(i).name, v.def(i).config, old.def(at).config)
		}
		want := copiedView{a.id, c.of}
		if e := entries[0]; len(entries) != 1 || *e.CopiedFrom != want || e.Action != "copied" || e.FromState != "pending" ||
			e.ToState != s.state.String() || e.WorkflowStepUUID != v.stepID(i) {
			a.t.Errorf("%s: got the audit %+v; want one copy of %+v", v.def(i).name, entries, want)
		}
	}
}

func diamondSteps() []stepSpec {
	return []stepSpec{stepOf("", "a"), stepOf("", "l", "a"), stepOf("", "r", "a"), stepOf("", "z", "l", "r")}
}

// completeAll completes steps, each with its name as the result.
func (a *actor) completeAll(names ...string) {
	a.t.Helper()
	for _, name := range names {
		a.completeWith(name, fmt.Sprintf("%q", name))
	}
}

// TestAgain repeats tasks from each kind of step, after a restart and from an export, too.
func TestAgain(t *testing.T) {
	t.Parallel()
	twoBatches := []stepSpec{stepOf(stepBatchable, "s1"), stepOf(stepBatchable, "s2"), stepOf(stepBatchWorker, "w", "s1", "s2"), stepOf("", "end", "w")}
	noBatches := batchSteps(batchContinue, 3)
	noBatches[0].config = `{"worker_template_name":"w"}`
	split := func(a *actor) { a.completeWith("split", createBatches("w", 0)) }
	branches := func(a *actor) {
		a.completeAll("validate")
		a.decide("route", "auto", "manager")
		a.completeAll("auto", "manager", "finalize")
	}
	batches := func(a *actor) {
		a.completeWith("split", createBatches("w", 3))
		a.completeAll("w_001", "w_003")
		noError(a.t, a.act("w_002", failAction))
	}
	for _, tc := range []struct {
		name  string
		steps []stepSpec
		do    func(a *actor)
		from  string
		want  string // the new task, or the error after a ?
	}{
		{"a branch", diamondSteps(), func(a *actor) { a.completeAll("a", "l", "r", "z") }, "l",
			"steps_in_process: a=complete l=enqueued r=complete z=pending"},
		{"the end that failed", diamondSteps(), func(a *actor) { a.completeAll("a", "l", "r"); noError(a.t, a.act("z", failAction)) }, "z",
			"steps_in_process: a=complete l=complete r=complete z=enqueued"},
		{"the beginning", diamondSteps(), func(a *actor) { a.completeAll("a", "l") }, "a",
			"steps_in_process: a=enqueued l=pending r=pending z=pending"},
		{"beside a step that is not done", diamondSteps(), func(a *actor) { a.completeAll("a", "l") }, "l",
			"steps_in_process: a=complete l=enqueued r=enqueued z=pending"},
		{"a step that needs more", diamondSteps(), func(a *actor) { a.completeAll("a", "l"); noError(a.t, a.act("r", failAction)) }, "z",
			`?from names step "z", which needs the result of step "r", whose state in task ID is error: begin there, or finish it first`},
		{"after a cancelled step", diamondSteps(), func(a *actor) { a.completeAll("a", "l"); noError(a.t, a.act("r", cancelAction)) }, "z",
			`?step "r", whose state in task ID is cancelled`},
		{"after a resolved step", diamondSteps(), func(a *actor) { a.completeAll("a", "l"); noError(a.t, a.act("r", resolveAction)) }, "z",
			"steps_in_process: a=complete l=complete r=resolved_manually z=enqueued"},
		{"after steps completed in another order", diamondSteps(), func(a *actor) { a.completeAll("r", "a", "l") }, "z",
			"steps_in_process: a=complete l=complete r=complete z=enqueued"},
		{"behind a step that is done, before which one is not", diamondSteps(), func(a *actor) { a.completeAll("l", "r") }, "z",
			`?step "a", whose state in task ID is enqueued`},
		{"an unknown step", diamondSteps(), func(*actor) {}, "zz", `?from names no step of task ID: "zz"; did you mean z?`},

		{"the decision", routing(), branches, "route", "steps_in_process: validate=complete route=enqueued"},
		{"a branch of a decision", routing(), branches, "auto",
			"steps_in_process: validate=complete route=complete auto=enqueued manager=complete finalize=pending"},
		{"what joins branches", routing(), branches, "finalize",
			"steps_in_process: validate=complete route=complete auto=complete manager=complete finalize=enqueued"},
		{"a branch that was not chosen", routing(), branches, "finance", `?from names step "finance", which no decision or batch has created in task ID`},
		{"what joins branches, one not done", routing(), func(a *actor) {
			a.completeAll("validate")
			a.decide("route", "auto", "manager")
			a.completeAll("auto")
		}, "finalize", `?step "manager", whose state in task ID is enqueued`},
		{"after a decision that is not made", []stepSpec{stepOf("", "x"), stepOf(stepDecision, "d"), stepOf("", "b", "d"),
			stepOf(stepDeferredConvergence, "e", "x", "b")}, func(a *actor) { a.completeAll("x") }, "e", `?step "d", whose state in task ID is enqueued`},

		{"a failed instance", batchSteps(batchContinue, 3), batches, "w_002",
			"steps_in_process: split=complete w_001=complete w_002=enqueued w_003=complete end=pending last=pending"},
		{"all instances", batchSteps(batchContinue, 3), batches, "w",
			"steps_in_process: split=complete w_001=enqueued w_002=enqueued w_003=enqueued end=pending last=pending"},
		{"what joins instances", batchSteps(batchContinue, 3), func(a *actor) { batches(a); noError(a.t, a.act("w_002", completeAction)) }, "end",
			"steps_in_process: split=complete w_001=complete w_002=complete w_003=complete end=enqueued last=pending"},
		{"what joins instances in spite of one", batchSteps(batchIsolate, 3), func(a *actor) { batches(a); a.completeAll("end") }, "last",
			`?step "w_002", whose state in task ID is error`},
		{"what splits", batchSteps(batchContinue, 3), batches, "split", "steps_in_process: split=enqueued"},
		{"after no batches", noBatches, func(a *actor) { split(a); a.complete("w_000", "end") }, "last",
			"steps_in_process: split=complete w_000=complete end=complete last=enqueued"},
		{"no batches", noBatches, split, "w", "steps_in_process: split=complete w_000=enqueued end=pending last=pending"},
		{"instances of two steps, the second first", twoBatches, func(a *actor) {
			a.completeWith("s2", createBatches("w", 1))
			a.completeWith("s1", cursorsOf("w", `{"of":"s1"}`))
			a.completeAll("w_001", "w_002")
		}, "end", "steps_in_process: s1=complete s2=complete w_001=complete end=enqueued w_002=complete"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart)}
			a := newActor(t, o, tc.steps...)
			tc.do(a)
			b, err := a.again(tc.from, "")
			if want, refused := strings.CutPrefix(tc.want, "?"); refused {
				if kindOf(err) != invalidFields || !strings.Contains(err.Error(), strings.ReplaceAll(want, "ID", a.id.String())) {
					t.Fatalf("got %v; want %s", err, want)
				}
				return
			}
			noError(t, err)
			b.want(tc.want)
			a.checkCopies(b)
			noError(t, a.s.store.waitAll(t.Context()))
			var document bytes.Buffer
			noError(t, a.s.store.export(a.s.store.cut(), &document))
			for what, open := range map[string]func() (*store, error){
				"a restart": func() (*store, error) {
					s, _, err := readStore(&journalOptions{log: slog.New(slog.DiscardHandler)}, filepath.Join(o.dir, storeName))
					return s, err
				},
				"an export": func() (*store, error) {
					return storeOf(&stateSource{document: &document}, slog.New(slog.DiscardHandler))
				},
			} {
				v := must(must(open())(t).view(b.id))(t)
				if got := grown(v); got != tc.want || !reflect.DeepEqual(v.by.origin.task, a.id) {
					t.Errorf("after %s: got %s; want %s", what, got, tc.want)
				}
			}
			for b.view().state == taskStepsInProcess { // it goes on to its end
				v := b.view()
				for i := range v.steps {
					if v.steps[i].state == stepEnqueued {
						b.completeWith(v.def(i).name, pick(v.def(i).kind == stepBatchable, createBatches("w", 2), ""))
					}
				}
			}
			if v := b.view(); v.state != taskComplete {
				t.Errorf("got %s; want it complete", grown(v))
			}
			c, err := b.again(b.view().def(len(b.view().steps)-1).name, "") // of copies there are copies
			noError(t, err)
			b.checkCopies(c)
		})
	}
}

// TestAgainIsOneRecord repeats a task, and expects one record, which runs, publishes and counts nothing that
// was copied; only the repeated step has inputs.
func TestAgainIsOneRecord(t *testing.T) {
	text := strings.Replace(publishing("pays", "builtin:echo", "{}", published("paid", "")), `]}]}`,
		`]},{"name":"end","handler":{"callable":"Outside"},"dependencies":["pay"],"retry":{"max_attempts":1}}]}`, 1)
	text = strings.Replace(text, "always_unique", "strict", 1)
	s := newTestService(t, serviceTest{extra: []string{text}, clock: newVirtualClock(testStart)})
	q := must(parseTaskRequest([]byte(`{"namespace":"t","name":"pays","context":{"n":1},"tags":["x"],"priority":7}`)))(t)
	a := &actor{t, s, must(s.createTask(t.Context(), q, true))(t).id}
	settle(s)
	noError(t, a.act("end", stepRequest{action: actionFail, err: &stepError{message: "no", errorType: "refused"}}))
	figures := func() (all [3]uint64) {
		s.store.locked(func() {
			row := s.store.analytics.freeze().total(figureFilter{}, allTime)
			all = [3]uint64{row.counts[attemptsEnded], row.counts[stepsCompleted], row.counts[dependencyWaits]}
		})
		return all
	}
	before, moved, published := figures(), s.store.seqLocked(), len(domainOf(t, s, eventFilter{}, 0))
	b, err := a.again("end", `,"context":{"m":2},"reason":"mended"`)
	noError(t, err)
	b.want("steps_in_process: pay=complete end=enqueued")
	if got := s.store.seqLocked() - moved; got != 1 {
		t.Errorf("got %d records; want 1", got)
	}
	if got := figures(); got != before {
		t.Errorf("got the figures %v; want %v as before", got, before)
	}
	if got := len(domainOf(t, s, eventFilter{}, 0)); got != published {
		t.Errorf("got %d domain events; want %d as before", got, published)
	}
	v, old := b.view(), a.view()
	if string(v.by.context) != `{"m":2}` || v.by.reason != "mended" || v.by.identity != (identityKey{}) || v.by.key != "" ||
		v.by.priority != 7 || v.by.tags[0] != "x" || v.correlation() != old.correlation() {
		t.Errorf("got %+v; want the new context and reason, and the rest of the old task but its identity", v.by)
	}
	if c, err := a.again("end", ""); err != nil || string(c.view().by.context) != `{"n":1}` {
		t.Errorf("got %v; want a second repetition with the context of then", err)
	}
}

// TestAgainWithoutCheckpoint repeats a task from a step that has a checkpoint: the new one begins without.
func TestAgainWithoutCheckpoint(t *testing.T) {
	a := newActor(t, serviceTest{}, stepOf("", "a"), stepOf("", "b", "a"))
	a.complete("a")
	c := mustClaim(t, a.s)[0]
	yields := &leaseAnswer{verb: yieldVerb, hash: hashLease(c.token), outcome: outcome{success: true, checkpoint: []byte(`{"cursor":1}`)}}
	must(a.s.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *yields, step: c.attempt.stepID}))(t)
	b, err := a.again("b", "")
	noError(t, err)
	if v := b.view(); v.steps[1].checkpoint != nil || a.view().steps[1].checkpoint == nil {
		t.Errorf("got the checkpoint %+v; want none", v.steps[1].checkpoint)
	}
}

// TestAgainByTheLatestTemplate repeats a task by versions of its template that differ from its own.
func TestAgainByTheLatestTemplate(t *testing.T) {
	t.Parallel()
	decided := func(a *actor) {
		a.completeAll("validate")
		a.decide("route", "auto")
		a.completeAll("auto")
	}
	half := func(a *actor) { a.completeAll("a", "l", "r") }
	for _, tc := range []struct {
		name       string
		steps, now []stepSpec
		do         func(a *actor)
		from, want string
	}{
		{"the same steps", diamondSteps(), diamondSteps(), half, "z", "steps_in_process: a=complete l=complete r=complete z=enqueued"},
		{"another order", diamondSteps(), []stepSpec{stepOf("", "z", "l"), stepOf("", "l", "a"), stepOf("", "a")}, half, "z",
			"steps_in_process: z=enqueued l=complete a=complete"},
		{"one more before", diamondSteps(), append(diamondSteps()[:3], stepOf("", "x", "a"), stepOf("", "z", "l", "r", "x")), half, "z",
			`?from names step "z", which needs the result of step "x", which task ID does not have`},
		{"one more in between", diamondSteps(), []stepSpec{stepOf("", "a"), stepOf("", "x", "a"), stepOf("", "l", "x"), stepOf("", "z", "l")}, half, "z",
			`?from names step "z", which needs the result of step "x", which task ID does not have`},
		{"one more beside", diamondSteps(), append(diamondSteps(), stepOf("", "x")), half, "z",
			"steps_in_process: a=complete l=complete r=complete z=enqueued x=enqueued"},
		{"without the step", diamondSteps(), diamondSteps()[:3], half, "z", `?from names step "z", which the current template does not create`},
		{"a branch less", routing(), append(routing()[:2], stepOf("", "manager", "route"), stepOf("", "auto", "manager")), decided, "auto",
			`?needs the result of step "route", which the current template does not allow: decision_point_outcome.step_names: step "auto"`},
		{"a branch more", routing(), append(routing(), stepOf("", "x", "route")), decided, "finalize",
			"steps_in_process: validate=complete route=complete auto=complete finalize=enqueued"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for i := range tc.now {
				tc.now[i].callable = "Outside"
			}
			now := strings.Replace(testTemplate("grows", tc.now...), `"1.0.0"`, `"2.0.0"`, 1)
			o := serviceTest{clock: newVirtualClock(testStart), extra: []string{now}}
			for i := range tc.steps {
				tc.steps[i].callable = "Outside"
			}
			o.extra = append(o.extra, testTemplate("grows", tc.steps...))
			s := newTestService(t, o)
			a := &actor{t, s, mustCreate(t, s, "grows", `"version":"1.0.0"`).id}
			tc.do(a)
			b, err := a.again(tc.from, `,"latest":true`)
			if want, refused := strings.CutPrefix(tc.want, "?"); refused {
				if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(want, "ID", a.id.String())) {
					t.Errorf("got %v; want %s", err, want)
				}
				return
			}
			noError(t, err)
			b.want(tc.want)
			if v := b.view(); v.tpl.version != "2.0.0" {
				t.Errorf("got version %s", v.tpl.version)
			}
		})
	}
}

// TestAgainReadsTheBody expects the problems of a body to be named.
func TestAgainReadsTheBody(t *testing.T) {
	for body, want := range map[string]string{
		`{}`: "from is required", `{"from":7}`: "from must be a string", `{"from":"a","latest":1}`: "latest must be true or false",
		`{"from":"a","context":[]}`: "context must be an object", `{"from":"a","contxt":{}}`: "contxt is not known", `{"from":null}`: "from is required",
	} {
		if _, err := parseAgain([]byte(body), &againRequest{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", body, err, want)
		}
	}
}

// TestStrangeCopies expects copies that nothing could have written to be refused, wherever they are read.
func TestStrangeCopies(t *testing.T) {
	a := newActor(t, serviceTest{}, diamondSteps()...)
	a.completeAll("a", "l", "r")
	b := must(a.again("z", ""))(t)
	line := b.view().appendTaskLine(nil)
	for _, change := range [][2]string{
		{`"step":0,`, `"step":-1,`}, {`"step":0,`, `"step":9,`}, {`"step":2,`, `"step":1,`}, {`"result":"l"`, `"ok":false,"result":"l"`},
		{`"copies":[{`, `"copies":[{"novelty":1,`},
	} {
		bad := bytes.Replace(line, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(bad, line) || !json.Valid(bad) {
			t.Fatalf("%s is not changed to %s", line, change)
		}
		if _, err := b.s.store.replayLine(bad, unobserved{}); err == nil {
			t.Errorf("%s: got a task", change[1])
		}
	}
}
