package main

// Lists with cursors beside changes; the event stream from the point of view of its readers.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// TestCursorsBesideChanges reads lists with cursors in every order while tasks are created, end, are
// cancelled and dropped, and the rest moves together in the store. Tasks that stay as they are must be
// listed once each.
func TestCursorsBesideChanges(t *testing.T) {
	slow(t)
	s := newTestServer(t, serviceTest{templates: apiTemplates, config: retaining(10)})
	s.svc.store.locked(func() { s.svc.store.tasks.goneFloor = 0 })
	change := func() {
		s.create(`{"namespace":"u","name":"solo"}`)
		s.do("DELETE", "/v1/tasks/"+s.create(`{"namespace":"t","name":"manual"}`), "").want(200)
	}
	var stay []string
	for i := range 12 {
		change()
		stay = append(stay, s.create(fmt.Sprintf(`{"namespace":"t","name":"manual","tags":["stays"],"priority":%d}`, i%3)))
	}
	slices.Sort(stay)
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() {
		for range 200 {
			if ctx.Err() != nil {
				return
			}
			change()
		}
	})
	for _, sort := range sortWords {
		for _, filter := range []string{"", "&status=in_progress,complete,cancelled"} {
			query := "/v1/tasks?per_page=5&sort=" + sort + filter + "&cursor="
			if got := s.walk(query, change); !slices.Equal(got, stay) {
				t.Errorf("%s: got %d of the tasks that stay: %v\nwant %v", query, len(got), got, stay)
			}
		}
	}
	cancel()
	changing.Wait()
	if s.svc.store.retain.dropped == 0 || len(s.svc.store.tasks.slots) > 200 {
		t.Errorf("got %d tasks dropped, %d positions; want more, and few", s.svc.store.retain.dropped, len(s.svc.store.tasks.slots))
	}
}

// walk reads a list to its end, and changes something after each page. It returns the tasks with the
// tag stays, sorted.
func (s *testServer) walk(query string, change func()) (found []string) {
	s.t.Helper()
	next := any("")
	for pages := 0; next != nil && pages < 400; pages++ {
		a := s.do("GET", query+fmt.Sprint(next), "").want(200)
		for _, item := range a.get("tasks").([]any) {
			if task := item.(map[string]any); slices.Contains(task["tags"].([]any), any("stays")) {
				found = append(found, task["task_uuid"].(string))
			}
		}
		change()
		next = a.get("pagination.next_cursor")
	}
	slices.Sort(found)
	return found
}
