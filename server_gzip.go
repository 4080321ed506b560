package main

// Compressed answers. A long answer is compressed while it is sent; an event stream never is. Nor is
// the answer to a change: a worker that asks for gzip by default, as net/http does, would pay for it with
// every batch.

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

const (
	gzipFrom   = 1 << 10    // bytes; shorter answers are sent as they are
	gzipMemory = 1200 << 10 // that compressing takes, about
	gzipSuffix = "-gzip"    // of the entity tags of compressed answers
)

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// gzipBody compresses the body of an answer.
type gzipBody struct {
	to  *responseWriter
	zip *gzip.Writer
	out []byte // compressed, and not yet sent
}

// beginGzip compresses the body that follows if the client asks for it, and it is of a kind
// that gets shorter. A long answer is not compressed when there is no room for that.
func (w *responseWriter) beginGzip() {
	h := w.Header()
	n := -1 // unknown
	if given := h["Content-Length"]; given != nil {
		n, _ = strconv.Atoi(given[0])
	}
	kind := h["Content-Type"]
	short := n >= 0 && n < gzipFrom
	switch {
	case w.status == http.StatusNotModified: // as the whole answer has it
	case w.change || kind == nil || !compressible(kind[0]) || h["Content-Range"] != nil || w.status/100 == 3 || short && h["Etag"] == nil:
		return
	}
	h["Vary"] = append(h["Vary"], "Accept-Encoding")
	if w.status == http.StatusNotModified || short || w.head || !acceptsGzip(w.asked) || (n < 0 || n > jsonPiece) && !w.share.addCoding() {
		return
	}
	w.body = &gzipBody{to: w, zip: gzipWriters.Get().(*gzip.Writer)}
	w.body.zip.Reset(w.body)
	delete(h, "Content-Length")
	h["Content-Encoding"] = []string{"gzip"}
	if tag, strong := strings.CutSuffix(h.Get("Etag"), `"`); strong && tag[0] == '"' {
		h["Etag"] = []string{tag + gzipSuffix + `"`}
	}
}

// compressible reports whether bodies of a type get shorter.
func compressible(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return media == jsonType || strings.HasPrefix(media, "text/") && media != "text/event-stream" ||
		strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml") || media == openMetricsMedia
}

// acceptsGzip reports whether a client asks for gzip.
func acceptsGzip(asked http.Header) bool {
	given := asked["Accept-Encoding"]
	weight := max(acceptWeight(given, "gzip"), acceptWeight(given, "x-gzip"))
	if weight < 0 {
		weight = acceptWeight(given, "*")
	}
	return weight > 0 && weight >= acceptWeight(given, "identity")
}

// acceptWeight returns the weight that an Accept header gives to a name; -1 if it does not
// name it.
func acceptWeight(values []string, name string) float64 {
	weight := -1.0
	for _, value := range values {
		for element := range strings.SplitSeq(value, ",") {
			named, parameters, _ := strings.Cut(element, ";")
			if strings.EqualFold(strings.TrimSpace(named), name) {
				weight = max(weight, quality(parameters))
			}
		}
	}
	return weight
}

// quality returns the weight among parameters; 1 without a valid one.
func quality(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		if q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameter)), "q="); ok {
			if weight, err := strconv.ParseFloat(q, 64); err == nil {
				return min(max(weight, 0), 1)
			}
		}
	}
	return 1
}

// Write takes compressed bytes.
func (z *gzipBody) Write(p []byte) (int, error) {
	z.out = append(z.out, p...)
	return len(p), nil
}

// take compresses a piece, and sends what is complete.
func (z *gzipBody) take(piece []byte) (int, error) {
	if _, err := z.zip.Write(piece); err != nil || len(z.out) < jsonPiece {
		return len(piece), err
	}
	_, err := z.to.send(z.out)
	z.out = z.out[:0]
	return len(piece), err
}

// endGzip sends the rest of a compressed body.
func (w *responseWriter) endGzip() {
	if z := w.body; z != nil && !w.gone {
		z.zip.Close()
		gzipWriters.Put(z.zip)
		w.body = nil
		w.send(z.out)
	}
}
