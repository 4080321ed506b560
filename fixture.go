package main

// The fixture family: fixture mode, in which tests control a service from outside.
// It attaches itself to the hooks of the service, its engine and its surfaces;
// nothing below knows of it.
//
//	fixture.go            fixture mode in one service
//	fixture_control.go    the control API
//	fixture_world.go      the world that resets and restores it
//	fixture_match.go      matches
//	fixture_clock.go      the virtual clock
//	fixture_timekeeper.go the timekeeper that moves the clock, blockers
//	fixture_lockstep.go   lockstep
//	fixture_stub.go       stubs: scripted outcomes
//	fixture_play.go       playing a stub, deliveries
//	fixture_requests.go   the journal of requests
//	fixture_verify.go     verification of requests
//	fixture_sandbox.go    sandboxes

import "fmt"

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
