package main

import "testing"

// TestMountAgreesWithTheRole runs random worlds and compares every task on both
// surfaces.
func TestMountAgreesWithTheRole(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		l := newRandomWorld(t, 1000+seed)
		for range 40 {
			l.operate()
		}
		api := newOrchestrationAPI(l.s, nil)
		var want mountFigures
		for n, id := range l.tasks {
			if n%3 == 0 {
				goStale(t, l.s, id)
			}
			checkAgreement(t, api, id.String())
			want.addTask(l.view(id))
		}
		if got, err := mountFiguresOf(l.s.store); got != want || err != nil {
			t.Errorf("got figures %+v, %v; want what the tasks come to, %+v", got, err, want)
		}
		closeTestService(t, l.s)
	}
}

// goStale ends a task as stale, if its state allows it.
func goStale(t *testing.T, s *service, id uuid) {
	t.Helper()
	must(s.store.update(func(c *change) error {
		v, err := c.task(id)
		if err != nil {
			return err
		}
		if _, ok := v.state.next(taskStale); !ok {
			return nil
		}
		return c.append(v, &record{kind: recStale, step: -1, stale: &staleMark{limit: 1, reason: noDLQReason}})
	}))(t)
}

// addTask counts a task step by step.
func (v *mountFigures) addTask(t *task) {
	v.Tasks.add(t.state.brief(), 1)
	for i := range t.steps {
		s := &t.steps[i]
		v.Steps.add(s.state.brief(), 1)
		switch {
		case s.state == stepWaitingForRetry:
			v.Retries.InBackoff++
		case s.state == stepInError && (s.attempts == 0 || t.def(i).retry.Retryable && s.attempts < s.maxAttempts):
			v.Retries.RetryableErrors++
		case s.state == stepInError:
			v.Retries.ExhaustedRetries++
		}
	}
}
