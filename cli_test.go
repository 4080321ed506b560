package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"sync"
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
		"start":            `unknown command "start"; did you mean serve?`,
		"init":             `unknown command "init"; did you mean serve, which needs no setup?`,
		"status":           `unknown command "status"; did you mean health?`,
		"ls":               `unknown command "ls"; did you mean task list?`,
		"ps":               `unknown command "ps"; did you mean task list?`,
		"logs":             `unknown command "logs"; did you mean task events?`,
		"explain":          `unknown command "explain"; did you mean task explain?`,
		"watch latest":     `unknown command "watch"; did you mean task watch?`,
		"create x":         `unknown command "create"; did you mean task create?`,
		"list":             `unknown command "list"; did you mean task list, `,
		"task status":      `unknown command "status"; did you mean task show?`,
		"-p 8090":          "serve: unknown flag -p; did you mean --listen 127.0.0.1:PORT?",
		"backup":           `unknown command "backup"; did you mean store export?`,
		"validate x":       `unknown command "validate"; did you mean template check or config validate?`,
		"task list --json": "task list: unknown flag --json; did you mean -o json?",
		"auth validate-token " + strings.Repeat("x", 99): `auth validate-token: unexpected argument "` + strings.Repeat("x", 60) + `"`,
		"serve --port=8090":            "serve: unknown flag --port; did you mean --listen 127.0.0.1:PORT?",
		"task list -p 1":               "task list: unknown flag -p",
		"config show listen":           "config show: listen: unknown key; did you mean orchestration.web.listen?",
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

// TestCompletionWords checks the words that complete a command line.
func TestCompletionWords(t *testing.T) {
	for line, want := range map[string]string{
		"": "serve run explore task step dlq events find audit template failures analytics health fixture auth config store " +
			"healthcheck openapi completion mcp version",
		"ta":                          "task",
		"help ta":                     "task",
		"--url http://127.0.0.1:1 ta": "task",
		"--no-h":                      "--no-headers",
		"task s":                      "show",
		"task list --st":              "--status",
		"task list --status err":      "",
		"task list --nope x":          "",
		"nope ":                       "",
		"fixture stub ":               "list add remove",
		"task create x y ":            "",
		"config validate --en":        "--env",
		"task show --no-headers":      "--no-headers",
		"template check ":             "",
	} {
		words := strings.Split(line, " ")
		var got []string
		for word := range strings.Lines(runCLI(nil, "", append([]string{completeWord}, words...)...).stdout) {
			word, _, _ = strings.Cut(word, "\t")
			got = append(got, word)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q: got %q; want %q", line, got, want)
		}
	}
}

// The runner of the scripts in testdata/cli: command lines with their input, output and exit code.

var updateCommands = flag.Bool("update-cli", false, "rewrite the outputs in testdata/cli and docs/reference/cli.md")

// cliScript is a file of testdata/cli. Each of its lines begins with what it is:
//
//	# …                  a comment
//	service: fixture     a service in fixture mode, with fixed ids and a frozen clock, is asked
//	subscriber: NAME     the service sends the domain events of the template t/order to this subscriber
//	needs: TOOL          a tool beside coreTools, without which the script is skipped
//	env: NAME=VALUE      a variable of the environment
//	mask: REGEXP         what differs from run to run, shown as …
//	@ NAME               a file, whose lines follow
//	$ stepwell …         a command line, perhaps with "> FILE" at its end, or a line for sh
//	< …                  a line of its standard input
//	| …                  a line of its standard output, or of a file
//	! …                  a line of its standard error
//	? N                  its exit code, unless it is 0
//
// Commands run one after the other in a directory that is empty at first. What they print is exact: the
// directory is shown as DIR, the service as URL, and the time is scriptTime and a bit. $STEPWELL_URL is the
// service, and sh knows this repository as $REPOSITORY. It finds no tool that a script does not name, so that a
// script runs or is skipped on a machine that has fewer.
type cliScript struct {
	t        *testing.T
	commands instant // so far

	dir, repository string
	tools           string // the directory that is sh's PATH
	env             map[string]string
	masks           []*regexp.Regexp
	places          *strings.Replacer
}

// coreTools are the tools that each script may use: core utilities, which a machine with Go alone has, too.
var coreTools = []string{"chmod", "cp", "head", "ls", "mkdir", "rm", "tail", "touch", "tr", "wc"}

// scriptTime is the time of the command line, 90 s after the beginning of the service's frozen clock.
const scriptTime = deterministicStart + 90_000_000

// TestCommandScripts runs the scripts. One runs alone with -run CommandScripts/NAME.
func TestCommandScripts(t *testing.T) {
	files := must(filepath.Glob("testdata/cli/*.txt"))(t)
	for _, file := range files {
		file = must(filepath.Abs(file))(t)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text := string(readFile(t, file))
			got := newCLIScript(t, text).play(text)
			if *updateCommands {
				noError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			if got != text {
				t.Errorf("another output; run go test -run CommandScripts -update-cli . and read the diff\n%s", firstDifference(text, got))
			}
		})
	}
}

// firstDifference shows where two texts begin to differ, after the command that this belongs to.
func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	command := ""
	for i := 0; i < max(len(a), len(b)); i++ {
		from := func(lines []string) string { return strings.Join(lines[min(i, len(lines)):min(i+8, len(lines))], "\n") }
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d, after %s\ngot:\n%s\nwant:\n%s", i+1, command, from(b), from(a))
		}
		if strings.HasPrefix(a[i], "$") {
			command = a[i]
		}
	}
	return ""
}

func newCLIScript(t *testing.T, text string) *cliScript {
	t.Helper()
	s := &cliScript{t: t, env: map[string]string{"USER": "jo", "GOGC": "100"}}
	places := []string{}
	if strings.Contains("\n"+text, "\nservice: fixture\n") {
		o, subscribers := serviceTest{}, regexp.MustCompile(`(?m)^subscriber: (.*)$`).FindAllStringSubmatch(text, -1)
		if subscribers != nil {
			o.extra = []string{publishing("order", "builtin:echo", "{}", published("order.paid", ""), published("order.billed", ""))}
		}
		o.config = func(c *Config) {
			c.Fixture.DeterministicIDs = "cli"
			for _, m := range subscribers {
				subscribed([]string{m[1], "http://127.0.0.1:1/", "*"})(c)
			}
		}
		w := newFixtureServer(t, o)
		s.env["STEPWELL_URL"] = w.url
		places = append(places, w.url, "URL")
	}
	s.dir, s.repository, s.tools = t.TempDir(), must(os.Getwd())(t), t.TempDir()
	for _, tool := range coreTools {
		s.need(tool)
	}
	t.Chdir(s.dir)
	s.places = strings.NewReplacer(append(places, s.dir, "DIR")...)
	return s
}

// play runs a script, and returns it with the outputs that it has now.
func (s *cliScript) play(text string) string {
	var out strings.Builder
	lines := strings.SplitAfter(text, "\n")
	for len(lines) > 0 {
		line := lines[0]
		lines = lines[1:]
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if kind != "|" && kind != "!" && kind != "?" {
			out.WriteString(line)
		}
		switch kind {
		case "env:":
			name, value, _ := strings.Cut(rest, "=")
			s.env[name] = value
		case "mask:":
			s.masks = append(s.masks, regexp.MustCompile(rest))
		case "@":
			content := takeLines(&lines, "|")
			writeFile(s.t, rest, []byte(content))
			out.WriteString(marked("|", content))
		case "$":
			input := takeLines(&lines, "<")
			out.WriteString(marked("<", input) + s.run(rest, input))
		case "needs:":
			s.need(rest)
		case "|", "!", "?", "<", "", "#", "service:", "subscriber:":
		default:
			s.t.Fatalf("%q begins with no mark", line)
		}
	}
	return out.String()
}

// need lets sh find a tool.
func (s *cliScript) need(tool string) {
	noError(s.t, os.Symlink(wire.Need(s.t, tool), filepath.Join(s.tools, tool)))
}

// takeLines takes the next lines with a mark, and returns their text.
func takeLines(lines *[]string, mark string) string {
	var text strings.Builder
	for len(*lines) > 0 && strings.HasPrefix((*lines)[0], mark) {
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix((*lines)[0], mark), " "))
		*lines = (*lines)[1:]
	}
	return text.String()
}

// marked puts a mark before each line of a text.
func marked(mark, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(mark+" "+strings.TrimSuffix(line, "\n"), " ") + "\n")
	}
	return b.String()
}

// run runs a line, and returns what it prints and its exit code.
func (s *cliScript) run(line, input string) string {
	var r cliResult
	if rest, ours := strings.CutPrefix(line, "stepwell"); ours {
		command, file, redirected := strings.Cut(rest, " > ")
		r = s.stepwell(shellWords(strings.ReplaceAll(command, "$STEPWELL_URL", s.env["STEPWELL_URL"])), input)
		if redirected {
			writeFile(s.t, file, []byte(r.stdout))
			r.stdout = ""
		}
	} else {
		r = s.shell(line, input)
	}
	out := marked("|", s.shown(r.stdout)) + marked("!", s.shown(r.stderr))
	if r.code != 0 {
		out += fmt.Sprintf("? %d\n", r.code)
	}
	return out
}

// stepwell runs a command line in this process. Its standard input ends with the input, or, for serve, when
// the service is ready.
func (s *cliScript) stepwell(args []string, input string) cliResult {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	in := configInput{env: s.env}
	out, errOut := &signallingBuffer{written: make(chan struct{})}, new(signallingBuffer)
	s.commands++ // bench makes keys of the time
	now := scriptTime + s.commands
	p := &process{getenv: in.getenv, environ: in.environ(), now: func() instant { return now },
		stdin: strings.NewReader(input), stdout: out, stderr: errOut}
	if len(args) > 0 && args[0] == "serve" {
		p.stdin = readerFunc(func([]byte) (int, error) {
			select {
			case <-out.written:
			case <-ctx.Done():
			}
			return 0, io.EOF
		})
	}
	code := p.main(ctx, args)
	return cliResult{out.String(), errOut.String(), code}
}

func (s *cliScript) shell(line, input string) cliResult {
	var out, errOut bytes.Buffer
	c := exec.CommandContext(s.t.Context(), "sh", "-c", line)
	c.Env = append(os.Environ(), "REPOSITORY="+s.repository, "PATH="+s.tools)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(input), &out, &errOut
	c.Run()
	return cliResult{out.String(), errOut.String(), c.ProcessState.ExitCode()}
}

// shown returns an output without what differs from run to run.
func (s *cliScript) shown(text string) string {
	text = s.places.Replace(text)
	for _, m := range s.masks {
		text = m.ReplaceAllString(text, "…")
	}
	return text
}

// signallingBuffer tells when something was written to it.
type signallingBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed by the first write; nil for none
}

func (b *signallingBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text.Len() == 0 && b.written != nil {
		close(b.written)
	}
	return b.text.Write(p)
}

func (b *signallingBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
