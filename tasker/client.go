package main

// Requests to Stepwell and to Tasker: where the service is, which credentials it gets, and how much is read.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	maxReply = 64 << 20    // bytes, decompressed
	patience = time.Minute // for a request with its reply
)

// client sends requests to one role of a service.
type client struct {
	p    *program
	url  string // for messages, without a user and a password
	base string // without a final slash
	user *url.Userinfo
	role string // whose credentials it has: ORCHESTRATION or WORKER
	http *http.Client

	token  string // made with the key of the environment
	signed time.Time
}

// client returns the client of a role at a URL, which may also be unix:PATH. It follows no redirect: credentials are
// for the service that the user has named.
func (p *program) client(address, role string) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 1 << 20
	c := &client{p: p, url: address, base: "http://localhost", role: role, http: &http.Client{
		Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		transport.Proxy = nil // which cannot reach this machine's sockets
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return c, nil
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, failf(exitUsage, "that is not the URL of a service: want http://HOST:PORT, https://HOST or unix:PATH")
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, "@"):
		return nil, failf(exitUsage, "the URL of the service at %s has a query, a fragment or an unescaped @ or /", u.Host)
	}
	c.user, u.User = u.User, nil
	c.base = strings.TrimRight(u.String(), "/")
	c.url = c.base
	return c, nil
}

// authenticate adds the first credential of the environment, else those of the URL.
func (c *client) authenticate(ctx context.Context, r *http.Request) error {
	if c.user != nil {
		password, _ := c.user.Password()
		r.SetBasicAuth(c.user.Username(), password)
	}
	env := func(name string) string { return strings.TrimSpace(c.p.getenv(name)) }
	header, value := "Authorization", ""
	if token := cmp.Or(env("STEPWELL_"+c.role+"_AUTH_TOKEN"), env("STEPWELL_AUTH_TOKEN")); token != "" {
		value = "Bearer " + token
	} else if key := env("STEPWELL_API_KEY"); key != "" {
		header, value = cmp.Or(env("STEPWELL_API_KEY_HEADER"), "X-API-Key"), key
	} else if file := env("STEPWELL_JWT_PRIVATE_KEY_PATH"); file != "" {
		if c.p.now().Sub(c.signed) > 10*time.Minute {
			token, err := c.p.callStepwell(ctx, "auth", "generate-token", "--private-key", file, "--role", "full-access",
				"--expiry-hours", "1")
			if err != nil {
				return fmt.Errorf("STEPWELL_JWT_PRIVATE_KEY_PATH: %w", err)
			}
			c.token, c.signed = strings.TrimSpace(string(token)), c.p.now()
		}
		value = "Bearer " + c.token
	}
	if strings.ContainsFunc(header+value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return failf(exitUsage, "a credential of the environment has characters that no header can carry")
	}
	if value != "" {
		r.Header.Set(header, value)
	}
	return nil
}

// get reads the reply for a path into v.
func (c *client) get(ctx context.Context, path string, v any) error {
	body, err := c.send(ctx, "GET", path, nil)
	if err == nil {
		if err = decode(body, v); err != nil {
			err = failf(exitFailed, "%s%s: %v", c.url, path, err)
		}
	}
	return err
}

// decode reads a JSON text, whose numbers stay as they are.
func decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// send sends a request, with a body unless it is nil, and returns the reply.
func (c *client) send(ctx context.Context, method, path string, body any) ([]byte, error) {
	name, _, _ := strings.Cut(path, "?")
	if slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return s == "." || s == ".." }) {
		return nil, failf(exitUsage, `a name must not be "." or ".."`) // which would be another path
	}
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if err := c.authenticate(ctx, r); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // which does not name the URL
		}
		return nil, failf(exitUnreachable, "%s cannot be reached: %v", c.url, err)
	}
	defer resp.Body.Close()
	most := cmp.Or(c.p.most, maxReply)
	reply, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, failf(exitUnreachable, "the reply of %s was cut off: %v", c.url, err)
	case int64(len(reply)) > most:
		return nil, failf(exitFailed, "the reply of %s has more than %d bytes", c.url, most)
	case resp.StatusCode/100 == 3:
		return nil, failf(exitUnreachable, "%s redirects elsewhere, and no redirect is followed", c.url)
	case resp.StatusCode >= 400:
		return nil, c.refused(resp, path, reply)
	}
	return reply, nil
}

// refused returns the error for a reply with a status from 400.
func (c *client) refused(resp *http.Response, path string, reply []byte) error {
	message := cmp.Or(text(reply, "error", "message"), text(reply, "error"), resp.Status)
	message = message[:min(len(message), 500)]
	code := exitFailed
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		code = exitRefused
	case http.StatusNotFound:
		code = exitNotFound
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		code = exitUsage
	}
	return &failure{code, fmt.Sprintf("%s%s: %s", c.url, path, message), resp.StatusCode}
}

// hasStatus reports whether an error is for a reply with a status.
func hasStatus(err error, status int) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.status == status
}

// act does an action on tasks of Stepwell, and returns how many it did.
func (c *client) act(ctx context.Context, action, reason string, ids []string) (done int, err error) {
	const most = 1000 // that a request may name
	for part := range slices.Chunk(ids, most) {
		reply, err := c.send(ctx, "POST", "/v1/actions", object{
			"action": action, "reason": reason, "filter": object{"task_uuid": part},
		})
		if err != nil {
			return done, err
		}
		var last struct {
			Done     int
			Finished bool
			Error    struct{ Message string }
		}
		lines := bytes.Split(bytes.TrimSpace(reply), []byte("\n"))
		err = decode(lines[len(lines)-1], &last)
		if done += last.Done; err != nil || !last.Finished {
			return done, failf(exitFailed, "%s stopped after %d tasks: %s", action, done, cmp.Or(last.Error.Message, "the reply was cut off"))
		}
	}
	return done, nil
}
