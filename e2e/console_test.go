package e2e

// The frame of the console, and its list of tasks.

import (
	"testing"
)

// TestConsoleFrame opens the console as a person does who types the address of the service.
func TestConsoleFrame(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	s := serve(t, "--memory")
	s.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.open(s.ready.OrchestrationURL + "/")
	p.wait(`location.pathname === "/console"`)
	p.waitText("demo/diamond")
	p.waitText("Complete")
	p.screenshot("tasks", 1280, "light")
}

func TestConsoleLook(t *testing.T) {
	p := newPage(t)
	s := serve(t, "--memory")
	p.open(s.ready.OrchestrationURL + "/")
	p.waitText("Welcome to Stepwell")
	p.screenshot("welcome", 1280, "light")
	p.screenshot("welcome", 390, "dark")
	a := s.api()
	for range 3 {
		for _, name := range []string{"diamond", "approval", "flaky", "slow", "batch", "failing", "exhausted", "fan_out", "linear", "routing"} {
			a.create(`{"namespace":"demo","name":"` + name + `","tags":["eu","urgent"]}`)
		}
	}
	p.wait(`document.querySelectorAll("tbody tr").length === 30`)
	p.screenshot("list", 1280, "light")
	p.screenshot("list", 1280, "dark")
	p.screenshot("list", 390, "light")
	p.open(s.ready.OrchestrationURL + "/console/tasks?status=complete")
	p.waitText("Complete")
	p.key("?")
	p.screenshot("keys", 1280, "light")
}
