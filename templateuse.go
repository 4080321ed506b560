package main

// How often the templates of a service are looked up, and since when it has
// them. All of them are held in memory: the registry is the cache that existing
// clients ask about, and a miss is a look-up of what is not registered.

import (
	"sync"
	"sync/atomic"
)

// templateUse counts look-ups, for one service.
type templateUse struct {
	hits, misses atomic.Uint64
	entries      sync.Map // *template to *templateEntry
}

// templateEntry is the use of one template.
type templateEntry struct {
	since instant // when the service got the template
	count atomic.Uint64
}

// newTemplateUse begins to count for the templates of a registry.
func newTemplateUse(r *registry, now instant) *templateUse {
	u := new(templateUse)
	for _, t := range r.all() {
		u.entries.Store(t, &templateEntry{since: now})
	}
	return u
}

// entry is the use of a template; one that joined the registry later counts
// from its first look-up.
func (u *templateUse) entry(t *template, now func() instant) *templateEntry {
	e, ok := u.entries.Load(t)
	if !ok {
		e, _ = u.entries.LoadOrStore(t, &templateEntry{since: now()})
	}
	return e.(*templateEntry)
}

// template looks up a registered template; version "" and latest mean the
// latest one.
func (s *service) template(namespace, name, version string) (*template, error) {
	t, ok := s.registry().get(namespace, name, version)
	if !ok {
		s.uses.misses.Add(1)
		return nil, s.unknownTemplate(namespace, name, version)
	}
	s.uses.hits.Add(1)
	s.uses.entry(t, s.clock.now).count.Add(1)
	return t, nil
}

// templateCacheView is the figures of templateUse on the wire.
type templateCacheView struct {
	TotalCached           int      `json:"total_cached"`
	CacheHits             uint64   `json:"cache_hits"`
	CacheMisses           uint64   `json:"cache_misses"`
	CacheEvictions        uint64   `json:"cache_evictions"` // always 0: nothing is evicted
	OldestEntryAgeSeconds int64    `json:"oldest_entry_age_seconds"`
	AverageAccessCount    float64  `json:"average_access_count"`
	SupportedNamespaces   []string `json:"supported_namespaces"`
}

// templateCache is the figures over the templates that are registered now.
func (s *service) templateCache() templateCacheView {
	all, now := s.registry().all(), s.clock.now()
	v := templateCacheView{
		TotalCached: len(all), CacheHits: s.uses.hits.Load(), CacheMisses: s.uses.misses.Load(),
		SupportedNamespaces: s.supportedNamespaces(),
	}
	var accesses uint64
	for _, t := range all {
		e := s.uses.entry(t, s.clock.now)
		accesses += e.count.Load()
		v.OldestEntryAgeSeconds = max(v.OldestEntryAgeSeconds, e.ageSeconds(now))
	}
	if len(all) > 0 {
		v.AverageAccessCount = float64(accesses) / float64(len(all))
	}
	return v
}

func (e *templateEntry) ageSeconds(now instant) int64 {
	return max(int64(now.sub(e.since).Seconds()), 0)
}
