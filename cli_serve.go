package main

// The serve command: it opens what a configuration asks for, in order, says so,
// and closes it in the reverse order.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// serving is a running process: its listeners, and the service behind them.
type serving struct {
	cfg           *Config
	log           *slog.Logger
	clock         *realClock
	orchestration *httpServer // nil when the role is switched off
	worker        *httpServer
	failed        chan error // of a listener that ended by itself
}

// readyReport is what --ready-file and --print-ready tell.
type readyReport struct {
	OrchestrationURL string `json:"orchestration_url"`
	WorkerURL        string `json:"worker_url"`
	MountURL         string `json:"mount_url"`
	PID              int    `json:"pid"`
	Version          string `json:"version"`
}

func (p *process) serve(ctx context.Context, args []string) error {
	flags, err := parseServeArgs(args, p.stderr)
	if err != nil {
		return err
	}
	cfg, origin, err := p.loadConfig(flags.configArgs, p.environ)
	if err != nil {
		return err
	}
	log := p.logger(cfg)
	ctx, release := p.lifetime(ctx, flags, log)
	defer release()
	if err := checkSwaggerFiles(&cfg.Docs); err != nil {
		return err
	}
	handlers, registry, err := loadWork(cfg, log, p.getenv)
	if err != nil {
		return err
	}
	v := &serving{cfg: cfg, log: log, clock: newRealClock(), failed: make(chan error, 2)}
	defer v.clock.stop()
	auth, err := newAuthenticators(cfg, origin, v.clock, log)
	if err != nil {
		return err
	}
	defer auth.close()
	if err := removeReadyFile(flags.readyFile); err != nil {
		return err
	}
	gates, err := v.listen()
	if err != nil {
		return err
	}
	w, err := openWorkload(flags.seed, serviceOptions{
		cfg: cfg, log: log, auth: auth, clock: v.clock, registry: registry, handlers: handlers,
		deterministic: cfg.Fixture.DeterministicIDs,
	}, gates)
	if err != nil {
		v.stopListening(closeTimeout)
		return err
	}
	if !cfg.Log.Quiet {
		v.banner(p, len(registry.all()))
	}
	report := v.report()
	err = v.awaitReady(ctx, w)
	if err == nil && ctx.Err() == nil {
		err = p.announce(report, flags)
	}
	if err == nil {
		err = v.wait(ctx)
	}
	defer dropReadyFile(flags.readyFile, report.PID)
	return errors.Join(err, v.shutDown(ctx, w))
}

// workload is what a process serves: one service, or in fixture mode one that
// others replace.
type workload interface {
	ready() bool                // nothing keeps it from its work any more
	finish(ctx context.Context) // its handlers may go on until ctx ends
	close() error               // makes its store durable
}

// openWorkload opens what the configuration asks for, and the gates to it.
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

// loadWork is what steps can be run by, and the templates that say which.
func loadWork(cfg *Config, log *slog.Logger, getenv func(string) string) (*handlerSet, *registry, error) {
	handlers, err := newHandlerSet(&cfg.Worker, version, getenv)
	if err != nil {
		return nil, nil, err
	}
	registry, warnings, err := loadTemplates(cfg.Templates.Dirs, cfg.Environment, handlers.check)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	warnOfHandlers(registry, handlers, log)
	if cfg.Role == "orchestration" {
		handlers = outsideOnly()
	}
	return handlers, registry, nil
}

// warnOfHandlers names the steps that no attempt can run as things are configured.
func warnOfHandlers(r *registry, h *handlerSet, log *slog.Logger) {
	for _, t := range r.all() {
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
	level.UnmarshalText([]byte(cfg.Log.Level)) // the configuration checked the word
	o := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "text" || cfg.Log.Format == "auto" && isTerminal(p.stderr) {
		return slog.New(slog.NewTextHandler(p.stderr, o))
	}
	return slog.New(slog.NewJSONHandler(p.stderr, o))
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// listen opens the listeners of the roles that are switched on; once they are
// open they stay, so that port 0 is never probed and lost again.
func (v *serving) listen() (*gates, error) {
	ids := newIDSource(v.clock, nil)
	g := &gates{
		orchestration: gate{starting: &startingAPI{v.cfg, v.clock, ids, false}},
		worker:        gate{starting: &startingAPI{v.cfg, v.clock, ids, true}},
	}
	var err error
	if v.cfg.Role != "worker" {
		v.orchestration, err = v.serveOn(&v.cfg.Orchestration.Web, "--listen", &g.orchestration)
	}
	if err == nil && v.cfg.Role != "orchestration" {
		v.worker, err = v.serveOn(&v.cfg.Worker.Web, "--worker-listen", &g.worker)
	}
	if err != nil {
		v.stopListening(closeTimeout)
	}
	return g, err
}

func (v *serving) serveOn(web *roleWebConfig, flag string, h http.Handler) (*httpServer, error) {
	address := web.Listen
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use by another program: choose another address with %s", address, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("listening on %s (%s): %w", address, flag, err)
	}
	if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() {
		v.warnOfOpenness(web, a.String())
	}
	s := newHTTPServer(l, h, v.log)
	go func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			v.failed <- fmt.Errorf("serving %s: %w", address, err)
		}
	}()
	return s, nil
}

// warnOfOpenness is about an address that others may reach.
func (v *serving) warnOfOpenness(web *roleWebConfig, address string) {
	m := &v.cfg.Mount
	switch {
	case !web.Auth.Enabled:
		v.log.Warn("anyone who reaches this address can do everything: authentication is off", "address", address)
	case web == &v.cfg.Orchestration.Web && m.Path != "" && !m.Auth.Enabled:
		v.log.Warn("anyone who reaches this address can do everything at the mount point: authentication is off there",
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

// readyEvery is how often a service that is not ready at its start is looked at.
const readyEvery = 100 * time.Millisecond

// awaitReady returns when nothing keeps the service from its work any more, as
// a full disk does, or when the process is told to end, or a listener failed.
func (v *serving) awaitReady(ctx context.Context, w workload) error {
	for ctx.Err() == nil && !w.ready() {
		if err, failed := receiveWithin(v.failed, readyEvery); failed {
			return err
		}
	}
	return nil
}

// wait returns when the process is told to end, or a listener failed.
func (v *serving) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-v.failed:
		return err
	}
}

// closeTimeout bounds how long open requests may take once handlers have ended.
const closeTimeout = 2 * time.Second

// shutDown lets running handlers end, with the API still answering; then the
// requests; then it makes the store durable. ended is the context whose end it is.
func (v *serving) shutDown(ended context.Context, w workload) error {
	handlers, requests := v.graces(ended)
	ctx, cancel := context.WithTimeout(context.Background(), handlers)
	defer cancel()
	w.finish(ctx)
	v.stopListening(requests)
	return w.close()
}

// stopListening gives open requests until the limit.
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

// removeReadyFile removes what an earlier process left, before anything listens.
func removeReadyFile(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old ready file: %w", err)
	}
	return nil
}

// dropReadyFile removes the file at the end, if it is still this process's.
func dropReadyFile(path string, pid int) {
	if path == "" {
		return
	}
	var r readyReport
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &r) == nil && r.PID == pid {
		os.Remove(path)
	}
}

// banner says in at most six lines where everything is and what to try.
func (v *serving) banner(p *process, templates int) {
	r := v.report()
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
		fmt.Fprintf(p.stderr, "  templates  %d from %s\n", templates, strings.Join(v.cfg.Templates.Dirs, ", "))
		fmt.Fprintf(p.stderr, "  try        curl -s %s/v1/templates%s\n", r.OrchestrationURL, v.curlToken())
		return
	}
	fmt.Fprintf(p.stderr, "  templates  %d for a demonstration; --templates DIR loads your own\n", templates)
	fmt.Fprintf(p.stderr, "  try        curl -s %s/v1/tasks%s -H 'Content-Type: application/json' "+
		"-d '{\"namespace\":\"demo\",\"name\":\"diamond\"}'\n", r.OrchestrationURL, v.curlToken())
	fmt.Fprintf(p.stderr, "  then       curl -s '%s/v1/tasks?status=complete'%s\n", r.OrchestrationURL, v.curlToken())
}

// curlToken is what the commands of the banner need where authentication is on.
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
	durability := map[string]string{
		"always":   "on disk before a change is answered",
		"interval": fmt.Sprintf("on disk within %d ms", c.SyncIntervalMS),
		"never":    "written, never synced",
	}
	return fmt.Sprintf("%s, %s; %v", c.Path, durability[c.Sync], c.retention())
}

// How long a process lives that was started for something else: as long as its
// parent, or a given time.

// orphanGrace is what running handlers, and then open requests, get once the
// parent is gone: nobody waits for them any more.
const orphanGrace = 500 * time.Millisecond

// errOrphaned is why the process ends whose parent is gone.
var errOrphaned = errors.New("standard input was closed: the parent is gone")

// lifetime is a context that ends with ctx, and when the command line says so.
func (p *process) lifetime(ctx context.Context, a *serveArgs, log *slog.Logger) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	endFor := func(cause error) {
		log.Info("the service ends", "reason", cause.Error())
		end(cause)
	}
	if a.exitWithParent {
		go func() {
			io.Copy(io.Discard, p.stdin)
			endFor(errOrphaned)
		}()
	}
	if a.maxLifetime > 0 {
		afterReal(a.maxLifetime, func() { endFor(fmt.Errorf("it has lived for %s (--max-lifetime)", a.maxLifetime)) })
	}
	return ctx, func() { end(context.Canceled) }
}

// graces are how long running handlers, and after them open requests, get to end.
func (v *serving) graces(ctx context.Context) (handlers, requests time.Duration) {
	handlers = time.Duration(v.cfg.Web.ShutdownTimeoutSeconds) * time.Second
	if context.Cause(ctx) == errOrphaned {
		return min(handlers, orphanGrace), orphanGrace
	}
	return handlers, closeTimeout
}
