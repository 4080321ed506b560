package main

// What the surfaces of one kind have in common, whatever service they belong
// to: made once for all services of a process, so that another one costs little.

import (
	"net/http"
	"strings"
	"sync"
)

// surfaceCache is shared by services whose configurations differ in addresses
// and in where state is kept, but not in what is served. A nil one shares nothing.
type surfaceCache struct {
	mu        sync.Mutex
	parts     map[string]*surfaceParts          // by the surface's name; guarded by mu, as all below
	documents map[string]func() ([]byte, error) // OpenAPI documents, by the surfaces in them
	site      *docsSite
}

// surfaceParts leads from a path to the number of a row in the surface's table.
type surfaceParts struct {
	mux *http.ServeMux

	mu     sync.Mutex
	routed int // rows that mux has; guarded by mu
}

// rowNumber answers by the row of that number of the surface that was asked.
type rowNumber int

func (n rowNumber) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := w.(*recorder)
	rec.surface.answer(rec, r, rec.surface.rows[n])
}

func newSurfaceCache() *surfaceCache {
	return &surfaceCache{parts: map[string]*surfaceParts{}, documents: map[string]func() ([]byte, error){}}
}

// of is the parts of a surface.
func (c *surfaceCache) of(name string) *surfaceParts {
	if c == nil {
		return &surfaceParts{mux: http.NewServeMux()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts[name] == nil {
		c.parts[name] = &surfaceParts{mux: http.NewServeMux()}
	}
	return c.parts[name]
}

// route registers the n-th row of the table, unless another surface did.
func (p *surfaceParts) route(n int, row route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < p.routed {
		return
	}
	p.routed++
	for _, pattern := range row.patterns() {
		p.mux.Handle(pattern, rowNumber(n))
	}
}

// document is openAPIDocument.
func (c *surfaceCache) document(apiKeyHeader, surface string, also ...string) func() ([]byte, error) {
	if c == nil {
		return openAPIDocument(surface, apiKeyHeader, also...)
	}
	key := strings.Join(append(also, surface), " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.documents[key] == nil {
		c.documents[key] = openAPIDocument(surface, apiKeyHeader, also...)
	}
	return c.documents[key]
}

func (c *surfaceCache) docs(cfg *docsConfig) *docsSite {
	if c == nil {
		return newDocsSite(cfg)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.site == nil {
		c.site = newDocsSite(cfg)
	}
	return c.site
}
