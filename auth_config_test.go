package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startUp returns the problems and warnings of newAuthenticator.
func startUp(t *testing.T, role string, set func(c *authConfig)) (problems string, warnings string) {
	t.Helper()
	c := defaultConfig().Orchestration.Web.Auth
	c.Enabled = true
	c.JWTPublicKey = publicPEM(t, authKeys().rsa)
	set(&c)
	log := &logLines{}
	a, warned, err := newAuthenticator(&c, role, nil, newVirtualClock(authTestNow), log.logger())
	if err != nil {
		return err.Error(), strings.Join(warned, "\n")
	}
	a.close()
	return "", strings.Join(warned, "\n")
}

func TestStartUpChecks(t *testing.T) {
	t.Parallel()
	keys := authKeys()
	short := must(rsa.GenerateKey(rand.Reader, 1024))(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		noError(t, os.WriteFile(dir+"/"+name, []byte(text), 0o600))
		return dir + "/" + name
	}
	good, broken := write("good.pem", publicPEM(t, keys.rsa)), write("broken.pem", "no PEM")
	long := write("long.pem", publicPEM(t, keys.rsa)+strings.Repeat("x", maxKeyFile))
	const prefix = "orchestration.web.auth."
	type config = authConfig
	for _, tt := range []struct {
		name              string
		set               func(c *config)
		problems, warning string // what they contain; "" for none at all
	}{
		{"the defaults and a key", func(c *config) {}, "", ""},
		{"a key in a file", func(c *config) { c.JWTPublicKey, c.JWTPublicKeyPath = "", good }, "", ""},
		{"the path beats the inline key", func(c *config) { c.JWTPublicKey, c.JWTPublicKeyPath = "broken", good },
			"", ""},
		{"a key on one line", func(c *config) { c.JWTPublicKey = strings.ReplaceAll(c.JWTPublicKey, "\n", `\n`) },
			"", ""},
		{"nothing to verify by", func(c *config) { c.JWTPublicKey = "" },
			prefix + "enabled: there is nothing to verify by", ""},
		{"disabled, nothing is read", func(c *config) { c.Enabled, c.JWTPublicKeyPath = false, broken }, "", ""},
		{"disabled, algorithms count", func(c *config) {
			c.Enabled, c.JWTAllowedAlgorithms = false,
				[]string{"none"}
		},
			prefix + "jwt_allowed_algorithms: none can never be allowed", ""},

		{"a broken file", func(c *config) { c.JWTPublicKeyPath = broken },
			prefix + "jwt_public_key_path: reading the public key " + broken, ""},
		{"an absent file", func(c *config) { c.JWTPublicKeyPath = dir + "/absent.pem" }, dir + "/absent.pem", ""},
		{"a directory", func(c *config) { c.JWTPublicKeyPath = dir }, dir, ""},
		{"a long file", func(c *config) { c.JWTPublicKeyPath = long }, "too long", ""},
		{"a broken inline key", func(c *config) { c.JWTPublicKey = "no PEM" },
			prefix + "jwt_public_key: it is not PEM", ""},
		{"a private key", func(c *config) { c.JWTPublicKey = privatePEM(t, keys.rsa) }, "it contains a private key",
			""},
		{"RSA of 1024 bits", func(c *config) { c.JWTPublicKey = publicPEM(t, short) }, "1024 bits; want 2048", ""},
		{"a key of another family", func(c *config) { c.JWTPublicKey = publicPEM(t, keys.p256) },
			prefix + "jwt_allowed_algorithms: none of them belongs to the key", ""},
		{"the private key beside it", func(c *config) { c.JWTPrivateKey = privatePEM(t, keys.rsa) }, "", ""},
		{"another private key beside it", func(c *config) { c.JWTPrivateKey = privatePEM(t, keys.rsa2) }, "",
			"does not belong"},
		{"a broken private key", func(c *config) { c.JWTPrivateKey = "x" }, prefix + "jwt_private_key", ""},

		{"HS256", func(c *config) { c.JWTAllowedAlgorithms = []string{"RS256", "HS256"} },
			"HS256 can never be allowed", ""},
		{"hs512", func(c *config) { c.JWTAllowedAlgorithms = []string{"hs512"} }, "hs512 can never be allowed", ""},
		{"NONE", func(c *config) { c.JWTAllowedAlgorithms = []string{"NONE"} }, "NONE can never be allowed", ""},
		{"ES512", func(c *config) { c.JWTAllowedAlgorithms = []string{"ES512"} }, `unknown algorithm "ES512"`, ""},
		{"no algorithm", func(c *config) { c.JWTAllowedAlgorithms = nil }, "at least one algorithm", ""},
		{"no issuer", func(c *config) { c.JWTIssuer = "" }, prefix + "jwt_issuer: must not be empty", ""},
		{"no audience", func(c *config) { c.JWTAudience = "" }, prefix + "jwt_audience: must not be empty", ""},
		{"no claim", func(c *config) { c.PermissionsClaim = "" }, prefix + "permissions_claim", ""},
		{"48 hours", func(c *config) { c.JWTTokenExpiryHours = 48 }, "",
			prefix + "jwt_token_expiry_hours: 48 is outside"},
		{"a header for something else", func(c *config) { c.APIKeyHeader = "authorization" },
			prefix + "api_key_header", ""},
		{"a header with a blank", func(c *config) { c.APIKeyHeader = "X Key" }, prefix + "api_key_header", ""},
		{"no header", func(c *config) { c.APIKeyHeader = "" }, prefix + "api_key_header", ""},
		{"a header that is logged", func(c *config) { c.APIKeyHeader = "x-request-id" }, prefix + "api_key_header", ""},
		{"a header that handlers get", func(c *config) { c.APIKeyHeader = "Traceparent" }, prefix + "api_key_header", ""},
		{"a header of proxies", func(c *config) { c.APIKeyHeader = "x-forwarded-for" }, prefix + "api_key_header", ""},

		{"JWKS without a URL", jwksAt(""), prefix + "jwks_url: must be an http", ""},
		{"JWKS from a file", jwksAt("file:///etc/passwd"), prefix + "jwks_url: must be an http", ""},
		{"JWKS without a host", jwksAt("https:///x"), prefix + "jwks_url: must be an http", ""},
		{"JWKS over http", jwksAt("http://keys.invalid/x"), "jwks_url: must be https", ""},
		{"JWKS from loopback", jwksAt("https://127.0.0.1/x"), "jwks_url: the address is loopback", ""},
		{"JWKS from localhost", jwksAt("https://LocalHost/x"), "jwks_url: the address is loopback", ""},
		{"JWKS from a metadata service", jwksAt("https://169.254.169.254/x"), "jwks_url: the address is loopback",
			""},
		{"JWKS from IPv6 loopback", jwksAt("https://[::1]:8443/x"), "jwks_url: the address is loopback", ""},
		{"a JWKS that is not used", func(c *config) {
			c.JWTPublicKey, c.JWKSURL = "",
				"https://keys.invalid/"
			withAPIKeys(c)
		}, "", "jwks_url: not used"},

		{"API keys", withAPIKeys, "", `api_keys[1].permissions: "*" makes it a superuser key`},
		{"API keys with a typo", withAPIKeys, "",
			"api_keys[2].permissions: unknown: tasks:raed, nonsense; the key will be refused"},
		{"API keys, not strict", func(c *config) { withAPIKeys(c); c.StrictValidation = false }, "",
			"api_keys[3].permissions: unknown: *"},
		{"API keys alone", func(c *config) { withAPIKeys(c); c.JWTPublicKey = "" }, "", "superuser"},
		{"no API keys", func(c *config) { c.APIKeysEnabled = true }, prefix + "api_keys_enabled: there are no", ""},
		{"API keys that are not used", func(c *config) { withAPIKeys(c); c.APIKeysEnabled = false }, "",
			"api_keys: not used"},
		{"an empty API key", apiKeyOf(apiKeyConfig{Permissions: []string{"tasks:*"}}),
			prefix + "api_keys[0].key: is empty", ""},
		{"an API key with a blank behind", apiKeyOf(apiKeyConfig{Key: "0123456789abcdef ",
			Permissions: []string{"tasks:*"}}),
			prefix + "api_keys[0].key: contains characters", ""},
		{"an API key without permissions", apiKeyOf(apiKeyConfig{Key: "0123456789abcdef"}),
			prefix + "api_keys[0].permissions: must not be empty", ""},
		{"an API key twice", func(c *config) { withAPIKeys(c); c.APIKeys = append(c.APIKeys, c.APIKeys[0]) },
			prefix + "api_keys[4].key: duplicates that of api_keys[0]", "superuser"},
		{"a short API key", apiKeyOf(apiKeyConfig{Key: "hunter2", Permissions: []string{"tasks:*"}}), "",
			"api_keys[0].key: it has fewer than 16"},

		{"an authenticator", func(c *config) {
			c.JWTPublicKey, c.AuthenticatorURL = "",
				"http://127.0.0.1:9/who"
		}, "", ""},
		{"an authenticator and a key", func(c *config) { c.AuthenticatorURL = "http://127.0.0.1:9/who" }, "",
			"it is the only verifier"},
		{"an authenticator that would vouch for everybody", func(c *config) {
			c.JWTPublicKey, c.AuthenticatorURL = "", "http://me:hunter2@127.0.0.1:9/who"
		}, prefix + "authenticator_url: must not contain user or password", ""},
		{"an authenticator nowhere", func(c *config) { c.AuthenticatorURL = "who" },
			prefix + "authenticator_url: must be an http", "only verifier"},
	} {
		problems, warnings := startUp(t, "orchestration", tt.set)
		if !strings.Contains(problems, tt.problems) || (problems == "") != (tt.problems == "") {
			t.Errorf("%s: got problems %q; want %q", tt.name, problems, tt.problems)
		}
		if !strings.Contains(warnings, tt.warning) || (warnings == "") != (tt.warning == "") {
			t.Errorf("%s: got warnings %q; want %q", tt.name, warnings, tt.warning)
		}
		for _, secret := range []string{"hunter2", testAPIKey, "0123456789abcdef", strings.Split(publicPEM(t,
			keys.rsa), "\n")[1]} {
			if strings.Contains(problems+warnings, secret) {
				t.Errorf("%s: a secret is in %q", tt.name, problems+warnings)
			}
		}
	}
}

func jwksAt(url string) func(c *authConfig) {
	return func(c *authConfig) { c.JWTPublicKey, c.JWTVerificationMethod, c.JWKSURL = "", "jwks", url }
}

func apiKeyOf(k apiKeyConfig) func(c *authConfig) {
	return func(c *authConfig) { c.APIKeysEnabled, c.APIKeys = true, []apiKeyConfig{k} }
}

func TestStartUpListsEveryProblem(t *testing.T) {
	problems, _ := startUp(t, "mount", func(c *authConfig) {
		c.JWTIssuer, c.JWTAllowedAlgorithms = "", []string{"none", "HS256"}
		c.JWTPublicKeyPath, c.APIKeysEnabled = "absent.pem", true
		c.APIKeys = []apiKeyConfig{{Key: "a"}, {Key: "a"}}
	})
	for _, w := range []string{
		"mount.auth.jwt_allowed_algorithms: none", "mount.auth.jwt_allowed_algorithms: HS256",
		"mount.auth.jwt_issuer", "mount.auth.jwt_public_key_path", "absent.pem",
		"mount.auth.api_keys[0].permissions", "mount.auth.api_keys[1].permissions", "mount.auth.api_keys[1].key",
	} {
		if !strings.Contains(problems, w) {
			t.Errorf("got no %q in %s", w, problems)
		}
	}
	if problems, _ = startUp(t, "worker",
		func(c *authConfig) { c.JWTIssuer = "" }); !strings.HasPrefix(problems, "worker.web.auth.jwt_issuer") {
		t.Errorf("got %q; want the worker's key named", problems)
	}
}

func TestConfigIsTheSectionsDefault(t *testing.T) {
	c := defaultConfig().Orchestration.Web.Auth
	if _, warnings, err := newAuthenticator(&c, "worker", nil, newVirtualClock(0),
		(&logLines{}).logger()); err != nil || warnings != nil {
		t.Errorf("got %v, %q; want neither problem nor warning", err, warnings)
	}
}

func TestPublicKeyForms(t *testing.T) {
	keys := authKeys()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tokens"},
		NotBefore: authTestNow.time(), NotAfter: authTestNow.add(time.Hour).time(),
	}
	certificate := must(x509.CreateCertificate(rand.Reader, template, template, keys.rsa.Public(), keys.rsa))(t)
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs1 := x509.MarshalPKCS1PublicKey(&keys.rsa.PublicKey)
	for _, tt := range []struct {
		name, text string
		ok         bool
	}{
		{"PKIX", publicPEM(t, keys.rsa), true},
		{"PKCS#1", text("RSA PUBLIC KEY", pkcs1), true},
		{"a certificate", text("CERTIFICATE", certificate), true},
		{"EC behind its parameters", text("EC PARAMETERS", []byte{5, 0}) + publicPEM(t, keys.p256), true},
		{"Ed25519", publicPEM(t, keys.ed), true},
		{"words before it", "my key:\n" + publicPEM(t, keys.rsa), true},
		{"PKCS#1 said to be PKIX", text("PUBLIC KEY", pkcs1), false},
		{"PKIX cut off", text("PUBLIC KEY", publicDER(t, keys.rsa)[:100]), false},
		{"another sort of block", text("CERTIFICATE REQUEST", pkcs1), false},
		{"nothing", "", false},
		{"a key in base64 alone", strings.Join(strings.Split(publicPEM(t, keys.rsa), "\n")[1:5], "\n"), false},
	} {
		if _, err := parsePublicKey([]byte(tt.text)); (err == nil) != tt.ok {
			t.Errorf("%s: got %v; want success: %v", tt.name, err, tt.ok)
		}
	}
}

func TestClientCredential(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	noError(t, os.WriteFile(path, []byte(privatePEM(t, authKeys().rsa)), 0o600))
	all := map[string]string{
		"STEPWELL_ORCHESTRATION_AUTH_TOKEN": "o", "STEPWELL_WORKER_AUTH_TOKEN": "w", "STEPWELL_AUTH_TOKEN": "any",
		"STEPWELL_API_KEY": "key", "STEPWELL_JWT_PRIVATE_KEY_PATH": path,
	}
	without := func(names ...string) map[string]string {
		env := map[string]string{}
		for k, v := range all {
			env[k] = v
		}
		for _, n := range names {
			delete(env, "STEPWELL_"+n)
		}
		return env
	}
	with := func(env map[string]string, name, value string) map[string]string {
		env["STEPWELL_"+name] = value
		return env
	}
	noTokens := []string{"ORCHESTRATION_AUTH_TOKEN", "WORKER_AUTH_TOKEN", "AUTH_TOKEN"}
	for _, tt := range []struct {
		name, role    string
		env           map[string]string
		header, value string
		problem       string
	}{
		{"orchestration's own token", "orchestration", all, "Authorization", "Bearer o", ""},
		{"worker's own token", "worker", all, "Authorization", "Bearer w", ""},
		{"the mount is orchestration's", "mount", all, "Authorization", "Bearer o", ""},
		{"orchestration without its own", "orchestration", without("ORCHESTRATION_AUTH_TOKEN"), "Authorization",
			"Bearer any", ""},
		{"worker without its own", "worker", without("WORKER_AUTH_TOKEN"), "Authorization", "Bearer any", ""},
		{"an API key", "worker", without(noTokens...), "X-API-Key", "key", ""},
		{"an API key in another header", "worker", with(without(noTokens...), "API_KEY_HEADER", "X-Key"), "X-Key",
			"key", ""},
		{"the other role's token", "worker", map[string]string{"STEPWELL_ORCHESTRATION_AUTH_TOKEN": "o"}, "", "",
			""},
		{"nothing", "worker", nil, "", "", ""},
		{"a token with a line break behind", "worker", with(without(), "WORKER_AUTH_TOKEN", "w\n"),
			"Authorization", "Bearer w", ""},
		{"blanks for a token", "worker", with(without(), "WORKER_AUTH_TOKEN", " \n"), "Authorization",
			"Bearer any", ""},
		{"a token with a line break inside", "worker", with(without(), "WORKER_AUTH_TOKEN", "hunter\n2"), "", "",
			"STEPWELL_WORKER_AUTH_TOKEN"},
		{"an API key with a line break inside", "worker", with(without(noTokens...), "API_KEY", "hunter\r\n2"),
			"", "", "STEPWELL_API_KEY "},
		{"an unsound header", "worker", with(without(noTokens...), "API_KEY_HEADER", "hunter 2"), "", "",
			"STEPWELL_API_KEY_HEADER"},
		{"no key file", "worker", map[string]string{"STEPWELL_JWT_PRIVATE_KEY_PATH": "absent.pem"}, "", "",
			"absent.pem"},
	} {
		header, value, err := clientCredential(tt.role, func(k string) string { return tt.env[k] },
			func() instant { return authTestNow })
		if header != tt.header || value != tt.value {
			t.Errorf("%s: got %q, %q; want %q, %q", tt.name, header, value, tt.header, tt.value)
		}
		if (err != nil) != (tt.problem != "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: got %v; want an error with %q", tt.name, err, tt.problem)
		}
		if err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: the error holds the secret: %v", tt.name, err)
		}
	}
}

func TestTokenOnDemand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	noError(t, os.WriteFile(path, []byte(privatePEM(t, authKeys().rsa)), 0o600))
	env := map[string]string{
		"STEPWELL_JWT_PRIVATE_KEY_PATH":            path,
		"STEPWELL_WORKER__WEB__AUTH__JWT_ISSUER":   "me",
		"STEPWELL_WORKER__WEB__AUTH__JWT_AUDIENCE": "workers",
	}
	b := newAuthBench(t, unchanged)
	worker := newAuthBench(t, func(c *authConfig) { c.JWTIssuer, c.JWTAudience = "me", "workers" })
	for _, tt := range []struct {
		role string
		b    *authBench
	}{{"orchestration", b}, {"worker", worker}} {
		header, value, err := clientCredential(tt.role, func(k string) string { return env[k] }, b.clock.now)
		if err != nil {
			t.Fatalf("%s: %v", tt.role, err)
		}
		sc, f := tt.b.ask(header + ": " + value)
		if f != nil || sc.permissions != everyPermission || sc.expiry != authTestNow.add(15*time.Minute) {
			t.Errorf("%s: got %+v, %v; want everything for a quarter of an hour", tt.role, sc, f)
		}
	}
}
