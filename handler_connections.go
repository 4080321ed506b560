package main

// The connections to HTTP handlers.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	maxReplyHeader = 64 << 10              // bytes
	keptIdle       = time.Second           // handlers also close idle connections, and a request on its way then may be lost
	sentAtOnce     = 16 << 10              // bytes; a longer request is sent while its reply is read
	maxSentAfter   = 50 * time.Millisecond // how long the end of a request may take after its reply has ended
)

// newHandlerConnections returns connections for at most concurrency parallel requests. They go through the proxy; nil
// means no proxy.
func newHandlerConnections(concurrency int, proxy *url.URL) http.RoundTripper {
	t := newHandlerTransport(concurrency, proxy)
	if proxy != nil {
		return t
	}
	return &plainConnections{size: max(concurrency, 1), dial: dialHandler, others: t}
}

// dialHandler connects to a handler or its proxy.
func dialHandler(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, address)
}

// countedConn counts the bytes that were written to a connection.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// isQuiet reports whether nothing has come on a connection, not even its end. Somebody may be reading from it.
func (c *countedConn) isQuiet() bool {
	quiet := true
	if s, ok := c.Conn.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { _, quiet = peekSocket(fd, make([]byte, 1)) })
		}
	}
	return quiet
}

// countedOf returns the connection below TLS; nil if it is not counted, or requests share it, as in HTTP/2.
func countedOf(c net.Conn) *countedConn {
	for {
		switch inner := c.(type) {
		case *countedConn:
			return inner
		case *tls.Conn:
			if inner.ConnectionState().NegotiatedProtocol == "h2" {
				return nil
			}
			c = inner.NetConn()
		default:
			return nil
		}
	}
}

// handlerTransport is net/http's Transport, except that it never sends a request twice. Transport does so when a kept
// connection ends before the reply, although the handler may have got the request.
type handlerTransport struct{ *http.Transport }

// RoundTrip sends a request. If a kept connection has ended and took not a byte of it, the request goes to a new one.
func (t *handlerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var kept *countedConn
	var written int64
	ended := false
	got := func(i httptrace.GotConnInfo) {
		if c := countedOf(i.Conn); c != nil && i.Reused {
			kept, written, ended = c, c.written.Load(), !c.isQuiet()
		}
		if ended { // Transport may not have seen that yet
			i.Conn.Close()
		}
	}
	ctx := req.Context()
	resp, err := t.once(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: got}), req, req.Body)
	if err == nil || kept == nil || !ended && kept.written.Load() != written || req.GetBody == nil || ctx.Err() != nil {
		return resp, err
	}
	t.CloseIdleConnections() // which may have ended, too
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	return t.once(ctx, req, body)
}

// once sends a request that Transport cannot repeat.
func (t *handlerTransport) once(ctx context.Context, req *http.Request, body io.ReadCloser) (*http.Response, error) {
	req = req.WithContext(ctx)
	req.Body, req.GetBody = body, nil
	return t.Transport.RoundTrip(req)
}

// newHandlerTransport keeps enough connections for all parallel calls to go to one
// host.
func newHandlerTransport(concurrency int, proxy *url.URL) *handlerTransport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialHandler(ctx, network, address)
			return &countedConn{Conn: conn}, err
		},
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        keptIdle,
		MaxIdleConns:           max(concurrency, 1),
		MaxIdleConnsPerHost:    max(concurrency, 1),
		MaxResponseHeaderBytes: maxReplyHeader,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
	}
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	return &handlerTransport{t}
}

// plainConnections makes requests without TLS. The goroutine of an attempt writes its request and
// reads the reply itself, which takes less processor time than http.Transport, where goroutines of
// the connection do so. It leaves other requests to net/http.
type plainConnections struct {
	size   int // how many may be idle
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	others http.RoundTripper

	mu     sync.Mutex
	idle   []*plainConnection // the longest waiting first; guarded by mu, as all below
	prunes bool               // prune is going to run
}

// plainConnection is used by one attempt at a time.
type plainConnection struct {
	*countedConn
	raw   syscall.RawConn // nil if the system has none
	host  string          // of the URL
	r     *bufio.Reader
	left  int64   // bytes that may still be read
	known bool    // it was idle before
	since instant // when it became idle
	all   *plainConnections

	look  func(fd uintptr) bool // for isQuiet, which allocates nothing, as all below
	quiet bool                  // nothing has arrived
	ahead [1]byte
	early int // bytes in ahead
}

var requestTexts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// RoundTrip sends a request, and returns the reply as soon as its header has come, even if it comes
// before all of the request was sent. Closing the reply's body gives the connection back. The end of
// the request's context ends both.
func (p *plainConnections) RoundTrip(req *http.Request) (*http.Response, error) {
	odd := func(r rune) bool { return r >= utf8.RuneSelf || r == '%' } // in a host that net/http rewrites
	if req.URL.Scheme != "http" || req.ContentLength <= 0 || strings.ContainsFunc(req.Host, odd) {
		return p.others.RoundTrip(req)
	}
	ctx := req.Context()
	text := requestTexts.Get().(*bytes.Buffer)
	defer func() {
		if text.Len() <= sentAtOnce { // else it may still be read, and is large
			requestTexts.Put(text)
		}
	}()
	text.Reset()
	if err := writeRequest(text, req); err != nil {
		return nil, err
	}
	conn, err := p.take(ctx, req.URL)
	if err != nil {
		return nil, err
	}
	resp, err := conn.exchange(ctx, req, text.Bytes())
	if err == nil || !conn.known || conn.written.Load() > 0 || ctx.Err() != nil {
		return resp, err
	}
	// The handler has closed the kept connection and got nothing of the request, so this is no second delivery.
	if conn, err = p.connect(ctx, req.URL); err != nil {
		return nil, err
	}
	return conn.exchange(ctx, req, text.Bytes())
}

// writeRequest writes a request with a body as req.Write does, with half of the allocations.
func writeRequest(text *bytes.Buffer, req *http.Request) error {
	defer req.Body.Close()
	fmt.Fprintf(text, "%s %s HTTP/1.1\r\nHost: %s\r\n", req.Method, req.URL.RequestURI(), req.Host)
	req.Header.Write(text)
	fmt.Fprintf(text, "Content-Length: %d\r\n\r\n", req.ContentLength)
	_, err := text.ReadFrom(req.Body)
	return err
}

// take returns a connection to a URL's host that is idle, or a new one. What comes on a connection before a
// request answers none, so it ends the connection (RFC 9112, 9.2).
func (p *plainConnections) take(ctx context.Context, to *url.URL) (*plainConnection, error) {
	for c := p.takeIdle(to.Host); c != nil; c = p.takeIdle(to.Host) {
		if c.isQuiet() {
			return c, nil
		}
		c.Close()
	}
	return p.connect(ctx, to)
}

// connect makes a connection to a URL's host.
func (p *plainConnections) connect(ctx context.Context, to *url.URL) (*plainConnection, error) {
	conn, err := p.dial(ctx, "tcp", net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "80")))
	if err != nil {
		return nil, err
	}
	c := p.open(conn, to.Host)
	if !c.isQuiet() && c.early > 0 { // the end of a connection has its own error
		c.Close()
		return nil, errors.New("the handler replied before the request was sent")
	}
	return c, nil
}

// open returns a connection to a host that was just made.
func (p *plainConnections) open(conn net.Conn, host string) *plainConnection {
	c := &plainConnection{countedConn: &countedConn{Conn: conn}, host: host, all: p}
	c.r = bufio.NewReader(c)
	if s, ok := conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	c.look = func(fd uintptr) bool {
		c.early, c.quiet = peekSocket(fd, c.ahead[:])
		return true
	}
	return c
}

func (p *plainConnections) takeIdle(host string) *plainConnection {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The latest one first: the others grow old, and are closed when fewer are needed.
	for i, c := range slices.Backward(p.idle) {
		if c.host == host && realNow().sub(c.since) < keptIdle {
			p.idle = slices.Delete(p.idle, i, i+1)
			return c
		}
	}
	return nil
}

// give keeps a connection for the next request.
func (p *plainConnections) give(c *plainConnection) {
	c.known, c.since = true, realNow()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle = append(p.idle, c); len(p.idle) > p.size {
		p.dropLocked(1)
	}
	if !p.prunes {
		p.prunes = true
		afterReal(keptIdle, p.prune)
	}
}

// prune closes the connections that have been idle for too long.
func (p *plainConnections) prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	young := func(c *plainConnection) bool { return realNow().sub(c.since) < keptIdle }
	if n := slices.IndexFunc(p.idle, young); n >= 0 {
		p.dropLocked(n)
		afterReal(keptIdle, p.prune)
		return
	}
	p.dropLocked(len(p.idle))
	p.prunes = false
}

// dropLocked closes the n longest waiting connections.
func (p *plainConnections) dropLocked(n int) {
	for _, c := range p.idle[:n] {
		c.Close()
	}
	p.idle = slices.Delete(p.idle, 0, n)
}

// isQuiet reports whether nothing has come on a connection that nobody reads, not even its end.
func (c *plainConnection) isQuiet() bool {
	if c.raw == nil {
		return true
	}
	c.quiet = false
	return c.raw.Read(c.look) == nil && c.quiet
}

// Read reads as much as a reply may have now.
func (c *plainConnection) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the header of the reply is longer than %d bytes", maxReplyHeader)
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// exchange sends the text of a request, and returns the reply, whose body gives the connection back.
// The end of ctx ends both.
func (c *plainConnection) exchange(ctx context.Context, req *http.Request, text []byte) (*http.Response, error) {
	c.left = maxReplyHeader
	c.written.Store(0)
	stop := afterContext(ctx, func() { c.Close() })
	later, sent := c.send(text)
	resp, err := c.reply(req) // even if it was given before all was sent
	if err != nil {
		stop()
		c.Close()
		if later != nil {
			<-later // until the count is complete
		}
		return nil, cmp.Or(sent, err)
	}
	// Whoever reads the body has a limit of its own.
	c.left = math.MaxInt64
	keep := sent == nil && !resp.Close && resp.StatusCode >= 200
	resp.Body = &plainBody{resp.Body, c, stop, later, keep, resp.Body == http.NoBody}
	return resp, nil
}

// send sends the text of a request. A long one is on its way when it returns, and later receives how that ended:
// the handler may reply before it reads all, and may read no more before its reply is read.
func (c *plainConnection) send(text []byte) (later chan error, err error) {
	if len(text) <= sentAtOnce {
		_, err = c.Write(text)
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Write(text)
		ended <- err
	}()
	return ended, nil
}

// afterContext is context.AfterFunc, without what package context allocates for an attempt's context.
func afterContext(ctx context.Context, f func()) (stop func() bool) {
	if c, ok := ctx.(*attemptContext); ok {
		return c.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// reply reads the header of the reply, without the interim ones before it.
func (c *plainConnection) reply(req *http.Request) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(c.r, req)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
}

// plainBody is the body of a reply.
type plainBody struct {
	io.Reader
	conn  *plainConnection
	stop  func() bool // of the watch of the request's context
	later chan error  // see send
	keep  bool        // the connection can be kept
	ended bool        // all of it was read
}

func (b *plainBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Close keeps the connection if nothing more is read from it or written to it.
func (b *plainBody) Close() error {
	// stop comes first: if it reports false, the end of the context is already closing the connection.
	if b.stop() && b.keep && b.ended && b.sent() && b.conn.r.Buffered() == 0 && b.conn.isQuiet() {
		b.conn.all.give(b.conn)
		return nil
	}
	return b.conn.Close()
}

// sent reports whether the whole request was sent. What the handler has read may take a moment to be reported.
func (b *plainBody) sent() bool {
	if b.later == nil {
		return true
	}
	err, ok := receiveWithin(b.later, maxSentAfter)
	return ok && err == nil
}
