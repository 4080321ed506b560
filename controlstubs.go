package main

// The stubs of the control API: adding, listing and removing them.

import (
	"encoding/json"
	"net/http"
)

// stubView is a stub on the wire.
type stubView struct {
	ID       string          `json:"id"`
	Match    json.RawMessage `json:"match"`
	Outcomes json.RawMessage `json:"outcomes"`
	Then     stubThen        `json:"then"`
	Uses     int             `json:"uses"` // deliveries that it has decided
}

// stubList is every stub, in the order in which they are tried.
type stubList struct {
	Stubs []stubView `json:"stubs"`
}

func (s *stub) view() stubView { return stubView{s.id, s.matchText, s.outcomesText, s.then, s.uses} }

func (l *stubs) view() stubList {
	v := stubList{make([]stubView, len(l.list))}
	for i, s := range l.list {
		v.Stubs[i] = s.view()
	}
	return v
}

func stubNotFound(id string) *failure { return failf(notFound, "there is no stub %.60q", id) }

func (a *controlAPI) addStub(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, false)
	if err != nil {
		return err
	}
	s, err := parseStub(body)
	if err != nil {
		return err
	}
	var v stubView
	err = a.svc.engine.changeStubs(r.Context(), func(l *stubs) error {
		err := l.add([]*stub{s})
		v = s.view()
		return err
	})
	if err != nil {
		return err
	}
	w.Header().Set("Location", controlPath+"/stubs/"+v.ID)
	return writeJSON(w, http.StatusCreated, v)
}

func (a *controlAPI) replaceStubs(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, false)
	if err != nil {
		return err
	}
	all, err := parseStubs(body)
	if err != nil {
		return err
	}
	var v stubList
	err = a.svc.engine.changeStubs(r.Context(), func(l *stubs) error {
		err := l.replace(all)
		v = l.view()
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *controlAPI) listStubs(w http.ResponseWriter, _ *http.Request) error {
	var v stubList
	a.svc.engine.readStubs(func(l *stubs) { v = l.view() })
	return writeJSON(w, http.StatusOK, v)
}

func (a *controlAPI) getStub(w http.ResponseWriter, r *http.Request) error {
	var v stubView
	found := false
	a.svc.engine.readStubs(func(l *stubs) {
		if s := l.find(r.PathValue("id")); s != nil {
			v, found = s.view(), true
		}
	})
	if !found {
		return stubNotFound(r.PathValue("id"))
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *controlAPI) removeStub(w http.ResponseWriter, r *http.Request) error {
	err := a.svc.engine.changeStubs(r.Context(), func(l *stubs) error {
		if !l.remove(r.PathValue("id")) {
			return stubNotFound(r.PathValue("id"))
		}
		return nil
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (a *controlAPI) removeStubs(w http.ResponseWriter, r *http.Request) error {
	err := a.svc.engine.changeStubs(r.Context(), func(l *stubs) error { return l.replace(nil) })
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
