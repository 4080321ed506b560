package main

// The table of commands: how a command line is parsed, and what is made of the table: the help
// texts, the completion of shells, and the page docs/cli.md.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// command is a word of the command line: it runs, or groups further commands.
type command struct {
	name     string
	operands string   // as the usage shows them: [X] can be left out, X… repeated
	help     string   // a phrase that begins with a verb
	more     string   // sentences that follow it in the help of the command; "" for none
	examples []string // command lines without the name of the program
	define   func(o *options) runner
	commands []command
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

// dispatch runs the command of a group that the arguments name.
func (p *process) dispatch(ctx context.Context, c command, args []string) error {
	help := false
	for len(c.commands) > 0 {
		switch {
		case help && len(args) == 0, len(args) > 0 && isHelp(args[0]):
			_, err := io.WriteString(p.stdout, c.usage())
			return err
		case len(args) == 0:
			return usagef("missing command\n%s", strings.TrimSpace(c.usage()))
		case isVersion(args[0]):
			return p.version(nil)(ctx, nil)
		case args[0] == "help":
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
	return p.runCommandLine(ctx, &c, args)
}

// runCommandLine parses the flags and operands of a command, and runs it.
func (p *process) runCommandLine(ctx context.Context, c *command, args []string) error {
	o := newOptions(c)
	run := c.define(o)
	if slices.ContainsFunc(args, isVersion) && o.Lookup("version") == nil {
		return p.version(nil)(ctx, nil)
	}
	operands, err := o.parse(args, p.stdout)
	if err != nil {
		return err
	}
	return run(ctx, operands)
}

// unknown returns the error for a word that names no command of the group.
func (c *command) unknown(word string) error {
	var names []string
	for _, sub := range c.commands {
		names = append(names, sub.name)
	}
	if near := nearestWord(word, names, typoLimit(word)); near != "" {
		return usagef("unknown command %q; did you mean %s?", word, near)
	}
	return usagef("unknown command %q\n%s", word, strings.TrimSpace(c.usage()))
}

// usage lists the commands of a group.
func (c *command) usage() string {
	var b strings.Builder
	name := "stepwell " + strings.TrimPrefix(strings.TrimPrefix(c.name, "stepwell"), " ")
	fmt.Fprintf(&b, "usage: %s <command> [flags]\n\n", strings.TrimSpace(name))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, sub := range c.commands {
		fmt.Fprintf(w, "  %s\t%s\n", strings.TrimSpace(sub.name+" "+sub.operands), sub.help)
	}
	w.Flush()
	fmt.Fprintf(&b, "\n\"%s help <command>\" shows more about a command.\n", strings.TrimSpace(name))
	return b.String()
}

// options are the flags of a command.
type options struct {
	*flag.FlagSet
	command *command

	keyOperands map[string]string // of flags that set keys of the configuration, by name

	output   *string  // -o; nil when the command does not have it
	forms    []string // that -o may have
	headless *bool    // --no-headers
	url      *string  // --url; nil when the command asks no service
}

// newOptions returns the options of a command, whose name is in full, as in "store check".
func newOptions(c *command) *options {
	o := &options{FlagSet: flag.NewFlagSet(c.name, flag.ContinueOnError), command: c, keyOperands: map[string]string{}}
	o.SetOutput(io.Discard)
	o.Usage = func() {}
	return o
}

// parse parses flags, which may stand before, between or after the operands, and returns the
// operands. If the arguments ask for help, it is written to help and the error is flag.ErrHelp; any
// other error is a *usageError.
func (o *options) parse(args []string, help io.Writer) (operands []string, err error) {
	least, most := o.command.limits()
	for {
		switch err := o.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			o.printHelp(help)
			return nil, err
		case err != nil:
			return nil, o.misuse("%v%s", err, o.meant(err))
		}
		rest := o.Args()
		if len(rest) == 0 {
			break
		}
		taken := 1
		if at := len(args) - len(rest) - 1; at >= 0 && args[at] == "--" {
			taken = len(rest)
		}
		if len(operands)+taken > most {
			return nil, o.misuse("unexpected argument %q", rest[most-len(operands)])
		}
		operands, args = append(operands, rest[:taken]...), rest[taken:]
	}
	if len(operands) < least {
		return nil, o.misuse("missing %s\n%s", strings.Fields(o.command.operands)[len(operands)], o.usageLine())
	}
	if o.output != nil && !slices.Contains(o.forms, *o.output) {
		return nil, o.misuse("-o must be %s, not %q", anyOf(o.forms), *o.output)
	}
	return operands, nil
}

// meant returns a hint at the flag that was probably meant by one that is not defined.
func (o *options) meant(err error) string {
	word, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return ""
	}
	word = strings.TrimPrefix(word, "-")
	var names []string
	o.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if near := nearestWord(word, names, typoLimit(word)); near != "" {
		return "; did you mean " + dashed(near) + "?"
	}
	return ""
}

func dashed(name string) string { return strings.Repeat("-", min(len(name), 2)) + name }

func (o *options) usageLine() string {
	return strings.TrimSpace("usage: stepwell " + o.Name() + " [flags] " + o.command.operands)
}

// printHelp writes the help of a command: usage, what it does, flags, examples.
func (o *options) printHelp(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n%s.\n", o.usageLine(), capitalized(o.command.help))
	if o.command.more != "" {
		fmt.Fprintf(w, "%s\n", o.command.more)
	}
	fmt.Fprintln(w)
	o.eachFlag(func(form, help string) { fmt.Fprintf(w, "  %s\n        %s\n", form, help) })
	if len(o.command.examples) > 0 {
		fmt.Fprintf(w, "\nexamples:\n")
	}
	for _, example := range o.command.examples {
		fmt.Fprintf(w, "  stepwell %s\n", example)
	}
}

// eachFlag calls f with each flag as one types it, and its help.
func (o *options) eachFlag(f func(form, help string)) {
	o.VisitAll(func(fl *flag.Flag) {
		operand, help := flag.UnquoteUsage(fl)
		if of, ok := o.keyOperands[fl.Name]; ok {
			operand = of
		}
		if !slices.Contains([]string{"", "0", "0s", "false"}, fl.DefValue) {
			help += " (default " + fl.DefValue + ")"
		}
		f(strings.TrimSpace(dashed(fl.Name)+" "+operand), help)
	})
}

// misuse returns a *usageError of the command.
func (o *options) misuse(format string, args ...any) error {
	return usagef("%s: %s", o.Name(), fmt.Sprintf(format, args...))
}

func capitalized(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// each calls f with the command, or the commands of a group at every level, by full name.
func (c *command) each(f func(c *command)) {
	if len(c.commands) == 0 {
		f(c)
	}
	for _, sub := range c.commands {
		full, _ := c.sub(sub.name)
		full.each(f)
	}
}

// commonFlags are the flags of many commands, which docs/cli.md describes once.
var commonFlags = []string{"--url URL", "--no-headers", "-o FORM"}

// writeCommandsPage writes the part of docs/cli.md that comes from the table: usage, flags and
// examples of every command.
func writeCommandsPage(w io.Writer, root command) {
	root.each(func(c *command) {
		o := newOptions(c)
		c.define(o)
		fmt.Fprintf(w, "### %s\n\n%s.", c.name, capitalized(c.help))
		if c.more != "" {
			fmt.Fprintf(w, " %s", c.more)
		}
		fmt.Fprintf(w, "\n\n```text\n%s\n```\n\n", strings.TrimPrefix(o.usageLine(), "usage: "))
		rows := 0
		o.eachFlag(func(form, help string) {
			if slices.Contains(commonFlags, form) {
				return
			}
			if rows++; rows == 1 {
				fmt.Fprint(w, "| flag | |\n|---|---|\n")
			}
			fmt.Fprintf(w, "| `%s` | %s |\n", form, strings.ReplaceAll(help, "|", "\\|"))
		})
		if rows > 0 {
			fmt.Fprintln(w)
		}
		if len(c.examples) > 0 {
			fmt.Fprintf(w, "```text\nstepwell %s\n```\n\n", strings.Join(c.examples, "\nstepwell "))
		}
	})
}

// Completion. The script of a shell passes the words of the command line to the program, which
// prints the words that may follow.

// completeWord is the command that the scripts call.
const completeWord = "__complete"

// completionScripts pass the words up to the cursor, and complete names of files where the program
// prints nothing.
var completionScripts = map[string]string{
	"bash": `_stepwell() {
	local IFS=$'\n'
	COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _stepwell stepwell
`,
	"zsh": `#compdef stepwell
_stepwell() {
	local -a found
	found=(${(f)"$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( ${#found} )); then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = _stepwell ]; then _stepwell "$@"; else compdef _stepwell stepwell; fi
`,
	"fish": `function __stepwell_complete
	set -l words (commandline -opc)
	$words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c stepwell -a '(__stepwell_complete)'
`,
}

func (p *process) completionCommand() command {
	return command{
		name: "completion", operands: "SHELL", help: "print a script that completes command lines in bash, zsh or fish",
		more: "Templates and recent tasks come from the running service that STEPWELL_URL names.",
		examples: []string{
			"completion bash > ~/.local/share/bash-completion/completions/stepwell", "completion fish | source",
		},
		define: func(o *options) runner {
			return func(_ context.Context, operands []string) error {
				script, ok := completionScripts[operands[0]]
				if !ok {
					return o.misuse("SHELL must be bash, zsh or fish, not %q", operands[0])
				}
				_, err := io.WriteString(p.stdout, script)
				return err
			}
		},
	}
}

// complete prints the words that may stand in the place of the last one, which may be empty or
// unfinished, one a line.
func (p *process) complete(ctx context.Context, words []string) error {
	if len(words) == 0 {
		return nil
	}
	c, last := p.commands(), words[len(words)-1]
	words = words[:len(words)-1]
	for len(words) > 0 && len(c.commands) > 0 {
		sub, ok := c.sub(words[0])
		if !ok {
			return nil
		}
		c, words = sub, words[1:]
	}
	for _, word := range p.candidates(ctx, &c, words, last) {
		if strings.HasPrefix(word, last) {
			fmt.Fprintln(p.stdout, word)
		}
	}
	return nil
}

// candidates returns the words that may follow the arguments of a command.
func (p *process) candidates(ctx context.Context, c *command, args []string, last string) (words []string) {
	for _, sub := range c.commands {
		words = append(words, sub.name)
	}
	if len(c.commands) > 0 {
		return words
	}
	o := newOptions(c)
	c.define(o)
	if strings.HasPrefix(last, "-") {
		o.VisitAll(func(f *flag.Flag) { words = append(words, dashed(f.Name)) })
		return words
	}
	given := o.given(args)
	if given < 0 {
		return nil // the value of a flag
	}
	operands := strings.Fields(c.operands)
	if given >= len(operands) {
		return nil
	}
	return p.namesFor(ctx, o, strings.Trim(operands[given], "[]…"), args)
}

// given returns how many operands there are among arguments, or -1 if a flag still lacks its value.
func (o *options) given(args []string) (operands int) {
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name = strings.TrimPrefix(name, "-")
		if !isFlag || name == "" {
			operands++
			continue
		}
		f := o.Lookup(name)
		if f == nil || strings.Contains(name, "=") {
			continue
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			continue
		}
		if i++; i == len(args) {
			return -1
		}
		o.Set(name, args[i])
	}
	return operands
}
