package main

// The host guard. Any web page that a user visits can make the browser send requests here. Without authentication, and
// where what browsers add on their own authenticates, these would be admitted; the guard refuses them.

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// hostGuard knows the names and origins of this service. It is immutable.
type hostGuard struct {
	prefix  string          // of the paths of the surface
	secured bool            // there is authentication, so only added credentials need the guard
	hosts   map[string]bool // never foreign, like loopback names
	origins *pageOrigins    // their pages are treated like our own
}

// newHostGuard returns the guard of a surface, or nil if it needs none.
func newHostGuard(cfg *Config, name string, auth *authenticator, origins *pageOrigins) *hostGuard {
	if auth.config.Enabled && auth.forward == nil {
		return nil
	}
	g := &hostGuard{secured: auth.config.Enabled, hosts: map[string]bool{}, origins: origins}
	if name == "mount" {
		g.prefix = cfg.Mount.Path
	}
	if own, err := parseListen(cfg.listen(name)); err == nil && !(own.ip.IsValid() && own.ip.IsUnspecified()) {
		g.hosts[own.host] = true
	}
	for _, host := range slices.Concat(cfg.Web.AllowedHosts, []string{"host.docker.internal", cfg.Fixture.PublicHost}) {
		g.hosts[hostName(host)] = true
	}
	return g
}

// check refuses what a page of another origin may have sent to a route that changes something or controls the service,
// and a request under a name that is not this service's. A nil guard refuses nothing.
func (g *hostGuard) check(r *http.Request, row servedRoute) error {
	if g == nil || g.secured && !hasAddedCredentials(r.Header) {
		return nil
	}
	origin := r.Header.Get("Origin")
	switch {
	case !row.controls && !isChange(r) || !fromOtherOrigin(r) || g.mayAsk(r, origin, row.controls):
	case row.controls:
		return failf(badRequest, "pages of other origins, such as %.200q, may not control this service", origin)
	default:
		return failf(badRequest, "pages of %.200q may not do this unless web.allowed_origins names them", origin)
	}
	// With authentication, resolving a foreign name to this host gains nothing: a browser keeps credentials by name.
	if !g.secured && g.misdirected(r) && !g.open(row.pattern) {
		return failf(misdirected, "%.200q is not a name of this service; add it to web.allowed_hosts if it is", hostName(r.Host))
	}
	return nil
}

// hasAddedCredentials reports whether a request has credentials that a browser adds to
// whatever a page sends: cookies, or the password for a site.
func hasAddedCredentials(h http.Header) bool {
	_, given := bearerToken(h["Authorization"])
	return h["Cookie"] != nil || h["Authorization"] != nil && !given
}

// open reports whether a route answers under any name: health, metrics, the API's
// documentation and the console, which has no data in itself.
func (g *hostGuard) open(pattern string) bool {
	_, path, _ := strings.Cut(pattern, " ")
	path = strings.TrimPrefix(path, g.prefix)
	return slices.ContainsFunc([]string{"/health", "/metrics", "/api-docs", "/console"}, func(prefix string) bool {
		return strings.HasPrefix(path, prefix)
	})
}

// misdirected reports whether a page may have sent a request whose name was made to
// resolve to this host. Only a loopback listener knows all its names; elsewhere the
// request is judged only if a browser sent it, and an IP address is always ours.
func (g *hostGuard) misdirected(r *http.Request) bool {
	if !g.foreignHost(r.Host) {
		return false
	}
	if connectionOf(r).loopback {
		return true
	}
	_, err := netip.ParseAddr(hostName(r.Host))
	return err != nil && (r.Header["Origin"] != nil || r.Header["Sec-Fetch-Site"] != nil)
}

// fromOtherOrigin reports whether a page of another origin sent a request. As in http.CrossOriginProtection,
// Sec-Fetch-Site tells, or else whether the Origin has the request's Host and port; without both, no browser sent a
// change. Reads are judged as well if they have an Origin, as those of scripts have.
func fromOtherOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
		u := webURL(origin)
		return origin != "" && (u == nil || originOf(u) != originOf(&url.URL{Scheme: u.Scheme, Host: r.Host}))
	}
	return origin != "" || isChange(r)
}

// mayAsk reports whether pages of another origin may send a request. Listed ones may, but not to
// routes that control the service. There, listed pages may send JSON, and everywhere those of this
// machine may: a browser sends that only if preflight allows it.
func (g *hostGuard) mayAsk(r *http.Request, origin string, controls bool) bool {
	listed := g.origins.admit(origin, r.Header)
	u := webURL(origin)
	return listed && !controls || (listed || u != nil && isLoopbackName(hostName(u.Host))) && isJSON(r.Header)
}

// foreignHost reports whether host, with or without a port, is not a name of this
// service. HTTP/1.0 clients may send none.
func (g *hostGuard) foreignHost(host string) bool {
	name := hostName(host)
	return name != "" && !g.hosts[name] && !isLoopbackName(name)
}

// Pages of other origins (CORS): those in web.allowed_origins may send requests to all rows but
// those that control the service, and read the answers.

// pageOrigins are the origins in web.allowed_origins. They are immutable.
type pageOrigins struct {
	named  map[string]bool // in lower case
	all    bool            // "*": any, without the credentials that browsers add
	adding bool            // credentials that browsers add may authenticate requests of the named ones
}

func newPageOrigins(cfg *Config, auth *authenticator) *pageOrigins {
	o := &pageOrigins{named: map[string]bool{}, adding: auth.forward != nil}
	for _, origin := range cfg.Web.AllowedOrigins {
		o.all = o.all || origin == "*"
		if u := webURL(origin); u != nil {
			origin = originOf(u) // as browsers write it, without the scheme's own port
		}
		o.named[strings.ToLower(origin)] = true
	}
	return o
}

// admit reports whether a page of an origin may send a request with these headers.
func (o *pageOrigins) admit(origin string, h http.Header) bool {
	return o.named[strings.ToLower(origin)] || o.all && !hasAddedCredentials(h)
}

// exposedHeaders are the headers that pages may read, besides those that they always may.
const exposedHeaders = "Accept-Encoding, Allow, Content-Encoding, ETag, Idempotency-Replayed, Location, Retry-After, " +
	"Vary, WWW-Authenticate, Warning, X-Auth-Failure-Reason, X-Auth-Failure-Severity, X-Request-Id, " +
	"X-Stepwell-Wait, X-Total-Count"

// share lets the page that sent a request read the answer, and reports whether it may.
func (o *pageOrigins) share(h http.Header, r *http.Request) bool {
	if len(o.named) == 0 {
		return false
	}
	// For every answer, since what the headers below say depends on the origin.
	h["Vary"] = append(h["Vary"], "Origin")
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		return false
	case o.named[strings.ToLower(origin)]:
		h.Set("Access-Control-Allow-Origin", origin)
		if o.adding {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
	case o.all:
		h.Set("Access-Control-Allow-Origin", "*")
	default:
		return false
	}
	h.Set("Access-Control-Expose-Headers", exposedHeaders)
	return true
}

// preflightAge is for how many seconds a browser remembers what a page may send.
const preflightAge = "600"

// preflight answers a browser that asks whether a page that may send requests may send this one.
// The mux has set Allow to the methods of the path.
func preflight(w *responseWriter, r *http.Request) bool {
	h := w.Header()
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Del("Content-Type")
	h.Del("Access-Control-Expose-Headers")
	h.Set("Access-Control-Allow-Methods", h.Get("Allow"))
	h.Set("Access-Control-Max-Age", preflightAge)
	h.Add("Vary", "Access-Control-Request-Headers")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// controlled reports whether the path of a request, which has these methods, controls the service.
func (s *surface) controlled(r *http.Request, methods string) bool {
	method, _, _ := strings.Cut(methods, ",")
	h, _ := s.parts.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
	n, ok := h.(rowNumber)
	return !ok || s.rows[n].controls
}
