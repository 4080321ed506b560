package main

// The guard against pages of others: where nobody is asked for credentials, a
// browser must not be made to change things here by a page from elsewhere.

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// hostGuard says which names and origins are our own. It is never changed.
type hostGuard struct {
	hosts   map[string]bool // that are never foreign, beside loopback ones
	origins map[string]bool // that may do what our own pages may
}

func newHostGuard(web *webConfig, listen string) *hostGuard {
	g := &hostGuard{map[string]bool{"host.docker.internal": true}, map[string]bool{}}
	if own, err := parseListen(listen); err == nil && own.host != "" && !(own.ip.IsValid() && own.ip.IsUnspecified()) {
		g.hosts[own.host] = true
	}
	for _, host := range web.AllowedHosts {
		g.hosts[strings.ToLower(host)] = true
	}
	for _, origin := range web.AllowedOrigins {
		g.origins[strings.ToLower(origin)] = true
	}
	return g
}

// listen is the configured address of a role.
func (c *Config) listen(role string) string {
	if role == "worker" {
		return c.Worker.Web.Listen
	}
	return c.Orchestration.Web.Listen
}

// check refuses what a page from elsewhere may have sent, on a route that
// changes something or controls the service.
func (g *hostGuard) check(r *http.Request, row route) error {
	if strings.HasPrefix(row.pattern, "GET ") && !row.controls() {
		return nil
	}
	for _, origin := range r.Header["Origin"] {
		if g.foreignOrigin(origin, r.Host) {
			return failf(badRequest, "a page of %.200q may not do this; web.allowed_origins lets it", origin)
		}
	}
	if onLoopback(r.Context()) && g.foreignHost(r.Host) {
		return failf(misdirected, "%.200q is not a name of this service; web.allowed_hosts makes it one", r.Host)
	}
	return nil
}

// foreignOrigin tells whether an origin is neither the one that was asked nor
// one that may do the same.
func (g *hostGuard) foreignOrigin(origin, host string) bool {
	origin = strings.ToLower(origin)
	_, asked, ok := strings.Cut(origin, "://")
	switch {
	case origin == "" || g.origins[origin]:
		return false
	case !ok:
		return true // null, as of a file or a sandboxed frame
	}
	return asked != strings.ToLower(host) && g.foreignHost(asked)
}

// foreignHost tells whether host, with or without a port, is no name of ours.
func (g *hostGuard) foreignHost(host string) bool {
	name := hostName(host)
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || g.hosts[name] {
		return false
	}
	ip, err := netip.ParseAddr(name)
	return err != nil || !ip.Unmap().IsLoopback()
}

// hostName is a host in lower case, without port, brackets and final dot.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// listenerKey is the key of a listener's address in the contexts of its requests.
type listenerKey struct{}

// ofListener is the context that requests to a listener descend from.
func ofListener(l net.Listener) context.Context {
	return context.WithValue(context.Background(), listenerKey{}, l.Addr())
}

// onLoopback tells whether a request came to a listener that only this machine reaches.
func onLoopback(ctx context.Context) bool {
	a, ok := ctx.Value(listenerKey{}).(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

func checkHostValue(s string) error {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return nil
	}
	if !listenHostName.MatchString(s) {
		return errors.New("is neither a host name nor an IP address, without a port")
	}
	return nil
}

func checkOriginValue(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || s != u.Scheme+"://"+u.Host {
		return errors.New("is not an origin like https://app.example.com:8443")
	}
	return nil
}

// checkGuard is hostGuard.check where callers are not asked for credentials.
func (s *surface) checkGuard(w http.ResponseWriter, r *http.Request, row route) error {
	if s.guard == nil {
		return nil
	}
	err := s.guard.check(r, row)
	if err != nil {
		leaveBody(w, r)
	}
	return err
}
