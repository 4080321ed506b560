package order

import (
	"testing"

	"stepwell/stepwelltest"
)

func TestMain(m *testing.M) { stepwelltest.Main(m, "--templates", "order.json") }

func TestDeclinedCardIsRetriedAfterAnHour(t *testing.T) {
	s := stepwelltest.New(t)
	s.Stub("charge", `{"error": {"message": "declined"}}`, `{"result": {"receipt": 1}}`)
	task := s.Create("shop/order", `{"amount": 120}`)
	s.Status(task, "waiting_for_retry")
	s.Clock(`{"advance": "1h"}`)
	s.Calls("charge", 2)
}

func TestPaymentIsSettledAfterSevenDays(t *testing.T) {
	s := stepwelltest.New(t)
	s.Stub("charge", `{"result": {"receipt": 1}}`)
	s.Stub("settle", `{"result": "settled"}`)
	task := s.Create("shop/order", `{"amount": 120}`)
	s.Clock(`{"advance": "167h59m"}`)
	s.Calls("settle", 0)
	s.Clock(`{"advance": "1m"}`)
	s.Status(task, "complete")
}
