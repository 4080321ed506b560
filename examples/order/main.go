// Program order has the handlers of the order workflow, an HTTP service.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

// call is the request body that Stepwell sends for a step.
type call struct {
	Task struct{ Context order }
	Step struct {
		Attempt int
		Handler struct{ Callable string }
	}
	DependencyResults map[string]json.RawMessage `json:"dependency_results"`
}

type order struct {
	Item   string `json:"item"`
	Amount int    `json:"amount"`
	Card   string `json:"card"`
}

// failure is the outcome of a step that failed.
type failure struct {
	Message   string `json:"message"`
	Type      string `json:"error_type"`
	Retryable bool   `json:"retryable"`
}

func (f *failure) Error() string { return f.Message }

type object = map[string]any

// steps maps each callable to its function. A repeated call has the same Idempotency-Key, under which a payment
// service charges a card only once.
var steps = map[string]func(c call, key string) (any, error){
	"shop.reserve": func(c call, _ string) (any, error) { return object{"item": c.Task.Context.Item}, nil },
	"shop.charge": func(c call, key string) (any, error) {
		if strings.HasPrefix(c.Task.Context.Card, "expired") {
			return nil, &failure{"the card has expired", "card_expired", false}
		}
		return object{"receipt": key, "amount": c.Task.Context.Amount}, nil
	},
	"shop.pick": func(c call, _ string) (any, error) {
		next := "ship"
		if c.Task.Context.Item == "sold out" {
			next = "refund"
		}
		return object{"decision_point_outcome": object{"type": "create_steps", "step_names": []string{next}}}, nil
	},
	"shop.ship":   func(c call, _ string) (any, error) { return object{"parcel": c.Task.Context.Item}, nil },
	"shop.refund": func(c call, _ string) (any, error) { return object{"refunded": c.Task.Context.Amount}, nil },
	"shop.notify": func(c call, _ string) (any, error) { return c.DependencyResults, nil },
}

// serve answers a call with an outcome.
func serve(w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	step := steps[c.Step.Handler.Callable]
	if step == nil {
		http.Error(w, fmt.Sprintf("no step %q", c.Step.Handler.Callable), http.StatusNotFound)
		return
	}
	result, err := step(c, r.Header.Get("Idempotency-Key"))
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(object{"success": err == nil, "result": result, "error": err})
}

func main() {
	address := "127.0.0.1:9000"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	log.Fatal(http.ListenAndServe(address, http.HandlerFunc(serve)))
}
