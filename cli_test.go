package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// cliResult holds the output of a command line and its exit code.
type cliResult struct {
	stdout, stderr string
	code           int
}

// runCLI runs a command line with variables in an empty directory, unless the test has changed to
// another.
func runCLI(env map[string]string, stdin string, args ...string) cliResult {
	in := configInput{env: env}
	var out, errOut bytes.Buffer
	p := &process{getenv: in.getenv, environ: in.environ(), now: realNow,
		stdin: strings.NewReader(stdin), stdout: &out, stderr: &errOut}
	err := p.run(context.Background(), args)
	if err != nil && err.Error() != "" {
		errOut.WriteString("stepwell: " + err.Error() + "\n")
	}
	return cliResult{out.String(), errOut.String(), exitCode(err)}
}

// commandTable returns the commands, as they are without a configuration.
func commandTable() *command {
	c := (&process{getenv: func(string) string { return "" }, now: realNow, stderr: new(bytes.Buffer)}).commands()
	return &c
}

// TestCommandTable checks what help, completion and docs/cli.md are made of: every command says what it
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
			o := newOptions(c)
			c.define(o)
			if _, err := o.parse(shellWords(rest), new(bytes.Buffer)); ok && err != nil {
				t.Errorf("%s: the example %q: %v", c.name, example, err)
			}
		}
		o := newOptions(c)
		c.define(o)
		o.VisitAll(func(f *flag.Flag) {
			if f.Usage == "" || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s %s: the help %q is no phrase", c.name, dashed(f.Name), f.Usage)
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
		"taks list":                 `unknown command "taks"; did you mean task?`,
		"task lsit":                 `unknown command "lsit"; did you mean list?`,
		"task list --stauts x":      "task list: flag provided but not defined: -stauts; did you mean --status?",
		"task list -o yaml":         `task list: -o must be table, wide, json, jsonl or name, not "yaml"`,
		"task show":                 "task show: missing TASK",
		"task list x":               `task list: unexpected argument "x"`,
		"step show latest":          "step show: missing STEP",
		"fixture clock advance x":   `fixture clock: advance: want a duration like 90s, not "x"`,
		"completion tcsh":           `completion: SHELL must be bash, zsh or fish, not "tcsh"`,
		"task create a/b/c":         `task create: "a/b/c" is no template: want NAMESPACE/NAME`,
		"task create a --context {": "task create: --context: { is no JSON",
		"task show xyz":             `task show: "xyz" is no task: want a UUID, at least 6 characters`,
		"task list --url ftp://x":   `task list: "ftp://x" is no URL of a service`,
		"task list --limit 0":       "task list: --limit must be 1 or more",
		"dlq update latest":         "dlq update: missing --status, --notes, --by or --metadata",
		"task events":               "task events: missing TASK; or give --follow",
	} {
		got := runCLI(nil, "", strings.Fields(line)...)
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "stepwell: "+want) || got.stdout != "" {
			t.Errorf("%s: got %d, %q; want %q", line, got.code, got.stderr, want)
		}
	}
}

// TestCompletionWords checks the words that complete a command line without a service.
func TestCompletionWords(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string]string{
		"":                       "serve run task step dlq template analytics health bench fixture auth config store healthcheck openapi completion version",
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

var updateCommandsPage = flag.Bool("update-cli", false, "rewrite the reference in docs/cli.md")

// TestCommandsPage holds the reference in docs/cli.md to the table.
func TestCommandsPage(t *testing.T) {
	const page, heading = "docs/cli.md", "\n## Reference\n\n"
	text := string(readFile(t, page))
	guide, reference, ok := strings.Cut(text, heading)
	if !ok {
		t.Fatalf("%s has no reference", page)
	}
	var want bytes.Buffer
	writeCommandsPage(&want, *commandTable())
	if *updateCommandsPage {
		noError(t, os.WriteFile(page, []byte(guide+heading+strings.TrimRight(want.String(), "\n")+"\n"), 0o644))
		return
	}
	if strings.TrimSpace(reference) != strings.TrimSpace(want.String()) {
		t.Errorf("%s has another reference than the table makes; run go test -run CommandsPage -update-cli .", page)
	}
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 1234 * time.Microsecond: "1.23ms", 123 * time.Millisecond: "123ms", 2500 * time.Millisecond: "2.5s",
		59 * time.Second: "59s", 61 * time.Second: "1m1s", time.Hour: "1h", 25*time.Hour + time.Minute: "1d1h",
		-2 * time.Second: "-2s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%s: got %s; want %s", d, got, want)
		}
	}
}

// TestStyles checks when colours and signs are shown.
func TestStyles(t *testing.T) {
	style := func(env map[string]string) style {
		return (&process{getenv: func(k string) string { return env[k] }}).styleOf(new(bytes.Buffer))
	}
	if s := style(map[string]string{"LANG": "en_GB.utf8"}); !s.unicode || s.colour {
		t.Errorf("got %+v; want signs without colours for a pipe", s)
	}
	if s := style(map[string]string{"LC_ALL": "C", "LANG": "en_GB.UTF-8"}); s.unicode {
		t.Error("got signs; LC_ALL goes before LANG")
	}
	s := style(nil)
	if got := s.state("complete") + s.state("odd"); got != "+ complete. odd" {
		t.Errorf("got %q without UTF-8", got)
	}
	s.colour = true
	if got := s.state("error"); got != "\x1b[31mx\x1b[0m \x1b[31merror\x1b[0m" {
		t.Errorf("got %q with colours", got)
	}
}

// TestAlignment checks that colours do not count for the width of a column, and that a line between rows
// begins new columns.
func TestAlignment(t *testing.T) {
	tb := &table{style: style{colour: true}}
	tb.head("A", "B")
	tb.row(tb.paint(red, "long"), "x")
	tb.line("between")
	tb.row("é", "y")
	var b strings.Builder
	noError(t, tb.write(&b))
	want := "\x1b[1mA\x1b[0m     \x1b[1mB\x1b[0m\n\x1b[31mlong\x1b[0m  x\nbetween\né  y\n"
	if b.String() != want {
		t.Errorf("got %q; want %q", b.String(), want)
	}
}

func TestClippedLines(t *testing.T) {
	for _, tt := range []struct {
		in      string
		columns int
		want    string
	}{
		{"short", 5, "short"}, {"longer", 5, "long…"}, {"äöüß", 3, "äö…"},
		{"\x1b[31mred text\x1b[0m", 8, "\x1b[31mred text\x1b[0m"}, {"\x1b[31mred text\x1b[0m", 4, "\x1b[31mred…\x1b[0m"},
	} {
		if got := clipShown(tt.in, tt.columns); got != tt.want {
			t.Errorf("%q in %d columns: got %q; want %q", tt.in, tt.columns, got, tt.want)
		}
	}
}

// TestDocuments checks that what is not there reads as nothing, and that numbers keep their digits.
func TestDocuments(t *testing.T) {
	d := readDocument([]byte(`{"a": {"b": [1, {"c": "x"}]}, "n": 12345678901234567890.10, "null": null, "0": "zero"}`))
	for path, want := range map[string]string{
		"a.b.1.c": "x", "a.b.0": "1", "a.b.2": "", "a.x.y": "", "n": "12345678901234567890.10", "null": "", "0": "zero",
		"a.b": `[1,{"c":"x"}]`,
	} {
		if got := d.text(path); got != want {
			t.Errorf("%s: got %q; want %q", path, got, want)
		}
	}
	if d := readDocument([]byte("<html>")); d.raw != nil || d.list() != nil {
		t.Errorf("got %s of a page", d.raw)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "größer": "größer", "a\x1b[31mb": `"a\x1b[31mb"`, "a\nb": `"a\nb"`, `say "x"`: `say "x"`,
	} {
		if got := printable(in); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
}
