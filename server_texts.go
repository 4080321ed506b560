package main

// Public texts that many callers get: documents, pages, the files of the console, metrics. A text is compressed once
// for all of them, and those that are made again are shared by the requests that wait.

import (
	"bytes"
	"compress/gzip"
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

// newTaggedText returns a text with a tag, which also depends on the policy.
func newTaggedText(contentType string, plain []byte, policy string) *packedText {
	t := newPackedText(contentType, plain, gzip.BestCompression) // which is done once for all readers
	t.policy, t.tag = policy, contentTag(append([]byte(policy), plain...))
	return t
}

func gzipped(text []byte, level int) []byte {
	b := bytes.NewBuffer(make([]byte, 0, len(text)/4))
	z, _ := gzip.NewWriterLevel(b, level) // the level is valid
	z.Write(text)                         // a buffer takes everything
	z.Close()
	return b.Bytes()
}

// reply sets the headers of a text with a tag and returns the answer.
func (t *packedText) reply(w *responseWriter, r *http.Request) any {
	if t.policy != "" {
		h := w.Header()
		h.Set("Content-Security-Policy", t.policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		keepToOwnPages(h)
	}
	return withTag(w, r, t.tag, t)
}

// write writes the text.
func (t *packedText) write(w *responseWriter) {
	body := t.plain
	if w.wantsGzip(len(body)) {
		body = t.zip()
		markGzip(w.Header())
	}
	writeBody(w, http.StatusOK, t.contentType, body)
}

// textForms are texts that differ by a word, such as the path to their links. They are made when they are first asked
// for. It is safe for concurrent use.
type textForms struct {
	mu    sync.Mutex
	forms map[string]*packedText // guarded by mu
}

// maxTextForms bounds the memory of forms; all are made again after that.
const maxTextForms = 16

// get returns the text for a word.
func (f *textForms) get(word string, create func() *packedText) *packedText {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.forms[word]
	if t == nil {
		if len(f.forms) == maxTextForms || f.forms == nil {
			f.forms = map[string]*packedText{}
		}
		t = create()
		f.forms[word] = t
	}
	return t
}

// sharedText is a text that describes the present. A request gets a text that was begun after it arrived: the latest
// one if it had to wait for a turn meanwhile, or else the next one, together with all others that arrive until that is
// begun. It is safe for concurrent use.
type sharedText struct {
	mu     sync.Mutex
	latest *textMaking // the latest one that was begun; nil for none. Guarded by mu, like all below
	next   *textMaking // the one that was not begun yet; nil while nobody waits for it
}

// textMaking is one text that is being made or was made.
type textMaking struct {
	begun time.Time
	done  chan struct{}
	text  *packedText // once done is closed; nil if making it failed
}

// get returns a text that was begun after a request arrived. create gets the length of the latest one, in bytes.
func (s *sharedText) get(arrived time.Time, create func(size int) *packedText) *packedText {
	s.mu.Lock()
	m, before := s.next, s.latest
	if before != nil && arrived.Before(before.begun) {
		m = before
	}
	first := m == nil
	if first {
		m = &textMaking{done: make(chan struct{})}
		s.next = m
	}
	s.mu.Unlock()
	if first {
		s.make(m, before, create)
	}
	<-m.done
	return m.text
}

// make makes the next text, once the one before it is made.
func (s *sharedText) make(m, before *textMaking, create func(size int) *packedText) {
	defer close(m.done)
	size := 0
	if before != nil {
		// Only one text is made at a time, however many requests come.
		<-before.done
		if before.text != nil {
			size = len(before.text.plain)
		}
	}
	s.mu.Lock()
	s.latest, s.next, m.begun = m, nil, time.Now()
	s.mu.Unlock()
	m.text = create(size)
}
