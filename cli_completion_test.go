package main

import (
	"strings"
	"testing"
)

// TestCompletionWords checks the words that complete a command line without a service.
func TestCompletionWords(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string]string{
		"":                       "serve run task step dlq events find template failures analytics health console bench fixture auth config store pull healthcheck openapi completion mcp version",
		"ta":                     "task",
		"task s":                 "show",
		"task list --st":         "--status",
		"task list --status ":    "",
		"nope ":                  "",
		"fixture sandbox ":       "list add remove",
		"task create x y ":       "",
		"config validate --en":   "--env",
		"task show --no-headers": "--no-headers",
	} {
		words := strings.Split(line, " ")
		got := strings.Join(strings.Fields(runCLI(map[string]string{"STEPWELL_URL": "http://127.0.0.1:1"}, "",
			append([]string{completeWord}, words...)...).stdout), " ")
		if got != want {
			t.Errorf("%q: got %q; want %q", line, got, want)
		}
	}
}
