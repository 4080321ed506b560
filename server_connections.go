package main

// Listeners and their connections: how many there may be, and which of them are closed for new ones.

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits on slow clients.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 60 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 14 << 10 // net/http accepts 4 KiB more
)

// isLoopback reports whether only this machine reaches an address; pipes within the process count as well.
func isLoopback(address net.Addr) bool {
	a, ok := address.(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
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
		ConnState:         all.followState,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // about clients

		DisableGeneralOptionsHandler: true, // so that "OPTIONS *" is answered in the surface's form
	}}
}

// serve serves until the server is shut down.
func (h *httpServer) serve() error { return h.server.Serve(h.listener) }

// Connections: their number is limited for all listeners of a process together. At the limit, and when the process runs
// out of file descriptors, the connection that has waited longest for a request is closed.

// connections are the open connections of a process.
type connections struct {
	places *quota
	log    *slog.Logger

	mu     sync.Mutex
	idle   list.List // those that wait for a request, the longest waiting first; guarded by mu, as all below
	warned time.Time // when the lack of file descriptors was logged last
}

// connection is one of them.
type connection struct {
	net.Conn
	all      *connections
	excess   bool // it was accepted while all others were busy
	loopback bool // its listener has a local address, see isLoopback

	place *list.Element // in all.idle; nil while a request is served. Guarded by all.mu, as all below
	since instant       // when it began to wait
	left  bool          // it does not count any more
}

func newConnections(q *quotas, log *slog.Logger) *connections {
	return &connections{places: &q.connections, log: log}
}

// boundedListener accepts connections within the limit.
type boundedListener struct {
	net.Listener
	all *connections
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if outOfDescriptors(err) {
				l.all.warnOfFiles(err)
				l.all.closeIdle(0)
			}
			return nil, err // net/http tries again, after a pause
		}
		if t, ok := c.(*net.TCPConn); ok {
			// Or the system holds megabytes for a slow client, which then seems to stand still while it reads them.
			t.SetWriteBuffer(2 * jsonPiece)
		}
		if n := l.all.admit(c); n != nil {
			n.loopback = isLoopback(l.Addr())
			return n, nil
		}
		c.Close()
	}
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

// nextRequest is how long a client has to send a request before its connection is closed for a new one that could be
// refused instead.
const nextRequest = 100 * time.Millisecond

// admit adds a new connection. It returns nil if there is no place for it.
func (all *connections) admit(c net.Conn) *connection {
	n, q := &connection{Conn: c, all: all}, all.places
	// Requests on the last places are refused if all other connections are busy.
	last := min(q.most/64+1, q.most/2)
	switch used := q.used.Add(1); {
	case used <= q.most-last:
	case all.closeIdle(pick(used > q.most, 0, nextRequest)):
	case used > q.most:
		q.refuse("")
		q.give(1)
		return nil
	default:
		n.excess = true
	}
	all.waits(n)
	return n
}

// closeIdle closes the connection that has waited longest for a request, unless that is less than a time. It reports
// whether it did.
func (all *connections) closeIdle(least time.Duration) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	first := all.idle.Front()
	if first == nil {
		return false
	}
	c := first.Value.(*connection)
	if realNow().sub(c.since) < least {
		return false
	}
	all.leaveLocked(c)
	c.Close()
	return true
}

func (all *connections) followState(c net.Conn, state http.ConnState) {
	n := c.(*connection)
	switch state {
	case http.StateActive:
		all.mu.Lock()
		defer all.mu.Unlock()
		all.workLocked(n)
	case http.StateIdle:
		all.waits(n)
	case http.StateClosed, http.StateHijacked:
		all.mu.Lock()
		defer all.mu.Unlock()
		all.leaveLocked(n)
	}
}

// waits notes that a connection waits for a request, unless it was closed for another one.
func (all *connections) waits(c *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if !c.left {
		c.since, c.place = realNow(), all.idle.PushBack(c)
	}
}

// workLocked notes that a connection does not wait for a request.
func (all *connections) workLocked(c *connection) {
	if c.place != nil {
		all.idle.Remove(c.place)
		c.place = nil
	}
}

// leaveLocked drops a connection, unless that was done before.
func (all *connections) leaveLocked(c *connection) {
	if all.workLocked(c); !c.left {
		c.left = true
		all.places.give(1)
	}
}

// refusal returns why its requests are refused except for public routes, or nil.
func (c *connection) refusal() error {
	if !c.excess {
		return nil
	}
	return c.all.places.refuse("all %d connections that web.max_connections allows are busy", c.all.places.most)
}

// connectionKey is the key of its connection in the context of a request.
type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// connectionOf returns the connection of a request, or for a request without one, as tests make them, a connection alone.
func connectionOf(r *http.Request) *connection {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		return c
	}
	return &connection{}
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
