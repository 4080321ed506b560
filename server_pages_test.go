package main

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// inlineParts matches the scripts and styles of a page.
var inlineParts = regexp.MustCompile(`(?s)<(script|style)>(.*?)</`)

// TestDocsPageIsWhole checks that the page works under its policy and loads nothing
// from elsewhere.
func TestDocsPageIsWhole(t *testing.T) {
	p := docsText()
	page := string(p.plain)
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
