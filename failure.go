package main

// What can be wrong with a request, by kind. The surfaces turn a kind into a
// status and a body; nothing below them knows about either.

import (
	"errors"
	"fmt"
	"time"
)

// failureKind says what sort of failure it is. The zero kind is an internal
// error: logged in full, answered blandly.
type failureKind uint8

const (
	internalFailure failureKind = iota
	badRequest
	invalidUUID
	invalidJSON
	notFound
	templateNotFound
	namespaceNotFound
	taskMissing
	stepMissing
	methodNotAllowed
	conflict
	invalidTransition // the state does not allow it
	tooLarge
	unsupportedMedia
	invalidFields // carries details
	unauthenticated
	forbidden
	unavailable
	backpressure
	misdirected // the request was for a host that is not ours
	notIdle     // in the time that was given; carries what is blocking
	unverified  // carries what was seen instead
)

// failure is an error that a caller of the service may be told about.
type failure struct {
	kind       failureKind
	message    string
	details    []fieldProblem // for invalidFields: every offending field
	retryAfter time.Duration  // for unavailable and backpressure
	existing   uuid           // for conflict: the task that is there already, if the caller may know
	blocking   []blocker      // for notIdle
	seen       *seenView      // for unverified
	cause      error          // logged, never shown
}

// fieldProblem names one offending field of a request body.
type fieldProblem struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (f *failure) Error() string {
	if f.cause != nil {
		return f.message + ": " + f.cause.Error()
	}
	return f.message
}

func (f *failure) Unwrap() error { return f.cause }

// failf makes a failure of a kind.
func failf(kind failureKind, format string, args ...any) *failure {
	return &failure{kind: kind, message: fmt.Sprintf(format, args...)}
}

// kindOf is the kind of an error; anything that is no failure is internal.
func kindOf(err error) failureKind {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.kind
	}
	return internalFailure
}
