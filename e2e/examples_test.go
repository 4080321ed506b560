package e2e

// The example workers in other languages, with a real server.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// exampleWorkers are the commands of the example workers.
var exampleWorkers = []struct{ language, example, arithmetic string }{
	{"python3", "examples/worker.py", "testdata/workers/arithmetic.py"},
	{"node", "examples/worker.mjs", "testdata/workers/arithmetic.mjs"},
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

// startProcess runs a command until the test ends.
func startProcess(t *testing.T, env []string, command ...string) {
	t.Helper()
	wire.Need(t, command[0])
	process := exec.Command(command[0], command[1:]...)
	process.Env = append(os.Environ(), append(env, "PYTHONDONTWRITEBYTECODE=1")...)
	said := newOutput()
	process.Stdout, process.Stderr = said, said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
		if t.Failed() {
			t.Logf("%q said:\n%s", command, said)
		}
	})
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

func TestExampleWorkers(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, w := range exampleWorkers {
		t.Run(w.language, func(t *testing.T) {
			t.Parallel()
			p := serve(t)
			startWorker(t, p, w.language, w.example)
			id := p.api().create(`{"namespace":"demo","name":"approval"}`)
			p.api().await(id, "complete")
			steps := p.api().do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
			if got := steps.text("1.results.result.approved"); got != "true" {
				t.Errorf("approved: %s", got)
			}
		})
	}
}

// TestArithmeticOutside is TestArithmetic with workers in other languages.
func TestArithmeticOutside(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := needForeignTemplates(t)
	for _, w := range exampleWorkers {
		t.Run(w.language, func(t *testing.T) {
			t.Parallel()
			p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--templates", dir)
			startWorker(t, p, w.language, w.arithmetic, arithmeticParents(t))
			for i, id := range createArithmetic(t, p, 0) {
				wantArithmetic(t, p, i, id)
			}
		})
	}
}

// TestArithmeticShared runs the workers of both languages at once: each computes some of the
// steps, from results of the other.
func TestArithmeticShared(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := needForeignTemplates(t)
	p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--templates", dir)
	parents := arithmeticParents(t)
	for i, w := range exampleWorkers {
		startWorker(t, p, w.language, w.arithmetic, parents)
		eventually(t, w.arithmetic+" to wait for steps", func() bool {
			return p.api().metric("stepwell_claimers_waiting") == int64(i+1)
		})
	}
	var ids []string
	for round := range 5 {
		ids = append(ids, createArithmetic(t, p, round)...)
	}
	done := map[string]int{}
	for i, id := range ids {
		wantArithmetic(t, p, i%len(arithmeticRows), id)
		countWorkers(t, p, id, done)
	}
	for _, w := range exampleWorkers {
		if done[filepath.Base(w.arithmetic)] == 0 || len(done) != len(exampleWorkers) {
			t.Errorf("the steps were done by %v; want %s among two", done, w.arithmetic)
		}
	}
}

// arithmeticParents returns the setting that names the factors of each step for a worker.
func arithmeticParents(t *testing.T) string {
	t.Helper()
	parents := map[string][]string{}
	for _, row := range arithmeticRows {
		for _, s := range readArithmetic(t, row.file).Steps {
			parents[s.Name] = append([]string{}, s.Dependencies...)
		}
	}
	text := wire.Must(json.Marshal(parents))(t)
	return "STEP_PARENTS=" + string(text)
}

// createArithmetic creates a task of each template, in the order of the rows. The round makes
// it unique.
func createArithmetic(t *testing.T, p *program, round int) (ids []string) {
	t.Helper()
	for _, row := range arithmeticRows {
		tpl := readArithmetic(t, row.file)
		ids = append(ids, p.api().create(fmt.Sprintf(
			`{"namespace":%q,"name":%q,"context":{"even_number":6},"idempotency_key":"%d"}`, tpl.Namespace, tpl.Name, round)))
	}
	return ids
}

// wantArithmetic waits for the result of a row.
func wantArithmetic(t *testing.T, p *program, row int, id string) {
	t.Helper()
	p.api().await(id, "complete")
	want := new(big.Int).Exp(big.NewInt(6), big.NewInt(arithmeticRows[row].exponent), nil)
	if got := resultText(t, p.api(), id, arithmeticRows[row].last); got != want.String() {
		t.Errorf("%s: got %s; want 6^%d = %s", arithmeticRows[row].last, got, arithmeticRows[row].exponent, want)
	}
}

// countWorkers counts the steps of a task by worker.
func countWorkers(t *testing.T, p *program, id string, done map[string]int) {
	t.Helper()
	for _, s := range p.api().steps(id) {
		done[s.Results.Metadata.Worker]++
	}
}
