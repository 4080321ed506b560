package main

// Completion. The script of a shell passes the words of the command line to the program, which prints the commands or
// flags that may follow. Where there are none, the shell completes names of files.

import (
	"context"
	"flag"
	"io"
	"strings"
)

// completeWord is the command that the scripts call.
const completeWord = "__complete"

// completionScripts pass the words up to the cursor.
var completionScripts = map[string]string{
	"bash": `_stepwell() {
    local words found
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} != *[[:space:]] ]] || words+=("")
    mapfile -t found < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
    COMPREPLY=("${found[@]%%$'\t'*}")
}
complete -o default -F _stepwell stepwell
`,
	"zsh": `#compdef stepwell
_stepwell() {
    local -a found
    found=("${(@f)$("${words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    found=("${(@)found/$'\t'/:}")
    [[ -n $found ]] && _describe -V stepwell found || _files
}
if [ "$funcstack[1]" = _stepwell ]; then _stepwell "$@"; else compdef _stepwell stepwell; fi
`,
	"fish": `function __stepwell_complete
    set -l words (commandline -opc)
    set -l begun (commandline -ct | string unescape)
    $words[1] __complete $words[2..-1] "$begun" 2>/dev/null | string match '*' || __fish_complete_path "$begun"
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

// complete prints the commands or flags that can replace the last word, which may be empty or unfinished: each with what
// it is about after a tab.
func (p *process) complete(words []string) error {
	if len(words) == 0 {
		return nil
	}
	last := words[len(words)-1]
	c, words := commands(), words[:len(words)-1]
	for len(c.commands) > 0 {
		if _, words = leadingFlags(words); len(words) == 0 {
			break
		}
		sub, ok := c.sub(words[0])
		if !ok && words[0] != "help" {
			return nil
		} else if ok {
			c = sub
		}
		words = words[1:]
	}
	var text string
	offer := func(word, about string) {
		if strings.HasPrefix(word, last) {
			text += word + "\t" + about + "\n"
		}
	}
	if !strings.HasPrefix(last, "-") {
		for _, sub := range c.commands {
			offer(sub.name, sub.help)
		}
	} else {
		o := newOptions(p, &c)
		if len(c.commands) > 0 {
			o.withClient().withOutput()
		} else {
			c.define(o)
		}
		o.VisitAll(func(f *flag.Flag) {
			if _, help := flagHelp(f); f.Name != shortOutput {
				about, _, _ := strings.Cut(help, ": ")
				offer(dashed(f.Name), about)
			}
		})
	}
	_, err := io.WriteString(p.stdout, text)
	return err
}
