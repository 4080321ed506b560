package e2e

// Processes that programs leave behind when they run as handlers.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("needs setsid")
	}
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

// TestOrphansOfRunningProgramsLive checks that the end of one program ends no process of
// programs that still run.
func TestOrphansOfRunningProgramsLive(t *testing.T) {
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
			t.Skip(err)
		}
		return len(text) == 0
	})
}
