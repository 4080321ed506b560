package main

import (
	"fmt"
	"net/http"
	"regexp"
	"stepwell/e2e/wire"
	"testing"
	"testing/synctest"
)

// TestIfMatchIsAsDeclared checks that every value that the document allows is read, and which others are refused.
func TestIfMatchIsAsDeclared(t *testing.T) {
	doc := must(wire.Decode(openAPIFile))(t)
	schema, _ := wire.LookUp(doc, "components.parameters.IfMatch.schema")
	declared := regexp.MustCompile(schema.(map[string]any)["pattern"].(string))
	a := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
	for value, read := range map[string]bool{
		`*`: true, `"x"`: true, `W/"x"`: true, `"a-1" , W/"b"`: true, `"!#$%&'()*+-./:;<=>?@[]^_{|}~"`: true,
		``: false, `""`: false, `W/""`: false, `"a", ""`: false, `x`: false, `"x`: false, `"a,b"`: false, `"a b"`: false, `*"x"`: false, `w/"x"`: false, `"a""b"`: false,
	} {
		_, err := a.surface.seenVersions(&http.Request{Header: http.Header{"If-Match": {value}}})
		if allowed := declared.MatchString(value); allowed != read || (err == nil) != read {
			t.Errorf("%s: got it allowed by the document: %v, and %v; want both: %v", value, allowed, err, read)
		}
	}
}

// TestTagsDifferByRights checks that nobody is told that they have what they may not see.
func TestTagsDifferByRights(t *testing.T) {
	s := newTestService(t, serviceTest{templates: apiTemplates})
	task := createWith(t, s, `{"a":1}`)
	a := newOrchestrationAPI(s, nil)
	seen := map[string]string{}
	for _, p := range [][]permission{
		{}, {permTasksContextRead}, {permStepsRead}, {permTasksContextRead, permStepsRead},
	} {
		sc := &securityContext{method: authByAPIKey}
		for _, one := range p {
			sc.permissions |= 1 << one
		}
		tag := a.surface.taskTag(task, hiddenFrom(withSecurity(t.Context(), sc)), 0)
		if other, twice := seen[tag]; twice {
			t.Errorf("got the tag %s for %v and for %s", tag, p, other)
		}
		seen[tag] = fmt.Sprint(p)
	}
}

// TestTagsFollowTheClock checks that the tag of a task changes when a retry becomes due, even
// before that is recorded.
func TestTagsFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestService(t, serviceTest{extra: []string{testTemplate("fails", stepSpec{name: "a", callable: "Outside"})}})
		v := mustCreate(t, s, "fails")
		failed, _ := must2(s.operator.act(t.Context(), v.id, v.stepID(0), &stepRequest{
			action: actionFail, by: "x", reason: "y", err: &stepError{message: "no", errorType: "e", retryable: true},
		}))(t)
		a := newOrchestrationAPI(s, nil)
		due := failed.steps[0].retryAt
		if due == 0 {
			t.Fatal("got no retry; want one")
		}
		if before, after := a.surface.taskTag(failed, "", due-1), a.surface.taskTag(failed, "", due); before == after {
			t.Errorf("got %s before and after the retry is due", before)
		}
	})
}
