package main

// What is wrong with a configuration, told all at once and without secrets.

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// configProblem is one thing wrong.
type configProblem struct {
	source  configSource
	path    string // of a key or within one; "" when it is not about a key
	message string
}

func (p configProblem) String() string {
	if p.path == "" {
		return fmt.Sprintf("%v: %s", p.source, p.message)
	}
	return fmt.Sprintf("%v: %s: %s", p.source, redactName(p.path), p.message)
}

// configError is everything that is wrong with a configuration.
type configError struct{ problems []configProblem }

func (e *configError) Error() string {
	if len(e.problems) == 1 {
		return "configuration: " + e.problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d problems", len(e.problems))
	for _, p := range e.problems {
		fmt.Fprintf(&b, "\n  %v", p)
	}
	return b.String()
}

// newConfigError is nil without problems, and a *usageError when only flags
// are at fault.
func newConfigError(problems []configProblem) error {
	if len(problems) == 0 {
		return nil
	}
	err := &configError{problems}
	if slices.ContainsFunc(problems, func(p configProblem) bool { return p.source.kind != fromFlag }) {
		return err
	}
	return &usageError{err.Error()}
}

// unknownConfigName says that there is no such key or variable, and which one
// may have been meant.
func unknownConfigName(what, name string, known []string) string {
	if near := nearestConfigName(name, known); near != "" {
		return fmt.Sprintf("unknown %s; did you mean %s?", what, near)
	}
	return "unknown " + what
}

// nearestConfigName is the known name that takes the fewest changes of a
// letter, or else one with the same last part; "" when none is near.
func nearestConfigName(name string, known []string) string {
	best, limit := "", max(2, len(strings.TrimPrefix(name, configEnvPrefix))/3)
	for _, k := range known {
		if d := typoDistance(name, k, limit); d < limit || d == limit && best == "" {
			best, limit = k, d
		}
	}
	if best != "" {
		return best
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	for _, k := range known {
		if strings.HasSuffix(k, "."+last) {
			return k
		}
	}
	return ""
}

// quotedCharacter is a single character that the decoder quotes.
var quotedCharacter = regexp.MustCompile(`'\\?[^']'|"\\?[^"]"|'\\x[0-9a-f]{2}'|'\\u[0-9a-f]{4}'`)

// tomlSyntaxProblem is the decoder's message unless it may repeat a value: it
// does not know which ones are secret.
func tomlSyntaxProblem(err error) string {
	e, ok := errors.AsType[toml.ParseError](err)
	if !ok {
		return "not TOML"
	}
	quotes := strings.ContainsAny(quotedCharacter.ReplaceAllString(e.Message, ""), `'"`)
	if quotes && !strings.HasPrefix(e.Message, "Key '") || strings.Contains(e.Message, "out of range") {
		return "not TOML: what stands there is not a value (text stands in quotes)"
	}
	return "not TOML: " + e.Message
}
