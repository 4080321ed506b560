package main

// Stubs: scripted outcomes of attempts, by which tests replace handlers and subscribers. How
// they are read, which one counts for an attempt, and how it takes the place of the handler,
// through the same records and transitions as a real attempt, or of a subscriber.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stubFault says what goes wrong with a delivery.
type stubFault string

const (
	noFault           stubFault = ""
	workerLost        stubFault = "worker_lost"        // the process crashed before it had a result
	resultLost        stubFault = "result_lost"        // it crashed with the result
	duplicateDelivery stubFault = "duplicate_delivery" // the handler gets the attempt twice
	lateCompletion    stubFault = "late_completion"    // the result comes after the attempt timed out
)

// stubOutcome scripts one delivery.
type stubOutcome struct {
	outcome *outcome      // nil for the handler's own, with a fault
	delay   time.Duration // in the service's time
	hang    bool          // until the step's timeout
	fault   stubFault
}

// instant reports whether the attempt starts and ends at once.
func (s *stubOutcome) instant() bool {
	yields := s.outcome != nil && s.outcome.checkpoint != nil
	return s.fault == noFault && !s.hang && s.delay == 0 && !yields
}

// stubExhaustedType is the error type of a delivery for which a stub has no
// outcome left.
const stubExhaustedType = "stub_exhausted"

// stubThen says what follows the last outcome.
type stubThen string

const (
	thenLast    stubThen = "last"    // the same again
	thenHandler stubThen = "handler" // the step's own handler
	thenFail    stubThen = "fail"    // a permanent failure
)

// stub takes the place of the handlers of the attempts that it matches, or of subscribers:
// their n-th delivery has the n-th outcome.
type stub struct {
	id       string
	seq      int
	kind     string // handlerEntry or deliveryEntry
	match    matcher
	outcomes []stubOutcome
	then     stubThen
	uses     int // deliveries that it has decided; guarded by the store's lock

	matchText, outcomesText []byte // as they were given, compact
}

// next returns the outcome of the next delivery; nil leaves it to the handler.
func (s *stub) next() *stubOutcome {
	switch last := len(s.outcomes) - 1; {
	case s.uses <= last:
		return &s.outcomes[s.uses]
	case s.then == thenLast:
		return &s.outcomes[last]
	case s.then == thenFail:
		o := typedFailure(stubExhaustedType, "%s has no outcome left for delivery %d", s.id, s.uses+1)
		return &stubOutcome{outcome: &o}
	}
	return nil
}

// maxStubs bounds the stubs of a service: each attempt is compared with all.
const maxStubs = 1000

// stubs holds the stubs of a service. It is guarded by the store's lock.
type stubs struct {
	list []*stub // the most specific first, then the newest
	made int
}

// insert adds stubs; the later ones are newer.
func (l *stubs) insert(all []*stub) error {
	if len(l.list)+len(all) > maxStubs {
		return failf(conflict, "too many stubs: %d exist, and at most %d may", len(l.list), maxStubs)
	}
	for _, s := range all {
		l.made++
		s.seq, s.id = l.made, "stub-"+strconv.Itoa(l.made)
	}
	l.list = slices.Concat(l.list, all)
	slices.SortFunc(l.list, func(a, b *stub) int {
		return cmp.Or(cmp.Compare(b.match.specificity(), a.match.specificity()), cmp.Compare(b.seq, a.seq))
	})
	return nil
}

// replace replaces all stubs. On an error they stay.
func (l *stubs) replace(all []*stub) error {
	before := l.list
	l.list = nil
	err := l.insert(all)
	if err != nil {
		l.list = before
	}
	return err
}

func (l *stubs) remove(id string) (found bool) {
	n := len(l.list)
	l.list = slices.DeleteFunc(slices.Clone(l.list), func(s *stub) bool { return s.id == id })
	return len(l.list) < n
}

func (l *stubs) find(id string) *stub {
	i := slices.IndexFunc(l.list, func(s *stub) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	return l.list[i]
}

// choose returns the stub that counts for an attempt of a kind about to start, and its
// outcome; nil where there is none.
func (l *stubs) choose(kind string, x matchable) (*stub, *stubOutcome) {
	for _, s := range l.list {
		if s.kind == kind && s.match.fits(x) {
			return s, s.next()
		}
	}
	return nil, nil
}

// mayAct reports whether some attempt of a step may be played, whichever comes next.
func (l *stubs) mayAct(x matchable) bool {
	return slices.ContainsFunc(l.list, func(s *stub) bool {
		return s.kind == handlerEntry && s.next() != nil && s.match.fitsBut(x, "attempt")
	})
}

// Reading stubs from requests.

// stubKinds are the members of a stub's match, by what it decides: attempts of steps, or
// attempts to send events to subscribers.
var stubKinds = map[string][]matchMember{
	handlerEntry: {
		{"namespace", matchText}, {"name", matchText}, {"version", matchText}, {"step", matchStep},
		{"callable", matchText}, {"attempt", matchCount}, {"context", matchSubset},
	},
	deliveryEntry: {
		{"subscriber", matchText}, {"event", matchText}, {"namespace", matchText}, {"name", matchText},
		{"version", matchText}, {"step", matchStep}, {"attempt", matchCount}, {"payload", matchSubset},
	},
}

// maxStubOutcomes bounds the outcomes of a stub.
const maxStubOutcomes = 1000

// readStubs reads {"stubs": [...]}.
func readStubs(f *fieldReader, body []byte) (all []*stub) {
	given := f.members("", body, []string{"stubs"}, func(key, at string, value []byte) {
		if !eachElement(value, func(e []byte) bool {
			all = append(all, f.stub(fmt.Sprintf("stubs[%d]", len(all)), e))
			return len(all) <= maxStubs
		}) {
			f.complain(key, "must be an array of stubs")
		}
	})
	if len(given) == 0 {
		f.complain("stubs", "is required")
	}
	return all
}

// stub reads a stub; path is "" for a body.
func (f *fieldReader) stub(path string, raw []byte) *stub {
	s := &stub{then: thenLast}
	given := f.members(path, raw, []string{"match", "outcomes", "then"}, func(key, at string, value []byte) {
		switch key {
		case "match":
			s.kind, s.match = f.matcher(at, value, stubKinds)
			s.matchText = compactJSON(nil, value)
		case "outcomes":
			s.outcomes, s.outcomesText = f.stubOutcomes(at, value), compactJSON(nil, value)
		case "then":
			s.then = stubThen(f.word(at, value, string(thenLast), string(thenHandler), string(thenFail)))
		}
	})
	if given != nil && !given["match"] {
		f.complain(memberPath(path, "match"), "is required; {} matches everything")
	}
	if given != nil && !given["outcomes"] {
		f.complain(memberPath(path, "outcomes"), "is required")
	}
	for i := range s.outcomes {
		if o := &s.outcomes[i]; s.kind == deliveryEntry && (o.fault != noFault || o.outcome != nil && o.outcome.checkpoint != nil) {
			f.complain(fmt.Sprintf("%s[%d]", memberPath(path, "outcomes"), i),
				"must have a result, an error, a delay or hang: a subscriber has no checkpoints and no faults")
		}
	}
	return s
}

func (f *fieldReader) stubOutcomes(path string, raw []byte) (all []stubOutcome) {
	isArray := eachElement(raw, func(e []byte) bool {
		all = append(all, f.stubOutcome(fmt.Sprintf("%s[%d]", path, len(all)), e))
		return len(all) <= maxStubOutcomes
	})
	if n := len(all); !isArray || n == 0 || n > maxStubOutcomes {
		f.complain(path, "must be an array of 1 to %d outcomes", maxStubOutcomes)
	}
	return all
}

func (f *fieldReader) stubOutcome(path string, raw []byte) (s stubOutcome) {
	known := []string{"result", "error", "checkpoint", "delay", "hang", "fault"}
	given := f.members(path, raw, known, func(key, at string, value []byte) {
		switch key {
		case "result":
			s.outcome = &outcome{success: true, result: compactResult(value)}
		case "error":
			s.outcome = f.stubError(at, value)
		case "checkpoint":
			data, problem := readCheckpoint(value)
			if s.outcome = (&outcome{success: true, checkpoint: data}); problem != "" {
				f.complain(at, "%s", problem)
			}
		case "delay":
			s.delay = f.boundedDuration(at, value, maxSleepMS*time.Millisecond)
		case "hang":
			if s.hang = jsonKind(value) == 't'; !s.hang {
				f.complain(at, "must be true")
			}
		case "fault":
			s.fault = stubFault(f.word(at, value, string(workerLost), string(resultLost),
				string(duplicateDelivery), string(lateCompletion)))
		}
	})
	if string(objectMember(raw, "result")) == "null" && s.outcome == nil && !s.hang && s.fault != workerLost {
		given["result"], s.outcome = true, &outcome{success: true}
	}
	f.stubOutcomeRules(&s, path, given)
	if s.outcome == nil && s.fault == noFault {
		s.outcome = &outcome{success: true}
	}
	return s
}

// stubOutcomeRules checks for members that exclude each other.
func (f *fieldReader) stubOutcomeRules(s *stubOutcome, path string, given map[string]bool) {
	switch {
	case given == nil: // no object, which was complained of
	case len(given) == 0:
		f.complain(path, "must have a result, an error, a checkpoint, a delay, hang or a fault")
	case given["result"] && given["error"]:
		f.complain(path+".error", "cannot be combined with a result")
	case given["checkpoint"] && (given["result"] || given["error"] || given["fault"]):
		f.complain(path+".checkpoint", "cannot be combined with a result, an error or a fault")
	case given["hang"] && len(given) > 1:
		f.complain(path+".hang", "cannot be combined with anything else")
	case s.fault == workerLost && s.outcome != nil:
		f.complain(path+".fault", "worker_lost cannot be combined with a result or an error")
	case s.fault == duplicateDelivery && given["delay"]:
		f.complain(path+".delay", "cannot be combined with duplicate_delivery")
	}
}

// stubError reads {"message", "error_type"?, "retryable"?, "retry_after"?}.
func (f *fieldReader) stubError(path string, raw []byte) *outcome {
	o := typedFailure(handlerErrorType, "")
	known := []string{"message", "error_type", "retryable", "retry_after"}
	given := f.members(path, raw, known, func(key, at string, value []byte) {
		switch key {
		case "message":
			o.err.message = cleanText([]byte(f.text(at, value, 1, maxMessageLength)))
		case "error_type":
			o.err.errorType = f.text(at, value, 1, maxNameLength)
		case "retryable":
			o.err.retryable = f.flag(at, value)
		case "retry_after":
			o.retryAfter = clampRetryAfter(f.boundedDuration(at, value, maxRetryAfter))
		}
	})
	if given != nil && o.err.message == "" && !f.complainedOf(path+".message") {
		f.complain(path+".message", "is required")
	}
	return &o
}

// The stubs of the control API: adding, listing and removing them.

// stubView shows a stub.
type stubView struct {
	ID       string          `json:"id"`
	Match    json.RawMessage `json:"match"`
	Outcomes json.RawMessage `json:"outcomes"`
	Then     stubThen        `json:"then"`
	Uses     int             `json:"uses"` // deliveries that it has decided
	Warning  string          `json:"warning,omitempty"`
}

// stubList shows all stubs, in the order in which they are tried.
type stubList struct {
	Stubs []stubView `json:"stubs"`
}

func (s *stub) view() stubView {
	return stubView{ID: s.id, Match: s.matchText, Outcomes: s.outcomesText, Then: s.then, Uses: s.uses}
}

func (l *stubs) view() stubList {
	v := stubList{make([]stubView, len(l.list))}
	for i, s := range l.list {
		v.Stubs[i] = s.view()
	}
	return v
}

func stubNotFound(id string) *failure { return failf(notFound, "stub %.60q not found", id) }

func (a *controlAPI) addStub(w http.ResponseWriter, r *http.Request) (any, error) {
	var s *stub
	err := bodyRules{}.fields(r, "the stub is refused", func(f *fieldReader, body []byte) { s = f.stub("", body) })
	if err == nil {
		err = a.checkSizes(s)
	}
	if err != nil {
		return nil, err
	}
	var v stubView
	err = a.fixture.changeStubs(r.Context(), func(l *stubs) error {
		err := l.insert([]*stub{s})
		v = s.view()
		return err
	})
	if err != nil {
		return nil, err
	}
	v.Warning = a.fixture.warning(s.match)
	w.Header().Set("Location", controlPath+"/stubs/"+v.ID)
	return reply{http.StatusCreated, v}, nil
}

// checkSizes refuses a stub with a result that no handler could return.
func (a *controlAPI) checkSizes(all ...*stub) error {
	for _, s := range all {
		for _, o := range s.outcomes {
			if o.outcome == nil {
				continue
			}
			if err := a.fixture.svc.cfg.Worker.checkSize(o.outcome); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *controlAPI) replaceStubs(_ http.ResponseWriter, r *http.Request) (any, error) {
	var all []*stub
	err := bodyRules{}.fields(r, "the stubs stay as they are", func(f *fieldReader, body []byte) {
		all = readStubs(f, body)
	})
	if err == nil {
		err = a.checkSizes(all...)
	}
	if err != nil {
		return nil, err
	}
	var v stubList
	var kept []*stub
	err = a.fixture.changeStubs(r.Context(), func(l *stubs) error {
		err := l.replace(all)
		v, kept = l.view(), l.list
		return err
	})
	for i, s := range kept {
		v.Stubs[i].Warning = a.fixture.warning(s.match)
	}
	return v, err
}

// warning names the first step in matches that no template has, or returns "". It is no refusal:
// a template may be added later, or a task may be of an earlier one.
func (f *fixture) warning(matches ...matcher) string {
	for _, rule := range slices.Concat(matches...) {
		if rule.form == matchStep {
			if text := unknownStep(f.svc.templates.registry(), rule.want); text != "" {
				return text
			}
		}
	}
	return ""
}

// unknownStep says that no template has a step or an instance of this name, or returns "".
func unknownStep(r *registry, name string) string {
	var known []string
	for _, t := range r.all() {
		for i := range t.steps {
			s := &t.steps[i]
			if s.name == name || s.kind == stepBatchWorker && strings.HasPrefix(name, s.name+"_") {
				return ""
			}
			known = append(known, s.name)
		}
	}
	text := fmt.Sprintf("no template has a step %q", name)
	if near := nearestWord(name, known, typoLimit(name)); near != "" {
		text += "; did you mean " + near + "?"
	}
	return text
}

func (a *controlAPI) listStubs(_ http.ResponseWriter, _ *http.Request) (v any, err error) {
	a.fixture.readStubs(func(l *stubs) { v = l.view() })
	return v, nil
}

func (a *controlAPI) getStub(_ http.ResponseWriter, r *http.Request) (v any, err error) {
	id := r.PathValue("id")
	err = stubNotFound(id)
	a.fixture.readStubs(func(l *stubs) {
		if s := l.find(id); s != nil {
			v, err = s.view(), nil
		}
	})
	return v, err
}

func (a *controlAPI) removeStub(_ http.ResponseWriter, r *http.Request) (any, error) {
	err := a.fixture.changeStubs(r.Context(), func(l *stubs) error {
		if !l.remove(r.PathValue("id")) {
			return stubNotFound(r.PathValue("id"))
		}
		return nil
	})
	return noContent{}, err
}

func (a *controlAPI) removeStubs(_ http.ResponseWriter, r *http.Request) (any, error) {
	err := a.fixture.changeStubs(r.Context(), func(l *stubs) error { return l.replace(nil) })
	return noContent{}, err
}

// delivery holds fixture mode's data of an attempt in flight. It observes the
// attempt's outcome.
type delivery struct {
	call    *handlerCall // in the request journal; nil before it begins
	created uint64       // the task's place in the order of creation
	order   int          // among the deliveries of one attempt

	member    bool       // its outcome is held until those of its batch have ended
	outcome   *outcome   // of a member that has ended; guarded by the store's lock
	goesWrong *playedRun // what becomes of a member's outcome when it is recorded; nil for nothing
}

// deliveryOf returns what fixture mode keeps with an attempt.
func deliveryOf(k *run) *delivery { return k.observer.(*delivery) }

func (d *delivery) ended(o outcome) {
	if d.call != nil {
		d.call.ended(o)
	}
}

// started enters an attempt of a step's own handler in the request journal.
func (f *fixture) started(t *task, k *run) outcomeObserver {
	c := f.callOf(t, k.key.step, k.number)
	f.requests.begin(c)
	return &delivery{call: c, created: t.seq}
}

// ran enters an attempt that has ended at once.
func (f *fixture) ran(t *task, i, number int, o outcome) {
	c := f.callOf(t, i, number)
	f.requests.begin(c)
	c.ended(o)
}

// callOf returns the entry of an attempt for the request journal.
func (f *fixture) callOf(t *task, i, number int) *handlerCall {
	return newHandlerCall(f.svc.engine.attemptLocked(t, i, number, true), t.def(i).callable, declaredName(t, i))
}

// declaredName returns the template's name of a step, which the instances of a batch
// worker share.
func declaredName(t *task, i int) string { return t.tpl.steps[t.declared(i)].name }

// Playing stubs.

// startingAttempt is an attempt that is to start, as stubs see it.
type startingAttempt struct {
	t *task
	i int
}

func (a startingAttempt) fact(member string) string {
	switch member {
	case "namespace":
		return a.t.tpl.namespace
	case "name":
		return a.t.tpl.name
	case "version":
		return a.t.tpl.version
	case "step":
		return a.t.def(a.i).name
	case "template_step":
		return declaredName(a.t, a.i)
	case "callable":
		return a.t.def(a.i).callable
	case "attempt":
		return strconv.Itoa(a.t.steps[a.i].nextAttempt())
	}
	return ""
}

func (a startingAttempt) document(string) []byte { return orEmptyObject(a.t.by.context) }

// mayPlay reports whether a stub may play a step for outside actors.
func (f *fixture) mayPlay(t *task, i int) bool {
	return len(f.stubs.list) > 0 && f.stubs.mayAct(startingAttempt{t, i})
}

// play lets a stub take the place of the handler of a step that left its queue, if
// one matches. With an error nothing has happened.
func (f *fixture) play(t *task, i int, g target) (played bool, err error) {
	if len(f.stubs.list) == 0 {
		return false, nil
	}
	s, so := f.stubs.choose(handlerEntry, startingAttempt{t, i})
	if so == nil {
		return false, nil
	}
	t.steps[i].queued = false
	if so.instant() && f.lockstep == nil {
		err = f.playAtOnce(t, i, s, *so.outcome)
	} else {
		err = f.startPlayed(t, i, g, s, so)
	}
	if err == nil {
		s.uses++
	}
	return true, err
}

// playAtOnce records an attempt that starts and ends in one.
func (f *fixture) playAtOnce(t *task, i int, s *stub, o outcome) error {
	e := f.svc.engine
	c := f.callOf(t, i, t.steps[i].nextAttempt()).by(s, noFault)
	o = e.fitted(t.def(i), o)
	err := e.recordRanLocked(t, i, o, e.clock.now())
	if err == nil {
		f.requests.begin(c)
		c.ended(o)
	}
	return err
}

// playedRun is an attempt in flight that a stub has decided.
type playedRun struct {
	*run
	*stubOutcome
	stub     *stub
	attempt  *attempt
	callable string
	declared string        // the template's name of the step
	delay    time.Duration // until it lands
	timeout  time.Duration
}

// begin enters a delivery of a played attempt in the request journal.
func (f *fixture) begin(p *playedRun, k *run) {
	d := deliveryOf(k)
	d.call = newHandlerCall(p.attempt, p.callable, p.declared).by(p.stub, p.fault)
	f.requests.begin(d.call)
}

// startPlayed begins an attempt that takes time or goes wrong. Where that needs an
// outcome that the stub does not have, it calls the step's own handler.
func (f *fixture) startPlayed(t *task, i int, g target, s *stub, so *stubOutcome) error {
	e, seen := f.svc.engine, t.lastSeq
	k, err := e.startRunLocked(t, i, g)
	if err != nil {
		return err
	}
	k.observer = &delivery{created: t.seq}
	a := e.attemptLocked(t, i, k.number, true)
	p := &playedRun{
		run: k, stubOutcome: so, stub: s, attempt: a, callable: t.def(i).callable, declared: declaredName(t, i),
		delay: so.delay, timeout: a.timeout,
	}
	if so.hang {
		p.delay = a.timeout + 1
	}
	f.begin(p, k)
	switch {
	case so.instant(): // as a member of its batch
		k.cancel = cannotCancel
		e.joinLocked(k)
		f.lockstep.endedLocked(k, so.outcome)
	case so.outcome != nil:
		f.land(p, *so.outcome)
	case so.fault == workerLost || g.kind == outsideActor:
		f.land(p, outcome{success: true})
	case g.builtin != nil:
		o, delay := g.builtin.run(a) // memory work, in fixture mode alone
		p.delay += delay
		f.land(p, o)
	default:
		f.call(p, g, seen)
	}
	return nil
}

// land ends the attempt with an outcome, or lets it go wrong with it, when it is
// time for that.
func (f *fixture) land(p *playedRun, o outcome) {
	e, k, at, late := f.svc.engine, p.run, p.started.add(p.delay), p.started.add(p.timeout)
	if p.fault == resultLost || p.fault == lateCompletion {
		deliveryOf(k).ended(o) // the request journal shows the handler's outcome even if it is lost
	}
	end := func() { e.finish(k, o) }
	switch {
	case p.fault == lateCompletion:
		at = late
		second := k.again()
		end = func() {
			e.clock.schedule(late.add(p.delay), func() { e.finish(second, o) })
			e.finish(k, timedOut(p.timeout))
		}
	case p.delay > p.timeout:
		at = late
		end = func() { e.finish(k, timedOut(p.timeout)) }
	case p.fault == duplicateDelivery:
		second := k.again()
		end = func() {
			f.begin(p, second)
			e.finish(k, o)
			e.finish(second, o)
		}
	case p.fault == workerLost || p.fault == resultLost:
		end = func() { e.conclude(k, o, loseOutcome, nil) }
	}
	k.timer = e.clock.schedule(at, end)
}

// loseOutcome records that the outcome of an attempt was lost.
func loseOutcome(e *engine, c *change, k *run, _ outcome) error {
	t, err := c.task(k.key.task)
	if err != nil || k.gone {
		return err
	}
	k.gone = true
	return c.append(t, e.lostRecord(t, k.key.step))
}

// cannotCancel is the cancel of a run that nothing can cut off.
func cannotCancel() {}

// again returns another delivery of an attempt, whose outcome is too late.
func (k *run) again() *run {
	return &run{
		key: k.key, def: k.def, pool: k.pool, number: k.number, started: k.started, cancel: cannotCancel, gone: true, freed: true,
		observer: &delivery{created: deliveryOf(k).created, order: 1},
	}
}

// call calls the handler of an attempt that goes wrong: once, or twice where the
// delivery is doubled.
func (f *fixture) call(p *playedRun, g target, seen uint64) {
	e, k := f.svc.engine, p.run
	ctx := new(attemptContext)
	k.cancel = ctx.cancel
	e.joinLocked(k)
	deliver := func(end func(*run, outcome), k *run) {
		if e.store.outwait(ctx, seen) != nil {
			e.abandon(k)
			return
		}
		end(k, e.handlers.run(ctx, g, p.attempt))
	}
	if p.fault != duplicateDelivery {
		deliveryOf(k).goesWrong = p
		e.wg.Go(func() {
			deliver(func(_ *run, o outcome) { f.park(p, o) }, k)
		})
		return
	}
	second := k.again()
	second.freed, second.cancel = false, ctx.cancel
	k.pool.free--
	e.joinLocked(second)
	inBatch := f.lockstep != nil
	if inBatch {
		f.begin(p, second) // in the order of the batch
	}
	e.wg.Go(func() {
		deliver(e.finish, k)
		if !inBatch {
			f.begin(p, second)
		}
		deliver(e.finish, second)
	})
}

// park lets the outcome that a handler gave go wrong. The attempt is no handler in
// flight any more, but a delay of our own.
func (f *fixture) park(p *playedRun, o outcome) {
	e, k, parked := f.svc.engine, p.run, false
	e.store.locked(func() {
		if deliveryOf(k).member || k.gone || wasCancelled(o) {
			return
		}
		parked = true
		f.parkLocked(p, o)
		e.checkIdleLocked()
	})
	if !parked {
		e.finish(k, o)
	}
}

func (f *fixture) parkLocked(p *playedRun, o outcome) {
	becomeDelay(f.svc.engine, p.run)
	f.land(p, o)
}

// becomeDelay makes an attempt in flight a delay of our own, which is in no batch.
func becomeDelay(e *engine, k *run) {
	deliveryOf(k).member, k.cancel = false, nil
	delete(e.inFlight, k)
}

// changeStubs changes the stubs, and queues those steps to be played that waited
// for outside actors until now.
func (f *fixture) changeStubs(ctx context.Context, change func(*stubs) error) error {
	return f.svc.engine.inTurn(ctx, func() error { return f.changeStubsLocked(change) })
}

func (f *fixture) changeStubsLocked(change func(*stubs) error) error {
	if err := change(&f.stubs); err != nil {
		return err
	}
	e := f.svc.engine
	var played []runKey
	anyStep := func(claimKey) bool { return true }
	e.outside.waiting.walk(anyStep, func(o *claimEntry) bool {
		if t := e.store.liveLocked(o.task); t != nil && f.mayPlay(t, o.step) {
			played = append(played, o.runKey)
		}
		return true
	})
	for _, k := range played {
		e.outside.waiting.remove(k)
		e.enqueueLocked(e.store.liveLocked(k.task), k.step)
	}
	e.wakeUp()
	return nil
}

func (f *fixture) readStubs(read func(*stubs)) {
	f.svc.store.locked(func() { read(&f.stubs) })
}

// Sending events to subscribers. In fixture mode nothing goes out unless the configuration says
// so: the events count as delivered, unless a stub decides otherwise.

// deliver takes the place of an attempt to send an event.
func (f *fixture) deliver(ctx context.Context, a *sendAttempt) sendResult {
	if err := f.awaitSending(ctx, a); err != nil {
		return sendResult{problem: err.Error()}
	}
	c := &sentEntry{eventEntry: eventEntry{event: a.event}, sendAttempt: a}
	so := f.beginSending(c)
	var r sendResult
	switch {
	case so != nil:
		r = f.playSending(c, so)
	case !c.stubbed:
		r = f.svc.publisher.send(ctx, a)
	}
	f.requests.ended(c, &c.outcome, r.outcome())
	return r
}

// awaitSending waits in lockstep until nothing else runs, can start or is due, and no other
// subscriber waits for an older event.
func (f *fixture) awaitSending(ctx context.Context, a *sendAttempt) error {
	if f.lockstep == nil {
		return nil
	}
	if a.byHand {
		return f.lockstep.inTurn(ctx, func() error { return nil })
	}
	for ctx.Err() == nil {
		stirred, next := f.clock.stirred.next(), false
		f.svc.store.locked(func() {
			first, _ := f.svc.publisher.nextLocked()
			next = first == a.subscriber && f.svc.engine.restsLocked() && f.clock.settled()
		})
		if next {
			return nil
		}
		select {
		case <-stirred:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// beginSending enters an attempt to send an event in the request journal, and returns the
// outcome that a stub has for it; nil for none.
func (f *fixture) beginSending(c *sentEntry) (so *stubOutcome) {
	f.svc.store.locked(func() {
		var s *stub
		if s, so = f.stubs.choose(deliveryEntry, c); so != nil {
			s.uses++
			c.stub = &s.id
		}
		c.stubbed = so != nil || !f.svc.cfg.Fixture.SendEvents
		f.requests.enter(c)
	})
	return so
}

// playSending ends an attempt to send an event as a stub says. By hand, nothing waits.
func (f *fixture) playSending(c *sentEntry, so *stubOutcome) sendResult {
	delay, late := so.delay, so.hang || so.delay > c.timeout()
	if late {
		delay = c.timeout()
	}
	if delay > 0 && !c.byHand && !f.svc.publisher.rest(c.sendAttempt, delay, func() {}) {
		return sendResult{problem: "the service ended"}
	}
	switch o := so.outcome; {
	case late:
		return c.noReply()
	case !o.success:
		return sendResult{o.err.message, !o.err.retryable, o.retryAfter}
	}
	return sendResult{}
}

// outcome returns the result in the form of the request journal.
func (r sendResult) outcome() outcome {
	if r.problem == "" {
		return outcome{success: true}
	}
	o := typedFailure("not_delivered", "%s", r.problem)
	o.err.retryable = !r.final
	return o
}

// sendingTimers returns what subscribers wait for.
func (f *fixture) sendingTimers() (all []workTimer) {
	f.svc.store.locked(func() {
		for _, s := range f.svc.publisher.subscribers {
			if r := s.rest; r != nil {
				all = append(all, workTimer{
					DueAt: zonedTime(r.until), Kind: "delivery", TaskUUID: r.event.task, Namespace: r.event.tpl.namespace,
					Name: r.event.tpl.name, StepName: r.event.stepName, Attempt: r.number, Subscriber: s.Name,
				})
			}
		}
	})
	return all
}
