package main

// Domain events: what steps publish by publishes_events, and which of them each subscriber has.
// An event is a function of the record of the outcome and the template, so it needs no record: a
// start finds it again. How events are sent is in service_publish.go.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
)

// The modes of delivery, as indexes of the counts of events.
const (
	modeDurable = iota
	modeFast
	modeBroadcast
	deliveryModes
)

var deliveryModeNames = [deliveryModes]string{"durable", "fast", "broadcast"}

// domainEvent is an event that a step published. It is never changed.
type domainEvent struct {
	*publishedEvent
	seq                     uint64 // of the record of the outcome
	n                       int    // which of the step's declared events it is, from 1
	at                      instant
	task, step, correlation uuid
	tpl                     *template
	stepName                string
	attempt                 int
	success, forNobody      bool
	payload                 []byte // JSON
}

// published returns the outcome of the attempt that a move of a step ends, or what holds because nobody answered the step. It
// returns nil if the template publishes no events, and for a move that ends no attempt by an outcome.
func (t *task) published(i int, from, to stepState) *ending {
	last := t.steps[i].last
	if !t.tpl.publishes || from != stepInProgress && (last == nil || !last.forNobody) {
		return nil
	}
	switch to {
	case stepEnqueuedForOrchestration, stepEnqueuedAsError, stepComplete, stepInError:
		return last
	}
	return nil
}

func (t *task) publishedEvents(i int, from, to stepState, at instant, seq uint64) (events []*domainEvent) {
	end := t.published(i, from, to)
	if end == nil {
		return nil
	}
	def := t.def(i)
	for n := range def.publishes {
		p := &def.publishes[n]
		if p.follows(end.success, end.retryAt != 0) && objectMember(end.withheld, p.name) == nil {
			events = append(events, &domainEvent{
				publishedEvent: p, seq: seq, n: n + 1, at: at, task: t.id, step: t.stepID(i), correlation: t.correlation(),
				tpl: t.tpl, stepName: def.name, attempt: t.steps[i].attempts, success: end.success,
				forNobody: end.forNobody, payload: bytes.Clone(end.payloadOf(p.name)),
			})
		}
	}
	return events
}

// id returns the id of the event, the same after every restart, and of no event of another history of the store.
func (e *domainEvent) id(lives lives) uuid { return lives.eventID(e.task, e.seq, e.n) }

func (l lives) eventID(task uuid, seq uint64, n int) uuid {
	return stableID("domain event", string(task[:]), l.text(seq), strconv.Itoa(n))
}

// appendJSON appends what streams and subscribers get.
func (e *domainEvent) appendJSON(b []byte, lives lives) []byte {
	o := jsonWriter{b: append(b, '{')}
	o.id("id", e.id(lives))
	o.text("type", e.name)
	o.zoned("timestamp", e.at)
	o.number("seq", int(e.seq))
	o.number("n", e.n)
	o.id("task_uuid", e.task)
	o.text("namespace", e.tpl.namespace)
	o.text("name", e.tpl.name)
	o.text("version", e.tpl.version)
	o.id("correlation_id", e.correlation)
	o.id("step_uuid", e.step)
	o.text("step_name", e.stepName)
	o.number("attempt", e.attempt)
	o.flag("success", e.success)
	if e.forNobody {
		o.flag("unanswered", true)
	}
	o.text("delivery_mode", e.mode)
	if e.publisher != "" {
		o.text("publisher", e.publisher)
	}
	o.raw("data", e.payload)
	return append(o.b, '}')
}

// domainLog holds the newest domain events. The store's mutex guards it.
type domainLog struct {
	eventRing
	store *store

	subscriptions []*subscription

	published [deliveryModes]uint64 // since the start
	withheld  uint64                // since the start, because of their schema

	observer func(e *domainEvent) // called under the store's lock with what is published; nil for none
}

// move returns the event as the log holds it.
func (e *domainEvent) move() move {
	return move{seq: e.seq, n: int32(e.n), at: e.at, task: e.task, tpl: e.tpl, published: e}
}

func (l *domainLog) event(number uint64) *domainEvent { return l.move(number).published }

// publish appends what a move of a step by a record publishes. A start finds no fast events again.
func (l *domainLog) publish(t *task, i int, from, to stepState, at instant, seq uint64) {
	end := t.published(i, from, to)
	if end == nil {
		return
	}
	// A store gets its journal only once its files were read.
	starting := l.store.journal == nil
	for _, e := range t.publishedEvents(i, from, to, at, seq) {
		if starting && e.fast() {
			continue
		}
		if l.append(e.move()); !starting {
			l.published[slices.Index(deliveryModeNames[:], e.mode)]++
			if l.observer != nil {
				l.observer(e)
			}
		}
	}
	if !starting && end.withheld != nil {
		l.withheld += uint64(jsonLength(end.withheld))
	}
}

// Subscribers. A subscriber gets its events one after the other. What is on disk is the last
// record whose events are settled, and the events that were given up.

// maxDeadNotices is how many events that were given up are kept for each subscriber.
const maxDeadNotices = 10_000

// subscription holds how far one subscriber got, and what it gave up. It is guarded by the store's mutex,
// as part of the log.
type subscription struct {
	name       string
	from, done uint64       // as in subscriberMark
	dead       []deadNotice // in the order of the events
	unknown    bool         // the journal does not know it yet

	wants     func(e *domainEvent) bool // nil for a subscriber that is not configured
	next      uint64                    // number of the first event that may not be settled
	overtaken []deadNotice              // events that the log dropped before they were sent; not on disk yet
}

func (l *domainLog) number(seq uint64, n int) (number uint64, held bool) {
	for number = l.after(seq - 1); number < l.end() && l.event(number).seq == seq; number++ {
		if l.event(number).n == n {
			return number, true
		}
	}
	return 0, false
}

// subscription returns the subscription with a name, or nil.
func (l *domainLog) subscription(name string) *subscription {
	i := slices.IndexFunc(l.subscriptions, func(s *subscription) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return l.subscriptions[i]
}

// apply applies what happened to a subscriber.
func (l *domainLog) apply(d *subscriberMark) {
	s := l.subscription(d.subscriber)
	if s == nil {
		s = &subscription{name: d.subscriber}
		l.subscriptions = append(l.subscriptions, s)
	}
	s.unknown = false
	s.from, s.done = max(s.from, d.from), max(s.done, d.from, d.done)
	for _, x := range []*deadNotice{d.resent, d.dead} {
		if x == nil {
			continue
		}
		// A notice of an event that has one already replaces it.
		i, known := s.find(x.seq, x.n)
		if known {
			s.dead = slices.Delete(s.dead, i, i+1)
		}
		if x == d.dead {
			s.dead = slices.Insert(s.dead, i, *x)
		}
		if len(s.dead) > maxDeadNotices {
			s.dead = s.dead[1:]
		}
	}
}

// undeliveredEvent is an event that a subscriber did not get, for the views of its task and step.
type undeliveredEvent struct {
	Delivery   string    `json:"delivery"`
	Subscriber string    `json:"subscriber"`
	Type       string    `json:"type"`
	StepUUID   uuid      `json:"step_uuid"`
	StepName   string    `json:"step_name"`
	Attempts   int       `json:"attempts"`
	Problem    *string   `json:"problem"` // of the latest attempt; null for callers who may not know it
	GivenUpAt  zonedTime `json:"given_up_at"`
}

// undelivered returns the events of a task that were given up, by subscriber and in their order, without those
// that are being sent again.
func (l *domainLog) undelivered(t *task) (all []undeliveredEvent) {
	if !t.tpl.publishes {
		return nil
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	for _, sub := range l.subscriptions {
		for i := range sub.dead {
			x := &sub.dead[i]
			if sub.wants == nil || x.task != t.id || l.pending(sub, x) {
				continue
			}
			if step := stepOfRecord(t, x.seq); step >= 0 {
				all = append(all, undeliveredEvent{deliveryID(sub.name, x.seq, x.n), sub.name, x.event, t.stepID(step),
					t.def(step).name, x.attempts, new(x.problem), zonedTime(x.at)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b undeliveredEvent) int {
		return cmp.Or(cmp.Compare(a.Subscriber, b.Subscriber), cmp.Compare(a.GivenUpAt, b.GivenUpAt))
	})
	return all
}

// deliveryID returns the id of one event's delivery to one subscriber.
func deliveryID(subscriber string, seq uint64, n int) string {
	return fmt.Sprintf("%d-%d-%s", seq, n, subscriber)
}

// find returns the place of the notice of an event, and whether there is one.
func (s *subscription) find(seq uint64, n int) (int, bool) {
	return slices.BinarySearchFunc(s.dead, seq, func(x deadNotice, seq uint64) int {
		return cmp.Or(cmp.Compare(x.seq, seq), cmp.Compare(x.n, n))
	})
}

// overtake notes that an event is dropped, for the subscribers that have not received it.
func (l *domainLog) overtake(m *move) {
	for _, s := range l.subscriptions {
		if s.wants == nil || s.next > l.first {
			continue
		}
		if s.next = l.first + 1; s.wants(m.published) && !m.published.fast() {
			s.overtaken = append(s.overtaken, m.published.given(0, 0, "too many events waited for the subscriber"))
		}
	}
}

func (e *domainEvent) given(at instant, attempts int, problem string) deadNotice {
	return deadNotice{e.task, e.seq, e.n, e.name, at, attempts, problem}
}

// subscribe sets which events a subscriber gets. A new subscriber gets only events of later records. The caller
// then calls introduce.
func (l *domainLog) subscribe(name string, wants func(e *domainEvent) bool) {
	l.store.locked(func() {
		sub := l.subscription(name)
		if sub == nil {
			from := max(l.store.seq, 1)
			sub = &subscription{name: name, from: from, done: from, unknown: true}
			l.subscriptions = append(l.subscriptions, sub)
		}
		sub.wants, sub.next = wants, l.after(sub.done)
	})
}

// introduce records a subscriber that the journal does not know yet. Every change does that, so one
// without records of its own suffices.
func (l *domainLog) introduce(name string) (err error) {
	unknown := false
	l.store.locked(func() { unknown = l.subscription(name).unknown })
	if unknown {
		_, err = l.store.update(func(*change) error { return nil })
	}
	return err
}

// introduce records the subscribers that the journal does not know, before what they may get.
func (c *change) introduce() {
	for _, s := range c.s.events.domain.subscriptions {
		if s.unknown {
			c.deliver(&subscriberMark{subscriber: s.name, from: s.from})
		}
	}
}

// deliver journals what happened to a subscriber, and applies it. In memory there is nothing
// to journal: nothing would be found again.
func (c *change) deliver(d *subscriberMark) {
	if !c.s.journal.o.memory {
		c.write(&record{kind: recDelivered, mark: d})
	}
	c.s.events.domain.apply(d)
}

// skip moves on to the first event that the subscriber wants, and returns it; nil for none, and for a subscriber
// that is not known or not configured.
func (l *domainLog) skip(s *subscription) *domainEvent {
	if s == nil || s.wants == nil {
		return nil
	}
	for s.next = max(s.next, l.first); s.next < l.end(); s.next++ {
		if e := l.event(s.next); s.wants(e) {
			return e
		}
	}
	return nil
}

// nextFor returns the event that a subscriber gets next, once it is on disk.
func (l *domainLog) nextFor(name string) (e domainEvent, ok bool) {
	limit := l.store.journal.groups.published.Load()
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	next := l.skip(l.subscription(name))
	if next == nil || next.seq > limit {
		return e, false
	}
	return *next, true
}

// settleLocked notes that a subscriber has an event, or that the event was given up. If the store
// cannot take that, a restart sends the event again.
func (l *domainLog) settleLocked(name string, e *domainEvent, dead *deadNotice) error {
	return l.store.updateLocked(func(c *change) error {
		sub := l.subscription(name)
		for _, lost := range sub.overtaken {
			if lost.at = c.now; lost.seq != e.seq || lost.n != e.n { // that one was on its way
				c.deliver(&subscriberMark{subscriber: name, dead: &lost})
			}
		}
		sub.overtaken = nil
		if sub.next < l.end() && sub.next >= l.first && l.event(sub.next).seq == e.seq {
			sub.next++
		}
		d := &subscriberMark{subscriber: name, dead: dead}
		// done counts whole records: a restart sends all events of a record again until the last one is settled.
		if !l.goesOn(sub, e.seq) {
			d.done = e.seq
		}
		if dead != nil || d.done > 0 && !e.fast() {
			c.deliver(d)
		}
		return nil
	})
}

// goesOn reports whether a record published more for a subscriber that a restart finds again.
func (l *domainLog) goesOn(s *subscription, seq uint64) bool {
	for i := max(s.next, l.first); i < l.end() && l.event(i).seq == seq; i++ {
		if e := l.event(i); !e.fast() && s.wants(e) {
			return true
		}
	}
	return false
}

// resent notes that a subscriber got an event that had been given up.
func (l *domainLog) resent(name string, x *deadNotice) error {
	_, err := l.store.update(func(c *change) error {
		c.deliver(&subscriberMark{subscriber: name, resent: x})
		return nil
	})
	return err
}

// awaited reports whether a subscriber still waits for what a task published. Without the
// task, a restart would not find that again.
func (l *domainLog) awaited(tpl *template, lastSeq uint64) bool {
	return tpl.publishes && slices.ContainsFunc(l.subscriptions, func(s *subscription) bool {
		e := l.skip(s)
		return e != nil && e.seq <= lastSeq
	})
}

// observe sets the function that is called, under the store's lock, with each event that is published.
func (l *domainLog) observe(f func(e *domainEvent)) { l.observer = f }

// news returns a channel that is closed when more is durable.
func (l *domainLog) news() <-chan struct{} { return l.store.journal.groups.publishing.next() }

// awaitedLocked returns the event that a subscriber waits for; nil for none.
func (l *domainLog) awaitedLocked(name string) *domainEvent { return l.skip(l.subscription(name)) }

// waitingLocked counts the events that a subscriber waits for, and those given up.
func (l *domainLog) waitingLocked(name string) (waiting, dead int) {
	sub := l.subscription(name)
	if sub == nil || sub.wants == nil {
		return 0, 0
	}
	if l.skip(sub) != nil {
		for i := sub.next; i < l.end(); i++ {
			waiting += boolCount(sub.wants(l.event(i)))
		}
	}
	return waiting, len(sub.dead)
}

// publishedLocked counts the events since the start by mode, and those withheld.
func (l *domainLog) publishedLocked() (published [deliveryModes]uint64, withheld uint64) {
	return l.published, l.withheld
}

// subscriberHead is the start of the line about a subscriber:
//
//	{"subscriber":"billing","from":12,"done":40,"dead":[{"about":"…","seq":31,"n":1,…}]}
const subscriberHead = `{"subscriber":`

// linesLocked returns those lines, without their closing brace.
func (l *domainLog) linesLocked() (lines [][]byte) {
	for _, s := range l.subscriptions {
		kept := *s
		kept.done = max(s.done, l.lost) // what the log dropped is settled: the subscriber cannot get it
		lines = append(lines, appendMembers(nil, &kept, (*subscription).members))
	}
	return lines
}

func (s *subscription) members(c *memberCoder) {
	c.text("subscriber", &s.name)
	nonzero(c, "from", &s.from)
	nonzero(c, "done", &s.done)
	objects(c, "dead", &s.dead, (*deadNotice).members)
}

// subscriberLine loads such a line.
func (l *restorer) subscriberLine(line []byte) error {
	s, err := readMembers(line, (*subscription).members)
	order := func(a, b deadNotice) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.n, b.n)) }
	switch {
	case err != nil:
		return err
	case s.name == "" || l.s.events.domain.subscription(s.name) != nil:
		return errors.New(`member "subscriber": missing, or of a second line`)
	case !slices.IsSortedFunc(s.dead, order):
		return errors.New(`member "dead": not in the order of the events`)
	}
	l.s.events.domain.subscriptions = append(l.s.events.domain.subscriptions, &s)
	return nil
}

// The deliveries of domain events to subscribers: those that are pending, made or given up.

// The statuses of a delivery.
const (
	deliveryPending   = "pending"
	deliveryDelivered = "delivered"
	deliveryDead      = "dead"
)

// deliveryRow describes the delivery of one event to one subscriber.
type deliveryRow struct {
	subscriber, status string
	first              bool // whether it is the pending delivery that comes next
	notice             deadNotice
}

// deliveryFilter selects deliveries; empty members select all.
type deliveryFilter struct{ subscriber, status string }

// deliveries returns the deliveries to a subscriber, the newest event first: of held events, and in between of those
// that were given up and are no longer held.
func (l *domainLog) deliveries(sub *subscription) iter.Seq[deliveryRow] {
	return func(yield func(r deliveryRow) bool) {
		l.skip(sub)
		dead := len(sub.dead)
		// gone goes through the events given up after a place; those held are passed over.
		gone := func(seq uint64, n int) bool {
			for ; dead > 0; dead-- {
				x := &sub.dead[dead-1]
				if c := cmp.Or(cmp.Compare(x.seq, seq), cmp.Compare(x.n, n)); c < 0 {
					break
				} else if c > 0 && !yield(deliveryRow{sub.name, deliveryDead, false, *x}) {
					return false
				}
			}
			return true
		}
		for number := l.end(); number > l.first; number-- {
			if e := l.event(number - 1); !gone(e.seq, e.n) {
				return
			}
			if r, ok := l.row(sub, number-1); ok && !yield(r) {
				return
			}
		}
		gone(0, 0)
	}
}

// deliveriesLocked returns a page of the deliveries, the newest event first, and how many there
// are in all. Fast events have no deliveries.
func (l *domainLog) deliveriesLocked(f deliveryFilter, offset, limit int) (rows []deliveryRow, total int) {
	for _, sub := range l.subscriptions {
		if sub.wants == nil || f.subscriber != "" && f.subscriber != sub.name {
			continue
		}
		n := 0
		for r := range l.deliveries(sub) {
			if f.status != "" && f.status != r.status {
				continue
			}
			if n++; n <= offset+limit {
				rows = append(rows, r)
			}
		}
		total += n
	}
	slices.SortStableFunc(rows, func(a, b deliveryRow) int {
		return cmp.Or(cmp.Compare(b.notice.seq, a.notice.seq), cmp.Compare(b.notice.n, a.notice.n))
	})
	return rows[min(offset, len(rows)):min(offset+limit, len(rows))], total
}

// deliveryCounts counts the deliveries to one subscriber.
type deliveryCounts struct {
	pending, delivered, dead int
	oldest                   instant      // of the pending events; 0 for none
	next, lastDead           *deliveryRow // the first of those pending, and the newest event given up; nil for none
}

func (l *domainLog) countsLocked(name string) (c deliveryCounts) {
	for r := range l.deliveries(l.subscription(name)) {
		switch r.status {
		case deliveryPending:
			c.pending++
			c.next, c.oldest = &r, r.notice.at
		case deliveryDelivered:
			c.delivered++
		default:
			c.dead++
			c.lastDead = cmp.Or(c.lastDead, &r)
		}
	}
	return c
}

// pending reports whether an event that was given up is tried again since a restart.
func (l *domainLog) pending(sub *subscription, x *deadNotice) bool {
	number, held := l.number(x.seq, x.n)
	return held && number >= sub.next
}

// row returns the delivery of the event with a number to a subscriber, if there is one.
func (l *domainLog) row(sub *subscription, number uint64) (r deliveryRow, ok bool) {
	e := l.event(number)
	x, wanted := sub.deadNotice(e.seq, e.n), e.seq > sub.from && !e.fast() && sub.wants(e)
	switch {
	case wanted && number >= sub.next:
		return deliveryRow{sub.name, deliveryPending, l.skip(sub) == e, e.given(e.at, 0, "")}, true
	case x != nil:
		return deliveryRow{sub.name, deliveryDead, false, *x}, true
	}
	return deliveryRow{sub.name, deliveryDelivered, false, e.given(e.at, 0, "")}, wanted
}

// deadNotice returns the notice of an event that was given up, or nil.
func (s *subscription) deadNotice(seq uint64, n int) *deadNotice {
	if i, ok := s.find(seq, n); ok {
		return &s.dead[i]
	}
	return nil
}

// deliveryOf returns the delivery of an event to a subscriber, and the event.
func (l *domainLog) deliveryOf(name string, seq uint64, n int) (*deliveryRow, *domainEvent, error) {
	var row deliveryRow
	var e *domainEvent
	l.store.locked(func() {
		sub := l.subscription(name)
		if x := sub.deadNotice(seq, n); x != nil {
			row = deliveryRow{name, deliveryDead, false, *x}
		}
		if number, held := l.number(seq, n); held {
			if r, ok := l.row(sub, number); ok {
				row, e = r, l.event(number)
			}
		}
	})
	if row.status == "" {
		return nil, nil, failf(notFound, "there is no delivery %s", deliveryID(name, seq, n))
	}
	if e != nil {
		return &row, e, nil
	}
	// The log has dropped the event. Its task still has it.
	find := &eventFinder{seq: seq, n: n}
	if _, err := l.store.viewObserved(row.notice.task, find, nil); err != nil {
		return nil, nil, err
	}
	if find.event == nil {
		return nil, nil, failf(notFound, "task %s has not published event %d of record %d", row.notice.task, n, seq)
	}
	return &row, find.event, nil
}

// eventFinder finds an event while its task is replayed.
type eventFinder struct {
	unobserved
	seq, now uint64
	n        int
	event    *domainEvent
}

func (f *eventFinder) startRecord(_ *task, r *record) { f.now = r.seq }

func (f *eventFinder) stepMoved(t *task, i int, from, to stepState, at instant) {
	if f.now == f.seq {
		for _, e := range t.publishedEvents(i, from, to, at, f.seq) {
			if e.n == f.n {
				f.event = e
			}
		}
	}
}
