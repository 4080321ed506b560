package main

// Texts that many callers get: compressed once, and shared without showing anybody the past.

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestDocumentsArePackedOnce asks for each document and page twice, compressed: both answers are the same text, which
// nobody compresses again.
func TestDocumentsArePackedOnce(t *testing.T) {
	sequential(t)
	svc := newTestService(t, serviceTest{config: func(c *Config) { c.Web.TrustedProxies = []string{"192.0.2.1"} }})
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
		{a.mount.surface, "/stepwell/api-docs.json", a.mount.document}, {a.mount.surface, "/flows", a.mount.document},
	} {
		var texts [2]*packedText
		for i := range texts {
			r := httptest.NewRequest("GET", tt.path, nil)
			r.SetPathValue("file", "main.js")
			r.Header.Set("X-Forwarded-Prefix", strings.TrimSuffix("/flows", tt.path))
			texts[i] = must(tt.handle(tt.s.newResponseWriter(httptest.NewRecorder(), r), r))(t).(*packedText)
		}
		if texts[0] != texts[1] || &texts[0].zip()[0] != &texts[1].zip()[0] || len(texts[0].zip()) > len(texts[0].plain)/2 {
			t.Errorf("%s: got %d bytes of %d, and another text for the second caller: %v; want one text, compressed once",
				tt.path, len(texts[0].zip()), len(texts[0].plain), texts[0] != texts[1])
		}
	}
}

// TestTextFormsAreBounded asks for more forms of a text than are kept.
func TestTextFormsAreBounded(t *testing.T) {
	var f textForms
	for n := range 3 * maxTextForms {
		word := fmt.Sprint(n)
		if got := f.get(word, func() *packedText { return newPackedText("", []byte(word), gzip.BestSpeed) }); string(got.plain) != word {
			t.Errorf("got %s for %s", got.plain, word)
		}
		if len(f.forms) > maxTextForms {
			t.Fatalf("got %d forms; want at most %d", len(f.forms), maxTextForms)
		}
	}
}

// TestSharedText checks who shares a text: those that arrive while one is made get the next one, and a request that waited
// for a turn gets one that was begun meanwhile, but never one from before it arrived.
func TestSharedText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedText
		made, acts, goOn := 0, 0, make(chan struct{})
		get := func(arrived time.Time) string {
			return string(s.get(arrived, func(int) *packedText {
				made++
				seen := acts
				<-goOn
				return newPackedText("", fmt.Append(nil, seen), gzip.BestSpeed)
			}).plain)
		}
		go get(time.Now())
		synctest.Wait()
		acts = 1
		var late atomic.Int64
		for range 10 {
			go func() {
				if get(time.Now()) == "1" {
					late.Add(1)
				}
			}()
		}
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		if made != 2 || late.Load() != 10 {
			t.Errorf("got %d texts; %d of 10 that arrived while one was made saw the act before them; want 2 and all", made, late.Load())
		}
		arrived := time.Now()
		time.Sleep(time.Microsecond) // until it has its turn
		acts = 2
		for range 2 {
			if got := get(arrived); got != "2" || made != 3 {
				t.Errorf("got %s, and %d texts made; want one for all that waited for turns", got, made)
			}
		}
		for range 2 { // at the very moment of the latest text, and after it
			acts++
			if got := get(time.Now()); got != fmt.Sprint(acts) {
				t.Errorf("got %s; want what was done before the request arrived, %d", got, acts)
			}
			time.Sleep(time.Microsecond)
		}
	})
}

// TestScrapesShare asks for the metrics many times while a text is made: all get the next one.
func TestScrapesShare(t *testing.T) {
	for _, accept := range []string{"", openMetricsMedia} {
		synctest.Test(t, func(t *testing.T) {
			a := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
			scrape := func() []byte {
				w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
				r.Header.Set("Accept", accept)
				a.ServeHTTP(w, r)
				return w.Body.Bytes()
			}
			var others [20][]byte
			before := &textMaking{begun: time.Now(), done: make(chan struct{})}
			a.surface.scrapes[pick(accept == "", 0, 1)].latest = before
			for i := range others {
				go func() { others[i] = scrape() }()
			}
			synctest.Wait()
			close(before.done)
			synctest.Wait()
			for _, text := range others {
				if len(text) == 0 || !bytes.Equal(text, others[0]) {
					t.Errorf("%q: got %d and %d bytes; want one text", accept, len(text), len(others[0]))
				}
			}
			if bytes.Equal(scrape(), others[0]) {
				t.Errorf("%q: got the text of others that came before", accept)
			}
		})
	}
}

// TestScrapesSeeActs creates tasks on several connections at once, while others scrape all the time: whoever has
// created one sees it in the metrics.
func TestScrapesSeeActs(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	var created atomic.Int64
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for range 20 {
				s.create(`{"namespace":"t","name":"manual"}`)
				before := created.Add(1)
				_, after, _ := strings.Cut(string(s.do("GET", "/metrics", "").body), `stepwell_tasks{state="steps_in_process"} `)
				var seen int64
				if fmt.Sscan(after, &seen); seen < before {
					t.Errorf("got %d tasks in the metrics; want %d or more", seen, before)
				}
			}
		})
	}
	done.Wait()
}
