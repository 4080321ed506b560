package main

// The queue before standard error. Whoever holds standard error may close it, or not read it: the log of a process that
// serves goes through a queue, so that it can neither end nor stop the process.

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxLogWaiting = 2000                   // lines that wait to be written
	maxLogBytes   = 1 << 20                // in them
	maxLastLines  = 20                     // the same in the second half of logPatience
	logPatience   = 200 * time.Millisecond // how long the end of the process waits until they are
)

// logQueue passes lines on to an output. Write never waits, because another goroutine writes to the output. If too many
// lines or bytes wait, the oldest are lost: the last one may say why the process ends.
type logQueue struct {
	to      io.Writer
	log     atomic.Pointer[slog.Logger] // writes to the output, in the form of the log
	lines   chan logLine                // that wait
	bytes   atomic.Int64                // in them
	ended   chan struct{}
	lost    atomic.Uint64 // lines that were dropped or could not be written
	missing atomic.Uint64 // lost lines of which the output says nothing yet
}

// logLine is a line of the log, or the end of what a flush waits for.
type logLine struct {
	text    []byte
	flushed chan struct{} // nil for a line
}

func newLogQueue(to io.Writer) *logQueue {
	q := &logQueue{to: to, lines: make(chan logLine, maxLogWaiting), ended: make(chan struct{})}
	q.setForm(func(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) })
	go q.run()
	return q
}

func (q *logQueue) setForm(to func(io.Writer) *slog.Logger) { q.log.Store(to(q.to)) }

// queueLog puts a queue before standard error, and has a process survive that an output was closed: Go would end it by
// SIGPIPE. main ends the queue.
func (p *process) queueLog() *logQueue {
	// Programs that this process starts do not inherit this, as they would with signal.Ignore.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	q := newLogQueue(p.stderr)
	p.stderr = q
	log.SetOutput(q) // what net/http says about replies of handlers
	return q
}

// flushLog waits until what was logged is written, but not for an output that is stuck.
func (p *process) flushLog() {
	if q, ok := p.stderr.(*logQueue); ok {
		q.flush(logPatience)
	}
}

func (q *logQueue) Write(line []byte) (int, error) {
	l := logLine{text: bytes.Clone(line)}
	for q.bytes.Add(int64(len(line))); ; q.drop() { // the oldest lines make room for it
		if q.bytes.Load() > maxLogBytes && len(q.lines) > 0 {
			continue
		}
		select {
		case q.lines <- l:
			return len(line), nil
		default:
		}
	}
}

// drop loses the oldest line that waits.
func (q *logQueue) drop() {
	select {
	case l := <-q.lines:
		if q.bytes.Add(-int64(len(l.text))); l.flushed == nil {
			q.lost.Add(1)
			q.missing.Add(1)
		}
	default: // none waits any more
	}
}

// run writes lines until the queue ends.
func (q *logQueue) run() {
	for {
		select {
		case l := <-q.lines:
			q.write(l)
		case <-q.ended:
			return
		}
	}
}

// write writes a line, and before it how many are missing there.
func (q *logQueue) write(l logLine) {
	if q.bytes.Add(-int64(len(l.text))); l.flushed != nil {
		close(l.flushed)
		return
	}
	missing := q.missing.Swap(0)
	if missing > 0 {
		q.log.Load().Warn("lines of the log are missing here: standard error was stuck", "lines", missing)
	}
	if _, err := q.to.Write(l.text); err != nil {
		q.lost.Add(1)
		q.missing.Add(missing + 1) // nobody was told of the missing ones either
	}
}

// flush waits until all lines are written, but no longer than limit.
func (q *logQueue) flush(limit time.Duration) {
	written, late := make(chan struct{}), time.After(limit)
	select {
	case q.lines <- logLine{flushed: written}:
	case <-late:
		return
	}
	select {
	case <-written:
	case <-late:
	}
}

// end ends the queue. Its lines get some time to be written, and then the last ones some more.
func (q *logQueue) end() {
	q.flush(logPatience / 2)
	for len(q.lines) > maxLastLines {
		q.drop()
	}
	q.flush(logPatience / 2)
	close(q.ended)
}
