package main

// The OpenAPI documents. In openapi.json each operation lists the surfaces that serve it in x-surfaces. If two surfaces
// answer one path differently, the path appears twice, the second time followed by "#" and the surface.

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed openapi.json
var openAPIFile []byte

// document returns a function that makes the document of a surface when it is first
// called, with the operations of the surfaces in also.
func (c *surfaceCache) document(s *surface, also ...string) func() *packedText {
	surfaces := append([]string{s.name}, also...)
	return cached(c, "document of "+strings.Join(surfaces, " and "), func() func() *packedText {
		return sync.OnceValue(func() *packedText {
			text := openAPIForSurface(s.auth.config.APIKeyHeader, s.svc.cfg.Mount.Path, surfaces...)
			return newTaggedText(jsonType, text, "")
		})
	})
}

// openAPIForSurface cuts from openapi.json the operations of some surfaces, the
// first of which names the document, and the components that these refer to. The
// surfaces read API keys from the header apiKeyHeader; the mount point is at mountPath.
func openAPIForSurface(apiKeyHeader, mountPath string, surfaces ...string) []byte {
	d := json.NewDecoder(bytes.NewReader(openAPIFile))
	d.UseNumber() // examples keep their digits
	var doc map[string]any
	d.Decode(&doc) // tests read it, so there is no error
	info := doc["info"].(map[string]any)
	info["version"] = version
	info["title"] = fmt.Sprintf("%s %s API", info["title"], surfaces[0])
	if surfaces[0] == "mount" { // which has no versions
		info["description"] = strings.Replace(info["description"].(string), openAPIVersions, "", 1)
		doc["servers"] = []map[string]string{{"url": mountPath}}
	}
	paths := openAPIPaths(doc["paths"].(map[string]any), surfaces)
	doc["paths"] = paths
	components := doc["components"].(map[string]any)
	components["securitySchemes"].(map[string]any)["api_key_auth"].(map[string]any)["name"] = apiKeyHeader
	openAPIPrune(doc, components)
	doc["paths"] = openAPIInOrder(paths)
	text, _ := json.Marshal(doc)
	return text
}

// openAPIVersions is the sentence of the description that is true of the roles only.
const openAPIVersions = "Every path under `/v1` is also served under `/api/v1`. "

// openAPIInOrder encodes the paths of a document in the order of openapi.json, which is the order of use.
func openAPIInOrder(paths map[string]any) json.RawMessage {
	text, rest := []byte("{"), maps.Clone(paths)
	for key := range jsonMembers(objectMember(openAPIFile, "paths")) {
		path, _, _ := strings.Cut(key, "#")
		if item, ok := rest[path]; ok {
			delete(rest, path) // which another surface may have, too
			encoded, _ := json.Marshal(item)
			text = append(append(strconv.AppendQuote(text, path), ':'), append(encoded, ',')...)
		}
	}
	return append(bytes.TrimSuffix(text, []byte(",")), '}')
}

// openAPIPaths returns the operations of some surfaces, without x-surfaces.
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
			unavailableOn(o, surfaces[0])
			delete(o, "x-surfaces")
			if kept[path] == nil {
				kept[path] = map[string]any{}
			}
			kept[path].(map[string]any)[method] = o
		}
	}
	return kept
}

// unavailableOn gives an operation of several surfaces the answer 503 of one of them.
func unavailableOn(operation map[string]any, surface string) {
	prefix := map[string]string{"worker": "Worker", "mount": "Mount"}[surface]
	if len(operation["x-surfaces"].([]any)) > 1 && prefix != "" {
		ref := "#/components/responses/" + prefix + "Unavailable"
		operation["responses"].(map[string]any)["503"] = map[string]any{"$ref": ref}
	}
}

// openAPIPrune removes the components that no path of doc refers to, directly or through others.
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
			// Operations name security schemes without a reference.
			if kind != "securitySchemes" && !reached[prefix+kind+"/"+name] {
				delete(entries.(map[string]any), name)
			}
		}
	}
}

// openAPIReferences calls f for every "$ref" in v.
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
