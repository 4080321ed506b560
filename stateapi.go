package main

// GET and PUT /_stepwell/state: the whole state as one document.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// stateTimeout is how long a whole state may take on its way, in real time.
const stateTimeout = 10 * time.Minute

func (a *controlAPI) getState(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), stateTimeout)
	defer cancel()
	if err := a.svc.keeper.durable(ctx); err != nil {
		return err
	}
	extendWriting(w, stateTimeout)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := a.svc.store.exportState(w, a.svc.clock.now()); err != nil {
		a.log.Error("a state document was cut off", "error", err)
		panic(http.ErrAbortHandler) // so that nobody takes it for a whole one
	}
	return nil
}

func (a *controlAPI) putState(w http.ResponseWriter, r *http.Request) error {
	if err := checkContentType(r); err != nil {
		return err
	}
	extendReading(w, stateTimeout)
	extendWriting(w, stateTimeout)
	body := &bodyReader{body: r.Body}
	err := a.svc.world.restore(body)
	if body.err != nil {
		return readFailure(body.err)
	}
	if err != nil {
		return refusedState(err, "", "the state stays as it is")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// refusedState is the failure of a document that will not do, which stood under
// a path in the request's body.
func refusedState(err error, under, what string) error {
	at, ok := errors.AsType[*stateError](err)
	if !ok {
		return err
	}
	path := under + at.path
	if path == "" {
		path = "document"
	}
	return &failure{
		kind: invalidFields, message: fmt.Sprintf("%s: %s: %v", what, path, at.err),
		details: []fieldProblem{{path, at.err.Error()}},
	}
}

// bodyReader keeps the error that ended the reading of a body.
type bodyReader struct {
	body io.Reader
	err  error // nil at the end of the body
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}
