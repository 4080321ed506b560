package main

// A key set (JWKS, RFC 7517): fetched at start, refreshed at an interval and for unknown key ids,
// used for a while when refreshes fail. Then the decoding of its text, and its HTTP client.

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	forcedPause      = 3 * time.Second // between the starts of two fetches for unknown kids
	firstRetryPause  = time.Second     // after a failed fetch; doubled each time
	longestRetryWait = 30 * time.Second
)

var errUnknownKey = invalidToken("no key has its kid")

// keyFetch is closed when the outcome of one fetch is in the set.
type keyFetch chan struct{}

// keySet holds the current keys of a JWKS endpoint.
type keySet struct {
	fetch    func(context.Context) (*publishedKeys, error)
	interval time.Duration // between refreshes
	maxStale time.Duration // beyond the interval, while refreshes fail
	clock    clock
	log      *slog.Logger
	changed  func() // called with mu held when the keys changed

	ctx    context.Context // of the fetches
	cancel context.CancelFunc

	mu      sync.Mutex
	keys    publishedKeys // guarded by mu
	expires instant       // when the keys become unusable; zero before the first fetch; guarded by mu
	flight  keyFetch      // nil when none; guarded by mu
	next    keyFetch      // for unknown kids, once its time has come; nil when nobody waits for it; guarded by mu
	begun   uint64        // fetches started; guarded by mu
	forced  instant       // when the last fetch for unknown kids started; guarded by mu
	pause   time.Duration // before the next try, after a failure; guarded by mu
	due     uint64        // number of the current timer; older timers do nothing; guarded by mu
}

// newKeySet returns a set and starts its first fetch.
func newKeySet(
	fetch func(context.Context) (*publishedKeys, error), interval, maxStale time.Duration,
	c clock, log *slog.Logger, changed func(),
) *keySet {
	s := &keySet{fetch: fetch, interval: interval, maxStale: maxStale, clock: c, log: log, changed: changed}
	s.forced = c.now().add(-forcedPause)
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
		<-flight
	}
}

// usable reports whether the keys are fresh or not yet too stale.
func (s *keySet) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked()
}

func (s *keySet) usableLocked() bool { return s.clock.now() < s.expires }

// find returns the keys of a kid. For an unknown kid it waits for a fetch that begins later, which all who wait share:
// anybody can send tokens with kids that they made up, and must neither make this service flood the issuer nor keep the
// tokens of a key just published out.
func (s *keySet) find(ctx context.Context, kid string) ([]*verificationKey, error) {
	if kid == "" || len(kid) > maxTokenKeyID {
		return nil, errUnknownKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The lock is released while a fetch runs, and everything is looked up again after it: the keys may be others by
	// then.
	before := s.begun
	for {
		keys, fetch, err := s.lookupLocked(kid, before)
		if fetch == nil {
			return keys, err
		}
		s.mu.Unlock()
		err = s.await(ctx, fetch)
		s.mu.Lock()
		if err != nil {
			return nil, errKeysUnavailable
		}
	}
}

// await waits for the end of a fetch.
func (s *keySet) await(ctx context.Context, fetch keyFetch) error {
	select {
	case <-fetch:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookupLocked returns the keys, an error, or the fetch to wait for. before is the
// number of fetches started before the kid was asked for: these may not know a key
// that was just published.
func (s *keySet) lookupLocked(kid string, before uint64) ([]*verificationKey, keyFetch, error) {
	if !s.usableLocked() {
		if s.flight == nil && (s.pause > 0 || s.ctx.Err() != nil) {
			// The last fetch failed and the next one has its timer: requests must not add to the load of an issuer in
			// trouble.
			return nil, nil, errKeysUnavailable
		}
		if s.flight == nil { // it is due, but its timer is late
			s.beginLocked()
		}
		return nil, s.flight, nil
	}
	if keys := s.keysLocked(kid); keys != nil {
		return keys, nil, nil
	}
	switch {
	case s.flight != nil: // if it began before the question, the next one counts
		return nil, s.flight, nil
	case s.begun > before && s.pause > 0:
		return nil, nil, errKeysUnavailable
	case s.begun > before:
		return nil, nil, errUnknownKey
	}
	return nil, s.forceLocked(), nil
}

// keysLocked returns the keys of a kid; nil if there are none.
func (s *keySet) keysLocked(kid string) (keys []*verificationKey) {
	for _, k := range s.keys.usable {
		if k.id == kid {
			keys = append(keys, k)
		}
	}
	return keys
}

// forceLocked returns the next fetch for unknown kids, while none is in flight: at once, or forcedPause after the last
// one.
func (s *keySet) forceLocked() keyFetch {
	if s.next != nil {
		return s.next
	}
	next, now := make(keyFetch), s.clock.now()
	s.next = next
	// A clock that was set back must not make this wait for longer.
	if from := min(s.forced, now).add(forcedPause); now < from {
		s.clock.schedule(from, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.next == next { // or a refresh came first
				s.forced = s.clock.now()
				s.beginLocked()
			}
		})
		return next
	}
	s.forced = now
	s.beginLocked()
	return next
}

// beginLocked starts a fetch, also for those who wait for the next one; none may be in flight.
func (s *keySet) beginLocked() {
	s.begun++
	fetch := s.next
	if s.next = nil; fetch == nil {
		fetch = make(keyFetch)
	}
	s.flight = fetch
	go func() {
		keys, err := s.fetch(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		// It runs before the lock is released: a waiter sees what settleLocked has stored.
		defer close(fetch)
		s.flight = nil
		if s.ctx.Err() == nil {
			s.settleLocked(keys, err)
		}
	}()
}

// settleLocked applies the result of a fetch and sets the next timer.
func (s *keySet) settleLocked(keys *publishedKeys, err error) {
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
	if keys.skipped != "" && keys.skipped != s.keys.skipped {
		s.log.Warn("the key set has keys that cannot be used", "skipped", keys.skipped)
	}
	same := sameKeys(s.keys.usable, keys.usable)
	// The cache is cleared only if it must be: after each refresh, all callers would have to be verified again.
	if s.keys = *keys; !same {
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
	// A timer may fire although it was cancelled (see clock), so an older one is recognized by its number instead.
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

// Decoding a key set. Unusable keys are skipped (RFC 7517, 5); a text that is not a
// key set, or a set without any usable key, is an error.

// publishedKeys are the keys of a key set.
type publishedKeys struct {
	usable  []*verificationKey
	skipped string // which of the others were meant for tokens, and why they are not used
}

// decodeKeySet returns the keys for the allowed algorithms.
func decodeKeySet(data []byte, allowed []string) (*publishedKeys, error) {
	texts, err := splitKeySet(data)
	if err != nil {
		return nil, err
	}
	keys := &publishedKeys{}
	var skipped []string
	for i, text := range texts {
		id, key, err := decodeWebKey(text, allowed)
		switch {
		case err == nil:
			keys.usable = append(keys.usable, key)
		case err != errForAnotherUse:
			skipped = append(skipped, fmt.Sprintf("keys[%d], %.64q: %v", i, id, err))
		}
	}
	keys.skipped = clipText(strings.Join(skipped, "; "), maxSkippedShown)
	switch {
	case len(keys.usable) > 0:
		return keys, nil
	case keys.skipped != "":
		return nil, errors.New("the key set has no usable key: " + keys.skipped)
	}
	return nil, errors.New("the key set has no usable key")
}

// splitKeySet returns the texts of the keys. They are valid JSON, but have not passed
// checkJSON: what that refuses makes one key unusable, not the others.
func splitKeySet(data []byte) ([]json.RawMessage, error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(data, &set); err != nil || set.Keys == nil {
		return nil, errors.New("the key set is not a JSON object with a list of keys")
	}
	return set.Keys, nil
}

// errForAnotherUse means that a key is not meant for verifying tokens.
var errForAnotherUse = errors.New("it is for another use")

// webKey holds the string members of one key of a key set.
type webKey map[string]string

// webKeyStrings are the members that are read; all must be strings. A member that is null counts as absent.
var webKeyStrings = []string{"kty", "use", "alg", "kid", "n", "e", "crv", "x", "y"}

// decodeWebKey reads one key. The error says why it cannot be used. The id is known
// even then, if the key has one.
func decodeWebKey(data []byte, allowed []string) (id string, key *verificationKey, err error) {
	text, err := readWebKey(data)
	id = text["kid"]
	if err != nil {
		return id, nil, err
	}
	if id == "" {
		return id, nil, errors.New("it has no kid")
	}
	public, err := text.public()
	if err != nil {
		return id, nil, err
	}
	family, err := keyAlgorithms(public)
	if err != nil {
		return id, nil, err
	}
	usable := slices.DeleteFunc(slices.Clone(family), func(alg string) bool {
		only, pinned := text["alg"]
		return pinned && alg != only || !slices.Contains(allowed, alg)
	})
	if len(usable) == 0 {
		return id, nil, errors.New("its algorithm is not allowed, or does not belong to its type")
	}
	return id, &verificationKey{id: id, algorithms: usable, public: public}, nil
}

// readWebKey reads the string members of a key and checks its use.
func readWebKey(data []byte) (webKey, error) {
	text := webKey{}
	if err := checkJSON(data); err != nil {
		return text, err
	}
	var err error
	isObject := eachMember(data, func(name string, value []byte) bool {
		s, notString := tokenString(value)
		switch {
		case jsonKind(value) == 'n':
		case notString == nil:
			text[name] = s
		case name == "key_ops":
			if operations, _ := tokenStrings(value); !slices.Contains(operations, "verify") {
				err = errForAnotherUse
			}
		case slices.Contains(webKeyStrings, name):
			err = fmt.Errorf("its %s is not a string", name)
		}
		return err == nil
	})
	if !isObject {
		err = errors.New("it is not an object")
	} else if use, ok := text["use"]; ok && use != "sig" {
		err = errForAnotherUse
	}
	return text, err
}

// public returns the public key.
func (k webKey) public() (crypto.PublicKey, error) {
	switch k["kty"] {
	case "RSA":
		return k.rsa()
	case "EC":
		return k.ec()
	case "OKP":
		return k.okp()
	}
	return nil, errKeyFamily
}

// numbers decodes base64url members.
func (k webKey) numbers(names ...string) (all [][]byte, err error) {
	for _, name := range names {
		b, err := base64.RawURLEncoding.Strict().DecodeString(k[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("its %s is not base64url without padding", name)
		case len(b) == 0:
			return nil, fmt.Errorf("its %s is missing", name)
		}
		all = append(all, b)
	}
	return all, nil
}

func (k webKey) rsa() (crypto.PublicKey, error) {
	b, err := k.numbers("n", "e")
	if err != nil {
		return nil, err
	}
	// crypto/rsa wants an exponent below 2^31.
	e := bytes.TrimLeft(b[1], "\x00")
	if len(e) == 0 || len(e) > 4 || e[0] > 127 && len(e) == 4 {
		return nil, errExponent
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(b[0]), E: int(new(big.Int).SetBytes(e).Int64())}, nil
}

func (k webKey) ec() (crypto.PublicKey, error) {
	var curve elliptic.Curve
	switch k["crv"] {
	case "P-256":
		curve = elliptic.P256()
	case "P-384":
		curve = elliptic.P384()
	default:
		return nil, errCurve
	}
	b, err := k.numbers("x", "y")
	if err != nil {
		return nil, err
	}
	if size := curve.Params().BitSize / 8; len(b[0]) != size || len(b[1]) != size {
		return nil, errors.New("an EC key whose coordinates do not have the length of its curve")
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, b[0], b[1]))
	if err != nil {
		return nil, errors.New("an EC key that is not a point of its curve")
	}
	return key, nil
}

func (k webKey) okp() (crypto.PublicKey, error) {
	b, err := k.numbers("x")
	if err != nil {
		return nil, err
	}
	if k["crv"] != "Ed25519" || len(b[0]) != ed25519.PublicKeySize {
		return nil, errors.New("an OKP key must be an Ed25519 key of 32 bytes")
	}
	return ed25519.PublicKey(b[0]), nil
}

// sameKeys reports whether two key sets verify the same tokens.
func sameKeys(a, b []*verificationKey) bool {
	return slices.EqualFunc(a, b, func(x, y *verificationKey) bool {
		return x.id == y.id && slices.Equal(x.algorithms, y.algorithms) &&
			x.public.(interface{ Equal(crypto.PublicKey) bool }).Equal(y.public)
	})
}

// The HTTP clients of authentication: one fetches a key set, without letting the
// configured URL reach addresses that only this machine should; the other asks a
// forward authenticator who sent a request.

const (
	keyFetchTimeout = 10 * time.Second
	maxKeySetBytes  = 1 << 20
	maxSkippedShown = 1000 // bytes about keys that are not used
)

// metadataAddresses are where clouds hand out credentials. The most common one,
// 169.254.169.254, is link-local anyway.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
}

// embeddingPrefixes carry an IPv4 address in their last 32 bits; ::1 and :: are
// read as 0.0.0.1 and 0.0.0.0.
var embeddingPrefixes = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("::/96"),
}

// isPrivateHost reports whether an address, in any notation, is loopback,
// link-local or a metadata service. The ranges of RFC 1918 do not count: issuers
// inside a cluster have such addresses.
func isPrivateHost(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	for _, p := range embeddingPrefixes {
		if p.Contains(ip) {
			v4, _ := netip.AddrFromSlice(ip.AsSlice()[12:])
			return isPrivateHost(v4)
		}
	}
	return slices.Contains(metadataAddresses, ip) ||
		ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() ||
		ip.Is4() && (ip.As4()[0] == 0 || ip.As4() == [4]byte{255, 255, 255, 255})
}

var errPrivateHost = errors.New("the address is loopback, link-local or a metadata service")

// refusePrivateHosts is a net.Dialer's Control: it sees every address after DNS.
func refusePrivateHosts(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || isPrivateHost(a.Addr()) {
		return errPrivateHost
	}
	return nil
}

// newAuthClient returns a client that follows no redirects and uses no proxy.
func newAuthClient(dialer *net.Dialer) *http.Client {
	return &http.Client{
		Timeout: dialer.Timeout,
		// A redirect could lead to another host, which would get the credentials, or to one that is not allowed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// No Proxy is set: refusePrivateHosts would see the proxy's address instead of the host's.
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// newKeyClient returns a client for a key set, which reaches private hosts only
// if they are allowed.
func newKeyClient(allowPrivate bool) *http.Client {
	dialer := &net.Dialer{Timeout: keyFetchTimeout}
	if !allowPrivate {
		dialer.Control = refusePrivateHosts
	}
	c := newAuthClient(dialer)
	t := c.Transport.(*http.Transport)
	t.ForceAttemptHTTP2, t.MaxIdleConns, t.IdleConnTimeout = true, 1, keyFetchTimeout
	return c
}

// keyFetcher fetches a key set from a URL.
type keyFetcher struct {
	url     string
	allowed []string // algorithms
	client  *http.Client
}

// newKeyFetcher returns a fetcher, which reaches private hosts only if they are allowed.
func newKeyFetcher(url string, allowed []string, allowPrivate bool) *keyFetcher {
	return &keyFetcher{url, allowed, newKeyClient(allowPrivate)}
}

// fetch gets and decodes the set. The error does not contain the URL, which may
// contain credentials.
func (k *keyFetcher) fetch(ctx context.Context) (*publishedKeys, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, errors.New("the URL of the key set is invalid")
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := k.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the key set's host answered %d", res.StatusCode)
	}
	// One byte more tells a set that is too long from one that just fits.
	data, err := io.ReadAll(io.LimitReader(res.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the key set: %w", withoutURL(err))
	}
	if len(data) > maxKeySetBytes {
		return nil, fmt.Errorf("the key set has more than %d bytes", maxKeySetBytes)
	}
	return decodeKeySet(unmarked(data), k.allowed)
}

// withoutURL removes the URL from an error of an http.Client.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
