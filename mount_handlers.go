package main

// Templates on the mount point, where they are called handlers.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// handlerNamespaces is the answer of GET /handlers.
type handlerNamespaces struct {
	Namespaces      []handlerNamespace `json:"namespaces"`
	TotalNamespaces int                `json:"total_namespaces"`
	GeneratedAt     zonedTime          `json:"generated_at"`
}

// handlerNamespace is a namespace that has templates.
type handlerNamespace struct {
	Name         string            `json:"name"`
	Description  *string           `json:"description"` // always null: namespaces have no descriptions
	HandlerCount int               `json:"handler_count"`
	Handlers     []string          `json:"handlers"`
	Metadata     namespaceMetadata `json:"metadata"`
}

// namespaceMetadata summarizes the templates of a namespace.
type namespaceMetadata struct {
	Versions     []string `json:"versions"` // of any handler, ascending
	VersionCount int      `json:"version_count"`
	StepCount    int      `json:"step_count"` // of the latest versions
}

// handlerList is the answer of GET /handlers/{namespace}.
type handlerList struct {
	Namespace     string           `json:"namespace"`
	Handlers      []handlerSummary `json:"handlers"`
	TotalHandlers int              `json:"total_handlers"`
}

// handlerSummary is the latest version of a handler.
type handlerSummary struct {
	ID            uuid     `json:"id"`
	Name          string   `json:"name"`
	Namespace     string   `json:"namespace"`
	Version       string   `json:"version"`
	Versions      []string `json:"versions"` // ascending
	LatestVersion string   `json:"latest_version"`
	Description   *string  `json:"description"`
	StepCount     int      `json:"step_count"`
	StepNames     []string `json:"step_names"`
}

// handlerView is the answer of GET /handlers/{namespace}/{name}.
type handlerView struct {
	ID              uuid            `json:"id"`
	Name            string          `json:"name"`
	Namespace       string          `json:"namespace"`
	Version         string          `json:"version"`
	FullName        string          `json:"full_name"`
	Description     *string         `json:"description"`
	Available       bool            `json:"available"` // every step can be run, here or by an outside actor
	StepTemplates   jsonList        `json:"step_templates"`
	Configuration   json.RawMessage `json:"configuration"`
	DependencyGraph handlerGraph    `json:"dependency_graph"`
	GeneratedAt     zonedTime       `json:"generated_at"`
}

// handlerStep is one step of a handler.
type handlerStep struct {
	Name              string          `json:"name"`
	Description       *string         `json:"description"`
	HandlerClass      string          `json:"handler_class"`
	DependsOnStep     *string         `json:"depends_on_step"` // null unless it is the only one
	DependsOnSteps    []string        `json:"depends_on_steps"`
	Configuration     json.RawMessage `json:"configuration"`
	DefaultRetryable  bool            `json:"default_retryable"`
	DefaultRetryLimit int             `json:"default_retry_limit"`
	Skippable         bool            `json:"skippable"`
	CustomEvents      json.RawMessage `json:"custom_events"`
}

// handlerGraph is the dependency graph of a handler's steps, by name. An edge leads
// from a step to a step that depends on it.
type handlerGraph struct {
	Nodes          []string `json:"nodes"`
	Edges          jsonList `json:"edges"`
	ExecutionOrder []string `json:"execution_order"`
}

func (a *mountAPI) listNamespaces(w *responseWriter, r *http.Request) (any, error) {
	v := handlerNamespaces{Namespaces: []handlerNamespace{}, GeneratedAt: zonedTime(a.surface.svc.clock.now())}
	all := a.surface.svc.templates.registry()
	for _, n := range all.namespaces() {
		v.Namespaces = append(v.Namespaces, all.handlerNamespace(n.Name))
	}
	v.TotalNamespaces = len(v.Namespaces)
	// The tag is weak: generated_at differs each time.
	return withTag(w, r, weakTag(all.hash()), v), a.surface.holdTemplates(w)
}

func (r *registry) handlerNamespace(name string) handlerNamespace {
	v := handlerNamespace{Name: name}
	var all []*template
	for _, versions := range r.handlersOf(name) {
		v.Handlers = append(v.Handlers, versions[0].name)
		v.Metadata.StepCount += len(latestTemplate(versions).steps)
		all = append(all, versions...)
	}
	v.HandlerCount, v.Metadata.VersionCount = len(v.Handlers), len(all)
	slices.SortFunc(all, func(x, y *template) int {
		return cmp.Or(x.semver.compare(y.semver), cmp.Compare(x.version, y.version))
	})
	v.Metadata.Versions = slices.Compact(versionsOf(all))
	return v
}

func (r *registry) handlersOf(namespace string) (handlers [][]*template) {
	for _, t := range r.sorted {
		if versions := r.versions(t.namespace, t.name); t.namespace == namespace && versions[0] == t {
			handlers = append(handlers, versions)
		}
	}
	return handlers
}

func versionsOf(templates []*template) []string {
	versions := make([]string, len(templates))
	for i, t := range templates {
		versions[i] = t.version
	}
	return versions
}

func (a *mountAPI) listHandlers(w *responseWriter, r *http.Request) (any, error) {
	namespace := r.PathValue("namespace")
	all := a.surface.svc.templates.registry()
	handlers := all.handlersOf(namespace)
	if len(handlers) == 0 {
		return nil, unknownNamespace(namespace)
	}
	v := handlerList{Namespace: namespace, TotalHandlers: len(handlers)}
	for _, versions := range handlers {
		v.Handlers = append(v.Handlers, handlerSummaryOf(versions))
	}
	return withTag(w, r, weakTag(all.hash()), v), a.surface.holdTemplates(w)
}

func unknownNamespace(name string) error {
	return failf(namespaceNotFound, "no handlers are registered in namespace %.60q", name)
}

func handlerSummaryOf(versions []*template) handlerSummary {
	t := latestTemplate(versions)
	return handlerSummary{
		ID: t.handlerID(), Name: t.name, Namespace: t.namespace, Version: t.version,
		Versions: versionsOf(versions), LatestVersion: t.version, Description: redactDescription(t.description),
		StepCount: len(t.steps), StepNames: t.stepNames(indexesOf(t.steps)),
	}
}

// handlerID derives the id from the template's identity: every service gives the same one.
func (t *template) handlerID() uuid { return stableID("handler", t.namespace, t.name, t.version) }

func indexesOf[E any](s []E) []int {
	indexes := make([]int, len(s))
	for i := range s {
		indexes[i] = i
	}
	return indexes
}

func (a *mountAPI) getHandler(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	version := q.text("version")
	if err := q.done(); err != nil {
		return nil, err
	}
	namespace := r.PathValue("namespace")
	// This surface tells an unknown namespace from an unknown handler.
	if len(a.surface.svc.templates.registry().handlersOf(namespace)) == 0 {
		return nil, unknownNamespace(namespace)
	}
	t, err := a.surface.templateIn(w, r, version)
	if err != nil {
		return nil, err
	}
	v, err := a.surface.svc.handlerView(t)
	if err != nil {
		return nil, err
	}
	// Whether the handler is available depends on more than its template.
	return withTag(w, r, weakTag(fmt.Sprintf("%s-%t", t.hash, v.Available)), v), nil
}

func (s *service) handlerView(t *template) (handlerView, error) {
	events, err := t.stepEvents()
	return handlerView{
		ID: t.handlerID(), Name: t.name, Namespace: t.namespace, Version: t.version, FullName: t.fullName(),
		Description: redactDescription(t.description), Available: s.templates.validateRegistered(t).Valid,
		StepTemplates: jsonListOf(len(t.steps), func(i int) handlerStep { return t.handlerStep(i, events[i]) }),
		Configuration: t.shownJSON, DependencyGraph: t.handlerGraph(), GeneratedAt: zonedTime(s.clock.now()),
	}, err
}

func (t *template) handlerStep(i int, events json.RawMessage) handlerStep {
	s := &t.steps[i]
	v := handlerStep{
		Name: s.name, Description: redactDescription(s.description), HandlerClass: s.shown,
		DependsOnSteps: t.stepNames(s.parents), Configuration: redact(s.config),
		DefaultRetryable: s.retry.Retryable, DefaultRetryLimit: s.retry.MaxAttempts, CustomEvents: events,
	}
	if len(v.DependsOnSteps) == 1 {
		v.DependsOnStep = &v.DependsOnSteps[0]
	}
	return v
}

// stepEvents returns the list publishes_events of each step.
func (t *template) stepEvents() ([]json.RawMessage, error) {
	var definition struct {
		Steps []struct {
			Events json.RawMessage `json:"publishes_events"`
		} `json:"steps"`
	}
	events := make([]json.RawMessage, len(t.steps))
	err := json.Unmarshal(t.shownJSON, &definition)
	for i := range events {
		events[i] = json.RawMessage("[]")
		if i < len(definition.Steps) && jsonKind(definition.Steps[i].Events) == '[' {
			events[i] = definition.Steps[i].Events
		}
	}
	return events, err
}

func (t *template) handlerGraph() handlerGraph {
	edges := 0
	for i := range t.steps {
		edges += len(t.steps[i].parents)
	}
	return handlerGraph{
		Nodes: t.stepNames(indexesOf(t.steps)), ExecutionOrder: t.stepNames(t.order),
		Edges: jsonList{edges, t.edgeWriter()},
	}
}

// edgeWriter returns a function that writes one edge after the other.
func (t *template) edgeWriter() func(o *jsonWriter, _ int) {
	step, parent := 0, -1
	return func(o *jsonWriter, _ int) {
		// A list is written once, from its first element to its last, so the place of the previous edge leads to the
		// next one.
		for parent++; parent == len(t.steps[step].parents); parent = 0 {
			step++
		}
		o.b = append(o.b, '{')
		o.text("from", t.steps[t.steps[step].parents[parent]].name)
		o.text("to", t.steps[step].name)
		o.b = append(o.b, '}')
	}
}
