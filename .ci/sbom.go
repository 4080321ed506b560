// Command sbom prints the bill of materials of a program in SPDX 2.3 (JSON): the program, the modules in it and Go's
// library, as the build recorded them in the file.
//
//	go run .ci/sbom.go PROGRAM VERSION
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"
)

type object = map[string]any

// licenses are the SPDX names of the texts in docs/licenses/.
var licenses = map[string]string{
	"stdlib": "BSD-3-Clause", "github.com/BurntSushi/toml": "MIT", "github.com/golang-jwt/jwt/v5": "MIT",
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: go run .ci/sbom.go PROGRAM VERSION")
	}
	bill, err := billOf(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal("sbom: ", err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(bill); err != nil {
		log.Fatal(err)
	}
}

// billOf returns the document about a program. It depends on nothing but the program, unless that
// does not say when its commit was made.
func billOf(file, version string) (object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{"vcs.time": time.Now().UTC().Format(time.RFC3339), "vcs.revision": "unknown"}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	name, sum := filepath.Base(file), fmt.Sprintf("%x", sha256.Sum256(text))
	program := packageOf("stepwell", version)
	program["primaryPackagePurpose"], program["packageFileName"] = "APPLICATION", name
	program["checksums"] = []object{{"algorithm": "SHA256", "checksumValue": sum}}
	program["sourceInfo"] = fmt.Sprintf("built from commit %s with %s for %s/%s",
		settings["vcs.revision"], info.GoVersion, settings["GOOS"], settings["GOARCH"])
	packages := []object{program, moduleOf("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		p := moduleOf(m.Path, m.Version)
		p["sourceInfo"] = "go.sum: " + m.Sum
		packages = append(packages, p)
	}
	relations := []object{relation("SPDXRef-DOCUMENT", "DESCRIBES", program)}
	for _, p := range packages[1:] {
		relations = append(relations, relation(program["SPDXID"], "DEPENDS_ON", p))
	}
	return object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
		"documentNamespace": "https://spdx.org/spdxdocs/" + name + "-" + sum,
		"creationInfo":      object{"created": settings["vcs.time"], "creators": []string{"Tool: stepwell-sbom"}},
		"packages":          packages, "relationships": relations,
	}, nil
}

// packageOf returns what every package needs.
func packageOf(name, version string) object {
	license := licenses[name]
	if license == "" {
		license = "NOASSERTION"
	}
	return object{
		"SPDXID": "SPDXRef-Package-" + strings.NewReplacer("/", "-", "_", "-").Replace(name), "name": name, "versionInfo": version,
		"downloadLocation": "NOASSERTION", "filesAnalyzed": false, "copyrightText": "NOASSERTION",
		"licenseConcluded": license, "licenseDeclared": license,
	}
}

// moduleOf returns the package of a Go module.
func moduleOf(path, version string) object {
	p := packageOf(path, version)
	p["externalRefs"] = []object{{
		"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/" + strings.ToLower(path) + "@" + version,
	}}
	return p
}

func relation(from any, kind string, to object) object {
	return object{"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to["SPDXID"]}
}
