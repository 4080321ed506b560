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
// same connection, and compares the statuses with what docs/security.md says about Go's server.
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

// TestConnectionLimit opens more connections than are allowed: those that wait for their
// clients make room, the longest waiting first; if all are busy, only public routes answer.
func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{config: func(c *Config) { c.Web.MaxConnections = 3 }})
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
