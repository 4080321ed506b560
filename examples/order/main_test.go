package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"stepwell/packages/go/stepwelltest"
)

// TestMain runs the handlers in the test, and Stepwell beside it.
func TestMain(m *testing.M) {
	handlers := httptest.NewServer(http.HandlerFunc(serve))
	os.Setenv("STEPWELL_WORKER__HANDLERS", fmt.Sprintf(`{"shop.*": %q}`, handlers.URL))
	stepwelltest.Main(m, "--templates", "order.yaml")
}

func TestOrderIsShipped(t *testing.T) {
	s := stepwelltest.New(t)
	task := s.Create("shop/order", `{"item": "lamp", "amount": 30, "card": "4242"}`)
	s.Status(task, "complete")
	s.Calls("ship", 1)
	s.Calls("refund", 0)
}

func TestSoldOutOrderIsRefunded(t *testing.T) {
	s := stepwelltest.New(t)
	task := s.Create("shop/order", `{"item": "sold out", "amount": 30, "card": "4242"}`)
	s.Status(task, "complete")
	if got := fmt.Sprint(s.Result(task, "refund")); got != "map[refunded:30]" {
		t.Errorf("got %s; want all of the money back", got)
	}
	s.Calls("ship", 0)
}

func TestPaymentIsRetried(t *testing.T) {
	s := stepwelltest.New(t)
	s.Stub("charge", `{"error": {"message": "the bank is busy"}}`, `{"error": {"message": "the bank is busy"}}`, `{"result": 1}`)
	task := s.Create("shop/order", `{"item": "lamp", "amount": 30, "card": "4242"}`)
	s.Status(task, "waiting_for_retry")
	s.Clock(`{"advance": "10m"}`)
	s.Calls("charge", 2)
	s.Clock(`{"advance": "20m"}`)
	s.Status(task, "complete")
	s.Calls("charge", 3)
}

func TestExpiredCardNeedsAPerson(t *testing.T) {
	s := stepwelltest.New(t)
	task := s.Create("shop/order", `{"item": "lamp", "amount": 30, "card": "expired"}`)
	s.Status(task, "blocked_by_failures")
	s.Calls("charge", 1)
}
