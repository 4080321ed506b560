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
	"encoding/pem"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

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

// What the tests of authentication share: keys, tokens written by hand, and an
// authenticator in one line.

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
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func publicPEM(t testing.TB, key crypto.Signer) string {
	t.Helper()
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER(t, key)}))
}

func privatePEM(t testing.TB, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// segment encodes a part of a token.
func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// signedText signs header and claims as they are written.
func signedText(t testing.TB, alg string, key any, header, claims string) string {
	t.Helper()
	text := segment(header) + "." + segment(claims)
	signature, err := jwt.GetSigningMethod(alg).Sign(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// goodClaims are the claims of a token that is valid at authTestNow, with more
// members behind.
func goodClaims(more string) string {
	const form = `{"iss":"stepwell","aud":"stepwell-api","sub":"ci","iat":%d,"exp":%d,"permissions":["tasks:read"]%s}`
	return fmt.Sprintf(form, authTestNow/1e6, authTestNow/1e6+3600, more)
}

// claimsWith are good claims with one replaced, or left out for value "".
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

// testAuthenticators are the authenticators of a configuration, closed after the
// test.
func testAuthenticators(t testing.TB, cfg *Config, c clock, log *slog.Logger) *authenticators {
	t.Helper()
	a, err := newAuthenticators(cfg, &provenance{}, c, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return a
}

// unchanged is for newAuthBench.
func unchanged(*authConfig) {}

// ask authenticates a request with header lines like "Authorization: Bearer x".
func (b *authBench) ask(lines ...string) (*securityContext, *authFailure) {
	return b.authenticate(requestWith(lines...))
}

// bearer authenticates a request with a token.
func (b *authBench) bearer(token string) (*securityContext, *authFailure) {
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

// reasonOf is the reason of a refusal, "" for none, "unavailable" for a 503.
func reasonOf(f *authFailure) authReason {
	switch {
	case f == nil:
		return ""
	case f.status == http.StatusServiceUnavailable:
		return "unavailable"
	}
	return f.reason
}

// stdLogger is for servers that complain to a log.Logger.
func (l *logLines) stdLogger() *log.Logger { return log.New(l, "", 0) }

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
	if got := everyPermission.names(); !slices.Equal(got, permissionNames[:]) {
		t.Errorf("names: got %q; want the vocabulary", got)
	}
}

func TestUnknownPermissions(t *testing.T) {
	set, unknown := parsePermissions([]string{"b", "tasks:read", "*", "b", "", "tasks:bogus"})
	if want := []string{"b", "*", "", "tasks:bogus"}; !slices.Equal(unknown, want) {
		t.Errorf("unknown: got %q; want %q", unknown, want)
	}
	if got, want := set.names(), []string{"tasks:read"}; !slices.Equal(got, want) {
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
