package main

// Public and private keys: their algorithms, which of them are too weak, reading and writing
// them as PEM, and installing new key files as a pair; and API keys. No error contains any part of a key.

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// verificationKey is a public key and the algorithms that it may be used with.
type verificationKey struct {
	id         string   // kid; "" for a key from a file
	algorithms []string // of its family, or those of them that are allowed
	public     crypto.PublicKey
}

// keySource finds the keys that a token's kid names, at least one.
type keySource interface {
	find(ctx context.Context, kid string) ([]*verificationKey, *failure)
}

// find returns the key, whatever the kid is: a service without a key set uses one key for every token.
func (k *verificationKey) find(context.Context, string) ([]*verificationKey, *failure) {
	return []*verificationKey{k}, nil
}

// limit keeps the algorithms that are allowed, and reports whether there are any.
func (k *verificationKey) limit(allowed ...string) bool {
	// The clone matters: the algorithms may be a part of signingAlgorithms, which all keys share.
	k.algorithms = slices.DeleteFunc(slices.Clone(k.algorithms), func(a string) bool { return !slices.Contains(allowed, a) })
	return len(k.algorithms) > 0
}

// Keys as PEM: reading them, their algorithms, and writing a new pair.

const (
	minRSABits = 2048
	maxRSABits = 8192 // longer keys make verification slow
	maxKeyFile = 64 << 10
)

// signingAlgorithms are the algorithms that can be allowed; "none" and the HMAC family never are.
var signingAlgorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
}

// keyAlgorithms returns the algorithms of a public key's family, the one to sign with
// first. The error says why the key cannot be used.
func keyAlgorithms(key crypto.PublicKey) ([]string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		switch bits := k.N.BitLen(); {
		case bits < minRSABits || bits > maxRSABits:
			return nil, fmt.Errorf("an RSA key of %d bits; want %d to %d", bits, minRSABits, maxRSABits)
		case k.E < 3 || k.E%2 == 0:
			return nil, errExponent
		}
		// The three RS and the three PS algorithms.
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
		return []string{"EdDSA"}, nil
	}
	return nil, errKeyFamily
}

var (
	errKeyFamily = errors.New("a key must be RSA, EC or Ed25519")
	errCurve     = errors.New("an EC key must be on P-256 or P-384")
	errExponent  = errors.New("an RSA key with an invalid public exponent")
)

// parsePublicKey reads a PEM public key: PKIX, PKCS#1 or a certificate.
func parsePublicKey(text []byte) (*verificationKey, error) {
	key, signer, err := parseKey(text, "a PUBLIC KEY, an RSA PUBLIC KEY or a CERTIFICATE")
	if err == nil && signer != nil {
		err = errors.New("it contains a private key; want a public key")
	}
	return key, err
}

// parsePrivateKey reads a PEM private key: PKCS#8, PKCS#1 or SEC 1.
func parsePrivateKey(text []byte) (crypto.Signer, error) {
	_, signer, err := parseKey(text, "an unencrypted PRIVATE KEY")
	if err == nil && signer == nil {
		err = errors.New("it contains a public key; want a private key")
	}
	return signer, err
}

// keyParsers read the forms of a key, public and private ones.
var keyParsers = []func(der []byte) (any, error){
	x509.ParsePKIXPublicKey,
	x509.ParsePKCS8PrivateKey,
	func(der []byte) (any, error) { return x509.ParsePKCS1PublicKey(der) },
	func(der []byte) (any, error) { return x509.ParsePKCS1PrivateKey(der) },
	func(der []byte) (any, error) { return x509.ParseECPrivateKey(der) },
	func(der []byte) (any, error) {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		return c.PublicKey, nil
	},
}

// parseKey reads a key by its content, because labels are sometimes wrong. The signer is nil for a public key.
func parseKey(text []byte, want string) (key *verificationKey, signer crypto.Signer, err error) {
	block, err := keyBlock(text)
	if err != nil {
		return nil, nil, err
	}
	for _, parse := range keyParsers {
		public, err := parse(block.Bytes)
		if err != nil {
			continue
		}
		if s, private := public.(crypto.Signer); private {
			signer, public = s, s.Public()
		}
		algorithms, err := keyAlgorithms(public)
		return &verificationKey{algorithms: algorithms, public: public}, signer, err
	}
	return nil, nil, fmt.Errorf("the block labeled %s does not parse; want %s", quotedLabel(block), want)
}

func quotedLabel(block *pem.Block) string { return strconv.Quote(clipText(printable(block.Type), 40)) }

// keyBlock returns the PEM block of the key. In a key on one line, as variables carry
// it, line breaks are written as \n.
func keyBlock(text []byte) (*pem.Block, error) {
	if isUTF16(text) {
		return nil, errors.New("it is UTF-16; want UTF-8")
	}
	if text = unmarked(text); !strings.Contains(string(text), "\n") {
		text = []byte(strings.ReplaceAll(string(text), `\n`, "\n"))
	}
	var key *pem.Block
	for {
		block, rest := pem.Decode(text)
		switch text = rest; {
		case block == nil && key == nil:
			return nil, errors.New("it is not PEM")
		case block == nil:
			return key, nil
		case block.Type == "EC PARAMETERS": // openssl writes these before an EC key
		case key == nil:
			key = block
		case key.Type != "CERTIFICATE" || block.Type != "CERTIFICATE": // of a chain, the first is the one
			return nil, fmt.Errorf("it contains a second key, %s; want one key", quotedLabel(block))
		}
	}
}

// readPublicKey reads a PEM public key from a file; the error names the file.
func readPublicKey(path string) (*verificationKey, error) {
	return readKey(path, "public", parsePublicKey)
}

// readPrivateKey reads a PEM private key from a file; the error names the file.
func readPrivateKey(path string) (crypto.Signer, error) {
	return readKey(path, "private", parsePrivateKey)
}

func readKey[K any](path, kind string, parse func(text []byte) (K, error)) (key K, err error) {
	var text []byte
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	}
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("%s is too long for a key file", path)
	}
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
	private, err = x509.MarshalPKCS8PrivateKey(key)
	if err == nil {
		public, err = x509.MarshalPKIXPublicKey(key.Public())
	}
	text := func(label string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}) }
	return text("PRIVATE KEY", private), text("PUBLIC KEY", public), err
}

// keyFile is a file to install.
type keyFile struct {
	path string
	data []byte
	mode fs.FileMode
}

// installKeyFiles writes all files or, if one of them cannot be written, none. Without force, it fails with fs.ErrExist
// if one exists.
func installKeyFiles(files []keyFile, force bool) error {
	for _, f := range files {
		if err := checkRegular("replace", f.path); force && err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	for i, f := range files {
		if force {
			os.Remove(f.path)
		}
		if err := f.create(); err != nil {
			for _, made := range files[:i] {
				os.Remove(made.path)
			}
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	return nil
}

// create makes the file, which must not exist.
func (f keyFile) create() error {
	t, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = t.Write(f.data)
	if err = errors.Join(err, t.Chmod(f.mode), t.Sync(), t.Close()); err != nil {
		os.Remove(f.path)
	}
	return err
}

// API keys.

// apiKeyConfig is an entry of the registry as configured.
type apiKeyConfig struct {
	Key         string   `json:"key"`
	Permissions []string `json:"permissions"`
	Description string   `json:"description"` // becomes the subject
}

// permissionList returns what the entry grants. The list ["*"] means the six wildcards, here and nowhere else.
func (k *apiKeyConfig) permissionList() (list []string, superuser bool) {
	if len(k.Permissions) == 1 && k.Permissions[0] == "*" {
		return allWildcards(), true
	}
	return k.Permissions, false
}

// apiKey is an entry of the registry, without the key itself.
type apiKey struct {
	digest  credentialDigest
	sc      *securityContext
	unknown []string // permissions outside the vocabulary
}

// apiKeyRegistry holds the API keys. It is immutable.
type apiKeyRegistry []apiKey

func newAPIKeyRegistry(entries []apiKeyConfig) apiKeyRegistry {
	registry := make(apiKeyRegistry, len(entries))
	for i, e := range entries {
		list, _ := e.permissionList()
		set, unknown := parsePermissions(list)
		digest := credentialDigest(sha256.Sum256([]byte(e.Key)))
		sc := &securityContext{
			subject: e.Description, method: authByAPIKey, key: string(digest[:]), permissions: set,
		}
		registry[i] = apiKey{digest, sc, unknown}
	}
	return registry
}

// find (hot path: BenchmarkTokenCached) returns the entry of a key, or nil, in a time that does not depend on the key.
func (r apiKeyRegistry) find(key string) *apiKey {
	digest := sha256.Sum256([]byte(key))
	found := -1
	for i := range r {
		same := subtle.ConstantTimeCompare(r[i].digest[:], digest[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return nil
	}
	return &r[found]
}
