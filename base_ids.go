package main

// Identifiers and chance: the other things, beside time, that a service takes
// from one place, so that a test can make them repeatable.

import (
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync"
)

// uuid is a UUID in network byte order (RFC 9562). The zero value means "none".
type uuid [16]byte

// String is the canonical form: lower case, 8-4-4-4-12.
func (u uuid) String() string {
	var b [36]byte
	u.put(b[:])
	return string(b[:])
}

// appendText appends the canonical form.
func (u uuid) appendText(dst []byte) []byte {
	var b [36]byte
	u.put(b[:])
	return append(dst, b[:]...)
}

func (u uuid) put(b []byte) {
	hex.Encode(b[0:8], u[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], u[10:16])
}

func (u uuid) isZero() bool { return u == uuid{} }

// MarshalText implements encoding.TextMarshaler.
func (u uuid) MarshalText() ([]byte, error) { return u.appendText(nil), nil }

// parseUUID reads the canonical form, in either case. Nothing else is accepted:
// no braces, no URN, no missing hyphens.
func parseUUID(s string) (u uuid, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	for n, at := range [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		hi, lo := unhex(s[at]), unhex(s[at+1])
		if hi > 15 || lo > 15 {
			return uuid{}, false
		}
		u[n] = hi<<4 | lo
	}
	return u, true
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// plus is the identifier n places after u in the counter of a version 7 id: a
// task's steps are numbered on from the task.
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

// minus is how many places u comes after v in v's counter; ok is false when u
// is not one of the next 2^31 after v.
func (u uuid) minus(v uuid) (n int, ok bool) {
	d := (binary.BigEndian.Uint64(u[8:]) - binary.BigEndian.Uint64(v[8:])) & (1<<62 - 1)
	if d >= 1<<31 || v.plus(int(d)) != u {
		return 0, false
	}
	return int(d), true
}

// stableID is the version 8 id derived from the given names: the same names
// always give the same id.
func stableID(names ...string) (u uuid) {
	h := sha256.New()
	for _, n := range names {
		h.Write(binary.AppendUvarint(nil, uint64(len(n))))
		h.Write([]byte(n))
	}
	copy(u[:], h.Sum(nil))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// idSource makes version 7 ids, strictly increasing, and random numbers.
type idSource struct {
	clock clock

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu
	fake bool       // it is repeatable: secrets come from rand, too
	last uuid       // the last id given out; guarded by mu

	derived *derivation // nil unless ids follow from a seed
}

// newIDSource seeds from the operating system; a fixed seed makes it repeatable.
func newIDSource(c clock, seed *[32]byte) *idSource {
	fake := seed != nil
	if !fake {
		seed = new([32]byte)
		cryptorand.Read(seed[:])
	}
	return &idSource{clock: c, rand: rand.New(rand.NewChaCha8(*seed)), fake: fake}
}

// reserve gives out n consecutive ids, of which it returns the first; the
// others are first.plus(1) and so on. The time in an id is the clock's, or that
// of the id before when the clock went back.
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

// observe makes later ids greater than u, which an earlier run gave out.
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

// float is a random number in [0, 1).
func (s *idSource) float() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Float64()
}

// secretBytes is how many random bytes a secret has.
const secretBytes = 18

// secret is a text that nobody can guess, unless the source is repeatable.
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

// Derived ids and chance: what a service in lockstep takes from its seed. Each
// follows from what it is for, so that it makes no difference what else was
// drawn before, or whether a read came between.

// derivation is the source of ids that follow from a seed. An id is of version
// 7: its time, then in 32 bits which block of ids it is of, and in 42 a hash of
// seed, parent, name and block, from which the block is numbered on.
type derivation struct {
	seed string
	last uuid // of the newest block; guarded by the source's mu
}

const (
	blockHashBits = 42
	maxBlock      = 1<<32 - 1
)

// newDerivedIDs is a source whose ids for the store, and chance, follow from the
// seed. Other ids come from a stream of their own.
func newDerivedIDs(c clock, seed string) *idSource {
	stream := sha256.Sum256([]byte(seed))
	s := newIDSource(c, &stream)
	s.derived = &derivation{seed: seed}
	return s
}

// derives tells whether ids for the store follow from their order in it.
func (s *idSource) derives() bool { return s.derived != nil }

// block gives out n consecutive ids, of which it returns the first, for what is
// made under the store's lock: a task, or steps that a parent step creates.
func (s *idSource) block(n int, parent uuid, name string) uuid {
	d := s.derived
	if d == nil {
		return s.reserve(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ms, number := uint64(max(s.clock.now(), 0))/1000, d.last.blockNumber()+1
	if number > maxBlock { // only after ids of another source
		ms, number = max(ms, d.last.millis()+1), 1
	}
	ms = max(ms, d.last.millis())
	hash := d.number("id", parent, name, number) >> (64 - blockHashBits + 1) // with room for the numbering
	var u uuid
	binary.BigEndian.PutUint64(u[0:], ms<<16|7<<12|number>>20)
	binary.BigEndian.PutUint64(u[8:], 1<<63|number&(1<<20-1)<<blockHashBits|hash)
	d.last = u.plus(n - 1)
	return u
}

// blockNumber is which block a derived id is of; 0 for none.
func (u uuid) blockNumber() uint64 {
	high, low := binary.BigEndian.Uint16(u[6:]), binary.BigEndian.Uint64(u[8:])
	return uint64(high&0xfff)<<20 | low>>blockHashBits&(1<<20-1)
}

// hash is 32 bytes that follow from the seed and what they are for.
func (d *derivation) hash(purpose string, parent uuid, name string, ordinal uint64) [sha256.Size]byte {
	var b []byte
	for _, text := range []string{d.seed, purpose, string(parent[:]), name} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return sha256.Sum256(binary.AppendUvarint(b, ordinal))
}

func (d *derivation) number(purpose string, parent uuid, name string, ordinal uint64) uint64 {
	h := d.hash(purpose, parent, name, ordinal)
	return binary.BigEndian.Uint64(h[:])
}

// floatOf is a random number in [0, 1), for the nth time of a step.
func (s *idSource) floatOf(step uuid, n int) float64 {
	if s.derived == nil {
		return s.float()
	}
	return float64(s.derived.number("chance", step, "", uint64(n))>>11) / (1 << 53)
}

// secretOf is a secret for a step, after a sequence of the store.
func (s *idSource) secretOf(step uuid, seq uint64) string {
	if s.derived == nil {
		return s.secret()
	}
	h := s.derived.hash("secret", step, "", seq)
	return base64.RawURLEncoding.EncodeToString(h[:secretBytes])
}
