package main

// The analysis of a task's dependencies for the mount surface: the standing of each step, and what holds the task up.
// Its time is about linear in steps and dependencies: it does not enumerate paths, and it follows what waits behind a
// step, which would be quadratic for all steps, only for the worst few.

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	maxCriticalPaths = 5
	maxErrorChains   = 10 // failed steps whose dependents are listed
	maxStepBlockages = 10 // bottlenecks that are listed

	// maxListedEdges keeps the answer about a dense graph within a few megabytes.
	maxListedEdges = 20000
)

// taskAnalysis is one analysis and its intermediate results.
type taskAnalysis struct {
	t            *task
	g            dependencyGraph // the task's own
	now          instant
	order, level []int
	paths        [][]int
	standing     []standing           // by step
	of           [standingKinds][]int // the steps of each standing, in the order of the task
	walk         graphWalk
	behind       map[int][]int // by step; the ones computed so far
}

// standing is the standing of a step.
type standing struct {
	kind    standingKind
	waiting int // unfinished steps that depend on it directly
	chain   int // steps of the longest chain of unfinished steps behind it
}

// standingKind sums up the state of a step and of its dependencies.
type standingKind uint8

const (
	otherStanding     standingKind = iota // it runs, waits for its retry, or was cancelled
	readyStanding                         // by readyForExecution
	blockedStanding                       // unfinished, and a dependency is not completed and perhaps never can be
	completedStanding                     // complete, or resolved by an operator
	failedStanding                        // in error, or cancelled while an unfinished step depends on it
	standingKinds
)

// atLeast returns a lower bound on how many unfinished steps wait for the step:
// those that depend on it directly, and the rest of the longest chain.
func (s *standing) atLeast() int { return s.waiting + max(s.chain-1, 0) }

// analyzeTask returns the dependencies of a task at an instant, by its graph, in short and in full.
func analyzeTask(t *task, g dependencyGraph, now instant) (dependenciesView, dependencyAnalysisView) {
	a := &taskAnalysis{t: t, g: g, now: now, behind: map[int][]int{}}
	a.order, a.level = graphLevels(g, len(t.steps))
	a.paths = longestPaths(g, a.order, maxCriticalPaths)
	a.walk = graphWalk{g: g, open: a.unfinished, seen: make([]int, len(t.steps))}
	a.stand()
	v := dependencyAnalysisView{
		DependencyGraph: a.graph(), CriticalPaths: a.criticalPaths(), ParallelismOpportunities: a.parallelism(),
		ErrorChains: a.errorChains(), Bottlenecks: a.bottlenecks(), AnalysisTimestamp: zonedTime(now),
	}
	v.TaskExecutionSummary = a.summary(&v)
	return a.dependencies(), v
}

func (a *taskAnalysis) unfinished(i int) bool { return !a.t.steps[i].state.finished() }

// stand computes the standing of every step, dependents first.
func (a *taskAnalysis) stand() {
	a.standing = make([]standing, len(a.t.steps))
	for _, i := range slices.Backward(a.order) {
		s, x := &a.t.steps[i], &a.standing[i]
		for _, c := range a.g.children(i) {
			if a.unfinished(c) {
				x.waiting++
				x.chain = max(x.chain, a.standing[c].chain+1)
			}
		}
		switch {
		case s.state.satisfies():
			x.kind = completedStanding
		case s.state == stepInError || s.state == stepCancelled && x.waiting > 0:
			x.kind = failedStanding
		case a.unfinished(i) && !a.t.satisfied(i):
			x.kind = blockedStanding
		case a.t.readyForExecution(i, a.now):
			x.kind = readyStanding
		}
	}
	for i, x := range a.standing {
		a.of[x.kind] = append(a.of[x.kind], i)
	}
}

func (a *taskAnalysis) names(steps []int) []string {
	names := make([]string, len(steps))
	for n, i := range steps {
		names[n] = a.t.def(i).name
	}
	return names
}

func (a *taskAnalysis) dependencies() dependenciesView {
	ready, blocked := a.of[readyStanding], a.of[blockedStanding]
	completed, failed := a.of[completedStanding], a.of[failedStanding]
	return dependenciesView{
		Analysis: fmt.Sprintf("%d of %s completed, %d ready, %d blocked and %d failed; the longest path has %d.",
			len(completed), counted(len(a.standing), "step", "steps"), len(ready), len(blocked), len(failed),
			a.longestPath()),
		ReadySteps: a.names(ready), BlockedSteps: a.names(blocked), CompletedSteps: a.names(completed),
	}
}

// longestPath returns the length of the longest path, in steps.
func (a *taskAnalysis) longestPath() int {
	if len(a.paths) == 0 {
		return 0
	}
	return len(a.paths[0])
}

func (a *taskAnalysis) graph() stepGraphView {
	v := stepGraphView{Nodes: make([]stepNodeView, len(a.order)), Edges: []stepEdgeView{}, DependencyLevels: map[uuid]int{}}
	for n, i := range a.order {
		id, name, children := a.t.stepID(i), a.t.def(i).name, a.g.children(i)
		v.Nodes[n], v.DependencyLevels[id] = stepNodeView{id, name, a.level[i]}, a.level[i]
		v.TotalEdges += len(children)
		for _, c := range children[:min(len(children), maxListedEdges-len(v.Edges))] {
			v.Edges = append(v.Edges, stepEdgeView{id, a.t.stepID(c), name, a.t.def(c).name})
		}
	}
	v.EdgesTruncated = len(v.Edges) < v.TotalEdges
	return v
}

func (a *taskAnalysis) criticalPaths() criticalPathsView {
	v := criticalPathsView{LongestPathLength: a.longestPath(), Paths: make([]criticalPathView, len(a.paths))}
	for n, path := range a.paths {
		var steps [standingKinds]int
		for _, i := range path {
			steps[a.standing[i].kind]++
		}
		v.Paths[n] = criticalPathView{
			StepNames: a.names(path), Length: len(path),
			CompletedSteps: steps[completedStanding], BlockedSteps: steps[blockedStanding],
			ErrorSteps: steps[failedStanding], ReadySteps: steps[readyStanding],
			CompletionPercentage: percent(uint64(steps[completedStanding]), uint64(len(path))),
		}
	}
	return v
}

// parallelism counts steps by level: steps of one level do not wait for each other.
func (a *taskAnalysis) parallelism() parallelismView {
	v := parallelismView{TotalLevels: a.longestPath()}
	v.Levels = make([]stepLevelView, v.TotalLevels)
	for i := range a.standing {
		l := &v.Levels[a.level[i]]
		l.Level = a.level[i]
		l.TotalSteps++
		l.ReadySteps += boolCount(a.standing[i].kind == readyStanding)
		l.CompletedSteps += boolCount(a.standing[i].kind == completedStanding)
		l.StepNames = append(l.StepNames, a.t.def(i).name)
		v.MaxParallelSteps = max(v.MaxParallelSteps, l.TotalSteps)
	}
	return v
}

// worst returns the steps for which are is true: those with the highest atLeast
// first, and of equal ones those of the first level.
func (a *taskAnalysis) worst(are func(s *standing) bool) []int {
	found := slices.DeleteFunc(slices.Clone(a.order), func(i int) bool { return !are(&a.standing[i]) })
	slices.SortStableFunc(found, func(i, j int) int {
		return cmp.Compare(a.standing[j].atLeast(), a.standing[i].atLeast())
	})
	return found
}

// downstream returns the unfinished steps that wait for a step, directly or through other unfinished steps.
func (a *taskAnalysis) downstream(i int) []int {
	if a.behind[i] == nil {
		a.behind[i] = a.walk.behind(i)
	}
	return a.behind[i]
}

// errorChains lists what waits for failed steps, for the worst few of them.
func (a *taskAnalysis) errorChains() errorChainsView {
	failed := a.worst(func(s *standing) bool { return s.kind == failedStanding })
	v := errorChainsView{TotalErrorSteps: len(failed), ErrorChains: []errorChainView{}}
	for _, i := range failed[:min(len(failed), maxErrorChains)] {
		behind := a.downstream(i)
		v.ErrorChains = append(v.ErrorChains, errorChainView{a.t.def(i).name, a.names(behind), len(behind)})
	}
	return v
}

// bottleneck reports whether unfinished steps wait for the step while it waits for none.
func (s *standing) bottleneck() bool {
	return s.waiting > 0 && s.kind != completedStanding && s.kind != blockedStanding
}

// bottlenecks lists the worst bottlenecks, the greatest impact first.
func (a *taskAnalysis) bottlenecks() stepBottlenecksView {
	found := a.worst((*standing).bottleneck)
	v := stepBottlenecksView{TotalBottlenecks: len(found), Bottlenecks: []stepBottleneckView{}}
	for _, i := range found[:min(len(found), maxStepBlockages)] {
		v.Bottlenecks = append(v.Bottlenecks, a.bottleneck(i))
	}
	slices.SortStableFunc(v.Bottlenecks, func(x, y stepBottleneckView) int {
		return cmp.Compare(y.ImpactScore, x.ImpactScore)
	})
	return v
}

// unfinishedSteps returns how many steps are neither completed nor cancelled.
func (a *taskAnalysis) unfinishedSteps() int {
	c := &a.t.counts
	return len(a.t.steps) - c[stepComplete] - c[stepResolvedManually] - c[stepCancelled]
}

// bottleneck describes one bottleneck. Its impact score is the share of the
// task's unfinished steps that wait for it, in percent.
func (a *taskAnalysis) bottleneck(i int) stepBottleneckView {
	s := &a.t.steps[i]
	v := stepBottleneckView{
		StepName: a.t.def(i).name, CurrentState: s.state.String(), Attempts: s.attempts, RetryLimit: s.maxAttempts,
		ImpactScore: percent(uint64(len(a.downstream(i))), uint64(a.unfinishedSteps())),
	}
	v.BottleneckType, v.ResolutionStrategy = blockage(a.t, i)
	v.Severity = s.severity(v.ImpactScore)
	return v
}

// wideImpact is the impact score from which a bottleneck that has not failed is of medium severity.
const wideImpact = 50.0

// severity returns critical if only an operator can help, high if an attempt has
// failed, medium if many steps wait, else low.
func (s *step) severity(impact float64) string {
	switch {
	case s.state == stepInError || s.state == stepCancelled:
		return "critical"
	case s.state == stepWaitingForRetry || s.attempts > 1:
		return "high"
	case impact >= wideImpact:
		return "medium"
	}
	return "low"
}

// blockage returns why a step that others wait for is not done, and what to do.
func blockage(t *task, i int) (kind, strategy string) {
	s := &t.steps[i]
	switch s.state {
	case stepCancelled:
		return "cancelled", "Complete or resolve by hand the steps that wait for it, or cancel the task."
	case stepInError:
		f, failed := s.last.fault()
		if t.def(i).retry.Retryable && (!failed || f.retryable) && s.attempts >= s.maxAttempts {
			return "retries_exhausted", "Remove the cause, then reset the step; or complete or resolve it by hand."
		}
		return "permanent_failure", "Correct what the error says, then reset the step; or complete or resolve it by hand."
	case stepWaitingForRetry:
		return "waiting_for_retry", fmt.Sprintf("Wait for attempt %d of %d, due at %s.",
			s.attempts+1, s.maxAttempts, s.retryAt.zoned())
	case stepEnqueued:
		return "queued", "It waits for a free slot, or for an outside actor to claim it."
	case stepPending:
		return "not_started", "It starts automatically once no failed step blocks the task."
	}
	return "running", fmt.Sprintf("Wait for attempt %d of %d to end.", s.attempts, s.maxAttempts)
}

func (a *taskAnalysis) summary(v *dependencyAnalysisView) taskExecutionView {
	return taskExecutionView{
		TotalSteps: len(a.standing), TotalDependencies: v.DependencyGraph.TotalEdges,
		DependencyLevels: len(v.ParallelismOpportunities.Levels), LongestPathLength: a.longestPath(),
		OverallHealth: executionOf(a.t, a.t.readySteps(a.now)).health, Recommendations: []string{},
	}
}

// Views of the analysis.

// dependenciesView is the standing of a task's steps in short.
type dependenciesView struct {
	Analysis       string   `json:"analysis"` // one sentence
	ReadySteps     []string `json:"ready_steps"`
	BlockedSteps   []string `json:"blocked_steps"`
	CompletedSteps []string `json:"completed_steps"`
}

// dependencyAnalysisView is the full analysis.
type dependencyAnalysisView struct {
	DependencyGraph          stepGraphView       `json:"dependency_graph"`
	CriticalPaths            criticalPathsView   `json:"critical_paths"`
	ParallelismOpportunities parallelismView     `json:"parallelism_opportunities"`
	ErrorChains              errorChainsView     `json:"error_chains"`
	Bottlenecks              stepBottlenecksView `json:"bottlenecks"`
	TaskExecutionSummary     taskExecutionView   `json:"task_execution_summary"`
	AnalysisTimestamp        zonedTime           `json:"analysis_timestamp"`
}

// stepGraphView lists the steps level by level. EdgesTruncated says that a dense
// graph has more edges than those listed.
type stepGraphView struct {
	Nodes            []stepNodeView `json:"nodes"`
	Edges            []stepEdgeView `json:"edges"`
	TotalEdges       int            `json:"total_edges"`
	EdgesTruncated   bool           `json:"edges_truncated"`
	DependencyLevels map[uuid]int   `json:"dependency_levels"`
}

type stepNodeView struct {
	ID    uuid   `json:"id"`
	Name  string `json:"name"`
	Level int    `json:"level"`
}

type stepEdgeView struct {
	From     uuid   `json:"from"` // the step that the other waits for
	To       uuid   `json:"to"`
	FromName string `json:"from_name"`
	ToName   string `json:"to_name"`
}

type criticalPathsView struct {
	LongestPathLength int                `json:"longest_path_length"` // in steps
	Paths             []criticalPathView `json:"paths"`
}

// criticalPathView counts the steps of a path by standing.
type criticalPathView struct {
	StepNames            []string `json:"step_names"`
	Length               int      `json:"length"`
	CompletedSteps       int      `json:"completed_steps"`
	BlockedSteps         int      `json:"blocked_steps"`
	ErrorSteps           int      `json:"error_steps"`
	ReadySteps           int      `json:"ready_steps"`
	CompletionPercentage float64  `json:"completion_percentage"`
}

type parallelismView struct {
	TotalLevels      int             `json:"total_levels"`
	MaxParallelSteps int             `json:"max_parallel_steps"` // the most on one level
	Levels           []stepLevelView `json:"levels"`
}

type stepLevelView struct {
	Level          int      `json:"level"`
	TotalSteps     int      `json:"total_steps"`
	ReadySteps     int      `json:"ready_steps"`
	CompletedSteps int      `json:"completed_steps"`
	StepNames      []string `json:"step_names"`
}

type errorChainsView struct {
	TotalErrorSteps int              `json:"total_error_steps"`
	ErrorChains     []errorChainView `json:"error_chains"`
}

type errorChainView struct {
	ErrorStepName   string   `json:"error_step_name"`
	DownstreamSteps []string `json:"downstream_steps"` // the nearest first
	TotalImpact     int      `json:"total_impact"`     // how many those are
}

type stepBottlenecksView struct {
	TotalBottlenecks int                  `json:"total_bottlenecks"`
	Bottlenecks      []stepBottleneckView `json:"bottlenecks"`
}

type stepBottleneckView struct {
	StepName           string  `json:"step_name"`
	CurrentState       string  `json:"current_state"`
	Attempts           int     `json:"attempts"`
	RetryLimit         int     `json:"retry_limit"`
	ImpactScore        float64 `json:"impact_score"`
	Severity           string  `json:"severity"`
	BottleneckType     string  `json:"bottleneck_type"`
	ResolutionStrategy string  `json:"resolution_strategy"`
}

type taskExecutionView struct {
	TotalSteps        int      `json:"total_steps"`
	TotalDependencies int      `json:"total_dependencies"`
	DependencyLevels  int      `json:"dependency_levels"`
	LongestPathLength int      `json:"longest_path_length"`
	OverallHealth     string   `json:"overall_health"`
	Recommendations   []string `json:"recommendations"` // always empty, for clients that read it
}
