package main

// Tests of the memory for replies under way.

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// madeReplies are connections to handlers whose replies are made here: the bodies that it receives.
type madeReplies chan io.Reader

func (m madeReplies) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(&madeBody{req.Context(), <-m})}, nil
}

// madeBody is a body that stalls at its end if the reader says so with io.ErrNoProgress.
type madeBody struct {
	ctx context.Context
	io.Reader
}

func (b *madeBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.ErrNoProgress {
		<-b.ctx.Done()
		err = b.ctx.Err()
	}
	return n, err
}

// stalledReply is a body that stalls after n bytes. It does not touch the memory that it is read to.
type stalledReply struct {
	n    int
	came atomic.Int64
}

func (s *stalledReply) Read(p []byte) (int, error) {
	n := min(s.n-int(s.came.Load()), len(p))
	s.came.Add(int64(n))
	if n == 0 {
		return 0, io.ErrNoProgress
	}
	return n, nil
}

// wholeReply is a result of n bytes.
func wholeReply(n int) io.Reader { return strings.NewReader(strings.Repeat(" ", n-1) + "1") }

// replyTest has handlers whose replies are made, of up to 1 MiB.
type replyTest struct {
	*handlerSet
	made madeReplies
}

func newReplyTest(t *testing.T, memory int64) *replyTest {
	h := newTestHandlers(t, func(c *workerConfig) { c.MaxResultBytes = 1 << 20 })
	h.limitReplies(memory)
	r := &replyTest{h, make(madeReplies, 1)}
	h.web.connections = r.made
	return r
}

// call makes an attempt with a reply.
func (r *replyTest) call(ctx *attemptContext, timeout time.Duration, reply io.Reader) outcome {
	a := newTestAttempt(`{}`)
	a.timeout = timeout
	r.made <- reply
	return r.run(ctx, r.resolve("http://handler.invalid"), a)
}

// want checks the outcome of a call.
func (r *replyTest) want(t *testing.T, o outcome, want string) {
	t.Helper()
	if got := showOutcome(o); got != want {
		t.Errorf("got %s, %s; want %s", got, errorText(o), want)
	}
}

// TestStalledReplies has 4,096 replies stall before their end. Together they hold no more than the memory. A small
// reply takes none of it, and a large one gets some of it at once, because those that are slow give way.
func TestStalledReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const memory = 32 << 20
		r := newReplyTest(t, memory)
		var replies [4096]stalledReply
		var contexts [len(replies)]attemptContext
		ended := make(chan outcome, len(replies))
		for i := range replies {
			replies[i].n = 1<<20 - 1
			go func() { ended <- r.call(&contexts[i], time.Hour, &replies[i]) }()
		}
		synctest.Wait()
		used, came := r.replies.used.Load(), int64(0)
		for i := range replies {
			came += replies[i].came.Load()
		}
		if used > memory || used < memory-2*r.replies.largest {
			t.Errorf("%d bytes are held of %d; want nearly all", used, memory)
		}
		if most := used + int64(len(replies))*(freeReply+firstChunk); came > most {
			t.Errorf("%d bytes were read; want at most %d: what is held, and the start of each reply", came, most)
		}
		began := time.Now()
		r.want(t, r.call(new(attemptContext), time.Hour, wholeReply(freeReply)), "ok 1")
		if time.Since(began) > 0 || len(ended) > 0 {
			t.Errorf("a small reply took %v, and %d others ended", time.Since(began), len(ended))
		}
		for range 2 {
			began := time.Now()
			r.want(t, r.call(new(attemptContext), time.Hour, wholeReply(1<<20)), "ok 1")
			if took := time.Since(began); took > replyPatience {
				t.Errorf("a large reply waited for %v", took)
			}
		}
		synctest.Wait()
		n := len(ended)
		for range n {
			r.want(t, <-ended, "slow_reply retryable")
		}
		if got := r.replies.refused.Load(); n == 0 || got != uint64(n) {
			t.Errorf("%d replies gave way, and %d are counted", n, got)
		}
		for i := range contexts {
			contexts[i].cancel()
		}
		for range len(replies) - n {
			<-ended
		}
		if used := r.replies.used.Load(); used != 0 || len(r.replies.replies) > 0 {
			t.Errorf("%d bytes are held at the end", used)
		}
	})
}

// TestLargeRepliesAtOnce has replies come in turns that together need many times the memory, and need it again and
// again: none fails.
func TestLargeRepliesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the time of slow replies is frozen
		r := newReplyTest(t, 3<<20)
		var calls sync.WaitGroup
		for range 40 {
			calls.Go(func() {
				whole := wholeReply(400_000)
				r.want(t, r.call(new(attemptContext), time.Minute, readFunc(func(p []byte) (int, error) {
					runtime.Gosched()
					if used := r.replies.used.Load(); used > r.replies.most {
						t.Errorf("%d bytes are held of %d", used, r.replies.most)
					}
					return whole.Read(p)
				})), "ok 1")
			})
		}
		calls.Wait()
		if n := r.replies.refused.Load(); n > 0 {
			t.Errorf("%d replies gave way", n)
		}
	})
}

// readFunc is a reader.
type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestReplyWaits for memory until its attempt ends: by its timeout, or because it is cancelled.
func TestReplyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplyTest(t, 0)
		var holder attemptContext
		holder.replies = &r.replies
		noError(t, holder.growReply(1<<20))
		o := r.call(new(attemptContext), replyPatience/2, wholeReply(1<<20))
		r.want(t, o, "timeout retryable")
		if want := "; its reply waited for memory that other replies took"; !strings.HasSuffix(o.err.message, want) {
			t.Errorf("got %s; want …%s", o.err.message, want)
		}
		if n := r.replies.refused.Load(); n != 1 {
			t.Errorf("%d are counted; want 1", n)
		}
		var ctx attemptContext
		ended := make(chan outcome)
		go func() { ended <- r.call(&ctx, time.Hour, wholeReply(1<<20)) }()
		synctest.Wait()
		ctx.cancel()
		r.want(t, <-ended, "cancelled retryable")
		go func() { ended <- r.call(new(attemptContext), time.Hour, wholeReply(1<<20)) }()
		synctest.Wait()
		holder.releaseReply()
		r.want(t, <-ended, "ok 1")
		if used := r.replies.used.Load(); used != 0 {
			t.Errorf("%d bytes are held at the end", used)
		}
	})
}

// TestSlowReplyAgain uses the context of an attempt whose reply gave way once more, as a doubled delivery does.
func TestSlowReplyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplyTest(t, 0)
		var ctx attemptContext
		ended := make(chan outcome)
		go func() { ended <- r.call(&ctx, time.Hour, &stalledReply{n: 1<<20 - 1}) }()
		synctest.Wait()
		r.want(t, r.call(new(attemptContext), time.Hour, wholeReply(1<<20)), "ok 1")
		r.want(t, <-ended, "slow_reply retryable")
		r.want(t, r.call(&ctx, time.Hour, wholeReply(1<<20)), "ok 1")
	})
}

// TestSteadyReplies has replies come in turn that take a little less than the patience for each chunk: neither they
// nor those that wait for them give way.
func TestSteadyReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplyTest(t, 0)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				whole, came := wholeReply(1<<20), 0
				r.want(t, r.call(new(attemptContext), time.Hour, readFunc(func(p []byte) (int, error) {
					if came > freeReply {
						receiveWithin(make(chan int), replyPatience*9/10)
					}
					n, err := whole.Read(p)
					came += n
					return n, err
				})), "ok 1")
			})
			synctest.Wait()
		}
		calls.Wait()
	})
}

// TestExecReplyWaits has the output of a program wait for memory, until after the program and its grace have ended. It
// gets none at first, because its attempt is cancelled, and then all.
func TestExecReplyWaits(t *testing.T) {
	t.Parallel()
	h := newTestHandlers(t, func(c *workerConfig) { c.MaxResultBytes = 1 << 20 })
	h.programs.grace = time.Nanosecond
	var holder attemptContext
	holder.replies = &h.replies
	noError(t, holder.growReply(1<<20))
	for _, want := range []string{"cancelled retryable", "ok 1"} {
		ctx, ended := new(attemptContext), make(chan outcome)
		go func() { ended <- h.run(ctx, h.resolve(thisProgram(t)), programAttempt(t, "print", "100000")) }()
		waitsAfterProgram(t, h)
		if want == "ok 1" {
			holder.releaseReply()
		} else {
			ctx.cancel()
		}
		if got := showOutcome(<-ended); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
}

// waitsAfterProgram waits until a program has ended and its output waits for memory.
func waitsAfterProgram(t *testing.T, h *handlerSet) {
	t.Helper()
	eventually(t, "the program ends and its output waits", func() bool {
		h.replies.mu.Lock()
		defer h.replies.mu.Unlock()
		h.programs.running.mu.Lock()
		defer h.programs.running.mu.Unlock()
		for _, p := range h.programs.running.byPID {
			return p.ended && p.ctx.reply.wants > 0
		}
		return false
	})
}

// TestHTTP2WindowOfReplies reads the settings with which a connection of HTTP/2 begins: a handler cannot send more of a
// reply than a reply has for nothing while nobody reads it.
func TestHTTP2WindowOfReplies(t *testing.T) {
	t.Parallel()
	own := httptest.NewTLSServer(nil)
	defer own.Close()
	l := must(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: own.TLS.Certificates, NextProtos: []string{"h2"}}))(t)
	defer l.Close()
	windows := make(chan uint32, 1)
	go func() {
		conn := must(l.Accept())(t)
		defer conn.Close()
		begin := make([]byte, 24+9) // the preface, and the header of the first frame
		io.ReadFull(conn, begin)
		settings := make([]byte, begin[26])
		io.ReadFull(conn, settings)
		for ; len(settings) > 0; settings = settings[6:] {
			if binary.BigEndian.Uint16(settings) == 4 { // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, 6.5.2)
				windows <- binary.BigEndian.Uint32(settings[2:])
			}
		}
		close(windows)
	}()
	connections := newHandlerTransport(1, nil)
	defer connections.CloseIdleConnections()
	connections.TLSClientConfig = own.Client().Transport.(*http.Transport).TLSClientConfig
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+l.Addr().String(), bytes.NewReader([]byte("{}"))))(t)
	connections.RoundTrip(req)
	if got := <-windows; got != freeReply {
		t.Errorf("got a window of %d bytes; want %d", got, freeReply)
	}
}
