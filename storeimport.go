package main

// A store made from a state document: in memory, or as the files of a directory,
// all or nothing.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
)

// openStoreWith opens an empty store with the state of a document.
func openStoreWith(o journalOptions, state io.Reader, keepEvents int, c clock, log *slog.Logger) (*store, error) {
	if !o.memory {
		if _, err := importStore(o, state, log); err != nil {
			return nil, err
		}
		return openStore(o, keepEvents, c, log)
	}
	s, err := openStore(o, keepEvents, c, log)
	if err != nil {
		return nil, err
	}
	return s, s.readState(state)
}

// importStore makes the files of a store from a document in a directory that
// holds none. They are written under temporary names, and the snapshot gets its
// name before the journal: what a crash leaves is no store, or all of it.
func importStore(o journalOptions, state io.Reader, log *slog.Logger) (*store, error) {
	if o.fs == nil {
		o.fs = osDisk{}
	}
	if err := o.fs.makeDir(o.dir); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", o.dir, err)
	}
	j := newJournal(o)
	lock, err := o.fs.lock(j.path(lockName))
	if err != nil {
		return nil, fmt.Errorf("lock data directory %s: %w", o.dir, err)
	}
	defer lock.Close()
	if err := j.holdsNothing(); err != nil {
		return nil, err
	}
	s := newStore(nil, log)
	s.journal = newJournal(journalOptions{memory: true})
	if err := s.readState(state); err != nil {
		return nil, err
	}
	if err := s.writeFiles(j); err != nil {
		return nil, fmt.Errorf("import into %s: %w", o.dir, err)
	}
	return s, nil
}

// holdsNothing refuses a directory with the files of a store.
func (j *journal) holdsNothing() error {
	for _, name := range []string{journalName, journalOldName, snapshotName} {
		f, err := j.o.fs.open(j.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			f.Close()
			err = fmt.Errorf("data directory %s holds a store already (%s): a state is taken into an empty one only",
				j.o.dir, name)
		}
		return err
	}
	return nil
}

// writeFiles writes the store as a snapshot and an empty journal after it.
func (s *store) writeFiles(j *journal) error {
	f, _, err := j.newFile(s.seq + 1)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := j.o.fs.syncDir(j.o.dir); err != nil {
		return err
	}
	w := &snapshotWriter{j: j, size: snapshotHeaderSize, covered: s.seq}
	if err := w.openFile(); err != nil {
		return err
	}
	defer w.file.Close()
	if err := s.writeSnapshot(w, len(s.slots), s.analytics.freeze(), w.covered); err != nil {
		return err
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	if err := w.seal(); err != nil {
		return err
	}
	if err := j.o.fs.rename(j.path(journalTempName), j.path(journalName)); err != nil {
		return err
	}
	return j.o.fs.syncDir(j.o.dir)
}

// openSeeded opens a service, with the state of a file unless seed is empty.
func openSeeded(seed string, o serviceOptions) (*service, error) {
	if seed == "" {
		return openService(o)
	}
	f, err := os.Open(seed)
	if err != nil {
		return nil, fmt.Errorf("--seed: %w", err)
	}
	defer f.Close()
	o.state = f
	s, err := openService(o)
	if err != nil {
		return nil, fmt.Errorf("--seed %s: %w", seed, err)
	}
	return s, nil
}
