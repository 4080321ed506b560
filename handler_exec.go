package main

// Exec handlers: a program gets the attempt on standard input, and its standard output is the outcome.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	execNotAllowed = "the handler is a program, and worker.allow_exec is off"

	// execPipeGrace is how long pipes are read after a program has ended and its group was killed. Time in which its
	// output waits for memory does not count. Only processes that left the group can still hold the pipes.
	execPipeGrace = time.Second
)

// parseProgram reads the text after exec:.
func parseProgram(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("exec: names no program")
	case strings.ContainsRune(s, 0):
		return "", errors.New("the name of the program has a NUL character")
	case s != filepath.Base(s) && !filepath.IsAbs(s):
		return "", errors.New("the program is neither an absolute path nor a bare name")
	}
	return s, nil
}

// programRunner runs programs as handlers.
type programRunner struct {
	allowed bool
	dirs    []string // absolute: where to look for programs with a bare name
	env     []string // of every program, sorted; some values are secret
	limit   int64    // of a result, in bytes
	grace   time.Duration
}

func newProgramRunner(c *workerConfig, getenv func(string) string) *programRunner {
	r := &programRunner{
		allowed: c.AllowExec,
		limit:   c.MaxResultBytes,
		grace:   execPipeGrace,
	}
	path := getenv("PATH")
	if c.ExecPath != "" {
		path = absolutePathList(c.ExecPath)
	}
	// What a relative directory means depends on where somebody started this process.
	r.dirs = slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return !filepath.IsAbs(dir) })
	r.env = programEnv(path, c.ExecEnv, getenv)
	return r
}

// absolutePathList makes the directories of a list absolute, because programs may
// run in another directory than this process.
func absolutePathList(list string) string {
	var dirs []string
	for _, dir := range filepath.SplitList(list) {
		if abs, err := filepath.Abs(dir); err == nil && dir != "" {
			dirs = append(dirs, abs)
		}
	}
	return strings.Join(dirs, string(os.PathListSeparator))
}

// programEnv returns the whole environment of a program. It never has this
// service's own settings, some of which are secret.
func programEnv(path string, extra map[string]string, getenv func(string) string) []string {
	vars := map[string]string{"PATH": path}
	for _, name := range programVariables {
		vars[name] = getenv(name)
	}
	maps.DeleteFunc(vars, func(_, value string) bool { return value == "" })
	maps.Copy(vars, extra)
	env := []string{}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !strings.HasPrefix(strings.ToUpper(name), "STEPWELL_") {
			env = append(env, name+"="+vars[name])
		}
	}
	return env
}

// find returns the path of a program, given as an absolute path or a bare name.
func (r *programRunner) find(program string) (string, error) {
	if filepath.IsAbs(program) {
		path, err := executable(program)
		if err != nil {
			err = fmt.Errorf("looking for the program: %w", err)
		}
		return path, err
	}
	for _, dir := range r.dirs {
		if path, err := executable(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %q in worker.exec_path, or in PATH when that is not set", program)
}

// run makes the attempt with a program.
func (r *programRunner) run(ctx context.Context, program string, a *attempt) outcome {
	args, problem := programArgs(a.config)
	if problem != "" {
		return typedFailure(invalidConfigType, "initialization.%s", problem)
	}
	path, err := r.find(program)
	if err != nil {
		return typedFailure(programUnusableType, "%v", err)
	}
	p := r.command(ctx, path, args)
	p.cmd.Stdin = bytes.NewReader(a.envelope(nil))
	if err := p.start(); err != nil {
		if o, ok := cutOff(ctx, a); ok {
			return o
		}
		return notStarted(err)
	}
	p.wait()
	o := p.outcome(ctx, a)
	if o.err != nil {
		o.err.attach("stderr", p.stderr.tail())
	}
	return o
}

// programArgs returns the list of strings initialization.args.
func programArgs(config []byte) (args []string, problem string) {
	c := memberReader{data: config}
	for value := range jsonElements(c.member("args", "[", "a list of strings")) {
		s, ok := jsonString(value)
		if !ok {
			c.wrong(fmt.Sprintf("args[%d]", len(args)), value, "a string")
		}
		args = append(args, s)
		if !ok {
			break
		}
	}
	return args, c.problem
}

// notStarted returns the outcome of a program that could not be started.
func notStarted(err error) outcome {
	// These errors pass: the system lacks something at the moment, or the program's file is being written.
	for _, passing := range [...]error{
		syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY,
	} {
		if errors.Is(err, passing) {
			o := typedFailure("exec_unavailable", "start the program: %v", err)
			o.unmade = outOfDescriptors(err)
			return o
		}
	}
	return typedFailure(programUnusableType, "start the program: %v", err)
}

// programRun is one run of a program, which has its own process group.
type programRun struct {
	cmd    *exec.Cmd
	stdout programOutput
	stderr tailOutput

	mu    sync.Mutex
	group processGroup // guarded by mu, as all below
	gone  bool         // the group was killed, and its number may be reused
}

func (r *programRunner) command(ctx context.Context, path string, args []string) *programRun {
	p := &programRun{cmd: exec.CommandContext(ctx, path, args...)}
	p.stdout.limit = r.limit
	p.cmd.Env = r.env
	p.cmd.Stderr = &p.stderr
	p.cmd.Cancel, p.cmd.WaitDelay = p.kill, r.grace
	return p
}

// kill kills the process group of the program, unless it is gone.
func (p *programRun) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return os.ErrProcessDone
	}
	return p.group.kill()
}

// end kills the group for the last time. The program has ended; for the grace, the output of processes that it left is
// still read. The number of the group cannot be reused before the program was waited for.
func (p *programRun) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.group.kill()
		p.stdout.file.SetReadDeadline(realDeadline(p.cmd.WaitDelay))
		p.gone = true
	}
}

// wait waits until the program has ended, kills what it left running in its group, and reads its output to the end.
func (p *programRun) wait() {
	// The program has ended but is not waited for yet, so that the group's number still belongs to it: only now is it
	// safe to kill the group. After Wait, the number may be that of another process.
	if awaitExit(p.cmd.Process.Pid) {
		p.end()
	}
	p.cmd.Wait()
	p.end()
	<-p.stdout.read
	p.stdout.file.Close()
	p.group.release()
}

// outcome returns the outcome of the program, which has ended.
func (p *programRun) outcome(ctx context.Context, a *attempt) outcome {
	// This comes before the exit status, since the program was killed for it.
	if int64(len(p.stdout.data)) > p.stdout.limit {
		return resultTooLarge(p.stdout.limit)
	}
	if p.stdout.err != nil {
		if o, ok := cutOff(ctx, a); ok {
			return o
		}
		return typedFailure("exec_unavailable", "read the output of the program: %v", p.stdout.err)
	}
	if p.cmd.ProcessState == nil {
		return typedFailure("exec_unavailable", "the program's exit status is not known")
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.ExitStatus() == killedStatus {
		if o, ok := cutOff(ctx, a); ok {
			return o
		}
	}
	if status.Signaled() {
		return typedFailure(fmt.Sprintf("signal_%d", status.Signal()), "the program was ended by a signal: %v",
			status.Signal())
	}
	if code := status.ExitStatus(); code != 0 {
		o := typedFailure(fmt.Sprintf("exit_%d", code), "the program exited with %d", code)
		// Most programs say in their last line why they give up.
		said := bytes.TrimSpace(p.stderr.tail())
		o.err.quote(said[bytes.LastIndexByte(said, '\n')+1:])
		return o
	}
	o := parseReply(p.stdout.data, p.stdout.limit)
	if o.malformed {
		o.err.quote(p.stdout.data)
	}
	return o
}

// programOutput is the standard output of a program, which is read as the program prints it.
type programOutput struct {
	file  *os.File
	limit int64         // of a result, in bytes
	read  chan struct{} // closed when it was read
	data  []byte        // with one byte more than the limit if there was more
	err   error         // why it could not be read
}

// start starts the program and reads its output. If there is too much output, the program is killed.
func (p *programRun) start() error {
	w := &p.stdout
	file, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	p.cmd.Stdout = theirs
	p.mu.Lock() // for a context that has ended
	p.group, err = startGroup(p.cmd)
	p.mu.Unlock()
	theirs.Close()
	if err != nil {
		file.Close()
		return err
	}
	w.file, w.read = file, make(chan struct{})
	go func() {
		defer close(w.read)
		w.data, w.err = readChunks(io.LimitReader(w, w.limit+1), 0, nil)
		if int64(len(w.data)) > w.limit {
			p.kill()
		}
	}()
	return nil
}

// Read reads to the end of the output; after the deadline, to the end of what has come.
func (w *programOutput) Read(b []byte) (n int, err error) {
	if n, err = w.file.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if n = readAtOnce(w.file, b); n <= 0 {
		return 0, io.EOF
	}
	return n, nil
}

// tailOutput keeps the end of the data written to it.
type tailOutput struct {
	data []byte // at least the last maxErrorText bytes
}

func (w *tailOutput) Write(p []byte) (int, error) {
	w.data = append(w.data, p...)
	if len(w.data) > 4*maxErrorText {
		// One byte more than the end that is kept, which shows that it was cut.
		w.data = append(w.data[:0], w.data[len(w.data)-maxErrorText-1:]...)
	}
	return len(p), nil
}

// tail returns the last maxErrorText bytes, from the start of a character.
func (w *tailOutput) tail() []byte { return textEnd(w.data, maxErrorText) }
