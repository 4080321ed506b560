package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// What the program has on disk when it tells a client or a handler of a change, by its system calls, which strace notes:
// the record is written and synced, in a file whose name is synced. TestKillPoints shows what a start makes of that,
// whatever else a crash of the machine keeps.

// tracedCalls are the system calls that change files or send something, and those that tell which file a descriptor is.
// Machines without one of them leave it out.
const tracedCalls = "?open,?openat,?openat2,?creat,?write,?pwrite64,?writev,?pwritev,?pwritev2,?fsync,?fdatasync," +
	"?sync_file_range,?rename,?renameat,?renameat2,?unlink,?unlinkat,?link,?linkat,?close,?dup,?dup2,?dup3,?fcntl," +
	"?copy_file_range,?sendfile,?splice"

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

	texts  []string // among the arguments
	done   bool
	newest int           // of a write: the number of the newest record in it
	writes []*tracedCall // what a sync of a file covers
	names  []*tracedFile // what a sync of the directory covers
}

// traceStep is a moment of a trace: a call begins, ends, or does both while no other does.
type traceStep struct {
	call         *tracedCall
	begins, ends bool
}

// readTrace returns the steps of a trace.
func readTrace(t *testing.T, file string) (steps []traceStep) {
	t.Helper()
	open := map[string]*tracedCall{} // by thread
	for line := range strings.Lines(string(readFile(t, file))) {
		thread, text, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		text = strings.TrimLeft(text, " ")
		if text == "" || strings.HasPrefix(text, "+++") || strings.HasPrefix(text, "---") {
			continue
		}
		if rest, resumed := strings.CutPrefix(text, "<... "); resumed {
			open[thread].ret = result(rest)
			steps = append(steps, traceStep{call: open[thread], ends: true})
			continue
		}
		name, args, _ := strings.Cut(text, "(")
		c := &tracedCall{name: name, ret: result(args)}
		if begun, unfinished := strings.CutSuffix(args, " <unfinished ...>"); unfinished {
			args, c.ret, open[thread] = begun, "", c
		} else if end := strings.LastIndex(args, " = "); end > 0 {
			args = strings.TrimRight(args[:end], " )")
		}
		c.args = args
		c.unquote(t)
		steps = append(steps, traceStep{call: c, begins: true, ends: c.ret != ""})
	}
	return steps
}

// result returns the result of a call from the end of its line, or "" if there is none.
func result(line string) string {
	_, ret, _ := strings.Cut(line[max(strings.LastIndex(line, " = "), 0):], " = ")
	ret, _, _ = strings.Cut(ret, " ")
	return strings.TrimPrefix(ret, "?")
}

// number returns the argument at a place, of a call without text before it.
func (c *tracedCall) number(at int) int {
	n, _ := strconv.Atoi(strings.Split(c.args, ", ")[at])
	return n
}

// unquote reads the texts among the arguments.
func (c *tracedCall) unquote(t testing.TB) {
	for rest := c.args; ; {
		start := strings.IndexByte(rest, '"')
		if start < 0 {
			return
		}
		quoted, err := strconv.QuotedPrefix(rest[start:])
		if err != nil {
			t.Fatalf("the trace has %.100s: %v", c.args, err)
		}
		text, err := strconv.Unquote(quoted)
		rest = rest[start+len(quoted):]
		if err != nil || strings.HasPrefix(rest, "...") {
			t.Fatalf("the trace has no more than a part of %.100s (%v)", c.args, err)
		}
		c.texts = append(c.texts, text)
	}
}

var (
	recordLine  = regexp.MustCompile(`^{"seq":(\d+),(?:"task":"([^"]*)",)?(?:"at":\d+,)?"kind":"([a-z]+)".*,"sum":"[0-9a-f]{8}"}\n$`)
	headerSeq   = regexp.MustCompile(`^{"format":.*?,"seq":(\d+)`)
	toldTask    = regexp.MustCompile(`"task_uuid":"([^"]+)"`)
	toldOfAll   = regexp.MustCompile(`"status":"(complete|cancelled)"`)
	handlerCall = regexp.MustCompile(`^POST (?s:.*?)\r\nIdempotency-Key: `)
)

// storedRecord is a record that the program wrote.
type storedRecord struct {
	seq        int
	task, kind string
}

// recordsIn returns the records among the lines that are written to a file, and the number of the newest one. A write of a
// compaction may begin within the log of a task; the header of its file tells which records it has.
func recordsIn(text string) (records []storedRecord, newest int) {
	if m := headerSeq.FindStringSubmatch(text); m != nil {
		newest, _ = strconv.Atoi(m[1])
	}
	for line := range strings.Lines(text) {
		if m := recordLine.FindStringSubmatch(line); m != nil && json.Valid([]byte(line)) {
			seq, _ := strconv.Atoi(m[1])
			records, newest = append(records, storedRecord{seq, m[2], m[3]}), max(newest, seq)
		}
	}
	return records, newest
}

// TestRecordsIn reads a record, a piece of a compacted part that begins with the same record in the log of its task, and
// a record that a compaction copied in two writes.
func TestRecordsIn(t *testing.T) {
	records, newest := recordsIn(`{"seq":1,"task":"a","at":7,"kind":"ran","step":1,"sum":"01234567"}` + "\n" +
		`{"seq":1,"kind":"ran","step":1},{"seq":2,"kind":"ran","step":2}]},"sum":"01234567"}` + "\n")
	if len(records) != 1 || newest != 1 || records[0].task != "a" {
		t.Errorf("got %v; want 1", records)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	writeFile(t, trace, []byte(`1 openat(9, "/d/store.jsonl", O_RDWR) = 3
1 openat(9, "/d", O_RDONLY) = 4
1 pwrite64(3, "{\"seq\":7,\"task\":\"a\",\"kind\":\"ran\",", 33, 0) = 33
1 pwrite64(3, "\"step\":1,\"sum\":\"01234567\"}\n", 27, 33) = 27
1 fdatasync(3) = 0
1 fsync(4) = 0
`))
	d := newDurability(t, "/d", nil)
	if d.follow(readTrace(t, trace)); d.durable != 7 {
		t.Errorf("got the records up to %d; want 7", d.durable)
	}
}

// tracedFile is a file of the data directory.
type tracedFile struct {
	named  bool          // a sync of the directory has kept its present name
	line   string        // which the last write did not end
	open   []*tracedCall // writes that no sync has covered
	synced int           // the number of the newest record in the others
}

// durability follows the calls of the program: what is on disk, and what it told somebody too early.
type durability struct {
	t       testing.TB
	dir     string
	noSyncs bool // syncs do nothing: to see that the test notices
	names   map[string]*tracedFile
	files   map[int]*tracedFile // by descriptor; the directory is nil
	renamed []*tracedFile       // whose names are not kept
	records map[string][]storedRecord
	durable int // all records up to this number are on disk
	told    int
	faults  []string
}

func newDurability(t testing.TB, dir string, lives [][]traceStep) *durability {
	d := &durability{t: t, dir: dir, names: map[string]*tracedFile{}, records: map[string][]storedRecord{}}
	for _, steps := range lives {
		for _, s := range steps {
			if s.begins && s.call.name == "pwrite64" {
				records, _ := recordsIn(s.call.texts[0])
				for _, r := range records {
					d.records[r.task] = append(d.records[r.task], r)
				}
			}
		}
	}
	return d
}

// follow follows a life of the program to its end. A write that a kill cut off may have happened.
func (d *durability) follow(steps []traceStep) {
	d.files = map[int]*tracedFile{}
	for _, s := range steps {
		if s.begins {
			d.begin(s.call)
		}
		if s.ends {
			d.end(s.call)
		}
	}
	for _, f := range d.names {
		f.line = ""
		for _, c := range f.open {
			c.done = true
		}
	}
}

// inside returns the name of a path in the directory, which has no others below it.
func (d *durability) inside(path string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path, d.dir+"/")
	return name, ok && name != ""
}

func (d *durability) begin(c *tracedCall) {
	switch c.name {
	case "open", "openat", "creat", "dup", "dup2", "dup3", "fcntl", "rename", "renameat", "renameat2", "unlink", "unlinkat":
		return
	case "close": // the number may be used again before the call ends
		delete(d.files, c.number(0))
		return
	}
	f, ours := d.files[c.number(0)]
	switch {
	case c.name == "write" && !ours:
		d.tell(c.texts[0])
	case c.name == "pwrite64" && ours:
		f.open, f.line = append(f.open, c), f.line+c.texts[0]
		_, c.newest = recordsIn(f.line)
		f.line = f.line[strings.LastIndex(f.line, "\n")+1:]
	case strings.HasSuffix(c.name, "sync") && ours && f == nil:
		c.names = slices.Clone(d.renamed)
	case strings.HasSuffix(c.name, "sync") && ours:
		c.writes = slices.DeleteFunc(slices.Clone(f.open), func(w *tracedCall) bool { return !w.done })
	case ours || strings.Contains(c.args, d.dir):
		d.t.Fatalf("the model of the disk lacks %s(%.200s)", c.name, c.args)
	}
}

func (d *durability) end(c *tracedCall) {
	ret, err := strconv.Atoi(c.ret)
	if err != nil || ret < 0 {
		c.newest = 0 // nothing was written
		ret = -1
	}
	c.done = true
	switch c.name {
	case "open", "openat", "creat":
		if name, ok := d.inside(c.texts[0]); ok && ret >= 0 {
			if d.names[name] == nil {
				d.name(name, new(tracedFile))
			}
			d.files[ret] = d.names[name]
		} else if c.texts[0] == d.dir && ret >= 0 {
			d.files[ret] = nil
		}
	case "dup", "dup2", "dup3", "fcntl":
		if f, ours := d.files[c.number(0)]; ours && ret >= 0 && (c.name != "fcntl" || strings.Contains(c.args, "F_DUPFD")) {
			d.files[ret] = f
		}
	case "rename", "renameat", "renameat2":
		from, ok := d.inside(c.texts[0])
		if to, _ := d.inside(c.texts[1]); ok && ret >= 0 {
			if n := len(d.names[from].open); n > 0 {
				d.fault("%s becomes %s with %d writes that are not synced", from, to, n)
			}
			d.name(to, d.names[from])
			delete(d.names, from)
		}
	case "unlink", "unlinkat":
		if name, ok := d.inside(c.texts[0]); ok && ret >= 0 {
			delete(d.names, name)
		}
	case "fsync", "fdatasync":
		if f, ours := d.files[c.number(0)]; ours && ret >= 0 && !d.noSyncs {
			d.sync(f, c)
		}
	}
}

// name gives a file a name, which a crash may lose until the directory is synced.
func (d *durability) name(name string, f *tracedFile) {
	d.names[name], f.named = f, false
	d.renamed = append(d.renamed, f)
}

// sync ends a sync of a file, or of the directory.
func (d *durability) sync(f *tracedFile, c *tracedCall) {
	for _, w := range c.writes {
		f.synced = max(f.synced, w.newest)
	}
	if f != nil {
		f.open = slices.DeleteFunc(f.open, func(w *tracedCall) bool { return slices.Contains(c.writes, w) })
	}
	for _, f := range c.names {
		f.named = true
	}
	d.renamed = slices.DeleteFunc(d.renamed, func(f *tracedFile) bool { return slices.Contains(c.names, f) })
	if store := d.names["store.jsonl"]; store != nil && store.named {
		if store.synced < d.durable {
			d.fault("a file with the records up to %d has replaced one with those up to %d", store.synced, d.durable)
		}
		d.durable = store.synced
	}
}

func (d *durability) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// tell checks that whatever a message to a client or a handler says about a task is already on disk: that the task exists,
// that it is over, or that one of its steps has a result.
func (d *durability) tell(text string) {
	m, call := toldTask.FindStringSubmatch(text), handlerCall.MatchString(text)
	if m == nil || !call && !strings.HasPrefix(text, "HTTP/1.1 20") {
		return
	}
	over, result := !call && toldOfAll.MatchString(text), call && strings.Contains(text, `"dependency_results":{"`)
	need := 0
	for _, r := range d.records[m[1]] {
		if r.kind == "created" || over && r.kind != "dropped" || result && r.kind == "ended" && need < 2 {
			need = max(need, r.seq)
			result = result && r.kind != "ended" // the first result is that of the step before
		}
	}
	if d.told++; need == 0 || need > d.durable {
		d.fault("a message needs record %d, but only those up to %d are on disk: %.300s", need, d.durable, text)
	}
}

// TestDurableBeforeTold traces the program under load, through a compaction, a kill, a start and a shutdown.
func TestDurableBeforeTold(t *testing.T) {
	t.Parallel()
	slow(t)
	strace, dir := findStrace(t), t.TempDir()
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"n":1}`) }))
	t.Cleanup(handler.Close)
	data := filepath.Join(dir, "data")
	args := serveArguments("--data", data, "--sync", "always", "--templates", templateDir(t, diamondTemplate,
		testTemplate("web", stepSpec{name: "a", callable: handler.URL}, stepSpec{name: "b", callable: handler.URL, after: []string{"a"}})))
	large := fmt.Sprintf(`{"namespace":"t","name":"diamond","context":{"padding":%q}}`, strings.Repeat("x", 400_000))
	bodies := [2]string{`{"namespace":"t","name":"web"}`, large}
	var lives [][]traceStep
	for life, end := range []func(*program){(*program).kill, (*program).stop} {
		trace := filepath.Join(dir, fmt.Sprint("trace-", life))
		p := launchFile(t, strace, nil, []string{"STEPWELL_STORE__RETAIN_FINISHED_COUNT=25"},
			append(append(straceArguments(trace), programFile(t)), args...)...).awaitReady()
		first := wire.Must(os.Stat(filepath.Join(data, "store.jsonl")))(t)
		var answered atomic.Int64
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				client := &http.Client{Transport: &http.Transport{DisableCompression: true}} // the trace has what is sent
				defer client.CloseIdleConnections()
				for n, status := 0, 1; status != 0; n++ {
					status, _ = sendOnce(client, "POST", p.ready.OrchestrationURL+[]string{"/v1/tasks?wait=5s", "/v1/tasks"}[n%2], bodies[n%2])
					answered.Add(1)
				}
			})
		}
		enough := func() bool {
			now, err := os.Stat(filepath.Join(data, "store.jsonl"))
			return answered.Load() > int64(size(80, 250)) && (life > 0 || err == nil && !os.SameFile(first, now))
		}
		compacted := false
		for range 2 { // strace makes it slow
			compacted = compacted || wire.Poll(enough)
		}
		if !compacted {
			t.Fatalf("after %d answers there was no compaction", answered.Load())
		}
		end(p)
		clients.Wait()
		lives = append(lives, readTrace(t, trace))
	}
	d := newDurability(t, data, lives)
	for _, steps := range lives {
		d.follow(steps)
	}
	for _, fault := range d.faults[:min(len(d.faults), 9)] {
		t.Error(fault)
	}
	if d.told < size(80, 250) {
		t.Errorf("%d messages told of a task; want more", d.told)
	}
	t.Logf("%d messages, %d tasks, the last record on disk is %d", d.told, len(d.records), d.durable)
	// Would the test notice if nothing was ever synced?
	blind := newDurability(t, data, lives[:1])
	if blind.noSyncs = true; len(d.faults) == 0 {
		blind.follow(lives[0])
	}
	if blind.told == 0 || len(blind.faults) <= blind.told { // each of them, and the rename
		t.Errorf("without syncs, there are %d faults of %d messages", len(blind.faults), blind.told)
	}
}
