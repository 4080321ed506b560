package e2e

// Playing a conversation: sending its requests, replacing its variables, and applying its
// checks to the answers.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"stepwell/e2e/wire"
)

// playAll plays the conversation. A check that fails ends the checks of its request, and the conversation continues. A
// variable that cannot be set, or an `until` that never holds, ends the conversation. Every answer must also pass
// standingProblem.
func (p *convPlayer) playAll() (problems []string) {
	for _, e := range p.conversation.exchanges {
		err := p.play(e)
		if err != nil {
			problems = append(problems, err.Error())
		}
		if errors.Is(err, errConversationEnds) {
			break
		}
	}
	return problems
}

// errConversationEnds marks a problem after which the conversation cannot continue.
var errConversationEnds = errors.New("the conversation ends here")

// convPlayer plays one conversation once.
type convPlayer struct {
	conversation *conversation
	baseURL      string
	patience     time.Duration
	client       *http.Client
	vars         map[string]string
	contract     *wire.Contract // that every answer must match; nil for none
}

// newConvPlayer returns a player; patience limits each `until` in real time.
func newConvPlayer(c *conversation, baseURL string, patience time.Duration) *convPlayer {
	return &convPlayer{conversation: c, baseURL: baseURL, patience: patience, vars: map[string]string{}, client: &http.Client{
		Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (p *convPlayer) play(e *convExchange) error {
	var a *wire.Answer
	if e.method != "" {
		var err error
		if a, err = p.ask(e); err != nil {
			return fmt.Errorf("%s:%d: %w: %w", p.conversation.file, e.line, err, errConversationEnds)
		}
		if err := p.standingProblem(a); err != nil {
			return p.problem(e.line, "every answer", err, a)
		}
	}
	for _, k := range e.checks {
		var err error
		if k.until {
			a, err = p.waitFor(e, k, a)
		} else {
			err = p.hold(k, a)
		}
		if err != nil {
			return p.problem(k.line, k.text, err, a)
		}
	}
	return nil
}

func (p *convPlayer) problem(line int, what string, err error, a *wire.Answer) error {
	return fmt.Errorf("%s:%d: %s: %w\n%s", p.conversation.file, line, what, err, a)
}

// ask sends the request of e.
func (p *convPlayer) ask(e *convExchange) (*wire.Answer, error) {
	path, err := p.replace(e.path)
	if err != nil {
		return nil, err
	}
	body, err := expandBody(e.body, p.vars)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(e.method, p.baseURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	if e.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if err := p.setHeaders(req, e.headers); err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return &wire.Answer{Code: resp.StatusCode, Header: resp.Header, Body: said, Request: req.Method + " " + req.URL.RequestURI()}, nil
}

// setHeaders sets the headers that the conversation gives; an empty value removes a header.
func (p *convPlayer) setHeaders(req *http.Request, headers [][2]string) error {
	for _, h := range headers {
		value, err := p.replace(h[1])
		if err != nil {
			return err
		}
		switch {
		case h[0] == "Host":
			req.Host = value
		case value == "":
			req.Header.Del(h[0])
		default:
			req.Header.Set(h[0], value)
		}
	}
	return nil
}

// expandBody returns a body with the values of variables in its plain parts.
func expandBody(parts []convBody, vars map[string]string) (body []byte, err error) {
	for i, part := range parts {
		text := part.text
		if part.plain {
			if text, err = expandVariables(text, vars); err != nil {
				return nil, err
			}
		}
		if part.plain && i > 0 && parts[i-1].plain {
			body = append(body, '\n')
		}
		body = append(body, text...)
	}
	return body, nil
}

// expandVariables replaces the variables in text by their values.
func expandVariables(text string, vars map[string]string) (string, error) {
	var err error
	text = conversationVariable.ReplaceAllStringFunc(text, func(ref string) string {
		value, ok := vars[ref[1:len(ref)-1]]
		if !ok {
			err = fmt.Errorf("variable %s is not set", ref)
		}
		return value
	})
	return text, err
}

func (p *convPlayer) replace(text string) (string, error) { return expandVariables(text, p.vars) }

// waitFor repeats the request of e until k holds for the answer; a is the first answer. The
// error is that of the last answer.
func (p *convPlayer) waitFor(e *convExchange, k convCheck, a *wire.Answer) (*wire.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.hold(k, a)
		if err == nil {
			return a, nil
		}
		select {
		case <-ctx.Done():
			return a, fmt.Errorf("still not after %v: %w: %w", p.patience, err, errConversationEnds)
		case <-tick.C:
		}
		next, err := p.ask(e)
		if err != nil {
			return a, fmt.Errorf("%w: %w", err, errConversationEnds)
		}
		a = next
	}
}

// standingProblem returns what is wrong with an answer to any request: every answer has a
// request id, matches the OpenAPI document of the surface, and declares JSON as JSON; an error
// of the orchestration role has the body of the contract, with the same request id.
func (p *convPlayer) standingProblem(a *wire.Answer) error {
	id := a.Header.Get("X-Request-Id")
	if id == "" {
		return errors.New("got no X-Request-Id; want one")
	}
	if err := p.contract.Problem(a); err != nil {
		return err
	}
	if len(a.Body) == 0 {
		return nil
	}
	got := a.Header.Get("Content-Type")
	if json.Valid(a.Body) && got != "application/json" && got != "application/jsonl" {
		return fmt.Errorf("got Content-Type %q; want application/json", got)
	}
	_, path, _ := strings.Cut(a.Request, " ")
	if path == mountTestPath || strings.HasPrefix(path, mountTestPath+"/") {
		return mountErrorProblem(a, path)
	}
	if a.Code < 400 || strings.HasPrefix(path, "/health") || p.conversation.directives["surface"] == "worker" {
		return nil
	}
	v, err := wire.CheckShape("ApiError", a.Body)
	if err != nil {
		return err
	}
	if got, _ := wire.LookUp(v, "error.request_id"); got != any(id) {
		return fmt.Errorf("got error.request_id %v; want %s, that of the header", got, id)
	}
	return nil
}

// mountTestPath is mount.path in conversations.
const mountTestPath = "/stepwell"

// mountErrorProblem returns what is wrong with an error: it must have the shape of its surface.
// A failed health check has another shape.
func mountErrorProblem(a *wire.Answer, path string) error {
	if a.Code < 400 || a.Code == 503 && strings.HasPrefix(path, mountTestPath+"/health/") {
		return nil
	}
	v, err := wire.CheckShape("MountError", a.Body)
	if err != nil {
		return err
	}
	for _, name := range []string{"error.request_id", "error.retry_after_seconds", "timestamp"} {
		if got, ok := wire.LookUp(v, name); ok {
			return fmt.Errorf("got %s %v; want none, which the roles' errors have", name, got)
		}
	}
	return nil
}
