package main

// The base family: every other family may use it, and it knows none of them.
//
//	base.go            failures, problems of an input, and mistakes in the usage of the command line
//	base_fields.go     reading the fields of a request body
//	base_text.go       lists of words, the nearest word to one with a typo, clipped texts, redacting URLs
//	base_sync.go       notifier, quota, rate of log messages, priority queue, cache of answers
//	base_budget.go     the budget of a request: memory that it may take, steps of checks
//	base_file.go       opening, renaming and removing regular files
//	base_clock.go      instants, the clock and its timers, limits in real time
//	base_histogram.go  histograms of durations
//	base_id.go         UUIDs, and the source of ids and random numbers
//	base_json.go       JSON texts: walking, skipping, merging, their canonical form; decoded JSON values, decimals
//	base_json_check.go checking which JSON texts are accepted from outside
//	base_json_write.go the JSON writer, and appending strings; reading in chunks what comes from outside
//	base_unix.go       system calls of every Unix: names, owners, locks, sockets, process groups, figures
//	base_linux.go      durable data, reserved blocks, exits, memory on Linux
//	base_other.go      the same data, blocks, exits, memory on other Unix systems
//	base_windows.go    both for Windows: handles, names, locks, sockets, jobs as process groups, figures

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// version is the release of this source.
const version = "0.2.0"

// failureKind classifies a failure; the surfaces map each kind to a status and a
// code. The zero kind is an internal error: logged in full, answered without details.
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
	unsupportedCoding // a Content-Encoding
	invalidFields     // carries details
	unauthenticated
	forbidden
	unavailable
	backpressure
	misdirected // the request was for a host that is not ours
	notIdle     // within the time given; carries what kept the service busy
	unverified  // carries what was seen instead
	storeFull   // tasks take all the memory they may
	taskDropped // a repeated request whose task retention has dropped
	taskMovedOn // the task is not as the caller saw it
)

// failure is an error that a caller may see.
type failure struct {
	kind       failureKind
	message    string
	details    inputProblems      // for invalidFields: every offending field
	retryAfter time.Duration      // for unavailable and backpressure
	existing   uuid               // for conflict: the task that exists already, if the caller may know
	extra      errorMember        // for notIdle, unverified and taskDropped
	refusal    *credentialRefusal // for credentials that were refused or cannot be verified
	cause      error              // logged, never shown
}

// credentialRefusal says why credentials were refused, in the words of the auth family.
type credentialRefusal struct {
	reason   string // one word for the client and the metrics; "" when nobody could verify them
	severity string // low, medium or high
	method   string // how the caller tried to authenticate; "" for a known caller without permission
	detail   string // for the log alone
}

func (f *failure) Error() string {
	if f.cause != nil {
		return f.message + ": " + f.cause.Error()
	}
	return f.message
}

func (f *failure) Unwrap() error { return f.cause }

func failf(kind failureKind, format string, args ...any) *failure {
	return &failure{kind: kind, message: fmt.Sprintf(format, args...)}
}

// kindOf returns the kind of an error. Any error other than a failure is internal.
func kindOf(err error) failureKind {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.kind
	}
	return internalFailure
}

// inputProblem is one thing wrong with a request, a configuration or a template.
type inputProblem struct {
	Source  string `json:"-"`     // a file, perhaps with a line, a variable or a flag; "" for a request
	Field   string `json:"field"` // its path in the source; "" for the whole source
	Message string `json:"message"`
	cause   error  // of a source that cannot be read
}

// String returns "source: field: message", without what is empty.
func (p inputProblem) String() string {
	s := p.Message
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	if p.Source != "" {
		s = p.Source + ": " + s
	}
	return s
}

// inputProblems is everything wrong with an input.
type inputProblems []inputProblem

func (all inputProblems) Error() string {
	lines := make([]string, len(all))
	for i, p := range all {
		lines[i] = printable(p.String())
	}
	return strings.Join(lines, "\n")
}

// Is reports whether all that is wrong is a source that cannot be read, because of target.
func (all inputProblems) Is(target error) bool {
	return len(all) == 1 && errors.Is(all[0].cause, target)
}

// orNil returns the problems as an error, or nil when there are none.
func (all inputProblems) orNil() error {
	if len(all) == 0 {
		return nil
	}
	return all
}

// errorMember is one more member of an error's body. The zero value is none.
type errorMember struct {
	name  string
	value any
}

// usageError is a mistake in the command line.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
