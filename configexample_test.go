package main

// stepwell.example.toml holds every key of the table, and nothing else.

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

var updateConfigExample = flag.Bool("update-example", false, "rewrite stepwell.example.toml")

const configExampleFile = "stepwell.example.toml"

func TestExampleFollowsTheTable(t *testing.T) {
	want := configExampleText()
	if *updateConfigExample {
		if err := os.WriteFile(configExampleFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(configExampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got another %s than the table makes; run go test -run Example -update-example",
			configExampleFile)
	}
}

func TestExampleHoldsEveryKey(t *testing.T) {
	var table map[string]any
	if _, err := toml.DecodeFile(configExampleFile, &table); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, k := range configKeys {
		if k.inherits == "" {
			want = append(want, k.path)
		}
	}
	got := configExampleLeaves("", table)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got keys %q; want %q", got, want)
	}
}

func configExampleLeaves(path string, table map[string]any) (leaves []string) {
	for name, v := range table {
		p := joinConfigPath(path, name)
		if inner, ok := v.(map[string]any); ok && isConfigSection(p) {
			leaves = append(leaves, configExampleLeaves(p, inner)...)
			continue
		}
		leaves = append(leaves, p)
	}
	return leaves
}

func TestExampleLoadsToTheDefaults(t *testing.T) {
	text, err := os.ReadFile(configExampleFile)
	if err != nil {
		t.Fatal(err)
	}
	in := configInput{files: map[string]string{"stepwell.toml": string(text)}}
	wantConfigValues(t, in, nil)
}

func TestExampleSamplesAreValid(t *testing.T) {
	for _, k := range configKeys {
		if k.sample == "" {
			continue
		}
		section, name := splitExampleKey(k)
		in := configInput{files: map[string]string{"stepwell.toml": "[" + section + "]\n" + k.sample}}
		if _, _, err := in.load(); err != nil {
			t.Errorf("%s: got %v; want no error", k.sample, err)
		}
		if name != "" && !strings.HasPrefix(k.sample, name+" = ") {
			t.Errorf("%s: got the sample %s; want one of the key", k.path, k.sample)
		}
	}
}

// configExampleText is the example file that the table makes: plain keys first, then
// the tables that they stand in, then the keys that are tables themselves.
func configExampleText() string {
	var b strings.Builder
	b.WriteString("# Every key of the configuration, with its default. The first line above a key says what it is\n" +
		"# for, the second one its range and what else sets it: environment variable, flag (the stronger).\n" +
		"# [mount.auth] has the values of [orchestration.web.auth], but for the keys that are given there.\n\n")
	sections := make(map[string][]configKey)
	for _, k := range configKeys {
		section, _ := splitExampleKey(k)
		sections[section] = append(sections[section], k)
	}
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		if section != "" {
			fmt.Fprintf(&b, "[%s]\n", section)
		}
		for _, k := range sections[section] {
			writeExampleKey(&b, k)
		}
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// splitExampleKey is the section and the name of a key; the name is "" for a key
// that is a section of its own.
func splitExampleKey(k configKey) (section, name string) {
	if _, ok := k.def.(map[string]string); ok {
		return k.path, ""
	}
	dot := strings.LastIndexByte(k.path, '.')
	return k.path[:max(dot, 0)], k.path[dot+1:]
}

func writeExampleKey(b *strings.Builder, k configKey) {
	fmt.Fprintf(b, "# %s\n", k.help)
	var notes []string
	if k.max > 0 {
		notes = append(notes, fmt.Sprintf("%d to %d", k.min, k.max))
	}
	if env := k.envName(); env != "" {
		notes = append(notes, env)
	}
	if k.flag != "" {
		notes = append(notes, "--"+k.flag)
	}
	fmt.Fprintf(b, "# %s\n", strings.Join(notes, ", "))
	if k.sample != "" {
		fmt.Fprintf(b, "# %s\n", k.sample)
	}
	if _, name := splitExampleKey(k); name != "" {
		if k.inherits != "" { // given, it would not be inherited any more
			name = "# " + name
		}
		fmt.Fprintf(b, "%s = %s\n", name, tomlLiteral(k.def))
	}
	b.WriteByte('\n')
}
