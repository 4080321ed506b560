package main

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestConfigShowAsJSON(t *testing.T) {
	writeConfigFiles(t, oneConfigFile("worker.handlers.'A<b>' = 'builtin:echo'"))
	out := must(runConfig(nil, "show", "-o", "json"))(t)
	var rows []configRow
	noError(t, json.Unmarshal([]byte(out), &rows))
	got := make(map[string]configRow)
	for _, r := range rows {
		got[r.Key+r.Entry] = r
	}
	for _, want := range []configRow{
		{"worker.handlers", "A<b>", "builtin:echo", "stepwell.toml:1"},
		{"templates.dirs", "", []any{}, "default"},
		{"worker.exec_env", "", map[string]any{}, "default"},
		{"worker.concurrency", "", 256.0, "default"},
		{"engine.jitter", "", true, "default"},
	} {
		if r := got[want.Key+want.Entry]; !reflect.DeepEqual(r, want) {
			t.Errorf("got %+v; want %+v", r, want)
		}
	}
	if len(rows) != len(configKeys) {
		t.Errorf("got %d rows; want %d", len(rows), len(configKeys))
	}
}
