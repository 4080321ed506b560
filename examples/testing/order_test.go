// Package order tests an application's Stepwell workflow against the real service, with scripted steps and a virtual clock.
package order

import (
	_ "embed"
	"fmt"
	"testing"
)

//go:embed order.json
var template string // the application's template

type orderTest struct {
	t         *testing.T
	url, task string
}

// newOrder creates an order as the application does; charge lists the outcomes of the charge step.
func newOrder(t *testing.T, charge string) *orderTest {
	o := &orderTest{t: t, url: newService(t)}
	o.control("templates", template)
	o.control("stubs", `{"match": {"step": "charge"}, "outcomes": `+charge+`}`)
	o.control("stubs", `{"match": {"step": "settle"}, "outcomes": [{"result": "settled"}]}`)
	o.task = call(t, "POST", o.url+"/v1/tasks", `{"namespace": "shop", "name": "order"}`)["task_uuid"].(string)
	return o
}

func (o *orderTest) control(path, body string) { call(o.t, "POST", o.url+"/_stepwell/"+path, body) }

func (o *orderTest) check(status, step string, calls int) {
	o.t.Helper()
	o.control("wait-idle", "")
	if got := call(o.t, "GET", o.url+"/v1/tasks/"+o.task, "")["status"]; got != status {
		o.t.Errorf("the order is %v; want %s", got, status)
	}
	verify := fmt.Sprintf(`{"match": {"step": %q}, "count": {"exactly": %d}}`, step, calls)
	call(o.t, "POST", o.url+"/_stepwell/verify", verify)
}

func TestDeclinedCardIsRetriedAfterAnHour(t *testing.T) {
	o := newOrder(t, `[{"error": {"message": "declined"}}, {"result": {"receipt": 1}}]`)
	o.check("waiting_for_retry", "charge", 1)
	o.control("clock", `{"advance": "1h"}`)
	o.check("steps_in_process", "charge", 2)
}

func TestPaymentIsSettledAfterSevenDays(t *testing.T) {
	o := newOrder(t, `[{"result": {"receipt": 1}}]`)
	o.control("clock", `{"advance": "167h59m"}`)
	o.check("steps_in_process", "settle", 0)
	o.control("clock", `{"advance": "1m"}`)
	o.check("complete", "settle", 1)
}

func TestStepOfLostWorkerIsDeliveredAgain(t *testing.T) {
	o := newOrder(t, `[{"fault": "worker_lost"}, {"result": {"receipt": 1}}]`)
	o.control("clock", `{"auto": true}`) // jump to each timer
	o.check("complete", "charge", 2)
}
