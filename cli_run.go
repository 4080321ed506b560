package main

// The command run: a workflow without a server.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// open opens a service in fixture mode for a workflow, and returns a client of it. end closes everything.
func (a *runArgs) open(p *process, name string) (c *client, w *world, end func(), err error) {
	if a.unread != nil {
		return nil, nil, nil, a.unread
	}
	parts, err := p.runParts(a, name)
	if err != nil {
		return nil, nil, nil, err
	}
	l := &pipeListener{make(chan net.Conn), make(chan struct{})}
	g := &gates{shared: newSurfaceCache(), connections: newConnections(parts.quotas, parts.log)}
	w, err = openWorld("", parts, g)
	if err != nil {
		parts.auth.close()
		return nil, nil, nil, err
	}
	server := newHTTPServer(l, &g.orchestration, g.connections, parts.log)
	go server.serve()
	web := newHTTPClient(&http.Transport{DialContext: l.dial})
	end = func() {
		server.server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), abandonedTimeout)
		defer cancel()
		w.finish(ctx)
		w.close()
		parts.auth.close()
	}
	return &client{p: p, url: "http://localhost", http: web, role: "orchestration"}, w, end, nil
}

// pipeListener accepts the connections that dial makes, in the same process.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return mine, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// The command run: one workflow in this process, without a server or a data directory. It opens the
// service that fixture mode would, in memory, and asks it over pipes like any client.

func runCommand() command {
	return command{
		name: "run", operands: "FILE|TEMPLATE [TASK]", help: "run one workflow in this process, without a server, and print its result",
		more: "FILE is a template file; TEMPLATE is NAMESPACE/NAME of a template of the demonstration, of --templates or of the configuration. A " +
			"./stepwell.toml counts only if --config or $STEPWELL_CONFIG names it. With --from STEP, FILE is a state " +
			"from \"stepwell store export\" or the file of a store, and TASK is the task in it to repeat; omit TASK if there is only one. On a " +
			"terminal, it asks for the results of steps for people. The exit code is 4 if the workflow failed or is blocked, and 5 if it timed out.",
		examples: []string{
			`run order.json --context '{"id":7}' --stub charge='{"paid":true}' --fast -o json`,
			"run state.jsonl 5666cd0c --from charge --handler charge=http://127.0.0.1:9000/charge",
		},
		define: runWorkflow,
	}
}

// runArgs are the flags of run.
type runArgs struct {
	againArgs
	scripted []scriptedStep
	unread   error // of a file that --stub names
	fast     bool
	timeout  time.Duration
	config   configArgs
}

// scriptedStep is a step that gets an outcome instead of its handler.
type scriptedStep struct {
	step    string
	outcome map[string]any
}

func runWorkflow(o *options) runner {
	a := &runArgs{}
	o.withOutput()
	o.runFlags(a)
	o.againFlags(&a.againArgs)
	o.BoolVar(&a.fast, "fast", false, "skip delays and back-offs: a day of them takes no time")
	o.durationVar(&a.timeout, "timeout", 0, "`DURATION`: give up when the task is this old, with exit code 5")
	return func(ctx context.Context, operands []string) error {
		ctx, stop := interruptible(ctx, 0)
		defer stop()
		if a.from == "" && (a.latest || len(operands) > 1) {
			return o.misuse("TASK and --latest need --from STEP")
		}
		return o.named(runIn(ctx, o, a, operands))
	}
}

// runFlags adds the flags of what runs a workflow in this process.
func (o *options) runFlags(a *runArgs) {
	configFileFlag(o, &a.config)
	keyFlag(o, configKeyAt("environment"), &a.config)
	keyFlag(o, configKeyAt("templates.dirs"), &a.config)
	o.StringVar(&a.context, "context", "", "`JSON`: set the context, from JSON, @FILE, or - for standard input")
	o.Func("stub", "`STEP=JSON`: give a step this result instead of calling its handler; also STEP=@FILE, or STEP=error:MESSAGE for a failure (repeatable)",
		func(text string) error { return o.p.addScripted(a, text) })
	handlerFlag(o, &a.config)
}

func (p *process) addScripted(a *runArgs, text string) error {
	step, value, ok := cutOutcome(text)
	if !ok || step == "" {
		return errors.New("want STEP=JSON, STEP=@FILE or STEP=error:MESSAGE")
	}
	if message, ok := strings.CutPrefix(value, "error:"); ok {
		a.scripted = append(a.scripted, scriptedStep{step, map[string]any{"error": map[string]any{"message": message, "retryable": false}}})
		return nil
	}
	result, err := p.jsonArgument(step, value)
	a.scripted = append(a.scripted, scriptedStep{step, map[string]any{"result": result}})
	if errors.Is(err, fs.ErrNotExist) { // which is not misuse of the flag
		a.unread, err = fmt.Errorf("--stub %w", err), nil
	}
	return err
}

// cutOutcome splits a text at the first = that an outcome follows, because the name of a step may contain one, too.
func cutOutcome(text string) (step, outcome string, ok bool) {
	for at := 1; at < len(text); at++ {
		value := text[at+1:]
		if text[at] == '=' && (value == "-" || strings.HasPrefix(value, "@") || strings.HasPrefix(value, "error:") || json.Valid([]byte(value))) {
			return text[:at], value, true
		}
	}
	return strings.Cut(text, "=")
}

// runIn runs a template in a service that nothing else uses.
func runIn(ctx context.Context, o *options, a *runArgs, operands []string) error {
	c, w, end, err := a.open(o.p, operands[0])
	if err != nil {
		return err
	}
	defer end()
	create, err := a.creation(c, w.service(), operands)
	if err != nil {
		return a.unlessNamed(o.p, err)
	}
	if err := a.prepare(ctx, c); err != nil {
		return err
	}
	created, err := create(ctx)
	if err != nil {
		return err
	}
	watching, stop := interruptible(ctx, a.timeout)
	defer stop()
	ended, err := c.watchTask(watching, o, created.text("task_uuid"), &answerer{client: c})
	if ended.raw == nil && exitCode(err) == exitTimedOut {
		ended = created // the time was too short for another look at it
	}
	if ended.raw == nil {
		return err
	}
	// Even after an interrupt, the results so far are fetched and printed.
	err = c.printRun(context.WithoutCancel(ctx), o, ended, err)
	if err != nil && strings.Contains(err.Error(), execNotAllowed) {
		return a.unlessNamed(o.p, err)
	}
	return err
}

// unlessNamed adds to an error that the configuration file in this directory was not read, if that is so.
func (a *runArgs) unlessNamed(p *process, err error) error {
	if _, missing := os.Stat(defaultConfigFile); missing != nil || len(a.config.named(p.getenv)) > 0 {
		return err
	}
	return exitf(exitCode(err), "%v; ./%s counts only with --config %[2]s", err, defaultConfigFile)
}

// creation returns a function that creates the task in a service, if all of its steps can run there.
func (a *runArgs) creation(c *client, s *service, operands []string) (func(context.Context) (document, error), error) {
	if a.from != "" {
		return a.repetition(c, s, operands)
	}
	body, err := a.taskBody(c.p, s, operands[0], "stepwell run")
	return func(ctx context.Context) (document, error) {
		return c.do(ctx, call{method: "POST", path: "/v1/tasks", body: body})
	}, err
}

func (a *runArgs) taskBody(p *process, s *service, name, initiator string) (map[string]any, error) {
	t, err := a.template(s.templates.registry(), name)
	if err != nil {
		return nil, err
	}
	if err := a.check(p, s.handlers, t, func(int) bool { return false }); err != nil {
		return nil, err
	}
	body := map[string]any{"namespace": t.namespace, "name": t.name, "version": t.version, "initiator": initiator, "idempotency_key": initiator}
	return body, p.addJSON(body, "context", a.context)
}

// repetition is creation for a task of a state. Nothing else of the state is in the service, in which it would continue.
func (a *runArgs) repetition(c *client, s *service, operands []string) (func(context.Context) (document, error), error) {
	q, err := a.request(c.p, operands)
	if err != nil {
		return nil, err
	}
	x, err := q.again.plan(s.tasks)
	if err != nil {
		return nil, err
	}
	if err := a.check(c.p, s.handlers, x.draft.tpl, x.settled); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (document, error) {
		done, err := s.tasks.submit(ctx, &submission{taskRequest: q})
		if err != nil {
			return document{}, err
		}
		return c.get(ctx, "/v1/tasks/"+done.task.id.String(), nil)
	}, nil
}

// request reads the state, and returns the request to repeat its task.
func (a *runArgs) request(p *process, operands []string) (*taskRequest, error) {
	f, err := os.Open(operands[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	again := &againRequest{}
	if again.store, err = storeOf(&stateSource{document: f}, slog.New(slog.DiscardHandler)); err != nil {
		return nil, fmt.Errorf("%s: %w", operands[0], err)
	}
	if again.task, err = taskCalled(again.store, operands[0], slices.Concat(operands[1:], []string{""})[0]); err != nil {
		return nil, err
	}
	body, err := a.body(p)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	q, err := parseAgain(text, again)
	q.initiator = "stepwell run"
	return q, err
}

// taskCalled returns the task of a state that a user calls by this name, or the only one for "".
func taskCalled(s *store, file, name string) (uuid, error) {
	part := strings.ReplaceAll(strings.ToLower(name), "-", "")
	if name == "latest" {
		part = ""
	} else if name != "" && (len(part) < shortestIDPart || len(part) > 32 || strings.Trim(part, "0123456789abcdef") != "") {
		return uuid{}, notTask(name)
	}
	found := newFinder(s).find(&taskSearch{part: newIDPart(part), limit: 2}).own
	switch n, _ := s.size(); {
	case len(found) == 0:
		return uuid{}, exitf(exitNotFound, "%s has no task %s", file, name)
	case len(found) > 1 && name == "":
		return uuid{}, usagef("%s has %d tasks: name one by its UUID, a part of it, or latest", file, n)
	case len(found) > 1 && part != "":
		return uuid{}, usagef("%q is ambiguous: tasks %s and %s", name, found[0].task, found[1].task)
	}
	return found[0].task, nil
}

// runParts loads what a service needs. The configuration is that of serve with the same flags and variables, but nothing
// is stored, nobody has to authenticate, and a file that only happens to be in this directory does not count: it could
// name programs to run and hosts to call.
func (p *process) runParts(a *runArgs, name string) (parts serviceOptions, err error) {
	args := a.config
	args.flags = maps.Clone(args.flags)
	if args.flags == nil {
		args.flags = map[string]string{}
	}
	maps.Copy(args.flags, map[string]string{
		// Nothing listens, so the configured address must not make fixture mode refuse to start.
		"role": "all", "fixture.enabled": "true", "fixture.allow_remote": "true", "store.memory": "true", "mount.path": "",
		"orchestration.web.auth.enabled": "false", "worker.web.auth.enabled": "false",
	})
	if a.from == "" && isTemplateFile(name) {
		args.flags["templates.dirs"] = name
	}
	cfg, origin, err := p.loadConfig(args, p.environ)
	if err != nil {
		return parts, err
	}
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	clock := newRealClock()
	v := &serving{cfg: cfg, log: log, clock: clock}
	return v.parts(origin, p.getenv)
}

// template returns the template with a name, or the one in a file.
func (a *runArgs) template(r *registry, name string) (*template, error) {
	if isTemplateFile(name) {
		return onlyTemplate(r, name)
	}
	ref, err := parseTemplateRef(name)
	if err != nil {
		return nil, err
	}
	t, ok := r.get(ref.namespace, ref.name, ref.version)
	if !ok {
		return nil, exitf(exitNotFound, "no template %s here%s", name, meant(r.nearest(ref.namespace, ref.name, ref.version)))
	}
	return t, nil
}

// check returns an error for an outcome of a step that the template does not have. Unless somebody can answer them, it
// does so for steps that nothing would run, too, if the task has them whatever is decided, and they are not settled.
func (a *runArgs) check(p *process, h *handlerSet, t *template, settled func(d int) bool) error {
	given := map[string]bool{}
	for _, s := range a.scripted {
		given[s.step] = true
	}
	var names, idle []string
	var exists []bool
	if t.dynamic {
		exists = t.fromTheStart()
	}
	for i := range t.steps {
		s := &t.steps[i]
		names = append(names, s.name)
		if (!t.dynamic || exists[i]) && !given[s.name] && !settled(i) && h.resolve(s.callable).kind == outsideActor {
			idle = append(idle, fmt.Sprintf("%s (callable %s)", s.name, s.shown))
		}
	}
	for _, s := range a.scripted {
		if !slices.ContainsFunc(t.steps, func(of stepTemplate) bool {
			return s.step == of.name || of.batch != nil && strings.HasPrefix(s.step, of.name+"_")
		}) {
			return usagef("--stub %s: the template has no such step%s", s.step, suggestion(s.step, names))
		}
	}
	if len(idle) > 0 && !p.attended() {
		return nobodyAnswers(strings.Join(idle, ", "))
	}
	return nil
}

// prepare scripts the outcomes, and lets time pass by itself for --fast.
func (a *runArgs) prepare(ctx context.Context, c *client) error {
	for _, s := range a.scripted {
		body := map[string]any{"match": map[string]any{"step": s.step}, "outcomes": []any{s.outcome}}
		if _, err := c.do(ctx, call{method: "POST", path: "/_stepwell/stubs", body: body}); err != nil {
			return err
		}
	}
	if !a.fast {
		return nil
	}
	_, err := c.do(ctx, call{method: "POST", path: "/_stepwell/clock", body: map[string]any{"auto": true}})
	return err
}

// printRun prints how a run ended: the results of its last steps, or everything as JSON.
func (c *client) printRun(ctx context.Context, o *options, t document, failed error) error {
	path := "/v1/tasks/" + t.text("task_uuid")
	steps, err := c.get(ctx, path+"/workflow_steps", nil)
	if err != nil {
		return errors.Join(failed, err)
	}
	r := runResult{Status: t.text("status"), Context: t.at("context"), Results: map[string]document{}, Errors: map[string]string{}}
	var lines [][2]string
	last := c.shape(ctx, t).ends()
	for _, s := range steps.list() {
		name := s.exact("name")
		if message := s.exact("results.error.message"); message != "" {
			r.Errors[name] = message
			lines = append(lines, [2]string{name, message})
		} else if result := s.at("results.result"); len(result.raw) > 0 {
			r.Results[name] = result
			if last[printable(name)] {
				lines = append(lines, [2]string{name, string(result.raw)})
			}
		}
	}
	out := output{r, member("status"), func(tb *table) {
		for _, line := range lines {
			tb.lines(tb.paint(bold, printable(line[0])), printableLines(line[1]))
		}
	}}
	if err := o.print(out); err != nil {
		return err
	}
	if failed == nil {
		return nil
	}
	message := failed.Error()
	if errors.Is(failed, errInterrupted) {
		message = "interrupted" + c.why(ctx, t.text("task_uuid"))
	}
	return exitf(exitCode(failed), "%s", runRemedies.Replace(message))
}

// runAdvice tells the user of run what to do about a step that waits for an outside actor.
const runAdvice = "give --stub STEP=JSON or --handler CALLABLE=URL"

// runRemedies replaces remedies that need a service to act on.
var runRemedies = strings.NewReplacer(", then reset it", ", then run it again", ", or let an actor claim it", "", ", or immediately with retry_now", "",
	testAdvice, runAdvice)

// runResult is the JSON that run prints.
type runResult struct {
	Status  string              `json:"status"`
	Context document            `json:"context"`
	Results map[string]document `json:"results"` // of the steps that succeeded, by name
	Errors  map[string]string   `json:"errors"`  // messages of those that failed
}

// ends returns the steps that no other depends on.
func (s *shape) ends() map[string]bool {
	ends := map[string]bool{}
	for _, name := range s.names {
		ends[name] = true
	}
	for _, parents := range s.parents {
		for _, parent := range parents {
			delete(ends, parent)
		}
	}
	return ends
}
