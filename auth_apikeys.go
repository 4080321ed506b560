package main

// API keys: the registry of a role, and the checks of its entries. No message repeats a key.

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
)

// checkAPIKeys checks the registry, used or not.
func (s *authSetup) checkAPIKeys() {
	place := make(map[string]int)
	for i := range s.c.APIKeys {
		e := &s.c.APIKeys[i]
		if first, ok := place[e.Key]; ok && e.Key != "" {
			s.problem(apiKeyMember(i, "key"), "duplicates that of api_keys[%d]", first)
		} else {
			place[e.Key] = i
		}
		s.checkAPIKey(i, e)
		if s.c.APIKeysEnabled {
			s.warnOfAPIKey(i, e)
		}
	}
}

func apiKeyMember(i int, member string) string { return fmt.Sprintf("api_keys[%d].%s", i, member) }

func (s *authSetup) checkAPIKey(i int, e *apiKeyConfig) {
	switch {
	case e.Key == "":
		s.problem(apiKeyMember(i, "key"), "is empty")
	case !isHeaderText(e.Key):
		s.problem(apiKeyMember(i, "key"), "contains characters, or blanks at its ends, that no header can carry")
	}
	if len(e.Permissions) == 0 {
		s.problem(apiKeyMember(i, "permissions"), "must not be empty")
	}
}

// warnOfAPIKey warns about what is allowed but hardly intended.
func (s *authSetup) warnOfAPIKey(i int, e *apiKeyConfig) {
	if e.Key != "" && len(e.Key) < 16 {
		s.warn(apiKeyMember(i, "key"), "it has fewer than 16 characters: easy to guess")
	}
	list, superuser := e.permissionList()
	if superuser {
		s.warn(apiKeyMember(i, "permissions"), `"*" makes it a superuser key: all permissions`)
	}
	_, unknown := parsePermissions(list)
	switch {
	case len(unknown) == 0:
	case s.c.StrictValidation:
		s.warn(apiKeyMember(i, "permissions"), "unknown: %s; the key will be refused", strings.Join(unknown, ", "))
	case s.c.LogUnknownPermissions:
		s.warn(apiKeyMember(i, "permissions"), "unknown: %s", strings.Join(unknown, ", "))
	}
}

// isHeaderText reports whether a header delivers a value unchanged.
func isHeaderText(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' || r >= 0x7f
	})
}

// API keys.

// apiKeyConfig is an entry of the registry as configured.
type apiKeyConfig struct {
	Key         string   `json:"key"`
	Permissions []string `json:"permissions"`
	Description string   `json:"description"` // becomes the subject
}

// permissionList returns what the entry grants. The list ["*"] means the six
// wildcards, here and nowhere else.
func (k *apiKeyConfig) permissionList() (list []string, superuser bool) {
	if len(k.Permissions) == 1 && k.Permissions[0] == "*" {
		return allWildcards(), true
	}
	return k.Permissions, false
}

// apiKey is an entry of the registry, without the key itself.
type apiKey struct {
	digest  credentialDigest
	sc      *securityContext
	unknown []string // permissions outside the vocabulary
}

// apiKeyRegistry holds the API keys. It is immutable.
type apiKeyRegistry []apiKey

func newAPIKeyRegistry(entries []apiKeyConfig) apiKeyRegistry {
	registry := make(apiKeyRegistry, len(entries))
	for i, e := range entries {
		list, _ := e.permissionList()
		set, unknown := parsePermissions(list)
		digest := credentialDigest(sha256.Sum256([]byte(e.Key)))
		sc := &securityContext{
			subject: e.Description, method: authByAPIKey, key: string(digest[:]), permissions: set,
		}
		registry[i] = apiKey{digest, sc, unknown}
	}
	return registry
}

// find returns the entry of a key, or nil, in a time that does not depend on the key.
func (r apiKeyRegistry) find(key string) *apiKey {
	digest := sha256.Sum256([]byte(key))
	found := -1
	for i := range r {
		same := subtle.ConstantTimeCompare(r[i].digest[:], digest[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return nil
	}
	return &r[found]
}
