package e2e

// A soak: the program under the load of the crash test, that keeps few of many tasks. Its use of the machine must not grow.

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

var soakDuration = flag.Duration("soak.duration", time.Duration(size(2, 10))*time.Second, "how long TestSoak goes on")

const soakKept = 2_000 // finished tasks

// soakFootprint holds what a process uses of the machine.
type soakFootprint struct {
	tasks, rss, heap, goroutines, files, disk int64
}

// footprint measures the program under load.
func (c *crashTest) footprint() (f soakFootprint) {
	c.t.Helper()
	text, pid := c.program.api().metrics(), c.program.cmd.Process.Pid
	c.mu.Lock()
	f.tasks = int64(len(c.tasks))
	c.mu.Unlock()
	f.heap = metricValue(c.t, text, "stepwell_heap_bytes")
	f.goroutines = metricValue(c.t, text, "stepwell_goroutines")
	f.rss, f.files, f.disk = wire.ResidentBytes(c.t, pid), openFiles(c.t, pid), directorySize(c.t, c.data)
	c.t.Logf("%+v", f)
	return f
}

// directorySize returns the total length of the files in a directory, from which a compaction may just take one.
func directorySize(t *testing.T, dir string) (n int64) {
	t.Helper()
	for _, e := range wire.Must(os.ReadDir(dir))(t) {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

// wantFlat compares what a process uses at the end with what it used after it had warmed up.
// Memory, which depends on the garbage collector, may grow by a third plus 24 MB. The files on
// disk may grow by records that are not due for a compaction yet, and by a file that is being compacted.
func wantFlat(t *testing.T, warm, end soakFootprint) {
	t.Helper()
	for _, limit := range []struct {
		what      string
		got, most int64
	}{
		{"RSS", end.rss, warm.rss + warm.rss/3 + 24<<20},
		{"goroutines", end.goroutines, warm.goroutines + 40},
		{"open files", end.files, warm.files + 40},
		{"bytes on disk", end.disk, warm.disk + warm.disk/4 + 2*compactFloor},
	} {
		if limit.got > limit.most {
			t.Errorf("%s: got %d at the end; want at most %d", limit.what, limit.got, limit.most)
		}
	}
}

// TestSoak compares the second half of a life under load with the first.
//
//	go test ./e2e -run TestSoak -soak.duration 10m -timeout 20m -v
func TestSoak(t *testing.T) {
	t.Parallel()
	slow(t)
	if runtime.GOOS != "linux" {
		wire.Skip(t, "looks into /proc")
	}
	c := newCrashTest(t, "")
	c.env = []string{fmt.Sprintf("STEPWELL_STORE__RETAIN_FINISHED_COUNT=%d", soakKept)}
	c.handler.free() // no call is held
	c.start()
	c.begin(8, "diamond", "flaky", "web", "grow")
	<-time.After(*soakDuration / 2)
	warm := c.footprint()
	<-time.After(*soakDuration / 2)
	end := c.footprint()
	c.settle()
	if end.tasks == warm.tasks {
		t.Error("no task was created: the test tested too little")
	}
	wantFlat(t, warm, end)
	if kept := c.list("complete", 1, 1).Pagination.TotalCount; kept > soakKept {
		t.Errorf("got %d finished tasks; want at most %d", kept, soakKept)
	}
	c.program.stop()
	c.checkLog()
}

// openFiles returns the number of open files of a process.
func openFiles(t testing.TB, pid int) int64 {
	t.Helper()
	entries := wire.Must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	return int64(len(entries))
}
