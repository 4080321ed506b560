package e2e

// Clients that common generators make from the OpenAPI documents. Each has one conversation
// with a real server.

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"stepwell/e2e/wire"
)

// clientTools runs generators and generated clients in a directory.
type clientTools struct {
	t     *testing.T
	tools string // the directory that .ci/client-tools filled
	dir   string
	env   []string // further variables
}

// in returns the same for a directory inside.
func (c clientTools) in(t *testing.T, name string) clientTools {
	t.Helper()
	c.t, c.dir = t, filepath.Join(c.dir, name)
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a command in the directory; a name with a slash is one of the tools.
func (c clientTools) run(name string, args ...string) {
	c.t.Helper()
	if filepath.Dir(name) != "." {
		name = filepath.Join(c.tools, name)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+c.dir, "PYTHONDONTWRITEBYTECODE=1", "GOFLAGS=-mod=mod", "GOWORK=off",
		"PATH="+filepath.Join(c.tools, "python/bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, c.env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%s %q: %v\n%s", name, args, err, said)
	}
}

// copy copies a file into the directory.
func (c clientTools) copy(from, to string) {
	c.t.Helper()
	wire.WriteFile(c.t, filepath.Join(c.dir, to), wire.ReadFile(c.t, from))
}

// TestGeneratedClients generates clients in three languages from the documents of both roles
// and the mount point, and has each talk to all of them.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("CLIENT_TOOLS")
	if tools == "" {
		wire.Lack(t, "CLIENT_TOOLS", "needs the generators: export CLIENT_TOOLS=$(.ci/client-tools)")
	}
	env := []string{"STEPWELL_ORCHESTRATION__WEB__CONFIG_ENDPOINT_ENABLED=true"}
	p := serveWith(t, env, "--fixture")
	urls := []string{p.ready.OrchestrationURL, p.ready.WorkerURL, p.ready.MountURL}
	all := clientTools{t, tools, t.TempDir(), nil}
	var documents []string
	for i, surface := range []string{"orchestration", "worker", "mount"} {
		name := filepath.Join(all.dir, surface+".json")
		wire.WriteFile(t, name, (&api{t, urls[i]}).do("GET", "/api-docs/openapi.json", "").want(200).body)
		documents = append(documents, name)
	}
	for language, converse := range map[string]func(clientTools, []string, []string){
		"python": clientTools.python, "go": clientTools.golang, "typescript": clientTools.typescript,
		"ogen": clientTools.ogen, "java": clientTools.java, "typescript-fetch": clientTools.typescriptFetch, "spectral": clientTools.spectral,
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(filepath.Join(tools, "more")); err != nil && slices.Contains([]string{"ogen", "java", "typescript-fetch", "spectral"}, language) {
				wire.Lack(t, "ALL_CLIENTS", "takes minutes: export CLIENT_TOOLS=$(ALL_CLIENTS=1 .ci/client-tools)")
			}
			converse(all.in(t, language), documents, urls)
		})
	}
}

// surfaceOf returns the surface that a document describes.
func surfaceOf(document string) string {
	name := filepath.Base(document)
	return name[:len(name)-len(".json")]
}

func (c clientTools) python(documents, urls []string) {
	c.run("python/bin/openapi-spec-validator", documents...)
	c.copy(repository("testdata/clients/redocly.yaml"), "redocly.yaml")
	c.run("node_modules/.bin/redocly", append([]string{"lint", "--format=summary"}, documents...)...)
	c.copy(repository("testdata/clients/python.yaml"), "python.yaml")
	for _, document := range documents {
		c.run("python/bin/openapi-python-client", "generate", "--path", document, "--meta", "none",
			"--output-path", surfaceOf(document), "--fail-on-warning", "--config", "python.yaml")
	}
	c.copy(repository("testdata/clients/conversation.py"), "conversation.py")
	c.run("python/bin/python", append([]string{"conversation.py"}, urls...)...)
}

func (c clientTools) golang(documents, urls []string) {
	for _, file := range []string{"go.mod", "go.sum"} {
		c.copy(filepath.Join(c.tools, "go", file), file)
	}
	for _, document := range documents {
		surface := surfaceOf(document)
		in := c.in(c.t, surface)
		in.run("bin/oapi-codegen", "-generate", "types,client", "-package", surface, "-o", "api.go", document)
	}
	c.copy(repository("testdata/clients/conversation.go"), "main.go")
	c.run("go", append([]string{"run", "."}, urls...)...)
}

func (c clientTools) typescript(documents, urls []string) {
	for _, document := range documents {
		surface := surfaceOf(document)
		c.run("node_modules/.bin/openapi-typescript", document, "-o", surface+"/schema.d.ts")
		c.run("node_modules/.bin/openapi-ts", "-i", document, "-o", surface+"/hey", "-c", "@hey-api/client-fetch")
	}
	c.compileTypeScript("conversation.ts", "--module", "nodenext", "worker/hey/index.ts", "mount/hey/index.ts")
	wire.WriteFile(c.t, filepath.Join(c.dir, "built/package.json"), []byte("{}"))
	c.run("node", append([]string{"built/conversation.js"}, urls...)...)
}

// openAPIGenerator generates a client into a directory of the surface's name.
func (c clientTools) openAPIGenerator(version, document, generator string, args ...string) {
	c.t.Helper()
	c.run("java", append([]string{"-jar", filepath.Join(c.tools, "more/openapi-generator-cli-"+version+".jar"), "generate",
		"-g", generator, "-i", document, "-o", surfaceOf(document)}, args...)...)
}

func (c clientTools) typescriptFetch(documents, urls []string) {
	for _, document := range documents {
		c.openAPIGenerator("7.17.0", document, "typescript-fetch") // earlier ones forget to import the parts of unions
	}
	c.compileTypeScript("conversation_fetch.ts", "--module", "commonjs")
	c.run("node", append([]string{"built/conversation.js"}, urls...)...)
}

// spectral validates the documents, which takes it a minute of processor.
func (c clientTools) spectral(documents, _ []string) {
	c.copy(repository("testdata/clients/spectral.yaml"), "spectral.yaml")
	c.run("more/node_modules/.bin/spectral", append([]string{"lint", "--fail-severity=hint", "--ruleset=spectral.yaml"}, documents...)...)
}

// compileTypeScript compiles a conversation into built/conversation.js.
func (c clientTools) compileTypeScript(conversation string, args ...string) {
	c.t.Helper()
	if err := os.Symlink(filepath.Join(c.tools, "node_modules"), filepath.Join(c.dir, "node_modules")); err != nil {
		c.t.Fatal(err)
	}
	c.copy(repository("testdata/clients/"+conversation), "conversation.ts")
	c.run("node_modules/.bin/tsc", append([]string{"--strict", "--target", "es2022", "--types", "node",
		"--lib", "es2022,dom,dom.iterable", "--outDir", "built", "conversation.ts"}, args...)...)
}

func (c clientTools) ogen(documents, urls []string) {
	wire.WriteFile(c.t, filepath.Join(c.dir, "go.mod"), []byte("module clients\n\ngo 1.26\n\nrequire github.com/ogen-go/ogen v1.24.0\n"))
	for _, document := range documents {
		c.run("more/ogen", "--target", surfaceOf(document), "--package", surfaceOf(document), document)
	}
	c.copy(repository("testdata/clients/conversation_ogen.go"), "main.go")
	c.run("go", "mod", "tidy")
	c.run("go", append([]string{"run", "."}, urls...)...)
}

// java compiles each client by the pom.xml that openapi-generator writes beside it.
func (c clientTools) java(documents, urls []string) {
	path := ""
	for _, document := range documents {
		surface := surfaceOf(document)
		c.openAPIGenerator("7.14.0", document, "java", "--library", "native", "--invoker-package", surface,
			"--api-package", surface+".api", "--model-package", surface+".model")
		c.run("mvn", "-q", "-B", "-f", filepath.Join(c.dir, surface, "pom.xml"), "compile", "dependency:build-classpath",
			"-Dmdep.outputFile="+filepath.Join(c.dir, "libraries"))
		path += filepath.Join(c.dir, surface, "target/classes") + string(os.PathListSeparator)
	}
	path += string(wire.ReadFile(c.t, filepath.Join(c.dir, "libraries")))
	c.copy(repository("testdata/clients/Conversation.java"), "Conversation.java")
	c.run("java", append([]string{"-cp", path, "Conversation.java"}, urls...)...)
}
