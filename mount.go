package main

// The mount-point API: the service under a path prefix, without a version, for
// clients of the embedded form. This is where it is mounted, what its links look
// like, and what its errors are.

import (
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
)

// mountAPI is the surface under mount.path.
type mountAPI struct {
	*surface
	prefix  string         // mount.path
	trusted []netip.Prefix // proxies whose X-Forwarded-Prefix counts
}

// newMountAPI is the surface, or nil where it is switched off. It is served by
// the listener of the orchestration role, with whose requests its own are counted.
func newMountAPI(s *service, stats *httpStats) *mountAPI {
	c := &s.cfg.Mount
	if c.Path == "" {
		return nil
	}
	a := &mountAPI{newSurface(s, "mount", mountError), c.Path, s.cfg.Web.trustedProxies()}
	a.stats, a.status, a.taskPath = stats, mountStatus, a.taskLink
	a.openapi = c.documented(a.openapi)
	a.handle(c.mounted(a.routes()))
	return a
}

// under tells whether a path is that of a mount point or below it.
func (c *mountConfig) under(path string) bool {
	rest, ok := strings.CutPrefix(path, c.Path)
	return ok && c.Path != "" && (rest == "" || rest[0] == '/')
}

// mounted are the rows with the prefix before their paths, those that the
// configuration guards with their permission. The root answers with and without
// a slash at its end.
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

// guarded is what the rows ask for that only the configuration guards.
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

// idleGuards are the keys that ask for a permission where nobody is asked for any.
func (c *mountConfig) idleGuards() (keys []string) {
	if c.Path == "" || c.Auth.Enabled {
		return nil
	}
	if c.StatusRequiresAuth {
		keys = append(keys, "mount.status_requires_auth")
	}
	if c.MetricsRequireAuth {
		keys = append(keys, "mount.metrics_require_auth")
	}
	return keys
}

// link is a path of the surface as the caller can use it: below the mount
// point, and below what a trusted proxy says that it took off.
func (a *mountAPI) link(r *http.Request, path string) string {
	before := ""
	if isTrustedProxy(peerAddress(r), a.trusted) {
		before = strings.TrimRight(r.Header.Get("X-Forwarded-Prefix"), "/")
	}
	if !mountPathForm.MatchString(before) {
		before = ""
	}
	return before + a.prefix + path
}

func (a *mountAPI) taskLink(r *http.Request, id uuid) string { return a.link(r, "/tasks/"+id.String()) }

// mountPathForm is a path that needs no escaping, in patterns, links and headers.
var mountPathForm = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*){1,8}$`)

// reservedMounts are the first parts of paths that the orchestration role has.
var reservedMounts = []string{"v1", "api", "api-docs", "health", "metrics", "config", "_stepwell"}

// checkMountPath is for mount.path.
func checkMountPath(s string) error {
	switch {
	case s == "":
		return nil
	case s[0] != '/':
		return errors.New("does not begin with a slash")
	case strings.HasSuffix(s, "/"):
		return errors.New("ends with a slash")
	case len(s) > 200 || !mountPathForm.MatchString(s):
		return errors.New(`is not a path like /stepwell: up to 8 parts of letters, digits, "_", "-", "~" and "."`)
	}
	first, _, _ := strings.Cut(s[1:], "/")
	for _, reserved := range reservedMounts {
		if first == reserved {
			return errors.New("is at or below /" + reserved + ", which the orchestration API has itself")
		}
	}
	return nil
}

// mountErrorOf gives each kind of failure the type and code that the surface
// has for it.
var mountErrorOf = [...]struct{ kind, code string }{
	internalFailure:   {"InternalError", "INTERNAL_ERROR"},
	badRequest:        {"BadRequest", "BAD_REQUEST"},
	invalidUUID:       {"BadRequest", "BAD_REQUEST"},
	invalidJSON:       {"BadRequest", "BAD_REQUEST"},
	notFound:          {"NotFound", "NOT_FOUND"},
	namespaceNotFound: {"NamespaceNotFound", "NAMESPACE_NOT_FOUND"},
	templateNotFound:  {"HandlerNotFound", "HANDLER_NOT_FOUND"},
	taskMissing:       {"TaskNotFound", "TASK_NOT_FOUND"},
	stepMissing:       {"StepNotFound", "STEP_NOT_FOUND"},
	methodNotAllowed:  {"MethodNotAllowed", "METHOD_NOT_ALLOWED"},
	conflict:          {"Conflict", "CONFLICT"},
	invalidTransition: {"InvalidTransition", "INVALID_TRANSITION"},
	tooLarge:          {"PayloadTooLarge", "PAYLOAD_TOO_LARGE"},
	unsupportedMedia:  {"UnsupportedMediaType", "UNSUPPORTED_MEDIA_TYPE"},
	invalidFields:     {"ValidationError", "INVALID_TASK_CONFIG"},
	unauthenticated:   {"AuthenticationError", "AUTHENTICATION_FAILED"},
	forbidden:         {"AuthorizationError", "AUTHORIZATION_FAILED"},
	unavailable:       {"ServiceUnavailable", "SERVICE_UNAVAILABLE"},
	backpressure:      {"ServiceUnavailable", "SERVICE_UNAVAILABLE"},
	misdirected:       {"BadRequest", "BAD_REQUEST"},
	notIdle:           {"ServiceUnavailable", "SERVICE_UNAVAILABLE"}, // which nothing here waits for
	unverified:        {"ValidationError", "INVALID_TASK_CONFIG"},    // which nothing here asks for
}

// mountStatus is the status of a failure, which differs from the roles' in one
// case: what the state does not allow is a conflict here.
func mountStatus(k failureKind) int {
	if k == invalidTransition {
		return http.StatusConflict
	}
	return roleStatus(k)
}

// mountErrorView is the body of an error.
type mountErrorView struct {
	Error struct {
		Type    string              `json:"type"`
		Message string              `json:"message"`
		Details map[string][]string `json:"details,omitempty"` // by field
		Code    string              `json:"code"`
	} `json:"error"`
}

func mountError(f *failure, _ string, _ instant) any {
	var v mountErrorView
	v.Error.Type, v.Error.Code = mountErrorOf[f.kind].kind, mountErrorOf[f.kind].code
	v.Error.Message = f.message
	for _, p := range f.details {
		if v.Error.Details == nil {
			v.Error.Details = map[string][]string{}
		}
		v.Error.Details[p.Field] = append(v.Error.Details[p.Field], p.Message)
	}
	return v
}
