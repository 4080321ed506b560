package main

// The authenticators of the roles that a process serves.

import (
	"log/slog"
	"slices"
)

// authenticators are the roles' own ways to authenticate; nil for a role that is
// not served. That of the mount point is the orchestration role's own unless it
// is configured in another way.
type authenticators struct {
	orchestration, worker, mount *authenticator
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
		made.mount = made.orchestration
		if cfg.Mount.Path != "" && !cfg.mountSharesAuth() {
			set(&made.mount, "mount")
		}
		for _, key := range cfg.Mount.idleGuards() {
			log.Warn(key + " has no effect: mount.auth.enabled is false")
		}
	}
	if cfg.Role != "orchestration" {
		set(&made.worker, "worker")
	}
	if err := newConfigError(problems); err != nil {
		made.close()
		return nil, err
	}
	if made.mount != nil {
		made.mount.metrics = made.orchestration.metrics // one listener, one count
	}
	return made, nil
}

// counted are the same authenticators with figures of their own. They end with
// those that they were made of.
func (a *authenticators) counted() *authenticators {
	if a == nil {
		return nil
	}
	own := func(one *authenticator) *authenticator {
		if one == nil {
			return nil
		}
		c := *one
		c.metrics = new(authMetrics)
		return &c
	}
	made := &authenticators{own(a.orchestration), own(a.worker), own(a.mount)}
	if a.mount != nil {
		made.mount.metrics = made.orchestration.metrics
	}
	return made
}

// of is the authenticator of a role.
func (a *authenticators) of(role string) *authenticator {
	switch role {
	case "worker":
		return a.worker
	case "mount":
		return a.mount
	}
	return a.orchestration
}

// each is those that there are.
func (a *authenticators) each() (all []*authenticator) {
	for _, one := range []*authenticator{a.orchestration, a.worker, a.mount} {
		if one != nil && !slices.Contains(all, one) {
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
