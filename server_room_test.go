package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowReaders checks that a reader that takes a piece from time to time gets the whole
// answer, and that one that takes nothing is cut off. Neither holds the memory longer.
func TestSlowReaders(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every time.Duration // between two reads of half a piece
		whole bool
	}{
		{"slow", answerPatience / 3, true},
		{"too slow", answerPatience, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipedServer(t, serviceTest{templates: apiTemplates})
				createWith(t, p.svc, longContext)
				r := p.get("/v1/tasks")
				var body bytes.Buffer
				var err error
				for err == nil {
					time.Sleep(tc.every) // of the bubble's time
					_, err = io.CopyN(&body, r, jsonPiece/2)
				}
				if whole := err == io.EOF && json.Valid(body.Bytes()); whole != tc.whole {
					t.Errorf("got %d bytes, %v; want the whole answer: %v", body.Len(), err, tc.whole)
				}
				synctest.Wait()
				if room := p.api.surface.room; room.taken != 0 || len(room.shares) > 0 || room.cut != uint64(boolCount(!tc.whole)) {
					t.Errorf("got %+v", room)
				}
			})
		})
	}
}

// TestAnswersMakeRoom fills the room with answers. Another one waits until some of them
// have been stalled for a while and are cut off, or is refused if they move. Short
// answers have room in any case.
func TestAnswersMakeRoom(t *testing.T) {
	for _, moving := range []bool{false, true} {
		t.Run(fmt.Sprintf("moving=%v", moving), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipedServer(t, serviceTest{templates: apiTemplates})
				p.api.surface.room.limit = 1 << 20
				for range 40 {
					createWith(t, p.svc, longContext)
				}
				done := make(chan struct{})
				defer close(done)
				room := p.api.surface.room
				for room.taken+streamMemory <= room.limit/4*3 {
					r := p.get("/v1/tasks?per_page=40")
					go func() {
						for _, err := io.CopyN(io.Discard, r, 1); err == nil && moving; _, err = io.CopyN(io.Discard, r, jsonPiece) {
							receiveWithin(done, stalledAfter/4)
						}
					}()
					synctest.Wait()
				}
				began := time.Now()
				p.getStatus("/v1/tasks?per_page=2&context=false", 200)
				p.getStatus("/v1/tasks?per_page=20&context=false", 200) // which holds its buffer
				if took := time.Since(began); took > 0 {
					t.Errorf("short answers took %s", took)
				}
				if !moving {
					p.getStatus("/v1/tasks?per_page=40", 200)
					if took := time.Since(began); took < stalledAfter || took > 2*stalledAfter {
						t.Errorf("it took %s; want about %s", took, stalledAfter)
					}
					return
				}
				resp := p.getStatus("/v1/tasks?per_page=40", 503)
				if took := time.Since(began); took < roomPatience || took > 2*roomPatience {
					t.Errorf("it took %s; want about %s", took, roomPatience)
				}
				if h := resp.Header; h.Get("Retry-After") != "1" || !resp.Close {
					t.Errorf("got the headers %v; want Retry-After and the last answer of the connection", h)
				}
			})
		})
	}
}

// TestRoomIsSoonRefused checks that a request is soon refused while many requests wait for room
// already.
func TestRoomIsSoonRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
		a.surface.room.taken = a.surface.room.limit
		began := time.Now()
		for _, tt := range []struct {
			caller        *securityContext // nil for a public route
			requests, now int              // that are refused at once
		}{{nil, maxRoomWaiters/2 + 3, 3}, {unrestricted(), maxRoomWaiters/2 + 5, 5}, {nil, 1, 1}} {
			refused := 0
			for range tt.requests {
				go func() {
					w := a.surface.newResponseWriter(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
					w.caller = tt.caller
					if kindOf(w.hold(1)) == backpressure && time.Since(began) == 0 {
						refused++
					}
				}()
				synctest.Wait()
			}
			if refused != tt.now {
				t.Errorf("got %d of %d refused at once; want %d", refused, tt.requests, tt.now)
			}
		}
		time.Sleep(2 * roomPatience)
		synctest.Wait()
		if a.surface.room.refused != maxRoomWaiters+9 || a.surface.room.waiting != 0 {
			t.Errorf("got %d refused and %d waiting; want %d and none", a.surface.room.refused, a.surface.room.waiting, maxRoomWaiters+9)
		}
	})
}

// TestPublicTextsLeaveRoom has readers of public texts hold half of the room: another one waits, while a list gets room.
func TestPublicTextsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
		a.surface.room.taken = a.surface.room.limit / 2
		writer := func() *responseWriter {
			w := a.surface.newResponseWriter(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			w.matched = true
			return w
		}
		began, text := time.Now(), newPackedText("text/plain", make([]byte, 2*jsonPiece), 1)
		if err := text.write(writer()); kindOf(err) != backpressure || time.Since(began) < roomPatience {
			t.Errorf("a public text: got %v after %s; want it to wait in vain", err, time.Since(began))
		}
		began = time.Now()
		w := writer()
		w.caller = unrestricted()
		if noError(t, w.hold(jsonPiece)); time.Since(began) > 0 {
			t.Errorf("a list waited for %s; want room at once", time.Since(began))
		}
		w.share.release()
	})
}

// TestLongAnswersTakeTurns checks that the next answer is made while the reader of this one
// takes a piece, or after its end.
func TestLongAnswersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
		a.surface.room.turns = make(chan struct{}, 1)
		mine, theirs := net.Pipe()
		writer := func() *responseWriter {
			w := a.surface.newResponseWriter(&pipeWriter{*httptest.NewRecorder(), mine}, httptest.NewRequest("GET", "/", nil))
			w.matched = true
			return w
		}
		first, second := writer(), writer()
		noError(t, first.hold(0))
		turn, over := false, make(chan struct{})
		go func() {
			noError(t, second.hold(0))
			turn = true
			<-over
			second.share.release()
		}()
		if synctest.Wait(); turn {
			t.Error("two answers are made at once")
		}
		go first.Write(make([]byte, jsonPiece))
		if synctest.Wait(); !turn {
			t.Error("nothing is made while a reader takes a piece")
		}
		io.CopyN(io.Discard, theirs, jsonPiece)
		if synctest.Wait(); first.share.turn {
			t.Error("the first answer goes on before its turn")
		}
		close(over)
		if synctest.Wait(); !first.share.turn {
			t.Error("the first answer does not go on")
		}
		first.share.release()
	})
}

// pipeWriter is a response to a pipe.
type pipeWriter struct {
	httptest.ResponseRecorder
	to net.Conn
}

func (w *pipeWriter) Write(p []byte) (int, error) { return w.to.Write(p) }
