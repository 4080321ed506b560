package main

// The page of a surface's documentation, which is sent as a single file that loads nothing.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
)

//go:embed web/docs.html
var docsHTML []byte

//go:embed web/docs.css
var docsCSS []byte

//go:embed web/docs.js
var docsJS []byte

// docsText is the documentation page. Its policy names style and script by their hashes.
var docsText = sync.OnceValue(func() *packedText {
	page := bytes.Replace(docsHTML, []byte("<!--style-->"), tagged("style", docsCSS), 1)
	page = bytes.Replace(page, []byte("<!--script-->"), tagged("script", docsJS), 1)
	policy := "default-src 'none'; script-src " + contentHash(docsJS) + "; style-src " + contentHash(docsCSS) +
		"; connect-src 'self'; img-src data:" + closedPolicy
	return newTaggedText(htmlType, page, policy)
})

const htmlType = "text/html; charset=utf-8"

// closedPolicy ends every policy: it forbids forms, framing and a base URL.
const closedPolicy = "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func tagged(tag string, text []byte) []byte { return fmt.Appendf(nil, "<%s>%s</%s>", tag, text, tag) }

// contentHash returns the name of an inline script or style in a policy.
func contentHash(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// keepToOwnPages keeps pages of other origins from embedding an answer.
func keepToOwnPages(h http.Header) { h.Set("Cross-Origin-Resource-Policy", "same-origin") }

// docsRoutes returns the documentation's rows.
func (s *surface) docsRoutes() []route {
	return []route{
		{"GET /api-docs", public, s.docsPage},
		{"GET /api-docs.json", public, s.document},
		{"GET /api-docs/openapi.json", public, s.document},
		{"GET /api-docs/ui", public, s.docsPage},
		{"GET /api-docs/ui/{$}", public, s.docsPage},
	}
}

// document answers with the OpenAPI document.
func (s *surface) document(w *responseWriter, r *http.Request) (any, error) {
	return s.openapi().reply(w, r), nil
}

// docsPage answers with the page.
func (s *surface) docsPage(w *responseWriter, r *http.Request) (any, error) {
	return docsText().reply(w, r), nil
}

// linksReply answers a program with the links, and redirects a browser to the console, or to
// the docs if there is none.
func linksReply(w *responseWriter, r *http.Request, links map[string]string) any {
	w.Header().Add("Vary", "Accept")
	if wantsHTML(r) {
		http.Redirect(w, r, cmp.Or(links["console"], links["docs"]), http.StatusFound)
		return written{}
	}
	return map[string]any{"service": "stepwell", "version": version, "links": links}
}

// wantsHTML reports whether the caller accepts HTML by name, as browsers do.
func wantsHTML(r *http.Request) bool { return acceptWeight(r.Header["Accept"], "text/html") > 0 }
