package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowClients checks the limits on a client that never ends its headers and on
// one that never sends its body.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	svc := newTestService(t, serviceTest{})
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	h := newHTTPServer(l, newOrchestrationAPI(svc, nil), manyConnections(), svc.log)
	if h.server.ReadHeaderTimeout != headerTimeout || h.server.ReadTimeout != requestTimeout {
		t.Errorf("got timeouts %s and %s", h.server.ReadHeaderTimeout, h.server.ReadTimeout)
	}
	h.server.ReadHeaderTimeout, h.server.ReadTimeout = 50*time.Millisecond, 50*time.Millisecond
	go h.serve()
	defer h.server.Close()
	for _, sent := range []string{
		"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn := must(net.Dial("tcp", l.Addr().String()))(t)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(conn, sent)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && resp.StatusCode < 400 {
			t.Errorf("%.20q: got %s; want it refused", sent, resp.Status)
		}
		if err == nil {
			if _, err = io.Copy(io.Discard, conn); err != nil {
				t.Errorf("%.20q: the connection stays open: %v", sent, err)
			}
		}
	}
}

// TestFraming sends requests that two programs may take for requests of different lengths, and then another one on the
// same connection, and compares the statuses with what docs/reference/security.md says about Go's server.
func TestFraming(t *testing.T) {
	const (
		head    = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		old     = "POST /v1/tasks HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: keep-alive\r\n"
		chunked = "Transfer-Encoding: chunked\r\n"
		chunks  = "\r\n2\r\n{}\r\n0\r\n\r\n"
		next    = "GET /next HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	)
	s := newGuardedServer(t, newOrchestrationAPI(newTestService(t, serviceTest{}), nil), "127.0.0.1:0")
	for sent, want := range map[string]string{
		head + chunked + chunks:                                                           "422 404",
		head + chunked + "Content-Length: 1\r\n" + chunks:                                 "422 404",
		head + "Content-Length: 2\r\n" + chunked + chunks:                                 "422 404",
		head + chunked + fmt.Sprintf("Content-Length: %d\r\n", len(chunks+next)) + chunks: "422 404",
		old + chunked + "Content-Length: 2\r\n\r\n{}":                                     "422 404",
		strings.ReplaceAll(head+"Content-Length: 2\r\n\r\n{}", "\r", ""):                  "422 404",
		head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}":                         "422 404",
		head + chunked + "Content-Length: x\r\n" + chunks:                                 "400",
		head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}":                         "400",
		head + "Content-Length: 2, 2\r\n\r\n{}":                                           "400",
		head + "Content-Length: +2\r\n\r\n{}":                                             "400",
		head + "Transfer-Encoding : chunked\r\n" + chunks:                                 "400",
		head + chunked + "\r\n2\n{}\r\n0\r\n\r\n":                                         "400",
		head + chunked + chunked + chunks:                                                 "501",
		head + "Transfer-Encoding: gzip, chunked\r\n" + chunks:                            "501",
		head + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}":               "501",
	} {
		conn := authDial(t, strings.TrimPrefix(s.url, "http://"))
		io.WriteString(conn, sent+next)
		var got []string
		for r := bufio.NewReader(conn); ; {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				break
			}
			got = append(got, strconv.Itoa(resp.StatusCode))
			io.Copy(io.Discard, resp.Body)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %s; want %s", sent, got, want)
		}
	}
}

// TestHeaderMemory fills the memory for large headers with requests that stall: another request
// takes it from them. Small headers need none.
func TestHeaderMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{})
		memory := &p.svc.quotas.headers
		memory.most = 50 << 10
		large := "GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("a", 40<<10)
		small, stalled := p.dial(large[:headerFirst-100]), p.dial(large)
		synctest.Wait()
		if got := memory.used.Load(); got < 36<<10 || got > 40<<10 {
			t.Errorf("got %d bytes taken; want those of one header beyond the first %d", got, headerFirst)
		}
		p.answerOn(p.dial(large + "\r\n\r\n")).want(200)
		stalled.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := stalled.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the stalled header: got %v; want its connection closed", err)
		}
		io.WriteString(small, "\r\n\r\n")
		p.answerOn(small).want(200)
		synctest.Wait()
		if got := memory.used.Load(); got != 0 {
			t.Errorf("got %d bytes taken after the requests; want none", got)
		}
		memory.most = 30 << 10
		alone := p.dial(large)
		alone.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := alone.Read(make([]byte, 1)); err != io.EOF || memory.refused.Load() == 0 {
			t.Errorf("a header larger than the memory: got %v; want its connection closed, and that counted", err)
		}
	})
}

// filelessListener has no file descriptor for a connection the first few times.
type filelessListener struct {
	net.Listener
	lacks []error
}

func (l *filelessListener) Accept() (net.Conn, error) {
	if len(l.lacks) > 0 {
		err := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", l.lacks[0])}
		l.lacks = l.lacks[1:]
		return nil, err
	}
	return l.Listener.Accept()
}

// TestOutOfFiles: one warning, whatever the number of failures; connections that wait for their
// clients are closed, and further ones are accepted.
func TestOutOfFiles(t *testing.T) {
	var log bytes.Buffer
	l := &filelessListener{Listener: must(net.Listen("tcp", "127.0.0.1:0"))(t)}
	all := newConnections(newQuotas(defaultConfig(), outsideOnly()), slog.New(slog.NewTextHandler(&log, nil)))
	h := newHTTPServer(l, http.NotFoundHandler(), all, slog.New(slog.DiscardHandler))
	idle := must(net.Dial("tcp", l.Addr().String()))(t)
	defer idle.Close()
	bounded := h.listener.(*boundedListener)
	must(bounded.Accept())(t)
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EMFILE} {
		l.lacks = append(l.lacks, lack)
		if _, err := bounded.Accept(); !errors.Is(err, lack) {
			t.Errorf("got %v; want %v, after which net/http tries again", err, lack)
		}
	}
	idle.SetReadDeadline(time.Now().Add(patience))
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: got %v; want it closed", err)
	}
	l.lacks = []error{syscall.EMFILE, syscall.EMFILE}
	go h.serve()
	defer h.server.Close()
	resp := must(http.Get(h.url()))(t)
	resp.Body.Close()
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "out of file descriptors") {
		t.Errorf("got %d warnings; want one of the lack of files: %s", n, log.String())
	}
}

// ask sends a GET on a new connection.
func (p *pipedServer) ask(path string) *answer {
	p.t.Helper()
	return p.answerOn(p.dial(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)))
}

func (p *pipedServer) answerOn(conn net.Conn) *answer {
	p.t.Helper()
	return readAnswer(p.t, must(http.ReadResponse(bufio.NewReader(conn), nil))(p.t))
}

const rootRequest = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

const liveRequest = "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"

// postRequest is a request for a task with a context.
func postRequest(context string) string {
	body := `{"namespace":"t","name":"manual","context":{"x":"` + context + `"}}`
	return taskBody(len(body), body)
}

// pipeline is a connection whose client sends without waiting for the answers.
type pipeline struct {
	net.Conn
	answers atomic.Int64 // that came
}

func (p *pipedServer) pipeline() *pipeline {
	mine, theirs := net.Pipe()
	p.t.Cleanup(func() { mine.Close() })
	p.conns <- theirs
	c := &pipeline{Conn: mine}
	go func() {
		for r := bufio.NewReader(mine); ; c.answers.Add(1) {
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.Header.Get("Content-Type") == "text/event-stream" {
				return
			}
			io.Copy(io.Discard, resp.Body)
		}
	}()
	return c
}

// takeTurns takes all turns except those for health, and returns a function that gives them back.
func (all *connections) takeTurns() (give func()) {
	turns := all.turns[0]
	for range cap(turns) {
		turns <- struct{}{}
	}
	return func() {
		for range cap(turns) {
			<-turns
		}
	}
}

// TestRequestsInARow sends requests while others have all turns. Each that was sent before the previous one was answered
// waits for a turn, also one that reached the buffer in two parts. Health has turns of its own. A client that waits for
// each answer needs no turn, whatever it sends.
func TestRequestsInARow(t *testing.T) {
	largeHeader := strings.Replace(rootRequest, "\r\n\r\n", "\r\nX-A: "+strings.Repeat("a", 4000)+"\r\n\r\n", 1)
	largeBody := postRequest(strings.Repeat("y", 20_000))
	for _, tt := range []struct {
		name string
		sent []string // without waiting for the answers to each
		want int64    // answers before there is a turn
		all  int64
	}{
		{"in a row", []string{strings.Repeat(rootRequest, 200)}, 1, 200},
		{"in two parts of the buffer", []string{largeHeader + rootRequest + rootRequest}, 1, 3},
		{"after a body", []string{postRequest("y") + rootRequest}, 1, 2},
		{"one by one", []string{rootRequest, rootRequest, rootRequest}, 3, 3},
		{"one by one after a large header", []string{largeHeader, largeHeader, rootRequest}, 3, 3},
		{"one by one after a large body", []string{largeBody, largeBody, rootRequest}, 3, 3},
		{"at last in a row", []string{rootRequest, rootRequest + rootRequest}, 2, 3},
		{"health in a row", []string{strings.Repeat(liveRequest, 200)}, 200, 200},
		{"others after health", []string{liveRequest + rootRequest + liveRequest}, 1, 3},
		{"at last one by one", []string{rootRequest}, 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipedServer(t, serviceTest{templates: apiTemplates})
			give := p.all.takeTurns()
			c := p.pipeline()
			for _, text := range tt.sent {
				go io.WriteString(c, text)
				synctest.Wait()
			}
			if c.answers.Load() != tt.want {
				t.Errorf("%s: got %d answers without a turn; want %d", tt.name, c.answers.Load(), tt.want)
			}
			p.ask("/health/live").want(200)
			give()
			if synctest.Wait(); c.answers.Load() != tt.all {
				t.Errorf("%s: got %d answers; want %d", tt.name, c.answers.Load(), tt.all)
			}
			if n := len(p.all.turns[0]) + len(p.all.turns[1]); n != 0 {
				t.Errorf("%s: %d turns are taken; want none", tt.name, n)
			}
		})
	}
}

// TestTurnsEnd gives all turns to requests that wait for something else: the next request has its turn soon all the same.
func TestTurnsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{})
		var conns []*pipeline
		turns := p.all.turns[0]
		for i := range cap(turns) {
			conns = append(conns, p.pipeline())
			io.WriteString(conns[i], rootRequest+"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
			synctest.Wait()
		}
		c := p.pipeline()
		io.WriteString(c, rootRequest+rootRequest)
		if synctest.Wait(); c.answers.Load() != 1 {
			t.Errorf("got %d answers; want one before the others' turns end", c.answers.Load())
		}
		time.Sleep(turnLimit)
		if synctest.Wait(); c.answers.Load() != 2 {
			t.Errorf("got %d answers; want 2", c.answers.Load())
		}
		for _, other := range append(conns, c) {
			other.Close()
		}
		if synctest.Wait(); len(turns) != 0 {
			t.Errorf("%d turns are taken; want none", len(turns))
		}
	})
}

// TestPlacesForOthers fills the places with connections of one kind: a new one is served in place of one of them, which
// does nothing any more.
func TestPlacesForOthers(t *testing.T) {
	const metrics = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, tt := range []struct {
		name  string
		sent  string
		read  bool          // the answers
		after time.Duration // before a new one comes
		want  int           // the status of the answer on that
		tasks int           // that the others create in the end
	}{
		{"idle", "", true, 0, 200, 0},
		{"of which a quarter may wait for a turn", liveRequest + postRequest("y"), true, 0, 200, 1},
		{"that read nothing for a moment", metrics, false, stalledAfter - 1, 503, 0},
		{"that read nothing", metrics, false, stalledAfter, 200, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipedServer(t, serviceTest{templates: apiTemplates, config: func(c *Config) { c.Web.MaxConnections = 4 }})
			give := p.all.takeTurns()
			for range 3 {
				if tt.read {
					io.WriteString(p.pipeline(), tt.sent)
				} else {
					p.dial(tt.sent)
				}
				synctest.Wait()
			}
			time.Sleep(tt.after)
			p.ask("/v1/tasks").want(tt.want)
			if n := p.svc.quotas.connections.used.Load(); n > 4 {
				t.Errorf("%s: got %d connections; want at most 4", tt.name, n)
			}
			give()
			synctest.Wait()
			if n := p.svc.store.counts().tasks; n[taskStepsInProcess] != tt.tasks {
				t.Errorf("%s: got %d tasks by state; want %d in process", tt.name, n, tt.tasks)
			}
		})
	}
}

// TestWhoGivesWay checks the order in which connections are closed for new ones: first one that waits for a turn, then the
// longest waiting stranger, then the longest waiting known one, and none that waits since a moment.
func TestWhoGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := manyConnections()
		all.quotas.connections.most = 8
		open := func(known bool) *connection {
			mine, theirs := net.Pipe()
			t.Cleanup(func() { mine.Close() })
			c := all.admit(theirs)
			c.known = known
			c.waits(true)
			return c
		}
		names := map[*connection]string{open(true): "known", open(false): "stranger"}
		time.Sleep(nextRequest)
		behind := open(true)
		names[open(false)], names[open(true)], names[behind] = "new stranger", "new", "behind"
		asking, served := open(false), open(true)
		asking.waits(false)
		served.waits(false)
		left, _ := asking.giveWay()
		_, back := served.giveWay()
		back()
		names[asking], names[served] = "asking", "served"
		defer all.takeTurns()()
		took := true
		go func() { took = behind.takeTurn(false) }()
		synctest.Wait()
		gone := func() string {
			for c, name := range names {
				select {
				case <-c.left:
					delete(names, c)
					return name
				default:
				}
			}
			return "nobody"
		}
		for _, want := range []string{"behind", "stranger", "nobody"} {
			all.closeLongest()
			if got := gone(); got != want {
				t.Errorf("got %s closed; want %s", got, want)
			}
		}
		synctest.Wait()
		if took {
			t.Error("the connection that waited for a turn goes on waiting")
		}
		time.Sleep(nextRequest)
		for _, want := range []string{"new stranger", "known", "new", "asking", "nobody"} {
			all.closeLongest()
			if got := gone(); got != want {
				t.Errorf("got %s closed; want %s", got, want)
			}
		}
		<-left
	})
}

// TestStrangersWhoWaitForAKeyGiveWay fills all connections with requests whose tokens have unknown kids, so that they
// wait for the key set. A caller with a known key is answered on a new connection.
func TestStrangersWhoWaitForAKeyGiveWay(t *testing.T) {
	keys := newKeyServer(t, webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey)))
	s := newAuthSurface(t, "orchestration", func(c *authConfig) {
		c.JWTPublicKey, c.JWTVerificationMethod, c.JWKSURL, c.JWKSURLAllowHTTP = "", "jwks", keys.URL, true
	})
	(&authBench{authenticator: s.auth}).settle()
	s.svc.quotas.connections.most = 8
	l := must(listenTCP("127.0.0.1:0"))(t)
	h := newHTTPServer(l, s.surface, newConnections(s.svc.quotas, s.svc.log), s.svc.log)
	go h.serve()
	defer h.server.Close()
	send := func(kid string, key any) net.Conn {
		c := must(net.Dial("tcp", l.Addr().String()))(t)
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nAuthorization: Bearer %s\r\n\r\n",
			keyedToken(t, kid, key))
		return c
	}
	send("the one whose fetch begins at once", authKeys().rsa2)
	for i := range 20 {
		send(fmt.Sprint("random", i), authKeys().rsa2)
	}
	for s.svc.load.open.Load() < 6 {
		runtime.Gosched()
	}
	c := send("a", authKeys().rsa)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 403 { // it may only read
		t.Errorf("got %v, %v; want it recognized", resp, err)
	}
}

// TestKeptConnectionGivesWay has connections that wait for the next requests of their clients give way to new ones, and sends
// a request on each at that moment: every request is answered, with 200 or with 503.
func TestKeptConnectionGivesWay(t *testing.T) {
	svc := newTestService(t, serviceTest{config: func(c *Config) { c.Web.MaxConnections = 8 }})
	l := must(listenTCP("127.0.0.1:0"))(t)
	h := newHTTPServer(l, newOrchestrationAPI(svc, nil), newConnections(svc.quotas, svc.log), svc.log)
	go h.serve()
	defer h.server.Close()
	ask := func(c net.Conn, r *bufio.Reader) int {
		io.WriteString(c, "GET /v1/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n") // an error if it was closed
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("got %v; want an answer", err)
		}
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	statuses := map[int]int{}
	var again []func() int
	for range 40 {
		c := must(net.Dial("tcp", l.Addr().String()))(t)
		defer c.Close()
		r := bufio.NewReader(c)
		statuses[ask(c, r)]++
		again = append(again, func() int { return ask(c, r) })
	}
	for _, a := range again {
		statuses[a()]++
	}
	if statuses[503] == 0 || statuses[200] < 40 || statuses[200]+statuses[503] != 80 {
		t.Errorf("got %v; want 200 for all the first ones, and 503 for some of the second", statuses)
	}
}

// TestNoPlace opens one connection more than there may be while all others are busy: it waits, and is closed if no other
// one ends.
func TestNoPlace(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all := manyConnections()
			q := &all.quotas.connections
			q.most = 4
			var busy []*connection
			for range q.most {
				busy = append(busy, all.admit(nil))
				busy[len(busy)-1].waits(false)
			}
			if !busy[3].excess || busy[2].excess {
				t.Error("the last place is not one for public routes, or others are")
			}
			if ends {
				time.AfterFunc(stalledAfter/2, func() { all.note(busy[0], http.StateClosed) })
			}
			began := time.Now()
			if c := all.admit(nil); (c != nil) != ends || q.used.Load() != q.most {
				t.Errorf("got %v and %d connections; want a place: %v, and %d", c, q.used.Load(), ends, q.most)
			}
			if took := time.Since(began); took > stalledAfter+10*time.Millisecond {
				t.Errorf("it took %s; want %s at most", took, stalledAfter)
			}
		})
	}
}

// TestConnectionLimit opens more connections than are allowed: those that wait for their
// clients make room, the longest waiting first; if all are busy, only public routes answer.
func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{config: func(c *Config) { c.Web.MaxConnections = 3 + 1 }}) // one for public routes
		idle := p.dial("")
		header := p.dial("GET /v1/tasks HTTP/1.1\r\n")
		body := p.dial(taskBody(100, "{"))
		for i, waiting := range []net.Conn{idle, header, body} {
			synctest.Wait()
			p.get("/v1/events")
			waiting.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := waiting.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("connection %d: got %v; want it closed", i, err)
			}
		}
		a := p.ask("/v1/tasks").want(503)
		if a.text("error.code") != "OVERLOADED" || !strings.Contains(a.text("error.message"), "web.max_connections") {
			t.Errorf("got %s; want a refusal that names the limit", a.body)
		}
		p.ask("/health/live").want(200)
		if got := p.svc.quotas.connections.refused.Load(); got != 1 {
			t.Errorf("got %d refusals counted; want 1", got)
		}
	})
}

// halfPipe is a pipe of which one end can be closed for writing, which the other does not notice.
type halfPipe struct{ net.Conn }

func (halfPipe) CloseWrite() error { return nil }

// TestLingering closes connections whose clients may still be sending: each counts until its client closes it, sends
// nothing for a while, or has sent long or much, or until it is closed for another one.
func TestLingering(t *testing.T) {
	for _, tt := range []struct {
		name  string
		send  func(client net.Conn) // until it cannot
		after time.Duration
	}{
		{"closed", func(c net.Conn) { time.Sleep(time.Second); c.Close() }, time.Second},
		{"silent", func(c net.Conn) {}, lingerPause},
		{"slow", func(c net.Conn) {
			for err := error(nil); err == nil; _, err = c.Write([]byte("x")) {
				time.Sleep(lingerPause - time.Millisecond)
			}
		}, lingerTime + lingerPause},
		{"endless", func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = c.Write(make([]byte, jsonPiece))
			}
		}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := manyConnections()
			mine, theirs := net.Pipe()
			defer mine.Close()
			c := all.admit(halfPipe{theirs})
			all.note(c, http.StateActive)
			go io.ReadFull(mine, make([]byte, 1))
			io.WriteString(c, "x")
			c.Close()
			all.note(c, http.StateClosed)
			if n := all.quotas.connections.used.Load(); n != 1 {
				t.Errorf("%s: %d connections count; want 1", tt.name, n)
			}
			began := time.Now()
			go tt.send(mine)
			<-c.left
			if took := time.Since(began); took > tt.after || took < tt.after-2*lingerPause {
				t.Errorf("%s: closed after %s; want %s", tt.name, took, tt.after)
			}
			if n := all.quotas.connections.used.Load(); n != 0 {
				t.Errorf("%s: %d connections count in the end; want none", tt.name, n)
			}
			if _, err := mine.Write([]byte("x")); err != io.ErrClosedPipe {
				t.Errorf("%s: got %v; want the connection closed", tt.name, err)
			}
			time.Sleep(lingerPause) // until the client has noticed
		})
	}
	synctest.Test(t, func(t *testing.T) {
		all := manyConnections()
		mine, theirs := net.Pipe()
		defer mine.Close()
		c := all.admit(halfPipe{theirs})
		c.known = true
		all.note(c, http.StateActive)
		go io.ReadFull(mine, make([]byte, 1))
		io.WriteString(c, "x")
		c.Close()
		synctest.Wait()
		if !all.closeFirst(anyConnection, all.strangers.Next) {
			t.Error("no stranger waits; want the connection to give way as one")
		}
		if _, err := mine.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Errorf("got %v; want the connection closed for another one", err)
		}
	})
}

// TestUnansweredClose closes a connection on which nothing was answered, such as one whose header did not come in time:
// that is the end.
func TestUnansweredClose(t *testing.T) {
	all := manyConnections()
	mine, theirs := net.Pipe()
	defer mine.Close()
	c := all.admit(halfPipe{theirs})
	all.note(c, http.StateActive)
	c.Close()
	all.note(c, http.StateClosed)
	if n := all.quotas.connections.used.Load(); n != 0 {
		t.Errorf("%d connections count; want none", n)
	}
}
