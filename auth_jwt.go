package main

// Reading, verifying and making tokens. Whatever the library would wrongly accept is refused
// before the library sees the token. No error contains any part of a token.

import (
	"cmp"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	maxTokenBytes       = 16 << 10
	maxTokenPermissions = 256
	maxTokenSeconds     = 1 << 53            // exclusive
	lastInstant         = 253402300799 * 1e6 // the end of year 9999
	maxTokenKeyID       = 256                // bytes; a longer kid names no key
)

// tokenVerifier verifies tokens by the settings of a role.
type tokenVerifier struct {
	config *authConfig
	keys   keySource
}

func (v *tokenVerifier) verify(ctx context.Context, token string, now instant) (*tokenClaims, *failure) {
	claims, f := decodeToken(token, v.config.PermissionsClaim)
	switch {
	case f != nil:
		return nil, f
	case !slices.Contains(v.config.JWTAllowedAlgorithms, claims.algorithm):
		return nil, forged("its algorithm is not allowed")
	case !slices.Contains(tokenTypes, strings.ToLower(claims.typ)):
		return nil, invalid("its type, typ, is not that of an access token")
	}
	// Only now, after all that is cheap: for an unknown kid this may fetch the key set.
	keys, f := v.keys.find(ctx, claims.keyID)
	if f != nil {
		return nil, f
	}
	var fitting jwt.VerificationKeySet
	for _, k := range keys {
		if slices.Contains(k.algorithms, claims.algorithm) {
			fitting.Keys = append(fitting.Keys, k.public)
		}
	}
	if fitting.Keys == nil {
		return nil, forged("its algorithm does not belong to the key")
	}
	// The claims that the library decodes are dropped: it accepts duplicate members and values of other types.
	_, err := v.parser(now).Parse(token, func(t *jwt.Token) (any, error) {
		t.Method = strictSalt(t.Method)
		return fitting, nil
	})
	if err != nil {
		return nil, v.refusal(err, claims)
	}
	return claims, nil
}

// tokenTypes are the types of tokens that are accepted, in lower case (RFC 7515, 4.1.9;
// RFC 9068, 4). A token without a type is a JWT.
var tokenTypes = []string{"jwt", "at+jwt", "application/jwt", "application/at+jwt"}

// strictSalt returns a method that, unlike the library's, accepts only a salt as long as the hash (RFC 7518, 3.5).
func strictSalt(m jwt.SigningMethod) jwt.SigningMethod {
	pss, ok := m.(*jwt.SigningMethodRSAPSS)
	if !ok {
		return m
	}
	return &jwt.SigningMethodRSAPSS{SigningMethodRSA: pss.SigningMethodRSA, Options: pss.Options}
}

func (v *tokenVerifier) parser(now instant) *jwt.Parser {
	return jwt.NewParser(
		jwt.WithValidMethods(v.config.JWTAllowedAlgorithms),
		jwt.WithTimeFunc(now.time),
		jwt.WithLeeway(v.config.leeway()),
		jwt.WithExpirationRequired(),
		jwt.WithIssuer(v.config.JWTIssuer),
		jwt.WithAudience(v.config.JWTAudience),
		jwt.WithIssuedAt(),
		jwt.WithStrictDecoding(),
	)
}

// refusal converts an error of the library. A token counts as expired only if nothing else is wrong with it.
func (v *tokenVerifier) refusal(err error, claims *tokenClaims) *failure {
	// The library reports all claims that failed in one error. Expiry is last: a client that sees "expired" fetches a
	// new token, which would not help if anything else is wrong.
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case !is(jwt.ErrTokenInvalidClaims):
		return forged("its signature does not match the key")
	case claims.issuer != v.config.JWTIssuer:
		return invalid("its issuer is not the expected one")
	case !slices.Contains(claims.audience, v.config.JWTAudience):
		return invalid("it is not for the expected audience")
	case is(jwt.ErrTokenNotValidYet), is(jwt.ErrTokenUsedBeforeIssued):
		return invalid("it is not valid yet")
	case !claims.hasExpiry:
		return invalid("it has no expiry")
	}
	return refused(reasonExpired, severityLow, "it has expired")
}

// tokenClaims are the claims of a token and what its header says, without jwk, jku, x5c and the like: a token must not
// bring its own key.
type tokenClaims struct {
	algorithm       string
	keyID           string // kid; "" when absent
	typ             string // "JWT" when absent
	issuer, subject string
	audience        []string
	expiry          instant
	hasExpiry       bool
	notBefore       instant // zero when absent
	issuedAt        instant // zero when absent
	permissions     []string
}

// decodeToken decodes a token without verifying it.
func decodeToken(token, permissionsClaim string) (*tokenClaims, *failure) {
	parts := strings.Split(token, ".")
	switch {
	case len(token) > maxTokenBytes:
		return nil, malformed("it is too long")
	case len(parts) != 3:
		return nil, malformed("it does not have three parts")
	}
	var decoded [3][]byte
	for i, p := range parts {
		var err error
		decoded[i], err = base64.RawURLEncoding.Strict().DecodeString(p)
		// The decoder skips line breaks.
		if err != nil || len(decoded[i]) == 0 || strings.ContainsAny(p, "\r\n") {
			return nil, malformed("its parts are not canonical base64url")
		}
	}
	return decodeClaims(decoded[0], decoded[1], permissionsClaim)
}

func decodeClaims(header, claims []byte, permissionsClaim string) (*tokenClaims, *failure) {
	h, r := readTokenObject(header), readTokenObject(claims)
	c := &tokenClaims{
		algorithm: h.text("alg", ""), keyID: h.text("kid", ""), typ: h.text("typ", "JWT"),
		issuer: r.text("iss", ""), subject: r.text("sub", ""),
		audience: r.list("aud", func(s string) []string { return []string{s} }),
		expiry:   r.time("exp"), hasExpiry: r.members["exp"] != nil, notBefore: r.time("nbf"), issuedAt: r.time("iat"),
		permissions: r.list(permissionsClaim, func(s string) []string {
			return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' })
		}),
	}
	switch {
	case h.members["crit"] != nil:
		h.refuse("its header has critical extensions")
	case c.algorithm == "":
		h.refuse("its header names no algorithm")
	case len(c.permissions) > maxTokenPermissions:
		r.refuse("it lists too many permissions")
	}
	return c, cmp.Or(h.f, r.f)
}

// tokenReader reads the members of a JSON object. The failure is that of the first one that is wrong.
type tokenReader struct {
	members map[string]json.RawMessage
	f       *failure
}

// readTokenObject returns a reader of an object. checkJSON refuses duplicate members.
func readTokenObject(data []byte) *tokenReader {
	r := &tokenReader{}
	if checkJSON(data) != nil {
		r.refuse("it contains invalid JSON")
	} else if json.Unmarshal(data, &r.members) != nil || r.members == nil {
		r.refuse("its header or claims are not a JSON object")
	}
	return r
}

func (r *tokenReader) refuse(detail string) {
	if r.f == nil {
		r.f = malformed(detail)
	}
}

// text reads a string. json.Unmarshal alone would accept null, here and below.
func (r *tokenReader) text(name, absent string) string {
	switch value, given := r.members[name]; {
	case !given:
	case value[0] != '"' || json.Unmarshal(value, &absent) != nil:
		r.refuse("it contains a value of another type where a string is required")
	}
	return absent
}

// list reads a list of strings or, if a string can be split into one, such a string.
func (r *tokenReader) list(name string, split func(string) []string) (list []string) {
	value, given := r.members[name]
	if !given {
		return nil
	}
	if value[0] == '"' && split != nil {
		return split(r.text(name, ""))
	}
	var items []any
	if value[0] != '[' || json.Unmarshal(value, &items) != nil {
		r.refuse("it contains a value of another type where a list is required")
	}
	for _, item := range items {
		s, ok := item.(string)
		if !ok {
			r.refuse("it contains a value of another type where a string is required")
		}
		list = append(list, s)
	}
	return list
}

// time reads seconds since the epoch and, as the library does, drops a fraction.
func (r *tokenReader) time(name string) instant {
	value, given := r.members[name]
	if !given {
		return 0
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || seconds < 0 || seconds >= maxTokenSeconds {
		r.refuse("it contains a time that is not a number of seconds")
	}
	// A time that no timestamp with a four-digit year can show counts as the last one that it can.
	return instant(min(math.Trunc(seconds)*1e6, lastInstant))
}

// Making tokens, for the command line and for clients that hold a private key.

// tokenSpec are the contents of a new token.
type tokenSpec struct {
	subject, issuer, audience string
	permissions               []string
	issued                    instant
	life                      time.Duration
}

// signToken makes a token with the first algorithm of the key's family. It refuses
// contents that this service would not accept.
func signToken(spec tokenSpec, key crypto.Signer) (string, error) {
	algorithms, err := keyAlgorithms(key.Public())
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	if n := len(spec.permissions); n > maxTokenPermissions {
		return "", fmt.Errorf("signing a token: %d permissions; at most %d fit", n, maxTokenPermissions)
	}
	claims := jwt.MapClaims{
		"iss":         spec.issuer,
		"aud":         spec.audience,
		"sub":         spec.subject,
		"iat":         spec.issued.time().Unix(),
		"nbf":         spec.issued.time().Unix(),
		"exp":         spec.issued.add(spec.life).time().Unix(),
		"permissions": spec.permissions,
	}
	unsigned := jwt.NewWithClaims(jwt.GetSigningMethod(algorithms[0]), claims)
	if _, unsigned.Header["kid"], err = keyID(key.Public()); err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	token, err := unsigned.SignedString(key)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	if len(token) > maxTokenBytes {
		return "", fmt.Errorf("signing a token: it has %d bytes; at most %d are read", len(token), maxTokenBytes)
	}
	return token, nil
}
