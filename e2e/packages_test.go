package e2e

// The packages for tests, each installed as its users do and tried by its own suite with its usual runners.

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// TestPackages runs the suites of packages/ in other languages than Go. Copies of the packages run, so that nothing is
// written to the checkout.
func TestPackages(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("PACKAGE_TOOLS")
	if tools == "" {
		wire.Lack(t, "PACKAGE_TOOLS", "needs the runners of tests: export PACKAGE_TOOLS=$(.ci/package-tools)")
	}
	dir := t.TempDir()
	all := clientTools{t, tools, filepath.Join(dir, "packages"), nil}
	for _, name := range []string{"packages/python", "packages/npm", "packages/java", "examples/testing"} {
		wire.Must(0, os.CopyFS(filepath.Join(dir, name), os.DirFS(repository(name))))(t)
	}
	for _, tt := range []struct {
		name, tool string
		run        func(clientTools)
	}{
		{"python", "python", pythonPackage}, {"npm", "npm/node_modules", npmPackage}, {"java", "java", javaPackage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(filepath.Join(tools, tt.tool)); err != nil {
				wire.Lack(t, tt.tool, "needs %s, which .ci/package-tools could not install", tt.tool)
			}
			c := all.in(t, tt.name)
			c.env = append(c.env, "STEPWELL="+programFile(t))
			tt.run(c)
		})
	}
}

func pythonPackage(c clientTools) {
	const python = "python/bin/python"
	installed := filepath.Join(c.dir, "../../installed")
	c.run(python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", installed, ".")
	c.env = append(c.env, "PYTHONPATH="+installed)
	c.run(python, "-m", "pytest", "-n2", "-p", "no:cacheprovider")
	c.run(python, "-m", "mypy", "--cache-dir="+filepath.Join(c.tools, "mypy"))
	example := c
	example.dir = filepath.Join(c.dir, "../../examples/testing")
	example.run(python, "-m", "pytest", "-p", "no:cacheprovider")
}

func npmPackage(c clientTools) {
	wire.Must(0, os.Symlink(filepath.Join(c.tools, "npm/node_modules"), filepath.Join(c.dir, "node_modules")))(c.t)
	c.run("node", "--test", "test/stepwell.test.mjs")
	c.run("npm/node_modules/.bin/jest")
	c.run("npm/node_modules/.bin/vitest", "run")
	c.run("npm/node_modules/.bin/tsc", "-p", "test")
}

// javaPackage also runs the example's suite, beside the package's own.
func javaPackage(c clientTools) {
	c.copy(repository("examples/testing/OrderTest.java"), "src/test/java/OrderTest.java")
	for _, name := range []string{"order.json", "stepwell.toml"} {
		c.copy(repository("examples/testing/"+name), name)
	}
	c.run("mvn", "-q", "-B", "verify")
	reports := wire.Must(filepath.Glob(filepath.Join(c.dir, "target/surefire-reports/*.txt")))(c.t)
	said := ""
	for _, report := range reports {
		said += string(readFile(c.t, report))
	}
	if !regexp.MustCompile(`Tests run: 2, .* in OrderTest`).MatchString(said) || !regexp.MustCompile(`Tests run: [1-9]\d+, .* in stepwell`).MatchString(said) {
		c.t.Errorf("got\n%s\nwant the tests of both suites", said)
	}
}

// TestPackageVersions checks that the packages have the version of the program, and a Java project the package's.
func TestPackageVersions(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^const version = "(.*)"`).FindStringSubmatch(string(readFile(t, repository("base.go"))))[1]
	for file, before := range map[string]string{
		"packages/python/pyproject.toml": `version = "`, "packages/npm/package.json": `"version": "`,
		"packages/java/pom.xml":    "<artifactId>stepwell-junit</artifactId>\n  <version>",
		"examples/testing/pom.xml": "<artifactId>stepwell-junit</artifactId>\n      <version>",
	} {
		if !strings.Contains(string(readFile(t, repository(file))), before+version) {
			t.Errorf("%s does not have the version %s", file, version)
		}
	}
}

// verbs are the methods of a sandbox in the table of docs/reference/testing.md, by language.
func verbs(t *testing.T) (columns [4][]string) {
	t.Helper()
	page := string(readFile(t, repository("docs/reference/testing.md")))
	_, table, found := strings.Cut(page, "| Python | JavaScript | Java | Go | effect |\n")
	if table, _, _ = strings.Cut(table, "\n\n"); !found {
		t.Fatal("the page has no table of verbs")
	}
	for _, row := range strings.Split(table, "\n")[3:] {
		cells := strings.Split(row, " | ")
		for i := range columns {
			cell := strings.TrimPrefix(cells[i], "| ")
			if cell == "the same" {
				cell = cells[0]
			}
			for _, m := range regexp.MustCompile("`(\\w+)\\(").FindAllStringSubmatch(cell, -1) {
				columns[i] = append(columns[i], m[1])
			}
		}
	}
	return columns
}

// TestVerbs checks that each package has the verbs that the guide's table gives for its language.
func TestVerbs(t *testing.T) {
	t.Parallel()
	columns := verbs(t)
	for i, tt := range []struct{ file, declaration string }{
		{"packages/python/src/stepwell/__init__.py", "\n    def %s(self"},
		{"packages/npm/index.d.cts", "\n  %s("},
		{"packages/java/src/main/java/stepwell/Sandbox.java", " %s("},
		{"packages/go/stepwelltest/stepwelltest.go", "\nfunc (s *Sandbox) %s("},
	} {
		text := string(readFile(t, repository(tt.file)))
		if len(columns[i]) < 13 {
			t.Errorf("the guide has %q for %s; want all verbs", columns[i], tt.file)
		}
		for _, verb := range columns[i] {
			if !strings.Contains(text, strings.Replace(tt.declaration, "%s", verb, 1)) {
				t.Errorf("%s does not have %s", tt.file, verb)
			}
		}
	}
}
