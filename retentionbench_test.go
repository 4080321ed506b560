package main

// What it costs to keep few tasks of many: memory and latency must stay flat.

import (
	"io"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkChurn creates diamonds of which the last thousand are kept, with one
// unfinished task in front, and reports the live heap early and at the end.
//
//	go test -run XXX -bench Churn -benchtime 1000000x .
func BenchmarkChurn(b *testing.B) {
	svc := openTestService(b, serviceTest{log: io.Discard, config: retaining(1000), extra: []string{
		benchTemplate("diamond", "builtin:noop", diamondParents), benchTemplate("manual", "Outside::Actor", diamondParents),
	}})
	defer closeTestService(b, svc)
	create := func(body string) {
		q, err := parseTaskRequest([]byte(body))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := svc.createTask(b.Context(), q, true); err != nil {
			b.Fatal(err)
		}
	}
	create(manualBody)
	times := make([]time.Duration, 0, b.N)
	early := b.N / 20
	for i := range b.N {
		if i == early {
			b.ReportMetric(liveHeap()-float64(cap(times))*8/1e6, "early-MB")
		}
		at := time.Now()
		create(diamondBody)
		times = append(times, time.Since(at))
	}
	b.ReportMetric(liveHeap()-float64(cap(times))*8/1e6, "end-MB")
	report := func(name string, part []time.Duration) {
		part = slices.Clone(part)
		slices.Sort(part)
		b.ReportMetric(float64(part[len(part)*999/1000].Microseconds()), name)
	}
	report("early-p99.9-µs", times[:len(times)/4+1])
	report("late-p99.9-µs", times[len(times)*3/4:])
}

// liveHeap is the megabytes that are still in use after a collection.
func liveHeap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}
