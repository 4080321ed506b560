package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestExecReapsOrphans makes this process what the first process of a container
// is: the one that orphans fall to.
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
