package main

// The system calls of base_linux.go, through the journal and the exec handler.

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// TestReservationIsGivenBack checks that a file that is not written any more
// takes no more blocks than it has bytes; before, it has at least a step more.
func TestReservationIsGivenBack(t *testing.T) {
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	name := filepath.Join(o.dir, storeName)
	if size, blocks := fileExtent(t, name); size > 1000 || blocks < spaceAhead {
		wire.Skip(t, "the file system sets no blocks aside: %d bytes in %d bytes of blocks", size, blocks)
	}
	mustClose(t, j)
	if _, blocks := fileExtent(t, name); blocks > 64<<10 {
		t.Errorf("blocks after close: got %d bytes", blocks)
	}
}

// fileExtent returns the size of a file and the bytes of its blocks.
func fileExtent(t *testing.T, name string) (size, blocks int64) {
	t.Helper()
	var s syscall.Stat_t
	noError(t, syscall.Stat(name, &s))
	return s.Size, s.Blocks * 512
}

func TestJournalOnReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
		wire.Skip(t, "mount a tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	for _, sub := range []string{"", "/store"} {
		o := diskOptions(nil)
		o.dir, o.fs = dir+sub, osDisk{}
		_, err := openJournal(o, &gathered{})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("data directory %s: ", o.dir)) {
			t.Errorf("open: got %v; want an error naming %s", err, o.dir)
		}
	}
}

// TestExecReapsOrphans makes this process the one that orphans fall to, like
// the first process of a container.
func TestExecReapsOrphans(t *testing.T) {
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		wire.Skip(t, "no orphans here: %v", errno)
	}
	defer syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 0, 0)
	h := newTestHandlers(t, nil)
	a := newTestAttempt(`{"args": ["-c", "sleep 60 <&- >&- 2>&- & echo $!"]}`)
	o := h.run(context.Background(), h.resolve("exec:sh"), a)
	pid, err := strconv.Atoi(strings.TrimSpace(string(o.result)))
	if err != nil {
		t.Fatalf("%s (%s): %v", showOutcome(o), errorText(o), err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("the orphan is still known: %v", err)
	}
}

// TestSendBuffer checks that the system holds little output of an accepted connection.
func TestSendBuffer(t *testing.T) {
	l := boundedListener{must(net.Listen("tcp", "127.0.0.1:0"))(t), manyConnections()}
	defer l.Close()
	client := must(net.Dial("tcp", l.Addr().String()))(t)
	defer client.Close()
	c := must(l.Accept())(t).(*connection)
	defer c.Close()
	raw := must(c.Conn.(*net.TCPConn).SyscallConn())(t)
	raw.Control(func(fd uintptr) {
		if n := must(syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF))(t); n != 4*jsonPiece {
			t.Errorf("got %d bytes; want %d, twice what was asked for", n, 4*jsonPiece)
		}
	})
}

// TestCgroupMemory finds the least limit of a process's control groups.
func TestCgroupMemory(t *testing.T) {
	const one, two = "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
	for _, tt := range []struct {
		name, groups string
		files        map[string]string
		want         int64
	}{
		{name: "no groups"},
		{"version 2", "0::/a/b\n", map[string]string{two + "a/b/memory.max": "max\n", two + "a/memory.max": "209715200\n"}, 200 << 20},
		{"the least counts", "0::/a/b\n", map[string]string{two + "a/b/memory.max": "100\n", two + "a/memory.max": "200\n"}, 100},
		{"in a container", "0::/\n", map[string]string{two + "memory.max": "300\n"}, 300},
		{"the host's path in a container", "0::/docker/1\n", map[string]string{two + "memory.max": "300\n"}, 300},
		{"no limit", "0::/a\n", map[string]string{two + "a/memory.max": "max\n"}, 0},
		{"version 1", "9:cpu,memory:/a\n3:cpuset:/b\n0::/\n", map[string]string{
			one + "a/memory.limit_in_bytes": "400\n", one + "memory.limit_in_bytes": "9223372036854771712\n"}, 400},
		{"version 1 without a limit", "4:memory:/a\n", map[string]string{
			one + "a/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		{"another group's", "4:cpu:/a\n", map[string]string{one + "a/memory.limit_in_bytes": "400\n"}, 0},
	} {
		root := fstest.MapFS{"proc/self/cgroup": {Data: []byte(tt.groups)}}
		for name, text := range tt.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := cgroupMemory(root); got != tt.want {
			t.Errorf("%s: got %d; want %d", tt.name, got, tt.want)
		}
	}
}

// TestMachineMemory compares the machine's memory with what the system shows to people.
func TestMachineMemory(t *testing.T) {
	var kB int64
	if _, err := fmt.Sscanf(string(readFile(t, "/proc/meminfo")), "MemTotal: %d kB", &kB); err != nil || kB<<10 != machineMemory() {
		t.Errorf("got %d bytes; want %d kB (%v)", machineMemory(), kB, err)
	}
	c := defaultConfig()
	if got, n := c.Store.memory(), availableMemory(); got != (n-32<<20)/2 || n > kB<<10 {
		t.Errorf("got %d bytes for tasks of %d; want half of those beyond 32 MiB", got, n)
	}
}
