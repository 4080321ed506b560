package main

// Completion. The script of a shell passes the words of the command line to the program, which
// prints the words that may follow.

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// completeWord is the command that the scripts call.
const completeWord = "__complete"

// What may stand in a place, in the first line that completeWord prints.
const (
	completesWords       = "words" // those in the lines that follow: each a word, and after a tab what it is about
	completesFiles       = "files"
	completesDirectories = "directories"
)

// completionScripts pass the words up to the cursor. A name is data: each script inserts it quoted, so that its shell
// takes it as one word and expands nothing in it. In bash, words have descriptions when they are listed, and are the
// words alone when they are inserted.
var completionScripts = map[string]string{
	"bash": `_stepwell() {
    local words=() line=$COMP_LINE begun kept= last=0 quote= found word quoted about space width=0 i
    # For bash, a word ends at : and = and @, too, and it inserts after these.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        begun=${COMP_WORDS[i]} space=${line%%[![:space:]]*} kept=
        line=${line:${#space}+${#begun}}
        if [[ $space || $i == 0 ]]; then last=${#words[@]}; else kept=${words[last]}; fi
        words[last]=$kept$begun
        [[ $begun == *[!:=@]* ]] || kept=${words[last]} begun=
    done
    [[ $kept != *@ ]] || kept=${kept%@} begun=@$begun # but before the last @
    case $begun in
    \'\'* | \"\"*) begun=${begun:2} ;; # as this left it when it began with an open quote
    [\'\"]*) quote=${begun:0:1} begun=${begun:1} ;;
    esac
    [[ $quote ]] || IFS= read begun <<<"$begun" # without its backslashes
    IFS= read kept <<<"$kept"
    mapfile -t found < <("${words[0]}" __complete "${words[@]:1:last-1}" "$kept$begun" 2>/dev/null)
    COMPREPLY=()
    case ${found[0]} in
    files) compopt -o default; return ;;
    directories) compopt -o dirnames; return ;;
    esac
    compopt -o nosort 2>/dev/null # since version 4.4
    for i in "${!found[@]}"; do
        ((i)) || continue
        word=${found[i]%%$'\t'*} word=${word#"$kept"}
        printf -v quoted %q "$word"
        # Unless they are quoted, these end a word for readline. They cannot follow a backslash in $'…'.
        [[ $quoted == \$* ]] || quoted=${quoted//:/\\:} quoted=${quoted//=/\\=} quoted=${quoted//@/\\@}
        # Readline takes the first quote for the one that is open, and the last for its end.
        COMPREPLY+=("$quote$quote$quoted$quote$quote")
        ((${#word} <= width)) || width=${#word}
    done
    if ((COMP_TYPE == 63 && ${#COMPREPLY[@]} > 1)); then # only a list, after a second TAB
        for i in "${!COMPREPLY[@]}"; do
            about=${found[i+1]#"$kept"}
            [[ $about == *$'\t'* ]] && printf -v about '%-*s  (%s)' $width "${about%%$'\t'*}" "${about#*$'\t'}"
            COMPREPLY[i]=${about:0:${COLUMNS:-80}-2}
        done
    fi
}
complete -F _stepwell stepwell
`,
	"zsh": `#compdef stepwell
_stepwell() {
    local -a found names shown list
    local line width=0
    found=("${(@f)$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    case $found[1] in
    files) _files; return ;;
    directories) _files -/; return ;;
    esac
    for line in "${(@)found[2,-1]}"; do
        line=${line%%$'\t'*}
        names+=("$line")
        (( ${#line} <= width )) || width=${#line}
    done
    for line in "${(@)found[2,-1]}"; do
        if [[ $line == *$'\t'* ]]; then
            list=(-l)
            line="${(r:width:)${line%%$'\t'*}}  -- ${line#*$'\t'}"
        fi
        shown+=("$line")
    done
    compadd $list -V stepwell -d shown -a names
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
		more: "Templates and recent tasks come from the running service that the command would use.",
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

// complete prints the words that can replace the last one, which may be empty or unfinished. A word that would mislead
// a terminal is left out: for the script that reads it, it could be several.
func (p *process) complete(ctx context.Context, words []string) error {
	if len(words) == 0 {
		return nil
	}
	last := len(words) - 1
	found := p.completion(ctx, words[:last], words[last])
	text := cmp.Or(found.kind, completesWords) + "\n"
	for _, word := range found.words {
		if strings.HasPrefix(word, found.begun) && !strings.ContainsFunc(word, misleads) {
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
func (p *process) completion(ctx context.Context, words []string, last string) completion {
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
	// Flags are set on the way, so that --url decides which service is asked for names.
	given, waiting := o.given(append(before, words...))
	if f, begun, before := o.valueOf(waiting, last); f != nil {
		return o.values(ctx, f, given, before, begun)
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
	case len(given) < most:
		operands := strings.Fields(c.operands)
		return o.namesFor(ctx, strings.Trim(operands[min(len(given), len(operands)-1)], "[]…"), given, last)
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
func (o *options) values(ctx context.Context, f *flag.Flag, given []string, before, begun string) completion {
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
	case "NAME":
		operand = pick(f.Name == "name", "NAME", "")
		fallthrough
	default:
		found = o.namesFor(ctx, operand, given, begun)
		if found.before = before + found.before; before != "" && found.kind != "" { // shells complete files in a word of their own
			found.kind, found.words = "", filesFrom(begun)
		}
	}
	return found
}

// given returns the operands among arguments, and the flag that still lacks its value, or "".
func (o *options) given(args []string) (operands []string, waiting string) {
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name, value, whole := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !isFlag || name == "" {
			operands = append(operands, args[i])
			continue
		}
		f := o.Lookup(name)
		switch {
		case whole && f != nil:
			o.Set(name, value)
		case whole, f == nil, standsAlone(f):
		case i+1 == len(args):
			return operands, name
		default:
			i++
			o.Set(name, args[i])
		}
	}
	return operands, ""
}

// completionPatience is how long the completion of a name may wait for the service, since the shell stands still
// meanwhile.
const completionPatience = 500 * time.Millisecond

// namesFor completes an operand after those given, or the value of a flag, by what it is called in help: with names
// from the running service, or with files.
func (o *options) namesFor(ctx context.Context, operand string, given []string, begun string) completion {
	found := completion{begun: begun, about: map[string]string{}}
	if file, ok := strings.CutPrefix(begun, "@"); ok && (operand == "JSON" || strings.Contains(operand, "=")) {
		found.words = filesFrom(file)
		found.before, found.begun = "@", file
		return found
	}
	add := func(name, about string) {
		if !strings.HasPrefix(name, "-") { // a flag, such as --url with the address of somebody who waits for credentials
			found.words = append(found.words, name)
			found.about[name] = clipText(printable(about), longestAbout)
		}
	}
	switch {
	case operand == "SHELL":
		found.words = slices.Sorted(maps.Keys(completionScripts))
	case operand == "FILE", strings.HasSuffix(operand, "PATH") && operand != "PATH":
		found.kind = completesFiles
	case strings.HasPrefix(operand, "DIR"), operand == "NEWDIR":
		found.kind = completesDirectories
	default:
		o.serviceNames(ctx, operand, given, add)
	}
	if operand == "FILE|TEMPLATE" && !slices.ContainsFunc(found.words, func(w string) bool { return strings.HasPrefix(w, begun) }) {
		found.kind = completesFiles
	}
	return found
}

// filesFrom returns the files whose names begin with a text.
func filesFrom(begun string) []string {
	names, _ := filepath.Glob(globSigns.Replace(begun) + "*")
	return names
}

// globSigns escapes what filepath.Glob would expand.
var globSigns = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

// longestAbout is how many bytes of a description completion shows.
const longestAbout = 72

// serviceNames adds names from the running service for an operand, as help calls it, with their descriptions. Errors
// only mean that there are no names: nobody wants to read one in the middle of a command line.
func (o *options) serviceNames(ctx context.Context, operand string, given []string, add func(name, about string)) {
	if o.url == nil && o.Name() != "run" {
		return
	}
	if o.url == nil {
		o.withClient()
	}
	c, err := o.client()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	switch operand {
	case "TASK", "TASK|ENTRY":
		tasks, _, _ := c.tasks(ctx, url.Values{}, 20)
		for _, t := range tasks {
			add(t.exact("task_uuid"), fmt.Sprintf("%s, %s, %s old", templateColumn.show(nil, t), t.text("status"), o.p.age(t, "created_at")))
		}
		add("latest", "the newest task")
	case "STEP":
		if len(given) == 0 {
			return
		}
		path, _, err := c.taskPath(ctx, given[0])
		if err != nil {
			return
		}
		t, _ := c.get(ctx, path, nil)
		for _, s := range t.at("steps").list() {
			add(s.exact("name"), s.text("current_state"))
		}
	case "FILE|TEMPLATE", "TEMPLATE", "NAMESPACE", "NAME":
		list, _ := c.get(ctx, "/v1/templates", nil)
		for _, t := range list.at("templates").list() {
			namespace, name := t.exact("namespace"), t.exact("name")
			switch operand {
			case "NAMESPACE":
				add(namespace, "")
			case "NAME":
				add(name, "in "+namespace)
			default:
				add(namespace+"/"+name, t.text("description"))
			}
		}
	}
}
