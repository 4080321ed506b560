package main

// docs/architecture.md as a test: its tables name what the files declare, and each walk names
// functions that call each other.

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"testing"
)

var (
	pageRow     = regexp.MustCompile("(?m)^\\|[^|]*\\| `(\\w+\\.go)` \\|([^|]*)\\|") // subject, file, names
	pageName    = regexp.MustCompile("`(\\w+(?:\\.\\w+)?)`")
	pageFile    = regexp.MustCompile("`(\\w+\\.go)`")
	touchedLine = regexp.MustCompile("(?m)^(- (\\w+)[^`]*)`")
	pageClaim   = regexp.MustCompile("`(\\w+(?:\\.\\w+)?)`\\s+in\\s+`(\\w+\\.go)`")
)

// alsoTouched begins the list of files below a walk.
const alsoTouched = "\nAlso touched"

// checkPage compares docs/architecture.md with the code: each file exists and declares the names
// that the page says it does, and the functions of a walk call each other.
func checkPage(t *testing.T, c *sourceCode) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	rows := pageRow.FindAllStringSubmatch(page, -1)
	if len(rows) < 30 {
		t.Errorf("docs/architecture.md: %d rows name a file; want the two walks and fifteen changes", len(rows))
	}
	for _, row := range rows {
		for _, name := range pageName.FindAllStringSubmatch(pageClaim.ReplaceAllString(row[2], ""), -1) {
			if !strings.HasSuffix(name[1], ".go") {
				c.checkClaim(t, name[1], row[1])
			}
		}
	}
	for _, claim := range pageClaim.FindAllStringSubmatch(page, -1) {
		if !strings.HasSuffix(claim[2], "_test.go") {
			c.checkClaim(t, claim[1], claim[2])
		}
	}
	calls := c.callGraph()
	walks := walksOf(page)
	if len(walks) != 2 {
		t.Errorf("docs/architecture.md: %d walks; want 2", len(walks))
	}
	for _, walk := range walks {
		c.checkWalk(t, walk, calls)
	}
}

// checkClaim checks that a file declares a name: of a function, a type, a variable, or of a method or
// field as Type.name.
func (c *sourceCode) checkClaim(t *testing.T, name, file string) {
	t.Helper()
	if c.files[file] == nil {
		t.Errorf("docs/architecture.md: no file %s; %s", file, c.whereIs(name))
	} else if !slices.Contains(c.declaring(name), file) {
		t.Errorf("docs/architecture.md: %s does not declare %s; %s", file, name, c.whereIs(name))
	}
}

// declaring returns the files that declare a name outside of functions, in their order.
func (c *sourceCode) declaring(name string) (files []string) {
	of, last, qualified := strings.Cut(name, ".")
	for file, f := range c.files {
		if qualified {
			if slices.ContainsFunc(c.methods(file, last), func(m *types.Func) bool { return receiverName(m) == of }) {
				files = append(files, file)
			}
		} else if slices.Contains(declaredNames(f), name) {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files
}

func (c *sourceCode) whereIs(name string) string {
	files := c.declaring(name)
	if len(files) == 0 {
		return "no file declares " + name
	}
	return name + " is in " + strings.Join(files, " and ")
}

// methods returns the functions and methods of a name that a file declares.
func (c *sourceCode) methods(file, name string) (found []*types.Func) {
	for f, d := range c.functions() {
		if d.Name.Name == name && c.fset.Position(d.Pos()).Filename == file {
			found = append(found, f)
		}
	}
	return found
}

// receiverName returns the name of the type that a method belongs to, or "".
func receiverName(f *types.Func) string {
	recv := f.Signature().Recv()
	if recv == nil {
		return ""
	}
	t := recv.Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// walk is a table of the page: the functions that one request or result passes through, in order. What
// it touches on the way without a step of its own is listed below the table.
type walk struct {
	name    string
	steps   []walkStep
	touched []string          // files
	reasons map[string]string // by family: how the line of its touched files begins
}

type walkStep struct{ file, name string }

// files returns the files that a walk names, without repeats.
func (w *walk) files() (files []string) {
	for _, s := range w.steps {
		if !slices.Contains(files, s.file) {
			files = append(files, s.file)
		}
	}
	return files
}

// walksOf returns the walks of docs/architecture.md: the sections whose headings begin with "How a".
func walksOf(page string) (walks []walk) {
	for _, section := range strings.Split(page, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(title, "How a ") {
			continue
		}
		w := walk{name: title}
		for _, row := range pageRow.FindAllStringSubmatch(text, -1) {
			for _, name := range pageName.FindAllStringSubmatch(row[2], -1) {
				w.steps = append(w.steps, walkStep{row[1], name[1]})
			}
		}
		if _, list, ok := strings.Cut(text, alsoTouched); ok {
			for _, file := range pageFile.FindAllStringSubmatch(list, -1) {
				w.touched = append(w.touched, file[1])
			}
			w.reasons = map[string]string{}
			for _, line := range touchedLine.FindAllStringSubmatch(list, -1) {
				w.reasons[line[2]] = line[1]
			}
		}
		walks = append(walks, w)
	}
	return walks
}

// checkWalk checks that each function of a walk is called by one that the walk names before it.
func (c *sourceCode) checkWalk(t *testing.T, w walk, calls map[*types.Func]map[*types.Func]bool) {
	t.Helper()
	var before []*types.Func
	for i, s := range w.steps {
		_, last, qualified := strings.Cut(s.name, ".")
		if !qualified {
			last = s.name
		}
		found := c.methods(s.file, last)
		if qualified {
			found = slices.DeleteFunc(found, func(f *types.Func) bool { return receiverName(f)+"."+last != s.name })
		}
		if i := slices.IndexFunc(found, func(f *types.Func) bool { return receiverName(f) == "" }); i >= 0 {
			found = found[i : i+1] // a name without a type means the function
		}
		if len(found) != 1 {
			var names []string
			for _, f := range found {
				names = append(names, strings.TrimPrefix(receiverName(f)+"."+last, "."))
			}
			t.Errorf("docs/architecture.md: %s: %s declares %d functions %s %v; want one; %s",
				w.name, s.file, len(found), s.name, names, c.whereIs(s.name))
			continue
		}
		if i > 0 && !slices.ContainsFunc(before, func(f *types.Func) bool { return calls[f][found[0]] }) {
			var callers []string
			for f := range calls {
				if calls[f][found[0]] {
					callers = append(callers, strings.TrimPrefix(receiverName(f)+"."+f.Name(), ".")+" in "+c.fset.Position(f.Pos()).Filename)
				}
			}
			slices.Sort(callers)
			t.Errorf("docs/architecture.md: %s: none of the names before it calls %s in %s, which is called by %s",
				w.name, s.name, s.file, someOf(callers))
		}
		before = append(before, found[0])
	}
}

// callGraph returns which functions of this package each calls or refers to. A function literal belongs
// to the function that it is in. A call through an interface calls each type that implements it, and a
// call of a function value calls each function of that type that is referred to as a value; values
// without parameters and results are too many to tell apart.
func (c *sourceCode) callGraph() map[*types.Func]map[*types.Func]bool {
	var pointers []types.Type
	for _, o := range c.info.Defs {
		if n, ok := o.(*types.TypeName); ok && !types.IsInterface(n.Type()) {
			if n, ok := n.Type().(*types.Named); ok && n.TypeParams().Len() == 0 {
				pointers = append(pointers, types.NewPointer(n))
			}
		}
	}
	implementing := map[*types.Interface][]types.Type{}
	values := map[string]map[*types.Func]bool{} // by type
	dynamic := map[*types.Func][]string{}
	calls := map[*types.Func]map[*types.Func]bool{}
	for f, d := range c.functions() {
		calls[f] = map[*types.Func]bool{}
		called := map[ast.Expr]bool{}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				fun := ast.Unparen(n.Fun)
				called[fun] = true
				if s, ok := fun.(*ast.SelectorExpr); ok {
					called[s.Sel] = true
				}
				if sig, ok := signatureOf(c.info.TypeOf(fun)); ok && sig.Params().Len()+sig.Results().Len() > 0 {
					dynamic[f] = append(dynamic[f], valueType(sig))
				}
			case *ast.SelectorExpr:
				if m, ok := c.info.Uses[n.Sel].(*types.Func); ok && !called[n] {
					called[n.Sel] = true
					c.addValue(values, n, m)
				}
			case *ast.Ident:
				m, ok := c.info.Uses[n].(*types.Func)
				if !ok {
					break
				}
				if !called[n] {
					c.addValue(values, n, m)
				}
				if m.Pkg() == c.pkg {
					calls[f][m.Origin()] = true
				}
				if recv := m.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
					iface, _ := recv.Type().Underlying().(*types.Interface)
					if _, ok := implementing[iface]; !ok {
						implementing[iface] = slices.DeleteFunc(slices.Clone(pointers), func(p types.Type) bool {
							return !types.Implements(p, iface)
						})
					}
					for _, p := range implementing[iface] {
						if o, _, _ := types.LookupFieldOrMethod(p, true, c.pkg, m.Name()); o != nil {
							if m, ok := o.(*types.Func); ok {
								calls[f][m.Origin()] = true
							}
						}
					}
				}
			}
			return true
		})
	}
	for f, types := range dynamic {
		for _, t := range types {
			maps.Copy(calls[f], values[t])
		}
	}
	return calls
}

func signatureOf(t types.Type) (*types.Signature, bool) {
	if t == nil {
		return nil, false
	}
	sig, ok := t.Underlying().(*types.Signature)
	return sig, ok
}

// addValue notes that a function is referred to as a value.
func (c *sourceCode) addValue(values map[string]map[*types.Func]bool, e ast.Expr, f *types.Func) {
	if sig, ok := c.info.TypeOf(e).(*types.Signature); ok {
		key := valueType(sig)
		if values[key] == nil {
			values[key] = map[*types.Func]bool{}
		}
		values[key][f.Origin()] = true
	}
}

// valueType returns the type of a function value, without the names of parameters.
func valueType(sig *types.Signature) string {
	var parts []string
	for _, tuple := range []*types.Tuple{sig.Params(), sig.Results()} {
		for v := range tuple.Variables() {
			parts = append(parts, v.Type().String())
		}
		parts = append(parts, "->")
	}
	return fmt.Sprint(parts, sig.Variadic())
}

// creations is how many creations are measured, each by itself: what runs now and then, such as the looks
// of a timer, is not in all of them.
const creations = 5

// TestWalkOfCreation compares the walk of a creation with what one POST /v1/tasks runs: each function that it names,
// and no file but those that it names or lists as also touched.
func TestWalkOfCreation(t *testing.T) {
	wire.Long(t)
	sequential(t)
	if runtime.GOOS != "linux" {
		wire.Skip(t, "the page lists base_linux.go")
	}
	t.Parallel()
	page := string(readFile(t, "docs/architecture.md"))
	walks := walksOf(page)
	i := slices.IndexFunc(walks, func(w walk) bool { return w.name == "How a request becomes a task" })
	if i < 0 {
		t.Fatal("docs/architecture.md: no walk of a creation")
	}
	p := startCovered(t)
	body := `{"namespace":"walk","name":"one","context":{"n":1}}`
	create := func() {
		req := must(http.NewRequest("POST", p.url+"/v1/tasks", strings.NewReader(body)))(t)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", rand.Text())
		req.Header.Set("X-API-Key", surfaceKeys[0].Key)
		readAnswer(t, must(http.DefaultClient.Do(req))(t)).want(201)
	}
	create() // what the first one prepares for all is not measured
	s := ownSources(t)
	var ran []coveredFunctions
	for range creations {
		p.tell("")
		create()
		dir := t.TempDir()
		p.tell(dir)
		ran = append(ran, s.covered(t, dir))
	}
	checkCoverage(t, walks[i], ran)
}

// coverageControl is a file of the program that startCovered builds. A line on descriptor 3 is a directory for
// the counters of coverage, or is empty to clear them. The result goes to descriptor 4.
const coverageControl = `package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime/coverage"
)

func init() {
	commands, results := bufio.NewScanner(os.NewFile(3, "commands")), os.NewFile(4, "results")
	go func() {
		for commands.Scan() {
			var err error
			if dir := commands.Text(); dir == "" {
				err = coverage.ClearCounters()
			} else {
				err = errors.Join(coverage.WriteMetaDir(dir), coverage.WriteCountersDir(dir))
			}
			fmt.Fprintln(results, err)
		}
	}()
}
`

// coveredProgram is a running server that counts what it runs.
type coveredProgram struct {
	t        *testing.T
	url      string
	commands io.Writer
	results  *bufio.Reader
}

// startCovered builds the program with counters of coverage and serves a template of one builtin step, with authentication
// and a store on disk.
func startCovered(t *testing.T) *coveredProgram {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source") // a copy, because an overlay cannot add a file that is covered
	list := must(exec.Command("go", "list", "-f", `{{join .GoFiles "\n"}}{{"\n"}}{{join .EmbedFiles "\n"}}`, ".").Output())(t)
	for _, file := range append(strings.Fields(string(list)), "go.mod", "go.sum") {
		to := filepath.Join(source, file)
		noError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		noError(t, os.WriteFile(to, readFile(t, file), 0o600))
	}
	writeFile(t, filepath.Join(source, coverageFile), []byte(coverageControl))
	build := exec.CommandContext(t.Context(), "go", "build", "-C", source, "-trimpath", "-covermode=atomic", "-coverpkg=.", "-o", "../program", ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	noError(t, os.Mkdir(filepath.Join(dir, "templates"), 0o700))
	writeFile(t, filepath.Join(dir, "templates", "one.json"), []byte(`{"name":"one","namespace_name":"walk","version":"1.0.0",
		"identity_strategy":"always_unique","steps":[{"name":"s","handler":{"callable":"builtin:echo"}}]}`))
	writeFile(t, filepath.Join(dir, "stepwell.toml"), fmt.Appendf(nil, `[orchestration.web.auth]
enabled = true
api_keys_enabled = true
api_keys = [{key = %q, permissions = ["tasks:*"], description = "client"}]
`, surfaceKeys[0].Key))
	c := exec.CommandContext(t.Context(), filepath.Join(dir, "program"), "--config", filepath.Join(dir, "stepwell.toml"),
		"--data", filepath.Join(dir, "data"), "--templates", filepath.Join(dir, "templates"), "--quiet", "--print-ready",
		"--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0")
	c.Env = append(os.Environ(), "GOCOVERDIR="+dir)
	c.Stderr = t.Output()
	commandsEnd, commands := pipe(t)
	results, resultsEnd := pipe(t)
	c.ExtraFiles = []*os.File{commandsEnd, resultsEnd}
	stdout := must(c.StdoutPipe())(t)
	noError(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	var ready readyReport
	noError(t, json.NewDecoder(stdout).Decode(&ready))
	return &coveredProgram{t, ready.OrchestrationURL, commands, bufio.NewReader(results)}
}

// coverageFile is the name of the file with coverageControl, which is not of the program.
const coverageFile = "main_coverage.go"

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	noError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// tell has the program write its counters to a directory, or clear them if that is empty.
func (p *coveredProgram) tell(dir string) {
	p.t.Helper()
	must(fmt.Fprintln(p.commands, dir))(p.t)
	if result := must(p.results.ReadString('\n'))(p.t); result != "<nil>\n" {
		p.t.Fatal(result)
	}
}

// coveredFunctions are the names of the functions that ran, by file, as walks call them.
type coveredFunctions map[string]map[string]bool

// coveredBlock matches a line of a profile for a block that ran: its file and its line.
var coveredBlock = regexp.MustCompile(`(?m)^[^:\n]*?(\w+\.go):(\d+)\.\d+,\d+\.\d+ \d+ [1-9]\d*$`)

// covered returns the functions that ran by the counters in a directory.
func (s *sources) covered(t *testing.T, dir string) coveredFunctions {
	t.Helper()
	profile := filepath.Join(dir, "profile")
	if out, err := exec.Command("go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+profile).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ran := coveredFunctions{}
	for _, block := range coveredBlock.FindAllStringSubmatch(string(readFile(t, profile)), -1) {
		file, line := block[1], must(strconv.Atoi(block[2]))(t)
		if file == coverageFile {
			continue
		}
		if s.files[file] == nil {
			t.Fatalf("no source %s in %s", file, block[0])
		}
		if ran[file] == nil {
			ran[file] = map[string]bool{}
		}
		ran[file][s.declarationAt(file, line)] = true
	}
	return ran
}

// declarationAt returns the name of the function, as Type.method for a method, or of the variable whose declaration has a
// line.
func (s *sources) declarationAt(file string, line int) string {
	at := func(pos token.Pos) int { return s.fset.Position(pos).Line }
	for _, d := range s.files[file].Decls {
		if at(d.Pos()) > line || line > at(d.End()) {
			continue
		}
		if d, ok := d.(*ast.FuncDecl); ok {
			return functionName(d)
		}
	}
	return fmt.Sprintf("a function at line %d", line)
}

// functionName returns the name of a function as walks call it.
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	recv := d.Recv.List[0].Type
	for {
		switch r := recv.(type) {
		case *ast.StarExpr:
			recv = r.X
		case *ast.IndexExpr:
			recv = r.X
		case *ast.IndexListExpr:
			recv = r.X
		default:
			return types.ExprString(recv) + "." + d.Name.Name
		}
	}
}

// runs reports whether a function of a walk ran.
func (c coveredFunctions) runs(s walkStep) bool {
	for name := range c[s.file] {
		_, method, _ := strings.Cut(name, ".")
		if name == s.name || method == s.name {
			return true
		}
	}
	return false
}

// checkCoverage compares a walk with what ran in each creation. A file must be on the page if every creation
// ran some of it, and may be there if any did.
func checkCoverage(t *testing.T, w walk, ran []coveredFunctions) {
	t.Helper()
	in := func(file string) (times int) {
		for _, r := range ran {
			if r[file] != nil {
				times++
			}
		}
		return times
	}
	for _, s := range w.steps {
		if !slices.ContainsFunc(ran, func(r coveredFunctions) bool { return r.runs(s) }) {
			t.Errorf("docs/architecture.md: %s: POST /v1/tasks does not run %s in %s", w.name, s.name, s.file)
		}
	}
	var idle []string
	touched := slices.DeleteFunc(slices.Clone(w.touched), func(file string) bool { return slices.Contains(w.files(), file) })
	if len(touched) < len(w.touched) {
		t.Errorf("docs/architecture.md: %s: files with steps of the walk are listed as also touched", w.name)
	}
	touched = slices.DeleteFunc(touched, func(file string) bool {
		if in(file) == 0 {
			idle = append(idle, file)
		}
		return in(file) == 0
	})
	var missing []string
	for _, file := range slices.Sorted(maps.Keys(ran[0])) {
		if in(file) == len(ran) && !slices.Contains(w.files(), file) && !slices.Contains(touched, file) {
			names := slices.Sorted(maps.Keys(ran[0][file]))
			missing = append(missing, file+": "+strings.Join(names, ", "))
			touched = append(touched, file)
		}
	}
	if len(idle)+len(missing) > 0 {
		t.Errorf("docs/architecture.md: %s: the list of what POST /v1/tasks also touches is not true.\n"+
			"It lacks %d files, in which these functions run:\n\t%s\nIt has %d files in which nothing runs: %s\n"+
			"The list as it should stand:\n%s", w.name, len(missing), strings.Join(missing, "\n\t"),
			len(idle), strings.Join(idle, ", "), w.listByFamily(touched))
	}
}

// listByFamily returns files as a list with a line for each family, which begins as the page has it.
func (w *walk) listByFamily(files []string) string {
	var lines []string
	for i, f := range floors {
		line := cmp.Or(w.reasons[f.family], "- "+f.family+" (why?): ")
		column, separator := len(line), ""
		for _, file := range slices.Sorted(slices.Values(files)) {
			if family(file) != i {
				continue
			}
			if column += len(file) + 4; column > 118 && separator != "" {
				separator, column = ",\n  ", len(file)+6
			}
			line += separator + "`" + file + "`"
			separator = ", "
		}
		if separator != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
