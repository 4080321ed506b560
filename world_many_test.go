package main

// Who acts on many tasks at once in a world, repeats tasks, finds them and takes backups. What each line of a stream
// tells must be on disk: a life that begins later has at least as much.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// worldUnfinished is a filter of all tasks that have not ended.
const worldUnfinished = `"status":["pending","initializing","enqueuing_steps","steps_in_process","evaluating_results",` +
	`"waiting_for_dependencies","waiting_for_retry","blocked_by_failures"]`

// beKeeper acts on many until nothing fails any more. Then it releases whatever is on hold.
func (a *worldActor) beKeeper() {
	w := a.w
	for a.think(time.Minute, time.Duration(5+55*boolCount(!w.isCalm()))*time.Minute) {
		if w.isCalm() {
			a.many("release", worldUnfinished, nil)
			continue
		}
		var list struct{ Tasks []worldTaskView }
		a.do("GET", fmt.Sprintf("/v1/tasks?per_page=%d", 1+a.r.IntN(4)), "").into(&list)
		if len(list.Tasks) == 0 {
			continue
		}
		switch one := list.Tasks[a.r.IntN(len(list.Tasks))].ID; a.r.IntN(6) {
		case 0:
			a.again(one)
		case 1:
			a.find(one)
		case 2:
			a.backUp()
		default:
			a.actOnMany(list.Tasks)
		}
	}
}

// actOnMany acts on the tasks of a list.
func (a *worldActor) actOnMany(list []worldTaskView) {
	actions := []string{"retry_now", "reset", "resolve", "complete", "hold", "release", "close"}
	if a.w.part("cancels") {
		actions = append(actions, "cancel")
	}
	var ids []string
	var tasks []worldTaskView
	for _, t := range list {
		var v worldTaskView
		if x := a.do("GET", "/v1/tasks/"+t.ID, ""); x.into(&v) {
			a.w.model.saw(&v, x)
			ids, tasks = append(ids, fmt.Sprintf("%q", v.ID)), append(tasks, v)
		}
	}
	if len(ids) > 0 {
		a.many(actions[a.r.IntN(len(actions))], `"task_uuid":[`+strings.Join(ids, ",")+`]`, tasks)
	}
}

// worldItem is what was acted on.
type worldItem struct {
	Task string `json:"task_uuid"`
	Step string `json:"step_uuid"`
}

// many sends an action. Each line of the answer says how much was done.
func (a *worldActor) many(action, filter string, tasks []worldTaskView) {
	m := &a.w.model
	nonce := fmt.Sprint("many-", a.w.bus.now())
	body := fmt.Sprintf(`{"action":%q,"reason":%q,"by":"keeper","filter":{%s`, action, nonce, filter)
	if action == "complete" {
		body += `,"step":"a"},"completion_data":{"result":{"nonce":"` + nonce + `"}}}`
	} else {
		body += "}}"
	}
	for _, t := range tasks {
		m.mu.Lock()
		if m.onHold == nil {
			m.onHold = map[string]bool{}
		}
		m.onHold[t.ID] = m.onHold[t.ID] || action == "hold"
		m.mu.Unlock()
		for _, s := range t.Steps {
			if action == "reset" || action == "hold" {
				m.resetting(s.ID)
			}
		}
	}
	x := &worldAnswer{life: a.w.up()}
	if x.life == nil {
		return
	}
	x.call, x.at = a.w.bus.now(), time.Now()
	resp, conn, err := a.request(x.life, "POST", "/v1/actions", body)
	var result struct {
		Finished bool
		Samples  []worldItem
	}
	if err == nil {
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var line struct{ Done int }
			json.Unmarshal(lines.Bytes(), &line)
			m.tellMany(x.life, nonce, line.Done)
			json.Unmarshal(lines.Bytes(), &result)
		}
		conn.Close()
	}
	x.until = time.Now()
	if x.ret = a.w.bus.now(); result.Finished {
		x.status = 200
	} else {
		x.ret = 1<<64 - 1 // the rest may have been done at any time
	}
	a.noteMany(action, nonce, tasks, result.Samples, x)
}

// noteMany notes what an action has done to steps and tasks, or may have done.
func (a *worldActor) noteMany(action, nonce string, tasks []worldTaskView, done []worldItem, x *worldAnswer) {
	kinds := map[string]string{"retry_now": "retry_now", "reset": "reset_for_retry", "resolve": "resolve_manually", "complete": "complete_manually"}
	for _, t := range tasks {
		if action == "cancel" {
			was := *x
			if x.status == 200 && !slices.Contains(done, worldItem{Task: t.ID}) {
				was.status = 409
			}
			a.w.model.cancelled(t.ID, &was)
		}
		for _, s := range t.Steps {
			ok := x.status == 200 && slices.Contains(done, worldItem{t.ID, s.ID})
			if kind := kinds[action]; kind != "" && (ok || x.status == 0) {
				a.w.model.step(s.ID, t.ID).add(&stepOp{kind: kind, nonce: nonce, x: x, ok: ok})
			}
		}
	}
}

// tellMany notes how much a line says was done. All of it must be on disk by now.
func (m *worldModel) tellMany(l *worldLife, nonce string, done int) {
	durable, kept := l.svc.store.journal.groups.durable(), 0
	images, _ := worldImages(l.svc.store)
	for _, line := range images {
		for _, record := range strings.Split(line, recordHead)[1:] {
			seq, _ := leadingNumber([]byte(record))
			kept += boolCount(uint64(seq) <= durable && strings.Contains(record, `":"`+nonce+`"`))
		}
	}
	if kept < done && !m.w.part("retention") {
		m.w.Errorf("a line says that %d things were done for %s; %d of them are on disk", done, nonce, kept)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.many == nil {
		m.many = map[string]int{}
	}
	m.many[nonce] = max(m.many[nonce], done)
}

// checkMany checks that what lines told of is there.
func (m *worldModel) checkMany(images map[string]string) {
	all := strings.Join(slices.Collect(maps.Values(images)), "\n")
	m.mu.Lock()
	defer m.mu.Unlock()
	for nonce, done := range m.many {
		if got := strings.Count(all, `"reason":"`+nonce+`"`) + strings.Count(all, `notes":"`+nonce+`"`); got < done && !m.w.part("retention") {
			m.w.Errorf("%d things were done for %s, as a line said; %d of them are there", done, nonce, got)
		}
	}
}

// again repeats a task from its first step.
func (a *worldActor) again(id string) {
	var v worldTaskView
	if x := a.do("POST", "/v1/tasks/"+id+"/again", `{"from":"a"}`); x.into(&v) {
		a.w.model.created(v.ID, "", x)
		a.w.model.saw(&v, x)
	}
}

// find finds a task by a part of its id.
func (a *worldActor) find(id string) {
	var v struct{ Hits []worldItem }
	if x := a.do("GET", "/v1/find?q="+id[:13], ""); x.into(&v) {
		for _, hit := range v.Hits {
			a.w.model.told(hit.Task)
		}
	}
}

// backUp takes a backup: the tasks in it are there later, too.
func (a *worldActor) backUp() {
	x := a.do("GET", "/v1/backup", "")
	if x.status != 200 || !bytes.Contains(x.body, []byte(endHead)) {
		return
	}
	for line := range bytes.Lines(x.body) {
		if id, ok := lineID(line); ok && bytes.HasPrefix(line, []byte(taskHead)) {
			a.w.model.told(id.String())
		}
	}
}

// told notes that somebody was told of a task.
func (m *worldModel) told(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id != "" {
		m.task(id) // which must be there from now on
	}
}

// imported returns the disk of a store that was exported and imported.
func (w *worldRun) imported(disk *memDisk) *memDisk {
	o := diskOptions(disk)
	s, _, err := readStore(&o, storePath(o.dir, storeName))
	if err != nil {
		w.Errorf("export: %v", err)
		return disk
	}
	var text bytes.Buffer
	noError(w, s.export(s.cut(), &text))
	to := newMemDisk()
	if _, err := importStore(diskOptions(to), &stateSource{document: &text}, o.log); err != nil {
		w.Errorf("import: %v", err)
		return disk
	}
	return to.restart()
}
