package main

// Texts for people: lists of words, numbers with their nouns, shortened texts, and the word
// that was probably meant by one with a typo.

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// splitList splits a list at commas and drops blanks and empty items.
func splitList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// anyOf lists words as in "a, b or c".
func anyOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// pick returns a if first, else b.
func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// clipText shortens a text to limit bytes and an ellipsis.
func clipText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// typoLimit returns how many letters of a word may differ from the one that was
// probably meant.
func typoLimit(word string) int { return min(3, (len(word)+1)/3) }

// nearestWord returns the known word with the fewest typos, at most limit, or "".
func nearestWord(word string, known []string, limit int) (best string) {
	for _, k := range known {
		if d := typoDistance(word, k, limit); d < limit || d == limit && best == "" {
			best, limit = k, d
		}
	}
	return best
}

// typoDistance returns how many bytes must be inserted, deleted, replaced or swapped
// with the next to turn a into b, or limit + 1 when that is more than limit.
func typoDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var rows [3][]int // the distances of a[:i] to each b[:j], for i and the two before
	for k := range rows {
		rows[k] = make([]int, len(b)+1)
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(a) {
		row, above, higher := rows[(i+1)%3], rows[i%3], rows[(i+2)%3]
		row[0] = i + 1
		for j := range len(b) {
			replaced := above[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, row[j]+1, above[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], higher[j-1]+1)
			}
		}
		if slices.Min(row) > limit {
			return limit + 1
		}
	}
	return min(rows[len(a)%3][len(b)], limit+1)
}

// compiled returns a function that compiles a regular expression at its first call, for commands that need few of them.
func compiled(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// counted returns a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
