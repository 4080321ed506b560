package e2e

// What the system calls of a program leave on disk: a trace by strace, and the model of a
// directory that it is replayed on. The model knows what was synced, and what else a crash may
// keep.

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// tracedCalls are the system calls that change files, and those that tell which file a
// descriptor is. Machines without one of them leave it out.
const tracedCalls = "?open,?openat,?openat2,?creat,?write,?pwrite64,?writev,?pwritev,?pwritev2,?fsync,?fdatasync," +
	"?sync_file_range,?truncate,?ftruncate,?fallocate,?rename,?renameat,?renameat2,?unlink,?unlinkat,?link,?linkat," +
	"?close,?dup,?dup2,?dup3,?fcntl,?copy_file_range,?sendfile,?splice"

// straceArguments returns what precedes a program and its arguments to trace it. The program
// itself is the child, so that signals reach it.
func straceArguments(file string) []string {
	return []string{"-D", "-f", "--seccomp-bpf", "-qq", "-x", "-s", "4000000",
		"-e", "trace=" + tracedCalls, "-o", file, "--"}
}

// findStrace returns the path of strace, or skips the test if it is not there or may not trace.
func findStrace(t *testing.T) string {
	t.Helper()
	file := wire.Need(t, "strace")
	args := append(straceArguments(filepath.Join(t.TempDir(), "trace")), "true")
	if text, err := exec.Command(file, args...).CombinedOutput(); err != nil {
		wire.Skip(t, "strace cannot trace here: %v %s", err, text)
	}
	return file
}

// TestFailedSyncEndsTheService has a sync fail while a handler runs: the caller that waits for it is told that the outcome
// is unknown, one line says what failed, and the process ends with exit code 1. A start has everything acknowledged.
func TestFailedSyncEndsTheService(t *testing.T) {
	slow(t)
	t.Parallel()
	strace := findStrace(t)
	h := wire.NewHeldHandler(t, 4)
	args := []string{"--data", filepath.Join(t.TempDir(), "data"), "--templates", templateDir(t, heldTemplate(h)), "--quiet"}
	p := serve(t, args...)
	p.api().create(createHeld)
	h.Await(t)
	acknowledged := p.api().create(`{"namespace":"t","name":"held"}`)
	h.Await(t)
	fault := exec.Command(strace, "-f", "-p", fmt.Sprint(p.ready.PID), "-o", filepath.Join(t.TempDir(), "trace"),
		"-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1")
	says := newOutput()
	fault.Stderr = says
	if err := fault.Start(); err != nil {
		t.Fatal(err)
	}
	defer fault.Wait()
	eventually(t, "strace is attached", func() bool { return strings.Contains(says.String(), "attached") })
	refused := p.api().do("POST", "/v1/tasks", createHeld).want(503)
	wantParts(t, "the answer", string(refused.body), "outcome unknown")
	<-p.exited
	if code := p.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("got exit code %d; want 1", code)
	}
	if said := p.stderr.String(); strings.Count(said, "sync of store.jsonl failed (input/output error)") != 1 {
		t.Errorf("got %s; want one line that says what failed", said)
	}
	p = serve(t, args...)
	p.api().do("GET", "/v1/tasks/"+acknowledged, "").want(200)
	close(h.Release)
	p.api().await(acknowledged, "complete")
	p.stop()
}

// tracedCall is one system call.
type tracedCall struct {
	name string
	args string
	ret  string // "" if the program was killed first

	strings []string // among the arguments, once they were read
	rest    string   // what follows the last one

	// For the model, while it replays the call:
	op     *diskOp   // what it does
	covers []*diskOp // what a sync makes durable
}

// traceStep is a moment of a trace: a call begins, ends, or does both while no other does.
type traceStep struct {
	call         *tracedCall
	begins, ends bool
	left         map[string][]byte // instead: the program has ended, and left these files
}

// readTrace returns the steps of a trace.
func readTrace(t *testing.T, file string) (steps []traceStep) {
	t.Helper()
	f := wire.Must(os.Open(file))(t)
	defer f.Close()
	open := map[string]*tracedCall{} // by thread
	for in := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return steps
		}
		thread, text, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		step, ok := readCall(strings.TrimLeft(text, " "), open[thread])
		if ok && step.begins {
			open[thread] = step.call
		}
		if ok {
			steps = append(steps, step)
		}
	}
}

// readCall reads a line of a trace. before is the call that its thread began last.
func readCall(text string, before *tracedCall) (step traceStep, ok bool) {
	if strings.HasPrefix(text, "+++") || strings.HasPrefix(text, "---") || text == "" {
		return step, false
	}
	if rest, resumed := strings.CutPrefix(text, "<... "); resumed {
		before.ret = result(rest)
		return traceStep{call: before, ends: true}, before.ret != ""
	}
	name, args, _ := strings.Cut(text, "(")
	c := &tracedCall{name: name}
	if begun, unfinished := strings.CutSuffix(args, " <unfinished ...>"); unfinished {
		c.args = begun
		return traceStep{call: c, begins: true}, true
	}
	c.args, c.ret = args[:max(strings.LastIndex(args, ")"), 0)], result(args)
	if end := strings.LastIndex(args, " = "); end > 0 {
		c.args = strings.TrimRight(args[:end], " )")
	}
	return traceStep{call: c, begins: true, ends: c.ret != ""}, true
}

// result returns the result of a call from the end of its line, or "" if there is none.
func result(line string) string {
	_, ret, _ := cutLast(line, " = ")
	ret, _, _ = strings.Cut(ret, " ")
	return strings.TrimPrefix(ret, "?")
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// number returns the argument at a place, of a call without text before it.
func (c *tracedCall) number(at int) int {
	n, _ := strconv.Atoi(strings.Split(c.args, ", ")[at])
	return n
}

// texts returns the texts among the arguments, and what follows the last one.
func (c *tracedCall) texts(t testing.TB) (texts []string, rest string) {
	if c.strings != nil {
		return c.strings, c.rest
	}
	c.rest = c.args
	for {
		start := strings.IndexByte(c.rest, '"')
		if start < 0 {
			return c.strings, c.rest
		}
		quoted, err := strconv.QuotedPrefix(c.rest[start:])
		if err != nil {
			t.Fatalf("the trace has %.100s: %v", c.args, err)
		}
		text, err := strconv.Unquote(quoted)
		c.rest = c.rest[start+len(quoted):]
		if err != nil || strings.HasPrefix(c.rest, "...") {
			t.Fatalf("the trace has no more than a part of %.100s (%v)", c.args, err)
		}
		c.strings = append(c.strings, text)
	}
}

// wrote reports whether one of the files has what a write wrote.
func (c *tracedCall) wrote(t testing.TB, files map[string][]byte) bool {
	text, offset := c.writeArguments(t)
	for _, data := range files {
		if offset < len(data) && strings.HasPrefix(string(data[offset:]), text) {
			return true
		}
	}
	return false
}

// writeArguments returns the data of a write, and its offset.
func (c *tracedCall) writeArguments(t testing.TB) (data string, offset int) {
	texts, rest := c.texts(t)
	_, digits, _ := cutLast(rest, ", ")
	offset, _ = strconv.Atoi(digits)
	return texts[0], offset
}

// tracedDisk is a directory as the calls of a trace leave it.
type tracedDisk struct {
	t        testing.TB
	dir      string
	noSyncs  bool              // syncs do nothing: to see that a test notices
	names    map[string]*inode // as processes see them
	kept     map[string]*inode // as of the last sync of the directory
	renaming []*diskOp         // what changed names since then
	files    map[int]*inode    // by descriptor; the directory is nil
	order    int               // of the newest operation
	inodes   int
	block    int // bytes that the disk writes as a whole or not at all
}

// blockSizes are those of disks.
var blockSizes = []int{512, 4096}

// inode is a file.
type inode struct {
	id      int
	version int // counts syncs
	kept    []byte
	pending []*diskOp // since the last sync
}

// diskOp is a change that is not synced: of the data or the size of a file, or of names.
type diskOp struct {
	order int
	done  bool
	file  *inode
	off   int
	data  []byte // nil for a change of the size, to off
	name  string // for names: the name that leads to file afterwards, if any
	gone  string // and one that leads nowhere afterwards
}

func newTracedDisk(t testing.TB, dir string) *tracedDisk {
	return &tracedDisk{t: t, dir: dir, names: map[string]*inode{}, kept: map[string]*inode{}, files: map[int]*inode{}, block: blockSizes[0]}
}

// inside returns the name of a path in the directory, which has no others below it.
func (d *tracedDisk) inside(path string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path, d.dir+"/")
	return name, ok && name != ""
}

// replay follows a step. It returns what the program sends over a connection, if anything.
func (d *tracedDisk) replay(s traceStep) (sent []byte) {
	if s.left != nil {
		d.endProcess(s.left)
		return nil
	}
	if s.begins {
		sent = d.begin(s.call)
	}
	if s.ends {
		d.end(s.call)
	}
	return sent
}

func (d *tracedDisk) begin(c *tracedCall) (sent []byte) {
	switch c.name {
	case "write", "pwrite64":
		return d.beginWrite(c)
	case "fsync", "fdatasync":
		d.beginSync(c)
	case "ftruncate":
		if f := d.files[c.number(0)]; f != nil {
			d.change(c, &diskOp{file: f, off: c.number(1)})
		}
	case "rename", "renameat", "renameat2", "link", "linkat":
		d.beginRename(c)
	case "unlink", "unlinkat":
		texts, _ := c.texts(d.t)
		if name, ok := d.inside(texts[0]); ok && d.names[name] != nil {
			d.changeNames(c, &diskOp{gone: name, file: d.names[name]})
		}
	case "fallocate":
		if f := d.files[c.number(0)]; f != nil && !strings.Contains(c.args, ", FALLOC_FL_KEEP_SIZE, ") && d.named(f) {
			d.t.Fatalf("the model of the disk lacks fallocate(%s)", c.args)
		}
	case "close": // the number may be used again before the call ends
		delete(d.files, c.number(0))
	case "open", "openat", "creat", "dup", "dup2", "dup3", "fcntl":
	default:
		if _, ours := d.files[c.number(0)]; ours || strings.Contains(c.args, d.dir) {
			d.t.Fatalf("the model of the disk lacks %s(%.200s)", c.name, c.args)
		}
	}
	return nil
}

func (d *tracedDisk) named(f *inode) bool {
	for _, other := range d.names {
		if f == other {
			return true
		}
	}
	return false
}

func (d *tracedDisk) beginWrite(c *tracedCall) (sent []byte) {
	text, offset := c.writeArguments(d.t)
	f, ours := d.files[c.number(0)]
	if !ours {
		return []byte(text)
	}
	if c.name == "write" {
		d.t.Fatalf("the model of the disk lacks a write without an offset: %.200s", c.args)
	}
	d.change(c, &diskOp{file: f, off: offset, data: []byte(text)})
	return nil
}

func (d *tracedDisk) change(c *tracedCall, op *diskOp) {
	d.order++
	op.order, c.op = d.order, op
	op.file.pending = append(op.file.pending, op)
}

func (d *tracedDisk) changeNames(c *tracedCall, op *diskOp) {
	d.order++
	op.order, c.op = d.order, op
	d.renaming = append(d.renaming, op)
}

// beginRename follows a rename, or a link, which leaves the old name there.
func (d *tracedDisk) beginRename(c *tracedCall) {
	texts, _ := c.texts(d.t)
	from, ok := d.inside(texts[0])
	to, _ := d.inside(texts[1])
	if !ok || d.names[from] == nil || d.names[from] == d.names[to] {
		return
	}
	op := &diskOp{file: d.names[from], name: to}
	if strings.HasPrefix(c.name, "rename") {
		op.gone = from
	}
	d.changeNames(c, op)
}

func (d *tracedDisk) beginSync(c *tracedCall) {
	f, ours := d.files[c.number(0)]
	c.covers = nil
	pending := d.renaming
	if f != nil {
		pending = f.pending
	}
	for _, op := range pending {
		if ours && op.done {
			c.covers = append(c.covers, op)
		}
	}
}

func (d *tracedDisk) end(c *tracedCall) {
	ret, err := strconv.Atoi(c.ret)
	if err != nil || ret < 0 {
		d.cancel(c.op)
		return
	}
	switch c.name {
	case "open", "openat", "creat":
		d.endOpen(c, ret)
	case "dup", "dup2", "dup3":
		d.copyDescriptor(c.number(0), ret)
	case "fcntl":
		if strings.Contains(c.args, "F_DUPFD") {
			d.copyDescriptor(c.number(0), ret)
		}
	case "fsync", "fdatasync":
		if !d.noSyncs {
			d.keep(c.covers)
		}
	}
	if c.op != nil {
		d.finish(c.op)
	}
}

func (d *tracedDisk) copyDescriptor(from, to int) {
	if f, ours := d.files[from]; ours {
		d.files[to] = f
	}
}

// endOpen notes the file of a descriptor, which the call may have created or emptied.
func (d *tracedDisk) endOpen(c *tracedCall, fd int) {
	texts, rest := c.texts(d.t)
	name, ok := d.inside(texts[0])
	if !ok {
		if texts[0] == d.dir {
			d.files[fd] = nil
		}
		return
	}
	f := d.names[name]
	if f == nil {
		d.inodes++
		f = &inode{id: d.inodes}
		d.changeNames(c, &diskOp{file: f, name: name})
	} else if strings.Contains(rest, "O_TRUNC") {
		d.change(c, &diskOp{file: f})
	}
	d.files[fd] = f
}

// finish notes that a change can be seen by processes.
func (d *tracedDisk) finish(op *diskOp) {
	op.done = true
	op.applyNames(d.names)
}

// cancel takes back a change that was not made after all.
func (d *tracedDisk) cancel(op *diskOp) {
	if op == nil {
		return
	}
	same := func(other *diskOp) bool { return op == other }
	d.renaming = slices.DeleteFunc(d.renaming, same)
	op.file.pending = slices.DeleteFunc(op.file.pending, same)
}

// applyNames makes the change of names, if it is one.
func (op *diskOp) applyNames(names map[string]*inode) {
	if op.gone != "" {
		delete(names, op.gone)
	}
	if op.name != "" {
		names[op.name] = op.file
	}
}

// keep makes changes durable.
func (d *tracedDisk) keep(ops []*diskOp) {
	for _, op := range ops {
		d.cancel(op)
		if op.name != "" || op.gone != "" {
			op.applyNames(d.kept)
			continue
		}
		op.file.version++
		if op.data == nil {
			op.file.kept = resized(op.file.kept, op.off)
			continue
		}
		op.file.kept = resized(op.file.kept, max(len(op.file.kept), op.off+len(op.data)))
		copy(op.file.kept[op.off:], op.data)
	}
}

// resized returns data cut or continued with zeros.
func resized(data []byte, size int) []byte {
	if size <= len(data) {
		return data[:size]
	}
	return append(data, make([]byte, size-len(data))...)
}

// endProcess decides, by the files that a killed program left, about the calls that it did not
// see the end of, and checks that the model has the same files.
func (d *tracedDisk) endProcess(left map[string][]byte) {
	for _, op := range slices.Clone(d.renaming) {
		_, there := left[cmp.Or(op.gone, op.name)]
		if op.done {
			continue
		}
		if there == (op.gone == "") {
			d.finish(op)
		} else {
			d.cancel(op)
		}
	}
	for name, f := range d.names {
		for _, op := range slices.Clone(f.pending) {
			whole := op.off+len(op.data) <= len(left[name]) && bytes.HasPrefix(left[name][op.off:], op.data)
			if op.data == nil {
				whole = len(left[name]) == op.off
			}
			if !op.done && whole {
				d.finish(op)
			} else if !op.done {
				d.cancel(op)
			}
		}
	}
	everything := d.crashWith(d.names, func(*inode) fileChoice { return fileChoice{} })
	for name, data := range left {
		if got, ok := everything.files[name]; !ok || !bytes.Equal(got.bytes(), data) {
			d.t.Fatalf("the trace does not lead to the file %s that the program left", name)
		}
	}
	if len(left) != len(everything.files) {
		d.t.Fatalf("the trace leads to %d files; the program left %d", len(everything.files), len(left))
	}
	d.files = map[int]*inode{}
}

// crashState is what one crash leaves.
type crashState struct {
	kind  string
	files map[string]crashFile
}

// crashFile is the content of a file: what was synced, and pieces of what was not.
type crashFile struct {
	inode  *inode
	size   int
	pieces []piece
}

type piece struct {
	off  int
	data []byte
}

func (f *crashFile) bytes() []byte {
	n := min(f.size, len(f.inode.kept))
	data := resized(append(make([]byte, 0, f.size), f.inode.kept[:n]...), f.size)
	for _, p := range f.pieces {
		if p.off < f.size {
			copy(data[p.off:], p.data)
		}
	}
	return data
}

// write writes the state to a directory.
func (s *crashState) write(t testing.TB, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, f := range s.files {
		writeFile(t, filepath.Join(dir, name), f.bytes())
	}
}

// key tells states with different contents apart.
func (s *crashState) key() uint64 {
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[name]
		fmt.Fprintf(h, "%s %d %d %d", name, f.inode.id, f.inode.version, f.size)
		for _, p := range f.pieces {
			fmt.Fprintf(h, " %d-%d", p.off, len(p.data))
		}
	}
	return h.Sum64()
}

// fileChoice is what a crash keeps of a file's unsynced changes: all if its functions are nil.
type fileChoice struct {
	op    func(op *diskOp) bool          // whether a change of the size is kept
	block func(op *diskOp, off int) bool // whether a block of a change of the data is kept
}

// crashWith returns the state with names and what choose says of their files.
func (d *tracedDisk) crashWith(names map[string]*inode, choose func(f *inode) fileChoice) *crashState {
	s := &crashState{files: map[string]crashFile{}}
	for name, f := range names {
		s.files[name] = f.cut(choose(f), d.block)
	}
	return s
}

// cut returns a file with the chosen ones of its unsynced changes, on a disk with blocks of this size.
func (f *inode) cut(c fileChoice, block int) crashFile {
	file := crashFile{inode: f, size: len(f.kept)}
	for _, op := range f.pending {
		kept := c.op == nil || c.op(op)
		if op.data == nil {
			if kept {
				file.size = op.off
				file.clear()
			}
			continue
		}
		if kept {
			file.size = max(file.size, op.off+len(op.data))
		}
		for from := 0; from < len(op.data); {
			to := min((op.off+from)/block*block+block-op.off, len(op.data))
			if c.block == nil || c.block(op, from) {
				file.add(piece{op.off + from, op.data[from:to]})
			}
			from = to
		}
	}
	return file
}

// add adds a piece, together with the one that it continues.
func (f *crashFile) add(p piece) {
	if n := len(f.pieces); n > 0 {
		last := &f.pieces[n-1]
		if end := last.off + len(last.data); end == p.off && cap(last.data) > len(last.data) &&
			&last.data[:len(last.data)+1][len(last.data)] == &p.data[0] {
			last.data = last.data[: len(last.data)+len(p.data) : cap(last.data)]
			return
		}
	}
	f.pieces = append(f.pieces, p)
}

// clear replaces what lies beyond the size by zeros, which is read there if the file grows.
func (f *crashFile) clear() {
	if n := len(f.inode.kept); n > f.size {
		f.pieces = append(f.pieces, piece{f.size, make([]byte, n-f.size)})
	}
	for i, p := range f.pieces {
		if end := p.off + len(p.data); end > f.size {
			f.pieces[i].data = append(slices.Clone(p.data[:max(f.size-p.off, 0)]), make([]byte, end-max(f.size, p.off))...)
		}
	}
}

// pending returns the order numbers of all changes that are not synced.
func (d *tracedDisk) pending() (orders []int) {
	for _, op := range d.renaming {
		orders = append(orders, op.order)
	}
	for _, f := range d.reachable() {
		for _, op := range f.pending {
			orders = append(orders, op.order)
		}
	}
	slices.Sort(orders)
	return orders
}

// reachable returns the files that some name may lead to after a crash.
func (d *tracedDisk) reachable() (files []*inode) {
	for _, names := range []map[string]*inode{d.names, d.kept} {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !slices.Contains(files, names[name]) {
				files = append(files, names[name])
			}
		}
	}
	return files
}

// crashKinds are the ways to choose what a crash keeps of what was not synced.
var crashKinds = []string{"nothing", "everything", "a prefix", "any blocks",
	"all but one block", "any names", "any names, no data"}

// crash returns a state that a crash may leave now.
func (d *tracedDisk) crash(rnd *rand.Rand) *crashState {
	pending := d.pending()
	kind := crashKinds[0]
	if len(pending) > 0 {
		kind = crashKinds[rnd.IntN(len(crashKinds))]
	}
	d.block = blockSizes[rnd.IntN(len(blockSizes))]
	s := d.crashOf(kind, rnd, pending)
	s.kind = kind
	return s
}

func (d *tracedDisk) crashOf(kind string, rnd *rand.Rand, pending []int) *crashState {
	all := func(*diskOp) bool { return true }
	until := func() func(*diskOp) bool {
		last := pending[rnd.IntN(len(pending))]
		return func(op *diskOp) bool { return op.order <= last }
	}
	some := func(*diskOp) bool { return rnd.IntN(2) == 0 }
	switch kind {
	case "everything":
		return d.crashWith(d.namesIf(all), func(*inode) fileChoice { return fileChoice{} })
	case "a prefix":
		return d.crashPrefix(rnd, pending)
	case "any blocks":
		sizes, share := until(), rnd.IntN(8)
		return d.crashWith(d.namesIf(until()), func(*inode) fileChoice {
			return fileChoice{sizes, func(*diskOp, int) bool { return rnd.IntN(8) <= share }}
		})
	case "all but one block":
		return d.crashWith(d.namesIf(all), func(f *inode) fileChoice { return f.loseBlock(rnd, d.block) })
	case "any names":
		return d.crashWith(d.namesIf(some), func(*inode) fileChoice { return fileChoice{} })
	case "any names, no data":
		return d.crashWith(d.namesIf(some), keepNothing)
	}
	return d.crashWith(d.kept, keepNothing)
}

// keepNothing is the choice of a crash that keeps what was synced and no more.
func keepNothing(*inode) fileChoice {
	return fileChoice{func(*diskOp) bool { return false }, func(*diskOp, int) bool { return false }}
}

// namesIf returns the names that were synced, with the later changes that pass a test.
func (d *tracedDisk) namesIf(keep func(op *diskOp) bool) map[string]*inode {
	names := maps.Clone(d.kept)
	for _, op := range d.renaming {
		if keep(op) {
			op.applyNames(names)
		}
	}
	return names
}

// crashPrefix keeps all changes before one, and a prefix of this one.
func (d *tracedDisk) crashPrefix(rnd *rand.Rand, pending []int) *crashState {
	last := pending[rnd.IntN(len(pending))]
	before := func(op *diskOp) bool { return op.order < last }
	share := rnd.Float64()
	return d.crashWith(d.namesIf(before), func(*inode) fileChoice {
		return fileChoice{
			func(op *diskOp) bool { return op.order <= last },
			func(op *diskOp, off int) bool {
				return before(op) || op.order == last && off < int(share*float64(len(op.data)))
			},
		}
	})
}

// loseBlock keeps everything but a block of an unsynced change.
func (f *inode) loseBlock(rnd *rand.Rand, block int) fileChoice {
	var writes []*diskOp
	for _, op := range f.pending {
		if op.data != nil {
			writes = append(writes, op)
		}
	}
	if len(writes) == 0 {
		return fileChoice{}
	}
	in := writes[rnd.IntN(len(writes))]
	lost := (in.off + rnd.IntN(len(in.data))) / block
	return fileChoice{block: func(op *diskOp, off int) bool { return op != in || (op.off+off)/block != lost }}
}
