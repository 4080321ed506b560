package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func TestSecurityContextTravels(t *testing.T) {
	ctx := context.Background()
	if sc := securityOf(ctx); sc != nil || sc.may(permTasksRead) {
		t.Errorf("bare context: got %+v; want nil, which may do nothing", sc)
	}
	sc := &securityContext{subject: "ci", method: authByAPIKey, permissions: 1 << permTasksRead}
	got := securityOf(withSecurity(ctx, sc))
	if got != sc {
		t.Errorf("got %+v; want %+v", got, sc)
	}
	if !got.may(permTasksRead) || got.may(permTasksCreate) {
		t.Errorf("got read %v, create %v; want true, false", got.may(permTasksRead), got.may(permTasksCreate))
	}
}

func TestUnrestricted(t *testing.T) {
	sc := unrestricted()
	for p := range permissionCount {
		if !sc.may(p) {
			t.Errorf("%v: got false; want true", p)
		}
	}
	if sc.subject != "" || sc.method != authByNothing {
		t.Errorf("got subject %q, method %q; want none", sc.subject, sc.method)
	}
}

// Shared by the tests of authentication: keys, handwritten tokens, and an authenticator
// in one line.

// authKeyring holds one key of each sort, and a second RSA key.
type authKeyring struct {
	rsa, rsa2  *rsa.PrivateKey
	p256, p384 *ecdsa.PrivateKey
	ed         ed25519.PrivateKey
}

// authKeys are made once for the whole run.
var authKeys = sync.OnceValue(func() *authKeyring {
	var k authKeyring
	var errs [5]error
	k.rsa, errs[0] = rsa.GenerateKey(rand.Reader, 2048)
	k.rsa2, errs[1] = rsa.GenerateKey(rand.Reader, 2048)
	k.p256, errs[2] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	k.p384, errs[3] = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, k.ed, errs[4] = ed25519.GenerateKey(rand.Reader)
	for _, err := range errs {
		if err != nil {
			panic(err)
		}
	}
	return &k
})

func publicDER(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	return must(x509.MarshalPKIXPublicKey(key.Public()))(t)
}

func publicPEM(t testing.TB, key crypto.Signer) string {
	t.Helper()
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER(t, key)}))
}

func privatePEM(t testing.TB, key crypto.Signer) string {
	t.Helper()
	der := must(x509.MarshalPKCS8PrivateKey(key))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// segment encodes a part of a token.
func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// signedText signs a header and claims.
func signedText(t testing.TB, alg string, key any, header, claims string) string {
	t.Helper()
	text := segment(header) + "." + segment(claims)
	signature := must(jwt.GetSigningMethod(alg).Sign(text, key))(t)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// goodClaims returns the claims of a token that is valid at authTestNow, followed by
// more members.
func goodClaims(more string) string {
	const form = `{"iss":"stepwell","aud":"stepwell-api","sub":"ci","iat":%d,"exp":%d,"permissions":["tasks:read"]%s}`
	return fmt.Sprintf(form, authTestNow/1e6, authTestNow/1e6+3600, more)
}

// claimsWith returns good claims with one replaced, or omitted for value "".
func claimsWith(name, value string) string {
	at := int64(authTestNow / 1e6)
	members := []string{}
	for _, m := range [][2]string{
		{"iss", `"stepwell"`}, {"aud", `"stepwell-api"`}, {"sub", `"ci"`},
		{"iat", fmt.Sprint(at)}, {"exp", fmt.Sprint(at + 3600)}, {"nbf", fmt.Sprint(at)},
		{"permissions", `["tasks:read"]`},
	} {
		if m[0] == name {
			m[1] = value
		}
		if m[1] != "" {
			members = append(members, fmt.Sprintf("%q:%s", m[0], m[1]))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// rs256 signs claims with the keyring's RSA key.
func rs256(t testing.TB, claims string) string {
	t.Helper()
	return signedText(t, "RS256", authKeys().rsa, `{"alg":"RS256","typ":"JWT"}`, claims)
}

// logLines is a log that a test reads.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// logger writes everything to l.
func (l *logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// authBench is an authenticator on a virtual clock.
type authBench struct {
	*authenticator
	clock *virtualClock
	log   *logLines
}

// newAuthBench makes an enabled authenticator for the orchestration role that
// trusts the keyring's RSA key, with the configuration changed by set.
func newAuthBench(t testing.TB, set func(c *authConfig)) *authBench {
	t.Helper()
	c := defaultConfig().Orchestration.Web.Auth
	c.Enabled = true
	c.JWTPublicKey = publicPEM(t, authKeys().rsa)
	set(&c)
	b := &authBench{clock: newVirtualClock(authTestNow), log: &logLines{}}
	a, _, err := newAuthenticator(&c, "orchestration", nil, b.clock, b.log.logger())
	if err != nil {
		t.Fatalf("newAuthenticator: %v", err)
	}
	t.Cleanup(a.close)
	b.authenticator = a
	return b
}

// testAuthenticators returns the authenticators of a configuration and closes them
// after the test.
func testAuthenticators(t testing.TB, cfg *Config, c clock, log *slog.Logger) *authenticators {
	t.Helper()
	a := must(newAuthenticators(cfg, &provenance{}, c, log))(t)
	t.Cleanup(a.close)
	return a
}

// unchanged leaves the configuration of newAuthBench as it is.
func unchanged(*authConfig) {}

// ask authenticates a request with header lines like "Authorization: Bearer x".
func (b *authBench) ask(lines ...string) (*securityContext, *failure) {
	return b.request(requestWith(lines...))
}

// request authenticates a request at the time of the clock.
func (b *authBench) request(r *http.Request) (*securityContext, *failure) {
	return b.authenticate(r.Context(), callerOf(r), b.clock.now())
}

// bearer authenticates a request with a token.
func (b *authBench) bearer(token string) (*securityContext, *failure) {
	return b.ask("Authorization: Bearer " + token)
}

func requestWith(lines ...string) *http.Request {
	r := httptest.NewRequest("GET", "/v1/tasks?page=2", nil)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header[http.CanonicalHeaderKey(name)] = append(r.Header.Values(name), value)
	}
	return r
}

// authMetricLines collects samples like name{label="value"} 1.
type authMetricLines struct{ text string }

func (l *authMetricLines) family(name, kind, _ string) { l.text += name + " is a " + kind + "\n" }

func (l *authMetricLines) sample(name string, value float64, labels ...string) {
	for i := 0; i < len(labels); i += 2 {
		name += fmt.Sprintf("{%s=%q}", labels[i], labels[i+1])
	}
	l.text += strings.ReplaceAll(name, "}{", ",") + fmt.Sprint(" ", value, "\n")
}

func authMetricsText(all ...*authMetrics) string {
	var l authMetricLines
	writeAuthMetrics(&l, all...)
	return l.text
}

// reasonOf returns the reason of a refusal, "" for none, "unavailable" for a 503.
func reasonOf(f *failure) string {
	switch {
	case f == nil:
		return ""
	case f.kind == unavailable:
		return "unavailable"
	}
	return f.refusal.reason
}

// stdLogger returns a log.Logger that writes to l.
func (l *logLines) stdLogger() *log.Logger { return log.New(l, "", 0) }

// namesOf lists the permissions of a set.
func namesOf(set permissionSet) []string {
	names := []string{}
	for _, p := range set.list() {
		names = append(names, p.String())
	}
	return names
}

// named finds a permission by its string.
func named(t testing.TB, s string) permission {
	t.Helper()
	i := slices.Index(permissionNames[:], s)
	if i < 0 {
		t.Fatalf("%q is no permission", s)
	}
	return permission(i)
}

func TestPermissionPolicy(t *testing.T) {
	check := func(want bool) func(held string, asked ...string) {
		return func(held string, asked ...string) {
			t.Helper()
			set, _ := parsePermissions(strings.Split(held, ","))
			for _, p := range asked {
				if got := set.has(named(t, p)); got != want {
					t.Errorf("%q for %s: got %v; want %v", held, p, got, want)
				}
			}
		}
	}
	allow, deny := check(true), check(false)

	// A permission allows itself and nothing else.
	allow("tasks:read", "tasks:read")
	deny("tasks:read", "tasks:create", "tasks:list", "tasks:cancel", "tasks:context_read", "steps:read", "dlq:read")
	deny("templates:read", "templates:validate", "worker:templates_read", "system:handlers_read")
	deny("worker:config_read", "system:config_read")
	allow("dlq:read,dlq:stats", "dlq:read", "dlq:stats")
	deny("dlq:read,dlq:stats", "dlq:update")

	// A wildcard allows all of its resource, the context of tasks included.
	allow("tasks:*", "tasks:create", "tasks:read", "tasks:list", "tasks:cancel", "tasks:context_read")
	allow("steps:*", "steps:read", "steps:resolve")
	allow("dlq:*", "dlq:read", "dlq:update", "dlq:stats")
	allow("templates:*", "templates:read", "templates:validate")
	allow("system:*", "system:config_read", "system:handlers_read", "system:analytics_read")
	allow("worker:*", "worker:config_read", "worker:templates_read")
	deny("tasks:*", "steps:read", "dlq:read", "templates:read", "system:config_read", "worker:config_read")
	deny("templates:*", "worker:templates_read")
	deny("worker:*", "templates:read")
	allow("tasks:*,unheard:of", "tasks:read")

	// Anything else matches an identical string only, so it allows nothing.
	for _, held := range []string{
		"", "*", "*:*", "*:read", "tasks", "tasks:", ":read", "tasks:r*", "tasks:re", "tasks:reads", "task:*", "tasks:**",
		"tasks:*:*", "tasks:read:x", "Tasks:read", "tasks:READ", "TASKS:*", " tasks:read", "tasks:read ", "tasks :read",
		"tasks:read\x00", "tasks.read", "tasks:*\n", "tasks:read;tasks:create", "admin", "task\u017f:read", "tasks\uff1aread",
	} {
		deny(held, permissionNames[:]...)
	}
}

func TestPermissionVocabulary(t *testing.T) {
	if permissionCount != 17 {
		t.Errorf("got %d permissions; want 17", permissionCount)
	}
	if got := len(permissionSets); got != 17+6 {
		t.Errorf("got a vocabulary of %d; want 23", got)
	}
	if set, unknown := parsePermissions(allWildcards()); set != everyPermission || unknown != nil {
		t.Errorf("the wildcards: got %b, unknown %q; want %b and none", set, unknown, everyPermission)
	}
	if set, unknown := parsePermissions(permissionNames[:]); set != everyPermission || unknown != nil {
		t.Errorf("all 17: got %b, unknown %q; want %b and none", set, unknown, everyPermission)
	}
	if got := namesOf(everyPermission); !slices.Equal(got, permissionNames[:]) {
		t.Errorf("names: got %q; want the vocabulary", got)
	}
}

func TestUnknownPermissions(t *testing.T) {
	set, unknown := parsePermissions([]string{"b", "tasks:read", "*", "b", "", "tasks:bogus"})
	if want := []string{"b", "*", "", "tasks:bogus"}; !slices.Equal(unknown, want) {
		t.Errorf("unknown: got %q; want %q", unknown, want)
	}
	if got, want := namesOf(set), []string{"tasks:read"}; !slices.Equal(got, want) {
		t.Errorf("known: got %q; want %q", got, want)
	}
	if set, unknown := parsePermissions(nil); set != 0 || unknown != nil {
		t.Errorf("nothing listed: got %b, unknown %q; want nothing", set, unknown)
	}
}

func TestRolePatterns(t *testing.T) {
	want := map[string]string{
		"read-only-operator": "tasks:read tasks:list steps:read dlq:read dlq:stats",
		"task-submitter":     "tasks:create tasks:read tasks:list",
		"ops-admin":          "tasks:* steps:* dlq:* system:*",
		"worker-service":     "worker:config_read worker:templates_read",
		"full-access":        "tasks:* steps:* dlq:* templates:* system:* worker:*",
	}
	if len(rolePatterns) != len(want) {
		t.Errorf("got %d roles; want %d", len(rolePatterns), len(want))
	}
	for name, list := range want {
		got, ok := rolePermissions(name)
		if !ok || strings.Join(got, " ") != list {
			t.Errorf("%s: got %q, %v; want %q", name, got, ok, list)
		}
		if _, unknown := parsePermissions(got); unknown != nil {
			t.Errorf("%s: unknown permissions %q", name, unknown)
		}
	}
	if _, ok := rolePermissions("root"); ok {
		t.Error("root: got a role; want none")
	}
}

func TestPermissionCheckAllocatesNothing(t *testing.T) {
	set, _ := parsePermissions([]string{"tasks:*", "dlq:read"})
	allowed := 0
	n := testing.AllocsPerRun(100, func() {
		for p := range permissionCount {
			if set.has(p) {
				allowed++
			}
		}
	})
	if n != 0 || allowed == 0 {
		t.Errorf("got %v allocations, %d allowed; want 0 and some", n, allowed)
	}
}

func BenchmarkPermissionCheck(b *testing.B) {
	set, _ := parsePermissions([]string{"tasks:*", "dlq:read"})
	b.ReportAllocs()
	allowed := 0
	for i := 0; b.Loop(); i++ {
		if set.has(permission(i % int(permissionCount))) {
			allowed++
		}
	}
}

// testAPIKey is long enough to cause no warning.
const testAPIKey = "an-api-key-of-the-tests"

// withAPIKeys adds a registry to a configuration.
func withAPIKeys(c *authConfig) {
	c.APIKeysEnabled = true
	c.APIKeys = []apiKeyConfig{
		{Key: testAPIKey, Permissions: []string{"tasks:read", "dlq:*"}, Description: "nightly build"},
		{Key: "the-superuser-key-of-the-tests", Permissions: []string{"*"}, Description: "root"},
		{Key: "a-key-with-a-typo", Permissions: []string{"tasks:raed", "tasks:read", "nonsense"}},
		{Key: "a-key-with-a-star-among-others", Permissions: []string{"*", "tasks:read"}},
	}
}

func TestAuthorizationHeader(t *testing.T) {
	for _, tt := range []struct {
		headers []string
		token   string
		form    bearerForm
	}{
		{nil, "", bearerAbsent},
		{[]string{""}, "", bearerAbsent},
		{[]string{"Bearer abc"}, "abc", bearerFound},
		{[]string{"bearer abc"}, "abc", bearerFound},
		{[]string{"BEARER abc"}, "abc", bearerFound},
		{[]string{"bEaReR abc"}, "abc", bearerFound},
		{[]string{"Bearer   abc"}, "abc", bearerFound},
		{[]string{" Bearer abc"}, "abc", bearerFound},
		{[]string{"Bearer abc  "}, "abc", bearerFound},
		{[]string{"Bearer abc\t"}, "abc", bearerFound},
		{[]string{"Bearer a.b-c_d~e+f/g="}, "a.b-c_d~e+f/g=", bearerFound},
		{[]string{"Bearer"}, "", bearerBroken},
		{[]string{"Bearer "}, "", bearerBroken},
		{[]string{"Bearer\tabc"}, "", bearerBroken},
		{[]string{"Bearer \tabc"}, "", bearerBroken},
		{[]string{"Bearer abc def"}, "", bearerBroken},
		{[]string{"Bearer abc,Bearer def"}, "", bearerBroken},
		{[]string{"Bearer abc\tdef"}, "", bearerBroken},
		{[]string{"Bearer abc\x00"}, "", bearerBroken},
		{[]string{"Bearer ab\u00a0c"}, "", bearerBroken},
		{[]string{"Bearer a", "Bearer a"}, "", bearerBroken},
		{[]string{"Bearer a", "Basic b"}, "", bearerBroken},
		{[]string{"Basic a", "Basic b"}, "", bearerBroken},
		{[]string{"Basic dXNlcjpwYXNz"}, "", bearerAbsent},
		{[]string{"Bearerabc"}, "", bearerAbsent},
		{[]string{"Bearer:abc"}, "", bearerAbsent},
		{[]string{"Bearers abc"}, "", bearerAbsent},
		{[]string{"abc"}, "", bearerAbsent},
	} {
		token, form := bearerToken(tt.headers)
		if token != tt.token || form != tt.form {
			t.Errorf("%q: got %q, %d; want %q, %d", tt.headers, token, form, tt.token, tt.form)
		}
	}
}

func FuzzBearerToken(f *testing.F) {
	for _, v := range []string{"Bearer abc", "bearer  abc ", "Bearer", "Basic x", "Bearer a b", "Bearer\tx",
		"\u212aearer x"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token, form := bearerToken([]string{value})
		if (form == bearerFound) != (token != "") {
			t.Errorf("got %q, %d; want a token exactly when one is found", token, form)
		}
		if strings.ContainsAny(token, " \t\r\n\x00") || !strings.Contains(value, token) {
			t.Errorf("got %q; want a piece of the header without blanks", token)
		}
		if form != bearerAbsent && !strings.EqualFold(strings.Trim(value, " \t")[:6], "bearer") {
			t.Errorf("got %d; want the scheme to be bearer", form)
		}
	})
}

func TestCredentials(t *testing.T) {
	good, expired := "Authorization: Bearer "+rs256(t, goodClaims("")), "Authorization: Bearer "+rs256(t,
		claimsWith("exp", "1"))
	key := "X-API-Key: " + testAPIKey
	withBoth := newAuthBench(t, withAPIKeys)
	keysOnly := newAuthBench(t, func(c *authConfig) { withAPIKeys(c); c.JWTPublicKey = "" })
	tokensOnly := newAuthBench(t, unchanged)
	for _, tt := range []struct {
		name    string
		b       *authBench
		lines   []string
		subject string
		want    string
	}{
		{"nothing", withBoth, nil, "", "missing"},
		{"a token", withBoth, []string{good}, "ci", ""},
		{"a key", withBoth, []string{key}, "nightly build", ""},
		{"the token goes first", withBoth, []string{key, good}, "ci", ""},
		{"with a token the key is not looked at", withBoth, []string{key, expired}, "", "expired"},
		{"nor with an unusable one", withBoth, []string{key, "Authorization: Bearer"}, "", "malformed"},
		{"nor with two headers", withBoth, []string{key, good, good}, "", "malformed"},
		{"nor where only keys are accepted", keysOnly, []string{key, good}, "", "invalid"},
		{"another scheme beside the key", withBoth, []string{key, "Authorization: Basic eDp5"}, "nightly build",
			""},
		{"another scheme alone", withBoth, []string{"Authorization: Basic eDp5"}, "", "missing"},
		{"an unknown key", withBoth, []string{"X-API-Key: " + testAPIKey + "x"}, "", "invalid"},
		{"the key's beginning", withBoth, []string{"X-API-Key: " + testAPIKey[:10]}, "", "invalid"},
		{"the key in capitals", withBoth, []string{"X-API-Key: " + strings.ToUpper(testAPIKey)}, "", "invalid"},
		{"an empty key", withBoth, []string{"X-API-Key: "}, "", "missing"},
		{"two keys", withBoth, []string{key, key}, "", "malformed"},
		{"a key as a token", withBoth, []string{"Authorization: Bearer " + testAPIKey}, "", "malformed"},
		{"a key where there are none", tokensOnly, []string{key}, "", "missing"},
		{"a key with unknown permissions", withBoth, []string{"X-API-Key: a-key-with-a-typo"}, "", "invalid"},
		{"a star among others", withBoth, []string{"X-API-Key: a-key-with-a-star-among-others"}, "", "invalid"},
		{"the header in another case", withBoth, []string{"x-api-key: " + testAPIKey}, "nightly build", ""},
	} {
		sc, f := tt.b.ask(tt.lines...)
		if reasonOf(f) != tt.want || sc != nil && sc.subject != tt.subject {
			t.Errorf("%s: got %+v, %q; want subject %q, %q", tt.name, sc, reasonOf(f), tt.subject, tt.want)
		}
	}
}

func TestAPIKeyContext(t *testing.T) {
	b := newAuthBench(t, func(c *authConfig) { withAPIKeys(c); c.APIKeyHeader = "x-service-key" })
	sc, f := b.ask("X-Service-Key: " + testAPIKey)
	if f != nil {
		t.Fatal(f)
	}
	set, _ := parsePermissions([]string{"tasks:read", "dlq:*"})
	if want := (securityContext{subject: "nightly build", method: authByAPIKey, key: sc.key, permissions: set}); *sc != want {
		t.Errorf("got %+v; want %+v", *sc, want)
	}
	sc, f = b.ask("X-Service-Key: the-superuser-key-of-the-tests")
	if f != nil || sc.permissions != everyPermission {
		t.Errorf("the superuser key: got %+v, %v; want every permission", sc, f)
	}
	if _, f = b.ask("X-API-Key: " + testAPIKey); reasonOf(f) != "missing" {
		t.Errorf("the default header: got %q; want missing", reasonOf(f))
	}
}

func TestUnknownPermissionsByValidation(t *testing.T) {
	token := rs256(t, claimsWith("permissions", `["tasks:raed","tasks:read","*","tasks:raed"]`))
	for _, tt := range []struct {
		name        string
		strict, log bool
	}{{"strict", true, true}, {"lenient, logged", false, true}, {"lenient, silent", false, false}} {
		b := newAuthBench(t, func(c *authConfig) {
			withAPIKeys(c)
			c.StrictValidation, c.LogUnknownPermissions = tt.strict, tt.log
		})
		sc, f := b.bearer(token)
		keySC, keyF := b.ask("X-API-Key: a-key-with-a-typo")
		if tt.strict {
			if f == nil || f.message != "Unknown permissions: tasks:raed, *" || f.kind != unauthenticated {
				t.Errorf("%s: got %v; want 401 naming tasks:raed, *", tt.name, f)
			}
			if keyF == nil || keyF.message != "Unknown permissions: tasks:raed, nonsense" {
				t.Errorf("%s: got %v; want 401 naming tasks:raed, nonsense", tt.name, keyF)
			}
			continue
		}
		if f != nil || keyF != nil || sc.permissions != 1<<permTasksRead || keySC.permissions != 1<<permTasksRead {
			t.Errorf("%s: got %+v, %v and %+v, %v; want tasks:read alone", tt.name, sc, f, keySC, keyF)
		}
		if got := strings.Contains(b.log.String(), "tasks:raed"); got != tt.log {
			t.Errorf("%s: logged: got %v; want %v", tt.name, got, tt.log)
		}
	}
}

func TestDisabledAuthentication(t *testing.T) {
	b := newAuthBench(t, func(c *authConfig) { c.Enabled = false; c.JWTPublicKeyPath = "absent.pem" })
	for _, lines := range [][]string{nil, {"Authorization: Bearer broken"}, {"X-API-Key: broken"}} {
		sc, f := b.ask(lines...)
		if f != nil || sc.permissions != everyPermission || sc.method != authByNothing {
			t.Errorf("%q: got %+v, %v; want everything permitted", lines, sc, f)
		}
	}
	if err := b.ready(); err != nil {
		t.Errorf("got %v; want ready", err)
	}
}

func TestAuthorize(t *testing.T) {
	b := newAuthBench(t, unchanged)
	may := func(names ...string) *securityContext {
		set, _ := parsePermissions(names)
		return &securityContext{permissions: set}
	}
	for _, tt := range []struct {
		name   string
		sc     *securityContext
		needed []permission
		want   string
	}{
		{"held", may("tasks:create"), []permission{permTasksCreate}, ""},
		{"held by wildcard", may("tasks:*"), []permission{permTasksCreate}, ""},
		{"the second of two", may("system:handlers_read"), []permission{permTemplatesRead,
			permSystemHandlersRead}, ""},
		{"nothing needed", may(), nil, ""},
		{"not held", may("tasks:read"), []permission{permTasksCreate}, "Missing required permission: tasks:create"},
		{"neither of two", may(), []permission{permTemplatesRead, permSystemHandlersRead},
			"Missing required permission: templates:read"},
		{"no context", nil, []permission{permDLQRead}, "Missing required permission: dlq:read"},
	} {
		f := b.authorize(tt.sc, tt.needed...)
		switch {
		case f == nil && tt.want != "", f != nil && f.message != tt.want:
			t.Errorf("%s: got %v; want %q", tt.name, f, tt.want)
		case f != nil && (f.kind != forbidden || f.refusal.reason != reasonForbidden):
			t.Errorf("%s: got %+v; want a 403", tt.name, f)
		}
	}
	if f := b.authorizeAll(may(allWildcards()...)); f != nil {
		t.Errorf("all: got %v; want success", f)
	}
	f := b.authorizeAll(may("tasks:*", "steps:*", "dlq:*", "templates:*", "system:*", "worker:config_read"))
	if f == nil || f.message != "Missing required permission: worker:templates_read" {
		t.Errorf("all but one: got %v; want the missing one named", f)
	}
	metrics := authMetricsText(b.metrics)
	for _, want := range []string{
		`stepwell_permission_denials_total{permission="tasks:create"} 1` + "\n",
		`stepwell_permission_denials_total{permission="worker:templates_read"} 1` + "\n",
		`stepwell_permission_denials_total{permission="system:handlers_read"} 0` + "\n",
		`stepwell_auth_failures_total{reason="forbidden"} 4` + "\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("got no %q in %s", want, metrics)
		}
	}
}

func TestFailureHeaders(t *testing.T) {
	b := newAuthBench(t, withAPIKeys)
	expired := rs256(t, claimsWith("exp", "1"))
	forged := signedText(t, "RS256", authKeys().rsa2, `{"alg":"RS256"}`, goodClaims(""))
	refusal := func(lines ...string) *failure {
		_, f := b.ask(lines...)
		return f
	}
	for _, tt := range []struct {
		name                          string
		f                             *failure
		status                        int
		reason, severity, retry, auth string
	}{
		{"missing", refusal(), 401, "missing", "low", "", `Bearer realm="stepwell"`},
		{"expired", refusal("Authorization: Bearer " + expired), 401, "expired", "low", "",
			`Bearer error="invalid_token"`},
		{"malformed", refusal("Authorization: Bearer x"), 401, "malformed", "medium", "5",
			`Bearer error="invalid_token"`},
		{"another issuer", refusal("Authorization: Bearer " + rs256(t, claimsWith("iss", `"x"`))),
			401, "invalid", "medium", "5", `Bearer error="invalid_token"`},
		{"forged", refusal("Authorization: Bearer " + forged), 401, "invalid", "high", "60",
			`Bearer error="invalid_token"`},
		{"a guessed key", refusal("X-API-Key: guess"), 401, "invalid", "high", "60",
			`Bearer error="invalid_token"`},
		{"forbidden", b.authorize(nil, permDLQRead), 403, "forbidden", "medium", "5",
			`Bearer error="insufficient_scope"`},
		{"nobody can tell", cannotVerify("x"), 503, "", "", "5", ""},
	} {
		h := http.Header{}
		setRefusalHeaders(h, tt.f)
		retry := ""
		if tt.f.retryAfter > 0 {
			retry = fmt.Sprint(retrySeconds(tt.f))
		}
		got := []string{
			h.Get("X-Auth-Failure-Reason"), h.Get("X-Auth-Failure-Severity"), retry, h.Get("WWW-Authenticate"),
		}
		want := []string{tt.reason, tt.severity, tt.retry, tt.auth}
		if status := roleStatus(tt.f.kind); status != tt.status || !slices.Equal(got, want) {
			t.Errorf("%s: got %d %q; want %d %q", tt.name, status, got, tt.status, want)
		}
		code := map[int]string{401: "AUTHENTICATION_FAILED", 403: "AUTHORIZATION_FAILED", 503: "SERVICE_UNAVAILABLE"}
		if got, want := failureForms[tt.f.kind].code, code[tt.status]; got != want {
			t.Errorf("%s: got code %s; want %s", tt.name, got, want)
		}
	}
}

func TestBodyIsNotRead(t *testing.T) {
	b := newAuthBench(t, withAPIKeys)
	body := &countingReader{}
	for _, line := range []string{"X-A: b", "Authorization: Bearer x", "X-API-Key: " + testAPIKey,
		"Authorization: Bearer " + rs256(t, goodClaims(""))} {
		r := requestWith(line)
		r.Method, r.Body = "POST", io.NopCloser(body)
		b.request(r)
	}
	if body.reads != 0 {
		t.Errorf("got %d reads of the body; want none", body.reads)
	}
}

type countingReader struct{ reads int }

func (c *countingReader) Read([]byte) (int, error) {
	c.reads++
	return 0, io.EOF
}

// countingKeys counts lookups of keys, one for each full verification of a token.
type countingKeys struct {
	keySource
	n int
}

func (c *countingKeys) find(ctx context.Context, kid string) ([]*verificationKey, error) {
	c.n++
	return c.keySource.find(ctx, kid)
}

func TestRepeatedTokenIsVerifiedOnce(t *testing.T) {
	b := newAuthBench(t, unchanged)
	counted := &countingKeys{keySource: b.tokens.keys}
	b.tokens.keys = counted
	token := rs256(t, claimsWith("nbf", fmt.Sprint(int64(authTestNow/1e6)+30)))
	for range 5 {
		b.want(t, "while it is valid", token, "")
	}
	if counted.n != 1 {
		t.Errorf("got %d verifications; want 1", counted.n)
	}
	b.clock.advance(time.Hour + 59*time.Second + 999*time.Millisecond)
	b.want(t, "at the end of the leeway", token, "")
	if counted.n != 1 {
		t.Errorf("got %d verifications; want 1", counted.n)
	}
	b.clock.advance(time.Millisecond)
	b.want(t, "after the leeway", token, "expired")
	// The clock of fixture mode may show any other time.
	r := requestWith("Authorization: Bearer " + token)
	for _, tt := range []struct {
		at   time.Duration
		want string
	}{{0, ""}, {2 * time.Hour, "expired"}, {0, ""}, {-31 * time.Second, "invalid"}, {time.Minute, ""}} {
		if _, f := b.authenticate(r.Context(), callerOf(r), authTestNow.add(tt.at)); reasonOf(f) != tt.want {
			t.Errorf("at %v: got %q; want %q", tt.at, reasonOf(f), tt.want)
		}
	}
}

func TestAuthMetrics(t *testing.T) {
	b := newAuthBench(t, withAPIKeys)
	token := rs256(t, goodClaims(""))
	b.bearer(token)
	b.bearer(token)
	b.bearer("x")
	b.ask()
	b.ask("X-API-Key: " + testAPIKey)
	b.ask("X-API-Key: guess")
	b.metrics.countVerification(3 * time.Millisecond)
	b.metrics.countVerification(time.Minute)
	text := authMetricsText(b.metrics, &authMetrics{})
	for _, want := range []string{
		"stepwell_auth_failures_total is a counter\n",
		`stepwell_auth_failures_total{reason="missing"} 1` + "\n",
		`stepwell_auth_failures_total{reason="invalid"} 1` + "\n",
		`stepwell_auth_failures_total{reason="malformed"} 1` + "\n",
		`stepwell_auth_requests_total{method="jwt",result="success"} 2` + "\n",
		`stepwell_auth_requests_total{method="jwt",result="failure"} 1` + "\n",
		`stepwell_auth_requests_total{method="api_key",result="success"} 1` + "\n",
		`stepwell_auth_requests_total{method="api_key",result="failure"} 1` + "\n",
		`stepwell_auth_requests_total{method="none",result="failure"} 1` + "\n",
		`stepwell_auth_requests_total{method="forward",result="unavailable"} 0` + "\n",
		"stepwell_auth_jwt_verification_duration_seconds is a histogram\n",
		// Two tokens in no time on the virtual clock, and the two above.
		`stepwell_auth_jwt_verification_duration_seconds_bucket{le="2.5e-05"} 2` + "\n",
		`stepwell_auth_jwt_verification_duration_seconds_bucket{le="0.005"} 3` + "\n",
		`stepwell_auth_jwt_verification_duration_seconds_bucket{le="10"} 3` + "\n",
		`stepwell_auth_jwt_verification_duration_seconds_bucket{le="+Inf"} 4` + "\n",
		"stepwell_auth_jwt_verification_duration_seconds_sum 60.003\n",
		"stepwell_auth_jwt_verification_duration_seconds_count 4\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q in %s", want, text)
		}
	}
}

func TestSecretsStayOutOfLogsAndErrors(t *testing.T) {
	b := newAuthBench(t, withAPIKeys)
	token := rs256(t, claimsWith("exp", "1"))
	for _, line := range []string{
		"Authorization: Bearer " + token, "Authorization: Bearer " + token + "A",
		"Authorization: Bearer hunter2hunter2",
		"Authorization: Basic hunter2hunter2", "X-API-Key: hunter2hunter2", "X-API-Key: " + testAPIKey,
	} {
		_, f := b.ask(line)
		text := b.log.String()
		if f != nil {
			h := http.Header{}
			setRefusalHeaders(h, f)
			text += fmt.Sprintf("%+v %+v %v", *f, *f.refusal, h)
		}
		for _, secret := range append(strings.Split(token, "."), "hunter2", testAPIKey) {
			if strings.Contains(text, secret) {
				t.Errorf("%s…: a secret is in %s", line[:20], text)
			}
		}
	}
}

func TestAuthOverHTTP(t *testing.T) {
	b := newAuthBench(t, withAPIKeys)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, f := b.request(r); f != nil {
			w.WriteHeader(roleStatus(f.kind))
		}
	}))
	t.Cleanup(s.Close)
	for value, want := range map[string]int{
		"Bearer " + rs256(t, goodClaims("")):            200,
		"  Bearer   " + rs256(t, goodClaims("")) + "  ": 200,
		"Bearer " + strings.Repeat("a", 100_000):        401,
	} {
		r := must(http.NewRequest("GET", s.URL, nil))(t)
		r.Header.Set("Authorization", value)
		res := must(s.Client().Do(r))(t)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%.20q: got %d; want %d", value, res.StatusCode, want)
		}
	}
}

func BenchmarkTokenCached(b *testing.B) {
	bench := newAuthBench(b, unchanged)
	r := requestWith("Authorization: Bearer " + rs256(b, goodClaims("")))
	b.ReportAllocs()
	for b.Loop() {
		if _, f := bench.request(r); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkTokenUncached(b *testing.B) {
	bench := newAuthBench(b, unchanged)
	r := requestWith("Authorization: Bearer " + rs256(b, goodClaims("")))
	b.ReportAllocs()
	for b.Loop() {
		bench.cache.clear()
		if _, f := bench.request(r); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkAPIKey(b *testing.B) {
	bench := newAuthBench(b, func(c *authConfig) {
		withAPIKeys(c)
		for i := range 100 {
			c.APIKeys = append(c.APIKeys, apiKeyConfig{Key: fmt.Sprintf("one-of-a-hundred-%d", i),
				Permissions: []string{"tasks:*"}})
		}
	})
	r := requestWith("X-API-Key: " + testAPIKey)
	b.ReportAllocs()
	for b.Loop() {
		if _, f := bench.request(r); f != nil {
			b.Fatal(f)
		}
	}
}

func digestNo(n int) (d credentialDigest) {
	binary.BigEndian.PutUint64(d[:], uint64(n))
	return d
}

func TestAuthCacheHoldsForItsTime(t *testing.T) {
	c := newAuthCache(10)
	sc := &securityContext{subject: "a"}
	c.put(digestNo(1), &cachedIdentity{sc, 100, 200}, 0)
	for _, tt := range []struct {
		now  instant
		want *securityContext
	}{{150, sc}, {100, sc}, {199, sc}, {200, nil}, {150, nil}} { // once out of its time it is gone
		if got, _ := c.get(digestNo(1), tt.now); got != tt.want {
			t.Errorf("at %d: got %v; want %v", tt.now, got, tt.want)
		}
	}
	c.put(digestNo(1), &cachedIdentity{sc, 100, 200}, 0)
	if got, _ := c.get(digestNo(1), 99); got != nil {
		t.Errorf("before its time: got %v; want nil", got)
	}
}

func TestAuthCacheIsBounded(t *testing.T) {
	c := newAuthCache(100)
	for i := range 10_000 {
		c.put(digestNo(i), &cachedIdentity{&securityContext{}, 0, 10}, 0)
		if i%10 == 0 {
			c.get(digestNo(0), 5) // asked for all the time, so it stays
		}
		if n := len(c.recent) + len(c.older); n > 100 {
			t.Fatalf("after %d entries: got %d; want at most 100", i, n)
		}
	}
	if got, _ := c.get(digestNo(0), 5); got == nil {
		t.Error("the entry in use: got nil; want it kept")
	}
	if got, _ := c.get(digestNo(9_999), 5); got == nil {
		t.Error("the newest entry: got nil; want it kept")
	}
	if got, _ := c.get(digestNo(1), 5); got != nil {
		t.Error("the oldest unused entry: got it; want nil")
	}
}

func TestAuthCacheClear(t *testing.T) {
	c := newAuthCache(10)
	_, epoch := c.get(digestNo(1), 0)
	c.put(digestNo(2), &cachedIdentity{&securityContext{}, 0, 10}, epoch)
	c.clear()
	if got, _ := c.get(digestNo(2), 5); got != nil {
		t.Error("an entry of before the clearing: got it; want nil")
	}
	// It was verified with the old keys, so it must not be stored.
	c.put(digestNo(1), &cachedIdentity{&securityContext{}, 0, 10}, epoch)
	if got, _ := c.get(digestNo(1), 5); got != nil {
		t.Error("a late entry of before the clearing: got it; want nil")
	}
}
