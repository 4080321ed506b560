package main

// What every answer of the mount-point API keeps, whatever was asked.

import (
	"errors"
	"fmt"
	"strings"
)

// mountTestPath is mount.path in conversations.
const mountTestPath = "/stepwell"

// mountErrorProblem tells what is wrong with an answer that is an error: it must
// have the surface's own shape. Health says in its own way that it is not well.
func mountErrorProblem(a *convAnswer, path string) error {
	if a.code < 400 || a.code == 503 && strings.HasPrefix(path, mountTestPath+"/health/") {
		return nil
	}
	v, err := wireDecode(a.body)
	if err != nil {
		return err
	}
	if problems := wireProblems("MountError", "MountError", v); problems != nil {
		return errors.New(strings.Join(problems, "; "))
	}
	for _, name := range []string{"error.request_id", "error.retry_after_seconds", "timestamp"} {
		if got, ok := wireLookUp(v, name); ok {
			return fmt.Errorf("got %s %v; want none, which the roles' errors have", name, got)
		}
	}
	return nil
}
