package e2e

// The console in Firefox, driven by Marionette: messages over TCP that begin with their length.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// firefox is a Firefox without a window.
type firefox struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
	last int // id of a command
}

// startFirefox starts Firefox with a new, empty profile, or skips the test if Firefox is not installed.
func startFirefox(t *testing.T) *firefox {
	t.Helper()
	wire.Long(t)
	path := wire.Need(t, "firefox-esr|firefox")
	profile := t.TempDir()
	writeFile(t, filepath.Join(profile, "user.js"), []byte(`user_pref("marionette.port", 0);`))
	cmd := exec.Command(path, "--headless", "--no-remote", "--marionette", "--profile", profile)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := &firefox{t: t}
	t.Cleanup(func() {
		f.command("Marionette:Quit", object{})
		cmd.Wait()
	})
	var port []byte
	var err error
	wire.Eventually(t, "Firefox listens", func() bool {
		port, err = os.ReadFile(filepath.Join(profile, "MarionetteActivePort"))
		return err == nil && len(port) > 0
	})
	f.conn = wire.Must(net.Dial("tcp", "127.0.0.1:"+strings.TrimSpace(string(port))))(t)
	f.r = bufio.NewReader(f.conn)
	f.read() // its greeting
	f.command("WebDriver:NewSession", object{})
	return f
}

// read reads one message.
func (f *firefox) read() []byte {
	f.t.Helper()
	f.conn.SetReadDeadline(time.Now().Add(patience))
	length, err := f.r.ReadString(':')
	var n int
	_, scanned := fmt.Sscanf(length, "%d:", &n)
	text := make([]byte, n)
	_, short := io.ReadFull(f.r, text)
	if err := errors.Join(err, scanned, short); err != nil {
		f.t.Fatalf("reading from Firefox: %v", err)
	}
	return text
}

// command sends a command and returns the value of its result.
func (f *firefox) command(name string, params map[string]any) any {
	f.t.Helper()
	f.last++
	text := wire.Must(json.Marshal([]any{0, f.last, name, params}))(f.t)
	if _, err := fmt.Fprintf(f.conn, "%d:%s", len(text), text); err != nil {
		f.t.Fatal(err)
	}
	var answer [4]any // 1, the id, an error and the result
	if err := json.Unmarshal(f.read(), &answer); err != nil || answer[2] != nil {
		f.t.Fatalf("%s: %v %v", name, err, answer[2])
	}
	result, _ := answer[3].(map[string]any)
	return result["value"]
}

func (f *firefox) eval(expression string) any {
	f.t.Helper()
	return f.command("WebDriver:ExecuteScript", object{"script": "return " + expression, "args": []any{}})
}

func (f *firefox) wait(condition string) {
	f.t.Helper()
	if !wire.Poll(func() bool { return f.eval("Boolean("+condition+")") == true }) {
		f.t.Fatalf("never: %s\n%v", condition, f.eval("location.href + '\\n' + document.body.innerText"))
	}
}

// TestConsoleInFirefox opens each page in Firefox, and follows a task there.
func TestConsoleInFirefox(t *testing.T) {
	t.Parallel()
	f := startFirefox(t)
	for name, address := range consolePages(t) {
		if regexp.MustCompile("^(api|signin|task-large|long-)").MatchString(name) {
			continue
		}
		f.command("WebDriver:Navigate", object{"url": address})
		f.wait(`document.querySelector("h1") && !document.querySelector(".loading")`)
		if wrong := f.eval(`document.querySelector("#page > .view > .problem")?.innerText ?? ""`); wrong != "" {
			t.Errorf("%s: %v", name, wrong)
		}
	}
	s := serve(t, "--memory")
	f.command("WebDriver:Navigate", object{"url": s.ready.OrchestrationURL + "/console/tasks"})
	f.wait(`document.querySelector("#live").textContent === "Live"`)
	id := s.api().create(`{"namespace":"demo","name":"diamond"}`)
	f.wait(fmt.Sprintf(`document.querySelector('tr[data-id="%s"]')?.innerText.includes("Complete")`, id))
	f.eval(fmt.Sprintf(`document.querySelector('tr[data-id="%s"] .what a').click()`, id))
	f.wait(`document.querySelectorAll(".node").length === 4`)
}
