package main

// A world: one service behind its surfaces. In fixture mode a reset puts a fresh
// service in its place, and a state document one with that state; whatever the one before left behind cannot reach it.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// gate answers for a listener by the surface of the moment; until there is one
// in the form that it will have.
type gate struct {
	starting startingAPI
	surface  atomic.Pointer[http.Handler]
}

func (g *gate) open(h http.Handler) { g.surface.Store(&h) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s := g.surface.Load(); s != nil {
		(*s).ServeHTTP(w, r)
		return
	}
	g.starting.ServeHTTP(w, r)
}

// gates are the two listeners' handlers.
type gates struct {
	orchestration, worker gate
}

func (g *gates) open(s *service) {
	if s.cfg.Role != "worker" {
		g.orchestration.open(newOrchestrationAPI(s))
	}
	if s.cfg.Role != "orchestration" {
		g.worker.open(newWorkerAPI(s))
	}
}

// opening makes a service of the parts that it is given.
type opening func(serviceOptions) (*service, error)

// world holds a service, and what another one is opened with.
type world struct {
	parts   serviceOptions // shared and immutable; with the clock of services that have none of their own
	atStart opening        // with the state at the start
	gates   *gates
	boxes   *sandboxes // in fixture mode; nil in a sandbox
	sandbox string     // its name, in one

	ending sync.WaitGroup // of services that were replaced

	mu  sync.Mutex
	svc *service // guarded by mu
	end bool     // no other service takes its place; guarded by mu
}

// openWorld opens a service, with the state of a file unless seed is empty, and
// the gates to it.
func openWorld(seed string, parts serviceOptions, g *gates) (*world, error) {
	w := &world{parts: parts, gates: g}
	w.atStart = func(o serviceOptions) (*service, error) { return openSeeded(seed, o) }
	w.parts.surfaces = newSurfaceCache()
	if parts.cfg.Fixture.Enabled {
		w.boxes = newSandboxes(w.parts)
	}
	return w, w.begin()
}

// begin opens the first service.
func (w *world) begin() error {
	svc, err := w.open(w.atStart)
	if err == nil {
		w.svc = svc
		w.gates.open(svc)
	}
	return err
}

// open is a service of its own; in fixture mode with a clock that can be moved,
// and with figures of authentication that are its own.
func (w *world) open(make opening) (*service, error) {
	o := w.parts
	if !o.cfg.Fixture.Enabled {
		return make(o)
	}
	c := o.startClock()
	o.clock, o.restoreClock, o.auth = c, true, o.auth.counted()
	svc, err := make(o)
	if err != nil {
		return nil, err
	}
	svc.world, svc.keeper = w, newTimekeeper(svc, c)
	return svc, nil
}

// deterministicStart is when the clock of a deterministic service stands still at
// its start: 2026-01-01T00:00:00Z.
const deterministicStart instant = 1_767_225_600_000_000

// startClock is the clock that a service in fixture mode begins with.
func (o *serviceOptions) startClock() *virtualClock {
	if o.deterministic != "" {
		return newVirtualClock(deterministicStart)
	}
	c := newVirtualClock(realNow())
	c.setMode(clockReal)
	return c
}

// service is the one of the moment.
func (w *world) service() *service {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.svc
}

// cutOffPatience is how long a reset waits for handlers that it cut off, in real
// time. What they come to is nothing to the fresh service either way.
const cutOffPatience = time.Second

// reset puts a fresh service in the place of the one there is: no task, timer or
// figure of before is left, and the clock is as at the start.
func (w *world) reset() error { return w.replace(w.atStart) }

// restore puts a service with the state of a document in the place of the one
// there is, all or nothing.
func (w *world) restore(document io.Reader) error {
	if !w.parts.cfg.Store.Memory { // the service there is ends before the other one begins
		f, err := spoolState(document, w.parts.cfg.Store.Path, w.parts.log)
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		defer f.Close()
		document = f
	}
	return w.replace(withState(document))
}

// withState opens a service with the state of a document.
func withState(document io.Reader) opening {
	return func(o serviceOptions) (*service, error) {
		o.state = document
		return openService(o)
	}
}

// replace puts another service in the place of the one there is.
func (w *world) replace(make opening) error {
	if !w.parts.cfg.Store.Memory {
		return w.replaceOnDisk(make)
	}
	svc, err := w.open(make)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end {
		return errors.Join(errEnding(), abort(svc))
	}
	old := w.svc
	w.svc = svc
	w.gates.open(svc)
	w.discard(old)
	return nil
}

// replaceOnDisk is replace with a directory, which takes one service at a time.
func (w *world) replaceOnDisk(make opening) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end {
		return errEnding()
	}
	if err := errors.Join(abort(w.svc), emptyStore(w.parts.cfg.Store.Path)); err != nil {
		return err
	}
	svc, err := w.open(make)
	if err != nil {
		return err
	}
	w.svc = svc
	w.gates.open(svc)
	return nil
}

func errEnding() error { return failf(unavailable, "the service is shutting down") }

// discard ends a service that was replaced, and waits for it as long as that
// may take.
func (w *world) discard(old *service) {
	ended := make(chan struct{}, 1)
	w.ending.Go(func() {
		if err := abort(old); err != nil {
			old.log.Warn("the service that was replaced did not end well", "error", err)
		}
		ended <- struct{}{}
	})
	receiveWithin(ended, cutOffPatience)
}

// abort ends a service without waiting for its handlers, and closes its store,
// so that nothing can be recorded in it any more.
func abort(s *service) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.finish(ctx)
	return s.closeStore()
}

// emptyStore removes the files of a store that is closed.
func emptyStore(dir string) error {
	var errs []error
	for _, pattern := range []string{"*.tmp", journalName, journalOldName, snapshotName} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range names {
			errs = append(errs, os.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// finish ends the work of the world and of its sandboxes; see service.finish.
func (w *world) finish(ctx context.Context) {
	w.mu.Lock()
	w.end = true
	w.mu.Unlock()
	var all sync.WaitGroup
	if w.boxes != nil {
		all.Go(func() { w.boxes.finish(ctx) })
	}
	w.svc.finish(ctx) // which nothing replaces any more
	all.Wait()
}

func (w *world) close() error {
	if w.boxes != nil {
		w.boxes.close()
	}
	w.ending.Wait()
	return w.svc.closeStore()
}
