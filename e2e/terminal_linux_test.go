package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// startInTerminal runs the program in a terminal.
func startInTerminal(t *testing.T, term *wire.Terminal, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(programFile(t), args...)
	cmd.Env = append(append(programEnv(), "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR="), env...)
	cmd.Dir = t.TempDir()
	term.Start(cmd)
	return cmd
}

// TestTerminal follows a workflow in a terminal that becomes narrow and then gets Ctrl-C: the bar below the lines changes
// in place, has colours, fits the window, and leaves a cursor at the begin of a line.
func TestTerminal(t *testing.T) {
	slow(t)
	t.Parallel()
	term := wire.OpenTerminal(t, 100, 24)
	cmd := startInTerminal(t, term, nil, "run", "demo/slow")
	eventually(t, "the first step to run", func() bool { return strings.Contains(term.Written(), "in_progress") })
	wide := len(term.Written())
	term.Resize(20, 5)
	eventually(t, "a narrow bar", func() bool { return strings.Contains(term.Written()[wide:], "…") })
	term.Mine.WriteString("\x03")
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("got exit code %d after Ctrl-C; want 130", code)
	}
	eventually(t, "the reason", func() bool { return strings.Contains(term.Written(), "which times out in") })
	text := term.Written()
	if !strings.Contains(text, "\x1b[34m▶\x1b[0m") || !strings.Contains(text, "\r\x1b[K") {
		t.Errorf("got %q; want colours, and a bar that is written over", text)
	}
	if strings.Contains(text, "\x1b[?") || !strings.Contains(text, "^C\r\x1b[K") {
		t.Errorf("the terminal is not left clean: %q", text)
	}
}
