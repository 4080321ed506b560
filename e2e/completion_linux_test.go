package e2e

// Completion in real shells on a terminal.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// shellSession is an interactive shell in a terminal, in an empty directory, with the completion of stepwell. Its
// stepwell completes words and otherwise only notes its arguments.
type shellSession struct {
	t         *testing.T
	term      *wire.Terminal
	dir, args string
}

// completingShells says how to start each shell with a file that it reads first.
var completingShells = map[string]func(file string) []string{
	"bash": func(file string) []string { return []string{"--noprofile", "--rcfile", file, "-i"} },
	"zsh":  func(string) []string { return []string{"-d", "-i"} }, // it reads .zshrc in ZDOTDIR
	"fish": func(file string) []string { return []string{"--no-config", "-i", "-C", "source " + file} },
}

func openShell(t *testing.T, name string) *shellSession {
	t.Helper()
	file := wire.Need(t, name)
	bin, home := t.TempDir(), t.TempDir()
	s := &shellSession{t: t, term: wire.OpenTerminal(t, 200, 50), dir: t.TempDir(), args: filepath.Join(home, "args")}
	writeFile(t, filepath.Join(bin, "stepwell"), []byte(`#!/bin/sh
[ "$1" = __complete ] && exec "$PROGRAM" "$@"
printf '%s\0' "$@" >"$ARGS.new" && mv "$ARGS.new" "$ARGS"
`))
	if err := os.Chmod(filepath.Join(bin, "stepwell"), 0o700); err != nil {
		t.Fatal(err)
	}
	script := wantExit(t, 0, nil, "completion", name)
	start := map[string]string{"bash": "PS1='ready> '\n", "zsh": "PROMPT='ready> '\nautoload -Uz compinit\ncompinit -u -D\n",
		"fish": "function fish_prompt; echo 'ready> '; end\n"}[name]
	rc := filepath.Join(home, ".zshrc")
	writeFile(t, rc, []byte(start+script))
	cmd := exec.Command(file, completingShells[name](rc)...)
	cmd.Env = append(programEnv(), "TERM=xterm", "LC_ALL=C.UTF-8", "HOME="+home, "ZDOTDIR="+home, "PROGRAM="+programFile(t),
		"ARGS="+s.args, "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Dir = s.dir
	s.term.Start(cmd)
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	eventually(t, "a prompt", func() bool { return strings.Contains(s.term.Written(), "ready> ") })
	return s
}

// enter types a line and Enter, and returns the arguments that stepwell gets.
func (s *shellSession) enter(line string) (args []string) {
	s.t.Helper()
	os.Remove(s.args)
	s.term.Mine.WriteString(line + "\r")
	var text []byte
	eventually(s.t, "the command of "+line, func() (ok bool) {
		var err error
		text, err = os.ReadFile(s.args)
		return err == nil
	})
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// listed has what each shell shows for the first letters of a verb. Bash shows verbs only, in alphabetical order.
var listed = map[string][]string{
	"bash": {"cancel", "context", "create"},
	"zsh":  {"create", "create a task of a template", "context", "print the context", "cancel", "cancel tasks"},
	"fish": {"create", "create a task of a template", "context", "print the context", "cancel", "cancel tasks"},
}

// TestShells completes verbs, flags and names of files in each shell, and expects the descriptions and the order of help.
func TestShells(t *testing.T) {
	slow(t)
	t.Parallel()
	for name := range completingShells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShell(t, name)
			writeFile(t, filepath.Join(s.dir, "some.txt"), nil)
			for typed, want := range map[string]string{
				"template che\t some\t":                  "template check some.txt",
				"--url http://127.0.0.1:2 task cre\ta/b": "--url http://127.0.0.1:2 task create a/b",
				"serve --memo\t--sy\tnever":              "serve --memory --sync never",
			} {
				if got := strings.TrimSuffix(strings.Join(s.enter("stepwell "+typed), " "), "/"); got != want {
					t.Errorf("%s: got %q; want %q", typed, got, want)
				}
			}
			before := len(s.term.Written())
			s.term.Mine.WriteString("stepwell task c\t\t")
			eventually(t, "a list of verbs", func() bool {
				shown := s.term.Written()[before:]
				at := 0
				for _, text := range listed[name] {
					i := strings.Index(shown[at:], text)
					if i < 0 {
						return false
					}
					at += i + len(text)
				}
				return true
			})
		})
	}
}
