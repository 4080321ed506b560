package main

// Answers written by hand: objects whose members are appended one by one. Only
// what is sent often is written so; the rest goes through encoding/json.

import "strconv"

// jsonObject appends members to an object that was opened already.
type jsonObject struct {
	b []byte // ends with the opening brace, or with a member
}

// name appends a member's name, which needs no escaping; its value comes next.
func (o *jsonObject) name(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *jsonObject) text(name, value string) {
	o.name(name)
	o.b = appendJSONString(o.b, value)
}

func (o *jsonObject) texts(name string, values []string) {
	o.name(name)
	o.b = append(o.b, '[')
	for i, v := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendJSONString(o.b, v)
	}
	o.b = append(o.b, ']')
}

func (o *jsonObject) number(name string, n int) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, int64(n), 10)
}

func (o *jsonObject) fraction(name string, f float64) {
	o.name(name)
	o.b = strconv.AppendFloat(o.b, f, 'f', -1, 64)
}

func (o *jsonObject) flag(name string, v bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, v)
}

// id appends an identifier, null when there is none.
func (o *jsonObject) id(name string, id uuid) {
	o.name(name)
	if id.isZero() {
		o.b = append(o.b, "null"...)
		return
	}
	o.b = append(id.appendText(append(o.b, '"')), '"')
}

// raw appends a JSON text as it is.
func (o *jsonObject) raw(name string, text []byte) {
	o.name(name)
	o.b = append(o.b, text...)
}

// zoned appends a time with its zone, null when there is none.
func (o *jsonObject) zoned(name string, at instant) { o.time(name, at, instant.appendZoned) }

// naive appends a time without a zone, null when there is none.
func (o *jsonObject) naive(name string, at instant) { o.time(name, at, instant.appendNaive) }

func (o *jsonObject) time(name string, at instant, form func(instant, []byte) []byte) {
	o.name(name)
	if at == 0 {
		o.b = append(o.b, "null"...)
		return
	}
	o.b = append(form(at, append(o.b, '"')), '"')
}
