package main

// What an operator can do about the store's files while the service runs: check them, and rewrite a store that failed.

import "net/http"

// storeFilesView is the state of the store's files.
type storeFilesView struct {
	Writable   bool      `json:"writable"`
	Durability string    `json:"durability"`        // see journalStatus
	Reason     string    `json:"reason,omitempty"`  // why it is not writable
	Problem    string    `json:"problem,omitempty"` // what a check found
	CheckedAt  zonedTime `json:"checked_at"`        // of the newest check that found nothing; null before the first
	Sequence   uint64    `json:"sequence"`
}

func (a *orchestrationAPI) storeFiles(problem string) storeFilesView {
	st := a.surface.svc.store.status()
	_, seq := a.surface.svc.store.size()
	return storeFilesView{st.writable, st.durability, st.reason, problem, zonedTime(st.checked), seq}
}

// checkStore reads the files against their checksums.
func (a *orchestrationAPI) checkStore(_ *responseWriter, r *http.Request) (any, error) {
	found, err := a.surface.svc.store.keeper().check(r.Context())
	if err != nil {
		return nil, err
	}
	return a.storeFiles(found), nil
}

// reopenStore rewrites a store that failed.
func (a *orchestrationAPI) reopenStore(_ *responseWriter, r *http.Request) (any, error) {
	if err := a.surface.svc.store.keeper().renew(true); err != nil {
		return nil, err
	}
	return a.storeFiles(""), nil
}
