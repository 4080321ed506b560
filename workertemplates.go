package main

// The worker role's templates: the list, one template resolved, and whether a
// template can be run by this worker.

import (
	"encoding/json"
	"net/http"
	"slices"
)

// workerTemplateList is the answer of GET /v1/templates.
type workerTemplateList struct {
	SupportedNamespaces []string           `json:"supported_namespaces"`
	TemplateCount       int                `json:"template_count"` // of all templates, whatever the filter
	CacheStats          *templateCacheView `json:"cache_stats"`
	WorkerCapabilities  []string           `json:"worker_capabilities"`
	Templates           []templateSummary  `json:"templates"`
}

func (a *workerAPI) listTemplates(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	withStats := q.flag("include_cache_stats")
	if q.err != nil {
		return q.err
	}
	list := a.svc.registry().listView(q.text("namespace"))
	v := workerTemplateList{
		SupportedNamespaces: a.svc.supportedNamespaces(), TemplateCount: list.TotalCount,
		WorkerCapabilities: a.svc.capabilities(), Templates: list.Templates,
	}
	if withStats {
		stats := a.svc.templateCache()
		v.CacheStats = &stats
	}
	return writeJSON(w, http.StatusOK, v)
}

// capabilities is what this process does with templates: it validates them, and
// where it has an engine it runs these kinds of handlers.
func (s *service) capabilities() []string {
	list := []string{"template_validation"}
	if s.engine == nil {
		return list
	}
	list = append(list, builtinHandler.String(), httpHandler.String())
	if s.cfg.Worker.AllowExec {
		list = append(list, execHandler.String())
	}
	return list
}

// workerTemplateDetail is the answer of GET /v1/templates/{namespace}/{name}/{version}.
type workerTemplateDetail struct {
	Template        resolvedTemplateView `json:"template"`
	HandlerMetadata handlerMetadataView  `json:"handler_metadata"`
	Cached          bool                 `json:"cached"`
	CacheAgeSeconds int64                `json:"cache_age_seconds"`
	AccessCount     uint64               `json:"access_count"`
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

func (a *workerAPI) getTemplate(w http.ResponseWriter, r *http.Request) error {
	t, err := a.templateIn(r)
	if err != nil {
		return err
	}
	e := a.svc.uses.entry(t, a.svc.clock.now)
	return writeJSON(w, http.StatusOK, workerTemplateDetail{
		Template:        resolvedTemplateView{t.shownJSON(), a.svc.cfg.Environment, zonedTime(e.since)},
		HandlerMetadata: t.handlerMetadata(e.since),
		Cached:          true,
		CacheAgeSeconds: e.ageSeconds(a.svc.clock.now()),
		AccessCount:     e.count.Load(),
	})
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

// templateVerdict is the answer of POST …/validate.
type templateVerdict struct {
	Valid                bool     `json:"valid"`
	Errors               []string `json:"errors"`
	Warnings             []string `json:"warnings"`
	RequiredCapabilities []string `json:"required_capabilities"` // kinds of handlers, sorted
	StepHandlers         []string `json:"step_handlers"`         // callables, each once, in the order of the steps
}

// validateTemplate checks the registered template, or the one that the body is.
func (a *workerAPI) validateTemplate(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, true)
	if err != nil {
		return err
	}
	if len(body) > 0 && body[0] != '{' && !templateNull(body) {
		return failf(badRequest, "the body must be a template, an object, or be left out")
	}
	if len(templateMembers(body)) > 0 {
		named := templateName{r.PathValue("namespace"), r.PathValue("name")}
		return writeJSON(w, http.StatusOK, a.svc.validateDefinition(body, named, r.PathValue("version")))
	}
	t, err := a.templateIn(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a.svc.validateRegistered(t))
}

// newVerdict is the verdict on a template whose form is right, as far as its
// steps' handlers go.
func (s *service) newVerdict(t *template) *templateVerdict {
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
	v.Errors = append(v.Errors, templateProblem{path: path, reason: reason}.String())
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
func (s *service) validateRegistered(t *template) *templateVerdict {
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
func (s *service) validateDefinition(definition []byte, named templateName, version string) *templateVerdict {
	t, problems, warnings := parseCheckedTemplate("", definition, "json", s.cfg.Environment, s.handlers.check)
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
