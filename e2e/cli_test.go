package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// changing matches what differs from run to run in the output of the command line: durations, ages and
// times of day.
var changing = regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)(\d+[smhd])?\b|\d\d:\d\d:\d\d\.\d{3}`)

// steady returns lines without what differs from run to run, nor the widths of columns.
func steady(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(changing.ReplaceAllString(line, "0")), " "))
	}
	return strings.Join(lines, "\n")
}

// TestCommandsGuide types the commands in docs/cli.md, against a service without and with
// authentication.
func TestCommandsGuide(t *testing.T) {
	t.Parallel()
	slow(t)
	commands, outputs := consoleSession(t, "docs/cli.md", string(readFile(t, repository("docs/cli.md"))))
	for name, env := range map[string][2][]string{
		"without authentication": {},
		"with authentication": {
			{"STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true", "STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS_ENABLED=true",
				`STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS=[{"key":"k","permissions":["*"],"description":"api"}]`},
			{"STEPWELL_API_KEY=k"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serveWith(t, env[0], "--fixture", "--deterministic-ids", "guide")
			for i, printed := range typeInto(t, commands, t.TempDir(), env[1], p) {
				if steady(printed) != steady(outputs[i]) {
					t.Errorf("$ %s\ngot  %s\nwant %s", commands[i], printed, outputs[i])
				}
			}
		})
	}
}
