package main

// The server family: the HTTP machinery that all surfaces share. It knows services, whose answers it writes and whose
// figures it reports; it does not know which routes exist or what they mean.
//
//	server.go             surfaces: routes, and how a request is answered
//	server_connections.go listeners, connections
//	server_auth.go        admitting callers to a route: credentials, refusals
//	server_request.go     reading the body of a request; reading a query, a path
//	server_submit.go      submitting a task, awaiting it
//	server_conditions.go  entity tags, and versions of tasks that the caller has seen
//	server_answer.go      writing answers: the response writer, pieces, draining; hints at what a request says
//	                      that nobody knows
//	server_errors.go      errors as responses
//	server_metrics.go     GET /metrics; the health routes of a role
//	server_openapi.go     OpenAPI documents
//	server_pages.go       web pages: the docs; public texts: packed once, shared by those who wait
//	server_origins.go     origins of pages, the host guard, preflight (CORS)

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// gate is the handler of a listener. It passes requests to the current surface, which a reset replaces.
type gate struct{ surface atomic.Pointer[http.Handler] }

func (g *gate) open(h http.Handler) { g.surface.Store(&h) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*g.surface.Load()).ServeHTTP(w, r)
}

// Rows of route tables.

// handlerFunc answers a request with a value, which is encoded as JSON with status 200 unless its type says otherwise
// (see writeReply), or with an error. Headers are set on w.
type handlerFunc func(w *responseWriter, r *http.Request) (any, error)

// route is one row of a route table. A caller needs one of the permissions; without any the route is public.
type route struct {
	pattern     string // a pattern of net/http's ServeMux
	permissions []permission
	handle      handlerFunc
}

func needs(p ...permission) []permission { return p }

var public []permission

// anyCaller is the list of a row that needs credentials but no permission.
var anyCaller = []permission{}

// isPublic reports whether a route needs no credentials, and needsAll whether it needs all permissions. No other row lists
// as many: of theirs, any one suffices.
func (r route) isPublic() bool { return r.permissions == nil }
func (r route) needsAll() bool { return len(r.permissions) == len(everything) }

// everything lists all permissions. A row with this list needs each of them.
var everything = everyPermission.list()

// servesEarly reports whether a route is answered while the store is being read: a public one that tells nothing of tasks.
func (r route) servesEarly() bool {
	return r.isPublic() && !strings.HasSuffix(r.pattern, "/health/status")
}

// patterns returns the patterns of the row: one under /v1 answers under /api/v1, too.
func (r route) patterns() []string {
	method, path, _ := strings.Cut(r.pattern, " ")
	if strings.HasPrefix(path, "/v1/") {
		return []string{r.pattern, method + " /api" + path}
	}
	return []string{r.pattern}
}

// configRoute is the row that config_endpoint_enabled switches on or off.
const configRoute = "GET /config"

// enabled returns the rows that the configuration of a role leaves on. A row that
// is off is answered like any unknown path, to every caller.
func (c *roleWebConfig) enabled(rows []route) []route {
	if c.ConfigEndpointEnabled {
		return rows
	}
	return slices.DeleteFunc(rows, func(r route) bool { return r.pattern == configRoute })
}

// servedRoute is a row with the rules by which a surface serves it.
type servedRoute struct {
	route
	controls bool  // controls the service: takes every permission, and credentials valid in real time
	maxBody  int64 // bytes; 0 for the surface's limit
}

// Surfaces.

// surface is one HTTP API: a route table and the form of its errors.
type surface struct {
	svc     *service
	name    string // orchestration, worker or mount
	log     *slog.Logger
	auth    *authenticator
	origins *pageOrigins
	guard   *hostGuard    // nil if every caller needs credentials that pages cannot send
	parts   *surfaceParts // shared with the surfaces of other services
	rows    []servedRoute
	stats   *httpStats
	encode  func(f *failure, requestID string, now instant) any // the body of an error
	status  func(k failureKind) int
	maxBody int64
	openapi func() *packedText // its OpenAPI document
	scrape  sharedText         // its metrics

	taskPath func(r *http.Request, id uuid) string // the path of a task for this caller

	extension surfaceExtension // nil without one
}

// surfaceExtension is a service's extension that also extends its surfaces.
type surfaceExtension interface {
	// extend adds to the orchestration role's surface.
	extend(s *surface, shared *surfaceCache)
	// watch sees a request to any surface before its body is read. It returns a
	// watch of the rest of the request, or nil.
	watch(s *surface, r *http.Request) requestWatch
}

// requestWatch sees what becomes of one request.
type requestWatch interface {
	admitted(r *http.Request) // with its security context
	answered(status int, began instant)
}

func newSurface(svc *service, shared *surfaceCache, name string, encode func(*failure, string, instant) any) *surface {
	auth := svc.auth[name]
	origins := newPageOrigins(svc.cfg, auth)
	x, _ := svc.extension.(surfaceExtension)
	return &surface{
		extension: x, guard: newHostGuard(svc.cfg, name, auth, origins), auth: auth, parts: cached(shared, "routes of "+name, newSurfaceParts),
		svc: svc, name: name, origins: origins, log: svc.log.With("role", name), stats: newHTTPStats(name, auth), encode: encode,
		maxBody: svc.cfg.Web.MaxBodyBytes, status: roleStatus, taskPath: taskPath,
	}
}

// handle registers the routes of a table.
func (s *surface) handle(routes []route) {
	for _, row := range routes {
		s.handleRow(servedRoute{route: row})
	}
}

func (s *surface) handleRow(row servedRoute) {
	s.parts.register(len(s.rows), row.route)
	s.rows = append(s.rows, row)
}

// ServeHTTP (hot path: BenchmarkCreate) answers a request by the row that it matches, or else with a 404 or 405
// in the surface's form.
func (s *surface) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := s.newResponseWriter(w, r)
	began := instantOf(rec.arrived) // even if the service's clock is frozen
	if s.extension != nil {
		rec.watch = s.extension.watch(s, r)
		// Clients tell the time of a service by its Date, and that of fixture mode is virtual.
		w.Header()["Date"] = []string{s.svc.clock.now().time().UTC().Format(http.TimeFormat)}
	}
	w.Header()["X-Request-Id"] = []string{rec.requestID}
	defer s.finish(rec, r, began)
	if s.parts.mux.ServeHTTP(rec, r); rec.status != 0 || r.Method == http.MethodTrace { // the mux has its own answer
		s.writeUnmatched(rec, r)
	} else {
		s.answer(rec, r, s.rows[s.parts.numbers[r.Pattern]])
	}
}

func (s *surface) answer(w *responseWriter, r *http.Request, row servedRoute) {
	w.matched = true
	if !row.controls {
		s.origins.share(w.Header(), r)
	}
	// Each check comes before those that cost more: what is too much is refused before credentials are verified, and
	// credentials before a byte of the body is read.
	if w.conn.excess {
		w.Header().Set("Connection", "close")
	}
	err := s.guard.check(r, row)
	if err == nil && s.svc.health.starting != nil && !row.servesEarly() {
		err = s.svc.notOpen()
	}
	if err == nil && !row.isPublic() {
		err = w.conn.refusal()
		if !row.controls {
			err = cmp.Or(err, w.beginWork())
		}
	}
	if err == nil {
		r, err = s.admit(w, r, row)
	}
	if err != nil {
		leaveBody(w, r, err)
		s.writeError(w, r, err)
		return
	}
	if w.watch != nil {
		w.watch.admitted(r)
	}
	var v any
	if limit := cmp.Or(row.maxBody, s.maxBody); r.ContentLength > limit {
		err = bodyTooLarge(limit) // before a client that expects 100 Continue sends it
	} else {
		v, err = s.serveRow(w, r, row, limit)
	}
	if err == nil {
		err = writeReply(w, v)
	}
	if err != nil {
		s.writeError(w, r, err)
	}
}

// serveRow calls the method of a row. When it returns, even by a panic, what the request has taken is free: before a
// slow client reads the answer.
func (s *surface) serveRow(w *responseWriter, r *http.Request, row servedRoute, limit int64) (any, error) {
	body := &requestBody{ReadCloser: http.MaxBytesReader(w, r.Body, limit), memory: &s.svc.quotas.memory, answer: w.Header()}
	defer body.free()
	if limit > s.maxBody {
		// The route takes a whole state, which may be larger than the memory for all requests.
		body.memory = &quota{most: limit}
	}
	r.Body = body
	v, err := row.handle(w, r)
	if w.unread && body.err != io.EOF {
		leaveBody(w, r, nil)
	}
	_, large := errors.AsType[*http.MaxBytesError](body.err)
	w.unread = w.unread && (body.err == nil || large)
	return v, err
}

// finish ends a request: it turns a panic into a 500, and logs and counts the request.
func (s *surface) finish(rec *responseWriter, r *http.Request, began instant) {
	defer rec.release()
	p := recover()
	// An answer was cut off on purpose, which only net/http can do.
	if p == http.ErrAbortHandler {
		defer panic(p)
	} else if p != nil {
		rec.matched = true
		s.writeError(rec, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	}
	if s.svc.cfg.Log.Requests {
		s.logRequest(rec, r, began)
	}
	route := pick(r.Pattern == "" || rec.unmatched, "unmatched", r.Pattern)
	s.stats.observe(route, rec.status, realNow().sub(began))
	if rec.watch != nil {
		rec.watch.answered(rec.status, began)
	}
	if rec.unread && !rec.gone && p != http.ErrAbortHandler {
		rec.release()
		rec.drain()
	}
}

// logRequest logs a request. Its query is left out, because it may have secrets.
func (s *surface) logRequest(rec *responseWriter, r *http.Request, began instant) {
	attrs := []slog.Attr{
		slog.String("method", fmt.Sprintf("%.20s", r.Method)),
		slog.String("path", fmt.Sprintf("%.500s", redact([]byte(r.URL.Path)))),
		slog.Int("status", rec.status), slog.Float64("duration_ms", float64(realNow().sub(began).Microseconds())/1000),
		slog.String("request_id", rec.requestID),
	}
	if rec.caller != nil && rec.caller.subject != "" {
		attrs = append(attrs, slog.String("subject", rec.caller.subject))
	}
	s.log.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}

// writeUnmatched replaces the mux's answer to an unknown path or method.
func (s *surface) writeUnmatched(rec *responseWriter, r *http.Request) {
	rec.matched, rec.unmatched = true, true
	h := rec.Header()
	// The mux redirects a path that is not clean. Here it is an unknown one.
	h.Del("Location")
	if r.Method == http.MethodTrace {
		h["Allow"] = []string{h.Get("Allow")} // which a 405 must have, if need be empty
		s.writeError(rec, r, failf(methodNotAllowed, "TRACE is not allowed"))
		return
	}
	if rec.status == http.StatusMethodNotAllowed && !s.controlled(r, h.Get("Allow")) && s.origins.share(h, r) &&
		preflight(rec, r) {
		return
	}
	f := failf(notFound, "no such path: %s", r.URL.Path)
	if err := s.svc.notOpen(); err != nil {
		s.writeError(rec, r, err) // the path may have a meaning soon
		return
	}
	if rec.status == http.StatusMethodNotAllowed {
		f = failf(methodNotAllowed, "%s is not allowed here, only %s", r.Method, h.Get("Allow"))
	}
	s.writeError(rec, r, f)
}

// requestID returns the id that the caller gave to a request if it may be echoed and logged,
// that is, has 1 to 128 letters, digits and common separators; else a new one.
func requestID(r *http.Request, ids *idSource) string {
	const allowed = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:/+="
	if id := r.Header.Get("X-Request-Id"); id != "" && len(id) <= 128 && strings.TrimLeft(id, allowed) == "" {
		return id
	}
	return ids.random().String()
}

// Parts of surfaces that do not depend on the service. All services of a process
// share them, so that another service is cheap.

// surfaceCache is shared by services whose configurations may differ in addresses
// and storage, but serve the same routes.
type surfaceCache struct {
	mu     sync.Mutex
	values map[string]any // guarded by mu
}

func newSurfaceCache() *surfaceCache { return &surfaceCache{values: map[string]any{}} }

// cached returns the value of a key, which create makes when it is first needed. A nil cache keeps nothing.
func cached[V any](c *surfaceCache, key string, create func() V) V {
	if c == nil {
		return create()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values[key] == nil {
		c.values[key] = create()
	}
	return c.values[key].(V)
}

// surfaceParts maps a path to the number of a row of the surface.
type surfaceParts struct {
	mux     *http.ServeMux
	numbers map[string]rowNumber // by pattern; not changed once a surface serves

	mu     sync.Mutex
	routed int // the rows in mux; guarded by mu
}

func newSurfaceParts() *surfaceParts {
	return &surfaceParts{mux: http.NewServeMux(), numbers: map[string]rowNumber{}}
}

// register registers the n-th row, unless another surface has done so.
func (p *surfaceParts) register(n int, row route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Every surface of this name registers the same rows in the same order, so the numbers fit all of them.
	if n < p.routed {
		return
	}
	p.routed++
	for _, pattern := range row.patterns() {
		p.numbers[pattern] = rowNumber(n)
		p.mux.Handle(pattern, rowNumber(n))
	}
}

// rowNumber stands in the mux for a row, which the surface that got the request answers by.
type rowNumber int

func (rowNumber) ServeHTTP(http.ResponseWriter, *http.Request) {}

// leaveBody closes the connection after the answer if the request has a body. To keep the connection, net/http would
// first read much of the unwanted body, as slowly as the client sends it. Under load, a new connection costs more than
// a short body.
func leaveBody(w *responseWriter, r *http.Request, refusal error) {
	short := r.ContentLength >= 0 && r.ContentLength < 256<<10 // as much as net/http reads
	if r.ContentLength != 0 && !(short && kindOf(refusal) == backpressure) {
		w.Header().Set("Connection", "close")
	}
}

// isChange reports whether a request may change something.
func isChange(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead
}
