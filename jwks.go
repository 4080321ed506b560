package main

// The key set (JWKS, RFC 7517): how its text is read. Keys that cannot be used
// are skipped; a text that is no key set is an error.

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"math/big"
	"slices"
)

// decodeKeySet reads the keys that may verify tokens with an allowed algorithm.
func decodeKeySet(data []byte, allowed []string) ([]*verificationKey, error) {
	if err := checkJSON(data); err != nil {
		return nil, errors.New("the key set is no sound JSON")
	}
	var keys []*verificationKey
	listed := false
	eachMember(data, func(name string, value []byte) bool {
		if name != "keys" {
			return true
		}
		listed = eachElement(value, func(v []byte) bool {
			if k := decodeWebKey(v, allowed); k != nil {
				keys = append(keys, k)
			}
			return true
		})
		return false
	})
	if !listed {
		return nil, errors.New("the key set has no list of keys")
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set has no key that can be used")
	}
	return keys, nil
}

// webKey is one key of a key set as written, strings only.
type webKey map[string]string

// decodeWebKey reads one key; nil when it is not for us: no kid, another use,
// an algorithm that is not allowed, an unsound or unheard-of key.
func decodeWebKey(data []byte, allowed []string) *verificationKey {
	text := webKey{}
	verifies := true
	isObject := eachMember(data, func(name string, value []byte) bool {
		s, err := tokenString(value)
		switch {
		case err == nil:
			text[name] = s
		case name == "key_ops":
			operations, _ := tokenStrings(value)
			verifies = slices.Contains(operations, "verify")
		case name == "use" || name == "alg":
			verifies = false
		}
		return verifies
	})
	if use, ok := text["use"]; ok && use != "sig" || !isObject || !verifies || text["kid"] == "" {
		return nil
	}
	public := text.public()
	if public == nil {
		return nil
	}
	family, err := keyAlgorithms(public)
	if err != nil {
		return nil
	}
	usable := slices.DeleteFunc(slices.Clone(family), func(alg string) bool {
		only, pinned := text["alg"]
		return pinned && alg != only || !slices.Contains(allowed, alg)
	})
	if len(usable) == 0 {
		return nil
	}
	return &verificationKey{id: text["kid"], algorithms: usable, public: public}
}

// public is the key itself, or nil.
func (k webKey) public() crypto.PublicKey {
	switch k["kty"] {
	case "RSA":
		return k.rsa()
	case "EC":
		return k.ec()
	case "OKP":
		return k.okp()
	}
	return nil
}

// number decodes a base64url member; nil when it is none.
func (k webKey) number(name string) []byte {
	b, err := base64.RawURLEncoding.Strict().DecodeString(k[name])
	if err != nil {
		return nil
	}
	return b
}

func (k webKey) rsa() crypto.PublicKey {
	n, e := k.number("n"), bytes.TrimLeft(k.number("e"), "\x00")
	if len(e) == 0 || len(e) > 4 || e[0] > 127 && len(e) == 4 {
		return nil
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
}

func (k webKey) ec() crypto.PublicKey {
	var curve elliptic.Curve
	switch k["crv"] {
	case "P-256":
		curve = elliptic.P256()
	case "P-384":
		curve = elliptic.P384()
	default:
		return nil
	}
	size := curve.Params().BitSize / 8
	x, y := k.number("x"), k.number("y")
	if len(x) != size || len(y) != size {
		return nil
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil
	}
	return key
}

func (k webKey) okp() crypto.PublicKey {
	x := k.number("x")
	if k["crv"] != "Ed25519" || len(x) != ed25519.PublicKeySize {
		return nil
	}
	return ed25519.PublicKey(x)
}

// sameKeys tells whether two key sets verify the same tokens.
func sameKeys(a, b []*verificationKey) bool {
	return slices.EqualFunc(a, b, func(x, y *verificationKey) bool {
		return x.id == y.id && slices.Equal(x.algorithms, y.algorithms) &&
			x.public.(interface{ Equal(crypto.PublicKey) bool }).Equal(y.public)
	})
}
