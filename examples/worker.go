// Program worker claims steps over HTTP and runs them. Copy it, and replace the steps at the end.
// STEPWELL_URL is the URL of the service; STEPWELL_TOKEN is a bearer token, if the service requires one.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"
)

const lease = 30 // seconds; each claim is extended every third of this

// claim is a step to run.
type claim struct {
	Callable string
	Lease    string
	Task     struct{ Context json.RawMessage }
	Step     struct {
		UUID       string `json:"step_uuid"`
		Attempt    int
		Checkpoint *checkpoint
	}
	DependencyResults map[string]json.RawMessage `json:"dependency_results"`
}

type object = map[string]any

// checkpoint is returned as the error of a step that continues later: the next claim has it.
type checkpoint struct {
	Cursor         any `json:"cursor"`
	ItemsProcessed int `json:"items_processed"`
	Accumulated    any `json:"accumulated_results"`
}

func (*checkpoint) Error() string { return "a checkpoint" }

var errPermanent = errors.New("permanent") // wrapped by a step to fail without a retry

// post sends a request and decodes the answer.
func post(path string, body object, answer any) error {
	text, _ := json.Marshal(body)
	url := cmp.Or(os.Getenv("STEPWELL_URL"), "http://127.0.0.1:8080") + "/v1/steps/" + path
	request, err := http.NewRequest("POST", url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("STEPWELL_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if text, err = io.ReadAll(reply.Body); err != nil || reply.StatusCode >= 400 {
		return fmt.Errorf("%s: %s %s %w", path, reply.Status, text, err)
	}
	return json.Unmarshal(text, answer)
}

// extend keeps a claim until it is done.
func extend(c claim, done <-chan struct{}) {
	for tick := time.Tick(lease * time.Second / 3); ; {
		select {
		case <-done:
			return
		case <-tick:
			if err := post(c.Step.UUID+"/extend", object{"lease": c.Lease, "lease_seconds": lease}, new(any)); err != nil {
				log.Print(err) // try again at the next tick
			}
		}
	}
}

func run(c claim, step func(claim) (any, error)) error {
	done := make(chan struct{})
	go extend(c, done)
	result, err := step(c)
	close(done)
	verb, body := "/complete", object{"lease": c.Lease, "result": result}
	if later := new(checkpoint); errors.As(err, &later) {
		verb, body = "/checkpoint", object{"lease": c.Lease, "cursor": later.Cursor,
			"items_processed": later.ItemsProcessed, "accumulated_results": later.Accumulated}
	} else if err != nil {
		verb, body = "/fail", object{"lease": c.Lease, "error": object{
			"message": err.Error(), "error_type": "error", "retryable": !errors.Is(err, errPermanent)}}
	}
	return post(c.Step.UUID+verb, body, new(any)) // 409: the lease has expired
}

// work claims and runs steps. steps maps each callable to its function.
func work(steps map[string]func(claim) (any, error)) {
	name, _ := os.Hostname()
	want := object{"callables": slices.Collect(maps.Keys(steps)), "lease_seconds": lease, "wait_seconds": 30, "worker_id": name}
	for {
		var claims []claim
		err := post("claim", want, &claims)
		for _, c := range claims {
			err = errors.Join(err, run(c, steps[c.Callable]))
		}
		if err != nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
}

func main() {
	work(map[string]func(claim) (any, error){
		"demo.approve": func(c claim) (any, error) {
			var context struct{ Amount int }
			err := json.Unmarshal(c.Task.Context, &context)
			return object{"approved": context.Amount < 1000}, err
		},
		"demo.count": func(c claim) (any, error) { // counts to the limit in the context, a hundred at a time
			var context struct{ Limit int }
			err := json.Unmarshal(c.Task.Context, &context)
			cursor := 100
			if last := c.Step.Checkpoint; last != nil {
				cursor += int(last.Cursor.(float64))
			}
			if err == nil && cursor < context.Limit {
				err = &checkpoint{Cursor: cursor, ItemsProcessed: cursor}
			}
			return min(cursor, context.Limit), err
		},
	})
}
