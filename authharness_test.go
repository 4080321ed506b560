package main

// What the tests of authentication share: keys, tokens written by hand, and an
// authenticator in one line.

import (
	"bytes"
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
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

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
