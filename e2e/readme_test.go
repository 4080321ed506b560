package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// readmeSession returns the commands of a section of the README, which follow "$ " in its
// console blocks, each with the output below it.
func readmeSession(t *testing.T, heading string) (commands, outputs []string) {
	t.Helper()
	_, section, _ := strings.Cut(string(readFile(t, repository("README.md"))), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return consoleSession(t, heading, section)
}

// consoleSession returns the commands and outputs of a text's console blocks.
func consoleSession(t *testing.T, name, text string) (commands, outputs []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		session := false // after the first "$ ": a block without one is for another terminal
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				session = true
				commands = append(commands, strings.TrimSpace(command))
				outputs = append(outputs, "")
			} else if session {
				outputs[len(outputs)-1] += line
			}
		}
	}
	if len(commands) < 3 {
		t.Fatalf("%s: got %d commands; want a session", name, len(commands))
	}
	return commands, outputs
}

// typeSession types a section's commands into a shell, in a directory, with a running server,
// and compares the output.
func typeSession(t *testing.T, heading, dir string, p *program) {
	t.Helper()
	commands, outputs := readmeSession(t, heading)
	typeCommands(t, commands, outputs, dir, p)
}

// typeCommands is typeSession for any commands.
func typeCommands(t *testing.T, commands, outputs []string, dir string, p *program) {
	t.Helper()
	for i, printed := range typeInto(t, commands, dir, nil, p) {
		if printed != outputs[i] {
			t.Errorf("$ %s\ngot  %s\nwant %s", commands[i], printed, outputs[i])
		}
	}
}

// typeInto types commands into a shell, and returns what each printed. In place of "go run ." and of
// stepwell it runs the program.
func typeInto(t *testing.T, commands []string, dir string, env []string, p *program) []string {
	t.Helper()
	for _, tool := range []string{"sh", "curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the sessions of the documents need %s", tool)
		}
	}
	const end = "-- end of a command --"
	script := strings.NewReplacer("http://127.0.0.1:8080", p.ready.OrchestrationURL,
		"$(go run . ", "$('"+programFile(t)+"' ",
		"\ngo run . ", "\n'"+programFile(t)+"' ").Replace("\n" + strings.Join(commands, "\necho '"+end+"'\n"))
	shell := exec.Command("sh", "-c", "stepwell() { '"+programFile(t)+"' \"$@\"; }"+script)
	shell.Dir = dir
	shell.Env = append(programEnv(), append(env, "STEPWELL_URL="+p.ready.OrchestrationURL, "LC_ALL=C.UTF-8", "USER=")...)
	got, _ := shell.CombinedOutput() // an error would be in the output
	printed := strings.Split(string(got), end+"\n")
	if len(printed) != len(commands) {
		t.Fatalf("got the output of %d commands; want that of %d\n%s", len(printed), len(commands), got)
	}
	return printed
}

// TestFixturePage types the commands in docs/fixture.md.
func TestFixturePage(t *testing.T) {
	t.Parallel()
	slow(t)
	commands, outputs := consoleSession(t, "docs/fixture.md", string(readFile(t, repository("docs/fixture.md"))))
	typeCommands(t, commands, outputs, t.TempDir(), serve(t, "--fixture"))
}

// TestOperationsPage types the commands in docs/operations.md.
func TestOperationsPage(t *testing.T) {
	t.Parallel()
	slow(t)
	commands, outputs := consoleSession(t, "docs/operations.md", string(readFile(t, repository("docs/operations.md"))))
	p := serve(t)
	typeCommands(t, commands, outputs, p.cmd.Dir, p)
}

// TestReadmeSessions types the commands in the README.
func TestReadmeSessions(t *testing.T) {
	slow(t)
	for heading, mode := range map[string]string{
		"One minute": "", "The command line": "", "Fixture mode": "--fixture", "Waiting": "", "Dynamic steps": "", "Outside workers": "", "Events": "",
		"Why is my task stuck?": "", "The mount point": "", "The store as one document": "",
	} {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			if heading != "One minute" {
				slow(t)
			}
			p := serve(t, strings.Fields(mode)...)
			typeSession(t, heading, p.cmd.Dir, p)
		})
	}
}

func TestReadmeAuthentication(t *testing.T) {
	slow(t)
	t.Parallel()
	keys := t.TempDir()
	wantExit(t, 0, nil, "auth", "generate-keys", "--output-dir", keys+"/keys")
	p := serveWith(t, []string{
		"STEPWELL_JWT_PUBLIC_KEY_PATH=" + keys + "/keys/jwt-public-key.pem",
		"STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true", "STEPWELL_WORKER__WEB__AUTH__ENABLED=true",
	})
	typeSession(t, "Authentication", keys, p)
}
