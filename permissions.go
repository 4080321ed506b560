package main

// Permissions: the vocabulary, and who may do what with it. Pure.

import "strings"

// permission is one of the 17 things that a route can ask for.
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

// resource is the part before the colon.
func (p permission) resource() string {
	r, _, _ := strings.Cut(permissionNames[p], ":")
	return r
}

// permissionResources are the resources, in the order of the vocabulary.
var permissionResources = []string{"tasks", "steps", "dlq", "templates", "system", "worker"}

// allWildcards lists the wildcards, which together grant everything.
func allWildcards() []string {
	wildcards := make([]string, len(permissionResources))
	for i, r := range permissionResources {
		wildcards[i] = r + ":*"
	}
	return wildcards
}

// permissionSet holds permissions, one bit each; a wildcard is the bits of its
// resource. The zero value allows nothing.
type permissionSet uint32

// everyPermission is what the six wildcards grant.
const everyPermission permissionSet = 1<<permissionCount - 1

// permissionSets is what each string of the vocabulary grants: the 17
// permissions and the six wildcards.
var permissionSets = makePermissionSets()

func makePermissionSets() map[string]permissionSet {
	sets := make(map[string]permissionSet)
	for p := range permissionCount {
		sets[p.String()] = 1 << p
		sets[p.resource()+":*"] |= 1 << p
	}
	return sets
}

// parsePermissions makes a set of what a credential lists. Strings outside the
// vocabulary grant nothing and come back, each once, in the order given. A bare
// "*" is one of them.
func parsePermissions(list []string) (set permissionSet, unknown []string) {
	seen := make(map[string]bool)
	for _, s := range list {
		granted, ok := permissionSets[s]
		if !ok && !seen[s] {
			seen[s] = true
			unknown = append(unknown, s)
		}
		set |= granted
	}
	return set, unknown
}

// has tells whether the set allows p.
func (s permissionSet) has(p permission) bool { return s>>p&1 == 1 }

// list is the permissions of the set.
func (s permissionSet) list() []permission {
	list := []permission{}
	for p := range permissionCount {
		if s.has(p) {
			list = append(list, p)
		}
	}
	return list
}

// names lists the permissions of the set, wildcards spelled out.
func (s permissionSet) names() []string {
	names := []string{}
	for p := range permissionCount {
		if s.has(p) {
			names = append(names, p.String())
		}
	}
	return names
}

// rolePattern is a customary set of permissions, by name.
type rolePattern struct {
	name        string
	permissions []string // as a token lists them
}

// rolePatterns are the roles that the command line knows.
var rolePatterns = []rolePattern{
	{"read-only-operator", []string{"tasks:read", "tasks:list", "steps:read", "dlq:read", "dlq:stats"}},
	{"task-submitter", []string{"tasks:create", "tasks:read", "tasks:list"}},
	{"ops-admin", []string{"tasks:*", "steps:*", "dlq:*", "system:*"}},
	{"worker-service", []string{"worker:config_read", "worker:templates_read"}},
	{"full-access", allWildcards()},
}

// rolePermissions are the permissions of a role pattern.
func rolePermissions(name string) ([]string, bool) {
	for _, r := range rolePatterns {
		if r.name == name {
			return r.permissions, true
		}
	}
	return nil, false
}
