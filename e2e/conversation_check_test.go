package e2e

// Checks of a conversation: finding the value that a check is about, and comparing it.

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"stepwell/e2e/wire"
)

// hold sets the variable of k, or returns why k does not hold for a.
func (p *convPlayer) hold(k convCheck, a *wire.Answer) error {
	value, ok, err := p.look(k, a)
	if err != nil {
		return err
	}
	if k.set == "" {
		return p.compare(k, value, ok)
	}
	if !ok {
		return fmt.Errorf("got nothing to set %s to: %w", k.set, errConversationEnds)
	}
	p.vars[k.set] = conversationText(value)
	return nil
}

// look finds the value that k is about; ok is false if the answer does not have it.
func (p *convPlayer) look(k convCheck, a *wire.Answer) (value any, ok bool, err error) {
	arg := k.arg
	if k.what != "repeat" {
		if arg, err = p.replace(arg); err != nil {
			return nil, false, err
		}
	}
	switch k.what {
	case "code":
		return json.Number(strconv.Itoa(a.Code)), true, nil
	case "header":
		values := a.Header.Values(arg)
		return strings.Join(values, ", "), len(values) > 0, nil
	case "body":
		return string(a.Body), len(a.Body) > 0, nil
	case "repeat":
		return arg, true, nil
	}
	v, err := wire.Decode(a.Body)
	if err != nil {
		return nil, false, err
	}
	value, ok = wire.LookUp(v, arg)
	return value, ok, nil
}

// compare returns why a value does not satisfy k.
func (p *convPlayer) compare(k convCheck, value any, ok bool) error {
	want, err := expandVariables(k.want, p.varsFor(k.op))
	if err != nil {
		return err
	}
	holds := ok
	switch k.op {
	case "exists":
	case "absent":
		holds = !ok
	case "null":
		holds = ok && value == nil
	case "is":
		return conversationKindProblem(k.arg, want, value, ok)
	case "~", "!~":
		holds = ok && regexp.MustCompile(want).MatchString(conversationText(value)) == (k.op == "~")
	case "has":
		holds = ok && conversationHas(value, want)
	default:
		holds = ok && conversationEqual(k, value, want) == (k.op == "==")
	}
	if holds {
		return nil
	}
	got := "nothing"
	if ok {
		got = wire.Cut(wire.Text(value))
	}
	return fmt.Errorf("got %s; want %s", got, strings.TrimSpace(k.op+" "+want))
}

// varsFor returns the variables' values as an operator needs them: quoted for a regular
// expression.
func (p *convPlayer) varsFor(op string) map[string]string {
	if !strings.HasSuffix(op, "~") {
		return p.vars
	}
	quoted := map[string]string{}
	for name, value := range p.vars {
		quoted[name] = regexp.QuoteMeta(value)
	}
	return quoted
}

func conversationKindProblem(path, kind string, value any, ok bool) error {
	if !ok {
		return fmt.Errorf("got nothing; want %s", kind)
	}
	if path == "." {
		path = "body"
	}
	if problems := wire.Problems(path, kind, value); problems != nil {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// conversationText returns a string as it is, and any other value as JSON.
func conversationText(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	return wire.Text(value)
}

func conversationHas(value any, want string) bool {
	v, err := wire.Decode([]byte(want))
	members, isObject := v.(map[string]any)
	object, _ := value.(map[string]any)
	for name, member := range members {
		got, ok := object[name]
		isObject = isObject && ok && wire.Equal(got, member)
	}
	return err == nil && isObject && object != nil
}

func conversationEqual(k convCheck, value any, want string) bool {
	if k.what == "header" || k.what == "body" {
		return value == want
	}
	v, err := wire.Decode([]byte(want))
	return err == nil && wire.Equal(value, v)
}
