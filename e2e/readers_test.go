package e2e

// Readers beside the running service: whatever it does to its files meanwhile, they get a whole
// store.

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var readRounds = flag.Int("read.rounds", size(1, 4), "rounds of TestReadersBesideTheService; 1000 is the full test")

// readerTest is a service whose journal and snapshot are replaced all the time.
type readerTest struct {
	t       *testing.T
	data    string
	program *program
	anchors []string // tasks that never end
}

// newReaderTest starts a service that keeps few large tasks, and clients that create more.
func newReaderTest(t *testing.T) *readerTest {
	t.Helper()
	r := &readerTest{t: t, data: filepath.Join(t.TempDir(), "data")}
	templates := templateDir(t, diamondTemplate, testTemplate("anchor", stepSpec{name: "a", callable: "Nobody"}))
	r.program = serveWith(t, []string{"STEPWELL_STORE__RETAIN_FINISHED_COUNT=500"},
		"--data", r.data, "--sync", "always", "--templates", templates, "--quiet")
	var load sync.WaitGroup
	over := make(chan struct{})
	body := fmt.Sprintf(`{"namespace":"t","name":"diamond","context":{"padding":%q}}`, strings.Repeat("x", 30_000))
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

// anchor creates a task that every later reader must find.
func (r *readerTest) anchor() {
	r.t.Helper()
	r.anchors = append(r.anchors, r.program.api().create(`{"namespace":"t","name":"anchor"}`))
}

// wantWhole checks that a state document has every anchor.
func (r *readerTest) wantWhole(document string) {
	r.t.Helper()
	if !json.Valid([]byte(document)) {
		r.t.Fatalf("the document is not JSON: %.300s", document)
	}
	for _, id := range r.anchors {
		if !strings.Contains(document, id) {
			r.t.Fatalf("task %s is not in the document", id)
		}
	}
}

// export returns the state document of a data directory.
func (r *readerTest) export(data string) string {
	r.t.Helper()
	code, stdout, stderr := runProgram(r.t, nil, "store", "export", "--data", data)
	if code != 0 {
		r.t.Fatalf("store export: got exit code %d\n%s", code, stderr)
	}
	return stdout
}

// copy copies the data directory file by file. The copy is whole, or cp or the export says that it is not.
func (r *readerTest) copy() {
	r.t.Helper()
	copied := filepath.Join(r.t.TempDir(), "copied")
	defer os.RemoveAll(copied)
	if exec.Command("cp", "-r", r.data, copied).Run() != nil {
		return // a name that it had listed is gone
	}
	code, stdout, stderr := runProgram(r.t, nil, "store", "export", "--data", copied)
	if code == 0 {
		r.wantWhole(stdout)
		return
	}
	wantParts(r.t, "the refusal of a torn copy", stderr, `use GET /v1/backup or "stepwell store export"`)
}

// TestReadersBesideTheService checks that a running service can be exported and checked while it replaces its
// files, that its backup is whole, and that a copy of its directory is whole or refused.
func TestReadersBesideTheService(t *testing.T) {
	t.Parallel()
	slow(t)
	r := newReaderTest(t)
	readers := []struct {
		name string
		read func()
	}{
		{"export", func() { r.wantWhole(r.export(r.data)) }},
		{"check", func() { wantExit(t, 0, nil, "store", "check", "--data", r.data) }},
		{"copy", r.copy},
		{"backup", func() { r.wantWhole(string(r.program.api().do("GET", "/v1/backup", "").want(200).body)) }},
	}
	snapshots := map[string]bool{} // by header
	for round := 0; round < *readRounds || len(snapshots) < max(2, *readRounds/10) && round < 20**readRounds; round++ {
		for _, reader := range readers {
			header, _ := os.ReadFile(filepath.Join(r.data, "snapshot.jsonl"))
			snapshots[string(header[:min(len(header), 160)])] = true
			r.anchor()
			reader.read()
			if t.Failed() {
				t.Fatalf("%s beside the service failed", reader.name)
			}
		}
	}
	if len(snapshots) < max(2, *readRounds/10) {
		t.Errorf("got %d snapshots in twenty times the rounds; want more", len(snapshots))
	}
}

// TestRepair damages a store: a start refuses it, a read-only service shows what is sound, and a
// repair writes that as a store of its own.
func TestRepair(t *testing.T) {
	slow(t)
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := serve(t, "--data", data, "--quiet")
	kept := p.api().create(`{"namespace":"demo","name":"diamond"}`)
	lost := p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.api().await(kept, "complete")
	p.api().await(lost, "complete")
	p.stop()
	journal := filepath.Join(data, "journal.jsonl")
	sound := string(readFile(t, journal))
	damaged := strings.Replace(sound, fmt.Sprintf(`"task":%q`, lost), fmt.Sprintf(`"tAsk":%q`, lost), 1)
	writeFile(t, journal, []byte(damaged))
	wantRefused(t, []string{"--data", data}, "journal.jsonl, line ", "the checksum does not match")
	p = serve(t, "--data", data, "--read-only")
	eventually(t, "the start says that it is read-only", func() bool {
		return strings.Contains(p.stderr.String(), data+", read-only")
	})
	p.api().do("GET", "/v1/tasks/"+kept, "").want(200)
	p.api().do("GET", "/v1/tasks/"+lost, "").want(404)
	p.api().do("GET", "/health/ready", "").want(503)
	refused := p.api().do("POST", "/v1/tasks", `{"namespace":"demo","name":"diamond"}`).want(503)
	wantParts(t, "refusal", string(refused.body), "--read-only")
	said := wantExit(t, 0, nil, "store", "repair", "--data", data)
	wantParts(t, "repair", said, "journal.jsonl, line ", "1 record is missing", "task "+lost+" is lost", "1 task, up to")
	p.stop()
	if got := string(readFile(t, journal)); got != damaged {
		t.Error("the damaged journal was changed")
	}
	p = serve(t, "--data", data+".repaired", "--quiet")
	p.api().await(kept, "complete")
	p.api().create(`{"namespace":"demo","name":"diamond"}`)
	wantExit(t, 1, nil, "store", "repair", "--data", data)
	wantExit(t, 2, nil, "serve", "--read-only", "--memory")
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
	saved := filepath.Join(t.TempDir(), "saved.json")
	writeFile(t, saved, p.api().do("GET", "/v1/backup", "").want(200).body)
	wantExit(t, 0, nil, "store", "import", "--data", data+".new", saved)
	serve(t, "--data", data+".new", "--quiet").api().await(id, "complete")
}
