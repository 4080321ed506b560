package main

// The registry: which templates there are, which version is the latest, and how versions
// compare (semantic versioning 2.0.0).

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strings"
	"sync"
)

// latestVersion stands for the latest version of a template.
const latestVersion = "latest"

// registry is a set of templates. It is immutable, as are the slices it returns.
type registry struct {
	sorted []*template                  // by namespace, name, version
	byName map[templateName][]*template // the lowest version first
	hash   func() string                // of all templates
}

// templateName names all versions of a template.
type templateName struct{ namespace, name string }

// newRegistry makes a registry of templates, which must have different identities.
func newRegistry(templates []*template) *registry {
	r := &registry{sorted: slices.SortedFunc(slices.Values(templates), compareTemplates), byName: map[templateName][]*template{}}
	// Few requests ask for the hash, but each new template makes a new registry.
	r.hash = sync.OnceValue(r.newHash)
	for _, t := range r.sorted {
		r.byName[t.names()] = append(r.byName[t.names()], t)
	}
	return r
}

func (r *registry) newHash() string {
	h := sha256.New()
	for _, t := range r.sorted {
		io.WriteString(h, t.hash)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (t *template) names() templateName { return templateName{t.namespace, t.name} }

// compareTemplates orders by namespace, name and precedence of versions, and by
// text where only build metadata differs.
func compareTemplates(a, b *template) int {
	return cmp.Or(
		strings.Compare(a.namespace, b.namespace),
		strings.Compare(a.name, b.name),
		a.semver.compare(b.semver),
		strings.Compare(a.version, b.version),
	)
}

// with returns r with t, which replaces a template of the same identity.
func (r *registry) with(t *template) *registry {
	others := slices.DeleteFunc(slices.Clone(r.sorted), func(o *template) bool {
		return o.names() == t.names() && o.version == t.version
	})
	return newRegistry(append(others, t))
}

// get finds a template. Version "" and latest mean the latest one.
func (r *registry) get(namespace, name, version string) (*template, bool) {
	versions := r.versions(namespace, name)
	if len(versions) == 0 {
		return nil, false
	}
	if version == "" || version == latestVersion {
		return latestTemplate(versions), true
	}
	i := slices.IndexFunc(versions, func(t *template) bool { return t.version == version })
	if i < 0 {
		return nil, false
	}
	return versions[i], true
}

// latestTemplate returns the highest release, or the highest version if none is a
// release. Versions ascend.
func latestTemplate(versions []*template) *template {
	for _, t := range slices.Backward(versions) {
		if t.semver.isRelease() {
			return t
		}
	}
	return versions[len(versions)-1]
}

// versions returns the templates of a name, the lowest version first.
func (r *registry) versions(namespace, name string) []*template {
	return r.byName[templateName{namespace, name}]
}

// nearest returns the full name of the registered template that an unknown one
// most likely means: another version, the same name in another namespace, or a few
// letters changed. It returns "" if none is close.
func (r *registry) nearest(namespace, name, version string) string {
	type distance struct{ total, namespace int }
	best, found := distance{}, (*template)(nil)
	name, limit := strings.ToLower(name), typoLimit(name)
	for i := 0; i < len(r.sorted); {
		versions := r.byName[r.sorted[i].names()]
		// They are next to each other in this order.
		i += len(versions)
		of := versions[0]
		d := distance{typoDistance(name, strings.ToLower(of.name), limit), 0}
		if d.total > limit {
			continue
		}
		if of.namespace != namespace {
			d.total++ // a namespace is left out more often than it is misspelled
			d.namespace = typoDistance(namespace, of.namespace, 8)
		}
		if found == nil || d.total < best.total || d.total == best.total && d.namespace < best.namespace {
			best, found = d, latestTemplate(versions)
			// The version that was asked for, if this template has it.
			if t, ok := r.get(of.namespace, of.name, version); ok {
				found = t
			}
		}
	}
	if found == nil {
		return ""
	}
	return found.fullName()
}

// Semantic versions (2.0.0): reading them strictly, and their precedence.

// semver is a parsed version. Its numbers are text because they have no upper bound.
type semver struct {
	core [3]string // major, minor, patch
	pre  []string  // the pre-release identifiers; empty for a release
}

// semverSyntax is the expression that semver.org suggests. Its groups are major,
// minor, patch and the pre-release.
var semverSyntax = compiled(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?` +
	`(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?$`)

// parseSemver reads a version such as 1.2.3, 1.2.3-rc.1 or 1.2.3+build.5. It
// accepts no leading v or zero and no missing part.
func parseSemver(s string) (v semver, ok bool) {
	m := semverSyntax().FindStringSubmatch(s)
	if m == nil {
		return v, false
	}
	v.core = [3]string(m[1:])
	if m[4] != "" {
		v.pre = strings.Split(m[4], ".")
	}
	return v, true
}

// isRelease reports whether v has no pre-release part.
func (v semver) isRelease() bool { return len(v.pre) == 0 }

// compare returns the precedence of v and w: negative if v is older.
func (v semver) compare(w semver) int {
	if c := slices.CompareFunc(v.core[:], w.core[:], compareSemverNumbers); c != 0 {
		return c
	}
	if v.isRelease() || w.isRelease() {
		return cmp.Compare(len(w.pre), len(v.pre)) // a release is newer than its pre-releases
	}
	return slices.CompareFunc(v.pre, w.pre, comparePreReleases)
}

// comparePreReleases orders two identifiers: numbers by value, before words.
func comparePreReleases(a, b string) int {
	numA, numB := strings.Trim(a, "0123456789") == "", strings.Trim(b, "0123456789") == ""
	switch {
	case numA && numB:
		return compareSemverNumbers(a, b)
	case numA:
		return -1
	case numB:
		return 1
	}
	return strings.Compare(a, b)
}

// compareSemverNumbers compares numbers without leading zeros by value.
func compareSemverNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
