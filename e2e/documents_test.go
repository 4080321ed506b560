package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

// sessions are the documents whose commands are typed into a shell, and the flags of the server.
var sessions = map[string][]string{
	"README.md": nil, "docs/getting-started.md": nil, "docs/agents.md": nil, "docs/explore.md": nil, "docs/handlers.md": nil,
	"docs/http.md": nil, "docs/is-this-for-me.md": nil, "docs/migrating.md": nil, "docs/mount.md": nil, "docs/operations.md": nil,
	"docs/reference/files.md": nil, "docs/reference/subscribers.md": nil, "docs/templates.md": nil,
	"docs/people.md": {"--fixture"}, "docs/fixture.md": {"--fixture"}, "docs/reference/fixture.md": {"--fixture"},
	"docs/reference/stubs.md": {"--fixture"},
}

// otherSessions are the pages whose commands other tests type.
var otherSessions = []string{"docs/cli.md", "docs/security.md"} // TestCommandsGuide, TestAuthenticationSession

// writeListings writes the files that a text shows: a block after a line with one name, before a colon.
func writeListings(t *testing.T, dir, text string) {
	t.Helper()
	listing := regexp.MustCompile("`([\\w.-]+\\.(?:go|py|mjs|yaml|toml))`[^`\n]*(?:`[^`\n]*`\\))?:\n\n```\\w+\n((?s:.*?))```")
	for _, f := range listing.FindAllStringSubmatch(text, -1) {
		writeFile(t, filepath.Join(dir, f[1]), []byte(f[2]))
	}
}

// consoleSession returns the commands and outputs of a text's console blocks.
func consoleSession(t *testing.T, name, text string) (commands, outputs []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		session := false // after the first "$ ": a block without one is for another terminal
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				session = true
				commands = append(commands, strings.TrimSpace(command))
				outputs = append(outputs, "")
			} else if session {
				outputs[len(outputs)-1] += line
			}
		}
	}
	if len(commands) < 2 {
		t.Fatalf("%s: got %d commands; want a session", name, len(commands))
	}
	return commands, outputs
}

// typeSession types the commands of a text into a shell, in a directory, and compares what they print.
func typeSession(t *testing.T, name, text, dir string, p *program) {
	t.Helper()
	commands, outputs := consoleSession(t, name, text)
	for i, printed := range typeInto(t, commands, dir, nil, p) {
		if printed != outputs[i] {
			t.Errorf("$ %s\ngot  %s\nwant %s", commands[i], printed, outputs[i])
		}
	}
}

// goRunExit is the line that go run adds when the program ends with a code other than 0; TestGoRunExit checks it.
const goRunExit = "exit status %d\n"

// shellFunctions let a shell run the program as stepwell and as go run, which hides its exit code.
const shellFunctions = `stepwell() { "$PROGRAM_UNDER_TEST" "$@"; }
go() {
	[ "$1 $2" = "run ." ] || { echo "unexpected: go $*" >&2; return 2; }
	shift 2
	"$PROGRAM_UNDER_TEST" "$@" || { printf '` + goRunExit + `' $? >&2; return 1; }
}
`

// needSessionTools skips a test where the tools that the documents use are not there.
func needSessionTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"sh", "curl", "jq", "grep", "sed"} {
		wire.Need(t, tool)
	}
}

// typeInto types commands into a shell as they are, but for the address, and returns what each printed.
func typeInto(t *testing.T, commands []string, dir string, env []string, p *program) []string {
	t.Helper()
	needSessionTools(t)
	const end = "-- end of a command --"
	places := strings.NewReplacer("http://127.0.0.1:8080", p.ready.OrchestrationURL, "127.0.0.1:9000", newApplication(t).address)
	script := places.Replace(strings.Join(commands, "\necho '"+end+"'\n"))
	shell := exec.Command("sh", "-c", shellFunctions+script)
	shell.Dir = dir
	shell.Env = append(programEnv(), append(env, "STEPWELL_URL="+p.ready.OrchestrationURL, "LC_ALL=C.UTF-8", "USER=",
		"PROGRAM_UNDER_TEST="+programFile(t))...)
	got, _ := shell.CombinedOutput() // an error would be in the output
	printed := strings.Split(string(got), end+"\n")
	if len(printed) != len(commands) {
		t.Fatalf("got the output of %d commands; want that of %d\n%s", len(printed), len(commands), got)
	}
	return printed
}

// TestGoRunExit checks that go run says and returns what the sessions take it to.
func TestGoRunExit(t *testing.T) {
	t.Parallel()
	slow(t)
	file := filepath.Join(t.TempDir(), "main.go")
	writeFile(t, file, []byte("package main\n\nimport \"os\"\n\nfunc main() { os.Exit(4) }\n"))
	run := exec.Command("go", "run", file)
	if said, _ := run.CombinedOutput(); string(said) != fmt.Sprintf(goRunExit, 4) || run.ProcessState.ExitCode() != 1 {
		t.Errorf("got %q and the exit code %d; want the form %q and 1", said, run.ProcessState.ExitCode(), goRunExit)
	}
}

// TestDocumentSessions types the commands of the README and the guides, with LONG_TESTS twice in the same directory
// and with the same service. They leave nothing that git shows.
func TestDocumentSessions(t *testing.T) {
	slow(t)
	for page, flags := range sessions {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			wire.Need(t, "git")
			needSessionTools(t)
			text := string(readFile(t, repository(page)))
			if strings.Contains(text, "$ python3 ") {
				wire.Need(t, "python3")
			}
			p := serve(t, flags...)
			dir := p.cmd.Dir
			wire.Must(0, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(repository("examples"))))(t)
			writeFile(t, filepath.Join(dir, ".gitignore"), readFile(t, repository(".gitignore")))
			git := func(args ...string) string {
				git := exec.Command("git", args...)
				git.Dir = dir
				return string(wire.Must(git.CombinedOutput())(t))
			}
			git("init", "-q")
			writeListings(t, dir, text)
			git("add", ".")
			for range size(1, 2) {
				typeSession(t, page, text, dir, p)
			}
			if left := git("ls-files", "--modified", "--others", "--exclude-standard"); left != "" {
				t.Errorf("git shows what the commands left:\n%s", left)
			}
		})
	}
}

// TestAuthenticationSession types the commands of docs/security.md about authentication: once those that make keys
// and set variables, and twice those in the other terminal, with a service of these variables.
func TestAuthenticationSession(t *testing.T) {
	slow(t)
	t.Parallel()
	dir := t.TempDir()
	_, section, _ := strings.Cut(string(readFile(t, repository("docs/security.md"))), "\n## Authentication\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, first, _ := strings.Cut(section, "```console\n")
	first, _, _ = strings.Cut(first, "\ngo run .\n")
	shell := exec.Command("sh", "-ec", shellFunctions+first+"\nenv")
	shell.Dir, shell.Env = dir, append(programEnv(), "PROGRAM_UNDER_TEST="+programFile(t))
	said := string(wire.Must(shell.CombinedOutput())(t))
	set := regexp.MustCompile(`(?m)^STEPWELL_\w+=.*`).FindAllString(strings.ReplaceAll(said, "=keys/", "="+dir+"/keys/"), -1)
	if len(set) != 3 {
		t.Fatalf("got %q; want three variables\n%s", set, said)
	}
	p := serveWith(t, set)
	for range 2 {
		typeSession(t, "docs/security.md", section, dir, p)
	}
}

// block is a code block of a document.
type block struct{ page, kind, text string }

// documentPages returns all documents.
func documentPages(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md", "packages/*/*.md"} {
		for _, page := range wire.Must(filepath.Glob(repository(pattern)))(t) {
			pages = append(pages, filepath.ToSlash(strings.TrimPrefix(page, repository("")+"/")))
		}
	}
	return pages
}

// documentBlocks returns the code blocks of all documents.
func documentBlocks(t *testing.T) (blocks []block) {
	t.Helper()
	for _, page := range documentPages(t) {
		for _, b := range regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```").FindAllStringSubmatch(string(readFile(t, repository(page))), -1) {
			blocks = append(blocks, block{page, b[1], b[2]})
		}
	}
	return blocks
}

// coveredLines are commands outside of sessions, with what runs them.
var coveredLines = map[string]string{
	"go run .":                    "serve, in all tests",
	"go run . --fixture":          "TestDocumentSessions",
	"go test ./...":               "this test",
	"go test -short ./...":        "this test",
	"go vet . ./e2e":              ".ci/run",
	"go run . auth generate-keys": "TestAuthenticationSession",
	"stepwell auth generate-keys --output-dir next":                                                   "testdata/cli/auth.txt",
	"stepwell auth jwks keys/jwt-public-key.pem next/jwt-public-key.pem > jwks.json":                  "testdata/cli/auth.txt",
	"export STEPWELL_JWT_PUBLIC_KEY_PATH=keys/jwt-public-key.pem":                                     "TestAuthenticationSession",
	"export STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true STEPWELL_WORKER__WEB__AUTH__ENABLED=true": "TestAuthenticationSession",
}

// blockChecks are the checks of blocks by their kind.
var blockChecks = map[string]func(*testing.T, block){
	"console": checkConsole, "sh": checkCommands, "text": checkText, "nginx": checkText, "toml": checkTOML, "json": checkJSONBlock,
	"yaml": checkYAML, "go": checkListing, "python": checkListing, "js": checkListing, "java": checkListing, "ini": checkListing,
}

// TestDocumentBlocks checks every code block of the documents, or that another test runs it.
func TestDocumentBlocks(t *testing.T) {
	t.Parallel()
	slow(t)
	blocks := documentBlocks(t)
	for _, b := range blocks {
		name, _, _ := strings.Cut(b.text, "\n")
		t.Run(b.page+": "+name, func(t *testing.T) {
			t.Parallel()
			check := blockChecks[b.kind]
			if check == nil {
				t.Fatalf("nothing runs a block of the kind %q", b.kind)
			}
			check(t, b)
		})
	}
	if len(blocks) < 150 {
		t.Errorf("got %d blocks; want to check more", len(blocks))
	}
}

// checkConsole checks that a session has the block, or that other tests run its lines.
func checkConsole(t *testing.T, b block) {
	if !strings.HasPrefix(b.text, "$ ") {
		checkCommands(t, b)
		return
	}
	if _, typed := sessions[b.page]; !typed && !slices.Contains(otherSessions, b.page) {
		t.Error("no session types these commands")
	}
}

// checkCommands checks that something runs each line.
func checkCommands(t *testing.T, b block) {
	for line := range strings.Lines(b.text) {
		command, _, _ := strings.Cut(strings.TrimSpace(line), "  #")
		command = regexp.MustCompile(`^(\w+=\S+ )*`).ReplaceAllString(strings.TrimSpace(command), "") // without variables
		switch {
		case strings.HasPrefix(command, "docker "):
			checkDocker(t, command)
		case strings.HasPrefix(b.page, "examples/") && b.page != "examples/README.md": // TestExampleCommands
		case strings.HasPrefix(command, ".ci/"): // too long to run here
			wire.Need(t, "bash")
			if said, err := exec.Command("bash", "-n", repository(command)).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, said)
			}
		case strings.HasPrefix(command, "go test -run XXX -bench"):
			if _, err := regexp.Compile(strings.Trim(strings.Fields(command)[5], "'")); err != nil {
				t.Error(err)
			}
		case strings.HasPrefix(command, "go test ") && strings.Contains(command, " -run "):
			checkTestRun(t, strings.Fields(command))
		case coveredLines[command] == "":
			t.Errorf("nothing runs %q", command)
		}
	}
}

// checkTestRun checks that a command that runs some tests finds one of that name in its package, and a script of the
// name of its part. The name XXX stands for no test.
func checkTestRun(t *testing.T, words []string) {
	name, part, _ := strings.Cut(strings.Trim(words[slices.Index(words, "-run")+1], "'"), "/")
	pattern, err := regexp.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	found := name == "XXX"
	files, _ := filepath.Glob(repository(words[len(words)-1] + "/*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range testName.FindAllSubmatch(text, -1) {
			found = found || pattern.Match(test[1])
		}
	}
	scripts, _ := filepath.Glob(repository("testdata/*/" + strings.TrimSuffix(part, ".txt") + ".txt"))
	if !found || part != "" && len(scripts) == 0 {
		t.Errorf("%q finds no test", strings.Join(words, " "))
	}
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// checkDocker checks a command as far as that is possible without an engine, since none can be expected here: published
// ports are on loopback and in the image, and so are volumes. No test builds or runs the image; TestImageSources
// and TestImageEnvironment check its parts.
func checkDocker(t *testing.T, command string) {
	dockerfile := string(readFile(t, repository("Dockerfile")))
	exposed := regexp.MustCompile(`(?m)^EXPOSE (.*)$`).FindStringSubmatch(dockerfile)[1]
	for _, p := range regexp.MustCompile(`-p (\S+?):\d+:(\d+)`).FindAllStringSubmatch(command, -1) {
		if p[1] != "127.0.0.1" || !slices.Contains(strings.Fields(exposed), p[2]) {
			t.Errorf("got the port %s; want one of %s on loopback", p[0], exposed)
		}
	}
	for _, v := range regexp.MustCompile(`-v \w+:(\S+)`).FindAllStringSubmatch(command, -1) {
		if !strings.Contains(dockerfile, "\nVOLUME "+v[1]+"\n") {
			t.Errorf("%s is no volume of the image", v[1])
		}
	}
	if !regexp.MustCompile(` stepwell( |$)| \.$`).MatchString(command) {
		t.Errorf("%q does not name the image", command)
	}
}

// checkText checks that a block of text has no commands to type: it is output, a picture, or a reference that
// TestCommandsPage or another test holds.
func checkText(t *testing.T, b block) {
	held := map[string]string{"docs/cli.md": "TestCommandsGuide", "docs/reference/cli.md": "TestCommandsPage", "docs/mount.md": "TestBehindNginx", "docs/http.md": "TestGeneratedClients",
		"docs/migrating.md": "TestReferenceTasks", "README.md": "TestReferenceTasks"}
	if held[b.page] == "" && regexp.MustCompile(`(?m)^(\$ |stepwell |curl |go |docker )`).MatchString(b.text) {
		t.Error("these commands should be a session")
	}
}

// checkTOML validates a configuration.
func checkTOML(t *testing.T, b block) {
	text := strings.NewReplacer("<16 characters or more>", "0123456789abcdef", "<token>", "x", "<key>", "x",
		"order.yaml", repository("examples/order/order.yaml"), "order.json", repository("examples/testing/order.json")).Replace(b.text)
	wantExit(t, 0, nil, "config", "validate", configFile(t, text))
}

// checkJSONBlock checks that a block is JSON, and a template valid.
func checkJSONBlock(t *testing.T, b block) {
	value, err := wire.Decode([]byte(b.text))
	if err != nil {
		t.Fatal(err)
	}
	if object, ok := value.(map[string]any); ok && object["steps"] != nil {
		checkTemplate(t, "json", b.text)
	}
}

func checkTemplate(t *testing.T, format, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "template."+format)
	writeFile(t, file, []byte(text))
	for line := range strings.Lines(wantExit(t, 0, nil, "template", "check", file)) {
		if strings.Contains(line, "warning") && !strings.Contains(line, `enforce_input_schema is "off"`) &&
			!strings.Contains(line, "because no handler runs") { // the page may show a template whose handler is elsewhere
			t.Error(line)
		}
	}
}

// checkListing checks that another test runs a program: it is a file of the repository, or one that
// TestHandlerExamples writes and runs. A package's page shows the suite of the guide, see TestExampleSuites and TestPackages.
func checkListing(t *testing.T, b block) {
	if b.page == "docs/handlers.md" || b.page == "docs/explore.md" { // TestHandlerExamples, TestDocumentSessions
		return
	}
	if regexp.MustCompile("`(parcel_test.go|test_parcel.py|parcel.test.mjs)`:\n\n```\\w+\n" +
		regexp.QuoteMeta(b.text)).Match(readFile(t, repository(b.page))) {
		return // TestOwnHandlers
	}
	page := b.page
	if strings.HasPrefix(page, "packages/") {
		page = "docs/testing.md"
	}
	for _, l := range guideListing.FindAllStringSubmatch(string(readFile(t, repository(page))), -1) {
		if l[3] == b.text {
			return // TestTestingGuideFiles
		}
	}
	t.Error("nothing runs this program")
}

// checkYAML checks a template, or a part of one, or the services of a container engine.
func checkYAML(t *testing.T, b block) {
	switch {
	case strings.Contains(b.text, "actions/checkout"): // only read: nothing here can run the actions
		yamlValue(t, b.text)
	case strings.HasPrefix(b.text, "services:"):
		checkCompose(t, repository("examples/testing"), yamlValue(t, b.text))
	case strings.Contains(b.text, "apiVersion:"):
		checkKubernetes(t, b.text)
	case strings.Contains(b.text, "steps:"):
		checkTemplate(t, "yaml", b.text)
	default: // members of a step
		checkTemplate(t, "yaml", "name: x\nnamespace_name: x\nversion: 1.0.0\nsteps:\n  - name: a\n    handler: {callable: builtin:noop}\n"+
			indented(b.text, "    "))
	}
}

func indented(text, by string) string {
	return regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(text, by+"$1")
}

// yamlValue reads YAML with the program's own reader, as the context of a template.
func yamlValue(t *testing.T, text string) any {
	t.Helper()
	file := filepath.Join(t.TempDir(), "template.yaml")
	writeFile(t, file, []byte("name: x\nnamespace_name: x\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: builtin:noop}}]\n"+
		"default_context:\n"+indented(text, "  ")))
	code, stdout, stderr := runProgram(t, nil, "template", "convert", "--to", "json", file)
	if code != 0 {
		t.Fatal(stderr)
	}
	value := wire.Must(wire.Decode([]byte(stdout)))(t)
	return value.(map[string]any)["default_context"]
}

// TestComposeFiles checks the compose files of the examples as far as that is possible without an engine.
func TestComposeFiles(t *testing.T) {
	t.Parallel()
	slow(t)
	files := wire.Must(filepath.Glob(repository("examples/*/compose.yaml")))(t)
	if len(files) != 4 {
		t.Errorf("got %q; want four", files)
	}
	for _, file := range files {
		checkCompose(t, filepath.Dir(file), yamlValue(t, string(readFile(t, file))))
	}
}

// checkCompose checks the services of a compose file: what they build and mount exists, ports are on
// loopback, and the program takes its environment.
func checkCompose(t *testing.T, dir string, compose any) {
	t.Helper()
	services := within(t, compose, "services").(object)
	for name, service := range services {
		env := map[string]string{}
		if variables, ok := wire.LookUp(service, "environment"); ok {
			for key, value := range variables.(object) {
				env[key] = fmt.Sprint(value)
			}
		}
		for _, port := range textsIn(service, "ports") {
			inside := portIn(port)
			if listens := portIn(imageSetting(t, env, orchestrationListen)); !strings.HasPrefix(port, "127.0.0.1:") ||
				inside != listens && inside != env["STEPWELL_FIXTURE__PORT_RANGE"] {
				t.Errorf("%s publishes %s; want loopback, and a port on which it listens", name, port)
			}
		}
		for _, volume := range textsIn(service, "volumes") {
			if source, _, _ := strings.Cut(volume, ":"); strings.HasPrefix(source, ".") {
				wire.Must(os.Stat(filepath.Join(dir, source)))(t)
			}
		}
		if name != "stepwell" {
			within(t, service, "image")
			if at := env["STEPWELL_URL"]; at != "" && at != "http://stepwell:8080" {
				t.Errorf("%s asks %s, where nothing is", name, at)
			}
			continue
		}
		readFile(t, filepath.Join(dir, within(t, service, "build").(string), "Dockerfile"))
		checkImageSettings(t, env, textsIn(service, "command"))
		if check := textsIn(service, "healthcheck.test"); check != nil {
			wantExit(t, 0, nil, append(check[2:], "--help")...)
		}
		for _, target := range regexp.MustCompile(`http://(\w+):(\d+)`).FindAllStringSubmatch(env["STEPWELL_WORKER__HANDLERS"], -1) {
			if command := textsIn(services[target[1]], "command"); !strings.Contains(strings.Join(command, " "), target[2]) {
				t.Errorf("the service %s does not serve handlers on port %s: %q", target[1], target[2], command)
			}
		}
	}
}

// TestKubernetesSidecar checks the manifest of a sidecar as far as that is possible without a cluster.
func TestKubernetesSidecar(t *testing.T) {
	t.Parallel()
	text := string(readFile(t, repository("examples/kubernetes/sidecar.yaml")))
	checkKubernetes(t, text)
	if sidecar := within(t, yamlValue(t, text), "spec.template.spec.initContainers.0.restartPolicy"); sidecar != "Always" {
		t.Errorf("got the restart policy %v; want Always, which makes a sidecar", sidecar)
	}
}

// within returns what a document has at a path.
func within(t *testing.T, document any, path string) any {
	t.Helper()
	v, ok := wire.LookUp(document, path)
	if !ok {
		t.Fatalf("there is no %s", path)
	}
	return v
}

// checkKubernetes checks the container of the program in a manifest: it cannot write to its root, has its data in a claimed
// volume, listens on its ports, takes its arguments and its environment, and passes the probes.
func checkKubernetes(t *testing.T, text string) {
	t.Helper()
	manifest := yamlValue(t, text)
	c, sidecar := wire.LookUp(manifest, "spec.template.spec.initContainers.name=stepwell")
	if !sidecar {
		c = within(t, manifest, "spec.template.spec.containers.name=stepwell")
	}
	env := map[string]string{}
	for _, v := range listIn(c, "env") {
		env[within(t, v, "name").(string)] = within(t, v, "value").(string)
	}
	if within(t, c, "securityContext.readOnlyRootFilesystem") != true || within(t, c, "securityContext.allowPrivilegeEscalation") != false {
		t.Error("the container can write to its root, or get more rights")
	}
	checkImageSettings(t, env, textsIn(c, "args"))
	volume := within(t, manifest, "spec.volumeClaimTemplates.0.metadata.name")
	if at := within(t, c, fmt.Sprintf("volumeMounts.name=%s.mountPath", volume)); at != imageSetting(t, env, "STEPWELL_STORE__PATH") {
		t.Errorf("the claimed volume is at %v; want the store in it", at)
	}
	ports := []string{portIn(imageSetting(t, env, orchestrationListen)), portIn(imageSetting(t, env, workerListen))}
	for _, p := range listIn(c, "ports") {
		if port := fmt.Sprint(within(t, p, "containerPort")); !slices.Contains(ports, port) {
			t.Errorf("the program does not listen on port %s", port)
		}
	}
	p := serve(t, "--memory")
	there := []string{orchestrationListen + "=" + strings.TrimPrefix(p.ready.OrchestrationURL, "http://"),
		workerListen + "=" + strings.TrimPrefix(p.ready.WorkerURL, "http://")}
	for probe, want := range map[string]string{"startupProbe": "", "livenessProbe": `"status":"alive"`, "readinessProbe": `"status":"ready"`} {
		command := textsIn(c, probe+".exec.command")
		if len(command) < 2 || command[0] != "/stepwell" {
			t.Fatalf("got the %s %q", probe, command)
		}
		wantParts(t, probe, wantExit(t, 0, there, command[1:]...), want)
	}
}

// The variables of the listeners.
const (
	orchestrationListen = "STEPWELL_ORCHESTRATION__WEB__LISTEN"
	workerListen        = "STEPWELL_WORKER__WEB__LISTEN"
)

// checkImageSettings checks that the program takes an environment and arguments.
func checkImageSettings(t *testing.T, env map[string]string, args []string) {
	t.Helper()
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	wantExit(t, 0, list, "config", "show")
	wantExit(t, 0, list, append(slices.Clone(args), "--help")...)
}

// imageSetting returns the value of a variable in a container: its own, or that of the image.
func imageSetting(t *testing.T, env map[string]string, name string) string {
	t.Helper()
	for _, v := range dockerfileEnv(t) {
		if of, value, _ := strings.Cut(v, "="); of == name && env[name] == "" {
			return value
		}
	}
	return env[name]
}

// portIn returns the port of an address or a URL.
func portIn(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// listIn returns the list that a document has at a path, if it has one.
func listIn(document any, path string) []any {
	v, _ := wire.LookUp(document, path)
	list, _ := v.([]any)
	return list
}

// textsIn is listIn for texts.
func textsIn(document any, path string) (texts []string) {
	for _, v := range listIn(document, path) {
		texts = append(texts, fmt.Sprint(v))
	}
	return texts
}

// TestLinks follows the links in all documents to files and headings of the repository.
func TestLinks(t *testing.T) {
	t.Parallel()
	link, checked := regexp.MustCompile(`\]\(([^)\s]+)\)`), 0
	for _, page := range documentPages(t) {
		for _, l := range link.FindAllStringSubmatch(prose(string(readFile(t, repository(page)))), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			checked++
			path, anchor, _ := strings.Cut(l[1], "#")
			target := repository(page)
			if path != "" {
				target = filepath.Join(filepath.Dir(target), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, l[1])
			} else if anchor != "" && !slices.Contains(anchors(string(readFile(t, target))), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, l[1])
			}
		}
	}
	if checked < 50 {
		t.Errorf("got %d links; want to follow more", checked)
	}
}

// prose returns a document without its code blocks.
func prose(text string) string { return regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "") }

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) (names []string) {
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(text), -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(h[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// changing matches what differs from run to run in the output of the command line: durations, ages and
// times of day.
var changing = regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)(\d+[smhd])?\b|\d\d:\d\d:\d\d\.\d{3}`)

// steady returns lines without what differs from run to run, nor the widths of columns.
func steady(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(changing.ReplaceAllString(line, "0")), " "))
	}
	return strings.Join(lines, "\n")
}

// TestCommandsGuide types the commands in docs/cli.md, against a service without and with
// authentication, twice in the same directory. The scripts in testdata/cli have every command.
func TestCommandsGuide(t *testing.T) {
	t.Parallel()
	slow(t)
	keys := []string{"STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED=true", "STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS_ENABLED=true",
		`STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS=[{"key":"k","permissions":["*"],"description":"api"}]`}
	const page = "docs/cli.md"
	for _, tt := range []struct{ server, env []string }{{nil, nil}, {keys, []string{"STEPWELL_API_KEY=k"}}} {
		t.Run(fmt.Sprint(tt.env), func(t *testing.T) {
			t.Parallel()
			commands, outputs := consoleSession(t, page, string(readFile(t, repository(page))))
			p := serveWith(t, tt.server, "--fixture", "--deterministic-ids", "guide")
			dir := t.TempDir()
			for range size(1, 2) {
				for i, printed := range typeInto(t, commands, dir, tt.env, p) {
					if steady(printed) != steady(outputs[i]) {
						t.Errorf("$ %s\ngot  %s\nwant %s", commands[i], printed, outputs[i])
					}
				}
			}
		})
	}
}
