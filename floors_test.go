package main

// The architecture as a test: which families of files may use which, and the doors between
// them, checked against the types of the code. There is no list of exceptions: code that breaks
// a rule is changed.

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors lists the families from the lowest to the highest. The files of a family begin with
// one of its prefixes; they use names of their own family and of those listed before it, and no
// others.
var floors = []struct {
	family   string
	prefixes string
	about    string
}{
	{"base", "base", "time, ids, JSON text, failures, small structures"},
	{"auth", "auth", "permissions, tokens, keys: who a caller is and what they may do"},
	{"config", "config", "the table of configuration keys, its sources and its rules"},
	{"template", "template", "templates: reading, resolving, the registry, dependency graphs"},
	{"handler", "handler", "what runs a step: builtins, HTTP, programs"},
	{"task", "task", "states, records and their format, and the fold of records into a task"},
	{"analytics", "analytics", "figures by hour, counted from transitions"},
	{"store", "store", "all tasks, their indexes, the journal and the snapshot"},
	{"engine", "engine", "ready steps, slots, attempts, retries, claims, leases"},
	{"service", "service", "what can be done with tasks, by subject"},
	{"server", "server", "the HTTP machinery that all surfaces share"},
	{"surfaces", "routes worker orchestration console mount", "the three HTTP interfaces and their route tables"},
	{"fixture", "fixture", "fixture mode, which attaches itself to the hooks of the families below"},
	{"process", "main cli", "the process and its command line"},
}

// family returns the index in floors of a file's family, or -1.
func family(file string) int {
	prefix, _, _ := strings.Cut(strings.TrimSuffix(file, ".go"), "_")
	for i, f := range floors {
		if slices.Contains(strings.Fields(f.prefixes), prefix) {
			return i
		}
	}
	return -1
}

// sourceCode is the package as the compiler sees it, without tests.
type sourceCode struct {
	fset  *token.FileSet
	files map[string]*ast.File
	info  *types.Info
	pkg   *types.Package
}

// loadSource type-checks the files of this package with the export data in the build cache of
// the go command.
func loadSource(t *testing.T) *sourceCode {
	t.Helper()
	c := &sourceCode{fset: token.NewFileSet(), files: map[string]*ast.File{}, info: &types.Info{
		Uses: map[*ast.Ident]types.Object{},
	}}
	own, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range own.GoFiles {
		f, err := parser.ParseFile(c.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		c.files[name] = f
		files = append(files, f)
	}
	list := exec.Command("go", append([]string{"list", "-export", "-f", "{{.ImportPath}} {{.Export}}"}, own.Imports...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal("go list:", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(c.fset, "gc", open)}
	if c.pkg, err = conf.Check("stepwell", c.fset, files, c.info); err != nil {
		t.Fatal(err)
	}
	return c
}

// eachUse calls f for every name of this package that is used, with the file
// that uses it and the file that declares it. Local names do not count.
func (c *sourceCode) eachUse(f func(at token.Position, o types.Object, declared string)) {
	for id, o := range c.info.Uses {
		if o.Pkg() != c.pkg || o.Parent() != c.pkg.Scope() && !isMember(o) {
			continue
		}
		f(c.fset.Position(id.Pos()), o, c.fset.Position(o.Pos()).Filename)
	}
}

// isMember reports whether a name is a field or a method.
func isMember(o types.Object) bool {
	switch o := o.(type) {
	case *types.Var:
		return o.IsField()
	case *types.Func:
		return o.Signature().Recv() != nil
	}
	return false
}

// problem is one breach of a rule.
type problem struct {
	at   token.Position
	text string
}

// report fails the test with each problem once, in the order of the files.
func report(t *testing.T, problems []problem) {
	t.Helper()
	slices.SortFunc(problems, func(a, b problem) int {
		return cmp.Or(strings.Compare(a.at.Filename, b.at.Filename), a.at.Line-b.at.Line, strings.Compare(a.text, b.text))
	})
	same := func(a, b problem) bool {
		return a.at.Filename == b.at.Filename && a.at.Line == b.at.Line && a.text == b.text
	}
	for _, p := range slices.CompactFunc(problems, same) {
		t.Errorf("%s:%d: %s", p.at.Filename, p.at.Line, p.text)
	}
}

// TestFloors checks that every file uses only names of its own family and of families below.
func TestFloors(t *testing.T) {
	sequential(t)
	t.Parallel()
	c := loadSource(t)
	t.Run("files", func(t *testing.T) { checkFiles(t, c) })
	t.Run("arrows", func(t *testing.T) { checkArrows(t, c) })
	t.Run("store", func(t *testing.T) { checkStoreDoor(t, c) })
	t.Run("http", func(t *testing.T) { checkHTTPDoor(t, c) })
	t.Run("fixture", func(t *testing.T) { checkFixtureDoor(t, c) })
	t.Run("page", func(t *testing.T) { checkPage(t, c) })
}

// checkFiles checks that each file belongs to a family and is listed by the head of its family.
func checkFiles(t *testing.T, c *sourceCode) {
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		i := family(name)
		if i < 0 {
			t.Errorf("%s: belongs to no family of floors", name)
			continue
		}
		head := strings.Fields(floors[i].prefixes)[0] + ".go"
		if c.files[head] == nil {
			t.Errorf("family %s: no head file %s", floors[i].family, head)
		} else if name != head && !strings.Contains(headComment(c.files[head]), name) {
			t.Errorf("%s: its comment has no line about %s", head, name)
		}
	}
}

// headComment returns the comments of a file before its first declaration
// other than imports.
func headComment(f *ast.File) string {
	end := f.End()
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
			end = d.Pos()
			break
		}
	}
	var b strings.Builder
	for _, g := range f.Comments {
		if g.Pos() < end {
			b.WriteString(g.Text())
		}
	}
	return b.String()
}

// checkArrows checks that no family uses a name of a family above it.
func checkArrows(t *testing.T, c *sourceCode) {
	var problems []problem
	c.eachUse(func(at token.Position, o types.Object, declared string) {
		if from, to := family(at.Filename), family(declared); from < to {
			problems = append(problems, problem{at, fmt.Sprintf("family %s uses %s of family %s above it (%s)",
				floors[max(from, 0)].family, o.Name(), floors[to].family, declared)})
		}
	})
	report(t, problems)
}

// checkStoreDoor checks that only the store family uses the fields of the store, including its
// lock.
func checkStoreDoor(t *testing.T, c *sourceCode) {
	fields := map[types.Object]bool{}
	s := c.pkg.Scope().Lookup("store").Type().Underlying().(*types.Struct)
	for f := range s.Fields() {
		fields[f] = true
	}
	var problems []problem
	c.eachUse(func(at token.Position, o types.Object, _ string) {
		if fields[o] && floors[family(at.Filename)].family != "store" {
			problems = append(problems, problem{at, "uses the store's field " + o.Name()})
		}
	})
	report(t, problems)
}

// httpFiles are the files below the surfaces that use HTTP: the handler with outgoing calls,
// and the fetchers of authentication.
var httpFiles = []string{"handler_http.go", "handler_connections.go", "handler_secrets.go", "auth_keyset.go", "auth_forward.go"}

// checkHTTPDoor checks that only those files, and the families from server up, import net/http.
func checkHTTPDoor(t *testing.T, c *sourceCode) {
	server := family("server.go")
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		for _, i := range c.files[name].Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if path == "net/http" && family(name) < server && !slices.Contains(httpFiles, name) {
				t.Errorf("%s: imports net/http", c.fset.Position(i.Pos()))
			}
		}
	}
}

// fixtureWords are words for use in the fixture family only.
var fixtureWords = []string{"stub", "sandbox", "lockstep", "requestjournal"}

// checkFixtureDoor checks that no name outside the fixture family contains one of its words.
func checkFixtureDoor(t *testing.T, c *sourceCode) {
	for name, f := range c.files {
		if floors[family(name)].family == "fixture" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				for _, w := range fixtureWords {
					if strings.Contains(strings.ToLower(id.Name), w) {
						t.Errorf("%s: the name %s is the fixture family's concern", c.fset.Position(id.Pos()), id.Name)
					}
				}
			}
			return true
		})
	}
}
