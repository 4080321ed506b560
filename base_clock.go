package main

// Time, identifiers and chance. First instants, and buckets of many. The clock of a service
// is real or virtual: nothing else reads the wall clock or starts a timer for the delays of
// tasks. Limits that apply in real time in every mode follow it, and then the source of
// identifiers.

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// instant is a time in microseconds since the Unix epoch, UTC, the precision of
// every timestamp of the service. Zero means "none".
type instant int64

func instantOf(t time.Time) instant { return instant(t.UnixMicro()) }

func (i instant) time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// zoned returns the wire form with a trailing Z.
func (i instant) zoned() string { return string(i.appendZoned(nil)) }

// appendZoned appends the wire form with a trailing Z.
func (i instant) appendZoned(b []byte) []byte { return append(i.appendNaive(b), 'Z') }

// appendNaive appends the wire form without a zone, which some fields have:
// YYYY-MM-DDThh:mm:ss.ffffff. Answers have a dozen of them, and Format is slow.
func (i instant) appendNaive(b []byte) []byte {
	t := i.time()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	b = appendDigits(b, year, 4)
	b = appendDigits(append(b, '-'), int(month), 2)
	b = appendDigits(append(b, '-'), day, 2)
	b = appendDigits(append(b, 'T'), hour, 2)
	b = appendDigits(append(b, ':'), minute, 2)
	b = appendDigits(append(b, ':'), second, 2)
	return appendDigits(append(b, '.'), t.Nanosecond()/1000, 6)
}

// appendDigits appends n >= 0 with leading zeros.
func appendDigits(b []byte, n, width int) []byte {
	at := len(b) + width
	b = append(b, "000000"[:width]...)
	for n > 0 && width > 0 {
		at--
		width--
		b[at] = byte('0' + n%10)
		n /= 10
	}
	return b
}

func (i instant) add(d time.Duration) instant { return i + instant(d/time.Microsecond) }

func (i instant) sub(j instant) time.Duration { return time.Duration(i-j) * time.Microsecond }

// instantForm matches either wire form, with 0 to 9 fractional digits; package time
// would also accept a comma and more digits.
var instantForm = compiled(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?$`)

// parseInstant reads either wire form and drops fractions of a microsecond.
func parseInstant(s string) (instant, error) {
	m := instantForm().FindStringSubmatch(s)
	layout := time.RFC3339
	if m != nil && m[2] == "" {
		layout = "2006-01-02T15:04:05"
	}
	t, err := time.Parse(layout, s)
	if m == nil || err != nil {
		return 0, fmt.Errorf("%q is not a timestamp like 2026-01-31T12:00:00Z", s)
	}
	return instantOf(t), nil
}

// timePoint is an instant at a position. Points are in the order of their instants, then
// of their positions.
type timePoint struct {
	at  instant
	pos uint32
}

func (p timePoint) compare(q timePoint) int {
	if p.at != q.at {
		return cmp.Compare(p.at, q.at)
	}
	return cmp.Compare(p.pos, q.pos)
}

const (
	bucketBits = 10
	maxBuckets = 1 << bucketBits
	minBucket  = 256 // points that a bucket may always have
)

// timeScale divides all points into buckets of similar size.
type timeScale struct {
	starts  []timePoint // the first point that each bucket may have, ascending
	sizes   [maxBuckets]int32
	points  int
	last    timePoint // no point is after it
	largest int32     // the size that a bucket had
	looked  int       // instants that searches looked at
}

func newTimeScale() *timeScale { return &timeScale{starts: []timePoint{{math.MinInt64, 0}}} }

// fair is the size that a bucket should have.
func (s *timeScale) fair() int { return max(minBucket, 2*s.points/maxBuckets) }

// bucket returns the bucket of a point.
func (s *timeScale) bucket(p timePoint) int {
	top := len(s.starts) - 1
	if p.compare(s.starts[top]) >= 0 {
		return top
	}
	return sort.Search(top, func(k int) bool { return p.compare(s.starts[k+1]) < 0 })
}

// add counts a new point, and returns its bucket. A point after all others may begin one.
func (s *timeScale) add(p timePoint) int {
	k := s.bucket(p)
	if s.reach(p) && len(s.starts) < maxBuckets && int(s.sizes[k]) >= s.fair() {
		s.starts = append(s.starts, p)
		k++
	}
	s.count(k)
	return k
}

// reach notes a point. It reports whether the point is after all others.
func (s *timeScale) reach(p timePoint) bool {
	later := p.compare(s.last) > 0
	if later {
		s.last = p
	}
	return later
}

func (s *timeScale) count(k int) {
	s.points++
	s.sizes[k]++
	s.largest = max(s.largest, s.sizes[k])
}

func (s *timeScale) remove(k int) {
	s.points--
	s.sizes[k]--
}

// balance makes new buckets for the points of some columns, if one has become too large:
// after a start, when the clock was set back, or once there are no more buckets. It looks at
// every point then, but many were added since.
func (s *timeScale) balance(columns ...*timeColumn) {
	if int(s.largest) <= 4*s.fair() {
		return
	}
	points := s.sample(columns)
	buckets := min(s.points/minBucket, maxBuckets/2)
	*s = *newTimeScale()
	for k := 1; k < buckets; k++ {
		s.begin(points[k*len(points)/buckets])
	}
	for n := len(points) / max(buckets, 1) / 2; n > 0; n /= 2 { // smaller and smaller, because the last are listed most
		s.begin(points[len(points)-n])
	}
	for _, c := range columns {
		c.place()
	}
}

// begin begins a bucket with a point unless one does.
func (s *timeScale) begin(p timePoint) {
	if p != s.starts[len(s.starts)-1] {
		s.starts = append(s.starts, p)
	}
}

// sample returns some of the points in order.
func (s *timeScale) sample(columns []*timeColumn) (points []timePoint) {
	step := s.points>>14 | 1
	for _, c := range columns {
		for i := 0; i < len(c.blocks)*bitBlockBits; i += step {
			b, word, _ := bitsetPlace(uint32(i))
			if block := c.blocks[b]; block != nil && block.words[word] != nil && block.words[word][i%64] != 0 {
				points = append(points, timePoint{block.words[word][i%64], uint32(i)})
			}
		}
	}
	slices.SortFunc(points, timePoint.compare)
	return points
}

// bucketRange includes the buckets of a word, and perhaps more.
type bucketRange struct{ first, last uint16 }

var noBuckets = bucketRange{first: maxBuckets}

func (r *bucketRange) include(o bucketRange) {
	r.first, r.last = min(r.first, o.first), max(r.last, o.last)
}

// apart reports whether the range and the buckets from one to another have none in common.
func (r bucketRange) apart(first, last int) bool { return int(r.last) < first || int(r.first) > last }

// timePlanes has the buckets of a word, each of their bits for all positions.
type timePlanes [bucketBits]uint64

func (p *timePlanes) put(n, bucket int) {
	for j := range p {
		p[j] = p[j]&^(1<<n) | uint64(bucket>>j&1)<<n
	}
}

// bucket returns the bucket of a position.
func (p *timePlanes) bucket(n int) (bucket int) {
	for j := range p {
		bucket |= int(p[j]>>n&1) << j
	}
	return bucket
}

// split returns the positions in buckets below one, and those in it.
func (p *timePlanes) split(bucket int) (below, in uint64) {
	switch {
	case bucket < 0:
		return 0, 0
	case bucket >= maxBuckets:
		return ^uint64(0), 0
	}
	in = ^uint64(0)
	for j := bucketBits - 1; j >= 0; j-- {
		bit := -uint64(bucket >> j & 1)
		below |= in & bit &^ p[j]
		in &^= p[j] ^ bit
	}
	return below, in
}

// between returns the positions in some buckets.
func (p *timePlanes) between(first, last int) uint64 {
	below, _ := p.split(first)
	under, in := p.split(last)
	return (under | in) &^ below
}

// timeSpan is the positions of a column whose points are from one on, and before another.
// It may have positions without an instant, too.
type timeSpan struct {
	column       *timeColumn
	from, before timePoint
	first, last  int // their buckets; -1 and maxBuckets if there is no limit
}

// span returns the positions from a point on, and before another.
func (c *timeColumn) span(from, before timePoint) *timeSpan {
	s := &timeSpan{c, from, before, -1, maxBuckets}
	if from.at != math.MinInt64 {
		s.first = c.scale.bucket(from)
	}
	if before.at != math.MaxInt64 {
		s.last = c.scale.bucket(before)
	}
	return s
}

func (s *timeSpan) reach() int { return s.column.reach() }

func (s *timeSpan) has(i uint32) bool { return s.hasPoint(timePoint{s.column.at(i), i}) }

func (s *timeSpan) hasPoint(p timePoint) bool {
	return p.compare(s.from) >= 0 && p.compare(s.before) < 0
}

func (s *timeSpan) block(b int, room *bitBlock) (*bitBlock, int) {
	block, ranges := s.column.block(b)
	switch {
	case block == nil || ranges.outer.apart(s.first, s.last):
		return nil, 0
	case s.includes(ranges.outer):
		return everyPosition, bitBlockBits
	}
	n := 0
	for i, r := range ranges.words {
		switch {
		case r.apart(s.first, s.last):
			room[i] = 0
		case s.includes(r):
			room[i] = ^uint64(0)
			n += 64
		default:
			room[i] = s.word(block, r, i, uint32(b*bitBlockBits+i*64))
			n += bits.OnesCount64(room[i])
		}
	}
	return room, n
}

// includes reports whether the span has all positions with a bucket in a range.
func (s *timeSpan) includes(r bucketRange) bool {
	return int(r.first) > s.first && int(r.last) < s.last
}

// word returns the positions of a word, which begins at one and has buckets in a range. It looks at
// the instants in the outermost buckets.
func (s *timeSpan) word(block *timeBlock, r bucketRange, word int, base uint32) uint64 {
	below, first, under, last := uint64(0), uint64(0), ^uint64(0), uint64(0)
	if int(r.first) <= s.first {
		below, first = block.planes[word].split(s.first)
	}
	if int(r.last) >= s.last {
		under, last = block.planes[word].split(s.last)
	}
	found := under &^ (below | first)
	edge := first&(under|last) | last&^below
	for ; edge != 0; edge &= edge - 1 {
		n := bits.TrailingZeros64(edge)
		s.column.scale.looked++
		if s.hasPoint(timePoint{block.words[word][n], base + uint32(n)}) {
			found |= 1 << n
		}
	}
	return found
}

// clock tells the time and runs timers.
type clock interface {
	now() instant
	// schedule calls f once now() has reached when, in the clock's goroutine or,
	// for a virtual clock, in the one that moves it. f may be called although the
	// timer was cancelled, so it checks whether it still has something to do.
	schedule(when instant, f func()) *timer
	// scheduleHousekeeping is schedule for work that no task waits for: it is
	// never a reason to move a virtual clock.
	scheduleHousekeeping(when instant, f func()) *timer
}

// timer is a function to be called at a time.
type timer struct {
	when instant
	seq  uint64 // orders timers that are due at the same instant
	f    func()
	in   *timers
	at   int // its place in the queue; -1 once it left
}

// cancel removes the timer, unless it has fired. It may be called under any lock
// that f takes.
func (t *timer) cancel() { t.in.remove(t) }

// timers is a queue of timers with a lock. The zero value is empty.
type timers struct {
	mu    sync.Mutex
	queue priorityQueue[*timer] // by due time, then in the order of scheduling
	seq   uint64
}

// insert adds a timer and reports whether it is now the earliest.
func (t *timers) insert(when instant, f func()) (inserted *timer, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue.before == nil {
		t.queue.before = func(a, b *timer) bool { return a.when < b.when || a.when == b.when && a.seq < b.seq }
		t.queue.placed = func(one *timer, place int) { one.at = place }
	}
	t.seq++
	inserted = &timer{when: when, seq: t.seq, f: f, in: t}
	t.queue.push(inserted)
	return inserted, inserted.at == 0
}

func (t *timers) remove(which *timer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if which.at >= 0 {
		t.queue.remove(which.at)
		which.at = -1
	}
}

// due removes the earliest timer and returns its function if it is due at now.
func (t *timers) due(now instant) (func(), bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue.items) == 0 || t.queue.items[0].when > now {
		return nil, false
	}
	first := t.queue.pop()
	first.at = -1
	return first.f, true
}

// next returns the due time of the earliest timer.
func (t *timers) next() (instant, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue.items) == 0 {
		return 0, false
	}
	return t.queue.items[0].when, true
}

// overdue returns how long the earliest timer has been due; 0 when none is.
func (t *timers) overdue(now instant) time.Duration {
	next, ok := t.next()
	if !ok {
		return 0
	}
	return max(now.sub(next), 0)
}

// realClock is the wall clock, except that it never goes back: when somebody sets the
// machine's clock back, it goes on from where it was, until a restart. So nothing has to wait
// once more for what is over. One goroutine fires its timers until stop. The zero value tells
// the machine's time.
type realClock struct {
	timers timers
	wake   chan struct{} // holds one token when an earlier timer was inserted
	done   chan struct{}
	once   sync.Once

	machine func() (wall instant, elapsed time.Duration) // the machine's clocks: by date, and without steps
	ahead   atomic.Int64                                 // most microseconds that wall was ahead of elapsed
}

const (
	clockLook  = time.Second      // how often it looks whether somebody moved the machine's clock on, or suspended it
	clockNoise = time.Millisecond // by which the machine's two clocks may differ
)

func newRealClock() *realClock {
	began := time.Now()
	return startClock(func() (instant, time.Duration) {
		t := time.Now()
		return instantOf(t), t.Sub(began)
	})
}

func startClock(machine func() (wall instant, elapsed time.Duration)) *realClock {
	c := &realClock{wake: make(chan struct{}, 1), done: make(chan struct{}), machine: machine}
	go c.run()
	return c
}

func (c *realClock) now() instant {
	now, lead := c.read()
	return now.add(lead)
}

// read returns the machine's time and how far this clock is ahead of it, because it was set
// back.
func (c *realClock) read() (wall instant, lead time.Duration) {
	if c.machine == nil {
		return realNow(), 0
	}
	wall, elapsed := c.machine()
	ahead := int64(wall) - elapsed.Microseconds()
	for {
		most := c.ahead.Load()
		if ahead <= most {
			lead = time.Duration(most-ahead) * time.Microsecond
			break
		}
		if c.ahead.CompareAndSwap(most, ahead) {
			break
		}
	}
	if lead < clockNoise {
		lead = 0
	}
	return wall, lead
}

func (c *realClock) schedule(when instant, f func()) *timer {
	t, first := c.timers.insert(when, f)
	if first {
		offerToken(c.wake)
	}
	return t
}

func (c *realClock) scheduleHousekeeping(when instant, f func()) *timer { return c.schedule(when, f) }

// overdue returns how late the timers are.
func (c *realClock) overdue() time.Duration { return c.timers.overdue(c.now()) }

// stop ends the timer goroutine; timers that are not due yet never fire.
func (c *realClock) stop() { c.once.Do(func() { close(c.done) }) }

func (c *realClock) run() {
	for {
		for f, ok := c.timers.due(c.now()); ok; f, ok = c.timers.due(c.now()) {
			f()
		}
		var alarm <-chan time.Time
		var t *time.Timer
		if next, ok := c.timers.next(); ok {
			t = time.NewTimer(min(next.sub(c.now()), clockLook))
			alarm = t.C
		}
		select {
		case <-alarm:
		case <-c.wake:
		case <-c.done:
			return
		}
		if t != nil {
			t.Stop()
		}
	}
}

// Real time, whatever the clock: limits on outside handlers, disks and peers.

// realNow returns the machine's time.
func realNow() instant { return instantOf(time.Now()) }

// afterReal calls f after d, in a new goroutine.
func afterReal(d time.Duration, f func()) { time.AfterFunc(d, f) }

// realDeadline returns the deadline of a connection, d from now.
func realDeadline(d time.Duration) time.Time { return time.Now().Add(d) }

// receiveWithin receives a value from c, unless d passes first.
func receiveWithin[T any](c <-chan T, d time.Duration) (v T, ok bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case v = <-c:
		return v, true
	case <-t.C:
		return v, false
	}
}

// errTooLong is the error of closedWithin when its limit has passed.
var errTooLong = errors.New("the limit passed")

// closedWithin waits until done is closed, ctx ends, or d passes.
func closedWithin(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return errTooLong
	}
}

// zonedTime is an instant in JSON, null for none.
type zonedTime instant

// MarshalJSON implements json.Marshaler.
func (t zonedTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), instant.appendZoned) }

// naiveTime is zonedTime without a zone, the form of some fields.
type naiveTime instant

// MarshalJSON implements json.Marshaler.
func (t naiveTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), instant.appendNaive) }

func marshalTime(t instant, form func(instant, []byte) []byte) ([]byte, error) {
	if t == 0 {
		return []byte("null"), nil
	}
	return append(form(t, append(make([]byte, 0, 32), '"')), '"'), nil
}

// Identifiers, random numbers and secrets. A service takes all of them from one source,
// which a test or fixture mode can make repeatable.

// uuid is a UUID in network byte order (RFC 9562). The zero value means "none".
type uuid [16]byte

// String returns the canonical form: lower case, 8-4-4-4-12.
func (u uuid) String() string {
	var room [36]byte
	return string(u.appendText(room[:0]))
}

// appendText appends the canonical form.
func (u uuid) appendText(dst []byte) []byte {
	dst = append(dst, "00000000-0000-0000-0000-000000000000"...)
	b := dst[len(dst)-36:]
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	return dst
}

func (u uuid) isZero() bool { return u == uuid{} }

// MarshalText implements encoding.TextMarshaler.
func (u uuid) MarshalText() ([]byte, error) { return u.appendText(nil), nil }

// parseUUID reads the canonical form, with its four hyphens or with none, in either
// case, and nothing else: no braces, no URN.
func parseUUID[T string | []byte](s T) (u uuid, ok bool) {
	places := [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}
	if len(s) == 32 {
		places = [16]int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}
	} else if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	all := byte(0)
	for n, at := range places {
		hi, lo := unhex(s[at]), unhex(s[at+1])
		all |= hi | lo
		u[n] = hi<<4 | lo
	}
	if all > 15 {
		return uuid{}, false
	}
	return u, true
}

func unhex(c byte) byte { return hexValues[c] }

// hexValues has the value of each hexadecimal digit, and 255 for other bytes.
var hexValues = func() (values [256]byte) {
	for c := range values {
		values[c] = 255
	}
	for n, c := range []byte("0123456789abcdef") {
		values[c] = byte(n)
	}
	for n, c := range []byte("ABCDEF") {
		values[c] = byte(n + 10)
	}
	return values
}()

// plus returns the identifier n places after u in the counter of a version 7 id. The
// ids of a task's steps follow the task's own.
func (u uuid) plus(n int) uuid {
	lo := binary.BigEndian.Uint64(u[8:]) & (1<<62 - 1)
	sum := lo + uint64(n)
	carry := uint16(sum >> 62)
	binary.BigEndian.PutUint64(u[8:], sum&(1<<62-1)|1<<63)
	if carry > 0 {
		a := binary.BigEndian.Uint16(u[6:])
		binary.BigEndian.PutUint16(u[6:], 7<<12|(a+carry)&0xfff)
	}
	return u
}

// minus returns how many places u comes after v in v's counter; ok is false when u is
// not one of the next 2^31 after v.
func (u uuid) minus(v uuid) (n int, ok bool) {
	d := (binary.BigEndian.Uint64(u[8:]) - binary.BigEndian.Uint64(v[8:])) & (1<<62 - 1)
	if d >= 1<<31 || v.plus(int(d)) != u {
		return 0, false
	}
	return int(d), true
}

// stableID returns the version 8 id derived from names: always the same for the same
// names.
func stableID(names ...string) (u uuid) {
	hash := sha256.Sum256(appendSized(nil, names...))
	copy(u[:], hash[:])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// appendSized appends texts, each after its length, so that different lists never give
// the same bytes.
func appendSized(b []byte, texts ...string) []byte {
	for _, text := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return b
}

// idSource makes strictly increasing version 7 ids, random numbers and secrets.
type idSource struct {
	clock clock

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu
	fake bool       // repeatable: secrets come from rand as well
	last uuid       // the last id made; guarded by mu

	derived *derivation // nil unless ids follow from a seed
}

// newIDSource returns a source seeded by the operating system, or a repeatable one with
// a fixed seed.
func newIDSource(c clock, seed *[32]byte) *idSource {
	fake := seed != nil
	if !fake {
		seed = new([32]byte)
		cryptorand.Read(seed[:])
	}
	return &idSource{clock: c, rand: rand.New(rand.NewChaCha8(*seed)), fake: fake}
}

// reserve makes n consecutive ids and returns the first; the others are first.plus(1)
// and so on. The time in an id is the clock's, or that of the previous id if the clock
// went back.
func (s *idSource) reserve(n int) uuid {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := uint64(max(s.clock.now(), 0)) / 1000
	if last := s.last.millis(); ms <= last && !s.last.isZero() {
		first := s.last.plus(1)
		s.last = first.plus(n - 1)
		return first
	}
	var u uuid
	binary.BigEndian.PutUint64(u[0:], ms<<16|7<<12|uint64(s.rand.Uint32N(1<<11)))
	binary.BigEndian.PutUint64(u[8:], s.rand.Uint64N(1<<62)|1<<63)
	s.last = u.plus(n - 1)
	return u
}

// random returns a version 4 id, which reveals nothing about the ids that reserve makes.
func (s *idSource) random() (u uuid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	binary.BigEndian.PutUint64(u[0:], s.rand.Uint64()&^(0xf<<12)|4<<12)
	binary.BigEndian.PutUint64(u[8:], s.rand.Uint64N(1<<62)|1<<63)
	return u
}

// observe makes later ids greater than u, which an earlier run made.
func (s *idSource) observe(u uuid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := &s.last
	if s.derived != nil {
		last = &s.derived.last
	}
	if string(u[:]) > string(last[:]) {
		*last = u
	}
}

// float returns a random number in [0, 1).
func (s *idSource) float() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Float64()
}

// secretBytes is the number of random bytes in a secret.
const secretBytes = 18

// secret returns a text that nobody can guess, unless the source is repeatable.
func (s *idSource) secret() string {
	var b [secretBytes]byte
	if !s.fake {
		cryptorand.Read(b[:])
		return base64.RawURLEncoding.EncodeToString(b[:])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b {
		b[i] = byte(s.rand.Uint32())
	}
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (u uuid) millis() uint64 { return binary.BigEndian.Uint64(u[0:]) >> 16 }

// Derived ids, random numbers and secrets. Each follows from the seed and its purpose,
// so that it does not depend on what was drawn before.

// derivation derives ids from a seed. They are of version 7: the time, then 32 bits
// for the number of a block of ids, and 42 bits for a hash of seed, parent, name and
// block, from which the ids of the block count on.
type derivation struct {
	seed string
	last uuid // of the newest block; guarded by the source's mu
}

const (
	blockHashBits = 42
	maxBlock      = 1<<32 - 1
)

// newDerivedIDs returns a source that derives ids for the store and random numbers from
// the seed. Other ids come from a separate stream.
func newDerivedIDs(c clock, seed string) *idSource {
	stream := sha256.Sum256([]byte(seed))
	s := newIDSource(c, &stream)
	s.derived = &derivation{seed: seed}
	return s
}

// derives reports whether ids for the store are derived.
func (s *idSource) derives() bool { return s.derived != nil }

// block makes n consecutive ids and returns the first, for a task, or for the steps
// that a parent step creates. It is called under the store's lock.
func (s *idSource) block(n int, parent uuid, name string) uuid {
	d := s.derived
	if d == nil {
		return s.reserve(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ms, number := uint64(max(s.clock.now(), 0))/1000, d.last.blockNumber()+1
	if number > maxBlock { // only after ids from another source
		ms, number = max(ms, d.last.millis()+1), 1
	}
	ms = max(ms, d.last.millis())
	hash := d.number("id", parent, name, number) >> (64 - blockHashBits + 1) // leaves room to count
	var u uuid
	binary.BigEndian.PutUint64(u[0:], ms<<16|7<<12|number>>20)
	binary.BigEndian.PutUint64(u[8:], 1<<63|number&(1<<20-1)<<blockHashBits|hash)
	d.last = u.plus(n - 1)
	return u
}

// blockNumber returns the number of a derived id's block; 0 for none.
func (u uuid) blockNumber() uint64 {
	high, low := binary.BigEndian.Uint16(u[6:]), binary.BigEndian.Uint64(u[8:])
	return uint64(high&0xfff)<<20 | low>>blockHashBits&(1<<20-1)
}

// hash returns 32 bytes derived from the seed and their purpose.
func (d *derivation) hash(purpose string, parent uuid, name string, ordinal uint64) [sha256.Size]byte {
	b := appendSized(nil, d.seed, purpose, string(parent[:]), name)
	return sha256.Sum256(binary.AppendUvarint(b, ordinal))
}

func (d *derivation) number(purpose string, parent uuid, name string, ordinal uint64) uint64 {
	h := d.hash(purpose, parent, name, ordinal)
	return binary.BigEndian.Uint64(h[:])
}

// floatOf returns the nth random number in [0, 1) of a step.
func (s *idSource) floatOf(step uuid, n int) float64 {
	if s.derived == nil {
		return s.float()
	}
	return float64(s.derived.number("chance", step, "", uint64(n))>>11) / (1 << 53)
}

// secretOf returns a secret for a step, for the store's sequence seq.
func (s *idSource) secretOf(step uuid, seq uint64) string {
	if s.derived == nil {
		return s.secret()
	}
	h := s.derived.hash("secret", step, "", seq)
	return base64.RawURLEncoding.EncodeToString(h[:secretBytes])
}
