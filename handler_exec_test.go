package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// TestHandlerProgram is not a test. Tests run this binary as a handler; the arguments after --
// tell it what to do.
func TestHandlerProgram(t *testing.T) {
	if flag.NArg() == 0 {
		return
	}
	syscall.Exit(handlerProgram(flag.Arg(0), flag.Args()[1:])) // skips what -race and -cover do at the end
}

// handlerProgramArgs returns the arguments that make this binary perform an
// action.
func handlerProgramArgs(do ...string) []string {
	return append([]string{"-test.run=^TestHandlerProgram$", "--"}, do...)
}

func handlerProgram(do string, args []string) (code int) {
	switch do {
	case "say": // to standard output, to standard error, and exit
		fmt.Print(args[0])
		fmt.Fprint(os.Stderr, args[1])
		code, _ = strconv.Atoi(args[2])
	case "print": // a result of so many bytes
		n, _ := strconv.Atoi(args[0])
		fmt.Print(strings.Repeat(" ", n-1), 1)
	case "input": // replies what it was sent
		io.Copy(os.Stdout, os.Stdin)
	case "where": // replies its environment, directory and arguments
		dir, _ := os.Getwd()
		json.NewEncoder(os.Stdout).Encode(map[string]any{"env": os.Environ(), "dir": dir, "args": args})
	case "flood":
		for {
			fmt.Print("0123456789")
		}
	case "grumble": // many lines to standard error
		for i := range 20000 {
			fmt.Fprintf(os.Stderr, "line %d é\n", i)
		}
		code = 3
	case "signal":
		n, _ := strconv.Atoi(args[0])
		endBySignal(n)
		<-time.After(time.Hour) // without another goroutine, the runtime would call it a deadlock
	case "serve": // handles steps over HTTP until standard input ends
		serveSteps()
	case "hang": // until the peer at an address hangs up
		waitForPeer(args[0])
	case "fork", "leave": // starts a hanging child, with its own group or in ours, and hangs too or not
		startHangingChild(args[0], do == "leave" && args[1] == "away")
		if do == "fork" {
			waitForPeer(args[0])
		}
		fmt.Print(`"left"`)
	}
	return code
}

// serveSteps answers every request with 1, and prints its URL.
func serveSteps() {
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "1")
	}))
	fmt.Println(handler.URL)
	io.Copy(io.Discard, os.Stdin)
}

// waitForPeer connects and waits for the end of the connection.
func waitForPeer(address string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		panic(err)
	}
	io.Copy(io.Discard, conn)
}

// startHangingChild starts a child that keeps our output open.
func startHangingChild(address string, away bool) {
	child := exec.Command(os.Args[0], handlerProgramArgs("hang", address)...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if away {
		leaveSession(child)
	}
	if err := child.Start(); err != nil {
		panic(err)
	}
}

func runExec(t *testing.T, h *handlerSet, do ...string) outcome {
	t.Helper()
	return h.run(context.Background(), h.resolve(thisProgram(t)), programAttempt(t, do...))
}

func TestExecOutcomes(t *testing.T) {
	slow(t)
	t.Parallel()
	h := newTestHandlers(t, nil)
	for _, row := range []struct {
		do   string
		want string
	}{
		{`say|{"a": 1.0}||0`, `ok {"a":1.0}`},
		{`say|||0`, `ok null`},
		{`say|"x"|only a remark|0`, `ok "x"`},
		{`say|{"success": true, "result": 1, "metadata": {"k": 2}}||0`, `ok 1 metadata {"k":2}`},
		{`say|{"success": false, "error": {"error_type": "t", "retryable": false}}|why|0`,
			`t permanent {"stderr":"why"}`},
		{`say|{"success": false, "error": {"context": {"who": 1}}}|why|0`,
			`handler_error retryable {"stderr":"why","who":1}`},
		{`say|oops|why|0`, `invalid_result permanent {"stderr":"why"}`},
		{`say|1|why|1`, `exit_1 permanent {"stderr":"why"}`},
		{`say|{"success": true}||2`, `exit_2 permanent `},
		{`say||later|75`, `exit_75 retryable {"stderr":"later"}`},
		{`say||to http://u:s3cret@h/|255`, `exit_255 permanent {"stderr":"to http://[REDACTED]@h/"}`},
		{`signal|15`, `signal_15 retryable `},
		{`signal|9`, `signal_9 retryable `},
		{`flood`, `result_too_large permanent `},
	} {
		o := runExec(t, h, strings.Split(row.do, "|")...)
		got := showOutcome(o)
		if o.err != nil {
			got += " " + string(o.err.context)
		}
		if got != row.want {
			t.Errorf("%s: got %s (%s); want %s", row.do, got, errorText(o), row.want)
		}
	}
	o := runExec(t, h, "say", "", "Traceback:\nKeyError: 'sent'\n", "1")
	if want := "the program exited with 1: KeyError: 'sent'"; o.err.message != want {
		t.Errorf("got %s; want %s", o.err.message, want)
	}
	o = runExec(t, h, "say", "oops\nagain", "", "0")
	if want := "the reply: invalid JSON at offset 0: "; !strings.HasPrefix(o.err.message, want) ||
		!strings.HasSuffix(o.err.message, ": oops again") {
		t.Errorf("got %s; want %s… with the output", o.err.message, want)
	}
}

func TestExecSurroundings(t *testing.T) {
	t.Setenv("STEPWELL_ADMIN_KEY", "secret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	dir := t.TempDir()
	t.Chdir(dir)
	h := newTestHandlers(t, func(c *workerConfig) {
		c.MaxResultBytes = 1 << 20
		c.ExecEnv = map[string]string{"TOKEN": "t", "LANG": "C", "STEPWELL_KEY": "k", "stepwell_key": "k"}
	})
	o := runExec(t, h, "where", "a b", "$HOME", "*")
	var got struct {
		Env, Args []string
		Dir       string
	}
	if err := json.Unmarshal(o.result, &got); err != nil {
		t.Fatalf("%s: %v", showOutcome(o), err)
	}
	slices.Sort(got.Env)
	want := []string{"LANG=C", "PATH=/usr/bin:relative:/bin", "TOKEN=t", "TZ=UTC"}
	if !slices.Equal(got.Env, want) {
		t.Errorf("environment: got %q; want %q", got.Env, want)
	}
	if want, _ := filepath.EvalSymlinks(dir); got.Dir != dir && got.Dir != want {
		t.Errorf("directory: got %s; want %s", got.Dir, dir)
	}
	if want := []string{"a b", "$HOME", "*"}; !slices.Equal(got.Args, want) {
		t.Errorf("arguments: got %q; want %q", got.Args, want)
	}
}

// TestExecEmptyEnvironment checks that an empty environment stays empty: os/exec
// passes on this process's environment for a nil one.
func TestExecEmptyEnvironment(t *testing.T) {
	env := programEnv("", nil, func(string) string { return "" })
	if env == nil || len(env) != 0 {
		t.Errorf("got %#v; want an empty list", env)
	}
}

func TestExecArguments(t *testing.T) {
	for _, row := range []struct{ config, want string }{
		{`{}`, `[]`},
		{`{"args": null}`, `[]`},
		{`{"args": []}`, `[]`},
		{`{"args": ["a", ""]}`, `["a" ""]`},
		{`{"args": "a"}`, "args is a string; want a list of strings"},
		{`{"args": {"a": 1}}`, "args is an object; want a list of strings"},
		{`{"args": ["a", 5]}`, "args[1] is 5; want a string"},
		{`{"args": [null]}`, "args[0] is null; want a string"},
	} {
		args, problem := programArgs([]byte(row.config))
		got := problem
		if problem == "" {
			got = fmt.Sprintf("%q", args)
		}
		if got != row.want {
			t.Errorf("%s: got %s; want %s", row.config, got, row.want)
		}
	}
	h := newTestHandlers(t, nil)
	o := h.run(context.Background(), h.resolve(thisProgram(t)), newTestAttempt(`{"args": [1]}`))
	if got, want := showOutcome(o)+": "+o.err.message,
		"invalid_config permanent: initialization.args[0] is 1; want a string"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestExecLooksForPrograms(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write := func(dir, name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		noError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	tool := write(second, "tool", "no format", 0o755)
	write(first, "tool", "not executable", 0o644)
	plain := write(first, "plain", "x", 0o644)
	os.Mkdir(filepath.Join(first, "dir"), 0o755)

	h := newTestHandlers(t, func(c *workerConfig) { c.ExecPath = first + ":" + second + "::" })
	for _, row := range []struct{ program, path, want string }{
		{"tool", tool, "program_unusable permanent"}, // found, but in no format that can be run
		{tool, tool, "program_unusable permanent"},
		{"plain", "", "program_unusable permanent"},
		{"dir", "", "program_unusable permanent"},
		{"sh", "", "program_unusable permanent"}, // PATH does not count beside exec_path
		{plain, "", "program_unusable permanent"},
		{first, "", "program_unusable permanent"},
		{filepath.Join(first, "nope"), "", "program_unusable permanent"},
	} {
		path, err := h.programs.find(row.program)
		if (err == nil) != (row.path != "") || err == nil && path != row.path {
			t.Errorf("find %s: got %s, %v; want %s", row.program, path, err, row.path)
		}
		if missing := h.missingProgram("exec:" + row.program); (missing == nil) != (err == nil) {
			t.Errorf("missingProgram %s: got %v; want %v", row.program, missing, err)
		}
		o := callHandler(t, h, "exec:"+row.program)
		if got := showOutcome(o); got != row.want {
			t.Errorf("%s: got %s (%s); want %s", row.program, got, errorText(o), row.want)
		}
	}
	if want := []string{"PATH=" + first + ":" + second, "TZ=UTC"}; !slices.Equal(h.programs.env, want) {
		t.Errorf("environment: got %q; want %q", h.programs.env, want)
	}
	want := []string{"/usr/bin", "/bin"}
	if got := newTestHandlers(t, nil).programs.dirs; !slices.Equal(got, want) {
		t.Errorf("directories of PATH: got %q; want %q", got, want)
	}
}

func TestNoRoomForAProcessIsRetryable(t *testing.T) {
	o := notStarted(&os.PathError{Op: "fork/exec", Path: "x", Err: syscall.EAGAIN})
	if got, want := showOutcome(o), "exec_unavailable retryable"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestTailOutput(t *testing.T) {
	const all = "0123456789abcdefghijklmnopqrstuvwxyz"
	text := strings.Repeat(all, 3000)
	for _, total := range []int{0, 1, maxErrorText - 1, maxErrorText, maxErrorText + 1, 4*maxErrorText + 1, 100_000} {
		for _, piece := range []int{1 + total/3, 1000, 100_000} {
			var w tailOutput
			for rest := text[:total]; rest != ""; {
				n := min(piece, len(rest))
				w.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got, want := string(w.tail()), text[max(0, total-maxErrorText):total]; got != want {
				t.Errorf("%d bytes in pieces of %d: got %d bytes; want the last %d",
					total, piece, len(got), len(want))
			}
		}
	}
	for _, start := range []string{"", "x"} {
		w := tailOutput{}
		io.WriteString(&w, start+strings.Repeat("é", 4*maxErrorText))
		io.WriteString(&w, "x")
		if got := w.tail(); !utf8.Valid(got) || len(got) < maxErrorText-1 {
			t.Errorf("got %d bytes from %q on; want whole characters", len(got), got[:4])
		}
	}
	w := tailOutput{}
	io.WriteString(&w, "\x80kept, because nothing was cut")
	if got := w.tail(); got[0] != 0x80 {
		t.Errorf("got %q", got)
	}
}

// peers accepts connections from programs that wait until they are killed.
type peers struct {
	t        *testing.T
	listener net.Listener
}

func newPeers(t *testing.T) *peers {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	return &peers{t, l}
}

func (p *peers) address() string { return p.listener.Addr().String() }

// accept waits for the next program.
func (p *peers) accept() net.Conn {
	conn, err := p.listener.Accept()
	if err != nil {
		p.t.Error(err)
		return nil
	}
	p.t.Cleanup(func() { conn.Close() })
	return conn
}

// TestExecKillsWhatAProgramLeaves ends a program whose child, in the same group,
// keeps the output open.
func TestExecKillsWhatAProgramLeaves(t *testing.T) {
	h, p := newTestHandlers(t, nil), newPeers(t)
	h.programs.grace = time.Hour // so that this ends only because the child does
	if got, want := showOutcome(runExec(t, h, "leave", p.address(), "here")), `ok "left"`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

// TestExecDoesNotWaitForDaemons runs a program that leaves a child in another
// session. The child keeps the output open and cannot be killed with the group.
func TestExecDoesNotWaitForDaemons(t *testing.T) {
	h, p := newTestHandlers(t, nil), newPeers(t)
	h.programs.grace = 10 * time.Millisecond
	o := runExec(t, h, "leave", p.address(), "away")
	if got, want := showOutcome(o), `ok "left"`; got != want {
		t.Errorf("got %s (%s); want %s", got, errorText(o), want)
	}
	p.accept().Close() // so it still runs, and ends now
}

func TestExecLeavesNoZombie(t *testing.T) {
	h := newTestHandlers(t, nil)
	for _, code := range []string{"0", "1"} {
		p := h.programs.command(context.Background(), strings.TrimPrefix(thisProgram(t), "exec:"),
			handlerProgramArgs("say", "1", "", code))
		noError(t, p.start())
		p.wait()
		if !isGone(p.cmd.Process.Pid) {
			t.Errorf("exit %s: the process is still known", code)
		}
		if err := p.kill(); err != os.ErrProcessDone {
			t.Errorf("exit %s: kill after the end: got %v; want %v", code, err, os.ErrProcessDone)
		}
	}
}

func TestExecKeepsTheEndOfStandardError(t *testing.T) {
	t.Parallel()
	o := runExec(t, newTestHandlers(t, nil), "grumble")
	if got, want := showOutcome(o), "exit_3 permanent"; got != want {
		t.Fatalf("got %s; want %s", got, want)
	}
	var context struct{ Stderr string }
	json.Unmarshal(o.err.context, &context)
	if n := len(context.Stderr); n > maxErrorText || n < maxErrorText-3 {
		t.Errorf("got %d bytes; want %d", n, maxErrorText)
	}
	if !strings.HasSuffix(context.Stderr, "line 19999 é\n") || strings.Contains(context.Stderr, "\ufffd") {
		t.Errorf("got …%q", context.Stderr[len(context.Stderr)-30:])
	}
}

// newTestHandlers returns the handlers of a configuration with small limits, which the change
// function may modify. The environment has only PATH.
func newTestHandlers(t testing.TB, change func(c *workerConfig)) *handlerSet {
	t.Helper()
	c := &workerConfig{MaxResultBytes: 1000, HTTPConcurrency: 16, AllowExec: true}
	if change != nil {
		change(c)
	}
	h := newHandlerSet(c, "1.2.3", handlerTestEnv)
	t.Cleanup(func() { h.web.connections.(*handlerTransport).CloseIdleConnections() })
	return h
}

// newTestAttempt returns an attempt with a configuration.
func newTestAttempt(config string) *attempt {
	return &attempt{
		taskID:        stableID("task"),
		stepID:        stableID("step"),
		namespace:     "shop",
		name:          "order",
		version:       "1.0.0",
		correlationID: "c-1",
		context:       []byte(`{"order":7}`),
		stepName:      "pay",
		number:        2,
		maxAttempts:   3,
		timeout:       30 * time.Second,
		config:        []byte(config),
		inputs:        []byte(`{"order":8}`),
	}
}

// showOutcome shows an outcome without its error's message and context: "ok" and
// the result, or the error type, whether it is retryable, and the status.
func showOutcome(o outcome) string {
	var s string
	switch {
	case o.success && o.err == nil && o.result == nil:
		s = "ok null"
	case o.success && o.err == nil:
		s = "ok " + string(o.result)
	case o.success || o.err == nil:
		return "an outcome that contradicts itself"
	case o.err.retryable:
		s = o.err.errorType + " retryable"
	default:
		s = o.err.errorType + " permanent"
	}
	if o.err != nil && o.err.statusCode != 0 {
		s += fmt.Sprint(" ", o.err.statusCode)
	}
	if o.checkpoint != nil {
		s += " checkpoint " + string(o.checkpoint)
	}
	if o.metadata != nil {
		s += " metadata " + string(o.metadata)
	}
	return s
}

// errorText returns all text of an outcome's error.
func errorText(o outcome) string {
	if o.err == nil {
		return ""
	}
	return o.err.message + " " + string(o.err.context)
}

func TestExecNotAllowed(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) {
		c.AllowExec = false
		c.Handlers = map[string]string{"A": "exec:tool"}
	})
	for callable, warned := range map[string]bool{
		"A": true, "exec:/bin/tool": true, "builtin:noop": false, "B": false,
	} {
		if err := h.check(callable); err != nil {
			t.Errorf("check(%q): %v", callable, err)
		}
		if got := h.warning(callable) != ""; got != warned {
			t.Errorf("warning(%q): got %q", callable, h.warning(callable))
		}
		if err := h.missingProgram(callable); err != nil {
			t.Errorf("missingProgram(%q): looked for a program that is not allowed: %v", callable, err)
		}
	}
	o := h.run(context.Background(), h.resolve("A"), newTestAttempt(`{}`))
	if got, want := showOutcome(o), "exec_not_allowed permanent"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if got := newTestHandlers(t, nil).warning("exec:/bin/tool"); got != "" {
		t.Errorf("warning of an allowed program: %q", got)
	}
}

// thisProgram returns the callable that runs this binary.
func thisProgram(t *testing.T) string {
	t.Helper()
	path := must(os.Executable())(t)
	return "exec:" + path
}

// programAttempt returns an attempt that makes this binary perform an action.
func programAttempt(t *testing.T, do ...string) *attempt {
	t.Helper()
	return newTestAttempt(programConfig(t, do...))
}

// programConfig returns the configuration of a step that makes this binary perform an action.
func programConfig(t *testing.T, do ...string) string {
	t.Helper()
	return string(must(json.Marshal(map[string]any{"args": handlerProgramArgs(do...)}))(t))
}

func TestExecInput(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) { c.MaxResultBytes = 1 << 20 })
	a := programAttempt(t, "input")
	a.context = []byte(`"` + strings.Repeat("x", 300_000) + `"`) // more than a pipe holds
	o := h.run(context.Background(), h.resolve(thisProgram(t)), a)
	if string(o.result) != string(a.envelope(nil)) {
		t.Errorf("got %d bytes, %s; want the envelope", len(o.result), errorText(o))
	}
	a = programAttempt(t, "say", "1", "", "0")
	a.context = []byte(`"` + strings.Repeat("x", 300_000) + `"`)
	o = h.run(context.Background(), h.resolve(thisProgram(t)), a)
	if got, want := showOutcome(o), "ok 1"; got != want {
		t.Errorf("a program that does not read its input: got %s (%s); want %s", got, errorText(o), want)
	}
}

func TestExecTimeout(t *testing.T) {
	h := newTestHandlers(t, nil)
	a := programAttempt(t, "signal", "0") // none: it waits for ever
	a.timeout = 30 * time.Millisecond
	o := h.run(context.Background(), h.resolve(thisProgram(t)), a)
	if got, want := showOutcome(o), "timeout retryable"; got != want {
		t.Errorf("got %s (%s); want %s", got, errorText(o), want)
	}
}

func TestExecCancelledBeforeItStarts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := newTestHandlers(t, nil)
	o := h.run(ctx, h.resolve(thisProgram(t)), programAttempt(t, "say", "1", "", "0"))
	if got, want := showOutcome(o), "cancelled retryable"; got != want {
		t.Errorf("got %s (%s); want %s", got, errorText(o), want)
	}
}

// awaitEnd returns once the program at the other end, which sends nothing, has ended.
func awaitEnd(conn net.Conn) { io.Copy(io.Discard, conn) }

func TestExecCancelKillsTheWholeGroup(t *testing.T) {
	h, p := newTestHandlers(t, nil), newPeers(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan outcome)
	go func() { done <- h.run(ctx, h.resolve(thisProgram(t)), programAttempt(t, "fork", p.address())) }()
	parent, child := p.accept(), p.accept()
	cancel()
	if got, want := showOutcome(<-done), "cancelled retryable"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	awaitEnd(parent)
	awaitEnd(child)
}
