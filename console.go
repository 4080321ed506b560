package main

// The console: its files in web/console, their content security policy, and how they are served.

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
)

// isConsole reports whether a row belongs to the console.
func (r route) isConsole() bool { return strings.HasPrefix(r.pattern, "GET "+consolePath) }

// consolePage answers with the one page, which shows what its path names.
func (a *orchestrationAPI) consolePage(w *responseWriter, r *http.Request) (any, error) {
	page := a.console().pageAt(r.URL.EscapedPath())
	if page == nil {
		return nil, failf(notFound, "no such path: %s", r.URL.Path)
	}
	return page.reply(w, r), nil
}

// consoleFile answers with a file of the page. A browser keeps it for good, unless the path names another build, as
// that of a page from before an upgrade does.
func (a *orchestrationAPI) consoleFile(w *responseWriter, r *http.Request) (any, error) {
	site := a.console()
	text, ok := site.files[r.PathValue("file")]
	if !ok {
		return nil, failf(notFound, "no such path: %s", r.URL.Path)
	}
	h := w.Header()
	keepToOwnPages(h)
	h.Set("Cache-Control", "no-cache")
	// The path contains a hash of all files, so what is at this path never changes.
	if r.PathValue("build") == site.build {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	return text, nil
}

// The console: the pages at /console, with which people watch and operate workflows in a browser. They are static files
// in web/console, the same for everybody; all data comes from the API with the credentials of the person.

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
	build string                 // names this set of files; part of their paths, so that browsers keep them
	files map[string]*packedText // by name
	pages []*packedText          // the page, by how many slashes follow /console in its path
}

// scriptComments are the lines of a script that are comments or types.
var scriptComments = regexp.MustCompile(`(?m)^ *(//.*|/\*\* @.*\*/)\n`)

// newConsoleSite returns the console of a service whose callers authenticate by auth.
func newConsoleSite(cfg *Config, auth *authConfig) *consoleSite {
	s, sum := &consoleSite{files: map[string]*packedText{}}, sha256.New()
	entries, _ := fs.ReadDir(consoleFiles, "web/console") // embedded, so there is no error
	for _, e := range entries {
		text, _ := consoleFiles.ReadFile("web/console/" + e.Name())
		fmt.Fprintf(sum, "%s %d\n%s", e.Name(), len(text), text)
		if strings.HasSuffix(e.Name(), ".js") {
			text = scriptComments.ReplaceAll(text, nil) // which are not for browsers
		}
		s.files[e.Name()] = newPackedText("text/javascript; charset=utf-8", text, gzip.BestCompression)
	}
	s.build = hex.EncodeToString(sum.Sum(nil)[:6])
	facts := fmt.Sprintf(`<meta name="stepwell" data-version="%s" data-fixture="%t" data-auth="%t" data-key-header="%s">`,
		html.EscapeString(version), cfg.Fixture.Enabled, auth.Enabled, html.EscapeString(auth.APIKeyHeader))
	style := s.files["console.css"].plain // in the page, so that the first paint waits for no other file
	page := strings.NewReplacer("<!--facts-->", facts, "<!--style-->", string(tagged("style", style))).
		Replace(string(s.files["index.html"].plain))
	for up := "console"; len(s.pages) <= consoleDepth+1; up = pick(up == "console", ".", up+"/..") {
		text := strings.NewReplacer("FILES", up+"/web/"+s.build, "CONSOLE", up).Replace(page)
		s.pages = append(s.pages, newTaggedText(htmlType, []byte(text), consolePolicy(style)))
	}
	delete(s.files, "index.html")
	delete(s.files, "console.css")
	return s
}

// consoleDepth is how far below /console a path can name a page, with some to spare.
const consoleDepth = 8

// pageAt returns the page for a request path, or nil if that is too deep. Its links to files are relative, so that they
// work behind a proxy that adds a prefix.
func (s *consoleSite) pageAt(escapedPath string) *packedText {
	depth := strings.Count(strings.TrimPrefix(escapedPath, consolePath), "/")
	if depth >= len(s.pages) {
		return nil
	}
	return s.pages[depth]
}
