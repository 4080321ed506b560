// Talks to all three APIs with clients that oapi-codegen generated.
//
// Usage: conversation ORCHESTRATION_URL WORKER_URL MOUNT_URL, in a module with the
// packages clients/orchestration, clients/worker and clients/mount.
package main

import (
	"context"
	"fmt"
	"os"

	"clients/mount"
	"clients/orchestration"
	"clients/worker"
)

func main() {
	if err := talk(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "go:", err)
		os.Exit(1)
	}
	fmt.Println("go: talked to orchestration, worker, mount point")
}

func talk(ctx context.Context, orchestrationURL, workerURL, mountURL string) error {
	c, err := orchestration.NewClientWithResponses(orchestrationURL)
	if err != nil {
		return err
	}
	wait, namespace := "30s", "demo"
	created, err := c.CreateTaskWithResponse(ctx, &orchestration.CreateTaskParams{Wait: &wait}, orchestration.TaskRequest{
		Name: "diamond", Namespace: &namespace, Context: &map[string]any{"order_id": 7}, Tags: &[]string{"generated"},
	})
	if err != nil || created.JSON201 == nil || created.JSON201.Status != "complete" {
		return fmt.Errorf("createTask: got %v, %v; want a complete task", created, err)
	}
	id := created.JSON201.TaskUuid
	read, err := c.GetTaskWithResponse(ctx, id, nil)
	if err != nil || read.JSON200 == nil || read.JSON200.TotalSteps != 4 {
		return fmt.Errorf("getTask: got %v, %v; want four steps", read, err)
	}
	until, limit := "terminal", "1s"
	read, err = c.GetTaskWithResponse(ctx, id, &orchestration.GetTaskParams{Wait: &until, Timeout: &limit})
	if err != nil || read.JSON200 == nil {
		return fmt.Errorf("getTask, waiting: got %v, %v; want the task", read, err)
	}
	reason := orchestration.DlqReason("MaxRetriesExceeded")
	dead, err := c.ListDLQEntriesWithResponse(ctx, &orchestration.ListDLQEntriesParams{DlqReason: &reason})
	if err != nil || dead.JSON200 == nil {
		return fmt.Errorf("listDLQEntries: got %v, %v; want a list", dead, err)
	}
	steps, err := c.ListStepsWithResponse(ctx, id, nil)
	if err != nil || steps.JSON200 == nil || len(*steps.JSON200) != 4 || (*steps.JSON200)[0].Results == nil {
		return fmt.Errorf("listSteps: got %v, %v; want four results", steps, err)
	}
	var action orchestration.StepManualAction
	if err := action.FromResetForRetry(orchestration.ResetForRetry{Reason: "a test", ResetBy: "a test"}); err != nil {
		return err
	}
	acted, err := c.ActOnStepWithResponse(ctx, id, (*steps.JSON200)[0].StepUuid, nil, action)
	if err != nil || acted.JSON400 == nil || acted.JSON400.Error.Code != "BAD_REQUEST" {
		return fmt.Errorf("actOnStep: got %s, %v; want a refusal", acted.Body, err)
	}
	delivered, err := c.ListDeliveriesWithResponse(ctx, nil)
	if err != nil || delivered.JSON200 == nil || delivered.JSON200.TotalCount != 0 {
		return fmt.Errorf("listDeliveries: got %v, %v; want none", delivered, err)
	}
	if err := others(ctx, workerURL, mountURL); err != nil {
		return err
	}
	health, err := c.GetHealthReadyWithResponse(ctx, nil)
	if err != nil || health.JSON200 == nil || health.JSON200.Status != "ready" {
		return fmt.Errorf("getHealthReady: got %v, %v; want ready", health, err)
	}
	return nil
}

// others talks to the worker and the mount point.
func others(ctx context.Context, workerURL, mountURL string) error {
	w, err := worker.NewClientWithResponses(workerURL)
	if err != nil {
		return err
	}
	verdict, err := w.ValidateTemplateWithResponse(ctx, "demo", "diamond", "latest", nil, worker.TemplateDefinition{
		Name: "own", Version: "1.0.0", Steps: &[]worker.TemplateStepDefinition{
			{Name: "only", Handler: worker.TemplateHandlerDefinition{Callable: "builtin:noop"}},
		},
	})
	if err != nil || verdict.JSON200 == nil || !verdict.JSON200.Valid {
		return fmt.Errorf("validateTemplate: got %v, %v; want a valid template", verdict, err)
	}
	m, err := mount.NewClientWithResponses(mountURL)
	if err != nil {
		return err
	}
	name, namespace, wait := "diamond", "demo", "30s"
	created, err := m.CreateTaskWithResponse(ctx, &mount.CreateTaskParams{Wait: &wait},
		mount.MountTaskCreation{Name: &name, Namespace: &namespace})
	if err != nil || created.JSON201 == nil || created.JSON201.Status != "complete" {
		return fmt.Errorf("mount createTask: got %v, %v; want a complete task", created, err)
	}
	all := true
	read, err := m.GetTaskWithResponse(ctx, created.JSON201.Id, &mount.GetTaskParams{IncludeDependencies: &all})
	if err != nil || read.JSON200 == nil || read.JSON200.DependencyAnalysis == nil {
		return fmt.Errorf("mount getTask: got %v, %v; want its dependencies", read, err)
	}
	return nil
}
