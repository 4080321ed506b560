package main

// Identifiers, random numbers and secrets. A service takes all of them from one source,
// which a test or fixture mode can make repeatable.

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
	// One test for all digits: unhex gives 255 for what is no digit.
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
	// The counter has the 62 bits after the variant, then the 12 bits after the version, which a carry reaches.
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

// minus returns how many places u comes after v in v's counter; ok is false when u is not one of the next 2^31 after v.
func (u uuid) minus(v uuid) (n int, ok bool) {
	d := (binary.BigEndian.Uint64(u[8:]) - binary.BigEndian.Uint64(v[8:])) & (1<<62 - 1)
	if d >= 1<<31 || v.plus(int(d)) != u {
		return 0, false
	}
	return int(d), true
}

// stableID returns the version 8 id derived from names: always the same for the same names.
func stableID(names ...string) (u uuid) {
	hash := sha256.Sum256(appendSized(nil, names...))
	copy(u[:], hash[:])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// appendSized appends texts, each after its length, so that different lists never give the same bytes.
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

// newIDSource returns a source seeded by the operating system, or a repeatable one with a fixed seed.
func newIDSource(c clock, seed *[32]byte) *idSource {
	fake := seed != nil
	if !fake {
		seed = new([32]byte)
		cryptorand.Read(seed[:])
	}
	return &idSource{clock: c, rand: rand.New(rand.NewChaCha8(*seed)), fake: fake}
}

// reserve makes n consecutive ids and returns the first; the others are first.plus(1) and so on. The time in an id is
// the clock's, or that of the previous id if the clock went back.
func (s *idSource) reserve(n int) uuid {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := uint64(max(s.clock.now(), 0)) / 1000
	// In the same millisecond, or after the clock went back, count on: ids order tasks by their creation.
	if last := s.last.millis(); ms <= last && !s.last.isZero() {
		first := s.last.plus(1)
		s.last = first.plus(n - 1)
		return first
	}
	var u uuid
	// The highest bit of the counter begins as 0, so that no step of a task can make it overflow into the version.
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

// secretBytes is the number of random bytes in a secret.
const secretBytes = 18

func (u uuid) millis() uint64 { return binary.BigEndian.Uint64(u[0:]) >> 16 }

// Derived ids, random numbers and secrets. Each follows from the seed and its purpose,
// so that it does not depend on what was drawn before.

// derivation derives ids from a seed. They are of version 7: the time, then 32 bits for the number of a block of ids,
// and 42 bits for a hash of seed, parent, name and block, from which the ids of the block count on.
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

// derivedKey returns 32 bytes derived from the seed for a purpose, or zeros if ids are not derived.
func (s *idSource) derivedKey(purpose string) (key [sha256.Size]byte) {
	if s.derived != nil {
		key = s.derived.hash(purpose, uuid{}, "", 0)
	}
	return key
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

// floatOf returns the nth random number in [0, 1) of a step or an event.
func (s *idSource) floatOf(of uuid, n int) float64 {
	if s.derived == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.rand.Float64()
	}
	return float64(s.derived.number("chance", of, "", uint64(n))>>11) / (1 << 53)
}

// secretOf returns a secret for a step, for the store's sequence seq. Nobody can guess it,
// unless the source is repeatable.
func (s *idSource) secretOf(step uuid, seq uint64) string {
	var b [secretBytes]byte
	switch {
	case s.derived != nil:
		h := s.derived.hash("secret", step, "", seq)
		copy(b[:], h[:])
	case s.fake:
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range b {
			b[i] = byte(s.rand.Uint32())
		}
	default:
		cryptorand.Read(b[:])
	}
	return base64.RawURLEncoding.EncodeToString(b[:])
}
