package e2e

// The load of the crash test without crashes: many clients, a handler, operators and readers of the event stream, all at
// the same time. The checks are those of the crash test, and each reader must get every transition.

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// TestRace has some readers lose their connection again and again.
func TestRace(t *testing.T) {
	t.Parallel()
	slow(t)
	c := newCrashTest(t, "")
	c.env = []string{"STEPWELL_EVENTS__KEEP=1000000"}
	c.start()
	readers := make([]wire.Marks, 4)
	var reading sync.WaitGroup
	for i := range readers {
		reading.Go(func() { c.follow(&readers[i], i > 0) })
	}
	c.begin(32, "diamond", "flaky", "web", "act", "grow")
	<-time.After(time.Duration(size(1, 5)) * time.Second)
	c.settle()
	c.tasks["sentinel"] = &sentTask{name: "sentinel"}
	c.program.api().create(`{"namespace":"t","name":"sentinel","context":{"marker":"sentinel"}}`)
	reading.Wait()
	want := c.histories()
	for i := range readers {
		if got := readers[i].All; !slices.Equal(got, want) {
			t.Errorf("reader %d has %d transitions; want the %d of the histories", i, len(got), len(want))
		}
	}
	t.Logf("%d transitions, %d read again", len(want), readers[1].Repeated)
	c.check()
}

// follow reads the event stream until the sentinel has ended.
func (c *crashTest) follow(m *wire.Marks, torn bool) {
	for !m.Over && c.t.Context().Err() == nil {
		ctx, tear := context.WithCancel(c.t.Context())
		if torn {
			ctx, tear = context.WithTimeout(c.t.Context(), time.Duration(rand.IntN(500))*time.Millisecond)
		}
		if err := c.read(ctx, m); err != nil && ctx.Err() == nil {
			c.t.Errorf("a reader: %v", err)
		}
		tear()
	}
}

// read reads one stream, from the last event of the reader, until it ends or is cut off.
func (c *crashTest) read(ctx context.Context, m *wire.Marks) error {
	req := wire.Must(http.NewRequestWithContext(ctx, "GET", c.program.ready.OrchestrationURL+"/v1/events", nil))(c.t)
	req.Header.Set("Last-Event-ID", cmp.Or(m.LastMark, "0"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var pending bytes.Buffer
	buf := make([]byte, 16<<10)
	for !m.Over && err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		pending.Write(buf[:n])
		if whole := bytes.LastIndex(pending.Bytes(), []byte("\n\n")); whole >= 0 {
			if err := m.Take(string(pending.Next(whole + 2))); err != nil {
				return err
			}
		}
	}
	return err
}

// histories returns the transitions of all tasks, in their order.
func (c *crashTest) histories() (all []wire.Mark) {
	for _, v := range c.all("") {
		var h struct{ Transitions []wire.Move }
		c.get("/v1/tasks/"+v.TaskUUID+"/transitions", &h)
		last := wire.Move{}
		for _, m := range h.Transitions {
			m.Seq, m.N, m.Task, m.Namespace, m.Name = m.Sequence, 1, v.TaskUUID, "t", v.Name
			if m.Seq == last.Seq {
				m.N = last.N + 1
			}
			last, all = m, append(all, m.Mark())
		}
	}
	slices.SortFunc(all, wire.Mark.Compare)
	return all
}
