package main

import (
	"path/filepath"
	"testing"
)

// TestConvertTemplates converts the templates at hand to JSON, and compares what is read.
func TestConvertTemplates(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	files := must(filepath.Glob("templates/demo/*"))(t)
	files = append(files, must(filepath.Glob("../shared/data/templates*/*"))(t)...)
	for _, file := range files {
		format, text := templateFormat(file), readFile(t, file)
		want := mustResolveTemplate(t, string(text), format, "")
		converted := must(convertTemplate("x."+format, text, "json"))(t)
		if got := mustResolveTemplate(t, string(converted), "json", ""); !sameJSON(got.json, want.json) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got.json, want.json)
		}
	}
}
