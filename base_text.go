package main

// Texts for people: lists of words, numbers with their nouns, shortened texts, and the word
// that was probably meant by one with a typo.

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
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

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// misleads reports whether a character can mislead a terminal or its reader: the control
// characters (C0, DEL and C1), the line and paragraph separators, and those that change the
// direction of text (the explicit formatting characters and marks of Unicode UAX #9, section 2).
func misleads(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// nameFault returns why a text must not become the name of a template, namespace, step or event, or a
// tag; "" if it may. Other names, such as those in filters, can be any text.
func nameFault(name string) string {
	at := strings.IndexFunc(name, misleads)
	if at < 0 {
		return ""
	}
	r, _ := utf8.DecodeRuneInString(name[at:])
	return fmt.Sprintf("has the character %U; a name must not have control characters, bidi controls or line separators", r)
}

// isDots reports whether a name means a directory where it is a part of a path: programs remove it there.
func isDots(name string) bool { return name == "." || name == ".." }

// printable returns a text as one line, with an escape for each character that can mislead a terminal or its reader.
// JSON stays the same value, because the escapes are those of its strings (RFC 8259, section 7).
func printable(s string) string { return escape(s, "") }

// escape is printable, except that it leaves the characters in kept as they are. Invalid UTF-8 becomes U+FFFD.
func escape(s, kept string) string {
	hidden := func(r rune) bool { return misleads(r) && !strings.ContainsRune(kept, r) }
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if short := strings.IndexRune("\n\r\t", r); !hidden(r) {
			b.WriteRune(r)
		} else if short >= 0 {
			b.WriteString(`\` + "nrt"[short:short+1])
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// clipText shortens a text to limit bytes and an ellipsis.
func clipText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	// The limit may fall into a character: what is left of it is dropped.
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// cutRune returns how many bytes at the end of a text begin a character that does not end there.
func cutRune[T ~string | ~[]byte](text T) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if begun := []byte(text[len(text)-n:]); utf8.RuneStart(begun[0]) {
			return pick(utf8.FullRune(begun), 0, n)
		}
	}
	return 0
}

// textStart returns at most limit bytes of the start of a text, up to the end of a character.
func textStart[T ~string | ~[]byte](text T, limit int) T {
	if len(text) <= limit {
		return text
	}
	return text[:limit-cutRune(text[:limit])]
}

// textEnd returns at most limit bytes of the end of a text, from the start of a character.
func textEnd[T ~string | ~[]byte](text T, limit int) T {
	if len(text) <= limit {
		return text
	}
	from := len(text) - limit
	for n := 1; n < utf8.UTFMax && n < limit && !utf8.RuneStart(text[from]); n++ {
		from++
	}
	return text[from:]
}

// tracebackHead begins the traceback of a Python program, which ends with the exception.
const tracebackHead = "Traceback (most recent call last):"

// headline returns the line of an error's text that says what happened, without white space around it: the
// first one, or what a traceback ends with: the first line after its frames, which are indented.
func headline(text string) string {
	if begin := strings.LastIndex(text, tracebackHead); begin >= 0 {
		for line := range strings.Lines(text[begin+len(tracebackHead):]) {
			if strings.TrimLeft(line, " \t\r\n") == line {
				return strings.TrimSpace(line)
			}
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

// withoutType returns the headline of an error without its type, with which that of an exception begins, perhaps after
// its package. Whoever shows the type besides would show it twice.
func withoutType(headline, errorType string) string {
	name, rest, found := strings.Cut(headline, ": ")
	if found && errorType != "" && (name == errorType || strings.HasSuffix(name, "."+errorType) && !strings.Contains(name, " ")) {
		return rest
	}
	return headline
}

// typoLimit returns how many letters of a word may differ from the one that was probably meant.
func typoLimit(word string) int { return min(3, (len(word)+1)/3) }

// meant returns what a message says of the word that was probably meant; nothing for "".
func meant(near string) string { return pick(near == "", "", "; did you mean "+near+"?") }

// nearestWord returns the known word with the fewest typos, at most limit, or "".
func nearestWord(word string, known []string, limit int) (best string) {
	for _, k := range known {
		// The first of equally near words wins. Each better one lowers the limit, so that others are given up sooner.
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

// Redaction: what may be secret in a URL is never shown, logged or put into an error. That is the user and password,
// and whatever follows a ? or #, since any parameter may be a token.

const redactedText = "[REDACTED]"

// redactURL redacts a value that is a URL, or begins with one after a name.
func redactURL(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return redactAddress(s)
	}
	return scheme + "://" + redactAddress(rest)
}

// redactName is redactURL for a name, which may contain an @, ? or # unless it is a URL.
func redactName(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return redactURL(s)
}

// urlHost matches what can only be the host and port of a URL, and not a user with the beginning of a password that has
// an unescaped slash.
var urlHost = compiled(`^(\[[^\]]*\](:\d*)?|[^:]*)$`)

// redactAddress redacts a URL without its scheme. The fragment of a reference in a JSON schema is a path.
func redactAddress(s string) string {
	path := untilAny(s, "?#")
	host := untilAny(path, `/\`) // JSON may escape a slash
	// People write passwords with an @, / or ? into URLs without escaping them. So the user ends at the last @ of the
	// path, and if what precedes the first slash cannot be a host, at the last @ of all.
	at := -1
	if strings.Contains(host, "@") {
		at = strings.LastIndexByte(path, '@')
	} else if !urlHost().MatchString(host) {
		at = strings.LastIndexByte(s, '@')
	}
	before := ""
	if at >= 0 {
		before, s = redactedText, s[at:]
	}
	query := len(untilAny(s, "?#")) + 1
	if query >= len(s) || s[query-1] == '#' && strings.ContainsRune(`/\`, rune(s[query])) {
		return before + s
	}
	return before + s[:query] + redactedText
}

// untilAny returns what precedes the first of some characters.
func untilAny(s, chars string) string {
	if at := strings.IndexAny(s, chars); at >= 0 {
		return s[:at]
	}
	return s
}

// redact redacts every URL in a text, which may be JSON and then stays valid. It returns
// the same slice if there is nothing to redact.
func redact(text []byte) []byte { return redactEach(text, redactAddress) }

// redactEach is redact with a function that redacts a URL without its scheme.
func redactEach(text []byte, address func(string) string) []byte {
	var shown []byte
	done := 0
	for begin, end := nextURL(text, 0); begin < len(text); begin, end = nextURL(text, end) {
		if bytes.ContainsAny(text[begin:end], "@?#") {
			shown = append(append(shown, text[done:begin]...), address(string(text[begin:end]))...)
			done = end
		}
	}
	if done == 0 {
		return text
	}
	return append(shown, text[done:]...)
}

// nextURL returns where the next URL from an index on begins, after its scheme, and
// where it ends; both are the end of the text if there is none.
func nextURL(text []byte, from int) (begin, end int) {
	for at := from; ; at++ {
		colon := bytes.IndexByte(text[at:], ':')
		if colon < 0 {
			return len(text), len(text)
		}
		at += colon
		for _, slashes := range []string{"://", `:\/\/`} {
			if begin = at + len(slashes); bytes.HasPrefix(text[at:], []byte(slashes)) {
				return begin, begin + urlLength(text[from:at], text[begin:])
			}
		}
	}
}

// urlLength returns how much of a text after "://" belongs to the URL: up to the quote that closes one before the
// scheme, which is escaped in a text within JSON, or else up to a quote or white space.
func urlLength(before, text []byte) int {
	before = bytes.TrimRight(before, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.")
	nested, quoted := bytes.HasSuffix(before, []byte(`\"`)), bytes.HasSuffix(before, []byte(`"`))
	word := len(text)
	for i := 0; i < len(text); i++ {
		at, escaped := i, text[i] == '\\' && i+1 < len(text)
		if escaped {
			i++
		}
		quote := text[i] == '"'
		if quote && quoted && escaped == nested {
			return at
		}
		if quote || strings.IndexByte(" \t\r\n", text[i]) >= 0 || escaped && strings.IndexByte("trn", text[i]) >= 0 {
			word = min(word, at)
		}
		if word < len(text) && !quoted || quote && !escaped {
			break
		}
	}
	return word
}

// linkToPlace matches the URL, without its scheme, of a place in a document: a heading, say, and nothing that could be
// a token.
var linkToPlace = compiled(`^[^@?#]*#[\w./-]{1,60}[).,;:!]*$`)

// redactDescription returns a redacted copy of a text that people wrote for others. Its links lead to their places.
func redactDescription(text *string) *string {
	if text == nil {
		return nil
	}
	return new(string(redactEach([]byte(*text), func(s string) string {
		if linkToPlace().MatchString(s) {
			return s
		}
		return redactAddress(s)
	})))
}

func redactText(text *string) *string {
	if text == nil {
		return nil
	}
	return new(string(redact([]byte(*text))))
}

// visible reports whether s is not empty and has only visible ASCII characters.
func visible(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '!' || c > '~' })
}
