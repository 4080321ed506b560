package main

// docs/architecture.md as a test: its tables name what the files declare, and each walk names
// functions that call each other.

import (
	"go/ast"
	"os"
	"regexp"
	"testing"
)

var (
	pageRow  = regexp.MustCompile("(?m)^\\|[^|]*\\| `(\\w+\\.go)` \\|([^|]*)\\|") // subject, file, names
	pageName = regexp.MustCompile("`(\\w+)`")
)

// checkPage compares the tables of docs/architecture.md with the code: each file exists and
// declares the names in its row.
func checkPage(t *testing.T, c *sourceCode) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := pageRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 30 {
		t.Errorf("docs/architecture.md: %d rows name a file; want the two walks and fifteen changes", len(rows))
	}
	for _, row := range rows {
		f := c.files[row[1]]
		if f == nil {
			t.Errorf("docs/architecture.md: no file %s", row[1])
			continue
		}
		declared := map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				declared[n.Name.Name] = true
			case *ast.TypeSpec:
				declared[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, id := range n.Names {
					declared[id.Name] = true
				}
			}
			return true
		})
		for _, name := range pageName.FindAllStringSubmatch(row[2], -1) {
			if !declared[name[1]] {
				t.Errorf("docs/architecture.md: %s does not declare %s", row[1], name[1])
			}
		}
	}
}
