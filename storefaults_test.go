package main

// What may go wrong with the files of a store, and which test does it. After each
// of these no acknowledged change is lost and none is there that nobody made, or
// the start is refused and names the damage.
//
//	the journal cut at every byte                TestRecoveryJournalCutAtEveryByte; with drops TestDropsCutAtEveryByte
//	a snapshot cut at every byte                 TestRecoverySnapshotCutAtEveryByte
//	each byte of both files flipped              TestRecoveryFlippedBytes; with drops TestDropsFlippedBytes
//	a torn group, by sectors                     TestRecoveryTornGroup
//	write, fsync failing once or for good,
//	also "failed but it happened"                TestJournalFaults
//	the same of rename, directory fsync and all
//	that a snapshot does                         TestSnapshotFaults
//	the same of an import                        TestImportAtEveryFault
//	errors of reading                            TestRecoveryReadErrors
//	killed at each operation of a store's life:
//	writing, rotation, snapshot, and start-up
//	at each operation after each of these        TestRecoveryKillPoints; with drops TestDropsKillPoints
//	the program killed under load, in start-up   TestCrash, TestEarlySignal
//	the program killed in snapshot and rotation  TestCrashInSnapshot
//	disk full, and free again                    TestJournalFullDisk, TestFullDisk, TestStartOnFullDisk, TestStopOnFullDisk
//	read-only directory, or disk                 TestReadOnlyDirectory, TestJournalOnReadOnlyDisk
//	clock going backwards                        TestIDsGoOnAfterARestart; with drops TestRetentionKeepsFigures,
//	                                             TestRetentionOnAClockThatGoesBack
//	two processes on one directory               TestOneProcessPerDirectory, TestStoreLock, TestStoreCommands
//	any bytes at all                             FuzzRecovery

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// droppingStore is the files of a store that dropped tasks before its snapshot
// and after it.
func droppingStore(t *testing.T) map[string]string {
	t.Helper()
	disk := newMemDisk()
	o := serviceTest{dir: testDir, disk: disk, clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(2)}
	s := openTestService(t, o)
	for i := range 8 {
		mustCreate(t, s, "noop", fmt.Sprintf(`"idempotency_key":"k%d"`, i%4))
		if i == 3 {
			mustCreate(t, s, "pair")
			if err := s.store.snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeTestService(t, s)
	files := disk.files()
	delete(files, lockName)
	return files
}

// reopened is what a store keeps that is made of files.
func reopened(t *testing.T, files map[string]string) (ids []uuid, err error) {
	t.Helper()
	return keptOn(t, memDiskWith(testDir, files))
}

func keptOn(t *testing.T, disk *memDisk) (ids []uuid, err error) {
	t.Helper()
	c := newVirtualClock(testStart)
	s, err := openStore(diskOptions(disk), defaultKeptEvents, c, diskOptions(disk).log)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.mu.Lock()
	checkRetention(t, s)
	s.mu.Unlock()
	return kept(&service{store: s}), nil
}

// keptAfter is what the whole lines of a journal come to, on top of a snapshot.
func keptAfter(t *testing.T, base []uuid, covered uint64, journal string) []uuid {
	t.Helper()
	ids := slices.Clone(base)
	for line := range strings.Lines(journal) {
		var r struct {
			Seq        uint64
			Task, Kind string
		}
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &r) != nil || r.Seq <= covered {
			continue
		}
		id, _ := parseUUID(r.Task)
		switch r.Kind {
		case "created":
			ids = append(ids, id)
		case "dropped":
			ids = slices.DeleteFunc(ids, func(other uuid) bool { return other == id })
		}
	}
	return ids
}

// TestDropsCutAtEveryByte: each length of the journal brings back what was kept
// after its last whole record.
func TestDropsCutAtEveryByte(t *testing.T) {
	files := droppingStore(t)
	journal := files[journalName]
	header := strings.IndexByte(journal, '\n') + 1
	files[journalName] = journal[:header]
	base, err := reopened(t, files)
	if err != nil || len(base) != 3 {
		t.Fatalf("the snapshot keeps %v, %v; want 3 tasks", base, err)
	}
	for n := header; n <= len(journal); n++ {
		files[journalName] = journal[:n]
		got, err := reopened(t, files)
		if want := keptAfter(t, base, 0, journal[:n]); err != nil || !slices.Equal(got, want) {
			t.Fatalf("cut at byte %d: got %v, %v; want %v", n, got, err, want)
		}
	}
}

// TestDropsFlippedBytes: each byte of both files changed is refused, by file and
// line, or nothing is lost.
func TestDropsFlippedBytes(t *testing.T) {
	files := droppingStore(t)
	want, err := reopened(t, files)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		for i := range len(text) {
			b := []byte(text)
			b[i] ^= 1
			files[name] = string(b)
			got, err := reopened(t, files)
			if err == nil && !slices.Equal(got, want) {
				t.Fatalf("%s, byte %d: the store keeps %v; want %v", name, i, got, want)
			}
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Fatalf("%s, byte %d: got %v; want it to name the file", name, i, err)
			}
		}
		files[name] = text
	}
}

// TestDropsKillPoints kills the machine at each operation of a store that drops
// tasks, before, in and after snapshots: what is kept then is what was after the
// last acknowledged creation, or after part of the next.
func TestDropsKillPoints(t *testing.T) {
	for at := 1; ; at++ {
		disk := newMemDisk()
		disk.dieAt = at
		states, err := dropUntilDeath(t, disk)
		for _, keep := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
			name := fmt.Sprintf("killed at operation %d, %v kept", at, keep)
			got, err := keptOn(t, disk.crash(keep[0], keep[1], nil))
			if err != nil {
				t.Fatalf("%s: a start is refused: %v", name, err)
			}
			if !slices.ContainsFunc(states, func(s []uuid) bool { return slices.Equal(s, got) }) {
				t.Fatalf("%s: the store keeps %v; want one of %v", name, got, states)
			}
		}
		if err == nil {
			if at < 30 {
				t.Errorf("the scenario took %d operations; want more", at)
			}
			return
		}
	}
}

// dropUntilDeath creates tasks, of which two are kept, and writes snapshots. It
// returns what may be kept after the first error.
func dropUntilDeath(t *testing.T, disk *memDisk) (states [][]uuid, err error) {
	t.Helper()
	c := newVirtualClock(testStart)
	s, err := openStore(diskOptions(disk), defaultKeptEvents, c, diskOptions(disk).log)
	if err != nil {
		return [][]uuid{nil}, err
	}
	s.retainUpTo(limits{count: 2})
	ids, tpl := newIDSource(c, &[32]byte{}), noopTemplate(t)
	states = [][]uuid{nil}
	for i := range 12 {
		before := kept(&service{store: s})
		id := ids.reserve(tpl.ids())
		states = [][]uuid{before, append(slices.Clone(before), id)}
		if err := createEnded(t, s, id, tpl); err != nil {
			states = append(states, kept(&service{store: s}))
			return states, err
		}
		states = [][]uuid{kept(&service{store: s})}
		if i%4 != 3 {
			continue
		}
		if err := s.snapshot(); err != nil {
			return states, err
		}
	}
	return states, s.close()
}

func noopTemplate(t *testing.T) *template {
	t.Helper()
	tpl, problems, _ := parseTemplate("extra", []byte(storyTemplates[1]), "json", "")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return tpl
}

// createEnded creates a task that ends at once, and waits until it is durable.
func createEnded(t *testing.T, s *store, id uuid, tpl *template) error {
	t.Helper()
	seq, err := s.update(func(c *change) error {
		by := &creation{template: tpl.hash, context: []byte("{}")}
		task, err := c.create(&record{kind: recCreated, task: id, created: by}, tpl)
		if err != nil {
			return err
		}
		return c.append(task, &record{kind: recRan, step: 0, startedAt: c.now, end: &ending{success: true}})
	})
	if err != nil {
		return err
	}
	return s.journal.wait(t.Context(), seq)
}

// TestRetentionOnAClockThatGoesBack: an age limit drops nothing early when the
// clock goes back, and the count goes on holding.
func TestRetentionOnAClockThatGoesBack(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates, log: io.Discard,
		config: func(c *Config) { c.Store.RetainFinishedCount, c.Store.RetainFinishedAgeHours = 2, 1 }}
	s := openTestService(t, o)
	first := mustCreate(t, s, "noop").id
	closeTestService(t, s)
	clock := newVirtualClock(testStart.add(-3 * time.Hour))
	o.clock = clock
	s = newTestService(t, o)
	second := mustCreate(t, s, "noop").id
	clock.advance(30 * time.Minute)
	wantKept(t, s, first, second)
	third := mustCreate(t, s, "noop").id
	if n := len(kept(s)); n != 2 {
		t.Errorf("%d tasks are kept; want 2", n)
	}
	if !slices.Contains(kept(s), third) {
		t.Error("the newest task was dropped")
	}
	clock.advance(5 * time.Hour)
	wantKept(t, s)
}
