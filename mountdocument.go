package main

// What the mount point says about itself: where its parts are, and its OpenAPI
// document, with the mount point as the server and the operations that the
// configuration guards shown as guarded.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// links tells what there is below the mount point.
func (a *mountAPI) links(w http.ResponseWriter, r *http.Request) error {
	links := map[string]string{
		"handlers": "/handlers", "tasks": "/tasks", "performance": "/analytics/performance",
		"bottlenecks": "/analytics/bottlenecks", "health": "/health/ready", "status": "/health/status",
		"metrics": "/metrics", "openapi": "/api-docs.json", "docs": "/api-docs/ui",
	}
	for name, path := range links {
		links[name] = a.link(r, path)
	}
	return writeLinks(w, r, links)
}

// document is the OpenAPI document, whose server is the mount point.
func (a *mountAPI) document(w http.ResponseWriter, r *http.Request) error {
	doc, err := a.openapi()
	if err == nil {
		doc, err = withServer(doc, a.link(r, ""))
	}
	if err != nil {
		return err
	}
	return writeBody(w, http.StatusOK, "application/json", doc)
}

// documented makes a document in which the operations that the configuration
// guards ask for their permission.
func (c *mountConfig) documented(document func() ([]byte, error)) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) {
		text, err := document()
		if err != nil {
			return nil, err
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // examples keep their digits
		var doc map[string]any
		if err := d.Decode(&doc); err != nil {
			return nil, fmt.Errorf("decoding the OpenAPI document: %w", err)
		}
		for pattern, permissions := range c.guarded() {
			method, path, _ := strings.Cut(pattern, " ")
			item := doc["paths"].(map[string]any)[path].(map[string]any)
			openAPIGuard(item[strings.ToLower(method)].(map[string]any), permissions[0])
		}
		return json.Marshal(doc)
	})
}

// openAPIGuard has an operation ask for a permission, in the words of openapi.json.
func openAPIGuard(operation map[string]any, p permission) {
	operation["security"] = []map[string][]string{{"bearer_auth": {}}, {"api_key_auth": {}}}
	operation["x-required-permission"] = p.String()
	operation["description"] = fmt.Sprintf("%s\n\n**Required Permission:** `%s`", operation["description"], p)
}
