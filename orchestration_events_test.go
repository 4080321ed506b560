package main

import (
	"bufio"
	"bytes"
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

// followTorn follows from the beginning until a task of the template empty is complete. It
// closes each connection after some bytes, and skips events that it has seen before.
func (s *testServer) followTorn(each int64) (events []wire.Event) {
	for id := uint64(0); ; {
		ctx, cancel := context.WithCancel(s.t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/events", nil)
		if err != nil {
			s.t.Error(err)
		}
		req.Header.Set("Last-Event-ID", fmt.Sprint(id))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			s.t.Error(err)
			cancel()
			return events
		}
		blocks := bufio.NewScanner(io.LimitReader(resp.Body, each))
		blocks.Split(splitBlocks)
		for blocks.Scan() {
			got, last := wire.ParseEvents(blocks.Text())
			id = max(id, last)
			for _, e := range got {
				if n := len(events); n == 0 || isBefore(s.t, events[n-1], e) {
					events = append(events, e)
				}
				if strings.Contains(e.Data, `"name":"empty"`) && strings.Contains(e.Data, `"to_state":"complete"`) {
					cancel()
					return events
				}
			}
		}
		cancel()
	}
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

func TestEventStreamFromNowOn(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	s.create(`{"namespace":"t","name":"echo"}`)
	r := s.openStream("")
	if got, want := readBlock(t, r), fmt.Sprintf(": stepwell events\nretry: 1000\nid: %s\n", s.svc.store.lives.text(s.svc.store.seq)); got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	id := s.create(`{"namespace":"t","name":"echo"}`)
	for _, e := range readUntil(t, r, `"to_state":"complete"`) {
		if !strings.Contains(e.Data, id) {
			t.Errorf("got %s; want the new task alone", e.Data)
		}
	}
}

func TestEventStreamFilters(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	first := s.create(`{"namespace":"t","name":"echo"}`)
	s.create(`{"namespace":"u","name":"solo"}`)
	second := s.create(`{"namespace":"t","name":"echo"}`)
	const done = `"to_state":"complete"}`
	for query, want := range map[string][]string{
		"?after=0&task_uuid=" + second:            {second},
		"?after=0&namespace=t":                    {first, second},
		"?after=0&namespace=t&task_uuid=" + first: {first},
	} {
		r := s.openStream(query)
		readBlock(t, r)
		for _, id := range want {
			for _, e := range readUntil(t, r, done) {
				if !strings.Contains(e.Data, id) {
					t.Errorf("%s: got %s; want what task %s did", query, e.Data, id)
				}
			}
		}
	}
}

func TestEventStreamRefusals(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	for query, want := range map[string]int{
		"?after=x": 400, "?after=-1": 400, "?after=1.5": 400, "?task_uuid=x": 400, "?after=99999999999999999999": 400,
		"?task_uuid=01890a5d-ac96-774b-bcce-b302099a8057": 404,
	} {
		s.do("GET", "/v1/events"+query, "").want(want)
	}
	if a := s.do("HEAD", "/v1/events", "").want(200); len(a.body) > 0 {
		t.Errorf("got %q; want no body", a.body)
	}
	s.svc.draining.Store(true)
	s.do("GET", "/v1/events", "").want(503)
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

// TestEventReadersAndWriters checks that every reader sees every transition once and in order,
// however often it is disconnected.
func TestEventReadersAndWriters(t *testing.T) {
	t.Parallel()
	slow(t)
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	streams := make([][]wire.Event, 3)
	var writing, reading sync.WaitGroup
	for i := range streams {
		reading.Go(func() { streams[i] = s.followTorn(int64(60_000 * (1 + 10*i))) })
	}
	for range 4 {
		writing.Go(func() {
			for range 60 {
				mustCreate(t, s.svc, "diamond", `"context":{"order_id":1}`)
			}
		})
	}
	writing.Wait()
	settle(s.svc)
	mustCreate(t, s.svc, "empty")
	reading.Wait()
	whole, _ := wire.ParseEvents(allEvents(t, s.svc, eventFilter{}, 0))
	for i, got := range streams {
		if !slices.Equal(got, whole) {
			t.Errorf("reader %d got %d events; want the %d that there were", i, len(got), len(whole))
		}
	}
}

// splitBlocks is a bufio.SplitFunc that drops an incomplete block.
func splitBlocks(data []byte, _ bool) (advance int, token []byte, err error) {
	end := bytes.Index(data, []byte("\n\n"))
	if end < 0 {
		return 0, nil, nil
	}
	return end + 2, data[:end], nil
}

// isBefore reports whether an event precedes another.
func isBefore(t testing.TB, e, other wire.Event) bool {
	a, b := e.Place(t), other.Place(t)
	return a.Seq < b.Seq || a.Seq == b.Seq && a.N < b.N
}

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
	w := s.with(newWorkerAPI(s.svc, nil))
	a := w.do("GET", "/metrics/events", "").want(200)
	for path, want := range map[string]float64{
		"router.total_routed": 2, "router.durable_routed": 1, "router.fast_routed": 1, "router.fast_delivery_errors": 1,
		"router.broadcast_routed": 0, "in_process_bus.rust_handler_dispatches": 1, "in_process_bus.rust_handler_errors": 3,
		"in_process_bus.rust_handler_count": 2, "in_process_bus.rust_subscriber_patterns": 2,
	} {
		if fmt.Sprint(a.get(path)) != fmt.Sprint(want) {
			t.Errorf("%s: got %v; want %v", path, a.get(path), want)
		}
	}
}
