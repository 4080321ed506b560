package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Lists with cursors beside changes; the event stream from the point of view of its readers.

// TestCursorsBesideChanges reads lists with cursors in every order while tasks are created, end, are
// cancelled and dropped, and the rest moves together in the store. Tasks that stay as they are must be
// listed once each.
func TestCursorsBesideChanges(t *testing.T) {
	slow(t)
	s := newTestServer(t, serviceTest{templates: apiTemplates, config: retaining(10)})
	s.svc.store.locked(func() { s.svc.store.tasks.goneFloor = 0 })
	change := func() {
		s.create(`{"namespace":"u","name":"solo"}`)
		s.do("DELETE", "/v1/tasks/"+s.create(`{"namespace":"t","name":"manual"}`), "").want(200)
	}
	var stay []string
	for i := range 12 {
		change()
		stay = append(stay, s.create(fmt.Sprintf(`{"namespace":"t","name":"manual","tags":["stays"],"priority":%d}`, i%3)))
	}
	slices.Sort(stay)
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() {
		for range 200 {
			if ctx.Err() != nil {
				return
			}
			change()
		}
	})
	for _, sort := range sortWords {
		for _, filter := range []string{"", "&status=in_progress,complete,cancelled"} {
			query := "/v1/tasks?per_page=5&sort=" + sort + filter + "&cursor="
			if got := s.walk(query, change); !slices.Equal(got, stay) {
				t.Errorf("%s: got %d of the tasks that stay: %v\nwant %v", query, len(got), got, stay)
			}
		}
	}
	cancel()
	changing.Wait()
	if s.svc.store.retain.dropped == 0 || len(s.svc.store.tasks.slots) > 200 {
		t.Errorf("got %d tasks dropped, %d positions; want more, and few", s.svc.store.retain.dropped, len(s.svc.store.tasks.slots))
	}
}

// walk reads a list to its end, and changes something after each page. It returns the tasks with the
// tag stays, sorted.
func (s *testServer) walk(query string, change func()) (found []string) {
	s.t.Helper()
	next := any("")
	for pages := 0; next != nil && pages < 400; pages++ {
		a := s.do("GET", query+fmt.Sprint(next), "").want(200)
		for _, item := range a.get("tasks").([]any) {
			if task := item.(map[string]any); slices.Contains(task["tags"].([]any), any("stays")) {
				found = append(found, task["task_uuid"].(string))
			}
		}
		change()
		next = a.get("pagination.next_cursor")
	}
	slices.Sort(found)
	return found
}

// openStream opens a stream, which the end of the test closes.
func (s *testServer) openStream(query string, header ...string) *bufio.Reader {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	req := must(http.NewRequestWithContext(ctx, "GET", s.url+"/v1/events"+query, nil))(s.t)
	for _, id := range header {
		req.Header.Set("Last-Event-ID", id)
	}
	resp := must(http.DefaultClient.Do(req))(s.t)
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "text/event-stream" {
		s.t.Fatalf("got %d, %s; want a stream", resp.StatusCode, got)
	}
	return bufio.NewReader(resp.Body)
}

// readBlock reads a stream to the next empty line.
func readBlock(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, b.String())
		}
		if line == "\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

func readEvent(t testing.TB, r *bufio.Reader) wire.Event {
	t.Helper()
	events, _ := wire.ParseEvents(readBlock(t, r))
	if len(events) != 1 {
		t.Fatalf("got %v; want one event", events)
	}
	return events[0]
}

// readUntil reads a stream up to an event with the text in its data.
func readUntil(t testing.TB, r *bufio.Reader, text string) (events []wire.Event) {
	t.Helper()
	for {
		block, _ := wire.ParseEvents(readBlock(t, r))
		events = append(events, block...)
		if n := len(events); n > 0 && strings.Contains(events[n-1].Data, text) {
			return events
		}
	}
}

func TestEventStreamGap(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates, config: func(c *Config) { c.Events.Keep = 10 }})
	for range 5 {
		s.create(`{"namespace":"t","name":"echo"}`)
	}
	log := &s.svc.store.events
	gap := func(requested uint64) string {
		return fmt.Sprintf(`{"requested":%d,"oldest_available":%d}`, requested, log.oldest())
	}
	newest := s.svc.store.seq
	for id, want := range map[string]string{
		"0": "", fmt.Sprint(log.lost): "", fmt.Sprint(newest): "", "1": gap(1), fmt.Sprint(log.lost - 1): gap(log.lost - 1),
		fmt.Sprint(newest + 1): gap(newest + 1),
		// The same with a life, and the numbers of another history:
		s.svc.store.lives.text(log.lost): "", s.svc.store.lives.text(newest): "", s.svc.store.lives.text(1): gap(1),
		s.svc.store.lives.text(newest + 1): gap(newest + 1), fmt.Sprint("00000000-", newest): gap(newest), "00000000-0": gap(0),
	} {
		r := s.openStream("?after=7", id) // the header has precedence over the query
		readBlock(t, r)
		if want != "" {
			if e := readEvent(t, r); e.Type != "gap" || e.Data != want || e.ID != log.lost {
				t.Errorf("after %s: got %+v; want a gap with %s and id %d", id, e, want, log.lost)
			}
		}
		if want == "" && strings.HasSuffix(id, fmt.Sprint(newest)) {
			continue
		}
		if e := readEvent(t, r); uint64(e.Place(t).Seq) != log.oldest() || e.Place(t).N != 1 {
			t.Errorf("after %s: got %+v; want the oldest, %d", id, e, log.oldest())
		}
	}
}

func TestEventStreamsEndAtShutdown(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	r := s.openStream("")
	readBlock(t, r)
	n := must(s.svc.store.waiters.await(mustCreate(t, s.svc, "manual").id, setOf(taskComplete)))(t)
	readUntil(t, r, `"to_state":"steps_in_process"`)
	s.svc.finish(t.Context())
	wantEnded(t, r)
	s.do("GET", "/v1/events", "").want(503)
	if !n.finished() || n.end != waitShutdown {
		t.Errorf("the wait ended with %q; want %q", n.end, waitShutdown)
	}
}

func wantEnded(t *testing.T, r io.Reader) {
	t.Helper()
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(string(rest), ": the service is shutting down\n\n") {
		t.Errorf("got %q, %v; want the end of the stream", rest, err)
	}
}

// TestEventStreamsEndAtReset checks that a stream ends at a reset. A stream that is resumed
// later reads another store.
func TestEventStreamsEndAtReset(t *testing.T) {
	s := newFixtureServer(t, serviceTest{templates: apiTemplates})
	s.create(`{"namespace":"t","name":"manual"}`)
	r := s.openStream("?after=0")
	e := readUntil(t, r, `"to_state":"steps_in_process"`)
	s.do("POST", "/_stepwell/reset", "").want(204)
	wantEnded(t, r)
	r = s.openStream("", e[len(e)-1].Mark)
	readBlock(t, r)
	if got := readEvent(t, r); got.Type != "gap" {
		t.Errorf("got %+v; want a gap", got)
	}
}

// TestEventStreamOutlastsRequestLimits checks that the limits of other requests do not end a
// stream.
func TestEventStreamOutlastsRequestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedServer(t, serviceTest{templates: apiTemplates})
		r := w.get("/v1/events")
		readBlock(t, r)
		for n := range 20 { // five minutes
			if got := readBlock(t, r); got != ": heartbeat\n" {
				t.Fatalf("heartbeat %d: got %q", n, got)
			}
		}
		if got := time.Since(w.began); got != 300*time.Second {
			t.Errorf("20 heartbeats took %v; want 300 s", got)
		}
		w.create("echo")
		readUntil(t, r, `"to_state":"complete"`)
	})
}

// TestEventHeartbeatMovesTheID past records that the reader's filter excludes.
func TestEventHeartbeatMovesTheID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedServer(t, serviceTest{templates: apiTemplates})
		r := w.get("/v1/events?namespace=nobody")
		readBlock(t, r)
		w.create("echo")
		if got, want := readBlock(t, r), fmt.Sprintf(": heartbeat\nid: %s\n", w.svc.store.lives.text(w.svc.store.seq)); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	})
}

// TestEventStreamStalled checks that a reader that stops reading is cut off after
// answerPatience, and gets the remaining events when it reconnects.
func TestEventStreamStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedServer(t, serviceTest{templates: apiTemplates})
		r := w.get("/v1/events?after=0")
		readBlock(t, r)
		for range 20 { // more than the buffers between take
			w.create("echo")
		}
		first := readEvent(t, r)                 // and none of the others that wait
		time.Sleep(answerPatience + time.Second) // of the bubble's time
		synctest.Wait()
		log := &w.svc.store.events
		if cut, open := log.cut.Load(), log.streams.Load(); cut != 1 || open != 0 {
			t.Errorf("got %d streams cut off and %d open; want 1 and 0", cut, open)
		}
		again := w.get("/v1/events?after=0")
		readBlock(t, again)
		if got := readEvent(t, again); got != first {
			t.Errorf("got %+v; want %+v again", got, first)
		}
	})
}

// TestEventStreamFallsBehind checks that a stream ends when the log has dropped its position.
func TestEventStreamFallsBehind(t *testing.T) {
	s := newTestService(t, serviceTest{templates: apiTemplates, config: func(c *Config) { c.Events.Keep = 10 }})
	f := must(s.store.events.follow(eventFilter{}, 0))(t)
	mustCreate(t, s, "echo")
	mustCreate(t, s, "echo")
	if c := f.nextChunk(nil); !c.behind {
		t.Errorf("got behind %v; want true", c.behind)
	}
}

// pipedServer serves over pipes, in a synctest bubble, with the program's server and
// limits.
type pipedServer struct {
	t     *testing.T
	svc   *service
	api   *orchestrationAPI
	all   *connections
	conns chan net.Conn
	began time.Time
}

func (p *pipedServer) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipedServer) Close() error { return nil }

func (p *pipedServer) Addr() net.Addr { return &net.TCPAddr{} }

func newPipedServer(t *testing.T, o serviceTest) *pipedServer {
	svc := newTestService(t, o)
	p := &pipedServer{t, svc, newOrchestrationAPI(svc, nil), newConnections(svc.quotas, svc.log), make(chan net.Conn), time.Now()}
	server := newHTTPServer(p, p.api, p.all, svc.log)
	go server.serve()
	t.Cleanup(func() {
		close(p.conns)
		server.server.Close()
		time.Sleep(time.Second) // of the bubble's time: net/http closes slowly
	})
	return p
}

// dial opens a connection and sends a text.
func (p *pipedServer) dial(text string) net.Conn {
	mine, theirs := net.Pipe()
	p.t.Cleanup(func() { mine.Close() })
	p.conns <- theirs
	io.WriteString(mine, text)
	return mine
}

// get opens a connection and reads the headers of the answer.
func (p *pipedServer) get(path string) *bufio.Reader {
	p.t.Helper()
	return bufio.NewReader(p.getStatus(path, 200).Body)
}

// getStatus opens a connection and reads an answer with a status up to its body.
func (p *pipedServer) getStatus(path string, want int) *http.Response {
	p.t.Helper()
	conn := p.dial(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path))
	resp := must(http.ReadResponse(bufio.NewReader(conn), nil))(p.t)
	if resp.StatusCode != want {
		p.t.Errorf("GET %s: got %d; want %d", path, resp.StatusCode, want)
	}
	return resp
}

func (p *pipedServer) create(name string) { mustCreate(p.t, p.svc, name) }

// TestDeliveriesAPI checks the list of deliveries, sending again, the permissions of both being
// in the table of routes, and the figures.
func TestDeliveriesAPI(t *testing.T) {
	r := newReceiver(t)
	r.answer(410)
	s := newTestServer(t, serviceTest{
		extra:  []string{publishing("pay", "builtin:echo", "{}", published("paid", ""), published("seen", `,"delivery_mode":"fast"`))},
		config: subscribed([]string{"shop", r.url, "*"}, []string{"other", r.url, "none"}),
	})
	s.create(`{"namespace":"t","name":"pay"}`)
	list := awaitDeliveries(t, s.svc, deliveryDead)
	if a := s.do("GET", "/v1/events/deliveries?subscriber=shop&status=dead", "").want(200); fmt.Sprint(a.get("total_count")) != "1" ||
		a.text("deliveries.0.id") != list[0].ID || a.text("deliveries.0.problem") != "it replied 410" || fmt.Sprint(a.get("deliveries.0.attempts")) != "1" {
		t.Errorf("got %s", a.body)
	}
	eventually(t, "the failure of the fast one is counted", func() bool {
		return strings.Contains(string(s.do("GET", "/metrics", "").want(200).body),
			`stepwell_event_deliveries_total{subscriber="shop",result="failed"} 2`)
	})
	for query, want := range map[string]float64{"?status=delivered": 0, "?subscriber=other": 0, "?offset=1": 1, "": 1} {
		if a := s.do("GET", "/v1/events/deliveries"+query, "").want(200); fmt.Sprint(a.get("total_count")) != fmt.Sprint(want) {
			t.Errorf("%s: got %s; want %v", query, a.body, want)
		}
	}
	s.do("POST", "/v1/actions", `{"action":"resend","reason":"r","filter":{"delivery":["nonsense"]}}`).want(422)
	for id, want := range map[string]float64{list[0].ID: 1, "1-1-shop": 0} {
		lines := s.bulk(`{"action":"resend","reason":"r","dry_run":true,"filter":{"delivery":["` + id + `"]}}`)
		if last := lines[len(lines)-1]; last.number("done") != want {
			t.Errorf("resend %s: got %s; want %v", id, last.raw, want)
		}
	}
	s.do("GET", "/v1/events/deliveries?status=late", "").want(400)
	s.do("POST", "/v1/events/deliveries/nonsense/resend", "").want(404)
	s.do("POST", "/v1/events/deliveries/1-1-shop/resend", "").want(404)
	if a := s.do("POST", "/v1/events/deliveries/"+list[0].ID+"/resend", "").want(200); a.text("status") != deliveryDead {
		t.Errorf("got %s", a.body)
	}
	r.answer(200)
	if a := s.do("POST", "/v1/events/deliveries/"+list[0].ID+"/resend", "").want(200); a.text("status") != deliveryDelivered {
		t.Errorf("got %s", a.body)
	}
	metrics := string(s.do("GET", "/metrics", "").want(200).body)
	for _, want := range []string{
		`stepwell_domain_events_total{mode="durable"} 1`, `stepwell_event_deliveries_total{subscriber="shop",result="delivered"} 1`,
		`stepwell_event_deliveries_total{subscriber="shop",result="failed"} 3`, `stepwell_event_deliveries_dead{subscriber="shop"} 0`,
		`stepwell_event_deliveries_total{subscriber="shop",result="dead"} 1`, `stepwell_event_deliveries_waiting{subscriber="other"} 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("got no %s", want)
		}
	}
}
