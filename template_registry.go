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
	files  map[string]bool              // whether a file that was looked at is a template
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

// compareTemplates orders by namespace, name and precedence of versions, and by text where only build metadata differs.
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

// latestTemplate returns the highest release, or the highest version if none is a release. Versions ascend.
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

// nearest returns the registered template that an unknown one most likely means, as commands and tests name it: another
// version, the same name in another namespace, or a few letters changed. It returns "" if none is close.
func (r *registry) nearest(namespace, name, version string) string {
	type distance struct{ total, namespace int }
	best, found := distance{}, (*template)(nil)
	name = strings.ToLower(name)
	for i := 0; i < len(r.sorted); {
		versions := r.byName[r.sorted[i].names()]
		// They are next to each other in this order.
		i += len(versions)
		of := versions[0]
		limit := typoLimit(name)
		if of.namespace == namespace && len(name) > 2 {
			limit = max(limit, 2) // a namespace has few templates
		}
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
	return found.namespace + "/" + found.name + pick(version == "", "", "@"+found.version)
}

// Semantic versions (2.0.0): reading them strictly, and their precedence.

// semver is a parsed version. Its numbers are text because they have no upper bound.
type semver struct {
	core [3]string // major, minor, patch
	pre  []string  // the pre-release identifiers; empty for a release
}

// semverSyntax is the expression that semver.org suggests. Its groups are major, minor, patch and the pre-release.
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

// Resolving a normalized definition: the overrides of an environment, and the rules that hold between steps.

// everyStep is the name that stands for every step in an environment.
const everyStep = "ALL"

// stepDraft is one step while its template is resolved.
type stepDraft struct {
	templateObject
	path string
}

func (s *stepDraft) name() (string, bool) { return jsonString(s.value("name")) }

// override applies an environment's values to the step. It merges initialization
// and replaces the others. It returns what that costs: the time, as the bytes that would take as long elsewhere.
func (s *stepDraft) override(over templateObject) int {
	for _, key := range []string{"timeout_seconds", "retry"} {
		if value := over.value(key); value != nil {
			s.set(key, value)
		}
	}
	initialization := templateMembers(over.value("handler")).value("initialization")
	if initialization == nil {
		return 0
	}
	handler := templateMembers(s.value("handler"))
	merged := mergeObjects(nil, handler.value("initialization"), initialization)
	handler.set("initialization", canonicalJSON(nil, merged))
	s.set("handler", handler.json())
	// The memory is freed soon, but any number of entries may merge large objects again.
	return draftBytes/4 + 2*len(merged)
}

// templateDraft is a template while it is resolved.
type templateDraft struct {
	templateObject
	steps []stepDraft
	index map[string]int // steps by name; the first of equal names
}

// resolve applies an environment to a normalized definition and checks the rules
// between its steps. If r has problems, parts of either may be null.
func (r *templateReader) resolve(normal []byte, env string) []byte {
	d := &templateDraft{templateObject: templateMembers(normal), index: map[string]int{}}
	for i, step := range templateElements(d.value("steps")) {
		if !r.take(draftBytes, templateItemPath("steps", i)) {
			return normal
		}
		d.steps = append(d.steps, stepDraft{templateMembers(step), templateItemPath("steps", i)})
	}
	r.indexSteps(d)
	// The entries of all environments are checked, although only those of one are applied.
	for _, m := range templateMembers(d.value("environments")) {
		path := templateMemberPath("environments", m.key) + ".steps"
		for i, over := range templateElements(templateMembers(m.value).value("steps")) {
			r.override(d, templateItemPath(path, i), templateMembers(over), m.key == env)
		}
	}
	r.checkDependencies(d)
	var steps [][]byte
	for _, s := range d.steps {
		steps = append(steps, s.json())
	}
	d.set("steps", templateListJSON(steps))
	return d.json()
}

func (r *templateReader) indexSteps(d *templateDraft) {
	for i, s := range d.steps {
		name, ok := s.name()
		if !ok {
			continue
		}
		if first, taken := d.index[name]; taken {
			r.problem(s.path+".name", "duplicate step %q, also steps[%d]", clippedText(name), first)
			continue
		}
		d.index[name] = i
	}
}

// override checks one entry of an environment's steps and applies it if it
// belongs to the requested environment. Entries apply in order.
func (r *templateReader) override(d *templateDraft, path string, over templateObject, apply bool) {
	name, ok := jsonString(over.value("name"))
	if !ok {
		return // reported when it was read
	}
	first, after := 0, len(d.steps)
	if name != everyStep {
		i, known := d.index[name]
		if !known {
			r.warn(path+".name", "unknown step %q; nothing to override", clippedText(name))
			return
		}
		first, after = i, i+1
	}
	// With problems there may be nulls where objects should be, and the result is not needed.
	for i := first; i < after && apply && len(r.problems) == 0 && r.take(memberBytes, path); i++ {
		r.take(d.steps[i].override(over), path)
	}
}

// checkDependencies looks for unknown names and for cycles, and drops repeated names.
func (r *templateReader) checkDependencies(d *templateDraft) {
	parents := make([][]int, len(d.steps))
	lastChild := make([]int, len(d.steps)) // by parent, plus 1
	for i := range d.steps {
		s, path := &d.steps[i], r.spelled(d.steps[i].path+".dependencies")
		var kept [][]byte
		for j, value := range templateElements(s.value("dependencies")) {
			name, ok := jsonString(value)
			if !ok {
				continue
			}
			switch p, known := d.index[name]; {
			case !known:
				r.problem(templateItemPath(path, j), "there is no step %q", clippedText(name))
			case p == i:
				r.problem(templateItemPath(path, j), "a step cannot depend on itself")
			case lastChild[p] == i+1:
				r.warn(templateItemPath(path, j), "%q is listed twice", clippedText(name))
			default:
				lastChild[p] = i + 1
				parents[i] = append(parents[i], p)
				kept = append(kept, value)
			}
		}
		s.set("dependencies", templateListJSON(kept))
	}
	if _, cycle := newGraph(parents); cycle != nil {
		r.problem("steps", "they depend on each other, each on the next: %s", cycleText(cycle, d.stepName))
	}
}

func (d *templateDraft) stepName(i int) string {
	name, _ := d.steps[i].name()
	return clippedText(name)
}

// checkWorkers warns of a batchable step whose worker is not a batch_worker step,
// and of a batch_worker step that no step creates.
func (r *templateReader) checkWorkers(t *template) {
	workers := map[string]bool{}
	for _, s := range t.steps {
		workers[s.name] = s.kind == stepBatchWorker
	}
	for i, s := range t.steps {
		if s.kind == stepBatchWorker && t.flow.makers[i] == 0 {
			r.warn(templateItemPath("steps", i), "is never created: no step of type %s creates it", stepBatchable)
		}
		if s.kind == stepBatchable && s.batchWorker != "" && !workers[s.batchWorker] {
			r.warn(templateItemPath("steps", i), "worker template %q is not a step of type %s",
				clippedText(s.batchWorker), stepBatchWorker)
		}
	}
}
