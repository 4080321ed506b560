package main

// The base family: what every other family may use, and what knows none of them.
//
//	base.go            failures and problems of an input, readers of fields, small structures, files
//	base_bitset.go     sets of positions and their times, for the lists of tasks
//	base_clock.go      instants, the clock and its timers, limits in real time, identifiers and random numbers
//	base_json.go       JSON texts: walking, reading, merging, comparing
//	base_json_wire.go  which JSON texts are accepted from outside, and how answers are written
//	base_linux.go      system calls that package os lacks
//	base_other.go      the same for other Unix systems, weaker or not at all

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
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"
)

// version is the release of this source.
const version = "0.2.0"

// failureKind classifies a failure; the surfaces map each kind to a status and a
// code. The zero kind is an internal error: logged in full, answered without details.
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
	unsupportedCoding // a Content-Encoding
	invalidFields     // carries details
	unauthenticated
	forbidden
	unavailable
	backpressure
	misdirected // the request was for a host that is not ours
	notIdle     // within the time given; carries what kept the service busy
	unverified  // carries what was seen instead
	storeFull   // tasks take all the memory they may
	overloaded  // requests come faster than they can be answered
	taskDropped // a repeated request whose task retention has dropped
	taskMovedOn // the task is not as the caller saw it
)

// failure is an error that a caller may see.
type failure struct {
	kind       failureKind
	message    string
	details    inputProblems      // for invalidFields: every offending field
	retryAfter time.Duration      // for unavailable and backpressure
	existing   uuid               // for conflict: the task that exists already, if the caller may know
	extra      errorMember        // for notIdle, unverified and taskDropped
	refusal    *credentialRefusal // for credentials that were refused or cannot be verified
	cause      error              // logged, never shown
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

// failf returns a failure of a kind.
func failf(kind failureKind, format string, args ...any) *failure {
	return &failure{kind: kind, message: fmt.Sprintf(format, args...)}
}

// kindOf returns the kind of an error. Any error other than a failure is internal.
func kindOf(err error) failureKind {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.kind
	}
	return internalFailure
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

// usageError is a mistake in the command line.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// Reading the fields of a request body. A method that reads a field records a
// problem when the value is wrong.

// Limits of the fields of a request, in characters.
const (
	maxNameLength   = 255
	maxReasonLength = 500
	maxTags         = 100
	priorityLimit   = 100 // priorities beyond ±this are clamped
)

// fieldReader reads the fields of a request body and collects their problems.
type fieldReader struct {
	problems inputProblems
}

func (f *fieldReader) complain(field, format string, args ...any) {
	f.problems = append(f.problems, inputProblem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// complainedOf reports whether a field has a problem already.
func (f *fieldReader) complainedOf(field string) bool {
	return slices.ContainsFunc(f.problems, func(p inputProblem) bool { return p.Field == field })
}

// failure returns the failure of a body with problems, or nil when it has none.
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

// texts reads an array of names, at most maxTags.
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

// word reads a string that must be one of the words.
func (f *fieldReader) word(path string, raw []byte, words ...string) string {
	s, _ := jsonString(raw)
	if !slices.Contains(words, s) {
		f.complain(path, "must be one of %q", words)
	}
	return s
}

// flag reads true or false.
func (f *fieldReader) flag(path string, raw []byte) bool {
	kind := jsonKind(raw)
	if kind != 't' && kind != 'f' {
		f.complain(path, "must be true or false")
	}
	return kind == 't'
}

// object reads a JSON object and returns it without white space.
func (f *fieldReader) object(key string, raw []byte) []byte {
	if jsonKind(raw) != '{' {
		f.complain(key, "must be an object")
		return nil
	}
	return compactJSON(make([]byte, 0, len(raw)), raw)
}

// count reads an integer from lo to hi.
func (f *fieldReader) count(key string, raw []byte, lo, hi int64) int {
	n, ok := jsonInt(raw)
	if !ok || n < lo || n > hi {
		f.complain(key, "must be an integer from %d to %d", lo, hi)
	}
	return int(n)
}

// clamped reads an integer and limits it to ±limit.
func (f *fieldReader) clamped(key string, raw []byte, limit int64) int {
	n, _, ok := nearestInt(raw)
	if !ok {
		f.complain(key, "must be an integer")
	}
	return int(min(max(n, -limit), limit))
}

// id reads a UUID.
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

// instant reads a timestamp.
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

// zonedForm reports whether a JSON string ends as a timestamp with a zone does.
func zonedForm(raw []byte) bool {
	s, _ := jsonString(raw)
	at := strings.LastIndexAny(s, "Zz+-")
	return at > strings.IndexByte(s, 'T')
}

// duration reads a string like 90s or 1h30m, at least least.
func (f *fieldReader) duration(key string, raw []byte, least time.Duration) time.Duration {
	s, _ := jsonString(raw)
	d, err := time.ParseDuration(s)
	if err != nil || d < least {
		f.complain(key, "must be a string like 90s or 1h30m, not less than %s", least)
	}
	return d
}

// boundedDuration reads a duration from 0 to most.
func (f *fieldReader) boundedDuration(path string, raw []byte, most time.Duration) time.Duration {
	d := f.duration(path, raw, 0)
	if d > most {
		f.complain(path, "must be %s at most", most)
	}
	return d
}

// Text: lists, misspelt words, and credentials in URLs.

// splitList splits a list at commas and drops blanks and empty items.
func splitList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// anyOf lists words as in "a, b or c".
func anyOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// pick returns a if first, else b.
func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// clipText shortens a text to limit bytes and an ellipsis.
func clipText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// typoLimit returns how many letters of a word may differ from the one that was
// probably meant.
func typoLimit(word string) int { return min(3, (len(word)+1)/3) }

// nearestWord returns the known word with the fewest typos, at most limit, or "".
func nearestWord(word string, known []string, limit int) (best string) {
	for _, k := range known {
		if d := typoDistance(word, k, limit); d < limit || d == limit && best == "" {
			best, limit = k, d
		}
	}
	return best
}

// typoDistance returns how many bytes must be inserted, deleted, replaced or swapped
// with the next to turn a into b, or limit + 1 when that is more than limit.
func typoDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var rows [3][]int // the distances of a[:i] to each b[:j], for i and the two before
	for k := range rows {
		rows[k] = make([]int, len(b)+1)
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(a) {
		row, above, higher := rows[(i+1)%3], rows[i%3], rows[(i+2)%3]
		row[0] = i + 1
		for j := range len(b) {
			replaced := above[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, row[j]+1, above[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], higher[j-1]+1)
			}
		}
		if slices.Min(row) > limit {
			return limit + 1
		}
	}
	return min(rows[len(a)%3][len(b)], limit+1)
}

// Redaction: what may be secret in a URL is never shown, logged or put into an error.
// That is the user and password, and whatever follows a ? or #, since any parameter
// may be a token.

const redactedText = "[REDACTED]"

// redactURL redacts a value that is a URL, or begins with one after a name.
func redactURL(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return redactAddress(s)
	}
	return scheme + "://" + redactAddress(rest)
}

// redactName is redactURL for a name, which may contain an @, ? or # unless it is a URL.
func redactName(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return redactURL(s)
}

// compiled returns a function that compiles a regular expression at its first call, for commands that need few of them.
func compiled(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// urlHost matches what can only be the host and port of a URL, and not the begin of a
// password that is not escaped and contains a slash.
var urlHost = compiled(`^(\[[^\]]*\](:\d*)?|[^:]*)$`)

// redactAddress redacts a URL without its scheme. The fragment of a reference in a JSON
// schema is a path.
func redactAddress(s string) string {
	path := untilAny(s, "?#")
	host := untilAny(path, `/\`) // JSON may escape a slash
	at := -1
	if strings.Contains(host, "@") {
		at = strings.LastIndexByte(path, '@')
	} else if !urlHost().MatchString(host) {
		at = strings.LastIndexByte(s, '@')
	}
	before := ""
	if at >= 0 {
		before, s = redactedText, s[at:]
	}
	query := len(untilAny(s, "?#")) + 1
	if query >= len(s) || s[query-1] == '#' && strings.ContainsRune(`/\`, rune(s[query])) {
		return before + s
	}
	return before + s[:query] + redactedText
}

// untilAny returns what precedes the first of some characters.
func untilAny(s, chars string) string {
	if at := strings.IndexAny(s, chars); at >= 0 {
		return s[:at]
	}
	return s
}

// redact redacts every URL in a text, which may be JSON and then stays valid. It returns
// the same slice if there is nothing to redact.
func redact(text []byte) []byte {
	var shown []byte
	done := 0
	for begin, end := nextURL(text, 0); begin < len(text); begin, end = nextURL(text, end) {
		if bytes.ContainsAny(text[begin:end], "@?#") {
			shown = append(append(shown, text[done:begin]...), redactAddress(string(text[begin:end]))...)
			done = end
		}
	}
	if done == 0 {
		return text
	}
	return append(shown, text[done:]...)
}

// nextURL returns where the next URL from an index on begins, after its scheme, and
// where it ends; both are the end of the text if there is none.
func nextURL(text []byte, from int) (begin, end int) {
	for at := from; ; at++ {
		colon := bytes.IndexByte(text[at:], ':')
		if colon < 0 {
			return len(text), len(text)
		}
		at += colon
		for _, slashes := range []string{"://", `:\/\/`} {
			if begin = at + len(slashes); bytes.HasPrefix(text[at:], []byte(slashes)) {
				return begin, begin + urlLength(text[from:at], text[begin:])
			}
		}
	}
}

// urlLength returns how much of a text after "://" belongs to the URL: up to the quote
// that closes one before the scheme, which is escaped in a text within JSON, or else up to
// a quote or white space.
func urlLength(before, text []byte) int {
	before = bytes.TrimRight(before, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.")
	nested, quoted := bytes.HasSuffix(before, []byte(`\"`)), bytes.HasSuffix(before, []byte(`"`))
	word := len(text)
	for i := 0; i < len(text); i++ {
		at, escaped := i, text[i] == '\\' && i+1 < len(text)
		if escaped {
			i++
		}
		quote := text[i] == '"'
		if quote && quoted && escaped == nested {
			return at
		}
		if quote || strings.IndexByte(" \t\r\n", text[i]) >= 0 || escaped && strings.IndexByte("trn", text[i]) >= 0 {
			word = min(word, at)
		}
		if word < len(text) && !quoted || quote && !escaped {
			break
		}
	}
	return word
}

// redactText returns a redacted copy of a text.
func redactText(text *string) *string {
	if text == nil {
		return nil
	}
	return new(string(redact([]byte(*text))))
}

// Small structures.

// notifier wakes every waiter at each notification. The zero value is ready.
type notifier struct {
	mu sync.Mutex
	c  chan struct{} // closed by the next notification; nil while nobody waits
}

// next returns a channel that the next notification closes. A waiter takes it
// before it looks at the state it waits for, so that it misses no change.
func (n *notifier) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c == nil {
		n.c = make(chan struct{})
	}
	return n.c
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c != nil {
		close(n.c)
		n.c = nil
	}
}

// quota bounds something that callers cost together. It is safe for concurrent use.
type quota struct {
	most    int64
	used    atomic.Int64
	refused atomic.Uint64 // how often there was not enough left
}

// take reserves n and reports whether that much was left.
func (q *quota) take(n int64) bool {
	if q.used.Add(n) <= q.most {
		return true
	}
	q.give(n)
	return false
}

// give returns n that was taken.
func (q *quota) give(n int64) { q.used.Add(-n) }

// regain gives what a counter holds, and reports whether that was anything.
func (q *quota) regain(held *atomic.Int64) bool {
	n := held.Swap(0)
	q.give(n)
	return n > 0
}

// refuse counts a refusal and returns it; full says what there is too much of.
func (q *quota) refuse(full string, args ...any) *failure {
	q.refused.Add(1)
	return &failure{kind: backpressure, retryAfter: time.Second, message: fmt.Sprintf(full, args...)}
}

// logRate lets through a number of messages a second, so that callers cannot fill the log.
type logRate struct {
	most int

	mu      sync.Mutex
	second  instant // when the present second began; guarded by mu, as all below
	count   int     // messages in it
	dropped int     // messages since the last one that was let through
}

// allow reports whether to log a message, and how many were not logged before it.
func (l *logRate) allow(now instant) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.sub(l.second); since >= time.Second || since < 0 {
		l.second, l.count = now, 0
	}
	if l.count == l.most {
		l.dropped++
		return 0, false
	}
	l.count++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

// offerToken puts a token into a channel of capacity 1, unless it holds one.
func offerToken(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// priorityQueue is a binary heap: pop removes the element that orders before all
// others. For queues whose elements move or leave from the middle, placed is called
// whenever an element changes its place. It is not safe for concurrent use.
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

// remove removes and returns the element at a place.
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

// up moves an element towards the front and returns its new place.
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

// answerCache caches the answers to the last few questions for a fixed time. Those
// who ask the same question at the same time share one computation. The zero value
// is empty.
type answerCache[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*cachedAnswer[V] // guarded by mu
}

// cachedAnswer is an answer, or the computation of one.
type cachedAnswer[V any] struct {
	made  instant       // when the question was first asked
	ready chan struct{} // closed once value and err are set
	value V
	err   error
}

// maxCachedAnswers is how many questions a cache holds; a new one replaces the oldest.
const maxCachedAnswers = 64

// get returns the answer to a question: a cached one younger than ttl (a hit), or
// one computed now or already being computed. Errors are shared but not cached.
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

// enter returns the entry for a question. When there is none, it is too old, or the
// clock went back behind it, mine is true and the caller must fill the new entry.
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

// fill computes the answer and releases the waiters; a panic leaves them an error.
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

// errAnswerLost is for the waiters of a computation that panicked.
var errAnswerLost = failf(internalFailure, "the answer could not be computed")

// drop removes an entry, unless another has replaced it.
func (c *answerCache[K, V]) drop(key K, e *cachedAnswer[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] == e {
		delete(c.entries, key)
	}
}

// Files. A name can lead to a pipe, whose opening never ends, to a device, or through a
// link to a file of somebody else.

// openRegular opens a regular file, which it may create with mode 0600. It follows
// links unless the flags have O_NOFOLLOW.
func openRegular(name string, flag int) (*os.File, error) {
	look := os.Stat
	if flag&syscall.O_NOFOLLOW != 0 {
		look = os.Lstat
	}
	if info, err := look(name); err == nil && !info.Mode().IsRegular() {
		return nil, irregular("open", name, info)
	}
	f, err := os.OpenFile(name, flag|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat() // the name may lead to another file by now
	if err == nil && !info.Mode().IsRegular() {
		err = irregular("open", name, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeRegular removes a name, which must be that of a regular file.
func removeRegular(name string) error {
	if err := checkRegular("remove", name); err != nil {
		return err
	}
	return os.Remove(name)
}

// renameRegular renames a file. What it replaces must be a regular file.
func renameRegular(from, to string) error {
	if err := checkRegular("replace", to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(from, to)
}

// checkRegular returns an error unless a name is that of a regular file; a link is none.
func checkRegular(op, name string) error {
	info, err := os.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = irregular(op, name, info)
	}
	return err
}

// checkOwn returns an error unless a file belongs to the user of this process.
func checkOwn(op, name string, info fs.FileInfo) error {
	if ownerOf(info) == os.Geteuid() {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("it belongs to the user %d, and this process runs as %d",
		ownerOf(info), os.Geteuid())}
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

func irregular(op, name string, info fs.FileInfo) error {
	reason := "not a regular file"
	if info.Mode()&fs.ModeSymlink != 0 {
		reason = "a symbolic link, not a regular file"
	}
	return &fs.PathError{Op: op, Path: name, Err: errors.New(reason)}
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

// counted returns a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
