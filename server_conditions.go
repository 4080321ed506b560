package main

// Entity tags: what the caller knows of a task already (If-None-Match), and conditions on changing it (If-Match).

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// taskPath returns the path of a task under the prefix that the caller used.
func taskPath(r *http.Request, id uuid) string {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		return "/api/v1/tasks/" + id.String()
	}
	return "/v1/tasks/" + id.String()
}

// Entity tags. That of a view of a task names the store, the sequence of the task's newest
// record, and what else the view depends on, so that it costs no look at the view.

// taskTag returns the tag of a view of a task at an instant. It differs by what is hidden from
// the caller, and, while steps wait for a retry, by how many of them are due.
func (s *surface) taskTag(t *task, hidden string, now instant) string {
	if t.counts[stepWaitingForRetry] > 0 {
		hidden += "." + strconv.Itoa(t.readySteps(now))
	}
	// Failed deliveries are shown with the task, but are no records of it.
	if all := s.svc.store.subscribers().undelivered(t); all != nil {
		text, _ := json.Marshal(all)
		hidden += "." + stableID(string(text)).String()
	}
	return s.versionTag(t.lastSeq, hidden)
}

func (s *surface) versionTag(seq uint64, more string) string {
	b := s.svc.store.numbers().append(append(make([]byte, 0, 40), '"'), seq)
	return string(append(append(b, more...), '"'))
}

// hiddenFrom names what the views of tasks do not show to a caller.
func hiddenFrom(ctx context.Context) (hidden string) {
	if !mayReadContexts(ctx) {
		hidden = "c"
	}
	if !mayReadResults(ctx) {
		hidden += "r"
	}
	if !mayReadDeliveries(ctx) {
		hidden += "d"
	}
	return hidden
}

// ofTask answers with a view of a task at an instant, or says that the caller has it already.
func (s *surface) ofTask(w *responseWriter, r *http.Request, t *task, now instant, view any) any {
	w.Header()["Cache-Control"] = privately
	return withTag(w, r, s.taskTag(t, hiddenFrom(r.Context()), now), view)
}

// taskAnswer answers with a view of a task as it is now, unless err is not nil.
func (s *surface) taskAnswer(
	w *responseWriter, r *http.Request, t *task, err error, view func(now instant) any,
) (any, error) {
	if err != nil {
		return nil, err
	}
	now := s.svc.clock.now()
	return s.ofTask(w, r, t, now, view(now)), nil
}

// privately lets the caller keep an answer, and ask each time whether it is still true.
var privately = []string{"private, no-cache"}

// withTag answers with a view that has this tag, or says that the caller has it already.
func withTag(w *responseWriter, r *http.Request, tag string, view any) any {
	h := w.Header()
	h["Etag"] = []string{tag}
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = []string{"no-cache"}
	}
	// A change has been made by now, whatever the caller knows.
	if !isChange(r) && isNamed(r.Header["If-None-Match"], tag) {
		return notModified{}
	}
	return view
}

// weakTag returns the tag of a text, or of views of templates with a hash. These may also have the time, or counts of
// look-ups.
func weakTag(hash string) string { return `W/"` + hash + `"` }

// isNamed reports whether a header names a tag. Weak tags count as well.
func isNamed(values []string, tag string) bool {
	opaque := func(tag string) string { return strings.TrimPrefix(tag, "W/") }
	return slices.ContainsFunc(splitList(strings.Join(values, ",")), func(named string) bool {
		return named == "*" || opaque(named) == opaque(tag)
	})
}

// entityTagForm is the form of an entity tag, as in RFC 9110, but not empty.
var entityTagForm = compiled(`^(W/)?"[\x21\x23-\x7e\x80-\xff]+"$`)

// seenVersions returns the versions of a task that If-Match names; nil for any. A weak tag
// never matches, nor does one of another store.
func (s *surface) seenVersions(r *http.Request) (taskVersions, error) {
	values := r.Header["If-Match"]
	if len(values) == 0 {
		return nil, nil
	}
	seen, tags := taskVersions{}, splitList(strings.Join(values, ","))
	for _, tag := range tags {
		if tag == "*" {
			return nil, nil
		}
		if !entityTagForm().MatchString(tag) {
			return nil, failf(badRequest, `the header If-Match must be * or a list of entity tags like "9f8e7d6c-7", not %.60q`, tag)
		}
		// What follows the number depends on what the caller may see, not on the task.
		life, version, _ := strings.Cut(strings.Trim(tag, `"`), "-")
		version = version[:len(version)-len(strings.TrimLeft(version, "0123456789"))]
		if seq, err := s.svc.store.readNumber(life + "-" + version); err == nil {
			seen = append(seen, seq)
		}
	}
	if len(tags) == 0 {
		return nil, failf(badRequest, "the header If-Match is empty")
	}
	return seen, nil
}
