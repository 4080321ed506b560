package main

// The connections to HTTP handlers.

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strings"
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

// sending is one request on its way.
type sending struct {
	begin   func() bool  // see attempt; nil once it was called
	refused bool         // it said no
	got     bool         // there was a connection
	kept    *countedConn // it was used before
	written int64        // to it, at that time
	ended   bool         // it had ended
}

// errNotBegun is the error for a request that begin did not allow.
var errNotBegun = errors.New("the attempt was not begun")

// unsentError is the error for a request of which nothing was sent, because there was no connection.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// RoundTrip sends a request. If a kept connection has ended and took not a byte of it, the request goes to a new one. If
// nothing was sent for want of a connection, the error is an unsentError.
func (t *handlerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, s := req.Context(), &sending{}
	s.begin, _ = ctx.Value(beginKey{}).(func() bool)
	resp, err := t.once(ctx, s, req, req.Body)
	if err == nil || s.kept == nil || !s.ended && s.kept.written.Load() != s.written || req.GetBody == nil || ctx.Err() != nil {
		return resp, s.named(err)
	}
	t.CloseIdleConnections() // which may have ended, too
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	s.got = false
	resp, err = t.once(ctx, s, req, body)
	return resp, s.named(err)
}

// once sends a request that Transport cannot repeat.
func (t *handlerTransport) once(ctx context.Context, s *sending, req *http.Request, body io.ReadCloser) (*http.Response, error) {
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: s.connected}))
	req.Body, req.GetBody = body, nil
	return t.Transport.RoundTrip(req)
}

// connected is called with the connection that a request is about to go out on. Closing it keeps the request back.
func (s *sending) connected(i httptrace.GotConnInfo) {
	s.got = true
	if c := countedOf(i.Conn); c != nil && i.Reused {
		s.kept, s.written, s.ended = c, c.written.Load(), !c.isQuiet()
		if s.ended { // Transport may not have seen that yet
			i.Conn.Close()
			return
		}
	}
	if s.begin != nil {
		s.refused = !s.begin()
		s.begin = nil
	}
	if s.refused {
		s.kept = nil
		i.Conn.Close()
	}
}

// named makes an error say whether anything was sent.
func (s *sending) named(err error) error {
	switch {
	case s.refused:
		return errNotBegun
	case err != nil && !s.got:
		return unsentError{err}
	}
	return err
}

// dialError is the error of a connection that could not be made, to the handler or its proxy.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// newHandlerTransport returns connections for at most concurrency parallel requests, all of which may go to one host.
// They go through the proxy; nil means no proxy.
func newHandlerTransport(concurrency int, proxy *url.URL) *handlerTransport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, network, address)
			if err != nil {
				return nil, dialError{err}
			}
			return &countedConn{Conn: conn}, nil
		},
		TLSHandshakeTimeout:    dialPatience,
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

// Addresses of HTTP handlers that do not listen: which errors say so, and the probe that finds out when they listen.

// dialPatience is how long an address may take to accept a connection, and as long for its TLS handshake.
const dialPatience = 5 * time.Second

// connectPatience is how long everything before a request may take: also an answer of a proxy. It is longer than the limits
// of its parts, which say more.
const connectPatience = 3 * dialPatience

// errConnecting ends that.
var errConnecting = errors.New("no connection in time")

// listener is where somebody must listen before a request to a handler can be sent: at the handler or, if there is one, at
// the proxy.
type listener struct {
	tls     bool
	address string // host and port
}

func (c *httpCaller) listenerOf(u *url.URL) listener {
	if c.proxy != nil {
		u = c.proxy
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443", "socks5": "1080"}[u.Scheme])
	return listener{u.Scheme == "https", net.JoinHostPort(u.Hostname(), port)}
}

// probe connects to a listener without a request. It returns why that is not possible.
func (l listener) probe(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 2*dialPatience)
	defer stop()
	conn, err := (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, "tcp", l.address)
	if err == nil && l.tls {
		host, _, _ := net.SplitHostPort(l.address)
		err = tls.Client(conn, &tls.Config{ServerName: host}).HandshakeContext(ctx)
	}
	if conn != nil {
		conn.Close()
	}
	if err == nil || !notListening(err) { // with another error, the attempts of its steps fail
		return nil
	}
	return err
}

// possibleHost matches names that a host can have. RFC 6761, 6.4 reserves names that end in .invalid: they never resolve.
var possibleHost = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?$`)

// notListening reports whether an error of connecting says that nobody listens there now. Errors that time does not fix,
// as of a certificate or for a name that no host can have, do not.
func notListening(err error) bool {
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		name := strings.TrimSuffix(d.Name, ".")
		return len(name) <= 253 && possibleHost.MatchString(name) && name != "invalid" && !strings.HasSuffix(name, ".invalid")
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return true
	}
	says := func(e error) bool { return errors.Is(err, e) }
	return slices.ContainsFunc(errsUnreachable, says) || says(io.EOF) || says(io.ErrUnexpectedEOF) // in a handshake
}
