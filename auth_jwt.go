package main

// Reading, verifying and making tokens, and keys as PEM. Whatever the library would
// wrongly accept is refused before the library sees the token. No error contains any
// part of a token or a key.

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
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

// verificationKey is a public key and what it may be used for.
type verificationKey struct {
	id         string   // kid; "" for a key from a file
	algorithms []string // of its family, or the one it was published for
	public     crypto.PublicKey
}

// keySource finds the keys that a token's kid names, at least one. The error is a
// *tokenError, or errKeysUnavailable.
type keySource interface {
	find(ctx context.Context, kid string) ([]*verificationKey, error)
}

// staticKey is the key of a service without a key set, used for every token.
type staticKey verificationKey

func newStaticKey(public crypto.PublicKey) (*staticKey, error) {
	algorithms, err := keyAlgorithms(public)
	if err != nil {
		return nil, err
	}
	return &staticKey{algorithms: algorithms, public: public}, nil
}

func (k *staticKey) find(context.Context, string) ([]*verificationKey, error) {
	return []*verificationKey{(*verificationKey)(k)}, nil
}

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
		return "", malformedToken("it contains another value where a string is required")
	}
	return s, nil
}

// tokenStrings reads a list of JSON strings.
func tokenStrings(value []byte) ([]string, error) {
	if value[0] != '[' {
		return nil, malformedToken("it contains another value where a list is required")
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

// Keys as PEM: reading them, their algorithms, and writing a new pair.

const (
	minRSABits = 2048
	maxRSABits = 8192 // longer keys make verification slow
	maxKeyFile = 64 << 10
)

// signingAlgorithms are the algorithms that can be allowed; "none" and the HMAC family
// never are.
var signingAlgorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
}

// keyAlgorithms returns the algorithms of a public key's family, the one to sign with
// first. The error says why the key cannot be used.
func keyAlgorithms(key crypto.PublicKey) ([]string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if err := checkRSA(k); err != nil {
			return nil, err
		}
		return signingAlgorithms[:6], nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []string{"ES256"}, nil
		case elliptic.P384():
			return []string{"ES384"}, nil
		}
		return nil, errCurve
	case ed25519.PublicKey:
		if err := checkEd25519(k); err != nil {
			return nil, err
		}
		return []string{"EdDSA"}, nil
	}
	return nil, errKeyFamily
}

var (
	errKeyFamily = errors.New("a key must be RSA, EC or Ed25519")
	errCurve     = errors.New("an EC key must be on P-256 or P-384")
	errExponent  = errors.New("an RSA key with an invalid public exponent")
)

func checkRSA(k *rsa.PublicKey) error {
	bits := k.N.BitLen()
	switch {
	case bits < minRSABits || bits > maxRSABits:
		return fmt.Errorf("an RSA key of %d bits; want %d to %d", bits, minRSABits, maxRSABits)
	case k.N.Bit(0) == 0:
		return errors.New("an RSA key with an even modulus")
	case k.E < 3 || k.E%2 == 0:
		return errExponent
	case isROCA(k.N):
		return errors.New("an RSA key of a chip that makes weak keys (CVE-2017-15361, ROCA)")
	}
	return nil
}

// rocaPrimes are the odd primes up to 167.
var rocaPrimes = []uint64{
	3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107,
	109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
}

// isROCA reports whether a modulus has the fingerprint of keys from Infineon's library:
// modulo each small prime, it is a power of 65537 (Nemec, Sys, Svenda, Klinec, Matyas:
// "The Return of Coppersmith's Attack", 2017, and the authors' roca-detect). About one other
// modulus in 240 million has it too.
func isROCA(n *big.Int) bool {
	for _, p := range rocaPrimes {
		rest := new(big.Int).Mod(n, new(big.Int).SetUint64(p)).Uint64()
		for power := uint64(1); power != rest; {
			if power = power * 65537 % p; power == 1 {
				return false
			}
		}
	}
	return true
}

// checkEd25519 refuses what is not the canonical form of a point (RFC 8032, 5.1.3), and
// the points whose order divides 8: signatures by these can be made without a private
// key. The x and y of a point of the curve fulfil x²·v = u with u = y² - 1 and
// v = d·y² + 1. It has order 1 or 2 if u = 0, order 4 if y = 0, order 8 if y²·v + u = 0.
func checkEd25519(k ed25519.PublicKey) error {
	encoded := slices.Clone(k)
	slices.Reverse(encoded)
	encoded[0] &= 0x7f // without the sign of x
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	d := new(big.Int).ModInverse(big.NewInt(121666), p)
	d.Mul(d, big.NewInt(-121665))
	y := new(big.Int).SetBytes(encoded)
	square := new(big.Int).Exp(y, big.NewInt(2), p)
	u := new(big.Int).Sub(square, big.NewInt(1))
	v := new(big.Int).Mul(square, d)
	v.Add(v, big.NewInt(1))
	if y.Cmp(p) >= 0 || big.Jacobi(new(big.Int).Mul(u, v), p) < 0 {
		return errors.New("an Ed25519 key that is not a point of the curve")
	}
	order8 := new(big.Int).Mul(square, v)
	order8.Add(order8, u)
	for _, zero := range []*big.Int{y, u, order8} {
		if zero.Mod(zero, p).Sign() == 0 {
			return errors.New("an Ed25519 key of small order")
		}
	}
	return nil
}

// parsePublicKey reads a PEM public key: PKIX, PKCS#1 or a certificate.
func parsePublicKey(text []byte) (crypto.PublicKey, error) {
	block, err := keyBlock(text)
	if err != nil {
		return nil, err
	}
	key, err := publicKeyOf(block)
	if err != nil {
		return nil, err
	}
	if _, err := keyAlgorithms(key); err != nil {
		return nil, err
	}
	return key, nil
}

func publicKeyOf(block *pem.Block) (key crypto.PublicKey, err error) {
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = c.PublicKey
		}
	default:
		if strings.Contains(block.Type, "PRIVATE KEY") {
			return nil, errors.New("it contains a private key; want a public key")
		}
		return nil, errors.New("want a PUBLIC KEY, an RSA PUBLIC KEY or a CERTIFICATE")
	}
	if err != nil {
		return nil, errors.New("the key does not parse")
	}
	return key, nil
}

// parsePrivateKey reads a PEM private key: PKCS#8, PKCS#1 or SEC 1.
func parsePrivateKey(text []byte) (crypto.Signer, error) {
	block, err := keyBlock(text)
	if err != nil {
		return nil, err
	}
	var key any
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, errors.New("want an unencrypted PRIVATE KEY")
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("the key does not parse")
	}
	if _, err := keyAlgorithms(signer.Public()); err != nil {
		return nil, err
	}
	return signer, nil
}

// keyBlock returns the PEM block of the key. In a key on one line, as variables carry
// it, line breaks are written as \n.
func keyBlock(text []byte) (*pem.Block, error) {
	if !strings.Contains(string(text), "\n") {
		text = []byte(strings.ReplaceAll(string(text), `\n`, "\n"))
	}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("it is not PEM")
		}
		if block.Type != "EC PARAMETERS" { // openssl writes these before an EC key
			return block, nil
		}
		text = rest
	}
}

// readKeyFile reads a file of at most maxKeyFile bytes.
func readKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("%s is too long for a key file", path)
	}
	return text, err
}

// readPublicKey reads a PEM public key from a file; the error names the file.
func readPublicKey(path string) (crypto.PublicKey, error) {
	return readKey(path, "public", parsePublicKey)
}

// readPrivateKey reads a PEM private key from a file; the error names the file.
func readPrivateKey(path string) (crypto.Signer, error) {
	return readKey(path, "private", parsePrivateKey)
}

func readKey[K any](path, kind string, parse func(text []byte) (K, error)) (key K, err error) {
	text, err := readKeyFile(path)
	if err != nil {
		return key, fmt.Errorf("reading the %s key: %w", kind, err)
	}
	if key, err = parse(text); err != nil {
		return key, fmt.Errorf("reading the %s key %s: %w", kind, path, err)
	}
	return key, nil
}

// newKeyPair generates an RSA key and returns it as PEM: PKCS#8 and PKIX.
func newKeyPair(bits int) (private, public []byte, err error) {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the private key: %w", err)
	}
	private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if der, err = x509.MarshalPKIXPublicKey(key.Public()); err != nil {
		return nil, nil, fmt.Errorf("encoding the public key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// keyFile is a file to install.
type keyFile struct {
	path string
	data []byte
	mode fs.FileMode
}

// installKeyFiles writes all files or leaves everything as it was. Without force, it
// does not replace a file but fails with fs.ErrExist.
func installKeyFiles(files []keyFile, force bool) error {
	var backups []keyBackup
	var failed error
	for _, f := range files {
		back, err := f.install(force)
		if err != nil {
			failed = err
			break
		}
		backups = append(backups, back)
	}
	for _, back := range backups {
		if failed != nil {
			back.restore()
		} else {
			back.discard()
		}
	}
	return failed
}

// stage writes the contents next to the file and returns the path.
func (f keyFile) stage() (path string, err error) {
	t, err := os.CreateTemp(filepath.Dir(f.path), ".stepwell-key-*")
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", f.path, err)
	}
	_, err = t.Write(f.data)
	err = errors.Join(err, t.Chmod(f.mode), t.Sync(), t.Close())
	if err != nil {
		os.Remove(t.Name())
		return "", fmt.Errorf("writing %s: %w", f.path, err)
	}
	return t.Name(), nil
}

// install writes the file and returns how to undo that. A link, unlike a rename, does
// not replace a file that was created meanwhile.
func (f keyFile) install(force bool) (keyBackup, error) {
	back := keyBackup{path: f.path}
	staged, err := f.stage()
	if err != nil {
		return back, err
	}
	defer os.Remove(staged)
	if !force {
		if err := os.Link(staged, f.path); err != nil {
			return back, fmt.Errorf("writing %s: %w", f.path, err)
		}
		return back, nil
	}
	err = checkRegular("replace", f.path)
	if err == nil {
		back.old = staged + ".old"
		err = os.Link(f.path, back.old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return back, fmt.Errorf("keeping the old %s: %w", f.path, err)
	}
	if err := renameRegular(staged, f.path); err != nil {
		back.discard()
		return back, fmt.Errorf("writing %s: %w", f.path, err)
	}
	return back, nil
}

// keyBackup restores what an installed file replaced.
type keyBackup struct {
	path string
	old  string // another name of the old file; "" when there was none
}

func (b keyBackup) restore() {
	if b.old == "" {
		os.Remove(b.path)
		return
	}
	os.Rename(b.old, b.path)
}

func (b keyBackup) discard() {
	if b.old != "" {
		os.Remove(b.old)
	}
}
