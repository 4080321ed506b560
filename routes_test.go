package main

// Every route of every surface with every kind of credentials.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// authSurface is a surface with authentication, at the time authTestNow.
type authSurface struct {
	t testing.TB
	*surface
	log    *logLines
	prefix string // before the paths of its routes
}

// newAuthSurface opens the surface of a role, which trusts the keyring's RSA key
// and the API keys of surfaceKeys, with its section changed by set.
func newAuthSurface(t testing.TB, role string, set func(c *authConfig)) *authSurface {
	t.Helper()
	log := &logLines{}
	svc := newTestService(t, serviceTest{
		clock: newVirtualClock(authTestNow), log: log, templates: apiTemplates,
		config: func(c *Config) {
			c.Orchestration.Web.ConfigEndpointEnabled = true
			a := c.authConfig(role)
			a.Enabled, a.JWTPublicKey = true, publicPEM(t, authKeys().rsa)
			a.APIKeysEnabled, a.APIKeys = true, slices.Clone(surfaceKeys)
			set(a)
		},
	})
	svc.store.events.close() // an admitted stream ends at once
	switch role {
	case "worker":
		return &authSurface{t, newWorkerAPI(svc, nil).surface, log, ""}
	case "mount":
		return &authSurface{t, newOrchestrationAPI(svc, nil).mount.surface, log, svc.cfg.Mount.Path}
	}
	return &authSurface{t, newOrchestrationAPI(svc, nil).surface, log, ""}
}

// add registers another row.
func (s *authSurface) add(row route) {
	method, path, _ := strings.Cut(row.pattern, " ")
	row.pattern = method + " " + s.prefix + path
	s.handle([]route{row})
}

var surfaceKeys = []apiKeyConfig{
	{Key: "the-key-that-may-do-everything", Permissions: []string{"*"}, Description: "root"},
	{Key: "the-key-that-may-do-little", Permissions: []string{"system:*"}, Description: "metrics"},
}

// ask sends a request to a row, with header lines. Ids in the path do not exist.
func (s *authSurface) ask(pattern string, lines ...string) *answer {
	s.t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.ReplaceAll(path, "{$}", "")
	for strings.Contains(path, "{") {
		before, rest, _ := strings.Cut(path, "{")
		_, after, _ := strings.Cut(rest, "}")
		path = before + "01890a5d-ac96-774b-bcce-b302099a8057" + after
	}
	a := served(s.t, s, method, s.prefix+path, `{}`, lines...)
	checkDeclared(s.t, s.name, method, s.prefix+path, a.status)
	return a
}

// authWant is the expected result of authentication.
type authWant struct {
	status           int // 0: admitted
	message          string
	reason, severity string
	retry            string
	challenge        string
}

func (want authWant) check(t *testing.T, what string, a *answer) {
	t.Helper()
	got := authWant{
		reason: a.header.Get("X-Auth-Failure-Reason"), severity: a.header.Get("X-Auth-Failure-Severity"),
		challenge: a.header.Get("WWW-Authenticate"),
	}
	if want.status == 0 {
		if a.status == 401 || a.status == 403 || got != (authWant{}) {
			t.Errorf("%s: got %d, %+v, %s; want it admitted", what, a.status, got, a.body)
		}
		return
	}
	got.status, got.message, got.retry = a.status, a.text("error.message"), a.header.Get("Retry-After")
	if got != want {
		t.Errorf("%s: got %+v; want %+v", what, got, want)
	}
	code := map[int]string{401: "AUTHENTICATION_FAILED", 403: "AUTHORIZATION_FAILED"}[want.status]
	named := a.get("error.type") != nil || a.text("error.request_id") == a.header.Get("X-Request-Id")
	if a.text("error.code") != code || !named { // the mount-point API returns the request id only in the header
		t.Errorf("%s: got %s; want code %s and the request id of the header", what, a.body, code)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s: got Content-Type %q; want application/json", what, got)
	}
}

const (
	challengeMissing = `Bearer realm="stepwell"`
	challengeInvalid = `Bearer error="invalid_token"`
	challengeScope   = `Bearer error="insufficient_scope"`
)

var (
	wantLetIn     = authWant{}
	wantMissing   = authWant{401, "Missing credentials", "missing", "low", "", challengeMissing}
	wantExpired   = authWant{401, "Expired credentials", "expired", "low", "", challengeInvalid}
	wantMalformed = authWant{401, "Malformed credentials", "malformed", "medium", "5", challengeInvalid}
	wantInvalid   = authWant{401, "Invalid credentials", "invalid", "medium", "5", challengeInvalid}
	wantForged    = authWant{401, "Invalid credentials", "invalid", "high", "60", challengeInvalid}
)

func wantUnknown(names string) authWant {
	return authWant{401, "Unknown permissions: " + names, "invalid", "medium", "5", challengeInvalid}
}

func wantLacking(p permission) authWant {
	return authWant{403, "Missing required permission: " + p.String(), "forbidden", "medium", "5", challengeScope}
}

// tokenMaker makes tokens, one for each set of permissions.
type tokenMaker struct {
	t    testing.TB
	made map[string]string
}

func (k tokenMaker) with(permissions ...string) string {
	list := must(json.Marshal(append([]string{}, permissions...)))(k.t)
	if k.made[string(list)] == "" {
		k.made[string(list)] = "Authorization: Bearer " + rs256(k.t, claimsWith("permissions", string(list)))
	}
	return k.made[string(list)]
}

// without returns a token for all permissions except some.
func (k tokenMaker) without(needed []permission) string {
	var names []string
	for p := range permissionCount {
		if !slices.Contains(needed, p) {
			names = append(names, p.String())
		}
	}
	return k.with(names...)
}

// credentialCase holds credentials, and the expected answer of a protected route.
type credentialCase struct {
	name            string
	lines           []string
	strict, lenient authWant
}

// brokenCredentials returns credentials that every protected route refuses.
func brokenCredentials(t testing.TB) []credentialCase {
	bearer := func(token string) []string { return []string{"Authorization: Bearer " + token} }
	claims := func(name, value string) []string { return bearer(rs256(t, claimsWith(name, value))) }
	other := signedText(t, "RS256", authKeys().rsa2, `{"alg":"RS256"}`, goodClaims(""))
	both := func(name string, lines []string, want authWant) credentialCase {
		return credentialCase{name, lines, want, want}
	}
	return []credentialCase{
		both("no credentials", nil, wantMissing),
		both("another scheme", []string{"Authorization: Basic eDp5"}, wantMissing),
		both("a broken token", bearer("x.y"), wantMalformed),
		both("no token", []string{"Authorization: Bearer"}, wantMalformed),
		both("two tokens", append(bearer("x"), bearer("y")...), wantMalformed),
		both("a token of another key", bearer(other), wantForged),
		both("an expired token", claims("exp", "1"), wantExpired),
		both("a token without end", claims("exp", ""), wantInvalid),
		both("another issuer", claims("iss", `"other"`), wantInvalid),
		both("another audience", claims("aud", `["other"]`), wantInvalid),
		both("not yet valid", claims("nbf", "1767272400"), wantInvalid),
		both("an unknown key", []string{"X-API-Key: the-key-of-nobody-at-all"}, wantForged),
		both("two keys", []string{"X-API-Key: a", "X-API-Key: b"}, wantMalformed),
		both("an empty key", []string{"X-API-Key: "}, wantMissing),
		both("an expired token and a good key",
			append(claims("exp", "1"), "X-API-Key: the-key-that-may-do-everything"), wantExpired),
	}
}

// alsoNeeded are permissions that a route's handler asks for, besides one of the table.
var alsoNeeded = map[string][]permission{"GET /v1/audit": needs(permStepsRead, permDLQRead)}

// routeCredentials returns valid credentials, with the expected answers of a route that needs
// one of some permissions, or every permission there is.
func (k tokenMaker) routeCredentials(needed, also []permission) []credentialCase {
	var more []string
	for _, p := range also {
		more = append(more, p.String())
	}
	root, little := "X-API-Key: the-key-that-may-do-everything", "X-API-Key: the-key-that-may-do-little"
	lacking, byLittle := wantLacking(needed[0]), wantLacking(needed[0])
	if slices.ContainsFunc(needed, func(p permission) bool { return p.resource() == "system" }) &&
		len(needed) < len(everything) {
		byLittle = wantLetIn
	}
	cases := []credentialCase{
		{"a token for nothing", []string{k.with()}, lacking, lacking},
		{"all but what it takes", []string{k.without(needed)}, lacking, lacking},
		{"a star alone", []string{k.with("*")}, wantUnknown("*"), lacking},
		{"unknown permissions alone", []string{k.with("tasks:destroy", "x")}, wantUnknown("tasks:destroy, x"), lacking},
		{"an unknown one beside all wildcards", []string{k.with(append(allWildcards(), "tasks:destroy")...)},
			wantUnknown("tasks:destroy"), wantLetIn},
		{"a permission in capitals", []string{k.with(strings.ToUpper(needed[0].String()))},
			wantUnknown(strings.ToUpper(needed[0].String())), lacking},
		{"all wildcards", []string{k.with(allWildcards()...)}, wantLetIn, wantLetIn},
		{"the superuser's key", []string{root}, wantLetIn, wantLetIn},
		{"a key that may do little", []string{little}, byLittle, byLittle},
		{"a good token and an unknown key", []string{k.with(allWildcards()...), "X-API-Key: x"}, wantLetIn, wantLetIn},
		{"a token that may not and a key that may", []string{k.without(needed), root}, lacking, lacking},
	}
	for _, p := range needed {
		wildcard := p.resource() + ":*"
		if len(needed) == len(everything) {
			without := k.without([]permission{p})
			cases = append(cases, credentialCase{"all but " + p.String(), []string{without}, wantLacking(p), wantLacking(p)})
			continue
		}
		cases = append(cases,
			credentialCase{"holding " + p.String(), []string{k.with(append(more, p.String())...)}, wantLetIn, wantLetIn},
			credentialCase{"holding " + wildcard, []string{k.with(append(more, wildcard)...)}, wantLetIn, wantLetIn})
		for _, p := range also {
			lacking := wantLacking(p)
			cases = append(cases, credentialCase{"all but " + p.String(), []string{k.without([]permission{p})}, lacking, lacking})
		}
	}
	return cases
}

// TestEveryRouteAsks sends every kind of credentials to every route of every
// surface, under each of its paths, strict and lenient.
func TestEveryRouteAsks(t *testing.T) {
	sequential(t)
	t.Parallel()
	broken, made := brokenCredentials(t), tokenMaker{t, map[string]string{}}
	for _, table := range allRoutes() {
		for _, strict := range []bool{true, false} {
			s := newAuthSurface(t, table.surface, func(c *authConfig) { c.StrictValidation = strict })
			probe := route{"POST /probe", needs(permWorkerConfigRead), func(_ *responseWriter, r *http.Request) (any, error) {
				return subjectOf(r.Context()), nil
			}}
			s.add(probe) // so that each surface has a protected route
			for _, row := range append(table.routes, probe) {
				cases := broken
				if len(row.permissions) > 0 {
					cases = append(slices.Clone(broken), made.routeCredentials(row.permissions, alsoNeeded[row.pattern])...)
				}
				for _, pattern := range row.patterns() {
					checkRoute(t, s, row, pattern, cases, strict)
				}
			}
		}
	}
}

func checkRoute(t *testing.T, s *authSurface, row route, pattern string, cases []credentialCase, strict bool) {
	t.Helper()
	bare := s.ask(pattern)
	for _, c := range cases {
		want := c.lenient
		if strict {
			want = c.strict
		}
		if row.isPublic() {
			want = wantLetIn
		}
		a := s.ask(pattern, c.lines...)
		want.check(t, pattern+", "+c.name, a)
		if row.isPublic() && a.status != bare.status {
			t.Errorf("%s, %s: got %d; want %d, as without credentials", pattern, c.name, a.status, bare.status)
		}
	}
}

// TestDisabledAuthenticationLetsEverybodyIn sends broken credentials to every route
// of a service without authentication.
func TestDisabledAuthenticationLetsEverybodyIn(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	broken := brokenCredentials(t)
	for _, table := range allRoutes() {
		s := newAuthSurface(t, table.surface, func(c *authConfig) { c.Enabled = false })
		for _, row := range table.routes {
			for _, c := range broken {
				wantLetIn.check(t, row.pattern+", "+c.name, s.ask(row.pattern, c.lines...))
			}
		}
		if log := s.log.String(); strings.Contains(log, "refused") {
			t.Errorf("got %s; want nothing said of callers", log)
		}
	}
}

// TestRefusalIsLogged checks what is logged about callers.
func TestRefusalIsLogged(t *testing.T) {
	s := newAuthSurface(t, "orchestration", unchanged)
	k := tokenMaker{t, map[string]string{}}
	for _, tt := range []struct{ line, want string }{
		{k.with("tasks:list"), ""},
		{k.with("tasks:read"), "WARN a request was refused route=GET /v1/tasks request_id=r1 subject=ci method=jwt " +
			"status=403 reason=forbidden severity=medium detail=Missing required permission: tasks:list"},
		{"X-A: b", "INFO a request was refused route=GET /v1/tasks request_id=r1 method=none status=401 " +
			"reason=missing severity=low detail=no credentials"},
		{"Authorization: Bearer x", "WARN a request was refused route=GET /v1/tasks request_id=r1 method=jwt " +
			"status=401 reason=malformed severity=medium detail=it does not have three parts"},
		{"X-API-Key: guess", "WARN a request was refused route=GET /v1/tasks request_id=r1 method=api_key " +
			"status=401 reason=invalid severity=high detail=unknown API key"},
	} {
		before := len(s.log.String())
		s.ask("GET /v1/tasks", tt.line, "X-Request-Id: r1")
		if got := strings.TrimSpace(s.log.String()[before:]); got != tt.want {
			t.Errorf("%.20s: got  %s\nwant %s", tt.line, got, tt.want)
		}
	}
}

// TestSecretsStayOutOfEverything plants a secret wherever a credential can be
// and looks for it in the answers, the log and the metrics.
func TestSecretsStayOutOfEverything(t *testing.T) {
	const secret = "hunter2hunter2hunter2"
	for _, strict := range []bool{true, false} {
		s := newAuthSurface(t, "orchestration", func(c *authConfig) {
			c.StrictValidation = strict
			c.APIKeys = append(c.APIKeys,
				apiKeyConfig{Key: secret, Permissions: []string{"tasks:read"}, Description: "somebody"},
				apiKeyConfig{Key: secret + "-with-a-typo", Permissions: []string{"tasks:raed"}, Description: "typo"})
		})
		token := rs256(t, claimsWith("jti", `"`+secret+`"`))
		parts := strings.Split(token, ".")
		unsigned := segment(`{"alg":"none","kid":"`+secret+`"}`) + "." + segment(`{"sub":"`+secret+`"}`) + ".e30"
		var said strings.Builder
		for _, line := range []string{
			"Authorization: Bearer " + token, "Authorization: Bearer " + token + "A", "Authorization: Bearer " + secret,
			"Authorization: Bearer " + parts[0] + "." + parts[1] + ".", "Authorization: " + secret,
			"Authorization: Basic " + secret, "Authorization: Bearer " + secret + " " + secret,
			"Authorization: Bearer " + unsigned, "Cookie: session=" + secret,
			"X-API-Key: " + secret, "X-API-Key: " + secret + "x", "X-API-Key: " + secret + "-with-a-typo",
		} {
			for _, route := range []string{"GET /v1/tasks/{task_uuid}", "POST /v1/tasks", "GET /health/ready", "GET /nowhere"} {
				a := s.ask(route, line)
				said.Write(a.body)
				for name, values := range a.header {
					said.WriteString(name + strings.Join(values, " "))
				}
			}
		}
		said.WriteString(s.log.String())
		said.Write(s.ask("GET /metrics").body)
		for _, part := range append(parts, secret, segment(secret)) {
			if strings.Contains(said.String(), part) {
				t.Errorf("strict %v: %.20s… is in what was said: %s", strict, part, said.String())
			}
		}
	}
}

// TestReadinessWaitsForTheKeySet requests /health/ready of both roles before and
// after the key set can be fetched.
func TestReadinessWaitsForTheKeySet(t *testing.T) {
	for _, role := range authRoles {
		t.Run(role, func(t *testing.T) {
			gate := make(chan struct{})
			keys := newKeyServer(t, webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey)))
			keys.hold(gate)
			s := newAuthSurface(t, role, func(c *authConfig) {
				c.JWTVerificationMethod, c.JWKSURL, c.JWKSURLAllowHTTP = "jwks", keys.URL, true
			})
			a := s.ask("GET /health/ready").want(503)
			if got := a.text("checks.authentication.status"); got != "unhealthy" || a.text("status") != "not_ready" {
				t.Errorf("got %s; want authentication unhealthy", a.body)
			}
			s.ask("GET /health/live").want(200)
			close(gate)
			(&authBench{authenticator: s.auth}).settle()
			if got := s.ask("GET /health/ready").want(200).text("checks.authentication.status"); got != "healthy" {
				t.Errorf("got %s; want healthy", got)
			}
		})
	}
}

// TestUnverifiableCredentials checks that while the authenticator is down, no caller is
// admitted, and no answer says that the credentials are wrong.
func TestUnverifiableCredentials(t *testing.T) {
	who := newWhoServer(t)
	who.Close()
	for _, role := range authRoles {
		s := newAuthSurface(t, role, func(c *authConfig) { c.AuthenticatorURL = who.URL })
		s.handle([]route{{"GET /probe", needs(permTasksRead), func(_ *responseWriter, _ *http.Request) (any, error) {
			return nil, nil
		}}})
		a := s.ask("GET /probe", "X-API-Key: the-key-that-may-do-everything").want(503)
		if a.header.Get("Retry-After") != "5" || a.header.Get("X-Auth-Failure-Reason") != "" {
			t.Errorf("%s: got %v; want it to be tried again, and no reason", role, a.header)
		}
		if !strings.Contains(string(a.body), "Credentials cannot be verified at the moment") ||
			strings.Contains(string(a.body), who.URL) {
			t.Errorf("%s: got %s", role, a.body)
		}
		if !strings.Contains(s.log.String(), "WARN a request was refused route=GET /probe") {
			t.Errorf("%s: got %s; want a warning", role, s.log)
		}
		s.ask("GET /health", "X-API-Key: x").want(200)
	}
}

// The routes of each role, alone in a process and together.

// TestWorkerAlone checks the whole worker API without engine and store.
func TestWorkerAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := &testServer{t: t, svc: openTestService(t, serviceTest{
		dir: dir, templates: apiTemplates, config: func(c *Config) { c.Role = "worker" },
	})}
	if s.svc.store != nil || s.svc.engine != nil {
		t.Fatal("got a store or an engine; want neither")
	}
	api := newWorkerAPI(s.svc, nil)
	w := s.with(api)
	values := map[string]string{"namespace": "t", "name": "diamond", "version": "latest", "file": "x"}
	contract := newAPIContract(t, "worker")
	everyGET(t, w, api.routes(), values, func(string, string) {})
	for _, path := range []string{"/health/ready", "/health/detailed", "/config", "/metrics/worker", "/v1/templates"} {
		a := w.do("GET", path, "").want(200)
		if err := contractProblem(contract, a, "GET "+path); err != nil {
			t.Error(err)
		}
	}
	if got := w.do("GET", "/v1/templates", "").text("worker_capabilities"); got != "[template_validation]" {
		t.Errorf("got capabilities %s; want template_validation alone", got)
	}
	if got := w.do("GET", "/health/ready", "").text("system_info.command_processor_active"); got != "false" {
		t.Errorf("got an active command processor: %s", got)
	}
	if got := w.do("POST", "/v1/templates/w/surroundings/1.0.0/validate", "").text("required_capabilities"); got != "[http outside]" {
		t.Errorf("got required capabilities %s; want [http outside]", got)
	}
	s.svc.finish(context.Background())
	if err := s.svc.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a data directory was made; want none")
	}
}

// TestStarting sends requests to both roles while the store is being read, and checks the
// answers against their documents.
func TestStarting(t *testing.T) {
	t.Parallel()
	parts := testParts(t, serviceTest{})
	parts.shows, parts.quotas = new(readProgress), newQuotas(parts.cfg)
	v := &serving{cfg: parts.cfg, log: parts.log}
	v.cfg.Orchestration.Web.Listen, v.cfg.Worker.Web.Listen = "127.0.0.1:0", "127.0.0.1:0"
	gates := must(v.listen(&parts))(t)
	t.Cleanup(func() { v.stopListening(closeTimeout) })
	for name, g := range map[string]*gate{"orchestration": &gates.orchestration, "worker": &gates.worker} {
		contract := newAPIContract(t, name)
		for path, want := range map[string]struct {
			status int
			member string
			value  string
		}{
			"/health/live":           {200, "status", "alive"},
			"/health/ready":          {503, "status", "not_ready"},
			"/health/detailed":       {200, "status", "degraded"},
			"/v1/templates":          {503, "", ""},
			"/api-docs/openapi.json": {200, "", ""},
			"/metrics":               {200, "", ""},
			"/":                      {200, "", ""},
			"/v1/tasks":              {503, "", ""},
			"/v1/analytics/history":  {503, "", ""},
			"/nowhere":               {503, "", ""},
		} {
			a := served(t, g, "GET", path, "").want(want.status)
			if a.header.Get("X-Request-Id") == "" || a.status == 503 && a.header.Get("Retry-After") == "" {
				t.Errorf("%s %s: got headers %v; want an id, and when to come again", name, path, a.header)
			}
			if want.member == "" && a.status == 200 {
				continue
			}
			if want.member == "" {
				checkShape(t, map[string]string{"orchestration": "ApiError", "worker": "WorkerError"}[name], a.body)
				continue
			}
			if got := a.text(want.member); got != want.value {
				t.Errorf("%s %s: got %s; want %s", name, path, got, want.value)
			}
			if err := contractProblem(contract, a, "GET "+path); err != nil {
				t.Errorf("%s %s: %v", name, path, err)
			}
		}
	}
	parts.shows.all.Store(300)
	parts.shows.done.Store(100)
	a := served(t, &gates.orchestration, "GET", "/health/ready", "")
	if got := a.text("info.operational_state"); got != "Startup" {
		t.Errorf("got operational state %s; want Startup", got)
	}
	if got := a.text("checks.web_database.message"); got != "the service is starting: 33 % of the store was read" {
		t.Errorf("got %q; want how much was read", got)
	}
}

// TestHandlerClass reads the forms that a task_handler may have.
func TestHandlerClass(t *testing.T) {
	for given, want := range map[string]string{
		``: "stepwell", `null`: "stepwell", `"Shop::Order"`: "Shop::Order", `{"callable":"Shop::Order"}`: "Shop::Order",
		`{"callable":7}`: "stepwell", `{}`: "stepwell", `7`: "stepwell", `[]`: "stepwell",
	} {
		if got := handlerClass([]byte(given)); got != want {
			t.Errorf("%s: got %s; want %s", given, got, want)
		}
	}
}

var updatePermissions = flag.Bool("update-permissions", false, "rewrite the table of permissions in docs/security.md")

// permissionEffects says in words what the routes of each permission let a caller learn and change.
var permissionEffects = [permissionCount]struct{ learn, change string }{
	permTasksCreate: {
		learn:  "the task that the caller creates, or the id of an equal task that exists",
		change: "creates tasks, whose handlers run. To repeat a task from a step also needs `tasks:context_read` and `steps:read`"},
	permTasksRead: {
		learn: "of a task whose id the caller knows: everything, with its steps and their handlers, but no context, no results of steps and no messages of errors"},
	permTasksList: {
		learn: "which tasks exist, the same of them as with `tasks:read` but for their steps, and transitions as they happen. Domain events, which may have results, also need `steps:read`"},
	permTasksCancel: {
		learn: "the task that the caller cancels", change: "cancels tasks; holds and releases those that move to another service"},
	permTasksContextRead: {
		learn: "contexts, wherever tasks appear, and which tasks have a value in theirs (`context.PATH`, find)"},
	permStepsRead: {
		learn: "results, inputs, checkpoints and audits of steps, messages of errors wherever they appear, and which tasks fail for the cause of a `failure_group`"},
	permStepsResolve: {
		learn:  "the step that the caller acts on, without results; of a claimed step, what a handler receives: the context and the results that it depends on",
		change: "acts on steps as operator or outside worker, so that tasks go on, end or run again"},
	permDLQRead: {
		learn: "dead letters with their tasks as with `tasks:read`, so without messages of errors; which tasks are unfinished, and for how long; deliveries to subscribers and why they failed"},
	permDLQUpdate: {
		learn: "the dead letter or delivery that the caller changes", change: "updates and closes dead letters; sends domain events again"},
	permDLQStats:      {learn: "how many dead letters exist, by reason"},
	permTemplatesRead: {learn: "templates with steps, handlers and schemas"},
	permTemplatesValidate: {
		learn: "whether the worker can run a template, by which handlers, and why not"},
	permSystemConfigRead:    {learn: "the configuration of the service, without secrets"},
	permSystemHandlersRead:  {learn: "the same as with `templates:read`"},
	permSystemAnalyticsRead: {learn: "figures by template and step; what fails, by cause, without messages, with the id of a task for each"},
	permWorkerConfigRead:    {learn: "the configuration of the worker, without secrets"},
	permWorkerTemplatesRead: {learn: "the same as with `templates:read`, and which handlers the worker has"},
}

// learningPosts are the routes that change nothing although their method is POST.
var learningPosts = []string{"POST /v1/templates/{namespace}/{name}/{version}/validate"}

// routeWords lists routes by surface, in the form of the documentation, after what they do.
func routeWords(effect string, routes map[string][]string) string {
	first := ": "
	for _, at := range []struct{ surface, words string }{{"orchestration", ""}, {"worker", "on the worker role "}, {"mount", "at the mount point "}} {
		for i, route := range routes[at.surface] {
			effect += pick(i == 0, first+at.words, ", ") + "`" + route + "`"
			first = "; "
		}
	}
	return effect
}

// permissionTable returns the table of docs/security.md, made from the routes.
func permissionTable() string {
	var learn, change [permissionCount]map[string][]string // by surface
	for p := range permissionCount {
		learn[p], change[p] = map[string][]string{}, map[string][]string{}
	}
	short := strings.NewReplacer("{task_uuid}", "…", "{step_uuid}", "…", "{dlq_entry_uuid}", "…", "{id}", "…", "{task_id}", "…",
		"{step_id}", "…", "{namespace}/{name}/{version}", "…", "{namespace}", "…", "{name}", "…")
	var all, anyone, public []string
	for _, table := range allRoutes() {
		for _, row := range table.routes {
			reads := strings.HasPrefix(row.pattern, "GET ") || slices.Contains(learningPosts, row.pattern)
			switch name := short.Replace(row.pattern); {
			case row.isPublic():
				first := regexp.MustCompile(`^GET (/[a-z-]*)`).FindStringSubmatch(row.pattern)[1]
				public = append(public, "`"+first+pick(first == "/", "", "…")+"`")
			case len(row.permissions) == 0:
				anyone = append(anyone, "`"+name+"`")
			case len(row.permissions) == len(everything):
				all = append(all, "`"+name+"`")
			default:
				for _, p := range row.permissions {
					to := pick(reads, learn[p], change[p])
					to[table.surface] = append(to[table.surface], name)
				}
			}
		}
	}
	slices.Sort(public)
	var b strings.Builder
	b.WriteString("| permission | lets a caller learn | lets a caller change |\n|---|---|---|\n")
	for p := range permissionCount {
		e := permissionEffects[p]
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p, routeWords(e.learn, learn[p]), routeWords(e.change, change[p]))
	}
	fmt.Fprintf(&b, "| all of them | everything, unredacted: %s; in fixture mode `/_stepwell…` | in fixture mode everything |\n", strings.Join(all, ", "))
	fmt.Fprintf(&b, "| none, with valid credentials | the caller's own subject and permissions: %s | |\n", strings.Join(slices.Compact(anyone), ", "))
	fmt.Fprintf(&b, "| none, without credentials | health, figures of the process, documentation, the console without data: %s | |\n",
		strings.Join(slices.Compact(public), ", "))
	return strings.NewReplacer("|  |", "| |").Replace(b.String())
}

// TestPermissionTable compares the table of docs/security.md with the routes.
func TestPermissionTable(t *testing.T) {
	const page, heading = "docs/security.md", "\n## What each permission allows\n"
	text := string(readFile(t, page))
	_, section, _ := strings.Cut(text, heading)
	i := strings.Index(section, "| permission |")
	if i < 0 {
		t.Fatalf("%s has no table of permissions", page)
	}
	table := section[i:]
	table = table[:strings.Index(table+"\n\n", "\n\n")+1]
	if *updatePermissions {
		noError(t, os.WriteFile(page, []byte(strings.Replace(text, table, permissionTable(), 1)), 0o644))
	} else if want := permissionTable(); table != want {
		t.Errorf("%s has another table of permissions than the routes make; run go test -run PermissionTable -update-permissions .\n%s",
			page, firstDifference(table, want))
	}
	for p, routes := range askedBy() {
		if e := permissionEffects[p]; len(routes) > 0 && e.learn == "" {
			t.Errorf("%s: the table does not say what a caller learns", permission(p))
		}
	}
}

// TestPermissionsShow gives each permission alone to a caller who knows the ids, asks every route that changes nothing, and
// looks in the answers for what the table of docs/security.md says.
func TestPermissionsShow(t *testing.T) {
	callers := map[string][]string{"the-one-with-all-permissions": {"*"}}
	for p := range permissionCount {
		callers["the-one-who-has-only-"+p.String()] = []string{p.String()}
	}
	s := newTestServer(t, serviceTest{
		extra: []string{testTemplate("marked", stepSpec{name: "first", callable: "Marked.First"},
			stepSpec{name: "second", callable: "Marked.Second", after: []string{"first"}})},
		config: func(c *Config) {
			withCallers(callers)(c)
			c.Worker.Web.Auth = c.Orchestration.Web.Auth
			c.Orchestration.Web.ConfigEndpointEnabled = true
		},
	})
	root := "the-one-with-all-permissions"
	task := s.as(root, "POST", "/v1/tasks", `{"namespace":"t","name":"marked","initiator":"mark-initiator","context":{"c":"mark-context"}}`).want(201)
	id := task.text("task_uuid")
	act := func(step, body string) string {
		uuid := s.as(root, "GET", "/v1/tasks/"+id, "").want(200).text("steps.name=" + step + ".workflow_step_uuid")
		s.as(root, "PATCH", "/v1/tasks/"+id+"/workflow_steps/"+uuid, body).want(200)
		return uuid
	}
	step := act("first", `{"action_type":"complete_manually","completion_data":{"result":"mark-result"},"reason":"mark-audit","completed_by":"x"}`)
	act("second", `{"action_type":"fail","error":{"message":"mark-message","error_type":"E","retryable":false},"reason":"r","failed_by":"x"}`)
	worker := s.with(newWorkerAPI(s.svc, nil))
	marks := map[string]string{"task": id, "initiator": "mark-initiator", "context": "mark-context", "result": "mark-result",
		"audit": "mark-audit", "message": "mark-message", "template": "Marked.First", "config": `"max_body_bytes"`}
	for p := range permissionCount {
		key, seen := "the-one-who-has-only-"+p.String(), map[string]bool{}
		for _, table := range allRoutes() {
			for _, row := range table.routes {
				method, path, _ := strings.Cut(row.pattern, " ")
				if row.isPublic() || method != "GET" && !slices.Contains(learningPosts, row.pattern) || strings.Contains(path, "/events") {
					continue
				}
				at, prefix := onSurface(table.surface, s, worker, s.svc.cfg.Mount.Path)
				path = strings.NewReplacer("{task_uuid}", id, "{task_id}", id, "{id}", id, "{step_uuid}", step, "{step_id}", step,
					"{namespace}", "t", "{name}", "marked", "{version}", "1.0.0").Replace(path)
				if path == "/v1/find" {
					path += "?q=mark"
				}
				a := at.as(key, method, prefix+path, "")
				for name, mark := range marks {
					if a.status == 200 && strings.Contains(string(a.body), mark) {
						seen[name] = true
					}
				}
			}
		}
		got := strings.Join(slices.Sorted(maps.Keys(seen)), " ")
		if want := permissionShows[p]; got != want {
			t.Errorf("%s alone shows %q; want %q", p, got, want)
		}
	}
}

// onSurface returns which of two servers has a surface, and what precedes the paths there.
func onSurface[T any](surface string, orchestration, worker T, mount string) (at T, prefix string) {
	switch surface {
	case "worker":
		return worker, ""
	case "mount":
		return orchestration, mount
	}
	return orchestration, ""
}

// permissionShows lists what each permission reveals, for TestPermissionsShow.
var permissionShows = [permissionCount]string{
	permTasksRead: "initiator task template", permTasksList: "initiator task", permTasksContextRead: "context task",
	permStepsRead: "audit message result task", permDLQRead: "initiator task", permTemplatesRead: "template", permSystemHandlersRead: "template",
	permSystemConfigRead: "config", permWorkerConfigRead: "config", permWorkerTemplatesRead: "template",
	permSystemAnalyticsRead: "task", permTemplatesValidate: "template",
}

// TestRolesAuthenticateAlone gives the roles different keys and audiences: neither
// accepts the other's credentials.
func TestRolesAuthenticateAlone(t *testing.T) {
	svc := newTestService(t, serviceTest{clock: newVirtualClock(authTestNow), config: func(c *Config) {
		a, b := &c.Orchestration.Web.Auth, &c.Worker.Web.Auth
		a.Enabled, a.JWTPublicKey, a.JWTAudience = true, publicPEM(t, authKeys().rsa), "orchestration"
		b.Enabled, b.JWTPublicKey, b.JWTAudience = true, publicPEM(t, authKeys().rsa), "worker"
	}})
	probe := []route{{"GET /probe", needs(permTasksRead), func(_ *responseWriter, r *http.Request) (any, error) {
		return nil, nil
	}}}
	surfaces := map[string]*authSurface{
		"orchestration": {t, newOrchestrationAPI(svc, nil).surface, nil, ""}, "worker": {t, newWorkerAPI(svc, nil).surface, nil, ""},
	}
	for at, s := range surfaces {
		s.handle(probe)
		for audience := range surfaces {
			want := wantInvalid
			if at == audience {
				want = wantLetIn
			}
			token := rs256(t, claimsWith("aud", `"`+audience+`"`))
			want.check(t, audience+"'s token at "+at, s.ask("GET /probe", "Authorization: Bearer "+token))
		}
	}
}

// TestValidateLooksForPrograms validates a program that exists, one that is missing,
// and one that is not executable.
func TestValidateLooksForPrograms(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.WriteFile(filepath.Join(dir, "there"), []byte("#!/bin/sh\n"), 0o700))
	writeFile(t, filepath.Join(dir, "text"), []byte("no program"))
	o := serviceTest{config: func(c *Config) { c.Worker.AllowExec, c.Worker.ExecPath = true, dir }}
	programs := []struct {
		program string
		valid   bool
	}{
		{"there", true}, {"absent", false}, {"text", false},
		{filepath.Join(dir, "there"), true}, {filepath.Join(dir, "absent"), false}, {filepath.Join(dir, "text"), false},
	}
	for i, p := range programs {
		o.extra = append(o.extra, testTemplate(fmt.Sprint("p", i), stepSpec{name: "a", callable: "exec:" + p.program}))
	}
	s := newTestServer(t, o)
	w := s.with(newWorkerAPI(s.svc, nil))
	for i, p := range programs {
		a := w.do("POST", fmt.Sprintf("/v1/templates/t/p%d/1.0.0/validate", i), "").want(200)
		if a.get("valid") != p.valid || (len(a.get("errors").([]any)) == 0) != p.valid {
			t.Errorf("%s: got %s; want valid = %v", p.program, a.body, p.valid)
		}
	}
}
