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

// refusal is a response with an error, or a request that cannot be sent because it is not JSON.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// post sends a request and decodes the answer.
func post(path string, body object, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return &refusal{http.StatusBadRequest, err.Error()}
	}
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
	if text, err = io.ReadAll(reply.Body); err != nil {
		return err
	}
	if reply.StatusCode >= 400 {
		return &refusal{reply.StatusCode, fmt.Sprintf("%s: %s %s", path, reply.Status, text)}
	}
	return json.Unmarshal(text, answer)
}

// deliver sends an outcome, again and again while there is no response, for the length of a lease.
func deliver(path string, body object) (err error) {
	for range lease {
		err = post(path, body, new(any))
		if refused := new(refusal); err == nil || errors.As(err, &refused) && refused.status < 500 {
			break
		}
		time.Sleep(time.Second)
	}
	return err
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
	fail := func(err error) error {
		return deliver(c.Step.UUID+"/fail", object{"lease": c.Lease, "error": object{
			"message": err.Error(), "error_type": "error", "retryable": !errors.Is(err, errPermanent)}})
	}
	verb, body := "/complete", object{"lease": c.Lease, "result": result}
	if later := new(checkpoint); errors.As(err, &later) {
		verb, body = "/checkpoint", object{"lease": c.Lease, "cursor": later.Cursor,
			"items_processed": later.ItemsProcessed, "accumulated_results": later.Accumulated}
	} else if err != nil {
		return fail(err)
	}
	err = deliver(c.Step.UUID+verb, body)
	if refused := new(refusal); errors.As(err, &refused) && slices.Contains([]int{400, 413, 422}, refused.status) {
		return fail(fmt.Errorf("%w: %w", errPermanent, err))
	}
	return err // such as 409: the lease has expired
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
