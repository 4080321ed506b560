package main

// HTTP handlers: the attempt is posted to a URL, and the reply is its outcome.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// maxRetryAfter is the longest delay that a Retry-After may ask for.
const maxRetryAfter = time.Hour

// httpAddress is the address of an HTTP handler.
type httpAddress struct {
	url           *url.URL // without credentials
	authorization string   // the header for the credentials in the URL; secret
}

// parseHTTPAddress reads the URL of a handler. Its errors do not repeat the URL,
// which may hold a password in an unexpected place.
func parseHTTPAddress(s string) (*httpAddress, error) {
	u, err := url.Parse(s)
	if err != nil || !validPort(u.Port()) {
		return nil, errors.New("the URL is malformed")
	}
	if u.Hostname() == "" {
		return nil, errors.New("the URL has no host")
	}
	a := &httpAddress{url: u}
	if u.User != nil {
		password, _ := u.User.Password()
		credentials := u.User.Username() + ":" + password
		a.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(credentials))
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return a, nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

// httpCaller calls HTTP handlers. It follows no redirects, keeps no cookies, and uses only the configured proxy.
type httpCaller struct {
	connections http.RoundTripper
	proxy       *url.URL // nil for none
	headers     headerTables
	agent       string        // the User-Agent
	limit       int64         // of a result, in bytes
	patience    time.Duration // for a connection, if the attempt begins only then
}

// newHTTPCaller returns a caller. The configuration has checked the proxy's URL.
func newHTTPCaller(c *workerConfig, version string) *httpCaller {
	var proxy *url.URL
	if c.HTTPProxy != "" {
		proxy, _ = url.Parse(c.HTTPProxy)
	}
	return &httpCaller{connections: newHandlerTransport(c.HTTPConcurrency, proxy), proxy: proxy,
		headers: c.HTTPHeaders, agent: "stepwell/" + version, limit: c.MaxResultBytes, patience: connectPatience}
}

// sentHeaders are what the requests of one callable have in common. It is never changed.
type sentHeaders struct {
	request *http.Request // with the headers, without a body; nil if none can be made to the URL
	secrets secretTexts   // in the headers
}

// headersFor returns the headers for a callable that is handled at an address: those of every request, those for its
// origin, those for the callable, and the credentials in the URL; of equal names, the last one counts.
func (c *httpCaller) headersFor(callable string, to *httpAddress) *sentHeaders {
	own, _ := callableTable[map[string]string](c.headers).find(callable)
	h := http.Header{}
	for _, table := range []map[string]string{c.headers[""], c.headers[originOf(to.url)], own} {
		for name, value := range table {
			h.Set(name, value)
		}
	}
	if to.authorization != "" {
		h.Set("Authorization", to.authorization)
	}
	secrets := secretsOf(h)
	h.Set("Content-Type", "application/json")
	// A compressed reply would not be decoded: its limit counts bytes, and secrets must be found in its text.
	h.Set("Accept-Encoding", "identity")
	h.Set("User-Agent", c.agent)
	sent := &sentHeaders{secrets: secrets}
	if req, err := http.NewRequest(http.MethodPost, to.url.String(), nil); err == nil {
		req.Header = h
		sent.request = req
	}
	return sent
}

// canWait reports whether steps can wait for a target to listen. The names of hosts beyond ASCII have another form on the
// network, which net/http alone knows.
func (t target) canWait() bool {
	return t.http != nil && t.headers.request != nil && !strings.ContainsFunc(t.http.url.Host, func(c rune) bool { return c > '~' })
}

// call (hot path: BenchmarkHandlers) makes the attempt with an HTTP handler.
func (c *httpCaller) call(ctx context.Context, t target, a *attempt) outcome {
	if t.headers.request == nil {
		return typedFailure(invalidHandlerType, "no request can be made to the URL")
	}
	resp, err := c.connections.RoundTrip(t.headers.requestFor(ctx, a))
	if err != nil {
		return c.brokenCall(ctx, t, a, err)
	}
	defer resp.Body.Close()
	o := c.replied(ctx, t, a, resp)
	if o.err != nil && o.err.retryable {
		o.retryAfter = retryAfter(resp.Header)
	}
	return o
}

func (h *sentHeaders) requestFor(ctx context.Context, a *attempt) *http.Request {
	req := h.request.WithContext(ctx)
	req.Header = make(http.Header, len(h.request.Header)+3)
	maps.Copy(req.Header, h.request.Header)
	req.Header["Idempotency-Key"] = []string{a.deliveryKey()}
	if a.traceparent != "" {
		req.Header["Traceparent"] = []string{a.traceparent}
	}
	if a.tracestate != "" {
		req.Header["Tracestate"] = []string{a.tracestate}
	}
	body := a.envelope(nil)
	req.ContentLength = int64(len(body))
	// net/http needs the body again if it sends the request on another connection.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
	return req
}

// post posts JSON to an address, and returns the status of the reply and how long it asks to
// wait. Little of the reply is read.
func (c *httpCaller) post(
	ctx context.Context, to *httpAddress, headers map[string]string, body []byte,
) (status int, wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url.String(), bytes.NewReader(body))
	if err != nil {
		return 0, 0, errors.New("no request can be made to the URL")
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", c.agent)
	if to.authorization != "" {
		req.Header.Set("Authorization", to.authorization)
	}
	resp, err := c.connections.RoundTrip(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	return resp.StatusCode, retryAfter(resp.Header), nil
}

// brokenCall returns the outcome of a call without a complete reply.
func (c *httpCaller) brokenCall(ctx context.Context, t target, a *attempt, err error) outcome {
	if o, ok := cutOff(ctx, a); ok {
		return o
	}
	why := cleanText(t.headers.secrets.hide([]byte(err.Error())))
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errConnectionReset) {
		why = "the handler closed the connection (" + why + "); its output may say why"
	}
	o := typedFailure(networkErrorType, "no reply from %s: %s", t.http.url.Host, why)
	o.unmade = outOfDescriptors(err)
	unsent, ok := errors.AsType[unsentError](err)
	_, dialed := errors.AsType[dialError](err)
	// What comes after the connection to a proxy concerns one target, and not all that are behind the proxy.
	o.unsent = ok && !o.unmade && (dialed || c.proxy == nil) && notListening(unsent.error)
	o.unbegun = errors.Is(err, errNotBegun)
	return o
}

// outOfDescriptors reports whether an error says that no file or socket could be opened,
// because the process or the system has too many.
func outOfDescriptors(err error) bool {
	if d, ok := errors.AsType[*net.DNSError](err); ok { // which keeps the text alone
		return strings.Contains(d.Err, syscall.EMFILE.Error())
	}
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// replied returns the outcome of a reply, without the secrets that were sent.
func (c *httpCaller) replied(ctx context.Context, t target, a *attempt, resp *http.Response) outcome {
	secrets := t.headers.secrets
	switch resp.StatusCode / 100 {
	case 2:
		data, err := readChunks(io.LimitReader(resp.Body, c.limit+1), resp.ContentLength, nil)
		if err != nil {
			return c.brokenCall(ctx, t, a, err)
		}
		o := parseReply(secrets.hideInJSON(data), c.limit)
		if o.err != nil { // an error about invalid JSON quotes from it
			o.err.message = string(secrets.hideEscaped([]byte(o.err.message)))
		}
		if o.malformed {
			body := secrets.hideInStart(bytes.NewReader(data), maxErrorText)
			o.err.message = t.http.url.Host + ": " + o.err.message
			o.err.attach("body", body)
			o.err.quote(body)
		}
		return withStatus(o, resp)
	case 3:
		return redirected(resp, secrets)
	}
	o := typedFailure(fmt.Sprintf("http_%d", resp.StatusCode), "%s replied %s", t.http.url.Host, statusLine(resp))
	if resp.StatusCode >= 200 { // the body of a 101 is the connection
		body := secrets.hideInStart(resp.Body, maxErrorText)
		o.err.attach("body", body)
		o.err.quote(body)
	}
	return withStatus(o, resp)
}

// withStatus sets the reply's status in an error that has none.
func withStatus(o outcome, resp *http.Response) outcome {
	if o.err != nil && o.err.statusCode == 0 {
		o.err.statusCode = resp.StatusCode
	}
	return o
}

func redirected(resp *http.Response, secrets secretTexts) outcome {
	o := typedFailure("redirect", "the reply is a redirect, %s; redirects are not followed", statusLine(resp))
	if to, err := resp.Location(); err == nil {
		// Without its query, which may have secrets that are not ours.
		path := string(secrets.hide([]byte(to.Path)))
		location := (&url.URL{Scheme: to.Scheme, Host: to.Host, Path: path}).String()
		o.err.attach("location", secrets.hide([]byte(location)))
	}
	return withStatus(o, resp)
}

// statusLine returns the status with its standard text.
func statusLine(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// retryAfter returns how long the reply asks to wait, or 0 if it does not. A date is relative to the reply's Date,
// because clocks differ. One that has passed asks for a retry now instead of after the usual back-off.
func retryAfter(h http.Header) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			// A number that overflows asks for the longest wait that there is.
			return maxRetryAfter
		}
		return clampRetryAfter(time.Duration(seconds) * time.Second)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = new(realClock).now().time()
	}
	return clampRetryAfter(at.Sub(now))
}

func clampRetryAfter(d time.Duration) time.Duration {
	// Not 0, which means that the reply did not ask for anything.
	return min(max(d, time.Microsecond), maxRetryAfter)
}

// Hiding secrets: the values of configured headers never appear in what a handler's reply makes visible.

// minSecret is the length of the shortest text that is hidden. Shorter ones, such as
// "on" and "1", would be found in innocent results.
const minSecret = 6

// secretTexts are texts to hide, longer ones first.
type secretTexts [][]byte

// secretsOf returns the values of headers, and those parts of them that are secrets by themselves: what follows the
// scheme of credentials, the password in Basic credentials, and the values of cookies. The Accept headers have no
// secrets.
func secretsOf(h map[string][]string) secretTexts {
	var s secretTexts
	for name, values := range h {
		if strings.HasPrefix(name, "Accept") {
			continue
		}
		for _, text := range append(secretParts(name, values[0]), values[0]) {
			if len(text) >= minSecret {
				s = append(s, []byte(text))
			}
		}
	}
	// The longer ones first: a secret that contains another one must be hidden as a whole.
	slices.SortFunc(s, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) })
	return s
}

func secretParts(name, value string) (parts []string) {
	if name == "Cookie" {
		for pair := range strings.SplitSeq(value, ";") {
			_, value, _ := strings.Cut(pair, "=")
			parts = append(parts, value)
		}
		return parts
	}
	scheme, credentials, _ := strings.Cut(value, " ")
	if strings.EqualFold(scheme, "Basic") {
		decoded, _ := base64.StdEncoding.DecodeString(credentials)
		_, password, _ := strings.Cut(string(decoded), ":")
		parts = append(parts, password, string(decoded))
	}
	return append(parts, credentials)
}

// hide returns a text with "[REDACTED]" for every secret; the same slice if it has none.
func (s secretTexts) hide(text []byte) []byte {
	for _, secret := range s {
		if bytes.Contains(text, secret) {
			text = bytes.ReplaceAll(text, secret, []byte(redactedText))
		}
	}
	return text
}

// hideInStart returns at most limit bytes of the start of a text, up to the end of a character, without secrets. It
// reads more, and drops as much of the end, where a secret may be cut in two.
func (s secretTexts) hideInStart(r io.Reader, limit int) []byte {
	longest := 0
	if len(s) > 0 {
		longest = 6 * len(s[0]) // with every character as \u0000
	}
	text, _ := io.ReadAll(io.LimitReader(r, int64(limit+longest)))
	goesOn := len(text) == limit+longest
	if text = s.hideEscaped(text); goesOn {
		text = text[:max(len(text)-longest, 0)]
	}
	text = text[:min(len(text), limit)]
	return text[:len(text)-pick(goesOn, cutRune(text), 0)]
}

// jsonEscape matches what a JSON string may have in the place of a visible character.
var jsonEscape = compiled(`\\(u[0-9a-fA-F]{4}|["\\/])`)

// hideEscaped is hide for a text that may contain JSON, also invalid or incomplete JSON.
// A text in which escapes conceal a secret loses all of its escapes.
func (s secretTexts) hideEscaped(text []byte) []byte {
	text = s.hide(text)
	plain := jsonEscape().ReplaceAllFunc(text, func(escape []byte) []byte {
		code, err := strconv.ParseUint(string(escape[2:]), 16, 16)
		if err != nil {
			return escape[1:]
		}
		return utf8.AppendRune(nil, rune(code))
	})
	if shown := s.hide(plain); !bytes.Equal(shown, plain) {
		return shown
	}
	return text
}

// hideInJSON is hide for the strings of a JSON text, however they are escaped. A text
// that is not valid is not a result, and stays as it is.
func (s secretTexts) hideInJSON(data []byte) []byte {
	mayOccur := func(secret []byte) bool {
		return bytes.Contains(data, secret) || bytes.IndexByte(data, '\\') >= 0
	}
	if !slices.ContainsFunc(s, mayOccur) || checkJSON(data) != nil {
		return data
	}
	var hidden []byte
	kept := 0 // up to here, data is in hidden
	for i := 0; i < len(data); i++ {
		if data[i] != '"' {
			continue
		}
		start := i
		i = skipJSONString(data, start) - 1
		text := unescapeJSON(data[start : i+1])
		if shown := s.hide(text); !bytes.Equal(shown, text) {
			hidden = appendJSONString(append(hidden, data[kept:start]...), string(shown))
			kept = i + 1
		}
	}
	return append(hidden, data[kept:]...)
}
