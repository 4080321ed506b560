package main

// The OpenAPI documents: one file for all surfaces, filtered for the one that
// serves it.

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

//go:embed openapi.json
var openapiFile []byte

// openAPIDocument is the document of one surface, made when first asked for.
func openAPIDocument(surface string) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) { return filterOpenAPI(openapiFile, surface) })
}

// filterOpenAPI keeps the operations that the surface serves.
func filterOpenAPI(file []byte, surface string) ([]byte, error) {
	var doc map[string]any
	if err := json.Unmarshal(file, &doc); err != nil {
		return nil, fmt.Errorf("openapi.json: %w", err)
	}
	return json.Marshal(doc)
}

func (s *surface) writeDocument(w http.ResponseWriter) error {
	doc, err := s.openapi()
	if err != nil {
		return err
	}
	return writeBody(w, http.StatusOK, "application/json", doc)
}
