package main

// Every command with hostile data on a terminal.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"stepwell/e2e/wire"
)

// hostileText has every kind of character that misleads. Printed as it is, it would begin a line with "FORGED". In
// hostileJSON it is followed by bytes that are not UTF-8, which some terminals take for C1.
const (
	hostileText = hostileWord + "\nFORGED"
	rawBytes    = "<raw bytes>"

	hostileWord = "\x1b[31mEVIL\x1b[2J\x1b]0;title\a\b\r\t\v\x7f\u0085\u009b2J\u061c\u200e\u202e\u2066\u2028\u2029" // of an operator
)

func hostileJSON(t *testing.T, v any) []byte {
	t.Helper()
	return bytes.ReplaceAll(must(json.Marshal(v))(t), []byte(must(json.Marshal(rawBytes))(t)[1:len(rawBytes)-1]), []byte("\x9b2J\xff"))
}

// hostileMode says what a service makes of the answers of another.
type hostileMode struct {
	name   string
	status int  // of every answer; 0 for that of the other
	json   bool // the bodies are hostile JSON
	all    bool // states, times and ids are hostile, too
}

var hostileModes = []hostileMode{
	{name: "names and messages", json: true}, {name: "all texts", json: true, all: true}, {name: "refused", status: 400, json: true},
	{name: "not found", status: 404, json: true}, {name: "a page", status: 200}, {name: "a page of an error", status: 502},
}

// sparedText matches texts without which no command gets far: ids, times and states.
var sparedText = regexp.MustCompile(`^([0-9a-f]{8}-[-0-9a-f]{27}|\d{4}-\d\d-\d\d[T ].*|[a-z]+(_[a-z]+)*)$`)

// spoil returns JSON with hostile texts and one more hostile member in every object.
func (m hostileMode) spoil(v any) any {
	switch v := v.(type) {
	case string:
		if m.all || !sparedText.MatchString(v) || looks[v] == (look{}) && strings.Trim(v, "abcdefghijklmnopqrstuvwxyz_") == "" {
			return v + hostileText + rawBytes
		}
	case []any:
		for i := range v {
			v[i] = m.spoil(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = m.spoil(v[name])
		}
		v[hostileText+rawBytes] = hostileText
	}
	return v
}

func (m hostileMode) spoilt(t *testing.T, text []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	return hostileJSON(t, m.spoil(v))
}

// spoiler spoils an answer when it ends.
type spoiler struct {
	http.ResponseWriter
	mode hostileMode
	t    *testing.T
	text bytes.Buffer
}

func (s *spoiler) WriteHeader(status int) {
	s.Header().Del("Content-Length")
	s.ResponseWriter.WriteHeader(status)
}

func (s *spoiler) Write(p []byte) (int, error) { return s.text.Write(p) }

func (s *spoiler) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *spoiler) Flush() {}

func (s *spoiler) end() {
	s.Header().Del("Content-Length")
	s.ResponseWriter.Write(s.mode.spoilt(s.t, s.text.Bytes()))
}

// over returns the URL of a service with the spoilt answers of another.
func (m hostileMode) over(t *testing.T, real http.Handler) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Accept-Encoding")
		answer := &spoiler{ResponseWriter: w, mode: m, t: t}
		defer answer.end()
		switch {
		case m.status == 0:
			real.ServeHTTP(answer, r)
		case m.json:
			answer.WriteHeader(m.status)
			io.WriteString(answer, `{"error":{"code":"c","message":"because ","details":[{"field":"f ","message":"m "}]}}`)
		default:
			answer.WriteHeader(m.status)
			io.WriteString(answer, hostileText+"\x9b2J\xff")
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// ownSequences are those of colours, and of a bar or a list that is drawn again.
var ownSequences = regexp.MustCompile(`\x1b\[(?:0|1|2|31|32|33|34)m|\r\x1b\[K|\x1b\[J|\x1b\[\d+A|\x1b\[H\x1b\[2J`)

// misleading says what in an output would mislead a terminal, or returns "". Sequences of our own are none on a terminal
// that can show them.
func misleading(out string, able bool) string {
	if strings.Contains(out, "\x1b[31mEVIL") {
		return "a colour of the data"
	}
	if able {
		out = ownSequences.ReplaceAllString(out, "")
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "FORGED") {
			return "a line of the data"
		}
		for i, r := range strings.TrimSuffix(line, "\n") {
			if _, size := utf8.DecodeRuneInString(line[i:]); misleads(r) || r == utf8.RuneError && size == 1 {
				return fmt.Sprintf("%q in %q", line[i:i+size], line)
			}
		}
	}
	return ""
}

// hostileRun has a service, a terminal and files in an empty directory, for the commands of a test.
type hostileRun struct {
	t    *testing.T
	task string // that is blocked by a failed step, after its events were given up
	step string

	delivery string // that was given up
	env      map[string]string
	term     *wire.Terminal
}

// operands are values for the operands of commands.
func (h *hostileRun) operands(c *command) []string {
	values := map[string]string{
		"TASK": h.task, "TASK|ENTRY": h.task, "TEXT": "declined", "STEP": h.step, "DELIVERY": h.delivery, "TEMPLATE": "demo/failing", "FILE|TEMPLATE": hostileFile,
		"FILE": pick(c.name == "store import" || c.name == "fixture state put", "state.json", hostileFile), "JSON": `{"match":{"step":"s"},"count":{"exactly":0}}`, "ID": "stub-1", "NAME": "box", "SHELL": "bash", "URL": h.env["STEPWELL_URL"],
	}
	var words []string
	for word := range strings.FieldsSeq(c.operands) {
		if _, bulk := bulkVerbs[strings.TrimPrefix(c.name, "step ")]; strings.HasPrefix(word, "[") && !bulk &&
			c.name != "task cancel" && c.name != "events resend" {
			continue
		}
		value, ok := values[strings.Trim(word, "[]…")]
		if !ok {
			h.t.Errorf("%s: which value should %s have in this test?", c.name, word)
		}
		words = append(words, value)
	}
	return words
}

const hostileFile = "f\x1b[31mEVIL\u202e.json"

// hostileFlags are arguments that make commands meet hostile data, or end soon. Commands with several lists run with each.
var hostileFlags = map[string][][]string{
	"pull":        {{"--worker-url", "URL", "--data", "pulled" + hostileWord}, {"--worker-url", "http://" + hostileWord}},
	"serve":       {{"--templates", hostileWord}, {"--templates", "templates", "--memory", "--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--exit-with-parent"}},
	"task again":  {{"--from", "charge", "--wait=200ms"}, {"--from", hostileWord, "--latest", "--context", `{"n":1}`, "--reason", hostileWord}},
	"run":         {{"--stub", "s=error:" + hostileWord}, {"--stub", `s={"k":"\u001b[31mEVIL` + "\u202e" + `"}`}, {"--context", hostileWord}},
	"task create": {{}, {"--wait=200ms", "--context", `{"n":1}`}},
	"task watch":  {{"--timeout", "200ms"}},
	"dlq update":  {{"--status", "ManuallyResolved"}, {"--status", hostileWord}},
	"dlq list":    {{}, {"--all", "--step", hostileWord}},
	"dlq close":   {{"--group", hostileWord, "--yes"}, {"--over", "--yes"}},
	"health":      {{}},
	"healthcheck": {{"--url", "URL"}},

	"auth generate-keys":  {{"--output-dir", "keys" + hostileWord, "--force"}},
	"auth jwks":           {{"public.pem"}, {"private" + hostileWord}},
	"auth generate-token": {{"--private-key", "private.pem", "--permissions", hostileWord, "--subject", hostileWord, "--allow-unknown"}},
	"auth validate-token": {{"--public-key", "public.pem", "--token", "TOKEN", "--allow-unknown"}, {"--public-key", "public.pem", "--token", "TOKEN"}},
	"config show":         {{"--config", "good.toml"}, {"--config", "bad.toml"}},
	"config validate":     {{"bad.toml"}},
	"template check":      {{}, {"templates"}},
	"store check":         {{"--data", "kept" + hostileWord}, {"--data", "missing" + hostileWord}},
	"store compact":       {{"--data", "kept" + hostileWord}},
	"store export":        {{"--data", "kept" + hostileWord}},
	"store import":        {{"--data", "new" + hostileWord}},
}

// harmless are the commands that meet no data of others.
var harmless = []string{"openapi", "completion", "version", "auth show-permissions", "mcp"}

// newHostileRun makes a world, of which a mode spoils the answers.
func newHostileRun(t *testing.T, m hostileMode, term *wire.Terminal, kind string) *hostileRun {
	failing := `{"namespace":"demo","name":"failing","version":"2.0.0","identity_strategy":"always_unique","steps":[
		{"name":"reserve","handler":{"callable":"builtin:noop"}},
		{"name":"charge","handler":{"callable":"builtin:fail","initialization":{"message":"the card was declined"}},"dependencies":["reserve"],
		 "retry":{"max_attempts":1},"publishes_events":[` + published("lost", `,"condition":"failure"`) + `]},
		{"name":"deliver","handler":{"callable":"builtin:noop"},"dependencies":["charge"]}]}`
	w := newFixtureServer(t, serviceTest{config: subscribed([]string{"shop", "http://127.0.0.1:1/", "*"}), extra: []string{failing}})
	w.do("POST", "/_stepwell/stubs", `{"match":{"kind":"delivery"},"outcomes":[{"error":{"message":"we are closed","retryable":false}}]}`).want(201)
	h := &hostileRun{t: t, term: term, task: w.create(`{"namespace":"demo","name":"failing","tags":["urgent"],"reason":"why"}`)}
	w.await(w.create(`{"namespace":"demo","name":"batch"}`), "complete")
	w.await(h.task, "blocked_by_failures")
	eventually(t, "the event is given up", func() bool {
		return fmt.Sprint(w.do("GET", "/v1/events/deliveries?status=dead", "").get("total_count")) == "1"
	})
	h.delivery = w.do("GET", "/v1/events/deliveries", "").text("deliveries.0.id")
	h.step = w.do("GET", "/v1/tasks/"+h.task+"/workflow_steps", "").text("0.step_uuid")
	w.do("POST", "/_stepwell/stubs", `{"match":{"step":"s"},"outcomes":[{"result":1}]}`).want(201)
	w.do("POST", "/_stepwell/sandboxes", `{"name":"box"}`).want(201)
	h.env = map[string]string{"STEPWELL_URL": m.over(t, &w.world.gates.orchestration), "TERM": kind}
	return h
}

// hostileFiles fills a directory, and returns a token that fits public.pem.
func hostileFiles(t *testing.T) (token string) {
	t.Chdir(t.TempDir())
	noError(t, os.Mkdir("templates", 0o700))
	good := `{"name":"f","version":"1.0.0","description":"d\u001b[31mEVIL\u202e","steps":[{"name":"s","callable":"c"}]}`
	key := `"k\u001b[31mEVIL\u202e\nFORGED" = `
	for name, text := range map[string]string{
		hostileFile: good, "templates/good.json": good, "templates/b\x1b[31mEVIL\u202e\nFORGED.json": "{", "templates/" + hostileWord: `{"steps":[{"callable":"x"}]}`,
		"bad.toml": "[worker]\n" + key + "1", "good.toml": "[worker.handlers]\n" + key + `"http://h/\u202e"`,
		"private.pem": privatePEM(t, authKeys().rsa), "public.pem": publicPEM(t, authKeys().rsa),
	} {
		writeFile(t, name, []byte(text))
	}
	w := newFixtureServer(t, serviceTest{})
	context := must(json.Marshal(map[string]string{hostileText: hostileText}))(t)
	w.await(w.create(`{"namespace":"demo","name":"linear","context":`+string(context)+`}`), "complete")
	writeFile(t, "state.json", w.do("GET", "/_stepwell/state", "").want(200).body)
	if r := runCLI(nil, "", "store", "import", "--data", "kept"+hostileWord, "state.json"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	spec := tokenSpec{hostileText, defaultIssuer, defaultAudience, []string{"p" + hostileText}, realNow(), time.Hour}
	return must(signToken(spec, must(readPrivateKey("private.pem"))(t)))(t)
}

// run runs a command line on the terminal, and returns what it writes.
func (h *hostileRun) run(args []string) string {
	before := len(h.term.Written())
	in := configInput{env: h.env}
	p := &process{getenv: in.getenv, environ: in.environ(), now: realNow, stdin: strings.NewReader(""),
		stdout: h.term.Programs, stderr: h.term.Programs}
	ctx, cancel := context.WithTimeout(h.t.Context(), wire.Patience)
	defer cancel()
	p.main(ctx, args)
	if ctx.Err() == context.DeadlineExceeded {
		h.t.Errorf("%q has not ended", args)
	}
	const end = "\x00end\x00"
	h.term.Programs.WriteString(end)
	var out string
	eventually(h.t, "all output", func() (all bool) {
		out, _, all = strings.Cut(h.term.Written()[before:], end)
		return all
	})
	return out
}

// TestHostileDataOnTerminal runs every command against a service with hostile answers and with hostile files and arguments.
// Nothing that misleads reaches the terminal.
func TestHostileDataOnTerminal(t *testing.T) {
	sequential(t)
	runHostile(t, false)
}

// TestHostileDataInEveryForm does so in every form and with every kind of answer and terminal. The data itself is shown.
func TestHostileDataInEveryForm(t *testing.T) {
	sequential(t)
	wire.Long(t)
	runHostile(t, true)
}

func runHostile(t *testing.T, long bool) {
	runs, raw := 0, 0
	commandTable().each(func(c *command) {
		t.Run(c.name, func(t *testing.T) {
			token := hostileFiles(t)
			o := newOptions(bareProcess, c)
			c.define(o)
			forms := o.forms
			if o.output == nil {
				forms = []string{""}
			}
			flags := hostileFlags[c.name]
			if flags == nil {
				flags = [][]string{{}}
			}
			modes := hostileModes
			if o.url == nil && c.name != "healthcheck" {
				modes = modes[:1]
			}
			kinds := []string{"xterm", "dumb"}
			if !long {
				modes, kinds, forms = modes[:1], kinds[:1], forms[:1]
			}
			shown := map[string]bool{}
			for _, m := range modes {
				for _, kind := range kinds {
					term := wire.OpenTerminal(t, 500, 100)
					term.Unprocessed()
					for i, form := range forms {
						if kind == "dumb" && i > 0 && i < len(forms)-1 {
							continue // these forms know nothing of terminals
						}
						for _, extra := range flags {
							h := newHostileRun(t, m, term, kind)
							args := append(strings.Fields(c.name), h.operands(c)...)
							if form != "" {
								args = append(args, "-o", form)
							}
							for _, word := range extra {
								args = append(args, strings.NewReplacer("URL", h.env["STEPWELL_URL"], "TOKEN", token).Replace(word))
							}
							out := h.run(args)
							runs++
							if bad := misleading(out, kind != "dumb"); bad != "" {
								raw++
								t.Errorf("%s, %q: %s", m.name, args, bad)
							}
							shown[form] = shown[form] || strings.Contains(out, "EVIL")
						}
					}
				}
			}
			for form, seen := range shown {
				if long && seen == slices.Contains(harmless, c.name) { // not every answer has its data in every form
					t.Errorf("-o %s: hostile data was shown: %v", form, seen)
				}
			}
		})
	})
	t.Logf("%d runs, %d with raw characters", runs, raw)
}

// TestWatchOnTerminal watches a task until its step is completed: the bar is erased before each line and at the end.
func TestWatchOnTerminal(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	term := wire.OpenTerminal(t, 60, 24)
	term.Unprocessed()
	id := s.create(`{"namespace":"demo","name":"approval"}`)
	in := configInput{env: map[string]string{"STEPWELL_URL": s.url, "TERM": "xterm", "NO_COLOR": "1"}}
	p := &process{getenv: in.getenv, environ: in.environ(), now: realNow, stdin: strings.NewReader(""),
		stdout: term.Programs, stderr: term.Programs}
	ended := make(chan error, 1)
	go func() { ended <- p.run(t.Context(), []string{"task", "watch", id}) }()
	eventually(t, "the bar", func() bool { return strings.Contains(term.Written(), "demo/approval@1.0.0  1/3") })
	if got := runCLI(map[string]string{"STEPWELL_URL": s.url}, "", "step", "complete", id, "approve"); got.code != 0 {
		t.Fatal(got.stderr)
	}
	noError(t, <-ended)
	const erase = "\r\x1b[K"
	eventually(t, "the end", func() bool {
		return strings.Contains(term.Written(), "  task  ✔ complete\n") && strings.HasSuffix(term.Written(), erase)
	})
	for line := range strings.Lines(term.Written()) {
		bars := strings.Split(line, erase)
		if last := bars[len(bars)-1]; strings.Contains(last, "demo/approval") {
			t.Errorf("%q: a bar that stays", last)
		}
		for _, bar := range bars {
			if utf8.RuneCountInString(bar) > 60 { // with the line feed
				t.Errorf("%q: a bar that does not fit", bar)
			}
		}
	}
}

// TestRunAsksOnTerminal answers a step for a person on a terminal: what does not fit is asked again, and a run whose step
// gets no answer ends with what helps.
func TestRunAsksOnTerminal(t *testing.T) {
	schema := `{"type":"object","required":["approved"],"properties":{"note":{"type":["null","string"]},"approved":{"type":"boolean"},
		"amount":{"type":"number","minimum":10},"way":{"enum":["card","cash",1]}}}`
	step := func(schema string) string {
		return `{"namespace":"t","name":"ask","version":"1.0.0","steps":[{"name":"approve","handler":{"callable":"people.approve"},"result_schema":` +
			schema + `},{"name":"ship","handler":{"callable":"builtin:noop"},"dependencies":["approve"]}]}`
	}
	const end, interrupt = "\x04", ""
	for name, row := range map[string]struct {
		schema string
		talk   [][2]string // what is waited for, and what is typed then
		want   string
		err    string
	}{
		"all": {schema, [][2]string{{"amount (number): ", "5"}, {"that does not fit: got 5; want at least 10", "1e1"}, {"approved (boolean): ", "maybe"},
			{`that does not fit: got "maybe"; want true or false`, "true"}, {`note (["null","string"]): `, "7 o'clock"}, {`way (["card","cash",1]): `, "gold"},
			{`want "card", "cash" or 1`, "cash"}}, `{"amount":1e1,"approved":true,"note":"7 o'clock","way":"cash"}`, ""},
		"required": {schema, [][2]string{{"amount", ""}, {"approved", ""}, {"note", ""}, {"way", ""},
			{`that does not fit: `, ""}, {"approved", "false"}, {"note", ""}, {"way", ""}}, `{"approved":false}`, ""},
		"no schema":   {"null", [][2]string{{"result (JSON): ", `{"a": [1]}`}}, `{"a":[1]}`, ""},
		"text":        {`{"type":"string"}`, [][2]string{{"result (string): ", `17`}}, `"17"`, ""},
		"nothing":     {"null", [][2]string{{"result (JSON): ", ""}}, "null", ""},
		"end":         {"null", [][2]string{{"result (JSON): ", end}}, "", "step approve has no answer: the input has ended; " + runAdvice},
		"interrupted": {"null", [][2]string{{"result (JSON): ", interrupt}}, "", `interrupted: step "approve" has waited for an outside actor`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			writeFile(t, "ask.json", []byte(step(row.schema)))
			term := wire.OpenTerminal(t, 200, 24)
			in := configInput{env: map[string]string{"TERM": "xterm", "NO_COLOR": "1"}}
			var out bytes.Buffer
			p := &process{getenv: in.getenv, environ: in.environ(), now: realNow, stdin: term.Programs, stdout: &out, stderr: term.Programs}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error, 1)
			go func() { ended <- p.run(ctx, []string{"run", "ask.json", "-o", "json"}) }()
			read := 0
			for _, turn := range row.talk {
				eventually(t, turn[0], func() bool {
					at := strings.Index(term.Written()[read:], turn[0])
					read += max(0, at+len(turn[0])) * boolCount(at >= 0)
					return at >= 0
				})
				switch {
				case name == "interrupted":
					cancel(errInterrupted)
				case turn[1] == end:
					term.Mine.WriteString(end)
				default:
					term.Mine.WriteString(turn[1] + "\n")
				}
			}
			err := <-ended
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Fatalf("got %v; want %q", err, row.err)
				}
				return
			}
			noError(t, err)
			if got := string(compactJSON(nil, document{out.Bytes()}.at("results.approve").raw)); got != row.want {
				t.Errorf("got %s; want %s", got, row.want)
			}
		})
	}
}
