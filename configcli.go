package main

// The command line of serving, and "stepwell config …".

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

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
// command line was wrong; a *configError lists what is wrong with the configuration.
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
