// Package reference compares the program with the real distributed service that speaks the same API. The tests run
// with LONG_TESTS=1 where there is a kit that starts that service; see startReference.
package reference

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"stepwell/e2e/wire"
)

// reference is a running distributed service.
type reference struct {
	OrchestrationURL string `json:"orchestration_url"`
	WorkerURL        string `json:"worker_url"`
	DatabaseURL      string `json:"database_url"`
}

// startReference starts the distributed service with the templates of a folder, until the end of the test. The kit is in
// the folder that TASKER_REFERENCE names, or in shared/reference beside the checkout; without it the test is skipped.
func startReference(t *testing.T, templates string) *reference {
	t.Helper()
	wire.Long(t)
	kit := os.Getenv("TASKER_REFERENCE")
	if kit == "" {
		kit = "../../../shared/reference"
	}
	kit = wire.Must(filepath.Abs(kit))(t)
	if _, err := os.Stat(filepath.Join(kit, "start")); err != nil {
		t.Skip("there is no distributed service to compare with: set TASKER_REFERENCE to the folder of its kit")
	}
	dir := wire.Must(os.MkdirTemp("", "reference-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the database's user must be able to enter it
		t.Fatal(err)
	}
	var said bytes.Buffer
	start := exec.Command(filepath.Join(kit, "start"), dir, templates)
	start.Dir, start.Stderr = dir, &said
	line, err := start.Output()
	t.Cleanup(func() { exec.Command(filepath.Join(kit, "stop"), dir).Run() }) // fails if nothing was started
	r := &reference{}
	if err != nil || json.Unmarshal(line, r) != nil {
		t.Fatalf("the distributed service does not start: %v\n%s%s", err, said.String(), line)
	}
	return r
}

// binaryDir holds the built program.
var binaryDir string

func TestMain(m *testing.M) {
	binaryDir, _ = os.MkdirTemp("", "stepwell-reference-")
	code := m.Run()
	os.RemoveAll(binaryDir)
	os.Exit(code)
}

// builtProgram is the program, built once.
var builtProgram = sync.OnceValues(func() (string, error) {
	file := filepath.Join(binaryDir, "stepwell")
	return file, exec.Command("go", "build", "-o", file, "../..").Run()
})

// run runs the program, and returns what it prints on standard output and on standard error.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(wire.Must(builtProgram())(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// call sends a request with a body, or without one if it is "", and returns the answer.
func call(t *testing.T, method, url, body string) (status int, answer []byte) {
	t.Helper()
	request := wire.Must(http.NewRequest(method, url, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/json")
	response := wire.Must(http.DefaultClient.Do(request))(t)
	defer response.Body.Close()
	return response.StatusCode, wire.Must(io.ReadAll(response.Body))(t)
}
