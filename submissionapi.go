package main

// How a creation is read from a request, and answered, on every surface.

import "net/http"

// submit creates the task that a body asks for, and sets the headers of its
// answer. The route is what an Idempotency-Key counts for.
func (s *surface) submit(w http.ResponseWriter, r *http.Request, route string, body []byte) (*submitted, error) {
	b, err := readSubmission(r, route, body)
	if err != nil {
		return nil, err
	}
	if b.waits {
		holdOpen(w, b.limit)
	}
	done, err := s.svc.submitTask(r.Context(), b)
	if err != nil {
		return nil, err
	}
	w.Header()["Location"] = []string{s.taskPath(r, done.task.id)}
	if done.replayed {
		w.Header()["Idempotency-Replayed"] = []string{"true"}
	}
	setWaitEnd(w, done.end)
	return done, nil
}

// readSubmission is the creation that a request asks for.
func readSubmission(r *http.Request, route string, body []byte) (b *submission, err error) {
	query := queryOf(r)
	b = &submission{mayRead: securityOf(r.Context()).may(permTasksRead)}
	if query.err == nil {
		b.limit, b.waits = query.wait("wait")
	}
	if query.err != nil {
		return nil, query.err
	}
	if b.request, err = requestMarkOf(r, route, body); err != nil {
		return nil, err
	}
	if b.taskRequest, err = parseTaskRequest(body); err != nil {
		return nil, err
	}
	b.traceparent = saneTraceparent(r.Header.Get("Traceparent"))
	b.subject = subjectOf(r.Context())
	return b, nil
}

// status is 202 where the end that was to be awaited has not come.
func (d *submitted) status() int {
	if d.end != waitReached {
		return http.StatusAccepted
	}
	return http.StatusCreated
}
