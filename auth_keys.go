package main

// Public and private keys: their algorithms, which of them are too weak, reading and writing
// them as PEM, and installing new key files as a pair. No error contains any part of a key.

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"os"
	"slices"
	"strconv"
	"strings"
)

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

// newStaticKey returns a public key that was read, which always has algorithms.
func newStaticKey(public crypto.PublicKey) *staticKey {
	algorithms, _ := keyAlgorithms(public)
	return &staticKey{algorithms: algorithms, public: public}
}

func (k *staticKey) find(context.Context, string) ([]*verificationKey, error) {
	return []*verificationKey{(*verificationKey)(k)}, nil
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
	}
	return nil
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

// publicKeyOf reads a key by its content: labels are sometimes wrong.
func publicKeyOf(block *pem.Block) (crypto.PublicKey, error) {
	if strings.Contains(block.Type, "PRIVATE KEY") {
		return nil, errors.New("it contains a private key; want a public key")
	}
	if key, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
		return key, nil
	}
	if c, err := x509.ParseCertificate(block.Bytes); err == nil {
		return c.PublicKey, nil
	}
	return nil, unreadPEM(block, "a PUBLIC KEY, an RSA PUBLIC KEY or a CERTIFICATE")
}

// unreadPEM returns the error for a block whose contents are not what is wanted.
func unreadPEM(block *pem.Block, want string) error {
	return fmt.Errorf("the block labeled %s does not parse; want %s", quotedLabel(block), want)
}

// quotedLabel returns the label of a block for a message.
func quotedLabel(block *pem.Block) string { return strconv.Quote(clipText(printable(block.Type), 40)) }

// parsePrivateKey reads a PEM private key: PKCS#8, PKCS#1 or SEC 1.
func parsePrivateKey(text []byte) (crypto.Signer, error) {
	block, err := keyBlock(text)
	if err != nil {
		return nil, err
	}
	signer, err := privateKeyOf(block)
	if err != nil {
		return nil, err
	}
	if _, err := keyAlgorithms(signer.Public()); err != nil {
		return nil, err
	}
	return signer, nil
}

// privateKeyOf reads a key by its content, as publicKeyOf does.
func privateKeyOf(block *pem.Block) (crypto.Signer, error) {
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if _, err := publicKeyOf(block); err == nil {
		return nil, errors.New("it contains a public key; want a private key")
	}
	return nil, unreadPEM(block, "an unencrypted PRIVATE KEY")
}

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
func readPublicKey(path string) (crypto.PublicKey, error) {
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
