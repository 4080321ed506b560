package e2e

// The program in a control group that limits its memory.

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
