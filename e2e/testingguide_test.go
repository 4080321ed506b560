package e2e

// The guide to testing and the examples: listings are the files of the repository, suites run in their
// languages, and commands print what the guide shows.

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

var testingGuide = repository("docs/testing.md")

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
	}{{"testing", python, 2}, {"testing", node, 2}, {"documents", python, 5}, {"approval", node, 4}} {
		t.Run(tt.dir+" "+tt.command, func(t *testing.T) {
			t.Parallel()
			said, err := suite(t, repository("examples/"+tt.dir), tt.command)
			if n := len(regexp.MustCompile(`(?m)\.\.\. ok|^ok `).FindAllString(said, -1)); err != nil || n != tt.tests {
				t.Errorf("%v, %d tests passed; want %d\n%s", err, n, tt.tests, said)
			}
		})
	}
}

// TestExampleSuiteFails checks that a suite with a wrong expectation says in one line what happened.
func TestExampleSuiteFails(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, tt := range []struct{ file, helper, command, from, to, want string }{
		{"test_order.py", "stepwell.py", "python3 -m unittest", `"charge", 2`, `"charge", 1`,
			"AssertionError: 2 calls match, 1 wanted: attempt 1 failed (declined), attempt 2 succeeded"},
		{"order.test.mjs", "stepwell.mjs", "node --test --test-reporter=tap", `"complete"`, `"error"`,
			`error: 'the task is complete, not error: the task is complete: nothing is left to do'`},
		{"test_order.py", "stepwell.py", "python3 -m unittest", `"order.json"`, `"odrer.json"`,
			"odrer.json did not start: it says above why"},
		{"order.test.mjs", "stepwell.mjs", "node --test --test-reporter=tap", `"order.json"`, `"odrer.json"`,
			"odrer.json did not start: it says above why"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			dir, from := t.TempDir(), repository("examples/testing/")
			for _, name := range []string{tt.file, tt.helper, "order.json"} {
				text := strings.Replace(string(readFile(t, filepath.Join(from, name))), tt.from, tt.to, 1)
				writeFile(t, filepath.Join(dir, name), []byte(text))
			}
			if said, err := suite(t, dir, tt.command); err == nil || strings.Count(said, tt.want) != 1 {
				t.Errorf("got %v and\n%s\nwant one line with\n%s", err, said, tt.want)
			}
		})
	}
}

// suite runs a suite of tests with this program, and returns what it said.
func suite(t *testing.T, dir, command string) (said string, err error) {
	t.Helper()
	args := strings.Fields(command)
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("needs %s", args[0])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	suite := exec.CommandContext(ctx, args[0], args[1:]...)
	suite.Dir = dir
	suite.Env = append(os.Environ(), "STEPWELL="+programFile(t), "PYTHONDONTWRITEBYTECODE=1")
	text, err := suite.CombinedOutput()
	return string(text), err
}

// TestSuiteInModule uses the service and the helper in a module of another application, as the guide says.
func TestSuiteInModule(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := t.TempDir()
	app := filepath.Join(dir, "app")
	for _, name := range []string{"order_test.go", "order.json"} {
		os.Mkdir(app, 0o755)
		writeFile(t, filepath.Join(app, name), readFile(t, repository("examples/testing/"+name)))
	}
	writeFile(t, filepath.Join(app, "go.mod"), []byte("module app\n\ngo 1.26\n"))
	if err := os.Symlink(wire.Must(filepath.Abs(".."))(t), filepath.Join(dir, "stepwell")); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readFile(t, testingGuide)), "```console\n")
	commands, _, _ := strings.Cut(text, "```")
	shell := exec.CommandContext(t.Context(), "sh", "-ec", commands+"go test .")
	shell.Dir = app
	shell.Env = append(os.Environ(), "STEPWELL="+programFile(t), "GOFLAGS=")
	if said, err := shell.CombinedOutput(); err != nil || strings.Count(commands, "\n") != 3 {
		t.Errorf("%v\n%s%s", err, commands, said)
	}
}

// TestExamplePictures checks that the picture of each example shows the graph of its template.
func TestExamplePictures(t *testing.T) {
	t.Parallel()
	slow(t)
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs node")
	}
	for _, name := range []string{"order", "documents", "approval"} {
		dir := repository("examples/" + name)
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
// file, and short enough to copy.
func TestTestingGuideFiles(t *testing.T) {
	t.Parallel()
	listed := guideListing.FindAllSubmatch(readFile(t, testingGuide), -1)
	if len(listed) < 4 {
		t.Errorf("got %d listings; want the suites", len(listed))
	}
	for _, l := range listed {
		file := filepath.Join(repository("docs"), string(l[2]))
		if text := string(readFile(t, file)); text != string(l[3]) {
			t.Errorf("%s is not what %s lists; to list it, copy it there", file, testingGuide)
		}
		if n := strings.Count(string(l[3]), "\n"); n >= 60 {
			t.Errorf("%s has %d lines; want less than 60", file, n)
		}
		if filepath.Base(file) != filepath.Base(string(l[1])) {
			t.Errorf("%s is called %s", file, l[1])
		}
	}
}

// TestTestingGuideSettings checks that the settings in the guide exist.
func TestTestingGuideSettings(t *testing.T) {
	t.Parallel()
	text := string(readFile(t, testingGuide))
	known := map[string]bool{"STEPWELL_CONFIG": true}
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

// TestTestingGuideCompose starts the image's program with both environments of the guide's
// compose file.
func TestTestingGuideCompose(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := t.TempDir()
	compose := string(readFile(t, repository("examples/testing/compose.yaml")))
	replace := strings.NewReplacer("/data", filepath.Join(dir, "data"), ":8080", portOf(t), ":8081", portOf(t),
		"9000-9099", "20000-60000")
	var env []string
	for _, v := range dockerfileEnv(t) {
		env = append(env, replace.Replace(v))
	}
	for _, v := range regexp.MustCompile(`(STEPWELL_\w+): "?([^"\s]+)`).FindAllStringSubmatch(compose, -1) {
		env = append(env, v[1]+"="+replace.Replace(v[2]))
	}
	p := launch(t, env, "--print-ready", "--fixture").awaitReady()
	url := p.api().do("POST", "/_stepwell/sandboxes", "").want(201).text("orchestration_url")
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("got the address %s; want the public host in it", url)
	}
	(&api{t, url}).do("GET", "/health/ready", "").want(200)
	wantExit(t, 0, env, "healthcheck", "--ready")
}
