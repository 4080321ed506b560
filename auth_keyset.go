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
	"reflect"
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

// keySet holds the current keys of a JWKS endpoint. One fetch runs at a time.
type keySet struct {
	fetch    func(context.Context) (*publishedKeys, error)
	interval time.Duration // between refreshes
	maxStale time.Duration // beyond the interval, while refreshes fail
	clock    clock
	log      *slog.Logger
	changed  func() // called with mu held when the keys changed

	ctx     context.Context // of the fetches
	cancel  context.CancelFunc
	running sync.WaitGroup // fetches
	ended   notifier       // a fetch has ended, and its outcome is in the set

	mu       sync.Mutex
	keys     publishedKeys // guarded by mu, as all below
	expires  instant       // when the keys become unusable; zero before the first fetch
	fetching bool
	begun    uint64        // fetches started
	asked    bool          // the next fetch is for an unknown kid
	forced   instant       // when the last fetch for one started
	pause    time.Duration // before the next try, after a failure
	timer    uint64        // number of the current timer; older ones do nothing
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

// close stops fetching and waits for the fetch that runs.
func (s *keySet) close() {
	s.mu.Lock()
	s.cancel() // with the lock, so that no fetch begins from here on
	s.mu.Unlock()
	s.running.Wait()
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
	for before := s.begun; ; { // fetches that had begun may not know a key that was just published
		keys, usable := s.keysLocked(kid), s.usableLocked()
		switch {
		case usable && keys != nil:
			return keys, nil
		case s.fetching:
		case s.ctx.Err() != nil, s.pause > 0 && (!usable || s.begun > before):
			// The last fetch failed and the next one has its timer: requests must not add to the load of an issuer in
			// trouble.
			return nil, errKeysUnavailable
		case usable && s.begun > before:
			return nil, errUnknownKey
		default:
			s.askLocked()
		}
		// The lock is released while a fetch runs, and everything is looked up again after it.
		ended := s.ended.next()
		s.mu.Unlock()
		gone := false
		select {
		case <-ended:
		case <-s.ctx.Done():
			gone = true
		case <-ctx.Done():
			gone = true
		}
		s.mu.Lock()
		if gone {
			return nil, errKeysUnavailable
		}
	}
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

// askLocked has the next fetch, while none runs, begin for an unknown kid: at once, or forcedPause after the last such
// one.
func (s *keySet) askLocked() {
	if s.asked {
		return
	}
	s.asked = true
	// A clock that was set back must not make this wait for longer.
	now := s.clock.now()
	if from := min(s.forced, now).add(forcedPause); now < from {
		s.scheduleLocked(from)
	} else {
		s.beginLocked()
	}
}

// beginLocked starts a fetch; none may run.
func (s *keySet) beginLocked() {
	s.begun++
	s.fetching = true
	if s.asked {
		s.asked, s.forced = false, s.clock.now()
	}
	s.running.Go(func() {
		keys, err := s.fetch(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fetching = false; s.ctx.Err() == nil {
			s.settleLocked(keys, err)
		}
		s.ended.notify()
	})
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
	same := reflect.DeepEqual(s.keys.usable, keys.usable)
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
	s.timer++
	timer := s.timer
	s.clock.schedule(when, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if timer == s.timer && !s.fetching && s.ctx.Err() == nil {
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
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(data, &set); err != nil || set.Keys == nil {
		return nil, errors.New("the key set is not a JSON object with a list of keys")
	}
	keys := &publishedKeys{}
	var skipped []string
	for i, text := range set.Keys {
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

// errForAnotherUse means that a key is not meant for verifying tokens.
var errForAnotherUse = errors.New("it is for another use")

// webKey is a key of a key set. Its members are base64url, but for the first four and crv.
type webKey struct {
	Kid, Kty        string
	Use, Alg        *string  // nil when absent
	Ops             []string `json:"key_ops"`
	N, E, Crv, X, Y string
}

// decodeWebKey reads one key. The error says why it cannot be used. The id is known
// even then, if the key has one.
func decodeWebKey(data []byte, allowed []string) (id string, key *verificationKey, err error) {
	var w webKey
	err = json.Unmarshal(data, &w)
	switch wrong, _ := errors.AsType[*json.UnmarshalTypeError](err); {
	case wrong != nil && wrong.Field != "":
		return w.Kid, nil, fmt.Errorf("its %s is not a %v", strings.ToLower(wrong.Field), wrong.Type)
	case err != nil:
		return "", nil, errors.New("it is not an object")
	case w.Use != nil && *w.Use != "sig", w.Ops != nil && !slices.Contains(w.Ops, "verify"):
		return w.Kid, nil, errForAnotherUse
	case w.Kid == "":
		return "", nil, errors.New("it has no kid")
	}
	public, err := w.public()
	if err != nil {
		return w.Kid, nil, err
	}
	family, err := keyAlgorithms(public)
	if err != nil {
		return w.Kid, nil, err
	}
	usable := slices.DeleteFunc(slices.Clone(family), func(alg string) bool {
		return w.Alg != nil && alg != *w.Alg || !slices.Contains(allowed, alg)
	})
	if len(usable) == 0 {
		return w.Kid, nil, errors.New("its algorithm is not allowed, or does not belong to its type")
	}
	return w.Kid, &verificationKey{id: w.Kid, algorithms: usable, public: public}, nil
}

// public returns the public key.
func (k *webKey) public() (crypto.PublicKey, error) {
	var fault error // of the first member that has one
	number := func(name, text string) []byte {
		b, err := base64.RawURLEncoding.Strict().DecodeString(text)
		switch {
		case fault != nil:
		case err != nil:
			fault = fmt.Errorf("its %s is not base64url without padding", name)
		case len(b) == 0:
			fault = fmt.Errorf("its %s is missing", name)
		}
		return b
	}
	switch k.Kty {
	case "RSA":
		n, e := number("n", k.N), bytes.TrimLeft(number("e", k.E), "\x00")
		// crypto/rsa wants an exponent below 2^31.
		if fault == nil && (len(e) == 0 || len(e) > 4 || e[0] > 127 && len(e) == 4) {
			fault = errExponent
		}
		return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}, fault
	case "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384()}[k.Crv]
		if curve == nil {
			return nil, errCurve
		}
		x, y := number("x", k.X), number("y", k.Y)
		if size := curve.Params().BitSize / 8; fault == nil && (len(x) != size || len(y) != size) {
			fault = errors.New("an EC key whose coordinates do not have the length of its curve")
		}
		if fault != nil {
			return nil, fault
		}
		key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
		if err != nil {
			return nil, errors.New("an EC key that is not a point of its curve")
		}
		return key, nil
	case "OKP":
		x := number("x", k.X)
		if fault == nil && (k.Crv != "Ed25519" || len(x) != ed25519.PublicKeySize) {
			fault = errors.New("an OKP key must be an Ed25519 key of 32 bytes")
		}
		return ed25519.PublicKey(x), fault
	}
	return nil, errKeyFamily
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
