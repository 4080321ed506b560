package main

// What browsers show, and whose pages they may show beside it. First the documentation of a
// surface: its OpenAPI document, cut from openapi.json, and the page that shows it, which is
// either the one in web/, sent as a single file that loads nothing, or a Swagger UI
// distribution (docs.swagger_ui). Then the files of the console, the host guard, and CORS.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed web/docs.html
var docsHTML []byte

//go:embed web/docs.css
var docsCSS []byte

//go:embed web/docs.js
var docsJS []byte

// docsSite makes the documentation page.
type docsSite struct {
	swagger string         // docs.swagger_ui
	page    func() webPage // the page in web/
}

func newDocsSite(c *docsConfig) *docsSite {
	return &docsSite{c.SwaggerUI, sync.OnceValue(func() webPage { return inlinePage(docsHTML, docsCSS, docsJS) })}
}

// webPage is a page with a policy that lets a browser run only its own parts.
type webPage struct {
	html   []byte
	policy string // Content-Security-Policy
	tag    string // its entity tag
}

func newWebPage(html []byte, policy string) webPage {
	policy += closedPolicy
	return webPage{html, policy, contentTag(slices.Concat(html, []byte(policy)))}
}

// inlinePage replaces <!--style--> and <!--script--> in the page and makes a
// policy that names style and script by their hashes.
func inlinePage(page, style, script []byte) webPage {
	page = bytes.Replace(page, []byte("<!--style-->"), tagged("style", style), 1)
	page = bytes.Replace(page, []byte("<!--script-->"), tagged("script", script), 1)
	return newWebPage(page, "default-src 'none'; script-src "+contentHash(script)+
		"; style-src "+contentHash(style)+"; connect-src 'self'; img-src data:")
}

// closedPolicy ends every policy: it forbids forms, framing and a base URL.
const closedPolicy = "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func tagged(tag string, text []byte) []byte { return fmt.Appendf(nil, "<%s>%s</%s>", tag, text, tag) }

// contentHash returns the name of an inline script or style in a policy.
func contentHash(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// reply sets the page's headers and returns the answer.
func (p webPage) reply(w http.ResponseWriter, r *http.Request) any {
	h := w.Header()
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Referrer-Policy", "no-referrer")
	return withTag(w, r, p.tag, textReply{"text/html; charset=utf-8", [][]byte{p.html}})
}

// docsRoutes returns the documentation's rows. The handler answers with the
// surface's OpenAPI document.
func (s *surface) docsRoutes(document handlerFunc) []route {
	return []route{
		{"GET /api-docs", public, s.docsPage},
		{"GET /api-docs.json", public, document},
		{"GET /api-docs/openapi.json", public, document},
		{"GET /api-docs/ui", public, s.docsPage},
		{"GET /api-docs/ui/{file...}", public, s.docsFile},
	}
}

// document answers with the OpenAPI document.
func (s *surface) document(w http.ResponseWriter, r *http.Request) (any, error) {
	doc, err := s.openapi()
	if err != nil {
		return nil, err
	}
	return withTag(w, r, doc.tag, textReply{jsonType, [][]byte{doc.text}}), nil
}

// docsPage answers with the page.
func (s *surface) docsPage(w http.ResponseWriter, r *http.Request) (any, error) {
	if s.docs.swagger == "" {
		page := s.docs.page()
		page.html = bytes.Replace(page.html, []byte("FILES"), []byte(swaggerFiles(r.URL.Path)), 1)
		page.tag = contentTag([]byte(page.tag + swaggerFiles(r.URL.Path)))
		return page.reply(w, r), nil
	}
	return swaggerPage(s.docs.swagger, r.URL.Path).reply(w, r), nil
}

// docsFile answers with a file of the Swagger UI distribution.
func (s *surface) docsFile(w http.ResponseWriter, r *http.Request) (any, error) {
	name := r.PathValue("file")
	if name == "" || name == "index.html" && s.docs.swagger != "" {
		return s.docsPage(w, r)
	}
	f, info, err := s.docs.open(name)
	if err != nil {
		return nil, failf(notFound, "no such path: %s", r.URL.Path)
	}
	defer f.Close()
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "default-src 'none'"+closedPolicy) // of a file opened on its own
	tag := fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixMicro(), info.Size())
	if withTag(w, r, tag, written{}) == (notModified{}) {
		return notModified{}, nil
	}
	http.ServeContent(w, r, info.Name(), info.ModTime(), f)
	return written{}, nil
}

// open opens a regular file in the directory of the distribution.
func (d *docsSite) open(name string) (*os.File, fs.FileInfo, error) {
	if d.swagger == "" || isWebURL(d.swagger) {
		return nil, nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(d.swagger)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrInvalid // opening a pipe might block forever
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := root.Open(name)
	return f, info, err
}

// swaggerHTML is a page that loads a Swagger UI distribution from FILES.
const swaggerHTML = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stepwell API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="FILES/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="FILES/swagger-ui-bundle.js"></script>
<script>` + swaggerStart + `</script>
</body>
</html>
`

// swaggerStart runs once the bundle is loaded. It derives the document's path from
// the page's own, up to /api-docs, so that any prefix is kept.
const swaggerStart = `window.onload = () => SwaggerUIBundle({
  url: location.pathname.replace(/\/api-docs(\/.*)?$/, "") + "/api-docs/openapi.json",
  dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null
});`

// swaggerPage makes the page for a distribution and a request path.
func swaggerPage(distribution, path string) webPage {
	files, origin := swaggerFiles(path), ""
	if isWebURL(distribution) {
		files, origin = strings.TrimRight(distribution, "/"), " "+webOrigin(distribution)
	}
	page := strings.ReplaceAll(swaggerHTML, "FILES", html.EscapeString(files))
	return newWebPage([]byte(page), "default-src 'none'; script-src 'self' "+contentHash([]byte(swaggerStart))+
		origin+"; style-src 'self' 'unsafe-inline'"+origin+"; img-src 'self' data:"+origin+
		"; font-src 'self' data:"+origin+"; connect-src 'self'")
}

// webOrigin returns scheme and host of a URL that checkSwaggerValue accepted.
func webOrigin(s string) string {
	scheme, rest, _ := strings.Cut(s, "://")
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}

// swaggerFiles returns the directory /api-docs/ui relative to the page's path.
func swaggerFiles(path string) string {
	path = path[max(strings.LastIndex(path, "/api-docs"), 0):] // without the prefix of a mount point
	switch {
	case strings.HasPrefix(path, "/api-docs/ui/"):
		return "."
	case path == "/api-docs/ui":
		return "./ui"
	}
	return "./api-docs/ui"
}

// checkSwaggerFiles checks that docs.swagger_ui, if it is a directory, has the
// files that the page loads.
func checkSwaggerFiles(c *docsConfig) error {
	if c.SwaggerUI == "" || isWebURL(c.SwaggerUI) {
		return nil
	}
	for _, name := range []string{"swagger-ui.css", "swagger-ui-bundle.js"} {
		info, err := os.Stat(filepath.Join(c.SwaggerUI, name))
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("not a regular file")
		}
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		if err != nil {
			return fmt.Errorf("docs.swagger_ui: %s in %s: %w", name, c.SwaggerUI, err)
		}
	}
	return nil
}

// linksReply answers a program with the links, and redirects a browser to the console, or to
// the docs if there is none.
func linksReply(w http.ResponseWriter, r *http.Request, links map[string]string) any {
	w.Header().Add("Vary", "Accept")
	if wantsHTML(r) {
		http.Redirect(w, r, cmp.Or(links["console"], links["docs"]), http.StatusFound)
		return written{}
	}
	return map[string]any{"service": "stepwell", "version": version, "links": links}
}

// wantsHTML reports whether the caller accepts HTML by name, as browsers do.
func wantsHTML(r *http.Request) bool { return acceptWeight(r.Header["Accept"], "text/html") > 0 }

// The OpenAPI documents. In openapi.json each operation lists the surfaces that
// serve it in x-surfaces. If two surfaces answer one path differently, the path
// appears twice, the second time followed by "#" and the surface.

//go:embed openapi.json
var openAPIFile []byte

// document returns a function that makes the document of a surface when it is first
// called, with the operations of the surfaces in also.
func (c *surfaceCache) document(s *surface, edit openAPIEdit, also ...string) func() (*apiDocument, error) {
	surfaces, auth := append([]string{s.name}, also...), s.auth.config
	edits := func(doc map[string]any) {
		if doc["x-authentication"] = auth.Enabled; edit != nil {
			edit(doc)
		}
	}
	return cached(c, "document of "+strings.Join(surfaces, " and "), func() func() (*apiDocument, error) {
		return sync.OnceValues(func() (*apiDocument, error) {
			text, err := openAPIForSurface(auth.APIKeyHeader, edits, surfaces...)
			return &apiDocument{text, contentTag(text)}, err
		})
	})
}

// apiDocument is an OpenAPI document.
type apiDocument struct {
	text []byte
	tag  string // its entity tag
}

// openAPIEdit changes the document of a surface, decoded. It may be nil.
type openAPIEdit func(doc map[string]any)

// openAPIForSurface cuts from openapi.json the operations of some surfaces, the
// first of which names the document, and the components that these refer to. The
// surfaces read API keys from the header apiKeyHeader.
func openAPIForSurface(apiKeyHeader string, edit openAPIEdit, surfaces ...string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(openAPIFile))
	d.UseNumber() // examples keep their digits
	var doc map[string]any
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("decoding openapi.json: %w", err)
	}
	info := doc["info"].(map[string]any)
	info["version"] = version
	info["title"] = fmt.Sprintf("%s %s API", info["title"], surfaces[0])
	if surfaces[0] == "mount" { // which has no versions
		info["description"] = strings.Replace(info["description"].(string), openAPIVersions, "", 1)
	}
	doc["paths"] = openAPIPaths(doc["paths"].(map[string]any), surfaces)
	doc["tags"] = openAPITags(doc)
	components := doc["components"].(map[string]any)
	components["securitySchemes"].(map[string]any)["api_key_auth"].(map[string]any)["name"] = apiKeyHeader
	openAPIPrune(doc, components)
	if edit != nil {
		edit(doc)
	}
	paths, err := openAPIInOrder(doc["paths"].(map[string]any))
	if err != nil {
		return nil, err
	}
	doc["paths"] = paths
	return json.Marshal(doc)
}

// openAPIVersions is the sentence of the description that is true of the roles only.
const openAPIVersions = "Every path under `/v1` is also served under `/api/v1`. "

// openAPIInOrder encodes the paths of a document in the order of openapi.json, which is
// the order of use.
func openAPIInOrder(paths map[string]any) (json.RawMessage, error) {
	text, err, rest := []byte("{"), error(nil), maps.Clone(paths)
	eachMember(objectMember(openAPIFile, "paths"), func(key string, _ []byte) bool {
		path, _, _ := strings.Cut(key, "#")
		if item, ok := rest[path]; ok {
			delete(rest, path) // which another surface may have, too
			var encoded []byte
			encoded, err = json.Marshal(item)
			text = append(append(strconv.AppendQuote(text, path), ':'), append(encoded, ',')...)
		}
		return err == nil
	})
	return append(bytes.TrimSuffix(text, []byte(",")), '}'), err
}

// openAPIPaths returns the operations of some surfaces, without x-surfaces.
func openAPIPaths(paths map[string]any, surfaces []string) map[string]any {
	kept := map[string]any{}
	for key, item := range paths {
		path, _, _ := strings.Cut(key, "#")
		for method, operation := range item.(map[string]any) {
			o := operation.(map[string]any)
			serves := func(s any) bool { return slices.Contains(surfaces, s.(string)) }
			if !slices.ContainsFunc(o["x-surfaces"].([]any), serves) {
				continue
			}
			unavailableOn(o, surfaces[0])
			delete(o, "x-surfaces")
			if kept[path] == nil {
				kept[path] = map[string]any{}
			}
			kept[path].(map[string]any)[method] = o
		}
	}
	return kept
}

// unavailableOn gives an operation of several surfaces the answer 503 of one of them.
func unavailableOn(operation map[string]any, surface string) {
	prefix := map[string]string{"worker": "Worker", "mount": "Mount"}[surface]
	if len(operation["x-surfaces"].([]any)) > 1 && prefix != "" {
		ref := "#/components/responses/" + prefix + "Unavailable"
		operation["responses"].(map[string]any)["503"] = map[string]any{"$ref": ref}
	}
}

// openAPITags returns the tags that the operations of doc use.
func openAPITags(doc map[string]any) []any {
	used := map[any]bool{}
	for _, item := range doc["paths"].(map[string]any) {
		for _, operation := range item.(map[string]any) {
			for _, tag := range operation.(map[string]any)["tags"].([]any) {
				used[tag] = true
			}
		}
	}
	return slices.DeleteFunc(doc["tags"].([]any), func(tag any) bool {
		return !used[tag.(map[string]any)["name"]]
	})
}

// openAPIPrune removes the components that no path of doc refers to, directly or
// through others.
func openAPIPrune(doc, components map[string]any) {
	const prefix = "#/components/"
	reached := map[string]bool{}
	var follow func(v any)
	follow = func(v any) {
		openAPIReferences(v, func(ref string) {
			kind, name, _ := strings.Cut(strings.TrimPrefix(ref, prefix), "/")
			if target, ok := components[kind].(map[string]any); ok && !reached[ref] {
				reached[ref] = true
				follow(target[name])
			}
		})
	}
	follow(doc["paths"])
	for kind, entries := range components {
		for name := range entries.(map[string]any) {
			if kind != "securitySchemes" && !reached[prefix+kind+"/"+name] {
				delete(entries.(map[string]any), name)
			}
		}
	}
}

// openAPIReferences calls f for every "$ref" in v.
func openAPIReferences(v any, f func(ref string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if ref, ok := member.(string); ok && name == "$ref" {
				f(ref)
			}
			openAPIReferences(member, f)
		}
	case []any:
		for _, e := range v {
			openAPIReferences(e, f)
		}
	}
}

// The console: the pages at /console, with which people watch and operate workflows in a
// browser. They are static files in web/console, the same for everybody; all data comes from
// the API with the credentials of the person.

//go:embed web/console
var consoleFiles embed.FS

// consolePath is where the console begins.
const consolePath = "/console"

// consolePolicy returns a policy that allows only the console's own scripts, the API of the same
// origin, and the style in the page, but no inline code.
func consolePolicy(style []byte) string {
	return "default-src 'none'; script-src 'self'; style-src " + contentHash(style) + "; connect-src 'self'; " +
		"img-src 'self' data:; require-trusted-types-for 'script'" + closedPolicy
}

// consoleSite holds the files of the console. It is immutable.
type consoleSite struct {
	build  string            // names this set of files; part of their paths, so that browsers keep them
	files  map[string][]byte // by name
	page   string            // index.html with its style and the facts about the service, without paths
	policy string            // of the page
	tag    string            // the entity tag of page and files
}

// newConsoleSite returns the console of a service whose callers authenticate by auth.
func newConsoleSite(cfg *Config, auth *authConfig) *consoleSite {
	s, sum := &consoleSite{files: map[string][]byte{}}, sha256.New()
	entries, _ := fs.ReadDir(consoleFiles, "web/console") // embedded, so there is no error
	for _, e := range entries {
		text, _ := consoleFiles.ReadFile("web/console/" + e.Name())
		fmt.Fprintf(sum, "%s %d\n%s", e.Name(), len(text), text)
		s.files[e.Name()] = text
	}
	s.build = hex.EncodeToString(sum.Sum(nil)[:6])
	facts := fmt.Sprintf(`<meta name="stepwell" data-version="%s" data-fixture="%t" data-auth="%t" data-key-header="%s">`,
		html.EscapeString(version), cfg.Fixture.Enabled, auth.Enabled, html.EscapeString(auth.APIKeyHeader))
	style := s.files["console.css"] // in the page, so that the first paint waits for no other file
	s.page = strings.NewReplacer("<!--facts-->", facts, "<!--style-->", string(tagged("style", style))).Replace(string(s.files["index.html"]))
	s.policy, s.tag = consolePolicy(style), contentTag([]byte(s.build+facts))
	delete(s.files, "index.html")
	delete(s.files, "console.css")
	return s
}

// pageAt returns the page for a request path. Its links to files are relative, so that they
// work behind a proxy that adds a prefix.
func (s *consoleSite) pageAt(escapedPath string) webPage {
	up := "console"
	if below, ok := strings.CutPrefix(escapedPath, consolePath+"/"); ok {
		up = strings.TrimSuffix("./"+strings.Repeat("../", strings.Count(below, "/")), "/")
	}
	page := strings.NewReplacer("FILES", up+"/web/"+s.build, "CONSOLE", up).Replace(s.page)
	return webPage{[]byte(page), s.policy, contentTag([]byte(s.tag + up))}
}

// cachedConsole returns a function that makes the console when it is first needed.
func cachedConsole(c *surfaceCache, s *surface) func() *consoleSite {
	return cached(c, "console", func() func() *consoleSite {
		return sync.OnceValue(func() *consoleSite { return newConsoleSite(s.svc.cfg, s.auth.config) })
	})
}

// The host guard. Any web page that a user visits can make the browser send requests
// here. Without authentication, and where what browsers add on their own authenticates,
// these would be admitted; the guard refuses them.

// hostGuard knows the names and origins of this service. It is immutable.
type hostGuard struct {
	prefix  string          // of the paths of the surface
	secured bool            // there is authentication, so only added credentials need the guard
	hosts   map[string]bool // never foreign, like loopback names
	origins *pageOrigins    // their pages are treated like our own
}

// newHostGuard returns the guard of a surface, or nil if it needs none.
func newHostGuard(cfg *Config, name string, auth *authenticator) *hostGuard {
	if auth.config.Enabled && auth.forward == nil {
		return nil
	}
	g := &hostGuard{secured: auth.config.Enabled, hosts: map[string]bool{}, origins: newPageOrigins(cfg)}
	if name == "mount" {
		g.prefix = cfg.Mount.Path
	}
	if own, err := parseListen(cfg.listen(name)); err == nil && !(own.ip.IsValid() && own.ip.IsUnspecified()) {
		g.hosts[own.host] = true
	}
	for _, host := range slices.Concat(cfg.Web.AllowedHosts, []string{"host.docker.internal", cfg.Fixture.PublicHost}) {
		g.hosts[strings.ToLower(host)] = true
	}
	return g
}

// listen returns the configured address of a role.
func (c *Config) listen(role string) string {
	if role == "worker" {
		return c.Worker.Web.Listen
	}
	return c.Orchestration.Web.Listen
}

// check refuses what a page of another origin may have sent to a route that changes
// something or controls the service, and a request under a name that is not this
// service's. A nil guard refuses nothing.
func (g *hostGuard) check(r *http.Request, row servedRoute) error {
	if g == nil || g.secured && !hasAddedCredentials(r.Header) {
		return nil
	}
	if row.controls || !strings.HasPrefix(row.pattern, "GET ") {
		for _, origin := range r.Header["Origin"] {
			if !g.origins.admit(origin, r.Header) && g.foreignOrigin(origin, r.Host) {
				return failf(badRequest, "pages of %.200q may not do this unless web.allowed_origins names them", origin)
			}
		}
	}
	if !g.secured && g.misdirected(r) && !g.open(row.pattern) {
		return failf(misdirected, "%.200q is not a name of this service; add it to web.allowed_hosts if it is", r.Host)
	}
	return nil
}

// hasAddedCredentials reports whether a request has credentials that a browser adds to
// whatever a page sends: cookies, or the password for a site.
func hasAddedCredentials(h http.Header) bool {
	_, form := bearerToken(h["Authorization"])
	return h["Cookie"] != nil || h["Authorization"] != nil && form == bearerAbsent
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
	if onLoopback(r.Context()) {
		return true
	}
	_, err := netip.ParseAddr(hostName(r.Host))
	return err != nil && (r.Header["Origin"] != nil || r.Header["Sec-Fetch-Site"] != nil)
}

// foreignOrigin reports whether an origin is not that of the request's host. Only web servers have pages here: file://, null and the origins of
// apps are foreign.
func (g *hostGuard) foreignOrigin(origin, host string) bool {
	origin = strings.ToLower(origin)
	if origin == "" {
		return false
	}
	_, asked, _ := strings.Cut(origin, "://")
	return !isWebURL(origin) || hostName(asked) == "" || asked != strings.ToLower(host) && g.foreignHost(asked)
}

// foreignHost reports whether host, with or without a port, is not a name of this
// service. HTTP/1.0 clients may send none.
func (g *hostGuard) foreignHost(host string) bool {
	name := hostName(host)
	return name != "" && !g.hosts[name] && !isLoopbackName(name)
}

// listenerKey is the key of a listener's address in the contexts of its requests.
type listenerKey struct{}

// ofListener returns the base context of requests to a listener.
func ofListener(l net.Listener) context.Context {
	return context.WithValue(context.Background(), listenerKey{}, l.Addr())
}

// onLoopback reports whether a request came to a listener on a loopback address.
func onLoopback(ctx context.Context) bool {
	a, ok := ctx.Value(listenerKey{}).(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// Pages of other origins (CORS): those in web.allowed_origins may send requests to all rows but
// those that control the service, and read the answers.

// pageOrigins are the origins in web.allowed_origins. They are immutable.
type pageOrigins struct {
	named map[string]bool // in lower case
	all   bool            // "*": any, without the credentials that browsers add
}

func newPageOrigins(cfg *Config) *pageOrigins {
	o := &pageOrigins{named: map[string]bool{}}
	for _, origin := range cfg.Web.AllowedOrigins {
		o.all = o.all || origin == "*"
		o.named[strings.ToLower(origin)] = true
	}
	return o
}

// admit reports whether a page of an origin may send a request with these headers.
func (o *pageOrigins) admit(origin string, h http.Header) bool {
	return o.named[strings.ToLower(origin)] || o.all && !hasAddedCredentials(h)
}

// exposedHeaders are the headers that pages may read, besides those that they always may.
const exposedHeaders = "Accept-Encoding, Allow, Content-Encoding, ETag, Idempotency-Replayed, Link, Location, Retry-After, " +
	"Vary, WWW-Authenticate, X-Auth-Failure-Reason, X-Auth-Failure-Severity, X-Request-Id, X-Stepwell-Wait, X-Stepwell-Warning"

// share lets the page that sent a request read the answer, and reports whether it may.
func (o *pageOrigins) share(h http.Header, r *http.Request) bool {
	if len(o.named) == 0 {
		return false
	}
	h["Vary"] = append(h["Vary"], "Origin")
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		return false
	case o.named[strings.ToLower(origin)]:
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
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
func preflight(w *recorder, r *http.Request) bool {
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
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// controlled reports whether the path of a request, which has these methods, controls the
// service.
func (s *surface) controlled(r *http.Request, methods string) bool {
	method, _, _ := strings.Cut(methods, ",")
	h, _ := s.parts.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
	n, ok := h.(rowNumber)
	return !ok || s.rows[n].controls
}
