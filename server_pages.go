package main

// The page of a surface's documentation, which is sent as a single file that loads nothing.

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"time"
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

func (s *surface) docsPage(w *responseWriter, r *http.Request) (any, error) {
	return docsText().reply(w, r), nil
}

// linksReply answers a program with the links, and redirects a browser to the console, or to the docs if there is none.
func linksReply(w *responseWriter, r *http.Request, links map[string]string) any {
	w.Header().Add("Vary", "Accept")
	if wantsHTML(r) {
		http.Redirect(w, r, cmp.Or(links["console"], links["docs"]), http.StatusFound)
		return written{}
	}
	return map[string]any{"service": "stepwell", "version": version, "links": links}
}

// wantsHTML reports whether the caller accepts HTML by name, as browsers do.
func wantsHTML(r *http.Request) bool { return accepts(r.Header["Accept"], "text/html") }

// Public texts that many callers get: documents, pages, the files of the console, metrics. A text is compressed once
// for all of them, and those that are made again are shared by the requests that wait.

// packedText is a text as an answer with status 200. It does not change.
type packedText struct {
	contentType string
	plain       []byte
	policy      string        // of a page: Content-Security-Policy
	tag         string        // its entity tag; "" for none
	zip         func() []byte // returns the compressed text, which the first call makes
}

func newPackedText(contentType string, plain []byte, level int) *packedText {
	zip := sync.OnceValue(func() []byte { return gzipped(plain, level) })
	return &packedText{contentType: contentType, plain: plain, zip: zip}
}

// newTaggedText returns a text with a tag, which also depends on the policy. The tag is weak, so that it counts for the
// compressed text as well.
func newTaggedText(contentType string, plain []byte, policy string) *packedText {
	t := newPackedText(contentType, plain, gzip.BestCompression) // which is done once for all readers
	sum := sha256.Sum256(append([]byte(policy), plain...))
	t.policy, t.tag = policy, weakTag(hex.EncodeToString(sum[:12]))
	return t
}

// gzipFrom is the length from which a text is compressed, in bytes.
const gzipFrom = 1 << 10

func gzipped(text []byte, level int) []byte {
	b := bytes.NewBuffer(make([]byte, 0, len(text)/4))
	z, _ := gzip.NewWriterLevel(b, level) // the level is valid
	z.Write(text)                         // a buffer takes everything
	z.Close()
	return b.Bytes()
}

// reply sets the headers of a text with a tag and returns the answer.
func (t *packedText) reply(w *responseWriter, r *http.Request) any {
	h := w.Header()
	if t.policy != "" {
		h.Set("Content-Security-Policy", t.policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		keepToOwnPages(h)
	}
	answer := withTag(w, r, t.tag, t)
	if _, known := answer.(notModified); known {
		h["Vary"] = append(h["Vary"], "Accept-Encoding") // as write does
	}
	return answer
}

func (t *packedText) write(w *responseWriter) {
	body, h := t.plain, w.Header()
	h["Vary"] = append(h["Vary"], "Accept-Encoding")
	if len(body) >= gzipFrom && !w.head && accepts(w.asked["Accept-Encoding"], "gzip") {
		body = t.zip()
		h["Content-Encoding"] = []string{"gzip"}
	}
	writeBody(w, http.StatusOK, t.contentType, body)
}

// sharedText is a text that describes the present. Callers that wait for their turn to make it share one that was begun
// meanwhile, which therefore shows nobody what was before their request. It is safe for concurrent use.
type sharedText struct {
	mu     sync.Mutex
	begun  time.Time   // when the latest one was begun; guarded by mu, as below
	latest *packedText // nil for none
}

// get returns a text that was begun after a request arrived. create gets the length of the latest one, in bytes.
func (s *sharedText) get(arrived time.Time, create func(size int) *packedText) *packedText {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil || !arrived.Before(s.begun) {
		size := 0
		if s.latest != nil {
			size = len(s.latest.plain)
		}
		s.begun = time.Now()
		s.latest = create(size)
	}
	return s.latest
}
