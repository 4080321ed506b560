package main

// The documentation of a surface: its OpenAPI document, cut from openapi.json, and
// the page that shows it. The page is either the one in web/, sent as a single
// file that loads nothing, or a Swagger UI distribution (docs.swagger_ui).

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"maps"
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
			delete(o, "x-surfaces")
			if kept[path] == nil {
				kept[path] = map[string]any{}
			}
			kept[path].(map[string]any)[method] = o
		}
	}
	return kept
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
