package main

// Tests of the connections to HTTP handlers: one table for both implementations.

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// closeIdle closes the connections that wait for a request.
func closeIdle(connections http.RoundTripper) {
	switch c := connections.(type) {
	case *plainConnections:
		closeIdle(c.others)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dropLocked(len(c.idle))
	case *http.Transport:
		c.CloseIdleConnections()
	}
}

// eachConnections runs a test with both implementations.
func eachConnections(t *testing.T, f func(t *testing.T, connections http.RoundTripper)) {
	for name, connections := range map[string]http.RoundTripper{
		"own": newHandlerConnections(4, nil), "nethttp": newHandlerTransport(4, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { closeIdle(connections) })
			f(t, connections)
		})
	}
}

// closeNoter is the body of a request. RoundTrip has to close it.
type closeNoter struct {
	io.Reader
	closed chan struct{}
}

func (c *closeNoter) Close() error {
	close(c.closed)
	return nil
}

// exchangeText makes a request with a body, and returns the status and the text of the reply, or "no reply" and
// "cut" for what is missing.
func exchangeText(ctx context.Context, connections http.RoundTripper, to string, body []byte) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", "k")
	sent := &closeNoter{req.Body, make(chan struct{})}
	req.Body = sent
	resp, err := connections.RoundTrip(req)
	if err != nil {
		<-sent.closed
		return "no reply", err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return "101", nil // the body is the connection
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Sprint(resp.StatusCode, " cut"), err
	}
	return fmt.Sprint(resp.StatusCode, " ", string(text)), nil
}

// rawServer accepts connections and gives each to serve, until the test ends.
func rawServer(t *testing.T, serve func(conn net.Conn)) (url string, opened *atomic.Int32) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	opened = new(atomic.Int32)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			opened.Add(1)
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return "http://" + l.Addr().String(), opened
}

// repliesOf serves a connection by writing the same reply to every request.
func repliesOf(reply string, closes bool) func(conn net.Conn) {
	return func(conn net.Conn) {
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
	}
}

// TestConnectionsOfHandlers makes three requests after each other to servers that write usual and unusual
// replies, close a connection that could be kept, or send more than a reply.
func TestConnectionsOfHandlers(t *testing.T) {
	t.Parallel()
	const reply = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
	hint := "HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("x", maxReplyHeader/4) + "\r\n\r\n"
	eachConnections(t, func(t *testing.T, connections http.RoundTripper) {
		for name, row := range map[string]struct {
			reply  string
			closes bool // the server does, after the reply
			want   string
			opened int32 // connections for the three requests
		}{
			"kept":                      {reply, false, "200 1", 1},
			"closed by the server":      {reply, true, "200 1", 3},
			"said to be closed":         {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1", false, "200 1", 3},
			"HTTP/1.0":                  {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1", false, "200 1", 3},
			"until its end":             {"HTTP/1.1 200 OK\r\n\r\n1", true, "200 1", 3},
			"chunks":                    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n", false, "200 1", 1},
			"chunks and a trailer":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nX: y\r\n\r\n", false, "200 1", 1},
			"no body":                   {"HTTP/1.1 204 No Content\r\n\r\n", false, "204 ", 1},
			"empty body":                {"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", false, "500 ", 1},
			"interim replies":           {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + reply, false, "200 1", 1},
			"too many interim replies":  {strings.Repeat(hint, 5) + reply, false, "no reply", 3},
			"redirect":                  {"HTTP/1.1 307 Go\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", false, "307 ", 1},
			"switch":                    {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", false, "101", 3},
			"header as long as allowed": {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxReplyHeader-100) + "\r\nContent-Length: 1\r\n\r\n1", false, "200 1", 1},
			"header too long":           {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxReplyHeader) + "\r\n\r\n", false, "no reply", 3},
			"half a header":             {"HTTP/1.1 200 OK\r\nContent-", true, "no reply", 3},
			"not HTTP":                  {"220 mail.example ESMTP\r\n", false, "no reply", 3},
			"nothing":                   {"", true, "no reply", 3},
			"body cut":                  {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1", true, "200 cut", 3},
			"chunk cut":                 {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n1", true, "200 cut", 3},
			// What comes after a reply counts for nothing: the connection is not used again.
			"one reply too many": {reply + "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", false, "200 1", 3},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				to, opened := rawServer(t, repliesOf(row.reply, row.closes))
				for range 3 {
					if got, err := exchangeText(t.Context(), connections, to, []byte("{}")); got != row.want {
						t.Errorf("got %s, %v; want %s", got, err, row.want)
					}
				}
				if n := opened.Load(); n != row.opened {
					t.Errorf("%d connections for three requests; want %d", n, row.opened)
				}
			})
		}
	})
}

// readHead reads the header of a request and leaves its body: net/http takes no reply before it has begun a request.
func readHead(conn net.Conn) { http.ReadRequest(bufio.NewReaderSize(conn, 16)) }

// TestReplyBeforeTheRequestWasRead has a server refuse a long request before it reads its body.
func TestReplyBeforeTheRequestWasRead(t *testing.T) {
	t.Parallel()
	eachConnections(t, func(t *testing.T, connections http.RoundTripper) {
		to, _ := rawServer(t, func(conn net.Conn) {
			readHead(conn)
			io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1")
			io.Copy(io.Discard, conn)
		})
		if got, err := exchangeText(t.Context(), connections, to, make([]byte, 8<<20)); got != "413 1" {
			t.Errorf("got %s, %v; want 413 1", got, err)
		}
	})
}

// TestReplyLeftUnread closes a reply of which only the beginning was read: the connection goes with it.
func TestReplyLeftUnread(t *testing.T) {
	t.Parallel()
	eachConnections(t, func(t *testing.T, connections http.RoundTripper) {
		ended := make(chan struct{})
		to, _ := rawServer(t, func(conn net.Conn) {
			defer close(ended)
			readHead(conn)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
			for err := error(nil); err == nil; {
				_, err = conn.Write(make([]byte, 4096))
			}
		})
		req := must(http.NewRequest(http.MethodPost, to, strings.NewReader("{}")))(t)
		resp := must(connections.RoundTrip(req))(t)
		resp.Body.Read(make([]byte, 1))
		resp.Body.Close()
		<-ended
	})
}

// TestConnectionsRefused checks the error of an address where nobody listens.
func TestConnectionsRefused(t *testing.T) {
	t.Parallel()
	eachConnections(t, func(t *testing.T, connections http.RoundTripper) {
		closed := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		closed.Close()
		got, err := exchangeText(t.Context(), connections, "http://"+closed.Addr().String(), []byte("{}"))
		if got != "no reply" || !strings.Contains(fmt.Sprint(err), "connection refused") {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

// TestIdleConnectionsAreBounded uses more connections than are kept, and then waits until they are
// too old.
func TestIdleConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var near net.Conn
		p := plainConnections{size: 2, dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
		var ends []net.Conn
		for range 3 {
			var far net.Conn
			near, far = net.Pipe()
			ends = append(ends, far)
			p.give(must(p.take(t.Context(), &url.URL{Host: fmt.Sprint("h", len(ends))}))(t))
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
	if newTestHandlers(t, nil).web.connections.(*plainConnections).others.(*http.Transport).Proxy != nil {
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
