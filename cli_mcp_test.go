package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mcpClient is an agent that speaks to the command mcp.
type mcpClient struct {
	t       *testing.T
	input   *io.PipeWriter
	answers *bufio.Reader
	ended   chan int // with the exit code
	last    int      // id of a request
}

// mcpAnswer is what an agent reads of an answer.
type mcpAnswer struct {
	ID     json.RawMessage
	Error  struct{ Message string }
	Result struct {
		ProtocolVersion, Instructions string
		IsError                       bool
		Content                       []struct{ Text string }
		Tools                         []mcpTold
	}
}

// mcpTold is a tool as it is listed.
type mcpTold struct {
	Name, Description string
	InputSchema       struct {
		Properties map[string]struct {
			Description string
			Type        any
		}
		Required []string
	}
	Annotations map[string]bool
}

// text returns all texts of a result, or the error of the protocol.
func (a mcpAnswer) text() string {
	var texts []string
	for _, c := range a.Result.Content {
		texts = append(texts, c.Text)
	}
	return strings.Join(texts, "\n") + a.Error.Message
}

// startMCP starts the command mcp in front of a service.
func startMCP(t *testing.T, url string, flags ...string) *mcpClient {
	in, input := io.Pipe()
	output, out := io.Pipe()
	c := &mcpClient{t, input, bufio.NewReader(output), make(chan int, 1), 0}
	environment := configInput{env: map[string]string{"STEPWELL_URL": url}}
	p := &process{getenv: environment.getenv, environ: environment.environ(), now: realNow, stdin: in, stdout: out, stderr: io.Discard}
	go func() {
		code := p.main(context.Background(), append([]string{"mcp"}, flags...))
		out.Close()
		c.ended <- code
	}()
	t.Cleanup(func() { input.Close() })
	return c
}

func (c *mcpClient) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.input, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *mcpClient) receive() (a mcpAnswer) {
	c.t.Helper()
	line, err := c.answers.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		c.t.Fatalf("%v in %q", err, line)
	}
	return a
}

func (c *mcpClient) request(method, params string) string {
	c.last++
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.last, method, params)
}

func (c *mcpClient) ask(method, params string) mcpAnswer {
	c.t.Helper()
	c.send(c.request(method, params))
	a := c.receive()
	if string(a.ID) != fmt.Sprint(c.last) {
		c.t.Errorf("%s: got an answer to %s; want one to %d", method, a.ID, c.last)
	}
	return a
}

func (c *mcpClient) call(tool, arguments string) mcpAnswer {
	c.t.Helper()
	return c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
}

// noTools are the commands without an effect on the service that they ask, or that are about files, an address or a terminal.
var noTools = []string{
	"serve", "run", "explore", "task watch", "template check", "template convert", "template graph", "fixture state get", "fixture state put", "auth generate-keys",
	"auth jwks", "auth generate-token", "auth validate-token", "auth show-permissions", "config show", "config validate", "store check",
	"store compact", "store export", "store import",
	"healthcheck", "openapi", "completion", "mcp", "version",
}

// TestMCPTools lists the tools: each command is one or none, those that change something are listed only if that is
// allowed, and those of fixture mode only there. No tool takes an address, a credential, a form or a file, and none
// continues for ever. The list is short.
func TestMCPTools(t *testing.T) {
	fixture := newFixtureServer(t, serviceTest{})
	t.Chdir(t.TempDir())
	const most = 20_000
	want := map[bool][]string{}
	commandTable().each(func(c *command) {
		if (c.effect == "") != slices.Contains(noTools, c.name) {
			t.Errorf("%s has the effect %q; want one, or none and a place in noTools", c.name, c.effect)
		}
		if c.effect != "" {
			name := strings.ReplaceAll(c.name, " ", "_")
			if want[true] = append(want[true], name); c.effect == reads {
				want[false] = append(want[false], name)
			}
		}
	})
	unfit := regexp.MustCompile(`FILE|DIR\b|standard input|interrupted|--follow|--watch`)
	for allowed, flags := range map[bool][]string{false: nil, true: {"--allow-changes"}} {
		for _, tool := range startMCP(t, "http://127.0.0.1:1", flags...).ask("tools/list", "{}").Result.Tools {
			if strings.HasPrefix(tool.Name, "fixture_") {
				t.Errorf("%s is listed without fixture mode", tool.Name)
			}
		}
		var got []string
		c := startMCP(t, fixture.url, flags...)
		c.send(c.request("tools/list", "{}"))
		line := must(c.answers.ReadBytes('\n'))(t)
		if len(line) > most {
			t.Errorf("the list has %d bytes; want at most %d", len(line), most)
		}
		var listed mcpAnswer
		noError(t, json.Unmarshal(line, &listed))
		for _, tool := range listed.Result.Tools {
			got = append(got, tool.Name)
			texts := tool.Description
			for name, p := range tool.InputSchema.Properties {
				texts += "\n" + p.Description
				if slices.Contains([]string{"url", "o", "no_headers"}, name) || strings.Contains(name, "-") {
					t.Errorf("%s has the argument %s", tool.Name, name)
				}
			}
			if bad := unfit.FindString(texts); bad != "" {
				t.Errorf("%s says %q: %s", tool.Name, bad, texts)
			}
			if _, has := tool.InputSchema.Properties["context"]; has && tool.Name != "task_list" &&
				fmt.Sprint(tool.InputSchema.Properties["context"].Type) != "[object string]" {
				t.Errorf("%s: context is %v", tool.Name, tool.InputSchema.Properties["context"].Type)
			}
			if tool.Annotations["readOnlyHint"] != slices.Contains(want[false], tool.Name) {
				t.Errorf("%s: got %v", tool.Name, tool.Annotations)
			}
		}
		if !slices.Equal(got, want[allowed]) {
			t.Errorf("changes %v: got %q; want %q", allowed, got, want[allowed])
		}
	}
}

// TestMCPCalls calls tools that read and that change, rightly and wrongly.
func TestMCPCalls(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	noError(t, os.WriteFile("secret", []byte(`{"secret":true}`), 0o600))
	reader, c := startMCP(t, s.url), startMCP(t, s.url, "--allow-changes")
	for _, tt := range []struct {
		tool, arguments, want string
		fails                 bool
	}{
		{"task_create", `{"template":"demo/diamond","wait":"10s","tag":["a","b"],"priority":3}`, `"tags":["a","b"]`, false},
		{"task_create", `{"template":"demo/failing","wait":true}`, "the task is blocked_by_failures: step", true},
		{"task_create", `{"template":"demo/approval","context":{"amount":7}}`, `"status":"`, false},
		{"task_context", `{"task":"latest"}`, `{"amount":7}`, false},
		{"step_complete", `{"task":"latest","step":"approve","result":"@secret"}`, `"result":"@secret"`, false},
		{"task_list", `{"status":"complete","tag":["a"],"limit":5,"name":null}`, `"name":"diamond"`, false},
		{"task_list", `{"stauts":"complete"}`, `task_list: there is no argument "stauts"; did you mean status?`, true},
		{"task_list", `{"url":"http://127.0.0.1:1"}`, `there is no argument "url"`, true},
		{"task_list", `{"limit":"5"}`, `argument "limit" must be of type integer, not "5"`, true},
		{"task_list", `{"limit":1.5}`, `argument "limit" must be of type integer, not 1.5`, true},
		{"task_list", `{"tag":"a"}`, `argument "tag" must be of type array, not "a"`, true},
		{"task_create", `{"template":"demo/diamond","wait":7}`, `argument "wait" must be of type boolean or string, not 7`, true},
		{"task_list", `{"since":"soon"}`, `--since "soon": want a duration`, true},
		{"task_show", `{}`, `task_show: missing argument "task"`, true},
		{"task_show", `{"task":"--help"}`, `"--help" is not a task`, true},
		{"step_reset", `{"step":"charge"}`, `step_reset: argument "step" needs argument "task"`, true},
		{"step_reset", `{"select":{"name":"failing"}}`, "nothing was done yet: add --yes", true},
		{"step_reset", `{"select":{"name":"failing","step":"charge"},"yes":true}`, `"done":1`, false},
		{"task_create", `{"template":"demo/diamond","context":"@secret"}`, `argument "context" must be an object, or its text as JSON`, true},
		{"task_create", `{"template":"demo/diamond","context":[1]}`, `argument "context" must be of type object or string`, true},
		{"task_create", `{"template":"demo/approval","context":"{\"amount\":8}"}`, `"amount":8`, false},
		{"task_cancel", `{"task":"latest","reason":"r"}`, `"status":"cancelled"`, false},
		{"task_cancel", `{"task":["latest"]}`, `argument "task" must be of type string`, true},
		{"task_cancel", `{"select":{"stauts":"complete"}}`, `task_cancel select: there is no argument "stauts"; did you mean status?`, true},
		{"task_cancel", `{"select":"all"}`, `argument "select" must be of type object, not "all"`, true},
		{"fixture_clock", `{}`, "is not in fixture mode", true},
	} {
		a := c.call(tt.tool, tt.arguments)
		if !strings.HasSuffix(a.text(), "\n"+untrustedMark) {
			t.Errorf("%s: got %q; want it to be marked as untrusted", tt.tool, a.text())
		}
		if a.Result.IsError != tt.fails || !strings.Contains(a.text(), tt.want) {
			t.Errorf("%s %s: got %v, %q; want %v, %q", tt.tool, tt.arguments, a.Result.IsError, a.text(), tt.fails, tt.want)
		}
		refused := reader.call(tt.tool, tt.arguments).Error.Message
		if changing := !slices.Contains([]string{"task_list", "task_show", "task_context"}, tt.tool); changing !=
			(refused == tt.tool+` changes something: start "stepwell mcp" with --allow-changes`) {
			t.Errorf("%s without --allow-changes: got %q", tt.tool, refused)
		}
	}
}

// TestMCPLongAnswers cuts what is long, and says how long it was and what makes it shorter.
func TestMCPLongAnswers(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	c := startMCP(t, s.url)
	for i := range 60 {
		long := strings.Repeat("é", pick(i == 59, maxToolText, 10))
		s.create(fmt.Sprintf(`{"namespace":"demo","name":"diamond","reason":%q,"context":{"text":%q}}`, strings.Repeat("why", 100), long))
	}
	for _, row := range [][2]string{
		{"task_context", "ask for a part of it with another tool."}, {"task_list", "ask for less with completed_after, "},
	} {
		text := strings.TrimSuffix(c.call(row[0], pick(row[0] == "task_list", `{"limit":60}`, `{"task":"latest"}`)).text(), "\n"+untrustedMark)
		said := regexp.MustCompile(`…\n\nThe answer has (\d+) bytes and was cut after 32768: (.*)$`).FindStringSubmatch(text)
		if said == nil || !strings.HasPrefix(said[2], row[1]) || len(text) > maxToolText+500 || strings.ContainsRune(text, '\uFFFD') {
			t.Errorf("%s: got %d bytes that end with %q", row[0], len(text), text[max(0, len(text)-300):])
		}
	}
}

// TestMCPMessages checks what is said about messages themselves.
func TestMCPMessages(t *testing.T) {
	t.Parallel()
	c := startMCP(t, "http://127.0.0.1:1")
	for asked, want := range map[string]string{"2024-11-05": "2024-11-05", "2025-06-18": "2025-06-18", "2099-01-01": "2025-11-25"} {
		a := c.ask("initialize", `{"protocolVersion":"`+asked+`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
		if a.Result.ProtocolVersion != want || !strings.Contains(a.Result.Instructions, "at http://127.0.0.1:1.") {
			t.Errorf("%s: got %+v; want %s", asked, a.Result, want)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`) // has no answer
	}
	for _, row := range [][3]string{
		{`{"jsonrpc":"2.0","id":"a","method":"ping"}`, `"a"`, ""},
		{`{"jsonrpc":`, "null", "the line is not valid JSON: unexpected end"},
		{`[]`, "null", "a message must not be of type array"},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, "null", `a request has "jsonrpc":"2.0"`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", `an id that is a string or a number`},
		{`{"jsonrpc":"2.0","id":2}`, "null", "a method"},
		{`{"jsonrpc":"2.0","id":3,"method":"resources/list"}`, "3", `unknown method "resources/list"`},
		{`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"task_lst"}}`, "4", `unknown tool "task_lst"; did you mean task_list?`},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"health","arguments":[]}}`, "5", "params.arguments must not be of type array"},
	} {
		c.send(row[0])
		if a := c.receive(); string(a.ID) != row[1] && !(row[1] == "null" && a.ID == nil) || !strings.Contains(a.Error.Message, row[2]) {
			t.Errorf("%s: got %s, %q; want %s, %q", row[0], a.ID, a.Error.Message, row[1], row[2])
		}
	}
	if a := c.call("health", "{}"); !a.Result.IsError || !strings.HasPrefix(a.text(), "health: nothing listens on 127.0.0.1:1") {
		t.Errorf("got %+v; want a result that says what fails", a.Result)
	}
}

// TestMCPCancel cancels a call that waits, which then has no answer. A call that runs when standard input ends is still
// answered, and then the program ends.
func TestMCPCancel(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	c := startMCP(t, s.url, "--allow-changes")
	c.send(c.request("tools/call", `{"name":"task_create","arguments":{"template":"demo/approval","wait":"10m"}}`))
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, c.last))
	if a := c.call("task_create", `{"template":"demo/diamond","wait":true}`); a.Result.IsError {
		t.Errorf("got %q after another call was cancelled", a.text())
	}
	c.send(c.request("tools/call", `{"name":"task_list"}`))
	c.input.Close()
	if a := c.receive(); string(a.ID) != fmt.Sprint(c.last) || a.Result.IsError {
		t.Errorf("got %s, %q; want the answer to %d", a.ID, a.text(), c.last)
	}
	if rest, _ := io.ReadAll(c.answers); len(rest) > 0 {
		t.Errorf("got %q after the last answer", rest)
	}
	if code := <-c.ended; code != 0 {
		t.Errorf("got exit code %d; want 0", code)
	}
}
