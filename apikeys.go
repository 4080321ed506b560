package main

// API keys: who presents which.

import (
	"crypto/sha256"
	"crypto/subtle"
)

// apiKeyConfig is an entry of the registry as configured.
type apiKeyConfig struct {
	Key         string   `json:"key"`
	Permissions []string `json:"permissions"`
	Description string   `json:"description"` // becomes the subject
}

// permissionList is what the entry grants: the list ["*"], here and nowhere
// else, means the six wildcards.
func (k *apiKeyConfig) permissionList() (list []string, superuser bool) {
	if len(k.Permissions) == 1 && k.Permissions[0] == "*" {
		return allWildcards(), true
	}
	return k.Permissions, false
}

// apiKey is an entry of the registry; the key itself is not kept.
type apiKey struct {
	digest  credentialDigest
	sc      *securityContext
	unknown []string // permissions outside the vocabulary
}

// apiKeyRegistry is immutable.
type apiKeyRegistry []apiKey

func newAPIKeyRegistry(entries []apiKeyConfig) apiKeyRegistry {
	registry := make(apiKeyRegistry, len(entries))
	for i, e := range entries {
		list, _ := e.permissionList()
		set, unknown := parsePermissions(list)
		registry[i] = apiKey{
			digest:  sha256.Sum256([]byte(e.Key)),
			sc:      &securityContext{subject: e.Description, method: authByAPIKey, permissions: set},
			unknown: unknown,
		}
	}
	return registry
}

// find is the entry of a key, or nil. It takes the same time whatever the key.
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
