package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

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
func testAuthenticators(t testing.TB, cfg *Config, c clock, log *slog.Logger) authenticators {
	t.Helper()
	a := must(newAuthenticators(cfg, &provenance{}, c, log))(t)
	t.Cleanup(a.close)
	return a
}

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
	headerLines(r.Header, lines...)
	return r
}

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
		given   bool
	}{
		{nil, "", false},
		{[]string{""}, "", false},
		{[]string{"Bearer abc"}, "abc", true},
		{[]string{"bearer abc"}, "abc", true},
		{[]string{"BEARER abc"}, "abc", true},
		{[]string{"bEaReR abc"}, "abc", true},
		{[]string{"Bearer   abc"}, "abc", true},
		{[]string{" Bearer abc"}, "abc", true},
		{[]string{"Bearer abc  "}, "abc", true},
		{[]string{"Bearer abc\t"}, "abc", true},
		{[]string{"Bearer a.b-c_d~e+f/g="}, "a.b-c_d~e+f/g=", true},
		{[]string{"Bearer"}, "", true},
		{[]string{"Bearer "}, "", true},
		{[]string{"Bearer\tabc"}, "", true},
		{[]string{"Bearer \tabc"}, "", true},
		{[]string{"Bearer abc def"}, "", true},
		{[]string{"Bearer abc,Bearer def"}, "", true},
		{[]string{"Bearer abc\tdef"}, "", true},
		{[]string{"Bearer abc\x00"}, "", true},
		{[]string{"Bearer ab\u00a0c"}, "", true},
		{[]string{"Bearer a", "Bearer a"}, "", true},
		{[]string{"Bearer a", "Basic b"}, "", true},
		{[]string{"Basic a", "Basic b"}, "", true},
		{[]string{"Basic dXNlcjpwYXNz"}, "", false},
		{[]string{"Bearerabc"}, "", false},
		{[]string{"Bearer:abc"}, "", false},
		{[]string{"Bearers abc"}, "", false},
		{[]string{"abc"}, "", false},
	} {
		token, given := bearerToken(tt.headers)
		if token != tt.token || given != tt.given {
			t.Errorf("%q: got %q, %v; want %q, %v", tt.headers, token, given, tt.token, tt.given)
		}
	}
}

func FuzzBearerToken(f *testing.F) {
	for _, v := range []string{"Bearer abc", "bearer  abc ", "Bearer", "Basic x", "Bearer a b", "Bearer\tx",
		"\u212aearer x"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token, given := bearerToken([]string{value})
		if token != "" && !given {
			t.Errorf("got %q; want no token where none is given", token)
		}
		if strings.ContainsAny(token, " \t\r\n\x00") || !strings.Contains(value, token) {
			t.Errorf("got %q; want a piece of the header without blanks", token)
		}
		if given && !strings.EqualFold(strings.Trim(value, " \t")[:6], "bearer") {
			t.Errorf("got %q; want the scheme to be bearer", token)
		}
	})
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

// countingKeys counts lookups of keys, one for each full verification of a token.
type countingKeys struct {
	keySource
	n int
}

func (c *countingKeys) find(ctx context.Context, kid string) ([]*verificationKey, *failure) {
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
		if n := len(c.entries); n > 100 {
			t.Fatalf("after %d entries: got %d; want at most 100", i, n)
		}
	}
	if got, _ := c.get(digestNo(9_999), 5); got == nil {
		t.Error("the newest entry: got nil; want it kept")
	}
	if got, _ := c.get(digestNo(1), 5); got != nil {
		t.Error("the oldest entry: got it; want nil")
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
