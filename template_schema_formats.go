package main

// The keyword format of JSON Schema: which formats of texts are checked, and how.

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// formatSteps is how many steps of a check each byte of a text costs, in the slowest format.
const formatSteps = 16

// schemaFormats holds the checked formats; docs/reference/schemas.md lists them.
var schemaFormats = map[string]func(s string) bool{
	"date-time": validDateTime, "date": validDate, "time": validTime, "email": validEmail, "uri": validURI,
	"uuid": func(s string) bool { return uuidSyntax().MatchString(s) },
	"ipv4": validIPv4, "ipv6": validIPv6,
	// The syntax of RFC 1123. Labels in Punycode are not decoded: what they may stand for needs tables of Unicode.
	"hostname": func(s string) bool { return len(s) <= 253 && hostSyntax().MatchString(s) },
}

const (
	hostLabel  = `[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?`
	emailLabel = `[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?`
	emailAtom  = "[\\w!#$%&'*+/=?^`{|}~-]+"
	uriPath    = `(?:/` + uriChar + `*)*`
	uriChar    = `(?:[\w.~!$&'()*+,;=:@-]|` + uriPercent + `)`
	uriPercent = `%[0-9A-Fa-f]{2}`
	uriTail    = `(?:[/?]|` + uriChar + `)*`
)

var (
	dateSyntax  = compiled(`^(\d{4})-(\d{2})-(\d{2})$`)
	timeSyntax  = compiled(`^(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[zZ]|([+-])(\d{2}):(\d{2}))$`)
	uuidSyntax  = compiled(`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	hostSyntax  = compiled(`^` + hostLabel + `(?:\.` + hostLabel + `)*$`)
	emailSyntax = compiled(`^(` + emailAtom + `(?:\.` + emailAtom + `)*|"(?:[ !#-\[\]-~]|\\[ -~])*")@(?:(` +
		emailLabel + `(?:\.` + emailLabel + `)*)|\[(.*)\])$`)
	uriSyntax = compiled(`^[A-Za-z][A-Za-z0-9+.-]*:(?://(?:(?:[\w.~!$&'()*+,;=:-]|` + uriPercent +
		`)*@)?(?:(\[[^\]]*\])|(?:[\w.~!$&'()*+,;=-]|` + uriPercent + `)*)(?::[0-9]*)?` + uriPath +
		`|/(?:` + uriChar + `+` + uriPath + `)?|` + uriChar + `+` + uriPath + `|)(?:\?` + uriTail + `)?(?:#` + uriTail + `)?$`)
	futureAddressSyntax = compiled(`^[vV][0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+$`)
)

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

func validEmail(s string) bool {
	m := emailSyntax().FindStringSubmatch(s)
	if m == nil || len(m[1]) > 64 || len(m[2]) > 253 {
		return false
	}
	v6, isV6 := strings.CutPrefix(m[3], "IPv6:")
	return m[2] != "" || isV6 && validIPv6(v6) || validIPv4(m[3])
}

// validURI checks the syntax of RFC 3986.
func validURI(s string) bool {
	m := uriSyntax().FindStringSubmatch(s)
	if m == nil {
		return false
	}
	address := strings.Trim(m[1], "[]")
	return m[1] == "" || validIPv6(address) || futureAddressSyntax().MatchString(address)
}
