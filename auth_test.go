package main

import (
	"context"
	"testing"
)

func TestSecurityContextTravels(t *testing.T) {
	ctx := context.Background()
	if sc := securityOf(ctx); sc != nil || sc.may(permTasksRead) {
		t.Errorf("bare context: got %+v; want nil, which may do nothing", sc)
	}
	sc := &securityContext{subject: "ci", method: authByAPIKey, permissions: 1 << permTasksRead}
	got := securityOf(withSecurity(ctx, sc))
	if got != sc {
		t.Errorf("got %+v; want %+v", got, sc)
	}
	if !got.may(permTasksRead) || got.may(permTasksCreate) {
		t.Errorf("got read %v, create %v; want true, false", got.may(permTasksRead), got.may(permTasksCreate))
	}
}

func TestUnrestricted(t *testing.T) {
	sc := unrestricted()
	for p := range permissionCount {
		if !sc.may(p) {
			t.Errorf("%v: got false; want true", p)
		}
	}
	if sc.subject != "" || sc.method != authByNothing {
		t.Errorf("got subject %q, method %q; want none", sc.subject, sc.method)
	}
}
