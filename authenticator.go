package main

// The authentication step: from a request's headers to its security context or
// its refusal, and the question whether that may do what the route asks for.

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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
