package main

// Lives: each process that writes to a store writes as a life of its own, with a random id. A number that leaves the
// service, in an event id, a cursor, an entity tag or as_of, has the life of the process that wrote the record: so it is
// never taken for a number of another history, as of a copy that went on elsewhere or of a tail that was lost.
//
//	{"life":"9f8e7d6c","from":121,"to":180}
//
// is such a line in the compacted part; before the first record of a process it has no "to".

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// life is the records of one process.
type life struct {
	id   string
	from uint64 // number of its first record
	to   uint64 // and of its last; 0 while that is not known
	sync string // "never", if its records may have been written without syncs
}

const (
	lifeHead   = `{"life":`
	lifeDigits = 8 // of an id
)

func (l *life) members(c *memberCoder) {
	c.text("life", &l.id)
	nonzero(c, "from", &l.from)
	nonzero(c, "to", &l.to)
	c.text("sync", &l.sync)
	c.sum()
}

func readLife(line []byte) (life, error) {
	l, err := readMembers(line, (*life).members)
	if err == nil && (len(l.id) != lifeDigits || strings.Trim(l.id, "0123456789abcdef") != "" || l.from == 0) {
		err = fmt.Errorf("a life must have an id of %d hexadecimal digits, and the number of its first record", lifeDigits)
	}
	return l, err
}

// lives are the lives of a store, the oldest first.
type lives []life

// add adds a life that begins after last, the newest record so far.
func (l *lives) add(next life, last uint64) error {
	if n := len(*l); n > 0 && (*l)[n-1].from > last { // of which a crash left no record
		*l = (*l)[:n-1]
	}
	n := len(*l)
	switch {
	case n > 0 && (*l)[n-1].id == next.id && next.from == last+1: // the same process, after a compaction
		(*l)[n-1].to, (*l)[n-1].sync = next.to, next.sync
		return nil
	case slices.ContainsFunc(*l, func(known life) bool { return known.id == next.id }):
		return fmt.Errorf("there are two lives %s", next.id)
	case next.from != last+1 && next.to == 0, next.from <= last, next.to != 0 && next.to < next.from:
		return fmt.Errorf("life %s begins with record %d, after record %d", next.id, next.from, last)
	}
	*l = append(*l, next)
	return nil
}

// newID returns an id that no life has. It follows from a seed and the number of lives before, if there is a seed.
func (l lives) newID(seed [32]byte) string {
	for before := len(l); ; before++ {
		var id [lifeDigits / 2]byte
		rand.Read(id[:])
		if seed != ([32]byte{}) {
			sum := hashOf(seed[:], strconv.AppendInt(nil, int64(before), 10))
			copy(id[:], sum[:])
		}
		text := hex.EncodeToString(id[:])
		if !slices.ContainsFunc(l, func(known life) bool { return known.id == text }) {
			return text
		}
	}
}

// nameLives makes a life of the records that no life has, as in a state that was written by hand.
func (s *store) nameLives(seed [32]byte) {
	last := uint64(0)
	if n := len(s.lives); n > 0 {
		last = cmp.Or(s.lives[n-1].to, s.seq) // 0 is that of a life which goes to the end
	}
	if last < s.seq {
		s.lives = append(s.lives, life{id: s.lives.newID(seed), from: last + 1, to: s.seq})
	}
}

// beginLife begins the life of this process, after everything that was read.
func (s *store) beginLife(seed [32]byte) {
	s.lives = append(s.lives, life{id: s.lives.newID(seed), from: s.seq + 1})
}

// upTo returns the lives with records up to seq, each with its last.
func (l lives) upTo(seq uint64) lives {
	var some lives
	for i, one := range l {
		if one.from > seq {
			break
		}
		if one.to = seq; i+1 < len(l) {
			one.to = min(seq, l[i+1].from-1)
		}
		if one.sync = ""; one.from <= one.to { // or a crash left no record of it
			some = append(some, one)
		}
	}
	return some
}

// errOtherLife is the error for a number that no record of this store has.
var errOtherLife = errors.New("it is of another history of the store")

// text returns a number as others are given it: with the life that wrote it. 0 is before all lives.
func (l lives) text(seq uint64) string { return string(l.append(nil, seq)) }

// append appends the text of a number.
func (l lives) append(b []byte, seq uint64) []byte {
	if seq == 0 || len(l) == 0 {
		return strconv.AppendUint(b, seq, 10)
	}
	b = append(append(b, l.of(seq)...), '-')
	return strconv.AppendUint(b, seq, 10)
}

// of returns the id of the life that wrote a record.
func (l lives) of(seq uint64) string {
	i, _ := slices.BinarySearchFunc(l, seq, func(one life, seq uint64) int {
		if one.from <= seq {
			return -1
		}
		return 1
	})
	return l[max(i-1, 0)].id
}

// number reads the text of a number, or a bare one, which is a place in this file whoever wrote it. last is the newest
// record. The error is errOtherLife, with the number, or says what the text must be.
func (l lives) number(text string, last uint64) (seq uint64, err error) {
	id, digits, ofLife := strings.Cut(text, "-")
	if !ofLife {
		digits = id
	}
	seq, err = strconv.ParseUint(digits, 10, 64)
	if err != nil || seq > maxStateCount || len(digits) > 1 && digits[0] == '0' || ofLife && len(id) != lifeDigits {
		return 0, fmt.Errorf("%.60q is not a number, or a life and a number such as %q", text, "9f8e7d6c-12")
	}
	if ofLife && (seq > last || seq == 0 || len(l) == 0 || l.of(seq) != id || seq < l[0].from) {
		return seq, errOtherLife
	}
	return seq, nil
}
