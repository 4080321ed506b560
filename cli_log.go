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
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxLogWaiting = 1 << 20                // bytes of lines that wait to be written
	maxLastLines  = 16 << 10               // the same in the second half of logPatience
	logPatience   = 200 * time.Millisecond // how long the end of the process waits until they are
)

// logQueue passes lines on to an output. Write never waits, because another goroutine writes to the output. If too many
// lines wait, the oldest are lost: the last one may say why the process ends.
type logQueue struct {
	to   io.Writer
	lost atomic.Uint64 // lines that were dropped or could not be written

	mu      sync.Mutex
	log     *slog.Logger // writes to the output, in the form of the log; guarded by mu, as all below
	lines   [][]byte     // that wait, the oldest first
	bytes   int          // in them
	missing uint64       // lost lines of which the output says nothing yet
	writing bool         // a line is on its way
	ended   bool
	more    *sync.Cond // lines wait, or the queue has ended
	idle    notifier   // no line waits or is on its way
}

func newLogQueue(to io.Writer) *logQueue {
	q := &logQueue{to: to, log: slog.New(slog.NewTextHandler(to, nil))}
	q.more = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// setForm sets the form of the log.
func (q *logQueue) setForm(to func(io.Writer) *slog.Logger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log = to(q.to)
}

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
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines = append(q.lines, bytes.Clone(line))
	q.bytes += len(line)
	q.boundLocked(maxLogWaiting)
	q.more.Signal()
	return len(line), nil
}

// boundLocked loses the oldest lines beyond a number of bytes.
func (q *logQueue) boundLocked(most int) {
	for q.bytes > most && len(q.lines) > 1 {
		q.takeLocked()
		q.loseLocked()
	}
}

// takeLocked returns the oldest line, which waits no longer.
func (q *logQueue) takeLocked() []byte {
	line := q.lines[0]
	q.lines[0] = nil // or the array would keep it
	q.lines = q.lines[1:]
	q.bytes -= len(line)
	return line
}

func (q *logQueue) loseLocked() {
	q.lost.Add(1)
	q.missing++
}

// run writes lines until the queue ends.
func (q *logQueue) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.lines) == 0 {
			if q.idle.notify(); q.ended {
				return
			}
			q.more.Wait()
		}
		q.writeLocked(q.takeLocked())
	}
}

// writeLocked writes a line without the lock, and before it how many are missing there.
func (q *logQueue) writeLocked(line []byte) {
	missing, notice := q.missing, q.log
	q.missing, q.writing = 0, true
	q.mu.Unlock()
	if missing > 0 {
		notice.Warn("lines of the log are missing here: standard error was stuck", "lines", missing)
	}
	_, err := q.to.Write(line)
	q.mu.Lock()
	if q.writing = false; err != nil {
		q.missing += missing // which nobody was told either
		q.loseLocked()
	}
}

// flush waits until all lines are written, but no longer than limit.
func (q *logQueue) flush(limit time.Duration) {
	idle := q.idle.next()
	q.mu.Lock()
	busy := len(q.lines) > 0 || q.writing
	q.mu.Unlock()
	if busy {
		receiveWithin(idle, limit)
	}
}

// end ends the queue. Its lines get some time to be written, and then the last ones some more.
func (q *logQueue) end() {
	q.flush(logPatience / 2)
	q.mu.Lock()
	q.boundLocked(maxLastLines)
	q.mu.Unlock()
	q.flush(logPatience / 2)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Signal()
}
