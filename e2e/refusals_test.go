package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// TestRefusalsReachSenders has clients that read an answer only when they have sent their request send 8 MB with each
// request that is refused, on every surface: each gets every refusal.
func TestRefusalsReachSenders(t *testing.T) {
	t.Parallel()
	const secured = "[[%[1]s.auth.api_keys]]\nkey = \"0123456789abcdef\"\npermissions = [\"dlq:read\"]\ndescription = \"ci\"\n" +
		"[%[1]s.auth]\nenabled = true\napi_keys_enabled = true\n"
	const asking = "[%s.auth]\nenabled = true\nauthenticator_url = \"http://127.0.0.1:1/\"\n"
	roles := func(section string) string {
		return configFile(t, fmt.Sprintf(section, "orchestration.web")+fmt.Sprintf(section, "worker.web"))
	}
	open := serve(t, "--fixture")
	closed, lost := serve(t, "--memory", "--config", roles(secured)), serve(t, "--memory", "--config", roles(asking))
	box := open.api().do("POST", "/_stepwell/sandboxes", "{}").want(201)
	var cases []string
	addSize := func(bytes, want int, method, url string, headers ...string) {
		cases = append(cases, strings.Join(append([]string{fmt.Sprint(want), method, url, fmt.Sprint(bytes)}, headers...), "\t"))
	}
	add := func(want int, method, url string, headers ...string) {
		addSize(8<<20, want, method, url, append(headers, "Content-Type: application/json")...)
	}
	const validate = "/v1/templates/demo/diamond/1.0.0/validate"
	surfaces := func(orchestration, worker, mount string) {
		for _, s := range [][2]string{{orchestration, "/v1/tasks"}, {orchestration, "/_stepwell/stubs"}, {worker, validate}, {mount, "/tasks"}} {
			add(400, "POST", s[0]+s[1], "Origin: http://elsewhere.example")
			add(404, "POST", s[0]+s[1]+"/nothing/here")
			add(405, "PUT", s[0]+strings.Replace(s[1], "stubs", "reset", 1))
			add(413, "POST", s[0]+s[1])
			add(421, "POST", s[0]+s[1], "Host: elsewhere.example")
			addSize(3<<20, 415, "POST", s[0]+s[1], "Content-Type: text/plain") // which is seen when the whole body has come
		}
	}
	surfaces(open.ready.OrchestrationURL, open.ready.WorkerURL, open.ready.MountURL)
	surfaces(box.text("orchestration_url"), box.text("worker_url"), box.text("mount_url"))
	for _, p := range []*program{closed, lost} {
		for _, url := range []string{p.ready.OrchestrationURL + "/v1/tasks", p.ready.WorkerURL + validate, p.ready.MountURL + "/tasks"} {
			if p == lost {
				add(503, "POST", url, "Authorization: Bearer x")
			} else {
				add(401, "POST", url)
				add(403, "POST", url, "X-API-Key: 0123456789abcdef")
			}
		}
	}
	list := filepath.Join(t.TempDir(), "cases")
	writeFile(t, list, []byte(strings.Join(cases, "\n")+"\n"))
	for tool, script := range map[string]string{"python3": "refusals.py", "java": "Refusals.java"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			path := wire.Need(t, tool)
			tries := size(1, 20)
			cmd := exec.Command(path, repository("testdata/clients/"+script), list, fmt.Sprint(tries))
			cmd.Env = programEnv()
			got := strings.Split(strings.TrimSpace(string(wire.Must(cmd.Output())(t))), "\n")
			if len(got) != len(cases) {
				t.Fatalf("got %d lines; want %d", len(got), len(cases))
			}
			for _, line := range got {
				if t.Log(line); !strings.HasPrefix(line, fmt.Sprintf("%d\tof\t", tries)) {
					t.Errorf("not every request got its refusal: %s", line)
				}
			}
		})
	}
}
