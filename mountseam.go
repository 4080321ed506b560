package main

// mountAPI stands in for the surface of the mount point.
type mountAPI struct{ *surface }
