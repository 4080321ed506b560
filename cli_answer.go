package main

// Answers of a person in a run: on a terminal it asks for the results of the steps that wait for one.

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// answerer answers the steps of a run that wait for outside actors.
type answerer struct {
	*client
	lines chan string // that somebody types, until the end of input; nil before the first question
}

// attended reports whether somebody is at a terminal, to read questions and type answers.
func (p *process) attended() bool {
	in, ok := p.stdin.(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(p.stderr) {
		return false
	}
	info, err := in.Stat()
	null, _ := os.Stat(os.DevNull) // a character device, too
	return err == nil && !os.SameFile(info, null)
}

// look answers the steps that wait now. It returns an error for a step that nobody here can answer.
func (a *answerer) look(ctx context.Context) error {
	waiting, err := a.get(ctx, "/v1/steps", nil)
	for _, step := range waiting.list() {
		name := step.text("name")
		if !a.p.attended() || step.text("for_person") != "true" {
			return nobodyAnswers(fmt.Sprintf("%s (callable %s)", name, step.text("callable")))
		}
		fmt.Fprintf(a.p.stderr, "%s waits for a person; an empty line leaves out a value %s\n", name, strings.TrimSuffix(step.json("about"), "null"))
		result, err := a.ask(ctx, step.at("result_schema"))
		if err != nil {
			io.WriteString(a.p.stderr, "\n")
			return fmt.Errorf("step %s has no answer: %w", name, err)
		}
		body := map[string]any{"action_type": "complete_manually", "completion_data": map[string]json.RawMessage{"result": result},
			"reason": "answered in the terminal", "completed_by": cmp.Or(a.p.getenv("USER"), "stepwell run")}
		path := "/v1/tasks/" + step.text("task_uuid") + "/workflow_steps/" + step.text("step_uuid")
		if _, err := a.do(ctx, call{method: "PATCH", path: path, body: body}); ctx.Err() != nil {
			return err
		} else if err != nil {
			fmt.Fprintln(a.p.stderr, err) // its deadline may have passed: the next look finds out what became of it
		}
	}
	return err
}

func nobodyAnswers(steps string) error {
	return usagef("no handler is configured for %s: %s for each", steps, runAdvice)
}

// ask asks for a result until it fits the schema: for an object member by member, as the form of the console does.
func (a *answerer) ask(ctx context.Context, schema document) (result []byte, err error) {
	members := schema.at("properties").raw
	for {
		if jsonKind(members) != '{' {
			result, err = a.field(ctx, "result", schema)
		} else {
			object := map[string]json.RawMessage{}
			for name, of := range jsonMembers(members) {
				v, err := a.field(ctx, printable(name), document{of})
				if err != nil {
					return nil, err
				}
				if v != nil {
					object[name] = v
				}
			}
			result, err = json.Marshal(object)
		}
		if result == nil {
			result = []byte("null")
		}
		wrong := misfitsOf(schema, result)
		if err != nil || len(wrong) == 0 {
			return result, err
		}
		fmt.Fprintf(a.p.stderr, "that does not fit: %s\n", wrong)
	}
}

// field asks for a value, JSON or a text, until it fits the schema. It returns nil for an empty line.
func (a *answerer) field(ctx context.Context, label string, schema document) ([]byte, error) {
	for {
		fmt.Fprintf(a.p.stderr, "  %s (%s): ", label, cmp.Or(schema.json("enum"), strings.Trim(schema.json("type"), `"`), "JSON"))
		text, err := a.line(ctx)
		if err != nil || text == "" {
			return nil, err
		}
		var wrong misfits
		for _, v := range [][]byte{[]byte(text), appendJSONString(nil, text)} {
			if checkJSON(v) != nil {
				continue
			}
			found := misfitsOf(schema, v)
			if len(found) == 0 {
				return compactJSON(nil, v), nil
			}
			wrong = append(wrong, found...)
		}
		fmt.Fprintf(a.p.stderr, "that does not fit: %s\n", wrong[:1])
	}
}

// misfitsOf returns what is wrong with a value, as far as the schema can be used alone.
func misfitsOf(schema document, value []byte) misfits {
	s := newSchemaSource("result_schema", schema.raw)
	if s == nil || len(s.schema().problems) > 0 {
		return nil
	}
	b := newLocalBudget()
	defer b.end()
	return s.schema().check(b, value)
}

// line returns the next line that somebody types.
func (a *answerer) line(ctx context.Context) (string, error) {
	if a.lines == nil {
		a.lines = make(chan string)
		go func() {
			defer close(a.lines)
			for s := bufio.NewScanner(a.p.stdin); s.Scan(); {
				a.lines <- s.Text()
			}
		}()
	}
	select {
	case text, ok := <-a.lines:
		if !ok {
			return "", usagef("the input has ended; %s", runAdvice)
		}
		return strings.TrimSpace(text), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
