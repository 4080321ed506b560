package main

// The causes that explain gives, told in the log as they arise: once each, and
// written by a goroutine of their own, because they arise under the store's lock.

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	causeBacklog   = 256         // causes that wait to be written; what comes beyond is not told
	maxOutsideTold = 1000        // templates' callables that are told of
	slotsToldEvery = time.Minute // at most, for each kind of slot
)

// outsideKey names what waits for an outside actor: told once, not for each task.
type outsideKey struct {
	tpl      *template
	callable string
}

// slotsTold is what was told of a kind of slot.
type slotsTold struct {
	short bool
	at    instant
}

// causeLog tells causes. The store's mutex guards outside, local and web.
type causeLog struct {
	log      *slog.Logger
	handlers *handlerSet
	backlog  chan func()
	quit     chan struct{}
	once     sync.Once
	writing  sync.WaitGroup

	outside    map[outsideKey]bool
	local, web slotsTold
}

func newCauseLog(log *slog.Logger, h *handlerSet) *causeLog {
	return &causeLog{
		log: log, handlers: h, backlog: make(chan func(), causeBacklog), quit: make(chan struct{}),
		outside: map[outsideKey]bool{},
	}
}

func (l *causeLog) start() { l.writing.Go(l.run) }

// stop returns when what was told is written.
func (l *causeLog) stop() {
	l.once.Do(func() { close(l.quit) })
	l.writing.Wait()
}

func (l *causeLog) run() {
	for {
		select {
		case write := <-l.backlog:
			write()
			continue
		default:
		}
		select {
		case write := <-l.backlog:
			write()
		case <-l.quit:
			return
		}
	}
}

// tell has a line written, unless too many wait for it.
func (l *causeLog) tell(level slog.Level, message string, args ...any) {
	select {
	case l.backlog <- func() { l.log.Log(context.Background(), level, message, args...) }:
	default:
	}
}

func (l *causeLog) enabled(level slog.Level) bool { return l.log.Enabled(context.Background(), level) }

// tellStep tells the cause of a step of a live task.
func (l *causeLog) tellStep(level slog.Level, what string, t *task, i int) {
	if !l.enabled(level) {
		return
	}
	x := explainer{t: t, handlers: l.handlers}
	e := x.step(i)
	l.tell(level, what, "task_uuid", t.id, "template", t.tpl.fullName(), "step", e.Name, "cause", e.Message)
}

func (l *causeLog) retryScheduled(t *task, i int) {
	l.tellStep(slog.LevelDebug, "a step waits for its retry", t, i)
}

// awaitsActor tells once of a template and callable, with the first task.
func (l *causeLog) awaitsActor(t *task, i int) {
	k := outsideKey{t.tpl, t.def(i).callable}
	if l.outside[k] || len(l.outside) >= maxOutsideTold {
		return
	}
	l.outside[k] = true
	l.tell(slog.LevelInfo, "a step waits for an outside actor, and so will others like it", "task_uuid", t.id,
		"template", t.tpl.fullName(), "step", t.def(i).name, "callable", redactName(k.callable))
}

func (l *causeLog) blocked(t *task) {
	if !l.enabled(slog.LevelInfo) {
		return
	}
	x := explainer{t: t, handlers: l.handlers}
	x.findStoppers()
	l.tell(slog.LevelInfo, "a task is blocked", "task_uuid", t.id, "template", t.tpl.fullName(), "cause", x.stoppedBy())
}

// slots tells when steps begin to wait for slots of a kind, and when none does
// any more.
func (l *causeLog) slots(told *slotsTold, what string, waiting, all int, short bool, now func() instant) {
	if told.short == short {
		return
	}
	at := now()
	if short && told.at != 0 && at.sub(told.at) < slotsToldEvery {
		return
	}
	told.short, told.at = short, at
	if short {
		l.tell(slog.LevelWarn, "every slot is taken, ready steps wait", "slots", what, "of", all, "waiting", waiting)
	} else {
		l.tell(slog.LevelInfo, "slots are free again", "slots", what, "of", all)
	}
}
