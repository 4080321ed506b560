package main

// Waiting for news of the event log. A relay looks at each transition once and wakes only the followers
// whose filter may select it. Filters and transitions are compared by marks: a namespace and a task have
// one each, which others may have too.

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// allMarks is how many marks there are.
const allMarks = 1024

// everyMark is the mark of a filter that selects transitions of every task.
const everyMark = -1

// eventMarks is a set of marks.
type eventMarks [allMarks / 64]uint64

func (m *eventMarks) add(mark int)      { m[mark/64] |= 1 << (mark % 64) }
func (m *eventMarks) has(mark int) bool { return m[mark/64]>>(mark%64)&1 != 0 }

func taskMark(id uuid) int { return (int(id[14])<<8 | int(id[15])) % allMarks }

func namespaceMark(name string) int {
	mark := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		mark = (mark ^ uint32(name[i])) * 16777619
	}
	return int(mark % allMarks)
}

// mark returns a mark of all that the filter selects.
func (f *eventFilter) mark() int {
	switch {
	case !f.task.isZero():
		return taskMark(f.task)
	case f.namespace != "":
		return namespaceMark(f.namespace)
	}
	return everyMark
}

// addMarks adds the marks of the moves from a number up to another.
func (l *eventLog) addMarks(marks *eventMarks, from, to uint64) {
	var task uuid
	for ; from < to; from++ {
		if m := l.move(from); m.task != task {
			task = m.task
			marks.add(taskMark(task))
			marks.add(namespaceMark(l.maker.templates[m.template].namespace))
		}
	}
}

// eventSpan holds the marks of spanMoves moves in a row, so that followers need not look at each.
type eventSpan struct {
	end   uint64 // number of the move after them; 0 for none
	marks eventMarks
}

const (
	spanMoves = 64
	keptSpans = 256
)

// spanAt returns the span that begins with a move. All of its moves are held.
func (l *eventLog) spanAt(number uint64) *eventSpan {
	span := &l.spans[number/spanMoves%keptSpans]
	if span.end != number+spanMoves {
		*span = eventSpan{end: number + spanMoves}
		l.addMarks(&span.marks, number, span.end)
	}
	return span
}

// eventRelay tells followers that there may be something for them. It runs while streams are open.
type eventRelay struct {
	streams atomic.Int64 // open now; changed under mu

	mu      sync.Mutex         // taken before the store's; it guards all news too
	stop    chan struct{}      // closed when the last stream is
	waiting map[int]*eventNews // not closed yet, by mark
	told    uint64             // number of the first move that followers were not notified of
}

// eventNews wakes the followers with the same mark.
type eventNews struct {
	done chan struct{} // closed when there may be something for them
	from uint64        // number of the first move that may be, once it is closed
}

// open counts a stream, and starts the relay for the first.
func (r *eventRelay) open(l *eventLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams.Add(1) == 1 {
		r.stop = make(chan struct{})
		go l.tellNews(r.stop)
	}
}

// close counts a stream no more, and stops the relay after the last.
func (r *eventRelay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams.Add(-1) == 0 {
		close(r.stop)
	}
}

// relayShare is how long the relay lets moves collect for each stream besides the first, at most
// relayPause, so that one look serves many.
const (
	relayShare = 10 * time.Microsecond
	relayPause = 10 * time.Millisecond
)

// tellNews tells followers of what is durable until it is stopped.
func (l *eventLog) tellNews(stop <-chan struct{}) {
	r := &l.relay
	for {
		// Before it looks, so that it misses nothing that is published in between.
		news := l.store.journal.groups.publishing.next()
		r.tell(l)
		select {
		case <-stop:
			return
		case <-news:
		}
		pause := min(time.Duration(r.streams.Load()-1)*relayShare, relayPause)
		if pause >= time.Millisecond && closedWithin(context.Background(), stop, pause) == nil {
			return
		}
	}
}

// tell wakes the followers for whom there may be something among the durable moves.
func (r *eventRelay) tell(l *eventLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	marks, end := l.marksSince(r.told)
	for mark, n := range r.waiting {
		if mark == everyMark || marks.has(mark) {
			n.from = r.told
			close(n.done)
			delete(r.waiting, mark)
		}
	}
	r.told = end
}

// marksSince returns the marks of the durable moves from a number on, and the number of the next. If
// there are too many, or some are gone, these are all marks.
func (l *eventLog) marksSince(from uint64) (marks eventMarks, end uint64) {
	limit := l.store.journal.groups.published.Load()
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	end = l.after(limit)
	if from >= l.first && end-from <= keptSpans*spanMoves {
		l.addMarks(&marks, from, end)
		return marks, end
	}
	for i := range marks {
		marks[i] = math.MaxUint64
	}
	return marks, end
}

// news returns a channel that is closed when more for the follower is durable, perhaps also at other
// times. The follower asks for it before it reads, and calls skip before it reads again.
func (f *follower) news() <-chan struct{} {
	r := &f.log.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	mark := f.filter.mark()
	n := r.waiting[mark]
	if n == nil {
		n = &eventNews{done: make(chan struct{})}
		r.waiting[mark] = n
	}
	f.waits = n
	return n.done
}

// skip passes over moves that the filter excludes, as the relay knows, after the follower has read all
// that there were.
func (f *follower) skip() {
	if f.filter.kind == domainKind {
		return
	}
	r := &f.log.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	from := f.waits.from
	if r.waiting[f.filter.mark()] == f.waits { // the relay has found nothing for the follower so far
		from = r.told
	}
	f.next = max(f.next, from)
}
