package main

// Completion. The script of a shell passes the words of the command line to the program, which
// prints the words that may follow.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// completeWord is the command that the scripts call.
const completeWord = "__complete"

// completionScripts pass the words up to the cursor, and complete names of files where the program
// prints nothing. A name is data: each script inserts it quoted, so that its shell takes it as one word and expands
// nothing in it.
var completionScripts = map[string]string{
	"bash": `_stepwell() {
    local begun=${COMP_WORDS[COMP_CWORD]} quote= found word quoted
    case $begun in
    \'\'* | \"\"*) begun=${begun:2} ;; # as this left it when it began with an open quote
    [\'\"]*) quote=${begun:0:1} begun=${begun:1} ;;
    esac
    [[ $quote ]] || IFS= read begun <<<"$begun" # without its backslashes
    mapfile -t found < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$begun" 2>/dev/null)
    COMPREPLY=()
    for word in "${found[@]}"; do
        printf -v quoted %q "$word"
        # Unless they are quoted, these end a word for readline. They cannot follow a backslash in $'…'.
        [[ $quoted == \$* ]] || quoted=${quoted//:/\\:} quoted=${quoted//=/\\=} quoted=${quoted//@/\\@}
        # Readline takes the first quote for the one that is open, and the last for its end.
        COMPREPLY+=("$quote$quote$quoted$quote$quote")
    done
}
complete -o default -F _stepwell stepwell
`,
	"zsh": `#compdef stepwell
_stepwell() {
    local -a found
    found=(${(f)"$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)"})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = _stepwell ]; then _stepwell "$@"; else compdef _stepwell stepwell; fi
`,
	"fish": `function __stepwell_complete
    set -l words (commandline -opc)
    set -l begun (commandline -ct | string unescape)
    $words[1] __complete $words[2..-1] "$begun" 2>/dev/null
end
complete -c stepwell -a '(__stepwell_complete)'
`,
}

func completionCommand() command {
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
				_, err := io.WriteString(o.p.stdout, script)
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
	c, last := commands(), words[len(words)-1]
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
	o := newOptions(p, c)
	c.define(o)
	if strings.HasPrefix(last, "-") {
		o.VisitAll(func(f *flag.Flag) { words = append(words, dashed(f.Name)) })
		return words
	}
	given, whole := o.given(args)
	if _, most := c.limits(); !whole || len(given) >= most {
		return nil
	}
	operands := strings.Fields(c.operands)
	names := o.namesFor(ctx, strings.Trim(operands[min(len(given), len(operands)-1)], "[]…"), given)
	return slices.DeleteFunc(names, unfitName)
}

// unfitName reports whether no shell may get a name: it would mislead a terminal, be several lines for the script that
// reads it, or be a flag, such as --url with the address of somebody who waits for credentials.
func unfitName(name string) bool {
	return strings.HasPrefix(name, "-") || strings.ContainsFunc(name, misleads)
}

// given returns the operands among arguments, and whether no flag still lacks its value.
func (o *options) given(args []string) (operands []string, whole bool) {
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name = strings.TrimPrefix(name, "-")
		if !isFlag || name == "" {
			operands = append(operands, args[i])
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
			return nil, false
		}
		o.Set(name, args[i])
	}
	return operands, true
}

// completionPatience is how long the completion of a name may wait for the service.
const completionPatience = 500 * time.Millisecond

// namesFor returns what may stand for an operand after those given: names from the running service.
func (o *options) namesFor(ctx context.Context, operand string, given []string) (names []string) {
	if o.url == nil && o.Name() != "run" {
		return nil
	}
	if o.url == nil {
		o.withClient()
	}
	c, err := o.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	switch operand {
	case "TASK":
		tasks, _, _ := c.tasks(ctx, url.Values{}, 20)
		for _, t := range tasks {
			names = append(names, t.exact("task_uuid"))
		}
		return append(names, "latest")
	case "STEP":
		path, _, err := c.taskPath(ctx, given[0])
		if err != nil {
			return nil
		}
		t, _ := c.get(ctx, path, nil)
		for _, s := range t.at("steps").list() {
			names = append(names, s.exact("name"))
		}
		return names
	case "FILE|TEMPLATE", "TEMPLATE":
		list, _ := c.get(ctx, "/v1/templates", nil)
		for _, t := range list.at("templates").list() {
			names = append(names, t.exact("namespace")+"/"+t.exact("name"))
		}
	}
	return names
}
