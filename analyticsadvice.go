package main

// Recommendations: sentences about what stands out in the figures. Each names
// what was measured; where nothing stands out there is none.

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	maxRecommendations = 5
	adviceEach         = 2    // at most so many of one sort
	highErrorRate      = 10.0 // percent of a step's attempts
	dominantShare      = 0.5  // of the average task, in one of several steps
	wideSpread         = 10.0 // the 95th percentile over the median
	spreadFrom         = 1e6  // µs; a faster 95th percentile is no trouble
)

// recommendations looks at templates and steps with enough executions, the
// slowest first.
func recommendations(tasks, steps []namedFigures, states *stateCounts) []string {
	advice := []string{}
	if n := states.tasks[taskBlockedByFailures]; n > 0 {
		advice = append(advice, fmt.Sprintf("Tasks blocked by failures: %d. They wait for an operator to reset, "+
			"complete or resolve their failed steps.", n))
	}
	advice = append(advice, adviceOnFailures(steps)...)
	advice = append(advice, adviceOnSlowSteps(tasks, steps)...)
	advice = append(advice, adviceOnSpread(tasks)...)
	return advice[:min(len(advice), maxRecommendations)]
}

func (id templateID) fullName() string { return id.namespace + "." + id.name + "@" + id.version }

// adviceOnFailures names the steps that fail most often.
func adviceOnFailures(steps []namedFigures) []string {
	failing := slices.DeleteFunc(slices.Clone(steps), func(n namedFigures) bool {
		return n.attemptErrorRate() < highErrorRate
	})
	slices.SortStableFunc(failing, func(a, b namedFigures) int {
		return cmp.Compare(b.attemptErrorRate(), a.attemptErrorRate())
	})
	var advice []string
	for _, n := range failing[:min(len(failing), adviceEach)] {
		advice = append(advice, fmt.Sprintf("Step %s of %s fails in %.2f %% of its %d attempts, "+
			"most often with %s.", n.step, n.fullName(), n.attemptErrorRate(), n.attempts(), n.errorTypes()[0].ErrorType))
	}
	return advice
}

// adviceOnSlowSteps names the steps that make up most of their tasks' time.
func adviceOnSlowSteps(tasks, steps []namedFigures) []string {
	slowest := map[templateID]*namedFigures{}
	for i := range steps {
		if slowest[steps[i].templateID] == nil {
			slowest[steps[i].templateID] = &steps[i]
		}
	}
	var advice []string
	for _, t := range tasks {
		step := slowest[t.templateID]
		several := t.counts[stepsCreated] > t.counts[tasksCreated]
		if step == nil || !several || len(advice) == adviceEach || t.times.sum == 0 {
			continue
		}
		if step.times.mean() >= dominantShare*t.times.mean() {
			advice = append(advice, fmt.Sprintf("Step %s runs %.3f s on average; whole tasks of %s take %.3f s.",
				step.step, step.averageTime(), t.fullName(), t.averageTime()))
		}
	}
	return advice
}

// adviceOnSpread names the templates some of whose tasks take far longer than most.
func adviceOnSpread(tasks []namedFigures) []string {
	var advice []string
	for _, t := range tasks {
		median, high := t.times.quantile(0.5), t.times.quantile(0.95)
		if high < spreadFrom || high < wideSpread*median || len(advice) == adviceEach {
			continue
		}
		advice = append(advice, fmt.Sprintf("Half of the tasks of %s take up to %.3f s, but one in twenty "+
			"takes %.3f s or more.", t.fullName(), median/1e6, high/1e6))
	}
	return advice
}
