package main

// The event stream: a response that ends only when its reader leaves or falls behind, or the
// service ends. Then the deliveries of domain events.

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// eventHeartbeat is how long an idle stream is silent, in real time.
const eventHeartbeat = 15 * time.Second

// eventStream is one open stream.
type eventStream struct {
	w     *responseWriter
	from  *follower
	sent  uint64               // the newest id sent to the reader
	valid func() time.Duration // how long the reader's credential is still valid
	buf   []byte               // what comes before the next events; it stays small
	beat  bool                 // a heartbeat is due
}

func (a *orchestrationAPI) streamEvents(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	id, given := q.lastEventID(r.Header.Get("Last-Event-ID"))
	filter := q.eventFilter()
	err := q.done()
	if err != nil {
		return nil, err
	}
	if filter.kind == domainKind && !mayReadResults(r.Context()) {
		return nil, a.surface.auth.deny(permStepsRead) // they have results
	}
	if a.surface.svc.draining.Load() {
		return nil, failf(unavailable, "the service is shutting down")
	}
	var f *follower
	var after uint64
	if given {
		f, after, err = a.surface.svc.store.eventLog().followAgain(filter, id)
	} else {
		f, after, err = a.surface.svc.store.eventLog().followNow(filter)
	}
	if err != nil {
		return nil, a.surface.shown(r, filter.task, err)
	}
	streams := &a.surface.svc.quotas.streams
	if !streams.take(1) {
		return nil, streams.refuse("%d event streams are open already, as many as events.max_streams allows", streams.most)
	}
	defer streams.give(1)
	w.endWork()
	s := &eventStream{w: w, from: f, valid: func() time.Duration { return a.surface.validFor(r) }}
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
func (q *query) lastEventID(header string) (id string, given bool) {
	name, text := "after", q.text("after")
	if header != "" {
		name, text = "Last-Event-ID", header
	}
	if text == "" {
		return "", false
	}
	if _, err := (lives{}).number(text, 0); err != nil && err != errOtherLife {
		q.refuse("%s must be the id of an event: %v", name, err)
	}
	return text, true
}

func (q *query) eventFilter() (f eventFilter) {
	f.namespace, f.kind = q.text("namespace"), q.oneOf("kind", taskKind, stepKind, domainKind)
	if text := q.text("task_uuid"); text != "" {
		var ok bool
		if f.task, ok = parseUUID(text); !ok && q.err == nil {
			q.err = failf(invalidUUID, "task_uuid: %.60q is not a UUID", text)
		}
	}
	return f
}

// open writes the headers and the id at which the stream begins, and lifts the read deadline of the connection.
func (s *eventStream) open(after uint64) {
	h := s.w.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Accel-Buffering"] = []string{"no"} // for proxies
	h["X-Content-Type-Options"] = []string{"nosniff"}
	http.NewResponseController(s.w).SetReadDeadline(time.Time{}) // a deadline that passes would look like a reader that left
	s.w.WriteHeader(http.StatusOK)
	s.buf = append(s.buf, ": stepwell events\nretry: 1000\n"...)
	if !s.from.missed {
		s.buf = append(s.mark(s.buf), '\n')
		return
	}
	s.buf = s.from.numbers().appendEventID(append(s.buf, '\n'), s.from.after)
	s.buf = append(s.buf, "event: gap\ndata: {"...)
	s.buf = strconv.AppendUint(append(s.buf, `"requested":`...), after, 10)
	s.buf = strconv.AppendUint(append(s.buf, `,"oldest_available":`...), s.from.oldest, 10)
	s.buf = append(s.buf, "}\n\n"...)
	s.sent = s.from.after
}

// mark appends the id that the stream has reached, which may belong to a record that
// the reader's filter excludes. An id without data is not an event.
func (s *eventStream) mark(b []byte) []byte {
	if s.from.after > s.sent {
		s.sent = s.from.after
		b = s.from.numbers().appendEventID(b, s.sent)
	}
	return b
}

// run writes events until the stream ends.
func (s *eventStream) run(ctx context.Context) {
	beat, expiry := time.NewTicker(eventHeartbeat), time.NewTimer(s.valid())
	defer beat.Stop()
	defer expiry.Stop()
	for ctx.Err() == nil {
		// A stream can outlive the credential that opened it.
		if s.valid() == 0 {
			s.end("the credential has expired")
			return
		}
		// Before the events are read, so that one that comes in between is not missed.
		news := s.from.news()
		more, open := s.send()
		if !open || !s.pause(ctx) || !more && !s.await(ctx, news, beat.C, expiry.C) {
			return
		}
	}
}

// eventShare is how long a stream pauses for each of the other ones, so that many streams
// together take a bounded share of the machine: they write more at a time instead.
const eventShare = 100 * time.Microsecond

// pause lets events collect. It reports whether the stream continues.
func (s *eventStream) pause(ctx context.Context) bool {
	pause := time.Duration(s.from.others()) * eventShare
	if pause >= time.Millisecond {
		closedWithin(ctx, s.from.ended(), pause)
	}
	return ctx.Err() == nil
}

// await waits until there may be something to send. It reports whether the stream is still open.
func (s *eventStream) await(ctx context.Context, news <-chan struct{}, beat, expiry <-chan time.Time) (open bool) {
	select {
	case <-s.from.ended():
		s.end("the service is shutting down")
		return false
	case <-ctx.Done():
		return false
	case <-expiry: // by real time
	case <-news:
	case <-beat:
		s.beat = true
	}
	return true
}

// eventTexts are buffers, since most streams are idle most of the time.
var eventTexts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// send writes the buffer and the next events. It reports whether more events wait,
// and whether the stream is still open: the reader may have left or be too slow.
func (s *eventStream) send() (more, open bool) {
	b := eventTexts.Get().(*bytes.Buffer)
	defer eventTexts.Put(b)
	b.Reset()
	c := s.from.nextChunk(append(b.AvailableBuffer(), s.buf...))
	// Events are a sign of life as well.
	if s.beat && c.moves == 0 {
		c.text = append(s.mark(append(c.text, ": heartbeat\n"...)), '\n')
	}
	s.beat = false
	if c.behind {
		s.from.cutOff()
		s.end("this stream fell behind; reconnect with the last id")
		return false, false
	}
	if c.moves > 0 && s.w.hold(cap(c.text)) != nil {
		s.from.cutOff()
		s.end("too many requests are under way; reconnect with the last id")
		return false, false
	}
	defer s.w.release()
	b.Write(c.text) // in place, unless it grew
	s.buf = s.buf[:0]
	if !s.write(b.Bytes()) {
		return false, false
	}
	s.sent = max(s.sent, c.id)
	s.from.sent(c.moves)
	return c.more, true
}

func (s *eventStream) end(why string) {
	s.write(append(append(append(s.buf, ": "...), why...), "\n\n"...))
}

// write writes a text, and reports whether the reader took it in time.
func (s *eventStream) write(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	err := s.w.sendNow(text)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.from.cutOff()
	}
	return err == nil
}

// Deliveries of domain events to subscribers.

// deliveryFilter reads the filter of deliveries.
func (q *query) deliveryFilter() deliveryFilter {
	return deliveryFilter{q.text("subscriber"), q.oneOf("status", deliveryPending, deliveryDelivered, deliveryDead)}
}

func (a *orchestrationAPI) listDeliveries(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := q.deliveryFilter()
	skip, limit, err := q.listPage(w, 50, 512)
	if err != nil {
		return nil, err
	}
	v := deliveryListView{Deliveries: []eventDeliveryView{}, Subscribers: []subscriberView{}}
	if a.surface.svc.publisher != nil {
		v = a.surface.svc.publisher.list(f, skip, limit)
	}
	return v, a.surface.svc.store.waitAll(r.Context())
}

func (a *orchestrationAPI) resendDelivery(w *responseWriter, r *http.Request) (any, error) {
	id, p := r.PathValue("id"), a.surface.svc.publisher
	if p == nil {
		return nil, failf(unavailable, "the service has no subscribers")
	}
	// This answer comes after that of the subscriber.
	release, err := a.surface.holdOpen(w, r, p.timeoutOf(id))
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := p.resend(r.Context(), id)
	if err != nil {
		return nil, a.surface.svc.store.refuse(r.Context(), err)
	}
	return v, a.surface.svc.store.waitAll(r.Context())
}
