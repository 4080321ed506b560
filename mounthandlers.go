package main

// Templates as the mount-point API shows them: handlers of tasks, by namespace
// and name.

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
)

// handlerNamespaces is the answer of GET /handlers.
type handlerNamespaces struct {
	Namespaces      []handlerNamespace `json:"namespaces"`
	TotalNamespaces int                `json:"total_namespaces"`
	GeneratedAt     zonedTime          `json:"generated_at"`
}

// handlerNamespace is one namespace that has templates.
type handlerNamespace struct {
	Name         string            `json:"name"`
	Description  *string           `json:"description"` // always null: a namespace is not described anywhere
	HandlerCount int               `json:"handler_count"`
	Handlers     []string          `json:"handlers"`
	Metadata     namespaceMetadata `json:"metadata"`
}

// namespaceMetadata sums up the templates of a namespace.
type namespaceMetadata struct {
	Versions     []string `json:"versions"` // that any handler has, ascending
	VersionCount int      `json:"version_count"`
	StepCount    int      `json:"step_count"` // of the latest versions
}

// handlerList is the answer of GET /handlers/{namespace}.
type handlerList struct {
	Namespace     string           `json:"namespace"`
	Handlers      []handlerSummary `json:"handlers"`
	TotalHandlers int              `json:"total_handlers"`
}

// handlerSummary is one handler, in its latest version.
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
	Available       bool            `json:"available"` // each step can be run, here or by an outside actor
	StepTemplates   []handlerStep   `json:"step_templates"`
	Configuration   json.RawMessage `json:"configuration"`
	DependencyGraph handlerGraph    `json:"dependency_graph"`
	GeneratedAt     zonedTime       `json:"generated_at"`
}

// handlerStep is one step of a handler.
type handlerStep struct {
	Name              string          `json:"name"`
	Description       *string         `json:"description"`
	HandlerClass      string          `json:"handler_class"`
	DependsOnStep     *string         `json:"depends_on_step"` // the only one, or null
	DependsOnSteps    []string        `json:"depends_on_steps"`
	Configuration     json.RawMessage `json:"configuration"`
	DefaultRetryable  bool            `json:"default_retryable"`
	DefaultRetryLimit int             `json:"default_retry_limit"`
	Skippable         bool            `json:"skippable"`
	CustomEvents      json.RawMessage `json:"custom_events"`
}

// handlerGraph is how a handler's steps depend on each other, by name.
type handlerGraph struct {
	Nodes          []string      `json:"nodes"`
	Edges          []handlerEdge `json:"edges"`
	ExecutionOrder []string      `json:"execution_order"`
}

// handlerEdge leads from a step to one that depends on it.
type handlerEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (a *mountAPI) listNamespaces(w http.ResponseWriter, _ *http.Request) error {
	v := handlerNamespaces{Namespaces: []handlerNamespace{}, GeneratedAt: zonedTime(a.svc.clock.now())}
	r := a.svc.registry()
	for _, n := range r.namespaces() {
		v.Namespaces = append(v.Namespaces, r.handlerNamespace(n.Name))
	}
	v.TotalNamespaces = len(v.Namespaces)
	return writeJSON(w, http.StatusOK, v)
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

// handlersOf are the versions of each handler of a namespace.
func (r *registry) handlersOf(namespace string) (handlers [][]*template) {
	for _, t := range r.all() {
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

func (a *mountAPI) listHandlers(w http.ResponseWriter, r *http.Request) error {
	namespace := r.PathValue("namespace")
	all := a.svc.registry().handlersOf(namespace)
	if len(all) == 0 {
		return unknownNamespace(namespace)
	}
	v := handlerList{Namespace: namespace, TotalHandlers: len(all)}
	for _, versions := range all {
		v.Handlers = append(v.Handlers, handlerSummaryOf(versions))
	}
	return writeJSON(w, http.StatusOK, v)
}

func unknownNamespace(name string) error {
	return failf(namespaceNotFound, "no handler is registered in a namespace %.60q", name)
}

func handlerSummaryOf(versions []*template) handlerSummary {
	t := latestTemplate(versions)
	return handlerSummary{
		ID: t.handlerID(), Name: t.name, Namespace: t.namespace, Version: t.version,
		Versions: versionsOf(versions), LatestVersion: t.version, Description: withoutCredentials(t.description),
		StepCount: len(t.steps), StepNames: t.stepNames(indexesOf(t.steps)),
	}
}

// handlerID is the same for the same identity, whatever service is asked.
func (t *template) handlerID() uuid { return stableID("handler", t.namespace, t.name, t.version) }

// stepNames are the names of some steps.
func (t *template) stepNames(steps []int) []string {
	names := make([]string, len(steps))
	for n, i := range steps {
		names[n] = t.steps[i].name
	}
	return names
}

func indexesOf[E any](s []E) []int {
	indexes := make([]int, len(s))
	for i := range s {
		indexes[i] = i
	}
	return indexes
}

func (a *mountAPI) getHandler(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	if q.err != nil {
		return q.err
	}
	namespace := r.PathValue("namespace")
	if len(a.svc.registry().handlersOf(namespace)) == 0 {
		return unknownNamespace(namespace)
	}
	t, err := a.svc.template(namespace, r.PathValue("name"), q.text("version"))
	if err != nil {
		return err
	}
	v, err := a.svc.handlerView(t)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (s *service) handlerView(t *template) (handlerView, error) {
	v := handlerView{
		ID: t.handlerID(), Name: t.name, Namespace: t.namespace, Version: t.version, FullName: t.fullName(),
		Description: withoutCredentials(t.description), Available: s.validateRegistered(t).Valid, StepTemplates: []handlerStep{},
		Configuration: t.shownJSON(), DependencyGraph: t.handlerGraph(), GeneratedAt: zonedTime(s.clock.now()),
	}
	events, err := t.stepEvents()
	for i := range t.steps {
		v.StepTemplates = append(v.StepTemplates, t.handlerStep(i, events[i]))
	}
	return v, err
}

func (t *template) handlerStep(i int, events json.RawMessage) handlerStep {
	s := &t.steps[i]
	v := handlerStep{
		Name: s.name, Description: withoutCredentials(s.description), HandlerClass: s.shownCallable(),
		DependsOnSteps: t.stepNames(s.parents), Configuration: hideCredentials(s.config),
		DefaultRetryable: s.retry.retryable, DefaultRetryLimit: s.retry.maxAttempts, CustomEvents: events,
	}
	if len(v.DependsOnSteps) == 1 {
		v.DependsOnStep = &v.DependsOnSteps[0]
	}
	return v
}

// stepEvents is what each step's publishes_events says, a list.
func (t *template) stepEvents() ([]json.RawMessage, error) {
	var definition struct {
		Steps []struct {
			Events json.RawMessage `json:"publishes_events"`
		} `json:"steps"`
	}
	events := make([]json.RawMessage, len(t.steps))
	err := json.Unmarshal(t.shownJSON(), &definition)
	for i := range events {
		events[i] = json.RawMessage("[]")
		if i < len(definition.Steps) && jsonKind(definition.Steps[i].Events) == '[' {
			events[i] = definition.Steps[i].Events
		}
	}
	return events, err
}

func (t *template) handlerGraph() handlerGraph {
	g := handlerGraph{
		Nodes: t.stepNames(indexesOf(t.steps)), Edges: []handlerEdge{}, ExecutionOrder: t.stepNames(t.order),
	}
	for i := range t.steps {
		for _, p := range t.steps[i].parents {
			g.Edges = append(g.Edges, handlerEdge{t.steps[p].name, t.steps[i].name})
		}
	}
	return g
}
