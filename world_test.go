package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A world from a seed: the whole service with its clients, handlers, outside actors, operators, followers and
// subscribers, in virtual time, on a disk that loses what was not synced. One seed chooses everything: what there is,
// what each participant does, in which order operations cross the boundary, when a life ends and how.
//
//	world_test.go         the run of a world: its plan, its lives, the command that repeats one; the boundary, where
//	                      operations are ordered: connections, the disk
//	world_actors_test.go  who takes part: clients, outside actors, operators, readers, handlers
//	world_model_test.go   what is checked after each life and at the end; what clients saw of single steps, as a
//	                      linearizable history
//
// What a seed does not choose: which of several goroutines that one operation woke runs first, and the choice of a
// select that has several ready cases. So a world that failed may pass when it runs again.

var (
	worldSeed    = flag.Uint64("world.seed", 0, "the world of TestWorld to run, three times; 0 for several")
	worldFirst   = flag.Uint64("world.first", 1, "the first of several worlds")
	worldCount   = flag.Int("world.count", pick(wire.RaceDetector(), 8, wire.Size(10, 200)), "how many worlds TestWorld runs; 20000 by hand")
	worldWithout = flag.String("world.without", "", "parts of the world to leave out, see worldParts, between commas")
	worldTrace   = flag.Bool("world.trace", false, "log what crosses the boundary")
)

// worldParts are what a world may have. Each can be left out to make a failing world smaller.
var worldParts = []string{
	"crash", "kill", "stop", "syncs", "writes", "hangs", "full", "torn", "operators", "followers", "subscribers",
	"handlers", "actors", "late", "keys", "cancels", "retention", "compactions", "growth", "checkpoints", "waits",
	"many", "imports",
}

// worldPlan is what the seed chooses before a world begins.
type worldPlan struct {
	seed    uint64
	parts   map[string]bool
	lives   int // that end early
	clients int
	tasks   int // of each client
	actors  int // that claim steps
	shapes  []string
	keep    int   // finished tasks; 0 for all
	keepAge int   // in hours
	floor   int64 // bytes of records, before a compaction is due
	sector  int   // what the disk writes in one go, in bytes
	pace    time.Duration
}

// worldChance returns the numbers for one purpose. Those for others stay the same when a part is left out.
func worldChance(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// planWorld makes the plan for a seed.
func planWorld(seed uint64) *worldPlan {
	r := worldChance(seed, "plan")
	p := &worldPlan{seed: seed, parts: map[string]bool{}, lives: 1 + r.IntN(4), clients: 1 + r.IntN(3),
		tasks: 1 + r.IntN(8), actors: 1 + r.IntN(3), keep: r.IntN(12), keepAge: r.IntN(72),
		floor: 4<<10 + r.Int64N(60<<10), sector: []int{512, 4096}[r.IntN(2)], pace: logTime(r, 100*time.Millisecond, 20*time.Minute)}
	for _, part := range worldParts {
		p.parts[part] = r.IntN(3) > 0 && !slices.Contains(strings.Split(*worldWithout, ","), part)
	}
	if !p.parts["retention"] {
		p.keep, p.keepAge = 0, 0
	}
	for n := range 1 + r.IntN(4) {
		p.shapes = append(p.shapes, worldShape(worldChance(seed, fmt.Sprint("shape", n)), fmt.Sprint("shape", n), p.parts))
	}
	return p
}

// logTime returns a time between two, as often below as above any factor between them.
func logTime(r *rand.Rand, least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), r.Float64()))
}

// TestWorld runs worlds, and prints the command that repeats one that fails.
func TestWorld(t *testing.T) {
	contracts() // not in a bubble
	first, count, times := *worldFirst, *worldCount, 1
	if *worldSeed != 0 {
		first, count, times = *worldSeed, 1, 3
	}
	for n := range count * times {
		seed := first + uint64(n/times)
		if faults := runWorld(t, seed); len(faults) > 0 {
			t.Errorf("world %d: %s\ngo test -run TestWorld -world.seed %d .", seed, strings.Join(faults, "\n"), seed)
		}
	}
}

// worldRun is one run of a world.
type worldRun struct {
	testing.TB // of the bubble; what checks report goes to faults
	plan       *worldPlan
	files      *registry
	bus        worldBus
	chance     *rand.Rand // of the scheduler
	began      time.Time
	actors     sync.WaitGroup
	looks      int // at what has settled
	model      worldModel

	mu       sync.Mutex
	faults   []string
	life     *worldLife    // the present one
	opened   chan struct{} // closed when a service is open
	calm     bool          // everybody helps tasks to end, and nothing fails any more
	closing  chan struct{} // closed when all tasks have ended
	cleanups []func()
}

// Errorf notes what is wrong.
func (w *worldRun) Errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) < 8 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

func (w *worldRun) Error(args ...any) { w.Errorf("%s", fmt.Sprint(args...)) }

func (w *worldRun) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (w *worldRun) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (w *worldRun) Helper() {}

// Cleanup has a function called when the world ends.
func (w *worldRun) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }

// runWorld runs a world in a bubble, and returns what was wrong.
func runWorld(t *testing.T, seed uint64) (faults []string) {
	synctest.Test(t, func(t *testing.T) {
		w := &worldRun{TB: t, plan: planWorld(seed), chance: worldChance(seed, "scheduler"), began: time.Now(),
			opened: make(chan struct{}), closing: make(chan struct{})}
		w.bus.arrived = make(chan struct{}, 1)
		w.model.init(w)
		w.run()
		for _, f := range slices.Backward(w.cleanups) {
			f()
		}
		if faults = w.faults; *worldTrace {
			t.Logf("the log of the service:\n%s", &w.model.log)
		}
	})
	return faults
}

// part reports whether the world has a part now.
func (w *worldRun) part(name string) bool { return w.plan.parts[name] }

func (w *worldRun) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// run plays the lives of the service, one after the other.
func (w *worldRun) run() {
	cfg := testConfig(w, serviceTest{dir: "/data"})
	_, w.files = loadCommonWork(w, cfg, slog.New(slog.DiscardHandler))
	for _, text := range w.plan.shapes {
		tpl, problems, _ := parseTemplate("world", []byte(text), "json", "", nil)
		if len(problems) > 0 {
			w.Fatal(problems, text)
		}
		w.files = w.files.with(tpl)
	}
	w.startActors()
	disk := newMemDisk()
	for n := 0; ; n++ {
		last := n >= w.plan.lives
		l := w.newLife(disk, n, last)
		if disk = w.live(l); last && l.clean || w.failed() {
			break
		}
	}
	w.end(disk)
	w.actors.Wait()
}

// failed reports whether something is wrong: what follows would only repeat it.
func (w *worldRun) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.faults) > 0
}

// worldLife is one life of the service.
type worldLife struct {
	w    *worldRun
	n    int
	last bool // it ends when all tasks have
	mem  *memDisk
	svc  *service // nil until it is open
	err  error    // why it did not open

	crossings int64         // after which it ends
	until     time.Time     // when it ends
	dead      atomic.Bool   // the machine is off, or the process was killed
	hurt      atomic.Bool   // an operation of the disk failed: what is not on disk may be lost
	ready     chan struct{} // closed when it is open, or has failed to open
	listener  *worldListener
	clean     bool          // it ended as a service should
	served    chan struct{} // closed when the server has ended
	cleanups  []func()
}

func (w *worldRun) newLife(disk *memDisk, n int, last bool) *worldLife {
	r := worldChance(w.plan.seed, fmt.Sprint("life", n))
	l := &worldLife{w: w, n: n, last: last, mem: disk, ready: make(chan struct{}), served: make(chan struct{}),
		crossings: int64(math.Pow(10, r.Float64()*3.5)), until: time.Now().Add(logTime(r, time.Second, 4*time.Hour))}
	l.listener = newWorldListener(l)
	if w.part("full") && r.IntN(3) == 0 && !last {
		disk.setCapacity(disk.used() + r.Int64N(20<<20))
	} else {
		disk.setCapacity(0)
	}
	return l
}

// options returns what the service of a life is opened with.
func (l *worldLife) options() serviceOptions {
	w := l.w
	o := serviceTest{dir: "/data", disk: &worldDisk{l.mem, l}, log: &l.w.model.log, config: func(c *Config) {
		c.Store.RetainFinishedCount, c.Store.RetainFinishedAgeHours = w.plan.keep, w.plan.keepAge
		if w.part("subscribers") {
			for _, s := range []subscriberConfig{{Name: "shop", Events: []string{"*"}}, {Name: "one", Events: []string{"world.b"}}} {
				s.URL, s.Secret, s.MaxAttempts, s.TimeoutSeconds = "http://"+s.Name+"/", testSecret, 50, 20
				c.Events.Subscribers = append(c.Events.Subscribers, s)
			}
		}
	}}
	cfg := testConfig(w, o)
	log := slog.New(&failingHandler{t: w, out: o.log})
	handlers := newHandlerSet(&cfg.Worker, version, func(string) string { return "" })
	handlers.web.connections.(*handlerTransport).DialContext = l.dialHandler
	c := newRealClock()
	auth := must(newAuthenticators(cfg, &provenance{}, c, log))(w)
	l.cleanups = append(l.cleanups, c.stop, auth.close)
	return serviceOptions{cfg: cfg, log: log, auth: auth, clock: c, files: o.files(w.files), handlers: handlers, disk: o.disk,
		deterministic: fmt.Sprint("world ", w.plan.seed)}
}

// open opens the service and serves it.
func (l *worldLife) open() {
	defer close(l.ready)
	svc, err := openService(l.options())
	if err != nil {
		l.err = err
		close(l.served)
		return
	}
	svc.store.locked(func() {
		if l.w.part("compactions") {
			svc.store.journal.o.floor = l.w.plan.floor
		}
	})
	l.svc = svc
	server := newHTTPServer(l.listener, newOrchestrationAPI(svc, nil), newConnections(svc.quotas, svc.log), svc.log)
	go func() {
		server.serve()
		close(l.served)
	}()
	l.cleanups = append(l.cleanups, func() { server.server.Close() })
}

// live plays one life, and returns the disk that the next one finds.
func (w *worldRun) live(l *worldLife) *memDisk {
	w.mu.Lock()
	w.life = l
	w.mu.Unlock()
	go l.open()
	w.schedule(l, func() bool { return isClosed(l.ready) || l.over() })
	if isClosed(l.ready) && l.svc != nil {
		w.model.began(l)
		w.mu.Lock()
		close(w.opened)
		w.mu.Unlock()
		w.schedule(l, func() bool { return l.over() || w.failed() })
	}
	if l.svc == nil && isClosed(l.ready) && !l.hurt.Load() && !l.dead.Load() {
		w.Errorf("life %d does not start: %v", l.n, l.err)
	}
	return l.end()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// over reports whether the life is to end now.
func (l *worldLife) over() bool {
	if l.last {
		return isClosed(l.w.closing)
	}
	return l.crossings <= 0 || !time.Now().Before(l.until)
}

// end ends a life in one of several ways, and returns the disk that the next one finds.
func (l *worldLife) end() (next *memDisk) {
	w := l.w
	w.mu.Lock()
	if isClosed(w.opened) {
		w.opened = make(chan struct{})
	}
	w.mu.Unlock()
	how := w.chance.IntN(6)
	open := l.svc != nil
	if open {
		w.model.ended(l)
	}
	switch {
	case open && (l.last || how == 0 && w.part("stop")):
		w.stopClean(l)
		if next = l.mem.restart(); !l.last && w.part("imports") && w.chance.IntN(2) == 0 {
			next = w.imported(next)
		}
		return next
	case how < 3 && w.part("kill"):
		next = l.mem.restart()
	case w.part("crash"):
		next = l.mem.crashAny(w.keepMoves(), w.tear)
	default:
		next = l.mem.restart()
	}
	l.dead.Store(true)
	w.bus.release(l)
	w.stop(l)
	return next
}

// keepMoves chooses which changes of names that were not synced a crash keeps: none, all, the first, or any.
func (w *worldRun) keepMoves() func() bool {
	mode, keeps := w.chance.IntN(4), true
	return func() bool {
		chosen := w.chance.IntN(2) == 0
		keeps = keeps && chosen
		return [4]bool{false, true, keeps, chosen}[mode]
	}
}

// tear makes the data of a file after a crash: each sector is as it was synced, or as it was written last.
func (w *worldRun) tear(kept, data []byte) []byte {
	size := len(kept)
	if w.chance.IntN(2) == 0 {
		size = len(data)
	}
	mode := w.chance.IntN(4) // nothing, everything, or any of the sectors
	out := make([]byte, size)
	for at := 0; at < size; at += w.plan.sector {
		from := kept
		if mode == 1 || mode > 1 && w.chance.IntN(2) == 0 {
			from = data
		}
		if at < len(from) {
			copy(out[at:min(at+w.plan.sector, size)], from[at:])
		}
	}
	return out
}

// stopClean stops a service as a signal does.
func (w *worldRun) stopClean(l *worldLife) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.shutDown(10 * time.Second)
	}()
	w.schedule(l, func() bool { return isClosed(done) })
	l.clean = true
	l.dead.Store(true)
	w.bus.release(l)
}

// stop ends what is left of a dead life.
func (w *worldRun) stop(l *worldLife) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-l.ready
		l.shutDown(0)
	}()
	w.schedule(l, func() bool { return isClosed(done) })
}

func (l *worldLife) shutDown(patience time.Duration) {
	l.listener.shut()
	if l.svc != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l.svc.finish(ctx)
		if !l.dead.Load() {
			l.w.model.stopped(l)
		}
		if err := l.svc.close(); err != nil && !l.dead.Load() && !l.hurt.Load() {
			l.w.Errorf("life %d does not end: %v", l.n, err)
		}
	}
	for _, f := range l.cleanups {
		f()
	}
	<-l.served
	l.listener.tearAll()
}

// end looks at what the last life left, with a service that opens it once more.
func (w *worldRun) end(disk *memDisk) {
	if w.failed() {
		w.close()
		return
	}
	l := w.newLife(disk, w.plan.lives+100, true)
	w.mu.Lock()
	w.life = l
	w.mu.Unlock()
	go l.open()
	w.schedule(l, func() bool { return isClosed(l.ready) })
	if l.svc == nil {
		w.Errorf("the last life does not start: %v", l.err)
		w.close()
		return
	}
	w.model.began(l)
	w.model.end(l)
	w.stopClean(l)
}

// close lets all who take part go.
func (w *worldRun) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isClosed(w.closing) {
		close(w.closing)
	}
}

// The boundary of the service in a world: every operation that crosses it waits until the scheduler lets it continue.
// Connections and the disk are made of such operations.

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
		if w.looks++; w.looks%64 == 0 && isClosed(w.opened) {
			w.model.check(l)
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
