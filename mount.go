package main

// The mount-point API: the service under a path prefix and without a version, for clients of the
// embedded service. This file has the prefix, links and errors.

import (
	"net/http"
	"net/netip"
	"strings"
)

// mountAPI is the surface under mount.path.
type mountAPI struct {
	surface   *surface
	prefix    string         // mount.path
	trusted   []netip.Prefix // proxies whose X-Forwarded-Prefix counts
	analytics *mountAnalytics
}

// newMountAPI returns the surface, or nil if it is off. It shares the listener of
// the orchestration role, and its requests are counted in that role's stats.
func newMountAPI(s *service, shared *surfaceCache, stats *httpStats) *mountAPI {
	c := &s.cfg.Mount
	if c.Path == "" {
		return nil
	}
	a := &mountAPI{
		surface: newSurface(s, shared, "mount", mountError), prefix: c.Path, trusted: s.cfg.Web.trustedProxies(),
		analytics: &mountAnalytics{service: s},
	}
	a.surface.stats, a.surface.status, a.surface.taskPath = stats, mountStatus, a.taskLink
	a.surface.openapi = shared.document(a.surface)
	a.surface.handle(c.mounted(a.routes()))
	return a
}

// under reports whether a path is the mount point or below it.
func (c *mountConfig) under(path string) bool {
	rest, ok := strings.CutPrefix(path, c.Path)
	return ok && c.Path != "" && (rest == "" || rest[0] == '/')
}

// The rows that [mount] can put behind a permission.
const (
	mountStatusRoute  = "GET /health/status"
	mountMetricsRoute = "GET /metrics"
)

// guarded returns the rows that the configuration guards, by pattern, with the
// permissions they require.
func (c *mountConfig) guarded() map[string][]permission {
	guarded := map[string][]permission{}
	if c.StatusRequiresAuth {
		guarded[mountStatusRoute] = needs(permSystemAnalyticsRead)
	}
	if c.MetricsRequireAuth {
		guarded[mountMetricsRoute] = needs(permSystemAnalyticsRead)
	}
	return guarded
}

// mounted returns the rows with the prefix before their paths, and with the
// permissions that the configuration adds. The root answers with and without a
// trailing slash.
func (c *mountConfig) mounted(rows []route) []route {
	var mounted []route
	for _, row := range rows {
		if p, ok := c.guarded()[row.pattern]; ok {
			row.permissions = p
		}
		method, path, _ := strings.Cut(row.pattern, " ")
		if path == "/{$}" {
			mounted = append(mounted, route{method + " " + c.Path, row.permissions, row.handle})
		}
		row.pattern = method + " " + c.Path + path
		mounted = append(mounted, row)
	}
	return mounted
}

// link returns a path below the mount point as the caller must write it, with the
// prefix that a trusted proxy says it has removed.
func (a *mountAPI) link(r *http.Request, path string) string {
	before := ""
	if isTrustedProxy(peerAddress(r.RemoteAddr), a.trusted) {
		before = strings.TrimRight(r.Header.Get("X-Forwarded-Prefix"), "/")
	}
	// The prefix becomes a part of links and headers, so it must be a plain path.
	if !mountPathForm().MatchString(before) {
		before = ""
	}
	return before + a.prefix + path
}

func (a *mountAPI) taskLink(r *http.Request, id uuid) string { return a.link(r, "/tasks/"+id.String()) }

// mountErrorView is the body of an error.
type mountErrorView struct {
	Error struct {
		Type    string              `json:"type"`
		Message string              `json:"message"`
		Details map[string][]string `json:"details,omitempty"` // by field
		Code    string              `json:"code"`
		TaskID  any                 `json:"task_id,omitempty"` // that a repeated request created
	} `json:"error"`
}

func mountError(f *failure, _ string, _ instant) any {
	var v mountErrorView
	v.Error.Type, v.Error.Code = failureForms[f.kind].mount.kind, mountCode(f.kind)
	v.Error.Message, v.Error.Details = f.message, map[string][]string{}
	if f.kind == taskDropped {
		v.Error.TaskID = f.extra.value
	}
	for _, p := range f.details {
		v.Error.Details[p.Field] = append(v.Error.Details[p.Field], p.Message)
	}
	return v
}

// links answers at the root with the main paths.
func (a *mountAPI) links(w *responseWriter, r *http.Request) (any, error) {
	links := map[string]string{
		"handlers": "/handlers", "tasks": "/tasks", "performance": "/analytics/performance",
		"bottlenecks": "/analytics/bottlenecks", "health": "/health/ready", "status": "/health/status",
		"metrics": "/metrics", "openapi": "/api-docs.json", "docs": "/api-docs/ui",
	}
	for name, path := range links {
		links[name] = a.link(r, path)
	}
	return linksReply(w, r, links), nil
}
