package main

// The template family: workflow templates, from definition to registry, and the
// graphs of their steps. It uses base and config; it does not know tasks or what
// runs steps.
//
//	template.go               the resolved template, its normalized form, registry, versions, loading; what steps publish
//	template_read.go          reading a definition: fields, rules, environments
//	template_format.go        the formats of a definition: JSON, TOML, YAML's scalars, places in a text, conversion
//	template_yaml.go          reading YAML: blocks, flow collections, anchors
//	template_graph.go         dependency graphs: order, cycles, levels, paths, dynamic steps
//	template_schema.go        JSON Schema: compiling, references, objects, lists and combinations, checking values
//	template_schema_values.go its keywords of single values; formats and patterns of texts

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// identityStrategy says when two tasks of a template are the same task.
type identityStrategy string

const (
	strategyStrict         identityStrategy = "strict"
	strategyCallerProvided identityStrategy = "caller_provided"
	strategyAlwaysUnique   identityStrategy = "always_unique"
)

// backoffKind says how the delay before a retry grows.
type backoffKind string

const (
	backoffNone        backoffKind = "none"
	backoffLinear      backoffKind = "linear"
	backoffExponential backoffKind = "exponential"
	backoffFibonacci   backoffKind = "fibonacci"
)

// The kinds of steps.
const (
	stepStandard            = "standard"
	stepDecision            = "decision"
	stepDeferredConvergence = "deferred_convergence"
	stepBatchable           = "batchable"
	stepBatchWorker         = "batch_worker"
)

// What it means if an instance of a batch worker fails for good.
const (
	batchFailFast = "fail_fast"           // the task is blocked
	batchContinue = "continue_on_failure" // it is blocked once nothing else of it can run
	batchIsolate  = "isolate"             // likewise, and what depends on the batches runs without that one
)

// template is one resolved workflow definition. It is immutable, and its byte
// slices are JSON texts.
type template struct {
	namespace, name, version string
	semver                   semver // version, parsed
	description              *string
	strategy                 identityStrategy
	defaultContext           []byte         // an object
	input                    *schemaSource  // of contexts; nil for none
	lifecycle                *lifecycle     // nil if the template has none
	steps                    []stepTemplate // in the order of the definition
	order                    []int          // step indexes, parents first, else as defined
	dynamic                  bool           // some step's kind is not standard
	publishes                bool           // some step publishes events
	flow                     *flow          // nil unless dynamic
	json                     []byte         // the normalized form, compact: what is kept
	shownJSON                []byte         // json, redacted: what is served
	hash                     string         // lower-case hex of the first 16 bytes of SHA-256 over json
}

// lifecycle holds the limits that a template sets, in minutes; nil means the
// service's limit.
type lifecycle struct {
	MaxDurationMinutes               *int
	MaxWaitingForDependenciesMinutes *int
	MaxWaitingForRetryMinutes        *int
	MaxStepsInProcessMinutes         *int
	StalenessAction                  string // dlq, error, none; "" for the default
}

// stepTemplate is one step of a template.
type stepTemplate struct {
	name, kind        string
	description       *string
	callable, method  string // method is "" if absent
	shown             string // the callable, redacted: what views, logs and outside actors get
	resolver          *string
	handler           []byte // the whole handler, an object
	config            []byte // handler.initialization, an object
	parents, children []int  // indexes into template.steps; parents as listed, children ascending
	retry             retryPolicy
	timeoutSeconds    int
	parentsOnly       bool   // the handler gets the results of its parents, not of all ancestors
	id                uuid   // named_step_uuid
	resultSchema      []byte // nil if absent
	result            *schemaSource
	batchWorker       string       // the step whose instances work on the batches; "" if none is named
	handed            []byte       // the members of the handler but for its configuration, as handlers get them
	batch             *batchPolicy // of a batch_worker step
	publishes         []publishedEvent
}

// batchPolicy is how the instances of a batch_worker step are worked on: by its own batch_config,
// or else by that of a batchable step that creates it.
type batchPolicy struct {
	parallelism     int    // how many may run at once; 0 for no limit
	failureStrategy string // what it means if one fails for good
	metadata        []byte // an object: the configuration, as instances get it
}

// schemaSource is a schema in a template, compiled when it is first needed.
type schemaSource struct {
	path     string // in the template
	text     []byte // an object
	once     sync.Once
	compiled *jsonSchema
}

// newSchemaSource returns nil for no schema.
func newSchemaSource(path string, text []byte) *schemaSource {
	if text == nil || jsonKind(text) == 'n' {
		return nil
	}
	return &schemaSource{path: path, text: text}
}

func (s *schemaSource) schema() *jsonSchema {
	s.once.Do(func() { s.compiled = compileSchema(s.path, s.text) })
	return s.compiled
}

// schemaFaults returns why schemas of a template cannot be enforced.
func (t *template) schemaFaults() (faults inputProblems) {
	for _, s := range t.schemas() {
		faults = append(faults, s.schema().problems...)
	}
	return faults
}

// retryPolicy decides whether and when a failed step is tried again.
type retryPolicy struct {
	Retryable   bool
	MaxAttempts int // counts the first attempt; 0 behaves as 1
	Backoff     backoffKind
	BaseMS      int
	MaxMS       int
}

func (t *template) fullName() string { return t.namespace + "." + t.name + "@" + t.version }

// templateForm is the normalized form of a template, without members that the
// program does not use. Its byte slices are parts of the text it was read from.
type templateForm struct {
	namespace, name, version string
	description              *string
	strategy                 identityStrategy
	defaultContext           []byte
	inputSchema              []byte
	lifecycle                *lifecycle
	steps                    []stepForm
}

func (f *templateForm) places() []place {
	return []place{
		{"namespace_name", &f.namespace},
		{"name", &f.name},
		{"version", &f.version},
		{"description", &f.description},
		{"identity_strategy", &f.strategy},
		{"default_context", &f.defaultContext},
		{"input_schema", &f.inputSchema},
		{"lifecycle", f.readLifecycle},
		{"steps", f.readSteps},
	}
}

func (f *templateForm) readLifecycle(data []byte) error {
	if jsonKind(data) == 'n' {
		return nil
	}
	f.lifecycle = new(lifecycle)
	return readForm(data, f.lifecycle.places())
}

func (f *templateForm) readSteps(data []byte) (err error) {
	if !eachElement(data, func(raw []byte) bool {
		s := stepForm{
			kind: stepStandard, timeoutSeconds: 30, retry: retryPolicy{true, 3, backoffExponential, 1000, 30000},
		}
		err = readForm(raw, s.places())
		f.steps = append(f.steps, s)
		return err == nil
	}) && jsonKind(data) != 'n' {
		err = errors.New("not a list")
	}
	return err
}

// stepForm is one step of a templateForm.
type stepForm struct {
	name, kind     string
	description    *string
	handler        []byte
	dependencies   []byte // names of steps
	retry          retryPolicy
	timeoutSeconds int
	resultSchema   []byte
	batchConfig    []byte // an object; nil or null for none
	publishes      []publishedEvent
}

func (s *stepForm) places() []place {
	return []place{
		{"name", &s.name},
		{"type", &s.kind},
		{"description", &s.description},
		{"handler", &s.handler},
		{"dependencies", &s.dependencies},
		{"retry", func(data []byte) error { return readForm(data, s.retry.places()) }},
		{"timeout_seconds", &s.timeoutSeconds},
		{"result_schema", &s.resultSchema},
		{"batch_config", &s.batchConfig},
		{"publishes_events", s.readPublished},
	}
}

func (s *stepForm) readPublished(data []byte) (err error) {
	eachElement(data, func(raw []byte) bool {
		p := publishedEvent{condition: "success", mode: "durable"}
		err = readForm(raw, p.places())
		s.publishes = append(s.publishes, p)
		return err == nil
	})
	return err
}

// eachDependency calls f with the name of each step that this one depends on, until f refuses
// one. A dense graph has a million of them, which need not become strings.
func (s *stepForm) eachDependency(f func(name []byte) bool) (err error) {
	list, i := s.dependencies, 1
	if kind := jsonKind(list); kind == 0 || kind == 'n' {
		return nil
	} else if kind != '[' {
		return errors.New("has dependencies that are no list")
	}
	for i = skipJSONSpace(list, i); list[i] != ']'; {
		end := skipJSONValue(list, i)
		if raw := list[i:end]; raw[0] != '"' || !f(unescapeJSON(raw)) {
			return fmt.Errorf("cannot depend on %s", raw)
		}
		if i = skipJSONSpace(list, end); list[i] == ',' {
			i = skipJSONSpace(list, i+1)
		}
	}
	return nil
}

func (p *retryPolicy) places() []place {
	return []place{
		{"retryable", &p.Retryable},
		{"max_attempts", &p.MaxAttempts},
		{"backoff", &p.Backoff},
		{"backoff_base_ms", &p.BaseMS},
		{"max_backoff_ms", &p.MaxMS},
	}
}

func (l *lifecycle) places() []place {
	return []place{
		{"max_duration_minutes", &l.MaxDurationMinutes},
		{"max_waiting_for_dependencies_minutes", &l.MaxWaitingForDependenciesMinutes},
		{"max_waiting_for_retry_minutes", &l.MaxWaitingForRetryMinutes},
		{"max_steps_in_process_minutes", &l.MaxStepsInProcessMinutes},
		{"staleness_action", &l.StalenessAction},
	}
}

// handlerForm is the handler of a stepForm.
type handlerForm struct {
	callable, method string
	resolver         *string
	initialization   []byte
}

func (h *handlerForm) places() []place {
	return []place{
		{"callable", &h.callable},
		{"method", &h.method},
		{"resolver", &h.resolver},
		{"initialization", &h.initialization},
	}
}

// templateFromNormalized reads template.json back: json, hash and fields are the
// same. It checks the shape but not the rules for new templates, so that it can
// read every template that was ever accepted.
func templateFromNormalized(data []byte) (*template, error) {
	text := bytes.Clone(data)
	if err := checkJSON(text); err != nil {
		return nil, err
	}
	f := &templateForm{strategy: strategyStrict, defaultContext: []byte("{}")}
	if err := readForm(text, f.places()); err != nil {
		return nil, err
	}
	t := &template{
		namespace: f.namespace, name: f.name, version: f.version, description: f.description, strategy: f.strategy,
		defaultContext: f.defaultContext, lifecycle: f.lifecycle, json: text, steps: make([]stepTemplate, len(f.steps)),
		shownJSON: redact(text), input: newSchemaSource("input_schema", f.inputSchema),
	}
	var ok bool
	if t.semver, ok = parseSemver(t.version); !ok || t.namespace == "" || t.name == "" {
		return nil, errors.New("no namespace, no name or no valid version")
	}
	sum := sha256.Sum256(text)
	t.hash = hex.EncodeToString(sum[:16])
	for i := range f.steps {
		s, err := f.steps[i].step()
		if err != nil {
			return nil, err
		}
		s.id = stableID(t.namespace, t.name, t.version, s.name)
		path := templateItemPath("steps", i)
		s.result = newSchemaSource(path+".result_schema", s.resultSchema)
		for n := range s.publishes {
			p := &s.publishes[n]
			p.payload = newSchemaSource(templateItemPath(path+".publishes_events", n)+".schema", p.schema)
		}
		t.steps[i] = s
		t.dynamic = t.dynamic || s.kind != stepStandard
		t.publishes = t.publishes || s.publishes != nil
	}
	if err := checkObject(t.defaultContext); err != nil {
		return nil, err
	}
	return t, t.link(f.steps)
}

// step returns the step, without parents and children.
func (f *stepForm) step() (stepTemplate, error) {
	h := handlerForm{initialization: []byte("{}")}
	if f.handler != nil {
		if err := readForm(f.handler, h.places()); err != nil {
			return stepTemplate{}, err
		}
	}
	s := stepTemplate{
		name: f.name, kind: f.kind, description: f.description,
		callable: h.callable, shown: redactName(h.callable), method: h.method, resolver: h.resolver,
		handler: f.handler, config: h.initialization, resultSchema: f.resultSchema,
		retry: f.retry, timeoutSeconds: f.timeoutSeconds, publishes: f.publishes,
	}
	s.handed = appendHanded(nil, &s)
	s.parentsOnly = templateText(s.config, "dependency_results") == "parents"
	s.batchWorker = cmp.Or(
		templateText(f.batchConfig, "worker_template"), templateText(s.config, "worker_template_name"))
	if s.resultSchema != nil {
		if err := checkObject(s.resultSchema); err != nil {
			return s, err
		}
	}
	return s, checkObject(s.config)
}

// appendHanded appends a handler with its callable, redacted, and with the method and the
// resolver that the template gives.
func appendHanded(dst []byte, s *stepTemplate) []byte {
	o := jsonWriter{b: append(dst, '{')}
	o.text("callable", s.shown)
	if s.method != "" {
		o.text("method", s.method)
	}
	if s.resolver != nil {
		o.text("resolver", *s.resolver)
	}
	return append(o.b, '}')
}

func checkObject(data []byte) error {
	if data[0] != '{' {
		return fmt.Errorf("%s where an object is expected", templateValueKind(data))
	}
	return nil
}

func (b *batchPolicy) places() []place {
	return []place{{"parallelism", &b.parallelism}, {"failure_strategy", &b.failureStrategy}}
}

// The registry: the templates by identity, and the latest version of each.

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

// all returns the templates by namespace, name and version.
func (r *registry) all() []*template { return r.sorted }

// nearest returns the full name of the registered template that an unknown one
// most likely means: another version, the same name in another namespace, or a few
// letters changed. It returns "" if none is close.
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
			d.total++ // a namespace is left out more often than it is misspelled
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

// Loading templates at start-up, with every problem of every file in one error.

// demoTemplates are the templates of a service without template directories.
//
//go:embed templates/demo/*.json templates/demo/*.toml
var demoTemplates embed.FS

// loadTemplates reads all templates in the directories, which may also be files, or the demo templates if
// there are none, and resolves them for an environment. The rules may be nil. The error
// is an inputProblems with every problem of every file. The warnings name their files.
func loadTemplates(dirs []string, env string, rules *templateRules) (*registry, []string, error) {
	l := &templateLoader{env: env, rules: rules, files: map[string]bool{}, defined: map[string]string{}}
	if len(dirs) == 0 {
		l.embedded()
	}
	for _, dir := range dirs {
		if templateFormat(dir) != "" {
			if info, err := os.Stat(dir); err == nil && !info.IsDir() {
				l.file(dir)
				continue
			}
		}
		if files, ok := l.directory(filepath.Clean(dir)); ok && files == 0 {
			l.warnings = append(l.warnings, dir+": has no template; only "+templateFiles+" are read")
		}
	}
	if l.refused {
		hint := "docs/templates.md describes the formats and every field"
		l.problems = append(l.problems, inputProblem{Message: hint})
	}
	if len(l.problems) > 0 {
		return nil, l.warnings, l.problems
	}
	return newRegistry(l.templates), l.warnings, nil
}

// templateLoader collects the templates of files.
type templateLoader struct {
	env       string
	rules     *templateRules
	templates []*template
	warnings  []string
	problems  inputProblems
	refused   bool              // a definition has problems
	files     map[string]bool   // files read, because directories may overlap
	defined   map[string]string // full name of a template: its file
}

func (l *templateLoader) problem(file string, err error) {
	l.problems = append(l.problems, inputProblem{Source: file, Message: err.Error()})
}

// directory reads the files of a directory and its subdirectories in the order of
// their names, except hidden ones and links to directories. It returns the number
// of files, and whether it could read the directory itself.
func (l *templateLoader) directory(dir string) (files int, ok bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		what := pick(templateFormat(dir) == "", "templates directory", "template")
		l.problem(dir, fmt.Errorf("reading the %s: %w", what, templateFileReason(err)))
		return 0, false
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			below, _ := l.directory(name)
			files += below
		case templateFormat(name) != "":
			l.file(name)
			files++
		default:
			l.skip(name)
		}
	}
	return files, true
}

// templateWords matches a text with the names of the members that define steps.
var templateWords = compiled(`(?s)\bsteps\W+\w.*\bcallable\W`)

// skip warns of a file that is not read for its ending alone.
func (l *templateLoader) skip(name string) {
	if l.files[name] || filepath.Ext(name) == ".md" {
		return
	}
	l.files[name] = true
	if text, err := readTemplateFile(name, 64<<10); err == nil && templateWords().Match(text) {
		l.warnings = append(l.warnings, name+": looks like a template, but only "+templateFiles+" are read")
	}
}

// templateFileReason returns an error without the path, which the problem names.
func templateFileReason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// templateFiles names the files that are read, for messages.
const templateFiles = "*.json, *.toml, *.yaml and *.yml files"

// templateFormat returns json, toml or yaml by a file's name, or "" for other files.
func templateFormat(name string) string {
	switch ext := path.Ext(name); ext {
	case ".json", ".toml", ".yaml":
		return ext[1:]
	case ".yml":
		return "yaml"
	}
	return ""
}

func (l *templateLoader) file(name string) {
	if l.files[name] {
		return
	}
	l.files[name] = true
	if data, err := readTemplateFile(name, math.MaxInt64); err != nil {
		l.problem(name, fmt.Errorf("reading the template: %w", templateFileReason(err)))
	} else {
		l.add(name, data)
	}
}

// readTemplateFile reads a regular file, up to a limit in bytes. Others, such as
// pipes, might never end.
func readTemplateFile(name string, limit int64) ([]byte, error) {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func (l *templateLoader) embedded() {
	files, err := fs.Glob(demoTemplates, "templates/demo/*")
	for _, name := range files {
		var data []byte
		if data, err = demoTemplates.ReadFile(name); err != nil {
			break
		}
		l.add("built-in "+name, data)
	}
	if err != nil {
		l.problem("built-in templates", err)
	}
}

// add adds the template of one definition.
func (l *templateLoader) add(file string, data []byte) {
	t, problems, warnings := parseTemplate(file, data, templateFormat(file), l.env, l.rules)
	l.problems = append(l.problems, problems...)
	l.warnings = append(l.warnings, warnings...)
	if t == nil {
		l.refused = true
		return
	}
	name := t.fullName()
	if other, taken := l.defined[name]; taken {
		r := &templateReader{file: file, blamed: map[string]bool{}}
		r.definition(data, templateFormat(file))
		r.problem("name", "duplicate template %s, also defined in %s", name, other)
		r.locate(r.problems)
		l.problems = append(l.problems, r.problems...)
		return
	}
	l.defined[name] = file
	l.templates = append(l.templates, t)
}

// ids returns how many ids a task takes: its own, its steps', and a correlation id.
func (t *template) ids() int { return len(t.steps) + 2 }

// stepNames returns the names of steps.
func (t *template) stepNames(steps []int) []string {
	names := make([]string, len(steps))
	for n, i := range steps {
		names[n] = t.steps[i].name
	}
	return names
}

// What steps publish.

// publishedEvent is an event that a step publishes when an attempt has ended.
type publishedEvent struct {
	name      string
	condition string // success, failure, retryable_failure, permanent_failure or always
	mode      string // durable, fast or broadcast
	publisher string // the subscriber that gets it, besides those that ask for it; "" for none
	schema    []byte // a JSON Schema of the payload

	payload *schemaSource // schema
}

func (p *publishedEvent) places() []place {
	return []place{
		{"name", &p.name},
		{"condition", &p.condition},
		{"delivery_mode", &p.mode},
		{"publisher", &p.publisher},
		{"schema", &p.schema},
	}
}

// fast reports whether the event is lost with the process.
func (p *publishedEvent) fast() bool { return p.mode == "fast" }

// unfit returns for each event of a step why a payload does not fit its schema: "" if it does, or
// if the schema cannot be enforced.
func (s *stepTemplate) unfit(payload []byte) []string {
	why := make([]string, len(s.publishes))
	for n := range s.publishes {
		if p := s.publishes[n].payload; p != nil && len(p.schema().problems) == 0 {
			why[n] = p.schema().check(payload).String()
		}
	}
	return why
}

// follows reports whether the event is published after an attempt that ended so; again says
// that the step will be tried again.
func (p *publishedEvent) follows(success, again bool) bool {
	switch p.condition {
	case "always":
		return true
	case "failure":
		return !success
	case "retryable_failure":
		return !success && again
	case "permanent_failure":
		return !success && !again
	}
	return success
}
