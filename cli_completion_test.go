package main

import (
	"strings"
	"testing"
)

// TestCompletionWords checks the words that complete a command line.
func TestCompletionWords(t *testing.T) {
	for line, want := range map[string]string{
		"": "serve run task step dlq events find audit template failures analytics health fixture auth config store " +
			"healthcheck openapi completion mcp version",
		"ta":                               "task",
		"help ta":                          "task",
		"--url http://127.0.0.1:1 ta":      "task",
		"--no-h":                           "--no-headers",
		"task s":                           "show",
		"task list --st":                   "--status",
		"task list --status err":           "error",
		"task list --status=err":           "--status=error",
		"task list --status complete,err":  "complete,error",
		"task list --no-headers=":          "--no-headers=true --no-headers=false",
		"task list --limit ":               "",
		"task list --nope x":               "",
		"template list -o ":                "table wide json jsonl name",
		"serve --sync ":                    "always never",
		"auth generate-token --role read-": "read-only-operator",
		"nope ":                            "",
		"fixture stub ":                    "list add remove",
		"task create x y ":                 "",
		"task create x --context ":         "",
		"serve --seed=so":                  "(files)",
		"config validate --en":             "--env",
		"config validate --config ":        "(files)",
		"task show --no-headers":           "--no-headers",
		"template check ":                  "(files)",
		"run ":                             "(files)",
		"serve --data ":                    "(directories)",
		"completion ":                      "bash fish zsh",
	} {
		words := strings.Split(line, " ")
		first, rest, _ := strings.Cut(runCLI(nil, "",
			append([]string{completeWord}, words...)...).stdout, "\n")
		var got []string
		if first != completesWords {
			got = []string{"(" + first + ")"}
		}
		for word := range strings.Lines(rest) {
			word, _, _ = strings.Cut(strings.TrimSpace(word), "\t")
			got = append(got, word)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q: got %q; want %q", line, got, want)
		}
	}
}
