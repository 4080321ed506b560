package main

// Signals: SIGTERM and SIGINT end the service, or interrupt a command that waits. A process may
// also end with its parent.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// endOnSignal returns a context that the first signal cancels. A second one ends the process at once, unless both are
// SIGHUP: a terminal that closes sends several of them.
func endOnSignal(ctx context.Context) (_ context.Context, ignore func()) {
	ctx, end := context.WithCancel(ctx)
	// Room for two, since package signal drops what does not fit, and a second signal must count.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt) // even if a shell made a background job ignore SIGINT
	if !signal.Ignored(syscall.SIGHUP) {                  // as nohup does
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		first := <-signals
		end()
		for next := range signals {
			if next != syscall.SIGHUP || first != syscall.SIGHUP {
				os.Exit(exitFailed)
			}
		}
	}()
	return ctx, func() { signal.Stop(signals) }
}

// abandonedTimeout is how long running handlers, and then open requests, may take once
// the parent is gone and nobody waits for them.
const abandonedTimeout = 500 * time.Millisecond

// failedTimeout is how long open requests may take once the store has failed: the answers to those that waited for it are
// on their way.
const failedTimeout = 200 * time.Millisecond

// errParentGone is the reason for the end of a process without a parent.
var errParentGone = errors.New("standard input was closed: the parent is gone")

// lifetime returns a context that ends with ctx, or as the command line says.
func (p *process) lifetime(ctx context.Context, a *serveArgs, log *slog.Logger) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	endFor := func(cause error) {
		log.Info("the service ends", "reason", cause.Error())
		end(cause)
	}
	if a.exitWithParent {
		go func() {
			// The read ends when the last process that has the other end of the pipe is gone, however it ended.
			io.Copy(io.Discard, p.stdin)
			endFor(errParentGone)
		}()
	}
	if a.maxLifetime > 0 {
		afterReal(a.maxLifetime, func() { endFor(fmt.Errorf("it has run for %s (--max-lifetime)", a.maxLifetime)) })
	}
	return ctx, func() { end(context.Canceled) }
}

// timeouts returns how long running handlers, and after them open requests, may take, if the process ends with ctx or
// for a reason.
func (v *serving) timeouts(ctx context.Context, reason error) (handlers, requests time.Duration) {
	if errors.Is(reason, errStoreFailed) { // nothing that they do can be stored
		return 0, failedTimeout
	}
	handlers = time.Duration(v.cfg.Web.ShutdownTimeoutSeconds) * time.Second
	if context.Cause(ctx) == errParentGone {
		return min(handlers, abandonedTimeout), abandonedTimeout
	}
	return handlers, closeTimeout
}

var (
	errInterrupted = &exitError{code: exitInterrupted}
	errWatchEnded  = errors.New("the time to wait is over")
)

// interruptible returns a context that the first SIGINT or SIGTERM ends, with errInterrupted, or the end of
// a time unless it is 0, with errWatchEnded.
func interruptible(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	release := func() {}
	if limit > 0 {
		ctx, release = context.WithTimeoutCause(ctx, limit, errWatchEnded)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			end(errInterrupted)
		case <-ctx.Done():
		}
		signal.Stop(signals) // a second one ends the process
	}()
	return ctx, func() {
		release()
		end(nil)
	}
}
