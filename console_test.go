package main

// The console as the server sees it: its page, its files and its switch. The tests in e2e use
// it in a browser.

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

var consoleLinks = regexp.MustCompile(`(?:src|href)="([^"#]+)"`)

// TestConsolePages checks that the page is the same at every path, that its files are found from
// there, also below the prefix of a proxy, and that browsers keep these files.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{})
	for _, path := range []string{
		"/console", "/console/", "/console/tasks", "/console/tasks?status=error", "/console/tasks/x",
		"/console/templates/a/b/1.0.0", "/console/templates/a%2Fb/c/1.0.0", "/console/nowhere",
	} {
		a := s.do("GET", path, "").want(200)
		policy := a.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") ||
			strings.Contains(policy, "unsafe") || a.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: got headers %v; want a strict policy and no-cache", path, a.header)
		}
		files := 0
		for _, link := range consoleLinks.FindAllStringSubmatch(string(a.body), -1) {
			if strings.HasPrefix(link[1], "data:") {
				continue
			}
			page, _ := url.Parse("http://proxy.example/flows" + path)
			target, _ := page.Parse(link[1])
			file, below := strings.CutPrefix(target.Path, "/flows/console/web/")
			if files++; !below {
				t.Errorf("%s: the link %s leads to %s", path, link[1], target)
				continue
			}
			got := s.do("GET", "/console/web/"+file, "").want(200)
			if !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: got Cache-Control %q", file, got.header.Get("Cache-Control"))
			}
		}
		if files < 5 {
			t.Errorf("%s: got %d links to files; want the scripts and styles", path, files)
		}
	}
}

// TestConsoleFiles checks the types of files, and that a path of another build is not kept.
func TestConsoleFiles(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{})
	for name, want := range map[string]string{
		"main.js": "text/javascript; charset=utf-8", "console.css": "text/css; charset=utf-8",
	} {
		a := s.do("GET", "/console/web/old/"+name, "").want(200)
		if a.header.Get("Content-Type") != want || a.header.Get("Cache-Control") != "no-cache" ||
			a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got headers %v; want %s, not kept", name, a.header, want)
		}
	}
	for _, name := range []string{"index.html", "none.js", "..%2Findex.html"} {
		s.do("GET", "/console/web/old/"+name, "").want(404)
	}
}

// TestConsoleFacts checks what the page says about the service.
func TestConsoleFacts(t *testing.T) {
	cfg := defaultConfig()
	cfg.Fixture.Enabled = true
	page := string(newConsoleSite(cfg, &authConfig{Enabled: true, APIKeyHeader: `X-"Key`}).pageAt("/console").html)
	for _, want := range []string{`data-fixture="true"`, `data-auth="true"`, `data-key-header="X-&#34;Key"`, `data-version="` + version + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("got no %s in the page", want)
		}
	}
	if strings.Contains(page, "<!--") || strings.Contains(page, "FILES") {
		t.Errorf("got a place that was not filled in:\n%s", page)
	}
}

var consoleImports = regexp.MustCompile(`(?:from|import\() ?"\./([^"]+)"`)

// TestConsoleIsWhole checks that the files together are small, import only each other, and have
// neither inline code nor anything from elsewhere.
func TestConsoleIsWhole(t *testing.T) {
	site := newConsoleSite(defaultConfig(), &authConfig{})
	size, plain := compressedSize(site.page), len(site.page)
	for name, text := range site.files {
		size, plain = size+compressedSize(text), plain+len(text)
		for _, found := range regexp.MustCompile(`https?://[^"'\s)]+`).FindAllString(string(text), -1) {
			if found != "http://www.w3.org/2000/svg" && !strings.HasPrefix(found, "http://127.0.0.1") {
				t.Errorf("%s: got %s; want nothing from elsewhere", name, found)
			}
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style: \""} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s: got %s; the policy forbids it", name, bad)
			}
		}
		for line := range strings.Lines(string(text)) {
			for _, m := range consoleImports.FindAllStringSubmatch(line, -1) {
				if site.files[m[1]] == nil {
					t.Errorf("%s: imports %s, which does not exist", name, m[1])
				}
			}
		}
	}
	if size > 150_000 {
		t.Errorf("the console has %d bytes; want 150,000 at most", size)
	}
	t.Logf("%d bytes, compressed; %d plain", size, plain)
}

// compressedSize returns how many bytes a browser loads for a text.
func compressedSize(text []byte) int {
	var b bytes.Buffer
	w := newGzipWriter()
	w.Reset(&b)
	w.Write(text)
	w.Close()
	return b.Len()
}

// TestConsoleOff switches the console off: browsers are led to the documentation.
func TestConsoleOff(t *testing.T) {
	t.Parallel()
	for enabled, want := range map[bool]string{true: "/console", false: "/api-docs/ui"} {
		s := newTestServer(t, serviceTest{config: func(c *Config) { c.Console.Enabled = enabled }})
		r, _ := http.NewRequest("GET", s.url+"/", nil)
		r.Header.Set("Accept", "text/html")
		resp := must(http.DefaultTransport.RoundTrip(r))(t)
		resp.Body.Close()
		if resp.StatusCode != 302 || resp.Header.Get("Location") != want {
			t.Errorf("console.enabled = %v: got %d to %s; want 302 to %s", enabled, resp.StatusCode, resp.Header.Get("Location"), want)
		}
		links := s.do("GET", "/", "").want(200).get("links").(map[string]any)
		if _, linked := links["console"]; linked != enabled {
			t.Errorf("console.enabled = %v: got links %v", enabled, links)
		}
		status := map[bool]int{true: 200, false: 404}[enabled]
		s.do("GET", "/console/tasks", "").want(status)
		s.do("GET", "/console", "").want(status)
	}
}
