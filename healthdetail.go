package main

// /health/detailed of both roles: how hard the service works, beside whether it
// works. Nothing here makes it not ready.

import (
	"fmt"
	"net/http"
	"time"
)

// From where on a check is degraded.
const (
	queueWarning  = 80              // percent of engine.max_queued
	bufferWarning = 4 << 20         // bytes that wait to be written to the journal
	timerPatience = 2 * time.Second // how late a timer may fire
)

// writeDetailed answers 200 whatever the checks came to.
func writeDetailed(w http.ResponseWriter, v readyView) error {
	v.Status = healthyWord
	for _, c := range v.Checks {
		if c.Status != healthyWord {
			v.Status = degradedWord
		}
	}
	return writeJSON(w, http.StatusOK, v)
}

// detailedHealth is the orchestration role's checks: those of readiness, and
// how full everything is that can be full.
func (s *service) detailedHealth() map[string]checkView {
	checks, load := s.readiness()
	checks["pool_utilization"] = s.slotCheck(load)
	checks["queue_depth"] = s.queueCheck(load)
	checks["channel_saturation"] = s.bufferCheck()
	if s.keeper != nil {
		checks["fixture"] = s.keeper.check()
	}
	return checks
}

// detailedWorkerHealth is the worker role's checks.
func (s *service) detailedWorkerHealth() map[string]checkView {
	checks, load := s.workerChecks()
	checks["circuit_breakers"] = noBreaker
	checks["event_system"], checks["step_processing"] = workerAlone, workerAlone
	if s.engine != nil {
		checks["event_system"] = s.checked("timers fire when they are due", s.checkTimers)
		checks["step_processing"] = s.processingCheck(load)
	}
	return checks
}

// unanswered is a check that needs the engine's answer, without one.
var unanswered = checkView{Status: unknownWord, Message: "the scheduler does not answer"}

// graded is a check that is degraded from some level on.
func graded(degraded bool, format string, args ...any) checkView {
	v := checkView{Status: healthyWord, Message: fmt.Sprintf(format, args...)}
	if degraded {
		v.Status = degradedWord
	}
	return v
}

// slotCheck is whether there is a slot left for each kind of handler.
func (s *service) slotCheck(l *engineLoad) checkView {
	if l == nil {
		return unanswered
	}
	c := &s.cfg.Worker
	return graded(l.localFree <= 0 || l.httpFree <= 0,
		"%d of %d slots for builtins and programs and %d of %d for HTTP handlers are taken",
		c.Concurrency-l.localFree, c.Concurrency, c.HTTPConcurrency-l.httpFree, c.HTTPConcurrency)
}

// queueCheck is how near the ready steps are to the number at which new tasks
// are refused.
func (s *service) queueCheck(l *engineLoad) checkView {
	if l == nil {
		return unanswered
	}
	n, most := l.localQueued+l.httpQueued, s.cfg.Engine.MaxQueued
	if n >= most {
		return checkView{Status: unhealthyWord,
			Message: fmt.Sprintf("%d steps wait for a slot; new tasks are refused from %d on", n, most)}
	}
	return graded(n*100 >= most*queueWarning, "%d of at most %d steps wait for a slot", n, most)
}

// bufferCheck is whether the disk keeps up with the changes.
func (s *service) bufferCheck() checkView {
	n := s.store.journal.status().backlog
	if s.store.journal.behind() != nil {
		return checkView{Status: unhealthyWord,
			Message: fmt.Sprintf("%d bytes wait to be written to the journal; no new task is taken", n)}
	}
	return graded(n >= bufferWarning, "%d bytes wait to be written to the journal", n)
}

// processingCheck is whether ready steps wait for others to end.
func (s *service) processingCheck(l *engineLoad) checkView {
	if l == nil {
		return unanswered
	}
	starved := l.localQueued > 0 && l.localFree <= 0 || l.httpQueued > 0 && l.httpFree <= 0
	return graded(starved, "%d steps wait for a slot", l.localQueued+l.httpQueued)
}

// checkTimers is whether delays end in time; those of a virtual clock always do.
func (s *service) checkTimers() error {
	c, ok := s.clock.(interface{ overdue() time.Duration })
	if !ok {
		return nil
	}
	if late := c.overdue(); late > timerPatience {
		return fmt.Errorf("timers fire %s late", late.Round(time.Second))
	}
	return nil
}
