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

// detached is a script that leaves a process in a new session, which writes its number to a
// file.
func detached(file string) string {
	return fmt.Sprintf(`setsid sh -c 'echo $$ >"$D/%[1]s.new"; mv "$D/%[1]s.new" "$D/%[1]s"; exec sleep 600' </dev/null >/dev/null 2>&1 &
		until [ -e "$D/%[1]s" ]; do :; done
		`, file)
}

// TestProgramsLeaveNothing checks that no process outlives its program, whatever it does to
// escape.
func TestProgramsLeaveNothing(t *testing.T) {
	slow(t)
	t.Parallel()
	scripts := map[string]string{
		"setsid":     detached("setsid"),
		"job":        `set -m; sh -c 'echo $$ >"$D/job"; exec sleep 600' </dev/null >/dev/null 2>&1 & until [ -s "$D/job" ]; do :; done`,
		"orphan":     `(env -i D="$D" PATH="$PATH" sh -c '` + strings.ReplaceAll(detached("orphan"), "'", `'\''`) + `')`,
		"grandchild": `setsid sh -c '` + strings.ReplaceAll(detached("grandchild"), "'", `'\''`) + `wait' & until [ -e "$D/grandchild" ]; do :; done`,
		"output":     `setsid sh -c 'echo $$ >"$D/output"; exec sleep 600' & until [ -s "$D/output" ]; do :; done`,
		"cut":        detached("cut") + "wait",
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
		awaitGone(t, name, pid)
	}
	wantNoChildren(t, p)
	if !p.running() {
		t.Error("the service has ended, too")
	}
}

// awaitTick waits for the next hundredth of a second, the unit in which Linux records when a process
// started.
func awaitTick(t *testing.T) {
	t.Helper()
	now := func() string { return strings.Fields(string(readFile(t, "/proc/uptime")))[0] }
	before := now()
	eventually(t, "a tick of the clock", func() bool { return now() != before })
}

// TestOrphansOfRunningProgramsLive checks that the end of one program ends no process of
// programs that still run.
func TestOrphansOfRunningProgramsLive(t *testing.T) {
	slow(t)
	t.Parallel()
	hold := func(name string) string { return fmt.Sprintf(`until [ -e "$D/end-%s" ]; do sleep 0.01; done`, name) }
	p, dir := serveShell(t, map[string]string{
		"first":  "(" + detached("first") + ")\n" + hold("first"),
		"second": "(" + detached("second") + ")\n" + hold("second"),
		"third":  "(" + detached("third") + ")\n" + hold("third"),
	})
	ids, pids := map[string]string{}, map[string]int{}
	for _, name := range []string{"first", "second", "third"} {
		ids[name] = begin(p, name)
		pids[name] = awaitPID(t, dir, name)
		awaitTick(t)
	}
	end := func(name string) {
		writeFile(t, filepath.Join(dir, "end-"+name), nil)
		p.api().await(ids[name], "complete")
	}
	wantAlive := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := syscall.Kill(pids[name], 0); err != nil {
				t.Errorf("the orphan of the %s program: %v", name, err)
			}
		}
	}
	end("first") // its orphan is older than the other programs
	awaitGone(t, "the first orphan", pids["first"])
	wantAlive("second", "third")
	end("third") // its orphan could be the second program's
	wantAlive("second")
	end("second")
	awaitGone(t, "the second orphan", pids["second"])
	awaitGone(t, "the third orphan", pids["third"])
	wantNoChildren(t, p)
}

// TestShutdownEndsOrphans checks that a program which is cut off at shutdown leaves nothing
// behind, either.
func TestShutdownEndsOrphans(t *testing.T) {
	t.Parallel()
	p, dir := serveShell(t, map[string]string{"held": detached("child") + "(" + detached("orphan") + ")\nwait"})
	begin(p, "held")
	child, orphan := awaitPID(t, dir, "child"), awaitPID(t, dir, "orphan")
	p.stop()
	for _, pid := range []int{child, orphan} { // another process may not have reaped them yet
		eventually(t, "the end of what a program left", func() bool { return isZombie(pid) })
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
