package main

// The backlog: records in memory that are not on disk yet. When the disk falls
// behind, what would make it grow is refused or held, in two steps.

import "fmt"

// backlogLimit is from how many bytes on no task is created and no step starts.
// What follows from work that was taken before is still recorded, as long as the
// space that is set aside for the journal lasts; then every change is refused.
const backlogLimit = 64 << 20

// behind is the refusal of new work, or nil as long as the disk keeps up.
func (j *journal) behind() error {
	if n := j.backlog.Load(); n >= j.most {
		return fellBehind(n)
	}
	return nil
}

func fellBehind(n int64) error {
	return &failure{kind: backpressure, retryAfter: outcomeRetryEvery,
		message: fmt.Sprintf("the disk does not keep up: %d bytes wait for it; nothing was changed", n)}
}

// refusedForNow reports a refusal that says nothing about the change: it may succeed
// later, as it is.
func refusedForNow(err error) bool {
	kind := kindOf(err)
	return kind == unavailable || kind == backpressure
}
