// Stepwell is a workflow orchestration service in one binary: tasks are runs of
// templates, whose steps form a dependency graph; it keeps them in a journal on
// disk, runs their steps, and serves an HTTP API for the orchestration and the
// worker role.
//
// The process family starts the service and implements the command line. It may
// use everything.
//
//	main.go       the process: its commands, their flags and exit codes
//	cli.go        config, store and healthcheck
//	cli_auth.go   auth: keys, tokens and permissions
//	cli_serve.go  serve: opening the service, announcing it and shutting it down
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"
	"text/tabwriter"
)

func main() {
	p := process{
		getenv: os.Getenv, environ: os.Environ(), now: realNow,
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}
	p.boundMemory(os.DirFS("/"))
	err := p.run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "stepwell: "+err.Error())
	}
	os.Exit(exitCode(err))
}

// heapShare is how much of the cgroup's memory the Go runtime may take, in percent.
const heapShare = 90

// boundMemory has the garbage collector keep within the cgroup's limit, unless the
// environment says how much memory to use.
func (p *process) boundMemory(root fs.FS) {
	if n := cgroupMemory(root); n > 0 && p.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(n / 100 * heapShare)
	}
}

// Exit codes of the command line.
const (
	exitFailed = 1
	exitUsage  = 2
)

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// process is the surroundings of a command.
type process struct {
	getenv         func(string) string
	environ        []string
	now            func() instant
	stdin          io.Reader
	stdout, stderr io.Writer
}

// command is a word of the command line: it runs, or groups further commands.
type command struct {
	name     string
	operands string // after the flags, as the usage shows them
	help     string
	run      func(ctx context.Context, args []string) error
	commands []command
}

func (p *process) commands() []command {
	return []command{
		{name: "serve", help: "serve the API (the default command)", run: p.serve},
		{name: "auth", help: "make keys and tokens, show permissions", commands: p.authCommands()},
		{name: "config", help: "show the effective configuration, or check files", commands: []command{
			{name: "show", help: "show the effective configuration and where each value comes from", run: p.configShow},
			{name: "validate", operands: "[FILE…]", help: "check files, in the order in which they are read",
				run: p.configValidate},
		}},
		{name: "store", help: "check, compact, export or import the files of a data directory", commands: []command{
			{name: "check", help: "report what a start would make of the files; changes nothing", run: p.storeCheck},
			{name: "compact", help: "write a snapshot and empty the journal", run: p.storeCompact},
			{name: "export", operands: "[FILE]", help: "write the whole state as one JSON document; changes nothing",
				run: p.storeExport},
			{name: "import", operands: "FILE",
				help: "fill an empty directory from such a document; - is standard input", run: p.storeImport},
		}},
		{name: "healthcheck", help: "ask a running service whether it is alive; for container probes", run: p.healthcheck},
		{name: "version", help: "print the version", run: p.version},
	}
}

// run runs a command line. Flags without a command belong to serve.
func (p *process) run(ctx context.Context, args []string) error {
	root := command{name: "stepwell", commands: p.commands()}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") && !isHelp(args[0]) {
		args = append([]string{"serve"}, args...)
	}
	err := p.dispatch(ctx, root, args)
	if errors.Is(err, flag.ErrHelp) { // the help was printed, as asked
		return nil
	}
	return err
}

// dispatch runs the command of a group that the arguments name.
func (p *process) dispatch(ctx context.Context, group command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("missing command\n%s", strings.TrimSpace(group.usage()))
	case isHelp(args[0]):
		_, err := io.WriteString(p.stdout, group.usage())
		return err
	}
	for _, c := range group.commands {
		if c.name == args[0] && c.run != nil {
			return c.run(ctx, args[1:])
		}
		if c.name == args[0] {
			c.name = group.name + " " + c.name
			return p.dispatch(ctx, c, args[1:])
		}
	}
	return usagef("unknown command %q\n%s", args[0], strings.TrimSpace(group.usage()))
}

func isHelp(arg string) bool {
	return arg == "help" || arg == "-h" || arg == "-help" || arg == "--help"
}

// usage lists the commands of a group.
func (c command) usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s <command> [flags]\n\n", c.name)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, sub := range c.commands {
		fmt.Fprintf(w, "  %s\t%s\n", strings.TrimSpace(sub.name+" "+sub.operands), sub.help)
	}
	w.Flush()
	fmt.Fprintf(&b, "\n\"%s <command> --help\" shows more about a command.\n", c.name)
	return b.String()
}

func (p *process) version(context.Context, []string) error {
	fmt.Fprintln(p.stdout, "stepwell "+version)
	return nil
}

// options are the flags of a command.
type options struct {
	*flag.FlagSet
	operands string  // for the usage
	output   *string // -o; nil when the command does not have it
}

// newOptions returns the options of a command, which is named as in "store check".
func newOptions(name, operands string) *options {
	o := &options{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), operands: operands}
	o.SetOutput(io.Discard)
	o.Usage = func() {}
	return o
}

// withOutput adds the flag -o, for print.
func (o *options) withOutput() *options {
	o.output = o.String("o", "table", "output: `table|json`")
	return o
}

// parse parses flags, which may stand before or after at most limit operands, and
// returns the operands. If the arguments ask for help, it is written to help and
// the error is flag.ErrHelp; any other error is a *usageError.
func (o *options) parse(args []string, limit int, help io.Writer) (operands []string, err error) {
	for {
		switch err := o.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			o.printHelp(help)
			return nil, err
		case err != nil:
			return nil, o.misuse("%v", err)
		}
		rest := o.Args()
		if len(rest) == 0 {
			break
		}
		taken := 1
		if at := len(args) - len(rest) - 1; at >= 0 && args[at] == "--" {
			taken = len(rest)
		}
		if len(operands)+taken > limit {
			return nil, o.misuse("unexpected argument %q", rest[limit-len(operands)])
		}
		operands, args = append(operands, rest[:taken]...), rest[taken:]
	}
	if o.output != nil && *o.output != "table" && *o.output != "json" {
		return nil, o.misuse("-o must be table or json, not %q", *o.output)
	}
	return operands, nil
}

func (o *options) printHelp(w io.Writer) {
	fmt.Fprintf(w, "usage: stepwell %s\n\n", strings.TrimSpace(o.Name()+" [flags] "+o.operands))
	o.VisitAll(func(f *flag.Flag) {
		operand, help := flag.UnquoteUsage(f)
		dashes := strings.Repeat("-", min(len(f.Name), 2))
		if f.DefValue != "" && f.DefValue != "false" {
			help += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  %s\n        %s\n", strings.TrimSpace(dashes+f.Name+" "+operand), help)
	})
}

// misuse returns a *usageError of the command.
func (o *options) misuse(format string, args ...any) error {
	return usagef("%s: %s", o.Name(), fmt.Sprintf(format, args...))
}

// print writes a result as -o says: as JSON, or as the aligned columns that table
// writes.
func (p *process) print(o *options, result any, table func(w io.Writer)) error {
	if *o.output == "json" {
		e := json.NewEncoder(p.stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(result)
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}
