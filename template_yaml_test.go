package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// yamlAsJSON returns what readYAML makes of a text, or an error with line and column.
func yamlAsJSON(text string) (string, error) {
	root, _, err := readYAML([]byte(text))
	if err != nil {
		return "", err
	}
	return string(root.appendJSON(nil)), nil
}

// sharedData returns a file of the data folder beside the checkout, or skips the test.
func sharedData(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../shared/data/" + name)
	if err != nil {
		t.Skipf("needs the data folder beside the checkout: %v", err)
	}
	return data
}

// yamlSuiteAdded has the values of the cases for which the suite has no JSON although JSON can express them.
var yamlSuiteAdded = map[string]string{
	"2G84-03": `""`,
	"4ABK":    `{"unquoted":"separate","http://foo.com":null,"omitted value":null}`,
	"4MUZ-01": `{"foo":"bar"}`,
	"96NN-01": `{"foo":"\tbar"}`,
	"JEF9-02": `["\n"]`,
	"MUS6-05": `null`,
	"MUS6-06": `null`,
}

// TestYAMLSuite checks the cases of the public yaml-test-suite: a case that is one document of YAML 1.2 with tags of the
// core schema reads as its JSON, and each other case is refused.
func TestYAMLSuite(t *testing.T) {
	var cases []struct {
		ID   string
		Name string
		Tags []string
		YAML string
		JSON []json.RawMessage
	}
	noError(t, json.Unmarshal(sharedData(t, "yaml/cases.json"), &cases))
	if len(cases) < 400 {
		t.Fatalf("got %d cases", len(cases))
	}
	read := 0
	for _, c := range cases {
		if value, ok := yamlSuiteAdded[c.ID]; ok {
			c.JSON = []json.RawMessage{json.RawMessage(value)}
		}
		got, err := yamlAsJSON(c.YAML)
		outside := slices.Contains(c.Tags, "unknown-tag") || slices.Contains(c.Tags, "local-tag") || c.ID == "MUS6-02"
		switch want := c.JSON; {
		case len(want) == 1 && !outside && err != nil:
			t.Errorf("%s %s: refused: %v\n%s", c.ID, c.Name, err, c.YAML)
		case len(want) == 1 && !outside && !sameJSON([]byte(got), want[0]):
			t.Errorf("%s %s: got %s; want %s\n%s", c.ID, c.Name, got, want[0], c.YAML)
		case (len(want) != 1 || outside) && err == nil:
			t.Errorf("%s %s: got %s; want it refused\n%s", c.ID, c.Name, got, strings.ReplaceAll(c.YAML, "\t", "→"))
		case err == nil:
			read++
		}
	}
	t.Log(read, "read of", len(cases))
}
