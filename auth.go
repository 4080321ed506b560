package main

// The auth family: who a caller is, and what they may do. It knows base alone:
// the configuration, HTTP servers and routes are above it.
//
//	auth.go             the authenticator of a role, the security context of a caller, refusals, metrics, the cache
//	auth_permissions.go permissions, and the patterns of roles
//	auth_config.go      the settings of a role (authConfig) and their checks
//	auth_jwt.go         tokens (JWT): how they are decoded, verified, signed
//	auth_keys.go        API keys (apiKeyRegistry); public and private keys, their algorithms, keys as PEM
//	auth_keyset.go      a key set (JWKS): fetching and decoding it, finding a key
//	auth_forward.go     asking a forward authenticator

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// How a caller authenticated; the words are metric labels.
const (
	authByNothing = "none" // authentication is disabled
	authByToken   = "jwt"
	authByAPIKey  = "api_key"
	authByForward = "forward"
)

// securityContext is an authenticated caller. It is never changed once made.
type securityContext struct {
	subject     string // "" when the credential names none
	method      string // authByNothing, …
	issuer      string // of a token
	key         string // the digest of an API key; of a token without a subject, the kid
	permissions permissionSet
	expiry      instant // of a token; zero when the credential does not expire
}

// unrestricted returns the context of every request while authentication is disabled.
func unrestricted() *securityContext {
	return &securityContext{method: authByNothing, permissions: everyPermission}
}

// may reports whether the caller has permission p. A nil context has none.
func (sc *securityContext) may(p permission) bool { return sc != nil && sc.permissions.has(p) }

// identity returns what distinguishes a caller from others whose subjects may be equal.
// It is "" for everybody while authentication is disabled. A token's subject is unique
// for its issuer, so that the caller stays the same when keys are rotated.
func (sc *securityContext) identity() string {
	if sc == nil || sc.method == authByNothing {
		return ""
	}
	return string(appendSized(nil, sc.method, sc.issuer, sc.key, sc.subject))
}

// securityKey is the key of the security context in a context.Context.
type securityKey struct{}

func withSecurity(ctx context.Context, sc *securityContext) context.Context {
	return context.WithValue(ctx, securityKey{}, sc)
}

// securityOf returns the security context of a request, or nil when the request
// was not authenticated, as on public routes.
func securityOf(ctx context.Context) *securityContext {
	sc, _ := ctx.Value(securityKey{}).(*securityContext)
	return sc
}

// subjectOf returns the subject of a request's caller, "" when it has none.
func subjectOf(ctx context.Context) string {
	if sc := securityOf(ctx); sc != nil {
		return sc.subject
	}
	return ""
}

// Refusals: failures that say why a request was not let through. They contain
// nothing of a credential except the names of unknown permissions.

// Reasons of a refusal; the words go to the client and to the metrics.
const (
	reasonMissing   = "missing"
	reasonExpired   = "expired"
	reasonInvalid   = "invalid"
	reasonMalformed = "malformed"
	reasonForbidden = "forbidden"
)

// Severities of a refusal.
const (
	severityLow    = "low"    // everyday: no credentials, expired
	severityMedium = "medium" // a broken or misdirected client, or one that lacks a permission
	severityHigh   = "high"   // looks like guessing or forging
)

// refusalPauses says how long the caller should wait after a refusal, by its severity.
var refusalPauses = map[string]time.Duration{severityMedium: 5 * time.Second, severityHigh: time.Minute}

// refused returns a 401 for a reason. The detail is for the log.
func refused(reason, severity, detail string) *failure {
	message := strings.ToUpper(reason[:1]) + reason[1:] + " credentials"
	return &failure{kind: unauthenticated, message: message, retryAfter: refusalPauses[severity],
		refusal: &credentialRefusal{reason: reason, severity: severity, detail: detail}}
}

// unknownPermissions returns the 401 of strict validation.
func unknownPermissions(unknown []string) *failure {
	f := invalid("unknown permissions")
	f.message = "Unknown permissions: " + strings.Join(unknown, ", ")
	return f
}

// notPermitted returns a 403.
func notPermitted(message string) *failure {
	return &failure{kind: forbidden, message: message, retryAfter: refusalPauses[severityMedium],
		refusal: &credentialRefusal{reason: reasonForbidden, severity: severityMedium, detail: message}}
}

// cannotVerify returns a 503, for a key set or an authenticator that does not respond. It is not a 401, because the
// credentials may be good: a client must not discard them.
func cannotVerify(detail string) *failure {
	return &failure{kind: unavailable, message: "Credentials cannot be verified at the moment",
		retryAfter: 5 * time.Second, refusal: &credentialRefusal{detail: detail}}
}

// malformed, invalid and forged return the 401s for a credential that is broken, one that is good for something else, and
// one that no mistake explains.
func malformed(detail string) *failure { return refused(reasonMalformed, severityMedium, detail) }
func invalid(detail string) *failure   { return refused(reasonInvalid, severityMedium, detail) }
func forged(detail string) *failure    { return refused(reasonInvalid, severityHigh, detail) }

// The authenticator of a role: from the headers of a request to its security
// context or a refusal, and from there to whether a route may be used.

// caller is the part of a request that identifies its sender.
type caller struct {
	header textproto.MIMEHeader
	method string
	url    *url.URL
	host   string // the host that the request was sent to
	remote string // address and port of the peer
}

const (
	maxCached      = 10_000 // callers of a role
	refusalsLogged = 10     // a second, of each role, and as many of callers whose credentials were verified
)

// authenticator is the authentication of one role. It is safe for concurrent use.
type authenticator struct {
	config  *authConfig
	clock   clock
	log     *slog.Logger
	metrics *authMetrics
	logRate *logRate // of refusals of those whose credentials were not verified
	logSeen *logRate // of refusals and unknown permissions of others

	forward *forwardAuth   // when set, the only verifier
	tokens  *tokenVerifier // nil: bearer tokens are not accepted
	keys    *keySet        // nil: the tokens' key is static
	cache   *authCache     // of callers by tokens, or by what was forwarded
	apiKeys apiKeyRegistry // nil: API keys are ignored
}

// newAuthenticator sets up the authentication of a role (orchestration, worker or mount) behind trusted proxies. The
// error is an inputProblems; the warnings are for the start-up log. The clock is the real one: keys are refreshed by
// it. The configuration must not change afterwards.
func newAuthenticator(
	c *authConfig, role string, trusted []netip.Prefix, clock clock, log *slog.Logger,
) (*authenticator, []string, error) {
	setup := &authSetup{c: c, role: role}
	setup.check()
	a := &authenticator{config: c, clock: clock, log: log.With("role", role), metrics: new(authMetrics)}
	a.logRate, a.logSeen = &logRate{most: refusalsLogged}, &logRate{most: refusalsLogged}
	a.cache = newAuthCache(maxCached)
	if c.Enabled {
		setup.verifiers(a, trusted)
	}
	if err := setup.problems.orNil(); err != nil {
		return nil, setup.warnings, err
	}
	return a, setup.warnings, nil
}

// close stops the refresh of keys and the connections to the forward authenticator.
func (a *authenticator) close() {
	if a.keys != nil {
		a.keys.close()
	}
	if a.forward != nil {
		a.forward.close()
	}
}

// ready returns nil once credentials can be verified.
func (a *authenticator) ready() error {
	if a.keys == nil {
		return nil
	}
	return a.keys.ready()
}

// authenticate finds out who sent a request, from its headers alone. The times in tokens are compared with now.
func (a *authenticator) authenticate(ctx context.Context, c caller, now instant) (*securityContext, *failure) {
	if !a.config.Enabled {
		return unrestricted(), nil
	}
	method, sc, f := a.identify(ctx, c, now)
	a.metrics.countRequest(method, f)
	if f != nil {
		f.refusal.method = method
		return nil, f
	}
	return sc, nil
}

// identify tries the credentials of a request: a bearer token first, then an API key.
func (a *authenticator) identify(ctx context.Context, c caller, now instant) (string, *securityContext, *failure) {
	if a.forward != nil {
		sc, unknown, f := a.forward.identity(ctx, c, now)
		a.logUnknown(unknown)
		return a.validate(authByForward, sc, unknown, f)
	}
	token, given := bearerToken(c.header["Authorization"])
	switch {
	// It is not ignored in favour of an API key: the caller meant to be known by the token.
	case given && token == "":
		return authByToken, nil, malformed("the Authorization header is malformed")
	case given:
		sc, f := a.tokenIdentity(ctx, token, now)
		return authByToken, sc, f
	}
	keys := c.header.Values(a.config.APIKeyHeader)
	switch {
	case a.apiKeys == nil || len(keys) == 0 || len(keys) == 1 && keys[0] == "":
		return authByNothing, nil, refused(reasonMissing, severityLow, "no credentials")
	case len(keys) > 1:
		return authByAPIKey, nil, malformed("more than one API key")
	}
	key := a.apiKeys.find(keys[0])
	if key == nil {
		// No mistake explains an unknown key as well as guessing does.
		return authByAPIKey, nil, forged("unknown API key")
	}
	return a.validate(authByAPIKey, key.sc, key.unknown, nil)
}

// validate applies strict validation to an identified caller.
func (a *authenticator) validate(
	method string, sc *securityContext, unknown []string, f *failure,
) (string, *securityContext, *failure) {
	if f == nil && len(unknown) > 0 && a.config.StrictValidation {
		f = unknownPermissions(unknown)
	}
	return method, sc, f
}

// tokenIdentity (hot path: BenchmarkTokenCached) returns the caller that a token identifies, from the cache if
// possible.
func (a *authenticator) tokenIdentity(ctx context.Context, token string, now instant) (*securityContext, *failure) {
	if a.tokens == nil {
		return nil, invalid("bearer tokens are not accepted")
	}
	// The epoch is that before the verification: if the keys change while it runs, put drops its result.
	digest := credentialDigest(sha256.Sum256([]byte(token)))
	sc, epoch := a.cache.get(digest, now)
	// A cached identity must not outlive the keys that it was verified with: when they are too stale, verify says so.
	if sc != nil && (a.keys == nil || a.keys.usable()) {
		return sc, nil
	}
	e, f := a.verify(ctx, token, now)
	if f != nil {
		return nil, f
	}
	a.cache.put(digest, e, epoch)
	return e.sc, nil
}

// verify verifies a token that is not in the cache, and returns its entry.
func (a *authenticator) verify(ctx context.Context, token string, now instant) (*cachedIdentity, *failure) {
	begun := a.clock.now()
	claims, f := a.tokens.verify(ctx, token, now)
	a.metrics.countVerification(a.clock.now().sub(begun))
	if f != nil {
		return nil, f
	}
	set, unknown := parsePermissions(claims.permissions)
	if len(unknown) > 0 && a.config.StrictValidation {
		return nil, unknownPermissions(unknown)
	}
	a.logUnknown(unknown)
	sc := &securityContext{
		subject: claims.subject, method: authByToken, issuer: claims.issuer, permissions: set, expiry: claims.expiry,
	}
	// The issuer alone would make one caller of all tokens without a subject; their key at least tells some apart.
	if claims.subject == "" {
		sc.key = claims.keyID
	}
	// The entry is valid exactly as long as verification would accept the token, so that a hit never decides
	// differently.
	from := max(claims.notBefore, claims.issuedAt).add(-a.config.leeway())
	return &cachedIdentity{sc, from, claims.expiry.add(a.config.leeway())}, nil
}

// logUnknown logs permissions that are unknown and not refused. Those of API keys are logged once, at start-up.
func (a *authenticator) logUnknown(unknown []string) {
	if len(unknown) == 0 || a.config.StrictValidation || !a.config.LogUnknownPermissions {
		return
	}
	if dropped, ok := a.logSeen.allow(realNow()); ok {
		a.log.Warn("credentials with unknown permissions", "unknown", unknown, "not_logged", dropped)
	}
}

// bearerToken returns the token in the Authorization header: the scheme in any case, spaces, and a token without blanks
// (RFC 6750). The token is "" for a header that is broken, as two are, whatever they contain. Another scheme gives no
// token.
func bearerToken(headers []string) (token string, given bool) {
	if len(headers) != 1 {
		return "", len(headers) > 1
	}
	value := strings.Trim(headers[0], " \t")
	end := strings.IndexAny(value+" ", " \t")
	if !strings.EqualFold(value[:end], "bearer") {
		return "", false
	}
	token = strings.TrimLeft(value[end:], " ")
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", true
	}
	return token, true
}

// authorize lets a caller pass who has any of the permissions needed; the refusal names the first.
func (a *authenticator) authorize(sc *securityContext, needed ...permission) *failure {
	// A nil sc has no permissions, so an unauthenticated caller passes only where none is needed.
	if len(needed) == 0 || slices.ContainsFunc(needed, sc.may) {
		return nil
	}
	return a.deny(needed[0])
}

// authorizeAll lets a caller pass who has all of the permissions.
func (a *authenticator) authorizeAll(sc *securityContext, needed ...permission) *failure {
	for _, p := range needed {
		if !sc.may(p) {
			return a.deny(p)
		}
	}
	return nil
}

func (a *authenticator) deny(p permission) *failure {
	a.metrics.countDenial(p)
	return notPermitted("Missing required permission: " + p.String())
}

// authenticators are those of the roles that the process serves, by role. The mount point shares the orchestration role's
// unless it is configured differently.
type authenticators map[string]*authenticator

// counted returns the same authenticators with new counters. Closing the originals closes them too.
func (a authenticators) counted() authenticators {
	made := authenticators{}
	for role, one := range a {
		c := *one
		c.metrics = new(authMetrics)
		made[role] = &c
	}
	made.share()
	return made
}

// share makes the metrics of the orchestration role, to which the mount point belongs, count both together.
func (a authenticators) share() {
	if a["mount"] != nil {
		a["mount"].metrics = a["orchestration"].metrics
	}
}

// ready returns nil once every role can verify credentials.
func (a authenticators) ready() error {
	for _, one := range a {
		if err := one.ready(); err != nil {
			return err
		}
	}
	return nil
}

func (a authenticators) close() {
	for _, one := range a {
		one.close()
	}
}

// A bounded cache of verified credentials. It stores their SHA-256 digests only.

// credentialDigest is the digest of a credential.
type credentialDigest [sha256.Size]byte

// authCache maps credentials to callers. When it is full, it starts over: only verified credentials fill it.
type authCache struct {
	limit int // entries

	mu      sync.Mutex
	entries map[credentialDigest]*cachedIdentity // guarded by mu
	epoch   uint64                               // how often it was cleared; guarded by mu
}

// cachedIdentity is an entry of the cache, valid while from <= now < until.
type cachedIdentity struct {
	sc          *securityContext
	from, until instant
}

func newAuthCache(limit int) *authCache {
	return &authCache{limit: limit, entries: make(map[credentialDigest]*cachedIdentity)}
}

// get returns the caller of a credential if its entry is valid at now, and drops
// the entry if it is not. The epoch is for put.
func (c *authCache) get(d credentialDigest, now instant) (sc *securityContext, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[d]
	if e == nil || now < e.from || now >= e.until {
		delete(c.entries, d)
		return nil, c.epoch
	}
	return e.sc, c.epoch
}

// put stores an identity that was established after a get, unless the cache was cleared in between.
func (c *authCache) put(d credentialDigest, e *cachedIdentity, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The keys have changed since: what the old ones verified must not come back.
	if epoch != c.epoch {
		return
	}
	if len(c.entries) >= c.limit {
		clear(c.entries)
	}
	c.entries[d] = e
}

// clear drops all entries, and the results of verifications that are running now.
func (c *authCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Verifications that have already begun used the old keys: the new epoch makes put drop their results.
	c.epoch++
	clear(c.entries)
}

// Metrics of authentication. Their labels are fixed words: nothing that a caller sends becomes a label.

var (
	authReasons = []string{reasonMissing, reasonExpired, reasonInvalid, reasonMalformed, reasonForbidden}
	authMethods = []string{authByNothing, authByToken, authByAPIKey, authByForward}
	authResults = []string{"success", "failure", "unavailable"}
)

// authMetrics are the counters of an authenticator. The zero value is ready.
type authMetrics struct {
	failures [5]atomic.Uint64    // by index in authReasons
	requests [4][3]atomic.Uint64 // by index in authMethods and authResults
	denials  [permissionCount]atomic.Uint64

	mu            sync.Mutex
	verifications histogram // guarded by mu
}

// countRequest counts an authenticated request, or one that failed with f.
func (m *authMetrics) countRequest(method string, f *failure) {
	result := 0
	switch {
	case f == nil:
	case f.kind == unavailable:
		result = 2
	default:
		result = 1
		m.countFailure(f.refusal.reason)
	}
	if i := slices.Index(authMethods, method); i >= 0 {
		m.requests[i][result].Add(1)
	}
}

func (m *authMetrics) countFailure(reason string) {
	if i := slices.Index(authReasons, reason); i >= 0 {
		m.failures[i].Add(1)
	}
}

// countDenial counts a request that lacked a permission.
func (m *authMetrics) countDenial(p permission) {
	m.countFailure(reasonForbidden)
	m.denials[p].Add(1)
}

// countVerification counts the verification of a token that was not in the cache.
func (m *authMetrics) countVerification(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.verifications.took(took)
}

// verified returns the times of all verifications.
func (m *authMetrics) verified() histogram {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.verifications.clone()
}
