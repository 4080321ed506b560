package main

// Playing a conversation: sending its requests, replacing its variables, and
// holding the answers against its checks.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// runConversation plays a file against the server at baseURL. A check that
// fails ends the checks of its request, and the conversation goes on; a variable
// that cannot be set or a wait that was in vain ends it. Beside its own checks
// every answer must keep those of standingProblem.
func runConversation(t *testing.T, baseURL string, file string) {
	t.Helper()
	c, err := readConversation(file)
	if err != nil {
		t.Fatal(err)
	}
	p := newConvPlayer(c, baseURL, 10*time.Second)
	p.contract = newAPIContract(t, cmp.Or(c.directives["surface"], "orchestration"))
	for _, problem := range p.playAll() {
		t.Error(problem)
	}
}

// playConversation plays c and returns what was wrong; patience bounds each
// `until` in real time.
func playConversation(c *conversation, baseURL string, patience time.Duration) (problems []string) {
	return newConvPlayer(c, baseURL, patience).playAll()
}

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

// errConversationEnds marks a problem after which nothing sensible can follow.
var errConversationEnds = errors.New("the conversation ends here")

// convPlayer is one run of a conversation.
type convPlayer struct {
	conversation *conversation
	baseURL      string
	patience     time.Duration
	client       *http.Client
	vars         map[string]string
	contract     *apiContract // that every answer must keep; nil for none
}

func newConvPlayer(c *conversation, baseURL string, patience time.Duration) *convPlayer {
	return &convPlayer{
		conversation: c,
		baseURL:      baseURL,
		patience:     patience,
		vars:         map[string]string{},
		client: &http.Client{
			Timeout:       30 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// convAnswer is a response, read to its end.
type convAnswer struct {
	code    int
	header  http.Header
	body    []byte
	request string // method and path, for messages
}

func (p *convPlayer) play(e *convExchange) error {
	var a *convAnswer
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

func (p *convPlayer) problem(line int, what string, err error, a *convAnswer) error {
	return fmt.Errorf("%s:%d: %s: %w\n%s", p.conversation.file, line, what, err, a)
}

// ask sends the request of e.
func (p *convPlayer) ask(e *convExchange) (*convAnswer, error) {
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
	return conversationSend(p.client, req)
}

// setHeaders replaces a header by what the conversation gives; an empty value
// removes it.
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

func conversationSend(client *http.Client, req *http.Request) (*convAnswer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return &convAnswer{resp.StatusCode, resp.Header, body, req.Method + " " + req.URL.RequestURI()}, nil
}

// String is the answer as a message shows it.
func (a *convAnswer) String() string {
	if a == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\t%s answered %d\n", a.request, a.code)
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		fmt.Fprintf(&b, "\t%s: %s\n", name, strings.Join(a.header[name], ", "))
	}
	fmt.Fprintf(&b, "\t%s", conversationCut(string(a.body)))
	return b.String()
}

func conversationCut(s string) string {
	const most = 4000
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}

// expandBody is a body with the variables' values in its plain parts.
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

// expandVariables puts the variables' values in text.
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

// waitFor repeats the request of e until k holds for the answer, of which a is
// the first. The error is that of the last answer.
func (p *convPlayer) waitFor(e *convExchange, k convCheck, a *convAnswer) (*convAnswer, error) {
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

// standingProblem tells what is wrong with an answer whatever was asked: every
// one carries a request id, is what the OpenAPI document of the surface says, and
// says that JSON is JSON; an error of the
// orchestration role has the contract's body, with the same request id.
func (p *convPlayer) standingProblem(a *convAnswer) error {
	id := a.header.Get("X-Request-Id")
	if id == "" {
		return errors.New("got no X-Request-Id; want one")
	}
	if err := p.contract.problem(a); err != nil {
		return err
	}
	if len(a.body) == 0 {
		return nil
	}
	got := a.header.Get("Content-Type")
	if mayBeJSON := a.body[0] == '{' || a.body[0] == '['; mayBeJSON && got != "application/json" {
		return fmt.Errorf("got Content-Type %q; want application/json", got)
	}
	_, path, _ := strings.Cut(a.request, " ")
	if (&mountConfig{Path: mountTestPath}).under(path) {
		return mountErrorProblem(a, path)
	}
	if a.code < 400 || strings.HasPrefix(path, "/health") || p.conversation.directives["surface"] == "worker" {
		return nil
	}
	return conversationErrorProblem(a.body, id)
}

func conversationErrorProblem(body []byte, requestID string) error {
	v, err := wireDecode(body)
	if err != nil {
		return err
	}
	if problems := wireProblems("Error", "Error", v); problems != nil {
		return errors.New(strings.Join(problems, "; "))
	}
	if got, _ := wireLookUp(v, "error.request_id"); got != any(requestID) {
		return fmt.Errorf("got error.request_id %v; want %s, that of the header", got, requestID)
	}
	return nil
}
