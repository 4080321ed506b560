package e2e

// The program and an application with its handlers, which stop and start in any order.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// application is a program with handlers: at its end, it lets calls finish.
type application struct {
	*testing.T
	address string
	server  *http.Server // nil while it does not run

	mu    sync.Mutex
	calls map[string]int // by Idempotency-Key
}

func newApplication(t *testing.T) *application {
	l := wire.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return &application{T: t, address: l.Addr().String(), calls: map[string]int{}}
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.calls[r.Header.Get("Idempotency-Key")]++
	a.mu.Unlock()
	<-time.After(5 * time.Millisecond) // its work
	w.WriteHeader(http.StatusNoContent)
}

func (a *application) start() {
	a.server = &http.Server{Handler: a}
	go a.server.Serve(wire.Must(net.Listen("tcp", a.address))(a))
}

func (a *application) stop() {
	a.server.Shutdown(context.Background())
	a.server = nil
}

// repeated returns how many calls had a key that came before.
func (a *application) repeated() (n int) {
	for _, calls := range a.calls {
		n += calls - 1
	}
	return n
}

// TestRestartsInAnyOrder stops and starts an application and the service, which is sometimes killed, in any order, while
// tasks run. No task is blocked, and only what a kill cut off is delivered again.
func TestRestartsInAnyOrder(t *testing.T) {
	t.Parallel()
	slow(t)
	const atOnce = 8
	app := newApplication(t)
	steps := []stepSpec{}
	for n := range size(4, 12) {
		steps = append(steps, stepSpec{name: fmt.Sprint("s", n), callable: "http://" + app.address})
		if n > 0 {
			steps[n].after = []string{steps[n-1].name}
		}
	}
	args := serveArguments("--data", filepath.Join(t.TempDir(), "data"), "--templates", templateDir(t, testTemplate("chain", steps...)))
	env := []string{fmt.Sprint("STEPWELL_WORKER__HTTP_CONCURRENCY=", atOnce)}
	service := launch(t, env, args...).awaitReady()
	tasks := size(100, 1000)
	for range tasks {
		service.api().create(`{"namespace":"t","name":"chain"}`)
	}
	kills, restarts := 0, size(6, 100)
	for range restarts {
		stopApp, stopService := rand.IntN(2) == 0, rand.IntN(2) == 0
		if stopApp && app.server != nil {
			app.stop()
		}
		if stopService || !stopApp {
			if rand.IntN(2) == 0 {
				kills++
				service.kill()
			} else {
				service.stop()
			}
		}
		startApp := func() {
			if app.server == nil {
				app.start()
			}
		}
		if rand.IntN(2) == 0 {
			startApp()
		}
		if !service.running() {
			service = launch(t, env, args...).awaitReady()
		}
		<-time.After(rand.N(300 * time.Millisecond)) // for some of the work
		startApp()
		<-time.After(rand.N(300 * time.Millisecond))
	}
	eventually(t, "every task to complete", func() bool {
		n := service.api().do("GET", "/v1/tasks?status=complete&per_page=1", "").want(200).text("pagination.total_count")
		blocked := service.api().do("GET", "/v1/tasks?status=blocked_by_failures&per_page=1", "").want(200).text("pagination.total_count")
		if blocked != "0" {
			t.Fatalf("%s tasks are blocked", blocked)
		}
		return n == fmt.Sprint(tasks)
	})
	again := app.repeated()
	t.Logf("%d restarts, %d kills: %d calls, %d of them again", restarts, kills, len(app.calls)+again, again)
	if again > kills*atOnce {
		t.Errorf("%d calls were repeated; want at most %d, those that %d kills cut off", again, kills*atOnce, kills)
	}
	service.stop()
}
