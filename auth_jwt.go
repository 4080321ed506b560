package main

// Reading, verifying and making tokens. Whatever the library would wrongly accept is refused
// before the library sees the token. No error contains any part of a token.

import (
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

// tokenError says why a token is refused. The detail is for the command line and the
// log; a client of the service sees the reason alone.
type tokenError struct {
	reason string // reasonExpired, …
	detail string
	forged bool // no mistake explains it
}

func (e *tokenError) Error() string { return e.detail }

func malformedToken(detail string) *tokenError {
	return &tokenError{reason: reasonMalformed, detail: detail}
}

func invalidToken(detail string) *tokenError {
	return &tokenError{reason: reasonInvalid, detail: detail}
}

func forgedToken(detail string) *tokenError {
	return &tokenError{reason: reasonInvalid, detail: detail, forged: true}
}

// errKeysUnavailable means that the key set cannot be fetched, which is not the
// caller's fault.
var errKeysUnavailable = errors.New("the keys that verify tokens are unavailable")

// tokenRules are what a token must satisfy besides its signature.
type tokenRules struct {
	issuer, audience string   // never ""
	algorithms       []string // out of signingAlgorithms
	leeway           time.Duration
	permissionsClaim string
}

// tokenVerifier verifies tokens.
type tokenVerifier struct {
	rules tokenRules
	keys  keySource
}

// verify checks a token at an instant. The error is a *tokenError or
// errKeysUnavailable.
func (v *tokenVerifier) verify(ctx context.Context, token string, now instant) (*tokenClaims, error) {
	header, claims, err := decodeToken(token, v.rules.permissionsClaim)
	if err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains(v.rules.algorithms, header.algorithm):
		return nil, forgedToken("its algorithm is not allowed")
	case !slices.Contains(tokenTypes, strings.ToLower(header.typ)):
		return nil, invalidToken("its type, typ, is not that of an access token")
	}
	// Only now, after all that is cheap: for an unknown kid this may fetch the key set.
	keys, err := v.keys.find(ctx, header.keyID)
	if err != nil {
		return nil, err
	}
	var fitting jwt.VerificationKeySet
	for _, k := range keys {
		if slices.Contains(k.algorithms, header.algorithm) {
			fitting.Keys = append(fitting.Keys, k.public)
		}
	}
	if fitting.Keys == nil {
		return nil, forgedToken("its algorithm does not belong to the key")
	}
	// The claims that the library decodes are dropped: it accepts duplicate members and values of other types.
	_, err = v.parser(now).Parse(token, func(t *jwt.Token) (any, error) {
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

// strictSalt returns a method that, unlike the library's, accepts only a salt as long
// as the hash (RFC 7518, 3.5).
func strictSalt(m jwt.SigningMethod) jwt.SigningMethod {
	pss, ok := m.(*jwt.SigningMethodRSAPSS)
	if !ok {
		return m
	}
	return &jwt.SigningMethodRSAPSS{SigningMethodRSA: pss.SigningMethodRSA, Options: pss.Options}
}

func (v *tokenVerifier) parser(now instant) *jwt.Parser {
	return jwt.NewParser(
		jwt.WithValidMethods(v.rules.algorithms),
		jwt.WithTimeFunc(now.time),
		jwt.WithLeeway(v.rules.leeway),
		jwt.WithExpirationRequired(),
		jwt.WithIssuer(v.rules.issuer),
		jwt.WithAudience(v.rules.audience),
		jwt.WithIssuedAt(),
		jwt.WithStrictDecoding(),
	)
}

// refusal converts an error of the library. A token counts as expired only if nothing
// else is wrong with it.
func (v *tokenVerifier) refusal(err error, claims *tokenClaims) *tokenError {
	// The library reports all claims that failed in one error. Expiry is last: a client that sees "expired" fetches a
	// new token, which would not help if anything else is wrong.
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case !is(jwt.ErrTokenInvalidClaims):
		return forgedToken("its signature does not match the key")
	case claims.issuer != v.rules.issuer:
		return invalidToken("its issuer is not the expected one")
	case !slices.Contains(claims.audience, v.rules.audience):
		return invalidToken("it is not for the expected audience")
	case is(jwt.ErrTokenNotValidYet), is(jwt.ErrTokenUsedBeforeIssued):
		return invalidToken("it is not valid yet")
	case !claims.hasExpiry:
		return invalidToken("it has no expiry")
	}
	return &tokenError{reason: reasonExpired, detail: "it has expired"}
}

// tokenHeader is the header of a token, without jwk, jku, x5c and the like: a token
// must not bring its own key.
type tokenHeader struct {
	algorithm string
	keyID     string // kid; "" when absent
	typ       string // "JWT" when absent
}

// tokenClaims are the claims of a token.
type tokenClaims struct {
	issuer, subject string
	audience        []string
	expiry          instant
	hasExpiry       bool
	notBefore       instant // zero when absent
	issuedAt        instant // zero when absent
	permissions     []string
	keyID           string // kid of the header
}

// decodeToken decodes a token without verifying it.
func decodeToken(token, permissionsClaim string) (*tokenHeader, *tokenClaims, error) {
	if len(token) > maxTokenBytes {
		return nil, nil, malformedToken("it is too long")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, nil, malformedToken("it does not have three parts")
	}
	var decoded [3][]byte
	for i, p := range parts {
		var err error
		decoded[i], err = base64.RawURLEncoding.Strict().DecodeString(p)
		// The decoder skips line breaks.
		if err != nil || len(decoded[i]) == 0 || strings.ContainsAny(p, "\r\n") {
			return nil, nil, malformedToken("its parts are not canonical base64url")
		}
	}
	header, err := decodeTokenHeader(decoded[0])
	if err != nil {
		return nil, nil, err
	}
	claims, err := decodeClaims(decoded[1], permissionsClaim)
	if err != nil {
		return nil, nil, err
	}
	claims.keyID = header.keyID
	return header, claims, nil
}

func decodeTokenHeader(data []byte) (*tokenHeader, error) {
	h := &tokenHeader{typ: "JWT"}
	err := eachTokenMember(data, func(key string, value []byte) (err error) {
		switch key {
		case "alg":
			h.algorithm, err = tokenString(value)
		case "kid":
			h.keyID, err = tokenString(value)
		case "typ":
			h.typ, err = tokenString(value)
		case "crit":
			err = malformedToken("its header has critical extensions")
		}
		return err
	})
	if err == nil && h.algorithm == "" {
		err = malformedToken("its header names no algorithm")
	}
	return h, err
}

func decodeClaims(data []byte, permissionsClaim string) (*tokenClaims, error) {
	c := &tokenClaims{}
	err := eachTokenMember(data, func(key string, value []byte) error {
		if err := c.setRegistered(key, value); err != nil || key != permissionsClaim {
			return err
		}
		var err error
		c.permissions, err = tokenPermissions(value)
		return err
	})
	return c, err
}

// setRegistered reads a claim that RFC 7519 defines.
func (c *tokenClaims) setRegistered(key string, value []byte) (err error) {
	switch key {
	case "iss":
		c.issuer, err = tokenString(value)
	case "sub":
		c.subject, err = tokenString(value)
	case "aud":
		c.audience, err = tokenAudience(value)
	case "exp":
		c.hasExpiry = true
		c.expiry, err = tokenTime(value)
	case "nbf":
		c.notBefore, err = tokenTime(value)
	case "iat":
		c.issuedAt, err = tokenTime(value)
	}
	return err
}

// eachTokenMember calls f for each member of a JSON object until f fails. checkJSON
// refuses duplicate members.
func eachTokenMember(data []byte, f func(key string, value []byte) error) error {
	if checkJSON(data) != nil {
		return malformedToken("it contains invalid JSON")
	}
	var err error
	isObject := eachMember(data, func(key string, value []byte) bool {
		err = f(key, value)
		return err == nil
	})
	if !isObject {
		return malformedToken("its header or claims are not a JSON object")
	}
	return err
}

// tokenString reads a JSON string; json.Unmarshal alone would accept null.
func tokenString(value []byte) (s string, err error) {
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", malformedToken("it contains a value of another type where a string is required")
	}
	return s, nil
}

// tokenStrings reads a list of JSON strings.
func tokenStrings(value []byte) ([]string, error) {
	if value[0] != '[' {
		return nil, malformedToken("it contains a value of another type where a list is required")
	}
	list := []string{}
	var err error
	eachElement(value, func(v []byte) bool {
		var s string
		s, err = tokenString(v)
		list = append(list, s)
		return err == nil
	})
	return list, err
}

// tokenTime reads seconds since the epoch and, as the library does, drops a fraction.
func tokenTime(value []byte) (instant, error) {
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || seconds < 0 || seconds >= maxTokenSeconds {
		return 0, malformedToken("it contains a time that is not a number of seconds")
	}
	// A time that no timestamp with a four-digit year can show counts as the last one that it can.
	return instant(min(math.Trunc(seconds)*1e6, lastInstant)), nil
}

// tokenAudience reads a string or a list of strings.
func tokenAudience(value []byte) ([]string, error) {
	if value[0] == '"' {
		s, err := tokenString(value)
		return []string{s}, err
	}
	return tokenStrings(value)
}

// tokenPermissions reads a list of strings, or one string separated by spaces.
func tokenPermissions(value []byte) (list []string, err error) {
	if value[0] == '"' {
		var s string
		s, err = tokenString(value)
		list = strings.FieldsFunc(s, func(r rune) bool { return r == ' ' })
	} else {
		list, err = tokenStrings(value)
	}
	if err == nil && len(list) > maxTokenPermissions {
		err = malformedToken("it lists too many permissions")
	}
	return list, err
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
	token, err := jwt.NewWithClaims(jwt.GetSigningMethod(algorithms[0]), claims).SignedString(key)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	if len(token) > maxTokenBytes {
		return "", fmt.Errorf("signing a token: it has %d bytes; at most %d are read", len(token), maxTokenBytes)
	}
	return token, nil
}
