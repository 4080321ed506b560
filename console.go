package main

// The console: the pages at /console, with which people watch and operate workflows in a
// browser. They are static files in web/console, the same for everybody; all data comes from
// the API with the credentials of the person.

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed web/console
var consoleFiles embed.FS

// consolePath is where the console begins.
const consolePath = "/console"

// consolePolicy allows only the console's own files and the API of the same origin, and no
// inline code.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; require-trusted-types-for 'script'" + closedPolicy

// consoleSite holds the files of the console. It is immutable.
type consoleSite struct {
	build string            // names this set of files; part of their paths, so that browsers keep them
	files map[string][]byte // by name
	page  []byte            // index.html with the facts about the service, without the paths of files
	tag   string            // the entity tag of page and files
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
	s.page = bytes.Replace(s.files["index.html"], []byte("<!--facts-->"), []byte(facts), 1)
	s.tag = contentTag([]byte(s.build + facts))
	delete(s.files, "index.html")
	return s
}

// pageAt returns the page for a request path. Its links to files are relative, so that they
// work behind a proxy that adds a prefix.
func (s *consoleSite) pageAt(escapedPath string) webPage {
	up := "console"
	if below, ok := strings.CutPrefix(escapedPath, consolePath+"/"); ok {
		up = strings.TrimSuffix("./"+strings.Repeat("../", strings.Count(below, "/")), "/")
	}
	page := bytes.ReplaceAll(s.page, []byte("FILES"), []byte(up+"/web/"+s.build))
	return webPage{page, consolePolicy, contentTag([]byte(s.tag + up))}
}

// consoleRoutes returns the console's rows.
func (a *orchestrationAPI) consoleRoutes() []route {
	return []route{
		{"GET /console", public, a.consolePage},
		{"GET /console/{page...}", public, a.consolePage},
		{"GET /console/web/{build}/{file}", public, a.consoleFile},
	}
}

// isConsole reports whether a row belongs to the console.
func (r route) isConsole() bool { return strings.HasPrefix(r.pattern, "GET "+consolePath) }

// consolePage answers with the one page, which shows what its path names.
func (a *orchestrationAPI) consolePage(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.console().pageAt(r.URL.EscapedPath()).reply(w, r), nil
}

// consoleFile answers with a file of the page. A browser keeps it for good, unless its path
// names another build, as after an upgrade.
func (a *orchestrationAPI) consoleFile(w http.ResponseWriter, r *http.Request) (any, error) {
	site := a.console()
	text, ok := site.files[r.PathValue("file")]
	if !ok {
		return nil, failf(notFound, "no such path: %s", r.URL.Path)
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	if r.PathValue("build") == site.build {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	return textReply{consoleTypes[path.Ext(r.PathValue("file"))], [][]byte{text}}, nil
}

// consoleTypes are the types of the files, by the ends of their names.
var consoleTypes = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

// cachedConsole returns a function that makes the console when it is first needed.
func cachedConsole(c *surfaceCache, s *surface) func() *consoleSite {
	return cached(c, "console", func() func() *consoleSite {
		return sync.OnceValue(func() *consoleSite { return newConsoleSite(s.svc.cfg, s.auth.config) })
	})
}
