package wire

// The templates that readers of the repository copy.

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// CopiedTemplates returns the templates of the documents, the examples and the demo of the repository at root, by
// names that end in their format.
func CopiedTemplates(t testing.TB, root string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "examples/*/*.md"} {
		for _, page := range Must(filepath.Glob(filepath.Join(root, pattern)))(t) {
			templatesOfPage(found, strings.TrimPrefix(page, root), ReadFile(t, page))
		}
	}
	for _, dir := range []string{"examples", "templates"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && regexp.MustCompile(`\.(yaml|yml|json|toml)$`).MatchString(path) {
				if text := ReadFile(t, path); regexp.MustCompile(`\bcallable\b`).Match(text) {
					found[strings.TrimPrefix(path, root)] = text
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

var (
	codeBlock      = regexp.MustCompile("(?ms)^ *```(yaml|json|toml)\n(.*?)^ *```")
	inlineTemplate = regexp.MustCompile(`-d '(\{[^'\n]*"steps": ?\[\{[^'\n]*\})'`) // of a command
	noTemplate     = regexp.MustCompile(`(?m)^(services|apiVersion|on):|actions/`)
)

// templatesOfPage adds the templates of a document. What belongs to a step gets one.
func templatesOfPage(found map[string][]byte, page string, text []byte) {
	add := func(format, template string) {
		found[fmt.Sprintf("%s-%d.%s", page, len(found), format)] = []byte(template)
	}
	for _, m := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		switch kind, block := m[1], m[2]; {
		case regexp.MustCompile(`\bcallable\b`).MatchString(block) && regexp.MustCompile(`\bsteps\b`).MatchString(block):
			add(kind, block)
		case kind == "yaml" && !noTemplate.MatchString(block):
			add(kind, "name: x\nnamespace_name: x\nversion: 1.0.0\nsteps:\n  - name: a\n    handler: {callable: x}\n"+
				regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block, "    $1"))
		}
	}
	for _, m := range inlineTemplate.FindAllSubmatch(text, -1) {
		add("json", string(m[1]))
	}
}
