package main

// `stepwell store`: what operators do to the files of a data directory while no
// service has it.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

const storeUsage = `usage: stepwell store <command> [--data DIR]

  check          say what a start would make of the files; changes nothing
  compact        write a snapshot and empty the journal
  export [FILE]  write the whole state as one JSON document; changes nothing
  import FILE    make a store in an empty directory from such a document; - is standard input
`

// storeTool runs one of the commands above.
func (p *process) storeTool(_ context.Context, args []string) error {
	if len(args) == 0 {
		return usagef("%s", storeUsage)
	}
	switch name, rest := args[0], args[1:]; name {
	case "check":
		return p.checkCommand(rest)
	case "compact":
		return p.compactCommand(rest)
	case "export":
		return p.exportCommand(rest)
	case "import":
		return p.importCommand(rest)
	case "-h", "-help", "--help":
		fmt.Fprint(p.stdout, storeUsage)
		return flag.ErrHelp
	default:
		return usagef("there is no command \"store %s\"\n%s", name, storeUsage)
	}
}

func dataFlag(fs *flag.FlagSet) *string {
	return fs.String("data", "./stepwell-data", "the data directory")
}

// fileArgument parses flags and at most one operand after or before them.
func fileArgument(fs *flag.FlagSet, args []string) (string, error) {
	err := fs.Parse(args)
	name := fs.Arg(0)
	if err == nil && fs.NArg() > 1 {
		args = fs.Args()[1:]
		err = fs.Parse(args)
		if err == nil && fs.NArg() > 0 {
			return "", usagef("unexpected argument %q", fs.Arg(0))
		}
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		err = &usageError{} // the flag set has said it already
	}
	return name, err
}

// toolJournal is how the commands open a directory; it must be there.
func (p *process) toolJournal(dir string) (journalOptions, error) {
	o := journalOptions{
		dir: dir, log: slog.New(slog.NewTextHandler(p.stderr, nil)),
		now: func() instant { return instantOf(time.Now()) },
	}
	_, err := os.Stat(dir)
	return o, err
}

// compactCommand is `store compact`.
func (p *process) compactCommand(args []string) error {
	fs := p.flags("store compact")
	dir := dataFlag(fs)
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	o, err := p.toolJournal(*dir)
	if err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	s, err := openStore(o, defaultKeptEvents, nil, o.log)
	if err != nil {
		return err
	}
	before := s.journal.status()
	err = s.compact()
	after := s.journal.status()
	if err = errors.Join(err, s.close()); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	fmt.Fprintf(p.stdout, "%s: %d tasks; journal %d bytes before, %d now; snapshot %d bytes before, %d now\n",
		*dir, len(s.byID), before.journalBytes, after.journalBytes, before.snapshotBytes, after.snapshotBytes)
	return nil
}

// compact writes a snapshot after which the journal is empty. Where one was
// given up before, the first covers the old journal alone.
func (s *store) compact() error {
	if s.journal.oldBytes.Load() > 0 {
		if err := s.snapshot(); err != nil {
			return err
		}
	}
	return s.snapshot()
}

// exportCommand is `store export`. It takes no lock and changes nothing.
func (p *process) exportCommand(args []string) error {
	fs := p.flags("store export")
	dir := dataFlag(fs)
	name, err := fileArgument(fs, args)
	if err != nil {
		return err
	}
	o, err := p.toolJournal(*dir)
	if err != nil {
		return fmt.Errorf("export store: %w", err)
	}
	s := newStore(nil, o.log)
	r := &recovery{disk: osDisk{}, dir: *dir, loader: &restorer{s: s}}
	if err := r.read(); err != nil {
		return fmt.Errorf("export store %s: %w", *dir, err)
	}
	if len(r.files) == 0 {
		return fmt.Errorf("export store: there is no store in %s", *dir)
	}
	s.seq, s.journal = max(s.seq, r.last), newJournal(journalOptions{memory: true})
	return p.writeTo(name, func(w io.Writer) error { return s.exportState(w, o.now()) })
}

// writeTo has a file written whole or not at all; without a name it is standard output.
func (p *process) writeTo(name string, write func(w io.Writer) error) error {
	if name == "" || name == "-" {
		return write(p.stdout)
	}
	temp := fmt.Sprintf("%s.%d.tmp", name, os.Getpid())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// importCommand is `store import`.
func (p *process) importCommand(args []string) error {
	fs := p.flags("store import")
	dir := dataFlag(fs)
	name, err := fileArgument(fs, args)
	if err != nil {
		return err
	}
	from := p.stdin
	switch name {
	case "":
		return usagef("%s", storeUsage)
	case "-":
	default:
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("import store: %w", err)
		}
		defer f.Close()
		from = f
	}
	o, err := p.toolJournal(*dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("import store: %w", err)
	}
	s, err := importStore(o, from, o.log)
	if err != nil {
		return fmt.Errorf("import store: %w", err)
	}
	fmt.Fprintf(p.stdout, "%s: %d tasks, sequence 1 to %d\n", *dir, len(s.byID), s.seq)
	return nil
}
