package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestHandlerAvailable has steps of each kind: a handler is available when each
// of them can be run, be it by somebody else.
func TestHandlerAvailable(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "text"), []byte("no program"))
	programs := func(c *workerConfig) { c.AllowExec, c.ExecPath = true, dir }
	for _, tt := range []struct {
		callables []string
		config    func(c *workerConfig)
		want      bool
	}{
		{nil, nil, true},
		{[]string{"builtin:noop", "http://127.0.0.1:1/nobody-listens", "Shop::Order"}, nil, true},
		{[]string{"exec:there"}, nil, false},
		{[]string{"exec:there"}, programs, true},
		{[]string{"exec:" + filepath.Join(dir, "there")}, programs, true},
		{[]string{"builtin:noop", "exec:absent"}, programs, false},
		{[]string{"exec:text", "builtin:noop"}, programs, false},
		{[]string{"Shop::Order"}, func(c *workerConfig) { c.Handlers = map[string]string{"Shop::*": "exec:there"} }, false},
		{[]string{"Shop::Order"}, func(c *workerConfig) { c.DefaultHandler = "exec:there" }, false},
		{[]string{"exec:there"}, func(c *workerConfig) { c.Handlers = map[string]string{"exec:*": "builtin:noop"} }, true},
	} {
		o := serviceTest{config: func(c *Config) {
			if tt.config != nil {
				tt.config(&c.Worker)
			}
		}}
		var steps []stepSpec
		for i, callable := range tt.callables {
			steps = append(steps, stepSpec{name: fmt.Sprint("s", i), callable: callable})
		}
		o.extra = append(o.extra, testTemplate("x", steps...))
		a := newTestServer(t, o).do("GET", "/stepwell/handlers/t/x", "").want(200)
		if a.get("available") != tt.want {
			t.Errorf("%q: got available %v; want %v", tt.callables, a.get("available"), tt.want)
		}
	}
}

// TestHandlerAvailableElsewhere has an orchestration role without an engine: all
// of its steps wait for others, programs too.
func TestHandlerAvailableElsewhere(t *testing.T) {
	o := serviceTest{extra: []string{testTemplate("x", stepSpec{name: "a", callable: "exec:absent"})}}
	s := newTestServer(t, o)
	s.svc.handlers = outsideOnly()
	if got := s.do("GET", "/stepwell/handlers/t/x", "").want(200).get("available"); got != true {
		t.Errorf("got available %v; want it for outside actors to run", got)
	}
}
