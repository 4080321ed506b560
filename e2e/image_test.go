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

// TestImageSources checks, as far as that is possible without an engine, that the image can be built: what it copies
// exists and is not ignored, the build makes what the last stage copies from it, and the commands in its comment
// publish ports on loopback only. That the base image has a certificate file, and that the build succeeds there, is
// checked by nothing here; TestStaticBinary runs the same build.
func TestImageSources(t *testing.T) {
	t.Parallel()
	text := string(readFile(t, repository("Dockerfile")))
	ignored := strings.Fields(string(readFile(t, repository(".dockerignore"))))
	sources := map[string]bool{}
	for _, copied := range regexp.MustCompile(`(?m)^COPY ([^-].*) \S+$`).FindAllStringSubmatch(text, -1) {
		for source := range strings.FieldsSeq(copied[1]) {
			sources[source] = true
		}
	}
	for _, file := range wire.Must(filepath.Glob(repository("*.go")))(t) {
		for _, line := range regexp.MustCompile(`(?m)^//go:embed (.*)$`).FindAllStringSubmatch(string(readFile(t, file)), -1) {
			for source := range strings.FieldsSeq(line[1]) {
				sources[strings.TrimPrefix(source, "all:")] = true
			}
		}
	}
	for source := range sources {
		if found := wire.Must(filepath.Glob(repository(source)))(t); len(found) == 0 {
			t.Errorf("the build needs %s, which does not exist", source)
		}
		for _, pattern := range ignored {
			if ok, _ := filepath.Match(pattern, strings.Split(source, "/")[0]); ok {
				t.Errorf("the build needs %s, which .dockerignore leaves out as %s", source, pattern)
			}
		}
	}
	for _, made := range regexp.MustCompile(`(?m)^COPY --from=build .*?(/out/\S+)`).FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`(?m)^RUN .*(-o|mkdir) ` + regexp.QuoteMeta(made[1]) + `\b`).MatchString(text) {
			t.Errorf("nothing in the build makes %s", made[1])
		}
	}
	commands := regexp.MustCompile(`(?m)^#   (docker .*)$`).FindAllStringSubmatch(text, -1)
	for _, command := range commands {
		checkDocker(t, command[1])
	}
	if len(sources) < 8 || len(commands) != 2 {
		t.Errorf("got the sources %v and %d commands; want more", sources, len(commands))
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
		wire.Skip(t, "takes a minute or two: go test -run StaticBinary -build-static")
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
