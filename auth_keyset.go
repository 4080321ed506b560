package main

// A key set (JWKS, RFC 7517): fetched at start, refreshed at an interval and for
// unknown key ids, used for a while when refreshes fail. Then the decoding of its text.

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"sync"
	"time"
)

const (
	missingKeyPause  = 10 * time.Second // before a kid that was not found is fetched for again
	forcedPerMinute  = 10               // fetches for unknown kids
	maxMissingKeys   = 1000             // unknown kids remembered
	firstRetryPause  = time.Second      // after a failed fetch; doubled each time
	longestRetryWait = 30 * time.Second
)

var errUnknownKey = invalidToken("no key has its kid")

// keyFetch is one fetch in flight.
type keyFetch struct {
	done chan struct{}   // closed when its outcome is in the set
	kids map[string]bool // that tokens wait for; guarded by the set's mu
}

// missingKey is a kid that a fetch did not find.
type missingKey struct {
	until instant // not fetched for again before
	err   error   // for its tokens
}

// keySet holds the current keys of a JWKS endpoint.
type keySet struct {
	fetch    func(context.Context) ([]*verificationKey, error)
	interval time.Duration // between refreshes
	maxStale time.Duration // beyond the interval, while refreshes fail
	clock    clock
	log      *slog.Logger
	changed  func() // called with mu held when the keys changed

	ctx    context.Context // of the fetches
	cancel context.CancelFunc

	mu      sync.Mutex
	keys    []*verificationKey    // guarded by mu
	expires instant               // when the keys become unusable; zero before the first fetch; guarded by mu
	flight  *keyFetch             // nil when none; guarded by mu
	begun   uint64                // fetches started; guarded by mu
	pause   time.Duration         // before the next try, after a failure; guarded by mu
	due     uint64                // number of the current timer; older timers do nothing; guarded by mu
	missing map[string]missingKey // by kid, at most maxMissingKeys; guarded by mu
	forced  []instant             // start times of the last minute's forced fetches; guarded by mu
}

// newKeySet returns a set and starts its first fetch.
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

// close stops fetching and waits for the fetch in flight.
func (s *keySet) close() {
	s.cancel()
	s.mu.Lock()
	flight := s.flight
	s.mu.Unlock()
	if flight != nil {
		<-flight.done
	}
}

// usable reports whether the keys are fresh or not yet too stale.
func (s *keySet) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked()
}

func (s *keySet) usableLocked() bool { return s.clock.now() < s.expires }

// find returns the key of a kid. For an unknown kid it fetches the set, within limits.
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

// lookupLocked returns the key, an error, or the fetch to wait for. before is the
// number of fetches started before the key was asked for: these may not know a key
// that was just published.
func (s *keySet) lookupLocked(header *tokenHeader, before uint64) (*verificationKey, *keyFetch, error) {
	if !s.usableLocked() {
		if s.flight == nil && (s.pause > 0 || s.ctx.Err() != nil) {
			return nil, nil, errKeysUnavailable
		}
		if s.flight == nil { // it is due, but its timer is late
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
	case s.flight != nil && s.begun == before: // it started before
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

// keyLocked returns the key of a kid, preferably one for the token's algorithm.
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

// answerLocked returns the error for an unknown kid after a fetch: unavailable keys
// if the fetch failed.
func (s *keySet) answerLocked() error {
	if s.pause > 0 {
		return errKeysUnavailable
	}
	return errUnknownKey
}

// noteMissingLocked remembers the kids that a fetch did not find.
func (s *keySet) noteMissingLocked(kids map[string]bool) {
	now := s.clock.now()
	maps.DeleteFunc(s.missing, func(_ string, m missingKey) bool { return now >= m.until })
	for kid := range kids {
		if s.keyLocked(&tokenHeader{keyID: kid}) == nil && len(s.missing) < maxMissingKeys {
			s.missing[kid] = missingKey{now.add(missingKeyPause), s.answerLocked()}
		}
	}
}

// forceLocked starts a fetch for an unknown kid if the budget allows it.
func (s *keySet) forceLocked(now instant) bool {
	s.forced = slices.DeleteFunc(s.forced, func(at instant) bool { return now >= at.add(time.Minute) })
	if len(s.forced) >= forcedPerMinute || s.ctx.Err() != nil {
		return false
	}
	s.forced = append(s.forced, now)
	s.beginLocked()
	return true
}

// beginLocked starts a fetch; none may be in flight.
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

// settleLocked applies the result of a fetch and sets the next timer.
func (s *keySet) settleLocked(keys []*verificationKey, err error) {
	now := s.clock.now()
	if err != nil {
		s.failedLocked(err, now)
		return
	}
	if s.pause > 0 {
		s.log.Info("fetching the key set works again")
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

// scheduleLocked sets the timer of the next fetch, in place of any other.
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

// ready returns nil when tokens can be verified.
func (s *keySet) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.usableLocked():
		return nil
	case s.expires == 0:
		return errors.New("the key set has not been fetched yet")
	}
	return errors.New("the key set is too old because its refreshes fail")
}

// Decoding a key set. Unusable keys are skipped; a text that is not a key set is an
// error.

// decodeKeySet returns the keys for the allowed algorithms.
func decodeKeySet(data []byte, allowed []string) ([]*verificationKey, error) {
	if err := checkJSON(data); err != nil {
		return nil, errors.New("the key set is not valid JSON")
	}
	var keys []*verificationKey
	listed := false
	eachMember(data, func(name string, value []byte) bool {
		if name != "keys" {
			return true
		}
		listed = eachElement(value, func(v []byte) bool {
			if k := decodeWebKey(v, allowed); k != nil {
				keys = append(keys, k)
			}
			return true
		})
		return false
	})
	if !listed {
		return nil, errors.New("the key set has no list of keys")
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set has no usable key")
	}
	return keys, nil
}

// webKey holds the string members of one key of a key set.
type webKey map[string]string

// decodeWebKey reads one key. It returns nil if the key has no kid, another use, an
// algorithm that is not allowed, or an invalid or unknown form.
func decodeWebKey(data []byte, allowed []string) *verificationKey {
	text := webKey{}
	verifies := true
	isObject := eachMember(data, func(name string, value []byte) bool {
		s, err := tokenString(value)
		switch {
		case err == nil:
			text[name] = s
		case name == "key_ops":
			operations, _ := tokenStrings(value)
			verifies = slices.Contains(operations, "verify")
		case name == "use" || name == "alg":
			verifies = false
		}
		return verifies
	})
	if use, ok := text["use"]; ok && use != "sig" || !isObject || !verifies || text["kid"] == "" {
		return nil
	}
	public := text.public()
	if public == nil {
		return nil
	}
	family, err := keyAlgorithms(public)
	if err != nil {
		return nil
	}
	usable := slices.DeleteFunc(slices.Clone(family), func(alg string) bool {
		only, pinned := text["alg"]
		return pinned && alg != only || !slices.Contains(allowed, alg)
	})
	if len(usable) == 0 {
		return nil
	}
	return &verificationKey{id: text["kid"], algorithms: usable, public: public}
}

// public returns the public key, or nil.
func (k webKey) public() crypto.PublicKey {
	switch k["kty"] {
	case "RSA":
		return k.rsa()
	case "EC":
		return k.ec()
	case "OKP":
		return k.okp()
	}
	return nil
}

// number decodes a base64url member; nil if it is invalid.
func (k webKey) number(name string) []byte {
	b, err := base64.RawURLEncoding.Strict().DecodeString(k[name])
	if err != nil {
		return nil
	}
	return b
}

func (k webKey) rsa() crypto.PublicKey {
	n, e := k.number("n"), bytes.TrimLeft(k.number("e"), "\x00")
	if len(e) == 0 || len(e) > 4 || e[0] > 127 && len(e) == 4 {
		return nil
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
}

func (k webKey) ec() crypto.PublicKey {
	var curve elliptic.Curve
	switch k["crv"] {
	case "P-256":
		curve = elliptic.P256()
	case "P-384":
		curve = elliptic.P384()
	default:
		return nil
	}
	size := curve.Params().BitSize / 8
	x, y := k.number("x"), k.number("y")
	if len(x) != size || len(y) != size {
		return nil
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil
	}
	return key
}

func (k webKey) okp() crypto.PublicKey {
	x := k.number("x")
	if k["crv"] != "Ed25519" || len(x) != ed25519.PublicKeySize {
		return nil
	}
	return ed25519.PublicKey(x)
}

// sameKeys reports whether two key sets verify the same tokens.
func sameKeys(a, b []*verificationKey) bool {
	return slices.EqualFunc(a, b, func(x, y *verificationKey) bool {
		return x.id == y.id && slices.Equal(x.algorithms, y.algorithms) &&
			x.public.(interface{ Equal(crypto.PublicKey) bool }).Equal(y.public)
	})
}
