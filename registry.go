package main

// The registry: the templates that tasks can be created from, by identity, and
// which version is the latest.

import (
	"cmp"
	"slices"
	"strings"
)

// latestVersion is the word for the latest version of a template.
const latestVersion = "latest"

// registry is a set of templates; immutable, so are the slices it hands out.
type registry struct {
	sorted []*template                  // by namespace, name, version
	byName map[templateName][]*template // parts of sorted
}

// templateName names all versions of a template.
type templateName struct{ namespace, name string }

// newRegistry makes a registry of templates, each identity once.
func newRegistry(templates []*template) *registry {
	r := &registry{sorted: slices.SortedFunc(slices.Values(templates), compareTemplates)}
	r.byName = make(map[templateName][]*template)
	for i := 0; i < len(r.sorted); {
		first, name := i, r.sorted[i].names()
		for i < len(r.sorted) && r.sorted[i].names() == name {
			i++
		}
		r.byName[name] = r.sorted[first:i:i]
	}
	return r
}

func (t *template) names() templateName { return templateName{t.namespace, t.name} }

// compareTemplates orders by namespace, name and precedence of versions; what
// differs in build metadata alone, by its text.
func compareTemplates(a, b *template) int {
	return cmp.Or(
		strings.Compare(a.namespace, b.namespace),
		strings.Compare(a.name, b.name),
		a.semver.compare(b.semver),
		strings.Compare(a.version, b.version),
	)
}

// with is r and t, which replaces a template of the same identity.
func (r *registry) with(t *template) *registry {
	others := slices.DeleteFunc(slices.Clone(r.sorted), func(o *template) bool {
		return o.names() == t.names() && o.version == t.version
	})
	return newRegistry(append(others, t))
}

// get finds a template; version "" and latest mean the latest one.
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

// latestTemplate is the highest release, or the highest of all where none is a
// release. Versions ascend.
func latestTemplate(versions []*template) *template {
	for _, t := range slices.Backward(versions) {
		if t.semver.isRelease() {
			return t
		}
	}
	return versions[len(versions)-1]
}

// versions are the templates of that name, the lowest version first.
func (r *registry) versions(namespace, name string) []*template {
	return r.byName[templateName{namespace, name}]
}

// all are the templates by namespace, name and version.
func (r *registry) all() []*template { return r.sorted }

// nearest is the full name of the registered template that was most likely
// meant by one that is not, "" when none is close: another version, the same
// name in another namespace, or a few letters changed.
func (r *registry) nearest(namespace, name, version string) string {
	type distance struct{ total, namespace int }
	best, found := distance{}, (*template)(nil)
	name, limit := strings.ToLower(name), typoLimit(name)
	for i := 0; i < len(r.sorted); {
		versions := r.byName[r.sorted[i].names()]
		i += len(versions)
		of := versions[0]
		d := distance{typoDistance(name, strings.ToLower(of.name), limit), 0}
		if d.total > limit {
			continue
		}
		if of.namespace != namespace {
			d.total++ // a namespace is forgotten as a whole more often than it is misspelled
			d.namespace = typoDistance(namespace, of.namespace, 8)
		}
		if found == nil || d.total < best.total || d.total == best.total && d.namespace < best.namespace {
			best, found = d, latestTemplate(versions)
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
