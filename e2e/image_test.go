package e2e

// The image cannot be built everywhere; these tests check what it is made of.

import (
	"net"
	"path/filepath"
	"regexp"
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

// TestImageEnvironment starts the program as in the image, also with the environment of the guide's compose file: it listens
// on all addresses, stores its data in the volume or makes sandboxes, and passes the image's health check.
func TestImageEnvironment(t *testing.T) {
	t.Parallel()
	text := string(readFile(t, repository("examples/testing/compose.yaml")))
	compose := regexp.MustCompile(`(STEPWELL_\w+): "?([^"\s]+)`).FindAllStringSubmatch(text, -1)
	for _, mode := range []string{"--print-ready", "--fixture"} {
		dir := t.TempDir()
		replace := strings.NewReplacer("/data", filepath.Join(dir, "data"), ":8080", portOf(t), ":8081", portOf(t), "9000-9099", "20000-60000")
		var env []string
		for _, v := range dockerfileEnv(t) {
			env = append(env, replace.Replace(v))
		}
		for _, v := range compose {
			if mode == "--fixture" {
				env = append(env, v[1]+"="+replace.Replace(v[2]))
			}
		}
		p := launch(t, env, "--print-ready", mode).awaitReady()
		p.api().do("GET", "/health/ready", "").want(200)
		check := regexp.MustCompile(`CMD \["/stepwell", (.*)\]`).FindStringSubmatch(string(readFile(t, repository("Dockerfile"))))
		if check == nil {
			t.Fatal("the Dockerfile has no health check")
		}
		wantExit(t, 0, env, strings.Split(strings.ReplaceAll(check[1], `"`, ""), ", ")...)
		if mode == "--fixture" {
			url := p.api().do("POST", "/_stepwell/sandboxes", "").want(201).text("orchestration_url")
			if !strings.HasPrefix(url, "http://127.0.0.1:") {
				t.Errorf("got the address %s; want the public host in it", url)
			}
			(&api{t, url}).do("GET", "/health/ready", "").want(200)
			continue
		}
		p.stop()
		if files, _ := filepath.Glob(filepath.Join(dir, "data", "*.jsonl")); len(files) == 0 {
			t.Error("nothing was kept in the volume")
		}
	}
}

// TestImageSources checks, as far as that is possible without an engine, that the image can be built: what it copies
// exists and is not ignored, the build makes what the last stage copies from it, and the commands in its comment
// publish ports on loopback only. That the base image has a certificate file, and that the build succeeds there, is
// checked by nothing here; TestRelease makes a static program, too.
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
