package main

// The OpenAPI documents: one for each surface, cut from openapi.json.
//
// In openapi.json each operation names the surfaces that serve it in
// x-surfaces. Where two surfaces answer one path differently, the path is there
// twice, the second time with "#" and the surface behind it.

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

//go:embed openapi.json
var openAPIFile []byte

// openAPIDocument makes the document of a surface, which reads API keys from a
// header, and of others that it serves as well, when it is first asked for.
func openAPIDocument(surface, apiKeyHeader string, also ...string) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) {
		return openAPIForSurface(openAPIFile, surface, version, apiKeyHeader, also...)
	})
}

// withServer is a document of a surface that is found at url.
func withServer(doc []byte, url string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(doc, &members); err != nil {
		return nil, fmt.Errorf("decoding the OpenAPI document: %w", err)
	}
	servers, err := json.Marshal([]map[string]string{{"url": url}})
	if err != nil {
		return nil, err
	}
	members["servers"] = servers
	return json.Marshal(members)
}

func (s *surface) writeDocument(w http.ResponseWriter) error {
	doc, err := s.openapi()
	if err != nil {
		return err
	}
	return writeBody(w, http.StatusOK, "application/json", doc)
}

// openAPIForSurface cuts the document of a surface, "orchestration", "worker" or
// "mount", from the text of openapi.json: its operations and the components
// they refer to. The version is the program's; apiKeyHeader is the header that
// the surface reads API keys from.
func openAPIForSurface(file []byte, surface, version, apiKeyHeader string, also ...string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(file))
	d.UseNumber() // examples keep their digits
	var doc map[string]any
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("decoding openapi.json: %w", err)
	}
	info := doc["info"].(map[string]any)
	info["version"] = version
	info["title"] = fmt.Sprintf("%s %s API", info["title"], surface)
	doc["paths"] = openAPIPaths(doc["paths"].(map[string]any), append(also, surface))
	doc["tags"] = openAPITags(doc)
	components := doc["components"].(map[string]any)
	components["securitySchemes"].(map[string]any)["api_key_auth"].(map[string]any)["name"] = apiKeyHeader
	openAPIPrune(doc, components)
	return json.Marshal(doc)
}

// openAPIPaths are the paths of surfaces, without the marks of openapi.json.
func openAPIPaths(paths map[string]any, surfaces []string) map[string]any {
	kept := map[string]any{}
	for key, item := range paths {
		path, _, _ := strings.Cut(key, "#")
		for method, operation := range item.(map[string]any) {
			o := operation.(map[string]any)
			serves := func(s any) bool { return slices.Contains(surfaces, s.(string)) }
			if !slices.ContainsFunc(o["x-surfaces"].([]any), serves) {
				continue
			}
			delete(o, "x-surfaces")
			if kept[path] == nil {
				kept[path] = map[string]any{}
			}
			kept[path].(map[string]any)[method] = o
		}
	}
	return kept
}

// openAPITags are the tags that an operation of doc has.
func openAPITags(doc map[string]any) []any {
	used := map[any]bool{}
	for _, item := range doc["paths"].(map[string]any) {
		for _, operation := range item.(map[string]any) {
			for _, tag := range operation.(map[string]any)["tags"].([]any) {
				used[tag] = true
			}
		}
	}
	return slices.DeleteFunc(doc["tags"].([]any), func(tag any) bool {
		return !used[tag.(map[string]any)["name"]]
	})
}

// openAPIPrune removes the components that no path of doc leads to.
func openAPIPrune(doc, components map[string]any) {
	const prefix = "#/components/"
	reached := map[string]bool{}
	var follow func(v any)
	follow = func(v any) {
		openAPIReferences(v, func(ref string) {
			kind, name, _ := strings.Cut(strings.TrimPrefix(ref, prefix), "/")
			if target, ok := components[kind].(map[string]any); ok && !reached[ref] {
				reached[ref] = true
				follow(target[name])
			}
		})
	}
	follow(doc["paths"])
	for kind, entries := range components {
		for name := range entries.(map[string]any) {
			if kind != "securitySchemes" && !reached[prefix+kind+"/"+name] {
				delete(entries.(map[string]any), name)
			}
		}
	}
}

// openAPIReferences calls f for every "$ref" within v.
func openAPIReferences(v any, f func(ref string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if ref, ok := member.(string); ok && name == "$ref" {
				f(ref)
			}
			openAPIReferences(member, f)
		}
	case []any:
		for _, e := range v {
			openAPIReferences(e, f)
		}
	}
}
