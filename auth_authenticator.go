package main

// The authentication step: from a request's headers to its security context or
// its refusal, and the question whether that may do what the route asks for.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const maxCachedTokens = 10_000

// authenticator is one role's authentication. Its methods may be called from
// everywhere at once.
type authenticator struct {
	config  *authConfig
	clock   clock
	log     *slog.Logger
	metrics *authMetrics

	forward *forwardAuth   // when set, the only verifier
	tokens  *tokenVerifier // nil: bearer tokens are not accepted
	keys    *keySet        // nil: the tokens' key is static
	cache   *authCache     // of tokens
	apiKeys apiKeyRegistry // nil: API keys are not looked at
}

// newAuthenticator sets up a role's authentication (orchestration, worker or
// mount) behind trusted proxies. The error is an authProblems; the warnings are
// for the start-up log. The clock is the real one: keys are refreshed on it. The
// configuration must not be changed afterwards.
func newAuthenticator(
	c *authConfig, role string, trusted []netip.Prefix, clock clock, log *slog.Logger,
) (*authenticator, []string, error) {
	setup := newAuthSetup(c, role)
	setup.check()
	var means authMeans
	if c.Enabled {
		means = setup.means(trusted)
	}
	if err := setup.err(); err != nil {
		return nil, setup.warnings, err
	}
	a := &authenticator{config: c, clock: clock, log: log.With("role", role), metrics: new(authMetrics)}
	a.cache = newAuthCache(maxCachedTokens)
	a.forward, a.apiKeys = means.forward, means.apiKeys
	switch {
	case means.static != nil:
		a.tokens = &tokenVerifier{c.rules(), means.static}
	case means.jwks != nil:
		a.keys = newKeySet(means.jwks.fetch, time.Duration(c.JWKSRefreshIntervalSeconds)*time.Second,
			time.Duration(c.JWKSMaxStaleSeconds)*time.Second, clock, a.log, a.cache.clear)
		a.tokens = &tokenVerifier{c.rules(), a.keys}
	}
	return a, setup.warnings, nil
}

// close ends the refresh of keys and everything in flight for it.
func (a *authenticator) close() {
	if a.keys != nil {
		a.keys.close()
	}
	if a.forward != nil {
		a.forward.close()
	}
}

// ready is nil once credentials can be verified.
func (a *authenticator) ready() error {
	if a.keys == nil {
		return nil
	}
	return a.keys.ready()
}

// authenticate finds out who sent a request. It reads headers only, never the
// body.
func (a *authenticator) authenticate(r *http.Request) (*securityContext, *authFailure) {
	return a.authenticateAt(r, a.clock.now())
}

// authenticateAt is authenticate for token times on another clock, which fixture
// mode may want.
func (a *authenticator) authenticateAt(r *http.Request, now instant) (*securityContext, *authFailure) {
	if !a.config.Enabled {
		return unrestricted(), nil
	}
	method, sc, failure := a.identify(r, now)
	a.metrics.answered(method, failure)
	if failure != nil {
		failure.method = method
		return nil, failure
	}
	return sc, nil
}

// identify tries what the request brings: a bearer token first, then an API key.
func (a *authenticator) identify(r *http.Request, now instant) (authMethod, *securityContext, *authFailure) {
	if a.forward != nil {
		sc, unknown, failure := a.forward.identity(r, now)
		a.logUnknown(unknown)
		return a.admit(authByForward, sc, unknown, failure)
	}
	token, form := bearerToken(r.Header["Authorization"])
	switch {
	case form == bearerBroken:
		return authByToken, nil, refused(reasonMalformed, severityMedium, "the authorization header is malformed")
	case form == bearerFound:
		sc, failure := a.tokenIdentity(r.Context(), token, now)
		return authByToken, sc, failure
	}
	keys := r.Header.Values(a.config.APIKeyHeader)
	switch {
	case a.apiKeys == nil || len(keys) == 0 || len(keys) == 1 && keys[0] == "":
		return authByNothing, nil, refused(reasonMissing, severityLow, "no credentials")
	case len(keys) > 1:
		return authByAPIKey, nil, refused(reasonMalformed, severityMedium, "there are several API keys")
	}
	key := a.apiKeys.find(keys[0])
	if key == nil {
		return authByAPIKey, nil, refused(reasonInvalid, severityHigh, "the API key is unknown")
	}
	return a.admit(authByAPIKey, key.sc, key.unknown, nil)
}

// admit applies strict validation to who was identified.
func (a *authenticator) admit(
	method authMethod, sc *securityContext, unknown []string, failure *authFailure,
) (authMethod, *securityContext, *authFailure) {
	if failure == nil && len(unknown) > 0 && a.config.StrictValidation {
		failure = unknownPermissions(unknown)
	}
	return method, sc, failure
}

// tokenIdentity is who a token speaks for, from the cache where it is there.
func (a *authenticator) tokenIdentity(
	ctx context.Context, token string, now instant,
) (*securityContext, *authFailure) {
	if a.tokens == nil {
		return nil, refused(reasonInvalid, severityMedium, "bearer tokens are not accepted")
	}
	if len(token) > maxTokenBytes {
		return nil, tokenRefused(malformedToken("it is too long"))
	}
	digest := credentialDigest(sha256.Sum256([]byte(token)))
	sc, epoch := a.cache.get(digest, now)
	if sc != nil && (a.keys == nil || a.keys.usable()) {
		return sc, nil
	}
	return a.verify(ctx, token, now, func(e *cachedIdentity) { a.cache.put(digest, e, epoch) })
}

// verify does the work for a token that is not in the cache; keep puts it there.
func (a *authenticator) verify(
	ctx context.Context, token string, now instant, keep func(*cachedIdentity),
) (*securityContext, *authFailure) {
	begun := a.clock.now()
	claims, err := a.tokens.verify(ctx, token, now)
	a.metrics.verified(a.clock.now().sub(begun))
	if err != nil {
		return nil, tokenRefused(err)
	}
	set, unknown := parsePermissions(claims.permissions)
	if len(unknown) > 0 && a.config.StrictValidation {
		return nil, unknownPermissions(unknown)
	}
	a.logUnknown(unknown)
	sc := &securityContext{claims.subject, authByToken, set, claims.issuer, claims.expiry}
	leeway := a.tokens.rules.leeway
	from := max(claims.notBefore, claims.issuedAt).add(-leeway)
	keep(&cachedIdentity{sc, from, claims.expiry.add(leeway)})
	return sc, nil
}

// logUnknown names permissions that are not known and not refused; those of API
// keys are named once, at the start.
func (a *authenticator) logUnknown(unknown []string) {
	if len(unknown) > 0 && !a.config.StrictValidation && a.config.LogUnknownPermissions {
		a.log.Warn("credentials with unknown permissions", "unknown", unknown)
	}
}

// bearerForm is what the Authorization header looks like.
type bearerForm uint8

const (
	bearerAbsent bearerForm = iota // no header, or another scheme
	bearerFound
	bearerBroken
)

// bearerToken takes the token out of the Authorization header: the scheme in any
// case, spaces, and a token without blanks (RFC 6750). Two headers are broken,
// whatever stands in them.
func bearerToken(headers []string) (token string, form bearerForm) {
	if len(headers) == 0 {
		return "", bearerAbsent
	}
	if len(headers) > 1 {
		return "", bearerBroken
	}
	value := strings.Trim(headers[0], " \t")
	end := strings.IndexAny(value, " \t")
	if end < 0 {
		end = len(value)
	}
	if !strings.EqualFold(value[:end], "bearer") {
		return "", bearerAbsent
	}
	token = strings.TrimLeft(value[end:], " ")
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", bearerBroken
	}
	return token, bearerFound
}

// authorize lets a context pass that holds any of the permissions needed; the
// refusal names the first.
func (a *authenticator) authorize(sc *securityContext, needed ...permission) *authFailure {
	if len(needed) == 0 || slices.ContainsFunc(needed, sc.may) {
		return nil
	}
	return a.deny(needed[0])
}

// authorizeAll lets a context pass that holds every permission there is.
func (a *authenticator) authorizeAll(sc *securityContext) *authFailure {
	for p := range permissionCount {
		if !sc.may(p) {
			return a.deny(p)
		}
	}
	return nil
}

func (a *authenticator) deny(p permission) *authFailure {
	a.metrics.denied(p)
	return notPermitted("Missing required permission: " + p.String())
}

// The authenticators of the roles that a process serves.

// authenticators are the roles' own ways to authenticate; nil for a role that is
// not served. That of the mount point is the orchestration role's own unless it
// is configured in another way.
type authenticators struct {
	orchestration, worker, mount *authenticator
}

// counted are the same authenticators with figures of their own. They end with
// those that they were made of.
func (a *authenticators) counted() *authenticators {
	if a == nil {
		return nil
	}
	own := func(one *authenticator) *authenticator {
		if one == nil {
			return nil
		}
		c := *one
		c.metrics = new(authMetrics)
		return &c
	}
	made := &authenticators{own(a.orchestration), own(a.worker), own(a.mount)}
	if a.mount != nil {
		made.mount.metrics = made.orchestration.metrics
	}
	return made
}

// of is the authenticator of a role.
func (a *authenticators) of(role string) *authenticator {
	switch role {
	case "worker":
		return a.worker
	case "mount":
		return a.mount
	}
	return a.orchestration
}

// each is those that there are.
func (a *authenticators) each() (all []*authenticator) {
	for _, one := range []*authenticator{a.orchestration, a.worker, a.mount} {
		if one != nil && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// ready is nil once every role can verify credentials.
func (a *authenticators) ready() error {
	for _, one := range a.each() {
		if err := one.ready(); err != nil {
			return err
		}
	}
	return nil
}

func (a *authenticators) close() {
	for _, one := range a.each() {
		one.close()
	}
}

// A bounded cache of credentials that were found good. It holds no credential,
// only SHA-256 digests.

// credentialDigest stands for a credential.
type credentialDigest [sha256.Size]byte

// authCache remembers who presented a credential. It has two generations: what
// was asked for since the last turn and what was not, which goes at the next.
type authCache struct {
	limit int // entries

	mu     sync.Mutex
	recent map[credentialDigest]*cachedIdentity // at most limit/2; guarded by mu
	older  map[credentialDigest]*cachedIdentity // at most limit/2; guarded by mu
	epoch  uint64                               // how often it was cleared; guarded by mu
}

// cachedIdentity is an entry: good from its first to before its last instant.
type cachedIdentity struct {
	sc          *securityContext
	from, until instant
}

func newAuthCache(limit int) *authCache {
	return &authCache{limit: limit, recent: make(map[credentialDigest]*cachedIdentity)}
}

// get is who presented the credential, if that still holds at now; an entry
// that does not hold is dropped. The epoch is for put.
func (c *authCache) get(d credentialDigest, now instant) (sc *securityContext, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.recent[d]
	if !ok {
		if e, ok = c.older[d]; !ok {
			return nil, c.epoch
		}
		delete(c.older, d)
		c.putLocked(d, e)
	}
	if now < e.from || now >= e.until {
		delete(c.recent, d)
		return nil, c.epoch
	}
	return e.sc, c.epoch
}

// put enters an identity that was established after a get, unless the cache was
// cleared in between.
func (c *authCache) put(d credentialDigest, e *cachedIdentity, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch {
		c.putLocked(d, e)
	}
}

func (c *authCache) putLocked(d credentialDigest, e *cachedIdentity) {
	if len(c.recent) >= c.limit/2 {
		c.older = c.recent
		c.recent = make(map[credentialDigest]*cachedIdentity)
	}
	c.recent[d] = e
}

// clear drops everything, and what is being established just now.
func (c *authCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.recent = make(map[credentialDigest]*cachedIdentity)
	c.older = nil
}

// Forward authentication: another service says who is asking.

const (
	forwardTimeout      = 2 * time.Second
	maxForwardReply     = 64 << 10
	maxForwardCached    = 10_000
	maxForwardCacheTime = 60 // seconds
)

// forwardAuth asks the authenticator at a URL about every request.
type forwardAuth struct {
	url          string
	apiKeyHeader string
	trusted      []netip.Prefix // whose X-Forwarded-* count
	client       *http.Client
	cacheFor     time.Duration // 0: nothing is kept
	cache        *authCache
}

func newForwardAuth(url, apiKeyHeader string, cacheFor time.Duration, trusted []netip.Prefix) *forwardAuth {
	return &forwardAuth{
		url: url, apiKeyHeader: apiKeyHeader, trusted: trusted, cacheFor: cacheFor,
		cache: newAuthCache(maxForwardCached),
		client: &http.Client{
			Timeout:       forwardTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				DialContext:            (&net.Dialer{Timeout: forwardTimeout}).DialContext,
				MaxIdleConnsPerHost:    64,
				IdleConnTimeout:        time.Minute,
				MaxResponseHeaderBytes: 64 << 10,
			},
		},
	}
}

// identity is who the authenticator says is asking, and what its permissions
// are called that we do not know.
func (a *forwardAuth) identity(r *http.Request, now instant) (*securityContext, []string, *authFailure) {
	headers := a.forwarded(r)
	digest := digestHeaders(headers)
	sc, epoch := a.cache.get(digest, now)
	if sc != nil {
		return sc, nil, nil
	}
	sc, unknown, failure := a.ask(r.Context(), headers)
	if failure == nil && len(unknown) == 0 && a.cacheFor > 0 {
		a.cache.put(digest, &cachedIdentity{sc, now, now.add(a.cacheFor)}, epoch)
	}
	return sc, unknown, failure
}

// forwarded are the headers of the question. Method and URI are always those of
// the request that we serve; a trusted proxy may speak for the client behind it.
func (a *forwardAuth) forwarded(r *http.Request) http.Header {
	h := make(http.Header)
	for _, name := range []string{"Authorization", "Cookie", a.apiKeyHeader} {
		if values := r.Header.Values(name); len(values) > 0 {
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	proto, host, peer := "http", r.Host, peerAddress(r)
	if r.TLS != nil {
		proto = "https"
	}
	client := "unknown"
	if peer.IsValid() {
		client = peer.String()
	}
	if isTrustedProxy(peer, a.trusted) {
		proto = cmp.Or(r.Header.Get("X-Forwarded-Proto"), proto)
		host = cmp.Or(r.Header.Get("X-Forwarded-Host"), host)
		client = strings.Join(append(slices.Clone(r.Header.Values("X-Forwarded-For")), client), ", ")
	}
	h.Set("X-Forwarded-Method", r.Method)
	h.Set("X-Forwarded-Uri", r.URL.RequestURI())
	h.Set("X-Forwarded-Host", host)
	h.Set("X-Forwarded-Proto", proto)
	h.Set("X-Forwarded-For", client)
	return h
}

// peerAddress is who is at the other end of the connection; the zero address,
// which no proxy has, when that is no IP address.
func peerAddress(r *http.Request) netip.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

func isTrustedProxy(peer netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer.WithZone("")) })
}

// digestHeaders stands for a question: method, path and every header, each with
// its length so that nothing can pass for something else.
func digestHeaders(headers http.Header) (d credentialDigest) {
	h := sha256.New()
	write := func(s string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		io.WriteString(h, s)
	}
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		write(name)
		h.Write(binary.AppendUvarint(nil, uint64(len(headers[name]))))
		for _, v := range headers[name] {
			write(v)
		}
	}
	h.Sum(d[:0])
	return d
}

// ask puts the question.
func (a *forwardAuth) ask(
	ctx context.Context, headers http.Header,
) (*securityContext, []string, *authFailure) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return nil, nil, cannotTell("the URL of the authenticator does not parse")
	}
	req.Header = headers
	req.Header.Set("Accept", "application/json")
	res, err := a.client.Do(req)
	if err != nil {
		return nil, nil, cannotTell("the authenticator does not answer: " + withoutURL(err).Error())
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxForwardReply+1))
	switch {
	case err != nil || len(body) > maxForwardReply:
		return nil, nil, cannotTell("the authenticator's answer cannot be read")
	case res.StatusCode == http.StatusUnauthorized && a.anyCredential(headers):
		return nil, nil, refused(reasonInvalid, severityMedium, "the authenticator says 401")
	case res.StatusCode == http.StatusUnauthorized:
		return nil, nil, refused(reasonMissing, severityLow, "the authenticator says 401")
	case res.StatusCode == http.StatusForbidden:
		return nil, nil, notPermitted("The authenticator does not permit this request")
	case res.StatusCode != http.StatusOK:
		return nil, nil, cannotTell("the authenticator answers with status " + strconv.Itoa(res.StatusCode))
	}
	return decodeIdentity(body)
}

// anyCredential tells whether the caller sent something to be known by.
func (a *forwardAuth) anyCredential(headers http.Header) bool {
	return headers.Get("Authorization")+headers.Get("Cookie")+headers.Get(a.apiKeyHeader) != ""
}

// noIdentity is what the log says of an answer without one.
const noIdentity = `the authenticator's answer is not {"subject", "permissions"}`

// decodeIdentity reads the authenticator's answer.
func decodeIdentity(body []byte) (*securityContext, []string, *authFailure) {
	if checkJSON(body) != nil {
		return nil, nil, cannotTell(noIdentity)
	}
	sc := &securityContext{method: authByForward}
	var list []string
	var err error
	eachMember(body, func(key string, value []byte) bool {
		switch key {
		case "subject":
			sc.subject, err = tokenString(value)
		case "permissions":
			list, err = tokenStrings(value)
		}
		return err == nil
	})
	if err != nil || sc.subject == "" || len(list) > maxTokenPermissions {
		return nil, nil, cannotTell(noIdentity)
	}
	var unknown []string
	sc.permissions, unknown = parsePermissions(list)
	return sc, unknown, nil
}

func (a *forwardAuth) close() { a.client.CloseIdleConnections() }
