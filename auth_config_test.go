package main

import (
	"context"
	"encoding/asn1"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestForgedECDSA(t *testing.T) {
	keys := authKeys()
	b := newAuthBench(t, func(c *authConfig) {
		c.JWTPublicKey, c.JWTAllowedAlgorithms = publicPEM(t, keys.p256), []string{"ES256"}
	})
	good := signedText(t, "ES256", keys.p256, `{"alg":"ES256"}`, goodClaims(""))
	text := good[:strings.LastIndex(good, ".")+1]
	raw := must(base64.RawURLEncoding.DecodeString(good[len(text):]))(t)
	r, s := new(big.Int).SetBytes(raw[:32]), new(big.Int).SetBytes(raw[32:])
	der := must(asn1.Marshal(struct{ R, S *big.Int }{r, s}))(t)
	n := keys.p256.Params().N
	signature := func(r, s *big.Int) string {
		return text + segment(string(r.FillBytes(make([]byte, 32)))+string(s.FillBytes(make([]byte, 32))))
	}
	zero := new(big.Int)
	runAttacks(t, b, []attack{
		{"an honest token", good, ""},
		{"DER", text + segment(string(der)), "invalid"},
		{"r = 0", signature(zero, s), "invalid"},
		{"s = 0", signature(r, zero), "invalid"},
		{"r = s = 0", signature(zero, zero), "invalid"},
		{"r = n", signature(n, s), "invalid"},
		{"s = n", signature(r, n), "invalid"},
		{"r and s swapped", signature(s, r), "invalid"},
		{"63 bytes", text + segment(string(raw[:63])), "invalid"},
		{"65 bytes", text + segment(string(raw)+"\x00"), "invalid"},
		{"96 bytes", text + segment(string(raw)+strings.Repeat("\x00", 32)), "invalid"},
	})
}

func TestForgedEdDSA(t *testing.T) {
	t.Parallel()
	key := authKeys().ed
	b := newAuthBench(t, func(c *authConfig) {
		c.JWTPublicKey, c.JWTAllowedAlgorithms = publicPEM(t, key), []string{"EdDSA"}
	})
	good := signedText(t, "EdDSA", key, `{"alg":"EdDSA"}`, goodClaims(""))
	text := good[:strings.LastIndex(good, ".")+1]
	raw := must(base64.RawURLEncoding.DecodeString(good[len(text):]))(t)
	order, _ := new(big.Int).SetString("1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3ed", 16)
	reversed := func(b []byte) []byte { b = slices.Clone(b); slices.Reverse(b); return b }
	s := new(big.Int).SetBytes(reversed(raw[32:]))
	plusOrder := reversed(s.Add(s, order).FillBytes(make([]byte, 32)))
	runAttacks(t, b, []attack{
		{"an honest token", good, ""},
		{"S plus the group's order", text + segment(string(raw[:32])+string(plusOrder)), "invalid"},
		{"S = 0", text + segment(string(raw[:32])+strings.Repeat("\x00", 32)), "invalid"},
		{"R the neutral point, S = 0", text + segment("\x01"+strings.Repeat("\x00", 63)), "invalid"},
		{"63 bytes", text + segment(string(raw[:63])), "invalid"},
		{"65 bytes", text + segment(string(raw)+"\x00"), "invalid"},
	})
}

func TestRequestsWaitForTheFirstFetch(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	gate := make(chan struct{})
	s.hold(gate)
	b := newAuthBench(t, func(c *authConfig) {
		c.JWTPublicKey, c.JWTVerificationMethod, c.JWKSURL, c.JWKSURLAllowHTTP = "", "jwks", s.URL, true
	})
	b.wantReady(t, "before the first fetch", false)
	token := keyedToken(t, "a", keys.rsa)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, f := b.request(requestWith("Authorization: Bearer " + token).WithContext(ctx))
	if reasonOf(f) != "unavailable" {
		t.Errorf("a caller that went away: got %q; want unavailable", reasonOf(f))
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { b.want(t, "during the first fetch", token, "") })
	}
	close(gate)
	all.Wait()
	s.wantFetches(t, "at start", 1)
}

// whoServer is a forward authenticator with answers set by the test.
type whoServer struct {
	*httptest.Server

	mu     sync.Mutex
	status int
	body   string
	asked  []*http.Request
}

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

// questions returns the requests since the last call.
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
	b.request(r)
	if got := len(s.questions()); got != 1 {
		t.Errorf("another method: got %d questions; want 1", got)
	}
	r = requestWith("Cookie: a=1")
	r.URL.Path = "/v1/dlq"
	b.request(r)
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

// testAPIKey is long enough to cause no warning.
const testAPIKey = "an-api-key-of-the-tests"

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

const whoAnswer = `{"subject":"alice","permissions":["tasks:*"]}`

func TestForwardedAnswers(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, unchanged)
	many := `"` + strings.Repeat(`tasks:read","`, 256) + `tasks:read"`
	for _, tt := range []struct {
		status int
		body   string
		want   string
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
	if _, f := b.ask(); reasonOf(f) != "missing" || f.kind != unauthenticated {
		t.Errorf("401 without credentials: got %+v; want missing", f)
	}
	s.say(403, "")
	if _, f := b.ask("Cookie: a=b"); f.kind != forbidden {
		t.Errorf("403: got %+v; want our own 403", f)
	}
	if strings.Contains(b.log.String(), "hunter2") {
		t.Error("the cookie is in the log")
	}
}

func TestForwardedTimeout(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	a := newForwardAuth(s.URL, "X-API-Key", 0, nil, newAuthCache(1))
	if a.client.Timeout != 2*time.Second {
		t.Errorf("timeout: got %v; want 2s", a.client.Timeout)
	}
	a.client.Timeout = 20 * time.Millisecond
	if _, _, f := a.identity(context.Background(), callerOf(requestWith()), authTestNow); reasonOf(f) != "unavailable" {
		t.Errorf("a slow one: got %q; want unavailable", reasonOf(f))
	}
	s.Close()
	if _, _, f := a.identity(context.Background(), callerOf(requestWith()), authTestNow); reasonOf(f) != "unavailable" {
		t.Errorf("one that is gone: got %q; want unavailable", reasonOf(f))
	}
	a.close()
}
