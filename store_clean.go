package main

// journal.clean, the note of a clean stop. It proves what the files held when their process ended with all of it synced:
//
//	{"clean":N,"bytes":B,"inode":I,"records":R,"snapshot":{"seq":S,"bytes":L,"lines":C},"sum":"…"}
//
// N is the last record of the journal, B its length, I its inode, and R the CRC-32C of what follows its header. S is the
// sequence that the snapshot covers, L its length, and C the CRC-32C in its last line; they are 0 if there is none. Notes
// of earlier versions end with the inode.
//
// A start refuses files that have less than the note beside them, or something else: somebody changed them in place. It
// removes the note before it writes to the journal. After a crash a removed note may be back beside a journal that went
// on; the journal then begins with all that the note names. Beside another file, such as a copy, a note proves nothing.
//
// The note also spares a start work. After a sync has failed, the system's memory may show what the disk does not have,
// and further syncs succeed. So what a start has read counts as durable only once it was written again and synced, unless
// the note says that all of it was synced before the process ended.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// cleanNote is what a clean stop left.
type cleanNote struct {
	Last     uint64        `json:"clean"`
	Bytes    int64         `json:"bytes"`
	Inode    uint64        `json:"inode"`
	Records  *uint32       `json:"records,omitempty"`
	Snapshot *snapshotMark `json:"snapshot,omitempty"` // nil if it is unknown
}

// snapshotMark distinguishes a snapshot from others; it is zero for none.
type snapshotMark struct {
	Seq   uint64   `json:"seq"`
	Bytes int64    `json:"bytes"`
	Lines lineSums `json:"lines"`
}

// noteClean notes that the whole journal was synced. Without the note, which need not be
// durable, the next start takes longer.
func (j *journal) noteClean() {
	id, err := j.newest.file.id()
	if err != nil {
		return
	}
	note := cleanNote{j.newest.last, j.newest.end, id.inode, &j.newest.sum, j.snapshots.mark.Load()}
	line, _ := json.Marshal(note) // cannot fail
	line = line[:len(line)-1]
	if f, err := j.o.fs.create(j.files.path(cleanName)); err == nil {
		f.WriteAt(appendSumTail(line, crc32.Checksum(line, castagnoli)), 0)
		f.Close()
	}
}

// noteOn returns the note of a clean stop if it is about this journal's file, or nil.
func (r *recovery) noteOn(name string) *cleanNote {
	f, err := r.disk.open(r.path(cleanName))
	if err != nil {
		return nil
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, 1<<10))
	id, _, idErr := r.disk.identify(r.path(name))
	var n cleanNote
	if err != nil || idErr != nil || lineFault(bytes.TrimSuffix(line, []byte("\n"))) != "" ||
		json.Unmarshal(line, &n) != nil || n.Inode != id.inode {
		return nil
	}
	return &n
}

// checkNote refuses files that are not as a clean stop left them, and notes whether they are exactly that.
func (r *recovery) checkNote() error {
	if len(r.files) == 0 {
		return nil
	}
	name := r.files[len(r.files)-1]
	n := r.noteOn(name)
	if n == nil {
		return nil
	}
	reason, err := r.differs(n, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if reason != "" {
		return errors.New(reason + `; "stepwell store repair" writes what is there as a new store and lists what is missing`)
	}
	r.clean = n.Records != nil && r.isAt(n) && r.torn == 0 && !r.undo && !r.imported
	return nil
}

// isAt reports whether the journal ends where a clean stop ended it.
func (r *recovery) isAt(n *cleanNote) bool { return r.last == n.Last && r.bytes == n.Bytes }

// differs returns what is not as a clean stop left it, or "".
func (r *recovery) differs(n *cleanNote, name string) (string, error) {
	if r.last < n.Last {
		return fmt.Sprintf("%s ends at sequence %d, but the last clean stop left it at %d: %s missing", name, r.last, n.Last,
			counted(int(n.Last-r.last), "record is", "records are")), nil
	}
	f, err := r.disk.open(r.path(name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, size := crc32.New(castagnoli), n.Bytes-r.header
	if _, err = io.CopyN(h, io.NewSectionReader(f, r.header, size), size); err != nil && err != io.EOF {
		return "", err
	}
	r.records = h.Sum32()
	if err == io.EOF || n.Records != nil && *n.Records != r.records {
		return name + " was changed since the last clean stop: its records are not those that were written", nil
	}
	if now := r.snapshot; r.isAt(n) && n.Snapshot != nil && *n.Snapshot != now {
		return fmt.Sprintf("%s is not the one that the last clean stop left: that covers sequence %d and has %d bytes, and this one %d and %d",
			snapshotName, n.Snapshot.Seq, n.Snapshot.Bytes, now.Seq, now.Bytes), nil
	}
	return "", nil
}
