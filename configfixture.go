package main

// The configuration of fixture mode: what it does not go with, and what it
// brings about.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// checkPortRange reads "low-high".
func checkPortRange(s string) error {
	low, high, ok := strings.Cut(s, "-")
	a, errA := strconv.ParseUint(low, 10, 16)
	b, errB := strconv.ParseUint(high, 10, 16)
	if !ok || errA != nil || errB != nil || a == 0 || a > b {
		return errors.New("is not a range of ports like 9000-9099")
	}
	return nil
}

func checkFixtureRole(c *Config, _ *provenance) error {
	if c.Fixture.Enabled && c.Role == "worker" {
		return errors.New("fixture.enabled needs the orchestration role, which serves the control API")
	}
	return nil
}

// checkFixtureListeners keeps the control API from everybody but this machine.
func checkFixtureListeners(c *Config, _ *provenance) error {
	if !c.Fixture.Enabled || c.Fixture.AllowRemote {
		return nil
	}
	listens := map[string]string{"orchestration.web.listen": c.Orchestration.Web.Listen}
	if c.Role == "all" {
		listens["worker.web.listen"] = c.Worker.Web.Listen
	}
	for _, path := range []string{"orchestration.web.listen", "worker.web.listen"} {
		a, err := parseListen(listens[path])
		if listens[path] != "" && err == nil && !a.ip.IsLoopback() {
			return fmt.Errorf("fixture mode would be open to others on %s, %q; fixture.allow_remote allows it",
				path, listens[path])
		}
	}
	return nil
}

// checkFixtureData keeps a reset from data that somebody wants.
func checkFixtureData(c *Config, p *provenance) error {
	if c.Fixture.Enabled && !c.Fixture.AllowData && p.of("store.path").kind == fromFlag {
		return errors.New("fixture mode keeps state in memory; fixture.allow_data lets it use, and empty, the directory of --data")
	}
	return nil
}

// checkDeterministicIDs keeps made-up ids and a clock that stands still from work
// that is meant.
func checkDeterministicIDs(c *Config, _ *provenance) error {
	if c.Fixture.DeterministicIDs != "" && !c.Fixture.Enabled {
		return errors.New("fixture.deterministic_ids (--deterministic-ids) needs fixture mode: --fixture")
	}
	return nil
}

// applyFixture has fixture mode keep state in memory, unless it may use a
// directory and was given one.
func (l *configLoader) applyFixture() {
	c := l.config
	given := l.origin.of("store.path").kind != fromDefault
	if c.Fixture.Enabled && !c.Store.Memory && !(c.Fixture.AllowData && given) {
		c.Store.Memory = true
		l.origin.sources["store.memory"] = l.origin.of("fixture.enabled")
	}
}
