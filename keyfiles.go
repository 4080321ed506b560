package main

// Keys as PEM: reading public and private ones, and which of them can be trusted
// with which algorithm; writing a new pair. No error repeats any part of a key.

import (
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
	"os"
	"path/filepath"
	"strings"
)

const (
	minRSABits = 2048
	maxRSABits = 8192 // a longer key makes every verification a burden
	maxKeyFile = 64 << 10
)

// signingAlgorithms are all that can be allowed. "none" and the HMAC family can
// never be.
var signingAlgorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
}

// keyAlgorithms are the algorithms of a public key's family, the one we sign
// with first; the error says why the key cannot be used.
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
		return nil, errors.New("an EC key must be on P-256 or P-384")
	case ed25519.PublicKey:
		return []string{"EdDSA"}, nil
	}
	return nil, errors.New("a key must be RSA, EC or Ed25519")
}

func checkRSA(k *rsa.PublicKey) error {
	if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits {
		return fmt.Errorf("an RSA key of %d bits; want %d to %d", bits, minRSABits, maxRSABits)
	}
	if k.E < 3 || k.E%2 == 0 {
		return errors.New("an RSA key with an unsound public exponent")
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
			return nil, errors.New("it holds a private key; want a public one")
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

// keyBlock is the PEM block with the key. A key on one line, as environments
// carry it, has its line breaks written as \n.
func keyBlock(text []byte) (*pem.Block, error) {
	if !strings.Contains(string(text), "\n") {
		text = []byte(strings.ReplaceAll(string(text), `\n`, "\n"))
	}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("it is not PEM")
		}
		if block.Type != "EC PARAMETERS" { // openssl puts these before an EC key
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
	text, err := readKeyFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the public key: %w", err)
	}
	key, err := parsePublicKey(text)
	if err != nil {
		return nil, fmt.Errorf("reading the public key %s: %w", path, err)
	}
	return key, nil
}

// readPrivateKey reads a PEM private key from a file; the error names the file.
func readPrivateKey(path string) (crypto.Signer, error) {
	text, err := readKeyFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the private key: %w", err)
	}
	key, err := parsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("reading the private key %s: %w", path, err)
	}
	return key, nil
}

// newKeyPair makes an RSA key: PKCS#8 private, PKIX public, both PEM.
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

// keyFile is a file to be installed.
type keyFile struct {
	path string
	data []byte
	mode fs.FileMode
}

// installKeyFiles writes all of the files or leaves everything as it was. A file
// that exists is replaced only with force; otherwise the error is fs.ErrExist.
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

// stage writes the contents beside the file and returns the path.
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

// install writes the file and tells how to take it back. A link, unlike a
// rename, refuses to replace a file that has just come to be.
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
	switch err := os.Link(f.path, staged+".old"); {
	case err == nil:
		back.old = staged + ".old"
	case !errors.Is(err, fs.ErrNotExist):
		return back, fmt.Errorf("keeping the old %s: %w", f.path, err)
	}
	if err := os.Rename(staged, f.path); err != nil {
		back.discard()
		return back, fmt.Errorf("writing %s: %w", f.path, err)
	}
	return back, nil
}

// keyBackup knows what stood in the place of an installed file.
type keyBackup struct {
	path string
	old  string // a second name of the old file; "" when there was none
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
