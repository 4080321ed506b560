package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestExitCodes checks what the answers of a service mean for the exit code and the message.
func TestExitCodes(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		status       int
		header, body string
		code         int
		message      string
	}{
		{400, "", `{"error":{"code":"BAD_REQUEST","message":"page must be 1 or more"}}`, 2, "task list: page must be 1 or more"},
		{401, "", `{"error":{"code":"AUTHENTICATION_FAILED","message":"no credentials"}}`, 6,
			"task list: no credentials: set STEPWELL_AUTH_TOKEN or STEPWELL_API_KEY"},
		{403, "", `{"error":{"message":"Missing required permission: tasks:list"}}`, 6,
			"task list: Missing required permission: tasks:list"},
		{404, "", `{"error":"Not found","message":"no such path"}`, 3, "task list: no such path"},
		{408, "", `{"error":{"message":"not idle"}}`, 5, "task list: not idle"},
		{422, "", `{"error":{"message":"invalid","details":[{"field":"name","message":"is required"}]}}`, 2,
			"task list: invalid; name: is required"},
		{503, "7", `{"error":{"message":"overloaded"}}`, 1, "task list: overloaded (try again in 7 s)"},
		{302, "", "", 1, "answers 302 Found: is it Stepwell?"},
		{200, "", "<html>Welcome</html>", 1, "answers /v1/tasks with something other than JSON: is it Stepwell?"},
		{502, "", "<html>Bad gateway</html>", 1, "answers 502 Bad Gateway: is it Stepwell?"},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if tt.header != "" {
				w.Header().Set("Retry-After", tt.header)
			}
			w.WriteHeader(tt.status)
			w.Write([]byte(tt.body))
		}))
		got := runCLI(map[string]string{"STEPWELL_URL": h.URL}, "", "task", "list")
		if got.code != tt.code || !strings.Contains(got.stderr, tt.message) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%d: got %d, %q; want %d, %q", tt.status, got.code, got.stderr, tt.code, tt.message)
		}
		h.Close()
	}
}

// TestUnreachable checks the messages for a service that is not there.
func TestUnreachable(t *testing.T) {
	t.Chdir(t.TempDir())
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	free := l.Addr().String()
	l.Close()
	got := runCLI(nil, "", "task", "list", "--url", free)
	want := "stepwell: task list: nothing listens on " + free + ": is \"stepwell serve\" running? Or give --url\n"
	if got.code != exitUnreachable || got.stderr != want {
		t.Errorf("got %d, %q; want %q", got.code, got.stderr, want)
	}
}

// TestClientCredentials checks that the command line sends what it finds in the environment, in the contract's
// order, says what it sent if a service refuses that, and that it can make a token.
func TestClientCredentials(t *testing.T) {
	t.Chdir(t.TempDir())
	var seen http.Header
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		w.WriteHeader(401)
		w.Write([]byte(`{"error":{"message":"refused"}}`))
	}))
	defer h.Close()
	for _, tt := range []struct {
		env                         map[string]string
		authorization, xKey, advice string
	}{
		{map[string]string{}, "", "", "set STEPWELL_AUTH_TOKEN or STEPWELL_API_KEY"},
		{map[string]string{"STEPWELL_API_KEY": "k"}, "", "k", "check STEPWELL_API_KEY"},
		{map[string]string{"STEPWELL_API_KEY": "k", "STEPWELL_AUTH_TOKEN": "t"}, "Bearer t", "", "check STEPWELL_AUTH_TOKEN"},
		{map[string]string{"STEPWELL_ORCHESTRATION_AUTH_TOKEN": "o", "STEPWELL_AUTH_TOKEN": "t"}, "Bearer o", "",
			"check STEPWELL_ORCHESTRATION_AUTH_TOKEN"},
	} {
		tt.env["STEPWELL_URL"] = h.URL
		got := runCLI(tt.env, "", "task", "list")
		if want := "stepwell: task list: refused: " + tt.advice + "\n"; got.code != exitRefused || got.stderr != want {
			t.Errorf("got %d, %s; want %s", got.code, got.stderr, want)
		}
		if seen.Get("Authorization") != tt.authorization || seen.Get("X-API-Key") != tt.xKey {
			t.Errorf("%v: got %v", tt.env, seen)
		}
	}
	got := runCLI(map[string]string{"STEPWELL_URL": h.URL, "STEPWELL_JWT_PRIVATE_KEY_PATH": "nope"}, "", "task", "list")
	if got.code != exitNotFound || !strings.Contains(got.stderr, "STEPWELL_JWT_PRIVATE_KEY_PATH") {
		t.Errorf("got %d, %q; want the variable named", got.code, got.stderr)
	}
}

// TestNames checks what a task, a step and a template may be called.
func TestNames(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	id, other := s.create(`{"namespace":"demo","name":"diamond"}`), s.create(`{"namespace":"demo","name":"diamond"}`)
	env := map[string]string{"STEPWELL_URL": s.url}
	for name, want := range map[string]string{
		id: id, strings.ReplaceAll(id, "-", ""): id, id[len(id)-12:]: id, strings.ToUpper(id[len(id)-8:]): id, "latest": other,
	} {
		if got := runCLI(env, "", "task", "show", name, "-o", "name"); got.stdout != want+"\n" {
			t.Errorf("%s: got %q, %q; want %s", name, got.stdout, got.stderr, want)
		}
	}
	for line, want := range map[string]cliResult{
		"task show " + id[:8]:                  {code: exitUsage, stderr: "is ambiguous: 2 tasks"},
		"task show 00000000":                   {code: exitNotFound, stderr: `no task begins or ends with "00000000"`},
		"step show latest strat":               {code: exitNotFound, stderr: `the task has no step "strat"; did you mean start?`},
		"task create demo/diamnd":              {code: exitNotFound, stderr: "did you mean demo/diamond"},
		"template show demo/diamond@9.9.9":     {code: exitNotFound, stderr: "no template demo/diamond@9.9.9"},
		"task show " + strings.Repeat("0", 32): {code: exitNotFound, stderr: "task show: "},
	} {
		got := runCLI(env, "", strings.Fields(line)...)
		if got.code != want.code || !strings.Contains(got.stderr, want.stderr) {
			t.Errorf("%s: got %d, %q; want %d, %q", line, got.code, got.stderr, want.code, want.stderr)
		}
	}
}

// TestResetClearsTheCheckpoint checks that step reset keeps the checkpoint of a step unless a flag
// says otherwise.
func TestResetClearsTheCheckpoint(t *testing.T) {
	s := newTestServer(t, serviceTest{extra: []string{testTemplate("yields", stepSpec{name: "a", callable: "Outside"})}})
	t.Chdir(t.TempDir())
	s.create(`{"namespace":"t","name":"yields"}`)
	finish := func(verb, body string) {
		c := s.do("POST", "/v1/steps/claim", `{"callables":["*"],"wait_seconds":5}`).want(200)
		path := "/v1/steps/" + c.text("0.step.step_uuid") + "/" + verb
		s.do("POST", path, fmt.Sprintf(`{"lease":%q,%s}`, c.text("0.lease"), body)).want(200)
	}
	finish("checkpoint", `"cursor":7`)
	for _, row := range [][2]string{{"--reason=again", "7"}, {"--clear-checkpoint", ""}} {
		finish("fail", `"error":{"message":"no","retryable":false}`)
		got := runCLI(map[string]string{"STEPWELL_URL": s.url}, "", "step", "reset", "latest", "a", row[0], "-o", "json")
		var step struct{ Checkpoint *struct{ Cursor json.Number } }
		if err := json.Unmarshal([]byte(got.stdout), &step); err != nil || (step.Checkpoint != nil) != (row[1] != "") {
			t.Errorf("%s: got %+v, %v; want the cursor %q", row[0], got, err, row[1])
		}
	}
}

// TestOtherRole checks what a command says that asks the other role of a service.
func TestOtherRole(t *testing.T) {
	s := newTestService(t, serviceTest{})
	w, o := httptest.NewServer(newWorkerAPI(s, nil)), httptest.NewServer(newOrchestrationAPI(s, nil))
	defer w.Close()
	defer o.Close()
	for _, tt := range []struct{ line, want string }{
		{"task list --url " + w.URL, "; " + w.URL + " is the worker role of a service: give the URL of its orchestration role"},
		{"task show 019b76da-a800-7000-8000-0546fb4f6166 --url " + w.URL, "is the worker role of a service"},
	} {
		if r := runCLI(nil, "", strings.Fields(tt.line)...); r.code != exitFailed && r.code != exitNotFound || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: got %d, %q; want %q", tt.line, r.code, r.stderr, tt.want)
		}
	}
	if r := runCLI(nil, "", "template", "show", "a/b", "--url", o.URL); strings.Contains(r.stderr, "role") {
		t.Errorf("got %q of the right role", r.stderr)
	}
}

// strangerTOML is a configuration that wants everything from whoever passes by.
const strangerTOML = `[orchestration.web]
listen = %q
[worker]
allow_exec = true
default_handler = "http://%[1]s/handler"
[worker.web]
listen = "127.0.0.1:0"
`

// strangerProfiles has the services of another program.
const strangerProfiles = `[profile.default.orchestration]
base_url = "http://%s"
auth.method = {type = "BearerToken", value = "theirs"}
`

// askingLine is a command line that asks a service.
type askingLine struct {
	words []string // where URL stands for the service
	stdin string
}

// askingLines returns one line for each command of the table that has an URL.
func askingLines() (lines []askingLine) {
	commandTable().each(func(c *command) {
		o := newOptions(bareProcess, c)
		// Without --url, store export is about a directory.
		if c.define(o); o.Lookup("url") == nil || c.name == "store export" {
			return
		}
		example := c.examples[0]
		if line, ok := urlExamples[c.name]; ok {
			example = line
		}
		example, _, _ = strings.Cut(example, " > ")
		line := askingLine{words: shellWords(example), stdin: "{}"}
		if c.name == "mcp" {
			line.stdin = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"task_list","arguments":{}}}` + "\n"
		}
		lines = append(lines, line)
	})
	return lines
}

// run runs the line against the service at a URL, which --url names or nothing.
func (l askingLine) run(url string, named bool, env map[string]string) cliResult {
	rules := askingRules{local: url, most: 1 << 20}
	var words []string
	for _, word := range l.words {
		words = append(words, pick(word == "URL", url, word))
	}
	if named {
		words = append(words, "--url", url)
	}
	return runCLIAsking(rules, env, l.stdin, words...)
}

// TestNothingGoesElsewhere runs every command that asks a service where a service or a directory wants what is meant for
// another: no request arrives elsewhere, and no password is shown.
func TestNothingGoesElsewhere(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "state.json", []byte("{}"))
	writeFile(t, "state.jsonl", []byte("{}"))
	writeFile(t, "private.pem", []byte(privatePEM(t, authKeys().rsa)))
	var arrived atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived.Add(1)
		w.WriteHeader(500)
	}))
	defer elsewhere.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(elsewhere.URL, "http://"), ":")
	var answer atomic.Pointer[http.HandlerFunc]
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	defer service.Close()
	answers := func(f http.HandlerFunc) { answer.Store(&f) }
	redirects := func(status int, to string) {
		answers(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to+r.URL.RequestURI(), status) })
	}
	credentials := []map[string]string{{"STEPWELL_AUTH_TOKEN": "mine"}, {"STEPWELL_API_KEY": "mine"},
		{"STEPWELL_JWT_PRIVATE_KEY_PATH": "private.pem"}}
	lines, runs := askingLines(), 0
	check := func(about string, l askingLine, got cliResult, wants ...string) {
		t.Helper()
		runs++
		if n := arrived.Swap(0); n > 0 {
			t.Errorf("%s, %q: %d requests arrived elsewhere", about, l.words, n)
		}
		for _, want := range wants {
			if !strings.Contains(got.stdout+got.stderr, want) {
				t.Errorf("%s, %q: got %d, %s%s; want %q", about, l.words, got.code, got.stdout, got.stderr, want)
			}
		}
		if mcp := l.words[0] == "mcp"; got.code == 0 && !mcp || mcp && !strings.Contains(got.stdout, `"isError":true`) {
			t.Errorf("%s, %q: got %d, %s; want a failure", about, l.words, got.code, got.stdout)
		}
	}
	for i, status := range []int{302, 307, 302, 307} {
		host := pick(i < 2, "127.0.0.1:", "localhost:") + port
		redirects(status, "http://"+host)
		for n, l := range lines {
			got := l.run(service.URL, true, credentials[(i+n)%len(credentials)])
			wants := []string{"redirects to http://" + host, "url http://" + host}
			check(fmt.Sprint(status, " to ", host), l, got, wants...)
			if got.code != exitUnreachable && l.words[0] != "mcp" {
				t.Errorf("%q: got exit code %d; want %d", l.words, got.code, exitUnreachable)
			}
		}
	}
	// The user and the password of a URL go to the service, and are shown by nothing, whatever it answers.
	for name, f := range map[string]http.HandlerFunc{
		"401":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"404":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
		"500":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"503":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) },
		"405":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) },
		"a page":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"nothing": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://jo:hunter2@localhost:"+port, http.StatusFound)
		},
	} {
		for _, l := range lines {
			strange := 0
			answers(func(w http.ResponseWriter, r *http.Request) {
				if user, password, _ := r.BasicAuth(); user != "jo" || password != "hunter2" {
					strange++
				}
				f(w, r)
			})
			got := l.run("http://jo:hunter2@"+strings.TrimPrefix(service.URL, "http://"), true, nil)
			if name != "a page" || l.words[0] != "healthcheck" { // which prints it
				check("user info, "+name, l, got)
			}
			if all := got.stdout + got.stderr; strings.Contains(all, "hunter2") || strings.Contains(all, "am86aHVudGVyMg") || strange > 0 {
				t.Errorf("user info, %s, %q: got %s, and %d requests without the user; want no password", name, l.words, all, strange)
			}
		}
	}
	// What is in the directory of a stranger names no service.
	writeFile(t, "stepwell.toml", fmt.Appendf(nil, strangerTOML, strings.TrimPrefix(elsewhere.URL, "http://")))
	noError(t, os.Mkdir(".config", 0o700))
	for _, name := range []string{".config/tasker.toml", ".config/tasker-client.toml", "tasker-client.toml"} {
		writeFile(t, name, fmt.Appendf(nil, strangerProfiles, strings.TrimPrefix(elsewhere.URL, "http://")))
	}
	closed := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	nobody := "http://" + closed.Addr().String()
	for i, l := range lines {
		for _, profile := range []string{"", "default"} {
			env := maps.Clone(credentials[i%len(credentials)])
			env["STEPWELL_PROFILE"] = profile // which named one of those services
			wants := []string{"stepwell.toml:2 has another address: give --url " + elsewhere.URL}
			switch {
			case l.words[0] == "pull":
				wants = []string{"nothing listens on " + closed.Addr().String()}
			case slices.Contains(l.words, "--to"):
				wants = nil // without --url, it exports a directory
			}
			check("a stranger's files", l, l.run(nobody, false, env), wants...)
		}
	}
	t.Logf("%d runs of %d commands", runs, len(lines))
}

// TestRepliesAreBounded lets every command that asks a service meet a reply of 1 GB in 1 MB of gzip.
func TestRepliesAreBounded(t *testing.T) {
	t.Chdir(t.TempDir())
	var block bytes.Buffer
	z := gzip.NewWriter(&block)
	z.Write(bytes.Repeat([]byte{' '}, 1<<20))
	z.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		for range 1024 { // members of one stream
			if _, err := w.Write(block.Bytes()); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	writeFile(t, "state.json", []byte("{}"))
	writeFile(t, "state.jsonl", []byte("{}"))
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	for _, l := range askingLines() {
		before := allocated()
		got := l.run(s.URL, true, nil)
		// A buffer that grows to 1 MiB is copied several times on its way, and some commands ask twice.
		if used := (allocated() - before) >> 20; used > 32 || got.code == 0 && l.words[0] != "mcp" && l.words[0] != "healthcheck" {
			t.Errorf("%q: got %d, %s%s, and %d MiB allocated", l.words, got.code, got.stdout, got.stderr, used)
		}
	}
}

// TestServiceURLs checks what names a service, and what is refused without a secret in the message.
func TestServiceURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"h:1": "http://h:1", "https://h/a/": "https://h/a", "http://jo:pw@h:1/": "http://h:1 jo:pw", "jo:p%40w@h": "http://h jo:p%40w",
		"http://h/v1/":              "the URL of a service does not end in /v1: give http://h",
		"http://jo:hunter2@h/v1":    "the URL of a service does not end in /v1: give http://h",
		"http://h?x=hunter2":        "the URL of a service has no query and no fragment: give http://h",
		"http://h/#hunter2":         "the URL of a service has no query and no fragment: give http://h",
		"http://h?":                 "the URL of a service has no query and no fragment: give http://h",
		"http://jo:hun@ter2/pw@h":   `"http://[REDACTED]@h" is not the URL of a service: write an @ or / in a password as %40 or %2F`,
		"http://jo:hunter2?@h":      `"http://[REDACTED]@h" is not the URL of a service`,
		"ftp://jo:hunter2@h":        `"ftp://[REDACTED]@h" is not the URL of a service`,
		"http://jo:hunter2@":        `"http://[REDACTED]@" is not the URL of a service`,
		"":                          `"http://" is not the URL of a service`,
		"http://jo:hun ter2@h:port": `"http://[REDACTED]@h:port" is not the URL of a service`,
	} {
		base, user, err := parseServiceURL(text)
		got := strings.TrimSpace(base + " " + user.String())
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s; want %s", text, got, want)
		}
	}
}

// TestRedirects checks which address the error for a redirect advises.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ base, asked, to, want string }{
		{"http://h:1", "/v1/tasks?limit=1", "https://h/v1/tasks?limit=1", "https://h/v1/tasks?[REDACTED], and no redirect is followed: give --url https://h"},
		{"http://h:1/a", "/v1/tasks", "http://o/b/v1/tasks", "give --url http://o/b"},
		{"http://h:1", "/v1/tasks", "http://jo:pw@o/login", "http://o/login, and no redirect is followed: give --url http://o"},
		{"http://h:1", "/v1/tasks", "/login", "http://h:1/login, and no redirect is followed: is it Stepwell?"},
		{"http://h:1", "/v1/tasks", "javascript:alert(1)", "is it Stepwell?"},
		{"http://h:1", "/v1/tasks", "http://o/\u202e", "http://o/%E2%80%AE,"},
	} {
		asked := must(url.Parse(tt.base + tt.asked))(t)
		err := (&client{url: tt.base}).redirected(asked, must(asked.Parse(tt.to))(t))
		if exitCode(err) != exitUnreachable || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s to %s: got %v; want %s", tt.base+tt.asked, tt.to, err, tt.want)
		}
	}
}

// TestSlowReplies gives up on replies that begin and then hardly continue, in their headers or in their body, and on none
// that is a stream.
func TestSlowReplies(t *testing.T) {
	t.Parallel()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	begin := make(chan string, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, <-begin)
				io.Copy(io.Discard, conn) // until the client gives up
			}()
		}
	}()
	p := &process{getenv: bareProcess.getenv, now: realNow, stderr: io.Discard, asking: askingRules{patience: time.Millisecond}}
	c := must(p.clientOf(l.Addr().String(), "orchestration"))(t)
	for _, text := range []string{"H", "HTTP/1.1 200 OK\r\nX: a", "HTTP/1.1 200 OK\r\n\r\n{", "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n{"} {
		begin <- text
		_, err := c.get(t.Context(), "/v1/tasks", nil)
		if strings.Contains(text, "500") {
			if exitCode(err) != exitFailed {
				t.Errorf("%q: got %v; want the error of the status", text, err)
			}
		} else if exitCode(err) != exitTimedOut || !strings.Contains(err.Error(), "did not end within 1ms") {
			t.Errorf("%q: got %v; want a timeout", text, err)
		}
	}
	begin <- "HTTP/1.1 200 OK\r\n\r\ndata: {}\n"
	p.asking.patience = time.Hour
	resp := must(c.send(t.Context(), call{method: "GET", path: "/v1/events", stream: true}))(t)
	if resp.Body.(*replyBody).slow.Stop() {
		t.Error("the time of a stream is limited")
	}
	resp.Body.Close()
}

// TestStubsOfStrangeNames runs steps whose names have what separates a name from its outcome.
func TestStubsOfStrangeNames(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "result.json", []byte("7"))
	for _, name := range []string{"a", "a=b", "a=", "=a", "a=error", "a/b@1=c"} {
		writeFile(t, "t.json", fmt.Appendf(nil, `{"name":"t","version":"1.0.0","steps":[{"name":%q,"handler":{"callable":"elsewhere"}}]}`, name))
		for outcome, want := range map[string]string{"7": "7", "@result.json": "7", `"x=1"`: `"x=1"`, "-": "7"} {
			got := runCLI(nil, "7", "run", "t.json", "-o", "json", "--stub", name+"="+outcome)
			var ended struct{ Results map[string]json.RawMessage }
			if got.code != 0 || json.Unmarshal([]byte(got.stdout), &ended) != nil || string(ended.Results[name]) != want {
				t.Errorf("--stub %s=%s: got %d, %s%s; want %s", name, outcome, got.code, got.stdout, got.stderr, want)
			}
		}
		if got := runCLI(nil, "", "run", "t.json", "--stub", name+"=error:no=1"); got.code != exitWorkflow || !strings.Contains(got.stderr, "no=1") {
			t.Errorf("--stub %s=error:no=1: got %d, %s%s", name, got.code, got.stdout, got.stderr)
		}
	}
}

// TestStrangeNames creates a task of each template whose name says what paths and command lines also say.
func TestStrangeNames(t *testing.T) {
	names := []string{"a/b", "a@b", "a@1.0.0@latest", "..a", "%2e", "a?b#c", "a b"}
	var templates []string
	for _, name := range names {
		templates = append(templates, fmt.Sprintf(`{"namespace":"odd","name":%q,"version":"1.0.0","steps":[{"name":%[1]q,"handler":{"callable":"builtin:noop"}}]}`,
			strings.TrimSuffix(name, "@latest")))
	}
	s := newTestServer(t, serviceTest{extra: templates})
	t.Chdir(t.TempDir())
	env := map[string]string{"STEPWELL_URL": s.url}
	for _, name := range names {
		plain := strings.TrimSuffix(name, "@latest")
		for _, args := range [][]string{{"template", "show", "odd/" + name}, {"template", "show", "odd/" + plain + "@1.0.0"},
			{"task", "create", "odd/" + name, "--wait"}, {"step", "show", "latest", plain}} {
			if got := runCLI(env, "", args...); got.code != 0 || !strings.Contains(got.stdout, plain) {
				t.Errorf("%q: got %d, %s%s", args, got.code, got.stdout, got.stderr)
			}
		}
	}
}

func TestClientCredential(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	noError(t, os.WriteFile(path, []byte(privatePEM(t, authKeys().rsa)), 0o600))
	all := map[string]string{
		"STEPWELL_ORCHESTRATION_AUTH_TOKEN": "o", "STEPWELL_WORKER_AUTH_TOKEN": "w", "STEPWELL_AUTH_TOKEN": "any",
		"STEPWELL_API_KEY": "key", "STEPWELL_JWT_PRIVATE_KEY_PATH": path,
	}
	without := func(names ...string) map[string]string {
		env := map[string]string{}
		for k, v := range all {
			env[k] = v
		}
		for _, n := range names {
			delete(env, "STEPWELL_"+n)
		}
		return env
	}
	with := func(env map[string]string, name, value string) map[string]string {
		env["STEPWELL_"+name] = value
		return env
	}
	noTokens := []string{"ORCHESTRATION_AUTH_TOKEN", "WORKER_AUTH_TOKEN", "AUTH_TOKEN"}
	for _, tt := range []struct {
		name, role    string
		env           map[string]string
		header, value string
		problem       string
	}{
		{"orchestration's own token", "orchestration", all, "Authorization", "Bearer o", ""},
		{"worker's own token", "worker", all, "Authorization", "Bearer w", ""},
		{"orchestration without its own", "orchestration", without("ORCHESTRATION_AUTH_TOKEN"), "Authorization",
			"Bearer any", ""},
		{"worker without its own", "worker", without("WORKER_AUTH_TOKEN"), "Authorization", "Bearer any", ""},
		{"an API key", "worker", without(noTokens...), "X-API-Key", "key", ""},
		{"an API key in another header", "worker", with(without(noTokens...), "API_KEY_HEADER", "X-Key"), "X-Key",
			"key", ""},
		{"the other role's token", "worker", map[string]string{"STEPWELL_ORCHESTRATION_AUTH_TOKEN": "o"}, "", "",
			""},
		{"nothing", "worker", nil, "", "", ""},
		{"a token with a line break behind", "worker", with(without(), "WORKER_AUTH_TOKEN", "w\n"),
			"Authorization", "Bearer w", ""},
		{"blanks for a token", "worker", with(without(), "WORKER_AUTH_TOKEN", " \n"), "Authorization",
			"Bearer any", ""},
		{"a token with a line break inside", "worker", with(without(), "WORKER_AUTH_TOKEN", "hunter\n2"), "", "",
			"STEPWELL_WORKER_AUTH_TOKEN"},
		{"an API key with a line break inside", "worker", with(without(noTokens...), "API_KEY", "hunter\r\n2"),
			"", "", "STEPWELL_API_KEY "},
		{"an unsound header", "worker", with(without(noTokens...), "API_KEY_HEADER", "hunter 2"), "", "",
			"STEPWELL_API_KEY_HEADER"},
		{"no key file", "worker", map[string]string{"STEPWELL_JWT_PRIVATE_KEY_PATH": "absent.pem"}, "", "",
			"absent.pem"},
	} {
		header, value, err := clientCredential(tt.role, func(k string) string { return tt.env[k] },
			func() instant { return authTestNow })
		if header != tt.header || value != tt.value {
			t.Errorf("%s: got %q, %q; want %q, %q", tt.name, header, value, tt.header, tt.value)
		}
		if (err != nil) != (tt.problem != "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: got %v; want an error with %q", tt.name, err, tt.problem)
		}
		if err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: the error holds the secret: %v", tt.name, err)
		}
	}
}

func TestTokenOnDemand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	noError(t, os.WriteFile(path, []byte(privatePEM(t, authKeys().rsa)), 0o600))
	env := map[string]string{
		"STEPWELL_JWT_PRIVATE_KEY_PATH":            path,
		"STEPWELL_WORKER__WEB__AUTH__JWT_ISSUER":   "me",
		"STEPWELL_WORKER__WEB__AUTH__JWT_AUDIENCE": "workers",
	}
	b := newAuthBench(t, unchanged)
	worker := newAuthBench(t, func(c *authConfig) { c.JWTIssuer, c.JWTAudience = "me", "workers" })
	for _, tt := range []struct {
		role string
		b    *authBench
	}{{"orchestration", b}, {"worker", worker}} {
		header, value, err := clientCredential(tt.role, func(k string) string { return env[k] }, b.clock.now)
		if err != nil {
			t.Fatalf("%s: %v", tt.role, err)
		}
		sc, f := tt.b.ask(header + ": " + value)
		if f != nil || sc.permissions != everyPermission || sc.expiry != authTestNow.add(15*time.Minute) {
			t.Errorf("%s: got %+v, %v; want everything for a quarter of an hour", tt.role, sc, f)
		}
	}
}
