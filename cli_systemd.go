package main

// Sockets from a service manager, and messages to it: the protocols of systemd, sd_listen_fds(3) and sd_notify(3).

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// firstSocket is the number of the first socket that a service manager passes (SD_LISTEN_FDS_START).
const firstSocket = 3

// passedListener returns the listener of a role that the service manager passed: the one with the name of the role, or
// without names the first for the orchestration role and the second for the worker role. nil if there is none.
func (p *process) passedListener(role string) (net.Listener, error) {
	// The variables may be those of another process that started this one, so the pid decides whether they count.
	count, _ := strconv.Atoi(p.getenv("LISTEN_FDS"))
	if p.getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || count < 1 {
		return nil, nil
	}
	at := pick(role == "worker", 1, 0)
	if names := strings.Split(p.getenv("LISTEN_FDNAMES"), ":"); slices.Contains(names, "orchestration") || slices.Contains(names, "worker") {
		at = slices.Index(names, role)
	}
	if at < 0 || at >= count {
		return nil, nil
	}
	f := os.NewFile(uintptr(firstSocket+at), role)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("socket %d of the service manager, for the %s role: %w", firstSocket+at, role, err)
	}
	return l, nil
}

// notifyManager tells the service manager about the state of the process, if it asked for that.
func (p *process) notifyManager(state string) error {
	path := p.getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		conn.Close()
	}
	if err != nil {
		return fmt.Errorf("telling the service manager %s: %w", state, err)
	}
	return nil
}

// feedWatchdog tells the service manager twice in each interval that the process works, if it asked for that: busy
// returns unless the store's lock is stuck. It ends with done.
func (p *process) feedWatchdog(done <-chan struct{}, busy func() int) {
	interval, _ := strconv.ParseInt(p.getenv("WATCHDOG_USEC"), 10, 64)
	if pid := p.getenv("WATCHDOG_PID"); interval <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return
	}
	tick := time.NewTicker(max(time.Duration(interval)*time.Microsecond/2, time.Millisecond))
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				busy()
				p.notifyManager("WATCHDOG=1") // a failure shows by the manager's restart
			}
		}
	}()
}
