package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

// TestGarbageIsBounded expects the collector to run more often while much memory is in use.
func TestGarbageIsBounded(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 10 << 20: 100, 32 << 20: 99, 64 << 20: 49, 1 << 30: 25, 1 << 50: 25} {
		if got := garbagePercent(live); got != want {
			t.Errorf("%d bytes in use: got %d percent; want %d", live, got, want)
		}
	}
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	percent := func() uint64 {
		runtime.GC()
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := percent()
	(&process{getenv: func(string) string { return "50" }}).boundGarbage(t.Context())
	if got := percent(); got != before {
		t.Errorf("got %d percent although the environment sets GOGC; want %d", got, before)
	}
	ctx, cancel := context.WithCancel(t.Context())
	(&process{getenv: func(string) string { return "" }}).boundGarbage(ctx)
	much := make([]byte, 256<<20)
	eventually(t, "more collections", func() bool { return percent() == garbageShare })
	runtime.KeepAlive(much)
	eventually(t, "fewer collections", func() bool { return percent() > garbageShare })
	cancel()
	debug.SetGCPercent(int(before))
	if got := percent(); got != before {
		t.Errorf("got %d percent after the end; want %d", got, before)
	}
}

// runConfig runs "stepwell config" with the variables given, after their names.
func runConfig(env map[string]string, args ...string) (stdout string, err error) {
	in := configInput{env: env}
	var out, errOut bytes.Buffer
	p := &process{getenv: in.getenv, environ: in.environ(), stdout: &out, stderr: &errOut}
	err = p.run(context.Background(), append([]string{"config"}, args...))
	return out.String() + errOut.String(), err
}

func writeConfigFiles(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		noError(t, os.WriteFile(filepath.FromSlash(name), []byte(text), 0o600))
	}
}

func TestConfigErrorsHideSecrets(t *testing.T) {
	for name, in := range map[string]configInput{
		"proxy":   {files: oneConfigFile("worker.http_proxy = 'ftp://me:hunter2@proxy'")},
		"no port": {files: oneConfigFile("worker.http_proxy = 'http://me:hun/hunter2@proxy:x'")},
		"target":  {files: oneConfigFile("worker.handlers.A = 'ftp://me:hunter2@h/?x=hunter2'")},
		"default": {files: oneConfigFile("worker.default_handler = 'me:hunter2@h'")},
		"header":  {files: oneConfigFile(`worker.http_headers.A = "hunter2\n"`)},
		"type":    {files: oneConfigFile("worker.http_headers.A = ['hunter2']")},
		"table":   {files: oneConfigFile("worker.http_headers = 'hunter2'")},
		"program": {files: oneConfigFile(`worker.exec_env.A = "hunter2\u0000"`)},
		"twice":   {files: oneConfigFile("[worker.http_headers]", "A = 'hunter2'", "a = 'hunter2'")},
		"syntax":  {files: oneConfigFile("worker.http_headers.A = hunter2")},
		"json":    {env: map[string]string{"STEPWELL_WORKER__HTTP_HEADERS": `{"A": "hunter2"`}},
		"map":     {env: map[string]string{"STEPWELL_WORKER__HANDLERS": `{"A": "http://me:hunter2@h"`}},
		"name":    {files: oneConfigFile("worker.handlers.'http://me:hunter2@*h' = 1")},
		"names":   {files: oneConfigFile("worker.handlers.'http://me:hunter2@*h' = 'builtin:x'")},
		"unknown": {env: map[string]string{"STEPWELL_WORKER__HTTP_HEADER": "hunter2"}},
	} {
		if _, _, err := in.load(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v; want an error with nothing secret", name, err)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		env   map[string]string
		args  []string
		want  string // of the error; "" for ok
	}{
		{"the file here", oneConfigFile("role = 'all'"), nil, nil, ""},
		{"the file here, broken", oneConfigFile("role = 1"), nil, nil, "stepwell.toml:1: role: want a string"},
		{"none", nil, nil, nil, "no stepwell.toml here"},
		{"named", map[string]string{"a": "role = 'all'", "b": "[log]"}, nil, []string{"a", "b"}, ""},
		{"named, missing", nil, nil, []string{"a"}, "a: reading the file"},
		{"all problems", map[string]string{"a": "rol = 1", "b": "x = 1\ny = 1"}, nil, []string{"a", "b"},
			"configuration: 3 problems\n  a:1: rol: unknown key; did you mean role?\n" +
				"  b:1: x: unknown key\n  b:2: y: unknown key"},
		{"with its overlay", map[string]string{"a.toml": "", "a.prod.toml": "x = 1"}, nil,
			[]string{"--env", "prod", "a.toml"}, "a.prod.toml:1: x: unknown key"},
		{"without variables of keys", oneConfigFile("role = 'all'"),
			map[string]string{"STEPWELL_STORE__SYNC": "x"}, nil, ""},
		{"a builtin that does not exist", oneConfigFile("[worker.handlers]", `"Pay::*" = "builtin:nope"`), nil, nil,
			`configuration: stepwell.toml:2: worker.handlers."Pay::*": `},
		{"handlers with impossible ports", oneConfigFile("[worker]", "default_handler = 'http://h:0'",
			"[worker.handlers]", "A = 'http://h:99999'", "B = 'builtin:noop'"), nil, nil,
			"configuration: 2 problems\n  stepwell.toml:2: worker.default_handler: the URL is malformed\n" +
				"  stepwell.toml:4: worker.handlers.A: the URL is malformed"},
		{"a handler's URL that cannot be called", oneConfigFile("[worker]", "default_handler = 'http://host:0x1/'"), nil, nil,
			`configuration: stepwell.toml:2: worker.default_handler: `},
		{"STEPWELL_CONFIG", map[string]string{"a": "x = 1"}, map[string]string{"STEPWELL_CONFIG": "a"}, nil, "a:1: x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			writeConfigFiles(t, tt.files)
			out, err := runConfig(tt.env, append([]string{"validate"}, tt.args...)...)
			switch {
			case tt.want == "" && (err != nil || out != "ok\n"):
				t.Errorf("got %q, %v; want ok", out, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || out != ""):
				t.Errorf("got %q, %v; want %s", out, err, tt.want)
			}
		})
	}
}

func TestBuiltCommit(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "69f7c92d5ac49bb42ad304a2d635c2e29690b24c"}
	for _, tt := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{nil, "no commit"},
		{&debug.BuildInfo{}, "no commit"},
		{&debug.BuildInfo{Settings: []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}}, "commit 69f7c92d5ac4"},
		{&debug.BuildInfo{Settings: []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}},
			"commit 69f7c92d5ac4 with changes"},
	} {
		if got := builtCommit(tt.info); got != tt.want {
			t.Errorf("got %q; want %q", got, tt.want)
		}
	}
	defer func(before string) { commit = before }(commit)
	commit = "0123456789abcdef" // as -ldflags sets it
	if got := builtCommit(&debug.BuildInfo{}); got != "commit 0123456789ab" {
		t.Errorf("got %q; want the commit of the build", got)
	}
}

// TestLicenses compares what version --licenses prints with the texts that come with Go and with each module.
func TestLicenses(t *testing.T) {
	dirs := strings.Fields(string(must(exec.Command("go", "list", "-m", "-f", "{{if not .Main}}{{.Path}} {{.Dir}}{{end}}", "all").Output())(t)))
	dirs = append(dirs, "go", strings.TrimSpace(string(must(exec.Command("go", "env", "GOROOT").Output())(t))))
	want := ""
	for i := 0; i < len(dirs); i += 2 {
		files := append(must(filepath.Glob(filepath.Join(dirs[i+1], "LICENSE*")))(t), must(filepath.Glob(filepath.Join(dirs[i+1], "COPYING*")))(t)...)
		if len(files) != 1 {
			wire.Skip(t, "%s has the licenses %q; needs one", dirs[i+1], files) // a distribution may leave out that of Go
		}
		want += "== " + dirs[i] + " ==\n\n" + string(must(os.ReadFile(files[0]))(t)) + "\n"
	}
	if got := runCLI(nil, "", "version", "--licenses"); got.stdout != want || got.code != 0 {
		t.Errorf("got %d, %s%s; want %s", got.code, got.stdout, got.stderr, want)
	}
}

// TestExitCodesOfCommands runs every command in each of the ways that docs/reference/cli.md gives an exit code for.
func TestExitCodesOfCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "state.json", []byte("{}"))
	writeFile(t, "state.jsonl", []byte("{}"))
	answered := map[int]int{401: exitRefused, 403: exitRefused, 404: exitNotFound, 408: exitTimedOut, 400: exitUsage, 422: exitUsage,
		409: exitFailed, 500: exitFailed, 503: exitFailed}
	services := map[string]int{"http://127.0.0.1:1": exitUnreachable}
	for status, code := range answered {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if status != 404 || r.Method+r.URL.Path != "GET/_stepwell/clock" { // which tells fixture mode
				w.WriteHeader(status)
			}
			fmt.Fprintf(w, `{"error":{"code":"CODE","message":"the answer is %d"}}`, status)
		}))
		defer h.Close()
		services[h.URL] = code
	}
	want := func(code int, stdin string, args ...string) {
		t.Helper()
		if got := runCLI(map[string]string{"HOME": "nowhere"}, stdin, args...); got.code != code {
			t.Errorf("%q: got exit code %d, %s; want %d", args, got.code, got.stderr, code)
		}
	}
	commandTable().each(func(c *command) {
		words := strings.Fields(c.name)
		want(exitUsage, "", append(words, "--unknown-flag")...)
		least, most := c.limits()
		for range least {
			want(exitUsage, "", words...)
			words = append(words, "x")
		}
		if most < 10 {
			want(exitUsage, "", append(strings.Fields(c.name), make([]string, most+1)...)...)
		}
		o := newOptions(bareProcess, c)
		if c.define(o); o.Lookup("url") == nil || c.name == "mcp" {
			return
		}
		example := c.examples[0]
		if line, ok := urlExamples[c.name]; ok {
			example = line
		}
		example, _, _ = strings.Cut(example, " > ")
		for url, code := range services {
			want(code, "{}", append(shellWords(strings.ReplaceAll(example, "URL", url)), "--url", url)...)
		}
	})
	for line, code := range map[string]int{
		"run missing.json": exitNotFound, "run demo/diamond --stub start=@missing": exitNotFound, "run demo/diamond --context @missing": exitNotFound,
		"serve --config missing.toml": exitNotFound, "serve --templates missing --memory": exitNotFound,
		"task create a --context @missing": exitNotFound, "step complete latest a --result @missing": exitNotFound,
		"dlq update latest --metadata @missing": exitNotFound,
		"fixture stub add @missing":             exitNotFound, "fixture state put missing": exitNotFound,
		"template check missing.json": exitNotFound, "template check missing": exitNotFound, "template convert missing.yaml": exitNotFound,
		"template graph missing.json": exitNotFound, "config validate": exitNotFound, "config validate missing.toml": exitNotFound,
		"config show --config missing.toml": exitNotFound, "auth generate-token --role task-submitter": exitNotFound,
		"auth validate-token --token x --public-key missing": exitNotFound, "store check --data missing": exitNotFound,
		"store compact --data missing": exitNotFound, "store export --data missing": exitNotFound, "store import missing": exitNotFound,
		"task create a --context @state.json --url http://127.0.0.1:1": exitUnreachable, "task create a --context {": exitUsage,
		"task create a --context -": exitUsage, "task list --since soon": exitUsage, "openapi --role x": exitUsage,
		"healthcheck --timeout soon": exitUsage, "healthcheck --url ::": exitUsage, "template convert state.json --to x": exitUsage,
		"template check state.json": exitFailed, "store check --data state.json": exitFailed,
	} {
		want(code, "no JSON", strings.Fields(line)...)
	}
}

// urlExamples are command lines where the first example asks no service, or another.
var urlExamples = map[string]string{
	"fixture clock":  "fixture clock next",
	"template graph": "template graph demo/diamond",
	"store export":   "store export -",
}

// TestWords refuses the words in testdata/words.txt in sources, documentation and openapi.json.
func TestWords(t *testing.T) {
	sequential(t)
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.go", "*.md", "docs/*.md", "docs/*/*.md", "tasker/*.*", "examples/*/*.md", "packages/*/*.md",
		"openapi.json", "web/*/*.js"} {
		pages = append(pages, must(filepath.Glob(pattern))(t)...)
	}
	for line := range strings.Lines(string(readFile(t, "testdata/words.txt"))) {
		pattern, instead, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		rule := regexp.MustCompile("(?m)" + pattern)
		for _, page := range pages {
			if strings.HasSuffix(page, "_test.go") || page == "CHANGELOG.md" {
				continue
			}
			text := readFile(t, page)
			for _, at := range rule.FindAllIndex(text, -1) {
				t.Errorf("%s:%d: %q: write: %s", page, 1+bytes.Count(text[:at[0]], []byte("\n")), text[at[0]:at[1]], instead)
			}
		}
	}
}
