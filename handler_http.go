package main

// HTTP handlers: the attempt is posted to a URL, and the reply is its outcome.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

// maxRetryAfter is the longest delay that a Retry-After may ask for.
const maxRetryAfter = time.Hour

// httpAddress is the address of an HTTP handler.
type httpAddress struct {
	url           *url.URL // without credentials
	plain         string   // the host and port for requests without TLS; "" for what is left to net/http
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
	if u.Scheme == "http" && !strings.ContainsFunc(u.Host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		a.plain = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))
	}
	return a, nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

// httpCaller calls HTTP handlers. It follows no redirects, keeps no cookies, and
// uses only the configured proxy.
type httpCaller struct {
	transport *http.Transport
	plain     plainConnections
	headers   headerTables
	agent     string // the User-Agent
	limit     int64  // of a result, in bytes
}

// newHTTPCaller returns a caller in any case. The error is about the proxy.
func newHTTPCaller(c *workerConfig, version string) (*httpCaller, error) {
	proxy, err := parseHandlerProxy(c.HTTPProxy)
	transport := newHandlerTransport(c.HTTPConcurrency, proxy)
	return &httpCaller{transport: transport, plain: plainConnections{size: max(c.HTTPConcurrency, 1)},
		headers: c.HTTPHeaders, agent: "stepwell/" + version, limit: c.MaxResultBytes}, err
}

// sentHeaders are what the requests of one callable have in common. It is never changed.
type sentHeaders struct {
	request *http.Request // with the headers, without a body; nil if none can be made to the URL
	head    []byte        // see headOf
	secrets secretTexts   // in the headers
}

// headersFor returns the headers for a callable that is handled at an address: those of
// every request, those for its origin, those for the callable, and the credentials in the
// URL; of equal names, the last one counts.
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
	h.Set("Accept-Encoding", "identity")
	h.Set("User-Agent", c.agent)
	sent := &sentHeaders{secrets: secrets}
	if req, err := http.NewRequest(http.MethodPost, to.url.String(), nil); err == nil {
		req.Header = h
		sent.request, sent.head = req, headOf(req)
	}
	return sent
}

// headOf returns a request without a body as text, up to the headers that differ by attempt. It
// returns nil if a configured header has the name of one of those.
func headOf(req *http.Request) []byte {
	var text bytes.Buffer
	if req.Header["Traceparent"] != nil || req.Header["Tracestate"] != nil || req.Write(&text) != nil {
		return nil
	}
	head := bytes.Replace(text.Bytes(), []byte("\r\nContent-Length: 0\r\n"), []byte("\r\n"), 1)
	return bytes.TrimSuffix(head, []byte("\r\n"))
}

// newHandlerTransport keeps enough connections for all parallel calls to go to one
// host.
func newHandlerTransport(concurrency int, proxy *url.URL) *http.Transport {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        keptIdle,
		MaxIdleConns:           max(concurrency, 1),
		MaxIdleConnsPerHost:    max(concurrency, 1),
		MaxResponseHeaderBytes: maxReplyHeader,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	return t
}

// parseHandlerProxy reads the proxy's URL. "" means no proxy.
func parseHandlerProxy(s string) (*url.URL, error) {
	if s == "" {
		return nil, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
		return nil, errors.New("worker.http_proxy: not a URL like http://proxy:3128")
	}
	return u, nil
}

// call makes the attempt with an HTTP handler.
func (c *httpCaller) call(ctx *attemptContext, t target, a *attempt) outcome {
	if t.headers.request == nil {
		return typedFailure(invalidHandlerType, "no request can be made to the URL")
	}
	resp, err := c.exchange(ctx, t, a)
	if err != nil {
		return brokenCall(ctx, t, a, err)
	}
	defer resp.Body.Close()
	o := c.replied(ctx, t, a, resp)
	if o.err != nil && o.err.retryable {
		o.retryAfter = retryAfter(resp.Header)
	}
	return o
}

// exchange sends the request of an attempt, and returns the reply.
func (c *httpCaller) exchange(ctx *attemptContext, t target, a *attempt) (*http.Response, error) {
	address := t.http.plain
	if address == "" || t.headers.head == nil || c.transport.Proxy != nil {
		return c.transport.RoundTrip(t.headers.requestFor(ctx, a))
	}
	text := requestTexts.Get().(*requestText)
	defer requestTexts.Put(text)
	text.fill(t.headers.head, a)
	for {
		conn, err := c.plain.take(address, func() (net.Conn, error) {
			return c.transport.DialContext(ctx, "tcp", address)
		})
		if err != nil {
			return nil, err
		}
		resp, err := conn.exchange(ctx, t.headers.request, text.whole)
		if err == nil || !conn.known || conn.left != maxReplyHeader || ctx.Err() != nil {
			return resp, err
		} // else the handler closed the connection, which it had kept, just before
	}
}

// eachOwn calls f for the headers of an attempt alone.
func (a *attempt) eachOwn(f func(name, value string)) {
	f("Idempotency-Key", a.deliveryKey())
	if a.traceparent != "" {
		f("Traceparent", a.traceparent)
	}
	if a.tracestate != "" {
		f("Tracestate", a.tracestate)
	}
}

// requestText is the request of an attempt as it is sent. Its memory is used again.
type requestText struct{ body, whole []byte }

var requestTexts = sync.Pool{New: func() any { return new(requestText) }}

// fill writes the request of an attempt after a head.
func (r *requestText) fill(head []byte, a *attempt) {
	if cap(r.whole) > keptText {
		*r = requestText{}
	}
	r.body = a.envelope(r.body[:0])
	r.whole = append(r.whole[:0], head...)
	a.eachOwn(func(name, value string) {
		r.whole = append(append(append(append(r.whole, name...), ": "...), value...), "\r\n"...)
	})
	r.whole = strconv.AppendInt(append(r.whole, "Content-Length: "...), int64(len(r.body)), 10)
	r.whole = append(append(r.whole, "\r\n\r\n"...), r.body...)
}

// requestFor returns the request of an attempt.
func (h *sentHeaders) requestFor(ctx context.Context, a *attempt) *http.Request {
	req := h.request.WithContext(ctx)
	req.Header = make(http.Header, len(h.request.Header)+3)
	maps.Copy(req.Header, h.request.Header)
	a.eachOwn(func(name, value string) { req.Header[name] = []string{value} })
	body := a.envelope(nil)
	req.ContentLength = int64(len(body))
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
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	return resp.StatusCode, retryAfter(resp.Header), nil
}

// brokenCall returns the outcome of a call without a complete reply.
func brokenCall(ctx context.Context, t target, a *attempt, err error) outcome {
	if o, ok := cutOff(ctx, a); ok {
		return o
	}
	why := cleanText(t.headers.secrets.hide([]byte(err.Error())))
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		why = "the handler closed the connection (" + why + "); its output may say why"
	}
	o := typedFailure("network_error", "no reply from %s: %s", t.http.url.Host, why)
	o.unmade = outOfDescriptors(err)
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
		data, err := io.ReadAll(io.LimitReader(resp.Body, c.limit+1))
		if err != nil {
			return brokenCall(ctx, t, a, err)
		}
		o := parseReply(secrets.hideInJSON(data), c.limit)
		if o.err != nil { // an error about invalid JSON repeats some of it
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

// Connections without TLS. The goroutine of an attempt writes its request and reads the reply
// itself, which takes less processor time than http.Transport, where goroutines of the connection
// do so.

const (
	maxReplyHeader = 64 << 10 // bytes
	keptText       = 64 << 10 // bytes; a larger buffer is not reused
	keptIdle       = 90 * time.Second
	justUsed       = 10 * time.Millisecond // a connection idle for less is used without a check that it is still open
)

// plainConnections are connections that wait for their next request, the longest waiting first.
type plainConnections struct {
	size int

	mu     sync.Mutex
	idle   []*plainConnection // guarded by mu, as all below
	prunes bool               // prune is going to run
}

// plainConnection is used by one attempt at a time.
type plainConnection struct {
	net.Conn
	address string
	r       *bufio.Reader
	left    int64   // bytes that may still be read
	known   bool    // it was idle before
	since   instant // when it became idle
	all     *plainConnections
}

// take returns a connection to an address that is idle, or a new one.
func (p *plainConnections) take(address string, dial func() (net.Conn, error)) (*plainConnection, error) {
	for c := p.takeIdle(address); c != nil; c = p.takeIdle(address) {
		if realNow().sub(c.since) < justUsed || isQuiet(c.Conn) {
			return c, nil
		}
		c.Close()
	}
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	c := &plainConnection{Conn: conn, address: address, all: p}
	c.r = bufio.NewReader(c)
	return c, nil
}

func (p *plainConnections) takeIdle(address string) *plainConnection {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range slices.Backward(p.idle) {
		if c.address == address {
			p.idle = slices.Delete(p.idle, i, i+1)
			return c
		}
	}
	return nil
}

// give keeps a connection for the next request.
func (p *plainConnections) give(c *plainConnection) {
	c.known, c.since = true, realNow()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle = append(p.idle, c); len(p.idle) > p.size {
		p.dropLocked(1)
	}
	if !p.prunes {
		p.prunes = true
		afterReal(keptIdle, p.prune)
	}
}

// prune closes the connections that have been idle for too long.
func (p *plainConnections) prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	young := func(c *plainConnection) bool { return realNow().sub(c.since) < keptIdle }
	if n := slices.IndexFunc(p.idle, young); n >= 0 {
		p.dropLocked(n)
		afterReal(keptIdle, p.prune)
		return
	}
	p.dropLocked(len(p.idle))
	p.prunes = false
}

// dropLocked closes the n longest waiting connections.
func (p *plainConnections) dropLocked(n int) {
	for _, c := range p.idle[:n] {
		c.Close()
	}
	p.idle = slices.Delete(p.idle, 0, n)
}

// isQuiet reports whether nothing came on an idle connection, not even its end.
func isQuiet(conn net.Conn) (quiet bool) {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		quiet = err == syscall.EAGAIN
		return true
	})
	return quiet
}

// Read reads as much as a reply may have now.
func (c *plainConnection) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the header of the reply is longer than %d bytes", maxReplyHeader)
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// exchange sends the text of a request, and returns the reply, whose body gives the connection back.
// The end of ctx ends both.
func (c *plainConnection) exchange(ctx *attemptContext, req *http.Request, text []byte) (*http.Response, error) {
	c.left = maxReplyHeader
	stop := ctx.AfterFunc(func() { c.Close() })
	_, sent := c.Write(text)
	resp, err := c.reply(req) // even if it was given before all was sent
	if err != nil {
		stop()
		c.Close()
		return nil, cmp.Or(sent, err)
	}
	c.left = math.MaxInt64
	keep := sent == nil && !resp.Close && resp.StatusCode >= 200
	resp.Body = &plainBody{resp.Body, c, stop, keep, resp.Body == http.NoBody}
	return resp, nil
}

// reply reads the header of the reply, without the interim ones before it.
func (c *plainConnection) reply(req *http.Request) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(c.r, req)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
}

// plainBody is the body of a reply.
type plainBody struct {
	io.Reader
	conn  *plainConnection
	stop  func() bool // of the watch of the request's context
	keep  bool        // the connection can be kept
	ended bool        // all of it was read
}

func (b *plainBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Close keeps the connection if nothing more comes on it.
func (b *plainBody) Close() error {
	if b.stop() && b.keep && b.ended && b.conn.r.Buffered() == 0 {
		b.conn.all.give(b.conn)
		return nil
	}
	return b.conn.Close()
}

// Secrets that were sent. A handler may echo them, and a result is stored and shown.

// minSecret is the length of the shortest text that is hidden. Shorter ones, such as
// "on" and "1", would be found in innocent results.
const minSecret = 6

// secretTexts are texts to hide, longer ones first.
type secretTexts [][]byte

// secretsOf returns the values of headers, and what is secret in them by itself: what
// follows the scheme of credentials, the password of Basic ones, and the values of
// cookies. What a client accepts is no secret.
func secretsOf(h http.Header) secretTexts {
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

// hideInStart returns at most limit bytes of the start of a text, without secrets. It
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
	return text[:min(len(text), limit)]
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
// that is not valid is no result, and stays as it is.
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

// retryAfter returns how long the reply asks to wait, or 0 if it does not. A date
// is relative to the reply's Date, because clocks differ. One that has passed asks
// for a retry now instead of after the usual back-off.
func retryAfter(h http.Header) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
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
	return min(max(d, time.Microsecond), maxRetryAfter)
}
