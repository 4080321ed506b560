//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"stepwell/e2e/wire"
)

// serveLogging starts a server with a request log, and returns the other end of its standard error, which nobody reads
// yet.
func serveLogging(t *testing.T, args ...string) (*program, *os.File) {
	t.Helper()
	shell := wire.Need(t, "sh")
	pipe := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	log := wire.Must(os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0))(t)
	t.Cleanup(func() { log.Close() })
	args = append([]string{"-c", `exec "$0" "$@" 2>` + pipe, programFile(t)}, serveArguments(append(args, "--memory")...)...)
	return launchFile(t, shell, nil, []string{"STEPWELL_LOG__REQUESTS=true"}, args...).awaitReady(), log
}

// TestClosedLog closes the other end of standard error, as head does: the service continues, and counts the lines that
// nobody gets.
func TestClosedLog(t *testing.T) {
	t.Parallel()
	p, log := serveLogging(t)
	log.Close()
	for range 3 {
		p.api().do("GET", "/v1/tasks", "").want(200)
	}
	eventually(t, "the lost lines are counted", func() bool { return p.api().metric("stepwell_log_lines_lost_total") >= 3 })
	p.stop()
}

// TestUnreadLog logs more than the pipe and the queue hold while nobody reads standard error: every request is answered,
// tasks get blocked, and the service ends. Whoever reads at the end gets the last line, and how many are missing.
func TestUnreadLog(t *testing.T) {
	t.Parallel()
	fails := templateDir(t, `{"name":"fails","namespace":"t","version":"1.0.0","steps":[
		{"name":"a","handler":{"callable":"builtin:fail"},"retry":{"max_attempts":1}}]}`)
	for name, read := range map[string]bool{"never": false, "at the end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, log := serveLogging(t, "--templates", fails)
			for range 2500 {
				p.api().do("GET", "/"+strings.Repeat("x", 490), "").want(404)
			}
			for i := range 400 {
				p.api().create(fmt.Sprintf(`{"namespace":"t","name":"fails","context":{"i":%d}}`, i))
			}
			eventually(t, "all tasks are blocked", func() bool { return p.api().metric(`stepwell_tasks{state="blocked_by_failures"}`) == 400 })
			p.api().do("GET", "/health", "").want(200)
			lost := p.api().metric("stepwell_log_lines_lost_total")
			if lost < 100 {
				t.Errorf("%v lines are lost; want those that the queue cannot hold", lost)
			}
			said := make(chan []byte)
			if read {
				go func() {
					text, _ := io.ReadAll(log)
					said <- text
				}()
			}
			p.stop()
			if !read {
				return
			}
			missing, last := int64(0), ""
			for lines := bufio.NewScanner(bytes.NewReader(<-said)); lines.Scan(); {
				var line struct {
					Msg   string
					Lines int64
				}
				if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
					t.Errorf("%v in %s", err, lines.Bytes())
				}
				if last = line.Msg; strings.Contains(last, "missing here") {
					missing += line.Lines
				}
			}
			if last != "stopped" || missing < lost {
				t.Errorf("the last line is %q, and %v lines are said to be missing; want %q, and %v or more", last, missing, "stopped", lost)
			}
		})
	}
}

// TestMCPOutputClosed closes standard output of the command mcp, which continues until standard input ends.
func TestMCPOutputClosed(t *testing.T) {
	t.Parallel()
	p := serve(t, "--memory")
	cmd := exec.Command(programFile(t), "mcp", "--url", p.ready.OrchestrationURL)
	cmd.Env = programEnv()
	in, out := wire.Must(cmd.StdinPipe())(t), wire.Must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	io.WriteString(in, ping)
	wire.Must(bufio.NewReader(out).ReadString('\n'))(t)
	out.Close()
	for range 3 {
		io.WriteString(in, ping)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("got %v; want its usual end", err)
	}
}
