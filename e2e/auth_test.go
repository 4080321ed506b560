package e2e

// Keys and tokens made at the command line, and what a server without authentication warns of.

import (
	"path/filepath"
	"strings"
	"testing"
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
