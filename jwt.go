package main

// Reading and verifying tokens. Everything that the library would let pass is
// refused before it sees the token; no error holds any part of a token.

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
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

// authReason classifies a refusal; the words go to the client and to metrics.
type authReason string

const (
	reasonMissing   authReason = "missing"
	reasonExpired   authReason = "expired"
	reasonInvalid   authReason = "invalid"
	reasonMalformed authReason = "malformed"
	reasonForbidden authReason = "forbidden"
)

// tokenError is why a token is refused. The detail is for its owner at the
// command line and for debugging; a client of the service sees the reason alone.
type tokenError struct {
	reason authReason
	detail string
	forged bool // it looks made up: no mistake leads to it
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

// errKeysUnavailable says that no key can be had for the moment: not the
// caller's fault.
var errKeysUnavailable = errors.New("the keys to verify tokens with are unavailable")

// verificationKey is a public key and what it may be used for.
type verificationKey struct {
	id         string   // kid; "" for a key from a file
	algorithms []string // of its family, or the only one it was published for
	public     crypto.PublicKey
}

// keySource finds the key that a token names. The error is a *tokenError, or
// errKeysUnavailable.
type keySource interface {
	find(ctx context.Context, header *tokenHeader) (*verificationKey, error)
}

// staticKey is the one key of a service without a key set; no token chooses.
type staticKey verificationKey

func newStaticKey(public crypto.PublicKey) (*staticKey, error) {
	algorithms, err := keyAlgorithms(public)
	if err != nil {
		return nil, err
	}
	return &staticKey{algorithms: algorithms, public: public}, nil
}

func (k *staticKey) find(context.Context, *tokenHeader) (*verificationKey, error) {
	return (*verificationKey)(k), nil
}

// tokenRules are what a token must satisfy, beside its signature.
type tokenRules struct {
	issuer, audience string   // never ""
	algorithms       []string // out of signingAlgorithms
	leeway           time.Duration
	permissionsClaim string
}

// tokenVerifier verifies tokens by rules and keys.
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
	if !slices.Contains(v.rules.algorithms, header.algorithm) {
		return nil, forgedToken("its algorithm is not allowed")
	}
	key, err := v.keys.find(ctx, header)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(key.algorithms, header.algorithm) {
		return nil, forgedToken("its algorithm does not belong to the key")
	}
	_, err = v.parser(now).Parse(token, func(*jwt.Token) (any, error) { return key.public, nil })
	if err != nil {
		return nil, v.refusal(err, claims)
	}
	return claims, nil
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

// refusal turns the library's error into ours. A token counts as expired only
// when nothing else is wrong with it.
func (v *tokenVerifier) refusal(err error, claims *tokenClaims) *tokenError {
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

// tokenHeader is what counts in a token's header; jwk, jku, x5c and the like
// are of no interest: a token does not bring its own key.
type tokenHeader struct {
	algorithm string
	keyID     string // kid; "" when absent
}

// tokenClaims is what a token says.
type tokenClaims struct {
	issuer, subject string
	audience        []string
	expiry          instant
	hasExpiry       bool
	notBefore       instant // zero when absent
	issuedAt        instant // zero when absent
	permissions     []string
}

// decodeToken takes a token apart without believing it.
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
	return header, claims, nil
}

func decodeTokenHeader(data []byte) (*tokenHeader, error) {
	h := &tokenHeader{}
	err := eachTokenMember(data, func(key string, value []byte) (err error) {
		switch key {
		case "alg":
			h.algorithm, err = tokenString(value)
		case "kid":
			h.keyID, err = tokenString(value)
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

// setRegistered reads one of the claims of RFC 7519 that we look at.
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

// eachTokenMember calls f for each member of a JSON object until f fails. That
// no member stands twice is checkJSON's work.
func eachTokenMember(data []byte, f func(key string, value []byte) error) error {
	if checkJSON(data) != nil {
		return malformedToken("it holds unsound JSON")
	}
	var err error
	isObject := eachMember(data, func(key string, value []byte) bool {
		err = f(key, value)
		return err == nil
	})
	if !isObject {
		return malformedToken("its header or claims are no JSON object")
	}
	return err
}

// tokenString reads a JSON string. (json.Unmarshal would take null for one.)
func tokenString(value []byte) (s string, err error) {
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", malformedToken("a string was expected in it")
	}
	return s, nil
}

// tokenStrings reads a list of JSON strings.
func tokenStrings(value []byte) ([]string, error) {
	if value[0] != '[' {
		return nil, malformedToken("a list was expected in it")
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

// tokenTime reads seconds since the epoch. A fraction is allowed and, as in the
// library, dropped.
func tokenTime(value []byte) (instant, error) {
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || seconds < 0 || seconds >= maxTokenSeconds {
		return 0, malformedToken("a time in it is no number of seconds")
	}
	return instant(min(math.Trunc(seconds)*1e6, lastInstant)), nil
}

// tokenAudience reads one string or a list of them.
func tokenAudience(value []byte) ([]string, error) {
	if value[0] == '"' {
		s, err := tokenString(value)
		return []string{s}, err
	}
	return tokenStrings(value)
}

// tokenPermissions reads a list of strings, or one string with spaces between.
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
