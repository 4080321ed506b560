package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// templateName matches the name of a template that the program has written.
var templateName = regexp.MustCompile(`(?m)^(name: |  "name": )("[^"\n]*"|[^,\n]*)`)

// registered returns the names of the templates that Tasker has.
func (r *reference) registered(t *testing.T) map[string]bool {
	t.Helper()
	var list struct{ Templates []struct{ Name string } }
	(&api{t, r.OrchestrationURL}).do("GET", "/v1/templates", "").want(200).into(&list)
	names := map[string]bool{}
	for _, tpl := range list.Templates {
		names[tpl.Name] = true
	}
	return names
}

// TestReferenceTemplates converts the templates of the documents, the examples and the demo, and has the distributed
// service register all of them; those in YAML also as they are.
func TestReferenceTemplates(t *testing.T) {
	dir, texts := t.TempDir(), t.TempDir()
	want := map[string]string{} // the template of each name
	add := func(from, text string) {
		name := fmt.Sprintf("t%03d", len(want)) // because names repeat
		want[name] = from
		wire.WriteFile(t, filepath.Join(dir, name+".yaml"), []byte(templateName.ReplaceAllString(text, "${1}"+name)))
	}
	for from, text := range wire.CopiedTemplates(t, "../") {
		file := filepath.Join(texts, fmt.Sprint(len(want))+filepath.Ext(from))
		wire.WriteFile(t, file, text)
		code, converted, said := runTasker(t, nil, "convert", file)
		if code != 0 {
			t.Errorf("%s: exit code %d: %s", from, code, said)
			continue
		}
		add(from+", converted", converted)
		if strings.HasSuffix(from, ".yaml") {
			add(from, string(text))
		}
	}
	got := startReference(t, dir).registered(t)
	for name, from := range want {
		if !got[name] {
			t.Errorf("Tasker has not registered %s", from)
		}
	}
	t.Logf("| registered | %d templates of %d |", len(got), len(want))
	if len(want) < 34 {
		t.Errorf("got %d texts; want all", len(want))
	}
}

// TestReferenceTemplateRules checks the table of templates with Tasker, as they are and converted.
func TestReferenceTemplateRules(t *testing.T) {
	dir := t.TempDir()
	cases := portableCases(t, "testdata/portable/templates.txt")
	mended := map[string]string{}
	for i, c := range cases {
		name := fmt.Sprintf("c%03d", i)
		file := filepath.Join(dir, name+".yaml")
		wire.WriteFile(t, file, []byte(c.template(name)))
		if !c.mends {
			continue
		}
		code, converted, said := runTasker(t, nil, "convert", file)
		if code != 0 {
			t.Errorf("%s: exit code %d: %s", c.text, code, said)
		}
		mended[name+"m"] = c.text
		converted = templateName.ReplaceAllString(converted, "${1}"+name+"m")
		wire.WriteFile(t, filepath.Join(dir, name+"m.yaml"), []byte(converted))
	}
	r := startReference(t, dir)
	got := r.registered(t)
	for i, c := range cases {
		name := fmt.Sprintf("c%03d", i)
		if long := regexp.MustCompile(`name: (x+), namespace`).FindStringSubmatch(c.template(name)); long != nil {
			name = long[1]
		}
		if got[name] != (c.there != "refused") {
			t.Errorf("%s: registered there is %t; want %s", c.text, got[name], c.there)
			continue
		}
		if c.there == "taken" || c.there == "later" {
			version := regexp.MustCompile(`version: ([^,}]+)`).FindStringSubmatch(c.template(name))[1]
			if status, answer := r.create(t, name, version, `{}`); (status == 200) != (c.there == "taken") {
				t.Errorf("%s: a task there: got %d %s; want %s", c.text, status, answer, c.there)
			}
		}
	}
	for name, text := range mended {
		if !got[name] {
			t.Errorf("%s is not registered there when it is mended", text)
		}
		status, answer := r.create(t, name, "1.0.0", `{}`)
		if status != 200 && !strings.Contains(text, "name: T, version") { // which has the namespace default
			t.Errorf("%s, mended: a task there: got %d %s", text, status, answer)
		}
	}
}

// create creates a task of a template of the table.
func (r *reference) create(t *testing.T, name, version, context string) (int, []byte) {
	t.Helper()
	a := (&api{t, r.OrchestrationURL}).post(fmt.Sprintf(`{"namespace":"probe","name":%q,"version":%q,
		"context":%s,"initiator":"i","source_system":"s","reason":"r"}`, name, version, context))
	return a.status, a.body
}

// TestReferenceContextRules checks the table of contexts with Tasker.
func TestReferenceContextRules(t *testing.T) {
	dir := t.TempDir()
	cases := portableCases(t, "testdata/portable/contexts.txt")
	for i := range cases { // a template each, because contexts that are equal without what is dropped would be duplicates
		text := fmt.Sprintf("{name: t%d, namespace_name: probe, version: 1.0.0, steps: [{name: a, handler: {callable: a}}]}", i)
		wire.WriteFile(t, filepath.Join(dir, fmt.Sprint(i)+".yaml"), []byte(text))
	}
	r := startReference(t, dir)
	for i, c := range cases {
		status, answer := r.create(t, fmt.Sprint("t", i), "1.0.0", c.text)
		var created struct {
			TaskUUID string `json:"task_uuid"`
			Context  json.RawMessage
		}
		there := "refused"
		if status == 200 && json.Unmarshal(answer, &created) == nil {
			(&api{t, r.OrchestrationURL}).do("GET", "/v1/tasks/"+created.TaskUUID, "").want(200).into(&created)
			there = "changed"
			if wire.Equal(wire.Must(wire.Decode(created.Context))(t), wire.Must(wire.Decode([]byte(c.text)))(t)) {
				there = "taken"
			}
		}
		if there != c.there {
			t.Errorf("%.80s: got %s there (%d %.300s); want %s", c.text, there, status, answer, c.there)
		}
	}
}
