package main

// Reading the bodies of requests: the memory that they take, and what they must be.

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
)

// Bodies.

// bodyRules say how the body of a request may differ from an ordinary JSON object.
type bodyRules struct {
	optional bool // it may be absent or null
	deeper   int  // how many levels deeper it may be than other JSON from outside
}

// readBody reads the body of a request, which must be one JSON object that passes
// checkJSON.
func readBody(r *http.Request) ([]byte, error) { return bodyRules{}.read(r) }

// read reads a body by these rules. It returns nil for a body that is absent.
func (rules bodyRules) read(r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 && rules.optional {
		return nil, nil
	}
	body, err := readAll(r)
	if err != nil {
		return nil, readFailure(err)
	}
	if len(body) > 0 { // a chunked body has no Content-Length
		if err := checkContentType(r); err != nil {
			return nil, err
		}
	}
	if body = unmarked(body); len(bytes.TrimSpace(body)) == 0 && rules.optional {
		return nil, nil
	}
	if err := checkDeepJSON(body, rules.deeper); err != nil {
		return nil, &failure{kind: invalidJSON, message: err.Error()}
	}
	body = bytes.TrimSpace(body)
	switch kind := jsonKind(body); {
	case kind == '{':
		return body, nil
	case kind == 'n' && rules.optional:
		return nil, nil
	}
	return nil, failf(badRequest, "the body must be a JSON object")
}

// requestBody is the body of a request. Except for its first bytes, it counts as memory for requests once it was read.
type requestBody struct {
	io.ReadCloser
	memory *quota
	held   int64   // bytes
	err    error   // of the latest Read: io.EOF once it was read to its end
	budget *budget // nil before anybody asks for it

	answer http.Header // to the request
}

// budgetOf returns the budget of a request, whose body was not replaced. The surface ends it.
func budgetOf(r *http.Request) *budget {
	b := r.Body.(*requestBody)
	if b.budget == nil {
		b.budget = newBudget(r.Context(), b.memory)
	}
	return b.budget
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.err = err
	return n, err
}

// grow takes memory for a body of a size.
func (b *requestBody) grow(size int) error {
	n := int64(size) - b.held
	if err := takeMemory(b.memory, n); err != nil {
		return err
	}
	b.held += n
	return nil
}

// free gives the memory back, and ends the budget.
func (b *requestBody) free() {
	b.memory.give(b.held)
	b.held = 0
	b.budget.end()
}

// readAll reads the body of a request.
func readAll(r *http.Request) (body []byte, err error) {
	grow := func(int) error { return nil }
	if b, ok := r.Body.(*requestBody); ok {
		grow = b.grow
	}
	return readChunks(r.Body, r.ContentLength, grow)
}

// readAs reads the body of a request with a parser.
func readAs[T any](r *http.Request, parse func(body []byte) (T, error)) (v T, err error) {
	body, err := readBody(r)
	if err != nil {
		return v, err
	}
	return parse(body)
}

// checkContentType requires the Content-Type of JSON and no content coding, unless there
// is no body.
func checkContentType(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	for _, codings := range r.Header["Content-Encoding"] {
		for _, coding := range splitList(codings) {
			if !strings.EqualFold(coding, "identity") {
				return failf(unsupportedCoding, "the body must have no Content-Encoding, not %.60q", coding)
			}
		}
	}
	if !isJSON(r.Header) {
		return failf(unsupportedMedia, "the body must be application/json, not %.100q", r.Header.Get("Content-Type"))
	}
	return nil
}

// isJSON reports whether Content-Type names JSON. A page of another origin cannot send that unless the
// answer to a preflight lets it.
func isJSON(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

func bodyTooLarge(limit int64) error {
	return failf(tooLarge, "the body is larger than the %d bytes allowed", limit)
}

func readFailure(err error) error {
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return bodyTooLarge(large.Limit)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return failf(badRequest, "the body is shorter than its Content-Length")
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return failf(badRequest, "the body did not arrive in time")
	}
	return &failure{kind: badRequest, message: "the body could not be read", cause: err}
}

// extendReading extends the read deadline for a body that takes long.
func extendReading(w *responseWriter, by time.Duration) {
	http.NewResponseController(w).SetReadDeadline(realDeadline(by)) // a test's recorder has none
}

// extendWriting extends the write deadline for an answer that takes long.
func extendWriting(w *responseWriter, by time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(realDeadline(by + requestTimeout)) // a test's recorder has none
}

// holdOpen extends the deadlines of the connection for an answer after d, and counts the request as waiting, no longer
// as at work, until release is called.
func (s *surface) holdOpen(w *responseWriter, r *http.Request, d time.Duration) (release func(), err error) {
	q := &s.svc.quotas.waiting
	if !q.take(1) {
		return nil, q.refuse("%d requests wait already, two thirds of web.max_connections", q.most)
	}
	if b, ok := r.Body.(*requestBody); ok {
		b.free() // nobody needs it during the wait
	}
	w.endWork()
	extendReading(w, d+2*requestTimeout)
	extendWriting(w, d+requestTimeout)
	return func() { q.give(1) }, nil
}

// actorOf returns who sent a request that changes a task, and which versions of it they have seen.
func (s *surface) actorOf(r *http.Request) (taskActor, error) {
	seen, err := s.seenVersions(r)
	return taskActor{subject: subjectOf(r.Context()), seen: seen}, err
}
