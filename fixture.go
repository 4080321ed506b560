package main

// The control API of fixture mode: what a test does to the service itself, its
// clock and its state.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// controlAPI is the part of the orchestration role's surface under /_stepwell.
type controlAPI struct {
	*surface
}

// addControl adds the control API to the surface of a service in fixture mode.
func (a *orchestrationAPI) addControl(shared *surfaceCache) {
	if a.svc.world == nil {
		return
	}
	a.handle((&controlAPI{a.surface}).routes())
	a.openapi = shared.document(a.auth.config.APIKeyHeader, "orchestration", "fixture")
}

// controls tells whether the route is of the control API, which asks for every
// permission there is.
func (r route) controls() bool {
	_, path, _ := strings.Cut(r.pattern, " ")
	return isControl(path)
}

func isControl(path string) bool { return strings.HasPrefix(path, controlPath+"/") }

func (a *controlAPI) reset(_ http.ResponseWriter, _ *http.Request) (any, error) {
	if err := a.svc.world.reset(); err != nil {
		return nil, err
	}
	return noContent{}, nil
}

// clockView is a virtual clock on the wire.
type clockView struct {
	Now       zonedTime  `json:"now"`
	Mode      clockMode  `json:"mode"`
	Fired     uint64     `json:"fired"`      // work timers: by the request, or in all when it moves nothing
	NextTimer *zonedTime `json:"next_timer"` // when the next work timer is due
}

func (a *controlAPI) clockView(fired uint64) clockView {
	c := a.svc.keeper.clock
	v := clockView{Now: zonedTime(c.now()), Mode: c.modeNow(), Fired: fired}
	if next, ok := c.work.next(); ok {
		v.NextTimer = (*zonedTime)(&next)
	}
	return v
}

func (a *controlAPI) getClock(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return a.clockView(a.svc.keeper.clock.firedNow()), nil
}

func (a *controlAPI) changeClock(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	q, err := parseClockRequest(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := q.limit(w, r)
	defer cancel()
	fired, err := q.do(ctx, a.svc.keeper)
	if err == nil {
		err = a.svc.keeper.durable(ctx)
	}
	if err != nil {
		return nil, err
	}
	return a.clockView(fired), nil
}

func (a *controlAPI) waitIdle(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := bodyRules{optional: true}.read(r)
	if err != nil {
		return nil, err
	}
	q, err := parseIdleRequest(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := q.limit(w, r)
	defer cancel()
	if err := a.svc.keeper.awaitIdle(ctx); err != nil {
		return nil, err
	}
	if err := a.svc.keeper.durable(ctx); err != nil {
		return nil, err
	}
	return a.clockView(a.svc.keeper.clock.firedNow()), nil
}

// clockRequest is one thing to do to a clock.
type clockRequest struct {
	action  string // the member that asks for it; "" for waiting alone
	by      time.Duration
	to      instant
	timeout time.Duration // in real time
}

const (
	controlTimeout    = 30 * time.Second // when a request names none
	maxControlTimeout = time.Hour
)

// parseClockRequest reads the body of a change to the clock.
func parseClockRequest(body []byte) (*clockRequest, error) {
	q, f := &clockRequest{timeout: controlTimeout}, &fieldReader{}
	const actions = "freeze, advance, advance_to_next, set, auto, resume"
	eachMember(body, func(key string, raw []byte) bool {
		if key == "timeout" {
			q.timeout = f.timeout(key, raw)
			return true
		}
		q.member(f, key, raw, actions)
		return true
	})
	if q.action == "" && len(f.problems) == 0 {
		f.complain("advance", "or one of %s is required", actions)
	}
	return q, f.failure("the clock stays as it is")
}

func (q *clockRequest) member(f *fieldReader, key string, raw []byte, actions string) {
	if q.action != "" {
		f.complain(key, "comes on top of %s; one thing at a time", q.action)
		return
	}
	q.action = key
	switch key {
	case "advance":
		q.by = f.duration(key, raw, 0)
	case "set":
		if q.to = f.instant(key, raw); jsonKind(raw) == '"' && !zonedForm(raw) {
			f.complain(key, "must have a zone, as in 2026-01-31T12:00:00Z")
		}
	case "freeze", "advance_to_next", "auto", "resume":
		if jsonKind(raw) != 't' {
			f.complain(key, "must be true")
		}
	default:
		f.complain(key, "is none of %s", actions)
	}
}

func parseIdleRequest(body []byte) (*clockRequest, error) {
	q, f := &clockRequest{timeout: controlTimeout}, &fieldReader{}
	if body == nil {
		return q, nil
	}
	eachMember(body, func(key string, raw []byte) bool {
		if key != "timeout" {
			f.complain(key, "is not known; timeout is")
			return true
		}
		q.timeout = f.timeout(key, raw)
		return true
	})
	return q, f.failure("the request is refused")
}

func (f *fieldReader) timeout(key string, raw []byte) time.Duration {
	d := f.duration(key, raw, 0)
	if d > maxControlTimeout {
		f.complain(key, "must be %s at most", maxControlTimeout)
	}
	return d
}

// limit is the context of a request that takes as long as it says.
func (q *clockRequest) limit(w http.ResponseWriter, r *http.Request) (context.Context, context.CancelFunc) {
	extendWriting(w, q.timeout)
	return context.WithTimeout(r.Context(), q.timeout)
}

// do does what is asked for and returns how many work timers fired by it.
func (q *clockRequest) do(ctx context.Context, k *timekeeper) (fired uint64, err error) {
	switch q.action {
	case "advance":
		return k.advance(ctx, func(now instant) (instant, error) { return inTime(now.add(q.by), now) })
	case "advance_to_next":
		return k.advance(ctx, here, k.nextWork)
	case "set":
		return k.advance(ctx, func(now instant) (instant, error) { return inTime(q.to, now) })
	case "auto":
		return 0, k.setMode(ctx, clockAuto)
	case "resume":
		return 0, k.setMode(ctx, clockReal)
	}
	return 0, k.setMode(ctx, clockFrozen)
}

// inTime refuses an instant that is past, or beyond all time.
func inTime(to, now instant) (instant, error) {
	if to < now || to > lastInstant { // years have four digits
		return 0, failf(badRequest, "the clock stands at %s and goes on to %s at most, not to %s",
			now.zoned(), instant(lastInstant).zoned(), to.time())
	}
	return to, nil
}

// GET and PUT /_stepwell/state: the whole state as one document.

// stateTimeout is how long a whole state may take on its way, in real time.
const stateTimeout = 10 * time.Minute

func (a *controlAPI) getState(w http.ResponseWriter, r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), stateTimeout)
	defer cancel()
	if err := a.svc.keeper.durable(ctx); err != nil {
		return nil, err
	}
	extendWriting(w, stateTimeout)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := a.svc.store.exportState(w, a.svc.clock.now()); err != nil {
		a.log.Error("a state document was cut off", "error", err)
		panic(http.ErrAbortHandler) // so that nobody takes it for a whole one
	}
	return written{}, nil
}

func (a *controlAPI) putState(w http.ResponseWriter, r *http.Request) (any, error) {
	if err := checkContentType(r); err != nil {
		return nil, err
	}
	extendReading(w, stateTimeout)
	extendWriting(w, stateTimeout)
	body := &bodyReader{body: r.Body}
	err := a.svc.world.restore(body)
	if body.err != nil {
		return nil, readFailure(body.err)
	}
	if err != nil {
		return nil, refusedState(err, "", "the state stays as it is")
	}
	return noContent{}, nil
}

// refusedState is the failure of a document that will not do, which stood under
// a path in the request's body.
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

// A world: one service behind its surfaces. In fixture mode a reset puts a fresh
// service in its place, and a state document one with that state; whatever the one before left behind cannot reach it.

// opening makes a service of the parts that it is given.
type opening func(serviceOptions) (*service, error)

// world holds a service, and what another one is opened with.
type world struct {
	parts   serviceOptions // shared and immutable; with the clock of services that have none of their own
	atStart opening        // with the state at the start
	gates   *gates
	boxes   *sandboxes // in fixture mode; nil in a sandbox
	sandbox string     // its name, in one

	ending sync.WaitGroup // of services that were replaced

	mu  sync.Mutex
	svc *service // guarded by mu
	end bool     // no other service takes its place; guarded by mu
}

// openWorld opens a service, with the state of a file unless seed is empty, and
// the gates to it.
func openWorld(seed string, parts serviceOptions, g *gates) (*world, error) {
	w := &world{parts: parts, gates: g}
	w.atStart = func(o serviceOptions) (*service, error) { return openSeeded(seed, o) }
	g.shared = newSurfaceCache()
	if parts.cfg.Fixture.Enabled {
		w.boxes = newSandboxes(w.parts, g.shared)
	}
	return w, w.begin()
}

// begin opens the first service.
func (w *world) begin() error {
	svc, err := w.open(w.atStart)
	if err == nil {
		w.svc = svc
		w.gates.open(svc)
	}
	return err
}

// open is a service of its own; in fixture mode with a clock that can be moved,
// and with figures of authentication that are its own.
func (w *world) open(make opening) (*service, error) {
	o := w.parts
	if !o.cfg.Fixture.Enabled {
		return make(o)
	}
	c := o.startClock()
	o.clock, o.restoreClock, o.auth = c, true, o.auth.counted()
	svc, err := make(o)
	if err != nil {
		return nil, err
	}
	svc.world, svc.keeper = w, newTimekeeper(svc, c)
	svc.health.extra = map[string]func() checkView{"fixture": svc.keeper.check}
	return svc, nil
}

// deterministicStart is when the clock of a deterministic service stands still at
// its start: 2026-01-01T00:00:00Z.
const deterministicStart instant = 1_767_225_600_000_000

// startClock is the clock that a service in fixture mode begins with.
func (o *serviceOptions) startClock() *virtualClock {
	if o.deterministic != "" {
		return newVirtualClock(deterministicStart)
	}
	c := newVirtualClock(realNow())
	c.setMode(clockReal)
	return c
}

// service is the one of the moment.
func (w *world) service() *service {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.svc
}

// cutOffPatience is how long a reset waits for handlers that it cut off, in real
// time. What they come to is nothing to the fresh service either way.
const cutOffPatience = time.Second

// reset puts a fresh service in the place of the one there is: no task, timer or
// figure of before is left, and the clock is as at the start.
func (w *world) reset() error { return w.replace(w.atStart) }

// restore puts a service with the state of a document in the place of the one
// there is, all or nothing.
func (w *world) restore(document io.Reader) error {
	if !w.parts.cfg.Store.Memory { // the service there is ends before the other one begins
		f, err := spoolState(document, w.parts.cfg.Store.Path, w.parts.log)
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		defer f.Close()
		document = f
	}
	return w.replace(withState(document))
}

// withState opens a service with the state of a document.
func withState(document io.Reader) opening {
	return func(o serviceOptions) (*service, error) {
		o.state = document
		return openService(o)
	}
}

// replace puts another service in the place of the one there is.
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
	w.svc = svc
	w.gates.open(svc)
	w.discard(old)
	return nil
}

// replaceOnDisk is replace with a directory, which takes one service at a time.
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
	if err != nil {
		return err
	}
	w.svc = svc
	w.gates.open(svc)
	return nil
}

func errEnding() error { return failf(unavailable, "the service is shutting down") }

// discard ends a service that was replaced, and waits for it as long as that
// may take.
func (w *world) discard(old *service) {
	ended := make(chan struct{}, 1)
	w.ending.Go(func() {
		if err := abort(old); err != nil {
			old.log.Warn("the service that was replaced did not end well", "error", err)
		}
		ended <- struct{}{}
	})
	receiveWithin(ended, cutOffPatience)
}

// abort ends a service without waiting for its handlers, and closes its store,
// so that nothing can be recorded in it any more.
func abort(s *service) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.finish(ctx)
	return s.closeStore()
}

// emptyStore removes the files of a store that is closed.
func emptyStore(dir string) error {
	var errs []error
	for _, pattern := range []string{"*.tmp", journalName, journalOldName, snapshotName} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range names {
			errs = append(errs, os.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// finish ends the work of the world and of its sandboxes; see service.finish.
func (w *world) finish(ctx context.Context) {
	w.mu.Lock()
	w.end = true
	w.mu.Unlock()
	var all sync.WaitGroup
	if w.boxes != nil {
		all.Go(func() { w.boxes.finish(ctx) })
	}
	w.svc.finish(ctx) // which nothing replaces any more
	all.Wait()
}

func (w *world) close() error {
	if w.boxes != nil {
		w.boxes.close()
	}
	w.ending.Wait()
	return w.svc.closeStore()
}

// routes of the control API, which is there in fixture mode alone.
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
		{"GET /_stepwell/requests", everything, a.listRequests},
		{"DELETE /_stepwell/requests", everything, a.forgetRequests},
		{"POST /_stepwell/verify", everything, a.verify},
		{"POST /_stepwell/templates", everything, a.addTemplate},
		{"GET /_stepwell/state", everything, a.getState},
		{putStateRoute, everything, a.putState},
		{addSandboxRoute, everything, a.addSandbox},
		{"GET /_stepwell/sandboxes", everything, a.listSandboxes},
		{"GET /_stepwell/sandboxes/{name}", everything, a.getSandbox},
		{"DELETE /_stepwell/sandboxes/{name}", everything, a.deleteSandbox},
	}
}

// The rows whose bodies are or hold whole states.
const (
	putStateRoute   = "PUT /_stepwell/state"
	addSandboxRoute = "POST /_stepwell/sandboxes"
)

// maxStateBytes is how large such a body may be.
const maxStateBytes = 1 << 30

// everything is asked for by the control API: each permission, not one of them.
var everything = everyPermission.list()

// controlPath is where the control API of fixture mode stands.
const controlPath = "/_stepwell"

// fixtureBanner says at start-up what fixture mode offers at the orchestration URL.
func fixtureBanner(url string) string {
	return fmt.Sprintf("on: tests control the service, its clock and up to %d sandboxes under %s%s",
		maxSandboxes, url, controlPath)
}

func (a *controlAPI) addTemplate(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
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
