package main

// The deliveries of domain events to subscribers: those that are pending, made or given up.

import "cmp"

// The statuses of a delivery.
const (
	deliveryPending   = "pending"
	deliveryDelivered = "delivered"
	deliveryDead      = "dead"
)

// deliveryRow describes the delivery of one event to one subscriber.
type deliveryRow struct {
	subscriber, status string
	first              bool // of those pending, the one that comes next
	notice             deadNotice
}

// deliveryFilter selects deliveries; empty members select all.
type deliveryFilter struct{ subscriber, status string }

// deliveriesLocked returns some of the deliveries, the newest event first, and how many there
// are. Fast events are none. It passes over those before the offset, and looks at no others.
func (l *domainLog) deliveriesLocked(f deliveryFilter, offset, limit int) (rows []deliveryRow, total int) {
	var walks []*deliveryWalk
	for _, sub := range l.subscriptions {
		if sub.wants != nil && (f.subscriber == "" || f.subscriber == sub.name) {
			w := l.walk(sub, f.status)
			walks, total = append(walks, w), total+w.total
		}
	}
	for n := 0; n < min(offset+limit, total); n++ {
		var first *deliveryWalk
		for _, w := range walks {
			if w.next() && (first == nil || w.newer(first)) {
				first = w
			}
		}
		if first == nil {
			break
		}
		if n >= offset {
			rows = append(rows, first.row())
		}
		first.take()
	}
	return rows, total
}

// deliveryWalk goes through the deliveries to one subscriber, the newest event first: those of
// held events, and in between those given up.
type deliveryWalk struct {
	log     *domainLog
	sub     *subscription
	status  string // the only one; "" for all
	pending int    // the place of the first pending one among those listed
	listed  int    // how many listed ones are left
	dead    int    // how many of those given up are left
	total   int
}

// walk returns the walk through the deliveries with a status, "" for all.
func (l *domainLog) walk(sub *subscription, status string) *deliveryWalk {
	l.skip(sub)
	w := &deliveryWalk{log: l, sub: sub, status: status, pending: sub.place(sub.next)}
	listed, again := len(sub.listed), 0 // given up before a crash, and tried again
	for i := w.pending; i < listed && l.seqOf(sub, i) == l.seqOf(sub, w.pending); i++ {
		again += boolCount(sub.listed[i].dead)
	}
	pending, dead := listed-w.pending, len(sub.dead)-again
	delivered := w.pending - (sub.listDead - again)
	w.listed, w.dead = listed, len(sub.dead)
	w.total = pending + dead + delivered
	switch status {
	case deliveryPending:
		w.total, w.dead = pending, 0
	case deliveryDelivered:
		w.total, w.listed, w.dead = delivered, w.pending, 0
	case deliveryDead:
		w.total, w.listed = dead, 0
	}
	return w
}

// seqOf returns the record of a listed event.
func (l *domainLog) seqOf(s *subscription, i int) uint64 {
	return l.held[s.listed[i].number-l.first].seq
}

// next reports whether a delivery is left, and skips what is none.
func (w *deliveryWalk) next() bool {
	if w.status == deliveryPending && w.listed <= w.pending {
		w.listed = 0
	}
	for w.listed > 0 && w.listed <= w.pending && w.sub.listed[w.listed-1].dead {
		w.listed-- // it is among those given up
	}
	for w.dead > 0 && w.triedAgain(&w.sub.dead[w.dead-1]) {
		w.dead--
	}
	return w.listed > 0 || w.dead > 0
}

// triedAgain reports whether an event that was given up is pending since a restart.
func (w *deliveryWalk) triedAgain(x *deadNotice) bool {
	if x.seq <= w.log.lost || w.pending == len(w.sub.listed) {
		return false
	}
	number, held := w.log.number(x.seq, x.n)
	return held && number >= w.sub.listed[w.pending].number
}

// place returns the record and the place in it of the next delivery, and whether it was given up.
func (w *deliveryWalk) place() (seq uint64, n int, dead bool) {
	if w.dead > 0 {
		x := &w.sub.dead[w.dead-1]
		seq, n, dead = x.seq, x.n, true
	}
	if w.listed > 0 {
		if e := &w.log.held[w.sub.listed[w.listed-1].number-w.log.first]; !dead || cmp.Or(cmp.Compare(e.seq, seq), cmp.Compare(e.n, n)) > 0 {
			return e.seq, e.n, false
		}
	}
	return seq, n, dead
}

// newer reports whether the event of the next delivery is newer than that of another walk.
func (w *deliveryWalk) newer(other *deliveryWalk) bool {
	seq, n, _ := w.place()
	otherSeq, otherN, _ := other.place()
	return cmp.Or(cmp.Compare(seq, otherSeq), cmp.Compare(n, otherN)) > 0
}

func (w *deliveryWalk) row() deliveryRow {
	if _, _, dead := w.place(); dead {
		return deliveryRow{w.sub.name, deliveryDead, false, w.sub.dead[w.dead-1]}
	}
	r, _ := w.log.row(w.sub, w.sub.listed[w.listed-1].number)
	return r
}

func (w *deliveryWalk) take() {
	if _, _, dead := w.place(); dead {
		w.dead--
	} else {
		w.listed--
	}
}

// row returns the delivery of the event with a number to a subscriber.
func (l *domainLog) row(sub *subscription, number uint64) (r deliveryRow, ok bool) {
	e := &l.held[number-l.first]
	i := sub.place(number)
	if i == len(sub.listed) || sub.listed[i].number != number {
		return r, false
	}
	r = deliveryRow{subscriber: sub.name, status: deliveryDelivered, notice: e.given(e.at, 0, "")}
	if number >= sub.next {
		r.status, r.first = deliveryPending, l.skip(sub) == e
		return r, true
	}
	if x := sub.deadNotice(e.seq, e.n); x != nil {
		r.status, r.notice = deliveryDead, *x
	}
	return r, true
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
		for number := l.after(seq - 1); number < l.end() && l.held[number-l.first].seq == seq; number++ {
			if r, ok := l.row(sub, number); ok && r.notice.n == n {
				row, e = r, new(l.held[number-l.first])
			}
		}
	})
	if row.status == "" {
		return nil, nil, failf(notFound, "there is no delivery %d-%d-%s", seq, n, name)
	}
	if e != nil {
		return &row, e, nil
	}
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
		t.eachPublished(i, from, to, at, f.seq, func(e domainEvent) {
			if e.n == f.n {
				f.event = &e
			}
		})
	}
}
