package main

// The door to the terminal. What services and files say is data: it cannot move the cursor, retitle the window, forge
// a line or reorder what a person reads. Texts of documents are printable (see document.text), and everything else that
// a terminal gets passes a door, which escapes what misleads.

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// door is an output that people read. It escapes the characters that mislead, except line feeds.
type door struct {
	w io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character that the next Write ends; guarded by mu
}

func (d *door) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := append(d.rest, p...)
	// A writer may split a text anywhere, so the bytes of a cut character wait for the rest.
	end := len(text) - cutRune(text)
	d.rest = bytes.Clone(text[end:])
	if _, err := io.WriteString(d.w, escape(string(text[:end]), "\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// behindDoor returns the output itself, for printable texts with our own colours and moves of the cursor.
func behindDoor(w io.Writer) io.Writer {
	if d, ok := w.(*door); ok {
		return d.w
	}
	return w
}

// isTerminal reports whether an output is a terminal, or another character device.
func isTerminal(w io.Writer) bool {
	if q, ok := w.(*logQueue); ok {
		w = q.to
	}
	f, ok := behindDoor(w).(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
