package main

// Creating a task: the payload and the rules for its fields, the template it
// names, its identity, repeated requests, and waiting for a task. Then the templates.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// creator creates tasks and waits for them.
type creator struct {
	cfg       *Config
	log       *slog.Logger
	ids       *idSource
	store     *store
	engine    *engine
	templates *catalog
	draining  *atomic.Bool
}

// taskRequest is the payload of a creation. Each field has been checked.
type taskRequest struct {
	name, namespace, version string
	context                  []byte // JSON object, compact; nil when not given
	initiator, source        string
	reason                   string
	tags                     []string
	priority                 int
	correlation, parent      uuid
	key                      string
	requested                instant
	options                  []byte
	traceparent, tracestate  string
	subject                  string        // the authenticated caller, or ""
	misfits                  inputProblems // of the context, if they are only warned of
}

// parseTaskRequest reads a payload, an object that passed checkJSON. The error
// names every invalid field.
func parseTaskRequest(body []byte) (*taskRequest, error) {
	q := &taskRequest{namespace: "default"}
	f := fieldReader{}
	eachMember(body, func(key string, raw []byte) bool {
		if jsonKind(raw) != 'n' {
			q.field(&f, key, raw)
		}
		return true
	})
	if q.name == "" && !f.complainedOf("name") {
		f.complain("name", "is required")
	}
	return q, f.failure("the task cannot be created")
}

func (q *taskRequest) field(f *fieldReader, key string, raw []byte) {
	switch key {
	case "name":
		q.name = f.text(key, raw, 1, maxNameLength)
	case "namespace":
		q.namespace = f.text(key, raw, 1, maxNameLength)
	case "version":
		q.version = f.text(key, raw, 1, maxNameLength)
	case "context":
		q.context = f.object(key, raw)
	case "initiator":
		q.initiator = f.text(key, raw, 1, maxNameLength)
	case "source_system":
		q.source = f.text(key, raw, 1, maxNameLength)
	case "reason":
		q.reason = f.text(key, raw, 1, maxReasonLength)
	case "tags":
		q.tags = f.texts(key, raw)
	case "priority":
		q.priority = f.clamped(key, raw, priorityLimit)
	case "correlation_id":
		q.correlation = f.id(key, raw)
	case "parent_correlation_id":
		q.parent = f.id(key, raw)
	case "idempotency_key":
		q.key = f.text(key, raw, 1, maxNameLength)
	case "requested_at":
		q.requested = f.instant(key, raw)
	case "options":
		q.options = f.object(key, raw)
	}
}

// templateFor returns the template that a payload names.
func (s *creator) templateFor(q *taskRequest) (*template, error) {
	tpl, err := s.templates.find(q.namespace, q.name, q.version)
	if err != nil {
		return nil, err
	}
	if q.key == "" && tpl.strategy == strategyCallerProvided {
		return nil, failf(badRequest, "template %s takes its identity from the caller: idempotency_key is required",
			tpl.fullName())
	}
	return tpl, nil
}

// creation returns the part of the payload that the task keeps.
func (s *creator) creation(q *taskRequest, tpl *template) (*creation, error) {
	by := &creation{
		template: tpl.hash, context: tpl.defaultContext,
		initiator: q.initiatorOr(defaultInitiator), source: cmp.Or(q.source, defaultSource),
		reason: cmp.Or(q.reason, defaultReason), tags: q.tags, priority: q.priority,
		correlation: q.correlation, parentCorrelation: q.parent, requested: q.requested,
		options: q.options, key: q.key, traceparent: q.traceparent, tracestate: q.tracestate,
	}
	if q.context != nil {
		by.context = mergeObjects(nil, tpl.defaultContext, q.context)
	}
	if limit := s.cfg.Tasks.MaxContextBytes; int64(len(by.context)) > limit {
		return nil, failf(tooLarge, "the task's context has %d bytes, more than the %d allowed",
			len(by.context), limit)
	}
	by.identity = identityOf(tpl, q.key, by.context)
	return by, s.checkContext(q, tpl, by.context)
}

// checkContext checks a context against the template's input schema.
func (s *creator) checkContext(q *taskRequest, tpl *template, context []byte) error {
	found := s.engine.schemas.misfits(tpl.input, context)
	if len(found) == 0 {
		return nil
	}
	s.engine.schemas.contexts.Add(1)
	f := fieldReader{}
	for _, m := range found {
		f.complain("/context"+m.at, "%s", m.why())
	}
	if s.engine.schemas.rejects() {
		return f.failure("the task cannot be created")
	}
	s.log.Warn("a context does not fit the template's input_schema", "template", tpl.fullName(), "problems", found.wants())
	q.misfits = f.problems
	return nil
}

// initiatorOr returns the initiator: the one in the payload, else the
// authenticated caller, cut to the maximum length, else the standard one.
func (q *taskRequest) initiatorOr(standard string) string {
	subject := q.subject
	if utf8.RuneCountInString(subject) > maxNameLength {
		subject = string([]rune(subject)[:maxNameLength])
	}
	return cmp.Or(q.initiator, cmp.Or(subject, standard))
}

// identityOf returns what makes two tasks the same: the caller's key within
// namespace and name, or else what the template's strategy says. It is zero if
// the task is always unique.
func identityOf(tpl *template, key string, context []byte) (k identityKey) {
	var parts [][]byte
	switch {
	case key != "":
		parts = [][]byte{[]byte("key"), []byte(tpl.namespace), []byte(tpl.name), []byte(key)}
	case tpl.strategy == strategyStrict:
		parts = [][]byte{[]byte("strict"), []byte(tpl.namespace), []byte(tpl.name), []byte(tpl.version),
			canonicalJSON(nil, context)}
	default:
		return k
	}
	return hashOf(parts...)
}

// admit returns an error if the task exists already or the queue is full.
func (s *creator) admit(c *change, by *creation, mayRead bool) error {
	if id, ok := c.duplicate(by.identity); ok {
		return duplicateOf(id, mayRead)
	}
	if err := s.store.behind(); err != nil {
		return err
	}
	if err := c.full(); err != nil {
		return err
	}
	if n := s.engine.queuedLocked(); n >= s.cfg.Engine.MaxQueued {
		return &failure{kind: backpressure, retryAfter: outcomeRetryEvery,
			message: stepsWaiting(n) + " to run already"}
	}
	return nil
}

func duplicateOf(id uuid, mayRead bool) error {
	f := failf(conflict, "a task with this identity already exists")
	if mayRead {
		f.existing = id
		f.message += ": " + f.existing.String()
	}
	return f
}

// Submissions: creations whose callers may also wait for the task's end, and may
// repeat them under an Idempotency-Key.

// submission is a creation as its caller asks for it.
type submission struct {
	*taskRequest
	mayRead bool          // the caller may learn the id of a task that it duplicates
	request requestMark   // of its Idempotency-Key; zero without one
	waits   bool          // answer at the task's end
	limit   time.Duration // or after this much real time
}

// submitted is the result of a submission.
type submitted struct {
	task     *task
	misfits  inputProblems // of the context against the input schema
	replayed bool          // an earlier request with the same Idempotency-Key created it
	end      waitEnd       // how the wait ended
}

// submit creates a task, or finds the one that an earlier request with the same
// Idempotency-Key created, and waits for its end if asked to. The task it returns
// is durable.
func (s *creator) submit(ctx context.Context, b *submission) (*submitted, error) {
	if s.draining.Load() {
		return nil, failf(unavailable, "the service is shutting down: new tasks are refused")
	}
	earlier, flight, err := s.store.beginRequest(b.request)
	if err != nil {
		return nil, s.store.refuse(ctx, err)
	}
	if !earlier.isZero() {
		return s.replay(ctx, earlier, b)
	}
	defer s.store.endRequest(flight)
	return s.submitNew(ctx, b)
}

// replay answers a repeated submission.
func (s *creator) replay(ctx context.Context, id uuid, b *submission) (*submitted, error) {
	wants := terminalStates
	if !b.waits {
		wants = anyState
	}
	t, end, err := s.await(ctx, id, wants, b.limit)
	if kindOf(err) == taskMissing { // it was dropped in between
		return nil, s.store.refuse(ctx, droppedTask(id))
	}
	if err != nil {
		return nil, err
	}
	return &submitted{task: t, replayed: true, end: end}, nil
}

// submitNew creates the task and runs its first steps.
func (s *creator) submitNew(ctx context.Context, b *submission) (*submitted, error) {
	tpl, err := s.templateFor(b.taskRequest)
	if err != nil {
		return nil, err
	}
	by, err := s.creation(b.taskRequest, tpl)
	if err != nil {
		return nil, err
	}
	by.request = b.request
	var t *task
	var n *waiter
	seq, err := s.engine.change(ctx, func(c *change) (err error) {
		if err := s.admit(c, by, b.mayRead); err != nil {
			return err
		}
		id := s.ids.block(tpl.ids(), uuid{}, tpl.fullName()) // a refused creation leaves no gap
		t, err = c.create(&record{kind: recCreated, task: id, created: by}, tpl)
		if err == nil && b.waits {
			n = c.awaitEnd(t)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.engine.pump(inlineBudget)
	done, err := s.answerNew(ctx, t, seq, n, b.limit)
	if err == nil {
		done.misfits = b.misfits
	}
	return done, err
}

// answerNew returns the new task once it is durable and, if n is not nil, once it
// has ended or the wait has.
func (s *creator) answerNew(
	ctx context.Context, t *task, seq uint64, n *waiter, limit time.Duration,
) (*submitted, error) {
	done, err := &submitted{}, error(nil)
	if n == nil {
		done.task, err = s.store.viewAfter(ctx, t, seq)
	} else if err = s.store.wait(ctx, seq); err != nil {
		s.store.stopWaiting(n)
	} else {
		done.task, done.end, err = s.waitOut(ctx, n, limit)
	}
	if err != nil {
		return nil, err
	}
	return done, nil
}

// Waiting: requests that are answered when a task reaches a state. A waiter is an
// entry in a map and a channel: nothing polls, and no goroutine is added to the
// request's.

// await returns the task once it is in one of the states, as it was just after it
// reached it, or as it is when the wait ends without that. The task is durable.
func (s *creator) await(
	ctx context.Context, id uuid, wants stateSet, limit time.Duration,
) (*task, waitEnd, error) {
	n, err := s.store.await(id, wants)
	if err != nil {
		return nil, "", s.store.refuse(ctx, err)
	}
	return s.waitOut(ctx, n, limit)
}

// waitOut waits until the waiter is done, for at most limit of real time.
func (s *creator) waitOut(ctx context.Context, n *waiter, limit time.Duration) (*task, waitEnd, error) {
	err := closedWithin(ctx, n.done, limit)
	if err != nil {
		s.store.stopWaiting(n) // it may be done by now
	}
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	t, err := s.waitedFor(n)
	if err != nil {
		return nil, "", err
	}
	if err := s.store.wait(ctx, t.lastSeq); err != nil {
		return nil, "", err
	}
	if n.wants.has(t.state) {
		return t, waitReached, nil // even if the waiter was released just before
	}
	return t, n.end, nil
}

// waitedFor returns the task as the waiter found it.
func (s *creator) waitedFor(n *waiter) (*task, error) {
	if n.found.vacant() {
		return s.store.view(n.task)
	}
	return s.store.taskIn(n.found)
}

// Templates at run time: looking them up and counting the look-ups, showing,
// validating, and, in fixture mode, adding them.

// catalog holds the templates that new tasks are made from, and counts how often
// each is looked up. All templates are in memory: the registry is the cache that
// existing clients ask about, and a miss is a look-up of an unknown template.
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
	entries      sync.Map // *template to *templateEntry
}

// templateEntry is the use of one template.
type templateEntry struct {
	since instant // when the service got the template
	count atomic.Uint64
}

// catalogView is the templates of files at one time, and with them those added at run time.
type catalogView struct{ files, all *registry }

// newCatalog makes a catalog of the templates of files.
func newCatalog(
	cfg *Config, log *slog.Logger, clock clock, handlers *handlerSet, files *atomic.Pointer[registry],
) *catalog {
	c := &catalog{cfg: cfg, log: log, clock: clock, handlers: handlers, files: files}
	c.follow()
	return c
}

// registry returns the templates that new tasks are made from.
func (c *catalog) registry() *registry {
	if v := c.current.Load(); v.files == c.files.Load() {
		return v.all
	}
	return c.follow()
}

// follow takes the templates of files as they are now. Those added at run time stay.
func (c *catalog) follow() *registry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.followLocked()
}

func (c *catalog) followLocked() *registry {
	files := c.files.Load()
	all := files
	for _, t := range c.added {
		all = all.with(t)
	}
	c.current.Store(&catalogView{files, all})
	kept := map[*template]bool{}
	for _, t := range all.all() {
		kept[t] = true
		c.entry(t)
	}
	c.entries.Range(func(t, _ any) bool {
		if !kept[t.(*template)] {
			c.entries.Delete(t)
		}
		return true
	})
	return all
}

// entry returns the use of a template. One that joined the registry later counts
// from its first look-up.
func (c *catalog) entry(t *template) *templateEntry {
	e, ok := c.entries.Load(t)
	if !ok {
		e, _ = c.entries.LoadOrStore(t, &templateEntry{since: c.clock.now()})
	}
	return e.(*templateEntry)
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
	full := namespace + "." + name
	if version != "" {
		full += "@" + version
	}
	f := failf(templateNotFound, "no template %s is registered", full)
	if near := c.registry().nearest(namespace, name, version); near != "" {
		f.message += "; did you mean " + near + "?"
	}
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
	all, now := c.registry().all(), c.clock.now()
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

// Views of templates: the list and the detail, both without the credentials in
// URLs.

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

// listView returns the list of all templates, or of those in a namespace. It lists
// all namespaces in either case.
func (r *registry) listView(namespace string) templateList {
	list := templateList{Namespaces: r.namespaces(), Templates: []templateSummary{}, TotalCount: len(r.sorted)}
	for _, t := range r.sorted {
		if namespace == "" || t.namespace == namespace {
			list.Templates = append(list.Templates,
				templateSummary{t.name, t.namespace, t.version, redactText(t.description), len(t.steps)})
		}
	}
	return list
}

func (t *template) detailView() templateDetail {
	return templateDetail{
		Name:          t.name,
		Namespace:     t.namespace,
		Version:       t.version,
		Description:   redactText(t.description),
		Configuration: t.shownJSON,
		Steps:         jsonListOf(len(t.steps), t.stepDetail),
	}
}

func (t *template) stepDetail(i int) templateStepDetail {
	s := &t.steps[i]
	return templateStepDetail{
		Name:               s.name,
		Description:        redactText(s.description),
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
func (c *catalog) add(definition []byte) (t *template, replaced bool, err error) {
	rules := c.handlers.templateRules(&c.cfg.Templates, schemasKept)
	rules.callable = func(callable string) error { return checkAddedCallable(c.cfg, c.handlers, callable) }
	t, problems, warnings := parseTemplate("", definition, "json", c.cfg.Environment, rules)
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

// checkAddedTemplate is the rule for a template that a state document adds.
func checkAddedTemplate(cfg *Config, h *handlerSet, t *template) error {
	for i := range t.steps {
		if err := checkAddedCallable(cfg, h, t.steps[i].callable); err != nil {
			return fmt.Errorf("template %s, %s.handler.callable: %w", t.fullName(), templateItemPath("steps", i), err)
		}
	}
	if faults := t.schemaFaults(); cfg.Templates.EnforceInputSchema != "off" && faults != nil {
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
	v := &templateVerdict{}
	for i := range t.steps {
		step := &t.steps[i]
		if err := c.handlers.check(step.callable); err != nil {
			v.fault(i, err.Error())
		}
		if warning := c.handlers.warning(step.callable); warning != "" {
			v.fault(i, warning)
		}
		v.RequiredCapabilities = append(v.RequiredCapabilities, c.handlers.resolve(step.callable).kind.String())
		if shown := step.shown; !slices.Contains(v.StepHandlers, shown) {
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

// validateRegistered checks whether a registered template can run here now. Its
// form was checked when it was loaded.
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
func (c *catalog) validateDefinition(definition []byte, named templateName, version string) *templateVerdict {
	t, problems, warnings := parseTemplate("", definition, "json", c.cfg.Environment, c.handlers.templateRules(&c.cfg.Templates, schemasTold))
	v := &templateVerdict{}
	if t != nil {
		v = c.newVerdict(t)
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
