package main

// The keys of a role's authentication, the same for every role; how API keys are
// read from a configuration; and what is checked of a section before any key
// file is read.

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// authRoles are the roles that have a section [<role>.web.auth]. The mount-point
// API has one too, which inherits the orchestration role's.
var authRoles = []string{"orchestration", "worker"}

// authConfig is the section of a role; nil when there is no such role.
func (c *Config) authConfig(role string) *authConfig {
	switch role {
	case "orchestration":
		return &c.Orchestration.Web.Auth
	case "worker":
		return &c.Worker.Web.Auth
	case "mount":
		return &c.Mount.Auth
	}
	return nil
}

// authKeyRow is a row of the table of keys, for every role: the path is the last
// part of a key, at points at its value.
type authKeyRow struct {
	at func(*authConfig) any
	configKey
}

var authKeyTable = []authKeyRow{
	{func(a *authConfig) any { return &a.Enabled }, configKey{
		path: "enabled", def: false,
		help: "require credentials for protected routes",
	}},
	{func(a *authConfig) any { return &a.JWTIssuer }, configKey{
		path: "jwt_issuer", def: defaultIssuer,
		help: "required iss claim of a token",
	}},
	{func(a *authConfig) any { return &a.JWTAudience }, configKey{
		path: "jwt_audience", def: defaultAudience,
		help: "audience that a token's aud claim must contain",
	}},
	{func(a *authConfig) any { return &a.JWTTokenExpiryHours }, configKey{
		path: "jwt_token_expiry_hours", def: int64(defaultExpiryHours), min: 0, max: maxExpiryHours,
		help: "lifetime of tokens made on the command line, in hours; 1 to 24 is sensible",
	}},
	{func(a *authConfig) any { return &a.JWTVerificationMethod }, configKey{
		path: "jwt_verification_method", def: "public_key", words: []string{"public_key", "jwks"},
		help: "source of the keys that verify tokens: public_key or jwks",
	}},
	{func(a *authConfig) any { return &a.JWTPublicKeyPath }, configKey{
		path: "jwt_public_key_path", def: "", rival: "jwt_public_key", check: checkTextValue,
		help: "file with the public key in PEM; STEPWELL_JWT_PUBLIC_KEY_PATH sets it for both roles",
	}},
	{func(a *authConfig) any { return &a.JWTPublicKey }, configKey{
		path: "jwt_public_key", def: "", rival: "jwt_public_key_path", secret: secretValue,
		help: "public key in PEM, used when no file is set; STEPWELL_JWT_PUBLIC_KEY sets it for both roles",
	}},
	{func(a *authConfig) any { return &a.JWTPrivateKey }, configKey{
		path: "jwt_private_key", def: "", secret: secretValue,
		help: "private key in PEM; the service only checks that it matches the public key",
	}},
	{func(a *authConfig) any { return &a.JWKSURL }, configKey{
		path: "jwks_url", def: "", secret: maskURLs,
		help: "URL of the key set",
	}},
	{func(a *authConfig) any { return &a.JWKSRefreshIntervalSeconds }, configKey{
		path: "jwks_refresh_interval_seconds", def: int64(3600), min: 1, max: 7 * 24 * 3600,
		help: "time between fetches of the key set, in seconds",
	}},
	{func(a *authConfig) any { return &a.JWKSMaxStaleSeconds }, configKey{
		path: "jwks_max_stale_seconds", def: int64(300), min: 0, max: 30 * 24 * 3600,
		help: "how much longer to use the key set while fetching it fails, in seconds",
	}},
	{func(a *authConfig) any { return &a.JWKSURLAllowHTTP }, configKey{
		path: "jwks_url_allow_http", def: false,
		help: "allow a key set over plain http and from any address; anyone on the network path can then forge tokens",
	}},
	{func(a *authConfig) any { return &a.JWKSAllowPrivateHosts }, configKey{
		path: "jwks_allow_private_hosts", def: false,
		help: "allow a key set from loopback, link-local and metadata addresses",
	}},
	{func(a *authConfig) any { return &a.JWTLeewaySeconds }, configKey{
		path: "jwt_leeway_seconds", def: int64(defaultLeeway / time.Second), min: 0, max: 3600,
		help: "tolerated clock difference for exp, nbf and iat, in seconds",
	}},
	{func(a *authConfig) any { return &a.JWTAllowedAlgorithms }, configKey{
		path: "jwt_allowed_algorithms", def: []string{"RS256"},
		help: "allowed token algorithms, from " + strings.Join(signingAlgorithms, ", "),
	}},
	{func(a *authConfig) any { return &a.PermissionsClaim }, configKey{
		path: "permissions_claim", def: "permissions",
		help: "claim that lists the permissions",
	}},
	{func(a *authConfig) any { return &a.StrictValidation }, configKey{
		path: "strict_validation", def: true,
		help: "refuse credentials with an unknown permission",
	}},
	{func(a *authConfig) any { return &a.LogUnknownPermissions }, configKey{
		path: "log_unknown_permissions", def: true,
		help: "log unknown permissions that are not refused",
	}},
	{func(a *authConfig) any { return &a.APIKeyHeader }, configKey{
		path: "api_key_header", def: defaultAPIKeyHeader,
		help: "header that carries the API key",
	}},
	{func(a *authConfig) any { return &a.APIKeysEnabled }, configKey{
		path: "api_keys_enabled", def: false,
		help: "accept the API keys in api_keys",
	}},
	{func(a *authConfig) any { return &a.APIKeys }, configKey{
		path: "api_keys", def: []apiKeyConfig{}, secret: secretValue,
		help:   `API keys, each with its permissions (["*"]: all) and its description, which is the subject`,
		sample: `api_keys = [{key = "<16 characters or more>", permissions = ["tasks:*"], description = "ci"}]`,
	}},
	{func(a *authConfig) any { return &a.AuthenticatorURL }, configKey{
		path: "authenticator_url", def: "", secret: maskURLs,
		help: "URL of a service that authenticates every request, instead of any other verification",
	}},
	{func(a *authConfig) any { return &a.AuthenticatorCacheSeconds }, configKey{
		path: "authenticator_cache_seconds", def: int64(0), min: 0, max: maxForwardCacheTime,
		help: "how long to remember that the authenticator accepted a request, in seconds",
	}},
}

// authConfigKeys are the rows of authKeyTable for each role.
func authConfigKeys() []configKey {
	var rows []configKey
	for _, role := range append(slices.Clone(authRoles), "mount") {
		for _, row := range authKeyTable {
			k := row.configKey
			k.path = authKeyPath(role, k.path)
			if k.rival != "" {
				k.rival = authKeyPath(role, k.rival)
			}
			k.field = func(c *Config) any { return row.at(c.authConfig(role)) }
			if role == "mount" {
				k.inherits = authKeyPath("orchestration", row.path)
			}
			rows = append(rows, k)
		}
	}
	return rows
}

// publicKeyVariable is an environment variable that sets the public key of both
// roles, whatever else sets it.
type publicKeyVariable struct{ name, key string }

var publicKeyVariables = []publicKeyVariable{
	{"STEPWELL_JWT_PUBLIC_KEY", "jwt_public_key"},
	{"STEPWELL_JWT_PUBLIC_KEY_PATH", "jwt_public_key_path"},
}

// loadPublicKeys takes the variables of the public key: where one is set,
// neither form of the key that was there before counts.
func (l *configLoader) loadPublicKeys(getenv func(string) string) {
	first := slices.IndexFunc(publicKeyVariables, func(v publicKeyVariable) bool { return getenv(v.name) != "" })
	if first < 0 {
		return
	}
	for _, role := range authRoles {
		for _, v := range publicKeyVariables {
			k := configKeyAt(authKeyPath(role, v.key))
			l.clear(k, configSource{kind: fromEnv, name: publicKeyVariables[first].name})
			if text := getenv(v.name); text != "" {
				l.loadText(k, text, configSource{kind: fromEnv, name: v.name})
			}
		}
	}
}

// inherit gives keys that were given nothing the value of those they inherit.
func (l *configLoader) inherit() {
	for i := range configKeys {
		k := &configKeys[i]
		if k.inherits == "" || l.origin.of(k.path) != (configSource{}) {
			continue
		}
		from := configKeyAt(k.inherits)
		k.set(l.config, from.get(l.config))
		l.origin.sources[k.path] = l.origin.of(k.inherits)
	}
}

// clearRival empties the other form of a key when it comes from an earlier layer.
func (l *configLoader) clearRival(k *configKey, value any, source configSource) {
	if k.rival == "" || value == "" || l.origin.of(k.rival).sameLayer(source) {
		return
	}
	l.clear(configKeyAt(k.rival), source)
}

func (l *configLoader) clear(k *configKey, source configSource) {
	k.set(l.config, "")
	l.origin.sources[k.path] = source
}

// sameLayer tells whether neither of two sources was there before the other.
func (s configSource) sameLayer(o configSource) bool {
	return s.kind == o.kind && (s.kind == fromEnv || s.name == o.name)
}

// checkAuth checks every role's section as far as that takes no key file. What
// follows from a problem that was reported before is left out.
func (l *configLoader) checkAuth() {
	for _, role := range authRoles {
		setup := newAuthSetup(l.config.authConfig(role), role)
		setup.check()
		before := l.problems
		for _, p := range setup.problems {
			if !followsFrom(before, p) {
				l.report(l.origin.near(p.Field), p.Field, p.Message)
			}
		}
	}
	l.checkMountAuth()
}

// checkMountAuth checks the section of the mount point where it is served.
// Problems that it inherits were reported where they are.
func (l *configLoader) checkMountAuth() {
	if l.config.Mount.Path == "" || l.config.Role == "worker" || l.config.mountSharesAuth() {
		return
	}
	setup, before := newAuthSetup(&l.config.Mount.Auth, "mount"), l.problems
	setup.check()
	for _, p := range setup.problems {
		source := l.origin.near(p.Field)
		inherited := slices.ContainsFunc(before, func(b inputProblem) bool {
			return b.Source == source.String() && b.Message == p.Message
		})
		if !inherited && !followsFrom(before, p) {
			l.report(source, p.Field, p.Message)
		}
	}
}

// mountSharesAuth tells whether the mount point has the orchestration role's
// section unchanged.
func (c *Config) mountSharesAuth() bool {
	return reflect.DeepEqual(c.Mount.Auth, c.Orchestration.Web.Auth)
}

// followsFrom reports whether the key of a problem is known to be wrong; for the
// problem of a whole section, any key of it.
func followsFrom(known inputProblems, p inputProblem) bool {
	key, _, _ := strings.Cut(p.Field, "[")
	key = strings.TrimSuffix(key, ".enabled")
	return slices.ContainsFunc(known, func(k inputProblem) bool { return strings.HasPrefix(k.Field, key) })
}

// near is the source of a path, or of what that is in.
func (p *provenance) near(path string) configSource {
	for path != "" {
		if s, ok := p.sources[path]; ok {
			return s
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return configSource{}
}

// convertAPIKeys reads a list of API keys, as a file or JSON has it.
func (k *configKey) convertAPIKeys(raw any) ([]apiKeyConfig, inputProblems) {
	entries, ok := configEntries(raw)
	if !ok {
		return nil, k.wantConfigType(raw, false)
	}
	list := make([]apiKeyConfig, len(entries))
	var faults inputProblems
	for i, raw := range entries {
		r := apiKeyReader{path: fmt.Sprintf("%s[%d]", k.path, i), into: &list[i]}
		r.read(raw)
		faults = append(faults, r.faults...)
	}
	return list, faults
}

// configEntries is a list, whichever of its ways the decoder chose.
func configEntries(raw any) (entries []any, ok bool) {
	switch raw := raw.(type) {
	case []any:
		return raw, true
	case []map[string]any:
		for _, table := range raw {
			entries = append(entries, table)
		}
		return entries, true
	}
	return nil, false
}

// apiKeyReader reads one entry. What it complains of it does not repeat: it may
// be the key.
type apiKeyReader struct {
	path   string
	into   *apiKeyConfig
	faults inputProblems
}

func (r *apiKeyReader) complain(member, message string) {
	r.faults = append(r.faults, inputProblem{Field: joinConfigPath(r.path, member), Message: message})
}

func (r *apiKeyReader) read(raw any) {
	table, ok := raw.(map[string]any)
	if !ok {
		r.faults = append(r.faults, inputProblem{Field: r.path, Message: "want a table, got " + tomlTypeName(raw)})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		r.member(name, table[name])
	}
	if len(r.faults) > 0 {
		return
	}
	if r.into.Key == "" {
		r.complain("key", "it is missing or empty")
	}
	if len(r.into.Permissions) == 0 {
		r.complain("permissions", "there are none: the key would be good for nothing")
	}
}

func (r *apiKeyReader) member(name string, value any) {
	switch name {
	case "key":
		r.into.Key = r.text(name, value)
	case "description":
		r.into.Description = r.text(name, value)
	case "permissions":
		list, ok := value.([]any)
		if !ok {
			r.complain(name, "want an array of strings, got "+tomlTypeName(value))
		}
		for i, e := range list {
			r.into.Permissions = append(r.into.Permissions, r.text(fmt.Sprintf("%s[%d]", name, i), e))
		}
	default:
		r.complain(name, unknownConfigName("key", name, []string{"key", "permissions", "description"}))
	}
}

func (r *apiKeyReader) text(name string, value any) string {
	s, ok := value.(string)
	if !ok {
		r.faults = append(r.faults, inputProblem{Field: r.path + "." + name, Message: "want a string, got " + tomlTypeName(value)})
	}
	return s
}

// parseConfigEntries reads a list from a variable: JSON, or nothing.
func parseConfigEntries(text string) ([]any, error) {
	if strings.TrimSpace(text) == "" {
		return []any{}, nil
	}
	if err := checkJSON([]byte(text)); err != nil {
		return nil, err
	}
	var list []any
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	if list == nil {
		return nil, fmt.Errorf("null is no list")
	}
	return list, nil
}

// cloneAPIKeys is a copy that shares nothing.
func cloneAPIKeys(list []apiKeyConfig) []apiKeyConfig {
	list = slices.Clone(list)
	for i := range list {
		list[i].Permissions = slices.Clone(list[i].Permissions)
	}
	return list
}

// redactAPIKeys is a copy without the keys.
func redactAPIKeys(list []apiKeyConfig) []apiKeyConfig {
	list = cloneAPIKeys(list)
	for i := range list {
		list[i].Key = redactedText
	}
	return list
}

// apiKeysLiteral is a list of API keys as TOML.
func apiKeysLiteral(list []apiKeyConfig) string {
	items := make([]string, len(list))
	for i, k := range list {
		items[i] = fmt.Sprintf("{key = %s, permissions = %s, description = %s}",
			quoteTOML(k.Key), tomlLiteral(k.Permissions), quoteTOML(k.Description))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// trustedProxies is web.trusted_proxies, which was checked.
func (c *webConfig) trustedProxies() []netip.Prefix {
	var trusted []netip.Prefix
	for _, text := range c.TrustedProxies {
		if p, err := parseTrustedProxy(text); err == nil {
			trusted = append(trusted, p)
		}
	}
	return trusted
}

// newAuthenticators sets up the authentication of the roles that are served. The
// error lists every problem of every role.
func newAuthenticators(
	cfg *Config, origin *provenance, clock clock, log *slog.Logger,
) (*authenticators, error) {
	made := &authenticators{}
	var problems inputProblems
	set := func(at **authenticator, role string) {
		a, warnings, err := newAuthenticator(cfg.authConfig(role), role, cfg.Web.trustedProxies(), clock, log)
		for _, w := range warnings {
			log.Warn(w)
		}
		if found, ok := err.(inputProblems); ok {
			for _, p := range found {
				problems = append(problems, inputProblem{origin.near(p.Field).String(), p.Field, p.Message})
			}
		}
		*at = a
	}
	if cfg.Role != "worker" {
		set(&made.orchestration, "orchestration")
		made.mount = made.orchestration
		if cfg.Mount.Path != "" && !cfg.mountSharesAuth() {
			set(&made.mount, "mount")
		}
		for _, key := range cfg.Mount.idleGuards() {
			log.Warn(key + " has no effect: mount.auth.enabled is false")
		}
	}
	if cfg.Role != "orchestration" {
		set(&made.worker, "worker")
	}
	if err := configError(problems); err != nil {
		made.close()
		return nil, err
	}
	if made.mount != nil {
		made.mount.metrics = made.orchestration.metrics // one listener, one count
	}
	return made, nil
}

// idleGuards are the keys that ask for a permission where nobody is asked for any.
func (c *mountConfig) idleGuards() (keys []string) {
	if c.Path == "" || c.Auth.Enabled {
		return nil
	}
	if c.StatusRequiresAuth {
		keys = append(keys, "mount.status_requires_auth")
	}
	if c.MetricsRequireAuth {
		keys = append(keys, "mount.metrics_require_auth")
	}
	return keys
}
