package main

// Tests of the connections to HTTP handlers: one table for both implementations.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleConnectionsAreBounded uses more connections than are kept, and then waits until they are
// too old.
func TestIdleConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plainConnections{size: 2}
		var ends []net.Conn
		for range 3 {
			near, far := net.Pipe()
			ends = append(ends, far)
			p.give(must(p.take("h:80", func() (net.Conn, error) { return near, nil }))(t))
			p.mu.Lock()
			p.idle[len(p.idle)-1].address = fmt.Sprint(len(ends)) // so that the next one is another one
			p.mu.Unlock()
		}
		closed := func(n int) bool {
			ends[n].SetReadDeadline(realDeadline(time.Millisecond))
			_, err := ends[n].Read(make([]byte, 1))
			return err == io.EOF
		}
		if !closed(0) || closed(1) || closed(2) {
			t.Errorf("closed %v, %v, %v; want the first alone", closed(0), closed(1), closed(2))
		}
		receiveWithin(make(chan int), 2*keptIdle)
		if !closed(1) || !closed(2) {
			t.Errorf("an idle connection is open after %v", 2*keptIdle)
		}
	})
}

func TestHTTPProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	proxy := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.String(), "http://handler.invalid/pay"; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		if got, want := r.Header.Get("Proxy-Authorization"), "Basic bWU6czNjcmV0"; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		io.WriteString(w, `"proxied"`)
	})
	h := newTestHandlers(t, func(c *workerConfig) {
		c.HTTPProxy = strings.Replace(proxy.URL, "http://", "http://me:s3cret@", 1)
	})
	if got, want := showOutcome(callHandler(t, h, "http://handler.invalid/pay")), `ok "proxied"`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if newTestHandlers(t, nil).web.transport.Proxy != nil {
		t.Error("there is a proxy, and none is configured")
	}
}

// TestHTTPConnectionsAreKept makes rounds of parallel calls. The server answers
// none before all of a round have arrived.
func TestHTTPConnectionsAreKept(t *testing.T) {
	const parallel, rounds = 16, 3
	var opened atomic.Int32
	var arrived sync.WaitGroup
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Done()
		arrived.Wait()
		io.WriteString(w, "1")
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	h := newTestHandlers(t, func(c *workerConfig) { c.HTTPConcurrency = parallel })
	to := h.resolve(s.URL)
	for range rounds {
		arrived.Add(parallel)
		var calls sync.WaitGroup
		for range parallel {
			calls.Go(func() {
				if o := h.run(new(attemptContext), to, newTestAttempt(`{}`)); showOutcome(o) != "ok 1" {
					t.Errorf("got %s: %s", showOutcome(o), errorText(o))
				}
			})
		}
		calls.Wait()
	}
	if n := opened.Load(); n != parallel {
		t.Errorf("%d connections for %d rounds of %d calls; want %d", n, rounds, parallel, parallel)
	}
}

// TestHTTPConnectionsOfOddServers calls servers several times that write unusual replies, close
// a connection that could be kept, or send more than a reply.
func TestHTTPConnectionsOfOddServers(t *testing.T) {
	t.Parallel()
	const reply = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
	for name, row := range map[string]struct {
		reply  string
		closes bool
		want   string
	}{
		"keeps":              {reply, false, "ok 1"},
		"closes":             {reply, true, "ok 1"},
		"interim replies":    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + reply, false, "ok 1"},
		"one reply too many": {reply + "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", false, "ok 1"},
		"chunks":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n", false, "ok 1"},
		"HTTP/1.0":           {"HTTP/1.0 200 OK\r\n\r\n1", true, "ok 1"},
		"no body":            {"HTTP/1.1 204 No Content\r\n\r\n", false, "ok null"},
		"switches":           {"HTTP/1.1 101 Switching Protocols\r\n\r\n", false, "http_101 permanent 101"},
		"long header":        {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxReplyHeader) + "\r\n\r\n", false, "network_error retryable"},
		"nothing":            {"", true, "network_error retryable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
			t.Cleanup(func() { l.Close() })
			go serveRaw(l, row.reply, row.closes)
			h := newTestHandlers(t, nil)
			for range 5 {
				if o := callHandler(t, h, "http://"+l.Addr().String()); showOutcome(o) != row.want {
					t.Fatalf("got %s: %s; want %s", showOutcome(o), errorText(o), row.want)
				}
			}
		})
	}
}

// serveRaw writes the same reply to every request, until the listener closes.
func serveRaw(l net.Listener, reply string, closes bool) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for r := bufio.NewReader(conn); ; {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				io.Copy(io.Discard, req.Body)
				if _, err := io.WriteString(conn, reply); err != nil || closes {
					return
				}
			}
		}()
	}
}
