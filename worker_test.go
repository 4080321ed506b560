package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestValidateLooksForPrograms validates a program that exists, one that is missing,
// and one that is not executable.
func TestValidateLooksForPrograms(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.WriteFile(filepath.Join(dir, "there"), []byte("#!/bin/sh\n"), 0o700))
	writeFile(t, filepath.Join(dir, "text"), []byte("no program"))
	o := serviceTest{config: func(c *Config) { c.Worker.AllowExec, c.Worker.ExecPath = true, dir }}
	programs := []struct {
		program string
		valid   bool
	}{
		{"there", true}, {"absent", false}, {"text", false},
		{filepath.Join(dir, "there"), true}, {filepath.Join(dir, "absent"), false}, {filepath.Join(dir, "text"), false},
	}
	for i, p := range programs {
		o.extra = append(o.extra, testTemplate(fmt.Sprint("p", i), stepSpec{name: "a", callable: "exec:" + p.program}))
	}
	s := newTestServer(t, o)
	w := s.with(newWorkerAPI(s.svc, nil))
	for i, p := range programs {
		a := w.do("POST", fmt.Sprintf("/v1/templates/t/p%d/1.0.0/validate", i), "").want(200)
		if a.get("valid") != p.valid || (len(a.get("errors").([]any)) == 0) != p.valid {
			t.Errorf("%s: got %s; want valid = %v", p.program, a.body, p.valid)
		}
	}
}

// TestHandlerClass reads the forms that a task_handler may have.
func TestHandlerClass(t *testing.T) {
	for given, want := range map[string]string{
		``: "stepwell", `null`: "stepwell", `"Shop::Order"`: "Shop::Order", `{"callable":"Shop::Order"}`: "Shop::Order",
		`{"callable":7}`: "stepwell", `{}`: "stepwell", `7`: "stepwell", `[]`: "stepwell",
	} {
		if got := handlerClass([]byte(given)); got != want {
			t.Errorf("%s: got %s; want %s", given, got, want)
		}
	}
}
