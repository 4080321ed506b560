package main

// A key set (JWKS, RFC 7517): fetched at start, refreshed at an interval and for unknown key ids,
// used for a while when refreshes fail. Then the decoding of its text, and its HTTP client.

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
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

// newKeySet returns the set of a section and starts its first fetch.
func newKeySet(c *authConfig, now clock, log *slog.Logger, changed func()) *keySet {
	// Plain HTTP is for development, where the issuer usually runs on this machine: it allows private hosts as well.
	client := newKeyClient(c.JWKSURLAllowHTTP || c.JWKSAllowPrivateHosts)
	s := &keySet{fetch: keySetFetcher(client, c.JWKSURL, c.JWTAllowedAlgorithms), clock: now, log: log, changed: changed}
	s.interval = time.Duration(c.JWKSRefreshIntervalSeconds) * time.Second
	s.maxStale = time.Duration(c.JWKSMaxStaleSeconds) * time.Second
	s.forced = now.now().add(-forcedPause)
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

// find returns the keys that a kid names. For an unknown kid it waits for a fetch that begins later, which all who wait share:
// anybody can send tokens with kids that they made up, and must neither make this service flood the issuer nor keep the
// tokens of a key just published out.
func (s *keySet) find(ctx context.Context, kid string) ([]*verificationKey, *failure) {
	const unknown, unavailable = "no key has its kid", "the keys that verify tokens are unavailable"
	if kid == "" || len(kid) > maxTokenKeyID {
		return nil, invalid(unknown)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for before := s.begun; ; { // fetches that had begun may not know a key that was just published
		keys := slices.DeleteFunc(slices.Clone(s.keys.usable), func(k *verificationKey) bool { return k.id != kid })
		usable := s.usableLocked()
		switch {
		case usable && len(keys) > 0:
			return keys, nil
		case s.fetching:
		case s.ctx.Err() != nil, s.pause > 0 && (!usable || s.begun > before):
			// The last fetch failed and the next one has its timer: requests must not add to the load of an issuer in
			// trouble.
			return nil, cannotVerify(unavailable)
		case usable && s.begun > before:
			return nil, invalid(unknown)
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
			return nil, cannotVerify(unavailable)
		}
	}
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
		s.pause = min(max(2*s.pause, firstRetryPause), longestRetryWait)
		s.log.Warn("fetching the key set failed", "error", err, "keys_usable_for", max(s.expires.sub(now), 0), "next_try_in", s.pause)
		s.scheduleLocked(now.add(s.pause))
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

func decodeKeySet(data []byte, allowed []string) (*publishedKeys, error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(data, &set); err != nil || set.Keys == nil {
		return nil, errors.New("the key set is not a JSON object with a list of keys")
	}
	keys := &publishedKeys{}
	var skipped []string
	for i, text := range set.Keys {
		key, err := decodeWebKey(text, allowed)
		switch {
		case err == nil:
			keys.usable = append(keys.usable, key)
		case err != errForAnotherUse:
			skipped = append(skipped, fmt.Sprintf("keys[%d], %.64q: %v", i, key.id, err))
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

// decodeWebKey reads one key. If it cannot be used, the error says why, and the key has its id at most.
func decodeWebKey(data []byte, allowed []string) (*verificationKey, error) {
	var w webKey
	err := json.Unmarshal(data, &w)
	key := &verificationKey{id: w.Kid}
	switch wrong, _ := errors.AsType[*json.UnmarshalTypeError](err); {
	case wrong != nil && wrong.Field != "":
		return key, fmt.Errorf("its %s is not a %v", strings.ToLower(wrong.Field), wrong.Type)
	case err != nil:
		return key, errors.New("it is not an object")
	case w.Use != nil && *w.Use != "sig", w.Ops != nil && !slices.Contains(w.Ops, "verify"):
		return key, errForAnotherUse
	case w.Kid == "":
		return key, errors.New("it has no kid")
	}
	if key.public, err = w.public(); err == nil {
		key.algorithms, err = keyAlgorithms(key.public)
	}
	if err == nil && (!key.limit(allowed...) || w.Alg != nil && !key.limit(*w.Alg)) {
		err = errors.New("its algorithm is not allowed, or does not belong to its type")
	}
	return key, err
}

// webKeyNumbers are the members that contain the numbers of a key, by its kty.
var webKeyNumbers = map[string]string{"RSA": "ne", "EC": "xy", "OKP": "x"}

func (k *webKey) public() (crypto.PublicKey, error) {
	var numbers [][]byte
	for _, name := range webKeyNumbers[k.Kty] {
		text := map[rune]string{'n': k.N, 'e': k.E, 'x': k.X, 'y': k.Y}[name]
		b, err := base64.RawURLEncoding.Strict().DecodeString(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("its %c is not base64url without padding", name)
		case len(b) == 0:
			return nil, fmt.Errorf("its %c is missing", name)
		}
		numbers = append(numbers, b)
	}
	switch k.Kty {
	case "RSA":
		n, e := new(big.Int).SetBytes(numbers[0]), new(big.Int).SetBytes(numbers[1])
		if e.BitLen() > 31 { // crypto/rsa accepts no larger one
			return nil, errExponent
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
	case "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384()}[k.Crv]
		if curve == nil {
			return nil, errCurve
		}
		key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, numbers[0], numbers[1]))
		if err != nil || len(numbers[0]) != len(numbers[1]) {
			return nil, errors.New("an EC key that is not a point of its curve")
		}
		return key, nil
	case "OKP":
		if k.Crv != "Ed25519" || len(numbers[0]) != ed25519.PublicKeySize {
			return nil, errors.New("an OKP key must be an Ed25519 key of 32 bytes")
		}
		return ed25519.PublicKey(numbers[0]), nil
	}
	return nil, errKeyFamily
}

// keyID returns the members of a public key in a key set that make its thumbprint, and that thumbprint, which is its kid
// here (RFC 7638).
func keyID(key crypto.PublicKey) (members map[string]string, kid string, err error) {
	text := base64.RawURLEncoding.EncodeToString
	switch k := key.(type) {
	case *rsa.PublicKey:
		members = map[string]string{"kty": "RSA", "n": text(k.N.Bytes()), "e": text(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			return nil, "", err
		}
		half := len(point)/2 + 1 // after the byte that says how the point is written
		members = map[string]string{"kty": "EC", "crv": k.Params().Name, "x": text(point[1:half]), "y": text(point[half:])}
	case ed25519.PublicKey:
		members = map[string]string{"kty": "OKP", "crv": "Ed25519", "x": text(k)}
	default:
		return nil, "", errKeyFamily
	}
	canonical, _ := json.Marshal(members) // in the order of the names
	sum := sha256.Sum256(canonical)
	return members, text(sum[:]), nil
}

// The HTTP clients of authentication: one fetches a key set, without letting the configured URL reach addresses that
// only this machine should; the other asks a forward authenticator who sent a request.

const (
	keyFetchTimeout = 10 * time.Second
	maxKeySetBytes  = 1 << 20
	maxSkippedShown = 1000 // bytes about keys that are not used
)

// metadataAddresses are where clouds hand out credentials. The most common one, 169.254.169.254, is link-local anyway.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
}

// embeddingPrefixes carry an IPv4 address in their last 32 bits; ::1 and :: are read as 0.0.0.1 and 0.0.0.0.
var embeddingPrefixes = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("::/96"),
}

// isPrivateHost reports whether an address, in any notation, is loopback, link-local or a metadata service. The ranges
// of RFC 1918 do not count: issuers inside a cluster have such addresses.
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

// newAuthClient returns a client that follows no redirects and uses no proxy. The control, if any, is a net.Dialer's.
func newAuthClient(timeout time.Duration, control func(network, address string, c syscall.RawConn) error) *http.Client {
	return &http.Client{
		Timeout: timeout,
		// A redirect could lead to another host, which would get the credentials, or to one that is not allowed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// No Proxy is set: refusePrivateHosts would see the proxy's address instead of the host's.
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: timeout, Control: control}).DialContext,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

func newKeyClient(allowPrivate bool) *http.Client {
	if allowPrivate {
		return newAuthClient(keyFetchTimeout, nil)
	}
	return newAuthClient(keyFetchTimeout, refusePrivateHosts)
}

// keySetFetcher returns a function that gets and decodes a key set.
func keySetFetcher(client *http.Client, url string, allowed []string) func(context.Context) (*publishedKeys, error) {
	return func(ctx context.Context) (*publishedKeys, error) {
		header := http.Header{"Accept": {"application/jwk-set+json, application/json"}}
		status, data, err := authGet(ctx, client, url, header, maxKeySetBytes)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the key set: %w", err)
		case status != http.StatusOK:
			return nil, fmt.Errorf("the key set's host answered %d", status)
		}
		return decodeKeySet(data, allowed)
	}
}

// authGet returns a response of at most limit bytes. The error does not contain the URL, which may contain credentials.
func authGet(ctx context.Context, client *http.Client, url string, header http.Header, limit int) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, errors.New("the URL is invalid")
	}
	req.Header = header
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, withoutURL(err)
	}
	defer res.Body.Close()
	// The body is read whatever the status is, because only a connection whose response was read can be used again. One
	// byte more tells a body that is too long from one that just fits.
	body, err = io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	if len(body) > limit {
		err = fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return res.StatusCode, unmarked(body), withoutURL(err)
}

// withoutURL removes the URL from an error of an http.Client.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
