package main

// What configuration values must look like, alone and together, and how much
// of them is shown. The checks of one value go on from it, as in "is not an
// address", and never repeat it.

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const redactedText = "[REDACTED]"

var (
	environmentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	listenHostName  = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9.])?$`)
	httpHeaderName  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

// fixedHTTPHeaders are what a request to a handler is made of, so that nobody may
// set them.
var fixedHTTPHeaders = []string{
	"Connection", "Content-Length", "Content-Type", "Host", "Idempotency-Key",
	"Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// orEmptyValue allows the empty string too.
func orEmptyValue(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func checkTextValue(s string) error {
	if strings.ContainsRune(s, 0) {
		return errors.New("has a NUL character in it")
	}
	return nil
}

func checkPathValue(s string) error {
	if s == "" {
		return errors.New("is not a path")
	}
	return checkTextValue(s)
}

// checkEnvironmentValue keeps the name fit for a part of a file name.
func checkEnvironmentValue(s string) error {
	if !environmentName.MatchString(s) {
		return errors.New(`is not a name of up to 64 letters, digits, ".", "_" and "-"`)
	}
	return nil
}

func checkSchemaValue(s string) error {
	if s != "off" {
		return errors.New(`is not supported yet, only "off" is`)
	}
	return nil
}

func checkListenValue(s string) error {
	if _, err := parseListen(s); err != nil {
		return fmt.Errorf("is not an address like 127.0.0.1:8080: %w", err)
	}
	return nil
}

// listenAddress is a listen address in parts.
type listenAddress struct {
	host string     // lower case; "" for every address
	ip   netip.Addr // of host, also of localhost, when it has one
	port uint16
}

// parseListen reads "host:port". Its errors do not repeat the text.
func parseListen(s string) (a listenAddress, err error) {
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return a, errors.New("the port is missing")
	}
	port, err := strconv.ParseUint(s[colon+1:], 10, 16)
	if err != nil {
		return a, errors.New("the port is not a number from 0 to 65535")
	}
	a.port, a.host = uint16(port), strings.ToLower(s[:colon])
	inner, bracketed := strings.CutPrefix(a.host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if bracketed != closed || !bracketed && strings.ContainsRune(a.host, ':') {
		return a, errors.New("an IPv6 address stands in brackets")
	}
	a.host = inner
	a.ip, err = netip.ParseAddr(a.host)
	switch {
	case err == nil && a.ip.Is4() != bracketed, a.host == "" && !bracketed:
		return a, nil
	case a.host == "localhost" && !bracketed:
		a.ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return a, nil
	case bracketed || !listenHostName.MatchString(a.host):
		return a, errors.New("the host is neither a name nor an IP address")
	}
	return a, nil
}

// overlaps reports whether not both addresses can be listened on.
func (a listenAddress) overlaps(b listenAddress) bool {
	if a.port != b.port || a.port == 0 {
		return false
	}
	return a.host == b.host || a.ip.IsValid() && a.ip == b.ip || a.covers(b) || b.covers(a)
}

// covers reports whether a stands for all addresses of a family that b is in.
func (a listenAddress) covers(b listenAddress) bool {
	if a.host == "" || a.ip == netip.IPv6Unspecified() {
		return true
	}
	return a.ip == netip.IPv4Unspecified() && b.ip.Is4()
}

// checkTargetValue is for what may run a callable. Whether a builtin exists is for
// checkConfigCallables.
func checkTargetValue(s string) error {
	if name, ok := strings.CutPrefix(s, "builtin:"); ok && name != "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("is not builtin:…, http://… or https://…")
	}
	return nil
}

// checkCallableName is for the left side of worker.handlers.
func checkCallableName(s string) error {
	star := strings.IndexByte(s, '*')
	switch {
	case s == "" || len(s) > 500:
		return errors.New("is not a name of 1 to 500 bytes")
	case star >= 0 && star < len(s)-1:
		return errors.New(`may have a "*" at its end only`)
	}
	return nil
}

// checkProxyValue leaves no room beside the address, where a mistyped password
// would not be known for one.
func checkProxyValue(s string) error {
	u, err := url.Parse(s)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.Hostname() == "" {
		return errors.New("is not a URL like http://user:password@proxy:3128")
	}
	if strings.Trim(u.Path, "/") != "" || strings.ContainsAny(s, "?#") {
		return errors.New("has more than the address of a proxy")
	}
	return nil
}

// checkSwaggerValue is for what every visitor of the page is told.
func checkSwaggerValue(s string) error {
	if !isWebURL(s) {
		return checkPathValue(s)
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.ContainsAny(s, "?#;,'\" ") {
		return errors.New("is not a URL like https://cdn.example.com/swagger-ui-dist@5, without user and query")
	}
	return nil
}

// isWebURL reports whether s is meant to be a URL of the web, in lower case.
func isWebURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// checkVariableName keeps our own settings, secrets among them, from programs.
func checkVariableName(s string) error {
	switch {
	case s == "" || strings.ContainsAny(s, "=\x00"):
		return errors.New("is not a name of an environment variable")
	case strings.HasPrefix(strings.ToUpper(s), configEnvPrefix):
		return errors.New("is a variable of stepwell itself and never passed on")
	}
	return nil
}

func checkHeaderName(s string) error {
	switch {
	case !httpHeaderName.MatchString(s):
		return errors.New("is not a name of a header")
	case slices.Contains(fixedHTTPHeaders, canonicalHeaderName(s)):
		return errors.New("is a header that stepwell sets itself")
	}
	return nil
}

func checkHeaderValue(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return errors.New("has a control character in it")
	}
	return nil
}

func canonicalHeaderName(s string) string { return textproto.CanonicalMIMEHeaderKey(s) }

// configRule is a rule about several keys. It is left out when one of them has
// a problem of its own.
type configRule struct {
	paths []string // of the keys that may be at fault
	given string   // of a key that it depends on besides; "" for none
	check func(*Config, *provenance) error
}

var configRules = []configRule{
	{[]string{"orchestration.web.listen", "worker.web.listen"}, "role", checkListeners},
	{[]string{"store.path", "store.memory"}, "", checkMemory},
	{[]string{"fixture.enabled", "role"}, "", checkFixtureRole},
	{[]string{"fixture.enabled", "orchestration.web.listen", "worker.web.listen"}, "role", checkFixtureListeners},
	{[]string{"fixture.enabled", "store.path"}, "", checkFixtureData},
	{[]string{"fixture.deterministic_ids", "fixture.enabled"}, "", checkDeterministicIDs},
}

func checkListeners(c *Config, _ *provenance) error {
	if c.Role != "all" {
		return nil
	}
	a, errA := parseListen(c.Orchestration.Web.Listen)
	b, errB := parseListen(c.Worker.Web.Listen)
	if errA != nil || errB != nil || !a.overlaps(b) {
		return nil
	}
	return fmt.Errorf("orchestration.web.listen, %q, and worker.web.listen, %q, need two addresses",
		c.Orchestration.Web.Listen, c.Worker.Web.Listen)
}

// checkMemory stops one who names a directory and would find nothing in it.
func checkMemory(c *Config, p *provenance) error {
	if !c.Store.Memory || p.of("store.path").kind != fromFlag {
		return nil
	}
	return fmt.Errorf("store.memory (%v) would keep nothing in the directory of --data; "+
		"leave one of them out, or say --memory=false", p.of("store.memory"))
}

// redactURL hides what may be user, password, query or fragment of a URL. It
// goes by the last "@", because a password may have any character in it.
func redactURL(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if ok {
		scheme += "://"
	} else {
		scheme, rest = "", s
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = redactedText + rest[at:]
	}
	if query := strings.IndexAny(rest, "?#"); query >= 0 {
		rest = rest[:query+1] + redactedText
	}
	return scheme + rest
}

// redactName hides the same in a name or path that has a URL in it.
func redactName(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return redactURL(s)
}
