package main

// The routes of the control API for sandboxes.

import (
	"bytes"
	"io"
	"net/http"
)

// sandboxListView is the sandboxes of a service.
type sandboxListView struct {
	Sandboxes []sandboxView `json:"sandboxes"`
}

// sandboxRequest is the body that asks for one.
type sandboxRequest struct {
	name          string // "" for any
	seed          []byte // the state document that it starts with; nil for none
	deterministic bool   // ids and chance follow from ids
	ids           string
}

func (q *sandboxRequest) document() io.Reader { return bytes.NewReader(q.seed) }

// seedDepth is how much deeper than other bodies one with a seed may be.
const seedDepth = elementDepth + 4

func parseSandboxRequest(body []byte) (*sandboxRequest, error) {
	q, f := &sandboxRequest{}, &fieldReader{}
	if body == nil {
		return q, nil
	}
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
	}
	eachMember(body, func(key string, raw []byte) bool {
		switch key {
		case "name":
			if q.name = f.text(key, raw, 1, 63); !f.complainedOf(key) && !sandboxName(q.name) {
				f.complain(key, "may have lower case letters, digits and - alone")
			}
		case "seed":
			if q.seed = raw; jsonKind(raw) != '{' {
				f.complain(key, "must be a state document, an object")
			}
		case "deterministic_ids":
			q.ids, q.deterministic = f.text(key, raw, 1, maxNameLength), true
		default:
			f.complain(key, "is not known; name, seed and deterministic_ids are")
		}
		return true
	})
	return q, f.failure("no sandbox was made")
}

// sandboxes are those of the service; a sandbox has none of its own.
func (a *controlAPI) sandboxes() (*sandboxes, error) {
	w := a.svc.world
	if w.boxes == nil {
		return nil, failf(conflict, "this is sandbox %q, which has no sandboxes of its own", w.sandbox)
	}
	return w.boxes, nil
}

func (a *controlAPI) addSandbox(w http.ResponseWriter, r *http.Request) error {
	all, err := a.sandboxes()
	if err != nil {
		return err
	}
	extendReading(w, stateTimeout)
	body, err := readDeepJSON(r, true, seedDepth)
	if err != nil {
		return err
	}
	q, err := parseSandboxRequest(body)
	if err != nil {
		return err
	}
	extendWriting(w, stateTimeout)
	box, err := all.create(q)
	if err != nil {
		return refusedState(err, "seed.", "no sandbox was made")
	}
	w.Header().Set("Location", controlPath+"/sandboxes/"+box.view.Name)
	return writeJSON(w, http.StatusCreated, box.view)
}

func (a *controlAPI) listSandboxes(w http.ResponseWriter, _ *http.Request) error {
	all, err := a.sandboxes()
	if err != nil {
		return err
	}
	v := sandboxListView{[]sandboxView{}}
	for _, box := range all.list() {
		v.Sandboxes = append(v.Sandboxes, box.view)
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *controlAPI) getSandbox(w http.ResponseWriter, r *http.Request) error {
	all, err := a.sandboxes()
	if err != nil {
		return err
	}
	box, err := all.get(r.PathValue("name"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, box.view)
}

func (a *controlAPI) deleteSandbox(w http.ResponseWriter, r *http.Request) error {
	all, err := a.sandboxes()
	if err != nil {
		return err
	}
	if err := all.delete(r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
