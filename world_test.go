package main

// A world from a seed: the whole service with its clients, handlers, outside actors, operators, followers and
// subscribers, in virtual time, on a disk that loses what was not synced. One seed chooses everything: what there is,
// what each participant does, in which order operations cross the boundary, when a life ends and how.
//
//	world_test.go         the run of a world: its plan, its lives, the command that repeats one
//	world_bus_test.go     the boundary: the order of operations, connections, the disk
//	world_actors_test.go  who takes part: clients, outside actors, operators, readers, handlers
//	world_many_test.go    who acts on many tasks at once
//	world_model_test.go   what is checked after each life and at the end
//	world_steps_test.go   what clients saw of single steps, as a linearizable history
//
// What a seed does not choose: which of several goroutines that one operation woke runs first, and the choice of a
// select that has several ready cases. So each world is run twice in .ci/run, which counts those whose operations
// crossed the boundary in the same order both times, and one that failed is run three times before it counts as passed.

import (
	"context"
	"flag"
	"fmt"
	"hash"
	"hash/fnv"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stepwell/e2e/wire"
)

var (
	worldSeed    = flag.Uint64("world.seed", 0, "the world of TestWorld to run; 0 for several")
	worldFirst   = flag.Uint64("world.first", 1, "the first of several worlds")
	worldCount   = flag.Int("world.count", pick(wire.RaceDetector(), 8, wire.Size(10, 200)), "how many worlds TestWorld runs; 20000 by hand")
	worldTimes   = flag.Int("world.times", wire.Size(1, 2), "how often each of several worlds runs, side by side")
	worldWithout = flag.String("world.without", "", "parts of the world to leave out, see worldParts, between commas")
	worldTasks   = flag.Int("world.tasks", math.MaxInt, "most tasks that each client creates")
	worldLives   = flag.Int("world.lives", math.MaxInt, "most lives of the service that end early")
	worldTries   = flag.Int("world.tries", 3, "how often a world is run before it counts as passed, while it is made smaller")
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

// planWorld makes the plan for a seed, within what the flags allow.
func planWorld(seed uint64, limit worldLimits) *worldPlan {
	r := worldChance(seed, "plan")
	p := &worldPlan{seed: seed, parts: map[string]bool{}, lives: min(1+r.IntN(4), limit.lives), clients: 1 + r.IntN(3),
		tasks: min(1+r.IntN(8), limit.tasks), actors: 1 + r.IntN(3), keep: r.IntN(12), keepAge: r.IntN(72),
		floor: 4<<10 + r.Int64N(60<<10), sector: []int{512, 4096}[r.IntN(2)], pace: logTime(r, 100*time.Millisecond, 20*time.Minute)}
	for _, part := range worldParts {
		p.parts[part] = r.IntN(3) > 0
	}
	for _, part := range limit.without {
		p.parts[part] = false
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

// worldLimits make a world smaller.
type worldLimits struct {
	without      []string
	tasks, lives int
}

// command returns the command that runs a world within the limits.
func (l worldLimits) command(seed uint64) string {
	s := fmt.Sprintf("go test -run TestWorld -world.seed %d", seed)
	if len(l.without) > 0 {
		s += " -world.without " + strings.Join(l.without, ",")
	}
	if l.tasks < math.MaxInt {
		s += fmt.Sprint(" -world.tasks ", l.tasks)
	}
	if l.lives < math.MaxInt {
		s += fmt.Sprint(" -world.lives ", l.lives)
	}
	return s + " ."
}

// TestWorld runs worlds. A world that fails is made smaller, and the test prints the command that repeats it.
func TestWorld(t *testing.T) {
	limit := worldLimits{tasks: *worldTasks, lives: *worldLives}
	if *worldWithout != "" {
		limit.without = strings.Split(*worldWithout, ",")
	}
	contracts() // not in a bubble
	if *worldSeed != 0 {
		for range *worldTries {
			if r := runWorld(t, *worldSeed, limit); len(r.faults) > 0 {
				t.Fatalf("world %d: %s\n%s", *worldSeed, strings.Join(r.faults, "\n"), limit.command(*worldSeed))
			}
		}
		return
	}
	var sum worldFigures
	began, failed, same := realNow(), 0, 0
	for n := range *worldCount {
		seed := *worldFirst + uint64(n)
		start := realNow()
		r, alike := runWorldTimes(t, seed, limit, &sum)
		if took := realNow().sub(start); took > 5*time.Second {
			t.Logf("world %d took %s, for %s of the service", seed, took, r.figures.time)
		}
		same += boolCount(alike)
		if len(r.faults) > 0 {
			t.Errorf("world %d, after %d: %s\n%s", seed, n, strings.Join(r.faults, "\n"), limit.command(seed))
			if failed++; failed <= 3 && *worldTries > 0 {
				t.Logf("smaller: %s", shrinkWorld(t, seed, limit).command(seed))
			}
		}
		if (n+1)%1000 == 0 || n+1 == *worldCount {
			t.Logf("%d worlds in %s, %d of them alike in %d runs: %s", n+1, realNow().sub(began), same, *worldTimes, &sum)
		}
	}
}

// runWorldTimes runs a world several times, side by side, and adds up their figures. It returns one that failed, if any,
// and whether operations crossed the boundary in the same order in all.
func runWorldTimes(t *testing.T, seed uint64, limit worldLimits, sum *worldFigures) (r *worldRun, alike bool) {
	runs := make([]*worldRun, *worldTimes)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() { runs[i] = runWorld(t, seed, limit) })
	}
	all.Wait()
	alike = true
	for _, o := range runs {
		sum.add(&o.figures)
		if alike = alike && o.order.Sum64() == runs[0].order.Sum64(); r == nil || len(o.faults) > 0 {
			r = o
		}
	}
	return r, alike
}

// shrinkWorld leaves out parts, tasks and lives for as long as the world still fails.
func shrinkWorld(t *testing.T, seed uint64, limit worldLimits) worldLimits {
	fails := func(l worldLimits) bool {
		for range *worldTries {
			if len(runWorld(t, seed, l).faults) > 0 {
				return true
			}
		}
		return false
	}
	for _, part := range worldParts {
		l := limit
		l.without = append(slices.Clone(limit.without), part)
		if !slices.Contains(limit.without, part) && fails(l) {
			limit = l
		}
	}
	p := planWorld(seed, limit)
	for n := range p.tasks {
		l := limit
		if l.tasks = n + 1; fails(l) {
			limit = l
			break
		}
	}
	for n := range p.lives {
		l := limit
		if l.lives = n; fails(l) {
			return l
		}
	}
	return limit
}

// worldFigures count what happened in worlds.
type worldFigures struct {
	time                           time.Duration // of the service
	passed, requests, tasks, lives atomic.Int64
	crashes, starts, faults        atomic.Int64 // ends by crash, crashed starts, failed operations of the disk
	steps                          atomic.Int64 // operations on steps in the histories that were checked
}

func (f *worldFigures) add(o *worldFigures) {
	f.time += o.time
	for _, pair := range [][2]*atomic.Int64{{&f.passed, &o.passed}, {&f.requests, &o.requests}, {&f.tasks, &o.tasks},
		{&f.lives, &o.lives}, {&f.crashes, &o.crashes}, {&f.starts, &o.starts}, {&f.faults, &o.faults}, {&f.steps, &o.steps}} {
		pair[0].Add(pair[1].Load())
	}
}

func (f *worldFigures) String() string {
	return fmt.Sprintf("%.1f days of service, %d lives, %d crashes, %d of them during starts, %d faults of the disk, %d tasks, %d requests, "+
		"%d operations on single steps, %d crossings", f.time.Hours()/24, f.lives.Load(), f.crashes.Load(), f.starts.Load(), f.faults.Load(),
		f.tasks.Load(), f.requests.Load(), f.steps.Load(), f.passed.Load())
}

// worldRun is one run of a world.
type worldRun struct {
	testing.TB // of the bubble; what checks report goes to faults
	plan       *worldPlan
	files      *registry
	bus        worldBus
	chance     *rand.Rand  // of the scheduler
	order      hash.Hash64 // of the operations that crossed the boundary, and when
	began      time.Time
	figures    worldFigures
	actors     sync.WaitGroup
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

// runWorld runs a world in a bubble.
func runWorld(t *testing.T, seed uint64, limit worldLimits) (w *worldRun) {
	synctest.Test(t, func(t *testing.T) {
		w = &worldRun{TB: t, plan: planWorld(seed, limit), chance: worldChance(seed, "scheduler"), began: time.Now(),
			order: fnv.New64a(), opened: make(chan struct{}), closing: make(chan struct{})}
		w.bus.arrived = make(chan struct{}, 1)
		w.model.init(w)
		w.run()
		for _, f := range slices.Backward(w.cleanups) {
			f()
		}
		if w.figures.time = time.Since(w.began); *worldTrace {
			t.Logf("the log of the service:\n%s", &w.model.log)
		}
	})
	return w
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
	w.figures.lives.Add(1)
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
		w.figures.crashes.Add(1)
		if !open {
			w.figures.starts.Add(1)
		}
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
