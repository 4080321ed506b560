package main

// Addresses of HTTP handlers that do not listen: which errors say so, and the probe that finds out when they listen.

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// dialPatience is how long an address may take to accept a connection, and as long for its TLS handshake.
const dialPatience = 5 * time.Second

// connectPatience is how long everything before a request may take: also an answer of a proxy. It is longer than the limits
// of its parts, which say more.
const connectPatience = 3 * dialPatience

// errConnecting ends that.
var errConnecting = errors.New("no connection in time")

// listener is where somebody must listen before a request to a handler can be sent: at the handler or, if there is one, at
// the proxy.
type listener struct {
	tls     bool
	address string // host and port
}

// listenerOf returns the listener for requests to a URL.
func (c *httpCaller) listenerOf(u *url.URL) listener {
	if c.proxy != nil {
		u = c.proxy
	}
	ports := map[string]string{"http": "80", "https": "443", "socks5": "1080"}
	port := u.Port()
	if port == "" {
		port = ports[u.Scheme]
	}
	return listener{u.Scheme == "https", net.JoinHostPort(u.Hostname(), port)}
}

// probe connects to a listener without a request. It returns why that is not possible.
func (l listener) probe(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 2*dialPatience)
	defer stop()
	conn, err := (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, "tcp", l.address)
	if err == nil && l.tls {
		host, _, _ := net.SplitHostPort(l.address)
		err = tls.Client(conn, &tls.Config{ServerName: host}).HandshakeContext(ctx)
	}
	if conn != nil {
		conn.Close()
	}
	if err == nil || !notListening(err) { // with another error, the attempts of its steps fail
		return nil
	}
	return err
}

// possibleHost matches names that a host can have. RFC 6761, 6.4 reserves names that end in .invalid: they never resolve.
var possibleHost = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?$`)

// notListening reports whether an error of connecting says that nobody listens there now. Errors that time does not fix,
// as of a certificate or for a name that no host can have, do not.
func notListening(err error) bool {
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		name := strings.TrimSuffix(d.Name, ".")
		return len(name) <= 253 && possibleHost.MatchString(name) && name != "invalid" && !strings.HasSuffix(name, ".invalid")
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return true
	}
	says := func(e error) bool { return errors.Is(err, e) }
	return slices.ContainsFunc(errsUnreachable, says) || says(io.EOF) || says(io.ErrUnexpectedEOF) // in a handshake
}
