package main

// The settings of one role's authentication, and everything that can be wrong
// with them. No message repeats a key or a URL.

import (
	"cmp"
	"crypto"
	"crypto/sha256"
	"crypto/subtle"
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
}

// authSetup checks a section and collects what is wrong or strange with it.
type authSetup struct {
	c        *authConfig
	role     string // orchestration, worker or mount
	problems inputProblems
	warnings []string
}

func newAuthSetup(c *authConfig, role string) *authSetup { return &authSetup{c: c, role: role} }

func (s *authSetup) problem(key, format string, args ...any) {
	s.problems = append(s.problems, inputProblem{Field: authKeyPath(s.role, key), Message: fmt.Sprintf(format, args...)})
}

func (s *authSetup) warn(key, format string, args ...any) {
	s.warnings = append(s.warnings, authKeyPath(s.role, key)+": "+fmt.Sprintf(format, args...))
}

// check looks at everything but the keys that verify tokens. Types, ranges and
// words are the configuration's affair.
func (s *authSetup) check() {
	c := s.c
	s.checkAlgorithms()
	if c.JWTTokenExpiryHours < 1 || c.JWTTokenExpiryHours > 24 {
		s.warn("jwt_token_expiry_hours", "%d is outside 1 to 24", c.JWTTokenExpiryHours)
	}
	s.checkGiven("jwt_issuer", c.JWTIssuer)
	s.checkGiven("jwt_audience", c.JWTAudience)
	s.checkGiven("permissions_claim", c.PermissionsClaim)
	if !isCredentialHeader(c.APIKeyHeader) {
		s.problem("api_key_header", "%q cannot carry an API key", c.APIKeyHeader)
	}
	s.checkAPIKeys()
	if c.Enabled {
		s.checkMeans()
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

// checkMeans looks whether an enabled section has something to verify by, and
// whether one means makes others useless.
func (s *authSetup) checkMeans() {
	c := s.c
	switch {
	case c.AuthenticatorURL != "":
		s.checkAuthenticator()
		unused := c.JWTPublicKeyPath+c.JWTPublicKey+c.JWKSURL != "" || c.APIKeysEnabled
		if unused && s.role != "mount" { // which inherits them, and has an authenticator in their place
			s.warn("authenticator_url", "it is the only verifier: keys and API keys are not looked at")
		}
		return
	case c.JWTVerificationMethod == "jwks":
		s.checkKeySet()
	case c.JWKSURL != "":
		s.warn("jwks_url", `it is not used: jwt_verification_method is not "jwks"`)
	}
	if c.APIKeysEnabled && len(c.APIKeys) == 0 {
		s.problem("api_keys_enabled", "there are no api_keys")
	}
	if !c.APIKeysEnabled && len(c.APIKeys) > 0 {
		s.warn("api_keys", "they are not used: api_keys_enabled is false")
	}
	if c.noTokens() && !c.APIKeysEnabled {
		s.problem("enabled", "there is nothing to verify by: no key, no JWKS, no API keys, no authenticator")
	}
}

// fixedHeaders have a meaning of their own, or are logged or handed on; a key
// does not belong there.
const fixedHeaders = "Accept Authorization Connection Content-Encoding Content-Length Content-Type Cookie " +
	"Expect Forwarded Host Idempotency-Key Keep-Alive Last-Event-Id Origin Proxy-Authorization Referer Te " +
	"Traceparent Tracestate Trailer Transfer-Encoding Upgrade User-Agent X-Request-Id"

// isCredentialHeader tells whether a header may be the API key's: a name that
// is a token (RFC 9110) and no header with another meaning.
func isCredentialHeader(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	isToken := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	return isToken && !strings.HasPrefix(name, "X-Forwarded-") &&
		!slices.Contains(strings.Fields(fixedHeaders), name)
}

// noTokens tells whether there is nothing that verifies tokens.
func (c *authConfig) noTokens() bool {
	return c.JWTVerificationMethod != "jwks" && c.JWTPublicKeyPath+c.JWTPublicKey == ""
}

// onlyAPIKeys tells whether a token is of no use.
func (c *authConfig) onlyAPIKeys() bool {
	return c.APIKeysEnabled && c.AuthenticatorURL == "" && c.noTokens()
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

// means reads the keys of an enabled section that was checked.
func (s *authSetup) means(trusted []netip.Prefix) (m authMeans) {
	c := s.c
	if c.AuthenticatorURL != "" {
		cacheFor := time.Duration(c.AuthenticatorCacheSeconds) * time.Second
		m.forward = newForwardAuth(c.AuthenticatorURL, c.APIKeyHeader, cacheFor, trusted)
		return m
	}
	switch {
	case c.JWTVerificationMethod == "jwks":
		client := newKeyClient(c.JWKSURLAllowHTTP || c.JWKSAllowPrivateHosts)
		m.jwks = &keyFetcher{c.JWKSURL, c.JWTAllowedAlgorithms, client}
	case c.JWTPublicKeyPath+c.JWTPublicKey != "":
		m.static = s.staticKey()
	}
	if c.APIKeysEnabled {
		m.apiKeys = newAPIKeyRegistry(c.APIKeys)
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
		s.problem(key, "%v", err)
		return nil
	}
	s.checkPrivateKey(public)
	static, err := newStaticKey(public)
	if err != nil {
		s.problem(key, "%v", err)
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
		s.problem("jwt_private_key", "%v", err)
		return
	}
	if !private.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(public) {
		s.warn("jwt_private_key", "it does not belong to the public key")
	}
}

// checkKeySet looks at the address of the key set.
func (s *authSetup) checkKeySet() {
	u := s.checkURL("jwks_url", s.c.JWKSURL)
	if u == nil {
		return
	}
	if u.Scheme == "http" && !s.c.JWKSURLAllowHTTP {
		s.problem("jwks_url", "it must be https, unless jwks_url_allow_http is set")
	}
	if s.c.JWKSURLAllowHTTP || s.c.JWKSAllowPrivateHosts {
		return
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err == nil && isPrivateHost(ip) || strings.EqualFold(u.Hostname(), "localhost") {
		s.problem("jwks_url", "%v; jwks_allow_private_hosts would allow it", errPrivateHost)
	}
}

// checkAuthenticator looks at the address of the authenticator. Credentials in
// it would go out as those of every caller that has none.
func (s *authSetup) checkAuthenticator() {
	if u := s.checkURL("authenticator_url", s.c.AuthenticatorURL); u != nil && u.User != nil {
		s.problem("authenticator_url", "user and password in it would pass for a caller's")
	}
}

// parseTrustedProxy reads an address or a prefix. IPv4 in the guise of IPv6 is
// IPv4.
func parseTrustedProxy(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		return ip.Unmap().Prefix(ip.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, errors.New("is no address or prefix like 10.0.0.0/8")
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, nil
}

// checkProxyAddress is for the elements of web.trusted_proxies.
func checkProxyAddress(s string) error {
	_, err := parseTrustedProxy(s)
	return err
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

// checkAPIKeys looks at the registry, used or not.
func (s *authSetup) checkAPIKeys() {
	place := make(map[string]int)
	for i := range s.c.APIKeys {
		e := &s.c.APIKeys[i]
		if first, ok := place[e.Key]; ok && e.Key != "" {
			s.problem(fmt.Sprintf("api_keys[%d].key", i), "it is the same as that of api_keys[%d]", first)
		} else {
			place[e.Key] = i
		}
		s.checkAPIKey(i, e)
		if s.c.APIKeysEnabled {
			s.warnOfAPIKey(i, e)
		}
	}
}

func apiKeyMember(i int, member string) string { return fmt.Sprintf("api_keys[%d].%s", i, member) }

func (s *authSetup) checkAPIKey(i int, e *apiKeyConfig) {
	switch {
	case e.Key == "":
		s.problem(apiKeyMember(i, "key"), "it is empty")
	case !isHeaderText(e.Key):
		s.problem(apiKeyMember(i, "key"), "it has characters or blanks at its ends that no header can carry")
	}
	if len(e.Permissions) == 0 {
		s.problem(apiKeyMember(i, "permissions"), "it has none")
	}
}

// warnOfAPIKey names what is allowed and hardly meant.
func (s *authSetup) warnOfAPIKey(i int, e *apiKeyConfig) {
	if e.Key != "" && len(e.Key) < 16 {
		s.warn(apiKeyMember(i, "key"), "it has less than 16 characters: easy to guess")
	}
	list, superuser := e.permissionList()
	if superuser {
		s.warn(apiKeyMember(i, "permissions"), `"*" makes it a superuser key: all permissions`)
	}
	_, unknown := parsePermissions(list)
	switch {
	case len(unknown) == 0:
	case s.c.StrictValidation:
		s.warn(apiKeyMember(i, "permissions"), "unknown: %s; the key will be refused", strings.Join(unknown, ", "))
	case s.c.LogUnknownPermissions:
		s.warn(apiKeyMember(i, "permissions"), "unknown: %s", strings.Join(unknown, ", "))
	}
}

// isHeaderText tells whether a value arrives as it was sent in a header.
func isHeaderText(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' || r >= 0x7f
	})
}

// API keys: who presents which.

// apiKeyConfig is an entry of the registry as configured.
type apiKeyConfig struct {
	Key         string   `json:"key"`
	Permissions []string `json:"permissions"`
	Description string   `json:"description"` // becomes the subject
}

// permissionList is what the entry grants: the list ["*"], here and nowhere
// else, means the six wildcards.
func (k *apiKeyConfig) permissionList() (list []string, superuser bool) {
	if len(k.Permissions) == 1 && k.Permissions[0] == "*" {
		return allWildcards(), true
	}
	return k.Permissions, false
}

// apiKey is an entry of the registry; the key itself is not kept.
type apiKey struct {
	digest  credentialDigest
	sc      *securityContext
	unknown []string // permissions outside the vocabulary
}

// apiKeyRegistry is immutable.
type apiKeyRegistry []apiKey

func newAPIKeyRegistry(entries []apiKeyConfig) apiKeyRegistry {
	registry := make(apiKeyRegistry, len(entries))
	for i, e := range entries {
		list, _ := e.permissionList()
		set, unknown := parsePermissions(list)
		registry[i] = apiKey{
			digest:  sha256.Sum256([]byte(e.Key)),
			sc:      &securityContext{subject: e.Description, method: authByAPIKey, permissions: set},
			unknown: unknown,
		}
	}
	return registry
}

// find is the entry of a key, or nil. It takes the same time whatever the key.
func (r apiKeyRegistry) find(key string) *apiKey {
	digest := sha256.Sum256([]byte(key))
	found := -1
	for i := range r {
		same := subtle.ConstantTimeCompare(r[i].digest[:], digest[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return nil
	}
	return &r[found]
}

const (
	defaultIssuer      = "stepwell"
	defaultAudience    = "stepwell-api"
	defaultLeeway      = 60 * time.Second
	defaultExpiryHours = 24
	maxExpiryHours     = 10 * 366 * 24

	privateKeyName = "jwt-private-key.pem"
	publicKeyName  = "jwt-public-key.pem"
	keysDir        = "keys" // where generate-keys writes and the others look
)

// authKeyPath is the path of a key in the section of a role.
func authKeyPath(role, key string) string {
	if role == "mount" {
		return "mount.auth." + key
	}
	return role + ".web.auth." + key
}

const (
	defaultAPIKeyHeader = "X-API-Key"

	// onDemandLife is how long a token is good that a client makes for itself: less
	// than any jwt_token_expiry_hours, which bounds it.
	onDemandLife = 15 * time.Minute
)

// clientCredential is the header to send to a role (orchestration, worker, or
// mount, which is orchestration's), by the first credential that the environment
// has; header is "" when it has none. A token made on demand is good for some
// minutes: ask again for a later request. The error names the variable at fault,
// never its value.
func clientCredential(
	role string, getenv func(string) string, now func() instant,
) (header, value string, err error) {
	if role == "mount" {
		role = "orchestration"
	}
	for _, name := range []string{"STEPWELL_" + strings.ToUpper(role) + "_AUTH_TOKEN", "STEPWELL_AUTH_TOKEN"} {
		if token := strings.TrimSpace(getenv(name)); token != "" {
			return credentialHeader(name, "Authorization", "Bearer "+token)
		}
	}
	if key := strings.TrimSpace(getenv("STEPWELL_API_KEY")); key != "" {
		header := cmp.Or(getenv("STEPWELL_API_KEY_HEADER"), defaultAPIKeyHeader)
		if !isCredentialHeader(header) {
			return "", "", errors.New("STEPWELL_API_KEY_HEADER is no name of a header for keys")
		}
		return credentialHeader("STEPWELL_API_KEY", header, key)
	}
	if path := getenv("STEPWELL_JWT_PRIVATE_KEY_PATH"); path != "" {
		token, err := onDemandToken(path, role, getenv, now())
		if err != nil {
			return "", "", fmt.Errorf("STEPWELL_JWT_PRIVATE_KEY_PATH: %w", err)
		}
		return "Authorization", "Bearer " + token, nil
	}
	return "", "", nil
}

func credentialHeader(variable, header, value string) (string, string, error) {
	if !isHeaderText(value) {
		return "", "", fmt.Errorf("%s holds characters that no header can carry", variable)
	}
	return header, value, nil
}

// onDemandToken makes a token that may do everything: who has the key may.
func onDemandToken(path, role string, getenv func(string) string, now instant) (string, error) {
	key, err := readPrivateKey(path)
	if err != nil {
		return "", err
	}
	return signToken(tokenSpec{
		subject:     "stepwell-client",
		issuer:      authSetting(getenv, role, "jwt_issuer", defaultIssuer),
		audience:    authSetting(getenv, role, "jwt_audience", defaultAudience),
		permissions: allWildcards(),
		issued:      now,
		life:        onDemandLife,
	}, key)
}

// authSetting is a key of a role's authentication as the environment sets it,
// for those who work without a configuration.
func authSetting(getenv func(string) string, role, key, fallback string) string {
	name := "STEPWELL_" + strings.ToUpper(role) + "__WEB__AUTH__" + strings.ToUpper(key)
	if v := getenv(name); v != "" {
		return v
	}
	return fallback
}
