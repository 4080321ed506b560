package e2e

// The program under a service manager, which passes its sockets and is told about its state, and sockets in the file
// system.

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// unit returns the settings of a unit of systemd, by section and name.
func unit(t *testing.T, file string) map[string][]string {
	t.Helper()
	settings, section := map[string][]string{}, ""
	for line := range strings.Lines(string(readFile(t, repository(file)))) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
		case !ok || section == "":
			t.Fatalf("%s: %q is no setting", file, line)
		default:
			settings[section+"."+name] = append(settings[section+"."+name], value)
		}
	}
	return settings
}

// passedSocket returns a socket that a service manager listens on, and its URL.
func passedSocket(t *testing.T, network, address string) (*os.File, string) {
	t.Helper()
	l := wire.Must(net.Listen(network, address))(t)
	t.Cleanup(func() { l.Close() })
	f := wire.Must(l.(interface{ File() (*os.File, error) }).File())(t)
	t.Cleanup(func() { f.Close() })
	return f, "http://" + l.Addr().String()
}

// managed returns the program as a service manager starts it that passes sockets.
func managed(t *testing.T, dir string, sockets []*os.File, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", `export LISTEN_PID=$$; exec "$0" "$@"`, programFile(t)}, args...)...)
	cmd.Env = append(programEnv(), fmt.Sprintf("LISTEN_FDS=%d", len(sockets)))
	cmd.Dir, cmd.ExtraFiles = dir, sockets
	return cmd
}

// TestSocketNames passes two sockets, and expects each role on the one that has its name; without such names the
// first is for the orchestration role. A role without a socket listens on its configured address.
func TestSocketNames(t *testing.T) {
	t.Parallel()
	const elsewhere = -1
	for _, tt := range []struct {
		names                 string
		orchestration, worker int // the socket
	}{
		{"", 0, 1},
		{"stepwell.socket:stepwell.socket", 0, 1},
		{"orchestration:worker", 0, 1},
		{"worker:orchestration", 1, 0},
		{"other:worker", elsewhere, 1},
		{"worker", elsewhere, 0},
	} {
		t.Run(tt.names, func(t *testing.T) {
			t.Parallel()
			urls := make([]string, 2)
			sockets := make([]*os.File, 2)
			for i := range sockets {
				sockets[i], urls[i] = passedSocket(t, "tcp", "127.0.0.1:0")
			}
			cmd := managed(t, t.TempDir(), sockets, serveArguments("--memory")...)
			cmd.Env = append(cmd.Env, "LISTEN_FDNAMES="+tt.names)
			out := wire.Must(cmd.StdoutPipe())(t)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			var ready readyReport
			if err := json.NewDecoder(out).Decode(&ready); err != nil {
				t.Fatal(err)
			}
			for url, want := range map[string]int{ready.OrchestrationURL: tt.orchestration, ready.WorkerURL: tt.worker} {
				if got := slices.Index(urls, url); got != want {
					t.Errorf("%s is socket %d; want %d (orchestration %d, worker %d)", url, got, want, tt.orchestration, tt.worker)
				}
			}
		})
	}
}

// TestServiceManager starts the program as the units of examples/systemd say: it listens where the manager does, tells
// that it is ready, lives and stops, and logs one line for the end.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	service, socket := unit(t, "examples/systemd/stepwell.service"), unit(t, "examples/systemd/stepwell.socket")
	if got := service["Service.Type"]; !slices.Equal(got, []string{"notify"}) || service["Service.WatchdogSec"] == nil {
		t.Errorf("got the type %q, a watchdog of %q", got, service["Service.WatchdogSec"])
	}
	dir := t.TempDir()
	args := strings.Fields(service["Service.ExecStart"][0])[1:]
	state := "/var/lib/" + service["Service.StateDirectory"][0]
	at := slices.Index(args, state)
	if at < 0 {
		t.Fatalf("%q does not name the directory %s", args, state)
	}
	args[at] = filepath.Join(dir, "data")
	worker := filepath.Join(dir, filepath.Base(socket["Socket.ListenStream"][1]))
	first, orchestration := passedSocket(t, "tcp", "127.0.0.1:0")
	second, _ := passedSocket(t, "unix", worker)
	manager := wire.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}))(t)
	defer manager.Close()
	await := func(want string) {
		t.Helper()
		for b := make([]byte, 100); ; {
			n, err := manager.Read(b)
			switch got := string(b[:n]); {
			case err != nil:
				t.Fatalf("waiting for %s: %v", want, err)
			case got == want:
				return
			case got != "WATCHDOG=1":
				t.Fatalf("got %s; want %s", got, want)
			}
		}
	}
	cmd := managed(t, dir, []*os.File{first, second}, args...)
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify"), "WATCHDOG_USEC=20000")
	log := newOutput()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	manager.SetReadDeadline(time.Now().Add(patience))
	await("READY=1")
	await("WATCHDOG=1")
	if resp := wire.Must(http.Get(orchestration + "/health/ready"))(t); resp.StatusCode != 200 {
		t.Errorf("the orchestration role: got status %d; want 200", resp.StatusCode)
	}
	if said, err := exec.Command(programFile(t), "health", "--url", "unix:"+worker).CombinedOutput(); err != nil {
		t.Errorf("the worker role: %v\n%s", err, said)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	await("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the end: %v\n%s", err, log)
	}
	if _, end, _ := strings.Cut(log.String(), `"serving"`); strings.Count(end, "\n") != 2 || !strings.Contains(end, `"msg":"stopped"`) {
		t.Errorf("got the log %s; want one line about the end", end)
	}
}

// TestUnixSocket serves on a path, is killed, takes its socket over, and refuses that of another process.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	args := []string{"--memory", "--listen", "unix:" + path, "--worker-listen", "127.0.0.1:0", "--print-ready"}
	launch(t, nil, args...).awaitReady().kill()
	p := launch(t, nil, args...).awaitReady()
	if p.ready.OrchestrationURL != "unix:"+path {
		t.Errorf("got the URL %s; want unix:%s", p.ready.OrchestrationURL, path)
	}
	if mode := wire.Must(os.Lstat(path))(t).Mode().Perm(); mode != 0o600 {
		t.Errorf("got a socket with the mode %o; want 600", mode)
	}
	for _, tt := range []struct{ command, stdin, want string }{
		{"task create demo/diamond --wait", "", ""},
		{"healthcheck --ready", "", `"status":"ready"`},
		{"mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"task_list","arguments":{}}}` + "\n", "diamond"},
	} {
		cmd := exec.Command(programFile(t), append(strings.Fields(tt.command), "--url", "unix:"+path)...)
		cmd.Stdin = strings.NewReader(tt.stdin)
		if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(strings.ReplaceAll(string(said), `": "`, `":"`), tt.want) {
			t.Errorf("%s: %v\n%s", tt.command, err, said)
		}
	}
	second := launch(t, nil, args...)
	if code := second.wait(); code != 1 || !strings.Contains(second.stderr.String(), "in use by another program") {
		t.Errorf("a second process: got exit code %d, %s", code, second.stderr)
	}
	wantParts(t, "nobody there", wantExit(t, 7, nil, "healthcheck", "--url", "unix:"+path+"x"), "unix:"+path+"x cannot be reached")
	p.stop()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after the end, the socket is still there: %v", err)
	}
}

// TestLaunchd reads the file for launchd, and the program accepts its arguments.
func TestLaunchd(t *testing.T) {
	t.Parallel()
	var list struct {
		Arguments []string `xml:"dict>array>string"`
	}
	text := readFile(t, repository("examples/launchd/stepwell.plist"))
	if err := xml.Unmarshal(text, &list); err != nil || len(list.Arguments) < 2 {
		t.Fatalf("got the arguments %q, %v", list.Arguments, err)
	}
	cmd := exec.Command(programFile(t), append(list.Arguments[1:], "--help")...)
	cmd.Stderr = io.Discard
	if out, err := cmd.Output(); err != nil {
		t.Errorf("%q: %v\n%s", list.Arguments, err, out)
	}
}
