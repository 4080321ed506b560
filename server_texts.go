package main

// Public texts that many callers get: documents, pages, the files of the console, metrics. A text is compressed once
// for all of them, and those that are made again are shared by the requests that wait.

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"
)

// packedText is a text as an answer with status 200. It does not change.
type packedText struct {
	contentType string
	plain       []byte
	policy      string        // of a page: Content-Security-Policy
	tag         string        // its entity tag; "" for none
	zip         func() []byte // returns the compressed text, which the first call makes
}

func newPackedText(contentType string, plain []byte, level int) *packedText {
	zip := sync.OnceValue(func() []byte { return gzipped(plain, level) })
	return &packedText{contentType: contentType, plain: plain, zip: zip}
}

// newTaggedText returns a text with a tag, which also depends on the policy. The tag is weak, so that it counts for the
// compressed text as well.
func newTaggedText(contentType string, plain []byte, policy string) *packedText {
	t := newPackedText(contentType, plain, gzip.BestCompression) // which is done once for all readers
	sum := sha256.Sum256(append([]byte(policy), plain...))
	t.policy, t.tag = policy, weakTag(hex.EncodeToString(sum[:12]))
	return t
}

// gzipFrom is the length from which a text is compressed, in bytes.
const gzipFrom = 1 << 10

func gzipped(text []byte, level int) []byte {
	b := bytes.NewBuffer(make([]byte, 0, len(text)/4))
	z, _ := gzip.NewWriterLevel(b, level) // the level is valid
	z.Write(text)                         // a buffer takes everything
	z.Close()
	return b.Bytes()
}

// reply sets the headers of a text with a tag and returns the answer.
func (t *packedText) reply(w *responseWriter, r *http.Request) any {
	h := w.Header()
	if t.policy != "" {
		h.Set("Content-Security-Policy", t.policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		keepToOwnPages(h)
	}
	answer := withTag(w, r, t.tag, t)
	if _, known := answer.(notModified); known {
		h["Vary"] = append(h["Vary"], "Accept-Encoding") // as write does
	}
	return answer
}

// write writes the text.
func (t *packedText) write(w *responseWriter) {
	body, h := t.plain, w.Header()
	h["Vary"] = append(h["Vary"], "Accept-Encoding")
	if len(body) >= gzipFrom && !w.head && acceptWeight(w.asked["Accept-Encoding"], "gzip") > 0 {
		body = t.zip()
		h["Content-Encoding"] = []string{"gzip"}
	}
	writeBody(w, http.StatusOK, t.contentType, body)
}

// sharedText is a text that describes the present. Callers that wait for their turn to make it share one that was begun
// meanwhile, which therefore shows nobody what was before their request. It is safe for concurrent use.
type sharedText struct {
	mu     sync.Mutex
	begun  time.Time   // when the latest one was begun; guarded by mu, as below
	latest *packedText // nil for none
}

// get returns a text that was begun after a request arrived. create gets the length of the latest one, in bytes.
func (s *sharedText) get(arrived time.Time, create func(size int) *packedText) *packedText {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil || !arrived.Before(s.begun) {
		size := 0
		if s.latest != nil {
			size = len(s.latest.plain)
		}
		s.begun = time.Now()
		s.latest = create(size)
	}
	return s.latest
}
