package main

// The tasker family: tasks that move to the distributed service that speaks the same API, and back. It knows no
// connection and no command.
//
//	tasker_pull.go  the pull of tasks, as the API tells them, into a state document
