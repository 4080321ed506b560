// Talks to all three APIs with clients that ogen generated.
//
// Usage: conversation ORCHESTRATION_URL WORKER_URL MOUNT_URL
package main

import (
	"context"
	"fmt"
	"os"

	"clients/mount"
	"clients/orchestration"
	"clients/worker"

	"github.com/ogen-go/ogen/ogenerrors"
)

// none gives a token that a service without authentication ignores, since the document asks for credentials.
type none struct{}

func (none) BearerAuth(context.Context, orchestration.OperationName) (a orchestration.BearerAuth, err error) {
	a.Token = "unused"
	return a, nil
}

func (none) APIKeyAuth(context.Context, orchestration.OperationName) (a orchestration.APIKeyAuth, err error) {
	return a, ogenerrors.ErrSkipClientSecurity
}

type noneOfWorker struct{}

func (noneOfWorker) BearerAuth(context.Context, worker.OperationName) (a worker.BearerAuth, err error) {
	a.Token = "unused"
	return a, nil
}

func (noneOfWorker) APIKeyAuth(context.Context, worker.OperationName) (a worker.APIKeyAuth, err error) {
	return a, ogenerrors.ErrSkipClientSecurity
}

type noneOfMount struct{}

func (noneOfMount) BearerAuth(context.Context, mount.OperationName) (a mount.BearerAuth, err error) {
	a.Token = "unused"
	return a, nil
}

func (noneOfMount) APIKeyAuth(context.Context, mount.OperationName) (a mount.APIKeyAuth, err error) {
	return a, ogenerrors.ErrSkipClientSecurity
}

func main() {
	if err := converse(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func converse(ctx context.Context, orchestrationURL, workerURL, mountURL string) error {
	c, err := orchestration.NewClient(orchestrationURL, none{})
	if err != nil {
		return err
	}
	q := &orchestration.TaskRequest{Name: "diamond", Namespace: orchestration.NewOptNilString("demo")}
	made, err := c.CreateTask(ctx, q, orchestration.CreateTaskParams{Wait: orchestration.NewOptString("30s")})
	task, ok := made.(*orchestration.TaskResponseHeaders)
	if err != nil || !ok || task.Response.Status != "complete" {
		return fmt.Errorf("createTask: got %T, %v; want a complete task", made, err)
	}
	id := task.Response.TaskUUID
	moves, err := c.ListTransitions(ctx, orchestration.ListTransitionsParams{TaskUUID: id})
	if list, ok := moves.(*orchestration.TransitionsHeaders); err != nil || !ok || len(list.Response.Transitions) < 4 {
		return fmt.Errorf("listTransitions: got %T, %v; want them", moves, err)
	}
	w, err := worker.NewClient(workerURL, noneOfWorker{})
	if err != nil {
		return err
	}
	templates, err := w.ListTemplates(ctx, worker.ListTemplatesParams{})
	if list, ok := templates.(*worker.WorkerTemplateListResponseHeaders); err != nil || !ok || len(list.Response.Templates) == 0 {
		return fmt.Errorf("listTemplates of the worker: got %T, %v; want a list", templates, err)
	}
	m, err := mount.NewClient(mountURL, noneOfMount{})
	if err != nil {
		return err
	}
	read, err := m.GetTask(ctx, mount.GetTaskParams{ID: mount.Identifier(id)})
	if task, ok := read.(*mount.GetTaskOKHeaders); err != nil || !ok || task.Response.Status != "complete" {
		return fmt.Errorf("getTask of the mount: got %T, %v; want a complete task", read, err)
	}
	return nil
}
