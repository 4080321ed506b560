package main

// The fixture family: fixture mode, in which tests control a service from outside.
// It attaches itself to the hooks of the service, its engine and its surfaces;
// nothing below knows of it.
//
//	fixture.go           fixture mode in one service, its control API, matches, and the world that resets and restores it
//	fixture_clock.go     the virtual clock, the timekeeper that moves it, lockstep, and what keeps a service busy
//	fixture_stub.go      stubs: scripted outcomes of attempts, how they are read, chosen and played
//	fixture_requests.go  the request journal: what was asked of the service and of its handlers
//	fixture_sandbox.go   sandboxes: isolated copies of a service on their own ports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fixture is fixture mode in one service.
type fixture struct {
	world    *world
	clock    *virtualClock
	requests *requestJournal
	svc      *service    // set by attach, as all below
	keeper   *timekeeper // nil until start
	lockstep *lockstep   // nil unless ids are deterministic
	stubs    stubs       // guarded by the store's lock
}

func newFixture(w *world, c *virtualClock) *fixture {
	return &fixture{world: w, clock: c, requests: &requestJournal{now: c.now}}
}

// attach adds fixture mode to a service whose engine has not started.
func (f *fixture) attach(s *service) {
	f.svc = s
	s.resumeClock()
	e := s.engine
	e.substitute, e.observer, e.idled = f, f, f.clock.stirred.notify
	s.publisher.attempt = f.deliver
	s.store.observeEvents(func(e *domainEvent) { f.requests.enter(&eventEntry{event: e}) })
	if s.ids.derives() {
		f.lockstep = &lockstep{fixture: f, engine: e, clock: f.clock}
		e.pacer = f.lockstep
	}
}

// start takes over the clock of a service whose engine runs.
func (f *fixture) start() {
	f.keeper = newTimekeeper(f.clock, f.svc, f.lockstep)
	f.svc.health.extra = map[string]func() checkView{"fixture": f.check}
}

// stop stops moving the clock.
func (f *fixture) stop() {
	if f.keeper != nil {
		f.keeper.stop()
	}
}

// check returns what the detailed health says of fixture mode.
func (f *fixture) check() checkView {
	n := 0
	f.readStubs(func(l *stubs) { n = len(l.list) })
	ids := ""
	if f.lockstep != nil {
		ids = "; ids are deterministic"
	}
	return graded(false, "fixture mode is on: tests control the service under %s, its clock, which is %s, and its "+
		"handlers by %s; %s%s", controlPath, f.clock.modeNow(), counted(n, "stub", "stubs"), f.world.status(), ids)
}

// extend adds the control API to the orchestration role's surface.
func (f *fixture) extend(s *surface, shared *surfaceCache) {
	a := &controlAPI{s, f}
	for _, row := range a.routes() {
		if row.pattern != requestsRoute {
			row.handle = withoutQuery(row.handle)
		}
		s.handleRow(servedRoute{route: row, controls: true, maxBody: controlBodies[row.pattern]})
	}
	s.openapi = shared.document(s, nil, "fixture")
}

// fixtureBanner returns the line about fixture mode that serve prints at its start.
func fixtureBanner(url string) string {
	return fmt.Sprintf("on: tests control the service, its clock and up to %d sandboxes under %s%s",
		maxSandboxes, url, controlPath)
}

// The control API.

// controlPath is the path of the control API.
const controlPath = "/_stepwell"

// controlAPI is the part of the orchestration role's surface under controlPath.
type controlAPI struct {
	*surface
	fixture *fixture
}

// routes returns the rows of the control API.
func (a *controlAPI) routes() []route {
	return []route{
		{"POST /_stepwell/reset", everything, a.reset},
		{"GET /_stepwell/clock", everything, a.getClock},
		{"POST /_stepwell/clock", everything, a.changeClock},
		{"GET /_stepwell/timers", everything, a.listTimers},
		{"POST /_stepwell/wait-idle", everything, a.waitIdle},
		{"POST /_stepwell/stubs", everything, a.addStub},
		{"PUT /_stepwell/stubs", everything, a.replaceStubs},
		{"GET /_stepwell/stubs", everything, a.listStubs},
		{"DELETE /_stepwell/stubs", everything, a.removeStubs},
		{"GET /_stepwell/stubs/{id}", everything, a.getStub},
		{"DELETE /_stepwell/stubs/{id}", everything, a.removeStub},
		{requestsRoute, everything, a.listRequests},
		{"DELETE /_stepwell/requests", everything, a.forgetRequests},
		{"POST /_stepwell/verify", everything, a.verify},
		{"POST /_stepwell/templates", everything, a.addTemplate},
		{"GET /_stepwell/state", everything, a.getState},
		{"PUT /_stepwell/state", everything, a.putState},
		{"POST /_stepwell/sandboxes", everything, a.addSandbox},
		{"GET /_stepwell/sandboxes", everything, a.listSandboxes},
		{"GET /_stepwell/sandboxes/{name}", everything, a.getSandbox},
		{"DELETE /_stepwell/sandboxes/{name}", everything, a.deleteSandbox},
	}
}

// requestsRoute is the row that takes query parameters.
const requestsRoute = "GET /_stepwell/requests"

// withoutQuery refuses query parameters: a misspelled test must not pass silently.
func withoutQuery(handle handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		if err := queryOf(r).only(); err != nil {
			return nil, err
		}
		return handle(w, r)
	}
}

// controlBodies are the limits, in bytes, of the bodies that are or hold a whole state.
var controlBodies = map[string]int64{"PUT /_stepwell/state": 1 << 30, "POST /_stepwell/sandboxes": 1 << 30}

func (a *controlAPI) reset(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return noContent{}, a.fixture.world.reset()
}

func (a *controlAPI) addTemplate(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	if f, ok := errors.AsType[*failure](err); ok && (f.kind == invalidJSON || f.kind == unsupportedMedia) {
		f.message += "; stepwell template convert FILE --to json makes JSON of a template in YAML or TOML"
	}
	if err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(len(body), parsedMemory); err != nil {
		return nil, err
	}
	t, replaced, err := a.svc.templates.add(body)
	if err != nil {
		return nil, err
	}
	status := http.StatusCreated
	if replaced {
		status = http.StatusOK
	}
	w.Header().Set("Location", "/v1/templates/"+url.PathEscape(t.namespace)+"/"+url.PathEscape(t.name)+"/"+url.PathEscape(t.version))
	return reply{status, t.detailView()}, nil
}

// Reading the bodies of the control API.

// fields reads a body by these rules and passes it to read, unless it is absent. what
// begins the message about the problems that read finds.
func (rules bodyRules) fields(r *http.Request, what string, read func(f *fieldReader, body []byte)) error {
	body, err := rules.read(r)
	if err != nil {
		return err
	}
	var f fieldReader
	if body != nil {
		read(&f, body)
	}
	return f.failure(what)
}

// members reads an object, which has a path unless it is a body, by calling read for
// each known member and its path. Unknown ones are refused: a misspelled test must
// not pass silently. A null member counts as absent. It returns which members were
// given, nil for no object.
func (f *fieldReader) members(
	path string, raw []byte, known []string, read func(key, at string, value []byte),
) (given map[string]bool) {
	if jsonKind(raw) != '{' {
		f.complain(path, "must be an object with any of %s", strings.Join(known, ", "))
		return nil
	}
	given = map[string]bool{}
	eachMember(raw, func(key string, value []byte) bool {
		at, unknown := memberPath(path, key), !slices.Contains(known, key)
		if !unknown && jsonKind(value) == 'n' {
			return true
		}
		if given[key] = true; unknown {
			f.complain(at, "is unknown; want %s", anyOf(known))
		} else {
			read(key, at, value)
		}
		return true
	})
	return given
}

// memberPath returns the path of a member of an object.
func memberPath(object, key string) string { return strings.TrimPrefix(object+"."+key, ".") }

// Matchers choose entries of the journal, and stubs, by facts that the members of a request
// name.

// matchable is anything with named facts.
type matchable interface {
	fact(member string) string     // "" for a missing one
	document(member string) []byte // a JSON text; nil for a missing one
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
	name string
	form matchForm
}

func memberNames(members []matchMember) []string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	return names
}

// matcher holds rules that must all hold. It is never changed.
type matcher []matchRule

// matchRule demands one fact.
type matchRule struct {
	member string
	form   matchForm
	want   string      // as the fact is written
	subset *jsonSubset // of a document
}

func (m matcher) fits(x matchable) bool { return m.fitsBut(x, "") }

// fitsBut is fits, ignoring one of the members.
func (m matcher) fitsBut(x matchable, member string) bool {
	for i := range m {
		if m[i].member != member && !m[i].fits(x) {
			return false
		}
	}
	return true
}

func (r *matchRule) fits(x matchable) bool {
	switch r.form {
	case matchSubset:
		raw := x.document(r.member)
		return raw != nil && r.subset.fits(raw)
	case matchPrefix:
		return strings.HasPrefix(x.fact(r.member), r.want)
	case matchStep:
		return x.fact("step") == r.want || x.fact("template_step") == r.want
	}
	return x.fact(r.member) == r.want
}

// specificity counts what is demanded: one for each member, and for a document one for
// each value in it.
func (m matcher) specificity() (n int) {
	for i := range m {
		n++
		if m[i].subset != nil {
			n += m[i].subset.leaves - 1
		}
	}
	return n
}

// differences describes the actual fact for each rule that does not hold.
func (m matcher) differences(x matchable) (all []string) {
	for i := range m {
		r := &m[i]
		switch {
		case r.fits(x):
		case r.form == matchSubset:
			all = append(all, r.member+" lacks what is asked for")
		default:
			all = append(all, fmt.Sprintf("%s is %q, not %q", r.member, redactName(x.fact(r.member)), r.want))
		}
	}
	return all
}

// distance counts the letters that differ in the facts for rules that do not hold, or in their beginnings.
func (m matcher) distance(x matchable) (letters int) {
	const most = 40 // of a fact
	for i := range m {
		if r := &m[i]; r.form != matchSubset && !r.fits(x) {
			letters += typoDistance(clipText(x.fact(r.member), most), clipText(r.want, most), most)
		}
	}
	return letters
}

// matcher reads a match of one of some kinds, each with its members.
func (f *fieldReader) matcher(path string, raw []byte, kinds map[string][]matchMember) (kind string, m matcher) {
	kind = handlerEntry
	eachMember(raw, func(key string, value []byte) bool {
		if word, _ := jsonString(value); key == "kind" && kinds[word] != nil {
			kind = word
		} else if key == "kind" && jsonKind(value) != 'n' {
			f.complain(memberPath(path, key), "must be one of %q", slices.Sorted(maps.Keys(kinds)))
		}
		return true
	})
	return kind, f.matchRules(path, raw, append([]matchMember{{"kind", matchKind}}, kinds[kind]...))
}

func (f *fieldReader) matchRules(path string, raw []byte, members []matchMember) (m matcher) {
	f.members(path, raw, memberNames(members), func(key, at string, value []byte) {
		i := slices.IndexFunc(members, func(m matchMember) bool { return m.name == key })
		if members[i].form != matchKind {
			m = append(m, f.matchRule(at, members[i], value))
		}
	})
	slices.SortStableFunc(m, func(a, b matchRule) int { return cmp.Compare(a.form, b.form) }) // documents cost most
	return m
}

func (f *fieldReader) matchRule(path string, member matchMember, raw []byte) matchRule {
	r := matchRule{member: member.name, form: member.form}
	switch member.form {
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
		r.want = f.word(path, raw, matchWords[member.form]...)
	case matchID:
		r.want = f.id(path, raw).String()
	case matchSubset:
		if jsonKind(raw) != '{' && member.name == "context" {
			f.complain(path, "must be an object")
		}
		r.subset = newJSONSubset(compactJSON(nil, raw))
	}
	return r
}

// The clock.

// clockView shows a virtual clock.
type clockView struct {
	Now       zonedTime  `json:"now"`
	Mode      clockMode  `json:"mode"`
	Fired     uint64     `json:"fired"`      // work timers: by this request, or ever for one that moves nothing
	NextTimer *zonedTime `json:"next_timer"` // when the next work timer is due
}

func (a *controlAPI) clockView(fired uint64) clockView {
	c := a.fixture.clock
	v := clockView{Now: zonedTime(c.now()), Mode: c.modeNow(), Fired: fired}
	if next, ok := c.work.next(); ok {
		v.NextTimer = (*zonedTime)(&next)
	}
	return v
}

func (a *controlAPI) getClock(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return a.clockView(a.fixture.clock.firedNow()), nil
}

// timersView shows the work timers that fire next.
type timersView struct {
	Timers []workTimer `json:"timers"` // the earliest first
	Total  int         `json:"total"`  // with those that are not shown
}

const shownTimers = 20

func (a *controlAPI) listTimers(_ http.ResponseWriter, _ *http.Request) (any, error) {
	timers, total := a.svc.engine.workTimers(shownTimers)
	rests := a.fixture.sendingTimers()
	timers = append(timers, rests...)
	slices.SortStableFunc(timers, func(a, b workTimer) int { return cmp.Compare(a.DueAt, b.DueAt) })
	return timersView{timers[:min(len(timers), shownTimers)], total + len(rests)}, nil
}

func (a *controlAPI) changeClock(w http.ResponseWriter, r *http.Request) (any, error) {
	q := &clockRequest{timeout: controlTimeout}
	if err := (bodyRules{}).fields(r, "the clock stays as it is", q.readChange); err != nil {
		return nil, err
	}
	return a.doClock(w, r, q)
}

func (a *controlAPI) waitIdle(w http.ResponseWriter, r *http.Request) (any, error) {
	q := &clockRequest{timeout: controlTimeout}
	err := bodyRules{optional: true}.fields(r, "the request is refused", func(f *fieldReader, body []byte) {
		f.members("", body, []string{"timeout"}, func(key, _ string, value []byte) {
			q.timeout = f.boundedDuration(key, value, maxControlTimeout)
		})
	})
	if err != nil {
		return nil, err
	}
	return a.doClock(w, r, q)
}

// doClock does what a request asks for, waits until the result is durable, and shows
// the clock.
func (a *controlAPI) doClock(w http.ResponseWriter, r *http.Request, q *clockRequest) (any, error) {
	extendWriting(w, q.timeout)
	ctx, cancel := context.WithTimeout(r.Context(), q.timeout)
	defer cancel()
	fired, err := q.do(ctx, a.fixture.keeper)
	if err == nil {
		err = a.svc.store.waitAll(ctx)
	}
	if err != nil {
		return nil, err
	}
	return a.clockView(fired), nil
}

// clockRequest asks for one change of a clock, or to wait until the service is idle.
type clockRequest struct {
	action  string // the member that asks for the change; "" for a wait
	by      time.Duration
	to      instant
	timeout time.Duration // in real time
}

const (
	controlTimeout    = 30 * time.Second // when a request names none
	maxControlTimeout = time.Hour
)

// readChange reads the body of a change.
func (q *clockRequest) readChange(f *fieldReader, body []byte) {
	known := []string{"freeze", "advance", "advance_to_next", "set", "auto", "resume", "timeout"}
	f.members("", body, known, func(key, _ string, value []byte) {
		switch {
		case key == "timeout":
			q.timeout = f.boundedDuration(key, value, maxControlTimeout)
		case q.action != "":
			f.complain(key, "cannot be combined with %s", q.action)
		default:
			q.action = key
			q.readAction(f, value)
		}
	})
	if q.action == "" && len(f.problems) == 0 {
		f.complain("advance", "or freeze, advance_to_next, set, auto or resume is required")
	}
}

func (q *clockRequest) readAction(f *fieldReader, raw []byte) {
	switch q.action {
	case "advance":
		q.by = f.duration(q.action, raw, 0)
	case "set":
		if q.to = f.instant(q.action, raw); jsonKind(raw) == '"' && !zonedForm(raw) {
			f.complain(q.action, "must have a zone, as in 2026-01-31T12:00:00Z")
		}
	default:
		if jsonKind(raw) != 't' {
			f.complain(q.action, "must be true")
		}
	}
}

// do does what is asked for and returns how many work timers the view is to show.
func (q *clockRequest) do(ctx context.Context, k *timekeeper) (fired uint64, err error) {
	switch q.action {
	case "advance":
		return k.advance(ctx, func(now instant) (instant, error) { return inTime(now.add(q.by), now) })
	case "advance_to_next":
		return k.advance(ctx, here, k.nextWork)
	case "set":
		return k.advance(ctx, func(now instant) (instant, error) { return inTime(q.to, now) })
	case "freeze":
		return 0, k.setMode(ctx, clockFrozen)
	case "auto":
		return 0, k.setMode(ctx, clockAuto)
	case "resume":
		return 0, k.setMode(ctx, clockReal)
	}
	err = k.awaitIdle(ctx)
	return k.clock.firedNow(), err
}

// inTime refuses an instant that is past, or too late to be written.
func inTime(to, now instant) (instant, error) {
	if to < now || to > lastInstant { // years have four digits
		return 0, failf(badRequest, "the clock stands at %s and goes on to %s at most, not to %s",
			now.zoned(), instant(lastInstant).zoned(), to.time())
	}
	return to, nil
}

// The whole state as one document.

func (a *controlAPI) getState(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.sendState(w, r)
}

func (a *controlAPI) putState(w http.ResponseWriter, r *http.Request) (any, error) {
	if err := checkContentType(r); err != nil {
		return nil, err
	}
	extendReading(w, stateTimeout)
	extendWriting(w, stateTimeout)
	body := &bodyReader{body: r.Body}
	err := a.fixture.world.restore(body)
	if body.err != nil {
		return nil, readFailure(body.err)
	}
	if err != nil {
		return nil, refusedState(err, "", "the state stays as it is")
	}
	return noContent{}, nil
}

// refusedState returns the failure of a refused state document, which the request's
// body holds under a path.
func refusedState(err error, under, what string) error {
	at, ok := errors.AsType[*stateError](err)
	if !ok {
		return err
	}
	path := under + at.path
	if path == "" {
		path = "document"
	}
	return &failure{
		kind: invalidFields, message: fmt.Sprintf("%s: %s: %v", what, path, at.err),
		details: inputProblems{{Field: path, Message: at.err.Error()}},
	}
}

// A world: one service behind its surfaces. A reset replaces the service by a fresh one,
// and a state document by one with that state; nothing that the previous one left
// running can reach it.

// opening opens a service with parts.
type opening func(serviceOptions) (*service, error)

// world holds a service, and what its successor is opened with.
type world struct {
	parts   serviceOptions // immutable
	atStart opening        // with the initial state
	gates   *gates
	boxes   *sandboxes // nil in a sandbox
	sandbox string     // its name, in one

	given map[string]*template // that the first service's state had, by hash; set by begin

	ending sync.WaitGroup // of services that were replaced

	mu  sync.Mutex
	svc *service // guarded by mu
	end bool     // no other service replaces it; guarded by mu
}

// openWorld opens a service in fixture mode, with the state of a file unless seed
// is empty, and the gates to it.
func openWorld(seed string, parts serviceOptions, g *gates) (*world, error) {
	w := &world{parts: parts, gates: g}
	w.atStart = func(o serviceOptions) (*service, error) { return openSeeded(seed, o) }
	w.boxes = newSandboxes(w)
	return w, w.begin()
}

// begin opens the first service, and the gates to it.
func (w *world) begin() error {
	svc, err := w.open(w.atStart)
	if err == nil {
		w.given = svc.store.keptTemplates()
		w.enter(svc)
	}
	return err
}

// admit returns an error if a state document may not bring a template: one that may not be
// added at run time, and that the service did not have at its start.
func (w *world) admit(t *template) error {
	known, ok := w.parts.files().Load().get(t.namespace, t.name, t.version)
	if ok && known.hash == t.hash || w.given[t.hash] != nil {
		return nil
	}
	return checkAddedTemplate(w.parts.cfg, w.parts.handlers, t)
}

// enter makes a service the present one. The caller holds mu, unless nobody else knows
// the world yet.
func (w *world) enter(svc *service) {
	w.svc = svc
	w.gates.open(svc)
}

// open opens a service with its own virtual clock and its own figures of
// authentication.
func (w *world) open(make opening) (*service, error) {
	o := w.parts
	x := newFixture(w, o.startClock())
	o.clock, o.extension, o.auth = x.clock, x, o.auth.counted()
	svc, err := make(o)
	if err != nil {
		return nil, err
	}
	x.start()
	return svc, nil
}

// deterministicStart is the time of a deterministic service at its start,
// 2026-01-01T00:00:00Z. Its clock is frozen then.
const deterministicStart instant = 1_767_225_600_000_000

// startClock returns the clock that a service in fixture mode begins with.
func (o *serviceOptions) startClock() *virtualClock {
	if o.deterministic != "" {
		return newVirtualClock(deterministicStart)
	}
	c := newVirtualClock(realNow())
	c.setMode(clockReal)
	return c
}

// service returns the present service.
func (w *world) service() *service {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.svc
}

// ready reports whether nothing keeps the present service from its work.
func (w *world) ready() bool { return w.service().ready() }

// cutOffPatience is how long a reset waits for handlers that it cut off, in real
// time. Their outcomes never reach the fresh service.
const cutOffPatience = time.Second

// reset replaces the service by one with the initial state: no task, timer or figure is
// left, and the clock is as at the start.
func (w *world) reset() error { return w.replace(w.atStart) }

// restore replaces the service by one with the state of a document. On an error the
// present service stays.
func (w *world) restore(document io.Reader) error {
	state := &stateSource{document, w.admit}
	if !w.parts.cfg.Store.Memory { // there the present service ends before the next one begins
		f, err := spoolState(state, w.parts.cfg.Store.Path, w.parts.log)
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		defer f.Close()
		state.document = f
	}
	return w.replace(withState(state))
}

// withState opens a service with the state of a document.
func withState(state *stateSource) opening {
	return func(o serviceOptions) (*service, error) {
		o.state = state
		return openService(o)
	}
}

// replace replaces the service.
func (w *world) replace(make opening) error {
	if !w.parts.cfg.Store.Memory {
		return w.replaceOnDisk(make)
	}
	svc, err := w.open(make)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end {
		return errors.Join(errEnding(), abort(svc))
	}
	old := w.svc
	w.enter(svc)
	w.discard(old)
	return nil
}

// replaceOnDisk is replace for a directory, which holds one service at a time.
func (w *world) replaceOnDisk(make opening) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end {
		return errEnding()
	}
	if err := errors.Join(abort(w.svc), emptyStore(w.parts.cfg.Store.Path)); err != nil {
		return err
	}
	svc, err := w.open(make)
	if err == nil {
		w.enter(svc)
	}
	return err
}

func errEnding() error { return failf(unavailable, "the service is shutting down") }

// discard ends a service that was replaced. It waits for that at most for
// cutOffPatience.
func (w *world) discard(old *service) {
	ended := endIn(&w.ending, func() {
		if err := abort(old); err != nil {
			old.log.Warn("closing the replaced service", "error", err)
		}
	})
	receiveWithin(ended, cutOffPatience)
}

// endIn calls end in a goroutine of a group, and closes the channel when it is done.
func endIn(group *sync.WaitGroup, end func()) <-chan struct{} {
	ended := make(chan struct{})
	group.Go(func() {
		defer close(ended)
		end()
	})
	return ended
}

// abort ends a service for a reset, without waiting for its handlers, and closes its
// store, so that nothing more can be recorded.
func abort(s *service) error {
	s.store.releaseWaiters(waitReset)
	s.finish(alreadyEnded())
	return s.close()
}

// alreadyEnded returns a context for ending something without waiting.
func alreadyEnded() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// emptyStore removes the files of a closed store.
func emptyStore(dir string) error {
	var errs []error
	for _, name := range []string{journalName, journalOldName, journalTempName, cleanName, snapshotName, snapshotTemp} {
		if err := removeRegular(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// busy returns how many handlers run, in sandboxes too.
func (w *world) busy() int {
	n := w.service().busy()
	if w.boxes != nil {
		for _, box := range w.boxes.list() {
			n += box.world.busy()
		}
	}
	return n
}

// finish ends the work of the world and of its sandboxes; see service.finish.
func (w *world) finish(ctx context.Context) []string {
	w.mu.Lock()
	w.end = true
	w.mu.Unlock()
	var all sync.WaitGroup
	var inBoxes []string
	if w.boxes != nil {
		all.Go(func() { inBoxes = w.boxes.finish(ctx) })
	}
	cut := w.svc.finish(ctx) // which nothing replaces from here on
	all.Wait()
	return append(cut, inBoxes...)
}

func (w *world) close() error {
	if w.boxes != nil {
		w.boxes.close()
	}
	w.ending.Wait()
	return w.svc.close()
}
