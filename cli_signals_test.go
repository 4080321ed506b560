package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
)

// TestBenchInterrupted checks that what was measured is printed when bench is interrupted.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	var requests atomic.Int64
	v, _, code := benchWith(t, ctx, func(http.ResponseWriter, *http.Request) bool {
		if requests.Add(1) == 20 {
			interrupt(errInterrupted)
		}
		return false
	}, "--clients", "1", "--duration", "1h")
	if code != exitInterrupted || v.Tasks < 15 || v.Errors != 0 {
		t.Errorf("got %+v, exit code %d; want what was measured", v, code)
	}
}
