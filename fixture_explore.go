package main

// Exploring: a task runs without a fault, and then once for each of its steps and each fault that can hit it, each
// time in a separate service. Here are the faults, a trial, the comparison of a trial with a fault to one without, and the
// table.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// exploration asks what becomes of a task if something goes wrong.
type exploration struct {
	host          *fixture // whose templates, handlers and stubs it uses
	task          *taskRequest
	only          string              // STEP:FAULT; "" for all
	before, check string              // URLs of the application, to post to before and after each trial; "" for none
	parallel      int                 // trials at a time; 0 for one if the application is asked, else one for each processor
	allow         map[string][]string // further ends that are accepted, by fault
	stubs         []*stub             // the host's
}

// exploredFault is one way in which a step goes wrong.
type exploredFault struct {
	name           string
	forGood        bool // the task may be blocked
	handler, actor bool // whether it hits steps with handlers, and those for outside actors
	outcome        stubOutcome
	then           stubThen
}

// The faults that are more than an outcome.
const (
	faultMisfit  = "misfit"
	faultRestart = "restart"
	faultNobody  = "nobody"
)

var exploredFaults = []exploredFault{
	{"fails_once", false, true, true, failsWith(true), thenOthers},
	{"fails_always", true, true, true, failsWith(true), thenLast},
	{"fatal", true, true, true, failsWith(false), thenLast},
	{"lost", false, true, false, stubOutcome{fault: workerLost}, thenOthers},
	{"result_lost", false, true, false, stubOutcome{fault: resultLost}, thenOthers},
	{"duplicate", false, true, false, stubOutcome{fault: duplicateDelivery}, thenOthers},
	{"late", false, true, false, stubOutcome{fault: lateCompletion}, thenOthers},
	{"hang", false, true, false, stubOutcome{hang: true}, thenOthers},
	{faultMisfit, true, true, true, stubOutcome{}, thenOthers},
	// With a delay, after which the service would have the result. It ends before that.
	{faultRestart, false, true, true, stubOutcome{fault: resultLost, delay: time.Microsecond}, thenOthers},
	{"lease", false, false, true, stubOutcome{hang: true}, thenOthers},
	{faultNobody, true, false, true, stubOutcome{}, thenOthers},
}

func failsWith(retryable bool) stubOutcome {
	o := typedFailure(handlerErrorType, "a fault of stepwell explore")
	o.err.retryable = retryable
	return stubOutcome{outcome: &o}
}

func faultNames() (names []string) {
	for _, f := range exploredFaults {
		names = append(names, f.name)
	}
	return names
}

// exploredEnds are the ends of a trial, compared with one without a fault, the worst first. Only the check of the application
// refuses, which cannot be allowed.
var exploredEnds = []string{"refused", "other", "twice", "stuck", "blocked", "recovered", "same"}

// exploredCell is one fault of one step, and what became of the task.
type exploredCell struct {
	Step        string          `json:"step"`
	Fault       string          `json:"fault"`
	End         string          `json:"end"`
	Allowed     bool            `json:"allowed"`
	Attempts    int             `json:"attempts"` // of the step
	DelayMS     int64           `json:"delay_ms"` // virtual time that the task took longer
	Message     string          `json:"message"`
	Transitions json.RawMessage `json:"transitions,omitempty"` // of an exploration of one fault

	stubs   []*stub // with the fault, before the host's
	forGood bool    // the task may be blocked
	called  bool    // with the fault, the step's handler, an HTTP service or a program, is called
}

func (c *exploredCell) name() string { return c.Step + ":" + c.Fault }

// explorationView shows what an exploration found.
type explorationView struct {
	Template string         `json:"template"`
	Ends     map[string]int `json:"ends"`
	Findings int            `json:"findings"` // that do not end as allowed
	Cells    []exploredCell `json:"cells"`    // with findings first, the worst of all first
	Text     string         `json:"text"`     // all of it for people
}

// explore runs the trials.
func (x *exploration) explore(ctx context.Context) (*explorationView, error) {
	x.host.readStubs(func(l *stubs) { x.stubs = copied(l.list) })
	for _, s := range x.stubs {
		s.uses = 0
	}
	seed := x.host.svc.ids.random().String()
	// What two trials without a fault do not have in common, such as a time or an id, says nothing about a fault.
	var base [2]*trial
	for i := range base {
		r, err := x.try(ctx, fmt.Sprint(seed, "/", i), &exploredCell{stubs: x.stubs})
		if err != nil {
			return nil, err
		}
		if base[i] = r; r.task.state != taskComplete || r.refusal != "" {
			end := pick(r.refusal == "", r.task.state.String(), "refused") + pick(i == 0, "", " the second time")
			return nil, failf(conflict, "without a fault, the task is %s: %s", end, cmp.Or(r.refusal, r.why))
		}
	}
	cells, err := x.chosen(x.cells(base[0].task))
	if err != nil {
		return nil, err
	}
	v := &explorationView{Template: base[0].task.tpl.fullName(), Ends: map[string]int{}, Cells: cells}
	var all sync.WaitGroup
	slots := make(chan struct{}, cmp.Or(max(x.parallel, 0), pick(x.before+x.check == "", runtime.GOMAXPROCS(0), 1)))
	failed := make([]error, len(v.Cells))
	for i := range v.Cells {
		slots <- struct{}{}
		all.Go(func() {
			failed[i] = x.tryCell(ctx, seed, &cells[i], base)
			<-slots
		})
	}
	all.Wait()
	v.sum()
	return v, cmp.Or(failed...)
}

// cells returns what is to be tried.
func (x *exploration) cells(t *task) (all []exploredCell) {
	for i := range t.steps {
		def := t.def(i)
		kind := x.host.svc.handlers.resolve(def.callable).kind
		by, scripted := (&stubs{list: x.stubs}).choose(handlerEntry, factsOf(t, i, 1))
		for _, f := range exploredFaults {
			so := f.outcome
			// With these faults, the handler or the actor does its work, or what is scripted counts as done.
			works := so.fault != noFault && so.fault != workerLost || so.hang && kind != outsideActor
			c := exploredCell{Step: def.name, Fault: f.name, stubs: x.stubs, forGood: f.forGood}
			if f.name != faultNobody {
				s := stub{id: "fault", kind: handlerEntry, match: matcher{{member: "step", matchMember: matchMembers["step"], want: c.Step}}, then: f.then}
				c.stubs = append([]*stub{&s}, copied(x.stubs)...)
				if f.name == faultMisfit {
					so.outcome = misfitOf(def)
				} else if works && scripted != nil {
					// What goes wrong without this fault, too, stays as it is.
					wrong := scripted.fault != noFault || scripted.hang || scripted.delay > time.Duration(def.timeoutSeconds)*time.Second
					hit := stubOutcome{outcome: scripted.outcome, fault: so.fault, hang: so.hang, delay: max(so.delay, scripted.delay)}
					if so = pick(wrong, *scripted, hit); wrong || so.fault != resultLost || kind == outsideActor { // else it comes again
						c.stubs[1+slices.Index(x.stubs, by)].uses++
					}
				}
				s.outcomes = []stubOutcome{so}
			}
			c.called = (kind == httpHandler || kind == execHandler) && works && so.outcome == nil
			if pick(kind == outsideActor, f.actor, f.handler) && (f.name != faultMisfit || so.outcome != nil) {
				all = append(all, c)
			}
		}
	}
	return all
}

// chosen returns those of all faults that are to be tried.
func (x *exploration) chosen(all []exploredCell) ([]exploredCell, error) {
	var faults, steps []string
	for i, c := range all {
		if c.name() == x.only {
			return all[i : i+1], nil
		}
		if steps = append(steps, c.Step); strings.HasPrefix(x.only+":", c.Step+":") {
			faults = append(faults, c.name())
		}
	}
	if x.only == "" && len(all) > 0 {
		return all, nil
	}
	have := cmp.Or(anyOf(faults), anyOf(slices.Compact(steps)), "no steps")
	return nil, failf(badRequest, "nothing to try%s: the run without a fault has %s", pick(x.only == "", "", " as "+x.only), clipText(have, 300))
}

// misfitOf returns a result that does not fit the schema of a step, or nil.
func misfitOf(def *stepTemplate) *outcome {
	if def.result == nil || len(def.result.schema().problems) > 0 {
		return nil
	}
	for _, text := range []string{"null", `"?"`, "-1", "{}", "[]", "true"} {
		if len(def.result.schema().check(newLocalBudget(), []byte(text))) > 0 {
			return &outcome{success: true, result: []byte(text)}
		}
	}
	return nil
}

// copied returns stubs that can be used apart from those given.
func copied(all []*stub) (fresh []*stub) {
	for _, s := range all {
		fresh = append(fresh, new(*s))
	}
	return fresh
}

// One trial.

// trial is one run of the task. Whenever nothing runs, its clock moves to the next timer, until nothing is due.
type trial struct {
	x     *exploration
	cell  *exploredCell // empty without a fault
	world *world
	svc   *service
	id    uuid // the task's

	restarted    bool
	events       map[string]int // how often each was published
	task         *task          // as it is when nothing runs
	took         time.Duration
	values       map[string]string // what is compared, by path: the states, the results, and the number of each event
	why, refusal string            // explain's sentence, and what the application's check says
	transitions  json.RawMessage   // of an exploration of one fault
}

// try runs the task once, in a service whose ids derive from a seed.
func (x *exploration) try(ctx context.Context, seed string, c *exploredCell) (*trial, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if said, err := x.call(ctx, x.before, nil); err != nil || said != "" {
		return nil, cmp.Or(err, error(failf(unavailable, "%s says: %s", redactURL(x.before), said)))
	}
	q, parts, cfg := *x.task, x.host.world.parts, *x.host.world.parts.cfg
	cfg.Store.Memory = true
	parts.cfg, parts.log, parts.deterministic, parts.files = &cfg, slog.New(slog.DiscardHandler), seed, new(atomic.Pointer[registry])
	parts.files.Store(x.host.svc.templates.registry()) // with those added at run time
	r := &trial{x: x, cell: c, world: &world{parts: parts, sandbox: "explore", claims: true, stubs: c.stubs}, events: map[string]int{}}
	var err error
	if r.svc, err = r.world.open(openService); err != nil {
		return nil, err
	}
	defer func() { abort(r.svc) }()
	done, err := r.svc.tasks.submit(ctx, &submission{taskRequest: &q})
	if err != nil {
		return nil, err
	}
	r.id = done.task.id
	if err := r.walk(ctx); err != nil {
		return nil, err
	}
	return r, r.end(ctx)
}

// box returns fixture mode in the trial's service.
func (r *trial) box() *fixture { return r.svc.extension.(*fixture) }

// walk moves the clock until nothing is due.
func (r *trial) walk(ctx context.Context) error {
	for watched := false; ; {
		k := r.box().keeper
		if err := k.awaitIdle(ctx); err != nil {
			return err
		}
		acted, err := r.act(ctx)
		_, due := r.box().clock.nextWork()
		switch {
		case err != nil || acted:
		case due:
			_, err = k.advance(ctx, here, k.nextWork)
		case watched || r.task.state.ended() || r.task.tpl.lifecycle == nil:
			return nil
		default: // the limits of the lifecycle still move it
			watched = true
			_, err = k.advance(ctx, func(now instant) (instant, error) { return now.add(100 * 24 * time.Hour), nil })
		}
		if err != nil {
			return err
		}
	}
}

// act does the next thing that is to be done while nothing runs, and reports whether there was any.
func (r *trial) act(ctx context.Context) (acted bool, err error) {
	if r.task, err = r.svc.store.view(r.id); err != nil {
		return false, err
	}
	restarts := r.cell.Fault == faultRestart && !r.restarted
	if restarts && r.step(r.cell.Step).state == stepInProgress {
		return true, r.restart()
	}
	given, so, err := r.claim(ctx)
	if err != nil || so == nil || so.hang { // with which the lease runs out
		return so != nil, err
	}
	if restarts && given.attempt.stepName == r.cell.Step {
		err = r.restart()
	}
	verb := pick(so.outcome.success, completeVerb, failVerb)
	a := &stepAnswer{leaseAnswer: leaseAnswer{verb: verb, outcome: *so.outcome}, step: given.attempt.stepID}
	a.setLease(given.token)
	if err == nil {
		_, err = r.svc.outside.answer(ctx, a)
	}
	return true, err
}

// claim claims a step as an outside actor would, unless nobody is to answer it, and returns what a stub has for it; nil
// if none waits.
func (r *trial) claim(ctx context.Context) (given claimedStep, so *stubOutcome, err error) {
	e := r.svc.engine
	err = e.inTurn(ctx, func() error {
		for _, k := range e.outside.claimableLocked(e.outside.waiting.inOrder(func(claimKey) bool { return true }), math.MaxInt) {
			t := e.store.liveLocked(k.task)
			def := t.def(k.step)
			if r.cell.Fault == faultNobody && r.cell.Step == def.name {
				continue
			}
			var s *stub
			s, so = r.box().stubs.choose(handlerEntry, factsOf(t, k.step, t.steps[k.step].nextAttempt()))
			if so == nil || so.outcome == nil && !so.hang {
				return failf(badRequest, "nothing handles %s (callable %s), and no stub has an answer", def.name, def.shown)
			}
			s.uses++
			return e.store.updateLocked(func(c *change) (err error) {
				given, err = e.outside.claimLocked(c, k, &claimRequest{lease: time.Minute, worker: "explore"})
				return err
			})
		}
		return nil
	})
	return given, so, err
}

// restart ends the service as a crash would, and loads its state into another one, which has the fault behind it.
func (r *trial) restart() (err error) {
	var state bytes.Buffer
	if err := r.svc.store.export(r.svc.store.cut(), &state); err != nil {
		return err
	}
	r.countEvents()
	abort(r.svc)
	r.restarted, r.world.stubs = true, r.box().stubs.list
	r.svc, err = r.world.open(withState(&stateSource{document: &state}))
	return err
}

// countEvents counts the events that the present service published.
func (r *trial) countEvents() {
	log, _ := r.box().requests.copies(eventEntryName)
	for _, e := range log {
		r.events[e.facts.event]++
	}
}

// end looks at how the trial ended, and asks the application what it thinks of it.
func (r *trial) end(ctx context.Context) error {
	r.countEvents()
	r.collect()
	why, err := r.svc.engine.explain(r.id, nil, true)
	if err != nil {
		return err
	}
	r.why = strings.TrimSuffix(why.Message, "; "+why.Remedy)
	shown, moves := jsonWriter{}, jsonWriter{}
	if r.x.only != "" {
		history, err := r.svc.history.transitions(r.id, nil, true)
		if err != nil {
			return err
		}
		moves.value(history.Transitions)
	}
	taskView{task: r.task, now: r.svc.clock.now()}.writeJSON(&shown)
	r.transitions = moves.b
	r.refusal, err = r.x.call(ctx, r.x.check, shown.b)
	return err
}

// step returns a step of the task, which has it unless a fault kept it from being created.
func (r *trial) step(name string) *step {
	for i := range r.task.steps {
		if r.task.def(i).name == name {
			return &r.task.steps[i]
		}
	}
	return &step{}
}

// collect sets what is compared.
func (r *trial) collect() {
	r.took, r.values = cmp.Or(r.task.completed, r.task.updated).sub(r.task.created), map[string]string{}
	for i := range r.task.steps {
		s, name := &r.task.steps[i], r.task.def(i).name
		r.values["states."+name] = s.state.String()
		if s.last != nil && s.last.success {
			flatten(r.values, "results."+name, appendOrNull(nil, s.last.result))
		}
	}
	for name, n := range r.events {
		r.values["events."+name] = strconv.Itoa(n)
	}
}

// flatten enters the values within a JSON text by their paths.
func flatten(all map[string]string, path string, raw []byte) {
	inner := 0
	for name, value := range jsonMembers(raw) {
		flatten(all, path+"."+name, value)
		inner++
	}
	for value := range jsonElements(raw) {
		flatten(all, fmt.Sprintf("%s.%d", path, inner), value)
		inner++
	}
	if inner == 0 {
		all[path] = string(canonicalJSON(nil, raw))
	}
}

// Comparing trials.

// tryCell runs the task with a fault, and says how it ended. Whether a step may do its work under several keys is for the
// application's check, if there is one.
func (x *exploration) tryCell(ctx context.Context, seed string, c *exploredCell, base [2]*trial) error {
	r, err := x.try(ctx, seed+"/"+c.name(), c)
	if err != nil {
		return err
	}
	late, differ := max(r.took-base[0].took, 0), differences(base[0].values, base[1].values, r.values)
	c.End, c.Attempts, c.DelayMS, c.Transitions = "same", r.step(c.Step).attempts, late.Milliseconds(), r.transitions
	tries := counted(c.Attempts, "try", "tries")
	switch state, more := r.task.state, c.Attempts > base[0].step(c.Step).attempts; {
	case r.refusal != "":
		c.End, c.Message = "refused", r.refusal
	case state == taskBlockedByFailures || state == taskError:
		c.End, c.Message = "blocked", r.why
	case !state.ended():
		c.End, c.Message = "stuck", r.why
	case len(differ) > 0:
		c.End, c.Message = "other", clipText(strings.Join(differ, "; "), 300)
	case c.called && more && x.check == "":
		c.End, c.Message = "twice", "its handler was called in "+tries+", under different keys"
	case more || late > 0:
		c.End, c.Message = "recovered", fmt.Sprintf("after %s, %s later", tries, roughly(late))
	}
	c.Allowed = c.End == "same" || c.End == "recovered" || c.End == "blocked" && c.forGood || slices.Contains(x.allow[c.Fault], c.End)
	return nil
}

// differences says what differs from two trials without a fault, apart from what these do not have in common.
func differences(base, again, got map[string]string) (all []string) {
	paths := maps.Clone(base)
	maps.Copy(paths, got)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		is, was := cmp.Or(got[path], "missing"), cmp.Or(base[path], "missing")
		if is != was && (was == cmp.Or(again[path], "missing") || is == "missing" && again[path] != "") {
			all = append(all, fmt.Sprintf("%s is %s, not %s", path, clipText(is, 60), clipText(was, 60)))
		}
	}
	return all
}

// sum counts the cells, orders them, findings first and the worst of all first, and writes the text.
func (v *explorationView) sum() {
	var text strings.Builder
	v.table(&text)
	slices.SortStableFunc(v.Cells, func(a, b exploredCell) int {
		return cmp.Or(boolCount(a.Allowed)-boolCount(b.Allowed), slices.Index(exploredEnds, a.End)-slices.Index(exploredEnds, b.End))
	})
	for _, c := range v.Cells {
		v.Ends[c.End]++
		v.Findings += boolCount(!c.Allowed)
	}
	var sums []string
	for _, end := range slices.Backward(exploredEnds) {
		if v.Ends[end] > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", v.Ends[end], end))
		}
	}
	fmt.Fprintf(&text, "%s: %s\n", counted(len(v.Cells), "fault", "faults"), strings.Join(sums, ", "))
	for _, c := range v.Cells[:v.Findings] {
		fmt.Fprintf(&text, "--only %s  %s: %s\n", c.name(), c.End, c.Message)
	}
	v.Text = text.String()
}

// table writes a row for each step and a column for each fault that hits some.
func (v *explorationView) table(w io.Writer) {
	shown, steps := map[string]string{}, []string{}
	for _, c := range v.Cells {
		again := fmt.Sprintf("%d× %s", c.Attempts, roughly(time.Duration(c.DelayMS)*time.Millisecond))
		shown[c.name()], shown[c.Fault] = pick(c.Allowed, "", "✖ ")+pick(c.End == "recovered", again, c.End), c.Fault
		steps = append(steps, c.Step)
	}
	faults := slices.DeleteFunc(faultNames(), func(name string) bool { return shown[name] == "" })
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "STEP\t"+strings.Join(faults, "\t"))
	for _, step := range slices.Compact(steps) {
		fmt.Fprint(tab, step)
		for _, fault := range faults {
			fmt.Fprint(tab, "\t", cmp.Or(shown[step+":"+fault], "-"))
		}
		fmt.Fprintln(tab)
	}
	tab.Flush()
}

// application calls the application. It follows no redirect, such as one to a page for logging in, which is no consent.
var application = newAuthClient(time.Minute, nil)

// call posts to the application, and returns what it says if it refuses.
func (x *exploration) call(ctx context.Context, url string, body []byte) (refusal string, err error) {
	if url == "" {
		return "", nil
	}
	if webURL(url) == nil {
		return "", failf(badRequest, "%q is not a URL like http://127.0.0.1:9000/check", redactURL(url))
	}
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body)) // of a URL that can be parsed
	r.Header.Set("Content-Type", "application/json")
	resp, err := application.Do(r)
	if err != nil {
		return "", failf(unavailable, "no reply from %s: %v", redactURL(url), withoutURL(err))
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxReasonLength))
	if resp.StatusCode/100 == 2 {
		return "", nil
	}
	return cmp.Or(strings.Join(strings.Fields(cleanText(said)), " "), resp.Status), nil
}

// The route.

// explore explores a task with the templates, handlers and stubs of the service.
func (a *controlAPI) explore(w *responseWriter, r *http.Request) (any, error) {
	x := &exploration{host: a.fixture, task: &taskRequest{namespace: "default", creation: creation{key: "explore"}}, allow: map[string][]string{}}
	if err := (bodyRules{}).fields(r, "nothing was explored", x.read); err != nil {
		return nil, err
	}
	extendWriting(w, maxControlTimeout)
	return x.explore(r.Context())
}

func (x *exploration) read(f *fieldReader, body []byte) {
	known := []string{"namespace", "name", "version", "context", "only", "before", "check", "parallel", "allow"}
	f.members("", body, known, func(key, _ string, raw []byte) {
		switch key {
		case "only":
			x.only = f.text(key, raw, 1, maxReasonLength)
		case "before", "check":
			url := pick(key == "before", &x.before, &x.check)
			*url = f.text(key, raw, 1, maxReasonLength)
			err := cmp.Or(refuseIf(webURL(*url) == nil, notWebURL), checkAddedCallable(x.host.svc.cfg, &handlerSet{}, *url)) // for which no mapping counts
			if err != nil && !f.complainedOf(key) {
				f.complain(key, "%v", err)
			}
		case "parallel":
			x.parallel = f.count(key, raw, 1, maxSandboxes)
		case "allow":
			f.members(key, raw, faultNames(), func(fault, at string, ends []byte) {
				f.array(at, ends, len(exploredEnds)-1, "ends", func(at string, e []byte) {
					x.allow[fault] = append(x.allow[fault], f.word(at, e, exploredEnds[1:]...))
				})
			})
		default:
			x.task.field(f, key, raw)
		}
	})
	if x.task.name == "" && !f.complainedOf("name") {
		f.complain("name", "is required")
	}
}
