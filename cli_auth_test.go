package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authTestNow is the time of the tests.
const authTestNow = instant(1767268800_000000) // 2026-01-01T12:00:00Z

// authRun runs "stepwell auth" in a new directory.
type authRun struct {
	t   *testing.T
	env map[string]string
	at  instant
}

func newAuthRun(t *testing.T) *authRun {
	t.Chdir(t.TempDir())
	return &authRun{t: t, env: map[string]string{}, at: authTestNow}
}

func (r *authRun) run(args ...string) (stdout, stderr string, err error) {
	r.t.Helper()
	var out, diag bytes.Buffer
	p := &process{
		getenv: func(k string) string { return r.env[k] }, now: func() instant { return r.at },
		stdout: &out, stderr: &diag,
	}
	err = p.run(context.Background(), append([]string{"auth"}, args...))
	return out.String(), diag.String(), err
}

// must runs a command that must succeed without a warning.
func (r *authRun) must(args ...string) string {
	r.t.Helper()
	stdout, stderr, err := r.run(args...)
	if err != nil || stderr != "" {
		r.t.Fatalf("auth %q: got %v, stderr %q; want success", args, err, stderr)
	}
	return stdout
}

// fails runs a command that must fail; usage says whether with a usage error.
func (r *authRun) fails(usage bool, want string, args ...string) {
	r.t.Helper()
	stdout, _, err := r.run(args...)
	_, isUsage := errors.AsType[*usageError](err)
	if err == nil || isUsage != usage || !strings.Contains(err.Error(), want) {
		r.t.Errorf("auth %q: got %v (usage error: %v); want one with %q (usage error: %v)",
			args, err, isUsage, want, usage)
	}
	if stdout != "" {
		r.t.Errorf("auth %q: got %q on standard output; want nothing", args, stdout)
	}
}

// fakeKeys writes an existing pair, because making one takes long.
func (r *authRun) fakeKeys(key *rsa.PrivateKey) {
	r.t.Helper()
	private, public := []byte(privatePEM(r.t, key)), []byte(publicPEM(r.t, key))
	noError(r.t, os.MkdirAll("keys", 0o700))
	files := []keyFile{{"keys/jwt-private-key.pem", private, 0o600}, {"keys/jwt-public-key.pem", public, 0o644}}
	noError(r.t, installKeyFiles(files, true))
}

func TestGenerateKeys(t *testing.T) {
	r := newAuthRun(t)
	out := r.must("generate-keys")
	if !strings.Contains(out, "keys/jwt-private-key.pem") || !strings.Contains(out, "keys/jwt-public-key.pem") {
		t.Errorf("got %q; want both paths", out)
	}
	for name, want := range map[string]fs.FileMode{"jwt-private-key.pem": 0o600, "jwt-public-key.pem": 0o644} {
		info, err := os.Stat(filepath.Join("keys", name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v; want mode %v", name, info, err, want)
		}
	}
	private := must(readPrivateKey("keys/jwt-private-key.pem"))(t)
	public := must(readPublicKey("keys/jwt-public-key.pem"))(t)
	if !private.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(public.public) {
		t.Error("the two files do not belong together")
	}
	assertFiles(t, "keys", "jwt-private-key.pem", "jwt-public-key.pem")
}

// assertFiles fails unless the directory contains exactly these files.
func assertFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	for _, e := range must(os.ReadDir(dir))(t) {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %q; want %q", dir, got, want)
	}
}

func TestGenerateKeysNeverOverwrites(t *testing.T) {
	r := newAuthRun(t)
	r.fakeKeys(authKeys().rsa)
	before, _ := os.ReadFile("keys/jwt-private-key.pem")
	r.fails(false, "--force", "generate-keys")
	os.Remove("keys/jwt-public-key.pem")
	r.fails(false, "keys/jwt-private-key.pem", "generate-keys")
	if now, _ := os.ReadFile("keys/jwt-private-key.pem"); !bytes.Equal(before, now) {
		t.Error("the private key was replaced without --force")
	}
	assertFiles(t, "keys", "jwt-private-key.pem")
	r.must("generate-keys", "--force")
	if now, _ := os.ReadFile("keys/jwt-private-key.pem"); bytes.Equal(before, now) {
		t.Error("--force left the private key as it was")
	}
	assertFiles(t, "keys", "jwt-private-key.pem", "jwt-public-key.pem")
}

// TestGenerateKeysReplacesOnlyFiles checks that --force replaces no link, pipe or device.
func TestGenerateKeysReplacesOnlyFiles(t *testing.T) {
	eachIrregularFile(t, "key.pem", func(t *testing.T, path string) error {
		err := installKeyFiles([]keyFile{{path, []byte("new"), 0o600}}, true)
		assertFiles(t, filepath.Dir(path), "key.pem")
		return err
	})
}

func TestInstallKeyFilesAllOrNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		noError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	files := []keyFile{{"a", []byte("new a"), 0o600}, {"b", []byte("new b"), 0o644}}

	// The second file was created meanwhile, so the first must be removed.
	write("b", "old b")
	if err := installKeyFiles(files, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v; want fs.ErrExist", err)
	}
	assertFiles(t, ".", "b")

	// Here it is created between the look at its name and the installation.
	twice := []keyFile{{"c", []byte("first"), 0o600}, {"c", []byte("second"), 0o600}}
	if err := installKeyFiles(twice, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v; want fs.ErrExist", err)
	}
	assertFiles(t, ".", "b")

	// A directory cannot be replaced, so the old first file must stay.
	os.Remove("b")
	os.Mkdir("b", 0o700)
	write("a", "old a")
	if err := installKeyFiles(files, true); err == nil {
		t.Error("got no error; want one about b")
	}
	if got, _ := os.ReadFile("a"); string(got) != "old a" {
		t.Errorf("a: got %q; want the old one", got)
	}
	assertFiles(t, ".", "a", "b")

	os.Remove("b")
	if err := installKeyFiles(files, true); err != nil {
		t.Errorf("got %v; want success", err)
	}
	if got, _ := os.ReadFile("a"); string(got) != "new a" {
		t.Errorf("a: got %q; want the new one", got)
	}
	assertFiles(t, ".", "a", "b")
}

func TestGenerateTokenDefaultsFromEnvironment(t *testing.T) {
	r := newAuthRun(t)
	r.fakeKeys(authKeys().rsa)
	noError(t, os.Rename("keys", "elsewhere"))
	r.env = map[string]string{
		"STEPWELL_JWT_PRIVATE_KEY_PATH":                             "elsewhere/jwt-private-key.pem",
		"STEPWELL_JWT_PUBLIC_KEY_PATH":                              "elsewhere/jwt-public-key.pem",
		"STEPWELL_ORCHESTRATION__WEB__AUTH__JWT_ISSUER":             "me",
		"STEPWELL_ORCHESTRATION__WEB__AUTH__JWT_AUDIENCE":           "you",
		"STEPWELL_ORCHESTRATION__WEB__AUTH__JWT_TOKEN_EXPIRY_HOURS": "3",
	}
	var made struct {
		Token     string `json:"token"`
		ExpiresAt string `json:"expires_at"`
	}
	out := r.must("generate-token", "--role", "full-access", "-o", "json")
	noError(t, json.Unmarshal([]byte(out), &made))
	if want := "2026-01-01T15:00:00.000000Z"; made.ExpiresAt != want {
		t.Errorf("expires_at: got %s; want %s", made.ExpiresAt, want)
	}
	r.env["STEPWELL_AUTH_TOKEN"] = made.Token
	var shown struct {
		Valid       bool     `json:"valid"`
		Issuer      string   `json:"issuer"`
		Audience    []string `json:"audience"`
		Permissions []string `json:"permissions"`
	}
	noError(t, json.Unmarshal([]byte(r.must("validate-token", "-o", "json")), &shown))
	if !shown.Valid || shown.Issuer != "me" || shown.Audience[0] != "you" || len(shown.Permissions) != 6 {
		t.Errorf("got %+v; want a valid one from me for you with six permissions", shown)
	}
}

func TestGenerateTokenRefuses(t *testing.T) {
	r := newAuthRun(t)
	r.fakeKeys(authKeys().rsa)
	r.fails(true, "--permissions or --role", "generate-token")
	r.fails(true, "--permissions or --role", "generate-token", "--permissions", " , ")
	r.fails(true, "unknown permissions: tasks:destroy, *", "generate-token", "--permissions", "tasks:destroy,tasks:read,*")
	r.fails(true, `unknown permission set "root"`, "generate-token", "--role", "root")
	r.fails(true, "--expiry-hours", "generate-token", "--role", "ops-admin", "--expiry-hours", "0")
	r.fails(true, "--expiry-hours", "generate-token", "--role", "ops-admin", "--expiry-hours", "999999")
	r.fails(true, "expiry-hours", "generate-token", "--role", "ops-admin", "--expiry-hours", "soon")
	r.fails(true, "must not be empty", "generate-token", "--role", "ops-admin", "--issuer", "")
	r.fails(true, "nonsense", "generate-token", "--nonsense")
	r.fails(true, `unexpected argument "more"`, "generate-token", "--role", "ops-admin", "more")
	r.fails(true, "-o must be", "generate-token", "--role", "ops-admin", "-o", "yaml")
	r.fails(false, "absent.pem", "generate-token", "--role", "ops-admin", "--private-key", "absent.pem")
	r.fails(false, "it contains a public key; want a private key",
		"generate-token", "--role", "ops-admin", "--private-key", "keys/jwt-public-key.pem")

	stdout, stderr, err := r.run("generate-token", "--permissions", "tasks:destroy", "--allow-unknown")
	if err != nil || stdout == "" || !strings.Contains(stderr, "unknown permissions: tasks:destroy") {
		t.Errorf("--allow-unknown: got %v, stderr %q; want a token and a warning", err, stderr)
	}
	_, stderr, err = r.run("generate-token", "--role", "ops-admin", "--expiry-hours", "48")
	if err != nil || !strings.Contains(stderr, "24 hours") {
		t.Errorf("48 hours: got %v, stderr %q; want a token and a warning", err, stderr)
	}
}

func TestValidateTokenTellsWhyNot(t *testing.T) {
	r := newAuthRun(t)
	r.fakeKeys(authKeys().rsa)
	token := strings.TrimSpace(r.must("generate-token", "--role", "ops-admin"))
	r.fails(true, "give --token", "validate-token")
	r.fails(false, "(malformed): it does not have three parts", "validate-token", "--token", "abc")
	r.fails(false, "(invalid): its issuer", "validate-token", "--token", token, "--issuer", "other")
	r.fails(false, "(invalid): it is not for the expected audience",
		"validate-token", "--token", token, "--audience", "other")
	r.fails(false, "absent.pem", "validate-token", "--token", token, "--public-key", "absent.pem")
	r.fails(false, "it contains a private key",
		"validate-token", "--token", token, "--public-key", "keys/jwt-private-key.pem")
	r.at = authTestNow.add(-2 * time.Minute)
	r.fails(false, "(invalid): it is not valid yet", "validate-token", "--token", token)
	r.at = authTestNow.add(24*time.Hour + 61*time.Second)
	r.fails(false, "(expired): it has expired", "validate-token", "--token", token)
	r.at = authTestNow.add(24*time.Hour + 59*time.Second)
	r.must("validate-token", "--token", token)
	r.fakeKeys(authKeys().rsa2)
	r.fails(false, "(invalid): its signature does not match", "validate-token", "--token", token)

	r.at = authTestNow
	token, _, _ = r.run("generate-token", "--permissions", "a\x1bb", "--allow-unknown")
	token = strings.TrimSpace(token)
	r.fails(false, `unknown permissions: a\u001bb`, "validate-token", "--token", token)
	if out := r.must("validate-token", "--token", token, "--allow-unknown"); strings.Contains(out, "\x1b") {
		t.Errorf("got %q; want no escape character in it", out)
	}
}

// TestTokenErrorsKeepSecrets checks every way in which validate-token fails.
func TestTokenErrorsKeepSecrets(t *testing.T) {
	r := newAuthRun(t)
	r.fakeKeys(authKeys().rsa)
	token := strings.TrimSpace(r.must("generate-token", "--role", "ops-admin", "--subject", "marker-of-the-subject"))
	private, _ := os.ReadFile("keys/jwt-private-key.pem")
	broken := strings.Replace(string(private), "\n", "\nAAAA", 1)
	noError(t, os.WriteFile("broken.pem", []byte(broken), 0o600))
	block, _ := pem.Decode(private)
	if block == nil {
		t.Fatal("the private key is not PEM")
	}
	secrets := append(strings.Split(token, "."), strings.Split(string(private), "\n")[1], "marker-of-the-subject")
	for _, args := range [][]string{
		{"validate-token", "--token", token, "--issuer", "x"},
		{"validate-token", "--token", token + "A"},
		{"validate-token", "--token", token + ".x"},
		{"validate-token", "--token", token, "--public-key", "broken.pem"},
		{"generate-token", "--role", "ops-admin", "--private-key", "broken.pem"},
	} {
		_, stderr, err := r.run(args...)
		if err == nil {
			t.Errorf("auth %s: got success; want an error", args[0])
			continue
		}
		for _, s := range secrets {
			if strings.Contains(err.Error()+stderr, s) {
				t.Errorf("auth %s: the error holds a secret: %v", args[0], err)
			}
		}
	}
}

// TestRotateKeys changes the key of tokens by the commands alone: no token is refused in between.
func TestRotateKeys(t *testing.T) {
	r := newAuthRun(t)
	keys := authKeys()
	for name, key := range map[string]crypto.Signer{"old": keys.rsa, "new": keys.p256, "ed": keys.ed} {
		private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(t)})
		public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(key.Public()))(t)})
		noError(t, os.WriteFile(name+".private", private, 0o600))
		noError(t, os.WriteFile(name+".public", public, 0o600))
	}
	token := func(name string) string {
		return strings.TrimSpace(r.must("generate-token", "--role", "task-submitter", "--private-key", name+".private"))
	}
	rules := &authConfig{JWTIssuer: defaultIssuer, JWTAudience: defaultAudience, JWTAllowedAlgorithms: signingAlgorithms}
	for _, stage := range []struct {
		files    []string
		accepted string
	}{
		{[]string{"old.public"}, "old"},
		{[]string{"old.public", "new.public"}, "old new"},
		{[]string{"new.public", "ed.public"}, "new ed"},
	} {
		set := must(decodeKeySet([]byte(r.must(append([]string{"jwks"}, stage.files...)...)), signingAlgorithms))(t)
		var accepted []string
		for _, name := range []string{"old", "new", "ed"} {
			if _, f := (&tokenVerifier{rules, publishedSource(set.usable)}).verify(t.Context(), token(name), r.at); f == nil {
				accepted = append(accepted, name)
			}
		}
		if got := strings.Join(accepted, " "); got != stage.accepted {
			t.Errorf("the set of %q: got the tokens of %s accepted; want those of %s", stage.files, got, stage.accepted)
		}
	}
	r.fails(false, "it contains a private key", "jwks", "old.private")
}

// publishedSource finds keys by their kid.
type publishedSource []*verificationKey

func (s publishedSource) find(_ context.Context, kid string) (found []*verificationKey, f *failure) {
	for _, k := range s {
		if k.id == kid {
			found = append(found, k)
		}
	}
	if found == nil {
		f = forged("no key has its kid")
	}
	return found, f
}

// TestKeyID checks the thumbprint of the example in RFC 7638, 3.1.
func TestKeyID(t *testing.T) {
	key := webKey{Kty: "RSA", E: "AQAB", N: "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMst" +
		"n64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbIS" +
		"D08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}
	if _, kid, err := keyID(must(key.public())(t)); kid != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" || err != nil {
		t.Errorf("got %s, %v", kid, err)
	}
}
