// Stepwell is a workflow orchestration service in one binary: tasks are runs of templates, whose steps form a
// dependency graph; it keeps them in a journal on disk, runs their steps, and serves an HTTP API for the orchestration
// and the worker role.
//
// The process family starts the service and implements the command line. It may use everything.
//
//	main.go           the process, its commands, exit codes, openapi
//	cli.go            the command line: parsing, help, options
//	cli_output.go     printing output: tables, JSON documents, styles; the door to the terminal
//	cli_completion.go completion
//	cli_client.go     the client of a service: calls, credentials, names of tasks
//	cli_auth.go       auth: keys, tokens, permissions
//	cli_config.go     config, and the flags of keys
//	cli_store.go      store: check, compact, export, import
//	cli_serve.go      serve; signals, lifetime
//	cli_log.go        the queue before standard error, for the log
//	cli_reload.go     watching templates to reload them
//	cli_run.go        run: a workflow without a server
//	cli_explore.go    explore: faults of a workflow
//	cli_task.go       task
//	cli_step.go       step; the answers of a person in a run
//	cli_watch.go      watching a task, as a picture or lines
//	cli_dlq.go        dlq
//	cli_events.go     events: deliveries to subscribers
//	cli_bulk.go       bulk flags, acting on many
//	cli_find.go       find; audit: acts of operators
//	cli_template.go   template
//	cli_analytics.go  analytics: performance, bottlenecks; failures
//	cli_health.go     health, healthcheck
//	cli_mcp.go        mcp: the commands as tools for agents
//	cli_fixture.go    fixture
package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
)

func main() {
	p := process{
		getenv: os.Getenv, environ: os.Environ(), now: realNow,
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}
	p.boundMemory(os.DirFS("/"))
	os.Exit(p.main(context.Background(), os.Args[1:]))
}

// main runs a command line, prints its error, and returns the exit code. Standard error is always a door, even if it is
// a file: the log stays the same JSON, and people may read the file in a terminal later.
func (p *process) main(ctx context.Context, args []string) int {
	p.stderr = &door{w: p.stderr}
	if isTerminal(p.stdout) {
		p.stdout = &door{w: p.stdout}
	}
	err := p.run(ctx, args)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(p.stderr, "stepwell: "+err.Error())
	}
	if q, ok := p.stderr.(*logQueue); ok {
		q.end()
	}
	return exitCode(err)
}

// heapShare is how much of the cgroup's memory the Go runtime may take, in percent.
const heapShare = 90

// boundMemory makes the garbage collector keep within the cgroup's limit, unless the environment says how much memory
// to use.
func (p *process) boundMemory(root fs.FS) {
	if n := cgroupMemory(root); n > 0 && p.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(n / 100 * heapShare)
	}
}

// Garbage is collected when it takes as much memory as what is in use, or garbageBytes if that is less,
// but never before it takes garbageShare percent of what is in use.
const (
	garbageBytes = 32 << 20
	garbageShare = 25

	startGarbageShare = 50 // while the store is read, which makes much garbage: collecting it more often takes longer
)

// setGarbage sets how much garbage there may be, in percent of what is in use, unless the environment does.
func (p *process) setGarbage(percent int) {
	if p.getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// boundGarbage keeps garbage within garbageBytes and garbageShare until ctx ends, unless GOGC is set. It
// looks again after each collection.
func (p *process) boundGarbage(ctx context.Context) {
	if p.getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := 0
	var adapt func(struct{})
	adapt = func(struct{}) {
		if ctx.Err() != nil {
			return
		}
		metrics.Read(live)
		if percent := garbagePercent(live[0].Value.Uint64()); percent != set {
			set = percent
			debug.SetGCPercent(percent)
		}
		runtime.AddCleanup(new([16]byte), adapt, struct{}{}) // called by the next collection
	}
	adapt(struct{}{})
}

// garbagePercent returns how much garbage there may be while live bytes are in use, in percent of these.
func garbagePercent(live uint64) int {
	percent := int(garbageBytes / (live/100 + 1))
	return min(max(percent, garbageShare), 100)
}

// Exit codes of the command line.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3 // a thing of the service, or a file
	exitWorkflow    = 4 // the workflow failed, was cancelled, or is blocked by failures
	exitTimedOut    = 5
	exitRefused     = 6 // 401 or 403
	exitUnreachable = 7
	exitInterrupted = 130 // by SIGINT, as shells have it
)

// exitError is an error with an exit code. An empty message is not printed.
type exitError struct {
	code    int
	message string
	status  int // of the answer, 300 or more; 0 for no refusal
}

func (e *exitError) Error() string { return e.message }

func exitf(code int, format string, args ...any) error {
	return &exitError{code: code, message: fmt.Sprintf(format, args...)}
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
	if errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitFailed
}

// process is what surrounds a command.
type process struct {
	getenv         func(string) string
	environ        []string
	now            func() instant
	ahead          atomic.Int64 // by how much the clock of the service that was called last is ahead, in microseconds
	service        *client      // the service that commands call, whatever flags and the environment say; nil to follow these
	asking         askingRules  // how services are asked
	stdin          io.Reader
	stdout, stderr io.Writer
}

// commands is the command line: parsing, help, completion and docs/reference/cli.md come from this table.
func commands() command {
	return command{name: "stepwell", help: "a workflow orchestration service in one binary", commands: []command{
		serveCommand(),
		runCommand(),
		exploreCommand(),
		taskCommands(),
		stepCommands(),
		dlqCommands(),
		eventsCommands(),
		findCommand(),
		auditCommand(),
		templateCommands(),
		failuresCommand(),
		analyticsCommands(),
		healthCommand(),
		fixtureCommands(),
		authCommands(),
		configCommands(),
		storeCommands(),
		healthcheckCommand(),
		openAPICommand(),
		completionCommand(),
		mcpCommand(),
		{name: "version", help: "print the version, the commit it was built from, and the Go version",
			examples: []string{"version -o json", "version --licenses"}, define: showVersion},
	}}
}

// openAPICommand prints the document of a surface, as it is without a configuration.
func openAPICommand() command {
	surfaces := []string{"orchestration", "worker", "mount"}
	return command{
		name: "openapi", help: "print the OpenAPI document of a role or of the mount point",
		examples: []string{"openapi > openapi.json", "openapi --role worker"},
		define: func(o *options) runner {
			role := o.String("role", "orchestration", "`ROLE`: choose a document: "+anyOf(surfaces))
			return func(context.Context, []string) error {
				if !slices.Contains(surfaces, *role) {
					return o.misuse("--role must be %s, not %q", anyOf(surfaces), *role)
				}
				return o.p.printJSON(json.RawMessage(openAPIForSurface(defaultAPIKeyHeader, defaultConfig().Mount.Path, *role)))
			}
		},
	}
}

// run runs a command line. Flags without a command belong to serve.
func (p *process) run(ctx context.Context, args []string) error {
	// Before anything is parsed: the words to complete are unfinished, and may be anything.
	if len(args) > 0 && args[0] == completeWord {
		return p.complete(args[1:])
	}
	_, rest := leadingFlags(args)
	if len(args) == 0 || len(rest) > 0 && strings.HasPrefix(rest[0], "-") && !isHelp(rest[0]) && !isVersion(rest[0]) {
		args = append([]string{"serve"}, args...)
	}
	err := p.dispatch(ctx, commands(), args)
	if errors.Is(err, flag.ErrHelp) { // the help was printed, as asked
		return nil
	}
	return err
}

func showVersion(o *options) runner {
	o.withOutput()
	licenses := o.Bool("licenses", false, "print the licenses of Go and of the modules in this program")
	return func(context.Context, []string) error {
		if *licenses {
			return o.p.printLicenses()
		}
		info, _ := debug.ReadBuildInfo()
		result := map[string]string{"version": version, "commit": strings.TrimPrefix(builtCommit(info), "commit "),
			"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
		return o.print(output{result, member("version"), func(t *table) { t.line(versionLine(info)) }})
	}
}

func versionLine(info *debug.BuildInfo) string {
	return fmt.Sprintf("stepwell %s (%s, %s, %s/%s)", version, builtCommit(info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (p *process) printVersion() error {
	info, _ := debug.ReadBuildInfo()
	_, err := fmt.Fprintln(p.stdout, versionLine(info))
	return err
}

// licenseTexts are the licenses of the modules in the program, by their paths, and of Go.
//
//go:embed docs/licenses
var licenseTexts embed.FS

func (p *process) printLicenses() error {
	return fs.WalkDir(licenseTexts, "docs/licenses", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, _ := licenseTexts.ReadFile(path) // embedded, so there is no error
		name := strings.TrimSuffix(strings.TrimPrefix(path, "docs/licenses/"), ".txt")
		_, err = fmt.Fprintf(p.stdout, "== %s ==\n\n%s\n", name, text)
		return err
	})
}

// commit is the revision that a build without version control names, such as that of the image: -ldflags "-X main.commit=…".
var commit string

// builtCommit names the commit that a program was built from. "go run" and tests record none.
func builtCommit(info *debug.BuildInfo) string {
	settings := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	revision := cmp.Or(settings["vcs.revision"], commit)
	if revision == "" {
		return "no commit"
	}
	name := "commit " + revision[:min(len(revision), 12)]
	if settings["vcs.modified"] == "true" {
		name += " with changes"
	}
	return name
}
