package main

// The connections to HTTP handlers.

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxReplyHeader = 64 << 10    // bytes
	keptIdle       = time.Second // handlers also close idle connections, and a request on its way then may be lost
)

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

// countedOf returns the connection below TLS; nil if it is not counted.
func countedOf(c net.Conn) *countedConn {
	for {
		switch inner := c.(type) {
		case *countedConn:
			return inner
		case *tls.Conn:
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

// newHandlerTransport returns connections for at most concurrency parallel requests, all of which may go to one host.
// They go through the proxy; nil means no proxy.
func newHandlerTransport(concurrency int, proxy *url.URL) *handlerTransport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, address)
			return &countedConn{Conn: conn}, err
		},
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        keptIdle,
		MaxIdleConns:           max(concurrency, 1),
		MaxIdleConnsPerHost:    max(concurrency, 1),
		MaxResponseHeaderBytes: maxReplyHeader,
		DisableCompression:     true,
		Protocols:              new(http.Protocols), // HTTP/1.1, one request at a time on each connection
	}
	t.Protocols.SetHTTP1(true)
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	return &handlerTransport{t}
}
