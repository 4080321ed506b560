package e2e

// The guide to testing and the examples: listings are the files of the repository, suites run in their
// languages, and commands print what the guide shows.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

var testingGuide = repository("docs/testing.md")

const (
	pytest   = "python3 -m pytest -p stepwell.pytest_plugin -p no:cacheprovider -v"
	nodeTest = "node --test --test-reporter=tap"
)

// TestExampleSuites runs the suites of the examples in Python and JavaScript with this program, and with
// frequent garbage collections, which must not close the pipe that keeps the program running. The suites
// end only if no process is left that holds their standard error. Those in Go are packages of their own.
func TestExampleSuites(t *testing.T) {
	t.Parallel()
	slow(t)
	const python, node = "python3 -m unittest -v", "node --gc-interval=500 --test --test-reporter=tap"
	for _, tt := range []struct {
		dir, command string
		tests        int
	}{{"testing", pytest, 2}, {"testing", node, 2}, {"documents", python, 5}, {"documents", pytest, 5}, {"approval", node, 4}} {
		t.Run(tt.dir+" "+tt.command, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir() // a copy, beside which the package for JavaScript can be installed
			wire.Must(0, os.CopyFS(filepath.Join(dir, tt.dir), os.DirFS(repository("examples/"+tt.dir))))(t)
			writeFile(t, filepath.Join(dir, "worker.py"), readFile(t, repository("examples/worker.py")))
			said, err := suite(t, filepath.Join(dir, tt.dir), tt.command)
			if n := len(regexp.MustCompile(`(?m)\.\.\. ok|^ok |::\w+ PASSED`).FindAllString(said, -1)); err != nil || n != tt.tests {
				t.Errorf("%v, %d tests passed; want %d\n%s", err, n, tt.tests, said)
			}
		})
	}
}

// TestExampleSuiteFails checks that a suite with a wrong expectation says in one line what happened.
func TestExampleSuiteFails(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	for _, tt := range []struct{ file, command, from, to, want string }{
		{"test_order.py", pytest, `"charge", 2`, `"charge", 1`,
			"E       AssertionError: 2 calls match, 1 wanted: attempt 1 failed (declined), attempt 2 succeeded"},
		{"order.test.mjs", nodeTest, `"complete"`, `"error"`,
			`error: 'the task is complete, not error: the task is complete: nothing is left to do'`},
		{"stepwell.toml", pytest + " -k declined", `order.json`, `odrer.json`,
			"E       AssertionError: stepwell did not start: its output says why"},
		{"stepwell.toml", nodeTest + " --test-name-pattern=declined", `order.json`, `odrer.json`,
			"error: 'stepwell did not start: its output says why'"},
	} {
		t.Run(tt.file+" "+tt.to, func(t *testing.T) {
			t.Parallel()
			dir, from := t.TempDir(), repository("examples/testing/")
			for _, name := range []string{"test_order.py", "order.test.mjs", "stepwell.toml", "order.json"} {
				text := string(readFile(t, filepath.Join(from, name)))
				if name == tt.file {
					text = strings.Replace(text, tt.from, tt.to, 1)
				}
				writeFile(t, filepath.Join(dir, name), []byte(text))
			}
			if said, err := suite(t, dir, tt.command); err == nil || strings.Count(said, tt.want) != 1 {
				t.Errorf("got %v and\n%s\nwant one line with\n%s", err, said, tt.want)
			}
		})
	}
}

// TestOwnHandlers runs the suites of the guide that test a handler, and checks that a test which expects another status
// of a task that it refused says in one line what the handler replied.
func TestOwnHandlers(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	const want = "the task is blocked_by_failures, not complete: step \"weigh\" failed for good just now, on attempt 1 of 3: " +
		"127.0.0.1:PORT replied 400 Bad Request: the parcel is empty (http_400); fix what failed, then reset it"
	guide := string(readFile(t, testingGuide))
	anyPort := regexp.MustCompile(`127.0.0.1:\d+ replied`)
	told := func(text string) int {
		return strings.Count(anyPort.ReplaceAllString(text, "127.0.0.1:PORT replied"), want)
	}
	if told(guide) != 1 {
		t.Errorf("the guide does not show %q", want)
	}
	for _, tt := range []struct{ file, command string }{
		{"parcel_test.go", "go test ."}, {"test_parcel.py", pytest}, {"parcel.test.mjs", nodeTest},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeListings(t, dir, guide)
			asModule(t, dir)
			if said, err := suite(t, dir, tt.command); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			file := filepath.Join(dir, tt.file)
			writeFile(t, file, []byte(strings.Replace(string(readFile(t, file)), `"blocked_by_failures"`, `"complete"`, 1)))
			said, err := suite(t, dir, tt.command)
			said = regexp.MustCompile("(?m)^FAILED .*").ReplaceAllString(said, "") // pytest's summary, which a CI system gets uncut
			if err == nil || told(said) != 1 {
				t.Errorf("got %v and\n%s\nwant one line with\n%s", err, said, want)
			}
		})
	}
}

// asModule makes a directory a module of another application, which requires this one as the guide says.
func asModule(t *testing.T, dir string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, "go.mod"), []byte("module app\n\ngo 1.26\n"))
	command := regexp.MustCompile("\\| Go \\| `(go .*?)`").FindStringSubmatch(string(readFile(t, testingGuide)))[1]
	command = strings.Replace(command, "../stepwell", wire.Must(filepath.Abs(".."))(t), 1)
	edit := exec.CommandContext(t.Context(), "sh", "-ec", command)
	edit.Dir = dir
	if said, err := edit.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, command, said)
	}
}

// suite runs a suite of tests with this program and the packages, and returns what it said.
func suite(t *testing.T, dir, command string) (said string, err error) {
	t.Helper()
	args := strings.Fields(command)
	wire.Need(t, args[0])
	if strings.HasPrefix(command, pytest) && exec.Command("python3", "-c", "import pytest").Run() != nil {
		wire.Lack(t, "pytest", "needs pytest")
	}
	if args[0] == "node" {
		modules := filepath.Join(dir, "node_modules")
		os.Mkdir(modules, 0o755) // it may be there from a run before
		os.Symlink(wire.Must(filepath.Abs(repository("packages/npm")))(t), filepath.Join(modules, "stepwell"))
	}
	program := programFile(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	suite := exec.CommandContext(ctx, args[0], args[1:]...)
	suite.Dir = dir
	suite.Env = append(os.Environ(), "STEPWELL="+program, "PYTHONDONTWRITEBYTECODE=1", "GOFLAGS=",
		"PYTHONPATH="+wire.Must(filepath.Abs(repository("packages/python/src")))(t))
	text, err := suite.CombinedOutput()
	return string(text), err
}

// TestSuiteInModule uses the service and the helper in a module of another application, as the guide says. A passing
// result is cached until a file that Stepwell reads changes.
func TestSuiteInModule(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	app := t.TempDir()
	for _, name := range []string{"order_test.go", "stepwell.toml", "order.json"} {
		writeFile(t, filepath.Join(app, name), readFile(t, repository("examples/testing/"+name)))
		old := time.Now().Add(-time.Hour) // results that depend on new files are not cached
		wire.Must(0, os.Chtimes(filepath.Join(app, name), old, old))(t)
	}
	asModule(t, app)
	for _, want := range []string{"ok ", "(cached)"} {
		if said, err := suite(t, app, "go test ."); err != nil || !strings.Contains(said, want) {
			t.Fatalf("%v\n%s; want %s", err, said, want)
		}
	}
	template := filepath.Join(app, "order.json")
	edited := strings.Replace(string(readFile(t, template)), `"max_attempts": 4`, `"max_attempts": 1`, 1)
	writeFile(t, template, []byte(edited))
	want := `the task is blocked_by_failures, not waiting_for_retry: step "charge" failed for good just now, on attempt 1 of 1: declined (`
	said, err := suite(t, app, "go test .")
	if err == nil || strings.Count(said, want) != 1 || strings.Count(said, "_test.go:") != 2 {
		t.Errorf("%v\n%s\nwant the edited template to fail both tests with a line each, one with %s", err, said, want)
	}
}

// TestExamplePictures checks that the picture of each example shows the graph of its template.
func TestExamplePictures(t *testing.T) {
	t.Parallel()
	slow(t)
	wire.Need(t, "node")
	for _, name := range []string{"order", "documents", "approval"} {
		dir := wire.Must(filepath.Abs(repository("examples/" + name)))(t)
		template := filepath.Join(dir, name+".yaml")
		draw := exec.CommandContext(t.Context(), "node", repository("testdata/graph.mjs"))
		draw.Stdin = strings.NewReader(wantExit(t, 0, nil, "template", "convert", "--to", "json", template))
		drawn, err := draw.CombinedOutput()
		if err != nil || string(drawn) != string(readFile(t, filepath.Join(dir, "graph.svg"))) {
			t.Errorf("%s/graph.svg is old: draw it as examples/README.md says (%v)", name, err)
		}
	}
}

// guideListing matches a block below the name of a file.
var guideListing = regexp.MustCompile("(?s)\n\\[`([^`]+)`\\]\\(([^)]+)\\)[^\n]*:\n\n```[a-z]+\n(.*?)```\n")

// TestTestingGuideFiles checks that a block below the name of a file is the content of that
// file, and short enough to copy, and that the guide counts the lines of each first test.
func TestTestingGuideFiles(t *testing.T) {
	t.Parallel()
	listed := guideListing.FindAllSubmatch(append(readFile(t, testingGuide), readFile(t, repository("docs/people.md"))...), -1)
	if len(listed) < 4 {
		t.Errorf("got %d listings; want the suites", len(listed))
	}
	for _, l := range listed {
		file := filepath.Join(repository("docs"), string(l[2]))
		if text := string(readFile(t, file)); text != string(l[3]) {
			t.Errorf("%s is not what the guide lists; to list it, copy it there", file)
		}
		if n := strings.Count(string(l[3]), "\n"); n >= 60 {
			t.Errorf("%s has %d lines; want less than 60", file, n)
		}
		if filepath.Base(file) != filepath.Base(string(l[1])) {
			t.Errorf("%s is called %s", file, l[1])
		}
	}
	for language, file := range map[string]string{
		"Python": "test_order.py", "JavaScript": "order.test.mjs", "Java": "OrderTest.java", "Go": "order_test.go",
	} {
		text := string(readFile(t, repository("examples/testing/"+file)))
		first := text[:regexp.MustCompile(`"waiting_for_retry"\);?(\n *\}(\);)?)*`).FindStringIndex(text)[1]]
		lines := len(regexp.MustCompile(`(?m)^.*\S`).FindAllString(first, -1))
		if language == "Java" {
			lines++ // the end of the class
		}
		row := fmt.Sprintf(`\| %s \| .* \| 0 \| %d \| `, language, lines)
		if lines > 10 || !regexp.MustCompile(row).Match(readFile(t, testingGuide)) {
			t.Errorf("the first test in %s has %d lines; want at most 10, and a row of the guide that says so", language, lines)
		}
	}
}

// TestTestingGuideSettings checks that the settings in the guides to testing and to fixture mode exist.
func TestTestingGuideSettings(t *testing.T) {
	t.Parallel()
	text := string(readFile(t, testingGuide)) + string(readFile(t, repository("docs/fixture.md")))
	known := map[string]bool{"STEPWELL_CONFIG": true, "STEPWELL_SOURCE": true}
	_, shown, _ := runProgram(t, nil, "config", "show")
	for _, m := range regexp.MustCompile(`(?m)^([a-z_.]+) `).FindAllStringSubmatch(shown, -1) {
		known[m[1]], known["STEPWELL_"+strings.ToUpper(strings.ReplaceAll(m[1], ".", "__"))] = true, true
	}
	named := regexp.MustCompile(`STEPWELL_\w+|\b(fixture|web|engine)\.[a-z_]{3,}\b`).FindAllString(text, -1)
	if len(named) < 10 {
		t.Errorf("got %q; want all settings", named)
	}
	for _, name := range named {
		if !known[name] {
			t.Errorf("there is no setting %s", name)
		}
	}
	_, help, _ := runProgram(t, nil, "serve", "--help")
	for _, flag := range regexp.MustCompile(`[ `+"`"+`"]--(fixture|memory|quiet|seed|listen|worker-listen|print-ready|ready-file|`+
		`exit-with-parent|max-lifetime|deterministic-ids|templates)\b`).FindAllString(text, -1) {
		if !strings.Contains(help, flag[1:]) {
			t.Errorf("there is no flag %s", flag[1:])
		}
	}
}
