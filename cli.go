package main

// The table of commands: how a command line is parsed, and what is made of the table: the help
// texts, the completion of shells, and the page docs/cli.md. What commands print: tables for
// people, with colours and signs where the terminal shows them, and JSON for programs.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
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

// withOutput adds the flag -o, for print.
func (o *options) withOutput() *options {
	o.forms = []string{"table", "wide", "json", "jsonl", "name"}
	o.output = o.String("o", "table", "print as `FORM`: "+strings.Join(o.forms, ", "))
	o.headless = o.Bool("no-headers", false, "leave out the headings of a table")
	return o
}

// forPeople reports whether the output is a table, and not for a program.
func (o *options) forPeople() bool { return *o.output == "table" || *o.output == "wide" }

// output is a result, and its forms other than JSON.
type output struct {
	result any                        // encoded as JSON; a list has an element per item
	name   func(item document) string // what -o name prints for an item
	table  func(t *table)
}

// print writes a result as -o says.
func (p *process) print(o *options, out output) error {
	switch *o.output {
	case "table", "wide":
		t := &table{p: p, style: p.styleOf(p.stdout), wide: *o.output == "wide", headless: *o.headless}
		out.table(t)
		return t.write(p.stdout)
	case "json":
		e := json.NewEncoder(p.stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(out.result)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(out.result); err != nil {
		return err
	}
	whole := readDocument(b.Bytes())
	items := whole.list()
	if !whole.isList() {
		items = []document{whole}
	}
	for _, item := range items {
		text := string(item.raw)
		if *o.output == "name" {
			text = out.name(item)
		}
		fmt.Fprintln(p.stdout, text)
	}
	return nil
}

// qualifiedName returns the namespace and the name of a template, as commands take them.
func qualifiedName(d document) string { return d.text("namespace") + "/" + d.text("name") }

// member returns what -o name prints: a member of the items, or the name of a template.
func member(path string) func(document) string {
	if path == "template" {
		return qualifiedName
	}
	return func(d document) string { return d.text(path) }
}

// document is a JSON value, of an answer. Its readers return nothing for what is not there.
type document struct {
	raw     json.RawMessage
	members *map[string]json.RawMessage // of an object, once they were read; nil to read them each time
}

// newDocument returns a document that reads its members only once. It is for one goroutine.
func newDocument(raw json.RawMessage) document { return document{raw, new(map[string]json.RawMessage)} }

// member returns a member of an object.
func (d document) member(name string) document {
	members := d.members
	if members == nil {
		members = new(map[string]json.RawMessage)
	}
	if *members == nil && json.Unmarshal(d.raw, members) != nil {
		return document{}
	}
	return document{raw: (*members)[name]}
}

// readDocument makes a document of JSON, without insignificant space.
func readDocument(data []byte) document {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return document{}
	}
	return newDocument(b.Bytes())
}

func (d document) MarshalJSON() ([]byte, error) {
	if d.raw == nil {
		return []byte("null"), nil
	}
	return d.raw, nil
}

// at returns the value at a path of member names and indexes, as in "steps.0.name".
func (d document) at(path string) document {
	for path != "" {
		var word string
		word, path, _ = strings.Cut(path, ".")
		if i, err := strconv.Atoi(word); err == nil && d.isList() {
			if list := d.list(); i < len(list) {
				d = list[i]
				continue
			}
			return document{}
		}
		d = d.member(word)
	}
	return d
}

// text returns the value at a path as a text: a string without its quotes, nothing for null.
func (d document) text(path string) string {
	d = d.at(path)
	var s string
	switch {
	case len(d.raw) == 0 || string(d.raw) == "null":
		return ""
	case d.raw[0] == '"' && json.Unmarshal(d.raw, &s) == nil:
		return s
	}
	return string(d.raw)
}

func (d document) isList() bool { return len(d.raw) > 0 && d.raw[0] == '[' }

// list returns the elements of an array.
func (d document) list() (all []document) {
	var elements []json.RawMessage
	if d.isList() {
		json.Unmarshal(d.raw, &elements)
	}
	for _, e := range elements {
		all = append(all, newDocument(e))
	}
	return all
}

func (d document) number(path string) float64 {
	f, _ := strconv.ParseFloat(d.text(path), 64)
	return f
}

// when returns the time at a path, which is in UTC if it has no zone.
func (d document) when(path string) (at time.Time, ok bool) {
	text := d.text(path)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return at, false
}

// style describes what an output device can show.
type style struct {
	colour, unicode bool
	terminal        *os.File // nil if it is none
}

// styleOf returns the style for a writer: colours on a terminal, unless NO_COLOR is set.
func (p *process) styleOf(w io.Writer) (s style) {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := p.getenv(name); v != "" {
			s.unicode = strings.Contains(strings.ToUpper(strings.ReplaceAll(v, "-", "")), "UTF8")
			break
		}
	}
	if f, ok := w.(*os.File); ok && isTerminal(w) && p.getenv("TERM") != "dumb" {
		s.terminal = f
		s.colour = p.getenv("NO_COLOR") == ""
	}
	return s
}

// Colours are SGR parameters (ECMA-48 §8.3.117).
const (
	plain  = ""
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
)

func (s style) paint(colour, text string) string {
	if !s.colour || colour == plain || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// look is how a state is shown.
type look struct{ colour, sign, ascii string }

var looks = map[string]look{
	"complete": {green, "✔", "+"}, "resolved_manually": {green, "✔", "+"}, "healthy": {green, "✔", "+"},
	"succeeded": {green, "✔", "+"}, "failed": {red, "✖", "x"},
	"error": {red, "✖", "x"}, "blocked_by_failures": {red, "✖", "x"}, "stale": {red, "✖", "x"},
	"cancelled": {faint, "⊘", "-"}, "in_progress": {blue, "▶", ">"}, "steps_in_process": {blue, "▶", ">"},
	"waiting_for_retry": {yellow, "↻", "~"}, "warning": {yellow, "!", "!"},
}

// sign returns the sign of a state.
func (s style) sign(state string) string {
	l, ok := looks[state]
	if !ok {
		l = look{faint, "·", "."}
	}
	if !s.unicode {
		return s.paint(l.colour, l.ascii)
	}
	return s.paint(l.colour, l.sign)
}

// state returns the sign and the name of a state.
func (s style) state(state string) string {
	if state == "" {
		return ""
	}
	return s.sign(state) + " " + s.paint(looks[state].colour, state)
}

// table is a table of aligned columns.
type table struct {
	style
	p              *process
	wide, headless bool
	rows           [][]string
}

// head adds the row of headings.
func (t *table) head(cells ...string) {
	if t.headless {
		return
	}
	for i, cell := range cells {
		cells[i] = t.paint(bold, cell)
	}
	t.rows = append(t.rows, cells)
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// line adds a line that is no row; the columns after it are aligned anew.
func (t *table) line(text string) { t.rows = append(t.rows, nil, []string{text}, nil) }

// write writes the rows. A nil row ends a block of aligned columns.
func (t *table) write(w io.Writer) error {
	var b strings.Builder
	for begin := 0; begin < len(t.rows); {
		end := begin
		for end < len(t.rows) && t.rows[end] != nil {
			end++
		}
		writeAligned(&b, t.rows[begin:end])
		begin = end + 1
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeAligned(b *strings.Builder, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], shownWidth(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-shownWidth(cell)+2))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// shownWidth returns how many columns a text takes, without its colours. Wide characters count as
// one.
func shownWidth(s string) int {
	n := utf8.RuneCountInString(s)
	for {
		begin := strings.Index(s, "\x1b[")
		if begin < 0 {
			return n
		}
		end := begin + strings.IndexByte(s[begin:], 'm') + 1
		n -= end - begin
		s = s[end:]
	}
}

// clipShown shortens a line to a number of columns, and keeps its colours whole.
func clipShown(s string, columns int) string {
	if shownWidth(s) <= columns {
		return s
	}
	var b strings.Builder
	for len(s) > 0 && columns > 1 {
		if strings.HasPrefix(s, "\x1b[") {
			end := strings.IndexByte(s, 'm') + 1
			b.WriteString(s[:end])
			s = s[end:]
			continue
		}
		_, size := utf8.DecodeRuneInString(s)
		b.WriteString(s[:size])
		s = s[size:]
		columns--
	}
	b.WriteString("…")
	if strings.Contains(b.String(), "\x1b[") {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// column is a column of a list.
type column struct {
	head string
	show func(t *table, item document) string
	wide bool // only with -o wide
}

// of returns a column of a member's text.
func of(head, path string) column {
	return column{head: head, show: func(_ *table, d document) string { return printable(d.text(path)) }}
}

func stateOfColumn(head, path string) column {
	return column{head: head, show: func(t *table, d document) string { return t.state(printable(d.text(path))) }}
}

func ageOf(head, path string) column {
	return column{head: head, show: func(t *table, d document) string { return t.p.age(d, path) }}
}

// whenWide returns the column for -o wide alone.
func (c column) whenWide() column {
	c.wide = true
	return c
}

// list adds a row per item.
func (t *table) list(items []document, columns []column) {
	t.listOf(items, columns, func(int) string { return "" })
}

// listOf is list with a text before the first column of each row.
func (t *table) listOf(items []document, columns []column, before func(i int) string) {
	var shown []column
	var heads []string
	for _, c := range columns {
		if t.wide || !c.wide {
			shown, heads = append(shown, c), append(heads, c.head)
		}
	}
	t.head(heads...)
	for i, item := range items {
		cells := make([]string, len(shown))
		for k, c := range shown {
			cells[k] = c.show(t, item)
		}
		cells[0] = before(i) + cells[0]
		t.row(cells...)
	}
}

// fields adds a row per column, for one item, and leaves out those without a value.
func (t *table) fields(item document, columns []column) {
	for _, c := range columns {
		if text := c.show(t, item); text != "" && (t.wide || !c.wide) {
			t.row(t.paint(faint, c.head), text)
		}
	}
}

// printable quotes a text that would confuse a terminal or a reader.
func printable(s string) string {
	if q := strconv.Quote(s); strings.ContainsAny(s, "\x1b\n\r\t") || len(q) != len(s)+2 && !isPrintable(s) {
		return q
	}
	return s
}

func isPrintable(s string) bool {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// age returns how long ago the time at a path is.
func (p *process) age(d document, path string) string {
	at, ok := d.when(path)
	if !ok {
		return ""
	}
	return shortDuration(p.now().time().Sub(at))
}

// shortDuration writes a duration with at most two units, as in 3m12s.
func shortDuration(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	day := 24 * time.Hour
	two := func(big, small time.Duration, bigUnit, smallUnit string) string {
		if rest := d % big / small; rest > 0 {
			return fmt.Sprintf("%s%d%s%d%s", sign, d/big, bigUnit, rest, smallUnit)
		}
		return fmt.Sprintf("%s%d%s", sign, d/big, bigUnit)
	}
	switch {
	case d < 10*time.Millisecond:
		return sign + strconv.FormatFloat(math.Round(float64(d)/1e4)/100, 'f', -1, 64) + "ms"
	case d < time.Second:
		return fmt.Sprintf("%s%dms", sign, d.Milliseconds())
	case d < 10*time.Second:
		return sign + strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%s%ds", sign, d/time.Second)
	case d < time.Hour:
		return two(time.Minute, time.Second, "m", "s")
	case d < day:
		return two(time.Hour, time.Minute, "h", "m")
	}
	return two(day, time.Hour, "d", "h")
}
