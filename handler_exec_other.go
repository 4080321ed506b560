//go:build !linux

package main

// How a program is waited for on Unix systems other than Linux: what it left
// running is killed right after it was waited for.

// wait waits until the program has ended, reads its output to the end, and
// kills what it left running in its process group.
func (p *programRun) wait() {
	p.cmd.Wait()
	p.end()
}
