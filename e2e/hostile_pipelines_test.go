package e2e

// Hostile clients that send many requests at once, without waiting for the responses (RFC 9112, 9.3.2).

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// pipelinedRequests are sent at once on each connection; 40 for those on every path.
const pipelinedRequests = 20

var pipelines = flag.Int("hostile.pipelines", 0, "connections of TestHostilePipelines on every path")

// dailyPaths are attacked in each run.
var dailyPaths = regexp.MustCompile(`^orchestration/(metrics|v1/tasks)$`)

// TestHostilePipelines sends pipelined requests to a sixteenth of the GET routes of the program, another one each day, and to
// all if the flag says to how many connections.
func TestHostilePipelines(t *testing.T) {
	wire.Long(t)
	count := cmp.Or(*pipelines, hostileMost)
	p := serveWith(t, nil, "--memory", "--quiet")
	for _, surface := range []struct{ name, url, prefix string }{
		{"orchestration", p.ready.OrchestrationURL, ""}, {"worker", p.ready.WorkerURL, ""}, {"mount", p.ready.OrchestrationURL, "/stepwell"},
	} {
		for n, path := range getPaths(t, surface.url+surface.prefix) {
			today := *pipelines > 0 || (n+time.Now().YearDay())%16 == 0
			if !dailyPaths.MatchString(surface.name+path) && !today {
				continue
			}
			t.Run(surface.name+path, func(t *testing.T) {
				newHostileTest(t, pipelined(surface.prefix+path, surface.name == "worker", count)).run()
			})
		}
	}
	p.stop()
}

// getPaths returns the paths of a surface's GET routes by its OpenAPI document, which has them all.
func getPaths(t *testing.T, url string) (paths []string) {
	t.Helper()
	a := readAnswer(t, wire.Must(http.Get(url+"/api-docs.json"))(t))
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(a.body, &document); err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		if document.Paths[path]["get"] != nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// pipelined is a kind that sends many requests for a path at once and reads the responses.
func pipelined(path string, worker bool, count int) hostileKind {
	many := pipelinedRequests
	if *pipelines > 0 {
		many *= 2
	}
	requests := strings.Repeat(hostileGet(path, "Accept-Encoding: gzip\r\n\r\n"), many)
	limit := count * 3 / 5 // 3000 of 5000, as without any configuration
	return hostileKind{
		name: path, count: count, first: requests, beat: asksAgain, worker: worker, every: time.Second / 2, beats: 2, limit: limit,
		env: []string{fmt.Sprint("STEPWELL_WEB__MAX_CONNECTIONS=", limit)},
	}
}
