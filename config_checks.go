package main

// Checks of values. Their errors continue a sentence about the value, as in "is not an address", and never repeat it.

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

var (
	environmentName = compiled(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	metricPrefix    = compiled(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	listenHostName  = compiled(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9.])?$`)
)

// fixedHTTPHeaders are the headers of a handler request that nobody may replace.
var fixedHTTPHeaders = []string{
	"Connection", "Content-Length", "Content-Type", "Host", "Idempotency-Key",
	"Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// refuseIf returns an error about a value that breaks a rule, else nil.
func refuseIf(broken bool, reason string) error {
	if broken {
		return errors.New(reason)
	}
	return nil
}

// orEmptyValue returns a check that also allows the empty string.
func orEmptyValue(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func checkTextValue(s string) error {
	return refuseIf(strings.ContainsRune(s, 0), "contains a NUL character")
}

func checkPathValue(s string) error {
	return cmp.Or(refuseIf(s == "", "is not a path"), checkTextValue(s))
}

// checkEnvironmentValue checks a name that becomes part of a file name.
func checkEnvironmentValue(s string) error {
	return refuseIf(!environmentName().MatchString(s), `is not a name of up to 64 letters, digits, ".", "_" and "-"`)
}

func checkListenValue(s string) error {
	if _, err := parseListen(s); err != nil {
		return fmt.Errorf("is not an address like 127.0.0.1:8080: %w", err)
	}
	return nil
}

// listen returns the configured address of a role.
func (c *Config) listen(role string) string {
	if role == "worker" {
		return c.Worker.Web.Listen
	}
	return c.Orchestration.Web.Listen
}

// listenAddress is a parsed listen address.
type listenAddress struct {
	host string     // lower case; "" for every address
	ip   netip.Addr // of the host, also of localhost; invalid for other names
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
		return a, errors.New("an IPv6 address must be in brackets")
	}
	a.host = inner
	a.ip, err = netip.ParseAddr(a.host)
	switch {
	case err == nil && a.ip.Is4() != bracketed, a.host == "" && !bracketed:
		return a, nil
	case a.host == "localhost" && !bracketed:
		a.ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return a, nil
	case bracketed || !listenHostName().MatchString(a.host):
		return a, errors.New("the host is neither a name nor an IP address")
	}
	return a, nil
}

// overlaps reports whether it is impossible to listen on both addresses.
func (a listenAddress) overlaps(b listenAddress) bool {
	if a.port != b.port || a.port == 0 {
		return false
	}
	return a.host == b.host || a.ip.IsValid() && a.ip == b.ip || a.covers(b) || b.covers(a)
}

// covers reports whether a is a wildcard address that includes b.
func (a listenAddress) covers(b listenAddress) bool {
	if a.host == "" || a.ip == netip.IPv6Unspecified() {
		return true
	}
	return a.ip == netip.IPv4Unspecified() && b.ip.Is4()
}

// checkTargetValue checks the form of a handler; checkConfigCallables does the rest.
func checkTargetValue(s string) error {
	for _, prefix := range []string{"builtin:", "exec:"} {
		if name, ok := strings.CutPrefix(s, prefix); ok && name != "" {
			return nil
		}
	}
	return refuseIf(webURL(s) == nil, "is not builtin:…, exec:…, http://… or https://…")
}

// checkMetricPrefix checks the beginning of the names of metrics.
func checkMetricPrefix(s string) error {
	return refuseIf(!metricPrefix().MatchString(s), "must have 1 to 64 letters, digits and _, and must not begin with a digit")
}

// checkCallableName checks a name in worker.handlers.
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

// checkProxyValue allows nothing but the address, because redaction would not recognize a password anywhere else.
func checkProxyValue(s string) error {
	u, err := url.Parse(s)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.Hostname() == "" {
		return errors.New("is not a URL like http://user:password@proxy:3128")
	}
	return refuseIf(strings.Trim(u.Path, "/") != "" || strings.ContainsAny(s, "?#"),
		"has more than the address of a proxy")
}

// checkVariableName keeps the settings of this service, which may be secret, from programs.
func checkVariableName(s string) error {
	switch {
	case s == "" || strings.ContainsAny(s, "=\x00"):
		return errors.New("is not the name of an environment variable")
	case strings.HasPrefix(strings.ToUpper(s), configEnvPrefix):
		return errors.New("is a variable of stepwell itself and never passed on")
	}
	return nil
}

func checkHeaderName(s string) error {
	switch {
	case !httpHeaderName().MatchString(s):
		return errors.New("is not the name of a header")
	case slices.Contains(fixedHTTPHeaders, canonicalHeaderName(s)):
		return errors.New("is a header that stepwell sets itself")
	}
	return nil
}

func checkHeaderValue(s string) error {
	return refuseIf(strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }),
		"contains a control character")
}

// headerScope returns the canonical name of a table of headers: an origin, or the name of a callable.
func headerScope(s string) (string, error) {
	if !strings.Contains(s, "://") {
		return s, checkCallableName(s)
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || strings.ContainsAny(s, "?#*") {
		return s, errors.New("is neither an origin like https://api.example.com:8443 nor the name of a callable")
	}
	return originOf(u), nil
}

// originOf returns scheme, host and port of a URL, in lower case and without the scheme's own port.
func originOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return u.Scheme + "://" + strings.TrimSuffix(host, ":")
}

func canonicalHeaderName(s string) string { return textproto.CanonicalMIMEHeaderKey(s) }

// configRule is a rule about several keys. It is not checked if one of them has a problem itself.
type configRule struct {
	paths []string // of the keys that may be at fault
	given string   // another key that it depends on; "" for none
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
	a, _ := parseListen(c.Orchestration.Web.Listen) // no errors: the keys were checked
	b, _ := parseListen(c.Worker.Web.Listen)
	if c.Role != "all" || !a.overlaps(b) {
		return nil
	}
	return fmt.Errorf("orchestration.web.listen, %q, and worker.web.listen, %q, need two addresses",
		c.Orchestration.Web.Listen, c.Worker.Web.Listen)
}

// checkMemory refuses a directory named on the command line that would stay empty.
func checkMemory(c *Config, p *provenance) error {
	if !c.Store.Memory || p.of("store.path").kind != fromFlag {
		return nil
	}
	return fmt.Errorf("store.memory (%v) would keep nothing in the directory of --data; "+
		"omit one of them, or set --memory=false", p.of("store.memory"))
}

// checkPortRange reads "low-high".
func checkPortRange(s string) error {
	low, high, ok := strings.Cut(s, "-")
	a, errA := strconv.ParseUint(low, 10, 16)
	b, errB := strconv.ParseUint(high, 10, 16)
	return refuseIf(!ok || errA != nil || errB != nil || a == 0 || a > b, "is not a range of ports like 9000-9099")
}

func checkFixtureRole(c *Config, _ *provenance) error {
	return refuseIf(c.Fixture.Enabled && c.Role == "worker",
		"fixture.enabled needs the orchestration role, which serves the control API")
}

// checkFixtureListeners keeps the control API local to this machine.
func checkFixtureListeners(c *Config, _ *provenance) error {
	if !c.Fixture.Enabled || c.Fixture.AllowRemote {
		return nil
	}
	for _, role := range authRoles {
		a, err := parseListen(c.listen(role))
		if (role == "orchestration" || c.Role == "all") && err == nil && !a.ip.IsLoopback() {
			return fmt.Errorf("fixture mode would be open to others on %s.web.listen, %q; fixture.allow_remote allows it",
				role, c.listen(role))
		}
	}
	return nil
}

// checkFixtureData protects a data directory from a reset.
func checkFixtureData(c *Config, p *provenance) error {
	return refuseIf(c.Fixture.Enabled && !c.Fixture.AllowData && p.of("store.path").kind == fromFlag,
		"fixture mode keeps state in memory; set fixture.allow_data to let it use and empty the directory of --data")
}

// checkDeterministicIDs keeps predictable ids and a frozen clock out of real work.
func checkDeterministicIDs(c *Config, _ *provenance) error {
	return refuseIf(c.Fixture.DeterministicIDs != "" && !c.Fixture.Enabled,
		"fixture.deterministic_ids (--deterministic-ids) needs fixture mode: --fixture")
}

// hostName returns a host in lower case, without port, brackets and final dot.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// isLoopbackName reports whether a host name, as hostName returns it, means this machine.
func isLoopbackName(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}

func checkHostValue(s string) error {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return nil
	}
	return refuseIf(!listenHostName().MatchString(s), "is neither a host name nor an IP address, without a port")
}

func checkOriginValue(s string) error {
	if s == "*" {
		return nil
	}
	u, err := url.Parse(s)
	return refuseIf(err != nil || u.Scheme == "" || u.Host == "" || s != u.Scheme+"://"+u.Host || strings.Contains(u.Host, "*"),
		"is neither an origin like https://app.example.com:8443 nor *")
}

// mountPathForm matches a path that needs no escaping in patterns, links and headers.
var mountPathForm = compiled(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*){1,8}$`)

// reservedMounts are the first parts of the orchestration API's paths.
var reservedMounts = []string{"v1", "api", "api-docs", "api-docs.json", "health", "metrics", "config", "console", "_stepwell"}

func checkMountPath(s string) error {
	switch {
	case s == "":
		return nil
	case s[0] != '/':
		return errors.New("does not begin with a slash")
	case strings.HasSuffix(s, "/"):
		return errors.New("ends with a slash")
	case len(s) > 200 || !mountPathForm().MatchString(s):
		return errors.New(`is not a path like /stepwell: up to 8 parts of letters, digits, "_", "-", "~" and "."`)
	}
	first, _, _ := strings.Cut(s[1:], "/")
	return refuseIf(slices.Contains(reservedMounts, first),
		"is at or below /"+first+", which the orchestration API uses")
}
