package main

import (
	"compress/gzip"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestConsoleFacts checks what the page says about the service.
func TestConsoleFacts(t *testing.T) {
	cfg := defaultConfig()
	cfg.Fixture.Enabled = true
	page := string(newConsoleSite(cfg, &authConfig{Enabled: true, APIKeyHeader: `X-"Key`}).pageAt("/console").plain)
	for _, want := range []string{`data-fixture="true"`, `data-auth="true"`, `data-key-header="X-&#34;Key"`, `data-version="` + version + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("got no %s in the page", want)
		}
	}
	if strings.Contains(page, "<!--") || strings.Contains(page, "FILES") || strings.Contains(page, "CONSOLE") {
		t.Errorf("got a place that was not filled in:\n%s", page)
	}
}

// TestConsoleIsWhole checks that the files together are small, import only each other, and have
// neither inline code nor anything from elsewhere.
func TestConsoleIsWhole(t *testing.T) {
	site := newConsoleSite(defaultConfig(), &authConfig{})
	size := 0
	texts := map[string][]byte{"index.html": site.pageAt("/console").plain}
	for name, file := range site.files {
		texts[name] = file.plain
	}
	for name, text := range texts {
		size += len(gzipped(text, gzip.BestCompression))
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
	if size > 103_828 {
		t.Errorf("a browser loads %d compressed bytes; want 103,828 at most", size)
	}
	first := 0
	for _, name := range []string{"index.html", "begin.js", "main.js", "api.js", "ui.js", "patch.js", "tasks.js"} {
		first += len(gzipped(texts[name], gzip.BestCompression))
	}
	if first > 40_000 {
		t.Errorf("a browser loads %d bytes for the page of the tasks; want 40,000 at most", first)
	}
	t.Logf("%d bytes, compressed; %d for the page of the tasks", size, first)
}

// TestConsoleLines checks that the lines of the pages have 120 columns at most, but for pictures within them.
func TestConsoleLines(t *testing.T) {
	lines := 0
	err := fs.WalkDir(os.DirFS("web"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join("web", name))
		for line := range strings.Lines(string(text)) {
			if lines++; utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 120 && !strings.Contains(line, "data:image/") {
				t.Errorf("%s: got a line of more than 120 columns: %s", name, line)
			}
		}
		return err
	})
	if err != nil || lines < 5000 {
		t.Errorf("got %d lines, %v; want all of them", lines, err)
	}
}

// TestConsoleWords checks that the texts of the console call each thing by one word, that of the glossary, and that each
// button which cancels says what.
func TestConsoleWords(t *testing.T) {
	literal := regexp.MustCompile("\"[^\"\\n]*\"|`[^`]*`")
	read := 0
	for name, file := range newConsoleSite(defaultConfig(), &authConfig{}).files {
		for _, text := range literal.FindAllString(string(file.plain), -1) {
			read++
			for wrong, right := range map[string]string{
				`^"Cancel( …)?"$`: "what is cancelled: the task, the step, tasks", `(?i)\bbackoff\b`: "back-off", `(?i)\bdead-letter|deadletter|DLQ entr`: "dead letter",
				`\b[Jj]obs?\b`: "task", `\bworkflow (run|instance)`: "task", `\b([Rr]erun|[Rr]estart|[Rr]estarted)\b`: "reset, or retry now",
				`\b[Aa]bort(ed)? the\b`: "cancel", `\b[Ss]tuck steps?\b`: "step that waits, or failed for good",
			} {
				if regexp.MustCompile(wrong).MatchString(text) && !(name == "bulk.js" && text == `"Cancel"`) { // which its noun follows
					t.Errorf("%s: got %s; want %s", name, text, right)
				}
			}
		}
	}
	if read < 1000 {
		t.Errorf("got %d texts; want those of all pages", read)
	}
}

// consolePaths are the paths that the bar of the console leads to.
var consolePaths = map[string]bool{"/console": true, "/console/": true, "/console/tasks": true, "/console/templates": true,
	"/console/dlq": true, "/console/failures": true, "/console/waits": true, "/console/service": true, "/console/analytics": true,
	"/console/audit": true, "/console/fixture": true, "/console/start": true, "/api-docs/ui": true}

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
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'sha256-") ||
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
			if !below {
				if !consolePaths[strings.TrimPrefix(target.Path, "/flows")] {
					t.Errorf("%s: the link %s leads to %s", path, link[1], target)
				}
				continue
			}
			files++
			got := s.do("GET", "/console/web/"+file, "").want(200)
			if !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: got Cache-Control %q", file, got.header.Get("Cache-Control"))
			}
		}
		if files != 1 {
			t.Errorf("%s: got %d links to files; want the script that loads the others", path, files)
		}
	}
}

// TestConsoleFiles checks the type of files, and that a path of another build is not kept.
func TestConsoleFiles(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{})
	a := s.do("GET", "/console/web/old/main.js", "").want(200)
	if a.header.Get("Content-Type") != "text/javascript; charset=utf-8" || a.header.Get("Cache-Control") != "no-cache" ||
		a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
		t.Errorf("got headers %v; want a script, not kept", a.header)
	}
	h := s.do("GET", "/console/tasks", "").want(200).header
	if h.Get("Cross-Origin-Opener-Policy") != "same-origin" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
		t.Errorf("got headers %v of the page; want it kept to its origin", h)
	}
	for _, name := range []string{"index.html", "console.css", "none.js", "..%2Findex.html"} {
		s.do("GET", "/console/web/old/"+name, "").want(404)
	}
	s.do("GET", "/console"+strings.Repeat("/x", consoleDepth+2), "").want(404)
}

var consoleImports = regexp.MustCompile(`(?:from|import\() ?"\./([^"]+)"`)

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
