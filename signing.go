package main

// Making tokens, for the command line and for clients that hold a private key.

import (
	"crypto"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// tokenSpec is what a new token is to say.
type tokenSpec struct {
	subject, issuer, audience string
	permissions               []string
	issued                    instant
	life                      time.Duration
}

// signToken makes a token with the first algorithm of the key's family, one
// that this service would read.
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
