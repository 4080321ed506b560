package main

// The authenticators of the roles that a process serves.

import "log/slog"

// authenticators are the roles' own ways to authenticate; nil for a role that is
// not served.
type authenticators struct {
	orchestration, worker *authenticator
}

// newAuthenticators sets up the roles that are served. The error is a
// *configError with every problem of every role.
func newAuthenticators(
	cfg *Config, origin *provenance, clock clock, log *slog.Logger,
) (*authenticators, error) {
	made := &authenticators{}
	var problems []configProblem
	set := func(at **authenticator, role string) {
		a, warnings, err := newAuthenticator(cfg.authConfig(role), role, cfg.Web.trustedProxies(), clock, log)
		for _, w := range warnings {
			log.Warn(w)
		}
		if found, ok := err.(authProblems); ok {
			problems = append(problems, found.of(origin)...)
		}
		*at = a
	}
	if cfg.Role != "worker" {
		set(&made.orchestration, "orchestration")
	}
	if cfg.Role != "orchestration" {
		set(&made.worker, "worker")
	}
	if err := newConfigError(problems); err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}

// of is the authenticator of a role.
func (a *authenticators) of(role string) *authenticator {
	if role == "worker" {
		return a.worker
	}
	return a.orchestration
}

// each is those that there are.
func (a *authenticators) each() (all []*authenticator) {
	for _, one := range []*authenticator{a.orchestration, a.worker} {
		if one != nil {
			all = append(all, one)
		}
	}
	return all
}

// ready is nil once every role can verify credentials.
func (a *authenticators) ready() error {
	for _, one := range a.each() {
		if err := one.ready(); err != nil {
			return err
		}
	}
	return nil
}

func (a *authenticators) close() {
	for _, one := range a.each() {
		one.close()
	}
}
