package main

// Lists of tasks, of the orchestration role and of the mount point. Then the event stream
// of the role: a response that ends only when its reader leaves or falls behind, or the
// service ends.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// taskListing is a request for a list of tasks, as read from its query.
type taskListing struct {
	taskQuery
	page, perPage int
	cursored      bool // whether it goes from page to page with cursors
}

// page returns the page that a request asks for, and links to others. path is the path of
// the list for the caller; a word of the filter by state means the states that states
// returns.
func (s *surface) page(
	w http.ResponseWriter, r *http.Request, q *query, path string,
	states func(word string) (stateSet, bool), words string,
) (p taskPage, err error) {
	l := q.listing()
	l.states = q.states(states, words)
	if err := q.done(); err != nil {
		return p, err
	}
	if err := w.(*recorder).holdEach(l.perPage, 512); err != nil {
		return p, err
	}
	p = taskPage{store: s.svc.store, page: l.page, perPage: l.perPage, cursored: l.cursored, count: l.counted}
	p.taskList = p.store.list(&l.taskQuery)
	if l.cursored {
		p.page = p.before/p.perPage + 1
	} else {
		p.before = l.skip
	}
	if p.cursored && p.hasNext() {
		p.next = l.cursor(p.last)
	}
	if links := p.links(path, q.values); links != "" {
		w.Header()["Link"] = []string{links}
	}
	return p, p.store.wait(r.Context(), p.seq)
}

// listing reads everything but the states.
func (q *query) listing() *taskListing {
	l := &taskListing{page: q.number("page", 1, 1, 1<<31-1), perPage: q.number("per_page", 25, 1, 100)}
	l.taskFilter = taskFilter{
		namespace: q.text("namespace"), name: q.text("name"), version: q.text("version"),
		initiator: q.text("initiator"), source: q.text("source_system"), text: strings.ToLower(q.text("q")),
		tags: q.texts("tag"), correlation: q.id("correlation_id"), parent: q.id("parent_correlation_id"),
		trace:   q.traceID("trace_id"),
		created: q.period("created"), updated: q.period("updated"), completed: q.period("completed"),
	}
	if utf8.RuneCountInString(l.text) > maxNameLength {
		q.refuse("q has more than %d characters", maxNameLength)
	}
	if len(l.tags) > maxFilterTags {
		q.refuse("tag is given %d times; at most %d are allowed", len(l.tags), maxFilterTags)
	}
	l.skip, l.limit, l.counted = (l.page-1)*l.perPage, l.perPage, q.flag("counts")
	q.sort(l)
	q.cursor(l)
	return l
}

// traceID reads the id of a trace, 32 hexadecimal digits.
func (q *query) traceID(name string) string {
	s := q.text(name)
	if s != "" && saneTraceparent("00-"+s+"-0000000000000001-00") == "" {
		q.refuse("%s must be 32 hexadecimal digits, not all zero, not %.60q", name, s)
	}
	return strings.ToLower(s)
}

// maxFilterTags bounds what one list costs.
const maxFilterTags = 16

// states reads the filter by state: words between commas, or in several parameters.
func (q *query) states(parse func(word string) (stateSet, bool), words string) (all stateSet) {
	for _, text := range q.texts("status") {
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			set, ok := parse(word)
			if !ok {
				q.refuse("status: %.60q is none of %s", word, words)
			}
			all |= set
		}
	}
	return all
}

// period reads the time that a list is limited to, after one instant and before another.
func (q *query) period(name string) period {
	return period{q.instant(name + "_after"), q.instant(name + "_before")}
}

// taskOrderNames are the words of sort; a minus before one reverses it.
var taskOrderNames = [...]string{
	orderCreated: "created_at", orderUpdated: "updated_at", orderCompleted: "completed_at", orderPriority: "priority",
}

// sortWords are all words of sort.
var sortWords = func() (words []string) {
	for _, name := range taskOrderNames {
		words = append(words, "-"+name, name)
	}
	return words
}()

// sort reads the order of a list.
func (q *query) sort(l *taskListing) {
	word := cmp.Or(q.text("sort"), sortWords[0])
	i := slices.Index(sortWords, word)
	if i < 0 {
		q.refuse("sort: %.60q is none of %s", word, strings.Join(sortWords, ", "))
		return
	}
	l.order, l.ascending = taskOrder(i/2), i%2 == 1
}

// cursor reads the place after which a page begins; a blank one asks for the first page.
func (q *query) cursor(l *taskListing) {
	text := q.text("cursor")
	if l.cursored = len(q.values["cursor"]) > 0; !l.cursored {
		return
	}
	if q.text("page") != "" {
		q.refuse("page and cursor exclude each other")
	}
	if l.skip = 0; text == "" {
		return
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != cursorLength {
		q.refuse("cursor: %.60q is no next_cursor of a list", text)
		return
	}
	if word := int(b[0]); word >= len(sortWords) || word != l.sortWord() {
		q.refuse("cursor: it is of a list with another sort")
	}
	l.after = &taskPlace{int64(binary.BigEndian.Uint64(b[1:])), binary.BigEndian.Uint64(b[9:])}
}

// sortWord returns the index of the word for the order of the list.
func (l *taskListing) sortWord() int { return 2*int(l.order) + boolCount(l.ascending) }

// cursorLength is the length of a cursor in bytes: the order, then a place in it.
const cursorLength = 1 + 8 + 8

// cursor returns the cursor for what comes after a place.
func (l *taskListing) cursor(after taskPlace) string {
	b := binary.BigEndian.AppendUint64([]byte{byte(l.sortWord())}, uint64(after.rank))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(b, after.seq))
}

// maxLinkedQuery is the length of the longest query for which there are links.
const maxLinkedQuery = 2048

// links returns the value of the Link header: links to other pages of the same list, as
// RFC 8288 has them, or "" if their queries would be too long.
func (p *taskPage) links(path string, values url.Values) string {
	const place = "%01link" // escaped; of the value that the links differ by
	name := "page"
	if p.cursored {
		name = "cursor"
	}
	values = maps.Clone(values)
	values.Set(name, "\x01link")
	query, links := values.Encode(), []string(nil)
	before, after, _ := strings.Cut(query, place)
	link := func(rel, value string) {
		links = append(links, "<"+path+"?"+before+url.QueryEscape(value)+after+`>; rel="`+rel+`"`)
	}
	switch next := p.page + 1; {
	case len(query) > maxLinkedQuery:
	case p.cursored:
		link("first", "")
		if p.next != "" {
			link("next", p.next)
		}
	default:
		last := max(p.pages(), 1)
		link("first", "1")
		if p.page > 1 {
			link("prev", strconv.Itoa(min(p.page-1, last)))
		}
		if next <= last {
			link("next", strconv.Itoa(next))
		}
		link("last", strconv.Itoa(last))
	}
	return strings.Join(links, ", ")
}

// texts returns the values of a parameter that may be given several times, without blank
// ones.
func (q *query) texts(name string) []string {
	q.known = append(q.known, name)
	return slices.DeleteFunc(slices.Clone(q.values[name]), func(v string) bool { return strings.TrimSpace(v) == "" })
}

// id reads a UUID. If it is absent or blank, id returns zero.
func (q *query) id(name string) (id uuid) {
	if s := q.text(name); s != "" {
		var ok bool
		if id, ok = parseUUID(s); !ok {
			q.refuse("%s: %.60q is not a UUID", name, s)
		}
	}
	return id
}

// instant reads a timestamp. If it is absent or blank, instant returns 0, and else never.
func (q *query) instant(name string) instant {
	s := q.text(name)
	if s == "" {
		return 0
	}
	at, err := parseInstant(s)
	switch {
	case err != nil && strings.Contains(s, " "):
		q.refuse("%s: %.60q is not a timestamp like 2026-01-31T12:00:00Z; in a query, + must be written as %%2B", name, s)
	case err != nil:
		q.refuse("%s: %.60q is not a timestamp like 2026-01-31T12:00:00Z", name, s)
	}
	return cmp.Or(at, 1)
}

// The event stream.

// eventHeartbeat is how long an idle stream is silent, in real time.
const eventHeartbeat = 15 * time.Second

// eventStream is one open stream.
type eventStream struct {
	w       *recorder
	control *http.ResponseController
	from    *follower
	sent    uint64               // the newest id sent to the reader
	valid   func() time.Duration // how long the reader's credential is still valid
	buf     []byte               // what comes before the next events; it stays small
	beat    bool                 // a heartbeat is due
}

func (a *orchestrationAPI) streamEvents(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	after, given := q.lastEventID(r.Header.Get("Last-Event-ID"))
	filter := q.eventFilter()
	err := q.done()
	if err != nil {
		return nil, err
	}
	if filter.kind == domainKind && !mayReadResults(r.Context()) {
		return nil, a.auth.deny(permStepsRead) // they have results
	}
	if a.svc.draining.Load() {
		return nil, failf(unavailable, "the service is shutting down")
	}
	var f *follower
	if given {
		f, err = a.svc.store.follow(filter, after)
	} else {
		f, after, err = a.svc.store.followNow(filter)
	}
	if err != nil {
		return nil, a.shown(r, filter.task, err)
	}
	streams := &a.svc.quotas.streams
	if !streams.take(1) {
		return nil, streams.refuse("%d event streams are open already, as many as events.max_streams allows", streams.most)
	}
	defer streams.give(1)
	s := &eventStream{w: w.(*recorder), control: http.NewResponseController(w), from: f,
		valid: func() time.Duration { return a.validFor(r) }}
	s.open(after)
	if r.Method == http.MethodHead {
		return written{}, nil
	}
	defer f.open()()
	s.run(r.Context())
	return written{}, nil
}

// lastEventID reads the id of the newest event that the reader has: from the header of
// that name, which readers send when they reconnect, or else from the query.
func (q *query) lastEventID(header string) (after uint64, given bool) {
	name, text := "after", q.text("after")
	if header != "" {
		name, text = "Last-Event-ID", header
	}
	if text == "" {
		return 0, false
	}
	id, ok := queryInt(text)
	if !ok || id < 0 {
		q.refuse("%s must be the id of an event, a number, not %.60q", name, text)
	}
	return uint64(id), true
}

func (q *query) eventFilter() (f eventFilter) {
	f.namespace, f.kind = q.text("namespace"), q.text("kind")
	if kinds := []string{taskKind, stepKind, domainKind}; f.kind != "" && !slices.Contains(kinds, f.kind) {
		q.refuse("kind must be task, step or domain, not %.60q", f.kind)
	}
	if text := q.text("task_uuid"); text != "" {
		var ok bool
		if f.task, ok = parseUUID(text); !ok && q.err == nil {
			q.err = failf(invalidUUID, "task_uuid: %.60q is not a UUID", text)
		}
	}
	return f
}

// open writes the headers and the id at which the stream begins, and lifts the read
// deadline of the connection.
func (s *eventStream) open(after uint64) {
	h := s.w.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Accel-Buffering"] = []string{"no"} // for proxies
	h["X-Content-Type-Options"] = []string{"nosniff"}
	s.control.SetReadDeadline(time.Time{}) // a deadline that passes would look like a reader that left
	s.w.WriteHeader(http.StatusOK)
	s.buf = append(s.buf, ": stepwell events\nretry: 1000\n"...)
	if !s.from.missed {
		s.buf = append(s.mark(s.buf), '\n')
		return
	}
	s.buf = appendEventID(append(s.buf, '\n'), s.from.after)
	s.buf = append(s.buf, "event: gap\ndata: {"...)
	s.buf = strconv.AppendUint(append(s.buf, `"requested":`...), after, 10)
	s.buf = strconv.AppendUint(append(s.buf, `,"oldest_available":`...), s.from.oldest, 10)
	s.buf = append(s.buf, "}\n\n"...)
	s.sent = s.from.after
}

// mark appends the id that the stream has reached, which may belong to a record that
// the reader's filter excludes. An id without data is no event.
func (s *eventStream) mark(b []byte) []byte {
	if s.from.after > s.sent {
		s.sent = s.from.after
		b = appendEventID(b, s.sent)
	}
	return b
}

// run writes events until the stream ends.
func (s *eventStream) run(ctx context.Context) {
	beat, expiry := time.NewTicker(eventHeartbeat), time.NewTimer(s.valid())
	defer beat.Stop()
	defer expiry.Stop()
	for ctx.Err() == nil {
		if s.valid() == 0 {
			s.end("the credential has expired")
			return
		}
		news := s.from.news()
		more, open := s.send()
		if !open || !s.pause(ctx) || !more && !s.await(ctx, news, beat.C, expiry.C) {
			return
		}
		if !more {
			s.from.skip()
		}
	}
}

// eventShare is how long a stream pauses for each of the other ones, so that many streams
// together take a bounded share of the machine: they write more at a time instead.
const eventShare = 100 * time.Microsecond

// pause lets events collect. It reports whether the stream goes on.
func (s *eventStream) pause(ctx context.Context) bool {
	pause := time.Duration(s.from.others()) * eventShare
	if pause >= time.Millisecond {
		closedWithin(ctx, s.from.ended(), pause)
	}
	return ctx.Err() == nil
}

// await waits until there may be something to send. It reports whether the stream is
// still open.
func (s *eventStream) await(ctx context.Context, news <-chan struct{}, beat, expiry <-chan time.Time) (open bool) {
	select {
	case <-s.from.ended():
		s.end("the service is shutting down")
		return false
	case <-ctx.Done():
		return false
	case <-expiry: // by real time
		return true
	case <-news:
		return true
	case <-beat:
		s.beat = true
		return true
	}
}

// eventTexts are buffers, since most streams are idle most of the time.
var eventTexts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// send writes the buffer and the next events. It reports whether more events wait,
// and whether the stream is still open: the reader may have left or be too slow.
func (s *eventStream) send() (more, open bool) {
	b := eventTexts.Get().(*bytes.Buffer)
	defer eventTexts.Put(b)
	b.Reset()
	c := s.from.take(append(b.AvailableBuffer(), s.buf...))
	if s.beat && c.moves == 0 {
		c.text = append(s.mark(append(c.text, ": heartbeat\n"...)), '\n')
	}
	s.beat = false
	if c.behind {
		s.from.cutOff()
		s.end("this stream fell behind; reconnect with the last id")
		return false, false
	}
	if c.moves > 0 && s.w.holdShort(cap(c.text)) != nil {
		s.from.cutOff()
		s.end("too many answers are under way; reconnect with the last id")
		return false, false
	}
	defer s.w.share.release()
	b.Write(c.text) // in place, unless it grew
	s.buf = s.buf[:0]
	if !s.write(b.Bytes()) {
		return false, false
	}
	s.sent = max(s.sent, c.id)
	s.from.sent(c.moves)
	return c.more, true
}

// end writes why the stream ends.
func (s *eventStream) end(why string) {
	s.write(append(append(append(s.buf, ": "...), why...), "\n\n"...))
}

// write writes a text, and reports whether the reader took it in time.
func (s *eventStream) write(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	setWriteDeadline(s.w.ResponseWriter, answerPatience)
	_, err := s.w.Write(text)
	if err == nil {
		err = s.control.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.from.cutOff()
	}
	return err == nil
}

// Deliveries of domain events to subscribers.

func (a *orchestrationAPI) listDeliveries(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := deliveryFilter{q.text("subscriber"), q.text("status")}
	statuses := []string{deliveryPending, deliveryDelivered, deliveryDead}
	if f.status != "" && !slices.Contains(statuses, f.status) {
		q.refuse("status must be pending, delivered or dead, not %.60q", f.status)
	}
	limit, offset := q.number("limit", 50, 1, maxDLQLimit), q.number("offset", 0, 0, 1<<31-1)
	if err := q.done(); err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(limit, 512); err != nil {
		return nil, err
	}
	v := deliveryListView{Deliveries: []eventDeliveryView{}}
	if a.svc.publisher != nil {
		v = a.svc.publisher.list(f, offset, limit)
	}
	return v, a.svc.store.waitAll(r.Context())
}

func (a *orchestrationAPI) resendDelivery(w http.ResponseWriter, r *http.Request) (any, error) {
	id, p := r.PathValue("id"), a.svc.publisher
	if p == nil {
		return nil, failf(unavailable, "the service is read-only")
	}
	release, err := a.holdOpen(w, r, p.timeoutOf(id))
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := p.resend(r.Context(), id)
	if err != nil {
		return nil, a.svc.store.refuse(r.Context(), err)
	}
	return v, a.svc.store.waitAll(r.Context())
}
