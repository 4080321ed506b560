package main

// The runner of the scripts in testdata/cli: command lines with their input, output and exit code.

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
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"testing"
	"time"
)

var updateCommands = flag.Bool("update-cli", false, "rewrite the outputs in testdata/cli and docs/reference/cli.md")

// cliScript is a file of testdata/cli. Each of its lines begins with what it is:
//
//	# …                  a comment
//	service: fixture     a service in fixture mode, with fixed ids and a frozen clock, is asked
//	subscriber: NAME     the service sends the domain events of the template t/order to this subscriber
//	needs: TOOL          a tool without which the script is skipped
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
// service, and sh knows this repository as $REPOSITORY.
type cliScript struct {
	t        *testing.T
	commands instant // so far

	dir, repository string
	env             map[string]string
	masks           []*regexp.Regexp
	places          *strings.Replacer
}

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
	s.dir, s.repository = t.TempDir(), must(os.Getwd())(t)
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
			wire.Need(s.t, rest)
		case "|", "!", "?", "<", "", "#", "service:", "subscriber:":
		default:
			s.t.Fatalf("%q begins with no mark", line)
		}
	}
	return out.String()
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
	c.Env = append(os.Environ(), "REPOSITORY="+s.repository)
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
