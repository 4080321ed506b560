package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// attack is a token and the reason for its refusal; "" if it is accepted.
type attack struct {
	name  string
	token string
	want  string
}

func runAttacks(t *testing.T, b *authBench, attacks []attack) {
	t.Helper()
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			for range 2 { // the second time from the cache, if anything got there
				sc, f := b.bearer(a.token)
				if reasonOf(f) != a.want || (sc == nil) != (a.want != "") {
					t.Fatalf("got %q (%+v), %+v; want %q", reasonOf(f), f, sc, a.want)
				}
			}
		})
	}
	attackSurface(t, b.authenticator, attacks)
	for _, a := range attacks {
		for part := range strings.SplitSeq(a.token, ".") {
			if len(part) > 16 && strings.Contains(b.log.String(), part) {
				t.Errorf("%s: a part of the token is in the log", a.name)
			}
		}
	}
}

// attackSurface sends the attacks to a route that requires the permissions of the tokens.
func attackSurface(t *testing.T, a *authenticator, attacks []attack) {
	t.Helper()
	s := newAuthSurface(t, "orchestration", unchanged)
	s.auth = a
	for _, tt := range attacks {
		got := s.ask("GET /v1/tasks/{task_uuid}", "Authorization: Bearer "+tt.token)
		reason, status := got.header.Get("X-Auth-Failure-Reason"), 401
		if tt.want == "" {
			status = 404 // there is no such task
			if got.status == 403 {
				status, reason = 403, "" // permissions of another claim, or none
			}
		}
		if got.status != status || reason != string(tt.want) {
			t.Errorf("%s: got %d %q, %s; want %d %q", tt.name, got.status, reason, got.body, status, tt.want)
		}
		for part := range strings.SplitSeq(tt.token, ".") {
			if len(part) > 16 && strings.Contains(s.log.String()+string(got.body), part) {
				t.Errorf("%s: a part of the token is in the log or the answer", tt.name)
			}
		}
	}
}

func TestForgedTokens(t *testing.T) {
	t.Parallel()
	keys := authKeys()
	b := newAuthBench(t, unchanged)
	good := rs256(t, goodClaims(""))
	parts := strings.Split(good, ".")
	header, claims, signature := parts[0], parts[1], parts[2]

	hs256 := func(secret []byte) string {
		text := segment(`{"alg":"HS256"}`) + "." + claims
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	pkcs1 := x509.MarshalPKCS1PublicKey(&keys.rsa.PublicKey)
	attacks := []attack{
		{"an honest token", good, ""},
		{"another key", signedText(t, "RS256", keys.rsa2, `{"alg":"RS256"}`, goodClaims("")), "invalid"},
		{"HS256 with the public key's PEM", hs256([]byte(publicPEM(t, keys.rsa))), "invalid"},
		{"HS256 with the PEM, trimmed", hs256([]byte(strings.TrimSpace(publicPEM(t, keys.rsa)))), "invalid"},
		{"HS256 with the public key's DER", hs256(publicDER(t, keys.rsa)), "invalid"},
		{"HS256 with the PKCS#1 DER", hs256(pkcs1), "invalid"},
		{"HS256 with the PKCS#1 PEM", hs256(pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: pkcs1})),
			"invalid"},
		{"HS256 with nothing", hs256(nil), "invalid"},
		{"PS256 where only RS256 is allowed",
			signedText(t, "PS256", keys.rsa, `{"alg":"PS256"}`, goodClaims("")), "invalid"},
		{"RS384 where only RS256 is allowed",
			signedText(t, "RS384", keys.rsa, `{"alg":"RS384"}`, goodClaims("")), "invalid"},
		{"ES256 where only RS256 is allowed",
			signedText(t, "ES256", keys.p256, `{"alg":"ES256"}`, goodClaims("")), "invalid"},
		{"PS256 said to be RS256", signedText(t, "PS256", keys.rsa, `{"alg":"RS256"}`, goodClaims("")), "invalid"},
		{"the header swapped", segment(`{"alg":"RS256"}`) + "." + claims + "." + signature, "invalid"},
		{"the claims swapped", header + "." + segment(goodClaims(`,"x":1`)) + "." + signature, "invalid"},
		{"the signature stripped", header + "." + claims + ".", "malformed"},
		{"the signature and its dot stripped", header + "." + claims, "malformed"},
		{"the signature doubled", good + signature, "invalid"},
		{"the signature twice", good + "." + signature, "malformed"},
		{"five parts, as encrypted tokens have", good + ".a.b", "malformed"},
		{"a signature of zeros", header + "." + claims + "." + segment(strings.Repeat("\x00", 256)), "invalid"},
		{"a signature of one byte", header + "." + claims + "." + segment("x"), "invalid"},
		{"no header", "." + claims + "." + signature, "malformed"},
		{"no claims", header + ".." + signature, "malformed"},
		{"nothing but dots", "..", "malformed"},
		{"no token at all", "x", "malformed"},
	}
	for _, alg := range []string{"none", "None", "NONE", "nOnE", "NoNe", "none ", "n\u043ene"} {
		text := segment(fmt.Sprintf(`{"alg":%q}`, alg)) + "." + claims + "."
		attacks = append(attacks,
			attack{"alg " + alg + " without a signature", text, "malformed"},
			attack{"alg " + alg + " with the signature", text + signature, "invalid"})
	}
	for _, alg := range []string{`""`, `null`, `1`, `["RS256"]`, `{"RS256":1}`, `true`} {
		attacks = append(attacks, attack{"alg " + alg,
			signedText(t, "RS256", keys.rsa, `{"alg":`+alg+`}`, goodClaims("")), "malformed"})
	}
	for _, alg := range []string{"rs256", "RS256 ", "RS-256", "RS2560"} {
		attacks = append(attacks, attack{"alg " + alg,
			signedText(t, "RS256", keys.rsa, `{"alg":"`+alg+`"}`, goodClaims("")), "invalid"})
	}
	runAttacks(t, b, attacks)
}

func TestTokenHeaders(t *testing.T) {
	keys := authKeys()
	with := func(key *attackKey, members string) string {
		return signedText(t, "RS256", key.key, `{"alg":"RS256"`+members+`}`, goodClaims(""))
	}
	own, other := &attackKey{keys.rsa}, &attackKey{keys.rsa2}
	jwk := `{"kty":"RSA","use":"sig","alg":"RS256",` + rsaMembers(&keys.rsa2.PublicKey) + `}`
	x5c := `["` + base64.StdEncoding.EncodeToString(publicDER(t, keys.rsa2)) + `"]`
	runAttacks(t, newAuthBench(t, unchanged), []attack{
		// The key in a token is ignored.
		{"jwk of another key, signed by it", with(other, `,"jwk":`+jwk), "invalid"},
		{"jku, signed by another key", with(other, `,"jku":"https://evil.example/jwks.json"`), "invalid"},
		{"x5u, signed by another key", with(other, `,"x5u":"https://evil.example/c.pem"`), "invalid"},
		{"x5c, signed by another key", with(other, `,"x5c":`+x5c), "invalid"},
		{"all of them, signed by our key",
			with(own, `,"jwk":`+jwk+`,"jku":"https://evil.example/","x5u":"https://evil.example/","x5c":`+x5c), ""},
		// With a static key, the kid is ignored.
		{"kid of a path", with(own, `,"kid":"../../../../dev/null"`), ""},
		{"kid of a path, signed by another key", with(other, `,"kid":"/proc/self/environ"`), "invalid"},
		{"kid of SQL", with(other, `,"kid":"x' UNION SELECT 'secret"`), "invalid"},
		{"kid with NUL", with(own, `,"kid":"a\u0000b"`), "malformed"},
		{"kid a number", with(own, `,"kid":1`), "malformed"},
		{"kid null", with(own, `,"kid":null`), "malformed"},
		{"crit", with(own, `,"crit":["exp"],"exp":1`), "malformed"},
		{"crit b64", with(own, `,"crit":["b64"],"b64":false`), "malformed"},
		{"crit empty", with(own, `,"crit":[]`), "malformed"},
		{"crit null", with(own, `,"crit":null`), "malformed"},
		{"alg twice", with(own, `,"alg":"none"`), "malformed"},
		{"kid twice", with(own, `,"kid":"a","kid":"b"`), "malformed"},
		{"alg twice, once escaped", with(own, `,"\u0061lg":"none"`), "malformed"},
		{"a member twice further down", with(own, `,"x":{"a":1,"a":2}`), "malformed"},
		{"alg in another case beside it", with(own, `,"ALG":"none"`), ""},
		{"the header a list", signedText(t, "RS256", keys.rsa, `["RS256"]`, goodClaims("")), "malformed"},
		{"the header null", signedText(t, "RS256", keys.rsa, `null`, goodClaims("")), "malformed"},
		{"the header no JSON", signedText(t, "RS256", keys.rsa, `{alg:RS256}`, goodClaims("")), "malformed"},
		{"something behind the header", signedText(t, "RS256", keys.rsa, `{"alg":"RS256"}{}`, goodClaims("")),
			"malformed"},
		{"an empty header", signedText(t, "RS256", keys.rsa, `{}`, goodClaims("")), "malformed"},
	})
}

// attackKey is the key that signs.
type attackKey struct{ key any }

func TestTokenClaims(t *testing.T) {
	t.Parallel()
	at := int64(authTestNow / 1e6)
	row := func(name, value string, want string) attack {
		return attack{name + " " + value[:min(len(value), 40)], rs256(t, claimsWith(name, value)), want}
	}
	seconds := func(offset int64) string { return fmt.Sprint(at + offset) }
	names := func(n int) string { return "[" + strings.Repeat(`"tasks:read",`, n-1) + `"tasks:read"]` }
	attacks := []attack{
		row("exp", "", "invalid"), row("exp", "0", "expired"), row("exp", seconds(-3600), "expired"),
		row("exp", seconds(-60), "expired"), row("exp", seconds(-59), ""), row("exp", seconds(1)+".75", ""),
		row("exp", "1.9e9", ""), row("exp", `"`+seconds(3600)+`"`, "malformed"), row("exp", "null", "malformed"),
		row("exp", "true", "malformed"), row("exp", "[]", "malformed"), row("exp", "{}", "malformed"),
		row("exp", "-1", "malformed"), row("exp", "-0.5", "malformed"), row("exp", "-9223372036854775808",
			"malformed"),
		row("exp", "9007199254740991", ""), row("exp", "9007199254740992", "malformed"),
		row("exp", "1e15", ""), row("exp", "1e16", "malformed"), row("exp", "1e308", "malformed"),
		row("exp", "1e999", "malformed"), row("exp", "18446744073709551616", "malformed"), row("exp", "NaN",
			"malformed"),
		row("nbf", "", ""), row("nbf", seconds(60), ""), row("nbf", seconds(61), "invalid"),
		row("nbf", "0", ""), row("nbf", `"0"`, "malformed"), row("nbf", "-1", "malformed"), row("nbf", "1e16",
			"malformed"),
		row("nbf", "1e15", "invalid"), row("nbf", "null", "malformed"),
		row("iat", "", ""), row("iat", seconds(60), ""), row("iat", seconds(61), "invalid"),
		row("iat", `"now"`, "malformed"), row("iat", "-1", "malformed"), row("iat", "null", "malformed"),
		row("iss", "", "invalid"), row("iss", `"other"`, "invalid"), row("iss", `"Stepwell"`, "invalid"),
		row("iss", `"stepwell "`, "invalid"), row("iss", `""`, "invalid"), row("iss", "null", "malformed"),
		row("iss", `["stepwell"]`, "malformed"), row("iss", "1", "malformed"),
		row("aud", "", "invalid"), row("aud", `["stepwell-api"]`, ""), row("aud", `["x","stepwell-api"]`, ""),
		row("aud", `[]`, "invalid"), row("aud", `""`, "invalid"), row("aud", `[""]`, "invalid"),
		row("aud", `"stepwell"`, "invalid"), row("aud", `"stepwell-api stepwell"`, "invalid"),
		row("aud", "1", "malformed"), row("aud", "null", "malformed"), row("aud", `{"stepwell-api":1}`,
			"malformed"),
		row("aud", `["stepwell-api",1]`, "malformed"), row("aud", `[["stepwell-api"]]`, "malformed"),
		row("sub", "", ""), row("sub", "1", "malformed"), row("sub", "null", "malformed"), row("sub", `["a"]`,
			"malformed"),
		row("permissions", "", ""), row("permissions", "[]", ""), row("permissions", `""`, ""),
		row("permissions", `"tasks:read dlq:*"`, ""), row("permissions", `"  tasks:read   dlq:*  "`, ""),
		row("permissions", `"tasks:read,dlq:*"`, "invalid"), row("permissions", `"tasks:read\tdlq:*"`, "invalid"),
		row("permissions", `["*"]`, "invalid"), row("permissions", `"*"`, "invalid"),
		row("permissions", `["tasks:read","tasks:destroy"]`, "invalid"), row("permissions", `[""]`, "invalid"),
		row("permissions", "null", "malformed"), row("permissions", "1", "malformed"), row("permissions", "true",
			"malformed"),
		row("permissions", `{"tasks:read":true}`, "malformed"), row("permissions", `[["tasks:read"]]`, "malformed"),
		row("permissions", `["tasks:read",1]`, "malformed"), row("permissions", `["tasks:read",null]`, "malformed"),
		row("permissions", names(256), ""), row("permissions", names(257), "malformed"),
		row("permissions", `"`+strings.Repeat("a ", 257)+`"`, "malformed"),
		row("permissions", names(10_000), "malformed"),
	}
	for _, a := range []struct {
		name, claims string
		want         string
	}{
		{"exp twice", goodClaims(`,"exp":9000000000`), "malformed"},
		{"permissions twice", goodClaims(`,"permissions":["tasks:*"]`), "malformed"},
		{"permissions twice, once escaped", goodClaims(`,"permission\u0073":["tasks:*"]`), "malformed"},
		{"a member twice further down", goodClaims(`,"x":[{"a":1,"a":2}]`), "malformed"},
		{"permissions in another case beside them", goodClaims(`,"Permissions":["tasks:*"]`), ""},
		{"other claims", goodClaims(`,"jti":"x","azp":{"a":[1,null]}`), ""},
		{"a lone surrogate", goodClaims(`,"x":"\ud800"`), "malformed"},
		{"invalid UTF-8", goodClaims(",\"x\":\"\xff\""), "malformed"},
		{"a subject with NUL", claimsWith("sub", `"a\u0000"`), "malformed"},
		{"too deep", goodClaims(`,"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100)), "malformed"},
		{"a list", `[` + goodClaims("") + `]`, "malformed"},
		{"a string", `"ci"`, "malformed"},
		{"null", `null`, "malformed"},
		{"no JSON", `{`, "malformed"},
		{"something behind", goodClaims("") + `x`, "malformed"},
		{"nothing said", `{}`, "invalid"},
		{"a megabyte", goodClaims(`,"x":"` + strings.Repeat("a", 1<<20) + `"`), "malformed"},
	} {
		attacks = append(attacks, attack{a.name, rs256(t, a.claims), a.want})
	}
	runAttacks(t, newAuthBench(t, unchanged), attacks)
}

func TestTokenEncoding(t *testing.T) {
	good := rs256(t, goodClaims(""))
	parts := strings.Split(good, ".")
	// 256 bytes leave four bits of the last character unused, which must be 0.
	last := parts[2][len(parts[2])-1]
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	sibling := string(alphabet[strings.IndexByte(alphabet, last)+1])
	for _, tt := range []struct{ name, token string }{
		{"padding behind the signature", good + "=="},
		{"padding behind the header", parts[0] + "=." + parts[1] + "." + parts[2]},
		{"unused bits set", good[:len(good)-1] + sibling},
		{"the standard alphabet", parts[0] + "." + parts[1] + "." + strings.NewReplacer("-", "+", "_",
			"/").Replace(parts[2]) + "+"},
		{"a line break inside", parts[0] + "\n." + parts[1] + "." + parts[2]},
		{"a carriage return inside", parts[0] + "." + parts[1] + "." + parts[2][:10] + "\r" + parts[2][10:]},
		{"a blank inside", parts[0] + ". " + parts[1] + "." + parts[2]},
		{"a tab inside", parts[0] + ".\t" + parts[1] + "." + parts[2]},
		{"NUL inside", parts[0] + ".\x00" + parts[1] + "." + parts[2]},
		{"three letters too many", good + "AAA"},
	} {
		if _, f := decodeToken(tt.token, "permissions"); reasonOf(f) != reasonMalformed {
			t.Errorf("%s: got %v; want malformed", tt.name, f)
		}
	}
	if _, f := decodeToken(good, "permissions"); f != nil {
		t.Errorf("the token itself: got %v; want success", f)
	}
}

func TestTokenLengthLimit(t *testing.T) {
	fill := func(length int) string {
		token := rs256(t, goodClaims(`,"x":""`))
		room := (length - len(token)) * 3 / 4
		token = rs256(t, goodClaims(`,"x":"`+strings.Repeat("a", room)+`"`))
		for len(token) > length {
			room--
			token = rs256(t, goodClaims(`,"x":"`+strings.Repeat("a", room)+`"`))
		}
		return token
	}
	fits := fill(maxTokenBytes)
	if len(fits) < maxTokenBytes-4 {
		t.Fatalf("got a token of %d bytes; want nearly %d", len(fits), maxTokenBytes)
	}
	runAttacks(t, newAuthBench(t, unchanged), []attack{
		{"of nearly 16 KiB", fits, ""},
		{"of a little more", rs256(t, goodClaims(`,"x":"`+strings.Repeat("a", maxTokenBytes*3/4)+`"`)),
			"malformed"},
	})
}

func TestTokenTypes(t *testing.T) {
	t.Parallel()
	var attacks []attack
	for typ, want := range map[string]string{
		`"JWT"`: "", `"jwt"`: "", `"at+jwt"`: "", `"AT+JWT"`: "", `"application/at+jwt"`: "",
		`"Application/AT+JWT"`: "", `"application/jwt"`: "",
		`""`: "invalid", `"JOSE"`: "invalid", `"dpop+jwt"`: "invalid", `"logout+jwt"`: "invalid",
		`"secevent+jwt"`: "invalid", `"application/"`: "invalid", `"x/jwt"`: "invalid", `"JWT "`: "invalid",
		`"application/application/jwt"`: "invalid", `"at+jwt;x=1"`: "invalid",
		`null`: "malformed", `1`: "malformed", `["JWT"]`: "malformed",
	} {
		header := `{"alg":"RS256","typ":` + typ + `}`
		attacks = append(attacks, attack{typ, signedText(t, "RS256", authKeys().rsa, header, goodClaims("")), want})
	}
	absent := signedText(t, "RS256", authKeys().rsa, `{"alg":"RS256"}`, goodClaims(""))
	runAttacks(t, newAuthBench(t, unchanged), append(attacks, attack{"absent", absent, ""}))
}

func TestTokenTimeIsPlain(t *testing.T) {
	for text, want := range map[string]instant{
		"0": 0, "1": 1_000_000, "1.999": 1_000_000, "1767268800": authTestNow, "1.7672688e9": authTestNow,
		"9007199254740991": lastInstant,
	} {
		r := readTokenObject([]byte(`{"exp":` + text + `}`))
		if got := r.time("exp"); r.f != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", text, got, r.f, want)
		}
	}
}

func FuzzDecodeToken(f *testing.F) {
	for _, claims := range []string{goodClaims(""), claimsWith("aud", `["a","b"]`), `{"exp":1e400}`, `[]`, ``} {
		f.Add(segment(`{"alg":"RS256","kid":"a"}`) + "." + segment(claims) + "." + segment("x"))
	}
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		claims, f := decodeToken(token, "permissions")
		if f != nil {
			if f.refusal.reason != reasonMalformed {
				t.Errorf("got %v; want malformed", f)
			}
			return
		}
		if claims.algorithm == "" || len(claims.permissions) > maxTokenPermissions {
			t.Errorf("got %+v; want an algorithm and few permissions", claims)
		}
		if claims.expiry < 0 || claims.expiry > lastInstant {
			t.Errorf("expiry: got %d; want one in range", claims.expiry)
		}
		for i, p := range strings.Split(token, ".") {
			raw, err := base64.RawURLEncoding.DecodeString(p)
			if err != nil || base64.RawURLEncoding.EncodeToString(raw) != p {
				t.Errorf("part %d is not canonical: %q", i, p)
			}
		}
	})
}

// FuzzDecodeClaims decodes claims without base64.
func FuzzDecodeClaims(f *testing.F) {
	for _, claims := range []string{
		goodClaims(""), claimsWith("exp", "-1"), claimsWith("permissions", "null"), claimsWith("aud", "[]"),
		`{"exp":1,"exp":2}`, `null`,
	} {
		f.Add([]byte(claims))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		claims, f := decodeClaims([]byte(`{"alg":"RS256"}`), data, "permissions")
		if f != nil {
			if f.refusal.reason != reasonMalformed {
				t.Errorf("got %v; want malformed", f)
			}
			return
		}
		if claims.notBefore < 0 || claims.issuedAt < 0 || len(claims.permissions) > maxTokenPermissions {
			t.Errorf("got %+v; want times from 0 and few permissions", claims)
		}
	})
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
