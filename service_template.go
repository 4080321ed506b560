package main

// How often the templates of a service are looked up, and since when it has
// them. All of them are held in memory: the registry is the cache that existing
// clients ask about, and a miss is a look-up of what is not registered.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// catalog is the templates that new tasks are made from, and counts how often
// each is looked up.
type catalog struct {
	cfg      *Config
	log      *slog.Logger
	clock    clock
	handlers *handlerSet

	current      atomic.Pointer[registry]
	hits, misses atomic.Uint64
	entries      sync.Map // *template to *templateEntry
}

// templateEntry is the use of one template.
type templateEntry struct {
	since instant // when the service got the template
	count atomic.Uint64
}

// newCatalog makes a catalog of the templates in a registry.
func newCatalog(cfg *Config, log *slog.Logger, clock clock, handlers *handlerSet, r *registry) *catalog {
	s := &catalog{cfg: cfg, log: log, clock: clock, handlers: handlers}
	s.current.Store(r)
	for _, t := range r.all() {
		s.entries.Store(t, &templateEntry{since: clock.now()})
	}
	return s
}

// registry returns the templates that new tasks are made from.
func (s *catalog) registry() *registry { return s.current.Load() }

// entry returns the use of a template; one that joined the registry later counts
// from its first look-up.
func (s *catalog) entry(t *template) *templateEntry {
	e, ok := s.entries.Load(t)
	if !ok {
		e, _ = s.entries.LoadOrStore(t, &templateEntry{since: s.clock.now()})
	}
	return e.(*templateEntry)
}

// find looks up a registered template; version "" and latest mean the latest
// one.
func (s *catalog) find(namespace, name, version string) (*template, error) {
	t, ok := s.registry().get(namespace, name, version)
	if !ok {
		s.misses.Add(1)
		return nil, s.unknown(namespace, name, version)
	}
	s.hits.Add(1)
	s.entry(t).count.Add(1)
	return t, nil
}

func (s *catalog) unknown(namespace, name, version string) error {
	full := namespace + "." + name
	if version != "" {
		full += "@" + version
	}
	f := failf(templateNotFound, "no template %s is registered", full)
	if near := s.registry().nearest(namespace, name, version); near != "" {
		f.message += "; did you mean " + near + "?"
	}
	return f
}

// templateCacheView is the figures of templateUse on the wire.
type templateCacheView struct {
	TotalCached           int      `json:"total_cached"`
	CacheHits             uint64   `json:"cache_hits"`
	CacheMisses           uint64   `json:"cache_misses"`
	CacheEvictions        uint64   `json:"cache_evictions"` // always 0: nothing is evicted
	OldestEntryAgeSeconds int64    `json:"oldest_entry_age_seconds"`
	AverageAccessCount    float64  `json:"average_access_count"`
	SupportedNamespaces   []string `json:"supported_namespaces"`
}

// usage is the figures over the templates that are registered now.
func (s *catalog) usage() templateCacheView {
	all, now := s.registry().all(), s.clock.now()
	v := templateCacheView{
		TotalCached: len(all), CacheHits: s.hits.Load(), CacheMisses: s.misses.Load(),
		SupportedNamespaces: s.namespaces(),
	}
	var accesses uint64
	for _, t := range all {
		e := s.entry(t)
		accesses += e.count.Load()
		v.OldestEntryAgeSeconds = max(v.OldestEntryAgeSeconds, e.ageSeconds(now))
	}
	if len(all) > 0 {
		v.AverageAccessCount = float64(accesses) / float64(len(all))
	}
	return v
}

func (e *templateEntry) ageSeconds(now instant) int64 {
	return max(int64(now.sub(e.since).Seconds()), 0)
}

// How templates go out on the wire: the list, the detail, and both without the
// credentials that stand in URLs.

// templateList is the answer of GET /v1/templates.
type templateList struct {
	Namespaces []templateNamespace `json:"namespaces"`
	Templates  []templateSummary   `json:"templates"`
	TotalCount int                 `json:"total_count"` // of all templates, whatever the filter
}

// templateNamespace is one namespace that has templates.
type templateNamespace struct {
	Name          string  `json:"name"`
	Description   *string `json:"description"` // always null: a namespace is not described anywhere
	TemplateCount int     `json:"template_count"`
}

type templateSummary struct {
	Name        string  `json:"name"`
	Namespace   string  `json:"namespace"`
	Version     string  `json:"version"`
	Description *string `json:"description"`
	StepCount   int     `json:"step_count"`
}

// templateDetail is the answer of GET /v1/templates/{namespace}/{name}/{version}.
type templateDetail struct {
	Name          string               `json:"name"`
	Namespace     string               `json:"namespace"`
	Version       string               `json:"version"`
	Description   *string              `json:"description"`
	Configuration json.RawMessage      `json:"configuration"`
	Steps         []templateStepDetail `json:"steps"`
}

type templateStepDetail struct {
	Name               string          `json:"name"`
	Description        *string         `json:"description"`
	DefaultRetryable   bool            `json:"default_retryable"`
	DefaultMaxAttempts int             `json:"default_max_attempts"`
	ResultSchema       json.RawMessage `json:"result_schema"` // nil goes out as null
	Dependencies       []string        `json:"dependencies"`
	Handler            json.RawMessage `json:"handler"`
	Type               string          `json:"type"`
}

// namespaces are the namespaces that have templates, sorted, with their counts.
func (r *registry) namespaces() []templateNamespace {
	list := []templateNamespace{}
	for _, t := range r.sorted {
		if n := len(list); n == 0 || list[n-1].Name != t.namespace {
			list = append(list, templateNamespace{Name: t.namespace})
		}
		list[len(list)-1].TemplateCount++
	}
	return list
}

// listView is the list of all templates, or of those in a namespace. The
// namespaces are listed in full in either case.
func (r *registry) listView(namespace string) templateList {
	list := templateList{Namespaces: r.namespaces(), Templates: []templateSummary{}, TotalCount: len(r.sorted)}
	for _, t := range r.sorted {
		if namespace == "" || t.namespace == namespace {
			list.Templates = append(list.Templates, t.summaryView())
		}
	}
	return list
}

func (t *template) summaryView() templateSummary {
	return templateSummary{t.name, t.namespace, t.version, withoutCredentials(t.description), len(t.steps)}
}

func (t *template) detailView() templateDetail {
	d := templateDetail{
		Name:          t.name,
		Namespace:     t.namespace,
		Version:       t.version,
		Description:   withoutCredentials(t.description),
		Configuration: t.shownJSON(),
		Steps:         make([]templateStepDetail, len(t.steps)),
	}
	for i := range t.steps {
		d.Steps[i] = t.stepDetail(&t.steps[i])
	}
	return d
}

func (t *template) stepDetail(s *stepTemplate) templateStepDetail {
	d := templateStepDetail{
		Name:               s.name,
		Description:        withoutCredentials(s.description),
		DefaultRetryable:   s.retry.Retryable,
		DefaultMaxAttempts: s.retry.MaxAttempts,
		ResultSchema:       hideCredentials(s.resultSchema),
		Dependencies:       make([]string, len(s.parents)),
		Handler:            hideCredentials(s.handler),
		Type:               s.kind,
	}
	for i, p := range s.parents {
		d.Dependencies[i] = t.steps[p].name
	}
	return d
}

// shownJSON is t.json as callers may see it.
func (t *template) shownJSON() []byte { return hideCredentials(t.json) }

// shownCallable is the callable as callers may see it.
func (s *stepTemplate) shownCallable() string { return string(hideCredentials([]byte(s.callable))) }

// Templates at run time: in fixture mode a test adds templates to the service
// that it works with. They are gone with it; start-up templates are not touched.

// add registers a definition, which passed checkJSON, in the place of a
// find of the same identity. A failure names every problem.
func (s *catalog) add(definition []byte) (t *template, replaced bool, err error) {
	t, problems, warnings := parseTemplate("", definition, "json", s.cfg.Environment, s.checkAddedCallable)
	if t == nil {
		return nil, false, refusedTemplate(problems)
	}
	for _, w := range warnings {
		s.log.Warn("a template was added with a warning", "template", t.fullName(), "warning", w)
	}
	for {
		before := s.registry()
		old, ok := before.get(t.namespace, t.name, t.version)
		if s.current.CompareAndSwap(before, before.with(t)) {
			s.replaced(old, t)
			return t, ok, nil
		}
	}
}

func refusedTemplate(problems inputProblems) error {
	f := fieldReader{}
	for _, p := range problems {
		f.complain(cmp.Or(p.Field, "template"), "%s", p.Message)
	}
	return f.failure("the template is refused")
}

// checkAddedCallable is what is wrong with a callable of a template that comes
// from outside: it must not have us run programs, or call anybody but this
// machine and the hosts allowed. What the configuration maps a callable to is
// the configuration's affair.
func (s *catalog) checkAddedCallable(callable string) error {
	if err := s.handlers.check(callable); err != nil {
		return err
	}
	prefix, _ := cutHandlerPrefix(callable)
	if prefix == "exec:" {
		return errors.New("programs are not for templates that are added at run time")
	}
	if _, mapped := s.handlers.mapped(callable); mapped || !strings.HasPrefix(prefix, "http") {
		return nil
	}
	to, err := parseHTTPAddress(callable)
	if err != nil {
		return err
	}
	host := hostName(to.url.Host)
	allowed := slices.ContainsFunc(s.cfg.Fixture.AllowTargets, func(h string) bool { return hostName(h) == host })
	if !isLoopbackName(host) && !allowed {
		return fmt.Errorf("%s is not loopback, and fixture.allow_targets does not name it", host)
	}
	return nil
}

// replaced begins to count for a template that was added, and forgets the one
// that it takes the place of, which may be nil.
func (s *catalog) replaced(old, t *template) {
	s.entries.Store(t, &templateEntry{since: s.clock.now()})
	if old != nil {
		s.entries.Delete(old)
	}
}

// namespaces is the namespaces that have templates, sorted.
func (s *catalog) namespaces() []string {
	names := []string{}
	for _, n := range s.registry().namespaces() {
		names = append(names, n.Name)
	}
	return names
}

// capabilities is what this process does with templates: it validates them, and
// where it has an engine it runs these kinds of handlers.
func (s *catalog) capabilities() []string {
	list := []string{"template_validation"}
	if s.cfg.Role == "worker" {
		return list
	}
	list = append(list, builtinHandler.String(), httpHandler.String())
	if s.cfg.Worker.AllowExec {
		list = append(list, execHandler.String())
	}
	return list
}

// resolvedTemplateView is a template with its environment's overrides applied.
type resolvedTemplateView struct {
	Template    json.RawMessage `json:"template"`
	Environment string          `json:"environment"`
	ResolvedAt  zonedTime       `json:"resolved_at"`
}

type handlerMetadataView struct {
	Namespace              string          `json:"namespace"`
	Name                   string          `json:"name"`
	Version                string          `json:"version"`
	HandlerClass           string          `json:"handler_class"`
	ConfigSchema           json.RawMessage `json:"config_schema"` // the input schema; nil goes out as null
	DefaultDependentSystem string          `json:"default_dependent_system"`
	RegisteredAt           zonedTime       `json:"registered_at"`
}

// handlerMetadata is what a template says of how it is handled as a whole.
func (t *template) handlerMetadata(registered instant) handlerMetadataView {
	members := templateMembers(t.shownJSON())
	return handlerMetadataView{
		Namespace: t.namespace, Name: t.name, Version: t.version,
		HandlerClass:           handlerClass(members.value("task_handler")),
		ConfigSchema:           members.value("input_schema"),
		DefaultDependentSystem: templateText(members.value("system_dependencies"), "primary"),
		RegisteredAt:           zonedTime(registered),
	}
}

// handlerClass is the name in a template's task_handler, which is a string or
// has a callable; without one it is the engine that handles the task.
func handlerClass(taskHandler []byte) string {
	if name, ok := templateString(taskHandler); ok {
		return name
	}
	if len(taskHandler) > 0 {
		if name := templateText(taskHandler, "callable"); name != "" {
			return name
		}
	}
	return workerType
}

// workerType tells clients of several kinds of workers which kind this is.
const workerType = "stepwell"

// templateVerdict is the answer of POST …/validate.
type templateVerdict struct {
	Valid                bool     `json:"valid"`
	Errors               []string `json:"errors"`
	Warnings             []string `json:"warnings"`
	RequiredCapabilities []string `json:"required_capabilities"` // kinds of handlers, sorted
	StepHandlers         []string `json:"step_handlers"`         // callables, each once, in the order of the steps
}

// newVerdict is the verdict on a template whose form is right, as far as its
// steps' handlers go.
func (s *catalog) newVerdict(t *template) *templateVerdict {
	v := &templateVerdict{}
	for i := range t.steps {
		step := &t.steps[i]
		if err := s.handlers.check(step.callable); err != nil {
			v.fault(i, err.Error())
		}
		if warning := s.handlers.warning(step.callable); warning != "" {
			v.fault(i, warning)
		}
		v.RequiredCapabilities = append(v.RequiredCapabilities, s.handlers.resolve(step.callable).kind.String())
		if shown := step.shownCallable(); !slices.Contains(v.StepHandlers, shown) {
			v.StepHandlers = append(v.StepHandlers, shown)
		}
	}
	slices.Sort(v.RequiredCapabilities)
	v.RequiredCapabilities = slices.Compact(v.RequiredCapabilities)
	return v
}

// fault notes what is wrong with the handler of a step.
func (v *templateVerdict) fault(step int, reason string) {
	path := templateItemPath("steps", step) + ".handler.callable"
	v.Errors = append(v.Errors, inputProblem{Field: path, Message: reason}.String())
}

// done makes the verdict fit for the wire.
func (v *templateVerdict) done() *templateVerdict {
	v.Valid = len(v.Errors) == 0
	for _, list := range []*[]string{&v.Errors, &v.Warnings, &v.RequiredCapabilities, &v.StepHandlers} {
		if *list == nil {
			*list = []string{}
		}
		for i, text := range *list {
			(*list)[i] = string(hideCredentials([]byte(text)))
		}
	}
	return v
}

// validateRegistered asks whether a registered template, whose form was checked
// when it was loaded, can be run here now.
func (s *catalog) validateRegistered(t *template) *templateVerdict {
	v := s.newVerdict(t)
	for i := range t.steps {
		if err := s.handlers.missingProgram(t.steps[i].callable); err != nil {
			v.fault(i, err.Error())
		}
	}
	return v.done()
}

// validateDefinition checks a template from outside under the rules for files.
// Programs are not looked up: whoever asks would learn which files there are.
func (s *catalog) validateDefinition(definition []byte, named templateName, version string) *templateVerdict {
	t, problems, warnings := parseTemplate("", definition, "json", s.cfg.Environment, s.handlers.check)
	v := &templateVerdict{}
	if t != nil {
		v = s.newVerdict(t)
		if t.names() != named || t.version != version && version != latestVersion {
			warnings = append(warnings, "the template is "+t.fullName()+", another one than the path names")
		}
	}
	for _, p := range problems {
		v.Errors = append(v.Errors, p.String())
	}
	v.Warnings = warnings
	return v.done()
}
