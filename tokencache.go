package main

// A bounded cache of credentials that were found good. It holds no credential,
// only SHA-256 digests.

import (
	"crypto/sha256"
	"sync"
)

// credentialDigest stands for a credential.
type credentialDigest [sha256.Size]byte

// authCache remembers who presented a credential. It has two generations: what
// was asked for since the last turn and what was not, which goes at the next.
type authCache struct {
	limit int // entries

	mu     sync.Mutex
	recent map[credentialDigest]*cachedIdentity // at most limit/2; guarded by mu
	older  map[credentialDigest]*cachedIdentity // at most limit/2; guarded by mu
	epoch  uint64                               // how often it was cleared; guarded by mu
}

// cachedIdentity is an entry: good from its first to before its last instant.
type cachedIdentity struct {
	sc          *securityContext
	from, until instant
}

func newAuthCache(limit int) *authCache {
	return &authCache{limit: limit, recent: make(map[credentialDigest]*cachedIdentity)}
}

// get is who presented the credential, if that still holds at now; an entry
// that does not hold is dropped. The epoch is for put.
func (c *authCache) get(d credentialDigest, now instant) (sc *securityContext, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.recent[d]
	if !ok {
		if e, ok = c.older[d]; !ok {
			return nil, c.epoch
		}
		delete(c.older, d)
		c.putLocked(d, e)
	}
	if now < e.from || now >= e.until {
		delete(c.recent, d)
		return nil, c.epoch
	}
	return e.sc, c.epoch
}

// put enters an identity that was established after a get, unless the cache was
// cleared in between.
func (c *authCache) put(d credentialDigest, e *cachedIdentity, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch {
		c.putLocked(d, e)
	}
}

func (c *authCache) putLocked(d credentialDigest, e *cachedIdentity) {
	if len(c.recent) >= c.limit/2 {
		c.older = c.recent
		c.recent = make(map[credentialDigest]*cachedIdentity)
	}
	c.recent[d] = e
}

// clear drops everything, and what is being established just now.
func (c *authCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.recent = make(map[credentialDigest]*cachedIdentity)
	c.older = nil
}
