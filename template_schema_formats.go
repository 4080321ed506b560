package main

// The keyword format of JSON Schema: which formats of texts are checked, and how.

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

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
		s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
			if n.kind() != '"' {
				return true
			}
			text := string(n.text())
			// A pattern is parsed, which takes far more time and memory than matching.
			if name == "regex" {
				memory := patternMemory(text)
				if !v.spend(regexSteps*len(text)) || !v.take(memory, "the text of a pattern") {
					return false
				}
				defer v.budget.give(memory)
			}
			return v.spend(formatSteps*len(text)) && valid(text) || v.misfit(n, "want the format "+name)
		})
	}
}

// How many steps of a check each byte of a text costs: in the slowest format, and on top of that in a pattern, which
// may have properties.
const (
	formatSteps = 16
	regexSteps  = 1024
)

// The formats of texts that schemas name, and their patterns.

// schemaFormats holds the checked formats; docs/reference/schemas.md lists them.
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
	hostSyntax          = compiled(`^` + hostLabel + `(?:\.` + hostLabel + `)*$`)
)

const hostLabel = `[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?`

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
	// The days keep the sum above 0.
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
		// An authority can match in one of several places, so at most one group has text.
		inBrackets := strings.Join(m[1:], "")
		return inBrackets == "" && !strings.Contains(s, "[]") || validIPv6(inBrackets) ||
			futureAddressSyntax().MatchString(inBrackets)
	}
}

// validHostname checks the syntax of RFC 1123. Labels in Punycode are not decoded, since what
// they may stand for needs tables of Unicode.
func validHostname(s string) bool { return len(s) <= 253 && hostSyntax().MatchString(s) }
