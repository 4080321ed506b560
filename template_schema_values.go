package main

// JSON Schema: the keywords of single values, such as types, bounds and lengths, and the
// formats and patterns of texts.

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Checks of any value.

// schemaTypes holds the types, each as messages have it.
var schemaTypes = map[string]string{
	"null": "null", "boolean": "true or false", "object": "an object", "array": "a list", "number": "a number",
	"integer": "an integer", "string": "a string",
}

func compileType(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	var names, words []string
	take := func(value []byte) bool {
		name, _ := jsonString(value)
		if schemaTypes[name] == "" || slices.Contains(names, name) {
			c.problem(at, "%s is not one of %s, each once", clippedText(string(value)),
				anyOf(slices.Sorted(maps.Keys(schemaTypes))))
		}
		names, words = append(names, name), append(words, schemaTypes[name])
		return true
	}
	if jsonKind(raw) == '"' {
		take(raw)
	} else if !eachElement(raw, take) || len(names) == 0 {
		c.problem(at, "is %s; want a type, or a list of them", templateValueKind(raw))
	}
	want := "want " + anyOf(words)
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		return slices.ContainsFunc(names, n.is) || v.misfit(n, want)
	})
}

// is reports whether the value has a type.
func (n *jsonValue) is(name string) bool {
	switch name {
	case "null":
		return n.kind == 'n'
	case "boolean":
		return n.kind == 't' || n.kind == 'f'
	case "object":
		return n.kind == '{'
	case "array":
		return n.kind == '['
	case "string":
		return n.kind == '"'
	case "integer":
		return n.kind == '0' && parseDecimal(n.raw).integer()
	}
	return n.kind == '0'
}

func compileEnum(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	if jsonKind(raw) != '[' {
		c.problem(at, "is %s; want a list", templateValueKind(raw))
		return
	}
	c.oneOfValues(s, templateElements(raw))
}

func compileConst(c *schemaCompiler, s *schemaNode, _ schemaPlace, raw []byte) {
	c.oneOfValues(s, [][]byte{raw})
}

func (c *schemaCompiler) oneOfValues(s *schemaNode, values [][]byte) {
	allowed, shown := map[string]bool{}, make([]string, len(values))
	for i, raw := range values {
		allowed[string(newJSONValue(raw).normal(nil))], shown[i] = true, clippedText(string(raw))
	}
	want := "want " + clipText(anyOf(shown), 300)
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		return allowed[v.normal(n)] || v.misfit(n, want)
	})
}

// Checks of numbers and strings.

// number reads the value of a keyword that is a number.
func (c *schemaCompiler) number(at schemaPlace, raw []byte) decimal {
	if jsonKind(raw) != '0' {
		c.problem(at, "is %s; want a number", templateValueKind(raw))
		return decimal{}
	}
	return parseDecimal(raw)
}

func compileBound(word string, holds func(c int) bool) compileFunc {
	return func(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
		limit, want := c.number(at, raw), fmt.Sprintf("want %s %s", word, clippedText(string(raw)))
		s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
			return n.kind != '0' || holds(parseDecimal(n.raw).compare(limit)) || v.misfit(n, want)
		})
	}
}

func compileMultiple(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	of := c.number(at, raw)
	if of.negative || of.digits == "" {
		c.problem(at, "is %s; want a number above 0", clippedText(string(raw)))
		return
	}
	want := "want a multiple of " + clippedText(string(raw))
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		return n.kind != '0' || parseDecimal(n.raw).multipleOf(of) || v.misfit(n, want)
	})
}

// count reads the value of a keyword that is a number of something.
func (c *schemaCompiler) count(at schemaPlace, raw []byte) int {
	n, fits, integer := nearestInt(raw)
	if !integer || n < 0 {
		c.problem(at, "is %s; want an integer from 0", clippedText(string(raw)))
	} else if !fits {
		n = 1<<63 - 1
	}
	return int(n)
}

// compileSize compiles a limit on the length of strings, lists or objects.
func compileSize(kind byte, most bool) compileFunc {
	unit := map[byte][2]string{
		'"': {"character", "characters"}, '[': {"element", "elements"}, '{': {"member", "members"},
	}[kind]
	return func(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
		limit := c.count(at, raw)
		want := fmt.Sprintf("want %s %s", pick(most, "at most", "at least"), counted(limit, unit[0], unit[1]))
		s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
			size := n.size()
			return n.kind != kind || pick(most, size <= limit, size >= limit) ||
				v.misfitIn(v.at, counted(size, unit[0], unit[1]), want)
		})
	}
}

// size returns the number of characters, elements or members.
func (n *jsonValue) size() int {
	if n.kind == '"' {
		return utf8.RuneCountInString(n.text)
	}
	return len(n.values)
}

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

func compileFormat(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	name := c.text(at, raw)
	valid := schemaFormats[name]
	switch {
	case name == "idn-hostname":
		c.problem(at, "the format idn-hostname is not supported")
	case valid == nil:
		c.warnings = append(c.warnings, inputProblem{Field: at.path,
			Message: fmt.Sprintf("the format %q is not known, and not checked", clippedText(name))})
	default:
		s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
			return n.kind != '"' || valid(n.text) || v.misfit(n, "want the format "+name)
		})
	}
}

// The formats of texts that schemas name, and their patterns.

// schemaFormats holds the checked formats; docs/templates.md lists them.
var schemaFormats = map[string]func(s string) bool{
	"date-time": validDateTime, "date": validDate, "time": validTime, "duration": matching(durationSyntax),
	"email": validEmail(emailSyntax("")), "idn-email": validEmail(emailSyntax(`\x{80}-\x{10FFFF}`)),
	"hostname": validHostname, "ipv4": validIPv4, "ipv6": validIPv6,
	"uri": validURI("", "", true), "uri-reference": validURI("", "", false),
	"iri": validURI(iriChars, iriPrivate, true), "iri-reference": validURI(iriChars, iriPrivate, false),
	"uri-template": matching(uriTemplateSyntax), "uuid": matching(uuidSyntax), "regex": validPattern,
	"json-pointer":          matching(compiled(`^` + pointerSyntax + `$`)),
	"relative-json-pointer": matching(compiled(`^(?:0|[1-9][0-9]*)(?:#|` + pointerSyntax + `)$`)),
}

const (
	pointerSyntax = `(?:/(?:[^~/]|~[01])*)*`
	percentSyntax = `%[0-9A-Fa-f]{2}`
	iriPrivate    = `\x{E000}-\x{F8FF}\x{F0000}-\x{FFFFD}\x{100000}-\x{10FFFD}`
	iriChars      = `\x{A0}-\x{D7FF}\x{F900}-\x{FDCF}\x{FDF0}-\x{FFEF}\x{10000}-\x{1FFFD}\x{20000}-\x{2FFFD}` +
		`\x{30000}-\x{3FFFD}\x{40000}-\x{4FFFD}\x{50000}-\x{5FFFD}\x{60000}-\x{6FFFD}\x{70000}-\x{7FFFD}` +
		`\x{80000}-\x{8FFFD}\x{90000}-\x{9FFFD}\x{A0000}-\x{AFFFD}\x{B0000}-\x{BFFFD}\x{C0000}-\x{CFFFD}` +
		`\x{D0000}-\x{DFFFD}\x{E1000}-\x{EFFFD}`
	templateVariable = `(?:\w|` + percentSyntax + `)(?:\.?(?:\w|` + percentSyntax + `))*(?::[1-9][0-9]{0,3}|\*)?`
)

var (
	dateSyntax     = compiled(`^(\d{4})-(\d{2})-(\d{2})$`)
	timeSyntax     = compiled(`^(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[zZ]|([+-])(\d{2}):(\d{2}))$`)
	durationSyntax = compiled(`^P(?:\d+W|(?:\d+D|\d+M(?:\d+D)?|\d+Y(?:\d+M(?:\d+D)?)?)(?:T` + durationTime + `)?|T` +
		durationTime + `)$`)
	uuidSyntax        = compiled(`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	uriTemplateSyntax = compiled(`^(?:[^\x00-\x20\x7f-\x{9f}"%<>\\^` + "`" + `{|}]|` + percentSyntax +
		`|\{[+#./;?&=,!@|]?` + templateVariable + `(?:,` + templateVariable + `)*\})*$`)
	futureAddressSyntax = compiled(`^[vV][0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+$`)
)

const durationTime = `(?:\d+S|\d+M(?:\d+S)?|\d+H(?:\d+M(?:\d+S)?)?)`

// matching returns the check of a format that a pattern describes.
func matching(syntax func() *regexp.Regexp) func(s string) bool {
	return func(s string) bool { return syntax().MatchString(s) }
}

func validDate(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil && dateSyntax().MatchString(s)
}

// validTime reports whether s is a time of RFC 3339. A leap second is at the end of a day
// in UTC.
func validTime(s string) bool {
	m := timeSyntax().FindStringSubmatch(s)
	if m == nil {
		return false
	}
	number := func(i int) int { n, _ := strconv.Atoi(m[i]); return n }
	hour, minute, second, offset := number(1), number(2), number(3), number(5)*60+number(6)
	if hour > 23 || minute > 59 || second > 60 || number(5) > 23 || number(6) > 59 {
		return false
	}
	if m[4] == "+" {
		offset = -offset
	}
	return second < 60 || (hour*60+minute+offset+2*24*60)%(24*60) == 24*60-1
}

func validDateTime(s string) bool {
	return len(s) > 10 && s[10]|0x20 == 't' && validDate(s[:10]) && validTime(s[11:])
}

func validIPv4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}

func validIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && a.Zone() == ""
}

// emailSyntax returns the form of an address, with further characters. Its groups are the
// local part, the domain, and an address in brackets.
func emailSyntax(further string) func() *regexp.Regexp {
	atom := "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + further + "-]+"
	quoted := `"(?:[ !#-\[\]-~` + further + `]|\\[ -~])*"`
	label := `[A-Za-z0-9` + further + `](?:[A-Za-z0-9` + further + `-]*[A-Za-z0-9` + further + `])?`
	return compiled(`^(` + atom + `(?:\.` + atom + `)*|` + quoted + `)@(?:(` + label + `(?:\.` + label +
		`)*)|\[(.*)\])$`)
}

func validEmail(syntax func() *regexp.Regexp) func(s string) bool {
	return func(s string) bool {
		m := syntax().FindStringSubmatch(s)
		if m == nil || len(m[1]) > 64 || len(m[2]) > 253 {
			return false
		}
		v6, isV6 := strings.CutPrefix(m[3], "IPv6:")
		return m[2] != "" || isV6 && validIPv6(v6) || validIPv4(m[3])
	}
}

// validURI checks the syntax of RFC 3986 with further characters, which RFC 3987 has.
func validURI(further, private string, absolute bool) func(s string) bool {
	chars := `[\w.~!$&'()*+,;=` + further
	segment := `(?:` + chars + `:@-]|` + percentSyntax + `)`
	rest := `(?:/` + segment + `*)*`
	under := `//(?:(?:` + chars + `:-]|` + percentSyntax + `)*@)?(?:\[([^\]]*)\]|(?:` + chars + `-]|` + percentSyntax +
		`)*)(?::[0-9]*)?` + rest + `|/(?:` + segment + `+` + rest + `)?`
	path := `[A-Za-z][A-Za-z0-9+.-]*:(?:` + under + `|` + segment + `+` + rest + `|)`
	if !absolute {
		path = `(?:` + path + `|(?:` + under + `|(?:` + chars + `@-]|` + percentSyntax + `)+` + rest + `|))`
	}
	tail := func(further string) string {
		return `(?:` + chars + further + `:@/?-]|` + percentSyntax + `)*`
	}
	syntax := compiled(`^` + path + `(?:\?` + tail(private) + `)?(?:#` + tail("") + `)?$`)
	return func(s string) bool {
		m := syntax().FindStringSubmatch(s)
		if m == nil {
			return false
		}
		inBrackets := strings.Join(m[1:], "")
		return inBrackets == "" && !strings.Contains(s, "[]") || validIPv6(inBrackets) ||
			futureAddressSyntax().MatchString(inBrackets)
	}
}

// validHostname checks the syntax of RFC 1123, and that labels in Punycode stand for what
// RFC 5891 allows.
func validHostname(s string) bool {
	if len(s) > 253 || !utf8.ValidString(s) || len(s) != utf8.RuneCountInString(s) {
		return false
	}
	for label := range strings.SplitSeq(strings.ToLower(s), ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, hostCharacters) != "" || !plainHyphens(label) {
			return false
		}
		if encoded, ok := strings.CutPrefix(label, "xn--"); ok && !validUnicodeLabel(decodePunycode(encoded)) {
			return false
		}
	}
	return true
}

const hostCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-"

func plainHyphens(label string) bool { return label[0] != '-' && label[len(label)-1] != '-' }

// decodePunycode returns the text of RFC 3492, or nil.
func decodePunycode(s string) []rune {
	var out []rune
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		out, s = []rune(s[:i]), s[i+1:]
	}
	n, at, bias := 128, 0, 72
	for s != "" {
		before, weight := at, 1
		for k := 36; ; k += 36 {
			if s == "" {
				return nil
			}
			digit := strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789", s[0])
			s = s[1:]
			if at += digit * weight; digit < 0 || at > 1<<31 {
				return nil
			}
			t := min(max(k-bias, 1), 26)
			if digit < t {
				break
			}
			weight *= 36 - t
		}
		points := len(out) + 1
		bias = punycodeBias(at-before, points, before == 0)
		n += at / points
		if at %= points; n > unicode.MaxRune {
			return nil
		}
		out = slices.Insert(out, at, rune(n))
		at++
	}
	return out
}

func punycodeBias(delta, points int, first bool) (k int) {
	delta /= pick(first, 700, 2)
	for delta += delta / points; delta > 455; k += 36 {
		delta /= 35
	}
	return k + 36*delta/(delta+38)
}

// viramas has the characters of the combining class 9, after which joiners may be.
var viramas = []rune("\u094D\u09CD\u0A4D\u0ACD\u0B4D\u0BCD\u0C4D\u0CCD\u0D3B\u0D3C\u0D4D\u0DCA\u0E3A\u0EBA\u0F84" +
	"\u1039\u103A\u1714\u1734\u17D2\u1A60\u1B44\u1BAA\u1BAB\u1BF2\u1BF3\u2D7F\uA806\uA8C4\uA953\uA9C0\uAAF6\uABED")

// validUnicodeLabel applies the rules of RFC 5892, without those that need the tables of
// Unicode normalization.
func validUnicodeLabel(label []rune) bool {
	text := string(label)
	if len(label) == 0 || len(text) == len(label) || unicode.IsMark(label[0]) || !plainHyphens(text) ||
		len(label) > 3 && label[2] == '-' && label[3] == '-' {
		return false
	}
	for i, r := range label {
		var before, after rune
		if i > 0 {
			before = label[i-1]
		}
		if i+1 < len(label) {
			after = label[i+1]
		}
		if !validInLabel(r, before, after, text) {
			return false
		}
	}
	return true
}

func validInLabel(r, before, after rune, label string) bool {
	arabicDigit := func(c rune) bool { return '\u0660' <= c && c <= '\u0669' }
	extendedDigit := func(c rune) bool { return '\u06f0' <= c && c <= '\u06f9' }
	switch {
	case r == '-' || strings.ContainsRune("\u00df\u03c2\u06fd\u06fe\u0f0b\u3007", r):
		return true
	case r == '\u00b7':
		return before == 'l' && after == 'l'
	case r == '\u0375':
		return unicode.Is(unicode.Greek, after)
	case r == '\u05f3' || r == '\u05f4':
		return unicode.Is(unicode.Hebrew, before)
	case r == '\u30fb':
		return strings.ContainsFunc(label, func(c rune) bool {
			return unicode.In(c, unicode.Hiragana, unicode.Katakana, unicode.Han)
		})
	case r == '\u200d':
		return slices.Contains(viramas, before)
	case r == '\u200c':
		return slices.Contains(viramas, before) ||
			unicode.Is(unicode.Arabic, before) && unicode.Is(unicode.Arabic, after)
	case arabicDigit(r):
		return !strings.ContainsFunc(label, extendedDigit)
	case extendedDigit(r):
		return !strings.ContainsFunc(label, arabicDigit)
	case strings.ContainsRune("\u0640\u07fa\u302e\u302f\u3031\u3032\u3033\u3034\u3035\u303b", r):
		return false
	}
	return unicode.In(r, unicode.Ll, unicode.Lo, unicode.Lm, unicode.Mn, unicode.Mc, unicode.Nd)
}

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

// The white space of ECMA-262, and everything else, for a class of characters.
const (
	ecmaSpace    = `\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}`
	ecmaNotSpace = `\x{0}-\x{8}\x{E}-\x{1F}!-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}` +
		`\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{FEFE}\x{FF00}-\x{10FFFF}`
)

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
