package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuckOutput is an output that may be stuck or fail.
type stuckOutput struct {
	text bytes.Buffer
	free chan struct{} // closed when it is not stuck
	slow time.Duration // what each line takes
	err  error
}

func (o *stuckOutput) Write(p []byte) (int, error) {
	<-o.free
	time.Sleep(o.slow)
	if o.err != nil {
		return 0, o.err
	}
	return o.text.Write(p)
}

// TestLogQueue logs to an output that is stuck until it has lost lines: nobody waits for it, the output says how many
// lines are missing and where, and the last lines get out.
func TestLogQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckOutput{free: make(chan struct{})}
		q := newLogQueue(out)
		q.setForm(func(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) })
		const lines = 4000
		for i := range lines {
			fmt.Fprintf(q, "line %d %s\n", i, strings.Repeat("x", 500))
			if i == 0 {
				synctest.Wait() // until it is on its way
			}
		}
		lost := int(q.lost.Load())
		if lost < lines/4 || lost > lines*3/4 {
			t.Errorf("%d of %d lines are lost; want those beyond %d bytes", lost, lines, maxLogWaiting)
		}
		close(out.free)
		q.end()
		kept := regexp.MustCompile(`(?m)^line (\d+)`).FindAllString(out.text.String(), -1)
		if len(kept)+lost != lines || kept[0] != "line 0" || kept[len(kept)-1] != fmt.Sprint("line ", lines-1) {
			t.Errorf("%d lines from %q to %q, and %d are lost; want the first and the last of %d", len(kept), kept[0], kept[len(kept)-1],
				lost, lines)
		}
		notice := strings.Split(out.text.String(), "\n")[1]
		if !strings.Contains(notice, `"level":"WARN"`) || !strings.HasSuffix(notice, fmt.Sprintf(`"lines":%d}`, lost)) {
			t.Errorf("after the first line: got %.300q; want that %d lines are missing", notice, lost)
		}
		if got := kept[1]; got != fmt.Sprint("line ", lost+1) {
			t.Errorf("after the gap: got %s; want line %d", got, lost+1)
		}
	})
}

// TestLogFails logs to an output that fails, as a pipe that was closed or a full disk: what it did not take is lost, and
// counted once it takes lines again.
func TestLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckOutput{free: make(chan struct{}), err: errors.New("full")}
		close(out.free)
		q := newLogQueue(out)
		for range 3 {
			io.WriteString(q, "lost\n")
			synctest.Wait()
		}
		out.err = nil
		io.WriteString(q, "kept\n")
		q.end()
		if got := out.text.String(); q.lost.Load() != 3 || !strings.HasSuffix(got, "lines=3\nkept\n") {
			t.Errorf("%d lines are lost, and the log is %q; want 3, said before the line that is kept", q.lost.Load(), got)
		}
	})
}

// TestLogEndsSlowly ends a queue whose output is slow: the last line gets out.
func TestLogEndsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckOutput{free: make(chan struct{}), slow: time.Millisecond}
		close(out.free)
		q := newLogQueue(out)
		for i := range 1000 {
			fmt.Fprintf(q, "line %d %s\n", i, strings.Repeat("x", 1000))
		}
		q.end()
		if got := out.text.String(); !strings.Contains(got, "\nline 999 ") || !strings.Contains(got, fmt.Sprint("lines=", q.lost.Load(), "\n")) {
			t.Errorf("the log ends with %.100q; want the last line, and that %d are missing", got[max(len(got)-1100, 0):], q.lost.Load())
		}
	})
}

// TestLogEnd ends a queue whose output is stuck: the end waits for it a little.
func TestLogEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckOutput{free: make(chan struct{})}
		q := newLogQueue(out)
		io.WriteString(q, "line\n")
		began := time.Now()
		if q.end(); time.Since(began) != logPatience {
			t.Errorf("the end took %s; want %s", time.Since(began), logPatience)
		}
		close(out.free)
	})
}
