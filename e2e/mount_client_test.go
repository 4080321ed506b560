package e2e

import (
	"os/exec"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

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
