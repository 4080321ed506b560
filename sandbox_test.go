package main

import (
	"testing"
)

func BenchmarkSandbox(b *testing.B) {
	s := newFixtureServer(b, serviceTest{})
	b.ReportAllocs()
	for b.Loop() {
		a := s.do("POST", "/_stepwell/sandboxes", "").want(201)
		b.StopTimer()
		s.do("DELETE", "/_stepwell/sandboxes/"+a.text("name"), "").want(204)
		b.StartTimer()
	}
}
