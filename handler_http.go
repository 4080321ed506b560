package main

// HTTP handlers: the attempt is posted to a URL, and the reply is its outcome.

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
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

// httpCaller calls HTTP handlers. It follows no redirects, keeps no cookies, and
// uses only the configured proxy.
type httpCaller struct {
	transport *http.Transport
	header    http.Header // of every request; some values are secret
	limit     int64       // of a result, in bytes
}

// newHTTPCaller returns a caller in any case. The error is about the proxy.
func newHTTPCaller(c *workerConfig, version string) (*httpCaller, error) {
	h := http.Header{}
	for name, value := range c.HTTPHeaders {
		h.Set(name, value)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Accept-Encoding", "identity")
	h.Set("User-Agent", "stepwell/"+version)
	proxy, err := parseHandlerProxy(c.HTTPProxy)
	transport := newHandlerTransport(c.HTTPConcurrency, proxy)
	return &httpCaller{transport: transport, header: h, limit: c.MaxResultBytes}, err
}

// newHandlerTransport keeps enough connections for all parallel calls to go to one
// host.
func newHandlerTransport(concurrency int, proxy *url.URL) *http.Transport {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           max(concurrency, 1),
		MaxIdleConnsPerHost:    max(concurrency, 1),
		MaxResponseHeaderBytes: 64 << 10,
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

// call makes the attempt with the handler at an address.
func (c *httpCaller) call(ctx context.Context, to *httpAddress, a *attempt) outcome {
	req, err := c.request(ctx, to, a)
	if err != nil {
		return typedFailure(invalidHandlerType, "no request can be made to the URL")
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return brokenCall(ctx, to, a, err)
	}
	defer resp.Body.Close()
	o := c.replied(ctx, to, a, resp)
	if o.err != nil && o.err.retryable {
		o.retryAfter = retryAfter(resp.Header)
	}
	return o
}

func (c *httpCaller) request(ctx context.Context, to *httpAddress, a *attempt) (*http.Request, error) {
	body := bytes.NewReader(a.envelope(nil))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header = c.header.Clone()
	req.Header.Set("Idempotency-Key", fmt.Sprintf("%s:%d", a.stepID, a.number))
	if a.traceparent != "" {
		req.Header.Set("Traceparent", a.traceparent)
	}
	if to.authorization != "" {
		req.Header.Set("Authorization", to.authorization)
	}
	return req, nil
}

// brokenCall returns the outcome of a call without a complete reply.
func brokenCall(ctx context.Context, to *httpAddress, a *attempt, err error) outcome {
	if o, ok := cutOff(ctx, a); ok {
		return o
	}
	return typedFailure("network_error", "no reply from %s: %s", to.url.Host, cleanText([]byte(err.Error())))
}

// replied returns the outcome of a reply.
func (c *httpCaller) replied(ctx context.Context, to *httpAddress, a *attempt, resp *http.Response) outcome {
	switch resp.StatusCode / 100 {
	case 2:
		data, err := io.ReadAll(io.LimitReader(resp.Body, c.limit+1))
		if err != nil {
			return brokenCall(ctx, to, a, err)
		}
		return withStatus(parseReply(data, c.limit), resp)
	case 3:
		return redirected(resp)
	}
	o := typedFailure(fmt.Sprintf("http_%d", resp.StatusCode), "%s replied %s", to.url.Host, statusLine(resp))
	if resp.StatusCode >= 200 { // the body of a 101 is the connection
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
		o.err.attach("body", text)
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

func redirected(resp *http.Response) outcome {
	o := typedFailure("redirect", "the reply is a redirect, %s; redirects are not followed", statusLine(resp))
	if to, err := resp.Location(); err == nil {
		o.err.attach("location", []byte((&url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}).String()))
	}
	return withStatus(o, resp)
}

// statusLine returns the status with its standard text.
func statusLine(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
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
