package main

// The HTTP client of the commands: where a service is, which credentials it gets, what its errors mean on the command
// line, and how people may name tasks, steps and templates.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// client sends requests to a running service, usually to its orchestration role.
type client struct {
	p    *process
	url  string        // without a final slash, a user and a password
	user *url.Userinfo // of the URL that was given; nil for none
	http *http.Client  // see newHTTPClient
	role string        // whose credentials it has
	flag string        // what sets the URL, for messages; "" for --url
	free bool          // nothing named a service: url is the default, or configured
}

// askingRules are the rules for every service. What is zero has the default.
type askingRules struct {
	local    string        // the URL of a service that nothing names
	most     int64         // bytes of a reply, decompressed, unless it is a stream
	patience time.Duration // with a reply, from its first byte to its last, unless it is a stream
}

const (
	maxReply      = 64 << 20
	maxReplyLine  = 4 << 20 // of a stream
	maxErrorReply = 1 << 20
	replyTime     = time.Minute
)

var errReplyTime = errors.New("the reply takes too long")

// withClient adds the flag --url, for client.
func (o *options) withClient() *options {
	o.url = o.String("url", "", "`URL`: use the service at this URL; by default $STEPWELL_URL, or http://127.0.0.1:8080")
	return o
}

// asks returns the runner of a command that calls the orchestration role and prints the answer in the form of -o. Errors
// begin with the name of the command.
func (o *options) asks(ask func(ctx context.Context, c *client, operands []string) error) runner {
	o.withOutput()
	return o.calls(ask)
}

// calls is asks without -o.
func (o *options) calls(ask func(ctx context.Context, c *client, operands []string) error) runner {
	o.withClient()
	return func(ctx context.Context, operands []string) error {
		c, err := o.client()
		if err == nil {
			err = ask(ctx, c, operands)
		}
		return o.named(err)
	}
}

// shows returns the runner of a command that prints what the service returns for a path below that of its operands.
// Flags set the parameters of the query.
func (o *options) shows(below string, filters [][2]string, show func(d document) output) runner {
	query := url.Values{}
	o.filters(query, filters)
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		d, err := c.ask(ctx, o, operands, below, query)
		if err != nil {
			return err
		}
		return o.print(show(d))
	})
}

// named returns an error that begins with the name of the command, unless it does already or is not printed.
func (o *options) named(err error) error {
	if err == nil || err.Error() == "" || strings.HasPrefix(err.Error(), o.Name()+":") {
		return err
	}
	return fmt.Errorf("%s: %w", o.Name(), err)
}

// client returns the client of the service that --url or STEPWELL_URL name, or of the default address. A configuration
// file has no say: whoever wrote the one in this directory may want the credentials of the environment.
func (o *options) client() (*client, error) {
	if o.p.service != nil {
		// An agent's commands use the service that was fixed at the start, with a process of their own for the output.
		c := *o.p.service
		c.p = o.p
		return &c, nil
	}
	named := cmp.Or(*o.url, o.p.getenv("STEPWELL_URL"))
	if named != "" {
		return o.p.clientOf(named, "orchestration")
	}
	c, err := o.p.clientOf(cmp.Or(o.p.asking.local, reachableURL(defaultConfig().listen("orchestration"))), "orchestration")
	if c != nil {
		c.free = true
	}
	return c, err
}

func (p *process) clientOf(address, role string) (*client, error) {
	base, user, err := parseServiceURL(address)
	if err != nil {
		return nil, err
	}
	return &client{p: p, url: base, user: user, http: newHTTPClient(http.DefaultTransport.(*http.Transport).Clone()), role: role}, nil
}

// parseServiceURL returns the URL of a service without a final slash, and apart from it the user and password, so that
// no message can show them.
func parseServiceURL(text string) (base string, user *url.Userinfo, err error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", nil, usagef("%q is not the URL of a service", redactURL(text))
	}
	user, u.User = u.User, nil
	before, _, _ := strings.Cut(u.String(), "?")
	before, _, _ = strings.Cut(before, "#")
	base = strings.TrimRight(before, "/")
	if right, ok := strings.CutSuffix(base, "/v1"); ok {
		return "", nil, usagef("the URL of a service does not end in /v1: give %s", redactURL(right))
	}
	switch {
	case strings.ContainsAny(text, "?#"):
		return "", nil, usagef("the URL of a service has no query and no fragment: give %s", redactURL(base))
	case strings.Contains(u.Path, "@"): // the rest of a password with a slash
		return "", nil, usagef("%q is not the URL of a service: write an @ or / in a password as %%40 or %%2F", redactURL(text))
	}
	return base, user, nil
}

// newHTTPClient returns the HTTP client for every service. It follows no redirect: credentials and bodies are for the
// service that the user has named, and for nobody to whom it points.
func newHTTPClient(t *http.Transport) *http.Client {
	t.MaxResponseHeaderBytes = maxErrorReply
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// call is a request.
type call struct {
	method, path string
	query        url.Values
	body         any // encoded as JSON, unless it is stateLines; nil for none
	key          string
	stream       bool // the reply is read in parts, as it comes: no limit applies to the whole
}

// stateLines are the lines of a state.
type stateLines []byte

// get sends a GET request.
func (c *client) get(ctx context.Context, path string, query url.Values) (document, error) {
	return c.do(ctx, call{method: "GET", path: path, query: query})
}

// ask sends a GET request for a path below that of the task or step that the operands of a command name, if any; or it
// returns the template that they name.
func (c *client) ask(
	ctx context.Context, o *options, operands []string, below string, query url.Values,
) (d document, err error) {
	path := ""
	switch o.command.operands {
	case "TASK":
		path, _, err = c.taskPath(ctx, operands[0])
	case "TASK STEP":
		path, err = c.stepPath(ctx, operands[0], operands[1])
	case "TEMPLATE":
		return c.template(ctx, operands[0])
	}
	if err != nil {
		return d, err
	}
	if query, err = c.timed(ctx, query, "since"); err != nil {
		return d, err
	}
	return c.get(ctx, path+below, query)
}

// do sends a request and reads the response. The error has the exit code for what went wrong.
func (c *client) do(ctx context.Context, q call) (document, error) {
	d, _, err := c.doCounting(ctx, q)
	return d, err
}

// doCounting is do, and also returns how many elements a list has on all pages, or 0 if the response does not say.
func (c *client) doCounting(ctx context.Context, q call) (d document, total int, err error) {
	resp, err := c.send(ctx, q)
	if err != nil {
		return d, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return d, 0, err
	}
	if resp.Header.Get("Content-Type") == linesType {
		return document{body}, 0, nil
	}
	if d = readDocument(body); d.raw == nil && len(body) > 0 {
		return d, 0, exitf(exitFailed, "%s answers %s with something other than JSON: is it Stepwell?", c.url, q.path)
	}
	total, _ = strconv.Atoi(resp.Header.Get("X-Total-Count"))
	return d, total, nil
}

// send sends a request, and returns the answer if its status is below 300. The caller closes its body.
func (c *client) send(ctx context.Context, q call) (*http.Response, error) {
	var body io.Reader
	contentType := "application/json"
	if lines, ok := q.body.(stateLines); ok {
		body, contentType = bytes.NewReader(lines), linesType
	} else if q.body != nil {
		text, err := json.Marshal(q.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	path := q.path
	if len(q.query) > 0 {
		path += "?" + q.query.Encode()
	}
	req, err := c.request(ctx, q.method, path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if q.key != "" {
		req.Header.Set("Idempotency-Key", q.key)
	}
	if err := c.authenticate(req.Header); err != nil {
		return nil, err
	}
	resp, err := c.exchange(req, q.stream)
	if err != nil {
		return nil, err
	}
	c.noteTime(resp.Header)
	for _, text := range hintTexts(resp.Header) {
		fmt.Fprintln(c.p.stderr, "warning:", text)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorReply))
		err := c.refused(resp, text)
		if resp.StatusCode == http.StatusNotFound && q.path != "/health" {
			// The two roles have different routes, and their addresses are easily confused.
			err.message += c.otherRole(ctx)
		}
		return nil, err
	}
	return resp, nil
}

func (c *client) mostBytes() int64 { return cmp.Or(c.p.asking.most, maxReply) }

func (c *client) patience() time.Duration { return cmp.Or(c.p.asking.patience, replyTime) }

// request returns a request with the credentials of the URL, if it had any, and no others.
func (c *client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	if slices.ContainsFunc(strings.Split(path, "/"), isDots) { // which would be another path
		return nil, usagef(`a name must not be "." or ".."`)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err == nil && c.user != nil {
		password, _ := c.user.Password()
		r.SetBasicAuth(c.user.Username(), password)
	}
	return r, err
}

// exchange sends a request, and returns a reply that is no redirect. Its body ends with an error of this program after
// maxReply bytes, or if it takes too long from its first byte on; that of a stream does not.
func (c *client) exchange(r *http.Request, stream bool) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	slow := time.AfterFunc(math.MaxInt64, func() { cancel(errReplyTime) })
	began := func() { slow.Reset(c.patience()) }
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: began})
	b := &replyBody{c: c, ctx: ctx, slow: slow, cancel: cancel, left: c.mostBytes()}
	resp, err := c.http.Do(r.WithContext(traced))
	if err != nil {
		defer b.end()
		return nil, c.failed(ctx, err)
	}
	if stream {
		b.left = math.MaxInt64
		slow.Stop()
	}
	b.ReadCloser, resp.Body = resp.Body, b
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		resp.Body.Close()
		return nil, c.redirected(resp.Request.URL, to)
	}
	return resp, nil
}

// replyBody is the body of a reply with its limits.
type replyBody struct {
	io.ReadCloser
	c      *client
	ctx    context.Context
	cancel context.CancelCauseFunc
	slow   *time.Timer
	left   int64 // bytes that may still come
}

func (b *replyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, exitf(exitFailed, "the reply of %s has more than %d MiB", b.c.host(), b.c.mostBytes()>>20)
	}
	if err != nil && err != io.EOF {
		err = b.c.failed(b.ctx, err)
	}
	return n, err
}

func (b *replyBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

func (b *replyBody) end() {
	b.slow.Stop()
	b.cancel(nil)
}

// redirected returns the error for a redirect, with the URL to give if the service is there.
func (c *client) redirected(asked, to *url.URL) error {
	to.User = nil
	told := printable(redactURL(to.String()))
	to.RawQuery, to.Fragment, to.RawFragment = "", "", ""
	below := strings.TrimPrefix(asked.Scheme+"://"+asked.Host+asked.EscapedPath(), c.url)
	there, ok := strings.CutSuffix(to.String(), below)
	if !ok {
		there = to.Scheme + "://" + to.Host
	}
	if there == c.url || to.Scheme != "http" && to.Scheme != "https" {
		return exitf(exitUnreachable, "%s redirects to %s, and no redirect is followed: is it Stepwell?", c.url, told)
	}
	return exitf(exitUnreachable, "%s redirects to %s, and no redirect is followed: give %s %s", c.url, told,
		cmp.Or(c.flag, "--url"), printable(there))
}

// otherRole returns the end of the message for a 404 from the wrong role of a service, or "". A worker is recognized by
// the worker_id in its health.
func (c *client) otherRole(ctx context.Context) string {
	health, err := c.do(ctx, call{method: "GET", path: "/health"})
	role := pick(health.text("worker_id") == "", "orchestration", "worker")
	if err != nil || health.text("status") == "" || role == c.role {
		return ""
	}
	return fmt.Sprintf("; %s is the %s role of a service: give the URL of its %s role", c.url, role, c.role)
}

// authenticate adds the credentials of the environment. A token wins over the user of the URL.
func (c *client) authenticate(h http.Header) error {
	name, value, err := clientCredential(c.role, c.p.getenv, c.p.now)
	if name != "" {
		h.Set(name, value)
	}
	return err
}

// dateSlack is how much a Date may differ from the time here with equal clocks: it has whole seconds, and has traveled.
const dateSlack = 2 * time.Second

// noteTime notes the time of a service by the Date of its response (RFC 9110, 6.6.1).
func (c *client) noteTime(h http.Header) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	ahead := date.Sub(c.p.now().time())
	if ahead.Abs() < dateSlack {
		ahead = 0
	}
	c.p.ahead.Store(ahead.Microseconds())
}

// host names the service without the scheme and the path of its URL.
func (c *client) host() string {
	if u, err := url.Parse(c.url); err == nil && u.Host != "" {
		return u.Host
	}
	return c.url
}

// failed returns the error for a request without an answer.
func (c *client) failed(ctx context.Context, err error) error {
	host := c.host()
	switch {
	case context.Cause(ctx) == errInterrupted:
		return errInterrupted
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return exitf(exitTimedOut, "%s did not answer in time", host)
	case context.Cause(ctx) == errReplyTime:
		return exitf(exitTimedOut, "the reply of %s did not end within %v", host, c.patience())
	case errors.Is(err, errConnectionRefused):
		return exitf(exitUnreachable, "nothing listens on %s: is \"%s serve\" running? %s", host, programCalled(), c.elsewhere())
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return exitf(exitUnreachable, "there is no host %q: check --url and STEPWELL_URL", dns.Name)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return exitf(exitUnreachable, "%s cannot be reached: %v", host, err)
}

// elsewhere returns what to try if nothing listens. If nothing has named a service, that is the address which the
// configuration here has: a person can judge whether it is the right one.
func (c *client) elsewhere() string {
	if c.free {
		at, source := configuredAddress(c.role, c.p.getenv, c.p.environ)
		if there := reachableURL(at); there != c.url {
			return fmt.Sprintf("%s has another address: give --url %s", printable(source.String()), printable(there))
		}
	}
	return "Or give --url"
}

// refused returns the error for an answer with a status of 300 or more, in one line.
func (c *client) refused(resp *http.Response, text []byte) *exitError {
	body := readDocument(text)
	message := cmp.Or(body.text("error.message"), body.text("message"), body.text("error"), resp.Status)
	for _, d := range body.at("error.details").list() {
		if field := d.text("field"); !strings.Contains(message, field) {
			message += fmt.Sprintf("; %s: %s", field, d.text("message"))
		}
	}
	code := exitFailed
	switch resp.StatusCode {
	case http.StatusBadRequest:
		r := resp.Request // an action on a task or a step fails because of a state
		code = pick((r.Method == "PATCH" || r.Method == "DELETE") && strings.Contains(r.URL.Path, "/v1/tasks/"), exitFailed, exitUsage)
	case http.StatusUnprocessableEntity:
		code = pick(body.text("error.code") == "VERIFICATION_FAILED", exitFailed, exitUsage)
	case http.StatusNotFound:
		code = exitNotFound
	case http.StatusRequestTimeout:
		code = exitTimedOut
	case http.StatusForbidden:
		code = exitRefused
	case http.StatusUnauthorized:
		code = exitRefused
		variable := credentialVariable(c.role, c.p.getenv)
		message += pick(variable == "", ": set STEPWELL_AUTH_TOKEN or STEPWELL_API_KEY", ": check "+variable)
	case http.StatusServiceUnavailable:
		if after := resp.Header.Get("Retry-After"); after != "" {
			message += fmt.Sprintf(" (try again in %s s)", after)
		}
	}
	if body.raw == nil { // no service of this kind
		message = fmt.Sprintf("%s answers %s: is it Stepwell?", c.url, resp.Status)
	}
	return &exitError{code, message, resp.StatusCode}
}

func hasStatus(err error, statuses ...int) bool {
	e, ok := errors.AsType[*exitError](err)
	return ok && slices.Contains(statuses, e.status)
}

// tasks returns the first items of a list of tasks, at most limit, and the length of the whole list, or 0 if that is
// not known.
func (c *client) tasks(ctx context.Context, query url.Values, limit int) (tasks []document, total int, err error) {
	const perPage = 100
	if query, err = c.timed(ctx, query, "created_after"); err != nil {
		return nil, 0, err
	}
	query.Set("per_page", strconv.Itoa(min(limit, perPage)))
	query.Set("context", "false")
	query.Set("cursor", "")
	for len(tasks) < limit {
		d, err := c.get(ctx, "/v1/tasks", query)
		if err != nil {
			return nil, 0, err
		}
		tasks = append(tasks, d.at("tasks").list()...)
		total = int(d.number("pagination.total_count"))
		next := d.exact("pagination.next_cursor")
		if next == "" {
			break
		}
		query.Set("cursor", next)
	}
	return tasks[:min(len(tasks), limit)], total, nil
}

// timed returns a filter in which since is an instant, by the service's clock.
func (c *client) timed(ctx context.Context, filter url.Values, name string) (url.Values, error) {
	since := filter.Get("since")
	if since == "" {
		return filter, nil
	}
	filter = maps.Clone(filter)
	filter.Del("since")
	if filter.Has(name) {
		return nil, usagef("--since and --created-after cannot be combined")
	}
	if _, err := c.get(ctx, "/health", nil); err != nil { // its Date is the time
		return nil, err
	}
	d, err := parseDuration(since)
	filter.Set(name, c.p.serviceNow().time().Add(-d).Format(time.RFC3339Nano))
	return filter, err
}

// Names. A task is called by its UUID, by an unambiguous beginning or end of it, or latest; a step by
// its name or UUID; a template by its namespace, name and version.

// taskID returns the UUID of the task that a user calls by this name.
func (c *client) taskID(ctx context.Context, name string) (string, error) {
	if id, ok := parseUUID(name); ok {
		return id.String(), nil
	}
	if name == "latest" {
		tasks, _, err := c.tasks(ctx, url.Values{}, 1)
		if err == nil && len(tasks) == 0 {
			err = exitf(exitNotFound, "no tasks yet: create one with \"%s task create\"", programCalled())
		}
		if err != nil {
			return "", err
		}
		return tasks[0].text("task_uuid"), nil
	}
	part := strings.ToLower(name)
	if len(part) < shortestIDPart || strings.Trim(part, "0123456789abcdef-") != "" {
		return "", notTask(name)
	}
	return c.searchTask(ctx, part)
}

func notTask(name string) error {
	return usagef("%q is not a task: want a UUID, at least %d characters of its beginning or end, or latest", name, shortestIDPart)
}

// searchTask finds the one task whose UUID begins or ends with a part.
func (c *client) searchTask(ctx context.Context, part string) (string, error) {
	d, err := c.get(ctx, "/v1/find", url.Values{"q": {part}, "limit": {strconv.Itoa(maxFound)}})
	var found []string
	for _, h := range d.at("hits").list() {
		if h.text("kind") == "task" {
			found = append(found, h.text("task_uuid"))
		}
	}
	switch {
	case err != nil:
		return "", err
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", usagef("%q is ambiguous: %d tasks, among them %s and %s", part, len(found), found[0], found[1])
	}
	return "", exitf(exitNotFound, "no task begins or ends with %q", part)
}

// taskPath returns the path of the task that a user calls by this name, and its UUID.
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
		if s.exact("name") == step {
			return path + "/workflow_steps/" + s.text("workflow_step_uuid"), nil
		}
		names = append(names, s.text("name"))
	}
	return "", exitf(exitNotFound, "the task has no step %q%s", step, suggestion(step, names))
}

// suggestion returns the end of a message: the word that was probably meant, or else the known words.
func suggestion(word string, known []string) string {
	if near := nearestWord(word, known, typoLimit(word)); near != "" {
		return meant(near)
	}
	const most = 10
	if len(known) == 0 || len(known) > most {
		return ""
	}
	return "; there is " + anyOf(known)
}

// templateRef names a template: NAMESPACE/NAME[@VERSION]. The namespace is "default" if it is left out. A name may
// contain a slash, which a namespace cannot, and an @: only what is a version, or latest, is the version.
type templateRef struct{ namespace, name, version string }

func parseTemplateRef(text string) (r templateRef, err error) {
	name, v := text, ""
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		if _, ok := parseSemver(text[at+1:]); ok || text[at+1:] == "latest" {
			name, v = text[:at], strings.TrimSuffix(text[at+1:], "latest")
		}
	}
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		namespace, name = "default", namespace
	}
	if namespace == "" || name == "" {
		return r, usagef("%q is not a template: want NAMESPACE/NAME or NAMESPACE/NAME@VERSION", text)
	}
	return templateRef{namespace, name, v}, nil
}

func (r templateRef) path() string {
	return "/v1/templates/" + url.PathEscape(r.namespace) + "/" + url.PathEscape(r.name) + "/" +
		url.PathEscape(cmp.Or(r.version, "latest"))
}

// listing describes a command that lists what the service returns for a path.
type listing struct {
	path    string
	member  string // member of the response that is the list; "" for the whole response
	name    string // the member that -o name prints; "template" for namespace and name
	none    string
	columns []column
}

// lists returns the definition of a command that lists what the service returns for a path, filtered by flags.
func lists(l listing, filters ...[2]string) func(o *options) runner {
	return func(o *options) runner {
		return o.shows(l.path, filters, func(d document) output {
			return listOutput(d.at(l.member).list(), l.name, l.none, l.columns)
		})
	}
}

// printPage prints a part of a list with the length of the whole list. name is the parameter for the flag --since.
func (c *client) printPage(ctx context.Context, o *options, l listing, query url.Values, name string) error {
	query, err := c.timed(ctx, query, name)
	if err != nil {
		return err
	}
	d, total, err := c.doCounting(ctx, call{method: "GET", path: l.path, query: query})
	if err != nil {
		return err
	}
	items := d.list()
	return o.print(listOutput(items, l.name, l.none, l.columns).outOf(len(items), total))
}

// The credentials of a client.

// onDemandLife is the lifetime of a token that a client makes for itself, less than any jwt_token_expiry_hours.
const onDemandLife = 15 * time.Minute

// clientCredential returns the header that a client sends to a role (orchestration or worker), from the first
// credential that the environment has; header is "" when it has none. A token made on demand expires after some
// minutes, so it is for one request. The error names the variable at fault, never its value.
func clientCredential(
	role string, getenv func(string) string, now func() instant,
) (header, value string, err error) {
	variable := credentialVariable(role, getenv)
	// Variables that were filled from a file often end with a newline, which no header can carry.
	header, value = "Authorization", strings.TrimSpace(getenv(variable))
	switch variable {
	case "":
		return "", "", nil
	case "STEPWELL_API_KEY":
		if header = cmp.Or(getenv("STEPWELL_API_KEY_HEADER"), defaultAPIKeyHeader); !isCredentialHeader(header) {
			return "", "", errors.New("STEPWELL_API_KEY_HEADER is not the name of a header for keys")
		}
	case "STEPWELL_JWT_PRIVATE_KEY_PATH":
		if value, err = onDemandToken(value, role, getenv, now()); err != nil {
			return "", "", fmt.Errorf("STEPWELL_JWT_PRIVATE_KEY_PATH: %w", err)
		}
		fallthrough
	default:
		value = "Bearer " + value
	}
	if !isHeaderText(value) {
		return "", "", fmt.Errorf("%s contains characters that no header can carry", variable)
	}
	return header, value, nil
}

// credentialVariable returns the variable with the first credential for a role, or "".
func credentialVariable(role string, getenv func(string) string) string {
	for _, name := range []string{"STEPWELL_" + strings.ToUpper(role) + "_AUTH_TOKEN", "STEPWELL_AUTH_TOKEN",
		"STEPWELL_API_KEY", "STEPWELL_JWT_PRIVATE_KEY_PATH"} {
		if strings.TrimSpace(getenv(name)) != "" {
			return name
		}
	}
	return ""
}

// onDemandToken makes a token with all permissions, which the key's owner has anyway.
func onDemandToken(path, role string, getenv func(string) string, now instant) (string, error) {
	key, err := readPrivateKey(path)
	if err != nil {
		return "", err
	}
	return signToken(tokenSpec{
		subject:     "stepwell-client",
		issuer:      authSetting(getenv, role, "jwt_issuer", defaultIssuer),
		audience:    authSetting(getenv, role, "jwt_audience", defaultAudience),
		permissions: allWildcards(),
		issued:      now,
		life:        onDemandLife,
	}, key)
}

// authSetting returns a key of a role's authentication as a variable sets it, for clients without a configuration.
func authSetting(getenv func(string) string, role, key, fallback string) string {
	return cmp.Or(getenv("STEPWELL_"+strings.ToUpper(role)+"__WEB__AUTH__"+strings.ToUpper(key)), fallback)
}
