package main

// The OpenAPI documents follow their own rules, name every route with its
// permission, and agree with the shapes that responses are checked against.

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"testing"
)

// TestExposedHeaders checks that pages may read every header that the document declares.
func TestExposedHeaders(t *testing.T) {
	exposed := splitList(exposedHeaders)
	eachOpenAPIDocument(t, func(t *testing.T, _ string, doc map[string]any) {
		eachOpenAPIOperation(doc, func(route string, operation map[string]any) {
			for code, response := range operation["responses"].(map[string]any) {
				headers, _ := openAPIFollow(doc, response)["headers"].(map[string]any)
				for name := range headers {
					if !slices.Contains(exposed, name) && name != "Cache-Control" && name != "Content-Type" {
						t.Errorf("%s %s: got the header %s; want it exposed", route, code, name)
					}
				}
			}
		})
	})
}

// guardedServer serves a surface on its own listener, as the program does.
type guardedServer struct {
	t   *testing.T
	url string
}

func newGuardedServer(t *testing.T, h http.Handler, address string) *guardedServer {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		wire.Skip(t, "%s cannot be listened on: %v", address, err)
	}
	s := newHTTPServer(l, h, manyConnections(), slog.New(slog.DiscardHandler))
	go s.serve()
	t.Cleanup(func() { s.server.Close() })
	return &guardedServer{t, s.url()}
}

// ask sends an empty object with a Host ("" for the usual one) and an Origin ("" for
// none).
func (s *guardedServer) ask(method, path, host, origin string) *answer {
	s.t.Helper()
	if origin == "" {
		return s.askWith(method, path, host, "", "")
	}
	return s.askWith(method, path, host, "Origin", origin)
}

// askWith is ask with any header ("" for none). It does not follow redirects.
func (s *guardedServer) askWith(method, path, host, header, value string) *answer {
	s.t.Helper()
	req := must(http.NewRequest(method, s.url+path, strings.NewReader("{}")))(s.t)
	if host != "" {
		req.Host = host
	}
	if header != "" {
		req.Header.Set(header, value)
	}
	req.Header.Set("Content-Type", "application/json")
	return readAnswer(s.t, must(http.DefaultTransport.RoundTrip(req))(s.t))
}

func guardConfig(c *Config) {
	c.Web.AllowedHosts = []string{"Steps.Test.", "10.9.8.7"}
	c.Web.AllowedOrigins = []string{"https://app.example:8443", "https://Shop.example:443"}
}

// TestForeignPages sends what browsers send for foreign pages and for our own.
func TestForeignPages(t *testing.T) {
	const let = 422 // the guard lets it pass, but an empty object is not a task
	svc := newTestService(t, serviceTest{config: guardConfig})
	loopback := newGuardedServer(t, newOrchestrationAPI(svc, nil), "127.0.0.1:0")
	wide := newGuardedServer(t, newOrchestrationAPI(svc, nil), "0.0.0.0:0")
	own := strings.TrimPrefix(loopback.url, "http://")
	for _, tt := range []struct {
		host, origin   string
		loopback, wide int
	}{
		{"", "", let, let},
		{"", "http://evil.example", 400, 400},
		{"", "http://evil.example:8080", 400, 400},
		{"", "http://localhost.evil.example", 400, 400},
		{"", "http://127.0.0.1.evil.example", 400, 400},
		{"", "http://evillocalhost", 400, 400},
		{"", "null", 400, 400},
		{"", "file://", 400, 400},
		{"", "app://", 400, 400},
		{"", "http://", 400, 400},
		{"", "http://:8080", 400, 400},
		{"", "app://localhost", 400, 400}, // not a page of a web server
		{"", "localhost", 400, 400},
		{"", "ionic://steps.test", 400, 400},
		{"", "https://app.example", 400, 400},
		{"", "https://app.example:8443", let, let},
		{"", "https://APP.example:8443", let, let},
		{"", "https://shop.example", let, let}, // browsers leave out the port of the scheme
		{"", "http://shop.example:443", 400, 400},
		{"", "http://" + own, let, let},
		{"", "http://localhost:3000", let, let},
		{"", "http://console.localhost", let, let},
		{"", "http://[::1]:3000", let, let},
		{"", "http://steps.test", 400, 400}, // not the name that the request asks for
		{"evil.example", "", 421, let},
		{"evil.example:8080", "http://evil.example:8080", 421, 421}, // the name was made to resolve to this host
		{"evil.example", "http://localhost", 421, 421},
		{"10.9.8.8:80", "http://10.9.8.8:80", 421, let}, // a page cannot choose what an address means
		{"[2001:db8::1]:80", "http://[2001:db8::1]:80", 421, let},
		{"steps.test:80", "http://steps.test:80", let, let},
		{"evil.example", "http://other.example", 400, 400},
		{"localhost", "", let, let},
		{"LOCALHOST.:1", "", let, let},
		{"a.b.localhost:9", "", let, let},
		{"127.9.9.9", "", let, let},
		{"[::1]:99", "", let, let},
		{"[::ffff:127.0.0.1]", "", let, let},
		{"host.docker.internal:8080", "", let, let},
		{"steps.test:80", "", let, let},
		{"10.9.8.7", "", let, let},
		{"10.9.8.8", "", 421, let},
		{"0.0.0.0:8080", "", 421, let},
		{"127.0.0.1.evil.example", "", 421, let},
	} {
		for s, want := range map[*guardedServer]int{loopback: tt.loopback, wide: tt.wide} {
			a := s.ask("POST", "/v1/tasks", tt.host, tt.origin)
			code := map[int]string{400: "BAD_REQUEST", 421: "MISDIRECTED_REQUEST", let: "VALIDATION_FAILED"}[want]
			if a.status != want || a.text("error.code") != code {
				t.Errorf("%s, Host %q, Origin %q: got %d, %s; want %d", s.url, tt.host, tt.origin, a.status, a.body, want)
			}
			if name := hostName(tt.host); want == 421 && (checkHostValue(name) != nil || !strings.HasPrefix(a.text("error.message"), strconv.Quote(name))) {
				t.Errorf("Host %q: got %q; want the name, which web.allowed_hosts takes", tt.host, a.text("error.message"))
			}
		}
	}
}

// TestChangesAskForTheirOrigin sends what browsers send for pages of the service, of other ports of this
// machine, and of other sites: a change, a change to the control of the service, and a change where
// web.allowed_origins is "*". What http.CrossOriginProtection lets pass must pass.
func TestChangesAskForTheirOrigin(t *testing.T) {
	const own, port, listed, evil = "http://localhost:8080", "http://localhost:3000", "https://app.example", "http://evil.example"
	var servers []http.Handler
	protection := http.NewCrossOriginProtection()
	protection.AddTrustedOrigin(listed)
	for _, origins := range [][]string{{listed}, {"*"}} {
		f := newFixtureServer(t, serviceTest{config: func(c *Config) { c.Web.AllowedOrigins = origins }})
		servers = append(servers, newOrchestrationAPI(f.world.service(), nil))
	}
	for _, tt := range []struct {
		site, origin, media  string
		change, control, any bool // whether it passes
	}{
		{"", "", "", true, true, true}, // not a browser
		{"same-origin", own, "", true, true, true},
		{"same-origin", "null", "", true, true, true}, // as the page's referrer policy may have it
		{"same-origin", "https://public.example", "", true, true, true},
		{"none", "", "", true, true, true},
		{"", own, "", true, true, true},
		{"", "HTTP://LOCALHOST:8080", "", true, true, true},
		{"", "https://localhost:8080", "", true, true, true}, // through a proxy with TLS
		{"", port, "", false, false, true},
		{"", port, "text/plain", false, false, true},
		{"", port, "text/plain; a=application/json", false, false, true},
		{"", port, "text/plain, application/json", false, false, true},
		{"", port, "application/json", true, true, true},
		{"", "http://[::1]:3000", "application/json; charset=utf-8", true, true, true},
		{"", "app://localhost", "application/json", false, false, true},
		{"", "http://localhost", "", false, false, true},
		{"same-site", port, "", false, false, true},
		{"same-site", port, "application/json", true, true, true},
		{"cross-site", own, "", false, false, true}, // another scheme
		{"cross-site", "", "", false, false, true},
		{"cross-site", "null", "", false, false, true},
		{"cross-site", evil, "application/json", false, false, true},
		{"", evil, "application/json", false, false, true},
		{"", listed, "", true, false, true},
		{"cross-site", listed, "text/plain", true, false, true},
		{"cross-site", listed, "application/json", true, true, true},
		{"cross-site", "https://APP.example", "", true, false, true},
		{"cross-site", "https://app.example:8443", "", false, false, true},
	} {
		ask := func(server http.Handler, method, path string) bool {
			r := httptest.NewRequest(method, path, nil)
			r.Host = "localhost:8080"
			for name, value := range map[string]string{"Sec-Fetch-Site": tt.site, "Origin": tt.origin, "Content-Type": tt.media} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			refused := w.Code == 400 && strings.Contains(w.Body.String(), "pages of ")
			if refused && method == "POST" && path == "/v1/tasks" && protection.Check(r) == nil {
				t.Errorf("%+v: got it refused; http.CrossOriginProtection lets it pass", tt)
			}
			return !refused
		}
		change, control, any := ask(servers[0], "POST", "/v1/tasks"), ask(servers[0], "POST", "/_stepwell/reset"), ask(servers[1], "POST", "/v1/tasks")
		if change != tt.change || control != tt.control || any != tt.any {
			t.Errorf("%+v: got %v %v %v", tt, change, control, any)
		}
		if !ask(servers[0], "GET", "/v1/tasks") {
			t.Errorf("%+v: got a read refused", tt)
		}
	}
}

// TestCredentialsReplaceTheGuard checks that the guard is off with authentication, because
// foreign pages have no credentials.
func TestCredentialsReplaceTheGuard(t *testing.T) {
	svc := newTestService(t, serviceTest{config: func(c *Config) {
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled, a.APIKeys = true, true, surfaceKeys
		a.JWTPublicKey = publicPEM(t, authKeys().rsa)
	}})
	s := newGuardedServer(t, newOrchestrationAPI(svc, nil), "127.0.0.1:0")
	if a := s.ask("POST", "/v1/tasks", "evil.example", "http://evil.example"); a.status != 401 {
		t.Errorf("got %d; want 401: %s", a.status, a.body)
	}
}

// TestCookiesNeedAnOwnOrigin checks requests with cookies and passwords, which browsers add to
// requests of foreign pages, too, so that an authenticator cannot tell whether the user wants
// the request.
func TestCookiesNeedAnOwnOrigin(t *testing.T) {
	who := newWhoServer(t)
	who.say(200, `{"subject":"ann","permissions":["tasks:*"]}`)
	apis := map[string]http.Handler{}
	for _, listed := range []string{"https://app.example:8443", "*"} { // which does not stand for requests with cookies
		apis[listed] = newOrchestrationAPI(newTestService(t, serviceTest{config: func(c *Config) {
			c.Web.AllowedOrigins = []string{listed}
			c.Orchestration.Web.Auth.Enabled, c.Orchestration.Web.Auth.AuthenticatorURL = true, who.URL
		}}), nil)
	}
	for _, tt := range []struct {
		method, path, header, value, origin string
		want                                int
	}{
		{"POST", "/v1/tasks", "Cookie", "session=x", "https://evil.example", 400},
		{"POST", "/v1/tasks", "Cookie", "session=x", "null", 400},
		{"POST", "/stepwell/tasks", "Cookie", "session=x", "https://evil.example", 400},
		{"POST", "/v1/tasks", "Cookie", "session=x", "https://localhost", 422},
		{"POST", "/v1/tasks", "Cookie", "session=x", "https://app.example:8443", 422},
		{"POST", "/v1/tasks", "Cookie", "session=x", "", 422},
		{"POST", "/v1/tasks", "Authorization", "Basic eDp5", "https://evil.example", 400},
		{"POST", "/v1/tasks", "Authorization", "Bearer x", "https://evil.example", 422}, // no browser adds it
		{"POST", "/v1/tasks", "X-Api-Key", "x", "https://evil.example", 422},
		{"GET", "/v1/tasks", "Cookie", "session=x", "https://evil.example", 200},
		{"GET", "/health", "Cookie", "session=x", "https://evil.example", 200},
	} {
		lines := []string{tt.header + ": " + tt.value}
		if tt.origin != "" {
			lines = append(lines, "Origin: "+tt.origin)
		}
		for listed, api := range apis {
			a := served(t, api, tt.method, tt.path, "{}", lines...)
			if want := pick(listed == "*" && tt.origin == "https://app.example:8443", 400, tt.want); a.status != want {
				t.Errorf("%s, %+v: got %d %s", listed, tt, a.status, a.body)
			}
		}
	}
}

// TestGuardConfiguration checks that names with a port or a path are refused, because they
// would never match.
func TestGuardConfiguration(t *testing.T) {
	for value, ok := range map[string]bool{
		"steps.test": true, "10.9.8.7": true, "::1": true, "steps.test:80": false, "http://steps.test": false, "": false,
	} {
		if err := checkHostValue(value); (err == nil) != ok {
			t.Errorf("web.allowed_hosts %q: got %v; want ok %v", value, err, ok)
		}
	}
	for value, ok := range map[string]bool{
		"https://a.example": true, "http://a.example:8080": true, "https://a.example/": false, "a.example": false,
		"null": false, "https://": false, "https://user@a.example": false, "*": true, "https://*.example": false,
	} {
		if err := checkOriginValue(value); (err == nil) != ok {
			t.Errorf("web.allowed_origins %q: got %v; want ok %v", value, err, ok)
		}
	}
}

// TestPagesOfOtherOrigins checks which answers a browser shows to a page of another origin.
func TestPagesOfOtherOrigins(t *testing.T) {
	const app, other = "https://App.example:8443", "https://other.example"
	for _, tt := range []struct {
		allowed              []string
		method, path, origin string
		status               int
		shown, asked         string // asked: Access-Control-Allow-Methods of a preflight
	}{
		{nil, "GET", "/v1/tasks", app, 200, "", ""},
		{nil, "OPTIONS", "/v1/tasks", app, 405, "", ""},
		{[]string{app}, "GET", "/v1/tasks", app, 200, app, ""},
		{[]string{app}, "GET", "/v1/tasks", other, 200, "", ""},
		{[]string{app}, "GET", "/v1/tasks", "", 200, "", ""},
		{[]string{app}, "POST", "/v1/tasks", app, 422, app, ""},
		{[]string{app}, "POST", "/v1/tasks", other, 400, "", ""},
		{[]string{app}, "PUT", "/v1/tasks", app, 405, app, ""},
		{[]string{app}, "GET", "/v1/tasks/x", app, 400, app, ""},
		{[]string{app}, "GET", "/stepwell/tasks", app, 200, app, ""},
		{[]string{app}, "GET", "/metrics", app, 200, app, ""},
		{[]string{app}, "HEAD", "/v1/events", app, 200, app, ""},
		{[]string{app}, "OPTIONS", "/v1/tasks", app, 204, app, "GET, HEAD, POST"},
		{[]string{app}, "OPTIONS", "/api/v1/tasks/x", app, 204, app, "DELETE, GET, HEAD"},
		{[]string{app}, "OPTIONS", "/stepwell/tasks/x/workflow_steps/y", app, 204, app, "DELETE, GET, HEAD, PATCH"},
		{[]string{app}, "OPTIONS", "/v1/tasks", other, 405, "", ""},
		{[]string{app}, "OPTIONS", "/nowhere", app, 404, "", ""},
		{[]string{"*"}, "GET", "/v1/tasks", other, 200, "*", ""},
		{[]string{"*"}, "GET", "/v1/tasks", "null", 200, "*", ""},
		{[]string{"*"}, "POST", "/v1/tasks", other, 422, "*", ""},
		{[]string{"*"}, "OPTIONS", "/v1/tasks", other, 204, "*", "GET, HEAD, POST"},
		{[]string{"*", app}, "GET", "/v1/tasks", app, 200, app, ""},
		{[]string{"*", app}, "GET", "/v1/tasks", other, 200, "*", ""},
	} {
		svc := newTestService(t, serviceTest{config: func(c *Config) { c.Web.AllowedOrigins = tt.allowed }})
		var lines []string
		if tt.origin != "" {
			lines = append(lines, "Origin: "+tt.origin)
		}
		if tt.method == "OPTIONS" {
			lines = append(lines, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,if-match")
		}
		a := served(t, newOrchestrationAPI(svc, nil), tt.method, tt.path, "{}", lines...)
		h := a.header
		if a.status != tt.status || h.Get("Access-Control-Allow-Origin") != tt.shown ||
			h["Access-Control-Allow-Credentials"] != nil || h.Get("Access-Control-Allow-Methods") != tt.asked {
			t.Errorf("%+v: got %d with %v", tt, a.status, h)
		}
		varies := strings.Contains(strings.Join(h["Vary"], ","), "Origin")
		if want := tt.allowed != nil && tt.status != 404; varies != want {
			t.Errorf("%+v: got Vary %q; want Origin in it: %v", tt, h["Vary"], want)
		}
		if headers := h.Get("Access-Control-Allow-Headers"); (headers == "authorization,if-match") != (tt.asked != "") {
			t.Errorf("%+v: got allowed headers %q", tt, headers)
		}
	}
}

// TestCredentialsOfBrowsersNeedForwardAuthentication checks that a page may have the browser add credentials only
// where these can authenticate somebody.
func TestCredentialsOfBrowsersNeedForwardAuthentication(t *testing.T) {
	who := newWhoServer(t)
	who.say(200, `{"subject":"ann","permissions":["tasks:*"]}`)
	for want, auth := range map[string]func(*authConfig){
		"true": func(a *authConfig) { a.Enabled, a.AuthenticatorURL = true, who.URL },
		"":     func(a *authConfig) { a.Enabled, a.APIKeysEnabled, a.APIKeys = true, true, surfaceKeys },
	} {
		svc := newTestService(t, serviceTest{config: func(c *Config) {
			c.Web.AllowedOrigins = []string{"*", "https://app.example"}
			auth(&c.Orchestration.Web.Auth)
		}})
		for _, method := range []string{"GET", "OPTIONS"} {
			for origin, want := range map[string]string{"https://app.example": want, "https://other.example": ""} {
				h := served(t, newOrchestrationAPI(svc, nil), method, "/v1/tasks", "", "Origin: "+origin, "Access-Control-Request-Method: GET").header
				if got := h.Get("Access-Control-Allow-Credentials"); got != want || h["Access-Control-Allow-Origin"] == nil {
					t.Errorf("%s of %s: got %q; want %q: %v", method, origin, got, want, h)
				}
			}
		}
	}
}

// TestControlIsForNoPage checks that no page of another origin can use the routes that control
// the service, whatever is configured.
func TestControlIsForNoPage(t *testing.T) {
	w := newFixtureServer(t, serviceTest{config: func(c *Config) { c.Web.AllowedOrigins = []string{"*", "https://app.example"} }}).world
	a := newOrchestrationAPI(w.service(), nil)
	for _, row := range (&controlAPI{}).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		for _, m := range []string{method, "OPTIONS"} {
			a := served(t, a, m, path, "{}", "Origin: https://app.example", "Access-Control-Request-Method: "+method)
			for name := range a.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s %s: got %d with %s", m, path, a.status, name)
				}
			}
		}
	}
}

// TestForeignHosts sends requests to every route of every surface with a foreign host name, as
// a page can whose name was made to resolve to this host: without the headers of a browser,
// with an Origin, and with Sec-Fetch-Site.
func TestForeignHosts(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	svc := newTestService(t, serviceTest{config: func(c *Config) {
		c.Orchestration.Web.ConfigEndpointEnabled = true
		c.Mount.StatusRequiresAuth, c.Mount.MetricsRequireAuth = true, true // without effect
	}})
	a := newOrchestrationAPI(svc, nil)
	for _, s := range []*surface{a.surface, a.mount.surface, newWorkerAPI(svc, nil).surface} {
		loopback, wide := newGuardedServer(t, s, "127.0.0.1:0"), newGuardedServer(t, s, "0.0.0.0:0")
		for _, row := range s.rows {
			method, path, _ := strings.Cut(row.pattern, " ")
			open := regexp.MustCompile(`^(/stepwell)?/(health|metrics|api-docs|console)\b`).MatchString(path)
			method = strings.Replace(method, "GET", "HEAD", 1) // which ends event streams at once
			path = strings.NewReplacer("{$}", "", "...", "").Replace(path)
			for _, server := range []*guardedServer{loopback, wide} {
				for header, value := range map[string]string{"": "", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"} {
					a := server.askWith(method, path, "evil.example", header, value)
					want := !open && (server == loopback || header != "")
					if refused := a.status == 421; refused != want {
						t.Errorf("%s, %s, %q: got %d; want it refused: %v", s.name, row.pattern, header, a.status, want)
					}
				}
			}
		}
	}
}
