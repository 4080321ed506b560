package main

// Which routes ask for which permission, as "auth show-permissions" prints it:
// read from the route tables.

import "strings"

// surfaceRoutes is the route table of one surface.
type surfaceRoutes struct {
	surface string
	routes  []route
}

// allRoutes are the tables of all surfaces, for reading: their handlers have no
// service behind them.
func allRoutes() []surfaceRoutes {
	return []surfaceRoutes{
		{"orchestration", (&orchestrationAPI{}).routes()},
		{"worker", (&workerAPI{}).routes()},
		{"mount", (&mountAPI{}).routes()},
	}
}

// askedBy lists, by permission, the routes that ask for it: method and path, what
// else would do, and the surface unless it is the orchestration role's.
func askedBy() (asked [permissionCount][]string) {
	for _, table := range allRoutes() {
		for _, row := range table.routes {
			for _, p := range row.permissions {
				asked[p] = append(asked[p], describeRoute(table.surface, row, p))
			}
		}
	}
	asked[permTasksContextRead] = append(asked[permTasksContextRead], "a task's context wherever it appears")
	return asked
}

// describeRoute is a row of a table as one sees it who holds p.
func describeRoute(surface string, row route, p permission) string {
	text := row.pattern
	if surface != "orchestration" {
		text += " (" + surface + ")"
	}
	var others []string
	for _, other := range row.permissions {
		if other != p {
			others = append(others, other.String())
		}
	}
	if len(others) > 0 {
		text += " (or " + strings.Join(others, ", ") + ")"
	}
	return text
}
