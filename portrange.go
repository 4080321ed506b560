package main

// The ports that sandboxes listen on.

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// portRange gives out the ports of a range in turn, so that one that was given
// back is not soon another's. The zero value gives out any free port.
type portRange struct {
	low, high int

	mu   sync.Mutex
	next int // guarded by mu
}

// parsePortRange reads fixture.port_range, which the configuration checked.
func parsePortRange(s string) *portRange {
	low, high, _ := strings.Cut(s, "-")
	p := new(portRange)
	p.low, _ = strconv.Atoi(low)
	p.high, _ = strconv.Atoi(high)
	p.next = p.low
	return p
}

// listen listens on the next free port of a host.
func (p *portRange) listen(host string) (net.Listener, error) {
	for range p.high - p.low + 1 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p.take())))
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || p.low == 0 {
			return nil, &failure{kind: unavailable, message: "no port for a sandbox: " + err.Error()}
		}
	}
	return nil, failf(unavailable, "no port for a sandbox: all of fixture.port_range, %d-%d, are in use", p.low, p.high)
}

func (p *portRange) take() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	port := p.next
	if p.next++; p.next > p.high {
		p.next = p.low
	}
	return port
}
