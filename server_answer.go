package main

// Writing answers: a short one at once, a long one in pieces, and the writer that handlers get.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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
	// noContent is status 204, without a body.
	noContent struct{}
	// notModified is status 304: the caller has the answer already.
	notModified struct{}
	// written is the answer of a handler that has written its response itself.
	written struct{}
)

// writeReply writes what a handler returned.
func writeReply(w *responseWriter, v any) error {
	switch v := v.(type) {
	case reply:
		return writeJSON(w, v.status, jsonType, v.body)
	case *packedText:
		v.write(w)
	case noContent:
		w.WriteHeader(http.StatusNoContent)
	case notModified:
		w.WriteHeader(http.StatusNotModified)
	case written:
	default:
		return writeJSON(w, http.StatusOK, jsonType, v)
	}
	return nil
}

const jsonType = "application/json"

// writeJSON writes v as JSON. An error can still be answered: once a part was written, the
// connection is cut instead, so that nobody takes the part for the whole.
func writeJSON(w *responseWriter, status int, contentType string, v any) error {
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
		w.cutOff(a.err)
	case a.err != nil:
		return fmt.Errorf("encoding the answer: %w", a.err)
	}
	// The buffer is in use until the reader has taken it, so it counts like that of a long answer.
	if len(a.b) > copiedBody {
		if err := w.hold(cap(a.b)); err != nil {
			return err
		}
	}
	writeBody(w, status, contentType, a.b)
	return nil
}

// copiedBody is up to how long a body net/http copies, so that nothing else is held while it is written.
const copiedBody = 3 << 10

// jsonAnswer is an answer while it is written: up to a piece is kept, and goes out with its
// length; a longer one goes out in pieces.
type jsonAnswer struct {
	jsonWriter
	w           *responseWriter
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
func (a *jsonAnswer) hold(n int) error { return a.w.hold(n + streamMemory) }

// streamMemory is the memory of a long answer, apart from copies of large tasks: for the piece that is written, and for
// the list of what is still to come.
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
	if a.w.head {
		return errNoBody
	}
	return writePieces(a.w, text)
}

// cutOff ends an answer of which a part was written, so that nobody takes the part for the whole.
func (w *responseWriter) cutOff(err error) {
	level := pick(w.gone, slog.LevelDebug, slog.LevelError)
	w.surface.log.Log(context.Background(), level, "an answer was cut off", "request_id", w.requestID, "error", err)
	panic(http.ErrAbortHandler)
}

// errNoBody ends an answer to a HEAD request after its headers.
var errNoBody = errors.New("no body is wanted")

// writePieces writes a text in pieces, so that a slow reader has time for each.
func writePieces(w *responseWriter, text []byte) error {
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

// stateTimeout bounds how long the transfer of a whole state takes, in real time.
const stateTimeout = 10 * time.Minute

// sendStateBytes is about how much memory an answer with a state takes besides what is cut.
const sendStateBytes = 4 << 20

// linesType is the type of lines of JSON objects.
const linesType = "application/jsonl"

// sendState answers with the whole state at the present moment, once that is durable. The store continues meanwhile:
// the lines are made while their reader receives them, from what was cut at the start.
func (s *surface) sendState(w *responseWriter, r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), stateTimeout)
	defer cancel()
	store := s.svc.store
	if err := w.hold(sendStateBytes); err != nil {
		return nil, err
	}
	cut := store.cut()
	if err := store.wait(r.Context(), cut.seq()); err != nil {
		return nil, err
	}
	setBodyHeaders(w.Header(), linesType)
	if w.head {
		return written{}, nil
	}
	if err := store.export(cut, &writerWithin{ctx, w}); err != nil {
		w.gone = w.gone || ctx.Err() != nil
		w.cutOff(err)
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

// writeBody writes a whole body. An error says that the client went away.
func writeBody(w *responseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	setBodyHeaders(h, contentType)
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	writePieces(w, body)
}

// responseWriter is what handlers write to. It keeps the status, and drops the mux's own answers.
type responseWriter struct {
	http.ResponseWriter
	surface   *surface
	conn      *connection
	arrived   time.Time
	requestID string
	caller    *securityContext // nil if the caller is not known
	watch     requestWatch     // nil without one
	head      bool             // the client wants no body
	asked     http.Header      // of the request
	sent      io.Reader        // the body of the request
	held      int64            // bytes of the memory for requests
	working   bool             // it counts as a request at work
	status    int
	matched   bool // a row matched, or writeUnmatched answers
	unmatched bool // writeUnmatched answered
	gone      bool // the client went away, or was too slow
	unread    bool // the request has a body that was not read to its end
}

func (s *surface) newResponseWriter(w http.ResponseWriter, r *http.Request) *responseWriter {
	return &responseWriter{ResponseWriter: w, surface: s, conn: connectionOf(r), arrived: time.Now(), requestID: requestID(r, s.svc.ids),
		unread: r.ContentLength != 0, head: r.Method == http.MethodHead, asked: r.Header, sent: r.Body}
}

func (w *responseWriter) WriteHeader(status int) {
	w.status = status
	if w.matched {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *responseWriter) Write(b []byte) (int, error) {
	if !w.matched {
		return len(b), nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if len(b) > copiedBody {
		setWriteDeadline(w.ResponseWriter, answerPatience)
	}
	n, err := w.ResponseWriter.Write(b)
	w.gone = w.gone || err != nil
	return n, err
}

// Unwrap implements what http.ResponseController looks for.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// beginWork counts a request as one at work, or returns why it is refused.
func (w *responseWriter) beginWork() error {
	q := &w.surface.svc.quotas.requests
	if w.working = q.take(1); !w.working {
		return q.refuse("%d requests are being served already", q.most)
	}
	return nil
}

// endWork ends that. A request that begins to wait, or an event stream, ends it early.
func (w *responseWriter) endWork() {
	if w.working {
		w.surface.svc.quotas.requests.give(1)
		w.working = false
	}
}

// hold makes sure that the request holds n bytes of the memory for requests, until release.
func (w *responseWriter) hold(n int) error {
	q := &w.surface.svc.quotas.memory
	// However long the answer is, it must be possible to get it.
	if more := min(int64(n), q.most/2) - w.held; more > 0 {
		if err := takeMemory(q, more); err != nil {
			return err
		}
		w.held += more
	}
	return nil
}

// holdEach is hold for a list of n elements, unless it is short.
func (w *responseWriter) holdEach(n, bytes int) error {
	if n*bytes < smallCopy {
		return nil
	}
	return w.hold(n * bytes)
}

// holdTemplates is hold for a list of the templates.
func (s *surface) holdTemplates(w *responseWriter) error {
	return w.holdEach(len(s.svc.templates.registry().sorted), 256)
}

// release gives back everything that the request holds.
func (w *responseWriter) release() {
	w.endWork()
	w.surface.svc.quotas.memory.give(w.held)
	w.held = 0
}

// answerPatience is how long a client may take to read a piece of an answer.
const answerPatience = 10 * time.Second

// setWriteDeadline gives the writes to a connection some more time. A test's recorder has no deadlines.
func setWriteDeadline(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(realDeadline(d))
}

// sendNow sends a part of an answer at once. Its reader must take it in time.
func (w *responseWriter) sendNow(text []byte) error {
	setWriteDeadline(w.ResponseWriter, answerPatience)
	_, err := w.Write(text)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	return err
}

// What a client that was refused may still send.
const (
	drainBytes = 16 << 20
	drainTime  = 10 * time.Second
)

// drain reads what the client still sends of a body that nobody wants. Many clients read an answer only once they have
// sent their request, and lose it if the connection is closed before that.
func (w *responseWriter) drain() {
	c := http.NewResponseController(w.ResponseWriter)
	if c.Flush() == nil && c.SetReadDeadline(realDeadline(drainTime)) == nil { // a test's recorder has no deadlines
		io.CopyN(io.Discard, w.sent, drainBytes)
	}
}

// zeroWeight matches the parameters by which a header refuses what it names (RFC 9110, 12.4.2).
var zeroWeight = compiled(`(?i)\bq=0(\.0*)?[ \t]*$`)

// accepts reports whether an Accept header names something without refusing it.
func accepts(values []string, name string) bool {
	return slices.ContainsFunc(splitList(strings.Join(values, ",")), func(element string) bool {
		named, parameters, _ := strings.Cut(element, ";")
		return strings.EqualFold(strings.TrimSpace(named), name) && !zeroWeight().MatchString(parameters)
	})
}

// Hints at what a request contains and the service does not know, although the caller may think that it does. A hint
// never refuses anything, since clients send all sorts of things.

const maxHints = 10 // in one answer

// hint adds a header Warning to the answer of a request, with the code for others than caches, as Kubernetes does it
// (RFC 7234, section 5.5). A newer RFC has no use for the header, and forbids none.
func hint(h http.Header, format string, args ...any) {
	if text := asciiText(fmt.Sprintf(format, args...)); len(h["Warning"]) < maxHints {
		h["Warning"] = append(h["Warning"], `299 - "`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)+`"`)
	}
}

// hintMisfits adds a hint for each place where a result, at a path of the request, does not fit its schema.
func hintMisfits(w *responseWriter, path string, found misfits) {
	for _, text := range found.texts(path) {
		hint(w.Header(), "%s", text)
	}
}

func hintTexts(h http.Header) (texts []string) {
	for _, value := range h["Warning"] {
		if text, ok := strings.CutPrefix(value, `299 - "`); ok && strings.HasSuffix(text, `"`) {
			texts = append(texts, strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(text[:len(text)-1]))
		}
	}
	return texts
}

func asciiText(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// hintsOf returns the headers of the answer to a request, for hints.
func hintsOf(r *http.Request) http.Header {
	if b, ok := r.Body.(*requestBody); ok {
		return b.answer
	}
	return http.Header{}
}
