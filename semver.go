package main

// Semantic versions (2.0.0): reading them strictly, and their precedence.

import (
	"cmp"
	"strings"
)

// semver is a version that was read. Numbers stay text: they have no upper bound.
type semver struct {
	core [3]string // major, minor, patch
	pre  []string  // the pre-release identifiers; empty for a release
}

// parseSemver reads a version such as 1.2.3, 1.2.3-rc.1 or 1.2.3+build.5.
// Nothing else is accepted: no leading v or zero, no missing part.
func parseSemver(s string) (v semver, ok bool) {
	s, build, hasBuild := strings.Cut(s, "+")
	if hasBuild && !semverIdentifiers(build, false) {
		return semver{}, false
	}
	s, pre, hasPre := strings.Cut(s, "-")
	if hasPre {
		if !semverIdentifiers(pre, true) {
			return semver{}, false
		}
		v.pre = strings.Split(pre, ".")
	}
	parts := strings.Split(s, ".")
	if len(parts) != len(v.core) {
		return semver{}, false
	}
	for i, p := range parts {
		if !semverDigits(p) || semverLeadingZero(p) {
			return semver{}, false
		}
		v.core[i] = p
	}
	return v, true
}

// semverIdentifiers checks a dotted list; strict forbids numbers with a leading zero.
func semverIdentifiers(list string, strict bool) bool {
	for id := range strings.SplitSeq(list, ".") {
		if id == "" || strings.ContainsFunc(id, notSemverRune) {
			return false
		}
		if strict && semverDigits(id) && semverLeadingZero(id) {
			return false
		}
	}
	return true
}

func notSemverRune(c rune) bool {
	return !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-')
}

func semverDigits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

func semverLeadingZero(digits string) bool { return len(digits) > 1 && digits[0] == '0' }

// isRelease reports whether v has no pre-release part.
func (v semver) isRelease() bool { return len(v.pre) == 0 }

// compare is the precedence of v and w: negative when v is the older one.
func (v semver) compare(w semver) int {
	for i := range v.core {
		if c := compareSemverNumbers(v.core[i], w.core[i]); c != 0 {
			return c
		}
	}
	if v.isRelease() || w.isRelease() {
		return cmp.Compare(len(w.pre), len(v.pre)) // a release is above its pre-releases
	}
	for i := range min(len(v.pre), len(w.pre)) {
		if c := comparePreReleases(v.pre[i], w.pre[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(v.pre), len(w.pre))
}

// comparePreReleases orders two identifiers: numbers by value, below words.
func comparePreReleases(a, b string) int {
	switch numA, numB := semverDigits(a), semverDigits(b); {
	case numA && numB:
		return compareSemverNumbers(a, b)
	case numA:
		return -1
	case numB:
		return 1
	}
	return strings.Compare(a, b)
}

// compareSemverNumbers compares numbers without leading zeros by value.
func compareSemverNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
