package main

// The command console: the console on this machine, in front of a service elsewhere, which need not have a console. It
// forwards the requests of the pages to that service only, with the credentials of the browser, and composes answers
// that the pages need and the service does not have.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

func consoleCommand() command {
	return command{
		name: "console", help: "serve the console on this machine, in front of a service elsewhere",
		more: "The service may be Tasker, which has no console. Credentials stay in the browser, and requests go only to that " +
			"service.",
		examples: []string{"console --url https://tasker.example", "console --listen 127.0.0.1:9090"},
		define: func(o *options) runner {
			o.withClient()
			listen := o.String("listen", "127.0.0.1:8090", "`ADDRESS`: serve on this loopback address")
			return o.asks(func(ctx context.Context, c *client, _ []string) error {
				if at, err := parseListen(*listen); err != nil || !isLoopbackName(at.host) {
					return o.misuse("--listen must be a loopback address with a port, not %q", *listen)
				}
				ctx, ignore := endOnSignal(ctx)
				defer ignore()
				return c.serveConsole(ctx, *listen)
			})
		},
	}
}

// serveConsole serves the console until ctx ends.
func (c *client) serveConsole(ctx context.Context, listen string) error {
	log := slog.New(slog.NewTextHandler(c.p.stderr, nil))
	f, err := newFront(ctx, c, listen, log)
	if err != nil {
		return err
	}
	l, err := listenTCP(listen)
	if err != nil {
		return fmt.Errorf("listening on %s (--listen): %w", listen, err)
	}
	s := newHTTPServer(l, f.surface, newConnections(f.surface.svc.quotas, log), log)
	defer context.AfterFunc(ctx, func() { s.server.Close() })()
	fmt.Fprintf(c.p.stdout, "%s%s shows %s\n", s.url(), consolePath, redactURL(c.url))
	if err := s.serve(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// front is a console in front of a service elsewhere.
type front struct {
	c       *client // without credentials
	target  *url.URL
	proxy   *httputil.ReverseProxy
	surface *surface
	lacks   sync.Map // those of composedRoutes that the service turned out to lack
}

// composedRoutes holds the routes that are composed where the service lacks them, by what follows the path of a task.
var composedRoutes = map[string]func(p *taskParts, ctx context.Context) any{
	"/explain": (*taskParts).explanation, "/transitions": (*taskParts).transitions,
}

// newFront returns a front. It finds out whether the service requires credentials.
func newFront(ctx context.Context, c *client, listen string, log *slog.Logger) (*front, error) {
	// The empty header matters: with nil the client would lend the credentials of this process to everybody who can
	// open the console.
	f := &front{c: &client{p: c.p, url: c.url, base: c.base, http: c.http, sent: http.Header{}}}
	_, err := f.c.get(ctx, "/v1/tasks", url.Values{"per_page": {"1"}})
	secured := hasStatus(err, 401, 403)
	if err != nil && !secured {
		return nil, err
	}
	f.target, _ = url.Parse(c.base)
	f.proxy = &httputil.ReverseProxy{Rewrite: f.rewrite, ModifyResponse: f.adapt, ErrorHandler: f.unanswered, FlushInterval: -1,
		Transport: c.http.Transport, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	cfg, clock := defaultConfig(), newRealClock()
	cfg.Role, cfg.Worker.Web.Listen = "worker", listen // a role without a store
	parts := serviceOptions{cfg: cfg, log: log, clock: clock, files: new(atomic.Pointer[registry]), handlers: outsideOnly()}
	parts.files.Store(newRegistry(nil))
	if parts.auth, err = newAuthenticators(cfg, &provenance{}, clock, log); err != nil {
		return nil, err
	}
	svc, err := openService(parts)
	if err != nil {
		return nil, err
	}
	f.surface = newSurface(svc, newSurfaceCache(), cfg.Role, orchestrationError)
	site := newConsoleSite(cfg, &authConfig{Enabled: secured, APIKeyHeader: defaultAPIKeyHeader})
	site.page = strings.Replace(site.page, " data-fixture=", ` data-far="`+html.EscapeString(c.host())+`" data-fixture=`, 1)
	pages := &orchestrationAPI{surface: f.surface, console: func() *consoleSite { return site }}
	f.surface.handle([]route{
		{"GET /console", public, pages.consolePage},
		{"GET /console/{page...}", public, pages.consolePage},
		{"GET /console/web/{build}/{file}", public, pages.consoleFile},
		{"GET /{$}", public, redirectTo(consolePath)},
		{"GET /api-docs/ui", public, redirectTo(c.base + "/api-docs/ui")},
		{"GET /health/{path...}", public, f.forward},
		{"/v1/{path...}", public, f.forward},
	})
	return f, nil
}

func redirectTo(address string) handlerFunc {
	return func(w *responseWriter, r *http.Request) (any, error) {
		http.Redirect(w, r, address, http.StatusFound)
		return written{}, nil
	}
}

// credentialHeaders are the headers of requests that are a caller's credentials.
var credentialHeaders = []string{"Authorization", defaultAPIKeyHeader}

// with returns a client that has the credentials of a request.
func (f *front) with(r *http.Request) *client {
	c := *f.c
	c.sent = http.Header{}
	for _, name := range credentialHeaders {
		if v := r.Header[http.CanonicalHeaderKey(name)]; v != nil {
			c.sent[http.CanonicalHeaderKey(name)] = v
		}
	}
	return &c
}

// forward passes a request on to the service, or answers with what is composed.
func (f *front) forward(w *responseWriter, r *http.Request) (any, error) {
	h := w.Header()
	keepToOwnPages(h)
	// The responses of a foreign service come from this origin, whose storage has the credentials: none may run as a
	// page.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	if d, ok := f.composed(r, r.URL.Path, false); ok {
		return d, nil
	}
	if r.Method == http.MethodPost && r.URL.Path == "/v1/tasks" {
		// create reads the body again if the service says that a member is missing.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
	}
	f.proxy.ServeHTTP(w, r)
	return written{}, nil
}

// rewrite makes the request to the service: what only concerns the browser and this front stays behind.
func (f *front) rewrite(p *httputil.ProxyRequest) {
	p.SetURL(f.target)
	// Without the browser's Accept-Encoding, the transport asks for gzip itself and decodes it, so that adapt reads
	// plain text.
	for _, name := range []string{"Cookie", "Origin", "Referer", "Accept-Encoding", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"} {
		p.Out.Header.Del(name)
	}
	q := p.Out.URL.Query()
	if page, err := strconv.Atoi(q.Get("cursor")); err == nil { // adaptList gave it
		q.Del("cursor")
		q.Set("page", strconv.Itoa(page))
		p.Out.URL.RawQuery = q.Encode()
	}
}

// unanswered answers a request that the service did not.
func (f *front) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusBadGateway)
	w.Write(refusalText("BAD_GATEWAY", f.c.failed(r.Context(), err).Error()))
}

func refusalText(code, message string) []byte {
	return asDocument(map[string]any{"error": map[string]any{"code": code, "message": message}}).raw
}

// composed composes the answer for a route that the service lacks: that is known from earlier requests, or now is true.
func (f *front) composed(r *http.Request, path string, now bool) (d document, ok bool) {
	at := strings.LastIndexByte(path, '/')
	compose := composedRoutes[path[max(at, 0):]]
	if compose == nil || r.Method != http.MethodGet {
		return d, false
	}
	if _, known := f.lacks.Load(path[at:]); !known && !now {
		return d, false
	}
	p, err := f.with(r).taskParts(r.Context(), path[:at])
	if err != nil {
		return d, false
	}
	// Only after the parts were found: the status could have meant that there is no such task.
	f.lacks.Store(path[at:], true)
	return asDocument(compose(p, r.Context())), true
}

// adapt changes a response of the service to what the pages can read.
func (f *front) adapt(resp *http.Response) error {
	r := resp.Request
	path := strings.TrimPrefix(r.URL.Path, f.target.Path)
	maps.DeleteFunc(resp.Header, func(name string, _ []string) bool { // pages of others may not read answers here
		return name == "Set-Cookie" || name == "Content-Security-Policy" || strings.HasPrefix(name, "Access-Control-")
	})
	isJSON := strings.HasPrefix(resp.Header.Get("Content-Type"), jsonType)
	if list := r.Method == http.MethodGet && path == "/v1/tasks"; !isJSON && resp.StatusCode < 400 ||
		isJSON && resp.StatusCode != http.StatusOK && !list {
		return nil
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return err
	}
	status, text := f.adapted(r, path, resp.StatusCode, isJSON, text)
	resp.StatusCode, resp.Body, resp.ContentLength = status, io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Set("Content-Type", jsonType)
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}

// adapted returns the status and the text of a changed response.
func (f *front) adapted(r *http.Request, path string, status int, isJSON bool, text []byte) (int, []byte) {
	c, ctx := f.with(r), r.Context()
	missing := (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && !isJSON
	switch get := r.Method == http.MethodGet; {
	case missing:
		if d, ok := f.composed(r, path, true); ok {
			return http.StatusOK, d.raw
		}
		return http.StatusNotFound, refusalText("NOT_AVAILABLE", fmt.Sprintf("%s does not serve this (%s %s).", c.host(), r.Method, path))
	case status == http.StatusUnprocessableEntity && path == "/v1/tasks" && r.GetBody != nil && !isJSON:
		return f.create(c, r)
	case !isJSON:
		return status, refusalText("REFUSED", cmp.Or(headline(string(text)), http.StatusText(status)))
	case get && path == "/v1/tasks":
		return f.adaptList(c, r, status, text)
	case get && strings.HasSuffix(path, "/audit"):
		return status, plainAudit(readDocument(text)).raw
	case get && strings.Count(path, "/") == 5 && strings.HasPrefix(path, "/v1/templates/"):
		return status, c.withDependencies(ctx, readDocument(text)).raw
	}
	return status, text
}

// create creates a task for which the service requires more than the page has sent.
func (f *front) create(c *client, r *http.Request) (int, []byte) {
	sent, err := r.GetBody()
	body := map[string]any{}
	if err == nil {
		d := json.NewDecoder(sent)
		d.UseNumber()
		err = d.Decode(&body)
	}
	if err == nil {
		var made document
		if made, _, err = c.create(r.Context(), body, r.Header.Get("Idempotency-Key"), "console"); err == nil {
			return http.StatusOK, made.raw
		}
	}
	return refusedStatus(err), refusalText("REFUSED", err.Error())
}

// refusedStatus returns the status of the response that an error is for, or 400.
func refusedStatus(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok && e.status >= 400 {
		return e.status
	}
	return http.StatusBadRequest
}

// adaptList adds to a page of the list of tasks, of a service that pages by number, their states and what leads to the
// next page. With a filter, which such a service may not know, there is one page.
func (f *front) adaptList(c *client, r *http.Request, status int, text []byte) (int, []byte) {
	d, filter := readDocument(text), r.URL.Query()
	if d.at("pagination.next_cursor").raw != nil {
		return status, text
	}
	size, _ := strconv.Atoi(filter.Get("per_page"))
	for _, name := range []string{"per_page", "page", "cursor", "counts", "context"} {
		filter.Del(name)
	}
	if len(filter) > 0 {
		tasks, total, err := c.tasks(r.Context(), filter, max(size, 1))
		if err != nil {
			return refusedStatus(err), refusalText("NOT_AVAILABLE", err.Error())
		}
		return http.StatusOK, asDocument(listAnswer(c.withStates(r.Context(), tasks), max(total, len(tasks)), "")).raw
	}
	if status != http.StatusOK {
		return status, text
	}
	next := ""
	if d.text("pagination.has_next") == "true" {
		next = strconv.Itoa(int(d.number("pagination.page")) + 1)
	}
	tasks := c.withStates(r.Context(), d.at("tasks").list())
	return status, asDocument(listAnswer(tasks, int(d.number("pagination.total_count")), next)).raw
}

func listAnswer(tasks []document, total int, next string) any {
	return map[string]any{"tasks": tasks, "pagination": map[string]any{"total_count": total, "has_next": next != "", "next_cursor": next}}
}
