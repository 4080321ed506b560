package main

import (
	"strings"
	"testing"
)

func TestTemplateFromBrokenNormalizedForm(t *testing.T) {
	good := string(mustParseTemplate(t, string(templateDefinition(t, nil))).json)
	for _, test := range []struct{ name, old, new string }{
		{"cut off", `]}`, ``},
		{"no name", `"name":"t",`, ``},
		{"no version", `"version":"1.0.0"`, `"version":"1"`},
		{"name of another kind", `"name":"t"`, `"name":7`},
		{"steps of another kind", `"steps":[`, `"steps":{},"x":[`},
		{"step of another kind", `"steps":[`, `"steps":[7,`},
		{"config of another kind", `"initialization":{}`, `"initialization":7`},
		{"handler of another kind", `"handler":{`, `"handler":[],"x":{`},
		{"unknown dependency", `"dependencies":[]`, `"dependencies":["b"]`},
		{"cycle", `"dependencies":[]`, `"dependencies":["a"]`},
		{"dependency of another kind", `"dependencies":[]`, `"dependencies":[1]`},
		{"attempts of another kind", `"max_attempts":3`, `"max_attempts":3.5`},
	} {
		broken := strings.Replace(good, test.old, test.new, 1)
		if broken == good {
			t.Fatalf("%s: nothing to replace in %s", test.name, good)
		}
		if got, err := templateFromNormalized([]byte(broken)); err == nil {
			t.Errorf("%s: got %s; want an error", test.name, got.json)
		}
	}
}

// TestSearchFromOutside checks that a state cannot bring paths that a new template must not have.
func TestSearchFromOutside(t *testing.T) {
	good := string(mustParseTemplate(t, string(templateDefinition(t, nil))).json)
	for search, ok := range map[string]bool{`["a","b.c"]`: true, `[]`: true, `{"a":1}`: false, `["a",1]`: false, `["a","a"]`: false, `"a"`: false} {
		text := strings.Replace(good, `"steps":`, `"search":`+search+`,"steps":`, 1)
		if got, err := templateFromNormalized([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: got %v, %v; want it accepted: %v", search, got, err, ok)
		}
	}
}
