package main

// `stepwell store check`: it reads a store as a start would, changes nothing, and reports what it found.

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
)

// checkStoreFile reports on the file of a store. The error is why a start would refuse it. It takes no lock, so it works
// beside the process that has it: what that appends meanwhile is not read.
func checkStoreFile(o *journalOptions, path string, w io.Writer) error {
	s, r, err := readStore(o, path)
	if err != nil {
		return fmt.Errorf("a start would refuse the store: %w", err)
	}
	fmt.Fprintf(w, "%s: %d bytes, of which %d are records; record %d is the last\n", path, r.bytes, r.bytes-r.compacted, r.last)
	if r.torn > 0 {
		fmt.Fprintf(w, "line %d: an unfinished write: a start cuts the last %d bytes off\n", r.tornLine, r.torn)
	}
	if n := len(r.lives); n > 0 {
		fmt.Fprintf(w, "%s wrote it, the last one with store.sync = %q\n", counted(n, "process", "processes"),
			cmp.Or(r.lives[n-1].sync, syncAlways.String()))
	}
	states := []string{}
	for i, n := range s.counts().tasks {
		if n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, taskState(i)))
		}
	}
	tasks, _ := s.size()
	fmt.Fprintf(w, "every record applies: %s (%s)\n", counted(tasks, "task", "tasks"), cmp.Or(strings.Join(states, ", "), "none"))
	return nil
}

// readStore reads the file of a store into a store that must not be changed. It takes no lock and changes nothing.
func readStore(o *journalOptions, path string) (*store, *storeReader, error) {
	o.fs = cmp.Or(o.fs, diskFS(osDisk{}))
	f, err := o.fs.open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	s := unchangingStore(o.log)
	l := &restorer{s: s}
	r, err := readStoreFile(o, f, path, l)
	if err == nil {
		err = l.finish(r)
	}
	if err == nil {
		s.journal.of.id = cmp.Or(r.header.store, s.journal.of.id)
	}
	return s, r, err
}

// unchangingStore returns an empty store to read a state into, whatever the service keeps.
func unchangingStore(log *slog.Logger) *store {
	s := newStore(nil, log)
	s.journal, s.events.domain.keep = closedJournal(), math.MaxInt
	return s
}
