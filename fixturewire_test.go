package main

// The shapes of the control API's answers.

import "maps"

func init() {
	maps.Copy(wireShapes, fixtureShapes)
	wireWords["StubThen"] = []string{"last", "handler", "fail"}
	openAPIRequestSchemas = append(openAPIRequestSchemas,
		"StubDefinition", "StubMatch", "StubOutcome", "StubError", "StubReplacement")
}

var fixtureShapes = map[string]map[string]string{
	"StubList": {"stubs": "[Stub]"},
	"Stub":     {"id": "string", "match": "object", "outcomes": "[object]", "then": "StubThen", "uses": "int"},
}
