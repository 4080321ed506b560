package main

import (
	"compress/gzip"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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

// Texts that many callers get: compressed once, and shared without showing anybody the past.

// TestDocumentsArePackedOnce asks for each document and page twice, compressed: both answers are the same text, which
// nobody compresses again.
func TestDocumentsArePackedOnce(t *testing.T) {
	sequential(t)
	svc := newTestService(t, serviceTest{})
	a, worker := newOrchestrationAPI(svc, nil), newWorkerAPI(svc, nil)
	for _, tt := range []struct {
		s      *surface
		path   string
		handle handlerFunc
	}{
		{a.surface, "/api-docs.json", a.surface.document}, {worker.surface, "/api-docs.json", worker.document},
		{a.surface, "/api-docs", a.surface.docsPage}, {a.surface, "/api-docs/ui", a.surface.docsPage},
		{a.surface, "/console", a.consolePage}, {a.surface, "/console/tasks/x", a.consolePage},
		{a.surface, "/console/web/main.js", a.consoleFile},
		{a.mount.surface, "/stepwell/api-docs.json", a.mount.surface.document},
	} {
		var texts [2]*packedText
		for i := range texts {
			r := httptest.NewRequest("GET", tt.path, nil)
			r.SetPathValue("file", "main.js")
			texts[i] = must(tt.handle(tt.s.newResponseWriter(httptest.NewRecorder(), r), r))(t).(*packedText)
		}
		if texts[0] != texts[1] || &texts[0].zip()[0] != &texts[1].zip()[0] || len(texts[0].zip()) > len(texts[0].plain)/2 {
			t.Errorf("%s: got %d bytes of %d, and another text for the second caller: %v; want one text, compressed once",
				tt.path, len(texts[0].zip()), len(texts[0].plain), texts[0] != texts[1])
		}
	}
}

// TestSharedText checks who shares a text: a caller that waited for its turn gets one that was begun meanwhile, but never
// one from before its request arrived.
func TestSharedText(t *testing.T) {
	var s sharedText
	var made atomic.Int64
	begun, goOn := make(chan struct{}, 20), make(chan struct{})
	get := func(arrived time.Time) string {
		return string(s.get(arrived, func(int) *packedText {
			n := made.Add(1)
			begun <- struct{}{}
			<-goOn
			return newPackedText("", fmt.Append(nil, n), gzip.BestSpeed)
		}).plain)
	}
	var done sync.WaitGroup
	done.Go(func() { get(time.Now()) })
	<-begun
	arrived := time.Now()
	for range 10 {
		done.Go(func() {
			if got := get(arrived); got != "2" {
				t.Errorf("got text %s; want the second for all that arrived while the first one was made", got)
			}
		})
	}
	close(goOn)
	done.Wait()
	if got := get(arrived); got != "2" {
		t.Errorf("got text %s for a request that waited; want the second", got)
	}
	for want := 3; want < 5; want++ {
		if got := get(time.Now()); got != fmt.Sprint(want) {
			t.Errorf("got text %s for a new request; want %d", got, want)
		}
	}
}
