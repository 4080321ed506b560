package main

// The HTTP client of the commands: where a service is, what it is told about the caller, what its
// errors mean for the command line, and what people may call tasks, steps and templates. The commands
// auth generate-keys, generate-token, validate-token and show-permissions, which make credentials.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// client asks the orchestration role of a running service.
type client struct {
	p    *process
	base string // URL without a final slash
	http *http.Client
}

// withClient adds the flag --url, for client.
func (o *options) withClient() *options {
	o.url = o.String("url", "",
		"ask the service at `URL`; by default $STEPWELL_URL, or the address that the configuration here serves")
	return o
}

// asks returns the runner of a command that asks the orchestration role. Errors begin with the name of the
// command.
func (p *process) asks(o *options, ask func(ctx context.Context, c *client, operands []string) error) runner {
	return func(ctx context.Context, operands []string) error {
		c, err := p.client(o)
		if err == nil {
			err = ask(ctx, c, operands)
		}
		return o.named(err)
	}
}

// named returns an error that begins with the name of the command, unless it does already or is not
// printed.
func (o *options) named(err error) error {
	if err == nil || err.Error() == "" || strings.HasPrefix(err.Error(), o.Name()+":") {
		return err
	}
	return fmt.Errorf("%s: %w", o.Name(), err)
}

// client returns the client that --url or the environment describe.
func (p *process) client(o *options) (*client, error) {
	base := cmp.Or(*o.url, p.getenv("STEPWELL_URL"))
	if base == "" {
		c, _, err := loadConfig(configArgs{}, p.getenv, p.environ, os.ReadFile)
		if err != nil {
			return nil, err
		}
		base = reachableURL(c.listen("orchestration"))
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("%q is no URL of a service", redactURL(base))
	}
	return &client{p, strings.TrimRight(base, "/"), &http.Client{}}, nil
}

// call is a request.
type call struct {
	method, path string
	query        url.Values
	body         any // encoded as JSON; nil for none
	key          string
}

// get asks for a path.
func (c *client) get(ctx context.Context, path string, query url.Values) (document, error) {
	return c.do(ctx, call{method: "GET", path: path, query: query})
}

// do sends a request and reads the answer. The error has the exit code for what went wrong.
func (c *client) do(ctx context.Context, q call) (document, error) {
	resp, err := c.send(ctx, q)
	if err != nil {
		return document{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return document{}, c.failed(ctx, err)
	}
	return readDocument(body), nil
}

// send sends a request, and returns the answer if its status is below 300. The caller closes its body.
func (c *client) send(ctx context.Context, q call) (*http.Response, error) {
	var body io.Reader
	if q.body != nil {
		text, err := json.Marshal(q.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	target := c.base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.key != "" {
		req.Header.Set("Idempotency-Key", q.key)
	}
	name, value, err := clientCredential("orchestration", c.p.getenv, c.p.now)
	if err != nil {
		return nil, err
	}
	if name != "" {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return nil, c.refused(resp, readDocument(text))
	}
	return resp, nil
}

// failed returns the error for a request without an answer.
func (c *client) failed(ctx context.Context, err error) error {
	host := c.base
	if u, err := url.Parse(c.base); err == nil {
		host = u.Host
	}
	switch {
	case context.Cause(ctx) == errInterrupted:
		return errInterrupted
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return exitf(exitTimedOut, "%s did not answer in time", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return exitf(exitUnreachable, "nothing listens on %s: is \"stepwell serve\" running? Or give --url", host)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return exitf(exitUnreachable, "no host is called %q: check --url and STEPWELL_URL", dns.Name)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return exitf(exitUnreachable, "%s cannot be reached: %v", host, err)
}

// refusalError is an answer with a status of 300 or more.
type refusalError struct {
	exitError
	status int
}

// refused returns the error for an answer with a status of 300 or more, in one line.
func (c *client) refused(resp *http.Response, body document) error {
	message := cmp.Or(body.text("error.message"), body.text("message"), body.text("error"), resp.Status)
	for _, d := range body.at("error.details").list() {
		if field := d.text("field"); !strings.Contains(message, field) {
			message += fmt.Sprintf("; %s: %s", field, d.text("message"))
		}
	}
	code := exitFailed
	switch resp.StatusCode {
	case http.StatusNotFound:
		code = exitNotFound
	case http.StatusRequestTimeout:
		code = exitTimedOut
	case http.StatusForbidden:
		code = exitRefused
	case http.StatusUnauthorized:
		code = exitRefused
		message += ": set STEPWELL_AUTH_TOKEN or STEPWELL_API_KEY"
	case http.StatusServiceUnavailable:
		if after := resp.Header.Get("Retry-After"); after != "" {
			message += fmt.Sprintf(" (try again in %s s)", after)
		}
	}
	if body.raw == nil { // no service of this kind
		message = fmt.Sprintf("%s answers %s: is that a service?", c.base, resp.Status)
	}
	return &refusalError{exitError{code, message}, resp.StatusCode}
}

// Unwrap lets exitCode find the code.
func (e *refusalError) Unwrap() error { return &e.exitError }

// hasStatus reports whether an answer had one of some statuses.
func hasStatus(err error, statuses ...int) bool {
	e, ok := errors.AsType[*refusalError](err)
	return ok && slices.Contains(statuses, e.status)
}

// lacks reports whether the error for a route below a task means that the service does not have the route.
func (c *client) lacks(ctx context.Context, err error, task string) bool {
	if !hasStatus(err, 404, 405) {
		return false
	}
	_, err = c.get(ctx, task, nil)
	return err == nil
}

// tasks returns the first items of a list of tasks, at most limit.
func (c *client) tasks(ctx context.Context, query url.Values, limit int) (tasks []document, total int, err error) {
	const perPage = 100
	query.Set("per_page", strconv.Itoa(min(limit, perPage)))
	query.Set("context", "false") // a service that does not know it sends more
	query.Set("cursor", "")       // one that does not know it pages by number
	for page := 2; len(tasks) < limit; page++ {
		d, err := c.get(ctx, "/v1/tasks", query)
		if err != nil {
			return nil, 0, err
		}
		tasks = append(tasks, d.at("tasks").list()...)
		total = int(d.number("pagination.total_count"))
		if d.text("pagination.has_next") != "true" {
			break
		}
		if next := d.text("pagination.next_cursor"); next != "" {
			query.Set("cursor", next)
			continue
		}
		query.Del("cursor")
		query.Set("page", strconv.Itoa(page))
	}
	return tasks[:min(len(tasks), limit)], total, nil
}

// Names. A task is called by its UUID, by an unambiguous beginning or end of it, or latest; a step by
// its name or UUID; a template by its namespace, name and version.

const (
	shortestTaskName = 6
	searchedTasks    = 10_000
)

// taskID returns the UUID of the task that is called so.
func (c *client) taskID(ctx context.Context, name string) (string, error) {
	if id, ok := parseUUID(name); ok {
		return id.String(), nil
	}
	if name == "latest" {
		tasks, _, err := c.tasks(ctx, url.Values{}, 1)
		if err == nil && len(tasks) == 0 {
			err = exitf(exitNotFound, "there is no task yet: stepwell task create makes one")
		}
		if err != nil {
			return "", err
		}
		return tasks[0].text("task_uuid"), nil
	}
	part := strings.ToLower(name)
	if len(part) < shortestTaskName || strings.Trim(part, "0123456789abcdef-") != "" {
		return "", usagef("%q is no task: want a UUID, at least %d characters of its beginning or end, or latest",
			name, shortestTaskName)
	}
	return c.searchTask(ctx, part)
}

// searchTask looks for a part of a UUID among the newest tasks.
func (c *client) searchTask(ctx context.Context, part string) (string, error) {
	tasks, total, err := c.tasks(ctx, url.Values{}, searchedTasks)
	if err != nil {
		return "", err
	}
	var found []string
	for _, t := range tasks {
		if id := t.text("task_uuid"); strings.HasPrefix(id, part) || strings.HasSuffix(id, part) {
			found = append(found, id)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", usagef("%q is ambiguous: %d tasks, among them %s and %s", part, len(found), found[0], found[1])
	case total > len(tasks):
		return "", exitf(exitNotFound, "no task begins or ends with %q among the newest %d of %d", part, len(tasks), total)
	}
	return "", exitf(exitNotFound, "no task begins or ends with %q", part)
}

// taskPath returns the path of the task that is called so, and its UUID.
func (c *client) taskPath(ctx context.Context, name string) (path, id string, err error) {
	id, err = c.taskID(ctx, name)
	return "/v1/tasks/" + id, id, err
}

// stepPath returns the path of a step that is called by its name or UUID.
func (c *client) stepPath(ctx context.Context, task, step string) (string, error) {
	path, _, err := c.taskPath(ctx, task)
	if err != nil {
		return "", err
	}
	if id, ok := parseUUID(step); ok {
		return path + "/workflow_steps/" + id.String(), nil
	}
	t, err := c.get(ctx, path, nil)
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range t.at("steps").list() {
		if s.text("name") == step {
			return path + "/workflow_steps/" + s.text("workflow_step_uuid"), nil
		}
		names = append(names, s.text("name"))
	}
	return "", exitf(exitNotFound, "the task has no step %q%s", step, suggestion(step, names))
}

// suggestion returns what was probably meant, or else what there is.
func suggestion(word string, known []string) string {
	if near := nearestWord(word, known, typoLimit(word)); near != "" {
		return "; did you mean " + near + "?"
	}
	const most = 10
	if len(known) == 0 || len(known) > most {
		return ""
	}
	return "; there is " + anyOf(known)
}

// templateRef names a template: NAMESPACE/NAME[@VERSION]. The namespace is "default" if it is left out.
type templateRef struct{ namespace, name, version string }

func parseTemplateRef(text string) (r templateRef, err error) {
	name, v, hasVersion := strings.Cut(text, "@")
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		namespace, name = "default", namespace
	}
	if namespace == "" || name == "" || hasVersion && v == "" || strings.Contains(name, "/") {
		return r, usagef("%q is no template: want NAMESPACE/NAME or NAMESPACE/NAME@VERSION", text)
	}
	return templateRef{namespace, name, v}, nil
}

func (r templateRef) path() string {
	return "/v1/templates/" + url.PathEscape(r.namespace) + "/" + url.PathEscape(r.name) + "/" +
		url.PathEscape(cmp.Or(r.version, "latest"))
}

// completionPatience is how long the completion of a name may wait for the service.
const completionPatience = 500 * time.Millisecond

// namesFor returns what may stand for an operand: names from the running service.
func (p *process) namesFor(ctx context.Context, o *options, operand string, args []string) (names []string) {
	if o.url == nil && o.Name() != "run" {
		return nil
	}
	if o.url == nil {
		o.withClient()
	}
	c, err := p.client(o)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	switch operand {
	case "TASK":
		tasks, _, _ := c.tasks(ctx, url.Values{}, 20)
		for _, t := range tasks {
			names = append(names, t.text("task_uuid"))
		}
		return append(names, "latest")
	case "STEP":
		if len(args) == 0 {
			return nil
		}
		path, _, err := c.taskPath(ctx, args[len(args)-1])
		if err != nil {
			return nil
		}
		t, _ := c.get(ctx, path, nil)
		for _, s := range t.at("steps").list() {
			names = append(names, s.text("name"))
		}
		return names
	case "FILE|TEMPLATE", "TEMPLATE":
		list, _ := c.get(ctx, "/v1/templates", nil)
		for _, t := range list.at("templates").list() {
			names = append(names, qualifiedName(t))
		}
	}
	return names
}

// jsonArgument reads an argument that is JSON, @FILE or - for standard input.
func (p *process) jsonArgument(flag, text string) (json.RawMessage, error) {
	data, from := []byte(text), ""
	var err error
	if name, ok := strings.CutPrefix(text, "@"); ok {
		from = name
		data, err = os.ReadFile(name)
	} else if text == "-" {
		from = "standard input"
		data, err = io.ReadAll(p.stdin)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	var v json.RawMessage
	if err := json.Unmarshal(data, &v); err != nil {
		if from == "" {
			return nil, usagef("%s: %s is no JSON: %v", flag, clipText(text, 40), err)
		}
		return nil, fmt.Errorf("%s: %s is no JSON: %w", flag, from, err)
	}
	return v, nil
}

// waitFlag is a flag with or without a duration.
type waitFlag struct {
	given bool
	limit time.Duration
}

func (f *waitFlag) String() string   { return "" }
func (f *waitFlag) IsBoolFlag() bool { return true }

func (f *waitFlag) Set(text string) error {
	f.given, f.limit = text != "false", defaultWatch
	if text == "true" || text == "false" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("want a duration like 30s")
	}
	f.limit = d
	return nil
}

// listFlag is a flag that can be repeated.
type listFlag []string

func (f *listFlag) String() string { return "" }

func (f *listFlag) Set(text string) error {
	*f = append(*f, text)
	return nil
}

// openPiped opens a service in fixture mode, and returns a client of it. end closes both.
func (p *process) openPiped(parts serviceOptions) (c *client, end func(), err error) {
	l := &pipeListener{make(chan net.Conn), make(chan struct{})}
	g := &gates{shared: newSurfaceCache(), connections: newConnections(parts.quotas, parts.log)}
	w, err := openWorld("", parts, g)
	if err != nil {
		return nil, nil, err
	}
	server := newHTTPServer(l, &g.orchestration, g.connections, parts.log)
	go server.serve()
	web := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
	end = func() {
		server.server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), abandonedTimeout)
		defer cancel()
		w.finish(ctx)
		w.close()
	}
	return &client{p, "http://localhost", web}, end, nil
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

// authSettings returns a lookup of variables that falls back on the configuration
// files, so that tokens fit the service that reads the same files. The files are
// read when a key is needed that the environment does not set.
func (p *process) authSettings() func(name string) string {
	configured := sync.OnceValue(func() *Config {
		c, _, err := loadConfig(configArgs{}, p.getenv, p.environ, os.ReadFile)
		if err != nil {
			fmt.Fprintf(p.stderr, "warning: using the environment alone: %v\n", err)
		}
		return c
	})
	return func(name string) string {
		i := slices.IndexFunc(configKeys, func(k configKey) bool { return k.envName() == name })
		if v := p.getenv(name); v != "" || i < 0 || configured() == nil {
			return v
		}
		return fmt.Sprint(configKeys[i].get(configured()))
	}
}

func (c *authCLI) generateKeys(f *options) runner {
	f.withOutput()
	dir := f.String("output-dir", keysDir, "write to `DIR`, created if missing")
	bits := f.Int("key-size", minRSABits, "make an RSA key of `BITS`, 2048 to 8192")
	force := f.Bool("force", false, "replace existing keys")
	return func(context.Context, []string) error { return c.makeKeys(f, *dir, *bits, *force) }
}

func (c *authCLI) makeKeys(f *options, dir string, bits int, force bool) error {
	if bits < minRSABits || bits > maxRSABits || bits%8 != 0 {
		return f.misuse("--key-size must be %d to %d, a multiple of 8", minRSABits, maxRSABits)
	}
	private, public := filepath.Join(dir, privateKeyName), filepath.Join(dir, publicKeyName)
	if err := writeNewKeys(private, public, bits, force); err != nil {
		return fmt.Errorf("auth generate-keys: %w", err)
	}
	result := map[string]string{"private_key": private, "public_key": public}
	return c.print(f, output{result, member("private_key"), func(t *table) {
		t.row("private key", private, "keep it secret: its owner can make any token")
		t.row("public key", public, "give it to the service as jwt_public_key_path")
	}})
}

// writeNewKeys makes a pair and writes both files or neither.
func writeNewKeys(private, public string, bits int, force bool) error {
	for _, path := range []string{private, public} {
		// Before the key is made, which takes a while.
		if _, err := os.Lstat(path); err == nil && !force {
			return keyExistsError(path)
		}
	}
	privatePEM, publicPEM, err := newKeyPair(bits)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(private), 0o700); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	err = installKeyFiles([]keyFile{{private, privatePEM, 0o600}, {public, publicPEM, 0o644}}, force)
	if errors.Is(err, fs.ErrExist) {
		return keyExistsError(filepath.Dir(private))
	}
	return err
}

func keyExistsError(path string) error {
	return fmt.Errorf("%s already contains a key; --force replaces it and invalidates its tokens", path)
}

func (c *authCLI) showPermissions(f *options) runner {
	f.withOutput()
	return func(context.Context, []string) error { return c.listPermissions(f) }
}

func (c *authCLI) listPermissions(f *options) error {
	type shown struct {
		Permission string   `json:"permission"`
		Resource   string   `json:"resource"`
		Routes     []string `json:"routes"`
	}
	result := struct {
		Permissions []shown             `json:"permissions"`
		Wildcards   []string            `json:"wildcards"`
		Roles       map[string][]string `json:"roles"`
	}{Wildcards: allWildcards(), Roles: map[string][]string{}}
	for p, routes := range askedBy() {
		name, resource := permission(p).String(), permission(p).resource()
		result.Permissions = append(result.Permissions, shown{name, resource, append([]string{}, routes...)})
	}
	for _, r := range rolePatterns {
		result.Roles[r.name] = r.permissions
	}
	name := func(d document) string {
		var names []string
		for _, p := range d.at("permissions").list() {
			names = append(names, p.text("permission"))
		}
		return strings.Join(names, "\n")
	}
	return c.print(f, output{result, name, printPermissions})
}

// printPermissions is the table of show-permissions.
func printPermissions(t *table) {
	resource := ""
	asked := askedBy()
	for p := range permissionCount {
		if p.resource() != resource {
			resource = p.resource()
			t.row(fmt.Sprintf("%s (all: %s:*)", resource, resource))
		}
		name := "  " + p.String()
		if len(asked[p]) == 0 {
			t.row(name, "no route requires it yet")
		}
		for _, route := range asked[p] {
			t.row(name, route)
			name = ""
		}
	}
	t.line("\nroles (auth generate-token --role …)")
	for _, r := range rolePatterns {
		t.row("  "+r.name, strings.Join(r.permissions, ", "))
	}
}

func (c *authCLI) generateToken(f *options) runner {
	f.withOutput()
	permissions := f.String("permissions", "", "`PERMISSIONS`, separated by commas")
	roles := f.String("role", "", "`ROLES`, separated by commas: "+strings.Join(roleNames(), ", "))
	subject := f.String("subject", "stepwell-cli", "`SUBJECT` of the token")
	keyPath := f.String("private-key", c.keyPath("STEPWELL_JWT_PRIVATE_KEY_PATH", privateKeyName),
		"`FILE` with the private key")
	hours := f.Int("expiry-hours", c.defaultHours(), "the token is valid for `HOURS`")
	issuer := f.String("issuer", c.setting("jwt_issuer", defaultIssuer), "`ISSUER` that the service expects")
	audience := f.String("audience", c.setting("jwt_audience", defaultAudience), "`AUDIENCE` that the service expects")
	allowUnknown := f.Bool("allow-unknown", false, "allow permissions that this service does not know")
	return func(context.Context, []string) error {
		list, err := c.tokenPermissions(f, *permissions, *roles, *allowUnknown)
		if err != nil {
			return err
		}
		switch {
		case *hours < 1 || *hours > maxExpiryHours:
			return f.misuse("--expiry-hours must be 1 to %d", maxExpiryHours)
		case *issuer == "" || *audience == "" || *subject == "":
			return f.misuse("--issuer, --audience and --subject must not be empty")
		case *hours > 24:
			fmt.Fprintln(c.stderr, "warning: a token for more than 24 hours can be revoked only by replacing the key")
		}
		life := time.Duration(*hours) * time.Hour
		return c.printNewToken(f, *keyPath, tokenSpec{*subject, *issuer, *audience, list, c.now(), life})
	}
}

// tokenPermissions returns the permissions that the flags name, in order, without repeats.
func (c *authCLI) tokenPermissions(f *options, permissions, roles string, allowUnknown bool) ([]string, error) {
	var list []string
	for _, name := range splitList(roles) {
		role, ok := rolePermissions(name)
		if !ok {
			return nil, f.misuse("unknown role %q; want one of %s", name, strings.Join(roleNames(), ", "))
		}
		list = append(list, role...)
	}
	list = append(list, splitList(permissions)...)
	if len(list) == 0 {
		return nil, f.misuse("--permissions or --role is needed")
	}
	list = authOnce(list)
	_, unknown := parsePermissions(list)
	names := strings.Join(unknown, ", ")
	switch {
	case len(unknown) > 0 && !allowUnknown:
		return nil, f.misuse("unknown permissions: %s (see auth show-permissions, or --allow-unknown)", names)
	case len(unknown) > 0:
		fmt.Fprintf(c.stderr, "warning: unknown permissions: %s; strict validation refuses the token\n", names)
	}
	return list, nil
}

func (c *authCLI) printNewToken(f *options, keyPath string, spec tokenSpec) error {
	var token string
	key, err := readPrivateKey(keyPath)
	if err == nil {
		token, err = signToken(spec, key)
	}
	if err != nil {
		return fmt.Errorf("auth generate-token: %w", err)
	}
	result := struct {
		Token       string   `json:"token"`
		Subject     string   `json:"subject"`
		ExpiresAt   string   `json:"expires_at"`
		Permissions []string `json:"permissions"`
	}{token, spec.subject, spec.issued.add(spec.life).zoned(), spec.permissions}
	return c.print(f, output{result, member("token"), func(t *table) { t.row(token) }})
}

func (c *authCLI) validateToken(f *options) runner {
	f.withOutput()
	token := f.String("token", "", "`TOKEN`; by default STEPWELL_AUTH_TOKEN")
	keyPath := f.String("public-key", c.keyPath("STEPWELL_JWT_PUBLIC_KEY_PATH", publicKeyName),
		"`FILE` with the public key")
	issuer := f.String("issuer", c.setting("jwt_issuer", defaultIssuer), "`ISSUER` to expect")
	audience := f.String("audience", c.setting("jwt_audience", defaultAudience), "`AUDIENCE` to expect")
	claim := f.String("permissions-claim", "permissions", "`CLAIM` with the permissions")
	allowUnknown := f.Bool("allow-unknown", false, "accept unknown permissions")
	return func(context.Context, []string) error {
		if *token == "" {
			*token = c.settings("STEPWELL_AUTH_TOKEN")
		}
		if *token == "" || *issuer == "" || *audience == "" {
			return f.misuse("--token is needed; --issuer and --audience must not be empty")
		}
		rules := tokenRules{issuer: *issuer, audience: *audience, leeway: defaultLeeway, permissionsClaim: *claim}
		claims, err := c.verifiedClaims(*keyPath, strings.TrimSpace(*token), rules)
		if err != nil {
			return fmt.Errorf("auth validate-token: %w", err)
		}
		_, unknown := parsePermissions(claims.permissions)
		if len(unknown) > 0 && !*allowUnknown {
			return fmt.Errorf("auth validate-token: unknown permissions: %s; strict validation refuses the token",
				strings.Join(printables(unknown), ", "))
		}
		return c.printClaims(f, claims)
	}
}

// verifiedClaims verifies a token by the key in a file, with any algorithm of the key's
// family.
func (c *authCLI) verifiedClaims(keyPath, token string, rules tokenRules) (*tokenClaims, error) {
	public, err := readPublicKey(keyPath)
	if err != nil {
		return nil, err
	}
	key, err := newStaticKey(public)
	if err != nil {
		return nil, err
	}
	rules.algorithms = key.algorithms
	claims, err := (&tokenVerifier{rules, key}).verify(context.Background(), token, c.now())
	if refused, ok := errors.AsType[*tokenError](err); ok {
		return nil, fmt.Errorf("the token is refused (%s): %w", refused.reason, err)
	}
	return claims, err
}

func (c *authCLI) printClaims(f *options, claims *tokenClaims) error {
	at := func(i instant) string {
		if i == 0 {
			return ""
		}
		return i.zoned()
	}
	result := struct {
		Valid       bool     `json:"valid"`
		Subject     string   `json:"subject"`
		Issuer      string   `json:"issuer"`
		Audience    []string `json:"audience"`
		IssuedAt    string   `json:"issued_at,omitempty"`
		NotBefore   string   `json:"not_before,omitempty"`
		ExpiresAt   string   `json:"expires_at"`
		Permissions []string `json:"permissions"`
	}{
		true, claims.subject, claims.issuer, claims.audience,
		at(claims.issuedAt), at(claims.notBefore), at(claims.expiry), claims.permissions,
	}
	return c.print(f, output{result, member("subject"), func(t *table) {
		for _, row := range [][2]string{
			{"subject", printable(claims.subject)},
			{"issuer", printable(claims.issuer)},
			{"audience", strings.Join(printables(claims.audience), ", ")},
			{"issued at", result.IssuedAt},
			{"not before", result.NotBefore},
			{"expires at", result.ExpiresAt},
			{"permissions", strings.Join(printables(claims.permissions), ", ")},
		} {
			if row[1] != "" {
				t.row(row[0], row[1])
			}
		}
	}})
}

// setting returns a key of the orchestration role's authentication.
func (c *authCLI) setting(key, fallback string) string {
	return authSetting(c.settings, "orchestration", key, fallback)
}

// defaultHours returns the configured lifetime of tokens.
func (c *authCLI) defaultHours() int {
	if n, err := strconv.Atoi(c.setting("jwt_token_expiry_hours", "")); err == nil {
		return n
	}
	return defaultExpiryHours
}

// keyPath returns the default file of a key.
func (c *authCLI) keyPath(variable, name string) string {
	return cmp.Or(c.settings(variable), filepath.Join(keysDir, name))
}

func roleNames() []string {
	names := make([]string, len(rolePatterns))
	for i, r := range rolePatterns {
		names[i] = r.name
	}
	return names
}

// authOnce drops repeats.
func authOnce(list []string) []string {
	var once []string
	for _, s := range list {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

func printables(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = printable(s)
	}
	return out
}
