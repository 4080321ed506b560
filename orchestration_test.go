package main

import (
	"fmt"
	"testing"
)

// TestCursorAfterARestart checks that a cursor goes on where it was in the store of the next process, also
// when its own task was dropped meanwhile.
func TestCursorAfterARestart(t *testing.T) {
	o := serviceTest{templates: apiTemplates, dir: t.TempDir(), config: retaining(4)}
	svc := newTestService(t, o)
	s := (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	var ids []string
	for range 4 {
		ids = append(ids, s.create(`{"namespace":"u","name":"solo"}`))
		s.await(ids[len(ids)-1], "complete")
	}
	cursor := s.do("GET", "/v1/tasks?sort=created_at&per_page=2&cursor=", "").want(200).text("pagination.next_cursor")
	for range 2 {
		ids = append(ids, s.create(`{"namespace":"u","name":"solo"}`))
		s.await(ids[len(ids)-1], "complete")
	}
	closeTestService(t, svc)
	s = newTestServer(t, o)
	a := s.do("GET", "/v1/tasks?sort=created_at&per_page=9&cursor="+cursor, "").want(200)
	if got, want := a.text("tasks.*.task_uuid"), fmt.Sprint(ids[2:]); got != want || a.text("tasks.#") != "4" {
		t.Errorf("got %s; want %s", got, want)
	}
}
