package main

// Writing JSON: strings with minimal escaping, and answers in pieces, so that a long list is
// never in memory as a whole.

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// appendJSONString appends s as a JSON string and escapes only what it must: quote,
// backslash and control characters. Invalid UTF-8 becomes U+FFFD.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	done := 0 // s[:done] is in dst
	for i := 0; i < len(s); {
		if jsonPlain[s[i]] {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if n == 1 {
			// Either ASCII that needs an escape, or a byte that is not UTF-8 and was decoded as U+FFFD.
			dst = appendJSONRune(append(dst, s[done:i]...), r)
			done = i + 1
		}
		i += n
	}
	return append(append(dst, s[done:]...), '"')
}

// appendJSONRune appends r, escaped if necessary.
func appendJSONRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if r < ' ' {
		const digits = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// jsonPlain marks the bytes that need no escape in a string: ASCII except control characters, quote and backslash.
var jsonPlain = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// Writing JSON: member by member for frequent answers, others by reflection. A long
// text is passed on in pieces, so that no more than one is in memory.

// jsonPiece is about how long a piece is.
const jsonPiece = 64 << 10

// jsonStream is a value that writes itself.
type jsonStream interface{ writeJSON(o *jsonWriter) }

// jsonSink takes a text in pieces.
type jsonSink interface {
	pass(piece []byte) error // must not keep the piece
	hold(n int) error        // called before the next part takes about n bytes
}

// jsonWriter writes a JSON text.
type jsonWriter struct {
	b   []byte        // text that was not passed on yet; the caller may append to it
	to  jsonSink      // nil: all of the text stays in b
	err error         // the first; from then on the text is incomplete
	enc *json.Encoder // appends to b; nil until it is needed
}

// flush passes on what was written.
func (o *jsonWriter) flush() {
	o.fail(o.to.pass(o.b))
	o.b = o.b[:0]
}

// fail ends the text, unless err is nil.
func (o *jsonWriter) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// hold asks the sink for the n bytes that the next part takes. If it refuses, the text ends.
func (o *jsonWriter) hold(n int) error {
	if o.to != nil && o.err == nil {
		o.fail(o.to.hold(n))
	}
	return o.err
}

// holdElement is hold for an element of n bytes that is written as a whole.
func (o *jsonWriter) holdElement(n int) error {
	if n < jsonPiece {
		return o.err
	}
	return o.hold(2 * n)
}

// long ends a part of the text after which a piece may end.
func (o *jsonWriter) long() {
	if o.to != nil && len(o.b) >= jsonPiece {
		o.flush()
	}
}

// whole writes a JSON text as it is, and a long one without copying it.
func (o *jsonWriter) whole(text []byte) {
	if o.to == nil || len(o.b)+len(text) < jsonPiece {
		o.b = append(o.b, text...)
		return
	}
	// What was written before must come first, even if it is short.
	o.flush()
	if o.err == nil {
		o.fail(o.to.pass(text))
	}
}

// list writes an array of n elements.
func (o *jsonWriter) list(n int, element func(i int)) {
	o.b = append(o.b, '[')
	for i := 0; i < n && o.err == nil; i++ {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		element(i)
		o.long()
	}
	o.b = append(o.b, ']')
}

// jsonList is an array whose elements are made when they are written.
type jsonList struct {
	n       int
	element func(o *jsonWriter, i int)
}

func (l jsonList) writeJSON(o *jsonWriter) { o.list(l.n, func(i int) { l.element(o, i) }) }

// jsonListOf returns an array of what view returns for 0 to n-1.
func jsonListOf[V any](n int, view func(i int) V) jsonList {
	return jsonList{n, func(o *jsonWriter, i int) { o.value(view(i)) }}
}

// value writes a value as encoding/json does, without escaping <, > and &.
func (o *jsonWriter) value(v any) {
	if s, ok := v.(jsonStream); ok {
		s.writeJSON(o)
		return
	}
	o.reflected(reflect.ValueOf(v))
}

// reflected writes structs and lists part by part, and other values at once.
func (o *jsonWriter) reflected(v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid:
		o.b = append(o.b, "null"...)
		return
	case reflect.Pointer, reflect.Interface, reflect.Slice:
		if v.IsNil() {
			o.b = append(o.b, "null"...)
			return
		}
	}
	switch x := v.Interface().(type) {
	case jsonStream:
		x.writeJSON(o)
		return
	case json.RawMessage:
		o.whole(x)
		return
	case json.Marshaler, encoding.TextMarshaler:
		o.plain(x)
		return
	}
	switch kind := v.Kind(); {
	case kind == reflect.Struct:
		o.b = append(o.b, '{')
		o.members(v)
		o.b = append(o.b, '}')
	case kind == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		o.list(v.Len(), func(i int) { o.reflected(v.Index(i)) })
	case kind == reflect.Pointer || kind == reflect.Interface:
		o.reflected(v.Elem())
	default:
		o.plain(v.Interface())
	}
}

// members writes the members of a struct into an opened object.
func (o *jsonWriter) members(v reflect.Value) {
	for f, member := range v.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			if member = reflect.Indirect(member); member.IsValid() { // of a pointer that is nil, no member is written
				o.members(member)
			}
		case !f.IsExported() || name == "-" || option == "omitempty" && emptyJSON(member) || option == "omitzero" && member.IsZero():
		default:
			o.name(cmp.Or(name, f.Name))
			o.reflected(member)
		}
	}
}

// emptyJSON reports whether omitempty leaves a value out.
func emptyJSON(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	case reflect.Struct, reflect.Array:
		return false
	}
	return v.IsZero()
}

// plain writes a value as a whole.
func (o *jsonWriter) plain(v any) {
	// Strings are frequent enough to spare them the encoder.
	if text, ok := v.(string); ok {
		o.b = appendJSONString(o.b, text)
		return
	}
	if o.enc == nil {
		o.enc = json.NewEncoder(o)
		o.enc.SetEscapeHTML(false)
	}
	o.fail(o.enc.Encode(v))
	// The encoder ends each value with a newline.
	o.b = bytes.TrimSuffix(o.b, []byte{'\n'})
}

// Write implements io.Writer, for the encoder.
func (o *jsonWriter) Write(p []byte) (int, error) {
	o.b = append(o.b, p...)
	return len(p), nil
}

// name writes a member's name, which needs no escaping; its value comes next.
func (o *jsonWriter) name(name string) {
	if n := len(o.b); n == 0 || o.b[n-1] != '{' { // no piece ends after a brace
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

// key is name for any text.
func (o *jsonWriter) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(appendJSONString(o.b, name), ':')
}

func (o *jsonWriter) text(name, value string) {
	o.name(name)
	o.b = appendJSONString(o.b, value)
}

// textOrNull adds a string, or null for an empty one.
func (o *jsonWriter) textOrNull(name, value string) {
	if value == "" {
		o.raw(name, nil)
		return
	}
	o.text(name, value)
}

func (o *jsonWriter) texts(name string, values []string) {
	o.name(name)
	o.list(len(values), func(i int) { o.b = appendJSONString(o.b, values[i]) })
}

func (o *jsonWriter) number(name string, n int) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, int64(n), 10)
}

func (o *jsonWriter) fraction(name string, f float64) {
	o.name(name)
	o.b = strconv.AppendFloat(o.b, f, 'f', -1, 64)
}

func (o *jsonWriter) flag(name string, v bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, v)
}

// id appends an identifier, null for none.
func (o *jsonWriter) id(name string, id uuid) {
	o.name(name)
	if id.isZero() {
		o.b = append(o.b, "null"...)
		return
	}
	o.b = append(id.appendText(append(o.b, '"')), '"')
}

// raw writes a JSON text as it is, null for none.
func (o *jsonWriter) raw(name string, text []byte) {
	o.name(name)
	if text == nil {
		text = []byte("null")
	}
	o.whole(text)
}

// zoned appends a time with its zone, null for none.
func (o *jsonWriter) zoned(name string, at instant) {
	o.name(name)
	o.b = appendTime(o.b, at, instant.appendZoned)
}

// naive appends a time without a zone, null for none.
func (o *jsonWriter) naive(name string, at instant) {
	o.name(name)
	o.b = appendTime(o.b, at, instant.appendNaive)
}

// Reading in chunks what comes from outside: bodies of requests, and replies.

// The first bytes that are read have memory of their own. The rest comes in chunks, which are used
// again, so that what never ends leaves no garbage.
const (
	firstChunk = 1 << 10
	chunkSize  = 16 << 10
)

var chunkPool = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// readChunks reads to the end of r. It allocates memory as data arrives, not by the announced length, which is -1 if
// there is none. Before each allocation it calls grow, unless that is nil, with the size that will fit afterwards; an error
// ends the reading.
func readChunks(r io.Reader, announced int64, grow func(size int) error) (data []byte, err error) {
	var chunks []*[chunkSize]byte
	defer func() {
		for _, c := range chunks {
			chunkPool.Put(c)
		}
	}()
	// The announced length is a claim of the sender: it may make the first memory smaller, never larger than
	// firstChunk.
	room := make([]byte, min(max(announced, bytes.MinRead), firstChunk))
	first, size := room, 0
	for {
		n, err := r.Read(room)
		size, room = size+n, room[n:]
		if err == io.EOF {
			return joinChunks(first, chunks, size), nil
		}
		if err == nil && len(room) == 0 && grow != nil {
			err = grow(size + chunkSize)
		}
		if err != nil {
			return nil, err
		}
		if len(room) == 0 {
			chunks = append(chunks, chunkPool.Get().(*[chunkSize]byte))
			room = chunks[len(chunks)-1][:]
		}
	}
}

// joinChunks returns the data of some size that was read into its first bytes and chunks.
func joinChunks(first []byte, chunks []*[chunkSize]byte, size int) []byte {
	if size <= len(first) {
		return first[:size]
	}
	data := append(make([]byte, 0, size), first...)
	for _, c := range chunks {
		data = append(data, c[:min(chunkSize, size-len(data))]...)
	}
	return data
}
