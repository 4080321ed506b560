package main

// The boundary of the service in a world: every operation that crosses it waits until the scheduler lets it continue.
// Connections and the disk are made of such operations.

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"
	"time"
)

// worldBus holds the operations that wait.
type worldBus struct {
	mu      sync.Mutex
	waiting []*worldOp
	arrived chan struct{} // holds a token after an operation came
	count   uint64        // operations so far: the order of everything at the boundary
}

// worldOp is an operation that crosses the boundary.
type worldOp struct {
	kind  string // "disk", "send", "serve", "act"
	what  string // which one, for the order of those that wait
	life  *worldLife
	seq   uint64
	until time.Time     // it does not continue before
	goes  chan struct{} // closed when it continues
	fault error         // it fails so
}

// pass waits until an operation may continue, and returns why it fails, or nil.
func (b *worldBus) pass(l *worldLife, kind, what string) error {
	op := &worldOp{kind: kind, what: what, life: l, goes: make(chan struct{})}
	b.mu.Lock()
	if l != nil && l.dead.Load() {
		b.mu.Unlock()
		return errDead
	}
	b.count++
	op.seq = b.count
	b.waiting = append(b.waiting, op)
	b.mu.Unlock()
	offerToken(b.arrived)
	<-op.goes
	if l != nil && l.dead.Load() {
		return errDead
	}
	return op.fault
}

// now returns the number of the present moment in the order of everything.
func (b *worldBus) now() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	return b.count
}

// release lets all operations of a dead life continue, to fail.
func (b *worldBus) release(l *worldLife) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(op *worldOp) bool {
		if op.life == l {
			close(op.goes)
		}
		return op.life == l
	})
}

// next lets an operation continue that may, and reports whether it did anything. Otherwise it returns when one may go
// on that waits; zero for none.
func (w *worldRun) next(l *worldLife) (did bool, at time.Time) {
	b := &w.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var free []*worldOp
	for _, o := range b.waiting {
		if !o.until.After(now) {
			free = append(free, o)
		} else if at.IsZero() || o.until.Before(at) {
			at = o.until
		}
	}
	if len(free) == 0 {
		return false, at
	}
	slices.SortStableFunc(free, func(x, y *worldOp) int { return cmp.Compare(x.kind+x.what, y.kind+y.what) })
	op := free[w.chance.IntN(len(free))]
	if op.until.IsZero() {
		if w.decide(op); !op.until.IsZero() {
			return true, at
		}
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(o *worldOp) bool { return o == op })
	l.crossings--
	w.figures.passed.Add(1)
	fmt.Fprintln(w.order, now.Sub(w.began), op.kind, op.what, op.fault)
	if *worldTrace {
		w.TB.Logf("%s %s %s %v", now.Sub(w.began), op.kind, op.what, cmp.Or(op.fault, nil))
	}
	close(op.goes)
	return true, at
}

// decide chooses what becomes of an operation: it may be late, or fail.
func (w *worldRun) decide(op *worldOp) {
	l, r := op.life, w.chance
	if w.isCalm() {
		return
	}
	switch chance := r.IntN(1000); {
	case op.kind == "disk":
		isSync := strings.HasPrefix(op.what, "sync")
		switch {
		case chance < 4 && w.part("hangs"):
			op.until = time.Now().Add(logTime(r, time.Millisecond, time.Minute))
		case !l.last && (chance < 6 && isSync && w.part("syncs") || chance < 5 && !isSync && w.part("writes")):
			op.fault = syscall.EIO
			w.hurt(l)
		}
	case chance < 15:
		op.until = time.Now().Add(logTime(r, time.Millisecond, 30*time.Second))
	case chance < 20 && w.part("torn"):
		op.fault = net.ErrClosed
	}
}

// hurt notes that an operation of a life's disk failed. What is not on disk then may be lost, and the life ends soon.
func (w *worldRun) hurt(l *worldLife) {
	w.figures.faults.Add(1)
	if l.hurt.Swap(true) {
		return
	}
	l.crossings = min(l.crossings, w.chance.Int64N(400))
	if until := time.Now().Add(logTime(w.chance, time.Second, time.Hour)); until.Before(l.until) {
		l.until = until
	}
}

// schedule lets one operation after the other cross the boundary, each when everything has settled, until a life is
// over in some way.
func (w *worldRun) schedule(l *worldLife, over func() bool) {
	for {
		synctest.Wait()
		if over() {
			return
		}
		did, at := w.next(l)
		if did {
			continue
		}
		wait := time.Hour
		if until := time.Until(l.until); until > 0 {
			wait = min(wait, until)
		}
		if !at.IsZero() {
			wait = min(wait, time.Until(at))
		}
		receiveWithin(w.bus.arrived, wait)
	}
}

// Connections.

// worldListener accepts the connections of one life.
type worldListener struct {
	life  *worldLife
	conns chan net.Conn
	done  chan struct{}

	mu   sync.Mutex
	open map[*worldConn]bool
	once sync.Once
}

func newWorldListener(l *worldLife) *worldListener {
	return &worldListener{life: l, conns: make(chan net.Conn), done: make(chan struct{}), open: map[*worldConn]bool{}}
}

func (l *worldListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *worldListener) Close() error {
	l.shut()
	return nil
}

func (l *worldListener) Addr() net.Addr { return &net.TCPAddr{} }

// shut accepts no more connections.
func (l *worldListener) shut() { l.once.Do(func() { close(l.done) }) }

// tearAll tears all connections of the life.
func (l *worldListener) tearAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.Conn.Close()
	}
}

// pipe returns both ends of a connection.
func (l *worldListener) pipe(name string) (near, far *worldConn) {
	a, b := net.Pipe()
	near, far = &worldConn{a, l, "send", name}, &worldConn{b, l, "serve", name}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[near], l.open[far] = true, true
	return near, far
}

// worldConn is an end of a connection. What is written crosses the boundary.
type worldConn struct {
	net.Conn
	l          *worldListener
	kind, name string
}

func (c *worldConn) Write(p []byte) (int, error) {
	if err := c.l.life.w.bus.pass(c.l.life, c.kind, c.name); err != nil {
		c.Conn.Close()
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *worldConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// dial connects to the service.
func (l *worldLife) dial(name string) (net.Conn, error) {
	near, far := l.listener.pipe(name)
	select {
	case l.listener.conns <- far:
		return near, nil
	case <-l.listener.done:
		return nil, net.ErrClosed
	}
}

// dialHandler connects the service to a handler or a subscriber.
func (l *worldLife) dialHandler(ctx context.Context, _, address string) (net.Conn, error) {
	if l.dead.Load() {
		return nil, errDead
	}
	near, far := l.listener.pipe(address)
	l.w.actors.Go(func() {
		defer far.Close()
		l.w.handle(l, address, bufio.NewReader(far), far)
	})
	return near, nil
}

// The disk.

// worldDisk is the disk of one life. All operations but reading an open file cross the boundary.
type worldDisk struct {
	*memDisk
	life *worldLife
}

// do lets an operation cross the boundary. One that fails may have happened all the same.
func (d *worldDisk) do(op, name string, work func() error) error {
	err := d.life.w.bus.pass(d.life, "disk", op+" "+filepath.Base(name))
	if err == nil {
		return work()
	}
	if !errors.Is(err, errDead) {
		switch chance := d.life.n + len(name); {
		case op == "sync":
			d.memDisk.fail(diskFault{op: op, file: filepath.Base(name), times: 1, err: err, clean: chance%3 == 0, after: chance%3 == 1})
			return work()
		case op == "write":
			d.memDisk.fail(diskFault{op: op, file: filepath.Base(name), times: 1, err: err, half: chance%2 == 0, after: chance%4 == 1})
			return work()
		case chance%2 == 0:
			work()
		}
	}
	return err
}

func (d *worldDisk) file(op, name string, open func(string) (diskFile, error)) (f diskFile, err error) {
	err = d.do(op, name, func() (err error) {
		f, err = open(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &worldFile{f, d, name}, nil
}

func (d *worldDisk) open(name string) (diskFile, error) { return d.file("open", name, d.memDisk.open) }
func (d *worldDisk) edit(name string) (diskFile, error) { return d.file("edit", name, d.memDisk.edit) }
func (d *worldDisk) create(name string) (diskFile, error) {
	return d.file("create", name, d.memDisk.create)
}

func (d *worldDisk) rename(from, to string) error {
	return d.do("rename", to, func() error { return d.memDisk.rename(from, to) })
}

func (d *worldDisk) remove(name string) error {
	return d.do("remove", name, func() error { return d.memDisk.remove(name) })
}

func (d *worldDisk) syncDir(dir string) error {
	return d.do("syncdir", dir, func() error { return d.memDisk.syncDir(dir) })
}

func (d *worldDisk) lock(name string) (dirLock, error) {
	l, err := d.memDisk.lock(name)
	if err != nil {
		return nil, err
	}
	return worldLock{l.(memLock), d}, nil
}

// worldLock is the lock of the directory.
type worldLock struct {
	memLock
	disk *worldDisk
}

func (l worldLock) syncDir() error { return l.disk.syncDir(l.dir) }

// worldFile is an open file.
type worldFile struct {
	diskFile
	disk *worldDisk
	name string
}

func (f *worldFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.disk.do("write", f.name, func() (err error) {
		n, err = f.diskFile.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f *worldFile) sync() error { return f.disk.do("sync", f.name, f.diskFile.sync) }

func (f *worldFile) truncate(size int64) error {
	return f.disk.do("truncate", f.name, func() error { return f.diskFile.truncate(size) })
}

func (f *worldFile) allocate(off, n int64) error {
	return f.disk.do("allocate", f.name, func() error { return f.diskFile.allocate(off, n) })
}

func (f *worldFile) Read(p []byte) (int, error) {
	if f.disk.life.dead.Load() {
		return 0, errDead
	}
	return f.diskFile.Read(p)
}

var _ io.Reader = (*worldFile)(nil)
