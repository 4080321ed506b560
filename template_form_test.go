package main

import (
	"slices"
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

// TestSearchOfOtherVersions reads templates that were accepted before they could name what tasks are found by.
func TestSearchOfOtherVersions(t *testing.T) {
	good := string(mustParseTemplate(t, string(templateDefinition(t, nil))).json)
	for _, test := range []struct {
		search string
		want   []string
	}{
		{`["a","b.c"]`, []string{"a", "b.c"}}, {`[]`, []string{}}, {`null`, nil}, {`{"a":1}`, nil}, {`["a",1]`, nil},
		{`["a","a"]`, nil}, {`["a b"]`, nil}, {`"a"`, nil},
	} {
		text := strings.Replace(good, `"steps":`, `"search":`+test.search+`,"steps":`, 1)
		got, err := templateFromNormalized([]byte(text))
		if err != nil || !slices.Equal(got.search, test.want) {
			t.Errorf("%s: got %v, %v; want %v", test.search, got.search, err, test.want)
		}
	}
}
