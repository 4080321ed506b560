// Stepwell is a workflow orchestration service in one binary: tasks are runs of
// templates, whose steps form a dependency graph; it keeps them in a journal on
// disk, runs their steps, and serves an HTTP API for the orchestration and the
// worker role.
//
// The process family starts the service and implements the command line. It may
// use everything.
//
//	main.go       the process, its commands and exit codes
//	cli.go        config, store, healthcheck and openapi
//	cli_auth.go   auth: keys, tokens and permissions
//	cli_client.go the HTTP client of the commands: credentials, errors, names of tasks and steps
//	cli_help.go   the table of commands: parsing, help, completion and the page docs/cli.md
//	cli_output.go tables, JSON, colours
//	cli_run.go    run: a workflow without a server
//	cli_serve.go  serve: opening the service, announcing it and shutting it down
//	cli_task.go   task and step
//	cli_verbs.go  dlq, template, analytics, health and fixture
//	cli_watch.go  following a task, as a picture of its steps on a terminal or as lines
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"
)

func main() {
	p := process{
		getenv: os.Getenv, environ: os.Environ(), now: realNow,
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}
	p.boundMemory(os.DirFS("/"))
	err := p.run(context.Background(), os.Args[1:])
	if err != nil && err.Error() != "" {
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
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitWorkflow    = 4 // the workflow failed, was cancelled, or is blocked by failures
	exitTimedOut    = 5
	exitRefused     = 6 // 401 or 403
	exitUnreachable = 7
	exitInterrupted = 130 // by SIGINT, as shells have it
)

// exitError is an error with an exit code of its own. An empty message is not printed.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

func exitf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Sprintf(format, args...)}
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
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

// commands is the command line: parsing, help, completion and docs/cli.md come from this table.
func (p *process) commands() command {
	return command{name: "stepwell", help: "a workflow orchestration service in one binary", commands: []command{
		p.serveCommand(),
		p.runCommand(),
		p.taskCommands(),
		p.stepCommands(),
		p.dlqCommands(),
		p.templateCommands(),
		p.analyticsCommands(),
		p.healthCommand(),
		p.fixtureCommands(),
		p.authCommands(),
		p.configCommands(),
		p.storeCommands(),
		p.healthcheckCommand(),
		p.openAPICommand(),
		p.completionCommand(),
		{name: "version", help: "print the version", examples: []string{"version", "--version"}, define: p.version},
	}}
}

// run runs a command line. Flags without a command belong to serve.
func (p *process) run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == completeWord {
		return p.complete(ctx, args[1:])
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") && !isHelp(args[0]) && !isVersion(args[0]) {
		args = append([]string{"serve"}, args...)
	}
	err := p.dispatch(ctx, p.commands(), args)
	if errors.Is(err, flag.ErrHelp) { // the help was printed, as asked
		return nil
	}
	return err
}

func (p *process) version(*options) runner {
	return func(context.Context, []string) error {
		fmt.Fprintln(p.stdout, "stepwell "+version)
		return nil
	}
}
