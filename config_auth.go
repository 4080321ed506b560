package main

// The keys of authentication, the same for every role, and making the authenticators that they describe.

import (
	"cmp"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// authRoles are the roles with a section [<role>.web.auth]. The mount-point API has
// [mount.auth], which inherits from the orchestration role's.
var authRoles = []string{"orchestration", "worker"}

func (c *Config) authConfig(role string) *authConfig {
	switch role {
	case "worker":
		return &c.Worker.Web.Auth
	case "mount":
		return &c.Mount.Auth
	}
	return &c.Orchestration.Web.Auth
}

// authKeyTable holds the keys of a section, the same for every role. Each path is the last part of a key's path.
var authKeyTable = []configKey{
	{path: "enabled", def: false,
		help: "require credentials for protected routes"},
	{path: "jwt_issuer", def: defaultIssuer,
		help: "required iss claim of a token"},
	{path: "jwt_audience", def: defaultAudience,
		help: "audience that a token's aud claim must contain"},
	{path: "jwt_token_expiry_hours", def: defaultExpiryHours, min: 0, max: maxExpiryHours,
		help: "lifetime of tokens made on the command line, in hours; 1 to 24 is sensible"},
	{path: "jwt_verification_method", def: "public_key", words: []string{"public_key", "jwks"},
		help: "source of the keys that verify tokens: public_key or jwks"},
	{path: "jwt_public_key_path", def: "", rival: "jwt_public_key", check: checkTextValue,
		help: "file with the public key in PEM; STEPWELL_JWT_PUBLIC_KEY_PATH sets it for both roles"},
	{path: "jwt_public_key", def: "", secret: secretValue, rival: "jwt_public_key_path",
		help: "public key in PEM, used when no file is set; STEPWELL_JWT_PUBLIC_KEY sets it for both roles"},
	{path: "jwt_private_key", def: "", secret: secretValue,
		help: "private key in PEM; accepted, and not used"},
	{path: "jwks_url", def: "", secret: maskURLs,
		help: "URL of the key set"},
	{path: "jwks_refresh_interval_seconds", def: 3600, min: 1, max: 7 * 24 * 3600,
		help: "time between fetches of the key set, in seconds"},
	{path: "jwks_max_stale_seconds", def: 300, min: 0, max: 30 * 24 * 3600,
		help: "how much longer to use the key set while fetching it fails, in seconds"},
	{path: "jwks_url_allow_http", def: false,
		help: "allow a key set over plain http and from any address; anyone on the network path can then forge tokens"},
	{path: "jwks_allow_private_hosts", def: false,
		help: "allow a key set from loopback, link-local and metadata addresses"},
	{path: "jwt_leeway_seconds", def: defaultLeeway, min: 0, max: 3600,
		help: "tolerated clock difference for exp, nbf and iat, in seconds"},
	{path: "jwt_allowed_algorithms", def: []string{"RS256"},
		help: "allowed token algorithms, from " + strings.Join(signingAlgorithms, ", ")},
	{path: "permissions_claim", def: "permissions",
		help: "claim that lists the permissions"},
	{path: "strict_validation", def: true,
		help: "refuse credentials with an unknown permission"},
	{path: "log_unknown_permissions", def: true,
		help: "log unknown permissions that are not refused"},
	{path: "api_key_header", def: defaultAPIKeyHeader,
		help: "header that carries the API key"},
	{path: "api_keys_enabled", def: false,
		help: "accept the API keys in api_keys"},
	{path: "api_keys", def: []apiKeyConfig{}, secret: secretValue, members: apiKeyMembers,
		help:   `API keys, each with its permissions (["*"]: all) and its description, which is the subject`,
		sample: `api_keys = [{key = "<16 characters or more>", permissions = ["tasks:*"], description = "ci"}]`},
	{path: "authenticator_url", def: "", secret: maskURLs,
		help: "URL of a service that authenticates every request, instead of any other verification"},
	{path: "authenticator_cache_seconds", def: 0, min: 0, max: maxForwardCacheTime,
		help: "how long to remember that the authenticator accepted a request, in seconds"},
}

// authConfigKeys returns the rows of authKeyTable for each role.
func authConfigKeys() []configKey {
	var rows []configKey
	for _, role := range append(slices.Clone(authRoles), "mount") {
		for _, row := range authKeyTable {
			k := row
			k.path = authKeyPath(role, k.path)
			if k.rival != "" {
				k.rival = authKeyPath(role, k.rival)
			}
			if role == "mount" {
				k.inherits = authKeyPath("orchestration", row.path)
			}
			rows = append(rows, k)
		}
	}
	return rows
}

// mountSharesAuth reports whether the mount point's section equals the orchestration role's.
func (c *Config) mountSharesAuth() bool {
	return reflect.DeepEqual(c.Mount.Auth, c.Orchestration.Web.Auth)
}

// trustedProxies returns web.trusted_proxies, which was checked.
func (c *webConfig) trustedProxies() []netip.Prefix {
	trusted := make([]netip.Prefix, len(c.TrustedProxies))
	for i, text := range c.TrustedProxies {
		trusted[i], _ = parseTrustedProxy(text)
	}
	return trusted
}

// newAuthenticators sets up the authentication of the roles that are served. The
// error lists every problem of every role.
func newAuthenticators(
	cfg *Config, origin *provenance, clock clock, log *slog.Logger,
) (authenticators, error) {
	made := authenticators{}
	var problems inputProblems
	set := func(role string) {
		a, warnings, err := newAuthenticator(cfg.authConfig(role), role, cfg.Web.trustedProxies(), clock, log)
		for _, w := range warnings {
			log.Warn(w)
		}
		if found, ok := err.(inputProblems); ok {
			for _, p := range found {
				problems = append(problems, inputProblem{Source: origin.authSource(role, p.Field).String(), Field: p.Field, Message: p.Message})
			}
			return
		}
		made[role] = a
	}
	if cfg.Role != "worker" {
		set("orchestration")
		if cfg.Mount.Path != "" && !cfg.mountSharesAuth() {
			set("mount")
		} else if problems == nil {
			made["mount"] = made["orchestration"]
		}
	}
	if cfg.Role != "orchestration" {
		set("worker")
	}
	if err := configError(problems); err != nil {
		made.close()
		return nil, err
	}
	made.share()
	return made, nil
}

// authSource returns what set a part of a role's authentication or, if nothing did, what switched that on.
func (p *provenance) authSource(role, path string) configSource {
	return cmp.Or(nearest(p.sources, path), p.of(authKeyPath(role, "enabled")))
}

// publicKeyVariable is a variable that sets the public key of both roles.
type publicKeyVariable struct{ name, key string }

var publicKeyVariables = []publicKeyVariable{
	{"STEPWELL_JWT_PUBLIC_KEY", "jwt_public_key"},
	{"STEPWELL_JWT_PUBLIC_KEY_PATH", "jwt_public_key_path"},
}

// loadPublicKeys reads the variables of the public key. If one is set, it replaces both forms of the key.
func (l *configLoader) loadPublicKeys(getenv func(string) string) {
	first := slices.IndexFunc(publicKeyVariables, func(v publicKeyVariable) bool { return getenv(v.name) != "" })
	if first < 0 {
		return
	}
	for _, role := range authRoles {
		for _, v := range publicKeyVariables {
			k := configKeyAt(authKeyPath(role, v.key))
			// Both are cleared, even the one that has no variable: a path from a file would otherwise win over a key
			// from a variable.
			l.clear(k, configSource{kind: fromEnv, name: publicKeyVariables[first].name})
			if text := getenv(v.name); text != "" {
				l.loadText(k, text, configSource{kind: fromEnv, name: v.name})
			}
		}
	}
}

// checkAuth checks every section that is used, without reading key files. It omits problems that follow from ones
// reported before, and those that the mount point's section inherited.
func (l *configLoader) checkAuth() {
	roles := authRoles
	if l.config.Mount.Path != "" && l.config.Role != "worker" && !l.config.mountSharesAuth() {
		roles = append(slices.Clone(authRoles), "mount")
	}
	for _, role := range roles {
		setup, before := &authSetup{c: l.config.authConfig(role), role: role}, l.problems
		setup.check()
		for _, p := range setup.problems {
			source := l.origin.authSource(role, p.Field)
			inherited := role == "mount" && slices.ContainsFunc(before, func(b inputProblem) bool {
				return b.Source == source.String() && b.Message == p.Message
			})
			if !inherited && !followsFrom(before, p) {
				l.report(source, p.Field, p.Message)
			}
		}
	}
}

// followsFrom reports whether the key of a problem, or any key that it switches on, has a known problem.
func followsFrom(known inputProblems, p inputProblem) bool {
	key, _, _ := strings.Cut(p.Field, "[")
	key = strings.TrimRight(strings.TrimSuffix(key, "enabled"), "._")
	return slices.ContainsFunc(known, func(k inputProblem) bool { return strings.HasPrefix(k.Field, key) })
}
