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
	"os"
	"runtime"
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

// listenTCP opens a listener. The system buffers little for clients that do not read.
func listenTCP(address string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return limitUnsent(conn, 2*jsonPiece)
	}}
	c.SetMultipathTCP(false) // or connections do not take over the limit
	return c.Listen(context.Background(), "tcp", address)
}

// unixPrefix begins the address of a socket in the file system.
const unixPrefix = "unix:"

// listenOn opens a listener on an address of TCP, or on unix:PATH. It replaces the socket of a process that has ended.
func listenOn(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		return listenTCP(address)
	}
	l, err := listenUnix(path)
	if !errors.Is(err, errAddressInUse) {
		return l, err
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, err
	}
	// Only a socket without a process refuses connections.
	if conn, dialErr := net.Dial("unix", path); !errors.Is(dialErr, errConnectionRefused) {
		if dialErr == nil {
			conn.Close()
		}
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return listenUnix(path)
}

// listenUnix opens a listener on a new socket to which only this user can connect.
func listenUnix(path string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return conn.Control(makePrivate)
	}}
	l, err := c.Listen(context.Background(), "unix", path)
	if err == nil {
		if err = os.Chmod(path, 0o600); err != nil {
			l.Close()
		}
	}
	return l, err
}

// isLocal reports whether only this machine reaches an address: loopback, or a socket in the file system.
func isLocal(address net.Addr) bool {
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

// Connections: their number is limited for all listeners of a process together. At the limit, and when the process runs
// out of file descriptors, a connection is closed that waits for a turn, for a request or the rest of its header or
// body, or for a client that does not read its answer.

// connections are the open connections of a process.
type connections struct {
	quotas *quotas
	log    *slog.Logger

	turns   [2]chan struct{} // hold a token for each turn that is taken, the second for health
	waiting atomic.Int64     // connections that wait for turns

	// line holds the connections in the order in which they are closed, from its end to known: after
	// behind those that wait for a turn, after strangers those that wait for their client and were of no
	// use yet, after known the others that wait for their client, before it those that are busy. Within
	// each part the longest waiting is first. Guarded by mu, as all below.
	mu                       sync.Mutex
	line                     list.List
	known, strangers, behind *list.Element // marks in line
	warned                   time.Time     // when the lack of file descriptors was logged last
}

// connection is one of them.
type connection struct {
	net.Conn
	all   *connections
	place *list.Element // in all.line
	since instant       // when it began to wait for its client; 0 if it waits for a turn. Guarded by all.mu
	kept  bool          // it waits for another request of its client; guarded by all.mu
	left  chan struct{} // closed when it leaves the line

	loopback bool // its listener has a local address, see isLocal

	// For the goroutine that serves it:
	excess    bool          // all others were busy when it was accepted
	known     bool          // a request on it was admitted and served
	inRequest bool          // the header was read
	read      int64         // bytes of the header
	filled    bool          // the latest read of a header filled the buffer
	more      bool          // it filled the buffer for the previous request, and no body emptied that
	follows   bool          // its request was sent before the previous one was answered
	turn      *time.Timer   // ends its turn; nil if it has none
	turnOf    chan struct{} // holds the token of its turn

	unread    atomic.Bool // its client may be sending what nobody reads any more
	answered  atomic.Bool // something was written since the latest request
	lingering atomic.Bool // net/http has closed it, and linger will

	writing atomic.Int64 // when the present write began, an instant; 0 for none

	header    atomic.Int64 // bytes that the header takes from the quota
	body      atomic.Int64 // bytes that the body takes from the quota
	bodySince atomic.Int64 // when it asked for them, an instant
}

func newConnections(q *quotas, log *slog.Logger) *connections {
	all := &connections{quotas: q, log: log}
	for i := range all.turns {
		all.turns[i] = make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1))
	}
	all.known, all.strangers, all.behind = all.line.PushBack(nil), all.line.PushBack(nil), all.line.PushBack(nil)
	return all
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
				l.all.closeWaiting(anyConnection)
			}
			return nil, err // net/http tries again, after a pause
		}
		if n := l.all.admit(c); n != nil {
			n.loopback = isLocal(l.Addr())
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

// admit adds a new connection. It returns nil if there is no place for it, even after a while.
func (all *connections) admit(c net.Conn) *connection {
	n := &connection{Conn: c, all: all, left: make(chan struct{})}
	q := &all.quotas.connections
	q.used.Add(1)
	for until := realNow().add(stalledAfter); all.crowded() && !all.closeLongest() && !all.closeStalled(); time.Sleep(time.Millisecond) {
		if n.excess = q.used.Load() <= q.most; n.excess {
			break
		}
		if realNow() >= until {
			q.give(1)
			return nil
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	n.since, n.place = realNow(), all.line.InsertBefore(n, all.behind)
	return n
}

// crowded reports whether there are more connections than those for all routes. A few are kept for public routes, so
// that they are answered while all others are busy.
func (all *connections) crowded() bool {
	q := &all.quotas.connections
	return q.used.Load() > q.most-min(q.most/64+1, q.most/2)
}

// nextRequest is how long a client has to send a request before its connection gives way to a new one.
const nextRequest = 100 * time.Millisecond

// closeLongest closes the first connection that waits, unless it has just begun to wait for its client. It reports
// whether it did.
func (all *connections) closeLongest() bool {
	now, first := realNow(), true
	return all.closeWaiting(func(c *connection) bool {
		long := first && now.sub(c.since) >= nextRequest
		first = false
		return long
	})
}

// closeStalled closes a connection whose client does not read its answer. It reports whether there was one.
func (all *connections) closeStalled() bool {
	now := realNow()
	return all.closeFirst(func(c *connection) bool {
		began := c.writing.Load()
		return began != 0 && now.sub(instant(began)) >= stalledAfter
	}, all.line.Front)
}

// closeWaiting closes the first connection that waits and fits. It reports whether there was one.
func (all *connections) closeWaiting(fits func(*connection) bool) bool {
	return all.closeFirst(fits, all.behind.Next, all.strangers.Next, all.known.Next)
}

func anyConnection(*connection) bool { return true }

// closeFirst closes the first connection that fits, in the parts of the line whose first elements the functions return.
// It reports whether there was one.
func (all *connections) closeFirst(fits func(*connection) bool, parts ...func() *list.Element) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, first := range parts {
		for e := first(); e != nil && e.Value != nil; e = e.Next() { // to the next mark
			if c := e.Value.(*connection); fits(c) {
				all.leaveLocked(c)
				c.closeKept()
				return true
			}
		}
	}
	return false
}

// givesWay answers a request that is on its way while its connection is closed for others.
const givesWay = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// closeKept closes a connection for others. Its client may be sending the next request: that is answered.
func (c *connection) closeKept() {
	if c.kept {
		c.SetWriteDeadline(time.Time{})
		writeAtOnce(c.Conn, givesWay)
	}
	c.Conn.Close()
}

// leaveLocked drops a connection, unless that was done before.
func (all *connections) leaveLocked(c *connection) {
	// Remove tells nothing about an element that is no longer in the list, so the length does.
	before := all.line.Len()
	if all.line.Remove(c.place); all.line.Len() < before {
		all.quotas.connections.give(1)
		close(c.left)
	}
}

// note follows the state of a connection.
func (all *connections) note(c net.Conn, state http.ConnState) {
	n := c.(*connection)
	switch state {
	case http.StateActive:
		n.inRequest = true
		n.unread.Store(true) // if net/http refuses the request itself
		n.answered.Store(false)
		n.follows, n.more = n.read == 0 || n.more, n.filled
		n.waits(false)
	case http.StateIdle:
		n.endTurn()
		n.inRequest, n.read = false, 0
		n.unread.Store(false)
		all.quotas.headers.regain(&n.header)
		n.waits(true)
	case http.StateClosed:
		n.endTurn()
		all.quotas.headers.regain(&n.header)
		if !n.lingering.Load() {
			all.leave(n)
		}
	}
}

func (all *connections) leave(c *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.leaveLocked(c)
}

// waits records whether the connection waits for its client.
func (c *connection) waits(client bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.since, c.kept = realNow(), client && c.known
	switch {
	case !client:
		c.all.line.MoveBefore(c.place, c.all.known)
	case c.known:
		c.all.line.MoveBefore(c.place, c.all.strangers)
	default:
		c.all.line.MoveBefore(c.place, c.all.behind)
	}
}

// giveWay lets the connection be closed for others, as if it waited for its client, while its request waits for somebody
// who verifies credentials. left is closed if it was; back ends the wait.
func (c *connection) giveWay() (left <-chan struct{}, back func()) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.since, c.kept = realNow(), false
	c.all.line.MoveBefore(c.place, c.all.strangers)
	return c.left, func() { c.waits(false) }
}

// Turns. A client can send requests without waiting for the answers (RFC 9112, 9.3.2). A request that was in the buffer
// of its connection before the previous one was answered waits for a turn, so that those of other clients come first:
// at most half of the processors have turns to serve, and the others soon notice what arrives. Health waits for other
// health only. At most a quarter of the connections may wait, because each of them holds a request and its buffers. If
// connections run short, those that wait are closed first.

// turnLimit is how long a turn lasts at most: a request that takes longer waits for something else than a processor.
const turnLimit = 100 * time.Millisecond

// takeTurn waits for a turn. It reports false if too many wait, or the connection was closed meanwhile.
func (c *connection) takeTurn(health bool) bool {
	turns := c.all.turns[pick(health, 1, 0)]
	select {
	case turns <- struct{}{}:
	default:
		if !c.awaitTurn(turns) {
			return false
		}
	}
	c.turn, c.turnOf = time.AfterFunc(turnLimit, func() { <-turns }), turns
	return true
}

func (c *connection) awaitTurn(turns chan struct{}) bool {
	all := c.all
	if n := all.waiting.Add(1); n > max(all.quotas.connections.most/4, 1) {
		all.waiting.Add(-1)
		return false
	}
	defer all.waiting.Add(-1)
	all.mu.Lock()
	c.since, c.kept = 0, false
	all.line.MoveToBack(c.place)
	all.mu.Unlock()
	select {
	case turns <- struct{}{}:
		c.waits(false)
		return true
	case <-c.left:
		return false
	}
}

// endTurn ends a turn, if the connection still has one.
func (c *connection) endTurn() {
	if c.turn != nil && c.turn.Stop() {
		<-c.turnOf
	}
	c.turn = nil
}

// headerFirst is how much of a header does not count, in bytes.
const headerFirst = 4 << 10

// Read takes memory for large headers, if need be that of connections that wait for the rest of
// theirs: they are closed.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.inRequest {
		if len(p) > 1 { // a body, while net/http reads ahead by one byte
			c.more = false
		}
		return n, err
	}
	c.filled = n == len(p)
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

// Write records when it began, for closeStalled, and that there is an answer that Close must not lose.
func (c *connection) Write(p []byte) (int, error) {
	c.writing.Store(int64(realNow()))
	defer c.writing.Store(0)
	c.answered.Store(true)
	return c.Conn.Write(p)
}

// The end of connections. Many clients read an answer only once they have sent their request, and lose it if the
// connection is closed before that. So a connection is closed in stages (RFC 9112, 9.6): only for writing at first, and
// completely when the client has closed it. What the client sends meanwhile is dropped, within limits.

const (
	lingerBytes = 16 << 20
	lingerTime  = 30 * time.Second
	lingerPause = 2 * time.Second // without a byte
)

// Close closes the connection, in stages if its client may still be sending.
func (c *connection) Close() error {
	if c.unread.Swap(false) && c.answered.Load() {
		c.CloseWrite()
	}
	if c.lingering.Load() {
		return nil
	}
	return c.Conn.Close()
}

// CloseWrite is for net/http, which waits before it closes some connections, but drops nothing meanwhile.
func (c *connection) CloseWrite() error {
	w, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	err := w.CloseWrite()
	if err == nil && !c.lingering.Swap(true) {
		go c.linger()
	}
	return err
}

// linger drops what the client sends until it has closed the connection, which still counts, and is among the first to
// be closed for others.
func (c *connection) linger() {
	defer c.all.leave(c)
	defer c.Conn.Close()
	c.all.mu.Lock()
	c.since, c.kept = realNow(), false
	c.all.line.MoveBefore(c.place, c.all.behind)
	c.all.mu.Unlock()
	piece, until := make([]byte, 8<<10), time.Now().Add(lingerTime)
	for left := lingerBytes; left > 0 && time.Now().Before(until); {
		c.Conn.SetReadDeadline(time.Now().Add(lingerPause))
		n, err := c.Conn.Read(piece)
		if err != nil {
			return
		}
		left -= n
	}
}

// refusal returns why its requests are refused except for public routes, or nil.
func (c *connection) refusal() error {
	q := &c.all.quotas.connections
	select {
	case <-c.left: // its client was told so
		c.excess = true
		return tryLater("the connection was closed for others")
	default:
	}
	if c.excess = c.excess && c.all.crowded() && !c.all.closeWaiting(anyConnection) && !c.all.closeStalled(); !c.excess {
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
func (h *httpServer) url() string {
	a := h.listener.Addr()
	return reachableURL(pick(a.Network() == "unix", unixPrefix, "") + a.String())
}

// reachableURL returns a URL that reaches a listen address from this machine. For
// an address of all interfaces it uses loopback. unix:PATH stays.
func reachableURL(address string) string {
	if strings.HasPrefix(address, unixPrefix) {
		return address
	}
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
