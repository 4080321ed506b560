package main

// The room for answers. It counts what an answer holds until its reader has taken it: buffers, and copies of large
// tasks. Very short answers, which net/http copies, are not counted. Long answers are made in turns, so that they leave
// processor time for others.

import (
	"cmp"
	"errors"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	stalledAfter   = time.Second      // an answer that waits longer for its reader may be cut to make room
	answerPatience = 10 * time.Second // how long a client may take to read a piece
	roomPatience   = 2 * time.Second  // how long a request waits for room
	maxRoomWaiters = 64               // requests that wait, public ones at most half of it; further ones are refused at once
)

// answerRoom bounds what the answers of a process hold.
type answerRoom struct {
	limit int           // bytes; the last quarter is for short answers
	turns chan struct{} // holds a token for each long answer that is being made

	mu      sync.Mutex
	taken   int // bytes; guarded by mu, like all below
	shares  map[*answerShare]bool
	waiting int
	freed   chan struct{} // closed when room becomes free
	cut     uint64        // answers cut off because their readers were too slow
	refused uint64        // requests refused for lack of room
}

func newAnswerRoom(limit int64) *answerRoom {
	return &answerRoom{
		limit: int(limit), turns: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1)),
		shares: map[*answerShare]bool{}, freed: make(chan struct{}),
	}
}

// answerShare is the part of the room that one request holds.
type answerShare struct {
	room *answerRoom
	w    http.ResponseWriter
	turn bool // it holds one of the turns

	coding int // bytes that compressing the answer takes

	bytes int     // guarded by the room's mu, like all below
	since instant // when the write in progress began; 0 for none
	cut   bool
}

// holdEach makes sure that the request has room for a list of n elements, unless it is
// short.
func (w *responseWriter) holdEach(n, bytes int) error {
	if n*bytes < smallCopy {
		return nil
	}
	return w.hold(n * bytes)
}

// holdTurn waits for a turn to work on a body, unless that is short.
func (w *responseWriter) holdTurn(body []byte) error {
	if len(body) < smallCopy {
		return nil
	}
	return w.hold(0)
}

// holdTemplates makes sure that the request has room for a list of the templates.
func (s *surface) holdTemplates(w *responseWriter) error {
	return w.holdEach(len(s.svc.templates.registry().all()), 256)
}

// hold takes room for n bytes of a long answer, in addition to streamMemory, and waits a little for it; then it waits
// for a turn.
func (w *responseWriter) hold(n int) error {
	s := &w.share
	most := s.room.limit / 4 * 3
	// Nobody waits for room while holding a turn: those who could free room may need it.
	s.endTurn()
	err := w.grow(min(n+streamMemory+s.coding, most), most)
	if err == nil {
		s.takeTurn()
	}
	return err
}

// holdShort makes sure that a short answer has room for n bytes, and waits a little
// for it.
func (w *responseWriter) holdShort(n int) error { return w.grow(n, w.share.room.limit) }

// grow enlarges the share to n bytes, if all shares then have at most most. A request that gets no room is the last on
// its connection.
func (w *responseWriter) grow(n, most int) error {
	s, r, waiters := &w.share, w.share.room, maxRoomWaiters
	if w.caller == nil { // anybody can ask for what is public, and must leave room to others
		waiters /= 2
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for until := realNow().add(roomPatience); s.bytes < n && r.taken+n-s.bytes > most; {
		r.cutStalled(r.taken + n - s.bytes - most)
		if r.waiting >= waiters || realNow() >= until {
			r.refused++
			w.Header().Set("Connection", "close")
			return tryLater("other responses use all the memory for responses, a share of store.max_memory_mb")
		}
		r.await()
	}
	if n > s.bytes {
		r.taken += n - s.bytes
		s.bytes = n
		r.shares[s] = true
	}
	return nil
}

// addCoding takes memory for compressing the answer, if there is room for it now.
func (s *answerShare) addCoding() bool {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken+gzipMemory > r.limit/4*3 {
		return false
	}
	r.taken += gzipMemory
	s.bytes += gzipMemory
	s.coding = gzipMemory
	r.shares[s] = true
	return true
}

// endCoding gives back what compressing took.
func (s *answerShare) endCoding() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.giveLocked(s.coding)
	s.coding = 0
}

// await waits until room becomes free, or it is time to look for stalled answers again.
func (r *answerRoom) await() {
	freed := r.freed
	r.waiting++
	r.mu.Unlock()
	receiveWithin(freed, stalledAfter/10)
	r.mu.Lock()
	r.waiting--
}

// cutStalled cuts answers that do not move, the longest stalled ones first, until they
// will free n bytes.
func (r *answerRoom) cutStalled(n int) {
	var stalled []*answerShare
	now := realNow()
	for s := range r.shares {
		switch {
		case s.cut:
			n -= s.bytes
		case s.since != 0 && now.sub(s.since) >= stalledAfter:
			stalled = append(stalled, s)
		}
	}
	slices.SortFunc(stalled, func(a, b *answerShare) int { return cmp.Compare(a.since, b.since) })
	for _, s := range stalled {
		if n <= 0 {
			return
		}
		n -= s.bytes
		s.cut = true
		// A deadline in the past ends the write that is stuck.
		setWriteDeadline(s.w, -time.Second)
	}
}

// takeTurn waits for a turn to make a part of a long answer.
func (s *answerShare) takeTurn() {
	if !s.turn {
		s.room.turns <- struct{}{}
		s.turn = true
	}
}

func (s *answerShare) endTurn() {
	if s.turn {
		<-s.room.turns
		s.turn = false
	}
}

// release gives the share back.
func (s *answerShare) release() {
	s.endTurn()
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.giveLocked(s.bytes)
}

// giveLocked gives back n bytes.
func (s *answerShare) giveLocked(n int) {
	if n == 0 {
		return
	}
	r := s.room
	r.taken -= n
	if s.bytes -= n; s.bytes == 0 {
		delete(r.shares, s)
	}
	if r.waiting > 0 {
		close(r.freed)
		r.freed = make(chan struct{})
	}
}

// write writes one piece, which the reader must take in time.
func (s *answerShare) write(piece []byte) (int, error) {
	if s.turn {
		// A slow reader must not keep others from making their answers.
		s.endTurn()
		defer s.takeTurn()
	}
	s.begin()
	n, err := s.w.Write(piece)
	s.end(err)
	return n, err
}

// begin notes that a write begins.
func (s *answerShare) begin() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.since = realNow()
	if !s.cut {
		setWriteDeadline(s.w, answerPatience)
	}
}

// end notes that the write has ended.
func (s *answerShare) end(err error) {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.since = 0
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.room.cut++
	}
}

// setWriteDeadline gives the writes to a connection some more time. A test's recorder
// has no deadlines.
func setWriteDeadline(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(realDeadline(d))
}
