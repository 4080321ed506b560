package main

// The serve command: it opens the service that the configuration describes, announces it, and shuts
// it down in the reverse order.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// serving holds the listeners of a running service.
type serving struct {
	cfg           *Config
	log           *slog.Logger
	clock         *realClock
	orchestration *httpServer // nil when the role is switched off
	worker        *httpServer
	failed        chan error     // receives the error of a listener that failed
	files         []string       // of the configuration
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

func serveCommand() command {
	return command{
		name: "serve", help: "serve the API (the default command)",
		more:     "You can set every configuration key in a file or by an environment variable, and some by a flag.",
		examples: []string{"serve", "serve --fixture --listen 127.0.0.1:0 --print-ready"},
		define: func(o *options) runner {
			a := new(serveArgs)
			serveFlags(o, a)
			return func(ctx context.Context, _ []string) error { return o.p.serve(ctx, a) }
		},
	}
}

func (p *process) serve(ctx context.Context, flags *serveArgs) error {
	ctx, ignore := endOnSignal(ctx)
	defer ignore()
	queue := p.queueLog()
	flags.develop()
	cfg, origin, err := p.loadConfig(flags.configArgs, p.environ)
	if err != nil {
		return err
	}
	v := &serving{cfg: cfg, log: p.logger(cfg), clock: newRealClock(), failed: make(chan error, 2), files: origin.files}
	defer v.clock.stop()
	for _, w := range origin.warnings {
		v.log.Warn(w)
	}
	ctx, release := p.lifetime(ctx, flags, v.log)
	defer release()
	parts, err := v.parts(origin, p.getenv)
	if err != nil {
		return err
	}
	parts.flushLog = p.flushLog
	parts.quotas.lostLines = &queue.lost
	parts.failed = v.storeFailed
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

// parts reads what the configuration names: templates, handlers and keys.
func (v *serving) parts(origin *provenance, getenv func(string) string) (o serviceOptions, err error) {
	o = serviceOptions{cfg: v.cfg, log: v.log, clock: v.clock, deterministic: v.cfg.Fixture.DeterministicIDs,
		files: new(atomic.Pointer[registry])}
	if v.cfg.Templates.Watch {
		// Before the templates are read, so that the watch notices a change between the two.
		v.watch = newTemplateWatch(v.cfg, v.log, getenv)
		o.files = v.watch.files
	}
	var r *registry
	if o.handlers, r, err = loadWork(v.cfg, v.log, getenv); err != nil {
		return o, err
	}
	o.quotas = newQuotas(v.cfg)
	o.files.Store(r)
	o.auth, err = newAuthenticators(v.cfg, origin, v.clock, v.log)
	return o, err
}

// run serves until ctx ends or a listener fails.
func (v *serving) run(ctx context.Context, p *process, flags *serveArgs, parts serviceOptions) error {
	if err := removeReadyFile(flags.readyFile); err != nil {
		return err
	}
	parts.until, parts.shows = ctx, new(readProgress)
	// The listeners come first: an address in use shows before a large store has been read, and clients meanwhile get
	// an answer that says what is going on.
	gates, err := v.listen(&parts)
	if err != nil {
		return err
	}
	p.setGarbage(startGarbageShare)
	w, err := openWorkload(flags.seed, parts, gates)
	if err != nil {
		v.stopListening(closeTimeout)
		// A signal during the start is no failure.
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
		v.banner(p, parts.files.Load().sorted)
	}
	report := v.report()
	err = v.awaitReady(ctx, w)
	// Nobody is told before the service can work: whoever waits for the ready file sends requests at once.
	if err == nil && ctx.Err() == nil {
		p.flushLog() // what was logged before comes first
		err = p.announce(report, flags)
	}
	if err == nil {
		err = v.wait(ctx)
	}
	defer dropReadyFile(flags.readyFile, report.PID)
	err = errors.Join(err, v.shutDown(ctx, w, err))
	if err == nil && !v.cfg.Log.Quiet {
		v.log.Info("stopped")
	}
	return err
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

func loadWork(cfg *Config, log *slog.Logger, getenv func(string) string) (*handlerSet, *registry, error) {
	handlers := newHandlerSet(&cfg.Worker, version, getenv)
	registry, warnings, err := handlers.load(cfg, nil)
	if err != nil {
		return nil, nil, err
	}
	logWarnings(log, warnings)
	warnOfHandlers(registry.sorted, handlers, log)
	if cfg.Role == "orchestration" {
		handlers = outsideOnly()
	}
	return handlers, registry, nil
}

// load reads the templates that the configuration names. Files that were templates before must still be, if they exist.
func (h *handlerSet) load(cfg *Config, before map[string]bool) (*registry, []string, error) {
	rules := h.templateRules(&cfg.Templates, schemasKept)
	rules.known = before
	return loadTemplates(cfg.Templates.Dirs, cfg.Environment, rules)
}

// logWarnings logs the warnings of templates: the first ones, and how many there are.
func logWarnings(log *slog.Logger, warnings []string) {
	const most = 10
	for _, w := range warnings[:min(len(warnings), most)] {
		log.Warn(w)
	}
	if more := len(warnings) - most; more > 0 {
		log.Warn("there are more warnings of templates, which stepwell template check shows", "more", more)
	}
}

// warnOfHandlers logs, once for each reason, that every attempt of steps would fail with this configuration.
func warnOfHandlers(templates []*template, h *handlerSet, log *slog.Logger) {
	first, steps := map[string]*template{}, map[string]int{}
	for _, t := range templates {
		for i := range t.steps {
			if w := h.warning(t.steps[i].callable); w != "" {
				steps[w]++
				first[w] = cmp.Or(first[w], t)
			}
		}
	}
	for _, w := range slices.Sorted(maps.Keys(steps)) {
		log.Warn(w, "steps", steps[w], "template", first[w].fullName())
	}
}

// logger writes to standard error: text on a terminal, else JSON.
func (p *process) logger(cfg *Config) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(cfg.Log.Level)) // the configuration has checked it
	o, text := &slog.HandlerOptions{Level: level}, p.logsText(cfg)
	to := func(w io.Writer) *slog.Logger {
		if text {
			return slog.New(slog.NewTextHandler(w, o))
		}
		inUnits := *o // a number would not say in which unit a duration is
		inUnits.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration {
				a.Value = slog.StringValue(a.Value.Duration().String())
			}
			return a
		}
		return slog.New(slog.NewJSONHandler(w, &inUnits))
	}
	if q, ok := p.stderr.(*logQueue); ok {
		q.setForm(to)
	}
	return to(p.stderr)
}

func (p *process) logsText(cfg *Config) bool {
	return cfg.Log.Format == "text" || cfg.Log.Format == "auto" && isTerminal(p.stderr)
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
	files := mostFiles()
	if uint64(q.most) <= files/4*3 {
		return
	}
	v.log.Warn("the limit of open files is too low for web.max_connections: fewer connections are held",
		"connections", files/4*3, "files", files)
	q.most = int64(files / 4 * 3)
}

func (v *serving) serveOn(web *roleWebConfig, flag string, h http.Handler, all *connections) (*httpServer, error) {
	address := web.Listen
	l, err := net.Listen("tcp", address)
	if errors.Is(err, errAddressInUse) {
		return nil, fmt.Errorf("%s is in use by another program: choose another address with %s", address, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("listening on %s (%s): %w", address, flag, err)
	}
	if a := l.Addr(); !isLoopback(a) {
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
// gets a signal to end, or a listener fails.
func (v *serving) awaitReady(ctx context.Context, w workload) error {
	for ctx.Err() == nil && !w.ready() {
		if err, failed := receiveWithin(v.failed, readyEvery); failed {
			return err
		}
	}
	return nil
}

// wait returns when the process gets a signal to end or a listener fails.
func (v *serving) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-v.failed:
		return err
	}
}

// errStoreFailed is the error of a store that can write no more.
var errStoreFailed = errors.New("the store failed")

// storeFailed ends the process, whose next start reads what is on disk.
func (v *serving) storeFailed(cause error) {
	select {
	case v.failed <- fmt.Errorf("%w: %w; start again to continue with what was stored", errStoreFailed, cause):
	default: // it ends already
	}
}

// closeTimeout is how long open requests may take after the handlers have ended.
const closeTimeout = time.Second

// shutDown lets running handlers end while the API still answers, then open requests,
// and then makes the store durable. The end of a context caused it, or the error given as reason.
func (v *serving) shutDown(ended context.Context, w workload, reason error) error {
	handlers, requests := v.timeouts(ended, reason)
	if n := w.busy(); n > 0 {
		v.log.Info(fmt.Sprintf("stopping: %s %s; a second signal exits immediately", counted(n, "handler gets", "handlers get"),
			handlers))
	}
	ctx, cancel := context.WithTimeout(context.Background(), handlers)
	defer cancel()
	v.logCutOff(w.finish(ctx))
	v.stopListening(requests)
	if err := w.close(); !errors.Is(reason, errStoreFailed) {
		return err
	}
	return nil // the reason says it
}

// maxLogged bounds the attempts that one record lists.
const maxLogged = 20

// logCutOff reports the attempts that did not end in time.
func (v *serving) logCutOff(cut []string) {
	if len(cut) == 0 {
		return
	}
	fate := pick(v.cfg.Store.Memory, "the state in memory is lost", "will be delivered again after the next start")
	v.log.Warn(fmt.Sprintf("stopped: %s cut off, and %s", counted(len(cut), "attempt was", "attempts were"), fate),
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
		// Event streams and long polls, for example, do not end by themselves.
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
		if _, err := readReadyFile(flags.readyFile); err != nil {
			return fmt.Errorf("--ready-file: %w", err)
		}
		// Through a rename, so that a program that waits for the file never reads half of it.
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
		_, err = readReadyFile(path)
	}
	if err == nil {
		err = removeRegular(path)
	}
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return nil
}

// maxReadyFile is more bytes than any ready file has.
const maxReadyFile = 64 << 10

// readReadyFile returns the report in a ready file; an empty one if the file is empty or missing. The
// error is about a file that is not a ready file.
func readReadyFile(path string) (r readyReport, err error) {
	f, err := openRegular(path, os.O_RDONLY|noFollow)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxReadyFile))
	if err != nil || len(text) == 0 {
		return r, err
	}
	if json.Unmarshal(text, &r) != nil || r.PID <= 0 || r.Version == "" || r.OrchestrationURL+r.WorkerURL == "" {
		return r, &fs.PathError{Op: "replace", Path: path, Err: errors.New("it is not a ready file; move it away, or choose another name")}
	}
	return r, nil
}

// dropReadyFile removes the file at the end if it is still this process's.
func dropReadyFile(path string, pid int) {
	if path == "" {
		return
	}
	if r, err := readReadyFile(path); err == nil && r.PID == pid {
		removeRegular(path)
	}
}

// banner prints, in at most seven lines, where everything is and what to try. In a log of JSON it is one record.
func (v *serving) banner(p *process, templates []*template) {
	r := v.report()
	if !p.logsText(v.cfg) {
		v.log.Info("serving", "version", r.Version, "orchestration_url", r.OrchestrationURL, "worker_url", r.WorkerURL,
			"mount_url", r.MountURL, "state", pick(r.OrchestrationURL == "", "", v.stateLine()), "templates", len(templates),
			"fixture", v.cfg.Fixture.Enabled, "config", strings.Join(v.files, ", "))
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
	if len(v.files) > 0 {
		fmt.Fprintf(p.stderr, "  config     %s\n", strings.Join(v.files, ", "))
	}
	if r.OrchestrationURL == "" {
		fmt.Fprintf(p.stderr, "  try        curl -s %s/v1/templates\n", r.WorkerURL)
		return
	}
	fmt.Fprintf(p.stderr, "  state      %s\n", v.stateLine())
	if v.cfg.Fixture.Enabled {
		fmt.Fprintf(p.stderr, "  fixture    %s\n", fixtureBanner(r.OrchestrationURL))
	}
	if v.cfg.Console.Enabled {
		fmt.Fprintf(p.stderr, "  console    %s%s\n", r.OrchestrationURL, consolePath)
	}
	try := "demo/diamond"
	if len(v.cfg.Templates.Dirs) > 0 {
		fmt.Fprintf(p.stderr, "  templates  %d from %s%s\n", len(templates), strings.Join(v.cfg.Templates.Dirs, ", "),
			pick(v.watch != nil, ", read again when they change", ""))
		i := slices.IndexFunc(templates, func(t *template) bool { return t.strategy != strategyCallerProvided })
		if i < 0 {
			return
		}
		// Names may have spaces and quotes.
		if try = templates[i].namespace + "/" + templates[i].name; strings.Trim(try, "/-_.abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			try = "'" + strings.ReplaceAll(try, "'", `'\''`) + "'"
		}
	} else {
		fmt.Fprintf(p.stderr, "  templates  %d for a demonstration; --templates DIR loads your own\n", len(templates))
	}
	fmt.Fprintf(p.stderr, "  try        %s task create %s --wait%s\n", programCalled(), try,
		pick(r.OrchestrationURL == "http://127.0.0.1:8080", "", " --url "+r.OrchestrationURL))
}

func (v *serving) stateLine() string {
	c := &v.cfg.Store
	if c.Memory {
		return "in memory: gone when the process ends; " + c.retention().String()
	}
	durability := map[string]string{
		"always": "on disk before a change is acknowledged",
		"never":  "written, never synced",
	}
	return fmt.Sprintf("%s, %s; %v", c.Path, durability[c.Sync], c.retention())
}

// serveArgs is the command line of serve.
type serveArgs struct {
	configArgs
	seed       string // --seed; "" for none
	readyFile  string // --ready-file; "" for none
	printReady bool
	dev        bool

	exitWithParent bool
	maxLifetime    time.Duration // 0 for no end
}

// serveFlags defines the flags of serve: those of the table of keys, and others.
func serveFlags(o *options, a *serveArgs) {
	a.here = true
	configFileFlag(o, &a.configArgs)
	for i := range configKeys {
		keyFlag(o, &configKeys[i], &a.configArgs)
	}
	handlerFlag(o, &a.configArgs)
	o.StringVar(&a.seed, "seed", "", "`FILE`: start with this state, written by \"store export\"; the store must be empty")
	o.BoolVar(&a.dev, "dev", false, "develop: use --watch, and log as text")
	o.BoolVar(&a.quiet, "quiet", false, "omit the banner")
	o.StringVar(&a.readyFile, "ready-file", "", "`FILE`: write the URLs, the pid and the version to this file, as JSON, once requests are served")
	o.BoolVar(&a.printReady, "print-ready", false, "print the URLs, the pid and the version as JSON on the first line of standard output")
	o.BoolVar(&a.exitWithParent, "exit-with-parent", false,
		"exit when the parent process closes standard input, which must be a pipe")
	o.Func("max-lifetime", "`DURATION`: exit after this time, such as 30m", func(text string) error {
		d, err := parseDuration(text)
		if err == nil && d <= 0 {
			err = errors.New("must be more than 0")
		}
		a.maxLifetime = d
		return err
	})
}

// Signals: SIGTERM and SIGINT end the service, or interrupt a command that waits. A process may
// also end with its parent.

// endOnSignal returns a context that the first signal cancels. A second one ends the process at once, unless both are
// SIGHUP: a terminal that closes sends several of them.
func endOnSignal(ctx context.Context) (_ context.Context, ignore func()) {
	ctx, end := context.WithCancel(ctx)
	// Room for two, since package signal drops what does not fit, and a second signal must count.
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

// failedTimeout is how long open requests may take once the store has failed: the answers to those that waited for it are
// on their way.
const failedTimeout = 200 * time.Millisecond

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
			// The read ends when the last process that has the other end of the pipe is gone, however it ended.
			io.Copy(io.Discard, p.stdin)
			endFor(errParentGone)
		}()
	}
	if a.maxLifetime > 0 {
		afterReal(a.maxLifetime, func() { endFor(fmt.Errorf("it has run for %s (--max-lifetime)", a.maxLifetime)) })
	}
	return ctx, func() { end(context.Canceled) }
}

// timeouts returns how long running handlers, and after them open requests, may take, if the process ends with ctx or
// for a reason.
func (v *serving) timeouts(ctx context.Context, reason error) (handlers, requests time.Duration) {
	if errors.Is(reason, errStoreFailed) { // nothing that they do can be stored
		return 0, failedTimeout
	}
	handlers = time.Duration(v.cfg.Web.ShutdownTimeoutSeconds) * time.Second
	if context.Cause(ctx) == errParentGone {
		return min(handlers, abandonedTimeout), abandonedTimeout
	}
	return handlers, closeTimeout
}

var (
	errInterrupted = &exitError{code: exitInterrupted}
	errWatchEnded  = errors.New("the time to wait is over")
)

// interruptible returns a context that the first SIGINT or SIGTERM ends, with errInterrupted, or the end of
// a time unless it is 0, with errWatchEnded.
func interruptible(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	release := func() {}
	if limit > 0 {
		ctx, release = context.WithTimeoutCause(ctx, limit, errWatchEnded)
	}
	signaled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(signaled, func() { end(errInterrupted) })
	context.AfterFunc(ctx, stop) // a second one ends the process
	return ctx, func() { release(); end(nil) }
}
