package main

// Templates at run time: in fixture mode a test adds templates to the service
// that it works with. They are gone with it; start-up templates are not touched.

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// addTemplate registers a definition, which passed checkJSON, in the place of a
// template of the same identity. A failure names every problem.
func (s *service) addTemplate(definition []byte) (t *template, replaced bool, err error) {
	t, problems, warnings := parseCheckedTemplate("", definition, "json", s.cfg.Environment, s.checkAddedCallable)
	if t == nil {
		return nil, false, refusedTemplate(problems)
	}
	for _, w := range warnings {
		s.log.Warn("a template was added with a warning", "template", t.fullName(), "warning", w)
	}
	for {
		before := s.registry()
		old, ok := before.get(t.namespace, t.name, t.version)
		if s.templates.CompareAndSwap(before, before.with(t)) {
			s.uses.replaced(old, t, s.clock.now())
			return t, ok, nil
		}
	}
}

func refusedTemplate(problems []templateProblem) error {
	f := fieldReader{}
	for _, p := range problems {
		f.complain(orDefault(p.path, "template"), "%s", p.reason)
	}
	return f.failure("the template is refused")
}

// checkAddedCallable is what is wrong with a callable of a template that comes
// from outside: it must not have us run programs, or call anybody but this
// machine and the hosts allowed. What the configuration maps a callable to is
// the configuration's affair.
func (s *service) checkAddedCallable(callable string) error {
	if err := s.handlers.check(callable); err != nil {
		return err
	}
	prefix, _ := cutHandlerPrefix(callable)
	if prefix == "exec:" {
		return errors.New("programs are not for templates that are added at run time")
	}
	if _, mapped := s.handlers.mapped(callable); mapped || !strings.HasPrefix(prefix, "http") {
		return nil
	}
	to, err := parseHTTPAddress(callable)
	if err != nil {
		return err
	}
	host := hostName(to.url.Host)
	allowed := slices.ContainsFunc(s.cfg.Fixture.AllowTargets, func(h string) bool { return hostName(h) == host })
	if ours := new(hostGuard); ours.foreignHost(to.url.Host) && !allowed {
		return fmt.Errorf("%s is not loopback, and fixture.allow_targets does not name it", host)
	}
	return nil
}

// replaced begins to count for a template that was added, and forgets the one
// that it takes the place of, which may be nil.
func (u *templateUse) replaced(old, t *template, now instant) {
	u.entries.Store(t, &templateEntry{since: now})
	if old != nil {
		u.entries.Delete(old)
	}
}

func (a *controlAPI) addTemplate(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, false)
	if err != nil {
		return err
	}
	t, replaced, err := a.svc.addTemplate(body)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if replaced {
		status = http.StatusOK
	}
	w.Header().Set("Location", "/v1/templates/"+url.PathEscape(t.namespace)+"/"+url.PathEscape(t.name)+"/"+url.PathEscape(t.version))
	return writeJSON(w, status, t.detailView())
}
