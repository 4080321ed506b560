package main

// The table of commands: how a command line is parsed, and the help texts that are made of it.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// command is a word of the command line: it runs, or groups further commands.
type command struct {
	name     string
	effect   effect   // on the service that it calls
	operands string   // as the usage shows them: [X] can be left out, X… repeated
	help     string   // a phrase that begins with a verb
	more     string   // sentences that follow it in the help of the command; "" for none
	examples []string // command lines without the name of the program
	define   func(o *options) runner
	commands []command
}

// effect says whether a command reads from a service or from what it is given, adds to a service or changes it. A command
// without one works on files, on this machine or on a terminal, and is no tool for agents.
type effect string

const (
	reads   effect = "reads"
	adds    effect = "adds"
	changes effect = "changes" // what exists already
)

// operandHelp says what operands stand for.
var operandHelp = map[string]string{
	"TASK":     "a UUID, at least 6 characters of its beginning or end, or latest",
	"STEP":     "the name of the step, or its UUID",
	"TEMPLATE": "NAMESPACE/NAME or NAMESPACE/NAME@VERSION",
}

// runner runs a command with its operands. Its flags were parsed before.
type runner func(ctx context.Context, operands []string) error

// limits returns how many operands a command takes at least and at most.
func (c *command) limits() (least, most int) {
	for _, word := range strings.Fields(c.operands) {
		if most++; !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.HasSuffix(strings.TrimSuffix(word, "]"), "…") {
			// Half of it, so that further operands do not overflow.
			most = math.MaxInt / 2
		}
	}
	return least, min(most, math.MaxInt/2)
}

// sub returns a command of a group, with its full name.
func (c *command) sub(name string) (command, bool) {
	i := slices.IndexFunc(c.commands, func(sub command) bool { return sub.name == name })
	if i < 0 {
		return command{}, false
	}
	found := c.commands[i]
	found.name = strings.TrimPrefix(c.name+" "+found.name, "stepwell ")
	return found, true
}

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

func isVersion(arg string) bool { return arg == "-version" || arg == "--version" }

// programCalled returns how a person calls this program in a shell: "go run" leaves no program of its name.
func programCalled() string {
	if file, err := os.Executable(); err == nil && strings.Contains(file, "go-build") && !strings.Contains(file, ".test") {
		return "go run ."
	}
	return "stepwell"
}

// dispatch runs the command of a group that the arguments name. Flags of the client and of output may stand before it.
func (p *process) dispatch(ctx context.Context, c command, args []string) error {
	var before []string
	help := false
	for len(c.commands) > 0 {
		global, rest := leadingFlags(args)
		before, args = append(before, global...), rest
		switch {
		case help && len(args) == 0, len(args) > 0 && isHelp(args[0]):
			_, err := io.WriteString(p.stdout, c.usage(p.helpWidth()))
			return err
		case len(args) == 0:
			return usagef("missing command\n%s", strings.TrimSpace(c.usage(0)))
		case isVersion(args[0]):
			return p.printVersion()
		case args[0] == "help":
			// "help" may stand before any word of a command: the words after it are followed as usual, and then --help
			// is added.
			help, args = true, args[1:]
			continue
		}
		sub, ok := c.sub(args[0])
		if !ok {
			return c.unknown(args[0])
		}
		c, args = sub, args[1:]
	}
	if help {
		args = []string{"--help"}
	}
	return p.runCommandLine(ctx, &c, append(before, args...))
}

// leadingFlags splits the flags of the client and of output from the beginning of arguments.
func leadingFlags(args []string) (flags, rest []string) {
	// The command is not known yet; these flags are the same for each that has them.
	o := newOptions(nil, &command{}).withClient().withOutput()
	end := 0
	for end < len(args) {
		name, isFlag := strings.CutPrefix(args[end], "-")
		name, _, whole := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		f := o.Lookup(name)
		if !isFlag || f == nil {
			break
		}
		next := end + pick(whole || standsAlone(f), 1, 2)
		if next > len(args) {
			break
		}
		end = next
	}
	return args[:end:end], args[end:]
}

// standsAlone reports whether a flag needs no value.
func standsAlone(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// runCommandLine parses the flags and operands of a command, and runs it.
func (p *process) runCommandLine(ctx context.Context, c *command, args []string) error {
	o := newOptions(p, c)
	run := c.define(o)
	if slices.ContainsFunc(args, isVersion) { // anywhere: no command has a flag of that name
		return p.printVersion()
	}
	operands, err := o.parse(args, p.stdout)
	if err != nil {
		return err
	}
	return run(ctx, operands)
}

// otherTools are commands that people know from other tools, and those that do the same here.
var otherTools = map[string]string{
	"init": "serve, which needs no setup", "start": "serve", "up": "serve", "server": "serve", "status": "health",
	"ls": "task list", "ps": "task list", "logs": "task events", "task ls": "task list", "task get": "task show",
	"task status": "task show", "task logs": "task events", "template ls": "template list", "template validate": "template check",
	"backup": "store export", "restore": "store import", "validate": "template check or config validate", "lint": "template check",
}

// unknown returns the error for a word that names no command of the group, with the one that was probably meant: by
// another tool, with a typo, or in a group below.
func (c *command) unknown(word string) error {
	group := strings.TrimPrefix(strings.TrimPrefix(c.name, "stepwell")+" ", " ")
	var names, below []string
	for _, sub := range c.commands {
		names = append(names, sub.name)
		if _, ok := sub.sub(word); ok {
			below = append(below, group+sub.name+" "+word)
		}
	}
	near := cmp.Or(otherTools[group+word], anyOf(below), nearestWord(word, names, typoLimit(word)))
	if near != "" {
		return usagef("unknown command %q%s", word, meant(near))
	}
	return usagef("unknown command %q\n%s", word, strings.TrimSpace(c.usage(0)))
}

// usage lists the commands of a group, in lines of at most so many columns; 0 for no limit.
func (c *command) usage(columns int) string {
	var b strings.Builder
	name := "stepwell " + strings.TrimPrefix(strings.TrimPrefix(c.name, "stepwell"), " ")
	fmt.Fprintf(&b, "usage: %s <command> [flags]\n\n", strings.TrimSpace(name))
	longest := 0
	for _, sub := range c.commands {
		longest = max(longest, utf8.RuneCountInString(strings.TrimSpace(sub.name+" "+sub.operands)))
	}
	for _, sub := range c.commands {
		line := fmt.Sprintf("  %-*s  %s", longest, strings.TrimSpace(sub.name+" "+sub.operands), sub.help)
		fmt.Fprintln(&b, wrapped(line, longest+4, columns))
	}
	fmt.Fprintf(&b, "\n\"%s help <command>\" shows more about a command.\n", strings.TrimSpace(name))
	return b.String()
}

// options are the flags of a command, and its surroundings.
type options struct {
	*flag.FlagSet
	p       *process
	command *command

	keyOperands map[string]string // what the values of flags for configuration keys are called, by flag

	output   *string  // -o; nil when the command does not have it
	forms    []string // values of -o
	headless *bool    // --no-headers
	url      *string  // --url; nil when the command calls no service
}

// newOptions returns the options of a command, whose name is in full, as in "store check".
func newOptions(p *process, c *command) *options {
	o := &options{FlagSet: flag.NewFlagSet(c.name, flag.ContinueOnError), p: p, command: c, keyOperands: map[string]string{}}
	// Package flag would print errors and usage by itself, in its own words.
	o.SetOutput(io.Discard)
	o.Usage = func() {}
	return o
}

// parse parses flags, which may stand before, between or after the operands, and returns the operands. If the arguments
// ask for help, it is written to help and the error is flag.ErrHelp; any other error is a *usageError.
func (o *options) parse(args []string, help io.Writer) (operands []string, err error) {
	least, most := o.command.limits()
	for {
		// Package flag stops at the first operand, so it is called again for what follows each.
		switch err := o.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			o.printHelp(help)
			return nil, err
		case err != nil:
			return nil, o.misuse("%s", o.flagError(err.Error()))
		}
		rest := o.Args()
		if len(rest) == 0 {
			break
		}
		taken, at := 1, len(args)-len(rest)-1
		if at >= 0 && args[at] == "--" {
			taken = len(rest)
			// The flag was parsed without a value, as package flag does with one that needs none. "--watch 5s" would
			// watch an operand.
		} else if at >= 0 && o.takes(args[at], rest[0]) {
			return nil, o.misuse("write %s=%s: the value of %[1]s follows an =", args[at], rest[0])
		}
		if len(operands)+taken > most {
			return nil, o.misuse("unexpected argument %.60q", rest[most-len(operands)])
		}
		operands, args = append(operands, rest[:taken]...), rest[taken:]
	}
	if len(operands) < least {
		return nil, o.misuse("missing %s\n%s", strings.Fields(o.command.operands)[len(operands)], o.usageLine())
	}
	return operands, o.checkForm()
}

// takes reports whether a word is a flag whose value can be left out, and the text after it could be meant as its
// value.
func (o *options) takes(word, text string) bool {
	f := o.Lookup(strings.TrimLeft(word, "-"))
	if !strings.HasPrefix(word, "-") || f == nil || !standsAlone(f) {
		return false
	}
	operand, _ := flagHelp(f)
	return (operand != "" || text == "true" || text == "false") && f.Value.Set(text) == nil
}

// flagError turns a message of package flag into one that uses our names and forms. The package has no typed errors, so
// the message is parsed; one that is not recognized is returned as it is.
func (o *options) flagError(message string) string {
	if word, ok := strings.CutPrefix(message, "flag provided but not defined: -"); ok {
		word = strings.TrimPrefix(word, "-")
		var names []string
		o.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		near := nearestWord(word, names, typoLimit(word))
		if near = pick(near == "", "", dashed(near)); (word == "p" || word == "port") && o.Lookup("listen") != nil {
			near = "--listen 127.0.0.1:PORT"
		} else if (word == "json" || word == "format") && o.Lookup("output") != nil {
			near = "-o json"
		}
		return "unknown flag " + dashed(word) + meant(near)
	}
	if name, ok := strings.CutPrefix(message, "flag needs an argument: -"); ok {
		operand, _ := flagHelp(o.Lookup(name))
		return dashed(name) + " needs a value: write " + o.form(o.Lookup(name), operand)
	}
	value, rest, ok := strings.Cut(message, " for flag -")
	if !ok {
		value, rest, ok = strings.Cut(message, " for -") // of a flag that can stand alone
	}
	name, problem, hasProblem := strings.Cut(rest, ": ")
	value = strings.TrimPrefix(strings.TrimPrefix(value, "invalid value "), "invalid boolean value ")
	if f := o.Lookup(name); !ok || !hasProblem || f == nil {
		return message
	} else if operand, _ := flagHelp(f); problem == "parse error" {
		problem = "want " + cmp.Or(map[string]string{"N": "a whole number", "": "true or false"}[operand], operand)
	}
	return fmt.Sprintf("%s %s: %s", dashed(name), value, problem)
}

func dashed(name string) string { return strings.Repeat("-", min(len(name), 2)) + name }

func (o *options) usageLine() string {
	return strings.TrimSpace("usage: stepwell " + o.Name() + " [flags] " + o.command.operands)
}

// printHelp writes the help of a command: usage, what it does, flags, examples.
func (o *options) printHelp(w io.Writer) {
	columns := o.p.helpWidth()
	fmt.Fprintf(w, "%s\n\n%s.\n", o.usageLine(), wrapped(capitalized(o.command.help), 0, columns))
	for line := range strings.Lines(o.command.more) {
		fmt.Fprintln(w, wrapped(strings.TrimSpace(line), 0, columns))
	}
	fmt.Fprintln(w)
	o.VisitAll(func(f *flag.Flag) {
		if operand, help := flagHelp(f); f.Name != shortOutput {
			fmt.Fprintf(w, "  %s\n%s\n", o.form(f, operand), wrapped("        "+capitalized(help)+".", 8, columns))
		}
	})
	if len(o.command.examples) > 0 {
		fmt.Fprintf(w, "\nexamples:\n")
	}
	for _, example := range o.command.examples {
		fmt.Fprintf(w, "  stepwell %s\n", example)
	}
}

// helpWidth returns how many columns a line of help takes at most: those of the terminal, but no more than one can read
// with ease; 0 for no limit.
func (p *process) helpWidth() int {
	if f, ok := behindDoor(p.stdout).(*os.File); ok && isTerminal(p.stdout) {
		return min(terminalColumns(f), 100)
	}
	return 0
}

// wrapped breaks a line between words at so many columns, 0 for no limit. The lines after the first begin with spaces.
func wrapped(line string, indent, columns int) string {
	var b strings.Builder
	for columns > indent && utf8.RuneCountInString(line) > columns {
		cut := strings.LastIndex(string([]rune(line)[:columns+1]), " ")
		if strings.TrimSpace(line[:max(cut, 0)]) == "" {
			break
		}
		b.WriteString(strings.TrimRight(line[:cut], " ") + "\n")
		line = strings.Repeat(" ", indent) + strings.TrimLeft(line[cut:], " ")
	}
	return b.String() + line
}

// form returns a flag as it is typed, with its value.
func (o *options) form(f *flag.Flag, operand string) string {
	name := dashed(f.Name)
	switch {
	case strings.HasPrefix(f.Name, "output") && o.Lookup(shortOutput) != nil && o.Lookup(shortOutput).Value == f.Value:
		name = dashed(shortOutput) + ", " + name
	case standsAlone(f) && operand != "":
		return name + "[=" + operand + "]"
	}
	return strings.TrimSpace(name + " " + cmp.Or(o.keyOperands[f.Name], operand))
}

// flagHelp returns the operand of a flag, and its help with the default. A usage begins with the operand in back quotes
// and a colon, if there is one, and continues with a verb.
func flagHelp(f *flag.Flag) (operand, help string) {
	operand, help = flag.UnquoteUsage(f)
	help = strings.TrimPrefix(help, operand+": ")
	if !slices.Contains([]string{"", "0", "0s", "false"}, f.DefValue) {
		quote := pick(f.DefValue[0] <= '9', "", `"`) // or a word could be one of the sentence
		help += " (default " + quote + f.DefValue + quote + ")"
	}
	return operand, help
}

// durationValue is a flag with a duration.
type durationValue time.Duration

func (d *durationValue) String() string { return time.Duration(*d).String() }

func (d *durationValue) Set(text string) error {
	v, err := parseDuration(text)
	*d = durationValue(v)
	return err
}

// memberFlag defines a flag that sets a member of a body.
func (o *options) memberFlag(body map[string]any, flag, member, help string) {
	o.Func(flag, help, func(text string) error {
		body[member] = text
		return nil
	})
}

// duration defines a flag with a duration.
func (o *options) duration(name string, value time.Duration, help string) *time.Duration {
	o.durationVar(&value, name, value, help)
	return &value
}

func (o *options) durationVar(to *time.Duration, name string, value time.Duration, help string) {
	*to = value
	o.Var((*durationValue)(to), name, help)
}

func (o *options) has(name string) (given bool) {
	o.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}

// misuse returns a *usageError of the command.
func (o *options) misuse(format string, args ...any) error {
	return usagef("%s: %s", o.Name(), fmt.Sprintf(format, args...))
}

func capitalized(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// addJSON adds the value of a flag of JSON to a body, as the member with the name of the flag, unless it is not given.
func (p *process) addJSON(body map[string]any, flag, text string) (err error) {
	if text != "" {
		body[flag], err = p.jsonArgument("--"+flag, text)
	}
	return err
}

// jsonArgument reads an argument that is JSON, @FILE or - for standard input.
func (p *process) jsonArgument(flag, text string) (json.RawMessage, error) {
	data, from := []byte(text), clipText(text, 40)
	var err error
	if name, ok := strings.CutPrefix(text, "@"); ok {
		from = name
		data, err = os.ReadFile(name)
	} else if text == "-" {
		from = "standard input"
		data, err = io.ReadAll(p.stdin)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	var v json.RawMessage
	if isUTF16(data) {
		return nil, usagef("%s: %s is UTF-16; want UTF-8", flag, from)
	}
	if err := json.Unmarshal(unmarked(data), &v); err != nil {
		return nil, usagef("%s: %s is not valid JSON: %v", flag, from, err)
	}
	return v, nil
}
