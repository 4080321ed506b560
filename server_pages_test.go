package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inlineParts matches the scripts and styles of a page.
var inlineParts = regexp.MustCompile(`(?s)<(script|style)>(.*?)</`)

// TestDocsPageIsWhole checks that the page works under its policy and loads nothing
// from elsewhere.
func TestDocsPageIsWhole(t *testing.T) {
	p := newDocsSite(&docsConfig{}).page()
	page := string(p.html)
	parts := inlineParts.FindAllStringSubmatch(page, -1)
	if len(parts) != 2 {
		t.Fatalf("got %d scripts and styles; want one of each", len(parts))
	}
	for _, part := range parts {
		if want := part[1] + "-src " + contentHash([]byte(part[2])); !strings.Contains(p.policy, want+";") {
			t.Errorf("got policy %s; want %s in it", p.policy, want)
		}
		if len(part[2]) < 1000 || strings.Contains(part[2], "</") {
			t.Errorf("%s: got %d bytes; want the whole of it", part[1], len(part[2]))
		}
	}
	if strings.Contains(page, "<!--") {
		t.Error("got a place that was not filled in")
	}
	markup := inlineParts.ReplaceAllString(page, "")
	for _, forbidden := range []string{` style="`, ` onclick=`, ` onload=`, "<link rel=\"stylesheet\"", " src="} {
		if strings.Contains(markup, forbidden) {
			t.Errorf("got %q in the markup; the policy forbids it", forbidden)
		}
	}
	for _, url := range regexp.MustCompile(`https?://[^"'\s)]+`).FindAllString(page, -1) {
		if url != "http://www.w3.org/2000/svg" {
			t.Errorf("got %s; want nothing from elsewhere", url)
		}
	}
	for _, dangerous := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
		if strings.Contains(page, dangerous) {
			t.Errorf("got %s; want text nodes only", dangerous)
		}
	}
}

// swaggerDirectory makes the part of a Swagger UI distribution that the page uses.
func swaggerDirectory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dist")
	noError(t, os.MkdirAll(filepath.Join(dir, "assets"), 0o700))
	for name, text := range map[string]string{
		"swagger-ui.css": "body {}", "swagger-ui-bundle.js": "let x", "index.html": "theirs",
		"assets/logo.svg": "<svg/>", "../secret": "secret",
	} {
		writeFile(t, filepath.Join(dir, name), []byte(text))
	}
	noError(t, os.Symlink("../secret", filepath.Join(dir, "link")))
	return dir
}

func TestSwaggerDirectory(t *testing.T) {
	dir := swaggerDirectory(t)
	s := newTestServer(t, serviceTest{config: func(c *Config) { c.Docs.SwaggerUI = dir }})
	for path, files := range map[string]string{
		"/api-docs": "./api-docs/ui", "/api-docs/ui": "./ui", "/api-docs/ui/": ".", "/api-docs/ui/index.html": ".",
	} {
		a := s.do("GET", path, "").want(200)
		if !strings.Contains(string(a.body), `<script src="`+files+`/swagger-ui-bundle.js">`) {
			t.Errorf("%s: got %s; want files at %s", path, a.body, files)
		}
		start := inlineParts.FindSubmatch(a.body)
		if policy := a.header.Get("Content-Security-Policy"); !strings.Contains(policy, contentHash(start[2])) {
			t.Errorf("%s: got policy %s; want the hash of %s", path, policy, start[2])
		}
	}
	for path, want := range map[string]struct{ body, contentType string }{
		"swagger-ui.css":       {"body {}", "text/css; charset=utf-8"},
		"swagger-ui-bundle.js": {"let x", "text/javascript; charset=utf-8"},
		"assets/logo.svg":      {"<svg/>", "image/svg+xml"},
	} {
		a := s.do("GET", "/api-docs/ui/"+path, "").want(200)
		if string(a.body) != want.body || a.header.Get("Content-Type") != want.contentType ||
			a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %v %s; want %v", path, a.header, a.body, want)
		}
	}
	for _, path := range []string{"nothing.js", "assets", "assets/", "link", "..%2Fsecret", "%2e%2e%2fsecret", "%2Fetc%2Fpasswd"} {
		if a := s.do("GET", "/api-docs/ui/"+path, "").want(404); a.text("error.code") != "NOT_FOUND" {
			t.Errorf("%s: got %s; want NOT_FOUND", path, a.body)
		}
	}
}

func TestSwaggerURL(t *testing.T) {
	s := newTestServer(t, serviceTest{config: func(c *Config) { c.Docs.SwaggerUI = "https://cdn.example.com:8443/swagger@5/" }})
	a := s.do("GET", "/api-docs/ui", "").want(200)
	for _, want := range []string{
		`<script src="https://cdn.example.com:8443/swagger@5/swagger-ui-bundle.js">`,
		`<link rel="stylesheet" href="https://cdn.example.com:8443/swagger@5/swagger-ui.css">`,
	} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("got %s; want %s", a.body, want)
		}
	}
	policy := a.header.Get("Content-Security-Policy")
	if !strings.Contains(policy, " https://cdn.example.com:8443;") || !strings.Contains(policy, "connect-src 'self';") {
		t.Errorf("got policy %s; want the one origin, and requests to ourselves alone", policy)
	}
	s.do("GET", "/api-docs/ui/swagger-ui.css", "").want(404)
}

func TestSwaggerConfiguration(t *testing.T) {
	for value, ok := range map[string]bool{
		"": true, "./dist": true, "/usr/share/swagger": true, "https://cdn.example.com/swagger": true, "http://[::1]:80": true,
		"https://": false, "https://user:secret@h/x": false, "https://h/x?key=secret": false, "https://h/x#a": false,
		"https://h/a b": false, "https://h/a;script-src *": false, "https://h'/": false, "https://h/a,b": false,
	} {
		in := configInput{files: oneConfigFile("[docs]", "swagger_ui = "+quoteTOML(value))}
		_, _, err := in.load()
		if (err == nil) != ok {
			t.Errorf("%q: got %v; want ok = %v", value, err, ok)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v; want it without the secret", value, err)
		}
	}
}

func TestSwaggerFilesAreChecked(t *testing.T) {
	dir := swaggerDirectory(t)
	for _, value := range []string{"", dir, "https://cdn.example.com/x"} {
		if err := checkSwaggerFiles(&docsConfig{value}); err != nil {
			t.Errorf("%q: got %v; want no error", value, err)
		}
	}
	empty := t.TempDir()
	err := checkSwaggerFiles(&docsConfig{empty})
	if want := "docs.swagger_ui: swagger-ui.css in " + empty + ": "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v; want %s…", err, want)
	}
	noError(t, os.Mkdir(filepath.Join(empty, "swagger-ui.css"), 0o700))
	if err := checkSwaggerFiles(&docsConfig{empty}); err == nil || !strings.HasSuffix(err.Error(), ": not a regular file") {
		t.Errorf("got %v; want that it is not a regular file", err)
	}
}

func TestWantsHTML(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/plain": false, "text/*": false, ";;": false,
		"text/html": true, "TEXT/HTML": true, "application/json, text/html;q=0.5": true, "text/html;level=1": true,
		"text/html;q=0": false, "text/html; q=0.0, */*": false, "text/html;q=x": true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8": true,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		if got := wantsHTML(r); got != want {
			t.Errorf("%q: got %v; want %v", accept, got, want)
		}
	}
}
