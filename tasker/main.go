// Command tasker moves tasks and templates between Stepwell and Tasker, the distributed service with the same API.
//
//	main.go, client.go, answers.go  the commands, requests, and what both services say about a task and its template
//	export.go, obstacles.go         which tasks of Stepwell move, the hold that stops them there, what keeps a task back
//	rows.go, hashed.go, *.sql       the rows of a task in the database of Tasker, its identity, the script for psql
//	pull.go, replay.go              tasks of Tasker as the lines of a store, the order in which their records happened
//	template.go                     what Tasker refuses, ignores or changes of a template
//
// It shares no code with the service: it knows both by their HTTP APIs, the lines that "stepwell store import" reads,
// and the tables of Tasker's database.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// Exit codes, which are those of stepwell.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 6
	exitUnreachable = 7
)

// failure is an error with an exit code.
type failure struct {
	code    int
	message string
	status  int // of the HTTP response; 0 for none
}

func (f *failure) Error() string { return f.message }

func failf(code int, format string, args ...any) *failure {
	return &failure{code: code, message: fmt.Sprintf(format, args...)}
}

// program is what a command needs of the process.
type program struct {
	getenv         func(string) string
	stdout, stderr io.Writer
	now            func() time.Time
	stepwell       string // the file of the program stepwell, which reads templates
	most           int64  // bytes of a reply; 0 for the default
}

const usage = `tasker moves tasks and templates between Stepwell and Tasker:

  tasker export --url URL --hold PLACE > tasks.sql             tasks of Stepwell, as a script for psql
  tasker pull URL TASK... --worker-url URL > pulled.jsonl      tasks of Tasker, for stepwell store import
  tasker check [--config FILE] TEMPLATE...                     what Tasker refuses, ignores or changes of templates
  tasker convert TEMPLATE > template.yaml                      a template that Tasker accepts

tasker COMMAND --help lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := &program{getenv: os.Getenv, stdout: os.Stdout, stderr: os.Stderr, now: time.Now}
	os.Exit(p.main(ctx, os.Args[1:]))
}

// main runs a command and returns the exit code.
func (p *program) main(ctx context.Context, args []string) int {
	err := p.run(ctx, args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(p.stderr, "tasker: "+printable(err.Error()))
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return exitFailed
}

func (p *program) run(ctx context.Context, args []string) error {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&p.stepwell, "stepwell", p.stepwell, "the `FILE` of stepwell, by default beside this program or in PATH")
	define := map[string]func(*flag.FlagSet) func(context.Context, []string) error{
		"export": p.exportCommand, "pull": p.pullCommand, "check": p.checkCommand, "convert": p.convertCommand,
	}[name]
	switch {
	case name == "help" || name == "--help" || name == "-h":
		fmt.Fprint(p.stdout, usage)
		return nil
	case define == nil:
		return failf(exitUsage, "there is no command %q: give export, pull, check or convert", name)
	}
	run := define(flags)
	operands, err := parse(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, usage+"\nFlags of "+name+":\n")
		flags.SetOutput(p.stdout)
		flags.PrintDefaults()
	}
	if err != nil {
		return err
	}
	return run(ctx, operands)
}

// parse parses flags, which may also follow operands, and returns the operands.
func parse(flags *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, failf(exitUsage, "%s: %v", flags.Name(), err)
		}
		if flags.NArg() == 0 {
			return operands, nil
		}
		operands, args = append(operands, flags.Arg(0)), flags.Args()[1:]
	}
}

// callStepwell runs the program stepwell, and returns what it prints.
func (p *program) callStepwell(ctx context.Context, args ...string) ([]byte, error) {
	file := p.stepwell
	if file == "" {
		file = "stepwell"
		if own, err := os.Executable(); err == nil {
			beside := filepath.Join(filepath.Dir(own), "stepwell")
			if _, err := os.Stat(beside); err == nil {
				file = beside
			}
		}
	}
	c := exec.CommandContext(ctx, file, args...)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	err := c.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, failf(ended.ExitCode(), "%s", strings.TrimPrefix(strings.TrimSpace(said.String()), "stepwell: "))
	} else if err != nil {
		return nil, failf(exitUsage, "templates are read by stepwell, which cannot be run: %v; give --stepwell FILE", err)
	}
	return out.Bytes(), nil
}

// convert has stepwell convert a definition to another form.
func (p *program) convert(ctx context.Context, definition []byte, form string) (text []byte, err error) {
	dir, err := os.MkdirTemp("", "tasker-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "template.json")
	if err = os.WriteFile(file, definition, 0o600); err == nil {
		text, err = p.callStepwell(ctx, "template", "convert", "--to", form, file)
	}
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), file, filepath.Base(file)))
	}
	return text, nil
}

// printable returns a text with an escape for each character that can mislead a terminal or its reader, except for line
// breaks.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// say prints lines to standard error. Texts of a service stay on their line.
func (p *program) say(format string, args ...any) {
	fmt.Fprintln(p.stderr, printable(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", `\n`)))
}

// counted returns a number with the right form of a word.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
