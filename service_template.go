package main

// Templates at run time: looking them up and counting the look-ups, showing,
// validating, and, in fixture mode, adding them.

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

// catalog holds the templates that new tasks are made from, and counts how often each is looked up. All templates are
// in memory: the registry is the cache that existing clients ask about, and a miss is a look-up of an unknown template.
type catalog struct {
	cfg      *Config
	log      *slog.Logger
	clock    clock
	handlers *handlerSet

	files        *atomic.Pointer[registry] // the templates of files, which watching may replace
	current      atomic.Pointer[catalogView]
	mu           sync.Mutex  // held while current changes
	added        []*template // at run time; guarded by mu
	hits, misses atomic.Uint64
}

// templateEntry is the use of one template.
type templateEntry struct {
	since instant // when the service got the template
	count atomic.Uint64
}

// catalogView is the templates of files at one time, with those added at run time, and the use of each.
type catalogView struct {
	files, all *registry
	entries    map[*template]*templateEntry
}

// registry returns the templates that new tasks are made from.
func (c *catalog) registry() *registry { return c.view().all }

func (c *catalog) view() *catalogView {
	if v := c.current.Load(); v.files == c.files.Load() { // not replaced since, as nearly always
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.followLocked()
}

// followLocked takes the templates of files as they are now. Those added at run time stay.
func (c *catalog) followLocked() *catalogView {
	files, now := c.files.Load(), c.clock.now()
	v := &catalogView{files, files, map[*template]*templateEntry{}}
	for _, t := range c.added {
		v.all = v.all.with(t)
	}
	before := cmp.Or(c.current.Load(), &catalogView{})
	for _, t := range v.all.sorted {
		v.entries[t] = cmp.Or(before.entries[t], &templateEntry{since: now})
	}
	c.current.Store(v)
	return v
}

// entry returns the use of a template, which a reload may just have replaced.
func (c *catalog) entry(t *template) *templateEntry {
	if e := c.view().entries[t]; e != nil {
		return e
	}
	return &templateEntry{since: c.clock.now()}
}

// find looks up a registered template. Version "" and latest mean the latest one.
func (c *catalog) find(namespace, name, version string) (*template, error) {
	t, ok := c.registry().get(namespace, name, version)
	if !ok {
		c.misses.Add(1)
		return nil, c.unknown(namespace, name, version)
	}
	c.hits.Add(1)
	c.entry(t).count.Add(1)
	return t, nil
}

func (c *catalog) unknown(namespace, name, version string) error {
	full := namespace + "/" + name
	if version != "" {
		full += "@" + version
	}
	f := failf(templateNotFound, "no template %s is registered", full)
	f.message += meant(c.registry().nearest(namespace, name, version))
	return f
}

// templateCacheView holds the figures about look-ups.
type templateCacheView struct {
	TotalCached           int      `json:"total_cached"`
	CacheHits             uint64   `json:"cache_hits"`
	CacheMisses           uint64   `json:"cache_misses"`
	CacheEvictions        uint64   `json:"cache_evictions"` // always 0: nothing is evicted
	OldestEntryAgeSeconds int64    `json:"oldest_entry_age_seconds"`
	AverageAccessCount    float64  `json:"average_access_count"`
	SupportedNamespaces   []string `json:"supported_namespaces"`
}

// usage returns the figures of the templates that are registered now.
func (c *catalog) usage() templateCacheView {
	all, now := c.registry().sorted, c.clock.now()
	v := templateCacheView{
		TotalCached: len(all), CacheHits: c.hits.Load(), CacheMisses: c.misses.Load(),
		SupportedNamespaces: c.namespaces(),
	}
	var accesses uint64
	for _, t := range all {
		e := c.entry(t)
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

// Views of templates: the list and the detail, both without the credentials in URLs.

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
	Name          string          `json:"name"`
	Namespace     string          `json:"namespace"`
	Version       string          `json:"version"`
	Description   *string         `json:"description"`
	Configuration json.RawMessage `json:"configuration"`
	Steps         jsonList        `json:"steps"`
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

// namespaces returns the namespaces that have templates, sorted, with counts.
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

// listView returns the list of all templates, or of those in a namespace. It lists all namespaces in either case.
func (r *registry) listView(namespace string) templateList {
	list := templateList{Namespaces: r.namespaces(), Templates: []templateSummary{}, TotalCount: len(r.sorted)}
	for _, t := range r.sorted {
		if namespace == "" || t.namespace == namespace {
			list.Templates = append(list.Templates,
				templateSummary{t.name, t.namespace, t.version, redactDescription(t.description), len(t.steps)})
		}
	}
	return list
}

func (t *template) detailView() templateDetail {
	return templateDetail{
		Name:          t.name,
		Namespace:     t.namespace,
		Version:       t.version,
		Description:   redactDescription(t.description),
		Configuration: t.shownJSON,
		Steps:         jsonListOf(len(t.steps), t.stepDetail),
	}
}

func (t *template) stepDetail(i int) templateStepDetail {
	s := &t.steps[i]
	return templateStepDetail{
		Name:               s.name,
		Description:        redactDescription(s.description),
		DefaultRetryable:   s.retry.Retryable,
		DefaultMaxAttempts: s.retry.MaxAttempts,
		ResultSchema:       redact(s.resultSchema),
		Dependencies:       t.stepNames(s.parents),
		Handler:            redact(s.handler),
		Type:               s.kind,
	}
}

// Adding templates: in fixture mode, tests add templates to the service they use.
// These last as long as that service; the start-up templates do not change.

// add registers a definition that passed checkJSON. It replaces a template of the
// same identity. The error names every problem.
func (c *catalog) add(b *budget, definition []byte) (t *template, replaced bool, err error) {
	rules := c.handlers.templateRules(&c.cfg.Templates, schemasKept)
	rules.callable = func(callable string) error { return checkAddedCallable(c.cfg, c.handlers, callable) }
	rules.budget = b
	t, problems, warnings := parseTemplate("", definition, "json", c.cfg.Environment, rules)
	if b.ended() {
		return nil, false, b.err
	}
	if t == nil {
		f := fieldReader{}
		for _, p := range problems {
			f.complain(cmp.Or(p.Field, "template"), "%s", p.Message)
		}
		return nil, false, f.failure("the template is refused")
	}
	for _, w := range warnings {
		c.log.Warn("a template was added with a warning", "template", t.fullName(), "warning", w)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, replaced = c.current.Load().all.get(t.namespace, t.name, t.version)
	c.added = slices.DeleteFunc(c.added, func(o *template) bool { return compareTemplates(o, t) == 0 })
	c.added = append(c.added, t)
	c.followLocked()
	return t, replaced, nil
}

// checkAddedTemplate is the rule for a template that a state adds.
func checkAddedTemplate(cfg *Config, h *handlerSet, t *template) error {
	for i := range t.steps {
		if err := checkAddedCallable(cfg, h, t.steps[i].callable); err != nil {
			return fmt.Errorf("template %s, %s.handler.callable: %w", t.fullName(), templateItemPath("steps", i), err)
		}
	}
	b := newLocalBudget()
	faults := t.schemaFaults(b)
	if b.err != nil {
		return fmt.Errorf("template %s: %w", t.fullName(), b.err)
	}
	if cfg.Templates.EnforceInputSchema != "off" && faults != nil {
		return fmt.Errorf("template %s, %v", t.fullName(), faults[0])
	}
	return nil
}

// checkAddedCallable returns an error if a template added at run time may not use the
// callable: it must not run programs, nor call hosts other than this machine and the
// allowed ones. A callable that the configuration maps may be anything.
func checkAddedCallable(cfg *Config, h *handlerSet, callable string) error {
	if err := h.check(callable); err != nil {
		return err
	}
	prefix, _ := cutHandlerPrefix(callable)
	if prefix == "exec:" {
		return errors.New("templates added at run time cannot run programs")
	}
	if _, mapped := h.mapped.find(callable); mapped || !strings.HasPrefix(prefix, "http") {
		return nil
	}
	to, err := parseHTTPAddress(callable)
	if err != nil {
		return err
	}
	host := hostName(to.url.Host)
	allowed := slices.ContainsFunc(cfg.Fixture.AllowTargets, func(s string) bool { return hostName(s) == host })
	if !isLoopbackName(host) && !allowed {
		return fmt.Errorf("%s is not loopback, and fixture.allow_targets does not name it", host)
	}
	return nil
}

// namespaces returns the names of the namespaces that have templates, sorted.
func (c *catalog) namespaces() []string {
	names := []string{}
	for _, n := range c.registry().namespaces() {
		names = append(names, n.Name)
	}
	return names
}

// capabilities returns what this process does with templates: it validates them
// and, if it has an engine, runs these kinds of handlers.
func (c *catalog) capabilities() []string {
	list := []string{"template_validation"}
	if c.cfg.Role == "worker" {
		return list
	}
	list = append(list, builtinHandler.String(), httpHandler.String())
	if c.cfg.Worker.AllowExec {
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

// handlerMetadata returns what a template says about its task handler.
func (t *template) handlerMetadata(registered instant) handlerMetadataView {
	members := templateMembers(t.shownJSON)
	return handlerMetadataView{
		Namespace: t.namespace, Name: t.name, Version: t.version,
		HandlerClass:           handlerClass(members.value("task_handler")),
		ConfigSchema:           members.value("input_schema"),
		DefaultDependentSystem: templateText(members.value("system_dependencies"), "primary"),
		RegisteredAt:           zonedTime(registered),
	}
}

// handlerClass returns the name in a template's task_handler, which is a string or
// has a callable. Without one, the engine handles the task.
func handlerClass(taskHandler []byte) string {
	if name, ok := jsonString(taskHandler); ok {
		return name
	}
	return cmp.Or(templateText(taskHandler, "callable"), workerType)
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

// newVerdict returns the verdict on the handlers of a template whose form is valid.
func (c *catalog) newVerdict(t *template) *templateVerdict {
	v, named := &templateVerdict{}, map[string]bool{}
	for i := range t.steps {
		step := &t.steps[i]
		if err := c.handlers.check(step.callable); err != nil {
			v.fault(i, err.Error())
		}
		if warning := c.handlers.warning(step.callable); warning != "" {
			v.fault(i, warning)
		}
		v.RequiredCapabilities = append(v.RequiredCapabilities, c.handlers.resolve(step.callable).kind.String())
		if shown := step.shown; !named[shown] {
			named[shown] = true
			v.StepHandlers = append(v.StepHandlers, shown)
		}
	}
	slices.Sort(v.RequiredCapabilities)
	v.RequiredCapabilities = slices.Compact(v.RequiredCapabilities)
	return v
}

// fault adds a problem with the handler of a step.
func (v *templateVerdict) fault(step int, reason string) {
	path := templateItemPath("steps", step) + ".handler.callable"
	v.Errors = append(v.Errors, inputProblem{Field: path, Message: reason}.String())
}

// done completes the verdict: no list is nil, and no text has credentials.
func (v *templateVerdict) done() *templateVerdict {
	v.Valid = len(v.Errors) == 0
	for _, list := range []*[]string{&v.Errors, &v.Warnings, &v.RequiredCapabilities, &v.StepHandlers} {
		if *list == nil {
			*list = []string{}
		}
		for i, text := range *list {
			(*list)[i] = string(redact([]byte(text)))
		}
	}
	return v
}

// validateRegistered checks whether a registered template can run here now. Its form was checked when it was loaded.
func (c *catalog) validateRegistered(t *template) *templateVerdict {
	v := c.newVerdict(t)
	for i := range t.steps {
		if err := c.handlers.missingProgram(t.steps[i].callable); err != nil {
			v.fault(i, err.Error())
		}
	}
	return v.done()
}

// validateDefinition checks a definition by the rules for files. It does not look
// programs up: the caller would learn which files exist.
func (c *catalog) validateDefinition(
	b *budget, definition []byte, named templateName, version string,
) (*templateVerdict, error) {
	rules := c.handlers.templateRules(&c.cfg.Templates, schemasTold)
	rules.budget = b
	t, problems, warnings := parseTemplate("", definition, "json", c.cfg.Environment, rules)
	if b.ended() {
		return nil, b.err
	}
	v := &templateVerdict{}
	if t != nil {
		v = c.newVerdict(t)
		if t.names() != named || t.version != version && version != latestVersion {
			warnings = append(warnings, "the template is "+t.fullName()+", not the one that the path names")
		}
	}
	for _, p := range problems {
		v.Errors = append(v.Errors, p.String())
	}
	v.Warnings = warnings
	return v.done(), nil
}
