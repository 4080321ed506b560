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
	"strconv"
	"strings"
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
		"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
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
	all := newConnections(newQuotas(defaultConfig()), slog.New(slog.NewTextHandler(&log, nil)))
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

// TestNoPlace opens one connection more than there may be while all others are busy: it is closed, and the last place
// is one for refusals.
func TestNoPlace(t *testing.T) {
	all := manyConnections()
	all.places.most = 4
	var busy []*connection
	for range all.places.most {
		c := all.admit(halfPipe{})
		all.followState(c, http.StateActive)
		busy = append(busy, c)
	}
	if !busy[3].excess || busy[2].excess {
		t.Error("the last place is not one for refusals, or others are")
	}
	if c := all.admit(nil); c != nil || all.places.used.Load() != 4 || all.places.refused.Load() != 1 {
		t.Errorf("got %v, %d connections, %d refusals; want no place", c, all.places.used.Load(), all.places.refused.Load())
	}
	all.followState(busy[0], http.StateIdle)
	if c := all.admit(nil); c == nil || c.excess || !busy[0].left {
		t.Errorf("got %+v; want the place of the connection that is idle", c)
	}
}

// TestConnectionLimit opens more connections than are allowed: those that wait for a request make room, the longest waiting
// first; if all are busy, only public routes answer.
func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{config: func(c *Config) { c.Web.MaxConnections = 3 + 1 }}) // one for refusals
		waiting := []net.Conn{p.dial(""), p.dial("GET /v1/tasks HTTP/1.1\r\n")}
		p.dial(taskBody(100, "{"))
		for i, idle := range waiting {
			time.Sleep(nextRequest)
			p.get("/v1/events")
			idle.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("connection %d: got %v; want it closed", i, err)
			}
		}
		a := p.ask("/v1/tasks").want(503)
		if a.text("error.code") != "BACKPRESSURE" || a.header.Get("Retry-After") != "1" ||
			!strings.Contains(a.text("error.message"), "web.max_connections") {
			t.Errorf("got %v, %s; want a refusal that names the limit", a.header, a.body)
		}
		synctest.Wait() // until that connection is closed
		p.ask("/health/live").want(200)
		if got := p.svc.quotas.connections.refused.Load(); got != 1 {
			t.Errorf("got %d refusals counted; want 1", got)
		}
	})
}

// halfPipe is a connection that can be closed.
type halfPipe struct{ net.Conn }

func (halfPipe) Close() error { return nil }

// TestDrain refuses a request whose client goes on sending: what it sends is dropped within limits, and the refusal arrives.
func TestDrain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes int // that the client sends
		after time.Duration
	}{
		{"all", 1 << 20, 0},
		{"endless", 2 * drainBytes, 0},
		{"silent", 100, drainTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipedServer(t, serviceTest{})
			c := p.dial(strings.Replace(taskBody(max(tt.bytes, 1<<20), ""), "/v1/tasks", "/nothing", 1))
			go c.Write(make([]byte, tt.bytes))
			r, began := bufio.NewReader(c), time.Now()
			readAnswer(t, must(http.ReadResponse(r, nil))(t)).want(404)
			if _, err := r.ReadByte(); err != io.EOF || time.Since(began).Truncate(time.Second) != tt.after {
				t.Errorf("%s: got %v after %s; want the end after %s", tt.name, err, time.Since(began), tt.after)
			}
			if used := p.svc.quotas.requests.used.Load(); used != 0 {
				t.Errorf("%s: %d requests at work; want none", tt.name, used)
			}
		})
	}
}
