package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// slowDisk is a disk whose writes, or else syncs, wait while it is held up.
type slowDisk struct {
	diskFS
	writes bool
	mu     sync.Mutex
	held   chan struct{} // closed when they may go on; nil when none waits
}

// hold stops what is to come; release lets it go on.
func (d *slowDisk) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = make(chan struct{})
}

func (d *slowDisk) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != nil {
		close(d.held)
		d.held = nil
	}
}

func (d *slowDisk) edit(name string) (diskFile, error) { return d.slow(d.diskFS.edit(name)) }

func (d *slowDisk) create(name string) (diskFile, error) { return d.slow(d.diskFS.create(name)) }

func (d *slowDisk) slow(f diskFile, err error) (diskFile, error) { return &slowFile{f, d}, err }

type slowFile struct {
	diskFile
	disk *slowDisk
}

func (f *slowFile) sync() error {
	f.disk.pass(!f.disk.writes)
	return f.diskFile.sync()
}

func (f *slowFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.pass(f.disk.writes)
	return f.diskFile.WriteAt(p, off)
}

// pass waits as long as an operation that may be held up is.
func (d *slowDisk) pass(mayBeHeld bool) {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if mayBeHeld && held != nil {
		<-held
	}
}

// slowTest is a server on a slow disk, and an HTTP handler that arrives and waits.
type slowTest struct {
	*testServer
	disk             *slowDisk
	arrived, release chan struct{}
	letHandlerGo     func()
}

func newSlowTest(t *testing.T, mode string) *slowTest {
	t.Helper()
	s := &slowTest{disk: &slowDisk{diskFS: newMemDisk(), writes: mode == "never"},
		arrived: make(chan struct{}, 10), release: make(chan struct{})}
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.arrived <- struct{}{}
		<-s.release
		io.WriteString(w, `"done"`)
	}))
	t.Cleanup(handler.Close)
	s.letHandlerGo = sync.OnceFunc(func() { close(s.release) })
	t.Cleanup(s.letHandlerGo)
	s.testServer = newTestServer(t, serviceTest{
		disk: s.disk, dir: "/data",
		config: func(c *Config) { c.Store.Sync, c.Store.SyncIntervalMS = mode, 1 },
		extra: []string{
			testTemplate("manual", stepSpec{name: "a", callable: "Outside::Actor"}),
			testTemplate("web", stepSpec{name: "a", callable: handler.URL},
				stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}),
		},
	})
	s.svc.store.journal.most = testBacklog
	s.create(`{"namespace":"t","name":"manual"}`) // with the template's record
	t.Cleanup(s.disk.release)
	return s
}

// testBacklog is the limit of these tests, and padding is in every task.
const testBacklog = 4 << 20

var padding = strings.Repeat("x", 900_000)

// createUntilRefused creates large tasks, one after the other is in the journal,
// until one is refused. The answers of the others may come when the disk goes on.
func (s *slowTest) createUntilRefused() (refused *answer, accepted int, answers chan *answer) {
	s.t.Helper()
	answers = make(chan *answer, 200)
	body := fmt.Sprintf(`{"namespace":"t","name":"manual","context":{"a":%q}}`, padding)
	for refused == nil && accepted < cap(answers) {
		before := s.svc.store.journal.status().records
		done := make(chan *answer, 1)
		go func() {
			a := s.do("POST", "/v1/tasks", body)
			if a.status == http.StatusCreated {
				answers <- a
			} else {
				done <- a
			}
		}()
		eventually(s.t, "the task is in the journal, or refused", func() bool {
			select {
			case refused = <-done:
				return true
			default:
				return s.svc.store.journal.status().records > before
			}
		})
		accepted++
	}
	return refused, accepted - 1, answers
}

func wantBackpressure(t *testing.T, a *answer) {
	t.Helper()
	a.want(http.StatusServiceUnavailable)
	if a.text("error.code") != "BACKPRESSURE" || a.header.Get("Retry-After") != "1" {
		t.Errorf("got Retry-After %q and %s; want BACKPRESSURE after a second", a.header.Get("Retry-After"), a.body)
	}
}

// TestBacklogRefusesTasks: with a disk that stands still no more tasks are taken
// than memory is set aside for, and no step starts; reads and outcomes go on.
// All that was taken is done once the disk goes on.
func TestBacklogRefusesTasks(t *testing.T) {
	for _, mode := range []string{"always", "interval", "never"} {
		t.Run(mode, func(t *testing.T) {
			s := newSlowTest(t, mode)
			web := s.create(`{"namespace":"t","name":"web"}`)
			<-s.arrived
			s.disk.hold()
			refused, accepted, answers := s.createUntilRefused()
			wantBackpressure(t, refused)
			if got, most := s.svc.store.journal.status().backlog, int64(testBacklog+len(padding)*2); got < testBacklog || got > most {
				t.Errorf("got a backlog of %d bytes; want %d to %d", got, testBacklog, most)
			}
			s.do("GET", "/v1/tasks?per_page=1", "").want(200)
			s.letHandlerGo()
			eventually(t, "the outcome is taken", func() bool {
				return s.do("GET", "/v1/tasks/"+web, "").want(200).text("completed_steps") == "1"
			})
			id, _ := parseUUID(web)
			v, err := s.svc.store.view(id)
			if err != nil {
				t.Fatal(err)
			}
			wantStates(t, v, "steps_in_process: complete enqueued")
			s.disk.release()
			for range accepted {
				if _, ok := receiveWithin(answers, patience); !ok {
					t.Fatal("a task that was taken is never acknowledged")
				}
			}
			s.await(web, "complete")
			s.create(`{"namespace":"t","name":"manual"}`)
		})
	}
}

// TestBacklogHoldsOutcomes: changes of what was taken before are refused as
// well when the space that is set aside ends, and outcomes are held.
func TestBacklogHoldsOutcomes(t *testing.T) {
	s := newSlowTest(t, "never")
	web := s.create(`{"namespace":"t","name":"web"}`)
	<-s.arrived
	tasks := make([]*answer, 40)
	for i := range tasks {
		tasks[i] = s.do("POST", "/v1/tasks", `{"namespace":"t","name":"manual"}`).want(201)
	}
	s.disk.hold()
	s.createUntilRefused()
	body := fmt.Sprintf(`{"action_type":"complete_manually","reason":"r","completed_by":"b","completion_data":{"result":%q}}`, padding)
	var refused *answer
	for _, v := range tasks {
		path := "/v1/tasks/" + v.text("task_uuid") + "/workflow_steps/" + v.text("steps.0.workflow_step_uuid")
		if refused = s.do("PATCH", path, body); refused.status != http.StatusOK {
			break
		}
	}
	wantBackpressure(t, refused)
	s.letHandlerGo()
	held := s.svc.store.journal.status()
	if most := int64(testBacklog + spaceAhead + spaceStep + 2*len(padding)); held.backlog > most {
		t.Errorf("got a backlog of %d bytes; want at most %d", held.backlog, most)
	}
	if got := s.do("GET", "/v1/tasks/"+web, "").want(200).text("completed_steps"); got != "0" {
		t.Errorf("got %s steps complete; want none, for its outcome cannot be recorded", got)
	}
	s.disk.release()
	s.await(web, "complete")
}
