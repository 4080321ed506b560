package main

// The settings of one role's authentication, and everything that can be wrong
// with them. No message repeats a key or a URL.

import (
	"crypto"
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"
)

// authConfig is a section [….auth]; the keys are those of the configuration.
type authConfig struct {
	Enabled                    bool
	JWTIssuer                  string
	JWTAudience                string
	JWTTokenExpiryHours        int
	JWTVerificationMethod      string // public_key or jwks
	JWTPublicKeyPath           string // beats JWTPublicKey
	JWTPublicKey               string // PEM
	JWTPrivateKey              string // PEM; nothing is verified by it
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

	TrustedProxies []string // web.trusted_proxies: addresses and prefixes
}

// defaultAuthConfig is a section that sets nothing.
func defaultAuthConfig() authConfig {
	return authConfig{
		JWTIssuer:                  defaultIssuer,
		JWTAudience:                defaultAudience,
		JWTTokenExpiryHours:        defaultExpiryHours,
		JWTVerificationMethod:      "public_key",
		JWKSRefreshIntervalSeconds: 3600,
		JWKSMaxStaleSeconds:        300,
		JWTLeewaySeconds:           int(defaultLeeway / time.Second),
		JWTAllowedAlgorithms:       []string{"RS256"},
		PermissionsClaim:           "permissions",
		StrictValidation:           true,
		LogUnknownPermissions:      true,
		APIKeyHeader:               defaultAPIKeyHeader,
	}
}

// authSetup checks a section and collects what is wrong or strange with it.
type authSetup struct {
	c        *authConfig
	prefix   string // of the keys
	problems []error
	warnings []string
}

// newAuthSetup begins a check. role is orchestration, worker or mount.
func newAuthSetup(c *authConfig, role string) *authSetup {
	prefix := role + ".web.auth."
	if role == "mount" {
		prefix = "mount.auth."
	}
	return &authSetup{c: c, prefix: prefix}
}

func (s *authSetup) problem(key, format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf(s.prefix+key+": "+format, args...))
}

func (s *authSetup) warn(key, format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(s.prefix+key+": "+format, args...))
}

// checkValues looks at what stands for itself, enabled or not.
func (s *authSetup) checkValues() {
	c := s.c
	s.checkAlgorithms()
	s.checkRange("jwt_leeway_seconds", c.JWTLeewaySeconds, 0, 3600)
	s.checkRange("jwks_refresh_interval_seconds", c.JWKSRefreshIntervalSeconds, 1, 7*24*3600)
	s.checkRange("jwks_max_stale_seconds", c.JWKSMaxStaleSeconds, 0, 30*24*3600)
	s.checkRange("authenticator_cache_seconds", c.AuthenticatorCacheSeconds, 0, maxForwardCacheTime)
	if c.JWTVerificationMethod != "public_key" && c.JWTVerificationMethod != "jwks" {
		s.problem("jwt_verification_method", "got %q; want public_key or jwks", c.JWTVerificationMethod)
	}
	if c.JWTTokenExpiryHours < 1 || c.JWTTokenExpiryHours > 24 {
		s.warn("jwt_token_expiry_hours", "%d is outside 1 to 24", c.JWTTokenExpiryHours)
	}
	s.checkGiven("jwt_issuer", c.JWTIssuer)
	s.checkGiven("jwt_audience", c.JWTAudience)
	s.checkGiven("permissions_claim", c.PermissionsClaim)
	if !isCredentialHeader(c.APIKeyHeader) {
		s.problem("api_key_header", "%q cannot carry an API key", c.APIKeyHeader)
	}
}

func (s *authSetup) checkRange(key string, got, low, high int) {
	if got < low || got > high {
		s.problem(key, "got %d; want %d to %d", got, low, high)
	}
}

func (s *authSetup) checkGiven(key, value string) {
	if value == "" {
		s.problem(key, "it must not be empty")
	}
}

func (s *authSetup) checkAlgorithms() {
	const key = "jwt_allowed_algorithms"
	if len(s.c.JWTAllowedAlgorithms) == 0 {
		s.problem(key, "it must name at least one algorithm")
	}
	for _, a := range s.c.JWTAllowedAlgorithms {
		switch {
		case slices.Contains(signingAlgorithms, a):
		case strings.EqualFold(a, "none") || strings.HasPrefix(strings.ToUpper(a), "HS"):
			s.problem(key, "%s can never be allowed: anyone could make tokens", a)
		default:
			s.problem(key, "unknown algorithm %q; want some of %s", a, strings.Join(signingAlgorithms, ", "))
		}
	}
}

// isCredentialHeader tells whether a header may be the API key's: a name that
// is a token (RFC 9110) and no header with another meaning.
func isCredentialHeader(name string) bool {
	const others = "Authorization Cookie Host Connection Content-Length Content-Type Transfer-Encoding " +
		"Upgrade Te Trailer Keep-Alive"
	name = textproto.CanonicalMIMEHeaderKey(name)
	isToken := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	return isToken && !slices.Contains(strings.Fields(others), name)
}

// rules are what tokens must satisfy.
func (c *authConfig) rules() tokenRules {
	return tokenRules{
		issuer:           c.JWTIssuer,
		audience:         c.JWTAudience,
		algorithms:       c.JWTAllowedAlgorithms,
		leeway:           time.Duration(c.JWTLeewaySeconds) * time.Second,
		permissionsClaim: c.PermissionsClaim,
	}
}

// authMeans is what a section verifies by: forward alone, or any of the others.
type authMeans struct {
	forward *forwardAuth
	static  *staticKey
	jwks    *keyFetcher
	apiKeys apiKeyRegistry
}

// means reads keys and registry of an enabled section.
func (s *authSetup) means() (m authMeans) {
	c := s.c
	if c.AuthenticatorURL != "" {
		m.forward = s.forward()
		if c.JWTPublicKeyPath+c.JWTPublicKey+c.JWKSURL != "" || c.APIKeysEnabled {
			s.warn("authenticator_url", "it is the only verifier: keys and API keys are not looked at")
		}
		return m
	}
	switch {
	case c.JWTVerificationMethod == "jwks":
		m.jwks = s.keySet()
	case c.JWTPublicKeyPath+c.JWTPublicKey != "":
		m.static = s.staticKey()
	case c.JWKSURL != "":
		s.warn("jwks_url", `it is not used: jwt_verification_method is not "jwks"`)
	}
	if c.APIKeysEnabled {
		m.apiKeys = s.apiKeys()
	} else if len(c.APIKeys) > 0 {
		s.warn("api_keys", "they are not used: api_keys_enabled is false")
	}
	if c.JWTVerificationMethod == "public_key" && c.JWTPublicKeyPath+c.JWTPublicKey == "" && !c.APIKeysEnabled {
		s.problem("enabled", "there is nothing to verify by: no key, no JWKS, no API keys, no authenticator")
	}
	return m
}

func (s *authSetup) staticKey() *staticKey {
	key, from := "jwt_public_key_path", readPublicKey
	source := s.c.JWTPublicKeyPath
	if source == "" {
		key, source = "jwt_public_key", s.c.JWTPublicKey
		from = func(text string) (crypto.PublicKey, error) { return parsePublicKey([]byte(text)) }
	}
	public, err := from(source)
	if err != nil {
		s.problem(key, "%w", err)
		return nil
	}
	s.checkPrivateKey(public)
	static, err := newStaticKey(public)
	if err != nil {
		s.problem(key, "%w", err)
		return nil
	}
	static.algorithms = slices.DeleteFunc(slices.Clone(static.algorithms), func(a string) bool {
		return !slices.Contains(s.c.JWTAllowedAlgorithms, a)
	})
	if len(static.algorithms) == 0 {
		s.problem("jwt_allowed_algorithms", "none of them belongs to the key of %s", key)
	}
	return static
}

// checkPrivateKey looks whether the private key belongs to the public one.
func (s *authSetup) checkPrivateKey(public crypto.PublicKey) {
	if s.c.JWTPrivateKey == "" {
		return
	}
	private, err := parsePrivateKey([]byte(s.c.JWTPrivateKey))
	if err != nil {
		s.problem("jwt_private_key", "%w", err)
		return
	}
	if !private.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(public) {
		s.warn("jwt_private_key", "it does not belong to the public key")
	}
}

func (s *authSetup) keySet() *keyFetcher {
	u := s.checkURL("jwks_url", s.c.JWKSURL)
	if u == nil {
		return nil
	}
	anyHost := s.c.JWKSURLAllowHTTP || s.c.JWKSAllowPrivateHosts
	if u.Scheme == "http" && !s.c.JWKSURLAllowHTTP {
		s.problem("jwks_url", "it must be https, unless jwks_url_allow_http is set")
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if !anyHost && (err == nil && isPrivateHost(ip) || strings.EqualFold(u.Hostname(), "localhost")) {
		s.problem("jwks_url", "%w; jwks_allow_private_hosts would allow it", errPrivateHost)
	}
	return &keyFetcher{s.c.JWKSURL, s.c.JWTAllowedAlgorithms, newKeyClient(anyHost)}
}

func (s *authSetup) forward() *forwardAuth {
	c := s.c
	var trusted []netip.Prefix
	for _, text := range c.TrustedProxies {
		prefix, err := netip.ParsePrefix(text)
		if ip, ipErr := netip.ParseAddr(text); ipErr == nil {
			prefix, err = ip.Unmap().Prefix(ip.Unmap().BitLen())
		}
		if err != nil {
			s.problems = append(s.problems, fmt.Errorf("web.trusted_proxies: %q is no address or prefix", text))
		}
		trusted = append(trusted, prefix)
	}
	if s.checkURL("authenticator_url", c.AuthenticatorURL) == nil {
		return nil
	}
	cacheFor := time.Duration(c.AuthenticatorCacheSeconds) * time.Second
	return newForwardAuth(c.AuthenticatorURL, c.APIKeyHeader, cacheFor, trusted)
}

// checkURL is the URL, or nil and a problem.
func (s *authSetup) checkURL(key, text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		s.problem(key, "it must be a URL with http or https and a host")
		return nil
	}
	return u
}

func (s *authSetup) apiKeys() apiKeyRegistry {
	if len(s.c.APIKeys) == 0 {
		s.problem("api_keys", "there are none, and api_keys_enabled is true")
	}
	place := make(map[string]int)
	for i, e := range s.c.APIKeys {
		if first, ok := place[e.Key]; ok && e.Key != "" {
			s.problem(fmt.Sprintf("api_keys[%d].key", i), "it is the same as that of api_keys[%d]", first)
		} else {
			place[e.Key] = i
		}
		s.checkAPIKey(i, &e)
	}
	return newAPIKeyRegistry(s.c.APIKeys)
}

func (s *authSetup) checkAPIKey(i int, e *apiKeyConfig) {
	name := func(member string) string { return fmt.Sprintf("api_keys[%d].%s", i, member) }
	switch {
	case e.Key == "":
		s.problem(name("key"), "it is empty")
	case !isHeaderText(e.Key):
		s.problem(name("key"), "it has characters or blanks at its ends that no header can carry")
	case len(e.Key) < 16:
		s.warn(name("key"), "it has less than 16 characters: easy to guess")
	}
	if len(e.Permissions) == 0 {
		s.problem(name("permissions"), "it has none")
	}
	list, superuser := e.permissionList()
	if superuser {
		s.warn(name("permissions"), `"*" makes it a superuser key: all permissions`)
	}
	_, unknown := parsePermissions(list)
	switch {
	case len(unknown) == 0:
	case s.c.StrictValidation:
		s.warn(name("permissions"), "unknown: %s; the key will be refused", strings.Join(unknown, ", "))
	case s.c.LogUnknownPermissions:
		s.warn(name("permissions"), "unknown: %s", strings.Join(unknown, ", "))
	}
}

// isHeaderText tells whether a value arrives as it was sent in a header.
func isHeaderText(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' || r >= 0x7f
	})
}

// err is all problems in one, or nil.
func (s *authSetup) err() error { return errors.Join(s.problems...) }
