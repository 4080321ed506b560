// Stepwell is a workflow orchestration service in one binary: tasks are runs of
// templates, whose steps form a dependency graph; it keeps them in a journal on
// disk, runs their steps, and serves an HTTP API for the orchestration and the
// worker role.
//
// main.go starts and stops the process; routes.go is the map of everything else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx := endOnSignal()
	p := process{getenv: os.Getenv, environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	err := p.run(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		err = nil // the help was printed, as asked
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "stepwell: "+err.Error())
	}
	os.Exit(exitCode(err))
}

// endOnSignal is a context that ends with the first signal. Before it does, a
// second one ends the process at once again, as the system has it.
func endOnSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals)
		if len(signals) > 0 { // it came before Stop returned
			os.Exit(exitFailed)
		}
		cancel()
	}()
	return ctx
}

// process is what the operating system gives a command.
type process struct {
	getenv         func(string) string
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
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

// command is one subcommand; the first word after the program's name.
type command struct {
	name, help string
	run        func(ctx context.Context, args []string) error
}

func (p *process) commands() []command {
	return []command{
		{"serve", "serve the API (what stepwell does without a command)", p.serve},
		{"auth", "make keys and tokens, show permissions", p.auth},
		{"config", "show the effective configuration, or check files", p.config},
		{"store", "check, compact, export or import the files of a data directory", p.storeTool},
		{"healthcheck", "ask a running service whether it lives; for container probes", p.healthcheck},
		{"version", "print the version", p.version},
	}
}

// run finds the command and runs it. Flags without a command belong to serve.
func (p *process) run(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") && !isHelp(args[0]) {
		return p.serve(ctx, args)
	}
	if isHelp(args[0]) || args[0] == "help" {
		p.usage(p.stdout)
		return nil
	}
	for _, c := range p.commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:])
		}
	}
	p.usage(p.stderr)
	return usagef("there is no command %q", args[0])
}

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

func (p *process) usage(w io.Writer) {
	fmt.Fprintln(w, "stepwell runs workflows. Usage: stepwell [command] [flags]")
	for _, c := range p.commands() {
		fmt.Fprintf(w, "  %-12s %s\n", c.name, c.help)
	}
	fmt.Fprintln(w, "stepwell serve -h lists the flags of serving.")
}

func (p *process) version(context.Context, []string) error {
	fmt.Fprintln(p.stdout, "stepwell "+version)
	return nil
}
