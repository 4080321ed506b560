package main

// Sandboxes: isolated copies of a service in fixture mode, each on its own ports. They share what no test changes:
// configuration, handlers, the templates of the start, authentication and routing.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxSandboxes bounds how many sandboxes may exist at a time.
const maxSandboxes = 1000

// sandbox is one isolated copy of a service.
type sandbox struct {
	view    sandboxView
	number  uint64 // in the order of creation
	world   *world
	servers []*httpServer
}

// sandboxView shows a sandbox.
type sandboxView struct {
	Name             string `json:"name"`
	OrchestrationURL string `json:"orchestration_url"`
	WorkerURL        string `json:"worker_url"`
	MountURL         string `json:"mount_url"`
}

// sandboxes holds the sandboxes of one service.
type sandboxes struct {
	world *world // the world that is copied
	ports *portRange

	ending sync.WaitGroup // of deleted sandboxes

	mu    sync.Mutex
	all   map[string]*sandbox // by name, nil while one is being made; guarded by mu, as all below
	begun uint64              // how many, ever
	end   bool                // no more are made
}

// create makes a sandbox and serves it.
func (b *sandboxes) create(q *sandboxRequest) (*sandbox, error) {
	box, err := b.reserve(q.name)
	if err != nil {
		return nil, err
	}
	if err = b.open(box, q); err == nil && !b.enter(box) {
		err = errEnding()
	}
	if err != nil {
		b.forget(box)
		box.close()
		return nil, err
	}
	return box, nil
}

// reserve reserves a name for a new sandbox; "" stands for any.
func (b *sandboxes) reserve(name string) (*sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end {
		return nil, errEnding()
	}
	if len(b.all) >= maxSandboxes {
		return nil, failf(unavailable, "%d sandboxes exist already; delete some", maxSandboxes)
	}
	if _, taken := b.all[name]; taken {
		return nil, failf(conflict, "sandbox %q already exists", name)
	}
	b.begun++
	for n := b.begun; name == ""; n++ {
		free := fmt.Sprintf("sandbox-%d", n)
		if _, taken := b.all[free]; !taken {
			name = free
		}
	}
	// Opening a sandbox takes long and needs no lock: until then, nil keeps the name, and counts towards the limit.
	b.all[name] = nil
	return &sandbox{view: sandboxView{Name: name}, number: b.begun}, nil
}

// enter makes a sandbox known, unless all are ending.
func (b *sandboxes) enter(box *sandbox) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end {
		return false
	}
	b.all[box.view.Name] = box
	return true
}

func (b *sandboxes) forget(box *sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, box.view.Name)
}

// open opens the sandbox's listeners, then its service, and serves. After an error the caller closes what is open.
func (b *sandboxes) open(box *sandbox, q *sandboxRequest) error {
	w := &world{parts: b.world.parts, sandbox: box.view.Name, gates: &gates{shared: b.world.gates.shared}, atStart: openService}
	cfg := *b.world.parts.cfg // a copy, for the addresses
	// A directory holds one service, and a sandbox is not meant to last.
	cfg.Store.Memory = true
	w.parts.cfg, w.parts.log = &cfg, b.world.parts.log.With("sandbox", box.view.Name)
	if q.seed != nil {
		w.atStart = func(o serviceOptions) (*service, error) {
			return withState(b.world.accept(bytes.NewReader(q.seed)))(o)
		}
	}
	w.parts.deterministic = cmp.Or(q.ids, w.parts.deterministic)
	if err := b.listen(box, &cfg, w.gates); err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	box.world = w
	for _, s := range box.servers {
		go box.serve(s)
	}
	return nil
}

// listen opens a listener for each role, on the host of the role's own one.
func (b *sandboxes) listen(box *sandbox, cfg *Config, g *gates) error {
	err := b.listenFor(box, &cfg.Orchestration.Web, &g.orchestration, &box.view.OrchestrationURL)
	if err == nil && cfg.Mount.Path != "" {
		box.view.MountURL = box.view.OrchestrationURL + cfg.Mount.Path
	}
	if err == nil && cfg.Role != "orchestration" {
		err = b.listenFor(box, &cfg.Worker.Web, &g.worker, &box.view.WorkerURL)
	}
	return err
}

func (b *sandboxes) listenFor(box *sandbox, web *roleWebConfig, h http.Handler, url *string) error {
	own, err := parseListen(web.Listen)
	if err != nil {
		return fmt.Errorf("the address %s: %w", web.Listen, err)
	}
	l, err := b.ports.listen(own.host)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	// The sandbox's own configuration has the address at which it is reached.
	web.Listen = net.JoinHostPort(own.host, port)
	*url = reachableURL(l.Addr().String())
	if host := b.world.parts.cfg.Fixture.PublicHost; host != "" {
		*url = "http://" + net.JoinHostPort(host, port)
	}
	box.servers = append(box.servers, newHTTPServer(l, h, b.world.gates.connections, b.world.parts.log))
	return nil
}

func (box *sandbox) serve(s *httpServer) {
	if err := s.serve(); !errors.Is(err, http.ErrServerClosed) {
		box.world.parts.log.Error("a sandbox's listener failed", "error", err)
	}
}

func (b *sandboxes) get(name string) (*sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if box := b.all[name]; box != nil {
		return box, nil
	}
	return nil, sandboxNotFound(name)
}

func sandboxNotFound(name string) *failure { return failf(notFound, "there is no sandbox %q", name) }

// list returns the sandboxes that are ready, oldest first.
func (b *sandboxes) list() []*sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := make([]*sandbox, 0, len(b.all))
	for _, box := range b.all {
		if box != nil {
			found = append(found, box)
		}
	}
	slices.SortFunc(found, func(x, y *sandbox) int { return cmp.Compare(x.number, y.number) })
	return found
}

// delete ends a sandbox: its listeners, connections, handlers and timers. It
// waits for its handlers as long as a reset does.
func (b *sandboxes) delete(name string) error {
	b.mu.Lock()
	box := b.all[name]
	if box == nil {
		b.mu.Unlock()
		return sandboxNotFound(name)
	}
	delete(b.all, name)
	// Under the lock, so that close, which waits for all that ends, finds the sandbox either in the list or in the
	// group.
	ended := endIn(&b.ending, box.close)
	b.mu.Unlock()
	receiveWithin(ended, cutOffPatience)
	return nil
}

// close ends everything of a sandbox at once.
func (box *sandbox) close() {
	for _, s := range box.servers {
		s.server.Close()
		s.listener.Close() // which the server has not yet, if it never served
	}
	if box.world == nil {
		return
	}
	box.world.finish(alreadyEnded())
	if err := box.world.close(); err != nil {
		box.world.parts.log.Warn("closing a sandbox", "error", err)
	}
}

// finish stops making sandboxes, and lets the handlers of all continue until ctx ends.
func (b *sandboxes) finish(ctx context.Context) (cut []string) {
	b.mu.Lock()
	// First, so that the list below is complete.
	b.end = true
	b.mu.Unlock()
	var all sync.WaitGroup
	boxes := b.list()
	each := make([][]string, len(boxes))
	for i, box := range boxes {
		all.Go(func() { each[i] = box.world.finish(ctx) })
	}
	all.Wait()
	return slices.Concat(each...)
}

func (b *sandboxes) close() {
	for _, box := range b.list() {
		b.delete(box.view.Name)
	}
	b.ending.Wait()
}

// status returns what /health/detailed says of sandboxes.
func (w *world) status() string {
	if w.boxes == nil {
		return "this is sandbox " + w.sandbox
	}
	return counted(len(w.boxes.list()), "sandbox", "sandboxes")
}

// The control API of sandboxes.

// sandboxListView shows the sandboxes of a service.
type sandboxListView struct {
	Sandboxes []sandboxView `json:"sandboxes"`
}

// sandboxRequest asks for a sandbox.
type sandboxRequest struct {
	name string // "" for any
	seed []byte // the lines of the state to start with; nil for none
	ids  string // the seed of ids and random numbers; "" for none
}

// seedDepth is how much deeper a body with a seed may be nested than others.
const seedDepth = elementDepth + 4

func (q *sandboxRequest) read(f *fieldReader, body []byte) {
	f.members("", body, []string{"name", "seed", "deterministic_ids"}, func(key, _ string, raw []byte) {
		switch key {
		case "name":
			if q.name = f.text(key, raw, 1, 63); !f.complainedOf(key) && strings.Trim(q.name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
				f.complain(key, "must consist of lower-case letters, digits and -")
			}
		case "seed":
			q.seed = []byte{}
			switch jsonKind(raw) {
			case '"':
				q.seed = unescapeJSON(raw)
			case '[':
				// The checksums are of lines, and a program may have spelled the objects in another way.
				for line := range jsonElements(raw) {
					q.seed = append(append(append(q.seed, '{'), membersWithout(line, "sum")...), '\n')
				}
			default:
				f.complain(key, "must be a text with the lines of a state, or an array of their objects")
			}
		case "deterministic_ids":
			q.ids = f.text(key, raw, 1, maxNameLength)
		}
	})
}

// onSandboxes returns a handler of requests about the sandboxes of the service; a sandbox has none.
func (a *controlAPI) onSandboxes(
	handle func(all *sandboxes, w *responseWriter, r *http.Request) (any, error),
) handlerFunc {
	return func(w *responseWriter, r *http.Request) (any, error) {
		if here := a.fixture.world; here.boxes == nil {
			return nil, failf(conflict, "this is sandbox %q, and a sandbox cannot contain sandboxes", here.sandbox)
		}
		return handle(a.fixture.world.boxes, w, r)
	}
}

func addSandbox(all *sandboxes, w *responseWriter, r *http.Request) (any, error) {
	extendReading(w, stateTimeout)
	q := &sandboxRequest{}
	if err := (bodyRules{optional: true, deeper: seedDepth}).fields(r, "no sandbox was made", q.read); err != nil {
		return nil, err
	}
	extendWriting(w, stateTimeout)
	box, err := all.create(q)
	if err != nil {
		return nil, refusedState(err, "seed", "no sandbox was made")
	}
	w.Header().Set("Location", controlPath+"/sandboxes/"+box.view.Name)
	return reply{http.StatusCreated, box.view}, nil
}

func listSandboxes(all *sandboxes, _ *responseWriter, _ *http.Request) (any, error) {
	v := sandboxListView{[]sandboxView{}}
	for _, box := range all.list() {
		v.Sandboxes = append(v.Sandboxes, box.view)
	}
	return v, nil
}

func getSandbox(all *sandboxes, _ *responseWriter, r *http.Request) (any, error) {
	box, err := all.get(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return box.view, nil
}

func deleteSandbox(all *sandboxes, _ *responseWriter, r *http.Request) (any, error) {
	return noContent{}, all.delete(r.PathValue("name"))
}

// portRange gives out the ports of a range in turn, so that a port just released
// is not reused soon. The zero value gives out any free port.
type portRange struct {
	low, high int

	mu   sync.Mutex
	next int // guarded by mu
}

// parsePortRange reads fixture.port_range, which the configuration has checked.
func parsePortRange(s string) *portRange {
	p := new(portRange)
	fmt.Sscanf(s, "%d-%d", &p.low, &p.high)
	p.next = p.low
	return p
}

// listen listens on the next free port of a host.
func (p *portRange) listen(host string) (net.Listener, error) {
	for range p.high - p.low + 1 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p.take())))
		if err == nil {
			return l, nil
		}
		// Without a range the system chose the port, so another try would not help.
		if !errors.Is(err, errAddressInUse) || p.low == 0 {
			return nil, &failure{kind: unavailable, message: "no port for a sandbox: " + err.Error()}
		}
	}
	return nil, failf(unavailable, "no port for a sandbox: all of fixture.port_range, %d-%d, are in use", p.low, p.high)
}

func (p *portRange) take() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	port := p.next
	if p.next++; p.next > p.high {
		p.next = p.low
	}
	return port
}
