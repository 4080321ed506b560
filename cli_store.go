package main

// The command store: check, compact, export, import, repair.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func storeCommands() command {
	return command{name: "store", help: "check, compact, export, import or repair the files of a store", commands: []command{
		{
			name: "check", help: "check the files as \"serve\" would read them, without changing anything",
			examples: []string{"store check", "store check --data /var/lib/stepwell"},
			define:   onStore((*process).checkStore),
		},
		{
			name: "compact", help: "write a snapshot and empty the journal; no service may use the directory",
			examples: []string{"store compact", "store compact --data /var/lib/stepwell"},
			define:   onStore((*process).compactStore),
		},
		{
			name: "export", operands: "[FILE]", help: "write the whole state as one JSON document, to FILE or to standard output",
			more: "Without --to, it changes nothing, and a service may be using the directory.\n" +
				"With --to tasker, it writes the tasks for Tasker, as one transaction for psql. To export unfinished tasks, give\n" +
				"--hold, which keeps them from running here, or stop the service that uses the directory. If some tasks cannot\n" +
				"move, they are listed, and the exit code is 1; nothing is written unless --skip omits these tasks.",
			examples: []string{
				"store export state.json", "store export --to tasker > tasks.sql",
			},
			define: exportStoreTo,
		},
		{
			name: "import", operands: "FILE", help: "fill an empty directory from an exported document; - is standard input",
			examples: []string{"store import state.json", "store import --data new -"},
			define:   onStore((*process).importStore),
		},
		{
			name: "repair", operands: "[NEWDIR]", help: "salvage a damaged store into a new one, and report what is lost",
			more:     "The new store is NEWDIR, by default DIR.repaired. The damaged store stays as it is.",
			examples: []string{"store repair", "store repair --data /var/lib/stepwell /var/lib/stepwell-new"},
			define:   onStore((*process).repairStore),
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

// toolJournal returns the options to open a directory, which must exist.
func (p *process) toolJournal(dir string) (journalOptions, error) {
	_, err := os.Stat(dir)
	return journalOptions{dir: dir, log: slog.New(slog.NewTextHandler(p.stderr, nil)), now: p.now}, err
}

// checkStore reads every line and applies every record.
func (p *process) checkStore(dir string, _ []string) error {
	s := newStore(nil, slog.New(slog.DiscardHandler))
	if err := checkStoreFiles(dir, &restorer{s: s}, p.stdout); err != nil {
		return err
	}
	states := []string{}
	for i, n := range s.counts().tasks {
		if n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, taskState(i)))
		}
	}
	tasks, _ := s.size()
	fmt.Fprintf(p.stdout, "every record applies: %s (%s)\n", counted(tasks, "task", "tasks"), cmp.Or(strings.Join(states, ", "), "none"))
	return nil
}

// compactStore writes a snapshot and empties the journal.
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
	fmt.Fprintf(p.stdout, "%s: %s; journal %d bytes before, %d now; snapshot %d bytes before, %d now\n",
		dir, counted(tasks, "task", "tasks"), before.journalBytes, after.journalBytes, before.snapshotBytes, after.snapshotBytes)
	return nil
}

// exportStore writes the state to a file or standard output. It takes no lock.
func (p *process) exportStore(dir string, files []string, force bool) error {
	o, err := p.toolJournal(dir)
	if err != nil {
		return fmt.Errorf("export store: %w", err)
	}
	s, err := readStore(dir, o.log)
	if err != nil {
		return fmt.Errorf("export store %s: %w", dir, err)
	}
	return p.writeExport(files, force, func(w io.Writer) error { return s.exportState(w, s.cutState(o.now())) })
}

// writeExport writes a file, or standard output.
func (p *process) writeExport(files []string, force bool, write func(w io.Writer) error) error {
	if len(files) == 0 || files[0] == "-" {
		return write(p.stdout)
	}
	if err := writeDocument(files[0], force, write); err != nil {
		return fmt.Errorf("export store: %w", err)
	}
	return nil
}

// documentBegins are how the documents begin that commands write to files which a user names.
var documentBegins = []string{stateBegin, taskerTitle}

// writeDocument writes a document to a file, completely or not at all. Unless force is set, it replaces only a document
// or an empty file: any other is somebody's, and the name perhaps a mistake.
func writeDocument(path string, force bool, write func(w io.Writer) error) error {
	if !force {
		if err := checkDocument(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return replaceFile(path, func(f *os.File) error { return errors.Join(write(f), f.Sync()) })
}

// checkDocument returns an error unless a file is empty or begins as a document does.
func checkDocument(path string) error {
	f, err := openRegular(path, os.O_RDONLY|noFollow)
	if err != nil {
		return err
	}
	defer f.Close()
	begin, err := io.ReadAll(io.LimitReader(f, 256))
	ours := slices.ContainsFunc(documentBegins, func(b string) bool { return strings.HasPrefix(string(begin), b) })
	if err == nil && len(begin) > 0 && !ours {
		return &fs.PathError{Op: "replace", Path: path, Err: errors.New("it is not a document of Stepwell; --force replaces it")}
	}
	return err
}

// forceFlag defines --force, for writeDocument.
func (o *options) forceFlag() *bool {
	return o.Bool("force", false, "replace FILE even if it is not a document of Stepwell")
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
	from := p.stdin
	if files[0] != "-" {
		f, err := os.Open(files[0])
		if err != nil {
			return fmt.Errorf("import store: %w", err)
		}
		defer f.Close()
		from = f
	}
	return p.importFrom(dir, from)
}

// importFrom fills an empty directory from a document.
func (p *process) importFrom(dir string, from io.Reader) error {
	o, err := p.toolJournal(dir)
	// An import makes the directory; the other commands would only hide a typo in its name.
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("import store: %w", err)
	}
	s, err := importStore(o, &stateSource{document: from}, o.log)
	if err != nil {
		return fmt.Errorf("import store: %w", err)
	}
	tasks, last := s.size()
	fmt.Fprintf(p.stdout, "%s: %s, sequence 1 to %d\n", dir, counted(tasks, "task", "tasks"), last)
	return nil
}

// repairStore writes everything undamaged in a store to a new one beside it.
func (p *process) repairStore(dir string, to []string) error {
	o, err := p.toolJournal(dir)
	if err != nil {
		return fmt.Errorf("repair store: %w", err)
	}
	if o.dir = strings.TrimRight(dir, "/") + ".repaired"; len(to) > 0 {
		o.dir = to[0]
	}
	v, err := salvageStore(osDisk{}, dir, o.log)
	if err != nil {
		return fmt.Errorf("repair store %s: %w", dir, err)
	}
	if err := v.write(o); err != nil {
		return fmt.Errorf("repair store %s: %w", dir, err)
	}
	for _, loss := range v.losses {
		fmt.Fprintln(p.stdout, loss)
	}
	if v.torn != "" {
		fmt.Fprintln(p.stdout, v.torn)
	}
	tasks, last := v.s.size()
	fmt.Fprintf(p.stdout, "%s is unchanged; %s holds what was salvaged: %s, up to sequence %d; %s is lost\n",
		dir, o.dir, counted(tasks, "task", "tasks"), last, pick(len(v.losses) > 0, "the above", "nothing"))
	return nil
}
