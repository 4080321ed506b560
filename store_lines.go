package main

// The lines of tasks that are over, in memory. Then the index of the dead letter queue: all
// entries in the order they were made, by reason and by status, and the figures that need no
// scan. Then the requests that wait for a task.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shortLine is a line in which bytes below 0x20, which a line does not have, stand for the
// lineWords and what comes after them. A line that cannot be shortened is kept as it is.
type shortLine []byte

// maxShortened is the longest line that is shortened: of a longer one most is text from outside.
const maxShortened = 8 << 10

// lineWord is a text that most lines have.
type lineWord struct {
	text string
	then wordTail
}

// wordTail is the kind of text after a word.
type wordTail uint8

const (
	thenAny  wordTail = iota // not shortened
	thenID                   // an id: 16 bytes
	thenHash                 // 32 hexadecimal digits: 16 bytes
	thenSame                 // those after the last word with a hash: nothing
	thenTime                 // a number: its distance from the last time
	thenSeq                  // a number: its distance from the last sequence
)

// lineWords are the words, by their codes. Of two that a text begins with, the first that fits counts.
var lineWords = [...]lineWord{
	{taskHead, thenID}, {`","state":"complete","created":`, thenTime}, {`","state":"`, thenAny},
	{`","created":`, thenTime}, {`,"updated":`, thenTime}, {`,"completed":`, thenTime},
	{`,"template":"`, thenSame}, {`,"template":"`, thenHash}, {`","seq":`, thenSeq}, {`,"last":`, thenSeq},
	{`,"steps":{"complete":`, thenAny}, {logWord, thenSeq}, {`},{"seq":`, thenSeq}, {`,"at":`, thenTime},
	{`,"kind":"created"`, thenAny}, {`,"kind":"ran","step":`, thenAny}, {`,"kind":"started","step":`, thenAny},
	{`,"kind":"ended","step":`, thenAny}, {`,"kind":"claimed","step":`, thenAny}, {`,"kind":"`, thenAny},
	{`,"began":`, thenAny}, {`,"ok":false,"`, thenAny}, {`,"result":`, thenAny}, {`,"lease":"`, thenHash},
	{`","until":`, thenTime}, {`,"identity":"`, thenHash}, {`,"context":{`, thenAny}, {`,"initiator":"`, thenAny},
	{`","correlation":"`, thenID}, {`,"retry_at":`, thenTime}, {`,"worker":"`, thenAny}, {`,"error":{"message":"`, thenAny},
}

// The word that ends a header.
const (
	logWord = `},"log":[{"seq":`
	logCode = 11
)

// wordsAt lists the words by their fourth byte.
var wordsAt = func() (at [256][]byte) {
	for k, w := range lineWords {
		at[w.text[3]] = append(at[w.text[3]], byte(k))
	}
	return at
}()

// wordBegin is the first eight bytes of a word, or all of it, and a mask for these.
type wordBegin struct {
	bytes, mask uint64
	shadowed    bool // an earlier word begins with this one, or this one with it
}

var wordBegins = func() (begins [len(lineWords)]wordBegin) {
	for k, w := range lineWords {
		b := &begins[k]
		for i := range min(len(w.text), 8) {
			b.bytes |= uint64(w.text[i]) << (8 * i)
			b.mask |= 0xff << (8 * i)
		}
		b.shadowed = slices.ContainsFunc(lineWords[:k], func(earlier lineWord) bool {
			return strings.HasPrefix(w.text, earlier.text) || strings.HasPrefix(earlier.text, w.text)
		})
	}
	return begins
}()

// wordEdges has the bytes at which a word may begin, and those that a line does not have.
var wordEdges = func() (edges [256]bool) {
	for b := range edges {
		edges[b] = b < 0x20 || b == '"' || b == ',' || b == '{' || b == '}'
	}
	return edges
}()

// wordOrder holds the word that came last after each word, and after the begin of a line: most lines
// have the same words in the same order.
type wordOrder [len(lineWords) + 1]byte

// lineCoder shortens a line, or restores one.
type lineCoder struct {
	b    []byte
	last [thenSeq + 1]int64 // the last number of each kind
	id   uuid               // the last id or hash
	hash []byte             // the digits of the last hash
}

// shorten appends a line in its short form, or as it is.
func (o *wordOrder) shorten(to, line []byte) []byte {
	if len(line) > maxShortened {
		return append(to, line...)
	}
	c, before := lineCoder{b: to}, byte(len(lineWords))
	for i := 0; i < len(line); {
		if wordEdges[line[i]] {
			if k, n := c.word(line[i:], o[before]); n > 0 {
				o[before], before = k, k
				i += n
				continue
			}
			if line[i] < 0x20 {
				return append(to, line...)
			}
		}
		n := 1
		for i+n < len(line) && !wordEdges[line[i+n]] {
			n++
		}
		c.b = append(c.b, line[i:i+n]...)
		i += n
	}
	if len(line) == 0 || c.b[len(to)] != 0 {
		return append(to, line...)
	}
	return c.b
}

// word shortens the word that a text begins with; it tries the likely one first. It returns the word's code, and
// the length of the word with what comes after it; 0 if no word fits.
func (c *lineCoder) word(text []byte, likely byte) (k byte, n int) {
	if len(text) < 8 {
		return 0, 0
	}
	begin := binary.LittleEndian.Uint64(text)
	if w := &wordBegins[likely]; (begin^w.bytes)&w.mask == 0 && !w.shadowed {
		if n = c.shortenWord(likely, text); n > 0 {
			return likely, n
		}
	}
	for _, k := range wordsAt[text[3]] {
		if w := &wordBegins[k]; (begin^w.bytes)&w.mask == 0 {
			if n = c.shortenWord(k, text); n > 0 {
				return k, n
			}
		}
	}
	return 0, 0
}

// shortenWord shortens a word, whose first eight bytes a text begins with, and what comes after it. It
// returns their length; 0 if the text does not go on with them, or they would not come back as they are.
func (c *lineCoder) shortenWord(k byte, text []byte) int {
	w := &lineWords[k]
	if len(w.text) > 8 && (len(text) < len(w.text) || string(text[8:len(w.text)]) != w.text[8:]) {
		return 0
	}
	rest, n := text[len(w.text):], 0
	switch w.then {
	case thenAny:
		c.b = append(c.b, k)
	case thenTime, thenSeq:
		v, digits := leadingNumber(rest)
		if digits == 0 {
			return 0
		}
		c.b = binary.AppendVarint(append(c.b, k), v-c.last[w.then])
		c.last[w.then], n = v, digits
	case thenSame:
		if n = len(c.hash); n == 0 || !bytes.HasPrefix(rest, c.hash) {
			return 0
		}
		c.b = append(c.b, k)
	default:
		if n = 36; w.then == thenHash {
			n = 32
		}
		if len(rest) < n {
			return 0
		}
		id, ok := parseUUID(rest[:n])
		if !ok || hasUpper(rest[:n]) {
			return 0
		}
		if w.then == thenHash {
			c.hash = rest[:n]
		}
		c.b = append(append(c.b, k), id[:]...)
	}
	return len(w.text) + n
}

// hasUpper reports whether an id has a capital letter.
func hasUpper(id []byte) bool {
	for _, b := range id {
		if b >= 'A' && b <= 'F' {
			return true
		}
	}
	return false
}

// leadingNumber reads a number of up to 18 digits, without leading zeros. It returns how many it has, 0 for none.
func leadingNumber(text []byte) (v int64, n int) {
	for len(text) >= n+8 && n < 16 {
		eight, ok := eightDigits(binary.LittleEndian.Uint64(text[n:]))
		if !ok {
			break
		}
		v, n = v*1e8+eight, n+8
	}
	for n < len(text) && n < 18 && '0' <= text[n] && text[n] <= '9' {
		v = 10*v + int64(text[n]-'0')
		n++
	}
	if n > 1 && text[0] == '0' {
		return 0, 0
	}
	return v, n
}

// eightDigits returns the number of eight digits, of which the first is in the lowest byte.
func eightDigits(b uint64) (v int64, ok bool) {
	const high, zeros = 0xf0f0f0f0f0f0f0f0, 0x3030303030303030
	if b&high != zeros || (b+0x0606060606060606)&high != zeros {
		return 0, false
	}
	b -= zeros
	b = (b*10 + b>>8) & 0x00ff00ff00ff00ff
	b = (b*100 + b>>16) & 0x0000ffff0000ffff
	return int64((b*10000 + b>>32) & 0xffffffff), true
}

// isWhole reports whether the line was kept as it is.
func (l shortLine) isWhole() bool { return len(l) == 0 || l[0] != 0 }

// taskID returns the id of the task.
func (l shortLine) taskID() (id uuid, ok bool) {
	if l.isWhole() {
		return lineID(l)
	}
	return uuid(l[1:17]), true
}

// text returns the line.
func (l shortLine) text() []byte { return l.textIn(nil) }

// textIn is text, in memory that it may use.
func (l shortLine) textIn(room []byte) []byte {
	if l.isWhole() {
		return l
	}
	return l.appendText(slices.Grow(room[:0], 6*len(l)), "")
}

// appendText appends a line that is not whole, up to a word unless that is "".
func (l shortLine) appendText(to []byte, end string) []byte {
	c := lineCoder{b: to}
	for i := 0; i < len(l); {
		if l[i] >= 0x20 {
			c.b, i = append(c.b, l[i]), i+1
			continue
		}
		w := &lineWords[l[i]]
		if w.text == end {
			break
		}
		c.b = append(c.b, w.text...)
		i += 1 + c.take(w.then, l[i+1:])
		c.restore(w.then)
	}
	return c.b
}

// take reads the text after a word, and returns the length of its short form.
func (c *lineCoder) take(then wordTail, short []byte) int {
	switch then {
	case thenTime, thenSeq:
		v, n := binary.Varint(short)
		c.last[then] += v
		return n
	case thenID, thenHash:
		c.id = uuid(short[:len(c.id)])
		return len(c.id)
	}
	return 0
}

// restore appends what was taken.
func (c *lineCoder) restore(then wordTail) {
	switch then {
	case thenTime, thenSeq:
		c.b = strconv.AppendInt(c.b, c.last[then], 10)
	case thenID:
		c.b = c.id.appendText(c.b)
	case thenHash:
		c.b = hex.AppendEncode(c.b, c.id[:])
		c.hash = c.b[len(c.b)-2*len(c.id):]
	case thenSame:
		c.b = append(c.b, c.hash...)
	}
}

// number returns the number after a name in the header; 0 for none.
func (l shortLine) number(name string) uint64 {
	if l.isWhole() {
		return lineNumber(l, name)
	}
	var room [512]byte
	return lineNumber(l.appendText(room[:0], logWord), name)
}

// lineOf returns the line of a task that is over.
func (s *store) lineOf(t *task) shortLine {
	line := t.appendTaskLine(s.room[:0])
	s.room = s.order.shorten(line, line)
	short := s.room[len(line):]
	if len(line) > maxShortened {
		s.room = nil
	}
	return append(make(shortLine, 0, len(short)), short...)
}

// decodedLines holds small tasks that ended last, by position, because their clients usually ask
// for them at once. Nobody changes these tasks.
type decodedLines [64]struct {
	line shortLine
	task *task
}

// keep keeps a task beside its line. The engine may still change one with a queued step.
func (d *decodedLines) keep(t *task, line shortLine) {
	if len(t.log) <= smallCopy && !slices.ContainsFunc(t.steps, func(s step) bool { return s.queued }) {
		place := &d[t.pos%uint32(len(d))]
		place.line, place.task = line, t
	}
}

// find returns the task of a line, or nil. A line never changes, so it names its task.
func (d *decodedLines) find(pos uint32, line shortLine) *task {
	place := &d[pos%uint32(len(d))]
	if len(line) == 0 || len(place.line) == 0 || &place.line[0] != &line[0] {
		return nil
	}
	return place.task
}

// The dead letters.

// dlqRow is one entry in the index. The entry itself is in its task.
type dlqRow struct {
	letterHeader
	id   uuid
	task uuid
	n    uint32 // index among the task's entries
}

// dlqIndex is guarded by the store's mutex. Rows are numbered in the order in
// which the entries were made.
type dlqIndex struct {
	rows      []dlqRow
	byID      map[uuid]uint32
	all       bitset
	byReason  [dlqReasons]bitset
	byStatus  [dlqStatuses]bitset
	pending   [dlqReasons]bitset
	counts    [dlqReasons][dlqStatuses]int
	resolving [dlqReasons]time.Duration // total time that entries took to leave Pending
	holes     int                       // rows of dropped tasks; their id is zero
	meet      bitMeet                   // room for a list
}

// took returns how long the entry took to leave Pending; never negative, even
// if the clock was set back.
func (h *letterHeader) took() time.Duration { return max(h.resolved.sub(h.at), 0) }

func newDLQIndex() *dlqIndex { return &dlqIndex{byID: map[uuid]uint32{}} }

// appendDLQRows appends the rows of one task's entries.
func appendDLQRows(rows []dlqRow, id uuid, letters []letterHeader) []dlqRow {
	for n, h := range letters {
		rows = append(rows, dlqRow{h, dlqEntryID(id, h.at, h.seq), id, uint32(n)})
	}
	return rows
}

// maxDLQHoles is how many rows without an entry there may be beyond as many
// with one.
const maxDLQHoles = 1024

// inOrder returns an index of the same entries in the order in which they were
// made; a start finds them in another order.
func (x *dlqIndex) inOrder() *dlqIndex {
	slices.SortFunc(x.rows, func(a, b dlqRow) int { return cmp.Compare(a.seq, b.seq) })
	y := newDLQIndex()
	for _, r := range x.rows {
		if !r.id.isZero() {
			y.insert(r)
		}
	}
	return y
}

// update brings the index up to date with the entries of a changed task.
func (x *dlqIndex) update(t *task) {
	for n := range t.dead {
		h := t.dead[n].letterHeader
		id := dlqEntryID(t.id, h.at, h.seq)
		i, ok := x.byID[id]
		if !ok {
			x.insert(dlqRow{h, id, t.id, uint32(n)})
			continue
		}
		if x.rows[i].letterHeader != h {
			x.unmark(i)
			x.rows[i].letterHeader = h
			x.mark(i)
		}
	}
}

// remove removes the entries of a task.
func (x *dlqIndex) remove(task uuid, letters []letterHeader) {
	for _, h := range letters {
		id := dlqEntryID(task, h.at, h.seq)
		i, ok := x.byID[id]
		if !ok {
			continue
		}
		x.unmark(i)
		x.all.clear(i)
		x.byReason[h.reason].clear(i)
		delete(x.byID, id)
		x.rows[i] = dlqRow{}
		x.holes++
	}
	if x.holes > maxDLQHoles+len(x.byID) {
		*x = *x.inOrder()
	}
}

func (x *dlqIndex) insert(r dlqRow) {
	i := uint32(len(x.rows))
	x.rows = append(x.rows, r)
	x.byID[r.id] = i
	x.all.set(i)
	x.byReason[r.reason].set(i)
	x.mark(i)
}

// mark counts a row under its status.
func (x *dlqIndex) mark(i uint32) {
	r := &x.rows[i]
	x.byStatus[r.status].set(i)
	if r.status == dlqPending {
		x.pending[r.reason].set(i)
	}
	x.count(r, 1)
}

// unmark undoes mark.
func (x *dlqIndex) unmark(i uint32) {
	r := &x.rows[i]
	x.byStatus[r.status].clear(i)
	x.pending[r.reason].clear(i)
	x.count(r, -1)
}

func (x *dlqIndex) count(r *dlqRow, n int) {
	x.counts[r.reason][r.status] += n
	if r.status != dlqPending {
		x.resolving[r.reason] += time.Duration(n) * r.took()
	}
}

func (x *dlqIndex) find(id uuid) (dlqRow, bool) {
	i, ok := x.byID[id]
	if !ok {
		return dlqRow{}, false
	}
	return x.rows[i], true
}

// dlqFilter selects entries; nil members select all.
type dlqFilter struct {
	status *dlqStatus
	reason *dlqReason
}

// page returns one page of the matching entries, newest first.
func (x *dlqIndex) page(f dlqFilter, skip, limit int) []dlqRow {
	sets := []positionSet{&x.all}
	if f.status != nil {
		sets = append(sets, &x.byStatus[*f.status])
	}
	if f.reason != nil {
		sets = append(sets, &x.byReason[*f.reason])
	}
	var page []dlqRow
	x.meet.of(sets...).descend(skip, func(i uint32) bool {
		page = append(page, x.rows[i])
		return len(page) < limit
	})
	return page
}

// waited returns how old the entry is at the instant now; never negative.
func (r *dlqRow) waited(now instant) time.Duration { return max(now.sub(r.at), 0) }

// dlqWeights is the weight of each reason in the investigation queue.
var dlqWeights = [dlqReasons]float64{
	dlqDependencyCycle: 1000, dlqMaxRetriesExceeded: 500, dlqStalenessTimeout: 100, dlqWorkerUnavailable: 50,
	dlqManual: 10,
}

// priority returns an entry's priority in the investigation queue at the
// instant now.
func (r *dlqRow) priority(now instant) float64 {
	return dlqWeights[r.reason] + r.waited(now).Minutes()
}

// queue returns the pending entries with the highest priority, highest first;
// of one reason only, unless that is nil. Within a reason those are the oldest,
// so it looks at no more than limit of each.
func (x *dlqIndex) queue(only *dlqReason, now instant, limit int) []dlqRow {
	var rows []dlqRow
	for reason := range x.pending {
		if only != nil && *only != dlqReason(reason) {
			continue
		}
		set := &x.pending[reason]
		i, ok := set.next(0)
		for n := 0; ok && n < limit; n++ {
			rows = append(rows, x.rows[i])
			i, ok = set.next(i + 1)
		}
	}
	slices.SortStableFunc(rows, func(a, b dlqRow) int { return cmp.Compare(b.priority(now), a.priority(now)) })
	return rows[:min(limit, len(rows))]
}

// dlqFigures is the statistics of one reason.
type dlqFigures struct {
	reason         dlqReason
	counts         [dlqStatuses]int
	total          int
	oldest, newest instant
	resolving      time.Duration // in sum, of entries that are not pending
}

// figures returns the statistics of each reason that has entries.
func (x *dlqIndex) figures() []dlqFigures {
	var list []dlqFigures
	for reason := range x.byReason {
		set := &x.byReason[reason]
		oldest, ok := set.next(0)
		if !ok {
			continue
		}
		f := dlqFigures{
			reason: dlqReason(reason), counts: x.counts[reason], total: set.count(),
			oldest: x.rows[oldest].at, resolving: x.resolving[reason],
		}
		set.descend(0, func(i uint32) bool {
			f.newest = x.rows[i].at
			return false
		})
		list = append(list, f)
	}
	return list
}

// deadLetters returns one page of the letters that match, newest first, and for each
// the log of its task.
func (s *store) deadLetters(f dlqFilter, skip, limit int) (page []dlqRow, logs []taskLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page = s.dead.page(f, skip, limit)
	logs = make([]taskLog, len(page))
	for i, r := range page {
		pos, _ := s.byID.find(r.task)
		logs[i] = s.logLocked(pos)
	}
	return page, logs
}

// queuedLetter is a letter of the investigation queue and its task as it is now.
type queuedLetter struct {
	dlqRow
	tpl   *template
	state taskState
	since instant // when the task came into the state
}

// letterQueue returns the pending letters with the highest priority, highest
// first; of one reason alone unless that is nil.
func (s *store) letterQueue(only *dlqReason, now instant, limit int) ([]queuedLetter, error) {
	s.mu.Lock()
	rows := s.dead.queue(only, now, limit)
	queue := make([]queuedLetter, len(rows))
	ended := make([]shortLine, len(rows)) // lines of tasks that ended
	for i, r := range rows {
		queue[i].dlqRow = r
		pos, _ := s.byID.find(r.task)
		sl := &s.slots[pos]
		if t := sl.live; t != nil {
			queue[i].tpl, queue[i].state, queue[i].since = t.tpl, t.state, t.since
		} else {
			ended[i] = sl.line
		}
	}
	s.mu.Unlock()
	for i, line := range ended {
		if line == nil {
			continue
		}
		h, err := readTaskHeader(line.text())
		if err != nil {
			return nil, err
		}
		queue[i].tpl, queue[i].state, queue[i].since = s.template(h.template), h.state, h.completed
	}
	return queue, nil
}

// dlqFigures returns the statistics of the dead letter queue.
func (s *store) dlqFigures() []dlqFigures {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead.figures()
}

// Waiting for a task: requests that are answered when it comes into a state.

// waitEnd is why a wait ended.
type waitEnd string

const (
	waitReached  waitEnd = ""         // the task entered the state
	waitTimedOut waitEnd = "timeout"  // the limit passed first
	waitEnded    waitEnd = "ended"    // the task is over and can never enter it
	waitExpired  waitEnd = "expired"  // the caller's credential expired first; the server says so
	waitShutdown waitEnd = "shutdown" // the service ends
	waitReset    waitEnd = "reset"    // the service was reset
)

// waiters are the requests that wait, by task. store.mu guards them.
type waiters struct {
	tasks  map[uuid]*awaited
	count  int     // number of waiters
	closed waitEnd // why nobody may wait any more; "" while waiting is allowed
}

// awaited is one task and its waiters.
type awaited struct {
	wants  stateSet // the states that any of them waits for, and the final states
	passed stateSet // states that the task entered since the waiters were last notified
	all    []*waiter
}

// waiter is one wait. Its end may be read once done is closed.
type waiter struct {
	task  uuid
	wants stateSet
	place int // in awaited.all
	done  chan struct{}
	end   waitEnd
	found slot // the task at that moment; empty if it must be looked up
}

// join adds a waiter for a task that is in a state.
func (w *waiters) join(id uuid, wants stateSet, state taskState) *waiter {
	n := &waiter{task: id, wants: wants, done: make(chan struct{})}
	if w.closed != "" {
		n.finish(w.closed, slot{})
		return n
	}
	if w.tasks == nil {
		w.tasks = map[uuid]*awaited{}
	}
	a := w.tasks[id]
	if a == nil {
		a = &awaited{wants: finalStates}
		w.tasks[id] = a
	}
	n.place = len(a.all)
	a.all = append(a.all, n)
	a.wants |= wants
	a.passed |= wants & setOf(state) // the task may be in the state since its creation just now
	w.count++
	return n
}

// moved is told every transition. It costs next to nothing while nobody waits.
func (w *waiters) moved(id uuid, to taskState) {
	if w.count == 0 {
		return
	}
	if a := w.tasks[id]; a != nil {
		a.passed |= setOf(to)
	}
}

// hasNews reports whether notify has somebody to tell.
func (w *waiters) hasNews(id uuid) bool {
	if w.count == 0 {
		return false
	}
	a := w.tasks[id]
	if a == nil {
		return false
	}
	if a.passed&a.wants == 0 {
		a.passed = 0
		return false
	}
	return true
}

// notify ends the waits for states that the task entered. All of them share the
// slot: the task as it is now.
func (w *waiters) notify(id uuid, now slot) {
	a := w.tasks[id]
	all, passed := a.all, a.passed
	a.all, a.wants, a.passed = all[:0], finalStates, 0
	for _, n := range all {
		switch {
		case n.wants&passed != 0:
			n.finish(waitReached, now)
		case passed&finalStates != 0:
			n.finish(waitEnded, now)
		default:
			n.place = len(a.all)
			a.all = append(a.all, n)
			a.wants |= n.wants
		}
	}
	w.count -= len(all) - len(a.all)
	clear(all[len(a.all):])
	if len(a.all) == 0 {
		delete(w.tasks, id)
	}
}

// finish ends the wait.
func (n *waiter) finish(end waitEnd, found slot) {
	n.end, n.found = end, found
	close(n.done)
}

// finished reports whether the wait has ended.
func (n *waiter) finished() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// withdraw ends one wait for another reason, unless it has ended. awaited.wants
// keeps its states: that only makes a few extra looks.
func (w *waiters) withdraw(n *waiter, why waitEnd, found slot) {
	if n.finished() {
		return
	}
	a := w.tasks[n.task]
	last := len(a.all) - 1
	a.all[n.place] = a.all[last]
	a.all[n.place].place = n.place
	a.all[last] = nil
	if a.all = a.all[:last]; last == 0 {
		delete(w.tasks, n.task)
	}
	w.count--
	n.finish(why, found)
}

// dropTask ends the waits for a task that is dropped, with the task as it was.
func (w *waiters) dropTask(id uuid, was slot) {
	a := w.tasks[id]
	if a == nil {
		return
	}
	for _, n := range a.all {
		n.finish(waitEnded, was)
	}
	w.count -= len(a.all)
	delete(w.tasks, id)
}

// releaseAll ends every wait. The tasks are looked up afterwards, if they still
// exist.
func (w *waiters) releaseAll(why waitEnd) {
	for _, a := range w.tasks {
		for _, n := range a.all {
			n.finish(why, slot{})
		}
	}
	w.tasks, w.count = nil, 0
}

// await begins a wait for a task to enter one of the states. It is over at once
// if the task is in one or can never be.
func (s *store) await(id uuid, wants stateSet) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos, ok := s.byID.find(id)
	if !ok {
		return nil, taskNotFound(id)
	}
	state, err := s.stateLocked(pos)
	if err != nil {
		return nil, err
	}
	end, over := waitReached, wants.has(state)
	if !over && state.final() {
		end, over = waitEnded, true
	}
	if over {
		n := &waiter{task: id, wants: wants, done: make(chan struct{})}
		n.finish(end, s.copyLocked(pos))
		return n, nil
	}
	return s.waiters.join(id, wants, state), nil
}

// stateLocked returns the state of the task at a position.
func (s *store) stateLocked(pos uint32) (taskState, error) {
	if live := s.slots[pos].live; live != nil {
		return live.state, nil
	}
	h, err := readTaskHeader(s.slots[pos].line.text())
	return h.state, err
}

// stopWaiting ends a wait at its limit, with the task as it is, unless it has
// ended.
func (s *store) stopWaiting(n *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found slot
	if pos, ok := s.byID.find(n.task); ok && !n.finished() {
		found = s.copyLocked(pos)
	}
	s.waiters.withdraw(n, waitTimedOut, found)
}

// notifyWaiters tells the waiters of a task which states it entered.
func (s *store) notifyWaiters(t *task) {
	if !s.waiters.hasNews(t.id) {
		return
	}
	now := s.copyLocked(t.pos)
	if now.live == nil && len(t.steps)*stepMemory <= smallCopy {
		now.live = t.clone() // in less time than they would need to decode its line
	}
	s.waiters.notify(t.id, now)
}
