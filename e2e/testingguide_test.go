package e2e

// The guide to testing with the fixture: its listings are the files of the repository, its
// suites run in their languages, and its commands print what it shows.

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testingGuide = repository("docs/testing.md")

// TestTestingGuideSuites runs the guide's suites with this program and with frequent garbage
// collections, which must not close the pipe that keeps the program running. The suites end
// only if no process is left that holds their standard error.
func TestTestingGuideSuites(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, tt := range []struct{ command, passed string }{
		{"go test -count=1 -v .", "(?m)^--- PASS"},
		{"python3 -m unittest -v test_order.py", `\.\.\. ok`},
		{"node --gc-interval=500 --test --test-reporter=tap order.test.mjs", "(?m)^ok "},
	} {
		args := strings.Fields(tt.command)
		t.Run(args[0], func(t *testing.T) {
			if _, err := exec.LookPath(args[0]); err != nil {
				t.Skipf("needs %s", args[0])
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			suite := exec.CommandContext(ctx, args[0], args[1:]...)
			suite.Dir = repository("examples/testing")
			suite.Env = append(os.Environ(), "STEPWELL="+programFile(t), "PYTHONDONTWRITEBYTECODE=1",
				"GOGC=1")
			said, err := suite.CombinedOutput()
			if n := len(regexp.MustCompile(tt.passed).FindAll(said, -1)); err != nil || n != 3 {
				t.Errorf("%s: %v, %d tests passed; want 3\n%s", tt.command, err, n, said)
			}
		})
	}
}

// TestTestingGuideFiles checks that a block below the name of a file is the content of that
// file, and short enough to copy.
func TestTestingGuideFiles(t *testing.T) {
	t.Parallel()
	listing := regexp.MustCompile("(?s)\n\\[`([^`]+)`\\]\\(([^)]+)\\)[^\n]*:\n\n```[a-z]+\n(.*?)```\n")
	listed := listing.FindAllSubmatch(readFile(t, testingGuide), -1)
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

// TestTestingGuideSession types all of the guide's commands into one shell.
func TestTestingGuideSession(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(repository("examples"))); err != nil {
		t.Fatal(err)
	}
	commands, outputs := consoleSession(t, testingGuide, string(readFile(t, testingGuide)))
	typeCommands(t, commands, outputs, dir, serve(t, "--fixture"))
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
