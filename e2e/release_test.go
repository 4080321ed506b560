package e2e

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// TestRelease makes a release of the files here, as a commit of a repository of their own, and looks at its parts:
// the program and what names its commit, its bill of materials, the licenses, and the checksums. The release itself tries
// its packages where there is no Go.
func TestRelease(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	wire.Need(t, "git")
	dir := t.TempDir()
	run := func(in string, command ...string) string {
		t.Helper()
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = in
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v\n%s%s", command, err, out, cmd.Stderr)
		}
		return string(out)
	}
	for name := range strings.SplitSeq(run(repository("."), "git", "ls-files", "-zco", "--exclude-standard"), "\x00") {
		from := repository(name)
		if info, err := os.Stat(from); err != nil || info.IsDir() || strings.HasPrefix(name, "testdata/") {
			continue // removed here, or of no use there
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), readFile(t, from), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(dir, "git", "init", "-q")
	run(dir, "git", "add", "-A")
	run(dir, "git", "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "Release")
	platform := runtime.GOOS + "/" + runtime.GOARCH
	said := run(dir, ".ci/release", platform)

	commit := strings.TrimSpace(run(dir, "git", "rev-parse", "HEAD"))
	bin := filepath.Join(dir, "bin")
	unpacked := wire.Must(filepath.Glob(filepath.Join(bin, "stepwell-*-"+strings.ReplaceAll(platform, "/", "-"))))(t)
	if len(unpacked) != 1 {
		t.Fatalf("got %q; want one directory of programs", unpacked)
	}
	program := filepath.Join(unpacked[0], "stepwell")
	if runtime.GOOS == "linux" {
		f := wire.Must(elf.Open(program))(t)
		defer f.Close()
		if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 || f.Section(".interp") != nil {
			t.Errorf("got libraries %v, %v; want a static program", libs, err)
		}
	}
	if got := run(dir, program, "version"); !strings.Contains(got, commit[:12]) {
		t.Errorf("got %s; want the commit %s", got, commit)
	}
	for name, tool := range map[string]string{"archive": "tar", "wheel": "python3", "npm": "npm", "Maven": "mvn"} {
		if _, err := exec.LookPath(tool); err == nil && !strings.Contains(said, "tried: "+name+"\n") {
			t.Errorf("got %s; want %s tried", said, name)
		}
	}
	archive := unpacked[0] + ".tar.gz"
	if want := fmt.Sprintf("%x  %s\n", sha256.Sum256(readFile(t, archive)), filepath.Base(archive)); !strings.Contains(said, want) {
		t.Errorf("got checksums %s; want %s", said, want)
	}
	licenses := run(dir, program, "version", "--licenses")
	needed := run(dir, "go", "list", "-m", "-f", "{{if not .Main}}{{.Path}} {{.Version}}{{end}}", "all")
	needed += "stdlib " + strings.TrimPrefix(runtime.Version(), "go")
	sum := fmt.Sprintf("%x", sha256.Sum256(readFile(t, program)))
	checkBill(t, readFile(t, program+".spdx.json"), sum, commit, strings.Split(strings.TrimSpace(needed), "\n"))
	for _, file := range wire.Must(filepath.Glob(filepath.Join(unpacked[0], "licenses", "*")))(t) {
		if info := wire.Must(os.Stat(file))(t); !info.IsDir() && !strings.Contains(licenses, string(readFile(t, file))) {
			t.Errorf("%s is not among those that the program prints", file)
		}
	}
	if len(strings.Split(licenses, "\n== ")) != len(strings.Split(needed, "\n")) {
		t.Errorf("got licenses %s; want one of each of %s", licenses, needed)
	}
}

// checkBill checks a bill of materials by the rules of SPDX 2.3 that concern what it has, and that it lists the program
// with this checksum, and these modules, each with the name of its license.
func checkBill(t *testing.T, text []byte, sum, commit string, modules []string) {
	t.Helper()
	var bill struct {
		SPDXVersion, DataLicense, SPDXID, Name, DocumentNamespace string
		CreationInfo                                              struct{ Created string }
		Packages                                                  []struct {
			SPDXID, Name, VersionInfo, DownloadLocation, LicenseConcluded, SourceInfo string
			Checksums                                                                 []struct{ ChecksumValue string }
			ExternalRefs                                                              []struct{ ReferenceLocator string }
		}
		Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	if bill.SPDXVersion != "SPDX-2.3" || bill.DataLicense != "CC0-1.0" || bill.SPDXID != "SPDXRef-DOCUMENT" || bill.Name == "" ||
		!strings.HasSuffix(bill.DocumentNamespace, sum) ||
		!regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`).MatchString(bill.CreationInfo.Created) {
		t.Errorf("got the head %+v", bill)
	}
	related := []string{}
	for _, r := range bill.Relationships {
		related = append(related, r.SPDXElementID+" "+r.RelationshipType+" "+r.RelatedSPDXElement)
	}
	for i, p := range bill.Packages {
		relation := bill.Packages[0].SPDXID + " DEPENDS_ON " + p.SPDXID
		if i == 0 {
			relation = "SPDXRef-DOCUMENT DESCRIBES " + p.SPDXID
		}
		if !regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`).MatchString(p.SPDXID) || p.DownloadLocation == "" || !slices.Contains(related, relation) {
			t.Errorf("got the package %+v, relations %q", p, related)
		}
		if i == 0 {
			if p.Name != "stepwell" || p.Checksums[0].ChecksumValue != sum || !strings.Contains(p.SourceInfo, commit) {
				t.Errorf("got the program %+v; want the checksum %s and the commit %s", p, sum, commit)
			}
			continue
		}
		at := slices.Index(modules, p.Name+" "+p.VersionInfo)
		if at < 0 || p.LicenseConcluded == "NOASSERTION" || p.ExternalRefs[0].ReferenceLocator != "pkg:golang/"+strings.ToLower(p.Name)+"@"+p.VersionInfo {
			t.Errorf("got the package %+v; want one of %q with its license", p, modules)
			continue
		}
		modules = slices.Delete(modules, at, at+1)
	}
	if len(modules) > 0 {
		t.Errorf("%q are missing", modules)
	}
}
