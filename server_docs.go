package main

// The page of a surface's documentation: one of our own, which is a single file
// without anything from elsewhere, or a genuine Swagger UI (docs.swagger_ui).

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"mime"
	"net/http"
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

// docsSite is the documentation of a surface.
type docsSite struct {
	swagger string // docs.swagger_ui
	page    func() webPage
}

func newDocsSite(c *docsConfig) *docsSite {
	return &docsSite{c.SwaggerUI, sync.OnceValue(func() webPage { return inlinePage(docsHTML, docsCSS, docsJS) })}
}

// webPage is a page, and the policy that lets a browser run its own parts alone.
type webPage struct {
	html   []byte
	policy string // Content-Security-Policy
}

// inlinePage puts style and script where the page has <!--style--> and
// <!--script-->, and makes a policy that names them by their hashes.
func inlinePage(page, style, script []byte) webPage {
	page = bytes.Replace(page, []byte("<!--style-->"), tagged("style", style), 1)
	page = bytes.Replace(page, []byte("<!--script-->"), tagged("script", script), 1)
	return webPage{page, "default-src 'none'; script-src " + contentHash(script) +
		"; style-src " + contentHash(style) + "; connect-src 'self'; img-src data:" + closedPolicy}
}

// closedPolicy ends the policy of every page: no forms, no frames, no base.
const closedPolicy = "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func tagged(tag string, text []byte) []byte { return fmt.Appendf(nil, "<%s>%s</%s>", tag, text, tag) }

// contentHash is how a policy names an inline script or style.
func contentHash(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// reply sets the headers of a page.
func (p webPage) reply(w http.ResponseWriter) textReply {
	h := w.Header()
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	return textReply{"text/html; charset=utf-8", p.html}
}

// docsRoutes are the documentation's rows of a surface.
func (s *surface) docsRoutes() []route { return s.docsRoutesWith(s.document) }

// docsRoutesWith are the rows with another way to answer with the document.
func (s *surface) docsRoutesWith(document handlerFunc) []route {
	return []route{
		{"GET /api-docs", public, s.docsPage},
		{"GET /api-docs.json", public, document},
		{"GET /api-docs/openapi.json", public, document},
		{"GET /api-docs/ui", public, s.docsPage},
		{"GET /api-docs/ui/{file...}", public, s.docsFile},
	}
}

func (s *surface) document(http.ResponseWriter, *http.Request) (any, error) {
	doc, err := s.openapi()
	return textReply{"application/json", doc}, err
}

// docsPage is the page, wherever it is asked for.
func (s *surface) docsPage(w http.ResponseWriter, r *http.Request) (any, error) {
	if s.docs.swagger == "" {
		return s.docs.page().reply(w), nil
	}
	return swaggerPage(s.docs.swagger, r.URL.Path).reply(w), nil
}

// docsFile is a file of the Swagger UI distribution.
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
	w.Header().Set("Content-Security-Policy", "default-src 'none'"+closedPolicy) // for files opened by themselves
	http.ServeContent(w, r, info.Name(), info.ModTime(), f)
	return written{}, nil
}

// open opens a regular file within the directory of the distribution.
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
		err = fs.ErrInvalid // opening a pipe might never end
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := root.Open(name)
	return f, info, err
}

// swaggerHTML loads a Swagger UI distribution from FILES.
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

// swaggerStart begins once the bundle is loaded; the document's path is the
// page's own up to /api-docs, so that a prefix put before it does not matter.
const swaggerStart = `window.onload = () => SwaggerUIBundle({
  url: location.pathname.replace(/\/api-docs(\/.*)?$/, "") + "/api-docs/openapi.json",
  dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null
});`

// swaggerPage is the page for a distribution, as asked for under a path.
func swaggerPage(distribution, path string) webPage {
	files, origin := swaggerFiles(path), ""
	if isWebURL(distribution) {
		files, origin = strings.TrimRight(distribution, "/"), " "+webOrigin(distribution)
	}
	page := strings.ReplaceAll(swaggerHTML, "FILES", html.EscapeString(files))
	return webPage{[]byte(page), "default-src 'none'; script-src 'self' " + contentHash([]byte(swaggerStart)) +
		origin + "; style-src 'self' 'unsafe-inline'" + origin + "; img-src 'self' data:" + origin +
		"; font-src 'self' data:" + origin + "; connect-src 'self'" + closedPolicy}
}

// webOrigin is scheme and host of a URL that checkSwaggerValue accepted.
func webOrigin(s string) string {
	scheme, rest, _ := strings.Cut(s, "://")
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}

// swaggerFiles is where the files are, seen from the page's path.
func swaggerFiles(path string) string {
	path = path[max(strings.LastIndex(path, "/api-docs"), 0):] // below a mount point, too
	switch {
	case strings.HasPrefix(path, "/api-docs/ui/"):
		return "."
	case path == "/api-docs/ui":
		return "./ui"
	}
	return "./api-docs/ui"
}

// checkSwaggerFiles is whether docs.swagger_ui, where it is a directory, holds
// what the page needs.
func checkSwaggerFiles(c *docsConfig) error {
	if c.SwaggerUI == "" || isWebURL(c.SwaggerUI) {
		return nil
	}
	for _, name := range []string{"swagger-ui.css", "swagger-ui-bundle.js"} {
		info, err := os.Stat(filepath.Join(c.SwaggerUI, name))
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("it is no file")
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

// linksReply tells a program where things are, and sends a browser to the docs.
func linksReply(w http.ResponseWriter, r *http.Request, links map[string]string) any {
	w.Header().Set("Vary", "Accept")
	if wantsHTML(r) {
		http.Redirect(w, r, links["docs"], http.StatusFound)
		return written{}
	}
	return map[string]any{"service": "stepwell", "version": version, "links": links}
}

// wantsHTML reports whether the caller names HTML among what it accepts, as
// browsers do and programs do not.
func wantsHTML(r *http.Request) bool {
	for accepted := range strings.SplitSeq(strings.Join(r.Header["Accept"], ","), ",") {
		media, parameters, err := mime.ParseMediaType(accepted)
		weight, badWeight := strconv.ParseFloat(parameters["q"], 64)
		if err == nil && media == "text/html" && (badWeight != nil || weight > 0) {
			return true
		}
	}
	return false
}

// The OpenAPI documents: one for each surface, cut from openapi.json.
//
// In openapi.json each operation names the surfaces that serve it in
// x-surfaces. Where two surfaces answer one path differently, the path is there
// twice, the second time with "#" and the surface behind it.

//go:embed openapi.json
var openAPIFile []byte

// openAPIDocument makes the document of a surface, which reads API keys from a
// header, and of others that it serves as well, when it is first asked for.
func openAPIDocument(surface, apiKeyHeader string, also ...string) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) {
		return openAPIForSurface(openAPIFile, surface, version, apiKeyHeader, also...)
	})
}

// withServer is a document of a surface that is found at url.
func withServer(doc []byte, url string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(doc, &members); err != nil {
		return nil, fmt.Errorf("decoding the OpenAPI document: %w", err)
	}
	servers, err := json.Marshal([]map[string]string{{"url": url}})
	if err != nil {
		return nil, err
	}
	members["servers"] = servers
	return json.Marshal(members)
}

// openAPIForSurface cuts the document of a surface, "orchestration", "worker" or
// "mount", from the text of openapi.json: its operations and the components
// they refer to. The version is the program's; apiKeyHeader is the header that
// the surface reads API keys from.
func openAPIForSurface(file []byte, surface, version, apiKeyHeader string, also ...string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(file))
	d.UseNumber() // examples keep their digits
	var doc map[string]any
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("decoding openapi.json: %w", err)
	}
	info := doc["info"].(map[string]any)
	info["version"] = version
	info["title"] = fmt.Sprintf("%s %s API", info["title"], surface)
	doc["paths"] = openAPIPaths(doc["paths"].(map[string]any), append(also, surface))
	doc["tags"] = openAPITags(doc)
	components := doc["components"].(map[string]any)
	components["securitySchemes"].(map[string]any)["api_key_auth"].(map[string]any)["name"] = apiKeyHeader
	openAPIPrune(doc, components)
	return json.Marshal(doc)
}

// openAPIPaths are the paths of surfaces, without the marks of openapi.json.
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
			delete(o, "x-surfaces")
			if kept[path] == nil {
				kept[path] = map[string]any{}
			}
			kept[path].(map[string]any)[method] = o
		}
	}
	return kept
}

// openAPITags are the tags that an operation of doc has.
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

// openAPIPrune removes the components that no path of doc leads to.
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

// openAPIReferences calls f for every "$ref" within v.
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
