package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cliResult holds the output of a command line and its exit code.
type cliResult struct {
	stdout, stderr string
	code           int
}

// runCLI runs a command line with variables in an empty directory, unless the test has changed to
// another.
func runCLI(env map[string]string, stdin string, args ...string) cliResult {
	return runCLIAsking(askingRules{}, env, stdin, args...)
}

// runCLIAsking is runCLI with other rules for services.
func runCLIAsking(rules askingRules, env map[string]string, stdin string, args ...string) cliResult {
	in := configInput{env: env}
	var out, errOut bytes.Buffer
	p := &process{getenv: in.getenv, environ: in.environ(), now: realNow, asking: rules,
		stdin: strings.NewReader(stdin), stdout: &out, stderr: &errOut}
	code := p.main(context.Background(), args)
	return cliResult{out.String(), errOut.String(), code}
}

// bareProcess has no environment and no configuration.
var bareProcess = &process{getenv: func(string) string { return "" }, now: realNow, stderr: io.Discard}

func commandTable() *command {
	c := commands()
	return &c
}

// TestCommandTable checks what help, completion and docs/reference/cli.md are made of: every command says what it
// does and has two examples, and these can be parsed.
func TestCommandTable(t *testing.T) {
	t.Chdir(t.TempDir())
	commandTable().each(func(c *command) {
		if c.help == "" || strings.HasSuffix(c.help, ".") || c.help[0] < 'a' || c.help[0] > 'z' {
			t.Errorf("%s: the help %q is no phrase", c.name, c.help)
		}
		if len(c.examples) != 2 {
			t.Errorf("%s: got %d examples; want 2", c.name, len(c.examples))
		}
		if c.more != "" && !strings.HasSuffix(c.more, ".") {
			t.Errorf("%s: %q does not end as a sentence", c.name, c.more)
		}
		for _, example := range c.examples {
			line, _, _ := strings.Cut(example, " > ")
			line, _, _ = strings.Cut(line, " | ")
			rest, ok := strings.CutPrefix(line, c.name)
			if !ok && line != "--version" {
				t.Errorf("%s: the example %q is of another command", c.name, example)
				continue
			}
			o := newOptions(bareProcess, c)
			c.define(o)
			if _, err := o.parse(shellWords(rest), new(bytes.Buffer)); ok && err != nil {
				t.Errorf("%s: the example %q: %v", c.name, example, err)
			}
		}
		o := newOptions(bareProcess, c)
		c.define(o)
		o.VisitAll(func(f *flag.Flag) {
			if f.Usage == "" || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s %s: the help %q is no phrase", c.name, dashed(f.Name), f.Usage)
			}
			value, text, named := strings.Cut(strings.TrimPrefix(f.Usage, "`"), "`: ")
			if named && value != "URL" && value != "JSON" && regexp.MustCompile(`\b`+value+`\b`).MatchString(text) {
				t.Errorf("%s %s: the help %q has the name of the value in its sentence", c.name, dashed(f.Name), f.Usage)
			}
		})
	})
}

// shellWords splits a line as a shell does that knows no escapes but quotes.
func shellWords(line string) (words []string) {
	quote, word, open := rune(0), strings.Builder{}, false
	for _, r := range line + " " {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, open = r, true
		case quote == 0 && r == ' ':
			if open || word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
		}
	}
	return words
}

// TestHelpAtEveryLevel asks every command and group for help, in each way, and for the version.
func TestHelpAtEveryLevel(t *testing.T) {
	t.Chdir(t.TempDir())
	var levels func(c *command)
	levels = func(c *command) {
		words := strings.Fields(strings.TrimPrefix(c.name, "stepwell"))
		ways := [][]string{append(slices.Clone(words), "--help"), append(slices.Clone(words), "-h"), append([]string{"help"}, words...)}
		for _, args := range ways {
			got := runCLI(nil, "", args...)
			want := strings.TrimSpace("usage: stepwell " + strings.Join(words, " "))
			if got.code != 0 || !strings.HasPrefix(got.stdout, want+" ") || got.stderr != "" {
				t.Errorf("%q: got %d, %q, %q; want help", args, got.code, got.stdout, got.stderr)
			}
		}
		if got := runCLI(nil, "", append(slices.Clone(words), "--version")...); !strings.HasPrefix(got.stdout, "stepwell "+version+" (") {
			t.Errorf("%q --version: got %q, %q", words, got.stdout, got.stderr)
		}
		for _, sub := range c.commands {
			full, _ := c.sub(sub.name)
			levels(&full)
		}
	}
	levels(commandTable())
}

// TestMisspelledWords checks what a mistake in the command line is answered with.
func TestMisspelledWords(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string]string{
		"taks list":                    `unknown command "taks"; did you mean task?`,
		"start":                        `unknown command "start"; did you mean serve?`,
		"init":                         `unknown command "init"; did you mean serve, which needs no setup?`,
		"status":                       `unknown command "status"; did you mean health?`,
		"ls":                           `unknown command "ls"; did you mean task list?`,
		"ps":                           `unknown command "ps"; did you mean task list?`,
		"logs":                         `unknown command "logs"; did you mean task events?`,
		"explain":                      `unknown command "explain"; did you mean task explain?`,
		"watch latest":                 `unknown command "watch"; did you mean task watch?`,
		"create x":                     `unknown command "create"; did you mean task create?`,
		"list":                         `unknown command "list"; did you mean task list, `,
		"task status":                  `unknown command "status"; did you mean task show?`,
		"-p 8090":                      "serve: unknown flag -p; did you mean --listen 127.0.0.1:PORT?",
		"serve --port=8090":            "serve: unknown flag --port; did you mean --listen 127.0.0.1:PORT?",
		"task list -p 1":               "task list: unknown flag -p",
		"config show listen":           "config show: listen: unknown key; did you mean orchestration.web.listen?",
		"task lsit":                    `unknown command "lsit"; did you mean list?`,
		"task list --stauts x":         "task list: unknown flag --stauts; did you mean --status?",
		"task list -o yaml":            `task list: -o must be table, wide, json, jsonl or name, not "yaml"`,
		"--url x taks list":            `unknown command "taks"; did you mean task?`,
		"task create x --wait 30s":     "task create: write --wait=30s: the value of --wait follows an =",
		"task list --no-headers true":  "task list: write --no-headers=true: the value of --no-headers follows an =",
		"task list --limit ten":        `task list: --limit "ten": want a whole number`,
		"task list --no-headers=maybe": `task list: --no-headers "maybe": want true or false`,
		"task list --limit":            "task list: --limit needs a value: write --limit N",
		"-o json serve":                "serve: unknown flag -o",
		"task show":                    "task show: missing TASK",
		"task list x":                  `task list: unexpected argument "x"`,
		"step show latest":             "step show: missing STEP",
		"fixture clock advance x":      `fixture clock: advance: want a duration like 90s, 1h30m or 1d12h, with the units w, d, h, m, s, ms, us and ns, not "x"`,
		"completion tcsh":              `completion: SHELL must be bash, zsh or fish, not "tcsh"`,
		"task list --since 9999999w":   `task list: --since "9999999w": want at most 292 years`,
		"task create /b":               `task create: "/b" is not a template: want NAMESPACE/NAME`,
		"task create a --context {":    "task create: --context: { is not valid JSON",
		"task show xyz":                `task show: "xyz" is not a task: want a UUID, at least 6 characters`,
		"task list --url ftp://x":      `task list: "ftp://x" is not the URL of a service`,
		"task list --limit 0":          "task list: --limit must be 1 or more",
		"dlq update latest":            "dlq update: missing --status, --notes, --by or --metadata",
		"task list --url h:1/v1/":      "task list: the URL of a service does not end in /v1: give http://h:1",
		"task events":                  "task events: missing TASK",
	} {
		got := runCLI(nil, "", strings.Fields(line)...)
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "stepwell: "+want) || got.stdout != "" {
			t.Errorf("%s: got %d, %q; want %q", line, got.code, got.stderr, want)
		}
	}
}

// each calls f with the command, or the commands of a group at every level, by full name.
func (c *command) each(f func(c *command)) {
	if len(c.commands) == 0 {
		f(c)
	}
	for _, sub := range c.commands {
		full, _ := c.sub(sub.name)
		full.each(f)
	}
}

// commonFlags are the flags of many commands, which docs/reference/cli.md describes once.
var commonFlags = []string{"--url URL", "--no-headers", "-o, --output FORM"}

// writeCommandsPage writes the part of docs/reference/cli.md that comes from the table: usage, flags and examples of every
// command, by family.
func writeCommandsPage(w io.Writer, root command) {
	for _, family := range root.commands {
		if len(family.commands) > 0 {
			fmt.Fprintf(w, "### %s\n\n%s.\n\n", family.name, capitalized(family.help))
		}
		level := pick(len(family.commands) > 0, "####", "###")
		full, _ := root.sub(family.name)
		full.each(func(c *command) { writeCommand(w, level, c) })
	}
}

func writeCommand(w io.Writer, level string, c *command) {
	o := newOptions(bareProcess, c)
	c.define(o)
	fmt.Fprintf(w, "%s %s\n\n%s.", level, c.name, capitalized(c.help))
	if c.more != "" {
		fmt.Fprintf(w, " %s", c.more)
	}
	fmt.Fprintf(w, "\n\n```text\n%s\n```\n\n", strings.TrimPrefix(o.usageLine(), "usage: "))
	rows := 0
	o.VisitAll(func(f *flag.Flag) {
		operand, help := flagHelp(f)
		form := o.form(f, operand)
		if f.Name == shortOutput || slices.Contains(commonFlags, form) {
			return
		}
		if rows++; rows == 1 {
			fmt.Fprint(w, "| flag | |\n|---|---|\n")
		}
		fmt.Fprintf(w, "| `%s` | %s |\n", form, strings.ReplaceAll(capitalized(help)+".", "|", "\\|"))
	})
	if rows > 0 {
		fmt.Fprintln(w)
	}
	if len(c.examples) > 0 {
		fmt.Fprintf(w, "```text\nstepwell %s\n```\n\n", strings.Join(c.examples, "\nstepwell "))
	}
}

// TestCommandsPage holds docs/reference/cli.md to the table.
func TestCommandsPage(t *testing.T) {
	const page, heading = "docs/reference/cli.md", "\n## Commands\n\n"
	text := string(readFile(t, page))
	guide, reference, ok := strings.Cut(text, heading)
	if !ok {
		t.Fatalf("%s has no reference", page)
	}
	var want bytes.Buffer
	writeCommandsPage(&want, *commandTable())
	if *updateCommands {
		noError(t, os.WriteFile(page, []byte(guide+heading+strings.TrimRight(want.String(), "\n")+"\n"), 0o644))
		return
	}
	if strings.TrimSpace(reference) != strings.TrimSpace(want.String()) {
		t.Errorf("%s has another reference than the table makes; run go test -run CommandsPage -update-cli .", page)
	}
}
