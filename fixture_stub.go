package main

// Stubs: scripted outcomes of attempts, by which tests replace handlers and subscribers. How they
// are read, and which one counts for an attempt.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
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

// instant reports whether the attempt starts and ends at the same instant.
func (s *stubOutcome) instant() bool {
	yields := s.outcome != nil && s.outcome.checkpoint != nil
	return s.fault == noFault && !s.hang && s.delay == 0 && !yields
}

// stubExhaustedType is the error type of a delivery for which a stub has no outcome left.
const stubExhaustedType = "stub_exhausted"

// stubThen says what follows the last outcome.
type stubThen string

const (
	thenLast    stubThen = "last"    // the same again
	thenHandler stubThen = "handler" // the step's own handler
	thenFail    stubThen = "fail"    // a permanent failure
	thenOthers  stubThen = "others"  // what the other stubs have; of an exploration's fault
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

// Limits of the stubs of a service: each attempt is compared with all.
const (
	maxStubs       = 1000
	maxStubMatches = 4 << 20 // bytes of their matches together
)

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
	size := 0
	for _, s := range slices.Concat(l.list, all) {
		size += len(s.matchText)
	}
	if size > maxStubMatches {
		return failf(conflict, "too many conditions: the matches of all stubs would have %d bytes, and at most %d may be", size, maxStubMatches)
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
	// A clone, since replaceStubs reads the list that it got after it has released the lock.
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
func (l *stubs) choose(kind string, x facts) (*stub, *stubOutcome) {
	x.decoded = new(jsonValue) // all stubs look at the same document
	for _, s := range l.list {
		if s.kind == kind && s.match.fits(&x) && (s.then != thenOthers || s.next() != nil) {
			return s, s.next()
		}
	}
	return nil, nil
}

// mayAct reports whether some attempt of a step may be played, whichever comes next.
func (l *stubs) mayAct(x facts) bool {
	x.decoded = new(jsonValue) // all stubs look at the same document
	return slices.ContainsFunc(l.list, func(s *stub) bool {
		return s.kind == handlerEntry && s.next() != nil && s.match.fitsBut(&x, "attempt")
	})
}

// Reading stubs from requests.

// stubKinds are the members of a stub's match, by what it decides: attempts of steps, or
// attempts to send events to subscribers.
var stubKinds = map[string][]string{
	handlerEntry:  {"namespace", "name", "version", "step", "callable", "attempt", "context"},
	deliveryEntry: {"subscriber", "event", "namespace", "name", "version", "step", "attempt", "payload"},
}

// maxStubOutcomes bounds the outcomes of a stub.
const maxStubOutcomes = 1000

// readStubs reads {"stubs": [...]}.
func readStubs(f *fieldReader, body []byte) (all []*stub) {
	given := f.members("", body, []string{"stubs"}, func(key, at string, value []byte) {
		if jsonKind(value) != '[' {
			f.complain(key, "must be an array of stubs")
		}
		for e := range jsonElements(value) {
			if all = append(all, f.stub(fmt.Sprintf("stubs[%d]", len(all)), e)); len(all) > maxStubs {
				break
			}
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
	f.array(path, raw, maxStubOutcomes, "outcomes", func(at string, e []byte) { all = append(all, f.stubOutcome(at, e)) })
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
	// members takes null for absent, but a result can be null: it counts where a result is possible and nothing else is
	// given.
	if string(objectMember(raw, "result")) == "null" && s.outcome == nil && !s.hang && s.fault != workerLost {
		// Counted as given, too, for the rules below.
		given["result"], s.outcome = true, &outcome{success: true}
	}
	f.stubOutcomeRules(&s, path, given)
	if s.outcome == nil && s.fault == noFault {
		s.outcome = &outcome{success: true}
	}
	return s
}

// stubOutcomeRules checks for members that cannot be combined.
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

func (a *controlAPI) addStub(w *responseWriter, r *http.Request) (any, error) {
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
			// The journal and answers must not meet what no handler could cause.
			if err := a.fixture.svc.cfg.Worker.checkSize(o.outcome); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *controlAPI) replaceStubs(_ *responseWriter, r *http.Request) (any, error) {
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

// warning names the first step in matches that no template has, or returns "". It is not a refusal:
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
	for _, t := range r.sorted {
		for i := range t.steps {
			s := &t.steps[i]
			if s.name == name || s.kind == stepBatchWorker && strings.HasPrefix(name, s.name+"_") {
				return ""
			}
			known = append(known, s.name)
		}
	}
	return fmt.Sprintf("no template has a step %q", name) + meant(nearestWord(name, known, typoLimit(name)))
}

func (a *controlAPI) listStubs(_ *responseWriter, _ *http.Request) (v any, err error) {
	a.fixture.readStubs(func(l *stubs) { v = l.view() })
	return v, nil
}

func (a *controlAPI) getStub(_ *responseWriter, r *http.Request) (v any, err error) {
	id := r.PathValue("id")
	err = stubNotFound(id)
	a.fixture.readStubs(func(l *stubs) {
		if s := l.find(id); s != nil {
			v, err = s.view(), nil
		}
	})
	return v, err
}

func (a *controlAPI) removeStub(_ *responseWriter, r *http.Request) (any, error) {
	err := a.fixture.changeStubs(r.Context(), func(l *stubs) error {
		if !l.remove(r.PathValue("id")) {
			return stubNotFound(r.PathValue("id"))
		}
		return nil
	})
	return noContent{}, err
}

func (a *controlAPI) removeStubs(_ *responseWriter, r *http.Request) (any, error) {
	err := a.fixture.changeStubs(r.Context(), func(l *stubs) error { return l.replace(nil) })
	return noContent{}, err
}

// changeStubs changes the stubs, and queues those steps to be played that waited for outside actors until now.
func (f *fixture) changeStubs(ctx context.Context, change func(*stubs) error) error {
	return f.svc.engine.inTurn(ctx, func() error { return f.changeStubsLocked(change) })
}

func (f *fixture) changeStubsLocked(change func(*stubs) error) error {
	if err := change(&f.stubs); err != nil {
		return err
	}
	e := f.svc.engine
	// Collected first: the queue of those that wait must not change during the walk.
	var played []runKey
	for o := range e.outside.waiting.inOrder(func(claimKey) bool { return true }) {
		if t := e.store.liveLocked(o.task); t != nil && f.mayPlay(t, o.step) {
			played = append(played, o.runKey)
		}
	}
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

// Matchers choose entries of the journal, and stubs, by facts that the members of a request name.

// facts are what matches can demand of an entry of the request log, or of a delivery that is to begin. What it does not
// have is zero.
type facts struct {
	surface, method, path, query, subject        string // of a request
	event, subscriber, callable                  string
	namespace, name, version, step, templateStep string
	task                                         uuid
	status, attempt                              int
	stubbed, success                             bool
	document                                     []byte     // the body, context or payload: a JSON text; nil for none
	decoded                                      *jsonValue // where the first match leaves the document for others; nil if each decodes it
}

func factsOf(t *task, i, number int) facts {
	def := t.def(i)
	return facts{namespace: t.tpl.namespace, name: t.tpl.name, version: t.tpl.version, step: def.name,
		templateStep: t.tpl.steps[t.declared(i)].name, callable: def.callable, attempt: number, task: t.id,
		document: orEmptyObject(t.by.context)}
}

// tree returns the decoded document, the zero value for none.
func (x *facts) tree() (document jsonValue) {
	if x.decoded != nil && x.decoded.tree != nil {
		return *x.decoded
	}
	if x.document != nil {
		document = newJSONValue(x.document)
	}
	if x.decoded != nil {
		*x.decoded = document
	}
	return document
}

// matchForm is the form of a member of a match.
type matchForm uint8

const (
	matchText matchForm = iota
	matchPrefix
	matchStep  // a step's name, or for an instance of a batch worker that in the template
	matchCount // an integer from 1
	matchFlag
	matchID
	matchKind    // which decides what other members there may be
	matchSurface // of an API request
	matchMethod  // of an API request
	matchSubset  // a JSON value; of a context an object
)

// matchWords holds the words of the forms that take one.
var matchWords = map[matchForm][]string{
	matchSurface: {"orchestration", "worker", "mount"},
	matchMethod:  {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"},
}

// matchMember is a member that a match may have.
type matchMember struct {
	form matchForm
	text func(x *facts) string // the fact as matches write it; nil for a document
}

var matchMembers = map[string]matchMember{
	"kind":        {matchKind, nil},
	"surface":     {matchSurface, func(x *facts) string { return x.surface }},
	"method":      {matchMethod, func(x *facts) string { return x.method }},
	"path":        {matchText, func(x *facts) string { return x.path }},
	"path_prefix": {matchPrefix, func(x *facts) string { return x.path }},
	"query":       {matchText, func(x *facts) string { return x.query }},
	"status":      {matchCount, func(x *facts) string { return strconv.Itoa(x.status) }},
	"subject":     {matchText, func(x *facts) string { return x.subject }},
	"body":        {matchSubset, nil},
	"event":       {matchText, func(x *facts) string { return x.event }},
	"subscriber":  {matchText, func(x *facts) string { return x.subscriber }},
	"payload":     {matchSubset, nil},
	"callable":    {matchText, func(x *facts) string { return x.callable }},
	"namespace":   {matchText, func(x *facts) string { return x.namespace }},
	"name":        {matchText, func(x *facts) string { return x.name }},
	"version":     {matchText, func(x *facts) string { return x.version }},
	"step":        {matchStep, func(x *facts) string { return x.step }},
	"task_uuid":   {matchID, func(x *facts) string { return x.task.String() }},
	"attempt":     {matchCount, func(x *facts) string { return strconv.Itoa(x.attempt) }},
	"context":     {matchSubset, nil},
	"stubbed":     {matchFlag, func(x *facts) string { return strconv.FormatBool(x.stubbed) }},
	"success":     {matchFlag, func(x *facts) string { return strconv.FormatBool(x.success) }},
}

// matcher holds rules that must all hold. It is never changed.
type matcher []matchRule

// matchRule demands one fact.
type matchRule struct {
	member string
	matchMember
	want   string    // as the fact is written
	subset jsonValue // of a document
}

func (m matcher) fits(x *facts) bool { return m.fitsBut(x, "") }

// fitsBut is fits, ignoring one of the members.
func (m matcher) fitsBut(x *facts, member string) bool {
	for i := range m {
		if m[i].member != member && !m[i].fits(x) {
			return false
		}
	}
	return true
}

func (r *matchRule) fits(x *facts) bool {
	switch r.form {
	case matchSubset:
		document := x.tree()
		return document.tree != nil && r.subset.within(document)
	case matchPrefix:
		return strings.HasPrefix(r.text(x), r.want)
	case matchStep:
		return x.step == r.want || x.templateStep == r.want
	}
	return r.text(x) == r.want
}

// specificity counts what is demanded: one for each member, and for a document one for each value in it.
func (m matcher) specificity() (n int) {
	for i := range m {
		n++
		if m[i].form == matchSubset {
			n += m[i].subset.leaves() - 1
		}
	}
	return n
}

// matcher reads a match. It has one of the kinds, each of which has its members.
func (f *fieldReader) matcher(path string, raw []byte, kinds map[string][]string) (kind string, m matcher) {
	kind = handlerEntry
	// The kind decides which members there may be, and need not be the first.
	for key, value := range jsonMembers(raw) {
		if word, _ := jsonString(value); key == "kind" && kinds[word] != nil {
			kind = word
		} else if key == "kind" && jsonKind(value) != 'n' {
			f.complain(memberPath(path, key), "must be %s", anyOf(slices.Sorted(maps.Keys(kinds))))
		}
	}
	return kind, f.matchRules(path, raw, append([]string{"kind"}, kinds[kind]...))
}

func (f *fieldReader) matchRules(path string, raw []byte, members []string) (m matcher) {
	f.members(path, raw, members, func(key, at string, value []byte) {
		if matchMembers[key].form != matchKind {
			m = append(m, f.matchRule(at, key, value))
		}
	})
	slices.SortStableFunc(m, func(a, b matchRule) int { return cmp.Compare(a.form, b.form) }) // documents cost most
	return m
}

func (f *fieldReader) matchRule(path, member string, raw []byte) matchRule {
	r := matchRule{member: member, matchMember: matchMembers[member]}
	switch r.form {
	case matchText, matchPrefix, matchStep:
		r.want = f.text(path, raw, 1, maxReasonLength*10)
	case matchCount:
		n, ok := jsonInt(raw)
		if !ok || n < 1 {
			f.complain(path, "must be an integer from 1")
		}
		r.want = strconv.FormatInt(n, 10)
	case matchFlag:
		r.want = strconv.FormatBool(f.flag(path, raw))
	case matchSurface, matchMethod:
		r.want = f.word(path, raw, matchWords[r.form]...)
	case matchID:
		r.want = f.id(path, raw).String()
	case matchSubset:
		if jsonKind(raw) != '{' && member == "context" {
			f.complain(path, "must be an object")
		}
		if f.budget.take(treeBytes(raw), path, "the decoded value") {
			r.subset = newJSONValue(compactJSON(nil, raw))
		}
	}
	return r
}
