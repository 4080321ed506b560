package main

// The server family: the HTTP machinery that all surfaces share. It knows services,
// whose answers it writes and whose figures it reports; it does not know which
// routes exist or what they mean.
//
//	server.go          listeners, route tables, how a request passes through a surface, and who may send it
//	server_request.go  reading requests, and what their caller knows of a task already
//	server_answer.go   writing answers, at once or in pieces, and errors; the memory that answers may take
//	server_metrics.go  GET /metrics and the health routes of the roles
//	server_pages.go    the OpenAPI documents, their page and the console's files; which pages of others may ask

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Listeners.

// Limits on slow clients.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 60 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// listenTCP opens a listener. The system holds little for readers that take nothing.
func listenTCP(address string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return limitUnsent(conn, 2*jsonPiece)
	}}
	c.SetMultipathTCP(false) // or connections do not take over the limit
	return c.Listen(context.Background(), "tcp", address)
}

// httpServer serves a handler on an open listener.
type httpServer struct {
	listener net.Listener
	server   *http.Server
}

func newHTTPServer(l net.Listener, h http.Handler, all *connections, logger *slog.Logger) *httpServer {
	return &httpServer{&boundedListener{l, all}, &http.Server{
		Handler:           h,
		BaseContext:       ofListener,
		ConnContext:       withConnection,
		ConnState:         all.note,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(debugWriter{logger}, "", 0),

		DisableGeneralOptionsHandler: true, // so that "OPTIONS *" is answered in the surface's form
	}}
}

// serve serves until the server is shut down.
func (h *httpServer) serve() error { return h.server.Serve(h.listener) }

// debugWriter logs net/http's messages about clients at the level debug.
type debugWriter struct{ log *slog.Logger }

func (d debugWriter) Write(p []byte) (int, error) {
	d.log.Debug("http server", "message", strings.TrimSpace(string(p)))
	return len(p), nil
}

// Connections: the listeners of a process hold so many. At the limit, and when the process runs
// out of file descriptors, one that waits for its client is closed: for a request, or the rest of
// its header or body.

// connections are the open connections of a process.
type connections struct {
	quotas *quotas // more connections than the quota may be open for a moment, while all are busy
	log    *slog.Logger

	// line holds the connections in the order in which they are closed, from its end to known: after
	// strangers those that wait and were of no use yet, after known the others that wait, before it
	// those that are busy. Within each part the longest waiting is first. Guarded by mu, as all below.
	mu               sync.Mutex
	line             list.List
	known, strangers *list.Element // marks in line
	warned           time.Time     // of the lack of file descriptors
}

// connection is one of them.
type connection struct {
	net.Conn
	all    *connections
	place  *list.Element // in all.line
	excess bool          // it was accepted while all others were busy

	// For the goroutine that serves it:
	known     bool  // a request on it was admitted and served
	inRequest bool  // the header was read
	read      int64 // bytes of the header

	header    atomic.Int64 // bytes that the header takes from the quota
	body      atomic.Int64 // bytes that the body takes from the quota
	bodySince atomic.Int64 // when it asked for them, an instant
}

func newConnections(q *quotas, log *slog.Logger) *connections {
	all := &connections{quotas: q, log: log}
	all.known, all.strangers = all.line.PushBack(nil), all.line.PushBack(nil)
	return all
}

// boundedListener accepts connections within the limit.
type boundedListener struct {
	net.Listener
	all *connections
}

func (l *boundedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.all.warnOfFiles(err)
			l.all.closeWaiting(anyConnection)
		}
		return nil, err // net/http tries again, after a pause
	}
	return l.all.admit(c), nil
}

// filesWarnedEvery is the least time between two warnings of the lack of file descriptors.
const filesWarnedEvery = time.Hour

func (all *connections) warnOfFiles(err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if now := time.Now(); all.warned.IsZero() || now.Sub(all.warned) > filesWarnedEvery {
		all.warned = now
		all.log.Warn("out of file descriptors: connections that wait for their clients are closed to accept others; "+
			"allow more files (ulimit -n) or fewer connections (web.max_connections)", "error", err)
	}
}

// admit takes up a new connection.
func (all *connections) admit(c net.Conn) *connection {
	n := &connection{Conn: c, all: all}
	q := &all.quotas.connections
	n.excess = q.used.Add(1) > q.most && !all.closeWaiting(anyConnection)
	all.mu.Lock()
	defer all.mu.Unlock()
	n.place = all.line.PushBack(n)
	return n
}

// closeWaiting closes the first connection that waits for its client and fits. It reports
// whether there was one.
func (all *connections) closeWaiting(fits func(*connection) bool) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.closeLocked(all.strangers.Next(), fits) || all.closeLocked(all.known.Next(), fits)
}

// closeLocked closes the first connection that fits, from a place to the next mark.
func (all *connections) closeLocked(e *list.Element, fits func(*connection) bool) bool {
	for ; e != nil && e.Value != nil; e = e.Next() {
		if c := e.Value.(*connection); fits(c) {
			all.leaveLocked(c)
			c.Close()
			return true
		}
	}
	return false
}

func anyConnection(*connection) bool { return true }

// leaveLocked drops a connection, unless that was done before.
func (all *connections) leaveLocked(c *connection) {
	before := all.line.Len()
	if all.line.Remove(c.place); all.line.Len() < before {
		all.quotas.connections.give(1)
	}
}

// note follows the state of a connection.
func (all *connections) note(c net.Conn, state http.ConnState) {
	n := c.(*connection)
	switch state {
	case http.StateActive:
		n.inRequest = true
		n.waits(false)
	case http.StateIdle:
		n.inRequest, n.read = false, 0
		n.freeHeader()
		n.waits(true)
	case http.StateClosed:
		n.freeHeader()
		all.mu.Lock()
		defer all.mu.Unlock()
		all.leaveLocked(n)
	}
}

// waits notes whether the connection waits for its client.
func (c *connection) waits(client bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	switch {
	case !client:
		c.all.line.MoveBefore(c.place, c.all.known)
	case c.known:
		c.all.line.MoveBefore(c.place, c.all.strangers)
	default:
		c.all.line.MoveToBack(c.place)
	}
}

// headerFirst is how much of a header does not count, in bytes.
const headerFirst = 4 << 10

// Read takes memory for large headers, if need be that of connections that wait for the rest of
// theirs: they are closed.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.inRequest {
		return n, err
	}
	q := &c.all.quotas.headers
	if c.read += int64(n); c.read <= headerFirst {
		return n, err
	}
	for !q.take(int64(n)) {
		if !c.all.closeWaiting(func(o *connection) bool { return o != c && q.regain(&o.header) }) {
			q.refused.Add(1)
			return 0, io.EOF // which closes the connection
		}
	}
	c.header.Add(int64(n))
	return n, err
}

// freeHeader gives the memory for a header back.
func (c *connection) freeHeader() { c.all.quotas.headers.regain(&c.header) }

// CloseWrite is for net/http: a client that still sends can then read the answer.
func (c *connection) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// refusal returns why its requests are refused except for public routes, or nil.
func (c *connection) refusal() error {
	q := &c.all.quotas.connections
	if !c.excess || q.used.Load() <= q.most {
		return nil
	}
	f := q.refuse("all %d connections that web.max_connections allows are busy", q.most)
	f.kind = overloaded
	return f
}

// connectionKey is the key of its connection in the context of a request.
type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// connectionOf returns the connection of a request, or for a request without one, as
// tests make them, a connection alone.
func connectionOf(r *http.Request) *connection {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		return c
	}
	return newConnections(&quotas{connections: quota{most: 1}}, nil).admit(nil)
}

// url returns a URL that reaches the server from this machine.
func (h *httpServer) url() string { return reachableURL(h.listener.Addr().String()) }

// reachableURL returns a URL that reaches a listen address from this machine. For
// an address of all interfaces it uses loopback.
func reachableURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// gate is the handler of a listener. It passes requests to the current surface, which
// a reset replaces.
type gate struct{ surface atomic.Pointer[http.Handler] }

func (g *gate) open(h http.Handler) { g.surface.Store(&h) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*g.surface.Load()).ServeHTTP(w, r)
}

// Rows of route tables.

// handlerFunc answers a request with a value, which is encoded as JSON with
// status 200 unless its type says otherwise (see writeReply), or with an error.
// Headers are set on w.
type handlerFunc func(w http.ResponseWriter, r *http.Request) (any, error)

// route is one row of a route table. A caller needs one of the permissions; without
// any the route is public.
type route struct {
	pattern     string // a pattern of net/http's ServeMux
	permissions []permission
	handle      handlerFunc
}

func needs(p ...permission) []permission { return p }

var public []permission

// everything lists all permissions. A row with this list needs each of them.
var everything = everyPermission.list()

// taskless are the permissions for what needs no task.
var taskless = []permission{
	permTemplatesRead, permSystemHandlersRead, permSystemConfigRead, permWorkerTemplatesRead, permWorkerConfigRead,
	permTemplatesValidate,
}

// isTaskless reports whether a route is answered while the store is being read.
func (r route) isTaskless() bool {
	return !strings.HasSuffix(r.pattern, "/health/status") &&
		!slices.ContainsFunc(r.permissions, func(p permission) bool { return !slices.Contains(taskless, p) })
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
	room    *answerRoom   // shared with all surfaces of the process
	rows    []servedRoute
	stats   *httpStats
	encode  func(f *failure, requestID string, now instant) any // the body of an error
	status  func(k failureKind) int
	maxBody int64
	openapi func() (*apiDocument, error) // its OpenAPI document
	docs    *docsSite

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
	auth := svc.auth.of(name)
	x, _ := svc.extension.(surfaceExtension)
	return &surface{
		extension: x, guard: newHostGuard(svc.cfg, name, auth), auth: auth, parts: cached(shared, "routes of "+name, newSurfaceParts),
		docs: cached(shared, "docs", func() *docsSite { return newDocsSite(&svc.cfg.Docs) }),
		room: cached(shared, "answers", func() *answerRoom { return newAnswerRoom(svc.cfg.Web.MaxAnswerBytes) }),
		svc:  svc, name: name, origins: newPageOrigins(svc.cfg), log: svc.log.With("role", name), stats: newHTTPStats(name, auth), encode: encode,
		maxBody: svc.cfg.Web.MaxBodyBytes, status: roleStatus, taskPath: taskPath,
	}
}

// handle registers the routes of a table.
func (s *surface) handle(routes []route) {
	for _, row := range routes {
		s.handleRow(servedRoute{route: row})
	}
}

// handleRow registers one row.
func (s *surface) handleRow(row servedRoute) {
	s.parts.register(len(s.rows), row.route)
	s.rows = append(s.rows, row)
}

// ServeHTTP answers a request by the row that it matches, or else with a 404 or 405
// in the surface's form.
func (s *surface) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := realNow() // even if the service's clock is frozen
	rec := s.newRecorder(w, r)
	if s.extension != nil {
		rec.watch = s.extension.watch(s, r)
	}
	w.Header()["X-Request-Id"] = []string{rec.requestID}
	s.svc.load.open.Add(1)
	defer s.svc.load.open.Add(-1)
	defer s.finish(rec, r, began)
	s.parts.mux.ServeHTTP(rec, r)
	if !rec.matched {
		s.writeUnmatched(rec, r)
	}
}

// answer answers a request that matches a row.
func (s *surface) answer(w *recorder, r *http.Request, row servedRoute) {
	w.matched = true
	if !row.controls {
		s.origins.share(w.Header(), r)
	}
	conn := connectionOf(r)
	err := s.guard.check(r, row)
	if err == nil && s.svc.health.starting != nil && !row.isTaskless() {
		err = s.svc.notOpen()
	}
	if err == nil && len(row.permissions) > 0 {
		err = cmp.Or(conn.refusal(), s.overload(r, row))
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
		body := s.newRequestBody(w, r, limit)
		r.Body = body
		v, err = row.handle(w, r)
		if body.free(); !body.ended {
			leaveBody(w, r, nil)
		}
	}
	if err == nil {
		conn.known = conn.known || len(row.permissions) > 0
		err = writeReply(w, v)
	}
	if err != nil {
		s.writeError(w, r, err)
	}
}

// finish ends a request: it turns a panic into a 500, and logs and counts the request.
func (s *surface) finish(rec *recorder, r *http.Request, began instant) {
	defer rec.share.release()
	p := recover()
	if p == http.ErrAbortHandler {
		defer panic(p)
	} else if p != nil {
		rec.matched = true
		s.writeError(rec, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	}
	rec.endGzip()
	if s.svc.cfg.Log.Requests {
		s.logRequest(rec, r, began)
	}
	route := r.Pattern
	if route == "" || rec.unmatched {
		route = "unmatched"
	}
	s.stats.observe(route, rec.status, realNow().sub(began))
	if rec.watch != nil {
		rec.watch.answered(rec.status, began)
	}
}

// logRequest logs a request. Its query is left out, because it may have secrets.
func (s *surface) logRequest(rec *recorder, r *http.Request, began instant) {
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
func (s *surface) writeUnmatched(rec *recorder, r *http.Request) {
	rec.matched, rec.unmatched = true, true
	h := rec.Header()
	h.Del("Location")
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

// recorder records the status of the response, and drops the mux's own answers.
type recorder struct {
	http.ResponseWriter
	surface   *surface
	requestID string
	caller    *securityContext // nil if the caller is not known
	watch     requestWatch     // nil without one
	head      bool             // the client wants no body
	change    bool             // the request is neither GET nor HEAD
	asked     http.Header      // of the request
	body      *gzipBody        // nil unless the body is compressed
	share     answerShare
	status    int
	matched   bool // a row matched, or writeUnmatched answers
	unmatched bool // writeUnmatched answered
	gone      bool // the client went away, or was too slow
}

func (s *surface) newRecorder(w http.ResponseWriter, r *http.Request) *recorder {
	return &recorder{ResponseWriter: w, surface: s, requestID: requestID(r, s.svc.ids),
		head: r.Method == http.MethodHead, change: isChange(r), asked: r.Header, share: answerShare{room: s.room, w: w}}
}

func (w *recorder) WriteHeader(status int) {
	w.status = status
	if w.matched {
		w.beginGzip()
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	if !w.matched {
		return len(b), nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.body != nil {
		return w.body.take(b)
	}
	return w.send(b)
}

// send writes to the client.
func (w *recorder) send(b []byte) (int, error) {
	write := w.ResponseWriter.Write
	if len(b) > copiedBody {
		write = w.share.write
	}
	n, err := write(b)
	w.gone = w.gone || err != nil
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// requestID returns the id that the caller gave to a request, or a new one.
func requestID(r *http.Request, ids *idSource) string {
	if id := r.Header.Get("X-Request-Id"); saneRequestID(id) {
		return id
	}
	return ids.random().String()
}

// saneRequestID reports whether an id may be echoed and logged: 1 to 128 letters,
// digits and common separators.
func saneRequestID(id string) bool {
	const allowed = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:/+="
	return id != "" && len(id) <= 128 && strings.TrimLeft(id, allowed) == ""
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

// cached returns the value of a key, which create makes when it is first needed. A
// nil cache keeps nothing.
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
	mux *http.ServeMux

	mu     sync.Mutex
	routed int // the rows in mux; guarded by mu
}

func newSurfaceParts() *surfaceParts { return &surfaceParts{mux: http.NewServeMux()} }

// register registers the n-th row, unless another surface has done so.
func (p *surfaceParts) register(n int, row route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < p.routed {
		return
	}
	p.routed++
	for _, pattern := range row.patterns() {
		p.mux.Handle(pattern, rowNumber(n))
	}
}

// rowNumber answers by the row with that number, of the surface that got the request.
type rowNumber int

func (n rowNumber) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := w.(*recorder)
	rec.surface.answer(rec, r, rec.surface.rows[n])
}

// Admission: after a request matches a route and before its body is read, the
// surface finds out who sent it and refuses callers without permission.

// admit returns the request with the caller's security context, or an error if the
// caller may not use the route. Public routes ignore credentials.
func (s *surface) admit(w http.ResponseWriter, r *http.Request, row servedRoute) (*http.Request, error) {
	if len(row.permissions) == 0 {
		return r, nil
	}
	sc, f := s.auth.authenticate(r.Context(), callerOf(r), s.credentialTime(row))
	switch {
	case f != nil:
	case len(row.permissions) == len(everything):
		f = s.auth.authorizeAll(sc)
	default:
		f = s.auth.authorize(sc, row.permissions...)
	}
	w.(*recorder).caller = sc
	s.logAdmission(w, r, sc, f)
	if f != nil {
		return r, f
	}
	return r.WithContext(withSecurity(r.Context(), sc)), nil
}

// callerOf returns what identifies the sender of a request.
func callerOf(r *http.Request) caller {
	return caller{textproto.MIMEHeader(r.Header), r.Method, r.URL, r.Host, r.RemoteAddr, r.TLS != nil}
}

// setRefusalHeaders tells a client why its credentials were refused.
func setRefusalHeaders(h http.Header, f *failure) {
	if f.refusal == nil || f.refusal.reason == "" {
		return
	}
	h.Set("X-Auth-Failure-Reason", f.refusal.reason)
	h.Set("X-Auth-Failure-Severity", f.refusal.severity)
	challenge := `Bearer error="invalid_token"` // as in RFC 6750
	switch {
	case f.refusal.reason == reasonMissing:
		challenge = `Bearer realm="stepwell"`
	case f.kind == forbidden:
		challenge = `Bearer error="insufficient_scope"`
	}
	h.Set("WWW-Authenticate", challenge)
}

// credentialTime returns the time at which credentials must be valid: real time,
// unless fixture mode is configured to use the virtual clock. Routes that control
// the service use real time, so that they work whatever the virtual time is.
func (s *surface) credentialTime(row servedRoute) instant {
	f := &s.svc.cfg.Fixture
	if f.Enabled && f.VirtualCredentials && !row.controls && s.auth.forward == nil {
		return s.svc.clock.now()
	}
	return s.auth.clock.now()
}

// leaveBody closes the connection after the answer if the request has a body. To
// keep the connection, net/http would first read much of the unwanted body, as
// slowly as the client sends it. Under load, a new connection costs more than a
// short body.
func leaveBody(w http.ResponseWriter, r *http.Request, refusal error) {
	short := r.ContentLength >= 0 && r.ContentLength < 256<<10 // as much as net/http reads
	if r.ContentLength != 0 && !(short && kindOf(refusal) == overloaded) {
		w.Header().Set("Connection", "close")
	}
}

// logAdmission logs who was admitted or refused, and why, without credentials.
func (s *surface) logAdmission(w http.ResponseWriter, r *http.Request, sc *securityContext, f *failure) {
	level, message := slog.LevelDebug, "a request was admitted"
	switch {
	case f == nil && sc.method == authByNothing:
		return
	case f == nil:
	case f.refusal.severity == severityLow:
		level, message = slog.LevelInfo, "a request was refused"
	default:
		level, message = slog.LevelWarn, "a request was refused"
	}
	dropped, ok := 0, s.log.Enabled(r.Context(), level)
	if ok && f != nil {
		dropped, ok = s.auth.logRate.allow(realNow())
	}
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("route", r.Pattern), slog.String("request_id", w.(*recorder).requestID),
	}
	if sc != nil {
		attrs = append(attrs, slog.String("subject", sc.subject), slog.String("method", sc.method))
	} else {
		attrs = append(attrs, slog.String("method", f.refusal.method))
	}
	if f != nil {
		attrs = append(attrs, slog.Int("status", failureForms[f.kind].status), slog.String("reason", f.refusal.reason),
			slog.String("severity", f.refusal.severity), slog.String("detail", f.refusal.detail))
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("not_logged", dropped)) // before this one
	}
	s.log.LogAttrs(r.Context(), level, message, attrs...)
}

// mayReadContexts reports whether the caller may see the contexts of tasks.
func mayReadContexts(ctx context.Context) bool { return securityOf(ctx).may(permTasksContextRead) }

// mayReadResults reports whether the caller may see the results of steps and what handlers
// say about failures.
func mayReadResults(ctx context.Context) bool { return securityOf(ctx).may(permStepsRead) }
