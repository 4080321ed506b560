package main

// Getting a key set over HTTP, without letting a configured URL reach what only
// this machine should.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"
)

const (
	keyFetchTimeout = 10 * time.Second
	maxKeySetBytes  = 1 << 20
)

// metadataAddresses are where clouds hand out credentials; the common
// 169.254.169.254 is link-local anyway.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
}

// embeddingPrefixes carry an IPv4 address in their last 32 bits; ::1 and :: come
// out as 0.0.0.1 and 0.0.0.0.
var embeddingPrefixes = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("::/96"),
}

// isPrivateHost tells whether an address is loopback, link-local or a metadata
// service, in whatever guise. (The ranges of RFC 1918 are where honest issuers
// inside a cluster live.)
func isPrivateHost(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	for _, p := range embeddingPrefixes {
		if p.Contains(ip) {
			v4, _ := netip.AddrFromSlice(ip.AsSlice()[12:])
			return isPrivateHost(v4)
		}
	}
	return slices.Contains(metadataAddresses, ip) ||
		ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() ||
		ip.Is4() && (ip.As4()[0] == 0 || ip.As4() == [4]byte{255, 255, 255, 255})
}

var errPrivateHost = errors.New("the address is loopback, link-local or a metadata service")

// refusePrivateHosts is a net.Dialer's Control: it sees every address after DNS.
func refusePrivateHosts(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || isPrivateHost(a.Addr()) {
		return errPrivateHost
	}
	return nil
}

// newKeyClient is a client for a key set: no redirects, no proxy, and no private
// hosts unless they are allowed.
func newKeyClient(allowPrivate bool) *http.Client {
	dialer := &net.Dialer{Timeout: keyFetchTimeout}
	if !allowPrivate {
		dialer.Control = refusePrivateHosts
	}
	return &http.Client{
		Timeout:       keyFetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           1,
			IdleConnTimeout:        keyFetchTimeout,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// keyFetcher gets a key set from one place.
type keyFetcher struct {
	url     string
	allowed []string // algorithms
	client  *http.Client
}

// fetch gets and decodes the set. The error does not hold the URL, which may
// have credentials in it.
func (k *keyFetcher) fetch(ctx context.Context) ([]*verificationKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, errors.New("the URL of the key set does not parse")
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := k.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the key set's host answered %d", res.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the key set: %w", withoutURL(err))
	}
	if len(data) > maxKeySetBytes {
		return nil, fmt.Errorf("the key set has more than %d bytes", maxKeySetBytes)
	}
	return decodeKeySet(data, k.allowed)
}

// withoutURL takes the URL out of an http.Client's error.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
