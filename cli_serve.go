package main

// The serve command: it opens the service that the configuration describes, announces
// it, and shuts it down in the reverse order. Then run, which needs no server.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// serving holds the listeners of a running service.
type serving struct {
	cfg           *Config
	log           *slog.Logger
	plain         bool // the log is text, for people
	readOnly      bool
	clock         *realClock
	orchestration *httpServer // nil when the role is switched off
	worker        *httpServer
	failed        chan error     // of a listener that failed
	watch         *templateWatch // nil unless templates are watched
}

// readyReport is the contents of --ready-file and --print-ready.
type readyReport struct {
	OrchestrationURL string `json:"orchestration_url"`
	WorkerURL        string `json:"worker_url"`
	MountURL         string `json:"mount_url"`
	PID              int    `json:"pid"`
	Version          string `json:"version"`
}

func (p *process) serveCommand() command {
	return command{
		name: "serve", help: "serve the API (the default command)",
		more:     "Every key of the configuration can be set by a file and by a variable of the environment; the flags are for some.",
		examples: []string{"serve", "serve --fixture --listen 127.0.0.1:0 --print-ready"},
		define: func(o *options) runner {
			a := new(serveArgs)
			serveFlags(o, a)
			return func(ctx context.Context, _ []string) error { return p.serve(ctx, a) }
		},
	}
}

func (p *process) serve(ctx context.Context, flags *serveArgs) error {
	ctx, ignore := endOnSignal(ctx)
	defer ignore()
	flags.develop()
	cfg, origin, err := p.loadConfig(flags.configArgs, p.environ)
	if err != nil {
		return err
	}
	v := &serving{cfg: cfg, log: p.logger(cfg), plain: p.logsText(cfg), clock: newRealClock(), failed: make(chan error, 2)}
	defer v.clock.stop()
	for _, w := range origin.warnings {
		v.log.Warn(w)
	}
	ctx, release := p.lifetime(ctx, flags, v.log)
	defer release()
	if err := flags.checkReadOnly(cfg); err != nil {
		return err
	}
	parts, err := v.parts(origin, p.getenv)
	if err != nil {
		return err
	}
	v.readOnly, parts.readOnly = flags.readOnly, flags.readOnly
	defer parts.auth.close()
	return v.run(ctx, p, flags, parts)
}

// develop sets what --dev stands for.
func (a *serveArgs) develop() {
	if !a.dev {
		return
	}
	flags := map[string]string{"templates.watch": "true", "log.format": "text"}
	maps.Copy(flags, a.flags)
	a.flags = flags
}

// parts reads what the configuration names: documentation, templates, handlers and keys.
func (v *serving) parts(origin *provenance, getenv func(string) string) (o serviceOptions, err error) {
	o = serviceOptions{cfg: v.cfg, log: v.log, clock: v.clock, deterministic: v.cfg.Fixture.DeterministicIDs,
		quotas: newQuotas(v.cfg)}
	if err = checkSwaggerFiles(&v.cfg.Docs); err != nil {
		return o, err
	}
	if v.cfg.Templates.Watch {
		v.watch = newTemplateWatch(v.cfg, v.log)
	}
	if o.handlers, o.registry, err = loadWork(v.cfg, v.log, getenv); err != nil {
		return o, err
	}
	if v.watch != nil {
		o.reloaded, err = v.watch.files, v.watch.begin(o.registry, getenv)
		if err != nil {
			return o, err
		}
	}
	o.handlers.adoptOrphans()
	o.auth, err = newAuthenticators(v.cfg, origin, v.clock, v.log)
	return o, err
}

// run serves until ctx ends or a listener fails.
func (v *serving) run(ctx context.Context, p *process, flags *serveArgs, parts serviceOptions) error {
	if err := removeReadyFile(flags.readyFile); err != nil {
		return err
	}
	parts.until, parts.shows = ctx, new(readProgress)
	gates, err := v.listen(&parts)
	if err != nil {
		return err
	}
	p.setGarbage(startGarbageShare)
	w, err := openWorkload(flags.seed, parts, gates)
	if err != nil {
		v.stopListening(closeTimeout)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			v.log.Info("stopped while the store was being read")
			return nil
		}
		return err
	}
	if v.watch != nil {
		defer v.watch.start(ctx)()
	}
	p.boundGarbage(ctx)
	if !v.cfg.Log.Quiet {
		v.banner(p, len(parts.registry.all()))
	}
	report := v.report()
	if !flags.readOnly {
		err = v.awaitReady(ctx, w)
	}
	if err == nil && ctx.Err() == nil {
		err = p.announce(report, flags)
	}
	if err == nil {
		err = v.wait(ctx)
	}
	defer dropReadyFile(flags.readyFile, report.PID)
	return errors.Join(err, v.shutDown(ctx, w))
}

// workload is the service of a process, which fixture mode can replace at run time.
type workload interface {
	ready() bool                         // nothing prevents it from working
	busy() int                           // running handlers
	finish(ctx context.Context) []string // running handlers have until ctx ends; describes the attempts cut off
	close() error                        // makes the store durable
}

// openWorkload opens the service that the configuration describes, and its gates.
func openWorkload(seed string, parts serviceOptions, g *gates) (workload, error) {
	if parts.cfg.Fixture.Enabled {
		return openWorld(seed, parts, g)
	}
	svc, err := openSeeded(seed, parts)
	if err != nil {
		return nil, err
	}
	g.open(svc)
	return svc, nil
}

// loadWork returns the handlers and the templates.
func loadWork(cfg *Config, log *slog.Logger, getenv func(string) string) (*handlerSet, *registry, error) {
	handlers, err := newHandlerSet(&cfg.Worker, version, getenv)
	if err != nil {
		return nil, nil, err
	}
	registry, warnings, err := handlers.load(cfg)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	warnOfHandlers(registry.all(), handlers, log)
	if cfg.Role == "orchestration" {
		handlers = outsideOnly()
	}
	return handlers, registry, nil
}

// load reads the templates that the configuration names.
func (h *handlerSet) load(cfg *Config) (*registry, []string, error) {
	return loadTemplates(cfg.Templates.Dirs, cfg.Environment, h.templateRules(&cfg.Templates, schemasKept))
}

// warnOfHandlers logs the steps whose every attempt would fail with this configuration.
func warnOfHandlers(templates []*template, h *handlerSet, log *slog.Logger) {
	for _, t := range templates {
		for i := range t.steps {
			if w := h.warning(t.steps[i].callable); w != "" {
				log.Warn(w, "template", t.fullName(), "step", t.steps[i].name)
			}
		}
	}
}

// logger writes to standard error: text on a terminal, else JSON.
func (p *process) logger(cfg *Config) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(cfg.Log.Level)) // the configuration has checked it
	o := &slog.HandlerOptions{Level: level}
	if p.logsText(cfg) {
		return slog.New(slog.NewTextHandler(p.stderr, o))
	}
	return slog.New(slog.NewJSONHandler(p.stderr, o))
}

func (p *process) logsText(cfg *Config) bool {
	return cfg.Log.Format == "text" || cfg.Log.Format == "auto" && isTerminal(p.stderr)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// listen opens the listeners of the roles that are served, with what can be answered before
// the store is open. They stay open, so that a free port is never lost again.
func (v *serving) listen(parts *serviceOptions) (*gates, error) {
	q := parts.quotas
	v.boundByFiles(&q.connections)
	g := &gates{connections: newConnections(q, v.log)}
	g.open(startingService(parts))
	g.shared = newSurfaceCache() // fixture mode adds to what the surfaces of its services share
	var err error
	if v.cfg.Role != "worker" {
		v.orchestration, err = v.serveOn(&v.cfg.Orchestration.Web, "--listen", &g.orchestration, g.connections)
	}
	if err == nil && v.cfg.Role != "orchestration" {
		v.worker, err = v.serveOn(&v.cfg.Worker.Web, "--worker-listen", &g.worker, g.connections)
	}
	if err != nil {
		v.stopListening(closeTimeout)
	}
	return g, err
}

// boundByFiles lowers a quota of connections to leave files for everything else.
func (v *serving) boundByFiles(q *quota) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || uint64(q.most) <= files.Cur/4*3 {
		return
	}
	v.log.Warn("the process may not open enough files for web.max_connections: fewer are held",
		"connections", files.Cur/4*3, "files", files.Cur)
	q.most = int64(files.Cur / 4 * 3)
}

func (v *serving) serveOn(web *roleWebConfig, flag string, h http.Handler, all *connections) (*httpServer, error) {
	address := web.Listen
	l, err := listenTCP(address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use by another program: choose another address with %s", address, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("listening on %s (%s): %w", address, flag, err)
	}
	if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() {
		v.warnOfOpenness(web, a.String())
	}
	s := newHTTPServer(l, h, all, v.log)
	go func() {
		if err := s.serve(); !errors.Is(err, http.ErrServerClosed) {
			v.failed <- fmt.Errorf("serving %s: %w", address, err)
		}
	}()
	return s, nil
}

// warnOfOpenness warns about an address that others can reach.
func (v *serving) warnOfOpenness(web *roleWebConfig, address string) {
	m := &v.cfg.Mount
	switch {
	case !web.Auth.Enabled:
		v.log.Warn("authentication is off: anyone who can reach this address can do everything", "address", address)
	case web == &v.cfg.Orchestration.Web && m.Path != "" && !m.Auth.Enabled:
		v.log.Warn("authentication is off at the mount point: anyone who can reach this address can do everything there",
			"address", address, "path", m.Path)
	}
}

func (v *serving) report() readyReport {
	r := readyReport{PID: os.Getpid(), Version: version}
	if v.orchestration != nil {
		r.OrchestrationURL = v.orchestration.url()
		if v.cfg.Mount.Path != "" {
			r.MountURL = r.OrchestrationURL + v.cfg.Mount.Path
		}
	}
	if v.worker != nil {
		r.WorkerURL = v.worker.url()
	}
	return r
}

// readyEvery is the interval between checks whether a starting service is ready.
const readyEvery = 100 * time.Millisecond

// awaitReady returns when the service is ready (a full disk may delay that), the process
// is told to end, or a listener fails.
func (v *serving) awaitReady(ctx context.Context, w workload) error {
	for ctx.Err() == nil && !w.ready() {
		if err, failed := receiveWithin(v.failed, readyEvery); failed {
			return err
		}
	}
	return nil
}

// wait returns when the process is told to end or a listener fails.
func (v *serving) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-v.failed:
		return err
	}
}

// closeTimeout is how long open requests may take after the handlers have ended.
const closeTimeout = time.Second

// shutDown lets running handlers end while the API still answers, then open requests,
// and then makes the store durable. ended is the context whose end caused it.
func (v *serving) shutDown(ended context.Context, w workload) error {
	handlers, requests := v.timeouts(ended)
	if n := w.busy(); n > 0 {
		v.log.Info(fmt.Sprintf("stopping: %s %s; a second signal ends it at once", counted(n, "handler gets", "handlers get"),
			handlers))
	}
	ctx, cancel := context.WithTimeout(context.Background(), handlers)
	defer cancel()
	v.logCutOff(w.finish(ctx))
	v.stopListening(requests)
	return w.close()
}

// maxLogged bounds the attempts that one record lists.
const maxLogged = 20

// logCutOff reports the attempts that did not end in time.
func (v *serving) logCutOff(cut []string) {
	if len(cut) == 0 {
		return
	}
	fate := "and will be delivered again after the next start"
	if v.cfg.Store.Memory {
		fate = "and the state in memory is lost"
	}
	v.log.Warn(fmt.Sprintf("stopped: %s cut off, %s", counted(len(cut), "attempt was", "attempts were"), fate),
		"attempts", cut[:min(len(cut), maxLogged)])
}

// stopListening closes the listeners; open requests may take until the limit.
func (v *serving) stopListening(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, s := range []*httpServer{v.orchestration, v.worker} {
		if s == nil {
			continue
		}
		if err := s.server.Shutdown(ctx); err != nil {
			s.server.Close()
		}
	}
}

// announce writes the ready file and the first line on standard output.
func (p *process) announce(r readyReport, flags *serveArgs) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if flags.readyFile != "" {
		write := func(f *os.File) error { _, err := f.Write(line); return err }
		if err := replaceFile(flags.readyFile, write); err != nil {
			return fmt.Errorf("writing the ready file: %w", err)
		}
	}
	if flags.printReady {
		p.stdout.Write(line)
	}
	return nil
}

// removeReadyFile removes the file of an earlier process, before anything listens.
func removeReadyFile(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = checkOwn("replace", path, info)
	}
	if err == nil {
		err = removeRegular(path)
	}
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return nil
}

// dropReadyFile removes the file at the end if it is still this process's.
func dropReadyFile(path string, pid int) {
	if path == "" {
		return
	}
	f, err := openRegular(path, os.O_RDONLY|syscall.O_NOFOLLOW)
	if err != nil {
		return
	}
	defer f.Close()
	var r readyReport
	if json.NewDecoder(f).Decode(&r) == nil && r.PID == pid {
		removeRegular(path)
	}
}

// banner prints, in at most six lines, where everything is and what to try. In a log
// of JSON it is one record.
func (v *serving) banner(p *process, templates int) {
	r := v.report()
	if !v.plain {
		v.log.Info("serving", "version", r.Version, "orchestration_url", r.OrchestrationURL, "worker_url", r.WorkerURL,
			"mount_url", r.MountURL, "state", v.stateLine(), "templates", templates, "fixture", v.cfg.Fixture.Enabled)
		return
	}
	urls := []string{}
	if r.OrchestrationURL != "" {
		urls = append(urls, "orchestration "+r.OrchestrationURL)
	}
	if r.MountURL != "" {
		urls = append(urls, "mount point "+v.cfg.Mount.Path)
	}
	if r.WorkerURL != "" {
		urls = append(urls, "worker "+r.WorkerURL)
	}
	fmt.Fprintf(p.stderr, "Stepwell %s · %s\n", version, strings.Join(urls, " · "))
	if r.OrchestrationURL == "" {
		fmt.Fprintf(p.stderr, "  try        curl -s %s/v1/templates\n", r.WorkerURL)
		return
	}
	fmt.Fprintf(p.stderr, "  state      %s\n", v.stateLine())
	if v.cfg.Fixture.Enabled {
		fmt.Fprintf(p.stderr, "  fixture    %s\n", fixtureBanner(r.OrchestrationURL))
	}
	if len(v.cfg.Templates.Dirs) > 0 {
		fmt.Fprintf(p.stderr, "  templates  %d from %s%s\n", templates, strings.Join(v.cfg.Templates.Dirs, ", "),
			pick(v.watch != nil, ", read again when they change", ""))
		fmt.Fprintf(p.stderr, "  try        curl -s %s/v1/templates%s\n", r.OrchestrationURL, v.curlToken())
		return
	}
	fmt.Fprintf(p.stderr, "  templates  %d for a demonstration; --templates DIR loads your own\n", templates)
	fmt.Fprintf(p.stderr, "  try        curl -s %s/v1/tasks%s -H 'Content-Type: application/json' "+
		"-d '{\"namespace\":\"demo\",\"name\":\"diamond\"}'\n", r.OrchestrationURL, v.curlToken())
	fmt.Fprintf(p.stderr, "  then       curl -s '%s/v1/tasks?status=complete'%s\n", r.OrchestrationURL, v.curlToken())
}

// curlToken returns the option with which curl authenticates.
func (v *serving) curlToken() string {
	switch c := &v.cfg.Orchestration.Web.Auth; {
	case !c.Enabled:
		return ""
	case c.onlyAPIKeys():
		return ` -H "` + c.APIKeyHeader + `: $STEPWELL_API_KEY"`
	}
	return ` -H "Authorization: Bearer $STEPWELL_AUTH_TOKEN"`
}

func (v *serving) stateLine() string {
	c := &v.cfg.Store
	if c.Memory {
		return "in memory: gone when the process ends; " + c.retention().String()
	}
	if v.readOnly {
		return c.Path + ", read-only"
	}
	durability := map[string]string{
		"always":   "on disk before a change is answered",
		"interval": fmt.Sprintf("on disk within %d ms", c.SyncIntervalMS),
		"never":    "written, never synced",
	}
	return fmt.Sprintf("%s, %s; %v", c.Path, durability[c.Sync], c.retention())
}

// The lifetime of a process: until a signal, or until its parent ends, or for a time.

// endOnSignal returns a context that the first signal cancels. A second one ends the
// process at once, unless both are SIGHUP, of which a closing terminal sends several.
func endOnSignal(ctx context.Context) (_ context.Context, ignore func()) {
	ctx, end := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt) // even if a shell made a background job ignore SIGINT
	if !signal.Ignored(syscall.SIGHUP) {                  // as nohup does
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		first := <-signals
		end()
		for next := range signals {
			if next != syscall.SIGHUP || first != syscall.SIGHUP {
				os.Exit(exitFailed)
			}
		}
	}()
	return ctx, func() { signal.Stop(signals) }
}

// abandonedTimeout is how long running handlers, and then open requests, may take once
// the parent is gone and nobody waits for them.
const abandonedTimeout = 500 * time.Millisecond

// errParentGone is the reason for the end of a process without a parent.
var errParentGone = errors.New("standard input was closed: the parent is gone")

// lifetime returns a context that ends with ctx, or as the command line says.
func (p *process) lifetime(ctx context.Context, a *serveArgs, log *slog.Logger) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	endFor := func(cause error) {
		log.Info("the service ends", "reason", cause.Error())
		end(cause)
	}
	if a.exitWithParent {
		go func() {
			io.Copy(io.Discard, p.stdin)
			endFor(errParentGone)
		}()
	}
	if a.maxLifetime > 0 {
		afterReal(a.maxLifetime, func() { endFor(fmt.Errorf("it has run for %s (--max-lifetime)", a.maxLifetime)) })
	}
	return ctx, func() { end(context.Canceled) }
}

// timeouts returns how long running handlers, and after them open requests, may take.
func (v *serving) timeouts(ctx context.Context) (handlers, requests time.Duration) {
	handlers = time.Duration(v.cfg.Web.ShutdownTimeoutSeconds) * time.Second
	if context.Cause(ctx) == errParentGone {
		return min(handlers, abandonedTimeout), abandonedTimeout
	}
	return handlers, closeTimeout
}

// The command run: one workflow in this process, without a server or a data directory. It opens the
// service that fixture mode would, in memory, and asks it over pipes like any client.

func (p *process) runCommand() command {
	return command{
		name: "run", operands: "FILE|TEMPLATE", help: "run one workflow in this process, without a server, and print its result",
		more: "TEMPLATE is NAMESPACE/NAME of the templates that serve would load here. The exit code is 4 if the workflow " +
			"failed or is blocked, and 5 if it has not ended in time.",
		examples: []string{
			"run demo/diamond",
			`run order.json --context '{"id":7}' --stub charge='{"paid":true}' --fast -o json`,
		},
		define: p.runWorkflow,
	}
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
