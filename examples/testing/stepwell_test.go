package order

// One Stepwell for all tests of a package, and a service of its own for each. STEPWELL is the program;
// without it "go run stepwell" builds one, as "go tool stepwell" does where go.mod names the tool.

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

const serve = " --fixture --quiet --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0 --print-ready --exit-with-parent"

var sandboxes string // where there are services to be had

func TestMain(m *testing.M) {
	args := strings.Fields(cmp.Or(os.Getenv("STEPWELL"), "go run stepwell") + serve)
	program := exec.Command(args[0], args[1:]...)
	program.Stderr = os.Stderr
	program.StdinPipe() // closes with this process, and so ends the program
	stdout, _ := program.StdoutPipe()
	var ready map[string]any
	if err := cmp.Or(program.Start(), json.NewDecoder(stdout).Decode(&ready)); err != nil {
		log.Fatal(args, ": ", err)
	}
	sandboxes = ready["orchestration_url"].(string) + "/_stepwell/sandboxes"
	m.Run()
}

// newService returns the address of a service that is the test's alone, where time stands still.
func newService(t *testing.T) string {
	box := call(t, "POST", sandboxes, "")
	t.Cleanup(func() { call(t, "DELETE", sandboxes+"/"+box["name"].(string), "") })
	url := box["orchestration_url"].(string)
	call(t, "POST", url+"/_stepwell/clock", `{"freeze": true}`)
	return url
}

// call sends a request, which must be answered well, and returns the answer.
func call(t *testing.T, method, url, body string) (answer map[string]any) {
	t.Helper()
	request, _ := http.NewRequest(method, url, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	json.NewDecoder(reply.Body).Decode(&answer) // 204 has none
	if reply.StatusCode >= 400 {
		t.Fatalf("%s %s: %s %v", method, url, reply.Status, answer)
	}
	return answer
}
