package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// keyServer publishes a key set.
type keyServer struct {
	*httptest.Server

	mu     sync.Mutex
	status int
	body   string
	hits   int
	gate   chan struct{} // when set, answers wait for it; they are made before
}

func newKeyServer(t testing.TB, body string) *keyServer {
	t.Helper()
	s := &keyServer{status: http.StatusOK, body: body}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.hits++
		status, body, gate := s.status, s.body, s.gate
		s.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) publish(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

func (s *keyServer) hold(gate chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = gate
}

func (s *keyServer) fetches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits
}

// wantFetches fails unless the server was asked n times so far.
func (s *keyServer) wantFetches(t *testing.T, when string, n int) {
	t.Helper()
	if got := s.fetches(); got != n {
		t.Errorf("%s: got %d fetches; want %d", when, got, n)
	}
}

// newKeySetBench is an authenticator with the server's key set, and more set.
func newKeySetBench(t testing.TB, s *keyServer, set func(c *authConfig)) *authBench {
	t.Helper()
	b := newAuthBench(t, func(c *authConfig) {
		c.JWTPublicKey, c.JWTVerificationMethod = "", "jwks"
		c.JWKSURL, c.JWKSURLAllowHTTP = s.URL, true
		set(c)
	})
	b.settle()
	return b
}

// settle waits until no fetch is in flight.
func (b *authBench) settle() {
	for {
		b.keys.mu.Lock()
		flight := b.keys.flight
		b.keys.mu.Unlock()
		if flight == nil {
			return
		}
		<-flight.done
	}
}

// pass lets time pass in small steps, so that what falls due in between is done.
func (b *authBench) pass(d time.Duration) {
	for d > 0 {
		step := min(d, time.Second)
		b.clock.advance(step)
		b.settle()
		d -= step
	}
}

// keyedToken is a token that is good for ten years, with a kid.
func keyedToken(t testing.TB, kid string, key any) string {
	t.Helper()
	claims := claimsWith("exp", fmt.Sprint(int64(authTestNow/1e6)+10*365*24*3600))
	return signedText(t, "RS256", key, fmt.Sprintf(`{"alg":"RS256","kid":%q}`, kid), claims)
}

// want fails unless the token is refused for the reason, "" for not at all.
func (b *authBench) want(t *testing.T, when, token string, want authReason) {
	t.Helper()
	if _, f := b.bearer(token); reasonOf(f) != want {
		t.Errorf("%s: got %q (%+v); want %q", when, reasonOf(f), f, want)
	}
}

func TestKeyRotation(t *testing.T) {
	keys := authKeys()
	a, other := rsaWebKey("a", &keys.rsa.PublicKey), &keys.rsa2.PublicKey
	s := newKeyServer(t, webKeySet(a))
	b := newKeySetBench(t, s, unchanged)
	tokenA, tokenB, tokenC := keyedToken(t, "a", keys.rsa), keyedToken(t, "b", keys.rsa2), keyedToken(t, "c",
		keys.rsa2)

	b.want(t, "the first key", tokenA, "")
	b.want(t, "the first key's kid, another key", keyedToken(t, "a", keys.rsa2), "invalid")
	s.wantFetches(t, "before the rotation", 1)

	s.publish(200, webKeySet(rsaWebKey("b", other)))
	b.want(t, "before anybody knows of the rotation", tokenA, "") // from the cache
	b.want(t, "the second key", tokenB, "")
	s.wantFetches(t, "after the rotation", 2)
	b.want(t, "the first key, rotated away", tokenA, "invalid")
	s.wantFetches(t, "after asking for the key rotated away", 3)

	b.clock.advance(2 * time.Second)
	s.publish(200, webKeySet(rsaWebKey("c", other)))
	b.want(t, "the third key, seconds later", tokenC, "")
	s.wantFetches(t, "after the second rotation", 4)

	// The refresh of every hour brings back a key without being asked.
	s.publish(200, webKeySet(a))
	b.pass(time.Hour)
	s.wantFetches(t, "after an hour", 5)
	b.want(t, "the first key again", tokenA, "")
	b.want(t, "the third key, rotated away", tokenC, "invalid")
}

func TestUnknownKeyIsFetchedOnce(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	b := newKeySetBench(t, s, unchanged)
	gate := make(chan struct{})
	s.hold(gate)
	token := keyedToken(t, "unheard-of", keys.rsa2)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { b.want(t, "all at once", token, "invalid") })
	}
	close(gate)
	all.Wait()
	s.wantFetches(t, "fifty requests at once", 2)
	b.want(t, "later", token, "invalid")
	b.clock.advance(9 * time.Second)
	b.want(t, "9 s later", token, "invalid")
	s.wantFetches(t, "within 10 s", 2)
	b.clock.advance(time.Second)
	b.want(t, "10 s later", token, "invalid")
	s.wantFetches(t, "after 10 s", 3)
	b.want(t, "the known key meanwhile", keyedToken(t, "a", keys.rsa), "")
}

func TestRandomKeyIDsHaveABudget(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	b := newKeySetBench(t, s, unchanged)
	for minute := 1; minute <= 2; minute++ {
		for i := range 30 {
			b.want(t, "a random kid", keyedToken(t, fmt.Sprint("random", minute, i), keys.rsa2), "invalid")
			b.clock.advance(time.Second)
		}
		s.wantFetches(t, "30 random kids in half a minute", 1+10*minute)
		b.clock.advance(time.Minute)
	}
}

func TestKeyIDsThatNameNoKey(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	b := newKeySetBench(t, s, unchanged)
	b.want(t, "no kid", rs256(t, goodClaims("")), "invalid")
	b.want(t, "an empty kid", keyedToken(t, "", keys.rsa), "invalid")
	b.want(t, "a long kid", keyedToken(t, strings.Repeat("a", 257), keys.rsa), "invalid")
	s.wantFetches(t, "kids that cannot name a key", 1)
	for _, kid := range []string{"../a", "/etc/passwd", "a' OR '1'='1", "A", "a ", "http://evil.example/a"} {
		b.want(t, kid, keyedToken(t, kid, keys.rsa), "invalid")
	}
	nul := signedText(t, "RS256", keys.rsa, `{"alg":"RS256","kid":"a\u0000"}`, goodClaims(""))
	b.want(t, "a kid with NUL", nul, "malformed")
}

func TestFetchBegunBeforeIsNotTheLastWord(t *testing.T) {
	keys := authKeys()
	a, published := rsaWebKey("a", &keys.rsa.PublicKey), rsaWebKey("b", &keys.rsa2.PublicKey)
	s := newKeyServer(t, webKeySet(a))
	b := newKeySetBench(t, s, unchanged)
	gate := make(chan struct{})
	s.hold(gate)
	var all sync.WaitGroup
	all.Go(func() { b.want(t, "an unknown kid", keyedToken(t, "x", keys.rsa2), "invalid") })
	for s.fetches() < 2 { // the answer without the key b is made
		runtime.Gosched()
	}
	s.publish(200, webKeySet(a, published))
	all.Go(func() { b.want(t, "a kid published meanwhile", keyedToken(t, "b", keys.rsa2), "") })
	close(gate)
	all.Wait()
	s.wantFetches(t, "two unknown kids", 3)
}

func TestStaleKeys(t *testing.T) {
	keys := authKeys()
	set := webKeySet(rsaWebKey("a", &keys.rsa.PublicKey))
	for _, stale := range []int{300, 0} {
		t.Run(fmt.Sprint(stale), func(t *testing.T) {
			s := newKeyServer(t, set)
			b := newKeySetBench(t, s, func(c *authConfig) { c.JWKSMaxStaleSeconds = stale })
			token := keyedToken(t, "a", keys.rsa)
			b.want(t, "at first", token, "")
			s.publish(http.StatusInternalServerError, "")
			b.pass(time.Hour - time.Second)
			b.want(t, "at the end of the interval", token, "")
			s.wantFetches(t, "within the interval", 1)
			b.pass(time.Duration(stale) * time.Second)
			b.want(t, "at the end of the stale time", token, "")
			if err := b.ready(); err != nil {
				t.Errorf("at the end of the stale time: got %v; want ready", err)
			}
			b.pass(time.Second)
			b.want(t, "too stale", token, "unavailable")
			if b.ready() == nil {
				t.Error("too stale: got ready; want an error")
			}
			if !strings.Contains(b.log.String(), "level=WARN") {
				t.Error("got no warning in the log")
			}
			s.publish(200, set)
			b.pass(longestRetryWait)
			b.want(t, "after the server came back", token, "")
			if err := b.ready(); err != nil {
				t.Errorf("after the server came back: got %v; want ready", err)
			}
		})
	}
}

func TestKeyServerDownAtStart(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, "")
	s.publish(http.StatusBadGateway, "")
	b := newKeySetBench(t, s, unchanged)
	token := keyedToken(t, "a", keys.rsa)
	b.want(t, "down", token, "unavailable")
	if b.ready() == nil {
		t.Error("down: got ready; want an error")
	}
	b.pass(10 * time.Minute)
	if n := s.fetches(); n < 20 || n > 30 {
		t.Errorf("got %d tries in ten minutes; want 20 to 30", n)
	}
	tries := s.fetches()
	for range 100 {
		b.want(t, "down", token, "unavailable")
	}
	s.wantFetches(t, "a hundred requests without keys", tries)
	s.publish(200, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	b.pass(longestRetryWait)
	b.want(t, "up", token, "")
	if err := b.ready(); err != nil {
		t.Errorf("up: got %v; want ready", err)
	}
}

func TestUnknownKeyWhileServerIsDown(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	b := newKeySetBench(t, s, unchanged)
	s.publish(http.StatusBadGateway, "")
	b.want(t, "an unknown kid: nobody can tell", keyedToken(t, "b", keys.rsa2), "unavailable")
	b.want(t, "a known kid", keyedToken(t, "a", keys.rsa), "")
	s.publish(200, webKeySet(rsaWebKey("b", &keys.rsa2.PublicKey)))
	b.pass(firstRetryPause)
	b.want(t, "after the retry", keyedToken(t, "b", keys.rsa2), "")
}

func TestRequestsWaitForTheFirstFetch(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	gate := make(chan struct{})
	s.hold(gate)
	b := newAuthBench(t, func(c *authConfig) {
		c.JWTPublicKey, c.JWTVerificationMethod, c.JWKSURL, c.JWKSURLAllowHTTP = "", "jwks", s.URL, true
	})
	if b.ready() == nil {
		t.Error("before the first fetch: got ready; want an error")
	}
	token := keyedToken(t, "a", keys.rsa)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, f := b.authenticate(requestWith("Authorization: Bearer " + token).WithContext(ctx))
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

func TestCloseEndsAFetch(t *testing.T) {
	s := newKeyServer(t, "")
	s.hold(make(chan struct{}))
	b := newAuthBench(t, func(c *authConfig) {
		c.JWTPublicKey, c.JWTVerificationMethod, c.JWKSURL, c.JWKSURLAllowHTTP = "", "jwks", s.URL, true
	})
	b.close()
	b.pass(2 * time.Hour)
	if n := s.fetches(); n > 1 {
		t.Errorf("got %d fetches after the end; want no more than the first", n)
	}
	b.want(t, "after the end", keyedToken(t, "a", authKeys().rsa), "unavailable")
}

func TestMissingKeysAreBounded(t *testing.T) {
	b := newKeySetBench(t, newKeyServer(t, webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey))), unchanged)
	b.keys.mu.Lock()
	defer b.keys.mu.Unlock()
	for i := range 3 * maxMissingKeys {
		b.keys.noteMissingLocked(map[string]bool{fmt.Sprint(i): true, "a": true})
	}
	if n := len(b.keys.missing); n != maxMissingKeys {
		t.Errorf("got %d remembered; want %d", n, maxMissingKeys)
	}
	b.clock.advance(missingKeyPause)
	b.keys.noteMissingLocked(nil)
	if n := len(b.keys.missing); n != 0 {
		t.Errorf("got %d remembered after the pause; want 0", n)
	}
}
