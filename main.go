// Stepwell is a workflow orchestration service in one binary: tasks are runs of
// templates, whose steps form a dependency graph; it keeps them in a journal on
// disk, runs their steps, and serves an HTTP API for the orchestration and the
// worker role.
//
// The process family starts the service and implements the command line. It may
// use everything.
//
//	main.go       the process, its commands and exit codes; config, store, healthcheck and openapi
//	cli.go        the table of commands: parsing, help, completion and the page docs/cli.md; printing tables, JSON, colours
//	cli_client.go the HTTP client of the commands: credentials, errors, names of tasks and steps; auth: keys, tokens, permissions
//	cli_serve.go  serve: opening the service, announcing it and shutting it down; run, a workflow without a server
//	cli_task.go   task and step; bench, load on a service and what came of it
//	cli_verbs.go  dlq, template, analytics, health and fixture
//	cli_watch.go  following a task, as a picture of its steps on a terminal or as lines
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
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

// serveArgs is the command line of serve.
type serveArgs struct {
	configArgs
	seed       string // --seed; "" for none
	readyFile  string // --ready-file; "" for none
	printReady bool
	readOnly   bool
	dev        bool

	exitWithParent bool
	maxLifetime    time.Duration // 0 for no end
}

// serveFlags defines the flags of serve: those of the table of keys, and others.
func serveFlags(o *options, a *serveArgs) {
	configFileFlag(o, &a.configArgs)
	for i := range configKeys {
		keyFlag(o, &configKeys[i], &a.configArgs)
	}
	handlerFlag(o, &a.configArgs)
	o.StringVar(&a.seed, "seed", "", "start with the state in `FILE`, written by \"store export\"; the store must be empty")
	o.BoolVar(&a.readOnly, "read-only", false,
		"show what is sound of the store in the data directory; change no file and run no step")
	o.BoolVar(&a.dev, "dev", false, "for development: --watch, and a log of text unless log.format is set by a flag")
	o.BoolVar(&a.quiet, "quiet", false, "no start-up banner")
	o.StringVar(&a.readyFile, "ready-file", "", "write `FILE`, as JSON, once requests are served")
	o.BoolVar(&a.printReady, "print-ready", false, "print the URLs, the pid and the version as JSON on the first line of standard output")
	o.BoolVar(&a.exitWithParent, "exit-with-parent", false,
		"exit when standard input, a pipe from the parent process, is closed")
	o.Func("max-lifetime", "exit after `DURATION`, like 30m", func(text string) error {
		d, err := time.ParseDuration(text)
		if err == nil && d <= 0 {
			err = errors.New("must be more than 0")
		}
		a.maxLifetime = d
		return err
	})
}

// checkReadOnly refuses --read-only where there are no files that can be read alone.
func (a *serveArgs) checkReadOnly(c *Config) error {
	with := ""
	switch {
	case !a.readOnly:
	case a.seed != "":
		with = "--seed"
	case c.Store.Memory:
		with = "--memory"
	case c.Fixture.Enabled:
		with = "--fixture"
	case c.Role == "worker":
		with = "the worker role alone"
	}
	if with != "" {
		return usagef("serve: --read-only cannot be combined with %s", with)
	}
	return nil
}

func configFileFlag(o *options, a *configArgs) {
	o.Func("config", "read `FILE` (repeatable; default $STEPWELL_CONFIG, then ./stepwell.toml)",
		func(name string) error {
			if name == "" {
				return errors.New("missing file name")
			}
			a.files = append(a.files, name)
			return nil
		})
}

// handlerFlag defines --handler, which sets worker.handlers.
func handlerFlag(o *options, a *configArgs) {
	handlers := map[string]string{}
	o.Func("handler", "let a handler run a callable: `CALLABLE=URL` or CALLABLE=exec:PROGRAM (repeatable; in place of [worker.handlers])",
		func(text string) error {
			callable, handler, ok := strings.Cut(text, "=")
			if !ok || callable == "" || handler == "" {
				return errors.New("want CALLABLE=URL or CALLABLE=exec:PROGRAM")
			}
			handlers[callable] = handler
			table, _ := json.Marshal(handlers) // strings
			if a.flags == nil {
				a.flags = make(map[string]string)
			}
			a.flags["worker.handlers"] = string(table)
			return new(handlerSet).check(handler)
		})
}

// keyFlag defines the flag of a key, if it has one.
func keyFlag(o *options, k *configKey, a *configArgs) {
	if k.flag == "" {
		return
	}
	_, isList := k.def.([]string)
	set := func(text string) error {
		if a.flags == nil {
			a.flags = make(map[string]string)
		}
		if earlier, ok := a.flags[k.path]; ok && isList {
			text = earlier + "," + text
		}
		a.flags[k.path] = text
		return nil
	}
	if _, ok := k.def.(bool); ok {
		o.BoolFunc(k.flag, k.help, set)
		return
	}
	help := k.help
	if def := tomlLiteral(k.def); def != `""` && def != "[]" {
		help += " (default " + def + ")"
	}
	o.keyOperands[k.flag] = k.operand
	o.Func(k.flag, help, set)
}

// loadConfig loads the configuration and checks the handlers that it names. Keys
// are set by the variables in environ.
func (p *process) loadConfig(args configArgs, environ []string) (*Config, *provenance, error) {
	c, origin, err := loadConfig(args, p.getenv, environ, os.ReadFile)
	if err == nil {
		err = checkConfigCallables(c, origin, new(handlerSet).check)
	}
	return c, origin, err
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

// configRow is one line of "config show": a key, or an entry of a table.
type configRow struct {
	Key    string `json:"key"` // or the path of a table in its value
	Entry  string `json:"entry,omitempty"`
	Value  any    `json:"value"` // without secrets
	Source string `json:"source"`
}

// configRows lists the values in the order of the table of keys, a table entry
// by entry, because each may come from another place.
func configRows(c *Config, origin *provenance) []configRow {
	var rows []configRow
	for i := range configKeys {
		k := &configKeys[i]
		value, before := k.get(c), len(rows)
		tables := k.tables(value)
		for _, path := range slices.Sorted(maps.Keys(tables)) {
			for _, name := range slices.Sorted(maps.Keys(tables[path])) {
				source := origin.of(joinConfigPath(path, name)).String()
				rows = append(rows, configRow{path, redactName(name), k.shownText(tables[path][name]), source})
			}
		}
		if len(rows) == before {
			rows = append(rows, configRow{k.path, "", k.shown(value), origin.of(k.path).String()})
		}
	}
	return rows
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

// toolJournal returns the options to open a directory, which must exist.
func (p *process) toolJournal(dir string) (journalOptions, error) {
	_, err := os.Stat(dir)
	return journalOptions{dir: dir, log: slog.New(slog.NewTextHandler(p.stderr, nil)), now: p.now}, err
}

// storeCheck reads every line and applies every record.
func (p *process) storeCheck(o *options) runner {
	dir := dataFlag(o)
	return func(context.Context, []string) error { return p.checkStore(*dir) }
}

func (p *process) checkStore(dir string) error {
	s := newStore(nil, slog.New(slog.DiscardHandler))
	if err := checkStoreFiles(dir, &restorer{s: s}, p.stdout); err != nil {
		return err
	}
	states := []string{}
	for i, n := range s.counts().tasks {
		if n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, taskState(i)))
		}
	}
	tasks, _ := s.size()
	fmt.Fprintf(p.stdout, "every record applies: %s (%s)\n", counted(tasks, "task", "tasks"), cmp.Or(strings.Join(states, ", "), "none"))
	return nil
}

// storeCompact writes a snapshot and empties the journal.
func (p *process) storeCompact(o *options) runner {
	dir := dataFlag(o)
	return func(context.Context, []string) error { return p.compactStore(*dir) }
}

func (p *process) compactStore(dir string) error {
	o, err := p.toolJournal(dir)
	if err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	s, err := openStore(o, defaultKeptEvents, new(realClock), o.log)
	if err != nil {
		return err
	}
	before := s.status()
	err = s.compact()
	after := s.status()
	if err = errors.Join(err, s.close()); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	tasks, _ := s.size()
	fmt.Fprintf(p.stdout, "%s: %s; journal %d bytes before, %d now; snapshot %d bytes before, %d now\n",
		dir, counted(tasks, "task", "tasks"), before.journalBytes, after.journalBytes, before.snapshotBytes, after.snapshotBytes)
	return nil
}

// storeExport writes the state to a file or standard output. It takes no lock.
func (p *process) storeExport(o *options) runner {
	dir := dataFlag(o)
	return func(_ context.Context, files []string) error { return p.exportStore(*dir, files) }
}

func (p *process) exportStore(dir string, files []string) error {
	o, err := p.toolJournal(dir)
	if err != nil {
		return fmt.Errorf("export store: %w", err)
	}
	s, err := readStore(dir, o.log)
	if err != nil {
		return fmt.Errorf("export store %s: %w", dir, err)
	}
	if len(files) == 0 || files[0] == "-" {
		return s.exportState(p.stdout, s.cutState(o.now()))
	}
	err = replaceFile(files[0], func(f *os.File) error {
		return errors.Join(s.exportState(f, s.cutState(o.now())), f.Sync())
	})
	if err != nil {
		return fmt.Errorf("export store: %w", err)
	}
	return nil
}

// replaceFile writes a regular file completely or not at all: beside its place first.
func replaceFile(path string, write func(f *os.File) error) error {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	if err := checkRegular("replace", path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	removeRegular(temp) // of a process that had this pid and crashed
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err == nil {
		err = renameRegular(temp, path)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// storeImport fills an empty directory from an exported state.
func (p *process) storeImport(o *options) runner {
	dir := dataFlag(o)
	return func(_ context.Context, files []string) error { return p.importStore(*dir, files) }
}

func (p *process) importStore(dir string, files []string) error {
	from := p.stdin
	if files[0] != "-" {
		f, err := os.Open(files[0])
		if err != nil {
			return fmt.Errorf("import store: %w", err)
		}
		defer f.Close()
		from = f
	}
	o, err := p.toolJournal(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("import store: %w", err)
	}
	s, err := importStore(o, &stateSource{document: from}, o.log)
	if err != nil {
		return fmt.Errorf("import store: %w", err)
	}
	tasks, last := s.size()
	fmt.Fprintf(p.stdout, "%s: %s, sequence 1 to %d\n", dir, counted(tasks, "task", "tasks"), last)
	return nil
}

// storeRepair writes what is sound of a store as a new one beside it.
func (p *process) storeRepair(o *options) runner {
	dir := dataFlag(o)
	return func(_ context.Context, to []string) error { return p.repairStore(*dir, to) }
}

func (p *process) repairStore(dir string, to []string) error {
	o, err := p.toolJournal(dir)
	if err != nil {
		return fmt.Errorf("repair store: %w", err)
	}
	if o.dir = strings.TrimRight(dir, "/") + ".repaired"; len(to) > 0 {
		o.dir = to[0]
	}
	v, err := salvageStore(osDisk{}, dir, o.log)
	if err != nil {
		return fmt.Errorf("repair store %s: %w", dir, err)
	}
	if err := v.write(o); err != nil {
		return fmt.Errorf("repair store %s: %w", dir, err)
	}
	for _, loss := range v.losses {
		fmt.Fprintln(p.stdout, loss)
	}
	if v.torn != "" {
		fmt.Fprintln(p.stdout, v.torn)
	}
	lost := "the above is lost"
	if len(v.losses) == 0 {
		lost = "nothing is lost"
	}
	tasks, last := v.s.size()
	fmt.Fprintf(p.stdout, "%s is as it was; %s holds what is sound: %s, up to sequence %d; %s\n",
		dir, o.dir, counted(tasks, "task", "tasks"), last, lost)
	return nil
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
