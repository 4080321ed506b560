package main

// The dead letter queue, staleness and summaries on the orchestration role's
// surface: what requests say, and the form of updates.

import (
	"net/http"
	"strings"
)

// maxDLQLimit bounds how many entries or tasks one answer holds.
const maxDLQLimit = 1000

// dlqStatus and dlqReason read the filters of lists of entries.
func (q *query) dlqStatus() *dlqStatus {
	return queryWord(q, "resolution_status", parseDLQStatus, dlqStatusNames[:])
}

func (q *query) dlqReason() *dlqReason {
	return queryWord(q, "dlq_reason", parseDLQReason, dlqReasonNames[:])
}

// queryWord reads a filter for one of some words; absent or blank it is nil.
func queryWord[T any](q *query, name string, parse func(string) (T, bool), words []string) *T {
	word := q.values.Get(name)
	if word == "" {
		return nil
	}
	v, ok := parse(word)
	if !ok && q.err == nil {
		q.err = failf(badRequest, "%s: %.60q is none of %s", name, word, strings.Join(words, ", "))
	}
	return &v
}

func (a *orchestrationAPI) listDLQ(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := dlqFilter{q.dlqStatus(), q.dlqReason()}
	limit, offset := q.number("limit", 50, 1, maxDLQLimit), q.number("offset", 0, 0, 1<<31-1)
	if q.err != nil {
		return q.err
	}
	v, err := a.svc.dlqEntries(f, offset, limit)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *orchestrationAPI) getTaskDLQ(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return err
	}
	v, err := a.svc.dlqOfTask(id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *orchestrationAPI) dlqQueue(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	reason := q.dlqReason()
	limit := q.number("limit", 100, 1, maxDLQLimit)
	if q.err != nil {
		return q.err
	}
	v, err := a.svc.dlqQueue(reason, limit)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *orchestrationAPI) staleness(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	limit := q.number("limit", 100, 1, maxDLQLimit)
	if q.err != nil {
		return q.err
	}
	return writeJSON(w, http.StatusOK, a.svc.staleness(limit))
}

func (a *orchestrationAPI) dlqStats(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.svc.dlqStats())
}

// dlqUpdateView answers an update of an entry.
type dlqUpdateView struct {
	Success      bool   `json:"success"`
	Message      string `json:"message"`
	DLQEntryUUID uuid   `json:"dlq_entry_uuid"`
}

func (a *orchestrationAPI) updateDLQ(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "dlq_entry_uuid")
	if err != nil {
		return err
	}
	body, err := readJSON(r, false)
	if err != nil {
		return err
	}
	q, err := parseInvestigation(body)
	if err != nil {
		return err
	}
	if err := a.svc.investigate(r.Context(), id, q); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, dlqUpdateView{true, "DLQ entry updated", id})
}

// parseInvestigation reads the body of an update. A failure of the kind
// invalidFields names every offending field.
func parseInvestigation(body []byte) (*investigation, error) {
	if jsonKind(body) != '{' {
		return nil, failf(invalidJSON, "the body must be a JSON object")
	}
	q := &investigation{status: noDLQStatus}
	var f fieldReader
	eachMember(body, func(key string, raw []byte) bool {
		if jsonKind(raw) != 'n' {
			q.field(&f, key, raw)
		}
		return true
	})
	return q, f.failure("the entry is not updated")
}

func (q *investigation) field(f *fieldReader, key string, raw []byte) {
	switch key {
	case "resolution_status":
		word, _ := jsonString(raw)
		status, ok := parseDLQStatus(word)
		if !ok {
			f.complain(key, "must be one of %s", strings.Join(dlqStatusNames[:], ", "))
			return
		}
		q.status = status
	case "resolution_notes":
		q.notes = new(f.text(key, raw, 0, maxMessageLength))
	case "resolved_by":
		q.by = new(f.text(key, raw, 1, maxNameLength))
	case "metadata":
		q.metadata = f.object(key, raw)
	}
}

func (a *orchestrationAPI) getSummary(w http.ResponseWriter, r *http.Request) error {
	t, err := a.taskIn(r)
	if err != nil {
		return err
	}
	v := t.summary(a.svc.clock.now())
	v.Links = summaryLinksOf(r, t.id)
	return writeJSON(w, http.StatusOK, v)
}

// summaryLinksOf is where more is found, under the prefix that the caller used.
func summaryLinksOf(r *http.Request, id uuid) summaryLinks {
	path := taskPath(r, id)
	return summaryLinks{
		Task: path, Steps: path + "/workflow_steps", DLQ: strings.Replace(path, "/v1/tasks/", "/v1/dlq/task/", 1),
	}
}
