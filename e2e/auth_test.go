package e2e

// Authentication of the whole program: keys and tokens made at the command line,
// and a server that trusts them.

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// authCommand runs an auth command that must succeed, and returns what it printed.
func authCommand(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSpace(wantExit(t, 0, nil, append([]string{"auth"}, args...)...))
}

// generateKeys makes a pair of keys and returns the paths of their files.
func generateKeys(t *testing.T) (private, public string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	authCommand(t, "generate-keys", "--output-dir", dir)
	return filepath.Join(dir, "jwt-private-key.pem"), filepath.Join(dir, "jwt-public-key.pem")
}

func TestProgramWithAuthentication(t *testing.T) {
	t.Parallel()
	private, public := generateKeys(t)
	token := func(args ...string) string {
		return authCommand(t, append([]string{"generate-token", "--private-key", private}, args...)...)
	}
	operator := token("--role", "ops-admin", "--subject", "ann")
	submitter := token("--permissions", "tasks:create", "--subject", "ci")
	p := serveWith(t, []string{"STEPWELL_JWT_PUBLIC_KEY_PATH=" + public, "STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true",
		"STEPWELL_LOG__LEVEL=debug"}, "--data", "data")
	s, worker := p.api(), &api{t, p.ready.WorkerURL}

	s.do("GET", "/v1/tasks", "").want(401)
	s.doAs(submitter, "GET", "/v1/tasks", "").want(403)
	s.doAs("broken", "GET", "/health/ready", "").want(200)
	worker.do("GET", "/health/ready", "").want(200)
	made := s.doAs(submitter, "POST", "/v1/tasks", `{"namespace":"demo","name":"approval","context":{"n":1}}`).want(201)
	if made.text("initiator") != "ci" || made.text("context.n") != "1" {
		t.Errorf("got %s; want the submitter as initiator, and its context", made.body)
	}
	step := "/v1/tasks/" + made.text("task_uuid") + "/workflow_steps/" + made.text("steps.1.workflow_step_uuid")
	s.doAs(operator, "PATCH", step, `{"action_type":"resolve_manually","reason":"fine","resolved_by":"bob"}`).want(200)
	audit := s.doAs(operator, "GET", step+"/audit", "").want(200)
	if audit.text("0.subject") != "ann" || audit.text("0.acted_by") != "bob" {
		t.Errorf("got %s; want subject ann, acted_by bob", audit.body)
	}
	p.stop()
	log := p.stderr.String()
	for _, token := range []string{operator, submitter} {
		for _, part := range strings.Split(token, ".")[1:] {
			if strings.Contains(log, part) {
				t.Error("a part of a token is in the log")
			}
		}
	}
	if !strings.Contains(log, `"subject":"ann"`) {
		t.Errorf("got no line about ann in %s", log)
	}
}

// TestProgramIsReadyWithItsKeySet serves the key set late, and checks that the program does not
// report that it is ready before it has the keys.
func TestProgramIsReadyWithItsKeySet(t *testing.T) {
	slow(t)
	t.Parallel()
	key := wire.Must(rsa.GenerateKey(rand.Reader, 2048))(t)
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	set := fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"a","use":"sig","alg":"RS256","n":%q,"e":%q}]}`,
		number(key.N), number(big.NewInt(int64(key.E))))
	gate, asked := make(chan struct{}), make(chan struct{}, 16)
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-gate:
			fmt.Fprint(w, set)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(keys.Close)
	var env []string
	for _, role := range []string{"ORCHESTRATION", "WORKER"} {
		section := "STEPWELL_" + role + "__WEB__AUTH__"
		env = append(env, section+"ENABLED=true", section+"JWT_VERIFICATION_METHOD=jwks",
			section+"JWKS_URL="+keys.URL, section+"JWKS_URL_ALLOW_HTTP=true")
	}
	p := launch(t, env, serveArguments("--memory")...)
	if _, ok := receiveWithin(asked, patience); !ok {
		t.Fatal("nobody asked for the key set")
	}
	if _, early := receiveWithin(p.stdout.line, 300*time.Millisecond); early || p.stdout.String() != "" {
		t.Errorf("the program reported %s before it had the keys", p.stdout)
	}
	close(gate)
	p.awaitReady()
	p.api().do("GET", "/health/ready", "").want(200)
	(&api{t, p.ready.WorkerURL}).do("GET", "/health/ready", "").want(200)
	p.stop()
}

// TestOpenAddressesAreWarnedOf listens on all addresses, with and without authentication.
func TestOpenAddressesAreWarnedOf(t *testing.T) {
	slow(t)
	t.Parallel()
	const warning = "anyone who can reach this address can do everything"
	_, public := generateKeys(t)
	for _, tt := range []struct {
		enabled, mount string
		args           []string
		want           int // warnings
	}{
		{"false", "false", []string{"--listen", "0.0.0.0:0", "--worker-listen", "0.0.0.0:0"}, 2},
		{"true", "true", []string{"--listen", "0.0.0.0:0", "--worker-listen", "0.0.0.0:0"}, 1}, // the worker's
		{"true", "true", []string{"--listen", "0.0.0.0:0"}, 0},
		{"true", "false", []string{"--listen", "0.0.0.0:0"}, 1}, // the mount point's
		{"false", "false", nil, 0},
	} {
		p := serveWith(t, []string{"STEPWELL_JWT_PUBLIC_KEY_PATH=" + public, "STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=" + tt.enabled,
			"STEPWELL_MOUNT__AUTH__ENABLED=" + tt.mount}, append([]string{"--memory", "--quiet"}, tt.args...)...)
		p.stop()
		if got := strings.Count(p.stderr.String(), warning); got != tt.want {
			t.Errorf("%s, %q: got %d warnings; want %d: %s", tt.enabled, tt.args, got, tt.want, p.stderr)
		}
	}
}
