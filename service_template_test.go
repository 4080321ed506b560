package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTargetsAreBounded expects the engine to forget replaced templates.
func TestTargetsAreBounded(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	s := newFixtureServer(t, serviceTest{})
	svc := s.world.service()
	for i := range maxTargets + 10 {
		text := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: fmt.Sprintf(`{"add":%d}`, i)})
		if _, replaced, err := svc.templates.add(nil, []byte(text)); err != nil || replaced != (i > 0) {
			t.Fatalf("got %v, error %v", replaced, err)
		}
		mustCreate(t, svc, "late")
	}
	svc.store.mu.Lock()
	defer svc.store.mu.Unlock()
	if n := len(svc.engine.targets); n == 0 || n > maxTargets {
		t.Errorf("the targets of %d templates are remembered", n)
	}
}

// TestTemplateUse counts the look-ups of each service, timed by its clock.
func TestTemplateUse(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, templates: apiTemplates})
	other := newTestService(t, serviceTest{clock: clock, templates: apiTemplates})
	clock.advance(90 * time.Second)
	look := func(version string) { s.templates.find("t", "versions", version) }
	for _, version := range []string{"", "latest", "1.2.0", "1.0.0", "9.9.9"} {
		look(version)
	}
	got := s.templates.usage()
	if got.CacheHits != 4 || got.CacheMisses != 1 || got.CacheEvictions != 0 || got.OldestEntryAgeSeconds != 90 {
		t.Errorf("got %+v; want 4 hits, a miss, 90 seconds", got)
	}
	if want := 4 / float64(got.TotalCached); got.AverageAccessCount != want || got.TotalCached != len(s.templates.registry().sorted) {
		t.Errorf("got %+v; want an average of %v", got, want)
	}
	latest, _ := s.templates.registry().get("t", "versions", "1.2.0")
	if n := s.templates.entry(latest).count.Load(); n != 3 {
		t.Errorf("got %d look-ups of the latest version; want 3", n)
	}
	if v := other.templates.usage(); v.CacheHits != 0 || v.OldestEntryAgeSeconds != 90 {
		t.Errorf("another service: got %+v; want its own figures", v)
	}
}

// TestTemplateUseOfNewcomers counts the look-ups of a template that was added later, and those
// of a service without templates.
func TestTemplateUseOfNewcomers(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock})
	clock.advance(time.Hour)
	late, _, _ := parseTemplate("late", []byte(testTemplate("late")), "json", "", nil)
	s.templates.files.Store(newRegistry([]*template{late}))
	s.templates.find("t", "late", "latest")
	clock.advance(5 * time.Second)
	if got := s.templates.usage(); got.TotalCached != 1 || got.OldestEntryAgeSeconds != 5 || got.AverageAccessCount != 1 {
		t.Errorf("got %+v; want one of 5 seconds, looked up once", got)
	}
	s.templates.files.Store(newRegistry(nil))
	if got := s.templates.usage(); got.TotalCached != 0 || got.AverageAccessCount != 0 || len(got.SupportedNamespaces) != 0 {
		t.Errorf("got %+v; want nothing", got)
	}
}

func TestTemplateUseAtOnce(t *testing.T) {
	s := newTestService(t, serviceTest{})
	tpl, _, _ := parseTemplate("late", []byte(testTemplate("late")), "json", "", nil)
	s.templates.files.Store(s.templates.registry().with(tpl))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				s.templates.find("t", "late", "1.0.0")
				s.templates.find("t", "nobody", "")
				s.templates.usage()
			}
		})
	}
	all.Wait()
	if n := s.templates.entry(tpl).count.Load(); n != 800 || s.templates.misses.Load() != 800 {
		t.Errorf("got %d look-ups and %d misses; want 800 of each", n, s.templates.misses.Load())
	}
}

// TestCreatingCountsAsUse expects the creation of a task to count as a look-up.
func TestCreatingCountsAsUse(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	s.create(`{"namespace":"demo","name":"diamond"}`)
	s.do("GET", "/v1/templates/demo/diamond/latest", "").want(200)
	s.do("POST", "/v1/tasks", `{"namespace":"demo","name":"nobody"}`).want(404)
	if got := s.svc.templates.usage(); got.CacheHits != 2 || got.CacheMisses != 1 {
		t.Errorf("got %+v; want 2 hits and a miss", got)
	}
}

// TestRefusedSchemas loads a template with schemas that cannot be enforced.
func TestRefusedSchemas(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "t.yaml")
	noError(t, os.WriteFile(file, []byte("name: t\nversion: 1.0.0\ninput_schema:\n  patternproperties: {}\nsteps:\n- name: s\n"+
		"  handler: {callable: x}\n  result_schema: {items: {$ref: 'a.json'}}\n"), 0o600))
	want := []string{
		file + ":4:3: input_schema.patternproperties: the keyword patternproperties is not supported; did you mean patternProperties?",
		file + `:8:27: steps[0].result_schema.items["$ref"]: "a.json" is outside of the schema; references to other documents are not supported`,
	}
	_, _, err := loadTemplates([]string{dir}, "", &templateRules{schemas: schemasRefused})
	if err == nil || !strings.HasPrefix(err.Error(), strings.Join(want, "\n")) {
		t.Errorf("refused: got %v; want %q", err, want)
	}
	for rule, told := range map[schemaRule]int{schemasKept: 1, schemasTold: 3} {
		r, warnings, err := loadTemplates([]string{dir}, "", &templateRules{schemas: rule})
		if err != nil || len(r.sorted) != 1 || len(warnings) != told || !strings.HasSuffix(warnings[0], "templates that have one: 1, the first is default.t@1.0.0") {
			t.Errorf("%v: got %q, %v; want %d warnings", rule, warnings, err, told)
		}
	}
	s := newTestService(t, serviceTest{})
	v := must(s.templates.validateDefinition(nil, []byte(`{"name":"x","version":"1.0.0","input_schema":{"a":1}}`), templateName{"default", "x"}, "1.0.0"))(t)
	if want := []string{"input_schema.a: the keyword a is not supported; the schema cannot be enforced"}; !v.Valid || !slices.Equal(v.Warnings, want) {
		t.Errorf("got %+v; want the warning %q", v, want)
	}
}

// TestTemplateBudget sends templates that would take much more memory than their text: they are refused, say what takes it,
// and everything is given back.
func TestTemplateBudget(t *testing.T) {
	patterns := `{"allOf":[` + numbered(`{"pattern":"a{1000}%03d"},`, 900) + `{}]}`
	schemaOf := func(more string) string { return `{"namespace":"t","name":"x","version":"1.0.0",` + more + `}` }
	event := `"steps":[{"name":"a","handler":{"callable":"b"},"publishes_events":[{"name":"e","description":"","schema":` + patterns + `}]}]`
	steps := `"steps":[` + strings.Repeat(`{"name":"a","handler":{"callable":"b"}},`, 40_000) + `{}]`
	stepsOf := func(n int) string {
		return `"steps":[` + strings.TrimSuffix(numbered(`{"name":"a%d","handler":{"callable":"b"}},`, n), ",") + "]"
	}
	const override = `{"name":"ALL","handler":{"initialization":{"a":0}}}`
	s := newFixtureServer(t, serviceTest{})
	worker := httptest.NewServer(&s.world.gates.worker)
	t.Cleanup(worker.Close)
	w := &testServer{t: t, url: worker.URL}
	for text, want := range map[string]string{
		schemaOf(`"input_schema":` + patterns): `input_schema.allOf[155].pattern the pattern "a{1000}155" of 1007 instructions needs`,
		schemaOf(event):                        `steps[0].publishes_events[0].schema.allOf[155].pattern the pattern "a{1000}155" of 1007 instructions needs`,
		schemaOf(steps):                        "the template needs",
		schemaOf(stepsOf(12_000)):              "] the template needs",
		schemaOf(stepsOf(2_000) + `,"environments":{"development":{"steps":[` + strings.Repeat(override+",", 99) + override + "]}}"): "the template needs",
		schemaOf(`"input_schema":{"allOf":[` + strings.Repeat("{},", 300_000) + `{}]}`):                                              "the schema needs",
		schemaOf(`"metadata":{"tags":[` + strings.Repeat("1,", 500_000) + `1]}`):                                                     "metadata.tags the template needs",
	} {
		a := w.do("POST", "/v1/templates/t/x/1.0.0/validate", text).want(422)
		if got := a.text("message"); a.text("error") != "validation_failed" || !strings.Contains(got, want+" more memory than the 24 MiB that one request may use") {
			t.Errorf("got %s; want %s", got, want)
		}
		a = s.do("POST", "/_stepwell/templates", text).want(422)
		if got := a.text("error.details.0.message"); !strings.Contains(want, strings.TrimSuffix(got, " more memory than the 24 MiB that one request may use")) {
			t.Errorf("got %s; want %s", got, want)
		}
	}
	if got := s.world.service().quotas.memory.used.Load(); got != 0 {
		t.Errorf("got %d bytes still in use; want none", got)
	}
	s.do("GET", "/v1/templates/t/x/1.0.0", "").want(404)
	small := schemaOf(`"input_schema":{"allOf":[` + strings.Repeat(`{"pattern":"a{100}"},`, 500) + `{}]}`)
	w.do("POST", "/v1/templates/t/x/1.0.0/validate", small).want(200)
	state := s.do("GET", "/_stepwell/state", "").want(200).body
	tpl := mustParseTemplate(t, schemaOf(event))
	if err := s.world.admit(tpl); err == nil || !strings.Contains(err.Error(), "instructions needs more memory") {
		t.Errorf("got %v; want the patterns of a state refused", err)
	}
	s.do("PUT", "/_stepwell/state", string(state)).want(204)
	a := w.do("POST", "/v1/templates/t/x/1.0.0/validate", schemaOf(`"x":0,"xy":0`)).want(200)
	if got := a.text("warnings.#"); got != "2" {
		t.Errorf("got %s warnings; want both", got)
	}
	a = w.do("POST", "/v1/templates/t/x/1.0.0/validate", schemaOf(numbered(`"x%d":0,`, 500)+`"steps":[`+strings.Repeat(`{"name":"a"},`, 300)+`{}]`)).want(200)
	if got := a.text("warnings.99") + ", " + a.text("errors.99"); got != "and 401 more, and 502 more" {
		t.Errorf("got %s; want how many warnings and errors there are besides", got)
	}
}

// TestAddedTemplate expects an added template on both roles at once, until the
// reset.
func TestAddedTemplate(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	worker := httptest.NewServer(&s.world.gates.worker)
	t.Cleanup(worker.Close)
	w := &testServer{t: t, url: worker.URL}
	text := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: `{"add":1}`})
	a := s.do("POST", "/_stepwell/templates", text).want(201)
	path := a.header.Get("Location")
	if path != "/v1/templates/t/late/1.0.0" {
		t.Errorf("it is at %q", path)
	}
	w.do("GET", path, "").want(200)
	first := s.create(`{"namespace":"t","name":"late"}`)
	other := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: `{"add":2}`})
	s.do("POST", "/_stepwell/templates", other).want(200)
	second := s.create(`{"namespace":"t","name":"late"}`)
	if got := s.story(first) + s.story(second); !strings.Contains(got, "deliveries: 1complete") || !strings.HasSuffix(got, " 2") {
		t.Errorf("got %s; want each task by the template of its time", got)
	}
	s.do("POST", "/_stepwell/reset", "").want(204)
	s.do("GET", path, "").want(404)
	w.do("GET", path, "").want(404)
}

// TestRefusedTemplates expects every problem to be named and nothing to be added.
func TestRefusedTemplates(t *testing.T) {
	s := newFixtureServer(t, serviceTest{config: func(c *Config) {
		c.Fixture.AllowTargets = []string{"handlers.test", "2001:db8::1"}
		c.Worker.Handlers = map[string]string{"http://mapped.example/*": "builtin:noop", "exec:mapped": "builtin:noop"}
		c.Worker.AllowExec = true
	}})
	for callable, status := range map[string]int{
		"http://127.0.0.1:9/x": 201, "http://[::1]/": 201, "https://localhost/": 201, "HTTP://a.localhost./": 201,
		"http://handlers.test:9/": 201, "http://HANDLERS.test./": 201, "http://[2001:db8::1]:80/": 201, "charge": 201,
		"http://mapped.example/x": 201,
		"http://example.com/":     422, "http://127.0.0.1.example.com/": 422, "http://localhost@example.com/": 422,
		"http://2130706433/": 422, "http://0.0.0.0/": 422, "http://169.254.169.254/": 422, "http://x.handlers.test/": 422,
		"exec:sh": 422, "exec:mapped": 422, "builtin:nope": 422, "http://": 422,
	} {
		a := s.do("POST", "/_stepwell/templates", testTemplate(fmt.Sprintf("t%d", len(callable)), stepSpec{name: "a", callable: callable}))
		if a.status != status && !(status == 201 && a.status == 200) {
			t.Errorf("%s: got %d, %s; want %d", callable, a.status, a.body, status)
		}
		if a.status == 422 && a.text("error.details.0.field") != "steps[0].handler.callable" {
			t.Errorf("%s: got %s; want the callable's path", callable, a.body)
		}
	}
	a := s.do("POST", "/_stepwell/templates", `{"name":"x","version":"y","steps":[{"name":"a"}]}`).want(422)
	if n := strings.Count(string(a.body), `"field"`); n != 2 {
		t.Errorf("%d problems are named: %s", n, a.body)
	}
	a = s.do("POST", "/_stepwell/templates", testTemplate("x", stepSpec{name: "a\u202eb", callable: "charge"})).want(422)
	if a.text("error.details.0.field") != "steps[0].name" || !strings.Contains(a.text("error.details.0.message"), "U+202E") {
		t.Errorf("a misleading name: got %s", a.body)
	}
	s.do("POST", "/_stepwell/templates", `{`).want(400)
}
