package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestActs compares what operators did by a plain reading of all records with store.acts, and after a restart.
func TestActs(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{testTemplate("manual", stepSpec{name: "a", callable: "Outside"})}, config: retaining(40)}
	s := openTestService(t, o)
	r := rand.New(rand.NewPCG(5, 5))
	for n := range 60 { // some of them are dropped
		id := mustCreate(t, s, "manual").id
		by := fmt.Sprintf("actor %d", r.IntN(3))
		act := stepRequest{action: choose(r, actionFail, actionResolve, actionComplete), by: by, reason: fmt.Sprint("reason ", n),
			result: []byte("1"), err: &stepError{message: "no", errorType: "E"}, who: taskActor{subject: "subject"}}
		if r.IntN(4) > 0 {
			_, _, err := s.operator.act(t.Context(), id, must(s.store.view(id))(t).stepID(0), &act)
			noError(t, err)
		}
		o.clock.(*virtualClock).set(s.clock.now().add(time.Second))
	}
	settle(s)
	check := func(when string) {
		t.Helper()
		want := map[string]bool{} // by reason
		for _, sl := range s.store.tasks.slots {
			if sl == nil {
				continue
			}
			v := must(sl.task())(t)
			for entry := range logEntries(v.log) {
				if r := must(decodeRecord(entry))(t); r.kind == recOperator {
					want[r.by+" "+r.reason] = true
				}
			}
		}
		all := must(s.store.acts(actQuery{}, nil))(t)
		if len(want) == 0 || len(all) != len(want) {
			t.Fatalf("%s: %d acts; want %d", when, len(all), len(want))
		}
		for i, a := range all {
			if by, subject := a.first.who(); !want[by+" "+a.first.why()] || subject != "subject" || len(a.tasks) != 1 || a.steps != 1 {
				t.Errorf("%s: unexpected act %+v", when, a)
			}
			if i > 0 && a.first.seq > all[i-1].first.seq {
				t.Errorf("%s: act %d comes after an earlier one", when, i)
			}
		}
		since := all[len(all)/2].first.at
		for _, a := range must(s.store.acts(actQuery{since: since, actor: "actor 1"}, nil))(t) {
			if by, _ := a.first.who(); by != "actor 1" || a.first.at <= since {
				t.Errorf("%s: act of %s at %s; want those of actor 1 after %s", when, by, a.first.at.zoned(), since.zoned())
			}
		}
	}
	check("before a restart")
	s.finish(t.Context())
	s.close()
	s = openTestService(t, o)
	check("after a restart")
}

// BenchmarkActs asks for what operators did to 100,000 tasks, one act each: for all, for the newest 1,000, and for none.
func BenchmarkActs(b *testing.B) {
	svc, large := stuckService(b, 100_000, 20)
	since := must(svc.store.acts(actQuery{}, nil))(b)[1000].first.at.zoned()
	for b.Loop() {
		for name, query := range map[string]string{"all": "", "newest": "?since=" + since, "none": "?since=2100-01-01T00:00:00Z"} {
			large.ask(b, storedRequest{"/v1/audit" + query, name})
		}
	}
	for name := range large.times {
		cpu, _ := percentiles(large.cpu[name])
		b.ReportMetric(float64(cpu.Microseconds()), name+"-cpu-µs")
	}
}
