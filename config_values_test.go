package main

import (
	"io/fs"
	"strings"
	"testing"
)

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

// TestFixtureJitter checks that retry delays are exact in fixture mode unless a source asks for jitter.
func TestFixtureJitter(t *testing.T) {
	for _, tt := range []struct {
		name, file, env, source string
		jitter                  bool
	}{
		{name: "fixture mode", source: "flag --fixture"},
		{name: "switched on by a variable", env: "true", source: "env STEPWELL_ENGINE__JITTER", jitter: true},
		{name: "switched on by a file", file: "[engine]\njitter = true", source: "stepwell.toml:2", jitter: true},
		{name: "switched off", env: "false", source: "env STEPWELL_ENGINE__JITTER"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := configInput{files: oneConfigFile(tt.file), env: map[string]string{}, args: []string{"--fixture"}}
			if tt.env != "" {
				in.env["STEPWELL_ENGINE__JITTER"] = tt.env
			}
			c, origin := must2(in.load())(t)
			if got := origin.of("engine.jitter").String(); c.Engine.Jitter != tt.jitter || got != tt.source {
				t.Errorf("got %v from %s; want %v from %s", c.Engine.Jitter, got, tt.jitter, tt.source)
			}
		})
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
