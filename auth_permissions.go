package main

// Permissions, the wildcards of resources, and the roles that the command line offers.

import (
	"slices"
	"strings"
)

// permission is one of the 17 permissions that a route can require.
type permission uint8

const (
	permTasksCreate permission = iota
	permTasksRead
	permTasksList
	permTasksCancel
	permTasksContextRead
	permStepsRead
	permStepsResolve
	permDLQRead
	permDLQUpdate
	permDLQStats
	permTemplatesRead
	permTemplatesValidate
	permSystemConfigRead
	permSystemHandlersRead
	permSystemAnalyticsRead
	permWorkerConfigRead
	permWorkerTemplatesRead
	permissionCount
)

var permissionNames = [permissionCount]string{
	"tasks:create", "tasks:read", "tasks:list", "tasks:cancel", "tasks:context_read",
	"steps:read", "steps:resolve",
	"dlq:read", "dlq:update", "dlq:stats",
	"templates:read", "templates:validate",
	"system:config_read", "system:handlers_read", "system:analytics_read",
	"worker:config_read", "worker:templates_read",
}

func (p permission) String() string { return permissionNames[p] }

// resource returns the part before the colon.
func (p permission) resource() string {
	r, _, _ := strings.Cut(permissionNames[p], ":")
	return r
}

// allWildcards returns the wildcards, one for each resource, which together grant everything.
func allWildcards() (wildcards []string) {
	for p := range permissionCount {
		if w := p.resource() + ":*"; !slices.Contains(wildcards, w) {
			wildcards = append(wildcards, w)
		}
	}
	return wildcards
}

// permissionSet holds permissions, one bit each; a wildcard sets every bit of
// its resource. The zero value allows nothing.
type permissionSet uint32

// everyPermission is the set that the six wildcards grant.
const everyPermission permissionSet = 1<<permissionCount - 1

// permissionSets maps each string of the vocabulary, the 17 permissions and the six wildcards, to the set it grants.
var permissionSets = func() map[string]permissionSet {
	sets := make(map[string]permissionSet)
	for p := range permissionCount {
		sets[p.String()] = 1 << p
		sets[p.resource()+":*"] |= 1 << p
	}
	return sets
}()

// parsePermissions returns the set that a credential's list grants. Strings outside the vocabulary, a bare "*" among
// them, grant nothing and are returned once each, in the order given.
func parsePermissions(list []string) (set permissionSet, unknown []string) {
	for _, s := range list {
		granted, ok := permissionSets[s]
		if !ok && !slices.Contains(unknown, s) {
			unknown = append(unknown, s)
		}
		set |= granted
	}
	return set, unknown
}

// has (hot path: BenchmarkPermissionCheck) reports whether the set contains p.
func (s permissionSet) has(p permission) bool { return s>>p&1 == 1 }

func (s permissionSet) list() []permission {
	list := []permission{}
	for p := range permissionCount {
		if s.has(p) {
			list = append(list, p)
		}
	}
	return list
}

// rolePatterns are the common roles that the command line offers, with permissions as a token lists them.
var rolePatterns = []struct {
	name        string
	permissions []string
}{
	{"read-only-operator", []string{"tasks:read", "tasks:list", "steps:read", "dlq:read", "dlq:stats"}},
	{"task-submitter", []string{"tasks:create", "tasks:read", "tasks:list"}},
	{"ops-admin", []string{"tasks:*", "steps:*", "dlq:*", "system:*"}},
	{"worker-service", []string{"worker:config_read", "worker:templates_read"}},
	{"full-access", allWildcards()},
}
