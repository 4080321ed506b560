package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestStoreFilesAreRegular puts irregular files in the places of the files of a store: each is
// refused, none is followed, replaced or removed, and none delays the start.
func TestStoreFilesAreRegular(t *testing.T) {
	t.Parallel()
	open := func(_ *testing.T, path string) error {
		o := diskOptions(nil)
		o.dir, o.fs = filepath.Dir(path), osDisk{}
		j, err := openJournal(o, &gathered{})
		if err == nil {
			j.close()
		}
		return err
	}
	for _, name := range []string{lockName, journalName, journalOldName, snapshotName, journalTempName, snapshotTemp} {
		eachIrregularFile(t, name, open)
	}
	for _, name := range []string{journalName, journalTempName} {
		eachIrregularFile(t, name, func(t *testing.T, path string) error {
			o := diskOptions(nil)
			o.dir, o.fs = filepath.Dir(path), osDisk{}
			_, err := importStore(o, &stateSource{document: strings.NewReader(`{"format":1,"product":"stepwell","seq":0}`)}, o.log)
			return err
		})
	}
}
