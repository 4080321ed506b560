package main

// The system calls of base_linux.go, through the journal and the exec handler.

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestJournalOnSmallDisk fills a real file system, makes space, and goes on.
func TestJournalOnSmallDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=48m"); err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	ballast := filepath.Join(dir, "ballast")
	noError(t, os.WriteFile(ballast, make([]byte, 20<<20), 0o600))
	o := diskOptions(nil)
	o.dir, o.fs = filepath.Join(dir, "store"), osDisk{}
	j, _ := mustOpen(t, o)
	var last uint64
	for j.reserve() == nil {
		last = storePadded(t, j, 1<<20)
		if last > 48 {
			t.Fatal("the disk does not get full")
		}
	}
	if err := writeSnapshot(j); err == nil {
		t.Error("snapshot on a full disk: got no error")
	}
	noError(t, os.Remove(ballast))
	if err := j.ask(j.space.extend); err != nil { // what the flusher does every second
		t.Errorf("extend with space again: %v", err)
	}
	if err := j.reserve(); err != nil {
		t.Errorf("reserve with space again: %v", err)
	}
	last = storePadded(t, j, 1<<20)
	mustClose(t, j)
	j, g := mustOpen(t, o)
	if got := uint64(len(g.seqs)); got != last {
		t.Errorf("records: got %d; want %d", got, last)
	}
	mustClose(t, j)
}

// TestReservationIsGivenBack checks that a file that is not written any more
// takes no more blocks than it has bytes; the journal has at least a step more.
func TestReservationIsGivenBack(t *testing.T) {
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	name := filepath.Join(o.dir, journalName)
	if size, blocks := fileExtent(t, name); size > 1000 || blocks < spaceAhead {
		t.Skipf("the file system sets no blocks aside: %d bytes in %d bytes of blocks", size, blocks)
	}
	s := must(j.startSnapshot())(t)
	if _, blocks := fileExtent(t, filepath.Join(o.dir, journalOldName)); blocks > 64<<10 {
		t.Errorf("blocks of the old journal: got %d bytes", blocks)
	}
	s.abort()
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
		t.Skipf("mount a tmpfs: %v", err)
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
		t.Skip("no orphans here:", errno)
	}
	defer syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 0, 0)
	h := newTestHandlers(t, nil)
	a := newTestAttempt(`{"args": ["-c", "while :; do read line; done <&- >&- 2>&- & echo $!"]}`)
	o := h.run(t.Context(), h.resolve("exec:sh"), a)
	pid, err := strconv.Atoi(strings.TrimSpace(string(o.result)))
	if err != nil {
		t.Fatalf("%s (%s): %v", showOutcome(o), errorText(o), err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("the orphan is still known: %v", err)
	}
}

// TestUnsentIsLimited on the connections that a listener accepts.
func TestUnsentIsLimited(t *testing.T) {
	l := must(listenTCP("127.0.0.1:0"))(t)
	defer l.Close()
	client := must(net.Dial("tcp", l.Addr().String()))(t)
	defer client.Close()
	c := must(l.Accept())(t)
	defer c.Close()
	raw := must(c.(*net.TCPConn).SyscallConn())(t)
	raw.Control(func(fd uintptr) {
		const notSentLowWater = 25
		if n := must(syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, notSentLowWater))(t); n != 2*jsonPiece {
			t.Errorf("got %d bytes; want %d", n, 2*jsonPiece)
		}
	})
}
