package main

// Who may not is told so before the body comes: measured on a real connection.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// authListener serves a surface with authentication on a port of its own.
func authListener(t *testing.T) (address string) {
	t.Helper()
	s := newAuthSurface(t, "orchestration", unchanged)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHTTPServer(l, s, s.surface.log)
	go h.server.Serve(l)
	t.Cleanup(func() { h.server.Close() })
	return l.Addr().String()
}

// authDial opens a connection that gives up long before the server does.
func authDial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(requestTimeout / 4))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// refusedHead begins a request that is refused, with more header lines.
func refusedHead(lines ...string) string {
	lines = append([]string{
		"POST /v1/tasks HTTP/1.1", "Host: x", "Content-Type: application/json", "Authorization: Bearer x.y.z",
	}, lines...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func wantRefusal(t *testing.T, what string, r *bufio.Reader) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("%s: got %v; want an answer", what, err)
	}
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != 401 || err != nil || !strings.Contains(string(body), "AUTHENTICATION_FAILED") {
		t.Errorf("%s: got %s %s, %v; want 401 and its body", what, resp.Status, body, err)
	}
	return resp
}

// TestRefusedBodyIsNotTaken sends a body of 1 GB with a token that does not
// hold: the answer comes at once, and the client gets rid of no more than what
// lies in the buffers in between.
func TestRefusedBodyIsNotTaken(t *testing.T) {
	const size, most = 1 << 30, 32 << 20
	conn := authDial(t, authListener(t))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	io.WriteString(conn, refusedHead("Transfer-Encoding: chunked"))
	sent := make(chan int, 1)
	go func() {
		chunk := []byte("10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n")
		n := 0
		for n < size {
			wrote, err := conn.Write(chunk)
			n += wrote
			if err != nil {
				break
			}
		}
		sent <- n
	}()
	resp := wantRefusal(t, "1 GB", bufio.NewReader(conn))
	if !resp.Close {
		t.Error("got a connection that stays; want it closed: nobody reads the rest")
	}
	n := <-sent
	runtime.ReadMemStats(&after)
	t.Logf("the client sent %d bytes; %d bytes were allocated", n, after.TotalAlloc-before.TotalAlloc)
	if n > most {
		t.Errorf("the client sent %d bytes; want at most %d of %d", n, most, size)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("got %d bytes allocated; want few", got)
	}
}

// TestRefusalDoesNotWaitForTheBody announces bodies that never come.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	address := authListener(t)
	for _, line := range []string{
		"Content-Length: 100", "Content-Length: 200000", "Content-Length: 10000000000", "Transfer-Encoding: chunked",
		"Content-Length: 100\r\nExpect: 100-continue", "Transfer-Encoding: chunked\r\nExpect: 100-continue",
	} {
		conn := authDial(t, address)
		began := time.Now()
		io.WriteString(conn, refusedHead(line))
		wantRefusal(t, line, bufio.NewReader(conn))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: the answer took %s; want it at once", line, took)
		}
	}
}

// TestRefusalWithoutBodyKeepsTheConnection asks again and again on one connection.
func TestRefusalWithoutBodyKeepsTheConnection(t *testing.T) {
	conn := authDial(t, authListener(t))
	r := bufio.NewReader(conn)
	for i := range 3 {
		io.WriteString(conn, refusedHead("Content-Length: 0"))
		if resp := wantRefusal(t, fmt.Sprint("request ", i), r); resp.Close {
			t.Errorf("request %d: got the connection closed; want it kept", i)
		}
	}
}

// TestRefusalReachesOrdinaryClients sends bodies by net/http, which writes and
// reads at once.
func TestRefusalReachesOrdinaryClients(t *testing.T) {
	address := authListener(t)
	for _, size := range []int64{1, 1 << 10, 100 << 10, 1 << 20, 64 << 20} {
		body := io.LimitReader(endlessBody{}, size)
		r, err := http.NewRequest("POST", "http://"+address+"/v1/tasks", io.NopCloser(body))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = size
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%d bytes: got %v; want an answer", size, err)
		}
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Errorf("%d bytes: got %s; want 401", size, resp.Status)
		}
	}
}

// endlessBody is a body without end.
type endlessBody struct{}

func (endlessBody) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
