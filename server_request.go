package main

// Reading requests: bodies, queries and paths, waiting for a task and creating one, and what
// the caller knows of a task already (entity tags, If-Match).

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"math"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
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
	if len(bytes.TrimSpace(body)) == 0 && rules.optional {
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

// requestBody is the body of a request. Bodies together may take so much memory.
type requestBody struct {
	io.ReadCloser
	conn   *connection
	memory *bodyMemory
	most   int64 // bytes
	ended  bool  // it was read to its end
}

func (s *surface) newRequestBody(w http.ResponseWriter, r *http.Request, limit int64) *requestBody {
	b := &requestBody{
		ReadCloser: http.MaxBytesReader(w, r.Body, limit), conn: connectionOf(r), memory: &s.svc.quotas.bodies, most: limit,
	}
	if r.ContentLength >= 0 {
		b.most = r.ContentLength
	}
	if limit > s.maxBody { // of a route that takes a whole state
		b.memory = &bodyMemory{quota: quota{most: limit}}
	}
	return b
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.conn.waits(true)
	defer b.conn.waits(false)
	n, err := b.ReadCloser.Read(p)
	b.ended = err == io.EOF
	return n, err
}

// How long a body waits for memory, how often it looks for some, and how long a body may be on
// its way before it loses its memory to one that waits.
const (
	memoryPatience = 5 * time.Second
	memoryInterval = 5 * time.Millisecond
	bodyPatience   = time.Second
)

// reserve takes memory for the whole body, if need be that of bodies that have been on their
// way for long: their connections are closed.
func (b *requestBody) reserve(ctx context.Context) error {
	b.conn.bodySince.Store(int64(realNow()))
	if !b.memory.take(b.most) {
		if err := b.await(ctx); err != nil {
			return err
		}
	}
	b.conn.body.Store(b.most)
	return nil
}

// await is reserve once there is not enough left.
func (b *requestBody) await(ctx context.Context) error {
	b.conn.waits(true)
	defer b.conn.waits(false)
	ctx, cancel := context.WithTimeout(ctx, memoryPatience)
	defer cancel()
	select {
	case b.memory.turn <- struct{}{}:
		defer func() { <-b.memory.turn }()
	case <-ctx.Done():
	}
	for !b.memory.take(b.most) {
		if ctx.Err() != nil {
			return b.memory.refuse("other bodies take all the memory that web.max_received_bytes allows")
		}
		if !b.conn.all.closeWaiting(b.overdue) {
			receiveWithin(ctx.Done(), memoryInterval)
		}
	}
	return nil
}

// overdue takes the memory of another body if that has been on its way for long.
func (b *requestBody) overdue(c *connection) bool {
	return realNow().sub(instant(c.bodySince.Load())) > bodyPatience && b.memory.regain(&c.body)
}

// free gives the memory back, unless others have taken it.
func (b *requestBody) free() { b.memory.regain(&b.conn.body) }

// Memory for a body: its first bytes do not count; the rest comes in chunks, which are used
// again, so that bodies that never end leave no garbage.
const (
	bodyFirst = 1 << 10
	bodyChunk = 16 << 10
)

var bodyChunks = sync.Pool{New: func() any { return new([bodyChunk]byte) }}

// readAll reads the body of a request. Its memory grows with what came, whatever length
// was announced.
func readAll(r *http.Request) (body []byte, err error) {
	var chunks []*[bodyChunk]byte
	defer func() {
		for _, c := range chunks {
			bodyChunks.Put(c)
		}
	}()
	room := make([]byte, min(max(r.ContentLength, bytes.MinRead), bodyFirst))
	first, size := room, 0
	for {
		n, err := r.Body.Read(room)
		size, room = size+n, room[n:]
		if err == io.EOF {
			return joinBody(first, chunks, size), nil
		}
		if b, ok := r.Body.(*requestBody); ok && err == nil && len(room) == 0 && chunks == nil {
			err = b.reserve(r.Context())
		}
		if err != nil {
			return nil, err
		}
		if len(room) == 0 {
			chunks = append(chunks, bodyChunks.Get().(*[bodyChunk]byte))
			room = chunks[len(chunks)-1][:]
		}
	}
}

// joinBody returns a body of some size that was read into its first bytes and chunks.
func joinBody(first []byte, chunks []*[bodyChunk]byte, size int) []byte {
	if size <= len(first) {
		return first[:size]
	}
	body := append(make([]byte, 0, size), first...)
	for _, c := range chunks {
		body = append(body, c[:min(bodyChunk, size-len(body))]...)
	}
	return body
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

// bodyReader reads a body and keeps the error that ended it.
type bodyReader struct {
	body io.Reader
	err  error // nil at the end of the body
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// extendReading extends the read deadline for a body that takes long.
func extendReading(w http.ResponseWriter, by time.Duration) {
	http.NewResponseController(w).SetReadDeadline(realDeadline(by)) // a test's recorder has none
}

// extendWriting extends the write deadline for an answer that takes long.
func extendWriting(w http.ResponseWriter, by time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(realDeadline(by + requestTimeout)) // a test's recorder has none
}

// holdOpen extends the deadlines of the connection for an answer after d, and counts the request
// as waiting until release is called.
func (s *surface) holdOpen(w http.ResponseWriter, r *http.Request, d time.Duration) (release func(), err error) {
	q := &s.svc.quotas.waiting
	if !q.take(1) {
		return nil, q.refuse("%d requests wait already, as many as web.max_waiting_requests allows", q.most)
	}
	if b, ok := r.Body.(*requestBody); ok {
		b.free() // nobody needs it during the wait
	}
	extendReading(w, d+2*requestTimeout)
	extendWriting(w, d+requestTimeout)
	return func() { q.give(1) }, nil
}

// Queries and paths.

// query is the parsed query of a request. Its readers keep the first error. A blank
// parameter counts as absent.
type query struct {
	values url.Values
	known  []string // the parameters that were read
	err    error
}

func queryOf(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &query{err: failf(badRequest, "the query is malformed: %v", err)}
	}
	return &query{values: values}
}

// text returns a parameter, or "" if it is absent or blank. It may be given only once.
func (q *query) text(name string) (text string) {
	if len(q.values) == 0 {
		return ""
	}
	q.known = append(q.known, name)
	for _, value := range q.values[name] {
		switch {
		case strings.TrimSpace(value) == "":
		case text != "":
			q.refuse("%s is given twice", name)
		default:
			text = value
		}
	}
	return text
}

// refuse records the first error.
func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = failf(badRequest, format, args...)
	}
}

// done returns the first error, after everything was read. It refuses a parameter with
// nearly the name of one that was read; clients may send others.
func (q *query) done() error {
	if len(q.values) == 0 { // as of most requests
		return q.err
	}
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if near := q.meant(name); near != "" {
			q.refuse("unknown query parameter %.60q; did you mean %s?", name, near)
		}
	}
	return q.err
}

// only is done for a route that no other service has: it refuses every parameter that
// was not read.
func (q *query) only() error {
	q.done()
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(q.known, name) {
			q.refuse("unknown query parameter %.60q; want %s", name, cmp.Or(anyOf(q.known), "none"))
		}
	}
	return q.err
}

// meant returns the parameter that was probably meant by one that was not read, or "".
func (q *query) meant(name string) string {
	if slices.Contains(q.known, name) {
		return ""
	}
	return nearestWord(strings.ToLower(name), q.known, typoLimit(name))
}

// number reads an integer from lo to hi. If it is absent or blank, number returns
// standard.
func (q *query) number(name string, standard, lo, hi int) int {
	s := q.text(name)
	if s == "" {
		return standard
	}
	n, ok := queryInt(s)
	if !ok || n < int64(lo) || n > int64(hi) {
		q.refuse("%s must be an integer from %d to %d, not %.60q", name, lo, hi, s)
	}
	return int(n)
}

// queryInt returns the integer that a parameter says: in digits, or in any way in which
// a body may say it, such as 5.0.
func queryInt(s string) (int64, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	raw := []byte(s)
	if checkJSON(raw) != nil {
		return 0, false
	}
	return jsonInt(raw)
}

// flag reads true or false. If it is absent or blank, flag returns false.
func (q *query) flag(name string) bool {
	s := q.text(name)
	if s != "" && s != "true" && s != "false" {
		q.refuse("%s must be true or false, not %.60q", name, s)
	}
	return s == "true"
}

// queryWord reads a parameter that is one of some words. It returns nil if the
// parameter is absent or blank.
func queryWord[T any](q *query, name string, parse func(string) (T, bool), words []string) *T {
	word := q.text(name)
	if word == "" {
		return nil
	}
	v, ok := parse(word)
	if !ok {
		q.refuse("%s: %.60q is none of %s", name, word, strings.Join(words, ", "))
	}
	return &v
}

// stateWords are the words that filteredState knows.
var stateWords = slices.Concat(taskStateNames[:], []string{"in_progress", "completed"})

// filteredState reads a state in a filter. Existing clients say in_progress and
// completed for two of them.
func filteredState(word string) (taskState, bool) {
	switch word {
	case "in_progress":
		return taskStepsInProcess, true
	case "completed":
		return taskComplete, true
	}
	return parseTaskState(word)
}

// pathID returns the id in a parameter of the path.
func pathID(r *http.Request, name string) (uuid, error) {
	return idNamed(name, r.PathValue(name))
}

// idNamed reads the id that a text under some name must be.
func idNamed(name, s string) (uuid, error) {
	id, ok := parseUUID(s)
	if !ok {
		return id, failf(invalidUUID, "%s: %.60q is not a UUID", name, s)
	}
	return id, nil
}

// byID returns the result of f for the id in a parameter of the path.
func byID[T any](r *http.Request, name string, f func(id uuid) (T, error)) (v T, err error) {
	id, err := pathID(r, name)
	if err != nil {
		return v, err
	}
	return f(id)
}

// heldByID is byID for an f that asks for memory and reads the task with the id.
func heldByID[T any](
	w http.ResponseWriter, r *http.Request, name string, f func(id uuid, by holder) (T, error),
) (T, error) {
	return byID(r, name, func(id uuid) (T, error) {
		rec := w.(*recorder)
		v, err := f(id, rec)
		return v, rec.surface.shown(r, id, err)
	})
}

// shown returns the error of a read of a task, or nil, once everything that the answer
// tells of the task is on disk.
func (s *surface) shown(r *http.Request, id uuid, err error) error {
	if refusedForNow(err) {
		return err
	}
	return cmp.Or(s.svc.store.waitTask(r.Context(), id), err)
}

// explanation explains the task that a parameter of the path names, with the messages of
// errors for callers who may read steps.
func (s *surface) explanation(w http.ResponseWriter, r *http.Request, name string) (*taskExplanation, error) {
	return heldByID(w, r, name, func(id uuid, by holder) (*taskExplanation, error) {
		return s.svc.engine.explain(id, by, mayReadResults(r.Context()))
	})
}

// stepPath returns the ids of a step and its task in the path.
func stepPath(r *http.Request, taskName, stepName string) (taskID, stepID uuid, err error) {
	if taskID, err = pathID(r, taskName); err == nil {
		stepID, err = pathID(r, stepName)
	}
	return taskID, stepID, err
}

// taskIn returns the task that a parameter of the path names.
func (s *surface) taskIn(w http.ResponseWriter, r *http.Request, name string) (*task, error) {
	return heldByID(w, r, name, s.svc.store.viewWithin)
}

// cancelIn cancels the task that a parameter of the path names, and returns it.
func (s *surface) cancelIn(r *http.Request, name string) (*task, error) {
	return byID(r, name, func(id uuid) (*task, error) {
		who, err := s.actorOf(r)
		q := queryOf(r)
		if who.reason = q.text("reason"); utf8.RuneCountInString(who.reason) > maxReasonLength || !utf8.ValidString(who.reason) {
			q.refuse("reason must have at most %d characters of UTF-8", maxReasonLength)
		}
		if err = cmp.Or(err, q.done()); err != nil {
			return nil, err
		}
		return s.svc.operator.cancelTask(r.Context(), id, who)
	})
}

// exactState reads the name of a state in a filter.
func exactState(word string) (stateSet, bool) {
	state, ok := parseTaskState(word)
	return setOf(state), ok
}

// contextRight reports whether the answer has the contexts of tasks: unless the caller
// may not see them, or says context=false.
func (q *query) contextRight(r *http.Request) contextRight {
	switch wanted := q.text("context") == "" || q.flag("context"); {
	case !mayReadContexts(r.Context()):
		return contextRedacted
	case !wanted:
		return contextOmitted
	}
	return contextShown
}

// stepIn returns the step that the path names, with its task.
func (s *surface) stepIn(
	w http.ResponseWriter, r *http.Request, taskName, stepName string,
) (*task, int, error) {
	taskID, stepID, err := stepPath(r, taskName, stepName)
	if err != nil {
		return nil, 0, err
	}
	t, err := s.svc.store.viewWithin(taskID, w.(*recorder))
	if err = s.shown(r, taskID, err); err != nil {
		return nil, 0, err
	}
	i, ok := t.stepIndex(stepID)
	if !ok {
		return nil, 0, stepNotFound(taskID, stepID)
	}
	return t, i, nil
}

// templateIn returns the registered template that the path names, in this version.
func (s *surface) templateIn(w http.ResponseWriter, r *http.Request, version string) (*template, error) {
	t, err := s.svc.templates.find(r.PathValue("namespace"), r.PathValue("name"), version)
	if err == nil {
		err = w.(*recorder).holdEach(len(t.steps), 1024)
	}
	return t, err
}

// Waiting for a task.

// Limits of a wait. The longest is long because a wait costs only memory.
const (
	standardWait = 30 * time.Second
	maxWait      = time.Hour
)

// wait reads a duration from 0 to maxWait. given is false if it is absent or blank.
func (q *query) wait(name string) (d time.Duration, given bool) {
	s := q.text(name)
	if s == "" {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxWait {
		q.refuse("%s must be a duration like 30s or 1m30s, from 0s to 1h, not %.60q", name, s)
	}
	return d, true
}

// awaitedStates reads the parameter wait: terminal or one state, or no state if it
// is absent or blank.
func (q *query) awaitedStates() stateSet {
	parse := func(word string) (stateSet, bool) {
		if word == "terminal" {
			return terminalStates, true
		}
		state, ok := filteredState(word)
		return setOf(state), ok
	}
	if states := queryWord(q, "wait", parse, slices.Concat([]string{"terminal"}, stateWords)); states != nil {
		return *states
	}
	return 0
}

// awaited returns the task that the path names, once it is in a state that the
// query waits for, if any.
func (s *surface) awaited(w http.ResponseWriter, r *http.Request, q *query, name string) (*task, error) {
	wants := q.awaitedStates()
	limit, given := q.wait("timeout")
	if !given {
		limit = standardWait
	} else if wants == 0 {
		q.refuse("timeout belongs to wait, which is missing")
	}
	if err := q.done(); err != nil {
		return nil, err
	}
	if wants == 0 {
		return s.taskIn(w, r, name)
	}
	valid := s.validFor(r)
	return byID(r, name, func(id uuid) (*task, error) {
		release, err := s.holdOpen(w, r, limit)
		if err != nil {
			return nil, err
		}
		defer release()
		t, end, err := s.svc.tasks.await(r.Context(), id, wants, min(limit, valid))
		if err == nil {
			setWaitEnd(w, end, limit > valid)
		}
		return t, err
	})
}

// setWaitEnd sets a header with the reason if a wait ended without success. The limit
// of a wait may have been that of the caller's credential.
func setWaitEnd(w http.ResponseWriter, end waitEnd, expires bool) {
	if end == waitTimedOut && expires {
		end = waitExpired
	}
	if end != waitReached {
		w.Header()["X-Stepwell-Wait"] = []string{string(end)}
	}
}

// validFor returns for how long the caller's credential is valid, at least 0: no wait
// takes longer.
func (s *surface) validFor(r *http.Request) time.Duration {
	sc := securityOf(r.Context())
	if sc == nil || sc.expiry == 0 {
		return math.MaxInt64
	}
	left := max(sc.expiry-s.credentialTime(servedRoute{}), 0)
	return time.Duration(min(left, math.MaxInt64/1000)) * time.Microsecond
}

// Creating a task.

// submit creates the task that a body describes, and answers with a view of it: 202
// if the caller waits for an end that has not come, else 201. An Idempotency-Key
// holds for one route.
func (s *surface) submit(
	w http.ResponseWriter, r *http.Request, route string, body []byte, view func(t *task) any,
) (any, error) {
	b, err := readSubmission(r, route, body)
	if err != nil {
		return nil, err
	}
	limit, valid := b.limit, s.validFor(r)
	if b.waits {
		release, err := s.holdOpen(w, r, limit)
		if err != nil {
			return nil, err
		}
		defer release()
		b.limit = min(limit, valid)
	}
	done, err := s.svc.tasks.submit(r.Context(), b)
	if err != nil {
		return nil, err
	}
	w.Header()["Location"] = []string{s.taskPath(r, done.task.id)}
	if done.replayed {
		w.Header()["Idempotency-Replayed"] = []string{"true"}
	}
	setWaitEnd(w, done.end, limit > valid)
	for _, p := range done.misfits {
		w.Header().Add("X-Stepwell-Warning", asciiText(p.String()))
	}
	w.Header()["Cache-Control"] = privately
	w.Header()["Etag"] = []string{s.taskTag(done.task, "", s.svc.clock.now())} // the creator sees all of it
	status := http.StatusCreated
	if done.end != waitReached {
		status = http.StatusAccepted
	}
	return reply{status, view(done.task)}, nil
}

// asciiText returns a text for a header.
func asciiText(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// readSubmission reads a request to create a task.
func readSubmission(r *http.Request, route string, body []byte) (b *submission, err error) {
	query := queryOf(r)
	b = &submission{mayRead: securityOf(r.Context()).may(permTasksRead)}
	b.limit, b.waits = query.wait("wait")
	if err := query.done(); err != nil {
		return nil, err
	}
	if b.request, err = requestMarkOf(r, route, body); err != nil {
		return nil, err
	}
	if b.taskRequest, err = parseTaskRequest(body); err != nil {
		return nil, err
	}
	b.traceparent, b.tracestate = traceContext(r.Header)
	b.subject = subjectOf(r.Context())
	return b, nil
}

// requestMarkOf returns the mark of a request with an Idempotency-Key, or an empty
// one without. The route is the same under every prefix; the body passed checkJSON.
func requestMarkOf(r *http.Request, route string, body []byte) (m requestMark, err error) {
	given := r.Header["Idempotency-Key"]
	if len(given) == 0 {
		return m, nil
	}
	if len(given) > 1 || !visible(given[0]) || len(given[0]) > maxReplayKey {
		return m, failf(badRequest, "the header Idempotency-Key must be given once, with 1 to %d visible characters", maxReplayKey)
	}
	m.key = hashOf([]byte(securityOf(r.Context()).identity()), []byte(route), []byte(given[0]))
	m.body = hashOf(canonicalJSON(nil, body))
	return m, nil
}

// visible reports whether s is not empty and has only visible ASCII characters.
func visible(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '!' || c > '~' })
}

// maxTracestate is the length up to which a tracestate is kept, in bytes.
const maxTracestate = 4096

// traceContext returns the W3C trace context of a request, or nothing if its traceparent is
// malformed.
func traceContext(h http.Header) (traceparent, tracestate string) {
	traceparent = saneTraceparent(h.Get("Traceparent"))
	if traceparent == "" {
		return "", ""
	}
	tracestate = strings.TrimSpace(strings.Join(h["Tracestate"], ","))
	if len(tracestate) > maxTracestate || strings.ContainsFunc(tracestate, func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }) {
		return traceparent, ""
	}
	return traceparent, tracestate
}

// saneTraceparent returns a W3C traceparent header, or "" if it is malformed.
func saneTraceparent(h string) string {
	const form = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"
	if len(h) < len(form) || len(h) > 256 || !visible(h) {
		return ""
	}
	for i := range form {
		if (h[i] == '-') != (form[i] == '-') || h[i] != '-' && unhex(h[i]) > 15 {
			return ""
		}
	}
	trace, span := h[3:35], h[36:52]
	if strings.EqualFold(h[:2], "ff") || strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return "" // they stand for none
	}
	return h
}

// taskPath returns the path of a task under the prefix that the caller used.
func taskPath(r *http.Request, id uuid) string {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		return "/api/v1/tasks/" + id.String()
	}
	return "/v1/tasks/" + id.String()
}

// Entity tags. That of a view of a task names the store, the sequence of the task's newest
// record, and what else the view depends on, so that it costs no look at the view.

// taskTag returns the tag of a view of a task at an instant. It differs by what is hidden from
// the caller, and, while steps wait for a retry, by how many of them are due.
func (s *surface) taskTag(t *task, hidden string, now instant) string {
	if t.counts[stepWaitingForRetry] > 0 {
		hidden += "." + strconv.Itoa(t.readySteps(now))
	}
	return s.versionTag(t.lastSeq, hidden)
}

// versionTag returns the tag of a version of a task.
func (s *surface) versionTag(seq uint64, more string) string {
	b := append(append(append(make([]byte, 0, 40), '"'), s.svc.store.mark()...), '-')
	return string(append(append(strconv.AppendUint(b, seq, 10), more...), '"'))
}

// hiddenFrom names what the views of tasks do not show to a caller.
func hiddenFrom(ctx context.Context) (hidden string) {
	if !mayReadContexts(ctx) {
		hidden = "c"
	}
	if !mayReadResults(ctx) {
		hidden += "r"
	}
	return hidden
}

// ofTask answers with a view of a task at an instant, or that the caller has it already.
func (s *surface) ofTask(w http.ResponseWriter, r *http.Request, t *task, now instant, view any) any {
	w.Header()["Cache-Control"] = privately
	return withTag(w, r, s.taskTag(t, hiddenFrom(r.Context()), now), view)
}

// privately lets the caller keep an answer, and ask each time whether it is still true.
var privately = []string{"private, no-cache"}

// withTag answers with a view that has this tag, or that the caller has it already.
func withTag(w http.ResponseWriter, r *http.Request, tag string, view any) any {
	h := w.Header()
	h["Etag"] = []string{tag}
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = []string{"no-cache"}
	}
	if !isChange(r) {
		if named := namedTag(r.Header["If-None-Match"], tag); named != "" {
			h["Etag"][0] = named
			return notModified{}
		}
	}
	return view
}

// contentTag returns the tag of a text that is not made for each request.
func contentTag(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:12]) + `"`
}

// weakTag returns the tag of views of templates with some hash, which may also tell the time or
// count look-ups.
func weakTag(hash string) string { return `W/"` + hash + `"` }

// namedTag returns the form of a tag that a header names, compressed or not, or "". Weak tags
// count as well.
func namedTag(values []string, tag string) string {
	for _, value := range values {
		for _, named := range splitList(value) {
			switch {
			case strings.HasSuffix(named, gzipSuffix+`"`) && opaqueTag(named) == opaqueTag(tag):
				return strings.TrimSuffix(tag, `"`) + gzipSuffix + `"`
			case named == "*" || opaqueTag(named) == opaqueTag(tag):
				return tag
			}
		}
	}
	return ""
}

// opaqueTag returns what identifies the view in a tag, compressed or not.
func opaqueTag(tag string) string {
	tag = strings.TrimSuffix(strings.TrimPrefix(tag, "W/"), `"`)
	return strings.TrimSuffix(tag, gzipSuffix)
}

// entityTagForm is the form of an entity tag, as in RFC 9110.
var entityTagForm = compiled(`^(W/)?"[\x21\x23-\x7e\x80-\xff]*"$`)

// seenVersions returns the versions of a task that If-Match names; nil for any. A weak tag
// never matches, nor does one of another store.
func (s *surface) seenVersions(r *http.Request) (taskVersions, error) {
	values := r.Header["If-Match"]
	if len(values) == 0 {
		return nil, nil
	}
	seen, tags := taskVersions{}, splitList(strings.Join(values, ","))
	for _, tag := range tags {
		if tag == "*" {
			return nil, nil
		}
		if !entityTagForm().MatchString(tag) {
			return nil, failf(badRequest, `the header If-Match must be * or a list of entity tags like "%s-7", not %.60q`, s.svc.store.mark(), tag)
		}
		if version, ok := strings.CutPrefix(tag, `"`+s.svc.store.mark()+"-"); ok {
			seq, _ := strconv.ParseUint(version[:len(version)-len(strings.TrimLeft(version, "0123456789"))], 10, 64)
			seen = append(seen, seq)
		}
	}
	if len(tags) == 0 {
		return nil, failf(badRequest, "the header If-Match is empty")
	}
	return seen, nil
}

// actorOf returns who sent a request that changes a task, and what they know of it.
func (s *surface) actorOf(r *http.Request) (taskActor, error) {
	seen, err := s.seenVersions(r)
	return taskActor{subject: subjectOf(r.Context()), seen: seen}, err
}
