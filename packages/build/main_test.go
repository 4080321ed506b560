package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// inModule changes to a module whose program prints a line of source, an embedded file and a flag, with an empty cache of
// programs.
func inModule(t *testing.T) {
	t.Helper()
	for _, variable := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.Command("go", "env", variable).Output()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(variable, strings.TrimSpace(string(out)))
	}
	home := t.TempDir()
	for _, variable := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
		t.Setenv(variable, home)
	}
	t.Chdir(t.TempDir())
	write(t, "go.mod", "module m\n\ngo 1.26\n")
	write(t, "text.txt", "embedded")
	write(t, "main.go", source("one"))
}

func source(line string) string {
	return `package main

import _ "embed"

//go:embed text.txt
var text string

var flag = "without"

func main() { print("` + line + ` ", text, " ", flag) }
`
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// built builds the program, and returns its path and what it prints.
func built(t *testing.T, flags ...string) (program, said string) {
	t.Helper()
	program, err := build(flags)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	return program, string(out)
}

// TestChangedLine checks that no older program is returned after a source, an embedded file or a flag has changed, and
// that the program of another test stays what it was.
func TestChangedLine(t *testing.T) {
	inModule(t)
	first, said := built(t)
	if said != "one embedded without" {
		t.Fatalf("got %q; want what the sources say", said)
	}
	if again, _ := built(t); again != first {
		t.Errorf("got %s and %s; want one program for the same sources", first, again)
	}
	write(t, "main.go", source("two"))
	if _, said := built(t); said != "two embedded without" {
		t.Errorf("got %q; want the changed line", said)
	}
	write(t, "text.txt", "changed")
	if _, said := built(t); said != "two changed without" {
		t.Errorf("got %q; want the changed file", said)
	}
	if _, said := built(t, "-ldflags=-X main.flag=with"); said != "two changed with" {
		t.Errorf("got %q; want the flag", said)
	}
	if out, _ := exec.Command(first).CombinedOutput(); string(out) != "one embedded without" {
		t.Errorf("got %q from the first program; want it as it was", out)
	}
	write(t, "main.go", "package main\n\nfunc main() { nowhere() }\n")
	if program, err := build(nil); err == nil || !strings.Contains(err.Error(), "undefined: nowhere") {
		t.Errorf("got %q, %v; want what the compiler says", program, err)
	}
}

// TestOldPrograms checks that programs go, of this checkout and of others, once nobody has asked for them within a day.
func TestOldPrograms(t *testing.T) {
	inModule(t)
	first, _ := built(t)
	write(t, "main.go", source("two"))
	second, _ := built(t)
	cache := filepath.Dir(filepath.Dir(filepath.Dir(second)))
	other, young := filepath.Join(cache, "0123456789abcdef"), filepath.Join(cache, "fedcba9876543210")
	for dir, age := range map[string]time.Duration{filepath.Dir(first): 25, other: 25, young: 23} {
		os.MkdirAll(dir, 0o755)
		write(t, filepath.Join(dir, "newest"), "a program")
		then := time.Now().Add(-age * time.Hour)
		if err := os.Chtimes(dir, then, then); err != nil {
			t.Fatal(err)
		}
	}
	again, _ := built(t)
	for path, want := range map[string]bool{again: true, young: true, filepath.Dir(first): false, other: false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v; want %v", path, err == nil, want)
		}
	}
}

// TestOneBuildAtATime has several processes build, with a go command that notices others beside it.
func TestOneBuildAtATime(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs sh")
	}
	inModule(t)
	log := filepath.Join(t.TempDir(), "log")
	bin := t.TempDir()
	write(t, filepath.Join(bin, "go"), "#!"+sh+"\nmkdir "+log+".busy || echo beside another >>"+log+
		"\necho built >>"+log+"\necho program >\"$4\"\nrmdir "+log+".busy\n")
	if err := os.Chmod(filepath.Join(bin, "go"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := build(nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if said, _ := os.ReadFile(log); string(said) != strings.Repeat("built\n", 8) {
		t.Errorf("got %q; want eight builds one after the other", said)
	}
}
