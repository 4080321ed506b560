package main

// Reading the bodies of requests: the memory that they take, and what they must be.

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bodies.

// bodyRules say how the body of a request may differ from an ordinary JSON object.
type bodyRules struct {
	optional bool // it may be absent or null
	deeper   int  // how many levels deeper it may be than other JSON from outside
}

// readBody reads the body of a request, which must be one JSON object that passes checkJSON.
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

func readAll(r *http.Request) (body []byte, err error) {
	grow := func(int) error { return nil }
	if b, ok := r.Body.(*requestBody); ok {
		grow = b.grow
	}
	return readChunks(r.Body, r.ContentLength, grow)
}

func readAs[T any](r *http.Request, parse func(body []byte) (T, error)) (v T, err error) {
	body, err := readBody(r)
	if err != nil {
		return v, err
	}
	return parse(body)
}

// checkContentType requires the Content-Type of JSON and no content coding, unless there is no body.
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

// Reading the query and the path of a request.

// query is the parsed query of a request. Its readers keep the first error. A blank parameter counts as absent.
type query struct {
	values url.Values
	known  []string    // the parameters that were read
	hints  http.Header // of the answer
	err    error
}

func queryOf(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &query{err: failf(badRequest, "the query is malformed: %v", err)}
	}
	return &query{values: values, hints: hintsOf(r)}
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

// done returns the first error, after everything was read. It hints at a parameter with
// nearly the name of one that was read; clients may send others.
func (q *query) done() error {
	q.unknown(func(name, near string) {
		if near != "" {
			hint(q.hints, "unknown query parameter %.60q%s", name, meant(near))
		}
	})
	return q.err
}

// only is done for a route that no other service has: it refuses every parameter that was not read.
func (q *query) only() error {
	q.unknown(func(name, near string) {
		q.refuse("unknown query parameter %.60q%s", name, cmp.Or(meant(near), "; want "+cmp.Or(anyOf(q.known), "none")))
	})
	return q.err
}

// unknown calls f with each parameter that was not read, and with the one that was meant, if any.
func (q *query) unknown(f func(name, near string)) {
	if len(q.values) == 0 { // as of most requests
		return
	}
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(q.known, name) {
			f(name, nearestWord(strings.ToLower(name), q.known, typoLimit(name)))
		}
	}
}

// doneHolding is done, and then asks for the memory of an answer with n elements.
func (q *query) doneHolding(w *responseWriter, n, each int) error {
	if err := q.done(); err != nil {
		return err
	}
	return w.holdEach(n, each)
}

// number reads an integer from lo to hi. If it is absent or blank, number returns standard.
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

// queryInt returns the integer that a parameter says: in digits, or in any way in which a body may say it, such as 5.0.
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

// oneOf reads a parameter that is one of some words. It returns "" if it is absent or blank.
func (q *query) oneOf(name string, words ...string) string {
	s := q.text(name)
	if s != "" && !slices.Contains(words, s) {
		q.refuse("%s must be %s, not %.60q", name, anyOf(words), s)
	}
	return s
}

// flag reads true or false. If it is absent or blank, flag returns false.
func (q *query) flag(name string) bool { return q.oneOf(name, "true", "false") == "true" }

// queryWord reads a parameter that is one of some words. It returns nil if the parameter is absent or blank.
func queryWord[T any](q *query, name string, parse func(string) (T, bool), words []string) *T {
	word := q.text(name)
	if word == "" {
		return nil
	}
	v, ok := parse(word)
	if !ok {
		q.refuse("%s: must be one of %s, not %.60q", name, strings.Join(words, ", "), word)
	}
	return &v
}

// stateWords are the words that filteredState knows.
var stateWords = slices.Concat(taskStateNames[:], []string{"in_progress", "completed"})

// stateMeant returns the state that an unknown word was probably meant as: the first one with this beginning, or a typo.
func stateMeant(word string) string {
	i := slices.IndexFunc(taskStateNames[:], func(name string) bool { return len(word) > 3 && strings.HasPrefix(name, word) })
	if i >= 0 {
		return taskStateNames[i]
	}
	return cmp.Or(map[string]string{"failed": "error", "running": "steps_in_process", "in_progress": "steps_in_process"}[word],
		nearestWord(word, taskStateNames[:], typoLimit(word)))
}

// filteredState reads a state in a filter. Existing clients say in_progress and completed for two of them.
func filteredState(word string) (stateSet, bool) {
	switch word {
	case "in_progress":
		return setOf(taskStepsInProcess), true
	case "completed":
		return setOf(taskComplete), true
	}
	return exactState(word)
}

// exactState reads the name of a state in a filter.
func exactState(word string) (stateSet, bool) {
	state, ok := parseTaskState(word)
	return setOf(state), ok
}

func pathID(r *http.Request, name string) (uuid, error) {
	return idNamed(name, r.PathValue(name))
}

// idNamed reads a text that must be an id. The name is for the error.
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
	w *responseWriter, r *http.Request, name string, f func(id uuid, by holder) (T, error),
) (T, error) {
	return byID(r, name, func(id uuid) (T, error) {
		v, err := f(id, w)
		return v, w.surface.shown(r, id, err)
	})
}

// shown returns the error of a read of a task, or nil, once everything that the answer says about the task is on disk.
func (s *surface) shown(r *http.Request, id uuid, err error) error {
	if refusedForNow(err) {
		return err
	}
	return cmp.Or(s.svc.store.wait(r.Context(), s.svc.store.lastSeqOf(id)), err)
}

// explanation explains the task that a parameter of the path names, with the messages of
// errors for callers who may read steps.
func (s *surface) explanation(w *responseWriter, r *http.Request, name string) (*taskExplanation, error) {
	return heldByID(w, r, name, func(id uuid, by holder) (*taskExplanation, error) {
		v, err := s.svc.engine.explain(id, by, mayReadResults(r.Context()))
		if err == nil {
			redactProblems(r, v.Undelivered)
		}
		return v, err
	})
}

// undelivered returns the events of a task that subscribers did not get.
func (s *surface) undelivered(r *http.Request, t *task) []undeliveredEvent {
	all := s.svc.store.subscribers().undelivered(t)
	redactProblems(r, all)
	return all
}

// redactProblems removes why events were not delivered, unless the caller may see it.
func redactProblems(r *http.Request, all []undeliveredEvent) {
	if mayReadDeliveries(r.Context()) {
		return
	}
	for i := range all {
		all[i].Problem = nil
	}
}

func stepPath(r *http.Request, taskName, stepName string) (taskID, stepID uuid, err error) {
	if taskID, err = pathID(r, taskName); err == nil {
		stepID, err = pathID(r, stepName)
	}
	return taskID, stepID, err
}

// taskIn returns the task that a parameter of the path names.
func (s *surface) taskIn(w *responseWriter, r *http.Request, name string) (*task, error) {
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

func (s *surface) stepIn(
	w *responseWriter, r *http.Request, taskName, stepName string,
) (*task, int, error) {
	taskID, stepID, err := stepPath(r, taskName, stepName)
	if err != nil {
		return nil, 0, err
	}
	t, err := s.svc.store.viewWithin(taskID, w)
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
func (s *surface) templateIn(w *responseWriter, r *http.Request, version string) (*template, error) {
	t, err := s.svc.templates.find(r.PathValue("namespace"), r.PathValue("name"), version)
	if err == nil {
		err = w.holdEach(len(t.steps), 1024)
	}
	return t, err
}
