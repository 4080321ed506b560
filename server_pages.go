package main

// What browsers show, and whose pages they may show beside it. First the documentation of a
// surface: its OpenAPI document, cut from openapi.json, and the page that shows it, which is
// either the one in web/, sent as a single file that loads nothing, or a Swagger UI
// distribution (docs.swagger_ui). Then the files of the console, the host guard, and CORS.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
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
