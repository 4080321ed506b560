package main

// The commands beside serve: what operators and container probes run.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func (p *process) auth(_ context.Context, args []string) error {
	now := func() instant { return instantOf(time.Now()) }
	return authCommand(args, p.authSettings(), now, p.stdout, p.stderr)
}

func (p *process) config(_ context.Context, args []string) error {
	return configCommand(args, p.getenv, p.environ, p.stdout, p.stderr)
}

// checkCommand is `store check`: it reads every line and applies every record,
// and changes nothing.
func (p *process) checkCommand(args []string) error {
	fs := p.flags("store check")
	dir := dataFlag(fs)
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	s := newStore(nil, slog.New(slog.DiscardHandler))
	if err := checkStoreFiles(*dir, &restorer{s: s}, p.stdout); err != nil {
		return err
	}
	states := []string{}
	for i, n := range s.counts().tasks {
		if n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, taskState(i)))
		}
	}
	tasks, _ := s.size()
	fmt.Fprintf(p.stdout, "every record applies: %d tasks (%s)\n", tasks, cmp.Or(strings.Join(states, ", "), "none"))
	return nil
}

// flags is a flag set that reports to standard error.
func (p *process) flags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet("stepwell "+name, flag.ContinueOnError)
	fs.SetOutput(p.stderr)
	return fs
}

// parseFlags parses flags of a command that takes no other arguments.
func parseFlags(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return &usageError{} // the flag set has said it already
	}
	if fs.NArg() > 0 {
		return usagef("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// healthcheck asks a running service whether it lives or is ready.
func (p *process) healthcheck(ctx context.Context, args []string) error {
	fs := p.flags("healthcheck")
	url := fs.String("url", "", "where the service answers; by default the configured listener")
	ready := fs.Bool("ready", false, "ask for readiness, not only for life")
	timeout := fs.Duration("timeout", 3*time.Second, "how long to wait")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if *url == "" {
		base, err := p.configuredURL()
		if err != nil {
			return err
		}
		*url = base
	}
	path := "/health/live"
	if *ready {
		path = "/health/ready"
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	return p.probe(ctx, strings.TrimRight(*url, "/")+path)
}

// configuredURL is the listener of the first role that is switched on.
func (p *process) configuredURL() (string, error) {
	flags, err := parseServeArgs(nil, p.stderr)
	if err != nil {
		return "", err
	}
	cfg, _, err := loadConfig(flags.configArgs, p.getenv, p.environ, os.ReadFile)
	if err != nil {
		return "", err
	}
	address := cfg.Orchestration.Web.Listen
	if cfg.Role == "worker" {
		address = cfg.Worker.Web.Listen
	}
	return reachableURL(address), nil
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

// The command line of serving, and "stepwell config …".

// serveArgs is the parsed command line of "stepwell serve".
type serveArgs struct {
	configArgs
	seed       string // --seed; "" for none
	readyFile  string // --ready-file; "" for none
	printReady bool

	exitWithParent bool
	maxLifetime    time.Duration // 0 for no end
}

// parseServeArgs reads the command line of serve. The error is flag.ErrHelp
// once help went to stderr, or else a *usageError. The values of keys are
// checked by loadConfig, together with those of all other sources.
func parseServeArgs(argv []string, stderr io.Writer) (*serveArgs, error) {
	a := new(serveArgs)
	fs := newConfigFlags("serve")
	serveFlags(fs, a)
	if err := parseConfigFlags(fs, argv, "usage: stepwell [serve] [flags]", stderr); err != nil {
		return nil, err
	}
	if err := noConfigOperands(fs); err != nil {
		return nil, err
	}
	return a, nil
}

// serveFlags defines the flags of serve, which set a: those of the table of
// keys, and the plain ones.
func serveFlags(fs *flag.FlagSet, a *serveArgs) {
	configFileFlag(fs, &a.configArgs)
	for i := range configKeys {
		keyFlag(fs, &configKeys[i], &a.configArgs)
	}
	fs.StringVar(&a.seed, "seed", "", "begin with the state of `FILE`, as \"store export\" writes it; the store must be empty")
	fs.BoolVar(&a.quiet, "quiet", false, "no start-up banner")
	fs.StringVar(&a.readyFile, "ready-file", "", "write `FILE` once requests are served, as JSON")
	fs.BoolVar(&a.printReady, "print-ready", false, "print the same as the first line on standard output")
	fs.BoolVar(&a.exitWithParent, "exit-with-parent", false,
		"end when standard input, a pipe from the parent, is closed")
	fs.Func("max-lifetime", "end after a time, like 30m (`DURATION`)", func(text string) error {
		d, err := time.ParseDuration(text)
		if err == nil && d <= 0 {
			err = errors.New("it must be more than 0")
		}
		a.maxLifetime = d
		return err
	})
}

func configFileFlag(fs *flag.FlagSet, a *configArgs) {
	fs.Func("config", "read `FILE` (repeatable; default $STEPWELL_CONFIG, then ./stepwell.toml)",
		func(name string) error {
			if name == "" {
				return errors.New("the name of the file is missing")
			}
			a.files = append(a.files, name)
			return nil
		})
}

// keyFlag defines the flag of a key, if it has one.
func keyFlag(fs *flag.FlagSet, k *configKey, a *configArgs) {
	if k.flag == "" {
		return
	}
	set := func(text string) error {
		if a.flags == nil {
			a.flags = make(map[string]string)
		}
		if earlier, ok := a.flags[k.path]; ok && isConfigList(k) {
			text = earlier + "," + text
		}
		a.flags[k.path] = text
		return nil
	}
	if _, ok := k.def.(bool); ok {
		fs.BoolFunc(k.flag, k.help, set)
		return
	}
	fs.Func(k.flag, fmt.Sprintf("%s (`%s`; default %s)", k.help, k.operand, tomlLiteral(k.def)), set)
}

func isConfigList(k *configKey) bool {
	_, ok := k.def.([]string)
	return ok
}

func newConfigFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// parseConfigFlags parses a command line. When help is asked for, it goes to w
// and the error is flag.ErrHelp.
func parseConfigFlags(fs *flag.FlagSet, args []string, usage string, w io.Writer) error {
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(w, "%s\n\n", usage)
		fs.VisitAll(func(f *flag.Flag) {
			operand, help := flag.UnquoteUsage(f)
			dashes := strings.Repeat("-", min(len(f.Name), 2))
			fmt.Fprintf(w, "  %s\n        %s\n", strings.TrimSpace(dashes+f.Name+" "+operand), help)
		})
		return err
	}
	if err != nil {
		return &usageError{fmt.Sprintf("%s: %v", fs.Name(), err)}
	}
	return nil
}

func noConfigOperands(fs *flag.FlagSet) error {
	if fs.NArg() > 0 {
		return &usageError{fmt.Sprintf("%s: unexpected argument %q", fs.Name(), fs.Arg(0))}
	}
	return nil
}

const configUsage = `usage: stepwell config <command> [flags]

  show [-o table|json] [flags of serve]   the effective configuration and where it came from
  validate [--env NAME] [FILE…]           check files, in the order in which they would be read

"stepwell config <command> --help" lists the flags of a command.
`

// configCommand runs "stepwell config args…". A *usageError means that the
// command line was wrong; a *failure lists what is wrong with the configuration.
func configCommand(
	args []string, getenv func(string) string, environ []string, stdout, _ io.Writer,
) error {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	var err error
	switch verb {
	case "show":
		err = configShow(args, getenv, environ, stdout)
	case "validate":
		err = configValidate(args, getenv, stdout)
	case "help", "-h", "-help", "--help":
		_, err = io.WriteString(stdout, configUsage)
	case "":
		err = &usageError{"config: a command is missing\n" + configUsage}
	default:
		err = &usageError{fmt.Sprintf("config: unknown command %q\n%s", verb, configUsage)}
	}
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	return err
}

func configShow(args []string, getenv func(string) string, environ []string, stdout io.Writer) error {
	a := new(serveArgs)
	fs := newConfigFlags("config show")
	output := fs.String("o", "table", "output: `table|json`")
	serveFlags(fs, a)
	usage := "usage: stepwell config show [-o table|json] [flags of serve]"
	if err := parseConfigFlags(fs, args, usage, stdout); err != nil {
		return err
	}
	if err := noConfigOperands(fs); err != nil {
		return err
	}
	if *output != "table" && *output != "json" {
		return &usageError{fmt.Sprintf("config show: -o %q is neither table nor json", *output)}
	}
	c, origin, err := loadConfig(a.configArgs, getenv, environ, os.ReadFile)
	if err != nil {
		return err
	}
	rows := configRows(c, origin)
	if *output == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	return writeConfigTable(stdout, rows)
}

// configRow is one line of "config show": a key, or an entry of a table.
type configRow struct {
	Key    string `json:"key"`
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
		value := k.get(c)
		table, ok := value.(map[string]string)
		if !ok || len(table) == 0 {
			rows = append(rows, configRow{k.path, "", k.shown(value), origin.of(k.path).String()})
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(table)) {
			source := origin.of(joinConfigPath(k.path, name)).String()
			rows = append(rows, configRow{k.path, redactName(name), k.shownText(table[name]), source})
		}
	}
	return rows
}

func writeConfigTable(w io.Writer, rows []configRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tVALUE\tSOURCE")
	for _, r := range rows {
		path := r.Key
		if r.Entry != "" {
			path = joinConfigPath(path, r.Entry)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", path, tomlLiteral(r.Value), r.Source)
	}
	return t.Flush()
}

// configValidate checks files and what they come to together. Variables that
// set keys are left out: it is the files that are asked about.
func configValidate(args []string, getenv func(string) string, stdout io.Writer) error {
	var a configArgs
	fs := newConfigFlags("config validate")
	keyFlag(fs, configKeyAt("environment"), &a)
	usage := "usage: stepwell config validate [--env NAME] [FILE…]"
	if err := parseConfigFlags(fs, args, usage, stdout); err != nil {
		return err
	}
	a.files = fs.Args()
	_, origin, err := loadConfig(a, getenv, nil, os.ReadFile)
	if err != nil {
		return err
	}
	if len(origin.files) == 0 {
		return fmt.Errorf("config validate: there is no %s here and no other file is named", defaultConfigFile)
	}
	_, err = fmt.Fprintln(stdout, "ok")
	return err
}

// `stepwell store`: what operators do to the files of a data directory while no
// service has it.

const storeUsage = `usage: stepwell store <command> [--data DIR]

  check          say what a start would make of the files; changes nothing
  compact        write a snapshot and empty the journal
  export [FILE]  write the whole state as one JSON document; changes nothing
  import FILE    make a store in an empty directory from such a document; - is standard input
`

// storeTool runs one of the commands above.
func (p *process) storeTool(_ context.Context, args []string) error {
	if len(args) == 0 {
		return usagef("%s", storeUsage)
	}
	switch name, rest := args[0], args[1:]; name {
	case "check":
		return p.checkCommand(rest)
	case "compact":
		return p.compactCommand(rest)
	case "export":
		return p.exportCommand(rest)
	case "import":
		return p.importCommand(rest)
	case "-h", "-help", "--help":
		fmt.Fprint(p.stdout, storeUsage)
		return flag.ErrHelp
	default:
		return usagef("there is no command \"store %s\"\n%s", name, storeUsage)
	}
}

func dataFlag(fs *flag.FlagSet) *string {
	return fs.String("data", "./stepwell-data", "the data directory")
}

// fileArgument parses flags and at most one operand after or before them.
func fileArgument(fs *flag.FlagSet, args []string) (string, error) {
	err := fs.Parse(args)
	name := fs.Arg(0)
	if err == nil && fs.NArg() > 1 {
		args = fs.Args()[1:]
		err = fs.Parse(args)
		if err == nil && fs.NArg() > 0 {
			return "", usagef("unexpected argument %q", fs.Arg(0))
		}
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		err = &usageError{} // the flag set has said it already
	}
	return name, err
}

// toolJournal is how the commands open a directory; it must be there.
func (p *process) toolJournal(dir string) (journalOptions, error) {
	o := journalOptions{
		dir: dir, log: slog.New(slog.NewTextHandler(p.stderr, nil)),
		now: func() instant { return instantOf(time.Now()) },
	}
	_, err := os.Stat(dir)
	return o, err
}

// compactCommand is `store compact`.
func (p *process) compactCommand(args []string) error {
	fs := p.flags("store compact")
	dir := dataFlag(fs)
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	o, err := p.toolJournal(*dir)
	if err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	s, err := openStore(o, defaultKeptEvents, nil, o.log)
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
	fmt.Fprintf(p.stdout, "%s: %d tasks; journal %d bytes before, %d now; snapshot %d bytes before, %d now\n",
		*dir, tasks, before.journalBytes, after.journalBytes, before.snapshotBytes, after.snapshotBytes)
	return nil
}

// exportCommand is `store export`. It takes no lock and changes nothing.
func (p *process) exportCommand(args []string) error {
	fs := p.flags("store export")
	dir := dataFlag(fs)
	name, err := fileArgument(fs, args)
	if err != nil {
		return err
	}
	o, err := p.toolJournal(*dir)
	if err != nil {
		return fmt.Errorf("export store: %w", err)
	}
	s, err := readStore(*dir, o.log)
	if err != nil {
		return fmt.Errorf("export store %s: %w", *dir, err)
	}
	return p.writeTo(name, func(w io.Writer) error { return s.exportState(w, o.now()) })
}

// writeTo has a file written whole or not at all; without a name it is standard output.
func (p *process) writeTo(name string, write func(w io.Writer) error) error {
	if name == "" || name == "-" {
		return write(p.stdout)
	}
	temp := fmt.Sprintf("%s.%d.tmp", name, os.Getpid())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// importCommand is `store import`.
func (p *process) importCommand(args []string) error {
	fs := p.flags("store import")
	dir := dataFlag(fs)
	name, err := fileArgument(fs, args)
	if err != nil {
		return err
	}
	from := p.stdin
	switch name {
	case "":
		return usagef("%s", storeUsage)
	case "-":
	default:
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("import store: %w", err)
		}
		defer f.Close()
		from = f
	}
	o, err := p.toolJournal(*dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("import store: %w", err)
	}
	s, err := importStore(o, from, o.log)
	if err != nil {
		return fmt.Errorf("import store: %w", err)
	}
	tasks, last := s.size()
	fmt.Fprintf(p.stdout, "%s: %d tasks, sequence 1 to %d\n", *dir, tasks, last)
	return nil
}
