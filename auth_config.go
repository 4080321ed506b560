package main

// The settings of a role's authentication, its API keys, and their checks. No message repeats a key or a URL.

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"
)

// authConfig is a section [….auth] of the configuration.
type authConfig struct {
	Enabled                    bool
	JWTIssuer                  string
	JWTAudience                string
	JWTTokenExpiryHours        int
	JWTVerificationMethod      string // public_key or jwks
	JWTPublicKeyPath           string // takes precedence over JWTPublicKey
	JWTPublicKey               string // PEM
	JWTPrivateKey              string // PEM; not used
	JWKSURL                    string
	JWKSRefreshIntervalSeconds int
	JWKSMaxStaleSeconds        int
	JWKSURLAllowHTTP           bool
	JWKSAllowPrivateHosts      bool
	JWTLeewaySeconds           int
	JWTAllowedAlgorithms       []string
	PermissionsClaim           string
	StrictValidation           bool
	LogUnknownPermissions      bool
	APIKeyHeader               string
	APIKeysEnabled             bool
	APIKeys                    []apiKeyConfig
	AuthenticatorURL           string
	AuthenticatorCacheSeconds  int
}

// authSetup checks a section, makes its verifiers, and collects problems and warnings.
type authSetup struct {
	c        *authConfig
	role     string // orchestration, worker or mount
	problems inputProblems
	warnings []string
}

func (s *authSetup) problem(key, format string, args ...any) {
	s.problems = append(s.problems, inputProblem{Field: authKeyPath(s.role, key), Message: fmt.Sprintf(format, args...)})
}

func (s *authSetup) warn(key, format string, args ...any) {
	s.warnings = append(s.warnings, authKeyPath(s.role, key)+": "+fmt.Sprintf(format, args...))
}

// check checks everything except the keys that verify tokens, and warns of what is allowed but hardly intended. The
// configuration has checked types, ranges and words.
func (s *authSetup) check() {
	c := s.c
	s.checkAlgorithms()
	s.checkAPIKeys()
	forward := c.Enabled && c.AuthenticatorURL != ""
	own := c.Enabled && !forward // tokens and API keys are verified here
	unused := c.JWTPublicKeyPath+c.JWTPublicKey+c.JWKSURL != "" || c.APIKeysEnabled
	const empty = "must not be empty"
	for _, r := range []struct {
		applies      bool
		report       func(key, format string, args ...any)
		key, message string // "" if nothing is wrong
	}{
		{c.JWTTokenExpiryHours < 1 || c.JWTTokenExpiryHours > 24, s.warn, "jwt_token_expiry_hours",
			fmt.Sprintf("%d is outside 1 to 24", c.JWTTokenExpiryHours)},
		{c.JWTIssuer == "", s.problem, "jwt_issuer", empty},
		{c.JWTAudience == "", s.problem, "jwt_audience", empty},
		{c.PermissionsClaim == "", s.problem, "permissions_claim", empty},
		{!isCredentialHeader(c.APIKeyHeader), s.problem, "api_key_header",
			fmt.Sprintf("%q cannot carry an API key", c.APIKeyHeader)},
		{forward, s.problem, "authenticator_url", c.authenticatorFault()},
		// The mount point inherits the others, and has the authenticator in their place.
		{forward && unused && s.role != "mount", s.warn, "authenticator_url",
			"it is the only verifier: keys and API keys are ignored"},
		{own && c.usesKeySet() && !c.JWKSURLAllowHTTP && strings.HasPrefix(strings.ToLower(c.JWKSURL), "http:"), s.problem,
			"jwks_url", "must be https, unless jwks_url_allow_http is set"},
		{own && c.usesKeySet(), s.problem, "jwks_url", c.keySetFault()},
		{own && !c.usesKeySet() && c.JWKSURL != "", s.warn, "jwks_url", `not used: jwt_verification_method is not "jwks"`},
		{own && c.APIKeysEnabled && len(c.APIKeys) == 0, s.problem, "api_keys_enabled", "there are no api_keys"},
		{own && !c.APIKeysEnabled && len(c.APIKeys) > 0, s.warn, "api_keys", "not used: api_keys_enabled is false"},
		{own && c.noTokens() && !c.APIKeysEnabled, s.problem, "enabled",
			"nothing can verify credentials: configure a key, a JWKS, API keys or an authenticator"},
	} {
		if r.applies && r.message != "" {
			r.report(r.key, "%s", r.message)
		}
	}
}

func (s *authSetup) checkAlgorithms() {
	const key = "jwt_allowed_algorithms"
	if len(s.c.JWTAllowedAlgorithms) == 0 {
		s.problem(key, "must name at least one algorithm")
	}
	for _, a := range s.c.JWTAllowedAlgorithms {
		switch {
		case slices.Contains(signingAlgorithms, a):
		case strings.EqualFold(a, "none") || strings.HasPrefix(strings.ToUpper(a), "HS"):
			s.problem(key, "%s can never be allowed: anyone could make tokens", a)
		default:
			s.problem(key, "unknown algorithm %q; the algorithms are %s", a, strings.Join(signingAlgorithms, ", "))
		}
	}
}

// checkAPIKeys checks the registry, used or not. Its messages name elements: they must not show a key.
func (s *authSetup) checkAPIKeys() {
	place := make(map[string]int)
	for i, e := range s.c.APIKeys {
		key, permissions := fmt.Sprintf("api_keys[%d].key", i), fmt.Sprintf("api_keys[%d].permissions", i)
		first, known := place[e.Key]
		switch {
		case e.Key == "":
			s.problem(key, "is empty")
		case known:
			s.problem(key, "duplicates that of api_keys[%d]", first)
		case !isHeaderText(e.Key):
			s.problem(key, "contains characters that no header can carry, or begins or ends with a blank")
		default:
			place[e.Key] = i
		}
		if len(e.Permissions) == 0 {
			s.problem(permissions, "must not be empty")
		}
		if !s.c.APIKeysEnabled {
			continue
		}
		if e.Key != "" && len(e.Key) < 16 {
			s.warn(key, "it has fewer than 16 characters: easy to guess")
		}
		list, superuser := e.permissionList()
		if superuser {
			s.warn(permissions, `"*" makes it a superuser key: all permissions`)
		}
		_, unknown := parsePermissions(list)
		if len(unknown) > 0 && (s.c.StrictValidation || s.c.LogUnknownPermissions) {
			s.warn(permissions, "unknown: %s%s", strings.Join(unknown, ", "),
				pick(s.c.StrictValidation, "; the key will be refused", ""))
		}
	}
}

// fixedHeaders have another meaning, or are logged or forwarded, so that they must not carry a key.
const fixedHeaders = "Accept Authorization Connection Content-Encoding Content-Length Content-Type Cookie " +
	"Expect Forwarded Host Idempotency-Key Keep-Alive Last-Event-Id Origin Proxy-Authorization Referer Te " +
	"Traceparent Tracestate Trailer Transfer-Encoding Upgrade User-Agent X-Request-Id"

var httpHeaderName = compiled("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// isCredentialHeader reports whether a header may carry the API key: its name is a
// token (RFC 9110), and it has no other meaning.
func isCredentialHeader(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return httpHeaderName().MatchString(name) && !strings.HasPrefix(name, "X-Forwarded-") &&
		!slices.Contains(strings.Fields(fixedHeaders), name)
}

func (c *authConfig) usesKeySet() bool { return c.JWTVerificationMethod == "jwks" }

// noTokens reports whether nothing can verify tokens.
func (c *authConfig) noTokens() bool {
	return !c.usesKeySet() && c.JWTPublicKeyPath+c.JWTPublicKey == ""
}

// leeway returns the tolerated difference of clocks.
func (c *authConfig) leeway() time.Duration { return time.Duration(c.JWTLeewaySeconds) * time.Second }

// verifiers gives an authenticator what an enabled section verifies by: the forward
// authenticator alone, or any of the others. It begins to fetch a key set unless the
// section has problems.
func (s *authSetup) verifiers(a *authenticator, trusted []netip.Prefix) {
	c := s.c
	if c.AuthenticatorURL != "" {
		cacheFor := time.Duration(c.AuthenticatorCacheSeconds) * time.Second
		a.forward = newForwardAuth(c.AuthenticatorURL, c.APIKeyHeader, cacheFor, trusted, a.cache)
		return
	}
	if c.APIKeysEnabled {
		a.apiKeys = newAPIKeyRegistry(c.APIKeys)
	}
	switch {
	case c.noTokens(), c.usesKeySet() && len(s.problems) > 0:
	case c.usesKeySet():
		a.keys = newKeySet(c, a.clock, a.log, a.cache.clear)
		a.tokens = &tokenVerifier{c, a.keys}
	default:
		a.tokens = &tokenVerifier{c, s.staticKey()}
	}
}

// staticKey reads the key that verifies every token.
func (s *authSetup) staticKey() *verificationKey {
	path := "jwt_public_key"
	key, err := parsePublicKey([]byte(s.c.JWTPublicKey))
	if s.c.JWTPublicKeyPath != "" {
		path = "jwt_public_key_path"
		key, err = readPublicKey(s.c.JWTPublicKeyPath)
	}
	if err != nil {
		s.problem(path, "%v", err)
	} else if fit := key.algorithms; !key.limit(s.c.JWTAllowedAlgorithms...) {
		s.problem("jwt_allowed_algorithms", "none of them belongs to the key of %s; want %s", path, anyOf(fit))
	}
	return key
}

// webURL returns a parsed HTTP URL with a host, or nil.
func webURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil
	}
	return u
}

const notWebURL = "must be an http or https URL with a host"

// keySetFault says what is wrong with the URL of the key set.
func (c *authConfig) keySetFault() string {
	u := webURL(c.JWKSURL)
	switch {
	case c.JWKSURL == "":
		return `must not be empty if jwt_verification_method is "jwks"`
	case u == nil:
		return notWebURL
	case c.JWKSURLAllowHTTP || c.JWKSAllowPrivateHosts:
		return ""
	}
	// This finds what can be seen without DNS, for an error at start. What a name resolves to, now or later, is
	// checked by refusePrivateHosts at each connection.
	ip, err := netip.ParseAddr(u.Hostname())
	if err == nil && isPrivateHost(ip) || strings.EqualFold(u.Hostname(), "localhost") {
		return errPrivateHost.Error() + "; jwks_allow_private_hosts would allow it"
	}
	return ""
}

// authenticatorFault says what is wrong with the URL of the authenticator. Credentials in it would be sent for every
// caller without any.
func (c *authConfig) authenticatorFault() string {
	switch u := webURL(c.AuthenticatorURL); {
	case u == nil:
		return notWebURL
	case u.User != nil:
		return "must not contain a user or password, which would be sent in place of the caller's"
	}
	return ""
}

// parseTrustedProxy parses an address or a prefix. IPv4-mapped IPv6 is IPv4.
func parseTrustedProxy(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		return ip.Unmap().Prefix(ip.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, errors.New("is not an address or prefix like 10.0.0.0/8")
	}
	// Peers are compared as IPv4 (see peerAddress), so a mapped prefix would match none of them.
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, nil
}

// checkProxyAddress checks an element of web.trusted_proxies.
func checkProxyAddress(s string) error {
	_, err := parseTrustedProxy(s)
	return err
}

const (
	defaultIssuer      = "stepwell"
	defaultAudience    = "stepwell-api"
	defaultLeeway      = 60 // seconds
	defaultExpiryHours = 24
	maxExpiryHours     = 10 * 366 * 24

	privateKeyName = "jwt-private-key.pem"
	publicKeyName  = "jwt-public-key.pem"
	keysDir        = "keys" // where generate-keys writes and the other commands look

	defaultAPIKeyHeader = "X-API-Key"
)

func authKeyPath(role, key string) string {
	if role == "mount" {
		return "mount.auth." + key
	}
	return role + ".web.auth." + key
}

// isHeaderText reports whether a header delivers a value unchanged.
func isHeaderText(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' || r >= 0x7f
	})
}
