package wire

// A pseudo-terminal: what programs write to a terminal, and what a person types into it.

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

// Terminal is a pseudo-terminal (see pty(7)) and what programs have written to it.
type Terminal struct {
	Mine     *os.File // where a person types
	Programs *os.File // what programs have open

	t    testing.TB
	mu   sync.Mutex
	text strings.Builder
}

// OpenTerminal opens a pseudo-terminal of a size until the end of the test.
func OpenTerminal(t testing.TB, columns, rows uint16) *Terminal {
	t.Helper()
	mine, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		Skip(t, "needs a pseudo-terminal: %v", err)
	}
	var unlock, number int32
	ioctl(t, mine, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	ioctl(t, mine, syscall.TIOCGPTN, unsafe.Pointer(&number))
	programs := Must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	term := &Terminal{t: t, Mine: mine, Programs: programs}
	term.Resize(columns, rows)
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := mine.Read(buffer)
			term.mu.Lock()
			term.text.Write(buffer[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { mine.Close(); programs.Close() })
	return term
}

func ioctl(t testing.TB, f *os.File, request uintptr, arg unsafe.Pointer) {
	t.Helper()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		t.Fatal(errno)
	}
}

// Resize sets the size of the window.
func (term *Terminal) Resize(columns, rows uint16) {
	ioctl(term.t, term.Mine, syscall.TIOCSWINSZ, unsafe.Pointer(&[4]uint16{rows, columns}))
}

// Unprocessed has the terminal pass on what programs write as it is: a line feed stays one.
func (term *Terminal) Unprocessed() {
	var modes syscall.Termios
	ioctl(term.t, term.Programs, syscall.TCGETS, unsafe.Pointer(&modes))
	modes.Oflag &^= syscall.OPOST
	ioctl(term.t, term.Programs, syscall.TCSETS, unsafe.Pointer(&modes))
}

// Start starts a program in the terminal, as the leader of its session.
func (term *Terminal) Start(cmd *exec.Cmd) {
	term.t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.Programs, term.Programs, term.Programs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		term.t.Fatal(err)
	}
}

// Written returns what programs have written.
func (term *Terminal) Written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text.String()
}
