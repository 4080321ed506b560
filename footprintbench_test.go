package main

// Benchmarks of what the program takes as it is released: its size, its memory
// while it idles, and how soon it answers.

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// buildRelease builds the program as it is released: static and stripped.
func buildRelease(b *testing.B) string {
	b.Helper()
	out := filepath.Join(b.TempDir(), "stepwell")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	return out
}

// BenchmarkBinary reports the size of the released program. Its time is the build's.
//
//	go test -run XXX -bench Binary -benchtime 1x .
func BenchmarkBinary(b *testing.B) {
	for b.Loop() {
		info, err := os.Stat(buildRelease(b))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/1e6, "MB")
	}
}

// BenchmarkIdle is from exec to the first answered request of the released
// program, and the memory that it holds then, with an empty store.
//
//	go test -run XXX -bench Idle -benchtime 10x .
func BenchmarkIdle(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("looks into /proc")
	}
	file := buildRelease(b)
	for b.Loop() {
		b.StopTimer()
		args := serveArguments("--data", b.TempDir(), "--quiet")
		b.StartTimer()
		p := launchFile(b, file, nil, nil, args...)
		if err := p.awaitReady(); err != nil {
			b.Fatal(err)
		}
		c := dialClient(b, p.ready.OrchestrationURL)
		if err := expect(200)(c.do("GET", "/v1/tasks?per_page=1", "")); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(residentBytes(b, p.cmd.Process.Pid))/1e6, "RSS-MB")
		c.conn.Close()
		p.stop()
		b.StartTimer()
	}
}
