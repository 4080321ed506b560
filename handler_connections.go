package main

// The connections to HTTP handlers.

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Connections without TLS. The goroutine of an attempt writes its request and reads the reply
// itself, which takes less processor time than http.Transport, where goroutines of the connection
// do so.

const (
	maxReplyHeader = 64 << 10 // bytes
	keptText       = 64 << 10 // bytes; a larger buffer is not reused
	keptIdle       = 90 * time.Second
	justUsed       = 10 * time.Millisecond // a connection idle for less is used without a check that it is still open
)

// newHandlerTransport keeps enough connections for all parallel calls to go to one
// host.
func newHandlerTransport(concurrency int, proxy *url.URL) *http.Transport {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        keptIdle,
		MaxIdleConns:           max(concurrency, 1),
		MaxIdleConnsPerHost:    max(concurrency, 1),
		MaxResponseHeaderBytes: maxReplyHeader,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	return t
}

// plainConnections are connections that wait for their next request, the longest waiting first.
type plainConnections struct {
	size int

	mu     sync.Mutex
	idle   []*plainConnection // guarded by mu, as all below
	prunes bool               // prune is going to run
}

// plainConnection is used by one attempt at a time.
type plainConnection struct {
	net.Conn
	address string
	r       *bufio.Reader
	left    int64   // bytes that may still be read
	known   bool    // it was idle before
	since   instant // when it became idle
	all     *plainConnections
}

var requestTexts = sync.Pool{New: func() any { return new(requestText) }}

// fill writes the request of an attempt after a head.
func (r *requestText) fill(head []byte, a *attempt) {
	if cap(r.whole) > keptText {
		*r = requestText{}
	}
	r.body = a.envelope(r.body[:0])
	r.whole = append(r.whole[:0], head...)
	a.eachOwn(func(name, value string) {
		r.whole = append(append(append(append(r.whole, name...), ": "...), value...), "\r\n"...)
	})
	r.whole = strconv.AppendInt(append(r.whole, "Content-Length: "...), int64(len(r.body)), 10)
	r.whole = append(append(r.whole, "\r\n\r\n"...), r.body...)
}

// take returns a connection to an address that is idle, or a new one.
func (p *plainConnections) take(address string, dial func() (net.Conn, error)) (*plainConnection, error) {
	for c := p.takeIdle(address); c != nil; c = p.takeIdle(address) {
		if realNow().sub(c.since) < justUsed || isQuiet(c.Conn) {
			return c, nil
		}
		c.Close()
	}
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	c := &plainConnection{Conn: conn, address: address, all: p}
	c.r = bufio.NewReader(c)
	return c, nil
}

func (p *plainConnections) takeIdle(address string) *plainConnection {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range slices.Backward(p.idle) {
		if c.address == address {
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

// isQuiet reports whether nothing came on an idle connection, not even its end.
func isQuiet(conn net.Conn) (quiet bool) {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		quiet = err == syscall.EAGAIN
		return true
	})
	return quiet
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
func (c *plainConnection) exchange(ctx *attemptContext, req *http.Request, text []byte) (*http.Response, error) {
	c.left = maxReplyHeader
	stop := ctx.AfterFunc(func() { c.Close() })
	_, sent := c.Write(text)
	resp, err := c.reply(req) // even if it was given before all was sent
	if err != nil {
		stop()
		c.Close()
		return nil, cmp.Or(sent, err)
	}
	c.left = math.MaxInt64
	keep := sent == nil && !resp.Close && resp.StatusCode >= 200
	resp.Body = &plainBody{resp.Body, c, stop, keep, resp.Body == http.NoBody}
	return resp, nil
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
	keep  bool        // the connection can be kept
	ended bool        // all of it was read
}

func (b *plainBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Close keeps the connection if nothing more comes on it.
func (b *plainBody) Close() error {
	if b.stop() && b.keep && b.ended && b.conn.r.Buffered() == 0 {
		b.conn.all.give(b.conn)
		return nil
	}
	return b.conn.Close()
}
