package main

// The command pull: tasks of a running distributed service, into a sandbox, a store or a document.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
)

func pullCommand() command {
	return command{
		name: "pull", operands: "URL TASK…", help: "copy tasks from a running Tasker, to inspect them and continue them here",
		more: "The copies keep the IDs, states, attempts, results and retries. By default, they go into a new sandbox of the service\n" +
			"at --url, which must be in fixture mode. The sandbox's clock is frozen at the last change of the tasks. The command\n" +
			"does not change Tasker, and lists what Tasker does not report. Requests to Tasker carry credentials from the environment only.",
		examples: []string{
			"pull https://tasker.example.com 01a2159e-6fa7-726a-91bf-54524d6f5d96 --worker-url https://worker.example.com",
			"pull http://10.0.0.5:8080 01a2159e-6fa7-726a-91bf-54524d6f5d96 --worker-url http://10.0.0.5:8081 --data pulled",
		},
		define: func(o *options) runner {
			o.withClient()
			worker := o.String("worker-url", "", "`URL`: read the templates from the worker role at this URL")
			dir := o.String("data", "", "`DIR`: instead of a sandbox, make a new store in this directory; its clock runs")
			file := o.String("document", "", "`FILE`: instead of making a sandbox, write the state to this file")
			force := o.forceFlag()
			name := o.String("sandbox", "", "`NAME`: name the sandbox")
			decide := o.Bool("steps-decide", false, "if the state of a task contradicts its steps, derive the state from the steps")
			return func(ctx context.Context, operands []string) error {
				from, err := o.p.clientOf(operands[0], "")
				if err != nil {
					return err
				}
				from.flag = "URL"
				if *worker == "" {
					return o.misuse("missing --worker-url: only the worker role has whole templates")
				}
				templates, err := o.p.clientOf(*worker, "worker")
				if err != nil {
					return err
				}
				templates.flag = "--worker-url"
				document, err := from.pull(ctx, templates, operands[1:], *decide)
				if err != nil {
					return o.named(err)
				}
				switch {
				case *file != "":
					err = writeDocument(*file, *force, func(w io.Writer) error { _, err := w.Write(document); return err })
				case *dir != "":
					err = o.p.importFrom(*dir, bytes.NewReader(document), int64(len(document)))
				default:
					err = o.bring(ctx, *name, document)
				}
				return o.named(err)
			}
		},
	}
}

// bring makes a sandbox with a state, and prints where it is.
func (o *options) bring(ctx context.Context, name string, document []byte) error {
	to, err := o.client()
	if err != nil {
		return err
	}
	body := map[string]any{"seed": string(document)}
	if name != "" {
		body["name"] = name
	}
	return to.askControl(ctx, call{method: "POST", path: "/sandboxes", body: body})
}

// pull returns the state of tasks, as lines, and prints what the service does not report about them.
func (c *client) pull(ctx context.Context, templates *client, ids []string, stepsDecide bool) ([]byte, error) {
	var tasks []*taskerTask
	for _, id := range ids {
		known, ok := parseUUID(id)
		if !ok {
			return nil, usagef("%q is not the UUID of a task", id)
		}
		t, err := c.pullTask(ctx, templates, "/v1/tasks/"+known.String())
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	}
	slices.SortStableFunc(tasks, func(a, b *taskerTask) int { return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID)) })
	p := &taskerPull{stepsDecide: stepsDecide}
	for _, t := range tasks {
		if err := p.add(t); err != nil {
			return nil, err
		}
	}
	for _, note := range p.notes {
		fmt.Fprintln(c.p.stderr, printable(note))
	}
	var document bytes.Buffer
	err := p.write(&document)
	return document.Bytes(), err
}

// pullTask fetches everything that the API has about a task.
func (c *client) pullTask(ctx context.Context, templates *client, path string) (*taskerTask, error) {
	t := &taskerTask{}
	if err := c.getInto(ctx, path, t); err != nil {
		return nil, err
	}
	if err := c.getInto(ctx, path+"/workflow_steps", &t.Steps); err != nil {
		return nil, err
	}
	for i := range t.Steps {
		if err := c.getInto(ctx, path+"/workflow_steps/"+url.PathEscape(t.Steps[i].ID)+"/audit", &t.Steps[i].Audit); err != nil {
			return nil, err
		}
	}
	if err := c.getInto(ctx, "/v1/dlq/task/"+t.ID, &t.Letter); err != nil && !hasStatus(err, 404) {
		return nil, err
	}
	d, err := templates.get(ctx, (templateRef{t.Namespace, t.Name, t.Version}).path(), nil)
	if err != nil {
		return nil, err
	}
	if t.Template = d.at("template.template").raw; t.Template == nil {
		return nil, exitf(exitFailed, "%s does not tell the whole template %s/%s: is it a worker?", templates.url, t.Namespace, t.Name)
	}
	// The requests before are no snapshot, so the task is read once more at the end: what changed meanwhile could
	// contradict itself.
	var now taskerTask
	if err = c.getInto(ctx, path, &now); err == nil && (now.Updated != t.Updated || now.Status != t.Status) {
		err = errors.New("the task has changed in the meantime: try again")
	}
	return t, err
}

// getInto asks for a path and reads the answer.
func (c *client) getInto(ctx context.Context, path string, v any) error {
	d, err := c.get(ctx, path, nil)
	if err == nil {
		if err = json.Unmarshal(d.raw, v); err != nil {
			err = exitf(exitFailed, "%s%s: %v", c.url, path, err)
		}
	}
	return err
}
