package e2e

// The image cannot be built everywhere; these tests check what it is made of.

import (
	"debug/elf"
	"flag"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// dockerfileEnv returns the environment that the Dockerfile sets.
func dockerfileEnv(t *testing.T) []string {
	t.Helper()
	text := string(readFile(t, repository("Dockerfile")))
	return regexp.MustCompile(`STEPWELL_[A-Z_]+=\S+`).FindAllString(text, -1)
}

// TestImageEnvironment starts the program as in the image: it listens on all addresses, stores
// its data in the volume, and passes the image's health check.
func TestImageEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	replace := strings.NewReplacer("/data", filepath.Join(dir, "data"), ":8080", portOf(t), ":8081", portOf(t))
	var env []string
	for _, v := range dockerfileEnv(t) {
		env = append(env, replace.Replace(v))
	}
	p := launch(t, env, "--print-ready").awaitReady()
	p.api().do("GET", "/health/ready", "").want(200)
	check := regexp.MustCompile(`CMD \["/stepwell", (.*)\]`).FindStringSubmatch(string(readFile(t, repository("Dockerfile"))))
	if check == nil {
		t.Fatal("the Dockerfile has no health check")
	}
	args := strings.Split(strings.ReplaceAll(check[1], `"`, ""), ", ")
	wantExit(t, 0, env, args...)
	p.stop()
	if files, _ := filepath.Glob(filepath.Join(dir, "data", "*.jsonl")); len(files) == 0 {
		t.Error("nothing was kept in the volume")
	}
}

// portOf returns a free port, as ":8080".
func portOf(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	return ":" + port
}

var buildStatic = flag.Bool("build-static", false, "build the program as the Dockerfile does, and look at it")

// TestStaticBinary builds the program as the Dockerfile does, and checks that it loads no
// library.
func TestStaticBinary(t *testing.T) {
	if !*buildStatic || runtime.GOOS != "linux" {
		t.Skip("takes a minute or two: go test -run StaticBinary -build-static")
	}
	out := filepath.Join(t.TempDir(), "stepwell")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s", "-o", out, "..")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	f := wire.Must(elf.Open(out))(t)
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil || len(libs) > 0 || f.Section(".interp") != nil {
		t.Errorf("got libraries %v, %v; want a static binary", libs, err)
	}
}
