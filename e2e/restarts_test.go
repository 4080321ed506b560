package e2e

// The program and an application with its handlers, which stop and start in any order.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
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
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = "127.0.0.2" // whose ports no other test takes while the application does not run, to answer in its place
	}
	l := wire.Must(net.Listen("tcp", host+":0"))(t)
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
	var l net.Listener
	wire.Eventually(a, "its port to be free again", func() (ok bool) { // a connection of another test may have it
		var err error
		l, err = net.Listen("tcp", a.address)
		return err == nil
	})
	go a.server.Serve(l)
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

// sidecarSetting is a setting of examples/kubernetes/sidecar.yaml.
var sidecarSetting = regexp.MustCompile(`\{name: (STEPWELL_\w+__\w+), value: ["'](.*)["']\}`)

// TestRolloutsOfASidecar replaces a pod as examples/kubernetes/sidecar.yaml describes it, again and again under load: the
// application stops, then the service; the service starts, then the application.
func TestRolloutsOfASidecar(t *testing.T) {
	t.Parallel()
	slow(t)
	app := newApplication(t)
	env := []string{}
	for _, m := range sidecarSetting.FindAllStringSubmatch(string(readFile(t, "../examples/kubernetes/sidecar.yaml")), -1) {
		value := strings.NewReplacer("127.0.0.1:9000", app.address, "127.0.0.1:8080", "127.0.0.1:0", "127.0.0.1:8081", "127.0.0.1:0").Replace(m[2])
		env = append(env, m[1]+"="+value)
	}
	if len(env) != 3 {
		t.Fatalf("got the settings %q; want the two addresses and the handlers", env)
	}
	template := testTemplate("order", stepSpec{name: "reserve", callable: "shop.reserve"},
		stepSpec{name: "charge", callable: "shop.charge", after: []string{"reserve"}})
	args := []string{"serve", "--templates", templateDir(t, template), "--data", filepath.Join(t.TempDir(), "data"), "--print-ready"}
	tasks, rollouts := 0, size(3, 8)
	var service *program
	for range rollouts {
		service = launch(t, env, args...).awaitReady()
		load := func() {
			for range 20 {
				service.api().create(`{"namespace":"t","name":"order"}`)
				tasks++
			}
		}
		load() // before the application listens
		app.start()
		load()
		app.stop()
		load()
		service.stop()
	}
	service = launch(t, env, args...).awaitReady()
	app.start()
	awaitComplete(t, service, tasks)
	if again := app.repeated(); again > 0 || len(app.calls) < 2*tasks {
		t.Errorf("got %d calls, %d of them again; want at least %d, and none again", len(app.calls), again, 2*tasks)
	}
	t.Logf("%d rollouts, %d tasks, %d calls", rollouts, tasks, len(app.calls))
	service.stop()
}

// awaitComplete waits until so many tasks are complete. None may be blocked.
func awaitComplete(t *testing.T, service *program, tasks int) {
	t.Helper()
	count := func(status string) string {
		return service.api().do("GET", "/v1/tasks?per_page=1&status="+status, "").want(200).text("pagination.total_count")
	}
	eventually(t, "every task to complete", func() bool {
		if n := count("blocked_by_failures"); n != "0" {
			t.Fatalf("%s tasks are blocked", n)
		}
		return count("complete") == fmt.Sprint(tasks)
	})
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
	tasks := size(100, 500)
	for range tasks {
		service.api().create(`{"namespace":"t","name":"chain"}`)
	}
	kills, restarts := 0, size(6, 40)
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
	awaitComplete(t, service, tasks)
	again := app.repeated()
	t.Logf("%d restarts, %d kills: %d calls, %d of them again", restarts, kills, len(app.calls)+again, again)
	if again > kills*atOnce {
		t.Errorf("%d calls were repeated; want at most %d, those that %d kills cut off", again, kills*atOnce, kills)
	}
	service.stop()
}
