package main

// The architecture as a test: which families of files may use which, who may use the store's fields, net/http
// and fixture mode, and how large a type may be, checked against the types of the code. There is no list of
// exceptions: code that breaks a rule is changed.

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// floors lists the families from the lowest to the highest, by the prefixes of their files, whose first is that
// of the head file. A file may use only names from its own family and from those listed before it.
var floors = []string{"base", "auth", "config", "template", "handler", "task", "analytics", "store", "engine", "service",
	"server", "routes worker orchestration console mount", "fixture", "main cli"}

// httpFiles are the files below the server that use HTTP: the handler with outgoing calls, and the clients of
// authentication.
var httpFiles = []string{"handler_http.go", "handler_connections.go", "auth_keyset.go", "auth_forward.go"}

// fixtureWord matches names that are for the fixture family only.
var fixtureWord = regexp.MustCompile(`(?i)stub|sandbox|lockstep|requestjournal`)

// What a type may hold at most, so that a reader can keep it in mind.
const maxMethods, maxFields = 60, 25

// family returns the index in floors of a file's family, or -1.
func family(file string) int {
	prefix, _, _ := strings.Cut(strings.TrimSuffix(file, ".go"), "_")
	return slices.IndexFunc(floors, func(prefixes string) bool { return slices.Contains(strings.Fields(prefixes), prefix) })
}

// sourceCode is the package without tests, as the compiler sees it on this system.
type sourceCode struct {
	fset     *token.FileSet
	files    map[string]*ast.File // by name
	info     types.Info
	pkg      *types.Package
	problems map[string]bool // breaches of the rules, each with its place
}

// checkSource parses files, given by name with their text or nil to read them, and checks their types.
func checkSource(t *testing.T, texts map[string]any, imports func(*token.FileSet) types.Importer) *sourceCode {
	t.Helper()
	c := &sourceCode{token.NewFileSet(), map[string]*ast.File{}, types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}, nil, map[string]bool{}}
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		f := must(parser.ParseFile(c.fset, name, texts[name], parser.ParseComments|parser.SkipObjectResolution))(t)
		c.files[name], files = f, append(files, f)
	}
	c.pkg = must((&types.Config{Importer: imports(c.fset)}).Check("stepwell", c.fset, files, &c.info))(t)
	return c
}

func (c *sourceCode) file(pos token.Pos) string { return c.fset.Position(pos).Filename }

// problem records one breach of a rule, once for each line.
func (c *sourceCode) problem(pos token.Pos, format string, args ...any) {
	at := c.fset.Position(pos)
	c.problems[fmt.Sprintf("%s:%d: %s", at.Filename, at.Line, fmt.Sprintf(format, args...))] = true
}

// floorRules are what the code keeps to.
var floorRules = []func(c *sourceCode){checkFiles, checkUses, checkVariables, checkInterfaces, checkTypes}

// TestFloors checks the rules, and that docs/architecture.md names what the files declare.
func TestFloors(t *testing.T) {
	sequential(t)
	t.Parallel()
	out := must(exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}{{if not .DepOnly}}{{range .GoFiles}} {{.}}{{end}}{{end}}", ".").Output())(t)
	texts, exports := map[string]any{}, map[string]string{}
	for line := range strings.Lines(string(out)) {
		switch fields := strings.Fields(line); {
		case fields[0] == "stepwell":
			for _, name := range fields[2:] {
				texts[name] = nil
			}
		case len(fields) > 1:
			exports[fields[0]] = fields[1]
		}
	}
	c := checkSource(t, texts, func(fset *token.FileSet) types.Importer {
		return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	})
	for _, check := range floorRules {
		check(c)
	}
	for _, p := range slices.Sorted(maps.Keys(c.problems)) {
		t.Error(p)
	}
	page, claims := string(readFile(t, "docs/architecture.md")), 0
	for _, claim := range regexp.MustCompile("(?m)^\\|[^|]*\\| `(\\w+\\.go)` \\|([^|]*)\\|").FindAllStringSubmatch(page, -1) {
		for _, name := range regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`(?: in `(\\w+\\.go)`)?").FindAllStringSubmatch(claim[2], -1) {
			file := cmp.Or(name[2], claim[1])
			if name[1] == "go" { // of a file
				continue
			}
			if text, err := os.ReadFile(file); err != nil {
				t.Errorf("docs/architecture.md: %v", err)
			} else if claims++; !bytes.Contains(text, []byte(name[1])) {
				t.Errorf("docs/architecture.md: %s does not have %s", file, name[1])
			}
		}
	}
	if claims < 60 {
		t.Errorf("docs/architecture.md: %d names in tables; want at least 60", claims)
	}
}

// checkFiles checks that each file belongs to a family, that the head of the family lists it, and that no name
// outside the fixture family has one of its words.
func checkFiles(c *sourceCode) {
	for name, f := range c.files {
		i := family(name)
		if i < 0 {
			c.problem(f.Package, "belongs to no family of floors")
			continue
		}
		prefix, _, _ := strings.Cut(floors[i], " ")
		head := c.files[prefix+".go"]
		if head == nil {
			c.problem(f.Package, "its family has no head file %s.go", prefix)
			continue
		}
		listed := 0
		for _, g := range head.Comments {
			for _, line := range g.List {
				if strings.HasPrefix(line.Text, "//\t"+name+" ") {
					listed++
				}
			}
		}
		if listed != 1 {
			c.problem(head.Package, "lists %s %d times", name, listed)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && prefix != "fixture" && fixtureWord.MatchString(id.Name) {
				c.problem(id.Pos(), "the name %s is the fixture family's concern", id.Name)
			}
			return true
		})
	}
}

// checkUses checks that no family uses a name of a family above it, that only the store family uses the fields of
// the store and of its parts, and that net/http is used from the server up, and below it in httpFiles alone.
func checkUses(c *sourceCode) {
	fields := map[types.Object]bool{}
	if store := c.pkg.Scope().Lookup("store"); store != nil {
		c.addFields(fields, store.Type())
	}
	for id, o := range c.info.Uses {
		at := c.file(id.Pos())
		if o.Pkg() == c.pkg {
			if to := c.file(o.Pos()); (o.Parent() == c.pkg.Scope() || isMember(o)) && family(at) < family(to) {
				c.problem(id.Pos(), "%s is of a family above (%s)", o.Name(), to)
			}
			if fields[o] && family(at) != family("store.go") {
				c.problem(id.Pos(), "%s is a field of the store family", o.Name())
			}
		}
		if family(at) < family("server.go") && !slices.Contains(httpFiles, at) && usesHTTP(o) {
			c.problem(id.Pos(), "%s is of net/http", id.Name)
		}
	}
}

// addFields adds the fields of a type of the store family, if it is a struct with methods, and those of its parts.
func (c *sourceCode) addFields(fields map[types.Object]bool, t types.Type) {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := t.(*types.Named)
	if !ok || n.Obj().Pkg() != c.pkg || family(c.file(n.Obj().Pos())) != family("store.go") {
		return
	}
	if s, ok := n.Underlying().(*types.Struct); ok && (n.NumMethods() > 0 || n.Obj().Name() == "store") {
		for f := range s.Fields() {
			if !fields[f] {
				fields[f] = true
				c.addFields(fields, f.Type())
			}
		}
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

// usesHTTP reports whether a name is of net/http, or has a type that names one of it.
func usesHTTP(o types.Object) bool {
	isHTTP := func(p *types.Package) bool { return p != nil && strings.HasPrefix(p.Path()+"/", "net/http/") }
	named := false
	types.TypeString(o.Type(), func(p *types.Package) string {
		named = named || isHTTP(p)
		return ""
	})
	pkg, _ := o.(*types.PkgName)
	return named || isHTTP(o.Pkg()) || pkg != nil && isHTTP(pkg.Imported())
}

// checkVariables checks that nothing assigns to a variable of a package, this one or another, or takes its
// address: no family can leave a function where a family below finds it.
func checkVariables(c *sourceCode) {
	changed := func(e ast.Expr, how string) {
		if v := c.root(e); v != nil && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
			c.problem(e.Pos(), "%s the package variable %s", how, v.Name())
		}
	}
	for _, f := range c.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					changed(e, "changes")
				}
			case *ast.IncDecStmt:
				changed(n.X, "changes")
			case *ast.UnaryExpr:
				if _, part := n.X.(*ast.IndexExpr); n.Op == token.AND && !part {
					changed(n.X, "takes the address of")
				}
			case *ast.CallExpr:
				if b, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && slices.Contains([]string{"clear", "copy", "delete"}, b.Name) {
					changed(n.Args[0], "changes")
				}
			}
			return true
		})
	}
}

// root returns the variable that an expression denotes or whose part it denotes, or nil.
func (c *sourceCode) root(e ast.Expr) types.Object {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			if e = x.X; c.info.Selections[x] == nil {
				e = x.Sel // of another package
			}
		case *ast.Ident:
			if v, ok := c.info.Uses[x].(*types.Var); ok {
				return v
			}
			return nil
		default:
			return nil
		}
	}
}

// checkInterfaces checks that no family calls a method of a family above it through an interface that it did not
// declare by name: a declared interface is a door that a reader finds, with a comment.
func checkInterfaces(c *sourceCode) {
	for name, f := range c.files {
		named := map[ast.Node]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok {
				named[s.Type] = true
			}
			literal, ok := n.(*ast.InterfaceType)
			if !ok || named[n] {
				return true
			}
			iface, _ := c.info.TypeOf(literal).(*types.Interface)
			if iface == nil || iface.NumMethods() == 0 {
				return true
			}
			for _, o := range c.info.Defs {
				if o, ok := o.(*types.TypeName); ok && family(name) < family(c.file(o.Pos())) &&
					!types.IsInterface(o.Type()) && types.Implements(types.NewPointer(o.Type()), iface) {
					c.problem(literal.Pos(), "an interface without a name calls %s above it", o.Name())
				}
			}
			return true
		})
	}
}

// checkTypes checks the size of types. What they promote from embedded types of this package counts: embedding a
// part does not make the whole smaller.
func checkTypes(c *sourceCode) {
	for _, o := range c.info.Defs {
		n, ok := o.(*types.TypeName)
		if !ok || n.IsAlias() {
			continue
		}
		all, methods := n.Type(), 0
		if !types.IsInterface(all) {
			all = types.NewPointer(all)
		}
		for m := range types.NewMethodSet(all).Methods() {
			if m.Obj().Pkg() == c.pkg {
				methods++
			}
		}
		if methods > maxMethods {
			c.problem(n.Pos(), "%s has %d methods, more than %d", n.Name(), methods, maxMethods)
		}
		if fields := c.fields(n.Type(), 0); fields > maxFields {
			c.problem(n.Pos(), "%s has %d fields, more than %d", n.Name(), fields, maxFields)
		}
	}
}

// fields returns how many fields a type has, with those of an embedded struct of this package in place of that
// struct; 1 for a type of another kind or package.
func (c *sourceCode) fields(t types.Type, depth int) (n int) {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, _ := types.Unalias(t).(*types.Named)
	s, ok := t.Underlying().(*types.Struct)
	if !ok || named == nil || named.Obj().Pkg() != c.pkg || depth > 5 {
		return 1
	}
	for f := range s.Fields() {
		if n++; f.Embedded() {
			n += c.fields(f.Type(), depth+1) - 1
		}
	}
	return n
}

// TestFloorBreaches checks that a small package that breaks each rule has each problem, and no other.
func TestFloorBreaches(t *testing.T) {
	t.Parallel()
	files := map[string]any{
		"base.go":  "package main\n\n//\tbase.go  rows\n\nvar table = []int{1}\n\nfunc row() *int { return &table[0] }\n",
		"auth.go":  "package main\n\n//\tauth.go  callers\n//\tauth_keyset.go  keys\n\ntype caller struct{ keys *fetcher }\n",
		"utils.go": "package main\n",
		"auth_keyset.go": "package main\n\nimport \"net/http\"\n\ntype fetcher struct{ *http.Request }\n\n" +
			"func fetch(r *http.Request) {}\n",
		"store.go": `package main

//	store.go  the store

type store struct{ part *shelf; e *engine; x interface{ late() int } }

type shelf struct{ size int }

func (s *shelf) grow() { s.size++; fetch(nil) }

func (s *store) shelf() *shelf { return s.part }

type named interface{ late() int }
`,
		"engine.go": `package main

type engine struct{ ` + strings.Repeat("_, ", 25) + `last int }

func (e *engine) late() int { table[0]++; return new(store).shelf().size }

func addStub() { p := &table; _ = p }
`,
	}
	for i := range maxMethods {
		files["engine.go"] = fmt.Sprint(files["engine.go"], "\nfunc (e *engine) m", i, "() {}\n")
	}
	c := checkSource(t, files, func(*token.FileSet) types.Importer { return importer.Default() })
	for _, check := range floorRules {
		check(c)
	}
	want := `engine.go:1: lists engine.go 0 times
engine.go:3: engine has 26 fields, more than 25
engine.go:3: engine has 61 methods, more than 60
engine.go:5: changes the package variable table
engine.go:5: size is a field of the store family
engine.go:7: takes the address of the package variable table
engine.go:7: the name addStub is the fixture family's concern
store.go:5: an interface without a name calls engine above it
store.go:5: engine is of a family above (engine.go)
store.go:9: fetch is of net/http
utils.go:1: belongs to no family of floors`
	if got := strings.Join(slices.Sorted(maps.Keys(c.problems)), "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
