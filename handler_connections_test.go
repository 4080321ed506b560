package main

// Tests of the connections to HTTP handlers.

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// scriptedServer is a handler whose connections follow a script, segment by segment: one is written when the client
// has read the one before, or has closed the connection. So the script gives the same result every time.
type scriptedServer struct {
	net.Listener
	serve   func(*talk)
	playing sync.WaitGroup
	step    atomic.Pointer[stepContext] // of the step that runs

	mu    sync.Mutex
	talks []*talk // guarded by mu
}

// stepContext is the context of a step, which ends as if its time were over.
type stepContext struct {
	context.Context
	end context.CancelFunc
}

func newStepContext() *stepContext {
	c := new(stepContext)
	c.Context, c.end = context.WithCancel(context.Background())
	return c
}

func (c *stepContext) Value(any) any { return nil } // so that derived contexts ask Err

func (c *stepContext) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// talk is the server's end of a connection.
type talk struct {
	net.Conn
	server *scriptedServer
	near   *nearConn
	r      *bufio.Reader
	sent   int64
	number string // of the step whose request came last, a digit
}

// nearConn is the client's end.
type nearConn struct {
	*net.TCPConn
	moved  notifier // read or closed
	read   atomic.Int64
	closed atomic.Bool
}

func (n *nearConn) Read(p []byte) (int, error) {
	k, err := n.TCPConn.Read(p)
	n.read.Add(int64(k))
	n.moved.notify()
	return k, err
}

func (n *nearConn) Close() error {
	err := n.TCPConn.Close()
	n.closed.Store(true)
	n.moved.notify()
	return err
}

// await returns when the client has closed its end, or has read so much.
func (n *nearConn) await(read int64) (open bool) {
	for {
		moved := n.moved.next()
		switch {
		case n.closed.Load():
			return false
		case n.read.Load() >= read:
			return true
		}
		<-moved
	}
}

// arrived returns when something that the client has not read is at its end, or it has closed that.
func (n *nearConn) arrived(t testing.TB) {
	must(n.SyscallConn())(t).Read(func(fd uintptr) bool {
		_, quiet := peekSocket(fd, make([]byte, 1))
		return !quiet
	})
}

// dial replaces that of the connections to a handler.
func (s *scriptedServer) dial(t testing.TB) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, network, address string) (net.Conn, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		conn, err := net.Dial(network, address)
		if err != nil {
			return nil, err
		}
		far := must(s.Accept())(t)
		near := &nearConn{TCPConn: conn.(*net.TCPConn)}
		near.SetWriteBuffer(4 << 10) // so that the system cannot hold a long request
		far.(*net.TCPConn).SetReadBuffer(4 << 10)
		k := &talk{Conn: far, server: s, near: near, r: bufio.NewReaderSize(far, 16)}
		s.talks = append(s.talks, k)
		s.playing.Go(func() {
			defer far.Close()
			s.serve(k)
		})
		return k.near, nil
	}
}

// head reads the header of a request.
func (k *talk) head() (*http.Request, bool) {
	req, err := http.ReadRequest(k.r)
	if err != nil {
		return nil, false
	}
	key := req.Header.Get("Idempotency-Key")
	k.number = key[len(key)-1:]
	return req, true
}

// request reads a request.
func (k *talk) request() bool {
	req, ok := k.head()
	if ok {
		io.Copy(io.Discard, req.Body)
	}
	return ok
}

// send sends segments, with the number of the step for #, and reports whether the client has read them.
func (k *talk) send(segments ...string) bool {
	for _, s := range segments {
		n, err := io.WriteString(k, strings.ReplaceAll(s, "#", k.number))
		if k.sent += int64(n); err != nil || !k.near.await(k.sent) {
			return false
		}
	}
	return true
}

// stall sends segments and then nothing, until the step's timeout.
func (k *talk) stall(segments ...string) {
	if k.send(segments...) {
		k.server.step.Load().end()
		k.near.await(math.MaxInt64)
	}
}

// Scripts.

func replies(segments ...string) func(*talk) {
	return func(k *talk) {
		for k.request() && k.send(segments...) {
		}
	}
}

func repliesOnce(segments ...string) func(*talk) {
	return func(k *talk) { _ = k.request() && k.send(segments...) }
}

func stalls(segments ...string) func(*talk) {
	return func(k *talk) {
		if k.request() {
			k.stall(segments...)
		}
	}
}

// repeats sends a start, and then the same for as long as the client reads it.
func repeats(start, again string) func(*talk) {
	return func(k *talk) {
		for ok := k.request() && k.send(start); ok; ok = k.send(again) {
		}
	}
}

// repliesToHeads replies when it has read the header of a request, and reads no more.
func repliesToHeads(reply string) func(*talk) {
	return func(k *talk) {
		if _, ok := k.head(); ok && k.send(reply) {
			k.near.await(math.MaxInt64)
		}
	}
}

// TestScriptedHandlers makes three steps, one after the other, over connections of each kind to handlers that reply in
// usual, unusual and hostile ways. No step may get the result of another one.
func TestScriptedHandlers(t *testing.T) {
	t.Parallel()
	const (
		ok    = "HTTP/1.1 200 OK\r\n"
		reply = ok + "Content-Length: 1\r\n\r\n#"
		other = ok + "Content-Length: 1\r\n\r\n9" // for no step
		parts = ok + "Transfer-Encoding: chunked\r\n"
		hint  = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
	)
	long := strings.Repeat("x", maxReplyHeader)
	zeros := new(bytes.Buffer)
	packed := gzip.NewWriter(zeros)
	packed.Write(make([]byte, 500_000))
	packed.Close()
	for name, row := range map[string]scriptedRow{
		"kept":                      {serve: replies(reply), opened: 1},
		"closed after each reply":   {serve: repliesOnce(reply), over: true, opened: 3},
		"HTTP/1.0":                  {serve: replies("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n#"), opened: 3},
		"until its end":             {serve: repliesOnce(ok+"\r\n", "#"), opened: 3},
		"chunks":                    {serve: replies(parts+"\r\n", "1\r\n#\r\n", "0\r\n\r\n"), opened: 1},
		"no body":                   {serve: replies("HTTP/1.1 204 No Content\r\n\r\n"), want: "null", opened: 1},
		"empty body":                {serve: replies("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), want: "http_500", opened: 1},
		"redirect":                  {serve: replies("HTTP/1.1 307 Go\r\nLocation: /elsewhere\r\nContent-Length: 1\r\n\r\n#"), want: "redirect", opened: 3},
		"switch":                    {serve: replies("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), want: "http_101", opened: 3},
		"header as long as allowed": {serve: replies(ok + "X: " + long[100:] + "\r\nContent-Length: 1\r\n\r\n#"), opened: 1},
		"body drip without end":     {serve: stalls(append([]string{ok + "Content-Length: 9\r\n\r\n"}, strings.Split("#       ", "")...)...), want: "timeout", opened: 3},
		"nothing":                   {serve: stalls(), want: "timeout", opened: 3},
		"header too long":           {serve: repeats(ok, "X: "+long[:1000]+"\r\n"), want: "network_error", opened: 3},
		"flood of interims":         {serve: repeats("", strings.Repeat(hint, 50)), want: "network_error", opened: 3},
		"body without end":          {serve: repeats(ok+"\r\n", long[:1000]), want: "result_too_large", opened: 3},
		"error without end":         {serve: repeats("HTTP/1.1 500 No\r\n\r\n", long[:1000]), want: "http_500", opened: 3},
		"one chunk":                 {serve: repeats(parts+"\r\n7fffffffffffffff\r\n", long[:1000]), want: "result_too_large", opened: 3},
		"gzip bomb": {serve: replies(fmt.Sprintf("%sContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", ok, zeros.Len(), zeros)),
			want: "invalid_result", opened: 1},
		"half a header":           {serve: repliesOnce(ok + "Content-"), want: "network_error", opened: 3},
		"body cut":                {serve: repliesOnce(ok + "Content-Length: 9\r\n\r\n#"), want: "network_error", opened: 3},
		"two lengths":             {serve: repliesOnce(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n#9"), want: "network_error", opened: 3},
		"second reply after it":   {serve: replies(reply), stray: other, opened: 3},
		"body of no content":      {serve: replies("HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n9"), want: "null", over: true, opened: 3},
		"refused before the body": {serve: repliesToHeads("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 1\r\n\r\n#"), long: true, want: "http_413", opened: 3},
		"refused, and kept":       {serve: repliesToHeads("HTTP/1.1 413 Too Large\r\nContent-Length: 1\r\n\r\n#"), long: true, want: "http_413", opened: 3},
		"replied before the body": {serve: repliesToHeads(reply), long: true, opened: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row.run(t)
		})
	}
}

// scriptedRow is a row of TestScriptedHandlers.
type scriptedRow struct {
	serve  func(*talk)
	want   string // type of the error, or "null", of each step; "" for its own result
	opened int    // connections for the three steps
	long   bool   // the requests are too long to be under way at once
	over   bool   // something comes with a reply, or the connection ends after it
	stray  string // comes after a reply, before the next request
}

// run makes the steps.
func (row scriptedRow) run(t *testing.T) {
	s := &scriptedServer{Listener: must(net.Listen("tcp", "127.0.0.1:0"))(t), serve: row.serve}
	h, connections := newTestHandlers(t, nil), newHandlerTransport(4, nil)
	connections.DialContext = s.dial(t)
	h.web.connections = connections
	defer func() { // closing what is idle ends the scripts
		connections.CloseIdleConnections()
		s.playing.Wait()
		s.Close()
	}()
	for i := range 3 {
		a, ctx := newTestAttempt(`{}`), newStepContext()
		a.timeout = time.Hour // scripts end what stalls
		if a.number = i + 1; row.long {
			a.context = fmt.Appendf(nil, "%q", make([]byte, 1<<20))
		}
		s.step.Store(ctx)
		o := h.run(ctx, h.resolve("http://"+s.Addr().String()), a)
		got, want := showOutcome(o), cmp.Or(row.want, fmt.Sprint("ok ", a.number))
		if o.err != nil {
			got = o.err.errorType
		} else if got = strings.TrimPrefix(got, "ok "); row.want == "" {
			want = fmt.Sprint(a.number)
		}
		if got != want {
			t.Errorf("step %d: got %s, %s; want %s", a.number, got, errorText(o), want)
		}
		row.after(s)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.talks); n != row.opened {
		t.Errorf("%d connections for three steps; want %d", n, row.opened)
	}
	for _, k := range s.talks {
		if n := k.near.read.Load(); n > int64(4-row.opened)*(maxReplyHeader+16<<10) {
			t.Errorf("read %d bytes of a connection", n)
		}
	}
}

// after sends what comes after a reply, and waits until the client has closed the connection for it.
func (row scriptedRow) after(s *scriptedServer) {
	s.mu.Lock()
	last := s.talks[len(s.talks)-1]
	s.mu.Unlock()
	io.WriteString(last, row.stray)
	if row.stray != "" || row.over {
		last.near.await(math.MaxInt64)
	}
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
	if newTestHandlers(t, nil).web.connections.(*handlerTransport).Proxy != nil {
		t.Error("there is a proxy, and none is configured")
	}
}

// countConnections counts the connections that are made to a server, which has not started yet.
func countConnections(s *httptest.Server) *atomic.Int32 {
	opened := new(atomic.Int32)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	return opened
}

// TestHTTPConnectionsAreKept makes rounds of parallel calls. The server answers
// none before all of a round have arrived.
func TestHTTPConnectionsAreKept(t *testing.T) {
	const parallel, rounds = 16, 3
	var arrived sync.WaitGroup
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Done()
		arrived.Wait()
		io.WriteString(w, "1")
	}))
	opened := countConnections(s)
	s.Start()
	defer s.Close()
	h := newTestHandlers(t, func(c *workerConfig) { c.HTTPConcurrency = parallel })
	to := h.resolve(s.URL)
	for range rounds {
		arrived.Add(parallel)
		var calls sync.WaitGroup
		for range parallel {
			calls.Go(func() {
				if o := h.run(context.Background(), to, newTestAttempt(`{}`)); showOutcome(o) != "ok 1" {
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

// TestOneDelivery keeps 60 connections to a handler that then reads each request and closes its connection without a
// byte: an attempt is delivered once, and fails.
func TestOneDelivery(t *testing.T) {
	const kept = 60
	var arrived sync.WaitGroup
	arrived.Add(kept)
	var delivered atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if delivered.Add(1) > kept {
			panic(http.ErrAbortHandler)
		}
		arrived.Done()
		arrived.Wait()
		io.WriteString(w, "1")
	}))
	opened := countConnections(s)
	s.Start()
	defer s.Close()
	h := newTestHandlers(t, func(c *workerConfig) { c.HTTPConcurrency = kept })
	to := h.resolve(s.URL)
	var calls sync.WaitGroup
	for range kept {
		calls.Go(func() { h.run(context.Background(), to, newTestAttempt(`{}`)) })
	}
	calls.Wait()
	o := h.run(context.Background(), to, newTestAttempt(`{}`))
	if n := delivered.Load() - kept; n != 1 || o.err == nil || o.err.errorType != "network_error" || !o.err.retryable {
		t.Errorf("%d deliveries of an attempt that ended as %s; want one, and a network_error", n, showOutcome(o))
	}
	if n := opened.Load(); n != kept {
		t.Errorf("%d connections; want %d", n, kept)
	}
}

// TestEndedConnections makes 20 steps, one after the other, with handlers that end their connections after each reply.
// No attempt is made on a connection whose end has arrived, so each is delivered once, and succeeds.
func TestEndedConnections(t *testing.T) {
	t.Parallel()
	const reply = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
	for name, end := range map[string]func(*talk){
		"closed":     func(k *talk) {},
		"reset":      func(k *talk) { k.Conn.(*net.TCPConn).SetLinger(0) },
		"half":       func(k *talk) { k.Conn.(*net.TCPConn).CloseWrite(); k.near.await(math.MaxInt64) },
		"with a 408": func(k *talk) { io.WriteString(k, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var delivered atomic.Int32
			s := &scriptedServer{Listener: must(net.Listen("tcp", "127.0.0.1:0"))(t), serve: func(k *talk) {
				if k.request() && delivered.Add(1) > 0 && k.send(reply) {
					end(k)
				}
			}}
			defer s.Close()
			connections := newHandlerTransport(4, nil)
			connections.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := s.dial(t)(ctx, network, address)
				return &countedConn{Conn: conn}, err
			}
			h := newTestHandlers(t, nil)
			h.web.connections = connections
			to := h.resolve("http://" + s.Addr().String())
			for i := range 20 {
				if o := h.run(context.Background(), to, newTestAttempt(`{}`)); showOutcome(o) != "ok 1" {
					t.Errorf("step %d: got %s, %s", i, showOutcome(o), errorText(o))
				}
				s.mu.Lock()
				last := s.talks[len(s.talks)-1]
				s.mu.Unlock()
				last.near.arrived(t)
			}
			if n := delivered.Load(); n != 20 {
				t.Errorf("%d deliveries of 20 attempts", n)
			}
			connections.CloseIdleConnections()
			s.playing.Wait()
		})
	}
}

// TestEndedTLS is TestEndedConnections for a handler with TLS.
func TestEndedTLS(t *testing.T) {
	t.Parallel()
	own := httptest.NewTLSServer(nil)
	defer own.Close()
	l := must(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: own.TLS.Certificates}))(t)
	defer l.Close()
	var delivered atomic.Int32
	ended := make(chan bool)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				io.Copy(io.Discard, r.Body)
				delivered.Add(1)
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
			}
			conn.Close()
			ended <- true
		}
	}()
	connections := newHandlerTransport(1, nil)
	connections.TLSClientConfig = own.Client().Transport.(*http.Transport).TLSClientConfig
	h := newTestHandlers(t, nil)
	h.web.connections = connections
	to := h.resolve("https://" + l.Addr().String())
	for i := range 20 {
		if o := h.run(context.Background(), to, newTestAttempt(`{}`)); showOutcome(o) != "ok 1" {
			t.Fatalf("step %d: got %s, %s", i, showOutcome(o), errorText(o))
		}
		<-ended
	}
	if n := delivered.Load(); n != 20 {
		t.Errorf("%d deliveries of 20 attempts", n)
	}
}
