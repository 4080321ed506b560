package main

// `stepwell store check`: it reads every line of every file of a store, changes
// nothing, and reports what a start would do.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// fileSurvey summarizes the contents of one file.
type fileSurvey struct {
	lines  int     // without the header
	bad    int     // lines with a fault
	damage *damage // the first fault
	first  uint64  // first and last sequence of the good records
	last   uint64
	bytes  int64
}

// checkStoreFiles reports on the store in dir and passes every line to l, as a
// start would. The error is why a start would refuse the store. It takes no
// lock, so it works beside the process that has it.
func checkStoreFiles(dir string, l loader, w io.Writer) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("check store: %w", err)
	}
	return checkStore(osDisk{}, dir, l, w)
}

func checkStore(disk diskFS, dir string, l loader, w io.Writer) error {
	pinned, err := pinStore(disk, dir)
	if err != nil {
		return fmt.Errorf("check store: %w", err)
	}
	defer pinned.close()
	if pid, _ := lockNamed(disk, dir); pid != 0 {
		fmt.Fprintf(w, "the lock names process %d: while it writes, the end of the journal may look torn\n", pid)
	}
	r := &recovery{disk: pinned, dir: dir, loader: l}
	verdict := r.read()
	found := 0
	for _, name := range []string{snapshotName, journalOldName, journalName} {
		there, err := r.report(w, name)
		if err != nil {
			return fmt.Errorf("check store: %w", err)
		}
		if there {
			found++
		}
	}
	if found == 0 {
		return fmt.Errorf("check store: there is no store in %s", dir)
	}
	if verdict != nil {
		return fmt.Errorf("a start would refuse the store: %w", verdict)
	}
	fmt.Fprintf(w, "a start would continue after sequence %d\n", r.last)
	return nil
}

// lockNamed returns the pid in the lock file, and the directory that it notes; 0 and "" for none.
func lockNamed(disk diskFS, dir string) (pid int, noted string) {
	f, err := disk.open(filepath.Join(dir, lockName))
	if err != nil {
		return 0, ""
	}
	defer f.Close()
	return readLock(f)
}

// report writes what a file holds, if it exists.
func (r *recovery) report(w io.Writer, name string) (there bool, err error) {
	s, f, err := r.scan(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer f.Close()
	h, err := readHeader(name, s)
	if err != nil {
		fmt.Fprintln(w, err) // the error names the file; the others are still worth a report
		return true, nil
	}
	survey, err := surveyLines(name, s)
	if err != nil {
		return true, err
	}
	fmt.Fprintf(w, "%s: %d bytes, %s, %s\n", name, survey.bytes, counted(survey.lines, "line", "lines"), survey.sequences(h))
	switch {
	case survey.damage == nil:
	case r.torn > 0 && r.isNewest(name) && survey.damage.line == r.tornLine:
		fmt.Fprintf(w, "%s: torn from line %d on: a start cuts the last %d bytes off\n", name, r.tornLine, r.torn)
	default:
		fmt.Fprintf(w, "%v (bad lines in total: %d)\n", survey.damage, survey.bad)
	}
	if name == journalOldName && r.dropOld {
		fmt.Fprintf(w, "%s: not needed, the snapshot covers it\n", name)
	}
	return true, nil
}

func (r *recovery) isNewest(name string) bool {
	return len(r.files) > 0 && name == r.files[len(r.files)-1]
}

// surveyLines reads the lines after the header.
func surveyLines(name string, s *journalScanner) (fileSurvey, error) {
	var v fileSurvey
	for {
		line, whole, err := s.next()
		if err == io.EOF {
			v.bytes = s.end
			return v, nil
		}
		if err != nil {
			return v, fmt.Errorf("read %s: %w", name, err)
		}
		if name != snapshotName || !bytes.HasPrefix(line, []byte(endHead)) {
			v.lines++
		}
		v.note(name, s.number, line, whole)
	}
}

func (v *fileSurvey) note(name string, number int, line []byte, whole bool) {
	seq, fault := uint64(0), lineFault(line)
	if fault == "" && name != snapshotName {
		seq, fault = recordSeq(line)
	}
	if !whole {
		fault = "the line is incomplete"
	}
	if fault == "" && seq != 0 && v.last != 0 && seq <= v.last {
		fault = fmt.Sprintf("sequence %d comes after %d", seq, v.last)
	}
	if fault != "" {
		v.bad++
		v.damage = cmp.Or(v.damage, &damage{name, number, fault})
		return
	}
	v.first, v.last = cmp.Or(v.first, seq), seq
}

// sequences describes the sequences in the file.
func (v *fileSurvey) sequences(h storeHeader) string {
	switch {
	case h.Snapshot != "":
		return fmt.Sprintf("covers sequence 1 to %d, %d lines expected", h.Seq, h.Count)
	case v.first == 0:
		return fmt.Sprintf("no records, the first would be %d", h.From)
	}
	return fmt.Sprintf("sequence %d to %d", v.first, v.last)
}
