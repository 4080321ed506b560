package main

// Reloading templates: serve watches their files, and replaces the registry when they change.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watchEvery is the interval between looks at the files, in real time.
const watchEvery = 500 * time.Millisecond

// templateWatch reads the templates again when their files have changed. It replaces all of them
// at once, or none if any file has a problem.
type templateWatch struct {
	cfg      *Config
	log      *slog.Logger
	handlers *handlerSet // for checking the callables of templates
	files    *atomic.Pointer[registry]
	read     string // the stamp of the files that were read last
	seen     string // the stamp at the latest look
}

// newTemplateWatch notes the files as they are. They are read after it.
func newTemplateWatch(cfg *Config, log *slog.Logger, getenv func(string) string) *templateWatch {
	stamp := stampTemplates(cfg.Templates.Dirs)
	return &templateWatch{cfg: cfg, log: log, handlers: newHandlerSet(&cfg.Worker, version, getenv),
		files: new(atomic.Pointer[registry]), read: stamp, seen: stamp}
}

// start watches until ctx ends or the result is called, which waits for the end.
func (w *templateWatch) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for closedWithin(ctx, nil, watchEvery) == errTooLong {
			w.look()
		}
	})
	return func() { cancel(); running.Wait() }
}

// look reads the files if they have changed, but not since the look before: a file that is being
// written would have problems.
func (w *templateWatch) look() {
	now := stampTemplates(w.cfg.Templates.Dirs)
	settled := now == w.seen
	if w.seen = now; settled && now != w.read {
		w.read = now
		w.reload()
	}
}

func (w *templateWatch) reload() {
	before := w.files.Load()
	r, warnings, err := w.handlers.load(w.cfg, before.files)
	logWarnings(w.log, warnings)
	if problems, ok := errors.AsType[inputProblems](err); ok {
		for _, p := range problems {
			if p.Source == "" {
				continue // a hint, which is not about a file
			}
			w.log.Error("the changed templates are refused; the earlier ones stay in use", "problem", p.String())
		}
		return
	}
	var all, changed []*template
	names := map[string][]string{}
	for _, t := range r.sorted {
		old, known := before.get(t.namespace, t.name, t.version)
		if known && old.hash == t.hash {
			all = append(all, old)
			continue
		}
		kind := pick(known, "changed", "added")
		all, changed, names[kind] = append(all, t), append(changed, t), append(names[kind], t.fullName())
	}
	for _, t := range before.sorted {
		if _, kept := r.get(t.namespace, t.name, t.version); !kept {
			names["removed"] = append(names["removed"], t.fullName())
		}
	}
	warnOfHandlers(changed, w.handlers, w.log)
	now := newRegistry(all)
	now.files = r.files
	w.files.Store(now)
	w.log.Info("the templates were read again; tasks keep the definitions they were created with",
		"added", names["added"], "changed", names["changed"], "removed", names["removed"])
}

// stampTemplates returns a text that changes with the files of templates.
func stampTemplates(dirs []string) string {
	var b strings.Builder
	for _, dir := range dirs {
		stampTemplate(&b, dir)
	}
	return b.String()
}

// stampTemplate adds a file, or the files of a directory and of those below it that are not links.
func stampTemplate(b *strings.Builder, name string) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		stampFile(b, name, info, err)
		return
	}
	templateEntries(name, func(below string, err error) {
		info, statErr := os.Stat(below)
		stampFile(b, below, info, cmp.Or(err, statErr))
	})
}

func stampFile(b *strings.Builder, name string, info os.FileInfo, err error) {
	if err != nil {
		fmt.Fprintln(b, name, err)
		return
	}
	// An editor or a deployment may replace a file by another one with the same size and time.
	id, _ := identifyName(name)
	fmt.Fprintln(b, name, info.Size(), info.ModTime().UnixNano(), id)
}
