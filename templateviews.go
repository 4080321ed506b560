package main

// How templates go out on the wire: the list, the detail, and both without the
// credentials that stand in URLs.

import (
	"bytes"
	"encoding/json"
	"regexp"
)

// templateList is the answer of GET /v1/templates.
type templateList struct {
	Namespaces []templateNamespace `json:"namespaces"`
	Templates  []templateSummary   `json:"templates"`
	TotalCount int                 `json:"total_count"` // of all templates, whatever the filter
}

// templateNamespace is one namespace that has templates.
type templateNamespace struct {
	Name          string  `json:"name"`
	Description   *string `json:"description"` // always null: a namespace is not described anywhere
	TemplateCount int     `json:"template_count"`
}

type templateSummary struct {
	Name        string  `json:"name"`
	Namespace   string  `json:"namespace"`
	Version     string  `json:"version"`
	Description *string `json:"description"`
	StepCount   int     `json:"step_count"`
}

// templateDetail is the answer of GET /v1/templates/{namespace}/{name}/{version}.
type templateDetail struct {
	Name          string               `json:"name"`
	Namespace     string               `json:"namespace"`
	Version       string               `json:"version"`
	Description   *string              `json:"description"`
	Configuration json.RawMessage      `json:"configuration"`
	Steps         []templateStepDetail `json:"steps"`
}

type templateStepDetail struct {
	Name               string          `json:"name"`
	Description        *string         `json:"description"`
	DefaultRetryable   bool            `json:"default_retryable"`
	DefaultMaxAttempts int             `json:"default_max_attempts"`
	ResultSchema       json.RawMessage `json:"result_schema"` // nil goes out as null
	Dependencies       []string        `json:"dependencies"`
	Handler            json.RawMessage `json:"handler"`
	Type               string          `json:"type"`
}

// namespaces are the namespaces that have templates, sorted, with their counts.
func (r *registry) namespaces() []templateNamespace {
	list := []templateNamespace{}
	for _, t := range r.sorted {
		if n := len(list); n == 0 || list[n-1].Name != t.namespace {
			list = append(list, templateNamespace{Name: t.namespace})
		}
		list[len(list)-1].TemplateCount++
	}
	return list
}

// listView is the list of all templates, or of those in a namespace. The
// namespaces are listed in full in either case.
func (r *registry) listView(namespace string) templateList {
	list := templateList{Namespaces: r.namespaces(), Templates: []templateSummary{}, TotalCount: len(r.sorted)}
	for _, t := range r.sorted {
		if namespace == "" || t.namespace == namespace {
			list.Templates = append(list.Templates, t.summaryView())
		}
	}
	return list
}

func (t *template) summaryView() templateSummary {
	return templateSummary{t.name, t.namespace, t.version, withoutCredentials(t.description), len(t.steps)}
}

func (t *template) detailView() templateDetail {
	d := templateDetail{
		Name:          t.name,
		Namespace:     t.namespace,
		Version:       t.version,
		Description:   withoutCredentials(t.description),
		Configuration: t.shownJSON(),
		Steps:         make([]templateStepDetail, len(t.steps)),
	}
	for i := range t.steps {
		d.Steps[i] = t.stepDetail(&t.steps[i])
	}
	return d
}

func (t *template) stepDetail(s *stepTemplate) templateStepDetail {
	d := templateStepDetail{
		Name:               s.name,
		Description:        withoutCredentials(s.description),
		DefaultRetryable:   s.retry.retryable,
		DefaultMaxAttempts: s.retry.maxAttempts,
		ResultSchema:       hideCredentials(s.resultSchema),
		Dependencies:       make([]string, len(s.parents)),
		Handler:            hideCredentials(s.handler),
		Type:               s.kind,
	}
	for i, p := range s.parents {
		d.Dependencies[i] = t.steps[p].name
	}
	return d
}

// shownJSON is t.json as callers may see it.
func (t *template) shownJSON() []byte { return hideCredentials(t.json) }

// shownCallable is the callable as callers may see it.
func (s *stepTemplate) shownCallable() string { return string(hideCredentials([]byte(s.callable))) }

// urlCredentials is what stands between the scheme and the host of a URL, also
// inside JSON that escapes its slashes.
var urlCredentials = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*:(?:/|\\/){2})[^/?#\s"]+@`)

// hideCredentials replaces the credentials in URLs; text without any it returns
// as it is.
func hideCredentials(text []byte) []byte {
	if !bytes.Contains(text, []byte("@")) {
		return text
	}
	return urlCredentials.ReplaceAll(text, []byte("$1[REDACTED]@"))
}

func withoutCredentials(text *string) *string {
	if text == nil {
		return nil
	}
	shown := string(hideCredentials([]byte(*text)))
	return &shown
}
