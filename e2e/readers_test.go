package e2e

// Readers beside the running service, and copies of its directory: whatever it does to its file meanwhile, they get a
// whole store.

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

var (
	readRounds = flag.Int("read.rounds", size(1, 4), "rounds of TestReadersBesideTheService; 1000 is the full test")
	copyRounds = flag.Int("copies", size(4, 16), "copies that TestCopies makes by each tool; 334 is the full test")
)

// readerTest is a service that compacts its file all the time.
type readerTest struct {
	t         *testing.T
	data      string
	templates string
	program   *program
	anchors   []string        // tasks that never end
	newest    int             // number of the last record of them
	files     map[string]bool // headers of the files that were seen
}

// newReaderTest starts a service that keeps few large tasks, and clients that create more.
func newReaderTest(t *testing.T) *readerTest {
	t.Helper()
	r := &readerTest{t: t, data: filepath.Join(t.TempDir(), "data"), files: map[string]bool{},
		templates: templateDir(t, diamondTemplate, testTemplate("anchor", stepSpec{name: "a", callable: "Nobody"}))}
	r.program = serveWith(t, []string{"STEPWELL_STORE__RETAIN_FINISHED_COUNT=100"},
		"--data", r.data, "--sync", "always", "--templates", r.templates, "--quiet")
	var load sync.WaitGroup
	over := make(chan struct{})
	body := fmt.Sprintf(`{"namespace":"t","name":"diamond","context":{"padding":%q}}`, strings.Repeat("x", 60_000))
	for range 4 {
		load.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			pace := time.NewTicker(2 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-over:
					return
				case <-pace.C:
					sendOnce(client, "POST", r.program.ready.OrchestrationURL+"/v1/tasks", body)
				}
			}
		})
	}
	t.Cleanup(func() {
		close(over)
		load.Wait()
	})
	return r
}

var taskTag = regexp.MustCompile(`^"[0-9a-f]{8}-(\d+)`)

// anchor creates a task that every later reader must find, and notes which file it is in.
func (r *readerTest) anchor() {
	r.t.Helper()
	id := r.program.api().create(`{"namespace":"t","name":"anchor"}`)
	tag := r.program.api().do("GET", "/v1/tasks/"+id, "").want(200).header.Get("ETag")
	m := taskTag.FindStringSubmatch(tag)
	if m == nil {
		r.t.Fatalf("got the entity tag %s; want one with a life and a number", tag)
	}
	r.newest, _ = strconv.Atoi(m[1])
	r.anchors = append(r.anchors, id)
	header, _, _ := bytes.Cut(readFile(r.t, filepath.Join(r.data, "store.jsonl")), []byte("\n"))
	r.files[string(header)] = true
}

// wantCompacted checks that the service compacted its file now and then.
func (r *readerTest) wantCompacted(times int) {
	r.t.Helper()
	r.t.Logf("%d files, %d anchors", len(r.files), len(r.anchors))
	if len(r.files) <= times {
		r.t.Errorf("got %d files; want more than %d", len(r.files), times)
	}
}

// wantWhole checks that an exported state is whole and has every anchor.
func (r *readerTest) wantWhole(state string) {
	r.t.Helper()
	if lines := strings.Split(state, "\n"); !strings.HasPrefix(lines[max(len(lines)-2, 0)], `{"end":`) {
		r.t.Fatalf("the state ends with %.300q", lines[max(len(lines)-2, 0):])
	}
	for _, id := range r.anchors {
		if !strings.Contains(state, id) {
			r.t.Fatalf("task %s is not in the state", id)
		}
	}
}

// TestReadersBesideTheService checks that a running service can be exported and checked while it compacts its file, and
// that its backup is whole.
func TestReadersBesideTheService(t *testing.T) {
	t.Parallel()
	slow(t)
	r := newReaderTest(t)
	readers := []struct {
		name string
		read func()
	}{
		{"export", func() { r.wantWhole(wantExit(t, 0, nil, "store", "export", "--data", r.data)) }},
		{"check", func() { r.wantRecords(wantExit(t, 0, nil, "store", "check", "--data", r.data)) }},
		{"backup", func() { r.wantWhole(string(r.program.api().do("GET", "/v1/backup", "").want(200).body)) }},
	}
	for round := 0; round < *readRounds || len(r.files) < 3 && round < 20**readRounds; round++ {
		for _, reader := range readers {
			r.anchor()
			reader.read()
			if t.Failed() {
				t.Fatalf("%s beside the service failed", reader.name)
			}
		}
	}
	r.wantCompacted(1)
}

var lastRecord = regexp.MustCompile(`; record (\d+) is the last`)

// wantRecords checks that "store check" found every record that was acknowledged before the last anchor.
func (r *readerTest) wantRecords(said string) {
	r.t.Helper()
	m := lastRecord.FindStringSubmatch(said)
	if m == nil {
		r.t.Fatalf("store check says %s", said)
	}
	if last, _ := strconv.Atoi(m[1]); last < r.newest {
		r.t.Errorf("record %d is the last; want at least %d", last, r.newest)
	}
}

// TestCopies copies the directory of a service that works and compacts its file: a copy by any tool opens, and has
// everything that was acknowledged before it began.
func TestCopies(t *testing.T) {
	t.Parallel()
	slow(t)
	r := newReaderTest(t)
	for _, tool := range []struct {
		name    string
		command string // copies from $1 to $2
		changed []int  // exit codes that say that files changed or have gone
	}{
		{"cp", `cp -r "$1" "$2"`, []int{1}}, // store.jsonl.new may have gone
		{"tar", `mkdir "$2" && tar -C "$1" -cf "$2.tar" .; code=$?; tar -C "$2" -xf "$2.tar" && exit $code`, []int{1}},
		{"rsync", `rsync -a "$1/" "$2"`, []int{24}},
	} {
		t.Run(tool.name, func(t *testing.T) {
			wire.Need(t, tool.name)
			torn, copies := 0, 0
			for ; copies < *copyRounds || len(r.files) < 2 && copies < 20**copyRounds; copies++ {
				r.t = t
				r.anchor()
				copied := filepath.Join(t.TempDir(), "copied")
				cmd := exec.Command("sh", "-c", tool.command, "copy", r.data, copied)
				said, _ := cmd.CombinedOutput()
				if code := cmd.ProcessState.ExitCode(); code != 0 && !slices.Contains(tool.changed, code) {
					t.Fatalf("%s: exit code %d: %s", tool.command, code, said)
				}
				torn += r.open(copied)
				os.RemoveAll(filepath.Dir(copied))
				if t.Failed() {
					return
				}
			}
			t.Logf("%d copies, %d of them with an unfinished write at the end", copies, torn)
		})
	}
	r.t = t
	r.wantCompacted(1)
}

// open checks a copy and starts it. It returns 1 if a write was not finished in it.
func (r *readerTest) open(copied string) (torn int) {
	r.t.Helper()
	said := wantExit(r.t, 0, nil, "store", "check", "--data", copied)
	r.wantRecords(said)
	p := serve(r.t, "--data", copied, "--templates", r.templates, "--quiet")
	list := p.api().do("GET", "/v1/tasks?name=anchor&per_page=1", "").want(200)
	if got, want := list.text("pagination.total_count"), fmt.Sprint(len(r.anchors)); got != want {
		r.t.Errorf("the copy has %s anchors; want %s", got, want)
	}
	p.api().do("GET", "/v1/tasks/"+r.anchors[len(r.anchors)-1], "").want(200)
	p.stop()
	if strings.Contains(said, "unfinished write") {
		return 1
	}
	return 0
}

// TestInterruptedImport kills an import at random moments. The directory then has everything, or nothing, or is refused
// until the import is run again.
func TestInterruptedImport(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "state.jsonl")
	p := serve(t, "--data", data, "--templates", templateDir(t, diamondTemplate), "--quiet")
	const tasks = 200
	body := fmt.Sprintf(`{"namespace":"t","name":"diamond","context":{"padding":%q}}`, strings.Repeat("x", 100_000))
	for range tasks {
		p.api().create(body)
	}
	p.stop()
	wantExit(t, 0, nil, "store", "export", "--data", data, file)
	began := time.Now()
	wantExit(t, 0, nil, "store", "import", "--data", filepath.Join(dir, "whole"), file)
	took := time.Since(began)
	outcomes := map[string]int{}
	rounds := size(10, 100)
	for round := range rounds {
		to := filepath.Join(dir, fmt.Sprint("to-", round))
		p := launch(t, nil, "store", "import", "--data", to, file)
		if after := took * time.Duration(round+1) / time.Duration(rounds); round%2 == 0 {
			<-time.After(after)
		} else {
			awaitFile(p, filepath.Join(to, "import.jsonl.new"))
			<-time.After(after / 20)
		}
		p.kill()
		outcomes[wantImported(t, to, file, tasks)]++
		os.RemoveAll(to)
	}
	t.Logf("after %d kills within %v: %v", rounds, took, outcomes)
	if outcomes["refused"] == 0 {
		t.Error("no import was interrupted: the test tested too little")
	}
}

// awaitFile waits until a program has made a file, or has ended.
func awaitFile(p *program, path string) {
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for p.running() {
		if _, err := os.Lstat(path); err == nil {
			return
		}
		<-tick.C
	}
}

// wantImported checks what an import left that was killed, and returns a word for it.
func wantImported(t *testing.T, dir, file string, tasks int) string {
	t.Helper()
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	if there("store.jsonl") {
		said := wantExit(t, 0, nil, "store", "check", "--data", dir)
		wantParts(t, "a store that was imported", said, fmt.Sprintf("%d tasks", tasks))
		return "whole"
	}
	if !there("import.jsonl.new") {
		return "nothing"
	}
	wantRefused(t, []string{"--data", dir}, "an import was interrupted: run the import again, or remove ", "import.jsonl.new")
	wantParts(t, "the import again", wantExit(t, 0, nil, "store", "import", "--data", dir, file), fmt.Sprintf("%d tasks", tasks))
	return "refused"
}

// TestBackupWithoutDirectory checks that the state of a service whose directory is gone can be saved.
func TestBackupWithoutDirectory(t *testing.T) {
	slow(t)
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := serve(t, "--data", data, "--quiet")
	id := p.api().create(`{"namespace":"demo","name":"diamond"}`)
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(t.TempDir(), "saved.jsonl")
	writeFile(t, saved, p.api().do("GET", "/v1/backup", "").want(200).body)
	wantExit(t, 0, nil, "store", "import", "--data", data+".new", saved)
	serve(t, "--data", data+".new", "--quiet").api().await(id, "complete")
}

// clientState is what a client of a service keeps: an event id, an entity tag, a cursor and as_of.
type clientState struct{ mark, tag, cursor, asOf string }

// historyClient asks a service for one task after the other.
type historyClient struct {
	*api
	task string
}

// learn returns what a client knows now, after a new task.
func (c *historyClient) learn() (k clientState) {
	c.t.Helper()
	c.create(`{"namespace":"t","name":"anchor"}`)
	k.tag = c.do("GET", "/v1/tasks/"+c.task, "").want(200).header.Get("ETag")
	events := c.events("0", func(text string) bool { return strings.Count(text, `"to_state":"steps_in_process"`) == 2 })
	k.mark = wire.LastMark(events)
	page := c.do("GET", "/v1/tasks?per_page=1&cursor=", "").want(200)
	k.cursor = page.text("pagination.next_cursor")
	first, _, _ := bytes.Cut(c.act("0"), []byte("\n"))
	k.asOf, _, _ = strings.Cut(strings.TrimPrefix(string(first), `{"as_of":"`), `"`)
	return k
}

// events returns the stream after an id, up to a point.
func (c *historyClient) events(after string, enough func(text string) bool) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req := wire.Must(http.NewRequestWithContext(ctx, "GET", c.url+"/v1/events", nil))(c.t)
	req.Header.Set("Last-Event-ID", after)
	resp := wire.Must(http.DefaultClient.Do(req))(c.t)
	defer resp.Body.Close()
	var text strings.Builder
	for lines := bufio.NewReader(resp.Body); !enough(text.String()); {
		line, err := lines.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%v after %q", err, text.String())
		}
		text.WriteString(line)
	}
	return text.String()
}

// act returns the answer to a dry run as of a record.
func (c *historyClient) act(asOf string) []byte {
	c.t.Helper()
	body := fmt.Sprintf(`{"action":"cancel","reason":"r","dry_run":true,"filter":{"name":"anchor"},"as_of":%q}`, asOf)
	return c.do("POST", "/v1/actions", body).body
}

// ifMatch returns the status of a cancellation on condition of a tag.
func (c *historyClient) ifMatch(tag string) int {
	c.t.Helper()
	req := wire.Must(http.NewRequest("DELETE", c.url+"/v1/tasks/"+c.task, nil))(c.t)
	req.Header.Set("If-Match", tag)
	resp := wire.Must(http.DefaultClient.Do(req))(c.t)
	resp.Body.Close()
	return resp.StatusCode
}

// TestNumbersOfAnotherHistory restarts and compacts a store: a client continues where it was. Then the service continues
// from a copy of before, with as many new records as it had: no number that the client knows is taken for one of them.
func TestNumbersOfAnotherHistory(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := t.TempDir()
	data, copied := filepath.Join(dir, "data"), filepath.Join(dir, "copied")
	templates := templateDir(t, testTemplate("anchor", stepSpec{name: "a", callable: "Nobody"}))
	var p *program
	start := func(data, task string) *historyClient {
		p = serve(t, "--data", data, "--templates", templates, "--quiet")
		return &historyClient{p.api(), task}
	}
	c := start(data, "")
	c.task = c.create(`{"namespace":"t","name":"anchor"}`)
	wire.Must(exec.Command("cp", "-r", data, copied).CombinedOutput())(t)
	known := c.learn()
	if m := taskTag.FindString(known.tag); m == "" || known.asOf != known.mark || known.cursor == "" {
		t.Fatalf("got %+v", known)
	}
	p.stop()
	for range 2 {
		c = start(data, c.task)
		if got := c.do("GET", "/v1/tasks/"+c.task, "").want(200).header.Get("ETag"); got != known.tag {
			t.Errorf("after a restart: got the tag %s; want %s", got, known.tag)
		}
		c.do("GET", "/v1/tasks?per_page=1&cursor="+known.cursor, "").want(200)
		if got := string(c.act(known.asOf)); !strings.HasPrefix(got, fmt.Sprintf(`{"as_of":%q,`, known.asOf)) {
			t.Errorf("after a restart: got %s; want as_of as it was", got)
		}
		next := c.create(`{"namespace":"t","name":"anchor"}`)
		if got := c.events(known.mark, func(text string) bool { return strings.Contains(text, next) }); strings.Contains(got, "event: gap") {
			t.Errorf("after a restart: got %s; want no gap", got)
		}
		p.stop()
		wantExit(t, 0, nil, "store", "compact", "--data", data)
	}

	c = start(copied, c.task)
	for range 3 { // so that the numbers are there again
		c.create(`{"namespace":"t","name":"anchor"}`)
	}
	c.events(known.mark, func(text string) bool { return strings.Contains(text, "event: gap") })
	c.do("GET", "/v1/tasks?per_page=1&cursor="+known.cursor, "").want(400)
	wantParts(t, "the action", string(c.act(known.asOf)), "as_of: it is of another history of the store")
	if got := c.ifMatch(`"` + known.mark + `"`); got != 412 {
		t.Errorf("If-Match of another history: got %d; want 412", got)
	}
	if got := c.ifMatch(known.tag); got != 200 { // the task was there before the copy
		t.Errorf("If-Match of what both have: got %d; want 200", got)
	}
	p.stop()
}
