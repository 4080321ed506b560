package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

const benchBody = 500 // bytes

// BenchmarkJournalCommit is append and wait by 1, 16 and 64 goroutines.
// BenchmarkBareCommit is what it is measured against.
func BenchmarkJournalCommit(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { benchCommit(b, writers) })
	}
}

func benchCommit(b *testing.B, writers int) {
	o := diskOptions(nil)
	o.dir, o.fs = b.TempDir(), osDisk{}
	j, err := openJournal(o, &gathered{})
	if err != nil {
		b.Fatal(err)
	}
	body := append([]byte(`"pad":"`), bytes.Repeat([]byte("x"), benchBody-8)...)
	body = append(body, '"')
	var mu sync.Mutex // the store's
	var seq uint64
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				mu.Lock()
				if err := j.reserve(); err != nil {
					b.Error(err)
				}
				seq++
				n := seq
				j.append(n, body)
				mu.Unlock()
				if err := j.wait(b.Context(), n); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(b.N)/float64(j.status().syncs), "records/sync")
	if err := j.close(); err != nil {
		b.Error(err)
	}
}

// BenchmarkBareCommit is write and sync in a loop, of as many records at once.
func BenchmarkBareCommit(b *testing.B) {
	for _, group := range []int{1, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("group=%d", group), func(b *testing.B) {
			f, err := osDisk{}.create(filepath.Join(b.TempDir(), "bare"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			buf := make([]byte, group*(benchBody+30))
			pos := int64(0)
			for n := 0; n < b.N; n += group {
				if _, err := f.WriteAt(buf, pos); err != nil {
					b.Fatal(err)
				}
				if err := f.sync(); err != nil {
					b.Fatal(err)
				}
				pos += int64(len(buf))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkJournalAppend is what a record costs under the store's lock; there is
// no flusher, the buffer is emptied now and then.
func BenchmarkJournalAppend(b *testing.B) {
	j := newJournal(diskOptions(nil))
	j.space.room.Store(math.MaxInt64)
	body := bytes.Repeat([]byte("x"), benchBody)
	b.ReportAllocs()
	seq := uint64(0)
	for b.Loop() {
		if err := j.reserve(); err != nil {
			b.Fatal(err)
		}
		seq++
		j.append(seq, body)
		if len(j.buf) > keepBuffer {
			j.buf = j.buf[:0]
		}
	}
}

// countingLoader looks at nothing but the number of lines.
type countingLoader struct{ lines int }

func (c *countingLoader) snapshotLine([]byte) error   { c.lines++; return nil }
func (c *countingLoader) record(uint64, []byte) error { c.lines++; return nil }

// BenchmarkRecovery reads a snapshot of 1,000,000 lines of 900 bytes from the
// system's cache.
func BenchmarkRecovery(b *testing.B) {
	const lines, size = 1_000_000, 900
	disk, dir := osDisk{}, b.TempDir()
	o := diskOptions(nil)
	o.dir, o.fs = dir, disk
	j, err := openJournal(o, &gathered{})
	if err != nil {
		b.Fatal(err)
	}
	line := append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), size-len(sumTail)-10)...)
	line = append(line, '"')
	s, err := j.startSnapshot()
	if err != nil {
		b.Fatal(err)
	}
	for range lines {
		if err := s.add(line); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.commit(); err != nil {
		b.Fatal(err)
	}
	if err := j.close(); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, snapshotName))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	b.ReportAllocs()
	for b.Loop() {
		c := &countingLoader{}
		r := &recovery{disk: disk, dir: dir, loader: c}
		if err := r.read(); err != nil || c.lines != lines {
			b.Fatalf("read %d lines: %v", c.lines, err)
		}
	}
}
