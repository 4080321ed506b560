package main

// The command store: check, compact, export, import.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func storeCommands() command {
	return command{name: "store", help: "check, compact, export or import the file of a store", commands: []command{
		{
			name: "check", operands: "[FILE]", help: "read a store as \"serve\" would, without changing anything",
			more: "FILE is the file of a store, a copy of one, or an export; by default, it is " + storeName + " in the data directory.\n" +
				"A service may be using it.",
			examples: []string{"store check --data /var/lib/stepwell", "store check backup.jsonl"},
			define:   onStore((*process).checkStore),
		},
		{
			name: "compact", help: "rewrite the file without the records of the past; no service may use the directory",
			examples: []string{"store compact", "store compact --data /var/lib/stepwell"},
			define:   onStore((*process).compactStore),
		},
		{
			name: "export", operands: "[FILE]", help: "write the whole state as lines of JSON, to FILE or to standard output",
			more:     "This only reads, so a service may be using the directory. With --url, the state comes from GET /v1/backup of that service.",
			examples: []string{"store export state.jsonl --url http://10.0.0.7:8080", "store export --data /var/lib/stepwell - | gzip > state.jsonl.gz"},
			define:   exportStore,
		},
		{
			name: "import", operands: "FILE", help: "fill an empty directory from an export or the file of a store; - is standard input",
			more: "Lines may lack their checksums, so that you can edit them. What lacks something is left out and named, such as\n" +
				"the tasks of a template whose line you removed.",
			examples: []string{"store import state.jsonl", "store import --data new -"},
			define:   onStore((*process).importStore),
		},
	}}
}

// onStore returns the definition of a command that works on the files of a data directory.
func onStore(work func(p *process, dir string, operands []string) error) func(*options) runner {
	return func(o *options) runner {
		dir := o.String("data", "./stepwell-data", "`DIR`: use this data directory")
		return func(_ context.Context, operands []string) error { return work(o.p, *dir, operands) }
	}
}

func exportStore(o *options) runner {
	dir := o.String("data", "./stepwell-data", "`DIR`: use this data directory")
	force := o.Bool("force", false, "replace FILE even if it is not a document of Stepwell")
	// Not $STEPWELL_URL: without --url, the command is about a directory.
	o.url = o.String("url", "", "`URL`: export the store of the service at this URL")
	return func(ctx context.Context, files []string) error {
		switch {
		case *o.url == "":
			return o.p.exportStore(*dir, files, *force)
		case o.has("data"):
			return o.misuse("give --data or --url, not both")
		}
		c, err := o.client()
		if err == nil {
			err = c.backUp(ctx, files, *force)
		}
		return o.named(err)
	}
}

// backUp writes the state of the service to a file or standard output.
func (c *client) backUp(ctx context.Context, files []string, force bool) error {
	resp, err := c.send(ctx, call{method: "GET", path: "/v1/backup", stream: true})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != linesType {
		return exitf(exitFailed, "%s answers /v1/backup with something other than a state: is it Stepwell?", c.url)
	}
	return c.p.writeExport(files, force, func(w io.Writer) error {
		_, err := io.Copy(w, resp.Body)
		return err
	})
}

// toolJournal returns the options to open a directory, which must exist.
func (p *process) toolJournal(dir string) (journalOptions, error) {
	_, err := os.Stat(dir)
	return journalOptions{dir: dir, log: slog.New(slog.NewTextHandler(p.stderr, nil)), now: p.now}, err
}

// checkStore reads every line and applies every record.
func (p *process) checkStore(dir string, files []string) error {
	o := journalOptions{dir: dir, log: slog.New(slog.DiscardHandler), now: p.now}
	path := storePath(o.dir, storeName)
	if len(files) > 0 {
		path = files[0]
	}
	err := checkStoreFile(&o, path, p.stdout)
	if errors.Is(err, fs.ErrNotExist) && len(files) == 0 {
		return exitf(exitNotFound, "there is no store in %s", dir)
	}
	return err
}

func (p *process) compactStore(dir string, _ []string) error {
	o, err := p.toolJournal(dir)
	if err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	s, err := openStore(o, defaultKeptEvents, new(realClock), o.log)
	if err != nil {
		return err
	}
	before := s.status()
	err = s.compact()
	after := s.status()
	// The sizes are printed only if closing succeeded, too.
	if err = errors.Join(err, s.close()); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	tasks, _ := s.size()
	fmt.Fprintf(p.stdout, "%s: %s; %d bytes before, of which %d were records; %d now\n", storePath(o.dir, storeName),
		counted(tasks, "task", "tasks"), before.snapshotBytes+before.journalBytes, before.journalBytes, after.snapshotBytes)
	return nil
}

// exportStore writes the state to a file or standard output. It takes no lock.
func (p *process) exportStore(dir string, files []string, force bool) error {
	o, err := p.toolJournal(dir)
	if err != nil {
		return fmt.Errorf("export store: %w", err)
	}
	s, _, err := readStore(&o, storePath(o.dir, storeName))
	if err != nil {
		return fmt.Errorf("export store %s: %w", dir, err)
	}
	if err := p.writeExport(files, force, func(w io.Writer) error { return s.export(s.cut(), w) }); err != nil {
		return fmt.Errorf("export store: %w", err)
	}
	return nil
}

// writeExport writes a document to standard output, or to a file, completely or not at all. Unless force is set, it
// replaces only a document or an empty file: any other is somebody's, and the name perhaps a mistake.
func (p *process) writeExport(files []string, force bool, write func(w io.Writer) error) error {
	if len(files) == 0 || files[0] == "-" {
		return write(p.stdout)
	}
	if !force {
		if err := checkDocument(files[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return replaceFile(files[0], func(f *os.File) error { return errors.Join(write(f), f.Sync()) })
}

// checkDocument returns an error unless a file is empty or begins as a document does.
func checkDocument(path string) error {
	f, err := openRegular(path, os.O_RDONLY|noFollow)
	if err != nil {
		return err
	}
	defer f.Close()
	begin, err := io.ReadAll(io.LimitReader(f, 256))
	if err == nil && len(begin) > 0 && !strings.HasPrefix(string(begin), `{"format":`) {
		return &fs.PathError{Op: "replace", Path: path, Err: errors.New("it is not a document of Stepwell; --force replaces it")}
	}
	return err
}

// replaceFile writes a regular file with mode 0600, completely or not at all: it writes another file beside it, and
// renames that. It replaces no link, pipe or device.
func replaceFile(path string, write func(f *os.File) error) error {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	if err := checkRegular("replace", path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	removeRegular(temp) // of a process that had this pid and crashed
	// O_EXCL does not follow a link that somebody else may have put there.
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err == nil {
		err = renameRegular(temp, path)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// importStore fills an empty directory from an exported state.
func (p *process) importStore(dir string, files []string) error {
	from, size := p.stdin, int64(0) // 0 if it is unknown
	if files[0] != "-" {
		f, err := os.Open(files[0])
		if err != nil {
			return fmt.Errorf("import store: %w", err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		from = f
	}
	o, err := p.toolJournal(dir)
	// An import makes the directory; the other commands would only hide a typo in its name.
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("import store: %w", err)
	}
	shows := &readProgress{}
	shows.expect(size)
	state := &stateSource{document: startReader{from, nil, shows}, size: size, salvage: true}
	done := p.showProgress(shows)
	s, err := importStore(o, state, o.log)
	done()
	if err != nil {
		return fmt.Errorf("import store: %w", err)
	}
	for _, loss := range state.losses {
		fmt.Fprintln(p.stdout, loss)
	}
	tasks, last := s.size()
	fmt.Fprintf(p.stdout, "%s: %s, records 1 to %d\n", dir, counted(tasks, "task", "tasks"), last)
	return nil
}

// showProgress draws how much was read on a terminal, until done is called.
func (p *process) showProgress(shows *readProgress) (done func()) {
	style := p.styleOf(p.stderr)
	if _, known := shows.percent(); !known || style.terminal == nil {
		return func() {}
	}
	ctx, quit := context.WithCancel(context.Background())
	var drawing sync.WaitGroup
	drawing.Go(func() {
		for closedWithin(ctx, nil, 100*time.Millisecond) == errTooLong {
			n, _ := shows.percent()
			fmt.Fprintf(p.stderr, "\r%s", bar(style, int(n), 100))
		}
		fmt.Fprintf(p.stderr, "\r%s\n", bar(style, 100, 100))
	})
	return func() { quit(); drawing.Wait() }
}
