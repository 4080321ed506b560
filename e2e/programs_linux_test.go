package e2e

// Processes that programs leave behind when they run as handlers.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// shellTemplate returns a template whose step runs a shell script, which finds the directory of
// the test in $D.
func shellTemplate(name, script string) string {
	args, _ := json.Marshal(map[string][]string{"args": {"-c", script}})
	return testTemplate(name, stepSpec{name: "a", callable: "exec:sh", config: string(args), timeout: 300})
}

// serveShell starts a server for named scripts, and returns the directory that they share with
// the test.
func serveShell(t *testing.T, scripts map[string]string) (*program, string) {
	t.Helper()
	wire.Need(t, "setsid")
	dir := t.TempDir()
	var templates []string
	for name, script := range scripts {
		templates = append(templates, shellTemplate(name, script))
	}
	p := serve(t, "--memory", "--templates", templateDir(t, templates...), "--config",
		configFile(t, "web.shutdown_timeout_seconds = 0\n[worker]\nallow_exec = true\n[worker.exec_env]\nD = "+strconv.Quote(dir)))
	return p, dir
}

// begin creates the task of a script.
func begin(p *program, name string) string {
	return p.api().create(fmt.Sprintf(`{"namespace":"t","name":%q}`, name))
}

// awaitPID waits until a process has written its number to a file.
func awaitPID(t *testing.T, dir, file string) (pid int) {
	t.Helper()
	eventually(t, file+" is there", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, file))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	return pid
}

func awaitGone(t *testing.T, what string, pid int) {
	t.Helper()
	eventually(t, "the end of "+what, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

// TestProgramsLeaveNothing checks that no process of a program's group outlives it, and that a process which left the
// group does not hold up the task.
func TestProgramsLeaveNothing(t *testing.T) {
	slow(t)
	t.Parallel()
	wait := func(file string) string {
		return fmt.Sprintf(`sh -c 'echo $$ >"$D/%[1]s"; exec sleep 600' & until [ -s "$D/%[1]s" ]; do :; done; `, file)
	}
	scripts := map[string]string{
		"child":      wait("child"),
		"grandchild": "(" + wait("grandchild") + ")",
		"cut":        wait("cut") + "wait",
		"left":       "setsid " + wait("left"),
	}
	p, dir := serveShell(t, scripts)
	for name := range scripts {
		id := begin(p, name)
		pid := awaitPID(t, dir, name)
		if name == "cut" {
			p.api().do("DELETE", "/v1/tasks/"+id, "").want(200)
		} else {
			p.api().await(id, "complete")
		}
		if name == "left" {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		awaitGone(t, name, pid)
	}
	wantNoChildren(t, p)
	if !p.running() {
		t.Error("the service has ended, too")
	}
}

// wantNoChildren fails the test if a server keeps children, or zombies.
func wantNoChildren(t *testing.T, p *program) {
	t.Helper()
	pid := p.cmd.Process.Pid
	eventually(t, "the end of all children", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			wire.Skip(t, "%v", err)
		}
		return len(text) == 0
	})
}

// TestMemoryLimit sends more to a program in a control group than the group's memory holds: the
// program drops what has finished, refuses what waits, and starts again.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	if raceDetector() {
		wire.Skip(t, "the race detector takes several times the memory")
	}
	const limit, large = 200 << 20, 200_000
	join := memoryGroup(t, limit)
	args := serveArguments("--data", t.TempDir())
	start := func() *program {
		args := append([]string{"-c", join + `exec "$@"`, "sh", programFile(t)}, args...)
		return launchFile(t, "/bin/sh", nil, nil, args...).awaitReady()
	}
	p := start()
	for _, tt := range []struct {
		template string
		refusals bool
	}{{"diamond", false}, {"approval", true}} {
		got := p.createLarge(tt.template, size(800, 2000), large)
		if refused := got["503 STORE_FULL"]; got["201"]+refused != size(800, 2000) || (refused > 0) != tt.refusals {
			t.Errorf("%s: got %v; want 201, and STORE_FULL only for what waits", tt.template, got)
		}
		p.signal(syscall.SIGKILL)
		p.wait()
		p = start()
	}
	if m := p.api().do("GET", "/metrics", "").body; !strings.Contains(string(m), "\nstepwell_limit{limit=\"stored_bytes\"} 1.46800") {
		t.Errorf("the limit is not 70 %% of the group's:\n%s", m)
	}
	p.stop()
}

// createLarge creates n large tasks, a multiple of 16, by 16 clients at once, and counts the answers.
func (p *program) createLarge(template string, n, bytes int) map[string]int {
	body := fmt.Sprintf(`{"namespace":"demo","name":%q,"context":{"a":%q}}`, template, strings.Repeat("a", bytes))
	answers := make(chan string, n)
	for range 16 {
		go func() {
			for range n / 16 {
				answers <- p.answerTo(body)
			}
		}()
	}
	got := map[string]int{}
	for range n {
		got[<-answers]++
	}
	return got
}

// answerTo creates a task and returns the status, and the code of an error.
func (p *program) answerTo(body string) string {
	resp, err := http.Post(p.ready.OrchestrationURL+"/v1/tasks", "application/json", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var v struct{ Error struct{ Code string } }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", v.Error.Code))
}

// memoryGroup makes a control group that allows so much memory, and returns a shell command that
// joins it.
func memoryGroup(t *testing.T, bytes int) string {
	t.Helper()
	name := fmt.Sprintf("stepwell-test-%d", os.Getpid())
	for _, g := range [][2]string{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		dir := filepath.Join(g[0], name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, g[1]), []byte(strconv.Itoa(bytes)), 0) == nil {
			return "echo $$ > " + dir + "/cgroup.procs && "
		}
	}
	wire.Skip(t, "control groups for memory cannot be made here")
	return ""
}

// TestHandlerFlag has a program run the step of a template by a flag.
func TestHandlerFlag(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "order.json")
	writeFile(t, file, []byte(`{"namespace":"t","name":"order","version":"1.0.0","steps":[{"name":"charge","handler":{"callable":"pay"}}]}`))
	said := wantExit(t, 0, []string{"STEPWELL_WORKER__ALLOW_EXEC=true"}, "run", file, "--handler", "pay=exec:/bin/cat", "-o", "json")
	wantParts(t, "the result", said, `"callable": "pay"`)
}
