package main

// The file operations of journal and snapshot, behind an interface so that
// tests can make each of them fail; their form on a real disk; the space
// reserved for the journal; a disk that falls behind or hangs; the lock of the
// data directory; and waiting for the disk.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// diskFS is a file system. A missing file gives fs.ErrNotExist. Anything but a regular
// file gives an error, and is neither followed nor replaced.
type diskFS interface {
	makeDir(dir string) error             // with its parents, mode 0700, synced; no error if it exists
	writableByOthers(dir string) bool     // whether other users may change its names
	open(name string) (diskFile, error)   // for reading
	edit(name string) (diskFile, error)   // for writing, as it is
	create(name string) (diskFile, error) // for writing, emptied or new with mode 0600
	rename(from, to string) error         // replaces to
	remove(name string) error             // a file
	syncDir(dir string) error             // makes names durable
	free(dir string) (int64, error)       // bytes that can be written below dir
	lock(name string) (dirLock, error)    // exclusive, until closed or the process ends
	// identify returns which file or directory has a name, and when it was last changed, see changeTime.
	identify(name string) (fileID, time.Time, error)
	link(from, to string) error          // gives a file a second name, where there is none
	watch(dir string) (readWatch, error) // what other processes read in dir
}

// readWatch tells what was read in a directory.
type readWatch interface {
	events(f func(name string, opened int))
	close()
}

// fileID tells a file from all others that exist at the same time.
type fileID struct{ device, inode uint64 }

// dirLock is the lock of a directory, which it keeps open.
type dirLock interface {
	io.Closer
	syncDir() error // makes names durable, and needs no more descriptors
}

// diskFile is an open file.
type diskFile interface {
	io.Reader
	io.ReaderAt
	io.WriterAt
	io.Closer
	id() (fileID, error)
	size() (int64, error)
	sync() error                 // makes contents and size durable
	allocate(off, n int64) error // reserves blocks; the size stays
	truncate(size int64) error   // also frees blocks reserved beyond size
	unused() error               // nil if it has no name and nobody else has it open; EAGAIN if somebody has
}

// osDisk is the real file system.
type osDisk struct{}

// osFile is an open file of osDisk. Its errors name the file as it is called in use, not
// as it was created.
type osFile struct {
	*os.File
	name string
}

func (d osDisk) makeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := d.makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.syncDir(parent)
}

func (osDisk) writableByOthers(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	owner := ownerOf(info)
	return info.Mode().Perm()&0o022 != 0 || owner != 0 && owner != os.Geteuid()
}

func (osDisk) open(name string) (diskFile, error) { return osOpen(name, os.O_RDONLY) }

func (osDisk) edit(name string) (diskFile, error) { return osOpen(name, os.O_RDWR) }

func (osDisk) create(name string) (diskFile, error) {
	return osOpen(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func osOpen(name string, flag int) (diskFile, error) {
	f, err := openRegular(name, flag|syscall.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	return osFile{f, strings.TrimSuffix(name, ".tmp")}, nil
}

func (osDisk) rename(from, to string) error { return renameRegular(from, to) }

func (osDisk) remove(name string) error { return removeRegular(name) }

func (osDisk) syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncNames(f)
}

// syncNames syncs an open directory.
func syncNames(dir *os.File) error {
	// Some network and user-space file systems cannot sync directories.
	if err := dir.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// named makes an error of the file name it.
func (f osFile) named(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		p.Path = f.name
	}
	return err
}

func (f osFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	return n, f.named(err)
}

func (f osFile) Close() error { return f.named(f.File.Close()) }

func (osDisk) link(from, to string) error { return os.Link(from, to) }

func (osDisk) watch(dir string) (readWatch, error) { return watchDir(dir) }

func (osDisk) identify(name string) (fileID, time.Time, error) { return idOf(os.Stat(name)) }

func (f osFile) id() (fileID, error) {
	id, _, err := idOf(f.Stat())
	return id, f.named(err)
}

func idOf(info fs.FileInfo, err error) (fileID, time.Time, error) {
	if err != nil {
		return fileID{}, time.Time{}, err
	}
	s := info.Sys().(*syscall.Stat_t)
	return fileID{uint64(s.Dev), uint64(s.Ino)}, changeTime(s), nil
}

func (f osFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, f.named(err)
	}
	return info.Size(), nil
}

func (f osFile) truncate(size int64) error { return f.named(f.Truncate(size)) }

func (f osFile) sync() error { return f.named(syncData(f.File)) }

func (f osFile) allocate(off, n int64) error { return f.named(reserveBlocks(f.File, off, n)) }

func (f osFile) unused() error {
	if !isUnlinked(f.File) {
		return fs.ErrExist
	}
	return soleOpener(f.File)
}

func (osDisk) free(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// Reading beside a running service, which may replace each file at any moment.

// pinnedStore is a file system on which the files of a store stay as they were at one moment.
type pinnedStore struct {
	diskFS
	files map[string]pinnedFile // by path
}

// pinnedFile is an open file, read only as far as it went then. Its reader closes nothing.
type pinnedFile struct {
	diskFile
	*io.SectionReader
}

func (f pinnedFile) Read(p []byte) (int, error) { return f.SectionReader.Read(p) }

func (f pinnedFile) ReadAt(p []byte, off int64) (int, error) { return f.SectionReader.ReadAt(p, off) }

func (f pinnedFile) size() (int64, error) { return f.Size(), nil }

func (pinnedFile) Close() error { return nil }

// pinStore opens the files of a store. They belong together: when the last one was opened,
// the others were still those of their names.
func pinStore(disk diskFS, dir string) (*pinnedStore, error) {
	for {
		p := &pinnedStore{disk, map[string]pinnedFile{}}
		err := p.take(dir)
		if err == nil && p.together(dir) {
			return p, nil
		}
		p.close()
		if err != nil {
			return nil, err
		}
	}
}

// take opens the snapshot before the journals, which must have every record that it shows.
func (p *pinnedStore) take(dir string) error {
	for _, name := range storeFiles {
		path := filepath.Join(dir, name)
		f, err := p.diskFS.open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		n, err := f.size()
		p.files[path] = pinnedFile{f, io.NewSectionReader(f, 0, n)}
		if err != nil {
			return err
		}
	}
	return nil
}

// together reports whether every name still leads to the file that was opened, or to none.
func (p *pinnedStore) together(dir string) bool {
	for _, name := range storeFiles {
		path := filepath.Join(dir, name)
		now, _, err := p.identify(path)
		f, there := p.files[path]
		if !there {
			if !errors.Is(err, fs.ErrNotExist) {
				return false
			}
			continue
		}
		if id, idErr := f.id(); err != nil || idErr != nil || id != now {
			return false
		}
	}
	return true
}

func (p *pinnedStore) open(name string) (diskFile, error) {
	f, there := p.files[name]
	switch {
	case there:
		f.Seek(0, io.SeekStart)
		return f, nil
	case filepath.Base(name) == lockName:
		return p.diskFS.open(name)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (p *pinnedStore) close() {
	for _, f := range p.files {
		f.diskFile.Close()
	}
}

// Copies of the directory beside a running service, as cp and tar make them: they list it, then
// read one file after the other. They belong together if no name comes to lead to another file
// meanwhile.

const (
	copyPatience = 15 * time.Second      // without a sign of a copy after which it has ended
	copyRecheck  = 10 * time.Millisecond // how often to look whether it has
	copyGrowth   = 8                     // times the size at which a snapshot is due: then copies count no more
)

// copyWatch notices copies.
type copyWatch struct {
	reads readWatch       // nil if the system does not tell
	since time.Time       // the last sign of a copy that goes on; zero for none
	taken map[string]bool // files that were opened, read and closed since the directory was listed
	open  map[string]int  // how often files were opened since then and are open still
	leave <-chan struct{} // closed when nobody waits for the end of a copy any more
}

// underWay reports whether a copy goes on: the directory was listed, and not every file of the
// store was read and closed since. One call may copy gigabytes, so a file that is open is a sign.
func (c *copyWatch) underWay(disk diskFS, dir string) bool {
	if c.reads == nil {
		return false
	}
	c.look()
	if !c.since.IsZero() && !c.reading() && (time.Since(c.since) > copyPatience || c.whole(disk, dir)) {
		c.since = time.Time{}
	}
	return !c.since.IsZero()
}

// look notes what happened since the last look.
func (c *copyWatch) look() {
	c.reads.events(func(name string, opened int) {
		switch {
		case name == "":
			c.since, c.taken, c.open = time.Now(), map[string]bool{}, map[string]int{}
		case !c.since.IsZero():
			c.since = time.Now()
			c.taken[name] = c.taken[name] || opened < 0 && c.open[name] > 0
			c.open[name] = max(c.open[name]+opened, 0)
		}
	})
}

// reading reports whether a file is open that was opened since the directory was listed.
func (c *copyWatch) reading() bool {
	for _, n := range c.open {
		if n > 0 {
			return true
		}
	}
	return false
}

// opened opens a file to write it, which is no sign of a copy.
func (j *journal) opened(name string, open func(string) (diskFile, error)) (diskFile, error) {
	f, err := open(j.path(name))
	if err == nil && j.copies.reads != nil {
		if j.copies.look(); j.copies.open[name] > 0 {
			j.copies.open[name]--
		}
	}
	return f, err
}

// vanish calls do, which takes a name away, as soon as no copy goes on.
func (j *journal) vanish(name string, do func() error) error {
	if err := j.awaitCopies(); err != nil {
		return err
	}
	return j.vanishNow(name, do)
}

// vanishNow calls do, which takes a name away. The caller has just seen that no copy goes on. A copy opens
// every name that it has listed: if one began just before do, it finds an empty file of that name, which stays
// for the next snapshot and means nothing.
func (j *journal) vanishNow(name string, do func() error) error {
	err := do()
	if err == nil && j.copied() {
		if f, err := j.opened(name, j.o.fs.create); err == nil {
			f.Close()
		}
	}
	return err
}

// whole reports whether a copy has every file.
func (c *copyWatch) whole(disk diskFS, dir string) bool {
	for _, name := range append(storeFiles[:], snapshotTemp) {
		if _, _, err := disk.identify(filepath.Join(dir, name)); err == nil && !c.taken[name] {
			return false
		}
	}
	return true
}

// dropFile closes a temporary file, and removes it unless its name leads to another file. Beside a
// copy, or if that fails, it leaves the file for the next snapshot or start.
func (j *journal) dropFile(f diskFile, name string) {
	mine, idErr := f.id()
	copied := j.copied()
	if copied {
		f.truncate(0)
	}
	f.Close()
	now, _, err := j.o.fs.identify(j.path(name))
	if err == nil && idErr == nil && now == mine && !copied {
		err = j.vanish(name, func() error { return j.o.fs.remove(j.path(name)) })
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.o.log.Warn("a temporary file stays until the next start", "file", j.path(name), "error", err)
	}
}

// copied reports whether a copy goes on for which the journal's files stay as they are. The
// journal must not outgrow its snapshot without end.
func (j *journal) copied() bool {
	return j.fileBytes.Load()+j.oldBytes.Load() < copyGrowth*j.snapshotThreshold() && j.copies.underWay(j.o.fs, j.o.dir)
}

// awaitSwitch returns when names may come to lead to other files: the directory is still that of this
// store, and nobody copies it, not even since the flusher was asked, which may take as long as a sync.
func (j *journal) awaitSwitch() error {
	for {
		if err := j.awaitCopies(); err != nil {
			return err
		}
		if err := j.ask(func() error { return j.checkPlace(true) }); err != nil || !j.copied() {
			return err
		}
	}
}

// awaitCopies returns when no copy goes on or nothing can be written any more, or an error if the journal is
// closed first.
func (j *journal) awaitCopies() error {
	for !j.halted.Load() && j.copied() {
		if closedWithin(context.Background(), j.copies.leave, copyRecheck) == nil {
			return errors.New("the service ends while its files are copied")
		}
	}
	return nil
}

// Disk space reserved for the journal ahead of its end, so that a full disk is
// noticed before a change is applied, not while it is written.

const (
	maxRecord  = 6 << 20           // most bytes of one change in the journal
	spaceStep  = 8 << 20           // bytes reserved at a time
	spaceAhead = 8 << 20           // fewest bytes kept reserved ahead of what is buffered
	spaceRetry = time.Second       // time between tries on a full disk
	spaceShut  = math.MinInt64 / 2 // room of a journal that accepts nothing any more
)

// journalSpace keeps blocks reserved behind the end of one file.
type journalSpace struct {
	room  atomic.Int64  // bytes reserved and neither written nor buffered
	extra atomic.Int64  // bytes wanted besides, for a change that is about to be made
	full  atomic.Bool   // the last extension found no space
	short chan struct{} // holds a token after full was set: the flusher tries again later
	disk  diskFS
	dir   string
	log   *slog.Logger

	mu   sync.Mutex // one extension at a time, none while the file changes
	file diskFile
	end  int64 // offset up to which blocks are reserved
}

// extend reserves blocks until the room is spaceAhead. It is cheap if the room
// is there.
func (s *journalSpace) extend() error {
	if !s.wanting() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for err == nil && s.file != nil && s.wanting() {
		if err = s.allocate(s.file, s.end, spaceStep, s.room.Load()); err == nil {
			s.end += spaceStep
			s.room.Add(spaceStep)
		}
	}
	if err == nil || s.room.Load() < spaceAhead {
		s.note(err)
	}
	return err
}

// wanting reports whether the room is too small, unless it was taken away for
// good.
func (s *journalSpace) wanting() bool {
	room := s.room.Load()
	return room < spaceAhead+s.extra.Load() && room > spaceShut/2
}

// allocate reserves n bytes from off on. On a file system that cannot, the
// bytes must be free, in addition to those promised that way before.
func (s *journalSpace) allocate(file diskFile, off, n, promised int64) error {
	// A failed reservation may keep some blocks, so look at the free space first.
	free, err := s.disk.free(s.dir)
	if err != nil {
		return err
	}
	if free < n {
		return syscall.ENOSPC
	}
	if err := file.allocate(off, n); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if free < n+max(promised, 0)+spaceStep {
		return syscall.ENOSPC
	}
	return nil
}

// note keeps the outcome of an extension, and logs changes of it.
func (s *journalSpace) note(err error) {
	was := s.full.Swap(err != nil)
	switch {
	case err != nil && !was:
		s.log.Warn("no space for the journal, changes are refused until there is", "dir", s.dir, "error", err)
	case err == nil && was:
		s.log.Info("there is space for the journal again", "dir", s.dir)
	}
	if err != nil {
		offerToken(s.short)
	}
}

// shut takes all room away for good.
func (s *journalSpace) shut() { s.room.Store(spaceShut) }

// The backlog: records in memory that are not on disk. When the disk falls
// behind, new work is refused first, then every change.

// backlogLimit is the number of bytes from which no task is created and no step
// starts. What follows from earlier work is still recorded, as long as the
// space reserved for the journal lasts; then every change is refused.
const backlogLimit = 64 << 20

// backlogRetryAfter is when a caller refused because of the backlog may try
// again.
const backlogRetryAfter = time.Second

// behind returns a refusal of new work, or nil while the disk keeps up.
func (j *journal) behind() error {
	if n := j.backlog.Load(); n >= j.most {
		return fellBehind(n)
	}
	return nil
}

func fellBehind(n int64) error {
	return &failure{kind: backpressure, retryAfter: backlogRetryAfter,
		message: fmt.Sprintf("the disk does not keep up: %d bytes wait for it; nothing was changed", n)}
}

// refusedForNow reports whether an error only says that the store takes no
// changes at present: the same change may succeed later.
func refusedForNow(err error) bool {
	kind := kindOf(err)
	return kind == unavailable || kind == backpressure
}

// A disk that hangs.

// diskWatch notices when an operation of the disk takes too long, in real time. It is for
// one operation at a time.
type diskWatch struct {
	limit time.Duration
	tell  func(late bool) // called when an operation is late, and when that one has ended

	mu    sync.Mutex
	began time.Time // of the operation; zero for none; guarded by mu, as all below
	late  bool
	timer *time.Timer
}

// during calls an operation.
func (w *diskWatch) during(op func() error) error {
	w.begin()
	defer w.end()
	return op()
}

func (w *diskWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.fire)
	} else {
		w.timer.Reset(w.limit)
	}
}

// fire tells that the operation is late, unless the timer was for one that has ended.
func (w *diskWatch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.began.IsZero() && !w.late && time.Since(w.began) >= w.limit {
		w.late = true
		w.tell(true)
	}
}

func (w *diskWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.began = time.Time{}
	if w.late {
		w.late = false
		w.tell(false)
	}
}

// noteLate notes that an operation of the disk hangs, or that one goes on. Who waits is
// answered at the first.
func (j *journal) noteLate(late bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case late && j.late == 0:
		close(j.hung)
		j.o.log.Warn("the disk hangs: changes are refused until it goes on", "dir", j.o.dir, "after", j.o.slow.String())
	case !late && j.late == 1:
		j.hung = make(chan struct{})
		j.o.log.Info("the disk goes on: changes are taken again", "dir", j.o.dir)
	}
	if late {
		j.late++
	} else {
		j.late--
	}
	j.hangs.Store(j.late > 0)
}

// hangError says that the disk hangs.
func (j *journal) hangError() error {
	return fmt.Errorf("the disk has not answered for more than %s (store.slow_seconds)", j.o.slow)
}

// spacePatience is how long a change waits for space to be reserved. It holds the store's
// lock meanwhile.
const spacePatience = time.Second

// extendSoon extends the space, and goes on without it if the disk takes long.
func (j *journal) extendSoon() {
	if !j.extending.CompareAndSwap(false, true) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.watchSpace.during(j.space.extend)
		j.extending.Store(false)
	}()
	receiveWithin(done, spacePatience)
}

// reserveFor is reserve for a change with n bytes besides.
func (j *journal) reserveFor(n int) error {
	j.space.extra.Store(int64(n))
	defer j.space.extra.Store(0)
	return j.reserveMore(maxRecord + int64(n))
}

// The lock of a data directory: flock on a file that holds the pid of the
// process that has it. The lock ends with its process; the file stays.

const lockName = "lock"

// storeLock is a lock that is held.
type storeLock struct{ file, dir *os.File }

func (d osDisk) lock(name string) (dirLock, error) {
	f, err := openRegular(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkOwn("open", name, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	err = fileCall(f, "flock", func(fd int) error {
		return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, lockHeld(filepath.Dir(name), lockHolder(f))
		}
		return nil, err
	}
	now, err := os.Stat(name)
	if err != nil || !os.SameFile(now, info) { // removed by somebody since it was opened
		f.Close()
		return d.lock(name)
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		f.Close()
		return nil, err
	}
	writePID(f)
	return &storeLock{f, dir}, nil
}

func (l *storeLock) syncDir() error { return syncNames(l.dir) }

// Close releases the lock and removes the pid. Closing the file alone would leave the
// lock to a child that has been forked and not yet closed its copy.
func (l *storeLock) Close() error {
	l.dir.Close()
	l.file.Truncate(0)
	fileCall(l.file, "flock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_UN) })
	return l.file.Close()
}

// writePID writes the pid for the error message of the next process that tries.
// It ignores errors: a full disk must not keep a store from being opened.
func writePID(f *os.File) {
	f.Truncate(0)
	f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
}

// storePlace is where a store was opened: its directory and its lock. If another directory has
// the name, or the lock is not the file that this process holds, another process may use the
// store, or nobody will ever find what is written.
type storePlace struct {
	dir, lock fileID
	changed   time.Time // of the directory, when all was in its place; zero if unknown, or just before
}

// noteWhere notes the place of a store that was just opened.
func (j *journal) noteWhere() {
	j.place.dir, _, _ = j.o.fs.identify(j.o.dir) // a disk in memory has neither
	j.place.lock, _, _ = j.o.fs.identify(j.path(lockName))
}

// misplaced is the error of a store that is not where it was opened any more.
type misplaced struct{ reason string }

func (e *misplaced) Error() string { return e.reason }

// placeRecheck is how often a store looks at all names. It is longer than the steps of the times that
// file systems note.
const placeRecheck = time.Second

// checkPlace fails the journal if the store is not where it was opened. Whoever has the turn
// calls it before anybody is told that a record is durable. A directory that was not changed has the
// same files, which are then looked at only if all is set: after a stat of the journal, Linux notes
// the exact time of its next write, and the next sync has to write that, too.
func (j *journal) checkPlace(all bool) error {
	j.mu.Lock()
	broken := j.broken
	j.mu.Unlock()
	if broken != nil {
		return broken
	}
	dir, changed, err := j.o.fs.identify(j.o.dir)
	if !all && err == nil && dir == j.place.dir && !changed.IsZero() && changed.Equal(j.place.changed) {
		return nil
	}
	file, err := j.file.id()
	if err != nil {
		return j.fail(err)
	}
	for _, p := range []struct {
		path    string
		want    fileID
		missing string
		other   string
	}{
		{j.o.dir, j.place.dir, "the data directory was removed", "the data directory was replaced by another one"},
		{j.path(lockName), j.place.lock, "the file lock was removed from the data directory, so that another process " +
			"could use it", "another process has used the data directory: its file lock is not this process's"},
		{j.path(journalName), file, journalName + " was removed", journalName + " was replaced by another file"},
	} {
		got, _, err := j.o.fs.identify(p.path)
		switch {
		case p.want == fileID{} || err == nil && got == p.want:
		case errors.Is(err, fs.ErrNotExist):
			return j.fail(&misplaced{p.missing})
		case err != nil:
			return j.fail(err)
		default:
			return j.fail(&misplaced{p.other})
		}
	}
	j.place.changed = time.Time{}
	if time.Since(changed) > placeRecheck {
		j.place.changed = changed
	}
	return nil
}

func lockHeld(dir string, pid int) error {
	if pid == 0 {
		return fmt.Errorf("data directory %s is in use by another process", dir)
	}
	return fmt.Errorf("data directory %s is in use by process %d", dir, pid)
}

// lockHolder returns the pid in a lock file; 0 for none.
func lockHolder(f io.Reader) int {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 on error
	return pid
}

// Waiting for the disk: an answer that tells of tasks, be it a success, a refusal or a
// view, is given when what it tells is durable.

// wait returns once everything up to a sequence is durable.
func (s *store) wait(ctx context.Context, seq uint64) error { return s.journal.wait(ctx, seq) }

// outwait is wait for those who also wait while the disk hangs.
func (s *store) outwait(ctx context.Context, seq uint64) error {
	return s.journal.await(ctx, seq, true)
}

// waitAll returns once every change made so far is durable.
func (s *store) waitAll(ctx context.Context) error {
	s.mu.Lock()
	seq := s.seq
	s.mu.Unlock()
	return s.wait(ctx, seq)
}

// waitTask returns once every change of a task is durable. If there is no such task,
// that includes the record that may have dropped it.
func (s *store) waitTask(ctx context.Context, id uuid) error {
	s.mu.Lock()
	seq := s.seq
	if pos, ok := s.byID.find(id); ok {
		seq = s.lastSeqLocked(pos)
	}
	s.mu.Unlock()
	return s.wait(ctx, seq)
}

// lastSeqLocked returns the sequence of the newest record of the task at a position, or 0
// if everything is durable.
func (s *store) lastSeqLocked(pos uint32) uint64 {
	if s.journal.durable() >= s.seq {
		return 0
	}
	if t := s.slots[pos].live; t != nil {
		return t.lastSeq
	}
	return s.slots[pos].line.number(`,"last":`)
}

// refuse returns a refusal once everything that it may tell of is durable.
func (s *store) refuse(ctx context.Context, refusal error) error {
	if refusedForNow(refusal) {
		return refusal // it tells of no task
	}
	return cmp.Or(s.waitAll(ctx), refusal)
}

// viewAfter returns a view of a task that was just changed, by the record with a
// sequence, once that and everything in the view are durable. A task dropped since, which
// happens if very few are kept, is returned as it was at its end.
func (s *store) viewAfter(ctx context.Context, t *task, seq uint64) (*task, error) {
	if err := s.wait(ctx, seq); err != nil {
		return nil, err
	}
	v, err := s.view(t.id)
	if kindOf(err) == taskMissing {
		s.locked(func() { v, err = t.clone(), nil })
	}
	if err != nil {
		return nil, err
	}
	return v, s.wait(ctx, v.lastSeq)
}
