package main

// A world: one service behind its surfaces. A reset replaces the service by a fresh one, and a state by one with that
// state; nothing that the previous one left running can reach it.

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"
)

// opening opens a service with parts.
type opening func(serviceOptions) (*service, error)

// world holds a service, and what is needed to open its successor.
type world struct {
	parts   serviceOptions // immutable
	atStart opening        // with the initial state
	gates   *gates
	boxes   *sandboxes // nil in a sandbox
	sandbox string     // the name of this sandbox; "" for none

	// Of the services of an exploration:
	stubs  []*stub // from their start
	claims bool    // steps for outside actors are left to claims, whatever stubs there are

	given map[string]*template // templates in the state of the first service, by hash; set by begin

	ending sync.WaitGroup // of services that were replaced

	mu  sync.Mutex
	svc *service // guarded by mu
	end bool     // no other service replaces it; guarded by mu
}

// openWorld opens a service in fixture mode, with the state of a file unless seed is empty, and the gates to it.
func openWorld(seed string, parts serviceOptions, g *gates) (*world, error) {
	w := &world{parts: parts, gates: g}
	w.atStart = func(o serviceOptions) (*service, error) { return openSeeded(seed, o) }
	w.boxes = &sandboxes{world: w, ports: parsePortRange(parts.cfg.Fixture.PortRange), all: map[string]*sandbox{}}
	return w, w.begin()
}

// begin opens the first service, and the gates to it.
func (w *world) begin() error {
	svc, err := w.open(w.atStart)
	if err == nil {
		w.given = svc.store.taskTemplates().copy()
		w.enter(svc)
	}
	return err
}

// accept returns a client's state as a source that checks its templates.
func (w *world) accept(document io.Reader) *stateSource {
	return &stateSource{document: document, admit: w.admit}
}

// admit returns an error if a state may not bring a template: one that may not be
// added at run time, and that the service did not have at its start.
func (w *world) admit(t *template) error {
	known, ok := w.parts.files.Load().get(t.namespace, t.name, t.version)
	if ok && known.hash == t.hash || w.given[t.hash] != nil {
		return nil
	}
	return checkAddedTemplate(w.parts.cfg, w.parts.handlers, t)
}

// enter makes a service the present one. The caller holds mu, unless nobody else knows the world yet.
func (w *world) enter(svc *service) {
	w.svc = svc
	w.gates.open(svc)
}

// open opens a service with its own virtual clock and its own figures of authentication.
func (w *world) open(make opening) (*service, error) {
	o := w.parts
	x := newFixture(w, o.startClock())
	x.stubs.list = copied(w.stubs)
	o.clock, o.extension, o.auth = x.clock, x, o.auth.counted()
	svc, err := make(o)
	if err != nil {
		return nil, err
	}
	x.start()
	return svc, nil
}

// deterministicStart is the time of a deterministic service at its start,
// 2026-01-01T00:00:00Z. Its clock is frozen then.
const deterministicStart instant = 1_767_225_600_000_000

// startClock returns the clock that a service in fixture mode begins with.
func (o *serviceOptions) startClock() *virtualClock {
	if o.deterministic != "" {
		return newVirtualClock(deterministicStart)
	}
	c := newVirtualClock(realNow())
	c.setMode(clockReal)
	return c
}

func (w *world) service() *service {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.svc
}

// ready reports whether nothing keeps the present service from its work.
func (w *world) ready() bool { return w.service().ready() }

// cutOffPatience is how long a reset waits for handlers that it cut off, in real
// time. Their outcomes never reach the fresh service.
const cutOffPatience = time.Second

// reset replaces the service by one with the initial state: no task, timer or figure is
// left, and the clock is as at the start.
func (w *world) reset() error { return w.replace(w.atStart) }

// restore replaces the service by one with the state of a document. On an error the present service stays.
func (w *world) restore(document io.Reader) error {
	state := w.accept(document)
	if w.parts.cfg.Store.Memory {
		return w.replace(withState(state))
	}
	// There the present service ends before the next one begins, so the state is written beside its store first.
	o := journalOptions{dir: w.parts.cfg.Store.Path, fs: w.parts.disk, log: w.parts.log}
	deriveStore(&o, w.parts.idSource())
	if _, err := spoolState(o, state, w.parts.log); err != nil {
		return err
	}
	return w.replace(func(parts serviceOptions) (*service, error) {
		disk := cmp.Or(o.fs, diskFS(osDisk{}))
		if err := installImport(&o, func() error { return disk.syncDir(o.dir) }); err != nil {
			return nil, err
		}
		return openService(parts)
	})
}

// withState opens a service with the state of a document.
func withState(state *stateSource) opening {
	return func(o serviceOptions) (*service, error) {
		o.state = state
		return openService(o)
	}
}

func (w *world) replace(make opening) error {
	if !w.parts.cfg.Store.Memory {
		return w.replaceOnDisk(make)
	}
	// The new service is opened while the old one works, so that an error changes nothing. A disk cannot hold both: see
	// replaceOnDisk.
	svc, err := w.open(make)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end {
		// The process began to end while the service was opened, and will not look for another one.
		return errors.Join(errEnding(), abort(svc))
	}
	old := w.svc
	w.enter(svc)
	w.discard(old)
	return nil
}

// replaceOnDisk is replace for a directory, which holds one service at a time.
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
	if err == nil {
		w.enter(svc)
	}
	return err
}

func errEnding() error { return failf(unavailable, "the service is shutting down") }

// discard ends a service that was replaced. It waits for that at most for cutOffPatience.
func (w *world) discard(old *service) {
	ended := endIn(&w.ending, func() {
		if err := abort(old); err != nil {
			old.log.Warn("closing the replaced service", "error", err)
		}
	})
	receiveWithin(ended, cutOffPatience)
}

// endIn calls end in a goroutine of a group, and closes the channel when it is done.
func endIn(group *sync.WaitGroup, end func()) <-chan struct{} {
	ended := make(chan struct{})
	group.Go(func() {
		defer close(ended)
		end()
	})
	return ended
}

// abort ends a service for a reset, without waiting for its handlers, and closes its
// store, so that nothing more can be recorded.
func abort(s *service) error {
	// First, so that waiting requests learn of the reset: finish would tell them that the service shuts down.
	s.store.releaseWaiters(waitReset)
	s.finish(alreadyEnded())
	return s.close()
}

// alreadyEnded returns a context for ending something without waiting.
func alreadyEnded() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// emptyStore removes the file of a closed store.
func emptyStore(dir string) error {
	if err := removeRegular(filepath.Join(dir, storeName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// busy returns how many handlers run, in sandboxes too.
func (w *world) busy() int {
	n := w.service().busy()
	if w.boxes != nil {
		for _, box := range w.boxes.list() {
			n += box.world.busy()
		}
	}
	return n
}

// finish ends the work of the world and of its sandboxes; see service.finish.
func (w *world) finish(ctx context.Context) []string {
	w.mu.Lock()
	w.end = true
	w.mu.Unlock()
	var all sync.WaitGroup
	var inBoxes []string
	if w.boxes != nil {
		all.Go(func() { inBoxes = w.boxes.finish(ctx) })
	}
	cut := w.svc.finish(ctx) // which nothing replaces from here on
	all.Wait()
	return append(cut, inBoxes...)
}

func (w *world) close() error {
	if w.boxes != nil {
		w.boxes.close()
	}
	w.ending.Wait()
	return w.svc.close()
}
