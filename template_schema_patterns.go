package main

// The keyword pattern of JSON Schema: patterns of ECMA-262 as expressions of Go's regexp.

import (
	"cmp"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// compiledPattern is a pattern that can be matched.
type compiledPattern struct {
	source string
	re     *regexp.Regexp // nil if the pattern has a fault
	size   int            // instructions
}

func compilePattern(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	text := c.text(at, raw)
	p, want := c.pattern(at, text), "want a text that matches "+clippedText(text)
	s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
		return n.kind() != '"' || v.matches(p, n.text()) || v.misfit(n, want)
	})
}

// What a pattern takes while it is read and compiled, in bytes.
const (
	patternBytes     = 512      // each byte of its text
	propertyBytes    = 10 << 10 // a property, such as \p{L}, whose hundreds of ranges are copied
	instructionBytes = 160
)

// pattern compiles an ECMA-262 pattern, if Go's regexp can express it. Its size is known before it is
// compiled, since a repetition multiplies what it repeats.
func (c *schemaCompiler) pattern(at schemaPlace, text string) (compiled compiledPattern) {
	if !c.budget.take(patternMemory(text), at.path, "the text of the pattern") {
		return compiled
	}
	p := translatePattern(text)
	if p.fault != "" {
		c.problem(at, "%q is not a pattern: %s", clippedText(text), p.fault)
	} else if p.foreign != "" {
		c.problem(at, "the pattern %q has %s, which is not supported", clippedText(text), p.foreign)
	}
	if p.parsed == nil {
		return compiled
	}
	size, runes := programSize(p.parsed)
	if runes > maxOnePassRunes {
		p.text = notOnePass + p.text
	}
	what := fmt.Sprintf("the pattern %q of %d instructions", clippedText(text), size)
	if c.budget.take(instructionBytes*size, at.path, what) {
		re, _ := regexp.Compile(p.text) // which was parsed
		compiled = compiledPattern{text, re, size}
	}
	return compiled
}

// patternMemory returns how much memory it takes to read a pattern, at most.
func patternMemory(text string) int {
	return patternBytes*len(text) + propertyBytes*(strings.Count(text, `\p`)+strings.Count(text, `\P`))
}

// For a pattern that begins with ^, package regexp may copy the ranges of a class for each instruction
// that matches it, 8 KB for \p{L}. It does not if something stands before the ^.
const (
	maxOnePassRunes = 4096
	notOnePass      = `(?:\b|)`
)

// programSize returns how many instructions an expression compiles to, as package syntax counts
// them, at most, and how many ends of ranges their classes have.
func programSize(re *syntax.Regexp) (n, runes int) {
	for _, sub := range re.Sub {
		more, moreRunes := programSize(sub)
		n, runes = n+more, runes+moreRunes
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		runes = len(re.Rune)
	case syntax.OpCapture, syntax.OpStar:
		n += 2
	case syntax.OpPlus, syntax.OpQuest:
		n++
	case syntax.OpAlternate:
		n += len(re.Sub) - 1
	case syntax.OpRepeat:
		runes *= max(re.Min, re.Max, 1)
		switch {
		case re.Max >= 0:
			n = re.Max*n + re.Max - re.Min
		case re.Min > 0:
			n = re.Min*n + 1
		default:
			n += 2
		}
	}
	return max(n, 1), runes
}

// What Go writes for \s and \S of ECMA-262 in a class of characters. Both begin and end with an
// escape that is not a character, so that no hyphen beside them makes a range.
const (
	ecmaSpace    = `\pZ\x{FEFF}\v\s`
	ecmaNotSpace = `\w\x{0}-\x{8}\x{E}-\x{1F}!-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}` +
		`\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{FEFE}\x{FF00}-\x{10FFFF}\w`
)

// ecmaPart matches the next part of a pattern: an escape, the start of a class or of a group, a
// repeated anchor, or one character.
var ecmaPart = compiled(`(?s)^(?:\\(?:c[A-Za-z]|u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|` +
	`u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[pP]\{[\w=]+\}|k<[^>]+>|[1-9][0-9]*|.)|\[\^?\]?|` +
	`\(\?(?:<?[=!]|:|<[A-Za-z_]\w*>)?|[$^][*+?]|.)`)

// ecmaPattern is a pattern of ECMA-262 that is translated to one of Go.
type ecmaPattern struct {
	text    string         // Go's
	parsed  *syntax.Regexp // nil if it is none
	fault   string         // why it is not a pattern
	foreign string         // what Go does not have
}

func validPattern(s string) bool { return translatePattern(s).fault == "" }

func translatePattern(s string) (p ecmaPattern) {
	var out strings.Builder
	for class := false; s != ""; {
		part := ecmaPart().FindString(s)
		// In a class, everything but an escape is a single character.
		if class && part[0] != '\\' {
			_, n := utf8.DecodeRuneInString(part)
			part = part[:n]
		}
		s = s[len(part):]
		switch {
		case part[0] == '\\':
			part = p.escape(part, class)
		case class:
			class = part != "]"
			// Go would take it for the start of [:alpha:] and the like.
			part = pick(part == "[", `\[`, part)
		case part == ".":
			part = `[^\n\r\x{2028}\x{2029}]`
		case part == "[]":
			// A class without characters. Go would take the bracket for its first one.
			part = `[^\x{0}-\x{10FFFF}]`
		case part == "[^]":
			part = `[\x{0}-\x{10FFFF}]`
		case part[0] == '[':
			class = true
		case part == "(?":
			p.fault = "an unknown kind of group"
		case part[0] == '(' && strings.ContainsAny(part, "=!"):
			// As another group, so that the rest is still parsed: a fault there makes it no pattern at all.
			part, p.foreign = "(?:", "a look-ahead or look-behind"
		case len(part) == 2 && strings.ContainsAny(part[:1], "^$"):
			p.fault = "nothing to repeat"
		}
		out.WriteString(part)
	}
	var err error
	p.text = out.String()
	if p.parsed, err = syntax.Parse(p.text, syntax.Perl); err != nil {
		switch code := err.(*syntax.Error).Code; code {
		case syntax.ErrInvalidRepeatSize, syntax.ErrLarge:
			p.foreign = cmp.Or(p.foreign, "a repetition that is too large or in the wrong order")
		default:
			p.fault = cmp.Or(p.fault, code.String())
		}
	}
	return p
}

// escape translates an escape, inside or outside of a class of characters.
func (p *ecmaPattern) escape(part string, class bool) string {
	kind, more := part[1:min(2, len(part))], part[min(2, len(part)):]
	switch {
	case kind == "s" || kind == "S":
		text := pick(kind == "s", ecmaSpace, ecmaNotSpace)
		return pick(class, text, "["+text+"]")
	case kind == "b" && class:
		return `\x08`
	case kind == "0":
		// Go would read digits after \0 as a part of the number.
		return `\x00`
	case kind == "c" && more != "":
		return fmt.Sprintf(`\x%02x`, more[0]&31)
	case kind == "u" && more != "":
		return p.codePoint(more)
	case (kind == "p" || kind == "P") && more != "":
		return p.property(part[:3], more[1:len(more)-1])
	case kind == "k" && more != "" || "1" <= kind && kind <= "9":
		p.foreign = "a reference to a group"
		return "(?:)"
	case more == "" && strings.ContainsFunc(kind, unicode.IsLetter) && !strings.Contains("dDwWbBtnvfr", kind):
		p.fault = "an unknown escape"
	}
	return part
}

// codePoint translates what follows \u: a code point in braces, or one or two units of UTF-16.
func (p *ecmaPattern) codePoint(text string) string {
	high, low, pair := strings.Cut(strings.Trim(text, "{}"), `\u`)
	n, _ := strconv.ParseInt(high, 16, 32) // out of range: the largest, which Go refuses
	if second, _ := strconv.ParseInt(low, 16, 32); pair {
		n = int64(utf16.DecodeRune(rune(n), rune(second)))
	}
	if utf16.IsSurrogate(rune(n)) {
		p.foreign = "a lone surrogate"
	}
	return fmt.Sprintf(`\x{%x}`, n)
}

// property translates \p{…}: general categories and scripts, which Go does not qualify.
func (p *ecmaPattern) property(open, name string) string {
	key, value, qualified := strings.Cut(name, "=")
	if !qualified {
		value = name
	}
	text := open + value + "}"
	_, err := syntax.Parse(text, syntax.Perl)
	if err != nil || qualified && !slices.Contains([]string{"General_Category", "gc", "Script", "sc"}, key) {
		p.foreign = "the property " + clippedText(name)
		// Any property will do, so that the rest is still parsed.
		return `\pL`
	}
	return text
}
