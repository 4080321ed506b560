package e2e

// The files that run the program as a service.

import (
	"encoding/xml"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestUnits reads the files for systemd and launchd, and the program accepts their arguments.
func TestUnits(t *testing.T) {
	t.Parallel()
	var list struct {
		Arguments []string `xml:"dict>array>string"`
	}
	if err := xml.Unmarshal(readFile(t, repository("examples/launchd/stepwell.plist")), &list); err != nil {
		t.Fatal(err)
	}
	unit := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindSubmatch(readFile(t, repository("examples/systemd/stepwell.service")))
	if len(list.Arguments) < 2 || unit == nil {
		t.Fatalf("got the arguments %q and %q", list.Arguments, unit)
	}
	for _, line := range [][]string{list.Arguments, strings.Fields(string(unit[1]))} {
		cmd := exec.Command(programFile(t), append(line[1:], "--help")...)
		cmd.Stderr = io.Discard
		if out, err := cmd.Output(); err != nil {
			t.Errorf("%q: %v\n%s", line, err, out)
		}
	}
}
