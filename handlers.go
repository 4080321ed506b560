package main

// How a step is run: what a handler is given, what comes back, and which
// handler a callable stands for. Each kind of handler has a file of its own.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// attempt is one delivery of a step to its handler. Everything in it is
// immutable; the byte slices are JSON texts that passed checkJSON.
type attempt struct {
	taskID, stepID           uuid
	namespace, name, version string // of the template
	correlationID            string
	traceparent              string // "" when the task has none
	context                  []byte // the task's context, an object
	stepName                 string
	number                   int // from 1
	maxAttempts              int
	timeout                  time.Duration
	config                   []byte        // handler.initialization, an object
	inputs                   []byte        // an object; the context unless an operator set others
	results                  []namedResult // completed ancestors
}

// namedResult is the bare result of a completed step.
type namedResult struct {
	step   string
	result []byte // JSON; nil stands for null
}

// outcome is what an attempt came to.
type outcome struct {
	success    bool
	result     []byte     // JSON that passed checkJSON, compact; nil stands for null
	metadata   []byte     // a JSON object that the handler sent along, or nil
	err        *stepError // set unless success
	retryAfter time.Duration
}

// handlerKind is how a step is run.
type handlerKind uint8

const (
	builtinHandler handlerKind = iota
	httpHandler
	execHandler
	outsideActor
)

func (k handlerKind) String() string { return [...]string{"builtin", "http", "exec", "outside"}[k] }

// target is what a callable stands for.
type target struct {
	kind    handlerKind
	builtin *builtin     // of a builtinHandler; another kind has one when it cannot run: it fails, saying why
	http    *httpAddress // of an httpHandler that can run
	program string       // of an execHandler that can run: a bare name or an absolute path
}

// refusal is a target of a kind whose every attempt fails for good.
func refusal(kind handlerKind, errorType, why string) target {
	fail := func(*attempt) (outcome, time.Duration) { return typedFailure(errorType, "%s", why), 0 }
	return target{kind: kind, builtin: &builtin{run: fail}}
}

// handlerSet is everything that can run steps, by the worker's configuration.
// It is immutable and shared by all services of the process.
type handlerSet struct {
	outside   bool              // nothing runs here
	exact     map[string]target // of worker.handlers
	prefixes  []mappedPrefix    // of worker.handlers, the longest first
	byDefault target
	web       *httpCaller
	programs  *programRunner
}

// mappedPrefix is a key of worker.handlers that ends in *.
type mappedPrefix struct {
	prefix string // without the *
	target target
}

// newHandlerSet makes the handlers that the configuration describes. The error
// names every target and address that will not do. getenv is where programs get
// their PATH, HOME, LANG and TZ from.
func newHandlerSet(c *workerConfig, version string, getenv func(string) string) (*handlerSet, error) {
	web, err := newHTTPCaller(c, version)
	h := &handlerSet{
		exact:    map[string]target{},
		web:      web,
		programs: newProgramRunner(c, getenv),
	}
	return h, errors.Join(h.mapAll(c.Handlers), h.setDefault(c.DefaultHandler), err)
}

// outsideOnly is a set in which every step waits for an outside actor.
func outsideOnly() *handlerSet { return &handlerSet{outside: true} }

// mapAll takes up worker.handlers.
func (h *handlerSet) mapAll(handlers map[string]string) error {
	var problems []error
	for _, callable := range slices.Sorted(maps.Keys(handlers)) {
		t, err := h.mappable(handlers[callable])
		if err != nil {
			problems = append(problems, fmt.Errorf("worker.handlers: %q: %w", callable, err))
		}
		if prefix, ok := strings.CutSuffix(callable, "*"); ok {
			h.prefixes = append(h.prefixes, mappedPrefix{prefix, t})
		} else {
			h.exact[callable] = t
		}
	}
	slices.SortFunc(h.prefixes, func(a, b mappedPrefix) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	return errors.Join(problems...)
}

// setDefault takes up worker.default_handler, if there is one.
func (h *handlerSet) setDefault(callable string) (err error) {
	h.byDefault = target{kind: outsideActor}
	if callable == "" {
		return nil
	}
	if h.byDefault, err = h.mappable(callable); err != nil {
		return fmt.Errorf("worker.default_handler: %w", err)
	}
	return nil
}

// mappable is the target of a callable that others are mapped to: one that
// names its handler by a prefix.
func (h *handlerSet) mappable(callable string) (target, error) {
	t, err := h.parse(callable)
	if err == nil && t.kind == outsideActor {
		err = errors.New("the target is not builtin:…, http://…, https://… or exec:…")
	}
	return t, err
}

// resolve is what runs a callable. A malformed one and a program that is not
// allowed give a target whose every attempt fails for good, saying why.
func (h *handlerSet) resolve(callable string) target {
	t, _ := h.find(callable)
	return t
}

// check is what is wrong with a callable: an unknown builtin, a malformed URL
// or program. The text does not repeat the callable. Whether programs are
// allowed is a matter of warning.
func (h *handlerSet) check(callable string) error {
	_, err := h.find(callable)
	return err
}

// warning says that no attempt of the callable can succeed while the
// configuration is as it is; "" means that there is nothing to say.
func (h *handlerSet) warning(callable string) string {
	if h.resolve(callable).kind == execHandler && !h.programs.allowed {
		return execNotAllowed
	}
	return ""
}

// missingProgram is an error when the callable stands for an allowed program
// that is not there now.
func (h *handlerSet) missingProgram(callable string) error {
	t := h.resolve(callable)
	if t.program == "" {
		return nil
	}
	_, err := h.programs.find(t.program)
	return err
}

func (h *handlerSet) find(callable string) (target, error) {
	if h.outside {
		return target{kind: outsideActor}, nil
	}
	if t, ok := h.mapped(callable); ok {
		return t, nil
	}
	t, err := h.parse(callable)
	if err == nil && t.kind == outsideActor {
		t = h.byDefault
	}
	return t, err
}

// mapped is the target that worker.handlers gives a callable.
func (h *handlerSet) mapped(callable string) (target, bool) {
	if t, ok := h.exact[callable]; ok {
		return t, true
	}
	for _, m := range h.prefixes {
		if strings.HasPrefix(callable, m.prefix) {
			return m.target, true
		}
	}
	return target{}, false
}

// parse is the target that a callable names by its prefix, an outside actor
// when it has none. With an error the target is one that fails.
func (h *handlerSet) parse(callable string) (t target, err error) {
	switch prefix, rest := cutHandlerPrefix(callable); prefix {
	case "builtin:":
		t.kind = builtinHandler
		t.builtin, err = findBuiltin(rest)
	case "http://", "https://":
		t.kind = httpHandler
		t.http, err = parseHTTPAddress(callable)
	case "exec:":
		t.kind = execHandler
		t.program, err = parseProgram(rest)
		if err == nil && !h.programs.allowed {
			t = refusal(execHandler, "exec_not_allowed", execNotAllowed)
		}
	default:
		t.kind = outsideActor
	}
	if err != nil {
		t = refusal(t.kind, invalidHandlerType, err.Error())
	}
	return t, err
}

// cutHandlerPrefix splits off which of the four prefixes a callable has, "" for
// none. Schemes of URLs are the same in either case.
func cutHandlerPrefix(callable string) (prefix, rest string) {
	for _, prefix := range [...]string{"builtin:", "exec:"} {
		if rest, ok := strings.CutPrefix(callable, prefix); ok {
			return prefix, rest
		}
	}
	for _, prefix := range [...]string{"http://", "https://"} {
		if n := len(prefix); len(callable) >= n && strings.EqualFold(callable[:n], prefix) {
			return prefix, callable[n:]
		}
	}
	return "", callable
}

// run has an HTTP or exec handler do the attempt and blocks until that is done,
// at most for the attempt's timeout, in real time. When ctx is cancelled before
// that, the outcome has the type cancelled.
func (h *handlerSet) run(ctx context.Context, t target, a *attempt) outcome {
	if t.builtin != nil {
		o, _ := t.builtin.run(a)
		return o
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	switch t.kind {
	case httpHandler:
		return h.web.call(ctx, t.http, a)
	case execHandler:
		return h.programs.run(ctx, t.program, a)
	}
	return typedFailure(invalidHandlerType, "nothing here runs the step: it is for an outside actor")
}

// cutOff is the outcome of an attempt that ended because ctx did, if so.
func cutOff(ctx context.Context, a *attempt) (o outcome, ok bool) {
	switch {
	case ctx.Err() == nil:
		return o, false
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timedOut(a.timeout), true
	}
	return typedFailure(cancelledType, "the attempt was cancelled"), true
}
