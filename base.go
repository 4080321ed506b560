package main

// What can be wrong with a request, by kind. The surfaces turn a kind into a
// status and a body; nothing below them knows about either.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

// failureKind says what sort of failure it is. The zero kind is an internal
// error: logged in full, answered blandly.
type failureKind uint8

const (
	internalFailure failureKind = iota
	badRequest
	invalidUUID
	invalidJSON
	notFound
	templateNotFound
	namespaceNotFound
	taskMissing
	stepMissing
	methodNotAllowed
	conflict
	invalidTransition // the state does not allow it
	tooLarge
	unsupportedMedia
	invalidFields // carries details
	unauthenticated
	forbidden
	unavailable
	backpressure
	misdirected // the request was for a host that is not ours
	notIdle     // in the time that was given; carries what kept it busy
	unverified  // carries what was seen instead
)

// failure is an error that a caller of the service may be told about.
type failure struct {
	kind       failureKind
	message    string
	details    inputProblems      // for invalidFields: every offending field
	retryAfter time.Duration      // for unavailable and backpressure
	existing   uuid               // for conflict: the task that is there already, if the caller may know
	extra      errorMember        // for notIdle and unverified
	refusal    *credentialRefusal // for credentials that were refused or cannot be verified
	cause      error              // logged, never shown
}

// inputProblem is one thing wrong with a request, a configuration or a template.
type inputProblem struct {
	Source  string `json:"-"`     // a file, perhaps with a line, a variable or a flag; "" for a request
	Field   string `json:"field"` // its path in the source; "" for the whole source
	Message string `json:"message"`
}

// String returns "source: field: message", without what is empty.
func (p inputProblem) String() string {
	s := p.Message
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	if p.Source != "" {
		s = p.Source + ": " + s
	}
	return s
}

// inputProblems is everything wrong with an input.
type inputProblems []inputProblem

// Error returns one line for each problem.
func (all inputProblems) Error() string {
	lines := make([]string, len(all))
	for i, p := range all {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// orNil returns the problems as an error, or nil when there are none.
func (all inputProblems) orNil() error {
	if len(all) == 0 {
		return nil
	}
	return all
}

// errorMember is one more member of an error's body. The zero value is none.
type errorMember struct {
	name  string
	value any
}

// credentialRefusal says why credentials were refused, in the words of the auth family.
type credentialRefusal struct {
	reason   string // one word for the client and the metrics; "" when nobody could verify them
	severity string // low, medium or high
	method   string // how the caller tried to authenticate; "" for a known caller without permission
	detail   string // for the log alone
}

func (f *failure) Error() string {
	if f.cause != nil {
		return f.message + ": " + f.cause.Error()
	}
	return f.message
}

func (f *failure) Unwrap() error { return f.cause }

// failf makes a failure of a kind.
func failf(kind failureKind, format string, args ...any) *failure {
	return &failure{kind: kind, message: fmt.Sprintf(format, args...)}
}

// kindOf is the kind of an error; anything that is no failure is internal.
func kindOf(err error) failureKind {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.kind
	}
	return internalFailure
}

// Misspelt names: how far one word is from another, for "did you mean".

// typoLimit is how many letters may differ for a word to be taken for another.
func typoLimit(word string) int { return min(3, (len(word)+1)/3) }

// typoDistance is the least number of bytes put in, left out or replaced that
// makes a into b, or limit + 1 when it is more than limit.
func typoDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1) // the distances of a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
			least = min(least, row[j+1])
		}
		if least > limit {
			return limit + 1
		}
	}
	return min(row[len(b)], limit+1)
}

// A bell: how whoever made something new wakes those who wait for it.

// bell wakes everybody who waits, each time it rings. The zero value is ready.
type bell struct {
	mu   sync.Mutex
	rung chan struct{} // closed by the next ring; nil while nobody waits
}

// next is closed when the bell rings next. Whoever takes it before looking at
// what the bell is about misses nothing.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// A bounded cache of answers that may be a little old: each is computed once
// for all who ask at the same time, and shown for a fixed span of the clock.

// answerCache keeps the answer to each of the last few questions. The zero
// value is empty.
type answerCache[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*cachedAnswer[V] // guarded by mu
}

// cachedAnswer is an answer, or one that is being computed.
type cachedAnswer[V any] struct {
	made  instant       // when it was asked for first
	ready chan struct{} // closed once value and err stand
	value V
	err   error
}

// maxCachedAnswers is how many questions a cache remembers; the oldest answer
// makes room.
const maxCachedAnswers = 64

// get is the answer to a question: one that is younger than ttl, a hit, or else
// a new one. Whoever asks while it is computed waits and shares it, which is
// no hit. An error is shared likewise, but not kept.
func (c *answerCache[K, V]) get(key K, clk clock, ttl time.Duration, compute func() (V, error)) (v V, hit bool, err error) {
	e, mine := c.enter(key, clk.now(), ttl)
	if mine {
		c.fill(key, e, compute)
		return e.value, false, e.err
	}
	select {
	case <-e.ready:
		return e.value, true, e.err
	default:
		<-e.ready
		return e.value, false, e.err
	}
}

// enter finds the entry for a question; when there is none, or it is not good
// any more, the caller has to fill a new one. After a clock that went back
// nothing from its future is shown.
func (c *answerCache[K, V]) enter(key K, now instant, ttl time.Duration) (e *cachedAnswer[V], mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil && e.made <= now && now < e.made.add(ttl) {
		return e, false
	}
	if c.entries == nil {
		c.entries = map[K]*cachedAnswer[V]{}
	}
	delete(c.entries, key)
	if len(c.entries) >= maxCachedAnswers {
		c.dropOldestLocked()
	}
	e = &cachedAnswer[V]{made: now, ready: make(chan struct{})}
	c.entries[key] = e
	return e, true
}

func (c *answerCache[K, V]) dropOldestLocked() {
	var oldest K
	var found *cachedAnswer[V]
	for key, e := range c.entries {
		if found == nil || e.made < found.made {
			oldest, found = key, e
		}
	}
	delete(c.entries, oldest)
}

// fill computes the answer and hands it to whoever waits, a panic as an error.
func (c *answerCache[K, V]) fill(key K, e *cachedAnswer[V], compute func() (V, error)) {
	e.err = errAnswerLost
	defer func() {
		if e.err != nil {
			c.drop(key, e)
		}
		close(e.ready)
	}()
	e.value, e.err = compute()
}

// errAnswerLost is for those who waited for a computation that panicked.
var errAnswerLost = failf(internalFailure, "the answer could not be computed")

// drop forgets an entry, unless another has taken its place.
func (c *answerCache[K, V]) drop(key K, e *cachedAnswer[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] == e {
		delete(c.entries, key)
	}
}

// zonedForm tells whether a JSON string ends as a timestamp with a zone does.
func zonedForm(raw []byte) bool {
	s, _ := jsonString(raw)
	at := strings.LastIndexAny(s, "Zz+-")
	return at > strings.IndexByte(s, 'T')
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

// Limits of the creation payload, in characters.
const (
	maxNameLength   = 255
	maxReasonLength = 500
	maxTags         = 100
	priorityLimit   = 100 // priorities beyond ±this are clamped
)

// fieldReader reads the members of a body and collects what is wrong with them.
type fieldReader struct {
	problems inputProblems
}

func (f *fieldReader) complain(field, format string, args ...any) {
	f.problems = append(f.problems, inputProblem{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (f *fieldReader) complainedOf(field string) bool {
	for _, p := range f.problems {
		if p.Field == field {
			return true
		}
	}
	return false
}

// failure is nil when nothing was wrong.
func (f *fieldReader) failure(what string) error {
	if len(f.problems) == 0 {
		return nil
	}
	names := make([]string, len(f.problems))
	for i, p := range f.problems {
		names[i] = p.Field + " " + p.Message
	}
	return &failure{kind: invalidFields, message: what + ": " + strings.Join(names, "; "), details: f.problems}
}

// text reads a string of lo to hi characters.
func (f *fieldReader) text(key string, raw []byte, lo, hi int) string {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a string")
		return ""
	}
	if n := utf8.RuneCountInString(s); n < lo || n > hi {
		f.complain(key, "must have %d to %d characters, not %d", lo, hi, n)
	}
	return s
}

func (f *fieldReader) texts(key string, raw []byte) []string {
	texts := []string{}
	ok := eachElement(raw, func(e []byte) bool {
		if jsonKind(e) != '"' {
			f.complain(fmt.Sprintf("%s[%d]", key, len(texts)), "must be a string")
			return false
		}
		texts = append(texts, f.text(fmt.Sprintf("%s[%d]", key, len(texts)), e, 1, maxNameLength))
		return len(texts) <= maxTags
	})
	if !ok {
		f.complain(key, "must be an array of strings")
	}
	if len(texts) > maxTags {
		f.complain(key, "must have at most %d elements", maxTags)
	}
	return texts
}

// object reads a JSON object, compacted.
func (f *fieldReader) object(key string, raw []byte) []byte {
	if jsonKind(raw) != '{' {
		f.complain(key, "must be an object")
		return nil
	}
	return compactJSON(make([]byte, 0, len(raw)), raw)
}

// clamped reads an integer and brings it within ±limit.
func (f *fieldReader) clamped(key string, raw []byte, limit int64) int {
	n, ok := jsonInt(raw)
	if !ok {
		switch {
		case jsonKind(raw) != '0' || strings.ContainsAny(string(raw), ".eE"):
			f.complain(key, "must be an integer")
		case raw[0] == '-':
			n = -limit
		default:
			n = limit
		}
	}
	return int(min(max(n, -limit), limit))
}

func (f *fieldReader) id(key string, raw []byte) uuid {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a UUID string")
		return uuid{}
	}
	id, ok := parseUUID(s)
	if !ok {
		f.complain(key, "%.60q is not a UUID", s)
	}
	return id
}

func (f *fieldReader) instant(key string, raw []byte) instant {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a timestamp string")
		return 0
	}
	at, err := parseInstant(s)
	if err != nil {
		f.complain(key, "%.60q is not a timestamp like 2026-01-31T12:00:00Z", s)
	}
	return at
}

func orDefault(s, standard string) string {
	if s == "" {
		return standard
	}
	return s
}

// offerToken puts a token into a channel that holds one.
func offerToken(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// usageError is a command line that cannot be understood.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// count reads an integer from lo to hi.
func (f *fieldReader) count(key string, raw []byte, lo, hi int64) int {
	n, ok := jsonInt(raw)
	if !ok || n < lo || n > hi {
		f.complain(key, "must be an integer from %d to %d", lo, hi)
	}
	return int(n)
}

// version is the release that this source is.
const version = "0.1.0"

// word reads one of some words.
func (f *fieldReader) word(path string, raw []byte, words ...string) string {
	s, _ := jsonString(raw)
	if !slices.Contains(words, s) {
		f.complain(path, "must be one of %q", words)
	}
	return s
}

// boundedDuration reads a duration from 0 to most.
func (f *fieldReader) boundedDuration(path string, raw []byte, most time.Duration) time.Duration {
	d := f.duration(path, raw, 0)
	if d > most {
		f.complain(path, "must be %s at most", most)
	}
	return d
}

// urlCredentials is what stands between the scheme and the host of a URL, also
// inside JSON that escapes its slashes.
var urlCredentials = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*:(?:/|\\/){2})[^/?#\s"]+@`)

// hideCredentials replaces the credentials in URLs; text without any it returns
// as it is.
func hideCredentials(text []byte) []byte {
	if !bytes.Contains(text, []byte("@")) {
		return text
	}
	return urlCredentials.ReplaceAll(text, []byte("$1[REDACTED]@"))
}

func withoutCredentials(text *string) *string {
	if text == nil {
		return nil
	}
	shown := string(hideCredentials([]byte(*text)))
	return &shown
}

// priorityQueue is a binary heap: pop takes the element that orders before all
// others. Where elements have to be moved or removed from the middle, placed is
// told the place of an element whenever it changes. It is not safe for
// concurrent use.
type priorityQueue[E any] struct {
	items  []E
	before func(a, b E) bool
	placed func(e E, place int) // nil when nobody needs places
}

// push adds an element.
func (q *priorityQueue[E]) push(e E) {
	q.items = append(q.items, e)
	q.up(len(q.items) - 1)
}

// pop removes the first element of a queue that is not empty.
func (q *priorityQueue[E]) pop() E { return q.remove(0) }

// remove takes the element at a place out of the queue.
func (q *priorityQueue[E]) remove(place int) E {
	e, last := q.items[place], len(q.items)-1
	moved := q.items[last]
	clear(q.items[last:])
	q.items = q.items[:last]
	if place < last {
		q.put(place, moved)
		q.fix(place)
	}
	return e
}

// fix restores the order after the element at a place has changed.
func (q *priorityQueue[E]) fix(place int) {
	if q.up(place) == place {
		q.down(place)
	}
}

func (q *priorityQueue[E]) put(place int, e E) {
	q.items[place] = e
	if q.placed != nil {
		q.placed(e, place)
	}
}

// up moves an element towards the front and returns where it comes to rest.
func (q *priorityQueue[E]) up(place int) int {
	e := q.items[place]
	for place > 0 {
		parent := (place - 1) / 2
		if !q.before(e, q.items[parent]) {
			break
		}
		q.put(place, q.items[parent])
		place = parent
	}
	q.put(place, e)
	return place
}

func (q *priorityQueue[E]) down(place int) {
	e := q.items[place]
	for {
		child := 2*place + 1
		if child >= len(q.items) {
			break
		}
		if right := child + 1; right < len(q.items) && q.before(q.items[right], q.items[child]) {
			child = right
		}
		if !q.before(q.items[child], e) {
			break
		}
		q.put(place, q.items[child])
		place = child
	}
	q.put(place, e)
}

// fileCall makes a system call on a file, again when a signal interrupts it.
func fileCall(f *os.File, op string, do func(fd int) error) error {
	for {
		err := do(int(f.Fd()))
		switch err {
		case nil:
			return nil
		case syscall.EINTR:
		default:
			return &fs.PathError{Op: op, Path: f.Name(), Err: err}
		}
	}
}
