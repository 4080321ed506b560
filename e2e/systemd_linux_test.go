package e2e

// The program under a service manager, which passes its sockets and is told about its state, and sockets in the file
// system.

import (
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
	var sockets []*os.File
	orchestration := ""
	for i, address := range []string{"127.0.0.1:0", worker} {
		l := wire.Must(net.Listen([]string{"tcp", "unix"}[i], address))(t)
		defer l.Close()
		if i == 0 {
			orchestration = "http://" + l.Addr().String()
		}
		sockets = append(sockets, wire.Must(l.(interface{ File() (*os.File, error) }).File())(t))
	}
	manager := wire.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}))(t)
	defer manager.Close()
	manager.SetReadDeadline(time.Now().Add(patience))
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
	cmd := exec.Command("sh", append([]string{"-c", `export LISTEN_PID=$$; exec "$0" "$@"`, programFile(t)}, args...)...)
	cmd.Env = append(programEnv(), "NOTIFY_SOCKET="+filepath.Join(dir, "notify"), "WATCHDOG_USEC=20000",
		fmt.Sprintf("LISTEN_FDS=%d", len(sockets)))
	cmd.Dir, cmd.ExtraFiles = dir, sockets
	log := newOutput()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
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
	if said, err := exec.Command(programFile(t), "task", "create", "demo/diamond", "--wait", "--url", "unix:"+path).CombinedOutput(); err != nil {
		t.Errorf("task create: %v\n%s", err, said)
	}
	second := launch(t, nil, args...)
	if code := second.wait(); code != 1 || !strings.Contains(second.stderr.String(), "in use by another program") {
		t.Errorf("a second process: got exit code %d, %s", code, second.stderr)
	}
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
