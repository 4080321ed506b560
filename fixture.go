package main

// The fixture family: fixture mode, in which tests control a service from outside. It attaches itself to the hooks of
// the service, its engine and its surfaces; nothing below knows of it.
//
//	fixture.go            fixture mode in one service; the control API
//	fixture_world.go      the world that resets and restores it
//	fixture_clock.go      the virtual clock
//	fixture_timekeeper.go the timekeeper that moves the clock, blockers; lockstep
//	fixture_stub.go       stubs: scripted outcomes; matches
//	fixture_play.go       playing a stub, deliveries
//	fixture_requests.go   the journal of requests
//	fixture_verify.go     verification of requests
//	fixture_sandbox.go    sandboxes
//	fixture_explore.go    exploration: trials of a task with faults

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
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

// testAdvice tells the author of a test what to do about a step that waits for an outside actor.
const testAdvice = "stub it, or answer it as its actor would"

// attach adds fixture mode to a service whose engine has not started.
func (f *fixture) attach(s *service) {
	f.svc = s
	s.resumeClock()
	e := s.engine
	e.hooks.substitute, e.hooks.observer, e.hooks.idled = f, f, f.clock.stirred.notify
	s.publisher.attempt = f.deliver
	e.causes.advice.always = testAdvice
	s.store.subscribers().observe(func(e *domainEvent) { f.requests.enter(f.eventOf(e)) })
	// Ids that derive from a seed are the same again only if all records come in the same order.
	if s.ids.derives() {
		f.lockstep = &lockstep{fixture: f, engine: e, clock: f.clock}
		e.hooks.pacer = f.lockstep
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
	return graded(false, "fixture mode is on: tests control the service under %s, its clock, which is %s, and its "+
		"handlers by %s; %s%s", controlPath, f.clock.state().mode, counted(n, "stub", "stubs"), f.world.status(),
		pick(f.lockstep != nil, "; ids are deterministic", ""))
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
	s.openapi = shared.document(s, "fixture")
}

// fixtureBanner returns the line about fixture mode that serve prints at its start.
func fixtureBanner(url string) string {
	return fmt.Sprintf("on: tests control the service, its clock and up to %d sandboxes under %s%s",
		maxSandboxes, url, controlPath)
}

// The control API under /_stepwell: its routes, and what they read.

// controlPath is the path of the control API.
const controlPath = "/_stepwell"

// controlAPI is the part of the orchestration role's surface under controlPath.
type controlAPI struct {
	surface *surface
	fixture *fixture
}

func (a *controlAPI) routes() []route {
	return []route{
		{"POST /_stepwell/reset", everything, a.reset},
		{"GET /_stepwell/clock", everything, a.getClock},
		{"POST /_stepwell/clock", everything, a.changeClock},
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
		{"POST /_stepwell/explore", everything, a.explore},
		{"POST /_stepwell/templates", everything, a.addTemplate},
		{"GET /_stepwell/state", everything, a.surface.sendState},
		{"PUT /_stepwell/state", everything, a.putState},
		{"POST /_stepwell/sandboxes", everything, a.onSandboxes(addSandbox)},
		{"GET /_stepwell/sandboxes", everything, a.onSandboxes(listSandboxes)},
		{"GET /_stepwell/sandboxes/{name}", everything, a.onSandboxes(getSandbox)},
		{"DELETE /_stepwell/sandboxes/{name}", everything, a.onSandboxes(deleteSandbox)},
	}
}

// requestsRoute is the row that takes query parameters.
const requestsRoute = "GET /_stepwell/requests"

// withoutQuery refuses query parameters: a misspelled test must not pass silently.
func withoutQuery(handle handlerFunc) handlerFunc {
	return func(w *responseWriter, r *http.Request) (any, error) {
		if err := queryOf(r).only(); err != nil {
			return nil, err
		}
		return handle(w, r)
	}
}

// controlBodies are the limits, in bytes, of the bodies that are or hold a whole state.
var controlBodies = map[string]int64{"PUT /_stepwell/state": 1 << 30, "POST /_stepwell/sandboxes": 1 << 30}

func (a *controlAPI) reset(_ *responseWriter, _ *http.Request) (any, error) {
	return noContent{}, a.fixture.world.reset()
}

func (a *controlAPI) addTemplate(w *responseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	// Files of templates are often in YAML, which this API does not read.
	if f, ok := errors.AsType[*failure](err); ok && (f.kind == invalidJSON || f.kind == unsupportedMedia) {
		f.message += "; stepwell template convert FILE --to json makes JSON of a template in YAML or TOML"
	}
	if err != nil {
		return nil, err
	}
	t, replaced, err := a.surface.svc.templates.add(budgetOf(r), body)
	if err != nil {
		return nil, err
	}
	w.Header().Set("Location", "/v1/templates/"+url.PathEscape(t.namespace)+"/"+url.PathEscape(t.name)+"/"+url.PathEscape(t.version))
	return reply{pick(replaced, http.StatusOK, http.StatusCreated), t.detailView()}, nil
}

// Reading the bodies of the control API.

// fields reads a body by these rules and passes it to read, unless it is absent. what
// begins the message about the problems that read finds.
func (rules bodyRules) fields(r *http.Request, what string, read func(f *fieldReader, body []byte)) error {
	body, err := rules.read(r)
	if err != nil {
		return err
	}
	f := fieldReader{budget: budgetOf(r)}
	if body != nil {
		read(&f, body)
	}
	return cmp.Or(f.budget.err, f.failure(what))
}

// members reads an object, which has a path unless it is a body, by calling read for each known member and its path.
// Unknown ones are refused: a misspelled test must not pass silently. A null member counts as absent. It returns which
// members were given, nil for no object.
func (f *fieldReader) members(
	path string, raw []byte, known []string, read func(key, at string, value []byte),
) (given map[string]bool) {
	if jsonKind(raw) != '{' {
		f.complain(path, "must be an object with any of %s", strings.Join(known, ", "))
		return nil
	}
	given = map[string]bool{}
	for key, value := range jsonMembers(raw) {
		at, unknown := memberPath(path, key), !slices.Contains(known, key)
		if !unknown && jsonKind(value) == 'n' {
			continue
		}
		if given[key] = true; unknown {
			f.complain(at, "is unknown; want %s", anyOf(known))
		} else {
			read(key, at, value)
		}
	}
	return given
}

func memberPath(object, key string) string { return strings.TrimPrefix(object+"."+key, ".") }

// The whole state, as lines.

func (a *controlAPI) putState(w *responseWriter, r *http.Request) (any, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != linesType {
		if err := checkContentType(r); err != nil {
			return nil, err
		}
	}
	extendReading(w, stateTimeout)
	extendWriting(w, stateTimeout)
	body := r.Body.(*requestBody)
	err := a.fixture.world.restore(body)
	// A state that could not be read to its end looks wrong as well, but this is why.
	if body.err != nil && body.err != io.EOF {
		return nil, readFailure(body.err)
	}
	if err != nil {
		return nil, refusedState(err, "state", "the state stays as it is")
	}
	return noContent{}, nil
}

// refusedState returns the failure of a refused state, which the request has in a field.
func refusedState(err error, field, what string) error {
	at, ok := errors.AsType[stateError](err)
	if !ok {
		return err
	}
	return &failure{
		kind: invalidFields, message: fmt.Sprintf("%s: %v", what, at.error),
		details: inputProblems{{Field: field, Message: at.error.Error()}},
	}
}
