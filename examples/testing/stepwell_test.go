package order

// One Stepwell process for all tests of a package, with one sandbox for each test. STEPWELL is the command
// to run; the default "go run stepwell" builds it, as does "go tool stepwell" if go.mod lists the tool.

import (
	"cmp"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

var sandboxes string // URL that creates sandboxes

func TestMain(m *testing.M) {
	const serve = " --fixture --quiet --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0 --print-ready --exit-with-parent"
	args := strings.Fields(cmp.Or(os.Getenv("STEPWELL"), "go run stepwell") + serve)
	program := exec.Command(args[0], args[1:]...)
	program.Stderr = os.Stderr
	stdin, _ := program.StdinPipe()
	defer stdin.Close() // stops Stepwell; a pipe that nothing uses any more would be closed early
	stdout, _ := program.StdoutPipe()
	var ready map[string]any
	if err := cmp.Or(program.Start(), json.NewDecoder(stdout).Decode(&ready)); err != nil {
		log.Fatal(args, ": ", err)
	}
	sandboxes = ready["orchestration_url"].(string) + "/_stepwell/sandboxes"
	m.Run()
}

// newService creates a sandbox for the test, freezes its clock, and returns its URL.
func newService(t *testing.T) string {
	box := call(t, "POST", sandboxes, "")
	t.Cleanup(func() { call(t, "DELETE", sandboxes+"/"+box["name"].(string), "") })
	url := box["orchestration_url"].(string)
	call(t, "POST", url+"/_stepwell/clock", `{"freeze": true}`)
	return url
}

// call sends a request, fails the test on an error status, and returns the response.
func call(t *testing.T, method, url, body string) (answer map[string]any) {
	t.Helper()
	request, _ := http.NewRequest(method, url, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	json.NewDecoder(reply.Body).Decode(&answer) // 204 has no body
	if reply.StatusCode >= 400 {
		t.Fatalf("%s %s: %s %v", method, url, reply.Status, answer)
	}
	return answer
}
