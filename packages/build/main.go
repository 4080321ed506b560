// Command build builds Stepwell for tests, and prints the path of the program. However many processes run it in a
// checkout at the same time, the program is compiled once: the others wait for the first. Flags are those of go build,
// such as -race. Run it in the checkout, as go run ./packages/build.
package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	program, err := build(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(program)
}

// build returns the program of the checkout in the current directory, in the user's cache. The go command decides whether
// it is up to date, by a hash of all sources, embedded files and settings, so that nobody tests an older program.
func build(flags []string) (program string, err error) {
	source, err := filepath.EvalSymlinks(".")
	if err == nil {
		source, err = filepath.Abs(source)
	}
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(append([]string{source}, flags...), "\x00")))
	dir := filepath.Join(cache, "stepwell", hex.EncodeToString(key[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	slow := time.AfterFunc(3*time.Second, func() {
		fmt.Fprintln(os.Stderr, "stepwell: building the service once, about a minute")
	})
	defer slow.Stop()
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	newest := filepath.Join(dir, "newest")
	compile := exec.Command("go", append(append([]string{"build", "-buildvcs=false", "-o", newest}, flags...), ".")...)
	// Go links in its own directory and then renames, which is possible because that is on the same file system.
	compile.Env = append(os.Environ(), "GOTMPDIR="+dir, "GOFLAGS=", "GOWORK=off")
	said, err := compile.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build in %s: %s", source, cmp.Or(strings.TrimSpace(string(said)), err.Error()))
	}
	return keep(dir, newest)
}

// keep names a program by its contents, so that a long test run never starts a newer one, and removes programs of all
// checkouts that nobody has asked for within a day.
func keep(dir, newest string) (program string, err error) {
	f, err := os.Open(newest)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	parent := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil)[:8]))
	program = filepath.Join(parent, "stepwell")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	if err := os.Link(newest, program); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	now := time.Now()
	os.Chtimes(parent, now, now)
	// Every build touches the directory of its checkout, because it has its temporary files in it.
	checkouts, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*"))
	programs, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, old := range append(checkouts, programs...) {
		if info, err := os.Stat(old); err == nil && info.IsDir() && now.Sub(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(old)
		}
	}
	return program, nil
}
