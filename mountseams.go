package main

// What the mount-point API shows of analyses, until they are there.

import "net/http"

type (
	dependenciesView       struct{}
	dependencyAnalysisView struct{}
)

func analyzeTask(*task, instant) (dependenciesView, dependencyAnalysisView) {
	return dependenciesView{}, dependencyAnalysisView{}
}

func (a *mountAPI) performance(http.ResponseWriter, *http.Request) error {
	return failf(unavailable, "the figures cannot be computed")
}

func (a *mountAPI) bottlenecks(http.ResponseWriter, *http.Request) error {
	return failf(unavailable, "the figures cannot be computed")
}
