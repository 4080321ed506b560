package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"testing"
)

// rsaMembers are the members n and e of a web key.
func rsaMembers(k *rsa.PublicKey) string {
	return fmt.Sprintf(`"n":"%s","e":"%s"`, base64.RawURLEncoding.EncodeToString(k.N.Bytes()),
		base64.RawURLEncoding.EncodeToString(big.NewInt(int64(k.E)).Bytes()))
}

func ecMembers(t testing.TB, k *ecdsa.PublicKey) string {
	t.Helper()
	point, err := k.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	half := (len(point) - 1) / 2
	return fmt.Sprintf(`"crv":%q,"x":"%s","y":"%s"`, k.Curve.Params().Name,
		base64.RawURLEncoding.EncodeToString(point[1:1+half]), base64.RawURLEncoding.EncodeToString(point[1+half:]))
}

// rsaWebKey is a key as an honest server publishes it.
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
		{"alg null", `"kty":"RSA","kid":"a","alg":null,` + r, ""},
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
		if k := decodeWebKey([]byte("{"+tt.key+"}"), signingAlgorithms); k != nil {
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
		if k := decodeWebKey([]byte(tt.key), allowed); k != nil {
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
		{"keys twice", `{"keys":[],"keys":[` + key + `]}`, 0},
	} {
		got, err := decodeKeySet([]byte(tt.text), signingAlgorithms)
		if len(got) != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("%s: got %d keys, %v; want %d", tt.name, len(got), err, tt.want)
		}
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
		if (err == nil) != (len(set) > 0) {
			t.Errorf("got %d keys, %v; want keys or an error", len(set), err)
		}
		for _, k := range set {
			if family, err := keyAlgorithms(k.public); err != nil || k.id == "" || len(k.algorithms) > len(family) {
				t.Errorf("got a key %q for %q, %v; want a sound one with a kid", k.id, k.algorithms, err)
			}
		}
		if !sameKeys(set, set) {
			t.Error("a set differs from itself")
		}
	})
}
