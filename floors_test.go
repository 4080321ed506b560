package main

// The architecture as a test: which families of files may use which, and the doors between
// them, checked against the types of the code on each operating system of a release. There is
// no list of exceptions: code that breaks a rule is changed.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
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
	{"surfaces", "routes worker orchestration console mount", "the HTTP interfaces and their route tables"},
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

// sourceCode is the package, without tests, as the compiler sees it for one system.
type sourceCode struct {
	fset  *token.FileSet
	files map[string]*ast.File
	info  *types.Info
	pkg   *types.Package
	funcs map[*types.Func]*ast.FuncDecl // see functions
}

// sources are the source files of a package for all systems.
type sources struct {
	fset  *token.FileSet
	texts map[string]string
	files map[string]*ast.File
	other map[string]*ast.File // of packages that are imported, by path
}

// parseSources parses source files, given by name.
func parseSources(t *testing.T, texts map[string]string) *sources {
	t.Helper()
	s := &sources{token.NewFileSet(), texts, map[string]*ast.File{}, map[string]*ast.File{}}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		f, err := parser.ParseFile(s.fset, name, texts[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.files[name] = f
	}
	return s
}

// ownSources parses the source files of this package.
func ownSources(t *testing.T) *sources {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return parseSources(t, texts)
}

// releases returns the systems that .ci/release builds the program for, such as linux/amd64.
func releases(t *testing.T) []string {
	t.Helper()
	script, err := os.ReadFile(".ci/release")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`\|\| targets=\((.*)\)`).FindSubmatch(script)
	if list == nil {
		t.Fatal(".ci/release does not list its targets as before")
	}
	return strings.Fields(string(list[1]))
}

// on returns the names of the files that are compiled for a system.
func (s *sources) on(t *testing.T, system string) (names []string) {
	t.Helper()
	sys := build.Default
	sys.GOOS, sys.GOARCH, _ = strings.Cut(system, "/")
	sys.CgoEnabled, sys.BuildTags = false, nil
	sys.OpenFile = func(file string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(s.texts[filepath.Base(file)])), nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.texts)) {
		if ok, err := sys.MatchFile(".", name); err != nil {
			t.Fatal(err)
		} else if ok {
			names = append(names, name)
		}
	}
	return names
}

// perSystem type-checks the files as they are compiled for each operating system, and again for
// another processor only where that has other files.
func (s *sources) perSystem(t *testing.T, systems []string, imports func(system string) types.Importer) (all []*sourceCode) {
	t.Helper()
	seen := map[string]bool{}
	for _, system := range systems {
		names := s.on(t, system)
		goos, goarch, _ := strings.Cut(system, "/")
		key := goos + " " + strings.Join(names, " ")
		if seen[key] {
			continue
		}
		seen[key] = true
		c := &sourceCode{fset: s.fset, files: map[string]*ast.File{}, info: &types.Info{
			Types:      map[ast.Expr]types.TypeAndValue{},
			Defs:       map[*ast.Ident]types.Object{},
			Uses:       map[*ast.Ident]types.Object{},
			Selections: map[*ast.SelectorExpr]*types.Selection{},
		}}
		var files []*ast.File
		for _, name := range names {
			c.files[name] = s.files[name]
			files = append(files, s.files[name])
		}
		conf := types.Config{Importer: imports(system), Sizes: types.SizesFor("gc", goarch)}
		var err error
		if c.pkg, err = conf.Check("stepwell", c.fset, files, c.info); err != nil {
			t.Fatal(system, err)
		}
		all = append(all, c)
	}
	return all
}

// loadSource type-checks this package for each system of a release, or without LONG_TESTS for the first of them.
func loadSource(t *testing.T) (*sources, []*sourceCode) {
	t.Helper()
	s, systems := ownSources(t), releases(t)
	if os.Getenv("LONG_TESTS") == "" {
		systems = systems[:1]
	}
	return s, s.perSystem(t, systems, func(system string) types.Importer { return s.importer(t, system) })
}

// sourceImporter imports packages for one system from their source, without the bodies of their
// functions. That takes about a second, while the export data of the go command for a system
// other than this one would have to be compiled first, which takes a minute.
type sourceImporter struct {
	*sources
	goarch   string
	packages map[string]*sourcePackage
}

type sourcePackage struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	checked         *types.Package
}

// importer returns an importer of the packages that this package uses on a system.
func (s *sources) importer(t *testing.T, system string) types.Importer {
	t.Helper()
	goos, goarch, _ := strings.Cut(system, "/")
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap", ".")
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal("go list:", err)
	}
	i := &sourceImporter{s, goarch, map[string]*sourcePackage{"unsafe": {checked: types.Unsafe}}}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p sourcePackage
		if err := d.Decode(&p); err == io.EOF {
			return i
		} else if err != nil {
			t.Fatal("go list:", err)
		}
		if i.packages[p.ImportPath] == nil {
			i.packages[p.ImportPath] = &p
		}
	}
}

func (i *sourceImporter) Import(path string) (*types.Package, error) {
	p := i.packages[path]
	if p == nil {
		return nil, fmt.Errorf("go list does not name %s", path)
	}
	if p.checked != nil {
		return p.checked, nil
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		name = filepath.Join(p.Dir, name)
		f := i.other[name]
		if f == nil {
			var err error
			if f, err = parser.ParseFile(i.fset, name, nil, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			i.other[name] = f
		}
		files = append(files, f)
	}
	conf := types.Config{
		IgnoreFuncBodies: true,
		FakeImportC:      true,
		Sizes:            types.SizesFor("gc", i.goarch),
		Importer:         importerFunc(func(path string) (*types.Package, error) { return i.Import(cmp.Or(p.ImportMap[path], path)) }),
	}
	var err error
	p.checked, err = conf.Check(path, i.fset, files, nil)
	return p.checked, err
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

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

func (p problem) String() string { return fmt.Sprintf("%s:%d: %s", p.at.Filename, p.at.Line, p.text) }

// distinct returns each problem once, in the order of the files.
func distinct(problems []problem) []problem {
	slices.SortFunc(problems, func(a, b problem) int {
		return cmp.Or(strings.Compare(a.at.Filename, b.at.Filename), a.at.Line-b.at.Line, strings.Compare(a.text, b.text))
	})
	return slices.CompactFunc(problems, func(a, b problem) bool { return a.String() == b.String() })
}

// report fails the test with each problem once, in the order of the files.
func report(t *testing.T, problems []problem) {
	t.Helper()
	for _, p := range distinct(problems) {
		t.Error(p)
	}
}

// floorRules are what the code keeps to on every system.
var floorRules = []struct {
	name  string
	check func(c *sourceCode) []problem
}{
	{"arrows", checkArrows},
	{"variables", checkVariables},
	{"interfaces", checkInterfaces},
	{"store", checkStoreDoor},
	{"http", checkHTTPDoor},
	{"types", checkTypes},
}

// TestFloors checks that every file uses only names of its own family and of families below.
func TestFloors(t *testing.T) {
	sequential(t)
	t.Parallel()
	s, systems := loadSource(t)
	c := systems[0]
	t.Run("files", func(t *testing.T) { report(t, checkFiles(t, s, releases(t))) })
	t.Run("fixture", func(t *testing.T) { report(t, checkFixtureDoor(s)) })
	for _, rule := range floorRules {
		t.Run(rule.name, func(t *testing.T) {
			var problems []problem
			for _, c := range systems {
				problems = append(problems, rule.check(c)...)
			}
			report(t, problems)
		})
	}
	if c.pkg.Scope().Lookup("store") == nil {
		t.Error("no type store, whose fields are for its family alone")
	}
	t.Run("page", func(t *testing.T) { checkPage(t, c) })
}

// checkFiles checks that each file belongs to a family and to a system of a release, and that the
// head of each family lists its parts.
func checkFiles(t *testing.T, s *sources, systems []string) (problems []problem) {
	t.Helper()
	compiled := map[string]bool{}
	for _, system := range systems {
		for _, name := range s.on(t, system) {
			compiled[name] = true
		}
	}
	parts := make([][]string, len(floors)) // of each family
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		at := s.fset.Position(s.files[name].Package)
		if i := family(name); i < 0 {
			problems = append(problems, problem{at, "belongs to no family of floors"})
		} else {
			parts[i] = append(parts[i], name)
		}
		if !compiled[name] {
			problems = append(problems, problem{at, "is compiled for no system of .ci/release"})
		}
	}
	for i, names := range parts {
		if len(names) == 0 {
			continue
		}
		head := strings.Fields(floors[i].prefixes)[0] + ".go"
		if s.files[head] == nil {
			problems = append(problems, problem{s.fset.Position(s.files[names[0]].Package), "its family has no head file " + head})
			continue
		}
		problems = append(problems, s.checkHead(head, names)...)
	}
	return problems
}

// partLine is a line of a head file about one part of its family.
type partLine struct {
	at         token.Position
	name, text string
}

var partBegin = regexp.MustCompile(`^//\t(\w+\.go)\s+(.*)$`)

// partLines returns the lines about parts in the comments of a head file before its first
// declaration other than imports. A line that is indented continues with the one before it.
func (s *sources) partLines(head string) (lines []partLine) {
	f := s.files[head]
	end := f.End()
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
			end = d.Pos()
			break
		}
	}
	for _, g := range f.Comments {
		for _, c := range g.List {
			if c.Pos() > end {
				return lines
			}
			if m := partBegin.FindStringSubmatch(c.Text); m != nil {
				lines = append(lines, partLine{s.fset.Position(c.Pos()), m[1], m[2]})
			} else if text, ok := strings.CutPrefix(c.Text, "//\t"); ok && len(lines) > 0 {
				lines[len(lines)-1].text += " " + strings.TrimSpace(text)
			}
		}
	}
	return lines
}

// checkHead checks the list in a head file: each part of the family has one line, and each item of a
// line, between commas, semicolons, colons and "and", has a word of a name that the part
// declares, in any of its forms. So the line about a part cannot name what is elsewhere.
func (s *sources) checkHead(head string, parts []string) (problems []problem) {
	listed := map[string]bool{}
	for _, line := range s.partLines(head) {
		if !slices.Contains(parts, line.name) {
			problems = append(problems, problem{line.at, "lists " + line.name + ", which is no part of this family"})
			continue
		}
		if listed[line.name] {
			problems = append(problems, problem{line.at, "lists " + line.name + " a second time"})
		}
		listed[line.name] = true
		declared := declaredNames(s.files[line.name])
		stems := map[string]bool{}
		for _, name := range declared {
			words := nameWords(name)
			for i, w := range words {
				stems[stem(w)] = true
				stems[stem(strings.Join(words[max(i-1, 0):i+1], ""))] = true // such as OpenAPI
			}
		}
		for _, item := range partItem.Split(line.text, -1) {
			names := func(w string) bool { return !smallWords[strings.ToLower(w)] && stems[stem(w)] }
			if strings.TrimSpace(item) != "" && !slices.ContainsFunc(partWord.FindAllString(item, -1), names) {
				problems = append(problems, problem{line.at, fmt.Sprintf("nothing that %s declares has a word of %q in its name; it declares %s",
					line.name, strings.TrimSpace(item), someOf(declared))})
			}
		}
	}
	for _, name := range parts {
		if !listed[name] {
			problems = append(problems, problem{s.fset.Position(s.files[head].Package),
				fmt.Sprintf("its comment has no line about %s, which declares %s", name, someOf(declaredNames(s.files[name])))})
		}
	}
	return problems
}

var (
	partItem = regexp.MustCompile(`[,;:]|\band\b`)
	partWord = regexp.MustCompile(`[\pL\d]+`)
)

// smallWords are words that can be part of a name but say nothing about what it is.
var smallWords = func() map[string]bool {
	words := map[string]bool{}
	for w := range strings.FieldsSeq("a an all and are as at be by each for from how in is it its not of on one or " +
		"other so than that the their then these they this to was what when where which who with without") {
		words[w] = true
	}
	return words
}()

// declaredNames returns the names of the types, functions, methods, constants and variables that a file
// declares, types first.
func declaredNames(f *ast.File) (names []string) {
	var kinds [3][]string // types, functions, values
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			kinds[1] = append(kinds[1], d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					kinds[0] = append(kinds[0], s.Name.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						kinds[2] = append(kinds[2], id.Name)
					}
				}
			}
		}
	}
	return slices.Concat(kinds[:]...)
}

// someOf returns the first of a list of names, as text.
func someOf(names []string) string {
	if len(names) > 12 {
		return strings.Join(names[:12], ", ") + fmt.Sprintf(" and %d more", len(names)-12)
	}
	return strings.Join(names, ", ")
}

// nameWords splits a name such as readJSONText into its words.
func nameWords(name string) (words []string) {
	letters := []rune(name)
	begin := 0
	for i := 1; i <= len(letters); i++ {
		if i == len(letters) || unicode.IsUpper(letters[i]) &&
			(!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])) {
			words = append(words, string(letters[begin:i]))
			begin = i
		}
	}
	return words
}

// stem returns what the forms of a word have in common: "retries", "retry" and "retrying" have
// one stem. It knows no irregular forms.
func stem(word string) string {
	w := strings.ToLower(word)
	for _, ending := range []string{"ing", "ers", "ies", "ed", "es", "er", "s", "y", "e"} {
		if rest, ok := strings.CutSuffix(w, ending); ok && (len(rest) >= 3 || ending == "s" && len(rest) == 2) {
			w = rest
			break
		}
	}
	if n := len(w); n > 3 && w[n-1] == w[n-2] {
		w = w[:n-1] // stopping, stop
	}
	return strings.TrimRight(w, "ie")
}

// checkArrows checks that no family uses a name of a family above it.
func checkArrows(c *sourceCode) (problems []problem) {
	c.eachUse(func(at token.Position, o types.Object, declared string) {
		if from, to := family(at.Filename), family(declared); from < to {
			problems = append(problems, problem{at, fmt.Sprintf("family %s uses %s of family %s above it (%s)",
				floors[max(from, 0)].family, o.Name(), floors[to].family, declared)})
		}
	})
	return problems
}

// checkVariables checks that a variable of a package, this one or another, keeps the value of its
// declaration: no family can leave a function, or anything else, where a family below finds it.
// Rows of tables can be pointed to, and are not written to through such a pointer.
func checkVariables(c *sourceCode) (problems []problem) {
	pointers := c.pointersToVariables()
	changed := func(e ast.Expr, how string) {
		if v := c.packageVariable(e, pointers); v != nil {
			problems = append(problems, problem{c.fset.Position(e.Pos()), how + " the package variable " + v.Name()})
		}
	}
	for _, f := range c.files {
		ast.Inspect(f, func(n ast.Node) bool {
			eachChange(c.info, n, func(e ast.Expr) { changed(e, "changes") })
			switch n := n.(type) {
			case *ast.UnaryExpr:
				switch ast.Unparen(n.X).(type) {
				case *ast.Ident, *ast.SelectorExpr:
					if n.Op == token.AND {
						changed(n.X, "takes the address of")
					}
				}
			case *ast.SelectorExpr:
				if s := c.info.Selections[n]; s != nil && s.Kind() == types.MethodVal && c.changesReceiver(s.Obj().(*types.Func)) {
					changed(n.X, "by "+n.Sel.Name+" changes")
				}
			case *ast.CallExpr:
				// A pool or a map of the standard library keeps memory and facts, but no code.
				method, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains([]string{"Put", "Store"}, method.Sel.Name) {
					break
				}
				t := c.info.TypeOf(n.Args[len(n.Args)-1]).Underlying()
				if p, ok := t.(*types.Pointer); ok {
					t = p.Elem().Underlying()
				}
				switch t.(type) {
				case *types.Signature, *types.Interface:
					changed(method.X, "leaves code in")
				}
			}
			return true
		})
	}
	return problems
}

// eachChange calls f for each expression that a node assigns to, or whose elements it changes.
func eachChange(info *types.Info, n ast.Node, f func(e ast.Expr)) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, e := range n.Lhs {
			f(e)
		}
	case *ast.IncDecStmt:
		f(n.X)
	case *ast.RangeStmt:
		f(n.Key)
		f(n.Value)
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 {
			if b, ok := info.Uses[id].(*types.Builtin); ok && slices.Contains([]string{"clear", "copy", "delete"}, b.Name()) {
				f(n.Args[0])
			}
		}
	}
}

// changesReceiver reports whether a method changes what it is called on. Of the standard library, the
// methods of sync and sync/atomic do, except those of pools and maps.
func (c *sourceCode) changesReceiver(m *types.Func) (changes bool) {
	if m.Pkg() == nil { // of error
		return false
	}
	if path := m.Pkg().Path(); path == "sync" || path == "sync/atomic" {
		of := types.TypeString(m.Signature().Recv().Type(), nil)
		return of != "*sync.Pool" && of != "*sync.Map"
	}
	d := c.functions()[m.Origin()]
	if d == nil || d.Recv == nil || len(d.Recv.List[0].Names) == 0 {
		return false
	}
	recv := c.info.Defs[d.Recv.List[0].Names[0]]
	if _, byPointer := recv.Type().(*types.Pointer); !byPointer {
		return false
	}
	ast.Inspect(d.Body, func(n ast.Node) bool {
		eachChange(c.info, n, func(e ast.Expr) { changes = changes || c.root(e) == recv })
		return !changes
	})
	return changes
}

// functions returns the declarations of the functions and methods.
func (c *sourceCode) functions() map[*types.Func]*ast.FuncDecl {
	if c.funcs == nil {
		c.funcs = map[*types.Func]*ast.FuncDecl{}
		for _, f := range c.files {
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok {
					c.funcs[c.info.Defs[d.Name].(*types.Func)] = d
				}
			}
		}
	}
	return c.funcs
}

// pointersToVariables returns the local variables that are defined as a pointer to, or as another
// reference to, a part of a package variable.
func (c *sourceCode) pointersToVariables() map[types.Object]types.Object {
	pointers := map[types.Object]types.Object{}
	for _, f := range c.files {
		ast.Inspect(f, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || a.Tok != token.DEFINE || len(a.Lhs) != len(a.Rhs) {
				return true
			}
			for i, e := range a.Rhs {
				t := c.info.TypeOf(e)
				if t == nil { // of a type switch
					continue
				}
				switch t.Underlying().(type) {
				case *types.Pointer, *types.Slice, *types.Map:
				default:
					continue
				}
				if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.AND {
					e = u.X
				}
				if v := c.packageVariable(e, nil); v != nil {
					pointers[c.info.Defs[a.Lhs[i].(*ast.Ident)]] = v
				}
			}
			return true
		})
	}
	return pointers
}

// packageVariable returns the variable of a package that an expression denotes, or whose part it
// denotes, also by way of local pointers to it; nil for other expressions.
func (c *sourceCode) packageVariable(e ast.Expr, pointers map[types.Object]types.Object) types.Object {
	v := c.root(e)
	if _, ok := e.(*ast.Ident); !ok && pointers[v] != nil {
		return pointers[v]
	}
	if v == nil || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() {
		return nil
	}
	return v
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
			v, _ := c.info.Uses[x].(*types.Var)
			if v == nil {
				return nil
			}
			return v
		default:
			return nil
		}
	}
}

// checkInterfaces checks that no family calls a method of a family above it through an interface
// that it did not declare by name. A declared interface is a door that a reader finds, with a
// comment: whoever implements it knows what for.
func checkInterfaces(c *sourceCode) (problems []problem) {
	var declared []*types.TypeName // the types of the package, local ones included
	for _, o := range c.info.Defs {
		if n, ok := o.(*types.TypeName); ok && !n.IsAlias() && !types.IsInterface(n.Type()) {
			declared = append(declared, n)
		}
	}
	for name, f := range c.files {
		named := map[ast.Node]bool{}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, s := range g.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						named[s.Type] = true
					}
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			literal, ok := n.(*ast.InterfaceType)
			if !ok || named[n] {
				return true
			}
			iface, ok := c.info.TypeOf(literal).(*types.Interface)
			if !ok || iface.NumMethods() == 0 {
				return true
			}
			for _, o := range declared {
				above := c.fset.Position(o.Pos()).Filename
				if family(name) < family(above) && types.Implements(types.NewPointer(o.Type()), iface) {
					problems = append(problems, problem{c.fset.Position(literal.Pos()), fmt.Sprintf(
						"calls %s of %s of family %s above it through an interface without a name (%s)",
						iface.Method(0).Name(), o.Name(), floors[family(above)].family, above)})
				}
			}
			return true
		})
	}
	return problems
}

// What a type may hold at most, so that a reader can keep it in mind.
const maxMethods, maxFields = 60, 25

// checkTypes checks the size of types. What they promote from embedded types of this package counts:
// embedding a part does not make the whole smaller.
func checkTypes(c *sourceCode) (problems []problem) {
	for _, o := range c.info.Defs {
		n, ok := o.(*types.TypeName)
		if !ok || n.IsAlias() {
			continue
		}
		named, ok := n.Type().(*types.Named)
		if !ok {
			continue // a type parameter
		}
		report := func(count int, what string, most int) {
			if count > most {
				problems = append(problems, problem{c.fset.Position(n.Pos()), fmt.Sprintf(
					"%s has %d %s, more than %d", n.Name(), count, what, most)})
			}
		}
		var all types.Type = types.NewPointer(named)
		if types.IsInterface(named) {
			all = named
		}
		methods := 0
		for m := range types.NewMethodSet(all).Methods() {
			if m.Obj().Pkg() == c.pkg {
				methods++
			}
		}
		report(methods, "methods", maxMethods)
		report(c.fields(named, nil), "fields", maxFields)
	}
	return problems
}

// fields returns how many fields a type has, with those of an embedded struct of this package in place
// of that struct; 1 for a type of another kind or package. Within are the types that embed it.
func (c *sourceCode) fields(t types.Type, within []*types.Named) (n int) {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	s, ok := t.Underlying().(*types.Struct)
	named, _ := types.Unalias(t).(*types.Named)
	if !ok || named == nil || named.Obj().Pkg() != c.pkg || slices.Contains(within, named) {
		return 1
	}
	for f := range s.Fields() {
		if f.Embedded() {
			n += c.fields(f.Type(), append(within, named))
		} else {
			n++
		}
	}
	return n
}

// checkStoreDoor checks that only the store family uses the fields of the store and of its parts, including its
// lock.
func checkStoreDoor(c *sourceCode) (problems []problem) {
	store := c.pkg.Scope().Lookup("store")
	if store == nil {
		return nil
	}
	fields := map[types.Object]string{}
	c.addFields(fields, store.Type(), "the store's")
	c.eachUse(func(at token.Position, o types.Object, _ string) {
		if whose := fields[o]; whose != "" && floors[family(at.Filename)].family != "store" {
			problems = append(problems, problem{at, "uses " + whose + " field " + o.Name()})
		}
	})
	return problems
}

// addFields adds the fields of a type of the store family, if it is a struct with methods, and those of its parts.
func (c *sourceCode) addFields(fields map[types.Object]string, t types.Type, whose string) {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := t.(*types.Named)
	if !ok || n.Obj().Pkg() != c.pkg || floors[family(c.fset.Position(n.Obj().Pos()).Filename)].family != "store" {
		return
	}
	s, ok := n.Underlying().(*types.Struct)
	if !ok || n.NumMethods() == 0 && n.Obj().Name() != "store" { // a mere value, such as options
		return
	}
	for f := range s.Fields() {
		if fields[f] == "" {
			fields[f] = whose
			c.addFields(fields, f.Type(), "a store part's")
		}
	}
}

// httpFiles are the files below the server that use HTTP: the handler with outgoing calls,
// and the clients of authentication.
var httpFiles = []string{"handler_http.go", "handler_connections.go", "auth_keyset.go", "auth_forward.go"}

// checkHTTPDoor checks that only those files, and the families from server up, import net/http, and that the
// others do not use its types or functions by another name either.
func checkHTTPDoor(c *sourceCode) (problems []problem) {
	closed := func(file string) bool {
		return family(file) < family("server.go") && !slices.Contains(httpFiles, file)
	}
	for name, f := range c.files {
		for _, i := range f.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); closed(name) && isHTTP(path) {
				problems = append(problems, problem{c.fset.Position(i.Pos()), "imports " + path})
			}
		}
	}
	for id, o := range c.info.Uses {
		at := c.fset.Position(id.Pos())
		if _, ok := o.(*types.PkgName); ok || !closed(at.Filename) {
			continue
		}
		if o.Pkg() != nil && isHTTP(o.Pkg().Path()) || mentionsHTTP(o.Type()) {
			problems = append(problems, problem{at, fmt.Sprintf("%s is of net/http, which is for %s and from the server up",
				id.Name, strings.Join(httpFiles, ", "))})
		}
	}
	return problems
}

func isHTTP(path string) bool { return path == "net/http" || strings.HasPrefix(path, "net/http/") }

// mentionsHTTP reports whether a type is of net/http or is made of such types. What is inside a
// type of this package does not count: its fields and methods are looked at where they are used.
func mentionsHTTP(t types.Type) bool {
	switch t := t.(type) {
	case *types.Alias:
		return mentionsHTTP(types.Unalias(t))
	case *types.Named:
		if p := t.Obj().Pkg(); p != nil && isHTTP(p.Path()) {
			return true
		}
		for arg := range t.TypeArgs().Types() {
			if mentionsHTTP(arg) {
				return true
			}
		}
	case *types.Pointer:
		return mentionsHTTP(t.Elem())
	case *types.Slice:
		return mentionsHTTP(t.Elem())
	case *types.Array:
		return mentionsHTTP(t.Elem())
	case *types.Chan:
		return mentionsHTTP(t.Elem())
	case *types.Map:
		return mentionsHTTP(t.Key()) || mentionsHTTP(t.Elem())
	case *types.Signature:
		return mentionsHTTP(t.Params()) || mentionsHTTP(t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			if mentionsHTTP(v.Type()) {
				return true
			}
		}
	}
	return false
}

// fixtureWords are words for use in the fixture family only.
var fixtureWords = []string{"stub", "sandbox", "lockstep", "requestjournal"}

// checkFixtureDoor checks that no name outside the fixture family contains one of its words.
func checkFixtureDoor(s *sources) (problems []problem) {
	for name, f := range s.files {
		if i := family(name); i >= 0 && floors[i].family == "fixture" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				for _, w := range fixtureWords {
					if strings.Contains(strings.ToLower(id.Name), w) {
						problems = append(problems, problem{s.fset.Position(id.Pos()), "the name " + id.Name + " is the fixture family's concern"})
					}
				}
			}
			return true
		})
	}
	return problems
}

// soundFiles are the files of a small package that breaks no rule.
var soundFiles = map[string]string{
	"base.go": `package main

// The base family.
//
//	base.go        clocks; rows of
//	               the table
//	base_linux.go  syncing
//	base_other.go  syncing with other means of sync

type clock struct{ now func() int }

type row struct {
	name string
	next *row
}

var table = []row{{name: "first"}, {name: "second"}}

func find(name string) *row {
	for i := range table {
		if r := &table[i]; r.name == name {
			return r
		}
	}
	return nil
}
`,
	"base_linux.go": "package main\n\nfunc sync() {}\n",
	"base_other.go": "//go:build !linux\n\npackage main\n\nfunc sync() {}\n",
	"auth.go": `package main

// The auth family.
//
//	auth.go         callers
//	auth_keyset.go  fetching keys

type caller struct{ keys *keyFetcher }
`,
	"auth_keyset.go": `package main

import "net/http"

type keyFetcher struct{ client *http.Client }

func newKeyFetcher() *keyFetcher { return &keyFetcher{&http.Client{}} }
`,
	"store.go": `package main

// The store family.
//
//	store.go  the store and its observer

type store struct{ tasks int }

type observer interface{ moved() }
`,
	"engine.go": `package main

// The engine family.
//
//	engine.go  the engine

type engine struct{ s *store }

func (e *engine) moved() {}

func (e *engine) late() int { return 0 }
`,
}

// breaches are what breaks a rule in the small package: files that are added to it or that replace
// its own, and the problems that are found then.
var breaches = []struct {
	name  string
	files map[string]string
	want  []string
}{
	{"nothing", nil, nil},
	{"arrow", map[string]string{
		"store.go": "package main\n\n// store.go:\n//\tstore.go  the store\n\ntype store struct{ e *engine }\n\nfunc (s *store) f() int { return s.e.late() }\n",
	}, []string{
		"store.go:6: family store uses engine of family engine above it (engine.go)",
		"store.go:8: family store uses late of family engine above it (engine.go)",
	}},
	{"variable assigned in init", map[string]string{
		"base_linux.go": "package main\n\nvar hook func()\n\nfunc sync() { hook() }\n",
		"base_other.go": "//go:build !linux\n\npackage main\n\nvar hook func()\n\nfunc sync() { hook() }\n",
		"engine.go":     "package main\n\n// engine.go:\n//\tengine.go  the engine\n\ntype engine struct{}\n\nfunc init() { hook = func() {} }\n",
	}, []string{"engine.go:8: changes the package variable hook"}},
	{"variable assigned below for another", map[string]string{
		"store.go": "package main\n\n// store.go:\n//\tstore.go  the store\n\ntype store struct{}\n\nvar hooks [1]func()\n\n" +
			"func setHook(f func()) { hooks[0] = f }\n\nfunc addHook(f func()) { p := &hooks; p[0] = f }\n",
	}, []string{
		"store.go:10: changes the package variable hooks",
		"store.go:12: changes the package variable hooks",
		"store.go:12: takes the address of the package variable hooks",
	}},
	{"row of a table changed", map[string]string{
		"engine.go": "package main\n\n// engine.go:\n//\tengine.go  the engine\n\ntype engine struct{}\n\n" +
			"func f() {\n\tr := &table[0]\n\tr.name = \"other\"\n}\n\nfunc g() { for _, table[0].name = range []string{\"\"} {} }\n",
	}, []string{
		"engine.go:10: changes the package variable table",
		"engine.go:13: changes the package variable table",
	}},
	{"variable changed by a method", map[string]string{
		"store.go": `package main

// store.go:
//	store.go  the store

import "sync/atomic"

type store struct{ hook func() }

func (s *store) set(f func()) { s.hook = f }

var (
	only    = &store{}
	pointed atomic.Pointer[store]
	pool    = map[string]int{}
)
`,
		"engine.go": `package main

// engine.go:
//	engine.go  the engine

type engine struct{}

func f() {
	only.set(func() {})
	pointed.Store(nil)
	delete(pool, "")
}
`,
	}, []string{
		"engine.go:9: by set changes the package variable only",
		"engine.go:10: by Store changes the package variable pointed",
		"engine.go:11: changes the package variable pool",
	}},
	{"variable of another package", map[string]string{
		"routes.go": "package main\n\n// routes.go:\n//\troutes.go  init\n\nimport \"net/http\"\n\nfunc init() { http.DefaultClient = nil }\n",
	}, []string{"routes.go:8: changes the package variable DefaultClient"}},
	{"interface without a name", map[string]string{
		"store.go": `package main

// store.go:
//	store.go  the store

type store struct{ e interface{ late() int } }

func f(x any) int { return x.(interface{ late() int }).late() }

func g(x interface{ late() int }) {}

func h(x any) {
	type local interface{ late() int }
	_ = x.(local)
}

type declared interface{ late() int }
`,
	}, []string{
		"store.go:6: calls late of engine of family engine above it through an interface without a name (engine.go)",
		"store.go:8: calls late of engine of family engine above it through an interface without a name (engine.go)",
		"store.go:10: calls late of engine of family engine above it through an interface without a name (engine.go)",
		"store.go:13: calls late of engine of family engine above it through an interface without a name (engine.go)",
	}},
	{"file for another system", map[string]string{
		"base.go":        soundFiles["base.go"] + "\n//\tbase_darwin.go  syncing\n",
		"base_darwin.go": "package main\n\nfunc syncAll(e *engine) { sync() }\n",
	}, []string{
		"base.go:1: its comment has no line about base_darwin.go, which declares syncAll",
		"base_darwin.go:3: family base uses engine of family engine above it (engine.go)",
	}},
	{"base_other.go", map[string]string{
		"base_other.go": "//go:build !linux\n\npackage main\n\nfunc sync() { new(engine).late() }\n",
	}, []string{
		"base_other.go:5: family base uses engine of family engine above it (engine.go)",
		"base_other.go:5: family base uses late of family engine above it (engine.go)",
	}},
	{"file for no system", map[string]string{
		"engine.go":         soundFiles["engine.go"],
		"engine_windows.go": "package main\n\nfunc late() {}\n",
		"engine_old.go":     "//go:build ignore\n\npackage main\n\nfunc late() {}\n",
	}, []string{
		"engine.go:1: its comment has no line about engine_old.go, which declares late",
		"engine.go:1: its comment has no line about engine_windows.go, which declares late",
		"engine_old.go:3: is compiled for no system of .ci/release",
		"engine_windows.go:1: is compiled for no system of .ci/release",
	}},
	{"net/http imported", map[string]string{
		"store.go": "package main\n\n// store.go:\n//\tstore.go  the store\n\nimport _ \"net/http/httptest\"\n\ntype store struct{}\n",
	}, []string{"store.go:6: imports net/http/httptest"}},
	{"net/http by another name", map[string]string{
		"auth_keyset.go": `package main

import "net/http"

type (
	keyFetcher struct{ *http.Request }
	request    = http.Request
	defined    http.Request
)

var keyClient = http.DefaultClient

func fetchKey(r *http.Request) {}
`,
		"store.go": `package main

// store.go:
//	store.go  the store

type store struct{ tasks []*request }

func a() { fetchKey(nil) }

func b(f *keyFetcher) string { return f.Method }

func c(d *defined) string { return d.Method }

func d(x any) bool { return x == keyClient }
`,
	}, []string{
		"store.go:6: request is of net/http",
		"store.go:8: fetchKey is of net/http",
		"store.go:10: Method is of net/http",
		"store.go:12: Method is of net/http",
		"store.go:14: keyClient is of net/http",
	}},
	{"types too large", map[string]string{
		"store.go": "package main\n\n// store.go:\n//\tstore.go  the store\n\ntype store struct {\n\t*part\n\tmine int\n}\n\n" +
			"type part struct{ " + numbered("f%d, ", 24) + "last int }\n\nfunc (s *store) f() {}\n\n" +
			numbered("func (p *part) m%d() {}\n", 60),
		"engine.go": "package main\n\n// engine.go:\n//\tengine.go  the engine\n\ntype engine interface {\n\t" +
			numbered("m%d(); ", 61) + "\n}\n",
	}, []string{
		"engine.go:6: engine has 61 methods, more than 60",
		"store.go:6: store has 26 fields, more than 25",
		"store.go:6: store has 61 methods, more than 60",
	}},
	{"field of the store", map[string]string{
		"engine.go": "package main\n\n// engine.go:\n//\tengine.go  the engine\n\ntype engine struct{}\n\nfunc f(s *store) int { return s.tasks }\n",
	}, []string{"engine.go:8: uses the store's field tasks"}},
	{"field of a part of the store", map[string]string{
		"store.go": "package main\n\n// store.go:\n//\tstore.go  the store\n\ntype store struct{ part *shelf }\n\n" +
			"type shelf struct{ size int }\n\nfunc (s *store) shelf() *shelf { return s.part }\n\n" +
			"func (t *shelf) grow() { t.size++ }\n",
		"engine.go": "package main\n\n// engine.go:\n//\tengine.go  the engine\n\ntype engine struct{}\n\n" +
			"func f(s *store) int { return s.shelf().size }\n",
	}, []string{"engine.go:8: uses a store part's field size"}},
	{"word of fixture mode", map[string]string{
		"base_other.go": "//go:build !linux\n\npackage main\n\nfunc sync() {}\n\nfunc syncStubs() {}\n",
	}, []string{"base_other.go:7: the name syncStubs is the fixture family's concern"}},
	{"family unknown", map[string]string{
		"utils.go": "package main\n",
	}, []string{"utils.go:1: belongs to no family of floors"}},
	{"list of parts", map[string]string{
		"auth.go": `package main

// The auth family.
//
//	auth.go         callers, the tokens of callers and passwords
//	auth_keyset.go  fetching keys
//	auth_keyset.go  keys
//	auth_gone.go    callers

type caller struct{}
`,
		"server_request.go": "package main\n",
	}, []string{
		`auth.go:5: nothing that auth.go declares has a word of "passwords" in its name; it declares caller`,
		"auth.go:7: lists auth_keyset.go a second time",
		"auth.go:8: lists auth_gone.go, which is no part of this family",
		"server_request.go:1: its family has no head file server.go",
	}},
}

// numbered returns a text n times, with its number in each.
func numbered(format string, n int) string {
	b := strings.Builder{}
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// standIns are what the small package imports.
var standIns = map[string]string{
	"net/http":          "package http\n\ntype Request struct{ Method string }\n\ntype Client struct{}\n\nvar DefaultClient = &Client{}\n",
	"net/http/httptest": "package httptest\n",
	"sync/atomic":       "package atomic\n\ntype Pointer[T any] struct{ p *T }\n\nfunc (p *Pointer[T]) Store(v *T) { p.p = v }\n",
}

// TestFloorBreaches checks that every way around a rule is a problem, where it is and nowhere else.
func TestFloorBreaches(t *testing.T) {
	sequential(t)
	t.Parallel()
	for _, b := range breaches {
		t.Run(b.name, func(t *testing.T) {
			texts := maps.Clone(soundFiles)
			maps.Copy(texts, b.files)
			s := parseSources(t, texts)
			imports := importerFunc(func(path string) (*types.Package, error) {
				f, err := parser.ParseFile(s.fset, path, standIns[path], 0)
				if err != nil {
					return nil, err
				}
				return new(types.Config).Check(path, s.fset, []*ast.File{f}, nil)
			})
			systems := []string{"linux/amd64", "linux/arm64", "darwin/arm64"}
			problems := append(checkFiles(t, s, systems), checkFixtureDoor(s)...)
			for _, c := range s.perSystem(t, systems, func(string) types.Importer { return imports }) {
				for _, rule := range floorRules {
					problems = append(problems, rule.check(c)...)
				}
			}
			problems = distinct(problems)
			for i, p := range problems {
				if i >= len(b.want) || !strings.HasPrefix(p.String(), b.want[i]) {
					t.Errorf("got  %s", p)
				}
			}
			for i, want := range b.want {
				if i >= len(problems) || !strings.HasPrefix(problems[i].String(), want) {
					t.Errorf("want %s", want)
				}
			}
		})
	}
}

// TestWords refuses the words in testdata/words.txt in sources, documentation and openapi.json.
func TestWords(t *testing.T) {
	t.Parallel()
	better, refused := map[string]string{}, []string{}
	for line := range strings.Lines(string(readFile(t, "testdata/words.txt"))) {
		if pattern, instead, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			better[pattern], refused = instead, append(refused, pattern)
		} else if !strings.HasPrefix(line, "#") {
			t.Errorf("%q has no tab", line)
		}
	}
	rules, pages := make([]*regexp.Regexp, len(refused)), 0
	for i, pattern := range refused { // a search for a rule that begins with a text is many times as fast as one for a boundary
		rules[i] = regexp.MustCompile("(?m)" + strings.TrimPrefix(pattern, `\b`))
	}
	for _, pattern := range []string{"*.go", "*.md", "docs/*.md", "docs/*/*.md", "tasker/*.go", "tasker/*.md", "examples/*/*.md", "packages/*/*.md", "openapi.json", "web/*/*.js"} {
		for _, page := range must(filepath.Glob(pattern))(t) {
			if strings.HasSuffix(page, "_test.go") || page == "CHANGELOG.md" {
				continue
			}
			pages++
			text := string(readFile(t, page))
			for i, rule := range rules {
				for _, at := range rule.FindAllStringIndex(text, -1) {
					if word := text[max(at[0]-1, 0):at[1]]; !regexp.MustCompile("(?m)" + refused[i]).MatchString(word) {
						continue
					}
					t.Errorf("%s:%d: %q: write: %s", page, 1+strings.Count(text[:at[0]], "\n"), strings.TrimSpace(text[at[0]:at[1]]), better[refused[i]])
				}
			}
		}
	}
	if len(refused) < 10 || pages < 100 {
		t.Errorf("got %d rules for %d pages", len(refused), pages)
	}
}
