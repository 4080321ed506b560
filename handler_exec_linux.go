package main

// What Linux lets us do for a program that ended: kill its process group while
// its number is surely still its own, and take up the orphans.

import "syscall"

// wait waits until the program has ended, kills what it left running in its
// process group, and reads its output to the end.
func (p *programRun) wait() {
	pid := p.cmd.Process.Pid
	awaitExit(pid)
	p.end()
	p.cmd.Wait()
	reapOrphans(pid)
}

// awaitExit returns once a child has ended. It stays a zombie, so that neither
// its number nor its group's can become another's.
func awaitExit(pid int) {
	const idIsPID = 1 // P_PID
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idIsPID, uintptr(pid), 0,
			syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}

// reapOrphans waits for the killed members of a group that became our children
// when their parent died, as they do when we are the first process of a
// container. There are none otherwise.
func reapOrphans(pgid int) {
	for {
		_, err := syscall.Wait4(-pgid, nil, 0, nil)
		if err != nil && err != syscall.EINTR {
			return
		}
	}
}
