package main

import (
	"encoding/binary"
	"testing"
)

func digestNo(n int) (d credentialDigest) {
	binary.BigEndian.PutUint64(d[:], uint64(n))
	return d
}

func TestAuthCacheHoldsForItsTime(t *testing.T) {
	c := newAuthCache(10)
	sc := &securityContext{subject: "a"}
	c.put(digestNo(1), &cachedIdentity{sc, 100, 200}, 0)
	for _, tt := range []struct {
		now  instant
		want *securityContext
	}{{150, sc}, {100, sc}, {199, sc}, {200, nil}, {150, nil}} { // once out of its time it is gone
		if got, _ := c.get(digestNo(1), tt.now); got != tt.want {
			t.Errorf("at %d: got %v; want %v", tt.now, got, tt.want)
		}
	}
	c.put(digestNo(1), &cachedIdentity{sc, 100, 200}, 0)
	if got, _ := c.get(digestNo(1), 99); got != nil {
		t.Errorf("before its time: got %v; want nil", got)
	}
}

func TestAuthCacheIsBounded(t *testing.T) {
	c := newAuthCache(100)
	for i := range 10_000 {
		c.put(digestNo(i), &cachedIdentity{&securityContext{}, 0, 10}, 0)
		if i%10 == 0 {
			c.get(digestNo(0), 5) // asked for all the time, so it stays
		}
		if n := len(c.recent) + len(c.older); n > 100 {
			t.Fatalf("after %d entries: got %d; want at most 100", i, n)
		}
	}
	if got, _ := c.get(digestNo(0), 5); got == nil {
		t.Error("the entry in use: got nil; want it kept")
	}
	if got, _ := c.get(digestNo(9_999), 5); got == nil {
		t.Error("the newest entry: got nil; want it kept")
	}
	if got, _ := c.get(digestNo(1), 5); got != nil {
		t.Error("the oldest unused entry: got it; want nil")
	}
}

func TestAuthCacheClear(t *testing.T) {
	c := newAuthCache(10)
	_, epoch := c.get(digestNo(1), 0)
	c.put(digestNo(2), &cachedIdentity{&securityContext{}, 0, 10}, epoch)
	c.clear()
	if got, _ := c.get(digestNo(2), 5); got != nil {
		t.Error("an entry of before the clearing: got it; want nil")
	}
	// Verified with the keys of before, so it must not come in afterwards.
	c.put(digestNo(1), &cachedIdentity{&securityContext{}, 0, 10}, epoch)
	if got, _ := c.get(digestNo(1), 5); got != nil {
		t.Error("a late entry of before the clearing: got it; want nil")
	}
}
