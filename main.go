// Stepwell is a workflow orchestration service in one binary: tasks are runs of
// templates, whose steps form a dependency graph; it keeps them in a journal on
// disk, runs their steps, and serves an HTTP API for the orchestration and the
// worker role.
//
// The process family starts the service and implements the command line. It may
// use everything.
//
//	main.go           the process, its commands, exit codes
//	cli.go            the command line: parsing, help, options
//	cli_output.go     printing output: tables, JSON documents, styles
//	cli_completion.go completion
//	cli_client.go     the client of a service: calls, refusals, names of tasks
//	cli_auth.go       auth: keys, tokens, permissions
//	cli_config.go     config, and the flags of keys
//	cli_store.go      store: check, compact, export, import, repair
//	cli_serve.go      serve
//	cli_signals.go    signals, lifetime
//	cli_reload.go     watching templates to reload them
//	cli_run.go        run: a workflow without a server
//	cli_task.go       task
//	cli_step.go       step
//	cli_watch.go      watching a task, as a picture or lines
//	cli_dlq.go        dlq
//	cli_template.go   template
//	cli_analytics.go  analytics: performance, bottlenecks
//	cli_health.go     health, healthcheck
//	cli_bench.go      bench
//	cli_fixture.go    fixture
//	cli_openapi.go    openapi
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"
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

// Garbage is collected when it takes as much memory as what is in use, or garbageBytes if that is less,
// but never before it takes garbageShare percent of what is in use.
const (
	garbageBytes = 64 << 20
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

// garbagePercent returns how much garbage there may be with so many bytes in use, in percent of these.
func garbagePercent(live uint64) int {
	percent := int(garbageBytes / (live/100 + 1))
	return min(max(percent, garbageShare), 100)
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

// exitError is an error with an exit code. An empty message is not printed.
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
		p.benchCommand(),
		p.fixtureCommands(),
		p.authCommands(),
		p.configCommands(),
		p.storeCommands(),
		p.healthcheckCommand(),
		p.openAPICommand(),
		p.completionCommand(),
		{name: "version", help: "print the version, the commit it was built from, and the Go version", examples: []string{"version", "--version"}, define: p.version},
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
		info, _ := debug.ReadBuildInfo()
		_, err := fmt.Fprintf(p.stdout, "stepwell %s (%s, %s, %s/%s)\n",
			version, builtCommit(info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
}

// builtCommit names the commit that a program was built from. "go run" and tests record none.
func builtCommit(info *debug.BuildInfo) string {
	if info == nil {
		return "no commit"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return "no commit"
	}
	name := "commit " + revision[:min(len(revision), 12)]
	if settings["vcs.modified"] == "true" {
		name += " with changes"
	}
	return name
}

func (p *process) configCommands() command {
	return command{name: "config", help: "show the effective configuration, or check files", commands: []command{
		{
			name: "show", help: "show the effective configuration and where each value comes from",
			more:     "It takes the flags of serve.",
			examples: []string{"config show", "config show --listen 0.0.0.0:80 -o json"}, define: p.configShow,
		},
		{
			name: "validate", operands: "[FILE…]", help: "check files, in the order in which they are read",
			examples: []string{"config validate", "config validate base.toml production.toml"}, define: p.configValidate,
		},
	}}
}

func (p *process) configShow(o *options) runner {
	a := new(serveArgs)
	o.withOutput()
	serveFlags(o, a)
	return func(context.Context, []string) error { return p.showConfig(o, a) }
}

func (p *process) showConfig(o *options, a *serveArgs) error {
	c, origin, err := p.loadConfig(a.configArgs, p.environ)
	if err != nil {
		return err
	}
	for _, w := range origin.warnings {
		fmt.Fprintln(p.stderr, "warning: "+w)
	}
	rows := configRows(c, origin)
	return p.print(o, output{rows, member("key"), func(t *table) {
		t.head("KEY", "VALUE", "SOURCE")
		for _, r := range rows {
			path := r.Key
			if r.Entry != "" {
				path = joinConfigPath(path, r.Entry)
			}
			t.row(path, tomlLiteral(r.Value), r.Source)
		}
	}})
}

// configValidate checks files, alone and together. It ignores variables that set
// keys, because only the files are in question.
func (p *process) configValidate(o *options) runner {
	var a configArgs
	keyFlag(o, configKeyAt("environment"), &a)
	return func(_ context.Context, files []string) error {
		a.files = files
		_, origin, err := p.loadConfig(a, nil)
		if err != nil {
			return err
		}
		if len(origin.files) == 0 {
			return fmt.Errorf("config validate: no %s here, and no file named", defaultConfigFile)
		}
		_, err = fmt.Fprintln(p.stdout, "ok")
		return err
	}
}

// The store commands work on the files of a data directory that no service uses.

func (p *process) storeCommands() command {
	return command{name: "store", help: "check, compact, export, import or repair the files of a data directory", commands: []command{
		{
			name: "check", help: "report what a start would make of the files; changes nothing",
			examples: []string{"store check", "store check --data /var/lib/stepwell"}, define: p.storeCheck,
		},
		{
			name: "compact", help: "write a snapshot and empty the journal; no service may use the directory",
			examples: []string{"store compact", "store compact --data /var/lib/stepwell"}, define: p.storeCompact,
		},
		{
			name: "export", operands: "[FILE]", help: "write the whole state as one JSON document, to standard output without FILE",
			more:     "It changes nothing, and a service may be using the directory.",
			examples: []string{"store export state.json", "store export | jq '.tasks | length'"}, define: p.storeExport,
		},
		{
			name: "import", operands: "FILE", help: "fill an empty directory from such a document; - is standard input",
			examples: []string{"store import state.json", "store import --data new -"}, define: p.storeImport,
		},
		{
			name: "repair", operands: "[NEWDIR]", help: "write what is sound of a damaged store as a new one, and say what is lost",
			more:     "The new store is DIR.repaired without NEWDIR. The damaged one stays as it is.",
			examples: []string{"store repair", "store repair --data /var/lib/stepwell /var/lib/stepwell-new"}, define: p.storeRepair,
		},
	}}
}

// dataFlag adds the flag for the data directory.
func dataFlag(o *options) *string { return o.String("data", "./stepwell-data", "the data `DIR`") }

// storeCheck reads every line and applies every record.
func (p *process) storeCheck(o *options) runner {
	dir := dataFlag(o)
	return func(context.Context, []string) error { return p.checkStore(*dir) }
}

// storeCompact writes a snapshot and empties the journal.
func (p *process) storeCompact(o *options) runner {
	dir := dataFlag(o)
	return func(context.Context, []string) error { return p.compactStore(*dir) }
}

// storeExport writes the state to a file or standard output. It takes no lock.
func (p *process) storeExport(o *options) runner {
	dir := dataFlag(o)
	return func(_ context.Context, files []string) error { return p.exportStore(*dir, files) }
}

// storeImport fills an empty directory from an exported state.
func (p *process) storeImport(o *options) runner {
	dir := dataFlag(o)
	return func(_ context.Context, files []string) error { return p.importStore(*dir, files) }
}

// storeRepair writes what is sound of a store as a new one beside it.
func (p *process) storeRepair(o *options) runner {
	dir := dataFlag(o)
	return func(_ context.Context, to []string) error { return p.repairStore(*dir, to) }
}

// healthcheck asks a running service whether it is alive or ready.
func (p *process) healthcheckCommand() command {
	return command{
		name: "healthcheck", help: "ask a running service whether it is alive; for container probes",
		examples: []string{"healthcheck", "healthcheck --ready --timeout 1s"}, define: p.healthcheck,
	}
}

func (p *process) healthcheck(o *options) runner {
	url := o.String("url", "", "`URL` of the service; by default that of the configured listener")
	ready := o.Bool("ready", false, "ask whether it is ready, not only alive")
	timeout := o.Duration("timeout", 3*time.Second, "give up after `DURATION`")
	return func(ctx context.Context, _ []string) error {
		if *url == "" {
			c, _, err := loadConfig(configArgs{}, p.getenv, p.environ, os.ReadFile)
			if err != nil {
				return err
			}
			first := "orchestration"
			if c.Role == "worker" {
				first = "worker"
			}
			*url = reachableURL(c.listen(first))
		}
		path := "/health/live"
		if *ready {
			path = "/health/ready"
		}
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		return p.probe(ctx, strings.TrimRight(*url, "/")+path)
	}
}

func (p *process) probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usagef("%v", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking for health: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("asking for health: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	fmt.Fprintf(p.stdout, "%s", body)
	return nil
}

// openAPICommand prints the document of a surface, as it is without a configuration.
func (p *process) openAPICommand() command {
	surfaces := []string{"orchestration", "worker", "mount"}
	return command{
		name: "openapi", help: "print the OpenAPI document of a role or of the mount point",
		examples: []string{"openapi > openapi.json", "openapi --role worker"},
		define: func(o *options) runner {
			role := o.String("role", "orchestration", "the `ROLE`: "+anyOf(surfaces))
			return func(context.Context, []string) error {
				if !slices.Contains(surfaces, *role) {
					return o.misuse("--role must be %s, not %q", anyOf(surfaces), *role)
				}
				document, err := openAPIForSurface(defaultAPIKeyHeader, nil, *role)
				if err != nil {
					return err
				}
				return p.printJSON(json.RawMessage(document))
			}
		},
	}
}
