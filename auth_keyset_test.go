package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rsaMembers returns the members n and e of a web key.
func rsaMembers(k *rsa.PublicKey) string {
	return fmt.Sprintf(`"n":"%s","e":"%s"`, base64.RawURLEncoding.EncodeToString(k.N.Bytes()),
		base64.RawURLEncoding.EncodeToString(big.NewInt(int64(k.E)).Bytes()))
}

func ecMembers(t testing.TB, k *ecdsa.PublicKey) string {
	t.Helper()
	point := must(k.Bytes())(t)
	half := (len(point) - 1) / 2
	return fmt.Sprintf(`"crv":%q,"x":"%s","y":"%s"`, k.Curve.Params().Name,
		base64.RawURLEncoding.EncodeToString(point[1:1+half]), base64.RawURLEncoding.EncodeToString(point[1+half:]))
}

// rsaWebKey returns a key as a server publishes it.
func rsaWebKey(kid string, k *rsa.PublicKey) string {
	return fmt.Sprintf(`{"kty":"RSA","use":"sig","alg":"RS256","kid":%q,%s}`, kid, rsaMembers(k))
}

func webKeySet(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

func TestWebKeys(t *testing.T) {
	keys := authKeys()
	r := rsaMembers(&keys.rsa.PublicKey)
	p256, p384 := ecMembers(t, &keys.p256.PublicKey), ecMembers(t, &keys.p384.PublicKey)
	ed := `"crv":"Ed25519","x":"` + segment(string(keys.ed.Public().(ed25519.PublicKey))) + `"`
	modulus := func(bits int, e string) string {
		n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
		return `"n":"` + segment(string(n.SetBit(n, 0, 1).Bytes())) + `","e":"` + e + `"`
	}
	const rs, es256, es384, eddsa = "RS256 RS384 RS512 PS256 PS384 PS512", "ES256", "ES384", "EdDSA"
	for _, tt := range []struct{ name, key, want string }{
		{"RSA", `"kty":"RSA","kid":"a",` + r, rs},
		{"RSA for one algorithm", `"kty":"RSA","kid":"a","alg":"PS384",` + r, "PS384"},
		{"RSA, everything said", `"kty":"RSA","kid":"a","use":"sig","alg":"RS256","key_ops":["verify"],` + r,
			"RS256"},
		{"null members count as absent", `"kty":"RSA","kid":"a","use":null,"alg":null,"key_ops":null,"crv":null,"x5c":null,` + r, rs},
		{"EC P-256", `"kty":"EC","kid":"a",` + p256, es256},
		{"EC P-384", `"kty":"EC","kid":"a",` + p384, es384},
		{"Ed25519", `"kty":"OKP","kid":"a",` + ed, eddsa},
		{"RSA of 2048 bits", `"kty":"RSA","kid":"a",` + modulus(2048, "AQAB"), rs},
		{"exponent 3", `"kty":"RSA","kid":"a",` + modulus(2048, "Aw"), rs},

		{"no kid", `"kty":"RSA",` + r, ""},
		{"empty kid", `"kty":"RSA","kid":"",` + r, ""},
		{"kid a number", `"kty":"RSA","kid":1,` + r, ""},
		{"for encryption", `"kty":"RSA","kid":"a","use":"enc",` + r, ""},
		{"use empty", `"kty":"RSA","kid":"a","use":"",` + r, ""},
		{"use a list", `"kty":"RSA","kid":"a","use":["sig"],` + r, ""},
		{"key_ops without verify", `"kty":"RSA","kid":"a","key_ops":["encrypt"],` + r, ""},
		{"an encryption algorithm", `"kty":"RSA","kid":"a","alg":"RSA-OAEP",` + r, ""},
		{"alg none", `"kty":"RSA","kid":"a","alg":"none",` + r, ""},
		{"kid null", `"kty":"RSA","kid":null,` + r, ""},
		{"kty null", `"kty":null,"kid":"a",` + r, ""},
		{"alg of another family", `"kty":"RSA","kid":"a","alg":"ES256",` + r, ""},
		{"an HMAC secret", `"kty":"oct","kid":"a","alg":"HS256","k":"c2VjcmV0"`, ""},
		{"no kty", `"kid":"a",` + r, ""},
		{"RSA of 2040 bits", `"kty":"RSA","kid":"a",` + modulus(2040, "AQAB"), ""},
		{"RSA of 16384 bits", `"kty":"RSA","kid":"a",` + modulus(16384, "AQAB"), ""},
		{"exponent 1", `"kty":"RSA","kid":"a",` + modulus(2048, "AQ"), ""},
		{"exponent 0", `"kty":"RSA","kid":"a",` + modulus(2048, "AA"), ""},
		{"exponent 2", `"kty":"RSA","kid":"a",` + modulus(2048, "Ag"), ""},
		{"exponent absent", `"kty":"RSA","kid":"a",` + modulus(2048, ""), ""},
		{"exponent beyond 31 bits", `"kty":"RSA","kid":"a",` + modulus(2048, "gAAAAQ"), ""},
		{"exponent of 9 bytes", `"kty":"RSA","kid":"a",` + modulus(2048, "AQAAAAAAAAAB"), ""},
		{"modulus absent", `"kty":"RSA","kid":"a","e":"AQAB"`, ""},
		{"modulus with padding", `"kty":"RSA","kid":"a","e":"AQAB","n":"` + strings.Repeat("A", 342) + `=="`, ""},
		{"a curve that we do not know", `"kty":"EC","kid":"a","crv":"secp256k1","x":"AA","y":"AA"`, ""},
		{"a point off the curve", `"kty":"EC","kid":"a","crv":"P-256","x":"` + segment(strings.Repeat("\x01", 32)) +
			`","y":"` + segment(strings.Repeat("\x02", 32)) + `"`, ""},
		{"the point 0, 0", `"kty":"EC","kid":"a","crv":"P-256","x":"` + segment(strings.Repeat("\x00", 32)) +
			`","y":"` + segment(strings.Repeat("\x00", 32)) + `"`, ""},
		{"a P-384 point said to be on P-256", `"kty":"EC","kid":"a",` + strings.Replace(p384, "P-384", "P-256",
			1), ""},
		{"X25519", `"kty":"OKP","kid":"a",` + strings.Replace(ed, "Ed25519", "X25519", 1), ""},
		{"an Ed25519 key of 31 bytes", `"kty":"OKP","kid":"a","crv":"Ed25519","x":"` + segment(strings.Repeat("a",
			31)) + `"`, ""},
	} {
		var got string
		if k, err := decodeWebKey([]byte("{"+tt.key+"}"), signingAlgorithms); err == nil {
			got = strings.Join(k.algorithms, " ")
		}
		if got != tt.want {
			t.Errorf("%s: got %q; want %q", tt.name, got, tt.want)
		}
	}
}

func TestWebKeysThatAreNotAllowed(t *testing.T) {
	keys := authKeys()
	allowed := []string{"RS256", "ES384"}
	for _, tt := range []struct{ name, key, want string }{
		{"RSA", `{"kty":"RSA","kid":"a",` + rsaMembers(&keys.rsa.PublicKey) + `}`, "RS256"},
		{"RSA for PS256", `{"kty":"RSA","kid":"a","alg":"PS256",` + rsaMembers(&keys.rsa.PublicKey) + `}`, ""},
		{"P-256", `{"kty":"EC","kid":"a",` + ecMembers(t, &keys.p256.PublicKey) + `}`, ""},
		{"P-384", `{"kty":"EC","kid":"a",` + ecMembers(t, &keys.p384.PublicKey) + `}`, "ES384"},
	} {
		var got string
		if k, err := decodeWebKey([]byte(tt.key), allowed); err == nil {
			got = strings.Join(k.algorithms, " ")
		}
		if got != tt.want {
			t.Errorf("%s: got %q; want %q", tt.name, got, tt.want)
		}
	}
}

func TestDecodeKeySet(t *testing.T) {
	key := rsaWebKey("a", &authKeys().rsa.PublicKey)
	for _, tt := range []struct {
		name, text string
		want       int // keys; 0 for an error
	}{
		{"one key", webKeySet(key), 1},
		{"two keys", webKeySet(key, strings.Replace(key, `"a"`, `"b"`, 1)), 2},
		{"one key among others", webKeySet(`{}`, `null`, `1`, `"x"`, `[]`, key, `{"kty":"oct"}`), 1},
		{"more members", `{"x":[1],"keys":[` + key + `],"y":null}`, 1},
		{"no usable key", webKeySet(`{}`), 0},
		{"no keys", webKeySet(), 0},
		{"keys an object", `{"keys":{"a":` + key + `}}`, 0},
		{"keys null", `{"keys":null}`, 0},
		{"keys absent", `{}`, 0},
		{"a bare list", `[` + key + `]`, 0},
		{"null", `null`, 0},
		{"nothing", ``, 0},
		{"HTML", `<html>not found</html>`, 0},
		{"cut off", webKeySet(key)[:100], 0},
		{"something behind", webKeySet(key) + `{}`, 0},
		{"a member twice in another key", webKeySet(`{"kty":"RSA","kty":"EC"}`, key), 1},
		{"a lone surrogate in another key", webKeySet(`{"kid":"\ud800"}`, key), 1},
		{"invalid UTF-8 in another key", webKeySet("{\"kid\":\"\xff\"}", key), 1},
		{"a number out of range in another key", webKeySet(`{"exp":1e400}`, key), 1},
		{"another key too deep", webKeySet(`{"x":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}`, key), 1},
		{"a member twice in the only key", webKeySet(strings.Replace(key, `{`, `{"kid":"b",`, 1)), 1},
	} {
		got, err := decodeKeySet([]byte(tt.text), signingAlgorithms)
		if (err != nil) != (tt.want == 0) || err == nil && len(got.usable) != tt.want {
			t.Errorf("%s: got %+v, %v; want %d keys", tt.name, got, err, tt.want)
		}
	}
}

// TestUnusableKeysAreNamed checks what is said of keys that are skipped (RFC 7517, 5).
func TestUnusableKeysAreNamed(t *testing.T) {
	good := rsaWebKey("a", &authKeys().rsa.PublicKey)
	p521 := must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))(t)
	// RFC 7518, 3.4 has one curve for each algorithm.
	onP521 := func(alg string) string {
		return `{"kty":"EC","kid":"b","alg":"` + alg + `",` + ecMembers(t, &p521.PublicKey) + `}`
	}
	const curve = `keys[1], "b": an EC key must be on P-256 or P-384`
	for _, tt := range []struct{ key, want string }{
		{`{"kty":"RSA","use":"enc","kid":"b"}`, ""},
		{`{"kty":"RSA","key_ops":["encrypt"],"kid":"b"}`, ""},
		{onP521("ES256"), curve}, {onP521("ES384"), curve}, {onP521("ES512"), curve},
		{`{"kty":"oct","kid":"b","k":"c2VjcmV0"}`, `keys[1], "b": a key must be RSA, EC or Ed25519`},
		{`{"kty":"RSA","n":"AQ","e":"AQAB"}`, `keys[1], "": it has no kid`},
		{`{"kty":"RSA","kid":"b","n":"AQ","e":"AQAB"}`, `keys[1], "b": an RSA key of 1 bits; want 2048 to 8192`},
		{`{"kty":"RSA","kid":"b","use":1}`, `keys[1], "b": its use is not a string`},
		{`{"kty":"RSA","kid":"b","e":"AQAB"}`, `keys[1], "b": its n is missing`},
		{`{"kty":"RSA","kid":"b","n":null,"e":"AQAB"}`, `keys[1], "b": its n is missing`},
		{`{"kty":"RSA","kid":"b","n":"","e":"AQAB"}`, `keys[1], "b": its n is missing`},
		{`{"kty":"RSA","kid":"b","n":65537,"e":"AQAB"}`, `keys[1], "b": its n is not a string`},
		{`{"kty":"RSA","kid":"b","n":"AQ==","e":"AQAB"}`, `keys[1], "b": its n is not base64url without padding`},
		{`{"kty":"RSA","kid":"b","n":"+/8","e":"AQAB"}`, `keys[1], "b": its n is not base64url without padding`},
		{`{"kty":"RSA","kid":"b","n":"AQ"}`, `keys[1], "b": its e is missing`},
		{`{"kty":"EC","kid":"b","crv":"P-256","x":"AQ"}`, `keys[1], "b": its y is missing`},
		{`{"kty":"OKP","kid":"b","crv":"Ed25519","x":"A"}`, `keys[1], "b": its x is not base64url without padding`},
		{`{"kid":"b","kid":"c"}`, `keys[1], "c": a key must be RSA, EC or Ed25519`}, // the last one (RFC 7517, 4)
		{`{"kid":"` + strings.Repeat("b", 100) + `"}`, `keys[1], "` + strings.Repeat("b", 64) +
			`": a key must be RSA, EC or Ed25519`},
		{`7`, `keys[1], "": it is not an object`},
	} {
		set := must(decodeKeySet([]byte(webKeySet(good, tt.key)), signingAlgorithms))(t)
		if set.skipped != tt.want || len(set.usable) != 1 {
			t.Errorf("%.40s: got %d keys, skipped %s; want 1, %s", tt.key, len(set.usable), set.skipped, tt.want)
		}
		_, err := decodeKeySet([]byte(webKeySet(tt.key)), signingAlgorithms)
		if want := strings.Replace(tt.want, "[1]", "[0]", 1); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%.40s alone: got %v; want %q", tt.key, err, want)
		}
	}
	crowd := append(slices.Repeat([]string{"{}"}, 500), good)
	many := must(decodeKeySet([]byte(webKeySet(crowd...)), signingAlgorithms))(t)
	if len(many.skipped) > maxSkippedShown+len("…") || !strings.HasSuffix(many.skipped, "…") {
		t.Errorf("got %s; want it cut off", many.skipped)
	}
}

func TestUnusableKeysAreWarnedOfOnce(t *testing.T) {
	key := rsaWebKey("a", &authKeys().rsa.PublicKey)
	s := newKeyServer(t, webKeySet(`{"kty":"RSA","kid":"weak","n":"AQ","e":"AQAB"}`, key))
	b := newKeySetBench(t, s, unchanged)
	b.want(t, "the other key", keyedToken(t, "a", authKeys().rsa), "")
	b.pass(3 * time.Hour)
	s.wantFetches(t, "after three hours", 4)
	const warning = `level=WARN msg="the key set has keys that cannot be used" role=orchestration ` +
		`skipped="keys[0], \"weak\": an RSA key of 1 bits`
	if got := strings.Count(b.log.String(), warning); got != 1 {
		t.Errorf("got the warning %d times; want it once\n%s", got, b.log)
	}
	s.publish(200, webKeySet(`{"kty":"RSA","kid":"other","n":"AQ","e":"AQAB"}`, key))
	b.pass(time.Hour)
	if !strings.Contains(b.log.String(), `"other\": an RSA key of 1 bits`) {
		t.Errorf("got no warning about another key\n%s", b.log)
	}
	s.publish(200, webKeySet(`{"kty":"RSA","kid":"a","n":"AQ","e":"AQAB"}`))
	b.pass(time.Hour)
	b.want(t, "a set without usable keys leaves the last one", keyedToken(t, "a", authKeys().rsa), "")
	if !strings.Contains(b.log.String(), `error="the key set has no usable key: keys[0], \"a\": an RSA key of 1 bits`) {
		t.Errorf("got no warning about a set without usable keys\n%s", b.log)
	}
}

func FuzzDecodeKeySet(f *testing.F) {
	keys := authKeys()
	f.Add([]byte(webKeySet(rsaWebKey("a", &keys.rsa.PublicKey))))
	f.Add([]byte(webKeySet(`{"kty":"EC","kid":"a",` + ecMembers(f, &keys.p256.PublicKey) + `}`)))
	f.Add([]byte(`{"keys":[{"kty":"OKP","kid":"a","crv":"Ed25519","x":""}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","n":"AA","e":"AA"}]}`))
	f.Add([]byte(`{"keys":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := decodeKeySet(data, signingAlgorithms)
		if (err == nil) != (set != nil && len(set.usable) > 0) {
			t.Errorf("got %+v, %v; want keys or an error", set, err)
		}
		if err != nil {
			return
		}
		for _, k := range set.usable {
			if family, err := keyAlgorithms(k.public); err != nil || k.id == "" || len(k.algorithms) > len(family) {
				t.Errorf("got a key %q for %q, %v; want a sound one with a kid", k.id, k.algorithms, err)
			}
		}
	})
}

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

// wantFetches fails unless there were n requests so far.
func (s *keyServer) wantFetches(t *testing.T, when string, n int) {
	t.Helper()
	if got := s.fetches(); got != n {
		t.Errorf("%s: got %d fetches; want %d", when, got, n)
	}
}

// newKeySetBench makes an authenticator with the server's key set.
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

// keyedToken returns a token with a kid that is valid for ten years.
func keyedToken(t testing.TB, kid string, key any) string {
	t.Helper()
	claims := claimsWith("exp", fmt.Sprint(int64(authTestNow/1e6)+10*365*24*3600))
	return signedText(t, "RS256", key, fmt.Sprintf(`{"alg":"RS256","kid":%q}`, kid), claims)
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

	s.publish(200, webKeySet(rsaWebKey("c", other)))
	b.want(t, "the third key, a moment later", tokenC, "")
	s.wantFetches(t, "after the second rotation", 4)

	// The hourly refresh fetches the key again.
	s.publish(200, webKeySet(a))
	b.pass(time.Hour)
	s.wantFetches(t, "after an hour", 5)
	b.want(t, "the first key again", tokenA, "")
	b.want(t, "the third key, rotated away", tokenC, "invalid")
}

// TestUnknownKeyIsFetchedOnce has many wait for one unknown kid: one fetch serves all of them, at once if there was
// none for such a kid before, and else 3 s after that.
func TestUnknownKeyIsFetchedOnce(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	b := newKeySetBench(t, s, unchanged)
	token, began := keyedToken(t, "unheard-of", keys.rsa2), b.clock.now()
	b.wantNow(t, "alone", token, "invalid")
	s.wantFetches(t, "alone", 2)
	for fetches := 3; fetches < 6; fetches++ {
		wait := b.waiting(t)
		for range 50 {
			wait.start("all at once", token, "invalid")
		}
		b.clock.advance(forcedPause - time.Microsecond)
		s.wantFetches(t, "before the time has come", fetches-1)
		b.clock.advance(time.Microsecond)
		wait.end()
		s.wantFetches(t, "fifty requests at once", fetches)
	}
	b.want(t, "the known key meanwhile", keyedToken(t, "a", keys.rsa), "")
	s.wantFetches(t, "a known key", 5)
	if took := b.clock.now().sub(began); took != 3*forcedPause {
		t.Errorf("four fetches took %s; want %s", took, 3*forcedPause)
	}
}

// TestStrangersCannotKeepANewKeyOut sends tokens with random kids all the time, unsigned ones among them, and meanwhile
// one of a key that was just published: it is accepted after the next fetch. The issuer gets at most 20 in a minute.
func TestStrangersCannotKeepANewKeyOut(t *testing.T) {
	keys := authKeys()
	old, fresh := rsaWebKey("old", &keys.rsa.PublicKey), rsaWebKey("fresh", &keys.rsa2.PublicKey)
	s := newKeyServer(t, webKeySet(old))
	b := newKeySetBench(t, s, unchanged)
	stranger := func(n int) string {
		return segment(fmt.Sprintf(`{"alg":"RS256","kid":"random%d"}`, n)) + "." + segment(goodClaims("")) + "." + segment("unsigned")
	}
	b.wantNow(t, "the first stranger", stranger(0), "invalid")
	wait := b.waiting(t)
	for n := range 60 {
		wait.start("a stranger", stranger(1+n), "invalid")
	}
	s.publish(200, webKeySet(old, fresh))
	wait.start("the new key", keyedToken(t, "fresh", keys.rsa2), "")
	b.clock.advance(forcedPause)
	wait.end()
	s.wantFetches(t, "61 strangers and a new key", 3)
	began := b.clock.now()
	for n := 100; b.clock.now().sub(began) < 10*time.Minute; n++ {
		b.want(t, "strangers for ten minutes", stranger(n), "invalid")
	}
	s.wantFetches(t, "strangers for ten minutes", 3+10*20)
}

// TestCloseReleasesWhoWaitsForAKey ends the service while a request waits for the next fetch.
func TestCloseReleasesWhoWaitsForAKey(t *testing.T) {
	keys := authKeys()
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &keys.rsa.PublicKey)))
	b := newKeySetBench(t, s, unchanged)
	token := keyedToken(t, "b", keys.rsa2)
	b.want(t, "the first fetch for it", token, "invalid")
	wait := b.waiting(t)
	wait.start("the end", token, "unavailable")
	b.close()
	wait.end()
}

func TestKeyIDsThatNameNoKey(t *testing.T) {
	slow(t)
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
	b.moving(func() {
		var all sync.WaitGroup
		all.Go(func() { b.wantNow(t, "an unknown kid", keyedToken(t, "x", keys.rsa2), "invalid") })
		for s.fetches() < 2 { // the answer without the key b is made
			runtime.Gosched()
		}
		s.publish(200, webKeySet(a, published))
		all.Go(func() { b.wantNow(t, "a kid published meanwhile", keyedToken(t, "b", keys.rsa2), "") })
		close(gate)
		all.Wait()
	})
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
			b.wantReady(t, "at the end of the stale time", true)
			b.pass(time.Second)
			b.want(t, "too stale", token, "unavailable")
			b.wantReady(t, "too stale", false)
			if !strings.Contains(b.log.String(), "level=WARN") {
				t.Error("got no warning in the log")
			}
			s.publish(200, set)
			b.pass(longestRetryWait)
			b.want(t, "after the server came back", token, "")
			b.wantReady(t, "after the server came back", true)
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
	b.wantReady(t, "down", false)
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
	b.wantReady(t, "up", true)
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
		peer, proto, host, client string
	}{
		{"203.0.113.5:1234", "http", "example.com", "203.0.113.5"},
		{"192.168.7.8:1", "http", "example.com", "192.168.7.8"},
		{"10.1.2.3:1234", "https", "public.example", "1.1.1.1, 10.1.2.3"},
		{"[::ffff:10.1.2.3]:1234", "https", "public.example", "1.1.1.1, 10.1.2.3"},
		{"172.31.255.255:1", "https", "public.example", "1.1.1.1, 172.31.255.255"},
		{"172.32.0.0:1", "http", "example.com", "172.32.0.0"},
		{"192.168.7.7:1", "https", "public.example", "1.1.1.1, 192.168.7.7"},
		{"[fd00::1%eth0]:1", "https", "public.example", "1.1.1.1, fd00::1%eth0"},
		{"[2001:db8::1]:1", "http", "example.com", "2001:db8::1"},
		{"@", "http", "example.com", "unknown"}, // a Unix socket
	} {
		r := requestWith(lines...)
		r.Method, r.RemoteAddr = "DELETE", tt.peer
		if _, f := b.request(r); f != nil {
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

func TestKeyFetch(t *testing.T) {
	t.Parallel()
	set := webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey))
	mux := http.NewServeMux()
	answer := func(path string, status int, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	filled := func(length int) string { return set + strings.Repeat(" ", length-len(set)) }
	answer("/good", 200, set)
	answer("/full", 200, filled(maxKeySetBytes))
	answer("/huge", 200, filled(maxKeySetBytes+1))
	answer("/broken", 200, set[:50])
	answer("/html", 200, "<html>")
	answer("/empty", 200, "")
	answer("/absent", 404, set)
	answer("/failing", 500, set)
	answer("/created", 201, set)
	mux.Handle("/moved", http.RedirectHandler("/good", http.StatusFound))
	mux.Handle("/moved-for-good", http.RedirectHandler("/good", http.StatusPermanentRedirect))
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/dripping", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, set[:10])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(set)))
		fmt.Fprint(w, set[:50])
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	for path, want := range map[string]string{
		"/good": "", "/full": "",
		"/huge": "more than 1048576 bytes", "/broken": "is not a JSON object", "/html": "is not a JSON object", "/empty": "is not a JSON object",
		"/absent": "answered 404", "/failing": "answered 500", "/created": "answered 201",
		"/moved": "answered 302", "/moved-for-good": "answered 308",
		"/slow": "exceeded", "/dripping": "exceeded", "/cut": "unexpected EOF",
	} {
		client := newKeyClient(true)
		if want == "exceeded" {
			client.Timeout = 50 * time.Millisecond
		}
		url := strings.Replace(s.URL, "http://", "http://user:hunter2@", 1) + path
		keys, err := keySetFetcher(client, url, signingAlgorithms)(context.Background())
		if want == "" && (err != nil || len(keys.usable) != 1) {
			t.Errorf("%s: got %+v, %v; want one key", path, keys, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v; want an error with %q", path, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error holds the URL's password: %v", path, err)
		}
		client.CloseIdleConnections()
	}
	if got := newKeyClient(true).Timeout; got != 10*time.Second {
		t.Errorf("timeout: got %v; want 10s", got)
	}
}

func TestKeyFetchRefusesPrivateHosts(t *testing.T) {
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey)))
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"} {
		_, err := keySetFetcher(newKeyClient(false), "http://"+host+port, signingAlgorithms)(context.Background())
		if !errors.Is(err, errPrivateHost) {
			t.Errorf("%s: got %v; want errPrivateHost", host, err)
		}
	}
	s.wantFetches(t, "private hosts", 0)
}

func TestIsPrivateHost(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1": true, "127.255.255.254": true, "::1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true,
		"169.254.169.254": true, "169.254.0.1": true, "fe80::1": true, "fe80::1%eth0": true, "fd00:ec2::254": true,
		"100.100.100.200": true, "168.63.129.16": true, "255.255.255.255": true, "224.0.0.1": true, "ff02::1": true,
		"::ffff:127.0.0.1": true, "::ffff:169.254.169.254": true, "64:ff9b::7f00:1": true, "64:ff9b::a9fe:a9fe": true,
		"::127.0.0.1": true,
		"10.0.0.1":    false, "192.168.1.1": false, "172.16.0.1": false, "fd00::1": false, "100.64.0.1": false,
		"8.8.8.8": false, "2606:4700::1111": false, "::ffff:8.8.8.8": false, "64:ff9b::808:808": false, "128.0.0.1": false,
	} {
		if got := isPrivateHost(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %v; want %v", text, got, want)
		}
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

// unchanged leaves the configuration of newAuthBench as it is.
func unchanged(*authConfig) {}

// settle waits until no fetch is in flight.
func (b *authBench) settle() {
	for {
		ended := b.keys.ended.next()
		b.keys.mu.Lock()
		fetching := b.keys.fetching
		b.keys.mu.Unlock()
		if !fetching {
			return
		}
		<-ended
	}
}

// pass advances the clock in small steps, so that timers fire in between.
func (b *authBench) pass(d time.Duration) {
	for d > 0 {
		step := min(d, time.Second)
		b.clock.advance(step)
		b.settle()
		d -= step
	}
}

// wantReady checks whether the keys are ready.
func (b *authBench) wantReady(t *testing.T, when string, want bool) {
	t.Helper()
	if err := b.ready(); (err == nil) != want {
		t.Errorf("%s: got %v; want ready: %v", when, err, want)
	}
}

// awaited reports whether requests wait for the time of the next fetch.
func (b *authBench) awaited() bool {
	if b.keys == nil {
		return false
	}
	b.keys.mu.Lock()
	defer b.keys.mu.Unlock()
	return b.keys.asked && !b.keys.fetching
}

// waitingTokens are requests that wait for the next fetch.
type waitingTokens struct {
	t       *testing.T
	b       *authBench
	started atomic.Int64
	all     sync.WaitGroup
}

func (b *authBench) waiting(t *testing.T) *waitingTokens { return &waitingTokens{t: t, b: b} }

// awaitedContext counts who waits for its end.
type awaitedContext struct {
	context.Context
	waits *atomic.Int64
}

func (c awaitedContext) Done() <-chan struct{} {
	c.waits.Add(1)
	return c.Context.Done()
}

// start sends a token, which will be refused for the reason, and returns once the request waits.
func (w *waitingTokens) start(what, token, want string) {
	w.t.Helper()
	before := w.started.Load()
	ctx := awaitedContext{context.Background(), &w.started}
	w.all.Go(func() {
		if _, f := w.b.request(requestWith("Authorization: Bearer " + token).WithContext(ctx)); reasonOf(f) != want {
			w.t.Errorf("%s: got %q (%+v); want %q", what, reasonOf(f), f, want)
		}
	})
	for w.started.Load() == before {
		runtime.Gosched()
	}
}

// end waits for the answers.
func (w *waitingTokens) end() { w.all.Wait() }

// moving calls f, and meanwhile advances the clock while requests wait for the time of the next fetch.
func (b *authBench) moving(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return
		default:
		}
		if b.awaited() {
			b.clock.advance(100 * time.Millisecond)
		}
		runtime.Gosched()
	}
}

// want fails unless the token is refused for the reason; "" means accepted. The clock advances if need be.
func (b *authBench) want(t *testing.T, when, token string, want string) {
	t.Helper()
	b.moving(func() { b.wantNow(t, when, token, want) })
}

// wantNow is want while somebody else moves the clock.
func (b *authBench) wantNow(t *testing.T, when, token string, want string) {
	t.Helper()
	if _, f := b.bearer(token); reasonOf(f) != want {
		t.Errorf("%s: got %q (%+v); want %q", when, reasonOf(f), f, want)
	}
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
