package main

// HTTP, below the routes: the server and its limits, how a request is read and
// an answer written, and the one place where an error becomes a response.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits on slow clients.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 60 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// handlerFunc answers a request, or says why it cannot.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// surface is one HTTP API: a route table and the form of its errors.
type surface struct {
	svc     *service
	name    string // orchestration, worker or mount
	log     *slog.Logger
	auth    *authenticator
	guard   *hostGuard    // nil where callers are asked for credentials
	parts   *surfaceParts // shared with the surfaces of other services
	rows    []route
	stats   *httpStats
	encode  func(f *failure, requestID string, now instant) any // the body of an error
	status  func(k failureKind) int
	maxBody int64
	openapi func() ([]byte, error) // its OpenAPI document
	docs    *docsSite

	taskPath func(r *http.Request, id uuid) string // where the caller finds a task
}

func newSurface(svc *service, name string, encode func(*failure, string, instant) any) *surface {
	auth := svc.auth.of(name)
	var guard *hostGuard
	if !auth.config.Enabled {
		guard = newHostGuard(&svc.cfg.Web, svc.cfg.listen(name))
	}
	return &surface{
		guard: guard, auth: auth, docs: svc.surfaces.docs(&svc.cfg.Docs),
		openapi: svc.surfaces.document(auth.config.APIKeyHeader, name), parts: svc.surfaces.of(name),
		svc: svc, name: name, log: svc.log.With("role", name), stats: newHTTPStats(auth), encode: encode,
		maxBody: svc.cfg.Web.MaxBodyBytes, status: roleStatus, taskPath: taskPath,
	}
}

// handle registers the routes of a table.
func (s *surface) handle(routes []route) {
	for _, row := range routes {
		s.parts.route(len(s.rows), row)
		s.rows = append(s.rows, row)
	}
}

// answer answers a request that a row matches.
func (s *surface) answer(w *recorder, r *http.Request, row route) {
	w.matched = true
	if err := s.checkGuard(w, r, row); err != nil {
		s.writeError(w, r, err)
		return
	}
	r, err := s.admit(w, r, row)
	if err == nil {
		w.witness.admitted(r)
	}
	limit := row.bodyLimit(s.maxBody)
	if err == nil && r.ContentLength > limit {
		err = bodyTooLarge(limit) // without asking for it
	}
	if err == nil {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		err = row.handle(w, r)
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
	rec := &recorder{ResponseWriter: w, surface: s, requestID: id, witness: s.watch(r)}
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
	s.answered(rec.witness, rec.status, began)
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
	witness   *witness // in fixture mode; else nil
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

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooledBuffer is the largest buffer worth keeping.
const maxPooledBuffer = 256 << 10

func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= maxPooledBuffer {
		b.Reset()
		buffers.Put(b)
	}
}

// writeJSON encodes v before anything is sent, so that a failure to encode is
// still an error that can be answered.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b := buffers.Get().(*bytes.Buffer)
	defer putBuffer(b)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	return writeBody(w, status, "application/json", b.Bytes())
}

// jsonText is an answer that writes itself.
type jsonText interface{ appendJSON(b []byte) []byte }

func writeText(w http.ResponseWriter, status int, v jsonText) error {
	b := buffers.Get().(*bytes.Buffer)
	defer putBuffer(b)
	b.Write(append(v.appendJSON(b.AvailableBuffer()), '\n'))
	return writeBody(w, status, "application/json", b.Bytes())
}

// extendWriting lets an answer go out that takes longer than most.
func extendWriting(w http.ResponseWriter, by time.Duration) {
	// A test's recorder has no deadline: hence no check.
	http.NewResponseController(w).SetWriteDeadline(realNow().add(by + requestTimeout).time())
}

// extendReading lets a body arrive that takes longer than most.
func extendReading(w http.ResponseWriter, by time.Duration) {
	http.NewResponseController(w).SetReadDeadline(realTimeIn(by)) // which a test's recorder has not
}

func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) error {
	h := w.Header()
	h["Content-Type"] = []string{contentType}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	w.WriteHeader(status)
	w.Write(body) // a client that went away is its own affair
	return nil
}

// readJSON reads the body, which must be one JSON value by the rules for JSON
// from outside. An absent body is nil when it may be absent.
func readJSON(r *http.Request, mayBeAbsent bool) ([]byte, error) {
	return readDeepJSON(r, mayBeAbsent, 0)
}

// readDeepJSON is readJSON for a body that may be that much deeper.
func readDeepJSON(r *http.Request, mayBeAbsent bool, deeper int) ([]byte, error) {
	if r.ContentLength == 0 && mayBeAbsent {
		return nil, nil
	}
	var b bytes.Buffer
	if r.ContentLength > 0 {
		b.Grow(int(min(r.ContentLength, 1<<20)) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(r.Body); err != nil {
		return nil, readFailure(err)
	}
	if b.Len() > 0 { // its length need not have been announced
		if err := checkContentType(r); err != nil {
			return nil, err
		}
	}
	if len(bytes.TrimSpace(b.Bytes())) == 0 && mayBeAbsent {
		return nil, nil
	}
	if err := checkDeepJSON(b.Bytes(), deeper); err != nil {
		return nil, &failure{kind: invalidJSON, message: err.Error()}
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// checkContentType asks for JSON. Without a body nothing is asked.
func checkContentType(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	given := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if err == nil && (media == "application/json" || strings.HasSuffix(media, "+json")) {
		return nil
	}
	return failf(unsupportedMedia, "the body must be application/json, not %.100q", given)
}

func bodyTooLarge(limit int64) error {
	return failf(tooLarge, "the body is larger than the %d bytes allowed", limit)
}

func readFailure(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return bodyTooLarge(large.Limit)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return failf(badRequest, "the body ended before its Content-Length")
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return failf(badRequest, "the body did not arrive in time")
	}
	return &failure{kind: badRequest, message: "the body could not be read", cause: err}
}

// query is the parsed query of a request, read with checks.
type query struct {
	values url.Values
	err    error
}

func queryOf(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &query{err: failf(badRequest, "the query is malformed: %v", err)}
	}
	return &query{values: values}
}

func (q *query) text(name string) string { return q.values.Get(name) }

// number is an integer from lo to hi; absent or blank it is the standard.
func (q *query) number(name string, standard, lo, hi int) int {
	s := q.values.Get(name)
	if s == "" || q.err != nil {
		return standard
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi {
		q.err = failf(badRequest, "%s must be an integer from %d to %d, not %.60q", name, lo, hi, s)
	}
	return n
}

// flag is true or false; absent or blank it is false.
func (q *query) flag(name string) bool {
	s := q.values.Get(name)
	if q.err == nil && s != "" && s != "true" && s != "false" {
		q.err = failf(badRequest, "%s must be true or false, not %.60q", name, s)
	}
	return s == "true"
}

// pathID is an identifier in the path.
func pathID(r *http.Request, name string) (uuid, error) {
	s := r.PathValue(name)
	id, ok := parseUUID(s)
	if !ok {
		return id, failf(invalidUUID, "%s: %.60q is not a UUID", name, s)
	}
	return id, nil
}

// templateIn is the registered template that the path names.
func (s *surface) templateIn(r *http.Request) (*template, error) {
	return s.svc.template(r.PathValue("namespace"), r.PathValue("name"), r.PathValue("version"))
}

// statusOf gives each kind of failure its status, its code, and its word in the
// worker role's errors.
var statusOf = [...]struct {
	status int
	code   string
	word   string
}{
	internalFailure:   {http.StatusInternalServerError, "INTERNAL_ERROR", "internal_error"},
	badRequest:        {http.StatusBadRequest, "BAD_REQUEST", "invalid_request"},
	invalidUUID:       {http.StatusBadRequest, "INVALID_UUID", "invalid_request"},
	invalidJSON:       {http.StatusBadRequest, "JSON_ERROR", "invalid_request"},
	notFound:          {http.StatusNotFound, "NOT_FOUND", "not_found"},
	namespaceNotFound: {http.StatusNotFound, "NOT_FOUND", "not_found"},
	templateNotFound:  {http.StatusNotFound, "NOT_FOUND", "template_not_found"},
	taskMissing:       {http.StatusNotFound, "NOT_FOUND", "not_found"},
	stepMissing:       {http.StatusNotFound, "NOT_FOUND", "not_found"},
	methodNotAllowed:  {http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "method_not_allowed"},
	conflict:          {http.StatusConflict, "CONFLICT", "conflict"},
	invalidTransition: {http.StatusBadRequest, "BAD_REQUEST", "invalid_request"},
	tooLarge:          {http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "payload_too_large"},
	unsupportedMedia:  {http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "unsupported_media_type"},
	invalidFields:     {http.StatusUnprocessableEntity, "VALIDATION_FAILED", "validation_failed"},
	unauthenticated:   {http.StatusUnauthorized, "AUTHENTICATION_FAILED", ""},
	forbidden:         {http.StatusForbidden, "AUTHORIZATION_FAILED", ""},
	unavailable:       {http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "service_unavailable"},
	backpressure:      {http.StatusServiceUnavailable, "BACKPRESSURE", "backpressure"},
	misdirected:       {http.StatusMisdirectedRequest, "MISDIRECTED_REQUEST", "misdirected_request"},
	notIdle:           {http.StatusRequestTimeout, "NOT_IDLE", "not_idle"},
	unverified:        {http.StatusUnprocessableEntity, "VERIFICATION_FAILED", "verification_failed"},
}

func roleStatus(k failureKind) int { return statusOf[k].status }

// writeError is the only code that turns an error into a response.
func (s *surface) writeError(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{message: "internal error", cause: err}
		if errors.Is(err, context.Canceled) {
			f = failf(unavailable, "the request was cancelled")
		}
	}
	id := w.(*recorder).requestID
	if f.kind == internalFailure {
		s.log.Error("a request failed", "request_id", id, "method", r.Method, "path", r.URL.Path, "error", f.cause)
		f.message = "internal error"
	}
	h := w.Header()
	if f.retryAfter == 0 && f.kind == unavailable {
		f.retryAfter = time.Second
	}
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retrySeconds(f)))
	}
	if !f.existing.isZero() {
		h.Set("Location", s.taskPath(r, f.existing))
	}
	if err := writeJSON(w, s.status(f.kind), s.encode(f, id, s.svc.clock.now())); err != nil {
		s.log.Error("an error could not be encoded", "request_id", id, "error", err)
	}
}

func retrySeconds(f *failure) int { return max(int((f.retryAfter+time.Second-1)/time.Second), 1) }

// errorView is the body of an error of the orchestration role.
type errorView struct {
	Error struct {
		Code              string         `json:"code"`
		Message           string         `json:"message"`
		Details           []fieldProblem `json:"details,omitempty"`
		RequestID         string         `json:"request_id,omitempty"`
		RetryAfterSeconds int            `json:"retry_after_seconds,omitempty"`
		Blocking          []blocker      `json:"blocking,omitempty"`
		Seen              *seenView      `json:"seen,omitempty"`
	} `json:"error"`
}

func orchestrationError(f *failure, requestID string, _ instant) any {
	var v errorView
	v.Error.Code = statusOf[f.kind].code
	v.Error.Message = f.message
	v.Error.Details = f.details
	v.Error.RequestID = requestID
	v.Error.Blocking = f.blocking
	v.Error.Seen = f.seen
	if f.retryAfter > 0 {
		v.Error.RetryAfterSeconds = retrySeconds(f)
	}
	return v
}

// workerErrorView is the body of an error of the worker role.
type workerErrorView struct {
	Error     string    `json:"error"`
	Message   string    `json:"message"`
	Timestamp zonedTime `json:"timestamp"`
	RequestID string    `json:"request_id"`
}

// workerError is the body of an error of the worker role; of 401 and 403, for
// which there is no word, the orchestration role's.
func workerError(f *failure, requestID string, now instant) any {
	word := statusOf[f.kind].word
	if word == "" {
		return orchestrationError(f, requestID, now)
	}
	return workerErrorView{word, f.message, zonedTime(now), requestID}
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
