package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// findings returns the paths of the problems and of the warnings about a file.
func findings(t *testing.T, file string) (problems, warnings []string) {
	t.Helper()
	p := &program{stepwell: programFile(t)}
	c := &checker{file: file}
	if _, err := p.check(t.Context(), c); err != nil { // stepwell refuses it, too
		path, _, _ := strings.Cut(regexp.MustCompile(`^\S+:\d+:\d+: `).ReplaceAllString(err.Error(), ""), ": ")
		return []string{path}, nil
	}
	for _, said := range c.said {
		text, isWarning := strings.CutPrefix(said, "warning: ")
		path, _, isPath := strings.Cut(strings.TrimPrefix(text, file+": "), ": ")
		if !isPath {
			path = "-root"
		}
		if isWarning {
			warnings = append(warnings, path)
		} else {
			problems = append(problems, path)
		}
	}
	return problems, warnings
}

// TestPortableTemplates checks the findings in templates, which TestReferenceTemplateRules compares with Tasker, and what
// is left of them in the converted template.
func TestPortableTemplates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, c := range portableCases(t, "testdata/portable/templates.txt") {
		file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
		writeFile(t, file, []byte(c.template("x")))
		problems, warnings := findings(t, file)
		got, want := problems, []string{c.path}
		switch {
		case c.there == "taken":
			want = nil
			got = append(got, warnings...)
		case c.there == "changed", strings.Contains(c.text, "<<"): // which is warned of wherever it is
			got = append(warnings, problems...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got problems at %q and warnings at %q; want %s at %q", c.text, problems, warnings, c.there, c.path)
		}
		if c.there == "taken" {
			continue
		}
		code, converted, said := runTasker(t, nil, "convert", file)
		if done := code == 0 && (c.there != "changed" || said == ""); done != c.mends {
			t.Errorf("%s: got converted to %s, %q; want it mended: %t", c.text, converted, said, c.mends)
		}
	}
}

// TestCheck checks what is said about files, and the warning of callables that no handler covers.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		writeFile(t, file, []byte(text))
		return file
	}
	odd := write("a.yaml", "\ufeffnamespace: shop\nname: order\nversion: 1.0.0\nsteps:\n  - name: pay\n"+
		"    handler: {callable: \"builtin:noop\"}\n    timeout_seconds: 2.0\n")
	people := write("b.json", `{"name":"b","namespace_name":"shop","version":"1.0.0","steps":[{"name":"approve","handler":{"callable":"people.approve"}},
		{"name":"pay","handler":{"callable":"shop.pay"}}]}`)
	config := configFile(t, "[worker.handlers]\n\"shop.*\" = \"http://127.0.0.1:9\"\n")
	everything := configFile(t, "[worker]\ndefault_handler = \"http://127.0.0.1:9\"\n")
	for _, tt := range []struct {
		args []string
		code int
		said []string
	}{
		{[]string{odd}, exitFailed, []string{
			odd + ": begins with a byte order mark", odd + ": namespace: is not read there; write namespace_name",
			"warning: " + odd + ": steps[0].handler.callable: only Stepwell runs builtin: itself",
			odd + ": steps[0].timeout_seconds: 2.0 is not taken for an integer there; write 2",
			"tasker: Tasker refuses 1 template; tasker convert fixes what it can",
		}},
		{[]string{people, "--config", config}, 0, []string{
			"warning: " + people + ": only YAML is read there: tasker convert",
			"warning: " + people + ": steps[0].handler.callable: people.approve has no handler here",
		}},
		{[]string{people, "--config", everything}, 0, []string{"warning: " + people + ": only YAML is read there: tasker convert"}},
		{[]string{dir}, exitFailed, []string{odd, people}},
		{[]string{filepath.Join(dir, "none.yaml")}, exitNotFound, []string{"no such file"}},
		{nil, exitUsage, []string{"want files"}},
	} {
		code, _, said := runTasker(t, nil, append([]string{"check"}, tt.args...)...)
		for _, part := range tt.said {
			if code != tt.code || !strings.Contains(said, part) {
				t.Errorf("%q: got exit code %d, %q; want %d, %q", tt.args, code, said, tt.code, part)
			}
		}
		if strings.Contains(said, "shop.pay") && slices.Contains(tt.args, "--config") {
			t.Errorf("%q: got %q; want nothing about what has a handler", tt.args, said)
		}
	}
}

// TestCopiedTemplates checks that the templates of the documents, the examples and the demo have nothing that Tasker
// refuses. TestReferenceTemplates registers them there.
func TestCopiedTemplates(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), 0
	for name, text := range wire.CopiedTemplates(t, "../") {
		file := filepath.Join(dir, fmt.Sprint(n, filepath.Ext(name)))
		writeFile(t, file, text)
		if problems, _ := findings(t, file); problems != nil {
			t.Errorf("%s: got problems at %q", name, problems)
		}
		n++
	}
	if n < 23 {
		t.Errorf("got %d templates; want all", n)
	}
}
