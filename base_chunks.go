package main

// Reading in chunks what comes from outside: bodies of requests, and replies.

import (
	"bytes"
	"io"
	"sync"
)

// The first bytes that are read have memory of their own. The rest comes in chunks, which are used
// again, so that what never ends leaves no garbage.
const (
	firstChunk = 1 << 10
	chunkSize  = 16 << 10
)

var chunkPool = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// readChunks reads to the end of r. It allocates memory as data arrives, not by the announced length, which is -1 if
// there is none. Before each allocation it calls grow, unless that is nil, with the size that will fit afterwards; an error
// ends the reading.
func readChunks(r io.Reader, announced int64, grow func(size int) error) (data []byte, err error) {
	var chunks []*[chunkSize]byte
	defer func() {
		for _, c := range chunks {
			chunkPool.Put(c)
		}
	}()
	// The announced length is a claim of the sender: it may make the first memory smaller, never larger than
	// firstChunk.
	room := make([]byte, min(max(announced, bytes.MinRead), firstChunk))
	first, size := room, 0
	for {
		n, err := r.Read(room)
		size, room = size+n, room[n:]
		if err == io.EOF {
			return joinChunks(first, chunks, size), nil
		}
		if err == nil && len(room) == 0 && grow != nil {
			err = grow(size + chunkSize)
		}
		if err != nil {
			return nil, err
		}
		if len(room) == 0 {
			chunks = append(chunks, chunkPool.Get().(*[chunkSize]byte))
			room = chunks[len(chunks)-1][:]
		}
	}
}

// joinChunks returns the data of some size that was read into its first bytes and chunks.
func joinChunks(first []byte, chunks []*[chunkSize]byte, size int) []byte {
	if size <= len(first) {
		return first[:size]
	}
	data := append(make([]byte, 0, size), first...)
	for _, c := range chunks {
		data = append(data, c[:min(chunkSize, size-len(data))]...)
	}
	return data
}
