package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

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
			prefix + "enabled: nothing can verify credentials", ""},
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
			prefix + "jwt_allowed_algorithms: none of them belongs to the key of jwt_public_key; want ES256", ""},
		{"the private key beside it", func(c *config) { c.JWTPrivateKey = privatePEM(t, keys.rsa) }, "", ""},

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

		{"JWKS without a URL", jwksAt(""), prefix + "jwks_url: must not be empty if", ""},
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
		}, prefix + "authenticator_url: must not contain a user or password", ""},
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
		problem    string // "" for none
	}{
		{"PKIX", publicPEM(t, keys.rsa), ""},
		{"PKCS#1", text("RSA PUBLIC KEY", pkcs1), ""},
		{"a certificate", text("CERTIFICATE", certificate), ""},
		{"a chain of certificates", text("CERTIFICATE", certificate) + text("CERTIFICATE", certificate), ""},
		{"EC behind its parameters", text("EC PARAMETERS", []byte{5, 0}) + publicPEM(t, keys.p256), ""},
		{"Ed25519", publicPEM(t, keys.ed), ""},
		{"words before it", "my key:\n" + publicPEM(t, keys.rsa), ""},
		{"words after it", publicPEM(t, keys.rsa) + "my key\n", ""},
		{"a byte order mark", "\ufeff" + publicPEM(t, keys.rsa), ""},
		{"PKCS#1 said to be PKIX", text("PUBLIC KEY", pkcs1), ""},
		{"a certificate said to be a key", text("PUBLIC KEY", certificate), ""},
		{"a key said to be something else", text("NEW KEY", publicDER(t, keys.rsa)), ""},
		{"PKIX cut off", text("PUBLIC KEY", publicDER(t, keys.rsa)[:100]), `the block labeled "PUBLIC KEY" does not parse; want a PUBLIC KEY`},
		{"another sort of block", text("CERTIFICATE REQUEST", nil), `the block labeled "CERTIFICATE REQUEST" does not parse`},
		{"two keys", publicPEM(t, keys.rsa) + publicPEM(t, keys.p256), `it contains a second key, "PUBLIC KEY"; want one key`},
		{"both keys of a pair", publicPEM(t, keys.rsa) + privatePEM(t, keys.rsa), `it contains a second key, "PRIVATE KEY"; want one key`},
		{"a private key", privatePEM(t, keys.rsa), "it contains a private key; want a public key"},
		{"UTF-16", string(utf16Text(publicPEM(t, keys.rsa))), "it is UTF-16; want UTF-8"},
		{"nothing", "", "it is not PEM"},
		{"a key in base64 alone", strings.Join(strings.Split(publicPEM(t, keys.rsa), "\n")[1:5], "\n"), "it is not PEM"},
	} {
		if _, err := parsePublicKey([]byte(tt.text)); tt.problem == "" && err != nil ||
			tt.problem != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.problem)) {
			t.Errorf("%s: got %v; want %q", tt.name, err, tt.problem)
		}
	}
}

// TestPrivateKeyForms reads private keys under right and wrong labels.
func TestPrivateKeyForms(t *testing.T) {
	keys := authKeys()
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs1, pkcs8 := x509.MarshalPKCS1PrivateKey(keys.rsa), must(x509.MarshalPKCS8PrivateKey(keys.p256))(t)
	sec1 := must(x509.MarshalECPrivateKey(keys.p256))(t)
	for _, tt := range []struct{ name, text, problem string }{
		{"PKCS#8", text("PRIVATE KEY", pkcs8), ""},
		{"PKCS#1 said to be PKCS#8", text("PRIVATE KEY", pkcs1), ""},
		{"PKCS#8 said to be SEC 1", text("EC PRIVATE KEY", pkcs8), ""},
		{"SEC 1 said to be PKCS#8", text("PRIVATE KEY", sec1), ""},
		{"a byte order mark", "\ufeff" + text("PRIVATE KEY", pkcs8), ""},
		{"a public key", publicPEM(t, keys.rsa), "it contains a public key; want a private key"},
		{"two keys", text("PRIVATE KEY", pkcs8) + text("PRIVATE KEY", pkcs1), `it contains a second key, "PRIVATE KEY"; want one key`},
		{"an encrypted key", text("ENCRYPTED PRIVATE KEY", []byte{1}), `the block labeled "ENCRYPTED PRIVATE KEY" does not parse; want an unencrypted PRIVATE KEY`},
	} {
		if _, err := parsePrivateKey([]byte(tt.text)); tt.problem == "" && err != nil ||
			tt.problem != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.problem)) {
			t.Errorf("%s: got %v; want %q", tt.name, err, tt.problem)
		}
	}
}

func TestEveryAlgorithm(t *testing.T) {
	keys := authKeys()
	families := map[string]struct {
		key any
		pem string
	}{
		"RS": {keys.rsa, publicPEM(t, keys.rsa)}, "PS": {keys.rsa, publicPEM(t, keys.rsa)},
		"ES256": {keys.p256, publicPEM(t, keys.p256)}, "ES384": {keys.p384, publicPEM(t, keys.p384)},
		"EdDSA": {keys.ed, publicPEM(t, keys.ed)},
	}
	for _, alg := range signingAlgorithms {
		family, ok := families[alg]
		if !ok {
			family = families[alg[:2]]
		}
		token := signedText(t, alg, family.key, fmt.Sprintf(`{"alg":%q}`, alg), goodClaims(""))
		alone := newAuthBench(t, func(c *authConfig) {
			c.JWTPublicKey, c.JWTAllowedAlgorithms = family.pem, []string{alg}
		})
		if sc, f := alone.bearer(token); f != nil || sc.subject != "ci" {
			t.Errorf("%s: got %v; want success", alg, f)
		}
		// Even with every algorithm allowed, a key is used with its own family only.
		for name, other := range families {
			all := newAuthBench(t, func(c *authConfig) {
				c.JWTPublicKey, c.JWTAllowedAlgorithms = other.pem, signingAlgorithms
			})
			want := string("invalid")
			if other.pem == family.pem {
				want = ""
			}
			if _, f := all.bearer(token); reasonOf(f) != want {
				t.Errorf("%s with a key of %s: got %q; want %q", alg, name, reasonOf(f), want)
			}
		}
	}
}

// pssSigned signs as RSASSA-PSS does (RFC 8017, 8.1.1 and 9.1.1), with a salt of any length.
func pssSigned(t testing.TB, key *rsa.PrivateKey, hash crypto.Hash, text string, salt int) string {
	t.Helper()
	sum := func(parts ...[]byte) []byte {
		h := hash.New()
		h.Write(slices.Concat(parts...))
		return h.Sum(nil)
	}
	tail := bytes.Repeat([]byte{7}, salt)
	digest := sum(make([]byte, 8), sum([]byte(text)), tail)
	block := make([]byte, key.Size()-len(digest)-1)
	copy(block[len(block)-salt:], tail)
	block[len(block)-salt-1] = 1
	for i := range block {
		counter := binary.BigEndian.AppendUint32(nil, uint32(i/len(digest)))
		block[i] ^= sum(digest, counter)[i%len(digest)]
	}
	block[0] &= 0x7f
	padded := new(big.Int).SetBytes(slices.Concat(block, digest, []byte{0xbc}))
	signature := padded.Exp(padded, key.D, key.N).FillBytes(make([]byte, key.Size()))
	return text + "." + segment(string(signature))
}

// TestSaltOfPSS checks that the salt is as long as the hash (RFC 7518, 3.5), with the
// lengths for which Wycheproof has vectors, such as rsa_pss_2048_sha256_mgf1_0_test.json.
func TestSaltOfPSS(t *testing.T) {
	slow(t)
	t.Parallel()
	key := authKeys().rsa
	b := newAuthBench(t, func(c *authConfig) { c.JWTAllowedAlgorithms = signingAlgorithms })
	var attacks []attack
	for alg, hash := range map[string]crypto.Hash{
		"PS256": crypto.SHA256, "PS384": crypto.SHA384, "PS512": crypto.SHA512,
	} {
		text := segment(`{"alg":"`+alg+`"}`) + "." + segment(goodClaims(""))
		for _, salt := range []int{0, 1, 20, hash.Size() - 1, hash.Size(), hash.Size() + 1,
			key.Size() - hash.Size() - 2} {
			want := "invalid"
			if salt == hash.Size() {
				want = ""
			}
			name := fmt.Sprintf("%s with a salt of %d bytes", alg, salt)
			attacks = append(attacks, attack{name, pssSigned(t, key, hash, text, salt), want})
		}
	}
	runAttacks(t, b, attacks)
}

// TestWeakKeys checks keys at both doors: as PEM, and in a key set.
func TestWeakKeys(t *testing.T) {
	t.Parallel()
	generated := func(c elliptic.Curve) *ecdsa.PublicKey { return &must(ecdsa.GenerateKey(c, rand.Reader))(t).PublicKey }
	rsaKey := func(n *big.Int) *rsa.PublicKey { return &rsa.PublicKey{N: n, E: 65537} }
	const curve = "P-256 or P-384"
	for _, tt := range []struct {
		name string
		key  crypto.PublicKey
		want string // in the error; "" for none
	}{
		{"RSA of 1024 bits", rsaKey(new(big.Int).Lsh(big.NewInt(1), 1023)), "1024 bits"},
		{"an honest RSA key", authKeys().rsa.Public(), ""},
		{"a key on P-224", generated(elliptic.P224()), curve},
		{"a key on P-521", generated(elliptic.P521()), curve},
		{"an honest key on P-256", authKeys().p256.Public(), ""},
		{"an honest Ed25519 key", authKeys().ed.Public(), ""},
	} {
		der := must(x509.MarshalPKIXPublicKey(tt.key))(t)
		_, err := parsePublicKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s as PEM: got %v; want %q", tt.name, err, tt.want)
		}
		set, err := decodeKeySet([]byte(webKeySet(`{"kid":"a",`+publicMembers(t, tt.key)+`}`)), signingAlgorithms)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s in a key set: got %v, %v; want %q", tt.name, set, err, tt.want)
		}
	}
}

// publicMembers returns the members of a web key that hold the key itself.
func publicMembers(t testing.TB, key crypto.PublicKey) string {
	t.Helper()
	switch k := key.(type) {
	case *rsa.PublicKey:
		return `"kty":"RSA",` + rsaMembers(k)
	case *ecdsa.PublicKey:
		return `"kty":"EC",` + ecMembers(t, k)
	}
	return `"kty":"OKP","crv":"Ed25519","x":"` + segment(string(key.(ed25519.PublicKey))) + `"`
}

// TestEqualKeyIDs checks that every key of a kid is tried that fits the algorithm: RFC
// 7517, 4.5 says SHOULD of different kids.
func TestEqualKeyIDs(t *testing.T) {
	keys := authKeys()
	ec := `{"kty":"EC","kid":"a",` + ecMembers(t, &keys.p256.PublicKey) + `}`
	ed := `{"kid":"a",` + publicMembers(t, keys.ed.Public()) + `}`
	pinned := strings.Replace(rsaWebKey("a", &keys.rsa.PublicKey), "RS256", "PS256", 1)
	set := []string{ec, pinned, rsaWebKey("a", &keys.rsa.PublicKey), `{"kid":"a","kty":"RSA"}`, ed,
		rsaWebKey("a", &keys.rsa2.PublicKey)}
	for range 2 {
		slices.Reverse(set)
		s := newKeyServer(t, webKeySet(set...))
		b := newKeySetBench(t, s, func(c *authConfig) { c.JWTAllowedAlgorithms = signingAlgorithms })
		signed := func(alg string, key any) string {
			return signedText(t, alg, key, `{"alg":"`+alg+`","kid":"a"}`, goodClaims(""))
		}
		b.want(t, "RS256 by the first key", signed("RS256", keys.rsa), "")
		b.want(t, "RS256 by the second key", signed("RS256", keys.rsa2), "")
		b.want(t, "PS256 by the first key", signed("PS256", keys.rsa), "")
		b.want(t, "PS256 by the second key, which is for RS256", signed("PS256", keys.rsa2), "invalid")
		b.want(t, "ES256", signed("ES256", keys.p256), "")
		b.want(t, "EdDSA", signed("EdDSA", keys.ed), "")
		b.want(t, "ES384, for which there is no key", signed("ES384", keys.p384), "invalid")
		s.wantFetches(t, "keys of one kid", 1)
	}
}

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
