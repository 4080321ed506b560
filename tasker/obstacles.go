package main

// What keeps a task from moving: the limits of Tasker's database and service.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	farAway    = 30 * time.Minute // how far away a retry may be, and how long a step may wait for somebody
	mostCursor = 2000             // bytes of a checkpoint's cursor, which has an index
	mostDigits = 16000            // of a number, about
)

// obstacles returns why a task cannot move.
func (e *export) obstacles(x *moved) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	long := func(what, text string, most int) {
		if n := utf8.RuneCountInString(text); n > most {
			say("its %s has %d characters; at most %d fit", what, n, most)
		}
	}
	long("namespace", x.Namespace, 29)
	long("template's name", x.Name, 64)
	long("template's version", x.Version, 16)
	if n, err := x.Priority.Int64(); err != nil || int64(int32(n)) != n {
		say("its priority %s is not an integer of 32 bits", x.Priority)
	}
	states := map[string]int{}
	for _, s := range x.steps {
		states[s.State]++
		long(fmt.Sprintf("step name %.40q", s.Name), s.Name, 128)
		if len(at(s.Checkpoint, "cursor")) > mostCursor {
			say("the cursor of the checkpoint of step %q has more than %d bytes", s.Name, mostCursor)
		}
		if x.unfinished() && !finished(s.State) {
			if why := e.obstacle(x, s); why != "" {
				say("step %q %s", s.Name, why)
			}
		}
	}
	if x.over() || x.Status == "error" {
		return all
	}
	if e.contents[x.fullName()].hash != x.def.hash {
		say("a later task was made from another definition of %s, and there only one can have this name and version", x.fullName())
	}
	if x.unfinished() && states["cancelled"] > 0 {
		say("one of its steps is cancelled, and there a task with a cancelled step never completes")
	}
	if x.unfinished() && states["enqueued"]+states["in_progress"]+states["waiting_for_retry"] == 0 {
		say("none of its steps can run")
	}
	return all
}

// obstacle returns why a step of an unfinished task cannot continue there, or "".
func (e *export) obstacle(x *moved, s *step) string {
	def := &x.def.Steps[x.def.declaredAs(s.Name)]
	attempts := x.attempts(s)
	due, _ := parseTime(s.NextRetry)
	switch {
	case s.State == "error":
		return "has failed for good, which blocks its task there"
	case s.State == "waiting_for_retry" && due.Sub(e.p.now()) > farAway:
		return "is due to be retried at " + s.NextRetry + ", more than 30m from now, which is longer than its task may wait there"
	case s.State == "enqueued" && after(e.last, s.Updated) > farAway:
		return "has waited since " + s.Updated + " to be claimed, longer than the 30m that its task may wait there"
	case slices.ContainsFunc(s.audit, func(a audit) bool { return !isNull(a.Inputs) }):
		return "has inputs that an operator set, which cannot be stored there"
	case attempts > 0 && !(def.Retry.Retryable && attempts < s.MaxAttempts):
		return fmt.Sprintf("has had %d attempts, and may not have more there", attempts)
	case def.Type == "batch_worker" && !isNull(x.cursors[s.ID]) && members(x.cursors[s.ID]) == nil:
		return "has a cursor that is not an object"
	}
	return ""
}

// textObstacles returns what PostgreSQL cannot store of a JSON text: U+0000, and numbers with more than 16383 digits
// after the point or 131072 before it.
func textObstacles(text []byte) []string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return []string{"it is not valid JSON: " + err.Error()}
		}
		switch v := token.(type) {
		case string:
			if strings.ContainsRune(v, 0) {
				return []string{"a text of it has U+0000"}
			}
		case json.Number:
			if digits(string(v)) > mostDigits {
				return []string{"a number of it has more digits than PostgreSQL stores"}
			}
		}
	}
}

// digits returns how many digits a number has if it is written without its exponent.
func digits(number string) int {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	exponent = strings.TrimLeft(exponent, "+-0")
	if len(exponent) > 6 {
		return 1e6
	}
	n, _ := strconv.Atoi(exponent)
	return n + len(strings.Trim(mantissa, "-."))
}
