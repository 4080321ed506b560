package main

// Listeners and their connections: how many there may be, which of them give way to new ones,
// and the memory that headers take.

import (
	"container/list"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits on slow clients.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 60 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// listenTCP opens a listener. The system holds little for readers that take nothing.
func listenTCP(address string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return limitUnsent(conn, 2*jsonPiece)
	}}
	c.SetMultipathTCP(false) // or connections do not take over the limit
	return c.Listen(context.Background(), "tcp", address)
}

// httpServer serves a handler on an open listener.
type httpServer struct {
	listener net.Listener
	server   *http.Server
}

func newHTTPServer(l net.Listener, h http.Handler, all *connections, logger *slog.Logger) *httpServer {
	return &httpServer{&boundedListener{l, all}, &http.Server{
		Handler:           h,
		ConnContext:       withConnection,
		ConnState:         all.note,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(debugWriter{logger}, "", 0),

		DisableGeneralOptionsHandler: true, // so that "OPTIONS *" is answered in the surface's form
	}}
}

// serve serves until the server is shut down.
func (h *httpServer) serve() error { return h.server.Serve(h.listener) }

// debugWriter logs net/http's messages about clients at the level debug.
type debugWriter struct{ log *slog.Logger }

func (d debugWriter) Write(p []byte) (int, error) {
	d.log.Debug("http server", "message", strings.TrimSpace(string(p)))
	return len(p), nil
}

// Connections: the listeners of a process hold so many. At the limit, and when the process runs
// out of file descriptors, one that waits for its client is closed: for a request, or the rest of
// its header or body.

// connections are the open connections of a process.
type connections struct {
	quotas *quotas // more connections than the quota may be open for a moment, while all are busy
	log    *slog.Logger

	// line holds the connections in the order in which they are closed, from its end to known: after
	// strangers those that wait and were of no use yet, after known the others that wait, before it
	// those that are busy. Within each part the longest waiting is first. Guarded by mu, as all below.
	mu               sync.Mutex
	line             list.List
	known, strangers *list.Element // marks in line
	warned           time.Time     // of the lack of file descriptors
}

// connection is one of them.
type connection struct {
	net.Conn
	all    *connections
	place  *list.Element // in all.line
	excess bool          // it was accepted while all others were busy

	loopback bool // its listener has a loopback address

	// For the goroutine that serves it:
	known     bool  // a request on it was admitted and served
	inRequest bool  // the header was read
	read      int64 // bytes of the header

	header    atomic.Int64 // bytes that the header takes from the quota
	body      atomic.Int64 // bytes that the body takes from the quota
	bodySince atomic.Int64 // when it asked for them, an instant
}

func newConnections(q *quotas, log *slog.Logger) *connections {
	all := &connections{quotas: q, log: log}
	all.known, all.strangers = all.line.PushBack(nil), all.line.PushBack(nil)
	return all
}

// boundedListener accepts connections within the limit.
type boundedListener struct {
	net.Listener
	all *connections
}

func (l *boundedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.all.warnOfFiles(err)
			l.all.closeWaiting(anyConnection)
		}
		return nil, err // net/http tries again, after a pause
	}
	n := l.all.admit(c)
	a, ok := l.Addr().(*net.TCPAddr)
	n.loopback = ok && a.IP.IsLoopback()
	return n, nil
}

// filesWarnedEvery is the least time between two warnings of the lack of file descriptors.
const filesWarnedEvery = time.Hour

func (all *connections) warnOfFiles(err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if now := time.Now(); all.warned.IsZero() || now.Sub(all.warned) > filesWarnedEvery {
		all.warned = now
		all.log.Warn("out of file descriptors: connections that wait for their clients are closed to accept others; "+
			"allow more files (ulimit -n) or fewer connections (web.max_connections)", "error", err)
	}
}

// admit takes up a new connection.
func (all *connections) admit(c net.Conn) *connection {
	n := &connection{Conn: c, all: all}
	q := &all.quotas.connections
	n.excess = q.used.Add(1) > q.most && !all.closeWaiting(anyConnection)
	all.mu.Lock()
	defer all.mu.Unlock()
	n.place = all.line.PushBack(n)
	return n
}

// closeWaiting closes the first connection that waits for its client and fits. It reports
// whether there was one.
func (all *connections) closeWaiting(fits func(*connection) bool) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, e := range []*list.Element{all.strangers.Next(), all.known.Next()} {
		for ; e != nil && e.Value != nil; e = e.Next() { // to the next mark
			if c := e.Value.(*connection); fits(c) {
				all.leaveLocked(c)
				c.Close()
				return true
			}
		}
	}
	return false
}

func anyConnection(*connection) bool { return true }

// leaveLocked drops a connection, unless that was done before.
func (all *connections) leaveLocked(c *connection) {
	before := all.line.Len()
	if all.line.Remove(c.place); all.line.Len() < before {
		all.quotas.connections.give(1)
	}
}

// note follows the state of a connection.
func (all *connections) note(c net.Conn, state http.ConnState) {
	n := c.(*connection)
	switch state {
	case http.StateActive:
		n.inRequest = true
		n.waits(false)
	case http.StateIdle:
		n.inRequest, n.read = false, 0
		all.quotas.headers.regain(&n.header)
		n.waits(true)
	case http.StateClosed:
		all.quotas.headers.regain(&n.header)
		all.mu.Lock()
		defer all.mu.Unlock()
		all.leaveLocked(n)
	}
}

// waits notes whether the connection waits for its client.
func (c *connection) waits(client bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	switch {
	case !client:
		c.all.line.MoveBefore(c.place, c.all.known)
	case c.known:
		c.all.line.MoveBefore(c.place, c.all.strangers)
	default:
		c.all.line.MoveToBack(c.place)
	}
}

// headerFirst is how much of a header does not count, in bytes.
const headerFirst = 4 << 10

// Read takes memory for large headers, if need be that of connections that wait for the rest of
// theirs: they are closed.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.inRequest {
		return n, err
	}
	q := &c.all.quotas.headers
	if c.read += int64(n); c.read <= headerFirst {
		return n, err
	}
	for !q.take(int64(n)) {
		if !c.all.closeWaiting(func(o *connection) bool { return o != c && q.regain(&o.header) }) {
			q.refused.Add(1)
			return 0, io.EOF // which closes the connection
		}
	}
	c.header.Add(int64(n))
	return n, err
}

// CloseWrite is for net/http: a client that still sends can then read the answer.
func (c *connection) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// refusal returns why its requests are refused except for public routes, or nil.
func (c *connection) refusal() error {
	q := &c.all.quotas.connections
	if !c.excess || q.used.Load() <= q.most {
		return nil
	}
	f := q.refuse("all %d connections that web.max_connections allows are busy", q.most)
	f.kind = overloaded
	return f
}

// connectionKey is the key of its connection in the context of a request.
type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// connectionOf returns the connection of a request, or for a request without one, as
// tests make them, a connection alone.
func connectionOf(r *http.Request) *connection {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		return c
	}
	return newConnections(&quotas{connections: quota{most: 1}}, nil).admit(nil)
}

// url returns a URL that reaches the server from this machine.
func (h *httpServer) url() string { return reachableURL(h.listener.Addr().String()) }

// reachableURL returns a URL that reaches a listen address from this machine. For
// an address of all interfaces it uses loopback.
func reachableURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
