package main

// Hiding secrets: the values of configured headers never appear in what a handler's reply
// makes visible.

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// minSecret is the length of the shortest text that is hidden. Shorter ones, such as
// "on" and "1", would be found in innocent results.
const minSecret = 6

// secretTexts are texts to hide, longer ones first.
type secretTexts [][]byte

// secretsOf returns the values of headers, and those parts of them that are secrets by themselves: what follows the
// scheme of credentials, the password in Basic credentials, and the values of cookies. The Accept headers have no
// secrets.
func secretsOf(h map[string][]string) secretTexts {
	var s secretTexts
	for name, values := range h {
		if strings.HasPrefix(name, "Accept") {
			continue
		}
		for _, text := range append(secretParts(name, values[0]), values[0]) {
			if len(text) >= minSecret {
				s = append(s, []byte(text))
			}
		}
	}
	// The longer ones first: a secret that contains another one must be hidden as a whole.
	slices.SortFunc(s, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) })
	return s
}

func secretParts(name, value string) (parts []string) {
	if name == "Cookie" {
		for pair := range strings.SplitSeq(value, ";") {
			_, value, _ := strings.Cut(pair, "=")
			parts = append(parts, value)
		}
		return parts
	}
	scheme, credentials, _ := strings.Cut(value, " ")
	if strings.EqualFold(scheme, "Basic") {
		decoded, _ := base64.StdEncoding.DecodeString(credentials)
		_, password, _ := strings.Cut(string(decoded), ":")
		parts = append(parts, password, string(decoded))
	}
	return append(parts, credentials)
}

// hide returns a text with "[REDACTED]" for every secret; the same slice if it has none.
func (s secretTexts) hide(text []byte) []byte {
	for _, secret := range s {
		if bytes.Contains(text, secret) {
			text = bytes.ReplaceAll(text, secret, []byte(redactedText))
		}
	}
	return text
}

// hideInStart returns at most limit bytes of the start of a text, up to the end of a character, without secrets. It
// reads more, and drops as much of the end, where a secret may be cut in two.
func (s secretTexts) hideInStart(r io.Reader, limit int) []byte {
	longest := 0
	if len(s) > 0 {
		longest = 6 * len(s[0]) // with every character as \u0000
	}
	text, _ := io.ReadAll(io.LimitReader(r, int64(limit+longest)))
	goesOn := len(text) == limit+longest
	if text = s.hideEscaped(text); goesOn {
		text = text[:max(len(text)-longest, 0)]
	}
	text = text[:min(len(text), limit)]
	return text[:len(text)-pick(goesOn, cutRune(text), 0)]
}

// jsonEscape matches what a JSON string may have in the place of a visible character.
var jsonEscape = compiled(`\\(u[0-9a-fA-F]{4}|["\\/])`)

// hideEscaped is hide for a text that may contain JSON, also invalid or incomplete JSON.
// A text in which escapes conceal a secret loses all of its escapes.
func (s secretTexts) hideEscaped(text []byte) []byte {
	text = s.hide(text)
	plain := jsonEscape().ReplaceAllFunc(text, func(escape []byte) []byte {
		code, err := strconv.ParseUint(string(escape[2:]), 16, 16)
		if err != nil {
			return escape[1:]
		}
		return utf8.AppendRune(nil, rune(code))
	})
	if shown := s.hide(plain); !bytes.Equal(shown, plain) {
		return shown
	}
	return text
}

// hideInJSON is hide for the strings of a JSON text, however they are escaped. A text
// that is not valid is not a result, and stays as it is.
func (s secretTexts) hideInJSON(data []byte) []byte {
	mayOccur := func(secret []byte) bool {
		return bytes.Contains(data, secret) || bytes.IndexByte(data, '\\') >= 0
	}
	if !slices.ContainsFunc(s, mayOccur) || checkJSON(data) != nil {
		return data
	}
	var hidden []byte
	kept := 0 // up to here, data is in hidden
	for i := 0; i < len(data); i++ {
		if data[i] != '"' {
			continue
		}
		start := i
		i = skipJSONString(data, start) - 1
		text := unescapeJSON(data[start : i+1])
		if shown := s.hide(text); !bytes.Equal(shown, text) {
			hidden = appendJSONString(append(hidden, data[kept:start]...), string(shown))
			kept = i + 1
		}
	}
	return append(hidden, data[kept:]...)
}
