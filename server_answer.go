package main

// Writing answers: a short one at once, a long one in pieces; the one place where an error
// becomes a response; and the room that all answers on their way may take.

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The types of answers other than JSON with status 200.
type (
	// reply is JSON with another status.
	reply struct {
		status int
		body   any
	}
	// textReply is a body that is sent as it is, in parts, with status 200.
	textReply struct {
		contentType string
		body        [][]byte
	}
	// noContent is status 204, without a body.
	noContent struct{}
	// notModified is status 304: the caller has the answer already.
	notModified struct{}
	// written is the answer of a handler that has written its response itself.
	written struct{}
)

// writeReply writes what a handler returned.
func writeReply(w http.ResponseWriter, v any) error {
	switch v := v.(type) {
	case reply:
		return writeJSON(w, v.status, v.body)
	case textReply:
		return writeText(w, v)
	case noContent:
		w.WriteHeader(http.StatusNoContent)
	case notModified:
		w.WriteHeader(http.StatusNotModified)
	case written:
	default:
		return writeJSON(w, http.StatusOK, v)
	}
	return nil
}

const jsonType = "application/json"

// writeJSON writes v as JSON.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	return writeJSONAs(w, status, jsonType, v)
}

// writeJSONAs is writeJSON with a media type. An error can still be answered: once a part was
// written, the connection is cut instead, so that nobody takes the part for the whole.
func writeJSONAs(w http.ResponseWriter, status int, contentType string, v any) error {
	a := answers.Get().(*jsonAnswer)
	defer a.free()
	a.w, a.status, a.contentType = w, status, contentType
	a.value(v)
	a.b = append(a.b, '\n')
	if a.begun && a.err == nil {
		a.flush()
	}
	switch {
	case a.begun && (a.err == nil || a.err == errNoBody):
		return nil
	case a.begun:
		w.(*recorder).cutOff(a.err)
	case a.err != nil:
		return fmt.Errorf("encoding the answer: %w", a.err)
	}
	if r, ok := w.(*recorder); ok && len(a.b) > copiedBody {
		if err := r.holdShort(cap(a.b)); err != nil {
			return err
		}
	}
	writeBody(w, status, contentType, a.b)
	return nil
}

// copiedBody is up to how long a body net/http copies, so that nothing else is held
// while it is written.
const copiedBody = 3 << 10

// jsonAnswer is an answer while it is written: up to a piece is kept, and goes out with its
// length; a longer one goes out in pieces.
type jsonAnswer struct {
	jsonWriter
	w           http.ResponseWriter
	status      int
	contentType string
	begun       bool // a piece has been written
}

var answers = sync.Pool{New: func() any {
	a := new(jsonAnswer)
	a.to = a
	return a
}}

// free keeps the answer's buffer for another one, unless it has grown too large.
func (a *jsonAnswer) free() {
	if cap(a.b) <= 2*jsonPiece {
		*a = jsonAnswer{jsonWriter: jsonWriter{b: a.b[:0], to: a, enc: a.enc}}
		answers.Put(a)
	}
}

// hold implements jsonSink.
func (a *jsonAnswer) hold(n int) error { return a.w.(*recorder).hold(n) }

// streamMemory is what a long answer takes besides copies of large tasks: the piece
// that is written, and the list of what is still to come.
const streamMemory = 2 * jsonPiece

// pass implements jsonSink.
func (a *jsonAnswer) pass(text []byte) error {
	if !a.begun {
		if err := a.hold(0); err != nil {
			return err
		}
		a.begun = true
		setBodyHeaders(a.w.Header(), a.contentType)
		a.w.WriteHeader(a.status)
	}
	if a.w.(*recorder).head {
		return errNoBody
	}
	return writePieces(a.w, text)
}

// cutOff ends an answer of which a part was written, so that nobody takes the part for
// the whole.
func (w *recorder) cutOff(err error) {
	level := slog.LevelError
	if w.gone {
		level = slog.LevelDebug
	}
	w.surface.log.Log(context.Background(), level, "an answer was cut off", "request_id", w.requestID, "error", err)
	panic(http.ErrAbortHandler)
}

// parsedMemory is about how much memory parsing a template takes, per byte of its text.
const parsedMemory = 8

// errNoBody ends an answer to a HEAD request after its headers.
var errNoBody = errors.New("no body is wanted")

// writePieces writes a text in pieces, so that a slow reader has time for each.
func writePieces(w http.ResponseWriter, text []byte) error {
	for piece := range slices.Chunk(text, jsonPiece) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// noStore tells caches not to keep an answer, which is true only now.
var noStore = []string{"no-store"}

func setBodyHeaders(h http.Header, contentType string) {
	h["Content-Type"] = []string{contentType}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = noStore
	}
}

// writeText writes a text, which is in memory anyway. A long one takes room all the same,
// so that its readers can be cut off if they are too slow.
func writeText(w http.ResponseWriter, v textReply) error {
	if r, ok := w.(*recorder); ok && lengthOf(v.body) > copiedBody {
		if err := r.grow(jsonPiece, r.share.room.limit/4*3); err != nil {
			return err
		}
	}
	writeBody(w, http.StatusOK, v.contentType, v.body...)
	return nil
}

// stateTimeout bounds how long the transfer of a whole state takes, in real time.
const stateTimeout = 10 * time.Minute

// sendState answers with the whole state at the present moment, once that is durable. The
// store goes on meanwhile: the document is made, as its reader takes it, from what was taken
// at first. A store that has become read-only gives all that it has, which may include the
// changes whose outcome is unknown.
func (s *surface) sendState(w http.ResponseWriter, r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), stateTimeout)
	defer cancel()
	store, rec := s.svc.store, w.(*recorder)
	if err := rec.hold(4 * lineBatchBytes); err != nil {
		return nil, err
	}
	cut := store.cutState(s.svc.clock.now())
	if err := store.wait(ctx, cut.seq); err != nil && store.status().writable {
		return nil, err
	}
	setBodyHeaders(w.Header(), jsonType)
	if rec.head {
		return written{}, nil
	}
	if err := store.exportState(&writerWithin{ctx, w}, cut); err != nil {
		rec.gone = rec.gone || ctx.Err() != nil
		rec.cutOff(err)
	}
	return written{}, nil
}

// writerWithin writes until a context ends, however slowly its reader takes the text.
type writerWithin struct {
	ctx context.Context
	w   io.Writer
}

func (w *writerWithin) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

func lengthOf(parts [][]byte) (n int) {
	for _, p := range parts {
		n += len(p)
	}
	return n
}

func writeBody(w http.ResponseWriter, status int, contentType string, parts ...[]byte) {
	h := w.Header()
	setBodyHeaders(h, contentType)
	h["Content-Length"] = []string{strconv.Itoa(lengthOf(parts))}
	w.WriteHeader(status)
	for _, p := range parts {
		if writePieces(w, p) != nil {
			return // the client went away
		}
	}
}

// Compressed answers. A long answer is compressed while it is sent; an event stream never is. Nor is
// the answer to a change: a worker that asks for gzip by default, as net/http does, would pay for it with
// every batch.

const (
	gzipFrom   = 1 << 10    // bytes; shorter answers are sent as they are
	gzipMemory = 1200 << 10 // that compressing takes, about
	gzipSuffix = "-gzip"    // of the entity tags of compressed answers
)

var gzipWriters = sync.Pool{New: func() any { return newGzipWriter() }}

func newGzipWriter() *gzip.Writer {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is valid
	}
	return w
}

// gzipBody compresses the body of an answer.
type gzipBody struct {
	to  *recorder
	zip *gzip.Writer
	out []byte // compressed, and not yet sent
}

// beginGzip compresses the body that follows if the client asks for it, and it is of a kind
// that gets shorter. A long answer is not compressed when there is no room for that.
func (w *recorder) beginGzip() {
	h := w.Header()
	n := -1 // unknown
	if given := h["Content-Length"]; given != nil {
		n, _ = strconv.Atoi(given[0])
	}
	kind := h["Content-Type"]
	short := n >= 0 && n < gzipFrom
	switch {
	case w.status == http.StatusNotModified: // as the whole answer has it
	case w.change || kind == nil || !compressible(kind[0]) || h["Content-Range"] != nil || w.status/100 == 3 || short && h["Etag"] == nil:
		return
	}
	h["Vary"] = append(h["Vary"], "Accept-Encoding")
	if w.status == http.StatusNotModified || short || w.head || !acceptsGzip(w.asked) || (n < 0 || n > jsonPiece) && !w.share.addCoding() {
		return
	}
	w.body = &gzipBody{to: w, zip: gzipWriters.Get().(*gzip.Writer)}
	w.body.zip.Reset(w.body)
	delete(h, "Content-Length")
	h["Content-Encoding"] = []string{"gzip"}
	if tag, strong := strings.CutSuffix(h.Get("Etag"), `"`); strong && tag[0] == '"' {
		h["Etag"] = []string{tag + gzipSuffix + `"`}
	}
}

// compressible reports whether bodies of a type get shorter.
func compressible(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return media == jsonType || strings.HasPrefix(media, "text/") && media != "text/event-stream" ||
		strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml") || media == openMetricsMedia
}

// acceptsGzip reports whether a client asks for gzip.
func acceptsGzip(asked http.Header) bool {
	given := asked["Accept-Encoding"]
	weight := max(acceptWeight(given, "gzip"), acceptWeight(given, "x-gzip"))
	if weight < 0 {
		weight = acceptWeight(given, "*")
	}
	return weight > 0 && weight >= acceptWeight(given, "identity")
}

// acceptWeight returns the weight that an Accept header gives to a name; -1 if it does not
// name it.
func acceptWeight(values []string, name string) float64 {
	weight := -1.0
	for _, value := range values {
		for element := range strings.SplitSeq(value, ",") {
			named, parameters, _ := strings.Cut(element, ";")
			if strings.EqualFold(strings.TrimSpace(named), name) {
				weight = max(weight, quality(parameters))
			}
		}
	}
	return weight
}

// quality returns the weight among parameters; 1 without a valid one.
func quality(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		if q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameter)), "q="); ok {
			if weight, err := strconv.ParseFloat(q, 64); err == nil {
				return min(max(weight, 0), 1)
			}
		}
	}
	return 1
}

// Write takes compressed bytes.
func (z *gzipBody) Write(p []byte) (int, error) {
	z.out = append(z.out, p...)
	return len(p), nil
}

// take compresses a piece, and sends what is complete.
func (z *gzipBody) take(piece []byte) (int, error) {
	if _, err := z.zip.Write(piece); err != nil || len(z.out) < jsonPiece {
		return len(piece), err
	}
	_, err := z.to.send(z.out)
	z.out = z.out[:0]
	return len(piece), err
}

// endGzip sends the rest of a compressed body.
func (w *recorder) endGzip() {
	if z := w.body; z != nil && !w.gone {
		z.zip.Close()
		gzipWriters.Put(z.zip)
		w.body = nil
		w.send(z.out)
	}
}

// isChange reports whether a request may change something.
func isChange(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead
}

// overload returns a refusal while requests come faster than they can be answered. Those
// that control the service are not refused.
func (s *surface) overload(r *http.Request, row servedRoute) error {
	if row.controls {
		return nil
	}
	return s.svc.load.refusal(isChange(r))
}

// Errors.

// failureForms gives each kind of failure its status and its names on the three
// surfaces.
var failureForms = [...]struct {
	status int
	code   string // on the orchestration role
	word   string // on the worker role; "" for an answer in the orchestration role's form
	mount  mountForm
}{
	internalFailure:   {500, "INTERNAL_ERROR", "internal_error", mountForm{kind: "InternalError"}},
	badRequest:        {400, "BAD_REQUEST", "invalid_request", mountForm{kind: "BadRequest"}},
	invalidUUID:       {400, "INVALID_UUID", "invalid_request", mountForm{kind: "BadRequest", code: "BAD_REQUEST"}},
	invalidJSON:       {400, "JSON_ERROR", "invalid_request", mountForm{kind: "BadRequest", code: "BAD_REQUEST"}},
	notFound:          {404, "NOT_FOUND", "not_found", mountForm{kind: "NotFound"}},
	namespaceNotFound: {404, "NOT_FOUND", "not_found", mountForm{kind: "NamespaceNotFound", code: "NAMESPACE_NOT_FOUND"}},
	templateNotFound:  {404, "NOT_FOUND", "template_not_found", mountForm{kind: "HandlerNotFound", code: "HANDLER_NOT_FOUND"}},
	taskMissing:       {404, "NOT_FOUND", "not_found", mountForm{kind: "TaskNotFound", code: "TASK_NOT_FOUND"}},
	stepMissing:       {404, "NOT_FOUND", "not_found", mountForm{kind: "StepNotFound", code: "STEP_NOT_FOUND"}},
	methodNotAllowed:  {405, "METHOD_NOT_ALLOWED", "method_not_allowed", mountForm{kind: "MethodNotAllowed"}},
	conflict:          {409, "CONFLICT", "conflict", mountForm{kind: "Conflict"}},
	invalidTransition: {400, "BAD_REQUEST", "invalid_request", mountForm{"InvalidTransition", "INVALID_TRANSITION", 409}},
	tooLarge:          {413, "PAYLOAD_TOO_LARGE", "payload_too_large", mountForm{kind: "PayloadTooLarge"}},
	unsupportedMedia:  {415, "UNSUPPORTED_MEDIA_TYPE", "unsupported_media_type", mountForm{kind: "UnsupportedMediaType"}},
	unsupportedCoding: {415, "UNSUPPORTED_MEDIA_TYPE", "unsupported_media_type", mountForm{kind: "UnsupportedMediaType"}},
	invalidFields:     {422, "VALIDATION_FAILED", "validation_failed", mountForm{kind: "ValidationError", code: "INVALID_TASK_CONFIG"}},
	unauthenticated:   {401, "AUTHENTICATION_FAILED", "", mountForm{kind: "AuthenticationError"}},
	forbidden:         {403, "AUTHORIZATION_FAILED", "", mountForm{kind: "AuthorizationError"}},
	unavailable:       {503, "SERVICE_UNAVAILABLE", "service_unavailable", mountForm{kind: "ServiceUnavailable"}},
	backpressure:      {503, "BACKPRESSURE", "backpressure", mountForm{kind: "ServiceUnavailable", code: "SERVICE_UNAVAILABLE"}},
	misdirected:       {421, "MISDIRECTED_REQUEST", "misdirected_request", mountForm{kind: "BadRequest", code: "BAD_REQUEST"}},
	notIdle:           {408, "NOT_IDLE", "not_idle", mountForm{kind: "ServiceUnavailable", code: "SERVICE_UNAVAILABLE"}},
	taskDropped:       {410, "TASK_DROPPED", "task_dropped", mountForm{kind: "TaskDropped"}},
	storeFull:         {503, "STORE_FULL", "store_full", mountForm{kind: "ServiceUnavailable", code: "SERVICE_UNAVAILABLE"}},
	overloaded:        {503, "OVERLOADED", "overloaded", mountForm{kind: "ServiceUnavailable", code: "SERVICE_UNAVAILABLE"}},
	taskMovedOn:       {412, "PRECONDITION_FAILED", "precondition_failed", mountForm{kind: "PreconditionFailed"}},
	unverified:        {422, "VERIFICATION_FAILED", "verification_failed", mountForm{kind: "ValidationError", code: "INVALID_TASK_CONFIG"}},
}

// mountForm is the form of a failure on the mount point. Code and status are those
// of the orchestration role unless they are set.
type mountForm struct {
	kind, code string
	status     int
}

func roleStatus(k failureKind) int { return failureForms[k].status }

func mountCode(k failureKind) string { return cmp.Or(failureForms[k].mount.code, failureForms[k].code) }

func mountStatus(k failureKind) int { return cmp.Or(failureForms[k].mount.status, roleStatus(k)) }

// writeError turns an error into a response.
func (s *surface) writeError(w http.ResponseWriter, r *http.Request, err error) {
	f, id := s.failureOf(w, r, err), w.(*recorder).requestID
	h := w.Header()
	setRefusalHeaders(h, f)
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retrySeconds(f)))
	}
	if f.kind == unsupportedCoding {
		h.Set("Accept-Encoding", "identity") // RFC 9110, section 12.5.3
	}
	if !f.existing.isZero() {
		h.Set("Location", s.taskPath(r, f.existing))
	}
	delete(h, "Etag") // of the answer that was not completed
	h["Cache-Control"] = noStore
	v := problemView{f, s.status(f.kind), id, s.name == "mount"}
	err = writeProblem(w, r, v, s.encode(f, id, s.svc.clock.now()))
	switch {
	case err == nil:
	case kindOf(err) == backpressure && f.kind != backpressure: // no room for so long an error
		s.writeError(w, r, err)
	default:
		s.log.Error("an error could not be encoded", "request_id", id, "error", err)
	}
}

// failureOf returns what the caller is told of an error. The log has the rest.
func (s *surface) failureOf(w http.ResponseWriter, r *http.Request, err error) *failure {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{message: "internal error", cause: err}
		if errors.Is(err, context.Canceled) {
			f = failf(unavailable, "the request was cancelled")
		}
	}
	if f.kind == internalFailure {
		s.log.Error("a request failed", "request_id", w.(*recorder).requestID, "method", r.Method, "path", r.URL.Path,
			"error", f.cause)
		f.message = "internal error"
	}
	if f.retryAfter == 0 && f.kind == unavailable {
		f.retryAfter = time.Second
	}
	return f
}

func retrySeconds(f *failure) int { return max(int((f.retryAfter+time.Second-1)/time.Second), 1) }

// errorView is the body of an error of the orchestration role.
type errorView struct {
	Error struct {
		Code              string        `json:"code"`
		Message           string        `json:"message"`
		Details           inputProblems `json:"details,omitempty"`
		RequestID         string        `json:"request_id,omitempty"`
		RetryAfterSeconds int           `json:"retry_after_seconds,omitempty"`
	} `json:"error"`
}

func orchestrationError(f *failure, requestID string, _ instant) any {
	v := newErrorView(f, requestID)
	if f.extra.name != "" {
		return v.with(f.extra)
	}
	return v
}

func newErrorView(f *failure, requestID string) *errorView {
	v := &errorView{}
	v.Error.Code = failureForms[f.kind].code
	v.Error.Message = f.message
	v.Error.Details = f.details
	v.Error.RequestID = requestID
	if f.retryAfter > 0 {
		v.Error.RetryAfterSeconds = retrySeconds(f)
	}
	return v
}

// with returns the body with one more member at the end of the error.
func (v *errorView) with(m errorMember) any {
	var b bytes.Buffer
	if encodeJSON(&b, v.Error) != nil {
		return v
	}
	b.Truncate(b.Len() - len("}\n"))
	fmt.Fprintf(&b, ",%q:", m.name)
	if encodeJSON(&b, m.value) != nil {
		return v
	}
	b.WriteByte('}')
	return map[string]json.RawMessage{"error": b.Bytes()}
}

// problemMedia is the media type of problem details, which callers may ask for instead.
const problemMedia = "application/problem+json"

// problemView is an error as problem details (RFC 9457).
type problemView struct {
	*failure
	status    int
	requestID string
	mounted   bool // on the mount point, whose codes it has
}

// writeProblem writes an error as problem details to those who ask for them, and as usual to
// others.
func writeProblem(w http.ResponseWriter, r *http.Request, v problemView, usual any) error {
	if acceptWeight(r.Header["Accept"], problemMedia) > 0 {
		return writeJSONAs(w, v.status, problemMedia, v)
	}
	return writeJSON(w, v.status, usual)
}

func (v problemView) writeJSON(o *jsonWriter) {
	code := failureForms[v.kind].code
	if v.mounted {
		code = mountCode(v.kind)
	}
	o.b = append(o.b, '{')
	o.text("type", "urn:stepwell:problem:"+strings.ToLower(strings.ReplaceAll(code, "_", "-")))
	o.text("title", http.StatusText(v.status))
	o.number("status", v.status)
	o.text("detail", v.message)
	o.text("code", code)
	o.text("request_id", v.requestID)
	if v.retryAfter > 0 {
		o.number("retry_after_seconds", retrySeconds(v.failure))
	}
	if len(v.details) > 0 {
		o.name("errors")
		o.value(v.details)
	}
	if v.extra.name != "" {
		o.name(v.extra.name)
		o.value(v.extra.value)
	}
	o.b = append(o.b, '}')
}

// workerErrorView is the body of an error of the worker role.
type workerErrorView struct {
	Error     string    `json:"error"`
	Message   string    `json:"message"`
	Timestamp zonedTime `json:"timestamp"`
	RequestID string    `json:"request_id"`
}

// workerError returns the body of an error of the worker role. 401 and 403 have no
// word and take the orchestration role's form.
func workerError(f *failure, requestID string, now instant) any {
	word := failureForms[f.kind].word
	if word == "" {
		return orchestrationError(f, requestID, now)
	}
	return workerErrorView{word, f.message, zonedTime(now), requestID}
}

// The room for answers. What an answer holds until its reader has taken it is counted:
// buffers, and copies of large tasks. Very short answers, which net/http copies, are
// not. Making long answers takes turns, so that
// they leave processor time for others.

const (
	stalledAfter   = time.Second      // an answer that waits longer for its reader may be cut to make room
	answerPatience = 10 * time.Second // how long a reader may take for a piece
	roomPatience   = 2 * time.Second  // how long a request waits for room
	maxRoomWaiters = 64               // requests that wait; further ones are refused at once
)

// answerRoom bounds what the answers of a process hold.
type answerRoom struct {
	limit int           // bytes; the last quarter is for short answers
	turns chan struct{} // holds a token for each long answer that is being made

	mu      sync.Mutex
	taken   int // bytes; guarded by mu, like all below
	shares  map[*answerShare]bool
	waiting int
	freed   chan struct{} // closed when room becomes free
	cut     uint64        // answers cut off because their readers were too slow
	refused uint64        // requests refused for lack of room
}

func newAnswerRoom(limit int64) *answerRoom {
	return &answerRoom{
		limit: int(limit), turns: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1)),
		shares: map[*answerShare]bool{}, freed: make(chan struct{}),
	}
}

// answerShare is the part of the room that one request holds.
type answerShare struct {
	room *answerRoom
	w    http.ResponseWriter
	turn bool // it holds one of the turns

	coding int // bytes that compressing the answer takes

	bytes int     // guarded by the room's mu, like all below
	since instant // when the write that goes on began; 0 for none
	cut   bool
}

// holdEach makes sure that the request has room for a list of n elements, unless it is
// short.
func (w *recorder) holdEach(n, bytes int) error {
	if n*bytes < smallCopy {
		return nil
	}
	return w.hold(n * bytes)
}

// holdTemplates makes sure that the request has room for a list of the templates.
func (s *surface) holdTemplates(w http.ResponseWriter) error {
	return w.(*recorder).holdEach(len(s.svc.templates.registry().all()), 256)
}

// hold makes sure that a long answer has room for n bytes besides streamMemory, and
// waits a little for it; then it waits for a turn.
func (w *recorder) hold(n int) error {
	s := &w.share
	most := s.room.limit / 4 * 3
	s.endTurn()
	err := w.grow(min(n+streamMemory+s.coding, most), most)
	if err == nil {
		s.takeTurn()
	}
	return err
}

// holdShort makes sure that a short answer has room for n bytes, and waits a little
// for it.
func (w *recorder) holdShort(n int) error { return w.grow(n, w.share.room.limit) }

// grow enlarges the share to n bytes if all have most then. A request that gets no room
// is the last on its connection.
func (w *recorder) grow(n, most int) error {
	s, r := &w.share, w.share.room
	r.mu.Lock()
	defer r.mu.Unlock()
	for until := realNow().add(roomPatience); s.bytes < n && r.taken+n-s.bytes > most; {
		r.cutStalled(r.taken + n - s.bytes - most)
		if r.waiting >= maxRoomWaiters || realNow() >= until {
			r.refused++
			w.Header().Set("Connection", "close")
			return &failure{kind: backpressure, retryAfter: time.Second,
				message: "the answers under way hold as much memory as web.max_answer_bytes allows"}
		}
		r.await()
	}
	if n > s.bytes {
		r.taken += n - s.bytes
		s.bytes = n
		r.shares[s] = true
	}
	return nil
}

// addCoding takes memory for compressing the answer, if there is room for it now.
func (s *answerShare) addCoding() bool {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken+gzipMemory > r.limit/4*3 {
		return false
	}
	r.taken += gzipMemory
	s.bytes += gzipMemory
	s.coding = gzipMemory
	r.shares[s] = true
	return true
}

// await waits until room becomes free, or it is time to look for stalled answers again.
func (r *answerRoom) await() {
	freed := r.freed
	r.waiting++
	r.mu.Unlock()
	receiveWithin(freed, stalledAfter/10)
	r.mu.Lock()
	r.waiting--
}

// cutStalled cuts answers that do not move, the longest stalled ones first, until they
// will free n bytes.
func (r *answerRoom) cutStalled(n int) {
	var stalled []*answerShare
	now := realNow()
	for s := range r.shares {
		switch {
		case s.cut:
			n -= s.bytes
		case s.since != 0 && now.sub(s.since) >= stalledAfter:
			stalled = append(stalled, s)
		}
	}
	slices.SortFunc(stalled, func(a, b *answerShare) int { return cmp.Compare(a.since, b.since) })
	for _, s := range stalled {
		if n <= 0 {
			return
		}
		n -= s.bytes
		s.cut = true
		setWriteDeadline(s.w, -time.Second)
	}
}

// takeTurn waits for a turn to make a part of a long answer.
func (s *answerShare) takeTurn() {
	if !s.turn {
		s.room.turns <- struct{}{}
		s.turn = true
	}
}

func (s *answerShare) endTurn() {
	if s.turn {
		<-s.room.turns
		s.turn = false
	}
}

// release gives the share back.
func (s *answerShare) release() {
	s.endTurn()
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.bytes == 0 {
		return
	}
	delete(r.shares, s)
	r.taken -= s.bytes
	s.bytes = 0
	if r.waiting > 0 {
		close(r.freed)
		r.freed = make(chan struct{})
	}
}

// write writes one piece, which the reader must take in time.
func (s *answerShare) write(piece []byte) (int, error) {
	if s.turn {
		s.endTurn()
		defer s.takeTurn()
	}
	s.begin()
	n, err := s.w.Write(piece)
	s.end(err)
	return n, err
}

// begin notes that a write begins.
func (s *answerShare) begin() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.since = realNow()
	if !s.cut {
		setWriteDeadline(s.w, answerPatience)
	}
}

// end notes that the write has ended.
func (s *answerShare) end(err error) {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.since = 0
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.room.cut++
	}
}

// setWriteDeadline gives the writes to a connection some more time. A test's recorder
// has no deadlines.
func setWriteDeadline(w http.ResponseWriter, d time.Duration) {
	if w, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		w.SetWriteDeadline(realDeadline(d))
	}
}
