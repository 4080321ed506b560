package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestConfigProblems(t *testing.T) {
	const noScope = "is neither an origin like https://api.example.com:8443 nor the name of a callable"
	for _, tt := range []struct {
		name string
		in   configInput
		want []string
	}{
		{"a table in tables",
			configInput{files: map[string]string{"stepwell.toml": "role = 'all'\n[" + strings.Repeat("a.", 24_000) + "a]\n"}},
			[]string{"stepwell.toml:2: not TOML: deeper than 64 levels"}},
		{"everything at once, in order",
			configInput{
				files: map[string]string{
					"stepwell.toml":      "rol = 'all'\n\n[store]\nsync = 'alwys'\npth = 'x'\n\n[log]\nlevel = 3\n",
					"stepwell.test.toml": "[web]\nmax_connections = 0",
				},
				env: map[string]string{
					"STEPWELL_ENV": "test", "STEPWELL_STORE__PTH": "x", "STEPWELL_ENGINE__JITTER": "maybe",
				},
				args: []string{"--listen", "nowhere"},
			},
			[]string{
				`stepwell.toml:1: rol: unknown key; did you mean role?`,
				`stepwell.toml:4: store.sync: "alwys" is not one of always, never`,
				`stepwell.toml:5: store.pth: unknown key; did you mean store.path?`,
				`stepwell.toml:8: log.level: want a string, got an integer`,
				`stepwell.test.toml:2: web.max_connections: 0 is not in the range from 1 to 1000000`,
				`env STEPWELL_ENGINE__JITTER: engine.jitter: "maybe" is not true or false`,
				`env STEPWELL_STORE__PTH: unknown variable; did you mean STEPWELL_STORE__PATH?`,
				`flag --listen: orchestration.web.listen: "nowhere" is not an address like 127.0.0.1:8080: ` +
					`the port is missing`,
			}},
		{"unknown keys and tables",
			configInput{files: oneConfigFile(
				"[stor]", "path = 'x'", "[web]", "listen = ':1'", "[[kiosk]]", "enabled = true",
				"[log.level.x]", "[worker]", "web = 1", `"allow.exec" = true`,
			)},
			[]string{
				`stepwell.toml:1: stor: unknown key; did you mean store?`,
				`stepwell.toml:4: web.listen: unknown key; did you mean orchestration.web.listen?`,
				`stepwell.toml:5: kiosk: unknown key`,
				`stepwell.toml:7: log.level: want a string, got a table`,
				`stepwell.toml:9: worker.web: want a table, got an integer`,
				`stepwell.toml:10: worker."allow.exec": unknown key; did you mean worker.allow_exec?`,
			}},
		{"wrong types",
			configInput{files: oneConfigFile(
				"role = true", "[engine]", "jitter = 'yes'", "[templates]", "dirs = 'x'",
				"[worker]", "concurrency = 1.5", "handlers = ['x']", "exec_path = 2026-01-01", "[[store]]",
			)},
			[]string{
				`stepwell.toml:1: role: want a string, got a boolean`,
				`stepwell.toml:3: engine.jitter: want a boolean, got a string`,
				`stepwell.toml:5: templates.dirs: want an array of strings, got a string`,
				`stepwell.toml:7: worker.concurrency: want an integer, got a float`,
				`stepwell.toml:8: worker.handlers: want a table of strings, got an array`,
				`stepwell.toml:9: worker.exec_path: want a string, got a date or time`,
				`stepwell.toml:10: store: want a table, got an array of tables`,
			}},
		{"within arrays and tables",
			configInput{files: oneConfigFile(
				"[templates]", "dirs = [", "  'x',", "  3,", "  '',", "]", "[worker.handlers]", "'a.b' = 1",
				"'a*b' = 'builtin:x'", "c = 'exec:'", "d = 'builtin:'", "e = 'http:///x'", "'' = 'http://h'",
			)},
			[]string{
				`stepwell.toml:4: templates.dirs[1]: want a string, got an integer`,
				`stepwell.toml:5: templates.dirs[2]: "" is not a path`,
				`stepwell.toml:8: worker.handlers."a.b": want a string, got an integer`,
				`stepwell.toml:9: worker.handlers."a*b": "a*b" may have a "*" at its end only`,
				`stepwell.toml:10: worker.handlers.c: "exec:" is not builtin:…, exec:…, http://… or https://…`,
				`stepwell.toml:11: worker.handlers.d: "builtin:" is not builtin:…, exec:…, http://… or https://…`,
				`stepwell.toml:12: worker.handlers.e: "http:///x" is not builtin:…, exec:…, http://… or https://…`,
				`stepwell.toml:13: worker.handlers."": "" is not a name of 1 to 500 bytes`,
			}},
		{"headers, variables and paths",
			configInput{files: oneConfigFile(
				"[worker.http_headers]", "X-A = 'a'", "x-a = 'b'", "host = 'c'", "'a b' = 'c'", `X-B = "a\nb"`,
				"[worker.exec_env]", "STEPWELL_API_KEY = 'x'", "'A=B' = 'x'", `C = "\u0000"`,
				"[store]", "path = ''",
			)},
			[]string{
				`stepwell.toml:3: worker.http_headers.x-a: "X-A" occurs twice`,
				`stepwell.toml:4: worker.http_headers.host: "host" is a header that stepwell sets itself`,
				`stepwell.toml:5: worker.http_headers."a b": "a b" is not the name of a header`,
				`stepwell.toml:6: worker.http_headers.X-B: "[REDACTED]" contains a control character`,
				`stepwell.toml:8: worker.exec_env.STEPWELL_API_KEY: "STEPWELL_API_KEY" is a variable of stepwell itself` +
					` and never passed on`,
				`stepwell.toml:9: worker.exec_env."A=B": "A=B" is not the name of an environment variable`,
				`stepwell.toml:10: worker.exec_env.C: "[REDACTED]" contains a NUL character`,
				`stepwell.toml:12: store.path: "" is not a path`,
			}},
		{"variables that are not of the type",
			configInput{env: map[string]string{
				"STEPWELL_WORKER__CONCURRENCY":      "many",
				"STEPWELL_WORKER__EXEC_ENV":         "null",
				"STEPWELL_WORKER__HANDLERS":         `{"A": 1}`,
				"STEPWELL_WORKER__HTTP_HEADERS":     "Authorization: hunter2",
				"STEPWELL_WORKER__HTTP_CONCURRENCY": "99999999999999999999",
			}},
			[]string{
				`env STEPWELL_WORKER__CONCURRENCY: worker.concurrency: "many" is not an integer`,
				`env STEPWELL_WORKER__EXEC_ENV: worker.exec_env: "[REDACTED]" is not a JSON object of strings`,
				`env STEPWELL_WORKER__HANDLERS: worker.handlers.A: want a string, got a float`,
				`env STEPWELL_WORKER__HTTP_CONCURRENCY: worker.http_concurrency: "99999999999999999999" is not an integer`,
				`env STEPWELL_WORKER__HTTP_HEADERS: worker.http_headers: "[REDACTED]" is not a JSON object of strings` +
					` and of objects of strings`,
			}},
		{"headers for an origin or a callable",
			configInput{files: oneConfigFile(
				"[worker.http_headers]", "'https://a.example/v1'.X-A = '1'", "'https://me:hunter2@a.example'.X-A = '1'",
				"'ftp://a.example'.X-A = '1'", "'https://*.example'.X-A = '1'", "'a*b'.X-A = '1'", "''.X-A = '1'",
				"[worker.http_headers.'https://b.example']", "host = '1'", "X-A.b = '1'", "X-B = 7",
				"[worker.http_headers.'https://B.example:443/']", "X-A = '1'",
			)},
			[]string{
				`stepwell.toml:2: worker.http_headers."https://a.example/v1": "https://a.example/v1" ` + noScope,
				`stepwell.toml:3: worker.http_headers."https://[REDACTED]@a.example": "https://[REDACTED]@a.example" ` + noScope,
				`stepwell.toml:4: worker.http_headers."ftp://a.example": "ftp://a.example" ` + noScope,
				`stepwell.toml:5: worker.http_headers."https://*.example": "https://*.example" ` + noScope,
				`stepwell.toml:6: worker.http_headers."a*b": "a*b" may have a "*" at its end only`,
				`stepwell.toml:7: worker.http_headers."": "" is not a name of 1 to 500 bytes`,
				`stepwell.toml:8: worker.http_headers."https://b.example": "https://b.example" occurs twice`,
				`stepwell.toml:9: worker.http_headers."https://b.example".host: "host" is a header that stepwell sets itself`,
				`stepwell.toml:10: worker.http_headers."https://b.example".X-A: want a string, got a table`,
				`stepwell.toml:11: worker.http_headers."https://b.example".X-B: want a string, got an integer`,
			}},
		{"a proxy with more than an address",
			configInput{files: oneConfigFile(
				"worker.http_proxy = 'http://me:12?hunter2@proxy'", "worker.default_handler = 'echo'",
			)},
			[]string{
				`stepwell.toml:1: worker.http_proxy: "http://[REDACTED]@proxy" has more than the address of a proxy`,
				`stepwell.toml:2: worker.default_handler: "echo" is not builtin:…, exec:…, http://… or https://…`,
			}},
		{"files that are missing or no TOML",
			configInput{
				files: map[string]string{"b.toml": "\nrole = \n", "c.toml": "[log]\n[log]"},
				args:  []string{"--config", "a.toml", "--config", "b.toml", "--config", "c.toml"},
			},
			[]string{
				`a.toml: reading the file: file does not exist`,
				`b.toml:2: not TOML: expected value but found '\n' instead`,
				`c.toml:2: not TOML: Key 'log' has already been defined.`,
			}},
		{"the environment's name is no path",
			configInput{
				files: map[string]string{"stepwell.toml": "", "stepwell.../x.toml": "role = 'worker'"},
				env:   map[string]string{"STEPWELL_ENV": "../x"},
			},
			[]string{
				`env STEPWELL_ENV: environment: "../x" is not a name of up to 64 letters, digits, ".", "_" and "-"`,
			}},
		{"one address twice",
			configInput{files: oneConfigFile("worker.web.listen = '0.0.0.0:8080'")},
			[]string{
				`stepwell.toml:1: worker.web.listen: orchestration.web.listen, "127.0.0.1:8080", and worker.web.listen, ` +
					`"0.0.0.0:8080", need two addresses`,
			}},
		{"no rule about several keys when one of them is broken",
			configInput{files: oneConfigFile("worker.web.listen = 'x'", "orchestration.web.listen = '127.0.0.1:8081'")},
			[]string{
				`stepwell.toml:1: worker.web.listen: "x" is not an address like 127.0.0.1:8080: the port is missing`,
			}},
		{"one address twice, with the role by flag",
			configInput{
				files: oneConfigFile("worker.web.listen = ':8080'"), args: []string{"--role", "all"},
			},
			[]string{
				`stepwell.toml:1: worker.web.listen: orchestration.web.listen, "127.0.0.1:8080", and worker.web.listen, ` +
					`":8080", need two addresses`,
			}},
		{"no rule about addresses without a sound role",
			configInput{files: oneConfigFile("role = 'x'", "worker.web.listen = ':8080'")},
			[]string{`stepwell.toml:1: role: "x" is not one of all, orchestration, worker`}},
		{"--data with a file's memory",
			configInput{files: oneConfigFile("store.memory = true"), args: []string{"--data", "x"}},
			[]string{
				`flag --data: store.path: store.memory (stepwell.toml:1) would keep nothing in the directory of --data; ` +
					`omit one of them, or set --memory=false`,
			}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantConfigProblems(t, tt.in, tt.want...) })
	}
}

func TestCheckConfigCallables(t *testing.T) {
	in := configInput{files: oneConfigFile(
		"[worker]", "default_handler = 'builtin:ecko'", "[worker.handlers]", "'A::*' = 'builtin:nope'",
		"B = 'builtin:echo'", "C = 'http://me:hunter2@localhost'",
	)}
	c, p := must2(in.load())(t)
	err := checkConfigCallables(c, p, func(callable string) error {
		if callable == "builtin:ecko" || callable == "builtin:nope" {
			return errors.New("there is no " + callable)
		}
		return nil
	})
	want := "configuration: 2 problems\n" +
		"  stepwell.toml:2: worker.default_handler: there is no builtin:ecko\n" +
		`  stepwell.toml:4: worker.handlers."A::*": there is no builtin:nope`
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
}

func TestTOMLKeys(t *testing.T) {
	text := strings.Join([]string{
		/* 1 */ "\ufeff# a comment with = and [x]",
		/* 2 */ "a = 1 # b = 2",
		/* 3 */ `c."d.e".'f' = """`,
		/* 4 */ `g = 1 \"""`,
		/* 5 */ `""""`,
		/* 6 */ "h = [ # ]",
		/* 7 */ "  1, [2],",
		/* 8 */ "  { i = ']', j.k = '''",
		/* 9 */ "}''' },",
		/* 10 */ "]",
		/* 11 */ "\t[ l . m ]\r",
		/* 12 */ "n = 1979-05-27 07:32:00",
		/* 13 */ `o = "a\\"`,
		/* 14 */ `"\u0070" = ''`,
		/* 15 */ "[[q]]",
		/* 16 */ "[[q]]",
		/* 17 */ "r = 1",
		/* 18 */ "[[q.s]]",
		/* 19 */ "t = { }",
	}, "\n")
	keys, _ := findTOMLKeys(text, maxJSONDepth, joinConfigPath)
	for path, line := range map[string]int{
		"a": 2, "c": 3, `c."d.e"`: 3, `c."d.e".f`: 3, "h": 6, "h[0]": 7, "h[1]": 7, "h[1][0]": 7, "h[2]": 8,
		"h[2].i": 8, "h[2].j.k": 8, "l": 11, "l.m": 11, "l.m.n": 12, "l.m.o": 13, "l.m.p": 14,
		"q": 15, "q[0]": 15, "q[1]": 16, "q[1].r": 17, "q[1].s[0]": 18, "q[1].s[0].t": 19,
		"a.nothing": 2, "h[7]": 6, "nothing": 0, "b": 0, "g": 0,
	} {
		if got := nearest(keys, path).line; got != line {
			t.Errorf("%s: got line %d; want %d", path, got, line)
		}
	}
}

// Nothing in the place of a value may be repeated, because it may be secret.
func TestSyntaxProblemsHideValues(t *testing.T) {
	for _, text := range []string{
		"role = hunter2", "role = 'a' hunter2", "role = 123hunter2", "role = 1234__5678hunter2",
		"role = 12345678hunter2", "role = 12345678901234567890", "role = 1234.5678.",
		"role = 01234567", "role = +0x1234567", `role = "hunter2`,
		`role = "hunter2\q"`, "role = 1979-13-45", "role = [hunter2]", "role = {a = hunter2}",
		"hunter2", "role = 'hunter2",
	} {
		_, _, err := configInput{files: oneConfigFile(text)}.load()
		if err == nil {
			t.Errorf("%s: got no error; want one", text)
			continue
		}
		for _, secret := range []string{"hunter2", "123", "1979"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: got %v; want no %q in it", text, err, secret)
			}
		}
	}
}

func FuzzLoadConfig(f *testing.F) {
	f.Add("role = 'all'\n[worker.handlers]\n\"A::*\" = 'builtin:echo'\n", "x", `{"a": "b"}`)
	f.Add("[templates]\ndirs = ['a', 'b']\n[[x.y]]\nz = {a.b = [1]}", "STEPWELL_STORE__PATH", "y")
	f.Add("worker.http_proxy = 'http://a:b@c'\nx = '''\n'''", "STEPWELL_LISTEN__X", "[")
	f.Fuzz(func(t *testing.T, text, name, value string) {
		in := configInput{files: oneConfigFile(text), env: map[string]string{
			name: value, "STEPWELL_WORKER__HANDLERS": value, "STEPWELL_WORKER__HTTP_PROXY": value,
		}}
		c, p, err := in.load()
		if err != nil {
			return
		}
		for _, row := range configRows(c, p) {
			if row.Source == "" || row.Value == nil {
				t.Errorf("got %+v; want a value and a source", row)
			}
		}
		for path, source := range p.sources {
			if source.kind == fromFile && source.line == 0 {
				t.Errorf("%s: got no line; want one", path)
			}
		}
	})
}

// oneConfigFile returns a stepwell.toml in the working directory.
func oneConfigFile(lines ...string) map[string]string {
	return map[string]string{"stepwell.toml": strings.Join(lines, "\n")}
}

// TestConfigFileIsRegularAndShort reads configurations that are no file, lead to one, or are too long.
func TestConfigFileIsRegularAndShort(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "good.toml", []byte("role = 'worker'"))
	writeFile(t, "full.toml", []byte(strings.Repeat("#", maxConfigFile)))
	writeFile(t, "long.toml", []byte(strings.Repeat("#", maxConfigFile+1)))
	writeFile(t, "deep.toml", []byte("x = "+strings.Repeat("[", 100_000)))
	for link, to := range map[string]string{"link.toml": "good.toml", "zero.toml": "/dev/zero"} {
		noError(t, os.Symlink(to, link))
	}
	want := map[string]string{"good.toml": "", "full.toml": "", "link.toml": "", "long.toml": "it has more than 1 MiB",
		"deep.toml": "deeper than 64 levels", "zero.toml": "not a regular file"}
	if makePipe("pipe.toml") == nil {
		want["pipe.toml"] = "not a regular file"
	}
	for name, message := range want {
		_, _, err := loadConfig(configArgs{files: []string{name}}, func(string) string { return "" }, nil, readConfigFile)
		if message == "" && err != nil || message != "" && (err == nil || !strings.Contains(err.Error(), message)) {
			t.Errorf("%s: got %v; want %q", name, err, message)
		}
	}
}

// TestFixtureConfiguration checks what fixture mode can be combined with, and where it
// keeps state.
func TestFixtureConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name, args, env string
		problem         string // a part of it; "" when all is well
		memory          bool
	}{
		{"off", "", "", "", false},
		{"on", "--fixture", "", "", true},
		{"by a variable", "", "STEPWELL_FIXTURE__ENABLED=true", "", true},
		{"with --memory", "--fixture --memory", "", "", true},
		{"a directory", "--fixture --data d", "", "fixture.allow_data", false},
		{"a directory, allowed", "--fixture --data d", "STEPWELL_FIXTURE__ALLOW_DATA=true", "", false},
		{"allowed, none given", "--fixture", "STEPWELL_FIXTURE__ALLOW_DATA=true", "", true},
		{"the directory of an image", "--fixture", "STEPWELL_STORE__PATH=/data", "", true},
		{"off, open to all", "--listen 0.0.0.0:0", "", "", false},
		{"open to all", "--fixture --listen 0.0.0.0:0", "", "orchestration.web.listen", false},
		{"open to all, empty host", "--fixture --listen :0", "", "orchestration.web.listen", false},
		{"the worker open to all", "--fixture --worker-listen [::]:0", "", "worker.web.listen", false},
		{"a name", "--fixture --listen build-host:0", "", "fixture.allow_remote", false},
		{"localhost", "--fixture --listen localhost:0", "", "", true},
		{"the other loopback", "--fixture --listen [::1]:0", "", "", true},
		{"open to all, allowed", "--fixture --listen 0.0.0.0:0", "STEPWELL_FIXTURE__ALLOW_REMOTE=true", "", true},
		{"without the worker's listener", "--fixture --role orchestration --worker-listen 0.0.0.0:0", "", "", true},
		{"a seed", "--fixture --deterministic-ids s1", "", "", true},
		{"a seed without fixture mode", "--deterministic-ids s1", "", "--fixture", false},
		{"the worker role", "--fixture --role worker", "", "orchestration role", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flags := must(parseServeArgs(strings.Fields(tt.args), &strings.Builder{}))(t)
			noFile := func(string) ([]byte, error) { return nil, fs.ErrNotExist }
			c, origin, err := loadConfig(flags.configArgs, func(string) string { return "" }, strings.Fields(tt.env), noFile)
			switch {
			case tt.problem != "":
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Errorf("got %v; want a problem with %s", err, tt.problem)
				}
			case err != nil:
				t.Error(err)
			case c.Store.Memory != tt.memory:
				t.Errorf("got store.memory %v (%s); want %v", c.Store.Memory, origin.of("store.memory"), tt.memory)
			}
		})
	}
}

func TestConfigLayers(t *testing.T) {
	type values = map[string]any
	for _, tt := range []struct {
		name string
		in   configInput
		want values
	}{
		{"nothing", configInput{}, nil},
		{"the file in the working directory",
			configInput{files: oneConfigFile("role = 'worker'", "[engine]", "jitter = false", "[web]", "max_connections = 7")},
			values{"role": "worker", "engine.jitter": false, "web.max_connections": int64(7)}},
		{"--config instead of the file in the working directory",
			configInput{
				files: map[string]string{"stepwell.toml": "role = 'worker'", "a.toml": "[log]\nlevel = 'warn'"},
				args:  []string{"--config", "a.toml"},
			},
			values{"log.level": "warn"}},
		{"STEPWELL_CONFIG instead of the file in the working directory",
			configInput{
				files: map[string]string{"stepwell.toml": "role = 'worker'", "a.toml": "[log]\nlevel = 'warn'"},
				env:   map[string]string{"STEPWELL_CONFIG": "a.toml"},
			},
			values{"log.level": "warn"}},
		{"--config instead of STEPWELL_CONFIG",
			configInput{
				files: map[string]string{"a.toml": "[log]\nlevel = 'warn'", "b.toml": "[log]\nformat = 'json'"},
				env:   map[string]string{"STEPWELL_CONFIG": "a.toml"},
				args:  []string{"--config=b.toml"},
			},
			values{"log.format": "json"}},
		{"a later file over an earlier one, key by key",
			configInput{
				files: map[string]string{
					"a.toml": "[log]\nlevel = 'warn'\nformat = 'text'",
					"b.toml": "[log]\nlevel = 'debug'",
				},
				args: []string{"--config", "a.toml", "--config", "b.toml"},
			},
			values{"log.level": "debug", "log.format": "text"}},
		{"tables entry by entry, arrays whole",
			configInput{
				files: map[string]string{
					"a.toml": "[templates]\ndirs = ['x', 'y']\n" +
						"[worker.handlers]\nA = 'builtin:noop'\nB = 'builtin:noop'",
					"b.toml": "[templates]\ndirs = ['z']\n" +
						"[worker.handlers]\nB = 'builtin:echo'\nC = 'builtin:echo'",
				},
				args: []string{"--config", "a.toml", "--config", "b.toml"},
			},
			values{
				"templates.dirs": []string{"z"},
				"worker.handlers": map[string]string{
					"A": "builtin:noop", "B": "builtin:echo", "C": "builtin:echo",
				},
			}},
		{"the overlay that STEPWELL_ENV names",
			configInput{
				files: map[string]string{
					"stepwell.toml": "[log]\nlevel = 'warn'", "stepwell.test.toml": "[log]\nlevel = 'debug'",
				},
				env: map[string]string{"STEPWELL_ENV": "test"},
			},
			values{"environment": "test", "log.level": "debug"}},
		{"the overlay that --env names, not STEPWELL_ENV's",
			configInput{
				files: map[string]string{
					"stepwell.toml": "", "stepwell.test.toml": "role = 'worker'",
					"stepwell.prod.toml": "[log]\nlevel = 'error'",
				},
				env:  map[string]string{"STEPWELL_ENV": "test"},
				args: []string{"--env", "prod"},
			},
			values{"environment": "prod", "log.level": "error"}},
		{"no overlay for an environment that only a file names",
			configInput{files: map[string]string{
				"stepwell.toml": "environment = 'test'", "stepwell.test.toml": "role = 'worker'",
			}},
			values{"environment": "test"}},
		{"no overlay without its file",
			configInput{
				files: map[string]string{"stepwell.test.toml": "role = 'worker'"},
				args:  []string{"--env=test"},
			},
			values{"environment": "test"}},
		{"overlays beside their files, after all files",
			configInput{
				files: map[string]string{
					"conf/a.toml":      "role = 'worker'",
					"conf/a.test.toml": "[log]\nlevel = 'debug'",
					"b":                "[log]\nlevel = 'warn'\nformat = 'json'",
					"b.test.toml":      "[log]\nformat = 'text'",
				},
				args: []string{"--env", "test", "--config", "conf/a.toml", "--config", "b"},
			},
			values{"environment": "test", "role": "worker", "log.level": "debug", "log.format": "text"}},
		{"environment variables over files",
			configInput{
				files: oneConfigFile("[store]", "path = 'a'", "sync = 'never'", "[worker.handlers]", "A = 'builtin:noop'"),
				env: map[string]string{
					"STEPWELL_STORE__PATH":                "b",
					"STEPWELL_ORCHESTRATION__WEB__LISTEN": ":9000",
					"STEPWELL_TEMPLATES__DIRS":            "x, y,,z",
					"STEPWELL_ENGINE__JITTER":             "0",
					"STEPWELL_WEB__MAX_BODY_BYTES":        "100",
					"STEPWELL_WORKER__HANDLERS":           `{"App::*": "http://localhost:1/x"}`,
					"STEPWELL_WORKER__EXEC_PATH":          "",
					"STEPWELL_WEB__ALLOWED_HOSTS":         ` ["a.example", "b"]`,
				},
			},
			values{
				"store.path": "b", "store.sync": "never", "orchestration.web.listen": ":9000",
				"templates.dirs": []string{"x", "y", "z"}, "engine.jitter": false,
				"web.allowed_hosts": []string{"a.example", "b"}, "web.max_body_bytes": int64(100),
				"worker.handlers": map[string]string{"A": "builtin:noop", "App::*": "http://localhost:1/x"},
			}},
		{"variables of others",
			configInput{env: map[string]string{
				"STEPWELL_PORT": "tcp://10.0.0.1:8080", "STEPWELL_SERVICE_HOST": "10.0.0.1", "STEPWELL_ROLE": "x",
				"STEPWELL_AUTH_TOKEN": "x", "OTHER__KEY": "x", "STEPWELL_ENV": "", "STEPWELL_CONFIG": "",
			}},
			nil},
		{"flags over environment variables",
			configInput{
				env: map[string]string{
					"STEPWELL_STORE__PATH": "b", "STEPWELL_STORE__MEMORY": "true", "STEPWELL_TEMPLATES__DIRS": "x",
				},
				args: []string{
					"--data", "c", "--memory=false", "--templates", "p,q", "--templates=r", "--role", "orchestration",
					"--listen", "127.0.0.1:0", "--worker-listen", "[::1]:0", "--sync", "never", "--log-level=debug",
				},
			},
			values{
				"store.path": "c", "templates.dirs": []string{"p", "q", "r"}, "role": "orchestration",
				"orchestration.web.listen": "127.0.0.1:0", "worker.web.listen": "[::1]:0",
				"store.sync": "never", "log.level": "debug",
			}},
		{"memory, with a path that only a file gives",
			configInput{files: oneConfigFile("[store]", "path = 'a'"), args: []string{"--memory"}},
			values{"store.path": "a", "store.memory": true}},
		{"one spelling for a header",
			configInput{
				files: oneConfigFile("[worker.http_headers]", "authorization = 'a'", "x-one = '1'"),
				env:   map[string]string{"STEPWELL_WORKER__HTTP_HEADERS": `{"AUTHORIZATION": "b"}`},
			},
			values{"worker.http_headers": headerTables{"": {"Authorization": "b", "X-One": "1"}}}},
		{"headers for all, for an origin and for callables",
			configInput{
				files: map[string]string{"stepwell.toml": strings.Join([]string{
					"[worker.http_headers]", "X-All = '1'", "'https://API.example.com:443/'.Authorization = 'a'",
					"[worker.http_headers.'http://[::1]:8080']", "x-one = '1'",
					"[worker.http_headers.'shop.*']", "X-Shop = '1'", "X-Two = '2'",
					"[worker.http_headers.Authorization]", "X-Odd = 'a callable of this name'",
					"[worker.http_headers.'no.headers']",
				}, "\n")},
				env: map[string]string{"STEPWELL_WORKER__HTTP_HEADERS": `{"X-All": "2",
					"https://api.example.com": {"AUTHORIZATION": "b"}, "shop.*": {"x-shop": "3"}}`},
			},
			values{"worker.http_headers": headerTables{
				"":                        {"X-All": "2"},
				"https://api.example.com": {"Authorization": "b"},
				"http://[::1]:8080":       {"X-One": "1"},
				"shop.*":                  {"X-Shop": "3", "X-Two": "2"},
				"Authorization":           {"X-Odd": "a callable of this name"},
			}}},
		{"one address for two roles in two processes",
			configInput{args: []string{"--role", "worker", "--listen", ":80", "--worker-listen", ":80"}},
			values{"role": "worker", "orchestration.web.listen": ":80", "worker.web.listen": ":80"}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantConfigValues(t, tt.in, tt.want) })
	}
}

// The finder of keys finds every path that the decoder finds.
func FuzzTOMLKeys(f *testing.F) {
	f.Add("a.\"b\".c = [1, {d = '''x'''}]\n[[e]]\n[e.f]\ng = \"\\\"\"")
	f.Add("[a.b]\n[a]\nc = { d.e = [[], [{}]], } # x\n[[f.g]]\n[[f.g.h]]\n\"\" = \"\"\"\n\"\"\"\"\"")
	f.Add("a.\"\"=[1, {d = '''x'''}]\n[[e]]\n[e6f]\ng = \"\\\"\"")
	f.Fuzz(func(t *testing.T, text string) {
		keys, tooDeep := findTOMLKeys(text, maxJSONDepth, joinConfigPath)
		for path, key := range keys {
			if key.line < 1 || key.offset < 0 || key.offset > len(text) || key.line != strings.Count(text[:key.offset], "\n")+1 {
				t.Errorf("%s: got %v; want a place in the text", path, key)
			}
		}
		var table map[string]any
		if tooDeep >= 0 {
			return
		}
		_, err := toml.Decode(text, &table)
		empty := false // a key: of an array there, BurntSushi/toml 1.6.0 loses elements
		for path := range keys {
			empty = empty || strings.Contains(path, `""`)
		}
		if err == nil && !empty {
			checkKeysFound(t, keys, "", table)
			depth := tomlDepth(table)
			if _, at := findTOMLKeys(text, depth, joinConfigPath); at >= 0 {
				t.Errorf("got offset %d deeper than %d levels; want none", at, depth)
			}
			if _, at := findTOMLKeys(text, depth-1, joinConfigPath); at < 0 && !strings.Contains(text, "[[") && depth > 1 {
				t.Errorf("got nothing deeper than %d levels; want something", depth-1)
			}
		}
	})
}

// tomlDepth returns how many tables and arrays of a decoded value are inside one another.
func tomlDepth(v any) (depth int) {
	deeper := func(inner any) { depth = max(depth, tomlDepth(inner)) }
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			deeper(inner)
		}
	case []map[string]any:
		for _, inner := range v {
			deeper(inner)
		}
	case []any:
		for _, inner := range v {
			deeper(inner)
		}
	default:
		return 0
	}
	return depth + 1
}

// TestTOMLDepth refuses texts for their depth before they are decoded: for one of 48 KB, the decoder takes
// hundreds of megabytes.
func TestTOMLDepth(t *testing.T) {
	for name, nested := range map[string]func(levels int) string{
		"arrays":        func(n int) string { return "a = " + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) },
		"inline tables": func(n int) string { return "a = " + strings.Repeat("{a = ", n-1) + "1" + strings.Repeat("}", n-1) },
		"dotted keys":   func(n int) string { return strings.Repeat("a.", n-1) + "a = 1.5" },
		"a header":      func(n int) string { return "b = 1.5\n[" + strings.Repeat("a.", n-3) + "a]\nb.c = 1.5" },
		"keys in a table of an array": func(n int) string {
			return "[a]\nb = [ # [\n'''[[''', 1.5, {" + strings.Repeat("c.", n-4) + "c = 1.5, d = 1}]"
		},
	} {
		var table map[string]any
		_, err := toml.Decode(nested(maxJSONDepth), &table)
		if depth := tomlDepth(table); err != nil || depth != maxJSONDepth {
			t.Errorf("%s: got %d levels, %v; want %d", name, depth, err, maxJSONDepth)
		}
		if _, at := findTOMLKeys(nested(maxJSONDepth), maxJSONDepth, joinConfigPath); at >= 0 {
			t.Errorf("%s: got %d levels refused at %d; want them accepted", name, maxJSONDepth, at)
		}
		for _, levels := range []int{maxJSONDepth + 1, 24_000} {
			deep := []byte(nested(levels))
			var problems inputProblems
			took := allocated(func() { _, problems, _ = parseTemplate("f", deep, "toml", "", nil) })
			if len(problems) != 1 || !strings.HasSuffix(problems[0].String(), ": invalid TOML: deeper than 64 levels") {
				t.Errorf("%s: got %v; want the depth refused", name, problems)
			}
			if most := uint64(4 << 20); took > most { // with garbage, and what the race detector adds
				t.Errorf("%s: got %d bytes allocated; want at most %d", name, took, most)
			}
		}
	}
}

func checkKeysFound(t *testing.T, keys tomlKeys, path string, v any) {
	if path != "" && keys[path].line == 0 {
		t.Errorf("%s: got no place; want one", path)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			checkKeysFound(t, keys, joinConfigPath(path, name), inner)
		}
	case []map[string]any:
		for i, inner := range v {
			checkKeysFound(t, keys, fmt.Sprintf("%s[%d]", path, i), inner)
		}
	case []any:
		for i, inner := range v {
			checkKeysFound(t, keys, fmt.Sprintf("%s[%d]", path, i), inner)
		}
	}
}

func TestListenAddresses(t *testing.T) {
	for _, s := range []string{
		":0", ":8080", "127.0.0.1:80", "0.0.0.0:65535", "[::]:1", "[::1]:1", "[fe80::1%eth0]:1", "localhost:1",
		"LOCALHOST:1", "my-host.example:1", "a:1",
	} {
		if err := checkListenValue(s); err != nil {
			t.Errorf("%q: got %v; want no error", s, err)
		}
	}
	for _, s := range []string{
		"", "8080", ":", "localhost", "localhost:", ":http", ":65536", ":-1", ":+1", "::1:80", "[::1:80", "::1]:80",
		"[127.0.0.1]:80", "[]:80", "[localhost]:80", "a b:80", "http://x:80", "-a:80", "a/b:80",
	} {
		if checkListenValue(s) == nil {
			t.Errorf("%q: got no error; want one", s)
		}
	}
}

func TestListenAddressesOverlap(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"localhost:80", "127.0.0.1:80", true},
		{"localhost:80", "LocalHost:80", true},
		{":80", "127.0.0.1:80", true},
		{"[::]:80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "[::1]:80", false},
		{"[::1]:80", "127.0.0.1:80", false},
		{"[::1]:80", "[0:0::1]:80", true},
		{"a.example:80", "b.example:80", false},
	} {
		a, errA := parseListen(tt.a)
		b, errB := parseListen(tt.b)
		if errA != nil || errB != nil {
			t.Fatalf("%s, %s: got %v, %v; want no errors", tt.a, tt.b, errA, errB)
		}
		if a.overlaps(b) != tt.want || b.overlaps(a) != tt.want {
			t.Errorf("%s, %s: got %v, %v; want %v both ways", tt.a, tt.b, a.overlaps(b), b.overlaps(a), tt.want)
		}
	}
}

func TestPortRange(t *testing.T) {
	for value, ok := range map[string]bool{
		"9000-9099": true, "1-65535": true, "80-80": true, "9099-9000": false, "0-1": false, "80": false, "80-": false,
		"1-65536": false, "a-b": false,
	} {
		if err := checkPortRange(value); (err == nil) != ok {
			t.Errorf("%q: got %v; want ok %v", value, err, ok)
		}
	}
}
