package main

// GET and PUT /_stepwell/state.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// state is the whole state.
func (s *fixtureServer) state() string {
	s.t.Helper()
	return string(s.do("GET", "/_stepwell/state", "").want(200).body)
}

// putState replaces it.
func (s *fixtureServer) putState(document string) *answer {
	s.t.Helper()
	return s.do("PUT", "/_stepwell/state", document)
}

// TestPutState brings back all of a state: the tasks, the clock, and what is due
// on it.
func TestPutState(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		t.Run(dir, func(t *testing.T) {
			s := newFixtureServer(t, serviceTest{extra: sandboxTemplates, dir: dir})
			s.putState(frozenAt(testStart)).want(204)
			id := s.create(`{"namespace":"t","name":"retried"}`)
			s.create(`{"namespace":"t","name":"quick"}`)
			s.create(`{"namespace":"demo","name":"approval"}`)
			s.do("POST", "/_stepwell/wait-idle", "").want(200)
			want := s.state()
			for range 2 {
				s.clock(`{"advance":"10m"}`).want(200)
				s.create(`{"namespace":"t","name":"quick"}`)
				if got := s.do("GET", "/v1/tasks/"+id, "").text("status"); got != "blocked_by_failures" {
					t.Errorf("the task is %s; want every retry to have happened", got)
				}
				s.putState(want).want(204)
				if got := s.state(); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			}
			s.do("POST", "/_stepwell/reset", "").want(204)
			if got := s.do("GET", "/_stepwell/clock", "").text("mode"); got != "real" {
				t.Errorf("after a reset the clock is %s; want a real one", got)
			}
			if dir != "" {
				wantStoreFiles(t, dir)
			}
		})
	}
}

// wantStoreFiles fails the test when something beside the store's own files is there.
func wantStoreFiles(t *testing.T, dir string) {
	t.Helper()
	own := []string{lockName, journalName, journalOldName, snapshotName}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if !slices.Contains(own, f.Name()) {
			t.Errorf("%s is left", filepath.Join(dir, f.Name()))
		}
	}
}

// TestPutClock: what each mode of a document's clock comes to.
func TestPutClock(t *testing.T) {
	for _, tt := range []struct {
		clock string
		mode  string
		now   string // "" for the present
	}{
		{`{"now":"2020-02-03T04:05:06.000007Z","mode":"frozen"}`, "frozen", "2020-02-03T04:05:06.000007Z"},
		{`{"now":"2020-02-03T04:05:06.000007Z","mode":"auto"}`, "auto", "2020-02-03T04:05:06.000007Z"},
		{`{"now":"2020-02-03T04:05:06Z","mode":"real"}`, "real", ""},
		{`{"now":"2220-02-03T04:05:06Z","mode":"real"}`, "real", "2220-02-03T04:05"},
	} {
		s := newFixtureServer(t, serviceTest{})
		before := realNow()
		s.putState(fmt.Sprintf(`{"format":1,"clock":%s}`, tt.clock)).want(204)
		got := s.do("GET", "/_stepwell/clock", "").want(200)
		now := mustInstant(got.text("now"))
		if got.text("mode") != tt.mode || !strings.HasPrefix(got.text("now"), tt.now) ||
			tt.now == "" && (now < before || now > realNow()) {
			t.Errorf("%s: got %s; want mode %s at %s", tt.clock, got.body, tt.mode, tt.now)
		}
	}
}

// TestUnfitStateChangesNothing, and the answer names the place.
func TestUnfitStateChangesNothing(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := newFixtureServer(t, serviceTest{extra: sandboxTemplates, dir: dir})
		s.putState(frozenAt(testStart)).want(204)
		s.create(`{"namespace":"t","name":"quick"}`)
		s.create(`{"namespace":"t","name":"retried"}`)
		want := s.state()
		for _, tt := range []struct{ old, new, field string }{
			{`"state":"complete"`, `"state":"cancelled"`, "tasks[0]"},
			{`"kind":"ran"`, `"kind":"nonsense"`, "tasks[0].log[1]"},
			{`"definition":{`, `"definition":{"x":1,`, "templates[0]"},
			{`"format":1`, `"format":7`, "format"},
			{`"mode":"frozen"`, `"mode":"fast"`, "clock"},
			{`{"now":"2026-01-01T00:00:00.000000Z","mode":"frozen"}`, `{"mode":"frozen"}`, "clock"},
			{`"mode":"frozen"}`, `"mode":"frozen","zone":1}`, "clock"},
			{"]}\n", "", "tasks"},
			{want, "", "document"},
			{want, "nonsense", "document"},
		} {
			if !strings.Contains(want, tt.old) {
				t.Fatalf("%s does not stand in\n%s", tt.old, want)
			}
			bad := strings.Replace(want, tt.old, tt.new, 1)
			if got := s.putState(bad + " ").want(422).text("error.details.0.field"); got != tt.field {
				t.Errorf("%s for %s: got %s; want %s", tt.new, tt.old, got, tt.field)
			}
			if got := s.state(); got != want {
				t.Fatalf("%s for %s: the state became\n%s", tt.new, tt.old, got)
			}
		}
	}
}

// TestStateMayBeLarge: the limit on other bodies is none on states.
func TestStateMayBeLarge(t *testing.T) {
	s := newFixtureServer(t, serviceTest{config: func(c *Config) { c.Web.MaxBodyBytes = 1024 }})
	s.putState(frozenAt(testStart)).want(204)
	for range 20 {
		s.create(`{"namespace":"demo","name":"approval"}`)
	}
	want := s.state()
	s.do("POST", "/v1/tasks", `{"name":"`+strings.Repeat("x", 1024)+`"}`).want(413)
	s.putState(want).want(204)
	if got := s.state(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c := s.sandbox(`{"seed":%s}`, want)
	if got := c.state(); got != want {
		t.Errorf("the sandbox has\n%s\nwant\n%s", got, want)
	}
}

// TestSeedKeepsItsClock: the document of --seed has a clock, too.
func TestSeedKeepsItsClock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	writeFile(t, file, []byte(frozenAt(testStart)))
	p := serve(t, "--fixture", "--seed", file)
	for range 2 {
		if got := p.api().do("GET", "/_stepwell/clock", "").text("now"); got != testStart.zoned() {
			t.Errorf("the clock stands at %s; want %s", got, testStart.zoned())
		}
		p.api().do("POST", "/_stepwell/reset", "").want(204)
	}
	p.stop()
	p = serve(t, "--memory", "--seed", file)
	if got := p.api().do("GET", "/health", "").text("timestamp"); mustInstant(got) < testStart.add(1) {
		t.Errorf("without fixture mode it is %s; want the present", got)
	}
	p.stop()
}
