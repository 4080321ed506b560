package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTokenContext(t *testing.T) {
	b := newAuthBench(t, func(c *authConfig) { c.PermissionsClaim = "scope" })
	sc, f := b.bearer(rs256(t, goodClaims(`,"scope":"dlq:* tasks:list"`)))
	if f != nil {
		t.Fatal(f)
	}
	want := securityContext{
		subject: "ci", method: authByToken, issuer: "stepwell", expiry: authTestNow.add(time.Hour),
		permissions: 1<<permDLQRead | 1<<permDLQUpdate | 1<<permDLQStats | 1<<permTasksList,
	}
	if *sc != want {
		t.Errorf("got %+v; want %+v", *sc, want)
	}
}

// namesOf lists the permissions of a set.
func namesOf(set permissionSet) []string {
	names := []string{}
	for _, p := range set.list() {
		names = append(names, p.String())
	}
	return names
}

// named finds a permission by its string.
func named(t testing.TB, s string) permission {
	t.Helper()
	i := slices.Index(permissionNames[:], s)
	if i < 0 {
		t.Fatalf("%q is no permission", s)
	}
	return permission(i)
}

func TestPermissionPolicy(t *testing.T) {
	check := func(want bool) func(held string, asked ...string) {
		return func(held string, asked ...string) {
			t.Helper()
			set, _ := parsePermissions(strings.Split(held, ","))
			for _, p := range asked {
				if got := set.has(named(t, p)); got != want {
					t.Errorf("%q for %s: got %v; want %v", held, p, got, want)
				}
			}
		}
	}
	allow, deny := check(true), check(false)

	// A permission allows itself and nothing else.
	allow("tasks:read", "tasks:read")
	deny("tasks:read", "tasks:create", "tasks:list", "tasks:cancel", "tasks:context_read", "steps:read", "dlq:read")
	deny("templates:read", "templates:validate", "worker:templates_read", "system:handlers_read")
	deny("worker:config_read", "system:config_read")
	allow("dlq:read,dlq:stats", "dlq:read", "dlq:stats")
	deny("dlq:read,dlq:stats", "dlq:update")

	// A wildcard allows all of its resource, the context of tasks included.
	allow("tasks:*", "tasks:create", "tasks:read", "tasks:list", "tasks:cancel", "tasks:context_read")
	allow("steps:*", "steps:read", "steps:resolve")
	allow("dlq:*", "dlq:read", "dlq:update", "dlq:stats")
	allow("templates:*", "templates:read", "templates:validate")
	allow("system:*", "system:config_read", "system:handlers_read", "system:analytics_read")
	allow("worker:*", "worker:config_read", "worker:templates_read")
	deny("tasks:*", "steps:read", "dlq:read", "templates:read", "system:config_read", "worker:config_read")
	deny("templates:*", "worker:templates_read")
	deny("worker:*", "templates:read")
	allow("tasks:*,unheard:of", "tasks:read")

	// Anything else matches an identical string only, so it allows nothing.
	for _, held := range []string{
		"", "*", "*:*", "*:read", "tasks", "tasks:", ":read", "tasks:r*", "tasks:re", "tasks:reads", "task:*", "tasks:**",
		"tasks:*:*", "tasks:read:x", "Tasks:read", "tasks:READ", "TASKS:*", " tasks:read", "tasks:read ", "tasks :read",
		"tasks:read\x00", "tasks.read", "tasks:*\n", "tasks:read;tasks:create", "admin", "task\u017f:read", "tasks\uff1aread",
	} {
		deny(held, permissionNames[:]...)
	}
}

func TestPermissionVocabulary(t *testing.T) {
	if permissionCount != 17 {
		t.Errorf("got %d permissions; want 17", permissionCount)
	}
	if got := len(permissionSets); got != 17+6 {
		t.Errorf("got a vocabulary of %d; want 23", got)
	}
	if set, unknown := parsePermissions(allWildcards()); set != everyPermission || unknown != nil {
		t.Errorf("the wildcards: got %b, unknown %q; want %b and none", set, unknown, everyPermission)
	}
	if set, unknown := parsePermissions(permissionNames[:]); set != everyPermission || unknown != nil {
		t.Errorf("all 17: got %b, unknown %q; want %b and none", set, unknown, everyPermission)
	}
	if got := namesOf(everyPermission); !slices.Equal(got, permissionNames[:]) {
		t.Errorf("names: got %q; want the vocabulary", got)
	}
}

func TestUnknownPermissions(t *testing.T) {
	set, unknown := parsePermissions([]string{"b", "tasks:read", "*", "b", "", "tasks:bogus"})
	if want := []string{"b", "*", "", "tasks:bogus"}; !slices.Equal(unknown, want) {
		t.Errorf("unknown: got %q; want %q", unknown, want)
	}
	if got, want := namesOf(set), []string{"tasks:read"}; !slices.Equal(got, want) {
		t.Errorf("known: got %q; want %q", got, want)
	}
	if set, unknown := parsePermissions(nil); set != 0 || unknown != nil {
		t.Errorf("nothing listed: got %b, unknown %q; want nothing", set, unknown)
	}
}

func TestRolePatterns(t *testing.T) {
	want := map[string]string{
		"read-only-operator": "tasks:read tasks:list steps:read dlq:read dlq:stats",
		"task-submitter":     "tasks:create tasks:read tasks:list",
		"ops-admin":          "tasks:* steps:* dlq:* system:*",
		"worker-service":     "worker:config_read worker:templates_read",
		"full-access":        "tasks:* steps:* dlq:* templates:* system:* worker:*",
	}
	if len(rolePatterns) != len(want) {
		t.Errorf("got %d roles; want %d", len(rolePatterns), len(want))
	}
	for _, role := range rolePatterns {
		if got := strings.Join(role.permissions, " "); got != want[role.name] {
			t.Errorf("%s: got %q; want %q", role.name, got, want[role.name])
		}
		if _, unknown := parsePermissions(role.permissions); unknown != nil {
			t.Errorf("%s: unknown permissions %q", role.name, unknown)
		}
	}
}

func TestPermissionCheckAllocatesNothing(t *testing.T) {
	set, _ := parsePermissions([]string{"tasks:*", "dlq:read"})
	allowed := 0
	n := testing.AllocsPerRun(100, func() {
		for p := range permissionCount {
			if set.has(p) {
				allowed++
			}
		}
	})
	if n != 0 || allowed == 0 {
		t.Errorf("got %v allocations, %d allowed; want 0 and some", n, allowed)
	}
}

func BenchmarkPermissionCheck(b *testing.B) {
	set, _ := parsePermissions([]string{"tasks:*", "dlq:read"})
	b.ReportAllocs()
	allowed := 0
	for i := 0; b.Loop(); i++ {
		if set.has(permission(i % int(permissionCount))) {
			allowed++
		}
	}
}

func TestUnknownPermissionsByValidation(t *testing.T) {
	token := rs256(t, claimsWith("permissions", `["tasks:raed","tasks:read","*","tasks:raed"]`))
	for _, tt := range []struct {
		name        string
		strict, log bool
	}{{"strict", true, true}, {"lenient, logged", false, true}, {"lenient, silent", false, false}} {
		b := newAuthBench(t, func(c *authConfig) {
			withAPIKeys(c)
			c.StrictValidation, c.LogUnknownPermissions = tt.strict, tt.log
		})
		sc, f := b.bearer(token)
		keySC, keyF := b.ask("X-API-Key: a-key-with-a-typo")
		if tt.strict {
			if f == nil || f.message != "Unknown permissions: tasks:raed, *" || f.kind != unauthenticated {
				t.Errorf("%s: got %v; want 401 naming tasks:raed, *", tt.name, f)
			}
			if keyF == nil || keyF.message != "Unknown permissions: tasks:raed, nonsense" {
				t.Errorf("%s: got %v; want 401 naming tasks:raed, nonsense", tt.name, keyF)
			}
			continue
		}
		if f != nil || keyF != nil || sc.permissions != 1<<permTasksRead || keySC.permissions != 1<<permTasksRead {
			t.Errorf("%s: got %+v, %v and %+v, %v; want tasks:read alone", tt.name, sc, f, keySC, keyF)
		}
		if got := strings.Contains(b.log.String(), "tasks:raed"); got != tt.log {
			t.Errorf("%s: logged: got %v; want %v", tt.name, got, tt.log)
		}
	}
}

func TestAuthorize(t *testing.T) {
	b := newAuthBench(t, unchanged)
	may := func(names ...string) *securityContext {
		set, _ := parsePermissions(names)
		return &securityContext{permissions: set}
	}
	for _, tt := range []struct {
		name   string
		sc     *securityContext
		needed []permission
		want   string
	}{
		{"held", may("tasks:create"), []permission{permTasksCreate}, ""},
		{"held by wildcard", may("tasks:*"), []permission{permTasksCreate}, ""},
		{"the second of two", may("system:handlers_read"), []permission{permTemplatesRead,
			permSystemHandlersRead}, ""},
		{"nothing needed", may(), nil, ""},
		{"not held", may("tasks:read"), []permission{permTasksCreate}, "Missing required permission: tasks:create"},
		{"neither of two", may(), []permission{permTemplatesRead, permSystemHandlersRead},
			"Missing required permission: templates:read"},
		{"no context", nil, []permission{permDLQRead}, "Missing required permission: dlq:read"},
	} {
		f := b.authorize(tt.sc, tt.needed...)
		switch {
		case f == nil && tt.want != "", f != nil && f.message != tt.want:
			t.Errorf("%s: got %v; want %q", tt.name, f, tt.want)
		case f != nil && (f.kind != forbidden || f.refusal.reason != reasonForbidden):
			t.Errorf("%s: got %+v; want a 403", tt.name, f)
		}
	}
	if f := b.authorizeAll(may(allWildcards()...), everything...); f != nil {
		t.Errorf("all: got %v; want success", f)
	}
	f := b.authorizeAll(may("tasks:*", "steps:*", "dlq:*", "templates:*", "system:*", "worker:config_read"), everything...)
	if f == nil || f.message != "Missing required permission: worker:templates_read" {
		t.Errorf("all but one: got %v; want the missing one named", f)
	}
	metrics := authMetricsText(b.metrics)
	for _, want := range []string{
		`stepwell_permission_denials_total{permission="tasks:create"} 1` + "\n",
		`stepwell_permission_denials_total{permission="worker:templates_read"} 1` + "\n",
		`stepwell_permission_denials_total{permission="system:handlers_read"} 0` + "\n",
		`stepwell_auth_failures_total{reason="forbidden"} 4` + "\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("got no %q in %s", want, metrics)
		}
	}
}
