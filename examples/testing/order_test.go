package order

import (
	"testing"

	"stepwell/packages/go/stepwelltest"
)

func TestDeclinedCardIsChargedAgainLater(t *testing.T) {
	s := stepwelltest.New(t)
	s.Stub("charge", `{"error": {"message": "declined"}}`)
	s.Status(s.Create("shop/order", ""), "waiting_for_retry")
}

func TestPaymentIsSettledAfterARetryAndSevenDays(t *testing.T) {
	s := stepwelltest.New(t)
	s.Stub("charge", `{"error": {"message": "declined"}}`, `{"result": {"receipt": 1}}`)
	s.Stub("settle", `{"result": "settled"}`)
	task := s.Create("shop/order", `{"amount": 120}`)
	s.Clock(`{"advance": "1h"}`)
	s.Calls("charge", 2)
	s.Clock(`{"advance": "167h59m"}`)
	s.Calls("settle", 0)
	s.Clock(`{"advance": "1m"}`)
	s.Status(task, "complete")
}
