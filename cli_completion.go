package main

// Completion. The script of a shell passes the words of the command line to the program, which
// prints the words that may follow.

import (
	"cmp"
	"context"
	"flag"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// completeWord is the command that the scripts call.
const completeWord = "__complete"

// What may stand in a place, in the first line that completeWord prints.
const (
	completesWords       = "words" // those in the lines that follow: each a word, and after a tab what it is about
	completesFiles       = "files"
	completesDirectories = "directories"
)

// completionScripts pass the words up to the cursor.
var completionScripts = map[string]string{
	"bash": `_stepwell() {
    local words found kept
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} != *[[:space:]] ]] || words+=("")
    mapfile -t found < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
    case ${found[0]} in
    files) compopt -o default; return ;;
    directories) compopt -o dirnames; return ;;
    esac
    kept=${words[-1]} kept=${kept%"${kept##*[:=]}"} # bash inserts after these
    found=("${found[@]:1}") found=("${found[@]%%$'\t'*}")
    COMPREPLY=("${found[@]#"$kept"}")
}
complete -F _stepwell stepwell
`,
	"zsh": `#compdef stepwell
_stepwell() {
    local -a found
    found=("${(@f)$("${words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    case $found[1] in
    files) compset -P '*='; _files ;;
    directories) compset -P '*='; _files -/ ;;
    words)
        found=("${(@)found[2,-1]/$'\t'/:}")
        _describe -V stepwell found ;;
    esac
}
if [ "$funcstack[1]" = _stepwell ]; then _stepwell "$@"; else compdef _stepwell stepwell; fi
`,
	"fish": `function __stepwell_complete
    set -l words (commandline -opc)
    set -l begun (commandline -ct | string unescape)
    set -l found ($words[1] __complete $words[2..-1] "$begun" 2>/dev/null)
    switch "$found[1]"
        case files
            __fish_complete_path "$begun"
        case directories
            __fish_complete_directories "$begun"
        case words
            set -e found[1]
            printf '%s\n' $found
    end
end
complete -c stepwell -k -f -a '(__stepwell_complete)'
`,
}

func completionCommand() command {
	return command{
		name: "completion", operands: "SHELL", help: "print a script that completes command lines in bash, zsh or fish",
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

// completion lists the words that can complete a command line at the cursor.
type completion struct {
	kind   string // completesWords if it is ""
	before string // the part of the typed word that the shell keeps before each of words
	begun  string // the prefix that a word must have
	words  []string
	about  map[string]string // descriptions of words; nil for none
}

// complete prints the words that can replace the last one, which may be empty or unfinished.
func (p *process) complete(words []string) error {
	if len(words) == 0 {
		return nil
	}
	last := len(words) - 1
	found := p.completion(words[:last], words[last])
	text := cmp.Or(found.kind, completesWords) + "\n"
	for _, word := range found.words {
		if strings.HasPrefix(word, found.begun) {
			text += found.before + word
			if about := found.about[word]; about != "" {
				text += "\t" + about
			}
			text += "\n"
		}
	}
	_, err := io.WriteString(p.stdout, text)
	return err
}

// completion returns the words that can replace last, after words.
func (p *process) completion(words []string, last string) completion {
	c, before := commands(), []string{}
	for len(c.commands) > 0 {
		flags, rest := leadingFlags(words)
		before, words = append(before, flags...), rest
		if len(words) == 0 {
			break
		}
		sub, ok := c.sub(words[0])
		if !ok && words[0] != "help" {
			return completion{}
		} else if ok {
			c = sub
		}
		words = words[1:]
	}
	o := newOptions(p, &c)
	if len(c.commands) > 0 {
		o.withClient().withOutput()
	} else {
		c.define(o)
	}
	given, waiting := o.given(append(before, words...))
	if f, begun, before := o.valueOf(waiting, last); f != nil {
		return o.values(f, before, begun)
	}
	_, most := c.limits()
	switch {
	case waiting != "": // an unknown flag
	case strings.HasPrefix(last, "-"):
		return o.flagNames(last)
	case len(c.commands) > 0:
		found := completion{begun: last, about: map[string]string{}}
		for _, sub := range c.commands {
			found.words = append(found.words, sub.name)
			found.about[sub.name] = sub.help
		}
		return found
	case given < most:
		operands := strings.Fields(c.operands)
		return operandCompletion(strings.Trim(operands[min(given, len(operands)-1)], "[]…"), last)
	}
	return completion{}
}

// flagNames completes the name of a flag.
func (o *options) flagNames(begun string) completion {
	found := completion{begun: begun, about: map[string]string{}}
	o.VisitAll(func(f *flag.Flag) {
		name := dashed(f.Name)
		if _, help := flagHelp(f); f.Name != shortOutput {
			found.words = append(found.words, name)
			found.about[name], _, _ = strings.Cut(help, ": ")
		}
	})
	return found
}

// valueOf returns the flag whose value is being typed, the part of the value that is there, and what the shell keeps
// before it. The flag is the word before, which waits for its value, or stands in one word with it.
func (o *options) valueOf(waiting, last string) (f *flag.Flag, begun, before string) {
	if waiting != "" {
		return o.Lookup(waiting), last, ""
	}
	if name, value, ok := strings.Cut(last, "="); ok && strings.HasPrefix(name, "-") {
		return o.Lookup(strings.TrimLeft(name, "-")), value, name + "="
	}
	return nil, "", ""
}

// enumeration matches one of the words that the help of a flag lists after a colon, and what follows it.
var enumeration = regexp.MustCompile(`^([a-zA-Z_-]+)(?: \([^)]*\))*(, or |, | or |;|$)`)

// values completes the value of a flag: with the words that its help lists, or by the name that the help has for the
// value.
func (o *options) values(f *flag.Flag, before, begun string) completion {
	operand, help := flagHelp(f)
	operand = cmp.Or(o.keyOperands[f.Name], operand)
	found := completion{before: before, begun: begun}
	_, list, _ := strings.Cut(help, ": ")
	switch operand {
	case "FORM", "FORMAT", "KIND", "LEVEL", "ORDER", "PRODUCT", "REASON", "ROLE", "SETS", "STATE", "STATUS", "WHEN":
		for m := enumeration.FindStringSubmatch(list); m != nil; m = enumeration.FindStringSubmatch(list) {
			found.words, list = append(found.words, m[1]), list[len(m[0]):]
		}
		// Of several values separated by commas, only the last one is completed.
		if at := strings.LastIndex(begun, ","); at >= 0 && strings.Contains(help, "comma") {
			found.before, found.begun = before+begun[:at+1], begun[at+1:]
		}
	case "":
		found.words = []string{"true", "false"}
	default:
		return operandCompletion(operand, begun)
	}
	return found
}

// given returns how many operands are among arguments, and the flag that still lacks its value, or "".
func (o *options) given(args []string) (operands int, waiting string) {
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name, _, whole := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !isFlag || name == "" {
			operands++
			continue
		}
		switch f := o.Lookup(name); {
		case whole, f == nil, standsAlone(f):
		case i+1 == len(args):
			return operands, name
		default:
			i++
		}
	}
	return operands, ""
}

// operandCompletion completes an operand, or the value of a flag, by what it is called in help.
func operandCompletion(operand, begun string) completion {
	switch {
	case operand == "SHELL":
		return completion{begun: begun, words: slices.Sorted(maps.Keys(completionScripts))}
	case operand == "FILE", operand == "FILE|TEMPLATE", strings.HasSuffix(operand, "PATH") && operand != "PATH":
		return completion{kind: completesFiles}
	case strings.HasPrefix(operand, "DIR"), operand == "NEWDIR":
		return completion{kind: completesDirectories}
	}
	return completion{}
}
