package main

import (
	"path/filepath"
	"testing"
)

// TestConvertTemplates converts the templates at hand from format to format, and compares what is read at the end.
func TestConvertTemplates(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	files := must(filepath.Glob("templates/demo/*"))(t)
	files = append(files, must(filepath.Glob("../shared/data/templates*/*"))(t)...)
	for _, file := range files {
		format, text := templateFormat(file), readFile(t, file)
		want := mustResolveTemplate(t, string(text), format, "")
		for _, to := range []string{"yaml", "json", "yaml"} {
			var err error
			text, err = convertTemplate("x."+format, text, to)
			noError(t, err)
			format = to
		}
		if got := mustResolveTemplate(t, string(text), format, ""); !sameJSON(got.json, want.json) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got.json, want.json)
		}
	}
}

// TestConvertValues converts values that a format may spoil.
func TestConvertValues(t *testing.T) {
	for _, value := range []string{
		`"yes"`, `"No"`, `"y"`, `"null"`, `"~"`, `"1.0"`, `"0o7"`, `"2026-01-31"`, `""`, `" a"`, `"a "`,
		`"a: b"`, `"a #b"`, `"#a"`, `"a:"`, `"- a"`,
		`"a\nb"`, `"a\nb\n"`, `"a\n\n"`, `"\na"`, `" a\nb"`, `"a\n  b\n\nc  \n"`, `"a\tb\nc"`,
		`"\u0007\u001b\u007f\u0085\u2028\ufeff\ud83d\ude00"`,
		`"\"\"\"\n\\"`, `"---\na"`, `"<<"`, `1.50`, `1e3`, `null`, `[1,null]`, `9223372036854775808`, `0.10000000000000000001`, `-0`, `0.1`, `9223372036854775807`, `[]`, `{}`,
		`[[],[{}],[[1,"a"],{"b":[]}]]`,
		`{"":1,"a b":{"~":[{"x.y":true}]},"1":2,"on":3,"a\nb":4,"'":5}`,
		`[{"a":{"b":1},"c":[{"d":[]}]},{"e":"f"}]`, `"ä → ²"`, `"::a"`, `"a::b"`,
	} {
		data := `{"name":"t","version":"1.0.0","default_context":{"v":` + value + `}}`
		want := mustParseTemplate(t, data)
		for _, to := range []string{"json", "yaml"} {
			text, err := convertTemplate("t.json", []byte(data), to)
			noError(t, err)
			if got := mustResolveTemplate(t, string(text), to, ""); !sameJSON(got.json, want.json) {
				t.Errorf("%s as %s: got %s from\n%s", value, to, got.json, text)
			}
		}
	}
}
