package main

// The command run: a workflow without a server.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"
)

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

// authCLI holds the state that the auth commands share.
type authCLI struct {
	*process
	settings func(name string) string // of the environment, or else of the configuration files
}

func (p *process) authCommands() command {
	c := &authCLI{p, p.authSettings()}
	return command{name: "auth", help: "make keys and tokens, show permissions", commands: []command{
		{
			name: "generate-keys", help: "make an RSA key pair for tokens",
			examples: []string{"auth generate-keys", "auth generate-keys --output-dir /etc/stepwell/keys --key-size 4096"},
			define:   c.generateKeys,
		},
		{
			name: "generate-token", help: "make a token",
			examples: []string{"auth generate-token --role task-submitter", "auth generate-token --permissions 'tasks:*,steps:read'"},
			define:   c.generateToken,
		},
		{
			name: "validate-token", help: "show the contents of a token, or why it is refused",
			examples: []string{"auth validate-token", "auth validate-token --token $TOKEN --public-key keys/jwt-public-key.pem"},
			define:   c.validateToken,
		},
		{
			name: "show-permissions", help: "list the permissions, the routes that require them, and the roles",
			examples: []string{"auth show-permissions", "auth show-permissions -o json"}, define: c.showPermissions,
		},
	}}
}

// runArgs are the flags of run.
type runArgs struct {
	context  string
	scripted []scriptedStep
	fast     bool
	timeout  time.Duration
	config   configArgs
}

// scriptedStep is a step that gets an outcome instead of its handler.
type scriptedStep struct {
	step    string
	outcome map[string]any
}

func (p *process) runWorkflow(o *options) runner {
	a := &runArgs{}
	o.withOutput()
	configFileFlag(o, &a.config)
	keyFlag(o, configKeyAt("environment"), &a.config)
	keyFlag(o, configKeyAt("templates.dirs"), &a.config)
	o.StringVar(&a.context, "context", "", "the context: `JSON`, @FILE, or - for standard input")
	o.Func("stub", "give a step an outcome instead of its handler: `STEP=JSON`, STEP=@FILE or STEP=error:MESSAGE (repeatable)",
		func(text string) error { return p.addScripted(a, text) })
	handlerFlag(o, &a.config)
	o.BoolVar(&a.fast, "fast", false, "skip the time of delays and back-offs: a day of them takes no time")
	o.DurationVar(&a.timeout, "timeout", 0, "give up `DURATION` after the task was created, with exit code 5")
	return func(ctx context.Context, operands []string) error {
		ctx, stop := interruptible(ctx, 0)
		defer stop()
		return o.named(p.runIn(ctx, o, a, operands[0]))
	}
}

func (p *process) addScripted(a *runArgs, text string) error {
	step, value, ok := strings.Cut(text, "=")
	if !ok || step == "" {
		return errors.New("want STEP=JSON, STEP=@FILE or STEP=error:MESSAGE")
	}
	if message, ok := strings.CutPrefix(value, "error:"); ok {
		a.scripted = append(a.scripted, scriptedStep{step, map[string]any{"error": map[string]any{"message": message, "retryable": false}}})
		return nil
	}
	result, err := p.jsonArgument(step, value)
	a.scripted = append(a.scripted, scriptedStep{step, map[string]any{"result": result}})
	return err
}

// runIn runs a template in a service that nothing else uses.
func (p *process) runIn(ctx context.Context, o *options, a *runArgs, name string) error {
	parts, t, err := p.runParts(a, name)
	if err != nil {
		return err
	}
	defer parts.auth.close()
	if err := a.check(parts.handlers, t); err != nil {
		return err
	}
	c, end, err := p.openPiped(parts)
	if err != nil {
		return err
	}
	defer end()
	if err := a.prepare(ctx, c); err != nil {
		return err
	}
	body := map[string]any{"namespace": t.namespace, "name": t.name, "version": t.version, "initiator": "stepwell run"}
	if a.context != "" {
		if body["context"], err = p.jsonArgument("--context", a.context); err != nil {
			return err
		}
	}
	created, err := c.do(ctx, call{method: "POST", path: "/v1/tasks", body: body})
	if err != nil {
		return err
	}
	watching, stop := interruptible(ctx, a.timeout)
	defer stop()
	ended, err := p.watchTask(watching, o, c, created.text("task_uuid"), 0)
	if ended.raw == nil && exitCode(err) == exitTimedOut {
		ended = created // the time was too short for another look at it
	}
	if ended.raw == nil {
		return err
	}
	return p.printRun(context.WithoutCancel(ctx), o, c, ended, err)
}

// runParts loads what a service needs, and the template to run. The configuration is that of serve in this
// directory, but nothing is stored and nobody has to authenticate.
func (p *process) runParts(a *runArgs, name string) (parts serviceOptions, t *template, err error) {
	args := a.config
	args.flags = maps.Clone(args.flags)
	if args.flags == nil {
		args.flags = map[string]string{}
	}
	maps.Copy(args.flags, map[string]string{
		"role": "all", "fixture.enabled": "true", "fixture.allow_remote": "true", "store.memory": "true", "mount.path": "",
		"orchestration.web.auth.enabled": "false", "worker.web.auth.enabled": "false",
	})
	if isTemplateFile(name) {
		args.flags["templates.dirs"] = name
	}
	cfg, origin, err := p.loadConfig(args, p.environ)
	if err != nil {
		return parts, nil, err
	}
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	clock := newRealClock()
	v := &serving{cfg: cfg, log: log, clock: clock}
	if parts, err = v.parts(origin, p.getenv); err != nil {
		return parts, nil, err
	}
	t, err = a.template(parts.registry, name)
	return parts, t, err
}

// template returns the template that is called so, or that a file has.
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
		hint := ""
		if near := r.nearest(ref.namespace, ref.name, ref.version); near != "" {
			hint = "; did you mean " + near + "?"
		}
		return nil, exitf(exitNotFound, "no template %s here%s", name, hint)
	}
	return t, nil
}

// check returns an error for an outcome of a step that the template does not have, and for steps that nothing
// would run.
func (a *runArgs) check(h *handlerSet, t *template) error {
	given := map[string]bool{}
	for _, s := range a.scripted {
		given[s.step] = true
	}
	var names, idle []string
	for i := range t.steps {
		s := &t.steps[i]
		names = append(names, s.name)
		if !given[s.name] && h.resolve(s.callable).kind == outsideActor {
			idle = append(idle, fmt.Sprintf("%s (callable %s)", s.name, s.shown))
		}
	}
	for _, s := range a.scripted {
		if !slices.Contains(names, s.step) {
			return usagef("--stub %s: the template has no such step%s", s.step, suggestion(s.step, names))
		}
	}
	if len(idle) > 0 {
		return usagef("nothing here handles %s: give --stub STEP=JSON or --handler CALLABLE=URL for each",
			strings.Join(idle, ", "))
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
func (p *process) printRun(ctx context.Context, o *options, c *client, t document, failed error) error {
	path := "/v1/tasks/" + t.text("task_uuid")
	steps, err := c.get(ctx, path+"/workflow_steps", nil)
	if err != nil {
		return errors.Join(failed, err)
	}
	r := runResult{Status: t.text("status"), Context: t.at("context"), Results: map[string]document{}, Errors: map[string]string{}}
	var lines [][2]string
	last := c.shape(ctx, t).ends()
	for _, s := range steps.list() {
		name := s.text("name")
		if message := s.text("results.error.message"); message != "" {
			r.Errors[name] = message
			lines = append(lines, [2]string{name, printable(message)})
		} else if result := s.at("results.result"); len(result.raw) > 0 {
			r.Results[name] = result
			if last[name] {
				lines = append(lines, [2]string{name, string(result.raw)})
			}
		}
	}
	out := output{r, member("status"), func(tb *table) {
		for _, line := range lines {
			tb.row(tb.paint(bold, printable(line[0])), line[1])
		}
	}}
	if err := p.print(o, out); err != nil {
		return err
	}
	if failed == nil {
		return nil
	}
	why, err := c.get(ctx, path+"/explain", nil)
	if err != nil {
		return failed
	}
	code, message := exitCode(failed), why.text("message")
	if code == exitTimedOut {
		message = "the task has not ended in time: " + message
	}
	return exitf(code, "%s", message)
}

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
	s.edges(func(from, _ int, _ bool) { delete(ends, s.names[from]) })
	return ends
}
