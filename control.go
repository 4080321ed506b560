package main

// The control API of fixture mode: what a test does to the service itself, its
// clock and its state.

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// controlAPI is the part of the orchestration role's surface under /_stepwell.
type controlAPI struct {
	*surface
}

// addControl adds the control API to the surface of a service in fixture mode.
func (a *orchestrationAPI) addControl() {
	if a.svc.world == nil {
		return
	}
	a.handle((&controlAPI{a.surface}).routes())
	a.openapi = a.svc.surfaces.document(a.auth.config.APIKeyHeader, "orchestration", "fixture")
}

// controls tells whether the route is of the control API, which asks for every
// permission there is.
func (r route) controls() bool {
	_, path, _ := strings.Cut(r.pattern, " ")
	return isControl(path)
}

func isControl(path string) bool { return strings.HasPrefix(path, controlPath+"/") }

func (a *controlAPI) reset(w http.ResponseWriter, _ *http.Request) error {
	if err := a.svc.world.reset(); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// clockView is a virtual clock on the wire.
type clockView struct {
	Now       zonedTime  `json:"now"`
	Mode      clockMode  `json:"mode"`
	Fired     uint64     `json:"fired"`      // work timers: by the request, or in all when it moves nothing
	NextTimer *zonedTime `json:"next_timer"` // when the next work timer is due
}

func (a *controlAPI) writeClock(w http.ResponseWriter, fired uint64) error {
	c := a.svc.keeper.clock
	v := clockView{Now: zonedTime(c.now()), Mode: c.modeNow(), Fired: fired}
	if next, ok := c.work.next(); ok {
		v.NextTimer = (*zonedTime)(&next)
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *controlAPI) getClock(w http.ResponseWriter, _ *http.Request) error {
	return a.writeClock(w, a.svc.keeper.clock.firedNow())
}

func (a *controlAPI) changeClock(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, false)
	if err != nil {
		return err
	}
	q, err := parseClockRequest(body)
	if err != nil {
		return err
	}
	ctx, cancel := q.limit(w, r)
	defer cancel()
	fired, err := q.do(ctx, a.svc.keeper)
	if err == nil {
		err = a.svc.keeper.durable(ctx)
	}
	if err != nil {
		return err
	}
	return a.writeClock(w, fired)
}

func (a *controlAPI) waitIdle(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, true)
	if err != nil {
		return err
	}
	q, err := parseIdleRequest(body)
	if err != nil {
		return err
	}
	ctx, cancel := q.limit(w, r)
	defer cancel()
	if err := a.svc.keeper.awaitIdle(ctx); err != nil {
		return err
	}
	if err := a.svc.keeper.durable(ctx); err != nil {
		return err
	}
	return a.writeClock(w, a.svc.keeper.clock.firedNow())
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
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
	}
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

// zonedForm tells whether a JSON string ends as a timestamp with a zone does.
func zonedForm(raw []byte) bool {
	s, _ := jsonString(raw)
	at := strings.LastIndexAny(s, "Zz+-")
	return at > strings.IndexByte(s, 'T')
}

func parseIdleRequest(body []byte) (*clockRequest, error) {
	q, f := &clockRequest{timeout: controlTimeout}, &fieldReader{}
	if body == nil {
		return q, nil
	}
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
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

// duration reads a string like 90s or 1h30m, of at least least.
func (f *fieldReader) duration(key string, raw []byte, least time.Duration) time.Duration {
	s, _ := jsonString(raw)
	d, err := time.ParseDuration(s)
	if err != nil || d < least {
		f.complain(key, "must be a string like 90s or 1h30m, not less than %s", least)
	}
	return d
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
