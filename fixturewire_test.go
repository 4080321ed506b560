package main

// The shapes of the control API's answers.

import "maps"

func init() {
	maps.Copy(wireShapes, fixtureShapes)
	wireWords["JournalKind"] = []string{"request", "handler"}
	wireWords["StubThen"] = []string{"last", "handler", "fail"}
	openAPIRequestSchemas = append(openAPIRequestSchemas,
		"StubDefinition", "StubMatch", "StubOutcome", "StubError", "StubReplacement",
		"Verification", "VerificationMatch")
}

var fixtureShapes = map[string]map[string]string{
	"StubList":       {"stubs": "[Stub]"},
	"Stub":           {"id": "string", "match": "object", "outcomes": "[object]", "then": "StubThen", "uses": "int"},
	"Verified":       {"count": "int"},
	"RequestJournal": {"entries": "[JournalEntry]", "total": "int", "dropped": "DroppedEntries"},
	"DroppedEntries": {"requests": "int", "handler_calls": "int"},
	"JournalEntry": {
		"id": "int", "kind": "JournalKind", "at": "zoned",
		"surface": "string?", "method": "string?", "path": "string?", "query": "string?", "status": "int?",
		"duration_ms": "number?", "subject": "string?", "body": "any?", "body_truncated": "bool?",
		"task_uuid": "uuid?", "step_uuid": "uuid?", "namespace": "string?", "name": "string?", "version": "string?",
		"step": "string?", "callable": "string?", "attempt": "int?", "stubbed": "bool?", "stub": "string|null?",
		"fault": "string|null?", "envelope": "object?", "outcome": "object|null?",
	},
	"SeenCalls": {"count": "int", "matched": "[JournalEntry]", "nearest": "[NearMiss]"},
	"NearMiss":  {"entry": "JournalEntry", "differs": "[string]"},
}
