package main

import (
	"sync"
	"testing"
	"time"
)

// TestTemplateUse counts on the service's clock, for each service alone.
func TestTemplateUse(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, templates: apiTemplates})
	other := newTestService(t, serviceTest{clock: clock, templates: apiTemplates})
	clock.advance(90 * time.Second)
	look := func(version string) { s.template("t", "versions", version) }
	for _, version := range []string{"", "latest", "1.2.0", "1.0.0", "9.9.9"} {
		look(version)
	}
	got := s.templateCache()
	if got.CacheHits != 4 || got.CacheMisses != 1 || got.CacheEvictions != 0 || got.OldestEntryAgeSeconds != 90 {
		t.Errorf("got %+v; want 4 hits, a miss, 90 seconds", got)
	}
	if want := 4 / float64(got.TotalCached); got.AverageAccessCount != want || got.TotalCached != len(s.registry().all()) {
		t.Errorf("got %+v; want an average of %v", got, want)
	}
	latest, _ := s.registry().get("t", "versions", "1.2.0")
	if n := s.uses.entry(latest, clock.now).count.Load(); n != 3 {
		t.Errorf("got %d look-ups of the latest version; want 3", n)
	}
	if v := other.templateCache(); v.CacheHits != 0 || v.OldestEntryAgeSeconds != 90 {
		t.Errorf("another service: got %+v; want its own figures", v)
	}
}

// TestTemplateUseOfNewcomers has a template that joined later, and none at all.
func TestTemplateUseOfNewcomers(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock})
	clock.advance(time.Hour)
	late, _, _ := parseTemplate("late", []byte(testTemplate("late")), "json", "")
	s.templates.Store(newRegistry([]*template{late}))
	s.template("t", "late", "latest")
	clock.advance(5 * time.Second)
	if got := s.templateCache(); got.TotalCached != 1 || got.OldestEntryAgeSeconds != 5 || got.AverageAccessCount != 1 {
		t.Errorf("got %+v; want one of 5 seconds, looked up once", got)
	}
	s.templates.Store(newRegistry(nil))
	if got := s.templateCache(); got.TotalCached != 0 || got.AverageAccessCount != 0 || len(got.SupportedNamespaces) != 0 {
		t.Errorf("got %+v; want nothing", got)
	}
}

func TestTemplateUseAtOnce(t *testing.T) {
	s := newTestService(t, serviceTest{})
	tpl, _, _ := parseTemplate("late", []byte(testTemplate("late")), "json", "")
	s.templates.Store(s.registry().with(tpl))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				s.template("t", "late", "1.0.0")
				s.template("t", "nobody", "")
				s.templateCache()
			}
		})
	}
	all.Wait()
	if n := s.uses.entry(tpl, s.clock.now).count.Load(); n != 800 || s.uses.misses.Load() != 800 {
		t.Errorf("got %d look-ups and %d misses; want 800 of each", n, s.uses.misses.Load())
	}
}

// TestCreatingCountsAsUse: a task's creation looks its template up, too.
func TestCreatingCountsAsUse(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	s.create(`{"namespace":"demo","name":"diamond"}`)
	s.do("GET", "/v1/templates/demo/diamond/latest", "").want(200)
	s.do("POST", "/v1/tasks", `{"namespace":"demo","name":"nobody"}`).want(404)
	if got := s.svc.templateCache(); got.CacheHits != 2 || got.CacheMisses != 1 {
		t.Errorf("got %+v; want 2 hits and a miss", got)
	}
}

// TestEveryFailureHasAWord keeps the table of failures whole: a worker's error
// without a word is one of the two that have the orchestration role's body.
func TestEveryFailureHasAWord(t *testing.T) {
	for kind, row := range statusOf {
		without := failureKind(kind) == unauthenticated || failureKind(kind) == forbidden
		if row.status == 0 || row.code == "" || (row.word == "") != without {
			t.Errorf("kind %d: got %+v; want status, code and word", kind, row)
		}
	}
}
