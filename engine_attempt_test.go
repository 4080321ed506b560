package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// TestHeldOutcomeHoldsNobodyUp ends a delay while the disk is full: other timers
// go on, and the outcome is recorded once there is room.
func TestHeldOutcomeHoldsNobodyUp(t *testing.T) {
	slow(t)
	t.Parallel()
	slow(t)
	clock, disk := newVirtualClock(testStart), newMemDisk()
	s := newTestService(t, serviceTest{
		clock: clock, disk: disk, dir: "/data", log: io.Discard,
		extra: []string{testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":1000}`})},
	})
	v := mustCreate(t, s, "slow")
	disk.setCapacity(1 << 40)
	free, err := disk.free("/data")
	if err != nil {
		t.Fatal(err)
	}
	disk.setCapacity(1<<40 - free) // full but for what was set aside
	filler := `{"namespace":"t","name":"slow","context":{"a":"` + strings.Repeat("x", 900_000) + `"}}`
	for range 40 { // use up what was set aside
		if _, err = parseAndCreate(s, filler); err != nil {
			break
		}
	}
	if kindOf(err) != unavailable {
		t.Fatalf("got %v on a full disk; want unavailable", err)
	}
	advanced := make(chan struct{})
	go func() {
		clock.advance(time.Minute)
		close(advanced)
	}()
	if _, ok := receiveWithin(advanced, 10*time.Second); !ok {
		t.Fatal("the clock stands still while an outcome is held")
	}
	wantStates(t, settled(t, s, v.id), "steps_in_process: in_progress")
	disk.setCapacity(1 << 40)
	awaitReal(t, "the held outcome to be recorded", func() bool {
		return settled(t, s, v.id).state == taskComplete
	})
}
