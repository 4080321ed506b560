package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// changing matches what differs from run to run in the output of the command line: durations, ages and
// times of day.
var changing = regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)(\d+[smhd])?\b|\d\d:\d\d:\d\d\.\d{3}`)

// steady returns lines without what differs from run to run, nor the widths of columns.
func steady(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(changing.ReplaceAllString(line, "0")), " "))
	}
	return strings.Join(lines, "\n")
}

// TestCommandsGuide types the commands in docs/cli.md, against a service without and with
// authentication, twice in the same directory. The scripts in testdata/cli have every command.
func TestCommandsGuide(t *testing.T) {
	t.Parallel()
	slow(t)
	keys := []string{"STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true", "STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS_ENABLED=true",
		`STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS=[{"key":"k","permissions":["*"],"description":"api"}]`}
	const page = "docs/cli.md"
	for _, tt := range []struct{ server, env []string }{{nil, nil}, {keys, []string{"STEPWELL_API_KEY=k"}}} {
		t.Run(fmt.Sprint(tt.env), func(t *testing.T) {
			t.Parallel()
			commands, outputs := consoleSession(t, page, string(readFile(t, repository(page))))
			p := serveWith(t, tt.server, "--fixture", "--deterministic-ids", "guide")
			dir := t.TempDir()
			for range size(1, 2) {
				for i, printed := range typeInto(t, commands, dir, tt.env, p) {
					if steady(printed) != steady(outputs[i]) {
						t.Errorf("$ %s\ngot  %s\nwant %s", commands[i], printed, outputs[i])
					}
				}
			}
		})
	}
}

// TestEditedTemplates edits the templates of a service for development: new tasks follow, a running one
// keeps its steps, and after a mistake the templates from before it are used until it is mended.
func TestEditedTemplates(t *testing.T) {
	slow(t)
	t.Parallel()
	h := wire.NewHeldHandler(t, 16)
	steps := []stepSpec{{name: "a", callable: h.URL}, {name: "b", callable: h.URL}, {name: "c", callable: h.URL}}
	dir := templateDir(t, testTemplate("held", steps[:1]...))
	file, other := filepath.Join(dir, "0.json"), filepath.Join(dir, "other.yaml")
	p := serve(t, "--dev", "--memory", "--templates", dir)
	var ids []string
	create := func() { ids = append(ids, p.api().create(createHeld)) }
	edit := func(n int) {
		writeFile(t, file, []byte(testTemplate("held", steps[:n]...)))
		eventually(t, "the edited template", func() bool {
			return len(p.api().do("GET", "/v1/templates/t/held/1.0.0", "").want(200).get("steps").([]any)) == n
		})
		create()
	}
	create()
	h.Await(t)
	edit(2)
	writeFile(t, file, []byte("{\n  \"name\": \"held\",\n  \"steps\": 5\n}"))
	writeFile(t, other, []byte("name: other\nversion: 1.0.0\nsteps: [}\n"))
	for _, problem := range []string{file + ":1:1: version: is required", file + ":3:3: steps: is a number", other + ":3:9: "} {
		eventually(t, problem, func() bool { return strings.Contains(p.stderr.String(), problem) })
	}
	create()
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	edit(3)
	close(h.Release)
	for i, want := range []string{"1", "2", "2", "3"} {
		if got := p.api().await(ids[i], "complete").text("total_steps"); got != want {
			t.Errorf("task %d has %s steps; want %s", i, got, want)
		}
	}
	p.stop()
}
