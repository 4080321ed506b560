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
	for _, limit := range []int{64 << 20, 200 << 20} {
		t.Run(fmt.Sprint(limit>>20), func(t *testing.T) { fillMemory(t, limit) })
	}
}

func fillMemory(t *testing.T, limit int) {
	const large = 200_000
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
		refused, busy := got["503 STORE_FULL"], got["503 BACKPRESSURE"]
		if got["201"]+refused+busy != size(800, 2000) || (refused > 0) != tt.refusals || busy > size(80, 200) {
			t.Errorf("%s: got %v; want 201, STORE_FULL only for what waits, and a few BACKPRESSURE", tt.template, got)
		}
		p.signal(syscall.SIGKILL)
		p.wait()
		p = start()
	}
	m := string(p.api().do("GET", "/metrics", "").body)
	for name, want := range map[string]int{"stored_bytes": (limit - 32<<20) / 2, "request_bytes": limit / 8} {
		if _, v, _ := strings.Cut(m, "\nstepwell_limit{limit=\""+name+"\"} "); wire.Must(strconv.ParseFloat(strings.Fields(v)[0], 64))(t) != float64(want) {
			t.Errorf("the limit of %s is %.10s; want %d", name, v, want)
		}
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
