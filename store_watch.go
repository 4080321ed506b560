package main

// Noticing that another process changed the files, or that the disk damaged them: a quick look each second, and a
// verification of all checksums once a day, on request, and when the quick look is not conclusive.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"time"
)

// fileWatch knows what the files were at the last look.
type fileWatch struct {
	suspected chan struct{} // holds a token if somebody else may have changed a file
	faults    atomic.Uint64 // times that files were found changed or damaged, since the start
	renewals  atomic.Uint64 // times that the store was rewritten, since the start
	checked   atomic.Int64  // instant of the last reading of all files that found nothing; 0 before

	turn  chan struct{}        // holds a token while a name comes to lead to another file: the disk may take long
	noted map[string]fileNoted // by name; owned by the holder of the write turn
}

// fileNoted is a file at a look.
type fileNoted struct {
	id      fileID
	changed time.Time // zero if unknown
	writes  uint64    // bytes that the store itself had written to the journal
}

// replacing calls do, which makes a name lead to another file.
func (w *fileWatch) replacing(name string, do func() error) error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	// The next look notes the new file. Otherwise it would report it as somebody else's.
	delete(w.noted, name)
	return do()
}

// forget forgets the last look.
func (w *fileWatch) forget() {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	clear(w.noted)
}

// tailLength is how many bytes of the end of the journal a look compares.
const tailLength = 512

// journalTail is the end of the records in a journal, as they were written.
type journalTail struct {
	end  int64
	text []byte
}

// note notes the end of a write up to an offset.
func (t *journalTail) note(buf []byte, end int64) {
	t.end, t.text = end, append(t.text[:0], buf[max(0, len(buf)-tailLength):]...)
}

// read notes the end of a file that was just opened or made.
func (t *journalTail) read(f diskFile, end int64) {
	text := make([]byte, min(tailLength, end))
	if n, err := f.ReadAt(text, end-int64(len(text))); err == nil || n == len(text) {
		t.note(text, end)
	}
}

// look fails the journal if somebody else changed its files, as far as a quick look shows it. The holder of the write
// turn calls it.
func (j *journal) look() error {
	if err := j.checkPlace(true); err != nil {
		return err
	}
	err := j.newest.look()
	if err == nil {
		err = j.lookAtNames()
	}
	if err != nil {
		return j.fail(err)
	}
	return nil
}

// look returns an error unless the file has its length, its last records, and those of the last look.
func (f *journalFile) look() error {
	size, err := f.file.size()
	switch {
	case err != nil:
		return err
	case size < f.end:
		return changedJournal("it has %d bytes of %d", size, f.end)
	case size > max(f.end, f.zeros):
		return changedJournal("it has %d bytes more than were written", size-max(f.end, f.zeros))
	}
	for _, t := range []*journalTail{&f.seen, &f.tail} {
		got := make([]byte, len(t.text))
		if _, err := f.file.ReadAt(got, t.end-int64(len(got))); err != nil && err != io.EOF {
			return err
		}
		if !bytes.Equal(got, t.text) {
			return changedJournal("the records before byte %d differ", t.end)
		}
	}
	f.seen.note(f.tail.text, f.tail.end)
	return nil
}

// changedJournal returns the error about a journal that somebody else changed.
func changedJournal(format string, args ...any) error {
	return &misplaced{journalName + " was changed by another process: " + fmt.Sprintf(format, args...)}
}

// lookAtNames returns an error if a name leads to another file than at the last look. A file that was touched is
// suspected.
func (j *journal) lookAtNames() error {
	w := &j.watch
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	for _, name := range []string{snapshotName, journalOldName, journalName} {
		var now fileNoted
		var err error
		now.id, now.changed, err = j.o.fs.identify(j.files.path(name))
		if name == journalName {
			now.writes = j.newest.written.Load()
		}
		was, known := w.noted[name]
		switch {
		case errors.Is(err, fs.ErrNotExist) && !known:
			continue
		case errors.Is(err, fs.ErrNotExist):
			return &misplaced{name + " was removed"}
		case err != nil:
			return err
		case known && now.id != was.id:
			return &misplaced{name + " was replaced by another file"}
		case known && now.writes == was.writes && !now.changed.Equal(was.changed): // and not by the store
			offerToken(w.suspected)
		}
		w.noted[name] = now
	}
	return nil
}

// verify reads all files as a start would, at pace bytes a second, or as fast as it can if pace is 0. If the files
// are not as they were written, it fails the journal and returns what it found.
func (j *journal) verify(ctx context.Context, pace int64) (found, err error) {
	var files *pinnedStore
	var last, renewals uint64
	var end int64
	// Between two groups, so that the files that are opened end where these figures say.
	err = j.ask(func() (err error) {
		if broken, _ := j.groups.ended(); broken != nil {
			return broken
		}
		last, end, renewals = j.newest.last, j.newest.end, j.watch.renewals.Load()
		files, err = pinStore(j.o.fs, j.o.dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer files.close()
	r := &recovery{disk: files, dir: j.o.dir, loader: unloaded{}, until: ctx, pace: pace}
	found = r.read()
	if found == nil && (r.last != last || r.bytes != end) {
		found = fmt.Errorf("%s ends at sequence %d, byte %d, and was written up to sequence %d, byte %d",
			journalName, r.last, r.bytes, last, end)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case found == nil:
		j.watch.checked.Store(int64(j.o.now()))
		return nil, nil
	}
	found = &misplaced{fmt.Sprintf("the files are not as they were written: %v", found)}
	// A store that failed or was rewritten since has other files by now.
	return found, j.ask(func() error {
		if broken, _ := j.groups.ended(); broken == nil && j.watch.renewals.Load() == renewals {
			j.fail(found)
		}
		return nil
	})
}

// unloaded loads nothing of what is read.
type unloaded struct{}

func (unloaded) expect(int)                      {}
func (unloaded) snapshotLine(*checkedLine) error { return nil }
func (unloaded) record(*checkedLine) error       { return nil }
