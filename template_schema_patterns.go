package main

// The keyword pattern of JSON Schema: patterns of ECMA-262 as expressions of Go's regexp.

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

func compilePattern(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	text := c.text(at, raw)
	re, want := c.pattern(at, text), "want a text that matches "+clippedText(text)
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		return n.kind != '"' || v.matches(re, n.text) || v.misfit(n, want)
	})
}

// pattern compiles an ECMA-262 pattern, if Go's regexp can express it.
func (c *schemaCompiler) pattern(at schemaPlace, text string) *regexp.Regexp {
	p := translatePattern(text)
	if p.fault != "" {
		c.problem(at, "%q is not a pattern: %s", clippedText(text), p.fault)
		return nil
	}
	re, err := regexp.Compile(p.out.String())
	if err != nil && p.foreign == "" {
		p.foreign = "a repetition that is too large"
	}
	if p.foreign != "" {
		c.problem(at, "the pattern %q has %s, which is not supported", clippedText(text), p.foreign)
	}
	return re
}

// The white space of ECMA-262, and everything else, for a class of characters.
const (
	ecmaSpace    = `\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}`
	ecmaNotSpace = `\x{0}-\x{8}\x{E}-\x{1F}!-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}` +
		`\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{FEFE}\x{FF00}-\x{10FFFF}`
)

// ecmaPattern is a pattern of ECMA-262 while it is translated to one of Go.
type ecmaPattern struct {
	in      []rune // what is left
	out     strings.Builder
	open    int  // groups
	atom    bool // the last part may be repeated
	groups  int
	names   []string
	refs    []string // numbers and names of groups
	fault   string   // why it is no pattern
	foreign string   // what Go does not have
}

func validPattern(s string) bool { return translatePattern(s).fault == "" }

func translatePattern(s string) *ecmaPattern {
	p := &ecmaPattern{in: []rune(s)}
	for len(p.in) > 0 && p.fault == "" {
		p.part()
	}
	for _, ref := range p.refs {
		if n, err := strconv.Atoi(ref); err == nil && n > p.groups || err != nil && !slices.Contains(p.names, ref) {
			p.fault = cmp.Or(p.fault, "a reference to no group")
		}
	}
	if p.open > 0 {
		p.fault = cmp.Or(p.fault, "a group is not closed")
	}
	return p
}

// take drops a prefix, if the rest begins with it.
func (p *ecmaPattern) take(prefix string) bool {
	want := []rune(prefix)
	found := len(p.in) >= len(want) && slices.Equal(p.in[:len(want)], want)
	if found {
		p.in = p.in[len(want):]
	}
	return found
}

// next drops and returns one character, 0 at the end.
func (p *ecmaPattern) next() (r rune) {
	if len(p.in) > 0 {
		r, p.in = p.in[0], p.in[1:]
	}
	return r
}

func (p *ecmaPattern) write(text string, atom bool) {
	p.out.WriteString(text)
	p.atom = atom
}

func (p *ecmaPattern) part() {
	if p.repetition() {
		return
	}
	switch r := p.next(); r {
	case '^', '$', '|':
		p.write(string(r), false)
	case '(':
		p.group()
	case ')':
		if p.open--; p.open < 0 {
			p.fault = "a group is not opened"
		}
		p.write(")", true)
	case '.':
		p.write(`[^\n\r\x{2028}\x{2029}]`, true)
	case '[':
		p.class()
	case '\\':
		p.escaped()
	default:
		p.write(regexp.QuoteMeta(string(r)), true)
	}
}

var repetitionSyntax = compiled(`^(?:[*+?]|\{(\d+)(?:,(\d*))?\})\??`)

// repetition translates a quantifier, if there is one.
func (p *ecmaPattern) repetition() bool {
	if !strings.ContainsRune("*+?{", p.in[0]) {
		return false
	}
	m := repetitionSyntax().FindStringSubmatch(string(p.in[:min(len(p.in), 40)]))
	if m == nil {
		return false // a brace that is no quantifier
	}
	lo, hi := parseDecimal([]byte("0"+m[1])), parseDecimal([]byte("0"+m[2]))
	if !p.atom || m[2] != "" && lo.compare(hi) > 0 {
		p.fault = "nothing to repeat, or numbers in the wrong order"
	}
	p.in = p.in[utf8.RuneCountInString(m[0]):]
	p.write(m[0], false)
	return true
}

func (p *ecmaPattern) group() {
	p.open++
	p.write("(?:", false)
	switch {
	case p.take("?:"):
	case p.take("?=") || p.take("?!") || p.take("?<=") || p.take("?<!"):
		p.foreign = "a look-ahead or look-behind"
	case p.take("?<"):
		p.groups++
		if name := p.name(); slices.Contains(p.names, name) {
			p.fault = "two groups have one name"
		} else {
			p.names = append(p.names, name)
		}
	case p.take("?"):
		p.fault = "an unknown kind of group"
	default:
		p.groups++
	}
}

// name reads the name of a group up to the >.
func (p *ecmaPattern) name() string {
	end := slices.Index(p.in, '>')
	name := string(p.in[:max(end, 0)])
	if !groupNameSyntax().MatchString(name) {
		p.fault = "a group has no proper name"
		return ""
	}
	p.in = p.in[end+1:]
	return name
}

var groupNameSyntax = compiled(`^[\pL_$][\pL\p{Mn}\p{Nd}_$]*$`)

// escaped translates an escape outside of classes.
func (p *ecmaPattern) escaped() {
	switch {
	case p.take("b"):
		p.write(`\b`, false)
	case p.take("B"):
		p.write(`\B`, false)
	case p.take("k<"):
		p.refs, p.foreign = append(p.refs, p.name()), "a reference to a group"
		p.atom = true
	case len(p.in) > 0 && '1' <= p.in[0] && p.in[0] <= '9':
		digits := 1
		for digits < len(p.in) && unicode.Is(unicode.Nd, p.in[digits]) {
			digits++
		}
		p.refs, p.foreign = append(p.refs, string(p.in[:digits])), "a reference to a group"
		p.in, p.atom = p.in[digits:], true
	default:
		text, _ := p.escape()
		p.write("["+text+"]", true)
	}
}

// escape returns an escape for a class of Go, and the character if it is one, else -1.
func (p *ecmaPattern) escape() (string, rune) {
	r := p.next()
	switch r {
	case 'd', 'D', 'w', 'W':
		return `\` + string(r), -1
	case 's':
		return ecmaSpace, -1
	case 'S':
		return ecmaNotSpace, -1
	case 'p', 'P':
		return p.property(string(r)), -1
	case 'c':
		letter := p.next()
		if letter |= 0x20; letter < 'a' || letter > 'z' {
			p.fault = `\c needs a letter`
		}
		r = letter & 31
	case 'x':
		r = p.hex(2)
	case 'u':
		r = p.unicode()
	case '0':
		r = 0
	default:
		if i := strings.IndexRune("tnvfr", r); i >= 0 {
			r = []rune("\t\n\v\f\r")[i]
		} else if r == 0 || unicode.IsLetter(r) || unicode.IsDigit(r) {
			p.fault = "an unknown escape"
		}
	}
	return fmt.Sprintf(`\x{%x}`, r), r
}

// hex reads a number of digits.
func (p *ecmaPattern) hex(digits int) rune {
	n, err := strconv.ParseUint(string(p.in[:min(digits, len(p.in))]), 16, 32)
	if err != nil || len(p.in) < digits || n > unicode.MaxRune {
		p.fault = "an escape needs hexadecimal digits"
		return 0
	}
	p.in = p.in[digits:]
	return rune(n)
}

func (p *ecmaPattern) unicode() rune {
	if p.take("{") {
		r := p.hex(max(slices.Index(p.in, '}'), 0))
		p.next()
		return r
	}
	r := p.hex(4)
	if utf16.IsSurrogate(r) && p.take(`\u`) {
		r = utf16.DecodeRune(r, p.hex(4))
	}
	if utf16.IsSurrogate(r) || r == unicode.ReplacementChar {
		p.foreign = "a lone surrogate"
	}
	return r
}

// property translates \p{…}: general categories, which Go has too, and scripts.
func (p *ecmaPattern) property(escape string) string {
	end := slices.Index(p.in, '}')
	if !p.take("{") || end < 2 {
		p.fault = `\` + escape + " needs a name in braces"
		return ""
	}
	name := string(p.in[:end-1])
	p.in = p.in[end:]
	key, value, qualified := strings.Cut(name, "=")
	if !qualified || key == "General_Category" || key == "gc" {
		value = name[strings.IndexByte(name, '=')+1:]
	} else if (key != "Script" && key != "sc") || unicode.Scripts[value] == nil {
		value = "?"
	}
	text := `\` + escape + "{" + value + "}"
	if _, err := regexp.Compile(text); err != nil || !qualified && unicode.Scripts[value] != nil {
		p.foreign = "the property " + clippedText(name)
	}
	return text
}

// class translates a class of characters.
func (p *ecmaPattern) class() {
	text, empty := "[", `[^\x{0}-\x{10FFFF}]`
	if p.take("^") {
		text, empty = "[^", `[\x{0}-\x{10FFFF}]`
	}
	first := len(text)
	for !p.take("]") {
		part, lo := p.classAtom()
		if len(p.in) > 1 && p.in[0] == '-' && p.in[1] != ']' && lo >= 0 {
			p.next()
			upper, hi := p.classAtom()
			if part += "-" + upper; hi < 0 {
				part = fmt.Sprintf(`\x{%x}\-%s`, lo, upper)
			} else if hi < lo {
				p.fault = "a range is in the wrong order"
			}
		}
		if text += part; len(p.in) == 0 {
			p.fault = cmp.Or(p.fault, "a class is not closed")
		}
		if p.fault != "" {
			return
		}
	}
	p.write(pick(len(text) == first, empty, text+"]"), true)
}

func (p *ecmaPattern) classAtom() (string, rune) {
	r := p.next()
	if r == '\\' && p.take("b") {
		r = '\b'
	} else if r == '\\' {
		return p.escape()
	}
	return fmt.Sprintf(`\x{%x}`, r), r
}
