package e2e

// Readers beside the running service, and copies of its directory: whatever it does to its file meanwhile, they get a
// whole store.

import (
	"bytes"
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
	copyRounds = flag.Int("copies", size(4, 8), "copies that TestCopies makes by each tool; 334 is the full test")
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
			for copies := 0; copies < *copyRounds || len(r.files) < 2 && copies < 20**copyRounds; copies++ {
				r.t = t
				r.anchor()
				copied := filepath.Join(t.TempDir(), "copied")
				cmd := exec.Command("sh", "-c", tool.command, "copy", r.data, copied)
				said, _ := cmd.CombinedOutput()
				if code := cmd.ProcessState.ExitCode(); code != 0 && !slices.Contains(tool.changed, code) {
					t.Fatalf("%s: exit code %d: %s", tool.command, code, said)
				}
				r.open(copied)
				os.RemoveAll(filepath.Dir(copied))
				if t.Failed() {
					return
				}
			}
		})
	}
	r.t = t
	r.wantCompacted(1)
}

// open checks a copy and starts it.
func (r *readerTest) open(copied string) {
	r.t.Helper()
	r.wantRecords(wantExit(r.t, 0, nil, "store", "check", "--data", copied))
	p := serve(r.t, "--data", copied, "--templates", r.templates, "--quiet")
	list := p.api().do("GET", "/v1/tasks?name=anchor&per_page=1", "").want(200)
	if got, want := list.text("pagination.total_count"), fmt.Sprint(len(r.anchors)); got != want {
		r.t.Errorf("the copy has %s anchors; want %s", got, want)
	}
	p.api().do("GET", "/v1/tasks/"+r.anchors[len(r.anchors)-1], "").want(200)
	p.stop()
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
