package main

// Derived ids and chance: what a service in lockstep takes from its seed. Each
// follows from what it is for, so that it makes no difference what else was
// drawn before, or whether a read came between.

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

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
