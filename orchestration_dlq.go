package main

// The dead letter queue and staleness over HTTP.

import (
	"net/http"
	"strings"
)

// maxDLQLimit is the largest number of entries or tasks in one answer.
const maxDLQLimit = 1000

func (a *orchestrationAPI) listDLQ(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := dlqFilter{
		queryWord(q, "resolution_status", parseDLQStatus, dlqStatusNames[:]),
		queryWord(q, "dlq_reason", parseDLQReason, dlqReasonNames[:]),
	}
	limit, offset := q.number("limit", 50, 1, maxDLQLimit), q.number("offset", 0, 0, 1<<31-1)
	if err := q.doneHolding(w, limit, 256); err != nil {
		return nil, err
	}
	v := a.surface.svc.dlq.entries(f, offset, limit, mayReadResults(r.Context()))
	return v, a.surface.svc.store.waitAll(r.Context())
}

func (a *orchestrationAPI) getTaskDLQ(w *responseWriter, r *http.Request) (any, error) {
	v, err := heldByID(w, r, "task_uuid", func(id uuid, by holder) (*dlqTaskView, error) {
		return a.surface.svc.dlq.ofTask(id, mayReadResults(r.Context()), by)
	})
	if err != nil {
		return nil, err
	}
	return a.surface.ofTask(w, r, v.task, a.surface.svc.clock.now(), v), nil
}

func (a *orchestrationAPI) dlqQueue(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	reason := queryWord(q, "dlq_reason", parseDLQReason, dlqReasonNames[:])
	limit := q.number("limit", 100, 1, maxDLQLimit)
	if err := q.doneHolding(w, limit, 512); err != nil {
		return nil, err
	}
	v := a.surface.svc.dlq.queue(reason, limit)
	return v, a.surface.svc.store.waitAll(r.Context())
}

func (a *orchestrationAPI) staleness(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 100, 1, maxDLQLimit)
	if err := q.doneHolding(w, limit, 512); err != nil {
		return nil, err
	}
	v := a.surface.svc.staleness.report(limit)
	return v, a.surface.svc.store.waitAll(r.Context())
}

func (a *orchestrationAPI) dlqStats(_ *responseWriter, _ *http.Request) (any, error) {
	return a.surface.svc.dlq.stats(), nil
}

// dlqUpdateView is the answer to an update of an entry.
type dlqUpdateView struct {
	Success      bool   `json:"success"`
	Message      string `json:"message"`
	DLQEntryUUID uuid   `json:"dlq_entry_uuid"`
}

func (a *orchestrationAPI) updateDLQ(_ *responseWriter, r *http.Request) (any, error) {
	id, err := pathID(r, "dlq_entry_uuid")
	if err != nil {
		return nil, err
	}
	q, err := readAs(r, parseInvestigation)
	if err != nil {
		return nil, err
	}
	seen, err := a.surface.seenVersions(r)
	if err != nil {
		return nil, err
	}
	if err := a.surface.svc.dlq.update(r.Context(), id, q, seen); err != nil {
		return nil, err
	}
	return dlqUpdateView{true, "DLQ entry updated", id}, nil
}

// parseInvestigation reads the body of an update, an object. Its failure names
// every invalid member.
func parseInvestigation(body []byte) (*investigation, error) {
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
