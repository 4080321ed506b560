package e2e

// Completion in real shells on a terminal, with names that would run something if a shell read them.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// hostileNames would run "touch ran", become several words or another word, if a shell did not take them as they are.
var hostileNames = []string{
	"$(touch ran)", "`touch ran`", "${x:-$(touch ran)}", `\$(touch ran)`, "'$(touch ran)'", `"$(touch ran)"`, "'; touch ran; '",
	`"; touch ran; "`, "; touch ran;", "& touch ran &", "| touch ran", "<(touch ran)", "=(touch ran)", "(touch ran)",
	"*(e:'touch ran':)", "> ran", "$((ran[$(touch ran)]))", "a b  c ", "*?[a-z]", "{a,b}", "!!", "!touch ran", "!$", "~root", "#x", `\`,
	`a\`, `a'b"c`, "$HOME", "%d", "^a^b", "a:b=c@d", "é ü", "a=~", "$'x'", "-o json", "--url=http://x",
}

// controlNames have control characters: no shell gets them.
var controlNames = []string{
	"lines $(touch ran)\ntouch ran\n", "escape\x1b[31m", "tab\ttouch ran", "c1\u009b", "bidi\u202e", "separator\u2028", "bell\a", "return\r",
}

// hostileService answers what completion asks with a name in each place.
func hostileService(t *testing.T) *httptest.Server {
	t.Helper()
	var templates, tasks, steps []map[string]any
	add := func(name, of string) {
		templates = append(templates, map[string]any{"namespace": "template" + of, "name": name, "tags": []string{name}})
		steps = append(steps, map[string]any{"name": "step" + of + name}, map[string]any{"name": "batch" + of + "_" + name})
		tasks = append(tasks, map[string]any{"task_uuid": "task" + of + name, "tags": []string{name}, "steps": steps})
	}
	for _, flag := range []string{"--url=http://evil.example", "-o"} {
		steps = append(steps, map[string]any{"name": flag})
		tasks = append(tasks, map[string]any{"task_uuid": flag})
	}
	for _, name := range controlNames {
		add(name, "-unoffered-")
	}
	for i, name := range hostileNames {
		add(name, fmt.Sprintf("%02d", i))
	}
	for _, end := range []string{"one", "two"} {
		templates = append(templates, map[string]any{"namespace": "$(touch ran)", "name": "the same; " + end})
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{"steps": steps}
		switch r.URL.Path {
		case "/v1/templates":
			answer = map[string]any{"templates": templates}
		case "/v1/tasks":
			n := 0
			fmt.Sscan(r.URL.Query().Get("per_page"), &n)
			answer = map[string]any{"tasks": tasks[:min(n, len(tasks))]}
		}
		json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	return s
}

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

func openShell(t *testing.T, name, url string) *shellSession {
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
		"ARGS="+s.args, "PATH="+bin+":"+os.Getenv("PATH"), "STEPWELL_URL="+url)
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

// TestHostileCompletion presses TAB and Enter after the beginning of each name, which must reach the program as one
// argument, and expects that no shell runs anything that a name says.
func TestHostileCompletion(t *testing.T) {
	slow(t)
	t.Parallel()
	service := hostileService(t)
	for name := range completingShells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShell(t, name, service.URL)
			check := func(typed string, want ...string) {
				t.Helper()
				var got []string
				unchanged := strings.Fields(strings.TrimSuffix(typed, "\t"))[1:]
				eventually(t, typed, func() bool { // on a busy machine, the service may take too long to answer
					got = s.enter(typed)
					return !slices.Equal(got, unchanged) || slices.Equal(got, want)
				})
				if !slices.Equal(got, want) {
					t.Errorf("%s: got %q; want %q", typed, got, want)
				}
			}
			for i, name := range hostileNames {
				of := fmt.Sprintf("%02d", i)
				check("stepwell task create template"+of+"\t", "task", "create", "template"+of+"/"+name)
				check("stepwell step show latest step"+of+"\t", "step", "show", "latest", "step"+of+name)
				check("stepwell step show latest batch"+of+"\t", "step", "show", "latest", "batch"+of+"_"+name)
				if i < 10 { // completion asks for 20 tasks
					check("stepwell task show task"+of+"\t", "task", "show", "task"+of+name)
				}
			}
			check(`stepwell task create \$\(tou`+"\tt\t", "task", "create", "$(touch ran)/the same; two")
			check(`stepwell task create '$(touch ran)/the same; o`+"\t", "task", "create", "$(touch ran)/the same; one")
			check(`stepwell task create '$(touch ran)/t`+"\tt\t", "task", "create", "$(touch ran)/the same; two")
			check(`stepwell task create "templ`+"\t27\t", "task", "create", "template27/"+hostileNames[27])
			check("stepwell task list --tag \t", "task", "list", "--tag")
			if files := wire.Must(os.ReadDir(s.dir))(t); len(files) > 0 {
				t.Errorf("a name ran as a command: there is %s", files)
			}
			if strings.ContainsAny(s.term.Written(), "\u009b\u202e\u2028") {
				t.Error("a name with control characters is shown")
			}
		})
	}
}

// TestShells completes verbs, values of flags and names of files in each shell, and expects the descriptions, the order of
// help, and no name of a file where none belongs.
func TestShells(t *testing.T) {
	slow(t)
	t.Parallel()
	for name := range completingShells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShell(t, name, "http://127.0.0.1:1")
			writeFile(t, filepath.Join(s.dir, "some.txt"), nil)
			if err := os.Mkdir(filepath.Join(s.dir, "somedir"), 0o700); err != nil {
				t.Fatal(err)
			}
			for typed, want := range map[string]string{
				"template che\t some\t.t\t":              "template check some.txt",
				"serve --data s\t":                       "serve --data somedir",
				"task list --limit s\t":                  "task list --limit s",
				"task list --status err\t":               "task list --status error",
				"task list --status=err\t":               "task list --status=error",
				"serve --seed=so\t.t\t":                  "serve --seed=some.txt",
				"task list --status error,comp\t":        "task list --status error,complete",
				"task create a/b --context @some.\t":     "task create a/b --context @some.txt",
				"--url http://127.0.0.1:2 task cre\ta/b": "--url http://127.0.0.1:2 task create a/b",
				"serve --memo\t--sync al\t":              "serve --memory --sync always",
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
				for _, text := range []string{"create", "create a task of a template", "context", "print the context", "cancel", "cancel tasks"} {
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

// TestUnofferedNames expects that completion leaves out the names that no shell should get.
func TestUnofferedNames(t *testing.T) {
	t.Parallel()
	env := []string{"STEPWELL_URL=" + hostileService(t).URL}
	for _, words := range [][]string{{"task", "create", ""}, {"step", "show", "latest", ""}, {"task", "show", ""}} {
		code, printed, _ := runProgram(t, env, append([]string{"__complete"}, words...)...)
		lines := strings.Split(strings.TrimSuffix(printed, "\n"), "\n")
		if code != 0 || len(lines) < 10 {
			t.Errorf("%q: got %q; want names", words, lines)
		}
		for _, line := range lines[1:] {
			if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "touch") || strings.Contains(line, "-unoffered-") {
				t.Errorf("%q: got %q", words, line)
			}
		}
	}
}
