package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// testAPIKey is long enough not to be warned of.
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
		want    authReason
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
	if want := (securityContext{subject: "nightly build", method: authByAPIKey, permissions: set}); *sc != want {
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
			if f == nil || f.message != "Unknown permissions: tasks:raed, *" || f.status != 401 {
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
		case f != nil && (f.status != 403 || f.code != "AUTHORIZATION_FAILED" || f.reason != reasonForbidden):
			t.Errorf("%s: got %+v; want 403 AUTHORIZATION_FAILED", tt.name, f)
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
	codes := map[int]string{401: "AUTHENTICATION_FAILED", 403: "AUTHORIZATION_FAILED", 503: "SERVICE_UNAVAILABLE"}
	kinds := map[int]failureKind{401: unauthenticated, 403: forbidden, 503: unavailable}
	failure := func(lines ...string) *authFailure {
		_, f := b.ask(lines...)
		return f
	}
	for _, tt := range []struct {
		name                          string
		f                             *authFailure
		status                        int
		reason, severity, retry, auth string
	}{
		{"missing", failure(), 401, "missing", "low", "", `Bearer error="invalid_request"`},
		{"expired", failure("Authorization: Bearer " + expired), 401, "expired", "low", "",
			`Bearer error="invalid_token"`},
		{"malformed", failure("Authorization: Bearer x"), 401, "malformed", "medium", "5",
			`Bearer error="invalid_token"`},
		{"another issuer", failure("Authorization: Bearer " + rs256(t, claimsWith("iss", `"x"`))),
			401, "invalid", "medium", "5", `Bearer error="invalid_token"`},
		{"forged", failure("Authorization: Bearer " + forged), 401, "invalid", "high", "60",
			`Bearer error="invalid_token"`},
		{"a guessed key", failure("X-API-Key: guess"), 401, "invalid", "high", "60",
			`Bearer error="invalid_token"`},
		{"forbidden", b.authorize(nil, permDLQRead), 403, "forbidden", "low", "", ""},
		{"nobody can tell", cannotTell("x"), 503, "", "", "5", ""},
	} {
		h := http.Header{}
		tt.f.setHeaders(h)
		got := []string{
			h.Get("X-Auth-Failure-Reason"), h.Get("X-Auth-Failure-Severity"),
			h.Get("Retry-After"), h.Get("WWW-Authenticate"),
		}
		want := []string{tt.reason, tt.severity, tt.retry, tt.auth}
		if tt.f.status != tt.status || strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%s: got %d %q; want %d %q", tt.name, tt.f.status, got, tt.status, want)
		}
		if tt.f.code != codes[tt.status] || tt.f.failure().kind != kinds[tt.status] {
			t.Errorf("%s: got %s, kind %d; want %s, kind %d",
				tt.name, tt.f.code, tt.f.failure().kind, codes[tt.status], kinds[tt.status])
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
		b.authenticate(r)
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

// countingKeys counts how often a key is asked for, so how often a token is
// verified from scratch.
type countingKeys struct {
	keySource
	n int
}

func (c *countingKeys) find(ctx context.Context, h *tokenHeader) (*verificationKey, error) {
	c.n++
	return c.keySource.find(ctx, h)
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
	// On the clock of a fixture time may stand elsewhere.
	r := requestWith("Authorization: Bearer " + token)
	for _, tt := range []struct {
		at   time.Duration
		want authReason
	}{{0, ""}, {2 * time.Hour, "expired"}, {0, ""}, {-31 * time.Second, "invalid"}, {time.Minute, ""}} {
		if _, f := b.authenticateAt(r, authTestNow.add(tt.at)); reasonOf(f) != tt.want {
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
	b.metrics.verified(3 * time.Millisecond)
	b.metrics.verified(time.Minute)
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
		// Two tokens in no time at all on the virtual clock, and the two above.
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
			f.setHeaders(h)
			text += fmt.Sprintf("%+v %v", *f, h)
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
		if _, f := b.authenticate(r); f != nil {
			f.setHeaders(w.Header())
			w.WriteHeader(f.status)
		}
	}))
	t.Cleanup(s.Close)
	for value, want := range map[string]int{
		"Bearer " + rs256(t, goodClaims("")):            200,
		"  Bearer   " + rs256(t, goodClaims("")) + "  ": 200,
		"Bearer " + strings.Repeat("a", 100_000):        401,
	} {
		r, err := http.NewRequest("GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", value)
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
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
		if _, f := bench.authenticate(r); f != nil {
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
		if _, f := bench.authenticate(r); f != nil {
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
		if _, f := bench.authenticate(r); f != nil {
			b.Fatal(f)
		}
	}
}

// whoServer is an authenticator that says what a test tells it to.
type whoServer struct {
	*httptest.Server

	mu     sync.Mutex
	status int
	body   string
	asked  []*http.Request
}

const whoAnswer = `{"subject":"alice","permissions":["tasks:*"]}`

func newWhoServer(t *testing.T) *whoServer {
	t.Helper()
	s := &whoServer{status: 200, body: whoAnswer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, r)
		if s.status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(s.status)
		fmt.Fprint(w, s.body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *whoServer) say(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

// questions is what was asked since the last call.
func (s *whoServer) questions() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func newForwardBench(t *testing.T, s *whoServer, set func(c *authConfig)) *authBench {
	t.Helper()
	return newAuthBench(t, func(c *authConfig) {
		c.AuthenticatorURL, c.JWTPublicKey = s.URL+"/who", ""
		set(c)
	})
}

func TestForwardedAnswers(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, unchanged)
	many := `"` + strings.Repeat(`tasks:read","`, 256) + `tasks:read"`
	for _, tt := range []struct {
		status int
		body   string
		want   authReason
	}{
		{200, whoAnswer, ""},
		{200, `{"subject":"alice","permissions":[]}`, ""},
		{200, `{"subject":"alice"}`, ""},
		{200, `{"subject":"alice","permissions":["tasks:*"],"more":{"a":1}}`, ""},
		{200, `{"subject":"alice","permissions":["root"]}`, "invalid"},
		{200, `{"subject":"alice","permissions":["*"]}`, "invalid"},
		{200, `{"permissions":["tasks:*"]}`, "unavailable"},
		{200, `{"subject":"","permissions":["tasks:*"]}`, "unavailable"},
		{200, `{"subject":7,"permissions":["tasks:*"]}`, "unavailable"},
		{200, `{"subject":null}`, "unavailable"},
		{200, `{"subject":"alice","permissions":"tasks:*"}`, "unavailable"},
		{200, `{"subject":"alice","permissions":null}`, "unavailable"},
		{200, `{"subject":"alice","permissions":[` + many + `]}`, "unavailable"},
		{200, `{"subject":"alice","subject":"bob"}`, "unavailable"},
		{200, `["alice"]`, "unavailable"},
		{200, ``, "unavailable"},
		{200, `<html>`, "unavailable"},
		{200, whoAnswer + strings.Repeat(" ", maxForwardReply), "unavailable"},
		{201, whoAnswer, "unavailable"},
		{204, ``, "unavailable"},
		{302, whoAnswer, "unavailable"},
		{401, whoAnswer, "invalid"},
		{403, whoAnswer, "forbidden"},
		{404, whoAnswer, "unavailable"},
		{500, whoAnswer, "unavailable"},
	} {
		s.say(tt.status, tt.body)
		sc, f := b.ask("Cookie: session=hunter2")
		if reasonOf(f) != tt.want {
			t.Errorf("%d %.60s: got %q (%+v); want %q", tt.status, tt.body, reasonOf(f), f, tt.want)
		}
		if f == nil && (sc.subject != "alice" || sc.method != authByForward) {
			t.Errorf("%d %.60s: got %+v; want alice", tt.status, tt.body, sc)
		}
		if n := len(s.questions()); n != 1 {
			t.Errorf("%d %.60s: got %d questions; want 1", tt.status, tt.body, n)
		}
	}
	s.say(401, "")
	if _, f := b.ask(); reasonOf(f) != "missing" || f.status != 401 {
		t.Errorf("401 without credentials: got %+v; want missing", f)
	}
	s.say(403, "")
	if _, f := b.ask("Cookie: a=b"); f.status != 403 || f.code != "AUTHORIZATION_FAILED" {
		t.Errorf("403: got %+v; want our own 403", f)
	}
	if strings.Contains(b.log.String(), "hunter2") {
		t.Error("the cookie is in the log")
	}
}

func TestForwardedQuestion(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, unchanged)
	web := webConfig{TrustedProxies: []string{"10.0.0.0/8", "::ffff:192.168.7.7", "::ffff:172.16.0.0/108", "fd00::/8"}}
	b.forward.trusted = web.trustedProxies()
	lines := []string{
		"Authorization: Basic eDp5", "Cookie: a=1", "Cookie: b=2", "X-API-Key: k", "X-Other: no", "Accept: text/html",
		"X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: public.example",
		"X-Forwarded-Uri: /spoofed", "X-Forwarded-Method: SPOOFED",
	}
	for _, tt := range []struct {
		peer                string
		tls                 bool
		proto, host, client string
	}{
		{"203.0.113.5:1234", false, "http", "example.com", "203.0.113.5"},
		{"203.0.113.5:1234", true, "https", "example.com", "203.0.113.5"},
		{"192.168.7.8:1", false, "http", "example.com", "192.168.7.8"},
		{"10.1.2.3:1234", false, "https", "public.example", "1.1.1.1, 10.1.2.3"},
		{"[::ffff:10.1.2.3]:1234", false, "https", "public.example", "1.1.1.1, 10.1.2.3"},
		{"172.31.255.255:1", false, "https", "public.example", "1.1.1.1, 172.31.255.255"},
		{"172.32.0.0:1", false, "http", "example.com", "172.32.0.0"},
		{"192.168.7.7:1", false, "https", "public.example", "1.1.1.1, 192.168.7.7"},
		{"[fd00::1%eth0]:1", false, "https", "public.example", "1.1.1.1, fd00::1%eth0"},
		{"[2001:db8::1]:1", false, "http", "example.com", "2001:db8::1"},
		{"@", false, "http", "example.com", "unknown"}, // a Unix socket
	} {
		r := requestWith(lines...)
		r.Method, r.RemoteAddr = "DELETE", tt.peer
		if tt.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if _, f := b.authenticate(r); f != nil {
			t.Fatalf("%s: %v", tt.peer, f)
		}
		q := s.questions()[0]
		got := fmt.Sprint(q.Method, " ", q.URL.Path, " ", q.Header["Authorization"], q.Header["Cookie"],
			q.Header["X-Api-Key"],
			q.Header["X-Other"], q.Header["X-Forwarded-Method"], q.Header["X-Forwarded-Uri"], q.Header["X-Forwarded-Proto"],
			q.Header["X-Forwarded-Host"], q.Header["X-Forwarded-For"])
		want := fmt.Sprintf("GET /who [Basic eDp5] [a=1 b=2] [k] [] [DELETE] [/v1/tasks?page=2] [%s] [%s] [%s]",
			tt.proto, tt.host, tt.client)
		if got != want {
			t.Errorf("%s: got %s; want %s", tt.peer, got, want)
		}
	}
}

func TestForwardedIsTheOnlyVerifier(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, func(c *authConfig) {
		withAPIKeys(c)
		c.JWTPublicKey = publicPEM(t,
			authKeys().rsa)
	})
	s.say(401, "")
	for _, line := range []string{"Authorization: Bearer " + rs256(t, goodClaims("")),
		"X-API-Key: " + testAPIKey} {
		if _, f := b.ask(line); reasonOf(f) != "invalid" {
			t.Errorf("%.20s: got %q; want invalid", line, reasonOf(f))
		}
	}
}

func TestForwardedCache(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, func(c *authConfig) { c.AuthenticatorCacheSeconds = 30 })
	count := func(when string, want int, lines ...string) {
		t.Helper()
		b.ask(lines...)
		if got := len(s.questions()); got != want {
			t.Errorf("%s: got %d questions; want %d", when, got, want)
		}
	}
	count("the first time", 1, "Cookie: a=1")
	count("the second time", 0, "Cookie: a=1")
	count("another cookie", 1, "Cookie: a=2")
	count("two cookies for one", 1, "Cookie: a=", "Cookie: 1")
	count("the value in another header", 1, "Authorization: a=1")
	count("another key", 1, "Cookie: a=1", "X-API-Key: k")
	r := requestWith("Cookie: a=1")
	r.Method = "DELETE"
	b.authenticate(r)
	if got := len(s.questions()); got != 1 {
		t.Errorf("another method: got %d questions; want 1", got)
	}
	r = requestWith("Cookie: a=1")
	r.URL.Path = "/v1/dlq"
	b.authenticate(r)
	if got := len(s.questions()); got != 1 {
		t.Errorf("another path: got %d questions; want 1", got)
	}
	b.clock.advance(29 * time.Second)
	count("29 s later", 0, "Cookie: a=1")
	b.clock.advance(time.Second)
	count("30 s later", 1, "Cookie: a=1")
	for _, status := range []int{401, 403, 500} {
		s.say(status, whoAnswer)
		count(fmt.Sprint(status, ", the first time"), 1, fmt.Sprint("Cookie: x=", status))
		count(fmt.Sprint(status, ", the second time"), 1, fmt.Sprint("Cookie: x=", status))
	}
	s.say(200, whoAnswer)
	uncached := newForwardBench(t, s, unchanged)
	for range 2 {
		uncached.ask("Cookie: a=1")
	}
	if got := len(s.questions()); got != 2 {
		t.Errorf("without a cache: got %d questions; want 2", got)
	}
}

func TestForwardedTimeout(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	a := newForwardAuth(s.URL, "X-API-Key", 0, nil)
	if a.client.Timeout != 2*time.Second {
		t.Errorf("timeout: got %v; want 2s", a.client.Timeout)
	}
	a.client.Timeout = 20 * time.Millisecond
	if _, _, f := a.identity(requestWith(), authTestNow); reasonOf(f) != "unavailable" {
		t.Errorf("a slow one: got %q; want unavailable", reasonOf(f))
	}
	s.Close()
	if _, _, f := a.identity(requestWith(), authTestNow); reasonOf(f) != "unavailable" {
		t.Errorf("one that is gone: got %q; want unavailable", reasonOf(f))
	}
	a.close()
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
	// Verified with the keys of before, so it must not come in afterwards.
	c.put(digestNo(1), &cachedIdentity{&securityContext{}, 0, 10}, epoch)
	if got, _ := c.get(digestNo(1), 5); got != nil {
		t.Error("a late entry of before the clearing: got it; want nil")
	}
}
