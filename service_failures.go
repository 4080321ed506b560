package main

// Failures by cause: which steps fail now and why, and how many tasks are stuck by that.

// failuresView is the answer of /v1/analytics/failures.
type failuresView struct {
	Groups       []failureGroupView `json:"groups"`
	OtherGroups  otherFailuresView  `json:"other_groups"`
	CalculatedAt zonedTime          `json:"calculated_at"`
}

// failureGroupView is one group. The sample is the step of it that failed last.
type failureGroupView struct {
	Group           failureGroup `json:"group"`
	NamespaceName   string       `json:"namespace_name"`
	TaskName        string       `json:"task_name"`
	StepName        string       `json:"step_name"` // in the template
	ErrorType       string       `json:"error_type"`
	Message         *string      `json:"message,omitempty"`
	MessageRedacted bool         `json:"message_redacted,omitempty"`
	failedTasksView
	Course         failureCourse `json:"course"`
	SampleTaskUUID uuid          `json:"sample_task_uuid"`
	SampleStepUUID uuid          `json:"sample_step_uuid"`
}

// failedTasksView counts the tasks of one group or several.
type failedTasksView struct {
	StuckTasks     int       `json:"stuck_tasks"`
	RetryingTasks  int       `json:"retrying_tasks"`
	FirstFailureAt zonedTime `json:"first_failure_at"`
	LastFailureAt  zonedTime `json:"last_failure_at"`
}

// otherFailuresView is the groups that are not listed, together.
type otherFailuresView struct {
	Groups int `json:"groups"`
	failedTasksView
}

func (c *failureCount) view() failedTasksView {
	return failedTasksView{c.stuck, c.retrying, zonedTime(c.first), zonedTime(c.last)}
}

// failures returns the groups of the templates that a filter selects by namespace and name, and of the steps that failed
// after an instant, those with the most tasks first and at most limit of them, with or without the messages of handlers. It asks for the memory of
// tasks that it decodes.
func (s *service) failures(f *taskFilter, since instant, limit int, messages bool, by holder) (v failuresView, err error) {
	now := s.clock.now()
	c := countFailures(s.store, f, since, limit, now)
	v = failuresView{
		Groups:       make([]failureGroupView, len(c.top)),
		OtherGroups:  otherFailuresView{c.groups - len(c.top), c.others.view()},
		CalculatedAt: zonedTime(now),
	}
	for i := range v.Groups {
		step, err := c.samples[i].read(by)
		if err != nil {
			return v, err
		}
		v.Groups[i] = c.top[i].groupView(step, messages)
		v.Groups[i].Course = c.courses[i]
	}
	return v, nil
}

// groupView returns the view of a group with this sample.
func (c *failureCount) groupView(sample failedStep, messages bool) failureGroupView {
	cause := sample.cause()
	v := failureGroupView{
		Group: c.group, NamespaceName: cause.namespace, TaskName: cause.name, StepName: cause.step,
		ErrorType: cause.errorType, MessageRedacted: !messages, failedTasksView: c.view(),
		SampleTaskUUID: sample.task, SampleStepUUID: sample.id,
	}
	if messages {
		v.Message = &cause.message
	}
	return v
}
