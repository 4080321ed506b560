package main

// The log of causes, and of replies that may mean something else: each is logged once,
// when it arises. That is under the store's lock: a logger must not wait for its output.

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	maxCallables     = 1000        // callables that are remembered as logged, for each kind of line
	slotsLogInterval = time.Minute // between two lines about slots of a kind, at least
)

// outsideKey names steps that wait for an outside actor: logged once, not for each task.
type outsideKey struct {
	tpl      *template
	callable string
}

// causeLog logs why tasks make no progress.
type causeLog struct {
	log      *slog.Logger
	advice   actorAdvice
	messages bool       // whether messages of errors are logged
	stopped  slog.Level // level of lines about tasks that are blocked or ended as stale
	scarce   sync.Once  // of the line about descriptors

	outside map[outsideKey]bool // guarded by the store's lock, as below
	strays  map[string]bool     // callables
}

func (l *causeLog) print(level slog.Level, message string, args ...any) {
	l.log.Log(context.Background(), level, message, args...)
}

func (l *causeLog) enabled(level slog.Level) bool { return l.log.Enabled(context.Background(), level) }

// outOfDescriptors logs once that handlers cannot begin.
func (l *causeLog) outOfDescriptors(why string) {
	l.scarce.Do(func() {
		l.print(slog.LevelWarn, "the process has too many open files: handlers wait to start", "error", why)
	})
}

// attemptFailed logs that the latest attempt of a step has failed.
func (l *causeLog) attemptFailed(t *task, i int, at instant) {
	if !l.enabled(slog.LevelInfo) {
		return
	}
	s := &t.steps[i]
	l.print(slog.LevelInfo, "an attempt failed", "task_uuid", t.id, "template", t.tpl.fullName(), "step", t.def(i).name,
		"cause", attemptFailed(s.last, s.attempts, s.maxAttempts, at, l.messages))
}

// awaitsActor logs that a step waits for an outside actor, once for each template
// and callable.
func (l *causeLog) awaitsActor(t *task, i int) {
	k := outsideKey{t.tpl, t.def(i).callable}
	if l.outside[k] || len(l.outside) >= maxCallables {
		return
	}
	l.outside[k] = true
	l.print(slog.LevelInfo, "a step waits for an outside actor; others with this callable will, too", "task_uuid", t.id,
		"template", t.tpl.fullName(), "step", t.def(i).name, "callable", t.def(i).shown, "remedy", l.advice.about(t.def(i)))
}

// strayMember logs, once for each callable, that a reply has the member success but is not an
// outcome, and how it was treated.
func (l *causeLog) strayMember(t *task, i int, o outcome) {
	callable := t.def(i).callable
	if l.strays[callable] || len(l.strays) >= maxCallables {
		return
	}
	l.strays[callable] = true
	l.print(slog.LevelWarn, "a reply has success and a member that no outcome has, so the whole reply is the "+
		pick(o.success, "result", "message of a failure"), "callable", redactName(callable), "member", o.stray,
		"task_uuid", t.id, "step", t.def(i).name)
}

// slots logs when steps begin to wait for slots of a kind, and when no step waits
// for them any more.
func (l *causeLog) slots(p *slotPool, now func() instant) {
	waiting := len(p.ready.items)
	short := waiting > 0 && p.free <= 0
	// This is called after each pump, so only a change is logged, and the clock is read only then.
	if p.loggedShort == short {
		return
	}
	at := now()
	if short && p.loggedAt != 0 && at.sub(p.loggedAt) < slotsLogInterval {
		return
	}
	p.loggedShort, p.loggedAt = short, at
	if short {
		l.print(slog.LevelWarn, "every slot is taken, ready steps wait", "slots", p.what, "of", p.size, "waiting", waiting)
	} else {
		l.print(slog.LevelInfo, "slots are free again", "slots", p.what, "of", p.size)
	}
}

// logStoppedLocked logs that a task is blocked, or ended as stale.
func (e *engine) logStoppedLocked(message string, t *task) {
	l := e.causes
	if !l.enabled(l.stopped) {
		return
	}
	x := e.explainerLocked(t.id, l.messages)
	// The task itself, not a copy: the lock is held until the message is made.
	x.t, x.brief = t, t.state == taskBlockedByFailures
	why := x.task()
	args := []any{"task_uuid", t.id, "template", t.tpl.fullName()}
	if why.lead != nil {
		args = append(args, "step", why.lead.Name, "attempt", why.lead.Attempt)
		i, _ := t.stepIndex(why.lead.StepUUID)
		if f, failed := t.steps[i].last.fault(); failed {
			args = append(args, "error_type", f.errorType)
			if l.messages {
				args = append(args, "error", f.text())
			}
		}
	}
	l.print(l.stopped, message, append(args, "cause", why.Message)...)
}
