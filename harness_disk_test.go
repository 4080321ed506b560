package main

// A file system in memory for tests: it can fail at chosen operations, stop at any operation,
// and show what a crash leaves behind.

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

var errDead = errors.New("the machine is off")

// diskFault makes matching operations fail.
type diskFault struct {
	op, file string // file is the base name
	skip     int    // number of matching ones that succeed first
	times    int    // number of those that fail then; 0 for all
	err      error
	half     bool // a write writes half of it
	after    bool // the operation fails although it was done
	clean    bool // a sync leaves its pages clean: they are seen, and no later sync writes them
}

// memDisk is the file system.
type memDisk struct {
	mu       sync.Mutex
	names    map[string]*memNode // as processes see them
	kept     map[string]*memNode // as of the last sync of the directory
	moves    []memMove           // of names since then
	faults   []*diskFault
	capacity int64 // bytes; no limit when 0
	plain    bool  // has no fallocate
	ops      int   // operations that change something, so far
	dieAt    int   // all operations from this one on fail; 0 for none
	log      []string
	written  chan struct{} // if set, receives a value for every write
	synced   chan struct{} // if set, receives a value for every sync
	locked   bool
}

// memMove is a change of names: a file leaves one, and gets another. Either may be "".
type memMove struct {
	from, to string
	node     *memNode
}

func (m memMove) apply(names map[string]*memNode) {
	if m.from != "" {
		delete(names, m.from)
	}
	if m.to != "" {
		names[m.to] = m.node
	}
}

// move changes names. d.mu is held.
func (d *memDisk) move(from, to string, n *memNode) {
	m := memMove{from, to, n}
	m.apply(d.names)
	d.moves = append(d.moves, m)
}

// memNode is a file.
type memNode struct {
	data    []byte
	kept    []byte // as of the last sync
	changed int    // offset from which on data and kept may differ
	blocks  int64
}

func newMemNode(data, kept []byte) *memNode { return &memNode{data: data, kept: kept} }

// memFile is an open file.
type memFile struct {
	disk *memDisk
	name string
	node *memNode
	at   int64
}

func newMemDisk() *memDisk {
	return &memDisk{names: map[string]*memNode{}, kept: map[string]*memNode{}}
}

// memDiskWith returns a disk with these files, synced.
func memDiskWith(dir string, files map[string]string) *memDisk {
	d := newMemDisk()
	for name, text := range files {
		n := newMemNode([]byte(text), []byte(text))
		d.names[filepath.Join(dir, name)] = n
	}
	d.kept = maps.Clone(d.names)
	return d
}

// files returns the contents by base name.
func (d *memDisk) files() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := map[string]string{}
	for name, n := range d.names {
		m[filepath.Base(name)] = string(n.data)
	}
	return m
}

// crash returns the disk as the next start finds it: with the names and data as seen before, or
// only those that were synced. If shape is given, it makes the data of a file from what was
// synced and what was seen.
func (d *memDisk) crash(keepNames, keepData bool, shape func(kept, data []byte) []byte) *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.kept
	if keepNames {
		names = d.names
	}
	return memCrash(names, func(n *memNode) []byte {
		switch {
		case shape != nil:
			return shape(n.kept, n.data)
		case keepData:
			return n.data
		}
		return n.kept
	})
}

// crashAny returns the disk as the next start may find it, with some of the changes of names that were not synced.
func (d *memDisk) crashAny(keep func() bool, shape func(kept, data []byte) []byte) *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := maps.Clone(d.kept)
	for _, m := range d.moves {
		if keep() {
			m.apply(names)
		}
	}
	return memCrash(names, func(n *memNode) []byte { return shape(n.kept, n.data) })
}

// memCrash returns a disk with these names, and what a crash left of each file.
func memCrash(names map[string]*memNode, left func(*memNode) []byte) *memDisk {
	c, nodes := newMemDisk(), map[*memNode]*memNode{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name]
		if nodes[n] == nil {
			data := left(n)
			nodes[n] = newMemNode(slices.Clone(data), slices.Clone(data))
		}
		c.names[name] = nodes[n]
	}
	c.kept = maps.Clone(c.names)
	return c
}

// restart returns the same disk for the next process. The machine stayed on, so unsynced data
// is there, and still not synced.
func (d *memDisk) restart() *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, nodes := newMemDisk(), map[*memNode]*memNode{}
	copyNode := func(n *memNode) *memNode {
		if n != nil && nodes[n] == nil {
			nodes[n] = newMemNode(slices.Clone(n.data), slices.Clone(n.kept))
			nodes[n].changed = n.changed
		}
		return nodes[n]
	}
	copyNames := func(names map[string]*memNode) map[string]*memNode {
		m := map[string]*memNode{}
		for name, n := range names {
			m[name] = copyNode(n)
		}
		return m
	}
	c.names, c.kept = copyNames(d.names), copyNames(d.kept)
	for _, m := range d.moves {
		c.moves = append(c.moves, memMove{m.from, m.to, copyNode(m.node)})
	}
	return c
}

// setCapacity changes the size of the disk.
func (d *memDisk) setCapacity(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = n
}

// used returns how many bytes the files take.
func (d *memDisk) used() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, node := range d.names {
		n += max(node.blocks, int64(len(node.data)))
	}
	return n
}

// fail adds faults.
func (d *memDisk) fail(faults ...diskFault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range faults {
		d.faults = append(d.faults, &f)
	}
}

// count returns how many operations of this kind a file had.
func (d *memDisk) count(op, file string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, entry := range d.log {
		if entry == op+" "+file {
			n++
		}
	}
	return n
}

// begin counts an operation and returns the fault that applies. d.mu is held.
func (d *memDisk) begin(op, name string) *diskFault {
	base := filepath.Base(name)
	d.log = append(d.log, op+" "+base)
	if op != "open" && op != "read" && op != "free" {
		d.ops++
	}
	if d.dieAt > 0 && d.ops >= d.dieAt {
		return &diskFault{err: errDead, half: d.ops == d.dieAt}
	}
	for _, f := range d.faults {
		if f.op != op || f.file != base || f.err == nil {
			continue
		}
		if f.skip > 0 {
			f.skip--
			continue
		}
		hit := *f
		hit.err = &fs.PathError{Op: op, Path: name, Err: f.err}
		if f.times--; f.times == 0 {
			f.err = nil
		}
		return &hit
	}
	return nil
}

// on is do for an open file, by the name that it has by now.
func (f *memFile) on(op string, work func(half bool) error) error {
	f.disk.mu.Lock()
	name := f.name
	for now, n := range f.disk.names {
		if n == f.node {
			name = now
		}
	}
	f.disk.mu.Unlock()
	return f.disk.do(op, name, work)
}

// do runs an operation under the lock, with its fault.
func (d *memDisk) do(op, name string, work func(half bool) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.begin(op, name)
	if f == nil {
		return work(false)
	}
	if f.after || f.half && op == "write" || f.clean {
		work(f.half || f.clean)
	}
	return f.err
}

func (d *memDisk) makeDir(dir string) error {
	return d.do("mkdir", dir, func(bool) error { return nil })
}

func (d *memDisk) open(name string) (diskFile, error) { return d.openAs("open", name) }

func (d *memDisk) edit(name string) (diskFile, error) { return d.openAs("edit", name) }

func (d *memDisk) openAs(op, name string) (f diskFile, err error) {
	err = d.do(op, name, func(bool) error {
		n := d.names[name]
		if n == nil {
			return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
		f = &memFile{disk: d, name: name, node: n}
		return nil
	})
	return f, err
}

func (d *memDisk) create(name string) (f diskFile, err error) {
	err = d.do("create", name, func(bool) error {
		if d.names[name] == nil {
			d.move("", name, newMemNode(nil, nil))
		}
		n := d.names[name]
		n.data, n.changed, n.blocks = nil, 0, 0
		f = &memFile{disk: d, name: name, node: n}
		return nil
	})
	return f, err
}

func (d *memDisk) rename(from, to string) error {
	return d.do("rename", from, func(bool) error {
		if d.names[from] == nil {
			return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
		}
		if d.names[from] == d.names[to] {
			return nil // as POSIX says of two names of one file
		}
		d.move(from, to, d.names[from])
		return nil
	})
}

func (d *memDisk) remove(name string) error {
	return d.do("remove", name, func(bool) error {
		if d.names[name] == nil {
			return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
		}
		d.move(name, "", nil)
		return nil
	})
}

func (d *memDisk) syncDir(dir string) error {
	return d.do("syncdir", dir, func(bool) error {
		d.kept, d.moves = maps.Clone(d.names), nil
		return nil
	})
}

func (d *memDisk) free(dir string) (n int64, err error) {
	err = d.do("free", dir, func(bool) error {
		n = d.freeLocked()
		return nil
	})
	return n, err
}

func (d *memDisk) freeLocked() int64 {
	if d.capacity == 0 {
		return 1 << 40
	}
	n := d.capacity
	for _, node := range d.names {
		n -= max(node.blocks, int64(len(node.data)))
	}
	return n
}

func (d *memDisk) lock(name string) (l dirLock, err error) {
	err = d.do("lock", name, func(bool) error {
		if d.locked {
			return lockHeld(filepath.Dir(name), strings.NewReader("1\n"))
		}
		d.locked = true
		l = memLock{d, filepath.Dir(name)}
		return nil
	})
	return l, err
}

type memLock struct {
	disk *memDisk
	dir  string
}

func (l memLock) syncDir() error { return l.disk.syncDir(l.dir) }

func (l memLock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	l.disk.locked = false
	return nil
}

func (f *memFile) Read(p []byte) (n int, err error) {
	err = f.on("read", func(bool) error {
		if f.at >= int64(len(f.node.data)) {
			return io.EOF
		}
		n = copy(p, f.node.data[f.at:])
		f.at += int64(n)
		return nil
	})
	return n, err
}

func (f *memFile) ReadAt(p []byte, off int64) (n int, err error) {
	at := *f
	at.at = off
	return at.Read(p)
}

func (f *memFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.on("write", func(half bool) error {
		if half {
			p = p[:len(p)/2]
		}
		end := off + int64(len(p))
		if grows := end - max(f.node.blocks, int64(len(f.node.data))); grows > f.disk.freeLocked() {
			return &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
		}
		if end > int64(len(f.node.data)) {
			f.node.data = append(f.node.data, make([]byte, end-int64(len(f.node.data)))...)
		}
		n = copy(f.node.data[off:], p)
		f.node.changed = min(f.node.changed, int(off))
		return nil
	})
	tell(f.disk.written)
	return n, err
}

func (f *memFile) sync() error {
	err := f.on("sync", func(clean bool) error {
		if clean {
			f.node.changed = len(f.node.data)
			return nil
		}
		same := min(f.node.changed, len(f.node.data))
		lost := make([]byte, max(same-len(f.node.kept), 0)) // of pages that a failed sync left clean
		f.node.kept = append(append(f.node.kept, lost...)[:same], f.node.data[same:]...)
		f.node.changed = len(f.node.kept)
		return nil
	})
	tell(f.disk.synced)
	return err
}

func tell(c chan struct{}) {
	if c != nil {
		c <- struct{}{}
	}
}

func (f *memFile) allocate(off, n int64) error {
	return f.on("allocate", func(bool) error {
		if f.disk.plain {
			return syscall.EOPNOTSUPP
		}
		end := max(off+n, f.node.blocks)
		if end-max(f.node.blocks, int64(len(f.node.data))) > f.disk.freeLocked() {
			return syscall.ENOSPC
		}
		f.node.blocks = end
		return nil
	})
}

func (f *memFile) truncate(size int64) error {
	return f.on("truncate", func(bool) error {
		f.node.changed = min(f.node.changed, int(size), len(f.node.data))
		longer := make([]byte, max(int(size)-len(f.node.data), 0))
		f.node.data = append(f.node.data, longer...)[:size]
		f.node.blocks = 0
		return nil
	})
}

func (f *memFile) size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return int64(len(f.node.data)), nil
}

func (f *memFile) Close() error { return nil }
