package wire

// Helpers of both packages of tests to talk to the program.

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// Event is an event of a stream.
type Event struct {
	ID   uint64 // its number; 0 for none
	Mark string // the whole id: a life and the number; "" for none
	Type string
	Data string
}

// Place returns the place of an event in the order of all.
func (e Event) Place(t testing.TB) (place struct{ Seq, N int }) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.Data), &place); err != nil {
		t.Fatalf("%v in %q", err, e.Data)
	}
	return place
}

// ParseEvents reads a stream by the rules of server-sent events.
func ParseEvents(text string) (events []Event, lastID uint64) {
	for block := range strings.SplitSeq(text, "\n\n") {
		e := Event{}
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "id":
				e.Mark = value
				e.ID, _ = strconv.ParseUint(value[strings.IndexByte(value, '-')+1:], 10, 64) // after the life
				lastID = e.ID
			case "event":
				e.Type = value
			case "data":
				e.Data = value
			}
		}
		if e.Data != "" {
			events = append(events, e)
		}
	}
	return events, lastID
}

// LastMark returns the last id in the text of a stream, "" for none.
func LastMark(text string) string {
	i := strings.LastIndex(text, "\nid: ")
	if i < 0 && !strings.HasPrefix(text, "id: ") {
		return ""
	}
	mark, _, _ := strings.Cut(strings.TrimPrefix(text[i+1:], "id: "), "\n")
	return mark
}
