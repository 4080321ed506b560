package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// readmeSessions are the console blocks of the README: commands after "$ ",
// each with the output that stands below it.
func readmeSessions(t *testing.T) (commands, outputs []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(readFile(t, "README.md")), -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands = append(commands, strings.TrimSpace(command))
				outputs = append(outputs, "")
			} else if len(outputs) > 0 {
				outputs[len(outputs)-1] += line
			}
		}
	}
	return commands, outputs
}

// TestReadme types the README's tour into a shell, against a server with
// nothing configured, and compares what is printed.
func TestReadme(t *testing.T) {
	for _, tool := range []string{"sh", "curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the tour needs %s", tool)
		}
	}
	commands, outputs := readmeSessions(t)
	if len(commands) < 5 {
		t.Fatalf("got %d commands in the README; want the tour", len(commands))
	}
	p := serve(t)
	const end = "-- end of a command --"
	script := strings.ReplaceAll(strings.Join(commands, "\necho '"+end+"'\n"), "http://127.0.0.1:8080", p.ready.OrchestrationURL)
	got, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	for i, printed := range strings.Split(string(got), end+"\n") {
		if printed != outputs[i] {
			t.Errorf("$ %s\ngot  %s\nwant %s", commands[i], printed, outputs[i])
		}
	}
}
