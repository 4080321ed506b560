package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"stepwell/e2e/wire"
)

// terminal is a pseudo-terminal (see pty(7)) and what a program has written to it.
type terminal struct {
	t        *testing.T
	mine     *os.File
	programs *os.File

	mu   sync.Mutex
	text strings.Builder
}

func ioctl(t *testing.T, f *os.File, request uintptr, arg unsafe.Pointer) {
	t.Helper()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		t.Fatal(errno)
	}
}

func openTerminal(t *testing.T, columns, rows uint16) *terminal {
	t.Helper()
	mine, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	var unlock, number int32
	ioctl(t, mine, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	ioctl(t, mine, syscall.TIOCGPTN, unsafe.Pointer(&number))
	programs := wire.Must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	term := &terminal{t: t, mine: mine, programs: programs}
	term.resize(columns, rows)
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

func (term *terminal) resize(columns, rows uint16) {
	ioctl(term.t, term.mine, syscall.TIOCSWINSZ, unsafe.Pointer(&[4]uint16{rows, columns}))
}

// start runs the program in the terminal.
func (term *terminal) start(env []string, args ...string) *exec.Cmd {
	term.t.Helper()
	cmd := exec.Command(programFile(term.t), args...)
	cmd.Env = append(append(programEnv(), "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR="), env...)
	cmd.Dir = term.t.TempDir()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.programs, term.programs, term.programs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		term.t.Fatal(err)
	}
	return cmd
}

// written returns what the program has written.
func (term *terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text.String()
}

// TestTerminal follows a workflow in a terminal that becomes narrow and then gets Ctrl-C: the picture
// changes in place, has colours, fits the window, and leaves a cursor at the begin of a line.
func TestTerminal(t *testing.T) {
	slow(t)
	t.Parallel()
	term := openTerminal(t, 100, 24)
	cmd := term.start(nil, "run", "demo/slow")
	eventually(t, "the first step to run", func() bool { return strings.Contains(term.written(), "in_progress") })
	wide := len(term.written())
	term.resize(20, 5)
	eventually(t, "a narrow picture", func() bool { return strings.Contains(term.written()[wide:], "more steps") })
	if !strings.Contains(term.written()[wide:], "…") {
		t.Error("the lines are not cut")
	}
	term.mine.WriteString("\x03")
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("got exit code %d after Ctrl-C; want 130", code)
	}
	eventually(t, "the reason", func() bool { return strings.HasSuffix(term.written(), "wait for other steps\r\n") })
	text := term.written()
	if !strings.Contains(text, "\x1b[34m▶\x1b[0m") || !regexp.MustCompile(`\x1b\[J\x1b\[\d+A\r\x1b\[K`).MatchString(text) {
		t.Errorf("got %q; want colours, and a picture over the former", text)
	}
	if strings.Contains(text, "\x1b[?") || !strings.Contains(text, "^C\r\n") {
		t.Errorf("the terminal is not left clean: %q", text)
	}
}

// TestTerminalWithoutColours expects none where NO_COLOR is set, and lines on a dumb terminal.
func TestTerminalWithoutColours(t *testing.T) {
	slow(t)
	t.Parallel()
	for variable, want := range map[string]string{"NO_COLOR=1": "✔ complete  demo/diamond@1.0.0", "TERM=dumb": "task  ✔ complete"} {
		term := openTerminal(t, 100, 24)
		if err := term.start([]string{variable}, "run", "demo/diamond").Wait(); err != nil {
			t.Error(err)
		}
		eventually(t, variable, func() bool { return strings.Contains(term.written(), want) })
		if text := term.written(); strings.Contains(text, "\x1b[0m") {
			t.Errorf("%s: got %q; want no colours", variable, text)
		}
	}
}
