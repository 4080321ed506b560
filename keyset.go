package main

// The life of a key set: fetched at start, refreshed at an interval and for
// unknown key ids, kept for a while when a refresh fails.

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	missingKeyPause  = 10 * time.Second // before a kid that was not found is asked for again
	forcedPerMinute  = 10               // fetches for unknown kids
	maxMissingKeys   = 1000             // remembered kids
	firstRetryPause  = time.Second      // after a failed fetch; doubled each time
	longestRetryWait = 30 * time.Second
)

var errUnknownKey = invalidToken("no key has its kid")

// keyFetch is one fetch in flight.
type keyFetch struct {
	done chan struct{}   // closed when its outcome is in the set
	kids map[string]bool // asked for before it began; guarded by the set's mu
}

// missingKey is a kid that a fetch did not bring.
type missingKey struct {
	until instant // not asked for again before
	err   error   // what its tokens are refused with
}

// keySet holds the current keys of a JWKS endpoint.
type keySet struct {
	fetch    func(context.Context) ([]*verificationKey, error)
	interval time.Duration // between refreshes
	maxStale time.Duration // beyond the interval, while refreshes fail
	clock    clock
	log      *slog.Logger
	changed  func() // called, with mu held, when keys came or went

	ctx    context.Context // of the fetches
	cancel context.CancelFunc

	mu      sync.Mutex
	keys    []*verificationKey    // guarded by mu
	expires instant               // end of the keys' use; zero before the first fetch; guarded by mu
	flight  *keyFetch             // nil when none; guarded by mu
	begun   uint64                // fetches begun; guarded by mu
	pause   time.Duration         // before the next try, after a failure; guarded by mu
	due     uint64                // number of the current timer; older ones do nothing; guarded by mu
	missing map[string]missingKey // by kid, at most maxMissingKeys; guarded by mu
	forced  []instant             // when forced fetches of the last minute began; guarded by mu
}

// newKeySet makes a set and begins its first fetch.
func newKeySet(
	fetch func(context.Context) ([]*verificationKey, error), interval, maxStale time.Duration,
	c clock, log *slog.Logger, changed func(),
) *keySet {
	s := &keySet{
		fetch: fetch, interval: interval, maxStale: maxStale, clock: c, log: log, changed: changed,
		missing: make(map[string]missingKey),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
	return s
}

// close ends fetching and waits for the fetch in flight.
func (s *keySet) close() {
	s.cancel()
	s.mu.Lock()
	flight := s.flight
	s.mu.Unlock()
	if flight != nil {
		<-flight.done
	}
}

// usable tells whether there are keys, fresh or not yet too stale.
func (s *keySet) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked()
}

func (s *keySet) usableLocked() bool { return s.clock.now() < s.expires }

// find is the key of a kid. An unknown one is fetched for, within limits.
func (s *keySet) find(ctx context.Context, header *tokenHeader) (*verificationKey, error) {
	kid := header.keyID
	if kid == "" || len(kid) > maxTokenKeyID {
		return nil, errUnknownKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.begun
	for {
		key, flight, err := s.lookupLocked(header, before)
		if flight == nil {
			return key, err
		}
		s.mu.Unlock()
		select {
		case <-flight.done:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return nil, errKeysUnavailable
		}
	}
}

// lookupLocked is the key, the error, or the fetch to wait for. before is the
// number of the last fetch that began before the key was asked for: such a
// fetch may not know a key that has just been published.
func (s *keySet) lookupLocked(header *tokenHeader, before uint64) (*verificationKey, *keyFetch, error) {
	if !s.usableLocked() {
		if s.flight == nil && (s.pause > 0 || s.ctx.Err() != nil) {
			return nil, nil, errKeysUnavailable
		}
		if s.flight == nil { // due, but its timer is late
			s.beginLocked()
		}
		return nil, s.flight, nil
	}
	if key := s.keyLocked(header); key != nil {
		return key, nil, nil
	}
	now := s.clock.now()
	if m, ok := s.missing[header.keyID]; ok && now < m.until {
		return nil, nil, m.err
	}
	switch {
	case s.flight != nil && s.begun == before: // it began before
		return nil, s.flight, nil
	case s.flight == nil && s.begun > before:
		return nil, nil, s.answerLocked()
	case s.flight == nil && !s.forceLocked(now):
		return nil, nil, errUnknownKey
	}
	if len(s.flight.kids) < maxMissingKeys {
		s.flight.kids[header.keyID] = true
	}
	return nil, s.flight, nil
}

// keyLocked is the key of a kid, by preference one for the token's algorithm.
func (s *keySet) keyLocked(header *tokenHeader) (key *verificationKey) {
	for _, k := range s.keys {
		if k.id != header.keyID {
			continue
		}
		if slices.Contains(k.algorithms, header.algorithm) {
			return k
		}
		key = k
	}
	return key
}

// answerLocked is what a token with an unknown kid is told after a fetch: that
// the kid is unknown, or that nobody can tell when the fetch failed.
func (s *keySet) answerLocked() error {
	if s.pause > 0 {
		return errKeysUnavailable
	}
	return errUnknownKey
}

// noteMissingLocked remembers which of the kids a fetch did not bring.
func (s *keySet) noteMissingLocked(kids map[string]bool) {
	now := s.clock.now()
	maps.DeleteFunc(s.missing, func(_ string, m missingKey) bool { return now >= m.until })
	for kid := range kids {
		if s.keyLocked(&tokenHeader{keyID: kid}) == nil && len(s.missing) < maxMissingKeys {
			s.missing[kid] = missingKey{now.add(missingKeyPause), s.answerLocked()}
		}
	}
}

// forceLocked begins a fetch for an unknown kid if the budget allows it.
func (s *keySet) forceLocked(now instant) bool {
	s.forced = slices.DeleteFunc(s.forced, func(at instant) bool { return now >= at.add(time.Minute) })
	if len(s.forced) >= forcedPerMinute || s.ctx.Err() != nil {
		return false
	}
	s.forced = append(s.forced, now)
	s.beginLocked()
	return true
}

// beginLocked begins a fetch; there is none in flight.
func (s *keySet) beginLocked() {
	s.begun++
	f := &keyFetch{done: make(chan struct{}), kids: make(map[string]bool)}
	s.flight = f
	go func() {
		keys, err := s.fetch(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(f.done)
		s.flight = nil
		if s.ctx.Err() != nil {
			return
		}
		s.settleLocked(keys, err)
		s.noteMissingLocked(f.kids)
	}()
}

// settleLocked takes the outcome of a fetch in and sets the next timer.
func (s *keySet) settleLocked(keys []*verificationKey, err error) {
	now := s.clock.now()
	if err != nil {
		s.failedLocked(err, now)
		return
	}
	if s.pause > 0 {
		s.log.Info("the key set is fetched again")
	}
	s.pause = 0
	s.expires = now.add(s.interval + s.maxStale)
	if !sameKeys(s.keys, keys) {
		s.keys = keys
		s.changed()
	}
	s.scheduleLocked(now.add(s.interval))
}

func (s *keySet) failedLocked(err error, now instant) {
	s.pause = min(max(2*s.pause, firstRetryPause), longestRetryWait)
	left := max(s.expires.sub(now), 0)
	s.log.Warn("fetching the key set failed", "error", err, "keys_usable_for", left, "next_try_in", s.pause)
	s.scheduleLocked(now.add(s.pause))
}

// scheduleLocked sets the timer of the next fetch, which replaces any other.
func (s *keySet) scheduleLocked(when instant) {
	s.due++
	due := s.due
	s.clock.schedule(when, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if due == s.due && s.flight == nil && s.ctx.Err() == nil {
			s.beginLocked()
		}
	})
}

// ready is nil when tokens can be verified.
func (s *keySet) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.usableLocked():
		return nil
	case s.expires == 0:
		return errors.New("the key set was not fetched yet")
	}
	return errors.New("the key set is too old: its refreshes fail")
}
