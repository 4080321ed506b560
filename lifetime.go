package main

// How long a process lives that was started for something else: as long as its
// parent, or a given time.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// orphanGrace is what running handlers, and then open requests, get once the
// parent is gone: nobody waits for them any more.
const orphanGrace = 500 * time.Millisecond

// errOrphaned is why the process ends whose parent is gone.
var errOrphaned = errors.New("standard input was closed: the parent is gone")

// lifetime is a context that ends with ctx, and when the command line says so.
func (p *process) lifetime(ctx context.Context, a *serveArgs, log *slog.Logger) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	endFor := func(cause error) {
		log.Info("the service ends", "reason", cause.Error())
		end(cause)
	}
	if a.exitWithParent {
		go func() {
			io.Copy(io.Discard, p.stdin)
			endFor(errOrphaned)
		}()
	}
	if a.maxLifetime > 0 {
		afterReal(a.maxLifetime, func() { endFor(fmt.Errorf("it has lived for %s (--max-lifetime)", a.maxLifetime)) })
	}
	return ctx, func() { end(context.Canceled) }
}

// graces are how long running handlers, and after them open requests, get to end.
func (v *serving) graces(ctx context.Context) (handlers, requests time.Duration) {
	handlers = time.Duration(v.cfg.Web.ShutdownTimeoutSeconds) * time.Second
	if context.Cause(ctx) == errOrphaned {
		return min(handlers, orphanGrace), orphanGrace
	}
	return handlers, closeTimeout
}
