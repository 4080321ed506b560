package main

// Asking a forward authenticator about every request. Whether its headers may name a caller's
// address depends on the proxies that are trusted.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	forwardTimeout      = 2 * time.Second
	maxForwardReply     = 64 << 10
	maxForwardCacheTime = 60 // seconds
)

// forwardAuth asks the authenticator at a URL about every request.
type forwardAuth struct {
	url          string
	apiKeyHeader string
	trusted      []netip.Prefix // proxies whose X-Forwarded-* headers are believed
	client       *http.Client
	cacheFor     time.Duration // 0: nothing is cached
	cache        *authCache    // of the role
}

func newForwardAuth(url, apiKeyHeader string, cacheFor time.Duration, trusted []netip.Prefix, cache *authCache) *forwardAuth {
	return &forwardAuth{url, apiKeyHeader, trusted, newAuthClient(forwardTimeout, nil), cacheFor, cache}
}

func (a *forwardAuth) close() { a.client.CloseIdleConnections() }

// identity returns the caller that the authenticator names, and those of the
// caller's permissions that are not in the vocabulary.
func (a *forwardAuth) identity(ctx context.Context, c caller, now instant) (*securityContext, []string, *failure) {
	headers := a.forwarded(c)
	digest := digestHeaders(headers)
	sc, epoch := a.cache.get(digest, now)
	if sc != nil {
		return sc, nil, nil
	}
	sc, unknown, f := a.ask(ctx, headers)
	// Callers with unknown permissions are not cached: an entry could not tell the next request about them, which
	// would be neither logged nor refused by strict validation.
	if f == nil && len(unknown) == 0 && a.cacheFor > 0 {
		a.cache.put(digest, &cachedIdentity{sc, now, now.add(a.cacheFor)}, epoch)
	}
	return sc, unknown, f
}

// forwarded returns the headers of the request to the authenticator. Method and URI are always those of the request
// that we serve; a trusted proxy may speak for the client behind it.
func (a *forwardAuth) forwarded(c caller) http.Header {
	h := make(http.Header)
	// Only credentials are passed on, and what X-Forwarded-* says of the request: the cache finds the answer by all of
	// that.
	for _, name := range []string{"Authorization", "Cookie", a.apiKeyHeader} {
		if values := c.header.Values(name); len(values) > 0 {
			h[textproto.CanonicalMIMEHeaderKey(name)] = values
		}
	}
	proto, host, peer := "http", c.host, peerAddress(c.remote) // no listener has TLS
	client := "unknown"
	if peer.IsValid() {
		client = peer.String()
	}
	// From anybody else these headers are claims about an origin that the authenticator might believe.
	if isTrustedProxy(peer, a.trusted) {
		proto = cmp.Or(c.header.Get("X-Forwarded-Proto"), proto)
		host = cmp.Or(c.header.Get("X-Forwarded-Host"), host)
		client = strings.Join(append(slices.Clone(c.header.Values("X-Forwarded-For")), client), ", ")
	}
	h.Set("X-Forwarded-Method", c.method)
	h.Set("X-Forwarded-Uri", c.url.RequestURI())
	h.Set("X-Forwarded-Host", host)
	h.Set("X-Forwarded-Proto", proto)
	h.Set("X-Forwarded-For", client)
	return h
}

// peerAddress returns the address of a connection's peer ("address:port"), or
// the zero address, which no proxy has, when that is no IP address.
func peerAddress(remote string) netip.Addr {
	a, _ := netip.ParseAddrPort(remote)
	return a.Addr().Unmap()
}

func isTrustedProxy(peer netip.Addr, trusted []netip.Prefix) bool {
	// A prefix contains no address with a zone, as link-local peers have.
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer.WithZone("")) })
}

// digestHeaders returns the digest of every header with all its values.
func digestHeaders(headers http.Header) credentialDigest {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		b = binary.AppendUvarint(appendSized(b, name), uint64(len(headers[name])))
		b = appendSized(b, headers[name]...)
	}
	return sha256.Sum256(b)
}

// ask sends a request to the authenticator and reads the caller from its response.
func (a *forwardAuth) ask(ctx context.Context, headers http.Header) (*securityContext, []string, *failure) {
	headers.Set("Accept", "application/json")
	status, body, err := authGet(ctx, a.client, a.url, headers, maxForwardReply)
	const refusal = "the authenticator answered 401"
	switch {
	case err != nil:
		return nil, nil, cannotVerify("asking the authenticator: " + err.Error())
	case status == http.StatusUnauthorized && headers.Get("Authorization")+headers.Get("Cookie")+headers.Get(a.apiKeyHeader) != "":
		return nil, nil, invalid(refusal)
	case status == http.StatusUnauthorized:
		return nil, nil, refused(reasonMissing, severityLow, refusal)
	case status == http.StatusForbidden:
		return nil, nil, notPermitted("The authenticator does not permit this request")
	case status != http.StatusOK:
		return nil, nil, cannotVerify("the authenticator answered with status " + strconv.Itoa(status))
	}
	return decodeIdentity(body)
}

// decodeIdentity reads the authenticator's answer.
func decodeIdentity(body []byte) (*securityContext, []string, *failure) {
	r := readTokenObject(body)
	sc := &securityContext{method: authByForward, subject: r.text("subject", "")}
	list := r.list("permissions", nil)
	if r.f != nil || sc.subject == "" || len(list) > maxTokenPermissions {
		return nil, nil, cannotVerify(`the authenticator's answer is not {"subject", "permissions"}`)
	}
	var unknown []string
	sc.permissions, unknown = parsePermissions(list)
	return sc, unknown, nil
}
