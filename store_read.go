package main

// Reading the lines of a store: its file at a start, or a state from outside. Everything is read once, from the first
// line to the last.
//
// What follows the first bad record of a file is cut off if it can be the one write that was not synced. Writes are
// synced one after the other, so that is so if no valid line follows, or if each valid line that follows says ("w") that
// it was not written after a sync of the missing one. Under store.sync = "never", that is everything since the last sync.
// Anything else is damage: a record that was acknowledged may be lost, so a start refuses it. The compacted part was
// synced as a whole before the file got its name.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// loader receives the lines of a store, in order. It must not keep them.
type loader interface {
	begin(h *storeHeader, tasks int) error // tasks is about how many there are, 0 if that is unknown
	compacted(line *checkedLine) error     // of the compacted part
	record(line *checkedLine) error
}

// storeReader reads the lines of a store.
type storeReader struct {
	src    io.Reader
	size   int64  // 0 if it is unknown
	file   string // in errors
	path   string // of the file, in the commands that errors advise
	loader loader

	// A state from outside may lack checksums, and have been written by other programs:
	outside bool
	salvage bool     // what does not fit is left out, as after damage
	losses  []string // what was missing or left out
	gap     bool     // records are missing

	// What was read:
	header    storeHeader
	lives     lives
	compacted int64   // bytes of the header and the compacted part
	last      uint64  // number of the last record
	at        instant // of the last record; 0 without one
	bytes     int64   // without the torn end
	torn      int64   // bytes of that
	tornLine  int
	write     []byte // lines of the last write, which may not have been synced; of a file only
	alone     bool   // write holds nothing but the line of a life
}

// readProgress is how much of a store was read.
type readProgress struct{ done, all atomic.Int64 } // bytes

// expect says how many bytes there are to read.
func (p *readProgress) expect(n int64) { p.all.Store(n) }

// percent returns it in percent, or false if it is unknown.
func (p *readProgress) percent() (n int64, ok bool) {
	all := p.all.Load()
	return min(100*p.done.Load()/max(all, 1), 99), all > 0
}

// String returns why the service is not ready.
func (p *readProgress) String() string {
	if n, ok := p.percent(); ok {
		return fmt.Sprintf("the service is starting: %d %% of the store was read", n)
	}
	return "the service is starting"
}

// startReader counts what is read, and fails once its context has ended, so that a long start ends soon.
type startReader struct {
	io.Reader
	until context.Context // nil for never
	shows *readProgress   // nil for none
}

func (r startReader) Read(b []byte) (int, error) {
	if r.until != nil && r.until.Err() != nil {
		return 0, r.until.Err()
	}
	n, err := r.Reader.Read(b)
	if r.shows != nil {
		r.shows.done.Add(int64(n))
	}
	return n, err
}

// readStoreFile passes the file of a store to a loader. It does not read what is appended meanwhile.
func readStoreFile(o *journalOptions, f diskFile, path string, l loader) (*storeReader, error) {
	size, err := f.size()
	if err != nil {
		return nil, err
	}
	if o.shows != nil {
		o.shows.expect(size)
	}
	r := &storeReader{src: startReader{io.LimitReader(f, size), o.until, o.shows}, size: size, file: filepath.Base(path), path: path, loader: l}
	return r, r.read()
}

// damaged returns the error for a line. It advises what to do about a file.
func (r *storeReader) damaged(lines *lineReader, reason, advice string) error {
	switch {
	case r.outside && lines.number == 0:
		return errors.New(reason)
	case r.outside:
		return fmt.Errorf("line %d: %s", lines.number, reason)
	case advice != "":
		reason += "; " + advice
	}
	return fmt.Errorf("%s, line %d (byte %d): %s", r.file, lines.number, lines.start, reason)
}

// read passes everything to the loader. The error names the line and the reason.
func (r *storeReader) read() error {
	lines := readAhead(r.src, r.outside)
	defer lines.stop()
	if err := r.readHeader(lines); err != nil {
		return err
	}
	line, err := r.readCompacted(lines)
	if err != nil {
		return err
	}
	return r.readRecords(lines, line)
}

func (r *storeReader) readHeader(lines *lineReader) error {
	line, err := lines.next()
	switch {
	case err == io.EOF && r.outside:
		return errors.New("it has no lines")
	case err == io.EOF:
		return r.damaged(lines, "the file is empty", "")
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", r.file, err)
	}
	h, err := readHeader(line.text)
	_, other := errors.AsType[otherFormat](err)
	switch {
	case line.fault != "" && err != nil && !other:
		return r.damaged(lines, line.fault, "")
	case err != nil:
		return r.damaged(lines, err.Error(), "")
	case line.fault != "":
		return r.damaged(lines, line.fault, "it is the header: "+r.leaveOut(`1s/,"sum".*/}/`))
	}
	r.header, r.last = h, h.seq
	return r.loader.begin(&h, min(h.tasks, int(r.size/leastLine)))
}

// leastLine is the least length of the line of a task.
const leastLine = 256

// leaveOut returns the command that makes a store without some lines.
func (r *storeReader) leaveOut(script string) string {
	return fmt.Sprintf("sed '%s' %s | stepwell store import --data NEW -", script, r.path)
}

// importRest returns the command that makes a store of what is there.
func (r *storeReader) importRest() string {
	return fmt.Sprintf("stepwell store import --data NEW %s makes a store of the rest, and says what it lacks", r.path)
}

// readCompacted reads the compacted part. It returns the first record if the end is missing, and that may be.
func (r *storeReader) readCompacted(lines *lineReader) (*checkedLine, error) {
	for n := 0; ; n++ {
		line, err := lines.next()
		switch {
		case err == io.EOF:
			return nil, r.damaged(lines, `the line {"end":…} is missing: the file was cut off`, "")
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", r.file, err)
		case line.fault != "":
			return nil, r.damaged(lines, line.fault, lineSubject(line.text)+": "+
				r.leaveOut(fmt.Sprintf("%dd", lines.number))+" makes a store of the rest, and says what it lacks")
		case line.seq > 0 && !r.salvage:
			return nil, r.damaged(lines, `the line {"end":…} is missing before it`, r.importRest())
		case line.seq > 0:
			r.lose(`the line {"end":…} is missing before line %d`, lines.number)
			return line, nil
		case bytes.HasPrefix(line.text, []byte(endHead)):
			return nil, r.readEnd(lines, line, n)
		case bytes.HasPrefix(line.text, []byte(lifeHead)):
			err = r.addLife(line)
		default:
			err = r.loader.compacted(line)
		}
		if err != nil {
			return nil, r.damaged(lines, err.Error(), "")
		}
	}
}

// addLife adds a life of the compacted part.
func (r *storeReader) addLife(line *checkedLine) error {
	l, err := readLife(line.text)
	last := uint64(0)
	if n := len(r.lives); n > 0 {
		last = r.lives[n-1].to
	}
	if err == nil && (l.to < l.from || l.to > r.header.seq) {
		err = fmt.Errorf("life %s ends with record %d, which is not among those of the store", l.id, l.to)
	}
	if err == nil {
		err = r.lives.add(l, last)
	}
	return err
}

// readEnd reads the last line of the compacted part, after n others.
func (r *storeReader) readEnd(lines *lineReader, line *checkedLine, n int) error {
	e, err := readMembers(line.text, (*endLine).members)
	if err != nil {
		return r.damaged(lines, err.Error(), "")
	}
	r.compacted, r.bytes = lines.end, lines.end
	if e.lines >= 0 && e.lines != n {
		wrong := fmt.Sprintf("it counts %d lines before it, and there are %d", e.lines, n)
		if !r.outside {
			return r.damaged(lines, wrong, r.importRest())
		}
		r.lose("line %d: %s", lines.number, wrong)
	}
	return nil
}

// lose notes what is missing or left out.
func (r *storeReader) lose(format string, args ...any) {
	r.losses = append(r.losses, fmt.Sprintf(format, args...))
}

// lineSubject says what a line is about that may be damaged.
func lineSubject(line []byte) string {
	for _, k := range lineKinds {
		if rest, ok := bytes.CutPrefix(line, []byte(k.head)); ok {
			id, _, _ := bytes.Cut(bytes.TrimPrefix(rest, []byte(`"`)), []byte(`"`))
			return fmt.Sprintf("it is about %s %q", k.subject, id[:min(len(id), 64)])
		}
	}
	return "what it is about cannot be read"
}

// readRecords reads the records after the compacted part, from one that was read already on.
func (r *storeReader) readRecords(lines *lineReader, line *checkedLine) (err error) {
	for ; ; line = nil {
		if line == nil {
			line, err = lines.next()
		}
		switch {
		case err == io.EOF:
			r.bytes = lines.end
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", r.file, err)
		}
		r.bytes = lines.start
		switch {
		case line.fault != "":
			return r.badRecord(lines, line)
		case bytes.HasPrefix(line.text, []byte(lifeHead)):
			err = r.beginLife(line)
		case line.seq == 0:
			err = fmt.Errorf("it is neither a record nor the begin of a life")
		case line.seq <= r.last || line.seq > r.last+1 && !r.salvage:
			err = fmt.Errorf("record %d where %d was expected", line.seq, r.last+1)
		default:
			err = r.passRecord(lines, line)
		}
		if err != nil {
			return r.damaged(lines, err.Error(), r.keepBefore(lines))
		}
	}
}

// beginLife reads the line before the first record of a process.
func (r *storeReader) beginLife(line *checkedLine) error {
	l, err := readLife(line.text)
	if err == nil {
		err = r.lives.add(l, r.last)
	}
	r.keepLine(line, true)
	return err
}

func (r *storeReader) passRecord(lines *lineReader, line *checkedLine) error {
	if line.seq > r.last+1 {
		r.gap = true
		r.lose("line %d: %s missing; tasks that were unfinished then may lack changes",
			lines.number, pick(line.seq == r.last+2, fmt.Sprintf("record %d is", r.last+1), fmt.Sprintf("records %d to %d are", r.last+1, line.seq-1)))
	}
	if r.last = line.seq; len(r.lives) > 0 {
		r.lives[len(r.lives)-1].to = line.seq
	}
	r.keepLine(line, !r.outside && writeBegan(line.seq, line.text) == line.seq)
	err := r.loader.record(line)
	if err == nil {
		r.at = line.record.at
	}
	return err
}

// keepLine keeps a line as part of the last write, which begins with it or with the life before it.
func (r *storeReader) keepLine(line *checkedLine, begins bool) {
	if r.outside {
		return
	}
	if begins && !r.alone {
		r.write = r.write[:0]
	}
	r.alone = line.seq == 0
	if len(r.write) < backlogLimit { // more only without syncs, which promises nothing
		r.write = append(append(r.write, line.text...), '\n')
	}
}

// keepBefore returns the command that keeps everything before a damaged record.
func (r *storeReader) keepBefore(lines *lineReader) string {
	whole := "the records before it are whole"
	if r.at != 0 {
		whole += fmt.Sprintf(", up to record %d at %s", r.last, r.at.zoned())
	}
	return fmt.Sprintf("%s: head -n %d %s > NEW/%s keeps them", whole, lines.number-1, r.path, storeName)
}

// badRecord decides whether the rest of the file, from a bad line on, is torn or damaged. Torn means that a crash
// interrupted the last write, which nobody was told had succeeded: the rest is cut off. Damaged means that an
// acknowledged record may be lost.
func (r *storeReader) badRecord(lines *lineReader, line *checkedLine) error {
	bad := lines.number
	damaged := r.damaged(lines, line.fault, r.keepBefore(lines))
	for {
		line, err := lines.next()
		if err == io.EOF {
			r.torn, r.tornLine = lines.end-r.bytes, bad
			r.lose("line %d: an unfinished write: %d bytes at the end are left out", bad, r.torn)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", r.file, err)
		}
		if began := r.beganWriting(line); began > r.last+1 {
			return damaged // its write began when that of the bad line was synced
		}
	}
}

// beganWriting returns the first record that was written together with that of a line; 0 if the line is not valid.
func (r *storeReader) beganWriting(line *checkedLine) uint64 {
	switch {
	case line.fault != "" || !line.whole:
		return 0
	case bytes.HasPrefix(line.text, []byte(lifeHead)):
		l, _ := readLife(line.text)
		return l.from
	case line.seq > 0 && !r.outside:
		return writeBegan(line.seq, line.text)
	}
	return line.seq
}

// lineReader reads lines: one goroutine reads blocks of them, and others check and decode the lines, while the loader
// takes those before them.
type lineReader struct {
	blocks chan *lineBlock // in the order of the file
	unused chan *lineBlock // whose memory can be used again
	quit   chan struct{}
	done   sync.WaitGroup

	block  *lineBlock // that next takes lines from
	at     int
	number int   // of the line returned last, from 1
	start  int64 // its offset
	end    int64 // the offset after it
}

// lineBlock is some lines that follow one another.
type lineBlock struct {
	outside bool
	text    []byte
	lines   []checkedLine
	tasks   []storedTask
	records []record // like logs
	logs    []byte
	common  storedCommon
	err     error         // of reading on after them
	decoded chan struct{} // closed once lines is complete
}

// checkedLine is a line, as far as it can be understood without the others.
type checkedLine struct {
	text   []byte // without its newline
	length int    // in its file, without the newline
	whole  bool   // it has its newline
	fault  string // what is wrong with it, or ""
	sealed bool   // it has its checksum
	task   *storedTask
	seq    uint64 // of a record, like what follows
	record *record
	log    []byte // what the log of its task has of it
	err    error  // why it cannot be decoded
}

// lineBlockSize is about how many bytes of lines are decoded at a time.
const lineBlockSize = 512 << 10

func readAhead(src io.Reader, outside bool) *lineReader {
	r := &lineReader{
		blocks: make(chan *lineBlock, runtime.GOMAXPROCS(0)), unused: make(chan *lineBlock, 2+runtime.GOMAXPROCS(0)),
		quit: make(chan struct{}), block: &lineBlock{},
	}
	r.done.Go(func() { r.read(src, outside) })
	return r
}

// stop ends the reading, before the file is closed.
func (r *lineReader) stop() {
	close(r.quit)
	r.done.Wait()
}

func (r *lineReader) read(src io.Reader, outside bool) {
	var rest []byte
	for b := (&lineBlock{}); b.err == nil; {
		select {
		case b = <-r.unused:
		default:
			b = &lineBlock{text: make([]byte, 0, lineBlockSize), outside: outside}
		}
		rest = b.read(src, rest)
		b.decoded = make(chan struct{})
		go b.decode()
		select {
		case r.blocks <- b:
		case <-r.quit:
			return
		}
	}
}

// read reads whole lines, at least one, after the rest of the block before. It returns its own rest.
func (b *lineBlock) read(src io.Reader, rest []byte) []byte {
	b.text = append(b.text[:0], rest...)
	for {
		b.text = slices.Grow(b.text, lineBlockSize/2)
		n, err := io.ReadFull(src, b.text[len(b.text):cap(b.text)])
		b.text = b.text[:len(b.text)+n]
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		if b.err = err; err == io.EOF {
			return nil
		}
		if end := bytes.LastIndexByte(b.text, '\n') + 1; end > 0 || err != nil {
			rest = append(rest[:0], b.text[end:]...)
			b.text = b.text[:end]
			return rest
		}
	}
}

func (b *lineBlock) decode() {
	defer close(b.decoded)
	b.lines, b.tasks, b.records, b.logs = b.lines[:0], b.tasks[:0], b.records[:0], b.logs[:0]
	b.common = storedCommon{room: b.common.room}
	for rest := b.text; len(rest) > 0; {
		l := checkedLine{}
		l.text, rest, l.whole = bytes.Cut(rest, []byte("\n"))
		l.length = len(l.text)
		b.line(&l)
		b.lines = append(b.lines, l)
	}
}

func (b *lineBlock) line(l *checkedLine) {
	if b.outside {
		l.text = bytes.TrimRight(l.text, "\r")
	}
	l.fault = lineFault(l.text)
	l.sealed = l.fault == ""
	switch {
	case b.outside && l.sealed: // anybody can compute a checksum
		l.fault = elementFault(l.text)
	case b.outside:
		l.respell()
	case !l.whole && l.sealed:
		l.fault = "the line is incomplete"
	}
	if l.fault != "" {
		return
	}
	switch {
	case bytes.HasPrefix(l.text, []byte(recordHead)):
		b.recorded(l)
	case bytes.HasPrefix(l.text, []byte(taskHead)) && l.sealed:
		l.text = cutSum(l.text)
		b.tasks = append(b.tasks, b.common.read(l.text))
		l.task = &b.tasks[len(b.tasks)-1]
	}
}

func (b *lineBlock) recorded(l *checkedLine) {
	if l.seq = recordSeq(l.text); l.seq == 0 {
		l.fault = "it has no sequence number"
		return
	}
	b.records = append(b.records, record{})
	l.record = &b.records[len(b.records)-1]
	if l.err = l.record.read(l.text); l.err == nil {
		n := len(b.logs) + 1
		b.logs = appendRecordMembers(append(b.logs, '{'), l.record) // after a brace there is no comma
		l.log = b.logs[n:]
	}
}

// respell writes a line that has no valid checksum as this program would: without white space, its kind first.
func (l *checkedLine) respell() {
	text := bytes.TrimSpace(unmarked(l.text))
	l.fault = ""
	switch {
	case isUTF16(l.text):
		l.fault = "it is UTF-16; want UTF-8"
	case len(text) == 0:
		l.text = nil
	case jsonKind(text) != '{':
		l.fault = "it is not a JSON object"
	default:
		l.fault = elementFault(text)
	}
	if l.fault != "" || len(text) == 0 {
		return
	}
	text = compactJSON(make([]byte, 0, len(text)), text)
	if objectMember(text, "sum") != nil {
		l.fault = `the checksum does not match: remove the member "sum" of a line that you edited`
		return
	}
	l.text = text
	for _, k := range spelledKinds {
		if objectMember(text, k.has) == nil {
			continue
		}
		if first := objectMember(text, k.first); first != nil && !bytes.HasPrefix(text, []byte(`{"`+k.first+`":`)) {
			l.text = append(append([]byte(`{"`+k.first+`":`), first...), ',')
			l.text = append(l.text, membersWithout(text, k.first)...)
		}
		return
	}
	l.fault = "it is of no kind of line that a store has"
}

// spelledKinds are the kinds of lines, by a member that those before do not have, with the member that comes first.
var spelledKinds = [...]struct{ has, first string }{
	{"format", "format"}, {"end", "end"}, {"life", "life"}, {"subscriber", "subscriber"}, {"figures", "figures"},
	{"request", "request"}, {"hash", "hash"}, {"kind", "seq"}, {"task", "task"},
}

// membersWithout returns the members of an object but one, and the closing brace.
func membersWithout(object []byte, name string) (text []byte) {
	for key, value := range jsonMembers(object) {
		if key != name {
			text = append(append(append(appendJSONString(text, key), ':'), value...), ',')
		}
	}
	return append(bytes.TrimSuffix(text, []byte(",")), '}')
}

// elementDepth is how deep in a line a value from outside may be, which may itself be nested as deep as any.
const elementDepth = 8

func elementFault(raw []byte) string {
	s := jsonScanner{data: raw}
	if end, err := s.value(0, -elementDepth); err != nil {
		return err.Error() + "; each object must be on one line"
	} else if end != len(raw) {
		return "there is something behind the object"
	}
	return ""
}

// next returns the next line that is not blank, which is valid until the one after it. The error is io.EOF after the
// last.
func (r *lineReader) next() (*checkedLine, error) {
	for {
		for r.at == len(r.block.lines) {
			if r.block.err != nil {
				return nil, r.block.err
			}
			if r.block.text != nil {
				r.unused <- r.block // has room for all
			}
			r.block, r.at = <-r.blocks, 0
			<-r.block.decoded
		}
		l := &r.block.lines[r.at]
		r.at++
		r.number++
		r.start = r.end
		if r.end += int64(l.length); l.whole {
			r.end++
		}
		if l.text != nil {
			return l, nil
		}
	}
}

// `stepwell store check`: it reads a store as a start would, changes nothing, and reports what it found.

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
