package main

// HTTP, below the routes: the server and its limits, how a request is read and
// an answer written, and the one place where an error becomes a response.

import (
	"cmp"
	"context"
	"fmt"
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
	"time"
)

// Limits on slow clients.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 60 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// handlerFunc answers a request with a value, which is encoded as JSON with
// status 200 unless its type says otherwise (see writeReply), or with an error.
// Headers are set on w.
type handlerFunc func(w http.ResponseWriter, r *http.Request) (any, error)

// surface is one HTTP API: a route table and the form of its errors.
type surface struct {
	svc     *service
	name    string // orchestration, worker or mount
	log     *slog.Logger
	auth    *authenticator
	guard   *hostGuard    // nil where callers are asked for credentials
	parts   *surfaceParts // shared with the surfaces of other services
	rows    []servedRoute
	stats   *httpStats
	encode  func(f *failure, requestID string, now instant) any // the body of an error
	status  func(k failureKind) int
	maxBody int64
	openapi func() ([]byte, error) // its OpenAPI document
	docs    *docsSite

	taskPath func(r *http.Request, id uuid) string // where the caller finds a task

	extension surfaceExtension // nil without one
}

// surfaceExtension is an extension of a service that extends its surfaces, too.
type surfaceExtension interface {
	// extend adds to the orchestration role's surface.
	extend(s *surface, shared *surfaceCache)
	// watch sees a request to any surface before its body is read. It returns who
	// is to see the rest of it, or nil.
	watch(s *surface, r *http.Request) requestWatch
}

// requestWatch sees what becomes of one request.
type requestWatch interface {
	admitted(r *http.Request) // with its security context
	answered(status int, began instant)
}

func newSurface(svc *service, shared *surfaceCache, name string, encode func(*failure, string, instant) any) *surface {
	auth := svc.auth.of(name)
	var guard *hostGuard
	if !auth.config.Enabled {
		guard = newHostGuard(&svc.cfg.Web, svc.cfg.listen(name))
	}
	x, _ := svc.extension.(surfaceExtension)
	return &surface{
		extension: x, guard: guard, auth: auth, docs: shared.docs(&svc.cfg.Docs),
		openapi: shared.document(auth.config.APIKeyHeader, name), parts: shared.of(name),
		svc: svc, name: name, log: svc.log.With("role", name), stats: newHTTPStats(auth), encode: encode,
		maxBody: svc.cfg.Web.MaxBodyBytes, status: roleStatus, taskPath: taskPath,
	}
}

// handle registers the routes of a table.
func (s *surface) handle(routes []route) {
	for _, row := range routes {
		s.serve(servedRoute{route: row})
	}
}

// serve registers one row.
func (s *surface) serve(row servedRoute) {
	s.parts.route(len(s.rows), row.route)
	s.rows = append(s.rows, row)
}

// answer answers a request that a row matches.
func (s *surface) answer(w *recorder, r *http.Request, row servedRoute) {
	w.matched = true
	if err := s.checkGuard(w, r, row); err != nil {
		s.writeError(w, r, err)
		return
	}
	r, err := s.admit(w, r, row)
	if err == nil && w.watch != nil {
		w.watch.admitted(r)
	}
	limit := cmp.Or(row.maxBody, s.maxBody)
	if err == nil && r.ContentLength > limit {
		err = bodyTooLarge(limit) // without asking for it
	}
	if err == nil {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		var v any
		if v, err = row.handle(w, r); err == nil {
			err = writeReply(w, v)
		}
	}
	if err != nil {
		s.writeError(w, r, err)
	}
}

// ServeHTTP answers every request: matched ones by their route, others by a
// 404 or 405 in the surface's own form.
func (s *surface) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := realNow() // also where the service's own time stands still
	id := requestID(r, s.svc.ids)
	rec := &recorder{ResponseWriter: w, surface: s, requestID: id}
	if s.extension != nil {
		rec.watch = s.extension.watch(s, r)
	}
	w.Header()["X-Request-Id"] = []string{id}
	defer s.finish(rec, r, began)
	s.parts.mux.ServeHTTP(rec, r)
	if !rec.matched {
		s.writeUnmatched(rec, r)
	}
}

// finish ends every request: a panic becomes a 500, and all are counted.
func (s *surface) finish(rec *recorder, r *http.Request, began instant) {
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler {
			panic(p)
		}
		rec.matched = true
		s.writeError(rec, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
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

// writeUnmatched replaces what the mux said about a path or method it lacks.
func (s *surface) writeUnmatched(rec *recorder, r *http.Request) {
	rec.matched, rec.unmatched = true, true
	h := rec.Header()
	h.Del("Location")
	f := failf(notFound, "no such path: %s", r.URL.Path)
	if rec.status == http.StatusMethodNotAllowed {
		f = failf(methodNotAllowed, "%s is not allowed here, only %s", r.Method, h.Get("Allow"))
	}
	s.writeError(rec, r, f)
}

// recorder notes the status, and swallows the mux's own answers.
type recorder struct {
	http.ResponseWriter
	surface   *surface
	requestID string
	watch     requestWatch // nil when nobody watches
	status    int
	matched   bool // one of our handlers has the request
	unmatched bool // none had
}

func (w *recorder) WriteHeader(status int) {
	w.status = status
	if w.matched {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	if !w.matched {
		return len(b), nil
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap serves http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// requestID is the caller's id of a request, or a new one.
func requestID(r *http.Request, ids *idSource) string {
	if id := r.Header.Get("X-Request-Id"); saneRequestID(id) {
		return id
	}
	return ids.reserve(1).String()
}

// saneRequestID accepts what may be echoed and logged: 1 to 128 visible
// characters of the usual kinds.
func saneRequestID(id string) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	return strings.IndexFunc(id, func(c rune) bool {
		return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("-_.:/+=", c))
	}) < 0
}

// templateIn is the registered template that the path names.
func (s *surface) templateIn(r *http.Request) (*template, error) {
	return s.svc.templates.find(r.PathValue("namespace"), r.PathValue("name"), r.PathValue("version"))
}

// httpServer serves one surface on a listener that is open already.
type httpServer struct {
	listener net.Listener
	server   *http.Server
}

func newHTTPServer(l net.Listener, h http.Handler, logger *slog.Logger) *httpServer {
	return &httpServer{l, &http.Server{
		Handler:           h,
		BaseContext:       ofListener,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(debugWriter{logger}, "", 0),
	}}
}

// debugWriter takes net/http's own complaints about clients.
type debugWriter struct{ log *slog.Logger }

func (d debugWriter) Write(p []byte) (int, error) {
	d.log.Debug("http server", "message", strings.TrimSpace(string(p)))
	return len(p), nil
}

// url is where the server can be reached from this machine.
func (h *httpServer) url() string { return reachableURL(h.listener.Addr().String()) }

// reachableURL is how a listen address is reached from this machine: one that
// stands for all interfaces, by loopback.
func reachableURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// What the surfaces of one kind have in common, whatever service they belong
// to: made once for all services of a process, so that another one costs little.

// surfaceCache is shared by services whose configurations differ in addresses
// and in where state is kept, but not in what is served. A nil one shares nothing.
type surfaceCache struct {
	mu        sync.Mutex
	parts     map[string]*surfaceParts          // by the surface's name; guarded by mu, as all below
	documents map[string]func() ([]byte, error) // OpenAPI documents, by the surfaces in them
	site      *docsSite
}

// surfaceParts leads from a path to the number of a row in the surface's table.
type surfaceParts struct {
	mux *http.ServeMux

	mu     sync.Mutex
	routed int // rows that mux has; guarded by mu
}

// rowNumber answers by the row of that number of the surface that was asked.
type rowNumber int

func (n rowNumber) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := w.(*recorder)
	rec.surface.answer(rec, r, rec.surface.rows[n])
}

func newSurfaceCache() *surfaceCache {
	return &surfaceCache{parts: map[string]*surfaceParts{}, documents: map[string]func() ([]byte, error){}}
}

// of is the parts of a surface.
func (c *surfaceCache) of(name string) *surfaceParts {
	if c == nil {
		return &surfaceParts{mux: http.NewServeMux()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts[name] == nil {
		c.parts[name] = &surfaceParts{mux: http.NewServeMux()}
	}
	return c.parts[name]
}

// route registers the n-th row of the table, unless another surface did.
func (p *surfaceParts) route(n int, row route) {
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

// document is openAPIDocument.
func (c *surfaceCache) document(apiKeyHeader, surface string, also ...string) func() ([]byte, error) {
	if c == nil {
		return openAPIDocument(surface, apiKeyHeader, also...)
	}
	key := strings.Join(append(also, surface), " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.documents[key] == nil {
		c.documents[key] = openAPIDocument(surface, apiKeyHeader, also...)
	}
	return c.documents[key]
}

func (c *surfaceCache) docs(cfg *docsConfig) *docsSite {
	if c == nil {
		return newDocsSite(cfg)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.site == nil {
		c.site = newDocsSite(cfg)
	}
	return c.site
}

// The authentication step of the surfaces: between finding the route and reading
// the body it finds out who asks, and refuses who may not.

// admit is the request with its security context when the caller may go on, or
// why not. Public routes take everybody, whatever credentials came. Nothing of
// the body is read.
func (s *surface) admit(w http.ResponseWriter, r *http.Request, row servedRoute) (*http.Request, error) {
	if len(row.permissions) == 0 {
		return r, nil
	}
	sc, f := s.auth.authenticate(r.Context(), callerOf(r), s.credentialTime(row))
	switch {
	case f != nil:
	case row.controls:
		f = s.auth.authorizeAll(sc)
	default:
		f = s.auth.authorize(sc, row.permissions...)
	}
	s.logAdmission(w, r, sc, f)
	if f != nil {
		leaveBody(w, r)
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
	if f.kind != unauthenticated {
		return
	}
	code := "invalid_token" // of RFC 6750
	if f.refusal.reason == reasonMissing {
		code = "invalid_request"
	}
	h.Set("WWW-Authenticate", `Bearer error="`+code+`"`)
}

// credentialTime is what the times in credentials are held against: real time,
// unless fixture mode was told otherwise. The control API stays within reach
// wherever the virtual clock stands.
func (s *surface) credentialTime(row servedRoute) instant {
	f := &s.svc.cfg.Fixture
	if f.Enabled && f.VirtualCredentials && !row.controls && s.auth.forward == nil {
		return s.svc.clock.now()
	}
	return s.auth.clock.now()
}

// leaveBody lets the answer go out at once. On a connection that stays, net/http
// would first read a good part of a body that nobody wants, for as long as the
// client likes to take.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// logAdmission says who was let in and who was not, and why. A credential is
// nowhere in it.
func (s *surface) logAdmission(w http.ResponseWriter, r *http.Request, sc *securityContext, f *failure) {
	level, message := slog.LevelDebug, "a request was let in"
	switch {
	case f == nil && sc.method == authByNothing:
		return
	case f == nil:
	case f.refusal.severity == severityLow:
		level, message = slog.LevelInfo, "a request was refused"
	default:
		level, message = slog.LevelWarn, "a request was refused"
	}
	if !s.log.Enabled(r.Context(), level) {
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
			slog.String("detail", f.refusal.detail))
	}
	s.log.LogAttrs(r.Context(), level, message, attrs...)
}

// mayReadContexts tells whether the caller may see the context of a task,
// wherever it appears.
func mayReadContexts(ctx context.Context) bool { return securityOf(ctx).may(permTasksContextRead) }

// The guard against pages of others: where nobody is asked for credentials, a
// browser must not be made to change things here by a page from elsewhere.

// hostGuard says which names and origins are our own. It is never changed.
type hostGuard struct {
	hosts   map[string]bool // that are never foreign, beside loopback ones
	origins map[string]bool // that may do what our own pages may
}

func newHostGuard(web *webConfig, listen string) *hostGuard {
	g := &hostGuard{map[string]bool{"host.docker.internal": true}, map[string]bool{}}
	if own, err := parseListen(listen); err == nil && own.host != "" && !(own.ip.IsValid() && own.ip.IsUnspecified()) {
		g.hosts[own.host] = true
	}
	for _, host := range web.AllowedHosts {
		g.hosts[strings.ToLower(host)] = true
	}
	for _, origin := range web.AllowedOrigins {
		g.origins[strings.ToLower(origin)] = true
	}
	return g
}

// listen is the configured address of a role.
func (c *Config) listen(role string) string {
	if role == "worker" {
		return c.Worker.Web.Listen
	}
	return c.Orchestration.Web.Listen
}

// check refuses what a page from elsewhere may have sent, on a route that
// changes something or controls the service.
func (g *hostGuard) check(r *http.Request, row servedRoute) error {
	if strings.HasPrefix(row.pattern, "GET ") && !row.controls {
		return nil
	}
	for _, origin := range r.Header["Origin"] {
		if g.foreignOrigin(origin, r.Host) {
			return failf(badRequest, "a page of %.200q may not do this; web.allowed_origins lets it", origin)
		}
	}
	if onLoopback(r.Context()) && g.foreignHost(r.Host) {
		return failf(misdirected, "%.200q is not a name of this service; web.allowed_hosts makes it one", r.Host)
	}
	return nil
}

// foreignOrigin tells whether an origin is neither the one that was asked nor
// one that may do the same.
func (g *hostGuard) foreignOrigin(origin, host string) bool {
	origin = strings.ToLower(origin)
	_, asked, ok := strings.Cut(origin, "://")
	switch {
	case origin == "" || g.origins[origin]:
		return false
	case !ok:
		return true // null, as of a file or a sandboxed frame
	}
	return asked != strings.ToLower(host) && g.foreignHost(asked)
}

// foreignHost tells whether host, with or without a port, is no name of ours.
func (g *hostGuard) foreignHost(host string) bool {
	name := hostName(host)
	return name != "" && !g.hosts[name] && !isLoopbackName(name)
}

// listenerKey is the key of a listener's address in the contexts of its requests.
type listenerKey struct{}

// ofListener is the context that requests to a listener descend from.
func ofListener(l net.Listener) context.Context {
	return context.WithValue(context.Background(), listenerKey{}, l.Addr())
}

// onLoopback tells whether a request came to a listener that only this machine reaches.
func onLoopback(ctx context.Context) bool {
	a, ok := ctx.Value(listenerKey{}).(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// checkGuard is hostGuard.check where callers are not asked for credentials.
func (s *surface) checkGuard(w http.ResponseWriter, r *http.Request, row servedRoute) error {
	if s.guard == nil {
		return nil
	}
	err := s.guard.check(r, row)
	if err != nil {
		leaveBody(w, r)
	}
	return err
}

// taskPath is where a task is found, under the prefix that the caller used.
func taskPath(r *http.Request, id uuid) string {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		return "/api/v1/tasks/" + id.String()
	}
	return "/v1/tasks/" + id.String()
}

// route is one row. Its permissions are alternatives; none means public.
type route struct {
	pattern     string // a pattern of net/http's ServeMux
	permissions []permission
	handle      handlerFunc
}

// servedRoute is a row as a surface serves it.
type servedRoute struct {
	route
	controls bool  // it controls the service itself: a caller needs all of the permissions, at the machine's time
	maxBody  int64 // in bytes; 0 for the usual limit
}

// patterns is where the row answers: under /api/v1 too when it is under /v1.
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

func needs(p ...permission) []permission { return p }

var public []permission

// gate is the handler of a listener: it passes requests on to the current
// surface, which a reset replaces, and until the first one is open to starting.
type gate struct {
	starting http.Handler
	surface  atomic.Pointer[http.Handler]
}

func (g *gate) open(h http.Handler) { g.surface.Store(&h) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s := g.surface.Load(); s != nil {
		(*s).ServeHTTP(w, r)
		return
	}
	g.starting.ServeHTTP(w, r)
}
