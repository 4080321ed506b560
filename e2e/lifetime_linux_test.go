package e2e

// The end of the parent on Linux, which tells about processes in /proc.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestParentKilled checks that a process ends when its parent is killed. A shell is the parent;
// it holds the only writing end of the pipe.
func TestParentKilled(t *testing.T) {
	slow(t)
	t.Parallel()
	wire.Need(t, "sh")
	ready := filepath.Join(t.TempDir(), "ready.json")
	arguments := serveArguments("--memory", "--quiet", "--exit-with-parent", "--ready-file", ready)
	parent := exec.Command("sh", "-c", `sleep 600 | "$0" "$@"; :`, programFile(t))
	parent.Args = append(parent.Args, arguments...)
	parent.Env = programEnv()
	parent.Dir = t.TempDir()
	parent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(-parent.Process.Pid, syscall.SIGKILL)
	var report readyReport
	eventually(t, "the ready file", func() bool {
		b, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(b, &report) == nil
	})
	killWriters(t, parent.Process.Pid, report.PID)
	eventually(t, "the end of the child", func() bool { return syscall.Kill(report.PID, 0) != nil || isZombie(report.PID) })
	wantNoFiles(t, filepath.Dir(ready))
	parent.Wait()
}

// killWriters kills the processes of a group except one.
func killWriters(t *testing.T, group, but int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(dirs) == 0 {
		wire.Skip(t, "needs /proc")
	}
	for _, name := range dirs {
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		if got, err := syscall.Getpgid(pid); err == nil && got == group && pid != but {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// isZombie reports whether a process has ended and was not reaped yet.
func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}
