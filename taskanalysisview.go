package main

// The analysis of a task's dependencies on the wire of the mount point.

import "strconv"

// dependenciesView says in short how the steps of a task stand.
type dependenciesView struct {
	Analysis       string   `json:"analysis"` // one sentence
	ReadySteps     []string `json:"ready_steps"`
	BlockedSteps   []string `json:"blocked_steps"`
	CompletedSteps []string `json:"completed_steps"`
}

// dependencyAnalysisView is all that the graph of a task's steps shows.
type dependencyAnalysisView struct {
	DependencyGraph          stepGraphView       `json:"dependency_graph"`
	CriticalPaths            criticalPathsView   `json:"critical_paths"`
	ParallelismOpportunities parallelismView     `json:"parallelism_opportunities"`
	ErrorChains              errorChainsView     `json:"error_chains"`
	Bottlenecks              stepBottlenecksView `json:"bottlenecks"`
	TaskExecutionSummary     taskExecutionView   `json:"task_execution_summary"`
	AnalysisTimestamp        zonedTime           `json:"analysis_timestamp"`
}

// stepGraphView lists the steps level by level. Of a dense graph only the first
// edges are listed, and EdgesTruncated says so.
type stepGraphView struct {
	Nodes            []stepNodeView `json:"nodes"`
	Edges            []stepEdgeView `json:"edges"`
	TotalEdges       int            `json:"total_edges"`
	EdgesTruncated   bool           `json:"edges_truncated"`
	DependencyLevels stepLevelsView `json:"dependency_levels"`
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

// stepLevelsView is an object: a step's id to its level.
type stepLevelsView []stepNodeView

// MarshalJSON implements json.Marshaler; a map would be sorted.
func (v stepLevelsView) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 2+48*len(v)), '{')
	for i, n := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(n.ID.appendText(append(b, '"')), `":`...)
		b = strconv.AppendInt(b, int64(n.Level), 10)
	}
	return append(b, '}'), nil
}

type criticalPathsView struct {
	LongestPathLength int                `json:"longest_path_length"` // in steps
	Paths             []criticalPathView `json:"paths"`
}

// criticalPathView counts the steps of a path by how they stand.
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
	Recommendations   []string `json:"recommendations"`
}
