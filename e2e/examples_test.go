package e2e

// The example workers in other languages, with a real server.

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// exampleWorkers are workers in other languages, which use the example workers.
var exampleWorkers = []struct{ language, arithmetic string }{
	{"python3", "testdata/workers/arithmetic.py"},
	{"node", "testdata/workers/arithmetic.mjs"},
}

// TestHandlerExamples runs the handlers, programs and workers of docs/handlers.md in each language: one task
// goes through all of them.
func TestHandlerExamples(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	for _, tt := range []struct{ language, handler, program, worker string }{
		{"go", "handler.go", "stamp", "worker.go"},
		{"python3", "handler.py", "stamp.py", "worker.py"},
		{"node", "handler.mjs", "stamp.mjs", "worker.mjs"},
	} {
		t.Run(tt.language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeListings(t, dir, string(readFile(t, repository("docs/handlers.md"))))
			worker := []string{tt.language, repository("examples/" + tt.worker)}
			handler := []string{tt.language, filepath.Join(dir, tt.handler)}
			if tt.language == "go" {
				worker, handler = []string{goBuild(t, worker[1])}, []string{goBuild(t, handler[1])}
				os.Rename(goBuild(t, filepath.Join(dir, "stamp.go")), filepath.Join(dir, "stamp"))
			}
			os.Chmod(filepath.Join(dir, tt.program), 0o755)
			_, port, _ := net.SplitHostPort(freePort(t))
			edit := func(name, from, to string) {
				file := filepath.Join(dir, name)
				writeFile(t, file, []byte(strings.Replace(string(readFile(t, file)), from, to, 1)))
			}
			edit("intake.yaml", "stamp.py", tt.program)
			edit("stepwell.toml", ":9000", ":"+port)
			edit("stepwell.toml", "/opt/steps:", dir+":"+os.Getenv("PATH")+":")
			p := serve(t, "--fixture", "--config", filepath.Join(dir, "stepwell.toml"), "--templates", filepath.Join(dir, "intake.yaml"))
			startProcess(t, nil, append(handler, port)...)
			startProcess(t, []string{"STEPWELL_URL=" + p.ready.OrchestrationURL}, worker...)
			awaitPort(t, "127.0.0.1:"+port)
			id := p.api().create(`{"namespace":"shop","name":"intake"}`)
			p.api().await(id, "complete")
			for step, want := range map[string]string{"charge": `{"paid":120}`, "load": `{"rows":2500}`,
				"stamp": `{"arguments":["--loud"],"stamped":{"paid":120}}`, "count": "250"} {
				if got := resultText(t, p.api(), id, step); got != want {
					t.Errorf("%s: got %s; want %s", step, got, want)
				}
			}
			p.api().do("POST", "/_stepwell/verify", `{"match":{"step":"load"},"count":{"exactly":3}}`).want(200)
			p.api().do("POST", "/_stepwell/verify",
				`{"match":{"kind":"request","path_prefix":"/v1/steps/","body":{"items_processed":200}},"count":{"exactly":1}}`).want(200)
			id = p.api().create(`{"namespace":"shop","name":"intake","context":{"amount":5000}}`)
			p.api().await(id, "blocked_by_failures")
		})
	}
}

// TestBatchExample runs the batches of docs/handlers.md, with and without work to do.
func TestBatchExample(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := t.TempDir()
	writeListings(t, dir, string(readFile(t, repository("docs/handlers.md"))))
	address := freePort(t)
	_, port, _ := net.SplitHostPort(address)
	startProcess(t, nil, "python3", filepath.Join(dir, "invoices.py"), port)
	awaitPort(t, address)
	for input, want := range map[string]string{`{}`: `{"batches":3,"sent":250}`, `{"invoices":0}`: `{"batches":0,"sent":0}`} {
		_, stdout, stderr := runProgram(t, nil, "run", filepath.Join(dir, "invoices.yaml"), "--context", input,
			"--handler", "billing.*=http://"+address, "-o", "json")
		var shown struct{ Results map[string]json.RawMessage }
		if err := json.Unmarshal([]byte(stdout), &shown); err != nil {
			t.Fatal(err, stderr)
		}
		var got bytes.Buffer
		json.Compact(&got, shown.Results["report"])
		if got.String() != want {
			t.Errorf("%s: got %s; want %s", input, &got, want)
		}
	}
}

// goBuild builds a program, and returns its file.
func goBuild(t *testing.T, sources ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if said, err := exec.Command("go", append([]string{"build", "-o", file}, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return file
}

// awaitPort waits until something listens on an address.
func awaitPort(t *testing.T, address string) {
	t.Helper()
	eventually(t, "a listener on "+address, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// TestExampleCommands runs each example as its README says, and creates a task.
func TestExampleCommands(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, tt := range []struct{ name, create string }{
		{"order", `{"namespace":"shop","name":"order","context":{"item":"lamp","amount":30,"card":"4242"}}`},
		{"documents", `{"namespace":"archive","name":"documents","context":{"documents":["a.txt","b.txt"]}}`},
		{"approval", `{"namespace":"expenses","name":"approval","context":{"amount":20}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, port, _ := net.SplitHostPort(freePort(t))
			page := string(readFile(t, repository("examples/"+tt.name+"/README.md")))
			block := regexp.MustCompile("(?s)```sh\n(.*?) &\n(\\w+='.*?' )?go run \\. --templates (.*?)\n```").FindStringSubmatch(page)
			if block == nil {
				t.Fatal("the README does not say how to run it")
			}
			setting := strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(block[2]), "'", ""), ":9000", ":"+port)
			template := wire.Must(filepath.Abs(repository(block[3])))(t)
			p := serveWith(t, strings.Fields(setting), "--memory", "--templates", template)
			command := strings.Fields(strings.ReplaceAll(block[1], "examples/", "../examples/"))
			switch tt.name {
			case "order":
				command = []string{goBuild(t, "../examples/order"), "127.0.0.1:" + port}
			case "approval":
				command = append(command, port)
			}
			startProcess(t, []string{"STEPWELL_URL=" + p.ready.OrchestrationURL}, command...)
			if setting != "" {
				awaitPort(t, "127.0.0.1:"+port)
			}
			p.api().await(p.api().create(tt.create), "complete")
		})
	}
}

// startWorker runs an example worker until the test ends.
func startWorker(t *testing.T, p *program, language, file string, env ...string) {
	t.Helper()
	startProcess(t, append(env, "STEPWELL_URL="+p.ready.OrchestrationURL, "PYTHONPATH="+repository("examples")),
		language, repository(file))
}

// TestExampleWorkers has the workers of the examples approve what the demo asks people for.
func TestExampleWorkers(t *testing.T) {
	t.Parallel()
	slow(t)
	for language, file := range map[string]string{"python3": "examples/worker.py", "node": "examples/worker.mjs"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			p := serve(t)
			startWorker(t, p, language, file)
			id := p.api().create(`{"namespace":"demo","name":"approval"}`)
			p.api().await(id, "complete")
			wantParts(t, "the approval", resultText(t, p.api(), id, "approve"), `"approved":true`)
		})
	}
}

// TestExampleWorkersDeliver drops the outcome of a step, then refuses it: a worker repeats it, then reports a failure.
func TestExampleWorkersDeliver(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, worker := range []string{goBuild(t, repository("examples/worker.go")), "python3 ../examples/worker.py", "node ../examples/worker.mjs"} {
		sent := make(chan string, 100)
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent <- r.URL.Path + " " + string(wire.Must(io.ReadAll(r.Body))(t))
			status := map[int]int{1: 200, 3: 413, 4: 200}[len(sent)]
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
			io.WriteString(w, `[{"callable": "demo.approve", "lease": "l", "task": {"context": {"amount": 1}}, "step": {"step_uuid": "s"}, "dependency_results": {"request": 1}}]`)
		}))
		defer service.Close()
		startProcess(t, []string{"STEPWELL_URL=" + service.URL}, strings.Fields(worker)...)
		eventually(t, "four requests", func() bool { return len(sent) >= 4 })
		claim, lost, refused, failure := <-sent, <-sent, <-sent, <-sent
		if refused != lost || !strings.Contains(lost, "/complete ") || !strings.Contains(failure, "/fail ") {
			t.Errorf("%s: got %s, then %s, then %s, then %s", worker, claim, lost, refused, failure)
		}
	}
}

// TestMountClient runs the example client, as a new user would.
func TestMountClient(t *testing.T) {
	t.Parallel()
	slow(t)
	python := wire.Need(t, "python3")
	p := serve(t, "--memory")
	run := func(args ...string) (string, error) {
		args = append([]string{repository("examples/mount_client.py"), "--url", p.ready.MountURL}, args...)
		out, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput()
		return string(out), err
	}
	for handler, want := range map[string]string{
		"demo/diamond": "demo.diamond@1.0.0: complete; 4 of 4 steps completed, 0 ready, 0 blocked " +
			"and 0 failed; the longest path has 3.\n  start: complete\n    left: complete (after start)\n" +
			"    right: complete (after start)\n      end: complete (after left, right)\n",
		"demo/nothing": "no handler demo/nothing; handlers: demo/approval, demo/batch, ",
	} {
		out, err := run(handler)
		if !strings.HasPrefix(out, want) || (err == nil) != (handler == "demo/diamond") {
			t.Errorf("%s: got %v and\n%s\nwant\n%s", handler, err, out, want)
		}
	}
	out, err := run("demo/failing")
	if !strings.Contains(out, "demo.failing@1.0.0: error; ") || !strings.Contains(out, ": error") || err == nil {
		t.Errorf("a task that fails: got %v and\n%s", err, out)
	}
}
