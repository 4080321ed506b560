package main

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
)

func TestOperationalState(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	if got := s.do("GET", "/health/detailed", "").want(200).text("info.operational_state"); got != "Normal" {
		t.Errorf("got %s; want Normal", got)
	}
	s.svc.draining.Store(true)
	if got := s.do("GET", "/health/ready", "").want(503).text("info.operational_state"); got != "GracefulShutdown" {
		t.Errorf("got %s; want GracefulShutdown", got)
	}
}

// TestDLQOutlivesTheProcess restarts from the journal, from a snapshot, and from a
// snapshot made after that.
func TestDLQOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: dlqTemplates}
	s := openTestService(t, o)
	var ended, open *task
	for i := range 3 {
		open = mustAct(t, s, mustCreate(t, s, "pair"), 0, failAction)
		ended = mustAct(t, s, mustCreate(t, s, "one"), 0, failAction)
		ended = mustAct(t, s, ended, 0, resolveAction)
		q := &investigation{status: dlqManuallyResolved, notes: new("n"), by: new("ops"), metadata: []byte(`{"i":1}`)}
		if i == 0 {
			investigateNewest(t, s, ended, q)
			investigateNewest(t, s, open, &investigation{status: noDLQStatus, notes: new("")})
		}
	}
	before := dlqText(t, s)
	snapshot := func(s *service) {
		noError(t, s.store.compact())
	}
	for i, prepare := range []func(*service){func(*service) {}, snapshot, snapshot} {
		s = reopenTestService(t, s, o)
		if after := dlqText(t, s); after != before {
			t.Errorf("after restart %d the queue is\n%s\nwant\n%s", i, after, before)
		}
		prepare(s)
	}
	investigateNewest(t, s, ended, &investigation{status: dlqCancelled})
	investigateNewest(t, s, open, &investigation{status: dlqCancelled})
	before = dlqText(t, s)
	closeTestService(t, s)
	s = newTestService(t, o)
	if after := dlqText(t, s); after != before {
		t.Errorf("updates after a snapshot became\n%s\nwant\n%s", after, before)
	}
}

func investigateNewest(t *testing.T, s *service, v *task, q *investigation) {
	t.Helper()
	of := must(s.dlq.ofTask(v.id, true, nil))(t)
	noError(t, s.dlq.update(t.Context(), of.DLQEntryUUID, q, nil))
}

// dlqText returns everything that the queue shows.
func dlqText(t *testing.T, s *service) string {
	t.Helper()
	entries, _ := s.dlq.entries(dlqFilter{}, 0, 1000, true)
	queue, _ := s.dlq.queue(dlqFilter{}, 0, 1000, true)
	return string(jsonOf([]any{entries, queue, s.dlq.stats()}))
}

// queueOf returns a part of the investigation queue as it is answered.
func queueOf(t *testing.T, s *service, skip, limit int) (queue []struct {
	DLQReason     string  `json:"dlq_reason"`
	PriorityScore float64 `json:"priority_score"`
}) {
	t.Helper()
	part, _ := s.dlq.queue(dlqFilter{}, skip, limit, true)
	noError(t, json.Unmarshal(jsonOf(part), &queue))
	return queue
}

// TestSubscribersAfterARestore restores an exported state, and the file with all its records:
// each subscriber gets exactly the events that it did not have, and what was given up is still listed.
func TestSubscribersAfterARestore(t *testing.T) {
	r := newReceiver(t)
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""))},
		config: subscribed([]string{"shop", r.url, "*"})}
	s := openTestService(t, o)
	mustCreate(t, s, "pay")
	awaitDeliveries(t, s, deliveryDelivered)
	r.answer(410)
	mustCreate(t, s, "pay")
	awaitDeliveries(t, s, deliveryDead, deliveryDelivered)
	r.answer(503)
	mustCreate(t, s, "pay")
	mustCreate(t, s, "pay")
	r.await(3)
	want := domainOf(t, s, eventFilter{}, 0)[2:]
	state := exported(t, s)
	closeTestService(t, s)
	path := filepath.Join(o.dir, storeName)
	file, _, err := readStore(&journalOptions{log: slog.New(slog.DiscardHandler)}, path)
	noError(t, err)
	file.clock = o.clock
	if got := exported(t, &service{store: file}); got != state {
		t.Errorf("the file gives\n%s\nwant\n%s", got, state)
	}
	records := string(readFile(t, path))
	for name, restored := range map[string]serviceTest{
		"in memory":  {state: &stateSource{document: strings.NewReader(state)}},
		"imported":   {dir: t.TempDir(), state: &stateSource{document: strings.NewReader(state)}},
		"the file":   {dir: t.TempDir(), state: &stateSource{document: strings.NewReader(records)}},
		"not at all": {dir: o.dir},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t)
			restored.clock, restored.extra = newVirtualClock(testStart), o.extra
			restored.config = subscribed([]string{"shop", r.url, "*"})
			s := openTestService(t, restored)
			if got := r.await(2); string(jsonOf(got)) != string(jsonOf(want)) {
				t.Errorf("got %v; want %v", got, want)
			}
			all := []string{deliveryDelivered, deliveryDelivered, deliveryDead, deliveryDelivered}
			awaitDeliveries(t, s, all...)
			mustCreate(t, s, "pay")
			if got := r.await(3); len(got) != 3 || got[2].Seq <= want[1].Seq {
				t.Errorf("got %v; want the event of the new task", got)
			}
			closeTestService(t, s)
		})
	}
}
