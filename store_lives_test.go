package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestLives reads and writes numbers of a store with two lives of the past.
func TestLives(t *testing.T) {
	l := lives{{id: "0000000a", from: 1, to: 10}, {id: "0000000b", from: 11, to: 20}, {id: "0000000c", from: 21}}
	for seq, want := range map[uint64]string{0: "0", 1: "0000000a-1", 10: "0000000a-10", 11: "0000000b-11", 20: "0000000b-20", 21: "0000000c-21"} {
		text := l.text(seq)
		if got, err := l.number(text, 25); text != want || got != seq || err != nil {
			t.Errorf("%d: got %s, which reads as %d, %v; want %s", seq, text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"7": "", "0": "", "9007199254740991": "", "0000000c-25": "",
		"0000000c-26": errOtherLife.Error(), "0000000a-11": errOtherLife.Error(), "0000000b-10": errOtherLife.Error(),
		"0000000d-1": errOtherLife.Error(), "0000000a-0": errOtherLife.Error(),
		"": "is not a number", "x": "is not a number", "-1": "is not a number", "a-1": "is not a number", "07": "is not a number",
		"0000000a-": "is not a number", "0000000a-1x": "is not a number", "9007199254740992": "is not a number", "0000000a-1-2": "is not a number",
	} {
		_, err := l.number(text, 25)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v; want %q", text, err, want)
		}
	}
	if got := fmt.Sprint(l.upTo(15)); got != "[{0000000a 1 10 } {0000000b 11 15 }]" {
		t.Errorf("up to 15: got %s", got)
	}
	if got := fmt.Sprint(l.upTo(0)); got != "[]" {
		t.Errorf("up to 0: got %s", got)
	}
}

// TestLifeWithoutRecords starts after a crash that left the line of a life and none of its records.
func TestLifeWithoutRecords(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	mustCreate(t, s, "noop")
	settle(s)
	closeTestService(t, s)
	path := storePath(o.dir, storeName)
	left := string(readFile(t, path)) + sumLine(fmt.Sprintf(`{"life":"0000000a","from":%d`, s.store.seq+1)) + `{"seq":`
	writeFile(t, path, []byte(left))
	for range 2 {
		s = openTestService(t, o)
		mustCreate(t, s, "noop")
		settle(s)
		for _, one := range s.store.lives.upTo(s.store.seq) {
			if one.id == "0000000a" || one.to < one.from {
				t.Errorf("got the life %+v, which wrote nothing", one)
			}
		}
		noError(t, s.store.compact())
		closeTestService(t, s)
	}
}

// TestLivesOfAnOpenEnd imports a file that ends with the line of a life: what came before it keeps its own.
func TestLivesOfAnOpenEnd(t *testing.T) {
	text := sumLine(`{"format":3,"seq":5`) + sumLine(`{"life":"0000000a","from":1,"to":5`) + sumLine(`{"end":{"lines":1}`)
	for _, end := range []string{"", sumLine(`{"life":"0000000b","from":6`), sumLine(`{"life":"0000000a","from":6,"sync":"never"`)} {
		s := must(storeOf(&stateSource{document: strings.NewReader(text + end)}, slog.New(slog.DiscardHandler)))(t)
		s.nameLives([32]byte{})
		s.beginLife([32]byte{})
		if got := s.lives.text(3); got != "0000000a-3" {
			t.Errorf("after %s: got %s; want the life 0000000a", end, got)
		}
	}
}

// TestLastWriteIsKept reads a file whose last write a start writes again: with the life that begins it, or without.
func TestLastWriteIsKept(t *testing.T) {
	life := sumLine(`{"life":"0000000a","from":4`)
	for text, want := range map[string]string{
		"": "", recordsText(4, 6, false): recordsText(6, 6, false), life + recordsText(4, 6, true): life + recordsText(4, 6, true),
		life + recordsText(4, 6, false): recordsText(6, 6, false),
	} {
		r := &storeReader{src: strings.NewReader(compactedText(3) + text), file: storeName, loader: blindLoader{}}
		if err := r.read(); err != nil || string(r.write) != want {
			t.Errorf("%s: got %s, %v; want %s", text, r.write, err, want)
		}
	}
}

// heldNumbers returns what a client may hold of a service: an event id, the tag of a task, a cursor, as_of.
func heldNumbers(t *testing.T, h *testServer, task uuid) (id, tag, cursor, asOf string) {
	t.Helper()
	id = h.svc.store.lives.text(h.svc.store.seq)
	a := h.do("GET", "/v1/tasks/"+task.String(), "").want(200)
	tag = a.header.Get("ETag")
	cursor = h.do("GET", "/v1/tasks?cursor=&per_page=1", "").want(200).text("pagination.next_cursor")
	stream := string(h.do("POST", "/v1/actions", `{"action":"cancel","reason":"r","filter":{"status":["pending"]},"dry_run":true}`).want(200).body)
	_, asOf, _ = strings.Cut(stream, `{"as_of":"`)
	asOf, _, _ = strings.Cut(asOf, `"`)
	return id, tag, cursor, asOf
}

// TestNumbersOverRestarts gives back what a client holds: after plain restarts and compactions all of it counts as before.
// After an import it does, too, up to its last number; what came after that is of another history.
func TestNumbersOverRestarts(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	first := mustCreate(t, s, "pair")
	mustCreate(t, s, "pair")
	state := exported(t, s)
	backed := s.store.seq
	last := mustCreate(t, s, "pair")
	settle(s)
	serve := func() *testServer { return (&testServer{t: t, svc: s}).with(newOrchestrationAPI(s, nil)) }
	id, tag, cursor, asOf := heldNumbers(t, serve(), last.id)
	_, firstTag, _, _ := heldNumbers(t, serve(), first.id)
	if life := s.store.lives[0].id; !strings.HasPrefix(id, life+"-") || !strings.HasPrefix(tag, `"`+life+"-") || asOf != id {
		t.Fatalf("got the id %s, the tag %s, as_of %s; want the life %s in each", id, tag, asOf, life)
	}
	ask := func(when string, goesOn bool) {
		t.Helper()
		h := serve()
		f, after, err := s.store.events.followAgain(eventFilter{}, id)
		noError(t, err)
		if f.missed == goesOn {
			t.Errorf("%s: a follower after %d has missed events: %v", when, after, f.missed)
		}
		status := map[bool]int{true: 200, false: 400}[goesOn]
		h.do("GET", "/v1/tasks?per_page=1&cursor="+cursor, "").want(status)
		h.do("POST", "/v1/actions", fmt.Sprintf(`{"action":"cancel","reason":"r","filter":{"status":["pending"]},"dry_run":true,"as_of":%q}`, asOf)).want(status)
		h.do("POST", "/v1/actions", `{"action":"cancel","reason":"r","filter":{"status":["pending"]},"dry_run":true,"as_of":2}`).want(200)
		h.do("GET", "/v1/tasks/"+first.id.String(), "", "If-None-Match: "+firstTag).want(304)
		path := "/v1/tasks/" + first.id.String() + "/workflow_steps/" + first.stepID(0).String()
		body := `{"action_type":"reset_for_retry","reason":"r","reset_by":"b"}`
		h.do("PATCH", path, body, "If-Match: "+tag).want(412) // it is of another task
		if a := h.do("PATCH", path, body, "If-Match: "+firstTag); a.status == 412 {
			t.Errorf("%s: the tag of an unchanged task: got %d, %s", when, a.status, a.body)
		}
	}
	ask("at first", true)
	for range 2 {
		s = reopenTestService(t, s, o)
		ask("after a restart", true)
		noError(t, s.store.compact())
		ask("after a compaction", true)
		mustCreate(t, s, "noop")
		settle(s)
	}
	if got := len(s.store.lives); got != 3 {
		t.Errorf("got %d lives; want one for each process", got)
	}
	closeTestService(t, s)

	o.dir, o.state = t.TempDir(), &stateSource{document: strings.NewReader(state)}
	s = openTestService(t, o)
	ask("after an import of an earlier state", false)
	mustCreate(t, s, "pair") // which has the number of the other one
	settle(s)
	ask("when the numbers are given out again", false)
	id, cursor, asOf = fmt.Sprintf("%s-%d", s.store.lives[0].id, backed), "", "0"
	if f, _, err := s.store.events.followAgain(eventFilter{}, id); err != nil || f.missed {
		t.Errorf("an id up to the import: got %v, missed %v; want that it continues", err, f.missed)
	}
	closeTestService(t, s)
}

// TestLivesFromASeed expects lives that follow from a seed and the number of lives before.
func TestLivesFromASeed(t *testing.T) {
	var seen [2][]string
	for i := range seen {
		dir := t.TempDir()
		for range 3 {
			parts := testParts(t, serviceTest{dir: dir, clock: newVirtualClock(testStart), extra: storyTemplates})
			parts.deterministic = "seed"
			s := must(openService(parts))(t)
			mustCreate(t, s, "noop")
			settle(s)
			seen[i] = append(seen[i], s.store.journal.of.id, fmt.Sprint(s.store.lives))
			closeTestService(t, s)
		}
	}
	if a, b := fmt.Sprint(seen[0]), fmt.Sprint(seen[1]); a != b {
		t.Errorf("got\n%s\nand\n%s; want the same", a, b)
	}
}
