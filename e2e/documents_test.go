package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

// session is a part of a document whose commands are typed into a shell, with a server.
type session struct {
	page    string
	heading string // of the section; "" for what the other sessions of the page leave
	mode    string // a flag of the server, or ""
}

var sessions = []session{
	{"README.md", "One minute", ""},
	{"README.md", "A workflow of your own", ""},
	{"docs/getting-started.md", "Over HTTP", ""},
	{"docs/handlers.md", "Outside workers", ""},
	{"docs/http.md", "Waiting", ""},
	{"docs/http.md", "Events", ""},
	{"docs/http.md", "Why is my task stuck?", ""},
	{"docs/migrating.md", "From an existing project", ""},
	{"docs/mount.md", "", ""},
	{"docs/operations.md", "", ""},
	{"docs/operations.md", "The store as one document", ""},
	{"docs/templates.md", "Dynamic steps", ""},
	{"docs/fixture.md", "The clock", "--fixture"},
	{"docs/fixture.md", "", "--fixture"},
}

// text returns the session's part of its page.
func (s session) text(t *testing.T) string {
	t.Helper()
	text := string(readFile(t, repository(s.page)))
	if s.heading != "" {
		_, section := cutSection(text, s.heading)
		return section
	}
	for _, other := range sessions {
		if other.page == s.page && other.heading != "" {
			text, _ = cutSection(text, other.heading)
		}
	}
	return text
}

// cutSection returns a page without a section, and the section.
func cutSection(page, heading string) (rest, section string) {
	before, section, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		return page, ""
	}
	section, after, _ := strings.Cut(section, "\n## ")
	return before + "\n## " + after, section
}

// play types the session's commands into a shell, in a directory with the files that it shows, and
// compares the output.
func (s session) play(t *testing.T, dir string, p *program) {
	t.Helper()
	text := s.text(t)
	for _, f := range regexp.MustCompile("(?s)`([\\w.-]+)`:\n\n```\\w+\n(.*?)```").FindAllStringSubmatch(text, -1) {
		writeFile(t, filepath.Join(dir, f[1]), []byte(f[2]))
	}
	commands, outputs := consoleSession(t, s.page+": "+s.heading, text)
	typeCommands(t, commands, outputs, dir, p)
}

// consoleSession returns the commands and outputs of a text's console blocks.
func consoleSession(t *testing.T, name, text string) (commands, outputs []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		session := false // after the first "$ ": a block without one is for another terminal
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				session = true
				commands = append(commands, strings.TrimSpace(command))
				outputs = append(outputs, "")
			} else if session {
				outputs[len(outputs)-1] += line
			}
		}
	}
	if len(commands) < 2 {
		t.Fatalf("%s: got %d commands; want a session", name, len(commands))
	}
	return commands, outputs
}

// typeCommands types commands into a shell, and compares what they print.
func typeCommands(t *testing.T, commands, outputs []string, dir string, p *program) {
	t.Helper()
	for i, printed := range typeInto(t, commands, dir, nil, p) {
		if printed != outputs[i] {
			t.Errorf("$ %s\ngot  %s\nwant %s", commands[i], printed, outputs[i])
		}
	}
}

// typeInto types commands into a shell, and returns what each printed. In place of "go run ." and of
// stepwell it runs the program.
func typeInto(t *testing.T, commands []string, dir string, env []string, p *program) []string {
	t.Helper()
	for _, tool := range []string{"sh", "curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the sessions of the documents need %s", tool)
		}
	}
	const end = "-- end of a command --"
	script := strings.NewReplacer("http://127.0.0.1:8080", p.ready.OrchestrationURL,
		"$(go run . ", "$('"+programFile(t)+"' ",
		"\ngo run . ", "\n'"+programFile(t)+"' ").Replace("\n" + strings.Join(commands, "\necho '"+end+"'\n"))
	shell := exec.Command("sh", "-c", "stepwell() { '"+programFile(t)+"' \"$@\"; }"+script)
	shell.Dir = dir
	shell.Env = append(programEnv(), append(env, "STEPWELL_URL="+p.ready.OrchestrationURL, "LC_ALL=C.UTF-8", "USER=")...)
	got, _ := shell.CombinedOutput() // an error would be in the output
	printed := strings.Split(string(got), end+"\n")
	if len(printed) != len(commands) {
		t.Fatalf("got the output of %d commands; want that of %d\n%s", len(printed), len(commands), got)
	}
	return printed
}

// TestDocumentSessions types the commands of the README and the guides.
func TestDocumentSessions(t *testing.T) {
	slow(t)
	for _, s := range sessions {
		t.Run(strings.TrimSuffix(s.page+": "+s.heading, ": "), func(t *testing.T) {
			t.Parallel()
			p := serve(t, strings.Fields(s.mode)...)
			s.play(t, p.cmd.Dir, p)
		})
	}
}

// TestAuthenticationSession types the commands of docs/security.md about authentication.
func TestAuthenticationSession(t *testing.T) {
	slow(t)
	t.Parallel()
	keys := t.TempDir()
	wantExit(t, 0, nil, "auth", "generate-keys", "--output-dir", keys+"/keys")
	p := serveWith(t, []string{
		"STEPWELL_JWT_PUBLIC_KEY_PATH=" + keys + "/keys/jwt-public-key.pem",
		"STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true", "STEPWELL_WORKER__WEB__AUTH__ENABLED=true",
	})
	session{"docs/security.md", "Authentication", ""}.play(t, keys, p)
}

// TestLinks follows the links in all documents to files and headings of the repository.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "BENCHMARKS.md"}
	guides := wire.Must(filepath.Glob(repository("docs/*.md")))(t)
	for _, g := range guides {
		pages = append(pages, "docs/"+filepath.Base(g))
	}
	link, checked := regexp.MustCompile(`\]\(([^)\s]+)\)`), 0
	for _, page := range pages {
		for _, l := range link.FindAllStringSubmatch(prose(string(readFile(t, repository(page)))), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			checked++
			path, anchor, _ := strings.Cut(l[1], "#")
			target := repository(page)
			if path != "" {
				target = filepath.Join(filepath.Dir(target), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, l[1])
			} else if anchor != "" && !slices.Contains(anchors(string(readFile(t, target))), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, l[1])
			}
		}
	}
	if checked < 50 {
		t.Errorf("got %d links; want to follow more", checked)
	}
}

// prose returns a document without its code blocks.
func prose(text string) string { return regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "") }

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) (names []string) {
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(text), -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(h[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
