package main

// Forward authentication: another service says who is asking.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	forwardTimeout      = 2 * time.Second
	maxForwardReply     = 64 << 10
	maxForwardCached    = 10_000
	maxForwardCacheTime = 60 // seconds
)

// forwardAuth asks the authenticator at a URL about every request.
type forwardAuth struct {
	url          string
	apiKeyHeader string
	trusted      []netip.Prefix // whose X-Forwarded-* count
	client       *http.Client
	cacheFor     time.Duration // 0: nothing is kept
	cache        *authCache
}

func newForwardAuth(url, apiKeyHeader string, cacheFor time.Duration, trusted []netip.Prefix) *forwardAuth {
	return &forwardAuth{
		url: url, apiKeyHeader: apiKeyHeader, trusted: trusted, cacheFor: cacheFor,
		cache: newAuthCache(maxForwardCached),
		client: &http.Client{
			Timeout:       forwardTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				DialContext:            (&net.Dialer{Timeout: forwardTimeout}).DialContext,
				MaxIdleConnsPerHost:    64,
				IdleConnTimeout:        time.Minute,
				MaxResponseHeaderBytes: 64 << 10,
			},
		},
	}
}

// identity is who the authenticator says is asking, and what its permissions
// are called that we do not know.
func (a *forwardAuth) identity(r *http.Request, now instant) (*securityContext, []string, *authFailure) {
	headers := a.forwarded(r)
	digest := digestHeaders(headers)
	sc, epoch := a.cache.get(digest, now)
	if sc != nil {
		return sc, nil, nil
	}
	sc, unknown, failure := a.ask(r.Context(), headers)
	if failure == nil && len(unknown) == 0 && a.cacheFor > 0 {
		a.cache.put(digest, &cachedIdentity{sc, now, now.add(a.cacheFor)}, epoch)
	}
	return sc, unknown, failure
}

// forwarded are the headers of the question. Method and URI are always those of
// the request that we serve; a trusted proxy may speak for the client behind it.
func (a *forwardAuth) forwarded(r *http.Request) http.Header {
	h := make(http.Header)
	for _, name := range []string{"Authorization", "Cookie", a.apiKeyHeader} {
		if values := r.Header.Values(name); len(values) > 0 {
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	proto, host, peer := "http", r.Host, peerAddress(r)
	if r.TLS != nil {
		proto = "https"
	}
	client := "unknown"
	if peer.IsValid() {
		client = peer.String()
	}
	if isTrustedProxy(peer, a.trusted) {
		proto = cmp.Or(r.Header.Get("X-Forwarded-Proto"), proto)
		host = cmp.Or(r.Header.Get("X-Forwarded-Host"), host)
		client = strings.Join(append(slices.Clone(r.Header.Values("X-Forwarded-For")), client), ", ")
	}
	h.Set("X-Forwarded-Method", r.Method)
	h.Set("X-Forwarded-Uri", r.URL.RequestURI())
	h.Set("X-Forwarded-Host", host)
	h.Set("X-Forwarded-Proto", proto)
	h.Set("X-Forwarded-For", client)
	return h
}

// peerAddress is who is at the other end of the connection; the zero address,
// which no proxy has, when that is no IP address.
func peerAddress(r *http.Request) netip.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

func isTrustedProxy(peer netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer.WithZone("")) })
}

// digestHeaders stands for a question: method, path and every header, each with
// its length so that nothing can pass for something else.
func digestHeaders(headers http.Header) (d credentialDigest) {
	h := sha256.New()
	write := func(s string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		io.WriteString(h, s)
	}
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		write(name)
		h.Write(binary.AppendUvarint(nil, uint64(len(headers[name]))))
		for _, v := range headers[name] {
			write(v)
		}
	}
	h.Sum(d[:0])
	return d
}

// ask puts the question.
func (a *forwardAuth) ask(
	ctx context.Context, headers http.Header,
) (*securityContext, []string, *authFailure) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return nil, nil, cannotTell("the URL of the authenticator does not parse")
	}
	req.Header = headers
	req.Header.Set("Accept", "application/json")
	res, err := a.client.Do(req)
	if err != nil {
		return nil, nil, cannotTell("the authenticator does not answer: " + withoutURL(err).Error())
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxForwardReply+1))
	switch {
	case err != nil || len(body) > maxForwardReply:
		return nil, nil, cannotTell("the authenticator's answer cannot be read")
	case res.StatusCode == http.StatusUnauthorized && a.anyCredential(headers):
		return nil, nil, refused(reasonInvalid, severityMedium, "the authenticator says 401")
	case res.StatusCode == http.StatusUnauthorized:
		return nil, nil, refused(reasonMissing, severityLow, "the authenticator says 401")
	case res.StatusCode == http.StatusForbidden:
		return nil, nil, notPermitted("The authenticator does not permit this request")
	case res.StatusCode != http.StatusOK:
		return nil, nil, cannotTell("the authenticator answers with status " + strconv.Itoa(res.StatusCode))
	}
	return decodeIdentity(body)
}

// anyCredential tells whether the caller sent something to be known by.
func (a *forwardAuth) anyCredential(headers http.Header) bool {
	return headers.Get("Authorization")+headers.Get("Cookie")+headers.Get(a.apiKeyHeader) != ""
}

// noIdentity is what the log says of an answer without one.
const noIdentity = `the authenticator's answer is not {"subject", "permissions"}`

// decodeIdentity reads the authenticator's answer.
func decodeIdentity(body []byte) (*securityContext, []string, *authFailure) {
	if checkJSON(body) != nil {
		return nil, nil, cannotTell(noIdentity)
	}
	sc := &securityContext{method: authByForward}
	var list []string
	var err error
	eachMember(body, func(key string, value []byte) bool {
		switch key {
		case "subject":
			sc.subject, err = tokenString(value)
		case "permissions":
			list, err = tokenStrings(value)
		}
		return err == nil
	})
	if err != nil || sc.subject == "" || len(list) > maxTokenPermissions {
		return nil, nil, cannotTell(noIdentity)
	}
	var unknown []string
	sc.permissions, unknown = parsePermissions(list)
	return sc, unknown, nil
}

func (a *forwardAuth) close() { a.client.CloseIdleConnections() }
